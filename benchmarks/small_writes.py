"""What a small write costs in a large Document: one document added, changed or deleted among 1,000
to 100,000.

    python benchmarks/small_writes.py [--sizes 1000 10000 100000] [--vectors] [--rounds 9] [--keep
    FOLDER] [--check] python benchmarks/small_writes.py --touched | --space

Each document is a file of two lines, and every line is a node with a BM25 index over it; with
``--vectors`` also with vectors of a function. Figures are CPU milliseconds of this process
(medians); beside them stand the transactions of SQLite that read and that write, and the flushes:
of transactions that are durable, and of files. "walk + stat" is what the operating system takes to
list the folder. With ``--keep`` the stores stay in a folder and are used again the next time. With
``--check`` nothing is timed: transactions and flushes are held to bounds, and calls to those at a
tenth of the size. ``--touched`` measures a sync after the modification times of 2,000 files moved
to other days. ``--space`` measures what a store of 24,000 vectors takes after a splitter, a
transform and a model changed.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import counting
import numpy as np
from sync import QUERY, file_text, lines, open_document, write_files

from lazyrag import Document, Retriever
from lazyrag.types import Matrix

LINES = 2
MAX_TRANSACTIONS = 10
SMALL = ("add", "update", "delete", "update metadata")


@dataclass
class Writes:
    """What a step did to the store's files.

    Args:
        reads: Transactions that read.
        writes: Transactions that write.
        flushes: Durable transactions, and files that were flushed.
    """

    reads: int = 0
    writes: int = 0
    flushes: int = 0

    def __str__(self) -> str:
        return f"{self.reads:3} reads {self.writes:3} writes {self.flushes:2} flushes"


@contextmanager
def observed(docs: Document) -> Iterator[Writes]:
    """Count what is done to a Document's store files meanwhile."""
    counted = Writes()

    def hear(statement: str) -> None:
        counted.reads += statement == "BEGIN"
        counted.writes += statement == "BEGIN IMMEDIATE"
        counted.flushes += statement == "PRAGMA synchronous = FULL"

    def flushing(flush: Callable[[int], None]) -> Callable[[int], None]:
        def counting_flush(file: int) -> None:
            counted.flushes += 1
            flush(file)

        return counting_flush

    file = docs._indexer.ledger.file
    connections = {id(one): one for one in (file.writer._connection, file._reader._connection)}
    before = os.fsync, os.fdatasync
    os.fsync, os.fdatasync = flushing(os.fsync), flushing(os.fdatasync)
    for one in connections.values():
        one.set_trace_callback(hear)
    try:
        yield counted
    finally:
        os.fsync, os.fdatasync = before
        for one in connections.values():
            one.set_trace_callback(None)


def embed(text: str) -> list[float]:
    """A vector of eight numbers that follows from a text."""
    chance = random.Random(text)
    return [chance.random() for _ in range(8)]


