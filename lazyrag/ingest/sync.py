"""Synchronise a Document with its files: plan, sync, single files and texts, versions."""

from __future__ import annotations

import functools
import heapq
import itertools
import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn, TypeAlias, cast, get_args

from lazyrag.data.segment import (
    EMPTY,
    LAZY_ROOT_NAME,
    Segment,
    check_metadata,
    content_text,
    digest,
    root_uid,
)
from lazyrag.errors import (
    CanceledError,
    ConfigError,
    IngestionError,
    IngestionWarning,
    LazyRAGError,
    LoaderEndedError,
    LoadError,
    NoReaderError,
    StoreError,
    TransformError,
    known_names,
    sentence,
    warn_user,
)
from lazyrag.groups.node_group import LOADING, TEXT_MARK, NodeGroup, Step, model_identity
from lazyrag.ingest.dataset import (
    Changes,
    ComparedFile,
    KnownFile,
    SettledFiles,
    compare,
    find_named_files,
    is_of_store,
    validate_user_metadata,
)
from lazyrag.ingest.dry_run import CALLED, PlannedFormat, merge_formats, plan_formats, with_error
from lazyrag.ingest.engine import (
    MakeRoot,
    Outcome,
    PendingVersion,
    Root,
    field_texts,
    file_root,
    renewed_root,
    text_root,
)
from lazyrag.ingest.indexer import Indexer, report_of
from lazyrag.ingest.load_files import NamedReader, loader_identities
from lazyrag.ingest.plan import BuildPlan, GroupTarget, index_step
from lazyrag.ingest.report import Failure, IngestReport, pages
from lazyrag.ledger.lease import WAIT_S
from lazyrag.ledger.ledger import DocumentRow, Status, Version
from lazyrag.ledger.tree import Build, LiveGroup
from lazyrag.loaders.base import is_built_in, loaders
from lazyrag.loaders.directory import FoundFile, Listing, day_of, hash_file, signature_of
from lazyrag.models.embedding import batch_size_of, is_embeddable
from lazyrag.progress.bar import Work
from lazyrag.progress.blocks import contextmanager
from lazyrag.progress.calls import ProgressMeter, raise_if_canceled
from lazyrag.read.versions import DocumentVersion, list_versions, live_rows
from lazyrag.storage.database import batches_reaching
from lazyrag.text.tokens import token_counters
from lazyrag.validation import (
    normal_name,
    require,
    validate_boolean,
    validate_choice,
    validate_integer,
    validate_number,
    with_normal_names,
)

OnError: TypeAlias = Literal["collect", "raise"]
_CACHED_DAYS = 90  # that unused vectors of superseded texts are cached
# root nodes that are read at once
_READ = 256
_READ_BYTES = 8 * 2**20
UserMetadata: TypeAlias = "Mapping[str, Any] | LazyRAGError"
"""Metadata that the user gave for a file, or the error that asking for it raised."""

MAX_DELETED = 0.5
"""Share of the known files that may disappear at once before their deletion has to be confirmed."""


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
    validate_choice("on_error", on_error, get_args(OnError))
    validate_number("wait_s", wait_s, "a number of seconds >= 0", lambda seconds: seconds >= 0)
    if validate_boolean("dry_run", dry_run):
        return _expected_report(indexer, compare_files(indexer, max_deleted))
    if max_calls is not None:
        refuse_calls(plan_sync(indexer, max_deleted).calls, max_calls)
    with indexer.writing(wait_s):
        indexer.is_synced = True
        if first is not None:
            first(indexer)
        report = ingest_changes(
            indexer, max_deleted=max_deleted, stop=on_error == "raise", retry=retry
        )
        indexer.retry()
    return report_of(indexer) or report


def refuse_calls(calls: int, max_calls: int) -> None:
    """Check that no more calls of models are planned than allowed."""
    allowed = validate_integer("max_calls", max_calls, 0)
    if calls > allowed:
        msg = (
            f"A sync would make about {calls} calls of models, and max_calls is {allowed}. Nothing"
            " was done."
        )
        raise ConfigError(f"{msg} plan() shows the calls; raise max_calls to allow them.")


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
    repaired = indexer.on_check() if repairs else ()
    begun = indexer.turns.begun
    indexer.rebuilt.clear()
    indexer.ensure_root()
    indexer.failures.forget(lambda _step, _identity: True)
    compared = compare_files(indexer, max_deleted)
    indexer.settled = None
    changes = compared.changes
    _report_unknown_names(indexer, compared.listing)
    if changes.deleted:
        rows = compared.rows
        indexer.ledger.documents.tombstone(
            [rows[one.identity].id for one in changes.deleted], "deleted"
        )
    if changes.withheld:
        known = (
            len(changes.withheld)
            + len(changes.unchanged)
            + len(changes.touched)
            + len(compared.settled)
        )
        msg = (
            f"{len(changes.withheld)} of {known} files are missing from {indexer.where}, which may"
            " be a mistake."
        )
        warn_user(
            f"{msg} Their documents are kept; call sync(max_deleted=1) to delete them.",
            IngestionWarning,
        )
    for failure in _unread(indexer, compared):
        indexer.failures.add(LOADING, failure.path, failure.error)
    plan = indexer.planner.plan_first(indexer.first_steps)
    if indexer.first_steps:
        indexer.discard_old_failures([one.id for one in plan.groups], plan)
    quarantined = {} if retry else indexer.ledger.documents.quarantined()
    versions, count = _pending_versions(indexer, compared, plan, quarantined)
    done = indexer.engine.ingest(versions, plan, "sync", count, stop=stop)
    skipped = {name for name, _ in indexer.failures.skipped()}
    indexer.report = replace(_final_report(compared, done, skipped), repaired=repaired)
    indexer.engine.record_failures()
    indexer.purge()
    with suppress(StoreError):  # the next sync tries again
        evict_superseded(indexer, _CACHED_DAYS)
    is_whole = not (
        changes.withheld or changes.unseen or changes.unreadable or list(indexer.failures)
    )
    if is_whole and begun == indexer.turns.begun:  # else others have changed documents meanwhile
        unchanged = {one.file.identity: one.file for one in changes.unchanged}
        others = {one.file.identity for one in (*changes.added, *changes.moved, *changes.changed)}
        others |= {one.file.identity for one in (*changes.reconfigured, *changes.touched)}
        indexer.settled = SettledFiles({**compared.settled, **unchanged}, others, _basis(indexer))
    if not compared.listing.found and compared.listing.skipped:
        why = str(indexer.report).replace("\n ", ";")
        warn_user(f"{indexer.where} has no files to ingest: {why}.", IngestionWarning)
    _warn_of_failures(indexer, plan)
    return indexer.report


def _basis(indexer: Indexer) -> tuple[Any, ...]:
    """Return what decides, beside the files, whether they are up to date."""
    readers = [reader.identity for reader in indexer.loading.readers.all()]
    return (
        indexer.ledger.tree.changes,
        indexer.definitions.all_fingerprints(),
        readers,
        loaders.revision,
    )


