"""Stores in PostgreSQL rank in the database: the contracts, filters, BM25, texts of any size."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag import DataType, DocField
from lazyrag.data.fields import make_schema
from lazyrag.data.filters import And, Condition, Not, Or, bind_filter, matches
from lazyrag.data.segment import Segment
from lazyrag.errors import UnsupportedError
from lazyrag.stores.postgres import PostgresSegmentStore, PostgresVectorStore
from lazyrag.stores.sqlite import MapFileSegmentStore, StoreFile
from lazyrag.testing import SegmentStoreContract, VectorStoreContract
from lazyrag.testing.samples import HARD_TEXTS
from tests.contract.over_store_files import InFiles
from tests.live.conftest import address_of
from tests.postgres_stores import copies_of_postgres, url_of  # noqa: F401

C = "lr_ranked"
SCHEMA = make_schema(
    {
        "name": DocField(DataType.VARCHAR),
        "year": DocField(DataType.INT64),
        "groups": DocField(DataType.ARRAY, DataType.VARCHAR),
        "numbers": DocField(DataType.ARRAY, DataType.INT64),
    }
)
_numbers = itertools.count()


class TestPostgresSegments(InFiles, SegmentStoreContract):
    """Segments, with the terms of both analysers."""

    store_class = functools.partial(PostgresSegmentStore, analysers=("en", "zh"))


class TestPostgresVectors(InFiles, VectorStoreContract):
    """Vectors, with pgvector where the server has it."""

    store_class = PostgresVectorStore


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of an empty store."""
    address_of("LAZYRAG_POSTGRES")
    return url_of(tmp_path / "ranked")


@pytest.fixture
def file(url: str) -> Iterator[StoreFile]:
    """It, open."""
    with StoreFile(url) as opened:
        yield opened


@pytest.fixture
def store(file: StoreFile) -> PostgresSegmentStore:
    """A store with an empty collection."""
    ranked = PostgresSegmentStore(file, ["en"])
    ranked.create(C, SCHEMA)
    return ranked


def node(content: object, build: int = 1, **fields: object) -> Segment:
    """A segment of its own."""
    uid = f"{next(_numbers):08d}"
    return Segment(uid, build, "block", "d", "a.txt", "parent", 1, content, fields=fields)


TEXTS = st.one_of(st.sampled_from(HARD_TEXTS), st.text("ab.Axz'\\\ud800茶", max_size=4))
FIELDS = st.fixed_dictionaries(
    {
        "name": st.none() | TEXTS,
        "year": st.none() | st.integers(-2, 2),
        "groups": st.none() | st.lists(TEXTS, max_size=3).map(tuple),
        "numbers": st.none() | st.lists(st.integers(-2, 300), max_size=3).map(tuple),
    }
)
CONDITIONS = st.one_of(
    st.builds(Condition, st.just("name"), st.sampled_from(["eq", "ne", "contains", "lt"]), TEXTS),
    st.builds(Condition, st.just("groups"), st.just("contains"), TEXTS),
    st.builds(Condition, st.just("groups"), st.sampled_from(["in", "not in"]), st.lists(TEXTS)),
    st.builds(Condition, st.just("groups"), st.just("eq"), st.lists(TEXTS, max_size=2)),
    st.builds(Condition, st.just("numbers"), st.just("contains"), st.integers(-2, 300)),
    st.builds(Condition, st.just("groups"), st.just("in"), st.lists(st.none() | TEXTS)),
    st.builds(
        Condition, st.just("numbers"), st.just("in range"), st.tuples(*[st.integers(-2, 9)] * 2)
    ),
    st.builds(Condition, st.just("year"), st.sampled_from(["ge", "lt", "ne"]), st.integers(-2, 2)),
    st.builds(
        Condition, st.just("year"), st.just("in range"), st.tuples(*[st.integers(-2, 2)] * 2)
    ),
    st.builds(Condition, st.sampled_from(["name", "groups"]), st.just("exists"), st.booleans()),
)
FILTERS = st.recursive(
    CONDITIONS,
    lambda inner: (
        st.builds(And, inner, inner) | st.builds(Or, inner, inner) | st.builds(Not, inner)
    ),
    max_leaves=3,
)


