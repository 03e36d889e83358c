"""What a registered Python similarity costs: a question over many nodes, beside the function's own
calls.

    python benchmarks/similarity.py [--nodes 100000] [--dimension 64] [--rounds 5]

The functions are as cheap as can be, so that what stands around them shows: `length` is called with
each node, `lengths` with all of them, `first` with each node and its vector. The first question
reads the nodes, the others find them in memory; "changed" is the first question after one file of
all has changed. The same function called on nodes at hand is the least that there is to do. The
rounds take turns.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lazyrag import DataType, DocField, DocNode, Document, Retriever, register_similarity

LINES = 200  # nodes of a file
WORDS = [
    a + b + c
    for a in "btkmsr"
    for b in ("al", "en", "io", "ur", "ow")
    for c in ("d", "mer", "tas", "nix", "lo")
]


def length(query: str, node: DocNode) -> int:
    """Called with each node."""
    return len(node.text)


def lengths(query: str, nodes: list[DocNode]) -> list[tuple[DocNode, int]]:
    """Called with all nodes."""
    return [(node, len(node.text)) for node in nodes]


def first(query: list[float], node: DocNode) -> float:
    """Called with each node and its vector."""
    return float(node.embedding[0])


def seconds(function: Callable[[], object]) -> float:
    """How long it takes, once."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def write(path: Path, chance: random.Random) -> None:
    """A file of lines of forty words, an hour old."""
    path.write_text(
        "\n".join(" ".join(chance.choices(WORDS, k=40)) for _ in range(LINES)), encoding="utf-8"
    )
    then = time.time() - 3600 + chance.random()
    os.utime(path, (then, then))


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    chance = random.Random(0)
    register_similarity(length)
    register_similarity(lengths, batch=True)
    register_similarity(first, mode="embedding")

    def embed(text: str) -> list[float]:
        return random.Random(text).choices((0.5, 1.0, -1.0), k=given.dimension)

    with tempfile.TemporaryDirectory() as folder:
        dataset = Path(folder, "dataset")
        dataset.mkdir()
        for number in range(max(2, given.nodes // LINES)):
            write(dataset / f"{number:05}.txt", chance)
        docs = Document(
            dataset,
            embed=embed,
            doc_fields={"part": DocField(DataType.INT32)},
            file_metadata=lambda path: {"part": int(path.stem) % 10},
            store_conf={
                "segment_store": {"type": "map", "kwargs": {"uri": str(Path(folder, "store.db"))}}
            },
        )
        docs.create_node_group("line", transform=str.splitlines)
        with docs:
            measure(docs, dataset / "00001.txt", given.rounds, chance)


def measure(docs: Document, changing: Path, rounds: int, chance: random.Random) -> None:
    """Each function in turn, in every round."""
    docs.activate_group("line")
    nodes = docs.get_nodes("line")
    alone: dict[str, Callable[[], object]] = {
        "length": lambda: [length("bald", node) for node in nodes],
        "lengths": lambda: lengths("bald", nodes),
    }
    ask = {
        name: Retriever(docs, "line", similarity=name) for name in ("length", "lengths", "first")
    }
    took: dict[tuple[str, str], list[float]] = {}
    before = peak_mb()
    for name, one in ask.items():
        if name == "first":
            one("bald", filters={"part": [0]})  # embeds the group
        took[name, "first question"] = [seconds(lambda one=one: one("bald"))]
    for _ in range(rounds):
        for name, one in ask.items():
            took.setdefault((name, "question"), []).append(seconds(lambda one=one: one("bald")))
            few = seconds(lambda one=one: one("bald", filters={"part": [3]}))
            took.setdefault((name, "question, a tenth of the nodes"), []).append(few)
            if name in alone:
                took.setdefault((name, "the function alone"), []).append(seconds(alone[name]))
    for name, one in ask.items():
        for _ in range(min(rounds, 3)):
            write(changing, chance)
            docs.sync()
            took.setdefault((name, "changed"), []).append(seconds(lambda one=one: one("bald")))
    print(f"{len(nodes):,} nodes; peak memory {before:.0f} MB before, {peak_mb():.0f} MB after")
    for (name, what), times in took.items():
        print(f"{name:8} {what:32} {1000 * statistics.median(times):9.1f} ms")
    for name in alone:
        ratio = statistics.median(took[name, "question"]) / statistics.median(
            took[name, "the function alone"]
        )
        print(f"{name:8} a question takes {ratio:.1f} x the function alone")


def peak_mb() -> float:
    """The most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
