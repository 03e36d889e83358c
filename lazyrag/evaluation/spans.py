"""Measures on stretches of documents: judgements that stay true when documents are cut up in another way.

A uid names a node of one way of cutting; a source span names characters of a document. Two kinds of measures read them:

- By characters: how much of what is relevant was found, and how much of what was found is relevant. They tell what
  the size of chunks does. Overlaps count once: F is the set of characters in the first k found spans, R that of the
  relevant ones.
- By hits: each of the first k found spans is relevant or not, as with uids. A found span *meets* a relevant one if
  they share at least half of the shorter one: a chunk that holds the whole answer meets it, and so does a sentence
  within it; one that holds its first word does not.

`lazyrag.evaluation.measure` knows them by name: ``"char_recall@5"``, ``"span_MRR"``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.errors import ConfigError
from lazyrag.validation import whole_number

SHARE = 0.5
"""Of the shorter one of two spans, so much must be shared for one to meet the other."""


@dataclass(frozen=True, slots=True, order=True)
class SourceSpan:
    """A stretch of a document's whole text.

    Args:
        path: The document: `DocNode.path`.
        start: First character, from 0.
        end: One past the last character, above the start.

    Raises:
        ConfigError: If it is empty, or the path is no text.

    Example:
        >>> SourceSpan("tea.txt", 10, 25).length
        15
    """

    path: str
    start: int
    end: int

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            msg = f"A source span's path is {self.path!r:.80}; give the document's path, as node.path does."
            raise ConfigError(msg)
        whole_number("start", self.start, 0)
        whole_number("end", self.end, self.start + 1)

    @property
    def length(self) -> int:
        """How many characters."""
        return self.end - self.start


def source_span(node: DocNode) -> SourceSpan:
    """Where in its document a node's text comes from.

    Of a node whose text was rewritten, such as a summary, that is where the nearest ancestor stands that was not; in
    the end the whole document.

    Args:
        node: A node of a Document.

    Raises:
        ConfigError: If the node stands in no Document.
        StaleNodeError: If its document has changed since.

    Example:
        >>> from lazyrag import Document
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea.txt": "Pick it. Dry it."})
        >>> docs.create_node_group("step", transform="SentenceWindow")
        >>> source_span(docs.get_nodes("step")[1])
        SourceSpan(path='tea.txt', start=9, end=16)
    """
    if node.reader is None:
        msg = f"{node!r} stands in no Document, so that nobody knows where its text comes from."
        raise ConfigError(msg)
    here: DocNode | None = node
    while here is not None and here.group != LAZY_ROOT_NAME:
        source = here.source
        if source is not None and source.group == LAZY_ROOT_NAME and here.span is not None:
            return SourceSpan(node.path, *here.span)
        here = here.parent if source is None else source.parent
    return SourceSpan(node.path, 0, len(node.root.text))


def char_recall(found: Sequence[SourceSpan], grades: Mapping[SourceSpan, float], k: int | None = None) -> float:
    """The share of the relevant characters that is found: |F and R| / |R|.

    Args:
        found: Spans, best first.
        grades: How relevant a span is, from 1; below that it is not.
        k: How many of the found spans count; None: all of them.

    Returns:
        From 0 to 1; 0 where nothing is relevant.

    Source:
        Smith, Troynikov: Evaluating Chunking Strategies for Retrieval, Chroma Technical Report 2024; there by tokens.

    Example:
        >>> char_recall([SourceSpan("a", 0, 10)], {SourceSpan("a", 5, 25): 1})
        0.25
    """
    _, relevant_size, shared = _sizes(found, grades, k)
    return shared / relevant_size if relevant_size else 0.0


def char_precision(found: Sequence[SourceSpan], grades: Mapping[SourceSpan, float], k: int | None = None) -> float:
    """The share of the found characters that is relevant: |F and R| / |F|.

    Args:
        found: Spans, best first.
        grades: How relevant a span is, from 1; below that it is not.
        k: How many of the found spans count; None: all of them.

    Returns:
        From 0 to 1; 0 where nothing is found.

    Source:
        See `char_recall`.

    Example:
        >>> char_precision([SourceSpan("a", 0, 10)], {SourceSpan("a", 5, 25): 1})
        0.5
    """
    found_size, _, shared = _sizes(found, grades, k)
    return shared / found_size if found_size else 0.0


def char_f1(found: Sequence[SourceSpan], grades: Mapping[SourceSpan, float], k: int | None = None) -> float:
    """The harmonic mean of `char_recall` and `char_precision`: 2 |F and R| / (|F| + |R|).

    Args:
        found: Spans, best first.
        grades: How relevant a span is, from 1; below that it is not.
        k: How many of the found spans count; None: all of them.

    Example:
        >>> char_f1([SourceSpan("a", 0, 10)], {SourceSpan("a", 5, 15): 1})
        0.5
    """
    found_size, relevant_size, shared = _sizes(found, grades, k)
    return 2 * shared / (found_size + relevant_size) if found_size + relevant_size else 0.0


def char_iou(found: Sequence[SourceSpan], grades: Mapping[SourceSpan, float], k: int | None = None) -> float:
    """What is found and relevant, as a share of what is either: |F and R| / |F or R|.

    Args:
        found: Spans, best first.
        grades: How relevant a span is, from 1; below that it is not.
        k: How many of the found spans count; None: all of them.

    Source:
        See `char_recall`.

    Example:
        >>> char_iou([SourceSpan("a", 0, 10)], {SourceSpan("a", 5, 20): 1})
        0.25
    """
    found_size, relevant_size, shared = _sizes(found, grades, k)
    either = found_size + relevant_size - shared
    return shared / either if either else 0.0


def span_recall(
    found: Sequence[SourceSpan], grades: Mapping[SourceSpan, float], k: int | None = None, share: float = SHARE
) -> float:
    """The share of the relevant spans that one of the first k meets.

    Args:
        found: Spans, best first.
        grades: How relevant a span is, from 1; below that it is not.
        k: How many of the found spans count; None: all of them.
        share: Of the shorter span, so much must be shared, above 0 and up to 1.

    Returns:
        From 0 to 1; 0 where nothing is relevant.

    Example:
        >>> span_recall([SourceSpan("a", 0, 10)], {SourceSpan("a", 2, 4): 1, SourceSpan("b", 0, 9): 1})
        0.5
    """
    relevant = _relevant(grades)
    met = [any(_meets(one, label, share) for one in _first(found, k)) for label in relevant]
    return sum(met) / len(relevant) if relevant else 0.0


def span_precision(
    found: Sequence[SourceSpan], grades: Mapping[SourceSpan, float], k: int, share: float = SHARE
) -> float:
    """The share of the first k found spans that meet a relevant one; places that nothing was found for do not.

    Args:
        found: Spans, best first.
        grades: How relevant a span is, from 1; below that it is not.
        k: How many of the found spans count.
        share: Of the shorter span, so much must be shared, above 0 and up to 1.

    Example:
        >>> span_precision([SourceSpan("a", 0, 10), SourceSpan("a", 20, 30)], {SourceSpan("a", 2, 4): 1}, k=2)
        0.5
    """
    return sum(_are_relevant(found, grades, k, share)) / k


def span_success(
    found: Sequence[SourceSpan], grades: Mapping[SourceSpan, float], k: int | None = None, share: float = SHARE
) -> float:
    """Whether one of the first k found spans meets a relevant one: 1 or 0.

    Args:
        found: Spans, best first.
        grades: How relevant a span is, from 1; below that it is not.
        k: How many of the found spans count; None: all of them.
        share: Of the shorter span, so much must be shared, above 0 and up to 1.

    Example:
        >>> span_success([SourceSpan("a", 0, 10)], {SourceSpan("a", 9, 29): 1})
        0.0
    """
    return float(any(_are_relevant(found, grades, k, share)))


def span_reciprocal_rank(
    found: Sequence[SourceSpan], grades: Mapping[SourceSpan, float], k: int | None = None, share: float = SHARE
) -> float:
    """1 / rank of the first found span that meets a relevant one, ranks from 1; 0 without one. Its mean is span_MRR.

    Args:
        found: Spans, best first.
        grades: How relevant a span is, from 1; below that it is not.
        k: How many of the found spans count; None: all of them.
        share: Of the shorter span, so much must be shared, above 0 and up to 1.

    Example:
        >>> span_reciprocal_rank([SourceSpan("b", 0, 9), SourceSpan("a", 0, 10)], {SourceSpan("a", 2, 4): 1})
        0.5
    """
    relevant = _are_relevant(found, grades, k, share)
    return 1.0 / (relevant.index(True) + 1) if True in relevant else 0.0


def _are_relevant(found: Sequence[Any], grades: Mapping[Any, float], k: int | None, share: float) -> list[bool]:
    relevant = _relevant(grades)
    return [any(_meets(one, label, share) for label in relevant) for one in _first(found, k)]


def _meets(one: SourceSpan, other: SourceSpan, share: float) -> bool:
    if not 0 < share <= 1:
        msg = f"share is {share!r}; give a number above 0 and up to 1."
        raise ConfigError(msg)
    shared = min(one.end, other.end) - max(one.start, other.start)
    return one.path == other.path and shared >= share * min(one.length, other.length)


def _sizes(found: Sequence[Any], grades: Mapping[Any, float], k: int | None) -> tuple[int, int, int]:
    """How many characters are in F, in R, and in both."""
    first, relevant = _first(found, k), _relevant(grades)
    found_size, relevant_size = _size(first), _size(relevant)
    return found_size, relevant_size, found_size + relevant_size - _size([*first, *relevant])


def _size(spans: Iterable[SourceSpan]) -> int:
    """How many characters are in at least one of the spans."""
    size, path, reached = 0, "", 0
    for span in sorted(spans):
        if span.path != path:
            path, reached = span.path, 0
        size += max(0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return size


def _relevant(grades: Mapping[Any, float]) -> list[SourceSpan]:
    return list(_spans([span for span, grade in grades.items() if grade >= 1]))


def _first(found: Sequence[Any], k: int | None) -> Sequence[SourceSpan]:
    return _spans(found if k is None else found[: whole_number("k", k, 1)])


def _spans(given: Sequence[Any]) -> Sequence[Any]:
    stray = [one for one in given if not isinstance(one, SourceSpan)]
    if stray:
        msg = f"A measure of spans got {stray[0]!r:.80}; give SourceSpan(path, start, end), as source_span(node) does."
        raise ConfigError(msg)
    return given
