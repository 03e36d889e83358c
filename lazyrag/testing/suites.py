"""The contracts of stores, as base classes for tests and as tests of a store named on pytest's
command line.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazyrag.data.fields import make_schema
from lazyrag.data.filters import Condition, Filter, matches
from lazyrag.data.segment import Location, Segment, content_text
from lazyrag.errors import ConfigError, SchemaMismatchError, StoreError, UnsupportedError
from lazyrag.stores.protocol import (
    Approximate,
    ExactWhenSmall,
    FindsRows,
    NativeText,
    NativeVectors,
    SegmentStore,
    VectorRow,
    VectorSchema,
    VectorStore,
)
from lazyrag.testing.factories import factory_of
from lazyrag.testing.samples import (
    DIMENSION,
    FIELDS,
    FILTERS,
    METRICS,
    SCHEMA,
    dense,
    make_rows,
    make_segments,
    make_sparse_rows,
    met,
    queries,
    reference,
    sparse,
    sparse_queries,
)
from lazyrag.text.analyzers import analysers
from lazyrag.types import SPARSE, Embeddings, Metric, Ranking


def in_key_order(rows: Iterable[Any]) -> list[Any]:
    """Rows in the order of their keys."""
    return sorted(rows, key=attrgetter("key"))


def all_rows(store: Any, collection: str) -> list[Any]:
    """Every row of a small collection, in the order of keys."""
    return in_key_order(store.scan(collection))


def recreate(store: Any, collection: str, schema: Any, rows: Sequence[Any] = ()) -> None:
    """Make a collection anew, with some rows."""
    store.drop(collection)
    store.create(collection, schema)
    store.upsert(collection, rows)


def scan_pages(store: Any, collection: str, limit: int) -> list[Any]:
    """All rows of a collection, page by page."""
    seen: list[Any] = []
    while page := store.scan(collection, after=seen[-1].key if seen else "", limit=limit):
        assert len(page) <= limit
        assert page[0].key not in {row.key for row in seen}  # or there would be no end
        seen += page
    return seen


def assert_same_rows(rows: Sequence[VectorRow], expected: Sequence[VectorRow]) -> None:
    """Assert that the keys are the same, in the same order, and vectors and fields are equal."""
    assert [row.key for row in rows] == [row.key for row in expected]
    for row, other in zip(rows, expected, strict=True):
        if isinstance(other.vector, dict):
            assert sparse(row) == other.vector
        else:
            assert np.array_equal(dense(row), other.vector)
    assert [dict(row.fields) for row in rows] == [dict(row.fields) for row in expected]


def assert_same_ranking(ranking: Ranking, expected: Ranking) -> None:
    """Assert that the keys are the same, in the same order, and scores equal to 1e-6."""
    assert [key for key, _ in ranking] == [key for key, _ in expected]
    assert [score for _, score in ranking] == pytest.approx(
        [score for _, score in expected], rel=1e-6, abs=1e-6
    )


def assert_sorted(ranking: Ranking) -> None:
    """Assert that the best come first, ties by key."""
    assert ranking == sorted(ranking, key=lambda pair: (-pair[1], pair[0]))


C = "lr_contract_block_0"
D = "lr_contract_block_1"
VECTORS = "lr_contract_vectors_0"
OTHER_VECTORS = "lr_contract_vectors_1"
FILTERED = pytest.mark.parametrize("filter", FILTERS, ids=repr)
BY_METRIC = pytest.mark.parametrize("metric", METRICS)
BY_LIMIT = pytest.mark.parametrize("limit", [1, 5, 1000])


class _StoreContract:
    """The part of the contract that both kinds of store share; subclasses say what a row is."""

    collection: str
    other_collection: str
    schema: Any
    other_schemas: Sequence[Any]

    make_rows: Callable[[], list[Any]]
    """The rows of the contract, a row for each of `FIELDS`."""

    changed: Callable[[Any], Any]
    """Another row under the same key, with less in it."""

    copied: Callable[[Any, int], Any]
    """The same row under another key, by a number."""

    assert_same: Callable[[Sequence[Any], Sequence[Any]], None]
    """Assert that rows are equal and in the same order."""

    feature_checks: Callable[[Any], dict[str, Callable[[], None]]]
    """The checks of the features that only this kind of store has."""

    def make_store(self) -> Any:
        """A new, empty, closed store."""
        raise NotImplementedError(
            f"{type(self).__name__} must override make_store(self): return a new, empty, closed"
            " store."
        )

    def reopen_store(self, store: Any) -> Any:
        """A new, closed store over the rows of a closed one, as a later program makes it. For
        persistent stores.
        """
        pytest.fail(
            f"{type(store).__name__} declares the feature 'persistent', but its test does not"
            " override reopen_store(store): return a new, closed store over the rows of the given"
            " one."
        )

    def share_store(self, store: Any) -> Any:
        """A new, closed store over the rows of an open one, as another program makes it. For shared
        stores.
        """
        raise NotImplementedError

    def assert_holds(self, store: Any, expected: Iterable[Any]) -> None:
        """Assert that the collection has these rows and no others."""
        rows = in_key_order(expected)
        self.assert_same(all_rows(store, self.collection), rows)
        assert store.count(self.collection) == len(rows)

    def assert_same_count(self, store: Any) -> None:
        """Assert that the collection has as many rows as the contract."""
        assert store.count(self.collection) == len(self.make_rows())

    @pytest.fixture
    def store(self) -> Iterator[Any]:
        """An open store with one empty collection."""
        store = self.make_store()
        store.open()
        store.create(self.collection, self.schema)
        yield store
        store.close()

    @pytest.fixture
    def filled(self, store: Any) -> Any:
        """The store with the contract's rows in its collection."""
        store.upsert(self.collection, self.make_rows())
        return store

    def test_an_empty_collection_counts_nothing_and_finds_nothing(self, store: Any) -> None:
        """A collection without rows counts 0, gets [] and scans []."""
        assert store.count(self.collection) == 0
        assert store.get(self.collection, ["x"]) == store.scan(self.collection) == []

    def test_what_is_upserted_is_read_back_equal(self, filled: Any) -> None:
        """Upsert then get gives equal rows: Chinese, emoji, numbers, JSON, None, empty metadata
        included.
        """
        rows = self.make_rows()
        self.assert_same(filled.get(self.collection, [row.key for row in rows]), rows)

    def test_get_answers_in_the_order_asked_and_leaves_out_unknown_keys(self, filled: Any) -> None:
        """Get follows the order of the keys and passes over those that are not there."""
        rows = self.make_rows()
        rows_of_keys = filled.get(
            self.collection, [rows[5].key, "unknown", rows[2].key, rows[9].key]
        )
        self.assert_same(rows_of_keys, [rows[5], rows[2], rows[9]])

    def test_upsert_replaces_whole_rows(self, filled: Any) -> None:
        """A second upsert under a key leaves nothing of the first row."""
        first, *others = self.make_rows()
        changed = self.changed(first)
        filled.upsert(self.collection, [changed])
        self.assert_same(filled.get(self.collection, [first.key]), [changed])
        self.assert_holds(filled, [changed, *others])

    def test_the_same_upsert_twice_changes_nothing(self, filled: Any) -> None:
        """Upsert is idempotent."""
        filled.upsert(self.collection, self.make_rows())
        self.assert_holds(filled, self.make_rows())

    def test_of_rows_with_one_key_in_an_upsert_the_last_counts(self, store: Any) -> None:
        """A list that names a key twice is written as if its rows were written one after the
        other.
        """
        row = self.make_rows()[0]
        store.upsert(self.collection, [row, self.changed(row), row, self.changed(row)])
        self.assert_holds(store, [self.changed(row)])

    def test_builds_of_one_uid_are_different_rows(self, filled: Any) -> None:
        """The key is uid and build: a new build stands beside the old one."""
        rows = self.make_rows()
        copied = self.copied(rows[0], 100)
        filled.upsert(self.collection, [copied])
        self.assert_same(filled.get(self.collection, [rows[0].key, copied.key]), [rows[0], copied])
        self.assert_holds(filled, [*rows, copied])

    def test_upserting_no_rows_is_fine(self, filled: Any) -> None:
        """An empty list of rows changes nothing."""
        filled.upsert(self.collection, [])
        self.assert_same_count(filled)

    @BY_LIMIT
    def test_scan_pages_cover_all_rows_once(self, filled: Any, limit: int) -> None:
        """Pages of any size give every row once, complete, and in the same order."""
        pages = scan_pages(filled, self.collection, limit)
        self.assert_same(in_key_order(pages), in_key_order(self.make_rows()))
        self.assert_same(pages, filled.scan(self.collection))

    def test_scan_begins_behind_a_row_that_need_not_be_there(self, filled: Any) -> None:
        """The page behind a deleted row begins with the next one, and behind the last row there is
        nothing.
        """
        rows = filled.scan(self.collection)
        filled.delete(self.collection, keys=[rows[4].key])
        self.assert_same(filled.scan(self.collection, after=rows[4].key, limit=3), rows[5:8])
        assert filled.scan(self.collection, after=rows[-1].key) == []

    def test_delete_by_keys_returns_how_many_went(self, filled: Any) -> None:
        """Deleting counts the rows that were there; an unknown key is no error."""
        rows = self.make_rows()
        assert filled.delete(self.collection, keys=[rows[0].key, "unknown", rows[1].key]) == 2
        assert filled.delete(self.collection, keys=[rows[0].key]) == 0
        self.assert_holds(filled, rows[2:])

    def test_an_empty_list_of_keys_deletes_nothing(self, filled: Any) -> None:
        """Deleting nothing deletes nothing."""
        assert filled.delete(self.collection, keys=[]) == 0
        self.assert_same_count(filled)

    @FILTERED
    def test_delete_by_filter_takes_exactly_the_rows_that_meet_it(
        self, filled: Any, filter: Filter
    ) -> None:
        """A filter deletes what the reference evaluator says, no more and no less."""
        deleted = met(filter)
        assert filled.delete(self.collection, filter=filter) == len(deleted)
        self.assert_holds(
            filled, [row for number, row in enumerate(self.make_rows()) if number not in deleted]
        )

    def test_delete_needs_keys_or_a_filter(self, filled: Any) -> None:
        """Neither or both is a ConfigError: nothing is ever deleted by omission."""
        with pytest.raises(ConfigError, match="exactly one"):
            filled.delete(self.collection)
        with pytest.raises(ConfigError, match="exactly one"):
            filled.delete(self.collection, keys=[], filter=FILTERS[0])

    def test_collections_are_isolated(self, filled: Any) -> None:
        """The same key in two collections is two rows, and dropping one leaves the other."""
        filled.create(self.other_collection, self.schema)
        assert filled.count(self.other_collection) == 0
        filled.upsert(self.other_collection, self.make_rows()[:1])
        filled.drop(self.collection)
        assert filled.count(self.other_collection) == 1

    def test_create_again_changes_nothing(self, filled: Any) -> None:
        """Creating a collection that is there keeps its rows."""
        filled.create(self.collection, self.schema)
        self.assert_same_count(filled)

    def test_create_with_another_schema_is_refused(self, filled: Any) -> None:
        """Another schema for a collection that is there is a SchemaMismatchError."""
        for schema in self.other_schemas:
            with pytest.raises(SchemaMismatchError):
                filled.create(self.collection, schema)

    def test_a_collection_that_was_never_created_is_an_error(self, store: Any) -> None:
        """Reading or writing an unknown collection raises StoreError, dropping one does not."""
        for use in (
            store.count,
            store.scan,
            lambda name: store.get(name, ["x"]),
            lambda name: store.upsert(name, []),
        ):
            with pytest.raises(StoreError):
                use("lr_unknown")
        store.drop("lr_unknown")

    def test_a_dropped_collection_is_gone(self, filled: Any) -> None:
        """After drop and create the collection is empty."""
        filled.drop(self.collection)
        filled.create(self.collection, self.schema)
        assert filled.count(self.collection) == 0

    def test_concurrent_upserts_lose_nothing(self, store: Any) -> None:
        """Two threads that write different rows leave all of them, while a third reads."""
        rows = []
        for number in range(100, 110):
            rows += [self.copied(row, number) for row in self.make_rows()]

        def write(half: list[Any]) -> None:
            for row in half:
                store.upsert(self.collection, [row])

        threads = [threading.Thread(target=write, args=(half,)) for half in (rows[::2], rows[1::2])]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.read_during_writes(store)
        for thread in threads:
            thread.join()
        assert store.count(self.collection) == len(rows)
        pages = scan_pages(store, self.collection, 100)
        self.assert_same(in_key_order(pages), in_key_order(rows))

    def read_during_writes(self, store: Any) -> None:
        """Read while others write."""
        assert len(store.scan(self.collection, limit=3)) <= 3

    def test_opening_and_closing_twice_is_fine(self) -> None:
        """Open and close are idempotent."""
        store = self.make_store()
        store.open()
        store.open()
        store.close()
        store.close()

    def test_what_is_declared_is_kept(self, filled: Any) -> None:
        """Every feature that the store declares passes its test; one without a test fails, so that
        none is skipped.
        """
        checks = {
            "persistent": lambda: self._assert_persistent(filled),
            "server": lambda: self._assert_ranks(filled),
            **self.feature_checks(filled),
        }
        if type(self).share_store is not _StoreContract.share_store:
            checks["shared"] = lambda: self._assert_shared(filled)
        for feature in sorted(filled.features):
            if feature not in checks:
                pytest.fail(
                    f"The store declares the feature {feature!r}, for which this suite has no test."
                    f" It has tests for: {', '.join(sorted(checks))}. Remove the feature until it"
                    " has one."
                )
            # the check of another feature may have closed the store and left other rows
            filled.open()
            recreate(filled, self.collection, self.schema, self.make_rows())
            checks[feature]()

    def _assert_ranks(self, filled: Any) -> None:
        """A store whose own ranking is the default has one."""
        assert {"native text", "native vectors"} & filled.features, (
            "A store that declares 'server' declares 'native text' or 'native vectors', too."
        )

    def _assert_persistent(self, filled: Any) -> None:
        """Acknowledged writes and deletions are there after close and open, in this object and in
        another.
        """
        first, second, *others = self.make_rows()
        self._change(filled, first, second)
        filled.close()
        filled.open()
        self.assert_holds(filled, [self.changed(second), *others])
        filled.close()
        with self._opened(self.reopen_store, filled) as again:
            again.create(self.collection, self.schema)
            self.assert_holds(again, [self.changed(second), *others])
            with pytest.raises(SchemaMismatchError):
                again.create(self.collection, self.other_schemas[0])

    def _assert_shared(self, filled: Any) -> None:
        """Acknowledged writes and deletions of either of two programs are seen by the other's next
        call.
        """
        first, second, *others = self.make_rows()
        with self._opened(self.share_store, filled) as other:
            other.create(self.collection, self.schema)
            self.assert_holds(other, self.make_rows())
            self._change(filled, first, second)
            self.assert_holds(other, [self.changed(second), *others])
            self.assert_same(
                other.get(self.collection, [first.key, second.key]), [self.changed(second)]
            )
            other.upsert(self.collection, [first])
            other.delete(self.collection, keys=[second.key])
            self.assert_holds(filled, [first, *others])
            filled.drop(self.collection)
            with pytest.raises(StoreError):
                other.scan(self.collection)

    def _change(self, store: Any, deleted: Any, changed: Any) -> None:
        """Delete a row, and replace another one."""
        store.delete(self.collection, keys=[deleted.key])
        store.upsert(self.collection, [self.changed(changed)])

    @contextmanager
    def _opened(self, make: Callable[[Any], Any], store: Any) -> Iterator[Any]:
        """Another store over the rows of a store, open."""
        other = make(store)
        assert other is not store, (
            f"{make.__name__}() returned its argument; it must make another store."
        )
        other.open()
        try:
            yield other
        finally:
            other.close()


