"""Marks: boxes of a span's words on the pages of a PDF, ranges in other texts, images of pages."""

from __future__ import annotations

import io
import re
import zipfile

import pdfplumber
import pypdf
import pypdfium2
import pytest
from PIL import Image
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas

from lazyrag import Document
from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders.pdf import PdfLoader
from lazyrag.read import marks as find_marks
from lazyrag.read import page_image

ENGLISH = ["Green tea is never roas-", "ted, and keeps a year.", "White tea keeps longer."]
COLUMN = ["A second column begins on", "the right side of the page", "and is read after the left."]
CHINESE = ["绿茶是未经发酵的茶，清明前", "采摘的茶最好。红茶则要发酵。"]


def draw(path, *, turn=0):
    """Three pages: two columns, a table, and Chinese; turned by degrees."""
    buffer = io.BytesIO()
    pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))
    canvas = Canvas(buffer, pagesize=(500, 700))
    canvas.setFont("Helvetica", 11)
    for at, (left, right) in enumerate(zip(ENGLISH, COLUMN, strict=True)):
        canvas.drawString(60, 600 - 14 * at, left)
        canvas.drawString(300, 600 - 14 * at, right)
    canvas.showPage()
    canvas.setFont("Helvetica", 11)
    for at, row in enumerate(
        (("tea", "price", "year"), ("Sencha", "12", "2023"), ("Oolong", "15", "2024"))
    ):
        for left, cell in zip((60, 200, 340), row, strict=True):
            canvas.drawString(left, 400 - 14 * at, cell)
    canvas.showPage()
    canvas.setFont("STSong-Light", 12)
    for at, line in enumerate(CHINESE):
        canvas.drawString(60, 600 - 16 * at, line)
    canvas.showPage()
    canvas.save()
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(buffer.getvalue()))
    for page in writer.pages:
        page.rotate(turn)
    writer.write(path)
    return path


def under(path, boxes):
    """The text in boxes of a file that is not turned, read by pdfplumber, without spaces."""
    texts = []
    with pdfplumber.open(path) as pdf:
        for box in boxes:
            page = pdf.pages[box.page - 1]
            width, height = page.width, page.height
            inside = [
                one["text"]
                for one in page.chars
                if box.x0 <= (one["x0"] + one["x1"]) / 2 / width <= box.x1
                and box.y0 <= (one["top"] + one["bottom"]) / 2 / height <= box.y1
            ]
            texts.append("".join(inside).replace(" ", ""))
    return texts


@pytest.fixture
def drawn(tmp_path):
    path = draw(tmp_path / "tea.pdf")
    with Document(tmp_path) as docs:
        yield docs, path, docs.get_nodes()[0].text


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("roasted", ["roas-", "ted"]),
        ("keeps a year.\nWhite tea", ["keepsayear.", "Whitetea"]),
        ("column begins", ["columnbegins"]),
        ("Sencha | 12", ["Sencha", "12"]),
        ("清明前采摘的茶", ["清明前", "采摘的茶"]),
    ],
)
def test_boxes_are_around_the_words_of_the_span_line_by_line(drawn, words, lines):
    """The boxes of a span hold its words alone: over line ends, joined words, columns and cells."""
    docs, path, text = drawn
    start = text.index(words)
    marks = find_marks(docs, "tea.pdf", (start, start + len(words)))
    # The hyphen that joining removes is not part of the text.
    assert under(path, marks.boxes) == [line.removesuffix("-") for line in lines]
    assert marks.text == words


