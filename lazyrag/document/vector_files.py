"""Vectors of an export as numpy's files, which hold no objects."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np

from lazyrag.errors import ConfigError
from lazyrag.types import SPARSE, Embedding, Embeddings, SparseVector, Vector


def write_vectors(folder: Path, name: str, vectors: Sequence[Embedding], dimension: int) -> str:
    """Write vectors of one kind, in their order.

    Dense ones become ``<name>.npy``: (n, dimension) float32. Sparse ones become ``<name>.npz``: ``starts``, (n + 1,)
    int64, where each one begins; ``dimensions``, uint64, which ascend in each; ``weights``, float32, one for each.

    Args:
        folder: Where to.
        name: Of the file, without its suffix.
        vectors: Any number of them.
        dimension: The length of each, or `SPARSE`.

    Returns:
        The file's name.
    """
    if dimension != SPARSE:
        dense = cast("Sequence[Vector]", vectors)
        matrix = np.stack(dense) if dense else np.empty((0, dimension), np.float32)
        np.save(folder / f"{name}.npy", matrix.astype("<f4"), allow_pickle=False)
        return f"{name}.npy"
    rows = [sorted(vector.items()) for vector in cast("Sequence[SparseVector]", vectors)]
    np.savez(
        folder / f"{name}.npz",
        starts=np.cumsum([0, *map(len, rows)]).astype("<i8"),
        dimensions=np.array([at for row in rows for at, _ in row], "<u8"),
        weights=np.array([weight for row in rows for _, weight in row], "<f4"),
    )
    return f"{name}.npz"


def read_vectors(path: Path, count: int, dimension: int) -> Embeddings:
    """What `write_vectors` wrote.

    Args:
        path: The file.
        count: How many there must be.
        dimension: The length of each, or `SPARSE`.

    Raises:
        ConfigError: If they are more or less, or others.
    """
    if dimension != SPARSE:
        matrix = np.load(path, allow_pickle=False, mmap_mode="r")
        if matrix.shape != (count, dimension):
            msg = f"{path.name} has shape {matrix.shape} for {count} nodes of dimension {dimension}."
            raise ConfigError(msg)
        return cast("Embeddings", matrix)
    with np.load(path, allow_pickle=False) as arrays:
        starts, dimensions, weights = (arrays[name] for name in ("starts", "dimensions", "weights"))
    if len(starts) != count + 1 or not len(dimensions) == len(weights) == starts[-1]:
        msg = f"{path.name} has {len(starts) - 1} sparse vectors with {len(weights)} weights for {count} nodes."
        raise ConfigError(msg)
    pairs = list(zip(dimensions.tolist(), weights.tolist(), strict=True))
    ends = starts.tolist()
    return [dict(pairs[start:end]) for start, end in pairwise(ends)]
