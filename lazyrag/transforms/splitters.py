"""Splitters of plain text: chunks with a maximum number of tokens and their spans."""

from __future__ import annotations

import functools
import itertools
import math
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY, Span
from lazyrag.errors import ConfigError, TransformError
from lazyrag.models.embedding import CheckedEmbedder, EmbedCallable, as_embedder, stack_dense
from lazyrag.models.protocols import Embedder
from lazyrag.text.sentences import (
    CJK_LETTERS,
    first_clause,
    first_word,
    is_boundary,
    last_break,
    sentence_ends,
    sentence_spans,
)
from lazyrag.text.tokens import (
    BisectingCounter,
    FittingTokenCounter,
    TokenCounter,
    resolve_counter,
    with_fit_methods,
)
from lazyrag.transforms.base import NodeTransform
from lazyrag.types import Metadata
from lazyrag.validation import known_arguments, require, validate_integer, validate_range

if TYPE_CHECKING:
    from lazyrag.text.structure import Cleaned

Separator: TypeAlias = "str | Callable[[str], Iterable[str]]"
"""Between pieces: a text, or a function from a text to its pieces."""

Levels: TypeAlias = "Sequence[array[int]]"
"""Where the parts of a text end, from large parts (sections) to small ones (sentences): ascending,
the last item is the length of the text."""


class TextSplitter(NodeTransform):
    """Base of splitters that pack the parts of a text into chunks.

    Args:
        chunk_size: Maximum tokens of a chunk, at least 1.
        chunk_overlap: Maximum tokens that two neighbours share, below chunk_size. None: a fifth of
            chunk_size, at most 200.
        counter: A TokenCounter or the name of a registered one.
    """

    reads_text_only = True
    revision = 1

    def __init__(
        self,
        chunk_size: int = 1024,
        chunk_overlap: int | None = None,
        *,
        counter: TokenCounter | str = "utf8",
    ) -> None:
        self._packer = Packer(chunk_size, chunk_overlap, counter)
        self.chunk_size = self._packer.size
        self.chunk_overlap = self._packer.overlap
        self.counter = self._packer.counter
        self._set_identity()

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """Split the node's text into chunks with spans."""
        text = node.get_text()
        return chunks(text, self.split(text))

    def split(self, text: str) -> list[Span]:
        """Return the spans of the chunks of a text, in order; see `Packer.spans`."""
        return self._packer.spans(text, self._levels(text))

    def _levels(self, text: str) -> Levels:
        """Return where parts of a text end, from large parts to small ones."""
        raise NotImplementedError

    def _set_identity(self, details: str = "") -> None:
        """Name the settings of a class of this package; of users' subclasses the code has to
        count.
        """
        if type(self).__module__.startswith("lazyrag."):
            self.identity = (
                f"{type(self).__name__}/{self.revision} {self._packer.settings}{details}"
            )


@known_arguments
class SentenceSplitter(TextSplitter):
    """Splits text into chunks of as many whole sentences as fit.

    The spans cover the text without gaps; white space stays with the sentence before it. A sentence
    that does not fit is cut at the end of a line, a clause or a word, in this order, and inside a
    user-perceived character only if that alone does not fit. A chunk begins with the end of the
    previous one: with its last sentences if they fit into the overlap, else with its last words.
    There is no overlap where that keeps a sentence or a character whole.

    Args:
        chunk_size: Maximum tokens of a chunk, at least 1.
        chunk_overlap: Maximum tokens that two neighbours share, below chunk_size. None: a fifth of
            chunk_size, at most 200.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> splitter = SentenceSplitter(chunk_size=6, chunk_overlap=0)
        >>> text = "他走了。她也走了。"
        >>> [text[start:end] for start, end in splitter.split(text)]
        ['他走了。', '她也走了。']
    """

    def _levels(self, text: str) -> Levels:
        return [sentence_ends(text)]


