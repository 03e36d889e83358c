"""One collection in Chroma: its calls, and what its search may be trusted with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from lazyrag.stores.candidates import Candidate
from lazyrag.stores.chroma_client import Connection
from lazyrag.stores.chroma_filters import Where
from lazyrag.stores.chroma_rows import placed, read, read_fields, written
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.types import Fields, Matrix, Vector

T = TypeVar("T")

_KEYS_AT_ONCE = 5_000  # SQLite behind Chroma takes some 32,000 parameters
_KEYS_IN_A_SEARCH = 20_000
_BYTES_AT_ONCE = 16 * 2**20  # of vectors; a server refuses requests of 40 MB


class Collection:
    """A collection of Chroma's. Every call of it is tried again where that may help.

    Args:
        connection: The open connection.
        handle: Chroma's object for the collection.
        schema: What its rows look like.
    """

    def __init__(self, connection: Connection, handle: Any, schema: VectorSchema) -> None:
        self.schema = schema
        self._connection = connection
        self._handle = handle

    def count(self) -> int:
        """Number of rows."""
        return int(self._call("count"))

    def keys(self, where: Where | None = None) -> list[str]:
        """The keys of all rows that meet a filter, in no order."""
        return cast("list[str]", self._call("get", where=where, include=[])["ids"])

    def fields(self, where: Where | None) -> list[tuple[str, Fields]]:
        """The keys and fields of all rows that meet a filter, in no order."""
        found = self._call("get", where=where, include=["metadatas"])
        return [
            (key, read_fields(one, self.schema.fields))
            for key, one in zip(found["ids"], found["metadatas"], strict=True)
        ]

    def rows(self, keys: Iterable[str]) -> dict[str, VectorRow]:
        """By key, the rows of those keys that are present."""
        rows: dict[str, VectorRow] = {}
        for some in _pieces(list(dict.fromkeys(keys)), _KEYS_AT_ONCE):
            found = self._call("get", ids=some, include=["embeddings", "metadatas"])
            parts = found["ids"], found["embeddings"], found["metadatas"]
            rows.update((row.key, row) for row in read(*parts, self.schema.fields))
        return rows

    def upsert(self, rows: Sequence[VectorRow]) -> None:
        """Write rows of different keys whole; at least one."""
        most = int(self._connection.run(lambda client: client.get_max_batch_size()))
        by_bytes = _BYTES_AT_ONCE // (4 * self.schema.dimension)
        vectors, metadata = written(rows, self.schema)
        keys = [row.key for row in rows]
        for some in _pieces(range(len(rows)), max(1, min(most, by_bytes))):
            part = slice(some[0], some[-1] + 1)
            self._call("upsert", ids=keys[part], embeddings=vectors[part], metadatas=metadata[part])

    def delete(self, keys: Iterable[str]) -> int:
        """Delete the rows of those keys that are present; returns how many they were."""
        gone = 0
        for some in _pieces(list(dict.fromkeys(keys)), _KEYS_AT_ONCE):
            # Chroma counts those that it has never had, too.
            there = self._call("get", ids=some, include=[])["ids"]
            if there:
                self._call("delete", ids=there)
            gone += len(there)
        return gone

    def nearest(
        self, query: Vector, count: int, where: Where | None, keys: Sequence[str] | None = None
    ) -> list[tuple[str, float]]:
        """What Chroma's own search finds: at most so many keys, each with its worth, see `Candidate`; best first.

        Rows whose distance is beyond float32's range are left out.

        Args:
            query: (dimension,) finite.
            count: At least 1.
            where: A filter.
            keys: Of the rows that meet the filter, where they are known; Chroma need not look at the filter again.
        """
        only: dict[str, Any] = {"where": where}
        if keys is not None and len(keys) <= _KEYS_IN_A_SEARCH:
            only = {"ids": keys}
        [vector] = placed(query[None], self.schema.metric)
        found = self._call("query", query_embeddings=[vector], n_results=count, include=["distances"], **only)
        pairs = zip(found["ids"][0], found["distances"][0], strict=True)
        one = 0.0 if self.schema.metric == "l2" else 1.0  # it tells the square of the distance, or 1 - the product
        return [(key, one - far) for key, far in pairs if far is not None and math.isfinite(far)]

    def _call(self, method: str, **kwargs: Any) -> Any:
        """What a method of Chroma's object returns."""
        return self._connection.run(lambda _: getattr(self._handle, method)(**kwargs))


