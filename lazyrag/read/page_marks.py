"""Marks: where the words of a span are on the pages of a PDF, and images of its pages."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from lazyrag.data.pictures import write_png
from lazyrag.data.segment import Location, Segment, Span, content_text
from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders.ocr import OcrWord, word_glyphs
from lazyrag.loaders.pdf import PdfFile, PdfLoader
from lazyrag.loaders.pdf_layout import page_text, without_repeated_lines
from lazyrag.loaders.pdf_lines import PlacedText
from lazyrag.read.catalogue import checked_span, find_root
from lazyrag.read.scope import Collection, Reader, reader_of
from lazyrag.types import PathLike
from lazyrag.validation import known_keywords, validate_integer

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


@known_keywords
def marks(
    docs: Collection,
    path: str,
    span: Span | Location,
    *,
    file: PathLike | None = None,
) -> Marks:
    """Find where a span of a document's text is shown: for highlighting a hit or a citation.

    For a PDF, the result has boxes around exactly the characters of the span, line by line.
    Nothing is stored for it: the file is read again. For other formats, and for files in
    archives and mails, it is the range in the document's text, which is what a program can show
    of them: the text of its root node.

    Args:
        docs: The Document.
        path: The document's path relative to the dataset, or its id.
        span: Start and end in the document's text, such as `DocNode.span` of a node whose
            source is the root node; or one of `DocNode.locations`.
        file: The document's file, where this program does not know it: it was added by
            `add_files` in another one.

    Raises:
        ConfigError: If there is no such document here, the span is not in it, or its file is
            not known.
        LoadError: If the file is gone or has changed since it was ingested, or a page has no
            places of words.

    Example:
        >>> from lazyrag import Document
        >>> from lazyrag.read import marks
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea": "Green tea is not roasted."})
        >>> marks(docs, "tea", (6, 9)).text
        'tea'
    """
    reader = reader_of(docs)
    root = find_root(reader, path)
    text = content_text(root.content)
    start, end = checked_span(span, len(text))
    loader = _pdf_loader(reader, root)
    touched = [
        location
        for location in root.locations
        if location.kind == "page"
        and location.start < end
        and start < location.end
        and " > " not in location.label  # a page of an embedded file
    ]
    if loader is None or not touched:
        return Marks(path, (start, end), text[start:end])
    boxes = []
    with closing(loader.open(reader.unchanged_file(path, file))) as opened:
        # repeated lines can only be told by the other pages
        every_page = range(1, opened.count + 1)
        pages = _PageTexts(loader, opened, root.metadata.get("pages_by_ocr", ()))
        placed = pages.place(every_page if loader.drop_repeated else map(_page_number, touched))
        for location in touched:
            number = _page_number(location)
            if placed[number] != text[location.start : location.end]:
                raise LoadError(_other_text(path, number, root))
            first = max(0, start - location.start)
            characters = placed[number][first : max(0, end - location.start)]
            boxes += pages.boxes(number, characters.at)
    return Marks(path, (start, end), text[start:end], tuple(boxes))


def _page_number(location: Location) -> int:
    return int(location.label)


class _PageTexts:
    """The texts of pages as ingestion makes them, with the places of their characters.

    Args:
        loader: The loader that read the document.
        opened: The open file.
        recognized: Numbers of the pages that were read by OCR.
    """

    def __init__(self, loader: PdfLoader, opened: PdfFile, recognized: Iterable[int]) -> None:
        self._loader = loader
        self._opened = opened
        self._recognized = set(recognized)
        self._words: dict[int, tuple[list[OcrWord], tuple[int, ...]]] = {}

    def place(self, numbers: Iterable[int]) -> dict[int, PlacedText]:
        """The texts of pages by number; all pages where repeated lines are dropped."""
        placed = {number: self._place_page(number) for number in numbers}
        if self._loader.drop_repeated:
            texts = without_repeated_lines(list(placed.values()))
            placed = dict(zip(placed, map(PlacedText.of, texts), strict=True))
        return placed

    def _place_page(self, number: int) -> PlacedText:
        if number not in self._recognized:
            return self._opened.placed(number - 1)
        words = self._loader.recognize(self._opened, number)
        self._words[number] = ([], (1, 1)) if isinstance(words, str) else words
        return _recognized_page(*self._words[number])

    def boxes(self, number: int, characters: Iterable[int]) -> list[PageBox]:
        """Boxes around characters of a placed page."""
        if number in self._words:
            return _word_boxes(number, *self._words[number], characters)
        height, boxes = self._opened.boxes(number - 1, dict.fromkeys(characters))
        return _united(number, height, boxes)


@known_keywords
def page_image(
    docs: Collection,
    path: str,
    page: int,
    *,
    width: int = 1000,
    file: PathLike | None = None,
) -> bytes:
    """Render a page of a PDF as PNG, on which the boxes of `marks` fit.

    Args:
        docs: The Document.
        path: The document's path relative to the dataset, or its id.
        page: Number of the page, from 1.
        width: In pixels, at most 10,000; less for a page of more than 40 megapixels.
        file: As for `marks`.

    Raises:
        ConfigError: If there is no such document or page here, or it is not a PDF.
        LoadError: If the file is gone, or has changed since it was ingested.
    """
    reader = reader_of(docs)
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
    _, loader = reader.indexer.engine.loading.loader_of(root.path, root.metadata)
    if isinstance(loader, type) and issubclass(loader, PdfLoader):
        return loader()
    return loader if isinstance(loader, PdfLoader) else None


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
    marked = (words[at] for at in dict.fromkeys(numbers) if at >= 0)
    return _united(
        number, height, ((word.x0, word.y0 * height, word.x1, word.y1 * height) for word in marked)
    )


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
    united = []
    for x0, y0, x1, y1 in lines:
        edges = np.clip((x0, y0 / height, x1, y1 / height), 0.0, 1.0)
        united.append(PageBox(number, *edges.tolist()))
    return united


def _continues(along: tuple[float, ...], across: tuple[float, ...]) -> bool:
    """Whether a character is beside a line: near it along the line, and level with it across.

    Args:
        along: Start and end of the line, then of the character.
        across: The same in the other direction.
    """
    start, end, left, right = along
    low, high, bottom, top = across
    near = 0.6 * max(high - low, top - bottom)
    is_level = abs(low + high - bottom - top) < 0.6 * min(high - low, top - bottom)
    return is_level and left - end < near and start - right < near
