"""Filters for OpenSearch, looked at without a server: they mean the same, and values stay
values.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.data.filters import Condition, Filter, Or, matches
from lazyrag.stores.opensearch_encoding import FilterDialect, index_fields, index_text
from lazyrag.stores.protocol import push_down
from lazyrag.types import Fields
from tests.hard_fields import ARRAYS, FILTERS, SCALARS, SCHEMA, VALUES, rows

ROWS = rows()
WORDS = {
    *("bool", "filter", "should", "must_not", "minimum_should_match", "match_none"),
    *("term", "terms", "range", "value", "gt", "gte", "lt", "lte"),
    *(f"field.{name}" for name in SCHEMA),
    *(f"whole.{name}" for name in ARRAYS),
    "present",
}


def holds(query: dict[str, Any], document: dict[str, Any]) -> bool:
    """What OpenSearch says of a document: its semantics, as far as the queries here need them."""
    [(kind, rest)] = query.items()
    if kind == "match_none":
        return False
    if kind == "bool":
        wanted = [holds(one, document) for one in rest.get("filter", ())]
        unwanted = [holds(one, document) for one in rest.get("must_not", ())]
        some = [holds(one, document) for one in rest.get("should", ())]
        return (
            all(wanted) and not any(unwanted) and sum(some) >= rest.get("minimum_should_match", 0)
        )
    [(path, operand)] = rest.items()
    position: Any = document
    for step in path.split("."):
        position = position.get(step) if isinstance(position, dict) else None
    values = position if isinstance(position, list) else [] if position is None else [position]
    if kind == "term":
        return operand["value"] in values
    if kind == "terms":
        return not {*operand}.isdisjoint(values)
    assert kind == "range"
    [(bound, limit)] = operand.items()
    return any(_compares(bound, _sorts(value), _sorts(limit)) for value in values)


def _compares(bound: str, value: Any, limit: Any) -> bool:
    return {"gt": value > limit, "gte": value >= limit, "lt": value < limit, "lte": value <= limit}[
        bound
    ]


def _sorts(value: Any) -> Any:
    """Keywords are ordered as their UTF-8 is."""
    return value.encode() if isinstance(value, str) else value


def let_through(filter: Filter, fields: Fields) -> bool:  # noqa: A002
    """What the store does with a row: the query, then what the query does not say."""
    wanted = push_down(filter, FilterDialect(SCHEMA))
    document = json.loads(json.dumps(index_fields(dict(fields))))
    kept = wanted.native is None or holds(wanted.native, document)
    return kept and (wanted.rest is None or matches(wanted.rest, fields))


@given(FILTERS)
def test_a_filter_lets_through_what_the_reference_says(filter: Filter):  # noqa: A002
    """Query and rest together mean what `matches` means, whatever values a row has."""
    for fields in ROWS:
        assert let_through(filter, fields) == matches(filter, fields), fields


@given(FILTERS)
def test_values_stay_values(filter: Filter):  # noqa: A002
    """A filter is always compiled; every key of the query is a word of ours, and all of it can be
    sent as UTF-8.
    """
    native = push_down(filter, FilterDialect(SCHEMA)).native

    def look(part: Any) -> None:
        if isinstance(part, dict):
            assert part.keys() <= WORDS
            for value in part.values():
                look(value)
        elif isinstance(part, list):
            for value in part:
                look(value)

    look(native)
    json.dumps(native, ensure_ascii=False).encode()


@pytest.mark.parametrize("name", [*SCALARS, *ARRAYS])
def test_all_but_substrings_is_pushed_down(name: str):
    """Every operator on every type is OpenSearch's work, but for ``contains`` on text and odd
    bounds of orderings.
    """
    kind = SCALARS.get(name) or ARRAYS[name]
    value = VALUES[kind][0]
    operators = ["eq", "ne", "in", "not in", "exists"]
    operators += (
        ["contains"] if name in ARRAYS else [] if name == "public" else ["gt", "ge", "lt", "le"]
    )
    for operator in operators:
        operand = {"in": [value, None], "not in": [value], "exists": True}.get(operator, value)
        if name in ARRAYS and operator in ("eq", "ne"):
            operand = [value]
        condition = Condition(name, operator, operand)
        assert push_down(condition, FilterDialect(SCHEMA)).rest is None, condition
    for rest in (
        Condition("name", "contains", "a"),
        Condition("name", "gt", "a" * 300),
        Condition("name", "le", "\ud800"),
    ):
        assert push_down(rest, FilterDialect(SCHEMA)).rest == rest


def test_many_values_are_divided():
    """A list that is longer than OpenSearch takes in one query becomes several."""
    condition = Condition("small", "in", list(range(120_000)))
    native = push_down(condition, FilterDialect(SCHEMA)).native
    assert native is not None
    assert [len(one["terms"]["field.small"]) for one in native["bool"]["should"]] == [
        50_000,
        50_000,
        20_000,
    ]


def test_a_filter_that_nothing_meets():
    """An empty `Or` and an empty list of values are a query that finds nothing."""
    for one in (Or(), Condition("small", "in", [])):
        assert push_down(one, FilterDialect(SCHEMA)).native == {"match_none": {}}


_ANY_TEXT = st.text(st.characters(codec=None), max_size=6) | st.sampled_from(
    VALUES[SCALARS["name"]]
)


@given(_ANY_TEXT, _ANY_TEXT)
def test_texts_are_indexed_one_to_one_and_in_order(text: str, other: str):
    """Different texts are indexed differently; the order beside a text that is indexed as it is
    stays; none is long.
    """
    indexed = index_text(text)
    assert (indexed == index_text(other)) == (text == other)
    assert len(indexed.encode()) < 32_766
    if index_text(other) == other:
        assert (indexed.encode() < other.encode()) == (text < other)
