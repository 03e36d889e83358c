"""Threads for what blocks, so that no event loop waits for it.

They are the package's own: `asyncio.run` waits at its end for the loop's default threads, and so would a cancelled
question for a retriever that is still at work.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")

_END: Any = object()


class _Background:
    """The loop, and the thread that runs it."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inherited: list[asyncio.AbstractEventLoop] = []

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, running."""
        with self._starting:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                threading.Thread(target=loop.run_forever, name="lazyrag-background", daemon=True).start()
                self._loop = loop
            return self._loop

    def forget(self) -> None:
        """In a forked child, which has the loop but not its thread: the next call starts anew."""
        self._starting = threading.Lock()  # the old one may have been held
        if self._loop is not None:
            # Kept, and not closed: the two processes share what it waits on, and closing would disturb the parent.
            self._inherited.append(self._loop)
            self._loop = None


_background = _Background()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_background.forget)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the private loop and wait for it; KeyboardInterrupt, or whatever ends the wait, cancels it.

    Raises:
        RuntimeError: If called on the private loop itself, where waiting would never end.

    Example:
        >>> run(asyncio.sleep(0, "done"))
        'done'
    """
    if on_loop():
        work.close()
        msg = "A coroutine of the private loop called a function that waits for that loop; await its coroutine instead."
        raise RuntimeError(msg)
    future = _submit(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # changes nothing where it was the coroutine that raised
        raise


async def arun(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the private loop and await it from any loop; cancelling the caller's task cancels it."""
    return await asyncio.wrap_future(_submit(work))


def stream(items: AsyncGenerator[T, None], ahead: int = sys.maxsize) -> Iterator[T]:
    """Iterate over what an asynchronous generator, run on the private loop, makes.

    Args:
        items: It is started at the first step, runs in one task, and is closed when this iterator is closed or dropped.
        ahead: How many items it may make before they are asked for, at least 1. Without a bound it never waits for its
            consumer, so that a slow one holds no connection.

    Example:
        >>> async def count():
        ...     yield 1
        ...     yield 2
        >>> list(stream(count()))
        [1, 2]
    """
    queue: asyncio.Queue[T] = asyncio.Queue()
    room = asyncio.Semaphore(ahead)
    making = _submit(_fill(queue, room, items))
    try:
        while (item := run(_take(queue, room))) is not _END:
            yield item
        making.result()
    finally:
        making.cancel()


async def astream(items: AsyncGenerator[T, None], ahead: int = sys.maxsize) -> AsyncIterator[T]:
    """The same as `stream`, for any event loop."""
    queue: asyncio.Queue[T] = asyncio.Queue()
    room = asyncio.Semaphore(ahead)
    making = _submit(_fill(queue, room, items))
    try:
        while (item := await arun(_take(queue, room))) is not _END:
            yield item
        await asyncio.wrap_future(making)
    finally:
        making.cancel()


async def together(*work: Coroutine[Any, Any, T]) -> list[T]:
    """Run coroutines at the same time, on the loop this is called on; the first that fails ends the others.

    Returns:
        What they return, in their order.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def on_loop() -> bool:
    """Whether the caller runs on the private loop."""
    try:
        return asyncio.get_running_loop() is _background.loop()
    except RuntimeError:
        return False


def _submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    return asyncio.run_coroutine_threadsafe(work, _background.loop())


async def _fill(queue: asyncio.Queue[T], room: asyncio.Semaphore, items: AsyncGenerator[T, None]) -> None:
    """Make items; the end is told in the queue, an error waits in this task's future."""
    try:
        async with contextlib.aclosing(items):
            async for item in items:
                await room.acquire()
                queue.put_nowait(item)
    finally:
        queue.put_nowait(_END)


async def _take(queue: asyncio.Queue[T], room: asyncio.Semaphore) -> T:
    item = await queue.get()
    room.release()
    return item


_MOST = 32  # in each pool

# What works in a thread may itself wait for a thread, as a retriever does that asks a chat model. If both were of one
# pool, as many of the former as it has threads would wait for ever; so each depth has a pool of its own.
_DEPTH: ContextVar[int] = ContextVar("lazyrag_depth_of_threads", default=0)

_starting = threading.Lock()
_pools: list[ThreadPoolExecutor] = []


async def in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a function in a thread, with the caller's context variables.

    Cancelling leaves at once; what the function was doing ends by itself, as no thread can be stopped from outside. A
    call that waits for a free thread is taken back.
    """
    depth, context = _DEPTH.get(), copy_context()
    context.run(_DEPTH.set, depth + 1)
    call = functools.partial(context.run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_pool(depth), call)


def _pool(depth: int) -> ThreadPoolExecutor:
    with _starting:
        while len(_pools) <= depth:
            _pools.append(ThreadPoolExecutor(_MOST, thread_name_prefix=f"lazyrag-work-{len(_pools)}"))
        return _pools[depth]


def _forget() -> None:
    """In a forked child, which has none of the threads: the next call starts some."""
    global _starting  # noqa: PLW0603  the old one may have been held
    _starting = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
