"""What is written for Milvus means what was meant: ordered values, filters as `matches` says,
nothing to escape.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DataType, DocField
from lazyrag.data.fields import check_value, make_schema
from lazyrag.data.filters import And, Condition, Filter, Not, Or, bind_filter, matches
from lazyrag.errors import StoreError
from lazyrag.stores.milvus_encoding import (
    CUT,
    MAX_COLUMNS,
    columns_of,
    decode_field,
    decode_text,
    encode_field,
    encode_text,
    is_decodable,
    key_after,
    key_in,
    literal,
    split_filter,
)
from lazyrag.testing.samples import FIELDS, FILTERS, HARD_TEXTS, SCHEMA

TEXTS = st.one_of(
    st.sampled_from(HARD_TEXTS),
    st.text(max_size=6),
    st.text("ab'\"\\%_{}\ud800\U0001f375", max_size=4),
)
INT64 = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = {
    DataType.BOOLEAN: st.booleans(),
    DataType.INT32: st.integers(-(2**31), 2**31 - 1),
    DataType.INT64: INT64,
    DataType.FLOAT: st.floats(allow_nan=False, allow_infinity=False, width=32),
    DataType.DOUBLE: FLOATS,
    DataType.VARCHAR: TEXTS,
    DataType.DATE: st.dates().map(str),
}
FIELDS_OF = {kind: DocField(kind) for kind in VALUES}
WILD = make_schema(
    {
        "name": DocField(DataType.VARCHAR),
        "n": DocField(DataType.INT64),
        "many": DocField(DataType.ARRAY, DataType.DOUBLE),
    }
)


def holds(expression: str, row: dict[str, Any], schema=WILD) -> bool:
    """What an expression says of a row, by Python, whose words for it are the same."""
    columns = {
        column: encode_field(schema[name], row.get(name))[:CUT]
        for name, column in columns_of(schema).items()
    }
    return not expression or bool(eval(expression, {"__builtins__": {}}, {**columns, "key": "a"}))  # noqa: S307


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.value)
@given(data=st.data())
def test_texts_of_values_are_ordered_as_the_values(kind: DataType, data: st.DataObject) -> None:
    """Of two values the smaller has the smaller text, equal ones have the same, and a missing one
    the smallest.
    """
    field = FIELDS_OF[kind]
    one, other = (check_value("x", field, data.draw(VALUES[kind])) for _ in range(2))
    texts = encode_field(field, one), encode_field(field, other)
    assert (texts[0] == texts[1], texts[0] < texts[1]) == (one == other, one < other)
    assert encode_field(field, None) < texts[0]


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.value)
@given(data=st.data())
def test_values_come_back_from_their_texts(kind: DataType, data: st.DataObject) -> None:
    """In value and type; all but -0.0 and texts that are cut are told."""
    field = FIELDS_OF[kind]
    value = check_value("x", field, data.draw(VALUES[kind]))
    text = encode_field(field, value)
    assert is_decodable(field, value, text) == (repr(value) != "-0.0")
    if is_decodable(field, value, text):
        assert repr(decode_field(field, text)) == repr(value)
    assert not is_decodable(field, (value,), encode_field(field, (value,)))


@given(st.lists(FLOATS, max_size=3), st.lists(FLOATS, max_size=3))
def test_texts_of_arrays_are_equal_where_the_arrays_are(
    one: list[float], other: list[float]
) -> None:
    """Arrays have the same text exactly if they are equal, and an empty one another than a missing
    one.
    """
    field = DocField(DataType.ARRAY, DataType.DOUBLE)
    assert (encode_field(field, tuple(one)) == encode_field(field, tuple(other))) == (one == other)
    assert encode_field(field, ()) != encode_field(field, None)


@given(TEXTS, TEXTS)
def test_keys_come_back_and_keep_their_order(one: str, other: str) -> None:
    """A key's text gives the key again, and sorts as the key does."""
    assert decode_text(encode_text(one)) == one
    assert (encode_text(one) < encode_text(other)) == (one < other)


@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_expressions_hold_no_character_of_a_value(texts: list[str]) -> None:
    """Whatever keys and values hold, between quotes stand letters, digits and full stops only."""
    condition = bind_filter(Condition("name", "in", texts), WILD)
    expressions = [key_in(texts), key_after(texts[0]), split_filter(condition, WILD)[0]]
    for expression in expressions:
        assert re.fullmatch(
            r'[a-z0-9]+ (in|>|==) (\[("[A-Za-z0-9.]*",?)*\]|"[A-Za-z0-9.]*")', expression
        )


@pytest.mark.parametrize("text", HARD_TEXTS[1:])
def test_a_text_that_is_not_encoded_is_refused(text: str) -> None:
    """The one way into expressions lets nothing through that could be taken for anything else."""
    with pytest.raises(StoreError, match="encoded"):
        literal(text)


