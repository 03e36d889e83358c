"""E-books: the chapters that a reader turns through, in that order."""

from __future__ import annotations

import zipfile

import pytest

from lazyrag import Document
from lazyrag.errors import LoadError
from lazyrag.loaders import load_file
from lazyrag.read import to_markdown
from tests.shared import shared

CONTAINER = """\
<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>"""


def page(body: str) -> str:
    """A page of XHTML with empty elements, as programs write them."""
    return (
        '<?xml version="1.0" encoding="utf-8"?><!DOCTYPE html><html xmlns="http://www.w3.org/1999/xhtml"><head>'
        f'<title/><script src="x.js"/></head><body><a id="top"/>{body}</body></html>'
    )


def book(
    path, pages: dict[str, str], *, spine: list[str] | None = None, metadata: str = "", more=None
) -> None:
    """Write an e-book of pages, in the order of the spine."""
    contents = {name: "nav" if name.startswith("nav") else "svg" for name in pages}
    items = "".join(
        f'<item id="i{at}" href="{name}" media-type="application/xhtml+xml" properties="{contents[name]}"/>'
        for at, name in enumerate(pages)
    )
    order = [list(pages).index(name) for name in (pages if spine is None else spine)]
    references = "".join(f'<itemref idref="i{at}"/>' for at in order)
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"{metadata}</metadata><manifest>{items}</manifest><spine>{references}</spine></package>"
    )
    files = {"META-INF/container.xml": CONTAINER, "OEBPS/book.opf": package, **(more or {})}
    files |= {f"OEBPS/{name.replace('%20', ' ')}": text for name, text in pages.items()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)


@pytest.fixture
def load(tmp_path):
    """A function that writes an e-book and loads it."""

    def written_and_loaded(*args, **kwargs):
        book(tmp_path / "a.epub", *args, **kwargs)
        return load_file(tmp_path / "a.epub")

    return written_and_loaded


def chapters(loaded) -> list[tuple[str, str]]:
    """Label and text of each chapter."""
    return [
        (location.label, loaded.text[location.start : location.end])
        for location in loaded.locations
        if location.kind == "chapter"
    ]


def test_chapters_in_the_order_of_reading(load):
    """The spine says the order; chapters are called by their first heading, else by their
    number.
    """
    pages = {
        "c2.xhtml": page("<h1>杀青</h1><p>高温。</p><h2>Inner</h2>"),
        "c1.xhtml": page("<p>A preface.</p>"),
        "c3.xhtml": page("<table><tr><td>tea</td><td>price</td></tr></table>"),
    }
    loaded = load(pages, spine=["c1.xhtml", "c2.xhtml", "c3.xhtml"])
    assert chapters(loaded) == [
        ("1", "A preface."),
        ("杀青", "杀青\n\n高温。\n\nInner"),
        ("3", "tea | price"),
    ]
    [section] = [location for location in loaded.locations if location.kind == "heading"]
    assert (section.label, loaded.text[section.start : section.end]) == ("杀青 > Inner", "Inner")


def test_pages_without_text_and_the_contents_are_left_out(load):
    """A cover of pictures, an empty page and the table of contents are no chapters."""
    pages = {
        "cover.xhtml": page('<img src="cover.jpg" alt="cover"/>'),
        "nav.xhtml": page("<h1>Contents</h1><ol><li>Tea</li></ol>"),
        "none.xhtml": "",
        "my%20tea.xhtml": page("<h1>Tea</h1>"),
    }
    assert chapters(load(pages)) == [("Tea", "Tea")]


def test_metadata(load):
    """Title, authors and language of a book become metadata."""
    authors = "<dc:creator>Li</dc:creator><dc:creator>Wang</dc:creator>"
    said = f"<dc:title> Tea </dc:title>{authors}<dc:language>zh</dc:language>"
    loaded = load({"c.xhtml": page("<p>x</p>")}, metadata=said)
    assert dict(loaded.metadata) == {"title": "Tea", "author": "Li, Wang", "language": "zh"}


def encrypted(name: str) -> dict[str, str]:
    """The part that says that another one is encrypted."""
    return {
        "META-INF/encryption.xml": '<encryption xmlns:enc="http://www.w3.org/2001/04/xmlenc#"><enc:EncryptedData>'
        f'<enc:CipherData><enc:CipherReference URI="{name}"/></enc:CipherData></enc:EncryptedData></encryption>'
    }


def test_protected_books(load):
    """A book whose pages are encrypted says so; encrypted fonts do not matter."""
    pages = {"c.xhtml": page("<p>words</p>")}
    assert load(pages, more=encrypted("OEBPS/font.otf")).text == "words"
    with pytest.raises(LoadError, match="protected against copying"):
        load(pages, more=encrypted("OEBPS/c.xhtml"))


def test_a_node_says_its_chapter(tmp_path):
    """A hit in a book names the chapter, and the section in it."""
    tea = page("<h1>Tea</h1><p>green</p><h2>Brewing</h2><p>hot</p>")
    book(tmp_path / "a.epub", {"c.xhtml": tea, "d.xhtml": page("<p>black</p>")})
    docs = Document(tmp_path)
    docs.create_node_group("line", transform=lambda text: text.splitlines())
    assert {node.text: node.location for node in docs.get_nodes("line") if node.text} == {
        "Tea": "chapter Tea",
        "green": "chapter Tea",
        "Brewing": "Tea > Brewing",
        "hot": "Tea > Brewing",
        "black": "chapter 2",
    }
    assert to_markdown(docs, "a.epub") == ("# Tea\n\ngreen\n\n## Brewing\n\nhot\n\nblack\n")


@pytest.mark.shared
def test_a_real_book():
    """A real book gives its chapters, without its table of contents."""
    loaded = load_file(shared("data", "docs", "test.epub"))
    assert [label for label, _ in chapters(loaded)] == [
        "Chapter 1: Test Content",
        "Chapter 2: More Content",
    ]
    assert loaded.metadata["author"] == "Test Author"


def test_an_archive_of_something_else(tmp_path):
    """A zip file without the parts of a book says which one it lacks."""
    with zipfile.ZipFile(tmp_path / "a.epub", "w") as archive:
        archive.writestr("a.txt", "Green tea")
    with pytest.raises(
        LoadError, match=r"no e-book: .* lacks the part META-INF/container\.xml\. Save it again as"
    ):
        load_file(tmp_path / "a.epub")


@pytest.mark.shared
def test_what_is_no_book(tmp_path):
    """Files of other formats fail with what to do."""
    path = tmp_path / "a.epub"
    path.write_bytes(shared("data", "docs", "wiki.md").read_bytes())
    with pytest.raises(
        LoadError, match="no e-book: it is cut off, encrypted, or of another format"
    ):
        load_file(path)
