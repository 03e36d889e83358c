"""What keeping a store in step costs: many small files ingested, synced, changed, and opened again.

    python benchmarks/sync.py [--files 10000] [--lines 10] [--profile] [--check] [--watch]

Every file has so many lines, and every line is a node with a BM25 index over it. Beside the whole
stand its pieces: the listing of the folder and the reading of the files, so that one sees where the
time goes. With ``--profile`` the steps are run under cProfile, which makes them slower, and the
functions that took most of the time are printed. With ``--check`` nothing is timed: what a sync and
a restart call and open is held to bounds. With ``--watch`` a program watches the files instead: the
time from a saved file to the first query that finds it, and the syncs of 200 files.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import os
import pstats
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import counting
import results
from results import Row
from timing import spread

from lazyrag import Document, Retriever
from lazyrag.ingest.changes import compare_files
from lazyrag.loaders.directory import find_files

WORDS = [
    a + b + c
    for a in "btkmsr"
    for b in ("al", "en", "io", "ur", "ow")
    for c in ("d", "mer", "tas", "nix", "lo")
]
QUERY = "bald kenmer"
RESTART = """
import json, sys, time
began = time.perf_counter()
from lazyrag import Document, Retriever
imported = time.perf_counter()
from sync import open_document
docs = open_document(sys.argv[1], sys.argv[2], read_only=sys.argv[3] == "read_only")
opened = time.perf_counter()
retriever = Retriever(docs, "line", similarity="bm25")
hits = retriever("bald kenmer")
first = time.perf_counter()
retriever("salmer")
second = time.perf_counter()
print(json.dumps([imported - began, opened - imported, first - opened, second - first, len(hits)]))
"""


def lines(text: str) -> list[str]:
    """The transform: a node for each line."""
    return text.splitlines()


def open_document(dataset: str, store: str, *, read_only: bool = False) -> Document:
    """The Document that is measured: lines of files, on a store file."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": store}}}
    docs = Document(dataset, store_conf=conf, read_only=read_only)
    docs.create_node_group("line", transform=lines)
    return docs


def write_files(folder: Path, files: int, line_count: int) -> int:
    """A dataset, a hundred files to a folder, an hour old. Returns its bytes."""
    chance = random.Random(0)
    then = time.time() - 3600
    size = 0
    for number in range(files):
        path = folder / f"{number // 100:03}" / f"{number:05}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        size += path.write_text(file_text(chance, line_count), encoding="utf-8")
        os.utime(path, (then, then))
    return size


def file_text(chance: random.Random, line_count: int) -> str:
    """Lines of eight words, some of them common, most rare."""
    return "\n".join(
        " ".join(WORDS[int(len(WORDS) * chance.random() ** 2)] for _ in range(8))
        for _ in range(line_count)
    )


class Clock:
    """Measures steps and prints them; runs them under a profiler on request."""

    def __init__(self, *, profile: bool) -> None:
        self.profiling = profile

    def time(self, name: str, step: Callable[[], object], rounds: int = 1) -> float:
        """Seconds of a step: the median of so many rounds."""
        seconds = []
        for _ in range(rounds):
            began = time.perf_counter()
            if self.profiling:
                self.profile(step)
            else:
                step()
            seconds.append(time.perf_counter() - began)
        median = statistics.median(seconds)
        self.tell(name, median)
        return median

    def tell(self, name: str, seconds: float, note: str = "") -> None:
        """Print a figure."""
        print(f"{name:52} {1000 * seconds:9.1f} ms  {note}".rstrip(), flush=True)

    def profile(self, step: Callable[[], object]) -> None:
        """Print what takes the time of a step."""
        profiler = cProfile.Profile()
        profiler.runcall(step)
        pstats.Stats(profiler).sort_stats("cumulative").print_stats(35)


def ingest(clock: Clock, dataset: Path, store: Path, files: int) -> Document:
    """The first ingest, beside reading the same files."""
    clock.time("list the folder", lambda: [*find_files(dataset).files], 3)
    clock.time(
        "... and read every file",
        lambda: [one.path.read_bytes() for one in find_files(dataset).files],
        3,
    )
    docs = open_document(os.fspath(dataset), os.fspath(store))
    steps: list[tuple[str, Callable[[], object]]] = [
        ("ingest: read and load", docs.sync),
        ("ingest: group 'line'", lambda: docs.activate_group("line")),
        (
            "ingest: BM25 index, first hit",
            lambda: Retriever(docs, "line", similarity="bm25")(QUERY),
        ),
    ]
    total = sum(clock.time(name, step) for name, step in steps)
    clock.tell("ingest: together", total, f"{1e6 * total / files:.0f} us a file")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    return docs


