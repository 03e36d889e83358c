"""What a loader is: a file into text, its places and what the file says of itself."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from lazyrag.data.fields import UNKNOWN_MIME_TYPE, mime_type
from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY, Place
from lazyrag.errors import ConfigError, LoadError, MissingDependencyError, NoReaderError, nearest, sentence
from lazyrag.loaders.detect import Sniffed, find_encoding, sniff
from lazyrag.registry import Registry
from lazyrag.text.structure import python_definitions
from lazyrag.validation import known_arguments, whole_number

DEEPEST_NESTING = 5
"""Files within files (an archive in a mail in an archive) that are followed."""


@known_arguments
@dataclass(frozen=True, slots=True)
class LoadLimits:
    """What one file may take while it is loaded. What exceeds a limit is one failure, which names the limit.

    ``time_s`` and ``memory_bytes`` can only be held against another process: they need ``Document(processes=...)``.
    Loaders that no other process can import are called without these two.

    Args:
        bytes: Size of a file. 0 or None takes a limit away, here as everywhere below.
        pages: Pages or slides.
        unpacked_bytes: What is unpacked of a container, over all its members and the containers among them.
        time_s: How long a loader may work on a file, in seconds.
        memory_bytes: What the loading process may have in memory, with itself and its libraries, 50 MiB and more;
            other programs that a loader begins do not count. Linux tells it; elsewhere there is no such limit, and one
            that is given is refused.
        files_per_process: Files after which another process takes the place of one: what parsers leak goes with it.

    Raises:
        ConfigError: If one is negative, or no number.

    Example:
        >>> LoadLimits(pages=100, time_s=0).pages
        100
    """

    bytes: int | None = 1 << 30
    pages: int | None = 5_000
    unpacked_bytes: int | None = 1 << 29
    time_s: float | None = 300.0
    memory_bytes: int | None = 1 << 32
    files_per_process: int | None = 500

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is None:
                continue
            if one.name == "time_s":
                if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < math.inf:
                    msg = f"time_s is {value!r}; give seconds, or 0 for no limit."
                    raise ConfigError(msg)
            else:
                value = whole_number(one.name, value, 0)
            object.__setattr__(self, one.name, value or None)


DEFAULT_LIMITS = LoadLimits()


def over_limit(found: str, name: str, limit: float) -> LoadError:
    """The error for a file that exceeds a limit.

    Args:
        found: What was found, as the beginning of a sentence: ``"The file has 20,000 pages"``.
        name: The limit, an argument of `LoadLimits`.
        limit: Its value.

    Example:
        >>> str(over_limit("The file has 9 pages", "pages", 8)).partition(". ")[0]
        'The file has 9 pages; the limit pages=8 is exceeded'
    """
    return LoadError(
        f"{found}; the limit {name}={limit:,} is exceeded. Raise it with Document(limits=LoadLimits({name}=...)); "
        "0 is no limit."
    )


@dataclass(frozen=True, slots=True)
class FileReader:
    """What reads a file.

    Args:
        name: What it is called, for messages.
        load: Reads the file at a path, see `lazyrag.loaders.base.Loadable`.
        of: Which files it reads, for messages: ``".log"``.
        built_in: Whether it is one of ours.
        content: The suffix of such files, if it was chosen by the content of this one; else "".
    """

    name: str
    load: Callable[[Path], Any]
    of: str
    built_in: bool = False
    content: str = ""


FindReader: TypeAlias = Callable[[str, str], "FileReader | None"]
"""From a file's name relative to its dataset or archive, and its own name, to what its user reads it with, or None."""


class Reading:
    """The loading of one file, with the files within it.

    Args:
        limits: What it may take.
        readers: What its user named for files of certain names, those within it included.
    """

    __slots__ = ("depth", "exceeded", "limits", "readers", "unpacked")

    def __init__(self, limits: LoadLimits = DEFAULT_LIMITS, readers: FindReader | None = None) -> None:
        self.limits = limits
        self.readers = readers
        self.depth = 0
        self.unpacked = 0
        self.exceeded = False

    def count_unpacked(self, count: int, what: str) -> None:
        """Count bytes that were unpacked.

        Args:
            count: How many.
            what: What they come from, for the message: ``"Word document"``.

        Raises:
            LoadError: If they are too many, together with those before.
        """
        self.unpacked += count
        most = self.limits.unpacked_bytes
        if most is not None and self.unpacked > most:
            self.exceeded = True
            raise over_limit(f"The {what} unpacks to more than {most / (1 << 20):,.4g} MiB", "unpacked_bytes", most)


_under_way: ContextVar[Reading | None] = ContextVar("lazyrag_reading", default=None)


def reading() -> Reading:
    """The loading that is under way in this thread; a new one, under the default limits, where there is none."""
    return _under_way.get() or Reading()


