"""The vector store's tables in a store file; `lazyrag.stores.map_vectors` reads and writes them."""

from __future__ import annotations

import sqlite3
from typing import cast

import numpy as np

from lazyrag.indexes.postings import Mask
from lazyrag.types import Metric

VECTOR_TABLES = """
CREATE TABLE vector_collection (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    dimension INTEGER NOT NULL,   -- -1: its vectors are sparse
    metric TEXT NOT NULL,         -- 'cosine', 'ip' or 'l2'
    schema TEXT NOT NULL          -- the declared fields (JSON)
);
-- Rows of a collection that were written or merged together. A part is never changed but for its dead rows, and its
-- number is never given out twice: programs remember parts by them. Older parts have smaller numbers.
CREATE TABLE vector_part (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    collection INTEGER NOT NULL REFERENCES vector_collection (id),
    size INTEGER NOT NULL,        -- how many rows it has, the dead ones included
    arrays TEXT NOT NULL,         -- name of its bundle of arrays: those of a DenseBlock or of a SparsePart
    dead BLOB,                    -- a bit for each row, the first one highest, 1 where it is dead; NULL: all live
    content BLOB                  -- the bundle itself where it is small; NULL where it is an array file
);
CREATE INDEX vector_part_by_collection ON vector_part (collection);
"""

VECTOR_ARRAY_FILES = "SELECT arrays FROM vector_part WHERE content IS NULL"
"""The names of all array files that hold vectors; others like them are not in use."""


VECTOR_PARTS = "SELECT arrays FROM vector_part"
"""The names of all parts' bundles, wherever they lie."""


def collection_row(connection: sqlite3.Connection, collection: str) -> tuple[int, int, Metric, str] | None:
    """A collection's number, dimension, metric and schema (JSON); None if there is none of that name."""
    found = connection.execute(
        "SELECT id, dimension, metric, schema FROM vector_collection WHERE name = ?", (collection,)
    ).fetchone()
    return cast("tuple[int, int, Metric, str] | None", found)


def dead_bits(alive: Mask | None) -> bytes | None:
    """A part's dead rows as they lie in the table.

    Example:
        >>> dead_bits(np.array([True, False, True])), dead_bits(np.array([True]))
        (b'@', None)
    """
    return None if alive is None or alive.all() else np.packbits(~alive).tobytes()


def alive_mask(dead: bytes | None, size: int) -> Mask | None:
    """The mask of a part's live rows of which `dead_bits` was made; None where all live.

    Example:
        >>> alive_mask(b"@", 3).tolist()
        [True, False, True]
    """
    if dead is None:
        return None
    alive: Mask = np.unpackbits(np.frombuffer(dead, np.uint8), count=size) == 0
    return alive


def insert_part(
    connection: sqlite3.Connection, collection: int, size: int, name: str, content: bytes | None, alive: Mask | None
) -> None:
    """Enter a part of so many rows: the name of its bundle, its content where that is no array file, its live rows."""
    connection.execute(
        "INSERT INTO vector_part (collection, size, arrays, content, dead) VALUES (?, ?, ?, ?, ?)",
        (collection, size, name, content, dead_bits(alive)),
    )
