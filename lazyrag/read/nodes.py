"""The live nodes of a Document in its two stores. The only module that reads both."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from lazyrag.data.fields import Schema
from lazyrag.data.filters import Filter
from lazyrag.data.node import DocNode, NodeSource
from lazyrag.data.segment import Segment, store_key
from lazyrag.errors import ConfigError, StaleNodeError, StoreError, UnsupportedError
from lazyrag.indexes.postings import RowBlock
from lazyrag.ledger.tree import Build, LiveGroup, LiveIndex, View
from lazyrag.storage.database import batches_reaching
from lazyrag.stores.protocol import (
    EXACT_ROWS,
    Approximate,
    ExactInScope,
    ExactWhenSmall,
    Feature,
    NativeText,
    NativeVectors,
    RanksInScope,
    Refreshable,
    SearchPlace,
    SegmentStore,
    VectorSchema,
    VectorStore,
)
from lazyrag.stores.sqlite import MapFileSegmentStore, StoreFile
from lazyrag.stores.sqlite_vectors import MapFileVectorStore
from lazyrag.types import SPARSE, Embedding, Embeddings, Int64Array, Metric, Ranking

T = TypeVar("T")

SearchMode: TypeAlias = Literal["exact", "approximate", "native"]
"""Vector search: exact, approximate, or the store's native one."""

VectorSearch: TypeAlias = Callable[[str, Embeddings, int, "Filter | None"], list[Ranking]]
"""The search method of a vector store: a collection, queries, top-k and a filter."""


