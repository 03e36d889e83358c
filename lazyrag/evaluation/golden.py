"""Golden questions: a file with questions, what must be found for each, and thresholds; and reports
of measures.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit
from lazyrag.document.document import Document
from lazyrag.errors import ConfigError, EvaluationError, known_names, nearest
from lazyrag.evaluation.answers import mean
from lazyrag.evaluation.metrics import (
    Comparison,
    SourceSpan,
    compare,
    evaluate,
    measure,
    source_span,
)
from lazyrag.loaders.records import LocatedValue, located_json
from lazyrag.retrieval.hybrid import RetrievalMethod, retriever_for
from lazyrag.retrieval.similarity import similarities
from lazyrag.retrieval.stages import NodeRetriever, retrieve_nodes
from lazyrag.text.sentences import CJK_LETTERS
from lazyrag.types import JsonMapping, JsonObject, PathLike
from lazyrag.validation import (
    require,
    validate_choice,
    validate_integer,
    validate_number,
    validate_text,
    validate_texts,
)

T = TypeVar("T")

_CJK = re.compile(f"[{CJK_LETTERS}]")
_WORD_EDGE = re.compile(r"[a-z0-9]")

# Questions and their labels


@dataclass(frozen=True, slots=True)
class LocationLabel:
    """A place in the documents that must be found: a text, a span of characters, or any part of a
    document.

    Args:
        path: The document; "" for a text that occurs in only one place.
        text: Words of the document, in one place only; any white space between them matches. "" for
            a span.
        start: First character of a span, from 0; None for the whole document.
        end: One past the last character.
        line: Line of the file.
    """

    path: str
    text: str
    start: int | None
    end: int | None
    line: int

    def locate(self, texts: Mapping[str, str]) -> SourceSpan:
        r"""Find the place in the documents.

        Args:
            texts: By path, the text of the root node.

        Raises:
            ConfigError: If there is no such document, the span ends behind it, or the text occurs
                nowhere or several times; the message begins with the line.

        Example:
            >>> label = LocationLabel("", "it. Dry", None, None, line=3)
            >>> label.locate({"tea.txt": "Pick it.\nDry it."})
            SourceSpan(path='tea.txt', start=5, end=12)
        """
        if self.path and self.path not in texts:
            near = nearest(self.path, texts)
            hint = "Give the path relative to the documents' folder."
            if near:
                hint = f"Did you mean {near!r}?"
            raise ConfigError(
                f"line {self.line}: None of the {len(texts)} documents is named {self.path!r}."
                f" {hint}"
            )
        if self.text:
            return self._locate_text({self.path: texts[self.path]} if self.path else texts)
        size = len(texts[self.path])
        if self.start is None or self.end is None:
            return SourceSpan(self.path, 0, size)
        if self.end > size:
            msg = (
                f"The span ends at {self.end}, and {self.path!r} has {size} characters. Correct the"
                " numbers."
            )
            raise ConfigError(f"line {self.line}: {msg}")
        return SourceSpan(self.path, self.start, self.end)

    def _locate_text(self, texts: Mapping[str, str]) -> SourceSpan:
        pattern = re.compile(r"\s+".join(map(re.escape, self.text.split())))
        spans = []
        for name, text in texts.items():
            spans += [SourceSpan(name, *match.span()) for match in pattern.finditer(text)]
        if len(spans) == 1:
            return spans[0]
        if not spans:
            where = repr(self.path) if self.path else "the documents"
            problem = f"does not occur in {where}. Copy it as it is written there."
        else:
            paths = ", ".join(sorted({span.path for span in spans})[:3])
            problem = f"occurs in {len(spans)} places ({paths}). Give a longer text, or its path."
        raise ConfigError(f"line {self.line}: The text {self.text!r:.60} {problem}")


@dataclass(frozen=True, slots=True)
class GoldenQuestion:
    """A question and what must be found for it.

    Args:
        question: The question.
        line: Its line in the file.
        ids: Uids of nodes.
        locations: Locations in the documents.
        references: Answers; one of them must occur in what is found.
    """

    question: str
    line: int
    ids: tuple[str, ...] = ()
    locations: tuple[LocationLabel, ...] = ()
    references: tuple[str, ...] = ()


Labels: TypeAlias = Literal["ids", "locations", "references"]
"""Which labels of a question a measure compares with."""

_LABEL_NAMES: Mapping[Labels, tuple[str, ...]] = {
    "ids": ("ids",),
    "locations": ("spans", "texts"),
    "references": ("references",),
}
"""Their names in a file."""


@dataclass(frozen=True, slots=True)
class GoldenMeasure:
    """A measure of golden questions.

    Args:
        name: The name in tables: ``"span_recall@5"``.
        labels: The labels that it compares with. Questions without any do not count.
        depth: How many nodes it looks at; None for all.
    """

    name: str
    labels: Labels
    depth: int | None

    def applies_to(self, question: GoldenQuestion) -> bool:
        """Whether a question has labels for this measure."""
        return bool(getattr(question, self.labels))


def golden_measure(name: str) -> GoldenMeasure:
    """Return a measure by name: one of `lazyrag.evaluation.measure`, or ``answer@k``, see
    `has_answer`.

    Raises:
        ConfigError: If there is no such measure.

    Example:
        >>> names = "char_recall@5", "answer@3", "mrr"
        >>> tuple(golden_measure(name).labels for name in names)
        ('locations', 'references', 'ids')
    """
    metric, at, depth = name.partition("@")
    is_answer = metric.lower() == "answer"
    if is_answer and at and not (depth.isdecimal() and int(depth) >= 1):
        raise ConfigError(
            f"The measure {name!r} needs an integer >= 1 after the @, such as answer@10."
        )
    labels: Labels = "references"
    normal_name = f"answer@{int(depth)}" if at else "answer"
    if not is_answer:
        normal_name = measure(name).name
        labels = "locations" if normal_name.startswith(("char_", "span_")) else "ids"
    return GoldenMeasure(normal_name, labels, int(depth) if at else None)


def has_answer(texts: Sequence[str], references: Sequence[str], k: int | None = None) -> float:
    """Whether one of the first k texts contains one of the answers: 1 or 0.

    Both are compared case-folded and in compatibility form (NFKC). White space counts as one space,
    between Chinese letters not at all. An answer that begins or ends with a Latin letter or digit
    must begin or end a word.

    Args:
        texts: What was found, best first.
        references: Answers, any of which will do.
        k: Number of texts that count; None: all of them.

    Raises:
        ConfigError: If the answers are not a list of strings, or one of them is blank.

    Source:
        The answer recall of retrievers: Karpukhin et al.: Dense Passage Retrieval, EMNLP 2020,
        doi:10.18653/v1/2020.emnlp-main.550.

    Example:
        >>> texts = "Steep at 80 degrees.", "Steep for 180 s."
        >>> has_answer(texts, ["80 Degrees"]), has_answer(texts[1:], ["80"])
        (1.0, 0.0)
    """
    answers = validate_texts("references", references)
    first = texts if k is None else texts[: validate_integer("k", k, 1)]
    patterns = [_answer_pattern(_normalized(reference)) for reference in answers]
    for text in map(_normalized, first):
        if any(pattern.search(text) for pattern in patterns):
            return 1.0
    return 0.0


def _normalized(text: str) -> str:
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    if not _CJK.search(folded):
        return folded
    return re.sub(rf"(?<=[{CJK_LETTERS}]) | (?=[{CJK_LETTERS}])", "", folded)


def _answer_pattern(answer: str) -> re.Pattern[str]:
    before = r"(?<![a-z0-9])" if _WORD_EDGE.match(answer) else ""
    behind = r"(?![a-z0-9])" if _WORD_EDGE.match(answer[-1:]) else ""
    return re.compile(before + re.escape(answer) + behind)


# Files


@dataclass(frozen=True, slots=True)
class RetrieverSettings:
    """The retriever that a golden file describes.

    Args:
        method: A value of `RetrievalMethod`.
        group: The node group.
        topk: Number of nodes to retrieve; no measure may look further.
        similarity: Of keyword search.
    """

    method: str = "full_text_search"
    group: str = "FineChunk"
    topk: int = 10
    similarity: str = "bm25_chinese"


@dataclass(frozen=True, slots=True)
class Golden:
    """A validated file of golden questions. `judge` runs them.

    Args:
        path: The file.
        questions: At least one.
        thresholds: By measure, the lowest mean that passes.
        documents: The folder or file; None if stores have it.
        store_conf: See `Document`.
        name: See `Document`.
        embedder: Folder of an ONNX model, for vector search.
        settings: The retriever.
    """

    path: Path
    questions: tuple[GoldenQuestion, ...]
    thresholds: Mapping[GoldenMeasure, float]
    documents: Path | None = None
    store_conf: JsonMapping | None = None
    name: str | None = None
    embedder: Path | None = None
    settings: RetrieverSettings = field(default_factory=RetrieverSettings)

    def open(self) -> Document:
        """Open the Document of the file, read-only if only stores are named. Close it, or use
        ``with``.

        Raises:
            ConfigError: If the method needs a model and none is named.
        """
        embed = None
        method = self.settings.method
        if self.embedder is None and RetrievalMethod.is_support_semantic_search(method):
            hint = "Add 'embedder' and the folder of an ONNX model, or choose 'full_text_search'."
            raise ConfigError(f"{self.path}: The method {method!r} needs a model. {hint}")
        if self.embedder is not None:
            from lazyrag.models.onnx.models import OnnxEmbedder  # needs an extra

            embed = OnnxEmbedder(self.embedder)
        is_read_only = self.documents is None
        return Document(
            self.documents,
            embed,
            store_conf=self.store_conf,
            name=self.name,
            read_only=is_read_only,
        )

    def retriever(self, docs: Document) -> NodeRetriever:
        """Make the retriever that the file describes."""
        settings = self.settings
        return retriever_for(
            settings.method, docs, settings.group, settings.topk, similarity=settings.similarity
        )


def read_golden(path: str | Path) -> Golden:
    """Read and validate a file of golden questions: ``.yaml``, ``.yml`` or ``.json``, in UTF-8.

    Args:
        path: The file. Paths in it are relative to its folder, except those in ``store_conf``,
            which are used as written.

    Raises:
        ConfigError: If the file cannot be read, or an entry is unknown, missing or invalid; the
            message begins with the file and the line.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        why = getattr(exc, "strerror", None) or exc
        raise ConfigError(
            f"The golden file {str(path)!r} cannot be read ({why}). Pass a file in UTF-8."
        ) from exc
    try:
        return _golden(path, _located(path, text))
    except ConfigError as exc:
        mark = "," if str(exc).startswith("line ") else ":"
        raise ConfigError(f"{path}{mark} {exc}") from exc


