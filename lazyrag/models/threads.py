"""Threads for what blocks, so that no event loop waits for it.

They are the package's own: `asyncio.run` waits at its end for the loop's default threads, and so would a cancelled
question for a retriever that is still at work.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_MOST = 32

_starting = threading.Lock()
_pools: list[ThreadPoolExecutor] = []  # one, or none before the first use


async def in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a function in a thread, with the caller's context variables.

    Cancelling leaves at once; what the function was doing ends by itself, as no thread can be stopped from outside. A
    call that waits for a free thread is taken back.
    """
    call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_pool(), call)


def _pool() -> ThreadPoolExecutor:
    with _starting:
        if not _pools:
            _pools.append(ThreadPoolExecutor(_MOST, thread_name_prefix="lazyrag-work"))
        return _pools[0]


def _forget() -> None:
    """In a forked child, which has none of the threads: the next call starts some."""
    global _starting  # noqa: PLW0603  the old one may have been held
    _starting = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
