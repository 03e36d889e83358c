"""Word documents: all that a reader sees, once, in the order of the body."""

from __future__ import annotations

import datetime as dt
import io
import re
import zipfile

import docx
import pytest
from docx.enum.style import WD_STYLE_TYPE
from docx.enum.text import WD_BREAK
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml
from docx.oxml.ns import qn

from lazyrag import Document
from lazyrag.errors import LoadError
from lazyrag.loaders import load_file
from lazyrag.loaders.word import DocxLoader, _chinese, letters, roman
from tests.shared import shared

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
NAMESPACES = (
    f'xmlns:w="{W}" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape" '
    'xmlns:v="urn:schemas-microsoft-com:vml" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
)


class Word:
    """A Word document under construction."""

    def __init__(self):
        """Begin an empty document without an author."""
        self.document = docx.Document()
        self.document.core_properties.author = ""

    def paragraph(self, text: str = "", style: str | None = None):
        """Add a paragraph."""
        return self.document.add_paragraph(text, style)

    def xml(self, markup: str) -> None:
        """Add WordprocessingML to the body, before its closing section properties."""
        body = self.document.element.body
        declared = re.sub(r"^<[\w:]+", lambda tag: f"{tag[0]} {NAMESPACES}", markup)
        body.insert(len(body) - 1, parse_xml(declared))

    def table(self, rows: list[list[str]]):
        """Add a table."""
        table = self.document.add_table(len(rows), len(rows[0]))
        for row, texts in zip(table.rows, rows, strict=True):
            for cell, text in zip(row.cells, texts, strict=True):
                cell.text = text
        return table


@pytest.fixture
def word():
    """An empty Word document to fill."""
    return Word()


@pytest.fixture
def load(tmp_path):
    """A function that saves a Word document and loads it."""

    def saved_and_loaded(word: Word):
        word.document.save(tmp_path / "file.docx")
        return load_file(tmp_path / "file.docx")

    return saved_and_loaded


def run(text: str) -> str:
    """A run of text as XML."""
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(text: str) -> str:
    """A paragraph as XML."""
    return f"<w:p>{run(text)}</w:p>"


def cell(inside: str, properties: str = "") -> str:
    """A table's cell as XML."""
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{inside}</w:tc>"


def test_body_order_with_tables_between_paragraphs(word, load):
    """Paragraphs and tables come in the order of the body, rows on lines with | between the
    cells.
    """
    word.paragraph("before")
    word.table([["tea", "price"], ["green", "10"]])
    word.paragraph("between")
    word.table([["red", "20"]])
    word.paragraph("after")
    assert load(word).text.splitlines() == [
        "before",
        "tea | price",
        "green | 10",
        "between",
        "red | 20",
        "after",
    ]


def test_paragraphs_of_a_cell_are_folded_into_its_row(word, load):
    """A cell's paragraphs and line breaks stand on its row's line, in order, words kept apart."""
    table = word.table([["one", "two"]])
    table.cell(0, 0).add_paragraph("more")
    table.cell(0, 1).paragraphs[0].add_run().add_break()
    table.cell(0, 1).paragraphs[0].add_run("below")
    assert load(word).text.strip() == "one more | two below"


def test_rows_without_text_are_left_out(word, load):
    """An empty row leaves no line of marks, an empty cell between others keeps its place."""
    word.table([["a", "", "c"], ["", "", ""], ["d", "e", "f"]])
    assert [line for line in load(word).text.splitlines() if line] == ["a |  | c", "d | e | f"]


def test_nested_tables(word, load):
    """A table inside a cell is read inside that cell, each of its texts once, and adds no columns
    to the outer one.
    """
    table = word.table([["outer a", "outer b"], ["outer c", "outer d"]])
    inner = table.cell(0, 1).add_table(2, 2)
    for number, one in enumerate(one for row in inner.rows for one in row.cells):
        one.text = f"inner {number}"
    text = load(word).text
    assert [line for line in text.splitlines() if line] == [
        "outer a | outer b inner 0, inner 1; inner 2, inner 3",
        "outer c | outer d",
    ]


def test_merged_cells_keep_their_columns(word, load):
    """The text of cells merged across columns or rows stands in each column and row that they
    cover.
    """
    table = word.table([["a", "b", "c"], ["d", "e", "f"], ["g", "h", "i"]])
    table.cell(0, 0).merge(table.cell(0, 1)).text = "across"
    table.cell(1, 2).merge(table.cell(2, 2)).text = "down"
    assert load(word).text.strip().splitlines() == [
        "across | across | c",
        "d | e | down",
        "g | h | down",
    ]


