"""Work that several threads share: its order, its bound, its errors, and where an interrupt leaves
it.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag.ingest import load_files as pool
from lazyrag.ingest.load_files import map_in_order, worker_pool

LONG_S = 0.06  # longer than what is done without threads
WAIT_S = 30.0


@pytest.fixture
def executor():
    """Three threads."""
    with ThreadPoolExecutor(3) as threads:
        yield threads


def until(condition):
    """Wait for a condition."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(LONG_S)


def slow(function):
    """A function that takes long enough for threads to be of use."""

    def called(item):
        time.sleep(LONG_S)
        return function(item)

    return called


def test_without_threads():
    """Each item comes with what is made of it, in order, made when it is asked for and not
    before.
    """
    called = []
    results = map_in_order(None, 1, lambda item: called.append(item) or item * 2, [1, 2, 3])
    assert called == []
    assert next(results) == (1, 2)
    assert called == [1]
    assert list(results) == [(2, 4), (3, 6)]


def test_nothing_to_do(executor):
    """No items, no results."""
    assert list(map_in_order(None, 1, str, [])) == list(map_in_order(executor, 3, str, [])) == []


@settings(max_examples=25)
@given(st.lists(st.integers(0, 3), max_size=12), st.integers(1, 4))
def test_the_order_is_that_of_the_items(waits, workers):
    """However long each takes, results come in the items' order, each with its own."""

    def work(item):
        _, wait = item
        time.sleep(wait / 1000)
        return item

    items = list(enumerate(waits))
    with ThreadPoolExecutor(workers) as executor:
        assert list(map_in_order(executor, workers, work, items)) == [
            (item, item) for item in items
        ]


def test_quick_work_stays_in_this_thread(executor, monkeypatch):
    """What is done in no time is not handed over: that would cost more than it."""
    # on a busy machine nothing is done in no time
    monkeypatch.setattr(pool, "_WORTH_A_THREAD_S", WAIT_S)
    here = threading.get_ident()
    assert {
        name for _, name in map_in_order(executor, 3, lambda _: threading.get_ident(), range(5))
    } == {here}


def test_a_pause_does_not_start_threads(executor, monkeypatch):
    """One item in a row that took longer than the others may have met the garbage collector."""
    monkeypatch.setattr(pool, "_WORTH_A_THREAD_S", LONG_S / 2)
    monkeypatch.setattr(pool, "_SURELY_WORTH_ONE_S", WAIT_S)
    here = threading.get_ident()

    def work(item):
        time.sleep(LONG_S if item % 2 else 0)
        return threading.get_ident()

    assert {name for _, name in map_in_order(executor, 3, work, range(4))} == {here}
    names = [
        name
        for _, name in map_in_order(executor, 3, slow(lambda _: threading.get_ident()), range(4))
    ]
    assert names[:2] == [here, here]
    assert here not in names[2:]


def test_long_work_is_done_at_the_same_time(executor):
    """After one that took long the others run side by side: three of them can meet."""
    barrier = threading.Barrier(3, timeout=WAIT_S)

    def meet(item):
        if item == 0:
            time.sleep(LONG_S)
            return item
        barrier.wait()
        return item

    assert [result for _, result in map_in_order(executor, 3, meet, range(7))] == list(range(7))


def test_an_exception_is_a_result(executor):
    """What raises gives its exception in its place, and the others go on, with threads and
    without.
    """

    def invert(item):
        return 6 // item

    for threads, function in ((None, invert), (executor, slow(invert))):
        results = list(map_in_order(threads, 3, function, [0, 1, 0, 3]))
        assert [item for item, _ in results] == [0, 1, 0, 3]
        assert [result if isinstance(result, int) else type(result) for _, result in results] == [
            ZeroDivisionError,
            6,
            ZeroDivisionError,
            2,
        ]


