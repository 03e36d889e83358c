"""A damaged part of a file costs that part: the rest is read, and what is missing is noted and in
the report.
"""

from __future__ import annotations

import io
import zipfile
from email.message import EmailMessage

import docx
import openpyxl
import pptx
import pytest

from lazyrag import Document
from lazyrag.errors import LoadError
from lazyrag.loaders import load_file
from tests.hostile import zipped
from tests.small_hostile import epub, odf, packed


def _word() -> bytes:
    document = docx.Document()
    document.add_heading("Teas", 1)
    document.add_paragraph("body words")
    document.core_properties.title = "Teas"
    data = io.BytesIO()
    document.save(data)
    return data.getvalue()


def _workbook() -> bytes:
    book = openpyxl.Workbook()
    for name in ("one", "two", "three"):
        sheet = book.create_sheet(name)
        sheet.append(["tea", "kg"])
        sheet.append([f"words of {name}", 4])
    data = io.BytesIO()
    book.save(data)
    return data.getvalue()


def _slides() -> bytes:
    deck = pptx.Presentation()
    for name in ("one", "two", "three"):
        slide = deck.slides.add_slide(deck.slide_layouts[5])
        slide.shapes.title.text = f"words of {name}"
        slide.notes_slide.notes_text_frame.text = f"notes of {name}"
    data = io.BytesIO()
    deck.save(data)
    return data.getvalue()


def _book() -> bytes:
    return epub("<h1>Teas</h1><p>chapter words</p>", count=3)


def _opendocument() -> bytes:
    meta = '<m xmlns:dc="urn:dc"><n><dc:title>Teas</dc:title></n></m>'
    return odf("text", "<text:p>body words</text:p>", **{"meta.xml": meta})


def _edited(data: bytes, part: str, how: str) -> bytes:
    """A package with a part that is cut off, does not match its checksum, is no XML, or is
    missing.
    """
    source, target = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as file:
        for name in source.namelist():
            content = source.read(name)
            if name == part:
                content = {"cut": content[: len(content) // 2], "other": b"no markup"}.get(
                    how, content
                )
            if name != part or how != "missing":
                file.writestr(name, content)
    made = target.getvalue()
    if how == "checksum":
        at = zipfile.ZipFile(io.BytesIO(made)).getinfo(part).header_offset + 30 + len(part) + 3
        made = made[:at] + bytes([made[at] ^ 1]) + made[at + 1 :]
    return made


@pytest.mark.sample(4)
@pytest.mark.parametrize("how", ["cut", "checksum", "other", "missing"])
@pytest.mark.parametrize(
    ("name", "make", "part", "kept"),
    [
        ("a.epub", _book, "c1.xhtml", "chapter words"),
        ("a.xlsx", _workbook, "xl/worksheets/sheet3.xml", "words of three"),
        ("a.xlsx", _workbook, "docProps/core.xml", "words of two"),
        ("a.xlsx", _workbook, "xl/styles.xml", "words of two"),
        ("a.pptx", _slides, "ppt/slides/slide2.xml", "words of three"),
        ("a.pptx", _slides, "ppt/notesSlides/notesSlide2.xml", "words of two"),
        ("a.docx", _word, "docProps/core.xml", "body words"),
        ("a.docx", _word, "word/styles.xml", "body words"),
        ("a.docx", _word, "word/numbering.xml", "body words"),
        ("a.odt", _opendocument, "meta.xml", "body words"),
    ],
)
def test_a_damaged_part_leaves_the_rest(tmp_path, name, make, part, kept, how):
    """If a part is damaged, the others are read, and a note names it unless nothing is missing."""
    path = tmp_path / name
    path.write_bytes(_edited(make(), part, how))
    loaded = load_file(path)
    assert kept in loaded.text
    is_quiet = how == "missing" and not part.startswith(("c1", "xl/worksheets", "ppt/slides"))
    is_read_as_text = how in {"cut", "other"} and part == "c1.xhtml"  # HTML is never invalid
    if not (is_quiet or is_read_as_text):
        [note] = loaded.metadata["notes"]
        assert "left out" in note
        assert any(word in note for word in (part, "slide 2", "rest of sheet 'two'", "relations"))


def test_the_report_counts_what_is_missing(tmp_path):
    """Notes of damaged parts, of unread members and of broken lines are in the report, by file."""
    (tmp_path / "a.epub").write_bytes(_edited(_book(), "c1.xhtml", "checksum"))
    (tmp_path / "b.jsonl").write_text('{"a": 1}\n{"a": \n{"a": 3}\n', encoding="utf-8")
    (tmp_path / "c.zip").write_bytes(
        packed(
            {"a.txt": "tea", "b.raw": b"\0\1\2", "in.epub": _edited(_book(), "c1.xhtml", "missing")}
        )
    )
    docs = Document(tmp_path)
    report = docs.sync()
    assert report.added == ("a.epub", "b.jsonl", "c.zip")
    assert "3 noted" in str(report)
    [chapter] = report.notes["a.epub"]
    assert chapter.startswith("chapter 2 (c1.xhtml) left out: ")
    [lines] = report.notes["b.jsonl"]
    assert lines.startswith("lines left out: 1, such as 2: It is not JSON")
    nested, members = report.notes["c.zip"]
    assert nested.startswith("in.epub: chapter 2 (c1.xhtml) left out")
    assert members.startswith("members left out: 1, such as b.raw: No loader")


def test_a_sheet_that_breaks_off_keeps_its_rows(tmp_path):
    """The rows before the damage of a sheet are read, and so are the sheets behind it."""
    path = tmp_path / "a.xlsx"
    path.write_bytes(_edited(_workbook(), "xl/worksheets/sheet3.xml", "cut"))
    loaded = load_file(path)
    assert "words of one" in loaded.text
    assert "words of three" in loaded.text
    assert loaded.metadata["sheets"][-1] == "three"


def test_if_nothing_can_be_read_the_file_fails(tmp_path):
    """A file of which every part is damaged is a failure that says why, not a document without
    text.
    """
    data = _book()
    for part in ("c0.xhtml", "c1.xhtml", "c2.xhtml"):
        data = _edited(data, part, "missing")
    (tmp_path / "a.epub").write_bytes(data)
    with pytest.raises(
        LoadError, match=r"Nothing of the file can be read: chapter 1 \(c0.xhtml\) left out"
    ):
        load_file(tmp_path / "a.epub")


def test_a_bomb_in_a_part_still_ends_the_file(tmp_path):
    """A part that exceeds a limit is no damage."""
    path = tmp_path / "a.epub"
    book = zipfile.ZipFile(io.BytesIO(epub("<p>w</p>", count=2)))
    path.write_bytes(
        zipped({name: book.read(name) for name in book.namelist()} | {"c1.xhtml": bytes(8 << 20)})
    )
    with pytest.raises(LoadError, match="packed like a zip bomb"):
        load_file(path)


def test_an_unreadable_body_leaves_the_mail(tmp_path):
    """A page without an element is no body; subject and attachments are read."""
    mail = EmailMessage()
    mail["Subject"] = "Teas"
    mail.set_content("<!-- nothing -->", subtype="html")
    mail.add_attachment("attached words", filename="a.txt")
    (tmp_path / "a.eml").write_bytes(mail.as_bytes())
    loaded = load_file(tmp_path / "a.eml")
    assert "attached words" in loaded.text
    assert loaded.text.startswith("Subject: Teas")
    assert loaded.metadata["notes"][0].startswith("body 1 left out: ")