@contextmanager
def read_within(limits: LoadLimits | None, readers: FindReader | None) -> Iterator[Reading]:
    """Load a file, or one that lies within the file that is being loaded, and shares its limits.

    Args:
        limits: Of a file; None for the default ones, or those of the file that it lies within.
        readers: Of its user; None for none, or those of the file that it lies within.

    Raises:
        LoadError: If files lie within files too deep.
    """
    now = _under_way.get()
    if now is None:
        now = Reading(limits or DEFAULT_LIMITS, readers)
    elif now.depth >= DEEPEST_NESTING:
        msg = f"It lies deeper than {DEEPEST_NESTING} files within files. Unpack the outer ones."
        raise LoadError(msg)
    now.depth += 1
    token = _under_way.set(now)
    try:
        yield now
    finally:
        _under_way.reset(token)
        now.depth -= 1


def check_pages(count: int, kind: str = "pages") -> None:
    """Refuse a file of too many pages; a loader calls it as soon as it knows how many there are.

    Args:
        count: How many.
        kind: What they are called: ``"slides"``.

    Raises:
        LoadError: If they are more than the limit.
    """
    most = reading().limits.pages
    if most is not None and count > most:
        raise over_limit(f"The file has {count:,} {kind}", "pages", most)


_PART_BREAK = "\n\n"


