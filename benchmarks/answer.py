"""A question end to end, but for the model's answer: p50, p95 and p99 at 100,000 nodes on a file,
and the memory.

    python benchmarks/answer.py [--nodes 100000] [--queries 200] [--rounds 3] [--check]
    python benchmarks/answer.py --model [--queries 100]

Nodes, vectors and questions are those of stages.py. A question's vector is looked up in a table and
a chat model that returns one sentence at once replaces the real one, so the times are those of
lazyrag alone: hybrid retrieval, context, prompt, citations, and what the pipeline adds. Before the
clock starts, each way of asking is held to what the hybrid itself gives. Memory is that of a
process of its own, which opens the file and answers. With --check nothing is timed, and all answers
are compared. Results go to build/bench.

With --model a real embedding model on the CPU embeds the questions, over the 1,398 texts of
Cranfield: what the default of `RAGPipeline.over` takes, the late-interaction reranker as a setting,
and the chain that was the default before. Each question comes once, so the reranker embeds passages
that no question before it needed, as in use.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np
from corpus import RETRIEVAL, make_corpus
from corpus import make_queries as make_words
from results import Row, save, table
from stages import Table, build, drawn, opened
from timing import interleaved, median_ms, quantile_ms
from vectors import make_queries as make_query_vectors
from vectors import make_vectors

from lazyrag import (
    LAZY_ROOT_NAME,
    Document,
    HybridRetriever,
    OnnxEmbedder,
    RAGPipeline,
    Reranker,
    RetrievalChain,
    Retriever,
)
from lazyrag.pipeline import PipelineSettings
from tests.judged import judged_set, write
from tests.shared import SHARED

TOPK, AT_ONCE = 5, 50
COLUMNS = ("asked", "p50_ms", "p95_ms", "p99_ms")
SAID = "The first source says so [1]."

Ask = Callable[[str], Any]


def ways(docs: Document) -> dict[str, Ask]:
    """By name, what answers a question."""
    vector, words = Retriever(docs, "line", "cosine"), Retriever(docs, "line", "bm25")
    hybrid = HybridRetriever(vector, words, fusion_method="weighted", weights=[0.6, 0.4], topk=TOPK)
    plain = RAGPipeline(retriever=hybrid, generator=lambda prompt: SAID)
    reranked = RAGPipeline(
        retriever=hybrid, reranker=Reranker("BM25Reranker"), generator=lambda prompt: SAID
    )
    return {
        "hybrid alone": lambda question: hybrid(question, topk=TOPK),
        "retrieve": lambda question: plain.sync.retrieve(question, TOPK),
        "retrieve_and_rerank, 50 by BM25": lambda question: reranked.sync.retrieve_and_rerank(
            question, 50, TOPK
        ),
        "retrieve_with_context": lambda question: plain.sync.retrieve_with_context(question, TOPK),
        "answer": plain.sync.answer,
    }


def compare(asked: dict[str, Ask], questions: Sequence[str]) -> None:
    """The pipeline gives what the hybrid gives, and the answer cites the first source."""
    for question in questions:
        expected = [(node.uid, node.score) for node in asked["hybrid alone"](question)]
        assert [(hit.id, hit.score) for hit in asked["retrieve"](question)] == expected
        context = asked["retrieve_with_context"](question)
        again = context.metadata["duplicates"]
        assert [hit.id for hit in context.sources] == [
            uid for uid, _ in expected if uid not in again
        ]
        answer = asked["answer"](question)
        assert [citation.uid for citation in answer.citations] == [expected[0][0]]


def together(docs: Document, questions: Sequence[str]) -> float:
    """Questions in a second, fifty at a time in one event loop."""
    vector, words = Retriever(docs, "line", "cosine"), Retriever(docs, "line", "bm25")
    pipeline = RAGPipeline(retriever=HybridRetriever(vector, words), generator=lambda prompt: SAID)
    started = time.perf_counter()
    asyncio.run(pipeline.batch_answer(questions, concurrency=AT_ONCE))
    return len(questions) / (time.perf_counter() - started)


def memory_mb(folder: Path, question: str) -> dict[str, float]:
    """Megabytes of a process that opens the file and answers: after the import, and at most."""
    done = subprocess.run(
        [sys.executable, __file__, "--open", str(folder), question],
        capture_output=True,
        text=True,
        check=True,
    )
    imported, most = map(float, done.stdout.split())
    return {"imported_mb": imported, "most_mb": most}


def open_and_answer(folder: Path, question: str) -> None:
    """In a process of its own: answer one question, and print the megabytes."""
    imported = most_mb()
    row = np.load(folder / "question.npy")
    with opened(folder, Table({question: row})) as docs:
        ways(docs)["answer"](question)
    print(imported, most_mb())


def most_mb() -> float:
    """The most memory that this process had so far; what getrusage says counts that of its parent
    before exec.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def run(count: int, asked: int, rounds: int) -> list[Row]:
    """Measure at one size; without rounds, only compare all answers."""
    texts = make_corpus("en", count).texts()
    vectors = make_vectors(count)[0] if rounds else drawn(count)
    questions = list(dict.fromkeys(make_words(make_corpus("en", count), asked)))
    vector_of = dict(zip(reversed(texts), vectors[::-1], strict=True))
    asked_vectors = make_query_vectors(len(questions)) if rounds else drawn(len(questions), seed=1)
    vector_of.update(zip(questions, asked_vectors, strict=True))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with build(folder, texts, vector_of) as docs:
            found = ways(docs)
            compare(found, questions[:10] if rounds else questions)
            if not rounds:
                print(f"{len(questions)} answers equal those of the hybrid")
                return []
            seconds = interleaved(
                found, [dict.fromkeys(found, question) for question in questions], rounds
            )
            rate = together(docs, questions)
        np.save(folder / "question.npy", vector_of[questions[0]])
        memory = memory_mb(folder, questions[0])
    rows: list[Row] = [
        {
            "asked": name,
            "p50_ms": median_ms(own),
            "p95_ms": quantile_ms(own, 0.95),
            "p99_ms": quantile_ms(own, 0.99),
            "nodes": count,
        }
        for name, own in seconds.items()
    ]
    print(table(rows, COLUMNS))
    print(
        f"{AT_ONCE} at once: {rate:.0f} answers a second; memory of a process that opens and answers: {memory}"
    )
    save(
        f"answer-{count:08}",
        rows,
        left_out={},
        questions=len(questions),
        rounds=rounds,
        per_second=rate,
        at_once=AT_ONCE,
        **memory,
    )
    return rows


