"""Golden questions: a file with questions, what must be found for each, and how good is good enough."""

from __future__ import annotations

import json
import math
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit
from lazyrag.document.document import Document
from lazyrag.errors import ConfigError, EvaluationError, known_names, missing_package, nearest
from lazyrag.evaluation.answers import mean
from lazyrag.evaluation.interface import Checked
from lazyrag.evaluation.metrics import SourceSpan, evaluate, measure, source_span
from lazyrag.loaders.records import Located, located_json
from lazyrag.retrieval.hybrid import RetrievalMethod, retriever_for
from lazyrag.retrieval.similarity import similarities
from lazyrag.retrieval.stages import NodeRetriever, asked_nodes
from lazyrag.text.sentences import CJK_LETTERS
from lazyrag.validation import text_list, whole_number

_CJK = re.compile(f"[{CJK_LETTERS}]")
_WORD_EDGE = re.compile(r"[a-z0-9]")


@dataclass(frozen=True, slots=True)
class Texts:
    r"""The whole texts of documents, in which labels are looked up.

    Args:
        by_path: By path, the text of the root node.

    Example:
        >>> Texts({"tea.txt": "Pick it.\nDry it."}).only_place("it. Dry", "", line=3)
        SourceSpan(path='tea.txt', start=5, end=12)
    """

    by_path: Mapping[str, str]

    def span(self, path: str, start: int | None, end: int | None, line: int) -> SourceSpan:
        """A span that lies within a document; the whole document without start and end.

        Raises:
            ConfigError: If there is no such document, or it ends before; the message begins with the line.
        """
        text = self._text(path, line)
        if start is None or end is None:
            return SourceSpan(path, 0, len(text))
        if end > len(text):
            msg = f"line {line}: The span ends at {end}, and {path!r} has {len(text)} characters. Count anew."
            raise ConfigError(msg)
        return SourceSpan(path, start, end)

    def only_place(self, words: str, path: str, line: int) -> SourceSpan:
        """The one place in which words stand, where white space between them may be any.

        Args:
            words: As they stand in a document.
            path: In which document; "" where they stand in one only.
            line: For messages.

        Raises:
            ConfigError: If they stand nowhere, or in several places; the message begins with the line.
        """
        pattern = re.compile(r"\s+".join(map(re.escape, words.split())))
        searched = {path: self._text(path, line)} if path else self.by_path
        found = [SourceSpan(name, *match.span()) for name, text in searched.items() for match in pattern.finditer(text)]
        if len(found) == 1:
            return found[0]
        where = repr(path) if path else "the documents"
        if not found:
            msg = f"line {line}: The text {words!r:.60} does not stand in {where}. Copy it as it stands there."
        else:
            paths = ", ".join(sorted({one.path for one in found})[:3])
            msg = (
                f"line {line}: The text {words!r:.60} stands in {len(found)} places ({paths}). Give a longer one, or "
                "its path."
            )
        raise ConfigError(msg)

    def _text(self, path: str, line: int) -> str:
        if path not in self.by_path:
            near = nearest(path, self.by_path)
            meant = f"Did you mean {near!r}?" if near else "Give the path relative to the documents' folder."
            msg = f"line {line}: None of the {len(self.by_path)} documents is named {path!r}. {meant}"
            raise ConfigError(msg)
        return self.by_path[path]


def has_answer(texts: Sequence[str], references: Sequence[str], k: int | None = None) -> float:
    """Whether one of the first k texts contains one of the answers: 1 or 0.

    Both are compared case-folded and in compatibility form (NFKC). White space counts as one space, between Chinese
    letters not at all. An answer that begins or ends with a Latin letter or digit must begin or end a word.

    Args:
        texts: What was found, best first.
        references: Answers, any of which will do.
        k: How many of the texts count; None: all of them.

    Raises:
        ConfigError: If the answers are no list of texts, or one of them is blank.

    Source:
        The answer recall of retrievers: Karpukhin et al.: Dense Passage Retrieval, EMNLP 2020,
        doi:10.18653/v1/2020.emnlp-main.550.

    Example:
        >>> has_answer(["Steep at 80 degrees."], ["80 Degrees"]), has_answer(["Steep for 180 s."], ["80"])
        (1.0, 0.0)
    """
    answers = text_list("references", references)
    first = texts if k is None else texts[: whole_number("k", k, 1)]
    patterns = [_pattern(_normal(reference)) for reference in answers]
    return float(any(pattern.search(text) for text in map(_normal, first) for pattern in patterns))


