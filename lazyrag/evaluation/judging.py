"""Asks golden questions and says whether what is found is good enough."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit
from lazyrag.document.document import Document
from lazyrag.errors import ConfigError
from lazyrag.evaluation.finding import has_answer
from lazyrag.evaluation.golden import Golden, located_labels
from lazyrag.evaluation.golden_measures import GoldenMeasure
from lazyrag.evaluation.measures import evaluate
from lazyrag.evaluation.spans import SourceSpan, source_span
from lazyrag.retrieval.stages import NodeRetriever, asked_nodes

_ROUNDING = 1e-9  # a mean of thirds is no third


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a measure came out.

    Args:
        measure: Its name.
        value: Its mean over the questions that have what it reads.
        threshold: The least mean that passes.
        questions: How many questions those are.

    Example:
        >>> Verdict("recall@5", 0.75, 0.8, 20).passed
        False
    """

    measure: str
    value: float
    threshold: float
    questions: int

    @property
    def passed(self) -> bool:
        """Whether the mean reaches the threshold."""
        return self.value >= self.threshold - _ROUNDING


@dataclass(frozen=True, slots=True)
class JudgedQuestion:
    """How one question came out.

    Args:
        question: The question.
        line: Where the file asks it.
        values: By measure, for those that read what the question has.
        found: What was found, best first.
    """

    question: str
    line: int
    values: Mapping[str, float]
    found: tuple[Hit, ...]


@dataclass(frozen=True, slots=True)
class GoldenReport:
    """How golden questions came out.

    Args:
        verdicts: One for each threshold, in the file's order.
        questions: In the file's order.
    """

    verdicts: tuple[Verdict, ...]
    questions: tuple[JudgedQuestion, ...]

    @property
    def passed(self) -> bool:
        """Whether every measure reaches its threshold."""
        return all(verdict.passed for verdict in self.verdicts)

    def missed(self) -> list[JudgedQuestion]:
        """The questions that are below the threshold of a measure that failed: where to look first."""
        failed = [verdict for verdict in self.verdicts if not verdict.passed]
        return [
            one
            for one in self.questions
            if any(one.values.get(verdict.measure, 1.0) < verdict.threshold for verdict in failed)
        ]

    def to_dict(self) -> dict[str, Any]:
        """All of it as values of JSON."""
        return {
            "passed": self.passed,
            "measures": [
                {
                    "measure": one.measure,
                    "value": one.value,
                    "threshold": one.threshold,
                    "questions": one.questions,
                    "passed": one.passed,
                }
                for one in self.verdicts
            ],
            "questions": [
                {
                    "question": one.question,
                    "line": one.line,
                    "values": dict(one.values),
                    "found": [
                        {
                            "id": hit.id,
                            "source": hit.source,
                            "place": hit.metadata.get("place", ""),
                            "score": _known(hit),
                        }
                        for hit in one.found
                    ],
                }
                for one in self.questions
            ],
        }


def _known(hit: Hit) -> float | None:
    return None if math.isnan(hit.score) else hit.score  # JSON has no nan


def judge(golden: Golden, docs: Document | None = None, retriever: NodeRetriever | None = None) -> GoldenReport:
    """Ask golden questions, measure what is found, and compare the means with the thresholds.

    Args:
        golden: The questions, of `read_golden`.
        docs: The Document that is asked; None: the one that the file describes, opened and closed here.
        retriever: Any retriever over it, asked for as many nodes as the file says; None: the one that the file
            describes.

    Returns:
        The report.

    Raises:
        ConfigError: If what must be found does not stand in the documents; the message begins with file and line.
        RetrievalError: If the retriever returns something else than nodes.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from lazyrag.evaluation import read_golden
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "tea.txt").write_text("Green tea needs water of 80 degrees.")
        ...     path = Path(folder, "golden.json")
        ...     _ = path.write_text('''{
        ...         "documents": "tea.txt",
        ...         "questions": [{"question": "How hot is the water?", "texts": ["80 degrees"]}],
        ...         "thresholds": {"span_recall@3": 0.9}
        ...     }''')
        ...     judge(read_golden(path)).verdicts
        (Verdict(measure='span_recall@3', value=1.0, threshold=0.9, questions=1),)
    """
    with golden.open() if docs is None else nullcontext(docs) as opened:
        places = located_labels(golden, opened)
        asked = golden.retriever(opened) if retriever is None else retriever
        found = {one.question: asked_nodes(asked, one.question, None, golden.settings.topk) for one in golden.questions}
        _check_ids(golden, opened)  # now the groups are built
        values = {measure.name: _values(measure, golden, found, places) for measure in golden.thresholds}
        hits = {question: tuple(map(Hit.from_node, nodes)) for question, nodes in found.items()}
    verdicts = tuple(
        Verdict(measure.name, math.fsum(of.values()) / len(of), threshold, len(of))
        for (measure, threshold), of in zip(golden.thresholds.items(), values.values(), strict=True)
    )
    questions = tuple(
        JudgedQuestion(
            one.question,
            one.line,
            {name: of[one.question] for name, of in values.items() if one.question in of},
            hits[one.question],
        )
        for one in golden.questions
    )
    return GoldenReport(verdicts, questions)


def _check_ids(golden: Golden, docs: Document) -> None:
    for question in golden.questions:
        unknown = [uid for uid in question.ids if not docs.reader.held(uid)]
        if unknown:
            msg = (
                f"{golden.path}, line {question.line}: No node has the id {unknown[0]!r:.60} in the groups "
                "that are built. Copy a node's uid, or give a span or a text, which survive another cutting."
            )
            raise ConfigError(msg)


def _values(
    measure: GoldenMeasure,
    golden: Golden,
    found: Mapping[str, Sequence[DocNode]],
    places: Mapping[str, Sequence[SourceSpan]],
) -> Mapping[str, float]:
    """What a measure gives for each question that has what it reads."""
    read = [one for one in golden.questions if measure.is_told_by(one)]
    if measure.of_answers:
        return {
            one.question: has_answer(
                [node.get_content() for node in found[one.question]], one.references, measure.depth
            )
            for one in read
        }
    run: dict[str, list[tuple[Any, float]]]  # the order counts, the scores do not
    if measure.of_places:
        judgements: dict[str, dict[Any, int]] = {one.question: dict.fromkeys(places[one.question], 1) for one in read}
        run = {one.question: [(source_span(node), 0.0) for node in found[one.question]] for one in read}
    else:
        judgements = {one.question: dict.fromkeys(one.ids, 1) for one in read}
        run = {one.question: [(node.uid, 0.0) for node in found[one.question]] for one in read}
    return evaluate(run, judgements, [measure.name]).values[measure.name]
