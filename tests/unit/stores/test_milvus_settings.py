"""The Milvus store's arguments, checked before anything is opened, and its rows as they are
written.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

from lazyrag import DataType, DocField
from lazyrag.errors import (
    ConfigError,
    MissingDependencyError,
    SchemaMismatchError,
    StoreError,
    UnknownKeywordError,
    UnsupportedError,
)
from lazyrag.stores.memory import MapVectorStore
from lazyrag.stores.milvus import MilvusVectorStore
from lazyrag.stores.milvus_client import MilvusConnection
from lazyrag.stores.milvus_encoding import Layout, decode_row, encode_rows, milvus_query, window_of
from lazyrag.stores.milvus_index import IndexSettings
from lazyrag.stores.protocol import VectorRow, VectorSchema, rank_rows, vector_stores
from lazyrag.testing.samples import FIELDS, SCHEMA
from lazyrag.types import SPARSE
from tests.hard_fields import SCHEMA as HARD_FIELDS
from tests.hard_fields import rows as hard_rows

DENSE = VectorSchema(4, "cosine", SCHEMA)
L2 = VectorSchema(4, "l2", SCHEMA)
SPARSE_SCHEMA = VectorSchema(SPARSE, "ip", SCHEMA)
SAMPLE = [
    {"embed_key": "vec1", "index_type": "HNSW", "metric_type": "COSINE"},
    {"embed_key": "vec2", "index_type": "SPARSE_INVERTED_INDEX", "metric_type": "IP"},
]


def _values(row, schema):
    """One row as Milvus keeps it."""
    [values] = encode_rows([row], schema)
    return values


def test_it_is_registered() -> None:
    """The name of spec 001 gives the class."""
    assert vector_stores["milvus"] is MilvusVectorStore


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("localhost:19530", "http://localhost:19530"),
        ("10.0.0.1:19530/", "http://10.0.0.1:19530"),
        ("[::1]:19530", "http://[::1]:19530"),
        ("https://tea.example:443", "https://tea.example:443"),
    ],
)
def test_an_address_is_a_server(uri: str, address: str) -> None:
    """A host with a port, or a URL, names a server."""
    connection = MilvusConnection(uri, "lazyrag", {})
    assert (connection.path, connection.address) == (None, address)


def test_a_path_is_a_file(tmp_path) -> None:
    """What ends in .db is a file, given as text or as a path."""
    path = tmp_path / "tea.db"
    assert (
        MilvusConnection(str(path), "lazyrag", {}).path
        == MilvusConnection(path, "lazyrag", {}).path
        == path
    )


@pytest.mark.parametrize(
    ("kwargs", "parts"),
    [
        ({"uri": "vectors"}, ["'vectors'", "localhost:19530", ".db"]),
        ({"uri": ""}, ["uri", "localhost:19530"]),
        ({"uri": 19530}, ["19530", "address"]),
        ({"db_name": "tea-time"}, ["'tea-time'", "letters, digits"]),
        ({"db_name": ""}, ["db_name"]),
        ({"client_kwargs": {"db_name": "x"}}, ["'db_name'", "argument of the store"]),
        ({"client_kwargs": {"timeout": 0}}, ["timeout", "> 0"]),
        ({"client_kwargs": [1]}, ["client_kwargs", "mapping"]),
        ({"index_kwargs": {"index_typ": "FLAT"}}, ["'index_typ'", "Did you mean 'index_type'"]),
        ({"index_kwargs": {"index_type": "HNSV"}}, ["'HNSV'", "Did you mean 'HNSW'"]),
        ({"index_kwargs": {"index_type": 1}}, ["'index_type'", "must be a text"]),
        ({"index_kwargs": {"metric_type": "COS"}}, ["'COS'", "Known: COSINE, IP, L2"]),
        ({"index_kwargs": {"params": 3}}, ["'params'", "mapping"]),
        ({"index_kwargs": "HNSW"}, ["'HNSW'", "mapping"]),
        ({"index_kwargs": [{"index_type": "HNSW"}]}, ["needs an 'embed_key'"]),
        ({"index_kwargs": [SAMPLE[0], SAMPLE[0]]}, ["two entries", "'vec1'"]),
    ],
)
def test_an_invalid_argument_is_refused_at_once(kwargs, parts) -> None:
    """Each wrong argument is a ConfigError that says what was given and what is allowed."""
    with pytest.raises(ConfigError) as caught:
        MilvusVectorStore(**{"uri": "tea.db", **kwargs})
    assert all(part in str(caught.value) for part in parts)


def test_an_unknown_argument_is_named() -> None:
    """With the nearest known one."""
    with pytest.raises(UnknownKeywordError, match="Did you mean 'db_name'"):
        MilvusVectorStore("tea.db", dbname="x")


def test_without_pymilvus_opening_says_what_to_install(monkeypatch, tmp_path) -> None:
    """The store can be made, and names the extra when it is opened."""
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(MissingDependencyError, match=r"\.\[milvus\]"):
        MilvusVectorStore(tmp_path / "tea.db").open()


def test_a_store_that_is_not_open_says_so() -> None:
    """Its methods raise a StoreError; closing it does no harm."""
    store = MilvusVectorStore("tea.db")
    store.close()
    with pytest.raises(StoreError, match=r"not open.*open\(\)"):
        store.count("lr_c")


def test_the_sample_of_the_specification_is_understood() -> None:
    """Each embed key gets its own index; another one gets the exact default of its kind."""
    settings = IndexSettings(SAMPLE)
    wanted = {
        "HNSW": VectorSchema(4, "cosine", {}, embed_key="vec1"),
        "SPARSE_INVERTED_INDEX": VectorSchema(SPARSE, "ip", {}, embed_key="vec2"),
        "FLAT": VectorSchema(4, "cosine", {}, embed_key="vec3"),
    }
    assert {kind: settings.choice(schema).type for kind, schema in wanted.items()} == {
        kind: kind for kind in wanted
    }
    assert not settings.are_exact


def test_exact_is_what_no_index_makes_approximate() -> None:
    """The defaults and FLAT are exact; an approximate index, or one that drops weights, is not."""
    exact = [
        None,
        {},
        [],
        {"index_type": "flat"},
        {"index_type": "SPARSE_WAND"},
        {"metric_type": "cosine"},
    ]
    assert all(IndexSettings(one).are_exact for one in exact)
    dropping = {"index_type": "SPARSE_INVERTED_INDEX", "params": {"drop_ratio_build": 0.2}}
    assert not any(
        IndexSettings(one).are_exact for one in ({"index_type": "IVF_FLAT"}, dropping, SAMPLE)
    )
    features = MilvusVectorStore("tea.db", index_kwargs={"index_type": "HNSW"}).features
    assert features == {"persistent", "sparse", "native vectors"}


@pytest.mark.parametrize(
    ("index_kwargs", "schema", "part"),
    [
        ({"metric_type": "IP"}, DENSE, "'COSINE'"),
        ({"metric_type": "COSINE"}, L2, "'L2'"),
        ({"index_type": "HNSW"}, SPARSE_SCHEMA, "sparse vectors"),
        ({"index_type": "SPARSE_WAND"}, DENSE, "dense vectors"),
    ],
)
def test_an_index_that_contradicts_the_schema_is_refused(index_kwargs, schema, part) -> None:
    """Another metric than the collection's, or an index for the other kind of vectors, is a
    ConfigError.
    """
    with pytest.raises(ConfigError, match=part):
        IndexSettings(index_kwargs).choice(schema)


@pytest.mark.parametrize(
    ("kind", "name"), [("HNSW", "ef"), ("DISKANN", "search_list"), ("SCANN", "reorder_k")]
)
def test_a_search_looks_as_deep_as_it_asks(kind: str, name: str) -> None:
    """What Milvus wants to be at least the number of rows is raised to it; the user's larger value
    stays.
    """
    choice = IndexSettings({"index_type": kind, "search_params": {name: 500}}).choice(DENSE)
    assert (choice.params_for(10)[name], choice.params_for(1000)[name]) == (500, 1000)


def test_a_layout_is_read_back() -> None:
    """What a collection keeps of its schema and index says all of both; another text is not taken
    for one.
    """
    layout = Layout(DENSE, "HNSW", {"M": 16})
    assert Layout.parse(layout.text) == layout
    assert [
        Layout.parse(text) for text in ("", "tea", "[]", '{"lazyrag": {}}', '{"lazyrag": 1}')
    ] == [None] * 5


def test_another_layout_is_refused() -> None:
    """A collection of an earlier version is a SchemaMismatchError that names it and says what to
    do.
    """
    earlier = Layout(DENSE, "FLAT", {}).text.replace('"layout": 2, ', "")
    with pytest.raises(
        SchemaMismatchError, match=r"'lr_c' in Milvus has rows of layout 1.*Drop it and read"
    ):
        Layout.parse(earlier, "lr_c")


@pytest.mark.sample(8)
@pytest.mark.parametrize("fields", hard_rows(), ids=lambda fields: repr(fields)[:20])
@pytest.mark.parametrize("left_out", ["", "name", "numbers"])
def test_hard_fields_come_back_as_they_were(fields, left_out) -> None:
    """In value, type and sign of zero: of every type, missing or None, undeclared."""
    schema = VectorSchema(4, "cosine", HARD_FIELDS)
    told = {name: value for name, value in fields.items() if name != left_out} | {"pages": 7}
    if len(told.get("name") or "") > 20_000:
        told["name"] = None
    told["names"] = told["names"] and tuple(one for one in told["names"] if len(one) < 20_000)
    read = decode_row(_values(VectorRow("k", np.ones(4, np.float32), told), schema), schema)
    assert {name: repr(value) for name, value in read.fields.items()} == {
        name: repr(value) for name, value in told.items()
    }


def test_what_filters_read_is_not_written_twice() -> None:
    """A row of declared fields has nothing in its own column, and a short text for each field."""
    schema = VectorSchema(
        4, "cosine", {"year": DocField(DataType.INT64), "author": DocField(DataType.VARCHAR)}
    )
    row = VectorRow("0a-1", np.ones(4, np.float32), {"year": 1900, "author": "lu yu"})
    values = _values(row, schema)
    del values["vector"]
    assert values == {"key": "0a.j1", "row": "", "f0": "slu.Wx1u", "f1": "d76c"}


@pytest.mark.sample(5)
@pytest.mark.parametrize("fields", [*FIELDS, {}, {"author": "\ud800 half"}], ids=repr)
def test_rows_come_back_equal(fields) -> None:
    """Keys, float32 values and fields, whatever they hold."""
    vector = np.random.default_rng(3).normal(size=4).astype(np.float32)
    row = VectorRow("键 ' \" \\ \ud800", vector, fields)
    read = decode_row(_values(row, DENSE), DENSE)
    assert (read.key, dict(read.fields)) == (row.key, dict(fields))
    assert read.vector.tobytes() == vector.tobytes()


@pytest.mark.parametrize(
    ("schema", "vector"),
    [(DENSE, np.array([1, 0, 2, 3], np.float32)), (SPARSE_SCHEMA, {3: 0.5})],
    ids=["dense", "sparse"],
)
def test_a_ranked_row_is_read_without_its_fields(schema, vector) -> None:
    """A search that needs no fields reads the vector alone."""
    values = _values(VectorRow("k", vector, FIELDS[0]), schema)
    read = decode_row({name: values[name] for name in ("key", "vector")}, schema)
    assert (read.key, dict(read.fields)) == ("k", {})
    assert np.array_equal(read.vector, vector)


@pytest.mark.parametrize(
    ("vector", "aside"),
    [
        ({1: 0.5, 2**32 - 2: 1.0}, 0),
        ({}, 1),
        ({1: -0.5}, 1),
        ({2**32 - 1: 1.0}, 1),
        ({2**63 + 5: 1.0}, 1),
        ({1: 1e-30}, 1),
        ({1: 1e30}, 1),
    ],
)
def test_sparse_rows_come_back_equal_and_odd_ones_are_aside(vector, aside) -> None:
    """What Milvus refuses, or ranks otherwise than we do, is kept beside a stand-in."""
    values = _values(VectorRow("k", vector, FIELDS[0]), SPARSE_SCHEMA)
    assert values["row"].startswith("1") == bool(aside)
    assert values["vector"] == (vector if not aside else {0: 1.0})
    assert decode_row(values, SPARSE_SCHEMA).vector == vector


def test_dense_vectors_without_length_are_aside_under_the_cosine_only() -> None:
    """Milvus 2.3 does not find them by the cosine; by the other metrics it does."""
    row = VectorRow("k", np.zeros(4, np.float32), {})
    assert (_values(row, DENSE)["row"][:1], _values(row, L2)["row"][:1]) == ("1", "")


@pytest.mark.parametrize("length", [1e20, 1e-20])
def test_vectors_beyond_float32_sums_are_refused(length: float) -> None:
    """Squares of such lengths overflow, or vanish: an UnsupportedError names the row."""
    with pytest.raises(UnsupportedError, match=r"'k'.*length"):
        _values(VectorRow("k", np.full(4, length, np.float32), {}), DENSE)


@pytest.mark.parametrize(
    "row",
    [VectorRow("k" * 70_000, np.ones(4), {}), VectorRow("k", np.ones(4), {"a": "茶" * 30_000})],
)
def test_what_is_longer_than_a_text_of_milvus_is_refused(row: VectorRow) -> None:
    """Nothing is cut off without a word."""
    with pytest.raises(StoreError, match="at most 65535"):
        _values(row, VectorSchema(4, "cosine", {"a": DocField(DataType.VARCHAR)}))


def test_queries_that_milvus_cannot_rank_rows_for() -> None:
    """Those without length or beyond float32 under the cosine, and sparse ones with weights below
    0.
    """
    zero, long = np.zeros(4, np.float32), np.full(4, 1e25, np.float32)
    assert milvus_query(zero, DENSE) is milvus_query(long, DENSE) is milvus_query(long, L2) is None
    assert milvus_query(zero, L2) is zero
    assert milvus_query({1: -1.0}, SPARSE_SCHEMA) is None
    assert milvus_query({1: 1.0, 2**40: -1.0}, SPARSE_SCHEMA) == {1: 1.0}


def test_rows_that_are_ranked_here_are_in_the_order_of_a_store_in_memory() -> None:
    """By distances that are too small to show in the scores."""
    tiny = np.float32(1.1754944e-38)
    vectors = np.array([[0, tiny, tiny], [tiny, tiny, tiny]], np.float32)
    rows = [VectorRow(name, vector, {}) for name, vector in zip("ab", vectors, strict=True)]
    schema = VectorSchema(3, "l2", {})
    store = MapVectorStore()
    store.open()
    store.create("c", schema)
    store.upsert("c", rows)
    for topk in (1, 2):
        rankings = store.search("c", vectors, topk)
        assert [rank_rows(query, topk, schema, rows) for query in vectors] == rankings


def test_a_window_is_no_longer_than_messages_and_milvus_allow() -> None:
    """At most 16,384 rows, fewer of long vectors, never none."""
    windows = [
        window_of(VectorSchema(dimension, "ip", {})) for dimension in (2, 1024, 30_000, 10**8)
    ]
    assert windows[0] == 16_384
    assert windows == sorted(windows, reverse=True)
    assert windows[-1] == 1


def test_an_unknown_consistency_is_refused() -> None:
    """With those that Milvus has."""
    with pytest.raises(ConfigError, match=r"consistency.*Bounded"):
        MilvusVectorStore("localhost:19530", consistency="Linear")
