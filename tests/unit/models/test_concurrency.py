"""The private event loop: what runs on it, and how calls end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from lazyrag.models import concurrency as background
from tests.interpreter import ROOT, python
from tests.model_server import PATIENCE_S


class Counter:
    """Makes numbers on the private loop, and says when it was closed."""

    def __init__(self, wait_after=None):
        self.made = 0
        self.closed = threading.Event()
        self._wait_after = wait_after

    async def numbers(self):
        """0, 1, 2 ... up to 99."""
        try:
            while self.made < 100:
                if self.made == self._wait_after:
                    await asyncio.sleep(PATIENCE_S)
                self.made += 1
                yield self.made - 1
        finally:
            self.closed.set()


async def thread_name():
    """Where it runs."""
    await asyncio.sleep(0)
    return threading.current_thread().name


def test_all_callers_share_one_loop():
    """Threads and event loops of any kind run their coroutines on the same thread, none of their
    own.
    """
    names = {background.run(thread_name()), asyncio.run(background.arun(thread_name()))}
    thread = threading.Thread(target=lambda: names.add(background.run(thread_name())))
    thread.start()
    thread.join()
    assert len(names) == 1
    assert names != {threading.current_thread().name}


def test_an_error_reaches_the_caller():
    """Sync and async alike."""

    async def fails():
        raise LookupError("here")

    with pytest.raises(LookupError, match="here"):
        background.run(fails())
    with pytest.raises(LookupError, match="here"):
        asyncio.run(background.arun(fails()))


def test_waiting_for_the_loop_on_the_loop_is_refused():
    """A deadlock becomes an error."""

    async def waits():
        background.run(thread_name())

    with pytest.raises(RuntimeError, match="await its coroutine instead"):
        background.run(waits())


def test_cancelling_the_callers_task_cancels_the_work():
    """The coroutine on the private loop ends too."""
    started, ended = threading.Event(), threading.Event()

    async def work():
        try:
            started.set()
            await asyncio.sleep(PATIENCE_S)
        finally:
            ended.set()

    async def caller():
        task = asyncio.ensure_future(background.arun(work()))
        await asyncio.to_thread(started.wait, PATIENCE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(caller())
    assert ended.wait(PATIENCE_S)


def test_a_stream_gives_everything_in_order():
    """From a thread and from a loop, with a bound that is much smaller than what is made."""
    assert list(background.stream(Counter().numbers(), 2)) == list(range(100))

    async def collect():
        return [number async for number in background.astream(Counter().numbers(), 2)]

    assert asyncio.run(collect()) == list(range(100))


def test_a_stream_makes_no_more_than_is_allowed_ahead():
    """One is taken, two wait, and one is in hand."""
    counter = Counter()
    numbers = background.stream(counter.numbers(), 2)
    next(numbers)
    background.run(asyncio.sleep(0.05))
    assert counter.made == 4
    numbers.close()
    assert counter.closed.wait(PATIENCE_S)


def test_a_stream_without_bound_does_not_wait_for_its_consumer():
    """It is all made while the consumer holds the first item."""
    counter = Counter()
    numbers = background.stream(counter.numbers())
    next(numbers)
    assert counter.closed.wait(PATIENCE_S)
    assert list(numbers) == list(range(1, 100))


@pytest.mark.parametrize("how", ["close", "drop"])
def test_leaving_a_stream_closes_its_source(how):
    """Also while it waits for the next item."""
    counter = Counter(wait_after=1)
    numbers = background.stream(counter.numbers())
    next(numbers)
    if how == "close":
        numbers.close()
    del numbers
    assert counter.closed.wait(PATIENCE_S)


@pytest.mark.parametrize("how", ["aclose", "cancel", "end of the loop"])
def test_leaving_an_async_stream_closes_its_source(how):
    """Whether it is closed, its task is cancelled, or its loop ends."""
    counter = Counter(wait_after=1)

    async def leave():
        numbers = background.astream(counter.numbers())
        assert await anext(numbers) == 0
        if how == "aclose":
            await numbers.aclose()
        elif how == "cancel":
            waiting = asyncio.ensure_future(anext(numbers))
            await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(leave())
    assert counter.closed.wait(PATIENCE_S)


def test_an_error_in_a_stream_comes_after_its_items():
    """What was made before it is handed over."""

    async def numbers():
        yield 1
        yield 2
        raise LookupError("here")

    found = []
    with pytest.raises(LookupError, match="here"):
        found.extend(number for number in map(found.append, background.stream(numbers())) if number)
    assert found == [1, 2]


def test_together_keeps_the_order_and_ends_with_the_first_failure():
    """Results come in the order asked for; where one fails, the others are cancelled."""
    ended = threading.Event()

    async def number(value, wait_s):
        await asyncio.sleep(wait_s)
        return value

    async def long():
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            ended.set()

    async def fails():
        await asyncio.sleep(0)
        raise LookupError("here")

    assert background.run(background.together(number(1, 0.02), number(2, 0))) == [1, 2]
    with pytest.raises(LookupError):
        background.run(background.together(long(), fails()))
    assert ended.wait(PATIENCE_S)


@pytest.mark.slow
def test_importing_starts_nothing():
    """The thread begins with the first call."""
    done = python(
        "-c",
        "import threading\n"
        "from lazyrag.models import concurrency as background, openai\nfrom lazyrag.models.openai import client\n"
        "assert threading.active_count() == 1\n"
        "import asyncio\n"
        "background.run(asyncio.sleep(0))\n"
        "assert threading.active_count() == 2\n",
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_program_ends_at_once_with_calls_under_way():
    """Neither a call of a daemon thread nor an open stream holds it up, and nothing is printed."""
    begun = time.monotonic()
    done = python(
        "-W",
        "default",
        "-c",
        "import asyncio, threading\n"
        "from lazyrag.models import concurrency as background\n"
        "async def numbers():\n"
        "    yield 1\n"
        "    await asyncio.sleep(1000)\n"
        "started = threading.Event()\n"
        "async def long():\n"
        "    started.set()\n"
        "    await asyncio.sleep(1000)\n"
        "threading.Thread(target=lambda: background.run(long()), daemon=True).start()\n"
        "stream = background.stream(numbers())\n"
        "next(stream)\n"
        "started.wait()\n",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - begun < PATIENCE_S


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
def test_keyboard_interrupt_cancels_the_work():
    """The caller is free at once, and the coroutine has ended."""
    program = (
        "import asyncio, signal, sys, threading\n"
        "from lazyrag.models import concurrency as background\n"
        # what a shell starts with & ignores it
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "ended = threading.Event()\n"
        "async def long():\n"
        "    try:\n"
        "        await asyncio.sleep(0.2)\n"  # until the caller waits
        "        print('running', flush=True)\n"
        "        await asyncio.sleep(1000)\n"
        "    finally:\n"
        "        ended.set()\n"
        "try:\n"
        "    background.run(long())\n"
        "except KeyboardInterrupt:\n"
        f"    sys.exit(7 if ended.wait({PATIENCE_S}) else 8)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 7, errors


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_has_a_loop_of_its_own():
    """Both go on, whatever the parent's loop did at that moment."""
    done = python(
        "-W",
        # of Python 3.12, about forking with threads: that is what is tested
        "ignore::DeprecationWarning",
        "-c",
        "import asyncio, os\n"
        "from lazyrag.models import concurrency as background\n"
        "async def pid():\n"
        "    return os.getpid()\n"
        "assert background.run(pid()) == os.getpid()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os._exit(0 if background.run(pid()) == os.getpid() else 1)\n"
        "_, status = os.waitpid(child, 0)\n"
        "assert status == 0\n"
        "assert background.run(pid()) == os.getpid()\n",
    )
    assert done.returncode == 0, done.stderr
