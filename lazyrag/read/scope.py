"""A Document within a scope, as its nodes and retrievers see it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, SupportsIndex, TypeAlias, TypeVar, cast

from lazyrag.data.fields import Schema
from lazyrag.data.filters import (
    Filter,
    FilterLike,
    bind_filter,
    both,
    field_names,
    matches,
    parse_filter,
)
from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY, LAZY_ROOT_NAME, ReadOnly, Segment, copy_value
from lazyrag.errors import ConfigError, IngestionError, LoadError, known_names
from lazyrag.groups.node_group import LOADING, Step
from lazyrag.indexes.bm25 import LexicalState
from lazyrag.ledger.tree import LiveGroup, LiveIndex, View
from lazyrag.loaders.directory import hash_file
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.read.nodes import stale_error
from lazyrag.read.snapshot import (
    NOTHING,
    ActiveRead,
    DocumentState,
    LocalSnapshot,
    read,
)
from lazyrag.read.source import LiveState, Needs
from lazyrag.types import Embedding, JsonObject, PathLike
from lazyrag.validation import require

R = TypeVar("R")


class Reader:
    """A Document within a scope: a `SnapshotSource` and a `NodeSource`. Everything it returns is in
    the scope.

    Args:
        indexer: Of the Document.
        scope: A bound filter that every visible node must satisfy: hits, parents, children, roots.
        unscoped: The reader without a scope; None for that one itself.
        shares_statistics: Whether hidden nodes may influence scores.
    """

    def __init__(
        self,
        indexer: LiveState,
        scope: Filter | None = None,
        unscoped: Reader | None = None,
        *,
        shares_statistics: bool = False,
    ) -> None:
        self.indexer = indexer
        self.scope = scope
        self.unscoped = unscoped or self
        self.hides_statistics = scope is not None and not shares_statistics

    def __str__(self) -> str:
        return self.indexer.where

    def allows_server(self, *, vectors: bool) -> bool:
        """Whether stores may rank texts, or vectors, themselves: hidden nodes influence nothing, or
        may do so.
        """
        nodes = self.indexer.nodes
        if not self.hides_statistics:
            return True
        return nodes.scopes_vectors if vectors else nodes.scopes_texts(self.indexer.ledger.file)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Refuse `copy.copy`, `copy.deepcopy` and pickle: both objects would write to the same open
        stores.
        """
        raise ConfigError(
            "A Document cannot be copied or pickled: it holds open stores. Share this one among"
            " threads, make a view of it with restricted(filters), or open its stores again with"
            " Document(..., read_only=True)."
        )

    @property
    def document_token(self) -> object:
        """See `NodeSource.document_token`."""
        return self.indexer

    @property
    def is_closed(self) -> bool:
        """See `NodeSource.is_closed`."""
        return self.indexer.is_closed

    @property
    def embed_keys(self) -> tuple[str, ...]:
        """Names of the embed callables; () without any."""
        return tuple(self.indexer.embedders)

    @property
    def fields(self) -> Schema:
        """Fields that filters may use, by name: the built-in and the declared ones."""
        return self.indexer.nodes.schema

    def narrowed(self, filters: FilterLike, *, shares_statistics: bool = False) -> Reader:
        """A reader whose scope is this one's and the filter's.

        Raises:
            ConfigError: If the filter has no condition: it would hide nothing. Or if it is to share
                statistics that are hidden from this one.
        """
        if shares_statistics and self.hides_statistics:
            raise ConfigError(
                "statistics must be 'visible' on a view that hides them; got 'shared'. Restrict"
                " the whole Document instead."
            )
        bound = self.bind(filters)
        if bound is None or not field_names(bound):
            raise ConfigError(f"The filter of restricted() must have a condition; got {filters!r}.")
        scope = both(self.scope, bound)
        return type(self)(self.indexer, scope, self.unscoped, shares_statistics=shares_statistics)

    def bind(self, filters: FilterLike | None) -> Filter | None:
        """Check a filter against the schema."""
        if filters is None:
            return None
        parsed = parse_filter(filters)
        return None if parsed is None else bind_filter(parsed, self.fields)

    def embedders(self, keys: Sequence[str] | None) -> list[CheckedEmbedder]:
        """The embedders that serve some keys now; all of them for None.

        Raises:
            ConfigError: If there are none, or a key is unknown.
        """
        embedders = self.indexer.embedders
        if not embedders:
            raise ConfigError(
                "The Document has no embed, so nothing can be ranked by embedding. "
                "Pass Document(embed=...), or a text similarity such as similarity='bm25'."
            )
        for key in keys or ():
            if key not in embedders:
                raise ConfigError(
                    f"The Document has no embed key {key!r}. {known_names(key, embedders)}"
                )
        switched = self.indexer.last_view.tree.switched
        return [
            embedders[key] if key not in switched else _served(embedders, key, switched[key])
            for key in keys or embedders
        ]

    def line(self, group: str) -> list[str]:
        """A group and those above it, the root group last."""
        return self.indexer.graph.line(group)

    # Snapshots

    def build(self, needs: Needs) -> View:
        """The present live state, with everything that is needed built.

        Raises:
            IngestionError: If every visible document failed in a step; hidden ones do not count,
                and no file is named.
            ConfigError: If a keyword index of too many nodes on a server is needed.
        """
        if self.indexer.nodes.downloads_texts:
            self._require_few(needs)
        if self.scope is None:
            return self.indexer.view(needs)
        try:
            view = self.indexer.view(needs)
            has_failed = bool(self.indexer.failures.steps() - {LOADING}) and self._all_failed(
                view, needs
            )
        except IngestionError:
            if self.indexer.failures.steps() and not self.visible_documents():
                return self._empty_view(needs)
            has_failed = True
        if has_failed:
            raise IngestionError(
                "Every file failed in a step of ingestion. The whole Document's last_report says"
                " which and why."
            )
        return view

    def _require_few(self, needs: Needs) -> None:
        """Refuse keyword indexes here of too many nodes on a server, before they are built."""
        for step in needs:
            if step.analyser is not None and needs not in self.indexer.now().met:
                view = self.indexer.view(frozenset([Step(step.group)]))
                self.indexer.nodes.require_few(view.groups[step.group].nodes, step.group)

    def _all_failed(self, view: View, needs: Needs) -> bool:
        """Whether a step that is needed succeeded for no visible document, and failed for one."""
        seen = self.visible_documents()
        failed = {failure.stage for failure in self.indexer.failures if failure.path in seen}
        steps = {Step(name) for name in self._lines(needs) - {LAZY_ROOT_NAME}} | needs
        return any(
            str(step) in failed and not self._has_succeeded(step, view, seen.values())
            for step in steps
        )

    def _lines(self, needs: Needs) -> set[str]:
        """The groups of some steps and those above them."""
        return set().union(*(self.line(step.group) for step in needs))

    def _has_succeeded(self, step: Step, view: View, documents: Iterable[str]) -> bool:
        """Whether some of the documents have nodes of a step, or those nodes are in its index."""
        group = view.groups.get(step.group)
        of_documents = view.tree.builds_of(step.group, list(documents))
        builds = [build.number for build in of_documents.values()] if group is not None else []
        if step == Step(step.group):
            return bool(builds)
        index = self.indexer.planner.live_index(view, step)
        return index is not None and bool(self.indexer.ledger.builds.covered(index.id, builds))

    def visible_documents(self) -> Mapping[str, str]:
        """Documents whose root node is in scope: uids by identity."""
        view = self.indexer.now()
        visible: Mapping[str, str] | None = view.handles.get(("documents", self.scope))
        if visible is None:
            group = view.tree.groups.get(LAZY_ROOT_NAME)
            nodes: list[list[Segment]] = []
            if group is not None:
                builds = list(view.tree.builds(group))
                nodes = self.indexer.nodes.of_builds(group.collection, builds)
            roots = filter(self._sees, itertools.chain.from_iterable(nodes))
            visible = {root.path: root.uid for root in roots}
            view.handles["documents", self.scope] = visible
        return visible

    def _empty_view(self, needs: Needs) -> View:
        """The present live state with empty groups and indexes for those that no document has."""
        view = self.indexer.now()
        empty = {
            name: LiveGroup(0, name, ([*self.line(name), None])[1], "", "", complete=True)
            for name in self._lines(needs)
        }
        handles: dict[Any, Any] = {}
        for step in needs:
            handles[step] = LiveIndex(0, "vectors", step.embed_key or "", "", "", 0, complete=True)
            handles[step.group, step.analyser] = LexicalState([], [])
        return View(view.tree, view.removals, {**empty, **view.groups}, handles=handles)

    def snapshot(self, read: ActiveRead, state: DocumentState) -> LocalSnapshot:
        """The snapshot of a state within the scope."""
        return LocalSnapshot(self, read, state)

    def read(self, body: Callable[[LocalSnapshot], R], needs: Needs = NOTHING) -> R:
        """Read one state of this Document; see `read`."""
        return read({self: needs}, body)

    # Nodes

    def held(self, uid: str) -> list[Segment]:
        """The live, visible nodes with a uid: at most one of each group that is built."""
        return self.read(lambda snapshot: [segment for _, segment in snapshot.find(uid)])

    def related(self, nodes: Sequence[DocNode], target: str) -> list[DocNode]:
        """The nodes of another group that nodes lead to, with the highest scores; see `related`."""
        scored = []
        for node, sources in self.read(
            lambda snapshot: related([(snapshot, node) for node in nodes], target)
        ):
            scores = [source.score for source in sources if source.score is not None]
            scored.append(node.with_score(max(scores, default=None)))
        return scored

    def vectors_of(self, segments: Sequence[Segment], embed_key: str) -> list[Embedding | None]:
        """The stored vectors of nodes; see `LocalSnapshot.vectors`."""
        return self.read(lambda snapshot: snapshot.vectors(segments, embed_key))

    def parent(self, segment: Segment) -> DocNode | None:
        """See `NodeSource.parent`."""
        parent = self.read(lambda snapshot: snapshot.parent(segment))
        return None if parent is None else self.show(parent)

    def children(self, segment: Segment) -> dict[str, list[DocNode]]:
        """See `NodeSource.children`."""
        return self.read(lambda snapshot: snapshot.children(segment))

    def root(self, segment: Segment) -> DocNode:
        """See `NodeSource.root`."""
        return self.show(self.read(lambda snapshot: snapshot.root(segment)))

    def source(self, segment: Segment) -> Segment | None:
        """See `NodeSource.source`."""
        source = self.read(lambda snapshot: snapshot.source_of(segment))
        return source if source is not None and self._sees(source) else None

    def file_metadata(self, segment: Segment) -> JsonObject:
        """See `NodeSource.file_metadata`."""
        root = self.read(lambda snapshot: snapshot.root(segment))
        return ReadOnly(copy_value(dict(root.metadata))) if self._sees(root) else EMPTY

    def source_texts(
        self,
        segment: Segment,  # noqa: ARG002  the Protocol's signature
        kind: bool | str = True,  # noqa: ARG002, FBT001, FBT002
    ) -> Sequence[tuple[str, str]]:
        """See `NodeSource.source_texts`; only groups that are built need the source."""
        return ()

    def image(self, segment: Segment, file: PathLike | None = None) -> bytes:
        """See `NodeSource.image`."""
        if all(node.key != segment.key or not self._sees(node) for node in self.held(segment.uid)):
            raise stale_error(segment)
        root = self.read(lambda snapshot: snapshot.root(segment))
        return self.indexer.engine.loading.picture(
            self.unchanged_file(segment.path, file), root, segment
        )

    def unchanged_file(self, path: str, file: PathLike | None) -> Path:
        """Return the place of a document's file, if it has the bytes that were ingested.

        Raises:
            ConfigError: If this program did not add the file, and it is not given.
            LoadError: If it cannot be read or has changed.
        """
        row = self.indexer.ledger.documents.named([path])[path]
        added = self.indexer.engine.added.get(path)
        if added is None and row.origin == "dataset":
            added = self.indexer.dataset.find(path)
        if file is not None:
            place = Path(file)
        elif added is not None:
            place = added.path
        else:
            raise ConfigError(
                f"The file of {path!r} must be given: this program did not add it. Pass file=."
            )
        try:
            digest = hash_file(place)
        except OSError as exc:
            raise LoadError(
                f"The file of {path!r} cannot be read: {exc.strerror or exc}. Restore it."
            ) from exc
        if digest != row.content_hash:
            raise LoadError(
                f"The file of {path!r} has changed since it was ingested. Call sync() or"
                " add_files() first."
            )
        return place

    def embeddings(self, segment: Segment) -> Mapping[str, Embedding]:
        """See `NodeSource.embeddings`."""
        return self.read(lambda snapshot: snapshot.embeddings(segment))

    def show(self, segment: Segment) -> DocNode:
        """See `NodeSource.show`."""
        if not self._sees(segment):
            raise stale_error(segment)
        return DocNode.from_segment(segment, self)

    def _sees(self, segment: Segment) -> bool:
        return self.scope is None or matches(self.scope, segment.fields)


