"""Rich Text: what its words mean, and that nothing of the page is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from striprtf.striprtf import rtf_to_text

from lazyrag.errors import LoadError
from lazyrag.loaders import load_file
from lazyrag.loaders.rtf import read_rtf
from tests.shared import shared

FONTS = rb"{\fonttbl{\f0\fnil Times;}{\f1\fcharset134 SimSun;}{\f2\fcharset128 MS Gothic;}{\f3\fcharset204 Arial;}}"


def text_of(body: bytes) -> str:
    """The text of a page with some fonts."""
    return read_rtf(rb"{\rtf1\ansi\ansicpg1252\deff0" + FONTS + body + b"}").text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (rb"green {\b te}a", "green tea"),
        (b"green\ntea", "greentea"),
        (b"green\\par\ntea\\par ", "green\ntea"),
        (rb"a\par\par\par b", "a\n\nb"),
        (rb"a\line b\tab c", "a\nb\tc"),
        (rb"\{a\\b\}", "{a\\b}"),
        (rb"a\~b\_c\-d", "a\xa0b-cd"),
        (rb"\lquote a\rquote\emdash\bullet \ldblquote b\rdblquote", "‘a’—•“b”"),
        (rb"Gr\'fcn \'80", "Grün €"),
        (rb"\f1 \'c2\'cc\'b2\'e8\f0  tea", "绿茶 tea"),
        (rb"{\f2\'97\'ce\'92\'83} {\f3\'f7\'e0\'e9}", "緑茶 чай"),
        (rb"\u32511?\u-26202?", "绿\u99a6"),
        (rb"\uc2\u32511\'c2\'cc\u33590\'b2\'e8.", "绿茶."),
        (rb"{\uc0\u32511}\u33590?", "绿茶"),
        (rb"\u-10179?\u-9099?", "\U0001f475"),
        (rb"see {\field{\*\fldinst HYPERLINK x}{\fldrslt the guide}}.", "see the guide."),
        (rb"a{\*\unknown b{\i c}}d", "ad"),
        (rb"a{\v hidden}{\deleted gone}b\v c\v0 d", "abd"),
        (rb"a{\pict\wmetafile8 0102}{\object{\*\objdata 01}{\result b}}", "ab"),
        (rb"{\header h}{\footerr f}a{\*\annotation c}", "a"),
        (b"a\\bin4 }{\\} b", "a b"),
        (rb"{\listtext\bullet\tab}first\par", "•\tfirst"),
        (
            rb"{\mmath{\*\moMathPara{\*\moMathParaPr{\mjc 1}}{\*\moMath{\mr a=b}}}}{\mmathPict no}",
            "a=b",
        ),
        (rb"{\shp{\*\shpinst\shpleft0{\sp{\sn x}{\sv y}}{\shptxt boxed}}{\shprslt old}}", "boxed"),
    ],
)
def test_words_and_characters(body, text):
    """Letters, escapes, encodings of fonts, fields and boxes give their text; what no reader sees
    gives none.
    """
    assert text_of(body) == text


def test_tables():
    """Rows are lines with | between the cells; paragraphs in a cell stay in it, and empty cells
    keep their place.
    """
    body = (
        rb"before\par\trowd\pard\intbl a\par b\cell\pard\intbl c\cell\row"
        rb"\trowd\pard\intbl\cell\pard\intbl d\cell\row\pard after\par"
    )
    assert text_of(body).split("\n") == ["before", "a b | c", " | d", "after"]


def test_nested_tables():
    """A table in a cell is part of its row."""
    body = (
        rb"\trowd\pard\intbl\itap2 a\nestcell b\nestcell{\*\nesttableprops\trowd\nestrow}{\nonesttables\par}"
        rb"\pard\intbl\itap1\cell\pard\intbl c\cell\row\pard"
    )
    assert text_of(body) == "a | b | c"


def test_what_mac_programs_write():
    """Fonts without groups of their own, paragraphs as line ends behind a backslash, words of
    links.
    """
    markup = (
        b"{\\rtf1\\ansi\\ansicpg1252\\cocoartf2577\n{\\fonttbl\\f0\\fswiss\\fcharset0 Helvetica;\\f1\\fcharset134 P;}\n"
        b"{\\colortbl;\\red255;}\n{\\*\\expandedcolortbl;;}\n\\pard\\tx566\n\n\\f0\\fs24 \\cf0 one\\\n\\\n"
        b"See: {\\field{\\*\\fldinst{HYPERLINK \"http://x.y\"}}{\\fldrslt there}} \\f1 \\'c2\\'cc\\\r\nend}"
    )
    assert read_rtf(markup).text == "one\n\nSee: there 绿\nend"


def test_footnotes_follow_the_text():
    """A footnote leaves its number where it is called, and its text follows at the end."""
    assert text_of(
        rb"tea{\super\chftn{\footnote\chftn  from {\i China}}} is\par green{\footnote yes}"
    ) == ("tea[1] is\ngreen[2]\n[1] from China\n[2] yes")


def test_footnotes_are_places():
    """Each footnote is a place of its own, behind those of the headings."""
    loaded = read_rtf(rb"{\rtf1\ansi{\pard\outlinelevel0 Tea\par}is\par green{\footnote yes}}")
    assert [
        (one.kind, one.label, loaded.text[one.start : one.end]) for one in loaded.locations
    ] == [
        ("heading", "Tea", "Tea\nis\ngreen[1]\n"),
        ("footnote", "1", "[1] yes"),
    ]


def test_headings_and_properties():
    """Paragraphs in styles of headings, or with a level, make places; title, author and subject
    become metadata.
    """
    loaded = read_rtf(
        rb"{\rtf1\ansi{\stylesheet{\s0 Normal;}{\s1 heading 1;}{\s2\outlinelevel1 Mine;}}"
        rb"{\info{\title Gr\'fcner Tee}{\author \u26446?}{\creatim\yr2024}{\keywords no}}"
        rb"\pard\s1 Tea\par\pard leaves\par\pard\s2 {\b Pick}ing\par\pard in April\par{\pard\outlinelevel0 Coffee\par}}"
    )
    assert [
        (location.label, loaded.text[location.start : location.end])
        for location in loaded.locations
    ] == [
        ("Tea", "Tea\nleaves\n"),
        ("Tea > Picking", "Picking\nin April\n"),
        ("Coffee", "Coffee"),
    ]
    assert dict(loaded.metadata) == {"title": "Grüner Tee", "author": "李"}


@pytest.mark.shared
def test_a_real_file():
    """The shared file is read with its heading and its table."""
    loaded = load_file(shared("data", "docs", "fake-doc.rtf"))
    assert loaded.text.splitlines()[-2:] == [
        "Row 1, Cell 1 | Row 1, Cell 2",
        "Row 2, Cell 1 | Row 2, Cell 2",
    ]
    assert [location.label for location in loaded.locations] == ["My First Heading"]


def test_what_is_no_rich_text_is_reported(tmp_path):
    """A file of another format fails and says what to do."""
    (tmp_path / "a.rtf").write_bytes(b"plain")
    with pytest.raises(LoadError, match=r"Save it again as \.rtf"):
        load_file(tmp_path / "a.rtf")


def test_groups_in_groups_end():
    """Groups that nest a million deep end as one error."""
    with pytest.raises(LoadError, match="nested deeper"):
        read_rtf(b"{\\rtf1" + b"{" * 1_000_000)


def escaped(text: str) -> str:
    """Text as programs write it into Rich Text."""
    units = text.encode("utf-16-le")
    codes = [int.from_bytes(units[at : at + 2], "little") for at in range(0, len(units), 2)]
    return "".join(
        chr(code) if 48 <= code < 91 else f"\\u{code - 65536 if code > 32767 else code}?"
        for code in codes
    )


WORDS = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=12
)


@given(st.lists(WORDS, min_size=1, max_size=6))
def test_every_character_comes_back(words):
    """Words in any script, written as escapes in paragraphs, are read character by character."""
    body = "\\par ".join(map(escaped, words))
    assert read_rtf(("{\\rtf1\\ansi " + body + "}").encode()).text.split("\n") == words


@given(st.lists(st.text("abcXYZ 0189.,", min_size=1, max_size=12), min_size=1, max_size=6))
def test_words_agree_with_another_reader(words):
    """striprtf finds the same words in paragraphs, groups and tables."""
    body = "".join(rf"{{\b {word}}}\par\trowd\pard\intbl {word}\cell\row\pard " for word in words)
    markup = r"{\rtf1\ansi " + body + "}"
    ours = read_rtf(markup.encode()).text.replace("|", " ").split()
    assert ours == rtf_to_text(markup).replace("|", " ").split()


def test_symbols():
    """Codes of a symbol font are the characters that are shown."""
    fonts = rb"{\fonttbl{\f0 Arial;}{\f1\fnil\fcharset2 Symbol;}{\f2\fcharset2 Wingdings;}}"
    body = rb"\f0 dose {\f1\'b3 m} {\f1\u-3917?} {\f2\'e0} m"
    assert read_rtf(rb"{\rtf1\ansi" + fonts + body + b"}").text == "dose ≥ μ ≥ → m"
