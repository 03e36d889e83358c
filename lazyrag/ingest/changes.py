"""Ingest what changed in the files of a dataset: compare them with the ledger, load, report."""

from __future__ import annotations

import functools
import heapq
import itertools
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, NoReturn, TypeAlias, cast

from lazyrag.data.segment import (
    EMPTY,
    LAZY_ROOT_NAME,
    check_metadata,
    content_text,
    digest,
    root_uid,
)
from lazyrag.errors import (
    ConfigError,
    IngestionWarning,
    LazyRAGError,
    LoaderEndedError,
    LoadError,
    StoreError,
    known_names,
    warn_user,
)
from lazyrag.groups.node_group import LOADING, TEXT_MARK, model_identity
from lazyrag.ingest.dataset import (
    Changes,
    ComparedFile,
    KnownFile,
    compare,
    is_of_store,
    pair_by_identity,
)
from lazyrag.ingest.indexer import Indexer
from lazyrag.ingest.load_files import loader_identities
from lazyrag.ingest.pending import MakeRoot, Outcome, PendingVersion, Root, file_root, renewed_root
from lazyrag.ingest.plan import BuildPlan
from lazyrag.ingest.report import Failure, IngestReport, is_skip, pages, skip_reasons
from lazyrag.ledger.tables import DocumentRow, DocumentRows, new_row
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.directory import (
    STORE_FOLDER,
    FoundFile,
    Listing,
    RemotePath,
    day_of,
    hash_file,
    signature_of,
)
from lazyrag.loaders.remote import hash_remote, local_copy
from lazyrag.progress.calls import ProgressTask, raise_if_canceled
from lazyrag.storage.database import batches_reaching
from lazyrag.types import Metadata, PathReasons
from lazyrag.validation import normal_name

_CACHED_DAYS = 90  # that unused vectors of superseded texts are cached
# root nodes that are read at once
_READ = 256
_READ_BYTES = 8 * 2**20
_IDENTITY = attrgetter("file.identity")
UserMetadata: TypeAlias = "Mapping[str, Any] | LazyRAGError"
"""Metadata that the user gave for a file, or the error that asking for it raised."""

MAX_DELETED = 0.5
"""Share of the known files that may disappear at once before their deletion has to be confirmed."""


def ingest_changes(
    indexer: Indexer,
    *,
    max_deleted: float = MAX_DELETED,
    stop: bool = False,
    repairs: bool = True,
    retry: bool = False,
) -> IngestReport:
    """Ingest what changed in the dataset. The caller holds the lease.

    Args:
        indexer: The Document's indexer.
        max_deleted: Share of the known files that may disappear at once.
        stop: Raise the first failure instead of reporting all of them.
        repairs: Rebuild first what a store on this machine has lost.
        retry: Read files again that ended their loader.

    Raises:
        DatasetPathError: If the dataset's folder cannot be listed.
        IngestionError: If every file failed, or if one did and ``stop`` is set.
    """
    if indexer.dataset.is_chosen:
        indexer.dataset.store_selection(indexer.dataset.selection)
    repaired = indexer.repair() if repairs else ()
    indexer.rebuilt.clear()
    indexer.ensure_root()
    indexer.failures.forget(lambda _step, _identity: True)
    comparison = compare_files(indexer, max_deleted)
    _warn_of_unknown_names(indexer, comparison)
    _delete_missing(indexer, comparison)
    for failure in _file_failures(indexer, comparison):
        indexer.failures.add(LOADING, failure.path, failure.error)
    plan = indexer.planner.plan_first(indexer.first_steps)
    if indexer.first_steps:
        indexer.discard_old_failures([group.id for group in plan.groups], plan)
    quarantined = {} if retry else indexer.ledger.documents.quarantined()
    versions, count = _pending_versions(indexer, comparison, plan, quarantined)
    outcomes = indexer.engine.ingest(versions, plan, "sync", count, stop=stop)
    skipped = {name for name, _ in indexer.failures.skipped()}
    report = _final_report(indexer, comparison, outcomes, skipped)
    indexer.report = replace(report, repaired=repaired)
    _record_failures(indexer)
    indexer.purge()
    with suppress(StoreError):  # the next sync tries again
        evict_superseded(indexer, _CACHED_DAYS)
    if comparison.skipped and not comparison.has_files:
        why = str(indexer.report).replace("\n ", ";")
        warn_user(f"{indexer.where} has no files to ingest: {why}.", IngestionWarning)
    warn_of_failures(indexer, plan)
    return indexer.report