def _normal(text: str) -> str:
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return re.sub(rf"(?<=[{CJK_LETTERS}]) | (?=[{CJK_LETTERS}])", "", folded) if _CJK.search(folded) else folded


def _pattern(answer: str) -> re.Pattern[str]:
    before = r"(?<![a-z0-9])" if _WORD_EDGE.match(answer) else ""
    behind = r"(?![a-z0-9])" if _WORD_EDGE.match(answer[-1:]) else ""
    return re.compile(before + re.escape(answer) + behind)


_OF_IDS: tuple[str, ...] = ("ids",)
_OF_PLACES: tuple[str, ...] = ("spans", "texts")
_OF_ANSWERS: tuple[str, ...] = ("references",)


@dataclass(frozen=True, slots=True)
class GoldenMeasure:
    """A measure, and what it reads.

    Args:
        name: As tables show it: ``"span_recall@5"``.
        reads: The labels that it compares with; a question that has none of them does not count.
        depth: How many nodes it looks at; None for all.
    """

    name: str
    reads: tuple[str, ...]
    depth: int | None

    def is_told_by(self, question: object) -> bool:
        """Whether a `GoldenQuestion` has something that it reads."""
        return any(getattr(question, label) for label in self.reads)

    @property
    def of_answers(self) -> bool:
        """Whether it looks for an answer in the texts."""
        return self.reads == _OF_ANSWERS

    @property
    def of_places(self) -> bool:
        """Whether it compares source spans."""
        return self.reads == _OF_PLACES


def golden_measure(name: str) -> GoldenMeasure:
    """A measure by its name: one that `lazyrag.evaluation.measure` knows, or ``answer@k``, see `has_answer`.

    Raises:
        ConfigError: If there is no such measure.

    Example:
        >>> golden_measure("char_recall@5").reads, golden_measure("answer@3").reads, golden_measure("mrr").reads
        (('spans', 'texts'), ('references',), ('ids',))
    """
    metric, at, depth = name.partition("@")
    if metric.lower() == "answer":
        if at and not (depth.isdecimal() and int(depth) >= 1):
            msg = f"The measure {name!r} needs a whole number of at least 1 after the @, such as answer@10."
            raise ConfigError(msg)
        named, reads = "answer" + (f"@{int(depth)}" if at else ""), _OF_ANSWERS
    else:
        named = measure(name).name
        reads = _OF_PLACES if named.startswith(("char_", "span_")) else _OF_IDS
    return GoldenMeasure(named, reads, int(depth) if at else None)


LABELS = ("ids", "spans", "texts", "references")
"""What a question may be judged by."""


@dataclass(frozen=True, slots=True)
class SpanLabel:
    """A stretch of a document that must be found; without a stretch, any part of the document.

    Args:
        path: The document.
        start: First character, from 0; None for the whole document.
        end: One past the last character.
        line: Where the file says so.
    """

    path: str
    start: int | None
    end: int | None
    line: int


@dataclass(frozen=True, slots=True)
class TextLabel:
    """Words of the documents that must be found, wherever they stand after the next cutting.

    Args:
        text: As it stands in a document, white space aside; in one place only.
        path: In which document; "" where it is the only one.
        line: Where the file says so.
    """

    text: str
    path: str
    line: int


@dataclass(frozen=True, slots=True)
class GoldenQuestion:
    """A question and what must be found for it.

    Args:
        question: The question.
        line: Where the file asks it.
        ids: Uids of nodes.
        spans: Stretches of documents.
        texts: Words of documents.
        references: Answers; one of them must stand in what is found.
    """

    question: str
    line: int
    ids: tuple[str, ...] = ()
    spans: tuple[SpanLabel, ...] = ()
    texts: tuple[TextLabel, ...] = ()
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RetrieverSettings:
    """How the questions are asked, where the caller brings no retriever.

    Args:
        method: A value of `RetrievalMethod`.
        group: The node group.
        topk: How many nodes are asked for; no measure may look further.
        similarity: Of the search by words.
    """

    method: str = "full_text_search"
    group: str = "FineChunk"
    topk: int = 10
    similarity: str = "bm25_chinese"