class Small:
    """A Document of so many files, and the small operations on it.

    Args:
        root: A folder for its dataset and its store; what is there is used again.
        files: How many.
        vectors: Whether its nodes have vectors as well.
    """

    def __init__(self, root: Path, files: int, *, vectors: bool) -> None:
        self.dataset = root / f"dataset-{files}"
        if not self.dataset.exists():
            write_files(self.dataset, files, LINES)
        store = root / f"store-{files}{'-vectors' * vectors}.db"
        conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(store)}}}
        if vectors:
            conf["vector_store"] = conf["segment_store"]
        self.docs = Document(self.dataset, store_conf=conf, embed=embed if vectors else None)
        self.docs.create_node_group("line", transform=lines)
        self.ask = Retriever(self.docs, "line", similarity="bm25")
        self.ask(QUERY)
        if vectors:
            Retriever(self.docs, "line", similarity="cosine")(QUERY)
        self.chance = random.Random()
        self.names = [f"note {number}" for number in range(8)]
        self.at = 0
        self.docs.sync()

    def text(self) -> str:
        """A text that was never there."""
        self.at += 1
        return f"{file_text(self.chance, LINES)} {self.at}"

    def add(self) -> None:
        """Add one document."""
        self.docs.add_texts({f"note {self.at}": self.text()})

    def update(self) -> None:
        """Change the document that was added."""
        self.docs.add_texts({f"note {self.at - 1}": f"{file_text(self.chance, LINES)}"})

    def update_metadata(self) -> None:
        """Change its metadata."""
        self.docs.update_metadata({f"note {self.at - 1}": {"owner": str(self.chance.random())}})

    def delete(self) -> None:
        """Delete it."""
        self.docs.delete_files([f"note {self.at - 1}"])

    def change_file(self) -> None:
        """Change one file, a minute ago."""
        changed = self.dataset / "000" / "00042.txt"
        changed.write_text(self.text(), encoding="utf-8")
        then = time.time() - 60
        os.utime(changed, (then, then))

    def walk(self) -> None:
        """List the folder, and look at each file."""
        for folder, _, names in os.walk(self.dataset):
            for name in names:
                os.stat(f"{folder}/{name}")  # noqa: PTH116

    def steps(self) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
        """What is measured, in order: by name what comes before, and the step."""

        def nothing() -> None:
            pass

        return {
            "add": (nothing, self.add),
            "first BM25 query after": (nothing, lambda: self.ask(QUERY)),
            "update": (nothing, self.update),
            "update metadata": (nothing, self.update_metadata),
            "delete": (nothing, self.delete),
            "sync": (nothing, self.docs.sync),
            "walk + stat": (nothing, self.walk),
            "sync, one file changed": (self.change_file, self.docs.sync),
        }


def measure(small: Small, rounds: int) -> dict[str, tuple[float, Writes]]:
    """CPU milliseconds of each step (median), and what it did to the files."""
    took: dict[str, list[float]] = {}
    did: dict[str, Writes] = {}
    for _ in range(rounds + 1):
        for name, (before, step) in small.steps().items():
            before()
            gc.collect()  # else a step pays for the objects of those before it
            with observed(small.docs) as did[name]:
                began = time.process_time()
                step()
                took.setdefault(name, []).append(time.process_time() - began)
    return {name: (1000 * statistics.median(one[1:]), did[name]) for name, one in took.items()}


