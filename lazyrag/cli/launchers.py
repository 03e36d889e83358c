"""The commands ``lazyrag worker`` and ``lazyrag merge``: ranks without an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lazyrag.cli.commands import _PATH, _built, _Command, _patterns, _store, app
from lazyrag.cli.output import Output
from lazyrag.document.project import new_project


@app.command(cls=_Command)
@click.argument("path", type=_PATH)
@click.option("--rank", type=click.IntRange(0), required=True, metavar="R", help="Number of this rank, from 0.")
@click.option("--of", "ranks", type=click.IntRange(1), required=True, metavar="N", help="Number of ranks.")
@click.option("--out", type=_PATH, required=True, help="Folder for the results, shared by all ranks.")
@click.option("--group", metavar="GROUP", help="As of lazyrag index.")
@click.option("--embed", metavar="MODEL", help="As of lazyrag index.")
@click.option("--include", multiple=True, metavar="PATTERN", help="As of lazyrag index.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="As of lazyrag index.")
def worker(path: Path, rank: int, ranks: int, out: Path, include: Any, exclude: Any, **options: Any) -> Output:
    """Load, chunk and embed the files of one rank of N.

    Start N ranks on any machines that see PATH and the folder of --out, then run `lazyrag merge`. A rank that was
    interrupted continues when it is started again.
    """
    from lazyrag.launchers.ranks import run_rank

    project = new_project(path).with_options(**options)
    chosen = {"include": _patterns(include), "exclude": _patterns(exclude)}
    done = run_rank(project, rank, ranks, out, chosen)
    lines = [
        f"Rank {rank} of {ranks}: {done.documents} files in {done.batches} batches, {done.skipped} of them before."
    ]
    return Output(done._asdict(), [*lines, *([f"{done.failed} failed; the merge tries again."] if done.failed else [])])


@app.command(cls=_Command)
@click.argument("out", type=_PATH)
@_store
def merge(out: Path, store: Path | None) -> Output:
    """Index what the ranks of worker left in OUT."""
    from lazyrag.launchers.ranks import open_merged

    project, docs = open_merged(out, store)
    with docs:
        project.save()
        return _built(docs, project)