def ingest_missing(indexer: Indexer) -> None:
    """Build what live documents lack of the live groups and indexes."""
    plan = indexer.planner.plan_live()
    live = [row for row in indexer.ledger.documents.all().values() if row.status == "live"]
    rows = _lacking(indexer, plan, live, few=False)
    ordered = sorted(rows, key=lambda row: row.identity)
    indexer.engine.ingest(map(PendingVersion, ordered), plan, "rebuild", len(ordered))


def _warn_of_failures(indexer: Indexer, plan: BuildPlan) -> None:
    for step in sorted({LOADING, *indexer.failures.steps()}, key=str):
        indexer.failures.warn_or_raise(step, functools.partial(indexer.count_done, step, plan))


def _report_unknown_names(indexer: Indexer, listing: Listing) -> None:
    """Report keys of file_metadata that match no file."""
    indexer.failures.misnamed.clear()
    for failure in _misnamed(indexer, listing):
        indexer.failures.misnamed[failure.path] = failure
        warn_user(f"{indexer.where}: {failure}", IngestionWarning)


def _misnamed(indexer: Indexer, listing: Listing) -> list[Failure]:
    """Return keys of file_metadata that match no file: probably misspelt."""
    known = (
        [file.identity for file in listing.found]
        if isinstance(indexer.dataset.metadata, Mapping)
        else []
    )
    what = "file_metadata names a file that does not exist."
    return [
        Failure(name, "metadata", ConfigError(f"{what} {known_names(name, known)}"))
        for name in indexer.dataset.unused_names(known)
    ]


# Comparing files with the ledger


@dataclass(slots=True)
class Comparison:
    """The dataset's files compared with the ledger.

    Args:
        listing: The files.
        changes: The kind of change of each.
        rows: The ledger's documents, by identity; without those of settled files.
        settled: Files that need not be compared, by identity.
        skipped: Pairs (identity, reason) of skipped files.
        metadata: User metadata of the files that have some, by identity.
        reasons: Why known files are done again, by identity; see `IngestReport`.
    """

    listing: Listing
    changes: Changes
    rows: Mapping[str, DocumentRow]
    settled: dict[str, FoundFile]
    skipped: tuple[tuple[str, str], ...]
    metadata: dict[str, UserMetadata] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def compare_files(indexer: Indexer, max_deleted: float = MAX_DELETED) -> Comparison:
    """List the files and compare them with the ledger; changes nothing.

    Raises:
        DatasetPathError: If the dataset's folder cannot be listed.
    """
    listing = indexer.dataset.list_files()
    settled = {}
    before = indexer.settled
    found: Sequence[FoundFile] = listing.found
    if before is None or indexer.dataset.metadata is not None or before.basis != _basis(indexer):
        rows = indexer.ledger.documents.all()
    else:
        settled = dict(before.files)
        found = [file for file in found if before.files.get(file.identity) is not file]
        names = before.others.union(file.identity for file in found)
        if len(settled) + len(found) != len(listing.found) or found:
            names |= settled.keys() - {file.identity for file in listing.found}
        for name in names:
            settled.pop(name, None)
        rows = indexer.ledger.documents.named(names)
    metadata, config_hash = _config_hash(indexer)
    reasons = {
        normal_name(row.identity): reason for row in rows.values() if (reason := _skip_reason(row))
    }
    for file in found:
        row = rows.get(file.identity)
        if (
            row is None
            or row.status != "skipped"
            or (row.signature, row.config_hash) != (file.signature, config_hash(file))
        ):
            continue
        if not _known_file(row, has_root=True).racy or _hash_if_readable(file) == row.content_hash:
            reasons[file.identity] = json.loads(row.loaded)["skipped"]
    store = indexer.ledger.file.path
    if store is not None:
        own = [file.identity for file in found if is_of_store(os.fspath(file.raw_path), str(store))]
        reasons |= dict.fromkeys(own, "the store's own file")
    roots = indexer.ledger.tree.groups.get(LAZY_ROOT_NAME)
    known = [
        _known_file(row, has_root=roots is not None and row.uid in roots.builds)
        for row in rows.values()
        if row.status == "live" and row.origin == "dataset" and indexer.dataset.is_given
    ]
    # chosen, so never withheld
    left_out = {one.identity for one in known if listing.leaves_out(one.identity)}
    with Work("compare", len(found), "file") as work:
        changes = compare(
            [file for file in found if file.identity not in reasons],
            [one for one in known if one.identity not in left_out],
            unlisted=listing.unreadable,
            content_hash=lambda file: hash_file(file.path),
            config_hash=work.counted(config_hash),
            max_deleted=max_deleted,
            settled=len(settled),
            withholds=indexer.dataset.withholds,
        )
    if left_out:
        changes = replace(
            changes, deleted=(*changes.deleted, *(one for one in known if one.identity in left_out))
        )
    skipped = [
        (file.identity, reasons[file.identity]) for file in found if file.identity in reasons
    ]
    return Comparison(
        listing, changes, rows, settled, tuple(sorted([*listing.skipped, *skipped])), metadata
    )


def _skip_reason(row: DocumentRow) -> str:
    """Return why a file with a document's identity is skipped; "" if it is not."""
    if row.status == "excluded":
        return "deleted by delete_files"
    if row.status == "live" and row.origin != "dataset":
        return "its name is that of a document that was added singly"
    return ""


def _known_file(row: DocumentRow, *, has_root: bool) -> KnownFile:
    """Return the file as the ledger knows it; without its content if it has to be loaded again in
    any case.
    """
    changed_while_read = row.signature is None and row.seen_ns >= 0
    if changed_while_read or not has_root:
        return KnownFile(row.identity, None, "", 0, row.config_hash)
    return KnownFile(row.identity, row.signature, row.content_hash, row.seen_ns, row.config_hash)


def _config_hash(indexer: Indexer) -> tuple[dict[str, UserMetadata], Callable[[FoundFile], str]]:
    """Return a function that hashes a file's loader and user metadata, and the metadata it has met
    so far.
    """
    found: dict[str, UserMetadata] = {}
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
            found[file.identity] = metadata
        return hash_of(identity_of(file), text)

    return found, config_hash


