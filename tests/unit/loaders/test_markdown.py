"""Markdown: the text as it is, its headings as places."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Document
from lazyrag.loaders import load_file


@pytest.fixture
def locations(tmp_path):
    """A function from Markdown to its headings as (label, text of the place)."""

    def read(text: str) -> list[tuple[str, str]]:
        path = tmp_path / "page.md"
        path.write_bytes(text.encode())
        loaded = load_file(path)
        assert loaded.text == text
        assert {location.kind for location in loaded.locations} <= {"heading"}
        return [
            (location.label, loaded.text[location.start : location.end])
            for location in loaded.locations
        ]

    return read


def _labels(found: list[tuple[str, str]]) -> list[str]:
    """The labels of headings."""
    return [label for label, _ in found]


def test_places_reach_from_heading_to_heading(locations):
    """A place holds its heading's line and all up to the next one; what precedes the first is in no
    place.
    """
    text = "before\n\n# Tea\nleaves\n\n## Picking\nin April\n# Coffee\nbeans\n"
    assert locations(text) == [
        ("Tea", "# Tea\nleaves\n\n"),
        ("Tea > Picking", "## Picking\nin April\n"),
        ("Coffee", "# Coffee\nbeans\n"),
    ]


def test_labels_are_paths_of_headings_above(locations):
    """A label names the headings above by level, also where levels are left out or fall back."""
    text = "# A\n### B\n## C\n###### D\n# E\n## F\n"
    assert _labels(locations(text)) == ["A", "A > B", "A > C", "A > C > D", "E", "E > F"]


def test_a_document_that_begins_below_level_1(locations):
    """A first heading of a lower level stands alone, and a higher one after it does not fall under
    it.
    """
    assert _labels(locations("### A\n# B\n## C\n")) == ["A", "B", "B > C"]


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("# 绿茶", "绿茶"),
        ("#\tTab", "Tab"),
        ("   # Indented", "Indented"),
        ("# Closed ##", "Closed"),
        ("# Closed #  ", "Closed"),
        ("# C#", "C#"),
        ("# C# and F#", "C# and F#"),
        ("###### Six", "Six"),
        ("# `code` and *stars*", "`code` and *stars*"),
        ("#   wide   ", "wide"),
    ],
)
def test_atx_headings(locations, line, title):
    """One to six hashes and white space make a heading; closing hashes are no part of it."""
    assert _labels(locations(f"text\n\n{line}\n\ntext\n")) == [title]


@pytest.mark.parametrize(
    "line",
    [
        "#hashtag",
        "####### seven",
        "    # code",
        "\t# code",
        "text # no",
        "\\# escaped",
        "> # quoted",
        "- # item",
    ],
)
def test_lines_that_are_no_headings(locations, line):
    """Hashes without white space, in code, in a quotation, in the middle of a line or too many make
    no heading.
    """
    assert locations(f"text\n\n{line}\n\ntext\n") == []


@pytest.mark.parametrize(
    ("underline", "labels"), [("===", ["Tea"]), ("=", ["Tea"]), ("---", ["Tea"]), ("-", ["Tea"])]
)
def test_setext_headings(locations, underline, labels):
    """A line underlined with = or - is a heading."""
    assert _labels(locations(f"Tea\n{underline}\ntext\n")) == labels


def test_levels_of_setext_headings(locations):
    """A line underlined with = is of level 1, with - of level 2."""
    text = "Tea\n===\nleaves\n\nPicking\n-------\nin April\n"
    assert locations(text) == [
        ("Tea", "Tea\n===\nleaves\n\n"),
        ("Tea > Picking", "Picking\n-------\nin April\n"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "text\n\n---\n\nmore\n",
        "- item\n---\nmore\n",
        "* item\n---\nmore\n",
        "1. item\n---\nmore\n",
        "> quoted\n---\nmore\n",
        "| a |\n---\nmore\n",
        "a | b\n--- | ---\n1 | 2\n",
        "    code\n---\nmore\n",
        "===\nmore\n",
        "text\n\n===\nmore\n",
    ],
)
def test_lines_that_underline_nothing(locations, text):
    """Rules, the ends of lists and quotations, and tables are no headings."""
    assert locations(text) == []


@pytest.mark.parametrize(
    "front", ["title: Tea", "title: Tea\nauthor: Li", "# comment\ntitle: Tea", ""]
)
def test_front_matter_is_no_heading(locations, front):
    """What stands between two lines of --- at a page's very beginning describes the page and holds
    no heading.
    """
    assert _labels(locations(f"---\n{front}\n---\n\n# Real\ntext\n")) == ["Real"]


@pytest.mark.parametrize(
    ("front", "said"),
    [
        ("title: Tea", {"title": "Tea"}),
        ("title: 'Tea: a guide'  ", {"title": "Tea: a guide"}),
        ("标题: 绿茶 # note", {"标题": "绿茶"}),
        ("date: 2024-05-01\nweight: 010", {"date": "2024-05-01", "weight": "010"}),
        ("tags: [green, 'black', ]", {"tags": ["green", "black"]}),
        ("tags:\n- green\n  - black tea", {"tags": ["green", "black tea"]}),
        ("title:\nauthor: ''", {}),
        ("url: https://example.com/a:b", {"url": "https://example.com/a:b"}),
        ("a: b\nnested:\n  c: d\ntext: |\n  line\nref: *a\nmap: {a: b}\nlist: [[1]]", {"a": "b"}),
        ("people:\n- name: Li\n  age: 3", {}),
        ("no field", {}),
    ],
)
def test_front_matter_is_metadata(tmp_path, front, said):
    """Simple lines of front matter become metadata, as texts; what is nested is passed over, and
    the text keeps all.
    """
    text = f"---\n{front}\n---\n# Tea\n"
    (tmp_path / "a.md").write_bytes(text.encode())
    loaded = load_file(tmp_path / "a.md")
    assert loaded.text == text
    assert dict(loaded.metadata) == said


def test_an_encoding_that_was_found_out_is_metadata(tmp_path):
    """A page that is not in UTF-8 says in which encoding it was read."""
    for encoding, told in (
        ("gb18030", {"encoding": "gb18030"}),
        ("utf-16", {"encoding": "utf-16"}),
        ("utf-8", {}),
    ):
        (tmp_path / "a.md").write_bytes("# 绿茶是未经发酵的茶叶\n".encode(encoding))
        assert dict(load_file(tmp_path / "a.md").metadata) == told


@pytest.mark.parametrize(
    "fenced",
    [
        "```\n# no\n```",
        "```python\n# no\nx = 1\n```",
        "~~~\n# no\n~~~",
        "````\n```\n# no\n```\n# no\n````",
        "~~~\n```\n# no\n~~~",
        "```\n~~~\n# no\n```",
        "  ```\n  # no\n  ```",
        "```\n# no\n`````",
        "```\nno\n===\n```",
        "```\n# no\n``` python\n# no\n```",
        "1. step\n\n   ```sh\n   # no\n   ```",
    ],
)
def test_fenced_code_holds_no_headings(locations, fenced):
    """Lines that begin with # inside fenced code are code, until a fence of the same kind and
    length closes it.
    """
    assert _labels(locations(f"# Before\n\n{fenced}\n\n# After\n")) == ["Before", "After"]


def test_code_that_is_never_closed(locations):
    """A fence that nothing closes reaches to the end of the text."""
    assert _labels(locations("# Before\n\n```\n# no\n\n# no\n")) == ["Before"]


def test_inline_code_is_no_fence(locations):
    """Three backticks that close on the same line are inline code: headings behind them are
    headings.
    """
    assert _labels(locations("```x = 1``` sets it\n\n# After\n")) == ["After"]


def test_line_ends_of_windows(locations):
    """Lines that end with CR LF are read alike, and the places reach to the next heading's first
    character.
    """
    assert locations("# A\r\n```\r\n# no\r\n```\r\nB\r\n---\r\n") == [
        ("A", "# A\r\n```\r\n# no\r\n```\r\n"),
        ("A > B", "B\r\n---\r\n"),
    ]


def test_tables_and_all_marks_stay(tmp_path):
    """Tables, emphasis, links, pictures and HTML stay as they were written, byte for byte."""
    text = "| a | b |\n|---|:-:|\n| 1 | *2* |\n\n[link](http://x) ![p](p.png) <b>x</b> &amp; \\* 绿茶\U0001f375  \n\n\n"
    path = tmp_path / "page.md"
    path.write_bytes(text.encode())
    assert load_file(path).text == text


@pytest.mark.parametrize("suffix", [".md", ".markdown", ".MD"])
def test_suffixes(tmp_path, suffix):
    """Both suffixes of Markdown are read, in upper case, too."""
    path = tmp_path / f"page{suffix}"
    path.write_text("# 茶\n", encoding="gb18030")
    assert _labels([(location.label, "") for location in load_file(path).locations]) == ["茶"]


def test_a_hit_names_its_heading_and_lines(folder):
    """A node in a Markdown file says under which heading and on which lines it stands."""
    docs = Document(
        folder({"guide.md": "# Tea\n\nGreen tea.\n\n## Brewing\n\nNot too hot.\nThree minutes.\n"})
    )
    docs.create_node_group("block", transform=lambda text: text.split("\n\n"))
    placed = {node.text.strip(): node.location for node in docs.get_nodes("block")}
    assert placed == {
        "# Tea": "Tea, line 1",
        "Green tea.": "Tea, line 3",
        "## Brewing": "Tea > Brewing, line 5",
        "Not too hot.\nThree minutes.": "Tea > Brewing, lines 7-8",
    }


LINES = st.sampled_from(
    [
        "# A",
        "## B",
        "text",
        "",
        "```",
        "~~~",
        "===",
        "---",
        "    # code",
        "- item",
        "> q",
        "#x",
        "绿茶 # 茶",
        "\ufeff",
        "|a|",
    ]
)


@given(st.lists(LINES, max_size=30), st.sampled_from(["\n", "\r\n"]))
def test_text_is_untouched_and_places_cover_it(tmp_path_factory, lines, line_end):
    """The text is the file's, and from the first heading on the places cover it without gap or
    overlap.
    """
    text = line_end.join(["x", *lines, ""])
    path = tmp_path_factory.getbasetemp() / "property.md"
    path.write_bytes(text.encode())
    loaded = load_file(path)
    assert loaded.text == text
    starts = [location.start for location in loaded.locations]
    assert [location.end for location in loaded.locations] == (
        [*starts[1:], len(text)] if starts else []
    )
    for location in loaded.locations:
        assert location.start == 0 or text[location.start - 1] == "\n"
        assert location.label


@pytest.mark.parametrize(
    "text",
    [
        "---\r\n" + "key: value\r\n" * 5000,
        "# Title" + " " * 20_000 + "x",
        "# Title" + " #" * 20_000,
        "# " + "#" * 20_000 + " x",
    ],
    ids=["front matter without end", "spaces", "hashes", "a run of hashes"],
)
def test_no_text_takes_for_ever(folder, text):
    """Patterns that could match in many ways are tried in one only: a hostile text is read like any
    other.
    """
    [node] = Document(folder({"a.md": text})).get_nodes()
    assert node.text.strip() == text.strip()


@pytest.mark.parametrize(
    "markup",
    [
        "<!--\n# not\n-->",
        "<pre>\n# not\n</pre>",
        "<SCRIPT src='a'>\n# not\n</script>",
        "<style>a {}</style>",
        "<!-- # not -->",
    ],
)
def test_lines_of_html_are_no_headings(locations, markup):
    """A # in code of HTML or in a comment begins no heading; those behind it are there."""
    assert _labels(locations(f"# A\n{markup}\n# B\n")) == ["A", "B"]


def test_attributes_of_headings(locations):
    """The attributes behind a heading are no words of it; other braces are."""
    text = "# Tea { #tea }\n\nPicking {: .x}\n---\n\n### {a, b}\n\n### f{#x}\n"
    assert _labels(locations(text)) == [
        "Tea",
        "Tea > Picking",
        "Tea > Picking > {a, b}",
        "Tea > Picking > f{#x}",
    ]
