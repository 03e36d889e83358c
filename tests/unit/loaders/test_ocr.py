"""OCR of scanned pages and images: when it is called, layout and marks of its words, its cache,
services over HTTP.
"""

from __future__ import annotations

import io
import json
import socket
import subprocess

import numpy as np
import pytest
from PIL import Image, ImageDraw
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas
from werkzeug import Response

from lazyrag import Document
from lazyrag.errors import ConfigError, IngestionWarning, LoadError, MissingDependencyError
from lazyrag.loaders import load_file
from lazyrag.loaders.ocr import CachedOcr, HttpOcr, OcrWord, RapidOcr, box_words
from lazyrag.loaders.pdf import PdfLoader
from lazyrag.loaders.scans import ScanLoader, add_ocr
from lazyrag.read import marks as find_marks
from lazyrag.read import page_image

LEFT = ["Green tea is never roasted", "and it keeps for one year", "White tea keeps far longer"]
RIGHT = ["A second column begins on", "the right side of the page", "and is read after the left"]


def line(text, x, y, width):
    """The words of a line, 2 % of the page high."""
    return box_words(text, (x, y, x + width, y + 0.02), (1, 1))


def columns():
    """Words of two columns, in the order of an engine: row by row."""
    return [
        word
        for at, (left, right) in enumerate(zip(LEFT, RIGHT, strict=True))
        for word in (
            *line(left, 0.1, 0.1 + 0.03 * at, 0.35),
            *line(right, 0.5, 0.1 + 0.03 * at, 0.35),
        )
    ]


class Fake:
    """OCR that gives the same words for each image, and counts its calls."""

    def __init__(self, words):
        self.identity = f"fake {words}"
        self.words = words
        self.images = []

    def __call__(self, image):
        """Note the image."""
        self.images.append(image)
        return self.words


def picture(path, size=(600, 800), **options):
    """An image with a black square at its top left."""
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).rectangle((0, 0, 99, 99), fill="black")
    image.save(path, **options)
    return path


def scan(path, texts):
    """A PDF with a picture on each page, and a text over it."""
    canvas = Canvas(str(path), pagesize=(300, 400))
    data = io.BytesIO()
    picture(data, format="PNG")
    for text in texts:
        canvas.drawImage(ImageReader(data), 0, 0, 300, 400)
        for at, part in enumerate(text.splitlines()):
            canvas.drawString(20, 200 - 15 * at, part)
        canvas.showPage()
    canvas.save()
    return path


LAYER = "Forty letters of a text layer, in a line.\n" * 4


def test_words_are_laid_out_as_those_of_a_text_layer(tmp_path):
    """Columns are read one after the other; the image is a page, and a note says that it was read
    by OCR.
    """
    loaded = ScanLoader(Fake(columns())).load(picture(tmp_path / "a.png"))
    assert loaded.text.split() == " ".join([*LEFT, *RIGHT]).split()
    assert loaded.metadata == {"pages": 1, "pages_by_ocr": [1], "notes": ["page 1: read by OCR"]}


def test_marks_of_a_citation_are_the_boxes_of_its_words(tmp_path):
    """A span over two lines has a box on each, where the words are on the page; the image can be
    shown.
    """
    picture(tmp_path / "a.png")
    docs = Document(tmp_path)
    add_ocr(docs, Fake(columns()))
    [root] = docs.get_nodes()
    start = root.text.index("roasted")
    marks = find_marks(docs, "a.png", (start, root.text.index("it keeps")))
    assert marks.text.split() == ["roasted", "and"]
    first, second = marks.boxes
    assert (first.page, round(first.y0, 3), round(first.x1, 3)) == (1, 0.1, 0.45)
    assert (round(second.x0, 3), round(second.y0, 3)) == (0.1, 0.13)
    assert second.x1 - second.x0 == pytest.approx(0.35 * 3 / 25, rel=0.1)
    assert Image.open(io.BytesIO(page_image(docs, "a.png", 1, width=300))).size == (300, 400)


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_turned_words_are_read_in_order(tmp_path, turn):
    """Lines of a page that lies on its side, or upside down."""

    def turned(word):
        x0, y0, x1, y1 = word[1:5]
        for _ in range(turn):  # to the left
            x0, y0, x1, y1 = y0, 1 - x1, y1, 1 - x0
        return OcrWord(word.text, x0, y0, x1, y1, turn)

    words = [
        turned(word)
        for at, text in enumerate(LEFT)
        for word in line(text, 0.1, 0.1 + 0.03 * at, 0.6)
    ]
    loaded = ScanLoader(Fake(words)).load(picture(tmp_path / "a.png", (700, 700)))
    assert loaded.text.split() == " ".join(LEFT).split()


