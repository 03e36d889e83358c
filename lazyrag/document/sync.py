"""Keeping a Document in step with its files: what changed since the last time, and bringing that in."""

from __future__ import annotations

import datetime as dt
import functools
import heapq
import itertools
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lazyrag.data.fields import BUILT_IN_FIELDS
from lazyrag.data.segment import EMPTY, LAZY_ROOT_NAME, check_metadata, digest, root_uid
from lazyrag.document.changes import Changes, ComparedFile, KnownFile, PathLike, compare, named_files
from lazyrag.document.groups import LOADING, Step
from lazyrag.document.indexer import Builder, report_of
from lazyrag.document.ingest import MakeRoot, Outcome, Root, Targets, Work, file_root, renewed_root, step_of, text_root
from lazyrag.document.ledger import DocumentRow, Version
from lazyrag.document.load_files import loader_identities
from lazyrag.document.report import Failure, IngestReport
from lazyrag.document.tree import LiveGroup, LiveSpace
from lazyrag.errors import (
    ConfigError,
    IngestionError,
    IngestionWarning,
    LazyRAGError,
    LoadError,
    StoreError,
    known_names,
    sentence,
    warn_user,
)
from lazyrag.loaders.directory import FoundFile, Listing, hash_file, signature_of
from lazyrag.models.embedding import batch_size_of
from lazyrag.text.tokens import token_counters

MAX_DELETED = 0.5
"""Share of the known files that may be gone at once before their deletion has to be confirmed."""


@dataclass(slots=True)
class Comparison:
    """The dataset's files beside what the ledger knows.

    Args:
        listing: The files.
        changes: What became of each.
        rows: What the ledger knows, by identity.
        skipped: Pairs (identity, reason) of what was passed over.
        said: What the user says of files that were looked at; nothing of most.
    """

    listing: Listing
    changes: Changes
    rows: Mapping[str, DocumentRow]
    skipped: tuple[tuple[str, str], ...]
    said: dict[str, Mapping[str, Any] | LazyRAGError] = field(default_factory=dict)


def compare_files(builder: Builder, max_deleted: float = MAX_DELETED) -> Comparison:
    """List the files and compare them with what the ledger knows; changes nothing.

    Raises:
        DatasetPathError: If the dataset's folder cannot be listed.
    """
    listing = builder.dataset.list_files()
    rows = builder.ledger.documents.all()
    said, mark = marker(builder)
    passed_over = {row.identity: reason for row in rows.values() if (reason := _why_passed_over(row))}
    passed_over |= {file.identity: "the store's own file" for file in listing.found if _is_of_store(builder, file)}
    roots = builder.ledger.tree.groups.get(LAZY_ROOT_NAME)
    known = [
        _known(row, is_there=roots is not None and row.uid in roots.builds)
        for row in rows.values()
        if row.status == "live" and row.origin == "dataset" and builder.dataset.is_given
    ]
    changes = compare(
        [file for file in listing.found if file.identity not in passed_over],
        known,
        unlisted=listing.unlisted,
        content_hash=lambda file: hash_file(file.path),
        mark=mark,
        max_deleted=max_deleted,
    )
    found = {file.identity for file in listing.found}
    skipped = [(name, reason) for name, reason in passed_over.items() if name in found]
    return Comparison(listing, changes, rows, tuple(sorted([*listing.skipped, *skipped])), said)


def _why_passed_over(row: DocumentRow) -> str:
    """Why a file of a document's name is not looked at; "" if it is."""
    if row.status == "excluded":
        return "deleted by delete_files"
    if row.status == "live" and row.origin != "dataset":
        return "its name is that of a document that was added singly"
    return ""


def _is_of_store(builder: Builder, file: FoundFile) -> bool:
    store = builder.ledger.file.path
    return store is not None and str(file.path).startswith(str(store))


def _known(row: DocumentRow, *, is_there: bool) -> KnownFile:
    """What is known of a document's file; nothing of its content, where it has to be read again whatever it holds."""
    was_in_flux = row.signature is None and row.seen_ns >= 0  # it was another file while it was read than before
    if was_in_flux or not is_there:
        return KnownFile(row.identity, None, "", 0, row.mark)
    return KnownFile(row.identity, row.signature, row.content_hash, row.seen_ns, row.mark)


