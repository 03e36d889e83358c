"""The ledger's tables in a store file; `lazyrag.document.ledger` reads and writes them.

Words: a *build* is what one transform made of one document; a document's *live* builds are what readers see; a *space*
is an index over a group: its terms under an analyser, or its vectors under an embed key.
"""

from __future__ import annotations

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
UPDATE node_group SET fields = coalesce(
    (SELECT schema FROM segment_collection WHERE segment_collection.name = node_group.collection), ''
);
"""
"""What came to the ledger with the store file's format 2."""

TERM_ARRAY_FILES = "SELECT file FROM term_part WHERE arrays IS NULL"
"""The names of all array files that hold parts of lexical indexes."""
