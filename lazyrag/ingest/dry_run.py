"""The format report of a plan: how files would be read, from their names and beginnings, before any
of them is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from lazyrag.errors import LoadError, MissingDependencyError, NoReaderError
from lazyrag.loaders.base import Reading, find_reader, loaders
from lazyrag.loaders.media import SUFFIXES, without_reader

if TYPE_CHECKING:
    from lazyrag.ingest.load_files import Loading
    from lazyrag.loaders.directory import FoundFile
    from lazyrag.loaders.pdf import PdfLoader

How: TypeAlias = Literal[
    "text",
    "text layer",
    "ocr",
    "program",
    "media reader",
    "own reader",
    "unknown until read",
    "not readable",
    "skipped",
]
"""Ways to read a file."""

CALLED: tuple[How, ...] = ("ocr", "program", "media reader", "own reader")
"""What a plan does not load: it is slow, or costs money."""

_LOOK_S = 2.0  # at one PDF
_INSIDE = dict.fromkeys(
    ("EmlLoader", "MboxLoader", "MsgLoader"), "files inside are unknown until read"
)
_MEDIA = frozenset(itertools.chain.from_iterable(SUFFIXES.values()))
_ORDER = get_args(How)


@dataclass(frozen=True, slots=True)
class PlannedFormat:
    """Files of one kind that a sync would read in the same way.

    Args:
        kind: Their suffix, such as ``".pdf"``; "" for files without one.
        how: ``"text"``: the text of the file; ``"text layer"``: of a PDF, judged by three of its
            pages; ``"ocr"``; ``"program"``: through an outside program; ``"media reader"``: by a
            registered function; ``"own reader"``: of `Document.add_reader` or a registered loader;
            ``"unknown until read"``; ``"not readable"``: the file would fail; ``"skipped"``:
            hidden, excluded, empty, or of a kind that nothing reads.
        files: Their number.
        bytes: Their size; 0 for files that are skipped by name.
        why: What reads them, what is unknown, or why they are not read; "" if there is no more to
            say.
    """

    kind: str
    how: How
    files: int
    bytes: int
    why: str = ""

    def __str__(self) -> str:
        why = f" ({self.why})" if self.why else ""
        return (
            f"{self.kind or 'no suffix'}: {self.files} files, {self.bytes:,} bytes: {self.how}{why}"
        )


def plan_formats(loading: Loading, files: Iterable[FoundFile]) -> dict[str, PlannedFormat]:
    """Say how files would be read, by identity."""
    return {file.identity: _planned(loading, file) for file in files}


def merge_formats(
    formats: Iterable[PlannedFormat], skipped: Iterable[tuple[str, str]] = ()
) -> tuple[PlannedFormat, ...]:
    """Sum what has the same kind, way and reason; what is read comes first.

    Args:
        formats: Of files, or sums of them; sums of what is skipped by name are left out.
        skipped: Pairs (path, reason) of files and folders that no sync reads.
    """
    by_file = (planned for planned in formats if planned.bytes or planned.how != "skipped")
    by_name = (PlannedFormat(_kind(path), "skipped", 1, 0, reason) for path, reason in skipped)
    sums: dict[tuple[int, str, str], PlannedFormat] = {}
    for planned in itertools.chain(by_file, by_name):
        key = _ORDER.index(planned.how), planned.kind, planned.why
        total = sums.get(key)
        if total is None:
            sums[key] = planned
        else:
            files = total.files + planned.files
            sums[key] = replace(total, files=files, bytes=total.bytes + planned.bytes)
    return tuple(sums[key] for key in sorted(sums))


def with_error(planned: PlannedFormat, error: Exception) -> PlannedFormat:
    """A file that was loaded, and could not be read."""
    if isinstance(error, NoReaderError):
        return replace(planned, how="skipped", why=error.reason)
    is_known = planned.how == "not readable" and planned.why
    return replace(planned, how="not readable", why=is_known or str(error).partition(". ")[0])


def _kind(path: str) -> str:
    return Path(path).suffix.lower()


def _planned(loading: Loading, file: FoundFile) -> PlannedFormat:
    path = file.path
    most = loading.limits.bytes
    planned = PlannedFormat(_kind(path.name), "not readable", 1, 0)
    try:
        planned = replace(planned, bytes=path.stat().st_size)
        if most is not None and planned.bytes > most:
            return replace(planned, why=f"larger than {most:,} bytes")
        how, why = _way(loading, file, path)
    except (LoadError, MissingDependencyError) as exc:
        # of a text format without its package, a plan finds the text
        return with_error(planned, exc)
    except OSError as exc:
        return replace(planned, why=exc.strerror or str(exc))
    return replace(planned, how=how, why=why)


def _way(loading: Loading, file: FoundFile, path: Path) -> tuple[How, str]:
    """Return how a file would be read, and by what or why."""
    named = loading.readers.find(file.identity, path.name)
    reader = find_reader(path, file.identity, Reading(loading.limits, loading.find, depth=1))
    user_reader: Any = named.user_reader if named is not None else loaders[reader.of]
    medium = getattr(user_reader, "media_reader", None)
    if isinstance(medium, tuple):
        return "media reader", getattr(medium[1], "__name__", type(medium[1]).__name__)
    if "PdfLoader" in (reader.name, *(base.__name__ for base in type(user_reader).__mro__)):
        how, why = _look(user_reader() if isinstance(user_reader, type) else user_reader, path)
    elif not reader.built_in:
        return "own reader", reader.name
    elif reader.of in _MEDIA:
        return "skipped", without_reader(user_reader.kind)
    else:
        how, why = _way_of_loader(reader.name, path)
    if not why and reader.content:
        why = f"as {reader.content}"
    return how, why


def _way_of_loader(name: str, path: Path) -> tuple[How, str]:
    """Return how a built-in loader reads a file."""
    if name == "OldOfficeLoader":
        return _program(path)
    if name == "ZipLoader":
        return "unknown until read", "files inside"
    return "text", _INSIDE.get(name, "")


def _program(path: Path) -> tuple[How, str]:
    """Return the program that reads an old office file."""
    import shutil  # slow to import, and rarely needed

    from lazyrag.loaders.old_office import programs_for

    names = programs_for(path)
    if not names:
        return "text", "as .rtf"
    program = next(filter(shutil.which, names), None)
    if program is None:
        return "not readable", f"no program: install {' or '.join(names)}"
    return "program", program


def _look(loader: PdfLoader, path: Path) -> tuple[How, str]:
    """Look at the first, the middle and the last page of a PDF."""
    try:
        with closing(loader.open(path, _LOOK_S)) as file:
            layers = file.layers()
    except Exception as exc:
        # of pdfium as well, at a damaged page: loading may read the others, and reports it
        if isinstance(exc, LoadError) and "password" in str(exc):
            raise
        is_slow = "took longer" in str(exc)
        return "unknown until read", "too large to look at" if is_slow else "damaged"
    if not layers:
        return "unknown until read", "no text on the pages looked at"
    if False not in layers:
        return "text layer", ""
    if loader.ocr is not None:
        is_picture = path.suffix.lower() in _MEDIA
        return "ocr", repr(loader.ocr) if is_picture else "pages without a text layer"
    missing = "needs OCR: lazyrag index --ocr, add_ocr()"
    if True in layers:
        return "text layer", f"some pages have none: {missing}"
    return "not readable", missing