def marker(builder: Builder) -> tuple[dict[str, Mapping[str, Any] | LazyRAGError], Callable[[FoundFile], str]]:
    """What makes a file's document beside its content: its loader, and what the user says of it.

    Returns:
        What the user says of files that were looked at, or why that cannot be told; and the function that looks at a
        file and gives its mark.
    """
    said: dict[str, Mapping[str, Any] | LazyRAGError] = {}
    identity_of = loader_identities(builder.loading.readers)
    mark_of = functools.cache(lambda loader, text: digest([loader, text]))

    def mark(file: FoundFile) -> str:
        try:
            told: Mapping[str, Any] | LazyRAGError = builder.dataset.said_of(file)
            is_told = isinstance(told, Mapping) and bool(told)
            text = json.dumps(told, sort_keys=True, default=_plain) if is_told else ""
        except LazyRAGError as exc:
            told, text = exc, f"failed: {exc}"
        if told:
            said[file.identity] = told
        return mark_of(identity_of(file), text)

    return said, mark


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else repr(value)


def would_report(compared: Comparison) -> IngestReport:
    """What a sync would report, as far as files tell."""
    changes = compared.changes
    return IngestReport(
        added=_names(changes.added),
        failed=tuple(_unreadable(file, exc) for file, exc in changes.unreadable),
        skipped=compared.skipped,
        updated=tuple(sorted(_names(changes.changed) + _names(changes.remarked))),
        unchanged=tuple(sorted(_names(changes.unchanged) + _names(changes.touched))),
        deleted=tuple(one.identity for one in changes.deleted),
        moved=tuple((one.known.identity, one.file.identity) for one in changes.moved if one.known is not None),
        withheld=tuple(one.identity for one in changes.withheld),
    )


def synchronise(builder: Builder, *, max_deleted: float = MAX_DELETED, raises: bool = False) -> IngestReport:
    """Bring in what changed in the dataset. Who asks holds the lease.

    Args:
        builder: Of the Document.
        max_deleted: Share of the known files that may be gone at once.
        raises: Raise the first failure, instead of reporting all of them.

    Raises:
        DatasetPathError: If the dataset's folder cannot be listed.
        IngestionError: If every file failed, or if one did and ``raises`` is set.
    """
    builder.open_root()
    builder.failures.forget(lambda _step, _identity: True)
    compared = compare_files(builder, max_deleted)
    changes = compared.changes
    _note_misnamed(builder, compared.listing)
    if changes.deleted:
        rows = compared.rows
        builder.ledger.documents.tombstone([rows[one.identity].id for one in changes.deleted], "deleted")
    if changes.withheld:
        msg = (
            f"{len(changes.withheld)} of {len(changes.withheld) + len(changes.unchanged) + len(changes.touched)} files "
            f"are gone from {builder.where}, more at once than is likely. Their documents are kept; "
            "sync(max_deleted=1) lets them go."
        )
        warn_user(msg, IngestionWarning)
    for file, exc in changes.unreadable:
        error = LoadError(f"The file cannot be read ({exc.strerror}). Check that it may be read.", path=str(file.path))
        error.__cause__ = exc
        builder.failures.add(LOADING, file.identity, error)
    targets = builder.targets.of_live()
    works, count = _works(builder, compared, targets)
    done = builder.bringer.bring(works, targets, "sync", count, stop=raises)
    builder.report = _report(compared, done)
    builder.bringer.note_failures()
    builder.purge()
    for step in sorted({LOADING, *builder.failures.steps()}, key=str):
        builder.failures.check(step, builder.count_done(step, targets))
    return builder.report


def bring_lacking(builder: Builder) -> None:
    """Bring documents to what they lack of what is live."""
    targets = builder.targets.of_live()
    rows = _lacking(builder, targets, builder.ledger.documents.all())
    ordered = sorted(rows, key=lambda row: row.identity)
    builder.bringer.bring((Work(row) for row in ordered), targets, "make anew", len(ordered))


