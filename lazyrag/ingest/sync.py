"""Plan a sync of a Document with its files, and run it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from lazyrag.data.segment import LAZY_ROOT_NAME, Segment, content_text
from lazyrag.errors import ConfigError, LazyRAGError, TransformError
from lazyrag.groups.node_group import LOADING, NodeGroup, Step
from lazyrag.ingest.changes import (
    MAX_DELETED,
    FileComparison,
    by_identity,
    compare_files,
    expected_report,
    file_size,
    ingest_changes,
    load_root,
)
from lazyrag.ingest.dataset import Changes, ComparedFile, find_named_files, pair_by_identity
from lazyrag.ingest.dry_run import CALLED, PlannedFormat, merge_formats, plan_formats, with_error
from lazyrag.ingest.index_texts import field_texts
from lazyrag.ingest.indexer import Indexer, report_of
from lazyrag.ingest.load_files import NamedReader
from lazyrag.ingest.pending import PendingVersion
from lazyrag.ingest.plan import BuildPlan, GroupTarget, index_step
from lazyrag.ingest.report import IngestReport
from lazyrag.ledger.lease import WAIT_S
from lazyrag.ledger.tables import DocumentRow, new_row
from lazyrag.ledger.tree import Build, LiveGroup, LiveGroups, LiveIndex
from lazyrag.loaders.base import is_built_in, loaders
from lazyrag.loaders.directory import Listing
from lazyrag.models.embedding import batch_size_of, is_embeddable
from lazyrag.progress.calls import ProgressTask
from lazyrag.text.tokens import token_counters
from lazyrag.validation import (
    validate_boolean,
    validate_choice,
    validate_integer,
    validate_number,
)

OnError: TypeAlias = Literal["collect", "raise"]


def sync(
    indexer: Indexer,
    *,
    dry_run: bool = False,
    on_error: OnError = "collect",
    max_deleted: float = MAX_DELETED,
    max_calls: int | None = None,
    wait_s: float = WAIT_S,
    first: Callable[[Indexer], object] | None = None,
    retry: bool = False,
) -> IngestReport:
    """Ingest changed files, retry failures, and build what earlier uses requested; see
    `Document.sync`.

    With ``retry``, files that ended their loader are read again, too.
    """
    validate_choice("on_error", on_error, OnError)
    validate_number("wait_s", wait_s, "a number of seconds >= 0", lambda seconds: seconds >= 0)
    if validate_boolean("dry_run", dry_run):
        return expected_report(indexer, compare_files(indexer, max_deleted))
    if max_calls is not None:
        _refuse_calls(plan_sync(indexer, max_deleted).calls, max_calls)
    with indexer.writing(wait_s):
        indexer.is_synced = True
        if first is not None:
            first(indexer)
        report = ingest_changes(
            indexer, max_deleted=max_deleted, stop=on_error == "raise", retry=retry
        )
        indexer.retry()
    return report_of(indexer) or report


def _refuse_calls(calls: int, max_calls: int) -> None:
    """Check that no more calls of models are planned than allowed."""
    allowed = validate_integer("max_calls", max_calls, 0)
    if calls > allowed:
        problem = f"A sync would make about {calls} calls of models, and max_calls is {allowed}."
        way_out = "plan() shows the calls; raise max_calls to allow them."
        raise ConfigError(f"{problem} Nothing was done. {way_out}")


# Plans

_BYTES_PER_TOKEN = 3  # of the default counter


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """Estimate for one step of a sync.

    Args:
        step: ``"load"``, ``"transform <group>"``, ``"embed <group> with <embed key>"``, ...
        documents: Number of documents.
        nodes: Approximate number of nodes that are made, embedded or indexed.
        tokens: Approximate number of their tokens, by the default counter.
        calls: Approximate number of model calls: at most one per batch for an embed callable; for a
            chat model, the transform's ``calls_per_node`` per node.
        reason: Why it is done: numbers of known files by `IngestReport.reasons`; of a group or
            index that is built for every file as in `IngestReport.rebuilt`. "" for new files.
    """

    step: str
    documents: int
    nodes: int
    tokens: int
    calls: int
    reason: str = ""

    def __str__(self) -> str:
        text = f"{self.step}: {self.documents} documents, about {self.nodes} nodes"
        text += f", {self.tokens} tokens"
        return f"{text}, {self.calls} calls" if self.calls else text


@dataclass(frozen=True, slots=True)
class GroupDiff:
    """What a sync would change in a group, found by running its transform; nothing is written, no
    model is called.

    Args:
        group: Its name.
        stay: Number of chunks whose text stays in their file.
        come: Number of new chunks.
        go: Number of chunks that are deleted.
        embed: Number of texts to embed by embed key: new ones that are not in the embedding cache.
            Without the keys that read a function's or another group's texts (``index_text=``),
            which are not known before.
    """

    group: str
    stay: int = 0
    come: int = 0
    go: int = 0
    embed: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        text = f"{self.group}: {self.stay} chunks stay, {self.come} come, {self.go} go"
        for key, count in self.embed.items():
            if count:
                text += f"; {count} texts to embed with {key}"
        return text


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """Estimate of a sync.

    Args:
        files: What it would report on the files.
        steps: What it would do, in order. Numbers of nodes are extrapolated from other documents by
            the size of their texts: only loaders are called for a plan.
        unseen: What affects results but is invisible to fingerprints: pairs (group, reader or embed
            key, what). Its changes rebuild nothing; pass ``version=`` or define an attribute
            ``identity``.
        diffs: With ``plan(diff=True)``, what becomes of the chunks of built groups whose transforms
            call no model; without groups in which nothing changes.
        formats: How the files would be read, by kind: as text, by OCR, by a program, or not.
    """

    files: IngestReport
    steps: tuple[PlannedStep, ...]
    unseen: tuple[tuple[str, str], ...]
    diffs: tuple[GroupDiff, ...] = ()
    formats: tuple[PlannedFormat, ...] = ()

    @property
    def calls(self) -> int:
        """Estimated maximum number of model calls."""
        return sum(step.calls for step in self.steps)

    def __str__(self) -> str:
        lines = [str(self.files)]
        last_reason = ""
        for step in self.steps:
            lines.append(str(step))
            if step.reason not in ("", last_reason):
                lines.append(f"  why: {step.reason}")
            last_reason = step.reason
        lines += map(str, self.diffs)
        lines += [f"not seen of {name}: {part}" for name, part in self.unseen]
        return "\n".join(lines)


def plan_sync(
    indexer: Indexer, max_deleted: float = MAX_DELETED, *, diff: bool = False
) -> SyncPlan:
    """Plan a sync; changes nothing and calls no model, and transforms only for a diff."""
    comparison = compare_files(indexer, max_deleted)
    changes = comparison.changes
    reloaded = [
        file
        for file in changes.moved
        if file.before is not None and file.config_hash != file.before.config_hash
    ]
    formats, tokens, errors = _try_loading(indexer, comparison, [*changes.to_load, *reloaded])
    files = [file for file in changes.to_load if file.identity not in errors]
    report = expected_report(indexer, comparison, errors)
    steps = []
    if files:
        reasons = [report.reasons.get(file.identity, "") for file in files]
        causes = Counter(filter(None, reasons)).most_common()
        why = ", ".join(f"{count} {cause}" for cause, count in causes)
        steps.append(PlannedStep(str(LOADING), len(files), len(files), tokens, 0, why))
    size = sum(map(file_size, files))
    steps += _planned_steps(indexer, len(files), size, tokens, changes.moved)
    diffs = _diffs(indexer, comparison) if diff else []
    _set_embedded(indexer, steps, diffs)
    changed = [group for group in diffs if group.come or group.go or any(group.embed.values())]
    merged = merge_formats(formats.values(), comparison.listing.skipped)
    return SyncPlan(report, tuple(steps), tuple(_unseen(indexer)), tuple(changed), merged)


def _set_embedded(indexer: Indexer, steps: list[PlannedStep], diffs: Sequence[GroupDiff]) -> None:
    """Replace estimates of the texts to embed by the numbers that diffs have counted."""
    counts = {}
    for diff in diffs:
        for key, count in diff.embed.items():
            counts[str(Step(diff.group, embed_key=key))] = (key, count)
    for at, step in enumerate(steps):
        if step.step in counts:
            key, count = counts[step.step]
            steps[at] = replace(step, nodes=count, calls=_calls(indexer, key, count))


def plan_files(indexer: Indexer, files: Any) -> SyncPlan:
    """Plan `Document.add_files`, as `plan_sync` plans a sync."""
    named = find_named_files(files, "files")
    comparison = FileComparison(Listing(), Changes())
    compared = [ComparedFile(file, "", "") for file in named]
    formats, tokens, _ = _try_loading(indexer, comparison, compared)
    size = sum(file.path.stat().st_size for file in named)
    load = PlannedStep(str(LOADING), len(named), len(named), tokens, 0)
    report = IngestReport(added=tuple(file.identity for file in named))
    steps = (load, *_planned_steps(indexer, len(named), size, tokens, []))
    return SyncPlan(report, steps, tuple(_unseen(indexer)), formats=merge_formats(formats.values()))


def _try_loading(
    indexer: Indexer, comparison: FileComparison, files: Sequence[ComparedFile]
) -> tuple[dict[str, PlannedFormat], int, dict[str, LazyRAGError]]:
    """Load files as a sync would, but those that a function of a user's, OCR or an outside program
    reads.

    Returns:
        How they would be read, by identity; the tokens of those that load; why others do not, by
        identity.
    """
    formats = plan_formats(indexer.loading, [file.file for file in files])
    errors = {}
    tokens = 0
    is_plain = not indexer.loading.readers.all() and all(map(is_built_in, loaders))
    # an archive may hold a file for a function
    called = CALLED if is_plain else (*CALLED, "unknown until read")
    with indexer.loading.running(len(files)), ProgressTask("plan", len(files), "file") as work:
        for number, file in enumerate(files, start=1):
            name = file.identity
            if formats[name].how in called:
                continue
            row = comparison.row_of(file)
            try:
                root = load_root(indexer, file.file, row, comparison.metadata)(0)
                tokens += token_counters["utf8"].count(content_text(root.segment.content))
                if formats[name].how == "not readable":  # for want of a package
                    formats[name] = replace(formats[name], how="text", why="as .txt")
            except LazyRAGError as exc:
                errors[name] = exc
                formats[name] = with_error(formats[name], exc)
            work.reach(number)
    return formats, tokens, errors


def _planned_steps(
    indexer: Indexer, documents: int, size: int, tokens: int, moved: Sequence[ComparedFile]
) -> Iterator[PlannedStep]:
    """Yield the steps for new documents of so many bytes and tokens, for moved ones, and for
    changed definitions.
    """
    live_size = indexer.ledger.documents.live_bytes()
    share = size / live_size if live_size else 0.0
    moved_size = sum(map(file_size, moved))
    moved_share = moved_size / live_size if live_size else 0.0
    groups = indexer.ledger.tree.groups
    estimate = _StepEstimate(
        indexer, groups, documents, tokens, share, len(moved), moved_share, live_size
    )
    is_defined = indexer.definitions.is_defined
    names = [name for name in groups if name != LAZY_ROOT_NAME and is_defined(name)]
    for name in indexer.planner.parents_first(names):
        yield from estimate.steps_of(groups[name])


@dataclass(frozen=True, slots=True)
class _StepEstimate:
    """Estimates the steps after loading from what is live.

    Args:
        indexer: Of the Document.
        groups: The live groups by name.
        documents: Number of documents that are loaded.
        tokens: Their tokens.
        share: Their bytes, as a share of those of the live files.
        moved: Number of moved files.
        moved_share: The same share of their bytes.
        live_size: Bytes of the live files.
    """

    indexer: Indexer
    groups: LiveGroups
    documents: int
    tokens: int
    share: float
    moved: int
    moved_share: float
    live_size: int

    def steps_of(self, group: LiveGroup) -> Iterator[PlannedStep]:
        """Yield the step of a group and those of its indexes, as far as they are due."""
        for index in (None, *group.indexes.values()):
            step = Step(group.name) if index is None else index_step(group.name, index)
            planned = self._plan_step(group, step, index)
            if planned is not None:
                yield planned

    def _plan_step(
        self, group: LiveGroup, step: Step, index: LiveIndex | None
    ) -> PlannedStep | None:
        """Estimate a step; None if it is not due."""
        planner = self.indexer.planner
        reason, again = self._due_again(group, step, index)
        fields = () if index is None else planner.known_fields(step)
        is_moved = again < 1 and (fields is None or "path" in fields)
        documents = self.documents + round(again * group.documents)
        part = self.share + again
        if is_moved:
            documents += self.moved
            part += self.moved_share
        if not documents:
            return None
        nodes = max(self.documents, math.ceil(part * group.nodes))
        tokens = self.tokens + round((part - self.share) * self.live_size / _BYTES_PER_TOKEN)
        calls = 0
        if index is None:
            transform = self.indexer.graph[group.name].user_transform
            parents = self.documents
            above = self.groups.get(str(group.parent))
            if above is not None:
                parents = max(parents, math.ceil((self.share + again) * above.nodes))
            calls = getattr(transform, "calls_per_node", 0) * parents
        elif index.kind == "vectors":
            calls = _calls(self.indexer, index.name, nodes)
        return PlannedStep(str(step), documents, nodes, tokens, calls, reason)

    def _due_again(
        self, group: LiveGroup, step: Step, index: LiveIndex | None
    ) -> tuple[str, float]:
        """Return why a step is done again, and for which share of the live documents."""
        reason = self.indexer.planner.reason(step)
        if reason not in ("", "missing"):
            return reason, 1.0
        builds = self.indexer.ledger.builds
        lacking = (
            builds.missing(group.id) if index is None else builds.missing_cover(group.id, index.id)
        )
        return "missing" if lacking else "", len(lacking) / max(1, group.documents)


def _calls(indexer: Indexer, embed_key: str, texts: int) -> int:
    """Return how many calls embed so many texts."""
    embedder = indexer.embedders.get(embed_key)
    return 0 if embedder is None else -(-texts // batch_size_of(embedder.embedder))


def _diffs(indexer: Indexer, comparison: FileComparison) -> list[GroupDiff]:
    """Return what becomes of the chunks of built groups, as far as their transforms call no
    model.
    """
    groups = indexer.ledger.tree.groups
    if LAZY_ROOT_NAME not in groups:
        return []
    plan = indexer.planner.plan_preview()
    hashes: dict[str, set[int]] = {}
    counters = {
        target.name: _DiffCounter(indexer, target.name, hashes)
        for target in plan.groups
        if target.name in groups
    }
    changes = comparison.changes
    deleted = {file.identity for file in changes.deleted}
    with indexer.loading.running(len(changes.to_load)):
        for version in _versions_after_sync(indexer, comparison, plan, deleted):
            root = next(iter(version.segments.get(plan.root, ())), None)
            for target in plan.groups:
                nodes: Sequence[Segment] | None = None
                if version.row.identity in deleted:
                    nodes = []
                elif target.id not in version.current:
                    nodes = _preview(indexer, target, version, plan)
                    if nodes is None:
                        continue
                if target.name in counters:
                    counters[target.name].add(version.row, nodes, root)
    return [counter.result() for counter in counters.values()]


def _versions_after_sync(
    indexer: Indexer, comparison: FileComparison, plan: BuildPlan, deleted: set[str]
) -> Iterator[PendingVersion]:
    """Yield each document with its root node after a sync; deleted ones without."""
    changes = comparison.changes
    tree = indexer.ledger.tree
    new_names = dict(changes.moves)
    documents = indexer.ledger.documents.in_order()
    live = (row for row in documents if row.status == "live")
    for name, file, known in pair_by_identity(by_identity(changes.to_load), live):
        row = known or new_row(name)
        version = PendingVersion(row)
        if file is not None:
            row = comparison.row_of(file, row)
            load = load_root(indexer, file.file, row, comparison.metadata)
            version = PendingVersion(row, load)
            try:
                version.segments[plan.root] = [load(0).segment]
            except LazyRAGError:
                continue  # its live version stays
        elif name not in deleted and (build := tree.build_of(LAZY_ROOT_NAME, row.uid)):
            [root] = indexer.nodes.of_build(plan.root_collection, build)
            version.segments[plan.root] = [root._replace(path=new_names.get(name, root.path))]
            version.current = dict(indexer.ledger.builds.live([row.id])[row.id])
        yield version


def _preview(
    indexer: Indexer, target: GroupTarget, version: PendingVersion, plan: BuildPlan
) -> list[Segment] | None:
    """Return a document's nodes in a group; None if a transform fails."""
    if not {target.parent, target.ref or plan.root} <= {*version.current, *version.segments}:
        return None
    with suppress(TransformError):
        return indexer.engine.preview(target, version, plan)
    return None


