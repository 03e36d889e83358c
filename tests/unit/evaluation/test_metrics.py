"""Measures of rankings, held against ir_measures (trec_eval) and against numbers worked out by
hand.
"""

from __future__ import annotations

import math
import random

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.errors import ConfigError
from lazyrag.evaluation import (
    Measure,
    average_precision,
    evaluate,
    measure,
    ndcg,
    precision,
    recall,
    reciprocal_rank,
    success,
)
from tests.judged import judged_set

ORACLE = {
    "recall@1": ir_measures.R @ 1,
    "recall@5": ir_measures.R @ 5,
    "recall@10": ir_measures.R @ 10,
    "recall@1000": ir_measures.R @ 1000,
    "precision@1": ir_measures.P @ 1,
    "precision@10": ir_measures.P @ 10,
    "success@1": ir_measures.Success @ 1,
    "success@5": ir_measures.Success @ 5,
    "MRR": ir_measures.RR,
    "MRR@10": ir_measures.RR @ 10,
    "nDCG": ir_measures.nDCG,
    "nDCG@10": ir_measures.nDCG @ 10,
    "nDCG@3": ir_measures.nDCG @ 3,
    "MAP": ir_measures.AP,
    "MAP@10": ir_measures.AP @ 10,
}
"""Our names and the measures of ir_measures; it reads names by what Python 3.12 deprecates."""


def by_ir_measures(run, judgements):
    """What ir_measures says, by our names and by query. Its scores are places, so that it cannot
    break ties its way.
    """
    named = {str(theirs): ours for ours, theirs in ORACLE.items()}
    placed = {
        query: {uid: -float(position) for position, (uid, _) in enumerate(found)}
        for query, found in run.items()
    }
    values = {ours: {} for ours in ORACLE}
    for one in ir_measures.iter_calc(list(ORACLE.values()), judgements, placed):
        values[named[str(one.measure)]][one.query_id] = one.value
    return values


def assert_same(evaluation, expected):
    """Every value of every query to 1e-9."""
    for name, by_query in expected.items():
        assert dict(evaluation.values[name]) == pytest.approx(by_query, abs=1e-9), name


@pytest.mark.parametrize("seed", range(5))
def test_random_runs_are_measured_as_by_ir_measures(seed):
    """Grades from 0 to 3 and scores with ties; for some queries nothing was found, for one nothing
    is relevant, one was not asked.
    """
    rng = random.Random(seed)
    uids = [f"n{number:02}" for number in range(40)]
    judgements = {
        f"q{number}": {
            uid: rng.choice([0, 0, 1, 2, 3]) for uid in rng.sample(uids, rng.randint(1, 30))
        }
        for number in range(30)
    }
    judgements["nothing relevant"] = {"n01": 0}
    run = {
        query: sorted(
            ((uid, rng.randint(0, 5) / 5) for uid in rng.sample(uids, rng.randint(1, 40))),
            key=lambda item: (-item[1], item[0]),
        )
        for query in [*judgements, "never judged"]
        if query != "q7"
    }
    run["q8"] = []
    evaluation = evaluate(run, judgements, list(ORACLE))
    assert evaluation.missing == ("q7",)
    assert evaluation.unjudged == ("never judged",)
    expected = by_ir_measures(run, judgements)
    assert len(expected["MAP"]) == len(judgements) == 31
    assert_same(evaluation, expected)
    for name, mean in evaluation.means.items():
        assert mean == pytest.approx(sum(expected[name].values()) / 31, abs=1e-9)


