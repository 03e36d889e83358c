"""How rows lie in Milvus: keys and fields as texts that need no escaping, and what Milvus cannot rank set aside.

A collection has these columns:

- ``key``: the row's key as `plain_text` writes it, which sorts as the key does. The primary key.
- ``vector``: the vector, or a stand-in for a sparse one that Milvus refuses.
- ``f0``, ``f1``, ...: the fields in the order of their names, as `field_text` writes them.
- ``row``: what these do not tell. "" for most rows; else "1" for a row that Milvus does not rank as we do, or "0", and
  a JSON list of other fields and of the pairs of a sparse vector that has a stand-in.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from lazyrag.data.fields import DataType, DocField, Schema
from lazyrag.data.segment import ReadOnly
from lazyrag.errors import SchemaMismatchError, StoreError, UnsupportedError
from lazyrag.stores.milvus_texts import CUT, field_text, field_value, is_told, plain_text, read_text
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.stores.segment_rows import schema_text
from lazyrag.types import SPARSE, Embedding, Fields, FieldValue, SparseVector, Vector

KEY, VECTOR, ROW = "key", "vector", "row"

LAYOUT = 2
"""Of what rows consist; other versions of lazyrag have others."""

MOST_BYTES = 65_535
"""Of a text in Milvus."""

LEAST_DIMENSION, MOST_DIMENSION = 2, 32_768
"""Of dense vectors, as Milvus documents it. Some versions take one number; Milvus Lite 2.5 fails at the index."""

MOST_COLUMNS = 48
"""Fields with a column of their own, of the 64 columns that Milvus allows; the others are left to us."""

_RANKED, _ASIDE = "0", "1"  # what a row's own column begins with
_SMALLEST, _LARGEST = 2.0**-60, 2.0**60  # squares and products of such numbers are normal float32 numbers
_MOST_DIMENSION = 2**32 - 2  # of a sparse vector in Milvus
_STAND_IN: SparseVector = {0: 1.0}  # Milvus Lite refuses empty vectors and weights below 0
_WINDOW = 16_384  # rows of one answer: Milvus's own limit
_ANSWER_BYTES = 32 * 2**20
_TYPICAL_SPARSE = 4096
_TYPICAL_ROW = 1024


@dataclass(frozen=True, slots=True)
class Layout:
    """What a collection was made with, and keeps as a text of its own.

    Args:
        schema: What was asked for, but for the embed key.
        index_type: Milvus's name of the index over the vectors.
        index_params: What it was built with.

    Example:
        >>> layout = Layout(VectorSchema(2, "cosine", {"year": DocField(DataType.INT32)}), "FLAT", {})
        >>> Layout.parse(layout.text) == layout
        True
    """

    schema: VectorSchema
    index_type: str
    index_params: Mapping[str, Any]

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the fields, by the fields' names."""
        return columns_of(self.schema.fields)

    @property
    def text(self) -> str:
        """All of it as JSON: the same for equal layouts."""
        told = {
            "layout": LAYOUT,
            "dimension": self.schema.dimension,
            "metric": self.schema.metric,
            "fields": json.loads(schema_text(self.schema.fields)),
            "index_type": self.index_type,
            "index_params": dict(self.index_params),
        }
        return json.dumps({"lazyrag": told}, sort_keys=True)

    @classmethod
    def parse(cls, text: str, collection: str = "") -> Layout | None:
        """What a collection's own text says; None where it is not ours.

        Args:
            text: The collection's.
            collection: Its name, for messages.

        Raises:
            SchemaMismatchError: If its rows are laid out as another version of lazyrag does.
        """
        try:
            told = json.loads(text)["lazyrag"]
            number = told.get("layout", 1)
            fields = {
                name: DocField(DataType(kind), element and DataType(element), default, size)
                for name, (kind, element, default, size) in told["fields"].items()
            }
            schema = VectorSchema(told["dimension"], told["metric"], fields)
            found = cls(schema, told["index_type"], told["index_params"])
        except (ValueError, TypeError, KeyError, AttributeError):
            return None
        if number != LAYOUT:
            msg = (
                f"Collection {collection!r} in Milvus has rows of layout {number}, written by another version of "
                f"lazyrag; this one reads {LAYOUT}. Drop it and read the files again, or use the version that wrote it."
            )
            raise SchemaMismatchError(msg, store="milvus", collection=collection)
        return found


def columns_of(fields: Schema) -> dict[str, str]:
    """The columns of fields that have one, by the fields' names.

    Example:
        >>> columns_of({"year": DocField(DataType.INT32), "author": DocField(DataType.VARCHAR)})
        {'author': 'f0', 'year': 'f1'}
    """
    return {name: f"f{number}" for number, name in enumerate(sorted(fields)[:MOST_COLUMNS])}


def field_columns(fields: Schema) -> tuple[str, ...]:
    """The columns that the fields of a row are made of again."""
    return (ROW, *columns_of(fields).values())


def row_columns(fields: Schema) -> tuple[str, ...]:
    """The columns that a row is made of again."""
    return (KEY, VECTOR, *field_columns(fields))


