"""Small files with what readers often lose, made here, and the text that a person sees in each.

`tests/unit/loaders/test_format_cases.py` reads them, and `benchmarks/formats.py --quality` does so beside
other readers.
"""

from __future__ import annotations

import bisect
import functools
import io
import random
import re
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import docx
import openpyxl
import pptx
import pypdf
from pptx.util import Inches
from pypdf.generic import DecodedStreamObject, NameObject, RectangleObject
from reportlab.pdfgen.canvas import Canvas

PROSE = (
    "Green tea is made from leaves that are heated soon after they are picked, so that they stay green. "
    "Black tea is left to wither and to oxidize, which takes several hours and turns the leaves dark. "
    "Oolong stands between the two, and white tea is hardly treated at all. "
    "Water for green tea should have seventy to eighty degrees; black tea takes boiling water. "
    "After three minutes the leaves have given most of what they hold, and a longer time makes the cup bitter. "
    "In the mountains of Fujian the first harvest begins in April, and the last one ends in October."
)


class Case(NamedTuple):
    """A file and its text.

    Args:
        suffix: Of its format.
        data: Its bytes.
        truth: What a person reads in it, in order.
    """

    suffix: str
    data: bytes
    truth: str


def wrapped(text: str, width: int) -> list[str]:
    """Lines of a text of at most so many letters."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def drawn(
    draw: Callable[[Canvas], None], size: tuple[float, float] = (595, 842), *, packed: bool = True
) -> bytes:
    """A PDF that a function draws."""
    target = io.BytesIO()
    canvas = Canvas(target, pagesize=size, pageCompression=int(packed), invariant=True)
    draw(canvas)
    canvas.save()
    return target.getvalue()


def with_letters(data: bytes, letters: dict[str, str]) -> bytes:
    """A PDF whose letters read as others, as of subset fonts."""
    pairs = "".join(
        f"<{ord(one):02X}> <{text.encode('utf-16-be').hex()}>\n" for one, text in letters.items()
    )
    table = (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def\n"
        f"1 begincodespacerange <00> <FF> endcodespacerange\n{len(letters)} beginbfchar\n{pairs}endbfchar\n"
        "endcmap CMapName currentdict /CMap defineresource pop end end"
    )
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(data))
    stream = DecodedStreamObject()
    stream.set_data(table.encode())
    reference = writer._add_object(stream)
    for page in writer.pages:
        for font in page["/Resources"]["/Font"].values():
            font.get_object()[NameObject("/ToUnicode")] = reference
    target = io.BytesIO()
    writer.write(target)
    return target.getvalue()


def spread() -> Case:
    """Two pages cut out of one spread by their crop boxes, as scanned books are: both hold the text
    of both.
    """
    left, right = wrapped(PROSE, 40), wrapped(PROSE.upper(), 34)

    def draw(canvas: Canvas) -> None:
        for at, lines in ((40, left), (460, right)):
            for number, line in enumerate(lines):
                canvas.drawString(at, 540 - 16 * number, line)

    reader = pypdf.PdfReader(io.BytesIO(drawn(draw, (842, 595))))
    writer = pypdf.PdfWriter()
    for box in ((0, 0, 421, 595), (421, 0, 842, 595)):
        writer.add_page(reader.pages[0]).cropbox = RectangleObject(box)
    target = io.BytesIO()
    writer.write(target)
    return Case(".pdf", target.getvalue(), " ".join(left + right))


def recognized() -> Case:
    """An invisible layer of text recognition: each letter at its place in the picture, and blanks
    between words.
    """
    chance = random.Random(1)

    def draw(canvas: Canvas) -> None:
        text = canvas.beginText()
        text.setFont("Helvetica", 9)
        text.setTextRenderMode(3)
        for number, line in enumerate(wrapped(PROSE, 52)):
            at = 50.0
            for letter in line:
                text.setTextOrigin(at, 780 - 18 * number)
                text.textOut(letter)
                at += canvas.stringWidth(letter, "Helvetica", 9) + chance.uniform(0.3, 3.2)
        canvas.drawText(text)

    return Case(".pdf", drawn(draw), PROSE)


# Lines as they are written, and from left to right on paper, as browsers lay them out.
ARABIC = [
    ("الأسئلة والإجابات حول الشاي", "ياشلا لوح تاباجإلاو ةلئسألا"),
    (
        "الشاي الأخضر (Green Tea) مشروب يحضر من أوراق نبات الشاي،",
        "،ياشلا تابن قاروأ نم رضحي بورشم )Green Tea( رضخألا ياشلا",
    ),
    (
        "وينقع في الماء عند درجة 80 مئوية لمدة 3 دقائق.",
        ".قئاقد 3 ةدمل ةيوئم 80 ةجرد دنع ءاملا يف عقنيو",
    ),
    (
        "في عام 2024 بلغ الإنتاج 1,250.5 طن، أي بزيادة 12% عن العام السابق؛",
        "؛قباسلا ماعلا نع %12 ةدايزب يأ ،نط 1,250.5 جاتنإلا غلب 2024 ماع يف",
    ),
    ("انظر الصفحة 17-18 من التقرير ISO 9001:2015.", ".ISO 9001:2015 ريرقتلا نم 18-17 ةحفصلا رظنا"),
    ("لا إله إلا الله، والسلام عليكم.", ".مكيلع مالسلاو ،هللا الإ هلإ ال"),
    ("زار أحمد مدينة London ثم Paris في 3/5/2023.", ".3/5/2023 يف Paris مث London ةنيدم دمحأ راز"),
]
HEBREW = [
    ("מדריך לחליטת תה", "הת תטילחל ךירדמ"),
    (
        "תה ירוק (Green Tea) נחלט במים בטמפרטורה של 80 מעלות למשך 3 דקות.",
        ".תוקד 3 ךשמל תולעמ 80 לש הרוטרפמטב םימב טלחנ )Green Tea( קורי הת",
    ),
    (
        "בשנת 2024 הגיע הייצור ל-1,250.5 טון, עלייה של 12% לעומת השנה הקודמת;",
        ";תמדוקה הנשה תמועל 12% לש היילע ,ןוט 1,250.5-ל רוצייה עיגה 2024 תנשב",
    ),
    ("ראו תקן ISO 9001:2015 בעמוד 17.", ".17 דומעב ISO 9001:2015 ןקת ואר"),
    (
        'הטלפון הוא 03-5551234, והדוא"ל tea@example.com.',
        '.tea@example.com ל"אודהו ,03-5551234 אוה ןופלטה',
    ),
]
MIXED = [
    ("Tea words", "Tea words"),
    (
        "The Arabic word شاي أخضر means green tea, and the Hebrew תה ירוק",
        "The Arabic word رضخأ ياش means green tea, and the Hebrew קורי הת",
    ),
    (
        "means the same (1998). Names: محمد علي (Muhammad Ali),",
        "means the same (1998). Names: يلع دمحم (Muhammad Ali),",
    ),
    ("שלום עליכם (Sholem Aleichem).", "םכילע םולש (Sholem Aleichem)."),
]


def visual(lines: list[str]) -> bytes:
    """A PDF of lines drawn from left to right, whatever their letters."""
    codes = [one for one in map(chr, range(33, 127)) if one not in "()\\"]
    letters: dict[str, str] = {}

    def draw(canvas: Canvas) -> None:
        canvas.setFont("Courier", 10)
        for number, line in enumerate(lines):
            coded = [
                one if one == " " else letters.setdefault(one, codes[len(letters)])
                for one in glyphs(line)
            ]
            canvas.drawString(40, 780 - 20 * number, "".join(coded))

    data = drawn(draw)
    return with_letters(data, {code: text for text, code in letters.items()})


def glyphs(line: str) -> list[str]:
    """The letters of a line on paper; lam and alef are one glyph."""
    found: list[str] = []
    for letter in line:
        if letter == "ل" and found and found[-1] in ("ا", "أ", "إ", "آ"):
            found[-1] = letter + found[-1]
        else:
            found.append(letter)
    return found


def paired(pairs: list[tuple[str, str]]) -> Case:
    """A PDF of lines on paper."""
    return Case(
        ".pdf",
        visual([on_paper for _, on_paper in pairs]),
        "\n".join(written for written, _ in pairs),
    )


def damaged(cut: Callable[[bytes], bytes]) -> Case:
    """A PDF of six pages that is damaged."""

    def draw(canvas: Canvas) -> None:
        for page in range(6):
            for number, line in enumerate(wrapped(f"Page {page + 1}. {PROSE}", 70)):
                canvas.drawString(60, 760 - 16 * number, line)
            canvas.showPage()

    text = " ".join(f"Page {page + 1}. {PROSE}" for page in range(6))
    return Case(".pdf", cut(drawn(draw)), text)


def without_index(data: bytes) -> bytes:
    """A PDF whose table of objects and trailer are overwritten, and its page tree."""
    for name in (b"xref", b"trailer", b"/Root", b"/Kids"):
        data = data.replace(name, name[:-1] + b"0")
    return data


PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f645"
    "400000000049454e44ae426082"
)
ALTERNATIVE = "A terraced tea garden in the mist"


def word_with_picture() -> Case:
    """A Word document with a picture that has an alternative text."""
    document = docx.Document()
    document.add_heading("Garden", 1)
    document.add_paragraph("Before the picture.")
    document.add_picture(io.BytesIO(PICTURE))
    document.add_paragraph("After the picture.")
    for one in document.element.body.iter(
        "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}docPr"
    ):
        one.set("descr", ALTERNATIVE)
    target = io.BytesIO()
    document.save(target)
    return Case(
        ".docx", target.getvalue(), f"Garden Before the picture. {ALTERNATIVE} After the picture."
    )


def slides_with_groups() -> Case:
    """A slide whose group stores its boxes from the last to the first, and a picture."""
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])

    def box(shapes, across: float, down: float, text: str) -> None:
        shapes.add_textbox(
            Inches(across), Inches(down), Inches(2), Inches(0.5)
        ).text_frame.text = text

    box(slide.shapes, 1, 1, "From leaf to cup")
    group = slide.shapes.add_group_shape()
    for across, down, text in [
        (5, 4, "dried"),
        (1, 4.1, "rolled"),
        (5, 3.1, "withered"),
        (1, 3, "picked"),
    ]:
        box(group.shapes, across, down, text)
    picture = slide.shapes.add_picture(io.BytesIO(PICTURE), Inches(1), Inches(6))
    picture._element.nvPicPr.cNvPr.set("descr", ALTERNATIVE)
    target = io.BytesIO()
    presentation.save(target)
    return Case(
        ".pptx", target.getvalue(), f"From leaf to cup picked withered rolled dried {ALTERNATIVE}"
    )


def strict(case: Case) -> Case:
    """An office file as strict OOXML (ISO 29500), which programs save on request."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(case.data)) as usual, zipfile.ZipFile(target, "w") as file:
        for name in usual.namelist():
            data = usual.read(name)
            usual_names = rb"http://schemas\.openxmlformats\.org/(\w+)/2006/(?!metadata)"
            file.writestr(
                name,
                re.sub(usual_names, rb"http://purl.oclc.org/ooxml/\1/", data)
                if b"<" in data[:1]
                else data,
            )
    return Case(case.suffix, target.getvalue(), case.truth)


