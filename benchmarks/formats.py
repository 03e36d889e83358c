"""How fast files of each format become text, beside markitdown and the readers of llama-index, on
the same files.

    python benchmarks/formats.py [--seconds 1] [--formats docx html]
    python benchmarks/formats.py --quality [--check]

The files are those of the shared documents that can be read, grouped as tools/format_table.py does.
Each engine runs in a process of its own and reads each file again and again for some time; its
shortest time counts, imports do not. Speed is the files' bytes by the sum of times, over the files
that the engine read with all texts that the manifest says are in them: ``read`` says how many; what
was read without them, or not at all, does not count for it. Ratios compare the files that both
read. Results go to build/bench, and of a run with all formats to benchmarks/formats.json, of which
docs/formats.md is made.

With ``--quality`` the files are those of tests/format_cases.py, each made for what readers lose;
the figures are precision and recall of words, and the share of the common ones that are in order.
Of the shared PDFs it is the share of the manifest's strings that an engine finds. ``--check`` fails
where the best peer is better by more than .01.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import unicodedata
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from corpus import RETRIEVAL
from engine import ADVICE, Engine, EngineError
from results import Row, save, table

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))
sys.path.append(str(Path(__file__).resolve().parents[1]))
from format_table import FORMATS

from tests.format_cases import CASES
from tests.format_cases import measured as words_found

OURS = "lazyrag"
ENGINES = {
    OURS: ("Lazyrag", None),
    "markitdown": ("Markitdown", "peers-formats"),
    "llama-index": ("LlamaIndex", "peers-formats"),
}
PDF_ENGINES = {
    "pymupdf": ("PyMuPdf", "peers-formats"),
    "pdfplumber": ("PdfPlumber", "peers-formats"),
}
MARGIN = 0.01
COLUMNS = ("format", "engine", "files", "read", "MB_per_s", "pages_per_s", "x")
SHARED = RETRIEVAL.parent
KEPT = Path(__file__).with_suffix(".json")


def started(
    wanted: dict[str, tuple[str, str | None]], stack: ExitStack
) -> tuple[dict[str, Engine], dict[str, str]]:
    """The engines that can be had, and why the others cannot."""
    engines: dict[str, Engine] = {}
    left_out: dict[str, str] = {}
    for name, (of, environment) in wanted.items():
        try:
            engines[name] = stack.enter_context(Engine("formats", of, environment))
        except EngineError as exc:
            if name == OURS:
                raise
            print(f"{name} is left out: {exc} ({ADVICE})")
            left_out[name] = str(exc)
    return engines, left_out


def files() -> dict[str, list[dict[str, Any]]]:
    """The files that must be read, by format."""
    listed = json.loads((SHARED / "manifest.json").read_text(encoding="utf-8"))["files"]
    formats = {suffix: one.name for one in FORMATS for suffix in one.suffixes}
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in listed:
        path = SHARED / entry["file"]
        of = formats.get(path.suffix)
        if entry["file"].startswith("docs/") and entry["error"] is None and of is not None:
            found.setdefault(of, []).append({**entry, "path": path})
    return found


def folded(text: str) -> str:
    """Text under NFKC, with white space collapsed, and without what Markdown marks or escapes
    by.
    """
    plain = " ".join(unicodedata.normalize("NFKC", text).split())
    return plain.translate(dict.fromkeys(map(ord, "\\*_|`")))


def measured(engine: Engine, entry: dict[str, Any], least_s: float) -> dict[str, Any]:
    """One engine on one file: seconds, or why it does not count."""
    try:
        found = engine.call("measure", path=str(entry["path"]), least_s=least_s)
    except EngineError as exc:
        return {"failed": str(exc).strip().splitlines()[-1][:200]}
    text = folded(found.pop("text"))
    if text.count("\0") > len(text) / 100:
        return {**found, "failed": "bytes taken for text"}
    lacking = [one for one in entry["contains"] if folded(one) not in text]
    return {**found, "failed": f"lacks {lacking[0]!r}"} if lacking else found


def row_of(
    of: str, name: str, entries: list[dict[str, Any]], runs: dict[str, list[dict[str, Any]]]
) -> Row:
    """The figures of an engine for a format."""
    own = [
        (entry, run) for entry, run in zip(entries, runs[name], strict=True) if "failed" not in run
    ]
    both = [
        (run["seconds"], our["seconds"])
        for run, our in zip(runs[name], runs[OURS], strict=True)
        if "failed" not in run and "failed" not in our
    ]
    row: Row = {"format": of, "engine": name, "files": len(entries), "read": len(own)}
    seconds = sum(run["seconds"] for _, run in own)
    if own:
        row["MB_per_s"] = sum(entry["bytes"] for entry, _ in own) / 1e6 / seconds
        pages = sum(entry.get("pages") or entry.get("slides") or 0 for entry, _ in own)
        row["pages_per_s"] = pages / seconds if pages else None
    if both:
        row["x"] = sum(theirs for theirs, _ in both) / sum(ours for _, ours in both)
    row["failed"] = {
        entry["file"]: run["failed"]
        for entry, run in zip(entries, runs[name], strict=True)
        if "failed" in run
    }
    return row


def read(engine: Engine, path: Path) -> str:
    """An engine's text of a file; "" where it fails."""
    try:
        return str(engine.call("measure", path=str(path), least_s=0)["text"])
    except EngineError:
        return ""


