"""The documents of a Document, one by one: their states, and what agents and people read of
them.
"""

from __future__ import annotations

import bisect
import datetime as dt
import functools
import itertools
import json
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from lazyrag.data.encoding import ErrorInfo
from lazyrag.data.fields import BUILT_IN_FIELDS, DocField, Schema, parse_value
from lazyrag.data.filters import Filter, FilterLike, both, field_names, matches
from lazyrag.data.segment import (
    LAZY_ROOT_NAME,
    Location,
    Segment,
    Span,
    content_text,
    root_uid,
)
from lazyrag.errors import ConfigError, DatasetPathError
from lazyrag.groups.node_group import Step
from lazyrag.ledger.field_keys import ValuesRow, values_rows
from lazyrag.ledger.jobs import documents_in_work
from lazyrag.ledger.ledger import Ledger
from lazyrag.ledger.tables import DOCUMENT_COLUMNS, BuildRow, DocumentRow, document_row, new_row
from lazyrag.read.scope import Reader
from lazyrag.read.snapshot import LocalSnapshot
from lazyrag.read.source import LiveState
from lazyrag.read.versions import DocumentVersion, versions_of
from lazyrag.storage.database import batches_reaching
from lazyrag.stores.sqlite import read_text, stored_text
from lazyrag.types import FieldValue, State
from lazyrag.validation import (
    normal_name,
    require,
    validate_choice,
    validate_integer,
    validate_text,
)

SCANNED = 500
"""So many documents a filter looks at together."""
# bytes and number of those whose root nodes it reads together
_MAX_READ = 16 * 2**20
_MAX_READ_TOGETHER = 100
ROOT_STEPS = frozenset([Step(LAZY_ROOT_NAME)])


class GroupInfo(TypedDict):
    """Part of a document in a node group: its state and number of nodes."""

    status: State
    nodes: int


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """State of one document.

    Args:
        id: Its path relative to the dataset, or the user's id.
        path: The same, as `DocNode.path`.
        status: ``"FAILED"`` if a step failed at the last attempt; the version before it may be
            live. ``"WAITING"`` and ``"WORKING"`` if it was never ingested, ``"DELETING"`` until its
            storage is reclaimed, ``"DELETED"`` if it was deleted while its file is still in the
            dataset.
        stage: The step that failed: ``"load"``, ``"transform <group>"`` ...; "" for none.
        error: Why; None for no failure.
        bytes: Size of its file; None for a text.
        pages: Number of pages of a PDF; None for other documents.
        groups: For each built node group its state and number of nodes:
            ``{"status": "SUCCESS", "nodes": 3}``.
        labels: Its metadata ``labels``.
        version: Number of the live version; 0 for none.
        updated: When that became live, or when the document failed for the first time: ISO 8601 in
            UTC; "" if unknown.
    """

    id: str
    path: str
    status: State
    stage: str = ""
    error: ErrorInfo | None = None
    bytes: int | None = None
    pages: int | None = None
    groups: Mapping[str, GroupInfo] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    version: int = 0
    updated: str = ""


# Documents. The queries read nothing but the ledger: no store, no file.

_HAS_FAILED = (
    "EXISTS (SELECT 1 FROM failure WHERE ledger = document.ledger AND identity = document.identity)"
)
_IS_BEGUN = "EXISTS (SELECT 1 FROM build WHERE document = document.id AND status <> 'dead')"
_CONDITIONS: Mapping[str | None, str] = {
    None: "status IN ('live', 'new')",
    "WAITING": f"status = 'new' AND NOT {_HAS_FAILED} AND NOT {_IS_BEGUN}",
    "WORKING": f"status = 'new' AND NOT {_HAS_FAILED} AND {_IS_BEGUN}",
    "SUCCESS": f"status = 'live' AND NOT {_HAS_FAILED}",
    "FAILED": "1 = 0",  # see `_FAILED`
    "CANCELED": "1 = 0",
    "DELETING": "status = 'deleted'",
    "DELETED": "status = 'excluded'",
}
# A document that never loaded may have no row.
_FAILED = (
    "UNION SELECT identity FROM failure WHERE ledger = :ledger AND identity > :after AND NOT EXISTS"
    " (SELECT 1 FROM document WHERE ledger = :ledger AND identity = failure.identity AND status IN"
    " ('deleted', 'excluded')) "
)
_GONE: Mapping[str, State] = {"deleted": "DELETING", "excluded": "DELETED"}
_FAILURES = (
    "SELECT stage, kind, message, failed_at FROM failure WHERE ledger = ? AND identity = ? ORDER BY"
    " stage"
)
_GROUPS = (
    "SELECT name, id FROM node_group WHERE ledger = ? AND status IN ('building', 'live') ORDER BY"
    " status, id"
)
_BEGUN = "SELECT DISTINCT document FROM build WHERE status <> 'dead' AND document IN (?*)"


