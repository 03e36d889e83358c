"""What the chromadb store checks and computes without Chroma; tests/live has the rest."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DataType, DocField
from lazyrag.data.fields import make_schema
from lazyrag.data.filters import And, Condition, Not, Or
from lazyrag.errors import ConfigError, SchemaMismatchError, UnsupportedError
from lazyrag.stores.chroma import ChromaVectorStore
from lazyrag.stores.chroma_client import server_address
from lazyrag.stores.chroma_encoding import (
    decode_rows,
    encode_rows,
    encode_value,
    read_schema_metadata,
    schema_metadata,
    split_filter,
    unit_vectors,
)
from lazyrag.stores.protocol import (
    ExactWhenSmall,
    NativeVectors,
    Pushed,
    VectorRow,
    VectorSchema,
    vector_stores,
)
from lazyrag.types import SPARSE
from tests.hard_fields import SCHEMA as HARD_FIELDS
from tests.hard_fields import rows as hard_rows

SCHEMA = make_schema(
    {
        "author": DocField(DataType.VARCHAR),
        "year": DocField(DataType.INT32),
        "day": DocField(DataType.DATE),
        "tags": DocField(DataType.ARRAY, element_type=DataType.VARCHAR),
    }
)


def test_it_is_registered():
    """The name of spec 001 is the store's."""
    assert vector_stores["chromadb"] is ChromaVectorStore


@pytest.mark.parametrize(
    ("kwargs", "features"),
    [
        ({"uri": "localhost:8000"}, {"persistent", "shared"}),
        ({"dir": "vectors"}, {"persistent"}),
        ({}, set()),
    ],
)
def test_features_depend_on_the_place(kwargs, features):
    """A server is shared, a folder lasts, memory does neither; small collections are exact in all
    three.
    """
    store = ChromaVectorStore(**kwargs, exact_rows=500)
    assert store.features == features | {"exact when small", "native vectors"}
    assert isinstance(store, ExactWhenSmall)
    assert isinstance(store, NativeVectors)
    assert store.exact_rows == 500


@pytest.mark.parametrize(
    ("kwargs", "told"),
    [
        ({"uri": "localhost:8000", "dir": "vectors"}, ["uri", "dir", "Give one of them"]),
        ({"uri": 5}, ["int", "localhost:8000"]),
        ({"uri": "ftp://localhost"}, ["ftp://localhost", "https://host:8000"]),
        ({"uri": "localhost:many"}, ["localhost:many"]),
        ({"uri": "http://"}, ["http:"]),
        ({"uri": "https://h", "client_kwargs": {"ssl": False}}, ["ssl=False", "Leave ssl out"]),
        ({"uri": "h", "client_kwargs": {"header": {}}}, ["'header'", "Did you mean 'headers'?"]),
        (
            {"dir": "d", "client_kwargs": {"headers": {}}},
            ["'headers'", "Known: database, settings, tenant"],
        ),
        ({"dir": "d", "client_kwargs": ["headers"]}, ["client_kwargs", "mapping"]),
        (
            {"index_kwargs": {"hnsw": {"ef_contruction": 5}}},
            ["'ef_contruction'", "Did you mean 'ef_construction'?"],
        ),
        ({"index_kwargs": {"M": 16}}, ["'M'", "max_neighbors"]),
        ({"index_kwargs": {"hnsw": {}, "space": "l2"}}, ["nothing beside it"]),
        ({"index_kwargs": {"hnsw": 5}}, ["'hnsw'", "mapping"]),
        ({"index_kwargs": "hnsw"}, ["'hnsw'", "mapping"]),
        ({"index_kwargs": {"ef_search": 0}}, ["ef_search", "0"]),
        ({"index_kwargs": {"ef_search": True}}, ["ef_search", "True"]),
        ({"index_kwargs": {"space": "dot"}}, ["'dot'", "cosine, ip, l2"]),
        ({"index_kwargs": {"space": ["l2"]}}, ["['l2']", "cosine, ip, l2"]),
        ({"index_kwargs": {"resize_factor": 0.5}}, ["resize_factor", "0.5"]),
        ({"exact_rows": -1}, ["exact_rows", "-1"]),
        ({"timeout_s": 0}, ["timeout_s", "0"]),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_opened(kwargs, told):
    """A ConfigError that says what was given and what is allowed."""
    with pytest.raises(ConfigError) as caught:
        ChromaVectorStore(**kwargs)
    assert [part for part in told if part not in str(caught.value)] == []


def test_a_message_shows_no_credentials():
    """An address with a password in it is refused without repeating that."""
    with pytest.raises(ConfigError) as caught:
        ChromaVectorStore("https://me:secret@host:8000")
    assert "secret" not in str(caught.value)
    assert "host:8000" in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "ssl", "expected"),
    [
        ("localhost:8000", None, "http://localhost:8000"),
        ("10.0.0.1", None, "http://10.0.0.1:8000"),
        ("h:9", True, "https://h:9"),
        ("https://chroma.example.com", None, "https://chroma.example.com:443"),
        ("http://h:9/behind/a/proxy/", None, "http://h:9/behind/a/proxy"),
        ("[::1]:8000", None, "http://[::1]:8000"),
    ],
)
def test_addresses(uri, ssl, expected):
    """Spec 001's ip:port, and whole URLs."""
    assert server_address(uri, ssl) == expected


