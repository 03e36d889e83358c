"""Keeping a Document in step with its files while a program runs: `Watcher`."""

from __future__ import annotations

import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from lazyrag.document.changes import WatchedFiles, check_max_deleted, events_by_looking, events_of_system
from lazyrag.document.indexer import Builder
from lazyrag.document.report import IngestReport
from lazyrag.document.sync import MAX_DELETED, sync
from lazyrag.errors import ConfigError, IngestionWarning, sentence, warn_user
from lazyrag.validation import known_keywords

if TYPE_CHECKING:
    from typing import Self


OnReport: TypeAlias = Callable[[IngestReport], object]
OnError: TypeAlias = Callable[[Exception], object]
Events: TypeAlias = Callable[[threading.Event], Iterator[bool]]
"""Whether something has changed, again and again, from when watching began until an event is set."""

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_LOOK_S = 0.1  # within a pause, how often it is looked whether somebody waits
_KEPT_ERRORS = 100
_SHORTEST_TICK_S, _LONGEST_TICK_S = 0.05, 0.2
_LEASE_WAIT_S = 5.0  # for another program that writes; after it the sync is tried again, and close() waits no longer


@dataclass(frozen=True, slots=True)
class Patience:
    """How long changes are waited for before a sync.

    Args:
        debounce_s: Seconds without a change, at least 0.
        max_wait_s: Seconds from the first change until a sync comes however busy the folder is, at least as many.
    """

    debounce_s: float
    max_wait_s: float

    def __post_init__(self) -> None:
        seconds("debounce_s", self.debounce_s, 0.0)
        if seconds("max_wait_s", self.max_wait_s, 0.0) < self.debounce_s:
            msg = (
                f"max_wait_s is {self.max_wait_s!r} and debounce_s {self.debounce_s!r}: the first is the longest that "
                "a change waits for the second. Give max_wait_s at least as many seconds."
            )
            raise ConfigError(msg)


