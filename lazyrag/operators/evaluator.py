"""What every evaluator has in common: it measures a trace and hands it on as it is, and keeps a report."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from lazyrag.errors import EvaluationError
from lazyrag.evaluation.report import MeasureReport
from lazyrag.operators.data import RAGData, checked_data
from lazyrag.operators.operator import Operator

Values: TypeAlias = Mapping[str, "float | None"]


class EvaluateOperator(Operator, abc.ABC):
    """Measures traces. As a step it hands out the very dict that it got, and keeps what it measured.

    What a trace lacks is None: not known, and not 0.
    """

    def __init__(self) -> None:
        self._measured: list[tuple[str, Values]] = []

    @abc.abstractmethod
    def measure(self, data: Mapping[str, Any]) -> dict[str, float | None]:
        """The values of a trace, by measure."""

    def process(self, data: RAGData) -> Mapping[str, Any]:
        """Nothing: it is not for evaluators to change data."""
        self._measured.append((name_of(data), self.measure(data)))
        return {}

    def execute(self, data: Mapping[str, Any]) -> RAGData:
        """Measure a trace; the same object comes back."""
        self.process(checked_data(data))
        return cast("RAGData", data)

    async def aexecute(self, data: Mapping[str, Any]) -> RAGData:
        """See `execute`; in any event loop."""
        await self.aprocess(checked_data(data))
        return cast("RAGData", data)

    @property
    def report(self) -> MeasureReport:
        """What was measured as a step so far, in the order of the traces' ends."""
        measured = list(self._measured)
        return MeasureReport([name for name, _ in measured], [row for _, row in measured])


def answer_of(data: Mapping[str, Any]) -> str | None:
    """What was generated; None where nothing was, which is not an empty answer."""
    generated = data.get("generated")
    if generated is not None and not isinstance(generated, str):
        msg = f"generated is {generated!r:.60} ({type(generated).__name__}); give a text."
        raise EvaluationError(msg)
    return generated


def name_of(data: Mapping[str, Any]) -> str:
    """What a report calls a trace: the id of its question, else the question."""
    question = data.get("question")
    told = question.get("id") if isinstance(question, Mapping) else None
    return str(told if told is not None else data.get("query", ""))
