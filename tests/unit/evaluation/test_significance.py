"""Tests of differences, held against plain enumeration and scipy's."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.errors import ConfigError
from lazyrag.evaluation import bootstrap_interval, compare, holm, randomisation_test
from lazyrag.evaluation.metrics import EXACT


def by_enumeration(old, new):
    """The share of all assignments of signs with a sum of at least the size seen, in exact
    fractions.
    """
    differences = [Fraction(new[query]) - Fraction(old[query]) for query in old]
    seen = abs(sum(differences))
    sums = [
        abs(sum(sign * one for sign, one in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    return sum(one >= seen for one in sums) / len(sums)


def by_query(values):
    """Values with names of queries."""
    return {f"q{number}": value for number, value in enumerate(values)}


def zeros(values):
    """A system that is always wrong."""
    return dict.fromkeys(by_query(values), 0.0)


_quarters = st.lists(st.integers(0, 4).map(lambda number: number / 4), min_size=1, max_size=8)


@given(_quarters.flatmap(lambda old: st.tuples(st.just(old), st.permutations(old))))
def test_few_queries_are_counted_out(both):
    """With eight queries and many ties p is the enumerated share, to the last digit."""
    old, new = map(by_query, both)
    tested = randomisation_test(old, new)
    assert tested.exact
    assert tested.p == by_enumeration(old, new)
    assert randomisation_test(new, old).p == tested.p
    assert randomisation_test(new, old).difference == -tested.difference


def test_roundings_do_not_part_equal_sums():
    """0.1 + 0.2 and 0.3 are the same size: thirds and tenths are counted as in exact numbers."""
    values = [0.1, 0.2, 0.3, 0.1, -0.2, 0.7]
    tested = randomisation_test(zeros(values), by_query(values))
    tenths = [round(value * 10) for value in values]
    assert tested.p == by_enumeration(zeros(tenths), by_query(tenths))


@pytest.mark.parametrize(("wins", "losses"), [(5, 0), (3, 2), (30, 10), (600, 540), (7, 7)])
def test_differences_of_one_size_are_a_sign_test(wins, losses):
    """Of recall@1 every difference is 1 or -1: p is the binomial's, for any number of queries."""
    values = [1.0] * wins + [-1.0] * losses + [0.0] * 100
    tested = randomisation_test(zeros(values), by_query(values))
    count = wins + losses
    reached = sum(
        math.comb(count, one)
        for one in range(count + 1)
        if abs(2 * one - count) >= abs(wins - losses)
    )
    assert tested.exact
    assert tested.p == pytest.approx(float(Fraction(reached, 2**count)), rel=1e-12)
    assert tested.difference == pytest.approx((wins - losses) / (count + 100))


@pytest.mark.slow
def test_scipy_says_the_same():
    """scipy's permutation test of paired samples, which enumerates twelve pairs."""
    from scipy import stats  # which takes a second to import, and longer to collect

    rng = np.random.default_rng(5)
    for shift in (0.0, 0.1, 0.3):
        old, new = rng.random(12), rng.random(12) + shift
        expected = stats.permutation_test(
            (old, new), lambda a, b: np.mean(b - a), permutation_type="samples", n_resamples=np.inf
        )
        tested = randomisation_test(by_query(old.tolist()), by_query(new.tolist()))
        assert tested.exact
        assert tested.p == pytest.approx(expected.pvalue, abs=1e-12)
        assert tested.difference == pytest.approx(expected.statistic)


def test_many_queries_are_drawn():
    """One more difference than is counted out: the drawn p is the exact one within four standard
    errors, and of the same seed the same.
    """
    rng = np.random.default_rng(11)
    values = rng.normal(0.25, 1.0, EXACT + 1).tolist()
    old, new = zeros(values), by_query(values)
    drawn = randomisation_test(old, new, rounds=40_000, seed=1)
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    exact = float((np.abs(sums) >= abs(sum(values)) - 1e-9).mean())
    assert 0.001 < exact < 0.999
    assert not drawn.exact
    assert drawn.p == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 40_000))
    assert drawn == randomisation_test(old, new, rounds=40_000, seed=1)
    assert drawn != randomisation_test(old, new, rounds=40_000, seed=2)


def test_a_drawn_p_is_never_0():
    """A hundred wins of different sizes: as small as the rounds allow."""
    values = [1 + number / 1000 for number in range(100)]
    tested = randomisation_test(zeros(values), by_query(values), rounds=999)
    assert tested.p == 1 / 1000


@pytest.mark.slow
def test_chance_is_found_as_often_as_it_should_be():
    """Of 400 pairs of equally good systems about 5 % have p <= 0.05: between 2 % and 8 %."""
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(400):
        old, new = by_query(rng.random(50).tolist()), by_query(rng.random(50).tolist())
        found += randomisation_test(old, new, rounds=500).p <= 0.05
    assert 8 <= found <= 32


def test_equal_systems_have_p_1():
    """No difference on any query: nothing to swap."""
    values = by_query([0.5, 0.25] * 4)
    found = compare(values, dict(values))
    assert (found.difference, found.p, found.low, found.high) == (0.0, 1.0, 0.0, 0.0)
    assert (found.wins, found.losses, found.ties) == (0, 0, 8)


