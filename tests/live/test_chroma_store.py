"""What the chromadb vector store promises beyond the contract, on the real thing in all three
places.
"""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lazyrag import DataType, DocField
from lazyrag.data.fields import make_schema
from lazyrag.data.filters import And, Condition, Not, Or, bind_filter, matches
from lazyrag.errors import ConfigError, SchemaMismatchError, StoreConnectionError, StoreError
from lazyrag.stores.chroma import ChromaVectorStore
from lazyrag.stores.memory import MapVectorStore
from lazyrag.stores.protocol import VectorRow, VectorSchema
from tests.live.test_chroma import new_database

C = "lr_vectors"
TEXTS = (
    "",
    "plain",
    "quote ' and \" and `",
    "back\\slash \\u0041",
    "$contains",
    "绿茶",
    "🍵",
    "a\0b",
    "half \ud800",
    "5",
)
NUMBERS = {
    DataType.INT32: (0, 1, -1, 5, 2**31 - 1, -(2**31)),
    DataType.INT64: (0, 1, 2**53 + 1, 2**63 - 1, -(2**63)),
    DataType.FLOAT: (0.0, -0.0, 0.5, 5.0, float(np.float32(0.1)), float(np.finfo(np.float32).max)),
    DataType.DOUBLE: (0.0, 0.1, 5.0, 1e-310, -1.7e308, math.pi),
}
VALUES = {
    **NUMBERS,
    DataType.BOOLEAN: (True, False),
    DataType.VARCHAR: TEXTS,
    DataType.DATE: ("0001-01-01", "1999-12-31", "2024-05-01", "9999-12-31"),
}
SCHEMA = make_schema(
    {kind.value: DocField(kind) for kind in VALUES}
    | {f"many_{kind.value}": DocField(DataType.ARRAY, element_type=kind) for kind in VALUES}
    | {"作者": DocField(DataType.VARCHAR)}
)
MANY_EXAMPLES = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module", params=["memory", "folder", "server"])
def position(request, tmp_path_factory):
    """What a store is made with in each of the three places."""
    return arguments(request, tmp_path_factory)


@pytest.fixture(params=["folder", "server"])
def lasting_place(request, tmp_path_factory):
    """The same, where several stores can have the rows in common."""
    return arguments(request, tmp_path_factory)


def arguments(request, tmp_path_factory):
    """What a store is made with in the place that a fixture's parameter names."""
    if request.param == "server":
        address = request.getfixturevalue("chroma_address")
        return {"uri": address, "client_kwargs": {"database": new_database(address)}}
    return {"dir": tmp_path_factory.mktemp("chroma")} if request.param == "folder" else {}


@contextlib.contextmanager
def opened(position, **more):
    """An open store, closed at the end."""
    store = ChromaVectorStore(**position, **more)
    store.open()
    try:
        yield store
    finally:
        store.close()


@pytest.fixture(scope="module")
def store(position):
    """An open store."""
    with opened(position) as store:
        yield store


def fresh(store, dimension=2, metric="cosine", fields=None):
    """An empty collection in place of the one before."""
    store.drop(C)
    store.create(C, VectorSchema(dimension, metric, {} if fields is None else fields))


def rows_of(vectors, fields=None) -> list[VectorRow]:
    """A row for each vector."""
    return [
        VectorRow(f"k{at:06d}", one, {} if fields is None else fields[at])
        for at, one in enumerate(vectors)
    ]


_fields = st.fixed_dictionaries(
    {},
    optional={
        kind.value: st.one_of(st.none(), st.sampled_from(values)) for kind, values in VALUES.items()
    }
    | {
        f"many_{kind.value}": st.one_of(
            st.none(), st.lists(st.sampled_from(values), max_size=3).map(tuple)
        )
        for kind, values in VALUES.items()
    }
    | {"作者": st.sampled_from(TEXTS)},
)