def test_only_pages_without_a_usable_layer_are_recognized(tmp_path):
    """A page number over a scan is no text layer of it; a page of text over a picture is one."""
    path = scan(tmp_path / "a.pdf", ["7", LAYER])
    ocr = Fake(columns())
    loaded = PdfLoader(ocr=ocr).load(path)
    assert loaded.metadata["pages_by_ocr"] == [1]
    assert len(ocr.images) == 1
    assert loaded.text.startswith("Green tea")
    assert "Forty letters" in loaded.text
    assert "pages_by_ocr" not in PdfLoader().load(path).metadata


def test_a_short_layer_stays_if_ocr_finds_less(tmp_path):
    """OCR does not take words away."""
    path = scan(tmp_path / "a.pdf", ["Chapter seven"])
    assert PdfLoader(ocr=Fake("7")).load(path).text == "Chapter seven"


def test_scans_without_ocr_are_named_with_the_remedy(tmp_path):
    """A scanned file fails, a scanned page is noted; both say what reads them."""
    canvas = Canvas(str(tmp_path / "b.pdf"))
    canvas.drawString(50, 700, "tea")
    canvas.showPage()
    canvas.rect(100, 100, 50, 50, fill=1)
    canvas.save()
    docs = Document(tmp_path)
    docs.sync()
    assert docs.last_report.notes["b.pdf"] == (
        "page 2: no text layer: OCR reads them, see docs/pdf.md",
    )
    picture(tmp_path / "a.png")
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.drawImage(ImageReader(str(tmp_path / "a.png")), 0, 0)
    canvas.save()
    with pytest.raises(LoadError, match="add_ocr"):
        load_file(tmp_path / "a.pdf")


def test_images_of_many_kinds(tmp_path):
    """Each frame of a TIFF is a page, turned as the camera says; what is transparent is white;
    photos are skipped.
    """
    tall = Image.new("RGB", (1200, 1600), "white")
    tall.save(tmp_path / "a.tiff", save_all=True, append_images=[tall])
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(tmp_path / "b.jpg", (1200, 900), exif=exif)
    Image.new("RGBA", (1000, 1100), (0, 0, 0, 0)).save(tmp_path / "c.png")
    ocr = Fake("seen")
    for name in ("a.tiff", "b.jpg", "c.png"):
        ScanLoader(ocr).load(tmp_path / name)
    shapes = [image.shape for image in ocr.images]
    # the second frame is the first one's image
    assert shapes == [(1600, 1200, 3), (1200, 900, 3), (1100, 1000, 3)]
    assert ocr.images[2].min() == 255
    docs = Document(tmp_path)
    add_ocr(docs, Fake(" "))
    with pytest.warns(IngestionWarning, match="OCR found no text"):
        docs.sync()
    reason = "image in which OCR found no text"
    assert docs.last_report.skipped == tuple(
        (name, reason) for name in ("a.tiff", "b.jpg", "c.png")
    )


def test_postscript_runs_no_program(tmp_path, monkeypatch):
    """An EPS file named as an image: Pillow would have Ghostscript run it."""
    (tmp_path / "a.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 90 90\n%%EndComments\nshowpage\n%%EOF\n"
    )
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(LoadError, match="UnidentifiedImageError"):
        ScanLoader(Fake("seen")).load(tmp_path / "a.png")


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\nnothing", b"", b"II*\0\xff\xff\xff\xff"])
def test_a_damaged_image_fails_alone(tmp_path, content):
    """The error names the image, not a line of a library."""
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(LoadError, match="image cannot be read"):
        ScanLoader(Fake("seen")).load(tmp_path / "a.png")


