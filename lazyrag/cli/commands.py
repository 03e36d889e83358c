"""The commands of ``lazyrag``."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lazyrag._version import __version__
from lazyrag.cli import output, terminal
from lazyrag.cli.output import FAILED, INTERRUPTED, OK, USAGE, Output
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.errors import (
    ConfigError,
    IngestionError,
    IngestionWarning,
    LazyRAGError,
    MissingDependencyError,
)
from lazyrag.loaders.directory import STORE_FOLDER
from lazyrag.project import Project, base_url, find_project, new_project
from lazyrag.read import near_duplicates

if TYPE_CHECKING:
    from lazyrag.data.node import DocNode
    from lazyrag.document import Document, FileSelection, IngestReport
    from lazyrag.retrieval.base import BaseRetriever
    from lazyrag.server.core.access import Access

_ANALYSER = "zh"  # of "bm25_chinese", which finds English as well
_RETRIEVERS = ("keyword", "vector", "hybrid")
_INGESTING = {"index", "sync", "repair"}
_EPILOGUE = (
    "Exit status: 0 done, 1 failed, 2 invalid arguments, 130 interrupted. See docs/command-line.md."
)


def run(arguments: Sequence[str]) -> int:
    """Run the command, and return the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        warnings.simplefilter("default", UserWarning)
        warnings.simplefilter("ignore", IngestionWarning)  # reports show what failed
        try:
            return app.main(list(arguments), prog_name="lazyrag", standalone_mode=False) or OK
        except click.ClickException as exc:
            if "--json" in arguments:
                name = (
                    getattr(getattr(exc, "ctx", None), "command_path", "").partition(" ")[2]
                    or "lazyrag"
                )
                output.write([output.as_json(name, None, click.UsageError(exc.format_message()))])
            else:
                exc.show()
            return exc.exit_code
        except (click.Abort, KeyboardInterrupt):
            stored = " What is ingested is stored; lazyrag sync continues from there."
            again = " Complete files are kept; the same command fetches the rest."
            first = arguments[0] if arguments else ""
            _complain(
                f"Interrupted.{stored if first in _INGESTING else again if first == 'model' else ''}"
            )
            return INTERRUPTED
        except OSError as exc:  # of the output: a command reports its own
            if "--debug" in arguments:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is buffered
            if isinstance(exc, BrokenPipeError):  # of `lazyrag search ... | head`
                return OK
            _complain(f"Error: The output cannot be written: {_message(exc)}")
            return FAILED


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _complain(f"Warning: {message}")


def _complain(text: str) -> None:
    sys.stderr.write(f"{terminal.printable(text)}\n")
    sys.stderr.flush()


