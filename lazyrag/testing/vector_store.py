"""The contract of vector stores, one test a sentence."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lazyrag.data.filters import Filter
from lazyrag.errors import ConfigError, SchemaMismatchError, StoreError
from lazyrag.stores.protocol import VectorRow, VectorSchema, VectorStore
from lazyrag.testing.features import check_features, no_reopening
from lazyrag.testing.rows import FIELDS, FILTERS, SCHEMA, met
from lazyrag.testing.sparse_vectors import check_no_sparse, check_sparse
from lazyrag.testing.vector_features import check_approximate, check_exact, check_exact_when_small, check_native
from lazyrag.testing.vector_rows import (
    DIMENSION,
    METRICS,
    assert_same_ranking,
    assert_same_rows,
    dense,
    make_rows,
    queries,
    reference,
    scan_pages,
)
from lazyrag.types import Metric

C = "lr_contract_vectors_0"
D = "lr_contract_vectors_1"


class VectorStoreContract:
    """Subclass it as ``TestSomething`` and override `make_store`; for a persistent store `reopen_store`, too, and for a
    shared one `share_store`.
    """

    def make_store(self) -> VectorStore:
        """A new, empty, closed store."""
        msg = f"{type(self).__name__} overrides no make_store(self): return a new, empty, closed store there."
        raise NotImplementedError(msg)

    def reopen_store(self, store: VectorStore) -> VectorStore:
        """A new, closed store over what a closed one has kept, as a later program makes it. For persistent stores."""
        no_reopening(store)

    def share_store(self, store: VectorStore) -> VectorStore:
        """A new, closed store over what an open one keeps, as another program makes it meanwhile. For shared stores."""
        raise NotImplementedError

    @pytest.fixture
    def store(self) -> Iterator[VectorStore]:
        """An open store with one empty collection, ranked by cosine."""
        store = self.make_store()
        store.open()
        store.create(C, VectorSchema(DIMENSION, "cosine", SCHEMA))
        yield store
        store.close()

    @pytest.fixture
    def filled(self, store: VectorStore) -> VectorStore:
        """The store with the contract's vectors in its collection."""
        store.upsert(C, make_rows())
        return store

    def test_an_empty_collection_counts_nothing_and_finds_nothing(self, store: VectorStore) -> None:
        """A collection without rows counts 0, gets [], scans [] and finds [] for each query."""
        assert (store.count(C), store.get(C, ["x"]), store.scan(C)) == (0, [], [])
        assert store.search(C, queries(2), 3) == [[], []]

    def test_what_is_upserted_is_read_back_equal(self, filled: VectorStore) -> None:
        """Upsert then get gives the same keys, float32 values and fields, in the order asked."""
        rows = make_rows()[::-1]
        assert_same_rows(filled.get(C, [row.key for row in rows] + ["unknown"]), rows)

    def test_upsert_replaces_whole_rows(self, filled: VectorStore) -> None:
        """A second upsert under a key leaves neither the old vector nor the old fields."""
        rows = make_rows()
        filled.upsert(C, [VectorRow(rows[0].key, -dense(rows[0]), FIELDS[1])])
        [read] = filled.get(C, [rows[0].key])
        assert np.array_equal(dense(read), -dense(rows[0]))
        assert dict(read.fields) == dict(FIELDS[1])
        assert filled.count(C) == len(rows)

    def test_the_same_upsert_twice_changes_nothing(self, filled: VectorStore) -> None:
        """Upsert is idempotent, for search too."""
        before = filled.search(C, queries(3), 10)
        filled.upsert(C, make_rows())
        assert filled.count(C) == len(make_rows())
        assert filled.search(C, queries(3), 10) == before

    @pytest.mark.parametrize("limit", [1, 5, 1000])
    def test_scan_pages_cover_all_rows_once_in_key_order(self, store: VectorStore, limit: int) -> None:
        """Pages of any size give every row once, whole, in the order of keys, whatever order they were written in."""
        rows = make_rows()
        store.upsert(C, rows[::2])
        store.upsert(C, rows[:0:-2])
        assert_same_rows(scan_pages(store, C, limit), rows)

    @pytest.mark.parametrize("limit", [1, 5, 1000])
    def test_scan_follows_deletes_and_upserts(self, filled: VectorStore, limit: int) -> None:
        """Pages leave out what was deleted, by key or by filter, and give replaced and new rows as they are now."""
        rows = make_rows()
        assert_same_rows(scan_pages(filled, C, limit), rows)
        by_filter = met(FILTERS[0])
        by_key, replaced = [number for number in range(len(rows)) if number not in by_filter][:2]
        filled.delete(C, keys=[rows[by_key].key])
        filled.delete(C, filter=FILTERS[0])
        rows[replaced] = VectorRow(rows[replaced].key, -dense(rows[replaced]), FIELDS[0])
        new = [VectorRow(key, rows[0].vector, rows[0].fields) for key in ("zz", "00", "绿茶")]
        filled.upsert(C, [rows[replaced], *new])
        left = [row for number, row in enumerate(rows) if number not in {by_key, *by_filter}]
        assert_same_rows(scan_pages(filled, C, limit), sorted([*left, *new], key=lambda row: row.key))

    def test_scan_begins_behind_a_key_that_need_not_be_there(self, filled: VectorStore) -> None:
        """The page behind a deleted key begins with the next one, and behind the last key there is nothing."""
        rows = make_rows()
        filled.delete(C, keys=[rows[4].key])
        assert_same_rows(filled.scan(C, after=rows[4].key, limit=3), rows[5:8])
        assert filled.scan(C, after=rows[-1].key) == []

    def test_a_wrong_dimension_is_refused_and_nothing_is_written(self, filled: VectorStore) -> None:
        """A vector of another length is a SchemaMismatchError that names both; its companions are not written."""
        rows = [VectorRow("good", np.ones(DIMENSION, np.float32)), VectorRow("bad", np.ones(3, np.float32))]
        with pytest.raises(SchemaMismatchError, match=rf"{DIMENSION}.*3"):
            filled.upsert(C, rows)
        assert filled.count(C) == len(make_rows())

    @pytest.mark.parametrize("metric", METRICS)
    def test_search_returns_the_true_nearest(self, store: VectorStore, metric: Metric) -> None:
        """Keys and scores are those of a plain computation in float64, best first, higher being closer."""
        store.create(D, VectorSchema(DIMENSION, metric, SCHEMA))
        store.upsert(D, make_rows())
        for query, found in zip(queries(5), store.search(D, queries(5), 7), strict=True):
            assert_same_ranking(found, reference(query, metric)[:7])

    @pytest.mark.parametrize("metric", METRICS)
    def test_ties_are_complete_and_ordered_by_key(self, store: VectorStore, metric: Metric) -> None:
        """Of equal vectors at the boundary the smallest keys are returned, whatever order they were written in."""
        store.create(D, VectorSchema(DIMENSION, metric, SCHEMA))
        same = np.arange(1, DIMENSION + 1).astype(np.float32)
        keys = [f"k{number:02d}" for number in range(12)]
        store.upsert(D, [VectorRow(key, same) for key in keys[::-1]])
        [found] = store.search(D, same[None], 5)
        assert [key for key, _ in found] == keys[:5]
        assert len({score for _, score in found}) == 1

    def test_cosine_ignores_length(self, filled: VectorStore) -> None:
        """Doubling the query changes no score."""
        [one], [other] = filled.search(C, queries(1), 5), filled.search(C, 2 * queries(1), 5)
        assert_same_ranking(one, other)

    def test_more_than_there_are_is_fine(self, filled: VectorStore) -> None:
        """A topk above the count returns every row."""
        [found] = filled.search(C, queries(1), 10_000)
        assert len(found) == len(make_rows())

    @pytest.mark.parametrize("topk", [0, -1])
    def test_topk_below_one_is_refused(self, filled: VectorStore, topk: int) -> None:
        """A topk below 1 is a ConfigError."""
        with pytest.raises(ConfigError, match="topk"):
            filled.search(C, queries(1), topk)

    @pytest.mark.parametrize("filter", FILTERS, ids=repr)
    def test_search_ranks_exactly_the_rows_that_meet_a_filter(self, filled: VectorStore, filter: Filter) -> None:  # noqa: A002
        """A filtered search is the unfiltered ranking without the rows that do not meet the filter."""
        keys = {make_rows()[number].key for number in met(filter)}
        [found] = filled.search(C, queries(1), 10_000, filter)
        assert_same_ranking(found, [pair for pair in reference(queries(1)[0], "cosine") if pair[0] in keys])

    def test_a_narrow_filter_does_not_shorten_the_result(self, filled: VectorStore) -> None:
        """The topk best that meet a filter are found even if none of them is among the topk best of all."""
        filter_ = FILTERS[0]
        [found] = filled.search(C, queries(1), 2, filter_)
        assert len(found) == min(2, len(met(filter_)))

    @pytest.mark.parametrize("filter", FILTERS[:8], ids=repr)
    def test_delete_by_filter_takes_exactly_the_rows_that_meet_it(self, filled: VectorStore, filter: Filter) -> None:  # noqa: A002
        """A filter deletes what the reference evaluator says; search finds the rest."""
        gone = {make_rows()[number].key for number in met(filter)}
        assert filled.delete(C, filter=filter) == len(gone)
        [found] = filled.search(C, queries(1), 10_000)
        assert {key for key, _ in found} == {row.key for row in make_rows()} - gone

    def test_delete_by_keys_returns_how_many_went(self, filled: VectorStore) -> None:
        """Deleting counts the rows that were there; an unknown key is no error; no keys delete nothing."""
        keys = [row.key for row in make_rows()]
        assert filled.delete(C, keys=[keys[0], "unknown"]) == 1
        assert filled.delete(C, keys=[]) == 0
        assert filled.count(C) == len(keys) - 1
        [found] = filled.search(C, queries(1), 10_000)
        assert {key for key, _ in found} == {*keys[1:]}

    def test_delete_needs_keys_or_a_filter(self, filled: VectorStore) -> None:
        """Neither is a ConfigError: nothing is ever deleted by omission."""
        with pytest.raises(ConfigError, match="exactly one"):
            filled.delete(C)

    def test_a_deleted_key_can_be_written_again(self, filled: VectorStore) -> None:
        """After delete and upsert the new vector is found and the old one is not."""
        row = make_rows()[0]
        filled.delete(C, keys=[one.key for one in make_rows()])
        filled.upsert(C, [VectorRow(row.key, -dense(row), row.fields)])
        [[(key, score)]] = filled.search(C, dense(row)[None], 5)
        assert (key, round(score, 5)) == (row.key, -1.0)

    def test_collections_are_isolated(self, filled: VectorStore) -> None:
        """The same key in two collections is two rows, and dropping one leaves the other."""
        filled.create(D, VectorSchema(DIMENSION, "cosine", SCHEMA))
        filled.upsert(D, make_rows()[:1])
        filled.drop(C)
        assert filled.count(D) == 1

    def test_create_with_another_shape_is_refused(self, filled: VectorStore) -> None:
        """Another dimension or metric for a collection that is there is a SchemaMismatchError; the same is fine."""
        filled.create(C, VectorSchema(DIMENSION, "cosine", SCHEMA))
        assert filled.count(C) == len(make_rows())
        for other in (VectorSchema(DIMENSION + 1, "cosine", SCHEMA), VectorSchema(DIMENSION, "l2", SCHEMA)):
            with pytest.raises(SchemaMismatchError):
                filled.create(C, other)

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
                store.upsert(C, [row])

        threads = [threading.Thread(target=write, args=(half,)) for half in (rows[::2], rows[1::2])]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            [found] = store.search(C, queries(1), 3)
            assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
        for thread in threads:
            thread.join()
        assert store.count(C) == len(rows)
        assert_same_rows(scan_pages(store, C, 7), rows)

    def test_what_is_declared_is_kept(self, filled: VectorStore) -> None:
        """Every feature that the store declares passes its test; one without a test fails."""
        checks = {
            "exact": lambda: check_exact(filled, D),
            "exact when small": lambda: check_exact_when_small(filled, D),
            "approximate": lambda: check_approximate(filled, C),
            "native vectors": lambda: check_native(filled, C),
            "persistent": lambda: self._check_persistent(filled),
            "sparse": lambda: check_sparse(filled, D),
        }
        if type(self).share_store is not VectorStoreContract.share_store:
            checks["shared"] = lambda: self._check_shared(filled)
        check_features(filled.features, checks)

    def test_a_store_that_does_not_declare_sparse_refuses_such_a_schema(self, filled: VectorStore) -> None:
        """Without the feature a sparse schema is an UnsupportedError, and the other collections stay as they are."""
        if "sparse" not in filled.features:
            check_no_sparse(filled, D)
        assert filled.count(C) == len(make_rows())

    def _check_persistent(self, filled: VectorStore) -> None:
        """What was acknowledged, deletions included, is there after close and open, in this object and in another."""
        first, *others = make_rows()
        changed = [VectorRow(others[0].key, -dense(others[0]), others[0].fields), *others[1:]]
        filled.delete(C, keys=[first.key])
        filled.upsert(C, changed[:1])
        before = filled.search(C, queries(3), 10)
        filled.close()
        filled.open()
        assert_same_rows(filled.scan(C), changed)
        filled.close()
        again = self.reopen_store(filled)
        assert again is not filled, "reopen_store() returned the object that it was given; it makes another one."
        again.open()
        try:
            again.create(C, VectorSchema(DIMENSION, "cosine", SCHEMA))
            assert_same_rows(again.scan(C), changed)
            for found, expected in zip(again.search(C, queries(3), 10), before, strict=True):
                assert_same_ranking(found, expected)
            with pytest.raises(SchemaMismatchError):
                again.create(C, VectorSchema(DIMENSION, "l2", SCHEMA))
        finally:
            again.close()
        filled.open()  # for the features that are tested next

    def _check_shared(self, store: VectorStore) -> None:
        """What either of two programs has acknowledged, deletions included, is seen by the other's next call."""
        store.open()
        store.drop(D)
        store.create(D, VectorSchema(DIMENSION, "cosine", SCHEMA))
        store.upsert(D, make_rows())
        first, second, *others = make_rows()
        other = self.share_store(store)
        assert other is not store, "share_store() returned the object that it was given; it makes another one."
        other.open()
        try:
            other.create(D, VectorSchema(DIMENSION, "cosine", SCHEMA))
            assert_same_rows(other.scan(D), make_rows())
            changed = VectorRow(second.key, -dense(second), second.fields)
            store.delete(D, keys=[first.key])
            store.upsert(D, [changed])
            assert_same_rows(other.scan(D), [changed, *others])
            for found, expected in zip(other.search(D, queries(3), 10), store.search(D, queries(3), 10), strict=True):
                assert_same_ranking(found, expected)
            other.upsert(D, [first])
            other.delete(D, keys=[second.key])
            assert_same_rows(store.scan(D), [first, *others])
        finally:
            other.close()
        store.drop(D)
