"""Files with pictures, one for each format."""

from __future__ import annotations

import base64
import io
import zipfile

import docx
from PIL import Image, ImageDraw
from pptx import Presentation
from pptx.util import Inches
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen import canvas


def picture(colour, size=(120, 90), form="PNG"):
    """The bytes of a picture with a line on it."""
    image = Image.new("RGB", size, colour)
    ImageDraw.Draw(image).line((0, 0, size[0] // 2, size[1]), fill="black", width=3)
    target = io.BytesIO()
    image.save(target, form)
    return target.getvalue()


ICON = picture("grey", (16, 16))
GARDEN, KETTLE, CUP = picture("green"), picture("red", form="JPEG"), picture("white", (200, 100))


def in_word(*pictures):
    """A Word document with a heading and pictures, each of (bytes, caption, alternative text)."""
    document = docx.Document()
    document.add_heading("Gardens", 1)
    for data, caption, alternative in pictures:
        run = document.add_paragraph().add_run()
        shape = run.add_picture(io.BytesIO(data))
        shape._inline.docPr.set("descr", alternative)
        document.add_paragraph(caption, style="Caption" if caption else None)
        document.add_paragraph("Tea grows on slopes.")
    return _saved(document)


def on_slides(*slides):
    """A presentation with one picture on each slide: (bytes, title, alternative text)."""
    presentation = Presentation()
    for data, title, alternative in slides:
        slide = presentation.slides.add_slide(presentation.slide_layouts[5])
        slide.shapes.title.text = title
        shape = slide.shapes.add_picture(io.BytesIO(data), Inches(1), Inches(2))
        shape._element.nvPicPr.cNvPr.set("descr", alternative)
    return _saved(presentation)


def in_open_document(data, caption, alternative):
    """A text document with a picture in a frame."""
    names = {
        "office": "office:1.0",
        "text": "text:1.0",
        "draw": "drawing:1.0",
        "svg": "svg-compatible:1.0",
    }
    spaces = " ".join(
        f'xmlns:{key}="urn:oasis:names:tc:opendocument:xmlns:{name}"' for key, name in names.items()
    )
    content = f"""<office:document-content {spaces} xmlns:xlink="http://www.w3.org/1999/xlink"><office:body><office:text>
<text:p>Tea</text:p><text:p><draw:frame><draw:text-box><text:p text:style-name="Illustration"><draw:frame>
<draw:image xlink:href="Pictures/a.png"/><svg:desc>{alternative}</svg:desc></draw:frame>{caption}</text:p>
</draw:text-box></draw:frame></text:p></office:text></office:body></office:document-content>"""
    return packed(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": content,
            "Pictures/a.png": data,
        }
    )


def packed(parts):
    """A zip file."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in parts.items():
            file.writestr(name, data)
    return target.getvalue()


def in_pdf(*pages):
    """A PDF with pictures on its pages, each of (bytes, caption below)."""
    target = io.BytesIO()
    page = canvas.Canvas(target, (400, 600))
    for pictures in pages:
        page.drawString(30, 570, "Tea grows on slopes.")
        for at, (data, caption) in enumerate(pictures):
            page.drawImage(ImageReader(io.BytesIO(data)), 30, 400 - 200 * at, 160, 120)
            page.drawString(30, 384 - 200 * at, caption)
        page.showPage()
    page.save()
    return target.getvalue()


def address(data, kind="image/png"):
    """A picture as the address of an ``<img>``."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _saved(document):
    target = io.BytesIO()
    document.save(target)
    return target.getvalue()