def sync_changes(
    clock: Clock, docs: Document, dataset: Path, root: Path, line_count: int
) -> tuple[float, float]:
    """Nothing changed; one file changed, beside that file alone in a store of its own; in turns.

    Returns:
        Seconds where nothing changed; how many times that file alone it takes, beyond the scan.
    """
    chance = random.Random(1)
    changed = dataset / "000" / "00042.txt"

    def change() -> None:
        changed.write_text(file_text(chance, line_count), encoding="utf-8")
        then = time.time() - 60  # else it would have to be hashed again the next time
        os.utime(changed, (then, then))

    def seconds(step: Callable[[], object]) -> float:
        # else one of the steps pays for the objects of the one before: 60 ms for 5,000 files
        gc.collect()
        began = time.perf_counter()
        step()
        return time.perf_counter() - began

    with open_document(os.fspath(changed), os.fspath(root / "alone.db")) as alone:
        ask, ask_alone = (Retriever(one, "line", similarity="bm25") for one in (docs, alone))
        ask_alone(QUERY)
        took: dict[str, list[float]] = {}
        for _ in range(15):
            took.setdefault("sync: nothing changed, warm", []).append(seconds(docs.sync))
            took.setdefault("... of which: list and compare", []).append(
                seconds(lambda: compare_files(docs._indexer))
            )
            change()
            took.setdefault("sync: one file of all changed", []).append(seconds(docs.sync))
            took.setdefault("... the first question after", []).append(seconds(lambda: ask(QUERY)))
            took.setdefault("sync: that file alone, in a store of its own", []).append(
                seconds(alone.sync)
            )
            took.setdefault("... the first question after it", []).append(
                seconds(lambda: ask_alone(QUERY))
            )
        if clock.profiling:
            change()
            clock.profile(docs.sync)
    medians = {name: statistics.median(one) for name, one in took.items()}
    for name, median in medians.items():
        clock.tell(name, median)
    nothing, _, one, _, lone, _ = took.values()
    # what else runs here hits both
    more = statistics.median(b - a for a, b in zip(nothing, one, strict=True))
    ratio = more / statistics.median(lone)
    print(
        f"one of all: the scan and {1000 * more:.1f} ms, {ratio:.1f} x that file alone (target: 2 x)"
    )
    return statistics.median(nothing), ratio


def watch(clock: Clock, dataset: Path, store: Path, files: int) -> None:
    """The time from a lone save to the first query that finds it, and the syncs that 200 files
    written at once take.
    """
    saved, burst = dataset / "000" / "00042.txt", dataset / "burst"
    burst.mkdir()
    with open_document(os.fspath(dataset), os.fspath(store)) as docs, docs.watch() as watcher:
        ask = Retriever(docs, "line", similarity="bm25")
        watcher.wait_for_sync()

        def save(word: str) -> None:
            saved.write_text(word, encoding="utf-8")
            while not ask(word):
                time.sleep(0.005)

        seconds = []
        for number in range(9):
            time.sleep(1.0)
            began = time.perf_counter()
            save(f"unheard{number}")
            seconds.append(time.perf_counter() - began)
        clock.tell("watch: a lone save to the query that finds it", statistics.median(seconds))
        goals = {"lone_s": spread(seconds)}
        time.sleep(1.0)
        before, began = watcher.syncs, time.perf_counter()
        for number in range(200):
            (burst / f"{number}.txt").write_text("together", encoding="utf-8")
        while len(ask("together", topk=300)) < 200:
            time.sleep(0.005)
        found = time.perf_counter() - began
        time.sleep(2.0)  # for a sync that may follow
        syncs = watcher.syncs - before
        clock.tell("watch: 200 files written at once", found, f"{syncs} syncs")
        cpu = time.process_time()
        time.sleep(5.0)
        idle = (time.process_time() - cpu) / 5
        clock.tell("watch: processor time of a second without changes", idle)
    rows: list[Row] = [
        {
            "files": files,
            "lone_s": goals["lone_s"][0],
            "burst_s": found,
            "syncs": syncs,
            "idle_s": idle,
        }
    ]
    results.save("watch", rows, goals={**goals, "syncs": [syncs] * 3})


