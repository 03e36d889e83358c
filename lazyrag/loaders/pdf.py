"""PDF documents: `PdfLoader`, on pypdfium2."""

from __future__ import annotations

import ctypes
import functools
import io
import logging
import re
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pypdfium2
import pypdfium2.raw as pdfium

from lazyrag.data.progress_bar import Work
from lazyrag.data.segment import Location
from lazyrag.errors import LazyRAGError, LoadError, sentence
from lazyrag.loaders import base
from lazyrag.loaders.base import LoadedFile, check_pages, join_parts
from lazyrag.loaders.bidi import has_right_to_left
from lazyrag.loaders.ocr import Ocr, OcrWord, has_few_letters, is_garbled, word_glyphs
from lazyrag.loaders.pdf_layout import (
    letters,
    page_text,
    quarter_turns,
    turned,
    without_repeated_lines,
)
from lazyrag.loaders.pdf_lines import BLANK, Glyph, GlyphCollector, SizedLine, TypeSizes
from lazyrag.loaders.pdf_recovery import recovered
from lazyrag.loaders.pdf_streams import count_objects, too_many_objects
from lazyrag.storage.blocks import contextmanager
from lazyrag.text.structure import Heading, heading_locations
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


@known_arguments
class PdfLoader:
    """Reads the text layer of a PDF, page by page; each page is a location, and so are the sections of its outline.

    Columns are read one after the other, and rows of tables become lines with ``|`` between the cells. Spaces between
    Chinese characters, line ends inside Chinese paragraphs and hyphens at line ends are removed. Title, author,
    subject, keywords and dates become metadata; so do the pages that were not read: ``pages_without_text`` (scanned),
    ``pages_unread`` (damaged) and ``pages_by_ocr``.

    Args:
        password: For encrypted files, or several to try. The empty password is always tried.
        ocr: Recognizes the text of pages without a usable text layer, see `lazyrag.loaders.ocr.Ocr`: a function from an
            array (height, width, 3), RGB, to a text or words, such as `lazyrag.loaders.ocr.RapidOcr`.
        drop_repeated: Leave out lines that are repeated at the top or bottom of most pages, page numbers too.
        max_pages: Refuse files with more pages; None for the Document's `LoadLimits` alone.
        max_seconds: Refuse files that take longer. Checked after each page.
        max_objects: Refuse files with more strings and painted lines on a page, each of which takes memory.

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
        self._passwords = (password,) if isinstance(password, str) else validate_texts("password", password)

    def __repr__(self) -> str:
        """Arguments that differ from the default. Passwords are hidden: a repr ends up in logs."""
        shown = ["password=..."] if any(self._passwords) else []
        shown += [f"ocr={self.ocr!r}"] if self.ocr is not None else []
        shown += ["drop_repeated=True"] if self.drop_repeated else []
        return f"PdfLoader({', '.join(shown)})"

    def load(self, path: Path) -> LoadedFile:
        """Read the file.

        Args:
            path: An existing file.

        Raises:
            LoadError: If it needs another password, has no text layer, cannot be read, or exceeds a limit.
        """
        until = time.monotonic() + self.max_seconds
        check_time = functools.partial(self._check_time, 0, 0, until)
        objects = count_objects(path, self.max_objects, check_time)
        with closing(self.open(path)) as file:
            check_pages(file.count)
            if file.is_encrypted:
                with tempfile.TemporaryDirectory() as folder:
                    file.save_decrypted(decrypted := Path(folder, "decrypted.pdf"))
                    objects = count_objects(decrypted, self.max_objects, check_time)
            if objects > self.max_objects * max(1, file.count):
                raise too_many_objects(self.max_objects)
            if self.max_pages is not None and file.count > self.max_pages:
                hint = f"Split it, or allow more: PdfLoader(max_pages={file.count})."
                raise LoadError(f"The PDF has {file.count:,} pages; at most {self.max_pages:,} are read. {hint}")
            return self.load_pages(file, until)

    def load_pages(self, file: PdfFile, until: float) -> LoadedFile:
        """Read the pages of an open file, until a time of `time.monotonic`."""
        read = self._read_pages(file, until)
        if self.ocr is not None:
            self._recognize_pages(file, read)
        if not any(read.texts):
            raise file.no_text(read)
        pages = without_repeated_lines(read.texts) if self.drop_repeated else read.texts
        text, locations = join_parts(pages, [("page", str(number)) for number in range(1, len(pages) + 1)])
        headings = heading_locations(_headings(file.outline() or read.sizes.headings(), text, locations), len(text))
        sections = [section for section in headings if section.start < section.end]
        notes = {"notes": noted} if (noted := read.notes(has_ocr=self.ocr is not None)) else {}
        return LoadedFile(text, (*locations, *sections), {**file.metadata(), **read.metadata(), **notes})

    def open(self, path: Path) -> PdfFile:
        """Open the file by one of the passwords, or what is left of a damaged one."""
        passwords = ("", *self._passwords)
        try:
            try:
                return PdfFile(path, passwords)
            except pypdfium2.PdfiumError:
                found = recovered(path.read_bytes())
                with _load_errors():
                    if found is None:
                        return PdfFile(_rewritten(path, passwords), ("",))
                    return PdfFile(io.BytesIO(found[0]), ("",), lost=found[1])
        except _WrongPasswordError as exc:
            problem = "no password that PdfLoader was given opens it" if any(self._passwords) else "it needs a password"
            hint = "Give it: PdfLoader(password='...') in a reader of yours, or save the file again without one."
            raise LoadError(f"The PDF is encrypted, and {problem}. {hint}") from exc

    def _read_pages(self, file: PdfFile, until: float) -> _Pages:
        read = _Pages()
        for index in range(file.count):
            self._check_time(index, file.count, until)
            try:
                glyphs, has_drawings = file.page(index)
                lines: list[SizedLine] = []
                text = page_text(glyphs, lines)
            except LazyRAGError:
                raise
            except Exception as exc:  # noqa: BLE001  a damaged page does not cost the others
                read.texts.append("")
                read.sizes.add_page(())
                read.unread[index + 1] = f"{type(exc).__name__}: {exc}".rstrip(": ")
                continue
            read.texts.append(text)
            read.sizes.add_page(lines)
            if not text and index + 1 in file.lost:
                read.unread[index + 1] = file.lost[index + 1]
            elif not text and has_drawings:
                read.textless.append(index + 1)
            elif text and self.ocr is not None and not file.is_usable(index, text):
                read.unusable.append(index + 1)
        return read

    def _check_time(self, done: int, count: int, until: float) -> None:
        if time.monotonic() > until:
            read = f"{done} of its {count} pages were" if count else "none of its pages was"
            hint = "Split it, or allow more: PdfLoader(max_seconds=...)."
            raise LoadError(f"Reading the PDF took longer than {self.max_seconds:g} s; {read} read by then. {hint}")

    def _recognize_pages(self, file: PdfFile, read: _Pages) -> None:
        numbers = sorted(read.textless + read.unusable)
        with Work("OCR", len(numbers), "page") as work:
            for done, number in enumerate(numbers):
                work.reach(done)
                self._recognize_page(file, read, number)
        read.textless = [number for number in read.textless if number not in {*read.by_ocr, *read.unread}]

    def _recognize_page(self, file: PdfFile, read: _Pages, number: int) -> None:
        try:
            found = self.recognize(file, number)
        except TimeoutError as exc:
            read.unread[number] = str(exc)
            return
        finally:
            base.page_recognized()
        text = (found if isinstance(found, str) else page_text(word_glyphs(*found))).strip()
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
        with _load_errors():
            image = file.image(number - 1, _OCR_DOTS_PER_INCH)
        try:
            found: Any = self.ocr(image) if self.ocr is not None else ""
        except (LazyRAGError, TimeoutError):
            raise
        except Exception as exc:
            msg = sentence(f"The function ocr of PdfLoader raised {type(exc).__name__} on page {number}: {exc}")
            raise LoadError(msg) from exc
        if not isinstance(found, str) and not is_list_of(found, OcrWord):
            msg = f"The function ocr of PdfLoader returned {type(found).__name__} for page {number}; it must return a"
            raise LoadError(f"{msg} str, or a list of OcrWord.")
        return found if isinstance(found, str) else (list(found), image.shape)


@dataclass(slots=True)
class _Pages:
    """Texts of the pages, and the numbers of those that have none."""

    texts: list[str] = field(default_factory=list)
    textless: list[int] = field(default_factory=list)
    unread: dict[int, str] = field(default_factory=dict)
    by_ocr: list[int] = field(default_factory=list)
    unusable: list[int] = field(default_factory=list)
    sizes: TypeSizes = field(default_factory=TypeSizes)

    def metadata(self) -> dict[str, Any]:
        unread = {str(number): reason for number, reason in self.unread.items()}
        found = {"pages_without_text": self.textless, "pages_by_ocr": self.by_ocr, "pages_unread": unread}
        return {"pages": len(self.texts), **{name: value for name, value in found.items() if value}}

    def notes(self, *, has_ocr: bool) -> list[str]:
        """How pages without a text layer were read, and what can be done about those that were not."""
        remedy = "no text in their picture" if has_ocr else "no text layer: OCR reads them, see docs/pdf.md"
        found = ((self.by_ocr, "read by OCR"), (self.textless, remedy), (list(self.unread), "not read"))
        return [f"{_numbered(pages)}: {what}" for pages, what in found if pages]


def _no_text(read: _Pages) -> LoadError:
    if read.unread:
        number, reason = next(iter(read.unread.items()))
        pages = _numbered(list(read.unread))
        problem = f"{pages} could not be read (page {number}: {reason})"
        return LoadError(f"The PDF is damaged: {problem}, and no other holds text.")
    if not read.texts:
        return LoadError("The PDF has no pages; it is damaged, or was written wrongly. Save it again.")
    scanned = f": only pictures on {_numbered(read.textless)}" if read.textless else ""
    hint = "Call lazyrag.loaders.scans.add_ocr(docs), which reads them by text recognition (OCR)."
    return LoadError(f"The PDF has no text layer on any page{scanned}. {hint}")


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
def _load_errors() -> Iterator[None]:
    """Turn errors of the PDF libraries into LoadErrors."""
    try:
        yield
    except (LazyRAGError, _WrongPasswordError):
        raise
    except Exception as exc:
        found = f"{type(exc).__name__}: {exc}".rstrip(": \n")
        hint = "It may be damaged, or of another format."
        raise LoadError(f"PdfLoader could not read the file ({found}). {hint}") from exc


_LOCK = threading.Lock()
"""pdfium is not thread-safe, not even with one file per thread."""

_MAX_GLYPHS = 1_000_000
_MAX_PIXELS = 40_000_000
_MAX_TAGS = 100_000  # of a page
_POINTS_PER_INCH = 72

_TEXT_FIELDS = {"Title": "title", "Author": "author", "Subject": "subject", "Keywords": "keywords"}
_DATE_FIELDS = {"CreationDate": "created", "ModDate": "modified"}
_PLACEHOLDERS = frozenset(["", "untitled", "anonymous", "unspecified"])  # reportlab writes them
_DATE = re.compile(
    r"(?:D:)?(?P<year>\d{4})(?P<month>\d\d)?(?P<day>\d\d)?(?P<hour>\d\d)?(?P<minute>\d\d)?(?P<second>\d\d)?"
    r"(?:(?P<zone>[-+Z])(?:(?P<hours>\d\d)'?(?P<minutes>\d\d)?'?)?)?"
)


class _WrongPasswordError(Exception):
    """None of the passwords opens the file."""


class PdfFile:
    """An open PDF.

    Args:
        source: An existing file, or its bytes.
        passwords: Tried one after the other.
        lost: Of a recovered file what is lost of pages, by number.

    Raises:
        _WrongPasswordError: If none of them opens it.
    """

    def __init__(
        self, source: Path | io.BytesIO, passwords: Sequence[str], lost: Mapping[int, str] = MappingProxyType({})
    ) -> None:
        self.lost = lost
        with _LOCK:
            self._document = _opened(source, passwords)
            self.count = len(self._document)

    @property
    def is_encrypted(self) -> bool:
        """Whether its streams are."""
        return int(pdfium.FPDF_GetSecurityHandlerRevision(self._document.raw)) >= 0

    def save_decrypted(self, path: Path) -> None:
        """Write a copy whose streams are packed as here, and not encrypted."""
        with _LOCK:
            self._document.save(path, flags=pdfium.FPDF_REMOVE_SECURITY)

    def page(self, index: int) -> tuple[list[Glyph], bool]:
        """Characters of a page in drawing order, and, if there are none, whether it has pictures or lines."""
        with self.opened(index) as (page, text):
            glyphs = page_glyphs(PageText(page, text))
            return glyphs, all(one == BLANK for one in glyphs) and _has_drawings(page)

    @contextmanager
    def handle(self, index: int) -> Iterator[Any]:
        """Open a page, for one thread at a time."""
        with _LOCK, closing(self._document[index]) as page:
            yield page

    @contextmanager
    def opened(self, index: int) -> Iterator[tuple[Any, Any]]:
        """Open a page and its text, pdfium's own handles, for one thread at a time."""
        with self.handle(index) as page, closing(page.get_textpage()) as text:
            yield page.raw, text.raw

    def image(self, index: int, dots_per_inch: int, pixels_wide: int = 0) -> np.ndarray:
        """Render a page: (height, width, 3) uint8, RGB; coarser where the image would be huge."""
        with self.handle(index) as page:
            width, height = page.get_size()
            scale = (pixels_wide - 0.01) / width if pixels_wide else dots_per_inch / _POINTS_PER_INCH
            pixels = max(1.0, width * height * scale * scale)
            scale *= min(1.0, (_MAX_PIXELS / pixels) ** 0.5)
            with closing(page.render(scale=scale, rev_byteorder=True)) as bitmap:
                return np.array(bitmap.to_numpy()[:, :, :3])

    def metadata(self) -> dict[str, str]:
        """Title, author, subject, keywords and dates, as far as the file has them; dates as ISO 8601."""
        value = self._document.get_metadata_value
        with _LOCK:
            found = {name: value(field).strip("\x00 \t\r\n") for field, name in _TEXT_FIELDS.items()}
            found |= {name: iso_date(value(field)) for field, name in _DATE_FIELDS.items()}
        return {
            name: text.encode("utf-8", "replace").decode() for name, text in found.items() if text not in _PLACEHOLDERS
        }

    def outline(self) -> list[tuple[int, str, int]]:
        """Level from 1, title and index of the page of each entry; those without a page or a title are skipped."""
        found = []
        with _LOCK, suppress(pypdfium2.PdfiumError):  # a damaged outline costs no text
            for entry in self._document.get_toc():
                target, title = entry.get_dest(), " ".join(entry.get_title().replace("\x00", "").split())
                page = None if target is None else target.get_index()
                if title and page is not None and 0 <= page < self.count:
                    found.append((entry.level + 1, title, page))
        return found

    def is_usable(self, index: int, text: str) -> bool:
        """Whether the text layer of a page holds its words: not garbled, and not a few of them over a scan."""
        if is_garbled(text):
            return False
        if not has_few_letters(text):
            return True
        with self.opened(index) as (page, _):
            return not _is_covered(page)

    def no_text(self, read: _Pages) -> LoadError:
        """The error for a file without any text."""
        return _no_text(read)

    def close(self) -> None:
        """Close the file. The garbage collector would do it in any thread."""
        with _LOCK:
            self._document.close()