_conditions = st.one_of(
    st.builds(
        Condition,
        st.just("n"),
        st.sampled_from(["eq", "ne"]),
        st.one_of(st.none(), st.integers(-2, 2)),
    ),
    st.builds(
        Condition, st.just("n"), st.sampled_from(["gt", "ge", "lt", "le"]), st.integers(-2, 2)
    ),
    st.builds(
        Condition,
        st.just("name"),
        st.sampled_from(["gt", "ge", "lt", "le", "eq", "contains"]),
        TEXTS,
    ),
    st.builds(Condition, st.sampled_from(["name", "n", "many"]), st.just("exists"), st.booleans()),
    st.builds(
        Condition,
        st.just("name"),
        st.sampled_from(["in", "not in"]),
        st.lists(st.one_of(st.none(), TEXTS), max_size=3),
    ),
    st.builds(
        Condition,
        st.just("many"),
        st.sampled_from(["in", "not in"]),
        st.lists(st.sampled_from([0.5, None])),
    ),
    st.builds(
        Condition,
        st.just("many"),
        st.sampled_from(["eq", "ne"]),
        st.lists(st.just(0.5), max_size=2),
    ),
)
_filters = st.recursive(
    _conditions,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: And(*parts)),
        st.lists(inner, max_size=3).map(lambda parts: Or(*parts)),
        inner.map(Not),
    ),
    max_leaves=6,
)
_rows = st.fixed_dictionaries(
    {
        "name": st.one_of(st.none(), TEXTS, st.just("x" * 3000)),
        "n": st.one_of(st.none(), st.integers(-3, 3)),
        "many": st.one_of(st.none(), st.lists(st.just(0.5), max_size=2).map(tuple)),
    }
)


@given(_filters, _rows)
def test_both_parts_mean_the_filter(wanted: Filter, row: dict[str, Any]) -> None:
    """A row meets Milvus's part and ours exactly where it meets the filter."""
    bound = bind_filter(wanted, WILD)
    expression, rest = split_filter(bound, WILD)
    assert (holds(expression, row) and (rest is None or matches(rest, row))) == matches(bound, row)


@pytest.mark.sample(4)
@pytest.mark.parametrize("wanted", FILTERS, ids=repr)
def test_the_filters_of_the_contract_are_said_but_for_looks_into_values(wanted: Filter) -> None:
    """Milvus gets all of them, but for substrings, elements and ranges, and no expression begins
    with a negation.
    """
    expression, rest = split_filter(wanted, SCHEMA)
    later = ("'contains'", "'in range'", "'tags', 'in'", "'tags', 'not in'")
    looks_inside = any(word in repr(wanted) for word in later)
    assert (rest is not None) == looks_inside
    assert not re.search(r"not \(|!\(", expression)
    for row in FIELDS:
        both = holds(expression, dict(row), SCHEMA) and (rest is None or matches(rest, row))
        assert both == matches(wanted, row)


@pytest.mark.sample(3)
@pytest.mark.parametrize("length", [CUT // 2, CUT - 3, CUT - 2, CUT - 1, CUT])
@pytest.mark.parametrize("op", ["eq", "ne", "gt", "ge", "lt", "le", "in"])
def test_texts_that_are_cut_compare_as_the_whole(op: str, length: int) -> None:
    """Around the length at which a column is cut, filters mean what they say: the longest ones are
    left to us.
    """
    texts = ["x" * (length + more) + end for more in (-1, 0, 1, 2000) for end in ("", "w", "y")]
    for value in texts:
        condition = bind_filter(Condition("name", op, [value] if op == "in" else value), WILD)
        expression, rest = split_filter(condition, WILD)
        for text in texts:
            row = {"name": text}
            both = holds(expression, row) and (rest is None or matches(rest, row))
            assert both == matches(condition, row)
        assert (rest is None) == (len(encode_text(value)) + 1 < CUT)


def test_fields_beyond_those_with_a_column_are_left_to_us() -> None:
    """Milvus allows 64 columns: of more fields than that the last by name have none, and filters on
    them still hold.
    """
    schema = make_schema(
        {f"x{number:03d}": DocField(DataType.INT32) for number in range(MAX_COLUMNS)}
    )
    assert len(columns_of(schema)) == MAX_COLUMNS
    conditions = [
        bind_filter(Condition(name, "gt", 1), schema)
        for name in ("x000", f"x{MAX_COLUMNS - 1:03d}")
    ]
    assert [split_filter(one, schema) for one in conditions] == [
        ('f6 > "b1"', None),
        ("", conditions[1]),
    ]
    assert split_filter(And(*conditions), schema)[1] == conditions[1]


def test_a_very_long_list_is_left_to_us() -> None:
    """Beyond ten thousand values no message is made of them."""
    condition = bind_filter(Condition("n", "in", list(range(10_001))), WILD)
    assert split_filter(condition, WILD) == ("", condition)