def _delete_missing(indexer: Indexer, comparison: FileComparison) -> None:
    """Hide the documents of missing files; warn if there are too many to be deleted."""
    changes = comparison.changes
    if changes.deleted:
        numbers = [comparison.rows[file.identity].id for file in changes.deleted]
        indexer.ledger.documents.tombstone(numbers, "deleted")
    if changes.withheld:
        missing = len(changes.withheld)
        known = sum(map(_is_of_dataset, comparison.rows.values()))
        count = known + len(comparison.settled)
        msg = (
            f"{missing} of {count} files are missing from {indexer.where}, which may be a mistake."
            " Their documents are kept; call sync(max_deleted=1) to delete them."
        )
        warn_user(msg, IngestionWarning)


def _record_failures(indexer: Indexer) -> None:
    """Replace the ledger's failures with those of this sync; those of files that it did not try
    stay: added ones, and files of a dataset that this Document was opened without.
    """
    documents = indexer.ledger.documents
    stages = {identity: stage for identity, stage, *_ in documents.failures()}
    untried = {row.identity for row in documents.named(stages).values() if row.origin != "dataset"}
    if not indexer.dataset.is_given:
        untried = {*stages}
    tried = [name for name in stages if name not in untried or stages[name] != str(LOADING)]
    rows = [(failure.path, failure.stage, failure.error) for failure in indexer.failures]
    documents.set_failures(tried, rows)


def ingest_missing(indexer: Indexer) -> None:
    """Build what live documents lack of the live groups and indexes."""
    plan = indexer.planner.plan_live()
    rows = _incomplete_documents(indexer, plan)
    indexer.engine.ingest(map(PendingVersion, rows), plan, "rebuild", len(rows))


def warn_of_failures(indexer: Indexer, plan: BuildPlan) -> None:
    """Warn of new failures, by step.

    Raises:
        IngestionError: If every document failed in a step.
    """
    for step in sorted({LOADING, *indexer.failures.steps()}, key=str):
        indexer.failures.warn_or_raise(step, functools.partial(indexer.count_done, step, plan))


def _warn_of_unknown_names(indexer: Indexer, comparison: FileComparison) -> None:
    """Report keys of file_metadata that match no file."""
    indexer.failures.misnamed.clear()
    for failure in _unknown_names(indexer, comparison):
        indexer.failures.misnamed[failure.path] = failure
        warn_user(f"{indexer.where}: {failure}", IngestionWarning)


def _unknown_names(indexer: Indexer, comparison: FileComparison) -> list[Failure]:
    """Return keys of file_metadata that match no file: probably misspelt."""
    if not comparison.unmatched:
        return []
    names = [file.identity for file in indexer.dataset.list_files().files]
    failures = []
    for name in comparison.unmatched:
        msg = f"file_metadata names a file that does not exist. {known_names(name, names)}"
        failures.append(Failure(name, "metadata", ConfigError(msg)))
    return failures


