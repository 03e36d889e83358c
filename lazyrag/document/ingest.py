"""What documents are to be brought to: from what is defined, what is live and what is asked for."""

from __future__ import annotations

import functools
import itertools
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias, TypeVar

from lazyrag.data.fields import BUILT_IN_FIELDS, Schema, check_value
from lazyrag.data.node import DocNode
from lazyrag.data.segment import (
    EMPTY,
    LAZY_ROOT_NAME,
    Place,
    ReadOnly,
    Segment,
    Span,
    check_metadata,
    child_uids,
    content_text,
    copy_value,
    digest,
    root_uid,
)
from lazyrag.document.fingerprint import fingerprint
from lazyrag.document.groups import LOADING, Definitions, Step
from lazyrag.document.ledger import BuildRow, DocumentRow, Flip, Ledger, NewPart
from lazyrag.document.load_files import Loading
from lazyrag.document.nodes import NodeStore
from lazyrag.document.report import Failures, OnProgress, ProgressMeter
from lazyrag.document.term_index import BuildTerms, TermSpaces
from lazyrag.document.tree import Build, LiveGroup, LiveSpace, SpaceKey, Tree
from lazyrag.errors import (
    ConfigError,
    IngestionError,
    IngestionWarning,
    LazyRAGError,
    LoadError,
    NotBuiltError,
    StaleNodeError,
    StoreBusyError,
    StoreError,
    TransformError,
    sentence,
    set_stop_event,
    warn_user,
)
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.directory import FoundFile, built_in_metadata, signature_of
from lazyrag.models.embedding import CheckedEmbedder, collected, length_of
from lazyrag.models.protocols import Embedded
from lazyrag.stores.protocol import VectorRow
from lazyrag.stores.sqlite import schema_text
from lazyrag.text.analyzers import analysers, term_function
from lazyrag.transforms.base import Draft, run_transforms
from lazyrag.types import Embedding, Fields

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 4  # items for each worker that may be done before they are asked for
_WORTH_A_THREAD_S = 0.002  # handing an item over costs a few tenths of a millisecond where Python is what works
_SURELY_WORTH_ONE_S = 0.05


def ordered(
    executor: Executor | None, workers: int, function: Callable[[T], R], items: Iterable[T]
) -> Iterator[tuple[T, R | Exception]]:
    """Each item with what a function makes of it, or the exception that it raised, in the items' order.

    Items are done here, one after the other, until threads are of use: until one takes very long, or two in a row take
    long, as a single one may have met the garbage collector or another program. At most a few results wait to be asked
    for, so memory stays bounded however many items there are. Where an interrupt comes, what was not begun is not done,
    and what was begun comes before the interrupt goes on, unless it looks at `lazyrag.errors` and stops.

    Args:
        executor: Whose workers call the function; None for none.
        workers: How many it has.
        function: Called with each item, by several workers at once.
        items: Any number.

    Example:
        >>> list(ordered(None, 1, lambda n: 6 // n, [3, 0]))
        [(3, 2), (0, ZeroDivisionError('integer division or modulo by zero'))]
    """
    rest = iter(items)
    was_long = False
    for item in rest:
        since = time.perf_counter()
        try:
            result: R | Exception = function(item)
        except Exception as exc:  # noqa: BLE001  it is the item's result
            result = exc
        took = time.perf_counter() - since
        is_long = took > _WORTH_A_THREAD_S
        yield item, result
        if executor is not None and (took > _SURELY_WORTH_ONE_S or (is_long and was_long)):
            yield from _threaded(executor, workers, function, rest)
        was_long = is_long


def _threaded(
    executor: Executor, workers: int, function: Callable[[T], R], items: Iterator[T]
) -> Iterator[tuple[T, R | Exception]]:
    waiting: deque[tuple[T, Future[R]]] = deque()
    interrupt: BaseException | None = None
    try:
        while True:
            try:
                if interrupt is None:
                    for item in itertools.islice(items, _AHEAD * workers - len(waiting)):
                        waiting.append((item, executor.submit(function, item)))
                if not waiting:
                    break
                result = _result(waiting[0][1])
            except BaseException as exc:
                if interrupt is not None and not (waiting and _raised(waiting[0][1], exc)):  # somebody insists
                    raise
                interrupt = interrupt or exc
                _stop(executor)
                waiting = deque(pair for pair in waiting if not (pair[1].cancel() or _raised(pair[1], exc)))
                continue
            item, _ = waiting.popleft()
            yield item, result
    finally:
        for _, future in waiting:
            future.cancel()
    if interrupt is not None:
        raise interrupt


def _stop(executor: Executor) -> None:
    """Tell workers that their work is not wanted any more."""
    if isinstance(executor, _Workers):
        executor.stopping.set()


def _result(future: Future[R]) -> R | Exception:
    try:
        return future.result()
    except Exception as exc:  # noqa: BLE001  it is the item's result
        return exc


def _raised(future: Future[R], exc: BaseException) -> bool:
    """Whether an interrupt reached the worker that had this item, not the thread that waits."""
    return future.done() and future.exception() is exc


_owners = threading.local()


def is_worker_of(owner: object) -> bool:
    """Whether this thread is one of the workers of an owner, see `executor_of`."""
    return getattr(_owners, "owner", None) is owner


class _Workers(ThreadPoolExecutor):
    """Threads that know whom they work for, and by which event they learn that their work is not wanted any more."""

    def __init__(self, workers: int, owner: object) -> None:
        self.stopping = threading.Event()
        super().__init__(workers, "lazyrag ingestion", initializer=self._set_up, initargs=(owner,))

    def _set_up(self, owner: object) -> None:
        _owners.owner = owner
        set_stop_event(self.stopping)


@contextmanager
def executor_of(workers: int, count: int, owner: object) -> Iterator[ThreadPoolExecutor | None]:
    """Threads for what takes several; at once let go of where somebody stops."""
    if workers == 1 or count < 2:
        yield None
        return
    executor = _Workers(workers, owner)
    try:
        yield executor
    except BaseException:
        executor.stopping.set()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


_BUILDS_AT_ONCE = 2_000  # bounds the memory of their keys