class SegmentStoreContract(_StoreContract):
    """Subclass it as ``TestSomething`` and override `make_store`; for a persistent store also
    `reopen_store`, for a shared one also `share_store`.
    """

    collection = C
    other_collection = D
    schema = SCHEMA
    other_schemas = (make_schema(None),)

    make_rows = staticmethod(make_segments)

    def changed(self, row: Segment) -> Segment:
        """Another segment under the same key; metadata must not be merged."""
        return row._replace(content="changed", path="elsewhere", metadata={"other": 1}, span=None)

    def copied(self, row: Segment, number: int) -> Segment:
        """Another build of a segment."""
        return row._replace(build=number)

    def assert_same(self, segments: Sequence[Segment], expected: Sequence[Segment]) -> None:
        """Assert that segments are equal, and that 0 is an integer and False a boolean."""
        assert [*segments] == [*expected]
        assert [type(row.content) for row in segments] == [type(row.content) for row in expected]

    def feature_checks(self, store: SegmentStore) -> dict[str, Callable[[], None]]:
        """The check of keyword search."""
        return {"native text": lambda: self._assert_native_text(store)}

    def test_a_root_keeps_its_places(self, store: SegmentStore) -> None:
        """A node without a parent comes back without one; its pages and headings come back in their
        order.
        """
        locations = (
            Location(0, 9, "page", "1"),
            Location(4, 9, "heading", "安装 > Setup 🍵"),
            Location(9, 9, "page", "2"),
        )
        root = make_segments()[0]._replace(parent=None, span=(0, 9), locations=locations)
        store.upsert(C, [root])
        assert store.get(C, [root.key]) == [root]

    def test_the_builds_of_a_node(self, filled: SegmentStore) -> None:
        """Its builds are found by its uid, ascending; those of a uid that begins alike are not."""
        row = make_segments()[0]
        longer = row._replace(uid=f"{row.uid}0", build=7)
        filled.upsert(C, [row._replace(build=100), row._replace(build=20), longer])
        assert filled.builds_of(C, row.uid) == sorted([row.build, 20, 100])
        assert filled.builds_of(C, longer.uid) == [7]
        assert filled.builds_of(C, "unknown") == []

    def _assert_native_text(self, filled: SegmentStore) -> None:
        """The store's own search finds the rows that share a term with the query and meet a
        filter.
        """
        assert isinstance(filled, NativeText), (
            "A store that declares 'native text' has the method search_text."
        )
        rows = make_segments()
        for analyser, query in (("zh", "红茶与🍵"), ("en", "a line of emoji")):
            terms_of = analysers[analyser].terms
            terms = terms_of(query)
            scanned = {
                row.key
                for row in rows
                if not {*terms}.isdisjoint(terms_of(content_text(row.content)))
            }
            assert 0 < len(scanned) < len(rows), f"The query {query!r} tests nothing."
            ranking = filled.search_text(C, analyser, terms, len(rows))
            assert dict(ranking).keys() == scanned
            assert_sorted(ranking)
            if isinstance(filled, FindsRows):
                pairs = filled.find_rows(C, analyser, terms, len(rows))
                assert [(row.key, score) for row, score in pairs] == ranking
                self.assert_same(
                    [row for row, _ in pairs], filled.get(C, [key for key, _ in ranking])
                )
            assert filled.search_text(C, analyser, terms, 1) == ranking[:1]
            for condition in FILTERS:
                expected = {rows[number].key for number in met(condition)} & scanned
                filtered = filled.search_text(C, analyser, terms, len(rows), condition)
                assert dict(filtered).keys() == expected
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