def _located(path: Path, text: str) -> LocatedValue:
    validate_choice("suffix", path.suffix, (".json", ".yaml", ".yml"))
    if path.suffix == ".json":
        return located_json(text)
    from lazyrag.loaders.yaml_records import located_yaml  # slow to import

    return located_yaml(text)


@contextmanager
def _errors_with(prefix: str) -> Iterator[None]:
    """Put a prefix before the message of a ConfigError."""
    try:
        yield
    except ConfigError as exc:
        raise ConfigError(f"{prefix}{exc}") from exc


@dataclass(frozen=True, slots=True)
class _GoldenEntry:
    """An entry of the file: its name in messages, its value and its line. Methods return the value
    as one type.
    """

    name: str
    located: LocatedValue

    @property
    def line(self) -> int:
        return self.located.line

    @property
    def value(self) -> Any:
        return self.located.value

    def error(self, problem: str) -> ConfigError:
        return ConfigError(f"line {self.line}: {self.name} {problem}")

    def entries(self) -> dict[str, _GoldenEntry]:
        """The entries of a mapping."""
        self.validated(_validate_type, dict, "a mapping of names to values")
        return {name: _GoldenEntry(name, value) for name, value in self.value.items()}

    def fields(self, *allowed: str, required: Sequence[str] = ()) -> dict[str, _GoldenEntry]:
        """The entries of a mapping with fixed names."""
        entries = self.entries()
        for name, entry in entries.items():
            if name not in allowed:
                problem = f"{self.name} has no entry {name!r}. {known_names(name, allowed)}"
                raise ConfigError(f"line {entry.line}: {problem}")
        for name in required:
            if name not in entries:
                raise self.error(f"lacks {name!r}. Add it.")
        return entries

    def items(self) -> list[_GoldenEntry]:
        self.validated(_validate_type, list, "a list")
        return [
            _GoldenEntry(f"Entry {number} of {self.name}", item)
            for number, item in enumerate(self.value, start=1)
        ]

    def validated(self, validate: Callable[..., T], *args: Any) -> T:
        """The value, by a function of the argument's name, its value and more."""
        with _errors_with(f"line {self.line}: "):
            return validate(self.name, _plain(self.located), *args)

    def text(self) -> str:
        return self.validated(validate_text)

    def path(self, folder: Path) -> Path:
        path = folder / self.text()
        if not path.exists():
            raise self.error(
                f"is {self.value!r}, and {str(path)!r} does not exist. Paths start at the file's"
                " folder."
            )
        return path

    def plain(self) -> JsonObject:
        """A mapping without lines."""
        return {name: _plain(entry.located) for name, entry in self.entries().items()}