def purge(ledger: Ledger, nodes: NodeStore, before: float) -> int:
    """Remove builds that are dead, and groups and spaces that were dropped, since before a time.

    It may end at any instant: what is left is removed the next time. Readers are told before, so that one who still
    reads what goes does it again.

    Args:
        ledger: The ledger, whose lease is held.
        nodes: The stores.
        before: Seconds since 1970.

    Returns:
        How many builds went one by one.
    """
    builds = ledger.builds.dead(before)
    groups = ledger.groups.dropped_groups(before)
    spaces = ledger.groups.dropped_spaces(before)
    if not (builds or groups or spaces):
        ledger.documents.forget_deleted()  # whose builds went just before a program ended
        return 0
    ledger.announce_removal()
    for space, collection in spaces:
        if collection:
            nodes.vectors.drop(collection)
        ledger.groups.forget_space(space)
    for group, collection in groups:
        for vectors in ledger.groups.vector_collections(group):
            nodes.vectors.drop(vectors)
        nodes.segments.drop(collection)
        ledger.groups.forget_group(group)
    # A build's keys follow from those above it, so that all go from the stores before any goes from the ledger.
    for (group, collection), of_group in itertools.groupby(builds, key=lambda one: one[1:]):
        numbers = [number for number, _, _ in of_group]
        for start in range(0, len(numbers), _BUILDS_AT_ONCE):
            some = ledger.builds.with_parents(numbers[start : start + _BUILDS_AT_ONCE])
            keys = [key for build in some.values() for key in build.keys]
            for vectors in ledger.groups.vector_collections(group):
                nodes.vectors.delete(vectors, keys=keys)
            nodes.segments.delete(collection, keys=keys)
    ledger.builds.forget(number for number, _, _ in builds)
    ledger.documents.forget_deleted()
    return len(builds)


_VOLATILE = "last_accessed_date"
_SORTED = json.JSONEncoder(sort_keys=True, default=str)  # json.dumps would make one each time


@dataclass(frozen=True, slots=True)
class FileMetadataParts:
    """What a document's metadata is made of, each part before those that precede it.

    Args:
        loaded: What the loader found.
        said: What ``file_metadata`` gave.
        updates: What ``update_metadata`` gave.
        built_in: The six fields that the file system gives.
    """

    loaded: Mapping[str, Any]
    said: Mapping[str, Any]
    updates: Mapping[str, Any]
    built_in: Mapping[str, Any]

    def merged(self) -> dict[str, Any]:
        """All of it."""
        return {**self.loaded, **self.said, **self.updates, **self.built_in}


def looked_at(file: FoundFile) -> Mapping[str, Any]:
    """What the file system says of a file.

    Raises:
        LoadError: If it cannot be looked at.
    """
    try:
        return built_in_metadata(file.path)
    except OSError as exc:
        msg = f"The file cannot be looked at ({exc.strerror}). Check that it exists and may be read."
        raise LoadError(msg, path=str(file.path)) from exc


def root_segment(identity: str, loaded: LoadedFile, parts: FileMetadataParts, schema: Schema, build: int) -> Segment:
    """The root node of a document.

    Args:
        identity: The document's.
        loaded: Its text, and the places in it.
        parts: Its metadata.
        schema: The filterable fields.
        build: Number of the build it is.

    Raises:
        ConfigError: If a field's value does not fit, or metadata cannot be kept.
    """
    metadata = parts.merged()
    fields = _file_fields(metadata, schema)
    metadata.update((name, value) for name, value in fields.items() if value is not None)
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
        places=loaded.places,
    )


def child_segments(
    parent: Segment, group: str, build: int, drafts: Sequence[Draft], schema: Schema, *, before: int
) -> list[Segment]:
    """What a group makes of one node.

    Args:
        parent: The node.
        group: Name of the group.
        build: Number of the build they are part of.
        drafts: What the transform returned.
        schema: The filterable fields.
        before: How many nodes of the group precede them in the document.

    Raises:
        ConfigError: If a field's value does not fit, or metadata cannot be kept.
    """
    uids = child_uids(parent.uid, group, range(1, len(drafts) + 1))
    return [
        Segment(
            uid=uid,
            build=build,
            group=group,
            document_id=parent.document_id,
            path=parent.path,
            parent=parent.uid,
            number=number,
            content=draft.content,
            metadata=check_metadata(draft.metadata) if draft.metadata else EMPTY,
            fields=_own_fields(parent.fields, draft.metadata, schema) if draft.metadata else parent.fields,
            span=_span(parent, draft),
        )
        for number, (uid, draft) in enumerate(zip(uids, drafts, strict=True), start=before + 1)
    ]


def rebound_segments(
    before: Sequence[Segment],
    parents_before: Sequence[Segment],
    parents: Sequence[Segment],
    counts: Sequence[int],
    build: int,
    schema: Schema,
) -> list[Segment]:
    """Nodes that were made of equal parents, as nodes of these: what the transform would return again.

    Args:
        before: The nodes, in order.
        parents_before: The nodes above them.
        parents: The nodes above them now, as many.
        counts: How many each of these has.
        build: Number of the build they are part of.
        schema: The filterable fields.
    """
    rest = iter(before)
    group = before[0].group if before else ""
    return [
        node._replace(
            uid=uid,
            build=build,
            document_id=parent.document_id,
            path=parent.path,
            parent=parent.uid,
            fields=_own_fields(parent.fields, node.metadata, schema) if node.metadata else parent.fields,
            span=_moved_span(node.span, parent_before, parent),
        )
        for parent_before, parent, count in zip(parents_before, parents, counts, strict=True)
        for uid, node in zip(
            child_uids(parent.uid, group, range(1, count + 1)), itertools.islice(rest, count), strict=True
        )
    ]


def _moved_span(span: Span | None, parent_before: Segment, parent: Segment) -> Span | None:
    """A span in a parent's source, where an equal parent stands elsewhere."""
    if span is None:
        return None
    shift = (parent.span or (0, 0))[0] - (parent_before.span or (0, 0))[0]
    return span[0] + shift, span[1] + shift


def root_digest(root: Segment) -> str:
    """Digest of all that a root node is, but for the time of last access, which reading may change."""
    told = [{name: value for name, value in one.items() if name != _VOLATILE} for one in (root.metadata, root.fields)]
    return digest([content_text(root.content), _SORTED.encode([*told, _told(root.places)])])


def output_digest(nodes: Sequence[Segment]) -> str:
    """Digest of a build's nodes, as a store is to keep them; the time of last access counts here as well."""
    shared: dict[str, int] = {}  # path and fields, which most nodes of a build have in common
    seen: dict[tuple[str, int], int] = {}  # the same by the fields' object, as which they mostly come
    parts: list[str] = []
    for one in nodes:
        common = seen.get((one.path, id(one.fields)))
        if common is None:
            told = _SORTED.encode([one.path, dict(one.fields)])
            common = seen[one.path, id(one.fields)] = shared.setdefault(told, len(shared))
        kind, text = _content_told(one)
        start, end = one.span or ("", "")
        rest = _SORTED.encode([dict(one.metadata), _told(one.places)]) if one.metadata or one.places else ""
        # The parts of a node, and nodes, cannot run into each other: the length of what is free stands before it.
        parts.append(
            f"{common} {one.uid}-{one.build} {one.parent} {one.number} {start} {end} {kind} {len(text)} {text}{rest}"
        )
    return digest([*shared, "".join(parts)])


