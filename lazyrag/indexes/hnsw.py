"""Approximate nearest vectors by graphs, with exact scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lazyrag.data.filters import Filter
from lazyrag.errors import UnsupportedError
from lazyrag.indexes.dense import DenseBlock, DenseState, VectorQuery, checked_queries
from lazyrag.indexes.postings import LiveRows, Mask, decoded_keys, ranked
from lazyrag.types import Matrix, Ranking

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lazyrag.indexes.dense import Graph


# How many rows a graph is asked for, all of which are scored: the largest of these. benchmarks/ann.py tells what share
# of the nearest it finds so.
_LEAST_BREADTH = 128
_BREADTH_OF_ROOT = 0.5  # times the root of a block's rows: the larger the graph, the more ways lead past the nearest
_BREADTH_OF_TOPK = 4

_LEFT = 2  # rows that a filter must leave for each that is wanted; where it leaves fewer, more are asked for
_WIDER = 4  # times as many, then
# To ask a graph for one row takes as long as to search so many exactly; 90 were seen with filters, 180 without, where
# the codes of all rows are read in one go.
_ROWS_AS_DEAR = 128

LEAST_ROWS = _LEAST_BREADTH * _ROWS_AS_DEAR
"""Of a block whose graph can be of use; fewer rows are searched exactly in less time."""


def approximate_rankings(
    state: DenseState,
    graphs: Sequence[Graph | None],
    queries: Matrix,
    topk: int,
    filter: Filter | None = None,  # noqa: A002  the word of the domain
) -> list[Ranking]:
    """What `DenseState.search_many` returns, but that some of the nearest rows may be missing, and others be there.

    There are as many rows as an exact search finds, their scores are its scores, and their order is its order. Rows of
    a block without a graph are never missed, nor are those of a filter that lets few rows through.

    Args:
        state: The rows; its metric is cosine.
        graphs: For each of its blocks a graph over the block's matrix; None for blocks that are searched exactly.
        queries: (q, dimension) finite.
        topk: At least 1.
        filter: A bound filter over the rows' fields.

    Returns:
        For each query at most topk pairs (key, score), best first, ties by key.

    Raises:
        ConfigError: If topk or the queries' shape is wrong, or one is not finite.
        UnsupportedError: If the metric is another.

    Example:
        >>> block = DenseBlock.of_rows(["a", "b"], np.array([[1, 0], [1, 1]], np.float32))
        >>> state = DenseState([block], [None], 2, "cosine")
        >>> approximate_rankings(state, [None], np.array([[2, 0]], np.float32), 1)
        [[('a', 1.0)]]
    """
    if state.metric != "cosine":
        msg = f"An approximate search ranks by cosine; these vectors are ranked by {state.metric!r}. Search exactly."
        raise UnsupportedError(msg, store="map")
    asked = [VectorQuery(one, "cosine") for one in checked_queries(queries, topk, state.dimension)]
    exact: list[tuple[DenseBlock, Mask | None]] = []
    by_graph: list[_GraphSearch] = []
    for block, alive, graph in zip(state.blocks, state.alive, graphs, strict=True):
        mask = LiveRows([block.rows], [alive]).mask(filter)
        search = _GraphSearch(block, mask, graph, topk) if graph is not None else None
        if search is not None and search.pays:
            by_graph.append(search)
        else:
            exact.append((block, mask))
    whole = _exact_state(exact, state.dimension).search_many(queries, topk)
    return [
        _merged([ranking, *(search.ranking(query) for search in by_graph)], topk)
        for query, ranking in zip(asked, whole, strict=True)
    ]


class _GraphSearch:
    """The search in one block with a graph.

    Args:
        block: The block.
        mask: Which of its rows are in question; None for all.
        graph: Over its matrix.
        topk: How many rows are wanted.
    """

    def __init__(self, block: DenseBlock, mask: Mask | None, graph: Graph, topk: int) -> None:
        self._block = block
        self._mask = mask
        self._graph = graph
        self._topk = topk
        self._left = len(block) if mask is None else int(np.count_nonzero(mask))
        breadth = max(_LEAST_BREADTH, _BREADTH_OF_ROOT * math.sqrt(len(block)), _BREADTH_OF_TOPK * topk)
        self._count = math.ceil(breadth * len(block) / max(1, self._left))  # so that about the breadth is left of them

    @property
    def pays(self) -> bool:
        """Whether an exact search would cost more."""
        return self._costs_less(self._count)

    def ranking(self, query: VectorQuery) -> Ranking:
        """The best rows that are in question, as the graph finds them; exactly where it finds too few."""
        count = self._count
        while query.length and self._costs_less(count):
            rows = self._graph.nearest(query.direction.astype(np.float32), count)
            if self._mask is not None:
                rows = rows[self._mask[rows]]
            if len(rows) >= _LEFT * self._topk:
                scores = query.scores(self._block.matrix[rows].astype(np.float64))
                return ranked(self._keys, rows, scores, self._topk)
            count *= _WIDER
        # The rows in question lie elsewhere than the nearest ones, or to a vector without length none is near.
        return _exact_state([(self._block, self._mask)], len(query.vector)).search(query.vector, self._topk)

    def _costs_less(self, count: int) -> bool:
        return count * _ROWS_AS_DEAR <= self._left

    def _keys(self, rows: NDArray[np.integer]) -> list[str]:
        return decoded_keys(self._block.keys[rows])


def _exact_state(parts: Sequence[tuple[DenseBlock, Mask | None]], dimension: int) -> DenseState:
    """Some blocks, those rows of which that are not in question being dead."""
    return DenseState([block for block, _ in parts], [mask for _, mask in parts], dimension, "cosine")


def _merged(rankings: Iterable[Ranking], topk: int) -> Ranking:
    """Rankings of different rows as one."""
    together = [pair for ranking in rankings for pair in ranking]
    return sorted(together, key=lambda pair: (-pair[1], pair[0]))[:topk]
