"""RapidOcr on real pages: what it recognizes, its timeout, other processes, and the command
line.
"""

from __future__ import annotations

import re
import socket
import unicodedata
from collections import Counter

import pypdfium2
import pytest
from click.testing import CliRunner
from PIL import Image

from lazyrag import Document
from lazyrag.cli.commands import app
from lazyrag.loaders import LoadLimits, load_file
from lazyrag.loaders.ocr import RapidOcr
from lazyrag.loaders.pdf import PdfLoader
from lazyrag.loaders.scans import ScanLoader, add_ocr
from lazyrag.read import marks
from tests.shared import shared

pytestmark = [pytest.mark.slow, pytest.mark.shared]

PAGES = [
    ("made_zh.pdf", 150),
    ("made_zh.pdf", 200),
    ("multicolumn.pdf", 150),
    ("pdflatex-4-pages.pdf", 200),
]


def render(name, number, dots_per_inch, target):
    """Render a page of a shared PDF as a PDF without a text layer."""
    with pypdfium2.PdfDocument(shared("data", "docs", name)) as file:
        image = file[number].render(scale=dots_per_inch / 72).to_pil().convert("RGB")
    image.save(target, resolution=dots_per_inch)
    return image


def characters(text):
    """Characters as often as they are there; wide and narrow forms, and quotation marks, are
    one.
    """
    text = unicodedata.normalize("NFKC", text).translate(
        {0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'"}
    )
    return Counter(re.sub(r"[\s|-]", "", text))


def words(text):
    """Words of two letters and more, with those parted at a line end."""
    return Counter(re.findall(r"\w{2,}", re.sub(r"-\n", "", unicodedata.normalize("NFKC", text))))


@pytest.fixture
def offline(monkeypatch):
    """No connection can be made."""

    def refuse(*_):
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(("name", "dots_per_inch"), PAGES)
def test_scans_are_read_like_their_text_layer(tmp_path, name, dots_per_inch):
    """Of characters, at least 99 % are recognized, and 99 % of what is recognized are there; of
    words 98 %.

    Words that are parted at the end of a line, of two columns, are not always put together.
    """
    render(name, 0, dots_per_inch, tmp_path / "scan.pdf")
    with pypdfium2.PdfDocument(shared("data", "docs", name)) as file:
        truth = file[0].get_textpage().get_text_range().replace("\ufffe", "")
    loaded = ScanLoader(RapidOcr(max_seconds=600)).load(tmp_path / "scan.pdf")
    assert loaded.metadata["pages_by_ocr"] == [1]
    for count, least in ((characters, 0.99), *([] if "zh" in name else [(words, 0.98)])):
        expected, found = count(truth), count(loaded.text)
        common = (expected & found).total()
        assert common >= least * expected.total()
        assert common >= least * found.total()


@pytest.fixture
def title(tmp_path):
    """A folder with an image of a title, which is quickly read."""
    folder = tmp_path / "folder"
    folder.mkdir()
    image = render("multicolumn.pdf", 0, 150, tmp_path / "page.pdf")
    image.crop((250, 290, 1000, 480)).save(folder / "title.png")
    return folder


def test_a_page_has_a_timeout(title):
    """The engine is stopped, and reads the next page."""
    image = Image.open(title / "title.png").convert("RGB").resize((3000, 760))
    image.save(title / "large.png")
    with pytest.raises(Exception, match=r"no text|not read|OCR"):
        ScanLoader(RapidOcr(max_seconds=0.001)).load(title / "large.png")
    assert "Two-Column Document" in ScanLoader(RapidOcr()).load(title / "title.png").text


def test_other_processes_read_scans(title):
    """The reader is sent to processes; each has an engine of its own."""
    docs = Document(title, limits=LoadLimits(processes=1))
    add_ocr(docs, RapidOcr())
    [root] = docs.get_nodes()
    assert "Two-Column Document with Lorem Ipsum" in root.text
    start = root.text.index("Lorem")
    [box] = marks(docs, "title.png", (start, start + len("Lorem"))).boxes
    assert (box.page, 0.5 < box.x0 < box.x1 < 1, box.y1 < 0.5) == (1, True, True)


def test_the_command_line_keeps_the_choice(title, monkeypatch):
    """`lazyrag index --ocr` reads images, and later commands too; results are stored beside the
    index.
    """
    monkeypatch.chdir(title)
    first = CliRunner().invoke(app, ["index", "--ocr"])
    assert first.exit_code == 0, first.output
    assert "1 added" in first.output
    assert [*(title / ".lazyrag" / "ocr").iterdir()]
    found = CliRunner().invoke(app, ["search", "lorem", "--json"])
    assert "title.png" in found.output
    assert "1 unchanged" in CliRunner().invoke(app, ["sync"]).output


def test_a_text_layer_is_not_recognized(monkeypatch):
    """Files with text are read as before."""
    monkeypatch.setattr(RapidOcr, "__call__", lambda *_: pytest.fail("called"))
    path = shared("data", "docs", "multicolumn.pdf")
    assert ScanLoader().load(path) == PdfLoader().load(path) == load_file(path)
