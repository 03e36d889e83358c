"""Marks: where the words of a span are on the pages of a PDF, and images of its pages."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass

from lazyrag.data.pictures import write_png
from lazyrag.data.segment import Location, Segment, Span, content_text
from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders.ocr import OcrWord, word_glyphs
from lazyrag.loaders.pdf import PdfFile, PdfLoader
from lazyrag.loaders.pdf_layout import page_text, without_repeated_lines
from lazyrag.loaders.pdf_lines import PlacedText
from lazyrag.read.catalogue import checked_span, find_root
from lazyrag.read.scope import Reader
from lazyrag.validation import validate_integer

_MAX_WIDTH = 10_000


@dataclass(frozen=True, slots=True)
class PageBox:
    """A rectangle around words of one line; its edges are shares of the page as it is shown, from
    its top left.

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
        span: Start and end in the document's text, end excluded: what to mark where that text is
            shown.
        text: The document's text in the span.
        boxes: For a PDF, the places of its words on the pages, in reading order; () for other
            formats.
    """

    document: str
    span: Span
    text: str
    boxes: tuple[PageBox, ...] = ()


def find_marks(
    reader: Reader, path: str, span: Span | Location, file: str | os.PathLike[str] | None
) -> Marks:
    """Find where a span of a document is shown; see `lazyrag.read.marks`."""
    root = find_root(reader, path)
    text = content_text(root.content)
    start, end = checked_span(span, len(text))
    loader = _pdf_loader(reader, root)
    touched = [
        one for one in root.locations if one.kind == "page" and one.start < end and start < one.end
    ]
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
            return (
                _recognized_page(*words[number]) if number in words else opened.placed(number - 1)
            )

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
                _word_boxes(number, *words[number], own.at)
                if number in words
                else _page_boxes(opened, number, own.at)
            )
    return Marks(path, (start, end), text[start:end], tuple(boxes))


def render_page(
    reader: Reader, path: str, page: int, width: int, file: str | os.PathLike[str] | None
) -> bytes:
    """Render a page of a PDF; see `lazyrag.read.page_image`."""
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
        return (
            f"Page {number} of {path!r} was read by text recognition, which gives no places. Show"
            " the whole page."
        )
    return (
        f"The text of page {number} of {path!r} was made otherwise than PdfLoader makes it. Show"
        " the whole page."
    )


def _recognized_page(words: list[OcrWord], shape: tuple[int, ...]) -> PlacedText:
    """The text of a page read by OCR, made as for ingestion, with the numbers of its words."""

    def placed(text: str, number: int) -> PlacedText:
        return PlacedText(text, (number,) * len(text))

    return PlacedText.of(PlacedText.of(page_text(word_glyphs(words, shape, placed))).strip())


def _word_boxes(
    number: int, words: list[OcrWord], shape: tuple[int, ...], numbers: Iterable[int]
) -> list[PageBox]:
    """Boxes around words of a page read by OCR."""
    height = shape[0] / shape[1]
    found = (words[at] for at in dict.fromkeys(numbers) if at >= 0)
    return _united(
        number, height, ((one.x0, one.y0 * height, one.x1, one.y1 * height) for one in found)
    )


def _page_boxes(file: PdfFile, number: int, characters: Iterable[int]) -> list[PageBox]:
    """Boxes around characters of a page."""
    return _united(number, *file.boxes(number - 1, dict.fromkeys(characters)))


def _united(number: int, height: float, boxes: Iterable[tuple[float, ...]]) -> list[PageBox]:
    """Boxes in reading order, in widths of the page, united where they continue a line of any
    direction.
    """
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


def _continues(along: tuple[float, ...], across: tuple[float, ...]) -> bool:
    """Whether a character is beside a line: near it along the line, and level with it across.

    Args:
        along: Start and end of the line, then of the character.
        across: The same in the other direction.
    """
    (start, end, left, right) = along
    (low, high, bottom, top) = across
    near = 0.6 * max(high - low, top - bottom)
    is_level = abs(low + high - bottom - top) < 0.6 * min(high - low, top - bottom)
    return is_level and left - end < near and start - right < near
