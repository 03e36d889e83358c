"""The live nodes of a Document, in its two stores. The only module that reads from both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

from lazyrag.data.fields import Schema
from lazyrag.data.filters import Filter
from lazyrag.data.segment import LAZY_ROOT_NAME, Segment, child_uids, store_key
from lazyrag.document.ledger.tree import Build, LiveGroup, LiveSpace, View
from lazyrag.errors import StaleNodeError, StoreError, UnsupportedError
from lazyrag.stores.protocol import Approximate, NativeText, NativeVectors, SegmentStore, VectorSchema, VectorStore
from lazyrag.types import SPARSE, Embedding, Embeddings, Metric, Ranking

_FIRST_CHILDREN = 32

SearchMode: TypeAlias = Literal["exact", "approximate", "native"]
"""How vectors are searched: exactly, approximately, or as the store does it by itself."""


class NodeStore:
    """Segments and vectors by group and document, as a view of the tree tells them.

    Args:
        segments: An open segment store.
        vectors: An open vector store.
        schema: The filterable fields.
    """

    def __init__(self, segments: SegmentStore, vectors: VectorStore, schema: Schema) -> None:
        self.segments = segments
        self.vectors = vectors
        self.schema = schema

    def of_build(self, collection: str, build: Build) -> list[Segment]:
        """The nodes of a build, in order.

        Raises:
            StoreError: If some are missing in the store.
        """
        found = self.segments.get(collection, build.keys)
        _check_number(build, len(found))
        return found

    def of_builds(self, collection: str, builds: Sequence[Build]) -> list[list[Segment]]:
        """The nodes of several builds."""
        keys = [key for build in builds for key in build.keys]
        found = {segment.key: segment for segment in self.segments.get(collection, keys)}
        nodes = []
        for build in builds:
            own = [found[key] for key in build.keys if key in found]
            _check_number(build, len(own))
            nodes.append(own)
        return nodes

    def of_document(self, group: LiveGroup, document: str) -> list[Segment]:
        """A document's nodes of a group, in order; [] where it has none."""
        build = group.builds.get(document)
        return self.of_build(group.collection, build) if build is not None else []

    def pages(self, view: View, group: LiveGroup, size: int) -> Iterator[list[Segment]]:
        """All nodes of a group, document by document, in pages of about that many."""
        builds: list[Build] = []
        count = 0
        for build in view.tree.builds(group):
            builds.append(build)
            count += len(build.uids)
            if count >= size:
                yield [segment for own in self.of_builds(group.collection, builds) for segment in own]
                builds, count = [], 0
        if builds:
            yield [segment for own in self.of_builds(group.collection, builds) for segment in own]

    def parent(self, view: View, segment: Segment) -> Segment | None:
        """The live parent of a node; None for a root.

        Raises:
            StaleNodeError: If the parent is not in the live tree any more.
        """
        if segment.parent is None:
            return None
        own = self.followed(view, segment)
        above = view.groups.get(own.parent) if own.parent is not None else None
        found = self._live(above, segment.document_id, [segment.parent]) if above is not None else []
        if not found:
            raise _stale(segment)
        return found[0]

    def parents(self, view: View, segments: Sequence[Segment]) -> dict[str, Segment]:
        """The live parents of nodes by their uids, as far as they are there: one look at the store for each group."""
        wanted: dict[str, dict[str, str]] = {}
        for one in segments:
            own = view.groups.get(one.group)
            above = view.groups.get(own.parent) if own is not None and own.parent is not None else None
            build = above.builds.get(one.document_id) if above is not None else None
            if above is not None and build is not None and one.parent is not None:
                wanted.setdefault(above.collection, {})[one.parent] = store_key(one.parent, build.number)
        looks = (self.segments.get(collection, list(keys.values())) for collection, keys in wanted.items())
        return {found.uid: found for look in looks for found in look}

    def root(self, view: View, segment: Segment) -> Segment:
        """The live root of a node's document."""
        if segment.group == LAZY_ROOT_NAME:
            return segment
        roots = view.groups.get(LAZY_ROOT_NAME)
        found = self._live(roots, segment.document_id, [segment.document_id]) if roots is not None else []
        if not found:
            msg = f"Document {segment.path!r} is gone. Retrieve the node again."
            raise StaleNodeError(msg)
        # Builds are numbered as they are begun, so that a later root is not what the node was made of. Its group may
        # have been built anew meanwhile: that does not concern the root.
        if found[0].build > segment.build:
            self.followed(view, segment)
        return found[0]

    def children(self, view: View, segment: Segment, group: LiveGroup) -> list[Segment]:
        """What a child group made of a node, in order.

        Raises:
            StaleNodeError: If the node is not in the live tree any more.
        """
        return [child for page in self.child_pages(view, segment, group) for child in page]

    def child_pages(self, view: View, segment: Segment, group: LiveGroup) -> Iterator[list[Segment]]:
        """The same in pages, each larger than the one before.

        Ordinals begin at 1 without a gap, so the uids are known: they are asked for until one is missing.
        """
        self.followed(view, segment)
        first, size = 1, _FIRST_CHILDREN
        while True:
            uids = child_uids(segment.uid, group.name, range(first, first + size))
            page = self._live(group, segment.document_id, uids)
            yield page
            if len(page) < size:
                return
            first, size = first + size, 4 * size

    def ordinal(self, view: View, segment: Segment) -> tuple[Build, int]:
        """The live build that a node stands in, and which of its nodes it is, from 0.

        Raises:
            StaleNodeError: If the node is not in the live tree any more.
        """
        build = self.followed(view, segment).builds[segment.document_id]
        at = segment.number - 1  # where it stood when it was read; it may have moved since
        if at < len(build.uids) and build.uids[at] == segment.uid:
            return build, at
        if segment.uid not in build.uids:
            raise _stale(segment)
        return build, build.uids.index(segment.uid)

    def stretches(self, view: View, wanted: Sequence[tuple[Build, int, int]]) -> list[list[Segment]]:
        """The nodes of builds, each from one ordinal to another, from 0, both included.

        Raises:
            StoreError: If some are missing in the store.
        """
        keys = [
            (build, [store_key(uid, build.number) for uid in build.uids[first : last + 1]])
            for build, first, last in wanted
        ]
        found: dict[str, Segment] = {}
        for name in dict.fromkeys(build.group for build, _ in keys):
            own = [key for build, some in keys if build.group == name for key in some]
            found |= {one.key: one for one in self.segments.get(view.groups[name].collection, own)}
        nodes = [[found[key] for key in some if key in found] for _, some in keys]
        for (build, some), there in zip(keys, nodes, strict=True):
            _check_number(build, len(there) + len(build.uids) - len(some))
        return nodes

    def create_vectors(self, collection: str, dimension: int, embed_key: str) -> None:
        """Make a collection of an embed key's vectors ready: `SPARSE` ones, or dense ones of that length.

        Raises:
            UnsupportedError: If the store keeps no sparse vectors.
        """
        schema = VectorSchema(dimension, metric_of(dimension), self.schema, embed_key=embed_key)
        self.vectors.create(collection, schema)

    def vector_of(self, segment: Segment, space: LiveSpace) -> Embedding | None:
        """A node's stored vector in a space."""
        rows = self.vectors.get(space.collection, [segment.key]) if space.dimension else []
        return rows[0].vector if rows else None

    def vector_search(self, mode: SearchMode) -> Callable[[str, Embeddings, int, Filter | None], list[Ranking]]:
        """The vector store's exact search, its approximate one, or its own as it comes.

        Raises:
            UnsupportedError: If it has no approximate one.
        """
        store = self.vectors
        if mode == "native" and "native vectors" in store.features and isinstance(store, NativeVectors):
            return store.search_natively
        if mode != "approximate":
            return store.search
        if "approximate" not in store.features or not isinstance(store, Approximate):
            msg = (
                f"index='ann' needs a vector store that searches approximately, and {type(store).__name__} does not. "
                "Use index='default', which is exact, or keep the vectors in the map store."
            )
            raise UnsupportedError(msg, store=type(store).__name__)
        return store.search_approximately

    def text_search(self) -> NativeText:
        """The segment store that ranks by text itself.

        Raises:
            UnsupportedError: If it does not.
        """
        store = self.segments
        if "native text" not in store.features or not isinstance(store, NativeText):
            msg = (
                "index='native' is a search server's own ranking by text, and the segment store "
                f"{type(store).__name__} has none. Use index='default', or the segment store 'opensearch'."
            )
            raise UnsupportedError(msg, store=type(store).__name__)
        return store

    def followed(self, view: View, segment: Segment) -> LiveGroup:
        """The group of a node, if the live tree holds the node or an equal one in its place.

        Raises:
            StaleNodeError: If it does not.
        """
        group = view.groups.get(segment.group)
        build = group.builds.get(segment.document_id) if group is not None else None
        if group is None or build is None:
            raise _stale(segment)
        if build.number != segment.build:
            live = self._live(group, segment.document_id, [segment.uid])
            if not live or (live[0].content, live[0].span) != (segment.content, segment.span):
                raise _stale(segment)
        return group

    def _live(self, group: LiveGroup, document: str, uids: Sequence[str]) -> list[Segment]:
        build = group.builds.get(document)
        if build is None:
            return []
        return self.segments.get(group.collection, [store_key(uid, build.number) for uid in uids])


def metric_of(dimension: int) -> Metric:
    """What a Document's vectors of a dimension are ranked by: dense ones by cosine, sparse ones by inner product."""
    return "ip" if dimension == SPARSE else "cosine"


def _check_number(build: Build, found: int) -> None:
    if found != len(build.uids):
        msg = (
            f"The store has {found} of {len(build.uids)} nodes of group {build.group!r} of document {build.document}. "
            "Run verify() to see what else is missing, and repair() to make it anew."
        )
        raise StoreError(msg)


def _stale(segment: Segment) -> StaleNodeError:
    msg = (
        f"Node {segment.uid} of group {segment.group!r} does not stand in the tree any more: its group, one above it "
        "or its document was built anew. Retrieve the node again."
    )
    return StaleNodeError(msg)
