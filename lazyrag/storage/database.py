"""SQLite files with a format number: recognised, migrated, and used in short transactions."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import re
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar

from lazyrag.errors import ConfigError, StoreError
from lazyrag.progress.blocks import contextmanager
from lazyrag.types import Closable, PathLike
from lazyrag.validation import validate_range

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


T = TypeVar("T")


class RawText(bytes):
    """A text that is no valid UTF-8 (half a surrogate pair), as it lies in a column of texts."""

    __slots__ = ()


class DatabaseUrl(str):
    """The URL of a database; what shows it leaves the user and the password out."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(re.sub("(?<=//).*@|(?<=password=)[^&]*", "", str(self)))


def is_server(path: object) -> bool:
    """Whether it is the URL of a PostgreSQL database, and no path."""
    return isinstance(path, str) and path.startswith(
        ("postgresql://", "postgresql+", "postgres://")
    )


def batches_reaching(
    items: Iterable[T], weight: Callable[[T], int], most: int, *, most_items: int = sys.maxsize
) -> Iterator[list[T]]:
    """Items in batches that end where their weight or number reaches a bound.

    Args:
        items: Any number.
        weight: Weight of an item.
        most: The bound of a batch's weight; the last item may exceed it.
        most_items: The bound of its number of items.

    Example:
        >>> list(batches_reaching(["a", "bb", "c"], len, 3))
        [['a', 'bb'], ['c']]
    """
    batch = []
    total = 0
    for item in items:
        batch.append(item)
        total += weight(item)
        if total >= most or len(batch) >= most_items:
            yield batch
            batch = []
            total = 0
    if batch:
        yield batch


Migration: TypeAlias = "str | Callable[[Any], object]"
"""One step from a format to the next: SQL statements, or a function that is called inside the
step's transaction."""

InTransaction: TypeAlias = Callable[[Any], object]
"""Called with the connection of a transaction."""

_MAX_WAIT_S = 86_400.0  # SQLite counts milliseconds in 32 bits
_MEMORY = ":memory:"  # SQLite's own name for a database in memory
# of a database; SQLite takes a file of one byte for an empty one and writes over it
_SMALLEST_BYTES = 512
# Of a new database: rows of some hundred bytes in any order are written half as often as with
# 4,096.
_PAGE_BYTES = 16_384
_CACHE_KB = 8_192

# macOS, where fsync leaves data in the drive's own cache
_FULL = getattr(fcntl, "F_FULLFSYNC", None)
_flush_data = getattr(os, "fdatasync", os.fsync)  # as SQLite does, which sets no times

_CLOSED = "is closed. Open it again."
_EXPLANATIONS = {
    "locked": (
        "is locked: another connection was writing for more than {wait:g} s. Wait until it is done,"
        " or end it."
    ),
    "closed database": _CLOSED,
    "locking protocol": "is locked: too many programs opened it at the same time. Try again.",
    "is full": (
        "cannot be written: the disk is full. The write was rolled back. Free disk space and try"
        " again."
    ),
    "disk I/O error": (
        "cannot be read or written (disk I/O error). Check that the disk has free space and no"
        " hardware errors."
    ),
    "readonly": (
        "cannot be written. Check the permissions of the file and of its folder, which both must be"
        " writable."
    ),
    "unable to open": (
        "cannot be opened. Check the permissions of the file, its folder and the files -wal and"
        " -shm beside it. To read it in a read-only folder, close it first in a program that may"
        " write there."
    ),
    "not a database": "is not a SQLite database, or is damaged. {damaged} Or pass another path.",
    "malformed": "is damaged. {damaged}",
    "Could not decode": "is damaged. {damaged}",
}
"""Words of SQLite's messages to our explanations."""


@dataclass(frozen=True, slots=True)
class FileFormat:
    """One kind of SQLite file, and its migrations.

    A file carries its kind in its ``application_id`` and the number of migrations that made it in
    its ``user_version``.

    Args:
        name: Name of the kind in messages: ``"embedding cache"``.
        application_id: From 1 to 2**31 - 1, different for each kind; never changed.
        migrations: The steps from an empty file to the present format, oldest first. Released ones
            are never changed, only more are added.
        when_damaged: Advice for a damaged file, as a sentence for messages.
        reads_from: The oldest format that is read without a migration; 0 for none but the present
            one.
        stays_in_place: Whether nothing is committed once the file was deleted or replaced.
        adapt: Called with a connection that only reads an older format, to make it look like the
            present one by temporary views.
    """

    name: str
    application_id: int
    migrations: tuple[Migration, ...]
    when_damaged: str
    reads_from: int = 0
    stays_in_place: bool = False
    adapt: Callable[[sqlite3.Connection], object] | None = None

    @property
    def version(self) -> int:
        """The present format: how many migrations there are."""
        return len(self.migrations)


class OpenDatabase(Closable):
    """A database that this process has open.

    Args:
        address: Where it is.
        file_format: Its kind.
        read_only: Whether nothing is written.
        timeout_s: How long to wait for others that write.
    """

    def __init__(
        self, address: str, file_format: FileFormat, *, read_only: bool, timeout_s: float
    ) -> None:
        self.address = address
        self.file_format = file_format
        self.read_only = read_only
        self._shown = address
        self._timeout_s = timeout_s
        self._process = os.getpid()
        self._turn = threading.RLock()
        self._openings = 0
        self._writing_thread = 0
        self.commits = 0  # of writers
        self._closed = False

    def check_open(self) -> None:
        """Raise unless the database can be used.

        Raises:
            StoreError: If it is closed, or was opened before a fork.
        """
        if self._process != os.getpid():
            raise self._error(
                "was opened by another process, of which this one is a fork. Open it again in this"
                " one."
            )
        if self._closed:
            raise self._error(_CLOSED)

    def refuse_to_write(self) -> NoReturn:
        """Raise because the database was opened with ``read_only=True``."""
        raise self._error("was opened with read_only=True. Open it without to write.")

    def is_writing(self) -> bool:
        """Whether this thread is within a transaction that writes, which may be rolled back."""
        return self._writing_thread == threading.get_ident()

    def _error(self, message: str) -> StoreError:
        text = f"The {self.file_format.name} {self._shown} {message}"
        return StoreError(text, store=self.address)


class Database(OpenDatabase):
    """One open SQLite file, or a database in this process's memory.

    It has a single connection, which threads use in turn, one transaction each. So `close` closes
    it for all threads, and temporary views and functions are there for all of them. Keep
    transactions short. To read during long writes, open the file a second time: in WAL mode readers
    and a writer do not wait for each other.

    Any number of processes may have the file open; each opens it for itself, after a fork too. A
    finished transaction survives the end of the process at any instant. A power cut may take the
    last ones, and never leaves half of one (WAL with ``synchronous = NORMAL``); `writing` with
    ``durable=True`` secures itself and all before it, `flush` all that was committed.

    Args:
        path: The file; its folder must exist. ``~`` is the home folder. None: in memory, seen by
            this object alone.
        file_format: Kind of the file. A new or empty file becomes one, an older one is migrated.
        read_only: Write nothing, and neither create nor migrate the file. Its folder need not be
            writable: a file that nobody has open is then read as it is, and opened again when a
            writer has come.
        timeout_s: How long to wait for another connection that writes.

    Raises:
        ConfigError: If the path is of another type or empty, a database in memory is read-only, or
            the timeout is not from 0 to 86,400 s.
        StoreError: If the file is missing or may not be opened, is of another kind, of a newer
            format, no SQLite database, damaged, or locked for longer than the timeout. A file that
            is not ours is left as it is.

    Source:
        https://sqlite.org/wal.html, https://sqlite.org/pragma.html#pragma_application_id

    Example:
        >>> tables = ("CREATE TABLE note (text TEXT);",)
        >>> notes = FileFormat("notebook", 0x6E6F7465, tables, "Delete it.")
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Database(Path(folder, "notes.db"), notes) as database:
        ...         with database.writing() as connection:
        ...             _ = connection.execute("INSERT INTO note VALUES ('tea')")
        ...         with database.reading() as connection:
        ...             connection.execute("SELECT text FROM note").fetchall()
        [('tea',)]
    """

    def __init__(
        self,
        path: PathLike | None,
        file_format: FileFormat,
        *,
        read_only: bool = False,
        timeout_s: float = 30.0,
    ) -> None:
        expected = f"a number of seconds from 0 to {_MAX_WAIT_S:,.0f}"
        validate_range("timeout_s", timeout_s, 0, _MAX_WAIT_S, expected)
        if path is None and read_only:
            raise ConfigError(
                f"A {file_format.name} in memory begins empty: there is nothing to read. Leave"
                " read_only=True out."
            )
        self.path = Path(_MEMORY) if path is None else _absolute(path, file_format.name)
        super().__init__(
            os.fspath(self.path), file_format, read_only=read_only, timeout_s=timeout_s
        )
        self._shown = repr(self.address)
        self.in_memory = path is None
        if not self.in_memory:
            self._ensure_usable_path()
        self._opened_identity: tuple[int, int] | None = None
        try:
            self._open()
        except (UnicodeDecodeError, sqlite3.Error) as exc:
            raise self._explained(exc) from exc

    def _open(self) -> None:
        self._openings += 1
        self._is_durable: bool | None = None  # unknown
        self._unchanging: tuple[int, ...] | None = None
        self._adapted_from = 0
        mode = "ro" if self.read_only else "rwc"
        # SQLite reads a file in WAL mode only with two files beside it, unless it can rely on the
        # file not to change.
        if self.read_only and not _is_folder_writable(self.path):
            self._unchanging = self._signature()
            mode += "&immutable=1" * (self._unchanging is not None)
        self._connection = sqlite3.connect(
            _MEMORY if self.in_memory else f"{self.path.as_uri()}?mode={mode}",
            uri=not self.in_memory,
            timeout=self._timeout_s,
            isolation_level=None,  # transactions begin where we say so
            check_same_thread=False,
        )
        # Nobody is warned of a connection that is not closed (Python does, from 3.13 on): the
        # finalizer closes it.
        self._finalizer = weakref.finalize(self, _close, self._connection, self._process)
        self._finalizer.atexit = False
        self._closed = False
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"Database({os.fspath(self.path)!r}, {self.file_format.name!r})"

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A transaction that reads: all its statements see the same state of the file. One within
        it is a part of it.

        Raises:
            StoreError: If SQLite fails in it, or the database is closed.
        """
        if self._process != os.getpid():  # a fork's copy, whose lock may have been left taken
            self.check_open()
        with self._turn:
            try:
                if self._unchanging is not None or self._adapted_from:
                    self._follow()
                connection = self._connection
                if connection.in_transaction:  # of this thread
                    yield connection
                    return
                try:
                    connection.execute("BEGIN")
                    yield connection
                    if self._unchanging is not None:
                        self._ensure_unchanged()
                    connection.execute("COMMIT")
                except BaseException:
                    _roll_back(connection)
                    raise
            except (UnicodeDecodeError, sqlite3.Error) as exc:
                raise self._explained(exc) from exc

    @contextmanager
    def writing(
        self,
        *,
        durable: bool = False,
        first: InTransaction | None = None,
    ) -> Iterator[sqlite3.Connection]:
        """A transaction that writes: committed at its end, rolled back after an error.

        Other writers wait from its beginning on, so that its reads stay valid. One within it is a
        part of it, and cannot be durable.

        Args:
            durable: Wait until the disk has it, and with it every transaction that ended before, so
                that no power cut takes them (``synchronous = FULL``). One that changes nothing
                writes nothing, and so secures nothing.
            first: Called at its beginning; what it raises rolls the transaction back.

        Raises:
            StoreError: If SQLite fails in it, the file stays locked, or the database is closed or
                read-only.
        """
        if self.read_only:
            self.refuse_to_write()
        if self._process != os.getpid():  # a fork's copy, whose lock may have been left taken
            self.check_open()
        with self._turn:
            try:
                connection = self._connection
                is_part = connection.in_transaction  # of this thread's
                try:
                    if durable or not is_part:  # which fails within another one
                        self._begin(durable=durable)
                    if first is not None:
                        first(connection)
                    yield connection
                    if not is_part:
                        self._commit()
                except BaseException:
                    if not is_part:
                        _roll_back(connection)
                    raise
                finally:
                    if not is_part:
                        self._writing_thread = 0
            except (UnicodeDecodeError, sqlite3.Error) as exc:
                raise self._explained(exc) from exc

    @property
    def is_in_place(self) -> bool:
        """Whether the path still leads to the open file, which may have been deleted or
        replaced.
        """
        return self._identity() == self._opened_identity

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def flush(self) -> None:
        """Wait until the disk has every finished transaction, so that no power cut takes one.

        Raises:
            StoreError: If the disk fails, or the database is closed.

        Source:
            https://sqlite.org/wal.html#how_checkpointing_works
        """
        self.check_open()
        if self.in_memory:
            return
        # Transactions are in the log, or a checkpoint has moved them into the file, and flushed
        # both, before it began the log anew. Only the log may be opened here: closing the file
        # itself would drop SQLite's locks, which POSIX ties to the process.
        try:
            log = os.open(f"{os.path.realpath(self.path)}-wal", os.O_RDWR)
            try:
                flush_file(log)
            finally:
                os.close(log)
        except FileNotFoundError:  # nothing was written since the file was opened
            return
        except OSError as exc:
            raise self._error(_EXPLANATIONS["disk I/O error"]) from exc

    def data_version(self) -> int:
        """A number that changes when another connection of any process has changed the file.

        Transactions of this object do not change it. Compare only numbers of one object.

        Raises:
            StoreError: If SQLite fails, or the database is closed.

        Source:
            https://sqlite.org/pragma.html#pragma_data_version
        """
        if self._process != os.getpid():
            self.check_open()
        with self._turn:
            try:
                if self._unchanging is not None:
                    self._follow()
                [version] = self._connection.execute("PRAGMA data_version").fetchone()
            except (UnicodeDecodeError, sqlite3.Error) as exc:
                raise self._explained(exc) from exc
        return int(version) + (self._openings << 32)  # SQLite's numbers have 32 bits

    def second(self, *, read_only: bool) -> Database:
        """Another connection to the file."""
        return Database(self.path, self.file_format, read_only=read_only, timeout_s=self._timeout_s)

    def array_place(self) -> Any:
        """Where array files are, if they are in the database: None."""

    @staticmethod
    def fetch_each(
        connection: sqlite3.Connection,
        query: str,
        rows: Iterable[Sequence[object]],
        limit: int = 1,
    ) -> list[Any]:
        """The first rows of a query for each row of parameters, in order; at most so many of each,
        and there may be none.
        """
        fetched = (connection.execute(query, row).fetchmany(limit) for row in rows)
        return list(itertools.chain.from_iterable(fetched))

    def now(self, _connection: sqlite3.Connection) -> float:
        """The clock of leases, in seconds since 1970: that of this machine."""
        return time.time()

    def shrink(self) -> None:
        """Return the space of deleted rows to the disk; rewrites the file.

        Raises:
            StoreError: If SQLite fails, or the database is closed or read-only.
        """
        self.check_open()
        with self._turn:
            try:
                self._connection.execute("VACUUM")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except (UnicodeDecodeError, sqlite3.Error) as exc:
                raise self._explained(exc) from exc

    def close(self) -> None:
        """Close the file. Waits for a transaction of another thread. Idempotent."""
        if self._process != os.getpid():
            # a fork's copy: SQLite allows nothing to be done with it, and the file belongs to the
            # parent
            return
        with self._turn:
            self._closed = True
            self._finalizer.detach()
            self._connection.close()

    def _begin(self, *, durable: bool) -> None:
        if durable != self._is_durable:  # which cannot be changed within a transaction
            # unknown, should this be interrupted
            self._is_durable = None
            self._connection.execute(f"PRAGMA synchronous = {1 + durable}")  # NORMAL or FULL
            self._is_durable = durable
        self._connection.execute("BEGIN IMMEDIATE")
        self._writing_thread = threading.get_ident()

    def _commit(self) -> None:
        # SQLite would write into a file that nobody finds any more
        if self.file_format.stays_in_place and self._identity() != self._opened_identity:
            raise self._error(
                "was deleted or replaced while it was open. This change was not written. Close the"
                " Document, put the file back, and open it again."
            )
        try:
            self._connection.execute("COMMIT")
        finally:
            self.commits += not self._connection.in_transaction

    def _signature(self) -> tuple[int, ...] | None:
        """What changes with the file's content; None if a program writes it, or was killed while it
        did.
        """
        path = os.path.realpath(self.path)
        if os.path.exists(f"{path}-wal"):  # noqa: PTH110
            return None
        with suppress(OSError):
            status = os.stat(path)  # noqa: PTH116
            return status.st_ino, status.st_size, status.st_mtime_ns
        return ()

    def _ensure_unchanged(self) -> None:
        if self._unchanging != self._signature():
            raise self._error("was changed while it was read. Repeat the query.")

    def _follow(self) -> None:
        """Open a file again that was taken for unchanging, and has changed, or that a writer has
        migrated.
        """
        if self._connection.in_transaction:
            return
        is_unchanged = self._unchanging is None or self._unchanging == self._signature()
        if is_unchanged and self._adapted_from in (0, self._read_format()):
            return
        self._closed = True  # should this be interrupted
        self._finalizer()
        try:
            self._open()
        except (UnicodeDecodeError, sqlite3.Error) as exc:
            raise self._explained(exc) from exc

    def _prepare(self) -> None:
        """Check the file before anything is written to it, then migrate it."""
        self._connection.execute("PRAGMA trusted_schema = OFF")  # a file may come from anywhere
        # of a file that is still to be made
        self._connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        self._connection.execute(f"PRAGMA cache_size = {-_CACHE_KB}")
        if _FULL is not None:
            self._connection.execute("PRAGMA fullfsync = ON")
            self._connection.execute("PRAGMA checkpoint_fullfsync = ON")
        newest = self.file_format.version
        with self.reading():
            version = self._version()
        if self.read_only:
            if version < (self.file_format.reads_from or newest):
                raise self._error(
                    f"has format {version} and this release reads format {newest}. "
                    "Open it once without read_only=True, which brings it there."
                )
            if version < newest and self.file_format.adapt is not None:
                self.file_format.adapt(self._connection)
                self._adapted_from = version
            return
        if self.in_memory:
            _empty_database(self.file_format).backup(self._connection)
            return
        self._use_wal()
        self._opened_identity = self._identity()
        self._connection.execute("PRAGMA foreign_keys = ON")
        if version < newest:
            with self.writing() as connection:
                # another process may have been faster
                _run_migrations(connection, self.file_format, self._version())

    def _read_format(self) -> int:
        [version] = self._connection.execute("PRAGMA user_version").fetchone()
        return int(version)

    def _version(self) -> int:
        """The file's format; 0 for an empty one. Call it in a transaction: another process may be
        creating the file.

        Raises:
            StoreError: If it is not of our kind, or of a newer format.
        """
        [kind] = self._connection.execute("PRAGMA application_id").fetchone()
        version = self._read_format()
        [tables] = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if kind != self.file_format.application_id and (kind or version or tables):
            raise self._error(
                "is a SQLite database of another kind. It was left as it is; pass another path."
            )
        newest = self.file_format.version
        if version > newest:
            raise self._error(
                f"has format {version}, written by a newer release; this one reads up to format"
                f" {newest}. Install the newer release, or pass another path."
            )
        return version

    def _use_wal(self) -> None:
        # Where two connections change the mode at the same time, SQLite gives up at once instead of
        # waiting.
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as exc:
                if "locked" not in str(exc) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return

    def _ensure_usable_path(self) -> None:
        """Checks that SQLite lacks, or reports less clearly."""
        if self.path.is_dir():
            raise self._error("is a folder. Give the path of a file.")
        there = self.path.exists()
        if self.read_only and not there:
            raise self._error("does not exist, and read_only=True makes none. Pass another path.")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise self._error(
                f"cannot be made, as its folder cannot: {exc.strerror}. Pass another path."
            ) from exc
        if there and 0 < self.path.stat().st_size < _SMALLEST_BYTES:
            raise self._error(
                _EXPLANATIONS["not a database"].format(damaged=self.file_format.when_damaged)
            )

    def _explained(self, exc: UnicodeDecodeError | sqlite3.Error) -> StoreError:
        """Explain an error of SQLite."""
        # SQLite quotes the damaged bytes, which Python cannot decode.
        message = "malformed" if isinstance(exc, UnicodeDecodeError) else str(exc)
        for words, explanation in _EXPLANATIONS.items():
            if words in message:
                return self._error(
                    explanation.format(wait=self._timeout_s, damaged=self.file_format.when_damaged)
                )
        return self._error(f"failed: {message}.")


def flush_file(descriptor: int, flush: Callable[[int], None] | None = None) -> None:
    """Wait until a file's content is on the disk: by `flush`, which is ``fdatasync``, or what macOS
    has for it.
    """
    if _FULL is not None:
        with suppress(OSError):  # a file system without it
            fcntl.fcntl(descriptor, _FULL)
            return
    (flush or _flush_data)(descriptor)


@functools.lru_cache(maxsize=8)
def _empty_database(file_format: FileFormat) -> sqlite3.Connection:
    """An empty database to copy: making the tables takes 40 times as long."""
    connection = sqlite3.connect(_MEMORY, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
    _run_migrations(connection, file_format, 0)
    return connection


def _run_migrations(connection: sqlite3.Connection, file_format: FileFormat, version: int) -> None:
    for migration in file_format.migrations[version:]:
        if isinstance(migration, str):
            for statement in statements(migration):
                connection.execute(statement)
        else:
            migration(connection)
    connection.execute(f"PRAGMA application_id = {file_format.application_id:d}")
    connection.execute(f"PRAGMA user_version = {file_format.version:d}")


def _roll_back(connection: sqlite3.Connection) -> None:
    """Roll back, and end the queries whose rows were not all read: each keeps the state of the file
    that it sees.

    Their cursors may be in the frames of a traceback, which notebooks keep.
    """
    try:
        if connection.in_transaction:  # SQLite ends it by itself where the disk fails
            connection.execute("ROLLBACK")
    finally:
        cursors = [
            cursor for cursor in gc.get_referrers(connection) if isinstance(cursor, sqlite3.Cursor)
        ]
        for cursor in cursors:
            cursor.close()


def _is_folder_writable(path: Path) -> bool:
    folder = os.path.dirname(os.path.realpath(path))  # noqa: PTH120
    return os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _close(connection: sqlite3.Connection, process: int) -> None:
    if os.getpid() == process:
        connection.close()


def _absolute(path: PathLike, name: str) -> Path:
    """The absolute path of the file."""
    path_text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    # It would be a file's name here.
    if not isinstance(path_text, str) or not path_text or "\0" in path_text or path_text == _MEMORY:
        raise ConfigError(f"The path of the {name} is {path_text!r}; give that of a file.")
    return Path(path_text).expanduser().absolute()


def statements(script: str) -> Iterator[str]:
    """The statements of a script. Python's ``executescript`` would end the transaction."""
    statement = ""
    for piece in script.split(";"):
        statement += piece + ";"
        if sqlite3.complete_statement(statement):  # not inside of a text, a comment or a trigger
            if piece.strip():
                yield statement
            statement = ""
    if statement.strip(" \t\n;"):
        yield statement
