"""How far ingestion is: a bar where someone is watching, a callback for programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from lazyrag.document.step import Step

if TYPE_CHECKING:
    from typing import Self


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a piece of work is.

    Args:
        what: The work: ``"sync"``, ``"transform <group>"``, ``"embed <group> with <embed key>"``,
            ``"copy <group>"``, ...
        step: What was done last.
        done: For how many documents all is done; a document in the making counts by its steps. Of a copy: rows.
        total: How many documents, or rows, there are.
    """

    what: str
    step: str
    done: float
    total: int


OnProgress: TypeAlias = Callable[[Progress], None]
"""Called in the thread that ingests, often: it should take no time. What it raises stops the work."""


class ProgressMeter:
    """Tells how far a piece of work is.

    Args:
        what: The work.
        total: How many documents there are.
        steps: How many steps each of them takes, at most.
        on_progress: Told of every step; None for nobody.
        unit: What is counted.
    """

    def __init__(
        self, what: str, total: int, steps: int, on_progress: OnProgress | None, *, unit: str = "file"
    ) -> None:
        from tqdm import tqdm  # a tenth of the time that importing all of this package takes

        self._what = what
        self._total = total
        self._share = 1.0 / max(1, steps)
        self._on_progress = on_progress
        self._done = 0.0
        # For what takes longer than two seconds, where someone is watching.
        self._bar = tqdm(total=total, desc=what, unit=unit, delay=2, leave=False, disable=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.close()

    def tick(self, step: Step) -> None:
        """One document has taken one step."""
        self._tell(str(step), min(self._total, self._done + self._share))

    def reach(self, done: int) -> None:
        """So many documents are done with all steps, and live."""
        self._tell(self._what, done)

    def _tell(self, step: str, done: float) -> None:
        self._bar.update(done - self._done)
        self._done = done
        if self._on_progress is not None:
            self._on_progress(Progress(self._what, step, done, self._total))
