"""Checks of what says what is live: the intervals of documents and builds, by their status and the
counter of changes; parts of keyword indexes whose live rows nobody knows.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from lazyrag.stores.liveness import FOREVER
from lazyrag.stores.sqlite import read_text

_IMPOSSIBLE = "since > :changes OR since > until OR (until > :changes AND until <> :forever)"
_OF_NO_DOCUMENT = (
    "(until = :forever AND document NOT IN (SELECT id FROM document WHERE status = 'live'))"
)
# of a live document, and nothing is live in its place
_REPLACEABLE = (
    "status = 'written' AND document IN (SELECT id FROM document WHERE status = 'live') AND NOT"
    " EXISTS (SELECT 1 FROM build AS other WHERE other.document = build.document AND"
    " other.node_group = build.node_group AND other.until = :forever)"
)
_LOST_ROOT = (
    "(until <> :forever AND EXISTS (SELECT 1 FROM version JOIN document ON"  # noqa: S608
    " document.id = version.document AND document.version = version.number WHERE version.root ="
    f" build.number AND version.document = build.document) AND {_REPLACEABLE})"
)
_SCOPES = {
    "document": "ledger = :ledger",
    "build": "node_group IN (SELECT id FROM node_group WHERE ledger = :ledger AND status = 'live')",
}
_NAMES = {
    "document": "'the ledger', identity",
    "build": (
        "(SELECT name FROM node_group WHERE node_group.id = build.node_group), coalesce((SELECT"
        " identity FROM document WHERE document.id = build.document), '')"
    ),
}
_FAULTS = {
    "document": f"{_IMPOSSIBLE} OR (status = 'live') <> (until = :forever)",
    "build": (
        f"{_IMPOSSIBLE} OR (until = :forever AND status = 'writing') OR {_OF_NO_DOCUMENT} OR"
        f" {_LOST_ROOT}"
    ),
}
_DETAILS = (
    "'the interval ' || since || ' to ' || until || ' contradicts the status ' || status || ', or"
    " the counter of changes, ' || :changes"
)
_STATELESS = (
    "SELECT node_group.name || ' by ' || space.name, '', 'a part has lost its row of live rows',"
    " term_part.id FROM term_part JOIN space ON space.id = term_part.space JOIN node_group ON"
    " node_group.id = space.node_group WHERE ledger = ? AND term_part.id NOT IN (SELECT part FROM"
    " term_state)"
)
_BEGINNING = "since = CASE WHEN until < :next THEN until ELSE :next END"
# Table, what is set, and where. What is not live stays away, even if its interval says otherwise.
_CORRECTIONS = (
    ("document", "until = :next", "status <> 'live' AND until > :changes"),
    ("document", "until = :forever", "status = 'live'"),
    ("document", _BEGINNING, "(since > :changes OR since > until)"),
    ("build", "until = :next, status = 'dead', dead_at = :now", _OF_NO_DOCUMENT),
    ("build", "status = 'written'", "until = :forever AND status = 'writing'"),
    ("build", "until = :forever", f"until > :changes AND {_REPLACEABLE}"),
    ("build", "until = :next", "until > :changes AND until <> :forever"),
    ("build", "until = :forever", _LOST_ROOT),
    ("build", _BEGINNING, "(since > :changes OR since > until)"),
)


def liveness_faults(connection: sqlite3.Connection, ledger: int) -> list[tuple[str, str, str]]:
    """What cannot be right of documents, live groups and keyword indexes: where, the identity of
    the document, and details.

    Args:
        connection: In a transaction.
        ledger: Row of the ledger.
    """
    values = _values(connection, ledger)
    faults: list[tuple[str, str, str]] = []
    for table, scope in _SCOPES.items():
        rows = connection.execute(
            f"SELECT {_NAMES[table]}, {_DETAILS} FROM {table}"  # noqa: S608
            f" WHERE ({_FAULTS[table]}) AND {scope}",
            values,
        )
        faults += ((where, read_text(identity), details) for where, identity, details in rows)
    stateless = connection.execute(_STATELESS, (ledger,))
    return faults + [(where, document, details) for where, document, details, _ in stateless]


def stateless_parts(connection: sqlite3.Connection, ledger: int) -> list[int]:
    """The parts of keyword indexes, complete or not, whose rows of live rows are lost."""
    return [part for *_, part in connection.execute(_STATELESS, (ledger,)).fetchall()]


def correct_intervals(connection: sqlite3.Connection, ledger: int, changes: int) -> None:
    """Correct the intervals that `liveness_faults` finds; what is counted of them is to be counted
    again.

    Args:
        connection: In a writing transaction.
        ledger: Row of the ledger.
        changes: The counter of changes, which this transaction has incremented.
    """
    values = {"next": changes, "now": time.time(), **_values(connection, ledger)}
    values["changes"] -= 1
    for table, change, condition in _CORRECTIONS:
        connection.execute(
            f"UPDATE {table} SET {change} WHERE {condition} AND {_SCOPES[table]}",  # noqa: S608
            values,
        )
    # an interval has no gap: a reader of the state before asks again
    connection.execute("UPDATE ledger SET removals = removals + 1 WHERE id = ?", (ledger,))


def _values(connection: sqlite3.Connection, ledger: int) -> dict[str, Any]:
    query = "SELECT changes FROM ledger WHERE id = ?"
    [changes] = connection.execute(query, (ledger,)).fetchone()
    return {"ledger": ledger, "changes": changes, "forever": FOREVER}
