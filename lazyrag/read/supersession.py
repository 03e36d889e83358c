"""`superseded`: which documents newer ones replace, as they declare, or their names or texts say;
and the day of each document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lazyrag.data.node import DocNode
from lazyrag.data.segment import content_text, root_uid
from lazyrag.ledger.field_keys import ValuesRow, merged_metadata
from lazyrag.read.catalogue import live_rows, visible_roots
from lazyrag.read.explore import glob
from lazyrag.read.field_values import VisibleDictionary
from lazyrag.read.scope import Collection, Reader, reader_of
from lazyrag.text.dates import (
    find_day,
    read_day,
    read_edition,
    replaced_paths,
    title_key,
)
from lazyrag.text.field_values import AMENDED, REPLACED, SERIES
from lazyrag.types import Metadata

_DAY_NAMES = ("effective_date", "valid_from", "date")

_REASONS = {
    "declared": "declared",
    "version": "version {newer} after version {older}",
    "date": "{newer} after {older}",
    "amendment": "inferred: its text amends {title}, {day}",
}


@dataclass(frozen=True, slots=True)
class Supersession:
    """A document that a newer one replaces.

    Args:
        path: The older document.
        by: The newer one.
        code: ``"declared"`` in the newer one's metadata; ``"version"`` or ``"date"``, as both names
            say; or ``"amendment"``, as the newer one's text says.
        values: Of names ``newer`` and ``older``: their versions or dates. Of an amendment ``title``
            and ``day`` of what it amends.
    """

    path: str
    by: str
    code: str
    values: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def reason(self) -> str:
        """How that is known: ``"declared"``, ``"version 3 after version 2"``, ``"2023-01-01 after
        2021-04-01"`` or ``"inferred: its text amends lease, 2021-04-01"``.
        """
        return _REASONS[self.code].format_map(self.values)

    def to_metadata(self) -> Metadata:
        """What hits of the older document have in their metadata."""
        return {
            "superseded_by": self.by,
            "superseded_reason": self.reason,
            "superseded_code": self.code,
            "superseded_values": dict(self.values),
        }

    def __str__(self) -> str:
        return f"{self.path}: superseded by {self.by} ({self.reason})"


def superseded(docs: Collection) -> list[Supersession]:
    """List the documents that newer ones replace, by path, each with the next newer one.

    A document declares what it replaces in its metadata, such as the front matter of Markdown or
    ``file_metadata``: ``supersedes: contract-2021.md``, a path from its folder or from the dataset,
    an id, or a list of them. Else names of files in one folder tell, if they differ in a version
    (``policy-v2.md``, ``policy-v3.md``) or a date (``contract_2021.pdf``, ``contract_2023.pdf``)
    alone; dates of reports, minutes and other documents that appear regularly do not. Else the
    beginning of a text tells, if it amends a document by its title and day ("Amendment to the lease
    of 3 March 2024"): the one of that day whose name or metadata has that title. A restricted
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
    newer = (find_newer(reader, path) for path in glob(docs, "*"))
    return list(filter(None, newer))


class Editions(NamedTuple):
    """What a state remembers of the visible documents that were looked up.

    Args:
        days: The ISO day of a document; "" for none.
        newer: By path, what replaces a document, at first as declared; None for nothing.
        amendments: By the key of a title, the days and paths of documents that amend such a one.
    """

    days: dict[str, str]
    newer: dict[str, Supersession | None]
    amendments: dict[str, list[tuple[str, str]]]


def find_newer(reader: Reader, path: str) -> Supersession | None:
    """What replaces a visible document directly; None for nothing."""
    newer = _editions(reader).newer
    if path not in newer:
        newer[path] = _find_in_series(reader, path) or _find_amendment(reader, path)
    return newer[path]


def find_superseding(node: DocNode, as_of: str = "") -> Supersession | None:
    """What replaces the document of a node in the end, or by a day; None for nothing."""
    newest: Supersession | None = None
    seen: set[str] = set()
    by = node.path
    while isinstance(node.reader, Reader) and by not in seen:
        seen.add(by)
        newer = find_newer(node.reader, by)
        if newer is not None and (not as_of or day_of(node.reader, newer.by) <= as_of):
            newest = newer
            by = newer.by
    return None if by == node.path else newest  # it replaces itself, by way of others


def mark_superseded(node: DocNode, as_of: str = "") -> DocNode:
    """The node; with what replaces its document, in the end or by a day, in the metadata."""
    newest = find_superseding(node, as_of)
    if newest is None:
        return node
    return node.with_metadata(**newest.to_metadata())


def day_of(reader: Reader, path: str) -> str:
    """The ISO day of a document: of its metadata, else of its name, else of the beginning of its
    text; "" for none.
    """
    days = _editions(reader).days
    if path not in days:
        row = _find_row(reader, path)  # none of a hidden document with visible nodes
        day = _row_day(row) if row else read_edition(path).day
        for root in [] if day else visible_roots(reader, [root_uid(path)]):
            day = find_day(content_text(root.content))
        days[path] = day
    return days[path]


def _editions(reader: Reader) -> Editions:
    handles = reader.indexer.last_view.handles  # of the read that found the documents
    key = "editions", reader.scope
    editions: Editions | None = handles.get(key)
    if editions is None:
        editions = Editions({}, {}, {})
        dictionary = VisibleDictionary(reader)
        # of several that replace the same document, the last one
        for row in sorted(dictionary.rows(REPLACED), key=lambda row: (_row_day(row), row.identity)):
            for beside, name in replaced_paths(
                merged_metadata(row).get("supersedes"), row.identity
            ):
                older = beside if _find_row(reader, beside) else name
                if older != row.identity:
                    editions.newer[older] = Supersession(older, row.identity, "declared")
        for row in dictionary.rows(AMENDED):
            title, _, day = str(merged_metadata(row).get("amends")).rpartition(", ")
            editions.amendments.setdefault(title_key(title), []).append((day, row.identity))
        handles[key] = editions
    return editions


def _find_row(reader: Reader, path: str) -> ValuesRow | None:
    """The row of a visible document."""
    rows = live_rows(reader.indexer.ledger, "identity = ?", path)
    visible = VisibleDictionary(reader).visible({row.id for row in rows})
    return next((row for row in rows if row.id in visible), None)


def _find_in_series(reader: Reader, path: str) -> Supersession | None:
    """The first of the next order by names, unless that declares the contrary."""
    edition = read_edition(path)
    rows = VisibleDictionary(reader).rows(SERIES, edition.series) if edition.series else []
    members = [(read_edition(row.identity), row.identity) for row in rows]
    later = [(other.order, by) for other, by in members if other.order > edition.order]
    if not later:
        return None
    _, by = min(later)
    if _editions(reader).newer.get(by) == Supersession(by, path, "declared"):
        return None
    code = "version" if edition.is_version else "date"
    values = {"newer": read_edition(by).label, "older": edition.label}
    return Supersession(path, by, code, values)


def _find_amendment(reader: Reader, path: str) -> Supersession | None:
    """Of several documents whose texts amend one of this title and day, the last one."""
    amendments = _editions(reader).amendments
    row = _find_row(reader, path) if amendments else None
    if row is None:
        return None
    written = str(merged_metadata(row).get("title", ""))
    titles = {title_key(path.rpartition("/")[2]), title_key(written)}
    for root in visible_roots(reader, [root_uid(path)]):
        first_line = content_text(root.content).strip("# \n").partition("\n")[0]
        titles.add(title_key(first_line))
    amending: list[tuple[str, str, str, str]] = []
    for title in titles & amendments.keys():
        for day, by in amendments[title]:
            if by != path and day == day_of(reader, path):
                amending.append((day_of(reader, by), by, title, day))
    if not amending:
        return None
    _, by, title, day = max(amending)
    return Supersession(path, by, "amendment", {"title": title, "day": day})


def _row_day(row: ValuesRow) -> str:
    """The ISO day that a document's metadata, else its name has; "" for none."""
    metadata = merged_metadata(row)
    written = (read_day(metadata.get(name)) for name in _DAY_NAMES)
    return next(filter(None, written), read_edition(row.identity).day)
