"""How rows lie in Milvus: keys and fields as texts that need no escaping, and what Milvus cannot rank set aside.

A collection has these columns:

- ``key``: the row's key as hexadecimal UTF-8, which sorts as the key does. The primary key.
- ``vector``: the vector, or a stand-in for a sparse one that Milvus refuses.
- ``row``: the fields as JSON; behind a line break the vector, where it has a stand-in.
- ``aside``: 1 for a row that Milvus does not rank as we do, else 0.
- ``f0``, ``f1``, ...: the fields in the order of their names, as `field_text` writes them.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lazyrag.data.fields import DataType, DocField, Schema
from lazyrag.errors import StoreError, UnsupportedError
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.stores.segment_rows import read_fields, schema_text
from lazyrag.typing import SPARSE, Embedding, Fields, FieldValue, Scalar, SparseVector

KEY, VECTOR, ROW, ASIDE = "key", "vector", "row", "aside"
READ = (KEY, VECTOR, ROW)
"""The columns that a row is made of again."""

MOST_BYTES = 65_535
"""Of a text in Milvus."""

LEAST_DIMENSION, MOST_DIMENSION = 2, 32_768
"""Of dense vectors, as Milvus documents it. Some versions take one number; Milvus Lite 2.5 fails at the index."""

CUT = 2048
"""Characters after which a field's column is cut off."""

MOST_COLUMNS = 48
"""Fields with a column of their own, of the 64 columns that Milvus allows; the others are left to us."""

_SMALLEST, _LARGEST = 2.0**-60, 2.0**60  # squares and products of such numbers are normal float32 numbers
_MOST_DIMENSION = 2**32 - 2  # of a sparse vector in Milvus
_STAND_IN: SparseVector = {0: 1.0}  # Milvus Lite refuses empty vectors and weights below 0
_SIGN = 1 << 63
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
            "dimension": self.schema.dimension,
            "metric": self.schema.metric,
            "fields": json.loads(schema_text(self.schema.fields)),
            "index_type": self.index_type,
            "index_params": dict(self.index_params),
        }
        return json.dumps({"lazyrag": told}, sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> Layout | None:
        """What a collection's own text says; None where it is not ours."""
        try:
            told = json.loads(text)["lazyrag"]
            fields = {
                name: DocField(DataType(kind), element and DataType(element), default, size)
                for name, (kind, element, default, size) in told["fields"].items()
            }
            schema = VectorSchema(told["dimension"], told["metric"], fields)
            return cls(schema, told["index_type"], told["index_params"])
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def columns_of(fields: Schema) -> dict[str, str]:
    """The columns of fields that have one, by the fields' names.

    Example:
        >>> columns_of({"year": DocField(DataType.INT32), "author": DocField(DataType.VARCHAR)})
        {'author': 'f0', 'year': 'f1'}
    """
    return {name: f"f{number}" for number, name in enumerate(sorted(fields)[:MOST_COLUMNS])}


def key_text(key: str) -> str:
    """A key as it lies in Milvus: digits and letters only, in the order of keys.

    Example:
        >>> key_text("a'")
        '6127'
    """
    return key.encode("utf-8", "surrogatepass").hex()


def key_of(text: str) -> str:
    """The key that `key_text` wrote.

    Example:
        >>> key_of("6127")
        "a'"
    """
    return bytes.fromhex(text).decode("utf-8", "surrogatepass")


def field_text(field: DocField, value: FieldValue) -> str:
    """A field's value as a text: equal for equal values, "" for a missing one, ordered as the values are.

    It holds digits, letters and full stops, so that nothing in it can be taken for anything else.

    Example:
        >>> field_text(DocField(DataType.INT32), -1) < field_text(DocField(DataType.INT32), 1)
        True
        >>> field_text(DocField(DataType.VARCHAR), '" or 1 == 1')
        's22206f722031203d3d2031'
    """
    if value is None:
        return ""
    if isinstance(value, tuple):
        return "a" + "".join(_scalar_text(field.element_type or field.data_type, one) + "." for one in value)
    return _scalar_text(field.data_type, value)


def _scalar_text(data_type: DataType, value: Scalar) -> str:
    if data_type is DataType.BOOLEAN:
        return "1" if value else "0"
    if data_type in (DataType.INT32, DataType.INT64):
        return f"{int(value) + _SIGN:016x}"
    if data_type in (DataType.FLOAT, DataType.DOUBLE):
        # The bits of positive numbers ascend with them, those of negative ones descend; adding 0.0 turns -0.0 into 0.0.
        [bits] = struct.unpack(">Q", struct.pack(">d", float(value) + 0.0))
        return f"{bits ^ (2 * _SIGN - 1) if bits & _SIGN else bits | _SIGN:016x}"
    return "s" + str(value).encode("utf-8", "surrogatepass").hex()


def row_values(row: VectorRow, schema: VectorSchema) -> dict[str, Any]:
    """A row, whose vector goes with the collection, as Milvus keeps it.

    Raises:
        StoreError: If its key or its fields are longer than Milvus's texts.
        UnsupportedError: If its vector is so long or short that float32 numbers cannot rank it.
    """
    is_aside = _is_aside(row, schema)
    vector, told = row.vector, _json(dict(row.fields))
    if isinstance(vector, dict) and is_aside:
        vector, told = _STAND_IN, f"{told}\n{_json([*vector.items()])}"
    key = key_text(row.key)
    for what, text in (("a key", key), ("fields", told)):
        size = len(text.encode())
        if size > MOST_BYTES:
            msg = (
                f"Row {row.key[:80]!r} has {what} of {size} bytes as Milvus keeps them; it takes at most {MOST_BYTES}. "
                "Shorten what the fields hold, or keep the vectors in another store."
            )
            raise StoreError(msg, store="milvus")
    values: dict[str, Any] = {KEY: key, VECTOR: vector, ROW: told, ASIDE: int(is_aside)}
    for name, column in columns_of(schema.fields).items():
        values[column] = field_text(schema.fields[name], row.fields.get(name))[:CUT]
    return values


def row_of(values: Mapping[str, Any], schema: VectorSchema) -> VectorRow:
    """The row that `row_values` wrote, equal to the first."""
    held = values[ROW].partition("\n")[2]
    vector: Embedding
    if schema.is_sparse:
        pairs = json.loads(held) if held else values[VECTOR].items()
        vector = {int(at): float(weight) for at, weight in pairs}
    else:
        vector = np.asarray(values[VECTOR], np.float32)
    return VectorRow(key_of(values[KEY]), vector, row_fields(values))


def row_fields(values: Mapping[str, Any]) -> Fields:
    """The fields of the row that `row_values` wrote."""
    return read_fields(values[ROW].partition("\n")[0])


def row_bytes(values: Mapping[str, Any]) -> int:
    """About how long a row of `row_values` is in a message."""
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


def _is_aside(row: VectorRow, schema: VectorSchema) -> bool:
    vector = row.vector
    if isinstance(vector, dict):
        return not vector or max(vector) > _MOST_DIMENSION or not all(map(_is_plain, vector.values()))
    length = _length(vector)
    if not length:
        return schema.metric == "cosine"  # Milvus 2.3 never finds it: its cosine is no number
    if not _is_plain(length):
        msg = (
            f"Row {row.key[:80]!r} has a vector of length {length:g}; Milvus computes with float32 numbers, and can "
            "rank those from 2**-60 to 2**60 (and 0). Scale the vectors, or keep them in the map store."
        )
        raise UnsupportedError(msg, store="milvus")
    return False


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
