"""The live state of a Document: an immutable tree of groups, builds and indexes, loaded from its
ledger.
"""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Collection, ItemsView, Iterator, Mapping, ValuesView
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from lazyrag.data.segment import LAZY_ROOT_NAME, child_uids, store_key
from lazyrag.errors import StoreError
from lazyrag.stores.sqlite import read_text

if TYPE_CHECKING:
    from numpy.typing import NDArray


T = TypeVar("T")

_MAX_CHANGES = 1_000  # of a mapping that are kept beside it

IndexKind: TypeAlias = Literal["terms", "vectors"]
IndexKey: TypeAlias = "tuple[IndexKind, str, str]"
"""Kind, name (analyser or embed key) and identity of an index."""


class SharedMap(Mapping[str, T], Generic[T]):
    """An immutable mapping that shares its items with an earlier one: the change of one among many
    is cheap.

    Example:
        >>> before = SharedMap({"a": 1, "b": 2})
        >>> dict(before.changed({"a": None, "c": 3})), len(before)
        ({'b': 2, 'c': 3}, 2)
    """

    __slots__ = ("_layers", "_size")

    def __init__(
        self, base: dict[str, T], over: Mapping[str, T | None] | None = None, size: int = -1
    ) -> None:
        # None: removed
        self._layers: tuple[dict[str, T], Mapping[str, T | None]] = base, over or {}
        self._size = len(base) if size < 0 else size

    def changed(self, items: Mapping[str, T | None]) -> SharedMap[T]:
        """A mapping with some items set, and those of value None removed."""
        base, over = self._layers
        if len(over) + len(items) > _MAX_CHANGES:
            return SharedMap(
                {
                    key: value
                    for key, value in {**self._whole(), **items}.items()
                    if value is not None
                }
            )
        size = self._size + sum((value is not None) - (key in self) for key, value in items.items())
        return SharedMap(base, {**over, **items}, size)

    def _whole(self) -> dict[str, T]:
        base, over = self._layers
        if over:
            base = {key: value for key, value in {**base, **over}.items() if value is not None}
            self._layers = base, {}  # several threads may do it at once, with the same result
        return base

    def __getitem__(self, key: str) -> T:
        base, over = self._layers
        if not over or key not in over:
            return base[key]
        value = over[key]
        if value is None:
            raise KeyError(key)
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """See `Mapping.get`."""
        base, over = self._layers
        if not over or key not in over:
            return base.get(key, default)
        value = over[key]
        return default if value is None else value

    def __contains__(self, key: object) -> bool:
        base, over = self._layers
        return over[key] is not None if key in over else key in base  # type: ignore[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole())

    def __len__(self) -> int:
        return self._size

    def items(self) -> ItemsView[str, T]:
        """See `Mapping.items`."""
        return self._whole().items()

    def values(self) -> ValuesView[T]:
        """See `Mapping.values`."""
        return self._whole().values()


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
                uids: list[str] = []
                for above, count in zip(parents, counts, strict=True):
                    uids += child_uids(above, self.group, range(1, count + 1))
                self._uids = tuple(uids)
            else:
                msg = (
                    f"The ledger contradicts itself: group {self.group!r} of document"
                    f" {self.document} does not fit the group above it."
                    " Run docs.maintenance.verify() and repair()."
                )
                raise StoreError(msg)
        return self._uids

    @property
    def keys(self) -> list[str]:
        """The physical keys of its nodes, in order."""
        return [store_key(uid, self.number) for uid in self.uids]

    @property
    def size(self) -> int:
        """How many nodes it has."""
        return len(self._uids) if self._uids is not None else _total(self.counts)


@functools.lru_cache(maxsize=4_096)
def _total(counts: str) -> int:
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


