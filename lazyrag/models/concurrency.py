"""A private event loop for coroutines of this package, and threads for blocking work.

`asyncio` and `concurrent.futures` are imported on first use, since they are slow to import. The
threads are the package's own: `asyncio.run` waits at its end for the loop's default threads, so a
cancelled query would wait for its retriever.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lazyrag.progress.calls import during_call, raise_if_canceled

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future, ThreadPoolExecutor

S = TypeVar("S")
T = TypeVar("T")

_END: Any = object()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the private loop and wait for it. KeyboardInterrupt, like any end of the
    wait, cancels it.

    Raises:
        RuntimeError: If called on the private loop itself, where waiting would never end.
        CanceledError: If the task that waits for this thread was cancelled, see `in_thread`.

    Example:
        >>> import asyncio
        >>> run(asyncio.sleep(0, "done"))
        'done'
    """
    if on_loop():
        work.close()
        raise RuntimeError(
            "A coroutine of the private loop called a function that waits for that loop; await its"
            " coroutine instead."
        )
    waiting = _WAITING.get()
    future = _submit(work)
    waiting.add(future)
    try:
        raise_if_canceled()
        return future.result()
    except BaseException:
        future.cancel()  # no effect if the coroutine itself raised
        raise
    finally:
        waiting.discard(future)


def settle(result: Any) -> Any:
    """Return a result as it is, or run the awaitable that it is on the private loop and wait for
    it.
    """

    async def settled() -> Any:
        return await result

    return run(settled()) if inspect.isawaitable(result) else result


async def arun(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the private loop and await it from any loop. Cancelling the caller's task
    cancels it.
    """
    import asyncio

    return await asyncio.wrap_future(_submit(work))


def stream(items: AsyncGenerator[T, None], ahead: int = sys.maxsize) -> Iterator[T]:
    """Iterate over an asynchronous generator that runs on the private loop.

    Args:
        items: Starts at the first step, runs in one task, and is closed when this iterator is
            closed or dropped.
        ahead: Maximum number of items in advance, at least 1. Without a limit the generator never
            waits for its consumer, so that a slow one does not hold a connection.

    Example:
        >>> async def count():
        ...     yield 1
        ...     yield 2
        >>> list(stream(count()))
        [1, 2]
    """
    buffer: _Buffer[T] = _Buffer(items, ahead)
    try:
        while (item := run(buffer.take())) is not _END:
            yield item
        buffer.filling.result()
    finally:
        buffer.filling.cancel()


async def astream(items: AsyncGenerator[T, None], ahead: int = sys.maxsize) -> AsyncIterator[T]:
    """Iterate over an asynchronous generator that runs on the private loop, from any loop; see
    `stream`.
    """
    import asyncio

    buffer: _Buffer[T] = _Buffer(items, ahead)
    try:
        while (item := await arun(buffer.take())) is not _END:
            yield item
        await asyncio.wrap_future(buffer.filling)
    finally:
        buffer.filling.cancel()


async def together(*work: Coroutine[Any, Any, T]) -> list[T]:
    """Run coroutines concurrently on the current loop; the first that fails cancels the others.

    Returns:
        Their results, in order.
    """
    import asyncio

    tasks = [asyncio.ensure_future(awaitable) for awaitable in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def on_loop() -> bool:
    """Whether the caller runs on the private loop."""
    import asyncio

    try:
        return asyncio.get_running_loop() is _background.loop()
    except RuntimeError:
        return False


def _submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    import asyncio

    return asyncio.run_coroutine_threadsafe(work, _background.loop())


class _Buffer(Generic[T]):
    """Items of an asynchronous generator that were created in advance."""

    def __init__(self, items: AsyncGenerator[T, None], ahead: int) -> None:
        import asyncio

        self._items = items
        self._queue: asyncio.Queue[T] = asyncio.Queue()
        self._room = asyncio.Semaphore(ahead)
        self.filling = _submit(self._fill())

    async def take(self) -> T:
        """Return the next item; `_END` at the end. An error is raised by `filling`."""
        item = await self._queue.get()
        self._room.release()
        return item

    async def _fill(self) -> None:
        try:
            async with contextlib.aclosing(self._items):
                async for item in self._items:
                    await self._room.acquire()
                    self._queue.put_nowait(item)
        finally:
            self._queue.put_nowait(_END)


class _Background:
    """The private loop and its thread."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inherited: list[asyncio.AbstractEventLoop] = []

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop; starts it on first use."""
        with self._starting:
            if self._loop is None:
                import asyncio

                loop = asyncio.new_event_loop()
                threading.Thread(
                    target=loop.run_forever, name="lazyrag-background", daemon=True
                ).start()
                self._loop = loop
            return self._loop

    def forget(self) -> None:
        """Drop the loop in a forked child, which does not have its thread."""
        self._starting = threading.Lock()  # the old one may be locked
        if self._loop is not None:
            # Not closed: both processes share its selector, and closing would disturb the parent.
            self._inherited.append(self._loop)
            self._loop = None


_background = _Background()

_POOL_SIZE = 32

# Work in a thread may itself wait for a thread, as a retriever does that calls a chat model. In one
# pool, as many of the former as it has threads would wait for ever; so each level has a pool of its
# own.
_LEVEL: ContextVar[int] = ContextVar("lazyrag_thread_level", default=0)
# What a thread waits for, of a call that a task may cancel.
_WAITING: ContextVar[set[Future[Any]]] = ContextVar("lazyrag_waiting", default=set())  # noqa: B039

_starting = threading.Lock()
_pools: list[ThreadPoolExecutor] = []


async def in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a function in a thread, with the caller's context variables.

    Cancelling returns immediately, and stops the call: a request to a model at once, ingestion at
    its next safe point, a function of the user when it returns. A call that waits for a free thread
    is withdrawn.
    """
    import asyncio

    level = _LEVEL.get()
    cancel = threading.Event()
    waiting: set[Future[Any]] = set()

    def call() -> T:
        _LEVEL.set(level + 1)
        _WAITING.set(waiting)
        with during_call(cancel=cancel):
            return function(*args, **kwargs)

    pool = _pool(level)
    try:
        return await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, call)
    except asyncio.CancelledError:
        cancel.set()
        for future in tuple(waiting):
            future.cancel()
        raise


def map_in_threads(function: Callable[[S], T], items: Sequence[S], workers: int) -> Iterator[T]:
    """Yield a function's results in the order of the items, called in threads with the caller's
    context variables.

    An error is raised at its item, and calls that have not begun are dropped. With one worker, or
    one item, the calls run in the caller's thread.

    Example:
        >>> list(map_in_threads(len, ["tea", "coffee"], 2))
        [3, 6]
    """
    if workers == 1 or len(items) < 2:
        yield from map(function, items)
        return
    from concurrent.futures import ThreadPoolExecutor

    contexts = [copy_context() for _ in items]
    with ThreadPoolExecutor(min(workers, len(items)), "lazyrag call") as pool:
        yield from pool.map(lambda context, item: context.run(function, item), contexts, items)


def _pool(level: int) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    with _starting:
        while len(_pools) <= level:
            _pools.append(
                ThreadPoolExecutor(_POOL_SIZE, thread_name_prefix=f"lazyrag-work-{len(_pools)}")
            )
        return _pools[level]


def _forget_threads() -> None:
    """Drop the loop and the pools in a forked child, which has none of the threads."""
    global _starting  # noqa: PLW0603  the old one may be locked
    _starting = threading.Lock()
    _pools.clear()
    _background.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
