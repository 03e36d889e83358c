"""Rows as Chroma keeps them, and back: nothing is lost that its own metadata and vectors would lose."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np

from lazyrag.data.fields import Schema
from lazyrag.errors import ConfigError
from lazyrag.stores.chroma_filters import ROW, native_values
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.stores.segment_rows import read_schema, schema_text
from lazyrag.typing import Fields, Matrix, Metric, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

Space: TypeAlias = Literal["ip", "l2"]
"""What Chroma measures distances by."""

_VECTOR = "lr_vector"
_SCHEMA = "lazyrag"
_UNIT = 1e-6  # by which lengths of float32 vectors that were made one unit long may differ from that; seen: 2e-7


def space_of(metric: Metric) -> Space:
    """What Chroma measures by where we rank by a metric.

    Its own cosine does not give back the vectors that it was given: it divides them by their lengths, and so do
    embedders, so that only some last bits change. The inner product of unit vectors is the same, and gives them back.

    Example:
        >>> space_of("cosine"), space_of("l2")
        ('ip', 'l2')
    """
    return "l2" if metric == "l2" else "ip"


def placed(vectors: Matrix, metric: Metric) -> Matrix:
    """Vectors as they stand in Chroma's index, or as its index is asked for them.

    Args:
        vectors: (n, dimension).
        metric: Of the collection.

    Returns:
        (n, dimension) float32: under the cosine of length 1, those of no length apart.

    Example:
        >>> placed(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32), "cosine").tolist()
        [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    if metric != "cosine":
        return np.asarray(vectors, np.float32)
    exact = np.asarray(vectors, np.float64)
    largest = np.abs(exact).max(axis=1, keepdims=True, initial=0.0)
    scaled = np.divide(exact, largest, out=np.zeros_like(exact), where=largest > 0)  # its squares are in range
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    units = np.divide(scaled, lengths, out=scaled, where=lengths > 0)
    stays = (np.abs(largest * lengths - 1.0) <= _UNIT) | (largest == 0)
    return np.where(stays, vectors, units).astype(np.float32)


def written(rows: Sequence[VectorRow], schema: VectorSchema) -> tuple[Matrix, list[dict[str, Any]]]:
    """The vectors and the metadata of rows, which have vectors of the schema's dimension.

    Raises:
        ConfigError: If a number is not finite.
    """
    vectors = np.stack([cast("Vector", row.vector) for row in rows]).astype(np.float32)
    if not np.isfinite(vectors).all():
        raise ConfigError("upsert() got a vector with nan or infinity in it; every number must be finite.")
    units = placed(vectors, schema.metric)
    is_kept = (units.view(np.uint32) == vectors.view(np.uint32)).all(axis=1)  # the sign of a zero, too
    by_object: dict[int, dict[str, Any]] = {}  # the rows of one file share their fields
    metadata = []
    for row, vector, is_whole in zip(rows, vectors, is_kept, strict=True):
        shared = by_object.get(id(row.fields))
        if shared is None:
            shared = by_object[id(row.fields)] = _metadata(row.fields, schema.fields)
        text = None if is_whole else base64.b64encode(vector.astype("<f4").tobytes()).decode()
        metadata.append({**shared, _VECTOR: text})
    return units, metadata


def read(keys: Sequence[str], vectors: NDArray[Any], metadata: Sequence[Mapping[str, Any]]) -> list[VectorRow]:
    """The rows of which `written` made vectors and metadata."""
    fields: dict[str, Fields] = {}
    rows = []
    for key, vector, held in zip(keys, np.asarray(vectors, np.float32), metadata, strict=True):
        text = held[ROW]
        if text not in fields:
            fields[text] = read_fields(held)
        kept = held.get(_VECTOR)
        whole = vector if kept is None else np.frombuffer(base64.b64decode(kept), "<f4").astype(np.float32)
        rows.append(VectorRow(key, whole, fields[text]))
    return rows


def read_fields(metadata: Mapping[str, Any]) -> Fields:
    """The fields of a row."""
    held = json.loads(metadata[ROW])
    return {name: tuple(value) if isinstance(value, list) else value for name, value in held.items()}


def schema_metadata(schema: VectorSchema) -> dict[str, str]:
    """What a collection says of itself: the same for equal schemas.

    Example:
        >>> schema_metadata(VectorSchema(2, "l2", {}))
        {'lazyrag': '{"dimension": 2, "metric": "l2", "fields": "{}"}'}
    """
    told = {"dimension": schema.dimension, "metric": schema.metric, "fields": schema_text(schema.fields)}
    return {_SCHEMA: json.dumps(told)}


def kept_schema(metadata: Mapping[str, Any] | None) -> VectorSchema | None:
    """The schema of a collection; None if it is none of ours.

    Example:
        >>> schema = VectorSchema(2, "l2", {})
        >>> kept_schema(schema_metadata(schema)) == schema, kept_schema({"hnsw:space": "l2"})
        (True, None)
    """
    if metadata is None or _SCHEMA not in metadata:
        return None
    told = json.loads(metadata[_SCHEMA])
    return VectorSchema(told["dimension"], told["metric"], read_schema(told["fields"]))


def _metadata(fields: Fields, schema: Schema) -> dict[str, Any]:
    return {ROW: json.dumps(dict(fields)), **native_values(fields, schema)}