class NodeStore:
    """Segments and vectors by build.

    Args:
        segments: An open segment store.
        vectors: An open vector store.
        schema: The filterable fields.
        search: Where queries are ranked; None: where each store does it by default.
        exact_rows: How many nodes of a group an exact search may read from a server.

    Raises:
        ConfigError: If queries are to be ranked on a server, and neither store does it.
    """

    def __init__(
        self,
        segments: SegmentStore,
        vectors: VectorStore,
        schema: Schema,
        search: SearchPlace | None = None,
        *,
        exact_rows: int = EXACT_ROWS,
    ) -> None:
        self.segments = segments
        self.vectors = vectors
        self.schema = schema
        # the store files that they are in, if they are
        self.segments_file = segments.file if isinstance(segments, MapFileSegmentStore) else None
        self.vectors_file = vectors.file if isinstance(vectors, MapFileVectorStore) else None
        self.exact_rows = exact_rows
        self.search = search
        # whether an exact search of texts, or of vectors, reads all rows of a group from a server
        self.downloads_texts = (
            _is_on_server(segments) if self.segments_file is None else self.segments_file.is_server
        )
        self.downloads_vectors = self.vectors_file is not None and self.vectors_file.is_server
        if search == "server" and not (self.ranks_text or self.ranks_vectors):
            names = " and ".join(dict.fromkeys([type(segments).__name__, type(vectors).__name__]))
            raise ConfigError(
                f"store_conf['search'] must be 'exact' for {names}, which do not rank on a server;"
                " got 'server'. Leave it out, or use a store that does, such as opensearch."
            )
        # before a write; of the program's write in progress
        self.mark_vectors: Callable[[], object] | None = None

    @property
    def vectors_to_write(self) -> VectorStore:
        """The vector store, marked as unflushed until the end of the write in progress."""
        if self.mark_vectors is not None:
            self.mark_vectors()
        return self.vectors

    def of_build(self, collection: str, build: Build) -> list[Segment]:
        """The nodes of a build, in order.

        Raises:
            StoreError: If some are missing in the store.
        """
        segments = self.segments.get(collection, build.keys)
        ensure_complete(build, len(segments))
        return segments

    def of_builds(
        self, collection: str, builds: Sequence[Build], uids: Collection[str] | None = None
    ) -> list[list[Segment]]:
        """The nodes of several builds; with uids only these."""
        keys_of_builds = [
            build.keys if uids is None else _some_keys(build, uids) for build in builds
        ]
        all_keys = list(itertools.chain.from_iterable(keys_of_builds))
        by_key = {segment.key: segment for segment in self.segments.get(collection, all_keys)}
        nodes = []
        for build, keys in zip(builds, keys_of_builds, strict=True):
            segments = [by_key[key] for key in keys if key in by_key]
            ensure_complete(build, len(build.uids) - len(keys) + len(segments))
            nodes.append(segments)
        return nodes

    def create_vectors(self, collection: str, dimension: int, embed_key: str) -> None:
        """Create a collection for vectors of an embed key: `SPARSE` ones, or dense ones of that
        length.

        Raises:
            UnsupportedError: If the store has no sparse vectors.
        """
        schema = VectorSchema(dimension, metric_of(dimension), self.schema, embed_key=embed_key)
        self.vectors_to_write.create(collection, schema)

    def vector_search(self, mode: SearchMode) -> VectorSearch:
        """The vector store's exact, approximate or native search.

        Raises:
            UnsupportedError: If it has no approximate search.
        """
        store = self.vectors
        if (
            mode == "native"
            and "native vectors" in store.features
            and isinstance(store, NativeVectors)
        ):
            return store.search_natively
        if mode != "approximate":
            return store.search
        if "approximate" not in store.features or not isinstance(store, Approximate):
            raise UnsupportedError(
                "index='ann' needs a vector store that searches approximately, and"
                f" {type(store).__name__} does not. Use index='exact', or keep"
                " the vectors in the map store.",
                store=type(store).__name__,
            )
        return store.search_approximately

    def nearest(
        self,
        mode: SearchMode,
        view: View,
        verdicts: Verdicts,
        group: LiveGroup,
        collection: str,
        queries: Embeddings,
        topk: int,
        filter: Filter | None,  # noqa: A002
    ) -> Ranking:
        """The live nodes of a group that are nearest to the first query.

        Raises:
            UnsupportedError: If the vector store has no approximate search, or its own one cannot
                rank the collection or evaluate the filter.
        """

        def rank(search: VectorSearch, depth: int) -> Ranking:
            return search(collection, queries, depth, filter)[0]

        make_searchable(self.vectors, view, collection)
        may_miss = mode == "native" and not self.reaches_all
        return live_hits(
            verdicts,
            group,
            collection,
            topk,
            partial(rank, self.vector_search(mode)),
            instead=partial(rank, self.vectors.search) if may_miss else None,
        )

    @property
    def reaches_all(self) -> bool:
        """Whether the vector store's own search finds as many rows as there are."""
        return isinstance(self.vectors, MapFileVectorStore)

    @property
    def scopes_vectors(self) -> bool:
        """Whether the vector store's own search of a scope is exact, and not influenced by rows
        outside.
        """
        return self.reaches_all and "native vectors" in self.vectors.features

    def scopes_texts(self, ledger: StoreFile) -> bool:
        """Whether the segment store's own search of a scope is not influenced by rows outside, nor
        by those that are not live.
        """
        return isinstance(self.segments, RanksInScope) and self.segments_file is ledger

    def require_exact(self, collection: str, scope: Filter) -> None:
        """Refuse an approximate search, in which hidden rows decide which visible ones are found.

        Raises:
            ConfigError: If the store's search of the rows in scope is not exact.
        """
        store = self.vectors
        if "exact" in store.features:
            return
        if isinstance(store, ExactInScope):
            is_small = store.is_exact(collection, scope)
        else:
            is_small = (
                isinstance(store, ExactWhenSmall) and store.count(collection) <= store.exact_rows
            )
        if not is_small:
            raise ConfigError(
                f"A restricted Document needs exact vector search, and {type(store).__name__}"
                " searches approximately: hidden rows would decide which visible ones are found."
                " Keep the vectors in the map store, raise exact_rows of chroma to the number of"
                " visible rows, or choose the index FLAT of milvus."
            )

    def ranking_store(self, *, vectors: bool) -> str:
        """Name the store that ranks texts or vectors itself; "" if it does not."""
        store = self.vectors if vectors else self.segments
        feature: Feature = "native vectors" if vectors else "native text"
        return type(store).__name__ if feature in store.features else ""

    def text_search(self) -> NativeText:
        """The segment store, if it has a full-text search of its own.

        Raises:
            UnsupportedError: If it has none.
        """
        store = self.segments
        if "native text" not in store.features or not isinstance(store, NativeText):
            raise UnsupportedError(
                "index='server' is a search server's own ranking by text, and the segment store"
                f" {type(store).__name__} has none. Use index='exact', or the segment store"
                " 'opensearch'.",
                store=type(store).__name__,
            )
        return store

    @cached_property
    def ranks_text(self) -> bool:
        """Whether the segment store ranks keyword searches by default."""
        return _ranks(self.segments, "native text", self.search)

    @cached_property
    def ranks_vectors(self) -> bool:
        """Whether the vector store's own search ranks by default."""
        return _ranks(self.vectors, "native vectors", self.search)

    def require_few(self, rows: int, group: str) -> None:
        """Refuse an exact search that would read too many nodes of a group from a server.

        Raises:
            ConfigError: If they are more than ``exact_rows``.
        """
        if rows > self.exact_rows:
            raise ConfigError(
                f"An exact search of {group!r} would read {rows:,} nodes from a server, more than"
                f" store_conf['exact_rows']={self.exact_rows:,}. Use index='server' where the store"
                " has it, or raise exact_rows."
            )