@pytest.mark.slow
def test_each_single_character_has_its_own_box(drawn):
    """Every visible character of the text leads to a box with that character in it."""
    docs, path, text = drawn
    added = set(re.findall(r"\|", text))
    for at, character in enumerate(text):
        if character.strip() and character not in added:
            assert under(path, find_marks(docs, "tea.pdf", (at, at + 1)).boxes) == [character]


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_boxes_of_a_turned_page_are_those_of_the_page_as_it_is_shown(tmp_path, turn):
    """A page that is shown turned has the boxes of the upright one, turned."""
    (tmp_path / "a").mkdir()
    draw(tmp_path / "a" / "upright.pdf")
    draw(tmp_path / "a" / "turned.pdf", turn=turn)
    docs = Document(tmp_path / "a")
    text = docs.get_nodes()[0].text
    span = text.index("Oolong"), text.index("Oolong") + 6
    [upright], [turned] = (
        find_marks(docs, "upright.pdf", span).boxes,
        find_marks(docs, "turned.pdf", span).boxes,
    )
    x0, y0, x1, y1 = upright.x0, upright.y0, upright.x1, upright.y1
    expected = {
        90: (1 - y1, x0, 1 - y0, x1),
        180: (1 - x1, 1 - y1, 1 - x0, 1 - y0),
        270: (y0, 1 - x1, y1, 1 - x0),
    }
    assert (turned.x0, turned.y0, turned.x1, turned.y1) == pytest.approx(expected[turn], abs=1e-4)


def test_a_hit_and_a_page_can_be_marked(drawn):
    """The span of a hit and a Location are spans; a page's boxes are all on it."""
    docs, path, text = drawn
    [hit] = docs.search("清明前采摘", topk=1)
    assert "清明前" in "".join(under(path, find_marks(docs, hit.path, hit.span).boxes))
    second = next(one for one in docs.get_nodes()[0].locations if one.label == "3")
    marks = find_marks(docs, "tea.pdf", second)
    assert {box.page for box in marks.boxes} == {3}
    assert marks.text == text[second.start : second.end]


@pytest.mark.slow
def test_pages_without_repeated_lines_are_marked(tmp_path):
    """Lines that a loader leaves out of the text move no box."""
    canvas = Canvas(str(tmp_path / "tea.pdf"))
    for name in ("Assam", "Keemun", "Yunnan", "Ceylon"):
        canvas.drawString(60, 800, "Report of the tea harvest")
        canvas.drawString(60, 600, f"{name} was picked in spring.")
        canvas.showPage()
    canvas.save()
    docs = Document(tmp_path)
    docs.add_reader("*.pdf", PdfLoader(drop_repeated=True))
    text = docs.get_nodes()[0].text
    assert "Report" not in text
    start = text.index("Yunnan")
    boxes = find_marks(docs, "tea.pdf", (start, start + 10)).boxes
    assert [box.page for box in boxes] == [3]
    assert under(tmp_path / "tea.pdf", boxes) == ["Yunnanwas"]


def test_other_formats_have_the_range_in_their_text(tmp_path):
    """A text file, an added text, and a PDF in an archive are marked in the document's text."""
    (tmp_path / "tea.txt").write_text("Green tea is not roasted.", encoding="utf-8")
    draw(tmp_path / "inner.pdf")
    with zipfile.ZipFile(tmp_path / "teas.zip", "w") as file:
        file.write(tmp_path / "inner.pdf", "inner.pdf")
    docs = Document(tmp_path)
    docs.add_texts({"note": "Oolong is half fermented."})
    for path in ("tea.txt", "note", "teas.zip"):
        marks = find_marks(docs, path, (3, 8))
        text = next(node.text for node in docs.get_nodes() if node.path == path)
        assert (marks.span, marks.text, marks.boxes) == ((3, 8), text[3:8], ())
        with pytest.raises(ConfigError, match="not a PDF"):
            page_image(docs, path, 1)


def test_a_changed_file_is_refused_until_it_is_ingested(drawn):
    """Boxes of other bytes than those of the text are never given."""
    docs, path, _ = drawn
    draw(path, turn=90)
    for call in (
        lambda: find_marks(docs, "tea.pdf", (0, 5)),
        lambda: page_image(docs, "tea.pdf", 1),
    ):
        with pytest.raises(LoadError, match="has changed"):
            call()
    docs.sync()
    assert find_marks(docs, "tea.pdf", (0, 5)).boxes


