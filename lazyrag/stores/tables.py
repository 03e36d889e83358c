"""SQL of the store file (SQLite): the tables of the ledger, of segments and of vectors."""

from __future__ import annotations

from lazyrag.storage.database import FileFormat
from lazyrag.stores.liveness import add_intervals, read_earlier_format

# Table `space` has the indexes: vectors and keyword indexes. Stored names do not change.
LEDGER_TABLES = """
-- Numbers of rows are never given out twice (AUTOINCREMENT): programs remember what they read by them.
-- One ledger for each Document name in the file.
CREATE TABLE ledger (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    token TEXT NOT NULL DEFAULT (lower(hex(randomblob(8)))),  -- of no other ledger; it is in the names of collections
    changes INTEGER NOT NULL DEFAULT 0,   -- grows when what is live changes
    removals INTEGER NOT NULL DEFAULT 0,  -- grows before anything is removed from a store
    forgotten INTEGER NOT NULL DEFAULT 0, -- value of changes when rows of deleted documents were last removed
    holder TEXT NOT NULL DEFAULT '',      -- who may write: the lease
    holder_told TEXT NOT NULL DEFAULT '', -- the same for people, and how to see whether it still runs (JSON)
    expires_at REAL NOT NULL DEFAULT 0    -- seconds since 1970
);
-- Build numbers are given out once in the whole file.
CREATE TABLE build_sequence (next INTEGER NOT NULL);
INSERT INTO build_sequence VALUES (1);
CREATE TABLE document (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    ledger INTEGER NOT NULL REFERENCES ledger (id),
    uid TEXT NOT NULL,                    -- of its root node
    identity TEXT NOT NULL,               -- path relative to the dataset, or the user's id
    origin TEXT NOT NULL,                 -- 'dataset', 'file' (added singly), 'text' (added as text)
    status TEXT NOT NULL,                 -- 'new' (nothing live yet), 'live', 'deleted', 'excluded' (by the user)
    size INTEGER, mtime_ns INTEGER, inode INTEGER,  -- of the file when it was read; NULL for a text
    seen_ns INTEGER NOT NULL DEFAULT 0,   -- when they were looked at
    content_hash TEXT NOT NULL DEFAULT '',
    mark TEXT NOT NULL DEFAULT '',        -- digest of its loader and of what the user says of it
    loaded TEXT NOT NULL DEFAULT '{}',    -- metadata that the loader found (JSON)
    said TEXT NOT NULL DEFAULT '{}',      -- metadata that file_metadata gave (JSON)
    updates TEXT NOT NULL DEFAULT '{}',   -- metadata that update_metadata gave (JSON)
    version INTEGER NOT NULL DEFAULT 0,
    changed INTEGER NOT NULL DEFAULT 0,   -- value of ledger.changes when its live builds last changed
    UNIQUE (ledger, uid)
);
CREATE INDEX document_by_change ON document (ledger, changed);
CREATE TABLE node_group (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    ledger INTEGER NOT NULL REFERENCES ledger (id),
    name TEXT NOT NULL,
    parent INTEGER REFERENCES node_group (id),  -- NULL for the root group
    fingerprint TEXT NOT NULL,            -- of its definition and those above it
    collection TEXT NOT NULL,             -- of its segments
    status TEXT NOT NULL,                 -- 'building', 'live', 'dropped'
    whole INTEGER NOT NULL DEFAULT 0,     -- 1 once it was built for every document
    dropped_at REAL NOT NULL DEFAULT 0,
    UNIQUE (ledger, collection)
);
CREATE TABLE build (
    number INTEGER PRIMARY KEY,
    document INTEGER NOT NULL REFERENCES document (id),
    node_group INTEGER NOT NULL REFERENCES node_group (id),
    parent INTEGER,                       -- the build it was made of; NULL in the root group
    root INTEGER NOT NULL,                -- the build of the root group above it, or itself
    input TEXT NOT NULL,                  -- digest of all that its transform could see
    output TEXT NOT NULL,                 -- digest of its nodes
    counts TEXT NOT NULL,                 -- how many nodes each node of the parent build gave (JSON)
    status TEXT NOT NULL,                 -- 'writing', 'written' (acknowledged by the store), 'dead'
    dead_at REAL NOT NULL DEFAULT 0
);
CREATE INDEX build_by_document ON build (document, node_group);
CREATE INDEX build_by_group ON build (node_group);
CREATE INDEX build_by_status ON build (status) WHERE status = 'dead';
CREATE TABLE live (
    document INTEGER NOT NULL REFERENCES document (id),
    node_group INTEGER NOT NULL REFERENCES node_group (id),
    build INTEGER NOT NULL REFERENCES build (number),
    PRIMARY KEY (document, node_group)
) WITHOUT ROWID;
CREATE INDEX live_by_group ON live (node_group);
CREATE TABLE version (
    document INTEGER NOT NULL REFERENCES document (id),
    number INTEGER NOT NULL,
    root INTEGER NOT NULL,                -- its build of the root group
    created_at REAL NOT NULL,
    content_hash TEXT NOT NULL,
    loaded TEXT NOT NULL, said TEXT NOT NULL, updates TEXT NOT NULL,
    PRIMARY KEY (document, number)
) WITHOUT ROWID;
CREATE TABLE space (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    node_group INTEGER NOT NULL REFERENCES node_group (id),
    kind TEXT NOT NULL,                   -- 'terms' or 'vectors'
    name TEXT NOT NULL,                   -- the analyser, or the embed key
    identity TEXT NOT NULL,               -- of the analyser or the embed callable
    collection TEXT NOT NULL,             -- of its vectors; '' for terms
    dimension INTEGER NOT NULL DEFAULT 0, -- 0: there is none yet; -1: vectors are sparse
    status TEXT NOT NULL,                 -- 'building', 'live', 'dropped'
    whole INTEGER NOT NULL DEFAULT 0,
    dropped_at REAL NOT NULL DEFAULT 0,
    UNIQUE (node_group, kind, name, identity)
);
CREATE TABLE covered (                    -- builds that a space holds
    space INTEGER NOT NULL REFERENCES space (id),
    build INTEGER NOT NULL,
    PRIMARY KEY (space, build)
) WITHOUT ROWID;
CREATE INDEX covered_by_build ON covered (build);
CREATE TABLE term_part (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    space INTEGER NOT NULL REFERENCES space (id),
    file TEXT NOT NULL,                   -- name of an array file
    arrays BLOB,                          -- what would stand in it, where the part is small; then there is no file
    rows INTEGER NOT NULL,
    builds BLOB NOT NULL                  -- (b, 2) int64, little-endian: build and how many rows, in the rows' order
);
CREATE INDEX term_part_by_space ON term_part (space);
CREATE TABLE failure (
    ledger INTEGER NOT NULL REFERENCES ledger (id),
    identity TEXT NOT NULL,
    stage TEXT NOT NULL,
    kind TEXT NOT NULL,                   -- class of the error
    message TEXT NOT NULL,
    failed_at REAL NOT NULL,
    PRIMARY KEY (ledger, identity, stage)
) WITHOUT ROWID;
CREATE TABLE program (                    -- who works with which definitions
    id TEXT PRIMARY KEY,
    ledger INTEGER NOT NULL REFERENCES ledger (id),
    told TEXT NOT NULL,                   -- who it is, and how to see whether it still runs (JSON)
    seen_at REAL NOT NULL,
    definitions TEXT NOT NULL             -- group name to fingerprint (JSON)
) WITHOUT ROWID;
"""


