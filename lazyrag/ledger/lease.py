"""The lease: the right to write a ledger, and transactions under it."""

from __future__ import annotations

import _thread
import functools
import json
import math
import os
import platform
import sqlite3
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from lazyrag.errors import StoreBusyError, StoreError
from lazyrag.progress.blocks import finishing
from lazyrag.progress.calls import raise_if_canceled
from lazyrag.storage.arrays import boot_id
from lazyrag.storage.database import InTransaction
from lazyrag.stores.sqlite import StoreFile

T = TypeVar("T")

LEASE_S = 60.0
"""A lease that is not renewed expires after so many seconds: its holder's machine may be gone."""

WAIT_S = 65.0
"""Default wait of a writer for another one: longer than a lease, so that one of a lost machine is
waited out."""

_RENEWED = 4  # times while a lease lasts
_POLL_S = 0.05
_LOOK_S = 0.002  # between two looks at whose turn it is
_UNKNOWN = uuid.uuid4().hex  # of this process alone
_holding: set[str] = set()  # ids of the programs in this process that hold a lease
HOLDER = (
    "SELECT holder, holder_told, expires_at,"
    " (SELECT name FROM ledger WHERE incoming <> '' LIMIT 1) FROM ledger WHERE id = ?"
)
"""Who holds the lease of a ledger, and the name of one that is being copied into the file."""


def _host() -> str:
    """The host name; on Linux with the boot and the PID namespace, since containers may share a
    host name.

    Earlier releases wrote the name alone. They take each other's leases, and ours, for those of
    another machine.
    """
    if not sys.platform.startswith("linux"):
        return platform.node()
    place = _UNKNOWN
    with suppress(OSError):
        place = f"{boot_id() or _UNKNOWN} {Path('/proc/self/ns/pid').readlink()}"
    return f"{platform.node()} {place}"


def _started(pid: int) -> int:
    """When a process began, as its system counts; 0 if unknown, -1 if it has ended."""
    with suppress(OSError, ValueError, IndexError):
        if Path("/proc/self").readlink() != Path(str(os.getpid())):
            return 0  # it is the /proc of another PID namespace
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        state, *rest = text.rpartition(")")[2].split()
        return -1 if state in "ZX" else int(rest[18])  # a zombie has ended
    return 0


