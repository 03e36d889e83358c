"""Ranks without an engine: N programs each work on their share of a folder, and one merges what they left in files.

A rank takes the files whose identity hashes to it, in batches; it writes the results of each batch to a shared folder
by their keys, and a marker when the batch is finished. Started again, it continues after the last marker.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from lazyrag.data.segment import digest
from lazyrag.document import Document
from lazyrag.document.project import Project, label_fields, make_embedder, new_project
from lazyrag.document.shards import shard_of
from lazyrag.errors import ConfigError, IngestionError
from lazyrag.launchers.executors import Results
from lazyrag.launchers.work import Launcher
from lazyrag.loaders.directory import FoundFile
from lazyrag.storage.database import batches_reaching

_BATCH_FILES, _BATCH_BYTES = 256, 8 << 20
_CONFIG = "ranks.json"


class RankReport(NamedTuple):
    """What a rank did.

    Args:
        documents: Files of its share.
        batches: Their batches.
        skipped: Those that were finished before.
        failed: Files that failed; the merge tries them again.
    """

    documents: int
    batches: int
    skipped: int
    failed: int


class Inline(Executor):
    """Does the work in the thread that waits for it."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function at once."""
        done: Future[Any] = Future()
        done.set_result(function(*args, **kwargs))
        return done


def _launcher(out: Path) -> Launcher:
    return Launcher(Inline(), Results(out / "results", temporary=False))


def run_rank(project: Project, rank: int, ranks: int, out: Path, chosen: Mapping[str, Any]) -> RankReport:
    """Load, transform and embed a rank's share of a folder, as far as that is not done.

    Args:
        project: The folder, its group and its embedding model.
        rank: Number of this rank, from 0.
        ranks: How many there are.
        out: Folder for the results, which all ranks and the merge share.
        chosen: Arguments ``include``, ``exclude`` and ``use_gitignore`` of the Document.

    Raises:
        ConfigError: If the rank is none of those, or other ranks have other settings.
    """
    if not 0 <= rank < ranks:
        raise ConfigError(f"rank must be an integer from 0 to {ranks - 1}; got {rank}.")
    given = {name: value for name, value in asdict(project).items() if name not in ("store", "folder")}
    settings = {"folder": str(project.folder), "ranks": ranks, "chosen": dict(chosen), **given}
    (out / "finished").mkdir(parents=True, exist_ok=True)
    known = _settings(out)
    if known not in (None, settings):
        raise ConfigError(f"{out} has the results of other settings: {known}; got {settings}. Pass another --out.")
    _write(out / _CONFIG, json.dumps(settings))
    with Document(project.folder, **chosen) as listing:
        found = listing.reader.indexer.dataset.list_files().found
    own = [file for file in found if shard_of(file.identity, ranks) == rank]
    embed = make_embedder(project.embed) if project.embed else None
    batches = skipped = failed = 0
    for some in batches_reaching(own, _size, _BATCH_BYTES, most_items=_BATCH_FILES):
        marker = out / "finished" / digest([part for one in some for part in _seen(one)])
        batches += 1
        if marker.exists():
            skipped += 1
            continue
        files = {file.identity: file.path for file in some}
        fields = label_fields() if project.fields else None
        with Document(None, embed, doc_files=files, doc_fields=fields, launcher=_launcher(out)) as docs:
            try:
                docs.activate_group(project.group, embed_keys=docs.embed_keys)
            except IngestionError:
                if not docs.last_report.failed:
                    raise
            failed += len(docs.last_report.failed)
        _write(marker, "")
    _write(out / f"rank-{rank}", "")
    return RankReport(len(own), batches, skipped, failed)


def open_merged(out: Path, store: Path | None) -> tuple[Project, Document]:
    """Open the Document that ingests the results of ranks; what is not among them is done here.

    Raises:
        ConfigError: If a rank has not finished; the message names it.
    """
    settings = _settings(out)
    if settings is None:
        raise ConfigError(f"{out} has no results of ranks. Start them: lazyrag worker PATH --rank 0 --of N --out {out}")
    ranks, chosen, folder = settings.pop("ranks"), settings.pop("chosen"), Path(settings.pop("folder"))
    missing = [rank for rank in range(ranks) if not (out / f"rank-{rank}").exists()]
    if missing:
        again = f"lazyrag worker {folder} --rank {missing[0]} --of {ranks} --out {out}"
        raise ConfigError(
            f"Ranks {', '.join(map(str, missing))} of {ranks} have not finished. Start them again: {again}"
        )
    project = new_project(folder, store).with_options(**settings)
    return project, project.open(write=True, launcher=_launcher(out), **chosen)


def _settings(out: Path) -> dict[str, Any] | None:
    path = out / _CONFIG
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _size(file: FoundFile) -> int:
    return file.signature.size if file.signature is not None else 0


def _seen(file: FoundFile) -> tuple[str, str, str]:
    """What tells that a file is the one that a batch had."""
    seen = file.signature
    return (file.identity, "", "") if seen is None else (file.identity, str(seen.size), str(seen.mtime_ns))
