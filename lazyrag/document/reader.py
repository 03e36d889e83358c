"""The query side of a Document: whatever leaves it as a node passes here, through the reader's scope."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from lazyrag.data.fields import Schema
from lazyrag.data.filters import Filter, FilterLike, bind_filter, both, has_condition, matches, parse_filter
from lazyrag.data.node import DocNode
from lazyrag.data.readonly import ReadOnly
from lazyrag.data.segment import Segment, copy_value, store_key
from lazyrag.document.builder import Builder
from lazyrag.document.consistency import consistent_read
from lazyrag.document.ledger.tree import LiveGroup, LiveSpace
from lazyrag.document.live_hits import live_hits
from lazyrag.document.nodes import VectorWay, metric_of
from lazyrag.document.relatives import Relatives
from lazyrag.document.report import IngestReport
from lazyrag.document.reporting import report_of
from lazyrag.document.step import Step
from lazyrag.document.tables import PAGE
from lazyrag.errors import (
    ConfigError,
    EmbeddingError,
    IngestionError,
    StaleNodeError,
    StoreError,
    known_names,
)
from lazyrag.indexes.bm25 import BM25, Statistics
from lazyrag.indexes.parts import LexicalState
from lazyrag.models.embedding import CheckedEmbedder, length_of
from lazyrag.typing import SPARSE, Embedding, Embeddings, Metric, Ranking


class Reader:
    """Reads one Document's tree within a scope; builds what is asked for.

    Args:
        builder: Builds the tree.
        scope: A bound filter that every node must satisfy that leaves this reader: hits, parents, children, roots.
    """

    def __init__(self, builder: Builder, scope: Filter | None = None) -> None:
        self._builder = builder
        self._nodes = builder.nodes
        self._scope = scope

    @property
    def tree(self) -> Builder:
        """See `NodeSource.tree`."""
        return self._builder

    @property
    def scope(self) -> Filter | None:
        """The filter that every node satisfies which leaves this reader; None for no bound."""
        return self._scope

    def report(self) -> IngestReport | None:
        """What became of the files that may be seen; None before the first use."""
        return report_of(self._builder, None if self._scope is None else self._sees)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """What the builder says of failures names files that may be hidden here."""
        try:
            yield
        except IngestionError:
            if self._scope is None:
                raise
            msg = "Every file failed in a step of ingestion. The whole Document's last_report says which and why."
            raise IngestionError(msg) from None

    @property
    def schema(self) -> Schema:
        """The filterable fields."""
        return self._nodes.schema

    def narrowed(self, filters: FilterLike) -> Reader:
        """A reader whose scope is this one's and the filter's.

        Raises:
            ConfigError: If there is no condition in the filter: what was to be hidden would be seen.
        """
        bound = self.bind(filters)
        if bound is None or not has_condition(bound):
            msg = f"The filter to restrict a Document by is {filters!r}, which looks at no field. Give a condition."
            raise ConfigError(msg)
        return Reader(self._builder, both(self._scope, bound))

    def bind(self, filters: FilterLike | None) -> Filter | None:
        """A filter checked against the schema."""
        parsed = parse_filter(filters)
        return None if parsed is None else bind_filter(parsed, self.schema)

    def embedders(self, keys: Sequence[str] | None) -> list[CheckedEmbedder]:
        """The embedders of some keys; of all where keys is None.

        Raises:
            ConfigError: If there are none, or a key is not one of them.
        """
        known = self._builder.embedders
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

    def _group(self, name: str) -> LiveGroup:
        with self._asking():
            return self._builder.group(name)

    def _terms(self, name: str, analyser: str) -> LexicalState:
        with self._asking():
            return self._builder.terms_state(name, analyser)

    def _vectors(self, name: str, embed_key: str) -> LiveSpace:
        with self._asking():
            return self._builder.vectors(name, embed_key)

    def prepare(self, group: str, embed_keys: Sequence[str], target: str | None) -> None:
        """Build what a question will need, before it begins to read."""
        with self._asking():
            self._builder.group(group)
            for embed_key in embed_keys:
                self._builder.vectors(group, embed_key)
            if target is not None:
                self._builder.group(target)

    def statistics(self, group: str, analyser: str, terms: Sequence[str], model: BM25) -> Statistics:
        """What this Document's nodes of a group add to a query's BM25 statistics."""
        return self._terms(group, analyser).statistics(terms, model)

    def rank_terms(
        self,
        group: str,
        analyser: str,
        terms: Sequence[str],
        topk: int,
        filter: Filter | None,  # noqa: A002
        model: BM25,
        statistics: Statistics | None,
    ) -> Ranking:
        """The best nodes of a group by BM25, as (key, score); statistics None are this Document's own."""
        index = self._terms(group, analyser)
        return index.search(terms, topk, filter=both(self._scope, filter), model=model, statistics=statistics)

    def metric(self, group: str, embed_key: str) -> Metric | None:
        """What a group's vectors under an embed key are ranked by; None while there are none."""
        dimension = self._vectors(group, embed_key).dimension
        return metric_of(dimension) if dimension else None

    def rank_vectors(
        self,
        group: str,
        embed_key: str,
        query: Embedding,
        topk: int,
        filter: Filter | None,  # noqa: A002
        *,
        way: VectorWay = "exact",
    ) -> Ranking:
        """The best nodes of a group by their vectors' own metric, as (key, score); or what the store finds of them."""
        search = self._nodes.vector_search(way)
        target = self._vectors(group, embed_key)
        if not target.dimension:
            return []
        if length_of(query) != target.dimension:
            msg = (
                f"The query's embedding under {embed_key!r} is {_told(length_of(query))} and the nodes' are "
                f"{_told(target.dimension)}: the embed callable returned vectors of different lengths or kinds."
            )
            raise EmbeddingError(msg, embed_key=embed_key)
        live = self._group(group)
        wanted = both(self._scope, filter)
        queries: Embeddings = [query] if isinstance(query, dict) else query[None]
        where, tree, store = target.collection, self._builder.views.of_question().tree, self._nodes.vectors
        return live_hits(
            tree,
            live,
            where,
            topk,
            lambda depth: search(where, queries, depth, wanted)[0],
            instead=(lambda depth: store.search(where, queries, depth, wanted)[0]) if way == "native" else None,
        )

    def rank_text(
        self,
        group: str,
        analyser: str,
        terms: Sequence[str],
        topk: int,
        filter: Filter | None,  # noqa: A002
    ) -> Ranking:
        """The best nodes of a group by the segment store's own ranking of their texts, as (key, score)."""
        rank = self._nodes.text_search().search_text
        live, wanted = self._group(group), both(self._scope, filter)
        search = functools.partial(rank, live.collection, analyser, terms, filter=wanted)
        tree = self._builder.views.of_question().tree
        return live_hits(tree, live, live.collection, topk, search)

    def pages(self, group: str, filter: Filter | None, embed_key: str | None = None) -> Iterator[list[DocNode]]:  # noqa: A002
        """The nodes of a group that a filter lets through, in the documents' order; no page is empty.

        They are kept in memory for the next time, as far as they fit, see `NodeTables`. With an embed key only nodes
        that have a vector under it, each carrying that one.
        """
        built = self._group(group)
        space = self._vectors(group, embed_key) if embed_key is not None else None
        wanted = both(self._scope, filter)
        whole = self if self._scope is None else Reader(self._builder)
        kept = self._builder.tables.pages(self._builder.views.of_question(), built, embed_key, space, whole)
        pages = (
            self._read_pages(built, wanted, embed_key, space)
            if kept is None
            else (page.seen(wanted, None if self._scope is None else self) for page in kept)
        )
        return (page for page in pages if page)

    def _read_pages(
        self,
        built: LiveGroup,
        wanted: Filter | None,
        embed_key: str | None = None,
        space: LiveSpace | None = None,
    ) -> Iterator[list[DocNode]]:
        for page in self._nodes.pages(self._builder.views.of_question(), built, PAGE):
            segments = [one for one in page if wanted is None or matches(wanted, one.fields)]
            if space is None or embed_key is None:
                yield [DocNode.from_segment(one, self) for one in segments]
            else:
                rows = self._nodes.vectors.get(space.collection, [one.key for one in segments])
                vectors = {row.key: row.vector for row in rows}
                yield [
                    DocNode.from_segment(one, self, embeddings={embed_key: vectors[one.key]})
                    for one in segments
                    if one.key in vectors
                ]

    def walk(self, group: str, filter: Filter | None) -> Iterator[DocNode]:  # noqa: A002
        """The nodes of a group that a filter lets through, one by one, in the documents' order."""
        pages = self._read_pages(self._group(group), both(self._scope, filter))
        return (node for page in pages for node in page)

    def nodes(self, group: str, ranking: Ranking, embed_key: str | None = None) -> list[DocNode]:
        """The nodes of a ranking, with their scores, and with the embed key that they were found by."""
        built = self._group(group)
        found = {one.key: one for one in self._nodes.segments.get(built.collection, [key for key, _ in ranking])}
        if len(found) < len(ranking):
            msg = f"The store has {len(found)} of {len(ranking)} nodes of {group!r} that were found. Run verify()."
            raise StoreError(msg, collection=built.collection)
        return [
            DocNode.from_segment(found[key], self, score=score, embed_key=embed_key)
            for key, score in ranking
            if self._sees(found[key])
        ]

    def held(self, uid: str) -> list[Segment]:
        """The live nodes with a uid that may be seen, of every group that is built; at most one of each."""
        view = self._builder.views.of_question()
        keys = {
            group.collection: [store_key(uid, build.number)]
            for group in view.groups.values()
            for build in group.builds.values()
            if uid in build.uids
        }
        found = [one for collection, own in keys.items() for one in self._nodes.segments.get(collection, own)]
        return [one for one in found if self._sees(one)]

    def size(self, group: str) -> int:
        """How many live nodes a group has, seen here or not."""
        return sum(build.size for build in self._group(group).builds.values())

    def line(self, group: str) -> list[str]:
        """A group and those above it, the root group last."""
        return self._builder.graph.line(group)

    def related(self, nodes: Iterable[DocNode], target: str) -> list[DocNode]:
        """The nodes of another group that stand above or below nodes, or below an ancestor that both groups share.

        From each node up to the lowest group above both, from there down to all its nodes of the target group. Each is
        named once, where it was first found, with the score of the node that led there: the best one, if nodes come
        best first.
        """
        listed = list(nodes)

        def read() -> list[DocNode]:
            relate = self.relatives().relating(target)
            found: dict[str, DocNode] = {}
            for node in listed:
                for segment in relate(node):
                    found.setdefault(segment.uid, DocNode.from_segment(segment, self, score=node.score))
            return list(found.values())

        return consistent_read([self._builder], read)

    def relatives(self) -> Relatives:
        """The ways from nodes to others within the scope, for one consistent read."""
        return Relatives(self._builder, self._group, self._sees)

    def parent(self, segment: Segment) -> DocNode | None:
        """See `NodeSource.parent`."""
        found = consistent_read([self._builder], functools.partial(self._parent, segment))
        return None if found is None else self.show(found)

    def children(self, segment: Segment) -> dict[str, list[DocNode]]:
        """See `NodeSource.children`."""
        return consistent_read([self._builder], lambda: self._children(segment))

    def _children(self, segment: Segment) -> dict[str, list[DocNode]]:
        view = self._builder.views.of_question()
        self._nodes.followed(view, segment)
        below = [group for group in view.groups.values() if group.parent == segment.group]
        return {
            group.name: [
                DocNode.from_segment(one, self) for one in self._nodes.children(view, segment, group) if self._sees(one)
            ]
            for group in sorted(below, key=lambda group: group.name)
        }

    def root(self, segment: Segment) -> DocNode:
        """See `NodeSource.root`."""
        return self.show(self._root(segment))

    def source(self, segment: Segment) -> Segment | None:
        """See `NodeSource.source`."""
        above: Segment | None = segment
        while above is not None and above.span is not None:
            above = consistent_read([self._builder], functools.partial(self._parent, above))
        return above

    def _parent(self, segment: Segment) -> Segment | None:
        return self._nodes.parent(self._builder.views.of_question(), segment)

    def _root(self, segment: Segment) -> Segment:
        return consistent_read([self._builder], lambda: self._nodes.root(self._builder.views.of_question(), segment))

    def file_metadata(self, segment: Segment) -> Mapping[str, Any]:
        """See `NodeSource.file_metadata`."""
        return ReadOnly(copy_value(dict(self._root(segment).metadata)))

    def embeddings(self, segment: Segment) -> Mapping[str, Embedding]:
        """See `NodeSource.embeddings`."""
        return consistent_read([self._builder], lambda: self._embeddings(segment))

    def vectors_of(self, segments: Sequence[Segment], embed_key: str) -> list[Embedding | None]:
        """The stored vectors of nodes, one look at the store for each of their groups; None where there is none."""

        def read() -> list[Embedding | None]:
            found: dict[tuple[str, str], Embedding] = {}
            for name in dict.fromkeys(one.group for one in segments):
                space = self._live_space(name, embed_key)
                keys = [one.key for one in segments if one.group == name]
                if space is not None and space.dimension:
                    found |= {(name, row.key): row.vector for row in self._nodes.vectors.get(space.collection, keys)}
            return [found.get((one.group, one.key)) for one in segments]

        return consistent_read([self._builder], read)

    def _embeddings(self, segment: Segment) -> dict[str, Embedding]:
        found = {}
        for embed_key in self._builder.embedders:
            space = self._live_space(segment.group, embed_key)
            vector = self._nodes.vector_of(segment, space) if space is not None else None
            if vector is not None:
                found[embed_key] = vector
        return found

    def _live_space(self, name: str, embed_key: str) -> LiveSpace | None:
        """A group's vectors under an embed key, if they are built."""
        group = self._builder.views.of_question().groups.get(name)
        key = self._builder.targets.space_key(Step(name, embed_key=embed_key))
        return group.spaces.get(key) if group is not None and key is not None else None

    def _sees(self, segment: Segment) -> bool:
        return self._scope is None or matches(self._scope, segment.fields)

    def show(self, segment: Segment) -> DocNode:
        """See `NodeSource.show`."""
        if not self._sees(segment):
            msg = f"The {segment.group} node of {segment.path} lies outside of what may be seen here ({self._scope!r})."
            raise StaleNodeError(msg)
        return DocNode.from_segment(segment, self)


def _told(dimension: int) -> str:
    return "sparse" if dimension == SPARSE else f"of {dimension} numbers"
