"""What a program pays to open a store and to answer once, and after changes, by the number of
documents: readers hold nothing that grows with it but mapped arrays and bits.

    python benchmarks/open.py [--documents 10000 100000] [--stores FOLDER] [--package FOLDER]

Documents have one node of so many words (--words), drawn from 5,000 words by Zipf's law. Each figure
is the median of fresh processes (--rounds); CPU seconds include the interpreter and the imports,
whose cost alone is in the first row. Stores are built once (minutes for 10^6) and stay in --stores.
With --package another checkout of lazyrag answers, for stores of its own. Results go to build/bench.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from results import Row, save, table

ROOT = Path(__file__).resolve().parents[1]
BUILD = """
import random, sys
from lazyrag import Document, Retriever
path, count, words = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
vocabulary = [f"word{number}" for number in range(5_000)]
weights = [1 / (number + 1) for number in range(5_000)]
generator = random.Random(0)
with Document(store_conf=path) as docs:
    docs.create_node_group("line", transform=lambda text: [text])
    for start in range(0, count, 10_000):
        texts = {
            f"{number:07}": " ".join(generator.choices(vocabulary, weights, k=words))
            for number in range(start, min(count, start + 10_000))
        }
        docs.add_texts(texts)
        if not start:
            Retriever(docs, "line", similarity="bm25")("word7")
"""
BEGIN = """
import resource, sys, time
from lazyrag import Document, Retriever
def opened(**arguments):
    docs = Document(store_conf=sys.argv[1], **arguments)
    docs.create_node_group("line", transform=lambda text: [text])
    return docs, Retriever(docs, "line", similarity="bm25", topk=10)
def seconds(work, times=1):
    begun = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - begun) / times
"""
END = "\nprint(figure, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
FIGURES = {
    "imports, CPU s": "figure = time.process_time()",
    "read-only: open + first answer, CPU s": """
docs, retriever = opened(read_only=True)
assert len(retriever("word7 word40 word900")) == 10
figure = time.process_time()
""",
    "writing: open + one text, CPU s": """
docs, retriever = opened()
docs.add_texts({"new": "word7 word40"})
figure = time.process_time()
""",
    "warm BM25, ms": """
docs, retriever = opened(read_only=True)
retriever("word7 word40 word900")
figure = 1e3 * seconds(lambda: retriever("word7 word40 word900"), 200)
""",
    "query after add, ms": """
docs, retriever = opened()
retriever("word7 word40 word900")
figures = []
for number in range(5):
    docs.add_texts({"new": f"word7 word40 {number}"})
    figures.append(1e3 * seconds(lambda: retriever("word7 word40 word900")))
figure = sorted(figures)[2]
""",
    "query after delete, ms": """
docs, retriever = opened()
retriever("word7 word40 word900")
figures = []
for number in range(5):
    docs.add_texts({"new": "word7"})
    docs.delete_files(["new"])
    figures.append(1e3 * seconds(lambda: retriever("word7 word40 word900")))
figure = sorted(figures)[2]
""",
    "status(), ms": """
docs, retriever = opened(read_only=True)
retriever("word7")
figure = 1e3 * seconds(docs.status, 5)
""",
    "find(uid), ms": """
docs, retriever = opened(read_only=True)
[node, *_] = retriever("word7")
figure = 1e3 * seconds(lambda: docs.reader.held(node.uid), 3)
""",
}


def run(script: str, package: Path, *arguments: str) -> str:
    """What a script prints in a fresh process with a checkout's package."""
    environment = {**os.environ, "PYTHONPATH": str(package)}
    command = [sys.executable, "-c", script, *arguments]
    result = subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment, cwd=package
    )
    return result.stdout


def measure(store: Path, count: int, package: Path, rounds: int) -> list[Row]:
    """All figures for one store."""
    rows: list[Row] = []
    for name, body in FIGURES.items():
        values = []
        peaks = []
        for _ in range(rounds):
            value, peak = map(float, run(BEGIN + body + END, package, str(store)).split())
            values.append(value)
            peaks.append(peak)
        row = {
            "documents": count,
            "figure": name,
            "median": round(statistics.median(values), 3),
            "peak MB": round(statistics.median(peaks)),
        }
        rows.append(row)
        print(row, flush=True)
    return rows


def main() -> None:
    """Build what is missing, measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--words", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stores", type=Path, default=Path(tempfile.gettempdir(), "lazyrag-open"))
    parser.add_argument("--package", type=Path, default=ROOT)
    options = parser.parse_args()
    rows: list[Row] = []
    for count in options.documents:
        folder = options.stores / f"{count}-{options.words}"
        folder.mkdir(parents=True, exist_ok=True)
        store = folder / "store.db"
        if not store.exists():
            building = folder / "building.db"
            run(BUILD, options.package, str(building), str(count), str(options.words))
            for path in sorted(folder.glob("building.db*")):
                path.rename(folder / path.name.replace("building", "store"))
        rows += measure(store, count, options.package, options.rounds)
    print(table(rows, ("documents", "figure", "median", "peak MB")))
    save("open", rows)


if __name__ == "__main__":
    main()
