"""Rankings in exact arithmetic, to compare stores with: what is equal there is a tie, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from lazyrag.data.filters import Filter, matches
from lazyrag.stores.protocol import VectorRow
from lazyrag.types import Embedding, Metric, Ranking, SparseVector, Vector


def true_ranking(
    query: Embedding,
    metric: Metric,
    rows: Sequence[VectorRow],
    filter: Filter | None = None,  # noqa: A002
) -> Ranking:
    """What `VectorStore.search` has to find of all rows, best first: keys as they must stand, scores to float64.

    Args:
        query: (dimension,), or a dict where the rows' vectors are sparse.
        metric: ``"ip"`` for sparse ones.
        rows: In any order.
        filter: A bound filter.

    Example:
        >>> rows = [VectorRow(key, np.array(vector, np.float32)) for key, vector in (("b", [1, 1]), ("a", [2, 2]))]
        >>> true_ranking(np.array([3, 3], np.float32), "cosine", rows)
        [('a', 1.0), ('b', 1.0)]
    """
    found = []
    for row in rows:
        if filter is None or matches(filter, row.fields):
            worth = _shared(query, row) if isinstance(query, dict) else _worth(query, row, metric)
            if worth is not None:
                found.append((row.key, worth))
    found.sort(key=lambda pair: (-pair[1], pair[0]))
    return [(key, _score(worth, metric)) for key, worth in found]


def _worth(query: Vector, row: VectorRow, metric: Metric) -> Fraction:
    """What orders rows as their scores do: product, squared cosine with its sign, or squared distance below 0."""
    if not isinstance(row.vector, np.ndarray):
        msg = f"Row {row.key!r} has {row.vector!r:.60} instead of an array."
        raise TypeError(msg)
    x, q = [Fraction(float(one)) for one in row.vector], [Fraction(float(one)) for one in query]
    if metric == "l2":
        return -sum(((a - b) ** 2 for a, b in zip(x, q, strict=True)), Fraction())
    product = _dot(x, q)
    if metric == "ip":
        return product
    squares = _dot(x, x) * _dot(q, q)
    return product * abs(product) / squares if squares else Fraction()


def _shared(query: SparseVector, row: VectorRow) -> Fraction | None:
    """The product over the dimensions that both have; None without any."""
    if not isinstance(row.vector, dict):
        msg = f"Row {row.key!r} has {row.vector!r:.60} instead of a dict."
        raise TypeError(msg)
    shared = query.keys() & row.vector.keys()
    return sum((Fraction(query[at]) * Fraction(row.vector[at]) for at in shared), Fraction()) if shared else None


def _score(worth: Fraction, metric: Metric) -> float:
    if metric == "ip":
        return float(worth)
    root = math.sqrt(abs(worth))
    return math.copysign(root, worth) if metric == "cosine" else 1.0 / (1.0 + root)


def _dot(x: Sequence[Fraction], q: Sequence[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(x, q, strict=True)), Fraction())
