"""One document on its way to a build plan.

`IngestionEngine` takes the steps; here is what they work on: the state of the document
(`PendingVersion`), the nodes that its transforms see (`PendingSource`), what is read of stores and
files for them (`VersionReader`), and functions that make its nodes: root nodes, nodes below them,
digests of both.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from lazyrag.data.fields import BUILT_IN_FIELDS, Schema, check_value, parse_value
from lazyrag.data.node import DocNode
from lazyrag.data.pictures import LINKED_PICTURES, PICTURES, FoundPictures
from lazyrag.data.segment import (
    EMPTY,
    LAZY_ROOT_NAME,
    ReadOnly,
    Segment,
    check_metadata,
    child_uids,
    content_text,
    copy_value,
    digest,
    root_uid,
)
from lazyrag.errors import (
    ConfigError,
    LazyRAGError,
    LoadError,
    StaleNodeError,
    TransformError,
)
from lazyrag.groups.node_group import Step
from lazyrag.ingest.dataset import Dataset
from lazyrag.ingest.load_files import Loading
from lazyrag.ingest.plan import BuildPlan, GroupTarget
from lazyrag.ingest.term_index import BuildTerms
from lazyrag.ledger.field_keys import merged_metadata
from lazyrag.ledger.ledger import Flip, Ledger
from lazyrag.ledger.tables import HIDDEN, BuildRow, DocumentRow
from lazyrag.loaders.base import LoadedFile, source_texts
from lazyrag.loaders.directory import (
    FoundFile,
    RemotePath,
    Signature,
    built_in_metadata,
    hash_file,
    signature_of,
)
from lazyrag.loaders.remote import remote_metadata
from lazyrag.read.nodes import NodeStore
from lazyrag.text.dates import find_amended
from lazyrag.transforms.base import Draft, run_transforms
from lazyrag.types import Embedding, Fields, JsonMapping, JsonObject, Metadata

# State of a document


class Root(NamedTuple):
    """A document's new root node, and its row in the ledger."""

    segment: Segment
    row: DocumentRow


MUCH_TEXT = 1 << 22

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


def _unread(loaded: JsonMapping) -> Iterator[str]:
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
        return replace(
            self,
            current={},
            segments={},
            terms={},
            covered=[],
            failures={},
            waits_for_nobody=True,
        )

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
            merged = {key: others[key] for key in others if key in planned or key not in before}
            merged |= {
                key: value
                for key, value in planned.items()
                if key not in before or before[key] != value
            }
            self.row = replace(self.row, updates=json.dumps(merged))
        return True

    def notes(self) -> tuple[str, ...]:
        """What the loader noted of the new version, such as a guessed encoding; pictures that are
        left out.
        """
        if not self.is_new_version:
            return tuple(self.noted)
        loaded = json.loads(self.row.loaded)
        notes = loaded.get("notes")
        if not isinstance(notes, list):
            notes = []
        return (*map(str, notes), *_unread(loaded), *self.noted)

    def outcome(self) -> Outcome:
        """What became of it."""
        return Outcome(self.row.identity, self.flipped, self.is_new_version, self.notes())

    def release_text(self) -> None:
        """Release much text of nodes that were written; `VersionReader.fetch` reads them again."""
        for group, segments in list(self.segments.items()):
            if sum(len(content_text(node.content)) for node in segments) > MUCH_TEXT:
                del self.segments[group]

    @property
    def has_new_root(self) -> bool:
        """Whether it is a new version of the document."""
        roots = {row.root for row in self.current.values()}
        return not self.beside and roots != {row.root for row in self.before.values()}

    @property
    def sources(self) -> list[DocumentRow]:
        """The documents whose nodes can be reused: itself, and the one it was moved from."""
        if self.moved_from is None:
            return [self.row]
        return [self.row, self.moved_from]

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
        """Whether it has builds, and its live version has no group that they lack because a step
        failed.
        """
        if not self.current:
            return False
        if not self.has_new_root:
            return True
        live = {plan.names.get(group) for group in (*self.before, *self.moved_before)}
        return all(step.group not in live for step in self.failures)

    def flip(self, plan: BuildPlan) -> Flip:
        """Its builds, to become live."""
        builds = {group: row.number for group, row in self.current.items()}
        return Flip(
            self.row,
            builds,
            tuple(self.covered),
            root=builds[plan.root] if self.is_new_version else None,
            deleted=() if self.moved_from is None else (self.moved_from.id,),
            version_hash=self.version_hash,
        )


