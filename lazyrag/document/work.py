"""One document on its way to its next version, and what it is to be brought to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME, ReadOnly, Segment, copy_value
from lazyrag.document.ledger.rows import BuildRow, DocumentRow
from lazyrag.document.step import Step
from lazyrag.document.term_spaces import BuildTerms
from lazyrag.errors import IngestionError, LazyRAGError, NotBuiltError, StaleNodeError, StoreError
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.types import Embedding

NOT_THE_FILES_FAULT = (IngestionError, NotBuiltError, StoreError)
"""Errors after which no other file would do better."""


class Root(NamedTuple):
    """A document's new root node, and what the ledger is to know of the document with it."""

    segment: Segment
    row: DocumentRow


MakeRoot: TypeAlias = Callable[[int], Root]
"""Makes a document's root node; given the number of its build."""


@dataclass(frozen=True, slots=True)
class GroupTarget:
    """A group that documents are brought to.

    Args:
        id: Its row in the ledger.
        name: Its name.
        parent: Row of the group above it.
        collection: Of its segments.
        transform: Makes its nodes.
        sees_nodes: Whether the transform looks at nodes; else it sees nothing but content.
        asks_models: Whether it asks models, so that one call saved is worth a look at the store.
        path_told: What of a document's path decides about its nodes; None where nothing does.
    """

    id: int
    name: str
    parent: int
    collection: str
    transform: Callable[[DocNode], Any]
    sees_nodes: bool
    asks_models: bool = False
    path_told: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True)
class TermsTarget:
    """A lexical index that documents are brought to.

    Args:
        id: Its row in the ledger.
        group: Row of its group.
        step: What is done.
        terms_of: From a text to its terms.
    """

    id: int
    group: int
    step: Step
    terms_of: Callable[[str], list[str]]


@dataclass(slots=True)
class VectorsTarget:
    """A collection of vectors that documents are brought to.

    Args:
        id: Its row in the ledger.
        group: Row of its group.
        step: What is done.
        identity: Of the embed callable.
        collection: Where the vectors are.
        dimension: Of the vectors, or `SPARSE`; 0 until the first one is written.
        embedder: What embeds.
    """

    id: int
    group: int
    step: Step
    identity: str
    collection: str
    dimension: int
    embedder: CheckedEmbedder


@dataclass(frozen=True, slots=True)
class Targets:
    """What documents are brought to.

    Args:
        root: Row of the root group.
        root_collection: Of the root nodes.
        names: Names of groups by row: of the targets, and of all that are live.
        groups: The groups, each after the one above it; without the root group.
        terms: Lexical indexes over them.
        vectors: Collections of vectors over them.
        partial_groups: Rows of live groups that this program does not define, or defines otherwise: a document's new
            version has no nodes there.
        partial_spaces: The same for spaces.
        visible: Whether readers see what is made live; else all of it is groups and spaces that are not whole yet.
    """

    root: int
    root_collection: str
    names: Mapping[int, str]
    groups: Sequence[GroupTarget] = ()
    terms: Sequence[TermsTarget] = ()
    vectors: Sequence[VectorsTarget] = ()
    partial_groups: Sequence[int] = ()
    partial_spaces: Sequence[int] = ()
    visible: bool = True

    @property
    def spaces(self) -> tuple[TermsTarget | VectorsTarget, ...]:
        """Both kinds of spaces."""
        return (*self.terms, *self.vectors)

    @property
    def rows(self) -> set[int]:
        """Rows of the root group and the groups."""
        return {self.root, *(one.id for one in self.groups)}

    def line(self, target: GroupTarget) -> list[int]:
        """Rows of the groups above a target, the root group last."""
        parents = {one.id: one.parent for one in self.groups}
        line = [target.parent]
        while line[-1] != self.root:
            line.append(parents[line[-1]])
        return line

    def collection(self, group: int) -> str:
        """Where a target group's segments are."""
        if group == self.root:
            return self.root_collection
        return next(one.collection for one in self.groups if one.id == group)