def check(root: Path, files: int, *, vectors: bool) -> int:
    """Hold transactions, flushes and calls of small writes to bounds; 1 where one is over."""
    counted: dict[str, int] = {}
    bounds: dict[str, int] = {}
    calls: dict[int, dict[str, int]] = {}
    for size in (files // 10, files):
        small = Small(root, size, vectors=vectors)
        with small.docs:
            for last in (False, True):
                calls[size] = {}
                for name, (before, step) in small.steps().items():
                    before()
                    with observed(small.docs) as did:
                        calls[size][name] = counting.count(step).calls
                    if last and name in SMALL:
                        counted |= {
                            f"{name}: transactions": did.reads + did.writes,
                            f"{name}: flushes": did.flushes,
                        }
                        # reads the stored text, and nodes to take over
                        more = 3 if name == "update metadata" else 0
                        bounds |= {
                            f"{name}: transactions": MAX_TRANSACTIONS + more,
                            f"{name}: flushes": 1,
                        }
    counted |= {f"{name}: calls": calls[files][name] for name in SMALL}
    bounds |= {f"{name}: calls": calls[files // 10][name] + 100 for name in SMALL}
    return int(bool(counting.over(counted, bounds)))


def touched(root: Path, files: int = 2_000) -> None:
    """Print what a sync takes after all modification times have moved to another day."""
    dataset = root / "dataset"
    write_files(dataset, files, 10)
    with open_document(os.fspath(dataset), os.fspath(root / "store.db")) as docs:
        Retriever(docs, "line", similarity="bm25")(QUERY)
        docs.sync()
        for day in range(1, 4):
            then = time.time() - 86_400 * day
            for path in dataset.rglob("*.txt"):
                os.utime(path, (then, then))
            began = time.process_time()
            report = docs.sync()
            took = time.process_time() - began
            print(
                f"{len(report.touched):,} files of {10 * files:,} nodes on another day: {took:.2f} CPU s",
                flush=True,
            )


@dataclass
class Model:
    """An embedder whose vectors are random and follow from its name and the text."""

    identity: str
    dimension: int = 384
    batch_size: int = 512
    max_tokens: None = None
    normalised: bool = False

    def embed(self, texts: list[str], input_type: str = "document") -> Matrix:
        """A vector for each text."""
        seeds = [zlib.crc32(f"{self.identity} {text}".encode()) for text in texts]
        return np.stack(
            [np.random.default_rng(seed).random(self.dimension, np.float32) for seed in seeds]
        )


def space(root: Path, files: int = 2_400) -> None:
    """Print the size of a store after a splitter, a transform and a model changed, beside that of a
    fresh build.
    """
    dataset = root / "dataset"
    write_files(dataset, files, 10)
    sizes: dict[str, int] = {}

    def noted(folder: Path, what: str) -> None:
        sizes[what] = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        ratio = sizes[what] / sizes.get("fresh, compacted", sizes[what])
        print(f"{what:36} {sizes[what] / 1e6:7.1f} MB  {ratio:.2f} x", flush=True)

    def compact(docs: Document) -> str:
        time.sleep(10.5)  # longer than the grace period
        began = time.perf_counter()
        docs.maintenance.compact()
        return f"compact() ({time.perf_counter() - began:.1f} s)"

    def build(folder: Path, model: str, size: int, suffix: str) -> Document:
        folder.mkdir(exist_ok=True)
        conf = {"segment_store": {"type": "map", "kwargs": {"uri": os.fspath(folder / "store.db")}}}
        docs = Document(
            dataset, store_conf={**conf, "vector_store": conf["segment_store"]}, embed=Model(model)
        )

        def blocks(text: str) -> list[str]:
            parts = text.splitlines()
            return ["\n".join(parts[start : start + size]) for start in range(0, len(parts), size)]

        docs.create_node_group("block", transform=blocks, version=str(size))
        docs.create_node_group(
            "line", transform=lambda text: [one + suffix for one in lines(text)], parent="block"
        )
        Retriever(docs, "block", similarity="bm25")(QUERY)
        Retriever(docs, "line", similarity="cosine")(QUERY)
        return docs

    with build(root / "fresh", "b", 5, ".") as docs:
        noted(root / "fresh", "fresh")
        compact(docs)
        noted(root / "fresh", "fresh, compacted")
    used = root / "used"
    build(used, "a", 3, "").close()
    noted(used, "before the changes")
    build(used, "a", 5, "").close()
    noted(used, "another splitter")
    build(used, "a", 5, ".").close()
    noted(used, "another transform")
    with build(used, "b", 5, ".") as docs:
        for what in ("another model", "a sync after the grace period", "another one"):
            docs.sync()
            noted(used, what)
            time.sleep(10.5)
        noted(used, compact(docs))
    noted(used, "closed")


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--vectors", action="store_true", help="nodes have vectors as well")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--keep", type=Path, help="where stores stay for the next time")
    parser.add_argument(
        "--check", action="store_true", help="hold counts to bounds, and time nothing"
    )
    parser.add_argument("--touched", action="store_true", help="files on other days")
    parser.add_argument(
        "--space", action="store_true", help="the size of a store after changes, and compacted"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = given.keep or Path(folder)
        root.mkdir(exist_ok=True)
        if given.touched or given.space:
            (touched if given.touched else space)(root)
            return 0
        if given.check:
            return check(root, given.sizes[0], vectors=given.vectors)
        for size in given.sizes:
            small = Small(root, size, vectors=given.vectors)
            with small.docs:
                for name, (milliseconds, did) in measure(small, given.rounds).items():
                    print(
                        f"{size:7,} documents  {name:24} {milliseconds:8.1f} ms  {did}", flush=True
                    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
