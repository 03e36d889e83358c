"""PDF documents."""

from __future__ import annotations

import functools
import importlib.util
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from lazyrag.errors import ConfigError, LazyRAGError, LoadError, known_names, missing_package, sentence
from lazyrag.loaders.base import LoadedFile, check_pages, join_parts
from lazyrag.loaders.pdf_layout import NeedsPasswordError, OpensPdf, PdfFile, page_text, without_repeated_lines
from lazyrag.validation import known_arguments, text_list, whole_number, yes_or_no

if TYPE_CHECKING:
    import numpy as np


Ocr: TypeAlias = "Callable[[np.ndarray], str]"
"""Reads a picture of a page, (height, width, 3) uint8 in red, green, blue, and returns its text."""

ENGINES = ("pypdfium2", "pypdf")
"""What can read a PDF, the preferred one first."""

OCR_DOTS_PER_INCH = 200
"""How finely pages are drawn for `Ocr`."""

_MOST_PAGES_NAMED = 20
_SAID = {"Title": "title", "Author": "author", "Subject": "subject", "Keywords": "keywords"}
_DATES = {"CreationDate": "created", "ModDate": "modified"}
_SAID_OF_NOTHING = frozenset(["untitled", "anonymous", "unspecified"])  # what reportlab writes
_DATE = re.compile(
    r"(?:D:)?(?P<year>\d{4})(?P<month>\d\d)?(?P<day>\d\d)?(?P<hour>\d\d)?(?P<minute>\d\d)?(?P<second>\d\d)?"
    r"(?:(?P<zone>[-+Z])(?:(?P<hours>\d\d)'?(?P<minutes>\d\d)?'?)?)?"
)


