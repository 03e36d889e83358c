"""The query side of a Document: whatever leaves it as a node passes here, through the reader's scope."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from lazyrag.data.fields import Schema
from lazyrag.data.filters import Filter, FilterLike, bind_filter, both, has_condition, matches, parse_filter
from lazyrag.data.node import DocNode
from lazyrag.data.segment import ReadOnly, Segment, copy_value
from lazyrag.document.indexer import Builder, report_of
from lazyrag.document.report import IngestReport
from lazyrag.document.snapshot import NOTHING, ActiveRead, CollectionState, LocalSnapshot, Needs, read, related
from lazyrag.document.tree import View
from lazyrag.errors import ConfigError, IngestionError, StaleNodeError, known_names
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.types import Embedding

R = TypeVar("R")


class Reader:
    """A Document as its nodes and retrievers see it, within a scope: a `SnapshotSource` and a `NodeSource`.

    Args:
        builder: Builds the tree.
        scope: A bound filter that every node must satisfy that leaves this reader: hits, parents, children, roots.
        whole: The reader without a scope; None for that one itself.
    """

    def __init__(self, builder: Builder, scope: Filter | None = None, whole: Reader | None = None) -> None:
        self.tree = builder
        self.scope = scope
        self.unscoped = whole or self

    def __str__(self) -> str:
        return self.tree.where

    def report(self) -> IngestReport | None:
        """What became of the files that may be seen; None before the first use."""
        return report_of(self.tree, None if self.scope is None else self._sees)

    @property
    def schema(self) -> Schema:
        """The filterable fields."""
        return self.tree.nodes.schema

    def narrowed(self, filters: FilterLike) -> Reader:
        """A reader whose scope is this one's and the filter's.

        Raises:
            ConfigError: If there is no condition in the filter: what was to be hidden would be seen.
        """
        bound = self.bind(filters)
        if bound is None or not has_condition(bound):
            msg = f"The filter to restrict a Document by is {filters!r}, which looks at no field. Give a condition."
            raise ConfigError(msg)
        return Reader(self.tree, both(self.scope, bound), self.unscoped)

    def bind(self, filters: FilterLike | None) -> Filter | None:
        """A filter checked against the schema."""
        if filters is None:
            return None
        parsed = parse_filter(filters)
        return None if parsed is None else bind_filter(parsed, self.schema)

    def embedders(self, keys: Sequence[str] | None) -> list[CheckedEmbedder]:
        """The embedders of some keys; of all where keys is None.

        Raises:
            ConfigError: If there are none, or a key is not one of them.
        """
        known = self.tree.embedders
        if not known:
            msg = (
                "The Document has no embed, so nothing can be ranked by embedding. "
                "Pass Document(embed=...), or a text similarity such as similarity='bm25'."
            )
            raise ConfigError(msg)
        unknown = [key for key in keys or () if key not in known]
        if unknown:
            msg = f"The Document has no embed key {unknown[0]!r}. {known_names(unknown[0], known)}"
            raise ConfigError(msg)
        return [known[key] for key in (keys or known)]

    def line(self, group: str) -> list[str]:
        """A group and those above it, the root group last."""
        return self.tree.graph.line(group)

    # Snapshots

    def open(self, needs: Needs, part: int) -> CollectionState:
        """See `SnapshotSource.open`."""
        return CollectionState(self, self.build(needs), part)

    def snapshot(self, active: ActiveRead, state: CollectionState) -> LocalSnapshot:
        """See `SnapshotSource.snapshot`."""
        return LocalSnapshot(self, active, state)

    def require(self, state: CollectionState, needs: Needs) -> None:
        """See `CollectionState.require`."""
        state.require(needs, self)

    def has(self, view: View, needs: Needs) -> bool:
        """Whether all that is needed is built in a state."""
        return self.tree.has(view, needs)

    @property
    def removals(self) -> int:
        """Grows when something is removed: what was read before and after may not fit together."""
        return self.tree.ledger.removals

    @property
    def changes(self) -> int:
        """Grows with every change."""
        return self.tree.ledger.tree.changes

    def build(self, needs: Needs) -> View:
        """The present view, with all that is needed built."""
        if self.scope is None:
            return self.tree.view(needs)
        with _hiding_files():
            return self.tree.view(needs)

    @contextmanager
    def pause_writers(self, timeout_s: float) -> Iterator[bool]:
        """See `SnapshotSource.pause_writers`."""
        with self.tree.paused(timeout_s) as paused:
            yield paused

    def read(self, body: Callable[[LocalSnapshot], R], needs: Needs = NOTHING) -> R:
        """Read one state of this Document; see `read`."""
        return read({self: needs}, body)

    # Nodes

    def held(self, uid: str) -> list[Segment]:
        """The live nodes with a uid that may be seen, of every group that is built; at most one of each."""
        return self.read(lambda snapshot: [one for _, one in snapshot.find(uid)])

    def related(self, nodes: Sequence[DocNode], target: str) -> list[DocNode]:
        """The nodes of another group that nodes lead to; see `lazyrag.document.snapshot.related`."""
        return self.read(lambda snapshot: [node for node, _ in related([(snapshot, one) for one in nodes], target)])

    def parent(self, segment: Segment) -> DocNode | None:
        """See `NodeSource.parent`."""
        found = self.read(lambda snapshot: snapshot.above(segment))
        return None if found is None else self.show(found)

    def children(self, segment: Segment) -> dict[str, list[DocNode]]:
        """See `NodeSource.children`."""
        return self.read(lambda snapshot: snapshot.children(segment))

    def root(self, segment: Segment) -> DocNode:
        """See `NodeSource.root`."""
        return self.show(self._root(segment))

    def source(self, segment: Segment) -> Segment | None:
        """See `NodeSource.source`."""
        return self.read(lambda snapshot: snapshot.source_of(segment))

    def file_metadata(self, segment: Segment) -> Mapping[str, Any]:
        """See `NodeSource.file_metadata`."""
        return ReadOnly(copy_value(dict(self._root(segment).metadata)))

    def embeddings(self, segment: Segment) -> Mapping[str, Embedding]:
        """See `NodeSource.embeddings`."""
        return self.read(lambda snapshot: snapshot.embeddings(segment))

    def vectors_of(self, segments: Sequence[Segment], embed_key: str) -> list[Embedding | None]:
        """The stored vectors of nodes; see `LocalSnapshot.vectors`."""
        return self.read(lambda snapshot: snapshot.vectors(segments, embed_key))

    def show(self, segment: Segment) -> DocNode:
        """See `NodeSource.show`."""
        if not self._sees(segment):
            msg = f"The {segment.group} node of {segment.path} lies outside of what may be seen here ({self.scope!r})."
            raise StaleNodeError(msg)
        return DocNode.from_segment(segment, self)

    def _root(self, segment: Segment) -> Segment:
        return self.read(lambda snapshot: snapshot.root(segment))

    def _sees(self, segment: Segment) -> bool:
        return self.scope is None or matches(self.scope, segment.fields)


@contextmanager
def _hiding_files() -> Iterator[None]:
    """What the builder says of failures names files that may be hidden from a restricted Document."""
    try:
        yield
    except IngestionError:
        msg = "Every file failed in a step of ingestion. The whole Document's last_report says which and why."
        raise IngestionError(msg) from None