def _validate_type(name: str, value: Any, kind: type, expected: str) -> None:
    require(isinstance(value, kind), name, value, expected)


def _plain(located: LocatedValue) -> Any:
    if isinstance(located.value, dict):
        return {name: _plain(value) for name, value in located.value.items()}
    if isinstance(located.value, list):
        return [_plain(item) for item in located.value]
    return located.value


_FILE_FIELDS = (
    "documents",
    "store_conf",
    "name",
    "embedder",
    "retriever",
    "questions",
    "thresholds",
)


def _golden(path: Path, located: LocatedValue) -> Golden:
    file = _GoldenEntry("The file", located)
    entries = file.fields(*_FILE_FIELDS, required=("questions", "thresholds"))
    if "documents" not in entries and "store_conf" not in entries:
        raise file.error("has neither 'documents' nor 'store_conf'. Add one of them.")
    settings = _settings(entries["retriever"]) if "retriever" in entries else RetrieverSettings()
    questions = tuple(
        _question(number, item) for number, item in enumerate(entries["questions"].items(), start=1)
    )
    _validate_questions(questions)
    thresholds = _thresholds(entries["thresholds"], questions, settings.topk)
    return Golden(
        path,
        questions,
        thresholds,
        documents=_documents(path, entries["documents"]) if "documents" in entries else None,
        store_conf=entries["store_conf"].plain() if "store_conf" in entries else None,
        name=entries["name"].text() if "name" in entries else None,
        embedder=entries["embedder"].path(path.parent) if "embedder" in entries else None,
        settings=settings,
    )


