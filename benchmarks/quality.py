"""Quality of retrieval on judged questions: every retriever, fusion and reranker that can run here.

    python benchmarks/quality.py [--sets cranfield xquad-en ...] [--only hybrid ...] [--check]
    python benchmarks/quality.py --pool [...]
    python benchmarks/quality.py --halves
    python benchmarks/quality.py --parts [--sets cranfield md-en ...] [--check]
    python benchmarks/quality.py --cost [--sets cranfield]

Each text of Cranfield, XQuAD (English and Chinese) and CMRC 2018 is one file and one node. Every
system is asked all questions of a set, through the public API; of its ten best nodes recall@1, @5
and @10, MRR and nDCG@10 are measured by `lazyrag.evaluation`, which the tests hold against
ir_measures. Systems are compared by the paired randomisation test. With --pool all sets lie in one
Document, which is harder: other sets' texts are in the way. With --halves what specification 003
expects of hybrid search and reranking is measured for each half of the English questions. With
--parts the default hybrid is measured beside the two that it fuses, also on the three documentation
trees, and with the best sentence of a text as a third list, for each half of the questions; --check
then fails where it is worse than the better of the two by more than .005. With --cost quality is
left out: what each choice takes to index the MediumChunks of 500 texts (in a store file), on disk,
in memory and for a query, the model's work included. Each step and each choice is a process of its
own.

The shared embedding model is English. Chinese questions are answered by BM25 and what reorders it;
systems that ask the model are shown for them, too, so that one sees what a model of the wrong
language does.

The rankings are those of the machine's processor, as the model is int8. It needs the shared data
beside the checkout; LAZYRAG_SHARED names another folder. docs/quality.md is written by
benchmarks/report.py.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import documentation
import results
from results import Row
from timing import median_ms

from lazyrag import (
    LAZY_ROOT_NAME,
    CachedEmbedder,
    DocNode,
    Document,
    HybridRetriever,
    OnnxEmbedder,
    Reranker,
    RetrievalChain,
    Retriever,
)
from lazyrag.evaluation import compare, evaluate, holm
from lazyrag.models import MaxSimModel
from lazyrag.ranking.fusion import weighted
from lazyrag.retrieval import MMR, FeedbackRetriever
from lazyrag.text.sentences import sentence_spans
from tests.judged import SETS, judged_set, pooled, write
from tests.shared import SHARED

TOPK = 10
DEPTH = 50
FIGURES = ("recall@1", "recall@5", "recall@10", "MRR@10", "nDCG@10")
TESTED = "nDCG@10"
HYBRID = "hybrid (default)"
CHAIN = "chain: feedback 2 + MaxSim 0.4"
SENTENCES = "hybrid + best sentence"
FIRST = 60
TOLERANCE = 0.005
BASE = {"en": "vector", "zh": "bm25_chinese"}
"""What the other systems of a language are compared with."""

Ask: TypeAlias = Callable[[str], Sequence[DocNode]]
Questions: TypeAlias = Sequence[tuple[str, Mapping[str, int]]]
Run: TypeAlias = dict[int, list[tuple[str, float]]]
Maker: TypeAlias = Callable[[Document, MaxSimModel], Ask]


def by(similarity: str | None, topk: int = TOPK) -> Callable[[Document], Retriever[list[DocNode]]]:
    """Retrievers over whole texts."""
    return lambda docs: Retriever(docs, LAZY_ROOT_NAME, similarity, topk=topk)


def default(docs: Document, topk: int = TOPK) -> HybridRetriever:
    """The default hybrid."""
    return HybridRetriever.over(docs, LAZY_ROOT_NAME, topk=topk)


def pair(docs: Document, method: str, **keywords: Any) -> HybridRetriever:
    """By meaning and by words, fused."""
    retrievers = by(None)(docs), by("bm25_chinese")(docs)
    return HybridRetriever(*retrievers, fusion_method=method, topk=TOPK, depth=DEPTH, **keywords)


def reranked(retriever: Callable[..., list[DocNode]], name: str, **keywords: Any) -> Ask:
    """The best fifty of a retriever, reranked."""
    reranker = Reranker(name, **keywords)
    return lambda query: reranker(retriever(query, topk=DEPTH), query=query)[:TOPK]


def weights(normalise: str, vector: float) -> Maker:
    """A weighted sum of scores."""
    return lambda docs, _: pair(docs, "weighted", weights=[vector, 1 - vector], normalise=normalise)


def lacking_is_nothing(docs: Document, _: MaxSimModel) -> Ask:
    """The default hybrid, were what a retriever lacks worth 0."""
    retrievers = by(None, DEPTH)(docs), by("bm25_chinese", DEPTH)(docs)

    def ask(query: str) -> list[DocNode]:
        found = [retriever(query) for retriever in retrievers]
        nodes = {node.uid: node for one in found for node in one}
        rankings = [[(node.uid, node.score or 0.0) for node in one] for one in found]
        fused = weighted(rankings, weights=[0.6, 0.4], normalise="max")[:TOPK]
        return [nodes[uid].with_score(score) for uid, score in fused]

    return ask


def feedback(nodes: int, weight: float, maxsim: float | None) -> Maker:
    """The default hybrid asked twice, and perhaps reranked."""

    def made(docs: Document, model: MaxSimModel) -> Ask:
        twice = FeedbackRetriever(default(docs), nodes=nodes, weight=weight)
        return (
            twice
            if maxsim is None
            else reranked(twice, "MaxSimReranker", embedder=model, weight=maxsim)
        )

    return made


def maxsim(weight: float) -> Maker:
    """The default hybrid, reranked by the embedding model's own token vectors."""
    return lambda docs, model: reranked(
        default(docs), "MaxSimReranker", embedder=model, weight=weight
    )