SPARSE_SCHEMA = VectorSchema(SPARSE, "ip", SCHEMA)


def assert_sparse(store: VectorStore, collection: str) -> None:
    """Sparse vectors are written, read back, ranked, filtered and deleted like dense ones.

    A vector of the other kind is refused in collections of either, and nothing of such a call is
    written.

    Args:
        store: An open store.
        collection: A name that it may create and drop.
    """
    rows = make_sparse_rows()
    near = sparse_queries(5)
    recreate(store, collection, SPARSE_SCHEMA)
    assert store.search(collection, near[:1], 3) == [[]]
    store.upsert(collection, rows[::2])
    store.upsert(collection, rows[1::2])
    store.create(collection, SPARSE_SCHEMA)
    _assert_read(store, collection, rows)
    for condition in (None, *FILTERS):
        _assert_rankings(store, collection, "ip", rows, near, condition, topk=3)
    _assert_kinds(store, collection, rows)
    deleted = {rows[number].key for number in met(FILTERS[0])} | {rows[0].key}
    store.delete(collection, keys=[rows[0].key])
    store.delete(collection, filter=FILTERS[0])
    changed = VectorRow(rows[0].key, {1: 9.0}, FIELDS[1])
    store.upsert(collection, [changed])
    left = in_key_order([*(row for row in rows if row.key not in deleted), changed])
    _assert_read(store, collection, left)
    _assert_rankings(store, collection, "ip", left, near, topk=3)
    store.drop(collection)