class Found:
    """What is near to one query: a fetch for `exact_ranking`.

    Chroma searches a graph (HNSW). Of it a search reaches not all rows, even if it is asked for all: of 3,000 equal
    vectors half, of inner products of vectors of very different lengths a quarter were seen. So a small collection is
    asked for all of its rows, and what does not come is fetched by its key and scored by us.

    Args:
        collection: The collection.
        query: (dimension,) finite.
        where: A filter.
        exact_rows: How many rows a small collection has at most.
    """

    def __init__(self, collection: Collection, query: Vector, where: Where | None, exact_rows: int) -> None:
        self._collection = collection
        self._query = query
        self._where = where
        self._exact_rows = exact_rows
        self._ranked: list[tuple[str, float]] = []
        self._is_all = False  # whether no other rows meet the filter
        self._rows: dict[str, VectorRow] = {}

    def __call__(self, depth: int) -> list[Candidate]:
        """The nearest rows, so many where there are as many."""
        while True:
            if len(self._ranked) < depth and not self._is_all:
                self._ask(depth)
            new = [key for key, _ in self._ranked[:depth] if key not in self._rows]
            if not new:
                return [Candidate(self._rows[key], worth) for key, worth in self._ranked[:depth]]
            self._rows.update(self._collection.rows(new))
            # Some may have been deleted meanwhile; a graph that another program has open remembers them for longer.
            gone = set(new) - self._rows.keys()
            self._ranked = [pair for pair in self._ranked if pair[0] not in gone]

    def _ask(self, depth: int) -> None:
        count = self._collection.count()
        is_small, where = count <= self._exact_rows, self._where
        if is_small and where is not None:
            self._rank_all(self._collection.keys(where))
            return
        asked = max(depth, count) if is_small else depth
        self._ranked = self._collection.nearest(self._query, asked, where) if count else []
        if len(self._ranked) < min(asked, count):
            self._complete(self._collection.keys(where))
        else:
            self._is_all = asked >= count

    def _rank_all(self, keys: Sequence[str]) -> None:
        """Rank the rows that meet the filter."""
        self._ranked = self._collection.nearest(self._query, len(keys), self._where, keys) if keys else []
        self._complete(keys)

    def _complete(self, keys: Sequence[str]) -> None:
        """Put the rows in their places that the search has not reached, and leave out those that are gone.

        Args:
            keys: Of all rows that meet the filter.
        """
        self._is_all = True
        there = set(keys)
        ranked = [pair for pair in self._ranked if pair[0] in there]
        rows = self._collection.rows(there - {key for key, _ in ranked})
        self._rows.update(rows)
        if rows:
            worth = self._worth(np.stack([cast("Vector", row.vector) for row in rows.values()]))
            ranked = sorted([*ranked, *zip(rows, worth, strict=True)], key=lambda pair: -pair[1])
        self._ranked = ranked

    def _worth(self, vectors: Matrix) -> list[float]:
        """Of each vector, (n, dimension), its worth; see `Candidate`."""
        metric = self._collection.schema.metric
        query = placed(self._query[None], metric)[0].astype(np.float64)
        exact = placed(vectors, metric).astype(np.float64)
        worth = -np.square(exact - query).sum(axis=1) if metric == "l2" else exact @ query
        return cast("list[float]", worth.tolist())


def _pieces(whole: Sequence[T], size: int) -> list[Sequence[T]]:
    return [whole[start : start + size] for start in range(0, len(whole), size)]
