"""Exact nearest vectors on float32 matrices."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrag.data.filters import Filter
from lazyrag.errors import ConfigError
from lazyrag.indexes.blocks import Mask, encoded_keys
from lazyrag.indexes.dense_blocks import DenseBlock
from lazyrag.indexes.nearest import BlockSearch, Contenders, VectorQuery
from lazyrag.indexes.rows import LiveRows, kth_largest, ranked
from lazyrag.indexes.tiers import tidied, without
from lazyrag.typing import Fields, Matrix, Metric, Ranking, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

METRICS: tuple[Metric, ...] = ("cosine", "ip", "l2")

_MOST_BLOCKS = 16
_PRODUCTS_AT_ONCE = 1 << 24  # between queries and rows, which are kept in memory together


class DenseState:
    """What a query reads: some blocks, and which of their rows live. Never changed, safe for any number of threads.

    Scores: cosine in [-1, 1] (0 for a vector without length); inner product; L2 as 1 / (1 + distance). A pass in
    float32, over codes or over vectors, finds the rows that can be among the best within its largest error, and one in
    float64 over the vectors of those gives their scores: equal vectors get equal scores wherever they lie.

    Args:
        blocks: Their live rows have distinct keys.
        alive: For each block a mask that is false for dead rows; None where all live. Not to be changed afterwards.
        dimension: Length of the vectors, at least 1.
        metric: ``"cosine"``, ``"ip"`` or ``"l2"``.

    Raises:
        ConfigError: If a value is out of its range, or a mask does not fit its block.

    Example:
        >>> block = DenseBlock.of_rows(["a", "b"], np.array([[1, 0], [1, 1]], np.float32))
        >>> DenseState([block], [None], 2, "cosine").search(np.array([2, 0], np.float32), 1)
        [('a', 1.0)]
    """

    def __init__(
        self, blocks: Sequence[DenseBlock], alive: Sequence[Mask | None], dimension: int, metric: Metric
    ) -> None:
        if metric not in METRICS or dimension < 1:
            msg = f"A DenseIndex got dimension={dimension!r}, metric={metric!r}; allowed: >= 1, {', '.join(METRICS)}."
            raise ConfigError(msg)
        self.blocks = tuple(blocks)
        self.alive = tuple(alive)
        self.dimension = dimension
        self.metric: Metric = metric
        self._rows = LiveRows([block.rows for block in self.blocks], alive)

    def __len__(self) -> int:
        return self._rows.live

    def get(self, keys: Sequence[str]) -> list[tuple[str, Vector, Fields]]:
        """Key, vector as it was added and fields of those keys that live, in the order asked for."""
        rows = self._rows.find(encoded_keys(keys))
        return [self._row(key, row) for key, row in zip(keys, rows.tolist(), strict=True) if row >= 0]

    def page(self, after: str, limit: int) -> list[tuple[str, Vector, Fields]]:
        """Key, vector and fields of the next ``limit`` live rows whose key is greater than one, in key order."""
        return self.get(self._rows.page(after, limit))

    def matching(self, filter: Filter) -> list[str]:  # noqa: A002  the word of the domain
        """The keys of the live rows that a bound filter lets through."""
        mask = self._rows.mask(filter)
        return [] if mask is None else self._rows.keys(np.flatnonzero(mask))

    def search(self, query: NDArray[np.floating], topk: int, *, filter: Filter | None = None) -> Ranking:  # noqa: A002
        """The best live rows by the metric.

        Args:
            query: (dimension,) finite.
            topk: At least 1.
            filter: A bound filter over the rows' fields.

        Returns:
            At most topk pairs (key, score), best first, ties by key.

        Raises:
            ConfigError: If topk or the query's shape is wrong, or the query is not finite.
        """
        [(ranking, _)] = self._found(np.asarray(query)[None], topk, filter)
        return ranking

    def search_many(self, queries: Matrix, topk: int, *, filter: Filter | None = None) -> list[Ranking]:  # noqa: A002
        """The same for several queries, which costs less than one after the other.

        Args:
            queries: (q, dimension) finite.
            topk: At least 1.
            filter: A bound filter over the rows' fields.

        Returns:
            A ranking for each query: what `search` returns for it.

        Raises:
            ConfigError: If topk or the queries' shape is wrong, or one is not finite.
        """
        return [ranking for ranking, _ in self._found(np.asarray(queries), topk, filter)]

    def bytes_read(self, query: Vector, topk: int, *, filter: Filter | None = None) -> int:  # noqa: A002
        """How much of vectors and codes a search looks at, to be compared with what the vectors take."""
        [(_, read)] = self._found(np.asarray(query)[None], topk, filter)
        return read

    def _found(
        self,
        queries: NDArray[Any],
        topk: int,
        filter: Filter | None,  # noqa: A002  the word of the domain
    ) -> Iterator[tuple[Ranking, int]]:
        """For each query its ranking, and how many bytes were read for it."""
        exact = checked_queries(queries, topk, self.dimension)
        mask = self._rows.mask(filter)
        rows = np.arange(len(self._rows)) if mask is None else np.flatnonzero(mask)
        step = max(1, _PRODUCTS_AT_ONCE // max(1, len(self._rows)))
        for start in range(0, len(exact), step):
            some = [VectorQuery(one, self.metric) for one in exact[start : start + step]]
            yield from self._answers(some, rows, topk)

    def _answers(
        self, queries: Sequence[VectorQuery], rows: NDArray[np.intp], topk: int
    ) -> Iterator[tuple[Ranking, int]]:
        searches = []
        if len(rows) > topk:  # else all of them are among the best
            searches = [(first, BlockSearch(block, own, queries)) for block, first, own, _ in self._by_block(rows)]
        for number, query in enumerate(queries):
            left, read = rows, 0
            if query.length and searches:
                found = [(first, search.contenders(number, topk)) for first, search in searches]
                left = _can_be_best(found, topk)
                read = sum(one.bytes_read for _, one in found)
            scores = self._scores(left, query)
            yield ranked(self._rows.keys, left, scores, topk), read + left.size * self.dimension * 4

    def _scores(self, rows: NDArray[np.intp], query: VectorQuery) -> NDArray[np.float64]:
        found = np.empty(len(rows))
        for block, _, own, place in self._by_block(rows):
            found[place] = query.scores(block.matrix[own].astype(np.float64))
        return found

    def _by_block(self, rows: NDArray[np.intp]) -> list[tuple[DenseBlock, int, NDArray[np.intp], slice]]:
        """For each block with some of the rows, which are ascending: the number of its first row, its own numbers of
        them, and where they stand.
        """
        firsts = self._rows.firsts
        ends = rows.searchsorted(firsts).tolist()
        places = [slice(start, end) for start, end in pairwise(ends)]
        return [
            (block, first, rows[place] - first, place)
            for block, first, place in zip(self.blocks, firsts[:-1].tolist(), places, strict=True)
            if place.start < place.stop
        ]

    def _row(self, key: str, row: int) -> tuple[str, Vector, Fields]:
        number = int(self._rows.firsts.searchsorted(row, side="right")) - 1
        block, own = self.blocks[number], row - int(self._rows.firsts[number])
        return key, np.array(block.matrix[own]), block.rows.fields.values()[block.rows.field_ids[own]]


class DenseIndex:
    """Dense vectors ranked exactly, incremental, safe for concurrent readers; see `DenseState`.

    Args:
        dimension: Length of the vectors, at least 1.
        metric: ``"cosine"``, ``"ip"`` or ``"l2"``.

    Raises:
        ConfigError: If a value is out of its range.

    Example:
        >>> index = DenseIndex(2, "cosine")
        >>> index.add(["a", "b"], np.array([[1, 0], [1, 1]], np.float32))
        >>> index.search(np.array([2, 0], np.float32), 1)
        [('a', 1.0)]
    """

    def __init__(self, dimension: int, metric: Metric = "cosine") -> None:
        self._state = DenseState([], [], dimension, metric)
        self.dimension = dimension
        self.metric: Metric = metric
        self._writing = threading.Lock()

    def __len__(self) -> int:
        return len(self._state)

    @property
    def state(self) -> DenseState:
        """The index as it is now, which no later change touches."""
        return self._state

    def add(self, keys: Sequence[str], vectors: Matrix, fields: Sequence[Fields] | None = None) -> None:
        """Add rows; a key that is present is replaced.

        Args:
            keys: n distinct keys.
            vectors: (n, dimension) float32, finite.
            fields: What filters read of each; the rows of one file should share one object.

        Raises:
            ConfigError: If the shape is another, a value is not finite, keys repeat or the lengths differ.
        """
        vectors = np.asarray(vectors, np.float32)
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension:
            msg = f"add() got vectors of shape {vectors.shape}; this index holds rows of {self.dimension} numbers."
            raise ConfigError(msg)
        block = DenseBlock.of_rows(keys, vectors, fields)
        if len(block):
            with self._writing:
                state = self._state
                alive, _ = without(state.blocks, state.alive, block.keys)
                self._put([*state.blocks, block], [*alive, None])

    def delete(self, keys: Iterable[str]) -> int:
        """Delete rows; unknown keys are passed over. Returns how many went."""
        wanted = encoded_keys(list(dict.fromkeys(keys)))
        with self._writing:
            state = self._state
            alive, gone = without(state.blocks, state.alive, wanted)
            if gone:
                self._put(state.blocks, alive)
            return gone

    def get(self, keys: Sequence[str]) -> list[tuple[str, Vector, Fields]]:
        """Key, vector as it was added and fields of those keys that are present, in the order asked for."""
        return self._state.get(keys)

    def search(self, query: Vector, topk: int, *, filter: Filter | None = None) -> Ranking:  # noqa: A002
        """The best rows by the index's metric; see `DenseState.search`."""
        return self._state.search(query, topk, filter=filter)

    def search_many(self, queries: Matrix, topk: int, *, filter: Filter | None = None) -> list[Ranking]:  # noqa: A002
        """The best rows for each of several queries; see `DenseState.search_many`."""
        return self._state.search_many(queries, topk, filter=filter)

    def _put(self, blocks: Sequence[DenseBlock], alive: Sequence[Mask | None]) -> None:
        left, masks = tidied(blocks, alive, DenseBlock.joined, _MOST_BLOCKS)
        self._state = DenseState(left, masks, self.dimension, self.metric)


def checked_queries(queries: NDArray[Any], topk: int, dimension: int) -> NDArray[np.float64]:
    """The vectors of some queries, (q, dimension) float64.

    Raises:
        ConfigError: If topk or their shape is wrong, or one is not finite.
    """
    exact = np.asarray(queries).astype(np.float64)
    if topk < 1 or exact.shape[1:] != (dimension,) or not np.isfinite(exact).all():
        msg = (
            f"search() got topk={topk} and a query of shape {exact.shape[1:]}; "
            f"topk is at least 1 and a query is {dimension} finite numbers."
        )
        raise ConfigError(msg)
    return exact


def _can_be_best(found: Sequence[tuple[int, Contenders]], topk: int) -> NDArray[np.intp]:
    """The rows that can be among the topk best of all blocks, given those of each with the number of its first row."""
    worth = np.concatenate([one.worth for _, one in found])
    errors = np.concatenate([one.errors for _, one in found])
    rows = np.concatenate([one.rows + first for first, one in found])
    best: NDArray[np.intp] = rows[worth + errors >= kth_largest(worth - errors, topk)]
    return best
