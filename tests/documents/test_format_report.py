"""What `plan` says of formats before a file is read: by kind, how it would be read, and what cannot
be known.
"""

from __future__ import annotations

import io
import json
import shutil
import zipfile

import pypdf
import pytest
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from lazyrag import Document, IngestionWarning
from lazyrag.cli.commands import run
from lazyrag.document import PlannedFormat
from lazyrag.loaders import LoadLimits, loaders, register_media_reader
from lazyrag.loaders.pdf import PdfLoader

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8"
)
PIXEL += bytes.fromhex("cfc0000003010100c9fe92ef0000000049454e44ae426082")


def pdf(*pages, key=""):
    """A PDF: "#" makes a scanned page, "" an empty one."""
    target = io.BytesIO()
    canvas = Canvas(target, pageCompression=1)
    for page in pages:
        if page == "#":
            canvas.drawImage(ImageReader(io.BytesIO(PIXEL)), 0, 0, 500, 700)
        else:
            canvas.drawString(72, 700, page)
        canvas.showPage()
    canvas.save()
    if key:
        writer = pypdf.PdfWriter(clone_from=io.BytesIO(target.getvalue()))
        writer.encrypt(key, algorithm="RC4-128")
        target = io.BytesIO()
        writer.write(target)
    return target.getvalue()