@pytest.mark.parametrize("k", [1, 5, 10, None])
def test_exponential_gains_are_linear_ones_of_other_grades(k):
    """ir_measures has linear gains without other programs; given 2 ** grade - 1 as grades it says
    what ours says.
    """
    rng = random.Random(3)
    uids = [f"n{number:02}" for number in range(30)]
    judgements = {
        f"q{number}": {uid: rng.choice([0, 1, 2, 3, 4]) for uid in uids[:20]}
        for number in range(20)
    }
    run = {query: [(uid, 0.0) for uid in rng.sample(uids, 25)] for query in judgements}
    worth = {
        query: {uid: 2**grade - 1 for uid, grade in grades.items()}
        for query, grades in judgements.items()
    }
    name = "nDCG" if k is None else f"nDCG@{k}"
    placed = {
        query: {uid: -float(position) for position, (uid, _) in enumerate(found)}
        for query, found in run.items()
    }
    theirs = ir_measures.nDCG if k is None else ir_measures.nDCG @ k
    expected = {one.query_id: one.value for one in ir_measures.iter_calc([theirs], worth, placed)}
    ours = name.replace("nDCG", "nDCG_exp")
    found = evaluate(run, judgements, [ours]).values[ours]
    assert dict(found) == pytest.approx(expected, abs=1e-9)
    assert evaluate(run, judgements, [name]).means[name] != pytest.approx(
        sum(found.values()) / 20, abs=1e-3
    )


@pytest.mark.slow
@pytest.mark.shared
def test_cranfield_is_measured_as_by_ir_measures():
    """All 225 questions on the real judgements, ranked by word overlap: every value to 1e-9, and no
    trivial ones.
    """
    judged = judged_set("cranfield")
    texts = {name: {*text.lower().split()} for name, text in judged.texts.items()}
    judgements = {str(number): dict(grades) for number, (_, grades) in enumerate(judged.questions)}
    run = {}
    for number, (question, _) in enumerate(judged.questions):
        words = {*question.lower().split()}
        scored = [
            (name, len(words & there) / len(there) ** 0.5)
            for name, there in texts.items()
            if words & there
        ]
        run[str(number)] = sorted(scored, key=lambda item: (-item[1], item[0]))[:100]
    evaluation = evaluate(run, judgements, list(ORACLE))
    assert len(evaluation.values["MAP"]) == 225
    assert 0.1 < evaluation.means["nDCG@10"] < 0.5
    assert_same(evaluation, by_ir_measures(run, judgements))


GRADES = {"a": 2, "b": 0, "c": 1, "d": 3, "e": -1}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (recall("abc", GRADES), 2 / 3),
        (recall("abc", GRADES, 1), 1 / 3),
        (precision("abc", GRADES, 3), 2 / 3),
        (precision("abc", GRADES, 100), 2 / 100),
        (success("bxc", GRADES, 2), 0),
        (success("bxc", GRADES, 3), 1),
        (reciprocal_rank("bec", GRADES), 1 / 3),
        (reciprocal_rank("bec", GRADES, 2), 0),
        (average_precision("bac", GRADES), (1 / 2 + 2 / 3) / 3),
        (average_precision("bac", GRADES, 2), (1 / 2) / 3),
        (ndcg("ead", GRADES), (2 / math.log2(3) + 3 / 2) / (3 + 2 / math.log2(3) + 1 / 2)),
        (ndcg("ead", GRADES, 2), (2 / math.log2(3)) / (3 + 2 / math.log2(3))),
        (ndcg("dac", GRADES, 3), 1),
        (ndcg("a", GRADES, 1, gain="exponential"), 3 / 7),
    ],
)
def test_by_hand(value, expected):
    """A grade below 1 is not relevant, what was not judged neither; cuts count places, not hits."""
    assert value == pytest.approx(expected)


@pytest.mark.parametrize("function", [recall, success, reciprocal_rank, average_precision, ndcg])
def test_where_nothing_is_relevant_or_found_it_is_0(function):
    """Neither an error nor nan, as in trec_eval."""
    assert function(["a"], {}) == function(["a"], {"a": 0}) == function([], {"a": 1}) == 0.0
    assert function(["a"], {"a": 1}) == 1.0


@given(
    st.lists(st.sampled_from("abcdefgh"), unique=True),
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 3)),
)
def test_measures_lie_between_0_and_1(found, grades):
    """And more places never make recall, success, MRR or MAP less."""
    for name in ("recall", "success", "MRR", "MAP", "nDCG", "nDCG_exp", "precision"):
        values = [measure(f"{name}@{k}").func(found, grades) for k in range(1, 10)]
        assert all(0 <= value <= 1 + 1e-12 for value in values)
        if name in {"recall", "success", "MRR", "MAP"}:
            assert values == sorted(values)