def workbook() -> Case:
    """A workbook with two rows."""
    book = openpyxl.Workbook()
    for row in (["tea", "price"], ["Sencha", 12], ["Assam", 8]):
        book.worksheets[0].append(row)
    target = io.BytesIO()
    book.save(target)
    return Case(
        ".xlsx", target.getvalue(), "Sheet tea price tea: Sencha; price: 12 tea: Assam; price: 8"
    )


def page_with_pictures() -> Case:
    """A page with alternative texts, an empty one and a file name among them."""
    page = (
        f'<h1>Garden</h1><p>Before <img src="a.png" alt="{ALTERNATIVE}"> after.</p><img src="b.png" alt="">'
        '<img src="c.png" alt="IMG_2041.jpg"><p>End</p>'
    )
    return Case(".html", page.encode(), f"Garden Before {ALTERNATIVE} after. End")


def mail(body: str, truth: str) -> Case:
    """A mail of a body."""
    head = "From: a@example.com\nTo: b@example.com\nSubject: Tea\nDate: Mon, 2 Nov 2026 10:00:00 +0000\n"
    shown = "Subject: Tea From: a@example.com To: b@example.com Date: 2026-11-02 10:00:00+00:00"
    return Case(".eml", f"{head}\n{body}".encode(), f"{shown} {truth}")


