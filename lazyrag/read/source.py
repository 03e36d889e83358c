"""What reads need of the side of a Document that builds, as protocols: they do not depend on
ingestion.
"""

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
from lazyrag.ledger.tree import LiveIndex, Tree, View
from lazyrag.loaders.directory import FoundFile
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.read.nodes import NodeCache, NodeStore
from lazyrag.types import Metadata

Needs: TypeAlias = frozenset[Step]
"""What must be built before a read begins."""


class FailedStep(Protocol):
    """A failed step of one document."""

    @property
    def path(self) -> str:
        """The document's path or id."""

    @property
    def stage(self) -> str:
        """The step that failed."""


class FailedSteps(Protocol):
    """The failures that were not retried yet."""

    def __iter__(self) -> Iterator[FailedStep]: ...
    def steps(self) -> set[Step]:
        """The steps with failures."""


class IndexLookup(Protocol):
    """Finds the live index of a step."""

    def live_index(self, view: View, step: Step) -> LiveIndex | None:
        """The index that a step builds, as far as it is live; None if it builds none."""


class KeywordIndexes(Protocol):
    """Opens keyword indexes in one state."""

    def state(self, tree: Tree, index: LiveIndex) -> LexicalState:
        """The index in one state of the tree."""


class SourceFiles(Protocol):
    """The files of a Document."""

    @property
    def folder(self) -> Path | None:
        """Their folder; None for files without one."""

    @property
    def follow_links(self) -> bool:
        """Whether links out of the folder are followed."""

    def find(self, identity: str) -> FoundFile | None:
        """A file by its identity; None if there is none."""


class FileReading(Protocol):
    """Reads files again, by the loaders that read them."""

    def loader_of(self, identity: str, metadata: Metadata) -> tuple[str, Any]:
        """The suffix by which a document was read, and its loader or reader."""

    def picture(self, path: Path, root: Segment, node: Segment) -> bytes:
        """Read the picture of a node of the group ``image`` from its document's file."""


class Ingested(Protocol):
    """Files that were added beside the dataset's, and how files are read."""

    @property
    def added(self) -> Mapping[str, FoundFile]:
        """Files that were added to the dataset's, by identity."""

    @property
    def loading(self) -> FileReading:
        """How files are read."""


class LiveState(Protocol):
    """The side of a Document that builds what a read needs."""

    where: str
    is_closed: bool
    last_view: View
    hits: ShownHits
    node_cache: NodeCache

    @property
    def nodes(self) -> NodeStore:
        """The stores."""

    @property
    def ledger(self) -> Ledger:
        """The ledger."""

    @property
    def embedders(self) -> Mapping[str, CheckedEmbedder]:
        """Embedders by embed key."""

    @property
    def failures(self) -> FailedSteps:
        """The failures."""

    @property
    def planner(self) -> IndexLookup:
        """Finds indexes."""

    @property
    def terms(self) -> KeywordIndexes:
        """The keyword indexes."""

    @property
    def dataset(self) -> SourceFiles:
        """The files."""

    @property
    def engine(self) -> Ingested:
        """What was ingested."""

    @property
    def graph(self) -> GroupGraph:
        """The group definitions."""

    def now(self) -> View:
        """The present live state."""

    def view(self, needs: Needs) -> View:
        """The present live state, with everything that is needed built."""

    def has(self, view: View, needs: Needs) -> bool:
        """Whether a state has everything that is needed."""

    def paused(self, timeout_s: float) -> AbstractContextManager[bool]:
        """Keep other threads from building; yields False after a timeout."""
