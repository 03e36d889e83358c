"""Keys and values as texts for Milvus: digits, letters and full stops, in the order of what they stand for.

Nothing in such a text needs escaping, or can be taken for anything else. They are short where keys and values are what
they mostly are, as pymilvus looks at each character of a text by itself: most bytes of a name stand for themselves, and
an integer has as many digits as it needs.
"""

from __future__ import annotations

import re
import string
import struct
from typing import Final

from lazyrag.data.fields import DataType, DocField
from lazyrag.types import FieldValue, Scalar

CUT: Final = 2048
"""Characters after which a field's column is cut off."""

_SIGN = 1 << 63
_ORDERED = string.digits + string.ascii_uppercase + string.ascii_lowercase
_END = "Z"  # of an array's element; no code of a byte begins with it, and no other text has it
_EMPTY_ARRAY = "a"
_INTEGERS = (DataType.INT32, DataType.INT64)
_FLOATS = (DataType.FLOAT, DataType.DOUBLE)


def _code(byte: int) -> str:
    """What stands for a byte: itself, or two characters. The codes are ordered, and none begins another."""
    if chr(byte) in "0123456789abcdefghijklmnopqrstuvw":
        return chr(byte)
    if byte < ord("0"):
        return "." + _ORDERED[byte]
    if byte < ord("a"):
        return "A" + _ORDERED[byte - ord("9") - 1]
    lead, rest = divmod(byte - ord("x"), len(_ORDERED))
    return "xyz"[lead] + _ORDERED[rest]


_CODES = tuple(map(_code, range(256)))
_BYTES = {code: chr(byte) for byte, code in enumerate(_CODES)}
_TWO = re.compile("[.Axyz].")


def plain_text(text: str) -> str:
    """A text in digits, letters and full stops, in the order of texts.

    Example:
        >>> plain_text("author 7"), plain_text("茶")
        ('author.W7', 'yoxKy0')
    """
    return "".join([_CODES[byte] for byte in text.encode("utf-8", "surrogatepass")])


def read_text(plain: str) -> str:
    """The text that `plain_text` got.

    Example:
        >>> read_text("author.W7")
        'author 7'
    """
    held = _TWO.sub(lambda code: _BYTES[code[0]], plain)
    return held.encode("latin-1").decode("utf-8", "surrogatepass")


def field_text(field: DocField, value: FieldValue) -> str:
    """A field's value as a text: equal for equal values, "" for a missing one, ordered as the values are.

    Example:
        >>> field_text(DocField(DataType.INT32), -1) < field_text(DocField(DataType.INT32), 1)
        True
        >>> field_text(DocField(DataType.VARCHAR), '" or 1 == 1')
        's.Y.Wor.W1.WA3A3.W1'
    """
    if value is None:
        return ""
    if isinstance(value, tuple):
        kind = field.element_type or field.data_type
        return _EMPTY_ARRAY + "".join(_scalar_text(kind, one) + _END for one in value)
    return _scalar_text(field.data_type, value)


def is_told(field: DocField, value: FieldValue, text: str) -> bool:
    """Whether `field_value` makes the same value of the text that `field_text` made of it.

    Args:
        field: The field.
        value: Not None.
        text: All of it.
    """
    if field.data_type is DataType.ARRAY:
        return value == ()
    if field.data_type in _INTEGERS:
        return type(value) is int
    if field.data_type in _FLOATS:
        return type(value) is float and str(value) != "-0.0"
    if field.data_type is DataType.BOOLEAN:
        return type(value) is bool
    return type(value) is str and len(text) < CUT


def field_value(field: DocField, text: str) -> FieldValue:
    """The value that `field_text` got, or anything else where that is not told.

    Example:
        >>> field_value(DocField(DataType.VARCHAR), "sauthor.W7")
        'author 7'
    """
    if not text:
        return None
    if field.data_type is DataType.ARRAY:
        return ()
    if field.data_type in _INTEGERS:
        return _whole_number(text)
    if field.data_type in _FLOATS:
        return _float(int(text, 16))
    if field.data_type is DataType.BOOLEAN:
        return text == "1"
    return read_text(text[1:]) if len(text) < CUT else None


def _scalar_text(data_type: DataType, value: Scalar) -> str:
    if data_type is DataType.BOOLEAN:
        return "1" if value else "0"
    if data_type in _INTEGERS:
        return _whole_text(int(value))
    if data_type in _FLOATS:
        # The bits of positive numbers ascend with them, those of negative ones descend; adding 0.0 turns -0.0 into 0.0.
        [bits] = struct.unpack(">Q", struct.pack(">d", float(value) + 0.0))
        return f"{bits ^ (2 * _SIGN - 1) if bits & _SIGN else bits | _SIGN:016x}"
    return "s" + plain_text(str(value))


def _whole_text(number: int) -> str:
    """A letter for the sign and the number of digits, and hexadecimal digits, which count down below 0."""
    digits = f"{abs(number):x}"
    size = len(digits)
    if number >= 0:
        return chr(ord("a") + size) + digits
    return f"{chr(ord('Q') - size)}{16**size - 1 + number:0{size}x}"


def _whole_number(text: str) -> int:
    held, size = int(text[1:], 16), len(text) - 1
    return held if text >= "a" else held - 16**size + 1


def _float(ordered: int) -> float:
    bits = ordered ^ _SIGN if ordered & _SIGN else ordered ^ (2 * _SIGN - 1)
    [number] = struct.unpack(">d", struct.pack(">Q", bits))
    return float(number)
