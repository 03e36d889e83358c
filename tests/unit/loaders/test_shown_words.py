"""Nothing that a viewer shows is lost silently: each word that an independent tool finds in a file
is in the text that its loader reads, or a note says what is left out.
"""

from __future__ import annotations

import codecs
import csv
import email
import email.policy
import io
import json
import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from pathlib import Path

import docx
import pypdf
import pytest
from lxml import etree, html
from markdown_it import MarkdownIt

from lazyrag.errors import LoadError
from lazyrag.loaders import load_file, loaders
from tests.format_cases import CASES
from tests.interpreter import ROOT
from tests.shared import shared

Shown = tuple[str, str]
"""The beginning of the note that may stand for a text ("": none may), and the text."""

_WORD = re.compile(r"[^\W_]+")
_OFFICE_PARTS = {
    "": re.compile(
        r"word/(?:document|footnotes|endnotes)\.xml|ppt/(?:slides/slide|notesSlides/notesSlide)\d+\.xml"
        r"|xl/(?:sharedStrings|comments\d+|drawings/drawing\d+)\.xml|xl/worksheets/sheet\d+\.xml"
        r"|(?:word|ppt)/(?:charts/chart|diagrams/data)\d+\.xml"
    ),
    "comments": re.compile(r"word/comments\.xml|ppt/comments/[^/]+\.xml"),
    "headers and footers": re.compile(r"word/(?:header|footer)\d*\.xml"),
    "charts": re.compile(r"xl/charts/chart\d+\.xml"),
}
_SEEN_ON_PAGES = (
    "//text()[not(ancestor::script or ancestor::style or ancestor::head or ancestor::nav or"
    " ancestor::*[@hidden or contains(@style, 'display:none')])]"
)


def decode(data: bytes) -> str:
    """A text in UTF-8 or, with a mark, UTF-16."""
    is_wide = data.startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE))
    return data.decode("utf-16" if is_wide else "utf-8-sig")


def _local(element: etree._Element) -> str:
    return etree.QName(element).localname if isinstance(element.tag, str) else ""


def _texts(root: etree._Element, blocks: set[str], unseen: set[str]) -> Iterator[str]:
    """The text of elements, with a space at both ends of each block."""
    for event, element in etree.iterwalk(root, events=("start", "end")):
        name = _local(element)
        if any(_local(above) in unseen for above in (element, *element.iterancestors())):
            continue
        yield " " if name in blocks else ""
        if event == "start":
            yield element.text or ""
        else:
            yield element.tail or ""


def _office(data: bytes) -> Iterator[Shown]:
    """The shown parts of .docx, .pptx and .xlsx, without numbers of sheets, which have formats."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            for note, pattern in _OFFICE_PARTS.items():
                if not pattern.fullmatch(name):
                    continue
                root = etree.fromstring(archive.read(name))
                unseen = {
                    "Fallback",
                    "delText",
                    "instrText",
                    "f",
                    "formatCode",
                    "posOffset",
                    "tableStyleId",
                }
                unseen |= {"v"} if name.startswith("xl/worksheets") else set()
                blocks = {"p", "tc", "c", "si", "pt", "tab", "br", "cr", "v"}
                yield note, "".join(_texts(root, blocks, unseen))


def _open_document(data: bytes) -> Iterator[Shown]:
    """The body of .odt, .ods and .odp, comments, headers and footers."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        body = etree.fromstring(archive.read("content.xml")).find("{*}body")
        styles = etree.fromstring(archive.read("styles.xml"))
    blocks = {"p", "h", "table-cell", "tab", "line-break", "s", "note", "note-citation"}
    unseen = {"tracked-changes", "annotation", "desc"}
    yield "", "".join(_texts(body, blocks, unseen))
    for comment in body.iter("{*}annotation"):
        yield "comments", "".join(_texts(comment, blocks, set()))
    if body.find("{*}text") is not None:
        for line in styles.iterfind(".//{*}master-page/*/{*}p"):
            yield "headers and footers", "".join(_texts(line, blocks, set()))


def _page(text: str) -> str:
    """The text of a web page without navigation and what browsers do not show."""
    parser = html.HTMLParser(encoding="utf-8")
    return " ".join(html.document_fromstring(text.encode(), parser=parser).xpath(_SEEN_ON_PAGES))


def _web(data: bytes) -> Iterator[Shown]:
    yield "", _page(decode(data))


def _book(data: bytes) -> Iterator[Shown]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            if name.endswith((".xhtml", ".html")):
                yield "", _page(archive.read(name).decode())


