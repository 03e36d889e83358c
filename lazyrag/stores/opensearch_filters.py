"""Filters in OpenSearch's query language, and the forms in which fields are indexed so that they mean the same.

OpenSearch tells neither a missing field from an empty array nor one order of an array's elements from another, and it
refuses terms above 32,766 bytes. So a document lists the fields that it has, arrays are indexed once more as a whole,
and long texts are cut: see `index_text`. With that every filter is exact but ``contains`` on text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from lazyrag.data.fields import DataType, DocField, Schema
from lazyrag.data.filters import Condition
from lazyrag.data.segment import digest
from lazyrag.types import Fields, FieldValue, Scalar

Query: TypeAlias = dict[str, Any]
"""A query of OpenSearch's, as JSON."""

PRESENT: Final = "present"
"""The names of the fields that a document has."""

FIELD: Final = "field"
"""An object with the values of the fields by name; arrays as several values."""

WHOLE: Final = "whole"
"""An object with the arrays by name, each as one value."""

_LONGEST_TEXT = 256  # characters of a text that are indexed as they are
_MOST_TERMS = 50_000  # in one `terms` query: OpenSearch takes 65,536
_CUT_MARK = "\ud7ff"  # unassigned, and the last character before the surrogates
_CUT_AT = re.compile("[\ud7ff-\udfff]")
_TEXTS = (DataType.VARCHAR, DataType.DATE)
_RANGES = {"gt": "gt", "ge": "gte", "lt": "lt", "le": "lte"}


def index_text(text: str) -> str:
    """A text as it is indexed: different texts differently.

    A long text, or one with half a surrogate pair, which UTF-8 does not have, is cut, and a digest of the whole (128
    bits) stands for the rest. Its order relative to every text that is indexed as it is stays that of code points: the
    cut mark sorts as the surrogates do, and what is cut off only makes a text greater than its beginning.

    Example:
        >>> index_text("绿茶"), len(index_text("茶" * 10_000))
        ('绿茶', 289)
    """
    broken = _CUT_AT.search(text)
    end = min(broken.start() if broken else len(text), _LONGEST_TEXT)
    return text if end == len(text) else f"{text[:end]}{_CUT_MARK}{digest([text])}"


def index_scalar(value: Scalar) -> Scalar:
    """One value as it is indexed, and as it stands in queries: the only way for a value into either."""
    if isinstance(value, str):
        return index_text(value)
    return value + 0.0 if isinstance(value, float) else value  # -0.0 is another number to Lucene than 0.0


def index_whole(value: Sequence[Scalar]) -> str:
    """An array as one value.

    Example:
        >>> index_whole(("a", "b")) == index_whole(("b", "a"))
        False
    """
    return digest([json.dumps([value + 0.0 if isinstance(value, float) else value for value in value])])


def index_fields(fields: dict[str, FieldValue]) -> dict[str, Any]:
    """What a document says of its fields, None being none."""
    there = {name: value for name, value in fields.items() if value is not None}
    found: dict[str, Any] = {
        PRESENT: sorted(there),
        FIELD: {
            name: [*map(index_scalar, value)] if isinstance(value, tuple) else index_scalar(value)
            for name, value in there.items()
        },
    }
    arrays = {name: index_whole(value) for name, value in there.items() if isinstance(value, tuple)}
    return {**found, WHOLE: arrays} if arrays else found


def untold(fields: Fields, indexed: Mapping[str, Any]) -> dict[str, FieldValue]:
    """Those fields that are indexed otherwise than they are, or not at all.

    Args:
        fields: Of a row.
        indexed: The same, by name, as `index_fields` writes them.

    Example:
        >>> fields = {"day": "2024-05-01", "size": -0.0, "tags": ("a", "b"), "pages": None}
        >>> untold(fields, index_fields(fields)[FIELD])
        {'size': -0.0, 'pages': None}
    """
    return {name: value for name, value in fields.items() if not _is_told(value, indexed.get(name))}