@dataclass(frozen=True, slots=True)
class Program:
    """A running program, described so that another one can see whether it still runs.

    Args:
        id: Unique id of one opened ledger in it.
        name: Name of its script.
        host: Where its process id is valid, see `_host`.
        pid: Its process id.
        started: When that process began, as its system counts; 0 if unknown. Process ids are
            reused.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    name: str = field(
        default_factory=lambda: Path(sys.argv[0] if sys.argv else "").name or "python"
    )
    host: str = field(default_factory=_host)
    pid: int = field(default_factory=os.getpid)
    started: int = field(default_factory=lambda: _started(os.getpid()))

    def to_json(self) -> str:
        """JSON for `from_json`."""
        return json.dumps(
            {"name": self.name, "host": self.host, "pid": self.pid, "started": self.started}
        )

    @classmethod
    def from_json(cls, text: str, identity: str) -> Program:
        """The program that `to_json` described."""
        return cls(identity, **json.loads(text))

    def __str__(self) -> str:
        here = " (this process)" if self.is_here else ""
        return f"{self.name!r}, process {self.pid} on {self.host.partition(' ')[0]}{here}"

    @property
    def is_here(self) -> bool:
        """Whether it is this process."""
        return (self.host, self.pid, self.started) == (_host(), os.getpid(), _started(os.getpid()))

    def has_ended(self) -> bool:
        """Whether it is certain that it has ended; False for programs on other machines and in
        other containers.
        """
        if self.host != _host() or sys.platform == "win32":  # a signal 0 would end a process there
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False  # another user's
        return bool(self.started) and _started(self.pid) not in {0, self.started}


class _Wait(NamedTuple):
    """A thread's wait for its turn.

    Args:
        is_due: Whether it may have the turn.
        begun: How many operations had begun before, if it waits for others to end.
    """

    is_due: Callable[[], bool]
    begun: float = math.inf


class Turns:
    """Whose turn it is to write a Document, among the threads of this program.

    An operation has the turn while it reads and changes what is live, and steps aside while it
    loads, transforms, embeds and analyses. Meanwhile others that run beside it, such as deletions,
    have theirs: they need not wait until a large document is done. Waiting threads look again and
    again: a `threading.Condition` that is interrupted may stay locked.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder = 0  # the thread
        self._queue: dict[int, _Wait] = {}  # by thread
        # of operations by thread, in the order in which they began
        self._numbers: dict[int, int] = {}
        self._settling: set[int] = set()  # threads that wait for others to end
        self.begun = 0
        """How many operations have begun."""

    @property
    def is_sole(self) -> bool:
        """Whether at most one operation is under way."""
        return len(self._numbers) < 2

    def taken(
        self, timeout_s: float | None = None, *, beside: bool = False
    ) -> AbstractContextManager[bool]:
        """Have the turn, by an operation or a part of one; yields False after a timeout.

        Args:
            timeout_s: How long to wait for it; None for as long as it takes.
            beside: Whether it may begin while others have stepped aside; else it waits until they
                have ended.
        """
        thread = threading.get_ident()
        if self._holder == thread:
            return nullcontext(enter_result=True)
        if thread in self._numbers:
            take = functools.partial(self._await, thread, _always, timeout_s)
            return finishing(functools.partial(self._leave, thread), take)
        is_due = self._may_begin_beside if beside else self._is_idle
        begin = functools.partial(self._begin, thread, is_due, timeout_s)
        return finishing(functools.partial(self._end, thread), begin)

    def aside(self) -> AbstractContextManager[None]:
        """Let others have the turn in the block."""
        thread = threading.get_ident()
        if self._holder != thread:
            return nullcontext()
        return finishing(functools.partial(self._return, thread), self._step_aside)

    def settle(self) -> None:
        """Let others have the turn until they have ended."""
        thread = threading.get_ident()
        if self._holder == thread:
            with self.aside():
                self._settling.add(thread)
                self._await(thread, self._are_others_settling)

    def _begin(self, thread: int, is_due: Callable[[], bool], timeout_s: float | None) -> bool:
        """Begin an operation with the turn; False after a timeout."""
        has_turn = self._await(thread, is_due, timeout_s, is_first=True)
        if has_turn:
            self.begun += 1
            self._numbers[thread] = self.begun
        return has_turn

    def _step_aside(self) -> None:
        self._holder = 0

    def _return(self, thread: int) -> None:
        self._settling.discard(thread)
        if self._holder != thread:
            self._await(thread, _always)

    def _is_idle(self) -> bool:
        return not self._numbers

    def _are_others_settling(self) -> bool:
        return self._numbers.keys() <= self._settling

    def _may_begin_beside(self) -> bool:
        """Whether nobody waits for others to end, or has to wait for operations in any case that
        began before.
        """
        busy = [
            number for thread, number in list(self._numbers.items()) if thread not in self._settling
        ]
        return min(busy, default=0) <= min(wait.begun for wait in self._queue.values())

    def _await(
        self,
        thread: int,
        is_due: Callable[[], bool],
        timeout_s: float | None = None,
        *,
        is_first: bool = False,
    ) -> bool:
        """Wait until this thread is the first that may have the turn, and take it; False after a
        timeout.

        The wait for the first turn of an operation ends when its call is cancelled.
        """
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        wait = _Wait(is_due)
        if is_due in (self._is_idle, self._are_others_settling):
            wait = _Wait(is_due, self.begun)
        with self._lock:
            self._queue[thread] = wait
        while not self._take(thread):
            if time.monotonic() >= deadline:
                self._unqueue(thread)
                return False
            if is_first:
                raise_if_canceled()
            time.sleep(_LOOK_S)
        return True

    def _take(self, thread: int) -> bool:
        with self._lock:
            due = (waiter for waiter, wait in self._queue.items() if wait.is_due())
            if self._holder or thread != next(due, None):
                return False
            self._holder = thread
            del self._queue[thread]
            return True

    def _unqueue(self, thread: int) -> None:
        with self._lock:
            self._queue.pop(thread, None)

    def _end(self, thread: int) -> None:
        self._numbers.pop(thread, None)
        self._leave(thread)

    def _leave(self, thread: int) -> None:
        self._unqueue(thread)  # its wait may have been interrupted
        if self._holder == thread:
            self._holder = 0


