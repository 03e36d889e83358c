"""Windows: neighbouring nodes, and their texts as one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from lazyrag.data.node import DocNode
from lazyrag.data.segment import ReadOnly, Segment, Span, common_metadata, content_text, digest
from lazyrag.ledger.tree import Build
from lazyrag.read.snapshot import LocalSnapshot


@dataclass(slots=True)
class _Stretch:
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

    def position(self) -> tuple[str, str, int, int]:
        """Sort key: the build, and the place in it."""
        return self.build.document, self.build.group, self.first, self.rank

    def absorb(self, other: _Stretch) -> bool:
        """Grow by another stretch that begins no earlier, if they overlap or touch."""
        if self.build.number != other.build.number or other.first > self.last + 1:
            return False
        self.last = max(self.last, other.last)
        self.rank, self.score = min(
            (self.rank, self.score), (other.rank, other.score), key=lambda pair: pair[0]
        )
        self.score_of = {**other.score_of, **self.score_of}
        return True


def is_window(node: DocNode) -> bool:
    """Whether a node is a merged window, which is not in the tree."""
    return bool(node.merged_from) and node.uid == _window_uid(node.merged_from)


def _window_uid(uids: Sequence[str]) -> str:
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


def build_windows(
    snapshot: LocalSnapshot, nodes: Sequence[DocNode], before: int, after: int, *, merge: bool
) -> list[tuple[int, list[DocNode]]]:
    """The windows of nodes, each with the rank (from 0) of the first node that led there; see
    `Document.window`.

    They come in the order of these nodes, and carry their scores. Windows that overlap or touch
    are one.

    Args:
        snapshot: Of the nodes' Document.
        nodes: Best first.
        before: How many neighbours before each.
        after: How many behind each.
        merge: Return each window as one node.

    Raises:
        StaleNodeError: If a node is not in the live tree any more, or is out of scope.
        ConfigError: If a node belongs to another Document.
    """
    windows = []
    joined = _join_stretches(_stretches(snapshot, nodes, before, after))
    ranges = [(stretch.build, stretch.first, stretch.last) for stretch in joined]
    for stretch, segments in zip(joined, snapshot.node_ranges(ranges), strict=True):
        window = [
            snapshot.hit(segment, stretch.score_of.get(segment.uid, stretch.score))
            for segment in segments
        ]
        if merge:
            window = [_merge_window(snapshot, window, stretch.score)]
        windows.append((stretch.rank, window))
    return windows


def _stretches(
    snapshot: LocalSnapshot, nodes: Sequence[DocNode], before: int, after: int
) -> Iterator[_Stretch]:
    """The stretch around each node."""
    # read all at once
    snapshot.state.view.tree.builds_of_documents({node.document_id for node in nodes})
    for rank, node in enumerate(nodes):
        segment = snapshot.source.show(snapshot.checked(node)).segment
        build, at = snapshot.ordinal(segment)
        last = min(len(build.uids) - 1, at + after)
        score_of = {node.uid: node.score}
        yield _Stretch(build, max(0, at - before), last, rank, node.score, score_of)


def _join_stretches(stretches: Iterable[_Stretch]) -> list[_Stretch]:
    """Join stretches that overlap or touch, in the order of their ranks."""
    joined: list[_Stretch] = []
    for stretch in sorted(stretches, key=_Stretch.position):
        if not (joined and joined[-1].absorb(stretch)):
            joined.append(stretch)
    joined.sort(key=lambda stretch: stretch.rank)
    return joined


def _merge_window(
    snapshot: LocalSnapshot, nodes: Sequence[DocNode], score: float | None
) -> DocNode:
    """Merge a window into one node. Spans show what its nodes share, so that no text is repeated.

    White space and punctuation between nodes are taken from the source. If spans are missing, or
    letters are between two nodes, the texts are joined by a newline, and there is no span.

    Args:
        snapshot: Where they are read.
        nodes: At least one, in the order of the document.
        score: Its score.

    Returns:
        A node with the first one's place in the tree and a uid of its own; the node itself, if
        there is only one.
    """
    if len(nodes) == 1:
        return nodes[0].with_score(score)
    segments = [node.segment for node in nodes]
    text, span = join_window_text(segments, snapshot.source_of, snapshot.sees)
    first = segments[0]
    common = common_metadata([segment.metadata for segment in segments])
    uids = tuple(segment.uid for segment in segments)
    merged = first._replace(
        uid=_window_uid(uids), content=text, span=span, metadata=ReadOnly(common)
    )
    return snapshot.hit(merged, score, uids)
