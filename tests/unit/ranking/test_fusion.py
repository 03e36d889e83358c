"""Fusing rankings, and bringing scores to one range."""

from __future__ import annotations

import copy
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import register_fusion
from lazyrag.errors import (
    AlreadyRegisteredError,
    ConfigError,
    NotRegisteredError,
    RetrievalError,
    UnknownKeywordError,
)
from lazyrag.ranking.fusion import (
    NORMALISATIONS,
    best_first,
    fusions,
    min_max,
    normalised,
    rrf,
    weighted,
)

VECTOR = [("doc1", 0.9), ("doc3", 0.8), ("doc2", 0.7)]
BM25 = [("doc2", 12.0), ("doc1", 7.5), ("doc4", 3.0)]

_uids = st.sampled_from("abcdefgh")
_rankings = st.lists(
    st.lists(
        st.tuples(_uids, st.floats(-1e6, 1e6)), max_size=8, unique_by=lambda item: item[0]
    ).map(lambda items: sorted(items, key=lambda item: (-item[1], item[0]))),
    max_size=4,
)


def test_rrf_on_spec_003s_example():
    """Spec 003's two rankings give doc1, doc2, doc3, doc4, with the scores that its formula
    gives.
    """
    fused = rrf([VECTOR, BM25])
    assert [uid for uid, _ in fused] == ["doc1", "doc2", "doc3", "doc4"]
    scores = dict(fused)
    assert scores["doc1"] == pytest.approx(1 / 61 + 1 / 62, rel=1e-15)
    assert round(scores["doc1"], 6) == 0.032522
    assert scores["doc2"] == pytest.approx(1 / 63 + 1 / 61, rel=1e-15)
    assert round(scores["doc2"], 6) == 0.032266
    assert scores["doc3"] == pytest.approx(1 / 62, rel=1e-15)
    assert scores["doc4"] == pytest.approx(1 / 63, rel=1e-15)


def test_rrf_with_another_constant():
    """A small k weighs the first rank more."""
    assert dict(rrf([VECTOR, BM25], k=1)) == pytest.approx(
        {"doc1": 1 / 2 + 1 / 3, "doc2": 1 / 4 + 1 / 2, "doc3": 1 / 3, "doc4": 1 / 4}
    )


@pytest.mark.parametrize("rankings", [[], [[]], [[], []]])
def test_rrf_of_nothing_is_nothing(rankings):
    """No ranking, or none with an entry, gives an empty one."""
    assert rrf(rankings) == []


def test_a_uid_named_twice_counts_at_its_better_rank():
    """A repetition neither adds to the score nor takes a rank away from those behind it."""
    assert rrf([[("a", 3.0), ("a", 2.0), ("b", 1.0)]]) == rrf([[("a", 3.0), ("b", 1.0)]])


@pytest.mark.parametrize("k", [0, -1, math.nan])
def test_rrf_needs_a_positive_constant(k):
    """The error shows the value and the usual one."""
    with pytest.raises(ConfigError, match="> 0, usually 60"):
        rrf([VECTOR], k=k)


@given(_rankings, st.integers(1, 100))
def test_rrf_scores_are_the_sum_of_reciprocal_ranks(rankings, k):
    """Compared with exact fractions: every uid once, best first, each score right to the last
    digits.
    """
    expected = {}
    for ranking in rankings:
        for rank, (uid, _) in enumerate(ranking, start=1):
            expected[uid] = expected.get(uid, 0) + Fraction(1, k + rank)
    fused = rrf(rankings, k=k)
    assert {uid: float(score) for uid, score in expected.items()} == pytest.approx(
        dict(fused), rel=1e-14
    )
    assert len(fused) == len(expected)
    assert [expected[uid] for uid, _ in fused] == sorted(expected.values(), reverse=True)


@given(_rankings.flatmap(lambda rankings: st.tuples(st.just(rankings), st.permutations(rankings))))
def test_the_order_of_the_rankings_does_not_count(both):
    """A sum has no order: the same rankings in another order give the same result, ties by uid
    included.
    """
    rankings, shuffled = both
    assert rrf(shuffled) == rrf(rankings)


def test_uids_with_the_same_ranks_tie():
    """Two uids with ranks 1, 1, 2 and 2, 1, 1 have equal scores, so the uid decides, not a
    rounding.
    """
    rankings = [
        [("b", 1.0), ("a", 0.0)],
        [("b", 1.0)],
        [("x", 1.0), ("b", 0.0)],
        [("a", 1.0)],
        [("a", 1.0)],
    ]
    fused = dict(rrf(rankings))
    assert fused["a"] == fused["b"]
    assert [uid for uid, _ in rrf(rankings)] == ["a", "b", "x"]


