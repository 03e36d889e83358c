"""Command line ``lazyrag``: golden questions as a gate. Needs the extra ``cli``, and ``yaml`` for YAML files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from lazyrag.errors import LazyRAGError, MissingDependencyError, missing_package
from lazyrag.evaluation.golden import GoldenReport, judge, read_golden

PASSED, BELOW, BAD_INPUT = 0, 1, 2
"""Exit statuses: every threshold is reached; one is not; invalid input."""

_MAX_MISSED = 10  # questions to show; the JSON has all


def main() -> None:
    """Run the command with the program's arguments (entry point of setup.cfg)."""
    try:
        app = make_app()
    except MissingDependencyError as exc:
        sys.stderr.write(f"{exc}\n")
        raise SystemExit(BAD_INPUT) from exc
    app()


def make_app() -> Any:
    """Make the command as a `typer.Typer`.

    Raises:
        MissingDependencyError: If typer or rich is not installed: ``pip install "lazyrag[cli]"``.
    """
    try:
        import rich  # noqa: F401  so that a missing extra is reported before anything runs
        import typer
    except ModuleNotFoundError as exc:
        raise missing_package("The command line", exc, "cli") from exc

    app = typer.Typer(add_completion=False, no_args_is_help=True, help="lazyrag: search a folder of files.")
    app.callback()(_group)
    golden = typer.Argument(..., help="The golden questions: .yaml, .yml or .json.", show_default=False)
    as_json = typer.Option(False, "--json", help="Print the whole report as JSON, and nothing else.")
    output = typer.Option(
        None, "--output", "-o", help="Write the report as JSON to this file, too.", show_default=False
    )

    def evaluate(golden: Path = golden, as_json: bool = as_json, output: Path | None = output) -> None:
        """Run golden questions and compare the results with the file's thresholds.

        The exit status is 0 if every threshold is reached, 1 if one is not, 2 for invalid input.
        """
        raise typer.Exit(run_eval(golden, as_json=as_json, output=output))

    app.command("eval")(evaluate)
    return app


def run_eval(golden: Path, *, as_json: bool = False, output: Path | None = None) -> int:
    """Judge a file of golden questions, print the report, and return the exit status.

    Args:
        golden: The file.
        as_json: Whether to print JSON instead of tables.
        output: A file to write the JSON to as well.
    """
    try:
        report = judge(read_golden(golden))
        report_json = json.dumps(report.to_dict(), ensure_ascii=False, indent=2, allow_nan=False)
        if output is not None:
            output.write_text(report_json + "\n", encoding="utf-8")
    except (LazyRAGError, OSError) as exc:
        sys.stderr.write(f"{exc}\n")
        return BAD_INPUT
    except Exception as exc:  # noqa: BLE001  not status 1, which means that retrieval is not good enough
        sys.stderr.write(f"{type(exc).__name__}: {exc}\n")
        return BAD_INPUT
    if as_json:
        sys.stdout.write(report_json + "\n")
    else:
        show(report)
    return PASSED if report.passed else BELOW


def show(report: GoldenReport) -> None:
    """Print a report as a table, and the questions that were missed."""
    from rich.console import Console  # see `make_app`
    from rich.table import Table
    from rich.text import Text

    console = Console(soft_wrap=True)
    table = Table()
    for name in ("measure", "mean", "threshold", "questions", ""):
        table.add_column(name, justify="left" if name in ("measure", "") else "right")
    for one in report.verdicts:
        verdict = Text("passed", "green") if one.passed else Text("below", "bold red")
        table.add_row(one.measure, f"{one.value:.4f}", f"{one.threshold:g}", str(one.questions), verdict)
    console.print(table)
    missed = report.missed()
    for question in missed[:_MAX_MISSED]:
        values = ", ".join(f"{name} {value:.2f}" for name, value in question.values.items())
        console.print(Text(f"line {question.line}: {question.question} ({values})"))
    if len(missed) > _MAX_MISSED:
        console.print(Text(f"and {len(missed) - _MAX_MISSED} more"))


def _group() -> None:
    """Search a folder of files; one command for each task."""
