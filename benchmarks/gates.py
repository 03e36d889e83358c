"""Whether a rule by the scores of a question gains by feedback or other weights: chosen on one half
of the questions.

    python benchmarks/gates.py [--sets cranfield xquad-en md-en rst-en]

Each question is asked by the default hybrid, with feedback of one or two nodes
(`FeedbackRetriever`), and with other weights of vector search. A rule decides by one signal, above
or below a bound, which of two of these answers the question. The rule whose even questions of
Cranfield and XQuAD gain the most is reported on the odd ones, for feedback and for weights; of the
trees, with 15 questions a half, it is only reported. The gain is the mean over the sets of the
difference from the default, each set's over all its measures; a rule by which a set loses more than
.002 on its even half is no candidate.

Signals: the gap of a list, which is 1 - second score / first score, of the hybrid, of vector and of
keyword search; the cosine of the first node; the share of nodes among the first ten that both lists
have; whether both have the same first.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import documentation
import results
from quality import FIRST, TOPK, default, opened_set
from results import Row

from lazyrag import CachedEmbedder, DocNode, HybridRetriever, OnnxEmbedder, Retriever
from lazyrag.evaluation import evaluate
from lazyrag.retrieval import FeedbackRetriever
from tests.judged import SETS, judged_set
from tests.shared import SHARED

FIGURES = ("recall@1", "recall@5", "nDCG@10")
SHARES = (0.3, 0.45, 0.75, 0.9)
FED = (1, 2)
LEAST = -0.002
QUANTILES = np.linspace(0.1, 0.9, 9)


def gap(nodes: Sequence[DocNode]) -> float:
    """How much better the first node's score is than the second's."""
    if len(nodes) < 2 or not nodes[0].score:
        return 1.0
    return 1 - (nodes[1].score or 0.0) / nodes[0].score


def signals(
    hybrid: Sequence[DocNode], vector: Sequence[DocNode], keyword: Sequence[DocNode]
) -> dict[str, float]:
    """What a rule may look at."""
    both = {node.uid for node in vector[:TOPK]} & {node.uid for node in keyword[:TOPK]}
    return {
        "gap of the hybrid": gap(hybrid),
        "gap of vector search": gap(vector),
        "gap of keyword search": gap(keyword),
        "first cosine": vector[0].score or 0.0,
        "shared nodes": len(both) / TOPK,
        "same first node": float(bool(keyword) and vector[0].uid == keyword[0].uid),
    }


def asked(name: str, embedder: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The signals of each question of a set; and by way of searching the measures of each."""
    is_tree = name in documentation.SETS
    with opened_set(name, embedder) as (docs, group):
        topk = FIRST if is_tree else TOPK
        hybrid = HybridRetriever.over(docs, group, topk=topk) if is_tree else default(docs)
        vector, keyword = (
            Retriever(docs, group, topk=TOPK),
            Retriever(docs, group, "bm25_chinese", topk=TOPK),
        )
        ways: dict[str, Any] = {"default": hybrid}
        ways |= {f"feedback {nodes}": FeedbackRetriever(hybrid, nodes=nodes) for nodes in FED}
        for share in SHARES:
            ways[f"vector {share}"] = lambda query, share=share: hybrid(
                query, weights=[share, 1 - share]
            )
        questions: Any = documentation.questions_of(name) if is_tree else judged_set(name).questions
        texts = [one["question"] if is_tree else one[0] for one in questions]
        seen = [signals(hybrid(text), vector(text), keyword(text)) for text in texts]
        found: dict[str, Any] = {}
        for way, ask in ways.items():
            if is_tree:
                rows = [documentation.row(ask, [one]) for one in questions]
                found[way] = {one: np.array([row[one] for row in rows]) for one in rows[0]}
            else:
                run = {
                    at: [(str(node.path), node.score or 0.0) for node in ask(text)]
                    for at, text in enumerate(texts)
                }
                values = evaluate(
                    run, {at: grades for at, (_, grades) in enumerate(questions)}, FIGURES
                ).values
                found[way] = {one: np.array([values[one][at] for at in run]) for one in FIGURES}
            print(
                name,
                way,
                {one: round(float(of.mean()), 4) for one, of in found[way].items()},
                flush=True,
            )
    return {one: np.array([each[one] for each in seen]) for one in seen[0]}, found


def decided(
    way: str, signal: str, bound: float, *, below: bool, sets: Mapping[str, Any]
) -> dict[str, Any]:
    """By set, the differences from the default of each question where a rule decides between it and
    a way.
    """
    differences = {}
    for name, (seen, found) in sets.items():
        applies = (seen[signal] <= bound) if below else (seen[signal] > bound)
        differences[name] = {
            one: np.where(applies, found[way][one] - found["default"][one], 0.0)
            for one in found["default"]
        }
    return differences


def gains(differences: Mapping[str, Any], half: int) -> dict[str, float]:
    """By set, the mean gain of a half over all measures."""
    return {
        name: float(np.mean([of[half::2].mean() for of in own.values()]))
        for name, own in differences.items()
    }


def best_rule(ways: Sequence[str], sets: Mapping[str, Any]) -> tuple[str, str, float, bool] | None:
    """The rule that gains the most on the even halves, without a set that loses there."""
    rules = []
    sets = {name: own for name, own in sets.items() if name in SETS} or sets
    for way in ways:
        for signal in next(iter(sets.values()))[0]:
            values = np.concatenate([seen[signal] for seen, _ in sets.values()])
            for bound in np.unique(np.quantile(values, QUANTILES)):
                for below in (True, False):
                    even = gains(decided(way, signal, bound, below=below, sets=sets), 0)
                    if min(even.values()) >= LEAST:
                        rules.append(
                            (float(np.mean([*even.values()])), (way, signal, float(bound), below))
                        )
    return max(rules)[1] if rules else None


def main() -> int:
    """Measure, choose and save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    # the model knows English alone
    every = [name for name in (*SETS, *documentation.SETS) if "zh" not in name]
    parser.add_argument("--sets", nargs="+", choices=every, default=every)
    options = parser.parse_args()
    (results.FOLDER / "cache").mkdir(parents=True, exist_ok=True)
    onnx = OnnxEmbedder(SHARED / "models" / "all-minilm-l6-v2")
    embedder = CachedEmbedder(onnx, results.FOLDER / "cache" / "quality.db")
    sets = {name: asked(name, embedder) for name in options.sets}
    rows: list[Row] = []
    for choice, ways in (
        ("feedback", [f"feedback {nodes}" for nodes in FED]),
        ("weights", [f"vector {share}" for share in SHARES]),
    ):
        rule = best_rule(ways, sets)
        if rule is None:
            print(f"{choice}: no rule without a set that loses on its even half")
            continue
        way, signal, bound, below = rule
        differences = decided(way, signal, bound, below=below, sets=sets)
        label = f"{way} where {signal} is {'at most' if below else 'above'} {bound:.3f}"
        for name, own in differences.items():
            for one, of in own.items():
                always = sets[name][1][way][one] - sets[name][1]["default"][one]
                row: Row = {"choice": choice, "rule": label, "set": name, "measure": one}
                row |= {"even": float(of[::2].mean()), "odd": float(of[1::2].mean())}
                row |= {
                    "always_even": float(always[::2].mean()),
                    "always_odd": float(always[1::2].mean()),
                }
                rows.append(row)
        print(results.table(rows, list(rows[0])), flush=True)
    results.save("gates", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