ENGLISH: Mapping[str, Maker] = {
    "vector": lambda docs, _: by(None)(docs),
    "bm25": lambda docs, _: by("bm25")(docs),
    **{
        f"bm25, k1 {k1}, b {b}": lambda docs, _, k1=k1, b=b: Retriever(
            docs, LAZY_ROOT_NAME, "bm25", topk=TOPK, k1=k1, b=b
        )
        for k1, b in ((0.9, 0.4), (1.2, 0.75), (2.0, 0.75))
    },
    "rrf": lambda docs, _: pair(docs, "rrf"),
    "rrf, k = 10": lambda docs, _: pair(docs, "rrf", k=10),
    **{
        f"weighted, {how}, vector {share}": weights(how, share)
        for how in ("max", "min_max", "z_score")
        for share in (0.5, 0.6, 0.7)
    },
    "weighted, max, vector 0.6, lacking = 0": lacking_is_nothing,
    "comb_mnz, max": lambda docs, _: pair(docs, "comb_mnz", normalise="max"),
    HYBRID: lambda docs, _: default(docs),
    "hybrid + MMR 0.7": lambda docs, _: RetrievalChain(
        default(docs), MMR(lam=0.7), topk=TOPK, fetch=DEPTH
    ),
    "hybrid + BM25Reranker": lambda docs, _: reranked(default(docs), "BM25Reranker"),
    "vector + MaxSim": lambda docs, model: reranked(
        by(None)(docs), "MaxSimReranker", embedder=model, weight=1.0
    ),
    "hybrid + MaxSim alone": maxsim(1.0),
    **{f"hybrid + MaxSim {share}": maxsim(share) for share in (0.2, 0.4, 0.6)},
    "hybrid + MaxSim 0.4, max": lambda docs, model: reranked(
        default(docs), "MaxSimReranker", embedder=model, weight=0.4, normalise="max"
    ),
    **{f"hybrid + feedback {count}": feedback(count, 0.7, None) for count in (1, 2, 3)},
    **{f"hybrid + feedback {count} + MaxSim 0.4": feedback(count, 0.7, 0.4) for count in (1, 3)},
    CHAIN: lambda docs, _: RetrievalChain.over(docs, LAZY_ROOT_NAME, topk=TOPK),
}