@known_arguments
class SectionSplitter(SentenceSplitter):
    """Splits text at its headings where sections are long enough, and as `SentenceSplitter`
    elsewhere.

    The headings are those that the file's loader found, in any format: see `DocNode.locations`. A
    chunk ends before the last heading, of those of the highest level, that leaves it at least 60 %
    full; without one, sentences are packed on. No overlap reaches across a heading; it begins with
    a clause, if it has one. The built-in groups use it.

    Args:
        chunk_size: Maximum tokens of a chunk, at least 1; about as many tokens of cl100k_base.
        chunk_overlap: Maximum tokens that two neighbours of a section share, below chunk_size.
            None: a fifth of chunk_size, at most 200.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If an argument is invalid.
    """

    reads_text_only = False  # but headings, too

    def __init__(
        self,
        chunk_size: int = 1024,
        chunk_overlap: int | None = None,
        *,
        counter: TokenCounter | str = "average",
    ) -> None:
        super().__init__(chunk_size, chunk_overlap, counter=counter)
        self._packer.from_clauses = True

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """Split the node's text into chunks with spans."""
        text = node.get_text()
        first = (node.span or (0, 0))[0]
        headings = {
            location.start - first: location.label.count(" > ")
            for location in node.locations
            if location.kind == "heading"
        }
        inside = {start: depth for start, depth in headings.items() if 0 < start < len(text)}
        if not inside:
            return chunks(text, self.split(text))
        ends = array("q", sorted({*sentence_ends(text), *inside}))
        return chunks(text, self._packer.spans(text, [ends], inside))


class _SeparatorSplitter(TextSplitter):
    """Base of splitters at separators."""

    identity_depends_on: Mapping[str, Any] = EMPTY
    """Objects that `identity` does not cover: functions."""

    def _set_separators(
        self, separators: Sequence[Separator], keep_separator: bool | str, details: str
    ) -> None:
        """Set the separators, from coarse to fine, and where they stay."""
        is_valid = keep_separator in (True, False, "start", "end")
        require(is_valid, "keep_separator", keep_separator, "'end', 'start', True or False")
        self.keep_separator = keep = "start" if keep_separator is True else keep_separator
        self._separators = tuple(separators)
        texts = [
            re.escape(separator)
            for separator in separators
            if isinstance(separator, str) and separator
        ]
        self._trailing = re.compile(f"(?:{'|'.join(texts)})+\\Z") if texts and not keep else None
        self._set_identity(details if keep == "end" else f"{details} keep={keep}")
        self.identity_depends_on = {
            f"separators[{at}]": separator
            for at, separator in enumerate(separators)
            if callable(separator)
        }

    def split(self, text: str) -> list[Span]:
        """Return the spans of the chunks of a text; they cover it, but for separators that are left
        out.
        """
        spans = super().split(text)
        if self._trailing is None:
            return spans
        trimmed = []
        for start, end in spans:
            separator = self._trailing.search(text, start, end)
            trimmed.append((start, separator.start() if separator else end))
        return [(start, end) for start, end in trimmed if start < end]

    def _levels(self, text: str) -> Levels:
        at_start = self.keep_separator == "start"
        return [
            (
                _separator_ends(text, separator, at_start=at_start)
                if isinstance(separator, str)
                else _piece_ends(text, separator)
            )
            for separator in self._separators
        ]


@known_arguments
class CharacterSplitter(_SeparatorSplitter):
    r"""Splits text at one separator into chunks of as many whole pieces as fit.

    By default the separator stays at the end of its piece, so the spans cover the text without
    gaps. A piece that does not fit is cut at the end of a line, a clause or a word, in this order.

    Args:
        separator: Separator between pieces, not empty; a run of white space counts as one.
        chunk_size: Maximum tokens of a chunk, at least 1.
        chunk_overlap: Maximum tokens that two neighbours share, below chunk_size. None: a fifth of
            chunk_size, at most 200.
        keep_separator: Whether a separator stays at the ``"end"`` of the piece before it, at the
            ``"start"`` of the next one (True means the same), or, False, is left out at the end of
            a chunk.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> splitter = CharacterSplitter("\n", chunk_size=5, chunk_overlap=0)
        >>> text = "green tea\nblack tea\noolong"
        >>> [text[start:end] for start, end in splitter.split(text)]
        ['green tea\n', 'black tea\n', 'oolong']
    """

    def __init__(
        self,
        separator: str = "\n\n",
        chunk_size: int = 1024,
        chunk_overlap: int | None = None,
        *,
        keep_separator: bool | str = "end",
        counter: TokenCounter | str = "utf8",
    ) -> None:
        super().__init__(chunk_size, chunk_overlap, counter=counter)
        require(
            isinstance(separator, str) and separator != "",
            "separator",
            separator,
            "a string that is not empty",
        )
        self.separator = separator
        self._set_separators([separator], keep_separator, f" separator={separator!r}")