def _content_told(one: Segment) -> tuple[str, str]:
    """A node's content as text, and what kind of value it is."""
    content = one.content
    return ("", content) if isinstance(content, str) else (type(content).__name__, _SORTED.encode(content))


def _told(places: Iterable[Place]) -> list[tuple[int, int, str, str]]:
    return [(place.start, place.end, place.kind, place.label) for place in places]


def input_digest(
    line: Sequence[Sequence[Segment]], *, sees_nodes: bool, path_told: Callable[[str], str] | None = None
) -> str:
    """Digest of what a transform can see of the nodes it is called with.

    The six built-in fields are left out: a file that is moved or touched costs no transform. So is what stands beside
    or beneath a node, which may not be made yet.

    Args:
        line: The document's nodes of the parent group, of the group above that and so on; the root node last.
        sees_nodes: Whether it is called with nodes, through which it reaches those above; else it sees nothing but the
            parents' content.
        path_told: What of the document's path it reads; None for nothing.
    """
    parts = [str(len(line[0])), *itertools.chain.from_iterable(map(_content_told, line[0]))]
    if sees_nodes:
        for nodes in line:
            parts += [_metadata_text(one) for one in nodes]
            parts += [_SORTED.encode([one.span, one.number]) for one in nodes]
        parts += [told for nodes in line[1:] for one in nodes for told in _content_told(one)]
        parts += [_SORTED.encode([place.start, place.end, place.kind, place.label]) for place in line[-1][0].places]
    # Behind a slash, so that who does not know the transform can compare the rest.
    return digest(parts) + ("" if path_told is None else f"/{path_told(line[-1][0].path)}")


def _metadata_text(segment: Segment) -> str:
    own = {name: value for name, value in segment.metadata.items() if name not in BUILT_IN_FIELDS}
    return _SORTED.encode(own)


def _file_fields(metadata: Mapping[str, Any], schema: Schema) -> Fields:
    """A file's filterable fields: checked, defaults filled in, None where there is neither value nor default."""
    fields = {}
    for name, field in schema.items():
        value = check_value(name, field, metadata.get(name))
        fields[name] = field.default_value if value is None else value
    return fields


def _own_fields(above: Fields, metadata: Mapping[str, Any], schema: Schema) -> Fields:
    """A node's fields: those of the node above it, overlaid with its own metadata's declared ones."""
    own = {
        name: check_value(name, schema[name], value)
        for name, value in metadata.items()
        if name in schema and name not in BUILT_IN_FIELDS and value is not None
    }
    return {**above, **own} if own else above


def _span(parent: Segment, draft: Draft) -> Span | None:
    """The draft's span in its source: the parent's source if the parent has a span there, else the parent."""
    if draft.span is None or parent.span is None:
        return draft.span
    start = parent.span[0]
    return start + draft.span[0], start + draft.span[1]


class EarlierNodes:
    """What each text of a document gave before.

    Args:
        nodes: The nodes of a build, in order.
        parents: The nodes above them.
        counts: How many each of these has, as JSON.
    """

    def __init__(self, nodes: Sequence[Segment] = (), parents: Sequence[Segment] = (), counts: str = "[]") -> None:
        self._found: dict[tuple[str, str], tuple[Segment, Sequence[Segment]]] = {}
        start = 0
        for parent, count in zip(parents, json.loads(counts), strict=False):
            self._found.setdefault(_content_key(parent), (parent, nodes[start : start + count]))
            start += count

    def __contains__(self, parent: Segment) -> bool:
        return bool(self._found) and _content_key(parent) in self._found

    def of(self, parent: Segment, build: int, schema: Schema, *, before: int) -> list[Segment]:
        """The nodes that a text gave, as nodes of another build.

        Args:
            parent: What has that text now.
            build: The other build.
            schema: The filterable fields.
            before: How many nodes of the group precede them in the document.
        """
        parent_before, nodes = self._found[_content_key(parent)]
        rebound = rebound_segments(nodes, [parent_before], [parent], [len(nodes)], build, schema)
        return [node._replace(number=number) for number, node in enumerate(rebound, start=before + 1)]


def _content_key(segment: Segment) -> tuple[str, str]:
    return type(segment.content).__name__, content_text(segment.content)


D = TypeVar("D", bound=Hashable)

_AT_ONCE = 1024  # texts; bounds their memory, and fills the batches of any model


def embed_documents(
    embedder: CheckedEmbedder, dimension: int, texts: Iterable[tuple[D, Sequence[str]]], known: Mapping[str, Embedded]
) -> Iterator[tuple[D, Sequence[Embedded]]]:
    """For each document what became of each of its texts, as soon as that is known.

    The texts of several documents are embedded together: a batch need not end where a file does, and models that pad
    like to choose texts of equal length among many. So documents come in any order.

    Args:
        embedder: What embeds.
        dimension: The length that vectors must have, or `SPARSE`; 0 where it is not known yet.
        texts: Documents with their texts, at least one each.
        known: Vectors of texts that need not be embedded again; read anew for every few documents.
    """
    waiting: dict[D, Sequence[str]] = {}
    count = 0
    for document, own in texts:
        waiting[document] = own
        count += len(own)
        if count >= _AT_ONCE:
            yield from _embed_together(embedder, dimension, waiting, known)
            waiting, count = {}, 0
    yield from _embed_together(embedder, dimension, waiting, known)


def _embed_together(
    embedder: CheckedEmbedder, dimension: int, texts: Mapping[D, Sequence[str]], known: Mapping[str, Embedded]
) -> Iterator[tuple[D, Sequence[Embedded]]]:
    users: dict[str, list[D]] = {}  # the documents in which a text stands, once for each time
    for document, own in texts.items():
        for text in own:
            users.setdefault(text, []).append(document)
    missing = {document: len(own) for document, own in texts.items()}
    found: dict[str, Embedded] = {}

    def enter(text: str, result: Embedded) -> Iterator[tuple[D, Sequence[Embedded]]]:
        found[text] = result
        for document in users[text]:
            missing[document] -= 1
            if not missing[document]:
                yield document, [found[one] for one in texts[document]]

    for text in users:
        if text in known:
            yield from enter(text, known[text])
    distinct = [text for text in users if text not in found]
    for batch in embedder.batches(distinct, dimension):
        for place, result in zip(batch.positions, batch.results, strict=True):
            yield from enter(distinct[place], result)


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


