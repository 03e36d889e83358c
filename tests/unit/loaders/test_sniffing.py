"""Content beside suffixes: a file is read as what it is where its name says nothing, or something
else.
"""

from __future__ import annotations

import io
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Document, IngestionWarning, register_loader
from lazyrag.errors import LoadError
from lazyrag.loaders import load_file, loaders
from lazyrag.loaders.detect import sniff
from tests.shared import shared

PAGE = b"<!DOCTYPE html>\n<html><body><h1>Tea</h1><p>Green tea</p></body></html>"
REPORTS = Path(__file__).parents[3] / "cookbook" / "corpus" / "reports"
DOCX = (REPORTS / "2024-annual-report.docx").read_bytes()
PDF = (REPORTS / "member-meeting-minutes-2025.pdf").read_bytes()
MAIL = b"From: li@example.org\nTo: wang@example.org\nSubject: Tea\n\nGreen tea\n"


def zipped(entries: dict[str, bytes]) -> bytes:
    """A zip file of some entries."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return data.getvalue()


def sniffed(path: Path, data: bytes) -> str | None:
    """The suffix of what some bytes are."""
    path.write_bytes(data)
    found = sniff(path)
    return None if found is None else found.suffix


@pytest.mark.sample(3)
@pytest.mark.shared
@pytest.mark.parametrize(
    "name",
    [
        "test.docx",
        "made_zh.docx",
        "test.pptx",
        "test.xlsx",
        "test.xls",
        "fake.odt",
        "test.epub",
        "minimal-document.pdf",
        "made_truncated.pdf",
        "test_blog.html",
        "made_zh_gbk.html",
        "fake-email-attachment.eml",
        "fake-email-utf-16.eml",
        "test_notebook.ipynb",
        "norwich-city.txt",
        "made_zh_gbk.txt",
        "fake-text-utf-32.txt",
        "fake-text-utf-16-be.txt",
        "中文 文件名 (1).txt",
    ],
)
@pytest.mark.parametrize("called", ["without", "a.unknown"])
def test_real_files_are_read_without_their_suffix(tmp_path, name, called):
    """A real file gives the same text and places under its name, without a suffix, and under an
    unknown one.
    """
    source = shared("data", "docs", name)
    path = tmp_path / called
    path.write_bytes(source.read_bytes())
    try:
        wanted = load_file(source)
    except LoadError as exc:
        with pytest.raises(LoadError, match=str(exc).partition("(")[0]):
            load_file(path)
        return
    found = load_file(path)
    assert (found.text, found.locations) == (wanted.text, wanted.locations)
    suffix = source.suffix
    assert found.metadata.get("read_as", ".txt") == suffix


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["random.bin", "fake-text-all-whitespace.txt", "made_truncated.docx"]
)
def test_rubbish_stays_unread(tmp_path, name):
    """Random bytes, a blank and a damaged file are no text without a suffix."""
    path = tmp_path / "without"
    path.write_bytes(shared("data", "docs", name).read_bytes())
    with pytest.raises(
        LoadError, match=r"No loader reads files without suffix\. Its content is of no known format"
    ):
        load_file(path)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("called", "origin", "words"),
    [
        ("made_html_named.pdf", "test_blog.html", "html"),
        ("made_pdf_named.docx", "pdflatex-4-pages.pdf", "pdf"),
    ],
)
def test_misnamed_files_of_the_manifest_are_read(called, origin, words):
    """HTML called .pdf and a PDF called .docx give the text of the files that they were made from,
    and say so.
    """
    found = load_file(shared("data", "docs", called))
    assert found.text == load_file(shared("data", "docs", origin)).text
    assert found.metadata["read_as"] == f".{words}"


@pytest.mark.parametrize(
    ("name", "data", "read_as"),
    [
        ("a.xls", PAGE, ".html"),  # what many programs export
        ("a.xls", b"<?xml version='1.0'?><Workbook><Cell>tea</Cell></Workbook>", ".xml"),
        ("a.doc", PAGE, ".html"),
        ("a.txt", zipped({"a.txt": b"tea"}), ".zip"),
        ("a.pptx", DOCX, ".docx"),
        ("a.zip", DOCX, ".docx"),
        ("a.md", PDF, ".pdf"),
        ("README", PAGE, ".html"),
        ("backup.old", MAIL, ".eml"),
        ("archive", b"From li Mon\n" + MAIL, ".mbox"),
        ("data", b'\xef\xbb\xbf{"tea": "green"}', ".json"),
        ("data", b' [\n {"tea": "green"}]', ".json"),
        ("feed", b'<?xml version="1.0"?><tea>green</tea>', ".xml"),
        (
            "page",
            b'<?xml version="1.0"?>\n<!-- x -->\n<html xmlns="u"><body>tea</body></html>',
            ".html",
        ),
    ],
)
def test_content_against_a_suffix(tmp_path, name, data, read_as):
    """What the first bytes mark is read as that, and the metadata tell it."""
    (tmp_path / name).write_bytes(data)
    assert load_file(tmp_path / name).metadata["read_as"] == read_as


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.txt", PAGE),
        ("a.md", MAIL),
        ("a.txt", b"{\\rtf1 is how RTF begins"),
        ("a.txt", b"BM25 ranks nodes"),
        ("a.txt", b"GIF89a is a format"),
        ("a.py", b"# %PDF-1.7 in the text\n"),
        ("a.txt", b"\n%PDF-1.7 is the first line of a PDF\n"),
        ("LICENSE", b"Permission is hereby granted"),
        ("a.conf", b"[section]\nname = value\n"),
        ("notes.old", b"[1] A reference\nTo: the point\n"),
        ("notes.old", "绿茶不是烤的。Note: 明前茶。".encode("gb18030")),
        ("template", b"{{ name }}"),
    ],
)
def test_texts_stay_texts(tmp_path, name, data):
    """A suffix of a text format outweighs what the text looks like, and a plain text without suffix
    is one.
    """
    (tmp_path / name).write_bytes(data)
    loaded = load_file(tmp_path / name)
    assert loaded.text.split() == load_text(tmp_path / name).split()
    assert "read_as" not in loaded.metadata


def load_text(path):
    """A file read as plain text."""
    return loaders[".txt"]().load(path).text


@pytest.mark.parametrize(
    ("data", "suffix"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", ".png"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", ".jpg"),
        (b"GIF89a\x01\0\x01\0\0\0", ".gif"),
        (b"BM\x46\0\0\0\0\0\0\0\x36\0", ".bmp"),
        (b"II*\0\x08\0\0\0", ".tiff"),
        (b"RIFF\x24\0\0\0WAVEfmt ", ".wav"),
        (b"RIFF\x24\0\0\0WEBPVP8 ", ".webp"),
        (b"ID3\x04\0\0\0\0\0\0", ".mp3"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0", ".mp4"),
        (b"\0\0\0\x18ftypM4A \0\0\0\0", ".m4a"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", ".heic"),
        (zipped({"a.txt": b"tea"}), ".zip"),
        (zipped({"[Content_Types].xml": b"", "xl/workbook.bin": b"\0"}), ".xlsb"),
        (zipped({"[Content_Types].xml": b"", "other/part.xml": b"<a/>"}), None),
        (zipped({"META-INF/MANIFEST.MF": b"", "a.class": b"\0"}), ".jar"),
        (zipped({"mimetype": b"application/vnd.oasis.opendocument.graphics"}), None),
        (b"\x1f\x8b\x08\0\0\0\0\0", ".gz"),
        (b"SQLite format 3\0\x10\0", ".sqlite"),
        (b"MZ\x90\0\x03\0\0\0", ".exe"),
        (b"\x7fELF\x02\x01\x01\0", ".elf"),
        (b"{\\rtf1\\ansi tea}", ".rtf"),
        (b"junk\r\n%PDF-1.7\n%\xe2\xe3", ".pdf"),
        (b"", None),
        (b" \n\t", None),
        (bytes(64), None),
        (b"PK\x03\x04 and no more", None),
        (bytes.fromhex("d0cf11e0a1b11ae1"), None),
        (b"\xc3\x28\xa0\xa1", None),
    ],
)
def test_what_bytes_are(tmp_path, data, suffix):
    """Formats are told by their marks; what is damaged or too little to tell is none."""
    assert sniffed(tmp_path / "file", data) == suffix


def test_containers_of_sound_and_film_are_not_told_apart(tmp_path):
    """An m4a that is marked as any mp4 is stays sound; a film that is called a picture does not
    stay one.
    """
    path = tmp_path / "song.m4a"
    path.write_bytes(b"\0\0\0\x18ftypmp42\0\0\0\0")
    found = sniff(path)
    assert not found.outweighs(".m4a")
    assert found.outweighs(".png")


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("test.xls", ".xls"),
        ("fake-email.msg", ".msg"),
        ("password_protected.xlsx", None),
        ("test_llm.jpg", ".jpg"),
    ],
)
def test_what_real_files_are(name, suffix):
    """Compound files are told by their streams; a locked one is left to its suffix, whose loader
    says what it is.
    """
    found = sniff(shared("data", "docs", name))
    assert (None if found is None else found.suffix) == suffix


def test_a_suffix_of_a_user_always_decides(tmp_path):
    """A registered loader gets its files whatever they hold, be its suffix new or taken over."""

    class Own:
        """Says so."""

        def load(self, path):
            """Its own text."""
            return f"own {path.name}"

    register_loader(".dat")(Own)
    register_loader(".docx", replace=True)(Own)
    for name in ("a.dat", "a.docx"):
        (tmp_path / name).write_bytes(PDF)
        assert load_file(tmp_path / name).text == f"own {name}"


def test_the_message_about_what_nothing_reads(tmp_path):
    """It is short: what was given, how many are read and where they stand, what to do; no guess at
    another suffix.
    """
    path = tmp_path / "a.markdwn"
    path.write_bytes(b"\0\1\2")
    with pytest.raises(LoadError) as caught:
        load_file(path)
    assert str(caught.value) == (
        f"No loader reads .markdwn. Its content is of no known format. {len(loaders)} "
        "suffixes are read, see lazyrag.loaders.loaders. Add a reader with Document.add_reader or @register_loader."
    )
    path.write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0")
    with pytest.raises(
        LoadError, match=r"Its content is that of \.gz files, which none reads either"
    ):
        load_file(path)


def test_a_later_loader_reads_again_what_its_content_chose(folder):
    """A file without suffix that is an HTML page is read again when another loader of HTML is
    registered.
    """
    docs = Document(folder({"README": PAGE, "b.txt": "tea"}))
    assert [node.text for node in docs.get_nodes()] == ["Tea\n\nGreen tea", "tea"]
    register_loader(".html", replace=True)(type("Own", (), {"load": lambda _self, _path: "own"}))
    assert docs.sync().updated == ("README",)
    assert [node.text for node in docs.get_nodes()] == ["own", "tea"]


def test_a_misnamed_file_is_one_failure_where_it_is_broken(folder):
    """A PDF by its first bytes and nothing else is reported by the loader of PDF, under its own
    name.
    """
    docs = Document(folder({"a.docx": b"%PDF-1.4\nno more", "b.txt": "tea"}))
    with pytest.warns(
        IngestionWarning, match=r"a\.docx \(load\): PdfLoader could not read the file"
    ):
        docs.get_nodes()


@pytest.mark.parametrize(
    "data", [b"<!---->" * 600, b" " * 5000, b"<?xml?>" * 600, b"a:\n " * 1000, b"<!--" * 1000]
)
def test_no_beginning_takes_long(tmp_path, data):
    """What repeats a mark is looked at once, not in all the ways it can be taken apart."""
    started = time.process_time()
    sniffed(tmp_path / "file", data + b"x")
    assert time.process_time() - started < 2


@given(st.binary(max_size=600))
def test_any_bytes_are_looked_at_without_harm(tmp_path_factory, data):
    """Whatever a file holds, looking at it ends without an error, and finds nothing in an empty
    one.
    """
    path = tmp_path_factory.getbasetemp() / "any"
    found = sniffed(path, data)
    assert data.strip() or found is None


@given(
    st.sampled_from(
        [bytes.fromhex("d0cf11e0a1b11ae1"), b"PK\x03\x04", b"%PDF-1.", b"RIFF", b"<?xml "]
    ),
    st.binary(),
)
def test_any_bytes_behind_a_mark_are_looked_at_without_harm(tmp_path_factory, mark, data):
    """A file that begins like a format and goes on like none is looked at without an error."""
    sniffed(tmp_path_factory.getbasetemp() / "marked", mark + data)


@given(st.text(min_size=1, max_size=300).filter(lambda text: not text.startswith("%PDF-")))
def test_no_text_is_taken_for_another_format(tmp_path_factory, text):
    """A text in UTF-8, in any script, under .txt is read as that; only a PDF's first bytes outweigh
    its name.
    """
    path = tmp_path_factory.getbasetemp() / "text.txt"
    path.write_bytes(text.encode())
    found = sniff(path)
    assert found is None or not found.outweighs(".txt")
