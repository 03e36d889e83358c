"""From nodes to those above, beneath and beside them, as far as a reader may show them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lazyrag.data.node import DocNode
from lazyrag.data.segment import Segment
from lazyrag.document.builder import Builder
from lazyrag.document.ledger.tree import Build, LiveGroup
from lazyrag.errors import ConfigError


class Relatives:
    """The ways through one Document's tree.

    What they lead to satisfies the reader's scope; what they lead over need not.

    They are made for one read, inside of which they look at one state of the tree.

    Args:
        builder: Of the Document.
        group: Gives a group, built.
        sees: Whether a segment lies in the reader's scope.
    """

    def __init__(self, builder: Builder, group: Callable[[str], LiveGroup], sees: Callable[[Segment], bool]) -> None:
        self._builder = builder
        self._nodes = builder.nodes
        self._group = group
        self.sees = sees
        self._above: dict[str, Segment | None] = {}

    def checked(self, node: DocNode) -> Segment:
        """A node's segment, if the node belongs to this Document.

        Raises:
            ConfigError: If it belongs to another one.
        """
        if node.reader is not None and node.reader.tree is not self._builder:
            msg = f"{node!r} belongs to another Document. Ask the Document that it was retrieved from."
            raise ConfigError(msg)
        return node.segment

    def relating(self, target: str) -> Callable[[DocNode], list[Segment]]:
        """A function from a node to its relatives in another group, see `Reader.related`.

        It remembers where it has been.
        """
        target_line = self._builder.graph.line(target)
        reached: dict[tuple[str, str], list[Segment]] = {}

        def relate(node: DocNode) -> list[Segment]:
            segment = self.checked(node)
            line = self._builder.graph.line(node.group)
            shared = next(group for group in line if group in target_line)
            top = segment
            for _ in line[: line.index(shared)]:
                top = self.above(top) or top
            if (top.uid, shared) not in reached:
                reached[top.uid, shared] = self._beneath(top, target_line[: target_line.index(shared)][::-1])
            return reached[top.uid, shared]

        return relate

    def above(self, segment: Segment) -> Segment | None:
        """The parent of a node, in scope or not; None for a root node. Siblings share one look at the store.

        Raises:
            StaleNodeError: If the node does not stand in the live tree any more.
        """
        if segment.parent is None:
            return None
        view = self._builder.views.of_question()
        self._nodes.followed(view, segment)
        if segment.parent not in self._above:
            self._above[segment.parent] = self._nodes.parent(view, segment)
        return self._above[segment.parent]

    def look_above(self, segments: Sequence[Segment]) -> None:
        """Read the parents of nodes together, where `above` would read them one by one; what is stale it still says."""
        unknown = [one for one in segments if one.parent is not None and one.parent not in self._above]
        self._above |= self._nodes.parents(self._builder.views.of_question(), unknown)

    def few_children(self, segment: Segment, group: str, most: int) -> list[Segment] | None:
        """What a group made of a node, in order, as far as it is in scope; None if these are more than so many."""
        found: list[Segment] = []
        view = self._builder.views.of_question()
        for page in self._nodes.child_pages(view, segment, self._group(group)):
            found += [one for one in page if self.sees(one)]
            if len(found) > most:  # what a large document holds is not read for nothing
                return None
        return found

    def ordinal(self, segment: Segment) -> tuple[Build, int]:
        """The live build that a node stands in, and which of its nodes it is, from 0.

        Raises:
            StaleNodeError: If the node does not stand in the live tree any more.
        """
        return self._nodes.ordinal(self._builder.views.of_question(), segment)

    def stretches(self, wanted: Sequence[tuple[Build, int, int]]) -> list[list[Segment]]:
        """Nodes of live builds, each from one ordinal to another, both included, as far as they are in scope."""
        found = self._nodes.stretches(self._builder.views.of_question(), wanted)
        return [[one for one in nodes if self.sees(one)] for nodes in found]

    def source(self, segment: Segment) -> Segment | None:
        """See `NodeSource.source`."""
        above: Segment | None = segment
        while above is not None and above.span is not None:
            above = self.above(above)
        return above

    def _beneath(self, top: Segment, groups: Sequence[str]) -> list[Segment]:
        """What stands beneath a node, down through groups one after the other, as far as it is in scope."""
        segments = [top]
        for name in groups:
            group = self._group(name)
            segments = [
                child
                for one in segments
                for child in self._nodes.children(self._builder.views.of_question(), one, group)
            ]
        return [one for one in segments if self.sees(one)]