class Indexing:
    """Embeds and analyses the nodes of documents.

    Args:
        ledger: The ledger, whose lease is held.
        nodes: The stores.
        fetch: Has the nodes of a group at hand for all of some documents.
    """

    def __init__(self, ledger: Ledger, nodes: NodeStore, fetch: Callable[[Sequence[Work], int, Targets], None]) -> None:
        self._ledger = ledger
        self._nodes = nodes
        self._fetch = fetch

    def embed(self, target: VectorsTarget, batch: Batch) -> None:
        """Embed what a collection of vectors does not hold yet."""
        ready = self._ready(target, batch)
        known: dict[str, Embedded] = {}

        def texts() -> Iterator[tuple[Work, Sequence[str]]]:
            for work in ready:
                known.update(self._known_vectors(target, work, batch.targets))
                yield work, [content_text(one.content) for one in work.segments[target.group]]

        rows: list[VectorRow] = []
        done: list[Work] = []
        try:
            for work, results in embed_documents(target.embedder, target.dimension, texts(), known):
                batch.tick(target.step)
                try:
                    vectors = collected(results, target.embedder.name, target.dimension)
                except NOT_THE_FILES_FAULT:
                    raise
                except LazyRAGError as exc:
                    batch.fail(target.step, work, exc)
                    continue
                self._open_vectors(target, length_of(vectors[0]))
                own = zip(work.segments[target.group], vectors, strict=True)
                rows += [VectorRow(one.key, vector, one.fields) for one, vector in own]
                done.append(work)
        finally:
            if rows:
                self._nodes.vectors.upsert(target.collection, rows)
            for work in done:
                work.covered.append((target.id, work.current[target.group].number))

    def _open_vectors(self, target: VectorsTarget, dimension: int) -> None:
        if not target.dimension:
            self._nodes.create_vectors(target.collection, dimension, target.step.embed_key or "")
            self._ledger.groups.set_dimension(target.id, dimension)
            target.dimension = dimension

    def _known_vectors(self, target: VectorsTarget, work: Work, targets: Targets) -> Mapping[str, Embedded]:
        """The vectors of what is live of a document, by text: an unchanged text is not embedded again."""
        name = targets.names[target.group]
        group = self._ledger.tree.groups.get(name)
        space = (
            group.spaces.get(("vectors", str(target.step.embed_key), target.identity)) if group is not None else None
        )
        found: dict[str, Embedded] = {}
        for row in work.sources:
            build = group.builds.get(row.uid) if group is not None else None
            if build is None or group is None or space is None or not space.dimension:
                continue
            if build.number == work.current[target.group].number:
                continue
            texts = {one.key: content_text(one.content) for one in self._nodes.of_build(group.collection, build)}
            stored = self._nodes.vectors.get(space.collection, list(texts))
            found.update((texts[one.key], one.vector) for one in stored)
        return found

    def analyse(self, target: TermsTarget, batch: Batch) -> None:
        """Analyse what a lexical index does not hold yet; the terms stay with the documents until they become live."""
        ready = self._ready(target, batch)
        for work in ready:
            batch.tick(target.step)
            segments = work.segments[target.group]
            try:
                terms = [target.terms_of(content_text(one.content)) for one in segments]
            except LazyRAGError as exc:
                batch.fail(target.step, work, exc)
                continue
            number = work.current[target.group].number
            keys, fields = [one.key for one in segments], [one.fields for one in segments]
            work.terms[target.id] = BuildTerms(number, keys, terms, fields)
            work.covered.append((target.id, number))

    def _ready(self, target: TermsTarget | VectorsTarget, batch: Batch) -> list[Work]:
        """The documents whose build of a target's group has nodes that the target does not hold, these at hand."""
        having = {
            work.current[target.group].number: work
            for work in batch.works
            if target.group in work.current and any(json.loads(work.current[target.group].counts))
        }
        covered = self._ledger.builds.covered(target.id, having)
        ready = [work for number, work in having.items() if number not in covered]
        self._fetch(ready, target.group, batch.targets)
        return ready


_WRITTEN_EVERY_S = 5.0  # so that a crash costs no more than that of what slow transforms made