def _json_default(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else repr(value)


# What is to be ingested


def _pending_versions(
    indexer: Indexer,
    compared: Comparison,
    plan: BuildPlan,
    quarantined: Mapping[str, tuple[str, str]],
) -> tuple[Iterator[PendingVersion], int]:
    """Return the documents to ingest, in order of identity, and their count; made lazily, as there
    may be many.
    """
    roots = indexer.ledger.tree.groups[LAZY_ROOT_NAME]  # as of now: ingestion changes it
    changes = compared.changes
    rows = compared.rows
    seen_ns = compared.listing.seen_ns
    to_load = (*changes.added, *changes.changed, *changes.reconfigured)
    rolled_back = indexer.ledger.documents.rolled_back() if changes.touched else set()
    # A rolled-back version stays until the file's content changes; and dates are days.
    noted = [
        one
        for one in changes.touched
        if rows[one.file.identity].id in rolled_back or _is_of_the_day(one, rows)
    ]
    if noted:
        indexer.ledger.documents.note_files(
            [_file_row(rows[one.file.identity], one, seen_ns) for one in noted]
        )
    known = {one.file.identity for one in noted}
    touched = [one for one in changes.touched if one.file.identity not in known]
    busy = {one.file.identity for one in (*to_load, *touched, *changes.moved)}
    incomplete = _incomplete_documents(indexer, plan, compared, busy)
    compared.reasons |= _reasons(compared, incomplete)

    def load(one: ComparedFile) -> PendingVersion:
        """Load a new or changed file."""
        known = rows.get(one.file.identity)
        row = _file_row(known or _new_row(one.file.identity), one, seen_ns)
        if known is not None and known.status != "live":
            row = replace(row, updates="{}")  # those of a deleted document
        metadata = compared.metadata.get(one.file.identity, EMPTY)
        return PendingVersion(row, _load_root(indexer, one.file, row, metadata, quarantined))

    def touch(files: Iterable[ComparedFile]) -> Iterator[PendingVersion]:
        """Renew the dates of files; their content is the same."""
        for some in batches_reaching(files, _size, _READ_BYTES, most_items=_READ):
            new = [_file_row(rows[one.file.identity], one, seen_ns) for one in some]
            stored = indexer.stored_roots(roots.collection, [roots.builds[row.uid] for row in new])
            for one, row in zip(some, new, strict=True):
                make = _load_root(
                    indexer, one.file, row, compared.metadata.get(one.file.identity, EMPTY)
                )
                if row.uid in stored:  # else it is damaged, but the file exists
                    make = functools.partial(
                        renewed_root, stored[row.uid], row, indexer.nodes.schema, file=one.file
                    )
                yield PendingVersion(row, make)

    def move(one: ComparedFile) -> PendingVersion:
        """Give the document of a moved file its new path, without loading it if nothing else
        changed.
        """
        known = cast("KnownFile", one.known)
        before = rows[known.identity]
        metadata = compared.metadata.get(one.file.identity, EMPTY)
        if isinstance(metadata, LazyRAGError) or one.config_hash != known.config_hash:
            version = load(one)
            return PendingVersion(version.row, version.make_root, before)
        row = _file_row(_new_row(one.file.identity), one, seen_ns)
        row = replace(
            row, loaded=before.loaded, user_metadata=before.user_metadata, updates=before.updates
        )
        return PendingVersion(row, indexer.renewed(roots, before.uid, row, one.file), before)

    renamed = _renamed(indexer, roots, rows)
    old_names = {one.moved_from.identity for one in renamed if one.moved_from is not None}
    incomplete = [row for row in incomplete if row.identity not in old_names]
    versions = heapq.merge(
        map(load, _by_identity(to_load)),
        touch(_by_identity(touched)),
        map(move, _by_identity(changes.moved)),
        map(PendingVersion, sorted(incomplete, key=lambda row: row.identity)),
        renamed,
        key=lambda version: version.row.identity,
    )
    return versions, len(busy) + len(incomplete) + len(renamed)


def _renamed(
    indexer: Indexer, roots: LiveGroup, rows: Mapping[str, DocumentRow]
) -> list[PendingVersion]:
    """Give texts, and files outside of the dataset, of an earlier release their names in NFC; in
    order of these.
    """
    found = []
    for before in rows.values():
        name = normal_name(before.identity)
        if before.status == "live" and before.origin != "dataset" and name not in rows:
            row = replace(before, id=0, uid=root_uid(name), identity=name, version=0)
            found.append(PendingVersion(row, indexer.renewed(roots, before.uid, row), before))
    return sorted(found, key=lambda version: version.row.identity)


def _is_of_the_day(one: ComparedFile, rows: Mapping[str, DocumentRow]) -> bool:
    """Return whether a file with the same content has the dates that its document has."""
    before = rows[one.file.identity].signature
    now = one.file.signature
    # another file may have another creation date
    if before is None or now is None or before.inode != now.inode:
        return False
    return day_of(before.mtime_ns / 1e9) == day_of(now.mtime_ns / 1e9)


def _size(one: ComparedFile) -> int:
    return one.file.signature.size if one.file.signature is not None else 0


def _by_identity(files: Iterable[ComparedFile]) -> list[ComparedFile]:
    return sorted(files, key=lambda one: one.file.identity)


def _new_row(identity: str) -> DocumentRow:
    return DocumentRow(0, root_uid(identity), identity)


def _file_row(base: DocumentRow, one: ComparedFile, seen_ns: int) -> DocumentRow:
    return replace(
        base,
        origin="dataset",
        signature=one.file.signature,
        seen_ns=seen_ns,
        content_hash=one.content_hash,
        config_hash=one.config_hash,
    )


def _load_root(
    indexer: Indexer,
    file: FoundFile,
    row: DocumentRow,
    metadata: UserMetadata,
    quarantined: Mapping[str, tuple[str, str]] = EMPTY,
) -> MakeRoot:
    """Return a function that loads a file into a root node, unless it is quarantined as it is."""
    key, why = quarantined.get(row.identity, ("", ""))
    if key == indexer.engine.quarantine_key(row):
        return functools.partial(_quarantine, file, why)
    return functools.partial(
        file_root, indexer.loading.load, file, row, metadata, indexer.nodes.schema
    )


def _quarantine(file: FoundFile, why: str, _build: int) -> NoReturn:
    """Fail as at the last try, without reading the file."""
    raise LoaderEndedError(why, path=str(file.path))


def _incomplete_documents(
    indexer: Indexer, plan: BuildPlan, compared: Comparison, busy: Collection[str]
) -> list[DocumentRow]:
    """Return live documents that failed in a step before, or were written by a program without that
    step.

    What is settled is complete; so is what is busy, soon.
    """
    to_check = [
        row for name, row in compared.rows.items() if row.status == "live" and name not in busy
    ]
    few = 0 < len(to_check) < len(compared.settled)
    return _lacking(indexer, plan, to_check, few=few) if to_check else []


def _lacking(
    indexer: Indexer, plan: BuildPlan, rows: Collection[DocumentRow], *, few: bool
) -> list[DocumentRow]:
    among = [row.id for row in rows] if few else None
    missing = indexer.missing([group.id for group in plan.groups], plan, among)
    return [row for row in rows if row.id in missing]


def _reasons(compared: Comparison, incomplete: Iterable[DocumentRow]) -> dict[str, str]:
    """Return why known files are done again."""
    changes = compared.changes
    rows = compared.rows
    found = {row.identity: "incomplete" for row in incomplete}
    known = (
        (one, rows[one.file.identity])
        for one in (*changes.added, *changes.changed)
        if one.file.identity in rows
    )
    for one, row in known:
        # An earlier failure; a root node, or all of it, that a store has lost.
        same = row.content_hash == one.content_hash and row.signature is not None
        if row.status in ("new", "live"):
            found[row.identity] = (
                "incomplete" if row.status == "new" or same or not row.content_hash else "bytes"
            )
    for one in changes.reconfigured:
        name = one.file.identity
        metadata = compared.metadata.get(name, EMPTY)
        same = not isinstance(metadata, LazyRAGError) and json.loads(
            rows[name].user_metadata
        ) == _stored(metadata)
        found[name] = "reader" if same else "metadata"
    return found | {
        one.file.identity: "date" for one in changes.touched if not _is_of_the_day(one, rows)
    }


def _stored(metadata: Mapping[str, Any]) -> Any:
    """Return metadata as the ledger returns them; None for those that cannot be stored."""
    try:
        return json.loads(json.dumps(dict(check_metadata(metadata))))
    except LazyRAGError:
        return None


# Reports


def _read_error(file: FoundFile, exc: OSError) -> LoadError:
    error = LoadError(
        f"The file cannot be read ({exc.strerror}). Check its permissions.", path=str(file.path)
    )
    error.__cause__ = exc
    return error


def _unread(indexer: Indexer, compared: Comparison) -> list[Failure]:
    """The failures of files that cannot be read, or have the name of another one."""
    failed = [
        Failure(file.identity, str(LOADING), _read_error(file, exc))
        for file, exc in compared.changes.unreadable
    ]
    first = (
        {file.identity: file for file in compared.listing.found} if compared.listing.clashes else {}
    )
    for file in compared.listing.clashes:
        name, other = (
            os.path.relpath(one.raw_path, indexer.dataset.folder).replace(os.sep, "/")
            for one in (file, first[file.identity])
        )
        msg = (
            f"The names {name!a} and {other!a} differ only by their Unicode normal form. Rename one"
            " of the files."
        )
        failed.append(Failure(name, str(LOADING), LoadError(msg, path=os.fspath(file.raw_path))))
    return failed


def _expected_report(
    indexer: Indexer, compared: Comparison, errors: Mapping[str, LazyRAGError] = EMPTY
) -> IngestReport:
    """Return what a sync would report if no step after loading failed.

    Args:
        indexer: Of the Document.
        compared: Its files.
        errors: By identity, why files could not be loaded.
    """
    changes = compared.changes
    failed = _unread(indexer, compared)
    failed += [Failure(name, str(LOADING), error) for name, error in errors.items()]
    failed += _misnamed(indexer, compared.listing)
    skipped = {one.path: one.error.reason for one in failed if isinstance(one.error, NoReaderError)}
    failed = [one for one in failed if not isinstance(one.error, NoReaderError)]
    again = _identities(changes.changed) + _identities(changes.reconfigured)
    touched = [one for one in changes.touched if not _is_of_the_day(one, compared.rows)]
    dated = {one.file.identity for one in touched}
    files = (*changes.added, *changes.changed, *changes.reconfigured, *touched, *changes.moved)
    root = indexer.ledger.tree.groups.get(LAZY_ROOT_NAME)
    incomplete = []
    if root is not None and indexer.definitions.is_current(root):
        busy = {one.file.identity for one in files}
        incomplete = _incomplete_documents(indexer, indexer.planner.plan_live(), compared, busy)
    return replace(
        _common_report(compared, skipped),
        added=tuple(name for name in _identities(changes.added) if name not in errors),
        failed=tuple(sorted(failed, key=lambda one: (one.path, one.stage))),
        skipped=tuple(sorted({*compared.skipped, *skipped.items()})),
        updated=tuple(sorted(set(again) - errors.keys())),
        unchanged=tuple(
            sorted(
                {*compared.settled, *_identities(changes.unchanged), *_identities(changes.touched)}
                - dated
            )
        ),
        touched=tuple(name for name in _identities(changes.touched) if name in dated),
        moved=tuple((old, new) for old, new in _moved(changes) if new not in errors),
        reasons=_reasons(compared, incomplete),
    )


def _final_report(
    compared: Comparison, done: list[Outcome], skipped: Collection[str]
) -> IngestReport:
    changes = compared.changes
    live = {one.identity for one in done if one.flipped}
    renewed = {one.identity for one in done if one.flipped and one.is_new_version}
    touched = _identities(changes.touched)
    again = _identities(changes.changed) + _identities(changes.reconfigured) + touched
    noted = set(touched) - {one.identity for one in done}
    same = (live | noted) - renewed
    return replace(
        _common_report(compared, skipped),
        added=tuple(name for name in _identities(changes.added) if name in live),
        updated=tuple(
            sorted(name for name in again if name in renewed and name not in set(touched))
        ),
        touched=tuple(name for name in touched if name in renewed),
        unchanged=tuple(
            sorted(
                [
                    *compared.settled,
                    *_identities(changes.unchanged),
                    *(name for name in again if name in same),
                ]
            )
        ),
        moved=tuple((old, new) for old, new in _moved(changes) if new in live),
        reasons={
            one.identity: compared.reasons[one.identity]
            for one in done
            if one.identity in compared.reasons
        },
        notes=_notes(done),
    )


def _common_report(compared: Comparison, skipped: Collection[str]) -> IngestReport:
    changes = compared.changes
    deleted = [one.identity for one in changes.deleted]
    return IngestReport(
        skipped=compared.skipped,
        deleted=tuple(sorted([*deleted, *(old for old, new in _moved(changes) if new in skipped)])),
        withheld=tuple(one.identity for one in changes.withheld),
    )


def _identities(files: tuple[ComparedFile, ...]) -> tuple[str, ...]:
    return tuple(one.file.identity for one in files)


def _moved(changes: Changes) -> tuple[tuple[str, str], ...]:
    return tuple(
        (one.known.identity, one.file.identity) for one in changes.moved if one.known is not None
    )


# Single documents


@contextmanager
def _unsettling(indexer: Indexer, names: Iterable[str]) -> Iterator[None]:
    """Change some documents: the next sync compares their files, and no others for that."""
    settled = indexer.settled
    indexer.settled = None
    known = settled is not None and settled.basis == _basis(indexer)
    begun = indexer.turns.begun
    yield
    if settled is not None and known and begun == indexer.turns.begun:
        for name in names:
            settled.files.pop(name, None)
            settled.others.add(name)
        indexer.settled = replace(settled, basis=_basis(indexer))


def add_files(
    indexer: Indexer, files: Any, metadata: Mapping[str, Mapping[str, Any]] | None
) -> IngestReport:
    """Ingest single files, whether new, changed or deleted before; see `Document.add_files`."""
    found = []
    for file in find_named_files(files, "files"):
        inside = indexer.dataset.relative_path(file.path)
        found.append((file._replace(identity=inside) if inside else file, bool(inside)))
    added = check_metadata_of(metadata, [file.identity for file, _ in found])
    with indexer.writing(beside=True), _unsettling(indexer, [file.identity for file, _ in found]):
        indexer.ensure_root()
        rows = indexer.ledger.documents.named(file.identity for file, _ in found)
        from_dataset, config_hash = _config_hash(indexer)
        versions = []
        for file, inside_dataset in found:
            base = rows.get(file.identity) or _new_row(file.identity)
            updates = json.loads(base.updates) if base.status == "live" else {}
            seen_ns = time.time_ns()
            seen = file._replace(signature=signature_of(file.path))
            row = replace(
                base,
                origin="dataset" if inside_dataset else "file",
                signature=seen.signature,
                seen_ns=seen_ns,
                content_hash=_hash_if_readable(file),
                config_hash=config_hash(file) if inside_dataset else "",
                updates=json.dumps({**updates, **added.get(file.identity, {})}),
            )
            make_root = _load_root(indexer, seen, row, from_dataset.get(file.identity, EMPTY))
            versions.append(
                PendingVersion(row, functools.partial(_never_skipped, make_root), base=base)
            )
            indexer.engine.added[file.identity] = seen
        return _ingest_documents(indexer, versions, rows)


def _never_skipped(make_root: MakeRoot, build: int) -> Root:
    """Load a file that the user named: one without text has failed."""
    try:
        return make_root(build)
    except NoReaderError as exc:
        raise LoadError(str(exc), path=exc.path, loader=exc.loader) from exc


def add_texts(
    indexer: Indexer, texts: Any, metadata: Mapping[str, Mapping[str, Any]] | None
) -> IngestReport:
    """Ingest texts under the user's own ids; a text with a known id replaces it. See
    `Document.add_texts`.
    """
    given = check_texts(texts, metadata)
    texts = with_normal_names("texts", texts)
    with indexer.writing(beside=True), _unsettling(indexer, texts):
        indexer.ensure_root()
        rows = text_rows(indexer, texts)
        today = time.strftime("%Y-%m-%d")
        versions = []
        for name, text in texts.items():
            base = rows.get(name) or _new_row(name)
            row = replace(
                _new_row(name),
                id=base.id,
                status=base.status,
                origin="text",
                user_metadata=json.dumps(dict(check_metadata(given.get(name, {})))),
                updates=base.updates if base.status == "live" else "{}",
            )
            make_root = functools.partial(text_root, row, text, today, indexer.nodes.schema)
            versions.append(PendingVersion(row, make_root))
        return _ingest_documents(indexer, versions, rows)


def check_texts(texts: Any, metadata: Any) -> dict[str, Mapping[str, Any]]:
    """Check the arguments of `Document.add_texts`, and return the metadata."""
    is_mapping = isinstance(texts, Mapping) and all(
        isinstance(one, str) for pair in texts.items() for one in pair
    )
    require(is_mapping, "texts", texts, "a mapping of ids to texts")
    for name, text in texts.items():
        if not name.strip() or not text.strip():
            raise ConfigError(
                f"texts has a blank text or id: {name!r}. Pass ids and texts that are not blank."
            )
    return check_metadata_of(metadata, list(texts))


def text_rows(indexer: Indexer, names: Iterable[str]) -> dict[str, DocumentRow]:
    """Return the rows of known ids of texts.

    Raises:
        ConfigError: If one of them is that of a file.
    """
    rows = indexer.ledger.documents.named(names)
    for name, row in rows.items():
        if row.origin != "text" and row.status == "live":
            raise ConfigError(
                f"texts has the id {name!r}, which is that of a file. Choose another id."
            )
    return rows


def evict_superseded(indexer: Indexer, unused_days: int = 0) -> None:
    """Delete cached vectors of superseded texts and models that were not used for so many days."""
    if indexer.cache is not None:
        plan = indexer.planner.plan_live()
        known = {one.identity for one in plan.vectors if one.text.is_fields}
        # the models whose texts are not known
        own = []
        others = set()
        for ledger, collection, model in indexer.ledger.groups.models():
            if ledger != indexer.ledger.id or (TEXT_MARK in model and model not in known):
                others.add(model_identity(model))
            elif TEXT_MARK not in model:
                own.append((collection, model))
        fields = (
            (model_identity(model), texts) for model, texts in indexer.engine.indexed_texts(plan)
        )
        indexer.cache.retain(
            itertools.chain(_texts(indexer, own), fields), others, unused_days=unused_days
        )


def _texts(indexer: Indexer, models: Iterable[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the identity of each model with the texts that it embeds, in pages."""
    for collection, model in models:
        for rows in pages(functools.partial(indexer.nodes.segments.scan, collection)):
            yield model, [content_text(one.content) for one in rows]


def check_names(documents: Any) -> list[str]:
    """Return the documents that an argument names, each once."""
    is_list = isinstance(documents, Iterable) and not isinstance(documents, (str, os.PathLike))
    given: list[Any] = list(documents) if is_list else [None]
    is_valid = all(isinstance(name, (str, os.PathLike)) for name in given)
    require(is_valid, "documents", documents, "a list of paths relative to the dataset, or ids")
    return list(dict.fromkeys(normal_name(os.fspath(one)) for one in given))


def deletable(indexer: Indexer, names: Sequence[str]) -> tuple[list[str], list[DocumentRow]]:
    """Return those of some documents that were never ingested, and the rows to delete.

    Raises:
        ConfigError: If there is no such document.
    """
    rows = indexer.ledger.documents.named(names)
    failed = {one for one, *_ in indexer.ledger.documents.failures()}
    never = [
        one
        for one in names
        if (rows[one].status in ("new", "skipped") if one in rows else one in failed)
    ]
    gone = live_rows(indexer, [one for one in names if one not in never])
    return never, gone + [rows[one] for one in never if one in rows]


def live_among(indexer: Indexer, names: Iterable[str]) -> list[DocumentRow]:
    """Return the rows of those of some documents that are live."""
    return [row for row in indexer.ledger.documents.named(names).values() if row.status == "live"]


def hide(indexer: Indexer, rows: Iterable[DocumentRow], *, keeps_builds: bool = False) -> None:
    """Hide documents from readers at once; see `DocumentTable.tombstone`."""
    by_status: dict[Status, list[int]] = {}
    for row in rows:
        by_status.setdefault("excluded" if row.origin == "dataset" else "deleted", []).append(
            row.id
        )
    with indexer.writing(beside=True):
        for status, numbers in by_status.items():
            indexer.ledger.documents.tombstone(numbers, status, keeps_builds=keeps_builds)


def delete_files(indexer: Indexer, documents: Any) -> IngestReport:
    """Delete documents; files in the dataset's folder are excluded until they are added again."""
    names = check_names(documents)
    meter = ProgressMeter("delete", len(names), 1)
    with indexer.writing(beside=True), _unsettling(indexer, names), meter:
        never, gone = deletable(indexer, names)
        meter.reach(0)  # the last point at which nothing is deleted yet
        hide(indexer, gone)
        indexer.ledger.documents.set_failures(never, ())
        indexer.failures.forget(lambda _, identity: identity in names)
        with suppress(CanceledError):  # the documents are hidden; the next sync removes the rest
            indexer.purge()
            meter.reach(len(names))
    return IngestReport(deleted=tuple(sorted(names)))


def update_metadata(indexer: Indexer, changes: Mapping[str, Mapping[str, Any]]) -> IngestReport:
    """Change documents' metadata; None removes a change. No file is loaded; what indexes read of it
    is done again.
    """
    require(
        isinstance(changes, Mapping), "changes", changes, "a mapping of files or ids to metadata"
    )
    given = check_metadata_of(changes, list(changes))
    with indexer.writing(beside=True), _unsettling(indexer, given):
        indexer.ensure_root()
        rows = {row.identity: row for row in live_rows(indexer, list(given))}
        versions = []
        for name, changed in given.items():
            make_root = functools.partial(_renewed_root, indexer, name, changed)
            versions.append(
                PendingVersion(_updated(rows[name], changed), make_root, base=rows[name])
            )
        return replace(
            _ingest_documents(indexer, versions, rows), reasons=dict.fromkeys(given, "metadata")
        )


def _updated(row: DocumentRow, changed: Mapping[str, Any]) -> DocumentRow:
    merged = {**json.loads(row.updates), **changed}
    return replace(
        row, updates=json.dumps({key: one for key, one in merged.items() if one is not None})
    )


def _renewed_root(indexer: Indexer, name: str, changed: Mapping[str, Any], build: int) -> Root:
    """Make a root node of what is live now of a document, which others may have changed, with other
    metadata.
    """
    [row] = live_rows(indexer, [name])
    roots = indexer.ledger.tree.groups[LAZY_ROOT_NAME]
    return indexer.renewed(roots, row.uid, _updated(row, changed))(build)


def _ingest_documents(
    indexer: Indexer, versions: list[PendingVersion], rows: Mapping[str, DocumentRow]
) -> IngestReport:
    """Ingest single documents and report on them."""
    repaired = () if indexer.is_checked or not indexer.turns.is_sole else indexer.on_check()
    versions.sort(key=lambda version: version.row.identity)
    names = {version.row.identity for version in versions}
    indexer.failures.forget(lambda _, identity: identity in names)
    plan = indexer.planner.plan_live()
    done = indexer.engine.ingest(versions, plan, "add", len(versions))
    try:
        _warn_of_failures(indexer, plan)
    except IngestionError as exc:  # no query needs an answer yet
        warn_user(sentence(exc.__cause__ or exc), IngestionWarning)
    indexer.purge()
    live = {name: row for name, row in rows.items() if row.status == "live"}
    hashes = {version.row.identity: version.row.content_hash for version in versions}
    renewed = [one.identity for one in done if one.flipped and one.is_new_version]
    # An added text has no hash.
    same = {
        name
        for name, row in live.items()
        if row.content_hash == hashes[name] and (row.content_hash or name not in renewed)
    }
    return IngestReport(
        added=tuple(name for name in renewed if name not in live),
        updated=tuple(name for name in renewed if name in live),
        unchanged=tuple(one.identity for one in done if one.flipped and not one.is_new_version),
        failed=tuple(failure for failure in indexer.failures if failure.path in names),
        repaired=repaired,
        reasons={name: "asked for" if name in same else "bytes" for name in sorted(live)},
        notes=_notes(done),
    )


def _notes(done: Iterable[Outcome]) -> dict[str, tuple[str, ...]]:
    return {one.identity: one.notes for one in sorted(done) if one.notes}


def _hash_if_readable(file: FoundFile) -> str:
    try:
        return hash_file(file.path)
    except OSError:
        return ""  # loading reports it


def check_metadata_of(metadata: Any, names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return metadata of single documents, checked."""
    metadata = {} if metadata is None else metadata
    require(
        isinstance(metadata, Mapping), "metadata", metadata, "a mapping of files or ids to metadata"
    )
    for name in metadata:
        require(isinstance(name, str), "A key of metadata", name, "a file or an id")
    metadata = with_normal_names("metadata", metadata)
    normal = {*map(normal_name, names)}
    for name, given in metadata.items():
        if name not in normal:
            raise ConfigError(
                f"metadata names {name!r}, which is not among the documents."
                f" {known_names(name, names)}"
            )
        check_metadata(validate_user_metadata(name, given))
    return dict(metadata)


# Versions


def roll_back(indexer: Indexer, identity: str, number: int | None) -> DocumentVersion:
    """Make an earlier version of a document live again, until its file changes.

    Its nodes are still in the stores; groups that were built or redefined since are made from its
    text.

    Raises:
        ConfigError: If the document does not exist, or the version is not stored.
        IngestionError: If a group cannot be built from it.
    """
    with indexer.writing():
        indexer.ensure_root()
        [row] = live_rows(indexer, [identity])
        version = _stored_version(identity, row, indexer.ledger.documents.versions(row.id), number)
        # The row keeps the file's signature: a sync finds nothing to do until the file changes.
        changed = replace(
            row, loaded=version.loaded, user_metadata=version.user_metadata, updates=version.updates
        )

        def make(build: int) -> Root:
            root = indexer.ledger.builds.with_parents([version.root])[version.root]
            collection = indexer.ledger.tree.groups[LAZY_ROOT_NAME].collection
            return Root(indexer.stored_root(collection, root)._replace(build=build), changed)

        pending = PendingVersion(changed, make, base=row)
        pending.version_hash = version.content_hash
        done = indexer.engine.ingest([pending], indexer.planner.plan_live(), "roll back", 1)
        if not any(one.flipped for one in done):
            deleted = LoadError("The document was deleted meanwhile.", path=identity)
            step, error = next(iter(pending.failures.items()), (LOADING, deleted))
            msg = (
                f"Rolling back {identity!r} to version {version.number} failed to {step}:"
                f" {sentence(error)}"
            )
            raise IngestionError(msg) from error
        indexer.purge()
    return list_versions(indexer, identity)[-1]


def _stored_version(
    identity: str, row: DocumentRow, versions: list[Version], number: int | None
) -> Version:
    before = [one for one in versions if one.number < row.version]
    found = [one for one in before if number is None or one.number == number]
    if not found:
        stored = ", ".join(str(one.number) for one in before) or "none"
        wanted = "an earlier version" if number is None else f"version {number!r}"
        msg = (
            f"{identity!r} cannot be rolled back to {wanted}: it is not stored. Live:"
            f" {row.version}; stored before it: {stored}. Document(keep_versions=n) stores n."
        )
        raise ConfigError(msg)
    return found[-1]


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
        calls = f", {self.calls} calls" if self.calls else ""
        return (
            f"{self.step}: {self.documents} documents, about {self.nodes} nodes, {self.tokens}"
            f" tokens{calls}"
        )


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
        embedded = "".join(
            f"; {count} texts to embed with {key}" for key, count in self.embed.items() if count
        )
        return f"{self.group}: {self.stay} chunks stay, {self.come} come, {self.go} go{embedded}"


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
        shown = ""
        for step in self.steps:
            lines.append(str(step))
            if step.reason not in ("", shown):
                lines.append(f"  why: {step.reason}")
            shown = step.reason
        lines += map(str, self.diffs)
        return "\n".join([*lines, *(f"not seen of {name}: {what}" for name, what in self.unseen)])


def plan_sync(
    indexer: Indexer, max_deleted: float = MAX_DELETED, *, diff: bool = False
) -> SyncPlan:
    """Plan a sync; changes nothing and calls no model, and transforms only for a diff."""
    compared = compare_files(indexer, max_deleted)
    changes = compared.changes
    to_load = [*changes.added, *changes.changed, *changes.reconfigured]
    moved = [
        one
        for one in changes.moved
        if one.known is not None and one.config_hash != one.known.config_hash
    ]
    formats, tokens, errors = _try_loading(indexer, compared, [*to_load, *moved])
    files = [one.file for one in to_load if one.file.identity not in errors]
    size = sum(file.signature.size for file in files if file.signature is not None)
    report = _expected_report(indexer, compared, errors)
    causes = Counter(
        report.reasons[file.identity] for file in files if file.identity in report.reasons
    )
    why = ", ".join(f"{count} {cause}" for cause, count in causes.most_common())
    steps = [PlannedStep(str(LOADING), len(files), len(files), tokens, 0, why)] if files else []
    steps += _planned_steps(indexer, len(files), size, tokens, [one.file for one in changes.moved])
    diffs = _diffs(indexer, compared) if diff else []
    embed = {
        str(Step(one.group, embed_key=key)): (key, count)
        for one in diffs
        for key, count in one.embed.items()
    }
    diffs = [one for one in diffs if one.come or one.go or any(one.embed.values())]
    for at, step in enumerate(steps):
        if step.step in embed:
            key, count = embed[step.step]
            steps[at] = replace(step, nodes=count, calls=_calls(indexer, key, count))
    merged = merge_formats(formats.values(), compared.listing.skipped)
    return SyncPlan(report, tuple(steps), tuple(_unseen(indexer)), tuple(diffs), merged)


def plan_files(indexer: Indexer, files: Any) -> SyncPlan:
    """Plan `Document.add_files`, as `plan_sync` plans a sync."""
    found = find_named_files(files, "files")
    compared = Comparison(Listing(), Changes(), {}, {}, ())
    formats, tokens, _ = _try_loading(
        indexer, compared, [ComparedFile(file, "", "") for file in found]
    )
    size = sum(file.path.stat().st_size for file in found)
    load = PlannedStep(str(LOADING), len(found), len(found), tokens, 0)
    report = IngestReport(added=tuple(file.identity for file in found))
    steps = (load, *_planned_steps(indexer, len(found), size, tokens, []))
    return SyncPlan(report, steps, tuple(_unseen(indexer)), formats=merge_formats(formats.values()))


def _try_loading(
    indexer: Indexer, compared: Comparison, files: Sequence[ComparedFile]
) -> tuple[dict[str, PlannedFormat], int, dict[str, LazyRAGError]]:
    """Load files as a sync would, but those that a function of a user's, OCR or an outside program
    reads.

    Returns:
        How they would be read, by identity; the tokens of those that load; why others do not, by
        identity.
    """
    formats = plan_formats(indexer.loading, [one.file for one in files])
    errors: dict[str, LazyRAGError] = {}
    tokens = 0
    is_plain = not indexer.loading.readers.all() and all(map(is_built_in, loaders))
    # an archive may hold a file for a function
    called = CALLED if is_plain else (*CALLED, "unknown until read")
    with indexer.loading.running(len(files)), Work("plan", len(files), "file") as work:
        for number, one in enumerate(files, start=1):
            name = one.file.identity
            if formats[name].how in called:
                continue
            row = _file_row(
                compared.rows.get(name) or _new_row(name), one, compared.listing.seen_ns
            )
            try:
                root = _load_root(indexer, one.file, row, compared.metadata.get(name, EMPTY))(0)
                tokens += token_counters["utf8"].count(content_text(root.segment.content))
                if formats[name].how == "not readable":  # for want of a package
                    formats[name] = replace(formats[name], how="text", why="as .txt")
            except LazyRAGError as exc:
                errors[name] = exc
                formats[name] = with_error(formats[name], exc)
            work.reach(number)
    return formats, tokens, errors


def _planned_steps(
    indexer: Indexer, documents: int, size: int, tokens: int, moved: Sequence[FoundFile]
) -> Iterator[PlannedStep]:
    """Yield the steps for new documents of so many bytes and tokens, for moved ones, and for
    changed definitions.
    """
    tree = indexer.ledger.tree
    definitions = indexer.definitions
    rows = indexer.ledger.documents.all().values()
    known = sum(
        row.signature.size for row in rows if row.status == "live" and row.signature is not None
    )
    share = size / known if known else 0.0
    moved_size = sum(file.signature.size for file in moved if file.signature is not None)
    names = [
        name for name in tree.groups if name != LAZY_ROOT_NAME and definitions.is_defined(name)
    ]
    for name in sorted(names, key=lambda one: (len(definitions.needed(one)), one)):
        group = tree.groups[name]
        builds = indexer.ledger.builds
        live = len(group.builds)
        total = sum(build.size for build in group.builds.values())
        above = tree.groups.get(str(group.parent))
        parents = sum(build.size for build in above.builds.values()) if above is not None else 0
        per_node = getattr(definitions.line(name)[0].given, "calls_per_node", 0)
        for step, index in [
            (Step(name), None),
            *((index_step(name, one), one) for one in group.indexes.values()),
        ]:
            reason = indexer.planner.reason(step)
            again = 1.0
            if not reason or reason == "missing":
                lacking = (
                    builds.missing(group.id)
                    if index is None
                    else builds.missing_cover(group.id, index.id)
                )
                again = len(lacking) / max(1, live)
                reason = "missing" if lacking else ""
            fields = () if index is None else indexer.planner.known_fields(step)
            is_moved = again < 1 and (fields is None or "path" in fields)
            count = documents + round(again * live) + (len(moved) if is_moved else 0)
            if not count:
                continue
            part = share + again + (moved_size / known if known and is_moved else 0)
            nodes = max(documents, math.ceil(part * total))
            weight = tokens + round((part - share) * known / _BYTES_PER_TOKEN)
            if index is None:
                calls = per_node * max(documents, math.ceil((share + again) * parents))
            else:
                calls = _calls(indexer, index.name, nodes) if index.kind == "vectors" else 0
            yield PlannedStep(str(step), count, nodes, weight, calls, reason)


def _calls(indexer: Indexer, embed_key: str, texts: int) -> int:
    embedder = indexer.embedders.get(embed_key)
    return 0 if embedder is None else -(-texts // batch_size_of(embedder.embedder, 1))


def _diffs(indexer: Indexer, compared: Comparison) -> list[GroupDiff]:
    """Return what becomes of the chunks of built groups, as far as their transforms call no
    model.
    """
    tree = indexer.ledger.tree
    nodes = indexer.nodes
    roots = tree.groups.get(LAZY_ROOT_NAME)
    if roots is None:
        return []
    plan = indexer.planner.plan_preview()
    seen: dict[str, set[int]] = {}
    found = {
        target.name: _Diff(indexer, target.name, seen)
        for target in plan.groups
        if target.name in tree.groups
    }
    changes = compared.changes
    to_load = {
        one.file.identity: one for one in (*changes.added, *changes.changed, *changes.reconfigured)
    }
    deleted = {one.identity for one in changes.deleted}
    moved = {
        one.known.identity: one.file.identity for one in changes.moved if one.known is not None
    }
    rows = {
        one.identity: one for one in indexer.ledger.documents.all().values() if one.status == "live"
    }
    with indexer.loading.running(len(to_load)):
        for name in sorted({*rows, *to_load}):
            one = to_load.get(name)
            row = rows.get(name) or _new_row(name)
            version = PendingVersion(row)
            if one is not None:
                row = _file_row(row, one, compared.listing.seen_ns)
                load = _load_root(indexer, one.file, row, compared.metadata.get(name, EMPTY))
                version = PendingVersion(row, load)
                try:
                    version.segments[plan.root] = [load(0).segment]
                except LazyRAGError:
                    continue  # its live version stays
            elif name not in deleted and row.uid in roots.builds:
                [root] = nodes.of_build(plan.root_collection, roots.builds[row.uid])
                version.segments[plan.root] = [root._replace(path=moved.get(name, root.path))]
                version.current = dict(indexer.ledger.builds.live([row.id])[row.id])
            for target in plan.groups:
                is_stored = target.id in version.current
                made = (
                    []
                    if name in deleted
                    else None
                    if is_stored
                    else _previewed(indexer, target, version, plan)
                )
                if target.name in found and (is_stored or made is not None):
                    found[target.name].add(
                        row, made, next(iter(version.segments.get(plan.root, ())), None)
                    )
    return [one.result() for one in found.values()]


def _previewed(
    indexer: Indexer, target: GroupTarget, version: PendingVersion, plan: BuildPlan
) -> list[Segment] | None:
    """Return a document's nodes in a group; None if a transform fails."""
    if not {target.parent, target.ref or plan.root} <= {*version.current, *version.segments}:
        return None
    with suppress(TransformError):
        return indexer.engine.preview(target, version, plan)
    return None


class _Diff:
    """Counts what becomes of the chunks of one group.

    Args:
        indexer: Of the Document.
        name: Name of the group.
        seen: Hashes of counted texts by identity of the model, of all groups: the cache has them
            then.
    """

    def __init__(self, indexer: Indexer, name: str, seen: dict[str, set[int]]) -> None:
        self._indexer = indexer
        self._group = indexer.ledger.tree.groups[name]
        names = {one.name for one in self._group.indexes.values() if one.kind == "vectors"}
        self._fields = {
            key: fields
            for key in sorted(names & {*indexer.embedders})
            if (fields := indexer.planner.known_fields(Step(name, embed_key=key))) is not None
        }
        self._seen = seen
        self._counts = Counter(stay=0, come=0, go=0)
        self._embed: dict[str, int] = dict.fromkeys(self._fields, 0)

    def add(self, row: DocumentRow, made: Sequence[Segment] | None, root: Segment | None) -> None:
        """Count a document, which has these nodes and this root node afterwards; None for those
        that it has.
        """
        build = self._group.builds.get(row.uid)
        nodes = self._indexer.nodes
        lacking = [key for key in self._fields if not self._has_vectors(key, build)]
        is_same = made is None and (root is None or root.path == row.identity)
        if is_same and build is not None and not lacking:
            self._counts["stay"] += build.size
            return
        before = [] if build is None else nodes.of_build(self._group.collection, build)
        old, new = (
            Counter(content_text(one.content) for one in some)
            for some in (before, before if made is None else made)
        )
        self._counts.update(
            stay=(old & new).total(), come=(new - old).total(), go=(old - new).total()
        )
        for key in self._fields:
            known = set() if key in lacking else {*self._read(key, before, row, None)}
            texts = {
                one
                for one in self._read(key, before if made is None else made, row, root)
                if is_embeddable(one)
            }
            texts -= known
            embedder: Any = self._indexer.planner.embedders[key].embedder
            seen: set[int] = set()
            if texts and hasattr(embedder, "cached"):
                texts -= embedder.cached(texts)
                seen = self._seen.setdefault(self._indexer.planner.identities[key], set())
            new_hashes = {hash(text) for text in texts} - seen
            seen |= new_hashes
            self._embed[key] += len(new_hashes)

    def _has_vectors(self, key: str, build: Build | None) -> bool:
        wanted = self._indexer.planner.index_key(Step(self._group.name, embed_key=key))
        index = None if wanted is None else self._group.indexes.get(wanted)
        return bool(
            build and index and self._indexer.ledger.builds.covered(index.id, [build.number])
        )

    def _read(
        self, key: str, nodes: Sequence[Segment], row: DocumentRow, root: Segment | None
    ) -> list[str]:
        """Return what the vectors of an embed key read of a document's nodes; root None for its
        live root node.
        """
        roots = self._indexer.ledger.tree.groups[LAZY_ROOT_NAME]
        if not nodes or not self._fields[key]:
            return [content_text(one.content) for one in nodes]
        above = root or self._indexer.nodes.of_build(roots.collection, roots.builds[row.uid])[0]
        return field_texts(self._fields[key], above, nodes, is_file=row.origin != "text")

    def result(self) -> GroupDiff:
        """Return the counts."""
        return GroupDiff(self._group.name, **self._counts, embed=self._embed)


def _unseen(indexer: Indexer) -> Iterator[tuple[str, str]]:
    definitions = indexer.definitions
    named: list[tuple[str, NamedReader | NodeGroup]] = [
        (f"reader {reader.pattern}", reader) for reader in indexer.loading.readers.all()
    ]
    named += [
        (name, definitions.line(name)[0]) for name in indexer.graph if definitions.is_defined(name)
    ]
    for name, one in named:
        if one.version is None:
            yield from (
                (name, f"{what} ({type(held).__name__})") for what, held in one.fingerprint.unseen
            )
    for key, embedder in indexer.embedders.items():
        if not embedder.embedder.identity:
            yield key, "which model its embed callable asks (its name and code are seen)"
