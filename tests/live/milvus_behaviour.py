"""What is asked of every Milvus beyond the contract of stores, as tests that each kind of it
inherits.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymilvus import DataType as Kind
from pymilvus import MilvusClient

from lazyrag import DataType, DocField
from lazyrag.data.fields import make_schema
from lazyrag.data.filters import And, Condition, Not, bind_filter, matches
from lazyrag.errors import ConfigError, SchemaMismatchError, StoreError, UnsupportedError
from lazyrag.stores.memory import MapVectorStore
from lazyrag.stores.milvus import MilvusVectorStore
from lazyrag.stores.milvus_encoding import Layout
from lazyrag.stores.milvus_index import IndexChoice
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.testing.samples import HARD_TEXTS
from lazyrag.types import SPARSE

C = "lr_behaviour"
SCHEMA = make_schema(
    {
        "author": DocField(DataType.VARCHAR),
        "year": DocField(DataType.INT64),
        "作者": DocField(DataType.VARCHAR),
        "tags": DocField(DataType.ARRAY, DataType.DOUBLE),
    }
)
WINDOW = 16_384
TEXTS = st.one_of(
    st.sampled_from(HARD_TEXTS),
    st.text(min_size=1, max_size=8),
    st.text("ab'\"\\%_{}$\n\ud800", min_size=1, max_size=5),
).filter(lambda text: not text.endswith("\0"))


class MilvusBehaviour:
    """Subclass it and give `kwargs`, of a store that is empty for each test."""

    has_sparse = True

    def kwargs(self) -> dict[str, Any]:
        """The store's arguments, but for its index."""
        raise NotImplementedError

    @contextmanager
    def store(self, **more: Any) -> Iterator[MilvusVectorStore]:
        """An open store."""
        store = MilvusVectorStore(**{**self.kwargs(), **more})
        store.open()
        try:
            yield store
        finally:
            store.close()

    @contextmanager
    def bare(self) -> Iterator[MilvusClient]:
        """The bare client of the same place, while a store has it open."""
        kwargs = self.kwargs()
        with closing(MilvusClient(**{**kwargs, "uri": str(kwargs["uri"])})) as client:
            yield client

    def test_texts_are_never_interpreted(self) -> None:
        """Whatever a key, a value and a filter hold, exactly the equal ones are found, by key,
        filter and deletion.
        """
        with self.store() as store:
            store.create(C, VectorSchema(2, "ip", SCHEMA))
            store.upsert(
                C, [VectorRow("left", np.ones(2, np.float32), {"author": "left", "year": 1})]
            )

            @settings(max_examples=30)
            @given(TEXTS, TEXTS)
            def check(key: str, text: str) -> None:
                row = VectorRow(
                    key, np.array([2, 3], np.float32), {"author": text, "作者": key, "year": None}
                )
                store.upsert(C, [row])
                filter_ = bind_filter(
                    And(Condition("author", "eq", text), Condition("作者", "in", [key])), SCHEMA
                )
                [read] = store.get(C, [key])
                assert (read.key, read.fields) == (key, row.fields)
                [[(found, _)]] = store.search(C, np.ones((1, 2), np.float32), 9, filter_)
                assert found == key
                assert [one.key for one in store.scan(C)] == sorted({key, "left"})
                assert store.delete(C, filter=filter_) == 1
                assert store.count(C) == (key != "left")
                store.upsert(
                    C, [VectorRow("left", np.ones(2, np.float32), {"author": "left", "year": 1})]
                )

            check()

    def test_missing_fields_mean_what_filters_say(self) -> None:
        """Every comparison with a field that some rows lack, and its negation, finds what the
        evaluator says.
        """
        values = (None, -(2**63), -1, 0, 2**63 - 1)
        rows = [
            VectorRow(
                f"k{number}",
                np.ones(2, np.float32),
                {"year": year, "author": author} if number % 2 else {},
            )
            for number, (year, author) in enumerate(itertools.product(values, (None, "", "a", "b")))
        ]
        conditions = [
            *(Condition("year", op, 0) for op in ("eq", "ne", "gt", "ge", "lt", "le")),
            *(
                Condition("year", op, one)
                for op in ("in", "not in")
                for one in ([], [None], [0, -1], [None, 2**63 - 1])
            ),
            *(Condition("author", op, one) for op in ("eq", "ne", "lt", "ge") for one in ("", "a")),
            *(Condition(name, op, None) for name in ("year", "author") for op in ("eq", "ne")),
            *(Condition("author", "exists", is_there) for is_there in (True, False)),
        ]
        with self.store() as store:
            store.create(C, VectorSchema(2, "ip", SCHEMA))
            store.upsert(C, rows)
            for condition in conditions:
                for wanted in (condition, Not(condition)):
                    bound = bind_filter(wanted, SCHEMA)
                    [found] = store.search(C, np.ones((1, 2), np.float32), 100, bound)
                    assert [key for key, _ in found] == sorted(
                        row.key for row in rows if matches(bound, row.fields)
                    )

    @pytest.mark.parametrize("dimension", [1, 32_769])
    def test_dimensions_that_milvus_does_not_keep_are_refused(self, dimension: int) -> None:
        """An UnsupportedError says which ones it keeps, and no collection is left behind."""
        with self.store() as store:
            with pytest.raises(
                UnsupportedError, match=rf"2 to 32768 numbers; these have {dimension}\b"
            ):
                store.create(C, VectorSchema(dimension, "ip", {}))
            store.create(C, VectorSchema(2, "ip", {}))
            assert store.count(C) == 0

    @pytest.mark.slow
    def test_more_rows_than_an_answer_may_hold(self) -> None:
        """Beyond 16,384 rows: counted, paged in key order, ranked whole, ties broken by key,
        deleted by filter.
        """
        count = WINDOW + 700
        order = np.random.default_rng(1).permutation(count)
        vectors = np.random.default_rng(2).normal(size=(count, 4)).astype(np.float32)
        vectors[:, 0] = 1.0
        rows = [
            VectorRow(f"k{at:05d}", vectors[at], {"year": int(at) % 2, "tags": (0.5,)})
            for at in order
        ]
        keys = sorted(row.key for row in rows)
        reference = MapVectorStore()
        with self.store() as store:
            for one in (store, reference):
                one.create(C, VectorSchema(4, "ip", SCHEMA))
                one.upsert(C, rows)
            assert store.count(C) == count
            seen: list[str] = []
            while page := store.scan(C, after=seen[-1] if seen else "", limit=9000):
                seen += [row.key for row in page]
            assert seen == keys
            assert [row.key for row in store.scan(C, limit=count)] == keys
            query = np.array([[0, 1, 0, 0]], np.float32)
            assert store.search(C, query, count) == reference.search(C, query, count)
            # All rows tie, so that no number of candidates tells which keys are the smallest.
            [tied] = store.search(C, np.array([[1, 0, 0, 0]], np.float32), 3)
            assert tied == [(key, 1.0) for key in keys[:3]]
            tagged = bind_filter(
                And(Condition("tags", "contains", 0.5), Condition("year", "eq", 1)), SCHEMA
            )
            assert store.search(C, query, 5, tagged) == reference.search(C, query, 5, tagged)
            assert store.delete(C, filter=tagged) == count // 2
            assert store.delete(C, keys=keys) == count - count // 2
            assert store.count(C) == 0

    def test_what_was_flushed_reads_the_same(self) -> None:
        """Vectors and rankings are bit for bit those before the server wrote its segments and their
        indexes.
        """
        vectors = np.random.default_rng(4).normal(size=(300, 8)).astype(np.float32)
        vectors[7] = 0.0
        rows = [
            VectorRow(f"k{number:03d}", vector, {"year": number})
            for number, vector in enumerate(vectors)
        ]
        with self.store() as store:
            store.create(C, VectorSchema(8, "cosine", SCHEMA))
            store.upsert(C, rows)
            before = store.search(C, vectors[5:8], 300)
            with self.bare() as client:
                client.flush(C)
            store.upsert(C, rows[:1])
            read = store.scan(C)
            assert all(
                one.vector.tobytes() == row.vector.tobytes()
                for one, row in zip(read, rows, strict=True)
            )
            assert store.search(C, vectors[5:8], 300) == before
            assert [len(ranking) for ranking in before] == [300] * 3

    def test_what_a_crash_left_without_an_index_is_completed(self) -> None:
        """A collection that was made and not yet indexed or loaded is both when it is created
        again, or read.
        """
        schema = VectorSchema(2, "ip", SCHEMA)
        with self.store() as store:
            for name, use in (
                (C, lambda: store.create(C, schema)),
                (f"{C}_2", lambda: store.count(f"{C}_2")),
            ):
                store._connection.create(name, Layout(schema, "FLAT", {}))
                use()
                store.upsert(name, [VectorRow("k", np.ones(2, np.float32), {})])
                assert store.search(name, np.ones((1, 2), np.float32), 1) == [[("k", 2.0)]]

    def test_an_approximate_index_is_used_and_said(self) -> None:
        """The store does not declare exactness, and its scores are those of the vectors; the
        collection remembers.
        """
        index = {
            "index_type": "IVF_FLAT",
            "metric_type": "IP",
            "params": {"nlist": 4},
            "search_params": {"nprobe": 4},
        }
        rows = [VectorRow(f"k{at}", np.array([at, 1], np.float32), {}) for at in range(1, 40)]
        schema = VectorSchema(2, "ip", SCHEMA, embed_key="vec1")
        with self.store(index_kwargs=[{"embed_key": "vec1", **index}]) as store:
            assert "exact" not in store.features
            store.create(C, schema)
            store.upsert(C, rows)
            with self.bare() as client:
                [name] = client.list_indexes(C)
                assert client.describe_index(C, name)["index_type"] == "IVF_FLAT"
            assert store.search(C, np.array([[1, 0]], np.float32), 2) == [
                [("k39", 39.0), ("k38", 38.0)]
            ]
            assert store.search_natively(C, np.array([[1, 0]], np.float32), 1) == [[("k39", 39.0)]]
            with pytest.raises(ConfigError, match="'COSINE'"):
                store.create(f"{C}_2", VectorSchema(2, "cosine", SCHEMA, embed_key="vec1"))
        with self.store() as store:
            with pytest.raises(SchemaMismatchError, match="IVF_FLAT"):
                store.create(C, schema)
            store.drop(C)

    def test_a_collection_of_somebody_else_is_left_alone(self) -> None:
        """It is a StoreError that says what to do, and it keeps what it holds."""
        with self.store() as store, self.bare() as client:
            client.create_collection(C, dimension=2, id_type=Kind.INT64)
            with pytest.raises(StoreError, match="not made by lazyrag"):
                store.create(C, VectorSchema(2, "ip", SCHEMA))
            assert client.has_collection(C)

    def test_long_batches_are_written_in_pieces(self) -> None:
        """More than a message holds in one call: all of it is there."""
        vectors = np.random.default_rng(6).normal(size=(2100, 1024)).astype(np.float32)
        rows = [VectorRow(f"k{number:04d}", vector, {}) for number, vector in enumerate(vectors)]
        with self.store(client_kwargs={"timeout": 300}) as store:
            store.create(C, VectorSchema(1024, "l2", SCHEMA))
            store.upsert(C, rows)
            assert store.count(C) == len(rows)
            assert [row.key for row in store.get(C, ["k2099", "k0000"])] == ["k2099", "k0000"]

    def test_sparse_rows_that_milvus_cannot_rank_are_ranked(self) -> None:
        """Weights below 0, dimensions beyond 32 bits and queries of both are ranked as the map
        store does.
        """
        schema = VectorSchema(SPARSE, "ip", SCHEMA)
        rng = np.random.default_rng(8)
        rows = [VectorRow(f"k{at:03d}", self._sparse(rng), {"year": at % 3}) for at in range(120)]
        queries = [self._sparse(rng) for _ in range(12)] + [{}, {1: 1.0}]
        reference = MapVectorStore()
        with self.store() as store:
            if not self.has_sparse:
                assert "sparse" not in store.features
                return
            for one in (store, reference):
                one.create(C, schema)
                one.upsert(C, rows)
            for filter_ in (None, bind_filter(Condition("year", "eq", 1), SCHEMA)):
                for topk in (3, 200):
                    assert store.search(C, queries, topk, filter_) == reference.search(
                        C, queries, topk, filter_
                    )

    @staticmethod
    def _sparse(rng: np.random.Generator) -> Mapping[int, float]:
        low = -1.0 if rng.random() < 0.2 else 0.1
        dimensions = [*range(12), 2**32 - 2, 2**32 - 1, 2**63 + 1]
        chosen = rng.choice(len(dimensions), rng.integers(1, 6), replace=False)
        return {dimensions[at]: float(np.float32(rng.uniform(low, 1.0))) or 1.0 for at in chosen}

    def test_an_unknown_collection_is_no_log_entry(self, caplog: pytest.LogCaptureFixture) -> None:
        """To ask for one is an error of ours that names it, and nothing in anybody's log."""
        with self.store() as store, caplog.at_level(logging.INFO):
            caplog.clear()
            with pytest.raises(StoreError, match="no collection 'lr_nowhere'"):
                store.count("lr_nowhere")
            assert not caplog.records

    def test_index_choices_are_those_of_the_collection(self) -> None:
        """A collection that is read without being created first is searched by the index that it
        has.
        """
        with self.store() as store:
            store.create(C, VectorSchema(2, "ip", SCHEMA))
        with self.store() as store:
            assert store._opened(C).index == IndexChoice("FLAT", {}, {})