class Ingestion:
    """Brings documents to targets, a batch at a time. Who uses it holds the ledger's lease.

    Args:
        ledger: The ledger.
        nodes: The stores.
        terms: The lexical indexes.
        tree: What stands for the Document's tree, for the nodes that transforms see.
        workers: How many threads call loaders and transforms; 1: none.
        keep_versions: How many versions of a document before the live one are kept.
    """

    def __init__(
        self, ledger: Ledger, nodes: NodeStore, terms: TermSpaces, tree: object, *, workers: int, keep_versions: int
    ) -> None:
        self._ledger = ledger
        self._nodes = nodes
        self._terms = terms
        self._tree = tree
        self._workers = workers
        self._keep_versions = keep_versions
        self._indexing = Indexing(ledger, nodes, self._fetch_all)

    def bring(self, batch: Batch) -> None:
        """Bring documents to their targets and make them live, in one transaction.

        A document whose step fails is reported and left out of that step. One that was live before stays as it was, if
        it would lose something by that.
        """
        works, targets = batch.works, batch.targets
        try:
            self._make_roots(batch)
            for group in targets.groups:
                self._transform(group, batch)
            for vectors in targets.vectors:
                self._indexing.embed(vectors, batch)
            for terms in targets.terms:
                self._indexing.analyse(terms, batch)
        except BaseException:
            # An interrupt, or a store that fails: what is complete need not be done again.
            with suppress(StoreError):
                self._flip([work for work in works if _is_complete(work, targets)], targets)
            raise
        self._flip(works, targets)

    def _make_roots(self, batch: Batch) -> None:
        loading = [work for work in batch.works if work.make_root is not None]
        if not loading:
            return
        numbers = self._ledger.builds.reserve(len(loading))

        def make(item: tuple[Work, int]) -> Root:
            work, number = item
            return work.new_root(number)

        made: list[tuple[Work, Root]] = []
        try:
            for (work, _), result in ordered(batch.executor, self._workers, make, zip(loading, numbers, strict=True)):
                batch.tick(LOADING)
                if isinstance(result, Exception):
                    batch.fail(LOADING, work, _expected(result))
                else:
                    made.append((work, result))
        finally:
            self._write_roots(made, batch.targets)

    def _write_roots(self, made: Sequence[tuple[Work, Root]], targets: Targets) -> None:
        """Write root nodes, or find those that are written already."""
        registered = self._ledger.documents.register([root.row for _, root in made])
        written = self._known_builds(targets.root, [row.id for row in registered])
        new: list[tuple[Work, BuildRow, list[Segment]]] = []
        for (work, root), row in zip(made, registered, strict=True):
            work.row = row
            told = root_digest(root.segment)
            known = work.before.get(targets.root)
            if known is None or known.input != told:
                known = written.get((row.id, None, told))
            if known is not None:
                unchanged = known == work.before.get(targets.root)
                work.current = dict(work.before) if unchanged else {**work.current, targets.root: known}
                work.segments[targets.root] = [root.segment._replace(build=known.number)]
                continue
            number = root.segment.build
            new.append((work, BuildRow(number, row.id, targets.root, None, number, told, "[1]"), [root.segment]))
        self._write(targets.root_collection, new)

    def _transform(self, target: GroupTarget, batch: Batch) -> None:
        works, targets = batch.works, batch.targets
        ready = [work for work in works if target.id not in work.current and target.parent in work.current]
        if not ready:
            return
        above_it = targets.line(target)
        for group in above_it:
            self._fetch_all(ready, group, targets)
        documents = {row.id for work in ready for row in work.sources}
        written = self._known_builds(target.id, documents)
        numbers = self._ledger.builds.reserve(len(ready))
        new: list[tuple[Work, BuildRow, list[Segment]]] = []
        to_do: list[tuple[Work, int, str, EarlierNodes]] = []
        for work, number in zip(ready, numbers, strict=True):
            above = work.current[target.parent]
            line = [work.segments[group] for group in above_it]
            told = input_digest(line, sees_nodes=target.sees_nodes, path_told=target.path_told)
            known = written.get((work.row.id, above.number, told))
            if known is not None:
                work.current[target.id] = known
                continue
            same = [written.get((row.id, None, told)) for row in work.sources]
            copied = next((one for one in same if one is not None), None)
            if copied is not None:
                row = BuildRow(number, work.row.id, target.id, above.number, above.root, told, copied.counts)
                new.append((work, row, self._copied(copied, work.segments[target.parent], number, target, targets)))
            else:
                to_do.append((work, number, told, self._earlier(written.values(), told, work, target, targets)))

        def transform(item: tuple[Work, int, str, EarlierNodes]) -> tuple[list[int], list[Segment]]:
            work, number, _, earlier = item
            return self._transformed(target, work, number, targets, earlier)

        since = time.monotonic()
        try:
            for (work, number, told, _), result in ordered(batch.executor, self._workers, transform, to_do):
                batch.tick(Step(target.name))
                if isinstance(result, Exception):
                    batch.fail(Step(target.name), work, _expected(result))
                    continue
                counts, segments = result
                above = work.current[target.parent]
                row = BuildRow(number, work.row.id, target.id, above.number, above.root, told, json.dumps(counts))
                new.append((work, row, segments))
                if time.monotonic() - since > _WRITTEN_EVERY_S:
                    self._write(target.collection, new)
                    new, since = [], time.monotonic()
        finally:
            self._write(target.collection, new)

    def _copied(
        self, copied: BuildRow, parents: Sequence[Segment], number: int, target: GroupTarget, targets: Targets
    ) -> list[Segment]:
        """The nodes of a build that was made of equal parents, as nodes of these."""
        before, parents_before = self._with_parents(copied, target, targets)
        counts = json.loads(copied.counts)
        return rebound_segments(before, parents_before, parents, counts, number, self._nodes.schema)

    def _with_parents(
        self, row: BuildRow, target: GroupTarget, targets: Targets
    ) -> tuple[list[Segment], list[Segment]]:
        """The nodes of a build, and those above them."""
        build = self._ledger.builds.with_parents([row.number])[row.number]
        nodes = self._nodes.of_build(target.collection, build)
        return nodes, self._nodes.of_build(targets.collection(target.parent), build.parent) if build.parent else []

    def _earlier(
        self, written: Iterable[BuildRow], told: str, work: Work, target: GroupTarget, targets: Targets
    ) -> EarlierNodes:
        """What is worth being used again of what a document had in a group: where models made it of texts alone.

        What of its path decides, behind the slash of the inputs, has to be the same.
        """
        if target.sees_nodes or not target.asks_models:
            return EarlierNodes()
        documents = {row.id for row in work.sources}
        by_path = told.partition("/")[2]
        rows = [row for row in written if row.document in documents and row.input.partition("/")[2] == by_path]
        if not rows:
            return EarlierNodes()
        newest = max(rows, key=lambda row: row.number)
        return EarlierNodes(*self._with_parents(newest, target, targets), newest.counts)

    def _transformed(
        self, target: GroupTarget, work: Work, number: int, targets: Targets, earlier: EarlierNodes
    ) -> tuple[list[int], list[Segment]]:
        """How many nodes each parent gave, and the nodes."""
        source = WorkSource(self._tree, work, targets, lambda one, group: self._segments(one, group, targets))
        parents = work.segments[target.parent]
        new = [DocNode.from_segment(above, source) for above in parents if above not in earlier]
        drafts_of_new = run_transforms(target.transform, new)
        made: list[Segment] = []
        counts: list[int] = []
        for above in parents:
            try:
                if above in earlier:
                    own = earlier.of(above, number, self._nodes.schema, before=len(made))
                else:
                    drafts = next(drafts_of_new)
                    own = child_segments(above, target.name, number, drafts, self._nodes.schema, before=len(made))
            except (TransformError, ConfigError) as exc:
                uid = getattr(exc, "uid", "") or above.uid  # where several were asked for at once it may be another's
                raise TransformError(str(exc), group=target.name, uid=uid) from (exc.__cause__ or exc)
            made += own
            counts.append(len(own))
        return counts, made

    def _flip(self, works: Sequence[Work], targets: Targets) -> None:
        flips: list[Flip] = []
        looked_at: list[DocumentRow] = []  # whose files were read, and gave what is live already
        going: list[Work] = []
        for work in works:
            if not work.current or (work.has_new_root and _would_lose(work, targets)):
                continue
            root = work.current[targets.root]
            new_version = work.is_new_version = work.has_new_root
            gone = (work.moved_from.id,) if work.moved_from is not None else ()
            if new_version or work.covered or work.current != dict(work.before):
                builds = {group: row.number for group, row in work.current.items()}
                covered = tuple(work.covered)
                number = root.number if new_version else None
                flips.append(Flip(work.row, builds, covered, number, gone, work.version_hash))
            elif work.make_root is not None:
                looked_at.append(work.row)
            going.append(work)
        parts: list[NewPart] = []
        for target in targets.terms:
            terms = [work.terms[target.id] for work in going if target.id in work.terms]
            parts += self._terms.extended(target.group, target.id, terms)
        if flips:
            partial = any(one.root is not None for one in flips)
            self._ledger.flip(
                flips,
                parts,
                keep_versions=self._keep_versions,
                partial_groups=targets.partial_groups if partial else (),
                partial_spaces=targets.partial_spaces if partial else (),
                visible=targets.visible,
            )
            self._ledger.file.arrays.retire(name for part in parts for name in part.retired)
        if looked_at:
            self._ledger.documents.note_files(looked_at)
        for work in going:
            work.flipped = True

    def _write(self, collection: str, new: Sequence[tuple[Work, BuildRow, list[Segment]]]) -> None:
        """Note builds, write their nodes, note that the store has them."""
        if not new:
            return
        new = [(work, row._replace(output=output_digest(segments)), segments) for work, row, segments in new]
        self._ledger.builds.begin([row for _, row, _ in new])
        self._nodes.segments.upsert(collection, [segment for _, _, segments in new for segment in segments])
        self._ledger.builds.acknowledge([row.number for _, row, _ in new])
        for work, row, segments in new:
            work.current[row.node_group] = row
            work.segments[row.node_group] = segments

    def _known_builds(self, group: int, documents: Iterable[int]) -> dict[tuple[int, int | None, str], BuildRow]:
        """Written builds by (document, parent, input), and the newest by (document, None, input)."""
        found: dict[tuple[int, int | None, str], BuildRow] = {}
        for row in self._ledger.builds.written(group, set(documents)):
            found[row.document, row.parent, row.input] = row
            found[row.document, None, row.input] = row
        return found

    def _segments(self, work: Work, group: int, targets: Targets) -> list[Segment]:
        self._fetch_all([work], group, targets)
        return work.segments[group]

    def _fetch_all(self, works: Sequence[Work], group: int, targets: Targets) -> None:
        """Have the nodes of a group at hand for all of some documents."""
        missing = [work for work in works if group not in work.segments]
        if missing:
            rows = [work.current[group] for work in missing]
            found = self._segments_of(rows, targets.collection(group))
            for work, row in zip(missing, rows, strict=True):
                work.segments[group] = found[row.number]

    def _segments_of(self, rows: Sequence[BuildRow], collection: str) -> dict[int, list[Segment]]:
        builds = self._ledger.builds.with_parents([row.number for row in rows])
        own: list[Build] = [builds[row.number] for row in rows]
        nodes = self._nodes.of_builds(collection, own)
        return {build.number: segments for build, segments in zip(own, nodes, strict=True)}


