"""Format 4 of the store file: when each build is live, and what is counted of that."""

from __future__ import annotations

import functools
import json
import sqlite3

import numpy as np

from lazyrag.indexes.postings import Mask, dead_bits
from lazyrag.storage.database import statements
from lazyrag.types import Int64Array

FOREVER = 1 << 62
"""End of the interval of what is live now."""

FIELD_TABLES = """
ALTER TABLE ledger ADD COLUMN field_values TEXT NOT NULL DEFAULT ''; -- what field_key was made by
CREATE TABLE field_key (              -- by what live documents are named; derived from their rows
    ledger INTEGER NOT NULL, key TEXT NOT NULL, document INTEGER NOT NULL,
    PRIMARY KEY (ledger, key, document)
) WITHOUT ROWID;
CREATE TABLE field_spelling (         -- those keys, each with one letter left out
    ledger INTEGER NOT NULL, spelling TEXT NOT NULL, key TEXT NOT NULL,
    PRIMARY KEY (ledger, spelling, key)
) WITHOUT ROWID;
"""
"""Tables of field keys. Files of format 4 without them get them when they are next written."""

_TABLES = """
ALTER TABLE build ADD COLUMN size INTEGER NOT NULL DEFAULT 0;  -- how many nodes it has
-- Instead of the table live, document.changed and ledger.forgotten: values of ledger.changes, from
-- which on it is live, and is not any more (2^62 while it is live, 0 if it never was).
ALTER TABLE build ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
ALTER TABLE build ADD COLUMN until INTEGER NOT NULL DEFAULT 0;
ALTER TABLE document ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
ALTER TABLE document ADD COLUMN until INTEGER NOT NULL DEFAULT 0;
ALTER TABLE node_group ADD COLUMN documents INTEGER NOT NULL DEFAULT 0; -- its live builds
ALTER TABLE node_group ADD COLUMN nodes INTEGER NOT NULL DEFAULT 0;     -- their nodes
ALTER TABLE node_group ADD COLUMN filled INTEGER NOT NULL DEFAULT 0;    -- those of them with nodes
ALTER TABLE space ADD COLUMN nodes INTEGER NOT NULL DEFAULT 0;          -- live ones that it covers
CREATE TABLE term_state (             -- the live rows of a part of a keyword index
    part INTEGER PRIMARY KEY,
    changed INTEGER NOT NULL,         -- grows when they change
    live INTEGER NOT NULL,            -- how many they are; -1: unknown, as the part is damaged
    tokens INTEGER,                   -- and their terms; NULL: not counted
    dead BLOB                         -- bits as in vector_part
);
CREATE INDEX build_unused ON build (number) WHERE until = 0 AND status <> 'dead';
CREATE INDEX document_unused ON document (ledger, status) WHERE status <> 'live';
CREATE INDEX IF NOT EXISTS document_by_identity ON document (ledger, identity, status);
CREATE INDEX IF NOT EXISTS document_out_of_order ON document (ledger) WHERE identity >= x'';
"""
_BUILDS = (
    "SELECT build.number, counts, document.changed FROM build"
    " LEFT JOIN live ON live.document = build.document AND live.node_group = build.node_group"
    " AND live.build = build.number LEFT JOIN document ON document.id = live.document"
    " WHERE build.number > ? ORDER BY build.number LIMIT ?"
)
_COUNTERS = """
-- Those of kept versions were live once; nobody reads that state any more.
UPDATE build SET until = 1 WHERE until = 0 AND status = 'written' AND EXISTS (SELECT 1 FROM version
    WHERE version.document = build.document AND version.root = build.root);
UPDATE document SET since = changed, until = 4611686018427387904 WHERE status = 'live';
UPDATE node_group SET
    documents = (SELECT count(*) FROM build
        WHERE build.node_group = node_group.id AND until = 4611686018427387904),
    nodes = (SELECT coalesce(sum(size), 0) FROM build
        WHERE build.node_group = node_group.id AND until = 4611686018427387904),
    filled = (SELECT count(*) FROM build
        WHERE build.node_group = node_group.id AND until = 4611686018427387904 AND size > 0);
UPDATE space SET nodes = (SELECT coalesce(sum(size), 0) FROM covered JOIN build ON number = build
    WHERE covered.space = space.id AND until = 4611686018427387904);
DROP TABLE live;
DROP INDEX document_by_change;
"""
_PAGE = 10_000