def _works(builder: Builder, compared: Comparison, targets: Targets) -> tuple[Iterator[Work], int]:
    """What is to be done, in the order of the documents' identities, and how much it is.

    Each work is made when its turn comes, as there may be many.
    """
    roots = builder.ledger.tree.groups[LAZY_ROOT_NAME]  # as they are now: what comes first may change them
    changes, rows = compared.changes, compared.rows
    to_load = (*changes.added, *changes.changed, *changes.remarked)
    rolled_back = builder.ledger.documents.rolled_back() if changes.touched else set()
    pinned = [one for one in changes.touched if rows[one.file.identity].id in rolled_back]
    for one in pinned:  # until the file changes; what the file system says of it now is not of that version
        builder.ledger.documents.note_files([_row_of(rows[one.file.identity], one, compared.listing.seen_ns)])
    touched = [one for one in changes.touched if rows[one.file.identity].id not in rolled_back]
    lacking = _lacking(builder, targets, rows)
    if lacking:
        known = {one.file.identity for one in (*to_load, *touched, *changes.moved)}
        lacking = [row for row in lacking if row.identity not in known]
    works = heapq.merge(
        (_loading(builder, compared, one, rows.get(one.file.identity)) for one in _in_order(to_load)),
        (_touched(builder, compared, one, roots) for one in _in_order(touched)),
        (_moving(builder, compared, one, roots) for one in _in_order(changes.moved)),
        (Work(row) for row in sorted(lacking, key=lambda row: row.identity)),
        key=lambda work: work.row.identity,
    )
    return works, len(to_load) + len(touched) + len(changes.moved) + len(lacking)


def _in_order(files: Iterable[ComparedFile]) -> list[ComparedFile]:
    return sorted(files, key=lambda one: one.file.identity)


def _loading(builder: Builder, compared: Comparison, one: ComparedFile, known: DocumentRow | None) -> Work:
    """A file that has to be read."""
    base = known or DocumentRow(0, root_uid(one.file.identity), one.file.identity)
    row = _row_of(base, one, compared.listing.seen_ns)
    if known is not None and known.status != "live":
        row = replace(row, updates="{}")  # what was said of a document that is gone
    said = compared.said.get(one.file.identity, EMPTY)

    def make(build: int) -> Root:
        if isinstance(said, LazyRAGError):
            raise said
        return file_root(builder.loading.load, one.file, row, said, builder.nodes.schema, build)

    return Work(row, make)


def _touched(builder: Builder, compared: Comparison, one: ComparedFile, roots: LiveGroup) -> Work:
    """A file with the same content, of which the file system says something else: its dates, perhaps."""
    row = _row_of(compared.rows[one.file.identity], one, compared.listing.seen_ns)
    renew = _renewing(builder, roots, row.uid, row, one.file)
    load = _loading(builder, compared, one, row)

    def make(build: int) -> Root:
        try:
            return renew(build)
        except (LoadError, StoreError):  # what is stored is not what was written, and the file is there
            return load.new_root(build)

    return Work(row, make)


def _renewing(builder: Builder, roots: LiveGroup, document: str, row: DocumentRow, file: FoundFile) -> MakeRoot:
    """Makes a root node with the text of a document that is live."""

    def make(build: int) -> Root:
        segment = builder.stored_root(roots.collection, roots.builds[document])
        return renewed_root(segment, row, builder.nodes.schema, build, file=file)

    return make


def _moving(builder: Builder, compared: Comparison, one: ComparedFile, roots: LiveGroup) -> Work:
    """A file that lies elsewhere: nothing is read but what the file system says of it."""
    known = one.known or one.to_know(0)  # it was moved from somewhere
    before = compared.rows[known.identity]
    said = compared.said.get(one.file.identity, EMPTY)
    if isinstance(said, LazyRAGError) or one.mark != known.mark:
        work = _loading(builder, compared, one, compared.rows.get(one.file.identity))
        return Work(work.row, work.make_root, before)
    base = DocumentRow(0, root_uid(one.file.identity), one.file.identity)
    row = replace(
        _row_of(base, one, compared.listing.seen_ns), loaded=before.loaded, said=before.said, updates=before.updates
    )
    return Work(row, _renewing(builder, roots, before.uid, row, one.file), before)


def _row_of(base: DocumentRow, one: ComparedFile, seen_ns: int) -> DocumentRow:
    return replace(
        base,
        origin="dataset",
        signature=one.file.signature,
        seen_ns=seen_ns,
        content_hash=one.content_hash,
        mark=one.mark,
    )


def _lacking(builder: Builder, targets: Targets, rows: Mapping[str, DocumentRow]) -> list[DocumentRow]:
    """Live documents that failed in a step before, or were written by a program without it."""
    missing: set[int] = set()
    for group in targets.groups:
        missing |= builder.ledger.builds.missing(group.id)
    for space in targets.spaces:
        missing |= builder.ledger.builds.missing_cover(space.group, space.id)
    return [row for row in rows.values() if row.id in missing]


