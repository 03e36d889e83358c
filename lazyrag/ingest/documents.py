"""Add, change and delete single documents, and make earlier versions of them live again."""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from lazyrag.data.segment import LAZY_ROOT_NAME, check_metadata
from lazyrag.errors import (
    CanceledError,
    ConfigError,
    IngestionError,
    IngestionWarning,
    LoadError,
    NoReaderError,
    known_names,
    sentence,
    warn_user,
)
from lazyrag.groups.node_group import LOADING
from lazyrag.ingest.changes import (
    hash_if_readable,
    load_root,
    notes_of,
    user_config,
    warn_of_failures,
)
from lazyrag.ingest.dataset import find_named_files, validate_user_metadata
from lazyrag.ingest.indexer import Indexer
from lazyrag.ingest.pending import MakeRoot, Outcome, PendingVersion, Root, text_root
from lazyrag.ingest.report import IngestReport
from lazyrag.ledger.tables import DocumentRow, DocumentRows, Status, Version, new_row
from lazyrag.loaders.directory import signature_of
from lazyrag.progress.calls import ProgressMeter
from lazyrag.read.versions import DocumentVersion, list_versions, live_rows
from lazyrag.types import Metadata
from lazyrag.validation import normal_name, require, with_normal_names, without_none


def add_files(
    indexer: Indexer, files: Any, metadata: Mapping[str, Metadata] | None
) -> IngestReport:
    """Ingest single files, whether new, changed or deleted before; see `Document.add_files`."""
    located = []
    for file in find_named_files(files, "files"):
        inside = indexer.dataset.relative_path(file.path)
        located.append((file._replace(identity=inside) if inside else file, bool(inside)))
    names = [file.identity for file, _ in located]
    new_metadata = check_metadata_of(metadata, names)
    with indexer.writing(beside=True):
        indexer.ensure_root()
        rows = indexer.ledger.documents.named(names)
        metadata_of, config_hash = user_config(indexer)
        versions = []
        for file, is_inside in located:
            name = file.identity
            base = rows.get(name) or new_row(name)
            updates = json.loads(base.updates) if base.status == "live" else {}
            updates.update(new_metadata.get(name, {}))
            seen_ns = time.time_ns()
            signed = file._replace(signature=signature_of(file.path))
            row = replace(
                base,
                origin="dataset" if is_inside else "file",
                signature=signed.signature,
                seen_ns=seen_ns,
                content_hash=hash_if_readable(file),
                config_hash=config_hash(file) if is_inside else "",
                updates=json.dumps(updates),
            )
            load = load_root(indexer, signed, row, metadata_of)
            make_root = functools.partial(_never_skipped, load)
            versions.append(PendingVersion(row, make_root, base=base))
            indexer.engine.added[name] = signed
        return _ingest_documents(indexer, versions, rows)


def _never_skipped(make_root: MakeRoot, build: int) -> Root:
    """Load a file that the user named: one without text has failed."""
    try:
        return make_root(build)
    except NoReaderError as exc:
        raise LoadError(str(exc), path=exc.path, loader=exc.loader) from exc


def add_texts(
    indexer: Indexer, texts: Any, metadata: Mapping[str, Metadata] | None
) -> IngestReport:
    """Ingest texts under the user's own ids; a text with a known id replaces it. See
    `Document.add_texts`.
    """
    metadata_of = _check_texts(texts, metadata)
    texts = with_normal_names("texts", texts)
    with indexer.writing(beside=True):
        indexer.ensure_root()
        rows = _text_rows(indexer, texts)
        today = time.strftime("%Y-%m-%d")
        versions = []
        for name, text in texts.items():
            base = rows.get(name) or new_row(name)
            user_metadata = check_metadata(metadata_of.get(name, {}))
            row = replace(
                new_row(name),
                id=base.id,
                status=base.status,
                origin="text",
                user_metadata=json.dumps(dict(user_metadata)),
                updates=base.updates if base.status == "live" else "{}",
            )
            make_root = functools.partial(text_root, row, text, today, indexer.nodes.schema)
            versions.append(PendingVersion(row, make_root))
        return _ingest_documents(indexer, versions, rows)


def _check_texts(texts: Any, metadata: Any) -> dict[str, Metadata]:
    """Check the arguments of `Document.add_texts`, and return the metadata."""
    is_mapping = isinstance(texts, Mapping)
    are_texts = is_mapping and all(isinstance(text, str) for text in (*texts, *texts.values()))
    require(are_texts, "texts", texts, "a mapping of ids to texts")
    for name, text in texts.items():
        if not name.strip() or not text.strip():
            problem = f"texts has a blank text or id: {name!r}."
            raise ConfigError(f"{problem} Pass ids and texts that are not blank.")
    return check_metadata_of(metadata, list(texts))