def _documents(path: Path, entry: _GoldenEntry) -> Path:
    folder = entry.path(path.parent)
    if path.resolve().is_relative_to(folder.resolve()):
        problem = (
            "which contains this file: its questions would be found in itself. Move the file"
            " elsewhere."
        )
        raise entry.error(f"is {entry.value!r}, {problem}")
    return folder


def _settings(entry: _GoldenEntry) -> RetrieverSettings:
    validators: dict[str, tuple[Any, ...]] = {
        "method": (validate_choice, [member.value for member in RetrievalMethod]),
        "group": (validate_text,),
        "topk": (validate_integer, 1),
        "similarity": (validate_choice, similarities),
    }
    entries = entry.fields(*validators)
    return RetrieverSettings(
        **{name: entry.validated(*validators[name]) for name, entry in entries.items()}
    )


def _question(number: int, entry: _GoldenEntry) -> GoldenQuestion:
    names = [*chain.from_iterable(_LABEL_NAMES.values())]
    question = _GoldenEntry(f"Question {number}", entry.located)
    entries = question.fields("question", *names, required=("question",))
    if not entries.keys() & {*names}:
        raise question.error(f"has no label. Add one of: {', '.join(names)}.")
    listed = {name: entries[name].items() if name in entries else [] for name in names}
    for name in names:
        if name in entries and not listed[name]:
            raise entries[name].error("is empty. List what must be found, or remove it.")
    return GoldenQuestion(
        entries["question"].text(),
        entry.line,
        tuple(item.text() for item in listed["ids"]),
        (*map(_span_label, listed["spans"]), *map(_text_label, listed["texts"])),
        tuple(item.text() for item in listed["references"]),
    )


def _span_label(entry: _GoldenEntry) -> LocationLabel:
    entries = entry.fields("path", "start", "end", required=("path",))
    path = entries["path"].text()
    if ("start" in entries) != ("end" in entries):
        raise entry.error(
            "has one of 'start' and 'end'. Give both, or neither for the whole document."
        )
    if "start" not in entries:
        return LocationLabel(path, "", None, None, entry.line)
    start = entries["start"].validated(validate_integer, 0)
    return LocationLabel(
        path, "", start, entries["end"].validated(validate_integer, start + 1), entry.line
    )


