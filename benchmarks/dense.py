"""Nearest vectors beside other engines: one run, the same vectors and queries for all, interleaved,
medians and ratios.

    python benchmarks/dense.py [--nodes 100000] [--check]

Vectors and queries are those of vectors.py: real MiniLM embeddings, and beyond about 20,000
synthetic ones made from them. Each engine runs in a process of its own. Beside them stands what
reading the matrix takes, by one thread and by two: no exact search that reads all of it can be
faster. Before the clock starts our best 10 are compared with those of a product in float64; of the
others the share of the true best 10 that they find is printed. With --check a search of more than 1.3
times the time of reading by two threads is a failure. Results go to build/bench.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from corpus import RETRIEVAL
from engine import Engine, open_engines
from engines.lexical import TOPK
from results import Row, save, table
from timing import median_ms, quantile_ms, ratios, take_turns
from vectors import HOW, make_queries, make_vectors
from vectors import save as save_vectors

SIZES = (10_000, 100_000, 1_000_000)
QUERIES = 64
OURS, READING = "lazyrag", "reading"
SLOW = "sqlite-vec"
SLOW_UP_TO = 100_000
ENGINES = {
    OURS: ("Lazyrag", None),
    "numpy": ("Numpy", None),
    READING: ("Reading", None),
    "faiss flat": ("Faiss", "peers"),
    "usearch exact": ("Usearch", "peers"),
    "chromadb (HNSW)": ("Chroma", "peers"),
    SLOW: ("SqliteVec", "peers"),
}
READ_TWO = "reading, 2 threads"
COLUMNS = (
    "engine",
    "p50_ms",
    "p95_ms",
    "x_reading",
    "batch_ms",
    "x_batch",
    "recall",
    "share_read",
    "build_s",
    "memory_mb",
)
MOST = 1.3


def run(count: int, rounds: int) -> float:
    """Measure one size; returns how many times the time of reading our search takes."""
    vectors, real = make_vectors(count)
    queries = make_queries(QUERIES)
    jobs = list(range(QUERIES))
    label = "real" if real == count else f"{real:,} real, the others synthetic: {HOW}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        paths = save_vectors(folder, vectors, queries)
        best = true_best(vectors, queries)
        del vectors
        chosen = {
            name: engine for name, engine in ENGINES.items() if name != SLOW or count <= SLOW_UP_TO
        }
        engines, left_out = open_engines(stack, "dense", chosen)
        costs = {name: engine.call("load", **paths) for name, engine in engines.items()}
        reading = engines.pop(READING)
        recalls = {
            name: recall(engine.call("answers", jobs=jobs), best)
            for name, engine in engines.items()
        }
        assert recalls[OURS] == 1.0
        candidates: dict[str, Any] = {
            name: of(engine, "search") for name, engine in engines.items()
        }
        candidates |= {"reading, 1 thread": of(reading, "one"), READ_TWO: of(reading, "two")}
        seconds = take_turns(
            candidates, [dict.fromkeys(candidates, job) for job in jobs], rounds, block=16
        )
        batches = take_turns(
            {name: of(engine, "search_batch") for name, engine in engines.items() if name != SLOW},
            [dict.fromkeys(engines, jobs)],
            rounds,
        )
        contributions = engines[OURS].call("share_read", jobs=jobs)
        versions = {name: engine.versions for name, engine in engines.items()}
    rows = make_rows(seconds, batches)
    for row in rows:
        name = row["engine"]
        row.update(costs.get(name, {}), nodes=count, vectors=label, recall=recalls.get(name))
    rows[0]["share_read"] = statistics.median(contributions)
    print(f"\n{count:,} vectors ({label}), {QUERIES} queries\n{table(rows, COLUMNS)}")
    goals = {"reading": ratios(seconds[OURS], seconds[READ_TWO], rounds)}
    save(
        f"dense-{count:08}",
        rows,
        goals=goals,
        left_out=left_out,
        versions=versions,
        shares_read=contributions,
    )
    return float(rows[0]["x_reading"])


def of(engine: Engine, method: str) -> Any:
    """A candidate that measures itself."""
    return lambda jobs: engine.times(method, jobs)


def true_best(vectors: np.ndarray, queries: np.ndarray) -> list[set[int]]:
    """The best rows of each query by products in float64, ties by row."""
    best = []
    scores = np.empty((len(queries), len(vectors)))
    for start in range(0, len(vectors), 50_000):
        block = vectors[start : start + 50_000].astype(np.float64)
        cosines = block @ queries.astype(np.float64).T / np.linalg.norm(block, axis=1)[:, None]
        scores[:, start : start + 50_000] = cosines.T
    for own in scores:
        near = np.flatnonzero(own >= np.partition(own, -TOPK)[-TOPK])
        best.append({*near[np.argsort(-own[near], kind="stable")][:TOPK].tolist()})
    return best


def recall(found: list[list[int]], best: list[set[int]]) -> float:
    """The mean share of the true best that was found."""
    return statistics.mean(
        len({*own} & true) / len(true) for own, true in zip(found, best, strict=True)
    )


def make_rows(seconds: dict[str, list[float]], batches: dict[str, list[float]]) -> list[Row]:
    """A line for each candidate.

    x_reading: times the time of reading by two threads; batch_ms: for each query of a batch;
    x_batch: how many times faster than alone.
    """
    rows = []
    for name, own in seconds.items():
        median = median_ms(own)
        row: Row = {"engine": name, "p50_ms": median, "p95_ms": quantile_ms(own, 0.95)}
        row["x_reading"] = median / median_ms(seconds[READ_TWO])
        if name in batches:
            row["batch_ms"] = median_ms(batches[name]) / QUERIES
            row["x_batch"] = median / row["batch_ms"]
        rows.append(row)
    return rows


def main() -> int:
    """Measure at every size up to the one asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--nodes",
        type=int,
        default=100_000,
        help="the largest size; 1000000 takes half an hour and 15 GB",
    )
    parser.add_argument("--only", action="store_true", help="that size alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--check", action="store_true", help=f"fail above {MOST} x the time of reading the matrix"
    )
    options = parser.parse_args()
    if not RETRIEVAL.exists():
        print(f"no {RETRIEVAL}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    sizes = (
        {options.nodes}
        if options.only
        else {*(size for size in SIZES if size < options.nodes), options.nodes}
    )
    for count in sorted(sizes):
        ratio = run(count, options.rounds)
    print(
        f"\nour search at {options.nodes:,} vectors takes {ratio:.2f} times as long as reading them (target: {MOST})"
    )
    return int(options.check and ratio > MOST)


if __name__ == "__main__":
    sys.exit(main())
