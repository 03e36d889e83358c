"""What the map stores keep the two kinds of vectors as, and search them by: dense ones and sparse ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, cast

import numpy as np

from lazyrag.data.filters import Filter
from lazyrag.errors import ConfigError, SchemaMismatchError
from lazyrag.indexes.dense import DenseBlock, DenseIndex, DenseState, Room, checked_queries
from lazyrag.indexes.postings import Mask
from lazyrag.indexes.sparse import SparseIndex, SparsePart, SparseState
from lazyrag.storage.arrays import Arrays
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.types import SPARSE, Embeddings, Matrix, Metric, Ranking, SparseVector, Vector

Part: TypeAlias = "DenseBlock | SparsePart"
"""Some rows of a collection; those of one are of one kind."""

State: TypeAlias = "DenseState | SparseState"
"""What a search reads."""

Index: TypeAlias = "DenseIndex | SparseIndex"
"""A collection in memory."""


def check_schema(schema: VectorSchema) -> None:
    """Refuse a schema that no vectors have.

    Raises:
        ConfigError: If the dimension is out of its range, or the metric is unknown or not for that kind of vectors.

    Example:
        >>> check_schema(VectorSchema(SPARSE, "ip", {}))
    """
    state_of([], [], schema.dimension, schema.metric)


def other_schema(
    collection: str, dimension: int, metric: Metric, asked: VectorSchema, *, store: str = "map"
) -> SchemaMismatchError:
    """The error for a collection that is there with another schema than asked for."""
    msg = (
        f"Collection {collection!r} holds {_held(dimension)} under the metric {metric!r}; "
        f"asked for were {_held(asked.dimension)} under {asked.metric!r}, or other fields."
    )
    return SchemaMismatchError(msg, store=store, collection=collection)


def state_of(parts: Sequence[Part], alive: Sequence[Mask | None], dimension: int, metric: Metric) -> State:
    """What a search over some parts of a collection reads; see `DenseState` and `SparseState`."""
    if dimension != SPARSE:
        return DenseState(cast("Sequence[DenseBlock]", parts), alive, dimension, metric)
    if metric != "ip":
        msg = f"Sparse vectors are ranked by the inner product, 'ip'; the schema's metric is {metric!r}."
        raise ConfigError(msg)
    return SparseState(cast("Sequence[SparsePart]", parts), alive)


def index_of(schema: VectorSchema) -> Index:
    """An empty collection in memory."""
    return SparseIndex() if schema.is_sparse else DenseIndex(schema.dimension, schema.metric)


def add_rows(index: Index, rows: Sequence[VectorRow]) -> None:
    """Add rows, which `check_vectors` has let through, to a collection in memory."""
    keys, fields = [row.key for row in rows], [row.fields for row in rows]
    if isinstance(index, SparseIndex):
        index.add(keys, _sparse(rows), fields)
    else:
        index.add(keys, _stacked(rows), fields)


def part_of_rows(rows: Sequence[VectorRow], dimension: int) -> Part:
    """At least one row, all of them let through by `check_vectors`, as a part."""
    keys, fields = [row.key for row in rows], [row.fields for row in rows]
    if dimension == SPARSE:
        return SparsePart.of_rows(keys, _sparse(rows), fields)
    return DenseBlock.of_rows(keys, _stacked(rows), fields)


def part_of_arrays(arrays: Arrays, dimension: int) -> Part:
    """A part of which `arrays()` was written.

    Raises:
        StoreError: If the arrays are those of the other kind, or of no part.
    """
    return SparsePart.from_arrays(arrays) if dimension == SPARSE else DenseBlock.from_arrays(arrays)


def joined_parts(parts: Sequence[Part], kept: Sequence[Mask | None], dimension: int, room: Room) -> Part:
    """Several parts as one; see `SparsePart.joined` and, also for the room, `DenseBlock.joined`."""
    if dimension == SPARSE:
        return SparsePart.joined(cast("Sequence[SparsePart]", parts), kept)
    return DenseBlock.joined(cast("Sequence[DenseBlock]", parts), kept, room)


def searched(state: State, vectors: Embeddings, topk: int, filter: Filter | None) -> list[Ranking]:  # noqa: A002
    """See `VectorStore.search`.

    Raises:
        ConfigError: If a vector is of the other kind, or as the states say.
    """
    _check_kind(vectors, is_sparse=isinstance(state, SparseState))
    if isinstance(state, SparseState):
        return [state.search(one, topk, filter=filter) for one in cast("Sequence[SparseVector]", vectors)]
    return state.search_many(cast("Matrix", vectors), topk, filter=filter)


def check_queries(schema: VectorSchema, vectors: Embeddings, topk: int) -> None:
    """Refuse the queries that `searched` refuses: for stores whose rows are not here.

    Raises:
        ConfigError: If topk is below 1, or a vector does not go with the collection.

    Example:
        >>> check_queries(VectorSchema(2, "cosine", {}), np.ones((1, 2), np.float32), 10)
    """
    if schema.is_sparse:
        searched(state_of([], [], schema.dimension, schema.metric), vectors, topk, None)
        return
    _check_kind(vectors, is_sparse=False)
    checked_queries(np.asarray(vectors), topk, schema.dimension)


def only_dense(state: State, vectors: Embeddings) -> tuple[DenseState, Matrix]:
    """What an approximate search reads, and its queries.

    Raises:
        ConfigError: If either is sparse.
    """
    if isinstance(state, SparseState) or not isinstance(vectors, np.ndarray):
        raise ConfigError("Dense vectors are searched approximately; sparse ones have only the exact search().")
    return state, vectors


def check_vectors(collection: str, dimension: int, rows: Iterable[VectorRow], *, store: str = "map") -> None:
    """Refuse rows that do not go with a collection.

    Raises:
        SchemaMismatchError: If a vector is of the other kind, or of another length.
    """
    for row in rows:
        if isinstance(row.vector, dict):
            is_right, told = dimension == SPARSE, "a sparse one"
        else:
            is_right, told = row.vector.shape == (dimension,), f"one of shape {row.vector.shape}"
        if not is_right:
            msg = f"Collection {collection!r} holds {_held(dimension)}; row {row.key!r} has {told}."
            raise SchemaMismatchError(msg, store=store, collection=collection)


def _check_kind(vectors: Embeddings, *, is_sparse: bool) -> None:
    wrong = [one for one in vectors if isinstance(one, dict) != is_sparse]
    if wrong:
        kind, given = ("sparse", "dense") if is_sparse else ("dense", "sparse")
        msg = f"search() got a {given} vector, {wrong[0]!r:.60}; the vectors of this collection are {kind}."
        raise ConfigError(msg)


def _held(dimension: int) -> str:
    return "sparse vectors" if dimension == SPARSE else f"vectors of {dimension} numbers"


def _sparse(rows: Sequence[VectorRow]) -> list[SparseVector]:
    return [cast("SparseVector", row.vector) for row in rows]


def _stacked(rows: Sequence[VectorRow]) -> Matrix:
    return np.stack([cast("Vector", row.vector) for row in rows])
