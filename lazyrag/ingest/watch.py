"""`Watcher`: keeps a Document in sync with its files while a program runs."""

from __future__ import annotations

import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeAlias

from lazyrag.errors import ConfigError, IngestionWarning, sentence, warn_user
from lazyrag.ingest.dataset import WatchedFiles, file_events, poll_files, validate_max_deleted
from lazyrag.ingest.indexer import Indexer
from lazyrag.ingest.report import IngestReport
from lazyrag.types import Closable
from lazyrag.validation import known_keywords, require, validate_range, validate_seconds

OnReport: TypeAlias = Callable[[IngestReport], object]
OnError: TypeAlias = Callable[[Exception], object]
Events: TypeAlias = Callable[[threading.Event], Iterator[bool]]
"""Yields repeatedly whether something has changed, from the beginning of watching until an event is
set."""

_FIRST_PAUSE_S = 1.0
_MAX_PAUSE_S = 60.0
_CHECK_S = 0.1  # time between checks for waiting callers within a pause
_MAX_ERRORS = 100
_TICK_S = 0.05
# without a further change, after a lone one: a busy machine pauses between creating and writing it
_SETTLE_S = 0.15
# for another writing program; then the sync is retried, and close() waits no longer than this
_LEASE_WAIT_S = 5.0


def make_watcher(
    indexer: Indexer,
    sync: Callable[..., IngestReport],
    debounce_s: float,
    max_wait_s: float,
    poll_s: float | None,
    max_deleted: float,
    on_report: OnReport | None,
    on_error: OnError | None,
) -> Watcher:
    """Return a watcher of a Document's files that is not started; see `Document.watch`."""
    if not indexer.dataset.is_given:
        raise ConfigError(
            f"{indexer.where} has no folder and no doc_files to watch. Pass dataset_path= or"
            " doc_files= to Document."
        )
    if indexer.ledger.file.read_only:
        raise ConfigError(
            f"{indexer.where} is open with read_only=True and cannot sync. Watch in the program"
            " that writes."
        )
    _validate_wait("debounce_s", debounce_s)
    _validate_wait("max_wait_s", max_wait_s)
    require(
        max_wait_s >= debounce_s,
        "max_wait_s",
        max_wait_s,
        f"at least debounce_s, which is {debounce_s!r}",
    )
    if poll_s is not None:
        validate_seconds("poll_s", poll_s)
    validate_max_deleted(max_deleted)
    for name, function in (("on_report", on_report), ("on_error", on_error)):
        is_plain = callable(function) and not inspect.iscoroutinefunction(function)
        require(
            function is None or is_plain,
            name,
            function,
            "a function of one argument that is not asynchronous",
        )
    dataset = indexer.dataset
    watched = WatchedFiles.of(indexer.dataset, indexer.ledger.file.path)

    def events(stop: threading.Event) -> Iterator[bool]:
        if poll_s is None:
            return file_events(watched, stop, _TICK_S)
        return poll_files(dataset, watched, stop, _TICK_S, poll_s)

    def sync_now() -> IngestReport:
        return sync(max_deleted=max_deleted, wait_s=_LEASE_WAIT_S)

    return Watcher(indexer.where, sync_now, events, debounce_s, max_wait_s, on_report, on_error)


def _validate_wait(name: str, value: float) -> None:
    most = threading.TIMEOUT_MAX  # the longest wait that the system supports: centuries on most
    validate_range(name, value, 0, most, f"a number of seconds from 0 to {most:g}")


