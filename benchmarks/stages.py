"""What each stage of a question takes: p50, p95 and p99 at 100,000 nodes with 384 numbers each, on
a file.

    python benchmarks/stages.py [--nodes 100000] [--queries 200] [--rounds 5] [--check] [--threads]

Nodes are those of corpus.py, lines of files with ten to a part; their vectors are those of
vectors.py. The model's work is left out: a question's vector is looked up in a table, so the times
are those of retrieval alone. The question's words come from one node and its vector from a question
of the shared data, so that the two retrievers find different nodes, which is more work for what
follows than agreement. Stages take turns, query by query, as in the other benchmarks. Before the
clock starts, the vector ranking is compared with numpy's products, and the hybrids with fusions of
what its retrievers return. With --check nothing is timed: answers are compared, and what a query
calls is held to bounds that do not grow with the nodes. With --threads one thread and two take
turns with the same retrievers: queries a second, the processor's time for each, and how many
processors the process had. Results go to build/bench.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import counting
import numpy as np
from corpus import RETRIEVAL, make_corpus
from corpus import make_queries as make_words
from results import Row, save, table
from timing import interleaved, median_ms, quantile_ms, spread
from vectors import HOW, make_vectors
from vectors import make_queries as make_query_vectors

from lazyrag import (
    DataType,
    DocField,
    DocNode,
    Document,
    HybridRetriever,
    Reranker,
    RetrievalChain,
    Retriever,
)
from lazyrag.ranking.fusion import fusions
from lazyrag.ranking.mmr import mmr
from lazyrag.retrieval import MMR, AutoMerge, auto_merge
from lazyrag.retrieval.base import Query

DEPTH, TOPK, MANY = 50, 10, 1_000
FILES, PART = 100, 10
HYBRIDS = {
    "hybrid, rrf": {"fusion_method": "rrf"},
    "hybrid, weighted": {"fusion_method": "weighted", "weights": [0.7, 0.3]},
}
FILTER = {"tenth": [3]}
COLUMNS = ("stage", "p50_ms", "p95_ms", "p99_ms")

BOUNDS = {
    "vector Retriever": 300,
    "bm25 Retriever": 200,
    "hybrid, rrf": 450,
    "hybrid, weighted": 450,
}
"""Calls of functions of the package that a query may take."""

Answer = Callable[[str], Any]


def build(folder: Path, texts: Sequence[str], vector_of: dict[str, np.ndarray]) -> Document:
    """A Document over files of these lines, on a file of its own, with parts of ten lines and the
    lines as groups.
    """
    dataset = folder / "dataset"
    dataset.mkdir()
    per_file = max(PART, len(texts) // FILES)
    for start in range(0, len(texts), per_file):
        own = texts[start : start + per_file]
        parts = ["\n".join(own[at : at + PART]) for at in range(0, len(own), PART)]
        (dataset / f"{start // per_file:05}.txt").write_text("\n\n".join(parts), encoding="utf-8")
    return opened(folder, Table(vector_of))


class Table:
    """Vectors by text in the place of a model; by its identity the vectors on the disk are known
    again.

    Args:
        vector_of: By text.
    """

    identity = "a table of vectors"

    def __init__(self, vector_of: dict[str, np.ndarray]) -> None:
        self._vector_of = vector_of

    def __call__(self, text: str) -> np.ndarray:
        """The vector of one text."""
        return self._vector_of[text]


def opened(folder: Path, embed: Table) -> Document:
    """The Document over these files, whether its store is there or not."""
    docs = Document(
        folder / "dataset",
        embed=embed,
        doc_fields={"tenth": DocField(DataType.INT32)},
        file_metadata=lambda path: {"tenth": int(Path(path).stem) % 10},
        store_conf={"segment_store": {"type": "map", "kwargs": {"uri": str(folder / "store.db")}}},
    )
    docs.create_node_group("part", transform=lambda text: text.split("\n\n"))
    docs.create_node_group("line", transform=str.splitlines, parent="part")
    return docs


def stages(docs: Document, questions: Sequence[str]) -> dict[str, Answer]:
    """By name, what answers a question; what a stage gets from the ones before it is made ready
    beforehand.
    """
    vector, bm25 = (
        Retriever(docs, "line", "cosine", topk=TOPK),
        Retriever(docs, "line", "bm25", topk=TOPK),
    )
    hybrids = {
        name: HybridRetriever(vector, bm25, topk=TOPK, depth=DEPTH, **given)
        for name, given in HYBRIDS.items()
    }
    rerank, diverse = Reranker("BM25Reranker"), MMR(topk=TOPK)
    chain = RetrievalChain(hybrids["hybrid, weighted"], rerank, AutoMerge(), topk=TOPK, fetch=DEPTH)

    def ranking(retriever: Retriever[Any], question: str) -> list[Any]:
        return retriever.answer(Query(question, topk=DEPTH), lambda stage: stage.hits)

    found = {question: [ranking(one, question) for one in (vector, bm25)] for question in questions}
    candidates = {question: hybrids["hybrid, rrf"](question, topk=DEPTH) for question in questions}
    rows = {question: vectors_of(nodes) for question, nodes in candidates.items()}
    listed = {
        question: [(node.uid, node.score) for node in nodes]
        for question, nodes in candidates.items()
    }
    lines = docs.get_nodes("line")
    uids = [node.uid for node in random.Random(0).sample(lines, min(MANY, len(lines)))]
    fuse_rrf, fuse_weighted = fusions["rrf"], fusions["weighted"]
    return {
        f"vector ranking, {DEPTH}": lambda question: ranking(vector, question),
        f"bm25 ranking, {DEPTH}": lambda question: ranking(bm25, question),
        f"fusion of 2 x {DEPTH}, rrf": lambda question: fuse_rrf(found[question]),
        f"fusion of 2 x {DEPTH}, weighted": lambda question: fuse_weighted(
            found[question], weights=[0.7, 0.3]
        ),
        f"reading {TOPK} nodes": lambda question: docs.reader.read(
            lambda snapshot: snapshot.nodes("line", found[question][1][:TOPK])
        ),
        f"{MANY:,} nodes by uid": lambda _: docs.get_nodes("line", uids=uids),
        f"{MANY:,} nodes by uid, with parents": lambda _: docs.find("part")(
            docs.get_nodes("line", uids=uids)
        ),
        "vector Retriever": vector,
        "bm25 Retriever": bm25,
        **hybrids,
        "hybrid, weighted, 10 % filter": lambda question: hybrids["hybrid, weighted"](
            question, FILTER
        ),
        "hybrid, weighted, trace": hybrids["hybrid, weighted"].trace,
        f"MMR of {DEPTH}, vectors at hand": lambda question: mmr(
            listed[question], rows[question], topk=TOPK
        ),
        f"MMR of {DEPTH}, vectors read": lambda question: diverse(candidates[question], question),
        f"BM25 rerank of {DEPTH}": lambda question: rerank(candidates[question], question),
        f"auto-merge of {DEPTH}": lambda question: auto_merge(candidates[question]),
        "hybrid, BM25 rerank, auto-merge": chain,
    }


def vectors_of(nodes: Sequence[DocNode]) -> np.ndarray:
    """The nodes' vectors, a row for each."""
    return np.stack([next(iter(node.embeddings.values())) for node in nodes])


