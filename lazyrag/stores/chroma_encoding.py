"""Rows, fields and filters as Chroma has them."""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from lazyrag.data.fields import DataType, DocField, Schema, read_schema, schema_text
from lazyrag.data.filters import Condition, Filter
from lazyrag.errors import ConfigError
from lazyrag.stores.protocol import (
    LAYOUT,
    Pushed,
    VectorRow,
    VectorSchema,
    check_layout,
    has_type,
    join_parts,
    push_down,
)
from lazyrag.types import (
    AnyArray,
    Fields,
    FieldValue,
    JsonObject,
    Matrix,
    Metadata,
    Metric,
    Scalar,
    Vector,
)

_STORE = "chromadb"
_REST = "lr_rest"  # the metadata key of the rest of a row: JSON, never empty


# in a row's rest
_FIELDS = "fields"
_VECTOR = "vector"
_SCHEMA = "lazyrag"
_UNIT = 1e-6  # tolerance for the lengths of float32 vectors that were scaled to 1; seen: 2e-7


def unit_vectors(vectors: Matrix, metric: Metric) -> Matrix:
    """Vectors as Chroma's index stores them: under the cosine scaled to length 1, except those of
    length 0.

    Args:
        vectors: (n, dimension).
        metric: Of the collection.

    Returns:
        (n, dimension) float32.

    Example:
        >>> unit_vectors(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32), "cosine").tolist()
        [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    if metric != "cosine" or _are_units(vectors):
        return np.asarray(vectors, np.float32)
    exact = np.asarray(vectors, np.float64)
    largest = np.abs(exact).max(axis=1, keepdims=True, initial=0.0)
    # its squares are in range
    scaled = np.divide(exact, largest, out=np.zeros_like(exact), where=largest > 0)
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    units = np.divide(scaled, lengths, out=scaled, where=lengths > 0)
    unchanged = (np.abs(largest * lengths - 1.0) <= _UNIT) | (largest == 0)
    return np.where(unchanged, vectors, units).astype(np.float32)


def _are_units(vectors: Matrix) -> bool:
    """Whether all vectors have length 1, as most do."""
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))
    return bool((np.abs(lengths - 1.0) <= _UNIT).all())


def encode_rows(rows: Sequence[VectorRow], schema: VectorSchema) -> tuple[Matrix, list[JsonObject]]:
    """The vectors and the metadata of rows, whose vectors have the schema's dimension.

    Raises:
        ConfigError: If a number is not finite.
    """
    vectors = np.stack([cast("Vector", row.vector) for row in rows]).astype(np.float32)
    if not np.isfinite(vectors).all():
        raise ConfigError("Vectors to upsert must be finite; got one with nan or infinity.")
    units = unit_vectors(vectors, schema.metric)
    # the sign of a zero, too
    unchanged = (units.view(np.uint32) == vectors.view(np.uint32)).all(axis=1)
    # the rows of one file share their fields
    encoded: dict[int, tuple[JsonObject, JsonObject]] = {}
    metadata = []
    for row, vector, is_unchanged in zip(rows, vectors, unchanged.tolist(), strict=True):
        shared = encoded.get(id(row.fields))
        if shared is None:
            others = undecodable_fields(row.fields, schema.fields)
            shared = encode_fields(row.fields, schema.fields), {_FIELDS: others} if others else {}
            encoded[id(row.fields)] = shared
        values, rest = shared
        if not is_unchanged:
            rest = {**rest, _VECTOR: base64.b64encode(vector.astype("<f4").tobytes()).decode()}
        metadata.append({**values, _REST: json.dumps(rest) if rest else None})
    return units, metadata


def decode_rows(
    keys: Sequence[str],
    vectors: AnyArray,
    metadata: Sequence[Metadata | None],
    schema: Schema,
) -> list[VectorRow]:
    """The rows that `encode_rows` encoded."""
    rows = []
    for key, vector, values in zip(keys, np.asarray(vectors, np.float32), metadata, strict=True):
        original = _rest(values).get(_VECTOR)
        exact = vector
        if original is not None:
            exact = np.frombuffer(base64.b64decode(original), "<f4").astype(np.float32)
        rows.append(VectorRow(key, exact, decode_fields(values, schema)))
    return rows


def decode_fields(metadata: Metadata | None, schema: Schema) -> Fields:
    """The fields of a row; Chroma returns None for a row without metadata."""
    values = metadata or {}
    missing = values.get(_MISSING) or ()
    fields: dict[str, FieldValue] = {}
    for name, field in schema.items():
        value = values.get(_FIELD + name)
        if field.data_type is DataType.ARRAY:
            if value is None and name not in missing:
                fields[name] = ()
        elif value is not None and not isinstance(value, list):
            fields[name] = _decode_value(field.data_type, value)
    for name, other in _rest(metadata).get(_FIELDS, {}).items():
        fields[name] = tuple(other) if isinstance(other, list) else other
    return fields


def _rest(metadata: Metadata | None) -> JsonObject:
    text = None if metadata is None else metadata.get(_REST)
    return {} if text is None else json.loads(text)


def schema_metadata(schema: VectorSchema) -> dict[str, str]:
    """The metadata of a collection: equal for equal schemas.

    Example:
        >>> schema_metadata(VectorSchema(2, "l2", {}))
        {'lazyrag': '{"layout": 2, "dimension": 2, "metric": "l2", "fields": "{}"}'}
    """
    values = {"layout": LAYOUT, "dimension": schema.dimension, "metric": schema.metric}
    return {_SCHEMA: json.dumps({**values, "fields": schema_text(schema.fields)})}


def read_schema_metadata(metadata: Metadata | None, collection: str = "") -> VectorSchema | None:
    """The schema in a collection's metadata; None if lazyrag did not create it.

    Raises:
        SchemaMismatchError: If another version of lazyrag has written its rows.

    Example:
        >>> schema = VectorSchema(2, "l2", {})
        >>> read_schema_metadata(schema_metadata(schema)) == schema
        True
        >>> read_schema_metadata({"hnsw:space": "l2"})
    """
    if metadata is None or _SCHEMA not in metadata:
        return None
    values = json.loads(metadata[_SCHEMA])
    check_layout(values.get("layout", 1), "Chroma", _STORE, collection)
    return VectorSchema(values["dimension"], values["metric"], read_schema(values["fields"]))


_MISSING = "lr_missing"  # the metadata key of the names of a row's missing fields
_FIELD = "f_"  # prefix of the metadata key of a field's value
_FLOATS = (DataType.FLOAT, DataType.DOUBLE)
_OTHER_BITS = (1 << 63) - 1
_HEX = "'"  # prefix of texts that are not encoded as JSON


def encode_fields(fields: Fields, schema: Schema) -> JsonObject:
    """The metadata that filters read: a value for every field, None where Chroma shall store none.

    All keys are always there, as Chroma merges new metadata into a row's old ones, and a new row
    inherits lists of dropped collections for keys that it does not set (chroma-core/chroma#7594).

    Example:
        >>> schema = {"year": DocField(DataType.INT32), "author": DocField(DataType.VARCHAR)}
        >>> encode_fields({"year": 2002}, schema)
        {'lr_missing': ['author'], 'f_year': 2002, 'f_author': None}
    """
    missing: list[str] = []
    values: JsonObject = {_MISSING: missing}
    for name, field in schema.items():
        value = fields.get(name)
        if value is None:
            missing.append(name)
            values[_FIELD + name] = None
        elif isinstance(value, tuple):
            values[_FIELD + name] = [encode_value(field, element) for element in value] or None
        else:
            values[_FIELD + name] = encode_value(field, value)
    if not missing:
        values[_MISSING] = None
    return values


def undecodable_fields(fields: Fields, schema: Schema) -> dict[str, FieldValue]:
    """The fields that cannot be decoded from the output of `encode_fields`.

    Example:
        >>> schema = {"year": DocField(DataType.INT32), "size": DocField(DataType.DOUBLE)}
        >>> undecodable_fields({"year": 2002, "pages": 7, "size": -0.0}, schema)
        {'pages': 7, 'size': -0.0}
    """
    return {
        name: value for name, value in fields.items() if not _is_decodable(schema.get(name), value)
    }


def _is_decodable(field: DocField | None, value: FieldValue) -> bool:
    """Whether `_decode_value` returns the same value from what `encode_value` returns for it."""
    if field is None or value is None:
        return False
    if field.data_type is DataType.ARRAY:
        return value == ()  # Chroma does not promise the order of lists
    if field.data_type is DataType.DATE:
        return has_type(field, value) and dt.date.fromisoformat(str(value)).isoformat() == value
    return has_type(field, value)


def encode_value(field: DocField, value: Scalar) -> Scalar:
    r"""Encode a value for Chroma, in rows and in filters.

    Texts are only compared for equality there. As JSON they are ASCII, without control characters,
    and different texts stay different; those with half a surrogate pair, two of which JSON reads as
    one character, are hexadecimal. Days and floats become integers in the same order: Chroma does
    not order texts, and reads a quarter of all floats as one of their neighbours.

    Example:
        >>> encode_value(DocField(DataType.DATE), "2024-05-01")
        739007
        >>> encode_value(DocField(DataType.VARCHAR), "茶")
        '"\\u8336"'
    """
    data_type = field.element_type or field.data_type
    if isinstance(value, str):
        if data_type is DataType.DATE:
            return dt.date.fromisoformat(value).toordinal()
        return _encode_text(value)
    return _float_to_int(float(value)) if data_type in _FLOATS else value


def _decode_value(data_type: DataType, encoded: Any) -> Scalar:
    """The value that `encode_value` encoded; anything if it is not decodable."""
    if data_type is DataType.DATE:
        return dt.date.fromordinal(encoded).isoformat() if isinstance(encoded, int) else ""
    if data_type in _FLOATS:
        return _int_to_float(encoded) if isinstance(encoded, int) else 0.0
    if not isinstance(encoded, str):
        return cast("Scalar", encoded)
    if encoded.startswith(_HEX):
        return bytes.fromhex(encoded[1:]).decode("utf-8", "surrogatepass")
    return encoded[1:-1] if "\\" not in encoded else str(json.loads(encoded))


def _encode_text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        return _HEX + value.encode("utf-8", "surrogatepass").hex()
    return json.dumps(value)


def _float_to_int(value: float) -> int:
    """An integer of 64 bits for a float, in the order of floats; the same for -0.0 as for 0.0."""
    [bits] = struct.unpack(">q", struct.pack(">d", value + 0.0))
    return int(bits) if bits >= 0 else bits ^ _OTHER_BITS


def _int_to_float(ordered: int) -> float:
    bits = ordered if ordered >= 0 else ordered ^ _OTHER_BITS
    [value] = struct.unpack(">d", struct.pack(">q", bits))
    return float(value)


Where: TypeAlias = "JsonObject"
"""A filter as Chroma takes it: one key, which is a metadata key, ``$and`` or ``$or``."""
_COMPARISONS = {
    "eq": "$eq",
    "contains": "$contains",
    "gt": "$gt",
    "ge": "$gte",
    "lt": "$lt",
    "le": "$lte",
}
_OPPOSITES = {"$eq": "$ne", "$in": "$nin", "$contains": "$not_contains"}
_OPPOSITES |= {other: operator for operator, other in _OPPOSITES.items()}
_REVERSED = {"$gt": "$lte", "$gte": "$lt", "$lt": "$gte", "$lte": "$gt"}
_MAX_VALUES = 5_000
_MAX_PARTS = 200
_MAX_LEVELS = 12


def split_filter(filter: Filter | None, schema: Schema) -> Pushed[Where]:
    """Split a bound filter between Chroma and us; one that is too large for Chroma is evaluated
    here.

    Example:
        >>> split_filter(Condition("year", "gt", 2000), {"year": DocField(DataType.INT32)})
        Pushed(native={'f_year': {'$gt': 2000}}, rest=None)
    """
    pushed = push_down(filter, ChromaDialect(schema))
    if pushed.native is not None:
        levels, parts, values = _size(pushed.native)
        if levels > _MAX_LEVELS or parts > _MAX_PARTS or values > _MAX_VALUES:
            return Pushed(rest=filter)
    return pushed


def _size(where: Where) -> tuple[int, int, int]:
    """The numbers of levels, parts and values of a filter."""
    [(key, operands)] = where.items()
    if key not in ("$and", "$or"):
        [value] = operands.values()
        return 1, 1, len(value) if isinstance(value, list) else 1
    levels, parts, values = zip(*map(_size, operands), strict=True)
    return 1 + max(levels), 1 + sum(parts), sum(values)


@dataclass(frozen=True, slots=True)
class ChromaDialect:
    """Chroma's filter language as a `lazyrag.stores.protocol.Dialect`.

    It orders numbers only, so days are stored as numbers; it has no substrings and no whole arrays.

    Args:
        schema: Of the collection.

    Example:
        >>> ChromaDialect({"year": DocField(DataType.INT32)}).condition(Condition("year", "exists"))
        {'lr_missing': {'$not_contains': 'year'}}
    """

    schema: Schema

    def condition(self, condition: Condition) -> Where | None:
        """See `Dialect.condition`."""
        name = condition.field
        op = condition.op
        value = condition.value
        field = self.schema.get(name)
        if field is None:
            return None
        if op == "exists":
            return _is_missing(name, value is False)
        if op == "in":
            return self._in(name, field, value)
        if op == "eq" and value is None:
            return _is_missing(name, True)
        is_array = field.element_type is not None
        is_text = field.data_type is DataType.VARCHAR
        is_ordering = op not in ("eq", "contains")
        if op not in _COMPARISONS or is_array != (op == "contains") or (is_text and is_ordering):
            return None
        return {_FIELD + name: {_COMPARISONS[op]: encode_value(field, value)}}

    def all_of(self, parts: Sequence[Where]) -> Where:
        """See `Dialect.all_of`."""
        return {"$and": list(parts)}

    def any_of(self, parts: Sequence[Where]) -> Where:
        """See `Dialect.any_of`."""
        return {"$or": list(parts)}

    def negated(self, part: Where) -> Where:
        """See `Dialect.negated`: Chroma has no "not", but each of its operators has an opposite."""
        [(key, operands)] = part.items()
        if key in ("$and", "$or"):
            return {
                "$or" if key == "$and" else "$and": [self.negated(operand) for operand in operands]
            }
        [(op, value)] = operands.items()
        if op in _OPPOSITES:
            return {key: {_OPPOSITES[op]: value}}  # these also hold where the key is missing
        return self.any_of(
            [{key: {_REVERSED[op]: value}}, _is_missing(key.removeprefix(_FIELD), True)]
        )

    def never(self) -> Where:
        """See `Dialect.never`."""
        return {_REST: {"$eq": ""}}

    def _in(self, name: str, field: DocField, values: Sequence[Scalar | None]) -> Where:
        present = [encode_value(field, value) for value in values if value is not None]
        key = _FIELD + name
        parts = list[Where]()
        if field.element_type is not None:
            parts = [{key: {"$contains": value}} for value in present]
        elif present:
            parts = [{key: {"$in": present}}]
        if None in values:
            parts.append(_is_missing(name, True))
        return join_parts(parts, self.any_of) or self.never()


def _is_missing(name: str, is_missing: bool) -> Where:
    return {_MISSING: {"$contains" if is_missing else "$not_contains": name}}
