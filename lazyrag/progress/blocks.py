"""Context managers that an interrupt at any instant leaves either entered or left.

Ctrl-C, or another exception of a signal handler, comes where Python looks for signals: when a function begins, and when
a call of C returns. Those of `contextlib` do not run their second half if it comes at the beginning of ``__exit__``, or
before the end of ``__enter__``: a transaction stays open, and a lock taken, for as long as somebody keeps the
traceback, as notebooks do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def contextmanager(function: Callable[P, Iterator[T]]) -> Callable[P, AbstractContextManager[T]]:
    """Make context managers of a generator function that yields once, as `contextlib.contextmanager` does.

    Args:
        function: What comes before its ``yield`` is done or undone by itself; after it, the block is left once.

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
        return _Block(function(*args, **kwargs))

    return make


class _Exit:
    """The method ``__exit__`` of blocks, without a Python function whose beginning could be interrupted."""

    def __get__(self, block: _Block[Any] | None, _: object = None) -> Any:
        # Sends the three arguments one after the other, within one call of C; the first is returned.
        return self if block is None else functools.partial(max, key=block.steps.send)

    def __call__(self, block: _Block[Any], *error: object) -> Any:  # as `contextlib.ExitStack` does
        return self.__get__(block)(*error)


class _Block(AbstractContextManager[T]):
    __slots__ = ("steps",)

    def __init__(self, generator: Iterator[T]) -> None:
        self.steps = _steps(generator)

    def __enter__(self) -> T:
        try:
            return next(self.steps)  # type: ignore[no-any-return]
        except BaseException:
            self.steps.close()
            raise

    __exit__: Any = _Exit()


def _steps(generator: Any) -> Generator[Any, BaseException | None, None]:
    """Enter the block, take the three arguments of ``__exit__``, and leave the block."""
    error = None
    try:
        yield next(generator)
        error = yield 0
        yield 0
    except BaseException as exc:  # noqa: BLE001  an interrupt between these, or the end of a block that was lost
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
        taken.extend(map(lock.acquire, [True], [timeout_s]))  # one call of C, which takes and notes it
        yield taken[0]
    finally:
        if any(taken):
            lock.release()


@contextmanager
def finishing(end: Callable[[], object]) -> Iterator[None]:
    """Call a function at the end of a block, once more if that is interrupted.

    Args:
        end: May be called twice.

    Example:
        >>> with finishing(lambda: print("end")):
        ...     print("body")
        body
        end
    """
    try:
        yield
    finally:
        try:
            end()
        except BaseException:
            end()
            raise
