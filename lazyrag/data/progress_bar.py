"""The progress bar: one for all that a process does, in whole numbers, where the standard error is a terminal."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self

    from tqdm import tqdm

_DELAY_S = 0.3  # what is done by then needs no bar
_PAUSE_S = 1.0  # longest time between two steps of what looks like one operation
_TICK_S = 0.1
_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} {unit}s [{elapsed}<{remaining}]{postfix}"


class Work:
    """Work in progress, which the bar shows until its end; of work inside of other work, the bar shows both.

    Args:
        what: Its name.
        total: How many units there are; 0 while that is unknown.
        unit: What is counted.

    Example:
        >>> with Work("sync", 2, "file") as work:
        ...     work.reach(1)
        >>> work.done
        1
    """

    def __init__(self, what: str, total: int, unit: str) -> None:
        self.what = what
        self.total = total
        self.unit = unit
        self.done: float = 0

    def __enter__(self) -> Self:
        _bar.add(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        _bar.remove(self)

    def reach(self, done: float) -> None:
        """Set how many units are done."""
        self.done = done
        _bar.draw()


class _Bar:
    """Draws the works of all threads: those of the first one's name as one sum, and the newest of another name."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._works: list[Work] = []
        self._shown: tqdm[Any] | None = None
        self._timer: threading.Timer | None = None
        self._began = self._ended = self._drawn = -_PAUSE_S

    def add(self, work: Work) -> None:
        """Begin some work; the bar appears a moment later, even if nothing is done by then."""
        if not _has_terminal():
            return
        with self._lock:
            now = time.monotonic()
            if not self._works and now - self._ended >= _PAUSE_S:
                self._began = now
            self._works.append(work)
            if self._timer is None:
                self._timer = threading.Timer(max(0.0, self._began + _DELAY_S - now), self._appear)
                self._timer.daemon = True
                self._timer.start()

    def remove(self, work: Work) -> None:
        """End some work."""
        with self._lock, suppress(ValueError):  # of no terminal
            self._works.remove(work)
            if self._works:
                return
            self._ended = time.monotonic()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._shown is not None:
                self._shown.close()
                self._shown = None

    def draw(self) -> None:
        """Draw what is done by now, if the last time is a moment ago."""
        if self._shown is not None and time.monotonic() - self._drawn >= _TICK_S:
            with self._lock:
                self._draw()

    def _appear(self) -> None:
        from tqdm import tqdm  # slow to import

        with self._lock:
            if self._works and self._shown is None:
                self._shown = tqdm(bar_format=_FORMAT, leave=False, dynamic_ncols=True, smoothing=0, delay=1e-9)
                self._draw()

    def _draw(self) -> None:
        bar, first = self._shown, next(iter(self._works), None)
        if bar is None or first is None:
            return
        self._drawn = time.monotonic()
        alike = [one for one in self._works if one.what == first.what]
        inner = next((one for one in reversed(self._works) if one.what != first.what), None)
        bar.n, bar.total, bar.unit = int(sum(one.done for one in alike)), sum(one.total for one in alike), first.unit
        bar.set_description_str(first.what, refresh=False)
        told = "" if inner is None else f"{inner.what} {int(inner.done)}/{inner.total}"
        bar.set_postfix_str(told, refresh=False)
        bar.refresh()


def _has_terminal() -> bool:
    """Whether this process has a terminal for itself: one that loads files for another shares its terminal."""
    processes: Any = sys.modules.get("multiprocessing.process")
    is_child = processes is not None and processes.parent_process() is not None
    return sys.stderr is not None and sys.stderr.isatty() and not is_child


_bar = _Bar()
