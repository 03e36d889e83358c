"""A ledger's place: its row in a store file, and transactions on it."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from lazyrag.errors import StoreBusyError, StoreError
from lazyrag.stores.sqlite import StoreFile

LEASE_S = 60.0
"""A lease that nobody renews ends after so many seconds: its holder's machine may be gone."""

_RENEWED = 4  # times while a lease lasts
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Program:
    """A running program, told so that another one can see whether it still runs.

    Args:
        id: Its own, and that of one opened ledger in it.
        name: What it was started as.
        host: Where.
        pid: Its process there.
        started: When that process began, as its system counts; 0 where that is not known. Numbers of processes are
            used again.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    name: str = field(default_factory=lambda: Path(sys.argv[0] if sys.argv else "").name or "python")
    host: str = field(default_factory=platform.node)
    pid: int = field(default_factory=os.getpid)
    started: int = field(default_factory=lambda: _started(os.getpid()))

    def to_json(self) -> str:
        """What `from_json` reads."""
        return json.dumps({"name": self.name, "host": self.host, "pid": self.pid, "started": self.started})

    @classmethod
    def from_json(cls, told: str, identity: str) -> Program:
        """A program that another one wrote down."""
        return cls(identity, **json.loads(told))

    def __str__(self) -> str:
        here = " (this process)" if (self.host, self.pid) == (platform.node(), os.getpid()) else ""
        return f"{self.name!r}, process {self.pid} on {self.host}{here}"

    @property
    def is_here(self) -> bool:
        """Whether it is this very process."""
        return (self.host, self.pid, self.started) == (platform.node(), os.getpid(), _started(os.getpid()))

    def has_ended(self) -> bool:
        """Whether it is known to run no more. Of another machine's programs nothing is known."""
        if self.host != platform.node() or sys.platform == "win32":  # a signal 0 would end a process there
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False  # another user's
        return bool(self.started) and _started(self.pid) not in {0, self.started}


def _started(pid: int) -> int:
    """When a process began, in its system's own count; 0 where the system does not tell, -1 if it has ended."""
    with suppress(OSError, ValueError, IndexError):
        told = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        state, *rest = told.rpartition(")")[2].split()
        return -1 if state in "ZX" else int(rest[18])  # one that has ended stays until somebody asks how
    return 0


