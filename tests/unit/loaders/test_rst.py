"""reStructuredText: the text as it is, its titles as places."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.loaders import load_file
from lazyrag.loaders.text import RstLoader


@pytest.fixture
def locations(tmp_path):
    """A function from a text to its titles as (label, text of the place)."""

    def read(text: str) -> list[tuple[str, str]]:
        path = tmp_path / "page.rst"
        path.write_bytes(text.encode())
        loaded = load_file(path)
        assert loaded.text == text
        assert {location.kind for location in loaded.locations} <= {"heading"}
        return [
            (location.label, loaded.text[location.start : location.end])
            for location in loaded.locations
        ]

    return read


def test_titles_are_places(locations):
    """Titles with a line beneath, or above and beneath, are told, and levels follow the order of
    the styles.
    """
    text = "before\n\n#####\n Tea\n#####\nleaves\n\nPicking\n=======\nApril\n\n绿茶\n----\n\nWater\n=====\n"
    assert locations(text) == [
        ("Tea", "#####\n Tea\n#####\nleaves\n\n"),
        ("Tea > Picking", "Picking\n=======\nApril\n\n"),
        ("Tea > Picking > 绿茶", "绿茶\n----\n\n"),
        ("Tea > Water", "Water\n=====\n"),
    ]


def test_targets_of_links_belong_to_the_section_below(locations):
    """A section begins with the targets right above its title."""
    text = ".. _tea:\n\nTea\n===\nleaves\n\n.. _a:\n.. _b:\n\nWater\n=====\n.. _c:\n\nwet\n\nHeat\n====\n"
    assert locations(text) == [
        ("Tea", ".. _tea:\n\nTea\n===\nleaves\n\n"),
        ("Water", ".. _a:\n.. _b:\n\nWater\n=====\n.. _c:\n\nwet\n\n"),
        ("Heat", "Heat\n====\n"),
    ]


def test_a_line_above_makes_another_style(locations):
    """The same mark with and without a line above is two levels, and a title may follow a title at
    once.
    """
    assert [
        label for label, _ in locations("===\nTop\n===\nSub\n===\r\nx\r\n\r\nNext\r\n====\r\n")
    ] == [
        "Top",
        "Top > Sub",
        "Top > Next",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "above\n\n-----\n\nbeneath\n",
        "two lines\nof text\n-------\n",
        "code::\n\n    Indented\n    --------\n",
        "====  ====\nA     B\n====  ====\n1     2\n====  ====\n",
        "Tea and more\n--\n",
        "茶\n-\n",
        "- item\n------\n",
        ".. note::\n=========\n",
        "=====\nTea\n-----\n",
        "-----\n-----\n",
        "-----",
    ],
    ids=[
        "transition",
        "paragraph",
        "literal",
        "table",
        "short",
        "wide",
        "list",
        "markup",
        "unlike",
        "lines",
        "alone",
    ],
)
def test_what_is_no_title(locations, text):
    """Transitions, tables, code, lists and lines that are too short make no title."""
    assert locations(text) == []


def test_short_titles(locations):
    """A short line is enough for a title that is no wider."""
    assert [label for label, _ in locations("Tea\n~~~\n\n茶\n~~\n")] == ["Tea", "茶"]


@given(
    st.lists(
        st.sampled_from(["====", "----", "--", "Tea", "  in", "茶", "", "- x", "\x85"]), max_size=10
    )
)
def test_no_character_is_lost(tmp_path_factory, lines):
    """The text is the file, and places reach from title to title and to the end."""
    path = tmp_path_factory.mktemp("rst") / "page.rst"
    path.write_bytes("\n".join(lines).encode())
    loaded = RstLoader().load(path)
    assert loaded.text == "\n".join(lines)
    borders = [location.start for location in loaded.locations] + [len(loaded.text)]
    assert [location.end for location in loaded.locations] == borders[1:]
    assert all(location.start < location.end for location in loaded.locations)