# What is read of it


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
        self._fetch = fetch
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
        nodes_by_group = {}
        for target in sorted(self._plan.groups, key=lambda group: group.name):
            if target.parent == row and target.id in self._version.current:
                below = self._segments(target.id)
                children = [child for child in below if child.parent == segment.uid]
                nodes_by_group[target.name] = list(map(self.show, children))
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
                ancestor = self._ancestor(node, other, shared)
                refs.setdefault(ancestor, []).append(self.show(node))
            self._refs = refs
        return list(self._refs.get(self._ancestor(segment, own_line, shared), ()))

    def texts_below(self, plan: BuildPlan, group: int, name: str) -> dict[str, list[str]]:
        """The texts of a group's nodes by the uid of the node above them in another group.

        Raises:
            TransformError: If the group was not made.
        """
        child = self._rows.get(name)
        if child is None or child not in self._version.current:
            msg = f"The group {name!r}, which index_text reads, was not made."
            raise TransformError(msg, group=name)
        line = plan.line(child)
        texts_by_uid: dict[str, list[str]] = {}
        for node in self._segments(child):
            ancestor = self._ancestor(node, line, group)
            texts_by_uid.setdefault(ancestor, []).append(content_text(node.content))
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

    def file_metadata(self, segment: Segment) -> JsonObject:
        """See `NodeSource.file_metadata`."""
        return ReadOnly(copy_value(dict(self._root(segment).metadata)))

    def source_texts(self, segment: Segment, kind: bool | str = True) -> Sequence[tuple[str, str]]:
        """See `NodeSource.source_texts`."""
        if segment.group != LAZY_ROOT_NAME:
            return ()
        return self._load_source(self._version, segment, kind)

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
        self._fetch([self._version], group, self._plan)
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
            lost = f"Node {segment.uid} of group {segment.group!r} has lost its parent."
            raise StaleNodeError(f"{lost} Retrieve it again.")
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
        file = self.ledger.file
        is_one_file = self.nodes.segments_file is file
        if vectors:
            is_one_file = is_one_file and self.nodes.vectors_file is file
        return self.ledger.reading() if is_one_file else nullcontext()

    def fetch(self, versions: Sequence[PendingVersion], group: int, plan: BuildPlan) -> None:
        """Read the nodes of a group, for the documents that do not have them yet."""
        missing = [version for version in versions if group not in version.segments]
        if not missing:
            return
        numbers = [version.current[group].number for version in missing]
        by_number = self.ledger.builds.with_parents(numbers)
        builds = [by_number[number] for number in numbers]
        nodes = self.nodes.of_builds(plan.collection(group), builds)
        for version, segments in zip(missing, nodes, strict=True):
            version.segments[group] = segments

    def source_of(
        self, version: PendingVersion, plan: BuildPlan, target: GroupTarget | None = None
    ) -> PendingSource:
        """The source of the nodes of a document that a transform or ``index_text`` sees."""
        return PendingSource(self.owner, version, plan, self.fetch, self.source, self.image, target)

    def source_hash(self, version: PendingVersion, root: Segment, kind: bool | str) -> str:
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
            texts = []
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


# Root nodes

MISFIT = "value left out: "
"""Beginning of the note of a value that does not fit its declared field."""

_MAX_READS = 3  # of a file that changes while it is read


