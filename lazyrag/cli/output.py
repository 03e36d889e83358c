"""What commands print: lines for people, one JSON object for programs."""

from __future__ import annotations

import functools
import json
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lazyrag.cli import terminal
from lazyrag.cli.help import translate
from lazyrag.errors import ConfigError, GenerationError, LazyRAGError, count
from lazyrag.types import JsonMapping

if TYPE_CHECKING:
    from lazyrag.data.encoding import ErrorInfo
    from lazyrag.data.filters import Filter
    from lazyrag.data.node import DocNode
    from lazyrag.data.result import Answer, Citation, Hit, Statement
    from lazyrag.document import CollectedPage, IngestReport, PlannedFormat
    from lazyrag.evaluation import GoldenReport
    from lazyrag.retrieval.explain import ExplainedHit, Explanation
    from lazyrag.types import JsonObject

OK = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130
"""Exit statuses: done; failed, or a check that is not passed; invalid arguments; Ctrl-C."""

WEAK = "The files do not seem to answer this question."
"""Of a search or an answer whose passages are weak."""

SCHEMA = 1
"""Version of the JSON: grows when a name is removed or changes its meaning."""

_MAX_MISSED = 10  # questions to show; the JSON has all
_MAX_WORSE = 5  # of each measure
_MAX_REASONS = 5


@dataclass(frozen=True, slots=True)
class Output:
    """Result of a command.

    Args:
        result: For ``--json``.
        lines: For people.
        status: The exit status.
    """

    result: JsonMapping
    lines: Sequence[str] = field(default_factory=list)
    status: int = OK


def write(lines: Iterable[str]) -> None:
    """Print lines."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def as_json(command: str, result: JsonMapping | None, error: BaseException | None = None) -> str:
    """The JSON of a command: ``result`` if it worked, else ``error``; both of a broken answer."""
    from lazyrag.data.encoding import to_dict

    envelope: JsonObject = {"schema": SCHEMA, "command": command, "ok": error is None}
    if result is not None:
        envelope["result"] = to_dict(result)
    if error is not None:
        envelope["error"] = {"type": type(error).__name__, "message": str(error)}
    return json.dumps(envelope, ensure_ascii=False, indent=2, allow_nan=False)


# Hits and answers


def hit_dict(rank: int, hit: Hit) -> JsonObject:
    """A hit for programs."""
    return {"rank": rank, **hit.to_dict()}


_LINES = (7, 6, 5, 3, 2, 2)
"""Lines of text by the rank of a hit: the first ones have the answer most often."""


def weak_lines() -> list[str]:
    """That what was found does not seem to answer the question."""
    return terminal.wrap(translate(WEAK))


def inferred_lines(inferred: Mapping[str, Sequence[str]]) -> list[str]:
    """What a search inferred from the query, and how to switch that off."""
    values = ", ".join(f"{name}: {text}" for name, texts in inferred.items() for text in texts)
    return terminal.wrap(
        f"{terminal.printable(values)} (inferred; off: --no-infer-filters, --infer-without)"
    )


def part_lines(explanation: Explanation | None) -> list[str]:
    """The parts of a question with the hits that cover them, and how to switch that off."""
    lines = [""] if explanation and explanation.parts else []
    for part, ranks in explanation.parts.items() if explanation else ():
        hits = ", ".join(map(str, ranks)) or "nothing"
        lines += terminal.wrap(
            f"part: {terminal.printable(part)} (covered by {hits}; off: --no-parts)"
        )
    return lines


def hits_lines(nodes: Sequence[DocNode], query: str, *, full: bool = False) -> list[list[str]]:
    """Each hit: file, location, score, and the part of its text that answers the query; with
    ``full`` its whole text.
    """
    from lazyrag.generation.extractive import choose_excerpts

    headings = [_hit_heading(rank, node) for rank, node in enumerate(nodes, start=1)]
    indents = [" " * (len(str(rank)) + 2) for rank in range(1, len(nodes) + 1)]
    texts = [node.get_content() for node in nodes]
    if full:
        passages = [
            terminal.passage(text, query, indent=indent, lines=None)
            for text, indent in zip(texts, indents, strict=True)
        ]
    else:
        most_lines = [*_LINES, *[_LINES[-1]] * len(nodes)]
        rooms = [
            terminal.Room(indent, max(1, lines + 1 - len(heading)))
            for heading, indent, lines in zip(headings, indents, most_lines, strict=False)
        ]
        excerpts = choose_excerpts(
            query, texts, lambda at, units: terminal.fits(texts[at], units, query, rooms[at])
        )
        passages = [
            terminal.excerpt(text, units, query, room)
            for text, units, room in zip(texts, excerpts, rooms, strict=True)
        ]
    warnings = [_warning_lines(node, indent) for node, indent in zip(nodes, indents, strict=True)]
    return [
        heading + warning + lines
        for heading, warning, lines in zip(headings, warnings, passages, strict=True)
    ]


def _hit_heading(rank: int, node: DocNode) -> list[str]:
    score = "" if node.score is None else f"{node.score:.3f}"
    return _heading(f"{rank}.", node.path, node.location, score)


def _warning_lines(node: DocNode, indent: str) -> list[str]:
    """What supersedes a hit's file, and a warning of text that readers of the file do not see."""
    from lazyrag.data.result import supersession_text

    warnings = [terminal.printable(supersession_text(node.metadata))]
    if reasons := ", ".join(dict.fromkeys(place.label for place in node.hidden_text)):
        warnings.append(
            f"Hidden text ({reasons}): readers of the file do not see it; prompts are without it."
        )
    lines = []
    for warning in filter(None, warnings):
        lines += terminal.wrap(warning, first=indent, rest=indent)
    return lines