def test_sparse_vectors_and_another_space_are_refused_before_anything_is_asked():
    """A closed store says so: an UnsupportedError, and a ConfigError that names both metrics."""
    store = ChromaVectorStore(index_kwargs={"hnsw": {"space": "l2"}})
    with pytest.raises(UnsupportedError, match="sparse"):
        store.create("lr_c", VectorSchema(SPARSE, "ip", {}))
    with pytest.raises(ConfigError, match=r"space='l2'.*'cosine'"):
        store.create("lr_c", VectorSchema(2, "cosine", {}))


@pytest.mark.parametrize(
    ("filter_", "native"),
    [
        (Condition("year", "ge", 2000), {"f_year": {"$gte": 2000}}),
        (
            Not(Condition("year", "ge", 2000)),
            {"$or": [{"f_year": {"$lt": 2000}}, {"lr_missing": {"$contains": "year"}}]},
        ),
        (Condition("author", "ne", "绿"), {"f_author": {"$ne": '"\\u7eff"'}}),
        (Condition("author", "in", []), {"lr_rest": {"$eq": ""}}),
        (Condition("author", "not in", [None]), {"lr_missing": {"$not_contains": "author"}}),
        (Condition("day", "lt", "2024-05-01"), {"f_day": {"$lt": 739007}}),
        (
            Condition("tags", "in", ["a", "b"]),
            {"$or": [{"f_tags": {"$contains": '"a"'}}, {"f_tags": {"$contains": '"b"'}}]},
        ),
        (
            And(Condition("year", "eq", 1), Condition("author", "exists")),
            {"$and": [{"f_year": {"$eq": 1}}, {"lr_missing": {"$not_contains": "author"}}]},
        ),
    ],
    ids=repr,
)
def test_what_chroma_can_say(filter_, native):
    """In its own words; nothing is left to us."""
    assert split_filter(filter_, SCHEMA) == Pushed(native)


@pytest.mark.parametrize(
    "filter_",
    [
        Condition("author", "contains", "a"),
        Condition("author", "gt", "a"),
        Condition("tags", "eq", ["a"]),
        Condition("unknown", "eq", 1),
        Condition("year", "in", range(5001)),
        Or(*(Condition("year", "eq", at) for at in range(300))),
    ],
    ids=lambda one: repr(one)[:40],
)
def test_what_chroma_cannot_say_is_ours(filter_):
    """Parts of texts, their order, whole arrays; and what is too large for it."""
    assert split_filter(filter_, SCHEMA) == Pushed(rest=filter_)
    both = split_filter(And(filter_, Condition("day", "exists")), SCHEMA)
    assert both.rest is not None


