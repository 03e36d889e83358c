"""Rows are compared with the ledger when they are read, and read again after they are written."""

from __future__ import annotations

import numpy as np
import pytest

from lazyrag.data.segment import Segment
from lazyrag.errors import StoreError
from lazyrag.maintain.copying import CollectionCopy
from lazyrag.stores.memory import MapSegmentStore, MapVectorStore
from lazyrag.stores.protocol import VectorRow, VectorSchema


class Observed(MapSegmentStore):
    """A store that counts what is written to it, and can change it."""

    def __init__(self, change=lambda row: row):
        super().__init__()
        self.written = []
        self.change = change
        self.create("c", {})

    def upsert(self, collection, rows):
        """Write what the change makes of the rows."""
        self.written += [row.number for row in rows]
        super().upsert(collection, [self.change(row) for row in rows])


def segment(number, content="tea", **fields):
    """A node."""
    return Segment(f"{number:032x}", 1, "line", "d", "a", None, number, content, fields=fields)


def test_rows_that_are_there_are_not_written_again():
    """Those of an interrupted copy; one that differs is replaced."""
    store = Observed()
    rows = [segment(number) for number in range(5)]
    assert CollectionCopy(store, "c").write(rows[:3]) == 0
    copy = CollectionCopy(store, "c")
    changed = [segment(0, "coffee"), *rows[1:]]
    assert copy.write(changed) == 2
    assert store.written == [0, 1, 2, 0, 3, 4]
    assert store.get("c", [row.key for row in rows]) == changed


@pytest.mark.parametrize("year", [1.0, True, 2, None])
def test_a_field_of_another_type_is_another_row(year):
    """1, 1.0 and True are equal in Python, and not for a filter."""
    store = Observed(lambda row: row._replace(fields={"year": year}))
    with pytest.raises(StoreError, match=r"Observed does not return .*: 1 rows of 'c' differ"):
        CollectionCopy(store, "c").write([segment(1, year=1)])


def test_vectors_are_compared_with_their_fields():
    """The number of rows that are there already counts equal ones only."""
    store = MapVectorStore()
    store.create("c", VectorSchema(2, "cosine", {}))
    rows = [
        VectorRow(segment(number).key, np.array([1, number], np.float32)) for number in range(3)
    ]
    assert CollectionCopy(store, "c").write(rows) == 0
    others = [VectorRow(row.key, row.vector, {"year": 1}) for row in rows[:2]]
    assert CollectionCopy(store, "c").write([*others, rows[2]]) == 1
