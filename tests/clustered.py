"""Vectors in clusters, as embeddings lie: hard for a graph, as the nearest rows are hardly nearer
than the next.
"""

from __future__ import annotations

import numpy as np

_CLUSTERS = 2_000
_DEPTH = 48  # directions that the clusters spread in
_ROWS_AT_ONCE = 50_000
_SPREAD = 0.7  # within a cluster, of the distances between them
_NOISE = 0.25  # in each direction


def clustered(
    count: int, queries: int, dimension: int = 384, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Rows (count, dimension) and queries (queries, dimension) of the same kind: float32, of length
    1.

    At 100,000 x 384 the cosines to a query are .61 for the nearest row, .55 for the tenth and 0 in
    the middle.
    """
    chance = np.random.default_rng(seed)
    depth = min(_DEPTH, dimension)
    centres = chance.normal(size=(_CLUSTERS, depth)).astype(np.float32)
    basis = np.linalg.qr(chance.normal(size=(dimension, depth)))[0].T.astype(np.float32)
    rows = np.empty((count + queries, dimension), np.float32)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[start : start + _ROWS_AT_ONCE]
        within = centres[chance.integers(_CLUSTERS, size=len(some))]
        within += _SPREAD * chance.normal(size=within.shape).astype(np.float32)
        some[:] = within @ basis + _NOISE * chance.normal(size=some.shape).astype(np.float32)
        some /= np.linalg.norm(some, axis=1, keepdims=True)
    return rows[:count], rows[count:]