@given(st.text(), st.text())
def test_a_text_never_changes_the_shape_of_a_filter(one, other):
    """Whatever it holds, it is one value, in ASCII; different texts are different values."""
    natives = [
        split_filter(Condition("author", "eq", text), SCHEMA).native for text in (one, other)
    ]
    values = [native["f_author"]["$eq"] for native in natives]
    assert all(value.isascii() and value.isprintable() for value in values)
    assert (values[0] == values[1]) == (one == other)


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_rows_survive_their_way_through_metadata(metric):
    """Vectors bit for bit, whatever length they have; those that Chroma would not give back have
    their bits beside.
    """
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(6, 8)).astype(np.float32)
    vectors[1] /= np.linalg.norm(vectors[1])
    vectors[2] = 0.0
    vectors[3] *= 1e30
    vectors[4] *= 1e-30
    rows = [
        VectorRow(f"k{at}", one, {"year": at, "tags": ("a", "b")}) for at, one in enumerate(vectors)
    ]
    units, metadata = encode_rows(rows, VectorSchema(8, metric, SCHEMA))
    kept = [at for at, one in enumerate(metadata) if "vector" in json.loads(one["lr_rest"])]
    assert kept == ([0, 3, 4, 5] if metric == "cosine" else [])
    for row, found in zip(
        rows, decode_rows([row.key for row in rows], units, metadata, SCHEMA), strict=True
    ):
        assert (found.key, found.vector.tobytes(), found.fields) == (
            row.key,
            row.vector.tobytes(),
            row.fields,
        )
    assert np.array_equal(unit_vectors(vectors, metric), units)
    if metric == "cosine":
        assert np.linalg.norm(units, axis=1) == pytest.approx([1, 1, 0, 1, 1, 1], abs=1e-6)


_ANY = (
    st.text(st.characters(codec=None), max_size=4)
    | st.floats()
    | st.integers(-(2**70), 2**70)
    | st.booleans()
)
_UNUSUAL = st.dictionaries(
    st.sampled_from(["name", "public", "names", "pages", "页"]),
    st.none()
    | _ANY.filter(lambda one: not isinstance(one, str))
    | st.lists(_ANY, max_size=3).map(tuple),
)


@given(
    st.sampled_from(hard_rows()), st.lists(st.sampled_from([*HARD_FIELDS]), unique=True), _UNUSUAL
)
def test_fields_come_back_as_they_were(fields, left_out, unusual):
    """In value, type and sign of zero: of every type, missing or None, undeclared, of another type
    than declared.
    """
    given_fields = {name: value for name, value in fields.items() if name not in left_out} | unusual
    schema = VectorSchema(2, "cosine", HARD_FIELDS)
    row = VectorRow("k", np.array([1.0, 0.0], np.float32), given_fields)
    units, metadata = encode_rows([row], schema)
    there = [{name: value for name, value in one.items() if value is not None} for one in metadata]
    [found] = decode_rows(["k"], units, there, HARD_FIELDS)
    assert {name: repr(value) for name, value in found.fields.items()} == {
        name: repr(value) for name, value in given_fields.items()
    }


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_floats_are_integers_in_their_order(one, other):
    """Chroma reads many floats as their neighbours, integers as they are."""
    size = DocField(DataType.DOUBLE)
    low, high = encode_value(size, one), encode_value(size, other)
    assert (low < high, low == high) == (one < other, one == other)
    assert -(2**63) <= low < 2**63


def test_what_filters_read_is_not_written_twice():
    """A row of declared fields has one value for each; another's JSON holds what these do not
    tell.
    """
    fields = [
        {"author": "a", "year": 1},
        {"author": "a", "year": 1, "tags": ("x", "y"), "pages": 7},
    ]
    rows = [
        VectorRow(f"k{at}", np.array([1.0, 0.0], np.float32), one) for at, one in enumerate(fields)
    ]
    _, [plain, more] = encode_rows(rows, VectorSchema(2, "cosine", SCHEMA))
    assert {
        name: value for name, value in plain.items() if value is not None and name != "lr_missing"
    } == {
        "f_author": '"a"',
        "f_year": 1,
    }
    assert json.loads(more["lr_rest"]) == {"fields": {"tags": ["x", "y"], "pages": 7}}


def test_another_layout_is_refused():
    """A collection of an earlier version is a SchemaMismatchError that names it and says what to
    do.
    """
    earlier = {"lazyrag": json.dumps({"dimension": 2, "metric": "l2", "fields": "{}"})}
    with pytest.raises(
        SchemaMismatchError, match=r"'lr_c' in Chroma has rows of layout 1.*Drop it and read"
    ):
        read_schema_metadata(earlier, "lr_c")


def test_a_schema_survives_its_way_through_metadata():
    """Fields of every type, with defaults and sizes; what has no schema of ours has none."""
    schema = VectorSchema(
        8,
        "ip",
        make_schema(
            {
                "tags": DocField(
                    DataType.ARRAY,
                    element_type=DataType.DATE,
                    default_value=["2024-05-01"],
                    max_size=3,
                ),
                "author": DocField(DataType.VARCHAR, max_size=5, default_value=" "),
            }
        ),
    )
    assert read_schema_metadata(schema_metadata(schema)) == schema
    assert read_schema_metadata(None) is None