def test_content_controls(word, load):
    """Text in content controls is read, around paragraphs, in paragraphs, around cells and around
    tables.
    """
    control = (
        "<w:sdt><w:sdtPr><w:alias w:val='unseen'/></w:sdtPr><w:sdtContent>{}</w:sdtContent></w:sdt>"
    )
    word.xml(control.format(paragraph("block")))
    word.xml(f"<w:p>{run('before ')}{control.format(run('inline'))}{run(' after')}</w:p>")
    word.xml(
        f"<w:tbl><w:tr>{cell(paragraph('a'))}{control.format(cell(paragraph('b')))}</w:tr></w:tbl>"
    )
    word.xml(
        control.format(f"<w:tbl><w:tr>{cell(paragraph('c'))}{cell(paragraph('d'))}</w:tr></w:tbl>")
    )
    word.xml(control.format(control.format(paragraph("nested"))))
    assert load(word).text.split("\n") == [
        "block",
        "before inline after",
        "a | b",
        "c | d",
        "nested",
    ]


def test_content_controls_around_rows(word, load):
    """Rows inside a content control, as in a repeating section, stand on lines of their own."""
    rows = "".join(
        f"<w:tr>{cell(paragraph(text + '1'))}{cell(paragraph(text + '2'))}</w:tr>" for text in "ab"
    )
    word.xml(f"<w:tbl><w:sdt><w:sdtContent>{rows}</w:sdtContent></w:sdt></w:tbl>")
    assert load(word).text == "a1 | a2\nb1 | b2"


@pytest.mark.parametrize("wrapper", ["w:smartTag", "w:customXml"])
def test_tags_around_text(word, load, wrapper):
    """Text inside smart tags and custom XML is read, in paragraphs and around them."""
    word.xml(f"<w:p>{run('in ')}<{wrapper}>{run('April')}</{wrapper}></w:p>")
    word.xml(f"<w:customXml>{paragraph('around')}</w:customXml>")
    assert load(word).text == "in April\naround"


def test_hyperlinks_and_fields(word, load):
    """The words of links and of fields are read where they stand; addresses and instructions are
    not.
    """
    field = "<w:r><w:fldChar w:fldCharType='{}'/></w:r>"
    word.xml(
        f"<w:p>{run('see ')}<w:hyperlink r:id='rId99' w:anchor='x'>{run('the ')}{run('guide')}</w:hyperlink>"
        f"{run(', page ')}{field.format('begin')}<w:r><w:instrText> PAGEREF x </w:instrText></w:r>"
        f"{field.format('separate')}{run('7')}{field.format('end')}"
        f"<w:fldSimple w:instr='DATE'>{run(' today')}</w:fldSimple></w:p>"
    )
    assert load(word).text == "see the guide, page 7 today"


def test_tracked_changes(word, load):
    """Insertions and what was moved here are read, deletions and what was moved away are not."""
    change = "w:id='1' w:author='x' w:date='2024-05-01T00:00:00Z'"
    word.xml(
        f"<w:p>{run('green ')}<w:ins {change}>{run('fresh ')}</w:ins>"
        f"<w:del {change}><w:r><w:delText>old </w:delText></w:r></w:del>"
        f"<w:moveFrom {change}>{run('gone ')}</w:moveFrom><w:moveTo {change}>{run('here ')}</w:moveTo>"
        f"{run('tea')}</w:p>"
    )
    word.xml(f"<w:p><w:del {change}>{run('all of it')}</w:del></w:p>")
    word.xml(
        f"<w:p><w:pPr><w:rPr><w:ins {change}/></w:rPr></w:pPr><w:ins {change}>{run('new line')}</w:ins></w:p>"
    )
    assert load(word).text.split("\n") == ["green fresh here tea", "", "new line"]


def text_box(inside: str) -> str:
    """A run that holds a text box, with the older copy for older programs."""
    new = (
        "<w:drawing><wp:anchor><a:graphic><a:graphicData uri='x'><wps:wsp><wps:txbx><w:txbxContent>"
        f"{inside}</w:txbxContent></wps:txbx></wps:wsp></a:graphicData></a:graphic></wp:anchor></w:drawing>"
    )
    old = f"<w:pict><v:shape><v:textbox><w:txbxContent>{inside}</w:txbxContent></v:textbox></v:shape></w:pict>"
    return (
        f"<w:r><mc:AlternateContent><mc:Choice Requires='wps'>{new}</mc:Choice><mc:Fallback>{old}</mc:Fallback>"
        "</mc:AlternateContent></w:r>"
    )


def test_text_boxes_are_read_once(word, load):
    """A text box's paragraphs come behind the paragraph that holds it, once, although the file
    holds them twice.
    """
    word.xml(
        f"<w:p>{run('before ')}{text_box(paragraph('in the box') + paragraph('second'))}{run('after')}</w:p>"
    )
    word.paragraph("next")
    assert load(word).text.split("\n") == ["before after", "in the box", "second", "next"]


def test_text_boxes_of_older_programs(word, load):
    """A text box that is only there in the older form is read, too."""
    content = f"<w:txbxContent>{paragraph('old box')}</w:txbxContent>"
    box = f"<w:pict><v:shape><v:textbox>{content}</v:textbox></v:shape></w:pict>"
    word.xml(f"<w:p>{run('text')}<w:r>{box}</w:r></w:p>")
    assert load(word).text.split("\n") == ["text", "old box"]