def _served(embedders: Mapping[str, CheckedEmbedder], key: str, other: str) -> CheckedEmbedder:
    """The embedder of another key under a key; its own one in a program that does not have the
    other.
    """
    serving = embedders.get(other, embedders[key])
    return CheckedEmbedder(serving.embedder, serving.name, key, serving.workers)


def related(
    pairs: Sequence[tuple[LocalSnapshot, DocNode]], target: str
) -> list[tuple[DocNode, list[DocNode]]]:
    """The nodes of another group that nodes lead to, each once and with the nodes that led there.

    They carry the score of the first node that led there: the best one, if nodes come best first.

    Args:
        pairs: Nodes, each with the snapshot of its Document.
        target: The other group.
    """
    by_part: dict[int, list[DocNode]] = {}
    for part, node in pairs:
        by_part.setdefault(part.document_index, []).append(node)
    parts = {part.document_index: part for part, _ in pairs}
    related_of = {
        index: iter(parts[index].related_nodes(part_nodes, target))
        for index, part_nodes in by_part.items()
    }
    reached: dict[tuple[str, int], tuple[DocNode, list[DocNode]]] = {}
    for part, node in pairs:
        for segment in next(related_of[part.document_index]):
            key = segment.uid, part.document_index
            if key not in reached:
                reached[key] = part.hit(segment, node.score), []
            reached[key][1].append(node)
    return list(reached.values())


Documents: TypeAlias = "Collection | Sequence[Collection]"
"""A Document, or several."""


class Collection(Protocol):
    """What retrievers need of a Document: they do not depend on the class."""

    @property
    def reader(self) -> Reader:
        """Reads it within its scope."""

    def get_nodes(self, group: str, /) -> list[DocNode]:
        """The nodes of a group."""


def reader_of(docs: Collection) -> Reader:
    """Return the reader of a Document.

    Raises:
        ConfigError: If it is something else.
    """
    reader = getattr(docs, "reader", None)
    require(isinstance(reader, Reader), "docs", docs, "a Document")
    return cast("Reader", reader)