def compare(docs: Document, questions: Sequence[str], vector_of: dict[str, np.ndarray]) -> None:
    """The vector ranking has the scores that numpy says; a hybrid is the fusion of what its
    retrievers return.
    """
    lines = docs.get_nodes("line")
    matrix = np.stack([vector_of[node.text] for node in lines])
    vector, bm25 = (
        Retriever(docs, "line", "cosine", topk=DEPTH),
        Retriever(docs, "line", "bm25", topk=DEPTH),
    )
    for question in questions:
        nodes, by_words = vector(question), bm25(question)
        best = np.sort(matrix @ vector_of[question])[::-1][:DEPTH]
        np.testing.assert_allclose([node.score for node in nodes], best, atol=1e-5)
        assert by_words, f"no node has a word of {question!r}"
        rankings = [[(node.uid, node.score) for node in some] for some in (nodes, by_words)]
        for given in HYBRIDS.values():
            hybrid = HybridRetriever(vector, bm25, topk=TOPK, depth=DEPTH, **given)
            options = {name: value for name, value in given.items() if name != "fusion_method"}
            fused = fusions[given["fusion_method"]](rankings, **options)
            assert [(node.uid, node.score) for node in hybrid(question)] == fused[:TOPK]


def drawn(count: int, seed: int = 0) -> np.ndarray:
    """Vectors of length 1 without a model: to compare and count, no text has to be embedded."""
    rows = np.random.default_rng(seed).standard_normal((count, 384), dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def most_calls(ask: Mapping[str, Answer], questions: Sequence[str]) -> dict[str, int]:
    """By name, the most calls of functions of the package that one of the questions takes, after
    the first.
    """
    for answer in ask.values():
        answer(questions[0])  # warm
    return {
        name: max(counting.count(lambda: answer(question)).calls for question in questions)  # noqa: B023  called at once
        for name, answer in ask.items()
    }


def in_threads(
    ask: Mapping[str, Answer], questions: Sequence[str], rounds: int, nodes: int
) -> list[Row]:
    """What one thread and two answer in a second with the same retrievers; the best round of
    each.
    """
    rows: list[Row] = []
    goals = {}
    for name, answer in ask.items():
        best: dict[int, tuple[float, float, float]] = {}
        speeds: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(rounds):
            for count in (1, 2):
                with ThreadPoolExecutor(count) as pool:
                    started, cpu = time.perf_counter(), time.process_time()
                    list(pool.map(answer, questions))
                    took, cpu = time.perf_counter() - started, time.process_time() - cpu
                measured = len(questions) / took, 1000 * cpu / len(questions), cpu / took
                speeds[count].append(measured[0])
                best[count] = max(best.get(count, measured), measured)
        goals[name] = spread([two / one for one, two in zip(*speeds.values(), strict=True)])
        for count, (speed, cpu, processors) in best.items():
            row = {
                "stage": name,
                "threads": count,
                "queries_s": speed,
                "cpu_ms": cpu,
                "processors": processors,
            }
            rows.append({**row, "x": speed / best[1][0]})
    save("threads", rows, goals=goals, nodes=nodes, rounds=rounds)
    print(table(rows, ("stage", "threads", "queries_s", "cpu_ms", "processors", "x")))
    return rows


def run(count: int, asked: int, rounds: int, *, threads: bool = False) -> list[Row]:
    """Measure all stages at one size; without rounds, compare answers and count calls.

    Returns:
        The rows of the table; without rounds, one for each stage whose queries call too much.
    """
    texts = make_corpus("en", count).texts()
    questions = list(dict.fromkeys(make_words(make_corpus("en", count), asked)))
    is_drawn = threads or not rounds  # what is found does not matter
    vectors, real = (drawn(count), 0) if is_drawn else make_vectors(count)
    # Of lines with the same text, the first one's vector.
    vector_of = dict(zip(reversed(texts), vectors[::-1], strict=True))
    asked_vectors = (
        drawn(len(questions), seed=1) if is_drawn else make_query_vectors(len(questions))
    )
    vector_of.update(zip(questions, asked_vectors, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        with build(Path(folder), texts, vector_of) as docs:
            compare(docs, questions[:10], vector_of)
            print(
                f"built, and compared with numpy, in {time.perf_counter() - started:.0f} s",
                flush=True,
            )
            ask = stages(docs, questions)
            if threads:
                return in_threads({name: ask[name] for name in BOUNDS}, questions, rounds, count)
            if not rounds:
                found = most_calls({name: ask[name] for name in BOUNDS}, questions)
                return [{"stage": name} for name in counting.over(found, BOUNDS)]
            seconds = interleaved(
                ask, [dict.fromkeys(ask, question) for question in questions], rounds
            )
    rows: list[Row] = [
        {
            "stage": name,
            "p50_ms": median_ms(own),
            "p95_ms": quantile_ms(own, 0.95),
            "p99_ms": quantile_ms(own, 0.99),
            "nodes": count,
        }
        for name, own in seconds.items()
    ]
    print(table(rows, COLUMNS))
    read = seconds[f"{MANY:,} nodes by uid, with parents"]
    goals = {"with_parents": spread([1000 * each / MANY for each in read])}
    facts = {
        "goals": goals,
        "questions": len(questions),
        "rounds": rounds,
        "vectors": f"{real:,} real, the others {HOW}",
    }
    save(f"stages-{count:08}", rows, left_out={}, **facts)
    return rows


def main() -> int:
    """Measure, and with --check judge the hybrids."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--check", action="store_true", help="compare answers, count calls, and time nothing"
    )
    parser.add_argument(
        "--threads", action="store_true", help="compare one thread with two, and time nothing else"
    )
    options = parser.parse_args()
    if not RETRIEVAL.exists():
        print(f"no {RETRIEVAL}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    rows = run(
        options.nodes,
        options.queries,
        0 if options.check else options.rounds,
        threads=options.threads,
    )
    return int(options.check and bool(rows))


if __name__ == "__main__":
    sys.exit(main())