def _headings(outline: Sequence[tuple[int, str, int]], text: str, pages: Sequence[Location]) -> list[Heading]:
    """Find the entries of an outline in the text: the last lines of its page that are the title, else its page.

    The last ones, since the page may have a table of contents. An entry begins before those that follow it.
    """
    found: list[Heading] = []
    limit = len(text)
    for level, title, page in reversed(outline):
        start, end = pages[page].start, min(pages[page].end, limit)
        if start > limit:
            continue
        words = r"\s*".join(map(re.escape, title.split()))
        lines = re.compile(rf"^(?:[\dA-Z]+(?:\.\d*)*\s+)?{words}[ \t]*$", re.MULTILINE).finditer(text, start, end)
        limit = max((line.start() for line in lines), default=start)
        found.append(Heading(limit, level, title))
    return found[::-1]


def _opened(source: Path | io.BytesIO, passwords: Sequence[str]) -> Any:
    for password in passwords:
        try:
            return pypdfium2.PdfDocument(source, password=password or None)
        except pypdfium2.PdfiumError as exc:
            if getattr(exc, "err_code", None) != pdfium.FPDF_ERR_PASSWORD and "password" not in str(exc).lower():
                raise
    raise _WrongPasswordError


def _rewritten(path: Path, passwords: Sequence[str]) -> io.BytesIO:
    """A file that pdfium cannot open, rewritten by pypdf, which tolerates other flaws."""
    import pypdf  # rarely needed, and slow to import

    with _quiet(logging.getLogger("pypdf")), pypdf.PdfReader(path) as reader:
        if reader.is_encrypted and not any(reader.decrypt(one) for one in passwords):
            raise _WrongPasswordError
        target = io.BytesIO()
        pypdf.PdfWriter(clone_from=reader).write(target)
        return target