def _text_label(entry: _GoldenEntry) -> LocationLabel:
    if not isinstance(entry.value, dict):
        return LocationLabel("", entry.text(), None, None, entry.line)
    entries = entry.fields("text", "path", required=("text",))
    path = entries["path"].text() if "path" in entries else ""
    return LocationLabel(path, entries["text"].text(), None, None, entry.line)


def _thresholds(
    entry: _GoldenEntry, questions: tuple[GoldenQuestion, ...], topk: int
) -> Mapping[GoldenMeasure, float]:
    thresholds = {}
    for name, value in entry.entries().items():
        with _errors_with(f"line {value.line}: "):
            measure = golden_measure(name)
        if measure.depth is not None and measure.depth > topk:
            raise value.error(
                f"looks at {measure.depth} nodes, and {topk} are retrieved. Raise the retriever's"
                " topk."
            )
        if not any(map(measure.applies_to, questions)):
            names = " or ".join(_LABEL_NAMES[measure.labels])
            raise value.error(f"reads {names}, and no question has any. Add some.")
        if measure in thresholds:
            raise value.error(f"is named twice: {measure.name} is the same. Remove one.")
        thresholds[measure] = value.validated(
            validate_number, "a number above 0 and at most 1", lambda share: 0 < share <= 1
        )
    if not thresholds:
        raise entry.error(
            "is empty. Add at least one measure and the mean that passes, such as span_recall@5:"
            " 0.9."
        )
    return thresholds


def _validate_questions(questions: tuple[GoldenQuestion, ...]) -> None:
    if not questions:
        raise ConfigError("The file has no question. Add at least one.")
    lines: dict[str, int] = {}
    for item in questions:
        if item.question in lines:
            problem = (
                f"{item.question!r:.60} is already in line {lines[item.question]}. Ask it once."
            )
            raise ConfigError(f"line {item.line}: {problem}")
        lines[item.question] = item.line


# Judging


_ROUNDING = 1e-9  # the mean of thirds is not exactly a third


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one measure.

    Args:
        measure: Its name.
        value: Its mean over the questions that it applies to.
        threshold: The lowest mean that passes.
        questions: Number of those questions.

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
    """The result of one question.

    Args:
        question: The question.
        line: Its line in the file.
        values: By measure, for the measures that apply to it.
        found: What was found, best first.
    """

    question: str
    line: int
    values: Mapping[str, float]
    found: tuple[Hit, ...]


