"""Comparisons of two configurations by golden questions: ranks, one test for interval and p, a verdict in words."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import lazyrag.server.routes_answers as answers
from lazyrag.evaluation.golden import GoldenQuestion, JudgedQuestion, has_answer, judge
from lazyrag.server.problems import ProblemError
from lazyrag.server.routes_search import Scope, SearchOptions

DEPTH, FEW, LIKELY = 10, 20, 0.05
MEASURES: dict[str, Callable[[int], float]] = {
    "mrr": lambda rank: 1 / rank,
    "first5": lambda rank: float(rank <= 5),
    "first": lambda rank: float(rank == 1),
}
"""From the rank of the first right passage; the first one decides."""
_DRAWS, _EXACT = 10_000, 12


def compared_ranks(scope: Scope, book: answers.Notebook, options: Sequence[SearchOptions]) -> dict[str, Any]:
    """Run the golden questions of a set with some configurations: their ranks, and the time.

    Raises:
        ProblemError: 409 if there are none, or too many.
    """
    stored = book.records(scope, "golden")
    if not 1 <= len(stored) <= answers.MAX_GOLDEN:
        detail = f"There are {len(stored)} golden questions; an evaluation takes 1 to {answers.MAX_GOLDEN}."
        raise ProblemError(409, detail, "Add or delete some.")
    golden, began = answers.golden_of(stored), time.perf_counter()
    reports = [judge(golden, scope.docs, scope.retriever(one)) for one in options]
    rows = []
    for own, question, *judged in zip(stored, golden.questions, *(one.questions for one in reports), strict=True):
        expected = [*own["texts"], *own["references"]]
        ranks = [rank_of(question, one) for one in judged]
        file = next((one["path"] for one in own["spans"]), "")
        rows.append({"question": own["question"], "expected": expected[:1], "file": file, "ranks": ranks})
    return {"rows": rows, "seconds": round(time.perf_counter() - began, 3)}


def rank_of(question: GoldenQuestion, judged: JudgedQuestion) -> int | None:
    """The rank of the first passage that answers a question; None if none of the first ten does."""
    if question.locations:
        reciprocal = judged.values.get(f"span_MRR@{DEPTH}", 0.0)
        return round(1 / reciprocal) if reciprocal else None
    for rank, hit in enumerate(judged.found[:DEPTH], start=1):
        if hit.id in question.ids or (question.references and has_answer([hit.text], question.references)):
            return rank
    return None


def sign_flip(differences: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """p of the paired randomisation test, and the interval of those differences that it does not reject.

    Both come from the same swaps, so that they never contradict each other.
    """
    values = np.asarray(differences, float)
    count, draws = len(values), _DRAWS
    if count <= _EXACT:
        draws = 2**count
        signs = 1 - 2.0 * (np.arange(draws)[:, None] >> np.arange(count) & 1)
    else:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (draws, count))
    swapped, shift, mean = signs @ values / count, signs.mean(axis=1), float(values.mean())
    extra = 0 if count <= _EXACT else 1

    def p(delta: float) -> float:
        as_large = np.abs(swapped - delta * shift) >= abs(mean - delta) - 1e-12
        return float(as_large.sum() + extra) / (draws + extra)

    def bound(outside: float) -> float:
        if p(outside) > 1 - level:
            return outside
        inside = mean
        for _ in range(30):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if p(middle) > 1 - level else (inside, middle)
        return inside

    return p(0.0), bound(-1.0), bound(1.0)


def described(run: Mapping[str, Any], show: str) -> dict[str, Any]:
    """What the page shows of a comparison: measures, a verdict, questions."""
    rows: list[dict[str, Any]] = [dict(one) for one in run["rows"]]
    measures: list[dict[str, Any]] = []
    for name, value in MEASURES.items():
        a, b = ([value(rank) if rank else 0.0 for rank in (one["ranks"][n] for one in rows)] for n in (0, 1))
        gaps = [two - one for one, two in zip(a, b, strict=True)]
        p, low, high = sign_flip(gaps)
        means = [sum(one) / len(rows) for one in (a, b)]
        difference = means[1] - means[0]
        state = "same" if not any(gaps) else "open" if p >= LIKELY else "better" if difference > 0 else "worse"
        measures.append({"name": name, "a": means[0], "b": means[1], "difference": difference, "low": low, "high": high,
                         "p": p, "state": state, "counts": [round(sum(one)) for one in (a, b)]})  # fmt: skip
    for row in rows:
        one, two = row["ranks"]
        row["change"] = (one or DEPTH + 1) - (two or DEPTH + 1)
    wins, losses = sum(one["change"] > 0 for one in rows), sum(one["change"] < 0 for one in rows)
    kinds = {
        "changed": [one for one in rows if one["change"]],
        "missed": [one for one in rows if not one["ranks"][1]],
        "all": rows,
    }
    state = measures[0]["state"]
    state = "few" if len(rows) < FEW and state != "same" else state
    verdict = {"state": state, "wins": wins, "losses": losses, "p": measures[0]["p"], "questions": len(rows),
               "thousand": max(1, round(1000 * measures[0]["p"])),
               "unsettled": [one for one in measures[1:] if one["state"] == "open"]}  # fmt: skip
    shown = sorted(kinds.get(show, kinds["changed"]), key=lambda one: -one["change"])
    return {"measures": measures, "verdict": verdict, "rows": shown, "tally": {k: len(v) for k, v in kinds.items()}}
