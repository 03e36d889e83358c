"""The pages of a PDF, on pypdfium2: what a child process does for `lazyrag.loaders.pdf.PdfFile`.

pdfium has no limits of its own, so only a child process, which has limits, opens files with it.
"""

from __future__ import annotations

import ctypes
import io
import itertools
import logging
import re
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pypdfium2
import pypdfium2.raw as pdfium

from lazyrag.data.pictures import write_png
from lazyrag.errors import LazyRAGError, LoadError, describe_error
from lazyrag.loaders.archives import MAX_ENTRIES
from lazyrag.loaders.bidi import has_right_to_left
from lazyrag.loaders.detect import clean
from lazyrag.loaders.hidden import hide
from lazyrag.loaders.ocr import has_few_letters, is_garbled
from lazyrag.loaders.pdf import load_errors
from lazyrag.loaders.pdf_fields import field_glyphs
from lazyrag.loaders.pdf_hidden import bounds_of, hidden_characters, objects_of
from lazyrag.loaders.pdf_layout import letters, page_text, quarter_turns, turned
from lazyrag.loaders.pdf_lines import (
    BLANK,
    NARROW,
    Glyph,
    GlyphCollector,
    PlacedText,
    SizedLine,
    TypeSizes,
)
from lazyrag.loaders.pdf_recovery import recovered
from lazyrag.types import JsonObject

_MAX_GLYPHS = 1_000_000
_MAX_PIXELS = 40_000_000
_MAX_TAGS = 100_000  # of a page
_POINTS_PER_INCH = 72

_TEXT_FIELDS = {"Title": "title", "Author": "author", "Subject": "subject", "Keywords": "keywords"}
_DATE_FIELDS = {"CreationDate": "created", "ModDate": "modified"}
_PLACEHOLDERS = frozenset(["", "untitled", "anonymous", "unspecified"])  # reportlab writes them
_DATE = re.compile(
    r"(?:D:)?(?P<year>\d{4})(?P<month>\d\d)?(?P<day>\d\d)?"
    r"(?P<hour>\d\d)?(?P<minute>\d\d)?(?P<second>\d\d)?"
    r"(?:(?P<zone>[-+Z])(?:(?P<hours>\d\d)'?(?P<minutes>\d\d)?'?)?)?"
)


# of a line, from its base line, in font sizes
_BELOW = 0.25
_ABOVE = 0.9


