"""A switch that ends a process where its code touches the world outside: a statement, a file, a
call.

The product has no hooks for it. What its code calls is wrapped, so that the points at which it can
be ended are those of what it really does, and change with it. A point is named by who does what for
which time: ``ledger.flip: after COMMIT #2``.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import stat
import sys
import threading
from collections import Counter
from collections.abc import Callable
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType
from typing import Any

# of a connection, not of the file
_SETTINGS = ("PRAGMA trusted_schema", "PRAGMA foreign_keys", "PRAGMA synchronous")
_UNSECURED = "PRAGMA synchronous = OFF"
_TORN = (("its first byte", 0.0), ("half of it", 0.5), ("all but its last byte", 1.0))


class Switch:
    """Counts the points that a process reaches, and ends it at one of them.

    Args:
        folder: Files outside of it do not count.
        end_at: Name of a point; "" only counts.
        interrupt: Send Ctrl-C there, instead of SIGKILL.
    """

    def __init__(self, folder: Path, end_at: str = "", *, interrupt: bool = False) -> None:
        self.folder = os.fspath(folder)
        self.points: list[str] = []
        self._end_at = end_at
        self._interrupt = interrupt
        self._counts: Counter[str] = Counter()
        self._commits = 0
        self._lock = threading.Lock()

    def reach(
        self, what: str, who: str = "", meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        """Pass a point, or end there.

        Args:
            what: What is about to be done.
            who: Who does it; otherwise the function that is nearest above.
            meanwhile: What else has happened of it at the moment when the process ends.
        """
        kind = f"{who or _function()}: {what}"
        with self._lock:
            self._counts[kind] += 1
            point = f"{kind} #{self._counts[kind]}"
            self.points.append(point)
        if point == self._end_at:
            meanwhile()
            os.kill(os.getpid(), signal.SIGINT if self._interrupt else signal.SIGKILL)

    def limit(self, time_s: float) -> None:
        """End the process when it has used up so much of a processor's time, wherever it is then,
        by SIGPROF.
        """
        signal.setitimer(signal.ITIMER_PROF, time_s)

    def around(
        self, who: str, function: Callable[..., Any], note: Callable[..., object]
    ) -> Callable[..., Any]:
        """A function with a point before and after each call, and every call noted."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.reach("before the call", who)
            note(*args)
            result = function(*args, **kwargs)
            self.reach("after the call", who)
            return result

        return call

    def install(self, *, checkpoint_pages: int) -> None:
        """Watch this process's databases and files from now on.

        Nothing waits for the disk any more, which would take half of the time: what a process has
        written is there when it is ended. (What a power cut takes cannot be tried like this.)

        Args:
            checkpoint_pages: After so many pages SQLite moves what was committed from its log to
                its file.
        """
        self._watch_databases(checkpoint_pages)
        self._watch_files()

    def _watch_databases(self, checkpoint_pages: int) -> None:
        switch, connect = self, sqlite3.connect

        class Connection(sqlite3.Connection):
            """One whose statements are points, as far as they write."""

            writing = False

            def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
                """Count it, and do it."""
                if sql == "COMMIT" and self.writing:
                    return self._commit()
                told = _told(sql)
                if told:
                    switch.reach(f"before {told}")
                self.writing = (self.writing or sql == "BEGIN IMMEDIATE") and sql != "ROLLBACK"
                return super().execute(
                    _UNSECURED if sql.startswith("PRAGMA synchronous") else sql, *parameters
                )

            def executemany(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
                """Count it once, and do it."""
                switch.reach(f"before {_told(sql)}")
                return super().executemany(sql, *parameters)

            def _commit(self) -> sqlite3.Cursor:
                told, share = _TORN[switch._commits % len(_TORN)]
                switch._commits += 1
                switch.reach(f"in COMMIT, {told} written", meanwhile=lambda: self._tear(share))
                done = super().execute("COMMIT")
                self.writing = False
                switch.reach("after COMMIT")
                return done

            def _tear(self, share: float) -> None:
                """Leave the log as it is when a process ends while SQLite writes the transaction
                into it.
                """
                [path] = [
                    file
                    for _, name, file in super().execute("PRAGMA database_list")
                    if name == "main"
                ]
                log = Path(f"{path}-wal")
                # it would come after all of that was written
                super().execute("PRAGMA wal_autocheckpoint = 0")
                before = log.read_bytes()
                super().execute("COMMIT")
                after = log.read_bytes()
                changed = [
                    at for at in range(len(after)) if at >= len(before) or after[at] != before[at]
                ]
                if changed:
                    end = max(
                        changed[0] + 1,
                        min(int(changed[0] + share * (changed[-1] - changed[0])), changed[-1]),
                    )
                    log.write_bytes(after[:end] + before[end:])

            def close(self) -> None:
                """Count it, and do it."""
                switch.reach("before close")
                super().close()

        def watched(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            switch.reach("before connect")
            connection = connect(*args, factory=Connection, **kwargs)
            sqlite3.Connection.execute(
                connection, f"PRAGMA wal_autocheckpoint = {checkpoint_pages:d}"
            )
            return connection

        sqlite3.connect = watched

    def _watch_files(self) -> None:
        """What Python says of its work on files to whoever audits it, and what is made durable."""

        def fsync(descriptor: int) -> None:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                half = os.fstat(descriptor).st_size // 2
                self.reach(
                    "half of a file written", meanwhile=lambda: os.ftruncate(descriptor, half)
                )
                self.reach("before fsync of a file")
            else:
                self.reach("before fsync of a folder")

        os.fsync = fsync
        sys.addaudithook(self._audit)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event in {"os.mkdir", "os.remove", "os.rename", "os.utime"}:
            told = f"before {event.removeprefix('os.')}"
        elif event == "open" and isinstance(args[2], int) and args[2] & os.O_CREAT:
            told = "before making a file"
        else:
            return
        path = (
            args[0]
            if isinstance(args[0], str)
            else os.fspath(args[0])
            if isinstance(args[0], os.PathLike)
            else ""
        )
        if path.startswith(self.folder):
            self.reach(told)


def kind_of(point: str) -> str:
    """What a point has in common with others: who does what. Within a transaction it is all one
    what is to come.
    """
    who, _, what = point.rpartition(" #")[0].partition(": ")
    what = re.sub(r"^before ([A-Z]+|PRAGMA .*)$", "before a statement", what)
    return f"{who}: {what.partition(', ')[0]}"


def _told(sql: str) -> str:
    """What a statement does to a file, in a word or two; "" for nothing."""
    first = next(
        (
            line.strip()
            for line in sql.splitlines()
            if line.strip() and not line.strip().startswith("--")
        ),
        "",
    )
    word = first.partition(" ")[0]
    if word in {"SELECT", "COMMIT"} or first == "BEGIN" or first.startswith(_SETTINGS):
        return ""
    if word == "PRAGMA":
        return first if "=" in first else ""
    return first if word == "BEGIN" else word


def _function() -> str:
    """The function of the product that is at work; what is below, in the storage room, serves all
    of them.
    """
    frame: FrameType | None = sys._getframe(2)
    found = ""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("lazyrag.") and not frame.f_code.co_flags & CO_GENERATOR:
            found = f"{module.rpartition('.')[2]}.{frame.f_code.co_name}"
            if not module.startswith("lazyrag.storage."):
                break
        frame = frame.f_back
    return found
