"""Quotations of an answer, looked up in the sources that their sentences cite."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import CitationManager, Hit
from lazyrag.generation import QuoteCheck
from lazyrag.generation.citations import QuotedText, quotations

TEA = "Green tea: use water of about 80 degrees,\nand wait 1.5 minutes — it doesn't keep."
CHINESE = "绿茶用八十度的水冲泡，等三分钟。开封后可以保存六个月。"
SOURCES = [Hit("a", TEA, 1.0), Hit("b", CHINESE, 0.9)]


def checks(response: str) -> list[QuoteCheck]:
    """What becomes of an answer's quotations."""
    return CitationManager().check_quotes(response, SOURCES)


@pytest.mark.parametrize(
    "quote",
    [
        "“use water of about 80 degrees”",
        '"Use WATER of about 80 degrees, and wait"',
        "‘it doesn’t keep’",
        "«use water … 80 degrees»",
        "“green tea ... it doesn't keep”",
        "“ｕｓｅ water of [...] 80 degrees”",
        "“wait 1.5 minutes”",
    ],
)
def test_a_quotation_that_stands_there(quote: str):
    """Case, width, white space, punctuation and words left out do not matter; it lies where its
    span says.
    """
    [check] = checks(f"They say {quote} [1].")
    assert (check.ok, check.found, check.indices) == (True, 1, (1,))
    start, end = check.span
    assert TEA[start:end]


def test_the_span_is_the_quoted_words():
    """From the first quoted character to the last."""
    [check] = checks("“WATER of about 80 degrees” [1].")
    start, end = check.span
    assert TEA[start:end] == "water of about 80 degrees"


@pytest.mark.parametrize(
    "quote",
    [
        "“use water of about 90 degrees”",
        "“se water of about 80 degrees”",
        "“use water of about 80 degree”",
        "“wait 15 minutes”",
        "“it doesn't keep ... use water”",
    ],
)
def test_a_quotation_that_does_not(quote: str):
    """Other numbers, parts of words and another order are other words."""
    [check] = checks(f"They say {quote} [1].")
    assert (check.ok, check.found, check.span) == (False, None, None)
    assert "no source contains them" in check.problem


@pytest.mark.parametrize("marks", ["“”", "「」", "『』", '""'])
def test_chinese_quotations(marks: str):
    """Each of the marks that Chinese uses, the marker before or behind the full stop."""
    quote = marks[0] + "八十度的水，冲泡。" + marks[1]
    assert [check.ok for check in checks(f"资料说{quote}[2]")] == [True]
    assert [check.ok for check in checks(f"资料说{quote[:-1]}{marks[1]}。[2]接着说。")] == [True]
    assert [check.found for check in checks(f"资料说{quote}【1】")] == [2]


def test_another_source_is_named():
    """A quotation of another source than the one cited says which, in one sentence of the
    problems.
    """
    [check] = checks("“可以保存六个月” [1]。")
    assert (check.ok, check.found, check.indices) == (False, 2, (1,))
    assert CitationManager().resolve("“可以保存六个月” [1]。", SOURCES).problems == (check.problem,)
    assert check.problem == "The words '可以保存六个月' are quoted from [1], but they are in [2]."


@pytest.mark.parametrize(
    "response",
    [
        "The “best tea” [1].",
        "「绿茶」[2]很好。",
        "《中国茶叶大辞典全书》[2]这样说。",
        "“Nobody ever said this” in a sentence without a citation. Tea is hot [1].",
        '`print("nobody ever said this")` [1]',
        'It\'s 5" wide and 6" high and more [1].',
        "The farmers' teas and the drinkers' cups [1].",
        "“Nobody ever said this” [7].",
    ],
)
def test_what_is_not_checked(response: str):
    """Short ones, titles, inches and apostrophes, code, and what no source is cited for."""
    assert checks(response) == []


def test_a_marker_within_a_quotation_is_none_of_its_words():
    """“... [1]” is compared without the marker."""
    [check] = checks("They say “use water of about 80 degrees [1]”.")
    assert (check.ok, check.quote) == (True, "use water of about 80 degrees")


def test_a_sentence_after_the_marker_does_not_cite_it():
    """What follows a marker behind a full stop is another sentence."""
    assert [
        check.quote
        for check in checks("Say “use water of about 80”. [1] “It is all lies here”, they say.")
    ] == ["use water of about 80"]


@given(st.text(max_size=60), st.data())
def test_any_stretch_of_whole_words_is_found(text: str, data: st.DataObject):
    """A run of words of a text is found in it."""
    words = text.split()
    if not words:
        return
    first = data.draw(st.integers(0, len(words) - 1))
    quote = " ".join(words[first : data.draw(st.integers(first + 1, len(words)))])
    letters = all(
        character.isalpha() and character.isascii() for character in quote.replace(" ", "")
    )
    if letters and text.isascii():
        assert QuotedText(text).span(quote) is not None


@given(
    st.text() | st.text("“”「」\"'‘’«» a.1水…", max_size=60), st.text('“”"‘’ a.1水…-', max_size=60)
)
def test_any_text_can_be_checked(response: str, source: str):
    """No texts raise; a span lies in its source."""
    for check in CitationManager().check_quotes(response + " [1]", [Hit("a", source, 1.0)]):
        assert check.span is None or 0 <= check.span[0] < check.span[1] <= len(source)


@pytest.mark.sample(9)
@pytest.mark.parametrize("mark", ["“", "‘", "「", '"', "«", "‘a’a", '"a b c" [1]', "“a b c” `x`"])
def test_hostile_quotations_end(mark: str):
    """100,000 characters of marks are read in linear time."""
    text = mark * (100_000 // len(mark))
    assert isinstance(quotations(text), list)
    assert isinstance(CitationManager().check_quotes(text, SOURCES), list)