class Lease:
    """The right to write a ledger: taken for one operation, renewed while it goes on, given back at its end.

    Args:
        file: The store file.
        ledger: Row of the ledger.
        program: Who wants it.
        copies: Whether it is for a copy of other ledgers into this file; nobody else writes the file meanwhile.
    """

    def __init__(self, file: StoreFile, ledger: int, program: Program, *, copies: bool = False) -> None:
        self._file = file
        self._ledger = ledger
        self.program = program
        self._copies = copies
        self._depth = 0
        self._turn = threading.RLock()

    @contextmanager
    def held(self, wait_s: float = 0.0) -> Iterator[None]:
        """Hold the lease; who holds it already, goes on.

        Args:
            wait_s: How long to wait for another program.

        Raises:
            StoreBusyError: If another program holds it for longer.
        """
        with self._turn:
            if self._depth == 0:
                self._take(wait_s)
            self._depth += 1
            ended = threading.Event()
            try:
                if self._depth == 1:
                    threading.Thread(target=self._renew, args=(ended,), name="lazyrag lease", daemon=True).start()
                yield
            finally:
                ended.set()
                self._depth -= 1
                if self._depth == 0:
                    with suppress(StoreError):  # who comes next sees that it has run out
                        self._give_back()

    def check(self, connection: sqlite3.Connection) -> None:
        """Make sure, inside of a writing transaction, that nobody has taken the lease over.

        Raises:
            StoreBusyError: If somebody has; or if a copy of other ledgers into this file has begun.
        """
        self._check_copies(connection)
        [holder, told] = connection.execute(
            "SELECT holder, holder_told FROM ledger WHERE id = ?", (self._ledger,)
        ).fetchone()
        if holder != self.program.id:
            who = f" by {Program.from_json(told, holder)}" if holder else ""
            msg = (
                f"The right to write {self._file.path} has run out and was taken over{who}: this program did not go on "
                "for too long. Nothing of what is finished is lost; do it again."
            )
            raise StoreBusyError(msg, store=str(self._file.path))

    def _take(self, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        while True:
            holder = self._try_to_take()
            if holder is None:
                return
            if time.monotonic() >= deadline:
                msg = (
                    f"{self._file.path} is being written by {holder}. Wait until it is done, or open it with "
                    "read_only=True to ask what is live."
                )
                raise StoreBusyError(msg, store=str(self._file.path))
            time.sleep(_POLL_S)

    def _try_to_take(self) -> Program | None:
        """Take it; or say who has it."""
        with self._file.writing() as connection:
            self._check_copies(connection)
            holder, told, expires = connection.execute(
                "SELECT holder, holder_told, expires_at FROM ledger WHERE id = ?", (self._ledger,)
            ).fetchone()
            if holder and holder != self.program.id and expires > time.time():
                program = Program.from_json(told, holder)
                if not program.has_ended():
                    return program
            connection.execute(
                "UPDATE ledger SET holder = ?, holder_told = ?, expires_at = ? WHERE id = ?",
                (self.program.id, self.program.to_json(), time.time() + LEASE_S, self._ledger),
            )
            return None

    def _check_copies(self, connection: sqlite3.Connection) -> None:
        """Rows of a copy keep their numbers, which nobody else may have taken meanwhile."""
        if self._copies:
            return
        found = connection.execute("SELECT name FROM ledger WHERE incoming <> ''").fetchone()
        if found:
            raise StoreBusyError(unfinished_copy(self._file, found[0]), store=str(self._file.path))

    def _renew(self, ended: threading.Event) -> None:
        while not ended.wait(LEASE_S / _RENEWED):
            with suppress(StoreError), self._file.writing() as connection:  # the next time may be soon enough
                connection.execute(
                    "UPDATE ledger SET expires_at = ? WHERE id = ? AND holder = ?",
                    (time.time() + LEASE_S, self._ledger, self.program.id),
                )

    def _give_back(self) -> None:
        with self._file.writing() as connection:
            connection.execute(
                "UPDATE ledger SET holder = '', holder_told = '', expires_at = 0 WHERE id = ? AND holder = ?",
                (self._ledger, self.program.id),
            )


def unfinished_copy(file: StoreFile, name: str) -> str:
    """What to tell who wants to use a file, or a Document in it, before its copy is complete."""
    return (
        f"Document {name!r} is being copied to {file.path} by migrate(), which has not come to its end. Wait for it; "
        "or call it again, if it was interrupted; or delete that file, to give the copy up."
    )


def check_definitions(
    connection: sqlite3.Connection, ledger: int, program: Program, definitions: Mapping[str, str]
) -> None:
    """Enter what a program defines, unless another one that runs defines one of its groups otherwise.

    Within one process the later definition holds: somebody runs a cell of a notebook again.

    Args:
        connection: In a writing transaction.
        ledger: Row of the ledger.
        program: Who asks.
        definitions: Group names to fingerprints.

    Raises:
        StoreBusyError: If another program has another definition; it is named.
    """
    for identity, told, seen_at, theirs in connection.execute(
        "SELECT id, told, seen_at, definitions FROM program WHERE ledger = ? AND id <> ?", (ledger, program.id)
    ).fetchall():
        other = Program.from_json(told, identity)
        silent = other.host != program.host and time.time() - seen_at > LEASE_S
        if silent or other.is_here or other.has_ended():
            if not other.is_here:
                connection.execute("DELETE FROM program WHERE id = ?", (identity,))
            continue
        theirs_by_name = json.loads(theirs)
        for name, fingerprint in definitions.items():
            if theirs_by_name.get(name, fingerprint) != fingerprint:
                msg = (
                    f"The node group {name!r} is in use under another definition, by {other}. End that program, or "
                    "give this one's group another name, or this Document another name."
                )
                raise StoreBusyError(msg)
    connection.execute(
        "INSERT INTO program VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
        "seen_at = excluded.seen_at, definitions = excluded.definitions",
        (program.id, ledger, program.to_json(), time.time(), json.dumps(definitions)),
    )


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