def _conditions():
    """Conditions on every field that suit its type."""
    made = []
    for kind, values in VALUES.items():
        one = st.sampled_from(values)
        name, many = st.just(kind.value), st.just(f"many_{kind.value}")
        perhaps = st.one_of(st.none(), one)
        made += [
            st.builds(Condition, name, st.sampled_from(["eq", "ne"]), perhaps),
            st.builds(
                Condition,
                st.one_of(name, many),
                st.sampled_from(["in", "not in"]),
                st.lists(perhaps, max_size=3),
            ),
            st.builds(Condition, st.one_of(name, many), st.just("exists"), st.booleans()),
            st.builds(Condition, many, st.just("contains"), one),
            st.builds(Condition, many, st.sampled_from(["eq", "ne"]), st.lists(one, max_size=2)),
        ]
        if kind is not DataType.BOOLEAN:
            made.append(st.builds(Condition, name, st.sampled_from(["gt", "ge", "lt", "le"]), one))
    made.append(
        st.builds(
            Condition,
            st.sampled_from(["varchar", "作者"]),
            st.just("contains"),
            st.sampled_from(TEXTS),
        )
    )
    return st.one_of(made)


_filters = st.recursive(
    _conditions(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: And(*parts)),
        st.lists(inner, max_size=3).map(lambda parts: Or(*parts)),
        inner.map(Not),
    ),
    max_leaves=6,
)


def _types(fields):
    return {name: type(value) for name, value in fields.items()}


@MANY_EXAMPLES
@given(
    fields=st.lists(_fields, min_size=1, max_size=12),
    filters=st.lists(_filters, min_size=5, max_size=20),
)
def test_any_filter_means_what_the_reference_says(store, fields, filters):
    """Fields of every type come back as they were, and a filter lets the rows through that
    `matches` names.
    """
    fresh(store, fields=SCHEMA)
    rows = rows_of(np.ones((len(fields), 2), np.float32), fields)
    store.upsert(C, rows)
    read = store.get(C, [row.key for row in rows])
    assert [(row.fields, _types(row.fields)) for row in read] == [
        (one, _types(one)) for one in fields
    ]
    for one in filters:
        bound = bind_filter(one, SCHEMA)
        [found] = store.search(C, np.ones((1, 2), np.float32), 100, bound)
        assert [key for key, _ in found] == [
            row.key for row in rows if matches(bound, row.fields)
        ], bound


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
@MANY_EXAMPLES
@given(
    vectors=hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 20), st.just(3)),
        elements=st.floats(-(2.0**100), 2.0**100, width=32)
        | st.sampled_from([0.0, -0.0, 1.0, 1e-40, 0.6, -0.8]),
    )
)
def test_vectors_come_back_bit_for_bit_and_are_ranked_as_in_memory(store, metric, vectors):
    """Of any length: none, one, tiny, or beyond what float32 can square; the map store gives the
    same rankings.
    """
    reference = MapVectorStore()
    rows = rows_of(vectors)
    for one in (store, reference):
        fresh(one, 3, metric)
        one.upsert(C, rows)
    read = store.get(C, [row.key for row in rows])
    assert [row.vector.tobytes() for row in read] == [row.vector.tobytes() for row in rows]
    near = np.concatenate([vectors[:3], np.array([[1, 0, 0], [0.5, 2, -1]], np.float32)])
    for topk in (1, 4, 100):
        assert store.search(C, near, topk) == reference.search(C, near, topk)


@pytest.mark.parametrize(("metric", "length", "spread"), [("ip", 1e-5, 1.0), ("cosine", 1.0, 0.05)])
def test_rankings_are_exact_where_chroma_s_distances_are_not(store, metric, length, spread):
    """Products that vanish beside the 1 that Chroma takes them from; lengths that are nearly 1, and
    do not count.
    """
    rng = np.random.default_rng(9)
    vectors = np.concatenate([np.ones((300, 1)), 1e-3 * rng.normal(size=(300, 7))], axis=1)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = (length * (1 + spread * rng.random((300, 1))) * vectors).astype(np.float32)
    reference = MapVectorStore()
    for one in (store, reference):
        fresh(one, 8, metric)
        one.upsert(C, rows_of(vectors))
    near = np.full((1, 8), length, np.float32)
    assert store.search(C, near, 10) == reference.search(C, near, 10)


