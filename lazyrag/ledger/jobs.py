"""Rows of jobs in the ledger's file; the jobs themselves are above."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any

from lazyrag.data.segment import digest
from lazyrag.ledger.ledger import Ledger
from lazyrag.types import State

UNFINISHED = ("WAITING", "WORKING", "DELETING")


DELETING_KINDS = ("delete_files", "purge")


def forget_jobs(connection: sqlite3.Connection, ledger: int, documents: Iterable[str]) -> None:
    """Delete the rows of finished jobs that name documents: arguments and results may have their
    texts.

    Args:
        connection: In a transaction that writes.
        ledger: Row of the ledger.
        documents: Paths or ids.
    """
    rows = connection.execute(
        "SELECT id, documents, result FROM job WHERE ledger = ? AND state NOT IN (?, ?, ?)",
        (ledger, *UNFINISHED),
    ).fetchall()
    names = {*documents}
    quoted = [json.dumps(name) for name in names]
    finished = []
    for number, documents_of_job, result in rows:
        is_named = not names.isdisjoint(json.loads(documents_of_job))
        if is_named or any(name in (result or "") for name in quoted):
            finished.append((number,))
    connection.executemany("DELETE FROM job WHERE id = ?", finished)


def purge_digest(document: str) -> str:
    """What a job that purges a document has instead of its id."""
    return digest(["purge", document])


def read_rows(connection: sqlite3.Connection, query: str, *parameters: Any) -> list[Any]:
    """Rows of jobs; there are none in a file of format 2 that is read-only."""
    is_there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'job'").fetchone()
    return connection.execute(query, parameters).fetchall() if is_there else []


def documents_in_work(ledger: Ledger) -> dict[str, State]:
    """See `Jobs.working`."""
    query = (
        "SELECT documents, kind, state FROM job WHERE ledger = (SELECT id FROM ledger WHERE name ="
        " ?) AND state IN (?, ?, ?) ORDER BY id"
    )
    with ledger.file.reading() as connection:
        rows = read_rows(connection, query, ledger.name, *UNFINISHED)
    states: dict[str, State] = {}
    for documents, kind, state in rows:
        states |= dict.fromkeys(
            json.loads(documents), "DELETING" if kind in DELETING_KINDS else state
        )
    return states
