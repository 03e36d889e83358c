"""Counting tokens, and finding how much text fits."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import ContextBuilder, Hit
from lazyrag.text.tokens import (
    AverageTokenCounter,
    EstimatedTokenCounter,
    FittingTokenCounter,
    Utf8TokenCounter,
    token_counters,
    with_fit_methods,
)
from tests.interpreter import ROOT

_text = st.text(
    st.sampled_from("abABC12-=. é茶𝕏👩\u200d\u0301\r\n\t\x1c") | st.characters(), max_size=30
)


class Words:
    """Counts words; it knows nothing of fitting."""

    name = "words"

    def count(self, text: str) -> int:
        """Words in a text."""
        return len(text.split())


class Letters:
    """Counts letters; white space is free, so many ends have the same count."""

    name = "letters"

    def count(self, text: str) -> int:
        """Letters in a text."""
        return sum(not character.isspace() for character in text)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("tea", 1),
        ("teas", 2),
        ("绿茶", 2),
        ("é", 1),
        ("éé", 2),
        ("👍", 2),
        ("🍵🍵🍵", 4),
        ("tea 绿茶", 4),
        ("\ud800", 1),
        ("a" * 3000, 1000),
        ("茶" * 1000, 1000),
    ],
)
def test_the_default_counts_a_third_of_the_bytes(text, tokens):
    """A third of the UTF-8 bytes, rounded up: one for a Chinese character, one for three Latin
    letters.
    """
    assert Utf8TokenCounter().count(text) == tokens


@given(_text, _text)
def test_adding_text_never_lowers_the_count(text, more):
    """The count grows with the text, at either end, and at most as the parts add up."""
    count = Utf8TokenCounter().count
    assert max(count(text), count(more)) <= count(text + more) <= count(text) + count(more)


@pytest.mark.parametrize(
    "counter",
    [
        Utf8TokenCounter(),
        EstimatedTokenCounter(),
        AverageTokenCounter(),
        *map(with_fit_methods, (Words(), Letters())),
    ],
    ids=lambda one: one.name,
)
@given(text=_text, at=st.integers(0, 30), limit=st.integers(0, 12))
def test_fit_forward_finds_the_largest_end(counter, text, at, limit):
    """Compared with trying every end: the text up to it fits, and any longer one does not."""
    start = min(at, len(text))
    fits = [end for end in range(start, len(text) + 1) if counter.count(text[start:end]) <= limit]
    assert counter.fit_forward(text, start, limit) == fits[-1]


@pytest.mark.parametrize(
    "counter",
    [
        Utf8TokenCounter(),
        EstimatedTokenCounter(),
        AverageTokenCounter(),
        *map(with_fit_methods, (Words(), Letters())),
    ],
    ids=lambda one: one.name,
)
@given(text=_text, at=st.integers(0, 30), limit=st.integers(0, 12))
def test_fit_backward_finds_the_smallest_start(counter, text, at, limit):
    """Compared with trying every start: the text from it fits, and any longer one does not."""
    end = min(at, len(text))
    fits = [start for start in range(end + 1) if counter.count(text[start:end]) <= limit]
    assert counter.fit_backward(text, end, limit) == fits[0]


@pytest.mark.sample(4)
@pytest.mark.parametrize("limit", [1, 40, 9000])
def test_an_estimate_fits_in_long_texts(limit):
    """What is found fits and one character more does not, from one position after the other, also
    in long words.
    """
    parts = [
        "Tea ",
        "HTTPServer",
        "x" * 40_000,
        "1234567",
        "\n\n",
        "绿茶。",
        "-" * 50,
        "  \t",
        "a.b==c, ",
        "É",
        "\x1f",
    ]
    text = "".join(random.Random(4).choices(parts, [9, 5, 0.01, 5, 2, 5, 1, 1, 5, 1, 1], k=20_000))
    counter = EstimatedTokenCounter()
    start = 0
    for _ in range(30):
        end = counter.fit_forward(text, start, limit)
        assert counter.count(text[start:end]) <= limit
        assert end == len(text) or counter.count(text[start : end + 1]) > limit
        first = counter.fit_backward(text, end, limit)
        assert counter.count(text[first:end]) <= limit
        assert first == 0 or counter.count(text[first - 1 : end]) > limit
        start = min(max(start + 1, end - start % 3), len(text))


def test_a_long_text_is_not_counted_as_a_whole():
    """How much a search counts depends on what fits, not on how long the text is."""

    class Watched(Words):
        longest = 0

        def count(self, text: str) -> int:
            self.longest = max(self.longest, len(text))
            return super().count(text)

    counter = Watched()
    text = "tea " * 50_000
    assert with_fit_methods(counter).fit_forward(text, 40, 10) == 80
    assert with_fit_methods(counter).fit_backward(text, 4000, 10) == 3959
    assert counter.longest < 1000


def test_a_counter_that_fits_by_itself_is_used_as_it_is():
    """A user's faster way of fitting is not searched around."""
    counter = Utf8TokenCounter()
    assert isinstance(counter, FittingTokenCounter)
    assert with_fit_methods(counter) is counter
    assert not isinstance(Words(), FittingTokenCounter)
    assert with_fit_methods(Words()).name == "words"


def test_the_default_counter_does_not_depend_on_what_is_installed():
    """It is registered under its own name, which takes part in fingerprints."""
    assert isinstance(token_counters["utf8"], Utf8TokenCounter)
    assert token_counters["utf8"].name == "utf8"


RECORDED = json.loads((Path(__file__).parent / "cl100k_tokens.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", RECORDED)
def test_an_estimate_is_not_below_cl100k_base(name):
    """And uses three quarters of a budget or more. The true numbers are tiktoken's:
    `benchmarks/tokens.py --record`.
    """
    text = (ROOT / name).read_text(encoding="gb18030" if "入住" in name else "utf-8")
    digest, tokens = RECORDED[name]
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest, (
        "the text has changed: record it again"
    )
    assert tokens <= EstimatedTokenCounter().count(text) <= tokens / 0.75


@given(_text, st.characters())
def test_adding_a_character_never_lowers_an_estimate(text, more):
    """Nor at the front."""
    count = EstimatedTokenCounter().count
    assert count(text) <= min(count(text + more), count(more + text))


@pytest.mark.parametrize("one", ["=", "A", "a", "Ab", " ", "\n", "1", "é", "绿", "👩", "\ud800"])
def test_repeated_text_never_lowers_an_estimate(one):
    """A line of marks costs no less than a part of it."""
    counts = [EstimatedTokenCounter().count(one * times) for times in range(30)]
    assert counts == sorted(counts)


def test_a_context_of_chinese_stays_within_the_budget():
    """A third of the bytes undercounts Chinese by a fifth: the default of contexts is the
    estimate.
    """
    hits = [Hit(str(number), "绿茶要低温存放，红茶需要完全发酵。" * 9, 1.0) for number in range(30)]
    builder = ContextBuilder(model="no vocabulary of this model")
    assert builder.counter.name == "estimate"
    context = builder.build("绿茶怎么存放？", hits, max_tokens=1000)
    assert Utf8TokenCounter().count(context.context) < 900
