"""Documents on their way to a build plan, and the nodes that transforms of them see."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from lazyrag.data.node import DocNode
from lazyrag.data.pictures import LINKED_PICTURES, PICTURES, FoundPictures
from lazyrag.data.segment import (
    LAZY_ROOT_NAME,
    ReadOnly,
    Segment,
    content_text,
    copy_value,
)
from lazyrag.errors import (
    LazyRAGError,
    NoReaderError,
    StaleNodeError,
    TransformError,
)
from lazyrag.groups.node_group import Step
from lazyrag.ingest.dataset import Dataset
from lazyrag.ingest.load_files import Loading
from lazyrag.ingest.plan import BuildPlan, GroupTarget
from lazyrag.ingest.term_index import BuildTerms
from lazyrag.ledger.ledger import Flip, Ledger
from lazyrag.ledger.tables import HIDDEN, BuildRow, DocumentRow
from lazyrag.loaders.base import source_texts
from lazyrag.loaders.directory import (
    FoundFile,
    Signature,
    hash_file,
    signature_of,
)
from lazyrag.read.nodes import NodeStore
from lazyrag.types import Embedding

MISFIT = "value left out: "
"""Beginning of the note of a value that does not fit its declared field."""


class Root(NamedTuple):
    """A document's new root node, and its row in the ledger."""

    segment: Segment
    row: DocumentRow


MakeRoot: TypeAlias = Callable[[int], Root]
"""Makes a document's root node, given the number of its build."""


class Outcome(NamedTuple):
    """Result for one document: whether something of it became live, as a new version, and notes of
    its loader.
    """

    identity: str
    flipped: bool
    is_new_version: bool
    notes: tuple[str, ...] = ()


def _unread(loaded: Mapping[str, Any]) -> Iterator[str]:
    """Notes of the parts of a file that its loader could not read."""
    for name, parts in loaded.items():
        if "unread" in name.split("_") and isinstance(parts, Mapping) and parts:
            first, reason = next(iter(parts.items()))
            kind = name.replace("unread", "").strip("_")
            yield f"{kind} left out: {len(parts)}, such as {first}: {reason}"


