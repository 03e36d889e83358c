"""Time and memory against the number of nodes, and the exponent that fits: ours alone, on a store
file.

    python benchmarks/growth.py [--nodes 100000] [--check]

Nodes are lines of files, 100 to a file: 60 words of real English texts, resampled. "ingest" reads,
splits, stores, indexes for BM25 and answers once; "first answer" is a new process that imports,
opens and answers once, so that each is measured with nothing at hand; "bm25" is a question in words
through the Retriever; "dense" a search of DenseIndex for vectors of 384 numbers. An exponent of 1
means: ten times the nodes take ten times as long. It is the slope of a straight line through the
logarithms; that of the last two sizes leaves out what is the same at every size. With --check a
first answer after more than 1 s (up to 100,000 nodes) or 8 s (up to 1,000,000) is a failure.
Results go to build/bench.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from corpus import RETRIEVAL, make_corpus, make_queries
from engine import Engine
from results import Row, save, table
from timing import median_ms, spread
from vectors import make_queries as make_vector_queries
from vectors import make_vectors
from vectors import save as save_vectors

SIZES = (1_000, 10_000, 100_000, 1_000_000)
LINES = 100  # of a file
QUERIES = 60
RESTARTS = 5
FIGURES = {
    "ingest_s": "ingest, s",
    "ingest_cpu_s": "CPU s",
    "ingest_peak_mb": "ingest, peak MB",
    "stored_mb": "store, MB",
    "first_answer_s": "first answer, s",
    "first_answer_cpu_s": "CPU s",
    "first_answer_peak_mb": "first answer, peak MB",
    "bm25_ms": "bm25, p50 ms",
    "dense_ms": "dense, p50 ms",
}
LONGEST = {100_000: 1.0, 1_000_000: 8.0}


def measure(count: int) -> Row:
    """All figures at one size."""
    corpus = make_corpus("en", count)
    queries = make_queries(corpus, QUERIES)
    with tempfile.TemporaryDirectory() as temporary:
        folder, stored = Path(temporary, "files"), Path(temporary, "store")
        folder.mkdir()
        stored.mkdir()
        for start in range(0, count, LINES):
            texts = [corpus.text(row) for row in range(start, min(start + LINES, count))]
            (folder / f"{start:08}.txt").write_text("\n".join(texts), encoding="utf-8")
        given = {"folder": str(folder), "store": str(stored / "store.db"), "query": queries[0]}
        with Engine("growth", "Stored") as engine:
            row: Row = {"nodes": count, "text": corpus.label(), **engine.call("ingest", **given)}
        restarts = []
        for _ in range(RESTARTS):
            with Engine("growth", "Stored") as engine:
                restarts.append(engine.call("restart", **given))
                seconds = engine.times("search", queries)
        for name in restarts[0]:
            row[name] = statistics.median(one[name] for one in restarts)
        row["first_answers_ms"] = [1000 * one["first_answer_cpu_s"] for one in restarts]
        row["bm25_ms"] = median_ms(seconds)
        paths = save_vectors(Path(temporary), make_vectors(count)[0], make_vector_queries(QUERIES))
        with Engine("dense", "Lazyrag") as engine:
            engine.call("load", **paths)
            row["dense_ms"] = median_ms(engine.times("search", list(range(QUERIES))))
    return row


def exponent(rows: Sequence[Row], name: str) -> float | None:
    """The slope of the straight line through the logarithms of a figure, by least squares; None for
    one row.
    """
    if len(rows) < 2:
        return None
    return float(
        np.polyfit(np.log([row["nodes"] for row in rows]), np.log([row[name] for row in rows]), 1)[
            0
        ]
    )


def longest(nodes: int) -> float:
    """Seconds that the first answer may take."""
    return next((seconds for most, seconds in LONGEST.items() if nodes <= most), float("inf"))


def main() -> int:
    """Measure at every size up to the one asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--nodes", type=int, default=100_000, help="the largest size; 1000000 takes many minutes"
    )
    parser.add_argument(
        "--check", action="store_true", help="fail where the first answer takes longer than it may"
    )
    options = parser.parse_args()
    if not RETRIEVAL.exists():
        print(f"no {RETRIEVAL}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    rows = []
    for count in sorted({*(size for size in SIZES if size < options.nodes), options.nodes}):
        rows.append(measure(count))
        print(table(rows[-1:], ("nodes", *FIGURES)), flush=True)
    exponents = {
        "exponent": {name: exponent(rows, name) for name in FIGURES},
        "of the last two": {name: exponent(rows[-2:], name) for name in FIGURES},
    }
    print(
        table(
            [{"nodes": label, **found} for label, found in exponents.items()], ("nodes", *FIGURES)
        )
    )
    goals = {f"first answer, {row['nodes']}": spread(row["first_answers_ms"]) for row in rows}
    save("growth", rows, goals=goals, exponents=exponents)
    late = [row["nodes"] for row in rows if row["first_answer_s"] > longest(row["nodes"])]
    for count in late:
        print(f"the first answer of {count:,} nodes comes too late")
    return int(options.check and bool(late))


if __name__ == "__main__":
    sys.exit(main())