@known_arguments
class PdfLoader:
    """Reads the text layer of a PDF, page by page; each page is a place.

    Columns are read one after the other, and rows of tables become lines with ``|`` between the cells. Blanks between
    Chinese characters, line ends inside Chinese paragraphs and hyphens at line ends are taken out again. Title, author,
    subject, keywords and dates become metadata; so does what was not read: ``pages_without_text`` (scanned ones),
    ``pages_unread`` (damaged ones) and ``pages_by_ocr``. ``pdf_engine`` says what read the file.

    Args:
        password: For encrypted files, or several to try. The empty one need not be given.
        engine: ``"pypdfium2"`` or ``"pypdf"``; None takes the first of them that is installed, and the other for a
            file that it cannot open.
        ocr: Reads the pages that have no text layer, from their pictures: a function of an array (height, width, 3),
            red, green, blue, that returns a text. It needs the extra ``pdf``.
        drop_repeated: Leave out lines that stand at the head or foot of most pages, page numbers too.
        max_pages: A file with more is refused, as is one with more than the Document's `LoadLimits` allow; None for
            those alone.
        max_seconds: A file that takes longer is refused, once the page that is being read is done.

    Raises:
        ConfigError: If an argument is out of its range.

    Example:
        >>> PdfLoader(engine="pypdf", drop_repeated=True)
        PdfLoader(engine='pypdf', drop_repeated=True)
    """

    def __init__(
        self,
        password: str | Sequence[str] = (),
        *,
        engine: str | None = None,
        ocr: Ocr | None = None,
        drop_repeated: bool = False,
        max_pages: int | None = None,
        max_seconds: float = 600.0,
    ) -> None:
        if engine is not None and engine not in ENGINES:
            msg = f"engine is {engine!r:.80}. {known_names(str(engine), ENGINES)} None takes what is installed."
            raise ConfigError(msg)
        if ocr is not None and not callable(ocr):
            msg = f"ocr is {ocr!r:.80}; give a function that takes the picture of a page and returns its text."
            raise ConfigError(msg)
        if isinstance(max_seconds, bool) or not isinstance(max_seconds, (int, float)) or not max_seconds > 0:
            msg = f"max_seconds is {max_seconds!r:.80}; give a number greater than 0."
            raise ConfigError(msg)
        self.engine = engine
        self.ocr = ocr
        self.drop_repeated = yes_or_no("drop_repeated", drop_repeated)
        self.max_pages = None if max_pages is None else whole_number("max_pages", max_pages, 1)
        self.max_seconds = float(max_seconds)
        self._passwords = (password,) if isinstance(password, str) else text_list("password", password)

    def __repr__(self) -> str:
        """The arguments that are not the default, but for passwords, which belong into no log."""
        said = {"engine": (self.engine, None), "ocr": (self.ocr, None), "drop_repeated": (self.drop_repeated, False)}
        told = [f"{name}={value!r}" for name, (value, default) in said.items() if value != default]
        return f"PdfLoader({', '.join([*['password=...'] * bool(any(self._passwords)), *told])})"

    def load(self, path: Path) -> LoadedFile:
        """Read the file.

        Args:
            path: An existing file.

        Raises:
            LoadError: If it needs another password, has no text layer, cannot be read, or goes beyond a limit.
            MissingDependencyError: If `ocr` or the engine needs the extra ``pdf``.
        """
        until = time.monotonic() + self.max_seconds
        with self._opened(path) as file:
            check_pages(file.count)
            if self.max_pages is not None and file.count > self.max_pages:
                msg = (
                    f"The PDF has {file.count:,} pages; at most {self.max_pages:,} are read. Split it, or allow more: "
                    f"PdfLoader(max_pages={file.count})."
                )
                raise LoadError(msg)
            read = self._pages(file, until)
            said = _metadata(file.information())
            name = file.name
        if self.ocr is not None and read.textless:
            self._recognise(path, read, until)
        if not any(read.texts):
            raise _nothing_read(read)
        pages = without_repeated_lines(read.texts) if self.drop_repeated else read.texts
        text, places = join_parts(pages, [("page", str(number)) for number in range(1, len(pages) + 1)])
        return LoadedFile(text, places, {**said, **read.told(), "pdf_engine": name})

    def _pages(self, file: PdfFile, until: float) -> _Pages:
        read = _Pages()
        for index in range(file.count):
            self._check_time(index, file.count, until)
            try:
                content = file.page(index)
                text = page_text(content)
            except LazyRAGError:
                raise
            except Exception as exc:  # noqa: BLE001  a damaged page takes no other with it, and is told of
                read.texts.append("")
                read.unread[index + 1] = exc
                continue
            read.texts.append(text)
            if not text and content.drawn:
                read.textless.append(index + 1)
        return read

    def _check_time(self, done: int, count: int, until: float) -> None:
        if time.monotonic() > until:
            msg = (
                f"Reading the PDF took longer than {self.max_seconds:g} s; {done} of its {count} pages were read by "
                "then. Split it, or allow more: PdfLoader(max_seconds=...)."
            )
            raise LoadError(msg)

    def _recognise(self, path: Path, read: _Pages, until: float) -> None:
        """Have pages without a text layer read from their pictures."""
        pdfium_file = _engine("pypdfium2", "PdfLoader(ocr=...)")
        with _reported("pypdfium2"):
            file: Any = pdfium_file(path, self._passwords)
        try:
            for number in list(read.textless):
                self._check_time(number - 1, len(read.texts), until)
                with _reported("pypdfium2"):
                    image = file.image(number - 1, OCR_DOTS_PER_INCH)
                text = self._recognised(image, number)
                if text.strip():
                    read.texts[number - 1] = text.strip()
                    read.textless.remove(number)
                    read.by_ocr.append(number)
        finally:
            file.close()

    def _recognised(self, image: np.ndarray, number: int) -> str:
        try:
            text = self.ocr(image) if self.ocr is not None else ""
        except Exception as exc:
            msg = f"{sentence(f'The function ocr of PdfLoader raised {type(exc).__name__} on page {number}: {exc}')}"
            raise LoadError(msg) from exc
        if not isinstance(text, str):
            msg = f"The function ocr of PdfLoader returned {type(text).__name__} for page {number}; it returns a str."
            raise LoadError(msg)
        return text

    @contextmanager
    def _opened(self, path: Path) -> Iterator[PdfFile]:
        file = self._open(path)
        try:
            yield file
        finally:
            file.close()

    def _open(self, path: Path) -> PdfFile:
        if self.engine is not None:
            with _reported(self.engine):
                return self._opened_by(self.engine, path)
        installed = [name for name in ENGINES if is_installed(name)]
        try:
            return self._opened_by(installed[0], path)
        except NeedsPasswordError as exc:
            raise self._needs_password() from exc
        except LazyRAGError:
            raise
        except Exception as exc:
            if len(installed) == 1:
                raise _unreadable(installed[0], exc) from exc
        with _reported(installed[1]):
            return self._opened_by(installed[1], path)

    def _opened_by(self, engine: str, path: Path) -> PdfFile:
        try:
            return _engine(engine, f"PdfLoader(engine={engine!r})")(path, self._passwords)
        except NeedsPasswordError as exc:
            raise self._needs_password() from exc

    def _needs_password(self) -> LoadError:
        if not any(self._passwords):
            msg = (
                "The PDF is encrypted and needs a password. Give it: PdfLoader(password='...') in a reader of yours, "
                "or save it again without one."
            )
        else:
            msg = (
                "The PDF is encrypted, and no password that PdfLoader was given opens it. Give the right one: "
                "PdfLoader(password='...'), or save the file again without one."
            )
        return LoadError(msg)


