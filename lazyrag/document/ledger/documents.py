"""The ledger's documents, their versions, and what failed of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from lazyrag.document.ledger.place import LedgerPlace
from lazyrag.document.ledger.rows import (
    DOCUMENT_COLUMNS,
    DocumentRow,
    Status,
    Version,
    bury,
    chunks,
    document_row,
    signature_columns,
)
from lazyrag.stores.segment_rows import read_text, stored_text


class DocumentTable:
    """The documents of a ledger.

    Args:
        place: Of the ledger.
    """

    def __init__(self, place: LedgerPlace) -> None:
        self._at = place

    def all(self) -> dict[str, DocumentRow]:
        """Every document that is known, also those that are deleted, by identity."""
        with self._at.reading() as connection:
            rows = connection.execute(f"SELECT {DOCUMENT_COLUMNS} FROM document WHERE ledger = ?", (self._at.id,))  # noqa: S608
            return {row.identity: row for row in map(document_row, rows)}

    def identities(self) -> list[tuple[str, int]]:
        """Identity and row of every document that is known, in the order of identities."""
        with self._at.reading() as connection:
            rows = connection.execute("SELECT identity, id FROM document WHERE ledger = ?", (self._at.id,))
            return sorted((read_text(identity), row) for identity, row in rows)

    def rows(self, numbers: Iterable[int]) -> Iterator[DocumentRow]:
        """The rows of some documents, in their order; read as they are asked for."""
        for some in chunks(list(numbers)):
            marks = ", ".join("?" * len(some))
            with self._at.reading() as connection:
                found = connection.execute(f"SELECT {DOCUMENT_COLUMNS} FROM document WHERE id IN ({marks})", some)  # noqa: S608
                by_number = {row.id: row for row in map(document_row, found)}
            yield from (by_number[number] for number in some)

    def register(self, rows: Sequence[DocumentRow]) -> list[DocumentRow]:
        """Rows for documents; one that was known gets its old row's number and its version's."""
        with self._at.writing() as connection:
            connection.executemany(
                "INSERT INTO document (ledger, uid, identity, origin, status) VALUES (?, ?, ?, ?, 'new') "
                "ON CONFLICT (ledger, uid) DO NOTHING",
                [(self._at.id, row.uid, stored_text(row.identity), row.origin) for row in rows],
            )
            found = [
                connection.execute(
                    "SELECT id, version FROM document WHERE ledger = ? AND uid = ?", (self._at.id, row.uid)
                ).fetchone()
                for row in rows
            ]
        return [replace(row, id=number, version=version) for row, (number, version) in zip(rows, found, strict=True)]

    def note_files(self, rows: Iterable[DocumentRow]) -> None:
        """Renew what is known of files whose content is as it was."""
        rows = list(rows)
        with self._at.writing() as connection:
            # The live version was made of a file of the same text, unless an earlier one was made live again.
            connection.executemany(
                "UPDATE version SET content_hash = ? WHERE document = ? "
                "AND content_hash = (SELECT content_hash FROM document WHERE id = ?)",
                [(row.content_hash, row.id, row.id) for row in rows],
            )
            connection.executemany(
                "UPDATE document SET size = ?, mtime_ns = ?, inode = ?, seen_ns = ?, content_hash = ?, mark = ? "
                "WHERE id = ?",
                [(*signature_columns(row), row.seen_ns, row.content_hash, row.mark, row.id) for row in rows],
            )

    def forget_files(self, uids: Iterable[str]) -> None:
        """Documents whose files have to be read again, whatever they look like."""
        with self._at.writing() as connection:
            connection.executemany(
                "UPDATE document SET content_hash = '', seen_ns = 0 WHERE ledger = ? AND uid = ?",
                [(self._at.id, uid) for uid in uids],
            )

    def tombstone(self, documents: Iterable[int], status: Status) -> None:
        """Hide documents from every reader at once; their rows are purged later."""
        with self._at.writing(durable=True) as connection:
            changes = self._at.next_change(connection)
            for document in documents:
                bury(connection, document, status, changes)

    def forget_deleted(self) -> None:
        """Remove the rows of documents of which nothing is left, in the stores and in the ledger."""
        gone = (
            "FROM document WHERE ledger = ? AND status IN ('deleted', 'new') "
            "AND NOT EXISTS (SELECT 1 FROM build WHERE build.document = document.id)"
        )
        with self._at.reading() as connection:
            if not connection.execute(f"SELECT 1 {gone} LIMIT 1", (self._at.id,)).fetchone():
                return
        with self._at.writing() as connection:
            if connection.execute(f"DELETE {gone}", (self._at.id,)).rowcount:
                connection.execute("UPDATE ledger SET forgotten = changes WHERE id = ?", (self._at.id,))

    def rolled_back(self) -> set[int]:
        """Rows of the documents whose live version was made of another file than what is there now."""
        with self._at.reading() as connection:
            rows = connection.execute(
                "SELECT document.id FROM document JOIN version ON version.document = document.id "
                "AND version.number = document.version "
                "WHERE ledger = ? AND version.content_hash <> document.content_hash",
                (self._at.id,),
            )
            return {row for (row,) in rows}

    def versions(self, document: int) -> list[Version]:
        """The versions of a document that are kept, oldest first."""
        with self._at.reading() as connection:
            rows = connection.execute(
                "SELECT number, root, created_at, content_hash, loaded, said, updates FROM version "
                "WHERE document = ? ORDER BY number",
                (document,),
            )
            return list(map(Version._make, rows))

    def set_failures(self, identities: Iterable[str] | None, failures: Iterable[tuple[str, str, str, str]]) -> None:
        """Replace what is known of the failures of some documents.

        Args:
            identities: Of those that were tried; None for all.
            failures: Identity, stage, class of the error and message of each that failed.
        """
        now = time.time()
        with self._at.writing() as connection:
            if identities is None:
                connection.execute("DELETE FROM failure WHERE ledger = ?", (self._at.id,))
            else:
                tried = [(self._at.id, stored_text(one)) for one in identities]
                connection.executemany("DELETE FROM failure WHERE ledger = ? AND identity = ?", tried)
            connection.executemany(
                "INSERT OR REPLACE INTO failure VALUES (?, ?, ?, ?, ?, ?)",
                [(self._at.id, *map(stored_text, failure), now) for failure in failures],
            )

    def failures(self) -> list[tuple[str, str, str, str]]:
        """Identity, stage, class of the error and message of all that failed when it was last tried."""
        with self._at.reading() as connection:
            rows = connection.execute(
                "SELECT identity, stage, kind, message FROM failure WHERE ledger = ? ORDER BY identity, stage",
                (self._at.id,),
            )
            return [(read_text(identity), stage, kind, read_text(message)) for identity, stage, kind, message in rows]