@pytest.mark.parametrize("exact_rows", [0, 12_000])
def test_more_rows_than_go_into_a_call(position, exact_rows):
    """12,000 rows are written, read, paged, found and deleted, though Chroma takes 5,461 at
    once.
    """
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(12_000, 4)).astype(np.float32)
    rows = rows_of(vectors, [{"year": at % 1000} for at in range(12_000)])
    schema = make_schema({"year": DocField(DataType.INT32)})
    reference = MapVectorStore()
    with opened(position, exact_rows=exact_rows) as store:
        for one in (store, reference):
            fresh(one, 4, "l2", schema)
            one.upsert(C, rows[::-1])
        assert store.count(C) == 12_000
        assert [row.key for row in store.get(C, [row.key for row in rows])] == [
            row.key for row in rows
        ]
        few, most = Condition("year", "eq", 7), Condition("year", "ne", 7)
        assert store.search(C, vectors[:3], 20, few) == reference.search(C, vectors[:3], 20, few)
        if exact_rows:
            assert store.search(C, vectors[:3], 20, most) == reference.search(
                C, vectors[:3], 20, most
            )
        [found], [expected] = store.search(C, vectors[:1], 10), reference.search(C, vectors[:1], 10)
        # beyond exact_rows some may be missing
        assert len(set(found) & set(expected)) >= (10 if exact_rows else 9)
        assert found == sorted(found, key=lambda pair: (-pair[1], pair[0]))
        assert store.delete(C, keys=[row.key for row in rows[:11_000]]) == 11_000
        assert [row.key for row in store.scan(C, limit=5000)] == [row.key for row in rows[11_000:]]


def test_filters_too_large_for_chroma_are_ours(store):
    """Thousands of values, hundreds of parts, dozens of levels: as large as Chroma is given them,
    and larger.
    """
    schema = make_schema({"year": DocField(DataType.INT32)})
    fresh(store, fields=schema)
    rows = rows_of(np.ones((30, 2), np.float32), [{"year": at} for at in range(30)])
    store.upsert(C, rows)

    def nested(levels):
        filter_ = Condition("year", "eq", 3)
        for at in range(levels):
            filter_ = Or(
                And(filter_, Condition("year", "lt", 20)), Condition("year", "eq", 50 + at)
            )
        return filter_

    filters = [Condition("year", "in", range(10, count)) for count in (5_000, 60_000)]
    filters += [Not(Condition("year", "in", range(10, count))) for count in (5_000, 60_000)]
    filters += [
        Or(*(Condition("year", "eq", at) for at in range(10, count))) for count in (200, 3_000)
    ]
    filters += [
        And(*(Condition("year", "ne", at) for at in range(10, count))) for count in (200, 3_000)
    ]
    filters += [nested(levels) for levels in (5, 6, 40, 100)]
    for one in filters:
        expected = [row.key for row in rows if matches(one, row.fields)]
        assert 0 < len(expected) < len(rows)
        [found] = store.search(C, np.ones((1, 2), np.float32), 100, one)
        assert [key for key, _ in found] == expected


def test_a_scan_sees_what_others_write_meanwhile(lasting_place):
    """Keys are remembered between pages, but not if another store has added or deleted rows."""
    with opened(lasting_place) as store, opened(lasting_place) as other:
        fresh(store)
        rows = rows_of(np.eye(2, dtype=np.float32).repeat(10, 0))
        store.upsert(C, rows[::2])
        first = store.scan(C, limit=3)
        other.upsert(C, rows[1::2])
        assert [row.key for row in store.scan(C, after=first[-1].key, limit=3)] == [
            row.key for row in rows[5:8]
        ]
        other.delete(C, keys=[row.key for row in rows[8:10]])
        assert [row.key for row in store.scan(C, after=rows[7].key, limit=3)] == [
            row.key for row in rows[10:13]
        ]
        other.delete(C, keys=[rows[13].key])
        other.upsert(C, [VectorRow("zz", rows[0].vector)])
        # As many as before, but of those that were to come next one is gone.
        assert [row.key for row in store.scan(C, after=rows[12].key, limit=100)] == [
            *(row.key for row in rows[14:]),
            "zz",
        ]