LEDGER_ADDITIONS = """
ALTER TABLE ledger ADD COLUMN incoming TEXT NOT NULL DEFAULT '';   -- token of the ledger that is being copied here
ALTER TABLE ledger ADD COLUMN copied_from TEXT NOT NULL DEFAULT ''; -- token of the one that it was copied from
ALTER TABLE node_group ADD COLUMN fields TEXT NOT NULL DEFAULT ''; -- that filters may read (JSON); '' if not known
ALTER TABLE node_group ADD COLUMN definition TEXT NOT NULL DEFAULT ''; -- its parts (JSON); older files lack it
ALTER TABLE space ADD COLUMN model TEXT NOT NULL DEFAULT '';       -- of its vectors (JSON); older files lack it
UPDATE node_group SET fields = coalesce(
    (SELECT schema FROM segment_collection WHERE segment_collection.name = node_group.collection), ''
);
"""
"""Format 2 of the store file: additions to the ledger."""


JOB_TABLE = """
CREATE TABLE job (  -- calls that workers run; docs/storage-format.md has the columns
    id INTEGER PRIMARY KEY AUTOINCREMENT, ledger INTEGER NOT NULL REFERENCES ledger (id), kind TEXT NOT NULL,
    arguments TEXT NOT NULL, documents TEXT NOT NULL, key TEXT, created REAL NOT NULL, updated REAL NOT NULL,
    state TEXT NOT NULL, is_canceled INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0, begun INTEGER,
    worker TEXT NOT NULL DEFAULT '', program TEXT NOT NULL DEFAULT '', heartbeat REAL NOT NULL DEFAULT 0,
    progress TEXT, error TEXT, result TEXT
);
CREATE INDEX job_by_state ON job (ledger, state);
CREATE INDEX job_by_key ON job (ledger, key) WHERE key IS NOT NULL;
ALTER TABLE ledger ADD COLUMN switched TEXT NOT NULL DEFAULT '{}';  -- embed keys that others serve (JSON)
"""
"""Format 3 of the store file: jobs, and embed keys with another model."""


TERM_ARRAY_FILES = "SELECT file FROM term_part WHERE arrays IS NULL"
"""The names of all array files that hold parts of lexical indexes."""


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


VECTOR_PARTS = "SELECT arrays FROM vector_part"
"""The names of all parts' bundles, in files or not."""


VECTOR_ARRAY_FILES = f"{VECTOR_PARTS} WHERE content IS NULL"
"""The names of all array files that hold vectors; others like them are not in use."""


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
"""Texts that are no valid UTF-8 (half a surrogate pair, as broken files have them) lie as BLOBs, in
UTF-8 that has them nevertheless."""


STORE_FORMAT = FileFormat(
    name="store",
    application_id=int.from_bytes(b"lzST", "big"),
    migrations=(
        SEGMENT_TABLES + VECTOR_TABLES + LEDGER_TABLES,
        LEDGER_ADDITIONS,
        JOB_TABLE,
        add_intervals,
    ),
    when_damaged=(
        "Restore a backup; or delete it and the files beside it whose names begin with its own,"
        " except .selection, and ingest the dataset again."
    ),
    reads_from=2,
    stays_in_place=True,
    adapt=read_earlier_format,
)