def _is_complete(work: Work, targets: Targets) -> bool:
    """Whether a document has all that it is to be brought to, as far as that did not fail."""
    if targets.root not in work.current:
        return False
    for group in targets.groups:
        failed = Step(group.name) in work.failures
        if group.id not in work.current and group.parent in work.current and not failed:
            return False
    covered = {space for space, _ in work.covered}
    for space in targets.spaces:
        row = work.current.get(space.group)
        is_new = row is not None and row != work.before.get(space.group)
        if is_new and space.id not in covered and space.step not in work.failures:
            return False
    return True


def _would_lose(work: Work, targets: Targets) -> bool:
    """Whether a document's new version lacks something that its live one has, because a step failed."""
    had = {targets.names.get(group) for group in (*work.before, *work.moved_before)}
    return any(step.group in had for step in work.failures)


def _expected(error: Exception) -> LazyRAGError:
    """An error of a file's own; another one is raised.

    Raises:
        Exception: If no other file would do better, or nobody expected it.
    """
    if not isinstance(error, LazyRAGError) or isinstance(error, (*NOT_THE_FILES_FAULT, StoreBusyError)):
        raise error
    return error


def batches(
    works: Iterable[Work], size_of: Callable[[Work], int], most: int, bytes_at_once: int
) -> Iterator[list[Work]]:
    """Works in batches that bound what is in memory at a time.

    Args:
        works: In order.
        size_of: How large a document is, in bytes.
        most: Documents in a batch.
        bytes_at_once: A batch ends with the document that passes it.
    """
    batch: list[Work] = []
    total = 0
    for work in works:
        batch.append(work)
        total += size_of(work)
        if len(batch) >= most or total >= bytes_at_once:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


_BATCH = 256  # documents that become live together
_BATCH_BYTES = 8 * 2**20  # of their files; bounds the memory of what is made of them


class Bringer:
    """Brings documents to targets. Who uses it holds the ledger's lease.

    Args:
        ledger: The ledger.
        ingestion: Brings a batch.
        failures: Where failures are entered.
        where: The Document, as messages name it.
        loading: Calls loaders.
        workers: How many threads call loaders and transforms.
        on_progress: Told how far it is.
        owner: Whose threads the workers are, see `lazyrag.document.ingest.is_worker_of`.
    """

    def __init__(
        self,
        ledger: Ledger,
        ingestion: Ingestion,
        failures: Failures,
        where: Callable[[], str],
        loading: Loading,
        workers: int,
        on_progress: OnProgress | None,
        *,
        owner: object,
    ) -> None:
        self._ledger = ledger
        self._ingestion = ingestion
        self._failures = failures
        self._where = where
        self._loading = loading
        self._workers = workers
        self._on_progress = on_progress
        self._owner = owner

    def bring(
        self, works: Iterable[Work], targets: Targets, what: str, count: int, *, stop: bool = False, steps: int = 0
    ) -> list[Outcome]:
        """Bring documents to targets, batch by batch.

        Args:
            works: The documents; each is made when its batch begins, and let go of when that is done.
            targets: What they are brought to.
            what: What is done, for the progress bar.
            count: How many documents there are.
            stop: Stop after the first batch in which one fails.
            steps: How many steps each of them takes; 0 for all of the targets.

        Returns:
            What became of each document.

        Raises:
            IngestionError: If one fails and ``stop`` is set.
        """
        done: list[Outcome] = []
        if not count:
            return done
        with self._loading.running(count), executor_of(self._workers, count, self._owner) as executor:
            steps = steps or len(targets.groups) + len(targets.spaces) + 1
            with ProgressMeter(what, count, steps, self._on_progress) as meter:
                for some in batches(works, _size_of, _BATCH, _BATCH_BYTES):
                    self._read_before(some)
                    self._ingestion.bring(Batch(some, targets, executor, self._failed, meter.tick))
                    self._note_failures(some)
                    done += [work.outcome for work in some]
                    meter.reach(len(done))
                    failed = [(step, error) for work in some for step, error in work.failures.items()]
                    if stop and failed:
                        step, error = failed[0]
                        told = f"A file failed to {step}: {sentence(error)}"
                        msg = f"{told} What was done before is kept. ({self._where()})"
                        raise IngestionError(msg) from error
        return done

    def _read_before(self, batch: Sequence[Work]) -> None:
        live = self._ledger.builds.live({row.id for work in batch for row in work.sources if row.id})
        for work in batch:
            moved = work.moved_from
            work.begin(live.get(work.row.id, {}), live.get(moved.id, {}) if moved is not None else {})

    def _failed(self, step: Step, work: Work, error: LazyRAGError) -> None:
        self._failures.add(step, work.row.identity, error)

    def note_failures(self) -> None:
        """What has failed is what is known to fail: a sync has tried everything."""
        failed = [(one.path, one.stage, type(one.error).__name__, str(one.error)) for one in self._failures]
        self._ledger.documents.set_failures(None, failed)

    def _note_failures(self, batch: Sequence[Work]) -> None:
        failed = [
            (work.row.identity, str(step), type(error).__name__, str(error))
            for work in batch
            for step, error in work.failures.items()
        ]
        self._ledger.documents.set_failures([work.row.identity for work in batch], failed)


