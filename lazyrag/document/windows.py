"""Windows: a node with its neighbours in the same document and group, as nodes or as one text."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lazyrag.data.node import DocNode
from lazyrag.data.segment import ReadOnly, Segment, Span, digest
from lazyrag.document.ledger.tree import Build
from lazyrag.document.snapshot import LocalSnapshot


@dataclass(slots=True)
class _Stretch:
    """Neighbouring nodes of one build.

    Args:
        build: The build.
        first: Ordinal of the first node, from 0.
        last: Ordinal of the last one.
        rank: Place of the first node that led there among the nodes that were given.
        score: That node's score.
        own: The scores of the nodes that were given, by uid.
    """

    build: Build
    first: int
    last: int
    rank: int
    score: float | None
    own: dict[str, float | None] = field(default_factory=dict)

    def takes_in(self, other: _Stretch) -> bool:
        """Grow by another stretch that begins no earlier, if they overlap or touch."""
        if self.build is not other.build or other.first > self.last + 1:
            return False
        self.last = max(self.last, other.last)
        self.rank, self.score = min((self.rank, self.score), (other.rank, other.score), key=lambda pair: pair[0])
        self.own = {**other.own, **self.own}
        return True


def windows(snapshot: LocalSnapshot, nodes: Sequence[DocNode], before: int, after: int) -> list[DocNode]:
    """The nodes of the windows of some nodes, window by window; see `Document.window`.

    Raises:
        StaleNodeError: If a node is not in the live tree any more, or lies outside of the scope.
        ConfigError: If a node belongs to another Document.
    """
    return [node for _, window in _windows(snapshot, nodes, (before, after)) for node in window]


def merged_windows(snapshot: LocalSnapshot, nodes: Sequence[DocNode], before: int, after: int) -> list[DocNode]:
    """The windows of some nodes, each as one node; see `windows`."""
    return [_merged(snapshot, window, score) for score, window in _windows(snapshot, nodes, (before, after))]


def ranked_windows(
    snapshot: LocalSnapshot, nodes: Sequence[DocNode], before: int, after: int, *, merge: bool
) -> list[tuple[int, list[DocNode]]]:
    """The windows of some nodes, each with the place of the first one that led there, from 0; see `windows`.

    Args:
        snapshot: In which they are read.
        nodes: Of one Document, best first.
        before: How many neighbours before each.
        after: How many behind each.
        merge: Give each window as one node.
    """
    found = []
    for score, window in _windows(snapshot, nodes, (before, after)):
        uids = {node.uid for node in window}
        rank = next(at for at, node in enumerate(nodes) if node.uid in uids)
        found.append((rank, [_merged(snapshot, window, score)] if merge else window))
    return found


def _windows(
    snapshot: LocalSnapshot, nodes: Sequence[DocNode], reach: tuple[int, int]
) -> list[tuple[float | None, list[DocNode]]]:
    """The windows in the order of the first node that leads to each, with its score; those that meet are one."""
    before, after = reach
    found = []
    for rank, node in enumerate(nodes):
        segment = snapshot.source.show(snapshot.checked(node)).segment
        build, at = snapshot.ordinal(segment)
        last = min(len(build.uids) - 1, at + after)
        found.append(_Stretch(build, max(0, at - before), last, rank, node.score, {node.uid: node.score}))
    joined: list[_Stretch] = []
    for stretch in sorted(found, key=lambda one: (one.build.document, one.build.group, one.first, one.rank)):
        if not (joined and joined[-1].takes_in(stretch)):
            joined.append(stretch)
    joined.sort(key=lambda one: one.rank)
    source = snapshot.source
    read = snapshot.stretches([(one.build, one.first, one.last) for one in joined])
    return [
        (one.score, [DocNode.from_segment(node, source, score=one.own.get(node.uid, one.score)) for node in nodes])
        for one, nodes in zip(joined, read, strict=True)
    ]


def _merged(snapshot: LocalSnapshot, nodes: Sequence[DocNode], score: float | None) -> DocNode:
    """A window as one node, whose text holds nothing twice where spans tell what its nodes share.

    White space and punctuation that no node holds come back from the source. Where spans are missing, or letters
    stand between two nodes, the texts are joined by the end of a line, and there is no span.

    Args:
        snapshot: In which they are read.
        nodes: At least one, in the order of the document.
        score: What it carries.

    Returns:
        A node with the first one's place in the tree and a uid of its own; the node itself, if there is only one.
    """
    if len(nodes) == 1:
        return nodes[0].with_score(score)
    segments = [node.segment for node in nodes]
    text, span = _joined(segments, snapshot.source_of)
    first = segments[0]
    common = {
        name: value
        for name, value in first.metadata.items()
        if all(name in one.metadata and one.metadata[name] == value for one in segments)
    }
    uids = tuple(one.uid for one in segments)
    segment = first._replace(uid=_window_uid(uids), content=text, span=span, metadata=ReadOnly(common))
    return DocNode.from_segment(segment, snapshot.source, score=score, merged_from=uids)


def is_window(node: DocNode) -> bool:
    """Whether a node is a merged window, which has no place of its own in the tree."""
    return bool(node.merged_from) and node.uid == _window_uid(node.merged_from)


def _window_uid(uids: Sequence[str]) -> str:
    return digest(["window", *uids])


def _joined(segments: Sequence[Segment], source_of: Callable[[Segment], Segment | None]) -> tuple[str, Span | None]:
    """The texts of neighbours as one, and its span, if all of it stands there."""
    text = DocNode.from_segment(segments[0], None).text
    reach, is_whole = segments[0].span, True
    for last, segment in itertools.pairwise(segments):
        own = DocNode.from_segment(segment, None).text
        more = None
        if reach is not None and segment.span is not None:
            above, source = source_of(last), source_of(segment)
            if above is not None and source is not None and above.key == source.key:
                more = _more(reach, segment.span, own, source, is_next=segment.number == last.number + 1)
        if more is not None and reach is not None and segment.span is not None:
            text += more
            reach = (reach[0], max(reach[1], segment.span[1]))
        else:
            text += own if text.endswith("\n") else "\n" + own
            reach, is_whole = segment.span, False
    return text, reach if is_whole else None


def _more(reach: Span, span: Span, text: str, source: Segment, *, is_next: bool) -> str | None:
    """What a node adds to a stretch of its source; None where it does not follow."""
    if reach[0] <= span[0] <= reach[1]:
        return text[reach[1] - span[0] :]
    between = DocNode.from_segment(source, None).text[reach[1] : span[0]]
    if is_next and between and not any(map(str.isalnum, between)):
        return between + text
    return None