def _always() -> bool:
    return True


class Lease:
    """The right to write a ledger: acquired for one operation, renewed while it runs, released at
    its end.

    Args:
        file: The store file.
        ledger: Row of the ledger.
        program: The holder.
        copies: Whether it is for a copy of other ledgers into this file; nobody else writes the
            file meanwhile.
    """

    def __init__(
        self, file: StoreFile, ledger: int, program: Program, *, copies: bool = False
    ) -> None:
        self._file = file
        self._ledger = ledger
        self.program = program
        self._copies = copies
        self.is_held = False  # perhaps not yet, or not any more
        self._holders: set[object] = set()
        self._turn = threading.RLock()
        self._ended = threading.Lock()
        # another's lease that was last seen, and since when
        self._seen: tuple[Any, float] = None, 0.0

    def held(
        self, wait_s: float = 0.0, then: InTransaction = lambda _: None
    ) -> AbstractContextManager[None]:
        """Hold the lease; reentrant, and for several threads at a time, see `Turns`.

        Args:
            wait_s: How long to wait for another program.
            then: Called in the transaction that acquires it; if it raises, the lease is not
                acquired.

        Raises:
            StoreBusyError: If another program holds it for longer.
        """
        holder = object()
        enter = functools.partial(self._enter, holder, wait_s, then)
        return finishing(functools.partial(self._leave, holder), enter)

    def _enter(self, holder: object, wait_s: float, then: InTransaction) -> None:
        with self._turn:
            if self._holders:
                with self._file.writing() as connection:
                    then(connection)
                self._holders.add(holder)
                return
            self._holders.add(holder)
            _holding.add(self.program.id)  # before others see it in the file
            self._ended = threading.Lock()  # an Event may hang after an interrupt
            self._ended.acquire()
            self._acquire(wait_s, then)
            # Thread.start() waits for an Event
            _thread.start_new_thread(self._renew, (self._ended,))

    def _leave(self, holder: object) -> None:
        with self._turn:
            self._holders.discard(holder)
            if not self._holders:
                self._end(self._ended)

    def ensure_held(self, connection: sqlite3.Connection) -> None:
        """Raise, in a writing transaction, unless the lease is still held.

        Raises:
            StoreBusyError: If another program took it over, or a copy of other ledgers into this
                file has begun.
        """
        holder, description, _, copied = connection.execute(HOLDER, (self._ledger,)).fetchone()
        if copied:
            self._refuse_during_copy(copied)
        if holder != self.program.id:
            who = f" by {Program.from_json(description, holder)}" if holder else ""
            raise StoreBusyError(
                f"The right to write {self._file.address} has run out and was taken over{who}: this"
                " program did not go on for too long. Nothing of what is finished is lost; do it"
                " again.",
                store=self._file.address,
            )

    def _acquire(self, wait_s: float, then: InTransaction) -> None:
        deadline = time.monotonic() + wait_s
        while True:
            holder = self._try_to_acquire(then)
            if holder is None:
                return
            if time.monotonic() >= deadline:
                raise StoreBusyError(
                    f"{self._file.address} is being written by {holder}. Wait until it is done, or"
                    " open it with read_only=True to ask what is live.",
                    store=self._file.address,
                )
            raise_if_canceled()
            time.sleep(_POLL_S)

    def _try_to_acquire(self, then: InTransaction) -> Program | None:
        """Acquire it; else return its holder."""
        with self._file.writing() as connection:
            holder, description, expires, copied = connection.execute(
                HOLDER, (self._ledger,)
            ).fetchone()
            if copied:
                self._refuse_during_copy(copied)
            if (
                holder
                and holder != self.program.id
                and not self._has_expired(holder, expires, self._file.now(connection))
            ):
                program = Program.from_json(description, holder)
                is_held = holder in _holding if program.is_here else not program.has_ended()
                if is_held:
                    return program
            self.is_held = True  # perhaps: an interrupt may come as soon as it is committed
            connection.execute(
                "UPDATE ledger SET holder = ?, holder_told = ?, expires_at = ? WHERE id = ?",
                (
                    self.program.id,
                    self.program.to_json(),
                    self._file.now(connection) + LEASE_S,
                    self._ledger,
                ),
            )
            then(connection)
            return None

    def _has_expired(self, holder: str, expires: float, present: float) -> bool:
        """Whether another's lease has run out: by the clock, or since nobody renewed it while this
        program watched.

        A clock that was set back puts the end of a lease far into the future.
        """
        now = time.monotonic()
        if self._seen[0] != (holder, expires):
            self._seen = (holder, expires), now
        return expires <= present or now - self._seen[1] > LEASE_S

    def _refuse_during_copy(self, copied: str) -> None:
        """Refuse to write during a copy: its rows keep their numbers, so nobody else may take
        numbers.
        """
        if not self._copies:
            raise StoreBusyError(unfinished_copy(self._file, copied), store=self._file.address)

    def _renew(self, ended: threading.Lock) -> None:
        while not ended.acquire(timeout=LEASE_S / _RENEWED):
            # the next time may be soon enough
            with suppress(StoreError), self._file.writing() as connection:
                connection.execute(
                    "UPDATE ledger SET expires_at = ? WHERE id = ? AND holder = ?",
                    (self._file.now(connection) + LEASE_S, self._ledger, self.program.id),
                )

    def _end(self, ended: threading.Lock) -> None:
        """End the renewal, and release what was acquired."""
        _holding.discard(self.program.id)
        if ended.locked():
            ended.release()
        if self.is_held:
            # on a full disk: this process knows that
            with suppress(StoreError), self._file.writing() as connection:
                connection.execute(  # it has ended, others wait
                    "UPDATE ledger SET holder = '', holder_told = '', expires_at = 0 WHERE id = ?"
                    " AND holder = ?",
                    (self._ledger, self.program.id),
                )
        self.is_held = False