def test_a_file_added_by_another_program_can_be_named(tmp_path):
    """A program that did not add a file itself names it; another file is refused."""
    path = draw(tmp_path / "tea.pdf")
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    with Document(store_conf=conf) as docs:
        docs.add_files({"upload": path})
        expected = find_marks(docs, "upload", (0, 9))
    with Document(store_conf=conf, read_only=True) as docs:
        with pytest.raises(ConfigError, match="file="):
            find_marks(docs, "upload", (0, 9))
        assert find_marks(docs, "upload", (0, 9), file=path) == expected
        with pytest.raises(LoadError, match="has changed"):
            find_marks(docs, "upload", (0, 9), file=draw(tmp_path / "other.pdf", turn=90))


@pytest.mark.slow
def test_pages_of_another_reader_or_of_text_recognition_are_refused(tmp_path):
    """Where the text is not that of the text layer, nothing is marked rather than something
    else.
    """
    draw(tmp_path / "tea.pdf")
    canvas = Canvas(str(tmp_path / "scan.pdf"))
    canvas.rect(60, 600, 100, 50, fill=1)
    canvas.showPage()
    canvas.save()

    class Shouting(PdfLoader):
        def load(self, path):
            loaded = super().load(path)
            return type(loaded)(loaded.text.upper(), loaded.locations)

    docs = Document(tmp_path)
    docs.add_reader("scan.pdf", PdfLoader(ocr=lambda _: "Recognized words"))
    docs.add_reader("tea.pdf", Shouting())
    with pytest.raises(LoadError, match="text recognition"):
        find_marks(docs, "scan.pdf", (0, 5))
    with pytest.raises(LoadError, match="made otherwise"):
        find_marks(docs, "tea.pdf", (0, 5))


def test_a_hidden_document_is_as_unknown_as_one_that_is_not_there(tmp_path):
    """On a restricted Document, errors for hidden and for unknown paths differ in the path
    alone.
    """
    (tmp_path / "a.txt").write_text("Secret words of the harvest", encoding="utf-8")
    (tmp_path / "b.txt").write_text("Open words", encoding="utf-8")
    view = Document(tmp_path).restricted({"file_name": "b.txt"})
    assert find_marks(view, "b.txt", (0, 4)).text == "Open"
    for call in (
        lambda path: find_marks(view, path, (0, 999)),
        lambda path: page_image(view, path, 99),
    ):
        messages = set()
        for path in ("a.txt", "c.txt"):
            with pytest.raises(ConfigError, match="no document") as caught:
                call(path)
            messages.add(str(caught.value).replace(path, "PATH"))
        assert len(messages) == 1


@pytest.mark.parametrize("span", [(-1, 3), (5, 2), (0, 10_000), "0-3", (1,), None])
def test_a_span_outside_of_the_text_is_refused(drawn, span):
    """A span must lie in the text."""
    with pytest.raises(ConfigError, match="span"):
        find_marks(drawn[0], "tea.pdf", span)


def test_the_image_of_a_page_is_a_png_of_the_wanted_width(drawn):
    """The image has the page's shape and shows what pdfium draws; a page that is not there is
    refused.
    """
    docs, path, _ = drawn
    image = Image.open(io.BytesIO(page_image(docs, "tea.pdf", 3, width=300)))
    assert (image.format, image.size) == ("PNG", (300, 420))
    with pypdfium2.PdfDocument(path) as pdf:
        expected = pdf[2].render(scale=300 / 500).to_pil().convert("L")
    assert sum(image.convert("L").histogram()[:128]) == pytest.approx(
        sum(expected.histogram()[:128]), rel=0.1
    )
    with pytest.raises(ConfigError, match="page"):
        page_image(docs, "tea.pdf", 4)
