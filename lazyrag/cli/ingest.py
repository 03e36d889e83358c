"""The commands that build an index and keep it in sync."""

from __future__ import annotations

import shlex
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lazyrag.cli import output, terminal
from lazyrag.cli.base import (
    PATH,
    app,
    build_group,
    complain,
    message_of,
    require_group,
    store_option,
)
from lazyrag.cli.output import FAILED, OK, Output
from lazyrag.errors import IngestionError
from lazyrag.loaders.directory import STORE_FOLDER
from lazyrag.project import Project, find_project, new_project

if TYPE_CHECKING:
    from lazyrag.document import Document, FileSelection, IngestReport


_launcher_option = click.option(
    "--launcher",
    metavar="LAUNCHER",
    callback=lambda _, __, text: int(text) if str(text).isdecimal() else text,
    help=(
        "Where to load, chunk and embed: a number of processes, dask://HOST:PORT, ray or"
        " ray://HOST:PORT."
    ),
)
_loading_option = click.option(
    "--loading",
    metavar="LIMITS",
    help=(
        "How the child processes read files: processes=1,time_s=300,memory_bytes=4294967296;"
        " processes=0 for none."
    ),
)
_plan_option = click.option(
    "--plan", is_flag=True, help="Only show what would be done, with model calls and tokens."
)


@app.command()
@click.argument("path", metavar="[PATH]", nargs=-1, type=PATH)
@store_option
@click.option(
    "--group", metavar="GROUP", help="Node group: FineChunk, MediumChunk (default) or CoarseChunk."
)
@click.option(
    "--embed",
    metavar="MODEL",
    help="Embedding model: a folder, the id of a fetched one, or openai:NAME; '' for none.",
)
@click.option(
    "--include",
    multiple=True,
    metavar="PATTERN",
    help="Only these files, as in .gitignore; '' for all.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Leave out these files and folders; '' for none.",
)
@click.option(
    "--gitignore/--no-gitignore",
    default=None,
    help="Leave out what .gitignore files name; those above PATH do not count. Default: in a git"
    " work tree.",
)
@click.option(
    "--ocr/--no-ocr", default=None, help="Read scanned pages and images by text recognition."
)
@_launcher_option
@_loading_option
@_plan_option
def index(
    path: tuple[Path, ...],
    store: Path | None,
    group: str | None,
    embed: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    gitignore: bool | None,
    ocr: bool | None,
    launcher: int | str | None,
    loading: str | None,
    plan: bool,
) -> Output:
    """Index the folder PATH.

    PATH is the current folder by default. The index is stored in PATH/.lazyrag. Later commands find
    it from any subfolder and use the same settings. Files and folders listed in a .lazyragignore
    are left out.
    """
    if len(path) > 1:
        msg = f"index takes one folder; got {len(path)} paths."
        raise click.UsageError(
            f"{msg} For some files of a folder: lazyrag index FOLDER --include PATTERN"
        )
    project = new_project(path[0] if path else Path(), store).with_options(group=group, embed=embed)
    if ocr is not None:
        project = project.with_options(ocr="rapidocr" if ocr else "")
    from lazyrag.document import Document, FileSelection

    files = FileSelection(_patterns(include), _patterns(exclude), gitignore)
    if plan:
        return _plan_sync(project, loading=loading, files=files)

    require_group(Document(), project.group)  # before anything is written
    if not project.store.exists():
        _note_outer_index(project.folder)
        if project.embed and embed is None:
            complain(f"Note: the embedding model is {project.embed}, of lazyrag config.")
    with project.open(write=True, launcher=launcher, loading=loading, files=files) as docs:
        project.save()
        outcome = _build(docs, project)
        if docs.last_report.added and outcome.status == OK:
            is_default = project.store == project.folder / STORE_FOLDER
            is_near = is_default and Path.cwd().is_relative_to(project.folder)
            option = "" if is_near else f" --store {shlex.quote(str(project.store))}"
            following = f'Next: lazyrag search "your question"{option}'
            return replace(outcome, lines=[*outcome.lines, following])
        return outcome


def _note_outer_index(folder: Path) -> None:
    """Say that a folder above has an index, which commands in this one no longer use."""
    for parent in folder.parents:
        if (parent / STORE_FOLDER / "config.json").is_file():
            complain(
                f"Note: {parent} has an index already. In {folder}, commands use the new one"
                " from now on."
            )
            return


def _patterns(patterns: tuple[str, ...]) -> list[str] | None:
    """Patterns of an option; [] if it was given as '', None if it was not given."""
    return [pattern for pattern in patterns if pattern.strip()] if patterns else None


def _build(docs: Document, project: Project) -> Output:
    """Build the group of a project and its indexes; report it."""
    try:
        build_group(docs, project.group)
    except IngestionError:
        if not docs.last_report.failed:
            raise
    outcome = _report_output(docs, project)
    if any(failure.stage.startswith("embed ") for failure in docs.last_report.failed):
        msg = "Vectors are missing; keyword search works. To try again: lazyrag sync"
        return replace(outcome, lines=[*outcome.lines, *terminal.wrap(msg)])
    return outcome