def _text_rows(indexer: Indexer, names: Iterable[str]) -> dict[str, DocumentRow]:
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


def _check_names(documents: Any) -> list[str]:
    """Return the documents that an argument names, each once."""
    is_list = isinstance(documents, Iterable) and not isinstance(documents, (str, os.PathLike))
    names: list[Any] = list(documents) if is_list else []
    is_valid = is_list and all(isinstance(name, (str, os.PathLike)) for name in names)
    require(is_valid, "documents", documents, "a list of paths relative to the dataset, or ids")
    # an id may have backslashes; a path with them is one of Windows
    identities = [name if isinstance(name, str) else PurePath(name).as_posix() for name in names]
    return list(dict.fromkeys(map(normal_name, identities)))


def _find_deletable(indexer: Indexer, names: Sequence[str]) -> tuple[list[str], list[DocumentRow]]:
    """Return those of some documents that were never ingested, and the rows to delete.

    Raises:
        ConfigError: If there is no such document.
    """
    rows = indexer.ledger.documents.named(names)
    failed = {name for name, *_ in indexer.ledger.documents.failures()}
    never_live: list[str] = []
    others: list[str] = []
    for name in names:
        is_new = name in failed
        if name in rows:
            is_new = rows[name].status in ("new", "skipped")
        (never_live if is_new else others).append(name)
    live = live_rows(indexer, others)
    return never_live, live + [rows[name] for name in never_live if name in rows]


def live_among(indexer: Indexer, names: Iterable[str]) -> list[DocumentRow]:
    """Return the rows of those of some documents that are live."""
    return [row for row in indexer.ledger.documents.named(names).values() if row.status == "live"]


def hide(indexer: Indexer, rows: Iterable[DocumentRow], *, keeps_builds: bool = False) -> None:
    """Hide documents from readers at once; see `DocumentTable.tombstone`."""
    by_status: dict[Status, list[int]] = {}
    for row in rows:
        status: Status = "excluded" if row.origin == "dataset" else "deleted"
        by_status.setdefault(status, []).append(row.id)
    with indexer.writing(beside=True):
        for status, numbers in by_status.items():
            indexer.ledger.documents.tombstone(numbers, status, keeps_builds=keeps_builds)


def delete_files(indexer: Indexer, documents: Any) -> IngestReport:
    """Delete documents; files in the dataset's folder are excluded until they are added again."""
    names = _check_names(documents)
    meter = ProgressMeter("delete", len(names), 1)
    with indexer.writing(beside=True), meter:
        never_live, rows = _find_deletable(indexer, names)
        meter.reach(0)  # the last point at which nothing is deleted yet
        hide(indexer, rows)
        indexer.ledger.documents.set_failures(never_live, ())
        indexer.failures.forget(lambda _, identity: identity in names)
        with suppress(CanceledError):  # the documents are hidden; the next sync removes the rest
            indexer.purge()
            meter.reach(len(names))
    return IngestReport(deleted=tuple(sorted(names)))


def update_metadata(indexer: Indexer, changes: Mapping[str, Metadata]) -> IngestReport:
    """Change documents' metadata; None removes a change. No file is loaded; what indexes read of it
    is done again.
    """
    is_mapping = isinstance(changes, Mapping)
    require(is_mapping, "changes", changes, "a mapping of files or ids to metadata")
    changes = check_metadata_of(changes, list(changes))
    with indexer.writing(beside=True):
        indexer.ensure_root()
        rows = {row.identity: row for row in live_rows(indexer, list(changes))}
        versions = []
        for name, changed in changes.items():
            make_root = functools.partial(_renewed_root, indexer, name, changed)
            row = _with_updates(rows[name], changed)
            versions.append(PendingVersion(row, make_root, base=rows[name]))
        report = _ingest_documents(indexer, versions, rows)
        return replace(report, reasons=dict.fromkeys(changes, "metadata"))


def _with_updates(row: DocumentRow, changed: Metadata) -> DocumentRow:
    merged = {**json.loads(row.updates), **changed}
    updates = without_none(merged)
    return replace(row, updates=json.dumps(updates))


