"""Calls of a chat model: so many at once and no more, in order, and let go of at once on an interrupt."""

from __future__ import annotations

import contextvars
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from lazyrag.errors import raise_if_stopped, stop_event

T = TypeVar("T")
R = TypeVar("R")

_LOOK_S = 0.05  # how often a thread that waits looks whether it is still wanted


class Calls:
    """A bound on calls at once, over all threads that make them.

    Args:
        most: How many, at least 1.
    """

    identity = "Calls/1"  # it decides about no result

    def __init__(self, most: int) -> None:
        self.most = most
        self._free = threading.Semaphore(most)

    def in_order(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """What a function makes of each item, in order; several at once.

        Threads of their own call it, so that whoever waits here can leave in the middle of a call: those threads are
        daemons, and begin nothing any more. So it is after the first error as well.

        Raises:
            Exception: The first one that the function raised, at once.
            KeyboardInterrupt: If this thread's work is no longer wanted.
        """
        if len(items) == 1 and stop_event() is None:  # nobody to share the calls with, and Ctrl-C comes here
            with self._free:
                result = function(items[0])
            yield result
            return
        run = _Run(function, items, self._free)
        try:
            run.start(min(self.most, len(items)))
            for index in range(len(items)):
                yield run.result(index)
        finally:
            run.stop()


class Answered:
    """The last answers that could be read, by what was asked: a file that is tried again is not asked about anew.

    Args:
        most: Characters of answers that are kept, the newest ones.
    """

    identity = "Answered/1"  # it decides about no result

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._answers: dict[bytes, tuple[str, bool]] = {}
        self._lock = threading.Lock()

    def get(self, prompt: str) -> tuple[str, bool] | None:
        """The answer to a prompt, and whether it was cut; None where it is not known."""
        with self._lock:
            return self._answers.get(_key(prompt))

    def keep(self, prompt: str, answer: str, *, is_cut: bool) -> None:
        """Keep an answer, and let go of the oldest ones where they are too many."""
        with self._lock:
            for key in [_key(prompt), *self._answers]:
                before = self._answers.pop(key, None)
                self._size -= 0 if before is None else len(before[0])
                if self._size + len(answer) <= self._most:
                    break
            self._answers[_key(prompt)] = answer, is_cut
            self._size += len(answer)


def _key(prompt: str) -> bytes:
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).digest()


class _Run(Generic[T, R]):
    """The items of one caller, and the threads that work on them."""

    def __init__(self, function: Callable[[T], R], items: Sequence[T], free: threading.Semaphore) -> None:
        self._function = function
        self._items = items
        self._free = free
        self._changed = threading.Condition()
        self._begun = 0
        self._results: dict[int, R] = {}
        self._error: BaseException | None = None
        self._is_stopped = False

    def start(self, threads: int) -> None:
        for _ in range(threads):
            context = contextvars.copy_context()
            threading.Thread(target=context.run, args=(self._work,), name="lazyrag call", daemon=True).start()

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True

    def result(self, index: int) -> R:
        while True:
            with self._changed:
                if self._error is not None:
                    raise self._error
                if index in self._results:
                    return self._results.pop(index)
                self._changed.wait(_LOOK_S)
            raise_if_stopped()

    def _work(self) -> None:
        while True:
            with self._free:
                with self._changed:
                    if self._is_stopped or self._begun == len(self._items):
                        return
                    index = self._begun
                    self._begun += 1
                try:
                    result = self._function(self._items[index])
                except BaseException as exc:  # noqa: BLE001  raised where it is waited for
                    with self._changed:
                        self._error = self._error or exc
                        self._is_stopped = True
                        self._changed.notify_all()
                    return
            with self._changed:
                self._results[index] = result
                self._changed.notify_all()
