"""How many answers stay where retrieved texts are refined: XQuAD in English and Chinese, through
the operators.

    python benchmarks/refine.py [--questions 400] [--budgets 40 60 80 250 2048]

Each paragraph is one file; five nodes of CoarseChunk are retrieved by words and refined to a budget
of "utf8" tokens. Printed are the tokens that are left, the share of the questions one of whose
right answers stands in what is left (of all, and of the even and odd ones: settings are chosen on
the even ones), and milliseconds a question for refining. No model takes part. It reads the shared
data beside the checkout; LAZYRAG_SHARED names another folder.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lazyrag import Document, Retriever
from lazyrag.evaluation import answer_accuracy
from lazyrag.evaluation.answers import total_tokens
from lazyrag.operators import RefinerOperator, RetrieveOperator
from tests.shared import SHARED

XQUAD = SHARED / "data" / "retrieval" / "xquad"
SETS = (("XQuAD en", "xquad.en.json", "bm25"), ("XQuAD zh", "xquad.zh.json", "bm25_chinese"))
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


def row(traces: list[Any], stage: str) -> tuple[float, float, float, float, float]:
    """Mean tokens; share of all, even and odd questions whose answer is there; median
    milliseconds.
    """
    docs = [trace[f"{stage}_docs"] for trace in traces]
    tokens = statistics.fmean(total_tokens(texts) for texts in docs)
    kept = [
        answer_accuracy("\n".join(texts), trace["references"]) or 0.0
        for texts, trace in zip(docs, traces, strict=True)
    ]
    shares = [statistics.fmean(some) for some in (kept, kept[::2], kept[1::2])]
    return tokens, *shares, 1000 * statistics.median(trace[f"{stage}_time"] for trace in traces)


def main() -> int:
    """Print a table for each set."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--questions", type=int, default=400, help="of each set, from its beginning"
    )
    parser.add_argument("--budgets", type=int, nargs="+", default=[40, 60, 80, 250, 2048])
    options = parser.parse_args()
    if not XQUAD.exists():
        print(f"no {XQUAD}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    print(
        f"{'set':10} {'refiner':12} {'budget':>6} {'tokens':>7} {'answers kept':>12} {'even':>6} {'odd':>6} {'ms':>7}"
    )
    for name, file, similarity in SETS:
        paragraphs, questions = read(XQUAD / file)
        docs = Document()
        docs.add_texts({f"{number:05d}.txt": text for number, text in enumerate(paragraphs)})
        retriever = RetrieveOperator(Retriever(docs, GROUP, similarity), topk=5)
        retriever.execute(questions[0])  # the group and its index are made
        found = [retriever.execute(one) for one in questions[: options.questions]]
        lines = [("-", "-", *row(found, "retrieval"))]
        for budget in options.budgets:
            for refiner in ("extractive", "tree"):
                operator = RefinerOperator(refiner, budget=budget)
                lines.append(
                    (
                        refiner,
                        str(budget),
                        *row([operator.execute(one) for one in found], "refining"),
                    )
                )
        for refiner, limit, tokens, kept, even, odd, took in lines:
            shares = f"{kept:12.3f} {even:6.3f} {odd:6.3f}"
            print(f"{name:10} {refiner:12} {limit:>6} {tokens:7.0f} {shares} {took:7.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
