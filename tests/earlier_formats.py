"""Store files as earlier releases left them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

from lazyrag.ledger.liveness import TermParts
from lazyrag.stores.sqlite import StoreFile

_WITHOUT_FIELD_KEYS = """
DROP TABLE field_key; DROP TABLE field_spelling; ALTER TABLE ledger DROP COLUMN field_values;
"""
_BACK = """
CREATE TABLE live (
    document INTEGER NOT NULL REFERENCES document (id),
    node_group INTEGER NOT NULL REFERENCES node_group (id),
    build INTEGER NOT NULL REFERENCES build (number),
    PRIMARY KEY (document, node_group)
) WITHOUT ROWID;
INSERT INTO live SELECT document, node_group, number FROM build WHERE until = 4611686018427387904;
CREATE INDEX live_by_group ON live (node_group);
CREATE INDEX document_by_change ON document (ledger, changed);
DROP INDEX build_unused; DROP INDEX document_unused; DROP TABLE term_state;
ALTER TABLE build DROP COLUMN size; ALTER TABLE build DROP COLUMN since;
ALTER TABLE build DROP COLUMN until; ALTER TABLE document DROP COLUMN since;
ALTER TABLE document DROP COLUMN until; ALTER TABLE node_group DROP COLUMN documents;
ALTER TABLE node_group DROP COLUMN nodes; ALTER TABLE node_group DROP COLUMN filled;
ALTER TABLE space DROP COLUMN nodes; PRAGMA user_version = 3;
"""


def to_format_3(path: Path) -> None:
    """Write a store file back to format 3, whose builds of keyword parts are in their rows."""
    with closing(StoreFile(path)) as file:
        parts = TermParts(file)
        with file.writing() as connection:
            for (part,) in connection.execute("SELECT id FROM term_part").fetchall():
                builds = parts.builds(part)
                pairs = np.stack([builds.numbers, builds.sizes], axis=1).astype("<i8").tobytes()
                connection.execute("UPDATE term_part SET builds = ? WHERE id = ?", (pairs, part))
    with closing(sqlite3.connect(path)) as shell:
        shell.executescript(_WITHOUT_FIELD_KEYS + _BACK)


def drop_field_keys(path: str) -> None:
    """Make a store file one of format 4 from before keys of field values were stored."""
    with closing(sqlite3.connect(path)) as shell:
        shell.executescript(_WITHOUT_FIELD_KEYS)