def _report_output(docs: Document, project: Project) -> Output:
    report: IngestReport = docs.last_report
    status = docs.status()
    nodes = {info.name: info.nodes for info in status.groups}.get(project.group, 0)
    result = {
        "folder": str(project.folder),
        "store": str(project.store),
        "report": output.report_dict(report),
        "documents": status.documents,
        "nodes": nodes,
    }
    lines = [*output.report_lines(report), *output.unread_lines(report)]
    if status.documents:
        lines.append(f"{status.documents} files, {nodes} passages.")
    else:
        why = "" if report.skipped or report.failed else ": the folder has no files"
        lines += terminal.wrap(f"Nothing to search in {terminal.home(project.folder)}{why}.")
    return Output(result, lines, output.status_of(report))


@app.command()
@store_option
@click.option(
    "--delete", is_flag=True, help="Delete the documents of missing files, however many there are."
)
@click.option("--retry", is_flag=True, help="Read files again that ended their loading process.")
@_launcher_option
@_loading_option
@_plan_option
@click.option(
    "--diff", is_flag=True, help="With --plan, also count the passages that stay, come and go."
)
def sync(
    store: Path | None,
    delete: bool,
    retry: bool,
    launcher: int | str | None,
    loading: str | None,
    plan: bool,
    diff: bool,
) -> Output:
    """Ingest what changed since the last time."""
    from lazyrag.ingest.changes import MAX_DELETED

    project = find_project(store)
    if plan or diff:
        return _plan_sync(project, diff=diff, loading=loading)
    with project.open(write=True, launcher=launcher, loading=loading) as docs:
        try:
            docs.sync(max_deleted=1.0 if delete else MAX_DELETED, retry=retry)
        except IngestionError:
            if not docs.last_report.failed:
                raise
        return _build(docs, project)


def _plan_sync(
    project: Project,
    *,
    loading: str | None,
    diff: bool = False,
    files: FileSelection | None = None,
) -> Output:
    """What a sync would do; nothing is written, and no model is called."""
    from lazyrag.document import Document
    from lazyrag.ingest.load_files import parse_loading

    is_new = not project.exists
    if is_new:
        files = project.choose_files(files)
        docs = project.with_readers(Document(project.folder, files=files, **parse_loading(loading)))
    else:
        docs = project.open(write=True, loading=loading, files=files)
    with docs:
        require_group(docs, project.group)
        plan = docs.plan(diff=diff)
        tokens = sum(step.tokens for step in plan.steps if step.step == "load")
        rows = [["step", "files", "passages", "tokens", "model calls"]]
        for step in plan.steps:
            calls = f"~{step.calls}" if step.calls else ""
            numbers = [str(step.documents), f"~{step.nodes}", f"~{step.tokens}", calls]
            rows.append([step.step, *numbers])
        result = {
            "folder": str(project.folder),
            "report": output.report_dict(plan.files),
            "steps": plan.steps,
            "diffs": plan.diffs,
            "calls": plan.calls,
            "tokens": tokens,
            "formats": plan.formats,
        }
        lines = [*output.report_lines(plan.files), *output.reason_lines(plan.files.reasons)]
        lines += output.format_lines(plan.formats)
        lines += output.unread_lines(plan.files)
        lines += terminal.table(rows, right=(1, 2, 3, 4)) if plan.steps else []
        lines += output.reason_lines(
            {step.step: step.reason for step in plan.steps if step.reason and step.step != "load"}
        )
        for difference in plan.diffs:
            lines += terminal.wrap(str(difference), rest="  ")
        if is_new and project.embed:
            lines += terminal.wrap(f"Then about {tokens} tokens are embedded by {project.embed}.")
        lines.append("Nothing was done.")
        return Output(result, lines, output.status_of(plan.files))


@app.command()
@store_option
@click.option(
    "--poll",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Scan at this interval.",
)
@_loading_option
@click.pass_context
def watch(
    ctx: click.Context, store: Path | None, poll: float | None, loading: str | None
) -> Output:
    """Keep the index in sync until Ctrl-C. With --json, one object for each sync."""
    project = find_project(store)
    as_json: bool = ctx.obj
    failed = threading.Event()

    def show(report: IngestReport) -> None:
        if as_json:
            output.write([output.as_json("watch", {"report": output.report_dict(report)})])
        elif output.is_changed(report):
            output.write(output.report_lines(report))

    def report_error(exc: Exception) -> None:
        failed.set()
        complain(f"Error: {message_of(exc)}")

    with (
        project.open(write=True, loading=loading) as docs,
        docs.watch(poll_s=poll, on_report=show, on_error=report_error),
    ):
        if not as_json:
            output.write([f"Watching {terminal.home(project.folder)}. Ctrl-C ends it."])
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    return Output(
        {"stopped": True},
        ["Stopped. What is ingested is stored."],
        FAILED if failed.is_set() else OK,
    )
