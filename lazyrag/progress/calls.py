"""Progress of long calls, and cancelling them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from lazyrag.errors import CanceledError
from lazyrag.progress.bar import ProgressTask
from lazyrag.progress.blocks import contextmanager
from lazyrag.validation import require

if TYPE_CHECKING:
    from typing import Self


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an operation.

    Args:
        what: The operation: ``"sync"``, ``"transform <group>"``,
            ``"embed <group> with <embed key>"``, ``"copy <group>"``, ...
        step: The last step.
        done: Number of finished documents, unfinished ones counted by their steps; of embedded
            nodes, while a group is embedded for the first time; rows for a copy.
        total: Number of documents, nodes or rows.
    """

    what: str
    step: str
    done: float
    total: int


OnProgress: TypeAlias = Callable[[Progress], None]
"""Called often, in the thread that ingests: it should return at once. Its exceptions stop the
operation."""


_call: ContextVar[tuple[OnProgress | None, threading.Event | None]] = ContextVar(
    "call", default=(None, None)
)


@contextmanager
def during_call(
    on_progress: OnProgress | None = None, cancel: threading.Event | None = None
) -> Iterator[None]:
    """Report the progress of what is done in the block, and stop it at a safe point once an event
    is set.

    Args:
        on_progress: Called with the progress; None for the function of an outer block.
        cancel: The event; None for that of an outer block.

    Raises:
        CanceledError: If the event is set.
    """
    require(
        on_progress is None or callable(on_progress),
        "on_progress",
        on_progress,
        "a function or None",
    )
    is_event = cancel is None or callable(getattr(cancel, "is_set", None))
    require(is_event, "cancel", cancel, "a threading.Event or None")
    outer = _call.get()
    try:
        _call.set((on_progress or outer[0], cancel or outer[1]))
        raise_if_canceled()
        yield
    finally:
        _call.set(outer)


def raise_if_canceled() -> None:
    """Check, at a point where the work can safely stop, whether it is to stop.

    Raises:
        CanceledError: If the event of the call is set.
    """
    _, cancel = _call.get()
    if cancel is not None and cancel.is_set():
        raise CanceledError(
            "The call was cancelled. What was finished is stored; call it again to do the rest."
        )


class ProgressMeter:
    """Reports the progress of an operation, and stops it where its call is cancelled, see
    `during_call`.

    Args:
        label: The operation.
        total: Number of documents, or of what the unit is.
        steps: Maximum number of steps for each of them.
        unit: Unit of the progress bar. With ``"node"``, the time left is right for documents of any
            size.
    """

    def __init__(
        self,
        label: str,
        total: int,
        steps: int,
        *,
        unit: str = "file",
    ) -> None:
        self._label = label
        self._total = total
        self._is_of_nodes = unit == "node"
        self._share = 1.0 / max(1, steps)
        self._on_progress = _call.get()[0]
        self._done = 0.0
        self._work = ProgressTask(label, total, unit)

    def __enter__(self) -> Self:
        self._work.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._work.__exit__(*exc_info)

    def tick(self, step: object) -> None:
        """Count one step of one document."""
        raise_if_canceled()
        if not self._is_of_nodes:
            self._report(str(step), min(self._total, self._done + self._share))

    def tick_nodes(self, count: int) -> None:
        """Count embedded nodes."""
        raise_if_canceled()
        if self._is_of_nodes:
            self._report(self._label, min(self._total, self._done + count))

    def reach(self, done: int) -> None:
        """Set the number of documents, or nodes, that are finished."""
        self._report(self._label, done)

    def _report(self, step: str, done: float) -> None:
        self._done = done
        self._work.reach(done)
        if self._on_progress is not None:
            self._on_progress(Progress(self._label, step, done, self._total))
        raise_if_canceled()
