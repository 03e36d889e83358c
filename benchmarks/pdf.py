"""What PDF engines make of real files, and how fast: ours, and each of three by itself.

    python benchmarks/pdf.py

The files are the PDFs of the shared data. Quality is counted against their manifest and against
what stands in them: strings in order, rows of tables as lines, words that were broken between
lines. Then all read all files in turns; the times are those of the processor, child processes
included: ours reads in one.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import logging
import os
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pdfplumber
import pypdf
import pypdfium2
from machine import ROOT
from results import Row, save, table
from timing import process_tree_time, take_turns, timed

from lazyrag.errors import LoadError
from lazyrag.loaders.pdf import PdfLoader

DOCS = Path(os.environ.get("LAZYRAG_SHARED") or ROOT.parent / "shared") / "data" / "docs"
Reader: TypeAlias = Callable[[Path], str]
TOTAL = "all files"


def bare_pypdfium2(path: Path) -> str:
    """The text of pypdfium2, page by page."""
    with pypdfium2.PdfDocument(path) as document:
        return "\n\n".join(page.get_textpage().get_text_range() for page in document).replace(
            "\r\n", "\n"
        )


def bare_pypdf(path: Path) -> str:
    """The text of pypdf, page by page."""
    return "\n\n".join(page.extract_text() for page in pypdf.PdfReader(path).pages)


def bare_pdfplumber(path: Path) -> str:
    """The text of pdfplumber, page by page."""
    with pdfplumber.open(path) as document:
        return "\n\n".join(page.extract_text() for page in document.pages)


READERS: dict[str, Reader] = {
    "lazyrag": lambda path: PdfLoader().load(path).text,
    "pypdfium2": bare_pypdfium2,
    "pypdf": bare_pypdf,
    "pdfplumber": bare_pdfplumber,
}

ORDER = [
    (
        "multicolumn.pdf",
        "This is a sample",
        "consectetuer id, vulputate",
        "Donec nonummy",
        "Proin fermentum massa",
    ),
    ("korean-text-with-tables.pdf", "1.5% 빅포인트 적립", "모든 주유소", "서비스 제공 기준"),
    (
        "layout-parser-paper-fast.pdf",
        "Abstract.",
        "Keywords:",
        "1 Introduction",
        "several practical difficulties",
    ),
]
"""Of a file what is to be read in this order."""

ROWS = [
    ("SPARSE-2024-INV-1234_borderless_table.pdf", "SKU-8847", "A-12", "450"),
    ("SPARSE-2024-INV-1234_borderless_table.pdf", "B-07", "289", "-23"),
    ("SPARSE-2024-INV-1234_borderless_table.pdf", "SKU-9201", "780", "778", "OK"),
    (
        "SPARSE-2024-INV-1234_borderless_table.pdf",
        "SKU-6678",
        "Software",
        "$42,000.00",
        "High Value",
    ),
    ("SPARSE-2024-INV-1234_borderless_table.pdf", "SKU-1123", "Hardware", "$55.00", "2024-10-30"),
    ("multicolumn.pdf", "Czech Republic", "10.7", "78,866", "Prague", "Czech"),
    ("korean-text-with-tables.pdf", "업종", "적립 대상"),
]
"""Of a file the values of a row, which are to stand in one line, told apart by more than a single
blank."""

WORDS = [
    ("made_zh.pdf", "分别是以武田信玄等人为主", "关原的年轻武者》", "打击乐的各种不同的演奏方法"),
    ("multicolumn.pdf", "consectetuer id, vulputate", "malesuada"),
    ("layout-parser-paper-fast.pdf", "important innovations", "layout detection, character"),
]
"""Of a file what is broken between two lines on the paper, and is to be whole."""


def has_order(text: str, parts: tuple[str, ...]) -> bool:
    """Whether all are found, each after the one before."""
    text = " ".join(text.split())
    at = 0
    for part in parts:
        at = text.find(part, at)
        if at < 0:
            return False
    return True


def has_row(text: str, values: tuple[str, ...]) -> bool:
    """Whether a line holds the values, something that is no single blank between them."""
    gap = r"(?:\s*\|\s*(?:.*\|\s*)?|\s{2,}(?:.*\s{2,})?|\t)"
    row = re.compile(gap.join(map(re.escape, values)))
    return any(row.search(line) for line in text.splitlines())


def judged(texts: dict[str, str | None], manifest: list[dict[str, Any]]) -> Row:
    """How many checks of each kind a reader passes; None for a file that it could not read."""
    folded = {name: " ".join((text or "").split()) for name, text in texts.items()}
    expected = [one for one in manifest if one["error"] is None]
    found = [all(part in folded[one["file"]] for part in one["contains"]) for one in expected]
    told = {
        "strings": (sum(found), len(found)),
        "order": passed(texts, ORDER, has_order),
        "rows": passed(texts, ROWS, has_row),
        "words": passed(texts, WORDS, lambda text, parts: all(part in text for part in parts)),
    }
    return {
        **{name: f"{right} of {count}" for name, (right, count) in told.items()},
        "radicals": sum(
            "\u2e80" <= one <= "\u2fdf" for text in texts.values() for one in text or ""
        ),
        "errors": sum(text is None for text in texts.values()),
        "silent": sum(not (folded[one["file"]] or texts[one["file"]] is None) for one in manifest),
    }


def passed(
    texts: dict[str, str | None],
    checks: list[tuple[str, ...]],
    check: Callable[[str, tuple[str, ...]], bool],
) -> tuple[int, int]:
    """How many checks are passed, and how many there are."""
    return sum(check(texts.get(name) or "", tuple(parts)) for name, *parts in checks), len(checks)


def read(reader: Reader, path: Path) -> str | None:
    """A file's text, or None where it fails."""
    try:
        return reader(path)
    except Exception as exc:  # noqa: BLE001  of each library other ones
        if not isinstance(exc, LoadError):
            print(f"  {path.name}: {type(exc).__name__}: {exc}"[:120])
        return None