class Watcher:
    """Syncs a Document when its files change, in a thread of its own, until it is closed; `Document.watch` makes one.

    It is a context manager, and closes with its Document, too.

    Args:
        name: What is watched, for messages.
        sync: Brings in what changed.
        events: Tells when something has.
        patience: How long it waits for more.
        on_report: Called with the report of every sync, in the watcher's thread.
        on_error: Called with every error, in the same thread.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from lazyrag import Document
        >>> with tempfile.TemporaryDirectory() as folder, Document(folder) as docs, docs.watch() as watcher:
        ...     _ = Path(folder, "tea.txt").write_text("Green tea is not roasted.", encoding="utf-8")
        ...     report = watcher.wait_for_sync(timeout_s=60)
        >>> report.failed
        ()
    """

    def __init__(
        self,
        name: str,
        sync: Callable[[], IngestReport],
        events: Events,
        patience: Patience,
        on_report: OnReport | None = None,
        on_error: OnError | None = None,
    ) -> None:
        for what, function in (("on_report", on_report), ("on_error", on_error)):
            if function is not None and not callable(function):
                msg = f"{what} is {function!r}; give a function of one argument, or None."
                raise ConfigError(msg)
            if inspect.iscoroutinefunction(function):
                msg = f"{what} is {function!r}, which is asynchronous; nobody would await it. Give a plain function."
                raise ConfigError(msg)
        self._name = name
        self._sync = sync
        self._events = events
        self._patience = patience
        self._on_report, self._on_error = on_report, on_error
        self._stop = threading.Event()
        self._state = threading.Condition()
        self._begun = self._ended = self._asked_for = 0  # numbers of syncs
        self._outcome: IngestReport | Exception | None = None
        self._last_report: IngestReport | None = None
        self._errors: deque[Exception] = deque(maxlen=_KEPT_ERRORS)
        self._told = False  # by anyone but the files
        self._first_change: float | None = None
        self._last_change = 0.0
        self._failed_at = 0.0
        self._pause_s = 0.0  # 0 where the last sync succeeded
        self._is_watching = threading.Event()
        self._refused: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"lazyrag-watcher {name}", daemon=True)

    def start(self) -> Self:
        """Begin, and come back when no later change can be missed. What changed before is synced at once.

        Raises:
            MissingDependencyError: If a package is needed that is not installed.
            DatasetPathError: If the system refuses to watch.
        """
        self._thread.start()
        self._is_watching.wait()
        if self._refused is not None:
            self._thread.join()
            raise self._refused
        return self

    @property
    def is_running(self) -> bool:
        """Whether changes still lead to syncs."""
        return self._thread.is_alive() and not self._stop.is_set()

    @property
    def syncs(self) -> int:
        """How many syncs have ended, those that failed included."""
        return self._ended

    @property
    def last_report(self) -> IngestReport | None:
        """Of the last sync that succeeded; None before the first."""
        return self._last_report

    @property
    def errors(self) -> tuple[Exception, ...]:
        """What syncs and callbacks have raised, the newest last; at most the last 100."""
        with self._state:
            return tuple(self._errors)

    @property
    def last_error(self) -> Exception | None:
        """The newest error; None if there was none."""
        return next(reversed(self.errors), None)

    def notify(self) -> None:
        """Say that something has changed, as a file's own event would: for a program that learns of it by other ways.

        From any thread; a sync follows after the usual quiet.
        """
        self._told = True

    @known_keywords
    def wait_for_sync(self, timeout_s: float | None = None) -> IngestReport | None:
        """Come back when whatever was written before this call is live.

        A sync is asked for at once, without waiting for quiet; one that had begun before does not count.

        Args:
            timeout_s: How long to wait, in seconds; None for as long as it takes.

        Returns:
            The report of that sync; None if it did not end in time.

        Raises:
            ConfigError: If the watcher is closed, or the call comes from its own thread, which would wait for itself.
            Exception: What the sync raised, if it did.
        """
        if timeout_s is not None:
            seconds("timeout_s", timeout_s, 0.0)
        if threading.current_thread() is self._thread:
            msg = "wait_for_sync was called by on_report or on_error, in the thread that syncs. Call it in another one."
            raise ConfigError(msg)
        with self._state:
            wanted = self._begun + 1
            self._asked_for = max(self._asked_for, wanted)
            self._state.wait_for(lambda: self._ended >= wanted or not self.is_running, timeout_s)
            if self._ended < wanted:
                if not self.is_running:
                    msg = f"The watcher of {self._name} is closed. Call sync(), or watch() for a new one."
                    raise ConfigError(msg)
                return None
            if isinstance(self._outcome, Exception):
                raise self._outcome
            return self._outcome

    def close(self) -> None:
        """Stop watching, after the sync that may be running; twice does no harm.

        What changed and was not synced yet is found by the next sync, whoever asks for it.
        """
        self._stop.set()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Watcher of {self._name}, {'running' if self.is_running else 'closed'}, {self.syncs} syncs>"

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    for changed in self._events(self._stop):
                        if self._stop.is_set():
                            break
                        self._step(changed)
                except Exception as exc:  # noqa: BLE001  a thread has nobody to raise it to: see _watching_failed
                    if not self._watching_failed(exc):
                        return
        finally:
            self._stop.set()
            self._is_watching.set()
            with self._state:
                self._state.notify_all()

    def _watching_failed(self, error: Exception) -> bool:
        """Whether to go on: not if it never began, which `start` raises."""
        if not self._is_watching.is_set():
            self._refused = error
            return False
        self._note(error)
        self._told = True  # what changes meanwhile goes unseen
        until = time.monotonic() + _LONGEST_PAUSE_S
        while time.monotonic() < until and not self._stop.wait(_LOOK_S):
            if self._asked_for > self._begun:  # files can be read, even where they cannot be watched
                self._sync_now()
        return True

    def _step(self, changed: bool) -> None:
        """What to do after a look at the files: wait, or sync."""
        is_first = not self._is_watching.is_set()
        self._is_watching.set()
        now = time.monotonic()
        if self._told:
            self._told, changed = False, True
        if changed:
            self._last_change = now
            self._first_change = now if self._first_change is None else self._first_change
        if is_first or self._asked_for > self._begun or self._is_due(now):
            self._first_change = None
            self._sync_now()

    def _is_due(self, now: float) -> bool:
        if self._pause_s and now >= self._failed_at + self._pause_s:
            return True
        if self._first_change is None or (self._pause_s and now < self._failed_at + _FIRST_PAUSE_S):
            return False
        is_quiet = now >= self._last_change + self._patience.debounce_s
        return is_quiet or now >= self._first_change + self._patience.max_wait_s

    def _sync_now(self) -> None:
        with self._state:
            self._begun += 1
        outcome: IngestReport | Exception
        is_first = True
        try:
            outcome = self._sync()
        except Exception as exc:  # noqa: BLE001  kept, told, and tried again
            outcome = exc
            is_first = not self._pause_s
            self._failed_at = time.monotonic()
            self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        else:
            self._pause_s = 0.0
            self._last_report = outcome
        with self._state:
            self._outcome = outcome
            self._ended = self._begun
            self._state.notify_all()
        if isinstance(outcome, Exception):
            self._note(outcome, is_first=is_first)
        elif self._on_report is not None:
            self._call(self._on_report, outcome)

    def _note(self, error: Exception, *, is_first: bool = True) -> None:
        """Keep an error and tell it: the first of a row by a warning, where nobody asked to be told."""
        with self._state:
            self._errors.append(error)
        if self._on_error is not None:
            self._call(self._on_error, error)
        elif is_first:
            self._warn(f"The watcher of {self._name} goes on after an error. {type(error).__name__}: {error}")

    def _call(self, function: Callable[..., object], told: object) -> None:
        """Call a user's function; what it raises is kept, and warned of."""
        try:
            function(told)
        except Exception as exc:  # noqa: BLE001  kept and told; syncing goes on
            with self._state:
                self._errors.append(exc)
            name = getattr(function, "__name__", repr(function))
            self._warn(f"The function {name} that the watcher of {self._name} calls raised {type(exc).__name__}: {exc}")

    def _warn(self, message: str) -> None:
        try:
            warn_user(sentence(message), IngestionWarning)
        except IngestionWarning as warning:  # a program may make warnings errors; the thread goes on
            with self._state:
                self._errors.append(warning)