def test_tables_in_text_boxes_and_text_boxes_in_tables(word, load):
    """Text boxes and tables that hold each other lose nothing and repeat nothing."""
    inner = f"<w:tbl><w:tr>{cell(paragraph('a'))}{cell(paragraph('b'))}</w:tr></w:tbl>"
    word.xml(f"<w:p>{text_box(inner + paragraph('c'))}</w:p>")
    word.xml(
        f"<w:tbl><w:tr>{cell('<w:p>' + run('d') + text_box(paragraph('e')) + '</w:p>')}</w:tr></w:tbl>"
    )
    assert load(word).text.split() == ["a", "|", "b", "c", "d", "e"]


def test_tabs_breaks_and_special_hyphens(word, load):
    """Tabs, line breaks and hard hyphens become their characters; words around a page break stay
    apart.
    """
    one = word.paragraph("a")
    one.add_run("\tb")
    one.add_run().add_break()
    one.add_run("c")
    one.add_run().add_break(WD_BREAK.PAGE)
    one.add_run("d")
    word.xml(f"<w:p>{run('e')}<w:r><w:noBreakHyphen/></w:r>{run('mail')}</w:p>")
    assert load(word).text == "a\tb\nc\nd\ne-mail"


def test_formulas(word, load):
    """The letters of formulas are read where they stand."""
    word.xml(f"<w:p>{run('area ')}<m:oMath><m:r><m:t>a·b</m:t></m:r></m:oMath>{run('.')}</w:p>")
    assert load(word).text == "area a·b."


def test_words_split_over_runs_stay_whole(word, load):
    """Word cuts words into runs anywhere; no space comes between them, and none of theirs is
    lost.
    """
    one = word.paragraph("gr")
    one.add_run("ee").bold = True
    one.add_run("n tea, ")
    one.add_run("绿").italic = True
    one.add_run("茶")
    assert load(word).text == "green tea, 绿茶"


def define_list(word: Word, key: int, *levels: str, override: str = "") -> None:
    """Add a definition of a list, its levels as ``decimal %1.``, and a list of that definition."""
    inside = "".join(
        f"<w:lvl w:ilvl='{depth}'><w:start w:val='1'/><w:numFmt w:val='{form}'/><w:lvlText w:val='{text}'/></w:lvl>"
        for depth, (form, text) in enumerate(level.split(" ", 1) for level in levels)
    )
    numbering = word.document.part.numbering_part.element
    numbering.append(
        parse_xml(f"<w:abstractNum {NAMESPACES} w:abstractNumId='{key}'>{inside}</w:abstractNum>")
    )
    numbering.append(
        parse_xml(
            f"<w:num {NAMESPACES} w:numId='{key}'><w:abstractNumId w:val='{key}'/>{override}</w:num>"
        )
    )


def item(text: str, depth: int, key: int) -> str:
    """A paragraph of a list."""
    numbered = f"<w:numPr><w:ilvl w:val='{depth}'/><w:numId w:val='{key}'/></w:numPr>"
    return f"<w:p><w:pPr>{numbered}</w:pPr>{run(text) if text else ''}</w:p>"


def test_lists_are_numbered_as_word_numbers_them(word, load):
    """Levels are counted each for itself, begin anew below a new one above, and go on behind what
    is no item.
    """
    define_list(word, 90, "decimal %1.", "decimal %1.%2", "lowerLetter (%3)")
    for depth, text in ((0, "a"), (1, "b"), (1, "c"), (2, "d"), (0, "e"), (1, "f"), (0, "")):
        word.xml(item(text, depth, 90))
    word.paragraph("between")
    word.xml(item("g", 2, 90))
    word.xml(f"<w:tbl><w:tr>{cell(item('h', 0, 90))}{cell(item('i', 1, 90))}</w:tr></w:tbl>")
    lines = [
        "1. a",
        "1.1 b",
        "1.2 c",
        "(a) d",
        "2. e",
        "2.1 f",
        "",
        "between",
        "(a) g",
        "3. h | 3.1 i",
    ]
    assert load(word).text.split("\n") == lines


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("form", "marks"),
    [
        ("decimal %1)", ["1) ", "2) ", "3) ", "4) "]),
        ("decimalZero %1", ["01 ", "02 ", "03 ", "04 "]),
        ("upperRoman 第%1条", ["第I条 ", "第II条 ", "第III条 ", "第IV条 "]),
        ("lowerRoman %1", ["i ", "ii ", "iii ", "iv "]),
        ("upperLetter %1", ["A ", "B ", "C ", "D "]),
        ("chineseCounting %1、", ["一、 ", "二、 ", "三、 ", "四、 "]),
        ("bullet \uf0b7", ["• "] * 4),
        ("none %1", [""] * 4),
        ("somethingNew %1.", ["1. ", "2. ", "3. ", "4. "]),
    ],
)
def test_forms_of_numbers(word, load, form, marks):
    """Numbers are written in the form of their list; bullets, which stand in fonts of symbols, as
    one mark.
    """
    define_list(word, 90, form)
    for _ in marks:
        word.xml(item("x", 0, 90))
    assert load(word).text.split("\n") == [f"{mark}x" for mark in marks]