def restart(clock: Clock, dataset: Path, store: Path, mode: str) -> float:
    """New processes: import, open, first hit, the next."""
    rounds = []
    for _ in range(5):
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", RESTART, os.fspath(dataset), os.fspath(store), mode],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.fspath(Path(__file__).resolve().parent)},
        )
        rounds.append([*json.loads(done.stdout)[:4], time.perf_counter() - began])
    names = ("import", "open", "first hit", "second hit", "the whole process")
    medians = [statistics.median(one) for one in zip(*rounds, strict=True)]
    for name, seconds in zip(names, medians, strict=True):
        clock.tell(f"restart ({mode}): {name}", seconds)
    clock.tell(f"restart ({mode}): open to first hit", medians[1] + medians[2])
    return float(medians[1] + medians[2])


def check(dataset: Path, root: Path, files: int, line_count: int) -> int:
    """Hold what syncs and a restart call and read to bounds; 1 where one is over.

    Where nothing changed, a file costs a look and a comparison. Where one file changed, a sync
    costs that and what the file alone would, a few times, and reads nothing else. A restart reads
    no file of the dataset.
    """
    chance = random.Random(1)
    changed, store = dataset / "000" / "00042.txt", root / "store.db"

    def change() -> None:
        changed.write_text(file_text(chance, line_count), encoding="utf-8")
        then = time.time() - 60
        os.utime(changed, (then, then))

    def of_dataset(counted: counting.Counts) -> int:
        return sum(
            name.startswith(os.fspath(dataset)) and not Path(name).is_dir()
            for name in counted.opened
        )

    with open_document(os.fspath(dataset), os.fspath(store)) as docs:
        Retriever(docs, "line", similarity="bm25")(QUERY)
        docs.sync()
        nothing = counting.count(docs.sync)
        change()
        one = counting.count(docs.sync)
    with open_document(os.fspath(changed), os.fspath(root / "alone.db")) as alone:
        Retriever(alone, "line", similarity="bm25")(QUERY)
        change()
        lone = counting.count(alone.sync)

    def restart_and_answer() -> None:
        with open_document(os.fspath(dataset), os.fspath(store), read_only=True) as docs:
            assert Retriever(docs, "line", similarity="bm25")(QUERY)

    again = counting.count(restart_and_answer)
    counted = {
        "nothing changed: calls": nothing.calls,
        "nothing changed: files read": of_dataset(nothing),
        "one file of all changed: calls beyond": one.calls - nothing.calls,
        "one file of all changed: files read": len(
            {name for name in one.opened if name.startswith(os.fspath(dataset))}
        ),
        "restart to the first hit: calls": again.calls,
        "restart to the first hit: files read": of_dataset(again),
    }
    bounds = {
        "nothing changed: calls": 1_000 + 30 * files,
        "nothing changed: files read": 0,
        "one file of all changed: calls beyond": 4 * lone.calls,
        "one file of all changed: files read": 1,
        "restart to the first hit: calls": 5_000 + 5 * files,
        "restart to the first hit: files read": 0,
    }
    return int(bool(counting.over(counted, bounds)))


def main() -> int:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--lines", type=int, default=10)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument(
        "--check", action="store_true", help="hold calls and files read to bounds, and time nothing"
    )
    parser.add_argument("--watch", action="store_true", help="time the watching of the files alone")
    given = parser.parse_args()
    clock = Clock(profile=given.profile)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        dataset, store = root / "dataset", root / "store.db"
        size = write_files(dataset, given.files, given.lines)
        print(f"{given.files:,} files, {size / 1e6:.1f} MB, {given.files * given.lines:,} nodes")
        if given.check:
            return check(dataset, root, given.files, given.lines)
        if given.watch:
            watch(clock, dataset, store, given.files)
            return 0
        with ingest(clock, dataset, store, given.files) as docs:
            sync_changes(clock, docs, dataset, root, given.lines)
        print(f"store file {store.stat().st_size / 1e6:.1f} MB")
        for mode in ("read_only", "writing"):
            restart(clock, dataset, store, mode)
    return 0


if __name__ == "__main__":
    sys.exit(main())
