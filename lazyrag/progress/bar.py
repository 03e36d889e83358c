"""The progress bar: one for all that a process does, in whole numbers, where the standard error is
a terminal.
"""

from __future__ import annotations

import _thread
import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing import Self

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
