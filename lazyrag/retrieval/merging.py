"""Auto-merge: where enough of a parent's children were found, the parent takes their place."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.data.segment import Segment
from lazyrag.document.group import group_name
from lazyrag.document.reader import Reader
from lazyrag.document.snapshot import NOTHING, LocalSnapshot, Snapshot, read
from lazyrag.errors import ConfigError
from lazyrag.validation import known_keywords, whole_number, yes_or_no


@known_keywords
def auto_merge(
    nodes: Iterable[DocNode],
    *,
    ratio: float = 0.5,
    least: int = 2,
    up_to: str | None = None,
    descend: bool = True,
) -> list[DocNode]:
    r"""Lift hits to their parents where enough of a parent's children were found, upwards as far as that goes.

    It begins at the deepest group. Children of one parent and one group are replaced by the parent if there are at
    least ``least`` of them among the nodes, and they are at least that ``ratio`` of all its children of that group that
    can be seen. Parents count for their own parents in turn. What stands beneath a node that is in the result is no
    result of its own: a node and its ancestor never come together, and all that was found is in the result or stands
    beneath something in it. Done once more, it changes nothing.

    Args:
        nodes: What a retriever or reranker returned, of any groups and Documents.
        ratio: Share of a parent's children in (0, 1].
        least: Number of children, at least 1. With 1, an only child is lifted to its parent.
        up_to: The highest group to lift to; None for whole documents.
        descend: Whether a larger score is a better one, as ``descend`` of the similarity that was used.

    Returns:
        Nodes, best first, ties by uid; those without a score last. A parent has the best score of what it stands for,
        and their uids as its `DocNode.merged_from`. Other nodes are the ones that were given.

    Raises:
        ConfigError: If an argument is out of its range, a node belongs to no Document, or nodes of one Document come
            through views with different filters.
        NotRegisteredError: If a Document of the nodes has no group ``up_to``.
        StaleNodeError: If a node does not stand in the live tree any more.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea": "Green tea. White tea. Coffee.\nMilk. Tea. Salt. Sugar."})
        >>> docs.create_node_group("line", transform=str.splitlines)
        >>> docs.create_node_group("sentence", transform="SentenceWindow", parent="line")
        >>> hits = Retriever(docs, "sentence", similarity="bm25")("tea")
        >>> [(node.group, node.text) for node in auto_merge(hits)]
        [('sentence', 'Tea. '), ('line', 'Green tea. White tea. Coffee.')]
    """
    if isinstance(ratio, bool) or not isinstance(ratio, numbers.Real) or not 0 < ratio <= 1:
        msg = f"ratio is {ratio!r}; give a number above 0 and up to 1, the share of a parent's children."
        raise ConfigError(msg)
    rule = _Rule(
        float(ratio),
        whole_number("least", least, 1),
        None if up_to is None else group_name(up_to),
        descends=yes_or_no("descend", descend),
    )
    listed, readers = _checked(nodes)

    def merge(snapshot: Snapshot) -> list[DocNode]:
        merged = []
        for position, part in enumerate(snapshot.parts):
            one = _Merging(part, rule)
            for node in listed:
                if node.reader is not None and node.reader.tree is part.builder:
                    one.add(node)
            merged += [(rule.order(node), node.uid, position, node) for node in one.merged()]
        return [node for *_, node in sorted(merged, key=lambda item: item[:3])]

    return read(dict.fromkeys(readers, NOTHING), merge) if readers else []


@dataclass(frozen=True, slots=True)
class _Rule:
    """What is merged, and which score is better; see `auto_merge`."""

    ratio: float
    least: int
    up_to: str | None
    descends: bool

    def best(self, scores: Sequence[float | None]) -> float | None:
        known = [score for score in scores if score is not None]
        return None if not known else max(known) if self.descends else min(known)

    def order(self, node: DocNode) -> float:
        if node.score is None or math.isnan(node.score):
            return math.inf
        return -node.score if self.descends else node.score


@dataclass(slots=True)
class _Found:
    """A node of the result to be.

    Args:
        segment: The node's.
        score: The best one of what it stands for.
        given: The node that was given, as long as it stands for itself alone.
        merged_from: Uids of what was given and stands beneath it.
        is_hit: Whether it was given itself.
    """

    segment: Segment
    score: float | None
    given: DocNode | None
    merged_from: tuple[str, ...] = ()
    is_hit: bool = False

    @property
    def stands_for(self) -> tuple[str, ...]:
        """Uids of what was given."""
        return (self.segment.uid, *self.merged_from) if self.is_hit else self.merged_from


class _Merging:
    """Merges the nodes of one Document.

    Args:
        snapshot: In which they are read.
        rule: What is merged.
    """

    def __init__(self, snapshot: LocalSnapshot, rule: _Rule) -> None:
        self._snapshot = snapshot
        self._rule = rule
        self._line: Callable[[str], list[str]] = snapshot.source.line
        self._found: dict[str, _Found] = {}
        if rule.up_to is not None:
            self._line(rule.up_to)

    def add(self, node: DocNode) -> None:
        """Take a node in; of equal ones the best."""
        known = self._found.get(node.uid)
        if known is None or (known.score != node.score and self._rule.best([known.score, node.score]) == node.score):
            self._found[node.uid] = _Found(node.segment, node.score, node, node.merged_from, is_hit=True)

    def merged(self) -> list[DocNode]:
        """The nodes, lifted level by level."""
        self._snapshot.look_above([one.segment for one in self._found.values()])
        deepest = max((self._depth(one) for one in self._found.values()), default=0)
        for depth in range(deepest, 1, -1):
            for children in self._families(depth):
                self._lift(children)
        groups = {one.segment.group for one in self._found.values()}
        for found in sorted(self._found.values(), key=self._depth, reverse=True):
            self._absorb(self._found[found.segment.uid], groups)  # which may have taken in others meanwhile
        return [
            one.given
            if one.given is not None
            else DocNode.from_segment(one.segment, self._snapshot.source, score=one.score, merged_from=one.merged_from)
            for one in self._found.values()
        ]

    def _depth(self, found: _Found) -> int:
        return len(self._line(found.segment.group))

    def _families(self, depth: int) -> list[list[_Found]]:
        """What was found at a depth of the tree, by parent and group."""
        families: dict[tuple[str | None, str], list[_Found]] = {}
        for one in self._found.values():
            if self._depth(one) == depth:
                families.setdefault((one.segment.parent, one.segment.group), []).append(one)
        return list(families.values())

    def _lift(self, children: list[_Found]) -> None:
        """Put the parent in the place of children, if they are enough."""
        group = children[0].segment.group
        line = self._line(group)
        if len(children) < self._rule.least or (self._rule.up_to is not None and self._rule.up_to not in line[1:]):
            return
        parent = self._snapshot.above(children[0].segment)
        if parent is None or not self._snapshot.sees(parent):
            return
        siblings = self._snapshot.few_children(parent, group, int(len(children) / self._rule.ratio) + 1)
        if siblings is None:
            return
        whole = {one.uid for one in siblings}
        children = [one for one in children if one.segment.uid in whole]  # a merged window is nobody's child
        if len(children) >= self._rule.least and len(children) / len(whole) >= self._rule.ratio:
            self._replace(children, parent)

    def _absorb(self, found: _Found, groups: set[str]) -> None:
        """Leave a node out that stands beneath another one of the result, which has nodes of these groups."""
        above = self._snapshot.above(found.segment)
        while above is not None:
            if above.uid in self._found:
                self._replace([found], above)
                return
            # Further up are whole documents, which nobody reads for nothing.
            above = None if groups.isdisjoint(self._line(above.group)[1:]) else self._snapshot.above(above)

    def _replace(self, lower: list[_Found], segment: Segment) -> None:
        known = self._found.get(segment.uid)
        if known is None:
            known = _Found(segment, None, None)
        score = self._rule.best([one.score for one in (known, *lower)])
        uids = [*known.merged_from, *(uid for one in lower for uid in one.stands_for)]
        for one in lower:
            del self._found[one.segment.uid]
        self._found[segment.uid] = _Found(segment, score, None, tuple(dict.fromkeys(uids)), is_hit=known.is_hit)


def _checked(nodes: Iterable[DocNode]) -> tuple[list[DocNode], list[Reader]]:
    """Nodes of Documents, and a reader for each of these."""
    if isinstance(nodes, DocNode) or not isinstance(nodes, Iterable):
        msg = f"auto_merge takes a list of nodes, not {nodes!r:.80}."
        raise ConfigError(msg)
    listed: list[Any] = list(nodes)
    readers: dict[int, Reader] = {}
    for node in listed:
        reader = node.reader if isinstance(node, DocNode) else None
        if not isinstance(reader, Reader):
            msg = f"auto_merge takes nodes of a Document, not {node!r:.80}. Retrieve with output_format=None."
            raise ConfigError(msg)
        known = readers.setdefault(id(reader.tree), reader)
        if known.scope != reader.scope:
            msg = f"Nodes of one Document come through views with different filters: {known.scope!r}, {reader.scope!r}."
            raise ConfigError(msg)
    return listed, list(readers.values())