@dataclass(slots=True, eq=False)
class PendingVersion:
    """One document on its way to a build plan.

    Args:
        row: Its row in the ledger.
        make_root: Makes its new root node; None keeps the live one.
        moved_from: The document that its file belonged to before it was moved.
        beside: The new root node belongs to another root group and makes no new version: the live
            groups stay live until the groups are switched.
        version_hash: Digest of the file that the version is made of, if that is not the present
            one.
        before: Its live builds, by group row.
        moved_before: Those of the document that it was moved from.
        current: The builds that are to become live.
        segments: Nodes by group row, as far as they were read or made.
        terms: By index row.
        covered: Pairs (index row, build).
        failures: Errors by step.
        flipped: Whether something of it became live.
        is_new_version: Whether that is a new version.
        sources_read: The source texts of its file by kind, see `NodeSource.source_texts`.
        noted: What was noted of its pictures.
        hashed: Signature of its file when its hash was last checked.
        base: Its row in the ledger before the changes of ``row``; None for ``row`` itself.
        waits_for_nobody: Whether others wait until it is done, since it was overtaken before: under
            continuous changes it would never end.
    """

    row: DocumentRow
    make_root: MakeRoot | None = None
    moved_from: DocumentRow | None = None
    beside: bool = False
    version_hash: str = ""
    before: Mapping[int, BuildRow] = field(default_factory=dict)
    moved_before: Mapping[int, BuildRow] = field(default_factory=dict)
    current: dict[int, BuildRow] = field(default_factory=dict)
    segments: dict[int, list[Segment]] = field(default_factory=dict)
    terms: dict[int, BuildTerms] = field(default_factory=dict)
    covered: list[tuple[int, int]] = field(default_factory=list)
    failures: dict[Step, LazyRAGError] = field(default_factory=dict)
    flipped: bool = False
    is_new_version: bool = False
    sources_read: dict[bool | str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    noted: list[str] = field(default_factory=list)
    hashed: Signature | None = None
    base: DocumentRow | None = None
    waits_for_nobody: bool = False

    def again(self) -> PendingVersion:
        """The same, to be begun anew."""
        anew: dict[str, Any] = {
            "current": {},
            "segments": {},
            "terms": {},
            "covered": [],
            "failures": {},
        }
        return replace(self, **anew, waits_for_nobody=True)

    def rebase(self, now: DocumentRow) -> bool:
        """Take over what others have changed in its row since it was planned; returns whether it is
        still wanted.
        """
        base = self.base or now
        self.base = now
        if now.status in HIDDEN and now.status != base.status:
            return False
        if self.make_root is None:
            self.row = now
        elif now.status == "live" and now.updates != base.updates:
            planned, before, others = map(json.loads, (self.row.updates, base.updates, now.updates))
            changed = {
                key: value
                for key, value in planned.items()
                if key not in before or before[key] != value
            }
            unchanged = {
                key: value for key, value in others.items() if key in planned or key not in before
            }
            self.row = replace(self.row, updates=json.dumps({**unchanged, **changed}))
        return True

    def notes(self) -> tuple[str, ...]:
        """What the loader noted of the new version, such as a guessed encoding; pictures that are
        left out.
        """
        loaded = json.loads(self.row.loaded) if self.is_new_version else {}
        notes = loaded.get("notes")
        return (*map(str, notes if isinstance(notes, list) else ()), *_unread(loaded), *self.noted)

    def outcome(self) -> Outcome:
        """What became of it."""
        return Outcome(self.row.identity, self.flipped, self.is_new_version, self.notes())

    def real_failures(self) -> list[tuple[Step, LazyRAGError]]:
        """Failures without files that have no text, or that nothing reads: those are skipped."""
        return [
            failure
            for failure in self.failures.items()
            if not isinstance(failure[1], NoReaderError)
        ]

    @property
    def has_new_root(self) -> bool:
        """Whether it is a new version of the document."""
        roots = {row.root for row in self.current.values()}
        return not self.beside and roots != {row.root for row in self.before.values()}

    @property
    def sources(self) -> list[DocumentRow]:
        """The documents whose nodes can be reused: itself, and the one it was moved from."""
        return [self.row, *([self.moved_from] if self.moved_from is not None else [])]

    def is_complete(self, plan: BuildPlan) -> bool:
        """Whether it has everything in the plan, except for steps that failed."""
        if plan.root not in self.current:
            return False
        for group in plan.groups:
            failed = Step(group.name) in self.failures
            made_of = {group.parent, group.ref or plan.root}
            if group.id not in self.current and made_of <= self.current.keys() and not failed:
                return False
        covered = {index for index, _ in self.covered}
        for index in plan.indexes:
            row = self.current.get(index.group)
            is_new = row is not None and row != self.before.get(index.group)
            if is_new and index.id not in covered and index.step not in self.failures:
                return False
        return True

    @property
    def has_changes(self) -> bool:
        """Whether readers would see a change once its builds are live."""
        return self.is_new_version or bool(self.covered) or self.current != dict(self.before)

    def can_go_live(self, plan: BuildPlan) -> bool:
        """Whether it has builds, and its live version has no group that they lack."""
        return bool(self.current) and not (self.has_new_root and self.would_lose(plan))

    def flip(self, plan: BuildPlan) -> Flip:
        """Its builds, to become live."""
        return Flip(
            self.row,
            {group: row.number for group, row in self.current.items()},
            tuple(self.covered),
            root=self.current[plan.root].number if self.is_new_version else None,
            deleted=(self.moved_from.id,) if self.moved_from is not None else (),
            version_hash=self.version_hash,
        )

    def would_lose(self, plan: BuildPlan) -> bool:
        """Whether it lacks a group that the live version has, because a step failed."""
        had = {plan.names.get(group) for group in (*self.before, *self.moved_before)}
        return any(step.group in had for step in self.failures)


class PendingSource:
    """Source of the nodes that a transform sees: their neighbours in the version that is being
    built.

    Args:
        document_token: Identifies the Document.
        version: The document.
        plan: What it is brought to.
        fetch: Reads the nodes of a group, by the group's row.
        load_source: Loads the source texts of the document's file, given its root node and their
            kind.
        load_image: Reads the picture of a node, given the root node, too.
        target: The group that is made, if one is.
    """

    def __init__(
        self,
        document_token: object,
        version: PendingVersion,
        plan: BuildPlan,
        fetch: Callable[[Sequence[PendingVersion], int, BuildPlan], None],
        load_source: Callable[[PendingVersion, Segment, bool | str], Sequence[tuple[str, str]]],
        load_image: Callable[[PendingVersion, Segment, Segment], bytes],
        target: GroupTarget | None = None,
    ) -> None:
        self._target: Any = target  # of ref_nodes, which only its transform calls
        self._refs: Mapping[str, list[DocNode]] | None = None
        self._found: dict[int, Mapping[str, Segment]] = {}
        self.document_token = document_token
        self._version = version
        self._plan = plan
        self._read = fetch
        self._load_source = load_source
        self._load_image = load_image
        self._parents = {group.name: group.parent for group in plan.groups}
        self._rows = {group.name: group.id for group in plan.groups} | {LAZY_ROOT_NAME: plan.root}

    is_closed = False

    def parent(self, segment: Segment) -> DocNode | None:
        """See `NodeSource.parent`."""
        above = self._parent(segment)
        return None if above is None else self.show(above)

    def children(self, segment: Segment) -> dict[str, list[DocNode]]:
        """See `NodeSource.children`; only groups that are built already."""
        row = self._rows.get(segment.group)
        nodes_by_group: dict[str, list[DocNode]] = {}
        for target in sorted(self._plan.groups, key=lambda group: group.name):
            if target.parent == row and target.id in self._version.current:
                below = self._segments(target.id)
                nodes_by_group[target.name] = [
                    self.show(child) for child in below if child.parent == segment.uid
                ]
        return nodes_by_group

    def ref_nodes(self, segment: Segment) -> list[DocNode]:
        """The nodes of the target's ref group that belong to a node: those below the lowest group
        above both.
        """
        own_line = self._plan.line(self._target.parent)
        other = self._plan.line(self._target.ref)
        shared = next(row for row in own_line if row in other)
        if self._refs is None:
            refs: dict[str, list[DocNode]] = {}
            for node in self._segments(self._target.ref):
                refs.setdefault(self._ancestor(node, other, shared), []).append(self.show(node))
            self._refs = refs
        return list(self._refs.get(self._ancestor(segment, own_line, shared), ()))

    def texts_below(self, plan: BuildPlan, group: int, name: str) -> dict[str, list[str]]:
        """The texts of a group's nodes by the uid of the node above them in another group.

        Raises:
            TransformError: If the group was not made.
        """
        child = next((group.id for group in plan.groups if group.name == name), 0)
        if child not in self._version.current:
            raise TransformError(
                f"The group {name!r}, which index_text reads, was not made.", group=name
            )
        line = plan.line(child)
        texts_by_uid = dict[str, list[str]]()
        for node in self._segments(child):
            texts_by_uid.setdefault(self._ancestor(node, line, group), []).append(
                content_text(node.content)
            )
        return texts_by_uid

    def _ancestor(self, segment: Segment, line: Sequence[int], shared: int) -> str:
        """Uid of a node's ancestor in a group of its line."""
        for row in line[1 : line.index(shared) + 1]:
            segment = self._by_uid(row)[segment.parent or ""]
        return segment.uid

    def root(self, segment: Segment) -> DocNode:
        """See `NodeSource.root`."""
        return self.show(self._root(segment))

    def source(self, segment: Segment) -> Segment | None:
        """See `NodeSource.source`."""
        above: Segment | None = segment
        while above is not None and above.span is not None:
            above = self._parent(above)
        return above

    def file_metadata(self, segment: Segment) -> dict[str, Any]:
        """See `NodeSource.file_metadata`."""
        return ReadOnly(copy_value(dict(self._root(segment).metadata)))

    def source_texts(self, segment: Segment, kind: bool | str = True) -> Sequence[tuple[str, str]]:  # noqa: FBT001, FBT002
        """See `NodeSource.source_texts`."""
        return (
            self._load_source(self._version, segment, kind)
            if segment.group == LAZY_ROOT_NAME
            else ()
        )

    def image(self, segment: Segment, file: Any = None) -> bytes:  # noqa: ARG002
        """See `NodeSource.image`."""
        return self._load_image(self._version, self._root(segment), segment)

    def embeddings(self, segment: Segment) -> Mapping[str, Embedding]:  # noqa: ARG002
        """See `NodeSource.embeddings`; nodes are made before they are embedded."""
        return {}

    def show(self, segment: Segment) -> DocNode:
        """See `NodeSource.show`."""
        return DocNode.from_segment(segment, self)

    def _segments(self, group: int) -> list[Segment]:
        self._read([self._version], group, self._plan)
        return self._version.segments[group]

    def _by_uid(self, group: int) -> Mapping[str, Segment]:
        if group not in self._found:
            self._found[group] = {node.uid: node for node in self._segments(group)}
        return self._found[group]

    def _root(self, segment: Segment) -> Segment:
        return segment if segment.group == LAZY_ROOT_NAME else self._segments(self._plan.root)[0]

    def _parent(self, segment: Segment) -> Segment | None:
        if segment.parent is None:
            return None
        above = self._parents.get(segment.group)
        parent = None if above is None else self._by_uid(above).get(segment.parent)
        if parent is None:
            msg = (
                f"Node {segment.uid} of group {segment.group!r} has lost its parent. Retrieve it"
                " again."
            )
            raise StaleNodeError(msg)
        return parent


_NO_SOURCE = (
    "The source of the document cannot be read: its file is gone, or has changed since it was"
    " loaded. Call sync(); for a file outside of the dataset, add_files with it."
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class VersionReader:
    """Reads the nodes and the files of documents on their way to a plan.

    Args:
        ledger: The ledger.
        nodes: The stores.
        loading: Calls loaders.
        dataset: The Document's files.
        owner: The Document's indexer: the tree of the nodes that transforms see, and the owner of
            worker threads.
        added: Files that are or were added to the dataset's, by identity.
    """

    ledger: Ledger
    nodes: NodeStore
    loading: Loading
    dataset: Dataset
    owner: object
    added: dict[str, FoundFile] = field(default_factory=dict)

    def reading(self, *, vectors: bool = False) -> AbstractContextManager[object]:
        """One transaction for what is read of the ledger and of stores in its file."""
        is_one_file = self.nodes.are_in(self.ledger.file, vectors=vectors)
        return self.ledger.reading() if is_one_file else nullcontext()

    def fetch(self, versions: Sequence[PendingVersion], group: int, plan: BuildPlan) -> None:
        """Read the nodes of a group, for the documents that do not have them yet."""
        missing = [version for version in versions if group not in version.segments]
        if not missing:
            return
        numbers = [version.current[group].number for version in missing]
        builds = self.ledger.builds.with_parents(numbers)
        nodes = self.nodes.of_builds(plan.collection(group), [builds[number] for number in numbers])
        for version, segments in zip(missing, nodes, strict=True):
            version.segments[group] = segments

    def source_of(
        self, version: PendingVersion, plan: BuildPlan, target: GroupTarget | None = None
    ) -> PendingSource:
        """The source of the nodes of a document that a transform or ``index_text`` sees."""
        return PendingSource(self.owner, version, plan, self.fetch, self.source, self.image, target)

    def source_hash(self, version: PendingVersion, root: Segment, kind: bool | str) -> str:  # noqa: FBT001
        """Digest of the file with a document's source; "" if that is the text of its root node, or
        has no pictures.
        """
        row = version.row
        if row.origin == "text" or not self.loading.has_source(row.identity, root.metadata, kind):
            return ""
        if version.make_root is None:
            return self.live_hash(row)
        return version.version_hash or row.content_hash

    def live_hash(self, row: DocumentRow) -> str:
        """Digest of the file that a document's live version is made of."""
        for version in self.ledger.documents.versions(row.id):
            if version.number == row.version:
                return version.content_hash
        return row.content_hash

    def source(
        self, version: PendingVersion, root: Segment, kind: bool | str = True
    ) -> Sequence[tuple[str, str]]:
        """Read the source texts of a document from its file; () if the only one is the text of its
        root node.

        Raises:
            TransformError: If the file is gone, or is not the one that the root node is made of.
        """
        if kind not in version.sources_read:
            expected = self.source_hash(version, root, kind)
            texts: list[tuple[str, str]] = []
            if expected:
                file, before = self._unchanged(version, expected)
                # what lies beside uploads is of others
                is_linked = kind == PICTURES and version.row.origin == "dataset"
                source = LINKED_PICTURES if is_linked else kind
                texts = source_texts(self.loading.load(file, source=source))
                if not texts or signature_of(file.path) != before:
                    raise TransformError(_NO_SOURCE)
            version.sources_read[kind] = () if texts == [("", root.content)] else texts
            if texts and kind == PICTURES:
                version.noted += FoundPictures.parse(texts[0][1]).notes
        return version.sources_read[kind]

    def image(self, version: PendingVersion, root: Segment, node: Segment) -> bytes:
        """Read the picture of a node of the group ``image`` from the document's file."""
        file, _ = self._unchanged(version, self.source_hash(version, root, PICTURES))
        return self.loading.picture(file.path, root, node)

    def _unchanged(
        self, version: PendingVersion, expected: str
    ) -> tuple[FoundFile, Signature | None]:
        """The file of a document with a hash, and its signature before it is read."""
        identity = version.row.identity
        file = self.added.get(identity) or self.dataset.find(identity)
        before = signature_of(file.path) if file is not None else None
        if file is None or before is None:
            raise TransformError(_NO_SOURCE)
        if version.hashed != before and hash_file(file.path) != expected:
            raise TransformError(_NO_SOURCE)
        version.hashed = before
        return file, before
