"""A folder of text files into chunks of two sizes and sentences, kept where it can be: beside other
frameworks.

    python benchmarks/ingest.py [--files 2000] [--many 20000] [--language en] [--rounds 5] [--check]

The files are real paragraphs of the shared data, about 5 kB a file, drawn with repetition until
there are enough: resampled. Every run is a process of its own, in random order; seconds are without
imports, memory is the peak of the process. Each framework does what comes naturally in it: what it
keeps, and whether that survives a restart, is in the last column. Nothing is embedded. "First
answer" is one group of 256 tokens and its BM25 index, by the first query of a program, beside the
same work written by hand. Then ours alone with many files, for memory that does not grow. With
--check less than 3 times the speed of the fastest framework that stores durably is a failure.
Results go to build/bench.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from corpus import RETRIEVAL, paragraphs
from engine import ADVICE, Engine, EngineError
from results import Row, save, table
from timing import spread

FILE_CHARACTERS = {"en": 5_000, "zh": 1_700}  # 5 kB each
OURS, FIRST, BY_HAND = "lazyrag", "lazyrag, first answer", "written by hand, first answer"
HAYSTACK = "haystack, first answer"
ENGINES = {
    OURS: ("Lazyrag", None),
    "lazyrag + BM25 index": ("LazyragIndexed", None),
    FIRST: ("LazyragFirst", None),
    BY_HAND: ("Floor", None),
    "langchain": ("Langchain", "peers"),
    "langchain + sqlite3 by hand": ("LangchainByHand", "peers"),
    "haystack": ("Haystack", "peers"),
    HAYSTACK: ("HaystackFirst", "peers"),
    "llama-index": ("LlamaIndex", "peers"),
    "lazyllm": ("Lazyllm", "peers-lazyllm"),
}
FRAMEWORKS = ("haystack", "llama-index", "lazyllm", "langchain")
COLUMNS = (
    "engine",
    "seconds",
    "cpu_s",
    "MB_per_s",
    "nodes",
    "nodes_per_s",
    "x",
    "peak_mb",
    "imports_mb",
    "stored_mb",
    "keeps",
)
TARGET = 3.0
PATIENCE = 5.0  # who takes so many times as long as ours is run once
_LOOSE_STOP = re.compile(r"\s+([.,])\s+(\w)")


def prose(language: str) -> list[str]:
    """Paragraphs as people write them: Cranfield has its stops between blanks, and no capitals."""
    return [_LOOSE_STOP.sub(_tight, text) for text in paragraphs(language)]


def _tight(match: re.Match[str]) -> str:
    return f"{match[1]} {match[2].upper() if match[1] == '.' else match[2]}"


def write_files(folder: Path, count: int, language: str) -> int:
    """That many files; returns their bytes."""
    chance = random.Random(0)
    texts = prose(language)
    folder.mkdir()
    size = 0
    for number in range(count):
        chosen: list[str] = []
        while sum(map(len, chosen)) < FILE_CHARACTERS[language]:
            chosen.append(chance.choice(texts))
        content = "\n\n".join(chosen).encode()
        (folder / f"{number:05}.txt").write_bytes(content)
        size += len(content)
    return size


def run_once(name: str, folder: Path) -> dict[str, Any]:
    """One run in a new process, with an empty folder to keep its results in."""
    of, environment = ENGINES[name]
    with (
        tempfile.TemporaryDirectory(dir=folder.parent) as out,
        Engine("ingest", of, environment) as engine,
    ):
        return {**engine.call("measure", folder=str(folder), out=out), "versions": engine.versions}


def median_row(engine: str, runs: list[dict[str, Any]], size: int) -> Row:
    """Medians of some runs."""
    seconds = statistics.median(run["seconds"] for run in runs)
    row: Row = {"engine": engine, **runs[0], "seconds": seconds, "runs": len(runs)}
    for name in ("peak_mb", "cpu_s"):
        row[name] = statistics.median(run[name] for run in runs)
    row["steps"] = {
        step: statistics.median(run["steps"][step] for run in runs) for step in runs[0]["steps"]
    }
    row["MB_per_s"] = size / 1e6 / seconds
    row["nodes_per_s"] = row["nodes"] / seconds
    return row


def compare(
    names: list[str], folder: Path, size: int, rounds: int
) -> tuple[list[Row], dict[str, str], dict[str, list[float]]]:
    """All frameworks, in turns; those that fail are left out with the reason. And what report.py
    shows beside goals.
    """
    chance = random.Random(0)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    left_out: dict[str, str] = {}
    again = names
    for _ in range(rounds):
        for name in chance.sample(again, len(again)):
            try:
                runs[name].append(run_once(name, folder))
            except EngineError as exc:
                if name.startswith(OURS):
                    raise
                print(f"{name} is left out: {exc} ({ADVICE})")
                left_out[name] = str(exc)
                del runs[name]
        ours = runs[OURS][0]["seconds"]
        again = [name for name, own in runs.items() if own[0]["seconds"] <= PATIENCE * ours]
    rows = [median_row(name, own, size) for name, own in runs.items()]
    for row in rows:
        row["x"] = row["seconds"] / rows[0]["seconds"]
    goals = {}
    if first := runs.get(FIRST):
        goals = {name: spread([run[name] for run in first]) for name in ("peak_mb", "cpu_s")}
    for other in (BY_HAND, HAYSTACK):
        if first and (own := runs.get(other)):
            goals[other] = spread(
                [a["cpu_s"] / b["cpu_s"] for a, b in zip(first, own, strict=False)]
            )
    return rows, left_out, goals


def main() -> int:
    """Compare, then many files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--many", type=int, default=0, help="ours alone with so many files, too")
    parser.add_argument("--language", choices=sorted(FILE_CHARACTERS), default="en")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--engines",
        nargs="+",
        choices=list(ENGINES),
        default=list(ENGINES),
        help="ours comes first",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help=f"fail below {TARGET:.0f} x the fastest durable framework",
    )
    options = parser.parse_args()
    if not RETRIEVAL.exists():
        print(f"no {RETRIEVAL}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "files")
        size = write_files(folder, options.files, options.language)
        print(
            f"{options.language}, {options.files:,} files, {size / 1e6:.1f} MB; x: seconds beside ours",
            flush=True,
        )
        names = [OURS, *(name for name in options.engines if name != OURS)]
        rows, left_out, goals = compare(names, folder, size, options.rounds)
        print(table(rows, COLUMNS))
        print("; ".join(f"{step} {took:.2f} s" for step, took in rows[0]["steps"].items()))
        if options.many:
            many = Path(temporary, "many")
            size_of_many = write_files(many, options.many, options.language)
            row = median_row(OURS, [run_once(OURS, many)], size_of_many)
            print(f"\n{options.many:,} files\n{table([row], COLUMNS[:-1])}")
            rows.append({**row, "files": options.many})
    for row in rows:
        row.setdefault("files", options.files)
        row["language"] = options.language
    save(f"ingest-{options.language}", rows, left_out=left_out, bytes=size, goals=goals)
    durable = [row["x"] for row in rows if row["engine"] in FRAMEWORKS and row["durable"]]
    if durable:
        print(
            f"\nthe fastest framework that stores durably takes {min(durable):.2f} times as long (target: {TARGET:g})"
        )
    return int(options.check and (not durable or min(durable) < TARGET))


if __name__ == "__main__":
    sys.exit(main())