@given(_rankings)
def test_rrf_ignores_scores_and_leaves_its_input_alone(rankings):
    """Only ranks count, and the lists are as they were."""
    before = copy.deepcopy(rankings)
    fused = rrf(rankings)
    assert rankings == before
    assert rrf([[(uid, 0.0) for uid, _ in ranking] for ranking in rankings]) == fused


def test_weighted_on_spec_003s_rankings():
    """0.7 of the vectors' scores and 0.3 of BM25's, each brought to 0..1 first."""
    fused = weighted([VECTOR, BM25], weights=[0.7, 0.3])
    assert dict(fused) == pytest.approx(
        {"doc1": 0.7 + 0.3 * 0.5, "doc3": 0.35, "doc2": 0.3, "doc4": 0.0}
    )
    assert [uid for uid, _ in fused] == ["doc1", "doc3", "doc2", "doc4"]


def test_weights_are_divided_by_their_sum():
    """7 to 3 is the same as 0.7 to 0.3."""
    assert dict(weighted([VECTOR, BM25], weights=[7, 3])) == pytest.approx(
        dict(weighted([VECTOR, BM25], weights=[0.7, 0.3]))
    )


def test_weighted_without_normalising():
    """The scores are added as they are."""
    fused = weighted([[("a", 4.0), ("b", 2.0)], [("b", 10.0)]], weights=[1, 1], normalise=False)
    assert fused == [("b", 6.0), ("a", 2.0)]


def test_a_weight_of_zero_silences_a_ranking():
    """Its uids are there, at the end, with 0."""
    assert weighted([[("a", 2.0), ("b", 1.0)], [("c", 5.0)]], weights=[1, 0]) == [
        ("a", 1.0),
        ("b", 0.0),
        ("c", 0.0),
    ]


def test_weighted_counts_a_repeated_uid_once():
    """Of a uid that a ranking names twice only the first score counts, also for the range."""
    once = weighted([[("a", 4.0), ("b", 3.0), ("c", 2.0)]], weights=[1])
    assert weighted([[("a", 4.0), ("b", 3.0), ("c", 2.0), ("a", -9.0)]], weights=[1]) == once


def test_equal_sums_tie_whatever_their_order():
    """Under equal weights, 0.1 + 0.2 + 0.3 is 0.3 + 0.2 + 0.1: the uid decides."""
    rankings = [[("b", 0.1), ("a", 0.3)], [("b", 0.2), ("a", 0.2)], [("b", 0.3), ("a", 0.1)]]
    fused = weighted(rankings, weights=[1, 1, 1], normalise=False)
    assert fused[0][1] == fused[1][1]
    assert [uid for uid, _ in fused] == ["a", "b"]


@pytest.mark.parametrize(
    "weights", [[], [1.0], [1.0, 1.0, 1.0], [0, 0], [-1, 2], [math.nan, 1], [math.inf, 1]], ids=str
)
def test_weights_that_do_not_fit_are_refused(weights):
    """One finite number of at least 0 for each ranking, not all of them 0."""
    with pytest.raises(ConfigError, match="2 rankings"):
        weighted([VECTOR, BM25], weights=weights)


@given(_rankings, st.data())
def test_a_weighted_score_lies_between_0_and_1(rankings, data):
    """For any rankings and weights; the union of uids, best first, ties by uid; the input as it
    was.
    """
    weights = data.draw(
        st.lists(st.floats(0.1, 10), min_size=len(rankings), max_size=len(rankings))
    )
    if not rankings:
        return
    before = copy.deepcopy(rankings)
    fused = weighted(rankings, weights=weights)
    assert {uid for uid, _ in fused} == {uid for ranking in rankings for uid, _ in ranking}
    assert all(-1e-12 <= score <= 1 + 1e-12 for _, score in fused)
    assert fused == sorted(fused, key=lambda item: (-item[1], item[0]))
    assert rankings == before


