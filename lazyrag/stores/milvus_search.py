"""Searches in Milvus: exactly, by our kernel over candidates, and as Milvus itself ranks."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from lazyrag.data.filters import Filter
from lazyrag.stores.candidates import Candidate, exact_ranking, ranking_of
from lazyrag.stores.milvus_collection import Asked, MilvusCollection
from lazyrag.stores.milvus_filters import IS_ASIDE
from lazyrag.stores.milvus_schema import plain_query
from lazyrag.stores.protocol import VectorRow
from lazyrag.stores.vector_kinds import check_queries
from lazyrag.types import Embedding, Embeddings, Fields, Metric, Ranking

_DEEPER = 4  # times as many rows, where a part of the filter is left to us

T = TypeVar("T")

Fetch: TypeAlias = Callable[[int], list[T]]
"""The n rows nearest to a query as Milvus ranks them, best first."""


class _TooDeepError(Exception):
    """More rows would have to be fetched at once than an answer may hold."""


class _Candidates(Generic[T]):
    """The rows nearest to some queries, at any depth.

    What one query asks for first is fetched for all of them in few messages, as all begin at the same depth.

    Args:
        queries: That Milvus can rank rows for.
        nearest: So many rows for each of some queries.
        window: How many rows one answer may hold.
    """

    def __init__(
        self, queries: Sequence[Embedding], nearest: Callable[[Sequence[Embedding], int], list[list[T]]], window: int
    ) -> None:
        self._queries = queries
        self._nearest = nearest
        self._window = window
        self._first: tuple[int, list[list[T]]] | None = None

    def fetch(self, number: int, depth: int) -> list[T]:
        """The rows nearest to one of the queries; _TooDeepError where no answer may hold so many."""
        if depth > self._window:
            raise _TooDeepError
        if self._first is None:
            self._first = depth, self._nearest(self._queries, depth)
        first, found = self._first
        if depth == first:
            return found[number]
        return self._nearest([self._queries[number]], depth)[0]


class _Aside:
    """The rows that Milvus cannot rank, and that meet what is asked; few, and the same for all queries of a search.

    Args:
        collection: That has them.
        asked: What they must meet.
    """

    def __init__(self, collection: MilvusCollection, asked: Asked) -> None:
        self._collection = collection
        self._asked = asked

    @functools.cached_property
    def rows(self) -> list[VectorRow]:
        """Read when they are first needed."""
        return [row for page in self._collection.read(self._asked, expression=IS_ASIDE) for row in page]


def exact_rankings(
    collection: MilvusCollection,
    vectors: Embeddings,
    topk: int,
    filter: Filter | None,  # noqa: A002  the word of the domain
) -> list[Ranking]:
    """See `VectorStore.search`."""
    asked = collection.asked(filter)
    fetches = _fetches(collection, vectors, topk, functools.partial(collection.nearest, asked=asked))
    aside = _Aside(collection, asked)
    return [
        _by_reading(collection, query, topk, asked)
        if fetch is None
        else _ranking(collection, query, topk, asked, fetch, aside)
        for query, fetch in zip(vectors, fetches, strict=True)
    ]


def native_rankings(
    collection: MilvusCollection,
    vectors: Embeddings,
    topk: int,
    filter: Filter | None,  # noqa: A002  the word of the domain
) -> list[Ranking]:
    """See `NativeVectors.search_natively`."""
    asked = collection.asked(filter)
    fetches = _fetches(collection, vectors, topk, functools.partial(collection.nearest_keys, asked=asked))
    return [[] if fetch is None else _native(collection, topk, asked, fetch) for fetch in fetches]


def _fetches(
    collection: MilvusCollection,
    vectors: Embeddings,
    topk: int,
    nearest: Callable[[Sequence[Embedding], int], list[list[T]]],
) -> list[Fetch[T] | None]:
    """For each query the rows nearest to it at any depth; None where Milvus cannot rank rows for it.

    Raises:
        ConfigError: As every store does, see `VectorStore.search`.
    """
    schema = collection.schema
    check_queries(schema, vectors, topk)
    plain = [plain_query(one, schema) for one in vectors]
    candidates = _Candidates([query for query in plain if query is not None], nearest, collection.window)
    numbers = itertools.count()
    return [None if query is None else functools.partial(candidates.fetch, next(numbers)) for query in plain]


def _ranking(
    collection: MilvusCollection, query: Embedding, topk: int, asked: Asked, fetch: Fetch[Candidate], aside: _Aside
) -> Ranking:
    """The exact ranking: of candidates, and of the rows that Milvus cannot rank; else of all rows."""
    try:
        ranking = exact_ranking(query, topk, collection.schema, fetch, rest=asked.rest)
    except _TooDeepError:
        return _by_reading(collection, query, topk, asked)
    schema = collection.schema
    # Of dense rows those without length are aside, under the cosine, by which they score 0.
    if not schema.is_sparse and (schema.metric != "cosine" or (len(ranking) == topk and ranking[-1][1] > 0)):
        return ranking
    return _with(ranking, collection, query, topk, aside.rows)


def _by_reading(collection: MilvusCollection, query: Embedding, topk: int, asked: Asked) -> Ranking:
    """The best of all rows that meet what is asked."""
    best: Ranking = []
    for rows in collection.read(asked):
        best = _with(best, collection, query, topk, rows)
    return best


def _with(
    ranking: Ranking, collection: MilvusCollection, query: Embedding, topk: int, rows: Sequence[VectorRow]
) -> Ranking:
    """The best of a ranking and of other rows."""
    both = ranking + ranking_of(query, topk, collection.schema, rows)
    return sorted(both, key=lambda pair: (-pair[1], pair[0]))[:topk]


def _native(collection: MilvusCollection, topk: int, asked: Asked, fetch: Fetch[tuple[str, float, Fields]]) -> Ranking:
    depth = min(topk, collection.window)
    while True:
        found = fetch(depth)
        kept = [(key, worth) for key, worth, fields in found if asked.keeps(fields)]
        if len(kept) >= topk or len(found) < depth or depth == collection.window:
            scored = [(key, _score(collection.schema.metric, worth)) for key, worth in kept]
            return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:topk]
        depth = min(_DEEPER * depth, collection.window)


def _score(metric: Metric, worth: float) -> float:
    """What `VectorStore.search` says of a row, from what Milvus says of it."""
    return 1.0 / (1.0 + max(0.0, -worth) ** 0.5) if metric == "l2" else worth
