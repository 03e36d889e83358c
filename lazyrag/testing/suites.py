"""The contracts of stores, as tests of the store that pytest's command line names. See `lazyrag.testing.plugin`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from lazyrag.data.fields import make_schema
from lazyrag.data.filters import Condition, Filter, matches
from lazyrag.data.segment import Place, Segment, content_text
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
from lazyrag.testing.differential import (
    DIMENSION,
    FIELDS,
    FILTERS,
    METRICS,
    SCHEMA,
    all_rows,
    assert_same_ranking,
    assert_same_rows,
    by_key,
    dense,
    make_rows,
    make_segments,
    met,
    queries,
    reference,
    scan_pages,
)
from lazyrag.testing.plugin import named_store
from lazyrag.text.analyzers import analysers
from lazyrag.types import SPARSE, Matrix, Metric, Ranking, SparseVector


def check_features(declared: Iterable[str], checks: Mapping[str, Callable[[], None]]) -> None:
    """Run the check of every declared feature; one without a check fails, so that nothing is skipped silently.

    Args:
        declared: A store's `Store.features`.
        checks: What the suite can test, by feature.
    """
    for feature in sorted(declared):
        if feature not in checks:
            pytest.fail(
                f"The store declares the feature {feature!r}, for which this suite has no test. "
                f"It has tests for: {', '.join(sorted(checks))}. Leave the feature out of features until it has one."
            )
        checks[feature]()


def no_reopening(store: object) -> NoReturn:
    """Say what a suite needs from the test of a persistent store."""
    pytest.fail(
        f"{type(store).__name__} declares the feature 'persistent', but its test does not override "
        "reopen_store(store): make there a new, closed store over what the given one has kept."
    )


C = "lr_contract_block_0"
D = "lr_contract_block_1"


class SegmentStoreContract:
    """Subclass it as ``TestSomething`` and override `make_store`; for a persistent store `reopen_store`, too, and for a
    shared one `share_store`.
    """

    def make_store(self) -> SegmentStore:
        """A new, empty, closed store."""
        msg = f"{type(self).__name__} overrides no make_store(self): return a new, empty, closed store there."
        raise NotImplementedError(msg)

    def reopen_store(self, store: SegmentStore) -> SegmentStore:
        """A new, closed store over what a closed one has kept, as a later program makes it. For persistent stores."""
        no_reopening(store)

    def share_store(self, store: SegmentStore) -> SegmentStore:
        """A new, closed store over what an open one keeps, as another program makes it meanwhile. For shared stores."""
        raise NotImplementedError

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
        places = (Place(0, 9, "page", "1"), Place(4, 9, "heading", "安装 > Setup 🍵"), Place(9, 9, "page", "2"))
        root = make_segments()[0]._replace(parent=None, span=(0, 9), places=places)
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
        assert all_rows(filled, C) == sorted(make_segments(), key=by_key)

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
        assert sorted(seen, key=by_key) == sorted(make_segments(), key=by_key)
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
        }
        if type(self).share_store is not SegmentStoreContract.share_store:
            checks["shared"] = lambda: self._check_shared(filled)
        check_features(filled.features, checks)

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
        first, *others = sorted(make_segments(), key=by_key)
        changed = [others[0]._replace(content="changed"), *others[1:]]
        filled.delete(C, keys=[first.key])
        filled.upsert(C, changed[:1])
        filled.close()
        filled.open()
        assert all_rows(filled, C) == changed
        filled.close()
        again = self.reopen_store(filled)
        assert again is not filled, "reopen_store() returned the object that it was given; it makes another one."
        again.open()
        try:
            again.create(C, SCHEMA)
            assert all_rows(again, C) == changed
            with pytest.raises(SchemaMismatchError):
                again.create(C, make_schema(None))
        finally:
            again.close()

    def _check_shared(self, filled: SegmentStore) -> None:
        """What either of two programs has acknowledged, deletions included, is seen by the other's next call."""
        filled.open()  # another feature's test may have closed it, and left other rows
        filled.drop(C)
        filled.create(C, SCHEMA)
        other = self.share_store(filled)
        assert other is not filled, "share_store() returned the object that it was given; it makes another one."
        other.open()
        try:
            other.create(C, SCHEMA)
            rows = sorted(make_segments(), key=by_key)
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
        finally:
            other.close()


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


def make_sparse_rows() -> list[VectorRow]:
    """A seeded vector for each of the contract's fields: two of them equal, one empty, weights of either sign."""
    chance = np.random.default_rng(17)
    vectors: list[SparseVector] = []
    for _ in FIELDS:
        dimensions = chance.choice(12, chance.integers(1, 7), replace=False).tolist()
        weights = chance.normal(size=len(dimensions)).astype(np.float32).tolist()
        vectors.append(dict(zip(dimensions, weights, strict=True)))
    vectors[4][2**63 + 5] = 0.5
    vectors[9] = dict(vectors[3])
    vectors[20] = {}
    return [
        VectorRow(f"{number:032x}-{number % 3}", vector, fields)
        for number, (vector, fields) in enumerate(zip(vectors, FIELDS, strict=True))
    ]


