"""Snapshots: one state of one or several Documents, as queries see it.

`read` opens a snapshot, calls a function with it, and calls it again if that state was removed
meanwhile. There is no other way to read a Document.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from lazyrag.data.filters import Filter, FilterLike, both, matches
from lazyrag.data.node import DocNode, NodeSource, remember
from lazyrag.data.segment import (
    EMPTY,
    LAZY_ROOT_NAME,
    Segment,
    child_uids,
    key_uid,
    store_key,
)
from lazyrag.errors import (
    ConfigError,
    EmbeddingError,
    RetrievalError,
    StaleNodeError,
    StoreError,
    UnsupportedError,
)
from lazyrag.groups.node_group import Step
from lazyrag.indexes.bm25 import BM25, LexicalState, Statistics
from lazyrag.ledger.tree import Build, LiveGroup, LiveIndex, View
from lazyrag.models.embedding import length_of, other_length_error
from lazyrag.read.nodes import PAGE, SearchMode, ensure_complete, metric_of, stale_error
from lazyrag.read.retries import repeat
from lazyrag.read.server_search import fetch_rows, rank_text
from lazyrag.read.source import LiveState, Needs
from lazyrag.storage.database import batches_reaching
from lazyrag.stores.protocol import RowScope
from lazyrag.types import SPARSE, Embedding, Embeddings, Metric, Ranking

R = TypeVar("R")


NodeKey: TypeAlias = tuple[str, int, str]
"""A node of a snapshot: its uid, the number of its Document in the read, and the stores' key."""

Hits: TypeAlias = list[tuple[NodeKey, float]]
"""Keys with scores, best first."""

NOTHING: Needs = frozenset()


class SnapshotSource(NodeSource, Protocol):
    """Source of snapshots: a Document, or a restricted view of one; see
    `lazyrag.read.scope.Reader`.
    """

    @property
    def indexer(self) -> LiveState:
        """The side of the Document that builds."""

    @property
    def scope(self) -> Filter | None:
        """What every visible node satisfies; None for no restriction."""

    @property
    def hides_statistics(self) -> bool:
        """Whether no score may depend on nodes outside of the scope."""

    @property
    def unscoped(self) -> SnapshotSource:
        """The source without a scope."""

    def build(self, needs: Needs) -> View:
        """The present live state, with everything that is needed built."""

    def snapshot(self, read: ActiveRead, state: DocumentState) -> LocalSnapshot:
        """The snapshot of a state within the scope."""

    def bind(self, filters: FilterLike | None) -> Filter | None:
        """Check a filter against the fields."""

    def line(self, group: str) -> list[str]:
        """A group and those above it, the root group last."""


Sources: TypeAlias = Mapping[SnapshotSource, Needs]
"""What is read, with what it needs built."""

OUTSIDE = -1
"""Number of the Document in the keys of nodes that belong to no Document."""

_FIRST_CHILDREN = 32
_MOST_PARENTS = 64  # roots that a read keeps: they have the texts of whole files
_FEW = 1_000
_WALKED = 2_000  # nodes that a walk reads at once: its reader may need few
_MAX_HANDLES = 4_096


class DocumentState:
    """The state of one Document in a read.

    Args:
        indexer: Of the Document.
        view: The live state.
        document_index: Number of the Document in the read.
    """

    __slots__ = ("_indexer", "document_index", "has_moved", "parents", "rows", "unranked", "view")

    def __init__(self, indexer: LiveState, view: View, document_index: int) -> None:
        self._indexer = indexer
        self.view = view
        self.document_index = document_index
        self.has_moved = False
        self.parents: dict[str, Segment] = {}  # that the read has met, by uid
        self.rows: dict[str, Segment] = {}  # that came with a ranking, by key
        # groups, with an analyser or embed key, that a store did not rank itself
        self.unranked: set[tuple[str, str]] = set()

    def require(self, needs: Needs, source: SnapshotSource) -> None:
        """Build what was not known to be needed when the read began; the whole read is then
        repeated.

        Args:
            needs: What is needed.
            source: Who needs it: errors name no more than its scope shows.
        """
        if not self._indexer.has(self.view, needs):
            before = self.view
            self.view = source.build(needs)
            # else no visible document has what is needed
            self.has_moved |= self.view.tree is not before.tree

    def is_valid(self) -> bool:
        """Whether nothing was removed since it was opened, and nothing had to be built in
        between.
        """
        return not self.has_moved and self._indexer.ledger.removals == self.view.removals

    def is_current(self) -> bool:
        """Whether nothing has changed at all since then."""
        return self.is_valid() and self._indexer.ledger.tree.changes == self.view.tree.changes


