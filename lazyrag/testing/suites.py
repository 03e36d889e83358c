"""The contracts of stores, as base classes for tests and as tests of a store named on pytest's command line."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pytest

from lazyrag.data.fields import make_schema
from lazyrag.data.filters import Condition, Filter, matches
from lazyrag.data.segment import Location, Segment, content_text
from lazyrag.errors import ConfigError, SchemaMismatchError, StoreError, UnsupportedError
from lazyrag.stores.protocol import (
    Approximate,
    ExactWhenSmall,
    NativeText,
    NativeVectors,
    SegmentStore,
    VectorRow,
    VectorSchema,
    VectorStore,
)
from lazyrag.testing.plugin import StoreFactory, factory_of
from lazyrag.testing.rows import (
    DIMENSION,
    FIELDS,
    FILTERS,
    METRICS,
    SCHEMA,
    all_rows,
    assert_same_ranking,
    assert_same_rows,
    dense,
    make_rows,
    make_segments,
    make_sparse_rows,
    met,
    queries,
    reference,
    scan_pages,
    sparse_queries,
    sparse_reference,
)
from lazyrag.text.analyzers import analysers
from lazyrag.types import SPARSE, Matrix, Metric

S = TypeVar("S", SegmentStore, VectorStore)


class _StoreContract(Generic[S]):
    """What the contracts of both kinds of store share."""

    def make_store(self) -> S:
        """A new, empty, closed store."""
        msg = f"{type(self).__name__} must override make_store(self): return a new, empty, closed store."
        raise NotImplementedError(msg)

    def reopen_store(self, store: S) -> S:
        """A new, closed store over the rows of a closed one, as a later program makes it. For persistent stores."""
        pytest.fail(
            f"{type(store).__name__} declares the feature 'persistent', but its test does not override "
            "reopen_store(store): return a new, closed store over the rows of the given one."
        )

    def share_store(self, store: S) -> S:
        """A new, closed store over the rows of an open one, as another program makes it. For shared stores."""
        raise NotImplementedError

    def _check_features(self, declared: Iterable[str], checks: Mapping[str, Callable[[], None]]) -> None:
        """Run the check of every declared feature; one without a check fails, so that none is skipped silently."""
        can_share = type(self).share_store is not _StoreContract.share_store
        known = {name: check for name, check in checks.items() if can_share or name != "shared"}
        for feature in sorted(declared):
            if feature not in known:
                pytest.fail(
                    f"The store declares the feature {feature!r}, for which this suite has no test. "
                    f"It has tests for: {', '.join(sorted(known))}. Remove the feature until it has one."
                )
            known[feature]()

    @contextmanager
    def _opened(self, make: Callable[[S], S], store: S) -> Iterator[S]:
        """Another store over the rows of a store, open."""
        other = make(store)
        assert other is not store, f"{make.__name__}() returned its argument; it must make another store."
        other.open()
        try:
            yield other
        finally:
            other.close()


C = "lr_contract_block_0"
D = "lr_contract_block_1"


class SegmentStoreContract(_StoreContract[SegmentStore]):
    """Subclass it as ``TestSomething`` and override `make_store`; for a persistent store also `reopen_store`, for a
    shared one also `share_store`.
    """

    @pytest.fixture
    def store(self) -> Iterator[SegmentStore]:
        """An open store with one empty collection."""
        store = self.make_store()
        store.open()
        store.create(C, SCHEMA)
        yield store
        store.close()

    @pytest.fixture
    def filled(self, store: SegmentStore) -> SegmentStore:
        """The store with the contract's segments in its collection."""
        store.upsert(C, make_segments())
        return store

    def test_an_empty_collection_counts_nothing_and_finds_nothing(self, store: SegmentStore) -> None:
        """A collection without rows counts 0, gets [] and scans []."""
        assert (store.count(C), store.get(C, ["x"]), store.scan(C)) == (0, [], [])

    def test_what_is_upserted_is_read_back_equal(self, filled: SegmentStore) -> None:
        """Upsert then get gives equal rows: Chinese, emoji, numbers, JSON, None, empty metadata included."""
        rows = make_segments()
        assert filled.get(C, [row.key for row in rows]) == rows

    def test_content_keeps_its_type(self, filled: SegmentStore) -> None:
        """0 stays an int and False a bool."""
        rows = make_segments()
        read = filled.get(C, [row.key for row in rows])
        assert [type(row.content) for row in read] == [type(row.content) for row in rows]

    def test_a_root_keeps_its_places(self, store: SegmentStore) -> None:
        """A node without a parent comes back without one; its pages and headings come back in their order."""
        locations = (
            Location(0, 9, "page", "1"),
            Location(4, 9, "heading", "安装 > Setup 🍵"),
            Location(9, 9, "page", "2"),
        )
        root = make_segments()[0]._replace(parent=None, span=(0, 9), locations=locations)
        store.upsert(C, [root])
        assert store.get(C, [root.key]) == [root]

    def test_get_answers_in_the_order_asked_and_leaves_out_unknown_keys(self, filled: SegmentStore) -> None:
        """Get follows the order of the keys and passes over those that are not there."""
        keys = [row.key for row in make_segments()]
        asked = [keys[5], "unknown", keys[2], keys[9]]
        assert [row.key for row in filled.get(C, asked)] == [keys[5], keys[2], keys[9]]

    def test_upsert_replaces_whole_rows(self, filled: SegmentStore) -> None:
        """A second upsert under a key leaves nothing of the first: metadata is not merged."""
        old = make_segments()[0]
        new = old._replace(content="new", metadata={"other": 1}, span=None)
        filled.upsert(C, [new])
        assert filled.get(C, [old.key]) == [new]
        assert filled.count(C) == len(make_segments())

    def test_the_same_upsert_twice_changes_nothing(self, filled: SegmentStore) -> None:
        """Upsert is idempotent."""
        filled.upsert(C, make_segments())
        assert filled.count(C) == len(make_segments())
        assert all_rows(filled, C) == sorted(make_segments(), key=attrgetter("key"))

    def test_of_rows_with_one_key_in_an_upsert_the_last_counts(self, store: SegmentStore) -> None:
        """A list that names a key twice is written as if its rows were written one after the other."""
        row = make_segments()[0]
        last = row._replace(content="last", path="elsewhere")
        store.upsert(C, [row, row._replace(content="between", path="between"), last])
        assert store.scan(C) == [last]

    def test_builds_of_one_uid_are_different_rows(self, filled: SegmentStore) -> None:
        """The key is uid and build: a new build stands beside the old one."""
        old = make_segments()[0]
        new = old._replace(build=old.build + 100, content="newer")
        filled.upsert(C, [new])
        assert filled.get(C, [old.key, new.key]) == [old, new]

    def test_upserting_no_rows_is_fine(self, filled: SegmentStore) -> None:
        """An empty list of rows changes nothing."""
        filled.upsert(C, [])
        assert filled.count(C) == len(make_segments())

    @pytest.mark.parametrize("limit", [1, 5, 1000])
    def test_scan_pages_cover_all_rows_once(self, filled: SegmentStore, limit: int) -> None:
        """Pages of any size give every row once, whole, and in the same order."""
        seen: list[Segment] = []
        while page := filled.scan(C, after=seen[-1].key if seen else "", limit=limit):
            assert len(page) <= limit
            assert page[0] not in seen  # or there would be no end
            seen += page
        assert sorted(seen, key=attrgetter("key")) == sorted(make_segments(), key=attrgetter("key"))
        assert seen == filled.scan(C)

    def test_scan_begins_behind_a_row_that_need_not_be_there(self, filled: SegmentStore) -> None:
        """A row that is deleted between two pages still tells where the second one begins."""
        first, *others = filled.scan(C)
        filled.delete(C, keys=[first.key])
        assert filled.scan(C, after=first.key) == others
        assert filled.scan(C, after=others[-1].key) == []

    def test_delete_by_keys_returns_how_many_went(self, filled: SegmentStore) -> None:
        """Deleting counts the rows that were there; an unknown key is no error."""
        rows = make_segments()
        assert filled.delete(C, keys=[rows[0].key, "unknown", rows[1].key]) == 2
        assert filled.delete(C, keys=[rows[0].key]) == 0
        assert filled.count(C) == len(rows) - 2
        assert {row.key for row in filled.scan(C)} == {row.key for row in rows[2:]}

    def test_an_empty_list_of_keys_deletes_nothing(self, filled: SegmentStore) -> None:
        """Deleting nothing deletes nothing."""
        assert filled.delete(C, keys=[]) == 0
        assert filled.count(C) == len(make_segments())

    @pytest.mark.parametrize("filter", FILTERS, ids=repr)
    def test_delete_by_filter_takes_exactly_the_rows_that_meet_it(
        self,
        filled: SegmentStore,
        filter: Filter,  # noqa: A002
    ) -> None:
        """A filter deletes what the reference evaluator says, no more and no less."""
        gone = met(filter)
        assert filled.delete(C, filter=filter) == len(gone)
        left = {row.key for number, row in enumerate(make_segments()) if number not in gone}
        assert {row.key for row in filled.scan(C)} == left

    def test_delete_needs_keys_or_a_filter(self, filled: SegmentStore) -> None:
        """Neither or both is a ConfigError: nothing is ever deleted by omission."""
        with pytest.raises(ConfigError, match="exactly one"):
            filled.delete(C)
        with pytest.raises(ConfigError, match="exactly one"):
            filled.delete(C, keys=[], filter=FILTERS[0])

    def test_collections_are_isolated(self, filled: SegmentStore) -> None:
        """The same key in two collections is two rows, and dropping one leaves the other."""
        filled.create(D, SCHEMA)
        assert filled.count(D) == 0
        filled.upsert(D, make_segments()[:1])
        filled.drop(C)
        assert filled.count(D) == 1

    def test_create_again_changes_nothing(self, filled: SegmentStore) -> None:
        """Creating a collection that is there keeps its rows."""
        filled.create(C, SCHEMA)
        assert filled.count(C) == len(make_segments())

    def test_create_with_another_schema_is_refused(self, filled: SegmentStore) -> None:
        """Another schema for a collection that is there is a SchemaMismatchError."""
        with pytest.raises(SchemaMismatchError):
            filled.create(C, make_schema(None))

    def test_a_collection_that_was_never_created_is_an_error(self, store: SegmentStore) -> None:
        """Reading or writing an unknown collection raises StoreError, dropping one does not."""
        for use in (store.count, store.scan, lambda name: store.get(name, ["x"]), lambda name: store.upsert(name, [])):
            with pytest.raises(StoreError):
                use("lr_unknown")
        store.drop("lr_unknown")

    def test_a_dropped_collection_is_gone(self, filled: SegmentStore) -> None:
        """After drop and create the collection is empty."""
        filled.drop(C)
        filled.create(C, SCHEMA)
        assert filled.count(C) == 0

    def test_concurrent_upserts_lose_nothing(self, store: SegmentStore) -> None:
        """Two threads that write different rows leave all of them."""
        rows = [row._replace(build=100 + turn) for turn in range(20) for row in make_segments()]

        def write(half: list[Segment]) -> None:
            for row in half:
                store.upsert(C, [row])

        threads = [threading.Thread(target=write, args=(half,)) for half in (rows[::2], rows[1::2])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.count(C) == len(rows)

    def test_opening_and_closing_twice_is_fine(self) -> None:
        """Open and close are idempotent."""
        store = self.make_store()
        store.open()
        store.open()
        store.close()
        store.close()

    def test_what_is_declared_is_kept(self, filled: SegmentStore) -> None:
        """Every feature that the store declares passes its test; one without a test fails."""
        checks = {
            "persistent": lambda: self._check_persistent(filled),
            "native text": lambda: self._check_native_text(filled),
            "shared": lambda: self._check_shared(filled),
        }
        self._check_features(filled.features, checks)

    def _check_native_text(self, filled: SegmentStore) -> None:
        """The store's own search finds the rows that share a term with the query and meet a filter."""
        assert isinstance(filled, NativeText), "A store that declares 'native text' has the method search_text."
        filled.open()  # another feature's test may have closed it, and left other rows
        filled.drop(C)
        filled.create(C, SCHEMA)
        rows = make_segments()
        filled.upsert(C, rows)
        for analyser, query in (("zh", "红茶与🍵"), ("en", "a line of emoji")):
            terms_of = analysers[analyser].terms
            terms = terms_of(query)
            found = {row.key for row in rows if not {*terms}.isdisjoint(terms_of(content_text(row.content)))}
            assert 0 < len(found) < len(rows), f"The query {query!r} tests nothing."
            ranking = filled.search_text(C, analyser, terms, len(rows))
            assert {key for key, _ in ranking} == found
            assert ranking == sorted(ranking, key=lambda hit: (-hit[1], hit[0]))
            assert filled.search_text(C, analyser, terms, 1) == ranking[:1]
            for one in FILTERS:
                kept = {rows[number].key for number in met(one)} & found
                assert {key for key, _ in filled.search_text(C, analyser, terms, len(rows), one)} == kept, one
        assert filled.search_text(C, "zh", [], 5) == []
        assert filled.search_text(C, "zh", ["nowhere"], 5) == []
        filled.delete(C, keys=[ranking[0][0]])
        assert [key for key, _ in filled.search_text(C, "en", terms, 1)] == [ranking[1][0]]
        with pytest.raises(ConfigError):
            filled.search_text(C, "zh", ["茶"], 0)
        with pytest.raises(UnsupportedError):
            filled.search_text(C, "unknown", ["茶"], 1)
        with pytest.raises(StoreError):
            filled.search_text("lr_unknown", "zh", ["茶"], 1)
        filled.upsert(C, rows)  # as the other features' tests expect it

    def _check_persistent(self, filled: SegmentStore) -> None:
        """What was acknowledged, deletions included, is there after close and open, in this object and in another."""
        first, *others = sorted(make_segments(), key=attrgetter("key"))
        changed = [others[0]._replace(content="changed"), *others[1:]]
        filled.delete(C, keys=[first.key])
        filled.upsert(C, changed[:1])
        filled.close()
        filled.open()
        assert all_rows(filled, C) == changed
        filled.close()
        with self._opened(self.reopen_store, filled) as again:
            again.create(C, SCHEMA)
            assert all_rows(again, C) == changed
            with pytest.raises(SchemaMismatchError):
                again.create(C, make_schema(None))

    def _check_shared(self, filled: SegmentStore) -> None:
        """What either of two programs has acknowledged, deletions included, is seen by the other's next call."""
        filled.open()  # another feature's test may have closed it, and left other rows
        filled.drop(C)
        filled.create(C, SCHEMA)
        with self._opened(self.share_store, filled) as other:
            other.create(C, SCHEMA)
            rows = sorted(make_segments(), key=attrgetter("key"))
            filled.upsert(C, rows[1:])
            assert all_rows(other, C) == rows[1:]
            other.upsert(C, rows[:1])
            assert all_rows(filled, C) == rows
            changed = rows[0]._replace(content="changed", path="elsewhere")
            filled.upsert(C, [changed])
            filled.delete(C, keys=[row.key for row in rows[2:]])
            assert all_rows(other, C) == [changed, rows[1]]
            assert other.get(C, [rows[2].key, rows[0].key]) == [changed]
            filled.drop(C)
            with pytest.raises(StoreError):
                other.scan(C)


SPARSE_SCHEMA = VectorSchema(SPARSE, "ip", SCHEMA)


def check_sparse(store: VectorStore, collection: str) -> None:
    """Sparse vectors are written, read back, ranked, filtered and deleted like dense ones.

    A vector of the other kind is refused in collections of either, and nothing of such a call is written.

    Args:
        store: An open store.
        collection: A name that it may create and drop.
    """
    rows = make_sparse_rows()
    store.drop(collection)
    store.create(collection, SPARSE_SCHEMA)
    assert store.search(collection, sparse_queries(1), 3) == [[]]
    store.upsert(collection, rows[::2])
    store.upsert(collection, rows[1::2])
    store.create(collection, SPARSE_SCHEMA)
    _check_read(store, collection, rows)
    _check_ranked(store, collection, rows)
    _check_kinds(store, collection, rows)
    gone = {rows[number].key for number in met(FILTERS[0])} | {rows[0].key}
    store.delete(collection, keys=[rows[0].key])
    store.delete(collection, filter=FILTERS[0])
    changed = VectorRow(rows[0].key, {1: 9.0}, FIELDS[1])
    store.upsert(collection, [changed])
    left = sorted([*(row for row in rows if row.key not in gone), changed], key=lambda row: row.key)
    _check_read(store, collection, left)
    _check_ranked(store, collection, left)
    store.drop(collection)


def check_no_sparse(store: VectorStore, collection: str) -> None:
    """A store that does not declare ``"sparse"`` refuses the schema with an UnsupportedError."""
    with pytest.raises(UnsupportedError):
        store.create(collection, SPARSE_SCHEMA)


def _check_read(store: VectorStore, collection: str, rows: Sequence[VectorRow]) -> None:
    """Rows are counted, got and paged as they were written."""
    assert store.count(collection) == len(rows)
    assert_same_rows(scan_pages(store, collection, 5), rows)
    assert_same_rows(store.get(collection, [row.key for row in rows]), rows)


def _check_ranked(store: VectorStore, collection: str, rows: Sequence[VectorRow]) -> None:
    """By inner product, only rows that share a dimension, ties by key; a filter comes before the best."""
    queries = sparse_queries(5)
    for topk in (3, 1000):
        for query, found in zip(queries, store.search(collection, queries, topk), strict=True):
            assert_same_ranking(found, sparse_reference(query, rows)[:topk])
    for filter_ in FILTERS:
        left = [row for row in rows if matches(filter_, row.fields)]
        assert len(left) < len(rows)
        [found] = store.search(collection, queries[:1], 2, filter_)
        assert_same_ranking(found, sparse_reference(queries[0], left)[:2])


def _check_kinds(store: VectorStore, collection: str, rows: Sequence[VectorRow]) -> None:
    """What is dense has no place among what is sparse, and the other way round; nothing of such a call is written."""
    dense = VectorRow("dense", np.ones(4, np.float32))
    with pytest.raises(SchemaMismatchError):
        store.upsert(collection, [VectorRow("good", {1: 1.0}), dense])
    with pytest.raises(ConfigError):
        store.search(collection, np.ones((1, 4), np.float32), 1)
    for metric in ("cosine", "l2"):
        with pytest.raises(ConfigError):
            store.create("lr_never_made", VectorSchema(SPARSE, metric, SCHEMA))
    with pytest.raises(SchemaMismatchError):
        store.create(collection, VectorSchema(4, "ip", SCHEMA))
    assert store.count(collection) == len(rows)
    store.drop(collection)
    store.create(collection, VectorSchema(4, "ip", SCHEMA))
    with pytest.raises(SchemaMismatchError):
        store.upsert(collection, [dense, rows[0]])
    with pytest.raises(ConfigError):
        store.search(collection, [{1: 1.0}], 1)
    with pytest.raises(SchemaMismatchError):
        store.create(collection, SPARSE_SCHEMA)
    assert store.count(collection) == 0
    store.drop(collection)
    store.create(collection, SPARSE_SCHEMA)
    store.upsert(collection, rows)


_MANY = 2000
_LEAST_EXACT = 100  # the contract's own collections are smaller


def check_exact(store: VectorStore, collection: str, count: int = _MANY) -> None:
    """Search returns the true nearest rows under every metric, whatever vectors a collection holds.

    Among many that lie close together; and among many that are equal, of which some have gone and others have come.

    Args:
        store: An open store.
        collection: A name that it may create and drop.
        count: How many rows.
    """
    rng = np.random.default_rng(13)
    vectors = (rng.normal(size=DIMENSION) + 0.01 * rng.normal(size=(count, DIMENSION))).astype(np.float32)
    close = [VectorRow(f"k{number:04d}", vector) for number, vector in enumerate(vectors)]
    for metric in METRICS:
        schema = VectorSchema(DIMENSION, metric, SCHEMA)
        store.drop(collection)
        store.create(collection, schema)
        store.upsert(collection, close)
        _check_rankings(store, collection, metric, close, queries(5))
        store.drop(collection)
        store.create(collection, schema)
        _check_equal_rows(store, collection, metric, count)
    store.drop(collection)


def check_exact_when_small(store: VectorStore, collection: str) -> None:
    """The same in a collection of as many rows as the store says, or as many as can be tested in a short time."""
    assert isinstance(store, ExactWhenSmall)
    assert store.exact_rows >= _LEAST_EXACT
    check_exact(store, collection, min(_MANY, store.exact_rows))


def check_approximate(store: VectorStore, collection: str) -> None:
    """The approximate search finds as many rows as the exact one, most of them the same, with the same scores.

    Args:
        store: An open store.
        collection: Of the contract's vectors, ranked by cosine. The same for `check_native`.
    """
    assert isinstance(store, Approximate)
    for condition in (None, *FILTERS):
        for topk in (1, 7, 1000):
            exact = store.search(collection, queries(5), topk, condition)
            found = store.search_approximately(collection, queries(5), topk, condition)
            assert list(map(len, found)) == list(map(len, exact))
            for ranking in found:
                assert ranking == sorted(ranking, key=lambda pair: (-pair[1], pair[0]))
            same = [len(dict(some).items() & dict(others).items()) for some, others in zip(found, exact, strict=True)]
            assert sum(same) >= 0.5 * sum(map(len, exact))
    with pytest.raises(ConfigError):
        store.search_approximately(collection, queries(1), 0)


def check_native(store: VectorStore, collection: str) -> None:
    """The backend's own search gives rows that meet the filter, most of the nearest, with nearly the right scores."""
    assert isinstance(store, NativeVectors)
    for condition in (None, *FILTERS):
        numbers = range(len(make_rows())) if condition is None else met(condition)
        allowed = {make_rows()[number].key for number in numbers}
        for topk in (3, 1000):
            exact = store.search(collection, queries(5), topk, condition)
            found = store.search_natively(collection, queries(5), topk, condition)
            for query, ranking in zip(queries(5), found, strict=True):
                assert len(ranking) <= topk
                assert ranking == sorted(ranking, key=lambda pair: (-pair[1], pair[0]))
                assert len({key for key, _ in ranking}) == len(ranking)
                assert {key for key, _ in ranking} <= allowed
                scores = dict(reference(query, "cosine"))
                assert [score for _, score in ranking] == pytest.approx([scores[key] for key, _ in ranking], abs=1e-3)
            same = [len(dict(some).keys() & dict(others).keys()) for some, others in zip(found, exact, strict=True)]
            assert sum(same) >= 0.5 * sum(map(len, exact))
    with pytest.raises(ConfigError):
        store.search_natively(collection, queries(1), 0)


def _check_equal_rows(store: VectorStore, collection: str, metric: Metric, count: int) -> None:
    """Half of the rows are equal, few of them meet a filter, some are deleted and written again with other vectors."""
    rng = np.random.default_rng(23)
    vectors = rng.normal(size=(count, DIMENSION)).astype(np.float32)
    vectors[::2] = vectors[0]
    rows = [
        VectorRow(f"k{number:04d}", vector, {"year": number % 25, "author": "plain" if number % 3 else None})
        for number, vector in enumerate(vectors)
    ]
    store.upsert(collection, rows)
    near = np.concatenate([vectors[:1], queries(1)])
    _check_rankings(store, collection, metric, rows, near)
    few = Condition("year", "eq", 4)
    assert 0 < sum(matches(few, row.fields) for row in rows) < count / 10
    _check_rankings(store, collection, metric, rows, near, few)
    store.delete(collection, keys=[row.key for row in rows[: count // 2]])
    changed = [VectorRow(row.key, -vectors[1], row.fields) for row in rows[: count // 4]]
    store.upsert(collection, changed)
    left = [*changed, *rows[count // 2 :]]
    _check_rankings(store, collection, metric, left, near)
    _check_rankings(store, collection, metric, left, near, few)
    _check_rankings(store, collection, metric, left, near, Condition("author", "exists", False))


def _check_rankings(
    store: VectorStore,
    collection: str,
    metric: Metric,
    rows: Sequence[VectorRow],
    near: Matrix,
    condition: Filter | None = None,
) -> None:
    """What is found near to some queries is what a plain computation finds: the best rows in order, and all of them."""
    kept = [row for row in rows if condition is None or matches(condition, row.fields)]
    expected = [reference(query, metric, kept) for query in near]
    every = len(rows) + 1
    for found, ranking in zip(store.search(collection, near, 20, condition), expected, strict=True):
        assert_same_ranking(found, ranking[:20])
    for found in store.search(collection, near, every, condition):
        assert sorted(key for key, _ in found) == sorted(row.key for row in kept)


VECTORS = "lr_contract_vectors_0"
OTHER_VECTORS = "lr_contract_vectors_1"


class VectorStoreContract(_StoreContract[VectorStore]):
    """Subclass it as ``TestSomething`` and override `make_store`; for a persistent store also `reopen_store`, for a
    shared one also `share_store`.
    """

    @pytest.fixture
    def store(self) -> Iterator[VectorStore]:
        """An open store with one empty collection, ranked by cosine."""
        store = self.make_store()
        store.open()
        store.create(VECTORS, VectorSchema(DIMENSION, "cosine", SCHEMA))
        yield store
        store.close()

    @pytest.fixture
    def filled(self, store: VectorStore) -> VectorStore:
        """The store with the contract's vectors in its collection."""
        store.upsert(VECTORS, make_rows())
        return store

    def test_an_empty_collection_counts_nothing_and_finds_nothing(self, store: VectorStore) -> None:
        """A collection without rows counts 0, gets [], scans [] and finds [] for each query."""
        assert (store.count(VECTORS), store.get(VECTORS, ["x"]), store.scan(VECTORS)) == (
            0,
            [],
            [],
        )
        assert store.search(VECTORS, queries(2), 3) == [[], []]

    def test_what_is_upserted_is_read_back_equal(self, filled: VectorStore) -> None:
        """Upsert then get gives the same keys, float32 values and fields, in the order asked."""
        rows = make_rows()[::-1]
        assert_same_rows(filled.get(VECTORS, [row.key for row in rows] + ["unknown"]), rows)

    def test_upsert_replaces_whole_rows(self, filled: VectorStore) -> None:
        """A second upsert under a key leaves neither the old vector nor the old fields."""
        rows = make_rows()
        filled.upsert(VECTORS, [VectorRow(rows[0].key, -dense(rows[0]), FIELDS[1])])
        [read] = filled.get(VECTORS, [rows[0].key])
        assert np.array_equal(dense(read), -dense(rows[0]))
        assert dict(read.fields) == dict(FIELDS[1])
        assert filled.count(VECTORS) == len(rows)

    def test_the_same_upsert_twice_changes_nothing(self, filled: VectorStore) -> None:
        """Upsert is idempotent, for search too."""
        before = filled.search(VECTORS, queries(3), 10)
        filled.upsert(VECTORS, make_rows())
        assert filled.count(VECTORS) == len(make_rows())
        assert filled.search(VECTORS, queries(3), 10) == before

    @pytest.mark.parametrize("limit", [1, 5, 1000])
    def test_scan_pages_cover_all_rows_once_in_key_order(self, store: VectorStore, limit: int) -> None:
        """Pages of any size give every row once, whole, in the order of keys, whatever order they were written in."""
        rows = make_rows()
        store.upsert(VECTORS, rows[::2])
        store.upsert(VECTORS, rows[:0:-2])
        assert_same_rows(scan_pages(store, VECTORS, limit), rows)

    @pytest.mark.parametrize("limit", [1, 5, 1000])
    def test_scan_follows_deletes_and_upserts(self, filled: VectorStore, limit: int) -> None:
        """Pages leave out what was deleted, by key or by filter, and give replaced and new rows as they are now."""
        rows = make_rows()
        assert_same_rows(scan_pages(filled, VECTORS, limit), rows)
        by_filter = met(FILTERS[0])
        by_key, replaced = [number for number in range(len(rows)) if number not in by_filter][:2]
        filled.delete(VECTORS, keys=[rows[by_key].key])
        filled.delete(VECTORS, filter=FILTERS[0])
        rows[replaced] = VectorRow(rows[replaced].key, -dense(rows[replaced]), FIELDS[0])
        new = [VectorRow(key, rows[0].vector, rows[0].fields) for key in ("zz", "00", "绿茶")]
        filled.upsert(VECTORS, [rows[replaced], *new])
        left = [row for number, row in enumerate(rows) if number not in {by_key, *by_filter}]
        assert_same_rows(scan_pages(filled, VECTORS, limit), sorted([*left, *new], key=lambda row: row.key))

    def test_scan_begins_behind_a_key_that_need_not_be_there(self, filled: VectorStore) -> None:
        """The page behind a deleted key begins with the next one, and behind the last key there is nothing."""
        rows = make_rows()
        filled.delete(VECTORS, keys=[rows[4].key])
        assert_same_rows(filled.scan(VECTORS, after=rows[4].key, limit=3), rows[5:8])
        assert filled.scan(VECTORS, after=rows[-1].key) == []

    def test_a_wrong_dimension_is_refused_and_nothing_is_written(self, filled: VectorStore) -> None:
        """A vector of another length is a SchemaMismatchError that names both; its companions are not written."""
        rows = [VectorRow("good", np.ones(DIMENSION, np.float32)), VectorRow("bad", np.ones(3, np.float32))]
        with pytest.raises(SchemaMismatchError, match=rf"{DIMENSION}.*3"):
            filled.upsert(VECTORS, rows)
        assert filled.count(VECTORS) == len(make_rows())

    @pytest.mark.parametrize("metric", METRICS)
    def test_search_returns_the_true_nearest(self, store: VectorStore, metric: Metric) -> None:
        """Keys and scores are those of a plain computation in float64, best first, higher being closer."""
        store.create(OTHER_VECTORS, VectorSchema(DIMENSION, metric, SCHEMA))
        store.upsert(OTHER_VECTORS, make_rows())
        for query, found in zip(queries(5), store.search(OTHER_VECTORS, queries(5), 7), strict=True):
            assert_same_ranking(found, reference(query, metric)[:7])

    @pytest.mark.parametrize("metric", METRICS)
    def test_ties_are_complete_and_ordered_by_key(self, store: VectorStore, metric: Metric) -> None:
        """Of equal vectors at the boundary the smallest keys are returned, whatever order they were written in."""
        store.create(OTHER_VECTORS, VectorSchema(DIMENSION, metric, SCHEMA))
        same = np.arange(1, DIMENSION + 1).astype(np.float32)
        keys = [f"k{number:02d}" for number in range(12)]
        store.upsert(OTHER_VECTORS, [VectorRow(key, same) for key in keys[::-1]])
        [found] = store.search(OTHER_VECTORS, same[None], 5)
        assert [key for key, _ in found] == keys[:5]
        assert len({score for _, score in found}) == 1

    def test_cosine_ignores_length(self, filled: VectorStore) -> None:
        """Doubling the query changes no score."""
        [one], [other] = (
            filled.search(VECTORS, queries(1), 5),
            filled.search(VECTORS, 2 * queries(1), 5),
        )
        assert_same_ranking(one, other)

    def test_more_than_there_are_is_fine(self, filled: VectorStore) -> None:
        """A topk above the count returns every row."""
        [found] = filled.search(VECTORS, queries(1), 10_000)
        assert len(found) == len(make_rows())

    @pytest.mark.parametrize("topk", [0, -1])
    def test_topk_below_one_is_refused(self, filled: VectorStore, topk: int) -> None:
        """A topk below 1 is a ConfigError."""
        with pytest.raises(ConfigError, match="topk"):
            filled.search(VECTORS, queries(1), topk)

    @pytest.mark.parametrize("filter", FILTERS, ids=repr)
    def test_search_ranks_exactly_the_rows_that_meet_a_filter(self, filled: VectorStore, filter: Filter) -> None:  # noqa: A002
        """A filtered search is the unfiltered ranking without the rows that do not meet the filter."""
        keys = {make_rows()[number].key for number in met(filter)}
        [found] = filled.search(VECTORS, queries(1), 10_000, filter)
        assert_same_ranking(found, [pair for pair in reference(queries(1)[0], "cosine") if pair[0] in keys])

    def test_a_narrow_filter_does_not_shorten_the_result(self, filled: VectorStore) -> None:
        """The topk best that meet a filter are found even if none of them is among the topk best of all."""
        filter_ = FILTERS[0]
        [found] = filled.search(VECTORS, queries(1), 2, filter_)
        assert len(found) == min(2, len(met(filter_)))

    @pytest.mark.parametrize("filter", FILTERS[:8], ids=repr)
    def test_delete_by_filter_takes_exactly_the_rows_that_meet_it(self, filled: VectorStore, filter: Filter) -> None:  # noqa: A002
        """A filter deletes what the reference evaluator says; search finds the rest."""
        gone = {make_rows()[number].key for number in met(filter)}
        assert filled.delete(VECTORS, filter=filter) == len(gone)
        [found] = filled.search(VECTORS, queries(1), 10_000)
        assert {key for key, _ in found} == {row.key for row in make_rows()} - gone

    def test_delete_by_keys_returns_how_many_went(self, filled: VectorStore) -> None:
        """Deleting counts the rows that were there; an unknown key is no error; no keys delete nothing."""
        keys = [row.key for row in make_rows()]
        assert filled.delete(VECTORS, keys=[keys[0], "unknown"]) == 1
        assert filled.delete(VECTORS, keys=[]) == 0
        assert filled.count(VECTORS) == len(keys) - 1
        [found] = filled.search(VECTORS, queries(1), 10_000)
        assert {key for key, _ in found} == {*keys[1:]}

    def test_delete_needs_keys_or_a_filter(self, filled: VectorStore) -> None:
        """Neither is a ConfigError: nothing is ever deleted by omission."""
        with pytest.raises(ConfigError, match="exactly one"):
            filled.delete(VECTORS)

    def test_a_deleted_key_can_be_written_again(self, filled: VectorStore) -> None:
        """After delete and upsert the new vector is found and the old one is not."""
        row = make_rows()[0]
        filled.delete(VECTORS, keys=[one.key for one in make_rows()])
        filled.upsert(VECTORS, [VectorRow(row.key, -dense(row), row.fields)])
        [[(key, score)]] = filled.search(VECTORS, dense(row)[None], 5)
        assert (key, round(score, 5)) == (row.key, -1.0)

    def test_collections_are_isolated(self, filled: VectorStore) -> None:
        """The same key in two collections is two rows, and dropping one leaves the other."""
        filled.create(OTHER_VECTORS, VectorSchema(DIMENSION, "cosine", SCHEMA))
        filled.upsert(OTHER_VECTORS, make_rows()[:1])
        filled.drop(VECTORS)
        assert filled.count(OTHER_VECTORS) == 1

    def test_create_with_another_shape_is_refused(self, filled: VectorStore) -> None:
        """Another dimension or metric for a collection that is there is a SchemaMismatchError; the same is fine."""
        filled.create(VECTORS, VectorSchema(DIMENSION, "cosine", SCHEMA))
        assert filled.count(VECTORS) == len(make_rows())
        for other in (VectorSchema(DIMENSION + 1, "cosine", SCHEMA), VectorSchema(DIMENSION, "l2", SCHEMA)):
            with pytest.raises(SchemaMismatchError):
                filled.create(VECTORS, other)

    def test_a_collection_that_was_never_created_is_an_error(self, store: VectorStore) -> None:
        """Reading an unknown collection raises StoreError, dropping one does not."""
        uses: tuple[Any, ...] = (store.count, store.scan, lambda name: store.search(name, queries(1), 1))
        for use in uses:
            with pytest.raises(StoreError):
                use("lr_unknown")
        store.drop("lr_unknown")

    def test_concurrent_upserts_lose_nothing(self, store: VectorStore) -> None:
        """Two threads that write different rows leave all of them, while a third searches."""
        vectors = np.random.default_rng(5).normal(size=(400, DIMENSION)).astype(np.float32)
        rows = [VectorRow(f"k{number:03d}", vector) for number, vector in enumerate(vectors)]

        def write(half: list[VectorRow]) -> None:
            for row in half:
                store.upsert(VECTORS, [row])

        threads = [threading.Thread(target=write, args=(half,)) for half in (rows[::2], rows[1::2])]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            [found] = store.search(VECTORS, queries(1), 3)
            assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
        for thread in threads:
            thread.join()
        assert store.count(VECTORS) == len(rows)
        assert_same_rows(scan_pages(store, VECTORS, 7), rows)

    def test_what_is_declared_is_kept(self, filled: VectorStore) -> None:
        """Every feature that the store declares passes its test; one without a test fails."""
        checks = {
            "exact": lambda: check_exact(filled, OTHER_VECTORS),
            "exact when small": lambda: check_exact_when_small(filled, OTHER_VECTORS),
            "approximate": lambda: check_approximate(filled, VECTORS),
            "native vectors": lambda: check_native(filled, VECTORS),
            "persistent": lambda: self._check_persistent(filled),
            "sparse": lambda: check_sparse(filled, OTHER_VECTORS),
            "shared": lambda: self._check_shared(filled),
        }
        self._check_features(filled.features, checks)

    def test_a_store_that_does_not_declare_sparse_refuses_such_a_schema(self, filled: VectorStore) -> None:
        """Without the feature a sparse schema is an UnsupportedError, and the other collections stay as they are."""
        if "sparse" not in filled.features:
            check_no_sparse(filled, OTHER_VECTORS)
        assert filled.count(VECTORS) == len(make_rows())

    def _check_persistent(self, filled: VectorStore) -> None:
        """What was acknowledged, deletions included, is there after close and open, in this object and in another."""
        first, *others = make_rows()
        changed = [VectorRow(others[0].key, -dense(others[0]), others[0].fields), *others[1:]]
        filled.delete(VECTORS, keys=[first.key])
        filled.upsert(VECTORS, changed[:1])
        before = filled.search(VECTORS, queries(3), 10)
        filled.close()
        filled.open()
        assert_same_rows(filled.scan(VECTORS), changed)
        filled.close()
        with self._opened(self.reopen_store, filled) as again:
            again.create(VECTORS, VectorSchema(DIMENSION, "cosine", SCHEMA))
            assert_same_rows(again.scan(VECTORS), changed)
            for found, expected in zip(again.search(VECTORS, queries(3), 10), before, strict=True):
                assert_same_ranking(found, expected)
            with pytest.raises(SchemaMismatchError):
                again.create(VECTORS, VectorSchema(DIMENSION, "l2", SCHEMA))
        filled.open()  # for the features that are tested next

    def _check_shared(self, store: VectorStore) -> None:
        """What either of two programs has acknowledged, deletions included, is seen by the other's next call."""
        store.open()
        store.drop(OTHER_VECTORS)
        store.create(OTHER_VECTORS, VectorSchema(DIMENSION, "cosine", SCHEMA))
        store.upsert(OTHER_VECTORS, make_rows())
        first, second, *others = make_rows()
        with self._opened(self.share_store, store) as other:
            other.create(OTHER_VECTORS, VectorSchema(DIMENSION, "cosine", SCHEMA))
            assert_same_rows(other.scan(OTHER_VECTORS), make_rows())
            changed = VectorRow(second.key, -dense(second), second.fields)
            store.delete(OTHER_VECTORS, keys=[first.key])
            store.upsert(OTHER_VECTORS, [changed])
            assert_same_rows(other.scan(OTHER_VECTORS), [changed, *others])
            for found, expected in zip(
                other.search(OTHER_VECTORS, queries(3), 10),
                store.search(OTHER_VECTORS, queries(3), 10),
                strict=True,
            ):
                assert_same_ranking(found, expected)
            other.upsert(OTHER_VECTORS, [first])
            other.delete(OTHER_VECTORS, keys=[second.key])
            assert_same_rows(store.scan(OTHER_VECTORS), [first, *others])
        store.drop(OTHER_VECTORS)


class _NamedStore:
    """Makes the stores that the command line names."""

    factory: StoreFactory
    path: Path

    def make_store(self) -> Any:
        """See `SegmentStoreContract.make_store`."""
        return self.factory.make(self.path)

    def reopen_store(self, store: object) -> Any:  # noqa: ARG002  the path has the rows
        """See `SegmentStoreContract.reopen_store`."""
        return self.factory.reopen(self.path)

    def share_store(self, store: object) -> Any:  # noqa: ARG002
        """See `SegmentStoreContract.share_store`."""
        return self.factory.reopen(self.path)


class TestSegmentStore(_NamedStore, SegmentStoreContract):
    """The store of ``--lazyrag-segment-store``."""

    @pytest.fixture(autouse=True)
    def _find_store(self, pytestconfig: pytest.Config, tmp_path: Path) -> None:
        self.factory, self.path = factory_of(pytestconfig, "segment"), tmp_path / f"store_{uuid.uuid4().hex}"


class TestVectorStore(_NamedStore, VectorStoreContract):
    """The store of ``--lazyrag-vector-store``."""

    @pytest.fixture(autouse=True)
    def _find_store(self, pytestconfig: pytest.Config, tmp_path: Path) -> None:
        self.factory, self.path = factory_of(pytestconfig, "vector"), tmp_path / f"store_{uuid.uuid4().hex}"