def test_no_page_is_recognized_twice(tmp_path):
    """Results are found by content, also by another program; they cannot be read without the
    page.
    """
    path = picture(tmp_path / "a.png", (613, 800))
    ocr = Fake(columns())
    texts = {ScanLoader(ocr, cache=tmp_path / "cache").load(path).text for _ in range(2)}
    picture(tmp_path / "b.png", (613, 800))
    texts.add(ScanLoader(ocr, cache=tmp_path / "cache").load(tmp_path / "b.png").text)
    assert (len(texts), len(ocr.images)) == (1, 1)
    [stored] = (tmp_path / "cache").iterdir()
    assert b"roasted" not in stored.read_bytes()

    image = np.full((5, 7, 3), 200, np.uint8)
    CachedOcr(Fake("five words"), tmp_path / "more")(image)
    import lazyrag.loaders.ocr as module

    module._memory.clear()
    unused = Fake("other")
    unused.identity = "fake five words"
    assert CachedOcr(unused, tmp_path / "more")(image) == "five words"
    assert not unused.images
    [stored] = (tmp_path / "more").iterdir()
    stored.write_bytes(b"torn")
    module._memory.clear()
    assert CachedOcr(unused, tmp_path / "more")(image) == "other"


def test_a_page_that_takes_too_long_is_left_out(tmp_path):
    """It costs no other page, and is noted."""

    def slow(image):
        raise TimeoutError("OCR took longer than 1 s")

    loaded = PdfLoader(ocr=slow).load(scan(tmp_path / "a.pdf", ["7", LAYER]))
    assert "Forty letters" in loaded.text
    assert loaded.metadata["notes"] == ["page 1: not read"]
    assert loaded.metadata["pages_unread"] == {"1": "OCR took longer than 1 s"}


