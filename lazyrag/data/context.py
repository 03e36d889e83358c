"""What a generator is given, and what it made of it: the context of a question, its sources, the cited answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lazyrag.data.result import GenerationResult, RetrievalResult
from lazyrag.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Citation:
    """One cited source: spec 003's five fields, then ours.

    Args:
        index: The number in brackets, from 1.
        source: The document, as a person would name it.
        document_id: Uid of its root node.
        chunk_id: Number of the cited node in its group and document, from 1.
        text_snippet: The words that are cited.
        uid: Of the cited node; "" where it is not known.
        place: Where it stands in the document, for people: ``"page 3"``; "" where it is not known.

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
    place: str = ""

    def __post_init__(self) -> None:
        if self.index < 1:
            msg = f"A citation's index is {self.index}; citations count from 1."
            raise ConfigError(msg)


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
        >>> RAGContext("How hot?", "Water of 80 degrees", RetrievalResult(["Water of 80 degrees"]), 7).sources[0].text
        'Water of 80 degrees'
    """

    query: str
    context: str
    sources: RetrievalResult[Any]
    total_tokens: int
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """A cited answer to a question.

    Args:
        query: The question.
        text: The answer, as the model wrote it.
        citations: The sources that it cites, by their numbers, each once; a number without a source is left out, and
            stands in ``problems``.
        context: What the model was given.
        generation: All that the model gave: candidates, confidence, tokens.
        problems: What was wrong with the answer, one sentence each; what was warned of.
        metadata: ``"seconds"``: a mapping from stage to seconds; and anything else.

    Example:
        >>> context = RAGContext("How hot?", "[1] Water of 80 degrees", RetrievalResult(["Water of 80 degrees"]), 9)
        >>> citation = Citation(1, "tea.txt", "", 1, "Water of 80 degrees")
        >>> Answer("How hot?", "80 degrees [1].", (citation,), context, GenerationResult("80 degrees [1].")).confidence
    """

    query: str
    text: str
    citations: tuple[Citation, ...]
    context: RAGContext
    generation: GenerationResult[Any]
    problems: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def confidence(self) -> float | None:
        """In [0, 1]; None where it is not known."""
        return self.generation.confidence


@dataclass(frozen=True, slots=True)
class GenerationDelta:
    """A piece of a generated answer while it is being written.

    Args:
        text: What is new; may be "".
        result: The whole, in the last piece only.

    Example:
        >>> GenerationDelta("80 degrees ").result is None
        True
    """

    text: str
    result: GenerationResult[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """A piece of an answer while it is being written.

    Args:
        text: What is new; may be "".
        citations: Those that the new text completes, each source once in an answer.
        answer: The whole, in the last piece only.

    Example:
        >>> AnswerDelta("80 degrees ").answer is None
        True
    """

    text: str
    citations: tuple[Citation, ...] = ()
    answer: Answer | None = None
