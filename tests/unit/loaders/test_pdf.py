"""PDF documents: the text layer page by page."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import textwrap

import pypdf
import pytest
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas

from lazyrag import DataType, DocField, Document
from lazyrag.errors import LoadError
from lazyrag.loaders import load_file


def make_pdf(
    pages: list[str], *, font: str = "Helvetica", title: str = "", author: str = ""
) -> bytes:
    """A PDF with one page for each text; lines as they are, an empty text makes an empty page."""
    data = io.BytesIO()
    canvas = Canvas(data)
    for text in pages:
        canvas.setFont(font, 12)
        for number, line in enumerate(text.splitlines()):
            canvas.drawString(72, 720 - 18 * number, line)
        canvas.showPage()
    canvas.setTitle(title)
    canvas.setAuthor(author)
    canvas.save()
    return data.getvalue()


def changed(data: bytes, change) -> bytes:
    """The same PDF after a change to its pypdf writer."""
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(data))
    change(writer)
    target = io.BytesIO()
    writer.write(target)
    return target.getvalue()


def read_as(letters: dict[str, str]):
    """A change that makes each letter of a PDF's font read as other text, as PDF writers do with
    glyphs.
    """
    pairs = "".join(
        f"<{ord(one):02X}> <{text.encode('utf-16-be').hex()}>\n" for one, text in letters.items()
    )
    table = (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def\n"
        f"1 begincodespacerange <00> <FF> endcodespacerange\n{len(letters)} beginbfchar\n{pairs}endbfchar\n"
        "endcmap CMapName currentdict /CMap defineresource pop end end"
    )

    def change(writer: pypdf.PdfWriter) -> None:
        stream = DecodedStreamObject()
        stream.set_data(table.encode())
        reference = writer._add_object(stream)
        for page in writer.pages:
            for font in page["/Resources"]["/Font"].values():
                font.get_object()[NameObject("/ToUnicode")] = reference

    return change


@pytest.fixture
def load(tmp_path):
    """A function that writes a PDF and loads it."""

    def written_and_loaded(data: bytes):
        path = tmp_path / "file.pdf"
        path.write_bytes(data)
        return load_file(path)

    return written_and_loaded


def test_pages_are_places(load):
    """Each page is a place with its number, and the text of all pages stands in order, an empty
    line between them.
    """
    loaded = load(make_pdf(["first page\nsecond line", "second page", "third"]))
    assert loaded.text == "first page\nsecond line\n\nsecond page\n\nthird"
    assert [
        (location.kind, location.label, loaded.text[location.start : location.end])
        for location in loaded.locations
    ] == [
        ("page", "1", "first page\nsecond line"),
        ("page", "2", "second page"),
        ("page", "3", "third"),
    ]


def test_empty_pages_count(load):
    """Pages without text keep their numbers, so that the page after them has the one that a reader
    sees.
    """
    loaded = load(make_pdf(["", "second", "", "fourth"]))
    assert [
        (location.label, loaded.text[location.start : location.end])
        for location in loaded.locations
    ] == [
        ("1", ""),
        ("2", "second"),
        ("3", ""),
        ("4", "fourth"),
    ]


def test_a_hit_names_its_page(folder):
    """A node names the page it stands on, or the pages where it goes over an end of page; empty
    pages are none.
    """
    pages = ["Green tea is picked in April.", "", "Black tea is fermented.", "Coffee is roasted."]
    docs = Document(folder({"tea.pdf": make_pdf(pages)}))
    docs.create_node_group(
        "sentence", transform=lambda text: [one + "." for one in text.split(".")[:-1]]
    )
    docs.create_node_group(
        "half", transform=lambda text: [text[: text.index("Coffee")], text[text.index("Coffee") :]]
    )
    assert [node.location for node in docs.get_nodes("sentence")] == ["page 1", "page 3", "page 4"]
    assert [node.location for node in docs.get_nodes("half")] == ["pages 1-3", "page 4"]


def test_chinese_text(load):
    """Chinese text is read character by character."""
    pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))
    assert (
        load(make_pdf(["绿茶是未经发酵的茶叶。"], font="STSong-Light")).text
        == "绿茶是未经发酵的茶叶。"
    )


@pytest.mark.parametrize(
    ("read", "meant"),
    [
        ("\u2f46", "无"),
        ("\u2f00\u2f08", "一人"),
        ("\u2ed3", "长"),
        ("\u2ed4", "门"),
        ("\u2ee9", "黄"),
        ("\uf900", "豈"),
        ("\ufb01\ufb02", "fifl"),
        ("\ufb03", "ffi"),
    ],
)
def test_radicals_and_ligatures_are_mapped_to_letters(load, read, meant):
    """Kangxi radicals, compatibility ideographs and ligatures, which PDF writers leave, become what
    a reader means.
    """
    loaded = load(
        changed(make_pdf(["a~b", "second"]), read_as({"~": read, "a": "x", "b": "y", "s": "s"}))
    )
    assert loaded.text.startswith(f"x{meant}y")
    assert loaded.text[loaded.locations[0].start : loaded.locations[0].end] == f"x{meant}y"


@pytest.mark.parametrize("kept", ["ＡＢ", "①", "½", "²", "…", "㎏"])
def test_other_compatibility_characters_stay(load, kept):
    """Full-width letters, circled digits and the like are what the author wrote: they stay."""
    assert load(changed(make_pdf(["a~"]), read_as({"~": kept, "a": "x"}))).text == f"x{kept}"


def test_title_and_author_become_metadata(load):
    """Title and author are metadata, white space at the ends removed."""
    metadata = load(make_pdf(["text"], title=" 绿茶 ", author="Li Hua")).metadata
    assert {name: metadata.get(name) for name in ("title", "author", "subject")} == {
        "title": "绿茶",
        "author": "Li Hua",
        "subject": None,
    }


def test_dates_become_iso_8601(load):
    """The times at which a PDF was made and changed are metadata, with their zone."""

    def date(writer: pypdf.PdfWriter) -> None:
        writer.add_metadata(
            {
                "/CreationDate": "D:20240131093000+08'00'",
                "/ModDate": "D:2024",
                "/Keywords": "tea, 茶",
            }
        )

    metadata = load(changed(make_pdf(["text"]), date)).metadata
    assert metadata["created"] == "2024-01-31T09:30:00+08:00"
    assert metadata["modified"] == "2024-01-01T00:00:00"
    assert metadata["keywords"] == "tea, 茶"


def test_no_information_is_no_metadata(load):
    """The metadata of a PDF without document information are its number of pages."""

    def forget(writer: pypdf.PdfWriter) -> None:
        writer.metadata = None

    assert dict(load(changed(make_pdf(["text"], title="x", author="y"), forget)).metadata) == {
        "pages": 1
    }


def test_the_author_can_be_filtered_by(folder):
    """Where doc_fields declare author, the PDF's own one can be filtered by."""
    files = {f"{name}.pdf": make_pdf([f"text of {name}"], author=name) for name in ("Li", "Wang")}
    docs = Document(folder(files), doc_fields={"author": DocField(DataType.VARCHAR)})
    assert [node.path for node in docs.get_nodes(filters={"author": ["Wang"]})] == ["Wang.pdf"]