def test_what_runs_ahead_is_bounded(executor):
    """While nobody asks for the next result, few items are taken from any number of them."""
    taken = []

    def endless():
        for number in range(10_000):
            taken.append(number)
            yield number

    results = map_in_order(executor, 3, slow(str), endless())
    for _ in range(3):
        next(results)
    assert len(taken) <= 3 + 3 * 4 + 1
    results.close()
    assert len(taken) <= 3 + 3 * 4 + 1


def test_who_stops_asking_starts_nothing_more(executor):
    """What waits is cancelled when the results are let go of."""
    done = []
    results = map_in_order(executor, 3, slow(done.append), range(1000))
    next(results)
    next(results)
    results.close()
    executor.shutdown(wait=True)
    assert len(done) <= 2 + 3 * 4


class StopItError(BaseException):
    """What an interrupt is to the one who is interrupted."""


@pytest.mark.parametrize("at", [0, 1, 4])
def test_an_interrupt_without_threads(at):
    """It comes through at once; what was done before it was given out before it."""

    def work(item):
        if item == at:
            raise StopItError
        return item

    results = map_in_order(None, 1, work, range(6))
    for expected in range(at):
        assert next(results) == (expected, expected)
    with pytest.raises(StopItError):
        next(results)


def test_an_interrupt_with_threads(executor):
    """What was begun when it came is given out first, then it goes on; what was not begun is never
    done.
    """
    begun, may_end = [], threading.Event()

    def work(item):
        begun.append(item)
        if item == 0:
            time.sleep(LONG_S)
        elif item == 1:
            may_end.wait(WAIT_S)
            raise StopItError
        else:
            may_end.wait(WAIT_S)
        return item

    results = map_in_order(executor, 3, work, range(50))
    assert next(results) == (0, 0)
    threading.Timer(LONG_S, may_end.set).start()
    given = []

    def take_all():
        for item, result in results:
            given.append(item)
            assert result == item

    with pytest.raises(StopItError):
        take_all()
    executor.shutdown(wait=True)
    assert sorted({0, 1, *given}) == sorted(begun)
    assert len(begun) <= 1 + 3 * 4


@pytest.mark.skipif(
    not hasattr(signal, "pthread_kill"), reason="Windows sends no signals to threads"
)
def test_an_interrupt_while_waiting(executor):
    """One that reaches this thread, while it waits for a worker, loses nothing of what the workers
    have begun.
    """
    begun, seen, handed_over = [], threading.Event(), []
    main = threading.main_thread().ident

    def items():
        for item in range(50):
            handed_over.append(item)
            yield item

    def is_waiting():
        return (
            len(handed_over) == 1 + 3 * 4 and sys._current_frames()[main].f_code.co_name == "wait"
        )

    def interrupt(*_):
        seen.set()
        raise StopItError

    def work(item):
        begun.append(item)
        time.sleep(LONG_S)
        if item == 1:
            until(is_waiting)
            signal.pthread_kill(main, signal.SIGINT)
            seen.wait(WAIT_S)
        return item

    results = map_in_order(executor, 3, work, items())
    given = [next(results)[0]]
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(StopItError):
            given.extend(item for item, _ in results)
    finally:
        signal.signal(signal.SIGINT, before)
    executor.shutdown(wait=True)
    assert sorted(given) == sorted(begun)
    assert len(begun) <= 1 + 3 * 4


def test_one_worker_needs_no_threads():
    """For one worker, or one item, there is no pool."""
    with worker_pool(1, 100, "owner") as executor:
        assert executor is None
    with worker_pool(4, 1, "owner") as executor:
        assert executor is None


def test_the_threads_end_with_the_block():
    """Also where an error leaves it: no thread goes on behind one's back, and what waits is not
    begun.
    """
    done = []
    gate = threading.Event()

    def leave():
        with worker_pool(2, 100, "owner") as executor:
            for number in range(100):
                executor.submit(lambda number=number: gate.wait(WAIT_S) and done.append(number))
            threading.Timer(LONG_S, gate.set).start()
            raise KeyError

    with pytest.raises(KeyError):
        leave()
    assert len(done) <= 2
    assert not [one for one in threading.enumerate() if one.name.startswith("lazyrag ingestion")]