class OpenPdf:
    """The file that this process has open; its methods are called by
    `lazyrag.loaders.pdf.PdfFile`.
    """

    _document: Any = None

    def open(
        self, path: str, passwords: Sequence[str], max_objects: int, max_seconds: float
    ) -> int:
        """Open a file, or what is left of a damaged one, and return the number of its pages.

        Args:
            path: Its path.
            passwords: Tried one after the other.
            max_objects: Most strings and lines of a page.
            max_seconds: Time for all that follows.
        """
        self._max_objects = max_objects
        self._max_seconds = max_seconds
        self._until = time.monotonic() + max_seconds
        self._lost = dict[int, str]()
        self._document = self._opened(Path(path), passwords)
        self._document.init_forms()
        self._count = len(self._document)
        return self._count

    def _opened(self, path: Path, passwords: Sequence[str]) -> Any:
        try:
            return _opened(path, passwords)
        except pypdfium2.PdfiumError:
            recovery = recovered(path.read_bytes())
            with load_errors():
                if recovery is None:
                    return _opened(_rewritten(path, passwords), ("",))
                document = _opened(io.BytesIO(recovery[0]), ("",))
                self._lost = dict(recovery[1])
                return document

    def _check_time(self, done: int) -> None:
        if time.monotonic() > self._until:
            read = f"{done} of its {self._count} pages were" if done else "none of its pages was"
            hint = "Split it, or allow more: PdfLoader(max_seconds=...)."
            raise LoadError(
                f"Reading the PDF took longer than {self._max_seconds:g} s; {read} read by then."
                f" {hint}"
            )

    def close(self) -> None:
        """Close the file."""
        document = self._document
        self._document = None
        if document is not None:
            document.close()

    def read(self, has_ocr: bool) -> JsonObject:  # noqa: FBT001  called by another process
        """Read the text layer of all pages: fields of `lazyrag.loaders.pdf.Pages`."""
        texts = []
        unread = []
        textless = []
        unusable = []
        sizes = TypeSizes()
        for index in range(self._count):
            self._check_time(index)
            try:
                glyphs, has_drawings, reasons = self._page(index)
                lines: list[SizedLine] = []
                text = page_text(glyphs, lines)
            except LazyRAGError:
                raise
            except Exception as exc:  # noqa: BLE001  a damaged page does not cost the others
                texts.append("")
                sizes.add_page(())
                unread.append((index + 1, f"{type(exc).__name__}: {exc}".rstrip(": ")))
                continue
            texts.append(_with_marks(text, reasons))
            sizes.add_page(lines)
            if not text and index + 1 in self._lost:
                unread.append((index + 1, self._lost[index + 1]))
            elif not text and has_drawings:
                textless.append(index + 1)
            elif text and has_ocr and not self._is_usable(index, text):
                unusable.append(index + 1)
        return {
            "texts": texts,
            "textless": textless,
            "unread": unread,
            "unusable": unusable,
            "outline": self._outline() or sizes.headings(),
            "file_metadata": self._metadata(),
        }

    def layers(self) -> list[bool]:
        """Whether three of the pages have a text layer, without empty ones."""
        layers = set()
        for at in {0, self._count // 2, self._count - 1} & {*range(self._count)}:
            glyphs, has_drawings, _ = self._page(at)
            if glyphs or has_drawings:
                layers.add(not has_drawings)
        return [*layers]

    def _page(self, index: int) -> tuple[list[Glyph], bool, list[str]]:
        """Characters of a page in drawing order; if there are none, whether it has pictures or
        lines; and for each letter of its text why readers do not see it.
        """
        with self._opened_page(index) as (page, text):
            if pdfium.FPDFPage_CountObjects(page) > self._max_objects:
                problem = (
                    f"A page of the PDF has more than {self._max_objects:,} strings and lines."
                )
                raise LoadError(f"{problem} Split it, or allow more: PdfLoader(max_objects=...).")
            glyphs = self._glyphs(page, PageText(page, text))
            has_drawings = all(glyph == BLANK for glyph in glyphs) and _has_drawings(page)
            return glyphs, has_drawings, self._hidden_letters(page, text)

    def _glyphs(self, page: Any, located: PageText) -> list[Glyph]:
        """The characters of an open page, and what is typed into it."""
        form = self._document.formenv
        return [*page_glyphs(located), *field_glyphs(page, form and form.raw)]

    def _hidden_letters(self, page: Any, text: Any) -> list[str]:
        """For each letter of a page's text why readers do not see it, or ""; [] if they see all."""
        hidden = hidden_characters(page, text)
        if not hidden:
            return []
        placed = PlacedText.of(page_text(self._glyphs(page, _PlacedPage(page, text))))
        return [hidden.get(at, "") for at in placed.at]

    @contextmanager
    def _opened_page(self, index: int) -> Iterator[tuple[Any, Any]]:
        """Open a page and its text, pdfium's own handles."""
        with closing(self._document[index]) as page, closing(page.get_textpage()) as text:
            yield page.raw, text.raw

    def image(self, index: int, dots_per_inch: int, pixels_wide: int) -> bytes:
        """Render a page: an array (height, width, 3) uint8, RGB, as a .npy; coarser where it would
        be huge.
        """
        with closing(self._document[index]) as page:
            width, height = page.get_size()
            scale = (
                (pixels_wide - 0.01) / width if pixels_wide else dots_per_inch / _POINTS_PER_INCH
            )
            pixels = max(1.0, width * height * scale * scale)
            scale *= min(1.0, (_MAX_PIXELS / pixels) ** 0.5)
            with closing(page.render(scale=scale, rev_byteorder=True)) as bitmap:
                np.save(file := io.BytesIO(), bitmap.to_numpy()[:, :, :3])
        return file.getvalue()

    def placed(self, index: int) -> tuple[str, tuple[int, ...]]:
        """The text of a page, made as for ingestion, with the character on the page of each
        letter.
        """
        with self._opened_page(index) as (page, text):
            glyphs = self._glyphs(page, _PlacedPage(page, text))
        placed_text = PlacedText.of(page_text(glyphs))
        return str(placed_text), placed_text.at

    def boxes(self, index: int, characters: Sequence[int]) -> tuple[float, list[tuple[float, ...]]]:
        """The height of a page, and left, top, right and bottom of characters; all in widths of the
        page.
        """
        with self._opened_page(index) as (page, text):
            return shown_height(page), [*_character_boxes(page, text, characters)]

    def pictures(self, index: int) -> list[tuple[Any, ...]]:
        """The pictures of a page: place, what they are, else the error, caption, alternative text,
        page.
        """
        # rarely needed
        from lazyrag.loaders.pictures import (
            MAX_PICTURES,
            WHOLE_PAGE,
            caption_among,
            describe_object,
        )

        pictures = []
        with closing(self._document[index]) as page, closing(page.get_textpage()) as text:
            alternatives = _alternative_texts(page)
            where = f"page {index + 1}"
            (wide, high) = page.get_size()
            images = itertools.islice(_image_objects(page), MAX_PICTURES)
            for number, (image, tag) in enumerate(images):
                left, bottom, right, top = image.get_bounds()
                shown_width = min(right, wide) - max(left, 0)
                shown_height = min(top, high) - max(bottom, 0)
                if shown_width * shown_height >= WHOLE_PAGE * wide * high:
                    continue
                below = text.get_text_bounded(left - 12, bottom - 64, right + 12, bottom + 2)
                above = text.get_text_bounded(left - 12, top - 2, right + 12, top + 40)
                caption = caption_among(below) or caption_among(above)
                described = None
                error = None
                try:
                    described = describe_object(image)
                except Exception as exc:  # noqa: BLE001  it is the result
                    error = describe_error(exc)
                place = f"{index + 1}/{number}"
                alternative = alternatives.get(tag, "")
                pictures.append((place, described, error, caption, alternative, where))
        return pictures

    def picture(self, index: int, number: int) -> bytes:
        """A picture of a page as a file."""
        from lazyrag.loaders.pictures import check_pixels, jpeg_of

        with closing(self._document[index]) as page:
            image, _ = next(itertools.islice(_image_objects(page), number, None), (None, 0))
            if image is None:
                raise LoadError(f"Page {index + 1} has no such picture.")
            check_pixels(*image.get_px_size())
            data = jpeg_of(image)
            if data is None:
                with closing(image.get_bitmap()) as bitmap:
                    bitmap.warn_on_close = False  # nothing refers to its pixels after that
                    data = write_png(bitmap.to_numpy(), is_blue_first=True)
            return data

    def attachments(self) -> list[str]:
        """The names of the files that are embedded in the document."""
        names = []
        for index in range(min(self._document.count_attachments(), MAX_ENTRIES)):
            name = ""
            with suppress(pypdfium2.PdfiumError, UnicodeDecodeError):
                name = re.split(r"[\\/]", self._document.get_attachment(index).get_name())[-1]
            names.append(clean(name).strip() or f"attachment {index + 1}")
        return names

    def attachment(self, index: int) -> bytes:
        """An embedded file."""
        with load_errors():
            return bytes(self._document.get_attachment(index).get_data())

    def _metadata(self) -> dict[str, str]:
        """Title, author, subject, keywords and dates, as far as the file has them; dates as ISO
        8601.
        """
        value = self._document.get_metadata_value
        values = {name: value(field).strip("\x00 \t\r\n") for field, name in _TEXT_FIELDS.items()}
        values |= {name: iso_date(value(field)) for field, name in _DATE_FIELDS.items()}
        return {
            name: text.encode("utf-8", "replace").decode()
            for name, text in values.items()
            if text not in _PLACEHOLDERS
        }

    def _outline(self) -> list[tuple[int, str, int]]:
        """Level from 1, title and index of the page of each entry; those without a page or a title
        are skipped.
        """
        entries = []
        with suppress(pypdfium2.PdfiumError):  # a damaged outline costs no text
            for entry in self._document.get_toc():
                target = entry.get_dest()
                title = " ".join(entry.get_title().replace("\x00", "").split())
                page = None if target is None else target.get_index()
                if title and page is not None and 0 <= page < self._count:
                    entries.append((entry.level + 1, title, page))
        return entries

    def _is_usable(self, index: int, text: str) -> bool:
        """Whether the text layer of a page holds its words: not garbled, and not a few of them over
        a scan.
        """
        if is_garbled(text):
            return False
        if not has_few_letters(text):
            return True
        with self._opened_page(index) as (page, _):
            return not _is_covered(page)


def _with_marks(text: str, reasons: Sequence[str]) -> str:
    if len(reasons) != len(text):
        return text
    pieces = []
    for reason, places in itertools.groupby(range(len(text)), reasons.__getitem__):
        run = "".join(text[at] for at in places)
        pieces.append(hide(run, reason) if reason else run)
    return "".join(pieces)


def _opened(source: Path | io.BytesIO, passwords: Sequence[str]) -> Any:
    for password in passwords:
        try:
            return pypdfium2.PdfDocument(source, password=password or None)
        except pypdfium2.PdfiumError as exc:
            if (
                getattr(exc, "err_code", None) != pdfium.FPDF_ERR_PASSWORD
                and "password" not in str(exc).lower()
            ):
                raise
    raise _wrong_password(passwords)


def _wrong_password(passwords: Sequence[str]) -> LoadError:
    problem = (
        "no password that PdfLoader was given opens it" if any(passwords) else "it needs a password"
    )
    hint = (
        "Give it: PdfLoader(password='...') in a reader of yours, or save the file again without"
        " one."
    )
    return LoadError(f"The PDF is encrypted, and {problem}. {hint}")


def _rewritten(path: Path, passwords: Sequence[str]) -> io.BytesIO:
    """A file that pdfium cannot open, rewritten by pypdf, which tolerates other flaws."""
    import pypdf  # rarely needed, and slow to import

    logging.disable()  # flaws of a file that matter are reported by our own errors
    with pypdf.PdfReader(path) as reader:
        if reader.is_encrypted and not any(reader.decrypt(password) for password in passwords):
            raise _wrong_password(passwords)
        target = io.BytesIO()
        pypdf.PdfWriter(clone_from=reader).write(target)
        return target


def iso_date(text: str) -> str:
    """A date of a PDF as ISO 8601; "" if it is not one.

    Example:
        >>> iso_date("D:20240131093000+08'00'"), iso_date("D:2024"), iso_date("yesterday")
        ('2024-01-31T09:30:00+08:00', '2024-01-01T00:00:00', '')
    """
    match = _DATE.match(text.strip())
    if match is None:
        return ""
    part = match.groupdict("")
    zone = part["zone"]
    if zone in ("+", "-"):
        zone += f"{part['hours'] or '00'}:{part['minutes'] or '00'}"
    day = f"{part['year']}-{part['month'] or '01'}-{part['day'] or '01'}"
    return f"{day}T{part['hour'] or '00'}:{part['minute'] or '00'}:{part['second'] or '00'}{zone}"


_SHOWN_WIDE = 1 << 24  # pdfium converts to integers


def shown_height(page: Any) -> float:
    """The height of a page as it is shown, in widths of it."""
    return pdfium.FPDF_GetPageHeightF(page) / (pdfium.FPDF_GetPageWidthF(page) or 1.0) or 1.0


def shown_point(page: Any, x: float, y: float) -> tuple[float, float]:
    """A point of a page as it is shown, turned and cropped: from its top left, in widths of it."""
    across = ctypes.c_int()
    down = ctypes.c_int()
    height = round(_SHOWN_WIDE * shown_height(page))
    pdfium.FPDF_PageToDevice(page, 0, 0, _SHOWN_WIDE, height, 0, x, y, across, down)
    return across.value / _SHOWN_WIDE, down.value / _SHOWN_WIDE


def _has_drawings(page: Any) -> bool:
    kinds = map(pdfium.FPDFPageObj_GetType, objects_of(page))
    return any(kind != pdfium.FPDF_PAGEOBJ_TEXT for kind in kinds)


def _image_objects(page: Any) -> Iterator[tuple[Any, int]]:
    """The pictures on an open page, in drawing order, and the numbers of their marked content."""
    for picture in page.get_objects(filter=(pdfium.FPDF_PAGEOBJ_IMAGE,), max_depth=5):
        yield picture, pdfium.FPDFPageObj_GetMarkedContentID(picture.raw)


def _alternative_texts(page: Any) -> dict[int, str]:
    """Alternative texts of the pictures on a tagged, open page, by number of their marked
    content.
    """
    alternatives: dict[int, str] = {}
    tree = pdfium.FPDF_StructTree_GetForPage(page.raw)
    if not tree:
        return alternatives
    count = pdfium.FPDF_StructTree_CountChildren(tree)
    waiting = [pdfium.FPDF_StructTree_GetChildAtIndex(tree, at) for at in range(count)]
    for _ in range(_MAX_TAGS):
        if not waiting:
            break
        tag = waiting.pop()
        size = pdfium.FPDF_StructElement_GetAltText(tag, None, 0) if tag else 0
        if size > 2:
            buffer = ctypes.create_string_buffer(size)
            pdfium.FPDF_StructElement_GetAltText(tag, buffer, size)
            for at in range(pdfium.FPDF_StructElement_GetMarkedContentIdCount(tag)):
                number = pdfium.FPDF_StructElement_GetMarkedContentIdAtIndex(tag, at)
                alternatives[number] = buffer.raw[: size - 2].decode("utf-16-le", "replace")
        count = pdfium.FPDF_StructElement_CountChildren(tag) if tag else 0
        waiting += [pdfium.FPDF_StructElement_GetChildAtIndex(tag, at) for at in range(count)]
    pdfium.FPDF_StructTree_Close(tree)
    return alternatives


_COVERED = 0.6  # of a page, by one picture


def _is_covered(page: Any) -> bool:
    """Whether a picture covers most of a page, as in scans."""
    area = pdfium.FPDF_GetPageWidthF(page) * pdfium.FPDF_GetPageHeightF(page)
    for item in objects_of(page):
        if pdfium.FPDFPageObj_GetType(item) == pdfium.FPDF_PAGEOBJ_IMAGE:
            left, bottom, right, top = bounds_of(item)
            if (right - left) * (top - bottom) >= _COVERED * area:
                return True
    return False


# any blank, U+00A0 too; an English line; a word; a hyphen at a line end
_WORD = re.compile(r"[^\S\r\n]|[!-~]+(?: [!-~]+)+|[^\s\ufffe\x02]+|[\ufffe\x02]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_WIDEST = 1.3  # of a letter, in font sizes
_WIDEST_OF_LINE = 0.5  # on average: pdfium makes one blank of several
_EDGE = 1.0  # points beyond the crop box that count as inside
_EVERYWHERE = (-1e9, -1e9, 1e9, 1e9)


def page_glyphs(page: PageText) -> list[Glyph]:
    """The characters of a page, without the spaces and line ends that pdfium adds.

    A word on one line, as most are, is located by its ends alone: four calls for six characters. So
    is an English line that is drawn by one operator, with its blanks.
    """
    text = page.text
    count = pdfium.FPDFText_CountChars(text)
    if count > _MAX_GLYPHS:
        raise ValueError(f"a page of {count:,} characters, where at most {_MAX_GLYPHS:,} are read")
    glyphs: list[Glyph] = []
    content = _all_text(text, count)
    # Characters beyond the first 65,536 have indices that differ from those of UTF-16 units.
    if content is None or has_right_to_left(content):
        return page.read_characters(0, count, glyphs)
    for stretch in _WORD.finditer(content):
        start = stretch.start()
        if " " in stretch[0]:
            page.read_line(start, stretch[0], glyphs)
        else:
            page.read_stretch(start, stretch[0], glyphs)
    return glyphs


def _all_text(text: Any, count: int) -> str | None:
    """The page's text if each of its characters is one UTF-16 unit; else None."""
    buffer = (ctypes.c_ushort * (count + 1))()
    written = pdfium.FPDFText_GetText(text, 0, count, buffer)
    if written != count + 1:
        return None
    content = bytes(buffer)[: 2 * count].decode("utf-16-le", "surrogatepass")
    return content if len(content) == count and not _SURROGATE.search(content) else None


class PageText:
    """Locates the characters of a page."""

    def __init__(self, page: Any, text: Any) -> None:
        self.text = text
        bounds = pdfium.FS_RECTF()
        is_bounded = pdfium.FPDF_GetPageBoundingBox(page, bounds) and bounds.right > bounds.left
        self._bounds = (
            (bounds.left, bounds.bottom, bounds.right, bounds.top) if is_bounded else _EVERYWHERE
        )
        self._box = pdfium.FS_RECTF()
        self._matrix = pdfium.FS_MATRIX()
        self._across = ctypes.c_double()
        self._up = ctypes.c_double()
        self._edges = bytearray(32)
        self._at_edges = [ctypes.c_double.from_buffer(self._edges, at) for at in range(0, 32, 8)]

    def letters(self, at: int, text: str) -> str:  # noqa: ARG002  a subclass notes the index
        """The letters of characters from an index on; see `lazyrag.loaders.pdf_layout.letters`."""
        return letters(text)

    def read_line(self, start: int, line: str, glyphs: list[Glyph]) -> None:
        """Add a line with blanks, as one glyph if it cannot have wide gaps: drawn by one operator,
        and narrow, as pdfium makes one blank of several.
        """
        if self._is_drawn_at_once(start, line):
            glyph = self._read_whole(start, line)
            if glyph and glyph.right - glyph.left < _WIDEST_OF_LINE * glyph.size * len(line):
                glyphs.append(glyph)
                return
        for part in re.finditer(r" |[^ ]+", line):
            self.read_stretch(start + part.start(), part[0], glyphs)

    def _is_drawn_at_once(self, start: int, line: str) -> bool:
        """Whether one operator draws a line, with its blanks."""
        return pdfium.FPDFText_CountRects(self.text, start, len(line)) == 1 and not any(
            pdfium.FPDFText_IsGenerated(self.text, start + blank.start())
            for blank in re.finditer(" ", line)
        )

    def read_stretch(self, start: int, stretch: str, glyphs: list[Glyph]) -> None:
        """Add a blank or a word, as one glyph where possible."""
        if stretch.isspace():
            if not pdfium.FPDFText_IsGenerated(self.text, start):
                glyphs.append(BLANK)
        elif len(stretch) > 1 and (glyph := self._read_whole(start, stretch)):
            glyphs.append(glyph)
        else:
            self.read_characters(start, start + len(stretch), glyphs)

    def _read_whole(self, start: int, stretch: str) -> Glyph | None:
        """A stretch as one glyph; None if its characters have to be read one by one.

        So are those of a word drawn in parts with gaps between them: pdfium finds no blank where
        the file names U+00A0 as the text of one.
        """
        first = self.placed(start)
        last = self.placed(start + len(stretch) - 1)
        if not (first and last and self._is_shown(first[0]) and self._is_shown(last[0])):
            return None
        size, turn = self.size_and_turn(start)
        if " " not in stretch and not self._is_tight(start, len(stretch), size):
            return None
        left, _, base = turned(turn, *first)
        last_left, right, last_base = turned(turn, *last)
        if abs(base - last_base) > 0.01 * size or not 0 < right - left < _WIDEST * size * len(
            stretch
        ):
            return None
        read = self.letters(start, stretch)
        return Glyph(read, left, right, base, size, turn) if read and last_left >= left else None

    def _is_tight(self, start: int, count: int, size: float) -> bool:
        """Whether a word is drawn at once, or in parts without gaps between them."""
        parts = pdfium.FPDFText_CountRects(self.text, start, count)
        end = None
        for part in range(parts if parts > 1 else 0):
            pdfium.FPDFText_GetRect(self.text, part, *self._at_edges)
            left, _, right, _ = struct.unpack("4d", self._edges)
            if end is not None and abs(left - end) > NARROW * size:
                return False
            end = right
        return True

    def _is_shown(self, box: tuple[float, float, float, float]) -> bool:
        """Whether the middle of a box is within the crop box."""
        across = (box[0] + box[2]) / 2
        up = (box[1] + box[3]) / 2
        left, bottom, right, top = self._bounds
        return left - _EDGE <= across <= right + _EDGE and bottom - _EDGE <= up <= top + _EDGE

    def read_characters(self, start: int, end: int, glyphs: list[Glyph]) -> list[Glyph]:
        """Add the characters of a stretch, one glyph each."""
        # the size and turn of a text object hold for its characters
        size = 0.0
        turn = 0
        high = 0
        expected: tuple[float, float] | None = None
        collected = GlyphCollector(glyphs)
        for at in range(start, end):
            code = pdfium.FPDFText_GetUnicode(self.text, at)
            if 0xD800 <= code < 0xDC00:
                high = code
                continue
            if 0xDC00 <= code < 0xE000:
                code = 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00) if high else 0xFFFD
            high = 0
            if code in (0x0D, 0x0A, 0x20) and pdfium.FPDFText_IsGenerated(self.text, at):
                expected = None
                continue
            placed = self.placed(at)
            if placed is None or not self._is_shown(placed[0]):
                continue
            box, (x, y) = placed
            if code == 0x20 and box[0] == box[2] and box[1] == box[3]:  # added by pdfium as well
                continue
            if expected is None or abs(y - expected[1]) > 0.01 or abs(x - expected[0]) > size:
                size, turn = self.size_and_turn(at)
            expected = (box[2], y)
            read = self.letters(at, chr(code) if code <= 0x10FFFF else "\ufffd")
            if read:
                left, right, base = turned(turn, box, (x, y))
                # the boxes of some writers are narrower than their glyphs
                if has_right_to_left(read):
                    left = min(left, turned(turn, (x, y, x, y), (x, y))[0])
                collected.add(Glyph(read, left, right, base, size, turn), (box[0], x, y))
        return collected.glyphs()

    def placed(
        self, at: int
    ) -> tuple[tuple[float, float, float, float], tuple[float, float]] | None:
        """The box of a character, and where it begins on its base line."""
        if not pdfium.FPDFText_GetLooseCharBox(self.text, at, self._box):
            return None
        if not pdfium.FPDFText_GetCharOrigin(self.text, at, self._across, self._up):
            return None
        box = self._box
        return (box.left, box.bottom, box.right, box.top), (self._across.value, self._up.value)

    def size_and_turn(self, at: int) -> tuple[float, int]:
        """The font size of a character, and the quarter turns of its line to the left."""
        size = abs(pdfium.FPDFText_GetFontSize(self.text, at)) or 1.0
        if not pdfium.FPDFText_GetMatrix(self.text, at, self._matrix):
            return size, 0
        matrix = self._matrix
        scale = float((matrix.c**2 + matrix.d**2) ** 0.5)
        return size * scale or size, quarter_turns(matrix.a, matrix.b)


class _PlacedPage(PageText):
    """Locates the characters of a page, and notes their indices."""

    def letters(self, at: int, text: str) -> str:
        """See `PageText.letters`."""
        places = []
        pieces = []
        for number, character in enumerate(text, at):
            piece = letters(character)
            pieces.append(piece)
            places += [number] * len(piece)
        return PlacedText("".join(pieces), tuple(places))


def _character_boxes(
    page: Any, text: Any, characters: Iterable[int]
) -> Iterator[tuple[float, ...]]:
    """Left, top, right and bottom of characters on the page as it is shown, in widths of the
    page.
    """
    located = PageText(page, text)
    for at in characters:
        placed = located.placed(at) if at >= 0 else None
        if placed is None:
            continue
        (left, bottom, right, top), (across, up) = placed
        size, turn = located.size_and_turn(at)
        # The heights that fonts name reach over the lines above and below, or are missing.
        low, high = (
            (_BELOW * size, _ABOVE * size) if turn in (0, 3) else (_ABOVE * size, _BELOW * size)
        )
        if turn % 2 and across - low < (left + right) / 2 < across + high:
            left = across - low
            right = across + high
        elif not turn % 2 and up - low < (bottom + top) / 2 < up + high:
            bottom = up - low
            top = up + high
        xs, ys = zip(shown_point(page, left, top), shown_point(page, right, bottom), strict=True)
        yield min(xs), min(ys), max(xs), max(ys)