PGP = "-----BEGIN PGP MESSAGE-----\nVersion: 1\n\nhQEMA1234567890abcdefghijklmnop\n=abcd\n-----END PGP MESSAGE-----"
SIGNED = (
    "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nThe tea has arrived.\n- -- Ann\n"
    "-----BEGIN PGP SIGNATURE-----\n\niQEzBAEBCAAdFiEE\n=abcd\n-----END PGP SIGNATURE-----"
)
TEXTS = {
    "iso8859_8": "תה ירוק הוא תה שעליו עברו חימום קצר לאחר הקטיף, ולכן הוא נשאר ירוק.",
    "cp874": "ชาเขียวทำจากใบชา ใช้น้ำร้อน",
    "iso2022_jp": "緑茶は発酵させない茶葉から作られるお茶です。",
    "hz": "绿茶是未经发酵的茶叶，水温以八十度为宜。",
    "utf-16-le": "绿茶是未经发酵的茶叶，水温以八十度为宜。",
    "utf-16-be": "綠茶是未經發酵的茶葉，水溫以八十度為宜。",
    "big5": "綠茶是未經發酵的茶葉，水溫以八十度為宜。",
    "cp1251": "Зелёный чай не подвергают ферментации.",
}


def encoded(encoding: str) -> Case:
    """A short text in an encoding that it does not name."""
    return Case(".txt", TEXTS[encoding].encode(encoding), TEXTS[encoding])