def add_intervals(connection: sqlite3.Connection) -> None:
    """Migrate the ledgers of a file from format 3 to 4, in the transaction of the connection."""
    for statement in statements(_TABLES + FIELD_TABLES):
        connection.execute(statement)
    last = 0
    while rows := connection.execute(_BUILDS, (last, _PAGE)).fetchall():
        intervals = []
        for number, counts, changed in rows:
            until = 0 if changed is None else FOREVER
            intervals.append((sum(json.loads(counts)), changed or 0, until, number))
        connection.executemany(
            "UPDATE build SET size = ?, since = ?, until = ? WHERE number = ?", intervals
        )
        last = rows[-1][0]
    for statement in statements(_COUNTERS):
        connection.execute(statement)
    parts = connection.execute(
        "SELECT term_part.id, node_group, builds FROM term_part JOIN space ON space.id = space"
    ).fetchall()
    for part, group, builds in parts:
        pairs = np.frombuffer(builds, "<i8").reshape(-1, 2)
        is_live = np.isin(pairs[:, 0], live_numbers(connection, group))
        alive = np.repeat(is_live, pairs[:, 1])
        connection.execute(
            "INSERT INTO term_state VALUES (?, 1, ?, NULL, ?)",
            (part, int(np.count_nonzero(alive)), dead_bits(alive)),
        )


def live_numbers(connection: sqlite3.Connection, group: int) -> Int64Array:
    """(n,) int64, ascending: the numbers of a group's live builds."""
    rows = connection.execute(
        "SELECT number FROM build WHERE node_group = ? AND until = ? ORDER BY number",
        (group, FOREVER),
    )
    return np.fromiter((number for (number,) in rows), np.int64)


_VIEWS = """
CREATE TEMP VIEW build AS SELECT *, (SELECT coalesce(sum(value), 0) FROM json_each(counts)) AS size,
    0 AS since, CASE WHEN EXISTS (
        SELECT 1 FROM main.live WHERE live.document = build.document
        AND live.node_group = build.node_group AND live.build = build.number
    ) THEN 4611686018427387904 ELSE 0 END AS until FROM main.build;
CREATE TEMP VIEW document AS SELECT *, 0 AS since,
    CASE status WHEN 'live' THEN 4611686018427387904 ELSE 0 END AS until FROM main.document;
CREATE TEMP VIEW node_group AS SELECT *,
    (SELECT count(*) FROM main.live WHERE live.node_group = node_group.id) AS documents,
    (SELECT coalesce(sum(size), 0) FROM temp.build
        WHERE build.node_group = node_group.id AND until <> 0) AS nodes,
    (SELECT count(*) FROM temp.build
        WHERE build.node_group = node_group.id AND until <> 0 AND size > 0) AS filled
    FROM main.node_group;
CREATE TEMP VIEW space AS SELECT *,
    (SELECT coalesce(sum(size), 0) FROM main.covered JOIN temp.build ON number = covered.build
        WHERE covered.space = space.id AND until <> 0) AS nodes FROM main.space;
CREATE TEMP VIEW live_numbers AS SELECT node_group, group_concat(build) AS numbers FROM main.live
    GROUP BY node_group;
CREATE TEMP VIEW term_state AS SELECT term_part.id AS part, -ledger.changes AS changed,
    live_rows(builds, numbers) AS live, NULL AS tokens, dead_rows(builds, numbers) AS dead
    FROM main.term_part JOIN main.space ON space.id = term_part.space
    JOIN main.node_group ON node_group.id = space.node_group
    JOIN main.ledger ON ledger.id = node_group.ledger
    LEFT JOIN temp.live_numbers ON live_numbers.node_group = space.node_group;
"""


def read_earlier_format(connection: sqlite3.Connection) -> None:
    """Let a connection that only reads see a file of format 2 or 3 as one of format 4.

    It sees no intervals, only what is live now: so every change counts as a removal, which makes
    readers begin again. Counters are negative: after a migration none of them comes again.
    """
    connection.create_function("live_rows", 2, lambda *row: int(_alive_rows(*row).sum()))
    connection.create_function("dead_rows", 2, lambda *row: dead_bits(_alive_rows(*row)))
    names = [name for _, name, *_ in connection.execute("PRAGMA main.table_info(ledger)")]
    names[names.index("removals")] = "-1 - changes - removals AS removals"
    columns = ", ".join(names)
    ledger = f"CREATE TEMP VIEW ledger AS SELECT {columns} FROM main.ledger;"  # noqa: S608
    for statement in statements(ledger + _VIEWS):
        connection.execute(statement)


def _alive_rows(builds: bytes, live: str | None) -> Mask:
    """The live rows of a part, given its builds and the numbers of live builds as text."""
    pairs = np.frombuffer(builds, "<i8").reshape(-1, 2)
    return np.repeat(np.isin(pairs[:, 0], _parsed(live or "")), pairs[:, 1])


@functools.lru_cache(maxsize=1)  # the parts of a group come one after the other
def _parsed(numbers: str) -> Int64Array:
    return np.array(numbers.split(",") if numbers else [], np.int64)