@dataclass(frozen=True, slots=True)
class Golden:
    """A file of golden questions, read and checked. `judge` asks them.

    Args:
        path: The file.
        questions: At least one.
        thresholds: By measure, the least mean that passes.
        documents: The folder, or the file; None where stores have it.
        store_conf: See `Document`.
        name: See `Document`.
        embedder: Folder of an ONNX model, for searches by embeddings.
        settings: How the questions are asked.
    """

    path: Path
    questions: tuple[GoldenQuestion, ...]
    thresholds: Mapping[GoldenMeasure, float]
    documents: Path | None = None
    store_conf: Mapping[str, Any] | None = None
    name: str | None = None
    embedder: Path | None = None
    settings: RetrieverSettings = field(default_factory=RetrieverSettings)

    def open(self) -> Document:
        """The Document that the file names; read-only where only stores are named. Close it, or use ``with``."""
        embed = None
        if self.embedder is not None:
            from lazyrag.models.onnx.models import OnnxEmbedder  # needs an extra

            embed = OnnxEmbedder(self.embedder)
        return Document(
            self.documents, embed, store_conf=self.store_conf, name=self.name, read_only=self.documents is None
        )

    def retriever(self, docs: Document) -> NodeRetriever:
        """The retriever that the file describes."""
        settings = self.settings
        return retriever_for(settings.method, docs, settings.group, settings.topk, similarity=settings.similarity)