def quality(engines: dict[str, Engine]) -> list[Row]:
    """Precision, recall and order of each engine on each made file, and strings found in the shared
    PDFs.
    """
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, make in CASES.items():
            case = make()
            path = Path(folder, f"file{case.suffix}")
            path.write_bytes(case.data)
            for engine in (
                engines
                if case.suffix == ".pdf"
                else [one for one in engines if one not in PDF_ENGINES]
            ):
                precision, recall, order = words_found(read(engines[engine], path), case.truth)
                rows.append(
                    {
                        "file": name,
                        "engine": engine,
                        "precision": precision,
                        "recall": recall,
                        "order": order,
                    }
                )
    entries = files()["PDF"] if SHARED.exists() else []
    for engine in engines if entries else ():
        texts = [folded(read(engines[engine], entry["path"])) for entry in entries]
        strings = [
            (folded(one), text)
            for entry, text in zip(entries, texts, strict=True)
            for one in entry["contains"]
        ]
        rows.append(
            {
                "file": "shared PDFs",
                "engine": engine,
                "recall": sum(a in b for a, b in strings) / len(strings),
            }
        )
    return rows


def worse(rows: list[Row]) -> list[str]:
    """Where a peer is better than we are by more than the margin."""
    found = []
    for own in (row for row in rows if row["engine"] == OURS):
        for figure in ("precision", "recall", "order"):
            peers = [
                row
                for row in rows
                if row["file"] == own["file"] and row is not own and figure in row
            ]
            best = max(peers, key=lambda row: row[figure], default=None)
            if best is not None and best[figure] > own[figure] + MARGIN:
                found.append(
                    f"{own['file']}: {figure} {own[figure]:.3f}, {best['engine']} {best[figure]:.3f}"
                )
    return found


def print_quality() -> list[str]:
    """Print the figures of all engines; returns where a peer is better."""
    with ExitStack() as stack:
        rows = quality(started(ENGINES | PDF_ENGINES, stack)[0])
    print(table(rows, ("file", "engine", "precision", "recall", "order")))
    found = worse(rows)
    print("\n".join(found) or "no peer is better")
    return found


def main() -> int:
    """Measure all formats, print and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="how long each file is read again and again"
    )
    parser.add_argument(
        "--formats", nargs="+", metavar="SUFFIX", help="only those of these suffixes, without dots"
    )
    parser.add_argument(
        "--quality", action="store_true", help="words read right of made files, instead of speed"
    )
    parser.add_argument(
        "--check", action="store_true", help="with --quality: fail where a peer is better"
    )
    options = parser.parse_args()
    if options.quality:
        return int(bool(print_quality()) and options.check)
    if not SHARED.exists():
        print(f"no {SHARED}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    wanted = {f".{suffix}" for suffix in options.formats or ()}
    rows: list[Row] = []
    with ExitStack() as stack:
        engines, left_out = started(ENGINES, stack)
        for of, entries in files().items():
            if wanted and not any(entry["path"].suffix in wanted for entry in entries):
                continue
            runs = {
                name: [measured(engine, entry, options.seconds) for entry in entries]
                for name, engine in engines.items()
            }
            new = [row_of(of, name, entries, runs) for name in engines]
            print(table(new, COLUMNS), flush=True)
            for row in new:
                for file, reason in row["failed"].items():
                    print(f"  {row['engine']}: {file}: {reason}")
            rows += new
        versions = {name: engine.versions for name, engine in engines.items()}
    path = save("formats", rows, versions=versions, left_out=left_out)
    if not wanted:
        KEPT.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
