"""Chinese questions with a Chinese embedding model: which search is best by default?

    python benchmarks/chinese.py [--sets xquad-zh ...]

XQuAD and CMRC 2018 in Chinese (each text is a node; recall@1 and nDCG@10) and the Chinese
documentation tree (chunks; file@1 and quote@5) are searched with the shared model
bge-small-zh-v1.5: by words, by meaning, by hybrids with several weights, and by the chain. The
figures are those of every second question; weights are chosen on the even half.

It needs the shared data beside the checkout; LAZYRAG_SHARED names another folder.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import documentation
import quality
import results

from lazyrag import (
    CachedEmbedder,
    Document,
    HybridRetriever,
    OnnxEmbedder,
    RetrievalChain,
    Retriever,
)
from lazyrag.evaluation import evaluate
from tests.judged import judged_set
from tests.shared import SHARED

SETS = ("xquad-zh", "cmrc-zh", "md-zh")
MODEL = "bge-small-zh-v1.5"
TOPK = 10
FIGURES = ("recall@1", "nDCG@10")
WEIGHTS = (0.3, 0.4, 0.5, 0.6, 0.7)
"""Of the vectors; 0.6 is the default."""


def systems(docs: Document, group: str) -> Mapping[str, quality.Ask]:
    """The searches that are compared."""
    words = Retriever(docs, group, "bm25_chinese", topk=TOPK)
    vectors = Retriever(docs, group, topk=TOPK)
    hybrids = {
        f"hybrid, vectors {weight}": HybridRetriever(
            vectors,
            words,
            fusion_method="weighted",
            weights=[weight, 1 - weight],
            normalise="max",
            topk=TOPK,
            depth=100,
        )
        for weight in WEIGHTS
    }
    return {
        "bm25_chinese": words,
        "vector": vectors,
        "hybrid (default)": HybridRetriever.over(docs, group, topk=TOPK),
        **hybrids,
        "chain": RetrievalChain.over(docs, group, topk=TOPK),
    }


def measured(name: str, ask: quality.Ask) -> list[dict[str, float]]:
    """The figures of each question of a set."""
    if name in documentation.SETS:
        questions = documentation.questions_of(name)
        rows = [documentation.row(ask, [question]) for question in questions]
        return [{figure: row[figure] for figure in ("file@1", "quote@5")} for row in rows]
    questions = judged_set(name).questions
    judged = {number: grades for number, (_, grades) in enumerate(questions)}
    run, _ = quality.asked(ask, questions)
    values = evaluate(run, judged, FIGURES).values
    return [{figure: values[figure][number] for figure in FIGURES} for number in judged]


def mean_row(
    name: str, half: str, system: str, figures: Sequence[Mapping[str, float]]
) -> results.Row:
    """The means of some questions."""
    means = {
        figure: math.fsum(row[figure] for row in figures) / len(figures) for figure in figures[0]
    }
    return {"set": name, "half": half, "questions": len(figures), "system": system, **means}


def main() -> int:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    options = parser.parse_args()
    (results.FOLDER / "cache").mkdir(parents=True, exist_ok=True)
    onnx = OnnxEmbedder(
        SHARED / "models" / MODEL,
        pooling="cls",
        query_prefix="为这个句子生成表示以用于检索相关文章：",
        document_prefix="",
        max_tokens=512,
    )
    embedder = CachedEmbedder(onnx, results.FOLDER / "cache" / "chinese.db")
    for name in options.sets:
        rows: list[results.Row] = []
        with quality.opened_set(name, embedder) as (docs, group):
            for system, ask in systems(docs, group).items():
                figures = measured(name, ask)
                rows.append(mean_row(name, "even", system, figures[::2]))
                rows.append(mean_row(name, "odd", system, figures[1::2]))
        print(results.table(rows, list(rows[0])), flush=True)
        results.save(f"chinese-{name}", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
