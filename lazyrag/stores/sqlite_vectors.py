"""Vectors in a store file: the "map" store on disk."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

import numpy as np

from lazyrag.data.fields import schema_text
from lazyrag.data.filters import Filter
from lazyrag.errors import StoreDamagedError, StoreError
from lazyrag.indexes.postings import Mask, alive_mask, dead_bits, encoded_keys
from lazyrag.indexes.tiers import tail_to_join, without
from lazyrag.progress.blocks import acquired
from lazyrag.storage.arrays import DamagedError, damage_of, joined
from lazyrag.storage.arrays import decoded as decoded_arrays
from lazyrag.stores.graphs import Graphs
from lazyrag.stores.protocol import (
    Feature,
    Part,
    State,
    VectorRow,
    VectorSchema,
    check_deletion,
    check_schema,
    check_vectors,
    joined_parts,
    only_dense,
    other_schema,
    part_of_arrays,
    part_of_rows,
    searched,
    state_of,
    unknown_collection,
)
from lazyrag.stores.sqlite import StoreFile
from lazyrag.types import Embeddings, KeyArray, Metric, Ranking

CollectionRow: TypeAlias = tuple[int, int, Metric, str]
"""A collection's number, dimension, metric and schema (JSON)."""


def collection_row(connection: sqlite3.Connection, collection: str) -> CollectionRow | None:
    """A collection; None if it does not exist."""
    row = connection.execute(
        "SELECT id, dimension, metric, schema FROM vector_collection WHERE name = ?", (collection,)
    ).fetchone()
    return cast("CollectionRow | None", row)


def insert_part(
    connection: sqlite3.Connection,
    collection: int,
    size: int,
    name: str,
    content: bytes | None,
    alive: Mask | None,
) -> None:
    """Enter a part: its size, the name of its bundle, its content if that is not an array file, its
    live rows.
    """
    connection.execute(
        "INSERT INTO vector_part (collection, size, arrays, content, dead) VALUES (?, ?, ?, ?, ?)",
        (collection, size, name, content, dead_bits(alive)),
    )


_MAX_PARTS = 16
# of a part that is joined with no other: a write moves twice as many vectors at most
_FULL_ROWS = 1 << 20
_SMALL_BYTES = 256 * 1024  # a part below that lies in its row: a file of its own would cost more
_MAX_READS = 5  # of a collection whose array files go while they are being opened


@dataclass(frozen=True, slots=True, eq=False)
class _StoredPart:
    """One row of the table of parts.

    Args:
        id: Its number.
        name: Of its bundle of arrays.
        in_file: Whether that is an array file.
        dead: The bits in the table.
        block: Its rows.
        alive: Mask of live rows; None if all are live.
    """

    id: int
    name: str
    in_file: bool
    dead: bytes | None
    block: Part
    alive: Mask | None


@dataclass(frozen=True, slots=True, eq=False)
class _MapCollection:
    """A collection as one transaction saw it.

    Args:
        id: Its number.
        schema: Dimension, metric and the declared fields as text.
        parts: Oldest first.
        state: Of its parts, for queries.
    """

    id: int
    schema: tuple[int, Metric, str]
    parts: tuple[_StoredPart, ...]
    state: State


class _UnknownCollectionError(StoreDamagedError):
    """There is no collection of that name, or no longer."""


