"""Fields as Chroma keeps them: values that its filters look at, and what these do not tell.

Each field of the schema has its value under ``f_<field>``, and the names of those that are missing stand in a list:
without it a missing array would look like an empty one, and nothing could be said about what is not there. A row is
read from these values. What they do not tell lies beside them as JSON, which few rows have: fields that are not in the
schema, arrays, -0.0, values of another type than their field's.
"""

from __future__ import annotations

import datetime as dt
import json
import struct
from collections.abc import Mapping
from typing import Any, Final

from lazyrag.data.fields import DataType, DocField, Schema
from lazyrag.types import Fields, FieldValue, Scalar

MISSING: Final = "lr_missing"
"""The metadata key of the names of the fields that a row does not have."""

NATIVE: Final = "f_"
"""What the metadata key of a field's value begins with."""

_FLOATS = (DataType.FLOAT, DataType.DOUBLE)
_TOLD = {
    DataType.BOOLEAN: bool,
    DataType.INT32: int,
    DataType.INT64: int,
    DataType.FLOAT: float,
    DataType.DOUBLE: float,
    DataType.VARCHAR: str,
    DataType.DATE: str,
}
_OTHER_BITS = (1 << 63) - 1
_NO_UTF8 = "'"  # what the texts begin with that are not written as JSON


def native_values(fields: Fields, schema: Schema) -> dict[str, Any]:
    """What filters read of a row: a value for every field, None where Chroma is to have none.

    All keys are always named, as Chroma merges what it is given into what a row has.

    Args:
        fields: Of the row.
        schema: Of the collection.

    Example:
        >>> native_values({"year": 2002}, {"year": DocField(DataType.INT32), "author": DocField(DataType.VARCHAR)})
        {'lr_missing': ['author'], 'f_year': 2002, 'f_author': None}
    """
    missing: list[str] = []
    values: dict[str, Any] = {MISSING: missing}
    for name, field in schema.items():
        value = fields.get(name)
        if value is None:
            missing.append(name)
            values[NATIVE + name] = None
        elif isinstance(value, tuple):
            values[NATIVE + name] = [native_value(field, one) for one in value] or None
        else:
            values[NATIVE + name] = native_value(field, value)
    if not missing:
        values[MISSING] = None
    return values


def untold(fields: Fields, schema: Schema) -> dict[str, FieldValue]:
    """Those fields of a row that `told` does not make of its native values.

    Args:
        fields: Of the row.
        schema: Of the collection.

    Example:
        >>> untold({"year": 2002, "pages": 7, "size": -0.0},
        ...        {"year": DocField(DataType.INT32), "size": DocField(DataType.DOUBLE)})
        {'pages': 7, 'size': -0.0}
    """
    return {name: value for name, value in fields.items() if not _is_told(schema.get(name), value)}


def told(values: Mapping[str, Any], schema: Schema) -> dict[str, FieldValue]:
    """The fields that `native_values` tells, but for those that are `untold`.

    Args:
        values: The metadata of a row.
        schema: Of the collection.

    Example:
        >>> schema = {"day": DocField(DataType.DATE), "size": DocField(DataType.DOUBLE)}
        >>> told(native_values({"day": "2024-05-01", "size": -0.1}, schema), schema)
        {'day': '2024-05-01', 'size': -0.1}
    """
    missing = values.get(MISSING) or ()
    found: dict[str, FieldValue] = {}
    for name, field in schema.items():
        held = values.get(NATIVE + name)
        if field.data_type is DataType.ARRAY:
            if held is None and name not in missing:
                found[name] = ()
        elif held is not None and not isinstance(held, list):
            found[name] = _read(field.data_type, held)
    return found


def native_value(field: DocField, value: Scalar) -> Scalar:
    r"""A value as Chroma gets it, in rows and in filters: the one place where values are written in its language.

    Texts are only ever compared for equality there. As JSON they are ASCII, without control characters, and different
    texts stay different; those with half a surrogate pair, two of which JSON takes for one character, are hexadecimal.
    Days and floats become integers, which have their order: Chroma orders no texts, and it reads a quarter of all
    floats as one of their neighbours.

    Example:
        >>> native_value(DocField(DataType.DATE), "2024-05-01"), native_value(DocField(DataType.VARCHAR), "茶")
        (739007, '"\\u8336"')
    """
    data_type = field.element_type or field.data_type
    if isinstance(value, str):
        return dt.date.fromisoformat(value).toordinal() if data_type is DataType.DATE else _text(value)
    return _ordered(float(value)) if data_type in _FLOATS else value


def _read(data_type: DataType, held: Any) -> Scalar:
    """The value that `native_value` wrote; anything for one that is untold."""
    if data_type is DataType.DATE:
        return dt.date.fromordinal(held).isoformat() if isinstance(held, int) else ""
    if data_type in _FLOATS:
        return _float(held) if isinstance(held, int) else 0.0
    if not isinstance(held, str):
        value: Scalar = held
        return value
    if held.startswith(_NO_UTF8):
        return bytes.fromhex(held[1:]).decode("utf-8", "surrogatepass")
    return held[1:-1] if "\\" not in held else str(json.loads(held))


def _is_told(field: DocField | None, value: FieldValue) -> bool:
    """Whether `_read` makes the same of what `native_value` makes of it."""
    if field is None or value is None:
        return False
    if field.data_type is DataType.ARRAY:
        return value == ()  # nobody says that Chroma keeps the order of lists
    if type(value) is not _TOLD[field.data_type]:
        return False
    if field.data_type is DataType.DATE:
        return dt.date.fromisoformat(str(value)).isoformat() == value
    return value != 0 or str(value) != "-0.0"


def _text(value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return _NO_UTF8 + value.encode("utf-8", "surrogatepass").hex()
    return json.dumps(value)


def _ordered(number: float) -> int:
    """An integer of 64 bits for a float, in the order of floats; the same for -0.0 as for 0.0."""
    [bits] = struct.unpack(">q", struct.pack(">d", number + 0.0))
    return int(bits) if bits >= 0 else bits ^ _OTHER_BITS


def _float(ordered: int) -> float:
    """The float that `_ordered` got."""
    [number] = struct.unpack(">d", struct.pack(">q", ordered if ordered >= 0 else ordered ^ _OTHER_BITS))
    return float(number)
