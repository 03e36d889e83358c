"""Threads that load and transform documents."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from lazyrag.errors import set_stop_event
from lazyrag.progress.blocks import contextmanager

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future, ThreadPoolExecutor

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 4  # items for each worker that may be done before their results are read
# handing an item over costs a few tenths of a millisecond when Python does the work
_WORTH_A_THREAD_S = 0.002
_SURELY_WORTH_ONE_S = 0.05

_owners = threading.local()
_stop_events: WeakKeyDictionary[Executor, threading.Event] = WeakKeyDictionary()


def _set_up(owner: object, stopping: threading.Event) -> None:
    _owners.owner = owner
    set_stop_event(stopping)


@contextmanager
def worker_pool(workers: int, count: int, owner: object) -> Iterator[ThreadPoolExecutor | None]:
    """Threads for several items, or None; stopped at once when the body raises."""
    if workers == 1 or count < 2:
        yield None
        return
    from concurrent.futures import ThreadPoolExecutor  # 8 ms, which a start without changes saves

    stopping = threading.Event()
    executor = ThreadPoolExecutor(
        workers, "lazyrag ingestion", initializer=_set_up, initargs=(owner, stopping)
    )
    _stop_events[executor] = stopping
    try:
        yield executor
    except BaseException:
        stopping.set()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def is_worker_of(owner: object) -> bool:
    """Whether this thread is a worker of an owner, see `worker_pool`."""
    return getattr(_owners, "owner", None) is owner


def map_in_order(
    executor: Executor | None, workers: int, function: Callable[[T], R], items: Iterable[T]
) -> Iterator[tuple[T, R | Exception]]:
    """Yield each item with the function's result, or the exception that it raised, in the items'
    order.

    Items are processed here, one after the other, until threads pay: until one takes very long, or
    two in a row take long (a single one may have met the garbage collector). Only a few results
    wait to be read, so memory is bounded. On an interrupt, items that were not begun are dropped,
    and those that were begun are finished before the interrupt continues, unless they check
    `lazyrag.errors` and stop.

    Args:
        executor: Its workers call the function; None for none.
        workers: How many it has.
        function: Called with each item, by several workers at once.
        items: Any number.

    Example:
        >>> list(map_in_order(None, 1, lambda n: 6 // n, [3, 0]))
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
            yield from _map_in_threads(executor, workers, function, rest)
        was_long = is_long


def _map_in_threads(
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
                # somebody insists
                if interrupt is not None and not (waiting and _raised(waiting[0][1], exc)):
                    raise
                interrupt = interrupt or exc
                if executor in _stop_events:
                    _stop_events[executor].set()
                waiting = _still_running(waiting, exc)
                continue
            item, _ = waiting.popleft()
            yield item, result
    finally:
        for _, future in waiting:
            future.cancel()
    if interrupt is not None:
        raise interrupt


def _still_running(
    waiting: deque[tuple[T, Future[R]]], exc: BaseException
) -> deque[tuple[T, Future[R]]]:
    """Cancel what was not begun; returns the rest, without what the interrupt ended."""
    return deque(
        (item, future) for item, future in waiting if not (future.cancel() or _raised(future, exc))
    )


def _result(future: Future[R]) -> R | Exception:
    try:
        return future.result()
    except Exception as exc:  # noqa: BLE001  it is the item's result
        return exc


def _raised(future: Future[R], exc: BaseException) -> bool:
    """Whether an interrupt reached the worker that had this item, not the thread that waits."""
    return future.done() and future.exception() is exc
