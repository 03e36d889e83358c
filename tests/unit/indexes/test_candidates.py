"""An exact ranking comes out of a backend that rounds, orders ties as it likes, and filters only in
part.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.data.filters import Condition
from lazyrag.indexes.dense import DenseIndex
from lazyrag.indexes.sparse import SparseIndex
from lazyrag.stores.protocol import Candidate, VectorRow, VectorSchema, exact_ranking
from lazyrag.types import SPARSE, Metric

DIMENSION = 16


def _rows(count: int, distinct: int) -> list[VectorRow]:
    """Seeded rows of which many have equal vectors."""
    random = np.random.default_rng(11)
    vectors = random.standard_normal((distinct, DIMENSION)).astype(np.float32)
    return [
        VectorRow(
            f"k{number:04d}", vectors[random.integers(distinct)], {"year": int(random.integers(3))}
        )
        for number in range(count)
    ]


class _Backend:
    """Ranks in float32 with an error, ties in an order of its own; counts what it is asked for."""

    def __init__(self, rows: Sequence[VectorRow], metric: Metric, seed: int) -> None:
        self._rows = rows
        self._metric = metric
        self._random = np.random.default_rng(seed)
        self.asked: list[int] = []

    def nearest(self, query: np.ndarray, count: int) -> list[Candidate]:
        """The best by float32 scores."""
        self.asked.append(count)
        matrix = np.stack([row.vector for row in self._rows])
        is_l2 = self._metric == "l2"
        raw_score = -np.square(matrix - query).sum(1, dtype=np.float32) if is_l2 else matrix @ query
        if self._metric == "cosine":
            raw_score /= np.linalg.norm(matrix, axis=1) * np.linalg.norm(query)
        raw_score = raw_score * (
            1 + self._random.uniform(-1, 1, len(raw_score)).astype(np.float32) * 2e-7
        )
        order = np.argsort(-raw_score, kind="stable")[:count]
        return [Candidate(self._rows[at], float(raw_score[at])) for at in order]


@pytest.mark.sample(2)
@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
@given(
    seed=st.integers(0, 1000),
    topk=st.integers(1, 40),
    distinct=st.sampled_from([1, 3, 300]),
    filtered=st.booleans(),
)
def test_the_ranking_is_that_of_our_own_index(
    metric: Metric, seed: int, topk: int, distinct: int, filtered: bool
) -> None:
    """Keys, scores and their order equal the exact index's, however many rows tie at the
    boundary.
    """
    rows = _rows(300, distinct)
    wanted = Condition("year", "eq", 1) if filtered else None
    query = np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32)
    index = DenseIndex(DIMENSION, metric)
    index.add(
        [row.key for row in rows],
        np.stack([row.vector for row in rows]),
        [row.fields for row in rows],
    )
    backend = _Backend(rows, metric, seed)
    found = exact_ranking(
        query,
        topk,
        VectorSchema(DIMENSION, metric, {}),
        lambda count: backend.nearest(query, count),
        rest=wanted,
    )
    assert found == index.state.search(query, topk, filter=wanted)


def test_a_clear_boundary_is_settled_at_the_first_look() -> None:
    """Where the scores behind rank k fall, the backend is asked once, for few rows."""
    backend = _Backend(_rows(300, 300), "cosine", 3)
    query = np.random.default_rng(3).standard_normal(DIMENSION).astype(np.float32)
    exact_ranking(
        query, 5, VectorSchema(DIMENSION, "cosine", {}), lambda count: backend.nearest(query, count)
    )
    assert len(backend.asked) == 1
    assert backend.asked[0] < 50


def test_sparse_vectors_are_scored_the_same_way() -> None:
    """A dict's inner products are those of the sparse index."""
    rows = [VectorRow(f"k{number}", {number % 3: 1.0 + number, 7: 0.5}) for number in range(9)]
    index = SparseIndex()
    index.add([row.key for row in rows], [row.vector for row in rows], [row.fields for row in rows])
    query = {0: 1.0, 7: 2.0}
    ranked = [
        Candidate(row, sum(query.get(at, 0.0) * one for at, one in row.vector.items()))
        for row in rows
    ]
    ranked.sort(key=lambda one: -one.raw_score)
    found = exact_ranking(query, 2, VectorSchema(SPARSE, "ip", {}), lambda count: ranked[:count])
    assert found == index.state.search(query, 2)


def test_an_empty_backend_gives_an_empty_ranking() -> None:
    """Nothing found is nothing ranked."""
    assert exact_ranking(np.ones(4, np.float32), 3, VectorSchema(4, "ip", {}), lambda _: []) == []
