"""PdfLoader's arguments: passwords, text recognition, limits; and what is said of pages that gave
no text.
"""

from __future__ import annotations

import io
import re

import numpy as np
import pypdf
import pytest
from pypdf.annotations import FreeText
from pypdf.generic import DecodedStreamObject, NameObject, NumberObject
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from lazyrag import Document, IngestionWarning, register_loader
from lazyrag.errors import ConfigError, LoadError, UnknownKeywordError
from lazyrag.loaders import LoadLimits, load_file
from lazyrag.loaders.pdf import PdfLoader
from tests.unit.loaders.test_pdf import changed, read_as


def pages(*texts: str) -> bytes:
    """A PDF with a page for each text; "#" makes a scanned page, "" an empty one."""
    data = io.BytesIO()
    canvas = Canvas(data)
    for text in texts:
        if text == "#":
            canvas.rect(100, 100, 200, 200, fill=1)
        else:
            canvas.drawString(60, 700, text)
        canvas.showPage()
    canvas.save()
    return data.getvalue()


def encrypted(password: str, algorithm: str = "AES-256") -> bytes:
    """A PDF that needs a password."""
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pages("secret tea")))
    writer.encrypt(password, "the owner's", algorithm=algorithm)
    target = io.BytesIO()
    writer.write(target)
    return target.getvalue()


@pytest.fixture
def written(tmp_path):
    """A function that writes a file and gives its path."""

    def write(data: bytes):
        path = tmp_path / "file.pdf"
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-128", "AES-256"])
@pytest.mark.parametrize("password", ["key", ["other", "key"], "the owner's"])
def test_the_password_opens(written, algorithm, password):
    """A password, or one of several, opens a file; the owner's does, too."""
    loaded = PdfLoader(password).load(written(encrypted("key", algorithm)))
    assert loaded.text == "secret tea"


def test_a_wrong_password_is_told_from_a_missing_one(written):
    """Both fail with a LoadError that says what to do, and neither shows a password."""
    path = written(encrypted("key"))
    with pytest.raises(LoadError, match=r"needs a password\. Give it: PdfLoader\(password='...'\)"):
        PdfLoader().load(path)
    with pytest.raises(
        LoadError, match=r"no password that PdfLoader was given opens it\. Give it"
    ) as caught:
        PdfLoader("guessed").load(path)
    assert "guessed" not in str(caught.value)


def test_a_password_is_not_needed_where_it_was_given(written):
    """A file that is not encrypted is read, whatever the password."""
    assert PdfLoader("key").load(written(pages("tea"))).text == "tea"


def test_passwords_are_in_no_log():
    """What a loader shows of itself has no password in it."""
    assert (
        repr(PdfLoader("key", drop_repeated=True)) == "PdfLoader(password=..., drop_repeated=True)"
    )
    assert repr(PdfLoader()) == "PdfLoader()"


def test_a_loader_with_a_password_reads_a_folder(folder):
    """A subclass gives the password for all files of a Document; those with another one are
    reported.
    """

    @register_loader(".pdf", replace=True)
    class OfTheOffice(PdfLoader):
        def __init__(self):
            super().__init__("key")

    docs = Document(
        folder({"a.pdf": encrypted("key"), "b.pdf": encrypted("lost"), "c.pdf": pages("tea")})
    )
    with pytest.warns(IngestionWarning, match=r"b\.pdf"):
        assert {node.path: node.text for node in docs.get_nodes()} == {
            "a.pdf": "secret tea",
            "c.pdf": "tea",
        }
    [failure] = docs.last_report.failed
    assert "Give it" in str(failure.error)


def test_scanned_pages_are_named(written):
    """A file of scanned pages fails and names them; the metadata of a mixed one name them; empty
    pages are no scans.
    """
    with pytest.raises(
        LoadError, match=r"no text layer on any page: only pictures on pages 1, 3. Call"
    ):
        PdfLoader().load(written(pages("#", "", "#")))
    loaded = PdfLoader().load(written(pages("tea", "#", "", "#", "water")))
    assert loaded.metadata["pages_without_text"] == [2, 4]
    assert loaded.metadata["pages"] == 5
    assert [location.label for location in loaded.locations if location.end > location.start] == [
        "1",
        "5",
    ]
    assert "pages_without_text" not in PdfLoader().load(written(pages("tea", ""))).metadata


def test_pages_in_a_picture_are_scanned(written):
    """A photograph on a page is no text layer."""
    data = io.BytesIO()
    canvas = Canvas(data)
    picture = io.BytesIO(b"P6 2 2 255 " + bytes(range(12)))
    canvas.drawImage(ImageReader(picture), 100, 100, 200, 200)
    canvas.save()
    with pytest.raises(LoadError, match="only pictures on page 1"):
        PdfLoader().load(written(data.getvalue()))


