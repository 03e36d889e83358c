"""The live state of a Document: an immutable tree of groups and indexes, and what its ledger
answers about documents and builds in that state.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from lazyrag.data.segment import EMPTY, LAZY_ROOT_NAME, child_uids, store_key
from lazyrag.errors import StoreError
from lazyrag.ledger.lease import select_in
from lazyrag.stores.sqlite import read_text
from lazyrag.types import Int64Array

_PAGE = 1_000  # documents
_MAX_BUILDS = 4_096  # documents whose builds a state caches

IndexKind: TypeAlias = Literal["terms", "vectors"]
IndexKey: TypeAlias = "tuple[IndexKind, str, str]"
"""Kind, name (analyser or embed key) and identity of an index."""


@dataclass(eq=False, slots=True)
class Build:
    """The nodes that one transform made of one document.

    Args:
        number: Its number; with a uid it makes a store key.
        document: Uid of the document.
        group: Name of the group.
        parent: The build above it; None in the root group.
        counts: How many nodes each node of the parent build gave, as JSON.
    """

    number: int
    document: str
    group: str
    parent: Build | None
    counts: str
    _uids: tuple[str, ...] | None = field(default=None, init=False, repr=False)

    @property
    def uids(self) -> tuple[str, ...]:
        """Uids of its nodes, in order; computed from the counts."""
        if self._uids is None:  # several threads may compute them at once, with the same result
            counts = json.loads(self.counts)
            parents = () if self.parent is None else self.parent.uids
            if self.parent is None and self.group == LAZY_ROOT_NAME and counts == [1]:
                self._uids = (self.document,)
            elif self.parent is not None and len(counts) == len(parents):
                uids = []
                for above, count in zip(parents, counts, strict=True):
                    uids += child_uids(above, self.group, range(1, count + 1))
                self._uids = tuple(uids)
            else:
                raise StoreError(
                    f"The ledger contradicts itself: group {self.group!r} of document"
                    f" {self.document} does not fit the group above it."
                    " Run docs.maintenance.verify() and repair()."
                )
        return self._uids

    @property
    def keys(self) -> list[str]:
        """The physical keys of its nodes, in order."""
        return [store_key(uid, self.number) for uid in self.uids]

    @property
    def size(self) -> int:
        """How many nodes it has."""
        return len(self._uids) if self._uids is not None else node_count(self.counts)


@functools.lru_cache(maxsize=4_096)
def node_count(counts: str) -> int:
    """How many nodes a build has, from its counts as JSON.

    Example:
        >>> node_count("[2, 1]")
        3
    """
    return sum(json.loads(counts))


@dataclass(frozen=True, slots=True)
class LiveDocument:
    """A document that has a live root node.

    Args:
        id: Its row in the ledger.
        uid: Uid of its root node.
        identity: Path relative to the dataset, or the user's id.
    """

    id: int
    uid: str
    identity: str


def _identity(document: LiveDocument) -> str:
    return document.identity


class TermPartRow(NamedTuple):
    """One part of a keyword index in the ledger, with its live rows in one state.

    Args:
        id: Its row in the ledger.
        file: Name of its array file, or the name that it would have: a small part is in its row.
        in_file: Whether it has an array file.
        rows: The number of its rows.
        changed: Grows when its live rows change; 0 if nobody knows them: their row is lost.
        live: The number of live rows; -1 if the part was damaged when some of them died.
        tokens: The number of terms of the live rows; None if an earlier release wrote the part.
        dead: A bit for each row, see `lazyrag.indexes.postings.alive_mask`; None if all are live.
    """

    id: int
    file: str
    in_file: bool
    rows: int
    changed: int
    live: int
    tokens: int | None
    dead: bytes | None


@dataclass(frozen=True, slots=True)
class LiveIndex:
    """An index over a group.

    Args:
        id: Its row in the ledger.
        kind: ``"terms"`` or ``"vectors"``.
        name: The analyser, or the embed key.
        identity: Of the analyser or the embed callable.
        collection: Of the vectors; "" for terms.
        dimension: Of the vectors, or `lazyrag.types.SPARSE`; 0 while there is none, and for terms.
        complete: Whether it has every document.
        nodes: The number of live nodes that it contains.
        parts: Of a keyword index.
    """

    id: int
    kind: IndexKind
    name: str
    identity: str
    collection: str
    dimension: int
    complete: bool
    nodes: int = 0
    parts: tuple[TermPartRow, ...] = ()

    @property
    def key(self) -> IndexKey:
        """Its key in `LiveGroup.indexes`."""
        return self.kind, self.name, self.identity


@dataclass(frozen=True, slots=True)
class LiveGroup:
    """The live part of a node group.

    Args:
        id: Its row in the ledger; 0 for an empty one, which a restricted Document sees where all
            hidden files failed.
        name: Its name.
        parent: Name of the group above it; None for the root group.
        fingerprint: Of its definition and those above it.
        collection: Of its segments.
        complete: Whether it was built for every document; until then no node has children in it.
        documents: The number of its live builds: one of each document.
        nodes: The number of their nodes.
        filled: How many of them have nodes.
        indexes: The indexes over it.
    """

    id: int
    name: str
    parent: str | None
    fingerprint: str
    collection: str
    complete: bool
    documents: int = 0
    nodes: int = 0
    filled: int = 0
    indexes: Mapping[IndexKey, LiveIndex] = field(default_factory=dict)


LiveGroups: TypeAlias = Mapping[str, LiveGroup]
"""Live groups by name."""

Reading: TypeAlias = "Callable[[], AbstractContextManager[sqlite3.Connection]]"
"""Opens a transaction that reads."""


class Tree:
    """One state of a Document. A read sees the one that it began with.

    It holds the groups with their counters and indexes. Documents and builds are read from the
    ledger, as of this state: the answers are valid until the ledger's counter of removals grows.

    Args:
        changes: The ledger's counter of changes in this state; -1 for a state without a ledger.
        groups: By name, each after the one above it.
        switched: From embed keys to those whose model and vectors serve them, see
            `lazyrag.evaluation.change_model`.
        ledger: Row of the ledger.
        reading: Opens a transaction of the ledger.
        field_values: What the keys of field values were made by; None in a file without them.
    """

    __slots__ = (
        "_builds",
        "_group_names",
        "_ledger",
        "_numbers",
        "_reading",
        "changes",
        "expected",
        "field_values",
        "groups",
        "switched",
    )

    def __init__(
        self,
        changes: int = -1,
        groups: LiveGroups = EMPTY,
        switched: Mapping[str, str] = EMPTY,
        ledger: int = 0,
        reading: Reading | None = None,
        field_values: str | None = None,
    ) -> None:
        self.changes = changes
        self.field_values = field_values
        self.groups = groups
        self.switched = switched
        self._ledger = ledger
        self._reading = reading
        self._group_names = {group.id: group.name for group in groups.values()}
        # Caches: builds by document and group; numbers of live builds by group.
        self._builds: dict[str, dict[str, Build]] = {}
        self.expected: set[str] = set()
        """Documents of hits, whose builds are read together with the first of them."""
        self._numbers: dict[str, Int64Array] = {}

    @property
    def document_count(self) -> int:
        """The number of documents with a root node."""
        root = self.groups.get(LAZY_ROOT_NAME)
        return 0 if root is None else root.documents

    def documents(self, uids: Collection[str] | None = None) -> Iterator[LiveDocument]:
        """The live documents, or those among some, in the order of their identities: that of
        code points, as Python sorts texts.
        """
        if self._reading is None:
            return
        if uids is not None:
            yield from self._documents_among(uids)
            return
        condition = "ledger = ? AND since <= ? AND until > ?"
        state = (self._ledger, self.changes, self.changes)
        rows = rows_by_identity(self._reading, "id, uid, identity", condition, *state)
        for number, uid, name in rows:
            yield LiveDocument(number, uid, read_text(name))

    def _documents_among(self, uids: Collection[str]) -> list[LiveDocument]:
        query = (
            "SELECT id, uid, identity FROM document WHERE ledger = ? AND since <= ? AND until > ?"
            " AND uid IN (?*)"
        )
        rows = self._select(query, uids, self._ledger, self.changes, self.changes)
        documents = [LiveDocument(number, uid, read_text(name)) for number, uid, name in rows]
        return sorted(documents, key=_identity)

    def builds_of_documents(self, documents: Collection[str]) -> Mapping[str, Mapping[str, Build]]:
        """The live builds of documents, at least of some, by uid and group."""
        cached = self._builds  # which another thread may replace
        missing = {uid for uid in documents if uid not in cached}
        if missing:
            if not missing.isdisjoint(self.expected):
                missing |= self.expected - cached.keys()
            if len(cached) + len(missing) > _MAX_BUILDS:
                cached = self._builds = {uid: cached[uid] for uid in {*documents} - missing}
            cached.update(self._read_builds(missing))
        return cached

    def builds_of(self, group: str, documents: Collection[str]) -> dict[str, Build]:
        """The live builds of some documents in a group, by the documents' uids."""
        cached = self.builds_of_documents(documents)
        return {uid: cached[uid][group] for uid in documents if group in cached[uid]}

    def build_of(self, group: str, document: str) -> Build | None:
        """The live build of a document in a group; None if there is none."""
        return self.builds_of(group, [document]).get(document)

    def builds(self, group: LiveGroup, documents: Collection[str] | None = None) -> Iterator[Build]:
        """The live builds of a group, or of a few documents in it, in the documents' order."""
        uids = (document.uid for document in self.documents(documents))
        while page := list(itertools.islice(uids, _PAGE)):
            builds = self._read_builds(page)
            for uid in page:
                if group.name in builds[uid]:
                    yield builds[uid][group.name]

    def _read_builds(self, documents: Collection[str]) -> dict[str, dict[str, Build]]:
        """The live builds of some documents in all groups, by document and group."""
        query = (
            "SELECT uid, build.node_group, number, build.parent, counts FROM document"
            " CROSS JOIN build ON build.document = document.id AND build.since <= ?"
            " AND build.until > ? WHERE ledger = ? AND uid IN (?*)"
        )
        rows_of: dict[str, dict[str, tuple[int, int | None, str]]] = {uid: {} for uid in documents}
        for uid, group, *row in self._select(
            query, documents, self.changes, self.changes, self._ledger
        ):
            name = self._group_names.get(group)
            if name is not None:
                rows_of[uid][name] = tuple(row)
        return {uid: self._linked_builds(uid, rows) for uid, rows in rows_of.items()}

    def _linked_builds(
        self, document: str, rows: Mapping[str, tuple[int, int | None, str]]
    ) -> dict[str, Build]:
        """The builds of a document, each with the one above it."""
        builds: dict[str, Build] = {}
        for name, group in self.groups.items():
            if name in rows:
                number, parent, counts = rows[name]
                above = builds.get(group.parent or "")
                if above is not None and above.number != parent:
                    above = None
                builds[name] = Build(number, document, name, above, counts)
        return builds

    def live_numbers(self, group: LiveGroup) -> Int64Array:
        """(n,) int64, ascending: the numbers of a group's live builds."""
        numbers = self._numbers.get(group.name)
        if numbers is None:
            numbers = np.zeros(0, np.int64)
            if self._reading is not None:
                with self._reading() as connection:
                    rows = connection.execute(
                        "SELECT number FROM build WHERE node_group = ? AND since <= ? AND until > ?"
                        " ORDER BY number",
                        (group.id, self.changes, self.changes),
                    )
                    numbers = np.fromiter((number for (number,) in rows), np.int64)
            self._numbers[group.name] = numbers
        return numbers

    def _select(self, query: str, values: Collection[Any], *first: Any) -> list[Any]:
        if self._reading is None:
            return []
        with self._reading() as connection:
            return select_in(connection, query, values, *first)