@pytest.mark.parametrize(("pages", "named"), [(1, "page 1"), (3, "pages 1, 2, 3")])
def test_a_pdf_without_text_layer_is_reported(load, pages, named):
    """Pages that hold only drawings fail with a message that says which they are and what they
    need.
    """
    data = io.BytesIO()
    canvas = Canvas(data)
    for _ in range(pages):
        canvas.rect(100, 100, 200, 200, fill=1)
        canvas.showPage()
    canvas.save()
    with pytest.raises(
        LoadError,
        match=rf"no text layer on any page: only pictures on {named}. Call .*text recognition",
    ):
        load(data.getvalue())


@pytest.mark.parametrize("algorithm", ["RC4-40", "RC4-128", "AES-256"])
def test_an_encrypted_pdf_is_reported(load, algorithm):
    """A PDF that needs a password fails with a message that says so."""
    data = changed(make_pdf(["secret"]), lambda writer: writer.encrypt("key", algorithm=algorithm))
    with pytest.raises(LoadError, match="needs a password"):
        load(data)


def test_an_empty_password_opens(load):
    """A PDF that is encrypted only to forbid copying, with an empty password, is read."""
    data = changed(make_pdf(["text"]), lambda writer: writer.encrypt("", "x", algorithm="RC4-128"))
    assert load(data).text == "text"


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.95])
def test_a_truncated_pdf_is_read_or_reported(load, kept):
    """A PDF that was cut off fails with a LoadError or gives pages in order; no other error comes
    out.
    """
    data = make_pdf([f"page {number}" for number in range(1, 21)])
    try:
        loaded = load(data[: int(len(data) * kept)])
    except LoadError as exc:
        assert "damaged" in str(exc) or "no text" in str(exc)  # noqa: PT017  reading the rest is as good
    else:
        assert kept > 0.5
        assert [location.label for location in loaded.locations] == [
            str(number) for number in range(1, len(loaded.locations) + 1)
        ]
        assert "page 1" in loaded.text