@pytest.mark.slow
def test_text_recognition_gets_pictures_of_the_pages_that_need_it(written):
    """The function sees each scanned page as it looks, and no other; its text stands in the page's
    place.
    """
    seen = []

    def ocr(image: np.ndarray) -> str:
        seen.append(image)
        return f" black square {len(seen)}\n"

    loaded = PdfLoader(ocr=ocr).load(written(pages("tea", "#", "", "#")))
    assert [loaded.text[location.start : location.end] for location in loaded.locations] == [
        *["tea", "black square 1", "", "black square 2"]
    ]
    assert loaded.metadata["pages_by_ocr"] == [2, 4]
    assert "pages_without_text" not in loaded.metadata
    for image in seen:
        height, width, colours = image.shape
        assert (image.dtype, colours) == (np.uint8, 3)
        assert height / width == pytest.approx(841.89 / 595.28, rel=0.01)
        dark = (image < 50).all(axis=2)
        assert dark[-height * 250 // 842, width * 200 // 595]
        assert dark.mean() == pytest.approx(200 * 200 / (595.28 * 841.89), rel=0.1)


def form(**flags: str) -> bytes:
    """A page with a form: a name, a country, a box that is checked and one that is not."""
    data = io.BytesIO()
    canvas = Canvas(data)
    canvas.drawString(72, 760, "Applicant name:")
    fields = canvas.acroForm
    fields.textfield(name="name", x=180, y=752, height=22, value="Maria Lopez", **flags)
    canvas.drawString(72, 700, "Country:")
    fields.choice(name="country", x=180, y=692, height=22, value="Chile", options=["Chile", "Peru"])
    for at, label in enumerate(["tea", "milk"]):
        canvas.drawString(72, 660 - 30 * at, label)
        fields.checkbox(name=label, x=100, y=655 - 30 * at, checked=not at)
    canvas.save()
    return data.getvalue()


def test_values_of_a_form_are_beside_their_labels(written):
    """What is typed, chosen and checked is text; what is masked as a password is not."""
    loaded = PdfLoader().load(written(form()))
    lines = [" ".join(line.replace("|", " ").split()) for line in loaded.text.splitlines()]
    assert [line for line in lines if line] == [
        "Applicant name: Maria Lopez",
        "Country: Chile",
        "tea [x]",
        "milk",
    ]
    masked = PdfLoader().load(written(form(fieldFlags="password")))
    assert "Maria" not in masked.text
    assert "Chile" in masked.text


def test_a_form_alone_is_text(written):
    """A page with nothing but a field has the field's value as text."""
    data = io.BytesIO()
    canvas = Canvas(data)
    canvas.acroForm.textfield(name="name", x=180, y=750, value="Only a field")
    canvas.showPage()
    canvas.save()
    assert PdfLoader().load(written(data.getvalue())).text == "Only a field"


@pytest.mark.parametrize(("flags", "expected"), [(4, "tea\n\na note\nof two lines"), (2, "tea")])
def test_text_boxes_are_text(written, flags, expected):
    """A text box that a reader wrote on a page is text, unless it is hidden."""

    def annotate(writer: pypdf.PdfWriter) -> None:
        note = FreeText(text="a note\nof two lines", rect=(72, 600, 200, 630))
        note[NameObject("/F")] = NumberObject(flags)
        writer.add_annotation(0, note)

    assert PdfLoader().load(written(changed(pages("tea"), annotate))).text == expected


def garbled(texts):
    """Pages, of which those that begin with "x" have fonts whose letters are of private use."""
    letters = {letter: chr(0xE000 + ord(letter)) for letter in "xyz"}
    kept = {letter: letter for letter in "teawr"}
    return changed(pages(*texts), read_as({**letters, **kept}))


def test_a_garbled_text_layer_fails_or_is_recognized(written):
    """Characters of private use are no text: a file of them fails with the reason, others name
    their pages, and text recognition reads them.
    """
    with pytest.raises(LoadError, match="text layer of page 1 of the PDF is garbled: its fonts do"):
        PdfLoader().load(written(garbled(["xyzzy xyz"])))
    mixed = garbled(["tea", "xyzzy xyz"])
    loaded = PdfLoader().load(written(mixed))
    assert loaded.text.strip() == "tea"
    assert list(loaded.metadata["pages_unread"]) == ["2"]
    assert loaded.metadata["notes"] == ["page 2: not read"]
    loaded = PdfLoader(ocr=lambda image: "seen").load(written(mixed))
    assert loaded.text.split() == ["tea", "seen"]
    assert loaded.metadata["pages_by_ocr"] == [2]


def test_text_recognition_of_an_encrypted_file(written):
    """The picture of a page is made with the password that opened the file."""
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pages("#")))
    writer.encrypt("key", algorithm="AES-256")
    target = io.BytesIO()
    writer.write(target)
    assert (
        PdfLoader("key", ocr=lambda image: "seen").load(written(target.getvalue())).text == "seen"
    )


