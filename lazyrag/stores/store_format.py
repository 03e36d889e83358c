"""What a store file holds: its kind, its tables, how it came to its present form.

One file serves three rooms, each with tables of its own: the segment store, the vector store and the ledger.
"""

from __future__ import annotations

from lazyrag.storage.database import FileFormat
from lazyrag.stores.ledger_tables import LEDGER_ADDITIONS, LEDGER_TABLES
from lazyrag.stores.vector_tables import VECTOR_TABLES

SEGMENT_TABLES = """
CREATE TABLE segment_collection (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    schema TEXT NOT NULL          -- the declared fields (JSON)
);
-- What the segments of one build share. Numbers are never given out twice: programs remember rows by them.
CREATE TABLE segment_origin (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    collection INTEGER NOT NULL REFERENCES segment_collection (id),
    digest BLOB NOT NULL,         -- of the four that follow
    node_group TEXT NOT NULL,
    document_id TEXT NOT NULL,    -- uid of its root node
    path TEXT NOT NULL,
    fields TEXT NOT NULL,         -- what filters read (JSON)
    UNIQUE (collection, digest)
);
CREATE TABLE segment (
    id INTEGER PRIMARY KEY,
    collection INTEGER NOT NULL REFERENCES segment_collection (id),
    key TEXT NOT NULL,            -- uid and build
    origin INTEGER NOT NULL REFERENCES segment_origin (id),
    build INTEGER NOT NULL,
    parent TEXT,                  -- uid of its parent; NULL for a root node
    number INTEGER NOT NULL,      -- among the nodes of its group in its document, from 1
    is_json INTEGER NOT NULL,     -- 0 where the content is text, 1 where it is another JSON value
    content TEXT NOT NULL,
    metadata TEXT NOT NULL,       -- JSON
    span_start INTEGER,           -- in its source, in characters; NULL where it has none
    span_end INTEGER,
    places TEXT NOT NULL,         -- a root node's pages and headings: [[start, end, kind, label], ...] (JSON)
    UNIQUE (collection, build, key)  -- new rows come last: in the order of uids they would be all over the index
);
CREATE INDEX segment_by_origin ON segment (origin);
"""
"""Texts that are no valid UTF-8 (half a surrogate pair, as broken files have them) lie as BLOBs, in UTF-8 that has them
nevertheless."""

STORE_FORMAT = FileFormat(
    name="store",
    application_id=int.from_bytes(b"lzST", "big"),
    migrations=(SEGMENT_TABLES + VECTOR_TABLES + LEDGER_TABLES, LEDGER_ADDITIONS),
    when_damaged=(
        "Take its last backup; or delete it, with the files beside it whose names begin with its own, and read the "
        "dataset again."
    ),
)
