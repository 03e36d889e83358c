"""Windows: neighbouring nodes as one text."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lazyrag.data.node import DocNode
from lazyrag.data.segment import (
    Segment,
    Span,
    content_text,
    digest,
)
from lazyrag.ledger.tree import Build


@dataclass(slots=True)
class Stretch:
    """Neighbouring nodes of one build.

    Args:
        build: The build.
        first: Ordinal of the first node, from 0.
        last: Ordinal of the last one.
        rank: Place of the first node that led there among the nodes that were given.
        score: That node's score.
        score_of: The scores of the nodes that were given, by uid.
    """

    build: Build
    first: int
    last: int
    rank: int
    score: float | None
    score_of: dict[str, float | None] = field(default_factory=dict)

    def absorb(self, other: Stretch) -> bool:
        """Grow by another stretch that begins no earlier, if they overlap or touch."""
        if self.build is not other.build or other.first > self.last + 1:
            return False
        self.last = max(self.last, other.last)
        self.rank, self.score = min(
            (self.rank, self.score), (other.rank, other.score), key=lambda pair: pair[0]
        )
        self.score_of = {**other.score_of, **self.score_of}
        return True


def is_window(node: DocNode) -> bool:
    """Whether a node is a merged window, which is not in the tree."""
    return bool(node.merged_from) and node.uid == window_uid(node.merged_from)


def window_uid(uids: Sequence[str]) -> str:
    """The uid of a merged window of nodes."""
    return digest(["window", *uids])


def join_window_text(
    segments: Sequence[Segment],
    source_of: Callable[[Segment], Segment | None],
    sees: Callable[[Segment], bool] = lambda _: True,
) -> tuple[str, Span | None]:
    """The text of neighbours, and its span; None for the span if the text is not all of it.

    Args:
        segments: The neighbours.
        source_of: The node in whose text the span of one counts.
        sees: Whether a source is in scope; only then text between neighbours is taken from it.
    """
    text = content_text(segments[0].content)
    reach = segments[0].span
    is_contiguous = True
    for last, segment in itertools.pairwise(segments):
        addition = content_text(segment.content)
        span = segment.span
        more = None
        if reach is not None and span is not None:
            above = source_of(last)
            source = source_of(segment)
            if above is not None and source is not None and above.key == source.key:
                is_next = segment.number == last.number + 1 and sees(source)
                more = _continuation(reach, span, addition, source, is_next=is_next)
        if more is None or reach is None or span is None:
            text += addition if text.endswith("\n") else "\n" + addition
            reach = span
            is_contiguous = False
        else:
            text += more
            reach = (reach[0], max(reach[1], span[1]))
    return text, reach if is_contiguous else None


def _continuation(
    reach: Span, span: Span, text: str, source: Segment, *, is_next: bool
) -> str | None:
    """The text that a node adds to a stretch of its source; None if it does not follow."""
    if reach[0] <= span[0] <= reach[1]:
        return text[reach[1] - span[0] :]
    between = content_text(source.content)[reach[1] : span[0]]
    return between + text if is_next and between and not any(map(str.isalnum, between)) else None