_QUIET_LOCK = threading.Lock()


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Silence a package's loggers: flaws of a file that matter are reported by our own errors."""
    with _QUIET_LOCK:
        handler, propagate = logging.NullHandler(), logger.propagate
        logger.addHandler(handler)
        logger.propagate = False
        try:
            yield
        finally:
            logger.propagate = propagate
            logger.removeHandler(handler)


def iso_date(text: str) -> str:
    """A date of a PDF as ISO 8601; "" if it is not one.

    Example:
        >>> iso_date("D:20240131093000+08'00'"), iso_date("D:2024"), iso_date("yesterday")
        ('2024-01-31T09:30:00+08:00', '2024-01-01T00:00:00', '')
    """
    found = _DATE.match(text.strip())
    if found is None:
        return ""
    part = {name: value or "" for name, value in found.groupdict().items()}
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
    across, down, height = ctypes.c_int(), ctypes.c_int(), round(_SHOWN_WIDE * shown_height(page))
    pdfium.FPDF_PageToDevice(page, 0, 0, _SHOWN_WIDE, height, 0, x, y, ctypes.byref(across), ctypes.byref(down))
    return across.value / _SHOWN_WIDE, down.value / _SHOWN_WIDE


def _has_drawings(page: Any) -> bool:
    count = max(0, int(pdfium.FPDFPage_CountObjects(page)))
    kinds = (pdfium.FPDFPageObj_GetType(pdfium.FPDFPage_GetObject(page, at)) for at in range(count))
    return any(kind != pdfium.FPDF_PAGEOBJ_TEXT for kind in kinds)


