"""The store file: one SQLite file for segments, vectors and the ledger, and beside it a folder of array files."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lazyrag.errors import StoreError
from lazyrag.storage.arrays import ArrayFiles
from lazyrag.storage.database import Database
from lazyrag.stores.ledger_tables import TERM_ARRAY_FILES
from lazyrag.stores.store_format import STORE_FORMAT
from lazyrag.stores.vector_tables import VECTOR_ARRAY_FILES

_YOUNG_S = 3600.0  # a temporary file of that age belongs to a program that has ended

if TYPE_CHECKING:
    from typing import Self


class StoreFile:
    """One open store file, or the same in this process's memory.

    Those who read do not wait for those who write: they have a connection each. In memory there is one, and they do. A
    thread reads, or writes, and does not begin the one within the other.

    Any number of threads and processes may have the file open; after a fork each process opens it for itself.

    Args:
        path: The file; its folder must exist. Array files lie in ``<path>.d``. None: in memory, for this object alone.
        read_only: Write nothing, and neither make nor migrate the file.
        timeout_s: How long to wait for another connection that writes.

    Raises:
        ConfigError: If the path is none, what lies in memory is to be read only, or the timeout is out of range.
        StoreError: If the file is missing (``read_only``), may not be opened, is of another kind or a newer format, is
            damaged, or locked for longer than the timeout.

    Example:
        >>> with StoreFile(None) as file:
        ...     before = file.changed()
        ...     with file.writing() as connection:
        ...         _ = connection.execute("INSERT INTO segment_collection (name, schema) VALUES ('c', '{}')")
        ...     file.changed() == before
        False
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, *, read_only: bool = False, timeout_s: float = 30.0
    ) -> None:
        self.read_only = read_only
        self._commits = 0  # of this object, in memory
        self._counting = threading.Lock()
        with ExitStack() as undo:
            self._writer = undo.enter_context(Database(path, STORE_FORMAT, read_only=read_only, timeout_s=timeout_s))
            self._reader = self._writer
            self.path: Path | None = None if self._writer.in_memory else self._writer.path
            if not (self._writer.in_memory or read_only):
                self._reader = Database(self._writer.path, STORE_FORMAT, read_only=True, timeout_s=timeout_s)
            undo.pop_all()
        self.reading: Callable[[], AbstractContextManager[sqlite3.Connection]] = self._reader.reading
        """A transaction that reads: all its statements see the same state, the last that was committed by anybody."""
        # In memory nobody else commits. A connection's number moves with what others commit: the reader's with what the
        # writer does.
        self.changed: Callable[[], int] = self._committed if self.path is None else self._reader.data_version
        """A number of this object that moves whenever anything was committed, by this process or another one."""
        self.arrays = ArrayFiles(self.path and Path(f"{self.path}.d"), read_only=read_only)

    def __repr__(self) -> str:
        return f"StoreFile({self.path and os.fspath(self.path)!r}{', read_only=True' * self.read_only})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """A transaction that writes; all of it is in the file at its end, or nothing where an error leaves it.

        Args:
            durable: Wait until the disk has it, and with it every transaction that ended before.

        Raises:
            StoreError: If SQLite fails in it, the file stays locked, or it is closed or read-only.
        """
        with self._writer.writing(durable=durable) as connection:
            yield connection
        with self._counting:
            self._commits += 1

    def damage(self) -> str:
        """What SQLite finds wrong with the file; "" for nothing. All of it is read."""
        try:
            with self.reading() as connection:
                told = [str(line) for (line,) in connection.execute("PRAGMA quick_check(5)")]
        except StoreError as exc:
            return str(exc)
        return "" if told == ["ok"] else "; ".join(told)

    def check_there(self, name: str) -> None:
        """Make sure, in the transaction that names an array file, that nobody took it for a stray one meanwhile.

        Raises:
            StoreError: If it is gone: the program did not go on for long. To do it again will do.
        """
        self.arrays.age_s(name)

    def stray_array_files(self, *, older_than_s: float) -> list[str]:
        """Names of array files that no row names, and that were written, or named for the last time, so long ago."""
        with self.reading() as connection:
            return self._stray(connection, older_than_s)

    def collect_array_files(self, *, older_than_s: float) -> None:
        """Delete them. Nobody names one meanwhile: who does looks whether it is there, in the same transaction."""
        with self._writer.writing() as connection:
            self.arrays.delete(self._stray(connection, older_than_s))
        self.arrays.sweep(older_than_s=max(older_than_s, _YOUNG_S))

    def _stray(self, connection: sqlite3.Connection, older_than_s: float) -> list[str]:
        named = {name for query in (TERM_ARRAY_FILES, VECTOR_ARRAY_FILES) for (name,) in connection.execute(query)}
        stray = [name for name in self.arrays.names() if name not in named]
        return [name for name in stray if self._age_s(name) >= older_than_s]

    def _age_s(self, name: str) -> float:
        """How long ago a file was written; no time at all where another program has just removed it."""
        try:
            return self.arrays.age_s(name)
        except StoreError:
            return 0.0

    def _committed(self) -> int:
        self._reader.check_open()
        return self._commits

    def close(self) -> None:
        """Close the file, after the transactions that other threads may be in; twice does no harm.

        Arrays that were read stay as they are.
        """
        self._reader.close()
        self._writer.close()  # last: who closes last cleans up, and a reader may not
