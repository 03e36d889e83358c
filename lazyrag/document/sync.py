"""Keeping a Document in step with its files: what changed since the last time, and bringing that in."""

from __future__ import annotations

import functools
import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lazyrag.data.segment import EMPTY, LAZY_ROOT_NAME, digest, root_uid
from lazyrag.document.builder import Builder
from lazyrag.document.changes import Changes, ComparedFile, KnownFile, compare
from lazyrag.document.ledger.rows import DocumentRow
from lazyrag.document.ledger.tree import LiveGroup
from lazyrag.document.readers import loader_identities
from lazyrag.document.report import Failure, IngestReport
from lazyrag.document.roots import file_root, renewed_root
from lazyrag.document.step import LOADING
from lazyrag.document.work import MakeRoot, Outcome, Root, Targets, Work
from lazyrag.errors import (
    ConfigError,
    IngestionWarning,
    LazyRAGError,
    LoadError,
    StoreError,
    known_names,
    warn_user,
)
from lazyrag.loaders.directory import FoundFile, Listing, hash_file

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
