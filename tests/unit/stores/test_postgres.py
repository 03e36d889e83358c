"""What is written for PostgreSQL's ranking means what was meant, without a server."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DataType, DocField
from lazyrag.data.fields import make_schema
from lazyrag.data.filters import Condition, bind_filter
from lazyrag.errors import ConfigError
from lazyrag.stores.config import StoreConf
from lazyrag.stores.postgres import PostgresDialect, PostgresSegmentStore
from lazyrag.stores.protocol import push_down
from lazyrag.stores.sqlite import StoreFile
from lazyrag.testing.samples import FILTERS, HARD_TEXTS, SCHEMA

WILD = make_schema(
    {"name": DocField(DataType.VARCHAR), "groups": DocField(DataType.ARRAY, DataType.VARCHAR)}
)
NAMES = ["name", "groups"]
TEXTS = st.one_of(st.sampled_from(HARD_TEXTS), st.text("ab'\"\\%;-\ud800茶", max_size=6))


@given(TEXTS, st.sampled_from(["eq", "ne", "in", "contains", "lt"]), st.sampled_from(NAMES))
def test_statements_hold_no_character_of_a_value(text: str, op: str, name: str) -> None:
    """Between quotes stand encoded texts alone, and the patterns that are written here."""
    if name == "groups" and op == "lt":
        return
    value = [text] if op == "in" or (name == "groups" and op in ("eq", "ne")) else text
    bound = bind_filter(Condition(name, op, value), WILD)
    native = push_down(bound, PostgresDialect(WILD)).native
    assert native is not None
    for statement in (native.text, native.negation):
        plain = statement.replace("'^s([^.Axyz]|[.Axyz].)*", "'").replace("\\.", ".")
        assert plain.count("'") % 2 == 0
        assert all(re.fullmatch("[A-Za-z0-9.]*", part) for part in plain.split("'")[1::2])


@pytest.mark.parametrize("condition", FILTERS, ids=repr)
def test_postgresql_evaluates_every_filter_of_the_contract(condition: Condition) -> None:
    """Nothing is left to us, row by row."""
    assert push_down(condition, PostgresDialect(SCHEMA)).rest is None


def test_analysers_are_those_of_a_server() -> None:
    """A file has none, and an unknown one is named with the others."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": "tea.db", "analysers": ["en"]}}}
    with pytest.raises(ConfigError, match="analysers"):
        StoreConf.parse(conf)
    with StoreFile(None) as file, pytest.raises(ConfigError, match=r"ens.*zh"):
        PostgresSegmentStore(file, ["ens"])