def test_a_collection_made_anew_by_another_store_is_found(lasting_place):
    """A store that knew the old one works with the new one, whose vectors are longer; dropped, it
    is an error.
    """
    with opened(lasting_place) as store, opened(lasting_place) as other:
        fresh(store)
        store.upsert(C, rows_of(np.ones((3, 2), np.float32)))
        fresh(other, 5)
        assert store.count(C) == 0
        with pytest.raises(SchemaMismatchError, match="5"):
            store.upsert(C, rows_of(np.ones((3, 2), np.float32)))
        store.upsert(C, rows_of(np.ones((3, 5), np.float32)))
        assert [len(one) for one in other.search(C, np.ones((1, 5), np.float32), 9)] == [3]
        other.drop(C)
        for use in (
            store.count,
            store.scan,
            lambda name: store.get(name, ["a"]),
            lambda name: store.upsert(name, []),
        ):
            with pytest.raises(StoreError, match=r"no collection 'lr_vectors'.*Create it first"):
                use(C)


def test_another_schema_is_refused(store):
    """Another metric, dimension or field for a collection that is there, which Chroma itself would
    not notice.
    """
    schema = VectorSchema(2, "cosine", make_schema(None))
    store.drop(C)
    store.create(C, schema)
    store.create(C, schema)
    others = [
        VectorSchema(3, "cosine", schema.fields),
        VectorSchema(2, "ip", schema.fields),
        VectorSchema(2, "cosine", SCHEMA),
    ]
    for other in others:
        with pytest.raises(SchemaMismatchError, match=C):
            store.create(C, other)


def test_a_collection_of_somebody_else_is_left_alone(store):
    """One without our schema is neither read nor written."""
    store.drop(C)
    name = store._name(C)
    store._connection.run(lambda client: client.create_collection(name, embedding_function=None))
    for use in (store.count, lambda name: store.create(name, VectorSchema(2, "cosine", {}))):
        with pytest.raises(SchemaMismatchError, match="not made by lazyrag"):
            use(C)
    store.drop(C)


def test_rows_inherit_no_lists_of_a_dropped_collection(store):
    """Chroma gives the lists of dropped rows to new ones (chroma-core/chroma#7594): ours set each
    of their keys.
    """
    schema = make_schema(
        {
            "tags": DocField(DataType.ARRAY, element_type=DataType.VARCHAR),
            "year": DocField(DataType.INT32),
        }
    )
    fresh(store, fields=schema)
    store.upsert(C, rows_of(np.eye(2), [{"tags": ("old", "older")}] * 2))
    fresh(store, fields=schema)
    new = [{"tags": (), "year": 2024}, {"tags": ("new",), "year": 2025}]
    store.upsert(C, rows_of(np.eye(2), new))
    found = [
        {name: value for name, value in row.fields.items() if name in schema}
        for row in store.scan(C)
    ]
    assert [{name: row[name] for name in ("tags", "year")} for row in found] == new


def test_settings_of_the_graph_reach_chroma(position):
    """Both ways to write them; the space is the metric, and Chroma's cosine is an inner product of
    unit vectors.
    """
    flat = {"space": "cosine", "ef_construction": 200}
    for index_kwargs in (flat, {"hnsw": flat}):
        with opened(position, index_kwargs=index_kwargs) as store:
            fresh(store)
            handle = store._connection.run(lambda client: client.get_collection(store._name(C)))
            graph = handle.configuration_json["hnsw"]
            assert (graph["ef_construction"], graph["space"]) == (200, "ip")
            with pytest.raises(ConfigError, match=r"space='cosine'.*'l2'"):
                store.create("lr_other", VectorSchema(2, "l2", {}))


def test_stores_in_memory_have_nothing_in_common():
    """Chroma has one memory for the whole process; each of our stores sees its own collections,
    until it is closed.
    """
    with opened({}) as store, opened({}) as other:
        fresh(store)
        with pytest.raises(StoreError, match="no collection"):
            other.count(C)
        fresh(other)
        other.upsert(C, rows_of(np.ones((3, 2), np.float32)))
        other.close()
        assert store.count(C) == 0
        other.open()
        with pytest.raises(StoreError, match="no collection"):
            other.count(C)


