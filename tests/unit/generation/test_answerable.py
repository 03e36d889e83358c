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


@pytest.mark.parametrize(
    "question", ["How many days of leave do I get?", "What should I do if my leave is refused?"]
)
def test_people_ask_about_themselves(question):
    """A text says neither "I" nor "should"."""
    texts = ["Employees receive 20 days of leave. HR decides if leave is refused.", *TEXTS]
    assert answerable(question, texts) > 0.9


@pytest.mark.parametrize("question", ["Who won the election of 1912?", "谁赢得了世界杯？", "?", ""])
def test_words_that_no_text_has_are_unlikely_answered(question):
    """And a question without words."""
    assert answerable(question, TEXTS) < WEAK_BELOW


@pytest.mark.parametrize(
    ("question", "is_answered"),
    [
        ("What is due of the Meyer invoice of 2021?", True),
        ("李明2021年的发票合计多少元？", True),
        ("What is the date of the Holm contract?", False),
    ],
)
def test_words_of_a_file_name_count_as_those_of_its_text(question, is_answered):
    """A text rarely repeats them; the names of other files do not count."""
    texts = ["Total due: 420 euros.", "合计420元，三十天内付款。", *TEXTS]
    names = ["invoices/invoice_2021_Meyer.pdf", "发票/2021年发票_李明.pdf", "tea.md", "roof.md"]
    assert answerable(question, texts) < WEAK_BELOW
    assert (answerable(question, texts, names) > WEAK_BELOW) == is_answered


@given(st.text(max_size=40), st.lists(st.text(max_size=60), max_size=5))
def test_it_is_a_probability_whatever_the_order(question, texts):
    """Of the texts."""
    probability = answerable(question, texts)
    assert 0 <= probability <= 1
    assert probability == pytest.approx(answerable(question, texts[::-1]))