def test_a_list_that_begins_anew(word, load):
    """Two lists of one definition count on, unless the second says where it begins."""
    define_list(word, 90, "decimal %1.")
    numbering = word.document.part.numbering_part.element
    for key, inside in (
        (91, ""),
        (92, "<w:lvlOverride w:ilvl='0'><w:startOverride w:val='5'/></w:lvlOverride>"),
    ):
        numbering.append(
            parse_xml(
                f"<w:num {NAMESPACES} w:numId='{key}'><w:abstractNumId w:val='90'/>{inside}</w:num>"
            )
        )
    for key in (90, 91, 92, 92):
        word.xml(item("x", 0, key))
    assert load(word).text.split("\n") == ["1. x", "2. x", "5. x", "6. x"]


def test_numbers_of_styles(word, load):
    """Styles of lists number their paragraphs; a number of 0 takes it off; headings keep their
    number in the label.
    """
    word.paragraph("a", "List Number")
    word.paragraph("b", "List Bullet")
    word.xml(
        f"<w:p><w:pPr><w:pStyle w:val='ListNumber'/><w:numPr><w:numId w:val='0'/></w:numPr></w:pPr>{run('c')}</w:p>"
    )
    word.paragraph("d", "List Number")
    define_list(word, 90, "decimal %1.")
    numbered = "<w:pStyle w:val='Heading1'/><w:numPr><w:numId w:val='90'/></w:numPr>"
    word.xml(f"<w:p><w:pPr>{numbered}</w:pPr>{run('Scope')}</w:p>")
    loaded = load(word)
    assert loaded.text.split("\n") == ["1. a", "• b", "c", "2. d", "1. Scope"]
    assert [location.label for location in loaded.locations] == ["1. Scope"]


@pytest.mark.parametrize(
    ("number", "written", "chinese"),
    [(1, "a", "一"), (26, "z", "二十六"), (27, "aa", "二十七"), (110, "fffff", "一一零")],
)
def test_large_numbers(number, written, chinese):
    """Letters are doubled behind z; Chinese numbers have their tens up to 99."""
    assert (letters(number), _chinese(number)) == (written, chinese)
    assert (_chinese(10), _chinese(20), _chinese(0), roman(1994)) == (
        "十",
        "二十",
        "零",
        "mcmxciv",
    )


def _formula(inside: str) -> str:
    """A paragraph that holds a formula."""
    return f"<w:p><m:oMath>{inside}</m:oMath></w:p>"


def _m(name: str, **parts: str) -> str:
    """A part of a formula, its own parts by name, letters in runs."""
    inside = "".join(
        f"<m:{key}>{part if '<' in part else _r(part)}</m:{key}>" for key, part in parts.items()
    )
    return f"<m:{name}>{inside}</m:{name}>"


def _r(text: str) -> str:
    """Letters of a formula."""
    return f"<m:r><m:t>{text}</m:t></m:r>"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("inside", "text"),
    [
        (_m("f", num="a", den="b+c"), "a/(b+c)"),
        (_m("sSup", e="10", sup="-4"), "10^(-4)"),
        (_m("sSub", e="x", sub="i") + _m("sSubSup", e="y", sub="1", sup="2"), "x_iy_1^2"),
        (_m("rad", deg="", e="x+1") + _m("rad", deg="3", e="2"), "sqrt(x+1)2^(1/3)"),
        (_m("nary", sub="i=1", sup="n", e="i"), "∫_(i=1)^n i"),
        (
            '<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr>' + f"<m:e>{_r('k')}</m:e></m:nary>",
            "∑ k",
        ),
        (
            '<m:d><m:dPr><m:begChr m:val="["/><m:endChr m:val=""/></m:dPr><m:e>'
            + _r("a")
            + "</m:e></m:d>",
            "[a",
        ),
        (_m("func", fName="sin", e="x") + _m("limLow", e="lim", lim="x→0"), "sinxlim_(x→0)"),
        (
            "<m:m><m:mr>" + f"<m:e>{_r('1')}</m:e><m:e>{_r('0')}</m:e>" + "</m:mr><m:mr/></m:m>",
            "1, 0; ",
        ),
        (_m("f", num=_m("f", num="1", den="2"), den="3"), "(1/2)/3"),
    ],
)
def test_parts_of_formulas(word, load, inside, text):
    """Fractions, powers, indices, roots, sums, brackets and matrices are written as one types them
    on a line.
    """
    word.paragraph("before")
    word.xml(_formula(inside))
    assert load(word).text.split("\n")[1] == text


@pytest.mark.parametrize("depth", [50, 118])
def test_a_formula_that_is_nested_too_deep_costs_itself(word, load, depth):
    """Its letters are read, and so is the text around it."""
    inside = "<m:f><m:num>" * depth + "<m:r><m:t>x</m:t></m:r>" + "</m:num></m:f>" * depth
    word.xml(f"<w:p>{run('before ')}<m:oMath>{inside}</m:oMath>{run(' after')}</w:p>")
    text = load(word).text
    assert text.startswith("before ")
    assert "x" in text
    assert text.endswith(" after")