class MapFileVectorStore:
    """Vectors in a store file (spec 001's ``map`` with a ``uri``), searched exactly, or by graphs
    on request.

    Commits of other programs are visible to the next call. Vectors are read from disk when a search
    needs them. The caller closes the file.

    Args:
        file: The store file.

    Example:
        >>> store = MapFileVectorStore(StoreFile(None))
        >>> store.create("c", VectorSchema(2, "cosine", {}))
        >>> store.upsert("c", [VectorRow("k", np.array([1, 0], np.float32))])
        >>> store.search("c", np.array([[2, 0]], np.float32), 1)
        [[('k', 1.0)]]
    """

    def __init__(self, file: StoreFile) -> None:
        self.file = file
        # with the number of the file's changes
        self._cached: dict[str, tuple[int, _MapCollection]] = {}
        self._merging = threading.Lock()
        self._graphs = Graphs(file)

    @property
    def features(self) -> frozenset[Feature]:
        """Exact and approximate; persistent and shared, unless the file is in memory."""
        in_memory: frozenset[Feature] = frozenset(["exact", "sparse", "approximate"])
        return in_memory if self.file.path is None else in_memory | {"persistent", "shared"}

    def open(self) -> None:
        """Do nothing: the file is open."""

    def close(self) -> None:
        """Release the arrays."""
        self._cached.clear()

    def create(self, collection: str, schema: VectorSchema) -> None:
        """See `VectorStore.create`."""
        requested = (schema.dimension, schema.metric, schema_text(schema.fields))
        check_schema(schema)
        # a read-only store has the collections that its programs use
        transaction = self.file.reading if self.file.read_only else self.file.writing
        with transaction() as connection:
            present = collection_row(connection, collection)
            if present is None:
                if self.file.read_only:
                    self.file.writer.refuse_to_write()
                connection.execute(
                    "INSERT INTO vector_collection (name, dimension, metric, schema)"
                    " VALUES (?, ?, ?, ?)",
                    (collection, *requested),
                )
                return
        _, dimension, metric, fields = present
        if (dimension, metric, fields) != requested:
            raise other_schema(collection, dimension, metric, schema)

    def drop(self, collection: str) -> None:
        """See `Store.drop`."""
        with self.file.writing() as connection:
            row = collection_row(connection, collection)
            if row is None:
                return
            names = connection.execute(
                "SELECT arrays FROM vector_part WHERE collection = ? AND content IS NULL", (row[0],)
            ).fetchall()
            connection.execute("DELETE FROM vector_part WHERE collection = ?", (row[0],))
            connection.execute("DELETE FROM vector_collection WHERE id = ?", (row[0],))
        self._cached.pop(collection, None)
        self.file.arrays.postpone_deletion(name for (name,) in names)

    def count(self, collection: str) -> int:
        """See `Store.count`."""
        return len(self._now(collection).state)

    def upsert(self, collection: str, rows: Sequence[VectorRow]) -> None:
        """See `VectorStore.upsert`."""
        cached = self._cached.get(collection)
        # what may have changed is checked again below
        present = self._now(collection) if cached is None else cached[1]
        last = {row.key: row for row in rows}  # of a key that stands twice, the later row counts
        check_vectors(collection, present.schema[0], last.values())
        if not last:
            return
        block = part_of_rows(list(last.values()), present.schema[0])
        # It is on the disk before anything names it.
        name, content = self.file.arrays.write_or_inline(block.arrays(), _SMALL_BYTES)
        with self.file.writing() as connection:
            present = self._read(connection, collection)
            # it may have been made anew meanwhile
            check_vectors(collection, present.schema[0], last.values())
            retired, _ = mark_rows_dead(connection, present.parts, block.keys)
            self._insert(connection, present.id, block, name, content)
            present = self._read(connection, collection)
            is_large = any(part.in_file for part in _parts_to_merge(present))
            if not is_large:
                self._merge(collection, present)
        self.file.arrays.postpone_deletion(retired)
        if is_large:  # merged while others write
            self._merge(collection)

    def get(self, collection: str, keys: Sequence[str]) -> list[VectorRow]:
        """See `VectorStore.get`."""
        return [VectorRow(*row) for row in self._now(collection).state.get(keys)]

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[VectorRow]:
        """See `VectorStore.scan`."""
        return [VectorRow(*row) for row in self._now(collection).state.page(after, limit)]

    def delete(
        self, collection: str, *, keys: Sequence[str] | None = None, filter: Filter | None = None
    ) -> int:
        """See `Store.delete`."""
        self._now(collection)
        check_deletion(keys, filter)
        if keys is not None and not len(keys):
            return 0
        with self.file.writing() as connection:
            present = self._read(connection, collection)
            deleted = list(dict.fromkeys(keys or ()))
            if filter is not None:
                deleted = present.state.matching(filter)
            retired, count = mark_rows_dead(connection, present.parts, encoded_keys(deleted))
        self.file.arrays.postpone_deletion(retired)
        if count:
            self._merge(collection)
        return count

    def search(
        self, collection: str, vectors: Embeddings, topk: int, filter: Filter | None = None
    ) -> list[Ranking]:
        """See `VectorStore.search`."""
        return searched(self._now(collection).state, vectors, topk, filter)

    def search_approximately(
        self, collection: str, vectors: Embeddings, topk: int, filter: Filter | None = None
    ) -> list[Ranking]:
        """See `Approximate.search_approximately`."""
        now = self._now(collection)
        state, matrix = only_dense(now.state, vectors)
        return self._graphs.search(state, [part.name for part in now.parts], matrix, topk, filter)

    def _now(self, collection: str) -> _MapCollection:
        """The present collection, cached until the next commit to the file."""
        reads = 0
        while True:
            # before the reading: what comes between is read again
            changes = self.file.commit_counter()
            cached = self._cached.get(collection)
            if cached is not None and cached[0] == changes:
                return cached[1]
            reads += 1
            try:
                with self.file.reading() as connection:
                    present = self._read(connection, collection)
            except StoreError:
                # Parts may be merged, and their files removed, between the reading of their names
                # and the opening.
                if reads == _MAX_READS or self.file.commit_counter() == changes:
                    raise
            else:
                self._cached[collection] = changes, present
                return present

    def _read(self, connection: sqlite3.Connection, collection: str) -> _MapCollection:
        """The collection in a transaction; known parts are not opened again."""
        row = collection_row(connection, collection)
        if row is None:
            self._cached.pop(collection, None)
            names = [name for (name,) in connection.execute("SELECT name FROM vector_collection")]
            raise unknown_collection(collection, names, _UnknownCollectionError)
        number, dimension, metric, fields = row
        before = self._cached.get(collection)
        opened = {part.id: part for part in before[1].parts} if before is not None else {}
        rows = connection.execute(
            "SELECT id, arrays, content IS NULL, size, dead FROM vector_part WHERE collection = ?"
            " ORDER BY id",
            (number,),
        ).fetchall()
        parts = []
        for part_id, name, in_file, size, dead in rows:
            part = opened.get(part_id)
            if part is None:
                block = self._opened(connection, part_id, name, dimension, in_file=in_file)
                part = _StoredPart(
                    part_id, name, bool(in_file), dead, block, alive_mask(dead, size)
                )
            elif part.dead != dead:
                part = replace(part, dead=dead, alive=alive_mask(dead, size))
            parts.append(part)
        # the same objects
        if before is not None and before[1].id == number and before[1].parts == tuple(parts):
            return before[1]
        state = state_of(
            [part.block for part in parts], [part.alive for part in parts], dimension, metric
        )
        return _MapCollection(number, (dimension, metric, fields), tuple(parts), state)

    def damage(self, collection: str) -> str:
        """See `Checkable.damage`."""
        with self.file.reading() as connection:
            parts = connection.execute(
                "SELECT arrays, content FROM vector_part JOIN vector_collection ON"
                " vector_collection.id = vector_part.collection WHERE name = ? ORDER BY"
                " vector_part.id",
                (collection,),
            ).fetchall()
        for name, content in parts:
            damage = self.file.arrays.check(name) if content is None else damage_of(content, name)
            if damage:
                return f"the array file {name} {damage}"
        return ""

    def _opened(
        self, connection: sqlite3.Connection, part: int, name: str, dimension: int, *, in_file: bool
    ) -> Part:
        if in_file:
            return part_of_arrays(self.file.arrays.open(name), dimension)
        [content] = connection.execute(
            "SELECT content FROM vector_part WHERE id = ?", (part,)
        ).fetchone()
        try:
            return part_of_arrays(decoded_arrays(joined([memoryview(content)]), name), dimension)
        except DamagedError as exc:
            raise StoreError(
                f"Part {part} of the vectors in {self.file!r} {exc}."
                " Run docs.maintenance.verify() and repair().",
                store="map",
            ) from exc

    def compact(self, collection: str) -> None:
        """See `Compactable.compact`."""
        self._merge(collection, complete=True)

    def _merge(
        self, collection: str, present: _MapCollection | None = None, *, complete: bool = False
    ) -> None:
        """Merge the last parts if they are many or small, or all if some of their rows are dead and
        ``complete`` is set.

        Other writers do not wait for it, unless the caller writes; then it passes the present
        collection.

        Before the merged part is entered, its sources are checked: rows that have died meanwhile
        stay dead, and if another program has merged some of the same parts, its result stays.
        """
        # dropped meanwhile
        with acquired(self._merging, 0) as is_free, suppress(_UnknownCollectionError):
            if not is_free:
                return  # another thread merges; the next writer continues
            present = present or self._now(collection)
            old = _parts_to_merge(present, complete=complete)
            if not old:
                return
            blocks = [part.block for part in old]
            alive = [part.alive for part in old]
            block = joined_parts(blocks, alive, present.schema[0], self.file.arrays.scratch)
            name, content = self.file.arrays.write_or_inline(block.arrays(), _SMALL_BYTES)
            with self.file.writing() as connection:
                now = {part.id: part for part in self._read(connection, collection).parts}
                if not now.keys() >= {part.id for part in old}:
                    return
                alive_now = _since_died(block, old, [now[part.id] for part in old])
                ids = [(part.id,) for part in old]
                connection.executemany("DELETE FROM vector_part WHERE id = ?", ids)
                if alive_now is None or alive_now.any():
                    self._insert(connection, present.id, block, name, content, alive_now)
            replaced = [part.name for part in old if part.in_file and part.name != name]
            self.file.arrays.postpone_deletion(replaced)

    def _insert(
        self,
        connection: sqlite3.Connection,
        collection: int,
        block: Part,
        name: str,
        content: bytes | None,
        alive: Mask | None = None,
    ) -> None:
        """Enter a part whose arrays are written, in a file or as its content."""
        if content is None:
            self.file.check_there(name)
        insert_part(connection, collection, len(block), name, content, alive)


