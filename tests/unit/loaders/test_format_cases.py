"""What readers often lose of each format: `tests.format_cases`, read as a person sees it."""

from __future__ import annotations

import pytest

from lazyrag import Document
from lazyrag.loaders import load_file
from tests.format_cases import ARABIC, CASES, HEBREW, MIXED, PROSE, drawn, measured, wrapped

LEAST = {
    # where letters stand as far apart as words, some are joined
    "PDF, text recognition": (0.95, 0.9, 1.0),
    "PDF, cut off": (1.0, 0.8, 1.0),  # a sixth is not in the file
}


@pytest.fixture
def load(tmp_path):
    """A function that writes a case and loads it."""

    def loaded(name: str):
        case = CASES[name]()
        path = tmp_path / f"file{case.suffix}"
        path.write_bytes(case.data)
        return load_file(path)

    return loaded


@pytest.mark.parametrize("name", CASES)
def test_all_words_are_read_in_order(load, name):
    """Precision, recall and order of words reach what is stated for each case, or 1."""
    found = measured(load(name).text, CASES[name]().truth)
    assert all(
        one >= least for one, least in zip(found, LEAST.get(name, (1.0, 1.0, 1.0)), strict=True)
    ), found


def test_text_outside_of_the_crop_box_is_not_read(load):
    """Each page of a spread has its own half."""
    loaded = load("PDF, crop box")
    left, right = (
        loaded.text[one.start : one.end] for one in loaded.locations if one.kind == "page"
    )
    assert (left.upper() != left, right.upper()) == (True, right)


@pytest.mark.parametrize(
    ("name", "pairs"), [("Arabic", ARABIC), ("Hebrew", HEBREW), ("mixed directions", MIXED)]
)
def test_lines_of_both_directions(load, name, pairs):
    """Lines are as they were written: letters, numbers, brackets, and lam-alef, which is one
    glyph.
    """
    assert load(f"PDF, {name}").text.split("\n") == [written for written, _ in pairs]


def test_what_is_lost_of_a_damaged_file_is_said(load):
    """The pages that are left are read, with their numbers; a lost one is named."""
    loaded = load("PDF, cut off")
    assert loaded.metadata["pages_unread"] == {"6": "Its content is missing from the damaged file."}
    pages = [loaded.text[one.start : one.end][:6] for one in loaded.locations if one.kind == "page"]
    assert pages == [f"Page {number}" for number in range(1, 6)] + [""]


@pytest.mark.parametrize(
    ("name", "note"),
    [("PGP message", "PGP message left out"), ("PGP signature", "PGP signature left out")],
)
def test_what_is_left_out_of_a_mail_is_noted(load, name, note):
    """The metadata name what is not in the text."""
    assert load(f"mail, {name}").metadata["notes"] == [note]


def test_an_uncertain_encoding_is_noted(tmp_path):
    """Bytes that two alphabets spell well are read, and the guess is noted with its confidence."""
    (tmp_path / "a.txt").write_bytes("שלום עולם".encode("cp1255"))
    (tmp_path / "b.txt").write_text("sure")
    [note] = load_file(tmp_path / "a.txt").metadata["notes"]
    assert note.startswith("encoding: guessed cp12")
    assert 0 < float(note.rpartition(" ")[2]) < 0.8
    docs = Document(tmp_path)
    report = docs.sync()
    assert report.notes == {"a.txt": (note,)}
    assert f"1 noted: a.txt ({note})" in str(report)
    assert docs.sync().notes == {}


def test_larger_type_is_a_heading_where_there_is_no_outline(tmp_path):
    """Lines in larger type are headings, in levels by size, at their pages; a line of the text's
    size is none.
    """

    def draw(canvas) -> None:
        for title, parts in (("Tea", ["Green", "Black"]), ("Water", ["Hot"])):
            at = 760
            for size, text in [(20, title), *((14, part) for part in parts)]:
                canvas.setFont("Helvetica", size)
                canvas.drawString(60, at, text)
                canvas.setFont("Helvetica", 10)
                for line in wrapped(PROSE, 80):
                    at -= 14
                    canvas.drawString(60, at - 10, line)
                at -= 60
            canvas.showPage()

    (tmp_path / "a.pdf").write_bytes(drawn(draw))
    loaded = load_file(tmp_path / "a.pdf")
    headings = [one for one in loaded.locations if one.kind == "heading"]
    assert [one.label for one in headings] == [
        "Tea",
        "Tea > Green",
        "Tea > Black",
        "Water",
        "Water > Hot",
    ]
    assert loaded.text[headings[2].start :].startswith("Black\n")


def test_the_title_of_a_pdf_is_no_section(tmp_path):
    """One line in the largest type above all others says nothing about the place of a chunk."""

    def draw(canvas) -> None:
        for size, text, top in [(24, "Annual report", 780), (14, "Sales", 740), (14, "Staff", 400)]:
            canvas.setFont("Helvetica", size)
            canvas.drawString(60, top, text)
            canvas.setFont("Helvetica", 10)
            for number, line in enumerate(wrapped(PROSE, 80) if size < 20 else ()):
                canvas.drawString(60, top - 24 - 14 * number, line)
        canvas.showPage()

    (tmp_path / "a.pdf").write_bytes(drawn(draw))
    assert [
        one.label for one in load_file(tmp_path / "a.pdf").locations if one.kind == "heading"
    ] == ["Sales", "Staff"]


@pytest.mark.parametrize(
    ("kind", "name", "note"),
    [
        ("pkcs7-mime; smime-type=enveloped-data", "smime.p7m", "S/MIME content left out"),
        ("pkcs7-signature", "smime.p7s", "S/MIME signature left out"),
        ("pgp-signature", "signature.asc", "PGP signature left out"),
    ],
)
def test_sealed_parts_of_a_mail_are_noted(tmp_path, kind, name, note):
    """They are no attachments that cannot be read."""
    sealed = f"Content-Type: application/{kind}; name={name}\n\nMIAGCSqG"
    parts = f"--x\nContent-Type: text/plain\n\nTea.\n--x\n{sealed}\n--x--\n"
    mail = f"From: a@example.com\nSubject: Hi\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n{parts}"
    (tmp_path / "a.eml").write_text(mail, encoding="utf-8")
    loaded = load_file(tmp_path / "a.eml")
    assert loaded.text.endswith("Tea.")
    [found] = loaded.metadata["notes"]
    assert (found.startswith(note), "unread_attachments" in loaded.metadata) == (True, False)