def test_a_uid_named_twice_counts_once():
    """Chunks of one file, judged as the file: the first one counts, the others take no place."""
    run = {"q": [("a", 3.0), ("a", 2.0), ("b", 1.0), ("a", 0.5), ("c", 0.1)]}
    once = {"q": [("a", 3.0), ("b", 1.0), ("c", 0.1)]}
    judgements = {"q": {"b": 1, "c": 2}}
    names = ["recall@2", "MRR", "nDCG", "MAP", "precision@2"]
    assert evaluate(run, judgements, names) == evaluate(once, judgements, names)


def test_names_of_measures():
    """Upper and lower case are the same; the name says what was measured."""
    assert measure("NDCG@10").name == "nDCG@10"
    assert measure("hit@05").name == "hit@5"
    assert measure("mrr").name == "MRR"
    assert list(evaluate({}, {"q": {"a": 1}}).means) == [
        "recall@1",
        "recall@5",
        "recall@10",
        "MRR@10",
        "nDCG@10",
    ]


def test_a_measure_of_ones_own():
    """It stands beside the built-in ones under its name."""
    found = Measure("found", lambda found, grades: float(len(found)))
    evaluation = evaluate(
        {"q": [("a", 1.0), ("b", 0.5)]}, {"q": {"b": 1}, "r": {"c": 1}}, [found, "MRR"]
    )
    assert evaluation.means == {"found": 1.0, "MRR": 0.25}
    assert evaluation.missing == ("r",)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["recal@5"], "Did you mean 'recall'"),
        (["recall@0"], "such as recall@10"),
        (["recall@x"], "such as recall@10"),
        (["recall@"], "such as recall@10"),
        (["precision"], "such as precision@10"),
        (["MRR", "mrr"], "each measure once"),
        ([], "at least one of each"),
    ],
)
def test_measures_that_make_no_sense_are_refused(names, told):
    """The error shows what was given and what there is."""
    with pytest.raises(ConfigError, match=told):
        evaluate({}, {"q": {"a": 1}}, names)


def test_without_judgements_there_is_no_mean():
    """An empty set of judgements is an error, not nan."""
    with pytest.raises(ConfigError, match="0 judged queries"):
        evaluate({"q": [("a", 1.0)]}, {})


@pytest.mark.parametrize("k", [0, -1, 1.5, True])
def test_k_is_a_whole_number(k):
    """Of at least 1."""
    with pytest.raises(ConfigError, match=r"\bk\b"):
        recall(["a"], {"a": 1}, k)
    with pytest.raises(ConfigError, match="Unknown gain"):
        ndcg(["a"], {"a": 1}, 1, gain="quadratic")


@pytest.mark.parametrize(
    "ranking",
    [
        ["d1", "d2"],
        [["d1", "d2"]],
        [("d1", 1.0), "d2"],
        [("d1", 1.0, 2)],
        {"d1": 1.0},
        "d1",
        None,
        3,
        [("d1", "0.5")],
    ],
)
def test_rankings_are_pairs(ranking):
    """Uids alone, or a mapping, would be taken apart into something else and count 0: the error
    says what to give.
    """
    with pytest.raises(
        ConfigError, match=r"ranking of query 'q' must be a list \[\(uid, score\), \.\.\.\]"
    ):
        evaluate({"q": ranking}, {"q": {"d1": 1}})


def test_rankings_in_other_hands():
    """Pairs as lists, tuples of pairs, an iterator, scores of numpy or none are rankings as
    well.
    """
    for ranking in ([["d1", 1]], (("d1", np.float32(1)),), iter([("d1", None)])):
        assert evaluate({"q": ranking}, {"q": {"d1": 1}}, ["MRR"]).means == {"MRR": 1.0}


def test_runs_and_judgements_are_mappings():
    """Of queries; and grades by uid, not a list of what is relevant."""
    with pytest.raises(ConfigError, match=r"run must be a mapping \{query:"):
        evaluate([("d1", 1.0)], {"q": {"d1": 1}})
    for judgements in ([{"d1": 1}], {"q": ["d1"]}, None):
        with pytest.raises(ConfigError, match=r"query: \{uid: grade\}"):
            evaluate({"q": [("d1", 1.0)]}, judgements)