def file_root(
    load: Callable[[FoundFile], LoadedFile],
    file: FoundFile,
    row: DocumentRow,
    user_metadata: Metadata | LazyRAGError,
    schema: Schema,
    build: int,
) -> Root:
    """Load a file into the root node of its document.

    Args:
        load: Loads it.
        file: The file, with the signature that it had before it was hashed.
        row: The document's row.
        user_metadata: Metadata from ``file_metadata``, or the error that it raised.
        schema: The filterable fields.
        build: Number of the build.

    Raises:
        LoadError: If the file cannot be read.
        ConfigError: If a field's value does not fit, or metadata cannot be stored.
    """
    if isinstance(user_metadata, LazyRAGError):
        raise user_metadata
    for _ in range(_MAX_READS):  # metadata and text have to be of one version of the file
        before = signature_of(file.raw_path)
        # before reading, which may change the time of last access
        built_in = _file_system_metadata(file)
        loaded = load(file)
        if signature_of(file.raw_path) == before:
            break
    from_loader = check_metadata(_typed_metadata(loaded, schema))
    from_user = check_metadata(user_metadata)
    metadata = {**from_loader, **from_user, **json.loads(row.updates), **built_in}
    segment = root_segment(file.identity, loaded, metadata, schema, build)
    # else it may have been another while it was read
    unchanged = signature_of(file.raw_path) == file.signature
    row = replace(
        row,
        signature=file.signature if unchanged else None,
        loaded=json.dumps(dict(from_loader)) if from_loader else "{}",
        user_metadata=json.dumps(dict(from_user)) if from_user else "{}",
    )
    return Root(segment, row)


def _typed_metadata(loaded: LoadedFile, schema: Schema) -> JsonObject:
    """Metadata of a loader, with its values of declared fields parsed; those that do not fit are
    noted.
    """
    metadata = {**find_amended(loaded.text), **loaded.metadata}
    misfits = list[str]()
    for name, declared in schema.items():
        value = metadata.pop(name, loaded.fields.get(name))
        if value is None or name in BUILT_IN_FIELDS:
            continue
        try:
            metadata[name] = parse_value(name, declared, value)
        except ConfigError as exc:
            misfits.append(f"{MISFIT}{exc}")
    if misfits:
        metadata["notes"] = [*metadata.get("notes", ()), *misfits]
    return metadata


def text_root(row: DocumentRow, text: str, today: str, schema: Schema, build: int) -> Root:
    """The root node of a text that was added as such; its metadata are in the row."""
    built_in = {
        "file_name": row.identity,
        "file_type": "text/plain",
        "file_size": len(text.encode("utf-8", "surrogatepass")),
        "creation_date": today,
        "last_modified_date": today,
        "last_accessed_date": today,
    }
    loaded = LoadedFile(text)
    row = replace(row, loaded=json.dumps(_typed_metadata(loaded, schema)))
    metadata = {
        **built_in,
        **merged_metadata(row),
        **built_in,
    }  # first, and not to be overridden
    return Root(root_segment(row.identity, loaded, metadata, schema, build), row)


def renewed_root(
    before: Segment, row: DocumentRow, schema: Schema, build: int, *, file: FoundFile | None = None
) -> Root:
    """A root node with the text of another one, and the metadata in a row.

    Args:
        before: The root node that has the text.
        row: The document's row.
        schema: The filterable fields.
        build: Number of the build.
        file: The file as it is now; None keeps the built-in metadata of ``before``.

    Raises:
        LoadError: If the file cannot be accessed.
        ConfigError: If a field's value does not fit.
    """
    if file is None:
        stored = before.metadata
        built_in = {name: stored[name] for name in BUILT_IN_FIELDS if name in stored}
    else:
        built_in = _file_system_metadata(file)
    loaded = LoadedFile(str(before.content), before.locations, json.loads(row.loaded))
    # the fields may have changed
    row = replace(row, loaded=json.dumps(_typed_metadata(loaded, schema)))
    metadata = {**merged_metadata(row), **built_in}
    return Root(root_segment(row.identity, loaded, metadata, schema, build), row)


def _file_system_metadata(file: FoundFile) -> JsonObject:
    if isinstance(file.raw_path, RemotePath):
        return remote_metadata(file)
    try:
        metadata = dict(built_in_metadata(file.path))
    except OSError as exc:
        problem = f"The file cannot be looked at ({exc.strerror})."
        msg = f"{problem} Check that it exists and may be read."
        raise LoadError(msg, path=str(file.path)) from exc
    name = file.identity.rpartition("/")[2]
    suffix = file.path.suffix.lower()
    # An id that looks like the file's name is one: uploads are stored under other names.
    if suffix and name.lower().endswith(suffix):
        metadata["file_name"] = name
    return metadata