def rows_by_identity(
    reading: Reading, columns: str, condition: str, *values: Any
) -> Iterator[tuple[Any, ...]]:
    """Return rows of documents in the order of their identities: that of code points, as Python
    sorts texts.

    Args:
        reading: Opens a transaction; each page is read in one.
        columns: The columns, of which the third is the identity.
        condition: Which documents.
        values: Parameters of the condition.
    """
    query = f"SELECT {columns} FROM document WHERE {condition}"  # noqa: S608
    # SQLite keeps texts that are no valid UTF-8 as BLOBs, after all others; see also
    # `lazyrag.storage.postgres`. There are few, if any.
    with reading() as connection:
        others = connection.execute(f"{query} AND identity >= x''", values).fetchall()
    others.sort(key=_identity_of)
    return heapq.merge(_pages_by_identity(reading, query, values), others, key=_identity_of)


def _identity_of(row: tuple[Any, ...]) -> str:
    return read_text(row[2])


def _pages_by_identity(
    reading: Reading, query: str, values: tuple[Any, ...]
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows whose identities the database sorts as Python does."""
    after = ""
    page_query = f"{query} AND identity < x'' AND identity > ? ORDER BY identity LIMIT {_PAGE}"
    while True:
        with reading() as connection:
            page = connection.execute(page_query, (*values, after)).fetchall()
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1][2]


def build_objects(connection: sqlite3.Connection, numbers: Collection[int]) -> dict[int, Build]:
    """Builds with those above them, by number, from which the keys of their nodes follow."""
    rows: dict[int, tuple[str, str, int | None, str]] = {}
    to_read = set(numbers)
    while to_read:
        parents = set()
        for number, uid, name, parent, counts in select_in(
            connection,
            "SELECT build.number, document.uid, node_group.name, build.parent, build.counts FROM"
            " build JOIN document ON document.id = build.document JOIN node_group ON node_group.id"
            " = build.node_group WHERE build.number IN (?*)",
            to_read,
        ):
            rows[number] = uid, name, parent, counts
            if parent is not None:
                parents.add(parent)
        to_read = parents - rows.keys()
    built = {}

    def build(number: int) -> Build:
        if number not in built:
            uid, name, parent, counts = rows[number]
            built[number] = Build(
                number, uid, name, None if parent is None else build(parent), counts
            )
        return built[number]

    return {number: build(number) for number in numbers if number in rows}


def load_tree(
    connection: sqlite3.Connection, ledger: int, previous: Tree, reading: Reading
) -> Tree:
    """Load the present state.

    Args:
        connection: In a transaction.
        ledger: Row of the ledger.
        previous: An earlier state of the same ledger, whose parts are reused; `Tree()` for none.
        reading: Opens a transaction of the ledger.
    """
    # a file of format 2 has fewer columns
    rows = connection.execute("SELECT * FROM ledger WHERE id = ?", (ledger,))
    state = dict(zip([name for name, *_ in rows.description], rows.fetchone(), strict=True))
    if state["changes"] == previous.changes:
        return previous
    groups = {}
    for row in _group_rows(connection, ledger):
        before = previous.groups.get(row.name, row)
        indexes = _load_indexes(connection, row.id, before.indexes)
        groups[row.name] = replace(row, indexes=indexes)
    switched = json.loads(state.get("switched", "{}"))
    made_by = state.get("field_values")
    return Tree(state["changes"], groups, switched, ledger, reading, made_by)


def _group_rows(connection: sqlite3.Connection, ledger: int) -> list[LiveGroup]:
    """The live groups, each after the one above it."""
    rows = connection.execute(
        "SELECT id, name, parent, fingerprint, collection, whole, documents, nodes, filled"
        " FROM node_group WHERE ledger = ? AND status = 'live'",
        (ledger,),
    ).fetchall()
    names = {number: name for number, name, *_ in rows}
    waiting = []
    for number, name, parent, fingerprint, collection, is_complete, *counters in rows:
        if parent is None or parent in names:  # a group whose parent is gone is not live
            group = (number, name, names.get(parent), fingerprint, collection, bool(is_complete))
            waiting.append(LiveGroup(*group, *counters))
    ordered = []
    placed: set[str | None] = {None}
    while ready := [group for group in waiting if group.parent in placed]:
        ordered += sorted(ready, key=lambda group: (group.name != LAZY_ROOT_NAME, group.name))
        placed |= {group.name for group in ready}
        waiting = [group for group in waiting if group.name not in placed]
    return ordered


def _load_indexes(
    connection: sqlite3.Connection, group: int, before: Mapping[IndexKey, LiveIndex]
) -> dict[IndexKey, LiveIndex]:
    indexes = {}
    for (
        number,
        kind,
        name,
        identity,
        collection,
        dimension,
        is_complete,
        nodes,
    ) in connection.execute(
        "SELECT id, kind, name, identity, collection, dimension, whole, nodes FROM space "
        "WHERE node_group = ? AND status = 'live' ORDER BY id",
        (group,),
    ).fetchall():
        index = LiveIndex(
            number, kind, name, identity, collection, dimension, bool(is_complete), nodes
        )
        if index.kind == "terms":
            index_before = before.get(index.key)
            index = replace(
                index,
                parts=part_rows(
                    connection, index.id, index_before.parts if index_before is not None else ()
                ),
            )
        indexes[index.key] = index
    return indexes


def part_rows(
    connection: sqlite3.Connection, index: int, before: tuple[TermPartRow, ...] = ()
) -> tuple[TermPartRow, ...]:
    """The parts of a keyword index; those of an earlier state that have not changed are reused."""
    parts_before = {(part.id, part.changed): part for part in before}
    versions = connection.execute(
        "SELECT term_part.id, coalesce(changed, 0) FROM term_part LEFT JOIN term_state ON part ="
        " term_part.id WHERE space = ? ORDER BY term_part.id",
        (index,),
    ).fetchall()
    query = (
        "SELECT term_part.id, file, arrays IS NULL, rows, coalesce(changed, 0), coalesce(live, 0),"
        " tokens, dead FROM term_part LEFT JOIN term_state ON part = term_part.id WHERE"
        " term_part.id IN (?*)"
    )
    changed = [number for number, version in versions if (number, version) not in parts_before]
    for number, file, in_file, *state in select_in(connection, query, changed):
        part = TermPartRow(number, file, bool(in_file), *state)
        parts_before[number, part.changed] = part
    return tuple(parts_before[version] for version in versions)


def live_rows_of(
    connection: sqlite3.Connection, part: int, address: str
) -> tuple[int, bytes | None, int | None]:
    """The number of a part's live rows, the bits of its dead ones, and the number of terms of the
    live ones; see `TermPartRow`.

    Raises:
        StoreError: If they are lost.
    """
    query = "SELECT live, dead, tokens FROM term_state WHERE part = ?"
    for live, dead, tokens in connection.execute(query, (part,)):
        return live, dead, tokens
    raise damaged_part(address)


def damaged_part(address: str, how: str = "has lost its row of live rows") -> StoreError:
    """The error for a damaged part of a keyword index."""
    msg = (
        f"A part of a keyword index in {address} {how}. Run docs.maintenance.verify() and repair()."
    )
    return StoreError(msg, store=address)


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A live state as one read sees it: the tree, and the groups in it that match their present
    definitions.

    Args:
        tree: The state.
        removals: The counter of removals in this state.
        groups: The current, complete groups by name.
        state: Counters of definitions, from which the groups follow beside the tree; () if it is
            out of date.
        met: Needs that are met.
        handles: Open indexes by their keys.
    """

    tree: Tree
    removals: int
    groups: LiveGroups
    state: tuple[Any, ...] = ()
    met: set[Any] = field(default_factory=set, repr=False)
    handles: dict[Any, Any] = field(default_factory=dict, repr=False)
