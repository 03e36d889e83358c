"""Results of a query: hits, the context of a generator, and the answer with its citations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, overload

from lazyrag.data.segment import EMPTY, Span
from lazyrag.data.suggestions import SuggestsNames
from lazyrag.errors import ConfigError, count, known_names, preview
from lazyrag.types import JsonMapping, JsonObject, Metadata
from lazyrag.validation import require, validate_range

if TYPE_CHECKING:
    from lazyrag.data.node import DocNode


# frozen, so a narrower metadata type fits where a wider one is read
M_co = TypeVar("M_co", covariant=True)

# Of a result as a dict (spec 002).
_RETRIEVAL_FIELDS = ("contexts", "context_ids", "scores", "metadata")
_GENERATION_FIELDS = ("response", "multi_responses", "confidence", "metadata")


def supersession_text(metadata: Metadata) -> str:
    """What replaced the file of a hit, and how that is known; "" for nothing.

    Example:
        >>> supersession_text({"superseded_by": "a-v2.md", "superseded_reason": "declared"})
        'superseded by a-v2.md (declared)'
    """
    if not {"superseded_by", "superseded_reason"} <= metadata.keys():
        return ""
    return f"superseded by {metadata['superseded_by']} ({metadata['superseded_reason']})"


def supersession_of(metadata: Metadata) -> JsonObject:
    """The values of metadata that say what replaced the file of a hit."""
    return {name: value for name, value in metadata.items() if name.startswith("superseded_")}


@dataclass(frozen=True, slots=True)
class Hit(SuggestsNames):
    """One scored node of a query's result (spec 003's per-hit class, with its seven fields).

    Args:
        id: Uid of the node.
        text: Its text; of a question with its answer both, see `DocNode.get_content`.
        score: Comparable within one result; nan if the retriever gave none.
        source: The document it comes from, as a person would name it: the file's path.
        document_id: Uid of the document's root node.
        chunk_id: The node's number in its group and document, from 1.
        metadata: The file's metadata overlaid with the node's own; under ``"location"``, unless
            they use the name, the place in the document, for people: ``"page 3"``. Under
            ``"hidden_text"`` the stretches of the text that readers of the file do not see:
            start, end and why. Under ``"superseded_by"`` the document that replaces the file, or
            had replaced it by the day of the search; under ``"superseded_reason"`` how that is
            known.

    Example:
        >>> Hit("1", "Water of 80 degrees", 0.9, source="tea.txt").to_dict()["source"]
        'tea.txt'
    """

    id: str
    text: str
    score: float
    source: str = ""
    document_id: str = ""
    chunk_id: int = 0
    metadata: Metadata = field(default_factory=dict)

    @classmethod
    def from_node(cls, node: DocNode) -> Hit:
        """The hit of a retrieved node."""
        location = node.location
        hidden = [(place.start, place.end, place.label) for place in node.hidden_text]
        return cls(
            id=node.uid,
            text=node.get_content(),
            score=math.nan if node.score is None else node.score,
            source=node.path,
            document_id=node.document_id,
            chunk_id=node.number,
            metadata={
                **({"location": location} if location else {}),
                **node.global_metadata,
                **node.metadata,
                **({"hidden_text": hidden} if hidden else {}),
            },
        )

    @property
    def location(self) -> str:
        """The place in the document, for people; "" if it is unknown or not a text, as in foreign
        stores.
        """
        location = self.metadata.get("location")
        return " ".join(location.split()) if isinstance(location, str) else ""

    @property
    def label(self) -> str:
        """File and location for display, and what replaced the file; "" if all are unknown.

        Example:
            >>> Hit("1", "tea", 1.0, "tea.pdf", metadata={"location": "page 3"}).label
            'tea.pdf, page 3'
        """
        return _label(self.source, self.location, supersession_text(self.metadata))

    def to_dict(self) -> JsonObject:
        """The seven fields, metadata as a plain dict."""
        return {name: getattr(self, name) for name in self.__slots__} | {
            "metadata": dict(self.metadata)
        }

    def __repr__(self) -> str:
        score = "" if math.isnan(self.score) else f", score={self.score:.4f}"
        return f"Hit({self.label or self.id}: {preview(self.text)!r}{score})"

    def _repr_html_(self) -> str:
        from lazyrag.data.notebook import hits_html

        return hits_html([self])


@dataclass(frozen=True)  # slots and type parameters do not go together
class RetrievalResult(Sequence[Hit], Generic[M_co]):
    """All hits of one query: columns for evaluation (spec 002), a sequence of `Hit` for a pipeline
    (spec 003).

    The lists are held by reference, never copied.

    Args:
        contexts: The texts, best first.
        context_ids: Their ids, as many as contexts.
        scores: Their scores, as many as contexts.
        metadata: Anything about the query: sources, times. Its type is the class's parameter.
        hits: The rows, if available; by default they are made of the columns on access.

    Raises:
        ConfigError: If the columns differ in length or contexts is one string.

    Example:
        >>> result = RetrievalResult(["a", "b"], context_ids=["1", "2"], scores=[0.9, 0.1])
        >>> [(hit.id, hit.score) for hit in result], len(result)
        ([('1', 0.9), ('2', 0.1)], 2)
    """

    # `| Any` where None is the exception, see `DocNode.score`; the constructor keeps its exact
    # types.
    contexts: list[str]
    context_ids: list[str] | Any = None
    scores: list[float] | Any = None
    metadata: M_co | Any = None
    hits: Sequence[Hit] | None = field(default=None, repr=False, compare=False)

    if TYPE_CHECKING:

        def __init__(
            self,
            contexts: list[str],
            context_ids: list[str] | None = None,
            scores: list[float] | None = None,
            metadata: M_co | None = None,
            hits: Sequence[Hit] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        require(not isinstance(self.contexts, str), "contexts", self.contexts, "a list of texts")
        for name in ("context_ids", "scores", "hits"):
            column = getattr(self, name)
            fits = column is None or len(column) == len(self.contexts)
            require(
                fits,
                name,
                column,
                f"a list with one entry for each of the {len(self.contexts)} contexts",
            )

    @classmethod
    def from_hits(cls, hits: Sequence[Hit], metadata: M_co | None = None) -> RetrievalResult[M_co]:
        """A result over hits, best first."""
        return cls(
            contexts=[hit.text for hit in hits],
            context_ids=[hit.id for hit in hits],
            scores=[hit.score for hit in hits],
            metadata=metadata,
            hits=hits,
        )

    @classmethod
    def from_nodes(
        cls, nodes: Iterable[DocNode], metadata: M_co | None = None
    ) -> RetrievalResult[M_co]:
        """A result over the nodes that a retriever or reranker returned.

        Example:
            >>> from lazyrag.data.node import DocNode
            >>> RetrievalResult.from_nodes([DocNode(text="tea", score=0.5)]).scores
            [0.5]
        """
        return cls.from_hits([Hit.from_node(node) for node in nodes], metadata)

    @classmethod
    def from_dict(cls, values: JsonMapping) -> RetrievalResult[M_co]:
        """The inverse of `to_dict`."""
        return cls(**_known(values, _RETRIEVAL_FIELDS, cls.__name__))

    def to_dict(self) -> JsonObject:
        """The four fields of spec 002, by reference."""
        return {name: getattr(self, name) for name in _RETRIEVAL_FIELDS}

    def __len__(self) -> int:
        return len(self.contexts)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Hit]: ...
    def __getitem__(self, index: int | slice) -> Hit | Sequence[Hit]:
        if isinstance(index, slice):
            return [self._hit(position) for position in range(*index.indices(len(self)))]
        return self._hit(range(len(self.contexts))[index])

    def __iter__(self) -> Iterator[Hit]:
        return map(self._hit, range(len(self.contexts)))

    def __repr__(self) -> str:
        best = f", best: {self[0]!r}" if len(self) else ""
        return f"<RetrievalResult: {count(len(self), 'hit')}{best}>"

    def _repr_html_(self) -> str:
        from lazyrag.data.notebook import hits_html

        return hits_html(self)

    def _hit(self, index: int) -> Hit:
        if self.hits is not None:
            return self.hits[index]
        return Hit(
            id=str(index) if self.context_ids is None else self.context_ids[index],
            text=self.contexts[index],
            score=math.nan if self.scores is None else self.scores[index],
            metadata=EMPTY,
        )


@dataclass(frozen=True)
class GenerationResult(Generic[M_co]):
    """A generated answer (spec 002).

    Args:
        response: The answer.
        multi_responses: Candidates, if several were requested.
        confidence: In [0, 1]; None if unknown.
        metadata: Anything about the call: tokens, seconds.

    Raises:
        ConfigError: If the confidence is out of its range, or multi_responses is one string.

    Example:
        >>> GenerationResult("42", confidence=0.9).to_dict()["confidence"]
        0.9
    """

    response: str  # for the types see `RetrievalResult`
    multi_responses: list[str] | Any = None
    confidence: float | Any = None
    metadata: M_co | Any = None

    if TYPE_CHECKING:

        def __init__(
            self,
            response: str,
            multi_responses: list[str] | None = None,
            confidence: float | None = None,
            metadata: M_co | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.confidence is not None:
            validate_range("confidence", self.confidence, 0, 1, "a number from 0 to 1, or None")
        responses = self.multi_responses
        require(
            not isinstance(responses, str), "multi_responses", responses, "a list of texts, or None"
        )

    @classmethod
    def from_dict(cls, values: JsonMapping) -> GenerationResult[M_co]:
        """The inverse of `to_dict`."""
        return cls(**_known(values, _GENERATION_FIELDS, cls.__name__))

    def to_dict(self) -> JsonObject:
        """The four fields, by reference."""
        return {name: getattr(self, name) for name in _GENERATION_FIELDS}


def verdict_counts(statements: Iterable[Statement]) -> dict[str, int]:
    """Number of statements by verdict, without those that are not checkable.

    Example:
        >>> verdict_counts([Statement("Hello.", (0, 6), "not_checkable")])
        {}
    """
    verdicts = [statement.verdict for statement in statements]
    counts = {name: verdicts.count(name) for name in ("supported", "contradicted", "not_found")}
    return {name: number for name, number in counts.items() if number}


def doubtful(statements: Iterable[Statement]) -> list[Statement]:
    """The statements that are contradicted or not found."""
    return [
        statement for statement in statements if statement.verdict in ("contradicted", "not_found")
    ]


def _label(source: str, *others: str) -> str:
    return ", ".join(filter(None, (" ".join(str(source).split()), *others)))


def _known(values: JsonMapping, names: tuple[str, ...], kind: str) -> JsonObject:
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise ConfigError(f"{kind} has no field {unknown[0]!r}. {known_names(unknown[0], names)}")
    return dict(values)


@dataclass(frozen=True, slots=True)
class Citation:
    """One cited source: spec 003's five fields, then ours.

    Args:
        index: The number in brackets, from 1.
        source: The document, as a person would name it.
        document_id: Uid of its root node.
        chunk_id: Number of the cited node in its group and document, from 1.
        text_snippet: The words that are cited.
        uid: Of the cited node; "" if unknown.
        location: Its place in the document, for people: ``"page 3"``; "" if unknown.
        superseded: What replaced the document, and how that is known; "" for nothing.

    Raises:
        ConfigError: If the index is below 1.

    Example:
        >>> Citation(1, "tea.txt", "f" * 32, 3, "Water of 80 degrees").source
        'tea.txt'
    """

    index: int
    source: str
    document_id: str
    chunk_id: int
    text_snippet: str
    uid: str = ""
    location: str = ""
    superseded: str = ""

    def __post_init__(self) -> None:
        require(self.index >= 1, "index", self.index, "an integer >= 1")

    @property
    def label(self) -> str:
        """File and location, and what replaced the file."""
        return _label(self.source, self.location, self.superseded)

    def __str__(self) -> str:
        return f"[{self.index}] {self.label}: “{preview(self.text_snippet, 200)}”"


Verdict: TypeAlias = Literal["supported", "contradicted", "not_found", "not_checkable"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Words of a statement that its source does not confirm.

    Args:
        kind: ``"number"``, ``"date"``, ``"name"``, ``"negation"``, ``"opposite"``, ``"order"`` or
            ``"words"``.
        words: The words.
        span: Their start and end in the answer.
        source_words: The words of the source that contradict them; "" if none do.
        source_span: Their start and end in the source's text.
    """

    kind: str
    words: str
    span: Span
    source_words: str = ""
    source_span: Span = (0, 0)

    def __str__(self) -> str:
        against = f" against “{self.source_words}”" if self.source_words else " not found"
        return f"“{self.words}”{against}"


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence of an answer, compared with the sources that it cites; without a citation, with
    all.

    Args:
        text: The sentence, without citations.
        span: Its start and end in the answer.
        verdict: ``"supported"``; ``"contradicted"``: a source says something else;
            ``"not_found"``; or ``"not_checkable"``: a greeting, an opinion, a heading.
        indices: Numbers of the sources that it cites.
        index: Number of the source it was compared with; 0 for none.
        quote: The sentence of that source with most of its words; "" if it was not found.
        quote_span: Start and end of the quote in that source's text.
        findings: What the source does not confirm.
        proposed: Number of a source that supports it and is not cited; 0 for none.
    """

    text: str
    span: Span
    verdict: Verdict
    indices: tuple[int, ...] = ()
    index: int = 0
    quote: str = ""
    quote_span: Span = (0, 0)
    findings: tuple[Finding, ...] = ()
    proposed: int = 0

    def __str__(self) -> str:
        words = [finding for finding in self.findings if finding.kind != "words"]
        facing = [str(finding) for finding in words or self.findings if finding.source_words]
        notes = [*dict.fromkeys(facing)]
        absent = [finding.words for finding in words or self.findings if not finding.source_words]
        if absent and absent != [self.text.rstrip(".。！!")]:
            notes.append(", ".join(f"“{text}”" for text in dict.fromkeys(absent)) + " not found")
        if self.proposed and self.indices:
            notes.append(f"[{self.proposed}] supports it")
        verdict = self.verdict.replace("_", " ").capitalize()
        return f"{verdict}: {preview(self.text, 80)}" + (f" ({'; '.join(notes)})" if notes else "")


@dataclass(frozen=True, slots=True)
class RAGContext:
    """A question with the context that was built for it (spec 003).

    Args:
        query: The question.
        context: The text a generator reads.
        sources: The hits in it, in the order of their citation numbers: ``sources[0]`` is [1].
        total_tokens: Tokens of ``context`` by the counter that built it.
        metadata: Anything else.

    Example:
        >>> sources = RetrievalResult(["Water of 80 degrees"])
        >>> RAGContext("How hot?", "Water of 80 degrees", sources, 7).sources[0].text
        'Water of 80 degrees'
    """

    query: str
    context: str
    sources: RetrievalResult[Any]
    total_tokens: int
    metadata: Metadata = field(default_factory=dict)

    def __repr__(self) -> str:
        return (
            f"<RAGContext for {self.query!r}: {count(len(self.sources), 'source')},"
            f" {self.total_tokens} tokens>"
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """A cited answer to a question. ``str(answer)`` is its text with footnotes.

    Args:
        query: The question.
        text: The answer, as the model wrote it.
        citations: The sources that it cites, by their numbers, each once; a number without a source
            is left out, and listed in ``problems``.
        context: The context that the model got.
        generation: All that the model gave: candidates, confidence, tokens.
        problems: Problems of the answer and warnings, one sentence each.
        metadata: ``"seconds"``: a mapping from stage to seconds; and anything else.
        statements: The sentences of the answer, each with a verdict.

    Example:
        >>> sources = RetrievalResult(["Water of 80 degrees"])
        >>> context = RAGContext("How hot?", "[1] Water of 80 degrees", sources, 9)
        >>> citation = Citation(1, "tea.txt", "", 1, "Water of 80 degrees")
        >>> generation = GenerationResult("80 degrees [1].")
        >>> Answer("How hot?", "80 degrees [1].", (citation,), context, generation).confidence
    """

    query: str
    text: str
    citations: tuple[Citation, ...]
    context: RAGContext
    generation: GenerationResult[Any]
    problems: tuple[str, ...] = ()
    metadata: Metadata = field(default_factory=dict)
    statements: tuple[Statement, ...] = ()

    @property
    def confidence(self) -> float | Any:
        """In [0, 1]; None if unknown."""
        return self.generation.confidence

    @property
    def weak(self) -> bool:
        """Whether the library does not seem to answer the question; see ``answerable`` of the
        context's metadata, a probability.
        """
        return bool(self.context.metadata.get("weak"))

    def __repr__(self) -> str:
        problems = f", {count(len(self.problems), 'problem')}" if self.problems else ""
        return (
            f"<Answer {preview(self.text)!r}: {count(len(self.citations), 'citation')}{problems}>"
        )

    def __str__(self) -> str:
        notes = "\n".join(
            [
                *map(str, self.citations),
                *map(str, doubtful(self.statements)),
                *(f"Note: {problem}" for problem in self.problems),
            ]
        )
        return f"{self.text}\n\n{notes}" if notes else self.text

    def _repr_html_(self) -> str:
        from lazyrag.data.notebook import answer_html

        return answer_html(self)


@dataclass(frozen=True, slots=True)
class GenerationDelta:
    """A piece of a generated answer while it is being written.

    Args:
        text: The new text; may be "".
        result: The complete result, in the last piece only.

    Example:
        >>> GenerationDelta("80 degrees ").result is None
        True
    """

    text: str
    result: GenerationResult[dict[str, Any]] | Any = None


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """A piece of an answer while it is being written.

    Args:
        text: The new text; may be "".
        citations: Those that the new text completes, each source once in an answer.
        statements: Those that the new text completes, with their verdicts.
        answer: The complete answer, in the last piece only.

    Example:
        >>> AnswerDelta("80 degrees ").answer is None
        True
    """

    text: str
    citations: tuple[Citation, ...] = ()
    answer: Answer | Any = None
    statements: tuple[Statement, ...] = ()