def list_documents(
    reader: Reader, after: str | None, limit: int, status: str | None, where: FilterLike | None
) -> list[DocumentInfo]:
    """Return a page of the documents; see `Document.documents`."""
    validate_integer("limit", limit, 1)
    require(
        after is None or isinstance(after, str), "after", after, "the id of a document, or None"
    )
    if status is not None:
        validate_choice("status", status, [name for name in _CONDITIONS if name])
    bound = both(reader.scope, reader.bind(where))
    ledger = reader.indexer.ledger
    if bound is None:
        return _describe(reader, _page(ledger, after or "", limit, status))
    condition = _HAS_FAILED if status == "FAILED" else _CONDITIONS[status]
    identities = []
    while True:
        rows = live_rows(ledger, f"identity > ? AND {condition}", after or "")
        identities += matching_documents(reader, rows, bound)
        if len(rows) < SCANNED or len(identities) >= limit:
            stored = ledger.documents.named(identities[:limit])
            return _describe(
                reader, [stored[name] for name in identities[:limit] if name in stored]
            )
        after = rows[-1].identity


def find_document(reader: Reader, identity: str) -> DocumentInfo:
    """Return one document; see `Document.documents`."""
    ledger = reader.indexer.ledger
    identity = normal_name(validate_text("document", identity))
    stored = ledger.documents.named([identity])
    if reader.scope is None or matching_documents(
        reader, live_rows(ledger, "identity = ?", identity), reader.scope
    ):
        row = stored.get(identity) or new_row(identity)
        [info] = _describe(reader, [row])
        if (row.id and row.status != "skipped") or info.error is not None:
            return info
    raise _no_document(identity)


def _no_document(identity: str) -> DatasetPathError:
    return DatasetPathError(f"There is no document {identity!r}. See documents().")


def live_rows(ledger: Ledger, condition: str, identity: str) -> list[ValuesRow]:
    """Rows of live documents under a condition with an identity, by identity; at most `SCANNED`."""
    with ledger.reading() as connection:
        ledger.id = ledger.id or ledger.find_row()
        where = f"ledger = ? AND status = 'live' AND {condition} ORDER BY identity LIMIT {SCANNED}"
        return values_rows(connection, where, ledger.id, stored_text(identity))


def _page(ledger: Ledger, after: str, limit: int, status: str | None) -> list[DocumentRow]:
    columns = DOCUMENT_COLUMNS.replace("identity", "document.identity")
    query = (
        f"SELECT found.identity, {columns} FROM ("  # noqa: S608
        "SELECT identity FROM document WHERE ledger = :ledger AND identity > :after AND"
        f" {_CONDITIONS[status]} "
        f"{_FAILED if status in (None, 'FAILED') else ''}ORDER BY identity LIMIT :limit) AS found "
        "LEFT JOIN document ON ledger = :ledger AND document.identity = found.identity ORDER BY"
        " found.identity"
    )
    with ledger.reading() as connection:
        ledger.id = ledger.id or ledger.find_row()
        values = {"ledger": ledger.id, "after": stored_text(after), "limit": limit}
        rows = connection.execute(query, values).fetchall()
    return [
        new_row(read_text(identity)) if row[0] is None else document_row(tuple(row))
        for identity, *row in rows
    ]