CHINESE: Mapping[str, Maker] = {
    "bm25_chinese": lambda docs, _: by("bm25_chinese")(docs),
    "bm25": lambda docs, _: by("bm25")(docs),
    "bm25_chinese + BM25Reranker": lambda docs, _: reranked(
        by("bm25_chinese", DEPTH)(docs), "BM25Reranker", analyser="zh"
    ),
    "bm25_chinese + bm25, rrf": lambda docs, _: HybridRetriever(
        by("bm25_chinese")(docs), by("bm25")(docs), topk=TOPK, depth=DEPTH
    ),
    "vector, English model": lambda docs, _: by(None)(docs),
    "rrf, English model": lambda docs, _: pair(docs, "rrf"),
    "weighted, max, vector 0.6, lacking = 0, English model": lacking_is_nothing,
    "weighted, max, vector 0.7, English model": weights("max", 0.7),
    "weighted, min_max, vector 0.6, English model": weights("min_max", 0.6),
    "hybrid (default), English model": lambda docs, _: default(docs),
}


def language(name: str) -> str:
    """Of a set's questions."""
    return "zh" if "zh" in name else "en"


def asked(ask: Ask, questions: Questions) -> tuple[Run, float]:
    """What is found for each question; and the mean milliseconds of one, those of a cold start
    included.
    """
    begun = time.perf_counter()
    run = {
        number: [(str(node.path), node.score or 0.0) for node in ask(question)]
        for number, (question, _) in enumerate(questions)
    }
    return run, (time.perf_counter() - begun) * 1000 / len(questions)


def perfect(questions: Questions, found: Run | None = None) -> Run:
    """All right answers, best first: of what was found, or all there are."""
    best: Run = {}
    for number, (_, grades) in enumerate(questions):
        of = {path for path, _ in found[number]} if found is not None else set(grades)
        best[number] = sorted(
            ((path, grade) for path, grade in grades.items() if path in of), key=lambda one: -one[1]
        )
    return best


def measured(
    name: str, docs: Document, model: MaxSimModel, questions: Questions, only: Sequence[str]
) -> list[Row]:
    """A row for each system, with its comparison."""
    base = BASE[language(name)]
    judged = {number: grades for number, (_, grades) in enumerate(questions)}
    systems = CHINESE if language(name) == "zh" else ENGLISH
    runs: dict[str, tuple[Run, float]] = {}
    for system, make in systems.items():
        if not only or system == base or any(part in system for part in only):
            runs[system] = asked(make(docs, model), questions)
            print(f"{name}: {system}, {runs[system][1]:.1f} ms", flush=True)
    first = default(docs, DEPTH) if base == "vector" else by(base, DEPTH)(docs)
    runs[f"ceiling: the best {DEPTH}, put right"] = (
        perfect(questions, asked(first, questions)[0]),
        math.nan,
    )
    runs["ceiling: all answers first"] = perfect(questions), math.nan
    found = {system: evaluate(run, judged, FIGURES) for system, (run, _) in runs.items()}
    compared = {
        one: compare(found[base].values[TESTED], of.values[TESTED], rounds=20_000)
        for one, of in found.items()
    }
    adjusted = holm({one: of.p for one, of in compared.items() if one in systems and one != base})
    rows = []
    for system, (_, spent_ms) in runs.items():
        of = compared[system]
        row: Row = {
            "set": name,
            "system": system,
            "questions": len(questions),
            **found[system].means,
        }
        row |= {
            "ms": None if math.isnan(spent_ms) else round(spent_ms, 1),
            "p": adjusted.get(system),
        }
        row |= {
            "difference": of.difference,
            "low": of.low,
            "high": of.high,
            "wins": of.wins,
            "losses": of.losses,
        }
        rows.append(row)
        print(
            f"{name:16} {system:40} " + " ".join(f"{row[one]:.4f}" for one in FIGURES), flush=True
        )
    return rows