@known_arguments
class RecursiveSplitter(_SeparatorSplitter):
    r"""Splits text at the coarsest separator whose pieces fit, into chunks of as many pieces as
    fit.

    A piece that does not fit is split at the next separator, at last at sentences, clauses and
    words. By default separators stay at the ends of pieces, so the spans cover the text without
    gaps.

    Args:
        separators: From coarse to fine; several in a row, if they are white space, count as one.
            ``""`` as the last one splits at characters instead of sentences and words. A function
            in the place of a string takes the text and returns its pieces, in order.
        chunk_size: Maximum tokens of a chunk, at least 1.
        chunk_overlap: Maximum tokens that two neighbours share, below chunk_size. None: a fifth of
            chunk_size, at most 200.
        keep_separator: Whether a separator stays at the ``"end"`` of the piece before it, at the
            ``"start"`` of the next one (True means the same), or, False, is left out at the end of
            a chunk.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> splitter = RecursiveSplitter(chunk_size=9, chunk_overlap=0)
        >>> text = "Green tea.\n\nBlack tea is oxidised. It keeps."
        >>> [text[start:end] for start, end in splitter.split(text)]
        ['Green tea.\n\n', 'Black tea is oxidised. ', 'It keeps.']
    """

    def __init__(
        self,
        separators: Sequence[Separator] = ("\n\n", "\n"),
        chunk_size: int = 1024,
        chunk_overlap: int | None = None,
        *,
        keep_separator: bool | str = "end",
        counter: TokenCounter | str = "utf8",
    ) -> None:
        super().__init__(chunk_size, chunk_overlap, counter=counter)
        is_list = isinstance(separators, (list, tuple)) and all(
            isinstance(separator, str) or callable(separator) for separator in separators
        )
        expected = "a list of strings and functions, with '' only as the last one"
        require(is_list and "" not in separators[:-1], "separators", separators, expected)
        self.separators = tuple(separators)
        named = tuple(
            separator if isinstance(separator, str) else getattr(separator, "__qualname__", "")
            for separator in separators
        )
        self._set_separators(separators, keep_separator, f" separators={named!r}")

    def _levels(self, text: str) -> Levels:
        levels = super()._levels(text)
        return levels if "" in self.separators else [*levels, sentence_ends(text)]


@known_arguments
class TokenSplitter(TextSplitter):
    """Splits text into chunks of as many words as fit, regardless of sentences.

    A Chinese, Japanese or Korean character counts as a word. The spans cover the text without gaps;
    white space stays with the word before it.

    Args:
        chunk_size: Maximum tokens of a chunk, at least 1.
        chunk_overlap: Maximum tokens that two neighbours share, below chunk_size. None: a fifth of
            chunk_size, at most 200.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> splitter = TokenSplitter(chunk_size=4, chunk_overlap=0)
        >>> text = "He left. She left as well."
        >>> [text[start:end] for start, end in splitter.split(text)]
        ['He left. ', 'She left as ', 'well.']
    """

    def _levels(self, text: str) -> Levels:
        return [word_ends(text)]


@known_arguments
class SentenceWindow(NodeTransform):
    """Splits text into sentences, with the sentences around each in its metadata:
    ``{"window": "..."}``.

    Search finds the sentence, and the window gives its context. A sentence without a word belongs
    to the one before it.

    Args:
        before: Number of sentences before it in the window, at least 0.
        after: Number of sentences after it, at least 0.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> nodes = SentenceWindow(1, 0)(DocNode(text="Pick it. Wither it. Dry it."))
        >>> [(node.text, node.metadata["window"]) for node in nodes][1:]
        [('Wither it. ', 'Pick it. Wither it. '), ('Dry it.', 'Wither it. Dry it.')]
    """

    reads_text_only = True

    def __init__(self, before: int = 3, after: int = 3) -> None:
        self.before = validate_integer("before", before, 0)
        self.after = validate_integer("after", after, 0)
        if type(self) is SentenceWindow:
            self.identity = f"SentenceWindow/1 before={self.before} after={self.after}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """Split the node's text into sentences with spans."""
        text = node.get_text()
        spans = _sentences(text)
        for number, (start, end) in enumerate(spans):
            if not text[start:end].isspace():
                first = spans[max(0, number - self.before)]
                last = spans[min(len(spans) - 1, number + self.after)]
                yield DocNode(
                    text=text[start:end],
                    span=(start, end),
                    metadata={"window": text[first[0] : last[1]]},
                )