def matching_documents(reader: Reader, rows: Sequence[ValuesRow], bound: Filter) -> list[str]:
    """The documents whose root nodes satisfy a bound filter.

    The ledger has the declared fields; for the built-in ones the root nodes are read.
    """
    names = set(field_names(bound))
    if names.isdisjoint(BUILT_IN_FIELDS):
        texts = [_texts_with(row, names) for row in rows]
        matching = {
            metadata
            for metadata in set(texts)
            if matches(bound, _fields(metadata, names, reader.fields))
        }
        return [
            row.identity for row, metadata in zip(rows, texts, strict=True) if metadata in matching
        ]
    identities = []
    for batch in batches_reaching(
        rows, lambda row: row.size or 0, _MAX_READ, most_items=_MAX_READ_TOGETHER
    ):
        roots = visible_roots(reader, [row.uid for row in batch])
        identities += [root.path for root in roots if matches(bound, root.fields)]
    return identities


def visible_roots(reader: Reader, uids: Sequence[str]) -> list[Segment]:
    """The visible root nodes of some documents."""

    def read(snapshot: LocalSnapshot) -> list[Segment]:
        return [node.segment for node in snapshot.walk(LAZY_ROOT_NAME, None, {"document_id": uids})]

    return reader.read(read, ROOT_STEPS)


def _texts_with(row: DocumentRow | ValuesRow, names: Iterable[str]) -> tuple[str, ...]:
    """Those of a document's metadata (JSON) that may have some names; for most documents the same
    few, or none.
    """
    texts = []
    for text in (row.loaded, row.user_metadata, row.updates):
        texts += [text for name in names if f'"{name}"' in text or not name.isascii()]
    return tuple(texts)


def _fields(texts: Iterable[str], names: Iterable[str], schema: Schema) -> dict[str, FieldValue]:
    """Declared fields of a root node, from its metadata, as `lazyrag.ingest.pending.root_segment`
    computes them.
    """
    metadata = {}
    for text in texts:
        metadata.update(_parsed(text))
    values = {name: _fitting_value(name, schema[name], metadata.get(name)) for name in names}
    return {
        name: schema[name].default_value if value is None else value
        for name, value in values.items()
    }


def _fitting_value(name: str, field: DocField, value: Any) -> FieldValue:
    """A value by the type of its field; None for one of a file that does not fit, which was
    noted.
    """
    try:
        return parse_value(name, field, value)
    except ConfigError:
        return None


@functools.lru_cache(maxsize=4_096)
def _parsed(text: str) -> Any:
    return json.loads(text)


def _describe(reader: Reader, rows: Sequence[DocumentRow]) -> list[DocumentInfo]:
    ledger = reader.indexer.ledger
    numbers = [row.id for row in rows]
    with ledger.reading() as connection:
        failures = [
            connection.execute(_FAILURES, (ledger.id, stored_text(row.identity))).fetchall()
            for row in rows
        ]
        # of two, the live one comes last
        groups = dict(connection.execute(_GROUPS, (ledger.id,)).fetchall())
        builds = ledger.builds.live(numbers)
        created = ledger.documents.created(numbers)
        new = [row.id for row in rows if row.status == "new"]
        begun = {number for (number,) in ledger.select_in(_BEGUN, new)}
    in_work = documents_in_work(ledger)
    infos = []
    for row, failed in zip(rows, failures, strict=True):
        status = in_work.get(row.identity) or _status(
            row, is_failed=bool(failed), is_begun=row.id in begun
        )
        stage = ""
        error = None
        updated = created.get(row.id)
        if failed:
            stage, kind, message, failed_at = failed[0]
            error = ErrorInfo.from_message(kind.partition(" ")[0], read_text(message))
            updated = failed_at if updated is None else updated
        group_ids = {} if row.status in _GONE else groups
        infos.append(
            DocumentInfo(
                id=row.identity,
                path=row.identity,
                status=status,
                stage=stage,
                error=error,
                bytes=None if row.signature is None else row.signature.size,
                pages=_parsed(row.loaded).get("pages") if '"pages"' in row.loaded else None,
                groups=_describe_groups(group_ids, builds.get(row.id, {}), failed),
                labels=_labels(row, reader.fields),
                version=row.version if row.status == "live" else 0,
                updated="" if updated is None else _iso_time(updated),
            )
        )
    return infos


def _describe_groups(
    group_ids: Mapping[str, int], builds: Mapping[int, BuildRow], failures: Sequence[Sequence[Any]]
) -> dict[str, GroupInfo]:
    stages = [stage for stage, *_ in failures]
    return {name: _group(name, builds.get(group_ids[name]), stages) for name in sorted(group_ids)}