@pytest.mark.shared
def test_a_real_formula():
    """The shared file's formulas keep their fractions and powers."""
    text = load_file(shared("data", "docs", "equations.docx")).text
    assert "=2.2×10^(-4)" in text
    assert "From Eq. 36.1.3,\na/λ=m/" in text


def with_part(word: Word, kind: str, inside: str) -> None:
    """Add a part that the document refers to."""
    name = {"footnotes": "footnote", "endnotes": "endnote"}[kind]
    separator = f"<w:{name} w:id='0' w:type='separator'>{paragraph('---')}</w:{name}>"
    blob = f"<w:{kind} {NAMESPACES}>{separator}{inside}</w:{kind}>"
    part = Part(
        PackURI(f"/word/{kind}.xml"), "application/xml", blob.encode(), word.document.part.package
    )
    word.document.part.relate_to(
        part, f"http://schemas.openxmlformats.org/officeDocument/2006/relationships/{kind}"
    )


def call(name: str, key: str) -> str:
    """A run that calls a note."""
    return f"<w:r><w:{name}Reference w:id='{key}'/></w:r>"


def test_footnotes_and_endnotes(word, load):
    """Notes are numbered as they are called, in tables too, and follow the text as places of their
    own.
    """
    itself = call("footnote", "2")
    with_part(
        word,
        "footnotes",
        f"<w:footnote w:id='2'><w:p><w:r><w:footnoteRef/></w:r>{run(' from ')}{run('China')}{itself}</w:p>"
        f"{paragraph('and Japan')}</w:footnote><w:footnote w:id='3'>{paragraph('never called')}</w:footnote>",
    )
    with_part(word, "endnotes", f"<w:endnote w:id='1'>{paragraph('see there')}</w:endnote>")
    word.document.add_heading("Tea", 1)
    word.xml(
        f"<w:tbl><w:tr>{cell('<w:p>' + run('cell') + call('endnote', '1') + '</w:p>')}</w:tr></w:tbl>"
    )
    word.xml(
        f"<w:p>{run('leaves')}{call('footnote', '2')}{run(' are green')}{call('footnote', '9')}</w:p>"
    )
    loaded = load(word)
    lines = [
        "Tea",
        "cell[1]",
        "leaves[2] are green[3]",
        "[1] see there",
        "[2] from China[4] and Japan",
    ]
    assert loaded.text.split("\n") == lines
    assert [
        (one.kind, one.label, loaded.text[one.start : one.end]) for one in loaded.locations
    ] == [
        ("heading", "Tea", "Tea\ncell[1]\nleaves[2] are green[3]\n"),
        ("footnote", "1", lines[3]),
        ("footnote", "2", lines[4]),
    ]


def test_comments_if_they_are_wanted(word, tmp_path):
    """Comments follow the text as places, each with who wrote it."""
    word.document.add_comment(
        word.paragraph("body").runs, text="really?", author="Li", initials="L"
    )
    word.document.save(tmp_path / "a.docx")
    loaded = DocxLoader(comments=True).load(tmp_path / "a.docx")
    assert loaded.text == "body\nComment by Li: really?"
    [location] = loaded.locations
    assert (location.kind, location.label, loaded.text[location.start :]) == (
        "comment",
        "1",
        "Comment by Li: really?",
    )


@pytest.mark.slow
@pytest.mark.shared
def test_headers_and_footers_if_they_are_wanted(word, tmp_path):
    """Headers stand before the text and footers behind it, the same line of several sections
    once.
    """
    word.paragraph("body")
    for text in ("header", "header", "other"):
        section = word.document.add_section() if text == "other" else word.document.sections[0]
        section.header.is_linked_to_previous = False
        section.header.paragraphs[0].text = text
    word.document.sections[0].footer.paragraphs[0].text = "footer"
    word.document.save(tmp_path / "a.docx")
    assert DocxLoader(headers=True).load(tmp_path / "a.docx").text.split() == [
        "header",
        "other",
        "body",
        "footer",
    ]
    assert load_file(shared("data", "docs", "docx-hdrftr.docx")).text == "Main document"
    around = DocxLoader(headers=True).load(shared("data", "docs", "docx-hdrftr.docx")).text
    assert "header" in around.partition("Main document")[0].lower()
    assert around.partition("Main document")[2].startswith("\npara1\ncell1 | a b, ")


def test_headers_footers_and_comments_are_left_out(word, load):
    """Headers, footers and comments are no part of the text."""
    word.document.sections[0].header.paragraphs[0].text = "header"
    word.document.sections[0].footer.paragraphs[0].text = "footer"
    word.document.add_comment(word.paragraph("body").runs, text="comment", author="x", initials="x")
    assert load(word).text == "body"