@pytest.mark.parametrize(
    "data", [b"only text", b"%PDF-1.7\n", b"%PDF-1.7\n%%EOF", bytes(range(256)) * 9]
)
def test_other_bytes_under_the_name_of_a_pdf_are_reported(load, data):
    """What is no PDF fails with a LoadError that names the loader."""
    with pytest.raises(LoadError) as caught:
        load(data)
    assert caught.value.loader == "PdfLoader"


def test_a_pdf_behind_other_bytes_is_read(load):
    """A PDF that a download put some bytes before is read."""
    assert load(b"\r\n\r\n" + make_pdf(["text"])).text == "text"


def test_a_circle_of_pages_is_read_or_reported(load):
    """A damaged page tree that contains itself neither hangs nor brings anything but a
    LoadError.
    """

    def bend(writer: pypdf.PdfWriter) -> None:
        tree = writer.root_object["/Pages"]
        tree[NameObject("/Kids")].append(writer.root_object.raw_get("/Pages"))
        assert isinstance(tree, DictionaryObject)

    try:
        assert load(changed(make_pdf(["text"]), bend)).text.startswith("text")
    except LoadError as exc:
        assert "damaged" in str(exc)  # noqa: PT017  reading the page is as good


@pytest.mark.slow
def test_what_pypdf_logs_of_a_file_is_not_heard(tmp_path):
    """A flawed or broken PDF prints nothing on a program's standard error: it is read, or reported
    as a LoadError.
    """
    whole = make_pdf([f"page {number}" for number in range(1, 21)])
    (tmp_path / "flawed.pdf").write_bytes(make_pdf(["tea"]).replace(b"~>", b"  "))
    (tmp_path / "cut.pdf").write_bytes(whole[: len(whole) // 2])
    program = textwrap.dedent("""
        import sys
        from lazyrag.errors import LoadError
        from lazyrag.loaders import load_file
        print(load_file("flawed.pdf").text)
        try:
            load_file("cut.pdf")
        except LoadError:
            print("reported")
    """)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["tea", "reported"]
    assert done.stderr == ""


def pypdf_loggers() -> dict[str, tuple]:
    """How the loggers of pypdf are configured."""
    names = [
        name for name in logging.Logger.manager.loggerDict if name.partition(".")[0] == "pypdf"
    ]
    loggers = [logging.getLogger(name) for name in ("", *names)]
    return {
        one.name: (one.level, one.propagate, one.disabled, list(one.filters), list(one.handlers))
        for one in loggers
    }


def test_the_users_logging_stays_as_it_was(load, caplog):
    """What an application logs through pypdf itself is heard after a PDF was loaded, and its
    settings are the same.
    """
    broken = make_pdf(["tea"])[:300]
    with pytest.raises(LoadError):
        load(broken)
    before = pypdf_loggers()
    with pytest.raises(LoadError):
        load(broken)
    assert caplog.messages == []
    assert pypdf_loggers() == before
    with pytest.raises(pypdf.errors.PyPdfError):
        len(pypdf.PdfReader(io.BytesIO(broken)).pages)
    assert caplog.messages != []