def read_golden(path: str | Path) -> Golden:
    """Read and check a file of golden questions: ``.yaml``, ``.yml`` or ``.json``, in UTF-8.

    Args:
        path: The file. Paths in it are relative to its folder, but for those in ``store_conf``, which are used as
            they are.

    Raises:
        ConfigError: If it cannot be read, or something in it is unknown, missing, or of another kind; the message
            begins with the file and the line.
        MissingDependencyError: For YAML, if PyYAML is not installed: ``pip install "lazyrag[yaml]"``.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        msg = f"The golden file {str(path)!r} cannot be read ({exc}). Give a file in UTF-8."
        raise ConfigError(msg) from exc
    try:
        return _golden(path, _located(path, text))
    except ConfigError as exc:
        msg = f"{path}, {exc}" if str(exc).startswith("line ") else f"{path}: {exc}"
        raise ConfigError(msg) from exc


def _located(path: Path, text: str) -> Located:
    if path.suffix == ".json":
        return located_json(text)
    if path.suffix not in (".yaml", ".yml"):
        msg = f"The suffix {path.suffix!r} tells no format. {known_names(path.suffix, ('.json', '.yaml', '.yml'))}"
        raise ConfigError(msg)
    try:
        from lazyrag.loaders.yaml_records import located_yaml  # needs an extra
    except ModuleNotFoundError as exc:
        raise missing_package(f"The golden file {path.name!r}", exc, "yaml") from exc
    return located_yaml(text)


def _golden(path: Path, held: Located) -> Golden:
    file = Checked("The file", held)
    entries = file.mapping(
        "documents",
        "store_conf",
        "name",
        "embedder",
        "retriever",
        "questions",
        "thresholds",
        required=("questions", "thresholds"),
    )
    if "documents" not in entries and "store_conf" not in entries:
        raise file.wrong("has neither 'documents' nor 'store_conf'. Say where the documents are.")
    settings = _settings(entries["retriever"]) if "retriever" in entries else RetrieverSettings()
    questions = tuple(_question(number, one) for number, one in enumerate(entries["questions"].items(), start=1))
    _check_once(questions)
    return Golden(
        path,
        questions,
        _thresholds(entries["thresholds"], questions, settings.topk),
        documents=_documents(path, entries["documents"]) if "documents" in entries else None,
        store_conf=entries["store_conf"].plain_mapping() if "store_conf" in entries else None,
        name=entries["name"].text() if "name" in entries else None,
        embedder=entries["embedder"].path(path.parent) if "embedder" in entries else None,
        settings=settings,
    )


def _documents(path: Path, held: Checked) -> Path:
    found = held.path(path.parent)
    if path.resolve().is_relative_to(found.resolve()):
        raise held.wrong(
            f"is {held.text()!r}, which this file lies in: its questions would be found in itself. Put it elsewhere."
        )
    return found


def _settings(held: Checked) -> RetrieverSettings:
    entries = held.mapping("method", "group", "topk", "similarity")
    texts = {name: entries[name].text() for name in ("method", "group", "similarity") if name in entries}
    for name, known in (("method", [one.value for one in RetrievalMethod]), ("similarity", similarities)):
        if name in texts and texts[name] not in known:
            raise entries[name].wrong(f"is {texts[name]!r:.60}. {known_names(texts[name], known)}")
    return RetrieverSettings(**texts, topk=entries["topk"].whole(1) if "topk" in entries else RetrieverSettings().topk)


def _question(number: int, held: Checked) -> GoldenQuestion:
    asked = held.called(f"Question {number}")
    entries = asked.mapping("question", *LABELS, required=("question",))
    if not entries.keys() & {*LABELS}:
        raise asked.wrong(f"says nothing that must be found. Give one of: {', '.join(LABELS)}.")
    listed = {name: tuple(entries[name].items()) if name in entries else () for name in LABELS}
    empty = next((name for name in LABELS if name in entries and not listed[name]), None)
    if empty is not None:
        raise entries[empty].wrong("is empty. Say what must be found, or leave it out.")
    return GoldenQuestion(
        entries["question"].text(),
        held.line,
        tuple(one.text() for one in listed["ids"]),
        tuple(map(_span, listed["spans"])),
        tuple(map(_text, listed["texts"])),
        tuple(one.text() for one in listed["references"]),
    )


def _span(held: Checked) -> SpanLabel:
    entries = held.mapping("path", "start", "end", required=("path",))
    if ("start" in entries) != ("end" in entries):
        raise held.wrong("has one of 'start' and 'end'. Give both, or neither for the whole document.")
    path = entries["path"].text()
    if "start" not in entries:
        return SpanLabel(path, None, None, held.line)
    start = entries["start"].whole(0)
    return SpanLabel(path, start, entries["end"].whole(start + 1), held.line)


def _text(held: Checked) -> TextLabel:
    if not held.is_mapping:
        return TextLabel(held.text(), "", held.line)
    entries = held.mapping("text", "path", required=("text",))
    return TextLabel(entries["text"].text(), entries["path"].text() if "path" in entries else "", held.line)


def _thresholds(held: Checked, questions: tuple[GoldenQuestion, ...], topk: int) -> Mapping[GoldenMeasure, float]:
    thresholds: dict[GoldenMeasure, float] = {}
    for name, value in held.any_mapping().items():
        measure = value.told(partial(golden_measure, name))
        if measure.depth is not None and measure.depth > topk:
            raise value.wrong(f"looks at {measure.depth} nodes, and {topk} are asked for. Raise the retriever's topk.")
        if not any(map(measure.is_told_by, questions)):
            raise value.wrong(f"reads {' or '.join(measure.reads)}, and no question has any. Give some.")
        if measure in thresholds:
            raise value.wrong(f"is named twice: {measure.name} is the same. Leave one out.")
        thresholds[measure] = value.share()
    if not thresholds:
        raise held.wrong("is empty. Name at least one measure and the mean that passes, such as span_recall@5: 0.9.")
    return thresholds


def _check_once(questions: tuple[GoldenQuestion, ...]) -> None:
    if not questions:
        msg = "The file has no question. Ask at least one."
        raise ConfigError(msg)
    lines: dict[str, int] = {}
    for one in questions:
        if one.question in lines:
            msg = f"line {one.line}: {one.question!r:.60} is asked in line {lines[one.question]} already. Ask it once."
            raise ConfigError(msg)
        lines[one.question] = one.line


def located_labels(golden: Golden, docs: Document) -> Mapping[str, tuple[SourceSpan, ...]]:
    """Where in the documents what must be found stands, by question.

    Args:
        golden: What must be found, as spans or texts.
        docs: The documents.

    Raises:
        ConfigError: If a document is not there, a span ends behind it, or a text stands nowhere or in several places;
            the message begins with the file and the line.
    """
    texts = Texts({node.path: node.text for node in docs.get_nodes()} if _has_places(golden) else {})
    found = {}
    for question in golden.questions:
        try:
            spans = [texts.span(label.path, label.start, label.end, label.line) for label in question.spans]
            spans += [texts.only_place(label.text, label.path, label.line) for label in question.texts]
        except ConfigError as exc:
            msg = f"{golden.path}, {exc}"
            raise ConfigError(msg) from exc
        found[question.question] = tuple(dict.fromkeys(spans))
    return found


def _has_places(golden: Golden) -> bool:
    return any(question.spans or question.texts for question in golden.questions)


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


_WIDTH, _LEFT, _ROW, _PAD = 640, 200, 28, 16


@dataclass(frozen=True, slots=True)
class MeasureReport:
    """What was measured, one row for each question.

    Args:
        names: What a row is called: the question, or its id.
        rows: By measure; None where a measure does not apply. A measure that a row lacks does not apply to it, either.

    Raises:
        EvaluationError: If there are not as many names as rows, or a value is no finite number.

    Example:
        >>> report = MeasureReport(["q1", "q2"], [{"f1": 1.0}, {"f1": None, "em": 0.0}])
        >>> report.means, report.counts
        ({'f1': 1.0, 'em': 0.0}, {'f1': 1, 'em': 1})
    """

    names: Sequence[str]
    rows: Sequence[Mapping[str, float | None]]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.rows):
            msg = f"There are {len(self.names)} names and {len(self.rows)} rows; give one name for each row."
            raise EvaluationError(msg)
        for name, row in zip(self.names, self.rows, strict=True):
            for key, value in row.items():
                if value is not None and (not isinstance(value, (int, float)) or not math.isfinite(value)):
                    msg = f"{key} of {name!r:.60} is {value!r:.40}; give a finite number, or None for none."
                    raise EvaluationError(msg)

    @property
    def measures(self) -> tuple[str, ...]:
        """All that was measured, in the order in which it first came."""
        return tuple(dict.fromkeys(measure for row in self.rows for measure in row))

    @property
    def means(self) -> dict[str, float | None]:
        """By measure, the mean of the values that there are; None where there is none."""
        return {measure: mean([row.get(measure) for row in self.rows]) for measure in self.measures}

    @property
    def counts(self) -> dict[str, int]:
        """By measure, of how many rows the mean is."""
        return {measure: sum(row.get(measure) is not None for row in self.rows) for measure in self.measures}

    def table(self) -> str:
        """Measures with their means and counts, in Markdown.

        Example:
            >>> print(MeasureReport(["q1"], [{"f1": 0.5}]).table())
            | measure | mean | questions |
            |---|---|---|
            | f1 | 0.5000 | 1 of 1 |
        """
        means, counts = self.means, self.counts
        rows = [f"| {name} | {_shown(means[name])} | {counts[name]} of {len(self.rows)} |" for name in self.measures]
        return "\n".join(["| measure | mean | questions |", "|---|---|---|", *rows])

    def to_dict(self) -> dict[str, Any]:
        """Means, counts and rows; ready for JSON, with null for what is missing."""
        rows = [{"name": name, **row} for name, row in zip(self.names, self.rows, strict=True)]
        return {"means": self.means, "counts": self.counts, "rows": rows}

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The same as JSON; also written to a file where there is a path."""
        text = json.dumps(self.to_dict(), ensure_ascii=False, indent=2, allow_nan=False)
        return _written(text, path)

    def plot(self, path: str | os.PathLike[str] | None = None) -> str:
        """A bar for each mean, as SVG, which every browser shows; also written to a file where there is a path.

        Measures have different units: each bar is its mean divided by the larger of 1 and the measure's largest value.
        """
        means, counts = self.means, self.counts
        height = 2 * _PAD + _ROW * max(1, len(means))
        box = f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="13"'
        lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {box}>']
        for at, (key, value) in enumerate(means.items()):
            largest = max([1.0, *(abs(one) for row in self.rows if (one := row.get(key)) is not None)])
            length = (_WIDTH - _LEFT - 140) * abs(value or 0.0) / largest
            top = _PAD + _ROW * at
            told = f"{_shown(value)} ({counts[key]} of {len(self.rows)})"
            lines += [
                f'<text x="{_LEFT - 8}" y="{top + 17}" text-anchor="end">{escape(key)}</text>',
                f'<rect x="{_LEFT}" y="{top + 4}" width="{length:.1f}" height="{_ROW - 10}" fill="#4477aa"/>',
                f'<text x="{_LEFT + length + 6:.1f}" y="{top + 17}">{told}</text>',
            ]
        return _written("\n".join([*lines, "</svg>"]), path)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _written(text: str, path: str | os.PathLike[str] | None) -> str:
    if path is not None:
        Path(path).write_text(text + "\n", encoding="utf-8")
    return text
