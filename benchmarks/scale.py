"""One big machine: a corpus ingested step by step into a store file, up to ten million nodes and
beyond.

    python benchmarks/scale.py [--nodes 1000000] [--step 100000] [--read 1000000 ...] [--folder DIR]
    [--check] python benchmarks/scale.py --dense --nodes 1000000

Nodes are lines of 6 to 18 words, 100 to a document, by Zipf's law over a million made-up words: the
same on every machine, and generated when they are needed. Each step adds documents to a store file
with `add_texts`, and its figures are of that step alone: seconds and CPU seconds for 1,000 nodes
(flat, if nothing grows with what is there already) and the writer's peak memory. After the sizes of
--read, a new process opens the store and answers 200 queries of 3 to 6 words of random nodes:
seconds to its first answer, p50 and p95, and its memory: "private" is what is its own, "peak"
counts pages of the store that are mapped, too, which the system can drop at any time. With --dense
each node has a vector of 384 numbers as well, and vector queries are timed, too. With --check a
figure beyond its bound is a failure. A folder that has a store already is continued.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from results import Row, save, table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lazyrag import Document, Retriever

LINES, BLOCK = 100, 10_000  # nodes of a document, and of what is generated together
WORDS = 1_000_000
QUERIES = 200
DIMENSION, CLUSTERS = 384, 2_000
SYLLABLES = [first + vowel for first in "bcdfghjklmnprstvwz" for vowel in "aeiou"]
WRITER_MB, READER_MB, FLAT = 2_048, 1_536, 1.5
STEP_COLUMNS = ("nodes", "s_per_1000", "cpu_ms_per_1000", "writer_mb", "store_mb", "files")
READ_COLUMNS = (
    "nodes",
    "similarity",
    "first_s",
    "p50_ms",
    "p95_ms",
    "cpu_p50_ms",
    "private_mb",
    "peak_mb",
)


@functools.cache
def shares() -> np.ndarray:
    """Of the words, added up: Zipf and Mandelbrot's law."""
    found = np.cumsum(1.0 / (np.arange(WORDS) + 2.7) ** 1.07)
    return found / found[-1]


