"""Org and AsciiDoc: text without marks, headings as places, tables, code and metadata."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.data.tables import FoundTable
from lazyrag.loaders import load_file
from lazyrag.loaders.markup import AsciidocLoader, OrgLoader

CODE = '  def x():\n\n      return "*not bold*"'


@pytest.fixture
def read(tmp_path):
    """A function from a text and its suffix to the loaded file."""

    def load(text, suffix):
        path = tmp_path / f"page{suffix}"
        path.write_bytes(text.encode())
        return load_file(path)

    return load


def _labels(loaded):
    return [location.label for location in loaded.locations]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("*bold* /slanted/ _under_ =code *x*= ~v~ +gone+", "bold slanted under code *x* v gone"),
        ("a/b/c 2*3*4 snake_case_name a = b = c", "a/b/c 2*3*4 snake_case_name a = b = c"),
        ("*bold /and slanted/*", "bold and slanted"),
        ("[[https://a.b][the site]] [[file:c.org]]", "the site file:c.org"),
        ("a[fn:1] b[fn:: aside]", "a[1] b (aside)"),
        (r"\(\frac{1}{2} \alpha\)", "1/2 α"),
        ("a <<here>>b", "a hereb"),
        (": fixed  *width*", "fixed  *width*"),
        ("*bold\nwords* [[a][a long\nlink]]", "bold\nwords a long\nlink"),
        ("press {{{kbd(C-c)}}}", "press C-c"),
        ("- [ ] to do", "- [ ] to do"),
        ("#tag is no comment", "#tag is no comment"),
        ("#+no keyword", "#+no keyword"),
    ],
)
def test_marks_of_org_are_left_out(read, line, text):
    """Marks inside of words, or alone, are no marks."""
    assert read(line, ".org").text == text


def test_an_org_file_has_sections_and_metadata(read):
    """Comments and property drawers are left out, tags and states of headings stay."""
    loaded = read(
        "#+TITLE: Tea & *water*\n#+AUTHOR: Lu Yu\n#+DATE: 2024\n#+KEYWORDS: green\n# no\n"
        "* TODO [#A] Brewing   :hot:cup:\n:PROPERTIES:\n:ID: x1\n:END:\ntext\n"
        "#+begin_comment\nno\n#+end_comment\n** 茶\n#+BEGIN_QUOTE\n/quoted/\n#+END_QUOTE\n* End\n",
        ".org",
    )
    assert loaded.text == ("Tea & water\n\nTODO Brewing\n\nTags: hot, cup\ntext\n茶\n\nquoted\nEnd")
    title = "Tea & water"
    assert _labels(loaded) == [
        title, f"{title} > TODO Brewing", f"{title} > TODO Brewing > 茶", f"{title} > End",
    ]  # fmt: skip
    assert loaded.metadata == {"title": title, "author": "Lu Yu", "date": "2024"}
    assert loaded.fields["keywords"] == "green"


def test_blocks_of_org_without_an_end_lose_nothing(read):
    """A comment or a drawer that nothing ends is text."""
    assert read("#+begin_comment\nTea\n:PROPERTIES:\n:ID: 7\n", ".org").text == (
        "Tea\n:PROPERTIES:\n:ID: 7"
    )


def test_org_tables_are_rows_and_data(read):
    """The rows above the first rule are the header, formulas are left out."""
    loaded = read(
        "#+CAPTION: Prices\n| tea | *EUR* |\n|-----+-------|\n| green | 4 |\n| [[a][black]] | 5 |\n"
        "#+TBLFM: $2=1\nafter",
        ".org",
    )
    assert loaded.text == "Prices\ntea | EUR\ngreen | 4\nblack | 5\nafter"
    [place] = loaded.tables
    table = FoundTable.read(place.label)
    assert (table.names, table.rows) == (("tea", "EUR"), (("green", "4"), ("black", "5")))


@pytest.mark.parametrize(
    ("suffix", "source"),
    [
        (".org", f"a\n#+BEGIN_SRC python\n{CODE}\n#+END_SRC\nb"),
        (".adoc", f"a\n\n[source,python]\n----\n{CODE}\n----\nb"),
        (".asciidoc", f"a\n\n```python\n{CODE}\n```\nb"),
    ],
)
def test_code_keeps_its_indentation_and_marks(read, suffix, source):
    """Also its empty lines."""
    assert read(source, suffix).text.replace("\n\n  def", "\n  def") == f"a\n{CODE}\nb"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("*bold* _slanted_ `code *x*` #mark# **two**", "bold slanted code *x* mark two"),
        ("a*b*c 2*3*4 snake_case_name C++ and C++", "a*b*c 2*3*4 snake_case_name C++ and C++"),
        ("https://a.b[the site] link:c.html[C] link:d.html[]", "the site C d.html"),
        ("<<a,see above>> <<b>> xref:c[C]", "see above b C"),
        ("image::leaf.png[A tea leaf]", "[Image: A tea leaf]"),
        ("a footnote:[Aside.] kbd:[Ctrl] stem:[\\frac{a}{b}]", "a  (Aside.) Ctrl a/b"),
        (":lib: LazyRAG\n{lib} and {unknown}", "LazyRAG and {unknown}"),
        ("// no\nyes ((term)) (((hidden, term)))", "yes ((term)) "),
        ("hard +\nbreak", "hard\nbreak"),
        ("*bold\nwords* https://a.b[a long\nlink]", "bold\nwords a long\nlink"),
        ("image:https://a.b/c.png[A leaf,link=d]", "[Image: A leaf]"),
        ("* a\n** b\n. c\n. d\n.. e\n. f", "- a\n   - b\n1. c\n2. d\n   1. e\n3. f"),
        ("[NOTE]\n====\nInside.\n====", "NOTE:\nInside."),
        ("[quote, Lu Yu]\n____\nGood.\n____", "Lu Yu:\nGood."),
        ("include::b.adoc[]", "include::b.adoc[]"),
        ("ifdef::x[]\nyes\nendif::[]", "yes"),
        ("////\nno\n////\nyes\n////\nopen", "yes\nopen"),
    ],
)
def test_marks_of_asciidoc_are_left_out(read, line, text):
    """Marks inside of words, or alone, are no marks."""
    assert read(line, ".adoc").text.strip() == text.strip()


def test_an_asciidoc_file_has_sections_and_metadata(read):
    """Titles with marks before them or a line below; the header becomes metadata."""
    loaded = read(
        "= Tea Guide\nLu Yu <lu@tea.cn>; Ann B\nv1.2, 2024-01-05: first\n:toc:\n:keywords: green\n\n"
        "Preamble.\n\n[[brew]]\n== Brewing *green* tea ==\n\nPicking\n-------\n\n### 茶\n\nleaves\n",
        ".adoc",
    )
    title = "Tea Guide"
    assert _labels(loaded) == [
        title, f"{title} > Brewing green tea", f"{title} > Picking", f"{title} > Picking > 茶",
    ]  # fmt: skip
    assert loaded.metadata == {"title": title, "author": "Lu Yu, Ann B", "date": "2024-01-05"}
    assert loaded.fields["keywords"] == "green"
    assert loaded.text.split() == (
        "Tea Guide Preamble. Brewing green tea Picking 茶 leaves".split()
    )


def test_asciidoc_tables_are_rows_and_data(read):
    """Cells on lines of their own, spans, escaped bars, and a table that nothing ends."""
    loaded = read(
        '.Prices\n[cols="1,2",options="header"]\n|===\n|tea |EUR\n\n|green\n|4\n.2+|black | a\\|b\n|*5*\n|===\n'
        "\n|===\n|x |y\n\n|1 |2",
        ".adoc",
    )
    assert loaded.text.split("\n\n") == [
        "Prices\ntea | EUR\ngreen | 4\nblack | a|b\nblack | 5", "x | y\n1 | 2",
    ]  # fmt: skip
    first, second = (FoundTable.read(place.label) for place in loaded.tables)
    assert first.names == ("tea", "EUR")
    assert first.rows == (("green", "4"), ("black", "a|b"), ("black", "5"))
    assert (second.names, second.rows) == (("x", "y"), (("1", "2"),))


WORD = st.text(string.ascii_letters + "茶é", min_size=1, max_size=6)
PIECES = st.sampled_from(
    ["*", "/", "_", "=", "~", "+", "`", "#", "|", "||", "|===", "[[", "]]", "][", "[fn:", "]", "::", ":", "----",
     "====", "////", "#+begin_src", "#+end_src", "#+begin_comment", "#+title:", "* ", "= ", ". ", "\n", "\n\n", " ",
     "2+|",
     "3*|", "[cols=", "https://a[", "link:", "<<", ">>", ",", "\\(", "\\)", "\\frac", "{a}", ":a: ", "--", "+++", "茶"]
)  # fmt: skip


@pytest.mark.parametrize(("loader", "suffix"), [(OrgLoader, ".org"), (AsciidocLoader, ".adoc")])
@given(source=st.lists(PIECES | WORD, max_size=40).map("".join))
def test_any_marks_in_any_order_are_a_text(tmp_path_factory, loader, suffix, source):
    """No order of marks raises, and places are within the text."""
    path = tmp_path_factory.mktemp("markup") / f"page{suffix}"
    path.write_bytes(source.encode())
    loaded = loader().load(path)
    for location in (*loaded.locations, *loaded.tables):
        assert 0 <= location.start <= location.end <= len(loaded.text)


SHAPES = {
    ".org": ["* {}", "text {} end", "*{}*", "- {}", "| {} | x |", "[[a][{}]]", ": {}", "[fn:: {}]"],
    ".adoc": ["== {}", "text {} end", "*{}*", "* {}", ". {}", ".{}", "https://a[{}]", "----\n{}\n----",
              "|===\n|{}\n|==="],
}  # fmt: skip


@pytest.mark.parametrize("suffix", SHAPES)
@given(data=st.data())
def test_words_are_never_lost(tmp_path_factory, suffix, data):
    """Whatever stands around them, in any order, words are in the text."""
    lines = data.draw(st.lists(st.tuples(st.sampled_from(SHAPES[suffix]), WORD), min_size=1))
    path = tmp_path_factory.mktemp("words") / f"page{suffix}"
    path.write_text("\n".join(shape.format(word) for shape, word in lines), encoding="utf-8")
    text = load_file(path).text
    assert all(word in text for _, word in lines)