class Watcher(Closable):
    """Syncs a Document in a background thread when its files change, until it is closed; see
    `Document.watch`.

    It is a context manager, and closes with its Document, too.

    Args:
        name: Name of the Document, for messages.
        sync: Ingests what changed.
        events: Reports changes.
        debounce_s: Seconds without a change before a sync, at least 0. A lone change, after as many
            seconds without any, is synced as soon as it has settled.
        max_wait_s: Longest time from a change to its sync in a busy folder, in seconds.
        on_report: Called with the report of every sync, in the watcher's thread.
        on_error: Called with every error, in the same thread.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from lazyrag import Document
        >>> with tempfile.TemporaryDirectory() as folder, Document(folder) as docs:
        ...     with docs.watch() as watcher:
        ...         _ = Path(folder, "tea.txt").write_text("Green tea", encoding="utf-8")
        ...         report = watcher.wait_for_sync(timeout_s=60)
        >>> report.failed
        ()
    """

    def __init__(
        self,
        name: str,
        sync: Callable[[], IngestReport],
        events: Events,
        debounce_s: float,
        max_wait_s: float,
        on_report: OnReport | None = None,
        on_error: OnError | None = None,
    ) -> None:
        self._name = name
        self._sync = sync
        self._events = events
        self._debounce_s = debounce_s
        self._max_wait_s = max_wait_s
        self._on_report = on_report
        self._on_error = on_error
        self._stop = threading.Event()
        self._state = threading.Condition()
        self._begun = self._ended = self._requested = 0  # numbers of syncs
        self._outcome: IngestReport | Exception | None = None
        self._last_report: IngestReport | None = None
        self._errors: deque[Exception] = deque(maxlen=_MAX_ERRORS)
        self._notified = False
        self._first_change: float | None = None
        self._last_change = 0.0
        self._wait_s = debounce_s  # from the last change to its sync
        self._quiet_since = time.monotonic()  # no change, and no sync that may have hidden some
        self._failed_at = 0.0
        self._pause_s = 0.0  # 0 if the last sync succeeded
        self._is_watching = threading.Event()
        self._start_error: Exception | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"lazyrag-watcher {name}", daemon=True
        )

    def start(self) -> Self:
        """Start watching. Returns when no later change can be missed; earlier changes are synced at
        once.

        Raises:
            MissingDependencyError: If a required package is not installed.
            DatasetPathError: If the operating system refuses to watch.
        """
        self._thread.start()
        self._is_watching.wait()
        if self._start_error is not None:
            self._thread.join()
            raise self._start_error
        return self

    @property
    def is_running(self) -> bool:
        """Whether changes still lead to syncs."""
        return self._thread.is_alive() and not self._stop.is_set()

    @property
    def syncs(self) -> int:
        """Number of finished syncs, failed ones included."""
        return self._ended

    @property
    def last_report(self) -> IngestReport | Any:  # None is the exception, see `DocNode.score`
        """Report of the last successful sync; None before the first."""
        return self._last_report

    @property
    def errors(self) -> tuple[Exception, ...]:
        """The last 100 errors of syncs and callbacks, the newest last."""
        with self._state:
            return tuple(self._errors)

    @property
    def last_error(self) -> Exception | None:
        """The newest error; None without any."""
        return next(reversed(self.errors), None)

    def notify(self) -> None:
        """Report a change, like a file event: for programs that learn of changes in other ways.

        Thread-safe; a sync follows after the usual quiet period.
        """
        self._notified = True

    @known_keywords
    def wait_for_sync(self, timeout_s: float | None = None) -> IngestReport | None:
        """Wait until everything written before this call is live.

        Requests a sync at once, without a quiet period; a sync that had begun before does not
        count.

        Args:
            timeout_s: How long to wait, in seconds; None for no limit.

        Returns:
            The report of that sync; None if it did not end in time.

        Raises:
            ConfigError: If the watcher is closed, or the call comes from its own thread, which
                would deadlock.
            Exception: The error of the sync, if it failed.
        """
        if timeout_s is not None:
            _validate_wait("timeout_s", timeout_s)
        if threading.current_thread() is self._thread:
            msg = (
                "wait_for_sync cannot be called by on_report or on_error, in the thread that syncs."
            )
            raise ConfigError(f"{msg} Call it in another thread.")
        with self._state:
            number = self._begun + 1
            self._requested = max(self._requested, number)
            self._state.wait_for(lambda: self._ended >= number or not self.is_running, timeout_s)
            if self._ended < number:
                if not self.is_running:
                    raise ConfigError(
                        f"The watcher of {self._name} is closed. Call sync(), or watch() for a new"
                        " one."
                    )
                return None
            if isinstance(self._outcome, Exception):
                raise self._outcome
            return self._outcome

    def close(self) -> None:
        """Stop watching. Waits for a running sync. Idempotent.

        The next sync of the Document finds the changes that were not synced yet.
        """
        self._stop.set()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def __repr__(self) -> str:
        return (
            f"<Watcher of {self._name}, {'running' if self.is_running else 'closed'}, {self.syncs}"
            " syncs>"
        )

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    for changed in self._events(self._stop):
                        if self._stop.is_set():
                            break
                        self._step(changed)
                except Exception as exc:  # noqa: BLE001  nothing catches what a thread raises
                    if not self._is_watching.is_set():
                        self._start_error = exc
                        return
                    self._recover(exc)
        finally:
            self._stop.set()
            self._is_watching.set()
            with self._state:
                self._state.notify_all()

    def _recover(self, error: Exception) -> None:
        """Record that watching failed, and pause before it starts again."""
        self._record(error)
        self._notified = True  # changes go unseen meanwhile
        until = time.monotonic() + _MAX_PAUSE_S
        while time.monotonic() < until and not self._stop.wait(_CHECK_S):
            if self._requested > self._begun:  # files can be read even if they cannot be watched
                self._sync_now()

    def _step(self, changed: bool) -> None:
        """Sync if it is time to."""
        is_first = not self._is_watching.is_set()
        self._is_watching.set()
        now = time.monotonic()
        if self._notified:
            self._notified = False
            changed = True
        if changed:
            is_lone = self._first_change is None and now >= self._quiet_since + self._debounce_s
            self._wait_s = min(_SETTLE_S, self._debounce_s) if is_lone else self._debounce_s
            self._first_change = now if self._first_change is None else self._first_change
            self._last_change = self._quiet_since = now
        if is_first or self._requested > self._begun or self._is_due(now):
            self._first_change = None
            self._sync_now()

    def _is_due(self, now: float) -> bool:
        if self._pause_s and now >= self._failed_at + self._pause_s:
            return True
        if self._first_change is None or (self._pause_s and now < self._failed_at + _FIRST_PAUSE_S):
            return False
        return (
            now >= self._last_change + self._wait_s or now >= self._first_change + self._max_wait_s
        )

    def _sync_now(self) -> None:
        with self._state:
            self._begun += 1
        outcome: IngestReport | Exception
        is_first = True
        try:
            outcome = self._sync()
        except Exception as exc:  # noqa: BLE001  recorded and retried
            outcome = exc
            is_first = not self._pause_s
            self._failed_at = time.monotonic()
            self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _MAX_PAUSE_S)
        else:
            self._pause_s = 0.0
            self._last_report = outcome
        self._quiet_since = time.monotonic()
        with self._state:
            self._outcome = outcome
            self._ended = self._begun
            self._state.notify_all()
        if isinstance(outcome, Exception):
            self._record(outcome, is_first=is_first)
        elif self._on_report is not None:
            self._call(self._on_report, outcome)

    def _record(self, error: Exception, *, is_first: bool = True) -> None:
        """Record an error and pass it to on_error; without one, warn of the first error in a
        row.
        """
        with self._state:
            self._errors.append(error)
        if self._on_error is not None:
            self._call(self._on_error, error)
        elif is_first:
            self._warn(
                f"The watcher of {self._name} continues after an error. {type(error).__name__}:"
                f" {error}"
            )

    def _call(self, function: Callable[..., object], argument: object) -> None:
        """Call a user's function; record its errors and warn of them."""
        try:
            function(argument)
        except Exception as exc:  # noqa: BLE001  recorded; syncing continues
            with self._state:
                self._errors.append(exc)
            name = getattr(function, "__name__", repr(function))
            self._warn(
                f"The callback {name} of the watcher of {self._name} raised {type(exc).__name__}:"
                f" {exc}"
            )

    def _warn(self, message: str) -> None:
        try:
            warn_user(sentence(message), IngestionWarning)
        except IngestionWarning as warning:
            # a program may turn warnings into errors; the thread continues
            with self._state:
                self._errors.append(warning)