def test_text_recognition_that_finds_nothing_or_fails(written):
    """Pages in which nothing is found stay named; an error of the function fails the file and names
    the page.
    """
    mixed, scanned = pages("tea", "#"), pages("#")
    assert PdfLoader(ocr=lambda image: " ").load(written(mixed)).metadata["pages_without_text"] == [
        2
    ]
    with pytest.raises(LoadError, match="no text layer"):
        PdfLoader(ocr=lambda image: "").load(written(scanned))
    with pytest.raises(LoadError, match="ocr of PdfLoader raised ZeroDivisionError on page 2"):
        PdfLoader(ocr=lambda image: str(1 / 0)).load(written(mixed))
    with pytest.raises(LoadError, match="ocr of PdfLoader returned NoneType for page 1"):
        PdfLoader(ocr=lambda image: None).load(written(scanned))


def test_a_damaged_page_takes_no_other_with_it(written):
    """Pages that cannot be read are empty, and the metadata say why; if nothing else is there, the
    file fails.
    """

    def damaged(data: bytes) -> bytes:
        """Without the second page: reportlab numbers it 4."""
        return re.sub(
            rb"(?s)(?<=\n4 0 obj\n).*?(?=endobj)", lambda found: b"null".ljust(len(found[0])), data
        )

    loaded = PdfLoader().load(written(damaged(pages("tea", "water", "coffee"))))
    assert loaded.text == "tea\n\n\n\ncoffee"
    assert loaded.metadata["pages_unread"] == {"2": "PdfiumError: Failed to load page."}
    with pytest.raises(
        LoadError, match=r"damaged: page 2 could not be read \(page 2: PdfiumError: Failed to load"
    ):
        PdfLoader().load(written(damaged(pages("", "water"))))


def test_a_page_with_scrambled_content_is_survived(written):
    """Operators that mean nothing leave the page empty or unread, and the others as they are."""
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pages("tea", "water")))
    stream = DecodedStreamObject()
    stream.set_data(b"BT /F1 << [ 12 Tf ((( Tj ET \xff\xfe q q Q Q Q Q 1 2 cm")
    writer.pages[0][NameObject("/Contents")] = writer._add_object(stream)
    target = io.BytesIO()
    writer.write(target)
    loaded = PdfLoader().load(written(target.getvalue()))
    assert loaded.text.split() == ["water"]


def test_limits_of_pages_and_time(written):
    """A file beyond a limit fails with what the limit is and how to raise it."""
    path = written(pages(*["tea"] * 11))
    with pytest.raises(
        LoadError, match=r"has 11 pages; at most 10 are read.*PdfLoader\(max_pages=11\)"
    ):
        PdfLoader(max_pages=10).load(path)
    with pytest.raises(LoadError, match=r"longer than 1e-09 s; none of its pages.*max_seconds"):
        PdfLoader(max_seconds=1e-9).load(path)


def test_ten_thousand_pages_end_as_one_failure(folder):
    """A PDF of 10,000 pages is refused before any is read, and the rest of the folder is in."""
    writer = pypdf.PdfWriter()
    page = pypdf.PdfReader(io.BytesIO(pages("tea"))).pages[0]
    writer.add_page(page)
    tree = writer.root_object["/Pages"]
    tree["/Kids"].extend([tree["/Kids"][0]] * 9_999)
    tree[NameObject("/Count")] = pypdf.generic.NumberObject(10_000)
    target = io.BytesIO()
    writer.write(target)
    docs = Document(folder({"large.pdf": target.getvalue(), "small.pdf": pages("tea")}))
    with pytest.warns(IngestionWarning, match=r"10,000 pages; the limit pages=5,000 is exceeded"):
        assert [node.path for node in docs.get_nodes()] == ["small.pdf"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ocr", "tesseract"),
        ("max_pages", 0),
        ("max_seconds", 0),
        ("password", 5),
        ("drop_repeated", "yes"),
    ],
)
def test_arguments_are_checked(name, value):
    """A wrong argument is a ConfigError that names it."""
    with pytest.raises(ConfigError, match=name):
        PdfLoader(**{name: value})


def test_unknown_arguments_are_refused():
    """A misspelt argument names the nearest one."""
    with pytest.raises(UnknownKeywordError, match="Did you mean 'password'"):
        PdfLoader(pasword="key")  # noqa: S106  no password at all