def run_model(asked: int) -> list[Row]:
    """Measure the defaults with a real embedding model; each question once."""
    judged = judged_set("cranfield")
    late = PipelineSettings(rag_use_hybrid_search=True, reranker_model="MaxSimReranker")
    seconds: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        write(judged.texts, Path(folder))
        with Document(folder, embed=OnnxEmbedder(SHARED / "models" / "all-minilm-l6-v2")) as docs:
            made = {
                "default": RAGPipeline.over(docs, LAZY_ROOT_NAME, generator=lambda prompt: SAID),
                "reranker_model='MaxSimReranker'": RAGPipeline.over(
                    docs, LAZY_ROOT_NAME, settings=late, generator=lambda prompt: SAID
                ),
                "RetrievalChain.over": RAGPipeline(
                    retriever=RetrievalChain.over(docs, LAZY_ROOT_NAME),
                    generator=lambda prompt: SAID,
                ),
            }
            for name, pipeline in made.items():
                pipeline.sync.retrieve("warm up")
                for question, _ in judged.questions[:asked]:
                    begun, cpu = time.perf_counter(), time.process_time()
                    pipeline.sync.answer(question)
                    seconds.setdefault(name, []).append(
                        (time.perf_counter() - begun, time.process_time() - cpu)
                    )
    rows: list[Row] = []
    for name, both in seconds.items():
        own = [wall for wall, _ in both]
        quantiles = {f"p{q}_ms": quantile_ms(own, q / 100) for q in (95, 99)}
        rows.append(
            {
                "asked": name,
                "p50_ms": median_ms(own),
                **quantiles,
                "cpu_s": sum(cpu for _, cpu in both) / asked,
            }
        )
    print(table(rows, (*COLUMNS, "cpu_s")))
    save("defaults", rows, texts=len(judged.texts), questions=asked)
    return rows


def main() -> int:
    """Measure, and with --check judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--model", action="store_true", help="the defaults with a real embedding model"
    )
    parser.add_argument("--check", action="store_true", help="compare answers, and time nothing")
    parser.add_argument("--open", nargs=2, metavar=("FOLDER", "QUESTION"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.open:
        open_and_answer(Path(options.open[0]), options.open[1])
        return 0
    if not RETRIEVAL.exists():
        print(f"no {RETRIEVAL}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    if options.model:
        run_model(options.queries)
        return 0
    run(options.nodes, options.queries, 0 if options.check else options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