def _heading(label: str, path: str, location: str, score: str = "") -> list[str]:
    """``1. tea.md  page 3      4.35``: on two lines where one is too short."""
    path = terminal.printable(path)
    location = terminal.plain(location)
    columns = terminal.width() - len(label) - 1 - (len(score) + 2 if score else 0)
    both = f"{path}  {location}" if location else path
    is_short = terminal.cells(both) <= columns
    heading = both if is_short else terminal.shorten(path, columns)
    space = " " * (columns - terminal.cells(heading) + 2) if score else ""
    name = heading[: len(path)] if is_short else heading
    rest = f"{heading[len(name) :]}{space}{terminal.style_text(score, 'dim')}"
    line = f"{label} {terminal.style_text(name, 'bold')}{rest}"
    if is_short or not location:
        return [line]
    indent = " " * (len(label) + 1)
    return [line, indent + _end_of(location, terminal.width() - len(indent))]


def _end_of(location: str, columns: int) -> str:
    """A location without its first headings if it is too long."""
    while terminal.cells(location) > columns and " > " in location.removeprefix("… > "):
        location = f"… > {location.removeprefix('… > ').partition(' > ')[2]}"
    return terminal.shorten(location[::-1], columns)[::-1]


def collected_lines(page: CollectedPage, query: str, per: str) -> list[str]:
    """A page of all that matches, its count, and what was not looked at."""
    lines = []
    for item in page.items:
        others = f"{count(item.matches, 'passage')}" if item.matches > 1 else ""
        lines += _heading("-", item.path, item.location, others)
        lines += [*terminal.passage(item.snippet, query, indent="  ", lines=2), ""]
    lines.append(f"{count(page.total, per)} in all, {len(page.items)} shown.")
    if page.next is not None:
        lines += terminal.wrap(f"The next ones: --after {shlex.quote(page.next)}", rest="  ")
    if page.unread:
        lines.append(f"Not looked at: {count(len(page.unread), 'file')}.")
    return lines + reason_lines(page.unread)


