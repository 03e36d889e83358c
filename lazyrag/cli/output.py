"""What commands print: lines for people, one JSON object for programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lazyrag.cli import terminal
from lazyrag.errors import ConfigError, LazyRAGError

if TYPE_CHECKING:
    from lazyrag.data.encoding import ErrorInfo
    from lazyrag.data.filters import Filter
    from lazyrag.data.node import DocNode
    from lazyrag.data.result import Answer, Hit
    from lazyrag.document import IngestReport, PlannedFormat
    from lazyrag.evaluation import GoldenReport
    from lazyrag.retrieval.explain import ExplainedHit

OK = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130
"""Exit statuses: done; failed, or a check that is not passed; invalid arguments; Ctrl-C."""

SCHEMA = 1
"""Version of the JSON: grows when a name is removed or changes its meaning."""

_MAX_MISSED = 10  # questions to show; the JSON has all
_MAX_WORSE = 5  # of each measure


@dataclass(frozen=True, slots=True)
class Output:
    """Result of a command.

    Args:
        result: For ``--json``.
        lines: For people.
        status: The exit status.
    """

    result: Mapping[str, Any]
    lines: Sequence[str] = field(default_factory=list)
    status: int = OK


def write(lines: Iterable[str]) -> None:
    """Print lines."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def as_json(
    command: str, result: Mapping[str, Any] | None, error: BaseException | None = None
) -> str:
    """The JSON of a command: ``result`` if it worked, else ``error``."""
    from lazyrag.data.encoding import to_dict

    found: dict[str, Any] = {"schema": SCHEMA, "command": command, "ok": error is None}
    if error is None:
        found["result"] = to_dict(result)
    else:
        found["error"] = {"type": type(error).__name__, "message": str(error)}
    return json.dumps(found, ensure_ascii=False, indent=2, allow_nan=False)


# Hits and answers


def hit_dict(rank: int, hit: Hit) -> dict[str, Any]:
    """A hit for programs."""
    return {"rank": rank, **hit.to_dict()}


def hit_lines(
    rank: int, node: DocNode, query: str, *, full: bool = False, label: str = ""
) -> list[str]:
    """A hit: file, location, score, and its passage."""
    label = label or f"{rank}."
    score = "" if node.score is None or label.startswith("[") else f"{node.score:.3f}"
    head = _heading(label, node.path, node.location, score)
    indent = " " * (len(label) + 1)
    return [
        *head,
        *terminal.passage(node.get_content(), query, indent=indent, lines=None if full else 3),
    ]


def _heading(label: str, path: str, location: str, score: str = "") -> list[str]:
    """``1. tea.md  page 3      4.35``: on two lines where one is too short."""
    path = terminal.printable(path)
    location = terminal.printable(location)
    columns = terminal.width() - len(label) - 1 - (len(score) + 2 if score else 0)
    both = f"{path}  {location}" if location else path
    is_short = terminal.cells(both) <= columns
    shown = both if is_short else terminal.shortened(path, columns)
    space = " " * (columns - terminal.cells(shown) + 2) if score else ""
    name = shown[: len(path)] if is_short else shown
    line = (
        f"{label}"
        f" {terminal.styled(name, 'bold')}{shown[len(name) :]}{space}{terminal.styled(score, 'dim')}"
    )
    if is_short:
        return [line]
    indent = " " * (len(label) + 1)
    return (
        [line, *terminal.wrapped(location, terminal.width(), first=indent, rest=indent)]
        if location
        else [line]
    )


def explained_lines(hit: ExplainedHit, indent: str) -> list[str]:
    """Rank and score of a hit in each stage."""
    stages = "; ".join(f"{one.name} {one}" for one in hit.standings)
    return terminal.wrapped(stages, terminal.width(), first=indent, rest=indent)