def evict_superseded(indexer: Indexer, unused_days: int = 0) -> None:
    """Delete cached vectors of superseded texts and models that were not used for so many days."""
    if indexer.cache is None:
        return
    plan = indexer.planner.plan_live()
    field_models = {target.identity for target in plan.vectors if target.text.is_fields}
    content_models = []
    other_models = set()
    for ledger, collection, model in indexer.ledger.groups.models():
        if ledger != indexer.ledger.id or (TEXT_MARK in model and model not in field_models):
            other_models.add(model_identity(model))
        elif TEXT_MARK not in model:
            content_models.append((collection, model))
    contents = _embedded_contents(indexer, content_models)
    indexed_texts = indexer.engine.indexed_texts(plan)
    fields = ((model_identity(model), texts) for model, texts in indexed_texts)
    indexer.cache.retain(itertools.chain(contents, fields), other_models, unused_days=unused_days)


def _embedded_contents(
    indexer: Indexer, models: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, list[str]]]:
    """Yield the identity of each model with the texts that it embeds, in pages."""
    for collection, model in models:
        for segments in pages(functools.partial(indexer.nodes.segments.scan, collection)):
            yield model, [content_text(segment.content) for segment in segments]


# Comparing files with the ledger


@dataclass(slots=True)
class FileComparison:
    """The dataset's files compared with the ledger.

    Args:
        listing: The listing, after an iteration over its files.
        changes: The kind of change of each file that is not settled.
        rows: The ledger's documents of these and of missing files, by identity.
        settled: Identities of files for which nothing is to be done, in order.
        skipped: Pairs (identity, reason) of skipped files.
        metadata: User metadata of the files that have some, by identity; without settled ones.
        reasons: Why known files are done again, by identity; see `IngestReport`.
        unmatched: Keys of file_metadata that match no file.
        has_files: Whether the dataset has any file that is not skipped by name.
    """

    listing: Listing
    changes: Changes
    rows: DocumentRows = field(default_factory=dict)
    settled: Sequence[str] = ()
    skipped: PathReasons = ()
    metadata: dict[str, UserMetadata] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    unmatched: Collection[str] = ()
    has_files: bool = False

    def row_of(self, file: ComparedFile, base: DocumentRow | None = None) -> DocumentRow:
        """Return the row of a file as it is now, based on its document's row before."""
        return replace(
            base or self.rows.get(file.identity) or new_row(file.identity),
            origin="dataset",
            signature=file.file.signature,
            seen_ns=self.listing.seen_ns,
            content_hash=file.content_hash,
            config_hash=file.config_hash,
        )


def compare_files(indexer: Indexer, max_deleted: float = MAX_DELETED) -> FileComparison:
    """List the files and compare them with the ledger; changes nothing.

    Raises:
        DatasetPathError: If the dataset's folder cannot be listed.
    """
    listing = indexer.dataset.list_files()
    known = indexer.ledger.documents.in_order() if indexer.dataset.is_given else ()
    unsettled = _UnsettledFiles(indexer)
    for _, file, row in pair_by_identity(listing.files, known):
        if file is not None:
            unsettled.add(file, row)
        elif row is not None:
            unsettled.add_missing(row)
    files = unsettled.without_skipped()
    selected = []
    unselected = []  # by choice, so never withheld
    for known_file in unsettled.known_files():
        if listing.leaves_out(known_file.identity):
            unselected.append(known_file)
        else:
            selected.append(known_file)
    with ProgressTask("compare", len(files), "file") as work:
        changes = compare(
            files,
            selected,
            unlisted=listing.unreadable,
            content_hash=lambda file: (
                hash_remote(file) if isinstance(file.raw_path, RemotePath) else hash_file(file.path)
            ),
            config_hash=work.counted(unsettled.hash_config),
            max_deleted=max_deleted,
            settled=len(unsettled.settled),
        )
    changes = replace(changes, deleted=(*changes.deleted, *unselected))
    return FileComparison(
        listing,
        changes,
        unsettled.rows,
        unsettled.settled,
        tuple(sorted([*listing.skipped, *unsettled.skipped])),
        unsettled.metadata,
        unmatched=unsettled.unmatched,
        has_files=bool(files or unsettled.settled or unsettled.skipped),
    )