def explained_lines(hit: ExplainedHit, indent: str) -> list[str]:
    """A hit's rank and score in each stage."""
    parts = [f"{standing.name} {standing}" for standing in hit.standings]
    return terminal.wrap("; ".join(parts), first=indent, rest=indent)


def answer_dict(answer: Answer) -> JsonObject:
    """An answer for programs."""
    sources = enumerate(answer.context.sources, start=1)
    return {
        "question": answer.query,
        "answer": answer.text,
        "weak": answer.weak,
        "citations": answer.citations,
        "statements": answer.statements,
        "hits": [hit_dict(rank, hit) for rank, hit in sources],
        "problems": answer.problems,
    }


def incomplete_dict(error: Exception) -> JsonObject | None:
    """What came of an answer whose stream broke, for programs; None for another error."""
    if not isinstance(error, GenerationError) or not error.text:
        return None
    from lazyrag.generation import CitationManager

    sources = error.context.sources
    return {
        "question": error.context.query,
        "answer": error.text,
        "incomplete": True,
        "citations": CitationManager().resolve(error.text, sources).citations,
        "hits": [hit_dict(rank, hit) for rank, hit in enumerate(sources, start=1)],
    }


def answer_lines(
    answer: Answer, *, with_text: bool = True, with_passages: bool = True
) -> list[str]:
    """An answer with its sources; without their passages if the answer itself quotes them."""
    is_quoted = "quotes" in (answer.generation.metadata or {})
    lines = []
    for paragraph in answer.text.splitlines() if with_text else ():
        lines += terminal.wrap(terminal.printable(paragraph))
    if answer.weak and not is_quoted:
        lines += ["", *weak_lines()]
    if answer.citations:
        lines.append("")
    query = answer.query if with_passages and not is_quoted else ""
    lines += citation_lines(answer.citations, query)
    if not is_quoted:
        lines += _statement_lines(answer.statements)
    for problem in answer.problems[:_MAX_NOTES]:
        lines += terminal.wrap(f"Note: {terminal.printable(problem)}", rest="  ")
    return lines + more_lines(len(answer.problems), _MAX_NOTES)


def citation_lines(citations: Iterable[Citation], query: str = "") -> list[str]:
    """File and location of citations; with a query their words, too."""
    lines = []
    for citation in citations:
        label = f"[{citation.index}]"
        indent = " " * (len(label) + 1)
        lines += _heading(label, citation.source, citation.location)
        if citation.superseded:
            lines += terminal.wrap(
                terminal.printable(citation.superseded), first=indent, rest=indent
            )
        if query:
            lines += terminal.passage(citation.text_snippet, query, indent=indent)
    return lines


_MAX_NOTES = 20
"""Doubtful statements, and problems, that are listed; --json has all."""
_STYLES = {"contradicted": "red", "not_found": "yellow"}


def _statement_lines(statements: Sequence[Statement]) -> list[str]:
    """How many statements of an answer are confirmed, and those that are not."""
    from lazyrag.data.result import doubtful, verdict_counts

    counts = verdict_counts(statements)
    if not counts:
        return []
    summary = ", ".join(
        f"{number} {verdict.replace('_', ' ')}" for verdict, number in counts.items()
    )
    lines = ["", f"Checked against the sources: {summary}."]
    doubts = doubtful(statements)
    for statement in doubts[:_MAX_NOTES]:
        wrapped = terminal.wrap(terminal.printable(str(statement)), rest="  ")
        lines += [terminal.style_text(line, _STYLES[statement.verdict]) for line in wrapped]
    return lines + more_lines(len(doubts), _MAX_NOTES)


# Reports

