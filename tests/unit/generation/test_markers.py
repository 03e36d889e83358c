"""Markers of citations: what is read as one, what is none, and what is malformed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import CitationManager
from lazyrag.generation.markers import CLOSER_OF, MarkerScanner, read_marker, rewritten, scan

NUMBERS = st.integers(1, 99)
WORDS = st.text("泡茶用水 abc.，。\n", max_size=12)
OPENERS = st.sampled_from(sorted(CLOSER_OF))
HOSTILE = st.text("[]【】〔12,-–`~ \n()ht:/\\a资料^.†", max_size=60)


def extracted(text: str) -> list[int]:
    """The numbers that a text cites."""
    return CitationManager().extract_citations(text)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("[1]", [1]),
        ("[1][2]", [1, 2]),
        ("[2] [1]", [2, 1]),
        ("[1,2]", [1, 2]),
        ("[1、2]", [1, 2]),
        ("[1，2]", [1, 2]),
        ("[1; 2；4]", [1, 2, 4]),
        ("[1-3]", [1, 2, 3]),
        ("[1–3]", [1, 2, 3]),
        ("[1~3]", [1, 2, 3]),
        ("[1至3]", [1, 2, 3]),
        ("[1 to 3]", [1, 2, 3]),
        ("[1, 4-6, 2]", [1, 4, 5, 6, 2]),
        ("【1】", [1]),
        ("［1］", [1]),
        ("〔1〕", [1]),
        ("[１２]", [12]),
        ("[资料1]", [1]),
        ("[来源 1]", [1]),
        ("[参考资料1，资料2]", [1, 2]),
        ("【资料2、3】", [2, 3]),
        ("[资料1：tea.txt]", [1]),
        ("[Source 1]", [1]),
        ("[source 1, 2]", [1, 2]),
        ("[Sources 1 and 2]", [1, 2]),
        ("[doc 2]", [2]),
        ("[ref. 3]", [3]),
        ("【1†source】", [1]),
        ("[^1]", [1]),
        ("[[1]]", [1]),
        ("[[[1]]]", [1]),
        ("arr[1]", [1]),
        ("[1](see below)", [1]),
        ("[1]（见下）", [1]),
        ("[0]", [0]),
        ("[2024]", [2024]),
        ("a ` b [1]", [1]),
        ("``` [1]", [1]),
        ("[note [1]]", [1]),
        ("\\\\[1]", [1]),
    ],
)
def test_what_is_a_marker(text: str, numbers: list[int]):
    """Each of the styles in which models cite names its numbers, in order, without a fault."""
    assert extracted(f"Tea {text} is") == numbers
    assert [marker.fault for marker in scan(text).markers if marker.fault] == []


@pytest.mark.parametrize(
    "text",
    [
        "[a]",
        "[]",
        "[note]",
        "[citation needed]",
        "[2024-05-01]",
        "[10:30]",
        "[1](https://example.org)",
        "[1](</page>)",
        "[1](#top)",
        "[[1]](https://example.org)",
        "`x[1]`",
        "``a ` [1]``",
        "\n```py\nx[1]\n```\n",
        "\n~~~\n[1]\n``` \n[2]\n~~~\n",
        "\n  ````\n```\n[1]\n````\n",
        "\n```\n[1] never closed",
        "\\[1\\]",
        "\\[1]",
    ],
)
def test_what_is_no_marker(text: str):
    """Links, code, what is escaped, dates and brackets without numbers are neither markers nor
    malformed ones.
    """
    assert scan(f"Tea {text}").markers == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1.5]", "'[1.5]' is malformed"),
        ("[-1]", "'[-1]' is malformed"),
        ("[1,]", "'[1,]' is malformed"),
        ("[1 2]", "'[1 2]' is malformed"),
        ("[资料1 tea.txt]", "is malformed"),
        ("[3-1]", "'[3-1]' runs backwards"),
        ("[1-99999999]", "names more than 100 sources"),
        ("[1-9" + "9" * 200 + "]", "names more than 100 sources"),
        ("[1", "'[1' is not closed"),
        ("[Source 1", "'[Source 1' is not closed"),
        ("[1】", "'[1' is not closed"),
        ("[1\n]", "'[1' is not closed"),
    ],
)
def test_a_malformed_marker_has_one_fault_and_no_numbers(text: str, says: str):
    """Brackets that were meant to cite say what is wrong, once, and cite nothing."""
    [marker] = scan(f"Tea {text}").markers
    assert says in marker.fault
    assert marker.numbers == ()


def test_a_range_has_at_most_100_numbers():
    """100 sources can be cited at once, 101 cannot."""
    assert extracted("[1-100]") == [*range(1, 101)]
    assert extracted("[1-101]") == []


@given(
    st.lists(
        st.tuples(
            WORDS, OPENERS, st.lists(NUMBERS, min_size=1, max_size=4), st.sampled_from(",，、;")
        )
    )
)
def test_generated_answers_are_parsed_exactly(parts):
    """Any mixture of words and well-formed markers gives the markers' numbers, and their spans are
    their texts.
    """
    text, numbers = "", []
    for words, opener, named, separator in parts:
        text += words + opener + separator.join(map(str, named)) + CLOSER_OF[opener]
        numbers += named
    markers = scan(text).markers
    assert extracted(text) == list(dict.fromkeys(numbers))
    assert len(markers) == len(parts)
    assert all(text[marker.start : marker.end] == marker.text for marker in markers)


@given(st.text() | HOSTILE)
def test_any_text_can_be_read(text: str):
    """No text raises; markers do not overlap, and lie where they say they do."""
    end = 0
    for marker in scan(text).markers:
        assert end <= marker.start < marker.end
        assert text[marker.start : marker.end] == marker.text
        assert bool(marker.fault) != bool(marker.ranges)
        end = marker.end


@given(HOSTILE, st.data())
def test_pieces_do_not_matter(text: str, data: st.DataObject):
    """However a text is cut, the scanner finds the same markers and code as in the whole."""
    scanner = MarkerScanner()
    markers, at = [], 0
    while at < len(text):
        size = data.draw(st.integers(1, 9))
        markers += scanner.feed(text[at : at + size])
        at += size
    markers += scanner.finish()
    assert (tuple(markers), tuple(scanner.code)) == (scan(text).markers, scan(text).code)


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        "[",
        "【",
        "`",
        "``` ",
        "`[1]",
        "[1](http",
        "[1-1,",
        "[ ",
        "~~~",
        "[" + " " * 299,
        "[" + " " * 298 + "]",
        "[资料" + " " * 290 + "x]",
        "[资料" + " -" * 148 + "x]",
    ],
)
def test_hostile_texts_are_read_in_linear_time(unit: str):
    """200,000 characters that lead nowhere are read: with backtracking they would take hours."""
    text = unit * (200_000 // len(unit))
    assert all(marker.start >= 0 for marker in scan(text).markers)
    assert scan("[1," + "1," * 100_000).markers[0].fault


@pytest.mark.parametrize("unit", ["`a", "[资料 ", "~~~", "a" * 50 + "`"])
def test_pieces_of_one_character_hold_back_little(unit: str):
    """However long a text that leads nowhere is, no more than a stretch of it is kept to be read
    again.
    """
    scanner = MarkerScanner()
    for character in unit * (10_000 // len(unit)):
        scanner.feed(character)
        assert len(scanner._text) <= 1001


@pytest.mark.parametrize(
    ("text", "numbers", "swapped", "without"),
    [
        (
            "[Source 1: tea.txt, Source 2: milk.txt]",
            (1, 2),
            "[Source 2: tea.txt, Source 1: milk.txt]",
            "[Source 2: milk.txt]",
        ),
        ("[资料1：茶.txt；资料2]", (1, 2), "[资料2：茶.txt；资料1]", "[资料2]"),
        ("[1†a, 2†b]", (1, 2), "[2†a, 1†b]", "[2†b]"),
        ("[1, p. 3]", (1,), "[2, p. 3]", ""),
        ("[1: page 3]", (1,), "[2: page 3]", ""),
        ("[1，第3页]", (1,), "[2，第3页]", ""),
    ],
)
def test_items_may_have_words_of_their_own(text, numbers, swapped, without):
    """Each item is read, and keeps its words behind its new number; a page is a place within the
    source.
    """
    marker = read_marker(0, "[", text[1:-1])
    assert marker is not None
    assert marker.numbers == numbers
    assert rewritten(marker, {1: 2, 2: 1}) == swapped
    assert rewritten(marker, {1: None}) == without


@pytest.mark.parametrize("text", ["1 or 2", "1/2", "1|2", "1 或 2"])
def test_what_leaves_open_which_source_is_malformed(text):
    """It was meant as a marker, and is told, not taken for text."""
    marker = read_marker(0, "[", text)
    assert marker is not None
    assert "malformed" in marker.fault