def under(loaded) -> list[tuple[str, str]]:
    """Each place's label, and its text."""
    assert {location.kind for location in loaded.locations} == {"heading"}
    return [
        (location.label, loaded.text[location.start : location.end])
        for location in loaded.locations
    ]


def test_headings_become_places(word, load):
    """Title and headings make places that reach to the next one, labelled with the headings
    above.
    """
    word.paragraph("before")
    word.document.add_heading("The book", 0)
    word.document.add_heading("Tea", 1)
    word.paragraph("leaves")
    word.table([["a", "b"]])
    word.document.add_heading("Picking", 2)
    word.paragraph("in April")
    word.document.add_heading("Coffee", 1)
    word.paragraph("beans")
    assert under(load(word)) == [
        ("The book", "The book\n"),
        ("Tea", "Tea\nleaves\na | b\n"),
        ("Tea > Picking", "Picking\nin April\n"),
        ("Coffee", "Coffee\nbeans"),
    ]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("标题 1", 1),
        ("标题 3", 3),
        ("标题2", 2),
        ("heading 4", 4),
        ("HEADING 1", 1),
        ("Heading 9", 9),
    ],
)
def test_heading_styles_by_name(word, load, name, level):
    """Styles named heading or 标题 and a digit make places of that level, whatever their id."""
    style = word.document.styles.add_style("new", WD_STYLE_TYPE.PARAGRAPH).element
    style.set(qn("w:styleId"), "a5")
    style.find(qn("w:name")).set(qn("w:val"), name)
    above = word.document.add_heading("above", level - 1) if level > 1 else None
    word.xml(f"<w:p><w:pPr><w:pStyle w:val='a5'/></w:pPr>{run('绿茶')}</w:p>")
    assert [label for label, _ in under(load(word))][-1] == (
        "绿茶" if above is None else "above > 绿茶"
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "name", ["Headings", "Heading 1 Char", "小标题", "Subtitle", "标题 1 正文", "Normal"]
)
def test_other_styles_make_no_places(word, load, name):
    """A style whose name only resembles a heading's makes no place."""
    if name not in [style.name for style in word.document.styles]:
        word.document.styles.add_style(name, WD_STYLE_TYPE.PARAGRAPH)
    styles = {
        style.name: style for style in word.document.styles if style.type == WD_STYLE_TYPE.PARAGRAPH
    }
    word.document.add_paragraph("text", styles.get(name, styles["Normal"]))
    assert load(word).locations == ()


def test_empty_headings_make_no_places(word, load):
    """A heading paragraph without words is none."""
    word.document.add_heading("", 1)
    word.document.add_heading("  ", 1)
    word.document.add_heading("Tea", 1)
    assert [label for label, _ in under(load(word))] == ["Tea"]


def test_headings_split_by_breaks(word, load):
    """A heading with a line break in it is labelled with a space there."""
    heading = word.document.add_heading("Green", 1)
    heading.add_run().add_break()
    heading.add_run("tea")
    assert [label for label, _ in under(load(word))] == ["Green tea"]


def test_headings_in_content_controls_and_boxes(word, load):
    """A heading inside a content control makes a place where its words are."""
    word.paragraph("before")
    word.xml(
        "<w:sdt><w:sdtContent><w:p><w:pPr><w:pStyle w:val='Heading1'/></w:pPr>"
        f"{run('Contents')}</w:p>{paragraph('list')}</w:sdtContent></w:sdt>"
    )
    assert under(load(word)) == [("Contents", "Contents\nlist")]


def test_properties_become_metadata(word, load):
    """What the document's properties say is metadata, white space at the ends removed, dates in ISO
    8601.
    """
    word.paragraph("text")
    properties = word.document.core_properties
    properties.title, properties.author, properties.subject, properties.keywords = (
        " 绿茶 ",
        "Li Hua",
        "Tea",
        "a; b",
    )
    properties.created = properties.modified = dt.datetime(2024, 5, 1, 6, 7, 8, tzinfo=dt.UTC)
    assert dict(load(word).metadata) == {
        "title": "绿茶",
        "author": "Li Hua",
        "subject": "Tea",
        "keywords": "a; b",
        "created": "2024-05-01T06:07:08+00:00",
        "modified": "2024-05-01T06:07:08+00:00",
    }


def test_empty_properties_are_no_metadata(word, load):
    """Properties that hold nothing give no metadata."""
    word.paragraph("text")
    assert load(word).metadata.keys() == {"created", "modified"}  # which the template says


def _rewritten(word: Word, **changes: bytes | None) -> bytes:
    """A saved document with some of its parts replaced, or left out where None is given."""
    saved, target = io.BytesIO(), io.BytesIO()
    word.document.save(saved)
    with zipfile.ZipFile(saved) as source, zipfile.ZipFile(target, "w") as sink:
        for name in source.namelist():
            data = changes.get(name.replace("/", "_").replace(".", "_"), source.read(name))
            if data is not None:
                sink.writestr(name, data)
    return target.getvalue()