class ActiveRead:
    """A read in progress: the states that it sees, by Document. Reads inside it see the same
    states.
    """

    __slots__ = ("_document_indexes", "_states", "is_open", "outer")

    def __init__(self, outer: ActiveRead | None) -> None:
        self.outer = outer
        self.is_open = True
        self._states: dict[object, DocumentState] = {}
        self._document_indexes: dict[object, int] = (
            {} if outer is None else dict(outer._document_indexes)
        )

    def state_of(self, source: SnapshotSource) -> DocumentState | None:
        """The state of a source's Document; None if the read does not cover it."""
        state = self._states.get(source.indexer)
        if state is None and self.outer is not None:
            return self.outer.state_of(source)
        return state

    def covers(self, sources: Sources) -> bool:
        """Whether the read has a state of all these sources."""
        return self.is_open and all(self.state_of(source) is not None for source in sources)

    def open(self, sources: Sources) -> Snapshot:
        """The snapshot of some sources, with all that they need built."""
        parts = []
        for source, needs in sources.items():
            state = self.state_of(source)
            if state is None:
                state = DocumentState(
                    source.indexer, source.build(needs), self.index_of(source.indexer)
                )
                self._states[source.indexer] = state
            elif needs and needs not in state.view.met:
                state.require(needs, source)
            parts.append(source.snapshot(self, state))
        return parts[0] if len(parts) == 1 else Snapshot(self, parts)

    def index_of(self, indexer: object) -> int:
        """The number of a Document: in the order in which they are first met."""
        return self._document_indexes.setdefault(indexer, len(self._document_indexes))

    def is_valid(self) -> bool:
        """Whether the states that this read opened are valid."""
        return all(state.is_valid() for state in self._states.values())

    def is_current(self) -> bool:
        """Whether the states that this read opened are the present ones."""
        return all(state.is_current() for state in self._states.values())

    def has_moved(self) -> bool:
        """Whether something had to be built in the middle of it."""
        return any(state.has_moved for state in self._states.values())


class Snapshot:
    """One state of one or several Documents, as far as it may be seen. It is used inside the read
    that opened it.

    Several Documents are ranked together, with common statistics.

    Args:
        read: The read.
        parts: The snapshots of the Documents.
    """

    __slots__ = ("_parts", "_read")

    def __init__(self, read: ActiveRead, parts: Sequence[LocalSnapshot]) -> None:
        self._read = read
        self._parts = parts

    @property
    def parts(self) -> Sequence[LocalSnapshot]:
        """One snapshot for each source, in the sources' order."""
        return self._parts

    @property
    def version(self) -> tuple[Any, ...]:
        """Equal versions of the same sources give equal answers."""
        return tuple(part.version for part in self.parts)

    def of(self, sources: Sequence[SnapshotSource]) -> Snapshot:
        """The same state, seen through some of the sources of the read."""
        if len(sources) == len(self.parts) and all(
            part.source is source for part, source in zip(self.parts, sources, strict=True)
        ):
            return self
        return self._read.open(dict.fromkeys(sources, NOTHING))

    def index_of(self, node: DocNode) -> int:
        """The number of a node's Document in this read; `OUTSIDE` for a node of no Document."""
        return OUTSIDE if node.reader is None else self._read.index_of(node.reader.document_token)

    def term_statistics(
        self, group: str, analyser: str, terms: Sequence[str], model: BM25
    ) -> Statistics:
        """BM25 statistics of the nodes of a group that can be seen."""
        statistics: list[Statistics] = self._each(
            lambda part: part.term_statistics(group, analyser, terms, model)
        )
        return sum(statistics[1:], statistics[0])

    def rank_terms(
        self,
        group: str,
        analyser: str,
        terms: Sequence[str],
        topk: int,
        filters: FilterLike | None,
        model: BM25,
        statistics: Statistics | None = None,
    ) -> Hits:
        """The best nodes of a group by BM25: only nodes that share a term with the query.

        Args:
            group: The group.
            analyser: Name of the registered analyser whose terms are indexed.
            terms: Terms of the query.
            topk: At most so many hits.
            filters: Narrow what is ranked and change no statistic.
            model: Parameters of BM25.
            statistics: Those of a larger collection; None takes those of this snapshot.
        """
        if statistics is None:
            statistics = self.term_statistics(group, analyser, terms, model)
        common = statistics
        rankings = self._each(
            lambda part: part.rank_terms(group, analyser, terms, topk, filters, model, common)
        )
        return merge_rankings(rankings, topk)

    def rank_vectors(
        self,
        group: str,
        embed_key: str,
        vectors: Sequence[Embedding],
        topk: int,
        filters: FilterLike | None,
        *,
        mode: SearchMode = "exact",
    ) -> Hits:
        """The best nodes of a group by the metric of their vectors.

        Args:
            group: The group.
            embed_key: Which vectors.
            vectors: The query's vector for each part, in the order of `parts`.
            topk: At most so many hits.
            filters: As in `rank_terms`.
            mode: How the vector store searches.

        Raises:
            EmbeddingError: If the query's vector has another length or kind than the nodes'.
            UnsupportedError: If a store does not search in that mode.
        """

        def rank(part: LocalSnapshot, vector: Embedding) -> Hits:
            return part.rank_vectors(group, embed_key, [vector], topk, filters, mode=mode)

        return merge_rankings(self._each(rank, vectors), topk)

    def metrics(self, group: str, embed_key: str) -> set[Metric]:
        """The metrics that rank the vectors of a group; empty if there are none."""
        return set().union(*(part.metrics(group, embed_key) for part in self.parts))

    def size(self, group: str) -> int:
        """How many live nodes a group has, seen here or not: a bound for ``topk``."""
        return sum(part.size(group) for part in self.parts)

    def nodes(self, group: str, hits: Hits, embed_key: str | None = None) -> list[DocNode]:
        """The nodes of hits, in their order, with their scores.

        Raises:
            StoreError: If the store lacks one.
        """
        node_of: dict[NodeKey, DocNode] = {}
        for part in self.parts:
            part_hits = [hit for hit in hits if hit[0][1] == part.document_index]
            if part_hits:
                nodes = part.nodes(group, part_hits, embed_key)
                node_of.update(zip([key for key, _ in part_hits], nodes, strict=True))
        return [node_of[key] for key, _ in hits]

    def _each(self, call: Callable[..., R], *columns: Sequence[Any]) -> list[R]:
        """Call a function for each part, and its entry in each column."""
        return list(map(call, self.parts, *columns))


