"""What reads need of the side of a Document that builds, as protocols: they do not depend on ingestion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from lazyrag.data.node import ShownHits
from lazyrag.data.segment import Segment
from lazyrag.groups.node_group import GroupGraph, Step
from lazyrag.indexes.bm25 import LexicalState
from lazyrag.ledger.ledger import Ledger
from lazyrag.ledger.tree import LiveGroup, LiveIndex, Tree, View
from lazyrag.loaders.directory import FoundFile
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.read.nodes import NodeCache, NodeStore

Needs: TypeAlias = frozenset[Step]
"""What must be built before a read begins."""


class FailedStep(Protocol):
    """A failed step of one document."""

    @property
    def path(self) -> str: ...
    @property
    def stage(self) -> str: ...


class FailedSteps(Protocol):
    """The failures that were not retried yet."""

    def __iter__(self) -> Iterator[FailedStep]: ...
    def steps(self) -> set[Step]: ...


class IndexLookup(Protocol):
    """Finds the live index of a step."""

    def live_index(self, view: View, step: Step) -> LiveIndex | None: ...


class KeywordIndexes(Protocol):
    """Opens keyword indexes in one state."""

    def state(self, tree: Tree, group: LiveGroup, index: LiveIndex) -> LexicalState: ...


class SourceFiles(Protocol):
    """The files of a Document."""

    def find(self, identity: str) -> FoundFile | None: ...


class FileReading(Protocol):
    """Reads files again, by the loaders that read them."""

    def loader_of(self, identity: str, metadata: Mapping[str, Any]) -> tuple[str, Any]: ...
    def picture(self, path: Path, root: Segment, node: Segment) -> bytes: ...


class Ingested(Protocol):
    """Files that were added beside the dataset's, and how files are read."""

    @property
    def added(self) -> Mapping[str, FoundFile]: ...
    @property
    def loading(self) -> FileReading: ...


class LiveState(Protocol):
    """The side of a Document that builds what a read needs."""

    where: str
    is_closed: bool
    last_view: View
    hits: ShownHits
    node_cache: NodeCache

    @property
    def nodes(self) -> NodeStore: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def embedders(self) -> Mapping[str, CheckedEmbedder]: ...
    @property
    def failures(self) -> FailedSteps: ...
    @property
    def planner(self) -> IndexLookup: ...
    @property
    def terms(self) -> KeywordIndexes: ...
    @property
    def dataset(self) -> SourceFiles: ...
    @property
    def engine(self) -> Ingested: ...
    @property
    def graph(self) -> GroupGraph: ...
    def now(self) -> View: ...
    def view(self, needs: Needs) -> View: ...
    def has(self, view: View, needs: Needs) -> bool: ...
    def paused(self, timeout_s: float) -> AbstractContextManager[bool]: ...