@known_arguments
class SemanticSplitter(NodeTransform):
    """Splits text where its topic changes: between sentences whose embeddings are far apart.

    Each sentence is embedded together with its neighbours. A chunk ends where the cosine distance
    between neighbouring sentences exceeds the threshold. Chunks below ``min_size`` are merged with
    a neighbour; those above ``chunk_size`` are cut at the ends of sentences. The spans cover the
    text without gaps and do not overlap.

    Args:
        embed: An `Embedder`, or a callable from a text to a vector. The group's fingerprint
            includes its identity, or the code of a callable without one.
        chunk_size: Maximum tokens of a chunk, at least 1.
        min_size: Minimum tokens of a chunk, if its neighbours leave room; from 0 to chunk_size.
        percentile: Split at distances above this percentile of the text's own distances, from 0 to
            100; 95 if neither it nor ``threshold`` is given.
        threshold: Split at distances above this value, from 0 to 2: the same for every text.
        window: Number of sentences on each side that are embedded with a sentence, at least 0.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If an argument is invalid, or both percentile and threshold are given.

    Source:
        G. Kamradt: 5 Levels of Text Splitting, level 4 (2024).

    Example:
        >>> embed = lambda text: [text.count("tea"), text.count("rain")]
        >>> splitter = SemanticSplitter(embed, threshold=0.5, window=0)
        >>> text = "Green tea keeps. Black tea too. It may rain. More rain comes."
        >>> [text[start:end] for start, end in splitter.split(text)]
        ['Green tea keeps. Black tea too. ', 'It may rain. More rain comes.']
    """

    reads_text_only = True
    identity_depends_on: Mapping[str, Any] = EMPTY
    """Objects that `identity` does not cover: an embed without identity."""

    def __init__(
        self,
        embed: Embedder | EmbedCallable,
        chunk_size: int = 1024,
        *,
        min_size: int = 0,
        percentile: float | None = None,
        threshold: float | None = None,
        window: int = 1,
        counter: TokenCounter | str = "utf8",
    ) -> None:
        self.embed = embed
        embedder = as_embedder(embed, "embed of SemanticSplitter")
        self._embedder = CheckedEmbedder(embedder, "The embed of SemanticSplitter")
        self._packer = Packer(chunk_size, 0, counter)
        self.chunk_size = self._packer.size
        self.counter = self._packer.counter
        self.min_size = validate_integer(
            "min_size (at most chunk_size)", min_size, 0, self.chunk_size
        )
        if percentile is not None and threshold is not None:
            raise ConfigError(
                f"Pass percentile or threshold; got both ({percentile!r}, {threshold!r})."
            )
        self.threshold = threshold
        if threshold is not None:
            self.threshold = validate_range("threshold", threshold, 0, 2)
        percentile = 95 if percentile is None else percentile
        self.percentile = validate_range("percentile", percentile, 0, 100)
        self.window = validate_integer("window", window, 0)
        if type(self) is SemanticSplitter:
            split_at = (
                f"percentile={self.percentile}"
                if threshold is None
                else f"threshold={self.threshold}"
            )
            self.identity = (
                f"SemanticSplitter/1 {self._packer.settings} min={self.min_size}"
                f" window={self.window} {split_at} embed={embedder.identity}"
            )
            self.identity_depends_on = {} if embedder.identity else {"embed": embed}

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """Split the node's text into chunks with spans."""
        text = node.get_text()
        return chunks(text, self.split(text))

    def split(self, text: str) -> list[Span]:
        """Return the spans of the chunks of a text, in order; they cover it without gaps.

        Raises:
            EmbeddingError: If a sentence cannot be embedded.
        """
        sentences = _sentences(text)
        spans = []
        for start, end in self._joined(text, self._parts(text, sentences)):
            ends = array("q", (stop - start for _, stop in sentences if start < stop <= end))
            levels = [closed(ends, end - start)]
            spans += [
                (start + first, start + last)
                for first, last in self._packer.spans(text[start:end], levels)
            ]
        return spans

    def _parts(self, text: str, sentences: Sequence[Span]) -> list[Span]:
        """Return the spans between changes of topic."""
        if len(sentences) < 2:
            return list(sentences)
        last = len(sentences) - 1
        seen = [
            text[sentences[max(0, at - self.window)][0] : sentences[min(last, at + self.window)][1]]
            for at in range(len(sentences))
        ]
        if not seen[0].strip():  # only the first one can be blank
            seen[0] = seen[1]
        vectors = stack_dense(
            self._embedder.embed_each(seen), "The embed of SemanticSplitter"
        ).astype(np.float64)
        lengths = np.linalg.norm(vectors, axis=1)
        products = np.einsum("ij,ij->i", vectors[:-1], vectors[1:])
        scale = lengths[:-1] * lengths[1:]
        # A zero vector has no direction, so it separates nothing.
        distances = 1 - np.divide(products, scale, out=np.ones_like(products), where=scale > 0)
        limit = (
            float(np.percentile(distances, self.percentile))
            if self.threshold is None
            else self.threshold
        )
        starts = [
            0,
            *(at + 1 for at in np.flatnonzero(distances > limit + 1e-9).tolist()),
            len(sentences),
        ]
        return [
            (sentences[first][0], sentences[end - 1][1])
            for first, end in itertools.pairwise(starts)
        ]

    def _joined(self, text: str, parts: Sequence[Span]) -> list[Span]:
        """Merge parts with fewer tokens than ``min_size`` with a neighbour, if both fit in a
        chunk.
        """
        joined: list[Span] = []
        for part in parts:
            if joined:
                both = (joined[-1][0], part[1])
                is_small = (
                    min(self._count(text, joined[-1]), self._count(text, part)) < self.min_size
                )
                if is_small and self._count(text, both) <= self.chunk_size:
                    joined[-1] = both
                    continue
            joined.append(part)
        return joined

    def _count(self, text: str, span: Span) -> int:
        return self.counter.count(text[span[0] : span[1]])