def _assert_read(store: VectorStore, collection: str, rows: Sequence[VectorRow]) -> None:
    """Rows are counted, got and paged as they were written."""
    assert store.count(collection) == len(rows)
    assert_same_rows(scan_pages(store, collection, 5), rows)
    assert_same_rows(store.get(collection, [row.key for row in rows]), rows)


def _assert_kinds(store: VectorStore, collection: str, rows: Sequence[VectorRow]) -> None:
    """What is dense has no place among what is sparse, and the other way round; nothing of such a
    call is written.
    """
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
    recreate(store, collection, VectorSchema(4, "ip", SCHEMA))
    with pytest.raises(SchemaMismatchError):
        store.upsert(collection, [dense, rows[0]])
    with pytest.raises(ConfigError):
        store.search(collection, [{1: 1.0}], 1)
    with pytest.raises(SchemaMismatchError):
        store.create(collection, SPARSE_SCHEMA)
    assert store.count(collection) == 0
    recreate(store, collection, SPARSE_SCHEMA, rows)


_MANY = 2000
_MIN_EXACT = 100  # the contract's own collections are smaller


def assert_exact(store: VectorStore, collection: str, count: int = _MANY) -> None:
    """Search returns the true nearest rows under every metric, whatever vectors a collection holds.

    Among many that lie close together; and among many that are equal, of which some have gone and
    others have come.

    Args:
        store: An open store.
        collection: A name that it may create and drop.
        count: How many rows.
    """
    rng = np.random.default_rng(13)
    vectors = (rng.normal(size=DIMENSION) + 0.01 * rng.normal(size=(count, DIMENSION))).astype(
        np.float32
    )
    close = [VectorRow(f"k{number:04d}", vector) for number, vector in enumerate(vectors)]
    for metric in METRICS:
        schema = VectorSchema(DIMENSION, metric, SCHEMA)
        recreate(store, collection, schema, close)
        _assert_rankings(store, collection, metric, close, queries(5))
        recreate(store, collection, schema)
        _assert_equal_rows(store, collection, metric, count)
    store.drop(collection)