class _UnsettledFiles:
    """The files and documents that are to be compared.

    Most files are as the last sync left them: of these, only the names stay in memory.

    Args:
        indexer: The Document's indexer.
    """

    def __init__(self, indexer: Indexer) -> None:
        self.rows: dict[str, DocumentRow] = {}
        self.settled: list[str] = []
        self.skipped: list[tuple[str, str]] = []
        self.metadata, self.hash_config = user_config(indexer)
        metadata = indexer.dataset.metadata
        self.unmatched = dict.fromkeys(metadata if isinstance(metadata, Mapping) else ())
        self._files: list[FoundFile] = []
        self._skipped_names: dict[str, str] = {}  # by documents whose names are not in NFC
        self._lost = _lost_roots(indexer)
        self._store = os.fspath(indexer.ledger.file.path or "")

    def add(self, file: FoundFile, row: DocumentRow | None) -> None:
        """Add a file with its document; None for none."""
        self.unmatched.pop(file.identity, None)
        reason = self._reason_to_skip(file, row)
        if reason:
            self.skipped.append((file.identity, reason))
        elif row is not None and self._is_settled(file, row):
            self.settled.append(file.identity)
            self.metadata.pop(file.identity, None)
        else:
            self._files.append(file)
            if row is not None:
                self.rows[row.identity] = row

    def add_missing(self, row: DocumentRow) -> None:
        """Add a document without a file."""
        if _is_of_dataset(row):
            self.rows[row.identity] = row
        name = normal_name(row.identity)
        reason = _reason_by_name(row)
        if reason and name != row.identity:
            self._skipped_names[name] = reason

    def _reason_to_skip(self, file: FoundFile, row: DocumentRow | None) -> str:
        """Return why a file is skipped; "" if it is not."""
        if is_of_store(os.fspath(file.raw_path), self._store):
            return "the store's own file"
        if row is None:
            return ""
        if row.status != "skipped":
            return _reason_by_name(row)
        if row.signature != file.signature or row.config_hash != self.hash_config(file):
            return ""
        is_racy = _known_file(row, ()).racy
        if is_racy and hash_if_readable(file) != row.content_hash:
            return ""
        return str(json.loads(row.loaded)["skipped"])

    def _is_settled(self, file: FoundFile, row: DocumentRow) -> bool:
        if not _is_of_dataset(row) or not _known_file(row, self._lost).matches(file):
            return False
        return self.hash_config(file) == row.config_hash

    def without_skipped(self) -> list[FoundFile]:
        """Return the files to compare, without those that are skipped by their names in another
        normal form.
        """
        files = []
        for file in self._files:
            if file.identity in self._skipped_names:
                self.skipped.append((file.identity, self._skipped_names[file.identity]))
            else:
                files.append(file)
        return files

    def known_files(self) -> list[KnownFile]:
        """Return the files of the dataset's live documents."""
        return [_known_file(row, self._lost) for row in self.rows.values() if _is_of_dataset(row)]


def _is_of_dataset(row: DocumentRow) -> bool:
    return row.status == "live" and row.origin == "dataset"


def _reason_by_name(row: DocumentRow) -> str:
    """Return why files of a document's name are skipped; "" if they are not."""
    if row.status == "excluded":
        return "deleted by delete_files"
    if row.status == "live" and row.origin != "dataset":
        return "its name is that of a document that was added singly"
    return ""


def _lost_roots(indexer: Indexer) -> Collection[int]:
    """Return rows of the live documents without a root node."""
    root = indexer.ledger.tree.groups.get(LAZY_ROOT_NAME)
    if not indexer.dataset.is_given:
        return ()  # no file is compared
    if root is not None and root.documents == indexer.ledger.documents.count_live():
        return ()
    return indexer.ledger.builds.missing(0 if root is None else root.id)