def _report(compared: Comparison, done: list[Outcome]) -> IngestReport:
    changes = compared.changes
    flipped = {one.identity for one in done if one.flipped}
    renewed = {one.identity for one in done if one.flipped and one.is_new_version}
    again = _names(changes.changed) + _names(changes.remarked) + _names(changes.touched)
    unchanged = _names(changes.unchanged)
    pinned = set(_names(changes.touched)) - {one.identity for one in done}
    return IngestReport(
        added=tuple(name for name in _names(changes.added) if name in flipped),
        skipped=compared.skipped,
        updated=tuple(sorted(name for name in again if name in renewed)),
        unchanged=tuple(sorted([*unchanged, *(name for name in again if name in (flipped | pinned) - renewed)])),
        deleted=tuple(one.identity for one in changes.deleted),
        moved=tuple(
            (one.known.identity, one.file.identity)
            for one in changes.moved
            if one.known is not None and one.file.identity in flipped
        ),
        withheld=tuple(one.identity for one in changes.withheld),
    )


def _unreadable(file: FoundFile, exc: OSError) -> Failure:
    return Failure(file.identity, str(LOADING), exc)


def _names(files: tuple[ComparedFile, ...]) -> tuple[str, ...]:
    return tuple(one.file.identity for one in files)


def _note_misnamed(builder: Builder, listing: Listing) -> None:
    """Report keys of file_metadata that name no file: misspelt ones, most likely."""
    known = [file.identity for file in listing.found]
    builder.failures.misnamed.clear()
    for name in builder.dataset.unused_names(list(listing.found)):
        msg = f"file_metadata names a file that is not there. {known_names(name, known)}"
        failure = Failure(name, "metadata", ConfigError(msg))
        builder.failures.misnamed[name] = failure
        warn_user(f"{builder.where}: {failure}", IngestionWarning)


_BYTES_A_TOKEN = 3  # of the default counter


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a sync, as far as one can tell before.

    Args:
        step: What is done: ``"load"``, ``"transform <group>"``, ``"embed <group> with <embed key>"``, ...
        documents: For how many documents.
        nodes: About how many nodes it makes, embeds or indexes.
        tokens: About how many tokens they have together, counted as the default counter does.
        calls: About how many calls of a model that is: of an embed callable, one for each batch, at most; of a chat
            model, as many for each node as the transform's ``calls_per_node`` says.
    """

    step: str
    documents: int
    nodes: int
    tokens: int
    calls: int

    def __str__(self) -> str:
        calls = f", {self.calls} calls" if self.calls else ""
        return f"{self.step}: {self.documents} documents, about {self.nodes} nodes, {self.tokens} tokens{calls}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a sync would do.

    Args:
        files: What it would report of the files.
        steps: What it would do, in order. Numbers of nodes are those of other documents by the size of their texts,
            until something is made: only the loaders are called for a plan.
        unseen: What decides about results and no fingerprint sees: pairs (group, reader or embed key, what). Where it
            changes, nothing is made anew; ``version=`` or an attribute ``identity`` tells.
    """

    files: IngestReport
    steps: tuple[PlannedStep, ...]
    unseen: tuple[tuple[str, str], ...]

    @property
    def calls(self) -> int:
        """Calls of models, at most, as far as one can tell."""
        return sum(step.calls for step in self.steps)

    def __str__(self) -> str:
        lines = [str(self.files), *map(str, self.steps)]
        return "\n".join([*lines, *(f"not seen of {name}: {what}" for name, what in self.unseen)])


def make_plan(builder: Builder, max_deleted: float = MAX_DELETED) -> Plan:
    """Plan a sync; nothing is changed, no transform and no model is called."""
    compared = compare_files(builder, max_deleted)
    changes = compared.changes
    files = [one.file for one in itertools.chain(changes.added, changes.changed, changes.remarked)]
    with builder.loading.running(len(files)):
        tokens = _tokens(builder, files)
    size = sum(file.signature.size for file in files if file.signature is not None)
    loading = [PlannedStep(str(LOADING), len(files), len(files), tokens, 0)] if files else []
    steps = [*loading, *_steps(builder, len(files), size, tokens)]
    return Plan(would_report(compared), tuple(steps), tuple(_unseen(builder)))


