"""BM25 search beside other engines: one run, the same terms and queries for all, interleaved,
medians and ratios.

    python benchmarks/lexical.py [--nodes 100000] [--language en zh] [--check]

Nodes and queries are those of corpus.py: stretches of real English or Chinese texts, resampled
beyond their size. Everybody is given terms, except "Retriever", which is asked in words and hands
out nodes. Each engine runs in a process of its own. Before the clock starts, our answers are
compared with the best 10 by rank_bm25's scores (variant okapi) and by bm25s's (its lucene method).
Sizes are 1,000, 10,000, ... up to the one asked for; rank_bm25, FTS5 and the Retriever stop at
100,000. With --check nothing is timed: the answers are compared, and both peers must be there.
Results go to build/bench.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from corpus import LANGUAGES, RETRIEVAL, Corpus, make_corpus, make_queries
from engine import Engine, open_engines
from engines.lexical import TOPK
from results import Row, save, table
from timing import median_ms, quantile_ms, ratios, take_turns

from lazyrag.text.analyzers import term_function

SIZES = (1_000, 10_000, 100_000, 1_000_000)
SLOW_UP_TO = 100_000
ROUNDS = 5
QUERIES = 60  # rank_bm25 takes up to a quarter of a second for each
OURS = "lazyrag index"
ENGINES = {
    OURS: ("Lazyrag", None),
    "bm25s": ("Bm25s", "peers"),
    "bm25s + numba": ("Bm25sNumba", "peers"),
    "tantivy": ("Tantivy", "peers"),
}
SLOW = {"rank_bm25": ("RankBm25", "peers"), "SQLite FTS5": ("Fts5", None)}
FILTERED = "lazyrag index, 10 % filter"
ASKING = "lazyrag Retriever"
ON_FILE = "lazyrag Retriever, store file"
ORACLES = ("bm25s", "rank_bm25")
COLUMNS = ("engine", "p50_ms", "p95_ms", "x_bm25s", "x_rank_bm25", "build_s", "bytes_per_node")


def check(language: str, count: int) -> None:
    """Compare the answers of the index and of the Retriever with both peers', and time nothing."""
    corpus = make_corpus(language, count)
    questions = make_queries(corpus, QUERIES)
    terms_of = term_function(language)
    queries = [terms_of(question) for question in questions]
    wanted = {name: of for name, of in {**ENGINES, **SLOW}.items() if name in {OURS, *ORACLES}}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        path = str(corpus.save(folder / "terms.npz"))
        engines, left_out = open_engines(stack, "lexical", wanted)
        assert not left_out, f"cannot compare without {left_out}"
        for engine in engines.values():
            engine.call("load", path=path)
        compare(corpus, queries, engines)
        asking = stack.enter_context(Engine("lexical", "Asking"))
        asking.call("load", **write_lines(corpus, folder / "files"))
        compare_nodes(corpus, queries, questions, asking, engines)
    print(
        f"{language}, {count:,} nodes: {len(queries)} answers equal those of {' and '.join(ORACLES)}"
    )


def run(language: str, count: int) -> float:
    """Measure one language at one size; returns how many times faster the Retriever is than
    rank_bm25.
    """
    corpus = make_corpus(language, count)
    questions = make_queries(corpus, QUERIES)
    terms_of = term_function(language)
    queries = [terms_of(question) for question in questions]
    slow = count <= SLOW_UP_TO
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        path = str(corpus.save(folder / "terms.npz"))
        engines, left_out = open_engines(stack, "lexical", {**ENGINES, **(SLOW if slow else {})})
        costs = {name: engine.call("load", path=path) for name, engine in engines.items()}
        compare(corpus, queries, engines)
        candidates = {name: of(engine, "search") for name, engine in engines.items()}
        candidates[FILTERED] = of(engines[OURS], "search_filtered")
        jobs: list[dict[str, Any]] = [dict.fromkeys(candidates, query) for query in queries]
        if slow:
            asking, on_file = (stack.enter_context(Engine("lexical", "Asking")) for _ in range(2))
            lines = write_lines(corpus, folder / "files")
            costs[ASKING] = {"build_s": asking.call("load", **lines)}
            costs[ON_FILE] = {
                "build_s": on_file.call("load", **lines, store=str(folder / "store.db"))
            }
            compare_nodes(corpus, queries, questions, asking, engines)
            candidates |= {ASKING: of(asking, "search"), ON_FILE: of(on_file, "search")}
            for job, question in zip(jobs, questions, strict=True):
                job |= {ASKING: question, ON_FILE: question}
        seconds = take_turns(candidates, jobs, ROUNDS)
        changes = engines[OURS].call("change", path=path, turns=5)
        versions = {name: engine.versions for name, engine in engines.items()}
    rows = make_rows(seconds, costs, count)
    lengths = [len(query) for query in queries]
    print(
        f"\n{language}, {count:,} nodes ({corpus.label()}), {corpus.starts[-1] / count:.0f} terms each; "
    )
    print(f"queries of {min(lengths)} to {max(lengths)} terms\n{table(rows, COLUMNS)}")
    change = {
        f"{name}_100_ms" if name != "first" else "first_ms": median_ms(took)
        for name, took in changes.items()
    }
    print(", ".join(f"{name} {took:.1f}" for name, took in change.items()))
    for row in rows:
        row.update(language=language, nodes=count, text=corpus.label())
    pairs = {
        "tantivy": (OURS, "tantivy"),
        "numba": (OURS, "bm25s + numba"),
        "file": (ON_FILE, ASKING),
    }
    goals = {
        key: ratios(*(seconds[name] for name in names), ROUNDS)
        for key, names in pairs.items()
        if seconds.keys() >= {*names}
    }
    save(
        f"lexical-{language}-{count:08}",
        rows,
        goals=goals,
        change=change,
        left_out=left_out,
        versions=versions,
    )
    faster = {row["engine"]: row.get("x_rank_bm25") for row in rows}
    return float(faster.get(ASKING) or 0.0)