@dataclass(frozen=True, slots=True)
class GoldenReport:
    """The results of golden questions.

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
        """Questions below the threshold of a measure that failed: where to look first."""
        failed = [verdict for verdict in self.verdicts if not verdict.passed]

        def is_missed(item: JudgedQuestion) -> bool:
            return any(
                item.values.get(verdict.measure, 1.0) < verdict.threshold for verdict in failed
            )

        return list(filter(is_missed, self.questions))

    def compared_with(self, old: GoldenReport | JsonMapping) -> dict[str, Comparison]:
        """Compare with an earlier report: of another retriever, model or chunk size.

        Args:
            old: The report, or what its `to_dict` returned. Questions count that both reports have.

        Returns:
            By measure that both have, the comparison; this report is the new one.

        Raises:
            EvaluationError: If ``old`` is no report, or they have no question with a common
                measure.
        """
        report = old.to_dict() if isinstance(old, GoldenReport) else old
        try:
            earlier = {str(item["question"]): dict(item["values"]) for item in report["questions"]}
        except (KeyError, TypeError, ValueError) as exc:
            hint = "Pass what lazyrag eval --output wrote."
            raise EvaluationError(
                f"The earlier report must have questions with values. {hint}"
            ) from exc
        comparisons = {}
        for verdict in self.verdicts:
            name = verdict.measure
            before = {}
            after = {}
            for item in self.questions:
                if name in item.values and name in earlier.get(item.question, {}):
                    before[item.question] = earlier[item.question][name]
                    after[item.question] = item.values[name]
            if before:
                comparisons[name] = compare(before, after)
        if not comparisons:
            raise EvaluationError(
                "The reports have no question with a common measure. Compare runs of the same file."
            )
        return comparisons

    def to_dict(self) -> JsonObject:
        """Convert to values of JSON."""
        questions = [
            {
                "question": item.question,
                "line": item.line,
                "values": dict(item.values),
                "found": list(map(_hit_dict, item.found)),
            }
            for item in self.questions
        ]
        measures = [{**asdict(verdict), "passed": verdict.passed} for verdict in self.verdicts]
        return {"passed": self.passed, "measures": measures, "questions": questions}


def _hit_dict(hit: Hit) -> JsonObject:
    score = None if math.isnan(hit.score) else hit.score  # JSON has no nan
    return {
        "id": hit.id,
        "source": hit.source,
        "location": hit.metadata.get("location", ""),
        "score": score,
    }


def judge(
    golden: Golden, docs: Document | None = None, retriever: NodeRetriever | None = None
) -> GoldenReport:
    """Run golden questions, measure what is found, and compare the means with the thresholds.

    Args:
        golden: The questions, of `read_golden`.
        docs: The Document to search; None: the one that the file describes, opened and closed here.
        retriever: Any retriever over it, called with the file's topk; None: the one that the file
            describes.

    Returns:
        The report.

    Raises:
        ConfigError: If what must be found is not in the documents; the message begins with file and
            line.
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
        locations = _located_spans(golden, opened)
        search = golden.retriever(opened) if retriever is None else retriever
        topk = golden.settings.topk
        retrieved = {
            item.question: retrieve_nodes(search, item.question, None, topk)
            for item in golden.questions
        }
        _validate_ids(golden, opened)  # now the groups are built
        values = {}
        verdicts = []
        for measure, threshold in golden.thresholds.items():
            by_question = _values(measure, golden, retrieved, locations)
            values[measure.name] = by_question
            count = len(by_question)
            mean_value = math.fsum(by_question.values()) / count
            verdicts.append(Verdict(measure.name, mean_value, threshold, count))
        hits = {query: tuple(map(Hit.from_node, nodes)) for query, nodes in retrieved.items()}
    questions = []
    for item in golden.questions:
        query = item.question
        of_query = {name: scores[query] for name, scores in values.items() if query in scores}
        questions.append(JudgedQuestion(query, item.line, of_query, hits[query]))
    return GoldenReport(tuple(verdicts), tuple(questions))


def _located_spans(golden: Golden, docs: Document) -> Mapping[str, tuple[SourceSpan, ...]]:
    """By question, the spans that must be found."""
    is_needed = any(item.locations for item in golden.questions)
    texts = {node.path: node.text for node in docs.get_nodes()} if is_needed else {}
    with _errors_with(f"{golden.path}, "):
        spans = {}
        for item in golden.questions:
            located = [label.locate(texts) for label in item.locations]
            spans[item.question] = tuple(dict.fromkeys(located))
        return spans


def _validate_ids(golden: Golden, docs: Document) -> None:
    for question in golden.questions:
        unknown = next((uid for uid in question.ids if not docs.reader.held(uid)), None)
        if unknown is not None:
            hint = (
                "Copy a node's uid, or give a span or a text: these survive changes of the"
                " chunking."
            )
            problem = f"No node has the id {unknown!r:.60} in the groups that are built. {hint}"
            raise ConfigError(f"{golden.path}, line {question.line}: {problem}")


def _values(
    measure: GoldenMeasure,
    golden: Golden,
    nodes: Mapping[str, Sequence[DocNode]],
    locations: Mapping[str, Sequence[SourceSpan]],
) -> Mapping[str, float]:
    """The values of a measure for the questions that it applies to."""
    questions = [item for item in golden.questions if measure.applies_to(item)]
    if measure.labels == "references":
        values = {}
        for item in questions:
            texts = [node.get_content() for node in nodes[item.question]]
            values[item.question] = has_answer(texts, item.references, measure.depth)
        return values
    by_span = measure.labels == "locations"
    judgements = {}
    run = {}
    for item in questions:
        labels = locations[item.question] if by_span else item.ids
        judgements[item.question] = dict.fromkeys(labels, 1)
        run[item.question] = [  # the order counts, the scores do not
            (source_span(node) if by_span else node.uid, 0.0) for node in nodes[item.question]
        ]
    return evaluate(run, judgements, [measure.name]).values[measure.name]


# Reports of measures


