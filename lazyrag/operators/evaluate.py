"""Evaluation as operators (spec 000): each measures a trace, and passes it on unchanged."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast

from lazyrag.errors import EvaluationError
from lazyrag.evaluation import answers
from lazyrag.evaluation.golden import MeasureReport
from lazyrag.operators.data import STAGES, RAGData, Trace, latest_docs, references_of, validate_data
from lazyrag.operators.operators import Operator
from lazyrag.text.tokens import TokenCounter, resolve_counter
from lazyrag.types import JsonObject
from lazyrag.validation import require

Values: TypeAlias = "dict[str, float | None]"
"""By measure; None if unknown."""


class EvaluateOperator(Operator, abc.ABC):
    """Base class of operators that measure traces. A step returns the very dict it got, and records
    its values.

    If a trace lacks a field, the value is None (unknown), not 0.
    """

    def __init__(self) -> None:
        self._measured: list[tuple[str, Values]] = []

    @abc.abstractmethod
    def measure(self, data: Trace) -> Values:
        """Return the values of a trace, by measure."""

    def process(self, data: RAGData) -> Trace:
        """Record the values; append nothing."""
        self._measured.append((trace_name(data), self.measure(data)))
        return {}

    def _result(self, trace: RAGData, _: Trace) -> JsonObject:
        return cast("JsonObject", trace)

    @property
    def report(self) -> MeasureReport:
        """The values recorded so far, in the order in which the traces ended."""
        measured = list(self._measured)
        return MeasureReport([name for name, _ in measured], [row for _, row in measured])


def answer_of(data: Trace) -> str | None:
    """Return the generated answer; None if there is none, which differs from an empty answer."""
    generated: str | None = data.get("generated")
    require(
        generated is None or isinstance(generated, str),
        "generated",
        generated,
        "a string",
        error=EvaluationError,
    )
    return generated


def trace_name(data: Trace) -> str:
    """Return the name of a trace in reports: the id of its question, else the query."""
    question = data.get("question")
    identifier = question.get("id") if isinstance(question, Mapping) else None
    return str(identifier if identifier is not None else data.get("query", ""))


def _measure_answer(
    name: str, data: Trace, measure: Callable[[str, Sequence[str]], float | None]
) -> Values:
    answer = answer_of(data)
    return {name: None if answer is None else measure(answer, references_of(data))}


class AccuracyEvaluate(EvaluateOperator):
    """``accuracy``: 1.0 if the answer is right. Reads ``generated`` and ``references``.

    Args:
        threshold: None: an answer is right if it contains a reference, token by token
            (`lazyrag.evaluation.answers.answer_accuracy`). A number: an answer is right if it has
            this share of a reference's tokens (`overlap_accuracy`); at 0.3, which others use, many
            wrong answers pass.

    Raises:
        EvaluationError: If the threshold is not above 0 and at most 1.

    Example:
        >>> AccuracyEvaluate().measure({"generated": "答案是 80 度。", "references": ["80度"]})
        {'accuracy': 1.0}
    """

    def __init__(self, threshold: float | None = None) -> None:
        super().__init__()
        if threshold is not None:
            answers.validate_threshold(threshold)
        self.threshold = threshold

    def measure(self, data: Trace) -> Values:
        """See the class."""
        threshold = self.threshold
        if threshold is None:
            return _measure_answer("accuracy", data, answers.answer_accuracy)
        return _measure_answer(
            "accuracy",
            data,
            lambda *arguments: answers.overlap_accuracy(*arguments, threshold=threshold),
        )


class F1Evaluate(EvaluateOperator):
    """``f1``: `lazyrag.evaluation.answers.token_f1` of ``generated`` and ``references``.

    Example:
        >>> F1Evaluate().measure({"generated": "green tea", "references": ["tea"]})
        {'f1': 0.6666666666666666}
    """

    def measure(self, data: Trace) -> Values:
        """See the class."""
        return _measure_answer("f1", data, answers.token_f1)


class EMEvaluate(EvaluateOperator):
    """``em``: `lazyrag.evaluation.answers.exact_match` of ``generated`` and ``references``.

    Example:
        >>> EMEvaluate().measure({"generated": "The tea.", "references": ["tea"]})
        {'em': 1.0}
    """

    def measure(self, data: Trace) -> Values:
        """See the class."""
        return _measure_answer("em", data, answers.exact_match)


class ContextRecallEvaluate(EvaluateOperator):
    """Share of the references that was answered, and that was found.

    ``context_recall`` is spec 000's measure, which reads ``generated``:
    `lazyrag.evaluation.answers.answer_recall`. ``found_recall`` measures the texts
    (`lazyrag.evaluation.answers.context_recall`): those of ``refining_docs``, else
    ``reranking_docs``, else ``retrieval_docs``.

    Example:
        >>> data = {"generated": "It is green.", "references": ["green tea"]}
        >>> data["retrieval_docs"] = ["Green tea."]
        >>> ContextRecallEvaluate().measure(data)
        {'context_recall': 0.5, 'found_recall': 1.0}
    """

    def measure(self, data: Trace) -> Values:
        """See the class."""
        stage, docs = latest_docs(data)
        recall = answers.context_recall(docs, references_of(data)) if stage else None
        return {
            **_measure_answer("context_recall", data, answers.answer_recall),
            "found_recall": recall,
        }


class _CountingEvaluate(EvaluateOperator):
    """Base of the measures that count tokens."""

    def __init__(self, counter: TokenCounter | str = "utf8") -> None:
        super().__init__()
        self.counter = resolve_counter(counter)


class TokenCountEvaluate(_CountingEvaluate):
    """``token_count``: total tokens of ``refining_docs``, else ``reranking_docs``, else
    ``retrieval_docs``.

    Args:
        counter: The name of a registered counter, or an object with ``name`` and ``count(text)``.
            Its name is part of the measure's name: ``token_count_utf8``.

    Raises:
        NotRegisteredError: If no counter has the name.

    Example:
        >>> TokenCountEvaluate().measure({"refining_docs": [], "retrieval_docs": ["绿茶", "tea"]})
        {'token_count_utf8': 3}
    """

    def measure(self, data: Trace) -> Values:
        """See the class."""
        stage, docs = latest_docs(data)
        tokens = answers.total_tokens(docs, self.counter) if stage else None
        return {f"token_count_{self.counter.name}": tokens}


class CompressionRateEvaluate(_CountingEvaluate):
    """Compression of ``refining_docs`` compared with ``retrieval_docs``.

    ``compression_rate``: tokens refined divided by tokens retrieved: 0.3 keeps three tenths.
    ``doc_ratio``: numbers of texts, as in spec 000's formula.

    Args:
        counter: See `TokenCountEvaluate`.

    Example:
        >>> data = {"retrieval_docs": ["绿茶绿茶绿", "红"], "refining_docs": ["绿茶"]}
        >>> CompressionRateEvaluate().measure(data)
        {'compression_rate': 0.3333333333333333, 'doc_ratio': 0.5}
    """

    def measure(self, data: Trace) -> Values:
        """See the class."""
        before = data.get("retrieval_docs")
        after = data.get("refining_docs")
        if before is None or after is None:
            return {"compression_rate": None, "doc_ratio": None}
        return {
            "compression_rate": answers.compression_rate(before, after, self.counter),
            "doc_ratio": answers.doc_ratio(before, after),
        }


class LatencyEvaluate(EvaluateOperator):
    """Seconds of each stage, and in total.

    ``latency`` is the sum of all stages, None without any. ``total_latency`` is spec 000's:
    refining and generation alone; a skipped stage takes no time.

    Example:
        >>> LatencyEvaluate().measure({"retrieval_time": 0.5, "generation_time": 1.0})
        {'retrieval_time': 0.5, 'generation_time': 1.0, 'latency': 1.5, 'total_latency': 1.0}
    """

    def measure(self, data: Trace) -> Values:
        """See the class."""
        names = [f"{stage}_time" for stage in STAGES]
        stages = {name: data[name] for name in names if name in data}
        for name, value in stages.items():
            is_valid = (
                isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
            )
            require(is_valid, name, value, "a number of seconds >= 0", error=EvaluationError)
        total = stages.get("refining_time", 0.0) + stages.get("generation_time", 0.0)
        latency = sum(stages.values()) if stages else None
        return {**stages, "latency": latency, "total_latency": total}


def evaluate_traces(
    many: Sequence[Trace], evaluators: Sequence[EvaluateOperator] | None = None
) -> MeasureReport:
    """Measure the traces of a data set with several evaluators.

    Args:
        many: The traces; they stay unchanged.
        evaluators: None: all of this module, with their defaults.

    Raises:
        ConfigError: If an evaluator is not an `EvaluateOperator`.

    Example:
        >>> traces = [{"query": "How hot?", "generated": "80", "references": ["80"]}]
        >>> traces.append({"query": "How long?"})
        >>> evaluate_traces(traces, [EMEvaluate()]).counts
        {'em': 1}
    """
    chosen = [kind() for kind in EVALUATORS] if evaluators is None else list(evaluators)
    for step in chosen:
        require(
            isinstance(step, EvaluateOperator),
            "evaluators",
            step,
            "EvaluateOperators such as AccuracyEvaluate()",
        )
    names = []
    rows = []
    for trace in map(validate_data, many):
        values = {}
        for step in chosen:
            values.update(step.measure(trace))
        names.append(trace_name(trace))
        rows.append(values)
    return MeasureReport(names, rows)


EVALUATORS: tuple[type[EvaluateOperator], ...] = (
    AccuracyEvaluate,
    F1Evaluate,
    EMEvaluate,
    ContextRecallEvaluate,
    TokenCountEvaluate,
    CompressionRateEvaluate,
    LatencyEvaluate,
)
"""All evaluators, in the order of a report."""
