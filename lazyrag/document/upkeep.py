"""What a Document does on request: to sync, to try again, to take in, change and let go of single documents."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from lazyrag.data.fields import BUILT_IN_FIELDS
from lazyrag.data.segment import LAZY_ROOT_NAME, check_metadata, root_uid
from lazyrag.document.builder import Builder
from lazyrag.document.dataset import PathLike, named_files
from lazyrag.document.ledger.rows import DocumentRow
from lazyrag.document.report import IngestReport
from lazyrag.document.reporting import report_of
from lazyrag.document.roots import file_root, renewed_root, text_root
from lazyrag.document.step import LOADING
from lazyrag.document.sync import MAX_DELETED, compare_files, marker, synchronise, would_report
from lazyrag.document.work import Root, Work
from lazyrag.errors import ConfigError, IngestionError, IngestionWarning, LazyRAGError, known_names, sentence, warn_user
from lazyrag.loaders.directory import FoundFile, hash_file, signature_of


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
    names = _names(identities)
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


def _names(identities: Any) -> list[str]:
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
