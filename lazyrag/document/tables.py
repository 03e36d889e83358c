"""The nodes of groups in memory, for similarity functions: those look at every node, with every question."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from lazyrag.data.filters import Filter
from lazyrag.data.node import DocNode, NodeSource
from lazyrag.data.segment import Segment
from lazyrag.document.ledger.tree import Build, LiveGroup, LiveSpace, View
from lazyrag.document.nodes import NodeStore
from lazyrag.indexes.postings import RowBlock
from lazyrag.types import Embedding

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAGE = 100_000  # nodes that a user's own similarity function sees at once
_MOST_BYTES = 512 * 2**20  # of all tables of a Document
_NODE_BYTES = 700  # of a node without its content: itself, its segment, its ids
_VECTOR_BYTES = 400  # of what makes a row of numbers a node's vector
_WEIGHT_BYTES = 100  # of a dimension and its weight, in a dict
_READ_AT_ONCE = 4_096

Carried: TypeAlias = Mapping[str, Embedding]
"""Embeddings by embed key."""


@dataclass(frozen=True, slots=True)
class NodePage:
    """The nodes that a similarity function sees at once.

    Args:
        nodes: n nodes, as a reader without a scope shows them.
        embeddings: The n mappings that they carry; None where they carry none.
        rows: Their keys and fields.
    """

    nodes: list[DocNode]
    embeddings: list[Carried] | None
    rows: RowBlock

    def seen(self, filter: Filter | None, reader: NodeSource | None) -> list[DocNode]:  # noqa: A002
        """The nodes that a bound filter lets through.

        Args:
            filter: None lets all through.
            reader: Through which they are to reach their neighbours; None for one without a scope.
        """
        mask = None if filter is None else self.rows.mask(filter)
        nodes = self.nodes if mask is None else list(itertools.compress(self.nodes, mask))
        if reader is None:
            return list(nodes)
        if self.embeddings is None:
            return [DocNode.from_segment(node.segment, reader) for node in nodes]
        carried = self.embeddings if mask is None else itertools.compress(self.embeddings, mask)
        return [
            DocNode.from_segment(node.segment, reader, embeddings=embeddings)
            for node, embeddings in zip(nodes, carried, strict=True)
        ]


class _Part(NamedTuple):
    """The nodes of one build.

    ``embeddings`` are what they carry, ``lacking`` is how many are left out since they have no vector, ``size`` is what
    all this takes, in bytes, roughly.
    """

    nodes: list[DocNode]
    embeddings: list[Carried] | None
    lacking: int
    size: int


@dataclass(frozen=True, slots=True)
class _Table:
    """The nodes of a group in one state.

    Args:
        numbers: Of the builds that live in it, ascending.
        changes: The ledger's counter in that state, where some nodes lack a vector that they may get later; else -1.
        parts: The nodes by build.
        pages: The same nodes in pages; None where they are too many to be kept.
        size: What all this takes, in bytes, roughly.
    """

    numbers: NDArray[np.int64]
    changes: int
    parts: Mapping[int, _Part]
    pages: list[NodePage] | None
    size: int

    def is_of(self, view: View, group: LiveGroup) -> bool:
        """Whether it is what a view sees of a group."""
        numbers = view.tree.live_numbers(group)
        same = self.numbers is numbers or np.array_equal(self.numbers, numbers)
        return same and self.changes in (-1, view.tree.changes)


class NodeTables:
    """Keeps the nodes of the groups that similarity functions rank, as far as they fit into memory.

    What a build has made never changes, so a table is what a view sees as long as the same builds live; after a change
    the builds that still live are taken over, and only the others are read.

    Args:
        nodes: The stores.
        most_bytes: How much all tables may take, roughly. A group that takes more is read anew with each question.
    """

    def __init__(self, nodes: NodeStore, most_bytes: int = _MOST_BYTES) -> None:
        self._nodes = nodes
        self._most_bytes = most_bytes
        self._lock = threading.Lock()  # nobody who holds it waits for anything but a store
        self._tables: dict[tuple[int, int], _Table] = {}  # by group and space; the last used is the last

    def pages(
        self, view: View, group: LiveGroup, embed_key: str | None, space: LiveSpace | None, reader: NodeSource
    ) -> list[NodePage] | None:
        """The nodes of a group in pages, in the documents' order; None where they are too many to be kept.

        Args:
            view: What is to be seen of it.
            group: The group.
            embed_key: The key whose vector they are to carry; those without one are left out. None for no vectors.
            space: The vectors under this key.
            reader: Without a scope.

        Raises:
            StoreError: If some are missing in the store.
        """
        key = group.id, 0 if space is None else space.id
        with self._lock:
            table = self._tables.pop(key, None)
            if table is None or not table.is_of(view, group):
                before = {} if table is None else table.parts
                del table  # what is not taken over can go while the rest is read
                beside = [table.parts for (number, _), table in self._tables.items() if number == group.id]
                making = _Making(self._nodes, view, group, embed_key, space, reader)
                table = making.table(before, dict(item for parts in beside for item in parts.items()), self._most_bytes)
                self._make_room(view, table.size)
            self._tables[key] = table
            return table.pages

    def _make_room(self, view: View, size: int) -> None:
        """Let go of the tables of what is not live, then of those that were not used for the longest time."""
        live = {group.id for group in view.tree.groups.values()}
        self._tables = {key: table for key, table in self._tables.items() if key[0] in live}
        while self._tables and size + sum(table.size for table in self._tables.values()) > self._most_bytes:
            del self._tables[next(iter(self._tables))]


class _Making:
    """The making of one table; see `NodeTables.pages`."""

    def __init__(
        self,
        nodes: NodeStore,
        view: View,
        group: LiveGroup,
        embed_key: str | None,
        space: LiveSpace | None,
        reader: NodeSource,
    ) -> None:
        self._nodes = nodes
        self._view = view
        self._group = group
        self._embed_key = embed_key
        self._space = space
        self._reader = reader

    def table(self, before: Mapping[int, _Part], beside: Mapping[int, _Part], most_bytes: int) -> _Table:
        """The table.

        Args:
            before: Parts of an earlier one, to be taken over.
            beside: Parts of the group with other vectors or none, whose segments serve here as well.
            most_bytes: How much it may take.
        """
        numbers = self._view.tree.live_numbers(self._group)
        builds = list(self._view.tree.builds(self._group))
        size = sum(build.size for build in builds) * _NODE_BYTES
        parts = {build.number: before[build.number] for build in builds if build.number in before}
        new = _batches([build for build in builds if build.number not in before], _READ_AT_ONCE)
        while size <= most_bytes and (some := next(new, None)):
            parts.update(zip([build.number for build in some], self._read(some, beside), strict=True))
            size = max(size, sum(part.size for part in parts.values()))
        if size > most_bytes:
            return _Table(numbers, -1, {}, None, 0)
        pages = [_page([parts[build.number] for build in some]) for some in _batches(builds, PAGE)]
        whole = {number: part for number, part in parts.items() if not part.lacking}
        changes = -1 if len(whole) == len(parts) else self._view.tree.changes
        return _Table(numbers, changes, whole, [page for page in pages if page.nodes], size)

    def _read(self, builds: list[Build], beside: Mapping[int, _Part]) -> list[_Part]:
        """The nodes of some builds."""
        missing = [build for build in builds if build.number not in beside]
        stored = iter(self._nodes.of_builds(self._group.collection, missing))
        read = [
            [node.segment for node in beside[build.number].nodes] if build.number in beside else next(stored)
            for build in builds
        ]
        if self._space is None:
            return [self._part(segments, None) for segments in read]
        keys = [one.key for segments in read for one in segments]
        rows = self._nodes.vectors.get(self._space.collection, keys) if self._space.dimension else []
        vectors = {row.key: row.vector for row in rows}
        return [self._part(segments, vectors) for segments in read]

    def _part(self, segments: list[Segment], vectors: dict[str, Embedding] | None) -> _Part:
        if vectors is None or self._embed_key is None:
            nodes = [DocNode.from_segment(one, self._reader) for one in segments]
            return _Part(nodes, None, 0, sum(map(_size_of, segments)))
        kept = [one for one in segments if one.key in vectors]
        carried: list[Carried] = [{self._embed_key: vectors[one.key]} for one in kept]
        nodes = [
            DocNode.from_segment(one, self._reader, embeddings=embeddings)
            for one, embeddings in zip(kept, carried, strict=True)
        ]
        own = sum(_bytes_of(vectors[one.key]) for one in kept)
        return _Part(nodes, carried, len(segments) - len(kept), own + sum(map(_size_of, kept)))


def _batches(builds: list[Build], size: int) -> Iterator[list[Build]]:
    """Builds with about so many nodes together."""
    some: list[Build] = []
    count = 0
    for build in builds:
        some.append(build)
        count += build.size
        if count >= size:
            yield some
            some, count = [], 0
    if some:
        yield some


def _page(parts: list[_Part]) -> NodePage:
    nodes = [node for part in parts for node in part.nodes]
    embeddings = [one for part in parts for one in part.embeddings or ()]
    segments = [node.segment for node in nodes]
    rows = RowBlock.of([one.key for one in segments], [one.fields for one in segments])
    return NodePage(nodes, embeddings or None, rows)


def _bytes_of(vector: Embedding) -> int:
    return _VECTOR_BYTES + (_WEIGHT_BYTES * len(vector) if isinstance(vector, dict) else vector.nbytes)


def _size_of(one: Segment) -> int:
    """About how many bytes a node takes, with what is made of its metadata when somebody reads them."""
    content = one.content if isinstance(one.content, str) else repr(one.content)
    return _NODE_BYTES + sys.getsizeof(content) + (8 * len(repr(one.metadata)) if one.metadata else 0)
