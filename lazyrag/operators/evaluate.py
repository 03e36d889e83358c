"""Evaluating as steps (spec 000): each measures a trace, and hands it on as it is."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from lazyrag.errors import ConfigError, EvaluationError
from lazyrag.evaluation import answers
from lazyrag.evaluation.golden import MeasureReport
from lazyrag.generation.refiners import as_counter
from lazyrag.operators.data import STAGES, RAGData, checked_data, latest_docs, references_of
from lazyrag.operators.operators import Operator
from lazyrag.text.tokens import TokenCounter

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


class AccuracyEvaluate(EvaluateOperator):
    """``accuracy``: 1.0 if the answer is right. It reads ``generated`` and ``references``.

    Args:
        threshold: None: right is an answer in which a reference stands, word by word
            (`lazyrag.evaluation.answers.answer_accuracy`). A number: an answer that has this share of a reference's
            tokens (`overlap_accuracy`); with 0.3, as others have it, many wrong answers are right.

    Raises:
        EvaluationError: If the threshold is not above 0 and at most 1.

    Example:
        >>> AccuracyEvaluate().measure({"generated": "答案是 80 度。", "references": ["80度"]})
        {'accuracy': 1.0}
    """

    def __init__(self, threshold: float | None = None) -> None:
        super().__init__()
        if threshold is not None:
            answers.overlap_accuracy("", [], threshold=threshold)
        self.threshold = threshold

    def measure(self, data: Mapping[str, Any]) -> dict[str, float | None]:
        """See the class."""
        given = answer_of(data)
        if given is None:
            return {"accuracy": None}
        if self.threshold is None:
            return {"accuracy": answers.answer_accuracy(given, references_of(data))}
        return {"accuracy": answers.overlap_accuracy(given, references_of(data), threshold=self.threshold)}


class F1Evaluate(EvaluateOperator):
    """``f1``: `lazyrag.evaluation.answers.token_f1` of ``generated`` and ``references``.

    Example:
        >>> F1Evaluate().measure({"generated": "green tea", "references": ["tea"]})
        {'f1': 0.6666666666666666}
    """

    def measure(self, data: Mapping[str, Any]) -> dict[str, float | None]:
        """See the class."""
        given = answer_of(data)
        return {"f1": None if given is None else answers.token_f1(given, references_of(data))}


class EMEvaluate(EvaluateOperator):
    """``em``: `lazyrag.evaluation.answers.exact_match` of ``generated`` and ``references``.

    Example:
        >>> EMEvaluate().measure({"generated": "The tea.", "references": ["tea"]})
        {'em': 1.0}
    """

    def measure(self, data: Mapping[str, Any]) -> dict[str, float | None]:
        """See the class."""
        given = answer_of(data)
        return {"em": None if given is None else answers.exact_match(given, references_of(data))}


class ContextRecallEvaluate(EvaluateOperator):
    """How much of the references was answered, and how much was found.

    ``context_recall`` is spec 000's measure, which reads ``generated``: `lazyrag.evaluation.answers.answer_recall`.
    ``found_recall`` asks the texts themselves (`lazyrag.evaluation.answers.context_recall`): those of
    ``refining_docs``, else ``reranking_docs``, else ``retrieval_docs``.

    Example:
        >>> data = {"retrieval_docs": ["Green tea."], "generated": "It is green.", "references": ["green tea"]}
        >>> ContextRecallEvaluate().measure(data)
        {'context_recall': 0.5, 'found_recall': 1.0}
    """

    def measure(self, data: Mapping[str, Any]) -> dict[str, float | None]:
        """See the class."""
        references, given = references_of(data), answer_of(data)
        stage, docs = latest_docs(data)
        return {
            "context_recall": None if given is None else answers.answer_recall(given, references),
            "found_recall": answers.context_recall(docs, references) if stage else None,
        }


class TokenCountEvaluate(EvaluateOperator):
    """``token_count``: the tokens of ``refining_docs``, else ``reranking_docs``, else ``retrieval_docs``, together.

    Args:
        counter: Counts them: the name of a registered counter, or an object with ``name`` and ``count(text)``. A count
            means little without the name of its counter, so that is part of the measure's name: ``token_count_utf8``.

    Raises:
        NotRegisteredError: If no counter has the name.

    Example:
        >>> TokenCountEvaluate().measure({"refining_docs": [], "retrieval_docs": ["绿茶", "tea"]})
        {'token_count_utf8': 3}
    """

    def __init__(self, counter: TokenCounter | str = "utf8") -> None:
        super().__init__()
        self.counter = as_counter(counter)

    def measure(self, data: Mapping[str, Any]) -> dict[str, float | None]:
        """See the class."""
        stage, docs = latest_docs(data)
        return {f"token_count_{self.counter.name}": answers.total_tokens(docs, self.counter) if stage else None}


class CompressionRateEvaluate(EvaluateOperator):
    """How much shorter ``refining_docs`` are than ``retrieval_docs``, three times.

    ``compression_ratio``: tokens refined divided by tokens retrieved, as in ``refining_results``: 0.3 keeps three
    tenths. ``compression_rate``: the same upside down, 3.3 is a third. ``doc_ratio``: numbers of texts, which is what
    spec 000's formula divides.

    Args:
        counter: See `TokenCountEvaluate`.

    Example:
        >>> data = {"retrieval_docs": ["绿茶绿茶绿", "红"], "refining_docs": ["绿茶"]}
        >>> CompressionRateEvaluate().measure(data)
        {'compression_ratio': 0.3333333333333333, 'compression_rate': 3.0, 'doc_ratio': 0.5}
    """

    def __init__(self, counter: TokenCounter | str = "utf8") -> None:
        super().__init__()
        self.counter = as_counter(counter)

    def measure(self, data: Mapping[str, Any]) -> dict[str, float | None]:
        """See the class."""
        before, after = data.get("retrieval_docs"), data.get("refining_docs")
        if before is None or after is None:
            return {"compression_ratio": None, "compression_rate": None, "doc_ratio": None}
        return {
            "compression_ratio": answers.compression_ratio(before, after, self.counter),
            "compression_rate": answers.compression_rate(before, after, self.counter),
            "doc_ratio": answers.doc_ratio(before, after),
        }


class LatencyEvaluate(EvaluateOperator):
    """Seconds: each stage's that there is, and together.

    ``latency`` is the sum of all stages that there are. ``total_latency`` is spec 000's: refining and generation alone,
    a stage that was left out taking no time.

    Example:
        >>> LatencyEvaluate().measure({"retrieval_time": 0.5, "generation_time": 1.0})
        {'retrieval_time': 0.5, 'generation_time': 1.0, 'latency': 1.5, 'total_latency': 1.0}
    """

    def measure(self, data: Mapping[str, Any]) -> dict[str, float | None]:
        """See the class."""
        stages = {name: data[name] for stage in STAGES if (name := f"{stage}_time") in data}
        for name, value in stages.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                msg = f"{name} is {value!r:.60}; give seconds, at least 0."
                raise EvaluationError(msg)
        named = [stages[name] for name in ("refining_time", "generation_time") if name in stages]
        return {
            **stages,
            "latency": sum(stages.values()) if stages else None,
            "total_latency": sum(named) if named else None,
        }


def evaluate_traces(
    many: Sequence[Mapping[str, Any]], evaluators: Sequence[EvaluateOperator] | None = None
) -> MeasureReport:
    """What several evaluators measure on the traces of a data set, as one report.

    Args:
        many: The traces; they stay as they are.
        evaluators: None: all of this module, by their defaults.

    Raises:
        ConfigError: If an evaluator is none.

    Example:
        >>> traces = [{"query": "How hot?", "generated": "80", "references": ["80"]}, {"query": "How long?"}]
        >>> evaluate_traces(traces, [EMEvaluate()]).counts
        {'em': 1}
    """
    asked = [kind() for kind in EVALUATORS] if evaluators is None else list(evaluators)
    wrong = next((one for one in asked if not isinstance(one, EvaluateOperator)), None)
    if wrong is not None:
        msg = f"An evaluator is {wrong!r:.60}; give an EvaluateOperator, such as AccuracyEvaluate()."
        raise ConfigError(msg)
    traces = [checked_data(data) for data in many]
    rows = [{name: value for one in asked for name, value in one.measure(data).items()} for data in traces]
    return MeasureReport([name_of(data) for data in traces], rows)


EVALUATORS: tuple[type[EvaluateOperator], ...] = (
    AccuracyEvaluate,
    F1Evaluate,
    EMEvaluate,
    ContextRecallEvaluate,
    TokenCountEvaluate,
    CompressionRateEvaluate,
    LatencyEvaluate,
)
"""All of them, in the order of a report."""