def page_count(path: Path) -> int:
    """Pages of a file."""
    with pypdfium2.PdfDocument(path) as document:
        return len(document)


def speeds(paths: dict[Path, int], rounds: int) -> dict[str, list[Row]]:
    """For each reader the median seconds of each file, as pages and megabytes a second, and of all
    together.
    """
    files = list(paths)
    seconds = take_turns(
        {name: timed(reader, process_tree_time) for name, reader in READERS.items()},
        [dict.fromkeys(READERS, path) for path in files],
        rounds,
        block=1,
    )
    rows: dict[str, list[Row]] = {}
    for name, times in seconds.items():
        medians = [statistics.median(times[at :: len(files)]) for at in range(len(files))]
        parts = [
            (path.name, paths[path], path.stat().st_size, took)
            for path, took in zip(files, medians, strict=True)
        ]
        parts.append(
            (TOTAL, *(sum(column) for column in zip(*(part[1:] for part in parts), strict=True)))
        )
        rows[name] = [
            {
                "file": file,
                "pages": pages,
                "pages_per_s": pages / took,
                "MB_per_s": size / 1e6 / took,
            }
            for file, pages, size, took in parts
        ]
    return rows


def main() -> int:
    """Judge, measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if not DOCS.exists():
        print(f"no {DOCS}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    listed = json.loads((DOCS.parent / "manifest.json").read_text(encoding="utf-8"))["files"]
    manifest = [
        {**one, "file": Path(one["file"]).name}
        for one in listed
        if one["file"].endswith(".pdf") and one["file"].startswith("docs/")
    ]
    for name in ("pdfminer", "pypdf"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    texts: dict[str, dict[str, str | None]] = {}
    for name, reader in READERS.items():
        print(name)
        texts[name] = {one["file"]: read(reader, DOCS / one["file"]) for one in manifest}
    timed_files = {
        DOCS / one["file"]: page_count(DOCS / one["file"])
        for one in manifest
        if all(texts[name][one["file"]] for name in READERS)
    }
    measured = speeds(timed_files, options.rounds)
    rows = [
        {
            "engine": name,
            **judged(texts[name], manifest),
            **{key: value for key, value in measured[name][-1].items() if key != "file"},
            "files": measured[name][:-1],
        }
        for name in READERS
    ]
    columns = ["engine", "strings", "order", "rows", "words", "radicals", "errors", "silent"]
    print("\n" + table(rows, [*columns, "pages_per_s", "MB_per_s"]))
    versions = {
        one: importlib.metadata.version(one)
        for one in ("pypdf", "pypdfium2", "pdfplumber", "pdfminer.six")
    }
    save("pdf", rows, versions={"readers": versions}, left_out={})
    return 0


if __name__ == "__main__":
    sys.exit(main())