@functools.lru_cache(200_000)
def word(number: int) -> str:
    """A word of two syllables or more."""
    more = word(number // len(SYLLABLES) - 1) if number >= len(SYLLABLES) else SYLLABLES[number % 7]
    return more + SYLLABLES[number % len(SYLLABLES)]


def block_of_lines(block: int) -> list[str]:
    """The nodes of a block."""
    chance = np.random.default_rng(block)
    lengths = chance.integers(6, 19, BLOCK)
    words = [
        word(number) for number in shares().searchsorted(chance.random(int(lengths.sum()))).tolist()
    ]
    ends = np.cumsum(lengths).tolist()
    return [
        " ".join(words[end - size : end]) for size, end in zip(lengths.tolist(), ends, strict=True)
    ]


def documents(first: int, last: int) -> Iterator[dict[str, str]]:
    """The documents of some nodes, a block at a time."""
    for block in range(first // BLOCK, last // BLOCK):
        lines = block_of_lines(block)
        yield {
            f"{block:05}-{at:05}": "\n".join(lines[at : at + LINES])
            for at in range(0, BLOCK, LINES)
        }


def queries() -> list[str]:
    """Of 3 to 6 words that stand together in a random node of the first block."""
    chance = np.random.default_rng(1)
    found = []
    for line in chance.choice(block_of_lines(0), QUERIES).tolist():
        words = line.split()
        first, count = chance.integers(0, len(words) - 5), chance.integers(3, 7)
        found.append(" ".join(words[first : first + count]))
    return found


@functools.cache
def centres() -> np.ndarray:
    """(CLUSTERS, DIMENSION) with a spectrum that falls as those of real embeddings do."""
    spectrum = 1.0 / np.sqrt(1.0 + np.arange(DIMENSION) / 16.0)
    return np.random.default_rng(0).standard_normal((CLUSTERS, DIMENSION)) * spectrum


class Embedder:
    """Vectors that follow from a text: one of the centres, plus as much of a draw with their
    spectrum.
    """

    identity, dimension, batch_size, max_tokens, normalised = (
        "benchmarks/scale.py",
        DIMENSION,
        1_024,
        None,
        True,
    )

    def embed(self, texts: Sequence[str], input_type: str = "document") -> np.ndarray:
        """(n, DIMENSION) float32, of length 1."""
        spectrum = np.sqrt((centres() ** 2).mean(axis=0))
        found = np.empty((len(texts), DIMENSION))
        for row, text in enumerate(texts):
            seed = zlib.crc32(text.encode())
            found[row] = (
                centres()[seed % CLUSTERS]
                + np.random.default_rng(seed).standard_normal(DIMENSION) * spectrum
            )
        return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def lines(text: str) -> list[str]:
    """The transform: a node for each line."""
    return text.split("\n")


def opened(folder: Path, *, dense: bool, read_only: bool = False) -> Document:
    """The Document of a folder, with its indexes."""
    uri = str(folder / "store.db")
    docs = Document(
        store_conf={"segment_store": {"type": "map", "kwargs": {"uri": uri}}},
        embed=Embedder() if dense else None,
        read_only=read_only,
    )
    docs.create_node_group("line", transform=lines)
    if not read_only:
        docs.activate_group("line", analysers=["en"], embed_keys=docs.reader.embed_keys)
    return docs


def memory_mb(name: str) -> float:
    """A figure of /proc/self/status."""
    found = re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
    return int(found[1]) / 1024 if found else float("nan")


def stored(folder: Path) -> tuple[float, int]:
    """MB and number of the store's files."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return sum(sizes) / 1e6, len(sizes)


def ingest(folder: Path, first: int, last: int, *, dense: bool) -> Row:
    """Add the documents of some nodes."""
    docs = opened(folder, dense=dense)
    row: Row = {"nodes": last, "seconds": 0.0, "cpu_s": 0.0}
    slowest = 0.0
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    for texts in documents(first, last):
        started, cpu = time.perf_counter(), time.process_time()
        docs.add_texts(texts)
        took = time.perf_counter() - started
        row["seconds"] += took
        row["cpu_s"] += time.process_time() - cpu
        slowest = max(slowest, took)
    docs.close()
    thousands = (last - first) / 1_000
    row["s_per_1000"], row["cpu_ms_per_1000"] = (
        row["seconds"] / thousands,
        1_000 * row["cpu_s"] / thousands,
    )
    row["slowest_s_per_1000"] = slowest / (BLOCK / 1_000)
    row["writer_mb"], (row["store_mb"], row["files"]) = memory_mb("VmHWM"), stored(folder)
    return row


def read(folder: Path, nodes: int, similarity: str) -> Row:
    """Open a store and query it; this process has done nothing before."""
    asked = queries()
    started = time.perf_counter()
    docs = opened(folder, dense=similarity == "cosine", read_only=True)
    retriever = Retriever(docs, "line", similarity=similarity, topk=10)
    retriever(asked[0])
    row: Row = {"nodes": nodes, "similarity": similarity, "first_s": time.perf_counter() - started}
    seconds, cpu = [], []
    for query in asked:
        began, used = time.perf_counter(), time.process_time()
        retriever(query)
        seconds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
    row["p50_ms"], row["p95_ms"] = (np.percentile(seconds, [50, 95]) * 1_000).tolist()
    row["cpu_p50_ms"], row["cpu_ms"] = (
        1_000 * float(found) for found in (np.median(cpu), np.mean(cpu))
    )
    row["private_mb"], row["peak_mb"] = memory_mb("RssAnon"), memory_mb("VmHWM")
    docs.close()
    return row


def child(*words: str) -> Row:
    """A row that another process measures."""
    done = subprocess.run(
        [sys.executable, __file__, *words], check=True, stdout=subprocess.PIPE, text=True
    )
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def late(steps: Sequence[Row], readings: Sequence[Row]) -> list[str]:
    """The figures beyond their bounds."""
    usual = statistics.median(row["cpu_ms_per_1000"] for row in steps[: max(1, len(steps) // 2)])
    found = [
        f"{row['nodes']:,} nodes: {row['cpu_ms_per_1000']:.0f} ms of CPU for 1,000, at first {usual:.0f}"
        for row in steps
        if row["cpu_ms_per_1000"] > FLAT * usual
    ]
    for rows, name, bound in ((steps, "writer_mb", WRITER_MB), (readings, "private_mb", READER_MB)):
        found += [
            f"{row['nodes']:,} nodes: {name} {row[name]:.0f}" for row in rows if row[name] > bound
        ]
    return found


def main() -> int:
    """Ingest step by step, and read after some of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--step", type=int, default=100_000)
    parser.add_argument(
        "--read",
        type=int,
        nargs="*",
        help="sizes after which it is queried; by default the powers of 10",
    )
    parser.add_argument("--folder", type=Path, help="of the store, which then stays")
    parser.add_argument("--dense", action="store_true", help="with a vector for each node")
    parser.add_argument(
        "--check", action="store_true", help="fail where a figure is beyond its bound"
    )
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)  # what a child process does
    options = parser.parse_args()
    if options.measure:
        what, folder, *numbers = options.measure
        if what == "ingest":
            row = ingest(Path(folder), *map(int, numbers), dense=options.dense)
        else:
            row = read(Path(folder), int(numbers[0]), what)
        print(json.dumps(row))
        return 0
    steps: list[Row] = []
    readings: list[Row] = []
    dense = ["--dense"] if options.dense else []
    sizes = options.read or [10**power for power in range(5, 10) if 10**power <= options.nodes]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True, parents=True)
        done = folder / "nodes.txt"
        first = int(done.read_text(encoding="ascii")) if done.exists() else 0
        for last in range(first + options.step, options.nodes + 1, options.step):
            steps.append(
                child(
                    "--measure", "ingest", str(folder), str(last - options.step), str(last), *dense
                )
            )
            done.write_text(str(last), encoding="ascii")
            print(table(steps[-1:], STEP_COLUMNS), flush=True)
            if last in sizes:
                for similarity in ("bm25", "cosine")[: 1 + options.dense]:
                    readings.append(child("--measure", similarity, str(folder), str(last)))
                    print(table(readings[-1:], READ_COLUMNS), flush=True)
    name = "scale-dense" if options.dense else "scale"
    save(name, steps, readings=readings)
    problems = late(steps, readings)
    print("\n".join(problems))
    return int(options.check and bool(problems))


if __name__ == "__main__":
    sys.exit(main())
