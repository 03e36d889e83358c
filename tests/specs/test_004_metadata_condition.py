"""Specification 004's MetadataCondition, which it names and does not define: the operators of the
described system.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyrag
from lazyrag import DataType, DocField, Not
from lazyrag.data.fields import make_schema
from lazyrag.data.filters import bind_filter, matches
from lazyrag.errors import ConfigError, UnknownKeywordError
from lazyrag.interop.dify import Condition, Document, MetadataCondition, Vector
from lazyrag.interop.dify.documents import COMPARISONS

SCHEMA = make_schema(
    {
        "author": DocField(DataType.VARCHAR),
        "year": DocField(DataType.INT64),
        "day": DocField(DataType.DATE),
    }
)
ROWS = [
    {"author": "Luo", "year": 2019, "day": "2024-05-01"},
    {"author": "Lu", "year": 2020, "day": "2024-06-01"},
    {"author": "Lv Bu", "year": 2021, "day": "2024-07-01"},
    {"author": None, "year": None, "day": None},
]


def numbers(condition):
    """Which of the rows satisfy it, by their number."""
    bound = bind_filter(condition.to_filter(), SCHEMA)
    return [number for number, row in enumerate(ROWS) if matches(bound, row)]


@pytest.mark.parametrize(
    ("name", "operator", "value", "expected"),
    [
        ("author", "contains", "u", [0, 1, 2]),
        ("author", "contains", "uo", [0]),
        ("author", "not contains", "uo", [1, 2]),
        ("author", "start with", "Lu", [0, 1]),
        ("author", "is", "Lu", [1]),
        ("author", "is not", "Lu", [0, 2]),
        ("author", "empty", None, [3]),
        ("author", "not empty", None, [0, 1, 2]),
        ("author", "in", ["Lu", "Luo"], [0, 1]),
        ("author", "in", "Lu, Luo", [0, 1]),
        ("author", "not in", ["Lu", "Luo"], [2]),
        ("year", "=", "2020", [1]),
        ("year", "≠", 2020, [0, 2]),
        ("year", "!=", 2020, [0, 2]),
        ("year", ">", 2020.0, [2]),
        ("year", "<", 2020, [0]),
        ("year", "≥", "2020", [1, 2]),
        ("year", ">=", 2020, [1, 2]),
        ("year", "≤", 2020, [0, 1]),
        ("day", "before", "2024-06-01", [0]),
        ("day", "after", "2024-06-01", [2]),
    ],
)
def test_each_operator(name, operator, value, expected):
    """「检索类：… `MetadataCondition`」: the rows that satisfy it; what is missing satisfies ``empty``
    alone.
    """
    assert numbers(Condition(name, operator, value)) == expected
    assert (
        numbers(
            MetadataCondition(
                "and", [{"name": name, "comparison_operator": operator, "value": value}]
            )
        )
        == expected
    )


@pytest.mark.parametrize(
    "given", [2**53 + 1, str(2**53 + 1), f" +{2**53 + 1} ", float(2**53), "2e3", 0.5, "0.5"]
)
def test_numbers_are_exact(given):
    """A whole number is compared as such, not as the nearest float; so is a text of one."""
    whole = {2**53: 2**53, "2e3": 2000, 0.5: 0.5, "0.5": 0.5}.get(given, 2**53 + 1)
    told = Condition("year", "=", given).to_filter().value
    assert (told, type(told)) == (whole, type(whole))


def test_texts_among_numbers():
    """``in`` and ``not in`` read texts as numbers on a field of numbers, and leave them on any
    other.
    """
    for value in ("2019, 2021", ["2019", 2021]):
        told = MetadataCondition("and", [Condition("year", "in", value)])
        assert told.to_filter(SCHEMA).value == (2019, 2021)
        bound = bind_filter(Condition("year", "not in", value).to_filter(SCHEMA), SCHEMA)
        assert [matches(bound, row) for row in ROWS] == [False, True, False, False]
    assert Condition("author", "in", "2019, 2021").to_filter(SCHEMA).value == ("2019", "2021")
    with pytest.raises(ConfigError, match="a finite number; got 'many'"):
        Condition("year", "in", "2019, many").to_filter(SCHEMA)
    with Vector("teas", {"n": DocField(DataType.INT64)}) as vector:
        vector.create([Document("tea", {"doc_id": str(n), "n": n}) for n in (2**53, 2**53 + 1)])
        for told in (Condition("n", "=", 2**53 + 1), Condition("n", "in", f"{2**53 + 1},1")):
            [found] = vector.search_by_full_text("tea", filters=MetadataCondition("and", [told]))
            assert found.metadata["n"] == 2**53 + 1


def test_every_operator_is_tested():
    """No operator is without a row in the table of tests; endings are no filter, which the error
    says.
    """
    [mark] = test_each_operator.pytestmark
    tested = {row[1] for row in mark.args[1]} | {"end with"}
    assert set(COMPARISONS) <= tested
    with pytest.raises(ConfigError, match=r"'end with' on 'author'.*'contains'"):
        Condition("author", "end with", "o")


def test_logical_operators():
    """All conditions with "and", any with "or"; without conditions there is no filter."""
    conditions = [Condition("author", "start with", "Lu"), Condition("year", "≥", 2020)]
    assert numbers(MetadataCondition("and", conditions)) == [1]
    assert numbers(MetadataCondition("or", conditions)) == [0, 1, 2]
    assert MetadataCondition().to_filter() is None
    assert (
        MetadataCondition.from_dict({"logical_operator": None, "conditions": None}).to_filter()
        is None
    )


def test_a_retriever_takes_the_filter():
    """The filter is this package's own: a retriever, and everything that takes filters, takes
    it.
    """
    docs = lazyrag.Document(doc_fields={"year": DocField(DataType.INT64)})
    docs.add_texts({"a": "green tea", "b": "black tea"}, {"a": {"year": 2019}, "b": {"year": 2021}})
    filters = MetadataCondition("and", [Condition("year", ">", 2020)]).to_filter()
    retriever = lazyrag.Retriever(docs, "FineChunk", similarity="bm25")
    assert [node.path for node in retriever("tea", filters)] == ["b"]
    assert [node.path for node in retriever("tea", Not(filters))] == ["a"]


@given(st.text(min_size=1, max_size=4), st.text(max_size=6))
def test_a_beginning_is_a_range_of_texts(prefix, text):
    """``start with`` is true exactly where Python's startswith is, whatever the characters."""
    bound = bind_filter(Condition("author", "start with", prefix).to_filter(), SCHEMA)
    for one in (text, prefix + text):
        assert matches(bound, {"author": one}) == one.startswith(prefix)