@known_arguments
@dataclass(frozen=True, slots=True)
class LoadedFile:
    """What a loader found in a file.

    Args:
        text: The whole text, in reading order.
        places: Pages or headings, as stretches of the text, ascending.
        metadata: What the file says of itself; names that ``doc_fields`` declares can be filtered by.

    Example:
        >>> LoadedFile("Water of 80 degrees", metadata={"author": "Li"}).metadata["author"]
        'Li'
    """

    text: str
    places: tuple[Place, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


Loadable: TypeAlias = "LoadedFile | str | DocNode | Iterable[str | DocNode]"
"""What a loader may return: parts (pages, sheets) are joined to one text, and each part becomes a place."""


class DataLoader(Protocol):
    """Reads one file. A loader is a class without constructor arguments, registered for suffixes."""

    def load(self, path: Path) -> Loadable:
        """Read the file.

        Args:
            path: An existing file.

        Returns:
            A `LoadedFile`, a text, a DocNode, or an iterable of texts and DocNodes.

        Raises:
            LoadError: If the file cannot be read; any other exception is reported as one, too.
        """


L = TypeVar("L", bound=type[DataLoader])

loaders: Registry[type[DataLoader]] = Registry("loader", entry_point_group="lazyrag.loaders")
"""Loader classes by suffix, dot included, lower case."""


def register_loader(*suffixes: str, replace: bool = False) -> Callable[[L], L]:
    """Register a loader class for file suffixes; a decorator.

    Args:
        suffixes: Such as ``".log"``; upper and lower case do not matter.
        replace: Take a suffix over from another loader.

    Returns:
        A decorator that returns the class unchanged.

    Raises:
        ConfigError: If there is no suffix, one has no dot, or the class has no ``load``.

    Example:
        >>> @register_loader(".motd")
        ... class MotdLoader:
        ...     def load(self, path):
        ...         return path.read_text(encoding="utf-8")
    """
    wrong = [suffix for suffix in suffixes if not isinstance(suffix, str) or not suffix.startswith(".")]
    if not suffixes or wrong:
        msg = f"register_loader got {', '.join(map(repr, suffixes)) or 'no suffix'}; give suffixes such as '.log'."
        raise ConfigError(msg)

    def enter(loader: L) -> L:
        if not isinstance(loader, type) or not callable(getattr(loader, "load", None)):
            msg = f"register_loader needs a class with load(self, path), not {loader!r}."
            raise ConfigError(msg)
        for suffix in suffixes:
            loaders.register(suffix.lower(), loader, replace=replace)
        return loader

    return enter


def load_file(
    path: str | os.PathLike[str],
    *,
    name: str = "",
    limits: LoadLimits | None = None,
    readers: FindReader | None = None,
) -> LoadedFile:
    """Read a file: with the reader for its name, the loader for its suffix, or the one for its content.

    A suffix that was registered by a user decides, whatever the content; one of the built-in ones does unless the first
    bytes are those of another format; and where no loader reads the suffix, the content decides alone.

    Args:
        path: An existing file.
        name: Its path relative to its dataset or archive, which patterns of readers may match; "" for its own name.
        limits: What it may take, but for time and memory; None for the default ones.
        readers: Readers by names of files.

    Raises:
        ConfigError: If the path is none.
        LoadError: If nothing reads the file, its reader fails, it exceeds a limit, or it holds no text.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "README")
        ...     _ = path.write_text("Green tea", encoding="utf-8")
        ...     load_file(path).text
        'Green tea'
    """
    if not isinstance(path, (str, os.PathLike)):
        msg = f"path is {path!r:.80} ({type(path).__name__}); give the path of a file."
        raise ConfigError(msg)
    path = Path(path)
    known_as = name or path.name
    try:
        with read_within(limits, readers) as reading:
            _check_size(path, reading.limits)
            return _read(_reader_of(path, known_as, reading), path)
    except (LoadError, MissingDependencyError) as exc:
        raise _again(exc, path=str(path)) from (exc.__cause__ or exc)


def _again(exc: LoadError | MissingDependencyError, path: str = "", loader: str = "") -> LoadError:
    """The same error with the file that it is about, and the loader unless it names one itself."""
    told_by = exc.loader if isinstance(exc, LoadError) else ""
    error = NoReaderError if isinstance(exc, NoReaderError) else LoadError
    return error(str(exc), path=path, loader=told_by or loader)


def _check_size(path: Path, limits: LoadLimits) -> None:
    try:
        status = path.stat()
    except FileNotFoundError as exc:
        raise LoadError(f"There is no file {str(path)!r}. Give the path of an existing one.") from exc
    except OSError:  # the loader meets the same error, and tells it
        return
    if stat.S_ISDIR(status.st_mode):
        raise LoadError(f"{str(path)!r} is a folder. Give the path of a file; Document(folder) reads folders.")
    if limits.bytes is not None and status.st_size > limits.bytes:
        found = f"The file has {status.st_size:,} bytes"
        raise over_limit(found, "bytes", limits.bytes)


def _reader_of(path: Path, name: str, reading: Reading) -> FileReader:
    """What reads a file."""
    if reading.readers is not None:
        own_name = path.name if reading.depth == 1 else name  # what lies within another file lies at a path of ours
        named = reading.readers(name, own_name)
        if named is not None:
            return named
    suffix = known_suffix(path)
    if suffix in loaders and not is_built_in(suffix):
        return _registered(suffix)
    try:
        found = sniff(path, suffix=suffix if suffix in loaders else "")
    except OSError:
        found = None
    if suffix not in loaders:
        if found is None or found.suffix not in loaders or not found.decides(suffix):
            raise LoadError(_nothing_reads(suffix, found))
        return _registered(found.suffix, by_content=True)
    if found is None or found.suffix not in loaders or not found.outweighs(suffix):
        return _registered(suffix)
    if loaders.target(found.suffix) == loaders.target(suffix):
        return _registered(suffix)
    return _registered(found.suffix, by_content=True)


def _registered(suffix: str, *, by_content: bool = False) -> FileReader:
    loader = loaders[suffix]
    built_in = loader.__module__.startswith("lazyrag.")
    return FileReader(loader.__name__, lambda path: loader().load(path), suffix, built_in, suffix if by_content else "")


def _nothing_reads(suffix: str, found: Sniffed | None) -> str:
    """Why no loader was found, and what to do."""
    told = f"No loader reads {suffix or 'files without suffix'}."
    if found is None:
        told += " Its content is of no known format."
    elif found.suffix not in loaders and found.suffix != suffix:
        told += f" Its content is that of {found.suffix} files, which none reads either."
    is_misspelt = suffix and mime_type(suffix) == UNKNOWN_MIME_TYPE
    alike = [one for one in loaders if abs(len(one) - len(suffix)) <= 1]  # .bin is no misspelt .ipynb
    near = nearest(suffix, alike) if is_misspelt else None
    meant = f"did you mean {near!r}? " if near else ""
    return (
        f"{told} {meant.capitalize()}{len(loaders)} suffixes are read, see lazyrag.loaders.loaders. "
        "Add a reader with Document.add_reader or @register_loader."
    )


def _read(reader: FileReader, path: Path) -> LoadedFile:
    name = reader.name
    try:
        loaded = _loaded(reader.load(path), name)
    except (LoadError, MissingDependencyError) as exc:
        raise _again(exc, loader=name) from (exc.__cause__ or exc)
    except Exception as exc:
        told = f"{type(exc).__name__}: {exc}".rstrip(": \n")
        if reader.built_in:
            msg = (
                f"{name} could not read the file ({told}). "
                "It may be damaged, or be of another format than its suffix says."
            )
        else:
            said = sentence(f"The loader {name} of {reader.of} files raised {told}")
            msg = f"{said} Mend it, or let it raise LoadError for files that it cannot read."
        raise LoadError(msg, loader=name) from exc
    for kind in ("page", "slide") if loaded.places else ():
        # Those of members were counted when they were read.
        check_pages(sum(place.kind == kind and " > " not in place.label for place in loaded.places), f"{kind}s")
    if not loaded.text.strip():
        msg = "The file holds no text: it is empty, or its pages are pictures that need text recognition."
        raise LoadError(msg, loader=name)
    if reader.content and reader.content != ".txt":
        return replace(loaded, metadata={"read_as": reader.content, **loaded.metadata})
    return loaded


def is_built_in(suffix: str) -> bool:
    """Whether a suffix is read by the loader that this package declares for it."""
    return (loaders.target(suffix) or "").startswith("lazyrag.")


def known_suffix(path: Path) -> str:
    """The longest of a file's suffixes (``.part.txt`` before ``.txt``) that a loader is registered for."""
    if path.name.count(".") == 1:  # nearly always; taking a name apart is slow
        return path.suffix.lower()
    suffixes = [suffix.lower() for suffix in path.suffixes]
    joined = ("".join(suffixes[at:]) for at in range(len(suffixes)))
    return next((suffix for suffix in joined if suffix in loaders), path.suffix.lower())


def _loaded(result: Any, name: str) -> LoadedFile:
    if isinstance(result, LoadedFile):
        return _checked(result, name)
    allowed = "return a LoadedFile, a str, a DocNode, or an iterable of texts and DocNodes"
    if isinstance(result, (Mapping, bytes, bytearray)) or not isinstance(result, (str, DocNode, Iterable)):
        raise LoadError(f"The loader {name} returned {type(result).__name__}; {allowed}.")
    parts = [result] if isinstance(result, (str, DocNode)) else list(result)
    for part in parts:
        if not isinstance(part, (str, DocNode)):
            raise LoadError(f"The loader {name} returned {type(part).__name__} among its parts; {allowed}.")
    texts = [part if isinstance(part, str) else part.get_text() for part in parts]
    labels = [_part_label(part, number) for number, part in enumerate(parts, start=1)]
    named = any(kind != "part" for kind, _ in labels)
    text, places = join_parts(texts, labels)
    return LoadedFile(text, places if named or len(parts) > 1 else (), _common_metadata(parts))


def _checked(loaded: LoadedFile, name: str) -> LoadedFile:
    """A loader's own `LoadedFile`, its parts checked."""
    problem = ""
    if not isinstance(loaded.text, str):
        problem = f"text {loaded.text!r:.60}; it is a str"
    elif not isinstance(loaded.metadata, Mapping):
        problem = f"metadata {loaded.metadata!r:.60}; it is a mapping"
    elif not isinstance(loaded.places, (tuple, list)) or not all(
        isinstance(place, Place) and 0 <= place.start <= place.end <= len(loaded.text) for place in loaded.places
    ):
        problem = f"places {loaded.places!r:.60}; they are Places within the text"
    if problem:
        msg = f"The loader {name} returned a LoadedFile with {problem}."
        raise LoadError(msg)
    return LoadedFile(loaded.text, tuple(loaded.places), loaded.metadata)


def _common_metadata(parts: list[str | DocNode]) -> dict[str, Any]:
    """What all parts say alike holds for the file; what differs names the parts, and no more."""
    said = [part.metadata if isinstance(part, DocNode) else EMPTY for part in parts]
    return {
        name: value
        for name, value in (said[0].items() if said else ())
        if all(name in one and one[name] == value for one in said)
    }


def join_parts(texts: Sequence[str], labels: Sequence[tuple[str, str]]) -> tuple[str, tuple[Place, ...]]:
    """Join a file's parts by empty lines.

    Args:
        texts: Pages, sheets and the like, in reading order.
        labels: (kind, label) of each.

    Returns:
        The whole text, and the place of each part in it.

    Example:
        >>> text, places = join_parts(["Tea", "Water"], [("page", "1"), ("page", "2")])
        >>> text[places[1].start : places[1].end]
        'Water'
    """
    places = []
    position = 0
    for text, (kind, label) in zip(texts, labels, strict=True):
        places.append(Place(position, position + len(text), kind, label))
        position += len(text) + len(_PART_BREAK)
    return _PART_BREAK.join(texts), tuple(places)


def _part_label(part: str | DocNode, number: int) -> tuple[str, str]:
    if isinstance(part, DocNode):
        for kind in ("page", "slide", "sheet", "row", "heading"):
            if kind in part.metadata:
                return kind, str(part.metadata[kind])
    return "part", str(number)


_COOKIE = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")


class SourceLoader:
    """Reads source code; what it reads is the file, character by character."""

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        read = find_encoding(path.read_bytes())
        return LoadedFile(read.text, metadata=read.metadata)


class PythonLoader:
    """Reads Python code as it is; each function and class at the top level is a place, decorators included."""

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        data = path.read_bytes()
        cookies = (_COOKIE.match(line) for line in data.split(b"\n", 2)[:2])
        read = find_encoding(data, declared=next((cookie[1].decode() for cookie in cookies if cookie), None))
        return LoadedFile(read.text, tuple(python_definitions(read.text)), read.metadata)
