"""Nodes that a costly transform made of texts which an edit has left as they were."""

from __future__ import annotations

import json
from collections.abc import Sequence

from lazyrag.data.fields import Schema
from lazyrag.data.segment import Segment, content_text
from lazyrag.document.segments import rebound_segments


class EarlierNodes:
    """What each text of a document gave before.

    Args:
        nodes: The nodes of a build, in order.
        parents: The nodes above them.
        counts: How many each of these has, as JSON.
    """

    def __init__(self, nodes: Sequence[Segment] = (), parents: Sequence[Segment] = (), counts: str = "[]") -> None:
        self._found: dict[tuple[str, str], tuple[Segment, Sequence[Segment]]] = {}
        start = 0
        for parent, count in zip(parents, json.loads(counts), strict=False):
            self._found.setdefault(_told(parent), (parent, nodes[start : start + count]))
            start += count

    def __contains__(self, parent: Segment) -> bool:
        return bool(self._found) and _told(parent) in self._found

    def of(self, parent: Segment, build: int, schema: Schema, *, before: int) -> list[Segment]:
        """The nodes that a text gave, as nodes of another build.

        Args:
            parent: What has that text now.
            build: The other build.
            schema: The filterable fields.
            before: How many nodes of the group precede them in the document.
        """
        parent_before, nodes = self._found[_told(parent)]
        rebound = rebound_segments(nodes, [parent_before], [parent], [len(nodes)], build, schema)
        return [node._replace(number=number) for number, node in enumerate(rebound, start=before + 1)]


def _told(segment: Segment) -> tuple[str, str]:
    return type(segment.content).__name__, content_text(segment.content)