def image_objects(page: Any) -> Iterator[tuple[Any, int]]:
    """The pictures on a page of `PdfFile.handle`, in drawing order, and the numbers of their marked content."""
    for one in page.get_objects(filter=(pdfium.FPDF_PAGEOBJ_IMAGE,), max_depth=5):
        yield one, pdfium.FPDFPageObj_GetMarkedContentID(one.raw)


def alternative_texts(page: Any) -> dict[int, str]:
    """Alternative texts of the pictures on a tagged page of `PdfFile.handle`, by number of their marked content."""
    found: dict[int, str] = {}
    tree = pdfium.FPDF_StructTree_GetForPage(page.raw)
    if not tree:
        return found
    count = pdfium.FPDF_StructTree_CountChildren(tree)
    waiting = [pdfium.FPDF_StructTree_GetChildAtIndex(tree, at) for at in range(count)]
    for _ in range(_MAX_TAGS):
        if not waiting:
            break
        one = waiting.pop()
        size = pdfium.FPDF_StructElement_GetAltText(one, None, 0) if one else 0
        if size > 2:
            buffer = ctypes.create_string_buffer(size)
            pdfium.FPDF_StructElement_GetAltText(one, buffer, size)
            for at in range(pdfium.FPDF_StructElement_GetMarkedContentIdCount(one)):
                number = pdfium.FPDF_StructElement_GetMarkedContentIdAtIndex(one, at)
                found[number] = buffer.raw[: size - 2].decode("utf-16-le", "replace")
        count = pdfium.FPDF_StructElement_CountChildren(one) if one else 0
        waiting += [pdfium.FPDF_StructElement_GetChildAtIndex(one, at) for at in range(count)]
    pdfium.FPDF_StructTree_Close(tree)
    return found


