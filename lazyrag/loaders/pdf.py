"""PDF documents: `PdfLoader`, whose pages a child process reads."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lazyrag.data.segment import Location
from lazyrag.errors import LazyRAGError, LoaderEndedError, LoadError, sentence
from lazyrag.loaders import base
from lazyrag.loaders.archives import load_member, member_folder, with_attachments
from lazyrag.loaders.base import (
    DEFAULT_LIMITS,
    LoadedFile,
    LoadLimits,
    check_pages,
    joined_file,
    reading,
)
from lazyrag.loaders.hidden import unmarked
from lazyrag.loaders.ocr import Ocr, OcrWord, is_garbled, is_unreadable, word_glyphs
from lazyrag.loaders.pdf_layout import page_text, without_repeated_lines
from lazyrag.loaders.pdf_lines import PlacedText
from lazyrag.loaders.process import borrow, give_back
from lazyrag.progress.blocks import contextmanager
from lazyrag.progress.calls import ProgressTask
from lazyrag.text.structure import Heading, heading_locations
from lazyrag.types import JsonObject
from lazyrag.validation import (
    is_list_of,
    known_arguments,
    require,
    validate_boolean,
    validate_integer,
    validate_seconds,
    validate_texts,
)

_OCR_DOTS_PER_INCH = 200
_MAX_PAGES_NAMED = 20
_UNREADABLE = "its fonts do not say which letters they draw"


@known_arguments
class PdfLoader:
    """Reads the text layer of a PDF, page by page; each page is a location, and so are the sections
    of its outline.

    Columns are read one after the other, and rows of tables become lines with ``|`` between the
    cells. Spaces between Chinese characters, line ends inside Chinese paragraphs and hyphens at
    line ends are removed. Title, author, subject, keywords and dates become metadata; so do the
    pages that were not read: ``pages_without_text`` (scanned), ``pages_unread`` (damaged) and
    ``pages_by_ocr``. Embedded files follow as those of a mail, as places of kind ``attachment``.

    Args:
        password: For encrypted files, or several to try. The empty password is always tried.
        ocr: Recognizes the text of pages without a usable text layer, see
            `lazyrag.loaders.ocr.Ocr`: a function from an array (height, width, 3), RGB, to a text
            or words, such as `lazyrag.loaders.ocr.RapidOcr`.
        drop_repeated: Leave out lines that are repeated at the top or bottom of most pages, page
            numbers too.
        max_pages: Refuse files with more pages; None for the Document's `LoadLimits` alone.
        max_seconds: Refuse files that take longer. Checked after each page.
        max_objects: Refuse files with more strings and painted lines on a page, each of which takes
            memory.

    Raises:
        ConfigError: If an argument is out of its range.

    Example:
        >>> PdfLoader(drop_repeated=True)
        PdfLoader(drop_repeated=True)
    """

    def __init__(
        self,
        password: str | Sequence[str] = (),
        *,
        ocr: Ocr | None = None,
        drop_repeated: bool = False,
        max_pages: int | None = None,
        max_seconds: float = 600.0,
        max_objects: int = 600_000,
    ) -> None:
        require(ocr is None or callable(ocr), "ocr", ocr, "a function from an image to a text")
        self.ocr = ocr
        self.drop_repeated = validate_boolean("drop_repeated", drop_repeated)
        self.max_pages = None if max_pages is None else validate_integer("max_pages", max_pages, 1)
        self.max_seconds = validate_seconds("max_seconds", max_seconds)
        self.max_objects = validate_integer("max_objects", max_objects, 1)
        self._passwords = (
            (password,) if isinstance(password, str) else validate_texts("password", password)
        )

    def __repr__(self) -> str:
        """Arguments that differ from the default. Passwords are hidden: a repr ends up in logs."""
        arguments = ["password=..."] if any(self._passwords) else []
        arguments += [f"ocr={self.ocr!r}"] if self.ocr is not None else []
        arguments += ["drop_repeated=True"] if self.drop_repeated else []
        return f"PdfLoader({', '.join(arguments)})"

    def load(self, path: Path) -> LoadedFile:
        """Read the file.

        Args:
            path: An existing file.

        Raises:
            LoadError: If it needs another password, has no text layer, cannot be read, or exceeds a
                limit.
        """
        with closing(self.open(path)) as file:
            check_pages(file.count)
            if self.max_pages is not None and file.count > self.max_pages:
                hint = f"Split it, or allow more: PdfLoader(max_pages={file.count})."
                raise LoadError(
                    f"The PDF has {file.count:,} pages; at most {self.max_pages:,} are read. {hint}"
                )
            return _with_attachments(self.load_pages(file), file)

    def load_pages(self, file: PdfFile) -> LoadedFile:
        """Read the pages of an open file."""
        read = file.read(has_ocr=self.ocr is not None)
        if self.ocr is not None:
            self._recognize_pages(file, read)
        read.drop_unreadable()
        if not any(read.texts):
            raise file.no_text(read)
        pages = without_repeated_lines(read.texts) if self.drop_repeated else read.texts
        joined = joined_file(
            (LoadedFile(page), "page", str(number)) for number, page in enumerate(pages, start=1)
        )
        outline = _headings(read.outline, joined.text, joined.locations)
        headings = heading_locations(outline, len(joined.text))
        sections = [section for section in headings if section.start < section.end]
        notes = {"notes": noted} if (noted := read.notes(has_ocr=self.ocr is not None)) else {}
        metadata = {**read.file_metadata, **read.metadata(), **notes}
        return unmarked(LoadedFile(joined.text, (*joined.locations, *sections), metadata))

    def open(self, path: Path, max_seconds: float = 0.0) -> PdfFile:
        """Open the file by one of the passwords, or what is left of a damaged one.

        Args:
            path: An existing file.
            max_seconds: Time for reading it; 0 for that of the loader.
        """
        return PdfFile(
            path, ("", *self._passwords), self.max_objects, max_seconds or self.max_seconds
        )

    def _recognize_pages(self, file: PdfFile, read: Pages) -> None:
        numbers = sorted(read.textless + read.unusable)
        with ProgressTask("OCR", len(numbers), "page") as work:
            for done, number in enumerate(numbers):
                work.reach(done)
                self._recognize_page(file, read, number)
        read.textless = [
            number for number in read.textless if number not in {*read.by_ocr, *read.unread}
        ]

    def _recognize_page(self, file: PdfFile, read: Pages, number: int) -> None:
        try:
            result = self.recognize(file, number)
        except TimeoutError as exc:
            read.unread[number] = str(exc)
            return
        finally:
            base.page_recognized()
        text = (result if isinstance(result, str) else page_text(word_glyphs(*result))).strip()
        before = read.texts[number - 1]
        if text and (is_garbled(before) or len(text) > len(before)):
            read.texts[number - 1] = text
            read.by_ocr.append(number)

    def recognize(self, file: PdfFile, number: int) -> str | tuple[list[OcrWord], tuple[int, ...]]:
        """Recognize a page: its text, or its words and the shape of the image.

        Raises:
            LoadError: If the OCR fails.
            TimeoutError: If it takes too long.
        """
        with load_errors():
            image = file.image(number - 1, _OCR_DOTS_PER_INCH)
        try:
            result: Any = self.ocr(image) if self.ocr is not None else ""
        except (LazyRAGError, TimeoutError):
            raise
        except Exception as exc:
            raise LoadError(
                sentence(
                    f"The function ocr of PdfLoader raised {type(exc).__name__} on page {number}:"
                    f" {exc}"
                )
            ) from exc
        if not isinstance(result, str) and not is_list_of(result, OcrWord):
            msg = (
                f"The function ocr of PdfLoader returned {type(result).__name__} for page {number};"
                " it must return a"
            )
            raise LoadError(f"{msg} str, or a list of OcrWord.")
        return result if isinstance(result, str) else (list(result), image.shape)


@dataclass(slots=True)
class Pages:
    """Texts of the pages, the numbers of those that have none, and the outline and metadata of the
    file.
    """

    texts: list[str] = field(default_factory=list)
    textless: list[int] = field(default_factory=list)
    unread: dict[int, str] = field(default_factory=dict)
    by_ocr: list[int] = field(default_factory=list)
    unusable: list[int] = field(default_factory=list)
    outline: Sequence[tuple[int, str, int]] = ()
    file_metadata: dict[str, str] = field(default_factory=dict)

    def drop_unreadable(self) -> None:
        """Leave out texts whose characters have no meaning."""
        for number, text in enumerate(self.texts, start=1):
            if is_unreadable(text):
                self.texts[number - 1] = ""
                self.unread[number] = _UNREADABLE

    def metadata(self) -> JsonObject:
        """The numbers of pages, as metadata of the document."""
        unread = {str(number): reason for number, reason in self.unread.items()}
        lists = {
            "pages_without_text": self.textless,
            "pages_by_ocr": self.by_ocr,
            "pages_unread": unread,
        }
        return {"pages": len(self.texts), **{name: value for name, value in lists.items() if value}}

    def notes(self, *, has_ocr: bool) -> list[str]:
        """How pages without a text layer were read, and what can be done about those that were
        not.
        """
        remedy = "no text layer: OCR reads them, see docs/pdf.md"
        if has_ocr:
            remedy = "no text in their picture"
        groups = (
            (self.by_ocr, "read by OCR"),
            (self.textless, remedy),
            (list(self.unread), "not read"),
        )
        return [f"{_numbered(pages)}: {state}" for pages, state in groups if pages]


def _numbered(numbers: Sequence[int]) -> str:
    """Name pages by their numbers, up to a bound.

    Example:
        >>> _numbered([3]), _numbered([1, 2, 5])
        ('page 3', 'pages 1, 2, 5')
    """
    listed = ", ".join(map(str, numbers[:_MAX_PAGES_NAMED]))
    more = f" and {len(numbers) - _MAX_PAGES_NAMED} more" if len(numbers) > _MAX_PAGES_NAMED else ""
    return f"page{'s' * (len(numbers) > 1)} {listed}{more}"


@contextmanager
def load_errors() -> Iterator[None]:
    """Turn errors of the PDF libraries into LoadErrors."""
    try:
        yield
    except LazyRAGError:
        raise
    except Exception as exc:
        described = f"{type(exc).__name__}: {exc}".rstrip(": \n")
        hint = "It may be damaged, or of another format."
        raise LoadError(f"PdfLoader could not read the file ({described}). {hint}") from exc


_PAGES = "lazyrag.loaders.pdf_pages:OpenPdf"
_MEMORY = 240 << 20
_ANSWER_S = 1.0  # after max_seconds: the process says by itself that a file took longer
_MEMORY_PER_BYTE = 64
"""Bytes for reading a small file, and for each byte of one, unless the Document has other
limits."""
_CPU_SHARE = 7 / 600  # of the seconds of a file, for each MB: time of the processor for its text
_RENDERED = 768 << 20  # more for a picture of a page


class PdfFile:
    """A PDF that a child process has open, see `lazyrag.loaders.pdf_pages.OpenPdf`.

    Args:
        path: An existing file.
        passwords: Tried one after the other.
        max_objects: Most strings and lines of a page.
        max_seconds: Time for reading it.

    Raises:
        LoadError: If it cannot be opened.
    """

    def __init__(
        self, path: Path, passwords: Sequence[str], max_objects: int, max_seconds: float
    ) -> None:
        size = path.stat().st_size
        self._cpu_s = max_seconds * _CPU_SHARE * max(1.0, size / 1e6)
        self._limits = _limits_of(size, max_seconds)
        self._process = borrow(_PAGES)
        try:
            self.count = self._call(
                "open",
                os.path.abspath(path),  # noqa: PTH100
                [*passwords],
                max_objects,
                max_seconds,
            )
        except BaseException:
            self.close()
            raise

    def _call(self, method: str, *args: Any, limits: LoadLimits | None = None) -> Any:
        return self._process.call(method, *args, limits=limits or self._limits)

    def read(self, *, has_ocr: bool) -> Pages:
        """Read the text layer of all pages."""
        pages = Pages(**self._process.call("read", has_ocr, limits=self._limits, cpu_s=self._cpu_s))
        pages.unread = dict(pages.unread)
        return pages

    def layers(self) -> set[bool]:
        """Whether pages have a text layer, see `lazyrag.loaders.pdf_pages.OpenPdf.layers`."""
        return set(self._call("layers"))

    def image(self, index: int, dots_per_inch: int, pixels_wide: int = 0) -> np.ndarray:
        """Render a page: (height, width, 3) uint8, RGB; coarser where the image would be huge."""
        most = self._limits.memory_bytes
        limits = replace(self._limits, memory_bytes=most and most + _RENDERED)
        image: np.ndarray = np.load(
            io.BytesIO(self._call("image", index, dots_per_inch, pixels_wide, limits=limits))
        )
        return image

    def placed(self, index: int) -> PlacedText:
        """The text of a page, made as for ingestion, with the characters of the page."""
        text, at = self._call("placed", index)
        return PlacedText(text, tuple(at))

    def boxes(self, index: int, characters: Iterable[int]) -> tuple[float, list[tuple[float, ...]]]:
        """The height of a page, and boxes of characters; see
        `lazyrag.loaders.pdf_pages.OpenPdf.boxes`.
        """
        height, boxes = self._call("boxes", index, [*characters])
        return height, boxes

    def pictures(self, index: int) -> list[tuple[Any, ...]]:
        """The pictures of a page, see `lazyrag.loaders.pdf_pages.OpenPdf.pictures`."""
        pictures: list[tuple[Any, ...]] = self._call("pictures", index)
        return pictures

    def picture(self, index: int, number: int) -> bytes:
        """A picture of a page as a file."""
        data: bytes = self._call("picture", index, number)
        return data

    def no_text(self, read: Pages) -> LoadError:
        """The error for a file without any text."""
        remedy = (
            "Call lazyrag.loaders.scans.add_ocr(docs), which reads {} by text recognition (OCR)."
        )
        if read.unread and set(read.unread.values()) == {_UNREADABLE}:
            pages = _numbered(list(read.unread))
            problem = f"The text layer of {pages} of the PDF is garbled: {_UNREADABLE}."
            return LoadError(f"{problem} {remedy.format('it')}")
        if read.unread:
            number, reason = next(iter(read.unread.items()))
            pages = _numbered(list(read.unread))
            problem = f"{pages} could not be read (page {number}: {reason})"
            return LoadError(f"The PDF is damaged: {problem}, and no other holds text.")
        if not read.texts:
            return LoadError(
                "The PDF has no pages; it is damaged, or was written wrongly. Save it again."
            )
        scanned = f": only pictures on {_numbered(read.textless)}" if read.textless else ""
        problem = f"The PDF has no text layer on any page{scanned}."
        return LoadError(f"{problem} {remedy.format('them')}")

    def attachments(self) -> list[str]:
        """The names of the embedded files."""
        names: list[str] = self._call("attachments")
        return names

    def attachment(self, index: int) -> bytes:
        """An embedded file."""
        data: bytes = self._call("attachment", index)
        reading().count_unpacked(len(data), "PDF")
        return data

    def close(self) -> None:
        """Close the file, and keep the process for others."""
        if self._process.is_alive:
            with suppress(LoaderEndedError):
                self._process.call("close")
        give_back(self._process)


def _with_attachments(loaded: LoadedFile, file: PdfFile) -> LoadedFile:
    """A file with the files that are embedded in it, as those of a mail."""
    names = file.attachments()
    if not names:
        return loaded
    with member_folder() as folder:
        files = [
            (name, partial(load_member, folder, name, map(file.attachment, [index])))
            for index, name in enumerate(names)
        ]
        joined = with_attachments(loaded.text, loaded.metadata, files)
    places = (*loaded.locations, *joined.locations)
    return replace(joined, locations=places, tables=(*loaded.tables, *joined.tables))


def _limits_of(size: int, max_seconds: float) -> LoadLimits:
    """The limits of a file of so many bytes; by default its size decides."""
    limits = reading().limits
    if limits.memory_bytes == DEFAULT_LIMITS.memory_bytes:
        limits = replace(
            limits, memory_bytes=min(limits.memory_bytes or 0, _MEMORY + _MEMORY_PER_BYTE * size)
        )
    if limits.time_s != DEFAULT_LIMITS.time_s:
        return limits
    return replace(limits, time_s=max_seconds + _ANSWER_S)


def _headings(
    outline: Sequence[tuple[int, str, int]], text: str, pages: Sequence[Location]
) -> list[Heading]:
    """Find the entries of an outline in the text: the last lines of its page that are the title,
    else its page.

    The last ones, since the page may have a table of contents. An entry begins before those that
    follow it.
    """
    headings = []
    limit = len(text)
    for level, title, page in reversed(outline):
        start = pages[page].start
        end = min(pages[page].end, limit)
        if start > limit:
            continue
        words = r"\s*".join(map(re.escape, title.split()))
        lines = re.compile(rf"^(?:[\dA-Z]+(?:\.\d*)*\s+)?{words}[ \t]*$", re.MULTILINE).finditer(
            text, start, end
        )
        limit = max((line.start() for line in lines), default=start)
        headings.append(Heading(limit, level, title))
    return headings[::-1]
