"""Text of a PDF page that its readers do not see: what a child process does, see `pdf_pages`."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import pypdfium2.raw as pdfium

from lazyrag.loaders.hidden import BACKGROUND, NOT_DRAWN, SIZE, TRANSPARENT

_MIN_SIDE = 6.0  # of an area behind text, in points
_MAX_PAIRS = 1_000_000
_RECTANGLE = 6  # points of its path
_TINY = 1.0  # points
_FAINT = 8  # of 255
_CLOSE = 8
_WHITE = (255, 255, 255, 255)
_BLACK = (0, 0, 0, 255)
_Text: TypeAlias = tuple[Any, int]
"""A text object with the number of areas that are drawn before it."""


class _Area(NamedTuple):
    """Something drawn behind text: its bounds, and its colour, None if that is not one."""

    left: float
    bottom: float
    right: float
    top: float
    colour: tuple[int, ...] | None

    def contains(self, x: float, y: float) -> bool:
        return self.left <= x <= self.right and self.bottom <= y <= self.top


def hidden_objects(page: Any) -> dict[int, str]:
    """Why readers do not see the text objects of an open page that they do not see, by address.

    Text that is not drawn over a picture is the text layer of a scan. Over a picture, a shape that
    is no rectangle or another document, text is taken as visible; so is all text in forms.
    """
    areas: list[_Area] = []
    texts: dict[tuple[int, ...], list[_Text]] = {}  # by colour
    unseen = []
    for item in objects_of(page):
        kind = pdfium.FPDFPageObj_GetType(item)
        if kind != pdfium.FPDF_PAGEOBJ_TEXT:
            if area := _area(item, kind):
                areas.append(area)
            continue
        colour = _fill(item)
        mode = pdfium.FPDFTextObj_GetTextRenderMode(item)
        if reason := _reason(item, mode, colour[3]):
            unseen.append((item, reason))
        elif mode == pdfium.FPDF_TEXTRENDERMODE_FILL:
            texts.setdefault(colour, []).append((item, len(areas)))
    pictures = [area for area in areas if area.colour is None]
    hidden = {_address(item): BACKGROUND for item in _in_background_colour(texts, areas)}
    for item, reason in unseen:
        middle = _middle(item)
        if reason != NOT_DRAWN or not any(area.contains(*middle) for area in pictures):
            hidden[_address(item)] = reason
    return hidden


def _reason(item: Any, mode: int, opacity: int) -> str:
    """Return why a text object is invisible on any background; "" if it may be visible."""
    if mode == pdfium.FPDF_TEXTRENDERMODE_INVISIBLE:
        return NOT_DRAWN
    if mode == pdfium.FPDF_TEXTRENDERMODE_FILL and opacity <= _FAINT:
        return TRANSPARENT
    return SIZE if _size(item) <= _TINY else ""


def _in_background_colour(
    texts: Mapping[tuple[int, ...], Sequence[_Text]], areas: Sequence[_Area]
) -> Iterator[Any]:
    backgrounds = {_WHITE, *(area.colour for area in areas if area.colour is not None)}
    hidden = [colour for colour in texts if any(_is_close(colour, some) for some in backgrounds)]
    if sum(len(texts[colour]) for colour in hidden) * len(areas) > _MAX_PAIRS:
        return
    for colour in hidden:
        for item, before in texts[colour]:
            if _is_close(colour, _behind(_middle(item), areas[:before])):
                yield item


def hidden_characters(page: Any, text: Any) -> dict[int, str]:
    """Why readers do not see characters of an open page, by number."""
    objects = hidden_objects(page)
    if not objects:
        return {}
    numbers = range(pdfium.FPDFText_CountChars(text))
    owners = ((at, _address(pdfium.FPDFText_GetTextObject(text, at))) for at in numbers)
    return {at: objects[owner] for at, owner in owners if owner in objects}


def objects_of(page: Any) -> Iterator[Any]:
    """The objects on an open page, in drawing order."""
    for at in range(max(0, int(pdfium.FPDFPage_CountObjects(page)))):
        yield pdfium.FPDFPage_GetObject(page, at)


def _address(item: Any) -> int:
    return ctypes.cast(item, ctypes.c_void_p).value or 0


# pdfium writes into these; made once, as there are many objects
_COLOUR = bytearray(16)
_AT_COLOUR = [ctypes.c_uint.from_buffer(_COLOUR, at) for at in range(0, 16, 4)]
_EDGES = bytearray(16)
_AT_EDGES = [ctypes.c_float.from_buffer(_EDGES, at) for at in range(0, 16, 4)]
_SIZE = ctypes.c_float()
_MATRIX = pdfium.FS_MATRIX()


def _fill(item: Any) -> tuple[int, ...]:
    """Red, green, blue and opacity up to 255; black if unknown."""
    is_known = pdfium.FPDFPageObj_GetFillColor(item, *_AT_COLOUR)
    return struct.unpack("4I", _COLOUR) if is_known else _BLACK


def _size(item: Any) -> float:
    """The font size of a text object on the page, in points."""
    is_known = pdfium.FPDFTextObj_GetFontSize(item, _SIZE)
    if not is_known or not pdfium.FPDFPageObj_GetMatrix(item, _MATRIX):
        return _TINY + 1
    return float(abs(_SIZE.value) * (_MATRIX.c**2 + _MATRIX.d**2) ** 0.5)


def bounds_of(item: Any) -> tuple[float, float, float, float]:
    """Left, bottom, right and top."""
    if not pdfium.FPDFPageObj_GetBounds(item, *_AT_EDGES):
        return 0.0, 0.0, 0.0, 0.0
    return struct.unpack("4f", _EDGES)


def _middle(item: Any) -> tuple[float, float]:
    left, bottom, right, top = bounds_of(item)
    return (left + right) / 2, (bottom + top) / 2


def _area(item: Any, kind: int) -> _Area | None:
    """What is drawn behind text that follows; None for lines and small shapes."""
    bounds = bounds_of(item)
    if bounds[2] - bounds[0] < _MIN_SIDE or bounds[3] - bounds[1] < _MIN_SIDE:
        return None
    if kind != pdfium.FPDF_PAGEOBJ_PATH:
        return _Area(*bounds, None)
    mode = ctypes.c_int()
    pdfium.FPDFPath_GetDrawMode(item, mode, ctypes.c_int())
    colour = _fill(item)
    if mode.value == pdfium.FPDF_FILLMODE_NONE or colour[3] <= _FAINT:
        return None
    is_plain = colour[3] == 255 and pdfium.FPDFPath_CountSegments(item) <= _RECTANGLE
    return _Area(*bounds, colour if is_plain else None)


def _behind(middle: tuple[float, float], areas: Sequence[_Area]) -> tuple[int, ...] | None:
    """The colour of the last area that is drawn at a point; white without one."""
    around = (area.colour for area in reversed(areas) if area.contains(*middle))
    return next(around, _WHITE)


def _is_close(colour: tuple[int, ...], other: tuple[int, ...] | None) -> bool:
    if other is None:
        return False
    pairs = zip(colour[:3], other[:3], strict=True)
    return all(abs(first - second) <= _CLOSE for first, second in pairs)
