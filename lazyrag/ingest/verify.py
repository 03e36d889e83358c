"""Verify and repair: compare the ledger with what the stores and files contain. Also the status of
a Document.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lazyrag.data.encoding import ErrorInfo
from lazyrag.data.segment import LAZY_ROOT_NAME, Segment, key_build
from lazyrag.errors import (
    IngestionWarning,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    sentence,
    warn_user,
)
from lazyrag.groups.node_group import Step
from lazyrag.ingest.changes import evict_superseded, ingest_changes, ingest_missing
from lazyrag.ingest.indexer import Indexer, find_waste
from lazyrag.ingest.pending import input_digest, output_digest, root_digest
from lazyrag.ingest.plan import index_step
from lazyrag.ingest.report import Findings, Problem, ProblemKind, pages
from lazyrag.ledger.tables import BuildRow
from lazyrag.ledger.tree import Build, LiveGroup, LiveIndex, Tree
from lazyrag.progress.blocks import contextmanager
from lazyrag.progress.calls import ProgressMeter, raise_if_canceled
from lazyrag.read.agreement import ANALYSER, agreement
from lazyrag.stores.protocol import (
    Checkable,
    Compactable,
    Store,
    VectorRow,
    VectorStore,
    local_path,
    set_aside,
)
from lazyrag.stores.sqlite import MapFileSegmentStore
from lazyrag.stores.sqlite_vectors import MapFileVectorStore
from lazyrag.types import SPARSE, Embeddings

_PATIENCE_S = 10.0
_MAX_DEATHS = 2  # of programs that read a store, after which the store is taken for damaged
STORE_FILES = (MapFileSegmentStore, MapFileVectorStore)
_ROUNDS = 3  # missing rows may hide that others are stale


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """Status of a built node group.

    Args:
        name: Its name.
        is_current: Whether its present definition would give the same nodes.
        is_complete: Whether it is built for every document.
        documents: Number of documents with nodes in it.
        nodes: Number of its nodes.
        indexes: Its complete indexes: analysers and embed keys, these if their vectors are of the
            present model.
        reason: Why it or an index over it will be built again when it is next used, see
            `IngestReport.rebuilt`; "" for not at all.
        agreement: How far its vectors agree with the words of its texts, from 1, as those of a
            model that works, to 0, which leaves them out; see `lazyrag.read.agreement`. None if no
            hybrid search of this program has measured it since the last change.
    """

    name: str
    is_current: bool
    is_complete: bool
    documents: int
    nodes: int
    indexes: tuple[str, ...]
    reason: str = ""
    agreement: float | None = None

    @property
    def vector_problem(self) -> str:
        """What hybrid search does with vectors that do not agree with the words; "" for nothing."""
        if self.agreement is None or self.agreement == 1:
            return ""
        effect = "have less weight in" if self.agreement else "are left out of"
        return f"vectors {effect} hybrid search, agreement {self.agreement}: check the model"


@dataclass(frozen=True, slots=True)
class DocumentStatus:
    """Contents of a Document.

    Args:
        name: The Document's name.
        documents: Number of live documents.
        groups: The node groups that are built.
        failed: Pairs (document, stage) that failed at the last attempt.
        waiting: Number of dead builds that wait to be removed.
        writer: The program that is writing; "" for none.
        errors: Why each of ``failed`` failed, and what to do, in the same order.
        url: Address of the service, see ``Document(manager=True)``; None without one.
    """

    name: str
    documents: int
    groups: tuple[GroupStatus, ...]
    failed: tuple[tuple[str, str], ...]
    waiting: int
    writer: str
    errors: tuple[ErrorInfo, ...] = ()
    url: str | Any = None  # None is the exception, see `DocNode.score`

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.documents} documents, {len(self.failed)} failed steps"]
        for group in self.groups:
            notes = [*group.indexes]
            if not group.is_current:
                notes.append(f"definition changed: {group.reason}")
            if not group.is_complete:
                notes.append("incomplete")
            if group.is_current and group.reason not in ("", "missing"):
                notes.append(group.reason)
            if group.vector_problem:
                notes.append(group.vector_problem)
            noted = f" ({', '.join(notes)})" if notes else ""
            lines.append(f"  {group.name}: {group.nodes} nodes{noted}")
        failures = zip(self.failed, self.errors, strict=False)
        lines += [f"  failed: {path} ({stage}): {error}" for (path, stage), error in failures]
        return "\n".join(lines)


def describe_status(indexer: Indexer) -> DocumentStatus:
    """Return the status of a Document; loads and builds nothing."""
    tree = indexer.ledger.tree
    failures = indexer.ledger.documents.failures()
    return DocumentStatus(
        indexer.name,
        tree.document_count,
        tuple(_group_status(indexer, name, group) for name, group in sorted(tree.groups.items())),
        tuple((identity, stage) for identity, stage, _, _ in failures),
        len(find_waste(indexer.ledger, math.inf).builds),
        indexer.ledger.writer(),
        tuple(
            _with_remedy(ErrorInfo.from_message(kind, message)) for _, _, kind, message in failures
        ),
    )


def _group_status(indexer: Indexer, name: str, group: LiveGroup) -> GroupStatus:
    reason = indexer.planner.reason(Step(name))
    indexes = []
    agreements = []
    for index in group.indexes.values():
        step = index_step(name, index)
        reason = reason or indexer.planner.reason(step)
        if index.complete and indexer.planner.index_key(step) == index.key:
            indexes.append(index.name)
            # the key of `LocalSnapshot.measured` for a Document that is not restricted
            measured = agreement, (name, ANALYSER, index.name), None, None
            agreements.append(indexer.last_view.handles.get(measured))
    return GroupStatus(
        name,
        indexer.definitions.is_current(group),
        group.complete,
        group.filled,
        group.nodes,
        tuple(sorted(indexes)),
        reason,
        min((known for known in agreements if known is not None), default=None),
    )


def _with_remedy(error: ErrorInfo) -> ErrorInfo:
    return error if error.remedy else replace(error, remedy="Fix the cause, then call sync().")


def verify(indexer: Indexer) -> Findings:
    """Check a Document in one state: under the lease, or, if it is read-only, until no change came
    in between.

    Raises:
        StoreBusyError: If another program keeps writing.
    """
    if not indexer.ledger.file.read_only:
        with indexer.writing():
            return _inspect(indexer)
    deadline = time.monotonic() + _PATIENCE_S
    for tries in itertools.count():
        before = indexer.ledger.file.commit_counter()
        # Where others write, in one transaction, which ends at the first damage.
        transaction = indexer.ledger.reading() if tries else nullcontext()
        with suppress(LookupError), transaction:  # something may be removed meanwhile
            findings = _inspect(indexer)
            if not findings.problems or before == indexer.ledger.file.commit_counter():
                return findings
        if time.monotonic() > deadline:
            raise StoreBusyError(
                f"{indexer.where} keeps changing while it is verified. Call verify() when no"
                " program writes.",
                store=indexer.ledger.file.address,
            )
    raise AssertionError  # the count has no end


def repair(indexer: Indexer) -> tuple[Problem, ...]:
    """Fix what can be fixed. Idempotent.

    Groups and indexes are rebuilt from their parents, root nodes from their files. The problems
    that remain have no source: a text that was added as such, a file that is gone or fails.

    Returns:
        The remaining problems.
    """
    with indexer.writing():
        return _repair(indexer)


def _repair(indexer: Indexer) -> tuple[Problem, ...]:
    indexer.ensure_root()
    if indexer.ledger.faults():  # before anything is taken for lost that is not seen
        indexer.ledger.correct_counts()
    for _ in range(_ROUNDS):
        findings = _inspect(indexer)
        if not findings.problems:
            break
        _discard(indexer, findings)
        if _reload_lost_roots(indexer):
            ingest_changes(indexer, repairs=False)
        else:
            ingest_missing(indexer)
        indexer.purge()
    indexer.ledger.file.collect_array_files(older_than_s=indexer.options.grace_s)
    return tuple(_inspect(indexer).problems)


def repair_lost(indexer: Indexer, *, counts: bool = False) -> tuple[str, ...]:
    """Repair a Document if a store lost rows of it or cannot read them. The caller holds the lease.

    Only counts rows and makes one search. Store files are checked once in a program: they lose
    nothing while they are open.

    Args:
        indexer: Of the Document.
        counts: Also look for single lost rows, and on servers. Without it servers are left alone:
            an outage looks like damage there.

    Returns:
        The groups and indexes with such rows; () for none.
    """
    path = indexer.ledger.file.path
    checked = _stores_to_check(indexer, counts=counts)
    indexer.is_checked = True
    if counts:
        indexer.purge()  # as far as the grace period is over
    elif path is None or not checked:
        return ()
    is_foreign = path is not None and local_path(indexer.nodes.vectors) is not None
    with _noting_deaths(Path(f"{path}.checking")) if is_foreign else nullcontext(0) as deaths:
        if deaths >= _MAX_DEATHS:
            set_aside(
                indexer.nodes.vectors_to_write,
                f"The last {deaths} programs ended while they read it",
            )
        if is_foreign:
            _empty_unfinished(indexer)
        lost = dict(_find_lost(indexer, checked, counts=counts))
    # builds may be dead because their rows were lost
    if not lost or (counts and not _inspect(indexer).problems):
        return ()
    _warn_of_repair(indexer, lost, _repair(indexer))
    return tuple(lost)


def _stores_to_check(indexer: Indexer, *, counts: bool) -> set[Store]:
    """Return the stores that may have lost rows since they were last checked."""
    stores: list[Store] = [indexer.nodes.segments, indexer.nodes.vectors]
    checked = {store for store in stores if counts or local_path(store) is not None}
    if not indexer.is_checked:
        checked.update(store for store in stores if isinstance(store, STORE_FILES))
    return checked


def _warn_of_repair(
    indexer: Indexer, lost: Mapping[str, str], remaining: Sequence[Problem]
) -> None:
    where, reason = next(iter(lost.items()))
    msg = (
        f"{indexer.where}: rebuilt {', '.join(lost)}, which a store had lost. {where}:"
        f" {sentence(reason)}"
    )
    if remaining:
        msg += (
            f" {len(remaining)} problems remain, see verify(). The first: {sentence(remaining[0])}"
        )
    warn_user(msg, IngestionWarning)


@contextmanager
def _noting_deaths(path: Path) -> Iterator[int]:
    """Yield how many programs in a row ended in this block: native code may end a process that
    reads damaged files.
    """
    deaths = path.stat().st_size if path.exists() else 0
    with path.open("ab") as file:
        file.write(b".")
    try:
        yield deaths
    finally:
        path.unlink(missing_ok=True)


def _empty_unfinished(indexer: Indexer) -> None:
    """Empty vector indexes that are not complete yet, and that their store lost or cannot
    search.
    """
    vectors = indexer.nodes.vectors
    ledger = indexer.ledger
    for index, group, collection, dimension in ledger.groups.unfinished_vectors():
        expected = ledger.builds.count_rows(group, index)
        if _loss(vectors, collection, expected, counts=True) or _search_error(
            vectors, collection, dimension
        ):
            _drop(indexer.nodes.vectors_to_write, collection)
            ledger.groups.empty_index(index)


def _find_lost(
    indexer: Indexer, checked: Collection[Store], *, counts: bool
) -> Iterator[tuple[str, str]]:
    """Yield each group or index with lost or unreadable rows, and why it is taken for such."""
    segments = indexer.nodes.segments
    vectors = indexer.nodes.vectors
    builds = indexer.ledger.builds
    for group in indexer.ledger.tree.groups.values():
        if segments in checked:
            expected = builds.count_rows(group.id, dead=True) if counts else group.nodes
            reason = _loss(segments, group.collection, expected, counts=counts)
            if reason:
                yield group.name, reason
        for index in group.indexes.values() if vectors in checked else ():
            if index.kind != "vectors" or not index.dimension:
                continue
            expected = index.nodes
            if counts:
                expected = builds.count_rows(group.id, index.id, dead=True)
            reason = _loss(vectors, index.collection, expected, counts=counts)
            reason = reason or _search_error(vectors, index.collection, index.dimension)
            if reason:
                yield f"{group.name} by {index.name}", reason


def _loss(store: Store, collection: str, expected: int, *, counts: bool) -> str:
    """Return what is wrong with a collection; "" if nothing is, or if that cannot be found out
    now.
    """
    try:
        count = 0
        if expected and isinstance(store, STORE_FILES) and not counts:
            count = len(store.scan(collection, limit=1))  # without a look at all rows
        elif expected:
            count = store.count(collection)
    except StoreError as exc:
        return str(exc) if counts or isinstance(exc, StoreDamagedError) else ""
    # A store file loses no single rows by itself; if somebody deleted some, verify() finds them.
    is_lost = (
        count < expected if counts or local_path(store) is not None else not count and expected
    )
    return f"{count} of {expected} rows are left" if is_lost else ""


def _search_error(store: VectorStore, collection: str, dimension: int) -> str:
    """Return why a store that is not a store file cannot search a collection; "" if it can."""
    if local_path(store) is None or not dimension:
        return ""
    queries: Embeddings = [{0: 1.0}] if dimension == SPARSE else np.ones((1, dimension), np.float32)
    try:
        store.search(collection, queries, 1)
    except StoreDamagedError as exc:
        return str(exc)
    except StoreError:
        return ""
    return ""


def compact(indexer: Indexer) -> None:
    """Give back the space of what is not live any more; see `Maintenance.compact`."""
    with indexer.writing():
        indexer.ensure_root()
        indexer.purge()
        vectors = indexer.nodes.vectors_to_write
        for group in indexer.ledger.tree.groups.values():
            for index in group.indexes.values():
                if index.dimension and isinstance(vectors, Compactable):
                    vectors.compact(index.collection)
        indexer.ledger.file.collect_array_files(older_than_s=indexer.options.grace_s)
        indexer.ledger.file.shrink()
        evict_superseded(indexer)


def _discard(indexer: Indexer, findings: Findings) -> None:
    """Delete everything that is wrong."""
    nodes = indexer.nodes
    ledger = indexer.ledger
    for group in ledger.tree.groups.values():
        nodes.segments.create(group.collection, nodes.schema)  # if the whole collection is gone
    if findings.segment_orphans or findings.vector_orphans or findings.indexes:
        ledger.announce_removal()
    for collection, keys in findings.segment_orphans.items():
        nodes.segments.delete(collection, keys=keys)
    for collection, keys in findings.vector_orphans.items():
        nodes.vectors_to_write.delete(collection, keys=keys)
    for index, collection in findings.indexes.items():
        _drop(nodes.vectors_to_write, collection)
        ledger.groups.empty_index(index)
    if findings.parts:
        ledger.groups.discard_parts(findings.parts)
    if findings.uncovered:
        ledger.builds.uncover(findings.uncovered)
    if findings.builds:
        ledger.builds.discard(findings.builds)
    if findings.has_miscounts:
        ledger.correct_counts()


def _drop(store: VectorStore, collection: str) -> None:
    """Drop a collection; if even that fails, replace the whole store: its other collections are
    found missing then.
    """
    try:
        store.drop(collection)
    except StoreDamagedError as exc:
        if local_path(store) is None:
            raise
        set_aside(store, str(exc))


def _reload_lost_roots(indexer: Indexer) -> Sequence[str]:
    """Mark the files of documents without root node as unread; return those documents."""
    root = indexer.ledger.tree.groups[LAZY_ROOT_NAME]
    missing = indexer.ledger.builds.missing(root.id)
    lost = [row.uid for row in indexer.ledger.documents.rows(missing)]
    if lost:
        indexer.ledger.documents.force_reload(lost)
    return lost


def _inspect(indexer: Indexer) -> Findings:
    """Inspect everything live, and everything in the stores; nobody writes meanwhile."""
    tree = indexer.ledger.tree
    findings = Findings()
    damage = indexer.ledger.file.damage()
    if damage:
        findings.add("damaged", "the store file", "", damage)
    for where, document, details in indexer.ledger.faults():
        findings.add("damaged", where, document, details)
    with ProgressMeter("verify", len(tree.groups), 1, unit="group") as meter:
        for done, group in enumerate(tree.groups.values(), start=1):
            try:
                _GroupInspection(indexer, tree, group, findings).run()
            except StoreError as exc:
                # e.g. a page of the file, or a server; the rest may be readable
                findings.add("damaged", group.name, "", str(exc))
            meter.reach(done)
    return findings


class _GroupInspection:
    """Inspection of one group: its nodes, vectors and lexical indexes."""

    def __init__(self, indexer: Indexer, tree: Tree, group: LiveGroup, findings: Findings) -> None:
        self._indexer = indexer
        self._builds = indexer.ledger.builds
        self._tree = tree
        self._group = group
        self._findings = findings
        self._failed = {identity for identity, *_ in indexer.ledger.documents.failures()}
        # uids of those that are live
        self._failed_documents: set[str] = set()
        for document in tree.documents() if self._failed else ():
            if document.identity in self._failed:
                self._failed_documents.add(document.uid)
        self._numbers = set(self._builds.numbers_in(group.id))

    def run(self) -> None:
        """Inspect the nodes, then each index, then what is counted of both."""
        self._inspect_nodes()
        for index in self._group.indexes.values():
            if index.kind == "vectors":
                self._inspect_vectors(index)
            else:
                self._inspect_terms(index)
        for problem in self._indexer.ledger.miscounts(self._group.id):
            self._findings.add("damaged", self._group.name, "", problem)
            self._findings.has_miscounts = True

    def _inspect_nodes(self) -> None:
        """Inspect the live builds, then all rows of the collection."""
        stored = self._stored_keys()
        rows = {row.number: row for row in self._builds.live_in(self._group.id)}
        for build in self._tree.builds(self._group):
            raise_if_canceled()
            try:
                keys = stored.pop(build.number, set())
                self._inspect_build(build, rows.get(build.number), keys)
            except StoreError as exc:  # the ledger contradicts itself
                self._report_build("dangling", build, str(exc))
        for number in self._builds.superseded(self._group.id):
            self._findings.builds.add(number)
            self._findings.add("dangling", self._group.name, "", f"build {number} is not live")
        self._find_missing_documents()
        orphans: list[str] = []
        for number, keys in stored.items():
            if number not in self._numbers:
                orphans += keys
        self._report_orphans(orphans)

    def _stored_keys(self) -> defaultdict[int, set[str]]:
        """Return the keys of all rows of the collection, by build."""
        store = self._indexer.nodes.segments
        collection = self._group.collection
        stored: defaultdict[int, set[str]] = defaultdict(set)
        try:
            for page in pages(functools.partial(store.scan, collection)):
                for segment in page:
                    stored[key_build(segment.key)].add(segment.key)
        except StoreError as exc:
            self._findings.add("damaged", self._group.name, "", str(exc))
        return stored

    def _inspect_build(self, build: Build, row: BuildRow | None, stored: set[str]) -> None:
        if row is None or (self._group.parent is not None and build.parent is None):
            return self._report_build("dangling", build, "it or its parent is not live")
        self._report_orphans(sorted(stored - set(build.keys)))
        missing = len(set(build.keys) - stored)
        if missing:
            return self._report_build("missing", build, f"{missing} of {len(build.keys)} nodes")
        nodes = self._indexer.nodes.of_build(self._group.collection, build)
        parents = set(build.parent.uids) if build.parent is not None else {None}
        detached = [
            node.uid
            for node in nodes
            if node.parent not in parents or node.document_id != build.document
        ]
        if detached:
            return self._report_build("dangling", build, f"node {detached[0]} has no live parent")
        if row.output != output_digest(nodes):
            return self._report_build(
                "damaged", build, "its nodes differ from those that were written"
            )
        if row.input.partition("/")[0] not in self._input_digests(build, nodes):
            return self._report_build("stale", build, "it was not made from its present parents")
        return None

    def _find_missing_documents(self) -> None:
        """Find documents without a build in the group although none of their steps failed."""
        if not self._group.complete:
            return
        parent = self._tree.groups.get(self._group.parent or "")
        due = self._builds.missing(self._group.id)
        if parent is not None:
            due -= self._builds.missing(parent.id)
        rows = self._indexer.ledger.documents.rows(due)
        for row in sorted(rows, key=lambda row: row.identity):
            if row.identity not in self._failed:
                lost = parent is None and row.origin != "dataset"
                missing = "all of it; its source is gone, so add it again" if lost else "all of it"
                self._findings.add("missing", self._group.name, row.identity, missing)

    def _input_digests(self, build: Build, nodes: Sequence[Segment]) -> set[str]:
        """Return the valid input digests of a build, for a transform that sees nodes or only
        content.
        """
        if build.parent is None:
            return {root_digest(nodes[0])} if nodes else set()
        definitions = self._indexer.definitions
        groups = self._tree.groups
        sources = _line(build.parent)
        ref = definitions.graph[build.group].ref if definitions.is_defined(build.group) else None
        if ref is not None and ref in groups:
            ref_line = _line(self._tree.build_of(ref, build.document))
            above = {source.number for source in sources[:-1]}
            sources[-1:] = [source for source in ref_line if source.number not in above]
        try:
            nodes_of = [
                self._indexer.nodes.of_build(groups[source.group].collection, source)
                for source in sources
            ]
        except StoreError:
            return set()  # reported where it is missing
        return {input_digest(nodes_of, sees_nodes=sees_nodes) for sees_nodes in (False, True)}

    def _report_orphans(self, keys: Sequence[str]) -> None:
        if keys:
            self._findings.segment_orphans.setdefault(self._group.collection, []).extend(keys)
            self._findings.add(
                "orphan", self._group.name, "", f"{len(keys)} nodes, the first is {keys[0]}"
            )

    def _report_build(self, kind: ProblemKind, build: Build, details: str) -> None:
        self._findings.builds.add(build.number)
        self._findings.add(kind, self._group.name, self._name_of(build), details)

    def _name_of(self, build: Build) -> str:
        for document in self._tree.documents([build.document]):
            return document.identity
        return build.document

    def _inspect_vectors(self, index: LiveIndex) -> None:
        findings = self._findings
        where = f"{self._group.name} by {index.name}"
        due = self._due_builds(index)
        if not due and not index.dimension:
            return
        lengths, damage = self._stored_lengths(index)
        if damage:
            findings.indexes[index.id] = index.collection
            findings.add("damaged", where, "", damage)
            return
        counts = Counter(length for length in lengths.values() if length)
        if index.dimension and counts and index.dimension not in counts:
            findings.indexes[index.id] = index.collection
            stored = _format_dimension(counts.most_common(1)[0][0])
            msg = (
                f"the vectors {stored}, and in the ledger they {_format_dimension(index.dimension)}"
            )
            for build in due:
                findings.add("dimension", where, self._name_of(build), msg)
            return
        for build in due:
            self._inspect_build_vectors(index, build, lengths)
        orphans = [key for key in lengths if key_build(key) not in self._numbers]
        if orphans:
            findings.vector_orphans[index.collection] = orphans
            findings.add("orphan", where, "", f"{len(orphans)} vectors, the first is {orphans[0]}")

    def _inspect_build_vectors(
        self, index: LiveIndex, build: Build, lengths: Mapping[str, int]
    ) -> None:
        findings = self._findings
        where = f"{self._group.name} by {index.name}"
        stored = [lengths.get(key) for key in build.keys]
        missing = stored.count(None)
        wrong = sum(length not in {None, index.dimension} for length in stored)
        if not (missing or wrong):
            return
        document = self._name_of(build)
        findings.uncovered.add((index.id, build.number))
        if missing:
            findings.add("missing", where, document, f"{missing} of {len(stored)} vectors")
        if wrong:
            details = (
                f"{wrong} of {len(stored)} vectors have another length or kind, or are not finite"
            )
            findings.add("dimension", where, document, details)

    def _inspect_terms(self, index: LiveIndex) -> None:
        findings = self._findings
        where = f"{self._group.name} by {index.name}"
        parts: Counter[int] = Counter()
        rows: dict[int, int] = {}
        numbers_of = {}
        for row in index.parts:
            damage = self._indexer.ledger.parts.damage(row.id)
            if damage:
                findings.parts.add(row.id)
                findings.add("damaged", where, "", damage)
            else:
                builds = self._indexer.ledger.parts.builds(row.id)
                numbers = builds.numbers.tolist()
                parts.update(numbers)
                rows.update(zip(numbers, builds.sizes.tolist(), strict=True))
                numbers_of[row.id] = set(numbers)
        for build in self._due_builds(index):
            if parts[build.number] == 1 and rows.get(build.number) == build.size:
                continue
            findings.uncovered.add((index.id, build.number))
            details = (
                f"{rows.get(build.number, 0)} of {build.size} nodes are indexed, in"
                f" {parts[build.number]} parts"
            )
            findings.add("missing", where, self._name_of(build), details)
            # If a part is wrong about one build, nothing else in it can be trusted.
            findings.parts |= {part for part in numbers_of if build.number in numbers_of[part]}
        if any(row.id in findings.parts for row in index.parts):
            covered = self._builds.covered(index.id, self._numbers)
            intact = (numbers_of[part] for part in numbers_of.keys() - findings.parts)
            lost = covered.difference(*intact)
            findings.uncovered.update((index.id, number) for number in lost)

    def _due_builds(self, index: LiveIndex) -> list[Build]:
        """Return the live builds that an index must contain: those that have nodes and did not
        fail.
        """
        numbers = self._tree.live_numbers(self._group).tolist()
        covered = self._builds.covered(index.id, numbers)
        due = []
        for build in self._tree.builds(self._group):
            try:
                has_nodes = bool(build.keys)
            except StoreError:  # reported with the nodes
                continue
            has_failed = build.document in self._failed_documents
            if has_nodes and (build.number in covered or (index.complete and not has_failed)):
                due.append(build)
        return due

    def _stored_lengths(self, index: LiveIndex) -> tuple[dict[str, int], str]:
        """Return the length of each stored vector (`SPARSE` for sparse, 0 for non-finite ones), and
        any damage.
        """
        store = self._indexer.nodes.vectors
        lengths: dict[str, int] = {}
        try:
            if isinstance(store, Checkable):
                damage = store.damage(index.collection)
            else:
                damage = _search_error(store, index.collection, index.dimension)
            if damage:
                return {}, damage
            for page in pages(functools.partial(store.scan, index.collection)):
                lengths.update((row.key, _vector_length(row)) for row in page)
        except StoreError as exc:
            return {}, str(exc)
        return lengths, ""


def _vector_length(row: VectorRow) -> int:
    if isinstance(row.vector, dict):
        return SPARSE if all(map(math.isfinite, row.vector.values())) else 0
    return len(row.vector) if row.vector.ndim == 1 and np.isfinite(row.vector).all() else 0


def _format_dimension(dimension: int) -> str:
    return "are sparse" if dimension == SPARSE else f"have {dimension} numbers"


def _line(build: Build | None) -> list[Build]:
    """A build and those above it, the root node's last."""
    return [] if build is None else [build, *_line(build.parent)]