def _known_file(row: DocumentRow, lost: Collection[int]) -> KnownFile:
    """Return the file as the ledger knows it; without its content if it has to be loaded again in
    any case, as those of lost documents.
    """
    changed_while_read = row.signature is None and row.seen_ns >= 0
    if changed_while_read or row.id in lost:
        return KnownFile(row.identity, None, "", 0, row.config_hash)
    return KnownFile(row.identity, row.signature, row.content_hash, row.seen_ns, row.config_hash)


def user_config(indexer: Indexer) -> tuple[dict[str, UserMetadata], Callable[[FoundFile], str]]:
    """Return the user metadata of files, by identity, and a function that hashes a file's loader
    and user metadata; the metadata is filled as the function is called.
    """
    metadata_of = {}
    identity_of = loader_identities(indexer.loading.readers)
    hash_of = functools.cache(lambda loader, text: digest([loader, text]))

    def config_hash(file: FoundFile) -> str:
        raise_if_canceled()  # every file is compared by it
        text = ""
        try:
            metadata: UserMetadata = indexer.dataset.metadata_of(file)
            if metadata:
                text = json.dumps(metadata, sort_keys=True, default=_json_default)
        except LazyRAGError as exc:
            metadata = exc
            text = f"failed: {exc}"
        if text:
            metadata_of[file.identity] = metadata
        return hash_of(identity_of(file), text)

    return metadata_of, config_hash