def _labels(row: DocumentRow, schema: Schema) -> tuple[str, ...]:
    if "labels" not in schema:
        return ()
    names = ("labels",)
    labels = _fields(_texts_with(row, names), names, schema)["labels"]
    return tuple(map(str, labels)) if isinstance(labels, tuple) else ()


def _iso_time(timestamp: float) -> str:
    return dt.datetime.fromtimestamp(timestamp, dt.UTC).isoformat()


def _status(row: DocumentRow, *, is_failed: bool, is_begun: bool) -> State:
    if row.status in _GONE:
        return _GONE[row.status]
    if is_failed:
        return "FAILED"
    if row.status == "live":
        return "SUCCESS"
    return "WORKING" if is_begun else "WAITING"


def _group(name: str, build: BuildRow | None, failed: Iterable[str]) -> GroupInfo:
    begins = (
        ("load", "metadata")
        if name == LAZY_ROOT_NAME
        else (f"embed {name} with ", f"index {name} with ")
    )
    is_failed = any(stage == f"transform {name}" or stage.startswith(begins) for stage in failed)
    nodes = 0 if build is None else sum(_parsed(build.counts))
    if is_failed:
        return {"status": "FAILED", "nodes": nodes}
    return {"status": "WAITING" if build is None else "SUCCESS", "nodes": nodes}


# Versions


@dataclass(frozen=True, slots=True)
class ChangedText:
    """A text that differs between two versions: a node of a group, or a line of the document.

    Args:
        text: The text.
        before: Its number in the earlier version, from 1; None if it was added.
        after: Its number in the later version; None if it was removed. If both are given, it was
            moved.
    """

    text: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class VersionDiff:
    """Difference between two versions of a document.

    Args:
        document: Its id.
        before: Number of the one version.
        after: Number of the other one.
        groups: For each group that both versions have: what was removed, added or moved, in order;
            () for no difference. The root group has the lines of the document's text.
    """

    document: str
    before: int
    after: int
    groups: Mapping[str, tuple[ChangedText, ...]]

    def __str__(self) -> str:
        lines = [f"{self.document}, version {self.before} to {self.after}"]
        for name, changes in self.groups.items():
            added = sum(change.before is None for change in changes)
            removed = sum(change.after is None for change in changes)
            moved = len(changes) - added - removed
            lines.append(f"  {name}: {added} added, {removed} removed, {moved} moved")
        return "\n".join(lines)


def visible_versions(reader: Reader, identity: str) -> list[DocumentVersion]:
    """List the versions of a document whose text is visible; see `Versions.list`."""
    indexer = reader.indexer
    find_document(reader, identity)

    def read(snapshot: LocalSnapshot) -> list[DocumentVersion]:
        row, roots = _row_and_roots(indexer, identity)
        builds = indexer.ledger.builds.with_parents(list(roots.values()))
        collection = snapshot.group(LAZY_ROOT_NAME).collection
        nodes = indexer.nodes.of_builds(collection, [builds[build] for build in roots.values()])
        seen = {number for number, [node] in zip(roots, nodes, strict=True) if snapshot.sees(node)}
        return [version for version in versions_of(indexer, row) if version.number in seen]

    return reader.read(read)


def _row_and_roots(indexer: LiveState, identity: str) -> tuple[DocumentRow, dict[int, int]]:
    """The row of a document, and the builds of its versions' root nodes by number."""
    row = indexer.ledger.documents.find(identity)
    if row is None:
        raise _no_document(identity)
    versions = indexer.ledger.documents.versions(row.id)
    return row, {version.number: version.root for version in versions}


def diff_versions(reader: Reader, identity: str, before: int, after: int | None) -> VersionDiff:
    """Compare two stored versions; see `Versions.diff`."""
    live = find_document(reader, identity).version
    first = validate_integer("before", before, 1)
    last = live if after is None else validate_integer("after", after, 1)

    def read(snapshot: LocalSnapshot) -> VersionDiff:
        old, new = (_version_texts(snapshot, identity, number) for number in (first, last))
        groups = {name: tuple(_changes(old[name], new[name])) for name in old if name in new}
        return VersionDiff(identity, first, last, groups)

    return reader.read(read)