def _sentences(text: str) -> list[Span]:
    """Return the spans of sentences; one without a letter or digit belongs to the one before it."""
    spans: list[Span] = []
    for start, end in sentence_spans(text):
        if spans and not any(map(str.isalnum, text[start:end])):
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans


_FULL_ENOUGH = 0.6  # of a chunk's size, for its end at a heading


class Packer:
    """Packs the parts of a text into spans; for its arguments see `TextSplitter`."""

    def __init__(
        self, chunk_size: int, chunk_overlap: int | None, counter: TokenCounter | str
    ) -> None:
        self.size = validate_integer("chunk_size", chunk_size, 1)
        if chunk_overlap is None:
            chunk_overlap = min(200, self.size // 5)
        self.overlap = validate_integer(
            "chunk_overlap (below chunk_size)", chunk_overlap, 0, self.size - 1
        )
        self.counter = resolve_counter(counter)
        self.from_clauses = False  # whether an overlap begins with a clause, if it has one

    @property
    def settings(self) -> str:
        """Everything that affects the spans, for a transform's identity."""
        return f"size={self.size} overlap={self.overlap} counter={self.counter.name}"

    def spans(
        self, text: str, levels: Levels, headings: Mapping[int, int] | None = None
    ) -> list[Span]:
        """Return the spans of a text, in order.

        Args:
            text: The text.
            levels: Where its parts end, from large parts (sections) to small ones (sentences):
                ascending arrays whose last item is ``len(text)``. A part that does not fit is split
                at the next level, at last at the end of a line, a clause, a word, a character.
            headings: Where sections begin that spans end before if that leaves them full enough,
                and their depths; in order, and ends of parts as well.

        Returns:
            Spans (start, end) with ``count(text[start:end]) <= size``, unless a single character
            has more tokens. Each begins at or before the end of the previous one and ends after it;
            together they cover the text.
        """
        spans = []
        # of its own: its guesses may not depend on the texts before
        fitting = with_fit_methods(self.counter)
        starts = [*headings] if headings else []
        start = end = 0
        while end < len(text):
            passed = bisect_right(starts, end)
            following = self._next(fitting, text, levels, start, end)
            while following[0] > start and 2 * self.overlap > self.size and start < end:
                # The part after so large an overlap does not fit: a smaller one leaves room for it.
                start = self._overlap_start(fitting, text, levels, start, end)
                following = self._next(fitting, text, levels, start, end)
            start, end = following
            inside = starts[passed : bisect_right(starts, end)]
            if headings and inside and end < len(text):
                least = fitting.fit_forward(text, start, math.ceil(_FULL_ENOUGH * self.size) - 1)
                full = [at for at in inside if at > least]
                end = min(full, key=lambda at: (headings[at], -at), default=end)
            spans.append((start, end))
            start = self._overlap_start(fitting, text, levels, start, end)
            if inside := [at for at in inside if at <= end]:
                start = max(start, inside[-1])
        return spans

    def _next(
        self,
        fitting: FittingTokenCounter,
        text: str,
        levels: Levels,
        start: int,
        done: int,
    ) -> Span:
        """Return the next span: from ``start``, or from ``done`` if that keeps a part or a
        character whole.
        """
        if isinstance(fitting, BisectingCounter):  # whole parts are found with less counting
            for ends in levels:
                part_end = fitting.last_end(text, start, self.size, ends)
                if part_end > done:
                    return start, part_end
        limit = max(fitting.fit_forward(text, start, self.size), start + 1)
        for ends in levels:
            part_end = _last_at_most(ends, limit)
            if part_end > done:
                return start, part_end
        if start == done:
            return start, last_break(text, done, limit)
        fresh = self._next(fitting, text, levels, done, done)
        # The overlap fills the span, or cuts a part.
        if limit <= done or any(_last_at_most(ends, fresh[1]) == fresh[1] for ends in levels):
            return fresh
        cut = last_break(text, done, limit)
        return (start, cut) if is_boundary(text, cut) else fresh

    def _overlap_start(
        self,
        fitting: FittingTokenCounter,
        text: str,
        levels: Levels,
        start: int,
        end: int,
    ) -> int:
        """Return where the next span begins: in (start, end], within the overlap."""
        if not self.overlap or end == len(text):
            return end
        if isinstance(fitting, BisectingCounter):
            for starts in levels:
                part = fitting.first_start(text, end, self.overlap, starts, start + 1)
                if part < end:
                    return part
        earliest = max(fitting.fit_backward(text, end, self.overlap), start + 1)
        for ends in levels:
            part = ends[bisect_left(ends, earliest)]
            if part < end:
                return part
        clause = first_clause(text, earliest, end) if self.from_clauses else end
        return clause if clause < end else first_word(text, earliest, end)


def chunks(
    text: str | Cleaned, spans: Iterable[Span], metadata: Metadata = EMPTY
) -> Iterator[DocNode]:
    """Create nodes for the spans of a text that are not blank; of a cleaned text, with their spans
    in its source.
    """
    if isinstance(text, str) and not metadata:
        for start, end in spans:
            part = text[start:end]
            if part and not part.isspace():
                yield DocNode.of_part(part, (start, end))
        return
    source = text if isinstance(text, str) else text.text
    for start, end in spans:
        if source[start:end].strip():
            span = (start, end) if isinstance(text, str) else text.span(start, end)
            yield DocNode(text=source[start:end], span=span, metadata=metadata)


def _last_at_most(ends: array[int], limit: int) -> int:
    """Return the last of some ascending positions that is <= a limit, or 0."""
    at = bisect_right(ends, limit)
    return ends[at - 1] if at else 0


def closed(ends: array[int], length: int) -> array[int]:
    """Add the end of the text to the ascending ends of its parts."""
    if length and (not ends or ends[-1] != length):
        ends.append(length)
    return ends


@functools.cache
def _word() -> re.Pattern[str]:
    return re.compile(rf"(?:[{CJK_LETTERS}]|[^\s{CJK_LETTERS}]+)\s*|\s+")


def word_ends(text: str) -> array[int]:
    """Return where words end, with the white space after them. A CJK character is a word."""
    return _at_boundaries(text, (match.end() for match in _word().finditer(text)))


def _separator_ends(text: str, separator: str, *, at_start: bool) -> array[int]:
    """Return where pieces end: behind or before each separator, or each run of separators that are
    white space.
    """
    if not separator:
        return _at_boundaries(text, range(1, len(text) + 1))
    pattern = re.compile(
        f"(?:{re.escape(separator)})+" if separator.isspace() else re.escape(separator)
    )
    ends = (match.start() if at_start else match.end() for match in pattern.finditer(text))
    return _at_boundaries(text, filter(None, ends))


def _piece_ends(text: str, split: Callable[[str], Iterable[str]]) -> array[int]:
    """Return where the pieces end that a user's function returns: where the next one begins."""
    starts = [0]
    position = 0
    pieces = split(text)
    for piece in pieces if isinstance(pieces, Iterable) else [pieces]:
        start = text.find(piece, position) if isinstance(piece, str) else -1
        if start < 0:
            name = getattr(split, "__qualname__", repr(split))
            raise TransformError(
                f"The separator {name} must return pieces of its text, in order; got {piece!r:.60}."
            )
        if piece and start > starts[-1]:
            starts.append(start)
        position = start + len(piece)
    return _at_boundaries(text, starts[1:])


def _at_boundaries(text: str, ends: Iterable[int]) -> array[int]:
    """Keep the ascending positions that are inside no character, and add the end of the text."""
    return closed(array("q", (end for end in ends if is_boundary(text, end))), len(text))