class LocalSnapshot(Snapshot):
    """One state of one Document within a scope; see `Snapshot`.

    Returned nodes are in scope; the path that leads to them may pass other nodes.

    Args:
        source: The Document, or the restricted view of it.
        read: The read that it belongs to.
        state: The state that the read sees.
    """

    __slots__ = ("_counted", "_nodes", "_scope", "document_index", "indexer", "source", "state")

    def __init__(self, source: SnapshotSource, read: ActiveRead, state: DocumentState) -> None:
        self.source = source
        self.indexer = source.indexer
        self.state = state
        self.document_index = state.document_index
        self._read = read
        self._scope = source.scope
        # the scope of what counts in scores
        self._counted = source.scope if source.hides_statistics else None
        self._nodes = source.indexer.nodes

    @property
    def parts(self) -> tuple[LocalSnapshot]:
        """See `Snapshot.parts`."""
        return (self,)

    @property
    def version(self) -> tuple[Any, ...]:
        """See `Snapshot.version`."""
        return (self.state.view,)

    def measured(self, measure: Callable[..., R], *arguments: str) -> R:
        """What a function of this snapshot and other arguments returns, cached per state of the
        Document and scope.
        """
        handles = self.state.view.handles
        key = measure, arguments, self._scope, self._counted
        result: R | None = handles.get(key)
        if result is None:
            result = measure(self, *arguments)
            if len(handles) > _MAX_HANDLES:
                handles.clear()
            handles[key] = result
        return result

    # Rankings

    def term_statistics(
        self, group: str, analyser: str, terms: Sequence[str], model: BM25
    ) -> Statistics:
        """See `Snapshot.term_statistics`."""
        return self._terms(group, analyser).statistics(terms, model)

    def rank_terms(
        self,
        group: str,
        analyser: str,
        terms: Sequence[str],
        topk: int,
        filters: FilterLike | None,
        model: BM25,
        statistics: Statistics | None = None,
    ) -> Hits:
        """See `Snapshot.rank_terms`."""
        bound = None if filters is None else self.source.bind(filters)
        if self._counted is not self._scope:
            bound = both(self._scope, bound)  # else the index holds nothing that is out of scope
        index = self._terms(group, analyser)
        return keyed(
            index.search(terms, topk, filter=bound, model=model, statistics=statistics),
            self.document_index,
        )

    def holders(self, group: str, analyser: str, terms: Sequence[str]) -> list[str]:
        """Uids of the nodes of a group whose indexed texts have all of some terms, at least one;
        nodes out of scope may be among them.
        """
        return [key_uid(key) for key in self._terms(group, analyser).holders(terms)]

    def rank_vectors(
        self,
        group: str,
        embed_key: str,
        vectors: Sequence[Embedding],
        topk: int,
        filters: FilterLike | None,
        *,
        mode: SearchMode = "exact",
    ) -> Hits:
        """See `Snapshot.rank_vectors`."""
        index = self.vector_index(group, embed_key)
        if self._counted is not None and index.dimension:
            self._nodes.require_exact(index.collection, self._counted)
        if mode == "exact":
            self._require_few(group)
        dimension = self._dimension(group, embed_key)
        if not dimension:
            return []
        [query] = vectors
        if length_of(query) != dimension:
            raise other_length_error(embed_key, length_of(query), dimension)
        bound = self._scope if filters is None else self._wanted(filters)
        queries: Embeddings = [query] if isinstance(query, dict) else query[None]
        try:
            ranking = self._nearest(group, index, queries, topk, bound, mode)
        except UnsupportedError:
            if mode != "native" or not self._nodes.downloads_vectors:
                raise
            self.state.unranked.add((group, embed_key))
            self._require_few(group)
            ranking = self._nearest(group, index, queries, topk, bound, "exact")
        return keyed(ranking, self.document_index)

    def _require_few(self, group: str) -> None:
        """Refuse to read too many vectors from a server."""
        if self._nodes.downloads_vectors:
            self._nodes.require_few(self.size(group), group)

    def _nearest(
        self,
        group: str,
        index: LiveIndex,
        queries: Embeddings,
        topk: int,
        bound: Filter | None,
        mode: SearchMode,
    ) -> Ranking:
        live = self.group(group)
        view = self.state.view
        return self._nodes.nearest(
            mode, view, self._verdicts, live, index.collection, queries, topk, bound
        )

    def rank_text(
        self, group: str, analyser: str, terms: Sequence[str], topk: int, filters: FilterLike | None
    ) -> Hits:
        """The best nodes of a group by the segment store's own full-text ranking.

        Raises:
            UnsupportedError: If the segment store has none, or cannot rank this group or evaluate
                the filters.
        """
        store = self._nodes.text_search()
        live = self.group(group)
        bound = self._wanted(filters)
        view = self.state.view
        rows = self.state.rows
        scope = None
        if self._counted is not None:
            scope = RowScope(self._counted, view.tree.changes)
            bound = self.source.bind(filters)
        ranking = rank_text(
            store, view, self._verdicts, live, analyser, terms, topk, bound, rows, scope
        )
        return keyed(ranking, self.document_index)

    def metrics(self, group: str, embed_key: str) -> set[Metric]:
        """See `Snapshot.metrics`."""
        dimension = self._dimension(group, embed_key)
        return {metric_of(dimension)} if dimension else set()

    def _dimension(self, group: str, embed_key: str) -> int:
        """The dimension of the vectors in scope; 0 if there are none."""
        dimension = self.vector_index(group, embed_key).dimension
        if self._scope is None or not dimension:
            return dimension
        has_vectors = self.measured(LocalSnapshot._has_vectors_in_scope, group, embed_key)
        return dimension if has_vectors else 0

    def _has_vectors_in_scope(self, group: str, embed_key: str) -> bool:
        index = self.vector_index(group, embed_key)
        if index.dimension == SPARSE:  # no query finds all
            live = self.group(group)
            return any(self._read_pages(live, self._scope, embed_key, index, size=_FEW))
        ones: Embeddings = np.ones((1, index.dimension), np.float32)
        if self._nodes.ranks_vectors and self._nodes.scopes_vectors:
            with suppress(UnsupportedError):
                return bool(self._nearest(group, index, ones, 1, self._scope, "native"))
        return bool(self._nearest(group, index, ones, 1, self._scope, "exact"))

    def _verdicts(self, builds: Sequence[int]) -> Mapping[int, bool]:
        return self.indexer.ledger.verdicts(builds, self.state.view.tree.changes)

    def scan(
        self, group: str, filters: FilterLike | None, embed_key: str | None = None
    ) -> Iterator[list[DocNode]]:
        """The nodes of a group that match a filter, in the documents' order; no page is empty.

        They are cached as far as they fit, see `NodeCache`. With an embed key only nodes
        that have a vector under it, each carrying that one.
        """
        live = self.group(group)
        bound = self._wanted(filters)
        is_paged = self._scope is not None and self.size(group) > PAGE
        if is_paged:
            bound = self._scope
        vector_index = None if embed_key is None else self.vector_index(group, embed_key)
        cached = self.indexer.node_cache.pages(
            self.state.view, live, embed_key, vector_index, self.source.unscoped
        )
        if cached is None:
            pages = self._read_pages(live, bound, embed_key, vector_index)
        else:
            source = None if self._scope is None else self.source
            pages = (page.seen(bound, source) for page in cached)
        if is_paged:
            pages = self._visible_pages(pages, self.source.bind(filters))
        return (page for page in pages if page)

    def _visible_pages(
        self, pages: Iterable[list[DocNode]], bound: Filter | None
    ) -> Iterator[list[DocNode]]:
        """Pages as a Document of the visible nodes has them: hidden nodes decide nothing about
        their borders.
        """
        nodes = itertools.chain.from_iterable(pages)
        by_document = itertools.groupby(nodes, lambda node: node.document_id)
        documents = (list(document_nodes) for _, document_nodes in by_document)
        for batch in batches_reaching(documents, len, PAGE):
            page = itertools.chain.from_iterable(batch)
            yield [node for node in page if bound is None or matches(bound, node.segment.fields)]

    def walk(
        self, group: str, filters: FilterLike | None, allowed: Mapping[str, Collection[Any]] = EMPTY
    ) -> Iterator[DocNode]:
        """The nodes of a group that match a filter, in the documents' order.

        Args:
            group: The group.
            filters: Narrow what is returned.
            allowed: Allowed values of ``document_id``, ``uid`` and ``number``.
        """
        uids = allowed.get("uid")
        size = _WALKED if uids is None else PAGE  # few of a page's nodes may have one of the uids
        pages = self._read_pages(
            self.group(group),
            self._wanted(filters),
            size=size,
            documents=allowed.get("document_id"),
            uids=uids,
        )
        for node in itertools.chain.from_iterable(pages):
            if all(getattr(node, name) in values for name, values in allowed.items()):
                yield node

    def size(self, group: str) -> int:
        """See `Snapshot.size`."""
        return self.group(group).nodes

    # Nodes

    def nodes(self, group: str, hits: Hits, embed_key: str | None = None) -> list[DocNode]:
        """See `Snapshot.nodes`."""
        live = self.group(group)
        keys = [key for (_, _, key), _ in hits]
        get = partial(self._nodes.segments.get, live.collection)
        segments = fetch_rows(get, keys, self.state.rows) if self.state.rows else get(keys)
        if len(segments) < len(hits):
            raise StoreError(
                f"The store has {len(segments)} of {len(hits)} nodes of {group!r} that were found."
                " Run docs.maintenance.verify().",
                collection=live.collection,
            )
        if self._scope is not None and not all(map(self.sees, segments)):
            raise StoreError(
                f"The store found nodes of {group!r} that a restricted Document must not show. Run"
                " docs.maintenance.verify().",
                collection=live.collection,
            )
        nodes = [
            DocNode.from_segment(segment, self.source, score=score, embed_key=embed_key)
            for segment, (_, score) in zip(segments, hits, strict=True)
        ]
        remember(nodes, self.indexer.hits)
        self.state.view.tree.expected = {segment.document_id for segment in segments}
        return nodes

    def preload(self, group: str, hits: Hits) -> None:
        """Read nodes of hits from a server by one request, before several calls of `nodes`."""
        if self._nodes.downloads_texts:
            keys = [key for (_, number, key), _ in hits if number == self.document_index]
            missing = [key for key in keys if key not in self.state.rows]
            segments = self._nodes.segments.get(self.group(group).collection, missing)
            self.state.rows.update((segment.key, segment) for segment in segments)

    def hit(
        self, segment: Segment, score: float | None, merged_from: tuple[str, ...] = ()
    ) -> DocNode:
        """A segment as a hit, which remembers what it shows."""
        node = DocNode.from_segment(segment, self.source, score=score, merged_from=merged_from)
        remember([node], self.indexer.hits)
        return node

    def find(self, uid: str) -> list[tuple[NodeKey, Segment]]:
        """The nodes with a uid that can be seen, of every group that is built."""
        segments = self._nodes.segments
        nodes = []
        for group in self.state.view.groups.values():
            builds = segments.builds_of(group.collection, uid)
            is_live = self._verdicts(builds)
            keys = [store_key(uid, build) for build in builds if is_live[build]]
            visible = filter(self.sees, segments.get(group.collection, keys))
            nodes += [((uid, self.document_index, node.key), node) for node in visible]
        return nodes

    def embeddings(self, segment: Segment) -> Mapping[str, Embedding]:
        """The vectors of a node by embed key, for the keys that are embedded."""
        pairs = ((key, self.vectors([segment], key)[0]) for key in self.indexer.embedders)
        return {key: vector for key, vector in pairs if vector is not None}

    def vectors(self, segments: Sequence[Segment], embed_key: str) -> list[Embedding | None]:
        """The stored vectors of nodes, None for a node without; one request for each of their
        groups.
        """
        vector_of = {}
        for name in dict.fromkeys(segment.group for segment in segments):
            vector_index = self.indexer.planner.live_index(
                self.state.view, Step(name, embed_key=embed_key)
            )
            keys = [segment.key for segment in segments if segment.group == name]
            if vector_index is not None and vector_index.dimension:
                for row in self._nodes.vectors.get(vector_index.collection, keys):
                    vector_of[name, row.key] = row.vector
        return [vector_of.get((segment.group, segment.key)) for segment in segments]

    def sees(self, segment: Segment) -> bool:
        """Whether a node is in scope."""
        return self._scope is None or matches(self._scope, segment.fields)

    # From node to node

    def checked(self, node: DocNode) -> Segment:
        """A node's segment, if the node belongs to this Document.

        Raises:
            ConfigError: If it belongs to another one.
        """
        if node.reader is not None and node.reader.document_token is not self.indexer:
            raise ConfigError(
                f"{node!r} belongs to another Document. Ask the Document that it was retrieved"
                " from."
            )
        return node.segment

    def parent(self, segment: Segment) -> Segment | None:
        """The parent of a node, in scope or not; None for a root node. Siblings share one look at
        the store.

        Raises:
            StaleNodeError: If the node or its parent is not in the live tree any more.
        """
        if segment.parent is None:
            return None
        group, _ = self._require_live(segment)
        parent_group = group.parent or ""
        if segment.parent not in self.state.parents:
            parents = self._live(parent_group, segment.document_id, [segment.parent])
            if not parents:
                raise stale_error(segment)
            self.state.parents[segment.parent] = parents[0]
        return self.state.parents[segment.parent]

    def prefetch_parents(self, segments: Sequence[Segment]) -> None:
        """Read the parents of nodes with one request for each group; `parent` would read them one
        by one.
        """
        view = self.state.view
        builds = view.tree.builds_of_documents({segment.document_id for segment in segments})
        keys_of: dict[str, list[str]] = {}
        for segment in segments:
            if segment.parent is None or segment.parent in self.state.parents:
                continue
            child_group = view.groups.get(segment.group)
            group = view.groups.get(child_group.parent or "") if child_group is not None else None
            build = None if group is None else builds[segment.document_id].get(group.name)
            if group is not None and build is not None:
                key = store_key(segment.parent, build.number)
                keys_of.setdefault(group.collection, []).append(key)
        for collection, keys in keys_of.items():
            parents = self._nodes.segments.get(collection, list(dict.fromkeys(keys)))
            self.state.parents |= {parent.uid: parent for parent in parents}

    def source_of(self, segment: Segment) -> Segment | None:
        """The node in whose text a node's span counts; None for a node without a span."""
        above: Segment | None = segment
        while above is not None and above.span is not None:
            above = self.parent(above)
        return above

    def root(self, segment: Segment) -> Segment:
        """The root node of a node's document, in scope or not."""
        if segment.group == LAZY_ROOT_NAME:
            return segment
        root = self.state.parents.get(segment.document_id)
        if root is None:
            roots = self._live(LAZY_ROOT_NAME, segment.document_id, [segment.document_id])
            if not roots:
                raise StaleNodeError(f"Document {segment.path!r} is gone. Retrieve the node again.")
            root = roots[0]
            if len(self.state.parents) < _MOST_PARENTS:
                self.state.parents[root.uid] = root
        # Build numbers ascend, so a later root is not the one that the node was made of. Its group
        # may have been rebuilt meanwhile: that does not concern the root.
        if root.build > segment.build:
            self._require_live(segment)
        return root

    def children(self, segment: Segment) -> dict[str, list[DocNode]]:
        """The children of a node by group, for the groups that are built."""
        self._require_live(segment)
        children = {}
        for name, group in sorted(self.state.view.groups.items()):
            if group.parent == segment.group:
                visible = filter(self.sees, self._children(segment, group))
                children[name] = [DocNode.from_segment(child, self.source) for child in visible]
        return children

    def children_up_to(self, segment: Segment, group: str, most: int) -> list[Segment] | None:
        """The children of a node in one group, in order; None if they are more than so many."""
        visible = filter(self.sees, self._children(segment, self.group(group)))
        children = list(itertools.islice(visible, most + 1))  # not all of a large document is read
        return children if len(children) <= most else None

    def related_nodes(self, nodes: Sequence[DocNode], target: str) -> list[list[Segment]]:
        """For each node the related nodes of another group.

        From the node up to the lowest group above both, from there down to all nodes of the target
        group. Results are memoized per ancestor.
        """
        target_line = self.source.line(target)
        tops = [self.checked(node) for node in nodes]
        by_group: dict[str, list[int]] = {}
        for position, top in enumerate(tops):
            by_group.setdefault(top.group, []).append(position)
        for group, positions in by_group.items():
            for name in self.source.line(group):
                if name in target_line:
                    break
                self.prefetch_parents([tops[position] for position in positions])
                for position in positions:
                    tops[position] = self.parent(tops[position]) or tops[position]
        reached = {}
        for top in tops:
            if (top.uid, top.group) not in reached:
                below = target_line[: target_line.index(top.group)][::-1]
                reached[top.uid, top.group] = self._descendants(top, below)
        return [reached[top.uid, top.group] for top in tops]

    def ordinal(self, segment: Segment) -> tuple[Build, int]:
        """The live build that a node is in, and which of its nodes it is, from 0.

        Raises:
            StaleNodeError: If the node is not in the live tree any more.
        """
        _, build = self._require_live(segment)
        at = segment.number - 1  # where it was when it was read; it may have moved since
        if at < len(build.uids) and build.uids[at] == segment.uid:
            return build, at
        if segment.uid not in build.uids:
            raise stale_error(segment)
        return build, build.uids.index(segment.uid)

    def node_ranges(self, ranges: Sequence[tuple[Build, int, int]]) -> list[list[Segment]]:
        """Nodes of live builds, each from one ordinal to another, both included, as far as they are
        in scope.

        Raises:
            StoreError: If some are missing in the store.
        """
        keys_of_ranges = []
        keys_of_groups: dict[str, list[str]] = {}
        for build, first, last in ranges:
            keys = [store_key(uid, build.number) for uid in build.uids[first : last + 1]]
            keys_of_ranges.append(keys)
            keys_of_groups.setdefault(build.group, []).extend(keys)
        by_key: dict[str, Segment] = {}
        for name, keys in keys_of_groups.items():
            collection = self.state.view.groups[name].collection
            segments = self._nodes.segments.get(collection, keys)
            by_key.update((segment.key, segment) for segment in segments)
        visible = []
        for (build, *_), keys in zip(ranges, keys_of_ranges, strict=True):
            segments = [by_key[key] for key in keys if key in by_key]
            ensure_complete(build, len(segments) + len(build.uids) - len(keys))
            visible.append([segment for segment in segments if self.sees(segment)])
        return visible

    def _require_live(self, segment: Segment) -> tuple[LiveGroup, Build]:
        """The group and the build of a node, if the node or an equal one in its place is live.

        Raises:
            StaleNodeError: If neither is.
        """
        group = self.state.view.groups.get(segment.group)
        build = self.state.view.tree.build_of(segment.group, segment.document_id)
        if group is None or build is None:
            raise stale_error(segment)
        if build.number != segment.build:
            live = self._live(segment.group, segment.document_id, [segment.uid])
            if not live or (live[0].content, live[0].span) != (segment.content, segment.span):
                raise stale_error(segment)
        return group, build

    def _live(self, group_name: str, document: str, uids: Sequence[str]) -> list[Segment]:
        """The live nodes of a document with some uids; [] if the group does not exist."""
        group = self.state.view.groups.get(group_name)
        build = self.state.view.tree.build_of(group_name, document)
        if group is None or build is None:
            return []
        keys = [store_key(uid, build.number) for uid in uids]
        read = functools.partial(self._nodes.segments.get, group.collection, keys)
        return self.indexer.hits.root(keys[0], read) if group_name == LAZY_ROOT_NAME else read()

    def _children(self, segment: Segment, group: LiveGroup) -> Iterator[Segment]:
        """The children of a node in a group, in order, in scope or not; read in pages, each larger
        than the one before.

        Ordinals begin at 1 without a gap, so uids can be computed: they are requested until one is
        missing.
        """
        self._require_live(segment)
        first = 1
        size = _FIRST_CHILDREN
        while True:
            uids = child_uids(segment.uid, group.name, range(first, first + size))
            page = self._live(group.name, segment.document_id, uids)
            yield from page
            if len(page) < size:
                return
            first = first + size
            size = 4 * size

    # Groups and indexes

    def group(self, name: str) -> LiveGroup:
        """A group, built."""
        group = self.state.view.groups.get(name)
        return self._require(Step(name)).groups[name] if group is None else group

    def vector_index(self, group: str, embed_key: str) -> LiveIndex:
        """The vectors of a group under an embed key, built."""
        return self._live_index(Step(group, embed_key=embed_key))

    def _terms(self, group: str, analyser: str) -> LexicalState:
        """The keyword index of a group, built; it counts only nodes in scope, unless hidden ones
        may influence scores.
        """
        lexical: LexicalState | None = self.state.view.handles.get((group, analyser))
        if lexical is None:
            index = self._live_index(Step(group, analyser=analyser))
            view = self.state.view
            lexical = self.indexer.terms.state(view.tree, index)
            view.handles[group, analyser] = lexical
        return lexical if self._counted is None else lexical.restricted_to(self._counted)

    def _live_index(self, step: Step) -> LiveIndex:
        index: LiveIndex | None = self.state.view.handles.get(step)
        if index is None:
            index = self.indexer.planner.live_index(self.state.view, step)
            if index is None or not index.complete:
                index = self.indexer.planner.live_index(self._require(step), step)
            if index is None:
                raise StaleNodeError(
                    f"The analyzer or embedding needed to {step} was replaced during the query."
                    " Retry the query."
                )
            self.state.view.handles[step] = index
        return index

    def _wanted(self, filters: FilterLike | None) -> Filter | None:
        """A filter within the scope."""
        return both(self._scope, self.source.bind(filters))

    def _require(self, step: Step) -> View:
        self.state.require(frozenset([step]), self.source)
        return self.state.view

    def _read_pages(
        self,
        live: LiveGroup,
        bound: Filter | None,
        embed_key: str | None = None,
        vector_index: LiveIndex | None = None,
        size: int = 0,
        documents: Collection[Any] | None = None,
        uids: Collection[Any] | None = None,
    ) -> Iterator[list[DocNode]]:
        builds_in_order = self.state.view.tree.builds(live, documents)
        for builds in batches_reaching(builds_in_order, lambda build: build.size, size or PAGE):
            page = itertools.chain.from_iterable(
                self._nodes.of_builds(live.collection, builds, uids)
            )
            segments = [
                segment for segment in page if bound is None or matches(bound, segment.fields)
            ]
            if vector_index is None or embed_key is None:
                yield [DocNode.from_segment(segment, self.source) for segment in segments]
            else:
                rows = self._nodes.vectors.get(
                    vector_index.collection, [segment.key for segment in segments]
                )
                vectors = {row.key: row.vector for row in rows}
                yield [
                    DocNode.from_segment(
                        segment, self.source, embeddings={embed_key: vectors[segment.key]}
                    )
                    for segment in segments
                    if segment.key in vectors
                ]

    def _descendants(self, top: Segment, groups: Sequence[str]) -> list[Segment]:
        """The nodes below a node, down through some groups, that are in scope."""
        segments = [top]
        for name in groups:
            live = self.group(name)
            children: list[Segment] = []
            for segment in segments:
                children += self._children(segment, live)
            segments = children
        return list(filter(self.sees, segments))