@pytest.mark.parametrize("prefix", ["\U0010ffff", "a\U0010ffff", "\ud7ff", "a\U0010ffff\U0010ffff"])
def test_a_beginning_at_the_end_of_the_characters(prefix):
    """The largest character has no next one, and what follows U+D7FF is no character."""
    bound = bind_filter(Condition("author", "start with", prefix).to_filter(), SCHEMA)
    for one in ("a", "b", "\ue000", prefix, prefix + "x", prefix[:-1]):
        assert matches(bound, {"author": one}) == one.startswith(prefix)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("author", "starts with", "L"), "Did you mean 'start with'"),
        (("author", "is", None), "needs a value"),
        (("author", "empty", "L"), "takes no value"),
        (("", "is", "L"), "name of a field"),
        (("year", "=", "many"), "a finite number"),
        (("year", ">", True), "a finite number"),
        (("year", ">", "nan"), "a finite number; got 'nan'"),
        (("year", ">", float("inf")), "a finite number"),
        (("year", "=", 10**400), "a finite number; got an integer of 1329 bits"),
        (("author", "contains", 7), "not empty"),
        (("author", "in", 7), "list of values"),
    ],
)
def test_what_is_no_condition(arguments, message):
    """A mistake is an error at once; none is passed over, as a missing value is in the described
    system.
    """
    with pytest.raises(ConfigError, match=message):
        Condition(*arguments)


@pytest.mark.parametrize(
    "values", [{"logical_operator": "xor"}, {"conditions": {}}, {"conditions": ["author"]}, 7]
)
def test_what_is_no_metadata_condition(values):
    """What is none is an error that says what to give."""
    with pytest.raises(ConfigError):
        MetadataCondition.from_dict(values)
    with pytest.raises(UnknownKeywordError, match="conditions"):
        MetadataCondition.from_dict({"condition": []})
