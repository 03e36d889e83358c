"""Citations of an answer while it is being written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Citation, CitationManager, Hit
from lazyrag.errors import ConfigError, GenerationError

SOURCES = [
    Hit("a", "Tea is old. Use water of 80 degrees. Wait three minutes.", 1.0),
    Hit("b", "绿茶用八十度的水。等三分钟。", 0.9),
    Hit("c", "", 0.8),
]
PARTS = st.sampled_from(
    [
        "[1]",
        "[2]",
        "[1,2]",
        "[1-3]",
        "[9]",
        "[",
        "]",
        "[[3]]",
        "[1](http://a)",
        "(",
        "`",
        "\n",
        "```",
        "水",
        "80 degrees",
        " ",
        ". ",
    ]
)


def streamed(pieces: list[str]) -> list[list[int]]:
    """The indices of the citations that each piece completes."""
    stream = CitationManager().stream(SOURCES)
    return [[citation.index for citation in stream.feed(piece)] for piece in pieces]


def test_a_citation_comes_with_the_character_behind_it():
    """A closing bracket may still become a link's; the next character decides."""
    assert streamed(["80 [", "1", "]", " is", " [1][", "2]."]) == [[], [], [], [1], [], [2]]


def test_a_link_is_waited_for():
    """[1]( is settled when what follows is an address, or cannot become one."""
    assert streamed(["[1]", "(", "http", "://", "x) [2] "]) == [[], [], [], [], [2]]
    assert streamed(["[1]", "(", "see", " below"]) == [[], [], [], [1]]


def test_code_is_waited_for_until_its_line_ends():
    """Behind a backtick nothing is certain; its closing one or the line's end tells."""
    assert streamed(["`x [1] ", "y", "` [2] "]) == [[], [], [2]]
    assert streamed(["a ` [1] ", "y", "\n"]) == [[], [], [1]]


def test_the_last_citation_comes_with_the_end():
    """What the text's end makes certain stands in what finish returns, with all the others."""
    stream = CitationManager().stream(SOURCES)
    assert stream.feed("Hot [1]") == ()
    assert [citation.index for citation in stream.finish().citations] == [1]
    assert stream.finish() is stream.finish()
    assert stream.text == "Hot [1]"


def test_a_finished_stream_takes_no_more():
    """It says so, and what to do."""
    stream = CitationManager().stream(SOURCES)
    stream.finish()
    with pytest.raises(GenerationError, match="make one stream for each answer"):
        stream.feed("more")


def test_a_piece_is_a_text():
    """None, as some services send, is refused by name."""
    with pytest.raises(ConfigError, match="must be a string; got None"):
        CitationManager().stream(SOURCES).feed(None)


@given(st.lists(PARTS, max_size=25), st.data())
def test_what_is_streamed_is_what_resolve_finds(parts: list[str], data: st.DataObject):
    """However an answer is cut, its streamed citations are a beginning of resolve's, and finish is
    resolve.
    """
    text = "".join(parts)
    stream = CitationManager().stream(SOURCES)
    citations: list[Citation] = []
    at = 0
    while at < len(text):
        size = data.draw(st.integers(1, 8))
        citations += stream.feed(text[at : at + size])
        at += size
    whole = CitationManager().resolve(text, SOURCES)
    assert stream.finish() == whole
    assert tuple(citations) == whole.citations[: len(citations)]
    assert [*citations] == [*dict.fromkeys(citations)]
    end = CitationManager().stream(SOURCES)
    assert end.feed(text + "\n\n")[: len(citations)] == tuple(citations)


def test_a_long_answer_is_streamed_as_it_is_resolved():
    """Claims are found after 30,000 characters as they are in the whole, though only its end is
    kept.
    """
    text = (
        "".join(f"Word {number} of 80 degrees. " for number in range(1500))
        + "Wait three minutes [1]. "
        + "水" * 9
    )
    stream = CitationManager().stream(SOURCES)
    found = [
        citation for at in range(0, len(text), 7) for citation in stream.feed(text[at : at + 7])
    ]
    assert tuple(found) == CitationManager().resolve(text, SOURCES).citations
    assert found[0].text_snippet == "Wait three minutes."
