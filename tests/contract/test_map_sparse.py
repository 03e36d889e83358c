"""Sparse vectors in a store file: parts in files, restarts, other programs, merging."""

from __future__ import annotations

import numpy as np
import pytest

from lazyrag.data.filters import Condition
from lazyrag.errors import StoreError
from lazyrag.indexes.sparse import SparseIndex
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.stores.sqlite import StoreFile
from lazyrag.stores.sqlite_vectors import MapFileVectorStore
from lazyrag.types import SPARSE

C = "lr_sparse"
SCHEMA = VectorSchema(SPARSE, "ip", {})
YEAR = Condition("year", "eq", 2001)


@pytest.fixture
def opened(tmp_path):
    """A function that opens the same store file once more, as another program does."""
    files = []

    def open_store(**keywords):
        files.append(StoreFile(tmp_path / "tea.db", **keywords))
        return MapFileVectorStore(files[-1])

    yield open_store
    for file in files:
        file.close()


def rows_of(count, first=0):
    """Seeded rows with keys in no order, of four years."""
    chance = np.random.default_rng([5, first])
    return [
        VectorRow(
            f"{number * 7919 % 100_003:08d}",
            dict(
                zip(
                    chance.choice(500, 12, replace=False).tolist(),
                    chance.random(12, np.float32).tolist(),
                    strict=True,
                )
            ),
            {"year": 2000 + number % 4},
        )
        for number in range(first, first + count)
    ]


def told(rows):
    """Rows by key, as plain values."""
    return {row.key: (row.vector, dict(row.fields)) for row in rows}


def query():
    """A seeded query."""
    return [row.vector for row in rows_of(3, first=90_000)]


def in_memory(rows):
    """The rankings of an index that holds the rows in one part."""
    index = SparseIndex()
    index.add([row.key for row in rows], [row.vector for row in rows], [row.fields for row in rows])
    return [index.state.search(one, 10) for one in query()]


@pytest.mark.slow
def test_a_restart_maps_the_parts(opened):
    """Many rows lie in an array file; the next program reads of it what it needs, and answers as an
    index in memory.
    """
    store, rows = opened(), rows_of(4000)
    store.create(C, SCHEMA)
    store.upsert(C, rows)
    again = opened(read_only=True)
    again.create(C, SCHEMA)
    [part] = again._now(C).parts
    assert part.in_file
    for array in (
        part.block.postings.values,
        part.block.postings.rows,
        part.block.positions,
        part.block.keys,
    ):
        assert array.base is not None
        assert not array.flags.writeable
    assert again.search(C, query(), 10) == store.search(C, query(), 10) == in_memory(rows)
    assert told(again.scan(C, limit=5000)) == told(rows)
    assert again.damage(C) == ""


def test_parts_are_merged_and_nothing_is_lost(opened):
    """Many small upserts, replacements and deletions leave few parts, with the rankings of the rows
    that are left.
    """
    store, rows = opened(), rows_of(600)
    store.create(C, SCHEMA)
    for start in range(0, 600, 20):
        store.upsert(C, rows[start : start + 20])
    store.upsert(C, [VectorRow(row.key, {1: 1.0}, row.fields) for row in rows[:30]])
    assert store.delete(C, keys=[row.key for row in rows[:50]]) == 50
    left = rows[50:]
    assert store.delete(C, filter=YEAR) == len([row for row in left if row.fields["year"] == 2001])
    left = [row for row in left if row.fields["year"] != 2001]
    assert len(store._now(C).parts) < 8
    assert told(store.scan(C, limit=1000)) == told(left)
    assert store.search(C, query(), 10) == in_memory(left)


def test_another_program_sees_each_commit(opened):
    """Rows, replacements, deletions, and that a collection was made anew with dense vectors."""
    first, second = opened(), opened()
    rows = rows_of(100)
    first.create(C, SCHEMA)
    second.create(C, SCHEMA)
    first.upsert(C, rows[:60])
    assert second.count(C) == 60
    second.upsert(C, rows[40:])
    first.delete(C, keys=[rows[0].key])
    assert told(second.scan(C)) == told(first.scan(C)) == told(rows[1:])
    assert first.search(C, query(), 5) == second.search(C, query(), 5)
    first.drop(C)
    first.create(C, VectorSchema(2, "ip", {}))
    first.upsert(C, [VectorRow("a", np.ones(2, np.float32))])
    assert second.search(C, np.ones((1, 2), np.float32), 5) == [[("a", 2.0)]]


def test_a_file_of_the_other_kind_is_an_error(opened):
    """A part whose arrays are those of dense vectors is damaged, and says so."""
    store = opened()
    store.create(C, SCHEMA)
    store.create("dense", VectorSchema(2, "ip", {}))
    store.upsert("dense", [VectorRow("a", np.ones(2, np.float32))])
    with store.file.writing() as connection:
        connection.execute(
            "UPDATE vector_part SET collection = (SELECT id FROM vector_collection WHERE name = ?)",
            (C,),
        )
    with pytest.raises(StoreError, match="lacks the arrays dimensions"):
        opened().count(C)