def written(rows: Sequence[VectorRow], schema: VectorSchema) -> list[dict[str, Any]]:
    """Rows, whose vectors go with the collection, as Milvus keeps them.

    Raises:
        StoreError: If a key or fields are longer than Milvus's texts.
        UnsupportedError: If a vector is so long or short that float32 numbers cannot rank it.
    """
    columns = [(name, column, schema.fields[name]) for name, column in columns_of(schema.fields).items()]
    by_object: dict[int, tuple[dict[str, str], Fields]] = {}  # the rows of one file share their fields
    found = []
    for row, is_aside in zip(rows, _are_aside(rows, schema), strict=True):
        shared = by_object.get(id(row.fields))
        if shared is None:
            shared = by_object[id(row.fields)] = _told_and_others(row.fields, columns)
        told, others = shared
        vector, pairs = row.vector, list[tuple[int, float]]()
        if isinstance(vector, dict) and is_aside:
            vector, pairs = _STAND_IN, [*vector.items()]
        values = {KEY: plain_text(row.key), VECTOR: vector, ROW: "", **told}
        if others or is_aside:
            values[ROW] = (_ASIDE if is_aside else _RANKED) + _json([others, pairs])
        _check_sizes(row.key, values)
        found.append(values)
    return found


def _told_and_others(fields: Fields, columns: Sequence[tuple[str, str, DocField]]) -> tuple[dict[str, str], Fields]:
    """The fields' columns, and those fields that they do not tell."""
    told, others, seen = dict[str, str](), dict[str, FieldValue](), 0
    for name, column, field in columns:
        value = fields.get(name)
        text = field_text(field, value)
        if value is not None and is_told(field, value, text):
            told[column] = text
            seen += 1
        else:
            told[column] = text[:CUT]
            if name in fields:
                others[name] = value
                seen += 1
    if seen < len(fields):
        known = {name for name, _, _ in columns}
        others |= {name: value for name, value in fields.items() if name not in known}
    return told, others


def _check_sizes(key: str, values: Mapping[str, Any]) -> None:
    for what, text in (("a key", values[KEY]), ("fields", values[ROW])):
        if 4 * len(text) > MOST_BYTES and (size := len(text.encode())) > MOST_BYTES:
            msg = (
                f"Row {key[:80]!r} has {what} of {size} bytes as Milvus keeps them; it takes at most {MOST_BYTES}. "
                "Shorten what the fields hold, or keep the vectors in another store."
            )
            raise StoreError(msg, store="milvus")


def row_of(values: Mapping[str, Any], schema: VectorSchema) -> VectorRow:
    """The row that `written` wrote, equal to the first."""
    vector: Embedding
    if schema.is_sparse:
        is_aside = values[ROW].startswith(_ASIDE)
        pairs = _rest(values)[1] if is_aside else values[VECTOR].items()
        vector = {int(at): float(weight) for at, weight in pairs}
    else:
        vector = np.asarray(values[VECTOR], np.float32)
    return VectorRow(read_text(values[KEY]), vector, row_fields(values, schema.fields))


def row_fields(values: Mapping[str, Any], fields: Schema) -> Fields:
    """The fields of the row that `written` wrote in a collection with those fields."""
    found: dict[str, FieldValue] = {}
    for name, column in columns_of(fields).items():
        value = field_value(fields[name], values[column])
        if value is not None:
            found[name] = value
    for name, other in _rest(values)[0].items():
        found[name] = tuple(other) if isinstance(other, list) else other
    return ReadOnly(found)


def _rest(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """What stands in a row's own column: other fields, and the pairs of a sparse vector."""
    text = values[ROW]
    if not text:
        return {}, []
    others, pairs = json.loads(text[1:])
    return others, pairs


def row_bytes(values: Mapping[str, Any]) -> int:
    """About how long a row of `written` is in a message."""
    vector = values[VECTOR]
    size = 8 * len(vector) if isinstance(vector, dict) else 4 * len(vector)
    return size + sum(len(value) for value in values.values() if isinstance(value, str))


def plain_query(query: Embedding, schema: VectorSchema) -> Embedding | None:
    """What to ask Milvus for: it ranks all rows that are not aside as we do. None where there is no such thing."""
    if isinstance(query, dict):
        # Rows that have other dimensions are aside.
        known = {at: weight for at, weight in query.items() if at <= _MOST_DIMENSION}
        return known if all(map(_is_plain, known.values())) else None
    return query if _is_plain(_length(query)) or (schema.metric != "cosine" and not query.any()) else None


def _are_aside(rows: Sequence[VectorRow], schema: VectorSchema) -> list[bool]:
    """Of each row, whether Milvus does not rank it as we do."""
    if schema.is_sparse:
        return [_is_odd(cast("SparseVector", row.vector)) for row in rows]
    vectors = np.stack([cast("Vector", row.vector) for row in rows])
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)).tolist()
    for row, length in zip(rows, lengths, strict=True):
        if length and not _is_plain(length):
            msg = (
                f"Row {row.key[:80]!r} has a vector of length {length:g}; Milvus computes with float32 numbers, and "
                "can rank those from 2**-60 to 2**60 (and 0). Scale the vectors, or keep them in the map store."
            )
            raise UnsupportedError(msg, store="milvus")
    # Milvus 2.3 never finds one without length by the cosine, which is no number there.
    return [schema.metric == "cosine" and not length for length in lengths]


def _is_odd(vector: SparseVector) -> bool:
    return not vector or max(vector) > _MOST_DIMENSION or not all(map(_is_plain, vector.values()))


def _is_plain(number: float) -> bool:
    return _SMALLEST <= number <= _LARGEST


def _length(vector: Any) -> float:
    return math.sqrt(float(np.square(vector, dtype=np.float64).sum()))


def _json(told: Any) -> str:
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which no message can hold
        return json.dumps(told, separators=(",", ":"))
    return text


def window_of(schema: VectorSchema) -> int:
    """How many rows one answer may hold, at least 1: what Milvus allows, and what messages carry."""
    vector = _TYPICAL_SPARSE if schema.dimension == SPARSE else 4 * schema.dimension
    return max(1, min(_WINDOW, _ANSWER_BYTES // (vector + _TYPICAL_ROW)))
