"""Vectors as arrays of an export, and digests of vectors."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np

from lazyrag.types import SPARSE, AnyArray, Embedding, Embeddings, SparseVector, Vector


def write_vectors(path: Path, vectors: Iterable[Embedding], count: int, dimension: int) -> Path:
    """Write vectors of one kind to an array file, in order.

    Dense vectors become ``<path>.npy``: (n, dimension) float32. Sparse vectors become
    ``<path>.npz``: ``starts``, (n + 1,) int64, the start of each vector; ``dimensions``, uint64,
    ascending in each; ``weights``, float32, one per dimension.

    Args:
        path: Path of the file without suffix.
        vectors: The vectors; only one of them is in memory.
        count: Their number.
        dimension: Their length, or `SPARSE`.

    Returns:
        The path of the file.
    """
    if dimension == SPARSE:
        starts, dimensions, weights = _sparse_arrays(cast("Iterable[SparseVector]", vectors))
        path = path.with_suffix(".npz")
        np.savez(path, starts=starts, dimensions=dimensions, weights=weights)
        return path
    path = path.with_suffix(".npy")
    header = {"descr": "<f4", "fortran_order": False, "shape": (count, dimension)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for dense in cast("Iterable[Vector]", vectors):
            file.write(dense.astype("<f4").tobytes())
    return path


def read_vectors(path: Path, count: int, dimension: int) -> Embeddings:
    """Read what `write_vectors` wrote.

    Args:
        path: The file.
        count: The expected number of vectors.
        dimension: Their expected length, or `SPARSE`.

    Raises:
        ValueError: If number or length differ.
    """
    if dimension != SPARSE:
        matrix = np.load(path, allow_pickle=False, mmap_mode="r")
        if matrix.shape != (count, dimension) or matrix.dtype != np.dtype("<f4"):
            raise ValueError(f"shape {matrix.shape} for {count} nodes of dimension {dimension}")
        return cast("Embeddings", matrix)
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        starts, dimensions, weights = (arrays[name] for name in ("starts", "dimensions", "weights"))
    if len(starts) != count + 1 or not len(dimensions) == len(weights) == starts[-1]:
        raise ValueError(
            f"{len(starts) - 1} sparse vectors with {len(weights)} weights for {count} nodes"
        )
    pairs = list(zip(dimensions.tolist(), weights.tolist(), strict=True))
    return [dict(pairs[start:end]) for start, end in pairwise(starts.tolist())]


def vector_digest(vector: Embedding) -> str:
    """Return the same 32 hexadecimal digits for equal vectors."""
    if isinstance(vector, dict):
        _, dimensions, weights = _sparse_arrays([vector])
        data = dimensions.tobytes() + weights.tobytes()
    else:
        data = np.ascontiguousarray(vector, "<f4").tobytes()
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _sparse_arrays(
    vectors: Iterable[SparseVector],
) -> tuple[AnyArray, AnyArray, AnyArray]:
    starts = array("q", [0])
    dimensions = array("Q")
    weights = array("f")
    for vector in vectors:
        row = sorted(vector.items())
        dimensions.extend(number for number, _ in row)
        weights.extend(weight for _, weight in row)
        starts.append(len(weights))
    return np.array(starts, "<i8"), np.array(dimensions, "<u8"), np.array(weights, "<f4")
