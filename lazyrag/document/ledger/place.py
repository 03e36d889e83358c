"""A ledger's place: its row in a store file, and transactions on it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from lazyrag.document.ledger.lease import Lease, Program, unfinished_copy
from lazyrag.errors import StoreBusyError
from lazyrag.stores.store_file import StoreFile


class LedgerPlace:
    """Where one Document's ledger lies.

    Args:
        file: The open store file.
        name: Name of the Document.
        copies: Whether it is opened to copy another ledger into it.

    Raises:
        StoreBusyError: If another ledger is being copied into it, and it is opened to be used.
    """

    def __init__(self, file: StoreFile, name: str, *, copies: bool = False) -> None:
        self.file = file
        self.name = name
        self.program = Program()
        self._copies = copies
        if not file.read_only:
            with file.writing() as connection:
                connection.execute("INSERT INTO ledger (name) VALUES (?) ON CONFLICT (name) DO NOTHING", (name,))
        self.id = self.find_row()
        self.lease = Lease(file, self.id, self.program, copies=copies)

    @property
    def token(self) -> str:
        """What no other ledger has, so that two with one name do not write to the same collections of a server."""
        with self.reading() as connection:
            [token] = connection.execute("SELECT token FROM ledger WHERE id = ?", (self.id,)).fetchone()
        return str(token)

    def find_row(self) -> int:
        """The ledger's row; 0 while nobody has made it.

        Raises:
            StoreBusyError: If it is the copy of another one that is not complete.
        """
        with self.file.reading() as connection:
            found = connection.execute("SELECT id, incoming FROM ledger WHERE name = ?", (self.name,)).fetchone()
        if found is None:
            return 0
        number, incoming = found
        if incoming and not self._copies:
            raise StoreBusyError(unfinished_copy(self.file, self.name), store=str(self.file.path))
        return int(number)

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """A transaction that reads."""
        return self.file.reading()

    @contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """A transaction that writes, under the lease.

        Raises:
            StoreBusyError: If another program has taken the lease over.
        """
        with self.file.writing(durable=durable) as connection:
            self.lease.check(connection)
            yield connection

    def next_change(self, connection: sqlite3.Connection) -> int:
        """Count a change of what is live; returns the count."""
        connection.execute("UPDATE ledger SET changes = changes + 1 WHERE id = ?", (self.id,))
        return int(connection.execute("SELECT changes FROM ledger WHERE id = ?", (self.id,)).fetchone()[0])