@pytest.mark.parametrize(
    ("ranking", "expected"),
    [
        ([], []),
        ([("a", 5.0)], [("a", 1.0)]),
        ([("a", 5.0), ("b", 5.0)], [("a", 1.0), ("b", 1.0)]),
        ([("a", 3.0), ("b", -1.0), ("c", 1.0)], [("a", 1.0), ("b", 0.0), ("c", 0.5)]),
        ([("a", -2.0), ("b", -4.0)], [("a", 1.0), ("b", 0.0)]),
        ([("a", 1.7e308), ("b", 0.0), ("c", -1.7e308)], [("a", 1.0), ("b", 0.5), ("c", 0.0)]),
        ([("a", 5e-324), ("b", 0.0)], [("a", 1.0), ("b", 0.0)]),
    ],
)
def test_min_max_brings_scores_to_0_and_1(ranking, expected):
    """The best becomes 1, the worst 0; all 1 where they are equal; also at the ends of what floats
    hold.
    """
    assert min_max(ranking) == expected


@given(st.lists(st.tuples(_uids, st.floats(allow_nan=False, allow_infinity=False)), max_size=8))
def test_min_max_keeps_order_and_range(ranking):
    """Any finite scores: the same uids in the same places, what was not worse is not worse, all in
    0..1.
    """
    scaled = min_max(ranking)
    assert [uid for uid, _ in scaled] == [uid for uid, _ in ranking]
    assert all(0.0 <= score <= 1.0 for _, score in scaled)
    for (_, a), (_, fa) in zip(ranking, scaled, strict=True):
        for (_, b), (_, fb) in zip(ranking, scaled, strict=True):
            assert a < b or fa >= fb


def test_best_first_orders_by_score_then_uid():
    """Also where a score is negative or infinite."""
    scores = {"b": 1.0, "a": 1.0, "d": -math.inf, "c": 2.0, "e": -1.0}
    assert [uid for uid, _ in best_first(scores)] == ["c", "a", "b", "e", "d"]


def test_fusions_are_registered():
    """They can be chosen by name, and give what the functions of that name give."""
    assert list(fusions) == ["comb_max", "comb_mnz", "rrf", "weighted"]
    assert fusions["rrf"]([VECTOR, BM25], k=2) == rrf([VECTOR, BM25], k=2)
    assert fusions["weighted"]([VECTOR, BM25], weights=[3, 1]) == weighted(
        [VECTOR, BM25], weights=[3, 1]
    )


@pytest.mark.parametrize("score", [math.inf, -math.inf, math.nan])
def test_scores_without_a_range_are_refused(score):
    """No range holds an infinite score: bringing it to [0, 1] would leave nan behind, so it is
    refused.
    """
    with pytest.raises(ConfigError, match="must be finite numbers; got"):
        min_max([("a", score), ("b", 1.0)])
    with pytest.raises(ConfigError, match="must be finite numbers; got"):
        weighted([[("a", 2.0), ("b", score)], BM25], weights=[1.0, 1.0])


def test_rrf_with_weights():
    """A weight multiplies what its ranking adds; equal weights of 1 change nothing."""
    fused = dict(rrf([VECTOR, BM25], weights=[2, 0.5]))
    assert fused == pytest.approx(
        {"doc1": 2 / 61 + 0.5 / 62, "doc2": 2 / 63 + 0.5 / 61, "doc3": 2 / 62, "doc4": 0.5 / 63}
    )
    assert rrf([VECTOR, BM25], weights=[1, 1]) == rrf([VECTOR, BM25])
    with pytest.raises(ConfigError, match="3 rankings"):
        rrf([VECTOR, BM25, VECTOR], weights=[1, 1])


_options = st.fixed_dictionaries(
    {},
    optional={
        "weights": st.just([3, 1, 2]),
        "normalise": st.sampled_from(
            [*(set(NORMALISATIONS) - {"theoretical"}), True, False, ["max", "none", "z_score"]]
        ),
    },
)
_three = st.lists(
    st.lists(st.tuples(_uids, st.floats(-1e6, 1e6)), max_size=8).map(
        lambda items: sorted(items, key=lambda item: (-item[1], item[0]))
    ),
    min_size=3,
    max_size=3,
)


@given(st.sampled_from(sorted(fusions)), _three, _options)
def test_shares_add_up_to_the_score(name, rankings, options):
    """Of every built-in fusion, whatever its options: a share for each ranking, their exact sum is
    the score, and a ranking that does not have a uid adds 0. The result is the union of uids, best
    first, ties by uid.
    """
    if name == "rrf":
        options.pop("normalise", None)
    contributions = fusions[name].contributions(rankings, **options)
    fused = fusions[name](rankings, **options)
    assert {uid: math.fsum(parts) for uid, parts in contributions.items()} == dict(fused)
    assert {uid for uid, _ in fused} == {uid for ranking in rankings for uid, _ in ranking}
    assert fused == sorted(fused, key=lambda item: (-item[1], item[0]))
    for uid, parts in contributions.items():
        assert len(parts) == 3
        assert all(
            part == 0
            for part, ranking in zip(parts, rankings, strict=True)
            if uid not in dict(ranking)
        )


