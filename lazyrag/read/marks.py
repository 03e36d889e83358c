"""Marks: where the words of a span are on the pages of a PDF, and images of its pages."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Self, SupportsIndex

from lazyrag.data.pictures import write_png
from lazyrag.data.segment import Location, Segment, Span, content_text
from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders.ocr import OcrWord, word_glyphs
from lazyrag.loaders.pdf import PageText, PdfFile, PdfLoader, page_glyphs, shown_height, shown_point
from lazyrag.loaders.pdf_layout import letters, page_text, without_repeated_lines
from lazyrag.read.catalogue import checked_span, find_root
from lazyrag.read.scope import Reader
from lazyrag.validation import validate_integer

_MAX_WIDTH = 10_000
_BELOW, _ABOVE = 0.25, 0.9  # of a line, from its base line, in font sizes


@dataclass(frozen=True, slots=True)
class PageBox:
    """A rectangle around words of one line; its edges are shares of the page as it is shown, from its top left.

    Args:
        page: Number of the page, from 1.
        x0: Left edge, in [0, 1].
        y0: Top edge.
        x1: Right edge.
        y1: Bottom edge.
    """

    page: int
    x0: float
    y0: float
    x1: float
    y1: float


@dataclass(frozen=True, slots=True)
class Marks:
    """Where a span of a document is shown.

    Args:
        document: The document's path or id.
        span: Start and end in the document's text, end excluded: what to mark where that text is shown.
        text: The document's text in the span.
        boxes: For a PDF, the places of its words on the pages, in reading order; () for other formats.
    """

    document: str
    span: Span
    text: str
    boxes: tuple[PageBox, ...] = ()


def find_marks(reader: Reader, path: str, span: Span | Location, file: str | os.PathLike[str] | None) -> Marks:
    """Find where a span of a document is shown; see `Document.marks`."""
    root = find_root(reader, path)
    text = content_text(root.content)
    start, end = checked_span(span, len(text))
    loader = _pdf_loader(reader, root)
    touched = [one for one in root.locations if one.kind == "page" and one.start < end and start < one.end]
    if loader is None or not touched:
        return Marks(path, (start, end), text[start:end])
    with closing(loader.open(reader.unchanged_file(path, file))) as opened:
        pages = {int(one.label): one for one in touched}
        words: dict[int, tuple[list[OcrWord], tuple[int, ...]]] = {}
        for number in {*root.metadata.get("pages_by_ocr", ())} & {
            *(range(1, opened.count + 1) if loader.drop_repeated else pages)
        }:
            found = loader.recognize(opened, number)
            words[number] = ([], (1, 1)) if isinstance(found, str) else found

        def place(number: int) -> PlacedText:
            return _recognized_page(*words[number]) if number in words else _placed_page(opened, number - 1)

        placed = {number: place(number) for number in pages}
        if loader.drop_repeated:
            every = [placed.get(number) or place(number) for number in range(1, opened.count + 1)]
            kept = without_repeated_lines(every)
            placed = {number: PlacedText.of(kept[number - 1]) for number in pages}
        boxes: list[PageBox] = []
        for number, one in pages.items():
            if placed[number] != text[one.start : one.end]:
                raise LoadError(_other_text(path, number, root))
            own = placed[number][max(0, start - one.start) : max(0, end - one.start)]
            boxes += (
                _word_boxes(number, *words[number], own.at) if number in words else _page_boxes(opened, number, own.at)
            )
    return Marks(path, (start, end), text[start:end], tuple(boxes))


def render_page(reader: Reader, path: str, page: int, width: int, file: str | os.PathLike[str] | None) -> bytes:
    """Render a page of a PDF; see `Document.page_image`."""
    root = find_root(reader, path)
    width = validate_integer("width", width, 1, _MAX_WIDTH)
    loader = _pdf_loader(reader, root)
    if loader is None:
        raise ConfigError(f"{path!r} has no pages to show: it is not a PDF. Show its text instead.")
    with closing(loader.open(reader.unchanged_file(path, file))) as opened:
        number = validate_integer("page", page, 1, opened.count)
        return write_png(opened.image(number - 1, 0, width))


def _pdf_loader(reader: Reader, root: Segment) -> PdfLoader | None:
    """The loader that read a document; None unless it is a `PdfLoader`."""
    _, given = reader.indexer.engine.loading.loader_of(root.path, root.metadata)
    found = given() if isinstance(given, type) and issubclass(given, PdfLoader) else given
    return found if isinstance(found, PdfLoader) else None


def _other_text(path: str, number: int, root: Segment) -> str:
    if number in root.metadata.get("pages_by_ocr", ()):
        return f"Page {number} of {path!r} was read by text recognition, which gives no places. Show the whole page."
    return f"The text of page {number} of {path!r} was made otherwise than PdfLoader makes it. Show the whole page."


class PlacedText(str):
    """A text each of whose letters knows its character on the page; -1 for letters that layout added.

    Layout makes the text of a page from such texts by the operations below, and so keeps the characters.
    """

    __slots__ = ("at",)
    at: tuple[int, ...]

    def __new__(cls, text: str, at: tuple[int, ...]) -> Self:
        """Make a text of as many letters as places."""
        made = super().__new__(cls, text)
        made.at = at
        return made

    @classmethod
    def of(cls, text: str) -> PlacedText:
        """A text as a placed one."""
        return text if isinstance(text, PlacedText) else cls(text, (-1,) * len(text))

    def __add__(self, other: str) -> PlacedText:
        return PlacedText(str.__add__(self, other), self.at + PlacedText.of(other).at)

    def __radd__(self, other: str) -> PlacedText:
        return PlacedText(str.__add__(other, self), PlacedText.of(other).at + self.at)

    def __getitem__(self, key: SupportsIndex | slice) -> PlacedText:
        at = self.at[key]
        return PlacedText(str.__getitem__(self, key), at if isinstance(at, tuple) else (at,))

    def join(self, texts: Iterable[str], /) -> PlacedText:
        """Called through the class, with a separator of either type."""
        parts = [part for text in texts for part in (self, text)][1:]
        return PlacedText("".join(map(str, parts)), tuple(one for part in parts for one in PlacedText.of(part).at))

    def rstrip(self, chars: str | None = None, /) -> PlacedText:
        """See `str.rstrip`."""
        return self[: len(str.rstrip(self, chars))]

    def strip(self, chars: str | None = None, /) -> PlacedText:
        """See `str.strip`."""
        return self[len(self) - len(str.lstrip(self, chars)) :].rstrip(chars)

    def splitlines(self, keepends: bool = False) -> list[str]:  # noqa: FBT001, FBT002  as that of str
        """See `str.splitlines`."""
        ends = [0]
        for line in str.splitlines(self, keepends=True):
            ends.append(ends[-1] + len(line))
        kept = zip(ends, str.splitlines(self, keepends), strict=False)
        return [self[start : start + len(line)] for start, line in kept]


class _PlacedPage(PageText):
    """Locates the characters of a page, and notes their indices."""

    def letters(self, at: int, text: str) -> str:
        """See `PageText.letters`."""
        read = [(number, letters(one)) for number, one in enumerate(text, at)]
        return PlacedText("".join(one for _, one in read), tuple(number for number, one in read for _ in one))


def _placed_page(file: PdfFile, index: int) -> PlacedText:
    """The text of a page, made as for ingestion, with the characters of the page."""
    with file.opened(index) as (page, text):
        glyphs = page_glyphs(_PlacedPage(page, text))
    return PlacedText.of(page_text(glyphs))


def _recognized_page(words: list[OcrWord], shape: tuple[int, ...]) -> PlacedText:
    """The text of a page read by OCR, made as for ingestion, with the numbers of its words."""

    def placed(text: str, number: int) -> PlacedText:
        return PlacedText(text, (number,) * len(text))

    return PlacedText.of(PlacedText.of(page_text(word_glyphs(words, shape, placed))).strip())


def _word_boxes(number: int, words: list[OcrWord], shape: tuple[int, ...], numbers: Iterable[int]) -> list[PageBox]:
    """Boxes around words of a page read by OCR."""
    height = shape[0] / shape[1]
    found = (words[at] for at in dict.fromkeys(numbers) if at >= 0)
    return _united(number, height, ((one.x0, one.y0 * height, one.x1, one.y1 * height) for one in found))


def _page_boxes(file: PdfFile, number: int, characters: Iterable[int]) -> list[PageBox]:
    """Boxes around characters of a page."""
    with file.opened(number - 1) as (page, text):
        return _united(number, shown_height(page), _character_boxes(page, text, dict.fromkeys(characters)))


def _united(number: int, height: float, boxes: Iterable[tuple[float, ...]]) -> list[PageBox]:
    """Boxes in reading order, in widths of the page, united where they continue a line of any direction."""
    lines: list[list[float]] = []
    for x0, y0, x1, y1 in boxes:
        last = lines[-1] if lines else None
        if last is not None and (
            _continues((*last[0::2], x0, x1), (*last[1::2], y0, y1))
            or _continues((*last[1::2], y0, y1), (*last[0::2], x0, x1))
        ):
            last[:] = min(last[0], x0), min(last[1], y0), max(last[2], x1), max(last[3], y1)
        else:
            lines.append([x0, y0, x1, y1])
    shares = ([x0, y0 / height, x1, y1 / height] for x0, y0, x1, y1 in lines)
    return [PageBox(number, *(min(1.0, max(0.0, edge)) for edge in line)) for line in shares]


def _character_boxes(page: Any, text: Any, characters: Iterable[int]) -> Iterator[tuple[float, ...]]:
    """Left, top, right and bottom of characters on the page as it is shown, in widths of the page."""
    located = PageText(page, text)
    for at in characters:
        placed = located.placed(at) if at >= 0 else None
        if placed is None:
            continue
        (left, bottom, right, top), (across, up) = placed
        size, turn = located.size_and_turn(at)
        # The heights that fonts name reach over the lines above and below, or are missing.
        low, high = (_BELOW * size, _ABOVE * size) if turn in (0, 3) else (_ABOVE * size, _BELOW * size)
        if turn % 2 and across - low < (left + right) / 2 < across + high:
            left, right = across - low, across + high
        elif not turn % 2 and up - low < (bottom + top) / 2 < up + high:
            bottom, top = up - low, up + high
        xs, ys = zip(shown_point(page, left, top), shown_point(page, right, bottom), strict=True)
        yield min(xs), min(ys), max(xs), max(ys)


def _continues(along: tuple[float, ...], across: tuple[float, ...]) -> bool:
    """Whether a character is beside a line: near it along the line, and level with it across.

    Args:
        along: Start and end of the line, then of the character.
        across: The same in the other direction.
    """
    (start, end, left, right), (low, high, bottom, top) = along, across
    near = 0.6 * max(high - low, top - bottom)
    is_level = abs(low + high - bottom - top) < 0.6 * min(high - low, top - bottom)
    return is_level and left - end < near and start - right < near