def test_ocr_without_its_extra(monkeypatch):
    """The error names the extra; nothing is downloaded for models that are not there."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"\.\[ocr\]"):
        add_ocr(Document())


def test_models_are_not_downloaded(monkeypatch, tmp_path):
    """A folder without models is an error that says so."""
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: type("Spec", (), {"origin": "/lib/rapidocr.py"})
    )
    with pytest.raises(ConfigError, match="None are downloaded"):
        RapidOcr(tmp_path)


# Services: small servers that speak the documented protocols

WIDE = np.full((100, 200, 3), 255, np.uint8)


def test_docling(httpserver):
    """docling-serve: a form with a PNG and options; boxes from the bottom or the top of the page,
    cells of tables.
    """

    def answer(request):
        assert request.headers["X-Api-Key"] == "secret"
        assert request.files["files"].read().startswith(b"\x89PNG")
        assert request.form.to_dict() == {
            "to_formats": "json",
            "do_ocr": "true",
            "force_ocr": "true",
            "image_export_mode": "placeholder",
        }
        box = {"l": 20, "t": 90, "r": 120, "b": 70, "coord_origin": "BOTTOMLEFT"}
        cell = {
            "text": "80",
            "bbox": {"l": 150, "t": 50, "r": 170, "b": 60, "coord_origin": "TOPLEFT"},
        }
        document = {
            "pages": {"1": {"size": {"width": 200.0, "height": 100.0}, "page_no": 1}},
            "texts": [
                {"text": "Green tea", "prov": [{"page_no": 1, "bbox": box}]},
                {"text": "lost", "prov": []},
            ],
            "tables": [{"data": {"table_cells": [cell, {"text": "", "bbox": None}]}}],
        }
        data = {"document": {"json_content": document}, "status": "success", "errors": []}
        return Response(json.dumps(data), mimetype="application/json")

    httpserver.expect_request("/v1/convert/file", method="POST").respond_with_handler(answer)
    found = HttpOcr("docling", httpserver.url_for("/"), key="secret")(WIDE)
    assert [word.text for word in found] == ["Green ", "tea\n", "80\n"]
    assert found[0][1:5] == pytest.approx((0.1, 0.1, 0.1 + 0.5 * 5 / 9, 0.3))
    assert found[2][1:5] == pytest.approx((0.75, 0.5, 0.85, 0.6))


def test_mineru(httpserver):
    """mineru-api: a form with a PNG; spans of lines in blocks, also in those of tables, in the
    middle JSON.
    """

    def answer(request):
        assert request.headers["Authorization"] == "Bearer secret"
        assert request.form.to_dict() == {
            "parse_method": "ocr",
            "return_md": "false",
            "return_middle_json": "true",
        }
        assert request.files["files"].read().startswith(b"\x89PNG")
        text = {
            "bbox": [10, 10, 60, 20],
            "lines": [{"spans": [{"bbox": [10, 10, 60, 20], "content": "绿茶"}]}],
        }
        body = {
            "lines": [
                {
                    "spans": [
                        {
                            "bbox": [10, 30, 90, 40],
                            "html": "<table><tr><td>a&amp;b</td></tr></table>",
                        }
                    ]
                }
            ]
        }
        page = {"page_size": [100, 50], "para_blocks": [text, {"type": "table", "blocks": [body]}]}
        results = {"page": {"middle_json": json.dumps({"pdf_info": [page]})}}
        return Response(json.dumps({"backend": "pipeline", "version": "2.7", "results": results}))

    httpserver.expect_request("/file_parse", method="POST").respond_with_handler(answer)
    found = HttpOcr("mineru", httpserver.url_for("/"), key="secret")(WIDE)
    assert [word.text for word in found] == ["绿", "茶\n", "a&b\n"]
    assert found[1][1:5] == pytest.approx((0.35, 0.2, 0.6, 0.4))


def test_paddleocr(httpserver):
    """PaddleX basic serving: JSON with a PNG; boxes in pixels."""

    def answer(request):
        sent = request.get_json()
        assert (sent["fileType"], sent["visualize"], sent["file"][:8]) == (1, False, "iVBORw0K")
        pruned = {
            "rec_texts": ["Green tea", "绿茶"],
            "rec_boxes": [[20, 10, 110, 20], [0, 50, 40, 70]],
        }
        result = {"ocrResults": [{"prunedResult": pruned}], "dataInfo": {}}
        return Response(
            json.dumps({"logId": "1", "errorCode": 0, "errorMsg": "Success", "result": result})
        )

    httpserver.expect_request("/ocr", method="POST").respond_with_handler(answer)
    found = HttpOcr("paddleocr", httpserver.url_for("/"))(WIDE)
    assert [word.text for word in found] == ["Green ", "tea\n", "绿", "茶\n"]
    assert found[1][1:5] == pytest.approx((0.4, 0.1, 0.55, 0.2))


@pytest.mark.parametrize(
    ("response", "named"),
    [
        (
            Response("the key secret is unknown", 401),
            "answered 401 UNAUTHORIZED: the key ... is unknown. Check key=",
        ),
        (Response("{}", 500), "answered 500"),
        (Response("", 302, {"Location": "/other"}), "answered 302"),
        (Response("<html>"), "not as paddleocr does"),
        (Response('{"result": {"ocrResults": []}}'), "not as paddleocr does"),
    ],
)
def test_errors_of_a_service_are_explained(httpserver, tmp_path, response, named):
    """The file fails; the error says what the service answered, and shows no key."""
    httpserver.expect_request("/ocr").respond_with_response(response)
    ocr = HttpOcr("paddleocr", httpserver.url_for(""), key="secret")
    with pytest.raises(LoadError, match=named.replace(".", r"\.")) as caught:
        ScanLoader(ocr).load(picture(tmp_path / "a.png", (321, 800)))
    assert "secret" not in f"{caught.value!r}{ocr!r}{ScanLoader(ocr)!r}"


def test_services_that_do_not_answer(tmp_path):
    """One that is not there, and one that hangs."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(LoadError, match="cannot be reached"):
            HttpOcr("docling", url)(WIDE)
        silent.listen()
        with pytest.raises(LoadError, match=r"within 0\.5 s"):
            HttpOcr("docling", url, timeout=0.5)(WIDE)


@pytest.mark.parametrize(
    "arguments",
    [
        ("tesseract", "http://host"),
        ("docling", "host:1"),
        ("docling", "http://u:p@h"),
        ("docling", "http://h", "a\n"),
    ],
)
def test_wrong_services(arguments):
    """Unknown protocols, addresses that are none, and a key that would be shown by an error of its
    header.
    """
    with pytest.raises(ConfigError) as caught:
        HttpOcr(*arguments[:2], key="".join(arguments[2:]))
    assert "a\n" not in str(caught.value)