def root_segment(
    identity: str, loaded: LoadedFile, metadata: JsonObject, schema: Schema, build: int
) -> Segment:
    """The root node of a document.

    Args:
        identity: The document's.
        loaded: Its text, and the places in it.
        metadata: Its metadata.
        schema: The filterable fields.
        build: Number of its build.

    Raises:
        ConfigError: If a field's value does not fit, or metadata cannot be stored.
    """
    fields = {}
    for name, declared in schema.items():
        value = check_value(name, declared, metadata.get(name))
        if value is None:
            value = declared.default_value
        fields[name] = value
        if value is not None:
            metadata[name] = value
    uid = root_uid(identity)
    return Segment(
        uid=uid,
        build=build,
        group=LAZY_ROOT_NAME,
        document_id=uid,
        path=identity,
        parent=None,
        number=1,
        content=loaded.text,
        metadata=check_metadata(metadata),
        fields=fields,
        locations=(*loaded.locations, *loaded.tables),
    )


# Nodes below the root

NodesByText: TypeAlias = dict["tuple[str, str] | None", tuple[Segment, Sequence[Segment]]]
"""Nodes with the node above them, by that one's content."""


ToDo: TypeAlias = tuple[PendingVersion, BuildRow, NodesByText]
"""A document to transform, its new build, and nodes to use again."""


MadeNodes: TypeAlias = tuple[list[int], list[Segment]]
"""How many nodes each parent gave, and the nodes."""


def content_key(segment: Segment) -> tuple[str, str]:
    """The type and the text of a node's content."""
    return type(segment.content).__name__, content_text(segment.content)


def make_nodes(
    reader: VersionReader,
    target: GroupTarget,
    version: PendingVersion,
    number: int,
    plan: BuildPlan,
    reusable: NodesByText,
    made_drafts: Iterator[list[Draft]] | None = None,
) -> MadeNodes:
    """Transform a document: returns how many nodes each parent gave, and the nodes.

    Args:
        reader: Reads what the transform asks for.
        target: The group.
        version: The document.
        number: Number of the build.
        plan: What the document is brought to.
        reusable: Nodes of earlier builds to use again.
        made_drafts: What a launcher has made of the other parents; None calls the transform.
    """
    schema = reader.nodes.schema
    parents = version.segments[target.parent]
    keys = [content_key(parent) if reusable else None for parent in parents]
    if made_drafts is None:
        source = reader.source_of(version, plan, target)
        new = [
            DocNode.from_segment(parent, source)
            for parent, key in zip(parents, keys, strict=True)
            if key not in reusable
        ]
        made_drafts = run_transforms(target.transform, new)
    segments: list[Segment] = []
    counts = []
    for parent, key in zip(parents, keys, strict=True):
        before = len(segments)
        try:
            if key in reusable:
                parent_before, nodes = reusable[key]
                count = len(nodes)
                rebound = rebound_segments(
                    nodes, [parent_before], [parent], [count], number, schema
                )
                children = [
                    child._replace(number=at) for at, child in enumerate(rebound, start=before + 1)
                ]
            else:
                drafts = next(made_drafts)
                children = child_segments(
                    parent, target.name, number, drafts, schema, before=before
                )
        except (TransformError, ConfigError) as exc:
            # of a batch of nodes it may be another's
            uid = getattr(exc, "uid", "") or parent.uid
            raise TransformError(str(exc), group=target.name, uid=uid) from (exc.__cause__ or exc)
        segments += children
        counts.append(len(children))
    return counts, segments


def reusable_nodes(
    reader: VersionReader,
    written: Iterable[BuildRow],
    input_hash: str,
    version: PendingVersion,
    target: GroupTarget,
    plan: BuildPlan,
) -> NodesByText:
    """Nodes of earlier builds to use again by their parent's text, where a model made them of
    texts alone.

    The part of the path that the transform reads (behind the slash of the input) has to be the
    same.
    """
    if target.sees_nodes or target.reads_source or not target.reuses_texts:
        return {}
    documents = {row.id for row in version.sources}
    by_path = input_hash.partition("/")[2]
    rows = [
        row
        for row in written
        if row.document in documents and row.input.partition("/")[2] == by_path
    ]
    if not rows:
        return {}
    newest = max(rows, key=lambda row: row.number)
    build = reader.ledger.builds.with_parents([newest.number])[newest.number]
    nodes = reader.nodes.of_build(target.collection, build)
    parents: Sequence[Segment] = ()
    if build.parent:
        parents = reader.nodes.of_build(plan.collection(target.parent), build.parent)
    nodes_by_text: NodesByText = {}
    start = 0
    for parent, count in zip(parents, json.loads(newest.counts), strict=False):
        nodes_by_text.setdefault(content_key(parent), (parent, nodes[start : start + count]))
        start += count
    return nodes_by_text