def _tokens(builder: Builder, files: Sequence[FoundFile]) -> int:
    """How many tokens the texts of files have, as far as they can be loaded; a sync would report the others."""
    counter = token_counters["utf8"]
    total = 0
    for file in files:
        with suppress(LazyRAGError):
            total += counter.count(builder.loading.load(file).text)
    return total


def _steps(builder: Builder, documents: int, size: int, tokens: int) -> Iterator[PlannedStep]:
    """What is done for so many files, of so many bytes and tokens together, and where a definition has changed."""
    tree, definitions = builder.ledger.tree, builder.definitions
    known = _size(builder)
    share = size / known if known else 0.0
    names = [name for name in tree.groups if name != LAZY_ROOT_NAME and definitions.is_defined(name)]
    for name in sorted(names, key=lambda one: (len(definitions.line(one)), one)):
        group = tree.groups[name]
        again = 0.0 if definitions.is_current(group) else 1.0
        count = documents + round(again * len(group.builds))
        if not count:
            continue
        live = sum(build.size for build in group.builds.values())
        nodes = max(documents, math.ceil((share + again) * live))
        weight = tokens + round(again * known / _BYTES_A_TOKEN)
        above = tree.groups.get(str(group.parent))
        parents = sum(build.size for build in above.builds.values()) if above is not None else 0
        per_node = getattr(definitions.line(name)[0].given, "calls_per_node", 0)
        calls = per_node * max(documents, math.ceil((share + again) * parents))
        yield PlannedStep(str(Step(name)), count, nodes, weight, calls)
        for space in group.spaces.values():
            yield PlannedStep(str(step_of(name, space)), count, nodes, weight, _calls(builder, space, nodes))


def _size(builder: Builder) -> int:
    """How many bytes the files of the live documents have together."""
    rows = builder.ledger.documents.all().values()
    return sum(row.signature.size for row in rows if row.status == "live" and row.signature is not None)


