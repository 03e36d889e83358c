"""How sure an answer is: bounds, edges, and what counts as agreement."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.generation.generator import agreement, likelihood

LOGPROBS = st.lists(st.floats(max_value=0.0, allow_nan=False), min_size=1, max_size=30)
WORDS = st.lists(
    st.sampled_from(["tea", "green", "80", "水", "温", "不", "frost", "is", "not"]), max_size=8
)
ANSWERS = st.one_of(st.text(max_size=30), WORDS.map(" ".join))


def overlap(first, second):
    """The agreement of two answers."""
    return agreement([first, second])[0]


class TestLikelihood:
    """exp of the mean logarithm."""

    @given(LOGPROBS)
    def test_it_lies_between_the_least_and_the_likeliest_token(self, logprobs):
        """And so in [0, 1], minus infinity included."""
        found = likelihood(logprobs)
        least, most = math.exp(min(logprobs)), math.exp(max(logprobs))
        assert 0.0 <= found <= 1.0
        assert least <= found * (1 + 1e-9) + 1e-300  # the least floats are far apart
        assert found <= most * (1 + 1e-9) + 1e-300

    @given(LOGPROBS, st.integers(2, 4))
    def test_length_does_not_count(self, logprobs, times):
        """The same tokens several times over have the same likelihood."""
        assert likelihood(logprobs * times) == pytest.approx(likelihood(logprobs))

    def test_it_is_the_geometric_mean(self):
        """Of one half and one eighth: one quarter."""
        assert likelihood([math.log(0.5), math.log(0.125)]) == pytest.approx(0.25)

    def test_an_impossible_token_makes_an_answer_impossible(self):
        """Minus infinity, and what some servers send in its place."""
        assert likelihood([0.0, -math.inf]) == 0.0
        assert likelihood([0.0, -9999.0]) == pytest.approx(0.0, abs=1e-300)
        assert likelihood([-sys.float_info.max] * 3) == 0.0

    def test_rounding_above_zero_stays_in_range(self):
        """Sure tokens come as 1e-6 and the like."""
        assert likelihood([1e-6, 0.009]) == 1.0

    @pytest.mark.parametrize("wrong", [[], [math.nan], [-0.1, math.nan], [3.2], [math.inf]])
    def test_what_is_no_probability_gives_none(self, wrong):
        """No number is made up of raw scores, or of nothing."""
        assert likelihood(wrong) is None


class TestOverlap:
    """Token F1."""

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("Water of 80 degrees [1].", "water of 80 degrees"),
            ("水温是80度【1】。", "水温是 80 度［2］"),
            ("Late frost [1][2], then tea [1-3].", "late frost, then tea"),
            ("春分之后[资料1]", "春分之后 [资料 1，资料 2]"),
            ("80 degrees", "８０ degrees"),
            ("...", ""),
        ],
    )
    def test_these_are_the_same(self, one, other):
        """Case, punctuation, width and markers of citations do not count."""
        assert overlap(one, other) == 1.0

    @pytest.mark.parametrize(
        ("one", "other", "expected"),
        [
            ("tea is allowed", "tea is not allowed", 6 / 7),
            ("yes", "no", 0.0),
            ("可以", "不可以", 0.8),
            ("1.5 grams", "15 grams", 0.5),
            ("1,000 kg", "1 kg", 0.5),
            ("tea tea tea", "tea", 0.5),
            ("see [Section A]", "see", 0.5),
            ("tea", "", 0.0),
        ],
    )
    def test_these_differ(self, one, other, expected):
        """A "not" counts, and so do decimals, repetitions, and brackets without a number."""
        assert overlap(one, other) == pytest.approx(expected)

    @given(ANSWERS, ANSWERS)
    def test_it_is_symmetric_and_in_range(self, one, other):
        """And 1 for a text and itself."""
        assert overlap(one, other) == overlap(other, one)
        assert 0.0 <= overlap(one, other) <= 1.0
        assert overlap(one, one) == 1.0


class TestAgreement:
    """The mean overlap with the other candidates."""

    @given(ANSWERS, st.integers(2, 6))
    def test_identical_candidates_agree_wholly(self, text, n):
        """Exactly 1, whatever they say."""
        assert agreement([text] * n) == [1.0] * n

    @given(st.lists(ANSWERS, min_size=2, max_size=6), st.randoms(use_true_random=False))
    def test_their_order_does_not_matter(self, candidates, random):
        """Each candidate keeps its number, exactly, wherever it stands."""
        numbers = agreement(candidates)
        assert all(0.0 <= one <= 1.0 for one in numbers)
        order = list(range(len(candidates)))
        random.shuffle(order)
        assert agreement([candidates[at] for at in order]) == [numbers[at] for at in order]

    def test_candidates_without_a_common_word_do_not_agree(self):
        """In either language."""
        assert agreement(["tea", "coffee", "水"]) == [0.0, 0.0, 0.0]

    def test_the_one_in_the_middle_agrees_most(self):
        """Two of three say the same; the third shares a word with them."""
        first, second, third = agreement(["green tea", "green tea", "green hills"])
        assert first == second == 0.75
        assert third == 0.5


@pytest.mark.parametrize(
    "marker",
    [
        "[^1]",
        "[1 and 2]",
        "[1†source]",
        "〔1〕",
        "[1至3]",
        "【资料1】",
        "[Source 1: tea.txt]",
        "[1][2]",
    ],
)
def test_no_style_of_citing_makes_answers_differ(marker):
    """Every marker that is read as one does not count."""
    assert overlap(f"Water of 80 degrees {marker}.", "Water of 80 degrees [9].") == 1.0
