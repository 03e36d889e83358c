"""PowerPoint presentations: all that a reader sees on a slide, once, slide by slide."""

from __future__ import annotations

import zipfile

import pptx
import pytest
from lxml import etree
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from lazyrag import Document
from lazyrag.errors import LoadError
from lazyrag.loaders import load_file, loaders, register_loader
from tests.shared import shared

AREA = (Inches(1), Inches(1), Inches(6), Inches(3))
TITLE_AND_BODY, TITLE_ONLY = 1, 5


@pytest.fixture
def deck():
    """An empty presentation to fill."""
    return pptx.Presentation()


@pytest.fixture
def load(tmp_path):
    """A function that saves a presentation and loads it."""

    def saved_and_loaded(deck):
        deck.save(tmp_path / "file.pptx")
        return load_file(tmp_path / "file.pptx")

    return saved_and_loaded


def slide(deck, title: str, body: str = ""):
    """A slide with a title, and with a body where there is text for it."""
    added = deck.slides.add_slide(deck.slide_layouts[TITLE_AND_BODY if body else TITLE_ONLY])
    added.shapes.title.text = title
    if body:
        added.placeholders[1].text = body
    return added


def by_slide(loaded) -> dict[str, list[str]]:
    """The lines of each slide, by its label."""
    assert {location.kind for location in loaded.locations} == {"slide"}
    return {
        location.label: loaded.text[location.start : location.end].splitlines()
        for location in loaded.locations
    }


def test_slides_in_their_order(deck, load):
    """Slides come in the order in which they are shown, which need not be that of their files."""
    for title in ("one", "two", "绿茶"):
        slide(deck, title, f"{title} body\nsecond line")
    order = deck.slides._sldIdLst
    order.insert(0, order[2])
    assert by_slide(load(deck)) == {
        "1": ["绿茶", "绿茶 body", "second line"],
        "2": ["one", "one body", "second line"],
        "3": ["two", "two body", "second line"],
    }


def test_tables_row_by_row(deck, load):
    """A table's rows are lines, | between the cells; a merged cell stands once, a row without text
    not at all.
    """
    table = slide(deck, "prices").shapes.add_table(4, 3, *AREA).table
    for row, texts in enumerate(
        [["tea", "price", "note"], ["green", "", "new\nand fresh"], ["all of it", "", ""]]
    ):
        for column, text in enumerate(texts):
            table.cell(row, column).text = text
    table.cell(2, 0).merge(table.cell(2, 2))
    assert by_slide(load(deck))["1"] == [
        "prices",
        "tea | price | note",
        "green |  | new and fresh",
        "all of it",
    ]


def test_groups_in_their_place(deck, load):
    """Shapes in groups in groups are read where their group stands."""
    shapes = slide(deck, "title").shapes
    shapes.add_textbox(*AREA).text = "before"
    group = shapes.add_group_shape()
    group.shapes.add_textbox(*AREA).text = "in the group"
    group.shapes.add_group_shape().shapes.add_textbox(*AREA).text = "in the inner group"
    shapes.add_textbox(*AREA).text = "after"
    assert by_slide(load(deck))["1"] == [
        "title",
        "before",
        "in the group",
        "in the inner group",
        "after",
    ]


def test_a_charts_data(deck, load):
    """A chart is its title and a table of its data: a line for each category, a column for each
    series.
    """
    data = CategoryChartData()
    data.categories = ["2023", "2024"]
    data.add_series("green", (1.5, 2))
    data.add_series("black", (3, None))
    chart = (
        slide(deck, "harvest").shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *AREA, data).chart
    )
    chart.has_title = True
    chart.chart_title.text_frame.text = "Tons of tea"
    assert by_slide(load(deck))["1"] == [
        "harvest",
        "Tons of tea",
        "| green | black",
        "2023 | 1.5 | 3",
        "2024 | 2 | ",
    ]


def test_notes_stand_behind_their_slide(deck, load):
    """The speaker's notes follow what stands on the slide, and say that they are notes."""
    slide(deck, "one").notes_slide.notes_text_frame.text = "say hello\nsmile"
    slide(deck, "two").notes_slide.notes_text_frame.text = ""
    assert by_slide(load(deck)) == {"1": ["one", "Notes: say hello", "smile"], "2": ["two"]}


def test_line_breaks_and_runs(deck, load):
    """Runs are joined as they are, a line break within a paragraph is one."""
    paragraph = slide(deck, "title").shapes.add_textbox(*AREA).text_frame.paragraphs[0]
    paragraph.add_run().text = "gre"
    paragraph.add_run().text = "en tea"
    paragraph.add_line_break()
    paragraph.add_run().text = "below"
    assert by_slide(load(deck))["1"] == ["title", "green tea", "below"]


