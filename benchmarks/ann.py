"""The approximate search by graphs beside the exact one: time to build, p50, and the share of the
nearest it finds.

    python benchmarks/ann.py [--nodes 100000] [--queries 100]

The vectors are 384 numbers long and lie in 2,000 clusters that overlap, with noise; the nearest row
is hardly nearer than the tenth, which is harder for a graph than most embeddings are. They lie in a
store file, as a Document's do. The same queries go to both searches in turns; "filter" lets a share
of the rows through, by chance. The last columns say how much of the exact ten and hundred nearest
was found; a score that differs from the exact one is a failure.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from timing import interleaved, median_ms

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lazyrag.data.filters import Condition, Filter
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.stores.sqlite import StoreFile
from lazyrag.stores.sqlite_vectors import MapFileVectorStore
from tests.clustered import clustered

COLLECTION = "vectors"
DIMENSION = 384
TOPK = 10
ROWS_AT_ONCE = 50_000
SHARES = (100, 50, 20, 5, 1)  # per cent


def fill(store: MapFileVectorStore, rows: np.ndarray) -> float:
    """Write the rows; seconds it took."""
    fields = [{"share": share} for share in range(100)]
    chance = np.random.default_rng(1).integers(100, size=len(rows)).tolist()
    started = time.perf_counter()
    store.create(COLLECTION, VectorSchema(DIMENSION, "cosine", {}))
    for start in range(0, len(rows), ROWS_AT_ONCE):
        some = range(start, min(start + ROWS_AT_ONCE, len(rows)))
        store.upsert(
            COLLECTION, [VectorRow(f"{one:08d}", rows[one], fields[chance[one]]) for one in some]
        )
    return time.perf_counter() - started


def recall(
    store: MapFileVectorStore, queries: np.ndarray, topk: int, wanted: Filter | None
) -> float:
    """Which share of the exact answers is found."""
    exact = store.search(COLLECTION, queries, topk, wanted)
    found = [store.search_approximately(COLLECTION, one[None], topk, wanted)[0] for one in queries]
    for some, others in zip(found, exact, strict=True):
        assert len(some) == len(others)
        assert all(dict(others).get(key, score) == score for key, score in some)
    both = sum(
        len(dict(some).keys() & dict(others).keys())
        for some, others in zip(found, exact, strict=True)
    )
    return both / sum(map(len, exact))


def measure(path: Path, rows: np.ndarray, queries: np.ndarray) -> None:
    """Print the table."""
    with StoreFile(path) as file:
        written = fill(MapFileVectorStore(file), rows)
        started = time.perf_counter()
        MapFileVectorStore(file).search_approximately(COLLECTION, queries[:1], TOPK)
        built = time.perf_counter() - started
    graphs = sum(one.stat().st_size for one in Path(f"{path}.graphs").iterdir())
    print(
        f"{len(rows)} x {DIMENSION}: written in {written:.1f} s, graphs built in {built:.1f} s, {graphs / 1e6:.0f} MB"
    )
    with StoreFile(path) as file:
        store = MapFileVectorStore(file)
        started = time.perf_counter()
        store.search_approximately(COLLECTION, queries[:1], TOPK)
        print(f"first answer after a restart in {time.perf_counter() - started:.2f} s")
        print(
            f"{'filter':>7} {'exact ms':>9} {'ann ms':>9} {'x exact':>8} {'recall@10':>10} {'@100':>6}"
        )
        for share in SHARES:
            wanted = None if share == 100 else Condition("share", "lt", share)
            candidates = {
                "exact": lambda query, wanted=wanted: store.search(COLLECTION, query, TOPK, wanted),
                "ann": lambda query, wanted=wanted: store.search_approximately(
                    COLLECTION, query, TOPK, wanted
                ),
            }
            seconds = interleaved(
                candidates, [dict.fromkeys(candidates, query[None]) for query in queries]
            )
            exact, ann = median_ms(seconds["exact"]), median_ms(seconds["ann"])
            tenth, hundredth = (recall(store, queries, topk, wanted) for topk in (TOPK, 10 * TOPK))
            shown = f"{share} %" if wanted is not None else "none"
            print(
                f"{shown:>7} {exact:9.2f} {ann:9.2f} {exact / ann:8.1f} {tenth:10.3f} {hundredth:6.3f}"
            )


def main() -> int:
    """Measure at as many rows as asked for."""
    parser = argparse.ArgumentParser(
        description="The approximate search by graphs beside the exact one."
    )
    parser.add_argument(
        "--nodes", type=int, default=100_000, help="vectors; 1000000 take some 6 GB of memory"
    )
    parser.add_argument("--queries", type=int, default=100)
    options = parser.parse_args()
    rows, queries = clustered(options.nodes, options.queries, DIMENSION)
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder, "store.db"), rows, queries)
    return 0


if __name__ == "__main__":
    sys.exit(main())