@given(_three, _options)
def test_comb_max_and_comb_mnz_are_made_of_what_weighted_adds(rankings, options):
    """With the weights as they are, CombMNZ is the sum times the number of rankings, CombMAX the
    largest part.
    """
    total = sum(options.get("weights", [1, 1, 1]))
    parts = {
        uid: [
            part * total
            for part, ranking in zip(parts, rankings, strict=True)
            if uid in dict(ranking)
        ]
        for uid, parts in fusions["weighted"].contributions(rankings, **options).items()
    }
    assert dict(fusions["comb_mnz"](rankings, **options)) == pytest.approx(
        {uid: sum(found) * len(found) for uid, found in parts.items()}
    )
    assert dict(fusions["comb_max"](rankings, **options)) == pytest.approx(
        {uid: max(found) for uid, found in parts.items()}
    )


def test_each_ranking_by_its_own_measure():
    """TM2C2: a cosine from -1, BM25 from 0, each up to the best one found."""
    cosines, bm25 = [("a", 0.5), ("b", 0.2)], [("b", 8.0), ("c", 2.0)]
    expected = {"a": 0.8, "b": 0.8 * 1.2 / 1.5 + 0.2, "c": 0.2 * 0.25}
    for how, lowest in (
        ("theoretical", [-1, 0]),
        (["theoretical", "max"], [-1, None]),
        (("theoretical", "max"), -1.0),
    ):
        fused = weighted([cosines, bm25], weights=[0.8, 0.2], normalise=how, lowest=lowest)
        assert dict(fused) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"normalise": "minmax"}, "Did you mean 'min_max'"),
        ({"normalise": ["min_max"]}, "of 2; got"),
        ({"normalise": None}, "of 2; got"),
        ({"normalise": ["min_max", None]}, "Unknown normalise None"),
        ({"normalise": "theoretical"}, "-1 for a cosine"),
        ({"normalise": "theoretical", "lowest": math.nan}, "lowest must be .*got nan"),
        ({"normalise": "theoretical", "lowest": [0.0]}, "of 2; got"),
        ({"normalise": "theoretical", "lowest": [0.0, None]}, "lowest must be .*got None"),
        ({"lowest": 0.0}, "lowest goes with"),
        ({"normalise": ["theoretical", "max"], "lowest": [-1, 0]}, "lowest goes with"),
        ({"weights": ["1", 2]}, "one number >= 0 for each"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, told):
    """By all fusions of scores, and before there is anything to fuse."""
    for name in ("weighted", "comb_mnz", "comb_max"):
        with pytest.raises(ConfigError, match=told):
            fusions[name]([[], []], **options)


def test_keywords_are_checked_by_name():
    """A misspelt keyword names the nearest one before anything is fused."""
    fusions["weighted"].check_kwargs({"weights": [1, 2], "normalise": "max"})
    with pytest.raises(
        UnknownKeywordError,
        match=r"fusion 'weighted' takes no keyword 'weight'.*Did you mean 'weights'",
    ):
        fusions["weighted"].check_kwargs({"weight": [1, 2]})
    with pytest.raises(NotRegisteredError, match="Did you mean 'weighted'"):
        fusions["weighed"]


NUMBERS = [("a", 4.0), ("b", 3.0), ("c", 2.0), ("d", 1.0)]
SIGMA = math.sqrt(1.25)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("min_max", [1, 2 / 3, 1 / 3, 0]),
        ("max", [1, 0.75, 0.5, 0.25]),
        ("z_score", [3 / SIGMA, 2 / SIGMA, 1 / SIGMA, 0]),
        ("distribution", [(offset + 3 * SIGMA) / (6 * SIGMA) for offset in (1.5, 0.5, -0.5, -1.5)]),
        ("none", [4, 3, 2, 1]),
    ],
)
def test_normalisations(how, expected):
    """By hand, for 4, 3, 2, 1; the order of the uids stays, and so does the input."""
    before = list(NUMBERS)
    assert [score for _, score in normalised(NUMBERS, how)] == pytest.approx(expected)
    assert [uid for uid, _ in normalised(NUMBERS, how)] == list("abcd")
    assert before == NUMBERS


