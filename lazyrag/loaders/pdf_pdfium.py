"""PDF through pypdfium2: the engine of Chrome, quick, and able to draw pages."""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pypdfium2
import pypdfium2.raw as pdfium

from lazyrag.loaders.pdf_layout import (
    Glyph,
    NeedsPasswordError,
    PageContent,
    has_right_to_left,
    letters,
    quarter_turns,
    turned,
)

_LOCK = threading.Lock()
"""pdfium is not made for several threads, not even with a file each."""

_FIELDS = ("Title", "Author", "Subject", "Keywords", "Creator", "Producer", "CreationDate", "ModDate")
_MOST_GLYPHS = 1_000_000
_MOST_PIXELS = 40_000_000
_POINTS_PER_INCH = 72

_WORD = re.compile(r" |[^\s\ufffe\x02]+|[\ufffe\x02]")
_BLANK = Glyph(" ", 0.0, 0.0, 0.0, 0.0)
_WIDEST = 1.3  # of a letter, in sizes of its font


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
    """The characters of a page, without the blanks and ends of lines that pdfium adds.

    A word that stands on one line, as most do, is looked up by its ends alone: four calls for six characters.
    """
    count = pdfium.FPDFText_CountChars(text)
    if count > _MOST_GLYPHS:
        msg = f"a page of {count:,} characters, where at most {_MOST_GLYPHS:,} are read"
        raise ValueError(msg)
    page = _PageText(text)
    found: list[Glyph] = []
    told = _all_text(text, count)
    if told is None:  # letters beyond the first 65,536: numbers of characters are not those of the text's units
        return page.one_by_one(0, count, found)
    for word in _WORD.finditer(told):
        start, end = word.span()
        if word[0] == " ":
            if not pdfium.FPDFText_IsGenerated(text, start):
                found.append(_BLANK)
            continue
        if end - start > 1 and not has_right_to_left(word[0]) and (whole := page.whole(start, end, word[0])):
            found.append(whole)
        else:
            page.one_by_one(start, end, found)
    return found


def _all_text(text: Any, count: int) -> str | None:
    """The page's text, if each of its characters is one unit; None else."""
    buffer = (ctypes.c_ushort * (count + 1))()
    written = pdfium.FPDFText_GetText(text, 0, count, buffer)
    if written != count + 1:
        return None
    told = bytes(buffer)[: 2 * count].decode("utf-16-le", "surrogatepass")
    return told if len(told) == count and not any("\ud800" <= one <= "\udfff" for one in told) else None


class _PageText:
    """Where the characters of a page stand."""

    def __init__(self, text: Any) -> None:
        self._text = text
        self._box, self._matrix = pdfium.FS_RECTF(), pdfium.FS_MATRIX()
        self._across, self._up = ctypes.c_double(), ctypes.c_double()
        self._at_box, self._at_matrix = ctypes.byref(self._box), ctypes.byref(self._matrix)
        self._at_across, self._at_up = ctypes.byref(self._across), ctypes.byref(self._up)

    def whole(self, start: int, end: int, word: str) -> Glyph | None:
        """A word as one; None if its characters have to be looked at."""
        first, last = self._placed(start), self._placed(end - 1)
        if first is None or last is None:
            return None
        size, turn = self._size_and_turn(start)
        left, _, base = turned(turn, *first)
        last_left, right, last_base = turned(turn, *last)
        if abs(base - last_base) > 0.01 * size or not 0 < right - left < _WIDEST * size * len(word):
            return None
        read = letters(word)
        return Glyph(read, left, right, base, size, turn) if read and last_left >= left else None

    def one_by_one(self, start: int, end: int, found: list[Glyph]) -> list[Glyph]:
        """Add the characters of a stretch, each for itself."""
        size, turn, high = 0.0, 0, 0  # the size and turn of a text object hold for its characters
        expected: tuple[float, float] | None = None
        for at in range(start, end):
            code = pdfium.FPDFText_GetUnicode(self._text, at)
            if 0xD800 <= code < 0xDC00:
                high = code
                continue
            if 0xDC00 <= code < 0xE000:
                code = 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00) if high else 0xFFFD
            high = 0
            if code in (0x0D, 0x0A, 0x20) and pdfium.FPDFText_IsGenerated(self._text, at):
                expected = None
                continue
            placed = self._placed(at)
            if placed is None:
                continue
            box, (x, y) = placed
            if expected is None or abs(y - expected[1]) > 0.01 or abs(x - expected[0]) > size:
                size, turn = self._size_and_turn(at)
            expected = (box[2], y)
            read = letters(chr(code)) if code <= 0x10FFFF else "\ufffd"
            if read:
                left, right, base = turned(turn, box, (x, y))
                if found and (left, right, base) == found[-1][1:4]:  # one glyph for several letters
                    found[-1] = found[-1]._replace(text=found[-1].text + read)
                else:
                    found.append(Glyph(read, left, right, base, size, turn))
        return found

    def _placed(self, at: int) -> tuple[tuple[float, float, float, float], tuple[float, float]] | None:
        """The box of a character, and where it begins on its base line."""
        if not pdfium.FPDFText_GetLooseCharBox(self._text, at, self._at_box):
            return None
        if not pdfium.FPDFText_GetCharOrigin(self._text, at, self._at_across, self._at_up):
            return None
        box = self._box
        return (box.left, box.bottom, box.right, box.top), (self._across.value, self._up.value)

    def _size_and_turn(self, at: int) -> tuple[float, int]:
        size = abs(pdfium.FPDFText_GetFontSize(self._text, at)) or 1.0
        if not pdfium.FPDFText_GetMatrix(self._text, at, self._at_matrix):
            return size, 0
        matrix = self._matrix
        scale = float((matrix.c**2 + matrix.d**2) ** 0.5)
        return size * scale or size, quarter_turns(matrix.a, matrix.b)