class _Command(click.Command):
    """A command whose function returns an `Output`; its errors are one line, or JSON."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        help_json = "Print one JSON object for programs."
        self.params += [
            click.Option(["--json", "as_json"], is_flag=True, help=help_json),
            click.Option(["--debug"], is_flag=True, help="Show the traceback of an error."),
        ]

    def invoke(self, ctx: click.Context) -> int:
        """Call the function, and print what it returns."""
        as_json = ctx.params.pop("as_json")
        debug = ctx.params.pop("debug")
        ctx.obj = as_json
        name = ctx.command_path.partition(" ")[2]
        try:
            found: Output = super().invoke(ctx)
            text = [output.as_json(name, found.result)] if as_json else found.lines
        except (click.ClickException, click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as exc:
            if debug:
                raise
            if as_json:
                output.write([output.as_json(name, None, exc)])
            else:
                _complain(f"Error: {_message(exc)}")
            return USAGE if name == "eval" else FAILED  # there, 1 means that a threshold is missed
        output.write(text)
        return found.status


def _message(exc: Exception) -> str:
    """An error in one line."""
    if isinstance(exc, LazyRAGError):
        return output.at_command_line(str(exc))
    if isinstance(exc, OSError) and exc.strerror:
        return f"{exc.strerror}: {exc.filename}" if exc.filename else exc.strerror
    return f"{type(exc).__name__}: {exc} (run it with --debug for the traceback)"


@click.group(
    epilog=_EPILOGUE,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, message="lazyrag %(version)s")
def app() -> None:
    """Search a folder of files, and answer questions from it with citations.

    \b
    lazyrag index            index the current folder, or PATH
    lazyrag search "tea"     find passages
    lazyrag sync             ingest what changed
    """  # noqa: D301  click's mark of a paragraph to leave as it is


_PATH = click.Path(path_type=Path, readable=False)  # the commands say what cannot be read
_store = click.option("--store", type=_PATH, help="Folder of the index instead of .lazyrag.")
_filters = click.option(
    "--filters",
    "--where",
    "filters",
    multiple=True,
    metavar="CONDITION",
    help="Filter, such as 'file_type in .pdf,.docx'. Repeatable.",
)
_topk = click.option(
    "-k",
    "--topk",
    type=click.IntRange(1),
    default=6,
    metavar="N",
    help="Number of hits. Default: 6.",
)
_group = click.option(
    "--group", metavar="GROUP", help="Node group to search: FineChunk, MediumChunk or CoarseChunk."
)
_retriever = click.option(
    "--retriever",
    type=click.Choice(_RETRIEVERS),
    help="Default: hybrid if the index has embeddings, else keyword.",
)
_launcher = click.option(
    "--launcher",
    metavar="LAUNCHER",
    callback=lambda _, __, given: int(given) if str(given).isdecimal() else given,
    help=(
        "Where to load, chunk and embed: a number of processes, dask://HOST:PORT, ray or"
        " ray://HOST:PORT."
    ),
)
_loading = click.option(
    "--loading",
    metavar="LIMITS",
    help=(
        "How the child processes read files: processes=1,time_s=300,memory_bytes=4294967296;"
        " processes=0 for none."
    ),
)
_plan = click.option(
    "--plan", is_flag=True, help="Only show what would be done, with model calls and tokens."
)


# Ingest


@app.command(cls=_Command)
@click.argument("path", metavar="[PATH]", nargs=-1, type=_PATH)
@_store
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
    "--gitignore/--no-gitignore", default=None, help="Leave out what .gitignore files name."
)
@click.option(
    "--ocr/--no-ocr", default=None, help="Read scanned pages and images by text recognition."
)
@_launcher
@_loading
@_plan
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
    project = project.with_options(ocr=None if ocr is None else "rapidocr" if ocr else "")
    from lazyrag.document import Document, FileSelection

    files = FileSelection(_patterns(include), _patterns(exclude), gitignore)
    if plan:
        return _planned(project, loading=loading, files=files)
    _require_group(Document(), project.group)  # before anything is written
    above = (
        one for one in project.folder.parents if (one / STORE_FOLDER / "config.json").is_file()
    )
    if not project.store.exists() and (outer := next(above, None)) is not None:
        _complain(
            f"Note: {outer} has an index already. In {project.folder}, commands use the new one"
            " from now on."
        )
    with project.open(write=True, launcher=launcher, loading=loading, files=files) as docs:
        project.save()
        found = _built(docs, project)
        if docs.last_report.added and found.status == OK:
            return replace(found, lines=[*found.lines, 'Next: lazyrag search "your question"'])
        return found


def _patterns(given: tuple[str, ...]) -> list[str] | None:
    """Patterns of an option; [] if it was given as '', None if it was not given."""
    return [one for one in given if one.strip()] if given else None


def _built(docs: Document, project: Project) -> Output:
    """Build the group of a project and its indexes; report it."""
    try:
        docs.activate_group(project.group, analysers=[_ANALYSER])  # first: it needs no model
        if docs.reader.embed_keys:
            docs.activate_group(project.group, embed_keys=docs.reader.embed_keys)
    except IngestionError:
        if not docs.last_report.failed:
            raise
    found = _reported(docs, project)
    if any(one.stage.startswith("embed ") for one in docs.last_report.failed):
        msg = "Vectors are missing; keyword search works. To try again: lazyrag sync"
        return replace(found, lines=[*found.lines, *terminal.wrapped(msg, terminal.width())])
    return found


def _require_group(docs: Document, group: str) -> None:
    groups = [one for one in docs.groups if one != LAZY_ROOT_NAME]  # whole files are no passages
    if group not in groups:
        from lazyrag.errors import known_names

        raise ConfigError(f"Unknown node group {group!r}. {known_names(group, groups)}")


def _reported(docs: Document, project: Project) -> Output:
    report: IngestReport = docs.last_report
    status = docs.status()
    nodes = {one.name: one.nodes for one in status.groups}.get(project.group, 0)
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
        lines += terminal.wrapped(
            f"Nothing to search in {terminal.home(project.folder)}{why}.", terminal.width()
        )
    return Output(result, lines, output.status_of(report))


@app.command(cls=_Command)
@_store
@click.option(
    "--delete", is_flag=True, help="Delete the documents of missing files, however many there are."
)
@click.option("--retry", is_flag=True, help="Read files again that ended their loading process.")
@_launcher
@_loading
@_plan
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
    from lazyrag.ingest.sync import MAX_DELETED

    project = find_project(store)
    if plan or diff:
        return _planned(project, diff=diff, loading=loading)
    with project.open(write=True, launcher=launcher, loading=loading) as docs:
        try:
            docs.sync(max_deleted=1.0 if delete else MAX_DELETED, retry=retry)
        except IngestionError:
            if not docs.last_report.failed:
                raise
        return _built(docs, project)


def _planned(
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
    new = (
        project.with_readers(Document(project.folder, files=files, **parse_loading(loading)))
        if is_new
        else None
    )
    with new or project.open(write=True, loading=loading, files=files) as docs:
        _require_group(docs, project.group)
        plan = docs.plan(diff=diff)
        tokens = sum(step.tokens for step in plan.steps if step.step == "load")
        rows = [["step", "files", "passages", "tokens", "model calls"]]
        rows += [
            [
                step.step,
                str(step.documents),
                f"~{step.nodes}",
                f"~{step.tokens}",
                f"~{step.calls}" if step.calls else "",
            ]
            for step in plan.steps
        ]
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
            {one.step: one.reason for one in plan.steps if one.reason and one.step != "load"}
        )
        for one in plan.diffs:
            lines += terminal.wrapped(str(one), terminal.width(), rest="  ")
        if is_new and project.embed:
            lines += terminal.wrapped(
                f"Then about {tokens} tokens are embedded by {project.embed}.", terminal.width()
            )
        lines.append("Nothing was done.")
        return Output(result, lines, output.status_of(plan.files))


@app.command(cls=_Command)
@_store
@click.option(
    "--poll",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Scan at this interval.",
)
@_loading
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

    def complain(exc: Exception) -> None:
        failed.set()
        _complain(f"Error: {_message(exc)}")

    with (
        project.open(write=True, loading=loading) as docs,
        docs.watch(poll_s=poll, on_report=show, on_error=complain),
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


_OPEN = (
    "There is no token yet: every program on this machine may do everything, and so may clients of"
    " a proxy that sends no X-Forwarded-For. See lazyrag token create --help."
)


@app.command(cls=_Command)
@click.argument("path", default=".", metavar="[PATH|CONFIG]", type=_PATH)
@_store
@click.option("--host", help="Address to listen on. Default: 127.0.0.1; any other needs a token.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Default: 8400, or a free one if that is taken."
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    help="Web processes. Default: one per core, at most 4.",
)
@click.option("--root-path", help="Path of a proxy in front of the service, such as /rag.")
@click.pass_obj
def serve(as_json: bool, /, path: Path, store: Path | None, **options: Any) -> Output:
    """Serve the folder PATH over HTTP until Ctrl-C.

    Its index is kept in sync. CONFIG is a .toml file that names several folders, models and limits
    instead: see docs/service.md.
    """
    from lazyrag.server import load

    def show(url: str, needs_token: bool) -> None:
        lines = [f"Listening on {url}. Open it in a browser; Ctrl-C ends it."]
        if not needs_token:
            lines += terminal.wrapped(_OPEN, terminal.width())
        output.write(
            [output.as_json("serve", {"url": url, "needs_token": needs_token})]
            if as_json
            else lines
        )

    load("supervisor", "lazyrag serve").serve(path, store, options, show)
    return Output({"stopped": True}, [])


@app.command(cls=_Command)
@click.argument("path", default=".", metavar="[PATH|CONFIG]", type=_PATH)
@click.option(
    "--url", help="Pass the calls on to this service instead, such as http://127.0.0.1:8400."
)
@click.option(
    "--token", envvar="LAZYRAG_TOKEN", help="Token of that service. Default: LAZYRAG_TOKEN."
)
@click.option(
    "--write",
    is_flag=True,
    help="With --url: also offer the tool add_text. Without it, nothing is changed.",
)
def mcp(path: Path, url: str | None, token: str | None, write: bool) -> Output:
    """Serve the index of PATH to an MCP client.

    Assistants start this command, and talk to it on its standard input and output: see docs/mcp.md.
    """
    from lazyrag.server import load

    load("mcp", "lazyrag mcp").serve_stdio(path, url, token, writes=write)
    return Output({"stopped": True}, [])


# Query


def _readable(project: Project, kind: str | None) -> Document:
    """A project's Document to search; without its embedding model if that is missing and no
    retriever needs it.
    """
    try:
        return project.open(embeds=kind != "keyword")
    except (ConfigError, MissingDependencyError) as exc:
        if kind is not None or not project.embed:
            raise
        _complain(f"Note: keyword search only. {exc}")
        return project.open(embeds=False)


def _retriever_of(
    docs: Document, group: str, kind: str | None, topk: int
) -> BaseRetriever[list[DocNode]]:
    """The retriever that was chosen; by default that of `RAGPipeline.over`."""
    from lazyrag.retrieval import HybridRetriever, Retriever

    _require_group(docs, group)
    if kind not in (None, "keyword") and not docs.reader.embed_keys:
        raise ConfigError(f"--retriever {kind} needs embeddings. Run: lazyrag index --embed MODEL")
    indexes = {one.name: one.indexes for one in docs.status().groups if one.is_complete}.get(
        group, ()
    )
    if kind is None:
        kind = (
            "hybrid"
            if docs.reader.embed_keys and {*docs.reader.embed_keys} <= {*indexes}
            else "keyword"
        )
        if kind == "keyword" and docs.reader.embed_keys and _ANALYSER in indexes:
            _complain("Note: keyword search only, as vectors are missing. Run: lazyrag sync")
    needed = (
        {_ANALYSER}
        if kind == "keyword"
        else {*docs.reader.embed_keys, *((_ANALYSER,) if kind != "vector" else ())}
    )
    if not needed <= {*indexes}:
        raise ConfigError(
            f"The node group {group} is not indexed yet. Run: lazyrag index --group {group}"
        )
    if kind == "keyword":
        return Retriever(docs, group, "bm25_chinese", topk=topk)
    return (
        Retriever(docs, group, topk=topk)
        if kind == "vector"
        else HybridRetriever.over(docs, group, topk)
    )


@app.command(cls=_Command)
@click.argument("words", metavar="QUERY", nargs=-1, required=True)
@_store
@_topk
@_filters
@_group
@_retriever
@click.option("--full", is_flag=True, help="Show complete passages.")
@click.option(
    "--explain", is_flag=True, help="Show the rank and score of each passage in every stage."
)
def search(
    words: tuple[str, ...],
    store: Path | None,
    topk: int,
    filters: tuple[str, ...],
    group: str | None,
    retriever: str | None,
    full: bool,
    explain: bool,
) -> Output:
    """Find the best passages for QUERY: a question or keywords."""
    query = " ".join(words)
    project = find_project(store).with_options(group=group)
    with _readable(project, retriever) as docs:
        search = _retriever_of(docs, project.group, retriever, topk)
        condition = output.parse_filters(filters, docs.reader.fields)
        explanation = search.explain(query, condition) if explain else None
        nodes = search(query, condition)
        result: dict[str, Any] = {"query": query, "hits": _hits(nodes)}
        lines: list[str] = []
        for rank, node in enumerate(nodes, start=1):
            lines += ["", *output.hit_lines(rank, node, query, full=full)]
            if explanation is not None:
                lines += output.explained_lines(explanation[rank - 1], "   ")
        if explanation is not None:
            result["explanation"] = explanation.to_dict()
        return Output(result, lines[1:] or _nothing_found(docs, query, filters))


def _hits(nodes: Sequence[DocNode]) -> list[dict[str, Any]]:
    from lazyrag.data.result import Hit

    return [output.hit_dict(rank, Hit.from_node(node)) for rank, node in enumerate(nodes, start=1)]


def _nothing_found(docs: Document, query: str, filters: Sequence[str]) -> list[str]:
    count = docs.status().documents
    among = f"those of {count} files that --filters allows" if filters else f"{count} files"
    text = f"Nothing found for {terminal.printable(query)!r} in {among}."
    return terminal.wrapped(text, terminal.width())


@app.command(cls=_Command)
@click.argument("words", metavar="QUESTION", nargs=-1, required=True)
@_store
@click.option(
    "--model", envvar="LAZYRAG_MODEL", metavar="NAME", help="Chat model. Default: LAZYRAG_MODEL."
)
@_topk
@_filters
@_group
@_retriever
def ask(
    words: tuple[str, ...],
    store: Path | None,
    model: str | None,
    topk: int,
    filters: tuple[str, ...],
    group: str | None,
    retriever: str | None,
) -> Output:
    """Answer QUESTION from the files, with citations.

    The chat model is called at an OpenAI-compatible endpoint: OPENAI_BASE_URL, OPENAI_API_KEY.
    Without a model, show the passages that it would read.
    """
    question = " ".join(words)
    project = find_project(store).with_options(group=group)
    with _readable(project, retriever) as docs:
        search = _retriever_of(docs, project.group, retriever, topk)
        condition = output.parse_filters(filters, docs.reader.fields)
        if model:
            return _answered(search, question, model, topk, condition)
        nodes = search(question, condition)
        lines: list[str] = []
        for rank, node in enumerate(nodes, start=1):
            lines += [*output.hit_lines(rank, node, question, label=f"[{rank}]"), ""]
        lines = lines or [*_nothing_found(docs, question, filters), ""]
        hint = (
            "For an answer, set a chat model: --model NAME, with OPENAI_BASE_URL and"
            " OPENAI_API_KEY."
        )
        result = {
            "question": question,
            "answer": None,
            "citations": [],
            "hits": _hits(nodes),
            "problems": [hint],
        }
        return Output(result, [*lines, *terminal.wrapped(hint, terminal.width())])


def _answered(
    search: BaseRetriever[list[DocNode]], question: str, model: str, topk: int, filters: Any
) -> Output:
    from lazyrag.errors import AnswerWarning
    from lazyrag.models import HttpChatModel
    from lazyrag.pipeline import RAGPipeline

    with (
        HttpChatModel(base_url(), model, api_key=os.environ.get("OPENAI_API_KEY")) as chat,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", AnswerWarning)  # the answer lists its problems
        answer = RAGPipeline(retriever=search, generator=chat).sync.answer(
            question, top_k=topk, filters=filters
        )
    result = {
        "question": question,
        "answer": answer.text,
        "citations": answer.citations,
        "hits": [
            output.hit_dict(rank, hit) for rank, hit in enumerate(answer.context.sources, start=1)
        ],
        "problems": answer.problems,
    }
    return Output(result, output.answer_lines(answer))


@app.command(cls=_Command)
@_store
@click.option("--duplicates", is_flag=True, help="Also list files with nearly the same text.")
def status(store: Path | None, duplicates: bool) -> Output:
    """Show what is indexed, what failed, and what has changed since."""
    project = find_project(store)
    with project.open(with_files=project.folder.is_dir(), embeds=False) as docs:
        found = docs.status()
        changes = docs.sync(dry_run=True)
        alike = [[node.path for node in own] for own in near_duplicates(docs)] if duplicates else []
    failed = [
        output.failure_dict(*step, error)
        for step, error in zip(found.failed, found.errors, strict=True)
    ]
    result = {
        "folder": str(project.folder),
        "store": str(project.store),
        "documents": found.documents,
        "groups": found.groups,
        "embed": project.embed or None,
        "failed": failed,
        "writer": found.writer,
        "changes": output.report_dict(changes),
        **({"near_duplicates": alike} if duplicates else {}),
    }
    lines = terminal.wrapped(
        f"{terminal.home(project.folder)}: {found.documents} files", terminal.width()
    )
    rows = [["group", "passages", "indexes"]]
    rows += [
        [
            one.name,
            str(one.nodes),
            _indexes(one.indexes, is_current=one.is_current, is_complete=one.is_complete),
        ]
        for one in found.groups
        if one.name != LAZY_ROOT_NAME
    ]
    lines += terminal.table(rows, right=(1,), indent="  ")
    lines += output.reason_lines({one.name: one.reason for one in found.groups if one.reason})
    lines += terminal.wrapped(
        f"  Embedding model: {project.embed or 'none'}", terminal.width(), first="  ", rest="    "
    )
    if found.writer:
        lines += terminal.wrapped(f"Written now by {found.writer}.", terminal.width())
    for failure in failed[:5]:
        text = terminal.printable(
            f"failed: {failure['path']} ({failure['stage']}): {failure['message']}"
        )
        lines += terminal.wrapped(text, terminal.width(), rest="  ")
    if len(failed) > 5:
        lines.append(f"and {len(failed) - 5} more failed steps: lazyrag status --json")
    if failed:
        lines.append("Each sync tries these files again, except quarantined ones.")
    for paths in alike[:20]:
        lines += terminal.wrapped(
            f"nearly the same: {terminal.printable(', '.join(paths))}", terminal.width(), rest="  "
        )
    lines += [f"and {len(alike) - 20} more"] if len(alike) > 20 else []
    lines += ["No two files have nearly the same text."] if duplicates and not alike else []
    again = {path for path, _ in found.failed}
    changes = replace(changes, added=tuple(one for one in changes.added if one not in again))
    if output.is_changed(changes):
        reasons = {name: why for name, why in changes.reasons.items() if name not in again}
        lines += [*output.report_lines(changes), *output.reason_lines(reasons)]
        lines += (
            ["To ingest this: lazyrag sync"] if output.is_changed(changes, withheld=False) else []
        )
    return Output(result, lines)


def _indexes(names: Sequence[str], *, is_current: bool, is_complete: bool) -> str:
    words = ["keyword" if name == _ANALYSER else name for name in names]
    notes = [
        *(() if is_current else ("definition changed",)),
        *(() if is_complete else ("incomplete",)),
    ]
    return ", ".join([*words, *notes])


# Maintenance


def _checked(problems: Sequence[Any], what: str) -> Output:
    lines: list[str] = []
    for one in problems[:20]:
        lines += terminal.wrapped(terminal.printable(str(one)), terminal.width(), rest="  ")
    lines += [f"and {len(problems) - 20} more"] if len(problems) > 20 else []
    return Output({"problems": problems}, [*lines, what], FAILED if problems else OK)


@app.command(cls=_Command)
@_store
def verify(store: Path | None) -> Output:
    """Check the index against its files and stores.

    The exit status is 1 if something is missing or damaged.
    """
    project = find_project(store)
    with project.open(embeds=False) as docs:
        problems = docs.maintenance.verify()
    count = len(problems)
    return _checked(
        problems, f"{count} problems. Run: lazyrag repair" if problems else "No problems."
    )


@app.command(cls=_Command)
@_store
def repair(store: Path | None) -> Output:
    """Rebuild what verify finds missing or damaged."""
    project = find_project(store)
    with project.open(write=True) as docs:
        problems = docs.maintenance.repair()
    what = (
        f"{len(problems)} problems remain: their source is gone."
        if problems
        else "No problems remain."
    )
    return _checked(problems, what)


@app.command("export", cls=_Command)
@click.argument("folder", type=_PATH)
@_store
def export_(folder: Path, store: Path | None) -> Output:
    """Write the index to the new folder FOLDER."""
    project = find_project(store)
    place = folder.expanduser().resolve()
    if place.is_relative_to(project.folder.resolve()) and not place.is_relative_to(
        project.store.resolve()
    ):
        raise ConfigError(
            f"The next sync would index {folder}: pass a folder outside of {project.folder}."
        )
    with project.open(embeds=False) as docs:
        made = docs.maintenance.export(folder)
        count = docs.status().documents
    replace(project, store=made, folder=made).save()
    lines = terminal.wrapped(f"Exported {count} files to {terminal.home(made)}.", terminal.width())
    return Output({"export": str(made), "documents": count}, lines)


@app.command("import", cls=_Command)
@click.argument("export", type=_PATH)
@click.argument("path", default=".", type=_PATH)
@_store
def import_(export: Path, path: Path, store: Path | None) -> Output:
    """Create the index of PATH from a folder that export wrote.

    PATH is the current folder by default. No file is loaded, and nothing is embedded.
    """
    project = new_project(path, store)
    is_new = not project.store.exists()
    if is_new and (export.expanduser() / "config.json").is_file():
        try:
            project = replace(
                find_project(export.expanduser()), store=project.store, folder=project.folder
            )
        except ConfigError as exc:
            _complain(f"Note: the settings of the export are not used. {exc}")
    try:
        with project.open(write=True, with_files=False, embeds=False) as docs:
            count = docs.maintenance.import_from(export)
            docs.activate_group(project.group, analysers=[_ANALYSER])
        project.save()
    except LazyRAGError:
        if is_new:
            import shutil

            shutil.rmtree(project.store, ignore_errors=True)
        raise
    lines = terminal.wrapped(
        f"Imported {count} files into {terminal.home(project.store)}.", terminal.width()
    )
    return Output({"store": str(project.store), "documents": count}, lines)


@app.group()
def model() -> None:
    """Fetch embedding and rerank models."""


@model.command("fetch", cls=_Command)
@click.argument("name")
@click.option(
    "--file", help="ONNX file to fetch instead of the usual one, such as a smaller, quantised one."
)
def fetch(name: str, file: str | None) -> Output:
    """Download a model: its ONNX file, tokenizer and settings.

    NAME is an id on the Hugging Face hub. HF_ENDPOINT names a mirror, HF_HOME the folder of models,
    HF_TOKEN a key.

    \b
    lazyrag model fetch sentence-transformers/all-MiniLM-L6-v2    English, 91 MB
    lazyrag model fetch intfloat/multilingual-e5-small            100 languages
    """  # noqa: D301  see `app`
    from lazyrag.models.onnx.session import find_model

    found = find_model(name, download=True, file=file, on_fetch=_complain)
    graph = found.graph(file)
    lines = [
        f"{name} is in",
        f"  {terminal.home(found.path)}",
        f"Next: lazyrag index --embed {name}",
    ]
    return Output(
        {"name": name, "folder": str(found.path), "file": str(graph.relative_to(found.path))}, lines
    )


@app.group()
def token() -> None:
    """Create, list and revoke tokens of the service."""


_served = click.option(
    "--at",
    type=_PATH,
    default=Path(),
    metavar="PATH",
    help="Served folder or configuration file. Default: this folder.",
)


def _access(path: Path, *, must_exist: bool = True) -> Access:
    from lazyrag.server import load

    config = load("core.config", "lazyrag token").read_config(path)
    if must_exist and not config.server.state.exists():
        raise ConfigError(
            f"No service has run at {terminal.home(path.absolute())} yet. Name its folder with"
            " --at."
        )
    made: Access = load("core.access", "lazyrag token").Access(config.server.state)
    return made


@token.command("create", cls=_Command)
@click.option(
    "--scope", type=click.Choice(["read", "write", "admin"]), default="read", help="Default: read."
)
@click.option(
    "--label", multiple=True, metavar="LABEL", help="Only documents with this label. Repeatable."
)
@click.option("--expires", metavar="PERIOD", help="Such as 12h, 90d or 8w. Default: never.")
@click.option("--name", default="", help="Name of the token, for people.")
@_served
def create_token(
    scope: str, label: tuple[str, ...], expires: str | None, name: str, at: Path
) -> Output:
    """Create a token, and print it: it is shown once.

    As soon as there is a token, every request to the service needs one.
    """
    made, text = _access(at, must_exist=False).create(
        scope, name=name, labels=label or None, expires=expires
    )
    return Output({**asdict(made), "token": text}, [text])


@token.command("list", cls=_Command)
@_served
def list_tokens(at: Path) -> Output:
    """List the tokens, without their secrets."""
    found = _access(at).tokens()
    rows = [["ID", "SCOPE", "LABELS", "EXPIRES", "LAST USED", "NAME"]]
    for one in found:
        end = (
            "never" if one.expires is None else time.strftime("%Y-%m-%d", time.gmtime(one.expires))
        )
        end = "revoked" if one.revoked else end
        rows.append(
            [
                one.id,
                one.scope,
                ", ".join(one.labels or ["all"]),
                end,
                one.used or "never",
                one.name,
            ]
        )
    return Output({"tokens": found}, terminal.table(rows) if found else ["There are no tokens."])


@token.command("revoke", cls=_Command)
@click.argument("token_id", metavar="ID")
@_served
def revoke_token(token_id: str, at: Path) -> Output:
    """Revoke a token and its browser sessions, from the next request on."""
    _access(at).revoke(token_id)
    return Output({"id": token_id}, [f"Revoked {token_id}."])


@app.command("eval", cls=_Command)
@click.argument("golden", type=_PATH)
@click.option("--output", "-o", "path", type=_PATH, help="Also write the JSON to this file.")
@click.option(
    "--against",
    type=_PATH,
    help="Compare with the JSON of an earlier run: which is better, and is it certain?",
)
def evaluate(golden: Path, path: Path | None, against: Path | None) -> Output:
    """Measure the search with golden questions.

    GOLDEN is a .yaml, .yml or .json file with questions and thresholds. The exit status is 0 if
    every threshold is reached, 1 if one is not, 2 for invalid input.
    """
    from lazyrag.evaluation import holm, judge, read_golden

    earlier = None if against is None else _earlier_report(against)
    report = judge(read_golden(golden))
    result = report.to_dict()
    lines = output.golden_lines(report)
    if earlier is not None:
        compared = report.compared_with(earlier)
        ps = holm({name: one.p for name, one in compared.items()})
        said = {name: one.sentence(ps[name]) for name, one in compared.items()}
        result["against"] = {
            name: {**asdict(compared[name]), "p": ps[name], "sentence": said[name]} for name in said
        }
        lines += output.compared_lines(report, earlier, said)
    if path is not None:
        path.write_text(output.as_json("eval", result) + "\n", encoding="utf-8")
    return Output(result, lines, OK if report.passed else FAILED)


def _earlier_report(path: Path) -> Any:
    """The result in a file of ``--output``."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["result"]
    except OSError as exc:
        hint = "Write it with lazyrag eval --output."
        raise ConfigError(
            f"--against {str(path)!r} cannot be read ({exc.strerror}). {hint}"
        ) from exc
    except (ValueError, KeyError, TypeError) as exc:
        hint = "Pass a file that lazyrag eval --output wrote."
        raise ConfigError(f"--against {str(path)!r} is no report. {hint}") from exc


@app.command(cls=_Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> Output:
    """Print a completion script for SHELL.

    \b
    eval "$(lazyrag completion bash)"     in ~/.bashrc; likewise for zsh
    lazyrag completion fish | source      in config.fish
    """  # noqa: D301  see `app`
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise ConfigError(f"Unknown shell {shell!r}.")
    script = kind(app, {}, "lazyrag", "_LAZYRAG_COMPLETE").source()
    return Output({"script": script}, [script])
