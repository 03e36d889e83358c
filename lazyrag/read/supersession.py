"""`superseded`: which documents newer ones replace, as they declare or their names say; and the day
of each document.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from lazyrag.data.segment import content_text, root_uid
from lazyrag.ledger.field_keys import ValuesRow
from lazyrag.read.catalogue import ROOT_STEPS, SCANNED, live_rows, matching_documents, visible_roots
from lazyrag.read.scope import Collection, Reader, reader_of
from lazyrag.text.editions import Edition, find_day, read_day, read_edition
from lazyrag.types import JsonObject
from lazyrag.validation import normal_name

_DAY_NAMES = ("effective_date", "valid_from", "date")
_has_names = re.compile(f'"(?:{"|".join(_DAY_NAMES)}|supersedes)"').search


@dataclass(frozen=True, slots=True)
class Supersession:
    """A document that a newer one replaces.

    Args:
        path: The older document.
        by: The newer one.
        reason: ``"declared"`` in the newer one's metadata; or what its name says: ``"version 3
            after version 2"``, ``"2023-01-01 after 2021-04-01"``.
    """

    path: str
    by: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: superseded by {self.by} ({self.reason})"


def superseded(docs: Collection) -> list[Supersession]:
    """List the documents that newer ones replace, by path, each with the next newer one.

    A document declares what it replaces in its metadata, such as the front matter of Markdown or
    ``file_metadata``: ``supersedes: contract-2021.md``, a path from its folder or from the dataset,
    an id, or a list of them. Else names of files in one folder tell, if they differ in a version
    (``policy-v2.md``, ``policy-v3.md``) or a date (``contract_2021.pdf``, ``contract_2023.pdf``)
    alone; dates of reports, minutes and other documents that appear regularly do not. A restricted
    Document has visible documents only.

    Args:
        docs: The Document.

    Raises:
        ConfigError: If it is no Document.
        IngestionError: If every file failed to load.

    Example:
        >>> from lazyrag import Document
        >>> from lazyrag.read import superseded
        >>> docs = Document()
        >>> _ = docs.add_texts({"leave-v2.md": "25 days", "leave-v10.md": "30 days"})
        >>> [str(entry) for entry in superseded(docs)]
        ['leave-v2.md: superseded by leave-v10.md (version 10 after version 2)']
    """
    reader = reader_of(docs)
    newer = reader.read(lambda _: editions_of(reader).newer, ROOT_STEPS)
    return [newer[path] for path in sorted(newer)]


class Editions(NamedTuple):
    """The visible documents of one state, as far as they have days or newer editions.

    Args:
        days: The ISO day of a document; "" for one whose text was looked at in vain.
        newer: By path, what replaces a document.
    """

    days: dict[str, str]
    newer: dict[str, Supersession]


def editions_of(reader: Reader) -> Editions:
    """The editions among the documents that a reader may see; each state remembers them."""
    handles = reader.indexer.now().handles
    key = "editions", reader.scope
    editions: Editions | None = handles.get(key)
    if editions is None:
        editions = handles[key] = _read_editions(_visible_rows(reader))
    return editions


def day_of(reader: Reader, path: str) -> str:
    """The ISO day of a document: of its metadata, else of its name, else of the beginning of its
    text; "" for none.
    """
    days = editions_of(reader).days
    if path not in days:
        day = read_edition(path).day  # of a hidden document with visible nodes
        for root in [] if day else visible_roots(reader, [root_uid(path)]):
            day = find_day(content_text(root.content))
        days[path] = day
    return days[path]


def in_force(reader: Reader, path: str, as_of: str) -> str:
    """The newest edition of a document that is not dated after a day."""
    newer = editions_of(reader).newer
    seen: set[str] = set()
    while path in newer and path not in seen and day_of(reader, newer[path].by) <= as_of:
        seen.add(path)
        path = newer[path].by
    return path


def _visible_rows(reader: Reader) -> Iterator[ValuesRow]:
    after = ""
    while True:
        rows = live_rows(reader.indexer.ledger, "identity > ?", after)
        visible = {row.identity for row in rows}
        if reader.scope is not None:
            visible = set(matching_documents(reader, rows, reader.scope))
        yield from (row for row in rows if row.identity in visible)
        if len(rows) < SCANNED:
            break
        after = rows[-1].identity


def _read_editions(rows: Iterable[ValuesRow]) -> Editions:
    editions = Editions({}, {})
    series: dict[str, list[tuple[Edition, str]]] = {}
    declared: dict[str, list[Any]] = {}
    paths: set[str] = set()
    for row in rows:
        path = row.identity
        paths.add(path)
        metadata = _metadata(row)
        edition = read_edition(path)
        written = (read_day(metadata[name]) for name in _DAY_NAMES if metadata.get(name))
        if day := next(filter(None, written), edition.day):
            editions.days[path] = day
        if edition.series:
            series.setdefault(edition.series, []).append((edition, path))
        if names := metadata.get("supersedes"):
            declared[path] = names if isinstance(names, list) else [names]
    # of several that replace the same document, the last one
    for path in sorted(declared, key=lambda path: (editions.days.get(path, ""), path)):
        for name in declared[path]:
            older = _resolve(str(name), path, paths)
            if older not in ("", path):
                editions.newer[older] = Supersession(older, path, "declared")
    for members in series.values():
        _add_series(editions.newer, sorted(members, key=lambda pair: (pair[0].order, pair[1])))
    return editions


def _metadata(row: ValuesRow) -> JsonObject:
    """A document's metadata, if it has what is read of it."""
    metadata: JsonObject = {}
    for text in (row.loaded, row.user_metadata, row.updates):
        if _has_names(text):
            metadata.update(json.loads(text))
    return metadata


def _resolve(name: str, path: str, paths: set[str]) -> str:
    """The visible document that a document names; "" for none."""
    name = normal_name(name)
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    return next((choice for choice in (beside, name) if choice in paths), "")


def _add_series(newer: dict[str, Supersession], members: list[tuple[Edition, str]]) -> None:
    """Note for each edition the first one of the next order, unless that declares the contrary."""
    groups = [list(group) for _, group in groupby(members, key=lambda pair: pair[0].order)]
    for group, following in pairwise(groups):
        next_edition, by = following[0]
        for edition, path in group:
            contrary = newer.get(by)
            if path not in newer and (contrary is None or contrary.by != path):
                reason = f"{next_edition.label} after {edition.label}"
                newer[path] = Supersession(path, by, reason)
