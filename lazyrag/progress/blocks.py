"""Context managers that an interrupt at any instant leaves either entered or left.

Ctrl-C, or another exception of a signal handler, comes where Python looks for signals: when a
function begins, and when a call of C returns. Those of `contextlib` do not run their second half if
it comes at the beginning of ``__exit__``, or before the end of ``__enter__``: a transaction stays
open, and a lock taken, for as long as somebody keeps the traceback, as notebooks do.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def contextmanager(function: Callable[P, Iterator[T]]) -> Callable[P, AbstractContextManager[T]]:
    """Make context managers of a generator function that yields once, as
    `contextlib.contextmanager` does.

    Args:
        function: What comes before its ``yield`` is done or undone by itself; after it, the block
            is left once.

    Example:
        >>> @contextmanager
        ... def lines():
        ...     print("begin")
        ...     try:
        ...         yield 3
        ...     finally:
        ...         print("end")
        >>> with lines() as count:
        ...     print(count)
        begin
        3
        end
    """

    @functools.wraps(function)
    def make(*args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[T]:
        steps = _steps(function(*args, **kwargs))
        block = _Block(max, key=steps.send)
        block.enter = steps.__next__
        return block

    return make


class _Enter(property):
    def __call__(self, block: _Block) -> Any:  # as `contextlib.ExitStack` does
        return block.enter()


class _Block(functools.partial[Any]):
    """A call of `max` whose key sends the arguments of ``__exit__`` one after the other; the first
    is returned.

    Both methods are of C: a Python function could be interrupted at its beginning.
    """

    enter: Callable[[], Any]
    __enter__ = _Enter(operator.attrgetter("enter"))
    __exit__ = functools.partial.__call__


def _steps(generator: Any) -> Generator[Any, BaseException | None, None]:
    """Enter the block, take the three arguments of ``__exit__``, and leave the block."""
    error = None
    try:
        yield next(generator)
        error = yield 0
        yield 0
    # an interrupt between these, or the end of a block that was lost
    except BaseException as exc:  # noqa: BLE001
        error = exc
    if error is None:
        next(generator, None)
    else:
        trace = error.__traceback__
        try:
            generator.throw(error)
        except StopIteration:  # the block has dealt with it
            pass
        finally:
            error.__traceback__ = trace
            error = trace = None
    yield 0


@contextmanager
def acquired(lock: Any, timeout_s: float = -1) -> Iterator[bool]:
    """Hold a lock for a block; yields False if it was not free in time.

    Args:
        lock: One of `threading`.
        timeout_s: How long to wait; -1 for as long as it takes.

    Example:
        >>> import threading
        >>> lock = threading.Lock()
        >>> with acquired(lock), acquired(lock, 0.01) as is_free:
        ...     is_free
        False
    """
    taken: list[bool] = []
    try:
        # one call of C, which takes and notes it
        taken.extend(map(lock.acquire, [True], [timeout_s]))
        yield taken[0]
    finally:
        if any(taken):
            lock.release()


def _nothing() -> Any:
    pass


@contextmanager
def finishing(end: Callable[[], object], begin: Callable[[], T] = _nothing) -> Iterator[T]:
    """Call a function at the end of a block, once more if that is interrupted.

    Args:
        end: May be called twice.
        begin: Called at the beginning; if it fails or is interrupted, ``end`` is called. Its result
            is that of the block.

    Example:
        >>> with finishing(lambda: print("end")):
        ...     print("body")
        body
        end
    """
    try:
        yield begin()
    finally:
        try:
            end()
        except BaseException:
            end()
            raise