def merge_rankings(rankings: Sequence[Hits], topk: int, *, descend: bool = True) -> Hits:
    """Rankings of several parts as one: best first, ties by uid, then by the order of the parts."""
    if len(rankings) == 1:
        return rankings[0][:topk]
    sign = -1.0 if descend else 1.0
    ordered = []
    for position, ranking in enumerate(rankings):
        ordered += [(sign * score, key[0], position, key, score) for key, score in ranking]
    ordered.sort()
    return [(key, score) for *_, key, score in ordered[:topk]]


def keyed(ranking: Ranking, document_index: int) -> Hits:
    """A store's ranking with the keys of a snapshot."""
    # Inline for speed, see `key_uid`.
    return [((key.rpartition("-")[0], document_index, key), score) for key, score in ranking]


_ACTIVE: ContextVar[ActiveRead | None] = ContextVar("lazyrag_active_read", default=None)


def read(sources: Sources, body: Callable[[Any], R]) -> R:
    """Call a function with a snapshot of some sources.

    The body sees the state that is live when the read begins. If something of it was removed
    meanwhile, or had to be built in the middle, the body is called again. A read inside another one
    joins it, if that covers its sources.

    Args:
        sources: The sources, with what has to be built before.
        body: Called with the `Snapshot`, perhaps several times, so it has no other effects.

    Raises:
        RetrievalError: If the body itself redefines groups, whenever it is called.
        StoreError: If other programs remove things all the time.
    """
    outer = _ACTIVE.get()
    if outer is not None:
        if outer.covers(sources):
            return body(outer.open(sources))
        if not outer.is_open:
            outer = None
    done, _ = _attempt(sources, outer, body)
    if done is not None:
        return done[0]
    indexers = sorted({source.indexer for source in sources}, key=id)
    where = " and ".join(dict.fromkeys(map(str, sources)))
    return repeat(lambda: _attempt(sources, outer, body), indexers, where)


def is_reading(sources: Sources) -> bool:
    """Whether this thread is in a read of all these sources; in any read if there are none."""
    active = _ACTIVE.get()
    return active is not None and active.covers(sources)


def _attempt(
    sources: Sources, outer: ActiveRead | None, body: Callable[[Any], R]
) -> tuple[tuple[R] | None, bool]:
    """The body's result for one state, or None if the state became invalid; and whether the body
    itself moved it.
    """
    active = ActiveRead(outer)
    snapshot = active.open(sources)
    try:
        _ACTIVE.set(active)
        result = body(snapshot)
    except (
        StoreError,
        StaleNodeError,
        RetrievalError,
        EmbeddingError,
    ):  # the last when a model is switched
        if active.is_current():
            raise
        return None, active.has_moved()
    finally:
        active.is_open = False
        _ACTIVE.set(outer)
    if active.is_valid():
        return (result,), False
    return None, active.has_moved()