def _json_default(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else repr(value)


def hash_if_readable(file: FoundFile) -> str:
    """Return a file's hash; "" if it cannot be read."""
    try:
        return hash_file(file.path)
    except OSError:
        return ""  # loading reports it


# What is to be ingested


def _pending_versions(
    indexer: Indexer,
    comparison: FileComparison,
    plan: BuildPlan,
    quarantined: Mapping[str, tuple[str, str]],
) -> tuple[Iterator[PendingVersion], int]:
    """Return the documents to ingest, in order of identity, and their count; made lazily, as there
    may be many.
    """
    tree = indexer.ledger.tree  # as of now: ingestion changes it
    changes = comparison.changes
    rows = comparison.rows
    metadata = comparison.metadata
    touched = _store_dates(indexer, comparison)
    busy = _busy_names(changes, touched)
    incomplete = _incomplete_documents(indexer, plan, busy)
    comparison.reasons |= _find_reasons(comparison, incomplete)

    def load(file: ComparedFile) -> PendingVersion:
        """Load a new or changed file."""
        before = rows.get(file.identity)
        row = comparison.row_of(file)
        if before is not None and before.status != "live":
            row = replace(row, updates="{}")  # those of a deleted document
        return PendingVersion(row, load_root(indexer, file.file, row, metadata, quarantined))

    def touch(files: Iterable[ComparedFile]) -> Iterator[PendingVersion]:
        """Renew the dates of files; their content is the same."""
        for batch in batches_reaching(files, file_size, _READ_BYTES, most_items=_READ):
            new_rows = [comparison.row_of(file) for file in batch]
            builds = tree.builds_of(LAZY_ROOT_NAME, [row.uid for row in new_rows])
            collection = tree.groups[LAZY_ROOT_NAME].collection
            stored = indexer.stored_roots(collection, list(builds.values()))
            for file, row in zip(batch, new_rows, strict=True):
                if row.uid in stored:
                    make_root: MakeRoot = functools.partial(
                        renewed_root, stored[row.uid], row, indexer.nodes.schema, file=file.file
                    )
                else:  # it is damaged, but the file exists
                    make_root = load_root(indexer, file.file, row, metadata)
                yield PendingVersion(row, make_root)

    def move(file: ComparedFile) -> PendingVersion:
        """Give the document of a moved file its new path, without loading it if nothing else
        changed.
        """
        old_file = cast("KnownFile", file.before)
        before = rows[old_file.identity]
        has_failed = isinstance(metadata.get(file.identity), LazyRAGError)
        if has_failed or file.config_hash != old_file.config_hash:
            return replace(load(file), moved_from=before)
        row = replace(
            comparison.row_of(file, new_row(file.identity)),
            loaded=before.loaded,
            user_metadata=before.user_metadata,
            updates=before.updates,
        )
        return PendingVersion(row, indexer.renewed(before.uid, row, file.file), before)

    renamed = _renamed_documents(indexer)
    old_names = {
        version.moved_from.identity for version in renamed if version.moved_from is not None
    }
    incomplete = [row for row in incomplete if row.identity not in old_names]
    versions = heapq.merge(
        map(load, by_identity(changes.to_load)),
        touch(by_identity(touched)),
        map(move, by_identity(changes.moved)),
        map(PendingVersion, incomplete),
        renamed,
        key=lambda version: version.row.identity,
    )
    return versions, len(busy) + len(incomplete) + len(renamed)


def _store_dates(indexer: Indexer, comparison: FileComparison) -> list[ComparedFile]:
    """Return the touched files that are to be ingested again; store the signatures of the others.

    A rolled-back version stays until the file's content changes; and dates are days.
    """
    if not comparison.changes.touched:
        return []
    documents = indexer.ledger.documents
    rolled_back = documents.rolled_back()
    again = []
    new_rows = []
    for file in comparison.changes.touched:
        is_rolled_back = comparison.rows[file.identity].id in rolled_back
        if is_rolled_back or _has_same_dates(file, comparison.rows):
            new_rows.append(comparison.row_of(file))
        else:
            again.append(file)
    if new_rows:
        documents.note_files(new_rows)
    return again


def _renamed_documents(indexer: Indexer) -> list[PendingVersion]:
    """Give texts, and files outside of the dataset, of an earlier release their names in NFC; in
    order of these.
    """
    documents = indexer.ledger.documents
    versions: list[PendingVersion] = []
    for before in documents.rows(indexer.ledger.field_keys.with_other_names()):
        name = normal_name(before.identity)
        if documents.find(name) is None:
            row = replace(before, id=0, uid=root_uid(name), identity=name, version=0)
            make_root = indexer.renewed(before.uid, row)
            versions.append(PendingVersion(row, make_root, before))
    return sorted(versions, key=lambda version: version.row.identity)


def _has_same_dates(file: ComparedFile, rows: DocumentRows) -> bool:
    """Return whether a file with the same content has the dates that its document has."""
    before = rows[file.identity].signature
    now = file.file.signature
    # another file may have another creation date
    if before is None or now is None or before.inode != now.inode:
        return False
    return day_of(before.mtime_ns / 1e9) == day_of(now.mtime_ns / 1e9)


def file_size(file: ComparedFile) -> int:
    """Return a file's bytes; 0 if it cannot be read."""
    return file.file.signature.size if file.file.signature is not None else 0


def by_identity(files: Iterable[ComparedFile]) -> list[ComparedFile]:
    """Return files in order of identity."""
    return sorted(files, key=_IDENTITY)


def load_root(
    indexer: Indexer,
    file: FoundFile,
    row: DocumentRow,
    metadata: Mapping[str, UserMetadata],
    quarantined: Mapping[str, tuple[str, str]] = EMPTY,
) -> MakeRoot:
    """Return a function that loads a file into a root node, unless it is quarantined as it is."""
    key, message = quarantined.get(row.identity, ("", ""))
    if key == indexer.engine.quarantine_key(row):
        return functools.partial(_raise_quarantined, file, message)
    load = indexer.loading.load
    user_metadata = metadata.get(file.identity, EMPTY)
    make = remote_root if isinstance(file.raw_path, RemotePath) else file_root
    return functools.partial(make, load, file, row, user_metadata, indexer.nodes.schema)


def remote_root(
    load: Callable[[FoundFile], LoadedFile], file: FoundFile, row: DocumentRow, *arguments: Any
) -> Root:
    """`file_root` of a file of object storage, by a copy on this machine."""
    with local_copy(file) as (path, is_current):
        copy = FoundFile(file.identity, path, signature_of(path))
        try:
            root = file_root(load, copy, row, *arguments)
        except LoadError as exc:
            exc.path = os.fspath(file.raw_path)
            raise
    return root._replace(row=replace(root.row, signature=file.signature if is_current else None))


def _raise_quarantined(file: FoundFile, message: str, _build: int) -> NoReturn:
    """Fail as at the last try, without reading the file."""
    raise LoaderEndedError(message, path=str(file.path))


def _incomplete_documents(
    indexer: Indexer, plan: BuildPlan, busy: Collection[str] = ()
) -> list[DocumentRow]:
    """Return live documents that failed in a step before, or were written by a program without that
    step, in order of identity; what is busy is complete soon.
    """
    if not indexer.ledger.tree.document_count:
        return []
    missing = indexer.missing([group.id for group in plan.groups], plan)
    rows = [row for row in indexer.ledger.documents.rows(missing) if row.identity not in busy]
    return sorted(rows, key=lambda row: row.identity)


def _find_reasons(comparison: FileComparison, incomplete: Iterable[DocumentRow]) -> dict[str, str]:
    """Return why known files are done again."""
    changes = comparison.changes
    rows = comparison.rows
    reasons = {row.identity: "incomplete" for row in incomplete}
    for file in (*changes.added, *changes.changed):
        row = rows.get(file.identity)
        if row is None or row.status not in ("new", "live"):
            continue
        # An earlier failure; a root node, or all of it, that a store has lost.
        is_same = row.content_hash == file.content_hash and row.signature is not None
        is_incomplete = row.status == "new" or is_same or not row.content_hash
        reasons[row.identity] = "incomplete" if is_incomplete else "bytes"
    for file in changes.reconfigured:
        metadata = comparison.metadata.get(file.identity, EMPTY)
        stored = json.loads(rows[file.identity].user_metadata)
        is_same = not isinstance(metadata, LazyRAGError) and stored == _as_stored(metadata)
        reasons[file.identity] = "reader" if is_same else "metadata"
    for file in changes.touched:
        if not _has_same_dates(file, rows):
            reasons[file.identity] = "date"
    return reasons


def _as_stored(metadata: Metadata) -> Any:
    """Return metadata as the ledger returns them; None for those that cannot be stored."""
    try:
        return json.loads(json.dumps(dict(check_metadata(metadata))))
    except LazyRAGError:
        return None


# Reports


def _file_failures(indexer: Indexer, comparison: FileComparison) -> list[Failure]:
    """The failures of files that cannot be read, or have the name of another one."""
    failures = []
    for file, exc in comparison.changes.unreadable:
        msg = f"The file cannot be read ({exc.strerror}). Check its permissions."
        error = LoadError(msg, path=str(file.path))
        error.__cause__ = exc
        failures.append(Failure(file.identity, str(LOADING), error))
    if comparison.listing.clashes:
        failures += _clash_failures(indexer, comparison.listing)
    return failures


def _clash_failures(indexer: Indexer, listing: Listing) -> Iterator[Failure]:
    def name_of(file: FoundFile) -> str:
        return os.path.relpath(file.raw_path, indexer.dataset.folder).replace(os.sep, "/")

    for file, first in listing.clashes:
        name = name_of(file)
        msg = (
            f"The names {name!a} and {name_of(first)!a} differ only by their Unicode"
            " normal form. Rename one of the files."
        )
        yield Failure(name, str(LOADING), LoadError(msg, path=os.fspath(file.raw_path)))


def expected_report(
    indexer: Indexer, comparison: FileComparison, errors: Mapping[str, LazyRAGError] = EMPTY
) -> IngestReport:
    """Return what a sync would report if no step after loading failed.

    Args:
        indexer: Of the Document.
        comparison: Its files.
        errors: By identity, why files could not be loaded.
    """
    changes = comparison.changes
    failures = _file_failures(indexer, comparison)
    failures += [Failure(name, str(LOADING), error) for name, error in errors.items()]
    failures += _unknown_names(indexer, comparison)
    failed = [failure for failure in failures if not is_skip(failure)]
    skipped = dict(skip_reasons(failures))
    touched = [file for file in changes.touched if not _has_same_dates(file, comparison.rows)]
    busy = _busy_names(changes, touched)
    incomplete = []
    root = indexer.ledger.tree.groups.get(LAZY_ROOT_NAME)
    if root is not None and indexer.definitions.is_current(root):
        incomplete = _incomplete_documents(indexer, indexer.planner.plan_live(), busy)
    live = busy - errors.keys()
    failed.sort(key=lambda failure: (failure.path, failure.stage))
    return replace(
        _report_changes(comparison, busy, live, live, skipped),
        failed=tuple(failed),
        skipped=tuple(sorted({*comparison.skipped, *skipped.items()})),
        reasons=_find_reasons(comparison, incomplete),
    )


_STORED_INDEX = (
    "an index is stored here, and this Document is in memory: lazyrag.open(folder) uses it",
)


def _final_report(
    indexer: Indexer,
    comparison: FileComparison,
    outcomes: list[Outcome],
    skipped: Collection[str],
) -> IngestReport:
    ingested = [outcome.identity for outcome in outcomes]
    flipped = [outcome for outcome in outcomes if outcome.flipped]
    live = {outcome.identity for outcome in flipped}
    renewed = {outcome.identity for outcome in flipped if outcome.is_new_version}
    report = _report_changes(comparison, ingested, live, renewed, skipped)
    reasons = {name: comparison.reasons[name] for name in ingested if name in comparison.reasons}
    notes = notes_of(outcomes)
    folder = indexer.dataset.folder
    is_in_memory = indexer.ledger.file.path is None
    if folder is not None and is_in_memory and (folder / STORE_FOLDER / "config.json").is_file():
        notes = {STORE_FOLDER: _STORED_INDEX, **notes}
    return replace(report, reasons=reasons, notes=notes)


def _report_changes(
    comparison: FileComparison,
    ingested: Iterable[str],
    live: set[str],
    renewed: set[str],
    skipped: Collection[str],
) -> IngestReport:
    """Report on files by kind of change.

    Args:
        comparison: The files.
        ingested: Identities of the documents to ingest.
        live: Those that became live.
        renewed: Those that became live as a new version.
        skipped: Identities of files that are not ingested, and have not failed.
    """
    changes = comparison.changes
    added = _identities(changes.added)
    touched = _identities(changes.touched)
    again = {*_identities(changes.changed), *_identities(changes.reconfigured)}
    same = live.union(set(touched).difference(ingested)) - renewed
    unchanged = sorted([*_identities(changes.unchanged), *(same & again.union(touched))])
    deleted = [file.identity for file in changes.deleted]
    deleted += [old for old, new in changes.moves if new in skipped]
    return IngestReport(
        added=tuple(name for name in added if name in live),
        skipped=comparison.skipped,
        updated=tuple(sorted(again & renewed)),
        unchanged=tuple(heapq.merge(comparison.settled, unchanged)),
        deleted=tuple(sorted(deleted)),
        moved=tuple((old, new) for old, new in changes.moves if new in live),
        withheld=tuple(file.identity for file in changes.withheld),
        touched=tuple(name for name in touched if name in renewed),
    )


def notes_of(outcomes: Iterable[Outcome]) -> dict[str, tuple[str, ...]]:
    """Return what loaders noted of files that were read, by identity."""
    return {outcome.identity: outcome.notes for outcome in sorted(outcomes) if outcome.notes}


def _identities(files: Iterable[ComparedFile]) -> tuple[str, ...]:
    return tuple(map(_IDENTITY, files))


def _busy_names(changes: Changes, touched: Iterable[ComparedFile]) -> set[str]:
    """Return the identities of files that are ingested, with some of the touched ones."""
    return set(map(_IDENTITY, (*changes.to_load, *touched, *changes.moved)))
