"""Rows, fields and filters as Milvus has them."""

from __future__ import annotations

import json
import math
import re
import string
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from lazyrag.data.fields import DataType, DocField, Schema, read_schema, schema_text
from lazyrag.data.filters import Condition, Filter
from lazyrag.data.segment import EMPTY, ReadOnly
from lazyrag.errors import StoreError, UnsupportedError
from lazyrag.stores.protocol import (
    LAYOUT,
    Pushed,
    VectorRow,
    VectorSchema,
    check_layout,
    has_type,
    push_down,
)
from lazyrag.types import (
    SPARSE,
    Embedding,
    Fields,
    FieldValue,
    JsonMapping,
    JsonObject,
    Keywords,
    Scalar,
    SparseVector,
    Vector,
)

CUT: Final = 2048
"""Length in characters to which the texts of fields are cut."""
_SIGN = 1 << 63
_ALL_BITS = 2 * _SIGN - 1
_ORDERED = string.digits + string.ascii_uppercase + string.ascii_lowercase
_END = "Z"  # of an array's element; no code of a byte begins with it, and no other text has it
_EMPTY_ARRAY = "a"
_INTEGERS = (DataType.INT32, DataType.INT64)
_FLOATS = (DataType.FLOAT, DataType.DOUBLE)


def _code(byte: int) -> str:
    """The code of a byte: itself, or two characters. Codes are ordered, and none is a prefix of
    another.
    """
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


def encode_text(text: str) -> str:
    """Encode a text as digits, letters and full stops, in the order of texts.

    Example:
        >>> encode_text("author 7"), encode_text("茶")
        ('author.W7', 'yoxKy0')
    """
    return "".join([_CODES[byte] for byte in text.encode("utf-8", "surrogatepass")])


def decode_text(encoded: str) -> str:
    """Decode a text from `encode_text`.

    Example:
        >>> decode_text("author.W7")
        'author 7'
    """
    text = _TWO.sub(lambda code: _BYTES[code[0]], encoded)
    return text.encode("latin-1").decode("utf-8", "surrogatepass")


def encode_field(field: DocField, value: FieldValue) -> str:
    """Encode a field's value: "" for a missing one; equal values give equal texts, in the order of
    values.

    Example:
        >>> encode_field(DocField(DataType.INT32), -1) < encode_field(DocField(DataType.INT32), 1)
        True
        >>> encode_field(DocField(DataType.VARCHAR), '" or 1 == 1')
        's.Y.Wor.W1.WA3A3.W1'
    """
    if value is None:
        return ""
    if isinstance(value, tuple):
        kind = field.element_type or field.data_type
        return _EMPTY_ARRAY + "".join(_encode_scalar(kind, element) + _END for element in value)
    return _encode_scalar(field.data_type, value)


def _encode_scalar(data_type: DataType, value: Scalar) -> str:
    if data_type is DataType.BOOLEAN:
        return "1" if value else "0"
    if data_type in _INTEGERS:
        return _encode_integer(int(value))
    if data_type in _FLOATS:
        # The bits of positive numbers ascend with them, those of negative ones descend; adding 0.0
        # turns -0.0 into 0.0.
        [bits] = struct.unpack(">Q", struct.pack(">d", float(value) + 0.0))
        ordered = bits ^ _ALL_BITS if bits & _SIGN else bits | _SIGN
        return f"{ordered:016x}"
    return "s" + encode_text(str(value))


def _encode_integer(value: int) -> str:
    """A letter for the sign and the number of digits, and hexadecimal digits, which count down
    below 0.
    """
    digits = f"{abs(value):x}"
    size = len(digits)
    if value >= 0:
        return chr(ord("a") + size) + digits
    return f"{chr(ord('Q') - size)}{16**size - 1 + value:0{size}x}"


def is_decodable(field: DocField, value: FieldValue, text: str) -> bool:
    """Whether `decode_field` returns the same value from its uncut text.

    Args:
        field: The field.
        value: Not None.
        text: From `encode_field`.
    """
    if field.data_type is DataType.ARRAY:
        return value == ()
    return has_type(field, value) and len(text) < CUT