def test_a_measures_lowest_score():
    """It becomes 0, what is below it too, the best becomes 1; where all are the lowest, all are
    0.
    """
    found = normalised([("a", 0.6), ("b", -0.2), ("c", -1.0), ("d", -1.5)], "theoretical", -1)
    assert [score for _, score in found] == pytest.approx([1, 0.5, 0, 0])
    assert normalised([("a", -1.0), ("b", -1.0)], "theoretical", -1) == [("a", 0.0), ("b", 0.0)]
    assert normalised([("a", 0.0)], "max") == [("a", 0.0)]
    assert normalised([("a", -3.0)], "max") == [("a", 1.0)]  # below it: min-max
    [(_, best), (_, worst)] = normalised([("a", 1.7e308), ("b", 0.0)], "theoretical", -1.7e308)
    assert (best, worst) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("how", "expected"),
    [("min_max", 1), ("max", 1), ("z_score", 0), ("distribution", 0.5), ("none", 0.1)],
)
@pytest.mark.parametrize("count", [1, 3])
def test_equal_scores(how, expected, count):
    """What they become is as it is written, although the mean of three times 0.1 is not 0.1."""
    assert [score for _, score in normalised([(uid, 0.1) for uid in "abc"[:count]], how)] == [
        expected
    ] * count


@given(
    st.lists(st.tuples(_uids, st.floats(allow_nan=False, allow_infinity=False)), max_size=8),
    st.sampled_from(NORMALISATIONS),
)
def test_a_normalisation_keeps_the_order(ranking, how):
    """Any finite scores, also at the ends of what floats hold: what was not worse is not worse, and
    none is below 0 where 0 stands for the worst.
    """
    lowest = min((score for _, score in ranking), default=0.0) if how == "theoretical" else None
    scaled = normalised(ranking, how, lowest)
    assert [uid for uid, _ in scaled] == [uid for uid, _ in ranking]
    assert all(math.isfinite(score) for _, score in scaled)
    if how in {"min_max", "theoretical", "max", "z_score"}:
        assert all(score >= 0 for _, score in scaled)
    for (_, a), (_, fa) in zip(ranking, scaled, strict=True):
        for (_, b), (_, fb) in zip(ranking, scaled, strict=True):
            assert a < b or fa >= fb


@pytest.mark.sample(3)
@pytest.mark.parametrize("how", sorted(set(NORMALISATIONS) - {"theoretical"}))
@pytest.mark.parametrize("score", [math.inf, -math.inf, math.nan])
def test_no_normalisation_takes_what_is_not_finite(how, score):
    """Also where scores stay as they are: an infinite part hides all the others."""
    with pytest.raises(ConfigError, match="must be finite numbers; got"):
        normalised([("a", score), ("b", 1.0)], how)


def test_a_fusion_of_ones_own():
    """It is entered by its name, gets each uid once, and its ranking is that of the sums."""
    with fusions.isolated():

        @register_fusion
        def borda(rankings, *, points=10):
            return {
                uid: [
                    max(points - [one for one, _ in ranking].index(uid), 0)
                    if uid in dict(ranking)
                    else 0
                    for ranking in rankings
                ]
                for ranking in rankings
                for uid, _ in ranking
            }

        assert borda([VECTOR])["doc1"] == [10]  # the function is what it was
        twice = [*VECTOR, ("doc1", 0.1)]
        assert fusions["borda"]([twice, BM25], points=3) == [
            ("doc1", 5.0),
            ("doc2", 4.0),
            ("doc3", 2.0),
            ("doc4", 1.0),
        ]
        assert fusions["borda"].contributions([twice, BM25], points=3)["doc2"] == (1.0, 3.0)
        with pytest.raises(AlreadyRegisteredError, match="'rrf' is registered already"):
            register_fusion(borda, name="rrf")
        with pytest.raises(ConfigError, match="give a function"):
            register_fusion("borda")
    with pytest.raises(NotRegisteredError):
        fusions["borda"]


@pytest.mark.parametrize(
    "returned",
    [
        None,
        [("a", 1.0)],
        {"a": 1.0},
        {"a": [1.0]},
        {"a": [1.0, "x"]},
        {"a": [1.0, math.nan]},
        {"a": [math.inf, 0.0]},
    ],
)
def test_what_is_no_share_is_refused(returned):
    """The error names the fusion and says what it must return."""
    with fusions.isolated():
        register_fusion(lambda rankings: returned, name="broken")
        with pytest.raises(
            RetrievalError,
            match=r"fusion 'broken' returned .* for 2 rankings; it must return a dict",
        ):
            fusions["broken"]([VECTOR, BM25])


