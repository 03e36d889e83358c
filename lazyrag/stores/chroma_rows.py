"""Rows as Chroma keeps them, and back: nothing is lost that its own metadata and vectors would lose."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np

from lazyrag.data.fields import Schema
from lazyrag.errors import ConfigError, SchemaMismatchError
from lazyrag.stores.chroma_client import STORE
from lazyrag.stores.chroma_fields import native_values, told, untold
from lazyrag.stores.chroma_filters import REST
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.stores.segment_rows import read_schema, schema_text
from lazyrag.types import Fields, Matrix, Metric, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

Space: TypeAlias = Literal["ip", "l2"]
"""What Chroma measures distances by."""

_FIELDS, _VECTOR = "fields", "vector"  # in a row's rest
_SCHEMA = "lazyrag"
_LAYOUT = 2  # of what rows consist
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
    if metric != "cosine" or _are_units(vectors):
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
    by_object: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}  # the rows of one file share their fields
    metadata = []
    for row, vector, is_whole in zip(rows, vectors, is_kept.tolist(), strict=True):
        shared = by_object.get(id(row.fields))
        if shared is None:
            shared = by_object[id(row.fields)] = _metadata(row.fields, schema.fields)
        values, rest = shared
        if not is_whole:
            rest = {**rest, _VECTOR: base64.b64encode(vector.astype("<f4").tobytes()).decode()}
        metadata.append({**values, REST: json.dumps(rest) if rest else None})
    return units, metadata


def read(
    keys: Sequence[str], vectors: NDArray[Any], metadata: Sequence[Mapping[str, Any]], schema: Schema
) -> list[VectorRow]:
    """The rows of which `written` made vectors and metadata, in a collection whose fields are given."""
    rows = []
    for key, vector, held in zip(keys, np.asarray(vectors, np.float32), metadata, strict=True):
        kept = _rest(held).get(_VECTOR)
        whole = vector if kept is None else np.frombuffer(base64.b64decode(kept), "<f4").astype(np.float32)
        rows.append(VectorRow(key, whole, read_fields(held, schema)))
    return rows


def read_fields(metadata: Mapping[str, Any] | None, schema: Schema) -> Fields:
    """The fields of a row in a collection whose fields are given. Chroma says None of a row without any metadata."""
    held = metadata or {}
    others = _rest(metadata).get(_FIELDS, {})
    return told(held, schema) | {
        name: tuple(value) if isinstance(value, list) else value for name, value in others.items()
    }


def schema_metadata(schema: VectorSchema) -> dict[str, str]:
    """What a collection says of itself: the same for equal schemas.

    Example:
        >>> schema_metadata(VectorSchema(2, "l2", {}))
        {'lazyrag': '{"layout": 2, "dimension": 2, "metric": "l2", "fields": "{}"}'}
    """
    said = {"layout": _LAYOUT, "dimension": schema.dimension, "metric": schema.metric}
    return {_SCHEMA: json.dumps({**said, "fields": schema_text(schema.fields)})}


def kept_schema(metadata: Mapping[str, Any] | None, collection: str = "") -> VectorSchema | None:
    """The schema of a collection; None if it is none of ours.

    Args:
        metadata: The collection's own.
        collection: Its name, for messages.

    Raises:
        SchemaMismatchError: If its rows are laid out as another version of lazyrag does.

    Example:
        >>> schema = VectorSchema(2, "l2", {})
        >>> kept_schema(schema_metadata(schema)) == schema, kept_schema({"hnsw:space": "l2"})
        (True, None)
    """
    if metadata is None or _SCHEMA not in metadata:
        return None
    said = json.loads(metadata[_SCHEMA])
    layout = said.get("layout", 1)
    if layout != _LAYOUT:
        msg = (
            f"Collection {collection!r} in Chroma has rows of layout {layout}, written by another version of lazyrag; "
            f"this one reads {_LAYOUT}. Drop it and read the files again, or use the version that wrote it."
        )
        raise SchemaMismatchError(msg, store=STORE, collection=collection)
    return VectorSchema(said["dimension"], said["metric"], read_schema(said["fields"]))


def _metadata(fields: Fields, schema: Schema) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of fields for filters, and what they do not tell."""
    others = untold(fields, schema)
    return native_values(fields, schema), {_FIELDS: others} if others else {}


def _rest(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    text = None if metadata is None else metadata.get(REST)
    return {} if text is None else cast("dict[str, Any]", json.loads(text))


def _are_units(vectors: Matrix) -> bool:
    """Whether all vectors are one unit long, which they mostly are."""
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))
    return bool((np.abs(lengths - 1.0) <= _UNIT).all())