def _renewed_root(indexer: Indexer, name: str, changed: Metadata, build: int) -> Root:
    """Make a root node of what is live now of a document, which others may have changed, with other
    metadata.
    """
    [row] = live_rows(indexer, [name])
    return indexer.renewed(row.uid, _with_updates(row, changed))(build)


def _ingest_documents(
    indexer: Indexer, versions: list[PendingVersion], rows: DocumentRows
) -> IngestReport:
    """Ingest single documents and report on them."""
    is_due = indexer.turns.is_sole and not indexer.is_checked
    repaired = indexer.repair() if is_due else ()
    versions.sort(key=lambda version: version.row.identity)
    hashes = {version.row.identity: version.row.content_hash for version in versions}
    indexer.failures.forget(lambda _, identity: identity in hashes)
    plan = indexer.planner.plan_live()
    outcomes = indexer.engine.ingest(versions, plan, "add", len(versions))
    try:
        warn_of_failures(indexer, plan)
    except IngestionError as exc:  # no query needs an answer yet
        warn_user(sentence(exc.__cause__ or exc), IngestionWarning)
    indexer.purge()
    report = _report_on(outcomes, hashes, rows)
    failed = tuple(failure for failure in indexer.failures if failure.path in hashes)
    return replace(report, failed=failed, repaired=repaired)


def _report_on(
    outcomes: Iterable[Outcome], hashes: Mapping[str, str], rows: DocumentRows
) -> IngestReport:
    """Report on single documents, from the new hashes of their files and their rows before."""
    live = {name: row for name, row in rows.items() if row.status == "live"}
    added = []
    updated = []
    unchanged = []
    for outcome in outcomes:
        if not outcome.flipped:
            continue
        if not outcome.is_new_version:
            unchanged.append(outcome.identity)
        elif outcome.identity in live:
            updated.append(outcome.identity)
        else:
            added.append(outcome.identity)
    reasons = {}
    for name, row in sorted(live.items()):
        # An added text has no hash.
        is_same = row.content_hash == hashes[name] and (row.content_hash or name not in updated)
        reasons[name] = "asked for" if is_same else "bytes"
    return IngestReport(
        added=tuple(added),
        updated=tuple(updated),
        unchanged=tuple(unchanged),
        reasons=reasons,
        notes=notes_of(outcomes),
    )


def check_metadata_of(metadata: Any, names: Sequence[str]) -> dict[str, Metadata]:
    """Return metadata of single documents, checked."""
    if metadata is None:
        return {}
    is_mapping = isinstance(metadata, Mapping)
    require(is_mapping, "metadata", metadata, "a mapping of files or ids to metadata")
    for name in metadata:
        require(isinstance(name, str), "A key of metadata", name, "a file or an id")
    metadata = with_normal_names("metadata", metadata)
    normal = {*map(normal_name, names)}
    for name, fields in metadata.items():
        if name not in normal:
            problem = f"metadata names {name!r}, which is not among the documents."
            raise ConfigError(f"{problem} {known_names(name, names)}")
        check_metadata(validate_user_metadata(name, fields))
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

        def make_root(build: int) -> Root:
            root = indexer.ledger.builds.with_parents([version.root])[version.root]
            collection = indexer.ledger.tree.groups[LAZY_ROOT_NAME].collection
            segment = indexer.stored_root(collection, root)
            return Root(segment._replace(build=build), changed)

        pending = PendingVersion(changed, make_root, base=row, version_hash=version.content_hash)
        outcomes = indexer.engine.ingest([pending], indexer.planner.plan_live(), "roll back", 1)
        if not any(outcome.flipped for outcome in outcomes):
            deleted = LoadError("The document was deleted meanwhile.", path=identity)
            step, error = next(iter(pending.failures.items()), (LOADING, deleted))
            action = f"Rolling back {identity!r} to version {version.number}"
            raise IngestionError(f"{action} failed to {step}: {sentence(error)}") from error
        indexer.purge()
    return list_versions(indexer, identity)[-1]


def _stored_version(
    identity: str, row: DocumentRow, versions: list[Version], number: int | None
) -> Version:
    """Return the latest version before the live one, or the one of a number."""
    before = [version for version in versions if version.number < row.version]
    matching = [version for version in before if number in (None, version.number)]
    if matching:
        return matching[-1]
    stored = ", ".join(str(version.number) for version in before) or "none"
    target = "an earlier version" if number is None else f"version {number!r}"
    problem = f"{identity!r} cannot be rolled back to {target}: it is not stored."
    others = f"Live: {row.version}; stored before it: {stored}."
    raise ConfigError(f"{problem} {others} Document(keep_versions=n) stores n.")
