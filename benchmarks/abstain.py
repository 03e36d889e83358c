"""Does a library answer a question? Questions whose document is in the library, and the same ones
without it.

    python benchmarks/abstain.py [--only xquad-en ...]

The sets are those of benchmarks/answers.py. For each question the six best chunks of keyword search
are judged by `lazyrag.generation.answerable.answerable`: once of the complete library, once without
the files that answer it (for XQuAD all paragraphs of the article, so that other topics remain; for
the documentation trees the page and those that answer as well: pages of the same subject remain).
"other" asks the questions of the library of another set.

- auc: chance that a question of a library that answers it gets the higher probability; 0.5 is
  chance. The weights are fitted on the even questions; what is
  compared was chosen with the figures of both halves in view.
- refused@p, caught@p: share of the answered questions, and of the others, below the probability p.

It needs the shared data beside the checkout; LAZYRAG_SHARED names another folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import answers
import results

from lazyrag import DocNode, Document, Retriever
from lazyrag.generation.answerable import answerable
from tests.shared import SHARED

DEPTH = 60
THRESHOLDS = (0.1, 0.25, 0.3, 0.5)
OTHER = {
    "xquad-en": "md-en",
    "xquad-zh": "md-zh",
    "cmrc-zh": "md-zh",
    "md-en": "rst-en",
    "rst-en": "md-en",
    "md-zh": "xquad-zh",
}
COLUMNS = (
    "set",
    "without",
    "half",
    "questions",
    "auc",
    *(f"{share}@{p}" for p in THRESHOLDS for share in ("refused", "caught")),
)


def auc(answered: Sequence[float], others: Sequence[float]) -> float:
    """Chance that one of the first is above one of the others; ties count half.

    Example:
        >>> auc([0.9, 0.4], [0.4, 0.1])
        0.875
    """
    differences = np.subtract.outer(np.array(answered), np.array(others))
    return float(((differences > 0) + 0.5 * (differences == 0)).mean())


def probability(question: str, nodes: Sequence[DocNode]) -> float:
    """The probability that the library of some chunks answers a question."""
    best = nodes[: answers.TOPK]
    return answerable(question, [node.text for node in best], [node.path for node in best])


def rows_of(name: str) -> list[results.Row]:
    """Lines for each half of a set, and for another library."""
    docs, questions = answers.library(name)
    search = Retriever(docs, Document.MediumChunk, similarity="bm25_chinese", topk=DEPTH)
    elsewhere = None
    if name in OTHER:
        others_docs, _ = answers.library(OTHER[name])
        elsewhere = Retriever(others_docs, Document.MediumChunk, similarity="bm25_chinese")
    answered: list[float] = []
    others: dict[str, list[float]] = {"its file": []}
    for judged in questions:
        nodes = search(judged.question)
        answered.append(probability(judged.question, nodes))
        remaining = [node for node in nodes if node.path not in judged.files]
        others["its file"].append(probability(judged.question, remaining))
        if elsewhere is not None:
            nodes = elsewhere(judged.question, topk=answers.TOPK)
            others.setdefault("other", []).append(probability(judged.question, nodes))
    rows: list[results.Row] = []
    for without, values in others.items():
        for half, first in (("even", 0), ("odd", 1)):
            some = answered[first::2]
            rest = values[first::2]
            row: results.Row = {"set": name, "without": without, "half": half}
            row |= {"questions": len(some), "auc": auc(some, rest)}
            for limit in THRESHOLDS:
                row[f"refused@{limit}"] = float(np.mean(np.array(some) < limit))
                row[f"caught@{limit}"] = float(np.mean(np.array(rest) < limit))
            rows.append(row)
    return rows


def main() -> int:
    """Measure, print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=answers.SETS, choices=answers.SETS)
    options = parser.parse_args()
    if not SHARED.exists():
        print(f"no {SHARED}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    rows: list[results.Row] = []
    for name in options.only:
        rows += rows_of(name)
    print(results.table(rows, COLUMNS))
    print(results.save("abstain", rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
