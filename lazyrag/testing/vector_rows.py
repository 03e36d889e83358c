"""The vectors and queries that the contract of vector stores works with, and a plain computation to compare with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from lazyrag.stores.protocol import VectorRow, VectorStore
from lazyrag.testing.rows import FIELDS
from lazyrag.types import Matrix, Metric, Ranking, Vector

DIMENSION = 8
METRICS: tuple[Metric, ...] = ("cosine", "ip", "l2")


def scan_pages(store: VectorStore, collection: str, limit: int) -> list[VectorRow]:
    """All rows of a collection, page by page."""
    seen: list[VectorRow] = []
    while page := store.scan(collection, after=seen[-1].key if seen else "", limit=limit):
        assert len(page) <= limit
        assert page[0].key not in {row.key for row in seen}  # or there would be no end
        seen += page
    return seen


def make_rows() -> list[VectorRow]:
    """A seeded vector for each of the contract's fields, two of them equal and one without length."""
    vectors = np.random.default_rng(7).normal(size=(len(FIELDS), DIMENSION)).astype(np.float32)
    vectors[9] = vectors[3]
    vectors[20] = 0.0
    return [
        VectorRow(f"{number:032x}-{number % 3}", vector, fields)
        for number, (vector, fields) in enumerate(zip(vectors, FIELDS, strict=True))
    ]


def queries(n: int) -> Matrix:
    """N seeded queries."""
    return np.random.default_rng(11).normal(size=(n, DIMENSION)).astype(np.float32)


def reference(query: Vector, metric: Metric, rows: Sequence[VectorRow] | None = None) -> Ranking:
    """All rows, or those given, ranked by a plain computation in float64."""
    scored = []
    for row in make_rows() if rows is None else rows:
        x, q = dense(row).astype(np.float64), query.astype(np.float64)
        lengths = float(np.linalg.norm(x) * np.linalg.norm(q))
        if metric == "cosine":
            score = float(x @ q) / lengths if lengths else 0.0
        else:
            score = float(x @ q) if metric == "ip" else 1.0 / (1.0 + float(np.linalg.norm(x - q)))
        scored.append((row.key, score))
    return sorted(scored, key=lambda pair: (-round(pair[1], 9), pair[0]))


def dense(row: VectorRow) -> Vector:
    """The vector of a row, which is not sparse."""
    assert isinstance(row.vector, np.ndarray), f"row {row.key!r} has {row.vector!r:.60} instead of an array"
    return row.vector


def assert_same_rows(found: Sequence[VectorRow], expected: Sequence[VectorRow]) -> None:
    """Same keys in the same order, equal vectors and fields."""
    assert [row.key for row in found] == [row.key for row in expected]
    assert all(np.array_equal(dense(one), dense(other)) for one, other in zip(found, expected, strict=True))
    assert [dict(row.fields) for row in found] == [dict(row.fields) for row in expected]


def assert_same_ranking(found: Ranking, expected: Ranking) -> None:
    """Same keys in the same order, scores equal to 1e-6."""
    assert [key for key, _ in found] == [key for key, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], rel=1e-6, abs=1e-6)