def answer_lines(answer: Answer) -> list[str]:
    """An answer with its sources."""
    lines: list[str] = []
    for paragraph in answer.text.splitlines():
        lines += terminal.wrapped(terminal.printable(paragraph), terminal.width())
    if answer.citations:
        lines.append("")
    for one in answer.citations:
        label = f"[{one.index}]"
        indent = " " * (len(label) + 1)
        lines += _heading(label, one.source, one.location)
        lines += terminal.passage(one.text_snippet, answer.query, indent=indent)
    for problem in answer.problems:
        lines += terminal.wrapped(
            f"Note: {terminal.printable(problem)}", terminal.width(), rest="  "
        )
    return lines


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
    (r"then call sync\(\)", "then run lazyrag sync"),
    (r"Retry it with sync\(retry=True\)", "Retry it with lazyrag sync --retry"),
    (
        r"lazyrag\.loaders\.loaders\. Add a reader.*",
        "docs/formats.md. Save it in one of these formats.",
    ),
    (r" Pass LoadLimits\(processes=0\)\.", ""),
    (r"call sync\(\)", "run lazyrag sync"),
)
"""Patterns of remedies in Python, and their replacements at the command line."""


def at_command_line(message: str) -> str:
    """Replace the remedies of a message, which are Python, with commands.

    Example:
        >>> at_command_line("The table has 9 pages. Split it, or allow more: PdfLoader(max_pages=9).")
        'The table has 9 pages. Split it.'
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


def failure_dict(path: str, stage: str, error: ErrorInfo) -> dict[str, Any]:
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


def report_dict(report: IngestReport) -> dict[str, Any]:
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
    lines: list[str] = []
    for line in str(_report_at_command_line(report)).splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        lines += terminal.wrapped(
            terminal.printable(line), terminal.width(), first=indent, rest=indent + "  "
        )
    if report.withheld:
        msg = (
            "So many files are missing at once that their documents are kept. If that is right:"
            " lazyrag sync --delete"
        )
        lines += terminal.wrapped(msg, terminal.width())
    return lines


def format_lines(formats: Sequence[PlannedFormat]) -> list[str]:
    """How a plan would read files: by kind, with their number and size; nothing where no file is to
    be read.
    """
    formats = formats if any(one.bytes or one.how != "skipped" for one in formats) else ()
    rows = [["kind", "files", "size", "read as"]]
    rows += [[one.kind or "-", str(one.files), _size(one.bytes), ""] for one in formats]
    lines = terminal.table(rows, right=(1, 2)) if formats else []
    for at, one in enumerate(formats, start=1):
        first = terminal.padded(lines[at], lines[0].index("read as"))
        text = terminal.printable(f"{one.how}: {at_command_line(one.why)}" if one.why else one.how)
        lines[at] = "\n".join(
            terminal.wrapped(text, terminal.width(), first=first, rest=" " * len(first))
        )
    return [line for one in lines for line in one.splitlines()]


def _size(count: int) -> str:
    """Bytes for people.

    Example:
        >>> _size(0), _size(999), _size(4_096), _size(12_345_678)
        ('', '1 kB', '4 kB', '12.3 MB')
    """
    return (
        ""
        if not count
        else f"{max(1, round(count / 1e3))} kB"
        if count < 1e6
        else f"{count / 1e6:.1f} MB"
    )


def is_changed(report: IngestReport, *, withheld: bool = True) -> bool:
    """Whether something was done, or is to be done; perhaps not counting deletions that are
    withheld.
    """
    done = (report.added, report.updated, report.deleted, report.moved, report.failed)
    return any(done) or bool(withheld and report.withheld)


def reason_lines(reasons: Mapping[str, str], most: int = 5) -> list[str]:
    """Why files, groups and indexes are done again."""
    lines: list[str] = []
    for name, why in list(reasons.items())[:most]:
        lines += terminal.wrapped(
            f"{terminal.printable(name)}: {why}", terminal.width(), first="  ", rest="    "
        )
    return [*lines, f"  and {len(reasons) - most} more"] if len(reasons) > most else lines


def _unread(report: IngestReport) -> list[str]:
    """The folders and links that could not be read: no files of theirs failed, as none were
    seen.
    """
    return [
        f"{path} ({reason})" for path, reason in report.skipped if reason.startswith("cannot be ")
    ]


def unread_lines(report: IngestReport) -> list[str]:
    """The folders and links that could not be read."""
    found = _unread(report)
    more = [f"and {len(found) - 5} more"] if len(found) > 5 else []
    return [
        line
        for one in [*(f"failed: {terminal.printable(one)}" for one in found[:5]), *more]
        for line in terminal.wrapped(f"  {one}", terminal.width(), first="  ", rest="    ")
    ]


def status_of(report: IngestReport) -> int:
    """The exit status: `FAILED` if a file failed or a folder could not be read."""
    return FAILED if report.failed or _unread(report) else OK


def golden_lines(report: GoldenReport) -> list[str]:
    """Golden questions: means beside thresholds, and the missed questions."""
    rows = [["measure", "mean", "threshold", "questions", ""]]
    for one in report.verdicts:
        verdict = "passed" if one.passed else "below"
        rows.append(
            [one.measure, f"{one.value:.4f}", f"{one.threshold:g}", str(one.questions), verdict]
        )
    lines = [
        re.sub(
            r"(passed|below)$", lambda found: terminal.styled(found[0], _COLOURS[found[0]]), line
        )
        for line in terminal.table(rows, right=(1, 2, 3))
    ]
    missed = report.missed()
    for question in missed[:_MAX_MISSED]:
        values = ", ".join(f"{name} {value:.2f}" for name, value in question.values.items())
        text = f"line {question.line}: {terminal.printable(question.question)} ({values})"
        lines += terminal.wrapped(text, terminal.width(), rest="  ")
    return [*lines, f"and {len(missed) - _MAX_MISSED} more"] if len(missed) > _MAX_MISSED else lines


def compared_lines(
    report: GoldenReport, earlier: Mapping[str, Any], said: Mapping[str, str]
) -> list[str]:
    """By measure, the sentence of a comparison and the questions that lost the most."""
    before = {item["question"]: item["values"] for item in earlier["questions"]}
    lines = []
    for name, sentence in said.items():
        lines.append(f"{name}: {sentence}")
        both = [
            one
            for one in report.questions
            if name in one.values and name in before.get(one.question, {})
        ]
        pairs = [(before[one.question][name], one.values[name], one) for one in both]
        worse = sorted(
            (pair for pair in pairs if pair[1] < pair[0]), key=lambda pair: pair[1] - pair[0]
        )
        for was, now, one in worse[:_MAX_WORSE]:
            text = (
                f"worse: line {one.line}: {terminal.printable(one.question)} ({was:.2f} before,"
                f" {now:.2f} now)"
            )
            lines += terminal.wrapped(text, terminal.width(), first="  ", rest="    ")
        if len(worse) > _MAX_WORSE:
            lines.append(f"  and {len(worse) - _MAX_WORSE} more")
    return lines


_COLOURS = {"passed": "green", "below": "red"}


# Filters

_CONDITION = re.compile(
    r"\s*(?P<field>[\w.-]+)\s*(?P<op>not\s+in\b|in\b|contains\b|exists\b|==|!=|>=|<=|=|>|<)\s*(?P<value>.*?)\s*"
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
    made = [_condition(one, schema) for one in conditions]
    found: Filter | None = None
    for one in made:
        found = one if found is None else found & one
    return found


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
            name, op, [_value(one.strip(), kind.value, name) for one in value.split(",")]
        )
    return Condition(name, op, _value(value, kind.value, name))


def _value(text: str, kind: str, name: str) -> Any:
    text = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
    try:
        if kind in ("int32", "int64"):
            return int(text)
        if kind in ("float", "double"):
            return float(text)
    except ValueError as exc:
        raise ConfigError(f"--filters compares {name} with a number; got {text!r}.") from exc
    return text.lower() == "true" if kind == "boolean" else text