def halves(name: str, docs: Document, model: MaxSimModel, questions: Questions) -> list[Row]:
    """What vector search, the default hybrid and the chain recall of each half of the questions,
    every second one.
    """
    judged = {number: grades for number, (_, grades) in enumerate(questions)}
    rows: list[Row] = []
    for system in ("vector", HYBRID, CHAIN):
        found = evaluate(
            asked(ENGLISH[system](docs, model), questions)[0], judged, FIGURES[:2]
        ).values
        for half in (0, 1):
            row: Row = {"set": name, "half": "even" if half == 0 else "odd", "system": system}
            for figure in FIGURES[:2]:
                own = [found[figure][number] for number in judged if number % 2 == half]
                row |= {"questions": len(own), figure: math.fsum(own) / len(own)}
            rows.append(row)
            print(row, flush=True)
    return rows


PARTS: Mapping[str, Callable[[Document, str], Ask]] = {
    "vector": lambda docs, group: Retriever(docs, group, topk=FIRST),
    "keyword": lambda docs, group: Retriever(docs, group, "bm25_chinese", topk=FIRST),
    "hybrid, 50 each": lambda docs, group: HybridRetriever.over(docs, group, topk=FIRST, depth=50),
    # the default for ten
    HYBRID: lambda docs, group: HybridRetriever.over(docs, group, topk=FIRST, depth=100),
    "hybrid, 200 each": lambda docs, group: HybridRetriever.over(
        docs, group, topk=FIRST, depth=200
    ),
    SENTENCES: lambda docs, group: HybridRetriever(
        Retriever(docs, group),
        Retriever(docs, "sentence", target=group),
        Retriever(docs, group, "bm25_chinese"),
        fusion_method="weighted",
        weights=[0.45, 0.15, 0.4],
        normalise="max",
        topk=FIRST,
        depth=100,
    ),
}
"""What --parts measures."""


def sentences(text: str) -> list[str]:
    """Of a text."""
    return [one for start, end in sentence_spans(text) if (one := text[start:end].strip())]


@contextmanager
def opened_set(name: str, embedder: Any) -> Iterator[tuple[Document, str]]:
    """The Document over a set's texts, or over a documentation tree; and the group to search."""
    with tempfile.TemporaryDirectory() as folder:
        if is_tree := name in documentation.SETS:
            dataset = documentation.TREES / name / "corpus"
        else:
            dataset = Path(folder)
            write(judged_set(name).texts, dataset)
        with Document(dataset, embed=embedder) as docs:
            yield docs, "MediumChunk" if is_tree else LAZY_ROOT_NAME


def parts(name: str, embedder: Any, *, by_sentence: bool) -> list[Row]:
    """Each of `PARTS` on each half of a set's questions, every second one, and on all."""
    is_tree = name in documentation.SETS
    with opened_set(name, embedder) as (docs, group):
        docs.create_node_group("sentence", sentences, parent=group)
        rows: list[Row] = []
        for system, make in PARTS.items():
            if system == SENTENCES and not by_sentence:
                continue
            ask = make(docs, group)
            if is_tree:
                own = documentation.questions_of(name)
                values = [documentation.row(ask, [one]) for one in own]
            else:
                questions = judged_set(name).questions
                judged = {number: grades for number, (_, grades) in enumerate(questions)}
                found = evaluate(
                    asked(lambda query, ask=ask: ask(query)[:TOPK], questions)[0], judged, FIGURES
                )
                values = [{one: found.values[one][number] for one in FIGURES} for number in judged]
            for half, picked in (("even", values[::2]), ("odd", values[1::2]), ("all", values)):
                means = {
                    one: math.fsum(value[one] for value in picked) / len(picked)
                    for one in picked[0]
                }
                rows.append(
                    {"set": name, "half": half, "system": system, "questions": len(picked), **means}
                )
            print(results.table(rows[-3:], list(rows[-1])), flush=True)
    return rows


def measure_parts(names: Sequence[str], embedder: Any, *, by_sentence: bool) -> list[str]:
    """Measure and save `parts` of sets; what to say of those where the hybrid is worse."""
    below = []
    for name in names:
        rows = parts(name, embedder, by_sentence=by_sentence)
        results.save(f"parts-{name}", rows)
        below += is_below_parts(rows)
    print("\n".join(below))
    return below


