"""Progress of long calls, and cancelling them."""

from __future__ import annotations

import _thread
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, TypeVar

from lazyrag.errors import CanceledError
from lazyrag.progress.blocks import contextmanager
from lazyrag.validation import require

R = TypeVar("R")

_DELAY_S = 0.3  # what is done by then needs no bar
_TICK_S = 0.1
_FORMAT = (
    "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} {unit}s [{elapsed}<{remaining}]{postfix}"
)


class ProgressTask:
    """Work in progress, which the bar shows until its end; of work inside of other work, the bar
    shows both.

    Args:
        label: Its name.
        total: How many units there are.
        unit: What is counted.

    Example:
        >>> with ProgressTask("sync", 2, "file") as work:
        ...     work.reach(1)
        >>> work.done
        1
    """

    _all: list[ProgressTask] = []  # noqa: RUF012  of all threads, outer ones first
    _lock = threading.RLock()
    _bar: Any = None

    def __init__(self, label: str, total: int, unit: str) -> None:
        self.label = label
        self.total = total
        self.unit = unit
        self.done: float = 0

    def __enter__(self) -> Self:
        if sys.stderr is not None and sys.stderr.isatty() and _is_parent():
            with ProgressTask._lock:
                ProgressTask._all.append(self)
                if ProgressTask._bar is None:  # it appears even if nothing is done by then
                    # a Timer may hang after an interrupt
                    _thread.start_new_thread(_appear, (self,))
        return self

    def __exit__(self, *exc_info: object) -> None:
        with ProgressTask._lock:
            if self in ProgressTask._all:
                ProgressTask._all.remove(self)
            if not ProgressTask._all:
                bar = ProgressTask._bar
                ProgressTask._bar = None
                if bar is not None:
                    bar.close()

    def reach(self, done: float) -> None:
        """Set how many units are done."""
        self.done = done
        if ProgressTask._bar is not None:
            _draw()

    def counted(self, function: Callable[[Any], R]) -> Callable[[Any], R]:
        """A function that does one unit."""

        def call(argument: Any) -> R:
            self.reach(self.done + 1)
            return function(argument)

        return call


def _is_parent() -> bool:
    """Whether this process has its terminal for itself: one that loads files for another shares
    it.
    """
    from multiprocessing import parent_process  # slow to import

    return parent_process() is None


@functools.cache
def _bar_class() -> Any:
    """Progress bars of tqdm with another lock: its own one may stay locked after an interrupt."""
    from tqdm import tqdm  # slow to import

    bar_class: Any = type("Bar", (tqdm,), {})
    bar_class.set_lock(threading.RLock())
    return bar_class


def _appear(work: ProgressTask) -> None:
    """Show the bar, unless the work has ended by the time when it would appear."""
    time.sleep(_DELAY_S)
    with ProgressTask._lock:
        if work in ProgressTask._all and ProgressTask._bar is None:
            ProgressTask._bar = _bar_class()(
                bar_format=_FORMAT,
                leave=False,
                dynamic_ncols=True,
                smoothing=0,
                delay=1e-9,  # not before its first numbers are set
                mininterval=_TICK_S,
                miniters=1,
            )
            _draw()
            ProgressTask._bar.refresh()


def _draw() -> None:
    with ProgressTask._lock:
        if ProgressTask._bar is None or not ProgressTask._all:
            return
        bar = ProgressTask._bar
        first = ProgressTask._all[0]
        last = ProgressTask._all[-1]
        bar.total = first.total
        bar.unit = first.unit
        bar.set_description_str(first.label, refresh=False)
        inner = "" if last is first else f"{last.label} {int(last.done)}/{last.total}"
        bar.set_postfix_str(inner, refresh=False)
        bar.update(int(first.done) - bar.n)


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an operation.

    Args:
        what: The operation: ``"sync"``, ``"transform <group>"``,
            ``"embed <group> with <embed key>"``, ``"copy <group>"``, ...
        step: The last step.
        done: Number of finished documents, unfinished ones counted by their steps; of embedded
            nodes, while a group is embedded for the first time; rows for a copy.
        total: Number of documents, nodes or rows.
    """

    what: str
    step: str
    done: float
    total: int


OnProgress: TypeAlias = Callable[[Progress], None]
"""Called often, in the thread that ingests: it should return at once. Its exceptions stop the
operation."""


_call: ContextVar[tuple[OnProgress | None, tuple[threading.Event, ...]]] = ContextVar(
    "call", default=(None, ())
)


@contextmanager
def during_call(
    on_progress: OnProgress | None = None, cancel: threading.Event | None = None
) -> Iterator[None]:
    """Report the progress of what is done in the block, and stop it at a safe point once an event
    is set.

    Args:
        on_progress: Called with the progress; None for the function of an outer block.
        cancel: An event that stops the block, as do those of outer blocks.

    Raises:
        CanceledError: If the event is set.
    """
    require(
        on_progress is None or callable(on_progress),
        "on_progress",
        on_progress,
        "a function or None",
    )
    is_event = cancel is None or callable(getattr(cancel, "is_set", None))
    require(is_event, "cancel", cancel, "a threading.Event or None")
    outer = _call.get()
    try:
        events = outer[1] if cancel is None else (*outer[1], cancel)
        _call.set((on_progress or outer[0], events))
        raise_if_canceled()
        yield
    finally:
        _call.set(outer)


def raise_if_canceled() -> None:
    """Check, at a point where the work can safely stop, whether it is to stop.

    Raises:
        CanceledError: If an event of the call is set.
    """
    _, events = _call.get()
    if any(event.is_set() for event in events):
        raise CanceledError(
            "The call was cancelled. What was finished is stored; call it again to do the rest."
        )


class ProgressMeter:
    """Reports the progress of an operation, and stops it where its call is cancelled, see
    `during_call`.

    Args:
        label: The operation.
        total: Number of documents, or of what the unit is.
        steps: Maximum number of steps for each of them.
        unit: Unit of the progress bar. With ``"node"``, the time left is right for documents of any
            size.
    """

    def __init__(
        self,
        label: str,
        total: int,
        steps: int,
        *,
        unit: str = "file",
    ) -> None:
        self._label = label
        self._total = total
        self._is_of_nodes = unit == "node"
        self._share = 1.0 / max(1, steps)
        self._on_progress = _call.get()[0]
        self._done = 0.0
        self._work = ProgressTask(label, total, unit)

    def __enter__(self) -> Self:
        self._work.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._work.__exit__(*exc_info)

    def tick(self, step: object) -> None:
        """Count one step of one document."""
        raise_if_canceled()
        if not self._is_of_nodes:
            self._report(str(step), min(self._total, self._done + self._share))

    def tick_nodes(self, count: int) -> None:
        """Count embedded nodes."""
        raise_if_canceled()
        if self._is_of_nodes:
            self._report(self._label, min(self._total, self._done + count))

    def reach(self, done: int) -> None:
        """Set the number of documents, or nodes, that are finished."""
        self._report(self._label, done)

    def _report(self, step: str, done: float) -> None:
        self._done = done
        self._work.reach(done)
        if self._on_progress is not None:
            self._on_progress(Progress(self._label, step, done, self._total))
        raise_if_canceled()