class Work:
    """One document on its way.

    Args:
        row: What the ledger knows of it.
        make_root: Makes its new root node; None where the live one stays.
        moved_from: The document whose file it was before it was moved.
        beside: The new root node belongs to another root group and makes no new version: what is live stays so until
            the groups are switched.
    """

    def __init__(
        self,
        row: DocumentRow,
        make_root: MakeRoot | None = None,
        moved_from: DocumentRow | None = None,
        *,
        beside: bool = False,
    ) -> None:
        self.row = row
        self.make_root = make_root
        self.moved_from = moved_from
        self.beside = beside
        self.before: Mapping[int, BuildRow] = {}  # its live builds, by group row
        self.moved_before: Mapping[int, BuildRow] = {}  # those of the document that it was moved from
        self.current: dict[int, BuildRow] = {}  # those of what it is on its way to
        self.segments: dict[int, list[Segment]] = {}  # by group row, as far as they are at hand
        self.terms: dict[int, BuildTerms] = {}  # by space
        self.covered: list[tuple[int, int]] = []
        self.failures: dict[Step, LazyRAGError] = {}
        self.flipped = False
        self.is_new_version = False
        self.version_hash = ""  # of the file that the version is made of, where that is not the present one

    def begin(self, before: Mapping[int, BuildRow], moved_before: Mapping[int, BuildRow]) -> None:
        """Set out from what is live of it, and of the document that it was moved from."""
        self.before, self.moved_before = before, moved_before
        self.current = {} if self.make_root is not None and not self.beside else dict(before)

    @property
    def outcome(self) -> Outcome:
        """What became of it."""
        return Outcome(self.row.identity, self.flipped, self.is_new_version)

    def new_root(self, build: int) -> Root:
        """Its new root node.

        Raises:
            LazyRAGError: If it cannot be made.
            TypeError: If the live one is to stay.
        """
        if self.make_root is None:
            msg = f"{self.row.identity} gets no new root node."
            raise TypeError(msg)
        return self.make_root(build)

    @property
    def has_new_root(self) -> bool:
        """Whether what it is on its way to is a new version of the document."""
        return not self.beside and _root_of(self.current) != _root_of(self.before)

    @property
    def sources(self) -> list[DocumentRow]:
        """The documents whose nodes may serve again: itself, and the one it was moved from."""
        return [self.row, *([self.moved_from] if self.moved_from is not None else [])]


class Outcome(NamedTuple):
    """What became of a work: whether something of its document became live, and whether that is a new version of it."""

    identity: str
    flipped: bool
    is_new_version: bool


def _root_of(builds: Mapping[int, BuildRow]) -> int | None:
    return next((row.root for row in builds.values()), None)


@dataclass(frozen=True, slots=True)
class Batch:
    """Documents that are brought to targets together.

    Args:
        works: The documents.
        targets: What they are brought to.
        executor: Whose threads call loaders and transforms; None for this one.
        failed: Told of each failure.
        tick: Told of each step that a document has taken.
    """

    works: Sequence[Work]
    targets: Targets
    executor: Executor | None
    failed: Callable[[Step, Work, LazyRAGError], None]
    tick: Callable[[Step], None]

    def fail(self, step: Step, work: Work, error: LazyRAGError) -> None:
        """Note that a step failed for a document."""
        work.failures[step] = error
        self.failed(step, work, error)


class WorkSource:
    """Through which the nodes that a transform sees reach their neighbours: those of the version that is being made.

    Args:
        tree: What stands for the Document's tree.
        work: The document.
        targets: What it is brought to.
        fetch: Gives the segments of one of its groups, by the group's row.
    """

    def __init__(self, tree: object, work: Work, targets: Targets, fetch: Callable[[Work, int], list[Segment]]) -> None:
        self._tree = tree
        self._work = work
        self._targets = targets
        self._fetch = fetch
        self._parents = {one.name: one.parent for one in targets.groups}
        self._rows = {one.name: one.id for one in targets.groups} | {LAZY_ROOT_NAME: targets.root}

    @property
    def tree(self) -> object:
        """See `NodeSource.tree`."""
        return self._tree

    def parent(self, segment: Segment) -> DocNode | None:
        """See `NodeSource.parent`."""
        found = self._parent(segment)
        return None if found is None else self.show(found)

    def children(self, segment: Segment) -> dict[str, list[DocNode]]:
        """See `NodeSource.children`; those that are made already."""
        own = self._rows.get(segment.group)
        found: dict[str, list[DocNode]] = {}
        for target in sorted(self._targets.groups, key=lambda one: one.name):
            if target.parent == own and target.id in self._work.current:
                below = self._fetch(self._work, target.id)
                found[target.name] = [self.show(one) for one in below if one.parent == segment.uid]
        return found

    def root(self, segment: Segment) -> DocNode:
        """See `NodeSource.root`."""
        return self.show(self._root(segment))

    def source(self, segment: Segment) -> Segment | None:
        """See `NodeSource.source`."""
        above: Segment | None = segment
        while above is not None and above.span is not None:
            above = self._parent(above)
        return above

    def file_metadata(self, segment: Segment) -> Mapping[str, Any]:
        """See `NodeSource.file_metadata`."""
        return ReadOnly(copy_value(dict(self._root(segment).metadata)))

    def embeddings(self, segment: Segment) -> Mapping[str, Embedding]:  # noqa: ARG002  the Protocol's signature
        """See `NodeSource.embeddings`; nodes are made before they are embedded."""
        return {}

    def show(self, segment: Segment) -> DocNode:
        """See `NodeSource.show`."""
        return DocNode.from_segment(segment, self)

    def _root(self, segment: Segment) -> Segment:
        if segment.group == LAZY_ROOT_NAME:
            return segment
        return self._fetch(self._work, self._targets.root)[0]

    def _parent(self, segment: Segment) -> Segment | None:
        if segment.parent is None:
            return None
        above = self._parents.get(segment.group)
        found = (
            [one for one in self._fetch(self._work, above) if one.uid == segment.parent] if above is not None else []
        )
        if not found:
            msg = f"Node {segment.uid} of group {segment.group!r} has lost its parent. Retrieve it again."
            raise StaleNodeError(msg)
        return found[0]
