"""The vector store in a store file: immutable parts, mapped where they are large."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lazyrag.data.filters import Filter
from lazyrag.errors import StoreError, known_names
from lazyrag.indexes.postings import Mask, encoded_keys
from lazyrag.indexes.tiers import tail_to_join, without
from lazyrag.storage.arrays import DamagedError, damage_of, decoded, encoded, joined
from lazyrag.stores.map_graphs import Graphs, graph_files
from lazyrag.stores.protocol import Feature, VectorRow, VectorSchema, check_deletion
from lazyrag.stores.segment_rows import schema_text
from lazyrag.stores.store_file import StoreFile
from lazyrag.stores.vector_kinds import (
    Part,
    State,
    check_schema,
    check_vectors,
    joined_parts,
    only_dense,
    other_schema,
    part_of_arrays,
    part_of_rows,
    searched,
    state_of,
)
from lazyrag.stores.vector_tables import alive_mask, collection_row, dead_bits, insert_part
from lazyrag.types import Embeddings, Metric, Ranking

_MOST_PARTS = 16
_SMALL_BYTES = 256 * 1024  # a part below that lies in its row: a file of its own would cost more
_MOST_READS = 5  # of a collection whose array files go while they are being opened


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """One row of the table of parts.

    Args:
        id: Its number.
        name: Of its bundle of arrays.
        in_file: Whether that is an array file.
        dead: The bits as they lie there.
        block: Its rows.
        alive: The same as ``dead``, a truth value for each row; None where all live.
    """

    id: int
    name: str
    in_file: bool
    dead: bytes | None
    block: Part
    alive: Mask | None


@dataclass(frozen=True, slots=True, eq=False)
class _Collection:
    """A collection as one transaction saw it.

    Args:
        id: Its number.
        schema: Dimension, metric and the declared fields as text.
        parts: Oldest first.
        state: What queries read.
    """

    id: int
    schema: tuple[int, Metric, str]
    parts: tuple[_Part, ...]
    state: State


class _UnknownCollectionError(StoreError):
    """There is no collection of that name, or no longer."""


class MapFileVectorStore:
    """Vectors in a store file (spec 001's ``map`` with a ``uri``), searched exactly, or by graphs if that is asked for.

    What another program commits is seen by the next call. Vectors are read from the disk when a search looks at them.
    The file belongs to who opened it: closing the store leaves it open.

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
        self._file = file
        self._known: dict[str, tuple[int, _Collection]] = {}  # with the number of the file's changes
        self._merging = threading.Lock()
        self._graphs = Graphs(graph_files(file))

    @property
    def features(self) -> frozenset[Feature]:
        """Exact, and approximate; persistent and shared unless the store file lies in memory."""
        in_memory: frozenset[Feature] = frozenset(["exact", "sparse", "approximate"])
        return in_memory if self._file.path is None else in_memory | {"persistent", "shared"}

    def open(self) -> None:
        """Nothing to connect to: the store file is open."""

    def close(self) -> None:
        """Let go of the arrays."""
        self._known.clear()

    def create(self, collection: str, schema: VectorSchema) -> None:
        """See `VectorStore.create`."""
        wanted = (schema.dimension, schema.metric, schema_text(schema.fields))
        check_schema(schema)
        with self._file.reading() as connection:
            present = collection_row(connection, collection)
        if present is None and not self._file.read_only:
            with self._file.writing() as connection:
                connection.execute(
                    "INSERT INTO vector_collection (name, dimension, metric, schema) VALUES (?, ?, ?, ?) "
                    "ON CONFLICT (name) DO NOTHING",
                    (collection, *wanted),
                )
                present = collection_row(connection, collection)
        if present is None:
            msg = f"There is no collection {collection!r}, and the store was opened with read_only=True."
            raise StoreError(msg, store="map", collection=collection)
        dimension, metric, fields = present[1:]
        if (dimension, metric, fields) != wanted:
            raise other_schema(collection, dimension, metric, schema)

    def drop(self, collection: str) -> None:
        """See `Store.drop`."""
        with self._file.writing() as connection:
            row = collection_row(connection, collection)
            if row is None:
                return
            names = connection.execute(
                "SELECT arrays FROM vector_part WHERE collection = ? AND content IS NULL", (row[0],)
            ).fetchall()
            connection.execute("DELETE FROM vector_part WHERE collection = ?", (row[0],))
            connection.execute("DELETE FROM vector_collection WHERE id = ?", (row[0],))
        self._known.pop(collection, None)
        self._file.arrays.retire(name for (name,) in names)

    def count(self, collection: str) -> int:
        """See `Store.count`."""
        return len(self._now(collection).state)

    def upsert(self, collection: str, rows: Sequence[VectorRow]) -> None:
        """See `VectorStore.upsert`."""
        known = self._now(collection)
        last = {row.key: row for row in rows}  # of a key that stands twice, the later row counts
        check_vectors(collection, known.schema[0], last.values())
        if not last:
            return
        block = part_of_rows(list(last.values()), known.schema[0])
        name, content = self._kept(block)  # on the disk before anything names it
        with self._file.writing() as connection:
            present = self._read(connection, collection)
            check_vectors(collection, present.schema[0], last.values())  # it may have been made anew meanwhile
            alive, _ = without(
                [part.block for part in present.parts], [part.alive for part in present.parts], block.keys
            )
            retired = _bury(connection, present.parts, alive)
            if content is None:
                self._file.check_there(name)
            insert_part(connection, present.id, len(block), name, content, None)
        self._file.arrays.retire(retired)
        self._merge(collection)

    def get(self, collection: str, keys: Sequence[str]) -> list[VectorRow]:
        """See `VectorStore.get`."""
        return [VectorRow(*row) for row in self._now(collection).state.get(keys)]

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[VectorRow]:
        """See `VectorStore.scan`."""
        return [VectorRow(*row) for row in self._now(collection).state.page(after, limit)]

    def delete(
        self,
        collection: str,
        *,
        keys: Sequence[str] | None = None,
        filter: Filter | None = None,  # noqa: A002  the word of the protocol
    ) -> int:
        """See `VectorStore.delete`."""
        self._now(collection)
        check_deletion(keys, filter)
        if keys is not None and not len(keys):
            return 0
        with self._file.writing() as connection:
            present = self._read(connection, collection)
            gone = list(dict.fromkeys(keys)) if filter is None and keys is not None else []
            if filter is not None:
                gone = present.state.matching(filter)
            blocks = [part.block for part in present.parts]
            alive, count = without(blocks, [part.alive for part in present.parts], encoded_keys(gone))
            retired = _bury(connection, present.parts, alive)
        self._file.arrays.retire(retired)
        if count:
            self._merge(collection)
        return count

    def search(
        self,
        collection: str,
        vectors: Embeddings,
        topk: int,
        filter: Filter | None = None,  # noqa: A002  the word of the protocol
    ) -> list[Ranking]:
        """See `VectorStore.search`."""
        return searched(self._now(collection).state, vectors, topk, filter)

    def search_approximately(
        self,
        collection: str,
        vectors: Embeddings,
        topk: int,
        filter: Filter | None = None,  # noqa: A002  the word of the protocol
    ) -> list[Ranking]:
        """See `Approximate.search_approximately`."""
        now = self._now(collection)
        state, matrix = only_dense(now.state, vectors)
        return self._graphs.search(state, [part.name for part in now.parts], matrix, topk, filter)

    def _now(self, collection: str) -> _Collection:
        """The collection as it is in the file, remembered until anything is committed to that."""
        reads = 0
        while True:
            changes = self._file.changed()  # before the reading: what comes between is read again
            known = self._known.get(collection)
            if known is not None and known[0] == changes:
                return known[1]
            reads += 1
            try:
                with self._file.reading() as connection:
                    found = self._read(connection, collection)
            except StoreError:
                # Parts may be merged, and their files removed, between the reading of their names and the opening.
                if reads == _MOST_READS or self._file.changed() == changes:
                    raise
            else:
                self._known[collection] = changes, found
                return found

    def _read(self, connection: sqlite3.Connection, collection: str) -> _Collection:
        """The collection in a transaction's state; parts that are known are not opened again."""
        row = collection_row(connection, collection)
        if row is None:
            self._known.pop(collection, None)
            names = [name for (name,) in connection.execute("SELECT name FROM vector_collection")]
            msg = f"There is no collection {collection!r}. {known_names(collection, names)} Create it first."
            raise _UnknownCollectionError(msg, store="map", collection=collection)
        number, dimension, metric, fields = row
        before = self._known.get(collection)
        known = {part.id: part for part in before[1].parts} if before is not None else {}
        found = connection.execute(
            "SELECT id, arrays, content IS NULL, size, dead FROM vector_part WHERE collection = ? ORDER BY id",
            (number,),
        ).fetchall()
        parts = []
        for part_id, name, in_file, size, dead in found:
            part = known.get(part_id)
            if part is None or part.dead != dead:
                block = (
                    part.block
                    if part is not None
                    else self._opened(connection, part_id, name, dimension, in_file=in_file)
                )
                part = _Part(part_id, name, bool(in_file), dead, block, alive_mask(dead, size))
            parts.append(part)
        if before is not None and before[1].id == number and _same(before[1].parts, parts):
            return before[1]
        state = state_of([part.block for part in parts], [part.alive for part in parts], dimension, metric)
        return _Collection(number, (dimension, metric, fields), tuple(parts), state)

    def damage(self, collection: str) -> str:
        """See `Checkable.damage`."""
        with self._file.reading() as connection:
            parts = connection.execute(
                "SELECT arrays, content FROM vector_part JOIN vector_collection "
                "ON vector_collection.id = vector_part.collection WHERE name = ? ORDER BY vector_part.id",
                (collection,),
            ).fetchall()
        for name, content in parts:
            told = self._file.arrays.check(name) if content is None else damage_of(content, name)
            if told:
                return f"the array file {name} {told}"
        return ""

    def _opened(self, connection: sqlite3.Connection, part: int, name: str, dimension: int, *, in_file: bool) -> Part:
        if in_file:
            return part_of_arrays(self._file.arrays.open(name), dimension)
        [content] = connection.execute("SELECT content FROM vector_part WHERE id = ?", (part,)).fetchone()
        try:
            return part_of_arrays(decoded(joined([memoryview(content)]), name), dimension)
        except DamagedError as exc:
            msg = f"Part {part} of the vectors in {self._file!r} {exc}. Run verify() and repair()."
            raise StoreError(msg, store="map") from exc

    def _kept(self, block: Part) -> tuple[str, bytes | None]:
        """The name of a block's bundle, and its content where that is not in an array file."""
        arrays = block.arrays()
        if sum(array.nbytes for array in arrays.values()) >= _SMALL_BYTES:
            return self._file.arrays.write(arrays), None
        name, pieces = encoded(arrays)
        return name, bytes(joined(pieces))

    def _merge(self, collection: str) -> None:
        """Join the last parts where they are many or small. Other writers do not wait while it is done.

        When it is put in place, what was joined is looked at again: rows that have died meanwhile stay dead, and where
        another program has joined some of the same parts, its work stands.
        """
        if not self._merging.acquire(blocking=False):
            return  # another thread is at it; the next writer sees what it leaves
        try:
            present = self._now(collection)
            old = _tail(present)
            if not old:
                return
            blocks, alive = [part.block for part in old], [part.alive for part in old]
            block = joined_parts(blocks, alive, present.schema[0], self._file.arrays.scratch)
            name, content = self._kept(block)
            with self._file.writing() as connection:
                now = {part.id: part for part in self._read(connection, collection).parts}
                if any(part.id not in now for part in old):
                    return
                left = _since_died(block, old, [now[part.id] for part in old])
                connection.executemany("DELETE FROM vector_part WHERE id = ?", [(part.id,) for part in old])
                if left is None or left.any():
                    if content is None:
                        self._file.check_there(name)
                    insert_part(connection, present.id, len(block), name, content, left)
            self._file.arrays.retire(part.name for part in old if part.in_file and part.name != name)
        except _UnknownCollectionError:
            return  # dropped meanwhile
        finally:
            self._merging.release()


def _tail(collection: _Collection) -> tuple[_Part, ...]:
    """The last parts that should become one."""
    sizes = [len(part.block) for part in collection.parts]
    count = tail_to_join(sizes, len(collection.state), _MOST_PARTS)
    return collection.parts[len(sizes) - count :]


def _same(some: Sequence[_Part], others: Sequence[_Part]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))


def _bury(connection: sqlite3.Connection, parts: Sequence[_Part], alive: Sequence[Mask | None]) -> list[str]:
    """Write which rows have died; a part without a live row goes, and the name of its array file is returned."""
    retired = []
    for part, mask in zip(parts, alive, strict=True):
        if mask is None or mask is part.alive:
            continue
        if mask.any():
            connection.execute("UPDATE vector_part SET dead = ? WHERE id = ?", (dead_bits(mask), part.id))
        else:
            connection.execute("DELETE FROM vector_part WHERE id = ?", (part.id,))
            if part.in_file:
                retired.append(part.name)
    return retired


def _since_died(block: Part, old: Sequence[_Part], now: Sequence[_Part]) -> Mask | None:
    """The mask of a joined block, given the parts as they were when it was made and as they are."""
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


def _lives(part: _Part) -> Mask:
    return np.ones(len(part.block), np.bool_) if part.alive is None else part.alive
