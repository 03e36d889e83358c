"""The stores in memory: the reference that the others are held to."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from lazyrag.data.fields import Schema
from lazyrag.data.filters import Filter, matches
from lazyrag.data.segment import Segment
from lazyrag.stores.graphs import Graphs
from lazyrag.stores.protocol import (
    Feature,
    VectorRow,
    VectorSchema,
    add_rows,
    builds_by_key,
    check_deletion,
    check_schema,
    check_vectors,
    index_of,
    only_dense,
    other_fields,
    other_schema,
    searched,
    unknown_collection,
)
from lazyrag.types import Embeddings, Fields, Ranking

K = TypeVar("K", bound="_Segments | _Vectors")
S = TypeVar("S")
V = TypeVar("V")


class _Keyed(Generic[S, V]):
    """Values of one collection by key, with pages of keys in order. The caller of a change or a
    page holds the lock.
    """

    def __init__(self, schema: S) -> None:
        self.schema = schema
        self.by_key: dict[str, V] = {}
        self._order: list[str] | None = None  # made when a scan needs it

    def update(self, values: Mapping[str, V]) -> None:
        if not values.keys() <= self.by_key.keys():
            self._order = None
        self.by_key.update(values)

    def discard(self, keys: Iterable[str]) -> int:
        """Forget those keys that are present; returns how many."""
        count = sum(self.by_key.pop(key, None) is not None for key in keys)
        if count:
            self._order = None
        return count

    def page(self, after: str, limit: int) -> list[str]:
        """The next keys that are greater than one."""
        if self._order is None:
            self._order = sorted(self.by_key)
        first = bisect_right(self._order, after)
        return self._order[first : first + limit]


class _Segments(_Keyed["Schema", Segment]):
    """One collection of segments."""

    def matching(self, filter: Filter) -> list[str]:
        return [key for key, row in self.by_key.items() if matches(filter, row.fields)]


class _Vectors(_Keyed["VectorSchema", Fields]):
    """One collection of vectors, with the fields of its rows."""

    def __init__(self, schema: VectorSchema) -> None:
        super().__init__(schema)
        self.index = index_of(schema)

    def matching(self, filter: Filter) -> list[str]:
        return [key for key, fields in self.by_key.items() if matches(filter, fields)]

    def discard(self, keys: Iterable[str]) -> int:
        deleted = [*keys]
        self.index.delete(deleted)
        return super().discard(deleted)


class _MapStore(Generic[K]):
    """What both stores do with their collections."""

    def __init__(self) -> None:
        self._collections: dict[str, K] = {}
        self._lock = threading.Lock()

    def open(self) -> None:
        """Do nothing: there is no connection."""

    def close(self) -> None:
        """Do nothing: the rows live as long as the store."""

    def drop(self, collection: str) -> None:
        """See `Store.drop`."""
        with self._lock:
            self._collections.pop(collection, None)

    def count(self, collection: str) -> int:
        """See `Store.count`."""
        return len(self._existing(collection).by_key)

    def delete(
        self, collection: str, *, keys: Sequence[str] | None = None, filter: Filter | None = None
    ) -> int:
        """See `Store.delete`."""
        target = self._existing(collection)
        check_deletion(keys, filter)
        with self._lock:
            if keys is None and filter is not None:
                keys = target.matching(filter)
            return target.discard(keys or ())

    def _existing(self, collection: str) -> K:
        present = self._collections.get(collection)
        if present is None:
            raise unknown_collection(collection, self._collections)
        return present


class MapSegmentStore(_MapStore[_Segments]):
    """Segments in this process's memory (spec 001's ``map``).

    Example:
        >>> store = MapSegmentStore()
        >>> store.create("c", {})
        >>> store.count("c"), store.get("c", ["unknown"])
        (0, [])
    """

    features: frozenset[Feature] = frozenset()

    def create(self, collection: str, schema: Schema) -> None:
        """See `SegmentStore.create`."""
        with self._lock:
            present = self._collections.setdefault(collection, _Segments(schema))
        if dict(present.schema) != dict(schema):
            raise other_fields(collection, present.schema)

    def upsert(self, collection: str, rows: Sequence[Segment]) -> None:
        """See `SegmentStore.upsert`."""
        target = self._existing(collection)
        with self._lock:
            target.update({row.key: row for row in rows})

    def get(self, collection: str, keys: Sequence[str]) -> list[Segment]:
        """See `SegmentStore.get`."""
        by_key = self._existing(collection).by_key
        return [row for key in keys if (row := by_key.get(key)) is not None]

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[Segment]:
        """See `SegmentStore.scan`."""
        rows = self._existing(collection)
        with self._lock:
            return [rows.by_key[key] for key in rows.page(after, limit)]

    def builds_of(self, collection: str, uid: str) -> list[int]:
        """See `SegmentStore.builds_of`."""
        return builds_by_key(self, collection, uid)


class MapVectorStore(_MapStore[_Vectors]):
    """Vectors in this process's memory, searched exactly, or by graphs on request.

    Example:
        >>> import numpy as np
        >>> store = MapVectorStore()
        >>> store.create("c", VectorSchema(2, "cosine", {}))
        >>> store.upsert("c", [VectorRow("k", np.array([1, 0], np.float32))])
        >>> store.search("c", np.array([[2, 0]], np.float32), 1)
        [[('k', 1.0)]]
    """

    features: frozenset[Feature] = frozenset(["exact", "sparse", "approximate"])

    def __init__(self) -> None:
        super().__init__()
        self._graphs = Graphs()

    def create(self, collection: str, schema: VectorSchema) -> None:
        """See `VectorStore.create`."""
        check_schema(schema)
        with self._lock:
            present = self._collections.setdefault(collection, _Vectors(schema))
        if present.schema != schema:
            raise other_schema(collection, present.schema.dimension, present.schema.metric, schema)

    def upsert(self, collection: str, rows: Sequence[VectorRow]) -> None:
        """See `VectorStore.upsert`."""
        target = self._existing(collection)
        last = {row.key: row for row in rows}  # of a key that stands twice, the later row counts
        check_vectors(collection, target.schema.dimension, last.values())
        if not last:
            return
        with self._lock:
            add_rows(target.index, list(last.values()))
            target.update({key: row.fields for key, row in last.items()})

    def get(self, collection: str, keys: Sequence[str]) -> list[VectorRow]:
        """See `VectorStore.get`."""
        state = self._existing(collection).index.state
        return [VectorRow(*row) for row in state.get(keys)]

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[VectorRow]:
        """See `VectorStore.scan`."""
        target = self._existing(collection)
        with self._lock:
            return [VectorRow(*row) for row in target.index.state.get(target.page(after, limit))]

    def search(
        self, collection: str, vectors: Embeddings, topk: int, filter: Filter | None = None
    ) -> list[Ranking]:
        """See `VectorStore.search`."""
        return searched(self._existing(collection).index.state, vectors, topk, filter)

    def search_approximately(
        self, collection: str, vectors: Embeddings, topk: int, filter: Filter | None = None
    ) -> list[Ranking]:
        """See `Approximate.search_approximately`."""
        state, matrix = only_dense(self._existing(collection).index.state, vectors)
        return self._graphs.search(state, [""] * len(state.parts), matrix, topk, filter)