def _parts_to_merge(present: _MapCollection, *, complete: bool = False) -> Sequence[_StoredPart]:
    sizes = [len(part.block) for part in present.parts]
    count = tail_to_join(sizes, len(present.state), _MAX_PARTS, full=_FULL_ROWS)
    if complete and sum(sizes) > len(present.state):
        count = len(sizes)
    return present.parts[len(sizes) - count :]


def mark_rows_dead(
    connection: sqlite3.Connection, parts: Sequence[_StoredPart], keys: KeyArray
) -> tuple[list[str], int]:
    """Mark the rows of some keys as dead, and delete parts without live rows.

    Returns:
        The names of the deleted parts' array files, and the number of rows that were alive.
    """
    masks, count = without([part.block for part in parts], [part.alive for part in parts], keys)
    retired = []
    for part, mask in zip(parts, masks, strict=True):
        if mask is None or mask is part.alive:
            continue
        if mask.any():
            connection.execute(
                "UPDATE vector_part SET dead = ? WHERE id = ?", (dead_bits(mask), part.id)
            )
        else:
            connection.execute("DELETE FROM vector_part WHERE id = ?", (part.id,))
            if part.in_file:
                retired.append(part.name)
    return retired, count


def _since_died(block: Part, old: Sequence[_StoredPart], now: Sequence[_StoredPart]) -> Mask | None:
    """The mask of a merged block, given its parts at the time of the merge and now."""
    died = [
        before.block.keys[_lives(before) & ~_lives(after)]
        for before, after in zip(old, now, strict=True)
        if before.dead != after.dead
    ]
    if not died:
        return None
    alive = np.ones(len(block), np.bool_)
    alive[block.find(np.concatenate(died))] = False
    return alive


def _lives(part: _StoredPart) -> Mask:
    return np.ones(len(part.block), np.bool_) if part.alive is None else part.alive