def is_below_parts(rows: Sequence[Row]) -> list[str]:
    """What to say of a set where the hybrid is worse than the better of the two that it fuses, by
    more than .005.
    """
    of = {row["system"]: row for row in rows if row["half"] == "all"}
    measures = [one for one in of[HYBRID] if "@" in one]
    best = {one: max(of[part][one] for part in ("vector", "keyword")) for one in measures}
    return [
        f"{rows[0]['set']}: {HYBRID} has {of[HYBRID][one]:.4f} {one}, the better of its parts {best[one]:.4f}"
        for one in measures
        if of[HYBRID][one] < best[one] - TOLERANCE
    ]


COST_TEXTS = 500  # for --cost: about a thousand passages

CHOICES: Mapping[str, Callable[[Document], Ask]] = {
    "keyword: bm25": lambda docs: Retriever(docs, "MediumChunk", "bm25", topk=TOPK),
    "keyword: bm25_chinese": lambda docs: Retriever(docs, "MediumChunk", "bm25_chinese", topk=TOPK),
    "vector": lambda docs: Retriever(docs, "MediumChunk", topk=TOPK),
    "hybrid": lambda docs: HybridRetriever.over(docs, "MediumChunk", topk=TOPK),
    "hybrid + BM25Reranker": lambda docs: reranked(
        HybridRetriever.over(docs, "MediumChunk", topk=TOPK), "BM25Reranker"
    ),
    "hybrid + MaxSimReranker": lambda docs: RetrievalChain.over(docs, "MediumChunk", topk=TOPK),
}
"""What --cost measures; with a model, its work on the query is part of the cost."""

STEPS: Mapping[str, Mapping[str, Any]] = {
    "files and chunks": {},
    "keyword: bm25": {"analysers": ["en"]},
    "keyword: bm25_chinese": {"analysers": ["zh"]},
    "vector": {"embed_keys": ["model"]},
}
"""What is indexed, one after the other, into one store."""


def opened(folder: Path, *, needs_model: bool, **given: Any) -> Document:
    """The Document over texts, on a store file beside them, with the model if it is needed."""
    store = {"segment_store": {"type": "map", "kwargs": {"uri": folder / "store" / "store.db"}}}
    embed = {"model": OnnxEmbedder(SHARED / "models" / "all-minilm-l6-v2")} if needs_model else None
    return Document(folder / "texts", embed=embed, store_conf=store, **given)


def cost_of_step(folder: Path, step: str) -> tuple[float, float, int]:
    """Seconds of a step of indexing, seconds of processor time, and the number of passages."""
    with opened(folder, needs_model=step == "vector") as docs:
        begun, cpu = time.perf_counter(), time.process_time()
        docs.sync()
        docs.activate_group("MediumChunk", **STEPS[step])
        taken = time.perf_counter() - begun, time.process_time() - cpu
        return *taken, len(docs.get_nodes("MediumChunk"))


def cost_of_queries(
    folder: Path, choice: str, queries: Sequence[str]
) -> tuple[list[float], list[float], float]:
    """Seconds and processor seconds of each query, the first one left out; the process's peak of
    memory in MB.
    """
    seconds, cpu_seconds = [], []
    with opened(folder, needs_model="keyword" not in choice, read_only=True) as docs:
        ask = CHOICES[choice](docs)
        for query in queries:
            begun, cpu = time.perf_counter(), time.process_time()
            ask(query)
            seconds.append(time.perf_counter() - begun)
            cpu_seconds.append(time.process_time() - cpu)
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text(encoding="utf-8"))
    return seconds[1:], cpu_seconds[1:], int(peak[1]) / 1024 if peak else math.nan


def measure_costs(names: Sequence[str]) -> int:
    """Measure and save `costs` of sets."""
    for name in names:
        results.save(f"cost-{name}", costs(name, 20))
    return 0