def test_a_document_without_properties_has_no_metadata(word, tmp_path):
    """A document that says nothing of itself, as some programs write it, gets no title and no
    author made up.
    """
    word.paragraph("text")
    rels = (
        b'<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        b'<Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/'
        b'officeDocument" Target="word/document.xml"/></Relationships>'
    )
    data = _rewritten(word, docProps_core_xml=None, docProps_app_xml=None, _rels__rels=rels)
    (tmp_path / "bare.docx").write_bytes(data)
    loaded = load_file(tmp_path / "bare.docx")
    assert loaded.text == "text"
    assert dict(loaded.metadata) == {}


def test_a_document_without_words_is_reported(word, load):
    """A document of empty paragraphs and cells fails as a file without text."""
    word.paragraph()
    word.table([["", ""]])
    with pytest.raises(LoadError, match="no text"):
        load(word)


@pytest.mark.sample(3)
@pytest.mark.parametrize("kept", [0.1, 0.3, 0.7, 0.99])
def test_truncated_documents_are_reported(word, tmp_path, kept):
    """A document that was cut off fails with a LoadError that names file and loader, and says what
    to do.
    """
    for number in range(200):
        word.paragraph(f"paragraph {number}")
    data = _rewritten(word)
    path = tmp_path / "cut.docx"
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(LoadError, match=r"Save it again as \.docx") as caught:
        load_file(path)
    assert caught.value.path == str(path)
    assert caught.value.loader == "DocxLoader"


def test_a_zip_of_something_else_is_reported(tmp_path):
    """A zip archive that holds no Word document fails with a LoadError."""
    path = tmp_path / "archive.docx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "no document")
    with pytest.raises(LoadError, match="another format"):
        load_file(path)


@pytest.mark.parametrize("body", [b"", b"<w:document", b"no xml"])
def test_damaged_parts_are_reported(word, tmp_path, body):
    """A document whose main part is no XML fails with a LoadError."""
    word.paragraph("text")
    (tmp_path / "damaged.docx").write_bytes(_rewritten(word, word_document_xml=body))
    with pytest.raises(LoadError, match="is damaged"):
        load_file(tmp_path / "damaged.docx")


def test_external_entities_are_not_read(word, tmp_path):
    """An entity in a document's XML that names another file does not bring that file's text in."""
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    word.paragraph("text")
    body = (
        f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e SYSTEM "{(tmp_path / "secret.txt").as_uri()}">]>'
        f'<w:document xmlns:w="{W}"><w:body><w:p><w:r><w:t>before &e; after</w:t></w:r></w:p></w:body></w:document>'
    )
    path = tmp_path / "entity.docx"
    path.write_bytes(_rewritten(word, word_document_xml=body.encode()))
    try:
        text = load_file(path).text
    except LoadError:
        return
    assert "secret" not in text
    assert "before" in text


def test_a_hit_names_its_heading(word, folder):
    """A node in a Word document says under which heading it stands, and the document's author can
    be filtered by.
    """
    word.document.add_heading("茶", 1)
    word.document.add_heading("绿茶", 2)
    word.paragraph("绿茶是未经发酵的茶叶。")
    data = io.BytesIO()
    word.document.save(data)
    docs = Document(folder({"tea.docx": data.getvalue()}))
    docs.create_node_group("line", transform=lambda text: text.splitlines())
    assert [node.location for node in docs.get_nodes("line")] == [
        "茶, line 1",
        "茶 > 绿茶, line 2",
        "茶 > 绿茶, line 3",
    ]


def related_part(word: Word, name: str, kind: str, blob: str) -> str:
    """Add a part of the main part; returns the relation's id."""
    package = word.document.part.package
    part = Part(PackURI(f"/word/{name}"), "application/xml", blob.encode(), package)
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    return word.document.part.relate_to(part, f"{office}/{kind}")


def test_symbols(word, load):
    """Characters of symbol fonts are those that Word shows."""
    for font, code in (("Symbol", "F0B3"), ("Symbol", "006D"), ("Wingdings", "F0E0")):
        word.xml(f"<w:p>{run('a ')}<w:r><w:sym w:font='{font}' w:char='{code}'/></w:r></w:p>")
    fonts = "<w:rPr><w:rFonts w:ascii='Symbol'/></w:rPr>"
    code = "\uf0b3"
    word.xml(f"<w:p><w:r>{fonts}<w:t>{code}</w:t></w:r>{run(code)}</w:p>")
    assert load(word).text.split("\n") == ["a ≥", "a μ", "a →", "≥\uf0b3"]


def test_codes_of_no_character(word, load):
    """A symbol of no character leaves no half of a character in the text, and no zero."""
    codes = "".join(
        f"<w:r><w:sym w:font='Arial' w:char='{code}'/></w:r>" for code in ("D800", "0000")
    )
    word.xml(f"<w:p>{run('a')}{codes}{run('b')}</w:p>")
    assert load(word).text == "a\ufffd b"


