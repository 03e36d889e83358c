"""Threads for what blocks, so that no event loop waits for it.

They are the package's own: `asyncio.run` waits at its end for the loop's default threads, and so would a cancelled
question for a retriever that is still at work.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")

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
