"""The contract of segment stores, one test a sentence."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from lazyrag.data.fields import make_schema
from lazyrag.data.filters import Filter
from lazyrag.data.segment import Place, Segment, content_text
from lazyrag.errors import ConfigError, SchemaMismatchError, StoreError, UnsupportedError
from lazyrag.stores.protocol import NativeText, SegmentStore
from lazyrag.testing.features import check_features, no_reopening
from lazyrag.testing.rows import FILTERS, SCHEMA, all_rows, by_key, make_segments, met
from lazyrag.text.analyzers import analysers

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