def test_a_fusion_that_raises_is_named():
    """The error of a user's function says whose it is; one of ours stays what it is."""
    with fusions.isolated():
        register_fusion(lambda rankings: rankings[5], name="broken")
        with pytest.raises(RetrievalError, match="fusion 'broken' raised IndexError") as caught:
            fusions["broken"]([VECTOR, BM25])
    assert isinstance(caught.value.__cause__, IndexError)


@pytest.mark.parametrize("k", ["60", None, [60], True])
def test_a_rank_constant_of_another_kind_is_refused(k):
    """The error says what was given and what is needed, as for a number out of range."""
    with pytest.raises(ConfigError, match=r"k must be a finite number > 0"):
        rrf([VECTOR, BM25], k=k)


@pytest.mark.parametrize("weights", [3, "ab", {"a": 1}, [1, "2"], [1, None]])
def test_weights_of_another_kind_are_refused(weights):
    """One number, a text, a mapping: weights are a list of numbers."""
    for fuse in (rrf, weighted, fusions["comb_mnz"], fusions["comb_max"]):
        with pytest.raises(
            ConfigError, match=r"weights must be one number >= 0 for each of 2 rankings"
        ):
            fuse([VECTOR, BM25], weights=weights)


def test_weights_of_numpy():
    """An array is as good as a list."""
    assert rrf([VECTOR, BM25], weights=np.array([2.0, 1.0])) == rrf([VECTOR, BM25], weights=[2, 1])


@pytest.mark.sample(3)
@pytest.mark.parametrize("how", NORMALISATIONS)
@pytest.mark.parametrize("score", [None, "0.5", [1]])
def test_a_score_that_is_no_number_is_refused(how, score):
    """With its uid, and the way out; ranks alone need no score."""
    lowest = 0.0 if how == "theoretical" else None
    with pytest.raises(ConfigError, match=r"finite numbers.* for 'b'.*rrf"):
        weighted([[("a", 1.0), ("b", score)]], normalise=how, lowest=lowest)
    assert [uid for uid, _ in rrf([[("a", 1.0), ("b", score)]])] == ["a", "b"]


@pytest.mark.parametrize("name", ["rrf", "weighted", "comb_mnz", "comb_max"])
def test_built_in_fusions_take_empty_rankings(name):
    """None, one or all: what has nothing adds nothing, and no agreement."""
    fusion = fusions[name]
    assert fusion([[], []]) == []
    assert fusion([[("a", 2.0), ("b", 1.0)], []]) == fusion(
        [[("a", 2.0), ("b", 1.0)], []], weights=[1, 1]
    )
    assert all(parts[1] == 0 for parts in fusion.contributions([[("a", 2.0)], []]).values())


@given(_rankings, st.integers(1, 8), st.sampled_from(["max", "min_max", "none", "theoretical"]))
def test_what_a_cut_ranking_lacks_counts_as_its_last(rankings, depth, normalise):
    """A ranking of the depth or longer adds the least of its shares to what it lacks; a shorter one
    adds 0.
    """
    keywords = {"normalise": normalise, **({"lowest": -1e6} if normalise == "theoretical" else {})}
    plain = fusions["weighted"].contributions(rankings, **keywords)
    cut = fusions["weighted"].contributions(rankings, depth=depth, **keywords)
    assert plain.keys() == cut.keys()
    for at, ranking in enumerate(rankings):
        named = {uid for uid, _ in ranking}
        least = (
            min((plain[uid][at] for uid in named), default=0.0) if len(ranking) >= depth else 0.0
        )
        assert all(cut[uid][at] == (plain[uid][at] if uid in named else least) for uid in cut)


@pytest.mark.parametrize("depth", [0, -1, 1.5, True])
def test_a_depth_is_a_whole_number(depth):
    """Of at least 1."""
    with pytest.raises(ConfigError, match="depth"):
        weighted([VECTOR, BM25], depth=depth)


@pytest.mark.parametrize("lowest", ["0", [0, "1"], [None, 0], [[0], 0]])
def test_a_lowest_score_of_another_kind_is_refused(lowest):
    """A number for each ranking."""
    with pytest.raises(ConfigError, match="lowest"):
        weighted([VECTOR, BM25], normalise="theoretical", lowest=lowest)
