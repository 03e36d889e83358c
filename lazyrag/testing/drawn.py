"""Schemas, fields, filters and rows as Hypothesis draws them, with what stores like to interpret or to round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st

from lazyrag.data.fields import DataType, DocField, Schema, check_value, make_schema
from lazyrag.data.filters import And, Condition, Filter, Not, Or, bind_filter
from lazyrag.data.segment import Content, Segment
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.testing.rows import HARD_TEXTS
from lazyrag.testing.vector_rows import METRICS
from lazyrag.types import SPARSE, Embedding, Fields, FieldValue, Scalar

R = TypeVar("R", Segment, VectorRow)

NAMES = (
    *("author", "Author", "作者", "año", "ﬁ", "fi", "_", "__init__", "_id", "f0", "x_00e9", "n" * 200),
    *("not", "and", "or", "in", "like", "exists", "true", "null", "None", "NaN", "select"),
    *("id", "key", "vector", "row", "fields", "keys", "uid", "build", "content", "metadata", "document"),
)
"""Names that a field may have: words of query languages and of stores, and such as differ by little."""

VALUES: Mapping[DataType, tuple[Scalar, ...]] = {
    DataType.VARCHAR: (
        *HARD_TEXTS,
        *("", " ", "a", "A", "ab", "茶", "绿茶", "null", "None", "true", "0", "2024-02-29", "[]"),
        *("*", "a*", "?", "%", "_", "\\", "\\\\", "'", '"', "\\'", '\\"', "\\u8336", "\\x00", "#", "--", "/*", ";"),
        *("{{author}}", "{author}", "${author}", "$in", "%s", "[a TO b]", "a OR b", "a && b", "') or ('' == '"),
        *("\0", "a\0b", "\n", "\u2028", "\ud7ff", "\ud83c", "a\ud83cb", "\ue000", "é", "e\u0301"),
        *("茶" * 256, "茶" * 300, "茶" * 300 + "a", "y" * 40_000),
    ),
    DataType.DATE: ("0001-01-01", "1999-12-31", "2024-02-29", "9999-12-31"),
    DataType.INT32: (-(2**31), -1, 0, 1, 2**31 - 1),
    DataType.INT64: (-(2**63), -(2**53) - 1, 0, 2**53, 2**53 + 1, 2**63 - 1),
    DataType.FLOAT: (-0.0, 0.0, 0.10000000149011612, -1.5, 3.4028234663852886e38),
    DataType.DOUBLE: (-1e300, -0.0, 0.0, 0.1, 5e-324, 1e300),
    DataType.BOOLEAN: (False, True),
}
"""Values of each type as they are stored, for rows and for filters."""

_MIME_TYPES = ("text/plain", "application/pdf", "a/b' or \"c\\")
_ORDERINGS = ("gt", "ge", "lt", "le")

_scalar_types = st.sampled_from([*VALUES])
_doc_fields = _scalar_types.map(DocField) | st.builds(DocField, st.just(DataType.ARRAY), _scalar_types)
schemas: st.SearchStrategy[Schema] = st.dictionaries(st.sampled_from(NAMES), _doc_fields, max_size=8).map(make_schema)
"""The built-in fields and up to eight others, of every type."""


@dataclass(frozen=True)
class SegmentWorld:
    """What a collection of segments is filled with."""

    schema: Schema
    rows: tuple[Segment, ...]


@dataclass(frozen=True)
class VectorWorld:
    """What a collection of vectors is filled with."""

    schema: VectorSchema
    rows: tuple[VectorRow, ...]


def scalars(name: str, field: DocField) -> st.SearchStrategy[Scalar]:
    """Values of a field, or of the elements of an ARRAY."""
    if name == "file_type":  # a filter takes anything else for a suffix
        return st.sampled_from(_MIME_TYPES)
    data_type = field.element_type or field.data_type
    chosen = st.sampled_from(VALUES[data_type])
    return chosen | st.text(st.characters(codec=None), max_size=4) if data_type is DataType.VARCHAR else chosen


def fields_of(schema: Schema) -> st.SearchStrategy[Fields]:
    """The fields of a row, checked; each of them may be missing, as None or altogether."""
    return st.fixed_dictionaries(
        {},
        optional={name: st.none() | _field_values(name, field) for name, field in schema.items()},
    )


def filters(schema: Schema, rows: Sequence[Fields] = ()) -> st.SearchStrategy[Filter]:
    """Bound filters of every operator, nested; many of their values are those of the rows."""
    return st.recursive(
        st.one_of([_conditions(name, field, rows) for name, field in schema.items()]),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(lambda parts: And(*parts)),
            st.lists(inner, max_size=3).map(lambda parts: Or(*parts)),
            inner.map(Not),
        ),
        max_leaves=5,
    ).map(lambda one: bind_filter(one, schema))


@st.composite
def segment_worlds(draw: st.DrawFn) -> SegmentWorld:
    """A schema and 3 to 24 segments."""
    schema = draw(schemas)
    return SegmentWorld(schema, tuple(_unique(draw, segments(schema))))


@st.composite
def vector_worlds(draw: st.DrawFn, *, sparse: bool = False) -> VectorWorld:
    """A schema of dense vectors, or sometimes of sparse ones, and 3 to 24 rows."""
    fields = draw(schemas)
    dense = st.builds(VectorSchema, st.integers(2, 6), st.sampled_from(METRICS), st.just(fields))
    schema = draw(dense | dense | st.just(VectorSchema(SPARSE, "ip", fields)) if sparse else dense)
    return VectorWorld(schema, tuple(_unique(draw, vector_rows(schema))))


def segments(schema: Schema) -> st.SearchStrategy[Segment]:
    """Segments with content and metadata of every kind."""
    texts = st.sampled_from(VALUES[DataType.VARCHAR]).map(str)
    json_values: st.SearchStrategy[Content] = st.sampled_from([0, 7, 2.5, False, [], ["a", 1], {"名": [1, None]}])
    return st.builds(
        Segment,
        uid=_keys,
        build=st.integers(0, 2),
        group=texts,
        document_id=_keys,
        path=texts,
        parent=st.none() | _keys,
        number=st.integers(1, 9),
        content=texts | json_values,
        metadata=st.dictionaries(texts, st.none() | texts, max_size=2),
        fields=fields_of(schema),
        span=st.none() | st.tuples(st.integers(0, 5), st.integers(5, 9)),
    )


def vector_rows(schema: VectorSchema) -> st.SearchStrategy[VectorRow]:
    """Rows with `embeddings` for vectors."""
    return st.builds(VectorRow, key=_keys, vector=embeddings(schema.dimension), fields=fields_of(schema.fields))


def embeddings(dimension: int) -> st.SearchStrategy[Embedding]:
    """Vectors of which many are equal, parallel, opposite or zero, and others are like no other one.

    Scores that are equal in exact arithmetic are so in floating point, too: components of the first kind are -1, 0 or 1
    times one power of two, and dimensions are few, so that no two lengths have a rational ratio but a power of two.
    """
    if dimension == SPARSE:
        places = st.integers(0, 5) | st.sampled_from([2**32, 2**63 + 5])
        return st.dictionaries(places, st.sampled_from([-1.0, -0.5, 0.5, 1.0, 2.0]), max_size=5)
    signs = st.lists(st.sampled_from([0.0, 1.0, -1.0]), min_size=dimension, max_size=dimension)
    scaled = st.builds(lambda row, power: np.array(row, np.float32) * np.float32(2.0**power), signs, st.integers(-2, 2))
    other = st.integers(0, 2**16).map(
        lambda seed: np.random.default_rng(seed).normal(size=dimension).astype(np.float32)
    )
    return scaled | other


_keys: st.SearchStrategy[str] = st.one_of(
    st.integers(0, 255).map("{:032x}-1".format),
    st.sampled_from(HARD_TEXTS),
    # No store need take a key that ends in a NUL, or that is no UTF-8.
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=5).filter(lambda text: not text.endswith("\0")),
)


def _field_values(name: str, field: DocField) -> st.SearchStrategy[FieldValue]:
    one = scalars(name, field)
    if field.element_type is None:
        return one.map(lambda value: check_value(name, field, value))
    return st.lists(one, max_size=3).map(lambda value: check_value(name, field, value))


def _conditions(name: str, field: DocField, rows: Sequence[Fields]) -> st.SearchStrategy[Condition]:
    """Conditions on one field that suit its type."""
    is_array = field.element_type is not None
    held = [value for row in rows if (value := row.get(name)) is not None]
    parts = [part for value in held for part in (value if isinstance(value, tuple) else (value,))]
    one = scalars(name, field) | (st.sampled_from(parts) if parts else st.nothing())
    whole = (st.lists(one, max_size=3).map(tuple) if is_array else one) | (
        st.sampled_from(held) if held else st.nothing()
    )
    field_name = st.just(name)
    made = [
        st.builds(Condition, field_name, st.sampled_from(["eq", "ne"]), st.none() | whole),
        st.builds(Condition, field_name, st.sampled_from(["in", "not in"]), st.lists(st.none() | one, max_size=3)),
        st.builds(Condition, field_name, st.just("exists"), st.booleans()),
    ]
    if is_array or field.data_type is DataType.VARCHAR:
        made.append(st.builds(Condition, field_name, st.just("contains"), one))
    if field.data_type is DataType.VARCHAR:  # and parts of what is there
        within = one.flatmap(lambda text: st.integers(0, max(len(str(text)) - 2, 0)).map(lambda at: str(text)[at:][:2]))
        made.append(st.builds(Condition, field_name, st.just("contains"), within))
    if not is_array and field.data_type is not DataType.BOOLEAN:
        made.append(st.builds(Condition, field_name, st.sampled_from(_ORDERINGS), one))
    return st.one_of(made)


def _unique(draw: st.DrawFn, row: st.SearchStrategy[R]) -> list[R]:
    count = draw(st.integers(3, 24))
    return draw(st.lists(row, min_size=count, max_size=count, unique_by=lambda one: one.key))
