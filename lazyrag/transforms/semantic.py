"""The splitter by meaning."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np

from lazyrag.data.node import DocNode
from lazyrag.data.segment import Span
from lazyrag.errors import ConfigError
from lazyrag.models.callables import EmbedCallable, as_embedder
from lazyrag.models.embedding import CheckedEmbedder, stacked
from lazyrag.models.protocol import Embedder
from lazyrag.text.sentences import sentence_spans
from lazyrag.text.tokens import TokenCounter
from lazyrag.transforms.base import NodeTransform, transforms
from lazyrag.transforms.packing import Packer, chunks, closed
from lazyrag.validation import known_arguments, whole_number


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