def _calls(builder: Builder, space: LiveSpace, nodes: int) -> int:
    embedder = builder.embedders.get(space.name) if space.kind == "vectors" else None
    return 0 if embedder is None else -(-nodes // batch_size_of(embedder.embedder, 1))


def _unseen(builder: Builder) -> Iterator[tuple[str, str]]:
    for reader in builder.loading.readers.all():
        if reader.version is None:
            name = f"reader {reader.pattern}"
            yield from ((name, f"{what} ({type(held).__name__})") for what, held in reader.fingerprint.unseen)
    for name in builder.graph:
        if builder.definitions.is_defined(name):
            definition = builder.definitions.line(name)[0]
            if definition.version is None:
                yield from ((name, f"{what} ({type(held).__name__})") for what, held in definition.fingerprint.unseen)
    for key, embedder in builder.embedders.items():
        if not embedder.embedder.identity:
            yield key, "which model its embed callable asks (its name and code are seen)"


def sync(
    builder: Builder, *, max_deleted: float = MAX_DELETED, raises: bool = False, wait_s: float = 30.0
) -> IngestReport:
    """Bring in what changed, and try once more whatever failed or is not there of what was asked for.

    Raises:
        DatasetPathError: If the dataset's folder cannot be listed.
        IngestionError: If every file failed, or if one did and ``raises`` is set.
        StoreBusyError: If another program writes.
    """
    with builder.writing(wait_s):
        builder.has_synced()
        report = synchronise(builder, max_deleted=max_deleted, raises=raises)
        builder.retry()
    return report_of(builder) or report


def would_sync(builder: Builder, *, max_deleted: float = MAX_DELETED) -> IngestReport:
    """What a sync would report, as far as files tell; nothing is changed, and nothing loaded."""
    return would_report(compare_files(builder, max_deleted))


def retry_failed(builder: Builder) -> IngestReport:
    """Try once more whatever failed; what fails again stands in the report, and nothing is raised.

    Returns:
        What became of every file, before and now.
    """
    before = builder.report or IngestReport()
    with suppress(IngestionError):  # the report names what failed
        sync(builder)
    now = builder.report or IngestReport()
    added = {*before.added, *now.added} - {*now.deleted, *(old for old, _ in now.moved)}
    updated = {*before.updated, *now.updated} - {*now.deleted} - added
    builder.report = replace(
        now,
        added=tuple(sorted(added)),
        updated=tuple(sorted(updated)),
        unchanged=tuple(one for one in now.unchanged if one not in added | updated),
    )
    return report_of(builder) or now


def add_files(
    builder: Builder,
    files: Sequence[PathLike] | Mapping[str, PathLike],
    metadata: Mapping[str, Mapping[str, Any]] | None,
) -> IngestReport:
    """Take in single files, whether they are new, changed or were deleted before.

    Raises:
        ConfigError: If files or metadata are none.
        DatasetPathError: If a path is not there.
        StoreBusyError: If another program writes.
    """
    found = [_within(builder, file) for file in named_files(files, "files")]
    said = _metadata_of(metadata, [file.identity for file in found])
    with builder.writing():
        builder.open_root()
        rows = builder.ledger.documents.all()
        told, mark = marker(builder)
        works = []
        for file in found:
            known = rows.get(file.identity)
            base = known or DocumentRow(0, root_uid(file.identity), file.identity)
            in_dataset = bool(builder.dataset.lies_in(file.path))
            before = json.loads(base.updates) if base.status == "live" else {}
            seen_ns, looked_at = time.time_ns(), replace(file, signature=signature_of(file.path))
            row = replace(
                base,
                origin="dataset" if in_dataset else "file",
                signature=looked_at.signature,
                seen_ns=seen_ns,
                content_hash=_hash(file.path),
                mark=mark(file) if in_dataset else "",
                updates=json.dumps({**before, **said.get(file.identity, {})}),
            )
            works.append(Work(row, _make_file(builder, looked_at, row, told.get(file.identity, {}))))
        return _brought(builder, works, rows)


def add_texts(
    builder: Builder, texts: Mapping[str, str], metadata: Mapping[str, Mapping[str, Any]] | None
) -> IngestReport:
    """Take in texts under ids of the user's own; a text of a known id takes its place.

    Raises:
        ConfigError: If texts or metadata are none, or an id is that of a file.
        StoreBusyError: If another program writes.
    """
    if not isinstance(texts, Mapping) or not all(isinstance(one, str) for pair in texts.items() for one in pair):
        msg = f"add_texts got {texts!r:.60}; give a mapping of ids of your own to texts."
        raise ConfigError(msg)
    blank = [name for name, text in texts.items() if not name.strip() or not text.strip()]
    if blank:
        msg = f"add_texts got a blank text or id: {blank[0]!r}. Give ids and texts that are not blank."
        raise ConfigError(msg)
    said = _metadata_of(metadata, list(texts))
    with builder.writing():
        builder.open_root()
        rows = builder.ledger.documents.all()
        files = [name for name in texts if name in rows and rows[name].origin != "text" and rows[name].status == "live"]
        if files:
            msg = f"add_texts got the id {files[0]!r}, which is that of a file. Choose another id."
            raise ConfigError(msg)
        today = time.strftime("%Y-%m-%d")
        works = []
        for name, text in texts.items():
            known = rows.get(name)
            base = known or DocumentRow(0, root_uid(name), name)
            row = replace(
                base,
                origin="text",
                signature=None,
                seen_ns=0,
                content_hash="",
                mark="",
                loaded="{}",
                said=json.dumps(dict(check_metadata(said.get(name, {})))),
                updates=base.updates if base.status == "live" else "{}",
            )
            works.append(Work(row, _make_text(builder, row, text, today)))
        return _brought(builder, works, rows)


def delete_files(builder: Builder, identities: Iterable[str]) -> IngestReport:
    """Let go of documents. What lies in the dataset's folder stays away until it is added again.

    Raises:
        ConfigError: If a name is that of no document.
        StoreBusyError: If another program writes.
    """
    names = _identity_list(identities)
    with builder.writing():
        rows = builder.ledger.documents.all()
        live = {name: row for name, row in rows.items() if row.status == "live"}
        _check_known(names, live)
        for status, kinds in (("excluded", {"dataset"}), ("deleted", {"file", "text"})):
            ids = [live[name].id for name in names if live[name].origin in kinds]
            if ids:
                builder.ledger.documents.tombstone(ids, "excluded" if status == "excluded" else "deleted")
        builder.purge()
    return IngestReport(deleted=tuple(sorted(names)))


def update_metadata(builder: Builder, changes: Mapping[str, Mapping[str, Any]]) -> IngestReport:
    """Change what documents' metadata say; None takes a name back. Nothing is loaded or embedded for it.

    Raises:
        ConfigError: If a name is that of no document, a field is built in, or a value cannot be kept.
        StoreBusyError: If another program writes.
    """
    if not isinstance(changes, Mapping):
        msg = f"update_metadata got {changes!r:.60}; give a mapping of files or ids to metadata."
        raise ConfigError(msg)
    said = _metadata_of(changes, list(changes))
    with builder.writing():
        builder.open_root()
        rows = builder.ledger.documents.all()
        live = {name: row for name, row in rows.items() if row.status == "live"}
        _check_known(list(changes), live)
        roots = builder.ledger.tree.groups[LAZY_ROOT_NAME]
        works = []
        for name, changed in said.items():
            merged = {**json.loads(live[name].updates), **changed}
            kept = {key: value for key, value in merged.items() if value is not None}
            row = replace(live[name], updates=json.dumps(kept))
            works.append(Work(row, _make_renewed(builder, roots.builds[row.uid].document, row)))
        return _brought(builder, works, rows)


def _brought(builder: Builder, works: list[Work], rows: Mapping[str, DocumentRow]) -> IngestReport:
    """Bring single documents in, and tell what became of them."""
    works.sort(key=lambda work: work.row.identity)
    names = {work.row.identity for work in works}
    builder.failures.forget(lambda _, identity: identity in names)
    targets = builder.targets.of_live()
    done = builder.bringer.bring(works, targets, "add", len(works))
    try:
        for step in sorted({LOADING, *builder.failures.steps()}, key=str):
            builder.failures.check(step, builder.count_done(step, targets))
    except IngestionError as exc:  # nobody has asked anything yet
        warn_user(sentence(exc.__cause__ or exc), IngestionWarning)
    builder.purge()
    live = {name for name, row in rows.items() if row.status == "live"}
    renewed = [one.identity for one in done if one.flipped and one.is_new_version]
    return IngestReport(
        added=tuple(name for name in renewed if name not in live),
        updated=tuple(name for name in renewed if name in live),
        unchanged=tuple(one.identity for one in done if one.flipped and not one.is_new_version),
        failed=tuple(failure for failure in builder.failures if failure.path in names),
    )


def _make_file(
    builder: Builder, file: FoundFile, row: DocumentRow, said: Mapping[str, Any] | LazyRAGError
) -> Callable[[int], Root]:
    def make(build: int) -> Root:
        if isinstance(said, LazyRAGError):
            raise said
        return file_root(builder.loading.load, file, row, said, builder.nodes.schema, build)

    return make


def _make_text(builder: Builder, row: DocumentRow, text: str, today: str) -> Callable[[int], Root]:
    built_in = {
        "file_name": row.identity,
        "file_type": "text/plain",
        "file_size": len(text.encode("utf-8", "surrogatepass")),
        "creation_date": today,
        "last_modified_date": today,
        "last_accessed_date": today,
    }
    return lambda build: text_root(row, text, built_in, builder.nodes.schema, build)


def _make_renewed(builder: Builder, document: str, row: DocumentRow) -> Callable[[int], Root]:
    roots = builder.ledger.tree.groups[LAZY_ROOT_NAME]

    def make(build: int) -> Root:
        segment = builder.stored_root(roots.collection, roots.builds[document])
        return renewed_root(segment, row, builder.nodes.schema, build)

    return make


def _within(builder: Builder, file: FoundFile) -> FoundFile:
    """A file under the identity that it has in the dataset, if it lies there."""
    identity = builder.dataset.lies_in(file.path)
    return replace(file, identity=identity) if identity else file


def _hash(path: Path) -> str:
    try:
        return hash_file(path)
    except OSError:
        return ""  # loading it says why


def _metadata_of(metadata: Any, names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        msg = f"metadata is {metadata!r:.60}; give a mapping of files or ids to metadata."
        raise ConfigError(msg)
    for name, said in metadata.items():
        if not isinstance(name, str):
            msg = f"metadata has the key {name!r}; keys are files or ids."
            raise ConfigError(msg)
        if name not in names:
            msg = f"metadata names {name!r}, which is not among what is added. {known_names(str(name), names)}"
            raise ConfigError(msg)
        if not isinstance(said, Mapping):
            msg = f"The metadata of {name!r} is {said!r:.60}; give a mapping of names to values."
            raise ConfigError(msg)
        built_in = [key for key in said if key in BUILT_IN_FIELDS]
        if built_in:
            msg = f"The metadata of {name!r} gives {built_in[0]!r}, which is built in. Use another name."
            raise ConfigError(msg)
        check_metadata(said)
    return dict(metadata)


def _identity_list(identities: Any) -> list[str]:
    if isinstance(identities, (str, os.PathLike)) or not isinstance(identities, Iterable):
        msg = f"Got {identities!r}; give a list of files (paths relative to the dataset) or ids."
        raise ConfigError(msg)
    names = list(identities)
    strange = [name for name in names if not isinstance(name, (str, os.PathLike))]
    if strange:
        msg = f"Got {strange[0]!r} in a list of documents; they are paths relative to the dataset, or ids."
        raise ConfigError(msg)
    return list(dict.fromkeys(map(os.fspath, names)))


def _check_known(names: Sequence[str], live: Mapping[str, DocumentRow]) -> None:
    unknown = [name for name in names if name not in live]
    if unknown:
        msg = f"There is no document {unknown[0]!r}. {known_names(unknown[0], list(live)[:50])}"
        raise ConfigError(msg)


@dataclass(frozen=True, slots=True)
class DocumentVersion:
    """One state of a document.

    Args:
        document: Its path relative to the dataset, or the id a user gave.
        number: From 1, one more with each change.
        created_at: When it became live, in UTC.
        is_live: Whether it is the one that readers see.
    """

    document: str
    number: int
    created_at: dt.datetime
    is_live: bool


def versions_of(builder: Builder, identity: str) -> list[DocumentVersion]:
    """The versions of a document that are kept, oldest first.

    Raises:
        ConfigError: If there is no such document.
    """
    row = _row(builder, identity)
    return [
        DocumentVersion(
            identity, one.number, dt.datetime.fromtimestamp(one.created_at, dt.timezone.utc), one.number == row.version
        )
        for one in builder.ledger.documents.versions(row.id)
    ]


def roll_back(builder: Builder, identity: str, number: int | None) -> DocumentVersion:
    """Make an earlier version of a document live again, until its file changes.

    Its nodes are still in the stores, those of groups that were built or redefined since are made of its text.

    Raises:
        ConfigError: If there is no such document, or the version is not kept.
        IngestionError: If a group cannot be made of it.
    """
    with builder.writing():
        builder.open_root()
        row = _row(builder, identity)
        kept = builder.ledger.documents.versions(row.id)
        wanted = _wanted(identity, row, kept, number)
        # The row keeps what is known of the file: as long as that does not change, a sync finds nothing to do.
        changed = replace(row, loaded=wanted.loaded, said=wanted.said, updates=wanted.updates)
        work = Work(changed, _make(builder, changed, wanted))
        work.version_hash = wanted.content_hash
        builder.bringer.bring([work], builder.targets.of_live(), "roll back", 1)
        if not work.flipped:
            step, error = next(iter(work.failures.items()))
            msg = f"{identity!r} cannot be rolled back to version {wanted.number}: to {step} failed: {sentence(error)}"
            raise IngestionError(msg) from error
        builder.purge()
    return versions_of(builder, identity)[-1]


def _wanted(identity: str, row: DocumentRow, kept: list[Version], number: int | None) -> Version:
    before = [one for one in kept if one.number < row.version]
    found = [one for one in before if number is None or one.number == number]
    if not found:
        told = ", ".join(str(one.number) for one in before) or "none"
        asked = "an earlier version" if number is None else f"version {number!r}"
        msg = (
            f"{identity!r} cannot go back to {asked}: it is not kept. The live one is {row.version}; kept before it: "
            f"{told}. Document(keep_versions=n) keeps n."
        )
        raise ConfigError(msg)
    return found[-1]


def _make(builder: Builder, row: DocumentRow, wanted: Version) -> Callable[[int], Root]:
    def make(build: int) -> Root:
        root = builder.ledger.builds.with_parents([wanted.root])[wanted.root]
        collection = builder.ledger.tree.groups[LAZY_ROOT_NAME].collection
        return Root(builder.stored_root(collection, root)._replace(build=build), row)

    return make


def _row(builder: Builder, identity: str) -> DocumentRow:
    live = {name: row for name, row in builder.ledger.documents.all().items() if row.status == "live"}
    if identity not in live:
        msg = f"There is no document {identity!r}. {known_names(str(identity), list(live)[:50])}"
        raise ConfigError(msg)
    return live[identity]
