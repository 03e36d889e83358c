"""Golden questions: a file with questions, what must be found for each, and how good is good enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lazyrag.document.document import Document
from lazyrag.errors import ConfigError, known_names, missing_package
from lazyrag.evaluation.checking import Checked
from lazyrag.evaluation.finding import Texts
from lazyrag.evaluation.golden_measures import GoldenMeasure, golden_measure
from lazyrag.evaluation.spans import SourceSpan
from lazyrag.loaders.located import Located, located_json
from lazyrag.retrieval.methods import RetrievalMethod, retriever_for
from lazyrag.retrieval.similarity import similarities
from lazyrag.retrieval.stages import NodeRetriever

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
            from lazyrag.models.onnx.embedder import OnnxEmbedder  # needs an extra

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
