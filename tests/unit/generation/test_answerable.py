"""The probability that a library answers a question."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.generation.answerable import WEAK_BELOW, answerable

TEXTS = ["Green tea wants water of 80 degrees.", "The roof was repaired.", "绿茶用八十度的水。"]


@pytest.mark.parametrize("question", ["What water does green tea want?", "绿茶用多少度的水？"])
def test_a_text_with_the_words_of_the_question_is_likely_an_answer(question):
    """In English and Chinese."""
    assert answerable(question, TEXTS) > 0.5


@pytest.mark.parametrize("question", ["Who won the election of 1912?", "谁赢得了世界杯？", "?", ""])
def test_words_that_no_text_has_are_unlikely_answered(question):
    """And a question without words."""
    assert answerable(question, TEXTS) < WEAK_BELOW


@given(st.text(max_size=40), st.lists(st.text(max_size=60), max_size=5))
def test_it_is_a_probability_whatever_the_order(question, texts):
    """Of the texts."""
    probability = answerable(question, texts)
    assert 0 <= probability <= 1
    assert probability == pytest.approx(answerable(question, texts[::-1]))