def open_watcher(
    builder: Builder,
    patience: Patience,
    *,
    poll_s: float | None = None,
    max_deleted: float = MAX_DELETED,
    on_report: OnReport | None = None,
    on_error: OnError | None = None,
) -> Watcher:
    """A watcher of a Document's files, started.

    Raises:
        ConfigError: If there are no files to watch, the Document may not write, or an argument is out of its range.
        DatasetPathError: If the system refuses to watch.
        MissingDependencyError: If it needs watchfiles, and that is not installed.
    """
    if not builder.dataset.is_given:
        msg = f"{builder.where} has no folder and no doc_files to watch. Pass dataset_path= or doc_files= to Document."
        raise ConfigError(msg)
    if builder.ledger.file.read_only:
        msg = f"{builder.where} is open with read_only=True and cannot sync. Watch in the program that writes."
        raise ConfigError(msg)
    if poll_s is not None and seconds("poll_s", poll_s, 0.0) == 0:
        msg = "poll_s is 0; give the seconds from one look at all files to the next, more than 0."
        raise ConfigError(msg)
    check_max_deleted(max_deleted)
    dataset, watched = builder.dataset, WatchedFiles.of(builder.dataset, builder.ledger.file.path)
    tick_s = min(max(patience.debounce_s / 2, _SHORTEST_TICK_S), _LONGEST_TICK_S)

    def events(stop: threading.Event) -> Iterator[bool]:
        if poll_s is None:
            return events_of_system(watched, stop, tick_s)
        return events_by_looking(dataset, watched, stop, tick_s, poll_s)

    def bring_in() -> IngestReport:
        return sync(builder, max_deleted=max_deleted, wait_s=_LEASE_WAIT_S)

    return Watcher(builder.where, bring_in, events, patience, on_report, on_error).start()


def seconds(what: str, value: float, least: float) -> float:
    """A number of seconds.

    Raises:
        ConfigError: If it is none, or below the least.

    Example:
        >>> seconds("debounce_s", 0.5, 0.0)
        0.5
    """
    most = threading.TIMEOUT_MAX  # what the system can wait for: centuries on most
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        msg = f"{what} is {value!r}; give a number of seconds, at least {least:g} and at most {most:g}."
        raise ConfigError(msg)
    return value
