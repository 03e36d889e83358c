"""The ingestion engine: brings documents to a build plan in batches.

One batch: load root nodes, transform, write the nodes, embed, analyse, flip. Until the flip readers
see nothing of it. After a crash, builds that were written are found again by the digest of their
input, and those that nobody wants are removed by `Indexer.purge`.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from lazyrag.data.segment import (
    LAZY_ROOT_NAME,
    Segment,
    content_text,
    digest,
)
from lazyrag.errors import (
    IngestionError,
    IngestionWarning,
    LazyRAGError,
    LoaderEndedError,
    NoReaderError,
    StoreBusyError,
    StoreError,
    TransformError,
    sentence,
    warn_user,
)
from lazyrag.groups.node_group import LOADING, Step
from lazyrag.ingest.index_texts import embed_documents, field_texts, read_index_texts
from lazyrag.ingest.load_files import Loading, map_in_order, worker_pool
from lazyrag.ingest.pending import (
    MISFIT,
    MUCH_TEXT,
    MadeNodes,
    MakeRoot,
    Outcome,
    PendingVersion,
    Root,
    ToDo,
    VersionReader,
    copied_nodes,
    input_digest,
    make_nodes,
    output_digest,
    renewed_root,
    reusable_nodes,
    root_digest,
)
from lazyrag.ingest.plan import BuildPlan, GroupTarget, IndexTarget, TermsTarget, VectorsTarget
from lazyrag.ingest.report import Failures, Options
from lazyrag.ingest.term_index import TermIndexes, build_terms
from lazyrag.ledger.lease import Turns
from lazyrag.ledger.ledger import Ledger, NewPart
from lazyrag.ledger.tables import (
    HIDDEN,
    BuildRow,
    DocumentRow,
    acknowledge_builds,
    begin_builds,
    next_builds,
)
from lazyrag.loaders.directory import FoundFile
from lazyrag.models.embedding import length_of, stack_embeddings
from lazyrag.models.protocols import Embedded
from lazyrag.progress.calls import ProgressMeter
from lazyrag.read.nodes import NodeStore
from lazyrag.storage.database import batches_reaching
from lazyrag.stores.protocol import VectorRow

if TYPE_CHECKING:
    from concurrent.futures import Executor


_BATCH = 256  # documents that become live together
BATCH_BYTES = 8 * 2**20  # of their files; bounds the memory of what is made of them
_WRITTEN_EVERY_S = 5.0  # so that a crash costs no more than that of what slow transforms made
# texts embedded together; bounds their memory, and fills the batches of any model
_BATCH_SIZE = 1024
_SLICE = 2_000  # nodes, and vectors, that are written together: others wait so long for their turn
_BATCH_ERRORS = (IngestionError, StoreError)  # after which no other file would do better


@dataclass(slots=True)
class _Batch:
    """Documents that are brought to a plan together.

    Args:
        versions: The documents.
        plan: What they are brought to.
        executor: Its threads call loaders and transforms; None for this thread.
        meter: Reports the steps that documents have taken.
        loading: Those of them that get a new root node.
        numbers: The build numbers that may be used, by group row and document.
        written: Builds of the documents that stores acknowledged before, by group row.
        new_numbers: Numbers of the builds that were made.
        new: Those with their nodes that are not written yet, by group row.
        written_at: When some were last written, in seconds.
    """

    versions: Sequence[PendingVersion]
    plan: BuildPlan
    executor: Executor | None
    meter: ProgressMeter
    loading: Sequence[PendingVersion] = ()
    numbers: dict[int, list[int]] = field(default_factory=dict)
    written: dict[int, dict[tuple[int, int | None, str], BuildRow]] = field(default_factory=dict)
    new_numbers: set[int] = field(default_factory=set)
    new: dict[int, list[tuple[BuildRow, list[Segment]]]] = field(default_factory=dict)
    written_at: float = field(default_factory=time.monotonic)

    def add(self, version: PendingVersion, row: BuildRow, segments: list[Segment]) -> None:
        """Add a build of a document, to be written."""
        version.current[row.node_group] = row
        version.segments[row.node_group] = segments
        self.new_numbers.add(row.number)
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
        turns: Whose turn it is: others have theirs while documents are loaded, transformed,
            embedded and analysed.
        reader: Reads the documents' nodes and files.
    """

    ledger: Ledger
    nodes: NodeStore
    terms: TermIndexes
    failures: Failures
    loading: Loading
    options: Options
    turns: Turns
    reader: VersionReader

    @property
    def workers(self) -> int:
        """How many threads call loaders and transforms; 1 for none."""
        return max(self.options.workers, self.options.processes)

    @property
    def added(self) -> dict[str, FoundFile]:
        """Files that are or were added to the dataset's, by identity."""
        return self.reader.added

    def ingest(
        self,
        versions: Iterable[PendingVersion],
        plan: BuildPlan,
        label: str,
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
            label: Label of the progress bar; "" in a worker.
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
        writers = self.options.writers
        if writers is not None and count:
            delegated: list[Outcome] = writers.ingest(self, versions, plan, label, count, stop=stop)
            return delegated
        outcomes: list[Outcome] = []
        if not count:
            return outcomes
        steps = steps or len(plan.groups) + len(plan.indexes) + 1
        launcher = self.options.launcher
        if launcher is not None:
            launcher.require(plan, self.loading)
        unit = "node" if nodes else "file"
        with (
            self.loading.running(count),
            worker_pool(self.workers, count, self.reader.owner) as executor,
            ProgressMeter(label, nodes or count, steps, unit=unit) as meter,
        ):
            for some in batches_reaching(versions, file_size, BATCH_BYTES, most_items=_BATCH):
                batch = _Batch(some, plan, executor, meter)
                self._begin(batch)
                done = self._ingest_batch(batch)
                if launcher is not None:
                    with self.turns.aside():
                        pass
                self._save_failures(done)
                outcomes += map(PendingVersion.outcome, done)
                # those of documents that failed are not counted one by one
                if not nodes or len(outcomes) == count:
                    meter.reach(nodes or len(outcomes))
                if stop:
                    self._raise_first_failure(done)
        if label:  # else a worker's driver warns
            self.warn_of_misfits(outcomes)
        return outcomes

    def merge_terms(self, plan: BuildPlan) -> None:
        """Merge the small parts of keyword indexes that workers have left."""
        for target in plan.terms:
            while parts := self.terms.merged(target.group, target.id):
                try:
                    self.ledger.flip([], parts, visible=plan.visible)
                finally:
                    self.terms.release(parts)
                self.ledger.file.arrays.postpone_deletion(parts[0].retired)

    def _raise_first_failure(self, versions: Iterable[PendingVersion]) -> None:
        for version in versions:
            for step, error in version.failures.items():
                self.raise_failure(step, error)

    def raise_failure(self, step: Step, error: Exception) -> None:
        """Raise the failure of a document, unless it is skipped.

        Raises:
            IngestionError: With the step and the error.
        """
        if isinstance(error, NoReaderError):
            return
        msg = f"A file failed to {step}: {sentence(error)} Earlier files are stored."
        raise IngestionError(f"{msg} ({self.failures.where})") from error

    def warn_of_misfits(self, outcomes: Iterable[Outcome]) -> None:
        """Warn of values in files that do not fit their declared fields."""
        misfits = []
        for outcome in outcomes:
            notes = [note for note in outcome.notes if note.startswith(MISFIT)]
            misfits += [(outcome.identity, note) for note in notes]
        if not misfits:
            return
        path, note = misfits[0]
        problem = f"Values in files do not fit their declared fields: {len(misfits)}."
        first = f"The first, of {path}: {note}"
        where = f"({self.failures.where}: last_report.notes lists all)"
        warn_user(f"{problem} {first} {where}", IngestionWarning)

    def _save_failures(self, versions: Sequence[PendingVersion]) -> None:
        failed = []
        unread = []
        outdated = []
        for version in versions:
            for step, error in version.failures.items():
                if isinstance(error, NoReaderError):
                    unread.append((version.row, error.reason))
                    outdated += [row.id for row in version.sources]
                else:
                    failed.append((version.row.identity, str(step), error))
        identities = [version.row.identity for version in versions]
        self.ledger.documents.set_failures(identities, failed)
        if unread:  # what their documents said before is no longer in the files
            self.ledger.documents.tombstone(outdated, "deleted")
            self.ledger.documents.note_skipped(unread)

    def _begin(self, batch: _Batch) -> None:
        """Enter the documents of a batch, and read what there is of each, and of the one it was
        moved from.

        Those that were deleted since they were planned are left out.
        """
        documents: set[int] = set()
        for version in batch.versions:
            documents.update(row.id for row in version.sources if row.id)  # a new one has nothing
        builds = self.ledger.builds
        with self.ledger.writing() as connection:
            self._register(batch, connection)
            roots = len(batch.loading)
            groups = batch.plan.groups
            numbers = iter(next_builds(connection, roots + len(groups) * len(batch.versions)))
            live = builds.live(documents)
            for build in builds.written(documents):
                written = batch.written.setdefault(build.node_group, {})
                written[build.document, build.parent, build.input] = build
                written[build.document, None, build.input] = build  # the newest
        batch.numbers[batch.plan.root] = list(itertools.islice(numbers, roots))
        for group in groups:
            batch.numbers[group.id] = list(itertools.islice(numbers, len(batch.versions)))
        for version in batch.versions:
            version.before = live.get(version.row.id, {})
            if version.moved_from is not None:
                version.moved_before = live.get(version.moved_from.id, {})
            is_loaded = version.make_root is not None and not version.beside
            version.current = {} if is_loaded else dict(version.before)

    def _register(self, batch: _Batch, connection: sqlite3.Connection) -> None:
        """Enter documents, and take over what others have changed in their rows since they were
        planned.
        """
        for version in batch.versions:
            if version.base is None and version.row.id:
                version.base = version.row
        loading = [version for version in batch.versions if version.make_root is not None]
        registered = self.ledger.documents.register(
            connection, [version.row for version in loading]
        )
        for version, row in zip(loading, registered, strict=True):
            version.row = row
        present = self.ledger.documents.rows([version.row.id for version in batch.versions])
        pairs = zip(batch.versions, present, strict=True)
        batch.versions = [version for version, row in pairs if version.rebase(row)]
        batch.loading = [version for version in batch.versions if version.make_root is not None]

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
                self._flip([version for version in versions if version.is_complete(plan)], plan)
            raise
        changed = self._flip(versions, plan)
        if not changed:
            return versions
        again = _Batch([version.again() for version in changed], plan, batch.executor, batch.meter)
        self._begin(again)
        done = [version for version in versions if version not in changed]
        return [*done, *self._ingest_batch(again)]

    def _aside(self, versions: Sequence[PendingVersion]) -> AbstractContextManager[None]:
        """Let others have the turn in the block.

        Not while the root group is replaced, of which they need one, nor for documents that were
        overtaken before; and a launcher loads one batch at a time.
        """
        if self.options.launcher is not None:
            return nullcontext()
        holds_turn = any(version.beside or version.waits_for_nobody for version in versions)
        return nullcontext() if holds_turn else self.turns.aside()

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
        if self.options.launcher is not None:
            make_roots = [version.make_root for version in batch.loading]
            self.loading.loaded = self.options.launcher.load(make_roots, self.loading)
        items = zip(batch.loading, batch.numbers[batch.plan.root], strict=True)
        for (version, _), result in map_in_order(batch.executor, self.workers, _make_root, items):
            batch.meter.tick(LOADING)
            if isinstance(result, Exception):
                self._fail(LOADING, version, file_error_or_raise(result))
            else:
                self._add_root(version, result, batch)

    def _add_root(self, version: PendingVersion, root: Root, batch: _Batch) -> None:
        """Add a root node, or find it among those that are written already."""
        group = batch.plan.root
        updates = version.row.updates
        row = replace(root.row, id=version.row.id, version=version.row.version, updates=updates)
        version.row = row
        if root.row.updates != updates:
            root = renewed_root(root.segment, row, self.nodes.schema, root.segment.build)
        input_hash = root_digest(root.segment)
        live = version.before.get(group)
        if (
            live is not None
            and live.input == input_hash
            and self._has_live_source(version, root, batch)
        ):
            version.current = dict(version.before)
            version.segments[group] = [root.segment._replace(build=live.number)]
            return
        build = batch.written.get(group, {}).get((row.id, None, input_hash))
        if build is not None and build != live:
            version.current[group] = build
            version.segments[group] = [root.segment._replace(build=build.number)]
            return
        number = root.segment.build
        build = BuildRow(number, row.id, group, None, number, input_hash, "[1]")
        batch.add(version, build, [root.segment])
        if len(content_text(root.segment.content)) > MUCH_TEXT:
            self._write(batch)  # takes as much memory as its nodes, which are not made yet

    def _has_live_source(self, version: PendingVersion, root: Root, batch: _Batch) -> bool:
        """Whether no transform reads another source than that of the live version: another one that
        is rendered as the same text makes another version.
        """
        kinds = {group.reads_source for group in batch.plan.groups} - {False}
        hashes = {self.reader.source_hash(version, root.segment, kind) for kind in kinds}
        return hashes <= {"", self.reader.live_hash(version.row)}

    # Transform

    def _transform(self, target: GroupTarget, batch: _Batch) -> None:
        parents = {target.parent, target.ref or batch.plan.root}
        ready = [
            version
            for version in batch.versions
            if target.id not in version.current and parents <= version.current.keys()
        ]
        if not ready:
            return
        for group in batch.plan.sources_of(target):
            self.reader.fetch(ready, group, batch.plan)
        to_do = self._copy_or_plan(target, batch, ready)
        step = Step(target.name)
        for (version, row, _), result in self._transformed(target, batch, to_do):
            batch.meter.tick(step)
            if isinstance(result, Exception):
                self._fail(step, version, file_error_or_raise(result))
                continue
            counts, segments = result
            batch.add(version, row._replace(counts=json.dumps(counts)), segments)
            if time.monotonic() - batch.written_at > _WRITTEN_EVERY_S:
                self._write(batch)

    def _copy_or_plan(
        self, target: GroupTarget, batch: _Batch, ready: Sequence[PendingVersion]
    ) -> list[ToDo]:
        """Use builds with the same input again; returns the documents to transform."""
        written = batch.written.get(target.id, {})
        to_do = []
        copies = []
        for version, number in zip(ready, batch.numbers[target.id], strict=False):
            document = version.row.id
            above = version.current[target.parent]
            input_hash = self._input_hash(target, version, batch.plan)
            build = written.get((document, above.number, input_hash))
            if build is not None:
                version.current[target.id] = build
                continue
            row = BuildRow(number, document, target.id, above.number, above.root, input_hash, "[]")
            same = [written.get((source.id, None, input_hash)) for source in version.sources]
            copied = next(filter(None, same), None)
            if copied is not None:
                copies.append((version, row._replace(counts=copied.counts), copied.number))
                continue
            builds = written.values()
            reusable = reusable_nodes(self.reader, builds, input_hash, version, target, batch.plan)
            to_do.append((version, row, reusable))
        if copies:
            copied_segments = copied_nodes(self.reader, copies, target, batch.plan)
            for (version, row, _), segments in copied_segments:
                batch.add(version, row, segments)
        return to_do

    def _input_hash(self, target: GroupTarget, version: PendingVersion, plan: BuildPlan) -> str:
        source = ""
        if target.reads_source:
            [root] = version.segments[plan.root]
            source = self.reader.source_hash(version, root, target.reads_source)
        line = [version.segments[group] for group in plan.sources_of(target)]
        return input_digest(
            line, sees_nodes=target.sees_nodes, path_key=target.path_key, source=source
        )

    def _transformed(
        self, target: GroupTarget, batch: _Batch, to_do: Sequence[ToDo]
    ) -> Iterator[tuple[ToDo, MadeNodes | Exception]]:
        """Documents with their nodes, or the error, in order."""

        def transform(item: ToDo) -> MadeNodes:
            version, row, reusable = item
            return make_nodes(self.reader, target, version, row.number, batch.plan, reusable)

        launcher = self.options.launcher
        if launcher is None:
            return map_in_order(batch.executor, self.workers, transform, to_do)
        launched: Iterator[Any] = launcher.transform(self.reader, target, batch.plan, to_do)
        return launched

    def preview(
        self, target: GroupTarget, version: PendingVersion, plan: BuildPlan
    ) -> list[Segment]:
        """Return the nodes that a transform would make of a document; nothing is written."""
        for group in plan.sources_of(target):
            self.reader.fetch([version], group, plan)
        _, version.segments[target.id] = make_nodes(self.reader, target, version, 0, plan, {})
        return version.segments[target.id]

    # Embed and analyse

    def _embed(self, target: VectorsTarget, batch: _Batch) -> None:
        """Embed the nodes that a vector index lacks, and write their vectors."""
        ready = self._uncovered(target, batch)
        stored: dict[str, Embedded] = {}
        launcher = self.options.launcher
        at_once = _BATCH_SIZE * (1 if launcher is None else launcher.width)

        def texts() -> Iterator[tuple[PendingVersion, Sequence[str]]]:
            for version in ready:
                stored.update(self._stored_vectors(target, version, batch.plan))
                texts_to_embed = self._index_texts(target, version, batch.plan)
                if texts_to_embed:
                    yield version, texts_to_embed

        embedder = target.embedder
        dimension = target.dimension
        on_nodes = batch.meter.tick_nodes
        embedded = itertools.chain.from_iterable(
            embed_documents(embedder, dimension, dict(some), stored, on_nodes)
            for some in batches_reaching(texts(), _count_texts, at_once)
        )
        rows = []
        done = []
        try:
            for version, results in embedded:
                batch.meter.tick(target.step)
                try:
                    vectors = stack_embeddings(results, embedder.name, target.dimension)
                except _BATCH_ERRORS:
                    raise
                except LazyRAGError as exc:
                    self._fail(target.step, version, exc)
                    continue
                if not target.dimension:
                    self._create_vectors(target, length_of(vectors[0]))
                pairs = zip(version.segments[target.group], vectors, strict=True)
                rows += [VectorRow(node.key, vector, node.fields) for node, vector in pairs]
                done.append(version)
        finally:
            for start in range(0, len(rows), _SLICE):
                self.nodes.vectors_to_write.upsert(target.collection, rows[start : start + _SLICE])
            for version in done:
                version.covered.append((target.id, version.current[target.group].number))

    def _create_vectors(self, target: VectorsTarget, dimension: int) -> None:
        with self.turns.taken():
            self.nodes.create_vectors(target.collection, dimension, target.step.embed_key or "")
            self.ledger.groups.set_dimension(target.id, dimension)
        target.dimension = dimension

    def _stored_vectors(
        self, target: VectorsTarget, version: PendingVersion, plan: BuildPlan
    ) -> Mapping[str, Embedded]:
        """Live vectors of a document by text: unchanged text is not embedded again."""
        vectors_by_text: dict[str, Embedded] = {}
        tree = self.ledger.tree
        text = target.text
        group = tree.groups.get(plan.names[target.group])
        if group is None:
            return vectors_by_text
        is_known = not text.identity or (text.is_fields and group.parent == LAZY_ROOT_NAME)
        if not is_known:
            return vectors_by_text  # nobody knows what was read of its nodes
        index = group.indexes.get(("vectors", str(target.step.embed_key), target.identity))
        if index is None or not index.dimension:
            return vectors_by_text
        for row in version.sources:
            build = tree.build_of(group.name, row.uid)
            if build is None or build.number == version.current[target.group].number:
                continue
            with self.reader.reading(vectors=True):
                nodes = self.nodes.of_build(group.collection, build)
                if text.fields:
                    roots = tree.groups[LAZY_ROOT_NAME]
                    above = tree.builds_of(LAZY_ROOT_NAME, [row.uid])[row.uid]
                    [root] = self.nodes.of_build(roots.collection, above)
                    texts = field_texts(text.fields, root, nodes, is_file=row.origin != "text")
                else:
                    texts = [content_text(node.content) for node in nodes]
                keys = [node.key for node in nodes]
                stored = self.nodes.vectors.get(index.collection, keys)
            text_of = dict(zip(keys, texts, strict=True))
            vectors_by_text.update((text_of[vector.key], vector.vector) for vector in stored)
        return vectors_by_text

    def _analyse(self, target: TermsTarget, batch: _Batch) -> None:
        """Analyse the nodes that a keyword index lacks; their terms are written when the documents
        become live.
        """
        target.terms.shrink()
        for version in self._uncovered(target, batch):
            batch.meter.tick(target.step)
            texts = self._index_texts(target, version, batch.plan)
            if not texts:
                continue
            number = version.current[target.group].number
            keys = [segment.key for segment in version.segments[target.group]]
            fields = [segment.fields for segment in version.segments[target.group]]
            version.release_text()
            try:
                version.terms[target.id] = build_terms(number, keys, fields, texts, target.terms)
            except LazyRAGError as exc:
                self._fail(target.step, version, exc)
                continue
            version.covered.append((target.id, number))

    def _index_texts(
        self, target: IndexTarget, version: PendingVersion, plan: BuildPlan
    ) -> list[str]:
        """What an index reads of a document's nodes; [] if that failed."""
        segments = version.segments[target.group]
        if not target.text.identity or not segments:
            return [content_text(segment.content) for segment in segments]
        try:
            return read_index_texts(target, version, plan, self.reader.source_of(version, plan))
        except _BATCH_ERRORS:
            raise
        except LazyRAGError as exc:
            error = exc
        except Exception as exc:  # noqa: BLE001  of the user's function
            group = target.step.group
            msg = f"index_text of {group!r} raised {type(exc).__name__}: {exc}"
            error = TransformError(sentence(msg), group=group)
        self._fail(target.step, version, error)
        return []

    def indexed_texts(self, plan: BuildPlan) -> Iterator[tuple[str, list[str]]]:
        """What the vector indexes of a plan read that is not the nodes' own text, by identity, in
        pages.
        """
        targets = [target for target in plan.vectors if target.text.is_fields]
        rows = self.ledger.documents.in_order() if targets else ()
        versions = map(PendingVersion, rows)
        for some in batches_reaching(versions, file_size, BATCH_BYTES, most_items=_BATCH):
            page = []
            with self.reader.reading():
                live = self.ledger.builds.live({version.row.id for version in some})
                for version in some:
                    version.current = dict(live.get(version.row.id, {}))
                for target in targets:
                    built = [version for version in some if target.group in version.current]
                    self.reader.fetch(built, target.group, plan)
                    page += [
                        (target.identity, self._index_texts(target, version, plan))
                        for version in built
                    ]
            yield from page

    def _uncovered(self, target: IndexTarget, batch: _Batch) -> list[PendingVersion]:
        """The documents with nodes that an index lacks; their nodes are read."""
        version_by_build = {}
        for version in batch.versions:
            build = version.current.get(target.group)
            if build is not None and any(json.loads(build.counts)):
                version_by_build[build.number] = version
        written = version_by_build.keys() - batch.new_numbers
        covered = self.ledger.builds.covered(target.id, written)
        ready = [version for number, version in version_by_build.items() if number not in covered]
        self.reader.fetch(ready, target.group, batch.plan)
        return ready

    # Write and flip

    def _write(self, batch: _Batch) -> None:
        """Enter builds into the ledger, write their nodes, acknowledge the builds: in one
        transaction in one file.

        Nodes of large documents are written in slices, between which others have their turn.
        """
        if batch.new:
            self._write_new(batch)
            batch.new.clear()
        batch.written_at = time.monotonic()

    def _write_new(self, batch: _Batch) -> None:
        rows: list[BuildRow] = []
        upserts = []
        for group, builds in batch.new.items():
            rows += [row._replace(output=output_digest(segments)) for row, segments in builds]
            upsert = partial(self.nodes.segments.upsert, batch.plan.collection(group))
            nodes = itertools.chain.from_iterable(segments for _, segments in builds)
            upserts += [
                partial(upsert, some) for some in batches_reaching(nodes, _count_one, _SLICE)
            ]
        numbers = [row.number for row in rows]
        in_one_file = self.nodes.segments_file is self.ledger.file
        with self.turns.taken(), self.ledger.writing() as connection:
            begin_builds(connection, rows)
            if in_one_file and len(upserts) <= len(batch.new):
                for upsert in upserts:
                    upsert()
                acknowledge_builds(connection, numbers)
                return
        for upsert in upserts:
            with self.turns.taken():
                upsert()
        with self.turns.taken(), self.ledger.writing() as connection:
            acknowledge_builds(connection, numbers)

    def _flip(self, versions: Sequence[PendingVersion], plan: BuildPlan) -> list[PendingVersion]:
        """Make documents live, in one transaction; returns those that others have changed
        meanwhile.
        """
        going = [version for version in versions if version.can_go_live(plan)]
        parts = []
        try:
            with self._aside(versions):
                for target in plan.terms:
                    terms = [
                        version.terms.pop(target.id)
                        for version in going
                        if target.id in version.terms
                    ]
                    parts += self.terms.extended(target.group, target.id, terms)
            ready, changed = self._ready(going)
            self._flip_ready(ready, plan, parts)
        finally:
            if parts:
                self.terms.release(parts)
        return changed

    def _ready(
        self, versions: Sequence[PendingVersion]
    ) -> tuple[list[PendingVersion], list[PendingVersion]]:
        """The documents that can become live, and those that others have changed; without deleted
        ones.
        """
        ready = []
        changed = []
        present = self.ledger.documents.rows([version.row.id for version in versions])
        for version, now in zip(versions, present, strict=True):
            base = version.base or now
            if now.status in HIDDEN and now.status != base.status:
                self.ledger.documents.tombstone([now.id], now.status)  # also what was written since
            elif (now.version, now.updates) != (base.version, base.updates):
                changed.append(version)
            else:
                ready.append(version)
        return ready, changed

    def _flip_ready(
        self, versions: Sequence[PendingVersion], plan: BuildPlan, parts: Sequence[NewPart]
    ) -> None:
        flips = []
        unchanged = []  # whose files were read, and gave what is live already
        for version in versions:
            version.is_new_version = version.has_new_root
            if version.has_changes:
                flips.append(version.flip(plan))
            elif version.make_root is not None:
                unchanged.append(version.row)
        if flips:
            are_partial = any(flip.root is not None for flip in flips)
            self.ledger.flip(
                flips,
                parts,
                keep_versions=self.options.keep_versions,
                partial_groups=plan.partial_groups if are_partial else (),
                partial_indexes=plan.partial_indexes if are_partial else (),
                visible=plan.visible,
            )
            for part in parts:
                self.ledger.file.arrays.postpone_deletion(part.retired)
        if unchanged:
            self.ledger.documents.note_files(unchanged)
        for version in versions:
            version.flipped = True


def file_size(version: PendingVersion) -> int:
    """Bytes of a document's file; 0 for a text."""
    return version.row.signature.size if version.row.signature is not None else 0


def file_error_or_raise(error: Exception) -> LazyRAGError:
    """Return an error of the file itself; raise any other one."""
    if not isinstance(error, LazyRAGError) or isinstance(error, (*_BATCH_ERRORS, StoreBusyError)):
        raise error
    return error


def _make_root(item: tuple[PendingVersion, int]) -> Root:
    version, build = item
    make_root = cast("MakeRoot", version.make_root)
    return make_root(build)


def _count_one(_: object) -> int:
    return 1


def _count_texts(pair: tuple[PendingVersion, Sequence[str]]) -> int:
    return len(pair[1])
