"""The commands that search, answer, measure, and show the state of an index."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import warnings
from collections.abc import Container, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from lazyrag.cli import output, terminal
from lazyrag.cli.base import (
    ANALYSER,
    PATH,
    app,
    complain,
    ensure_built,
    keyword_analysers,
    message_of,
    store_option,
)
from lazyrag.cli.output import FAILED, OK, USAGE, Output
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.errors import ConfigError, GenerationError, LazyRAGError, MissingDependencyError
from lazyrag.project import Project, find_project
from lazyrag.read import near_duplicates
from lazyrag.types import JsonMapping, JsonObject, Keywords

if TYPE_CHECKING:
    from lazyrag.data.node import DocNode
    from lazyrag.data.result import Answer, AnswerDelta, Citation
    from lazyrag.document import Document, DocumentStatus, GroupStatus, IngestReport
    from lazyrag.pipeline.pipeline import SyncPipeline
    from lazyrag.retrieval.base import BaseRetriever

_RETRIEVERS = ("keyword", "vector", "hybrid")
_HINT = (
    "Quoted without a chat model. For a written answer, set one:",
    "  lazyrag config set url URL",
    "  lazyrag config set chat NAME",
)
_MOST_MESSAGES = 20  # of a chat that the model reads again
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

_infer_option = click.option(
    "--no-infer-filters",
    "infer_filters",
    flag_value=False,
    default=True,
    help="Do not prefer documents that the question names, as by a company and a year.",
)


_without_option = click.option(
    "--infer-without",
    multiple=True,
    metavar="VALUE",
    help="A value that is not inferred, as in 'year: 2018', or a field. Repeat it for more.",
)


_parts_option = click.option(
    "--no-parts",
    "parts",
    flag_value="off",
    default="auto",
    help="Do not search the parts of a question, as of a comparison, one by one.",
)


_as_of_option = click.option(
    "--as-of",
    metavar="DAY",
    help="Only documents up to this day, such as 2024-05-01; versions in force come first.",
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
    docs: Document, project: Project, kind: str | None, topk: int
) -> BaseRetriever[list[DocNode]]:
    """Keyword, vector or hybrid search."""
    from lazyrag.retrieval import HybridRetriever, Retriever

    if kind not in (None, "keyword") and not docs.reader.embed_keys:
        raise ConfigError(f"--retriever {kind} needs embeddings. Run: lazyrag index --embed MODEL")
    keyword = set(keyword_analysers(docs))
    vectors = set(docs.reader.embed_keys)
    needed = {"vector": vectors, "hybrid": keyword | vectors}.get(kind or "", keyword)
    indexes = ensure_built(docs, project, needed)
    if kind is None:
        kind = "hybrid" if vectors and vectors <= indexes else "keyword"
        if kind == "keyword" and vectors:
            complain("Note: keyword search only, as vectors are missing. Run: lazyrag sync")
    if kind == "hybrid":
        return HybridRetriever.over(docs, project.group, topk)
    similarity = "bm25_chinese" if kind == "keyword" else None
    return Retriever(docs, project.group, similarity, topk=topk)


@app.command()
@click.argument("words", metavar="QUERY", nargs=-1, required=True)
@store_option
@_topk_option
@_filters_option
@_group_option
@_retriever_option
@_infer_option
@_without_option
@_parts_option
@_as_of_option
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
    infer_filters: bool,
    infer_without: tuple[str, ...],
    parts: Any,
    as_of: str | None,
    full: bool,
    explain: bool,
) -> Output:
    """Find the best passages for QUERY: a question or keywords."""
    from lazyrag.generation.answerable import is_weak
    from lazyrag.retrieval.hybrid import refine_retriever
    from lazyrag.retrieval.inferring import inferred_values

    query = " ".join(words)
    project = find_project(store).with_options(group=group)
    with _open_readable(project, retriever) as docs:
        search = refine_retriever(
            _make_retriever(docs, project, retriever, topk),
            infer_filters=infer_filters and [f"-{value}" for value in infer_without],
            parts=parts,
            as_of=as_of,
        )
        condition = output.parse_filters(filters, docs.reader.fields)
        explanation = search.explain(query, condition) if explain else None
        nodes = search(query, condition)
        weak = is_weak(query, [node.text for node in nodes], _paths_of(nodes))
        inferred = inferred_values(search, query)
        result: JsonObject = {
            "query": query,
            "weak": weak,
            "inferred": inferred,
            "hits": _hits(nodes),
        }
        lines = ["", *output.inferred_lines(inferred)] if inferred and nodes else []
        lines += ["", *output.weak_lines()] if weak else []
        lines += output.part_lines(explanation)
        for rank, hit_lines in enumerate(output.hits_lines(nodes, query, full=full), start=1):
            lines += ["", *hit_lines]
            if explanation is not None:
                lines += output.explained_lines(explanation[rank - 1], "   ")
        if explanation is not None:
            result["explanation"] = explanation.to_dict()
        if not nodes:
            lines = _nothing_found(docs, query, is_filtered=bool(filters))
            return Output(result, lines, FAILED)
        return Output(result, lines[1:])


def _hits(nodes: Sequence[DocNode]) -> list[JsonObject]:
    from lazyrag.data.result import Hit

    return [output.hit_dict(rank, Hit.from_node(node)) for rank, node in enumerate(nodes, start=1)]


def _nothing_found(docs: Document, query: str, *, is_filtered: bool) -> list[str]:
    count = docs.status().documents
    among = f"those of {count} files that --filters allows" if is_filtered else f"{count} files"
    return terminal.wrap(f"Nothing found for {terminal.printable(query)!r} in {among}.")


@app.command()
@click.argument("words", metavar="[WORDS]", nargs=-1)
@store_option
@_filters_option
@_group_option
@click.option(
    "--per",
    type=click.Choice(["document", "node", "row"]),
    default="document",
    help="What is listed: files, passages or table rows. Default: document.",
)
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=20, metavar="N", help="Default: 20."
)
@click.option("--after", metavar="PLACE", help="Where the page before ended.")
def collect(
    words: tuple[str, ...],
    store: Path | None,
    filters: tuple[str, ...],
    group: str | None,
    per: Any,
    limit: int,
    after: str | None,
) -> Output:
    """List and count all that has all WORDS, not only the best.

    '"green tea"' is a phrase; OR separates alternatives.
    """
    query = " ".join(words)
    project = find_project(store).with_options(group=group)
    # tables are built at their first use
    with project.open(write=per == "row", with_files=False, embeds=False) as docs:
        ensure_built(docs, project, set())
        condition = output.parse_filters(filters, docs.reader.fields)
        page = docs.collect(
            query, condition, per=per, group=project.group, limit=limit, after=after
        )
    status = OK if page.total else FAILED
    return Output(asdict(page), output.collected_lines(page, query, per), status)


_model_option = click.option(
    "--model",
    envvar="LAZYRAG_MODEL",
    metavar="NAME",
    help="Chat model. Default: LAZYRAG_MODEL, then lazyrag config; '' for none.",
)


@app.command()
@click.argument("words", metavar="QUESTION", nargs=-1, required=True)
@store_option
@_model_option
@_topk_option
@_filters_option
@_group_option
@_retriever_option
@_as_of_option
def ask(words: tuple[str, ...], **options: Any) -> Output:
    """Answer QUESTION from the files, with citations.

    The chat model is called at an OpenAI-compatible endpoint: OPENAI_BASE_URL, OPENAI_API_KEY, or
    see lazyrag config. Without a model, quote the sentences that answer best.
    """
    with _open_answers(**options) as answers:
        answer, lines = answers.answer(" ".join(words), [])
        if not answer.context.sources:
            return Output(output.answer_dict(answer), lines, FAILED)
        if not answers.as_json:
            output.write(lines)  # before the hint, which asks other programs
        hint = answers.hint()
        return Output(output.answer_dict(answer), ["", *hint] if hint else [])


@app.command()
@store_option
@_model_option
@_topk_option
@_filters_option
@_group_option
@_retriever_option
@_as_of_option
def chat(**options: Any) -> Output:
    """Answer one question after the other, each with those before it in mind.

    /sources shows the passages of the last answer, /new begins another conversation, /quit or
    Ctrl-D ends. Ctrl-C stops an answer only. With --json, one object for each answer.
    """
    history: list[dict[str, str]] = []
    citations: list[Citation] = []
    question = ""
    answered = 0
    failed = 0
    with _open_answers(**options) as answers:
        if hint := answers.hint():
            output.write([*hint, ""])
        for line in _read_lines():
            if line == "/sources":
                output.write(output.citation_lines(citations, question))
            elif line == "/new":
                history.clear()
                citations = []
            elif line.startswith("/"):
                complain(f"Unknown command {line!r}. Known: /new, /quit, /sources.")
            elif line:
                citations = []
                question = line
                try:
                    answer, lines = answers.answer(line, citations, history)
                except KeyboardInterrupt:
                    complain("Stopped.")
                except LazyRAGError as exc:
                    failed += 1
                    _show_error(exc, as_json=answers.as_json)
                else:
                    answered += 1
                    _show_answer(answer, lines, as_json=answers.as_json)
                    question = answer.query
                    history.append({"role": "user", "content": line})
                    history.append({"role": "assistant", "content": answer.text})
                    del history[:-_MOST_MESSAGES]
    return Output({"answers": answered}, status=USAGE if failed and not answered else OK)


def _show_error(error: LazyRAGError, *, as_json: bool) -> None:
    if as_json:
        output.write([output.as_json("chat", output.incomplete_dict(error), error)])
    else:
        complain(f"Error: {message_of(error)}")


def _show_answer(answer: Answer, lines: Sequence[str], *, as_json: bool) -> None:
    output.write([output.as_json("chat", output.answer_dict(answer))] if as_json else [*lines, ""])


def _read_lines() -> Iterator[str]:
    """The questions from the standard input, up to its end or ``/quit``."""
    if sys.stdin is None:  # closed by the program that started this one
        return
    is_typed = sys.stdin.isatty() and sys.stdout.isatty()
    if is_typed:
        with contextlib.suppress(ImportError):  # not on Windows
            import readline  # noqa: F401  `input` then has arrow keys
    while True:
        try:
            line = input("> " if is_typed else "").strip()
        except EOFError:
            if is_typed:
                output.write([""])  # the prompt has no line end
            return
        except KeyboardInterrupt:
            complain(" Ctrl-D or /quit ends.")
            continue
        if line == "/quit":
            return
        yield line


@dataclass(frozen=True, slots=True)
class _Answers:
    """Answers questions about an open Document.

    Args:
        docs: The Document.
        pipeline: Finds the passages, and calls the chat model.
        options: Keywords of the pipeline's calls.
        has_model: Whether a chat model writes the answers.
        as_json: Whether they are printed as JSON.
    """

    docs: Document
    pipeline: SyncPipeline
    options: Keywords
    has_model: bool
    as_json: bool

    def answer(
        self, question: str, citations: list[Citation], history: Any = None
    ) -> tuple[Answer, list[str]]:
        """The answer to a question, and the lines to print: after it, if it is streamed. Its
        citations are added to a list, also those of an answer that is not finished.
        """
        is_live = self.has_model and not self.as_json
        pieces = self.pipeline.stream(question, history=history or None, **self.options)
        answer = _follow(pieces, citations, is_live=is_live)
        if not answer.context.sources:
            return answer, _nothing_found(
                self.docs, question, is_filtered=self.options["filters"] is not None
            )
        return answer, output.answer_lines(
            answer, with_text=not is_live, with_passages=history is None
        )

    def hint(self) -> list[str]:
        """How to get written answers: with a model on this machine, if one answers."""
        from lazyrag.models.defaults import find_local_models

        if self.has_model or self.as_json:
            return []
        lines = [*_HINT]
        for program, url, name in find_local_models():
            model = shlex.quote(terminal.printable(name))
            lines += [
                f"{program} answers on {url}. To use it:",
                f"  lazyrag config set url {url}",
                f"  lazyrag config set chat {model}",
            ]
        return lines


@contextlib.contextmanager
def _open_answers(
    *,
    store: Path | None,
    model: str | None,
    topk: int,
    filters: tuple[str, ...],
    group: str | None,
    retriever: str | None,
    as_of: str | None,
) -> Iterator[_Answers]:
    """Open a Document for questions, with the chat model that was chosen."""
    from lazyrag.errors import AnswerWarning
    from lazyrag.models.defaults import make_chat_model
    from lazyrag.pipeline import RAGPipeline
    from lazyrag.retrieval.hybrid import refine_retriever

    project = find_project(store).with_options(group=group)
    with contextlib.ExitStack() as stack:
        docs = stack.enter_context(_open_readable(project, retriever))
        search = refine_retriever(_make_retriever(docs, project, retriever, topk), as_of=as_of)
        condition = output.parse_filters(filters, docs.reader.fields)
        chat_model = make_chat_model(model)
        if chat_model is not None:
            stack.enter_context(chat_model)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", AnswerWarning)  # the answer lists its problems
        pipeline = RAGPipeline(retriever=search, generator=chat_model).sync
        options = {"top_k": topk, "filters": condition}
        yield _Answers(
            docs, pipeline, options, chat_model is not None, click.get_current_context().obj
        )


def _follow(pieces: Iterator[AnswerDelta], citations: list[Citation], *, is_live: bool) -> Answer:
    """The answer of a stream; live pieces are printed. What came of a broken one, or before Ctrl-C,
    stays, with its sources.
    """
    answer: Any = None
    wrapper = terminal.LiveWrapper()
    written = ""
    try:
        for piece in pieces:
            citations += piece.citations
            written += piece.text
            if is_live:
                click.echo(wrapper.add(piece.text), nl=False)
            answer = piece.answer
    except (GenerationError, KeyboardInterrupt):
        if is_live and written:
            click.echo(wrapper.add(" (incomplete)"))
            output.write(["", *output.citation_lines(citations)] if citations else [])
        raise
    if is_live:
        click.echo()
    return cast("Answer", answer)


@app.command()
@store_option
@click.option("--duplicates", is_flag=True, help="Also list files with nearly the same text.")
@click.option("--vectors", is_flag=True, help="Also compare vectors with the words of the texts.")
def status(store: Path | None, duplicates: bool, vectors: bool) -> Output:
    """Show what is indexed, what failed, and what has changed since."""
    from lazyrag.read.agreement import measure_agreement

    project = find_project(store)
    with project.open(with_files=project.folder.is_dir(), embeds=vectors) as docs:
        for group in docs.status().groups:
            for embed_key in {*docs.reader.embed_keys}.intersection(group.indexes):
                measure_agreement(docs.reader, group.name, embed_key)
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
        {group.name: why for group in state.groups if (why := group.reason or group.vector_problem)}
    )
    model = f"  Embedding model: {project.embed or 'none'}"
    lines += terminal.wrap(model, first="  ", rest="    ")
    if state.writer:
        lines += terminal.wrap(f"Written now by {state.writer}.")
    return lines


def _failure_lines(failures: Sequence[JsonMapping]) -> list[str]:
    lines = []
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
    lines = []
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