def _is_on_server(store: SegmentStore) -> bool:
    location = getattr(store, "location", None)
    return location is not None and location.is_server


def _ranks(store: SegmentStore | VectorStore, feature: Feature, search: SearchPlace | None) -> bool:
    """Whether queries are ranked by a store's own search."""
    if feature not in store.features or search == "exact":
        return False
    return search == "server" or "server" in store.features


def metric_of(dimension: int) -> Metric:
    """The metric for vectors of a dimension: cosine for dense ones, the inner product for sparse
    ones.
    """
    return "ip" if dimension == SPARSE else "cosine"


def _some_keys(build: Build, uids: Collection[str]) -> list[str]:
    """The keys of those nodes of a build that have one of the uids."""
    return [store_key(uid, build.number) for uid in build.uids if uid in uids]


def ensure_complete(build: Build, count: int) -> None:
    """Raise a StoreError unless so many of a build's nodes are all of them."""
    if count != len(build.uids):
        raise StoreError(
            f"The store has {count} of {len(build.uids)} nodes of group {build.group!r} of document"
            f" {build.document}."
            " Run docs.maintenance.verify() to see what else is missing, and repair() to"
            " rebuild it."
        )


def stale_error(segment: Segment) -> StaleNodeError:
    """The error for a node that is gone or out of scope: nobody learns which."""
    return StaleNodeError(
        f"Node {segment.uid} of group {segment.group!r} is not in the tree: its group, one above it"
        " or its document was rebuilt, or a restricted Document hides it. Retrieve the node again."
    )


# Factors for the next depth. With half of the hits live or more, the missing ones are near; with
# less, a document was changed and its former nodes may be all of the nearest, or several versions
# are stored.
_DEEPER = 4
_FAR_DEEPER = 16

Verdicts: TypeAlias = Callable[[list[int]], Mapping[int, bool]]
"""Whether some builds are live, by number; see `lazyrag.ledger.ledger.Ledger.verdicts`."""

Search: TypeAlias = Callable[[int], Ranking]
"""A store's best rows, so many."""


def make_searchable(store: object, view: View, collection: str) -> None:
    """Refresh a collection once per live state, so that searches find what other programs wrote."""
    seen = view.handles.setdefault("searchable", set())
    if isinstance(store, Refreshable) and collection not in seen:
        store.refresh(collection)
    seen.add(collection)


def live_hits(
    verdicts: Verdicts,
    group: LiveGroup,
    collection: str,
    topk: int,
    search: Search,
    *,
    instead: Search | None = None,
) -> Ranking:
    """Filter store hits to live builds, over-fetching as needed.

    Args:
        verdicts: Tells which builds are live.
        group: The group that is ranked.
        collection: Of its nodes, or of their vectors.
        topk: Number of hits.
        search: The store's search.
        instead: A search that reaches all rows, for a ``search`` that may not: used if hits that
            are not live leave too few.

    Raises:
        StoreError: If the store contradicts the ledger.
    """
    depth = topk
    while True:
        try:
            hits = search(depth)
        except ConfigError as exc:  # the query is as the ledger says
            raise StoreError(
                f"What is stored of {group.name!r} is not what was written ({exc})."
                " Run docs.maintenance.verify()"
                " and repair().",
                collection=collection,
            ) from exc
        builds = [int(key.rpartition("-")[2]) for key, _ in hits]  # `key_build`, inline for speed
        is_live = verdicts(builds)
        live = [hit for hit, build in zip(hits, builds, strict=True) if is_live[build]]
        if len(live) >= topk or len(live) == len(hits) < depth:
            return live[:topk]
        if len(hits) < depth:
            return (
                live if instead is None else live_hits(verdicts, group, collection, topk, instead)
            )
        depth *= _DEEPER if 2 * len(live) >= topk else _FAR_DEEPER