def test_filters_mean_in_sql_what_they_mean_here(store: PostgresSegmentStore) -> None:
    """Whatever fields and filters hold, exactly the rows that the evaluator admits are found."""

    @settings(max_examples=60, deadline=None)
    @given(st.lists(FIELDS, min_size=1, max_size=6), st.lists(FILTERS, min_size=1, max_size=4))
    def check(fields: list[dict[str, object]], filters: list[Condition]) -> None:
        build = next(_numbers) + 10_000
        rows = [node("tea", build, **values) for values in fields]
        store.upsert(C, rows)
        for unbound in filters:
            bound = bind_filter(unbound, SCHEMA)
            keys = {row.key for row in rows if matches(bound, row.fields)}
            assert {key for key, _ in store.search_text(C, "en", ["tea"], 99, bound)} == keys
        store.delete_builds(C, [build])

    check()


def test_scores_are_bm25(store: PostgresSegmentStore) -> None:
    """Of the terms' frequencies in each row and in the rows, and of their lengths."""
    texts = ["tea", "tea tea green", "tea " * 40, "green cup of tea tea tea"]
    rows = [node(text) for text in texts]
    store.upsert(C, rows)
    counts = [Counter(text.replace("of", "").split()) for text in texts]
    ranking = dict(store.search_text(C, "en", ["tea", "green"], 9))
    assert ranking.keys() == {row.key for row in rows}
    # of rows for each term that they share
    mean = sum(sum(count.values()) * len(count & Counter(["tea", "green"])) for count in counts) / 6
    for row, count in zip(rows, counts, strict=True):
        expected = 0.0
        for term, rows_of_term in (("tea", 4), ("green", 2)):
            weight = math.log(1 + (4 - rows_of_term + 0.5) / (rows_of_term + 0.5))
            length = 0.25 + 0.75 * sum(count.values()) / mean
            expected += weight * count[term] / (count[term] + 1.5 * length)
        assert ranking[row.key] == pytest.approx(expected, rel=1e-6)
    frequent = [row.key for row in rows[:2]]
    assert sorted(frequent, key=ranking.__getitem__) == frequent


def test_a_text_that_is_larger_than_a_tsvector_is_found(store: PostgresSegmentStore) -> None:
    """By its first and last words, once; and one with a word of any length."""
    words = [f"word{number}x" for number in range(120_000)]
    large, long = node(" ".join(words)), node("a" * 5_000)
    store.upsert(C, [large, long])
    [(key, _)] = store.search_text(C, "en", [words[0], words[-1]], 9)
    assert key == large.key
    assert [key for key, _ in store.search_text(C, "en", ["a" * 5_000], 9)] == [long.key]
    store.upsert(C, [large._replace(content="tea")])
    assert store.search_text(C, "en", [words[0], words[-1]], 9) == []


def test_a_collection_of_an_earlier_release_is_not_ranked(file: StoreFile) -> None:
    """An error says so, since some of its rows would be missing; a dropped one leaves no table."""
    older = MapFileSegmentStore(file)
    older.create(C, SCHEMA)
    older.upsert(C, [node("green tea")])
    store = PostgresSegmentStore(file, ["en"])
    store.create(C, SCHEMA)
    with pytest.raises(UnsupportedError, match="build the group anew"):
        store.search_text(C, "en", ["tea"], 1)
    store.create("lr_newer", SCHEMA)
    store.drop("lr_newer")
    with file.reading() as connection:
        query = "SELECT count(*) FROM sqlite_master WHERE name LIKE 'terms%'"
        assert connection.execute(query).fetchone() == (0,)
