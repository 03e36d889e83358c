"""The ingestion engine: brings documents to a build plan in batches. One batch: load, transform,
embed, write, flip.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from lazyrag.data.fields import BUILT_IN_FIELDS, Schema, check_value, parse_value
from lazyrag.data.node import DocNode
from lazyrag.data.pictures import LINKED_PICTURES, PICTURES, FoundPictures
from lazyrag.data.segment import (
    EMPTY,
    LAZY_ROOT_NAME,
    Location,
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
from lazyrag.errors import (
    ConfigError,
    IngestionError,
    IngestionWarning,
    LazyRAGError,
    LoaderEndedError,
    LoadError,
    NoReaderError,
    StaleNodeError,
    StoreBusyError,
    StoreError,
    TransformError,
    sentence,
    set_stop_event,
    warn_user,
)
from lazyrag.groups.node_group import LOADING, Step
from lazyrag.ingest.dataset import Dataset
from lazyrag.ingest.load_files import Loading
from lazyrag.ingest.plan import BuildPlan, GroupTarget, IndexTarget, TermsTarget, VectorsTarget
from lazyrag.ingest.report import Failures, Options
from lazyrag.ingest.term_index import BuildTerms, TermIndexes
from lazyrag.ledger.lease import Turns
from lazyrag.ledger.ledger import HIDDEN, BuildRow, DocumentRow, Flip, Ledger, NewPart
from lazyrag.loaders.base import LoadedFile, source_texts
from lazyrag.loaders.directory import (
    FoundFile,
    Signature,
    built_in_metadata,
    hash_file,
    signature_of,
)
from lazyrag.models.embedding import CheckedEmbedder, length_of, stack_embeddings
from lazyrag.models.protocols import Embedded
from lazyrag.progress.blocks import contextmanager
from lazyrag.progress.calls import ProgressMeter, raise_if_canceled
from lazyrag.read.nodes import NodeStore
from lazyrag.storage.database import batches_reaching
from lazyrag.stores.protocol import VectorRow
from lazyrag.stores.sqlite import MapFileSegmentStore
from lazyrag.transforms.base import Draft, run_transforms
from lazyrag.types import Embedding, Fields
from lazyrag.validation import require

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future, ThreadPoolExecutor

    from numpy.typing import NDArray

    from lazyrag.text.term_codes import TermCodes

T = TypeVar("T")
R = TypeVar("R")
D = TypeVar("D", bound=Hashable)

MISFIT = "value left out: "
"""Beginning of the note of a value that does not fit its declared field."""
_BATCH = 256  # documents that become live together
_BATCH_BYTES = 8 * 2**20  # of their files; bounds the memory of what is made of them
_WRITTEN_EVERY_S = 5.0  # so that a crash costs no more than that of what slow transforms made
# texts embedded together; bounds their memory, and fills the batches of any model
_BATCH_SIZE = 1024
_SLICE = 2_000  # nodes, and vectors, that are written together: others wait so long for their turn
_SLICE_CHARACTERS = 1 << 16  # that are analysed together: other threads of Python wait so long
_BATCH_ERRORS = (IngestionError, StoreError)  # after which no other file would do better


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
            own, before, others = map(json.loads, (self.row.updates, base.updates, now.updates))
            changed = {
                key: value
                for key, value in own.items()
                if key not in before or before[key] != value
            }
            kept = {key: value for key, value in others.items() if key in own or key not in before}
            self.row = replace(self.row, updates=json.dumps({**kept, **changed}))
        return True

    def notes(self) -> tuple[str, ...]:
        """What the loader noted of the new version, such as a guessed encoding; pictures that are
        left out.
        """
        loaded = json.loads(self.row.loaded) if self.is_new_version else {}
        found = loaded.get("notes")
        return (*map(str, found if isinstance(found, list) else ()), *_unread(loaded), *self.noted)

    def real_failures(self) -> list[tuple[Step, LazyRAGError]]:
        """Failures without files that have no text, or that nothing reads: those are skipped."""
        return [one for one in self.failures.items() if not isinstance(one[1], NoReaderError)]

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

    def would_lose(self, plan: BuildPlan) -> bool:
        """Whether it lacks a group that the live version has, because a step failed."""
        had = {plan.names.get(group) for group in (*self.before, *self.moved_before)}
        return any(step.group in had for step in self.failures)


@dataclass(slots=True)
class _Batch:
    """Documents that are brought to a plan together.

    Args:
        versions: The documents.
        plan: What they are brought to.
        executor: Its threads call loaders and transforms; None for this thread.
        meter: Reports the steps that documents have taken.
        numbers: The build numbers that may be used, by group row and document.
        written: Builds of the documents that stores acknowledged before, by group row.
        made: Numbers of the builds that were made.
        new: Those with their nodes that are not written yet, by group row.
        written_at: When some were last written, in seconds.
    """

    versions: Sequence[PendingVersion]
    plan: BuildPlan
    executor: Executor | None
    meter: ProgressMeter
    numbers: dict[int, Iterator[int]] = field(default_factory=dict)
    written: dict[int, dict[tuple[int, int | None, str], BuildRow]] = field(default_factory=dict)
    made: set[int] = field(default_factory=set)
    new: dict[int, list[tuple[BuildRow, list[Segment]]]] = field(default_factory=dict)
    written_at: float = field(default_factory=time.monotonic)

    def add(self, version: PendingVersion, row: BuildRow, segments: list[Segment]) -> None:
        """Add a build of a document, to be written."""
        version.current[row.node_group] = row
        version.segments[row.node_group] = segments
        self.made.add(row.number)
        self.new.setdefault(row.node_group, []).append((row, segments))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IngestionEngine:
    """Ingests documents in batches, each of which becomes live in one transaction.

    The caller holds the ledger's lease, and has the turn.

    Args:
        ledger: The ledger.
        nodes: The stores.
        terms: The keyword indexes.
        failures: Where failures are recorded.
        loading: Calls loaders.
        options: How it ingests.
        dataset: The Document's files.
        turns: Whose turn it is: others have theirs while documents are loaded, transformed,
            embedded and analysed.
        owner: The Document's indexer: the tree of the nodes that transforms see, and the owner of
            worker threads.
        added: Files that are or were added to the dataset's, by identity.
    """

    ledger: Ledger
    nodes: NodeStore
    terms: TermIndexes
    failures: Failures
    loading: Loading
    options: Options
    dataset: Dataset
    turns: Turns
    owner: object
    added: dict[str, FoundFile] = field(default_factory=dict)

    @property
    def workers(self) -> int:
        """How many threads call loaders and transforms; 1 for none."""
        return max(self.options.workers, self.options.processes)

    def ingest(
        self,
        versions: Iterable[PendingVersion],
        plan: BuildPlan,
        what: str,
        count: int,
        *,
        stop: bool = False,
        steps: int = 0,
        nodes: int = 0,
    ) -> list[Outcome]:
        """Bring documents to a plan, batch by batch, and record their failures.

        Args:
            versions: The documents; each is made when its batch begins, and released when that is
                done.
            plan: What they are brought to.
            what: Label of the progress bar.
            count: How many documents there are.
            stop: Stop after the first batch with a failure.
            steps: How many steps each of them takes; 0 for all of the plan.
            nodes: How many nodes they have, to count these in the progress bar: if they are only
                embedded. 0 for none.

        Returns:
            The outcome of each document.

        Raises:
            IngestionError: If one fails and ``stop`` is set.
        """
        done: list[Outcome] = []
        misfits: list[tuple[str, str]] = []
        if not count:
            return done
        steps = steps or len(plan.groups) + len(plan.indexes) + 1
        launcher = self.options.launcher
        if launcher is not None:
            launcher.require(plan, self.loading)
        unit = "node" if nodes else "file"
        with (
            self.loading.running(count),
            worker_pool(self.workers, count, self.owner) as executor,
            ProgressMeter(what, nodes or count, steps, unit=unit) as meter,
        ):
            for some in batches_reaching(versions, _file_size, _BATCH_BYTES, most_items=_BATCH):
                versions_done = self._ingest_batch(self._begun(_Batch(some, plan, executor, meter)))
                if launcher is not None:
                    launcher.results.clear()  # they are live now
                    with self.turns.aside():
                        pass
                self._save_failures(versions_done)
                done += [
                    Outcome(one.row.identity, one.flipped, one.is_new_version, one.notes())
                    for one in versions_done
                ]
                # those of documents that failed are not counted one by one
                if not nodes or len(done) == count:
                    meter.reach(nodes or len(done))
                misfits += (
                    (one.row.identity, note)
                    for one in versions_done
                    for note in one.notes()
                    if note.startswith(MISFIT)
                )
                failed = [failure for one in versions_done for failure in one.real_failures()]
                if stop and failed:
                    step, error = failed[0]
                    msg = f"A file failed to {step}: {sentence(error)} Earlier files are stored."
                    raise IngestionError(f"{msg} ({self.failures.where})") from error
        if misfits:
            path, note = misfits[0]
            problem = (
                f"Values in files do not fit their declared fields: {len(misfits)}. The first, of"
                f" {path}: {note}"
            )
            warn_user(
                f"{problem} ({self.failures.where}: last_report.notes lists all)", IngestionWarning
            )
        return done

    def record_failures(self) -> None:
        """Replace the ledger's failures with those of this process: a sync has tried everything."""
        self.ledger.documents.set_failures(
            None, [(one.path, one.stage, one.error) for one in self.failures]
        )

    def _save_failures(self, batch: Sequence[PendingVersion]) -> None:
        failed = [
            (one.row.identity, str(step), error)
            for one in batch
            for step, error in one.real_failures()
        ]
        self.ledger.documents.set_failures([one.row.identity for one in batch], failed)
        errors = [
            (one, error)
            for one in batch
            for error in one.failures.values()
            if isinstance(error, NoReaderError)
        ]
        if errors:  # what their documents said before is no longer in the files
            self.ledger.documents.tombstone(
                [row.id for one, _ in errors for row in one.sources], "deleted"
            )
            self.ledger.documents.note_skipped([(one.row, error.reason) for one, error in errors])

    def _begun(self, batch: _Batch) -> _Batch:
        """Enter the documents of a batch, and read what there is of each, and of the one it was
        moved from.

        Those that were deleted since they were planned are left out.
        """
        plan = batch.plan
        # a new one has nothing yet
        documents = {row.id for one in batch.versions for row in one.sources if row.id}
        with self.ledger.writing():
            for one in batch.versions:
                one.base = one.base or (one.row if one.row.id else None)
            loading = [one for one in batch.versions if one.make_root is not None]
            registered = self.ledger.documents.register([one.row for one in loading])
            for one, row in zip(loading, registered, strict=True):
                one.row = row
            present = self.ledger.documents.rows([one.row.id for one in batch.versions])
            batch.versions = [
                one for one, row in zip(batch.versions, present, strict=True) if one.rebase(row)
            ]
            versions = batch.versions
            loading = [one for one in versions if one.make_root is not None]
            count = len(loading) + len(plan.groups) * len(versions)
            numbers = self.ledger.builds.reserve(count)
            live = self.ledger.builds.live(documents)
            for build in self.ledger.builds.written(documents):
                found = batch.written.setdefault(build.node_group, {})
                found[build.document, build.parent, build.input] = build
                found[build.document, None, build.input] = build  # the newest
        batch.numbers[plan.root] = iter(numbers[: len(loading)])
        for at, group in enumerate(plan.groups):
            batch.numbers[group.id] = iter(
                numbers[len(loading) + at * len(versions) :][: len(versions)]
            )
        for one in versions:
            one.before = live.get(one.row.id, {})
            one.moved_before = live.get(one.moved_from.id, {}) if one.moved_from is not None else {}
            one.current = {} if one.make_root is not None and not one.beside else dict(one.before)
        return batch

    def _ingest_batch(self, batch: _Batch) -> Sequence[PendingVersion]:
        """Bring a batch to its plan and make it live; returns its documents.

        A document whose step fails is left out of that step. A live version stays if the new one
        would lose groups. Documents that others have changed meanwhile are begun anew.
        """
        versions = batch.versions
        plan = batch.plan
        try:
            with self._aside(versions):
                self._load_roots(batch)
                for group in plan.groups:
                    self._transform(group, batch)
                self._write(batch)
                for vectors in plan.vectors:
                    self._embed(vectors, batch)
                for terms in plan.terms:
                    self._analyse(terms, batch)
        except BaseException:
            # An interrupt, or a store that fails: what is complete need not be done again.
            with suppress(StoreError):
                self._write(batch)
                self._flip([one for one in versions if one.is_complete(plan)], plan)
            raise
        changed = self._flip(versions, plan)
        if not changed:
            return versions
        again = _Batch([one.again() for one in changed], plan, batch.executor, batch.meter)
        return [
            *(one for one in versions if one not in changed),
            *self._ingest_batch(self._begun(again)),
        ]

    def _aside(self, versions: Sequence[PendingVersion]) -> AbstractContextManager[None]:
        """Let others have the turn in the block.

        Not while the root group is replaced, of which they need one, nor for documents that were
        overtaken before; and a launcher's results are those of one batch.
        """
        holds_turn = any(version.beside or version.waits_for_nobody for version in versions)
        return (
            nullcontext() if self.options.launcher is not None or holds_turn else self.turns.aside()
        )

    def quarantine_key(self, row: DocumentRow) -> str:
        """What has to change before a file that ended its loader is read again: its bytes, reader
        or limits.
        """
        return digest([row.content_hash, row.config_hash, repr(self.loading.limits)])

    def _fail(self, step: Step, version: PendingVersion, error: LazyRAGError) -> None:
        if isinstance(error, LoaderEndedError):
            error.quarantine = self.quarantine_key(version.row)
        version.failures[step] = error
        self.failures.add(step, version.row.identity, error)

    # Load

    def _load_roots(self, batch: _Batch) -> None:
        loading = [(one, one.make_root) for one in batch.versions if one.make_root is not None]
        if self.options.launcher is not None:
            self.loading.loaded = self.options.launcher.load(
                [one for _, one in loading], self.loading
            )
        numbers = batch.numbers[batch.plan.root]
        items = (
            (version, make_root, number)
            for (version, make_root), number in zip(loading, numbers, strict=True)
        )
        for (version, *_), result in map_in_order(batch.executor, self.workers, _make_root, items):
            batch.meter.tick(LOADING)
            if isinstance(result, Exception):
                self._fail(LOADING, version, file_error_or_raise(result))
            else:
                self._add_root(version, result, batch)

    def _add_root(self, version: PendingVersion, root: Root, batch: _Batch) -> None:
        """Add a root node, or find it among those that are written already."""
        group = batch.plan.root
        updates = version.row.updates
        row = version.row = replace(
            root.row, id=version.row.id, version=version.row.version, updates=updates
        )
        if root.row.updates != updates:
            root = renewed_root(root.segment, row, self.nodes.schema, root.segment.build)
        input_hash = root_digest(root.segment)
        live = version.before.get(group)
        same = live if live is not None and live.input == input_hash else None
        if same is not None:
            # Another source that is rendered as the same text makes another version.
            kinds = {one.reads_source for one in batch.plan.groups} - {False}
            hashes = {self._source_hash(version, root.segment, kind) for kind in kinds} - {""}
            same = same if hashes <= {self._live_hash(row)} else None
        known = same or batch.written.get(group, {}).get((row.id, None, input_hash))
        known = None if same is None and known == live else known
        if known is not None:
            version.current = (
                dict(version.before) if known == live else {**version.current, group: known}
            )
            version.segments[group] = [root.segment._replace(build=known.number)]
            return
        number = root.segment.build
        batch.add(
            version,
            BuildRow(number, row.id, group, None, number, input_hash, "[1]"),
            [root.segment],
        )

    # Transform

    def _transform(self, target: GroupTarget, batch: _Batch) -> None:
        plan = batch.plan
        made_of = {target.parent, target.ref or plan.root}
        ready = [
            one
            for one in batch.versions
            if target.id not in one.current and made_of <= one.current.keys()
        ]
        if not ready:
            return
        groups_above = plan.made_of(target)
        for group in groups_above:
            self._fetch(ready, group, plan)
        written = batch.written.get(target.id, {})
        to_do: list[ToDo] = []
        copies: list[tuple[PendingVersion, BuildRow, int]] = []
        for version, number in zip(ready, batch.numbers[target.id], strict=False):
            above = version.current[target.parent]
            line = [version.segments[group] for group in groups_above]
            source = ""
            kind = target.reads_source
            if kind:
                source = self._source_hash(version, version.segments[plan.root][0], kind)
            input_hash = input_digest(
                line, sees_nodes=target.sees_nodes, path_key=target.path_key, source=source
            )
            known = written.get((version.row.id, above.number, input_hash))
            if known is not None:
                version.current[target.id] = known
                continue
            row = BuildRow(
                number, version.row.id, target.id, above.number, above.root, input_hash, "[]"
            )
            same = [written.get((source.id, None, input_hash)) for source in version.sources]
            copied = next((one for one in same if one is not None), None)
            if copied is not None:
                copies.append((version, row._replace(counts=copied.counts), copied.number))
            else:
                to_do.append(
                    (
                        version,
                        row,
                        self._reusable(written.values(), input_hash, version, target, plan),
                    )
                )

        self._copy(copies, target, batch)

        for (version, row, _), result in self._transformed(target, batch, to_do):
            batch.meter.tick(Step(target.name))
            if isinstance(result, Exception):
                self._fail(Step(target.name), version, file_error_or_raise(result))
                continue
            own_counts, segments = result
            batch.add(version, row._replace(counts=json.dumps(own_counts)), segments)
            if time.monotonic() - batch.written_at > _WRITTEN_EVERY_S:
                self._write(batch)

    def _transformed(
        self, target: GroupTarget, batch: _Batch, to_do: Sequence[ToDo]
    ) -> Iterator[tuple[ToDo, tuple[list[int], list[Segment]] | Exception]]:
        """Documents with their nodes, or the error, in order."""

        def transform(item: ToDo) -> tuple[list[int], list[Segment]]:
            version, row, reusable = item
            return self.run_transform(target, version, row.number, batch.plan, reusable)

        if self.options.launcher is None:
            return map_in_order(batch.executor, self.workers, transform, to_do)
        launched: Iterator[Any] = self.options.launcher.transform(self, target, batch.plan, to_do)
        return launched

    def preview(
        self, target: GroupTarget, version: PendingVersion, plan: BuildPlan
    ) -> list[Segment]:
        """Return the nodes that a transform would make of a document; nothing is written."""
        for group in plan.made_of(target):
            self._fetch([version], group, plan)
        _, version.segments[target.id] = self.run_transform(target, version, 0, plan, {})
        return version.segments[target.id]

    def _copy(
        self,
        copies: Sequence[tuple[PendingVersion, BuildRow, int]],
        target: GroupTarget,
        batch: _Batch,
    ) -> None:
        """Take over the nodes of earlier builds, which were made of equal parents."""
        if not copies:
            return
        with self._reading():
            found = self.ledger.builds.with_parents({number for _, _, number in copies})
            builds = [found[number] for _, _, number in copies]
            before = self.nodes.of_builds(target.collection, builds)
            if target.parent == batch.plan.root:  # whose nodes have no span that could differ
                parents_before = [version.segments[target.parent] for version, _, _ in copies]
            else:
                above = [build.parent for build in builds if build.parent is not None]
                parents_before = self.nodes.of_builds(batch.plan.collection(target.parent), above)
        for (version, row, _), nodes, parents in zip(copies, before, parents_before, strict=True):
            counts = json.loads(row.counts)
            now = version.segments[target.parent]
            batch.add(
                version,
                row,
                rebound_segments(nodes, parents, now, counts, row.number, self.nodes.schema),
            )

    def run_transform(
        self,
        target: GroupTarget,
        version: PendingVersion,
        number: int,
        plan: BuildPlan,
        reusable: NodesByText,
        made_drafts: Iterator[list[Draft]] | None = None,
    ) -> tuple[list[int], list[Segment]]:
        """How many nodes each parent gave, and the nodes; of drafts that a launcher made, if there
        are any.
        """
        source = PendingSource(
            self.owner, version, plan, self._fetch, self.source, self.image, target
        )
        schema = self.nodes.schema
        parents = version.segments[target.parent]
        keys = [content_key(above) if reusable else None for above in parents]
        new = [
            DocNode.from_segment(above, source)
            for above, key in zip(parents, keys, strict=True)
            if key not in reusable
        ]
        drafts_of_new = (
            run_transforms(target.transform, new) if made_drafts is None else made_drafts
        )
        made: list[Segment] = []
        counts: list[int] = []
        for above, key in zip(parents, keys, strict=True):
            try:
                if key in reusable:
                    before, nodes = reusable[key]
                    rebound = rebound_segments(
                        nodes, [before], [above], [len(nodes)], number, schema
                    )
                    own = [
                        one._replace(number=at)
                        for at, one in enumerate(rebound, start=len(made) + 1)
                    ]
                else:
                    drafts = next(drafts_of_new)
                    own = child_segments(
                        above, target.name, number, drafts, schema, before=len(made)
                    )
            except (TransformError, ConfigError) as exc:
                # of a batch of nodes it may be another's
                uid = getattr(exc, "uid", "") or above.uid
                raise TransformError(str(exc), group=target.name, uid=uid) from (
                    exc.__cause__ or exc
                )
            made += own
            counts.append(len(own))
        return counts, made

    def _reusable(
        self,
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
        nodes, parents = self._with_parents(newest, target, plan)
        found: NodesByText = {}
        start = 0
        for parent, count in zip(parents, json.loads(newest.counts), strict=False):
            found.setdefault(content_key(parent), (parent, nodes[start : start + count]))
            start += count
        return found

    def _with_parents(
        self, row: BuildRow, target: GroupTarget, plan: BuildPlan
    ) -> tuple[list[Segment], list[Segment]]:
        """The nodes of a build, and those of the build above it."""
        build = self.ledger.builds.with_parents([row.number])[row.number]
        nodes = self.nodes.of_build(target.collection, build)
        return nodes, (
            self.nodes.of_build(plan.collection(target.parent), build.parent)
            if build.parent
            else []
        )

    # Embed and analyse

    def _embed(self, target: VectorsTarget, batch: _Batch) -> None:
        """Embed the nodes that a vector index lacks, and write their vectors."""
        ready = self._uncovered(target, batch)
        known: dict[str, Embedded] = {}
        launcher = self.options.launcher
        at_once = _BATCH_SIZE * (1 if launcher is None else launcher.width)

        def texts() -> Iterator[tuple[PendingVersion, Sequence[str]]]:
            for version in ready:
                known.update(self._stored_vectors(target, version, batch.plan))
                if read := self._index_texts(target, version, batch.plan):
                    yield version, read

        rows: list[VectorRow] = []
        done: list[PendingVersion] = []
        try:
            for version, results in embed_documents(
                target.embedder, target.dimension, texts(), known, batch.meter.tick_nodes, at_once
            ):
                batch.meter.tick(target.step)
                try:
                    vectors = stack_embeddings(results, target.embedder.name, target.dimension)
                except _BATCH_ERRORS:
                    raise
                except LazyRAGError as exc:
                    self._fail(target.step, version, exc)
                    continue
                if not target.dimension:
                    with self.turns.taken():
                        dimension = length_of(vectors[0])
                        self.nodes.create_vectors(
                            target.collection, dimension, target.step.embed_key or ""
                        )
                        self.ledger.groups.set_dimension(target.id, dimension)
                    target.dimension = dimension
                own = zip(version.segments[target.group], vectors, strict=True)
                rows += [VectorRow(one.key, vector, one.fields) for one, vector in own]
                done.append(version)
        finally:
            for start in range(0, len(rows), _SLICE):
                self.nodes.vectors_to_write.upsert(target.collection, rows[start : start + _SLICE])
            for version in done:
                version.covered.append((target.id, version.current[target.group].number))

    def _stored_vectors(
        self, target: VectorsTarget, version: PendingVersion, plan: BuildPlan
    ) -> Mapping[str, Embedded]:
        """Live vectors of a document by text: unchanged text is not embedded again."""
        found: dict[str, Embedded] = {}
        groups = self.ledger.tree.groups
        text = target.text
        group = groups.get(plan.names[target.group])
        if group is None or (
            text.identity and not (text.is_fields and group.parent == LAZY_ROOT_NAME)
        ):
            return found  # what was read of its nodes is not known
        index = group.indexes.get(("vectors", str(target.step.embed_key), target.identity))
        if index is None or not index.dimension:
            return found
        for row in version.sources:
            build = group.builds.get(row.uid)
            if build is None or build.number == version.current[target.group].number:
                continue
            with self._reading(vectors=True):
                nodes = self.nodes.of_build(group.collection, build)
                read = [content_text(one.content) for one in nodes]
                if text.fields:
                    roots = groups[LAZY_ROOT_NAME]
                    [above] = self.nodes.of_build(roots.collection, roots.builds[row.uid])
                    read = field_texts(text.fields, above, nodes, is_file=row.origin != "text")
                texts = dict(zip([one.key for one in nodes], read, strict=True))
                stored = self.nodes.vectors.get(index.collection, list(texts))
            found.update((texts[one.key], one.vector) for one in stored)
        return found

    def _analyse(self, target: TermsTarget, batch: _Batch) -> None:
        """Analyse the nodes that a keyword index lacks; their terms are written when the documents
        become live.
        """
        target.terms.shrink()
        for version in self._uncovered(target, batch):
            batch.meter.tick(target.step)
            segments = version.segments[target.group]
            texts = self._index_texts(target, version, batch.plan)
            if not texts:
                continue
            try:
                codes, rows = _encoded(target.terms, texts)
            except LazyRAGError as exc:
                self._fail(target.step, version, exc)
                continue
            number = version.current[target.group].number
            keys = [one.key for one in segments]
            fields = [one.fields for one in segments]
            version.terms[target.id] = BuildTerms(number, keys, codes, rows, target.terms, fields)
            version.covered.append((target.id, number))

    def _index_texts(
        self, target: IndexTarget, version: PendingVersion, plan: BuildPlan
    ) -> list[str]:
        """What an index reads of a document's nodes; [] if that failed."""
        segments = version.segments[target.group]
        wanted = target.text
        if not wanted.identity or not segments:
            return [content_text(one.content) for one in segments]
        source = PendingSource(self.owner, version, plan, self._fetch, self.source, self.image)
        try:
            root = source.root(segments[0]).segment
            fields = FieldReader(wanted.fields, root, is_file=version.row.origin != "text")
            written = (
                {} if not wanted.group else source.texts_below(plan, target.group, wanted.group)
            )
            texts = []
            for one in segments:
                own = (
                    content_text(one.content)
                    if wanted.write is None
                    else wanted.write(source.show(one))
                )
                if not isinstance(own, str) or not own:
                    expected = "a function that returns a non-empty string"
                    require(False, "index_text", wanted.write, expected, f"Got {own!r:.60}.")  # noqa: FBT003
                if written:
                    own = "\n".join([*written.get(one.uid, ()), own])
                texts.append(fields.read(one, source.source(one), own) if wanted.fields else own)
        except Exception as exc:
            if isinstance(exc, _BATCH_ERRORS):
                raise
            msg = f"index_text of {target.step.group!r} raised {type(exc).__name__}: {exc}"
            error = (
                exc
                if isinstance(exc, LazyRAGError)
                else TransformError(sentence(msg), group=target.step.group)
            )
            self._fail(target.step, version, error)
            return []
        return texts

    def indexed_texts(self, plan: BuildPlan) -> Iterator[tuple[str, list[str]]]:
        """What the vector indexes of a plan read that is not the nodes' own text, by identity, in
        pages.
        """
        targets = [one for one in plan.vectors if one.text.is_fields]
        rows = list(self.ledger.documents.all().values()) if targets else []
        for some in batches_reaching(
            map(PendingVersion, rows), _file_size, _BATCH_BYTES, most_items=_BATCH
        ):
            with self._reading():
                live = self.ledger.builds.live({one.row.id for one in some})
                for version in some:
                    version.current = dict(live.get(version.row.id, {}))
                pairs = [
                    (target, one)
                    for target in targets
                    for one in some
                    if target.group in one.current
                ]
                for target, version in pairs:
                    self._fetch([version], target.group, plan)
                found = [(target, self._index_texts(target, one, plan)) for target, one in pairs]
            yield from ((target.identity, texts) for target, texts in found)

    def _uncovered(self, target: IndexTarget, batch: _Batch) -> list[PendingVersion]:
        """The documents with nodes that an index lacks; their nodes are read."""
        having = {
            one.current[target.group].number: one
            for one in batch.versions
            if target.group in one.current and any(json.loads(one.current[target.group].counts))
        }
        covered = self.ledger.builds.covered(target.id, having.keys() - batch.made)
        ready = [one for number, one in having.items() if number not in covered]
        self._fetch(ready, target.group, batch.plan)
        return ready

    # Write and flip

    def _write(self, batch: _Batch) -> None:
        """Enter builds into the ledger, write their nodes, acknowledge the builds: in one
        transaction in one file.

        Nodes of large documents are written in slices, between which others have their turn.
        """
        if batch.new:
            rows = [
                row._replace(output=output_digest(segments))
                for of_group in batch.new.values()
                for row, segments in of_group
            ]
            self._write_steps(batch, rows)
            batch.new.clear()
        batch.written_at = time.monotonic()

    def _write_steps(self, batch: _Batch, rows: Sequence[BuildRow]) -> None:
        nodes = {
            batch.plan.collection(group): itertools.chain.from_iterable(
                some for _, some in of_group
            )
            for group, of_group in batch.new.items()
        }
        slices = [
            (collection, some)
            for collection, every in nodes.items()
            for some in batches_reaching(every, _one, _SLICE)
        ]
        steps = [
            partial(self.ledger.builds.begin, rows),
            *(partial(self.nodes.segments.upsert, *one) for one in slices),
            partial(self.ledger.builds.acknowledge, [row.number for row in rows]),
        ]
        if self.nodes.are_in(self.ledger.file) and len(slices) <= len(nodes):
            with self.turns.taken(), self.ledger.writing():
                for step in steps:
                    step()
            return
        for step in steps:
            with self.turns.taken():
                step()

    def _flip(self, versions: Sequence[PendingVersion], plan: BuildPlan) -> list[PendingVersion]:
        """Make documents live, in one transaction; returns those that others have changed
        meanwhile.
        """
        going = [
            one
            for one in versions
            if one.current and not (one.has_new_root and one.would_lose(plan))
        ]
        parts: list[NewPart] = []
        try:
            with self._aside(versions):
                for target in plan.terms:
                    terms = [one.terms.pop(target.id) for one in going if target.id in one.terms]
                    parts += self.terms.extended(target.group, target.id, terms)
            ready, changed = self._ready(going)
            self._flip_ready(ready, plan, parts)
        finally:
            self.terms.release(parts)
        return changed

    def _ready(
        self, versions: Sequence[PendingVersion]
    ) -> tuple[list[PendingVersion], list[PendingVersion]]:
        """The documents that can become live, and those that others have changed; without deleted
        ones.
        """
        ready: list[PendingVersion] = []
        changed: list[PendingVersion] = []
        for one, now in zip(
            versions, self.ledger.documents.rows([one.row.id for one in versions]), strict=True
        ):
            base = one.base or now
            if now.status in HIDDEN and now.status != base.status:
                self.ledger.documents.tombstone([now.id], now.status)  # also what was written since
            elif (now.version, now.updates) != (base.version, base.updates):
                changed.append(one)
            else:
                ready.append(one)
        return ready, changed

    def _flip_ready(
        self, versions: Sequence[PendingVersion], plan: BuildPlan, parts: Sequence[NewPart]
    ) -> None:
        flips: list[Flip] = []
        unchanged: list[DocumentRow] = []  # whose files were read, and gave what is live already
        for one in versions:
            one.is_new_version = one.has_new_root
            if one.is_new_version or one.covered or one.current != dict(one.before):
                builds = {group: row.number for group, row in one.current.items()}
                root = one.current[plan.root].number if one.is_new_version else None
                gone = (one.moved_from.id,) if one.moved_from is not None else ()
                flips.append(
                    Flip(one.row, builds, tuple(one.covered), root, gone, one.version_hash)
                )
            elif one.make_root is not None:
                unchanged.append(one.row)
        if flips:
            partial = any(one.root is not None for one in flips)
            self.ledger.flip(
                flips,
                parts,
                keep_versions=self.options.keep_versions,
                partial_groups=plan.partial_groups if partial else (),
                partial_indexes=plan.partial_indexes if partial else (),
                visible=plan.visible,
            )
            self.ledger.file.arrays.postpone_deletion(
                name for part in parts for name in part.retired
            )
        if unchanged:
            self.ledger.documents.note_files(unchanged)
        for one in versions:
            one.flipped = True

    # Read

    def _reading(self, *, vectors: bool = False) -> AbstractContextManager[object]:
        """One transaction for what is read of the ledger and of stores in its file."""
        return (
            self.ledger.reading()
            if self.nodes.are_in(self.ledger.file, vectors=vectors)
            else nullcontext()
        )

    def _source_hash(self, version: PendingVersion, root: Segment, kind: bool | str) -> str:  # noqa: FBT001  see `source`
        """Digest of the file with a document's source; "" if that is the text of its root node, or
        has no pictures.
        """
        row = version.row
        if row.origin == "text" or not self.loading.has_source(row.identity, root.metadata, kind):
            return ""
        return (
            self._live_hash(row)
            if version.make_root is None
            else version.version_hash or row.content_hash
        )

    def _live_hash(self, row: DocumentRow) -> str:
        """Digest of the file that a document's live version is made of."""
        versions = self.ledger.documents.versions(row.id)
        return next(
            (one.content_hash for one in versions if one.number == row.version), row.content_hash
        )

    def source(
        self, version: PendingVersion, root: Segment, kind: bool | str = True
    ) -> Sequence[tuple[str, str]]:
        """Read the source texts of a document from its file; () if the only one is the text of its
        root node.

        Raises:
            TransformError: If the file is gone, or is not the one that the root node is made of.
        """
        if kind not in version.sources_read:
            expected = self._source_hash(version, root, kind)
            texts: list[tuple[str, str]] = []
            if expected:
                file, before = self._unchanged(version, expected)
                # what lies beside uploads is of others
                linked = kind == PICTURES and version.row.origin == "dataset"
                texts = source_texts(
                    self.loading.load(file, source=LINKED_PICTURES if linked else kind)
                )
                if not texts or signature_of(file.path) != before:
                    raise TransformError(_NO_SOURCE)
            version.sources_read[kind] = () if texts == [("", root.content)] else texts
            if texts and kind == PICTURES:
                version.noted += FoundPictures.parse(texts[0][1]).notes
        return version.sources_read[kind]

    def image(self, version: PendingVersion, root: Segment, node: Segment) -> bytes:
        """Read the picture of a node of the group ``image`` from the document's file."""
        file, _ = self._unchanged(version, self._source_hash(version, root, PICTURES))
        return self.loading.picture(file.path, root, node)

    def _unchanged(
        self, version: PendingVersion, expected: str
    ) -> tuple[FoundFile, Signature | None]:
        """The file of a document with a hash, and its signature before it is read."""
        identity = version.row.identity
        file = self.added.get(identity) or self.dataset.find(identity)
        before = signature_of(file.path) if file is not None else None
        if (
            file is None
            or before is None
            or (version.hashed != before and hash_file(file.path) != expected)
        ):
            raise TransformError(_NO_SOURCE)
        version.hashed = before
        return file, before

    def _fetch(self, versions: Sequence[PendingVersion], group: int, plan: BuildPlan) -> None:
        """Read the nodes of a group, for the documents that do not have them yet."""
        missing = [one for one in versions if group not in one.segments]
        if not missing:
            return
        numbers = [one.current[group].number for one in missing]
        builds = self.ledger.builds.with_parents(numbers)
        nodes = self.nodes.of_builds(plan.collection(group), [builds[number] for number in numbers])
        for one, segments in zip(missing, nodes, strict=True):
            one.segments[group] = segments


_NO_SOURCE = (
    "The source of the document cannot be read: its file is gone, or has changed since it was"
    " loaded. Call sync(); for a file outside of the dataset, add_files with it."
)


def _one(_: object) -> int:
    return 1


def _encoded(terms: TermCodes, texts: Iterable[str]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """See `TermCodes.encode`: in slices, as one call keeps other threads waiting."""
    codes: list[NDArray[np.int64]] = []
    rows: list[NDArray[np.int32]] = []
    first = 0
    for some in batches_reaching(texts, len, _SLICE_CHARACTERS):
        numbers, places = terms.encode(some)
        codes.append(numbers)
        rows.append(places + np.int32(first))
        first += len(some)
    return np.concatenate(codes), np.concatenate(rows)


def _file_size(version: PendingVersion) -> int:
    return version.row.signature.size if version.row.signature is not None else 0


def file_error_or_raise(error: Exception) -> LazyRAGError:
    """Return an error of the file itself; raise any other one."""
    if not isinstance(error, LazyRAGError) or isinstance(error, (*_BATCH_ERRORS, StoreBusyError)):
        raise error
    return error


def _make_root(item: tuple[PendingVersion, MakeRoot, int]) -> Root:
    _, make_root, build = item
    return make_root(build)


class FieldReader:
    """Reads the fields of a document's nodes that indexes read before their text.

    Args:
        names: ``"path"``, ``"title"``, ``"headings"``, or names of metadata of the node or its
            file.
        root: The root node of the document.
        is_file: Whether its path is that of a file, not an id, whose words say nothing.
    """

    def __init__(self, names: Sequence[str], root: Segment, *, is_file: bool = True) -> None:
        self._names = names
        self._root = root
        self._headings = [one for one in root.locations if one.kind == "heading"]
        self._starts = [one.start for one in self._headings]
        self._prefixes: dict[str | None, str] = {}  # of nodes without metadata, by their heading
        words = _WORD.findall(root.path.rpartition(".")[0] or root.path) if is_file else ()
        self._path = " ".join(word for word in words if not word.isdecimal())

    def read(self, node: Segment, source: Segment | None, text: str) -> str:
        """The fields that a node has, each once, and a text; its headings if its span counts in the
        root node.
        """
        heading: str | None = None
        if node.span is not None and source is not None and source.group == LAZY_ROOT_NAME:
            at = bisect_right(self._starts, node.span[0]) - 1
            heading = (
                self._headings[at].label
                if at >= 0 and node.span[0] < self._headings[at].end
                else ""
            )
        prefix = None if node.metadata else self._prefixes.get(heading)
        if prefix is None:
            fields = (self._read(name, node, heading) for name in self._names)
            prefix = "".join(f"{one}\n" for one in dict.fromkeys(filter(None, fields)))
            if not node.metadata:
                self._prefixes[heading] = prefix
        return prefix + text

    def _read(self, name: str, node: Segment, heading: str | None) -> str:
        if name == "path":
            return self._path
        if name == "headings":
            # Without a span in the root node it is of a splitter of source texts.
            return str(node.metadata.get("heading", "")) if heading is None else heading
        value = node.metadata.get(name, self._root.metadata.get(name))
        return (
            ""
            if value is None
            else ", ".join(map(str, value))
            if isinstance(value, list)
            else str(value)
        )


_WORD = re.compile(r"[^\W_]+")


def field_texts(
    names: Sequence[str], root: Segment, nodes: Iterable[Segment], *, is_file: bool = True
) -> list[str]:
    """The texts of nodes right below a root node, each after its fields."""
    fields = FieldReader(names, root, is_file=is_file)
    return [fields.read(one, root, content_text(one.content)) for one in nodes]


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
        self._parents = {one.name: one.parent for one in plan.groups}
        self._rows = {one.name: one.id for one in plan.groups} | {LAZY_ROOT_NAME: plan.root}

    is_closed = False

    def parent(self, segment: Segment) -> DocNode | None:
        """See `NodeSource.parent`."""
        found = self._parent(segment)
        return None if found is None else self.show(found)

    def children(self, segment: Segment) -> dict[str, list[DocNode]]:
        """See `NodeSource.children`; only groups that are built already."""
        own = self._rows.get(segment.group)
        found: dict[str, list[DocNode]] = {}
        for target in sorted(self._plan.groups, key=lambda one: one.name):
            if target.parent == own and target.id in self._version.current:
                below = self._segments(target.id)
                found[target.name] = [self.show(one) for one in below if one.parent == segment.uid]
        return found

    def ref_nodes(self, segment: Segment) -> list[DocNode]:
        """The nodes of the target's ref group that belong to a node: those below the lowest group
        above both.
        """
        own = self._plan.line(self._target.parent)
        other = self._plan.line(self._target.ref)
        shared = next(row for row in own if row in other)
        if self._refs is None:
            refs: dict[str, list[DocNode]] = {}
            for node in self._segments(self._target.ref):
                refs.setdefault(self._ancestor(node, other, shared), []).append(self.show(node))
            self._refs = refs
        return list(self._refs.get(self._ancestor(segment, own, shared), ()))

    def texts_below(self, plan: BuildPlan, group: int, name: str) -> dict[str, list[str]]:
        """The texts of a group's nodes by the uid of the node above them in another group.

        Raises:
            TransformError: If the group was not made.
        """
        child = next((one.id for one in plan.groups if one.name == name), 0)
        if child not in self._version.current:
            raise TransformError(
                f"The group {name!r}, which index_text reads, was not made.", group=name
            )
        line = plan.line(child)
        found = dict[str, list[str]]()
        for node in self._segments(child):
            found.setdefault(self._ancestor(node, line, group), []).append(
                content_text(node.content)
            )
        return found

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

    def image(self, segment: Segment, file: Any = None) -> bytes:  # noqa: ARG002  the Protocol's signature
        """See `NodeSource.image`."""
        return self._load_image(self._version, self._root(segment), segment)

    def embeddings(self, segment: Segment) -> Mapping[str, Embedding]:  # noqa: ARG002  the Protocol's signature
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
            self._found[group] = {one.uid: one for one in self._segments(group)}
        return self._found[group]

    def _root(self, segment: Segment) -> Segment:
        return segment if segment.group == LAZY_ROOT_NAME else self._segments(self._plan.root)[0]

    def _parent(self, segment: Segment) -> Segment | None:
        if segment.parent is None:
            return None
        above = self._parents.get(segment.group)
        found = None if above is None else self._by_uid(above).get(segment.parent)
        if found is None:
            msg = (
                f"Node {segment.uid} of group {segment.group!r} has lost its parent. Retrieve it"
                " again."
            )
            raise StaleNodeError(msg)
        return found


# Root nodes

_MAX_READS = 3  # of a file that changes while it is read


def file_root(
    load: Callable[[FoundFile], LoadedFile],
    file: FoundFile,
    row: DocumentRow,
    user_metadata: Mapping[str, Any] | LazyRAGError,
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


def _typed_metadata(loaded: LoadedFile, schema: Schema) -> dict[str, Any]:
    """Metadata of a loader, with its values of declared fields parsed; those that do not fit are
    noted.
    """
    metadata = dict(loaded.metadata)
    misfits = list[str]()
    for name, declared in schema.items():
        value = metadata.pop(name, None) if name in metadata else loaded.fields.get(name)
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
    return Root(
        root_segment(
            row.identity, LoadedFile(text), _metadata(row, built_in, built_in), schema, build
        ),
        row,
    )


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
    known = {name: before.metadata[name] for name in BUILT_IN_FIELDS if name in before.metadata}
    built_in = known if file is None else _file_system_metadata(file)
    loaded = LoadedFile(str(before.content), before.locations, json.loads(row.loaded))
    # the fields may have changed
    row = replace(row, loaded=json.dumps(_typed_metadata(loaded, schema)))
    return Root(
        root_segment(row.identity, loaded, _metadata(row, {}, built_in), schema, build), row
    )


def _metadata(
    row: DocumentRow, first: Mapping[str, Any], built_in: Mapping[str, Any]
) -> dict[str, Any]:
    """A document's metadata; later parts take precedence."""
    stored = (json.loads(text) for text in (row.loaded, row.user_metadata, row.updates))
    metadata = dict(first)
    for part in (*stored, built_in):
        metadata.update(part)
    return metadata


def _file_system_metadata(file: FoundFile) -> Mapping[str, Any]:
    name = file.identity.rpartition("/")[2]
    suffix = file.path.suffix.lower()
    # An id that looks like the file's name is one: uploads are stored under other names.
    named = {"file_name": name} if suffix and name.lower().endswith(suffix) else {}
    try:
        return {**built_in_metadata(file.path), **named}
    except OSError as exc:
        msg = (
            f"The file cannot be looked at ({exc.strerror}). Check that it exists and may be read."
        )
        raise LoadError(msg, path=str(file.path)) from exc


def root_segment(
    identity: str, loaded: LoadedFile, metadata: dict[str, Any], schema: Schema, build: int
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
        value = fields[name] = declared.default_value if value is None else value
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


def content_key(segment: Segment) -> tuple[str, str]:
    """The type and the text of a node's content."""
    return type(segment.content).__name__, content_text(segment.content)


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
            fields=(
                _own_fields(parent.fields, draft.metadata, schema)
                if draft.metadata
                else parent.fields
            ),
            span=_shifted(draft.span, parent.span[0]) if parent.span else draft.span,
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
    return [
        node._replace(
            uid=uid,
            build=build,
            document_id=parent.document_id,
            path=parent.path,
            parent=parent.uid,
            fields=(
                _own_fields(parent.fields, node.metadata, schema)
                if node.metadata
                else parent.fields
            ),
            span=_shifted(
                node.span, (parent.span or (0, 0))[0] - (parent_before.span or (0, 0))[0]
            ),
        )
        for parent_before, parent, count in zip(parents_before, parents, counts, strict=True)
        for uid, node in zip(
            child_uids(parent.uid, group, range(1, count + 1)),
            itertools.islice(rest, count),
            strict=True,
        )
    ]


def _shifted(span: Span | None, by: int) -> Span | None:
    return None if span is None else (span[0] + by, span[1] + by)


def _own_fields(above: Fields, metadata: Mapping[str, Any], schema: Schema) -> Fields:
    """A node's fields: those of the node above it, overlaid with the declared ones in its own
    metadata.
    """
    own = {
        name: check_value(name, schema[name], value)
        for name, value in metadata.items()
        if name in schema and name not in BUILT_IN_FIELDS and value is not None
    }
    return {**above, **own} if own else above


# Digests, by which work that was done is found again

_VOLATILE = "last_accessed_date"
_SORTED = json.JSONEncoder(sort_keys=True, default=str)  # json.dumps would make one each time


def root_digest(root: Segment) -> str:
    """Digest of a root node, without the time of last access, which reading may change."""
    stable = [
        {name: value for name, value in one.items() if name != _VOLATILE}
        for one in (root.metadata, root.fields)
    ]
    return digest(
        [content_text(root.content), _SORTED.encode([*stable, _location_rows(root.locations)])]
    )


def output_digest(nodes: Sequence[Segment]) -> str:
    """Digest of a build's nodes as a store holds them, the time of last access included."""
    shared: dict[str, int] = {}  # path and fields, which most nodes of a build have in common
    # the same by the fields' object, as which they mostly come
    seen: dict[tuple[str, int], int] = {}
    parts: list[str] = []
    for one in nodes:
        common = seen.get((one.path, id(one.fields)))
        if common is None:
            text = _SORTED.encode([one.path, dict(one.fields)])
            common = seen[one.path, id(one.fields)] = shared.setdefault(text, len(shared))
        kind, text = _typed_content(one)
        start, end = one.span or ("", "")
        rest = (
            _SORTED.encode([dict(one.metadata), _location_rows(one.locations)])
            if one.metadata or one.locations
            else ""
        )
        # The parts of a node, and nodes, cannot run into each other: free text is preceded by its
        # length.
        parts.append(
            f"{common} {one.uid}-{one.build} {one.parent} {one.number} {start} {end} {kind}"
            f" {len(text)} {text}{rest}"
        )
    return digest([*shared, "".join(parts)])


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
    parts = [str(len(line[0])), *itertools.chain.from_iterable(map(_typed_content, line[0]))]
    if sees_nodes:
        for nodes in line:
            for one in nodes:
                own = {
                    name: value
                    for name, value in one.metadata.items()
                    if name not in BUILT_IN_FIELDS
                }
                parts.append(_SORTED.encode(own))
            parts += [_SORTED.encode([one.span, one.number]) for one in nodes]
        parts += [text for nodes in line[1:] for one in nodes for text in _typed_content(one)]
        parts += map(_SORTED.encode, _location_rows(line[-1][0].locations))
    # After a slash, so that the rest can be compared without the transform.
    by_path = "" if path_key is None else path_key(line[-1][0].path)
    rest = f"{by_path} source {source}" if source else by_path
    return digest(parts) + ("" if path_key is None and not source else f"/{rest}")


def _typed_content(one: Segment) -> tuple[str, str]:
    """The type of a node's content ("" for text), and the content as text."""
    content = one.content
    return (
        ("", content)
        if isinstance(content, str)
        else (type(content).__name__, _SORTED.encode(content))
    )


def _location_rows(locations: Iterable[Location]) -> list[tuple[int, int, str, str]]:
    return [(location.start, location.end, location.kind, location.label) for location in locations]


# Embedding


def embed_documents(
    embedder: CheckedEmbedder,
    dimension: int,
    texts: Iterable[tuple[D, Sequence[str]]],
    known: Mapping[str, Embedded],
    on_nodes: Callable[[int], None],
    at_once: int = _BATCH_SIZE,
) -> Iterator[tuple[D, Sequence[Embedded]]]:
    """Embed documents; yields each with the result for each of its texts, as soon as all are there.

    Texts of several documents are embedded together: a batch need not end where a file does, and
    models that pad prefer to choose texts of equal length among many. So documents come in any
    order.

    Args:
        embedder: The embed callable.
        dimension: The length that vectors must have, or `SPARSE`; 0 if it is not known yet.
        texts: Documents with their texts, at least one each.
        known: Vectors of texts that need not be embedded again; looked up again for every few
            documents.
        on_nodes: Called with the number of further texts that have a result.
        at_once: How many texts are embedded together.
    """
    for some in batches_reaching(texts, lambda pair: len(pair[1]), at_once):
        yield from _embed_together(embedder, dimension, dict(some), known, on_nodes)


def _embed_together(
    embedder: CheckedEmbedder,
    dimension: int,
    texts: Mapping[D, Sequence[str]],
    known: Mapping[str, Embedded],
    on_nodes: Callable[[int], None],
) -> Iterator[tuple[D, Sequence[Embedded]]]:
    users: dict[str, list[D]] = {}  # the documents that have a text, once for each time
    for document, own in texts.items():
        for text in own:
            users.setdefault(text, []).append(document)
    missing = {document: len(own) for document, own in texts.items()}
    found: dict[str, Embedded] = {}

    def enter(text: str, result: Embedded) -> Iterator[tuple[D, Sequence[Embedded]]]:
        found[text] = result
        on_nodes(len(users[text]))
        for document in users[text]:
            missing[document] -= 1
            if not missing[document]:
                yield document, [found[one] for one in texts[document]]

    for text in users:
        if text in known:
            yield from enter(text, known[text])
    distinct = [text for text in users if text not in found]
    for batch in embedder.batches(distinct, dimension):
        for position, result in zip(batch.positions, batch.results, strict=True):
            yield from enter(distinct[position], result)


# Worker threads

_AHEAD = 4  # items for each worker that may be done before their results are read
# handing an item over costs a few tenths of a millisecond when Python does the work
_WORTH_A_THREAD_S = 0.002
_SURELY_WORTH_ONE_S = 0.05

_owners = threading.local()


_stop_events: WeakKeyDictionary[Executor, threading.Event] = WeakKeyDictionary()


def _set_up(owner: object, stopping: threading.Event) -> None:
    _owners.owner = owner
    set_stop_event(stopping)


@contextmanager
def worker_pool(workers: int, count: int, owner: object) -> Iterator[ThreadPoolExecutor | None]:
    """Threads for several items, or None; stopped at once when the body raises."""
    if workers == 1 or count < 2:
        yield None
        return
    from concurrent.futures import ThreadPoolExecutor  # 8 ms, which a start without changes saves

    stopping = threading.Event()
    executor = ThreadPoolExecutor(
        workers, "lazyrag ingestion", initializer=_set_up, initargs=(owner, stopping)
    )
    _stop_events[executor] = stopping
    try:
        yield executor
    except BaseException:
        stopping.set()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def is_worker_of(owner: object) -> bool:
    """Whether this thread is a worker of an owner, see `worker_pool`."""
    return getattr(_owners, "owner", None) is owner


def map_in_order(
    executor: Executor | None, workers: int, function: Callable[[T], R], items: Iterable[T]
) -> Iterator[tuple[T, R | Exception]]:
    """Yield each item with the function's result, or the exception that it raised, in the items'
    order.

    Items are processed here, one after the other, until threads pay: until one takes very long, or
    two in a row take long (a single one may have met the garbage collector). Only a few results
    wait to be read, so memory is bounded. On an interrupt, items that were not begun are dropped,
    and those that were begun are finished before the interrupt continues, unless they check
    `lazyrag.errors` and stop.

    Args:
        executor: Its workers call the function; None for none.
        workers: How many it has.
        function: Called with each item, by several workers at once.
        items: Any number.

    Example:
        >>> list(map_in_order(None, 1, lambda n: 6 // n, [3, 0]))
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
            yield from _map_in_threads(executor, workers, function, rest)
        was_long = is_long


def _map_in_threads(
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
                # somebody insists
                if interrupt is not None and not (waiting and _raised(waiting[0][1], exc)):
                    raise
                interrupt = interrupt or exc
                if executor in _stop_events:
                    _stop_events[executor].set()
                waiting = deque(
                    pair for pair in waiting if not (pair[1].cancel() or _raised(pair[1], exc))
                )
                continue
            item, _ = waiting.popleft()
            yield item, result
    finally:
        for _, future in waiting:
            future.cancel()
    if interrupt is not None:
        raise interrupt


def _result(future: Future[R]) -> R | Exception:
    try:
        return future.result()
    except Exception as exc:  # noqa: BLE001  it is the item's result
        return exc


def _raised(future: Future[R], exc: BaseException) -> bool:
    """Whether an interrupt reached the worker that had this item, not the thread that waits."""
    return future.done() and future.exception() is exc


# Purge

_BUILDS_AT_ONCE = 2_000  # bounds the memory of their keys


def find_waste(
    ledger: Ledger, before: float
) -> tuple[list[tuple[int, int, str]], list[tuple[int, str]], list[tuple[int, str]]]:
    """Builds, groups and indexes to `purge`."""
    with ledger.reading():
        return (
            ledger.builds.dead(before),
            ledger.groups.dropped_groups(before),
            ledger.groups.dropped_indexes(before),
        )


def purge(ledger: Ledger, nodes: NodeStore, before: float) -> int:
    """Remove dead builds, and dropped groups and indexes, from the stores.

    It may be killed at any instant: the rest is removed next time. Readers are notified first, so
    that a read that still uses them is repeated.

    Args:
        ledger: The ledger, whose lease is held.
        nodes: The stores.
        before: They have been dead since before this time; in seconds since 1970.

    Returns:
        How many builds were removed one by one.
    """
    builds, groups, indexes = waste = find_waste(ledger, before)
    if not any(waste):
        return 0
    ledger.announce_removal()
    for index, collection in indexes:
        if collection:
            nodes.vectors_to_write.drop(collection)
        ledger.groups.delete_index_row(index)
    for group, collection in groups:
        for vectors in ledger.groups.vector_collections(group):
            nodes.vectors_to_write.drop(vectors)
        nodes.segments.drop(collection)
        ledger.groups.delete_group_row(group)
    # A build's keys follow from those above it, so all are removed from the stores before any from
    # the ledger.
    for (group, collection), of_group in itertools.groupby(builds, key=lambda one: one[1:]):
        numbers = [number for number, _, _ in of_group]
        for start in range(0, len(numbers), _BUILDS_AT_ONCE):
            raise_if_canceled()
            _delete_builds(
                ledger, nodes, group, collection, numbers[start : start + _BUILDS_AT_ONCE]
            )
    ledger.state()  # which need not be read anew as a whole, now that it knows what is gone
    ledger.builds.delete_build_rows(number for number, _, _ in builds)
    if groups:
        ledger.documents.delete_document_rows()
    return len(builds)


def _delete_builds(
    ledger: Ledger, nodes: NodeStore, group: int, collection: str, builds: Sequence[int]
) -> None:
    """Delete the nodes and vectors of some builds; their keys are computed only for a store that
    needs them.
    """
    vectors = ledger.groups.vector_collections(group)
    by_build = isinstance(nodes.segments, MapFileSegmentStore)
    found = {} if by_build and not vectors else ledger.builds.with_parents(builds)
    keys = [key for build in found.values() for key in build.keys]
    for one in vectors:
        nodes.vectors_to_write.delete(one, keys=keys)
    if isinstance(nodes.segments, MapFileSegmentStore):
        nodes.segments.delete_builds(collection, builds)
    else:
        nodes.segments.delete(collection, keys=keys)