def _is_told(value: FieldValue, indexed: Any) -> bool:
    if isinstance(value, tuple):
        return isinstance(indexed, list) and all(map(_is_told, value, indexed))
    if type(value) is not type(indexed) or value is None:
        return False
    return value == indexed and not (value == 0 and str(value) == "-0.0")


def index_type(field: DocField) -> str:
    """The type that OpenSearch indexes a field's values as. ISO days sort as texts do; a FLOAT is a DOUBLE, too."""
    data_type = field.element_type or field.data_type
    if data_type in _TEXTS:
        return "keyword"
    return {
        DataType.BOOLEAN: "boolean",
        DataType.INT32: "integer",
        DataType.INT64: "long",
        DataType.FLOAT: "double",
        DataType.DOUBLE: "double",
    }[data_type]


class FilterDialect:
    """OpenSearch's query language as a `lazyrag.stores.pushdown.Dialect`.

    Args:
        schema: Of the collection whose rows are filtered.

    Example:
        >>> from lazyrag.data.fields import make_schema
        >>> FilterDialect(make_schema(None)).condition(Condition("file_size", ">", 5))
        {'range': {'field.file_size': {'gt': 5}}}
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def condition(self, condition: Condition) -> Query | None:
        """See `Dialect.condition`; None for ``contains`` on text, and for orderings by what no text is indexed as."""
        name, op, value = condition.field, condition.op, condition.value
        if op == "exists":
            return _is_present(name) if value else _not(_is_present(name))
        if op in ("eq", "ne"):
            same = _equals(name, value)
            return same if op == "eq" else _not(same)
        if op in ("in", "not in"):
            among = _is_among(name, value)
            return among if op == "in" else _not(among)
        if op == "contains":
            is_array = self._schema[name].element_type is not None
            return _term(f"{FIELD}.{name}", index_scalar(value)) if is_array else None
        if isinstance(value, str) and index_text(value) != value:
            return None
        return {"range": {f"{FIELD}.{name}": {_RANGES[op]: index_scalar(value)}}}

    def all_of(self, parts: Sequence[Query]) -> Query:
        """See `Dialect.all_of`."""
        return {"bool": {"filter": list(parts)}}

    def any_of(self, parts: Sequence[Query]) -> Query:
        """See `Dialect.any_of`."""
        return _any_of(parts)

    def negated(self, part: Query) -> Query:
        """See `Dialect.negated`."""
        return _not(part)

    def never(self) -> Query:
        """See `Dialect.never`."""
        return {"match_none": {}}


def _equals(name: str, value: FieldValue) -> Query:
    if value is None:
        return _not(_is_present(name))
    if isinstance(value, tuple):
        return _term(f"{WHOLE}.{name}", index_whole(value))
    return _term(f"{FIELD}.{name}", index_scalar(value))


def _is_among(name: str, values: Sequence[Scalar | None]) -> Query:
    """One of the values, or, with None among them, none at all; of an array, any element."""
    known = list(dict.fromkeys(index_scalar(value) for value in values if value is not None))
    parts: list[Query] = [
        {"terms": {f"{FIELD}.{name}": known[start : start + _MOST_TERMS]}}
        for start in range(0, len(known), _MOST_TERMS)
    ]
    if None in values:
        parts.append(_not(_is_present(name)))
    if not parts:
        return {"match_none": {}}
    return parts[0] if len(parts) == 1 else _any_of(parts)


def _is_present(name: str) -> Query:
    return _term(PRESENT, name)


def _term(field: str, value: Scalar) -> Query:
    return {"term": {field: {"value": value}}}


def _any_of(parts: Sequence[Query]) -> Query:
    return {"bool": {"should": list(parts), "minimum_should_match": 1}}


def _not(part: Query) -> Query:
    return {"bool": {"must_not": [part]}}