def packed():
    """An archive with one text."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("a.txt", "tea")
    return target.getvalue()


@pytest.fixture
def planned(tmp_path):
    """The formats that a plan of a folder with some files says, by name of their only file."""

    def plan(files, readers=(), **options):
        for name, data in files.items():
            (tmp_path / name).write_bytes(data)
        with Document(tmp_path, **options) as docs:
            for pattern, reader in readers:
                docs.add_reader(pattern, reader)
            return docs.plan().formats

    return plan


def test_kinds_are_counted_by_the_way_they_would_be_read(planned):
    """Number and bytes for each kind and way; hidden files are skipped, for a reason; the order is
    that of the ways.
    """
    files = {"a.md": b"# Tea", "b.md": b"# Water", "c.txt": b"tea", ".d": b"x", "e": b"green tea"}
    assert planned(files) == (
        PlannedFormat("", "text", 1, 9, "as .txt"),
        PlannedFormat(".md", "text", 2, 12),
        PlannedFormat(".txt", "text", 1, 3),
        PlannedFormat("", "skipped", 1, 0, "hidden"),
    )


@pytest.mark.parametrize(
    ("data", "how", "why"),
    [
        (pdf("tea"), "text layer", ""),
        (pdf("tea", "#", "tea"), "text layer", "needs OCR"),
        (pdf("#", "#"), "not readable", "needs OCR"),
        (pdf("", ""), "not readable", "no text layer"),
        (pdf("tea", key="p"), "not readable", "password"),
        (b"%PDF-1.4 broken", "not readable", "could not read"),
        (pdf("tea").replace(b"/Type /Page", b"/Type /Paje"), "not readable", "PDF"),
        (b"<html><body><p>Tea</p></body></html>", "text", "as .html"),
    ],
    ids=["text", "mixed", "scan", "empty", "password", "damaged", "page", "html"],
)
def test_a_pdf_is_looked_at(planned, data, how, why):
    """Whether its pages have a text layer; what cannot be known is not claimed."""
    [found] = planned({"a.pdf": data})
    assert (found.kind, found.how, found.bytes) == (".pdf", how, len(data))
    assert why in found.why
    assert bool(why) == bool(found.why)


def test_a_reader_with_ocr_is_not_called(planned):
    """A scanned file counts as one for OCR; the function is not called, and no token is claimed."""
    [found] = planned(
        {"a.pdf": pdf("#")}, [("*.pdf", PdfLoader(ocr=lambda _: pytest.fail("called")))]
    )
    assert (found.how, found.why) == ("ocr", "pages without a text layer")


def test_functions_that_read_media_are_named_and_not_called(tmp_path):
    """They may cost minutes or money: a plan does without them, and counts no tokens of their
    files.
    """

    def transcribe(path):
        pytest.fail(f"called for {path}")

    (tmp_path / "a.mp3").write_bytes(b"ID3")
    (tmp_path / "b.png").write_bytes(PIXEL)
    (tmp_path / "c.log").write_bytes(b"x")
    with loaders.isolated():
        register_media_reader("audio", transcribe)
        with Document(tmp_path) as docs:
            docs.add_reader("*.log", transcribe)
            plan = docs.plan()
    assert [(one.kind, one.how) for one in plan.formats] == [
        (".mp3", "media reader"),
        (".log", "own reader"),
        (".png", "skipped"),
    ]
    assert "media reader" in plan.formats[-1].why
    assert [step.tokens for step in plan.steps] == [0]


def test_outside_programs_and_containers(planned, monkeypatch):
    """A .doc is for the program that is installed, or names those that could be; what is in a zip
    is not known.
    """
    files = {
        "a.doc": bytes.fromhex("d0cf11e0a1b11ae1") + bytes(2_000),
        "b.zip": packed(),
        "c.eml": b"Subject: x\n\ntea",
    }
    monkeypatch.setattr(
        shutil, "which", lambda name: "/bin/antiword" if name == "antiword" else None
    )
    found = {one.kind: one for one in planned(files)}
    assert (found[".doc"].how, found[".doc"].why) == ("program", "antiword")
    assert (found[".zip"].how, found[".zip"].why) == ("unknown until read", "files inside")
    assert (found[".eml"].how, "unknown" in found[".eml"].why) == ("text", True)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    found = {one.kind: one for one in planned(files)}
    assert found[".doc"].how == "not readable"
    assert "install soffice" in found[".doc"].why


def test_limits_and_unknown_formats(planned):
    """Files that loading would refuse are not readable."""
    found = planned(
        {"a.txt": b"tea" * 9, "b.xyz": bytes(range(256)), "c": b""}, limits=LoadLimits(bytes=500)
    )
    assert [one.how for one in found] == ["text", "skipped"]
    assert ".xyz" in found[1].why
    assert "10 bytes" in planned({}, limits=LoadLimits(bytes=10))[0].why


def test_every_file_is_loaded(tmp_path):
    """A broken file among many is found, whatever its place: a plan tells what the sync will
    report.
    """
    for number in range(120):
        (tmp_path / f"{number}.json").write_text(
            '{"tea": "green"}' if number != 71 else "{", encoding="utf-8"
        )
    with Document(tmp_path) as docs:
        plan = docs.plan()
        assert [one.path for one in plan.files.failed] == ["71.json"]
        with pytest.warns(IngestionWarning, match="1 of 120 files failed"):
            assert docs.sync().added == plan.files.added
    assert [(one.how, one.files) for one in plan.formats] == [("text", 119), ("not readable", 1)]


def test_archives_are_not_loaded_where_functions_may_read_them(tmp_path):
    """With a reader of a user's, a plan does not know what an archive holds: the reader would be
    called.
    """
    (tmp_path / "a.zip").write_bytes(packed())
    with Document(tmp_path) as docs:
        docs.add_reader("*.txt", lambda _: pytest.fail("called"))
        plan = docs.plan()
    assert [(one.how, one.why) for one in plan.formats] == [("unknown until read", "files inside")]
    assert [step.tokens for step in plan.steps] == [0]


def test_the_command_prints_80_columns(tmp_path, monkeypatch, capsys):
    """A table with Chinese suffixes and long reasons; the JSON has the same."""
    monkeypatch.setenv("COLUMNS", "80")
    for name, data in {
        "茶.文档": bytes(range(256)),
        "a.docx": b"PK\3\4" + bytes(99),
        "b.md": b"tea",
    }.items():
        (tmp_path / name).write_bytes(data)
    assert run(["index", "--plan", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    lines = lines[next(at for at, line in enumerate(lines) if line.startswith("kind")) - 1 :]
    assert lines[1].split() == ["kind", "files", "size", "read", "as"]
    assert all(sum(2 if one > "\u2e80" else 1 for one in line) <= 80 for line in lines)
    assert run(["index", "--plan", "--json", str(tmp_path)]) == 1
    formats = json.loads(capsys.readouterr().out)["result"]["formats"]
    assert formats[0] == {"kind": ".md", "how": "text", "files": 1, "bytes": 3, "why": ""}
    assert {one["kind"] for one in formats} == {".md", ".docx", ".文档"}