def _size_of(work: Work) -> int:
    return work.row.signature.size if work.row.signature is not None else 0


_MOST_READS = 3  # of a file that changes while it is read


def file_root(
    load: Callable[[FoundFile], LoadedFile],
    file: FoundFile,
    row: DocumentRow,
    said: Mapping[str, Any],
    schema: Schema,
    build: int,
) -> Root:
    """The root node of a file's document: the file, loaded.

    Args:
        load: Loads it.
        file: The file, with the signature that it had before it was hashed.
        row: What the ledger is to know of it.
        said: What its user says of it.
        schema: The filterable fields.
        build: Number of the build.

    Raises:
        LoadError: If the file cannot be read.
        ConfigError: If a field's value does not fit, or metadata cannot be kept.
    """
    for _ in range(_MOST_READS):  # what is known of the file and its text are to be of one version
        before = signature_of(file.path)
        built_in = looked_at(file)  # before reading, which may change the time of last access
        loaded = load(file)
        if signature_of(file.path) == before:
            break
    parts = FileMetadataParts(check_metadata(loaded.metadata), check_metadata(said), json.loads(row.updates), built_in)
    segment = root_segment(file.identity, loaded, parts, schema, build)
    unchanged = signature_of(file.path) == file.signature  # else it may have been another while it was read
    row = replace(
        row,
        signature=file.signature if unchanged else None,
        loaded=_to_json(parts.loaded),
        said=_to_json(parts.said),
    )
    return Root(segment, row)


def text_root(row: DocumentRow, text: str, built_in: Mapping[str, Any], schema: Schema, build: int) -> Root:
    """The root node of a text that was added as such; its metadata stand in the row."""
    parts = FileMetadataParts(
        {**built_in, **json.loads(row.loaded)}, json.loads(row.said), json.loads(row.updates), built_in
    )
    return Root(root_segment(row.identity, LoadedFile(text), parts, schema, build), row)


def renewed_root(
    before: Segment, row: DocumentRow, schema: Schema, build: int, *, file: FoundFile | None = None
) -> Root:
    """A root node with the text of another one, and with what the ledger knows of its metadata.

    Args:
        before: The root node whose text it has.
        row: What the ledger is to know of the document.
        schema: The filterable fields.
        build: Number of the build.
        file: Where the file lies now; None for what the file system said before.

    Raises:
        LoadError: If the file cannot be looked at.
        ConfigError: If a field's value does not fit.
    """
    known = {name: before.metadata[name] for name in BUILT_IN_FIELDS if name in before.metadata}
    built_in = known if file is None else looked_at(file)
    parts = FileMetadataParts(json.loads(row.loaded), json.loads(row.said), json.loads(row.updates), built_in)
    loaded = LoadedFile(str(before.content), before.places)
    return Root(root_segment(row.identity, loaded, parts, schema, build), row)


def _to_json(metadata: Mapping[str, Any]) -> str:
    return json.dumps(dict(metadata))


@dataclass(frozen=True, slots=True)
class Rebuild:
    """What has to be built before something that was asked for is there.

    Args:
        targets: What the documents are brought to.
        groups: Rows of the groups that become live.
        spaces: Rows of the spaces that become live.
        dropped: Rows of the groups in whose place they come.
        names: Names of the groups, with the revisions of their definitions.
        steps: What is done, in order.
    """

    targets: Targets
    groups: tuple[int, ...]
    spaces: tuple[int, ...]
    dropped: tuple[int, ...]
    names: Mapping[str, tuple[int, ...]]
    steps: tuple[Step, ...]


