"""PDF through pypdfium2: the engine of Chrome, quick, and able to draw pages."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pypdfium2
import pypdfium2.raw as pdfium

from lazyrag.loaders.pdf_page import Glyph, NeedsPasswordError, PageContent, letters, quarter_turns, turned

_LOCK = threading.Lock()
"""pdfium is not made for several threads, not even with a file each."""

_FIELDS = ("Title", "Author", "Subject", "Keywords", "Creator", "Producer", "CreationDate", "ModDate")
_MOST_GLYPHS = 1_000_000
_MOST_PIXELS = 40_000_000
_POINTS_PER_INCH = 72


class PdfiumFile:
    """A PDF that is open in pdfium.

    Args:
        path: An existing file.
        passwords: Tried one after the other, the empty one first.

    Raises:
        NeedsPasswordError: If none of them opens it.
    """

    name = "pypdfium2"

    def __init__(self, path: Path, passwords: tuple[str, ...] = ()) -> None:
        with _LOCK:
            self._document = _opened(path, ("", *passwords))
            self.count = len(self._document)

    def page(self, index: int) -> PageContent:
        """The characters of a page."""
        with _LOCK:
            page = self._document[index]
            try:
                text = page.get_textpage()
                try:
                    return PageContent(_glyphs(text.raw), _is_drawn(page.raw))
                finally:
                    text.close()
            finally:
                page.close()

    def image(self, index: int, dots_per_inch: int) -> np.ndarray:
        """A page as a picture: (height, width, 3) uint8, red, green, blue; coarser where it would be huge."""
        with _LOCK:
            page = self._document[index]
            try:
                width, height = page.get_size()
                scale = dots_per_inch / _POINTS_PER_INCH
                pixels = max(1.0, width * height * scale * scale)
                scale *= min(1.0, (_MOST_PIXELS / pixels) ** 0.5)
                bitmap = page.render(scale=scale, rev_byteorder=True)
                try:
                    return np.array(bitmap.to_numpy()[:, :, :3])
                finally:
                    bitmap.close()
            finally:
                page.close()

    def information(self) -> Mapping[str, str]:
        """What the file says of itself."""
        with _LOCK:
            return {name: self._document.get_metadata_value(name) for name in _FIELDS}

    def close(self) -> None:
        """Let go of the file; what is left to the garbage collector would be closed in any thread."""
        with _LOCK:
            self._document.close()


def _opened(path: Path, passwords: tuple[str, ...]) -> Any:
    for password in passwords:
        try:
            return pypdfium2.PdfDocument(path, password=password or None)
        except pypdfium2.PdfiumError as exc:
            if getattr(exc, "err_code", None) != pdfium.FPDF_ERR_PASSWORD and "password" not in str(exc).lower():
                raise
    raise NeedsPasswordError


def _is_drawn(page: Any) -> bool:
    kinds = (pdfium.FPDFPageObj_GetType(pdfium.FPDFPage_GetObject(page, at)) for at in range(_objects(page)))
    return any(kind != pdfium.FPDF_PAGEOBJ_TEXT for kind in kinds)


def _objects(page: Any) -> int:
    return max(0, int(pdfium.FPDFPage_CountObjects(page)))


def _glyphs(text: Any) -> list[Glyph]:
    """The characters of a page, without the blanks and ends of lines that pdfium adds."""
    count = pdfium.FPDFText_CountChars(text)
    if count > _MOST_GLYPHS:
        msg = f"a page of {count:,} characters, where at most {_MOST_GLYPHS:,} are read"
        raise ValueError(msg)
    box, matrix = pdfium.FS_RECTF(), pdfium.FS_MATRIX()
    across, up = ctypes.c_double(), ctypes.c_double()
    at_box, at_matrix, at_across, at_up = map(ctypes.byref, (box, matrix, across, up))
    unicode_of, box_of = pdfium.FPDFText_GetUnicode, pdfium.FPDFText_GetLooseCharBox
    origin_of = pdfium.FPDFText_GetCharOrigin
    found: list[Glyph] = []
    size, turn, high = 0.0, 0, 0  # the size and turn of a text object hold for its characters
    expected: tuple[float, float] | None = None
    for at in range(count):
        code = unicode_of(text, at)
        if 0xD800 <= code < 0xDC00:
            high = code
            continue
        if 0xDC00 <= code < 0xE000:
            code = 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00) if high else 0xFFFD
        high = 0
        if code in (0x0D, 0x0A, 0x20) and pdfium.FPDFText_IsGenerated(text, at):
            expected = None
            continue
        if not (box_of(text, at, at_box) and origin_of(text, at, at_across, at_up)):
            continue
        place = (across.value, up.value)
        if expected is None or abs(place[1] - expected[1]) > 0.01 or abs(place[0] - expected[0]) > size:
            size, turn = _size_and_turn(text, at, at_matrix, matrix)
        expected = (box.right, place[1])
        read = letters(chr(code)) if code <= 0x10FFFF else "\ufffd"
        if read:
            left, right, base = turned(turn, (box.left, box.bottom, box.right, box.top), place)
            if found and (left, right, base) == found[-1][1:4]:  # one glyph for several letters
                found[-1] = found[-1]._replace(text=found[-1].text + read)
            else:
                found.append(Glyph(read, left, right, base, size, turn))
    return found


def _size_and_turn(text: Any, at: int, at_matrix: Any, matrix: Any) -> tuple[float, int]:
    size = abs(pdfium.FPDFText_GetFontSize(text, at)) or 1.0
    if not pdfium.FPDFText_GetMatrix(text, at, at_matrix):
        return size, 0
    scale = float((matrix.c**2 + matrix.d**2) ** 0.5)
    return size * scale or size, quarter_turns(matrix.a, matrix.b)
