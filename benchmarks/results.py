"""What was measured, as JSON files under build/bench: one for each benchmark, language and size."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import machine

BUILD = machine.ROOT / "build"
FOLDER = BUILD / "bench"

Row: TypeAlias = dict[str, Any]
"""One line of a table: what was measured, and the figures."""


def save(name: str, rows: Sequence[Row], **facts: Any) -> Path:
    """Write a file; one of the same name is replaced.

    Args:
        name: Of the file, without its suffix. What follows the first hyphen tells runs of one
            benchmark apart.
        rows: The figures.
        facts: What else to know about them, such as the versions of the engines.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    found = {
        "benchmark": name.partition("-")[0],
        "command": shlex.join(["python", *map(shown, sys.argv)]),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        **facts,
        "rows": list(rows),
    }
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def load(benchmark: str, folder: Path = FOLDER, *, exact: bool = False) -> list[dict[str, Any]]:
    """All files of a benchmark, sorted by name; or exactly the one of that name."""
    paths = {
        *folder.glob(f"{benchmark}.json"),
        *(() if exact else folder.glob(f"{benchmark}-*.json")),
    }
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(paths)]


def shown(word: str) -> str:
    """An argument as another machine would give it: paths begin at the checkout."""
    path = Path(word)
    if path.is_absolute() and path.is_relative_to(machine.ROOT):
        return str(path.relative_to(machine.ROOT))
    return word


def table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Rows as aligned text; a figure that a row does not have is left empty."""
    cells = [list(columns), *([figure(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    )


def figure(value: Any) -> str:
    """A figure as tables show it: three digits that count, whole numbers with commas."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