def test_interval_and_p_never_contradict_each_other():
    """0 is in the interval exactly if p is above 5 %: over many differences, of few and many
    queries.
    """
    rng = np.random.default_rng(1)
    for count in (5, 9, 13, 21, 30, 60):
        for _ in range(8):
            values = rng.choice([-0.5, 0, 0, 0.5, 1.0], count) + rng.choice([0, 0, 0.1])
            found = compare(zeros(values), by_query(values.tolist()), rounds=2_000)
            assert (found.low <= 0 <= found.high) == (found.p > 0.05), (count, found)
            assert found.low <= found.difference <= found.high


def test_few_queries_settle_nothing():
    """Five wins of five: no test can reject anything, so the interval is as wide as the values
    allow.
    """
    found = compare(zeros([1.0] * 5), by_query([1.0] * 5))
    assert (found.p, found.low, found.high) == (0.0625, -1.0, 1.0)


@pytest.mark.slow
def test_the_interval_of_many_differences_is_the_textbooks():
    """For 500 differences, the inverted test and the normal distribution are close; more certainty
    is wider.
    """
    values = np.random.default_rng(9).normal(0.1, 0.4, 500)
    found, wider = (
        compare(zeros(values), by_query(values.tolist()), level=one) for one in (0.95, 0.99)
    )
    error = values.std(ddof=1) / math.sqrt(500)
    assert found.low == pytest.approx(values.mean() - 1.96 * error, abs=0.1 * error)
    assert found.high == pytest.approx(values.mean() + 1.96 * error, abs=0.1 * error)
    assert wider.low < found.low < found.high < wider.high


@pytest.mark.slow
def test_the_interval_is_about_that_of_the_normal_distribution():
    """For 500 differences the percentile bootstrap and the textbook's interval are close; more
    certainty is wider.
    """
    rng = np.random.default_rng(9)
    values = rng.normal(0.1, 0.4, 500)
    old, new = zeros(values), by_query(values.tolist())
    low, high = bootstrap_interval(old, new)
    error = values.std(ddof=1) / math.sqrt(500)
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.1 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.1 * error)
    wider = bootstrap_interval(old, new, level=0.99)
    assert wider[0] < low < values.mean() < high < wider[1]
    assert bootstrap_interval(old, new) == (low, high)


@pytest.mark.slow
def test_scipys_bootstrap_is_near():
    """scipy's percentile bootstrap of the same differences, with other random numbers."""
    from scipy import stats

    values = np.random.default_rng(2).choice([-1.0, 0.0, 0.0, 1.0, 1.0], 200)
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=10_000, method="percentile", rng=4
    ).confidence_interval
    low, high = bootstrap_interval(zeros(values), by_query(values.tolist()))
    assert low == pytest.approx(expected.low, abs=0.02)
    assert high == pytest.approx(expected.high, abs=0.02)


def test_a_comparison_says_all_of_it():
    """Difference and p are those of the test; wins, losses and ties add up."""
    rng = np.random.default_rng(8)
    old, new = (
        by_query(rng.random(60).round(1).tolist()),
        by_query(rng.random(60).round(1).tolist()),
    )
    found = compare(old, new, rounds=5_000, seed=6)
    tested = randomisation_test(old, new, rounds=5_000, seed=6)
    assert (found.difference, found.p) == (tested.difference, tested.p)
    assert found.wins == sum(new[query] > old[query] for query in old)
    assert found.losses == sum(new[query] < old[query] for query in old)
    assert found.wins + found.losses + found.ties == 60
    shuffled = dict(sorted(new.items(), reverse=True))
    assert compare(old, shuffled, rounds=5_000, seed=6) == found  # by query, not by place


def test_holm_by_hand():
    """The smallest p is multiplied by their number, the next by one less; none below an earlier
    one, or above 1.
    """
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}) == pytest.approx(
        {"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02}
    )
    assert list(holm({"z": 0.9, "a": 0.8})) == ["z", "a"]
    assert holm({"z": 0.9, "a": 0.8}) == {"z": 1.0, "a": 1.0}
    assert holm({}) == {}


@pytest.mark.parametrize("function", [randomisation_test, bootstrap_interval, compare])
def test_values_must_be_pairs(function):
    """The same queries on both sides, at least one, finite values."""
    with pytest.raises(ConfigError, match="2 and 1 queries, 1 of them in common"):
        function({"a": 1.0, "b": 1.0}, {"a": 0.0})
    with pytest.raises(ConfigError, match="0 and 0 queries"):
        function({}, {})
    with pytest.raises(ConfigError, match="must be a finite number; got"):
        function({"a": 1.0}, {"a": math.nan})
    with pytest.raises(ConfigError, match="rounds"):
        function({"a": 1.0}, {"a": 0.0}, rounds=0)


@pytest.mark.parametrize("level", [0, 1, 95, -0.5, math.nan])
def test_a_level_lies_between_0_and_1(level):
    """95 is not 95 %."""
    with pytest.raises(ConfigError, match="level must be"):
        bootstrap_interval({"a": 1.0}, {"a": 0.0}, level=level)
    with pytest.raises(ConfigError, match="level must be"):
        compare({"a": 1.0}, {"a": 0.0}, level=level)