Copy: TypeAlias = tuple[PendingVersion, BuildRow, int]
"""A document, its new build, and the number of the build that is copied."""


def copied_nodes(
    reader: VersionReader, copies: Sequence[Copy], target: GroupTarget, plan: BuildPlan
) -> Iterator[tuple[Copy, list[Segment]]]:
    """Take over the nodes of earlier builds, which were made of equal parents."""
    numbers = [number for _, _, number in copies]
    with reader.reading():
        builds_before = reader.ledger.builds.with_parents(set(numbers))
        builds = [builds_before[number] for number in numbers]
        nodes_before = reader.nodes.of_builds(target.collection, builds)
        if target.parent == plan.root:  # whose nodes have no span that could differ
            parents_before = [version.segments[target.parent] for version, _, _ in copies]
        else:
            above = [build.parent for build in builds if build.parent is not None]
            parents_before = reader.nodes.of_builds(plan.collection(target.parent), above)
    schema = reader.nodes.schema
    for copy, nodes, parents in zip(copies, nodes_before, parents_before, strict=True):
        version, row, _ = copy
        counts = json.loads(row.counts)
        now = version.segments[target.parent]
        yield copy, rebound_segments(nodes, parents, now, counts, row.number, schema)


def child_segments(
    parent: Segment, group: str, build: int, drafts: Sequence[Draft], schema: Schema, *, before: int
) -> list[Segment]:
    """The nodes that a transform made of one node.

    Args:
        parent: The node.
        group: Name of the group.
        build: Number of their build.
        drafts: What the transform returned.
        schema: The filterable fields.
        before: How many nodes of the group precede them in the document.

    Raises:
        ConfigError: If a field's value does not fit, or metadata cannot be stored.
    """
    uids = child_uids(parent.uid, group, range(1, len(drafts) + 1))
    shift = parent.span[0] if parent.span else 0
    segments = []
    for number, (uid, draft) in enumerate(zip(uids, drafts, strict=True), start=before + 1):
        metadata: Metadata = EMPTY
        fields = parent.fields
        if draft.metadata:
            metadata = check_metadata(draft.metadata)
            fields = _own_fields(parent.fields, draft.metadata, schema)
        span = draft.span
        if span is not None and shift:
            span = (span[0] + shift, span[1] + shift)
        child = Segment(
            uid=uid,
            build=build,
            group=group,
            document_id=parent.document_id,
            path=parent.path,
            parent=parent.uid,
            number=number,
            content=draft.content,
            metadata=metadata,
            fields=fields,
            span=span,
        )
        segments.append(child)
    return segments


def rebound_segments(
    before: Sequence[Segment],
    parents_before: Sequence[Segment],
    parents: Sequence[Segment],
    counts: Sequence[int],
    build: int,
    schema: Schema,
) -> list[Segment]:
    """Nodes that were made of equal parents, as nodes of these: what the transform would return
    again.

    Args:
        before: The nodes, in order.
        parents_before: The nodes above them.
        parents: The nodes above them now, as many.
        counts: How many each of these has.
        build: Number of their build.
        schema: The filterable fields.
    """
    rest = iter(before)
    group = before[0].group if before else ""
    segments = []
    for parent_before, parent, count in zip(parents_before, parents, counts, strict=True):
        uids = child_uids(parent.uid, group, range(1, count + 1))
        shift = (parent.span or (0, 0))[0] - (parent_before.span or (0, 0))[0]
        for uid, node in zip(uids, itertools.islice(rest, count), strict=True):
            fields = parent.fields
            if node.metadata:
                fields = _own_fields(parent.fields, node.metadata, schema)
            span = node.span
            if span is not None and shift:
                span = (span[0] + shift, span[1] + shift)
            rebound = node._replace(
                uid=uid,
                build=build,
                document_id=parent.document_id,
                path=parent.path,
                parent=parent.uid,
                fields=fields,
                span=span,
            )
            segments.append(rebound)
    return segments


