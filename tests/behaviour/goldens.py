"""The golden files: JSON lines with sorted keys, one row for each thing that is compared."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "golden"
RECORD = "python -m tests.behaviour.record"

Row = Mapping[str, Any]


@cache
def load(name: str) -> dict[str, dict[str, Any]]:
    """The rows of a golden file by their key."""
    text = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8")
    return {row["key"]: row for row in map(json.loads, text.splitlines())}


def save(name: str, rows: Iterable[Row]) -> None:
    """Write a golden file."""
    written = "".join(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n" for row in rows)
    (FOLDER / f"{name}.jsonl").write_text(written, encoding="utf-8")
    load.cache_clear()


def check(name: str, rows: Iterable[Row]) -> None:
    """Compare rows with those of the same key in a golden file, field by field.

    Raises:
        AssertionError: If a field differs; with what it was and what it is.
    """
    golden = load(name)
    listed = list(rows)
    assert listed, f"Nothing was compared with {name}.jsonl."
    for row in listed:
        then = golden.get(row["key"])
        assert then is not None, f"{name}.jsonl has no {row['key']!r}. Record it: {RECORD}"
        for field, value in row.items():
            assert value == then[field], (
                f"{row['key']} differs from golden/{name}.jsonl in {field}:\n  then {then[field]!r}\n  now  {value!r}"
            )
