"""The commands that search, answer, measure, and show the state of an index."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lazyrag.cli import output, terminal
from lazyrag.cli.base import ANALYSER, PATH, app, complain, require_group, store_option
from lazyrag.cli.output import FAILED, OK, Output
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.errors import ConfigError, MissingDependencyError
from lazyrag.project import Project, base_url, find_project
from lazyrag.read import near_duplicates

if TYPE_CHECKING:
    from lazyrag.data.node import DocNode
    from lazyrag.document import Document, DocumentStatus, GroupStatus, IngestReport
    from lazyrag.retrieval.base import BaseRetriever
    from lazyrag.types import JsonObject

_RETRIEVERS = ("keyword", "vector", "hybrid")
_filters_option = click.option(
    "--filters",
    "--where",
    "filters",
    multiple=True,
    metavar="CONDITION",
    help="Filter, such as 'file_type in .pdf,.docx'. Repeatable.",
)
_topk_option = click.option(
    "-k",
    "--topk",
    type=click.IntRange(1),
    default=6,
    metavar="N",
    help="Number of hits. Default: 6.",
)
_group_option = click.option(
    "--group", metavar="GROUP", help="Node group to search: FineChunk, MediumChunk or CoarseChunk."
)
_retriever_option = click.option(
    "--retriever",
    type=click.Choice(_RETRIEVERS),
    help="Default: hybrid if the index has embeddings, else keyword.",
)


def _open_readable(project: Project, kind: str | None) -> Document:
    """A project's Document to search; without its embedding model if that is missing and no
    retriever needs it.
    """
    try:
        return project.open(embeds=kind != "keyword")
    except (ConfigError, MissingDependencyError) as exc:
        if kind is not None or not project.embed:
            raise
        complain(f"Note: keyword search only. {exc}")
        return project.open(embeds=False)


def _make_retriever(
    docs: Document, group: str, kind: str | None, topk: int
) -> BaseRetriever[list[DocNode]]:
    """The retriever that was chosen; by default that of `RAGPipeline.over`."""
    from lazyrag.retrieval import HybridRetriever, Retriever

    require_group(docs, group)
    if kind not in (None, "keyword") and not docs.reader.embed_keys:
        raise ConfigError(f"--retriever {kind} needs embeddings. Run: lazyrag index --embed MODEL")
    complete = {state.name: state.indexes for state in docs.status().groups if state.is_complete}
    indexes = set(complete.get(group, ()))
    vectors = set(docs.reader.embed_keys)
    if kind is None:
        kind = "hybrid" if vectors and vectors <= indexes else "keyword"
        if kind == "keyword" and vectors and ANALYSER in indexes:
            complain("Note: keyword search only, as vectors are missing. Run: lazyrag sync")
    needed = {"keyword": {ANALYSER}, "vector": vectors, "hybrid": {ANALYSER, *vectors}}[kind]
    if not needed <= indexes:
        raise ConfigError(
            f"The node group {group} is not indexed yet. Run: lazyrag index --group {group}"
        )
    if kind == "hybrid":
        return HybridRetriever.over(docs, group, topk)
    similarity = "bm25_chinese" if kind == "keyword" else None
    return Retriever(docs, group, similarity, topk=topk)


@app.command()
@click.argument("words", metavar="QUERY", nargs=-1, required=True)
@store_option
@_topk_option
@_filters_option
@_group_option
@_retriever_option
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
    with _open_readable(project, retriever) as docs:
        search = _make_retriever(docs, project.group, retriever, topk)
        condition = output.parse_filters(filters, docs.reader.fields)
        explanation = search.explain(query, condition) if explain else None
        nodes = search(query, condition)
        result: JsonObject = {"query": query, "hits": _hits(nodes)}
        lines: list[str] = []
        for rank, node in enumerate(nodes, start=1):
            lines += ["", *output.hit_lines(rank, node, query, full=full)]
            if explanation is not None:
                lines += output.explained_lines(explanation[rank - 1], "   ")
        if explanation is not None:
            result["explanation"] = explanation.to_dict()
        return Output(result, lines[1:] or _nothing_found(docs, query, filters))


def _hits(nodes: Sequence[DocNode]) -> list[JsonObject]:
    from lazyrag.data.result import Hit

    return [output.hit_dict(rank, Hit.from_node(node)) for rank, node in enumerate(nodes, start=1)]


def _nothing_found(docs: Document, query: str, filters: Sequence[str]) -> list[str]:
    count = docs.status().documents
    among = f"those of {count} files that --filters allows" if filters else f"{count} files"
    text = f"Nothing found for {terminal.printable(query)!r} in {among}."
    return terminal.wrap(text)


@app.command()
@click.argument("words", metavar="QUESTION", nargs=-1, required=True)
@store_option
@click.option(
    "--model", envvar="LAZYRAG_MODEL", metavar="NAME", help="Chat model. Default: LAZYRAG_MODEL."
)
@_topk_option
@_filters_option
@_group_option
@_retriever_option
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
    with _open_readable(project, retriever) as docs:
        search = _make_retriever(docs, project.group, retriever, topk)
        condition = output.parse_filters(filters, docs.reader.fields)
        if model:
            return _answer(search, question, model, topk, condition)
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
        return Output(result, [*lines, *terminal.wrap(hint)])


def _answer(
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


@app.command()
@store_option
@click.option("--duplicates", is_flag=True, help="Also list files with nearly the same text.")
def status(store: Path | None, duplicates: bool) -> Output:
    """Show what is indexed, what failed, and what has changed since."""
    project = find_project(store)
    with project.open(with_files=project.folder.is_dir(), embeds=False) as docs:
        state = docs.status()
        changes = docs.sync(dry_run=True)
        clusters = [*map(_paths_of, near_duplicates(docs))] if duplicates else []
    failures = [
        output.failure_dict(*step, error)
        for step, error in zip(state.failed, state.errors, strict=True)
    ]
    result = {
        "folder": str(project.folder),
        "store": str(project.store),
        "documents": state.documents,
        "groups": state.groups,
        "embed": project.embed or None,
        "failed": failures,
        "writer": state.writer,
        "changes": output.report_dict(changes),
    }
    lines = [*_state_lines(project, state), *_failure_lines(failures)]
    if duplicates:
        result["near_duplicates"] = clusters
        lines += _duplicate_lines(clusters)
    lines += _change_lines(changes, {path for path, _ in state.failed})
    return Output(result, lines)


def _paths_of(nodes: Sequence[DocNode]) -> list[str]:
    return [node.path for node in nodes]


def _state_lines(project: Project, state: DocumentStatus) -> list[str]:
    """The groups of an index, its embedding model, and who writes it."""
    lines = terminal.wrap(f"{terminal.home(project.folder)}: {state.documents} files")
    rows = [["group", "passages", "indexes"]]
    rows += [
        [group.name, str(group.nodes), _format_indexes(group)]
        for group in state.groups
        if group.name != LAZY_ROOT_NAME
    ]
    lines += terminal.table(rows, right=(1,), indent="  ")
    lines += output.reason_lines(
        {group.name: group.reason for group in state.groups if group.reason}
    )
    model = f"  Embedding model: {project.embed or 'none'}"
    lines += terminal.wrap(model, first="  ", rest="    ")
    if state.writer:
        lines += terminal.wrap(f"Written now by {state.writer}.")
    return lines


def _failure_lines(failures: Sequence[Mapping[str, Any]]) -> list[str]:
    lines: list[str] = []
    for failure in failures[:5]:
        text = f"failed: {failure['path']} ({failure['stage']}): {failure['message']}"
        lines += terminal.wrap(terminal.printable(text), rest="  ")
    if len(failures) > 5:
        lines.append(f"and {len(failures) - 5} more failed steps: lazyrag status --json")
    if failures:
        lines.append("Each sync tries these files again, except quarantined ones.")
    return lines


def _duplicate_lines(clusters: Sequence[Sequence[str]]) -> list[str]:
    if not clusters:
        return ["No two files have nearly the same text."]
    lines: list[str] = []
    for paths in clusters[:20]:
        text = f"nearly the same: {terminal.printable(', '.join(paths))}"
        lines += terminal.wrap(text, rest="  ")
    return lines + output.more_lines(len(clusters), 20)


def _change_lines(changes: IngestReport, failed: Container[str]) -> list[str]:
    """What the next sync would ingest, besides files that failed before."""
    added = tuple(path for path in changes.added if path not in failed)
    changes = replace(changes, added=added)
    if not output.is_changed(changes):
        return []
    reasons = {path: reason for path, reason in changes.reasons.items() if path not in failed}
    lines = [*output.report_lines(changes), *output.reason_lines(reasons)]
    if output.is_changed(changes, withheld=False):
        lines.append("To ingest this: lazyrag sync")
    return lines


def _format_indexes(group: GroupStatus) -> str:
    words = ["keyword" if name == ANALYSER else name for name in group.indexes]
    if not group.is_current:
        words.append("definition changed")
    if not group.is_complete:
        words.append("incomplete")
    return ", ".join(words)


@app.command("eval")
@click.argument("golden", type=PATH)
@click.option("--output", "-o", "path", type=PATH, help="Also write the JSON to this file.")
@click.option(
    "--against",
    type=PATH,
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
        ps = holm({name: comparison.p for name, comparison in compared.items()})
        sentences = {name: comparison.sentence(ps[name]) for name, comparison in compared.items()}
        result["against"] = {
            name: {**asdict(compared[name]), "p": ps[name], "sentence": sentences[name]}
            for name in sentences
        }
        lines += output.compared_lines(report, earlier, sentences)
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
