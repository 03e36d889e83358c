"""Approximate nearest vectors by graphs, with exact scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lazyrag.data.filters import Filter
from lazyrag.errors import UnsupportedError
from lazyrag.indexes.dense import DenseBlock, DenseState, VectorQuery, checked_queries
from lazyrag.indexes.postings import LiveRows, Mask, decoded_keys, ranked
from lazyrag.types import AnyIntArray, Matrix, Ranking

if TYPE_CHECKING:
    from lazyrag.indexes.dense import Graph


# Rows requested from a graph, all of which are scored: the largest of these. benchmarks/ann.py
# measures the recall.
_MIN_BREADTH = 128
# times the root of a block's rows: the larger the graph, the more ways lead past the nearest
_BREADTH_OF_ROOT = 0.5
_BREADTH_OF_TOPK = 4

# rows that a filter must leave for each requested one; if it leaves fewer, more are requested
_LEFT = 2
_WIDER = 4  # times as many
# One row from a graph takes as long as so many in an exact search; 90 were measured with filters,
# 180 without, when the codes of all rows are read sequentially.
_ROWS_AS_DEAR = 128

MIN_ROWS = _MIN_BREADTH * _ROWS_AS_DEAR
"""Rows of a block from which a graph pays; fewer are searched exactly in less time."""


def approximate_rankings(
    state: DenseState,
    graphs: Sequence[Graph | None],
    queries: Matrix,
    topk: int,
    filter: Filter | None = None,  # noqa: A002  the word of the domain
) -> list[Ranking]:
    """Approximate `DenseState.search_many`: some of the nearest rows may be missing, with others in
    their place.

    It finds as many rows as an exact search, with exact scores, in the same order. Rows of a block
    without a graph are never missed, nor are those of a filter that matches few rows.

    Args:
        state: The rows; its metric is cosine.
        graphs: For each of its blocks a graph over the block's matrix; None for blocks that are
            searched exactly.
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
        raise UnsupportedError(
            f"An approximate search ranks by cosine; these vectors are ranked by {state.metric!r}."
            " Search exactly.",
            store="map",
        )
    exact_queries = checked_queries(queries, topk, state.dimension)
    vector_queries = [VectorQuery(vector, "cosine") for vector in exact_queries]
    exact = []
    by_graph = []
    for block, alive, graph in zip(state.parts, state.alive, graphs, strict=True):
        mask = LiveRows([block.rows], [alive]).mask(filter)
        search = _GraphSearch(block, mask, graph, topk) if graph is not None else None
        if search is not None and search.pays:
            by_graph.append(search)
        else:
            exact.append((block, mask))
    exact_rankings = _exact_state(exact, state.dimension).search_many(queries, topk)
    merged = []
    for query, ranking in zip(vector_queries, exact_rankings, strict=True):
        rankings = [ranking, *(search.ranking(query) for search in by_graph)]
        merged.append(_merge_rankings(rankings, topk))
    return merged


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
        breadth_of_rows = _BREADTH_OF_ROOT * math.sqrt(len(block))
        breadth = max(_MIN_BREADTH, breadth_of_rows, _BREADTH_OF_TOPK * topk)
        # so that about the breadth is left of them
        self._count = math.ceil(breadth * len(block) / max(1, self._left))

    @property
    def pays(self) -> bool:
        """Whether an exact search would cost more."""
        return self._costs_less(self._count)

    def ranking(self, query: VectorQuery) -> Ranking:
        """The best candidate rows by the graph; by an exact search if it finds too few."""
        count = self._count
        while query.length and self._costs_less(count):
            rows = self._graph.nearest(query.direction.astype(np.float32), count)
            if self._mask is not None:
                rows = rows[self._mask[rows]]
            if len(rows) >= _LEFT * self._topk:
                vectors = self._block.matrix[rows].astype(np.float64)
                scores = query.scores(vectors)
                return ranked(self._keys, rows, scores, self._topk)
            count *= _WIDER
        # The matching rows are not among the nearest ones, or the vector has no length.
        exact_state = _exact_state([(self._block, self._mask)], len(query.vector))
        return exact_state.search(query.vector, self._topk)

    def _costs_less(self, count: int) -> bool:
        return count * _ROWS_AS_DEAR <= self._left

    def _keys(self, rows: AnyIntArray) -> list[str]:
        return decoded_keys(self._block.keys[rows])


def _exact_state(parts: Sequence[tuple[DenseBlock, Mask | None]], dimension: int) -> DenseState:
    """A state of some blocks and masks of their candidate rows."""
    blocks = [block for block, _ in parts]
    masks = [mask for _, mask in parts]
    return DenseState(blocks, masks, dimension, "cosine")


def _merge_rankings(rankings: Iterable[Ranking], topk: int) -> Ranking:
    """Merge rankings of different rows."""
    pairs = itertools.chain.from_iterable(rankings)
    best_first = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
    return best_first[:topk]