@dataclass(slots=True)
class _Pages:
    """What became of the pages."""

    texts: list[str] = field(default_factory=list)
    textless: list[int] = field(default_factory=list)
    unread: dict[int, Exception] = field(default_factory=dict)
    by_ocr: list[int] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        """For the metadata."""
        unread = {str(number): f"{type(exc).__name__}: {exc}".rstrip(": ") for number, exc in self.unread.items()}
        found = {"pages_without_text": self.textless, "pages_by_ocr": self.by_ocr, "pages_unread": unread}
        return {"pages": len(self.texts), **{name: value for name, value in found.items() if value}}


def _nothing_read(read: _Pages) -> LoadError:
    if read.unread:
        number, exc = next(iter(read.unread.items()))
        why = f"{type(exc).__name__}: {exc}".rstrip(": ")
        pages = _numbered(list(read.unread))
        msg = f"The PDF is damaged: {pages} could not be read (page {number}: {why}), and no other holds text."
        return LoadError(msg)
    if not read.texts:
        return LoadError("The PDF has no pages; it is damaged, or was written wrongly. Save it again.")
    scanned = f": only pictures on {_numbered(read.textless)}" if read.textless else ""
    msg = (
        f"The PDF has no text layer on any page{scanned}; they need text recognition first, or a function that does "
        "it: PdfLoader(ocr=...)."
    )
    return LoadError(msg)


def _numbered(numbers: Sequence[int]) -> str:
    """Pages by their numbers, not too many of them.

    Example:
        >>> _numbered([3]), _numbered([1, 2, 5])
        ('page 3', 'pages 1, 2, 5')
    """
    listed = ", ".join(map(str, numbers[:_MOST_PAGES_NAMED]))
    more = f" and {len(numbers) - _MOST_PAGES_NAMED} more" if len(numbers) > _MOST_PAGES_NAMED else ""
    return f"page{'s' * (len(numbers) > 1)} {listed}{more}"


@functools.cache
def is_installed(engine: str) -> bool:
    """Whether an engine of `ENGINES` can be imported; found out once."""
    return importlib.util.find_spec(engine) is not None


def _engine(name: str, wanted_by: str) -> OpensPdf:
    """What opens files, imported when first needed: both take a tenth of a second."""
    try:
        if name == "pypdfium2":
            from lazyrag.loaders.pdf_pdfium import PdfiumFile

            return PdfiumFile
        from lazyrag.loaders.pdf_pypdf import PypdfFile
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] == "lazyrag":
            raise
        raise missing_package(wanted_by, exc, "pdf") from exc
    return PypdfFile


@contextmanager
def _reported(engine: str) -> Iterator[None]:
    """Make a LoadError of whatever an engine raises."""
    try:
        yield
    except LazyRAGError:
        raise
    except Exception as exc:
        raise _unreadable(engine, exc) from exc


def _unreadable(engine: str, exc: Exception) -> LoadError:
    told = f"{type(exc).__name__}: {exc}".rstrip(": \n")
    if type(exc).__name__ == "DependencyError":
        why = sentence(f"The PDF is encrypted: {exc}")
        return LoadError(f'{why} Install what reads it with: pip install "lazyrag[pdf]"')
    msg = (
        f"PdfLoader could not read the file ({engine}: {told}). "
        "It may be damaged, or be of another format than its suffix says."
    )
    return LoadError(msg)


def _metadata(information: Mapping[str, str]) -> dict[str, str]:
    """What a file says of itself, under our names; dates as ISO 8601."""
    found = {_SAID[name]: value.strip("\x00 \t\r\n") for name, value in information.items() if name in _SAID}
    dates = {_DATES[name]: iso_date(value) for name, value in information.items() if name in _DATES}
    return {
        name: value.encode("utf-8", "replace").decode("utf-8")
        for name, value in {**found, **dates}.items()
        if value and value not in _SAID_OF_NOTHING
    }


def iso_date(text: str) -> str:
    """A date of a PDF in ISO 8601; "" if it is none.

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
