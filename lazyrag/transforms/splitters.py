"""Splitters: text into pieces of a bounded number of tokens, each with its place."""

from __future__ import annotations

import itertools
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY, Span
from lazyrag.errors import ConfigError, known_names
from lazyrag.models.embedding import CheckedEmbedder, EmbedCallable, as_embedder, stacked
from lazyrag.models.protocols import Embedder
from lazyrag.text.sentences import CJK_LETTERS, first_word, is_boundary, last_break, sentence_ends, sentence_spans
from lazyrag.text.tokens import TokenCounter, fitting, token_counters
from lazyrag.transforms.base import NodeTransform, transforms
from lazyrag.validation import known_arguments, whole_number


class Packer:
    """Packs a text's parts into spans.

    Args:
        chunk_size: Most tokens of a span, at least 1.
        chunk_overlap: Most tokens that two neighbours share, at least 0 and at most half of chunk_size. None: a fifth
            of chunk_size, at most 200.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If a size is out of its range or the counter is none.
    """

    def __init__(self, chunk_size: int, chunk_overlap: int | None, counter: TokenCounter | str) -> None:
        self.size = whole_number("chunk_size", chunk_size, 1)
        if chunk_overlap is None:
            chunk_overlap = min(200, self.size // 5)
        self.overlap = whole_number("chunk_overlap (at most half of chunk_size)", chunk_overlap, 0, self.size // 2)
        self.counter = token_counters[counter] if isinstance(counter, str) else counter
        if not callable(getattr(self.counter, "count", None)) or not isinstance(
            getattr(self.counter, "name", None), str
        ):
            msg = f"counter is {counter!r}; give an object with name and count(text). {known_names('', token_counters)}"
            raise ConfigError(msg)
        self._fitting = fitting(self.counter)

    @property
    def told(self) -> str:
        """All that decides about the spans, for a transform's identity."""
        return f"size={self.size} overlap={self.overlap} counter={self.counter.name}"

    def spans(self, text: str, levels: Sequence[array[int]]) -> list[Span]:
        """The spans of a text, in order.

        Args:
            text: The text.
            levels: Where its parts end, from large ones (sections) to small ones (sentences): each an ascending array
                whose last number is ``len(text)``. What is larger than a span is taken apart by the level below it;
                by the lowest one's parts at the end of a line, a clause, a word, a character.

        Returns:
            Spans (start, end) with ``count(text[start:end]) <= size``, unless one character alone has more tokens.
            Each begins at or before the end of the one before and ends behind it; the first begins at 0, the last ends
            at ``len(text)``. No span for an empty text.
        """
        spans: list[Span] = []
        start = end = 0
        while end < len(text):
            start, end = self._next(text, levels, start, end)
            spans.append((start, end))
            start = self._overlap_start(text, levels, start, end)
        return spans

    def _next(self, text: str, levels: Sequence[array[int]], start: int, done: int) -> Span:
        """The next span: from ``start``, or from ``done`` where that keeps a part or a character whole."""
        limit = max(self._fitting.fit_forward(text, start, self.size), start + 1)
        for ends in levels:
            whole = _last_at_most(ends, limit)
            if whole > done:
                return start, whole
        if start == done:
            return start, last_break(text, done, limit)
        fresh = self._next(text, levels, done, done)
        # Here the overlap fills the span, or tears a part.
        if limit <= done or any(_last_at_most(ends, fresh[1]) == fresh[1] for ends in levels):
            return fresh
        cut = last_break(text, done, limit)
        return (start, cut) if is_boundary(text, cut) else fresh

    def _overlap_start(self, text: str, levels: Sequence[array[int]], start: int, end: int) -> int:
        """Where the next span begins: in (start, end], within the overlap of the end."""
        if not self.overlap or end == len(text):
            return end
        earliest = max(self._fitting.fit_backward(text, end, self.overlap), start + 1)
        for ends in levels:
            part = ends[bisect_left(ends, earliest)]
            if part < end:
                return part
        return first_word(text, earliest, end)


def chunks(text: str, spans: Sequence[Span], metadata: Mapping[str, Any] = EMPTY) -> Iterator[DocNode]:
    """Nodes for the spans of a text; blank ones are left out."""
    for start, end in spans:
        if not text[start:end].isspace():
            yield DocNode(text=text[start:end], span=(start, end), metadata=metadata)


def _last_at_most(ends: array[int], limit: int) -> int:
    """The last of some ascending positions that is not above a limit, or 0."""
    at = bisect_right(ends, limit)
    return ends[at - 1] if at else 0


def closed(ends: array[int], length: int) -> array[int]:
    """Some ascending ends of parts with the text's own end as the last one."""
    if length and (not ends or ends[-1] != length):
        ends.append(length)
    return ends


@known_arguments
class SemanticSplitter(NodeTransform):
    """Splits text where its subject changes: between sentences whose vectors lie far apart.

    Each sentence is embedded together with its neighbours. A chunk ends where the cosine distance from one sentence to
    the next is above the threshold. Chunks below ``min_size`` are joined to a neighbour; those above ``chunk_size``
    are cut at the ends of sentences. The chunks' spans cover the text without a gap, and share nothing.

    Args:
        embed: An `Embedder`, or a callable from a text to a vector. What it says of its identity takes part in the
            group's fingerprint; for a bare callable, its code does.
        chunk_size: Most tokens of a chunk, at least 1.
        min_size: Fewest tokens of a chunk, where its neighbours leave room for it; from 0 to chunk_size.
        percentile: Split at the distances above this percentile of the text's own, from 0 to 100; 95 where neither it
            nor ``threshold`` is given.
        threshold: Split at distances above this one instead, from 0 to 2: the same for every text.
        window: How many sentences on each side are embedded with one, at least 0.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If a number is out of its range, both percentile and threshold are given, embed is no embedder or
            the counter is none.

    Source:
        G. Kamradt: 5 Levels of Text Splitting, level 4 (2024).

    Example:
        >>> splitter = SemanticSplitter(lambda text: [text.count("tea"), text.count("rain")], threshold=0.5, window=0)
        >>> text = "Green tea keeps. Black tea too. It may rain. More rain comes."
        >>> [text[start:end] for start, end in splitter.split(text)]
        ['Green tea keeps. Black tea too. ', 'It may rain. More rain comes.']
    """

    reads_text_only = True

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
        self.chunk_size, self.counter = self._packer.size, self._packer.counter
        self.min_size = whole_number("min_size (at most chunk_size)", min_size, 0, self.chunk_size)
        if percentile is not None and threshold is not None:
            msg = f"percentile={percentile!r} and threshold={threshold!r} are both given; give one of them."
            raise ConfigError(msg)
        self.threshold = None if threshold is None else _number("threshold", threshold, 2)
        self.percentile = _number("percentile", 95 if percentile is None else percentile, 100)
        self.window = whole_number("window", window, 0)
        if type(self) is SemanticSplitter and embedder.identity:  # a subclass may do anything, so its code has to count
            split_at = f"percentile={self.percentile}" if threshold is None else f"threshold={self.threshold}"
            self.identity = (
                f"SemanticSplitter/1 {self._packer.told} min={self.min_size} window={self.window} {split_at} "
                f"embed={embedder.identity}"
            )

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The chunks of the node's text, with their spans in it."""
        text = node.get_text()
        return chunks(text, self.split(text))

    def split(self, text: str) -> list[Span]:
        """The spans of the chunks of a text, in order; together they cover it without a gap.

        Raises:
            EmbeddingError: If a sentence has no vector.
        """
        sentences: list[Span] = []
        for start, end in sentence_spans(text):
            if sentences and not any(map(str.isalnum, text[start:end])):
                sentences[-1] = (sentences[-1][0], end)
            else:
                sentences.append((start, end))
        found: list[Span] = []
        for start, end in self._joined(text, self._parts(text, sentences)):
            ends = array("q", (stop - start for _, stop in sentences if start < stop <= end))
            levels = [closed(ends, end - start)]
            found += [(start + one, start + other) for one, other in self._packer.spans(text[start:end], levels)]
        return found

    def _parts(self, text: str, sentences: Sequence[Span]) -> list[Span]:
        """The stretches between changes of subject."""
        if len(sentences) < 2:
            return list(sentences)
        last = len(sentences) - 1
        seen = [
            text[sentences[max(0, at - self.window)][0] : sentences[min(last, at + self.window)][1]]
            for at in range(len(sentences))
        ]
        if not seen[0].strip():  # only the first one can be blank
            seen[0] = seen[1]
        vectors = stacked(self._embedder.embed_each(seen), "The embed of SemanticSplitter").astype(np.float64)
        lengths = np.linalg.norm(vectors, axis=1)
        products = np.einsum("ij,ij->i", vectors[:-1], vectors[1:])
        scale = lengths[:-1] * lengths[1:]
        # A vector of zeros says nothing, and so separates nothing.
        distances = 1 - np.divide(products, scale, out=np.ones_like(products), where=scale > 0)
        limit = float(np.percentile(distances, self.percentile)) if self.threshold is None else self.threshold
        starts = [0, *(at + 1 for at in np.flatnonzero(distances > limit + 1e-9).tolist()), len(sentences)]
        return [(sentences[one][0], sentences[other - 1][1]) for one, other in itertools.pairwise(starts)]

    def _joined(self, text: str, parts: Sequence[Span]) -> list[Span]:
        """Those with fewer tokens than ``min_size`` joined to the one before or behind, where that leaves room."""
        joined: list[Span] = []
        for part in parts:
            if joined:
                both = (joined[-1][0], part[1])
                is_small = min(self._count(text, joined[-1]), self._count(text, part)) < self.min_size
                if is_small and self._count(text, both) <= self.chunk_size:
                    joined[-1] = both
                    continue
            joined.append(part)
        return joined

    def _count(self, text: str, span: Span) -> int:
        return self.counter.count(text[span[0] : span[1]])


def _number(what: str, value: Any, most: float) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) <= most:
        msg = f"{what} is {value!r:.80}; give a number from 0 to {most}."
        raise ConfigError(msg)
    return float(value)


transforms.register("SemanticSplitter", SemanticSplitter)


_WORD = re.compile(rf"(?:[{CJK_LETTERS}]|[^\s{CJK_LETTERS}]+)\s*|\s+")


@known_arguments
class CharacterSplitter(NodeTransform):
    r"""Splits text at one separator into chunks of whole pieces, as many as fit.

    The separator stays at the end of its piece, so that the chunks' spans cover the text without a gap. A piece that
    does not fit is cut at the end of a line, a clause or a word, in this order.

    Args:
        separator: What stands between pieces, not empty; a run of white space counts as one.
        chunk_size: Most tokens of a chunk, at least 1.
        chunk_overlap: Most tokens that two neighbours share, at least 0 and at most half of chunk_size. None: a fifth
            of chunk_size, at most 200.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If the separator is no text, a size is out of its range or the counter is none.

    Example:
        >>> splitter = CharacterSplitter("\n", chunk_size=5, chunk_overlap=0)
        >>> text = "green tea\nblack tea\noolong"
        >>> [text[start:end] for start, end in splitter.split(text)]
        ['green tea\n', 'black tea\n', 'oolong']
    """

    reads_text_only = True

    def __init__(
        self,
        separator: str = "\n\n",
        chunk_size: int = 1024,
        chunk_overlap: int | None = None,
        *,
        counter: TokenCounter | str = "utf8",
    ) -> None:
        [self.separator] = _checked_separators("separator", [separator])
        self._packer = Packer(chunk_size, chunk_overlap, counter)
        self.chunk_size, self.chunk_overlap = self._packer.size, self._packer.overlap
        self.counter = self._packer.counter
        if type(self) is CharacterSplitter:  # a subclass may do anything, so its code has to count
            self.identity = f"CharacterSplitter/1 {self._packer.told} separator={separator!r}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The chunks of the node's text, with their spans in it."""
        text = node.get_text()
        return chunks(text, self.split(text))

    def split(self, text: str) -> list[Span]:
        """The spans of the chunks of a text, in order; see `lazyrag.transforms.splitters.Packer.spans`."""
        return self._packer.spans(text, [_ends_behind(text, self.separator)])


@known_arguments
class RecursiveSplitter(NodeTransform):
    r"""Splits text at the coarsest of several separators whose pieces fit, into chunks of as many pieces as fit.

    What does not fit whole is taken apart by the next separator, at last by sentences, clauses and words. Separators
    stay at the ends of pieces, so that the chunks' spans cover the text without a gap.

    Args:
        separators: From coarse to fine, none empty; several in a row, if they are white space, count as one.
        chunk_size: Most tokens of a chunk, at least 1.
        chunk_overlap: Most tokens that two neighbours share, at least 0 and at most half of chunk_size. None: a fifth
            of chunk_size, at most 200.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If separators are no texts, a size is out of its range or the counter is none.

    Example:
        >>> splitter = RecursiveSplitter(chunk_size=9, chunk_overlap=0)
        >>> text = "Green tea.\n\nBlack tea is oxidised. It keeps."
        >>> [text[start:end] for start, end in splitter.split(text)]
        ['Green tea.\n\n', 'Black tea is oxidised. ', 'It keeps.']
    """

    reads_text_only = True

    def __init__(
        self,
        separators: Sequence[str] = ("\n\n", "\n"),
        chunk_size: int = 1024,
        chunk_overlap: int | None = None,
        *,
        counter: TokenCounter | str = "utf8",
    ) -> None:
        self.separators = _checked_separators("separators", separators)
        self._packer = Packer(chunk_size, chunk_overlap, counter)
        self.chunk_size, self.chunk_overlap = self._packer.size, self._packer.overlap
        self.counter = self._packer.counter
        if type(self) is RecursiveSplitter:
            self.identity = f"RecursiveSplitter/1 {self._packer.told} separators={self.separators!r}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The chunks of the node's text, with their spans in it."""
        text = node.get_text()
        return chunks(text, self.split(text))

    def split(self, text: str) -> list[Span]:
        """The spans of the chunks of a text, in order; see `lazyrag.transforms.splitters.Packer.spans`."""
        levels = [_ends_behind(text, separator) for separator in self.separators]
        return self._packer.spans(text, [*levels, sentence_ends(text)])


@known_arguments
class TokenSplitter(NodeTransform):
    """Splits text into chunks of as many words as fit, wherever sentences end.

    A Chinese, Japanese or Korean character counts as a word. The chunks' spans cover the text without a gap; white
    space stays with the word before it.

    Args:
        chunk_size: Most tokens of a chunk, at least 1.
        chunk_overlap: Most tokens that two neighbours share, at least 0 and at most half of chunk_size. None: a fifth
            of chunk_size, at most 200.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If a size is out of its range or the counter is none.

    Example:
        >>> splitter = TokenSplitter(chunk_size=4, chunk_overlap=0)
        >>> text = "He left. She left as well."
        >>> [text[start:end] for start, end in splitter.split(text)]
        ['He left. ', 'She left as ', 'well.']
    """

    reads_text_only = True

    def __init__(
        self, chunk_size: int = 1024, chunk_overlap: int | None = None, *, counter: TokenCounter | str = "utf8"
    ) -> None:
        self._packer = Packer(chunk_size, chunk_overlap, counter)
        self.chunk_size, self.chunk_overlap = self._packer.size, self._packer.overlap
        self.counter = self._packer.counter
        if type(self) is TokenSplitter:
            self.identity = f"TokenSplitter/1 {self._packer.told}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The chunks of the node's text, with their spans in it."""
        text = node.get_text()
        return chunks(text, self.split(text))

    def split(self, text: str) -> list[Span]:
        """The spans of the chunks of a text, in order; see `lazyrag.transforms.splitters.Packer.spans`."""
        return self._packer.spans(text, [word_ends(text)])


def word_ends(text: str) -> array[int]:
    """Where words end, the white space behind them included; a Chinese, Japanese or Korean character is a word."""
    return _whole(text, (match.end() for match in _WORD.finditer(text)))


def _checked_separators(name: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        msg = f"{name} is {given!r}; give a list of texts, such as ['\\n\\n', '\\n']."
        raise ConfigError(msg)
    for one in given:
        if not isinstance(one, str) or not one:
            msg = f"{name} has {one!r}; a separator is a text that is not empty, such as '\\n\\n'."
            raise ConfigError(msg)
    return tuple(given)


def _ends_behind(text: str, separator: str) -> array[int]:
    """Where pieces end: behind each separator, or behind a run of them that are white space; and the text's end."""
    pattern = re.compile(f"(?:{re.escape(separator)})+" if separator.isspace() else re.escape(separator))
    return _whole(text, (match.end() for match in pattern.finditer(text)))


def _whole(text: str, ends: Iterable[int]) -> array[int]:
    """Those of some ascending positions that tear no character, and the text's end."""
    kept = array("q", (end for end in ends if is_boundary(text, end)))
    if text and (not kept or kept[-1] != len(text)):
        kept.append(len(text))
    return kept


transforms.register("CharacterSplitter", CharacterSplitter)
transforms.register("RecursiveSplitter", RecursiveSplitter)
transforms.register("TokenSplitter", TokenSplitter)


@known_arguments
class SentenceSplitter(NodeTransform):
    """Splits text into chunks of whole sentences, as many as fit.

    The chunks' spans cover the text without a gap; white space stays with the sentence before it. A sentence that
    does not fit is cut at the end of a line, a clause or a word, in this order, and never inside a character as people
    see it unless that alone does not fit. A chunk begins with the end of the one before it: with its last sentences
    if they fit into the overlap, else with its last words; it gives the overlap up where that lets a sentence, or a
    character, stay whole.

    Args:
        chunk_size: Most tokens of a chunk, at least 1.
        chunk_overlap: Most tokens that two neighbours share, at least 0 and at most half of chunk_size. None: a fifth
            of chunk_size, at most 200.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If a size is out of its range or the counter is none.

    Example:
        >>> splitter = SentenceSplitter(chunk_size=6, chunk_overlap=0)
        >>> text = "他走了。她也走了。"
        >>> [text[start:end] for start, end in splitter.split(text)]
        ['他走了。', '她也走了。']
    """

    reads_text_only = True

    def __init__(
        self, chunk_size: int = 1024, chunk_overlap: int | None = None, *, counter: TokenCounter | str = "utf8"
    ) -> None:
        self._packer = Packer(chunk_size, chunk_overlap, counter)
        self.chunk_size, self.chunk_overlap = self._packer.size, self._packer.overlap
        self.counter = self._packer.counter
        if type(self) is SentenceSplitter:  # a subclass may do anything, so its code has to count
            self.identity = f"SentenceSplitter/1 {self._packer.told}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The chunks of the node's text, with their spans in it."""
        text = node.get_text()
        return chunks(text, self.split(text))

    def split(self, text: str) -> list[Span]:
        """The spans of the chunks of a text, in order; see `lazyrag.transforms.splitters.Packer.spans`."""
        return self._packer.spans(text, [sentence_ends(text)])


transforms.register("SentenceSplitter", SentenceSplitter)


@known_arguments
class SentenceWindow(NodeTransform):
    """A node for each sentence, with the sentences around it in its metadata: ``{"window": "..."}``.

    A sentence is found by its own words, and answered from with what stands around it. Sentences without a word count
    with the one before them.

    Args:
        before: How many sentences before it the window has, at least 0.
        after: How many behind it, at least 0.

    Raises:
        ConfigError: If a number is out of its range.

    Example:
        >>> nodes = SentenceWindow(1, 0)(DocNode(text="Pick it. Wither it. Dry it."))
        >>> [(node.text, node.metadata["window"]) for node in nodes][1:]
        [('Wither it. ', 'Pick it. Wither it. '), ('Dry it.', 'Wither it. Dry it.')]
    """

    reads_text_only = True

    def __init__(self, before: int = 3, after: int = 3) -> None:
        self.before = whole_number("before", before, 0)
        self.after = whole_number("after", after, 0)
        if type(self) is SentenceWindow:  # a subclass may do anything, so its code has to count
            self.identity = f"SentenceWindow/1 before={self.before} after={self.after}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The sentences of the node's text, with their spans in it."""
        text = node.get_text()
        spans: list[tuple[int, int]] = []
        for start, end in sentence_spans(text):
            if spans and not any(map(str.isalnum, text[start:end])):
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
        for number, (start, end) in enumerate(spans):
            if not text[start:end].isspace():
                first, last = spans[max(0, number - self.before)], spans[min(len(spans) - 1, number + self.after)]
                yield DocNode(text=text[start:end], span=(start, end), metadata={"window": text[first[0] : last[1]]})


transforms.register("SentenceWindow", SentenceWindow)