_REMEDIES = (
    (
        r"Call lazyrag\.loaders\.scans\.add_ocr\(docs\), which reads",
        "Run lazyrag index --ocr, which reads",
    ),
    (
        (
            r", add_ocr\(\)|, or allow more: \w+\([^)]*\)|; csv\..*?allows longer cells|; pass"
            r" follow_links.*"
        ),
        "",
    ),
    (r"image without a media reader.*", "image, not read without lazyrag index --ocr"),
    (r" without a media reader.*", " without a transcript"),
    (r"Register one with register_media_reader.*", "Put its text into a file."),
    (
        r"Raise it with Document\(limits=LoadLimits\(\w+=\.\.\.\)\); 0 is no limit\.",
        "Split it, or leave it out: lazyrag index --exclude PATTERN.",
    ),
    (r"Give it: PdfLoader\(.*or save the file again", "Save it again"),
    (r"Retry it with sync\(retry=True\)", "Retry it with lazyrag sync --retry"),
    (
        r"lazyrag\.loaders\.loaders\. Add a reader.*",
        "docs/formats.md. Save it in one of these formats.",
    ),
    (r" Pass LoadLimits\(processes=0\)\.", ""),
    (
        "api_key, or LAZYRAG_API_KEY or OPENAI_API_KEY in",
        "lazyrag config set key, or OPENAI_API_KEY in",
    ),
    ("^base_url must be such as", "url must be such as"),
    ("Check base_url", "Check the url (lazyrag config, OPENAI_BASE_URL)"),
    (r"; in Python, download=True fetches it|,(?: or)? in Python lazyrag\.open\([^)]*\)", ""),
    (r" Lower concurrency, or set requests_per_minute or rate_limit\.", " Try again later."),
    (r"call sync\(\)", "run lazyrag sync"),
    (r"Call sync\(\)", "Run lazyrag sync"),
    (r"call sync\(max_deleted=1\)", "run lazyrag sync --delete"),
    (r"(?<= )sync\(\) retries", "lazyrag sync retries"),
    (r"docs\.maintenance\.verify\(\)", "lazyrag verify"),
    (r"(?:(?<=and )|call )repair\([^)]*\)", "lazyrag repair"),
    (r"Open (it once|the Document) without read_only=True[:,]", "Run lazyrag sync,"),
    (r"(?<=excluded by \.gitignore)$", "; read with --no-gitignore"),
)
"""Patterns of remedies in Python, and their replacements at the command line."""


def at_command_line(message: str) -> str:
    """Replace the remedies of a message, which are Python, with commands.

    Example:
        >>> at_command_line("9 pages. Split it, or allow more: PdfLoader(max_pages=9).")
        '9 pages. Split it.'
    """
    for python, command in _REMEDIES:
        message = re.sub(python, command, message)
    return message


def _report_at_command_line(report: IngestReport) -> IngestReport:
    """A report with the remedies of the command line."""
    failed = [
        replace(failure, error=LazyRAGError(at_command_line(str(failure.error))))
        for failure in report.failed
    ]
    skipped = tuple((path, at_command_line(reason)) for path, reason in report.skipped)
    return replace(report, failed=tuple(failed), skipped=skipped)


def failure_dict(path: str, stage: str, error: ErrorInfo) -> JsonObject:
    """A failed step for programs."""
    from lazyrag.data.encoding import ErrorInfo

    info = ErrorInfo.from_message(error.type, at_command_line(str(error)))
    remedy = info.remedy or "Fix the cause, then run lazyrag sync."
    return {
        "path": path,
        "stage": stage,
        "error": info.type,
        "message": f"{info.detail} {remedy}",
        "remedy": remedy,
    }


def report_dict(report: IngestReport) -> JsonObject:
    """A report for programs."""
    from lazyrag.data.encoding import ErrorInfo

    names = (
        "added",
        "updated",
        "unchanged",
        "touched",
        "deleted",
        "moved",
        "withheld",
        "repaired",
        "skipped",
    )
    failed = [
        failure_dict(failure.path, failure.stage, ErrorInfo.of(failure.error))
        for failure in report.failed
    ]
    report = _report_at_command_line(report)
    return {name: getattr(report, name) for name in (*names, "reasons", "rebuilt", "notes")} | {
        "failed": failed
    }


