"""How much of the main text of web pages is found, and how much beside it, next to trafilatura.

    python benchmarks/main_text.py FOLDER [--pages 200]

FOLDER is ``tests`` of a checkout of https://github.com/adbar/trafilatura: ``evaldata.json`` lists
strings that are, and that are not, in the main text of each page of ``cache`` and ``eval``. They
are counted as in its own evaluation: white space is folded; a string in the text of an engine is a
hit or a false alarm. Engines take turns page by page, each in a process of its own; processor time
counts. Halves are drawn by a hash of the pages' URLs: the rules of lazyrag were made on A, and the
last variants compared on B as well. Figures go to build/bench.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from engine import Engine, EngineError, open_engines
from results import Row, save, table

ENGINES = {
    "whole page": ("WholePage", None),
    "main_text=True": ("Lazyrag", None),
    "trafilatura": ("Trafilatura", "peers-formats"),
}
COLUMNS = ("engine", "half", "pages", "precision", "recall", "F", "cpu_ms")


def folded(text: str) -> str:
    """Text with white space collapsed."""
    return " ".join(text.split())


def counted(engine: Engine, path: Path, entry: dict[str, Any]) -> dict[str, float]:
    """Hits, misses and false alarms of an engine on a page, and its processor milliseconds."""
    try:
        answer = engine.call("measure", path=str(path))
    except EngineError:  # counts as a page without text
        answer = {"text": "", "seconds": 0.0}
    text = folded(answer["text"])
    hits = sum(folded(part) in text for part in entry["with"])
    alarms = sum(folded(part) in text for part in entry["without"])
    return {
        "hits": hits,
        "misses": len(entry["with"]) - hits,
        "alarms": alarms,
        "ms": 1e3 * answer["seconds"],
    }


def summary(name: str, half: str, pages: list[dict[str, float]]) -> Row:
    """The figures of an engine."""
    hits, misses, alarms = (
        sum(page[count] for page in pages) for count in ("hits", "misses", "alarms")
    )
    return {
        "engine": name,
        "half": half,
        "pages": len(pages),
        "precision": hits / (hits + alarms or 1),
        "recall": hits / (hits + misses or 1),
        "F": 2 * hits / (2 * hits + misses + alarms or 1),
        "cpu_ms": statistics.fmean(page["ms"] for page in pages),
    }


def main() -> int:
    """Measure all engines, print and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="tests of a checkout of trafilatura")
    parser.add_argument("--pages", type=int, help="only the first ones")
    options = parser.parse_args()
    entries = json.loads((options.folder / "evaldata.json").read_text(encoding="utf-8"))
    with ExitStack() as stack:
        engines, left_out = open_engines(stack, "main_text", ENGINES)
        versions = {name: engine.versions for name, engine in engines.items()}
        pages: dict[tuple[str, str], list[dict[str, float]]] = {}
        for url, entry in sorted(entries.items())[: options.pages]:
            half = "AB"[hashlib.sha256(url.encode()).digest()[0] % 2]
            paths = [options.folder / name / entry["file"] for name in ("cache", "eval")]
            path = next(path for path in paths if path.exists())
            for name, engine in engines.items():
                pages.setdefault((name, half), []).append(counted(engine, path, entry))
    rows = [summary(name, half, counts) for (name, half), counts in sorted(pages.items())]
    print(table(rows, COLUMNS))
    save("main_text", rows, left_out=left_out, versions=versions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