def unfinished_copy(file: StoreFile, name: str) -> str:
    """Error message for a file, or a Document in it, whose copy is not complete."""
    return (
        f"Document {name!r} is being copied to {file.address} by migrate(), which has not come to"
        " its end. Wait for it; or call it again, if it was interrupted; or delete that file, to"
        " give the copy up."
    )


class LedgerConnection:
    """Connection to one Document's ledger in a store file.

    Args:
        file: The open store file.
        name: Name of the Document.
        copies: Whether it is opened to copy another ledger into it.

    Raises:
        StoreBusyError: If another ledger is being copied into it, and it is opened to be used.
    """

    def __init__(self, file: StoreFile, name: str, *, copies: bool = False) -> None:
        self.file = file
        self.reading = file.reading
        self.name = name
        self.program = Program()
        self._copies = copies
        if not file.read_only:
            with file.writing() as connection:
                connection.execute(
                    "INSERT INTO ledger (name) VALUES (?) ON CONFLICT (name) DO NOTHING", (name,)
                )
        self.id = self.find_row()
        self.lease = Lease(file, self.id, self.program, copies=copies)

    @property
    def token(self) -> str:
        """Unique token, so that two ledgers of one name do not write to the same collections of a
        server.
        """
        [(token,)] = self.select("SELECT token FROM ledger WHERE id = ?", (self.id,))
        return str(token)

    def find_row(self) -> int:
        """The ledger's row; 0 if there is none yet.

        Raises:
            StoreBusyError: If it is the copy of another one that is not complete.
        """
        rows = self.select("SELECT id, incoming FROM ledger WHERE name = ?", (self.name,))
        if not rows:
            return 0
        [(number, incoming)] = rows
        if incoming and not self._copies:
            raise StoreBusyError(unfinished_copy(self.file, self.name), store=self.file.address)
        return int(number)

    def select(self, query: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """The rows of a query."""
        with self.reading() as connection:
            return connection.execute(query, parameters).fetchall()

    def select_in(self, query: str, numbers: Collection[Any], *first: Any) -> list[Any]:
        """See the function `select_in`; within a transaction that this thread writes, a part of
        it.
        """
        if not numbers:
            return []
        with self.file.reading_own() as connection:
            return select_in(connection, query, numbers, *first)

    def writing(self, *, durable: bool = False) -> AbstractContextManager[sqlite3.Connection]:
        """A transaction that writes, under the lease.

        Raises:
            StoreBusyError: If another program has taken the lease over.
        """
        return self.file.writing(durable=durable, first=self.lease.ensure_held)

    def claim(self, connection: sqlite3.Connection, definitions: Mapping[str, str]) -> None:
        """Register the definitions of this program, unless another running one defines one of its
        groups differently.

        Within one process the later definition wins: a notebook cell is run again.

        Args:
            connection: In a writing transaction.
            definitions: Group names to fingerprints.

        Raises:
            StoreBusyError: If another program has another definition; it is named.
        """
        program = self.program
        now = self.file.now(connection)
        for identity, description, seen_at, theirs in connection.execute(
            "SELECT id, told, seen_at, definitions FROM program WHERE ledger = ? AND id <> ?",
            (self.id, program.id),
        ).fetchall():
            other = Program.from_json(description, identity)
            if other.is_here:
                continue
            is_silent = other.host != program.host and abs(now - seen_at) > LEASE_S
            if is_silent or other.has_ended():
                connection.execute("DELETE FROM program WHERE id = ?", (identity,))
                continue
            theirs_by_name = json.loads(theirs)
            for name, fingerprint in definitions.items():
                if theirs_by_name.get(name, fingerprint) != fingerprint:
                    raise StoreBusyError(
                        f"The node group {name!r} is in use under another definition, by {other}."
                        " End that program, or give this one's group another name, or this"
                        " Document another name."
                    )
        connection.execute(
            "INSERT INTO program VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "seen_at = excluded.seen_at, definitions = excluded.definitions",
            (program.id, self.id, program.to_json(), now, json.dumps(definitions)),
        )

    def unclaim(self) -> None:
        """Unregister the definitions of this program."""
        with self.file.writing() as connection:
            connection.execute("DELETE FROM program WHERE id = ?", (self.program.id,))

    def next_change(self, connection: sqlite3.Connection) -> int:
        """Increment and return the counter of changes of the live state."""
        connection.execute("UPDATE ledger SET changes = changes + 1 WHERE id = ?", (self.id,))
        return int(
            connection.execute("SELECT changes FROM ledger WHERE id = ?", (self.id,)).fetchone()[0]
        )


def select_in(
    connection: sqlite3.Connection, query: str, numbers: Collection[Any], *first: Any
) -> list[Any]:
    """The rows of a query with ``IN (?*)``, for any number of values.

    Args:
        connection: In a transaction.
        query: The query; ``?*`` is the place of the values.
        numbers: The values.
        first: Parameters before them.
    """
    rows: list[Any] = []
    for some in chunks(sorted(numbers)):
        rows += connection.execute(query.replace("?*", ", ".join("?" * len(some))), (*first, *some))
    return rows


def chunks(numbers: Sequence[T]) -> list[Sequence[T]]:
    """Numbers in portions that a statement can take as variables."""
    size = 500  # SQLite before 3.32 takes at most 999 variables
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]