def test_readings_above_words(word, load):
    """A word stays whole, and the reading above it follows."""
    ruby = f"<w:rt>{run('かんじ')}</w:rt><w:rubyBase>{run('漢字')}</w:rubyBase>"
    word.xml(f"<w:p>{run('the ')}<w:r><w:ruby>{ruby}</w:ruby></w:r>{run(' word')}</w:p>")
    assert load(word).text == "the 漢字(かんじ) word"


def test_charts_and_diagrams(word, load):
    """The data of a chart is lines below its paragraph, and so are the words of a diagram."""
    names = " ".join(f"xmlns:{name}='urn:{name}'" for name in ("c", "a"))
    points = "<c:pt idx='0'><c:v>{}</c:v></c:pt>"
    series = "<c:tx><c:v>kg</c:v></c:tx>" + "".join(
        f"<c:{name}>{points.format(value)}</c:{name}>"
        for name, value in (("cat", "May"), ("val", "4"))
    )
    chart = related_part(
        word, "c.xml", "chart", f"<c:chart {names}><c:ser>{series}</c:ser></c:chart>"
    )
    diagram = related_part(word, "d.xml", "d", f"<c:d {names}><a:p><a:t>steps</a:t></a:p></c:d>")
    damaged = related_part(word, "e.xml", "chart", "<c:chart")
    graphics = f"<a:chart r:id='{chart}'/><a:relIds r:dm='{diagram}'/><a:chart r:id='{damaged}'/>"
    word.xml(f"<w:p>{run('before')}<w:r><w:drawing>{graphics}</w:drawing></w:r></w:p>")
    word.paragraph("after")
    loaded = load(word)
    assert loaded.text.split("\n") == ["before", "| kg", "May | 4", "steps", "after"]
    assert "e.xml" in loaded.metadata["notes"][0]


def test_deleted_charts_and_boxes_are_not_read(word, load):
    """A chart or box of a tracked deletion is no text."""
    points = "<c:pt idx='0'><c:v>4</c:v></c:pt>"
    data = f"<c:chart xmlns:c='urn:c'><c:ser><c:val>{points}</c:val></c:ser></c:chart>"
    chart = related_part(word, "c.xml", "chart", data)
    drawn = f"<w:r><w:drawing><c:chart xmlns:c='urn:c' r:id='{chart}'/></w:drawing></w:r>"
    box = f"<w:r><w:pict><w:txbxContent>{paragraph('box')}</w:txbxContent></w:pict></w:r>"
    word.xml(f"<w:p>{run('kept')}<w:del>{drawn}{box}</w:del></w:p>")
    assert load(word).text == "kept"


def test_charts_of_headers(word, tmp_path):
    """The chart of a header is its own, though the body has one of the same id."""
    data = "<c:chart xmlns:c='urn:c'><c:ser><c:val><c:pt idx='0'><c:v>{}</c:v></c:pt></c:val></c:ser></c:chart>"
    word.paragraph("body")
    key = related_part(word, "c.xml", "chart", data.format("of the body"))
    header = word.document.sections[0].header
    header.is_linked_to_previous = False
    part = Part(
        PackURI("/word/h.xml"),
        "application/xml",
        data.format("of it").encode(),
        word.document.part.package,
    )
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    header.part.rels.add_relationship(f"{office}/chart", part, key)
    drawn = f"<c:chart xmlns:c='urn:c' r:id='{key}'/>"
    header.paragraphs[0]._p.append(
        parse_xml(f"<w:r {NAMESPACES}><w:drawing>{drawn}</w:drawing></w:r>")
    )
    word.document.save(tmp_path / "a.docx")
    text = DocxLoader(headers=True).load(tmp_path / "a.docx").text
    assert "of it" in text
    assert "of the body" not in text


def test_the_document_within_itself(word, load):
    """A place that names a part of the document itself is noted, not read as XML."""
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    key = word.document.part.relate_to(word.document.part, f"{office}/aFChunk")
    word.paragraph("before")
    word.xml(f"<w:altChunk r:id='{key}'/>")
    loaded = load(word)
    assert loaded.text.strip() == "before"
    assert "itself" in loaded.metadata["notes"][0]


def test_files_within_a_document(word, load):
    """A page that Word shows in the document is read in its place; a lost one is noted."""
    page = related_part(word, "in.html", "aFChunk", "<p>from a <b>page</b></p>")
    word.paragraph("before")
    word.xml(f"<w:altChunk r:id='{page}'/>")
    word.xml("<w:altChunk r:id='nothing'/>")
    word.paragraph("after")
    loaded = load(word)
    assert loaded.text.split("\n") == ["before", "from a page", "", "after"]
    assert "left out" in loaded.metadata["notes"][0]


@pytest.mark.parametrize("suffix", [".docm", ".dotx"])
def test_documents_with_macros_and_templates(word, tmp_path, suffix):
    """They are read as Word documents."""
    word.paragraph("green tea")
    path = tmp_path / f"a{suffix}"
    word.document.save(path)
    loaded = load_file(path)
    assert (loaded.text, dict(loaded.metadata).get("read_as")) == ("green tea", None)