def decode_field(field: DocField, text: str) -> FieldValue:
    """Decode a field's value from `encode_field`; any value where it is not decodable.

    Example:
        >>> decode_field(DocField(DataType.VARCHAR), "sauthor.W7")
        'author 7'
    """
    if not text:
        return None
    if field.data_type is DataType.ARRAY:
        return ()
    if field.data_type in _INTEGERS:
        value = int(text[1:], 16)
        size = len(text) - 1
        return value if text >= "a" else value - 16**size + 1
    if field.data_type in _FLOATS:
        ordered = int(text, 16)
        bits = ordered ^ _SIGN if ordered & _SIGN else ordered ^ _ALL_BITS
        [number] = struct.unpack(">d", struct.pack(">Q", bits))
        return float(number)
    if field.data_type is DataType.BOOLEAN:
        return text == "1"
    return decode_text(text[1:]) if len(text) < CUT else None


KEY = "key"
VECTOR = "vector"
ROW = "row"
MAX_BYTES = 65_535
"""Length of a text in Milvus."""
MAX_COLUMNS = 48
"""Fields with a column of their own, of the 64 columns that Milvus allows; conditions on others are
evaluated here."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The schema and the index of a collection, which it stores as a text.

    Args:
        schema: Its schema, without the embed key.
        index_type: Milvus's name of the index over the vectors.
        index_params: Parameters that it was built with.

    Example:
        >>> schema = VectorSchema(2, "cosine", {"year": DocField(DataType.INT32)})
        >>> layout = Layout(schema, "FLAT", {})
        >>> Layout.parse(layout.text) == layout
        True
    """

    schema: VectorSchema
    index_type: str
    index_params: Keywords

    @property
    def text(self) -> str:
        """The layout as JSON: the same for equal layouts."""
        values = {
            "layout": LAYOUT,
            "dimension": self.schema.dimension,
            "metric": self.schema.metric,
            "fields": json.loads(schema_text(self.schema.fields)),
            "index_type": self.index_type,
            "index_params": dict(self.index_params),
        }
        return json.dumps({"lazyrag": values}, sort_keys=True)

    @classmethod
    def parse(cls, text: str, collection: str = "") -> Layout | None:
        """Read the text of a collection; None if lazyrag did not write it.

        Raises:
            SchemaMismatchError: If another version of lazyrag has written its rows.
        """
        try:
            values = json.loads(text)["lazyrag"]
            version = values.get("layout", 1)
            schema = VectorSchema(
                values["dimension"], values["metric"], read_schema(json.dumps(values["fields"]))
            )
            layout = cls(schema, values["index_type"], values["index_params"])
        except (ValueError, TypeError, KeyError, AttributeError):
            return None
        check_layout(version, "Milvus", "milvus", collection)
        return layout


def columns_of(fields: Schema) -> dict[str, str]:
    """The columns of the fields that have one, by the fields' names.

    Example:
        >>> columns_of({"year": DocField(DataType.INT32), "author": DocField(DataType.VARCHAR)})
        {'author': 'f0', 'year': 'f1'}
    """
    return {name: f"f{number}" for number, name in enumerate(sorted(fields)[:MAX_COLUMNS])}


def field_columns(fields: Schema) -> tuple[str, ...]:
    """The columns that `decode_fields` needs."""
    return (ROW, *columns_of(fields).values())


def row_columns(fields: Schema) -> tuple[str, ...]:
    """The columns that `decode_row` needs."""
    return (KEY, VECTOR, *field_columns(fields))


# first character of a row's own column
_RANKED = "0"
_ASIDE = "1"


# squares and products of such numbers are normal float32 numbers
_SMALLEST = 2.0**-60
_LARGEST = 2.0**60
_MAX_SPARSE = 2**32 - 2  # the largest dimension of a sparse vector in Milvus
_STAND_IN: SparseVector = {0: 1.0}  # Milvus Lite refuses empty vectors and weights below 0
_WINDOW = 16_384  # rows of one answer: Milvus's own limit
_ANSWER_BYTES = 32 * 2**20
_TYPICAL_SPARSE = 4096
_TYPICAL_ROW = 1024