def assert_exact_when_small(store: VectorStore, collection: str) -> None:
    """The same in a collection of as many rows as the store says, or as many as can be tested in a
    short time.
    """
    assert isinstance(store, ExactWhenSmall)
    assert store.exact_rows >= _MIN_EXACT
    assert_exact(store, collection, min(_MANY, store.exact_rows))


def assert_approximate(store: VectorStore, collection: str) -> None:
    """The approximate search finds as many rows as the exact one, most of them the same, with the
    same scores.

    Args:
        store: An open store.
        collection: Of the contract's vectors, ranked by cosine. The same for `assert_native`.
    """
    assert isinstance(store, Approximate)
    for condition in (None, *FILTERS):
        for topk in (1, 7, 1000):
            exact = store.search(collection, queries(5), topk, condition)
            rankings = store.search_approximately(collection, queries(5), topk, condition)
            assert list(map(len, rankings)) == list(map(len, exact))
            same = 0
            for ranking, nearest in zip(rankings, exact, strict=True):
                assert_sorted(ranking)
                same += len({*ranking} & {*nearest})
            assert same >= 0.5 * sum(map(len, exact))
    with pytest.raises(ConfigError):
        store.search_approximately(collection, queries(1), 0)


def assert_native(store: VectorStore, collection: str) -> None:
    """The backend's own search gives rows that meet the filter, most of the nearest, with nearly
    the right scores.
    """
    assert isinstance(store, NativeVectors)
    for condition in (None, *FILTERS):
        numbers = range(len(make_rows())) if condition is None else met(condition)
        allowed = {make_rows()[number].key for number in numbers}
        for topk in (3, 1000):
            exact = store.search(collection, queries(5), topk, condition)
            rankings = store.search_natively(collection, queries(5), topk, condition)
            same = 0
            for query, ranking, nearest in zip(queries(5), rankings, exact, strict=True):
                assert len(ranking) <= topk
                assert_sorted(ranking)
                scores = dict(ranking)
                assert len(scores) == len(ranking)
                assert scores.keys() <= allowed
                expected = dict(reference(query, "cosine"))
                assert scores == pytest.approx({key: expected[key] for key in scores}, abs=1e-3)
                same += len(scores.keys() & dict(nearest).keys())
            assert same >= 0.5 * sum(map(len, exact))
    with pytest.raises(ConfigError):
        store.search_natively(collection, queries(1), 0)


