"""Packing: the parts of a text into spans of a bounded number of tokens, as many whole parts as fit."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY, Span
from lazyrag.errors import ConfigError, known_names
from lazyrag.text.sentences import first_word, is_boundary, last_break
from lazyrag.text.tokens import TokenCounter, fitting, token_counters
from lazyrag.validation import whole_number


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