def encode_rows(rows: Sequence[VectorRow], schema: VectorSchema) -> list[JsonObject]:
    """Encode rows, whose vectors have the kind and the dimension of the schema.

    Vectors that Milvus cannot rank as we do are stored in the row's own column, aside from the
    index.

    Raises:
        StoreError: If a key or fields are longer than Milvus's texts.
        UnsupportedError: If a vector is so long or short that float32 numbers cannot rank it.
    """
    columns = [
        (name, column, schema.fields[name]) for name, column in columns_of(schema.fields).items()
    ]
    # the rows of one file share their fields
    encoded: dict[int, tuple[dict[str, str], Fields]] = {}
    encoded_rows = []
    for row, is_unrankable in zip(rows, _are_unrankable(rows, schema), strict=True):
        shared = encoded.get(id(row.fields))
        if shared is None:
            shared = encoded[id(row.fields)] = _encode_fields(row.fields, columns)
        texts, others = shared
        vector = row.vector
        pairs = list[tuple[int, float]]()
        if isinstance(vector, dict) and is_unrankable:
            pairs = [*vector.items()]
            vector = _STAND_IN
        key = encode_text(row.key)
        rest = ""
        if others or is_unrankable:
            rest = (_ASIDE if is_unrankable else _RANKED) + _json([others, pairs])
        for place, text in (("a key", key), ("fields", rest)):
            if 4 * len(text) > MAX_BYTES and (size := len(text.encode())) > MAX_BYTES:
                raise StoreError(
                    f"Row {row.key[:80]!r} has {place} of {size} bytes as Milvus stores them; it"
                    f" takes at most {MAX_BYTES}. Shorten what the fields hold, or keep the vectors"
                    " in another store.",
                    store="milvus",
                )
        encoded_rows.append({KEY: key, VECTOR: vector, ROW: rest, **texts})
    return encoded_rows


def _encode_fields(
    fields: Fields, columns: Sequence[tuple[str, str, DocField]]
) -> tuple[dict[str, str], Fields]:
    """The columns of fields, and the fields that cannot be decoded from them."""
    texts = dict[str, str]()
    others = dict[str, FieldValue]()
    seen = 0
    for name, column, doc_field in columns:
        value = fields.get(name)
        text = encode_field(doc_field, value)
        if value is not None and is_decodable(doc_field, value, text):
            texts[column] = text
            seen += 1
        else:
            texts[column] = text[:CUT]
            if name in fields:
                others[name] = value
                seen += 1
    if seen < len(fields):
        indexed = {name for name, _, _ in columns}
        others |= {name: value for name, value in fields.items() if name not in indexed}
    return texts, others


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which no message can hold
        return json.dumps(value, separators=(",", ":"))
    return text


def decode_row(values: JsonMapping, schema: VectorSchema) -> VectorRow:
    """The row that `encode_rows` encoded; without fields if their columns were not read."""
    vector: Embedding
    has_fields = ROW in values
    if schema.is_sparse:
        is_unrankable = has_fields and values[ROW].startswith(_ASIDE)
        pairs = _rest(values)[1] if is_unrankable else values[VECTOR].items()
        vector = {int(at): float(weight) for at, weight in pairs}
    else:
        vector = np.asarray(values[VECTOR], np.float32)
    fields = decode_fields(values, schema.fields) if has_fields else EMPTY
    return VectorRow(decode_text(values[KEY]), vector, fields)


def decode_fields(values: JsonMapping, fields: Schema) -> Fields:
    """The fields of a row that `encode_rows` encoded."""
    decoded = {}
    for name, column in columns_of(fields).items():
        value = decode_field(fields[name], values[column])
        if value is not None:
            decoded[name] = value
    for name, other in _rest(values)[0].items():
        decoded[name] = tuple(other) if isinstance(other, list) else other
    return ReadOnly(decoded)


def _rest(values: JsonMapping) -> tuple[JsonObject, list[Any]]:
    """The content of a row's own column: other fields, and the pairs of a sparse vector."""
    text = values[ROW]
    if not text:
        return {}, []
    others, pairs = json.loads(text[1:])
    return others, pairs