def megabytes(folder: Path) -> float:
    """Of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def costs(name: str, queries: int) -> list[Row]:
    """A row for each step of indexing and for each choice of similarity."""
    texts, questions = pooled([name])
    texts = dict(list(texts.items())[:COST_TEXTS])
    asked_for = random.Random(0).sample([question for question, _ in questions[name]], queries + 1)

    def alone(function: Callable[..., Any], *arguments: Any) -> Any:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return pool.submit(function, *arguments).result()

    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for sub in ("texts", "store"):
            (folder / sub).mkdir()
        write(texts, folder / "texts")
        before = 0.0
        for step in STEPS:
            seconds, cpu_seconds, passages = alone(cost_of_step, folder, step)
            now = megabytes(folder / "store")
            row: Row = {
                "index": step,
                "passages": passages,
                "s_per_1000": 1000 * seconds / passages,
            }
            row["cpu_s_per_1000"] = 1000 * cpu_seconds / passages
            rows.append(row | {"disk_mb_per_1000": 1000 * (now - before) / passages})
            before = now
            print(rows[-1], flush=True)
        for choice in CHOICES:
            *taken, peak_mb = alone(cost_of_queries, folder, choice, asked_for)
            ms, cpu_ms = map(median_ms, taken)
            rows.append(
                {"query": choice, "median_ms": ms, "median_cpu_ms": cpu_ms, "memory_mb": peak_mb}
            )
            print(rows[-1], flush=True)
    return rows


def is_below(rows: Sequence[Row]) -> list[str]:
    """What to say where the default hybrid, asked in English, is not above both retrievers that it
    fuses.
    """
    of = {row["system"]: row[TESTED] for row in rows}
    parts = [name for name in ("vector", "bm25") if of.get(name, 0.0) >= of.get(HYBRID, 2.0)]
    return [
        f"{rows[0]['set']}: {HYBRID} has {of[HYBRID]:.4f} {TESTED}, {name} {of[name]:.4f}"
        for name in parts
    ]


def main() -> int:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    every = (*SETS, *documentation.SETS)
    parser.add_argument(
        "--sets", nargs="+", choices=every, help="which; all without; trees with --parts alone"
    )
    parser.add_argument(
        "--parts", action="store_true", help=f"{HYBRID} beside what it fuses, by halves"
    )
    parser.add_argument(
        "--sentences", action="store_true", help=f"with --parts: also {SENTENCES}; embeds sentences"
    )
    parser.add_argument("--pool", action="store_true", help="the texts of all sets in one Document")
    parser.add_argument(
        "--halves", action="store_true", help="what is recalled of each half of the questions"
    )
    parser.add_argument(
        "--check", action="store_true", help=f"fail where {HYBRID} is not above both that it fuses"
    )
    parser.add_argument(
        "--only", nargs="+", default=(), help="systems whose names hold one of these"
    )
    parser.add_argument(
        "--cost", action="store_true", help="what each choice costs, instead of quality"
    )
    options = parser.parse_args()
    options.sets = options.sets or (every if options.parts else SETS)
    if options.cost:
        return measure_costs(options.sets)
    onnx = OnnxEmbedder(SHARED / "models" / "all-minilm-l6-v2")
    (results.FOLDER / "cache").mkdir(parents=True, exist_ok=True)
    embedder = CachedEmbedder(onnx, results.FOLDER / "cache" / "quality.db")
    model = MaxSimModel(onnx, cache_bytes=4 << 30)
    below = []
    if options.parts:
        below = measure_parts(options.sets, embedder, by_sentence=options.sentences)
        return int(bool(below) and options.check)
    if options.halves:
        options.sets = [name for name in options.sets if language(name) == "en"]
    for names in [SETS] if options.pool else [[name] for name in options.sets]:
        texts, questions = pooled(names)
        with tempfile.TemporaryDirectory() as folder:
            write(texts, Path(folder))
            with Document(folder, embed=embedder) as docs:
                for name in (one for one in names if one in options.sets):
                    if options.halves:
                        rows = halves(name, docs, model, questions[name])
                        results.save(f"halves-{name}", rows, texts=len(texts))
                        continue
                    label = f"{name}, pool" if options.pool else name
                    rows = measured(label, docs, model, questions[name], options.only)
                    below += is_below(rows)
                    if not options.only:
                        results.save(
                            f"quality-{label.replace(', ', '-')}",
                            rows,
                            texts=len(texts),
                            depth=DEPTH,
                        )
    for one in below:
        print(one)
    return int(bool(below) and options.check)


if __name__ == "__main__":
    sys.exit(main())