class TargetMaker:
    """Makes targets.

    Args:
        definitions: What is defined.
        ledger: What is live.
        nodes: Where collections are made.
        embedders: What embeds the nodes, by embed key.
        identities: Of the embed callables, by embed key.
    """

    def __init__(
        self,
        definitions: Definitions,
        ledger: Ledger,
        nodes: NodeStore,
        embedders: Mapping[str, CheckedEmbedder],
        identities: Mapping[str, str],
    ) -> None:
        self._definitions = definitions
        self._ledger = ledger
        self._nodes = nodes
        self._embedders = embedders
        self._identities = identities

    def space_key(self, step: Step) -> SpaceKey | None:
        """What the space that a step makes is found by; None where it makes none, or cannot."""
        if step.analyser is not None:
            return ("terms", step.analyser, _analyser_identity(step.analyser)) if step.analyser in analysers else None
        if step.embed_key is not None:
            known = self._identities.get(step.embed_key)
            return None if known is None else ("vectors", step.embed_key, known)
        return None

    def of_live(self) -> Targets:
        """All that is live, as far as this program defines it: what a changed file is brought to."""
        tree = self._ledger.tree
        current = self._definitions.current(tree)
        partial_groups = [group.id for name, group in tree.groups.items() if name not in current]
        partial_spaces = [space.id for one in partial_groups for space in _spaces_of(tree, one)]
        terms, vectors = [], []
        for name, group in current.items():
            for space in group.spaces.values():
                target = self._space_target(space, group.id, step_of(name, space))
                if target is None:
                    partial_spaces.append(space.id)
                elif isinstance(target, TermsTarget):
                    terms.append(target)
                else:
                    vectors.append(target)
        groups = [self._group_target(one, current) for name, one in current.items() if name != LAZY_ROOT_NAME]
        root = current[LAZY_ROOT_NAME]
        names = {group.id: name for name, group in tree.groups.items()}
        return Targets(
            root.id, root.collection, names, groups, terms, vectors, tuple(partial_groups), tuple(partial_spaces)
        )

    def of_root(self) -> Rebuild | None:
        """The root group by the present fields, where it is not live yet."""
        live = self._ledger.tree.groups.get(LAZY_ROOT_NAME)
        if live is not None and self._definitions.is_current(live):
            return None
        return self._rebuild([LAZY_ROOT_NAME], None)

    def of_step(self, step: Step) -> Rebuild:
        """A group or an index that is not there, or not whole, with the groups above it that are not either.

        Where a group was there by another definition, all that is live beneath it is built anew as well.
        """
        self._warn_of_window(step)
        with self._definitions.held():
            return self._of_step(step)

    def _warn_of_window(self, step: Step) -> None:
        """Say once, before a group is embedded, that its chunks may be larger than what the model reads whole."""
        checked = self._embedders.get(step.embed_key or "")
        if checked is None or step.group == LAZY_ROOT_NAME:
            return
        embedder = getattr(checked.embedder, "embedder", checked.embedder)  # behind a cache
        window, size = embedder.max_tokens, getattr(self._definitions.line(step.group)[0].given, "chunk_size", None)
        if window is None or size is None or size <= window or getattr(embedder, "too_long", None) == "split":
            return
        warn_user(
            f"The chunks of {step.group!r} have up to {size} tokens as their counter counts, and the embed of key "
            f"{step.embed_key!r} reads {window} at once: it may cut or refuse longer ones. Define a group with "
            f"chunk_size={window} or less, or use a model that reads more.",
            IngestionWarning,
        )

    def _of_step(self, step: Step) -> Rebuild:
        tree = self._ledger.tree
        current = self._definitions.current(tree)
        line = [LAZY_ROOT_NAME, *(one.name for one in reversed(self._definitions.line(step.group)))]
        wanted = [name for name in line if name not in current or not current[name].whole]
        stale = {name for name in wanted if name in tree.groups and name not in current}
        for name in tree.groups:
            if name not in current and name not in wanted and self._definitions.is_defined(name):
                above = {one.name for one in self._definitions.line(name)}
                if above & stale:
                    wanted.append(name)
                    wanted += [one for one in above if one not in wanted and one not in current]
        return self._rebuild(wanted, step, line)

    def _rebuild(self, wanted: list[str], step: Step | None, line: list[str] | None = None) -> Rebuild:
        tree = self._ledger.tree
        current = self._definitions.current(tree)
        ordered = sorted({*wanted, *(line or ())}, key=lambda name: (len(self._definitions.line(name)), name))
        made: dict[str, LiveGroup] = {}
        dropped: list[int] = []
        terms: list[TermsTarget] = []
        vectors: list[VectorsTarget] = []
        steps: list[Step] = []
        spaces: list[int] = []
        for name in ordered:
            live = tree.groups.get(name)
            if name not in wanted:
                made[name] = current[name]
                continue
            made[name] = self._opened(name, made, live)
            if live is not None and live.id != made[name].id:
                dropped.append(live.id)
            steps.append(Step(name))
            for space in live.spaces.values() if live is not None else ():
                again = step_of(name, space)
                if again != step:
                    self._open_space(made[name], again, terms, vectors, steps, spaces)
        if step is not None and (step.analyser is not None or step.embed_key is not None):
            self._open_space(made[step.group], step, terms, vectors, steps, spaces)
        groups = [self._group_target(group, made) for name, group in made.items() if name != LAZY_ROOT_NAME]
        names = {group.id: name for name, group in (*tree.groups.items(), *made.items())}
        root = made[LAZY_ROOT_NAME]
        targets = Targets(root.id, root.collection, names, groups, terms, vectors, visible=False)
        rows = tuple(made[name].id for name in ordered if name in wanted)
        again_dropped = [group.id for name, group in tree.groups.items() if _hangs_on(tree, name, dropped)]
        kept = {group.id for group in made.values()}
        gone = tuple(one for one in dict.fromkeys([*dropped, *again_dropped]) if one not in kept)
        revisions = {name: self._definitions.revisions(name) for name in wanted}
        return Rebuild(targets, rows, tuple(spaces), gone, revisions, tuple(steps))

    def _opened(self, name: str, made: Mapping[str, LiveGroup], live: LiveGroup | None) -> LiveGroup:
        parent = None if name == LAZY_ROOT_NAME else made[self._definitions.line(name)[0].parent]
        fingerprint_now = self._definitions.fingerprint(name)
        number, collection = self._ledger.groups.open(
            name,
            None if parent is None else parent.id,
            fingerprint_now,
            schema_text(self._nodes.schema),
            self._definitions.collections(name),
            fresh=live is not None and live.fingerprint == fingerprint_now and self._definitions.is_replaced(name),
        )
        self._nodes.segments.create(collection, self._nodes.schema)
        return LiveGroup(
            number, name, None if parent is None else parent.name, fingerprint_now, collection, whole=False
        )

    def _open_space(
        self,
        group: LiveGroup,
        step: Step,
        terms: list[TermsTarget],
        vectors: list[VectorsTarget],
        steps: list[Step],
        spaces: list[int],
    ) -> None:
        key = self.space_key(step)
        if key is None:
            return
        kind, name, identity = key
        collection = ""
        if kind == "vectors":
            # Other vectors of the same key, or other nodes by the same definition, lie in other collections.
            collection = self._definitions.collections(group.name, name)(f"{identity}/{group.id}")
        number, dimension = self._ledger.groups.open_space(group.id, kind, name, identity, collection)
        space = LiveSpace(number, kind, name, identity, collection, dimension, whole=False)
        target = self._space_target(space, group.id, step)
        if isinstance(target, TermsTarget):
            terms.append(target)
        elif target is not None:
            vectors.append(target)
        steps.append(step)
        spaces.append(number)

    def _space_target(self, space: LiveSpace, group: int, step: Step) -> TermsTarget | VectorsTarget | None:
        if self.space_key(step) != space.key:
            return None
        if space.kind == "terms":
            return TermsTarget(space.id, group, step, term_function(space.name))
        embedder = self._embedders[space.name]
        return VectorsTarget(space.id, group, step, space.identity, space.collection, space.dimension, embedder)

    def _group_target(self, group: LiveGroup, groups: Mapping[str, LiveGroup]) -> GroupTarget:
        definition = self._definitions.line(group.name)[0]
        parent = groups[definition.parent].id
        return GroupTarget(
            group.id,
            group.name,
            parent,
            group.collection,
            definition.transform,
            definition.sees_nodes,
            path_told=definition.path_told,
            asks_models=bool(getattr(definition.given, "calls_per_node", 0)),
        )


def step_of(group: str, space: LiveSpace) -> Step:
    """What is done to make a space over a group."""
    return Step(group, analyser=space.name) if space.kind == "terms" else Step(group, embed_key=space.name)


def _spaces_of(tree: Tree, group: int) -> list[LiveSpace]:
    return [space for one in tree.groups.values() if one.id == group for space in one.spaces.values()]


def _hangs_on(tree: Tree, name: str, rows: list[int]) -> bool:
    """Whether a live group stands beneath one of some others."""
    above: str | None = name
    while above is not None:
        group = tree.groups[above]
        if group.id in rows:
            return True
        above = group.parent
    return False


def _analyser_identity(name: str) -> str:
    """Of what an analyser's name stands for, which somebody may register anew."""
    analyser = analysers[name]
    return analyser.identity or _identity_of(analyser.terms)


@functools.lru_cache(maxsize=64)  # asked for with every question
def _identity_of(terms_of: Callable[[str], list[str]]) -> str:
    return fingerprint(terms_of).value