def row_bytes(values: JsonMapping) -> int:
    """The approximate size in a message of a row of `encode_rows`."""
    vector = values[VECTOR]
    size = 8 * len(vector) if isinstance(vector, dict) else 4 * len(vector)
    return size + sum(len(value) for value in values.values() if isinstance(value, str))


def window_of(schema: VectorSchema) -> int:
    """How many rows one answer may hold, at least 1: limits of Milvus and of messages."""
    vector = _TYPICAL_SPARSE if schema.dimension == SPARSE else 4 * schema.dimension
    return max(1, min(_WINDOW, _ANSWER_BYTES // (vector + _TYPICAL_ROW)))


def milvus_query(query: Embedding, schema: VectorSchema) -> Embedding | None:
    """The vector to search for, by which Milvus ranks all rows that are not aside as we do. None if
    there is none.
    """
    if isinstance(query, dict):
        # Rows with other dimensions are aside.
        representable = {at: weight for at, weight in query.items() if at <= _MAX_SPARSE}
        return representable if all(map(_is_in_range, representable.values())) else None
    length = math.sqrt(float(np.square(query, dtype=np.float64).sum()))
    is_zero = schema.metric != "cosine" and not query.any()
    return query if is_zero or _is_in_range(length) else None


def _are_unrankable(rows: Sequence[VectorRow], schema: VectorSchema) -> list[bool]:
    """Which rows Milvus does not rank as we do."""
    if schema.is_sparse:
        return [not _is_rankable(cast("SparseVector", row.vector)) for row in rows]
    vectors = np.stack([cast("Vector", row.vector) for row in rows])
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)).tolist()
    for row, length in zip(rows, lengths, strict=True):
        if length and not _is_in_range(length):
            raise UnsupportedError(
                f"Row {row.key[:80]!r} has a vector of length {length:g}; Milvus computes with"
                " float32 numbers, which rank lengths from 2**-60 to 2**60 (and 0). Scale the"
                " vectors, or keep them in the map store.",
                store="milvus",
            )
    # Milvus 2.3 never finds a vector of length 0 by the cosine, which is not a number there.
    return [schema.metric == "cosine" and not length for length in lengths]


def _is_rankable(vector: SparseVector) -> bool:
    return bool(vector) and max(vector) <= _MAX_SPARSE and all(map(_is_in_range, vector.values()))


def _is_in_range(number: float) -> bool:
    return _SMALLEST <= number <= _LARGEST


_OPERATORS = {
    "eq": ("==", "!="),
    "gt": (">", "<="),
    "ge": (">=", "<"),
    "lt": ("<", ">="),
    "le": ("<=", ">"),
}
"""Operators and their opposites."""
_MAX_VALUES = 10_000  # in one list: longer ones make messages too long


@dataclass(frozen=True, slots=True)
class Expression:
    """A condition in Milvus's language, and its negation.

    Milvus Lite 2.5 cannot negate every expression; both are written side by side, and no expression
    begins with ``not``.

    Args:
        text: The condition.
        negation: Its opposite.
    """

    text: str
    negation: str


ALWAYS = f'{KEY} >= ""'
_NEVER = f'{KEY} < ""'


def literal(text: str) -> str:
    """Quote an encoded text: the only way by which values get into expressions.

    Raises:
        StoreError: If it holds anything but letters, digits and full stops.

    Example:
        >>> literal("s27")
        '"s27"'
    """
    if not text or (text.isascii() and text.replace(".", "").isalnum()):
        return f'"{text}"'
    raise StoreError(
        f"{text!r:.80} cannot be part of an expression of Milvus: it must be encoded before. This"
        " is a bug.",
        store="milvus",
    )


def key_in(keys: Sequence[str]) -> str:
    """An expression for the rows of some keys, at least one.

    Example:
        >>> key_in(["a", "b"])
        'key in ["a","b"]'
    """
    return f"{KEY} in [{','.join(literal(encode_text(key)) for key in keys)}]"