PAGE = 100_000  # nodes that a user's own similarity function sees at once
_MAX_BYTES = 512 * 2**20  # of all tables, roughly; a larger group is read for each query
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
        nodes: n nodes of a reader without a scope.
        embeddings: The n mappings that they carry; None if they carry none.
        rows: Their keys and fields.
    """

    nodes: list[DocNode]
    embeddings: list[Carried] | None
    rows: RowBlock

    def seen(self, filter: Filter | None, reader: NodeSource | None) -> list[DocNode]:  # noqa: A002
        """The nodes that match a bound filter.

        Args:
            filter: None matches all.
            reader: Their source; None for the one without a scope.
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

    ``embeddings`` are those that they carry, ``lacking`` is the number of nodes without a vector,
    which are left out, ``size`` is in bytes, roughly.
    """

    nodes: list[DocNode]
    embeddings: list[Carried] | None
    lacking: int
    size: int


@dataclass(frozen=True, slots=True)
class _Table:
    """The nodes of a group in one state.

    Args:
        numbers: Of its live builds, ascending.
        changes: The ledger's counter in that state, if some nodes lack a vector that they may get
            later; else -1.
        parts: The nodes by build.
        pages: The same nodes in pages; None if they do not fit.
        size: Its size in bytes, roughly.
    """

    numbers: Int64Array
    changes: int
    parts: Mapping[int, _Part]
    pages: list[NodePage] | None
    size: int

    def is_of(self, view: View, group: LiveGroup) -> bool:
        """Whether it is valid for a view of a group."""
        numbers = view.tree.live_numbers(group)
        same = self.numbers is numbers or np.array_equal(self.numbers, numbers)
        return same and self.changes in (-1, view.tree.changes)


class NodeCache:
    """Keeps the nodes of the groups that similarity functions rank, as far as they fit into memory.

    A build never changes, so a table is valid as long as the same builds live. After a change the
    builds that still live are taken over, and only the others are read.

    Args:
        nodes: The stores.
    """

    def __init__(self, nodes: NodeStore) -> None:
        self._nodes = nodes
        self._lock = threading.Lock()  # its holder waits for nothing but a store
        # by group and index; the last used is the last
        self._tables: dict[tuple[int, int], _Table] = {}

    def pages(
        self,
        view: View,
        group: LiveGroup,
        embed_key: str | None,
        index: LiveIndex | None,
        reader: NodeSource,
    ) -> list[NodePage] | None:
        """The nodes of a group in pages, in the documents' order; None if they do not fit.

        Args:
            view: The live state.
            group: The group.
            embed_key: The key whose vectors they carry; nodes without one are left out. None for no
                vectors.
            index: The vectors under this key.
            reader: Their source, without a scope.

        Raises:
            StoreError: If some are missing in the store.
        """
        key = group.id, 0 if index is None else index.id
        with self._lock:
            table = self._tables.pop(key, None)
            if table is None or not table.is_of(view, group):
                before = {} if table is None else table.parts
                del table  # what is not taken over can be freed while the rest is read
                read_before: dict[int, _Part] = {}
                for (number, _), other in self._tables.items():
                    if number == group.id:
                        read_before |= other.parts
                carried = None if embed_key is None or index is None else (embed_key, index)

                def read(builds: list[Build]) -> list[_Part]:
                    return self._read(group, builds, read_before, carried, reader)

                table = self._table(view, group, before, read)
                self._make_room(view, table.size)
            self._tables[key] = table
            return table.pages

    def _table(
        self,
        view: View,
        group: LiveGroup,
        before: Mapping[int, _Part],
        read: Callable[[list[Build]], list[_Part]],
    ) -> _Table:
        """The table of a group, which takes over parts of an earlier one."""
        numbers = view.tree.live_numbers(group)
        builds = list(view.tree.builds(group))
        parts = {build.number: before[build.number] for build in builds if build.number in before}
        size = self._read_missing(builds, parts, read)
        if size > _MAX_BYTES:
            return _Table(numbers, -1, {}, None, 0)
        pages = [
            _page([parts[build.number] for build in batch])
            for batch in _build_batches(builds, PAGE)
        ]
        complete = {number: part for number, part in parts.items() if not part.lacking}
        changes = -1 if len(complete) == len(parts) else view.tree.changes
        return _Table(numbers, changes, complete, [page for page in pages if page.nodes], size)

    def _read_missing(
        self,
        builds: Sequence[Build],
        parts: dict[int, _Part],
        read: Callable[[list[Build]], list[_Part]],
    ) -> int:
        """Add the parts that are missing, as far as they fit, and return the size of all."""
        size = sum(build.size for build in builds) * _NODE_BYTES
        unread = [build for build in builds if build.number not in parts]
        for batch in _build_batches(unread, _READ_AT_ONCE):
            if size > _MAX_BYTES:
                break
            parts.update(zip([build.number for build in batch], read(batch), strict=True))
            size = max(size, sum(part.size for part in parts.values()))
        return size

    def _read(
        self,
        group: LiveGroup,
        builds: list[Build],
        read_before: Mapping[int, _Part],
        carried: tuple[str, LiveIndex] | None,
        reader: NodeSource,
    ) -> list[_Part]:
        """The nodes of some builds; ``read_before`` are those of the group with other vectors or
        none.
        """
        missing = [build for build in builds if build.number not in read_before]
        stored = iter(self._nodes.of_builds(group.collection, missing))
        segments_of_builds = []
        for build in builds:
            part = read_before.get(build.number)
            segments_of_builds.append(
                next(stored) if part is None else [node.segment for node in part.nodes]
            )
        if carried is None:
            return [_bare_part(segments, reader) for segments in segments_of_builds]
        embed_key, index = carried
        keys = [segment.key for segment in itertools.chain.from_iterable(segments_of_builds)]
        rows = self._nodes.vectors.get(index.collection, keys) if index.dimension else []
        vectors = {row.key: row.vector for row in rows}
        return [
            _embedded_part(segments, reader, embed_key, vectors) for segments in segments_of_builds
        ]

    def _make_room(self, view: View, size: int) -> None:
        """Drop the tables of groups that are not live, then the least recently used ones."""
        live = {group.id for group in view.tree.groups.values()}
        self._tables = {key: table for key, table in self._tables.items() if key[0] in live}
        while (
            self._tables and size + sum(table.size for table in self._tables.values()) > _MAX_BYTES
        ):
            del self._tables[next(iter(self._tables))]


def _build_batches(builds: Iterable[Build], size: int) -> Iterator[list[Build]]:
    """Builds with about so many nodes together."""
    return batches_reaching(builds, lambda build: build.size, size)


def _bare_part(segments: list[Segment], reader: NodeSource) -> _Part:
    """The nodes of a build, without vectors."""
    nodes = [DocNode.from_segment(segment, reader) for segment in segments]
    return _Part(nodes, None, 0, sum(map(_size_of, segments)))


def _embedded_part(
    segments: list[Segment], reader: NodeSource, embed_key: str, vectors: Mapping[str, Embedding]
) -> _Part:
    """Those nodes of a build that have a vector, with it."""
    nodes = []
    carried: list[Carried] = []
    size = 0
    for segment in segments:
        vector = vectors.get(segment.key)
        if vector is not None:
            carried.append({embed_key: vector})
            nodes.append(DocNode.from_segment(segment, reader, embeddings=carried[-1]))
            size += _size_of(segment) + _bytes_of(vector)
    return _Part(nodes, carried, len(segments) - len(nodes), size)


def _page(parts: list[_Part]) -> NodePage:
    nodes = []
    embeddings: list[Carried] = []
    for part in parts:
        nodes += part.nodes
        embeddings += part.embeddings or ()
    segments = [node.segment for node in nodes]
    rows = RowBlock.of(
        [segment.key for segment in segments], [segment.fields for segment in segments]
    )
    return NodePage(nodes, embeddings or None, rows)


def _bytes_of(vector: Embedding) -> int:
    return _VECTOR_BYTES + (
        _WEIGHT_BYTES * len(vector) if isinstance(vector, dict) else vector.nbytes
    )


def _size_of(segment: Segment) -> int:
    """Approximate size of a node in bytes, with the copy of its metadata that reading makes."""
    content = segment.content if isinstance(segment.content, str) else repr(segment.content)
    return (
        _NODE_BYTES
        + sys.getsizeof(content)
        + (8 * len(repr(segment.metadata)) if segment.metadata else 0)
    )