@dataclass(frozen=True, slots=True)
class TermPartRow:
    """One part of a keyword index in the ledger.

    Args:
        id: Its row in the ledger.
        file: Name of its array file, or the name that it would have: a small part is in its row.
        builds: (b,) int64, its builds, in the order of rows.
        rows: (b,) int64, the number of rows of each.
        in_file: Whether it has an array file.
    """

    id: int
    file: str
    builds: NDArray[np.int64]
    rows: NDArray[np.int64]
    in_file: bool


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
        parts: Of a keyword index.
    """

    id: int
    kind: IndexKind
    name: str
    identity: str
    collection: str
    dimension: int
    complete: bool
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
        builds: The live build of each document, by the document's uid.
        indexes: The indexes over it.
    """

    id: int
    name: str
    parent: str | None
    fingerprint: str
    collection: str
    complete: bool
    builds: SharedMap[Build] = field(default_factory=lambda: SharedMap({}))
    indexes: Mapping[IndexKey, LiveIndex] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tree:
    """One state of a Document. A read sees the one that it began with.

    Args:
        changes: The ledger's counter of changes in this state.
        documents: Live documents by uid; see `in_order`.
        groups: By name.
        switched: From embed keys to those whose model and vectors serve them, see
            `lazyrag.evaluation.change_model`.
        numbers: Cache of `live_numbers`.
        owners: Cache of `live_owners`.
        order: Cache of `in_order`.
    """

    changes: int = -1
    documents: SharedMap[LiveDocument] = field(default_factory=lambda: SharedMap({}))
    groups: Mapping[str, LiveGroup] = field(default_factory=dict)
    switched: Mapping[str, str] = field(default_factory=dict)
    numbers: dict[str, NDArray[np.int64]] = field(default_factory=dict, repr=False, compare=False)
    owners: dict[str, dict[int, str]] = field(default_factory=dict, repr=False, compare=False)
    order: list[list[str]] = field(default_factory=list, repr=False, compare=False)

    def in_order(self) -> list[LiveDocument]:
        """The live documents, in the order of their identities."""
        if not self.order:
            self.order.append(sorted(self.documents, key=lambda uid: self.documents[uid].identity))
        return [self.documents[uid] for uid in self.order[0]]

    def builds(self, group: LiveGroup, documents: Collection[Any] | None = None) -> Iterator[Build]:
        """The live builds of a group, or of a few documents in it, in the documents' order."""
        if documents is None:
            in_order = self.in_order()
        else:
            few = [self.documents[uid] for uid in documents if uid in self.documents]
            in_order = sorted(few, key=lambda document: document.identity)
        return (group.builds[document.uid] for document in in_order if document.uid in group.builds)

    def live_numbers(self, group: LiveGroup) -> NDArray[np.int64]:
        """(n,) int64, ascending: the numbers of a group's live builds."""
        numbers = self.numbers.get(group.name)
        if numbers is None:
            numbers = np.fromiter(
                (build.number for build in group.builds.values()), np.int64, len(group.builds)
            )
            numbers.sort()
            self.numbers[group.name] = numbers
        return numbers

    def live_owners(self, group: LiveGroup) -> Mapping[int, str]:
        """The numbers of a group's live builds, each with the uid of its document."""
        owners = self.owners.get(group.name)
        if owners is None:
            owners = self.owners[group.name] = {
                build.number: uid for uid, build in group.builds.items()
            }
        return owners


_LIVE = """
SELECT document.uid, build.number, build.parent, build.counts
FROM live JOIN document ON document.id = live.document JOIN build ON build.number = live.build
WHERE live.node_group = ?
"""
# The same of a few documents. CROSS: SQLite does not know that they are few.
_LIVE_CHANGED = (
    "\nSELECT document.uid, build.number, build.parent, build.counts\n"
    "FROM document CROSS JOIN live ON document.id = live.document"
    " CROSS JOIN build ON build.number = live.build\n"
    "WHERE live.node_group = ? AND document.ledger = ? AND document.changed > ?\n"
)


def load_tree(connection: sqlite3.Connection, ledger: int, previous: Tree) -> Tree:
    """Load the present state; what has not changed since an earlier one is reused.

    Args:
        connection: In a transaction.
        ledger: Row of the ledger.
        previous: An earlier state of the same ledger; `Tree()` for none.
    """
    # a file of format 2 has fewer columns
    rows = connection.execute("SELECT * FROM ledger WHERE id = ?", (ledger,))
    state = dict(zip([name for name, *_ in rows.description], rows.fetchone(), strict=True))
    changes = state["changes"]
    forgotten = state["forgotten"]
    if changes == previous.changes:
        return previous
    if forgotten > previous.changes:  # rows that would show what is not live any more are gone
        previous = Tree()
    changed = connection.execute(
        "SELECT id, uid, identity, status FROM document WHERE ledger = ? AND changed > ? ORDER BY"
        " changed, id",
        (ledger, previous.changes),
    ).fetchall()
    documents = _documents(previous, changed)
    order = (
        previous.order
        if all((uid in previous.documents) == (uid in documents) for _, uid, _, _ in changed)
        else []
    )
    numbers: dict[str, NDArray[np.int64]] = {}
    groups: dict[str, LiveGroup] = {}
    # most documents have one of few counts, and SQLite makes a new text each time
    shared: dict[str, str] = {}
    for row in _group_rows(connection, ledger):
        before = previous.groups.get(row.name)
        if before is None or before.id != row.id:
            before = row  # another group of that name, or none: nothing of it is loaded yet
            builds: dict[str, Build | None] = {}
            rows = connection.execute(_LIVE, (row.id,))
        else:
            builds = {uid: None for _, uid, _, _ in changed if uid in before.builds}
            rows = connection.execute(_LIVE_CHANGED, (row.id, ledger, previous.changes))
        above = groups[row.parent].builds if row.parent is not None else {}
        builds.update(_read_builds(rows, row.name, above, documents, shared))
        indexes = _load_indexes(connection, row.id, before.indexes)
        groups[row.name] = replace(row, builds=before.builds.changed(builds), indexes=indexes)
        if before is not row and row.name in previous.numbers:
            numbers[row.name] = _numbers(previous.numbers[row.name], before.builds, builds)
    return Tree(
        changes, documents, groups, json.loads(state.get("switched", "{}")), numbers, order=order
    )