def _own_fields(above: Fields, metadata: Metadata, schema: Schema) -> Fields:
    """A node's fields: those of the node above it, overlaid with the declared ones in its own
    metadata.
    """
    declared = {
        name: check_value(name, schema[name], value)
        for name, value in metadata.items()
        if name in schema and name not in BUILT_IN_FIELDS and value is not None
    }
    return {**above, **declared} if declared else above


# Digests

_VOLATILE = "last_accessed_date"
_SORTED = json.JSONEncoder(sort_keys=True, default=str)  # json.dumps would make one each time


def root_digest(root: Segment) -> str:
    """Digest of a root node, without the time of last access, which reading may change."""
    metadata = dict(root.metadata)
    metadata.pop(_VOLATILE, None)
    fields = dict(root.fields)
    fields.pop(_VOLATILE, None)
    rest = _SORTED.encode([metadata, fields, root.locations])
    return digest([content_text(root.content), rest])


def output_digest(nodes: Sequence[Segment]) -> str:
    """Digest of a build's nodes as a store holds them, the time of last access included."""
    shared: dict[str, int] = {}  # path and fields, which most nodes of a build have in common
    # the same by the fields' object, as which they mostly come
    seen: dict[tuple[str, int], int] = {}
    pieces = [""]
    for node in nodes:
        key = (node.path, id(node.fields))
        common = seen.get(key)
        if common is None:
            text = _SORTED.encode([node.path, dict(node.fields)])
            common = shared.setdefault(text, len(shared))
            seen[key] = common
        kind, text = _typed_content(node)
        start, end = node.span or ("", "")
        # The parts of a node, and nodes, cannot run into each other: free text is preceded by its
        # length.
        head = f"{common} {node.uid}-{node.build} {node.parent} {node.number} {start} {end} {kind}"
        pieces += (head, f" {len(text)} ", text)
        if node.metadata or node.locations:
            pieces.append(_SORTED.encode([dict(node.metadata), node.locations]))
    return digest(shared, pieces=pieces)


def input_digest(
    line: Sequence[Sequence[Segment]],
    *,
    sees_nodes: bool,
    path_key: Callable[[str], str] | None = None,
    source: str = "",
) -> str:
    """Digest of everything that a transform can see.

    The six built-in fields are left out, so that a file that is moved or touched costs no
    transform; so are the nodes beside or below, which may not be made yet.

    Args:
        line: The document's nodes of the parent group, of the group above that and so on; the root
            node last.
        sees_nodes: Whether it is called with nodes, through which it reaches those above; else it
            sees nothing but the parents' content.
        path_key: The part of the document's path that it reads; None for nothing.
        source: Digest of the file whose source text it reads; "" for none.
    """
    parts = [str(len(line[0]))]
    for node in line[0]:
        parts += _typed_content(node)
    if sees_nodes:
        for nodes in line:
            for node in nodes:
                metadata = {
                    name: value
                    for name, value in node.metadata.items()
                    if name not in BUILT_IN_FIELDS
                }
                parts.append(_SORTED.encode(metadata))
            parts += [_SORTED.encode([node.span, node.number]) for node in nodes]
        for nodes in line[1:]:
            for node in nodes:
                parts += _typed_content(node)
        parts += map(_SORTED.encode, line[-1][0].locations)
    if path_key is None and not source:
        return digest(parts)
    rest = "" if path_key is None else path_key(line[-1][0].path)
    if source:
        rest += f" source {source}"
    # After a slash, so that the rest can be compared without the transform.
    return f"{digest(parts)}/{rest}"


def _typed_content(node: Segment) -> tuple[str, str]:
    """The type of a node's content ("" for text), and the content as text."""
    content = node.content
    if isinstance(content, str):
        return "", content
    return type(content).__name__, _SORTED.encode(content)