def _assert_equal_rows(store: VectorStore, collection: str, metric: Metric, count: int) -> None:
    """Half of the rows are equal, few of them meet a filter, some are deleted and written again
    with other vectors.
    """
    rng = np.random.default_rng(23)
    vectors = rng.normal(size=(count, DIMENSION)).astype(np.float32)
    vectors[::2] = vectors[0]
    rows = [
        VectorRow(
            f"k{number:04d}",
            vector,
            {"year": number % 25, "author": "plain" if number % 3 else None},
        )
        for number, vector in enumerate(vectors)
    ]
    store.upsert(collection, rows)
    near = np.concatenate([vectors[:1], queries(1)])
    _assert_rankings(store, collection, metric, rows, near)
    few = Condition("year", "eq", 4)
    assert 0 < sum(matches(few, row.fields) for row in rows) < count / 10
    _assert_rankings(store, collection, metric, rows, near, few)
    store.delete(collection, keys=[row.key for row in rows[: count // 2]])
    changed = [VectorRow(row.key, -vectors[1], row.fields) for row in rows[: count // 4]]
    store.upsert(collection, changed)
    left = [*changed, *rows[count // 2 :]]
    _assert_rankings(store, collection, metric, left, near)
    _assert_rankings(store, collection, metric, left, near, few)
    _assert_rankings(store, collection, metric, left, near, Condition("author", "exists", False))


def _assert_rankings(
    store: VectorStore,
    collection: str,
    metric: Metric,
    rows: Sequence[VectorRow],
    near: Embeddings,
    condition: Filter | None = None,
    topk: int = 20,
) -> None:
    """A search finds what a plain computation finds: the best rows in order, and all of them."""
    matching = [row for row in rows if condition is None or matches(condition, row.fields)]
    best = store.search(collection, near, topk, condition)
    complete = store.search(collection, near, len(rows) + 1, condition)
    for query, first, every in zip(near, best, complete, strict=True):
        expected = reference(query, metric, matching)
        assert_same_ranking(first, expected[:topk])
        assert sorted(key for key, _ in every) == sorted(dict(expected))


class VectorStoreContract(_StoreContract):
    """Subclass it as ``TestSomething`` and override `make_store`; for a persistent store also
    `reopen_store`, for a shared one also `share_store`.
    """

    collection = VECTORS
    other_collection = OTHER_VECTORS
    schema = VectorSchema(DIMENSION, "cosine", SCHEMA)
    other_schemas = (
        VectorSchema(DIMENSION, "l2", SCHEMA),
        VectorSchema(DIMENSION + 1, "cosine", SCHEMA),
    )

    make_rows = staticmethod(make_rows)

    def changed(self, row: VectorRow) -> VectorRow:
        """Another vector with other fields under the same key."""
        return VectorRow(row.key, -dense(row), FIELDS[1] if row.fields != FIELDS[1] else FIELDS[0])

    def copied(self, row: VectorRow, number: int) -> VectorRow:
        """The same vector under another key."""
        return VectorRow(f"{row.key}-{number}", row.vector, row.fields)

    assert_same = staticmethod(assert_same_rows)

    def assert_holds(self, store: VectorStore, expected: Iterable[VectorRow]) -> None:
        """Assert that the collection has these rows and no others, in key order and for search
        too.
        """
        rows = in_key_order(expected)
        assert_same_rows(store.scan(VECTORS), rows)
        assert store.count(VECTORS) == len(rows)
        [ranking] = store.search(VECTORS, queries(1), 10_000)
        assert_same_ranking(ranking, reference(queries(1)[0], "cosine", rows))

    def read_during_writes(self, store: VectorStore) -> None:
        """A search while others write is sorted."""
        [ranking] = store.search(VECTORS, queries(1), 3)
        assert [score for _, score in ranking] == sorted(
            (score for _, score in ranking), reverse=True
        )

    def feature_checks(self, store: VectorStore) -> dict[str, Callable[[], None]]:
        """The checks of searches and of sparse vectors."""
        return {
            "exact": lambda: assert_exact(store, OTHER_VECTORS),
            "exact when small": lambda: assert_exact_when_small(store, OTHER_VECTORS),
            "approximate": lambda: assert_approximate(store, VECTORS),
            "native vectors": lambda: assert_native(store, VECTORS),
            "sparse": lambda: assert_sparse(store, OTHER_VECTORS),
        }

    def test_a_search_of_an_empty_collection_finds_nothing(self, store: VectorStore) -> None:
        """There is an empty ranking for each query."""
        assert store.search(VECTORS, queries(2), 3) == [[], []]

    @BY_LIMIT
    def test_scan_pages_cover_all_rows_once_in_key_order(
        self, store: VectorStore, limit: int
    ) -> None:
        """Pages of any size follow the order of keys, whatever order the rows were written in."""
        rows = make_rows()
        store.upsert(VECTORS, rows[::2])
        store.upsert(VECTORS, rows[:0:-2])
        assert_same_rows(scan_pages(store, VECTORS, limit), rows)

    @BY_LIMIT
    def test_scan_follows_deletes_and_upserts(self, filled: VectorStore, limit: int) -> None:
        """Pages leave out what was deleted, by key or by filter, and give replaced and new rows as
        they are now.
        """
        assert_same_rows(scan_pages(filled, VECTORS, limit), make_rows())
        by_filter = met(FILTERS[0])
        others = [row for number, row in enumerate(make_rows()) if number not in by_filter]
        deleted, replaced, *unchanged = others
        filled.delete(VECTORS, keys=[deleted.key])
        filled.delete(VECTORS, filter=FILTERS[0])
        written = [
            self.changed(replaced),
            *(VectorRow(key, replaced.vector) for key in ("zz", "00", "绿茶")),
        ]
        filled.upsert(VECTORS, written)
        expected = sorted([*unchanged, *written], key=attrgetter("key"))
        assert_same_rows(scan_pages(filled, VECTORS, limit), expected)

    def test_a_wrong_dimension_is_refused_and_nothing_is_written(self, filled: VectorStore) -> None:
        """A vector of another length is a SchemaMismatchError that names both; its companions are
        not written.
        """
        rows = [
            VectorRow("good", np.ones(DIMENSION, np.float32)),
            VectorRow("bad", np.ones(3, np.float32)),
        ]
        with pytest.raises(SchemaMismatchError, match=rf"{DIMENSION}.*3"):
            filled.upsert(VECTORS, rows)
        self.assert_same_count(filled)

    @BY_METRIC
    def test_search_returns_the_true_nearest(self, store: VectorStore, metric: Metric) -> None:
        """Keys and scores are those of a plain computation in float64, best first, higher being
        closer.
        """
        store.create(OTHER_VECTORS, VectorSchema(DIMENSION, metric, SCHEMA))
        store.upsert(OTHER_VECTORS, make_rows())
        for query, ranking in zip(
            queries(5), store.search(OTHER_VECTORS, queries(5), 7), strict=True
        ):
            assert_same_ranking(ranking, reference(query, metric)[:7])

    @BY_METRIC
    def test_ties_are_complete_and_ordered_by_key(self, store: VectorStore, metric: Metric) -> None:
        """Of equal vectors at the boundary the smallest keys are returned, whatever order they were
        written in.
        """
        store.create(OTHER_VECTORS, VectorSchema(DIMENSION, metric, SCHEMA))
        same = np.arange(1, DIMENSION + 1).astype(np.float32)
        keys = [f"k{number:02d}" for number in range(12)]
        store.upsert(OTHER_VECTORS, [VectorRow(key, same) for key in keys[::-1]])
        [ranking] = store.search(OTHER_VECTORS, same[None], 5)
        assert [key for key, _ in ranking] == keys[:5]
        assert len({score for _, score in ranking}) == 1

    def test_cosine_ignores_length(self, filled: VectorStore) -> None:
        """Doubling the query changes no score."""
        [expected] = filled.search(VECTORS, queries(1), 5)
        [ranking] = filled.search(VECTORS, 2 * queries(1), 5)
        assert_same_ranking(ranking, expected)

    def test_more_than_there_are_is_fine(self, filled: VectorStore) -> None:
        """A topk above the count returns every row."""
        [ranking] = filled.search(VECTORS, queries(1), 10_000)
        assert len(ranking) == len(make_rows())

    @pytest.mark.parametrize("topk", [0, -1])
    def test_topk_below_one_is_refused(self, filled: VectorStore, topk: int) -> None:
        """A topk below 1 is a ConfigError."""
        with pytest.raises(ConfigError, match="topk"):
            filled.search(VECTORS, queries(1), topk)

    @FILTERED
    def test_search_ranks_exactly_the_rows_that_meet_a_filter(
        self, filled: VectorStore, filter: Filter
    ) -> None:
        """A filtered search is the unfiltered ranking without the rows that do not meet the
        filter.
        """
        keys = {make_rows()[number].key for number in met(filter)}
        [ranking] = filled.search(VECTORS, queries(1), 10_000, filter)
        assert_same_ranking(
            ranking, [pair for pair in reference(queries(1)[0], "cosine") if pair[0] in keys]
        )

    def test_a_narrow_filter_does_not_shorten_the_result(self, filled: VectorStore) -> None:
        """The topk best that meet a filter are found even if none of them is among the topk best of
        all.
        """
        filter_ = FILTERS[0]
        [ranking] = filled.search(VECTORS, queries(1), 2, filter_)
        assert len(ranking) == min(2, len(met(filter_)))

    def test_a_deleted_key_can_be_written_again(self, filled: VectorStore) -> None:
        """After delete and upsert the new vector is found and the old one is not."""
        row = make_rows()[0]
        filled.delete(VECTORS, keys=[stored.key for stored in make_rows()])
        filled.upsert(VECTORS, [VectorRow(row.key, -dense(row), row.fields)])
        [[(key, score)]] = filled.search(VECTORS, dense(row)[None], 5)
        assert (key, round(score, 5)) == (row.key, -1.0)

    def test_a_store_that_does_not_declare_sparse_refuses_such_a_schema(
        self, filled: VectorStore
    ) -> None:
        """Without the feature a sparse schema is an UnsupportedError, and the other collections
        stay as they are.
        """
        if "sparse" not in filled.features:
            with pytest.raises(UnsupportedError):
                filled.create(OTHER_VECTORS, SPARSE_SCHEMA)
        self.assert_same_count(filled)


class _NamedStore:
    """Makes the stores that the command line names."""

    kind: str

    @pytest.fixture(autouse=True)
    def _find_store(self, pytestconfig: pytest.Config, tmp_path: Path) -> None:
        self.factory = factory_of(pytestconfig, self.kind)
        self.path = tmp_path / f"store_{uuid.uuid4().hex}"

    def make_store(self) -> Any:
        """See `SegmentStoreContract.make_store`."""
        return self.factory.make(self.path)

    def reopen_store(self, store: object) -> Any:  # noqa: ARG002  the path has the rows
        """See `SegmentStoreContract.reopen_store`."""
        return self.factory.reopen(self.path)

    share_store = reopen_store


class TestSegmentStore(_NamedStore, SegmentStoreContract):
    """The store of ``--lazyrag-segment-store``."""

    kind = "segment"


class TestVectorStore(_NamedStore, VectorStoreContract):
    """The store of ``--lazyrag-vector-store``."""

    kind = "vector"
