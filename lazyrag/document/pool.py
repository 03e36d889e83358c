"""Work done by several threads, its results in order."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from lazyrag.errors import set_stop_event

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 4  # items for each worker that may be done before they are asked for
_WORTH_A_THREAD_S = 0.002  # handing an item over costs a few tenths of a millisecond where Python is what works
_SURELY_WORTH_ONE_S = 0.05


def ordered(
    executor: Executor | None, workers: int, function: Callable[[T], R], items: Iterable[T]
) -> Iterator[tuple[T, R | Exception]]:
    """Each item with what a function makes of it, or the exception that it raised, in the items' order.

    Items are done here, one after the other, until threads are of use: until one takes very long, or two in a row take
    long, as a single one may have met the garbage collector or another program. At most a few results wait to be asked
    for, so memory stays bounded however many items there are. Where an interrupt comes, what was not begun is not done,
    and what was begun comes before the interrupt goes on, unless it looks at `lazyrag.errors` and stops.

    Args:
        executor: Whose workers call the function; None for none.
        workers: How many it has.
        function: Called with each item, by several workers at once.
        items: Any number.

    Example:
        >>> list(ordered(None, 1, lambda n: 6 // n, [3, 0]))
        [(3, 2), (0, ZeroDivisionError('integer division or modulo by zero'))]
    """
    rest = iter(items)
    was_long = False
    for item in rest:
        since = time.perf_counter()
        try:
            result: R | Exception = function(item)
        except Exception as exc:  # noqa: BLE001  it is the item's result
            result = exc
        took = time.perf_counter() - since
        is_long = took > _WORTH_A_THREAD_S
        yield item, result
        if executor is not None and (took > _SURELY_WORTH_ONE_S or (is_long and was_long)):
            yield from _threaded(executor, workers, function, rest)
        was_long = is_long


def _threaded(
    executor: Executor, workers: int, function: Callable[[T], R], items: Iterator[T]
) -> Iterator[tuple[T, R | Exception]]:
    waiting: deque[tuple[T, Future[R]]] = deque()
    interrupt: BaseException | None = None
    try:
        while True:
            try:
                if interrupt is None:
                    for item in itertools.islice(items, _AHEAD * workers - len(waiting)):
                        waiting.append((item, executor.submit(function, item)))
                if not waiting:
                    break
                result = _result(waiting[0][1])
            except BaseException as exc:
                if interrupt is not None and not (waiting and _raised(waiting[0][1], exc)):  # somebody insists
                    raise
                interrupt = interrupt or exc
                _stop(executor)
                waiting = deque(pair for pair in waiting if not (pair[1].cancel() or _raised(pair[1], exc)))
                continue
            item, _ = waiting.popleft()
            yield item, result
    finally:
        for _, future in waiting:
            future.cancel()
    if interrupt is not None:
        raise interrupt


def _stop(executor: Executor) -> None:
    """Tell workers that their work is not wanted any more."""
    if isinstance(executor, _Workers):
        executor.stopping.set()


def _result(future: Future[R]) -> R | Exception:
    try:
        return future.result()
    except Exception as exc:  # noqa: BLE001  it is the item's result
        return exc


def _raised(future: Future[R], exc: BaseException) -> bool:
    """Whether an interrupt reached the worker that had this item, not the thread that waits."""
    return future.done() and future.exception() is exc


_owners = threading.local()


def is_worker_of(owner: object) -> bool:
    """Whether this thread is one of the workers of an owner, see `executor_of`."""
    return getattr(_owners, "owner", None) is owner


class _Workers(ThreadPoolExecutor):
    """Threads that know whom they work for, and by which event they learn that their work is not wanted any more."""

    def __init__(self, workers: int, owner: object) -> None:
        self.stopping = threading.Event()
        super().__init__(workers, "lazyrag ingestion", initializer=self._set_up, initargs=(owner,))

    def _set_up(self, owner: object) -> None:
        _owners.owner = owner
        set_stop_event(self.stopping)


@contextmanager
def executor_of(workers: int, count: int, owner: object) -> Iterator[ThreadPoolExecutor | None]:
    """Threads for what takes several; at once let go of where somebody stops."""
    if workers == 1 or count < 2:
        yield None
        return
    executor = _Workers(workers, owner)
    try:
        yield executor
    except BaseException:
        executor.stopping.set()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
