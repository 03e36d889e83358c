"""The indexer of one Document: builds groups and indexes when a query first needs them."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, cast

from lazyrag.data.node import ShownHits, show_all
from lazyrag.data.segment import LAZY_ROOT_NAME, Segment
from lazyrag.errors import (
    ConfigError,
    IngestionError,
    LoadError,
    ReadOnlyError,
    StoreBusyError,
    StoreError,
)
from lazyrag.groups.node_group import LOADING, Definitions, GroupGraph, Step
from lazyrag.ingest.dataset import Dataset
from lazyrag.ingest.engine import IngestionEngine
from lazyrag.ingest.load_files import Loading, is_worker_of
from lazyrag.ingest.model_identity import note_models
from lazyrag.ingest.pending import (
    Outcome,
    PendingVersion,
    Root,
    VersionReader,
    renewed_root,
    root_digest,
)
from lazyrag.ingest.plan import BuildPlan, BuildPlanner, Rebuild
from lazyrag.ingest.report import Failures, IngestReport, Options
from lazyrag.ingest.term_index import TermIndexes
from lazyrag.ledger.lease import WAIT_S, Turns
from lazyrag.ledger.ledger import Ledger
from lazyrag.ledger.tables import DocumentRow
from lazyrag.ledger.tree import Build, Tree, View
from lazyrag.loaders.directory import FoundFile
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.progress.blocks import contextmanager, finishing
from lazyrag.progress.calls import raise_if_canceled
from lazyrag.read.nodes import NodeCache, NodeStore
from lazyrag.read.scope import Reader
from lazyrag.storage.arrays import flushed
from lazyrag.stores.protocol import Published, local_path
from lazyrag.stores.sqlite import MapFileSegmentStore
from lazyrag.text.analyzers import analysers

if TYPE_CHECKING:
    from lazyrag.models.embedding_cache import EmbeddingCache

_BUILDS_AT_ONCE = 2_000  # bounds the memory of their keys


class Waste(NamedTuple):
    """Builds, groups and indexes to `purge`, with their collections; the group's row is behind a
    build's number.
    """

    builds: list[tuple[int, int, str]]
    groups: list[tuple[int, str]]
    indexes: list[tuple[int, str]]


def find_waste(ledger: Ledger, before: float) -> Waste:
    """What has been dead or dropped since before a time, in seconds since 1970."""
    with ledger.reading() as connection:
        return Waste(
            ledger.builds.dead(connection, before),
            ledger.groups.dropped_groups(connection, before),
            ledger.groups.dropped_indexes(connection, before),
        )


def purge(ledger: Ledger, nodes: NodeStore, waste: Waste) -> None:
    """Remove dead builds, and dropped groups and indexes, from the stores.

    It may be killed at any instant: the rest is removed next time. Readers are notified first, so
    that a read that still uses them is repeated.

    Args:
        ledger: The ledger, whose lease is held.
        nodes: The stores.
        waste: What to remove, as found since the lease is held.
    """
    builds, groups, indexes = waste
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
    for (group, collection), of_group in itertools.groupby(builds, key=lambda build: build[1:]):
        numbers = [number for number, _, _ in of_group]
        for start in range(0, len(numbers), _BUILDS_AT_ONCE):
            raise_if_canceled()
            some = numbers[start : start + _BUILDS_AT_ONCE]
            _delete_builds(ledger, nodes, group, collection, some)
    ledger.builds.delete_build_rows(number for number, _, _ in builds)
    if groups:
        with ledger.writing() as connection:
            ledger.documents.delete_document_rows(connection)


def _delete_builds(
    ledger: Ledger, nodes: NodeStore, group: int, collection: str, builds: Sequence[int]
) -> None:
    """Delete the nodes and vectors of some builds; their keys are computed only for a store that
    needs them.
    """
    vectors = ledger.groups.vector_collections(group)
    by_build = isinstance(nodes.segments, MapFileSegmentStore)
    keys = []
    if vectors or not by_build:
        for build in ledger.builds.with_parents(builds).values():
            keys += build.keys
    for collection_of_vectors in vectors:
        nodes.vectors_to_write.delete(collection_of_vectors, keys=keys)
    if isinstance(nodes.segments, MapFileSegmentStore):
        nodes.segments.delete_builds(collection, builds)
    else:
        nodes.segments.delete(collection, keys=keys)


_RETRY_S = 1.0  # until another program that writes is checked for its lease again
_TRIES = 3
_PATIENCE_S = 0.1


@dataclass(eq=False, repr=False)
class Indexer:
    """Builds what a query needs, once, when it is first needed.

    A step (loading, a group, an index) processes the documents in batches, each of which becomes
    live in one transaction. A document that fails is recorded and left out of that step. If all
    documents fail, the step raises an IngestionError.

    Args:
        name: The Document's name.
        dataset: Its files.
        definitions: Its group definitions.
        nodes: Its stores.
        ledger: Its ledger.
        embedders: Embed callables by embed key.
        planner: Plans builds.
        options: How it ingests.
        close_stores: Closes files and connections.
        cache: The embedding cache of the store file.
        sync: Ingests the changes of the files; called at first use.
        repair_lost: Rebuilds what the stores have lost; returns the names of what that was.
    """

    name: str
    dataset: Dataset
    definitions: Definitions
    nodes: NodeStore
    ledger: Ledger
    embedders: Mapping[str, CheckedEmbedder]
    planner: BuildPlanner
    options: Options
    close_stores: Callable[[], None]
    cache: EmbeddingCache | None
    sync: Callable[[Indexer], object]
    repair_lost: Callable[[Indexer], tuple[str, ...]]

    def __post_init__(self) -> None:
        options = self.options
        # The Document as messages name it.
        self.where = f"Document {self.name!r}"
        if self.dataset.where:
            self.where += f" ({self.dataset.where})"
        self.terms = TermIndexes(self.ledger)
        self.node_cache = NodeCache(self.nodes)
        self.failures = Failures(self.where)
        self.turns = Turns()
        self.report: IngestReport | None = None
        # why steps were done for all documents since the last sync
        self.rebuilt: dict[str, str] = {}
        self.loading = Loading(options.processes, options.limits, options.readers)
        self.engine = IngestionEngine(
            self.ledger,
            self.nodes,
            self.terms,
            self.failures,
            self.loading,
            options,
            self.turns,
            VersionReader(self.ledger, self.nodes, self.loading, self.dataset, owner=self),
        )
        self.hits = ShownHits()
        self.is_closed = False
        self.last_view = View(Tree(), 0, {})
        self._requested: set[Step] = set()
        self.first_steps: Sequence[Step] = ()  # that the first sync of an empty store does, too
        # the ledger's rows of groups and indexes that were last built
        self._rows: dict[Step, int] = {}
        # why groups were dropped, by name, until they are built again
        self._dropped: dict[str, str] = {}
        self.is_synced = False  # whether the sync at first use is done, or the user requested one
        self._has_written = False  # vectors
        self._has_noted = False  # the models of all vector indexes, since the last build
        self.is_checked = False  # whether this program has looked for losses in the stores
        self._try_again_at = 0.0
        self._swept = False
        self._writes: set[object] = set()  # under way
        self._marks = ExitStack()  # to be left at the end of the last of them

    def close(self) -> None:
        """Close files and connections. Waits for a running build. Idempotent."""
        with self.turns.taken():
            close = self.close_stores
            self.close_stores = lambda: None
            if not self.is_closed:
                with suppress(StoreError):  # what cannot be read was not shown
                    show_all(self.hits)
            self.is_closed = True
            vectors = self.nodes.vectors
            # stores may write what they hold
            with flushed(local_path(vectors)) if self._has_written else nullcontext():
                close()
            for launcher in filter(None, (self.options.launcher, self.options.writers)):
                launcher.close()
            self.loading.close()

    @property
    def graph(self) -> GroupGraph:
        """The group definitions."""
        return self.definitions.graph

    # Live state

    def now(self) -> View:
        """The present live state."""
        tree, removals = self.ledger.state()
        state = removals, analysers.revision, GroupGraph.changes
        view = self.last_view
        if view.tree is tree and view.state == state:
            return view
        groups = {
            name: group for name, group in self.definitions.current(tree).items() if group.complete
        }
        self.last_view = View(tree, removals, groups, state)
        return self.last_view

    def view(self, needs: frozenset[Step]) -> View:
        """The present live state with everything that is needed, built if missing.

        Raises:
            NotRegisteredError: If a group is not defined.
            IngestionError: If every document failed in a step.
        """
        view = self.now()
        if (self.is_synced or self.ledger.file.read_only) and needs in view.met:
            return view
        steps = sorted(needs, key=self._order)
        for _ in range(_TRIES):  # while one is built, another may be redefined
            for step in steps:
                view = self._ensure_built(step, view, steps)
            if self.has(view, needs):
                break
        return view

    def has(self, view: View, needs: frozenset[Step]) -> bool:
        """Whether a state has everything that is needed; the state remembers it."""
        is_met = needs in view.met or all(self._has(view, step) for step in needs)
        if is_met and view.tree.document_count:  # without any, every query tries again
            view.met.add(needs)
        return is_met

    def _has(self, view: View, step: Step) -> bool:
        group = view.groups.get(step.group)
        if group is None or not group.id:
            return False
        if not view.tree.document_count and LOADING in self.failures.steps():
            return False
        if step.analyser is None and step.embed_key is None:
            return True
        index = self.planner.live_index(view, step)
        return index is not None and index.complete

    # Build on first use

    def _ensure_built(self, step: Step, view: View, steps: Sequence[Step]) -> View:
        """A view with a group or index: the given one, or a new one after a build; the steps are
        what it is for.
        """
        is_live = self._has(view, step)
        if is_live and (self.ledger.file.read_only or self._is_settled):
            return view
        self.definitions.needed(step.group)  # raises if it is not defined
        # waiting for the build would deadlock: the builder waits for this thread
        if is_worker_of(self):
            problem = f"A loader or transform needs its own Document to {step}"
            way_out = f"Build it before, with activate_group({step.group!r})"
            msg = f"{problem}, which is not built yet. {way_out}, or make it the parent group."
            raise ConfigError(msg)
        # Another thread may have the turn while it waits for another program: until then serve what
        # is live.
        with self.turns.taken(_PATIENCE_S if is_live else None) as has_turn:
            return self._build_missing(step, steps) if has_turn else view

    @property
    def _is_settled(self) -> bool:
        """Whether no sync is due before what is live is served."""
        return self.is_synced or time.monotonic() < self._try_again_at

    def _build_missing(self, step: Step, steps: Sequence[Step]) -> View:
        """A view with a group or index; the caller has the turn.

        If its definition changes during the build, it is built again a few times, then by the
        definition before.
        """
        for _ in range(_TRIES):
            view = self.now()
            there = self._has(view, step)
            if self.ledger.file.read_only:
                if not there:
                    raise self._not_built(step)
                return view
            if there and self._is_settled:
                return view
            try:
                with self.writing(0.0 if there else WAIT_S):
                    if not self.is_synced:
                        self._first_sync(steps)
                    view = self.now()
                    if not self._has(view, step):
                        view = self.build(step)
            except StoreBusyError:
                if not there:
                    raise
                self._try_again_at = time.monotonic() + _RETRY_S  # meanwhile serve what is live
                return view
        return view

    def _first_sync(self, steps: Sequence[Step]) -> None:
        tree = self.ledger.tree
        if not tree.document_count and tree.groups.keys() <= {LAZY_ROOT_NAME}:
            # Each file is loaded, split and analysed in one pass. Models may fail: they come when
            # the files are live.
            self.first_steps = [
                replace(step, embed_key=None) for step in steps if not self._may_call_model(step)
            ]
            self._requested.update(self.first_steps)
        try:
            self.sync(self)
        except (IngestionError, Warning):  # warnings may be made errors
            self.is_synced = True  # it will not be better the next time
            raise
        finally:
            self.first_steps = ()
        self.is_synced = True

    def _may_call_model(self, step: Step) -> bool:
        # a group below it, that its index reads
        read = self.definitions.index_text(step).group or step.group
        return any(group.may_call_model for group in self.definitions.needed(read))

    def _not_built(self, step: Step) -> StoreError:
        group = self.ledger.tree.groups.get(step.group)
        if group is not None and not self.definitions.is_current(group):
            reason = self.planner.reason(Step(step.group))
            why = f"its definition has changed: {reason}"
            way_out = (
                "Define it as the program does that writes, or call there"
                f" activate_group({step.group!r})"
            )
        elif group is None or self.planner.live_index(self.now(), step) is None:
            reason = self.planner.reason(step)
            why = "it was never built"
            if reason != "missing":
                why = f"it was built by another definition: {reason}"
            way_out = f"Build it in the program that writes, by a query or {step.activation}"
        else:
            why = "it is not built for every document"
            way_out = "Call sync() in the program that writes"
        problem = f"This Document is open with read_only=True, and cannot {step}: {why}."
        return ReadOnlyError(f"{problem} {way_out}. ({self.where})", store=self.ledger.file.address)

    # Write

    @contextmanager
    def paused(self, timeout_s: float) -> Iterator[bool]:
        """Keep other threads of this process from building and from defining groups; yields False
        after a timeout.

        The holder of one lock may wait for another one: a transform may query another Document, or
        define a group.
        """
        with (
            self.turns.taken(timeout_s, beside=True) as has_turn,
            self.definitions.graph.locked(timeout_s) as are_free,
        ):
            yield has_turn and are_free

    @contextmanager
    def writing(self, wait_s: float = WAIT_S, *, beside: bool = False) -> Iterator[None]:
        """Hold the ledger's lease, with definitions that no other program contradicts.

        Args:
            wait_s: How long to wait for another program.
            beside: Whether it may begin while others of this program have stepped aside, see
                `Turns`.

        Raises:
            StoreBusyError: If another program writes, or uses other definitions.
        """
        write = object()
        with (
            self.turns.taken(beside=beside),
            self.ledger.held(wait_s, self.definitions.all_fingerprints),
            finishing(
                functools.partial(self._end_write, write),
                functools.partial(self._begin_write, write),
            ),
        ):
            self.ledger.complete_field_keys()
            yield
            if self._has_written and not self._has_noted:
                self._has_noted = note_models(self.ledger, self.embedders, self.planner.identities)

    def _begin_write(self, write: object) -> None:
        self._writes.add(write)
        # else this is a part of another write, or runs beside it
        if self.nodes.mark_vectors is None:
            self.nodes.mark_vectors = functools.cache(self._mark_vectors)

    def _mark_vectors(self) -> None:
        """Flush at the end what a vector store on this machine writes, which does not do so
        itself.
        """
        self._has_written = True
        self._marks.enter_context(flushed(local_path(self.nodes.vectors)))

    def _end_write(self, write: object) -> None:
        self._writes.discard(write)
        if not self._writes:
            self.nodes.mark_vectors = None
            self._marks.close()
            if self.nodes.downloads_texts:
                self._publish()

    def _publish(self) -> None:
        """Show what is live to other tools; they see it with the next write if this fails."""
        store = self.nodes.segments
        if isinstance(store, Published):
            with suppress(StoreError):
                store.publish(group.collection for group in self.ledger.tree.groups.values())

    def build(self, step: Step) -> View:
        """Build a group or an index for every document. The caller holds the lease.

        Returns:
            A view with it, by the definitions at the beginning of the build.
        """
        self.ensure_root()
        step = self.planner.served(step, self.ledger.tree)
        self._requested.add(step)
        self.failures.warn_or_raise(
            LOADING, lambda names: self.count_done(LOADING, self.planner.plan_live(), names)
        )
        rebuild = self.planner.plan_step(step)
        plan = rebuild.plan
        self._has_noted = False
        for rebuilt_step in rebuild.steps:
            dropped = self._dropped.pop(rebuilt_step.group, "")
            reason = dropped or self.planner.reason(rebuilt_step)
            if reason:
                self.rebuilt[str(rebuilt_step)] = reason
        self.discard_old_failures(rebuild.groups, plan)
        self._add_notes(self._build_documents(step, rebuild))
        for rebuilt_step in rebuild.steps:
            count_done = functools.partial(self.count_done, rebuilt_step, plan)
            self.failures.warn_or_raise(rebuilt_step, count_done)
        self._switch(rebuild)
        if rebuild.dropped:
            self.purge()
        view = self.now()
        tree = view.tree
        built = {name: group for name, group in tree.groups.items() if group.id in plan.rows}
        return View(tree, view.removals, {**view.groups, **built})

    def _build_documents(self, step: Step, rebuild: Rebuild) -> list[Outcome]:
        """Bring documents to the plan until none is left that others have not changed meanwhile."""
        documents = self.ledger.documents
        outcomes = []
        tried: list[tuple[int, int]] = []
        steps = len(rebuild.steps)
        while rows := self._rows_to_do(rebuild):
            versions = [(row.id, row.version) for row in documents.rows(rows)]
            if versions == tried:
                break
            was_overtaken = bool(tried)
            tried = versions
            nodes = 0
            if step.embed_key is not None and steps == 1:
                nodes = self.ledger.builds.count_nodes(self.ledger.tree.groups[step.group].id, rows)
            pending = (
                PendingVersion(row, waits_for_nobody=was_overtaken) for row in documents.rows(rows)
            )
            outcomes += self.engine.ingest(
                pending, rebuild.plan, str(step), len(rows), steps=steps, nodes=nodes
            )
            if not was_overtaken:
                # those that have become live meanwhile come next
                self.turns.settle()
        return outcomes

    def _add_notes(self, outcomes: Iterable[Outcome]) -> None:
        """Add the notes of a build to the report of the last sync."""
        if self.report is None:
            return
        before = self.report.notes
        notes = dict(before)
        for outcome in outcomes:
            if outcome.notes:
                notes[outcome.identity] = (*before.get(outcome.identity, ()), *outcome.notes)
        self.report = replace(self.report, notes=notes)

    def _rows_to_do(self, rebuild: Rebuild) -> list[int]:
        """Rows of the documents that lack what is rebuilt, without those that have failed, in order
        of identity.
        """
        todo = self.missing(rebuild.groups, rebuild.plan)
        identities = self.ledger.documents.identities() if todo else []
        return [
            row
            for name, row in identities
            if row in todo and not self.failures.has(rebuild.steps, name)
        ]

    def ensure_root(self) -> None:
        """Make the root group current: if the fields have changed, make all root nodes again from
        the old ones.
        """
        tree = self.ledger.tree
        old = tree.groups.get(LAZY_ROOT_NAME)
        if old is not None and self.definitions.is_current(old):
            return
        rebuild = self.planner.plan_root(tree)
        if old is not None:
            self.rebuilt[str(LOADING)] = self.planner.reason(LOADING)
            self._dropped = {name: self.planner.reason(Step(name)) for name in tree.groups}
            lost = self.ledger.builds.missing(old.id)
            rows = self.ledger.documents.in_order()
            live = [row for row in rows if row.status == "live" and row.id not in lost]

            pending = (PendingVersion(row, self.renewed(row.uid, row), beside=True) for row in live)
            self.engine.ingest(pending, rebuild.plan, "renew root nodes", len(live))
            count_done = functools.partial(self.count_done, LOADING, rebuild.plan)
            self.failures.warn_or_raise(LOADING, count_done)
        self._switch(rebuild)

    def _switch(self, rebuild: Rebuild) -> None:
        indexes = [index.id for index in rebuild.plan.indexes]
        described = self.definitions.described(rebuild.names)
        self.ledger.switch(rebuild.groups, indexes, rebuild.dropped, described)
        for name, revisions in rebuild.names.items():
            self.definitions.accept(name, revisions)

    def discard_old_failures(self, groups: Iterable[int], plan: BuildPlan) -> None:
        """Discard failures of other definitions than those of groups and a plan: now the documents
        may succeed.
        """
        now = {Step(plan.names[group]): group for group in groups}
        now |= {index.step: index.id for index in plan.indexes}
        others = {step for step, row in now.items() if self._rows.get(step, row) != row}
        self.failures.forget(lambda step, _: step in others)
        self._rows |= now

    def missing(self, groups: Iterable[int], plan: BuildPlan) -> set[int]:
        """Rows of the documents that lack one of some groups, or an index of a plan."""
        builds = self.ledger.builds
        lacking = set()
        for group in builds.incomplete(list(groups)):
            lacking |= builds.missing(group)
        for index in plan.indexes:
            if not builds.covers_all(index.id):
                lacking |= builds.missing_cover(index.group, index.id)
        return lacking

    def count_done(self, step: Step, plan: BuildPlan, names: Collection[str] | None) -> int:
        """Number of documents for which a step is done; among some identities, or among all."""
        builds = self.ledger.builds
        index = next((index for index in plan.indexes if index.step == step), None)
        groups = {Step(group.name): group.id for group in plan.groups}
        groups[LOADING] = plan.root
        group = groups.get(step) if index is None else index.group
        if group is None:
            return 0
        if names is None:
            return builds.count_live(group) if index is None else builds.count_covered(index.id)
        documents = [row.id for row in self.ledger.documents.named(names).values()]
        live = builds.live(documents).values()
        numbers = [groups_of[group].number for groups_of in live if group in groups_of]
        return len(numbers) if index is None else len(builds.covered(index.id, numbers))

    def stored_root(self, collection: str, build: Build) -> Segment:
        """Read a root node whose text is to be taken over.

        Raises:
            LoadError: If it is not what was written: damage must not be copied.
        """
        [segment] = self.nodes.of_build(collection, build)
        row = self.ledger.builds.rows([build.number]).get(build.number)
        if row is None or root_digest(segment) != row.input:
            problem = "What is stored of the document is not what was written."
            raise LoadError(
                f"{problem} Run docs.maintenance.verify() and repair().", path=segment.path
            )
        return segment

    def live_root(self, document: str, identity: str) -> Segment:
        """Read the present root node of a document, by its uid; see `stored_root`."""
        tree = self.ledger.tree
        build = tree.build_of(LAZY_ROOT_NAME, document)
        if build is None:
            raise LoadError("The document was deleted meanwhile.", path=identity)
        return self.stored_root(tree.groups[LAZY_ROOT_NAME].collection, build)

    def stored_roots(self, collection: str, builds: Sequence[Build]) -> dict[str, Segment]:
        """Read the root nodes of some builds, by uid, without those that are not what was
        written.
        """
        keys = []
        for build in builds:
            keys += build.keys
        try:
            roots = self.nodes.segments.get(collection, keys)
        except StoreError:
            return {}
        rows = self.ledger.builds.rows([build.number for build in builds])
        return {root.uid: root for root in roots if root_digest(root) == rows[root.build].input}

    def renewed(
        self, document: str, row: DocumentRow, file: FoundFile | None = None
    ) -> Callable[[int], Root]:
        """A function that makes a root node with the text of a live document and the metadata of a
        row.

        Args:
            document: Uid of the document that has the text.
            row: The row.
            file: The file as it is now; None keeps the built-in metadata.
        """

        def make(build: int) -> Root:
            segment = self.live_root(document, row.identity)
            return renewed_root(segment, row, self.nodes.schema, build, file=file)

        return make

    def retry(self) -> None:
        """Build again what was requested and is missing."""
        for step in sorted(self._requested, key=self._order):
            if not self._has(self.now(), step) and self.definitions.is_defined(step.group):
                with suppress(IngestionError):  # it is in the report
                    self.build(step)

    def repair(self) -> tuple[str, ...]:
        """Rebuild what the stores have lost; returns the names of what that was."""
        has_groups = bool(self.ledger.tree.groups)  # else there is nothing to lose yet
        return self.repair_lost(self) if has_groups else ()

    def purge(self) -> None:
        """Remove from the stores what is not live any more, once the grace period for readers has
        passed.

        Operations that are under way need what they have written: the last one removes the rest.
        """
        if not self.turns.is_sole:
            return
        grace_s = self.options.grace_s
        before = time.time() - grace_s
        # left by programs that were killed; later on, nobody else has been writing
        if not self._swept:
            current = self.definitions.current(self.ledger.tree)
            self.ledger.drop_leftovers(
                self.definitions.all_fingerprints(), self.definitions.described(current)
            )
        with self.ledger.reading():
            waste = find_waste(self.ledger, before)
            stray = self.ledger.file.stray_array_files(older_than_s=grace_s)
        if any(waste):
            purge(self.ledger, self.nodes, waste)
            stray = self.ledger.file.stray_array_files(older_than_s=grace_s)
        if stray:
            self.ledger.announce_removal()
        if stray or not self._swept:
            self.ledger.file.collect_array_files(older_than_s=grace_s)
            self._swept = True

    def _order(self, step: Step) -> tuple[int, str, str, str]:
        """Sort key: groups before those below them and before their own indexes."""
        depth = 0
        if self.definitions.is_defined(step.group):
            depth = len(self.definitions.needed(step.group))
        return depth, step.group, step.analyser or "", step.embed_key or ""


def report_of(indexer: Indexer, seen: Collection[str] | None = None) -> IngestReport | None:
    """The report of the last sync; None before the first one.

    Args:
        indexer: Of the Document.
        seen: Identities of the documents in scope: the report leaves out others. None for no scope.
    """
    report = indexer.report
    if report is None:
        return None
    failed = sorted(indexer.failures, key=lambda failure: (failure.path, failure.stage))
    if seen is None:
        skipped = tuple(sorted({*report.skipped, *indexer.failures.skipped()}))
        rebuilt = dict(indexer.rebuilt)
        return replace(report, failed=tuple(failed), skipped=skipped, rebuilt=rebuilt)

    def visible(identities: Iterable[str]) -> tuple[str, ...]:
        return tuple(identity for identity in identities if identity in seen)

    moved_to = [new for _, new in report.moved]  # an old path may be out of scope
    named = [failure for failure in failed if failure.path not in indexer.failures.misnamed]
    return IngestReport(
        added=visible(sorted([*report.added, *moved_to])),
        updated=visible(report.updated),
        touched=visible(report.touched),
        unchanged=visible(report.unchanged),
        failed=tuple(failure for failure in named if failure.path in seen),
        reasons={name: report.reasons[name] for name in visible(report.reasons)},
        notes={name: report.notes[name] for name in visible(report.notes)},
    )


def unrestricted(reader: Reader, method: str) -> Indexer:
    """Return the indexer of a Document for a method that concerns all of it.

    Raises:
        ConfigError: If the reader is that of a restricted Document.
    """
    if reader.scope is not None:
        raise ConfigError(
            f"{method}() is not available on a restricted Document. Call it on the original one."
        )
    return cast("Indexer", reader.indexer)