def sparse_queries(n: int) -> list[SparseVector]:
    """N seeded queries."""
    chance = np.random.default_rng(19)
    return [dict.fromkeys(chance.choice(12, 3, replace=False).tolist(), 1.0) | {2**63 + 5: -2.0} for _ in range(n)]


def sparse_reference(query: SparseVector, rows: Sequence[VectorRow]) -> Ranking:
    """The rows that share a dimension with a query, ranked by a plain computation."""
    scored = []
    for row in rows:
        assert isinstance(row.vector, dict), f"row {row.key!r} has {row.vector!r:.60} instead of a dict"
        shared = sorted(row.vector.keys() & query.keys())
        if shared:
            scored.append((row.key, float(sum(query[at] * row.vector[at] for at in shared))))
    return sorted(scored, key=lambda pair: (-round(pair[1], 9), pair[0]))


def _check_read(store: VectorStore, collection: str, rows: Sequence[VectorRow]) -> None:
    """Counted, got and paged as they were written."""
    assert store.count(collection) == len(rows)
    seen: list[VectorRow] = []
    while page := store.scan(collection, after=seen[-1].key if seen else "", limit=5):
        assert page[0].key not in {row.key for row in seen}  # or there would be no end
        seen += page
    for found in (seen, store.get(collection, [row.key for row in rows])):
        assert [(row.key, row.vector, dict(row.fields)) for row in found] == [
            (row.key, row.vector, dict(row.fields)) for row in rows
        ]


def _check_ranked(store: VectorStore, collection: str, rows: Sequence[VectorRow]) -> None:
    """By inner product, only rows that share a dimension, ties by key; a filter comes before the best."""
    queries = sparse_queries(5)
    for topk in (3, 1000):
        for query, found in zip(queries, store.search(collection, queries, topk), strict=True):
            _same(found, sparse_reference(query, rows)[:topk])
    for filter_ in FILTERS:
        left = [row for row in rows if matches(filter_, row.fields)]
        assert len(left) < len(rows)
        [found] = store.search(collection, queries[:1], 2, filter_)
        _same(found, sparse_reference(queries[0], left)[:2])


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


def _same(found: Ranking, expected: Ranking) -> None:
    assert [key for key, _ in found] == [key for key, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], rel=1e-6, abs=1e-6)


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
        }
        if type(self).share_store is not VectorStoreContract.share_store:
            checks["shared"] = lambda: self._check_shared(filled)
        check_features(filled.features, checks)

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
        again = self.reopen_store(filled)
        assert again is not filled, "reopen_store() returned the object that it was given; it makes another one."
        again.open()
        try:
            again.create(VECTORS, VectorSchema(DIMENSION, "cosine", SCHEMA))
            assert_same_rows(again.scan(VECTORS), changed)
            for found, expected in zip(again.search(VECTORS, queries(3), 10), before, strict=True):
                assert_same_ranking(found, expected)
            with pytest.raises(SchemaMismatchError):
                again.create(VECTORS, VectorSchema(DIMENSION, "l2", SCHEMA))
        finally:
            again.close()
        filled.open()  # for the features that are tested next

    def _check_shared(self, store: VectorStore) -> None:
        """What either of two programs has acknowledged, deletions included, is seen by the other's next call."""
        store.open()
        store.drop(OTHER_VECTORS)
        store.create(OTHER_VECTORS, VectorSchema(DIMENSION, "cosine", SCHEMA))
        store.upsert(OTHER_VECTORS, make_rows())
        first, second, *others = make_rows()
        other = self.share_store(store)
        assert other is not store, "share_store() returned the object that it was given; it makes another one."
        other.open()
        try:
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
        finally:
            other.close()
        store.drop(OTHER_VECTORS)


class TestSegmentStore(SegmentStoreContract):
    """The store of ``--lazyrag-segment-store``."""

    @pytest.fixture(autouse=True)
    def _named(self, pytestconfig: pytest.Config, tmp_path: Path) -> None:
        self.named = named_store(pytestconfig, "segment", tmp_path)

    def make_store(self) -> Any:
        """An empty one."""
        return self.named.make()

    def reopen_store(self, store: object) -> Any:  # noqa: ARG002  the place tells which rows
        """As a later program makes it."""
        return self.named.reopen()

    def share_store(self, store: object) -> Any:  # noqa: ARG002
        """As another program makes it meanwhile."""
        return self.named.reopen()


class TestVectorStore(VectorStoreContract):
    """The store of ``--lazyrag-vector-store``."""

    @pytest.fixture(autouse=True)
    def _named(self, pytestconfig: pytest.Config, tmp_path: Path) -> None:
        self.named = named_store(pytestconfig, "vector", tmp_path)

    def make_store(self) -> Any:
        """An empty one."""
        return self.named.make()

    def reopen_store(self, store: object) -> Any:  # noqa: ARG002
        """As a later program makes it."""
        return self.named.reopen()

    def share_store(self, store: object) -> Any:  # noqa: ARG002
        """As another program makes it meanwhile."""
        return self.named.reopen()