_COVERED = 0.6  # of a page, by one picture


def _is_covered(page: Any) -> bool:
    """Whether a picture covers most of a page, as in scans."""
    edges = [ctypes.c_float() for _ in range(4)]
    area = pdfium.FPDF_GetPageWidthF(page) * pdfium.FPDF_GetPageHeightF(page)
    for at in range(max(0, int(pdfium.FPDFPage_CountObjects(page)))):
        one = pdfium.FPDFPage_GetObject(page, at)
        if pdfium.FPDFPageObj_GetType(one) != pdfium.FPDF_PAGEOBJ_IMAGE:
            continue
        if pdfium.FPDFPageObj_GetBounds(one, *map(ctypes.byref, edges)):
            left, bottom, right, top = (edge.value for edge in edges)
            if (right - left) * (top - bottom) >= _COVERED * area:
                return True
    return False


_WORD = re.compile(r" |[!-~]+(?: [!-~]+)+|[^\s\ufffe\x02]+|[\ufffe\x02]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_WIDEST = 1.3  # of a letter, in font sizes
_EDGE = 1.0  # points beyond the crop box that count as inside


def page_glyphs(page: PageText) -> list[Glyph]:
    """The characters of a page, without the spaces and line ends that pdfium adds.

    A word on one line, as most are, is located by its ends alone: four calls for six characters. So is an English line
    that is drawn by one operator, with its blanks.
    """
    text = page.text
    count = pdfium.FPDFText_CountChars(text)
    if count > _MAX_GLYPHS:
        raise ValueError(f"a page of {count:,} characters, where at most {_MAX_GLYPHS:,} are read")
    found: list[Glyph] = []
    content = _all_text(text, count)
    # Characters beyond the first 65,536 have indices that differ from those of UTF-16 units.
    if content is None or has_right_to_left(content):
        return page.read_characters(0, count, found)
    for stretch in _WORD.finditer(content):
        start = stretch.start()
        if " " not in stretch[0] or page.is_drawn_at_once(start, stretch[0]):
            page.read_stretch(start, stretch[0], found)
            continue
        for part in re.finditer(r" |[^ ]+", stretch[0]):
            page.read_stretch(start + part.start(), part[0], found)
    return found


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
        is_bounded = pdfium.FPDF_GetPageBoundingBox(page, ctypes.byref(bounds)) and bounds.right > bounds.left
        self._bounds = (bounds.left, bounds.bottom, bounds.right, bounds.top) if is_bounded else None
        self._box, self._matrix = pdfium.FS_RECTF(), pdfium.FS_MATRIX()
        self._across, self._up = ctypes.c_double(), ctypes.c_double()
        self._at_box, self._at_matrix = ctypes.byref(self._box), ctypes.byref(self._matrix)
        self._at_across, self._at_up = ctypes.byref(self._across), ctypes.byref(self._up)

    def letters(self, at: int, text: str) -> str:  # noqa: ARG002  a subclass notes the index
        """The letters of characters from an index on; see `lazyrag.loaders.pdf_layout.letters`."""
        return letters(text)

    def is_drawn_at_once(self, start: int, line: str) -> bool:
        """Whether one operator draws a line, with its blanks, so that there is no wide gap in it."""
        if pdfium.FPDFText_CountRects(self.text, start, len(line)) != 1:
            return False
        at = line.find(" ")
        while at >= 0:
            if pdfium.FPDFText_IsGenerated(self.text, start + at):
                return False
            at = line.find(" ", at + 1)
        return True

    def read_stretch(self, start: int, stretch: str, found: list[Glyph]) -> None:
        """Add a blank, a word or a line, as one glyph where possible."""
        if stretch == " ":
            if not pdfium.FPDFText_IsGenerated(self.text, start):
                found.append(BLANK)
        elif len(stretch) > 1 and (glyph := self._read_whole(start, stretch)):
            found.append(glyph)
        else:
            self.read_characters(start, start + len(stretch), found)

    def _read_whole(self, start: int, stretch: str) -> Glyph | None:
        """A stretch as one glyph; None if its characters have to be read one by one."""
        first, last = self.placed(start), self.placed(start + len(stretch) - 1)
        if first is None or last is None or not (self._is_shown(first[0]) and self._is_shown(last[0])):
            return None
        size, turn = self.size_and_turn(start)
        left, _, base = turned(turn, *first)
        last_left, right, last_base = turned(turn, *last)
        if abs(base - last_base) > 0.01 * size or not 0 < right - left < _WIDEST * size * len(stretch):
            return None
        read = self.letters(start, stretch)
        return Glyph(read, left, right, base, size, turn) if read and last_left >= left else None

    def _is_shown(self, box: tuple[float, float, float, float]) -> bool:
        """Whether the middle of a box is within the crop box."""
        if self._bounds is None:
            return True
        across, up = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        left, bottom, right, top = self._bounds
        return not (across < left - _EDGE or across > right + _EDGE or up < bottom - _EDGE or up > top + _EDGE)

    def read_characters(self, start: int, end: int, found: list[Glyph]) -> list[Glyph]:
        """Add the characters of a stretch, one glyph each."""
        size, turn, high = 0.0, 0, 0  # the size and turn of a text object hold for its characters
        expected: tuple[float, float] | None = None
        collected = GlyphCollector(found)
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
                if has_right_to_left(read):  # the boxes of some writers are narrower than their glyphs
                    left = min(left, turned(turn, (x, y, x, y), (x, y))[0])
                collected.add(Glyph(read, left, right, base, size, turn), (box[0], x, y))
        return collected.glyphs()

    def placed(self, at: int) -> tuple[tuple[float, float, float, float], tuple[float, float]] | None:
        """The box of a character, and where it begins on its base line."""
        if not pdfium.FPDFText_GetLooseCharBox(self.text, at, self._at_box):
            return None
        if not pdfium.FPDFText_GetCharOrigin(self.text, at, self._at_across, self._at_up):
            return None
        box = self._box
        return (box.left, box.bottom, box.right, box.top), (self._across.value, self._up.value)

    def size_and_turn(self, at: int) -> tuple[float, int]:
        """The font size of a character, and the quarter turns of its line to the left."""
        size = abs(pdfium.FPDFText_GetFontSize(self.text, at)) or 1.0
        if not pdfium.FPDFText_GetMatrix(self.text, at, self._at_matrix):
            return size, 0
        matrix = self._matrix
        scale = float((matrix.c**2 + matrix.d**2) ** 0.5)
        return size * scale or size, quarter_turns(matrix.a, matrix.b)