def _read_builds(
    rows: sqlite3.Cursor,
    group: str,
    above: Mapping[str, Build],
    documents: Mapping[str, LiveDocument],
    shared: dict[str, str],
) -> dict[str, Build]:
    """The builds of a group in rows of `_LIVE`, by the uid of their document.

    Args:
        rows: The rows.
        group: Name of the group.
        above: The builds of the group above it.
        documents: The live documents, whose uids are used for all of their builds.
        shared: Texts of counts, for the same purpose.
    """
    builds: dict[str, Build] = {}
    for uid, number, parent, counts in rows:
        document = documents[uid].uid if uid in documents else uid
        build_above = above.get(uid)
        if build_above is not None and build_above.number != parent:
            build_above = None
        counts_text = shared.setdefault(counts, counts)
        builds[document] = Build(number, document, group, build_above, counts_text)
    return builds


def _numbers(
    before: NDArray[np.int64], builds: Mapping[str, Build], changed: Mapping[str, Build | None]
) -> NDArray[np.int64]:
    """The numbers of a group's live builds, ascending, from those before a change."""
    removed = [builds[uid].number for uid in changed if uid in builds]
    new = np.array(
        sorted(build.number for build in changed.values() if build is not None), np.int64
    )
    remaining = np.delete(before, np.searchsorted(before, removed)) if removed else before
    return np.insert(remaining, np.searchsorted(remaining, new), new)


def _documents(previous: Tree, changed: list[tuple[int, str, str, str]]) -> SharedMap[LiveDocument]:
    return previous.documents.changed(
        {
            uid: LiveDocument(number, uid, read_text(identity)) if status == "live" else None
            for number, uid, identity, status in changed
        }
    )


def _group_rows(connection: sqlite3.Connection, ledger: int) -> list[LiveGroup]:
    """The live groups, each after the one above it."""
    rows = connection.execute(
        "SELECT id, name, parent, fingerprint, collection, whole FROM node_group WHERE ledger = ?"
        " AND status = 'live'",
        (ledger,),
    ).fetchall()
    names = {number: name for number, name, *_ in rows}
    waiting = [
        LiveGroup(number, name, names.get(parent), fingerprint, collection, bool(is_complete))
        for number, name, parent, fingerprint, collection, is_complete in rows
        if parent is None or parent in names  # a group whose parent is gone is not live
    ]
    ordered: list[LiveGroup] = []
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
    for number, kind, name, identity, collection, dimension, is_complete in connection.execute(
        "SELECT id, kind, name, identity, collection, dimension, whole FROM space "
        "WHERE node_group = ? AND status = 'live' ORDER BY id",
        (group,),
    ).fetchall():
        index = LiveIndex(number, kind, name, identity, collection, dimension, bool(is_complete))
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
    """The parts of a keyword index; parts of an earlier state are reused."""
    parts_before = {part.id: part for part in before}
    numbers = [
        row
        for (row,) in connection.execute(
            "SELECT id FROM term_part WHERE space = ? ORDER BY id", (index,)
        )
    ]
    parts = []
    for number in numbers:
        part = parts_before.get(number)
        if part is None:
            file, builds, in_file = connection.execute(
                "SELECT file, builds, arrays IS NULL FROM term_part WHERE id = ?", (number,)
            ).fetchone()
            pairs = np.frombuffer(builds, "<i8").reshape(-1, 2)
            part = TermPartRow(number, file, pairs[:, 0], pairs[:, 1], bool(in_file))
        parts.append(part)
    return tuple(parts)


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
    groups: Mapping[str, LiveGroup]
    state: tuple[Any, ...] = ()
    met: set[Any] = field(default_factory=set, repr=False)
    handles: dict[Any, Any] = field(default_factory=dict, repr=False)