def report_lines(report: IngestReport) -> list[str]:
    """A report in a few lines."""
    lines = []
    for line in str(_report_at_command_line(report)).splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        lines += terminal.wrap(terminal.printable(line), first=indent, rest=indent + "  ")
    if report.withheld:
        msg = (
            "So many files are missing at once that their documents are kept. If that is right:"
            " lazyrag sync --delete"
        )
        lines += terminal.wrap(msg)
    return lines


def format_lines(formats: Sequence[PlannedFormat]) -> list[str]:
    """How a plan would read files: by kind, with their number and size; nothing where no file is to
    be read.
    """
    if all(kind.how == "skipped" and not kind.bytes for kind in formats):
        return []
    rows = [["kind", "files", "size", "read as"]]
    rows += [[kind.kind or "-", str(kind.files), _size(kind.bytes), ""] for kind in formats]
    header, *table = terminal.table(rows, right=(1, 2))
    lines = [header]
    for line, kind in zip(table, formats, strict=True):
        first = terminal.pad(line, header.index("read as"))
        text = f"{kind.how}: {at_command_line(kind.why)}" if kind.why else kind.how
        lines += terminal.wrap(terminal.printable(text), first=first, rest=" " * len(first))
    return lines


def _size(count: int) -> str:
    """Bytes for people.

    Example:
        >>> _size(0), _size(999), _size(4_096), _size(12_345_678)
        ('', '1 kB', '4 kB', '12.3 MB')
    """
    if not count:
        return ""
    if count < 1e6:
        return f"{max(1, round(count / 1e3))} kB"
    return f"{count / 1e6:.1f} MB"


def is_changed(report: IngestReport, *, withheld: bool = True) -> bool:
    """Whether something was done, or is to be done; perhaps not counting deletions that are
    withheld.
    """
    done = (report.added, report.updated, report.deleted, report.moved, report.failed)
    return any(done) or bool(withheld and report.withheld)


def reason_lines(reasons: Mapping[str, str]) -> list[str]:
    """Why files, groups and indexes are done again."""
    lines = []
    for name, why in list(reasons.items())[:_MAX_REASONS]:
        lines += terminal.wrap(f"{terminal.printable(name)}: {why}", first="  ", rest="    ")
    return lines + more_lines(len(reasons), _MAX_REASONS, "  ")


def more_lines(count: int, most: int, indent: str = "") -> list[str]:
    """A line for what a list leaves out after a number of entries; none if it is complete."""
    return [f"{indent}and {count - most} more"] if count > most else []


def _unread_places(report: IngestReport) -> list[str]:
    """The folders and links that could not be read: no files of theirs failed, as none were
    seen.
    """
    return [
        f"{path} ({reason})" for path, reason in report.skipped if reason.startswith("cannot be ")
    ]


def unread_lines(report: IngestReport) -> list[str]:
    """The folders and links that could not be read."""
    unread = _unread_places(report)
    texts = [f"failed: {terminal.printable(path)}" for path in unread[:5]]
    lines = []
    for text in texts + more_lines(len(unread), 5):
        lines += terminal.wrap(f"  {text}", first="  ", rest="    ")
    return lines


def status_of(report: IngestReport) -> int:
    """The exit status: `FAILED` if a file failed or a folder could not be read."""
    return FAILED if report.failed or _unread_places(report) else OK


def golden_lines(report: GoldenReport) -> list[str]:
    """Golden questions: means beside thresholds, and the missed questions."""
    rows = [["measure", "mean", "threshold", "questions", ""]]
    for verdict in report.verdicts:
        outcome = "passed" if verdict.passed else "below"
        rows.append(
            [
                verdict.measure,
                f"{verdict.value:.4f}",
                f"{verdict.threshold:g}",
                str(verdict.questions),
                outcome,
            ]
        )
    coloured = functools.partial(
        re.compile("(passed|below)$").sub,
        lambda match: terminal.style_text(match[0], _COLOURS[match[0]]),
    )
    lines = [coloured(line) for line in terminal.table(rows, right=(1, 2, 3))]
    missed = report.missed()
    for question in missed[:_MAX_MISSED]:
        values = ", ".join(f"{name} {value:.2f}" for name, value in question.values.items())
        text = f"line {question.line}: {terminal.printable(question.question)} ({values})"
        lines += terminal.wrap(text, rest="  ")
    return lines + more_lines(len(missed), _MAX_MISSED)


