"""A Document's report, for all of it or for what may be seen of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from lazyrag.data.segment import LAZY_ROOT_NAME, Segment
from lazyrag.document.changes import Dataset
from lazyrag.document.groups import LOADING, Definitions, GroupGraph, Step
from lazyrag.document.ingest import (
    Bringer,
    Ingestion,
    Rebuild,
    TargetMaker,
    Targets,
    Work,
    is_worker_of,
    purge,
    renewed_root,
    root_digest,
)
from lazyrag.document.ledger import DocumentRow, Ledger
from lazyrag.document.load_files import Loading
from lazyrag.document.nodes import NodeStore, NodeTables
from lazyrag.document.report import Failures, IngestReport, Options
from lazyrag.document.term_index import TermSpaces
from lazyrag.document.tree import Build, LiveGroup, Tree, View
from lazyrag.errors import ConfigError, IngestionError, LoadError, StoreBusyError, StoreError
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.text.analyzers import analysers

_TRY_AGAIN_S = 1.0
_TRIES = 3
_PATIENCE_S = 0.1
_WAIT_S = 30.0  # for another program that is writing what is needed


class Builder:
    """Builds what a question needs, once, when it is first needed.

    A step (loading, a group, an index) goes through the documents in batches, each of which becomes live as a whole. A
    document that fails is recorded and left out of that step; the others go on. A step in which all of them fail raises
    an IngestionError.

    Args:
        name: The Document's name.
        dataset: Its files.
        definitions: Its group definitions.
        nodes: Its stores.
        ledger: Its ledger.
        embedders: What embeds questions, by embed key.
        targets: Makes what documents are brought to.
        options: How it ingests.
        close: Lets go of files and connections.
    """

    def __init__(
        self,
        name: str,
        dataset: Dataset,
        definitions: Definitions,
        nodes: NodeStore,
        ledger: Ledger,
        embedders: Mapping[str, CheckedEmbedder],
        targets: TargetMaker,
        options: Options,
        close: Callable[[], None],
    ) -> None:
        self.name = name
        self.dataset = dataset
        self.definitions = definitions
        self.nodes = nodes
        self.ledger = ledger
        self.embedders = embedders
        self.targets = targets
        self.options = options
        self.terms = TermSpaces(ledger)
        self.tables = NodeTables(nodes)
        self._close = close
        self.failures = Failures(lambda: self.where)
        self.lock = threading.RLock()
        self.report: IngestReport | None = None
        self.on_sync: Callable[[], object] = lambda: None  # set by whoever syncs
        self.loading = Loading(options.processes, options.limits, options.readers)
        workers = max(options.workers, options.processes)
        self.bringer = Bringer(
            ledger,
            Ingestion(
                ledger,
                nodes,
                self.terms,
                self,
                workers=max(options.workers, options.processes),
                keep_versions=options.keep_versions,
            ),
            self.failures,
            lambda: self.where,
            self.loading,
            workers,
            options.on_progress,
            owner=self,
        )
        self._view = View(Tree(), 0, {})
        self._graphs = tuple(definitions.graph.line_of_bases())
        self._asked: set[Step] = set()
        self._rows: dict[Step, int] = {}  # the ledger's rows of groups and spaces that were last built
        self._synced = False
        self._try_again_at = 0.0
        self._swept = False

    def close(self) -> None:
        """Let go of files and connections, after what another thread may be building; twice does no harm."""
        with self.lock:
            close, self._close = self._close, lambda: None
            close()

    @property
    def where(self) -> str:
        """The Document as messages name it."""
        return f"Document {self.name!r}" + (f" ({self.dataset.where})" if self.dataset.where else "")

    @property
    def graph(self) -> GroupGraph:
        """The group definitions."""
        return self.definitions.graph

    @contextmanager
    def paused(self, timeout_s: float) -> Iterator[bool]:
        """Keep other threads of this process from building and from defining groups; False where that takes longer.

        Whoever holds one of the locks may be waiting for another one: a transform may ask another Document, or define
        a group.
        """
        with ExitStack() as taken:
            for lock in (self.lock, *sorted(self.definitions.graph.locks(), key=id)):
                if not lock.acquire(timeout=timeout_s):
                    taken.close()
                    yield False
                    return
                taken.callback(lock.release)
            yield True

    def group(self, name: str) -> LiveGroup:
        """A group, built for every document for which that could be done.

        Raises:
            NotRegisteredError: If it is not defined.
            IngestionError: If every document failed.
        """
        return self.view(frozenset([Step(name)])).groups[name]

    def now(self) -> View:
        """What is live and current now."""
        tree, removals = self.ledger.state()
        state = removals, analysers.revision, *[one.revision for one in self._graphs]
        known = self._view
        if known.tree is tree and known.state == state:
            return known
        groups = {name: group for name, group in self.definitions.current(tree).items() if group.whole}
        self._view = view = View(tree, removals, groups, state)
        return view

    def view(self, needs: frozenset[Step]) -> View:
        """What is live and current now, with all that is needed; it is built where it is not there.

        Raises:
            NotRegisteredError: If a group is not defined.
            IngestionError: If every document failed in a step.
        """
        view = self.now()
        if (self._synced or self.ledger.file.read_only) and needs in view.met:
            return view
        steps = sorted(needs, key=self._order)
        for _ in range(_TRIES):  # while one is built, another may be defined anew
            for step in steps:
                view = self._having(step, view)
            if self.has(view, needs):
                break
        return view

    def has(self, view: View, needs: frozenset[Step]) -> bool:
        """Whether all that is needed is built in a view, which remembers it."""
        found = needs in view.met or all(self._has(view, step) for step in needs)
        if found and view.tree.documents:  # without any, every query tries again
            view.met.add(needs)
        return found

    def _has(self, view: View, step: Step) -> bool:
        group = view.groups.get(step.group)
        if group is None or (not view.tree.documents and LOADING in self.failures.steps()):
            return False
        if step.analyser is None and step.embed_key is None:
            return True
        key = self.targets.space_key(step)
        space = group.spaces.get(key) if key is not None else None
        return space is not None and space.whole

    def _having(self, step: Step, view: View) -> View:
        """A view in which a group or an index is there: the one that is given, or a new one after it was built."""
        settled = self._synced or self.ledger.file.read_only or time.monotonic() < self._try_again_at
        if settled and self._has(view, step):
            return view
        self.definitions.line(step.group)  # raises where it is not defined
        self._refuse_workers(step)
        # Whoever holds the lock may be waiting for another program: what is live is served meanwhile.
        if self.lock.acquire(timeout=_PATIENCE_S if self._has(view, step) else -1):
            try:
                return self._made(step)
            finally:
                self.lock.release()
        return view

    def _refuse_workers(self, step: Step) -> None:
        """A thread that ingests cannot wait for something to be built: who builds it, waits for this thread."""
        if is_worker_of(self):
            msg = (
                f"A loader or transform asked its own Document to {step}, which nobody has built yet. Build it before, "
                f"with activate_group({step.group!r}), or make it the parent group."
            )
            raise ConfigError(msg)

    def _made(self, step: Step) -> View:
        """A view with a group or an index; who asks, holds the lock.

        Where its definition changes while it is built, it is built again, and again; then by the one before the last.
        """
        for _ in range(_TRIES):
            view = self.now()
            there = self._has(view, step)
            if self.ledger.file.read_only:
                if not there:
                    raise self._not_there(step)
                return view
            if there and (self._synced or time.monotonic() < self._try_again_at):
                return view
            try:
                with self.writing(0.0 if there else _WAIT_S):
                    self._sync_once()
                    view = self.now()
                    if not self._has(view, step):
                        view = self.build(step)
            except StoreBusyError:
                if not there:
                    raise
                self._try_again_at = time.monotonic() + _TRY_AGAIN_S  # what is live is served meanwhile
                return view
        return view

    def _sync_once(self) -> None:
        if not self._synced:
            try:
                self.on_sync()
            except (IngestionError, Warning):  # it will not be better the next time; warnings may be made errors
                self._synced = True
                raise
            self._synced = True

    @contextmanager
    def writing(self, wait_s: float = _WAIT_S) -> Iterator[None]:
        """Hold the ledger's lease, under definitions that no other program contradicts.

        Raises:
            StoreBusyError: If another program writes, or works by other definitions.
        """
        with self.lock, self.ledger.lease.held(wait_s):
            self.ledger.claim(self.definitions.all_fingerprints())
            yield

    def build(self, step: Step) -> View:
        """Build a group or an index for every document; who asks holds the lease.

        Returns:
            A view with it, by the definitions of when it was begun.
        """
        self.open_root()
        self._asked.add(step)
        self.failures.check(LOADING, len(self.ledger.tree.documents))
        rebuild = self.targets.of_step(step)
        self._forget_other_rows(rebuild)
        todo = self._missing(rebuild)
        documents = self.ledger.documents
        known = documents.identities() if todo else []
        rows = [row for name, row in known if row in todo and not self.failures.has(rebuild.steps, name)]
        works = map(Work, documents.rows(rows))
        self.bringer.bring(works, rebuild.targets, str(step), len(rows), steps=len(rebuild.steps))
        for one in rebuild.steps:
            self.failures.check(one, self.count_done(one, rebuild.targets))
        self._switch(rebuild)
        tree = self.ledger.tree
        made = {name: group for name, group in tree.groups.items() if group.id in rebuild.targets.rows}
        groups = {**self.now().groups, **made}
        if rebuild.dropped:
            self.purge()
        return View(tree, self.ledger.removals, groups)  # who builds is the only one who removes

    def _switch(self, rebuild: Rebuild) -> None:
        self.ledger.switch(rebuild.groups, rebuild.spaces, rebuild.dropped)
        for name, revisions in rebuild.names.items():
            self.definitions.accept(name, revisions)

    def _forget_other_rows(self, rebuild: Rebuild) -> None:
        """What failed by another definition may succeed by this one."""
        now = {Step(rebuild.targets.names[group]): group for group in rebuild.groups}
        now |= {one.step: one.id for one in rebuild.targets.spaces}
        others = {step for step, row in now.items() if self._rows.get(step, row) != row}
        self.failures.forget(lambda step, _: step in others)
        self._rows |= now

    def _missing(self, rebuild: Rebuild) -> set[int]:
        todo: set[int] = set()
        for group in rebuild.groups:
            todo |= self.ledger.builds.missing(group)
        for space in rebuild.targets.spaces:
            if space.id in rebuild.spaces:
                todo |= self.ledger.builds.missing_cover(space.group, space.id)
        return todo

    def count_done(self, step: Step, targets: Targets) -> int:
        """For how many documents a step is done."""
        for space in targets.spaces:
            if space.step == step:
                return self.ledger.builds.count_covered(space.id)
        if step == LOADING:
            return self.ledger.builds.count_live(targets.root)
        return sum(self.ledger.builds.count_live(group.id) for group in targets.groups if Step(group.name) == step)

    def stored_root(self, collection: str, build: Build) -> Segment:
        """A root node that another one is to take over from, made sure to be what was written.

        Raises:
            LoadError: If it is not: what is damaged must not be taken for sound.
        """
        [segment] = self.nodes.of_build(collection, build)
        if root_digest(segment) != self.ledger.builds.input_of(build.number):
            msg = "What is stored of the document is not what was written. Run verify() and repair()."
            raise LoadError(msg, path=segment.path)
        return segment

    def open_root(self) -> None:
        """Have the root group by the present fields; where they are others, make all root nodes anew, from the old."""
        rebuild = self.targets.of_root()
        if rebuild is None:
            return
        old = self.ledger.tree.groups.get(LAZY_ROOT_NAME)
        if old is not None:
            rows = sorted(self.ledger.documents.all().values(), key=lambda row: row.identity)
            live = [row for row in rows if row.uid in old.builds]

            def renew(row: DocumentRow) -> Work:
                def make(build: int) -> Any:
                    segment = self.stored_root(old.collection, old.builds[row.uid])
                    return renewed_root(segment, row, self.nodes.schema, build)

                return Work(row, make, beside=True)

            self.bringer.bring((renew(row) for row in live), rebuild.targets, "renew root nodes", len(live))
            self.failures.check(LOADING, self.ledger.builds.count_live(rebuild.groups[0]))
        self._switch(rebuild)

    def has_synced(self) -> None:
        """A sync has been asked for: none has to be made at first use."""
        self._synced = True

    def retry(self) -> None:
        """Build once more what was asked for and is not there."""
        for step in sorted(self._asked, key=self._order):
            if not self._has(self.now(), step) and self.definitions.is_defined(step.group):
                try:
                    self.build(step)
                except IngestionError:
                    continue  # stands in the report

    def purge(self) -> None:
        """Remove what is live no more, and that nobody can be reading any longer, from the stores."""
        before = time.time() - self.options.grace_s
        if not self._swept:  # what programs left that were killed; later on, nobody else has been writing
            self.ledger.builds.abandon()
            self.ledger.groups.abandon(self.definitions.all_fingerprints())
        purge(self.ledger, self.nodes, before)
        stray = self.ledger.file.stray_array_files(older_than_s=self.options.grace_s)
        if stray:
            self.ledger.announce_removal()
        if stray or not self._swept:
            self.ledger.file.collect_array_files(older_than_s=self.options.grace_s)
            self._swept = True

    def _order(self, step: Step) -> tuple[int, str, str, str]:
        """Groups before those beneath them and before their own indexes."""
        depth = len(self.definitions.line(step.group)) if self.definitions.is_defined(step.group) else 0
        return depth, step.group, step.analyser or "", step.embed_key or ""

    def _not_there(self, step: Step) -> StoreError:
        tree = self.ledger.tree
        group = tree.groups.get(step.group)
        if group is not None and not self.definitions.is_current(group):
            why = "it was built by another definition. Define it as the program does that writes"
        elif group is None:
            why = "it was never built. Ask for it once in the program that writes"
        else:
            why = "it is not built for every document. Call sync() in the program that writes"
        msg = f"This Document is open with read_only=True, and cannot {step}: {why}. ({self.where})"
        return StoreError(msg, store=str(self.ledger.file.path))


def report_of(builder: Builder, sees: Callable[[Segment], bool] | None = None) -> IngestReport | None:
    """What became of every file; None before the first sync.

    Args:
        builder: Of the Document.
        sees: Whether a root node may be seen. Then files count only whose root node is there and may be.
    """
    report = builder.report
    if report is None:
        return None
    failed = sorted(builder.failures, key=lambda failure: (failure.path, failure.stage))
    if sees is None:
        return replace(report, failed=tuple(failed))
    tree = builder.ledger.tree
    root = tree.groups.get(LAZY_ROOT_NAME)
    own = [] if root is None else builder.nodes.of_builds(root.collection, list(tree.builds(root)))
    seen = {segment.path for segments in own for segment in segments if sees(segment)}
    return IngestReport(
        added=tuple(one for one in report.added if one in seen),
        updated=tuple(one for one in report.updated if one in seen),
        unchanged=tuple(one for one in report.unchanged if one in seen),
        moved=tuple(pair for pair in report.moved if pair[1] in seen),
        failed=tuple(one for one in failed if one.path in seen and one.path not in builder.failures.misnamed),
    )