_WIDTH = 640
_LEFT = 200
_ROW = 28
_PAD = 16


@dataclass(frozen=True, slots=True)
class MeasureReport:
    """Values of measures, one row for each question.

    Args:
        names: Names of the rows: the question, or its id.
        rows: By measure; None, or no entry, if a measure does not apply.

    Raises:
        EvaluationError: If the numbers of names and rows differ, or a value is not finite.

    Example:
        >>> report = MeasureReport(["q1", "q2"], [{"f1": 1.0}, {"f1": None, "em": 0.0}])
        >>> report.means, report.counts
        ({'f1': 1.0, 'em': 0.0}, {'f1': 1, 'em': 1})
    """

    names: Sequence[str]
    rows: Sequence[Mapping[str, float | None]]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.rows):
            raise EvaluationError(
                f"There are {len(self.names)} names and {len(self.rows)} rows; give one name each."
            )
        for name, row in zip(self.names, self.rows, strict=True):
            for key, value in row.items():
                is_valid = value is None or (
                    isinstance(value, (int, float)) and math.isfinite(value)
                )
                require(
                    is_valid,
                    f"{key} of {name!r:.60}",
                    value,
                    "a finite number or None",
                    error=EvaluationError,
                )

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the measures, in the order of their first appearance."""
        return tuple(dict.fromkeys(chain.from_iterable(self.rows)))

    @property
    def means(self) -> dict[str, float | None]:
        """By measure, the mean of its values; None if there is none."""
        return {measure: mean(self._column(measure)) for measure in self.measures}

    @property
    def counts(self) -> dict[str, int]:
        """By measure, the number of its values."""
        return {
            measure: len(self.rows) - self._column(measure).count(None) for measure in self.measures
        }

    def _column(self, measure: str) -> list[float | None]:
        return [row.get(measure) for row in self.rows]

    def table(self) -> str:
        """Format measures with their means and counts as a Markdown table.

        Example:
            >>> print(MeasureReport(["q1"], [{"f1": 0.5}]).table())
            | measure | mean | questions |
            |---|---|---|
            | f1 | 0.5000 | 1 of 1 |
        """
        means = self.means
        counts = self.counts
        rows = [
            f"| {name} | {_format(means[name])} | {counts[name]} of {len(self.rows)} |"
            for name in self.measures
        ]
        return "\n".join(["| measure | mean | questions |", "|---|---|---|", *rows])

    def to_dict(self) -> JsonObject:
        """Convert means, counts and rows to values of JSON; missing values are None."""
        rows = [{"name": name, **row} for name, row in zip(self.names, self.rows, strict=True)]
        return {"means": self.means, "counts": self.counts, "rows": rows}

    def to_json(self, path: PathLike | None = None) -> str:
        """Convert to JSON, and write it to a file if there is a path."""
        return _written(
            json.dumps(self.to_dict(), ensure_ascii=False, indent=2, allow_nan=False), path
        )

    def plot(self, path: PathLike | None = None) -> str:
        """Draw a bar for each mean as SVG, and write it to a file if there is a path.

        Measures have different units: each bar is its mean divided by the larger of 1 and the
        measure's largest value.
        """
        means = self.means
        counts = self.counts
        height = 2 * _PAD + _ROW * max(1, len(means))
        box = f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="13"'
        lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {box}>']
        for at, (key, value) in enumerate(means.items()):
            largest = max([1.0, *(abs(number or 0.0) for number in self._column(key))])
            length = (_WIDTH - _LEFT - 140) * abs(value or 0.0) / largest
            top = _PAD + _ROW * at
            label = f"{_format(value)} ({counts[key]} of {len(self.rows)})"
            lines += [
                f'<text x="{_LEFT - 8}" y="{top + 17}" text-anchor="end">{escape(key)}</text>',
                (
                    f'<rect x="{_LEFT}" y="{top + 4}" width="{length:.1f}" height="{_ROW - 10}"'
                    ' fill="#4477aa"/>'
                ),
                f'<text x="{_LEFT + length + 6:.1f}" y="{top + 17}">{label}</text>',
            ]
        return _written("\n".join([*lines, "</svg>"]), path)


def _format(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _written(text: str, path: PathLike | None) -> str:
    if path is not None:
        Path(path).write_text(text + "\n", encoding="utf-8")
    return text