CASES: dict[str, Callable[[], Case]] = {
    "PDF, crop box": spread,
    "PDF, text recognition": recognized,
    "PDF, Arabic": lambda: paired(ARABIC),
    "PDF, Hebrew": lambda: paired(HEBREW),
    "PDF, mixed directions": lambda: paired(MIXED),
    "PDF, without index": lambda: damaged(without_index),
    "PDF, cut off": lambda: damaged(lambda data: data[: 4 * len(data) // 5]),
    "Word, pictures": word_with_picture,
    "Word, strict": lambda: strict(word_with_picture()),
    "PowerPoint, groups and pictures": slides_with_groups,
    "PowerPoint, strict": lambda: strict(slides_with_groups()),
    "Excel, strict": lambda: strict(workbook()),
    "HTML, pictures": page_with_pictures,
    "mail, PGP message": lambda: mail(f"Hello\n\n{PGP}\n\nBye", "Hello Bye"),
    "mail, PGP signature": lambda: mail(SIGNED, "The tea has arrived. -- Ann"),
    **{f"text, {one}": functools.partial(encoded, one) for one in TEXTS},
}


_HAN = "\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_HAN}]|[^\W{_HAN}]+|[^\w\s|#*>\[\]()-]")
_PICTURE = re.compile(r"\[Image: ([^\]]*)\]|!\[([^\]]*)\]\([^)]*\)")  # ours, and that of Markdown


def words(text: str) -> list[str]:
    """Words and punctuation under NFKC, without the marks of Markdown and tables; Chinese
    characters one by one.
    """
    return _WORD.findall(unicodedata.normalize("NFKC", _PICTURE.sub(r"\1\2", text)))


def measured(text: str, truth: str) -> tuple[float, float, float]:
    """Precision and recall of words, and the share of the common ones that are in order."""
    found, expected = words(text), words(truth)
    common = (Counter(found) & Counter(expected)).total()
    places: dict[str, list[int]] = {}
    for at, word in enumerate(expected):
        places.setdefault(word, []).append(at)
    ends: list[int] = []  # of the shortest increasing runs of each length
    for word in found:
        for at in reversed(places.get(word, ())):
            longer = bisect.bisect_left(ends, at)
            ends[longer : longer + 1] = [at]
    return common / max(1, len(found)), common / max(1, len(expected)), len(ends) / max(1, common)