def key_after(key: str) -> str:
    """An expression for the rows behind a key.

    Example:
        >>> key_after("a")
        'key > "a"'
    """
    return f"{KEY} > {literal(encode_text(key))}"


def all_of(*texts: str) -> str:
    """The conjunction of some expressions, of which "" always holds.

    Example:
        >>> all_of('f0 > ""', "")
        'f0 > ""'
    """
    parts = [text for text in texts if text]
    return parts[0] if len(parts) == 1 else _join(" and ", parts)


def split_filter(filter: Filter | None, fields: Schema) -> tuple[str, Filter | None]:
    """Split a bound filter into an expression for Milvus, "" for none, and the rest, which is
    evaluated here.

    Example:
        >>> split_filter(Condition("year", "exists"), {"year": DocField(DataType.INT32)})
        ('f0 != ""', None)
    """
    pushed: Pushed[Expression] = push_down(filter, MilvusDialect(fields))
    return ("" if pushed.native is None else pushed.native.text), pushed.rest


class MilvusDialect:
    """Milvus's filter language as a `lazyrag.stores.protocol.Dialect`.

    A column holds the first `CUT` characters of a field's text. A literal that is shorter compares
    with the cut text as with the complete one: they differ, if at all, within its length or right
    behind it. Longer literals, substrings and elements of arrays are not supported.

    Args:
        fields: Of the collection.

    Example:
        >>> dialect = MilvusDialect({"author": DocField(DataType.VARCHAR)})
        >>> dialect.condition(Condition("author", "in", ["a", None]))
        Expression(text='f0 in ["sa",""]', negation='f0 not in ["sa",""]')
    """

    def __init__(self, fields: Schema) -> None:
        self._fields = fields
        self._columns = columns_of(fields)

    def condition(self, condition: Condition) -> Expression | None:
        """See `Dialect.condition`."""
        column = self._columns.get(condition.field)
        op = condition.op
        value = condition.value
        if column is None:
            return None
        field = self._fields[condition.field]
        if op == "exists":
            present = Expression(f'{column} != ""', f'{column} == ""')
            return present if value else self.negated(present)
        if op == "in":
            return self._in(column, field, value)
        text = _short_literal(field, value) if op in _OPERATORS else None
        if text is None:
            return None
        sign, inverse = _OPERATORS[op]
        if op in ("lt", "le"):  # the "" of a missing value comes before all others
            return Expression(
                f'{column} {sign} {text} and {column} != ""',
                f'{column} {inverse} {text} or {column} == ""',
            )
        return Expression(f"{column} {sign} {text}", f"{column} {inverse} {text}")

    def all_of(self, parts: Sequence[Expression]) -> Expression:
        """See `Dialect.all_of`."""
        return Expression(
            _join(" and ", [part.text for part in parts]),
            _join(" or ", [part.negation for part in parts]),
        )

    def any_of(self, parts: Sequence[Expression]) -> Expression:
        """See `Dialect.any_of`."""
        return self.negated(self.all_of([self.negated(part) for part in parts]))

    def negated(self, part: Expression) -> Expression:
        """See `Dialect.negated`."""
        return Expression(part.negation, part.text)

    def never(self) -> Expression:
        """See `Dialect.never`."""
        return Expression(_NEVER, ALWAYS)

    def _in(self, column: str, field: DocField, values: Sequence[FieldValue]) -> Expression | None:
        if field.element_type is not None or len(values) > _MAX_VALUES:
            return None
        texts = [_short_literal(field, value) for value in dict.fromkeys(values)]
        if None in texts:
            return None
        if not texts:  # Milvus Lite 2.5 fails on an empty list
            return self.never()
        listed = f"[{','.join(map(str, texts))}]"
        return Expression(f"{column} in {listed}", f"{column} not in {listed}")


def _join(word: str, texts: Sequence[str]) -> str:
    return word.join(f"({text})" for text in texts)


def _short_literal(field: DocField, value: FieldValue) -> str | None:
    """A value's literal; None if its text may be cut in the column."""
    text = encode_field(field, value)
    return literal(text) if len(text) < CUT else None