def test_hidden_and_empty_slides(deck, load):
    """A hidden slide is read, and said to be hidden; one without text keeps its number."""
    slide(deck, "seen")
    slide(deck, "hidden")._element.set("show", "0")
    slide(deck, "")
    slide(deck, "last")
    loaded = load(deck)
    assert by_slide(loaded) == {"1": ["seen"], "2": ["hidden"], "3": [], "4": ["last"]}
    assert loaded.metadata["hidden_slides"] == [2]


def test_title_and_author(deck, load):
    """What the presentation's properties say becomes metadata; blank ones do not."""
    slide(deck, "one")
    deck.core_properties.title, deck.core_properties.author = " 茶 ", " "
    assert dict(load(deck).metadata) == {"title": "茶"}


def test_a_node_knows_its_slide(deck, tmp_path):
    """A node of a presentation says on which slide it stands."""
    slide(deck, "one")
    slide(deck, "two")
    deck.save(tmp_path / "a.pptx")
    docs = Document(tmp_path)
    docs.create_node_group("part", transform=lambda text: text.split("\n\n"))
    assert [node.location for node in docs.get_nodes("part")] == ["slide 1", "slide 2"]


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["test.pptx", "fake-power-point-table.pptx", "fake-power-point-malformed.pptx"]
)
def test_all_words_that_python_pptx_finds(name):
    """Each paragraph that an independent reader finds in the text frames and tables of a real file
    is there, in its slide.
    """
    path = shared("data", "docs", name)
    lines = {label: "\n".join(texts) for label, texts in by_slide(load_file(path)).items()}
    wanted = 0
    for number, one in enumerate(pptx.Presentation(path).slides, start=1):
        for text in one._element.itertext("{*}t"):
            wanted += 1
            assert " ".join(text.split()) in " ".join(lines[str(number)].split())
    assert wanted


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"only text", "cut off, encrypted, or of another format"),
        (
            bytes.fromhex("d0cf11e0a1b11ae1") + bytes(600),
            r"old office programs\. Save it as \.pptx",
        ),
    ],
    ids=["text", "ppt"],
)
def test_what_is_no_presentation(tmp_path, data, words):
    """Text and the old format fail with what to do."""
    path = tmp_path / "a.pptx"
    path.write_bytes(data)
    with pytest.raises(LoadError, match=words):
        load_file(path)


@pytest.mark.shared
def test_another_office_format(tmp_path):
    """A Word document that is called a presentation is said to be of another format, where the
    suffix decides.
    """
    register_loader(".pptx", replace=True)(loaders[".pptx"])
    path = tmp_path / "a.pptx"
    path.write_bytes(shared("data", "docs", "docx-tables.docx").read_bytes())
    with pytest.raises(LoadError, match="not a presentation, but of another format"):
        load_file(path)


def test_a_deck_that_lacks_a_slide(deck, tmp_path):
    """A presentation whose slide is gone is reported, not read without it."""
    slide(deck, "one")
    deck.save(tmp_path / "whole.pptx")
    with (
        zipfile.ZipFile(tmp_path / "whole.pptx") as whole,
        zipfile.ZipFile(tmp_path / "part.pptx", "w") as part,
    ):
        for name in set(whole.namelist()) - {"ppt/slides/slide1.xml"}:
            part.writestr(name, whole.read(name))
    with pytest.raises(LoadError, match=r"lacks the part ppt/slides/slide1\.xml"):
        load_file(tmp_path / "part.pptx")


def test_formulas_of_slides(deck, load):
    """A formula of a slide keeps its fraction."""
    body = slide(deck, "title", "so").placeholders[1].text_frame.paragraphs[0]._p
    math = "http://schemas.openxmlformats.org/officeDocument/2006/math"
    runs = [f'<r xmlns="{math}"><t>{number}</t></r>' for number in (1, 2)]
    inside = f"<f><num>{runs[0]}</num><den>{runs[1]}</den></f>"
    body.append(etree.fromstring(f'<oMath xmlns="{math}">{inside}</oMath>'))
    assert by_slide(load(deck)) == {"1": ["title", "so1/2"]}


def test_symbols_of_slides(deck, load):
    """A code of a symbol font is the character that is shown; letters are none."""
    body = slide(deck, "title", "a \uf0b3").placeholders[1].text_frame.paragraphs[0]
    body.runs[0].font._rPr.append(
        etree.fromstring(
            '<a:sym xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
            ' typeface="Symbol"/>'
        )
    )
    run = body.add_run()
    run.text = "\uf0b3"
    run.font.name = "Symbol"
    assert by_slide(load(deck)) == {"1": ["title", "a ≥≥"]}