def compared_lines(
    report: GoldenReport, earlier: JsonMapping, sentences: Mapping[str, str]
) -> list[str]:
    """By measure, the sentence of a comparison and the questions that lost the most."""
    before = {item["question"]: item["values"] for item in earlier["questions"]}
    lines = []
    for name, sentence in sentences.items():
        lines.append(f"{name}: {sentence}")
        worse = []
        for question in report.questions:
            was = before.get(question.question, {}).get(name)
            now = question.values.get(name)
            if was is not None and now is not None and now < was:
                worse.append((now - was, was, now, question))
        worse.sort(key=lambda loss: loss[0])
        for _, was, now, question in worse[:_MAX_WORSE]:
            text = (
                f"worse: line {question.line}: {terminal.printable(question.question)} ({was:.2f}"
                f" before, {now:.2f} now)"
            )
            lines += terminal.wrap(text, first="  ", rest="    ")
        lines += more_lines(len(worse), _MAX_WORSE, "  ")
    return lines


_COLOURS = {"passed": "green", "below": "red"}


# Filters

_CONDITION = re.compile(
    r"\s*(?P<field>[\w.-]+)"
    r"\s*(?P<op>not\s+in\b|in\b|contains\b|exists\b|==|!=|>=|<=|=|>|<)"
    r"\s*(?P<value>.*?)\s*"
)


def parse_filters(conditions: Sequence[str], schema: Mapping[str, Any]) -> Filter | None:
    """The filter of ``--filters`` options, all of which must hold; None without any.

    Args:
        conditions: Such as ``"file_type in .pdf,.docx"``.
        schema: Fields of the Document.

    Raises:
        ConfigError: If one cannot be read, or its field is unknown.

    Example:
        >>> from lazyrag.data.fields import BUILT_IN_FIELDS
        >>> parse_filters(["file_size > 1000"], BUILT_IN_FIELDS)
        Condition('file_size', 'gt', 1000)
    """
    combined = None
    for condition in conditions:
        parsed = _condition(condition, schema)
        combined = parsed if combined is None else combined & parsed
    return combined


def _condition(text: str, schema: Mapping[str, Any]) -> Filter:
    from lazyrag.data.filters import Condition
    from lazyrag.errors import known_names

    match = _CONDITION.fullmatch(text)
    if match is None:
        msg = (
            f"--filters must be FIELD OPERATOR VALUE; got {text!r}. Operators: = != > >= < <= in"
            " 'not in' contains "
        )
        raise ConfigError(f"{msg}exists. Example: --filters 'file_type in .pdf,.docx'")
    name = match["field"]
    op = " ".join(match["op"].split())
    value = match["value"]
    if name not in schema:
        raise ConfigError(f"--filters names an unknown field {name!r}. {known_names(name, schema)}")
    op = "==" if op == "=" else op
    kind = schema[name].element_type or schema[name].data_type
    if op == "exists":
        return Condition(name, op)
    if op in ("in", "not in"):
        return Condition(
            name, op, [_value(part.strip(), kind.value, name) for part in value.split(",")]
        )
    return Condition(name, op, _value(value, kind.value, name))


def _value(text: str, kind: str, name: str) -> Any:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    try:
        if kind in ("int32", "int64"):
            return int(text)
        if kind in ("float", "double"):
            return float(text)
    except ValueError as exc:
        raise ConfigError(f"--filters compares {name} with a number; got {text!r}.") from exc
    return text.lower() == "true" if kind == "boolean" else text