class _DiffCounter:
    """Counts what becomes of the chunks of one group.

    Args:
        indexer: Of the Document.
        name: Name of the group.
        hashes: Hashes of counted texts by identity of the model, of all groups: the cache has them
            then.
    """

    def __init__(self, indexer: Indexer, name: str, hashes: dict[str, set[int]]) -> None:
        self._indexer = indexer
        self._planner = indexer.planner
        self._tree = indexer.ledger.tree
        self._group = self._tree.groups[name]
        self._fields: dict[str, Sequence[str]] = {}
        names = {index.name for index in self._group.indexes.values() if index.kind == "vectors"}
        for key in sorted(names & {*indexer.embedders}):
            fields = self._planner.known_fields(Step(name, embed_key=key))
            if fields is not None:
                self._fields[key] = fields
        self._hashes = hashes
        self._counts = Counter(stay=0, come=0, go=0)
        self._embed: dict[str, int] = dict.fromkeys(self._fields, 0)

    def add(self, row: DocumentRow, nodes: Sequence[Segment] | None, root: Segment | None) -> None:
        """Count a document, which has these nodes and this root node afterwards; None for those
        that it has.
        """
        build = self._tree.build_of(self._group.name, row.uid)
        lacking = {key for key in self._fields if not self._has_vectors(key, build)}
        is_same = nodes is None and (root is None or root.path == row.identity)
        if is_same and build is not None and not lacking:
            self._counts["stay"] += build.size
            return
        before: Sequence[Segment] = []
        if build is not None:
            before = self._indexer.nodes.of_build(self._group.collection, build)
        after = before if nodes is None else nodes
        old = Counter(content_text(node.content) for node in before)
        new = Counter(content_text(node.content) for node in after)
        self._counts.update(
            stay=(old & new).total(), come=(new - old).total(), go=(old - new).total()
        )
        for key in self._fields:
            texts = set(filter(is_embeddable, self._embedded_texts(key, after, row, root)))
            if key not in lacking:
                texts.difference_update(self._embedded_texts(key, before, row, None))
            self._embed[key] += self._count_uncached(key, texts)

    def _count_uncached(self, key: str, texts: set[str]) -> int:
        """Count the texts that an embedder's cache will not have when they are embedded."""
        embedder: Any = self._planner.embedders[key].embedder
        if not texts or not hasattr(embedder, "cached"):
            return len({hash(text) for text in texts})
        hashes = {hash(text) for text in texts - embedder.cached(texts)}
        counted = self._hashes.setdefault(self._planner.identities[key], set())
        hashes -= counted
        counted |= hashes
        return len(hashes)

    def _has_vectors(self, key: str, build: Build | None) -> bool:
        index_key = self._planner.index_key(Step(self._group.name, embed_key=key))
        index = None if index_key is None else self._group.indexes.get(index_key)
        builds = self._indexer.ledger.builds
        return bool(build and index and builds.covered(index.id, [build.number]))

    def _embedded_texts(
        self, key: str, nodes: Sequence[Segment], row: DocumentRow, root: Segment | None
    ) -> list[str]:
        """Return what the vectors of an embed key read of a document's nodes; root None for its
        live root node.
        """
        if not nodes or not self._fields[key]:
            return [content_text(node.content) for node in nodes]
        if root is None:
            root = self._indexer.live_root(row.uid, row.identity)
        return field_texts(self._fields[key], root, nodes, is_file=row.origin != "text")

    def result(self) -> GroupDiff:
        """Return the counts."""
        return GroupDiff(self._group.name, **self._counts, embed=self._embed)


def _unseen(indexer: Indexer) -> Iterator[tuple[str, str]]:
    """Yield what affects results but is invisible to fingerprints; see `SyncPlan`."""
    definitions = indexer.definitions
    defined = list(filter(definitions.is_defined, indexer.graph))
    named: list[tuple[str, NamedReader | NodeGroup]] = [
        (f"reader {reader.pattern}", reader) for reader in indexer.loading.readers.all()
    ]
    named += [(name, definitions.graph[name]) for name in defined]
    for name, definition in named:
        if definition.version is None:
            for part, value in definition.fingerprint.unseen:
                yield name, f"{part} ({type(value).__name__})"
    for key, embedder in indexer.embedders.items():
        if not embedder.embedder.identity:
            yield key, "which model its embed callable asks (its name and code are seen)"