def _mail(data: bytes) -> Iterator[Shown]:
    message = email.message_from_bytes(data, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    yield "", " ".join(message.get(name, "") for name in ("subject", "from", "to"))
    body = message.get_body(("plain", "html"))
    if body is not None:
        content = body.get_content()
        yield "", content if body.get_content_subtype() == "plain" else _page(content)


def _pdf(data: bytes) -> Iterator[Shown]:
    for page in pypdf.PdfReader(io.BytesIO(data)).pages:
        yield "", page.extract_text()


def _markdown(data: bytes) -> Iterator[Shown]:
    rendered = MarkdownIt("commonmark").enable("table").render(decode(data))
    yield "", _page(f"<body>{rendered}</body>")


def _notebook(data: bytes) -> Iterator[Shown]:
    for cell in json.loads(data)["cells"]:
        yield "", "".join(cell["source"])


def _cells(data: bytes) -> Iterator[Shown]:
    for row in csv.reader(io.StringIO(decode(data))):
        yield "", " ".join(row)


def _values(data: bytes) -> Iterator[Shown]:
    def scalars(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            yield from value
            value = list(value.values())
        if isinstance(value, list):
            for member in value:
                yield from scalars(member)
        elif isinstance(value, str):
            yield value

    for line in decode(data).splitlines() if b"\n{" in data else [decode(data)]:
        yield "", " ".join(scalars(json.loads(line)))


def _xml(data: bytes) -> Iterator[Shown]:
    yield "", " ".join(map(str, etree.fromstring(data).itertext()))


READERS: dict[str, Callable[[bytes], Iterator[Shown]]] = {
    **dict.fromkeys((".docm", ".docx", ".pptx", ".xlsx"), _office),
    **dict.fromkeys((".odp", ".ods", ".odt"), _open_document),
    **dict.fromkeys((".htm", ".html"), _web),
    **dict.fromkeys((".json", ".ndjson"), _values),
    ".csv": _cells,
    ".eml": _mail,
    ".epub": _book,
    ".ipynb": _notebook,
    ".md": _markdown,
    ".pdf": _pdf,
    ".xml": _xml,
}


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold().replace("\u00ad", "")


def lost_words(path: Path) -> list[str]:
    """The words of a file that neither its text nor a note stands for; [] where loading fails,
    which says why.
    """
    try:
        loaded = load_file(path)
    except LoadError:
        return []
    notes = loaded.metadata.get("notes", [])
    read = re.sub(r"[\W_]+", "", _folded(f"{loaded.text} {loaded.metadata}"))
    lost: set[str] = set()
    for note, text in READERS[path.suffix.lower()](path.read_bytes()):
        if not (note and any(map(re.compile(note).match, notes))):
            lost.update(word for word in _WORD.findall(_folded(text)) if word not in read)
    return sorted(lost)


INDEPENDENT_TOOL_FAILS = re.compile(
    # order of letters of both directions, damaged files, sealed mail (noted in other metadata)
    r"(?:PDF, (?:Arabic|Hebrew|without index|cut off)|mail, PGP \w+)\.\w+"
    # files of other formats than their suffixes, UTF-16 as a whole, entities of a DTD
    # encodings
    r"|made_zh_gbk\.html|fake-html-cp1252\.html|test_mskanji\.csv|umlauts-non-utf8\.md"
    r"|made_html_named\.pdf|made_pdf_named\.docx|fake-email-utf-16\.eml|patent\.xml"
)
LOST = {"failure-after-repair.pdf"}
"""Files that lose words: pages behind damage."""


def _lost_of(folder: Path, suffix: str) -> dict[str, list[str]]:
    paths = (path for path in sorted(folder.rglob("*")) if path.suffix.lower() == suffix)
    lost = {
        path.name: lost_words(path)
        for path in paths
        if not INDEPENDENT_TOOL_FAILS.fullmatch(path.name)
    }
    return {name: words for name, words in lost.items() if words}


@pytest.mark.parametrize("suffix", READERS)
def test_words_of_made_files(tmp_path, suffix):
    """What readers often lose, as made files, and a text of each format of the corpus."""
    for name, make in CASES.items():
        case = make()
        if case.suffix == suffix:
            (tmp_path / f"{name}{suffix}").write_bytes(case.data)
    assert _lost_of(tmp_path, suffix) == {}
    assert _lost_of(ROOT / "cookbook" / "corpus", suffix) == {}


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("suffix", READERS)
def test_words_of_real_files(suffix):
    """Files of other programs."""
    lost = _lost_of(shared("data", "docs"), suffix) | _lost_of(shared("cases", "files"), suffix)
    assert {name: words for name, words in lost.items() if name not in LOST} == {}


def test_left_out_parts_are_counted(tmp_path):
    """Comments, headers and footers of a Word document are noted with their number, until they are
    read.
    """
    document = docx.Document()
    run = document.add_paragraph("Sencha").add_run(" of Uji")
    document.add_comment(run, text="Of which year?", author="Li", initials="L")
    document.sections[0].header.paragraphs[0].text = "Tea list"
    path = tmp_path / "teas.docx"
    document.save(str(path))
    notes = load_file(path).metadata["notes"]
    assert notes == [
        "comments left out: 1 (DocxLoader(comments=True) reads them)",
        "headers and footers left out: 1 (DocxLoader(headers=True) reads them)",
    ]
    assert "notes" not in loaders[".docx"](comments=True, headers=True).load(path).metadata


def test_left_out_parts_of_rich_text(tmp_path):
    """Headers, footers and comments of Rich Text are counted."""
    path = tmp_path / "teas.rtf"
    path.write_bytes(
        rb"{\rtf1{\header Tea list\par}{\footer Uji\par}Sencha{\*\annotation Old}\par}"
    )
    notes = load_file(path).metadata["notes"]
    assert notes == [f"{parts} left out: 1" for parts in ("comments", "footers", "headers")]


def test_left_out_parts_of_a_text_document(tmp_path):
    """A comment in an OpenDocument text is counted, and so is a formula."""
    names = "".join(
        f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{space}:1.0"'
        for name, space in (("office", "office"), ("text", "text"), ("draw", "drawing"))
    )
    line = "<text:p>Sencha<office:annotation><text:p>Old</text:p></office:annotation></text:p>"
    frame = "<text:p><draw:frame><draw:object/></draw:frame></text:p>"
    body = f"<office:body><office:text>{line}{frame}</office:text></office:body>"
    path = tmp_path / "teas.odt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "content.xml", f"<office:document-content{names}>{body}</office:document-content>"
        )
    loaded = load_file(path)
    assert (loaded.text.strip(), loaded.metadata["notes"]) == (
        "Sencha",
        ["comments left out: 1", "charts and formulas left out: 1"],
    )