def of(engine: Engine, method: str) -> Any:
    """A candidate that measures itself."""
    return lambda jobs: engine.times(method, jobs)


def make_rows(
    seconds: dict[str, list[float]], costs: dict[str, dict[str, float]], count: int
) -> list[Row]:
    """A line for each candidate; x: how many times faster than a peer."""
    medians = {name: median_ms(own) for name, own in seconds.items()}
    rows = []
    for name, own in seconds.items():
        cost = costs.get(name, {})
        row: Row = {
            "engine": name,
            "p50_ms": medians[name],
            "p95_ms": quantile_ms(own, 0.95),
            **cost,
        }
        row |= {
            f"x_{peer}": medians[peer] / medians[name]
            for peer in ("bm25s", "rank_bm25")
            if peer in medians
        }
        if "memory_mb" in cost:
            row["bytes_per_node"] = cost["memory_mb"] * 2**20 / count
        rows.append(row)
    return rows


def write_lines(corpus: Corpus, folder: Path) -> dict[str, str]:
    """A folder with a hundred files, a line for each node; and what to ask it by."""
    folder.mkdir()
    per_file = max(1, len(corpus) // 100)
    texts = corpus.texts()
    for start in range(0, len(texts), per_file):
        (folder / f"{start:08}.txt").write_text(
            "\n".join(texts[start : start + per_file]), encoding="utf-8"
        )
    return {"folder": str(folder), "similarity": LANGUAGES[corpus.language]}


def compare(corpus: Corpus, queries: list[list[str]], engines: dict[str, Engine]) -> None:
    """Our best nodes and their scores are those that the others' scores say."""
    same_text: dict[tuple[int, ...], list[int]] = {}
    for row, bounds in enumerate(corpus.bounds.tolist()):
        same_text.setdefault(tuple(bounds), []).append(row)
    for variant, peer in (("lucene", "bm25s"), ("okapi", "rank_bm25")):
        if peer not in engines:
            continue
        found = engines[OURS].call("answers", queries=queries, variant=variant)
        rows = [[row for row, _ in ranking] for ranking in found]
        judged = engines[peer].call("judge", queries=queries, rows=rows)
        for ranking, own, (best, theirs) in zip(found, rows, judged, strict=True):
            same_best(best, theirs, [score for _, score in ranking])
            assert ranking == sorted(ranking, key=lambda item: (-item[1], item[0]))
            # Equal texts tie, and the smaller key comes first, also where only some of them are
            # among the best.
            for row in own:
                assert {*same_text[tuple(corpus.bounds[row].tolist())]} & {*range(row)} <= {*own}


def compare_nodes(
    corpus: Corpus,
    queries: list[list[str]],
    questions: list[str],
    asking: Engine,
    engines: dict[str, Engine],
) -> None:
    """The nodes that the Retriever hands out are the best by bm25s's scores."""
    if "bm25s" not in engines:
        return
    row_of = {text: row for row, text in enumerate(corpus.texts())}
    found = asking.call("answers", queries=questions)
    assert all(len({uid for uid, _, _ in nodes}) == len(nodes) for nodes in found)
    rows = [[row_of[text] for _, text, _ in nodes] for nodes in found]
    judged = engines["bm25s"].call("judge", queries=queries, rows=rows)
    for nodes, (best, theirs) in zip(found, judged, strict=True):
        same_best(best, theirs, [score for _, _, score in nodes])


def same_best(best: list[float], theirs: list[float], scores: list[float]) -> None:
    """Our scores are the true best by the oracle's scores of all rows, to 1e-6 relative.

    Rows that tie may stand for each other: the oracle's i-th best score, its score of our i-th row
    and ours are one.
    """
    assert len(scores) == len(best) > 0
    assert len(best) <= TOPK
    np.testing.assert_allclose(scores, best, rtol=1e-6)
    np.testing.assert_allclose(theirs, best, rtol=1e-6)


def main() -> int:
    """Measure at every size up to the one asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--nodes", type=int, default=100_000, help="the largest size; 1000000 takes many minutes"
    )
    parser.add_argument("--only", action="store_true", help="that size alone")
    parser.add_argument("--language", nargs="+", choices=sorted(LANGUAGES), default=["en"])
    parser.add_argument("--check", action="store_true", help="compare answers, and time nothing")
    options = parser.parse_args()
    if not RETRIEVAL.exists():
        print(f"no {RETRIEVAL}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    sizes = (
        {options.nodes}
        if options.only
        else {*(size for size in SIZES if size < options.nodes), options.nodes}
    )
    for language in options.language:
        for count in sorted(sizes):
            if options.check:
                check(language, count)
                continue
            ratio = run(language, count)
            if language == "en" and count == options.nodes <= SLOW_UP_TO:
                print(
                    f"\nRetriever at {options.nodes} nodes: {ratio:.0f} times rank_bm25's scoring"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
