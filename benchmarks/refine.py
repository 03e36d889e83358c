"""How many answers stay where retrieved texts are refined: XQuAD in English and Chinese, and CMRC
2018.

    python benchmarks/refine.py [--questions 400] [--budgets 40 60 80 120 250 2048] [--check]

Each paragraph is one file; five nodes of CoarseChunk are retrieved by words and shortened to a
budget of "utf8" tokens:

- first: the best passages first, cut at the budget;
- context: `ContextBuilder`, whose template is the sources alone, as it is by default;
- unrefined: the same with refine=False;
- extractive, tree: refiners, through the operators.

Printed are the tokens that are left, the share of the questions one of whose right answers stands
in what is left (of all, and of the even and odd ones: settings are chosen on the even ones), and
milliseconds a question. No model takes part.

With --check, only the first two are compared, on 200 questions of each set, and the exit status is
1 where a context of 80 tokens or more keeps fewer answers than "first" in one of the halves: below,
a context of complete sentences holds one or none. It reads the shared data
beside the checkout; LAZYRAG_SHARED names another folder.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lazyrag import ContextBuilder, Document, Hit, Retriever
from lazyrag.evaluation import answer_accuracy
from lazyrag.evaluation.answers import total_tokens
from lazyrag.generation.prompts import ContextTemplate
from lazyrag.generation.selection import cut
from lazyrag.operators import RefinerOperator, RetrieveOperator
from lazyrag.text.tokens import token_counters
from tests.shared import SHARED

DATA = SHARED / "data" / "retrieval"
SETS = (
    ("XQuAD en", "xquad/xquad.en.json", "bm25"),
    ("XQuAD zh", "xquad/xquad.zh.json", "bm25_chinese"),
    ("CMRC", "cmrc2018/cmrc2018_dev_half0.json", "bm25_chinese"),
)
GROUP = "CoarseChunk"


def read(path: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """Paragraphs, and a trace with references for each question."""
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    traces = [
        {
            "query": one["question"],
            "references": sorted({answer["text"] for answer in one["answers"]}),
        }
        for paragraph in paragraphs
        for one in paragraph["qas"]
    ]
    return [paragraph["context"] for paragraph in paragraphs], traces


Method = Callable[[dict[str, Any], int], Sequence[str]]
"""From a trace and a budget to the texts that are left."""
COUNTER = token_counters["utf8"]
BARE = ContextTemplate("{sources}", item="{text}", separator="\n")


def first(trace: dict[str, Any], budget: int) -> Sequence[str]:
    """The best passages first, cut."""
    return [cut("\n".join(trace["retrieval_docs"]), budget, COUNTER)]


def context(*, refine: bool) -> Method:
    """What a `ContextBuilder` writes."""
    builder = ContextBuilder(counter="utf8", template=BARE, refine=refine)

    def write(trace: dict[str, Any], budget: int) -> Sequence[str]:
        hits = [Hit(str(rank), text, 1.0) for rank, text in enumerate(trace["retrieval_docs"])]
        return builder.build(trace["query"], hits, budget).sources.contexts

    return write


def refiner(name: str) -> Method:
    """What a refiner leaves."""

    def shorten(trace: dict[str, Any], budget: int) -> Sequence[str]:
        return RefinerOperator(name, budget=budget).execute(trace)["refining_docs"]

    return shorten


LEAST_BUDGET = 80
"""Tokens from which a context must keep as many answers as the first passages."""
CHECKED: dict[str, Method] = {"first": first, "context": context(refine=True)}
METHODS: dict[str, Method] = {
    **CHECKED,
    "unrefined": context(refine=False),
    "extractive": refiner("extractive"),
    "tree": refiner("tree"),
}


def row(traces: Sequence[dict[str, Any]], shorten: Method, budget: int) -> list[float]:
    """Mean tokens; share of all, even and odd questions whose answer is there; median
    milliseconds.
    """
    tokens = []
    kept = []
    seconds = []
    for trace in traces:
        begun = time.process_time()
        texts = shorten(trace, budget)
        seconds.append(time.process_time() - begun)
        tokens.append(total_tokens(texts))
        kept.append(answer_accuracy("\n".join(texts), trace["references"]) or 0.0)
    shares = [statistics.fmean(some) for some in (kept, kept[::2], kept[1::2])]
    return [statistics.fmean(tokens), *shares, 1000 * statistics.median(seconds)]


def main() -> int:
    """Print a table for each set."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--questions", type=int, help="of each set, from its beginning")
    parser.add_argument("--budgets", type=int, nargs="+", default=[40, 60, 80, 120, 250, 2048])
    parser.add_argument("--check", action="store_true", help="fail below the best passages, cut")
    options = parser.parse_args()
    if not DATA.exists():
        print(f"no {DATA}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    limit = options.questions or (200 if options.check else 400)
    methods = CHECKED if options.check else METHODS
    is_lost = False
    print(
        f"{'set':10} {'method':12} {'budget':>6} {'tokens':>7} {'answers kept':>12} {'even':>6} {'odd':>6} {'ms':>7}"
    )
    for name, file, similarity in SETS:
        paragraphs, questions = read(DATA / file)
        docs = Document()
        docs.add_texts({f"{number:05d}.txt": text for number, text in enumerate(paragraphs)})
        retriever = RetrieveOperator(Retriever(docs, GROUP, similarity), topk=5)
        traces = [retriever.execute(one) for one in questions[:limit]]
        rows = [("-", "-", row(traces, lambda trace, _: trace["retrieval_docs"], 0))]
        for budget in options.budgets:
            figures = {method: row(traces, run, budget) for method, run in methods.items()}
            rows += [(method, str(budget), line) for method, line in figures.items()]
            halves = zip(figures["context"][2:4], figures["first"][2:4], strict=True)
            is_lost |= budget >= LEAST_BUDGET and any(refined < whole for refined, whole in halves)
        for method, budget_text, (tokens, kept, even, odd, took) in rows:
            shares = f"{kept:12.3f} {even:6.3f} {odd:6.3f}"
            print(f"{name:10} {method:12} {budget_text:>6} {tokens:7.0f} {shares} {took:7.2f}")
    if is_lost:
        print("a context keeps fewer answers than the best passages first, cut")
    return int(options.check and is_lost)


if __name__ == "__main__":
    sys.exit(main())