def _version_texts(snapshot: LocalSnapshot, identity: str, number: int) -> dict[str, list[str]]:
    """The texts of a version's nodes by group, and the lines of its text."""
    indexer = snapshot.indexer
    row, roots = _row_and_roots(indexer, identity)
    if number == row.version:
        builds = list(indexer.ledger.builds.live([row.id]).get(row.id, {}).values())
    else:
        builds = [
            build
            for build in indexer.ledger.builds.written([row.id])
            if build.root == roots.get(number)
        ]
    build_numbers = {build.node_group: build.number for build in builds}
    keyed = indexer.ledger.builds.with_parents(list(build_numbers.values()))
    texts = {}
    for name, group in sorted(snapshot.state.view.tree.groups.items()):
        if group.id in build_numbers:
            nodes = indexer.nodes.of_build(group.collection, keyed[build_numbers[group.id]])
            texts[name] = [content_text(node.content) for node in nodes if snapshot.sees(node)]
    if not texts.get(LAZY_ROOT_NAME):
        raise ConfigError(
            f"Version {number} of {identity!r} is not stored. See versions.list({identity!r}), and"
            " Document(keep_versions=n), which stores n earlier ones."
        )
    return texts | {LAZY_ROOT_NAME: texts[LAZY_ROOT_NAME][0].splitlines()}


def _changes(before: Sequence[str], after: Sequence[str]) -> list[ChangedText]:
    """What makes one list of texts of another; what keeps its order is left out, and so are blank
    texts.
    """
    start = _common_length(before, after)
    end = _common_length(before[start:][::-1], after[start:][::-1])
    numbers_of: dict[str, deque[int]] = defaultdict(deque)
    for number, text in enumerate(after[start : len(after) - end], start + 1):
        numbers_of[text].append(number)
    pairs = []
    changes = []
    for number, text in enumerate(before[start : len(before) - end], start + 1):
        if numbers_of[text]:
            pairs.append((number, numbers_of[text].popleft()))
        else:
            changes.append(ChangedText(text, number, None))
    ordered = _longest_ascending([new for _, new in pairs])
    changes += [ChangedText(after[new - 1], old, new) for old, new in pairs if new not in ordered]
    for text, numbers in numbers_of.items():
        changes += [ChangedText(text, None, number) for number in numbers]
    return sorted(
        (change for change in changes if change.text.strip()),
        key=lambda change: (change.after or change.before or 0, change.after or 0),
    )


def _common_length(before: Sequence[str], after: Sequence[str]) -> int:
    """How many texts two lists have in common at their beginning."""
    pairs = zip(before, after, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _longest_ascending(numbers: Sequence[int]) -> set[int]:
    """A longest ascending subsequence."""
    ends: list[int] = []  # the smallest end of an ascending subsequence of each length
    before = {}
    for number in numbers:
        at = bisect.bisect_left(ends, number)
        before[number] = ends[at - 1] if at else None
        ends[at : at + 1] = [number]
    members = set()
    last = ends[-1] if ends else None
    while last is not None:
        members.add(last)
        last = before[last]
    return members


# Texts


def read_text_of(reader: Reader, path: str, span: Span | None) -> str:
    """Return text of a document; see `Document.read`."""
    start, end = (0, None) if span is None else checked_span(span)
    return content_text(find_root(reader, path).content)[start:end]


def checked_span(span: Any, length: int | None = None) -> Span:
    """A span that a caller gave, within a text of some length.

    Raises:
        ConfigError: If it is none.
    """
    bounds = (span.start, span.end) if isinstance(span, Location) else span
    is_pair = isinstance(bounds, (tuple, list)) and len(bounds) == 2
    require(is_pair, "span", span, "a pair of integers such as (0, 2000), or a Location")
    start = validate_integer("span[0]", bounds[0], 0, length)
    return start, validate_integer("span[1]", bounds[1], start, length)


def find_root(reader: Reader, path: str) -> Segment:
    """The visible root node of a document; hidden ones are as unknown as others."""
    for root in visible_roots(reader, [root_uid(validate_text("path", path))]):
        return root
    raise _no_document(path)