def test_a_folder_may_be_opened_twice_in_one_program(tmp_path):
    """Each store sees at once what the other writes, however the path is spelt; closing one leaves
    the other open.
    """
    with (
        opened({"dir": tmp_path / "chroma"}) as store,
        opened({"dir": tmp_path / "." / "chroma"}) as other,
    ):
        fresh(store)
        store.upsert(C, rows_of(np.ones((3, 2), np.float32)))
        assert other.count(C) == 3
        store.close()
        other.upsert(C, [VectorRow("new", np.ones(2, np.float32))])
        store.open()
        assert [len(one) for one in store.search(C, np.ones((1, 2), np.float32), 9)] == [4]
        different = ChromaVectorStore(
            dir=tmp_path / "chroma", client_kwargs={"settings": {"allow_reset": True}}
        )
        with pytest.raises(StoreConnectionError, match="different settings"):
            different.open()


def test_a_closed_store_says_so(position):
    """Before it is opened, and after it is closed."""
    store = ChromaVectorStore(**position)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"closed\. Open it first"):
            store.count(C)
        store.open()
        store.open()
        store.close()
        store.close()


def test_what_no_store_can_take_is_a_config_error(store):
    """A number that is not finite, in rows and in queries; nothing is written."""
    fresh(store)
    bad = np.array([[1, np.nan]], np.float32)
    with pytest.raises(ConfigError, match="finite"):
        store.upsert(C, rows_of(np.concatenate([np.ones((2, 2), np.float32), bad])))
    with pytest.raises(ConfigError, match="finite"):
        store.search(C, bad, 1)
    assert store.count(C) == 0


def test_chroma_s_own_search_holds_filters_that_it_does_not_understand(store):
    """A part of a text is looked for by us, deeper and deeper, until enough rows are found."""
    schema = make_schema({"author": DocField(DataType.VARCHAR)})
    fresh(store, fields=schema)
    vectors = np.stack([np.array([1, at / 100], np.float32) for at in range(300)])
    store.upsert(C, rows_of(vectors, [{"author": "b" if at < 290 else "abc"} for at in range(300)]))
    [found] = store.search_natively(C, vectors[:1], 5, Condition("author", "contains", "bc"))
    assert [key for key, _ in found] == [f"k{at:06d}" for at in range(290, 295)]
    [every] = store.search_natively(C, vectors[:1], 50, Condition("author", "contains", "bc"))
    assert len(every) == 10


def test_repeated_searches_see_each_change(lasting_place):
    """Searches between changes by this store and by another one answer as the map store, whatever
    they keep.
    """
    rng = np.random.default_rng(5)
    schema = make_schema({"year": DocField(DataType.INT32)})
    rows = rows_of(
        rng.normal(size=(200, 4)).astype(np.float32), [{"year": at % 3} for at in range(200)]
    )
    queries = rng.normal(size=(3, 4)).astype(np.float32)
    reference = MapVectorStore()
    with opened(lasting_place) as store, opened(lasting_place) as other:
        for one in (store, reference):
            fresh(one, 4, "cosine", schema)
            one.upsert(C, rows)
        changes = [
            lambda one: None,
            # as many rows as before
            lambda one: one.upsert(C, [VectorRow(rows[7].key, queries[0], {"year": 1})]),
            lambda one: one.delete(C, keys=[rows[7].key]),
            lambda one: one.delete(C, filter=Condition("year", "eq", 2)),
        ]
        for writer in (store, other):
            for change in changes:
                change(writer)
                change(reference)
                for _ in range(3):
                    for filter_ in (None, Condition("year", "eq", 1)):
                        expected = reference.search(C, queries, 20, filter_)
                        assert store.search(C, queries, 20, filter_) == expected
                        assert other.search(C, queries, 20, filter_) == expected
            for one in (store, reference):
                one.upsert(C, rows)