def test_a_file_that_pdfium_cannot_open_is_rewritten(written):
    """pypdf reads what pdfium does not, such as a header behind other bytes, encrypted files
    too.
    """
    assert PdfLoader().load(written(b"\n" * 3000 + pages("Green tea"))).text == "Green tea"
    locked = written(b"\n" * 3000 + encrypted("key"))
    assert PdfLoader("key").load(locked).text == "secret tea"
    with pytest.raises(LoadError, match="needs a password"):
        PdfLoader().load(locked)


def with_outline(*entries: tuple[str, int, str], text: str = "") -> bytes:
    """A PDF with a page for each entry (title, level, key), which begins with the title; the
    outline names all.
    """
    data = io.BytesIO()
    canvas = Canvas(data)
    for title, level, body in entries:
        if body:
            canvas.showPage()
            for number, line in enumerate([title, *body.split("\n")]):
                canvas.drawString(60, 700 - 20 * number, line)
        canvas.bookmarkPage(title)
        canvas.addOutlineEntry(title, title, level=level)
    canvas.save()
    return data.getvalue()


def test_entries_of_an_outline_are_places(tmp_path):
    """A chunk of a PDF names its pages, and the deepest entry of the outline that covers it."""
    (tmp_path / "tea.pdf").write_bytes(
        with_outline(
            ("Tea", 0, "It keeps for a year."),
            ("Picking", 1, "By hand.\nFrom April on.\n1.2 Withering\nFor a day."),
            ("Withering", 2, ""),
            ("Water", 0, "Eighty degrees."),
        )
    )
    docs = Document(tmp_path)
    docs.create_node_group("line", transform=lambda text: [one for one in text.split("\n") if one])
    found = {node.text: node.location for node in docs.get_nodes("line")}
    assert found == {
        "Tea": "page 2, Tea",
        "It keeps for a year.": "page 2, Tea",
        "Picking": "page 3, Tea > Picking",
        "By hand.": "page 3, Tea > Picking",
        "From April on.": "page 3, Tea > Picking",
        "1.2 Withering": "page 3, Tea > Picking > Withering",
        "For a day.": "page 3, Tea > Picking > Withering",
        "Eighty degrees.": "page 4, Water",
        "Water": "page 4, Water",
    }


def attaching(data: bytes, **files: bytes) -> bytes:
    """A PDF with files embedded in it, by name."""

    def attach(writer: pypdf.PdfWriter) -> None:
        for name, content in files.items():
            writer.add_attachment(name, content)

    return changed(data, attach)


def test_embedded_files_are_read_as_attachments(written):
    """Each follows the pages as a place of its own, files within it too; unread ones are listed."""
    inner = attaching(pages("inner words"), **{"deep.txt": b"deep words"})
    files = {"a/prices.csv": b"tea,kg\ngreen,4\n", "inner.pdf": inner, "x.bin": b"\0\1\2"}
    loaded = PdfLoader().load(written(attaching(pages("outer words"), **files)))
    assert loaded.text == (
        "outer words\n\nAttachment: prices.csv\ntea: green; kg: 4\n\nAttachment: inner.pdf\n"
        "inner words\n\nAttachment: deep.txt\ndeep words"
    )
    places = [
        (place.kind, place.label)
        for place in loaded.locations
        if place.kind in ("page", "attachment")
    ]
    assert places == [
        ("page", "1"),
        ("attachment", "prices.csv"),
        ("attachment", "inner.pdf"),
        ("page", "inner.pdf > 1"),
        ("attachment", "inner.pdf > deep.txt"),
    ]
    assert [loaded.text[place.start : place.end] for place in loaded.tables] == [
        "tea: green; kg: 4"
    ]
    assert loaded.metadata["attachments"] == ["prices.csv", "inner.pdf", "x.bin"]
    assert list(loaded.metadata["unread_attachments"]) == ["x.bin"]


def test_embedded_files_share_the_limits_of_files_within_files(written):
    """Their number, their depth and their size."""
    many = attaching(pages("outer"), **{f"{number}.txt": b"tea" for number in range(4)})
    with pytest.raises(LoadError, match="limit members=3 is exceeded"):
        load_file(written(many), limits=LoadLimits(members=3))
    nested = pages("level 0")
    for level in range(1, 8):
        nested = attaching(pages(f"level {level}"), **{"inner.pdf": nested})
    deep = load_file(written(nested))
    assert ("level 3" in deep.text, "level 2" in deep.text) == (True, False)
    assert "nested deeper than 5" in str(deep.metadata["unread_attachments"])
    large = attaching(pages("outer"), **{"large.txt": b"tea " * 100, "small.txt": b"leaf"})
    few = load_file(written(large), limits=LoadLimits(unpacked_bytes=200))
    assert few.text.startswith("outer")
    assert "unpacked_bytes=200" in few.metadata["unread_attachments"]["large.txt"]
