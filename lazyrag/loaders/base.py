"""File loaders: `load_file`, `register_loader`, `LoadedFile` and the limits of loading."""

from __future__ import annotations

import inspect
import os
import re
import stat
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from lazyrag.data.node import DocNode
from lazyrag.data.pictures import LINKED_PICTURES, FoundPictures
from lazyrag.data.segment import (
    EMPTY,
    HIDDEN,
    NOT_SHOWN,
    Location,
    Locations,
    check_metadata,
    common_metadata,
)
from lazyrag.errors import (
    LoaderEndedError,
    LoadError,
    MissingDependencyError,
    NoReaderError,
    sentence,
)
from lazyrag.progress.blocks import contextmanager
from lazyrag.registry import Registry
from lazyrag.types import AnyCallable, JsonObject, Metadata, PathLike
from lazyrag.validation import known_arguments, require, validate_integer, validate_range

if TYPE_CHECKING:
    from lazyrag.loaders.detect import Sniffed

page_recognized: Callable[[], object] = lambda: None  # noqa: E731  see loaders.process
"""Called after each page that is read by OCR: a scan may take hours."""

MAX_NESTING = 5
"""Nesting of files that is followed, such as an archive in a mail in an archive."""


@known_arguments
@dataclass(frozen=True, slots=True)
class LoadLimits:
    """Limits for loading one file. A file that exceeds one fails with an error that names the
    limit.

    ``time_s`` and ``memory_bytes`` are for what is read in another process: PDF files always are,
    other files with ``processes``. Loaders that another process cannot import are
    called without these two.

    Args:
        bytes: Size of a file. 0 or None removes a limit, here and below.
        pages: Pages or slides.
        unpacked_bytes: Uncompressed size of a container, nested ones included.
        work: Steps of work, in addition to two for each byte of the file: a cell of a table, also
            an empty or a repeated one, a tag, a chapter. It bounds the time and the memory of files
            that expand.
        members: Files in a container, nested ones and attachments included.
        time_s: Seconds for one file.
        memory_bytes: Memory of the loading process with its libraries, 50 MiB or more, without
            child processes. Linux only; elsewhere an explicit limit is refused.
        files_per_process: Files after which a process is replaced, so that memory leaks of parsers
            do not add up.
        processes: Processes that load files, each one at a time; 0 or None for none. Loaders that
            cannot be imported by name run in the program's own process.

    Raises:
        ConfigError: If a limit is negative or not a number.

    Example:
        >>> LoadLimits(pages=100, time_s=0).pages
        100
    """

    bytes: int | None = 1 << 30
    pages: int | None = 5_000
    unpacked_bytes: int | None = 1 << 29
    members: int | None = 50_000
    work: int | None = 2_000_000
    time_s: float | None = 300.0
    memory_bytes: int | None = 1 << 32
    files_per_process: int | None = 500
    # not in the text by which a file's limits are stored: it limits no file
    processes: int | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is None:
                continue
            if limit.name == "time_s":
                expected = "a number of seconds >= 0, where 0 is no limit"
                value = validate_range("time_s", value, 0, expected=expected)
            else:
                value = validate_integer(limit.name, value, 0)
            object.__setattr__(self, limit.name, value or None)


DEFAULT_LIMITS = LoadLimits()


def over_limit(problem: str, name: str, limit: float) -> LoadError:
    """The error for a file that exceeds a limit.

    Args:
        problem: The beginning of the message: ``"The file has 20,000 pages"``.
        name: An argument of `LoadLimits`.
        limit: Its value.

    Example:
        >>> str(over_limit("The file has 9 pages", "pages", 8)).partition(". ")[0]
        'The file has 9 pages; the limit pages=8 is exceeded'
    """
    hint = f"Raise it with Document(limits=LoadLimits({name}=...)); 0 is no limit."
    return LoadError(f"{problem}; the limit {name}={limit:,.16g} is exceeded. {hint}")


@dataclass(frozen=True, slots=True)
class FileReader:
    """The loader or user function for a file.

    Args:
        name: Its name, for messages.
        load: Reads the file at a path, see `lazyrag.loaders.base.Loadable`.
        of: The files it reads, for messages: ``".log"``.
        built_in: Whether it is part of this package.
        content: The suffix of the detected format, if the content decided; else "".
    """

    name: str
    load: Callable[[Path], Any]
    of: str
    built_in: bool = False
    content: str = ""


FindReader: TypeAlias = Callable[[str, str], "FileReader | None"]
"""From a file's name relative to its dataset or archive, and its own name, to its user's reader, or
None."""


@dataclass(slots=True)
class Reading:
    """State of loading one file, nested files included.

    Args:
        limits: Its limits.
        readers: Its user's readers by file name.
        source: Whether the source text is wanted, see `DataLoader`.
    """

    limits: LoadLimits = DEFAULT_LIMITS
    readers: FindReader | None = None
    source: bool = False
    depth: int = 0
    unpacked: int = 0
    members: int = 0
    work: int = 0
    exceeded: bool = False
    notes: list[str] = field(default_factory=list)
    fields: JsonObject = field(default_factory=dict)

    def spend(self, steps: int) -> None:
        """Count steps of work, before they are done.

        Raises:
            LoadError: If their number exceeds the limit.
        """
        self.work += steps
        most = self.limits.work
        if most is not None and self.work > most:
            self.exceeded = True
            problem = (
                "Reading the file takes too many steps: it repeats cells, tags or parts too often"
            )
            raise over_limit(problem, "work", most)

    def spend_text(self, text: str) -> None:
        """Count the steps of a text that is written."""
        self.spend(1 + len(text) // _CHARACTERS_PER_STEP)

    def note(self, text: str) -> None:
        """Note what is missing of the file, for its metadata ``notes``."""
        if len(self.notes) < _MAX_NOTES:
            self.notes.append(text)

    def leave_out(self, parts: str, count: int, remedy: str = "") -> None:
        """Note parts that readers of the file see and that its loader does not read.

        Args:
            parts: What they are: ``"comments"``.
            count: Their number; 0 notes nothing.
            remedy: What reads them; "" for nothing.
        """
        if count:
            self.note(f"{parts} left out: {count}{remedy and f' ({remedy} reads them)'}")

    @contextmanager
    def tolerated(self, part: str) -> Iterator[None]:
        """Note a part that is damaged, and go on. A part that exceeds a limit still ends the
        file.
        """
        try:
            yield
        except PART_ERRORS as exc:
            if self.exceeded:
                raise
            self.note(f"{part} left out: {part_problem(exc)}")

    def count_member(self) -> None:
        """Count a file within the file.

        Raises:
            LoadError: If their number exceeds the limit.
        """
        self.members += 1
        if self.has_too_many_members:
            self.exceeded = True
            most = self.limits.members or 0
            raise over_limit(f"The file holds more than {most:,} files", "members", most)

    @property
    def has_too_many_members(self) -> bool:
        """Whether the number of files within the file exceeds the limit."""
        return self.limits.members is not None and self.members > self.limits.members

    @property
    def is_over(self) -> bool:
        """Whether a limit is exceeded that all parts of the file share."""
        return self.has_too_many_members or (
            self.limits.work is not None and self.work > self.limits.work
        )

    def count_unpacked(self, count: int, container: str) -> None:
        """Count uncompressed bytes.

        Args:
            count: Their number.
            container: Its name, for the message: ``"Word document"``.

        Raises:
            LoadError: If the total exceeds the limit.
        """
        self.unpacked += count
        most = self.limits.unpacked_bytes
        if most is not None and self.unpacked > most:
            self.exceeded = True
            raise over_limit(
                f"The {container} unpacks to more than {most / (1 << 20):,.4g} MiB",
                "unpacked_bytes",
                most,
            )


def part_problem(error: Exception) -> str:
    """Why a part of a file cannot be read."""
    if isinstance(error, LoadError):
        return str(error)
    problem = f"{type(error).__name__}: {error}".rstrip(": ")
    return f"it is damaged ({problem})"


_MAX_NOTES = 100
PART_ERRORS = (
    LoadError, ArithmeticError, AssertionError, AttributeError, EOFError, LookupError,
    RecursionError, SyntaxError, TypeError, ValueError, struct.error, zlib.error,
)  # fmt: skip
"""Errors of parsers that meet a damaged part of a file."""

_active: ContextVar[Reading | None] = ContextVar("lazyrag_reading", default=None)


def reading() -> Reading:
    """The active loading of this thread, or a new one with default limits."""
    return _active.get() or Reading()


@contextmanager
def read_within(
    limits: LoadLimits | None, readers: FindReader | None, *, source: bool = False
) -> Iterator[Reading]:
    """Begin to load a file. A nested file shares the limits, readers and aim of the outer one.

    Args:
        limits: Of the outer file; None for the default ones.
        readers: Of its user.
        source: Whether the source text is wanted.

    Raises:
        LoadError: If files are nested too deep.
    """
    outer = state = _active.get()
    if state is None:
        state = Reading(limits or DEFAULT_LIMITS, readers, source)
    elif state.depth >= MAX_NESTING:
        raise LoadError(f"It is nested deeper than {MAX_NESTING} files. Unpack the outer ones.")
    state.depth += 1
    try:
        _active.set(state)
        yield state
    finally:
        _active.set(outer)
        state.depth -= 1


def check_pages(count: int, kind: str = "pages") -> None:
    """Refuse a file with too many pages. Loaders call it as early as possible.

    Args:
        count: Their number.
        kind: Their name: ``"slides"``.

    Raises:
        LoadError: If there are more than the limit.
    """
    most = reading().limits.pages
    if most is not None and count > most:
        raise over_limit(f"The file has {count:,} {kind}", "pages", most)


_PART_BREAK = "\n\n"


@known_arguments
@dataclass(frozen=True, slots=True)
class LoadedFile:
    """Text, places and metadata of a file.

    Args:
        text: The complete text, in reading order.
        locations: Pages or headings, as ascending stretches of the text.
        metadata: Of the file, such as title and author; names declared in ``doc_fields`` can be
            filtered by.
        tables: Locations that are not shown: the tables, see
            `lazyrag.data.tables.FoundTable.location`; text that readers of the file do not see, of
            kind ``"hidden"``; list items, code, titles of slides and calls of footnotes.
        fields: Further values of the file by name, such as all properties of a document. Those
            whose names are declared in ``doc_fields`` become metadata.

    Example:
        >>> LoadedFile("Water of 80 degrees", metadata={"author": "Li"}).metadata["author"]
        'Li'
    """

    text: str
    locations: Locations = ()
    metadata: Metadata = field(default_factory=lambda: EMPTY)
    tables: Locations = ()
    fields: Metadata = field(default_factory=lambda: EMPTY)

    def __post_init__(self) -> None:
        if not isinstance(self.locations, (tuple, list)):
            return  # reported later
        # locations of a file within the file, tables among them
        tables: list[Location] = []
        others: list[Location] = []
        for location in self.locations:
            is_shown = not (isinstance(location, Location) and location.kind in NOT_SHOWN)
            (others if is_shown else tables).append(location)
        if tables:
            object.__setattr__(self, "tables", (*self.tables, *tables))
            object.__setattr__(self, "locations", tuple(others))


def packed_file(loaded: LoadedFile) -> list[Any]:
    """A loaded file as JSON, for `unpacked_file`.

    Raises:
        ConfigError: If its metadata or fields are no JSON values.
    """
    places = (*loaded.locations, *loaded.tables)  # `LoadedFile` separates them again
    return [loaded.text, places, check_metadata(loaded.metadata), check_metadata(loaded.fields)]


def unpacked_file(packed: Sequence[Any]) -> LoadedFile:
    """The loaded file that `packed_file` packed."""
    text, locations, metadata, values = packed
    return LoadedFile(text, tuple(map(Location._make, locations)), metadata, fields=values)


Loadable: TypeAlias = "LoadedFile | str | DocNode | Iterable[str | DocNode]"
"""Return types of loaders: parts (pages, sheets) are joined to one text, and each part becomes a
place."""


class DataLoader(Protocol):
    """Reads one file. A loader is a class without constructor arguments, registered for suffixes.

    A loader whose text is not the text of the file, as it renders HTML or JSON, may have a method
    ``load_source(path)`` too, which returns the file's own text. Transforms with ``reads_source``
    receive that.
    """

    def load(self, path: Path) -> Loadable:
        """Read the file.

        Args:
            path: An existing file.

        Returns:
            A `LoadedFile`, a text, a DocNode, or an iterable of texts and DocNodes.

        Raises:
            LoadError: If the file cannot be read; other exceptions are reported as one.
        """


L = TypeVar("L", bound="type[DataLoader] | Callable[[Path], Any]")

loaders: Registry[AnyCallable] = Registry("loader", entry_point_group="lazyrag.loaders")
"""Loader classes and functions of a path by suffix, dot included, lower case."""


def register_loader(*suffixes: str, replace: bool = False) -> Callable[[L], L]:
    """Register a loader for file suffixes; a decorator.

    Args:
        suffixes: Such as ``".log"``, in any case.
        replace: Replace another loader.

    Returns:
        A decorator of a class with ``load(self, path)`` or of a function of the path; returned
        unchanged.

    Raises:
        ConfigError: If there is no suffix, one has no dot, or the class has no ``load``.

    Example:
        >>> @register_loader(".motd")
        ... def read_motd(path):
        ...     return path.read_text(encoding="utf-8")
    """
    are_valid = bool(suffixes) and all(
        isinstance(suffix, str) and suffix.startswith(".") for suffix in suffixes
    )
    require(are_valid, "The suffixes of register_loader", suffixes, "one or several such as '.log'")

    def enter(loader: L) -> L:
        is_loader = (
            callable(getattr(loader, "load", None))
            if isinstance(loader, type)
            else inspect.isfunction(loader)
        )
        is_loader = is_loader and not inspect.iscoroutinefunction(loader)
        require(
            is_loader,
            "The argument of register_loader",
            loader,
            "a class with load(self, path), or a function",
        )
        for suffix in suffixes:
            loaders.register(suffix.lower(), loader, replace=replace)
        return loader

    return enter


def load_file(
    path: PathLike,
    *,
    name: str = "",
    limits: LoadLimits | None = None,
    readers: FindReader | None = None,
    source: bool | str = False,
) -> LoadedFile:
    """Load a file with the reader for its name, the loader for its suffix, or the loader for its
    content.

    A suffix that a user registered always decides. A built-in suffix decides unless the first bytes
    are those of another format. Without a loader for the suffix, the content decides.

    Args:
        path: An existing file.
        name: Its path relative to its dataset or archive, for patterns of readers; "" for its own
            name.
        limits: Limits, except for time and memory; None for the default ones.
        readers: Readers by file name.
        source: Return the file's own text where its loader can, see `DataLoader`; also of files
            within the file. A kind of `lazyrag.data.pictures`: its pictures.

    Raises:
        ConfigError: If path is not a path.
        LoadError: If no loader reads the file, its loader fails, it exceeds a limit, or it has no
            text.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "README")
        ...     _ = path.write_text("Green tea", encoding="utf-8")
        ...     load_file(path).text
        'Green tea'
    """
    require(isinstance(path, (str, os.PathLike)), "path", path, "the path of a file")
    path = Path(path)
    try:
        with read_within(limits, readers, source=bool(source)) as state:
            size = _check_size(path, state.limits)
            if state.depth == 1:
                state.work = -_STEPS_PER_BYTE * size
            try:
                reader = find_reader(path, name or path.name, state)
            except MissingDependencyError as exc:
                return _plain_text(path, exc)
            return (
                _pictures(reader, path, source) if isinstance(source, str) else _read(reader, path)
            )
    except (LoadError, MissingDependencyError) as exc:
        raise _about(exc, path=str(path)) from (exc.__cause__ or exc)


file_parts: Registry[AnyCallable] = Registry("part of files")
"""What finds parts of files, above the loaders: pictures are in archives, too."""
file_parts.declare("pictures", "lazyrag.loaders.pictures:find_pictures")


def _pictures(reader: FileReader, path: Path, kind: str) -> LoadedFile:
    loader = next(iter(getattr(reader.load, "args", ())), None)  # of a user, with a password
    suffix = reader.content or known_suffix(path.name)
    pictures: FoundPictures = file_parts["pictures"](
        path, suffix, loader, linked=kind == LINKED_PICTURES
    )
    return LoadedFile(pictures.write())


def _about(exc: LoadError | MissingDependencyError, path: str = "", loader: str = "") -> LoadError:
    """The error with its file, and its loader unless it names one."""
    loader = (exc.loader if isinstance(exc, LoadError) else "") or loader
    if isinstance(exc, NoReaderError):
        return NoReaderError(str(exc), reason=exc.reason, path=path, loader=loader)
    error = LoaderEndedError if isinstance(exc, LoaderEndedError) else LoadError
    return error(str(exc), path=path, loader=loader)


_STEPS_PER_BYTE = 2
_CHARACTERS_PER_STEP = 4


def _check_size(path: Path, limits: LoadLimits) -> int:
    """The size of a file that is small enough; 0 if it cannot be accessed, which its loader
    reports.
    """
    try:
        status = path.stat()
    except FileNotFoundError as exc:
        raise LoadError(
            f"There is no file {str(path)!r}. Pass the path of an existing one."
        ) from exc
    except OSError:
        return 0
    if stat.S_ISDIR(status.st_mode):
        raise LoadError(
            f"{str(path)!r} is a folder. Pass the path of a file; Document(folder) reads folders."
        )
    if not stat.S_ISREG(status.st_mode):  # a pipe would block, and a device may have no end
        raise LoadError(
            f"{str(path)!r} is not a regular file. Copy its content to a file, and pass that."
        )
    if limits.bytes is not None and status.st_size > limits.bytes:
        raise over_limit(f"The file has {status.st_size:,} bytes", "bytes", limits.bytes)
    return status.st_size


def find_reader(path: Path, name: str, state: Reading) -> FileReader:
    """The reader of a file, by its name and its first bytes.

    Args:
        path: The file.
        name: Its path relative to its dataset or archive.
        state: Its loading.

    Raises:
        NoReaderError: If there is none, or the file is empty.
        MissingDependencyError: If it needs a package.
    """
    if state.readers is not None:
        own_name = path.name if state.depth == 1 else name  # a nested file is at a temporary path
        reader = state.readers(name, own_name)
        if reader is not None:
            return reader
    suffix = known_suffix(path.name)
    has_loader = suffix in loaders
    if has_loader and not is_built_in(suffix):
        return _registered(suffix)
    sniffed = _sniff(path, suffix, has_loader=has_loader)
    if sniffed is not None and sniffed.suffix in loaders:
        decides = sniffed.outweighs if has_loader else sniffed.decides
        if decides(suffix):
            is_same = has_loader and loaders.target(sniffed.suffix) == loaders.target(suffix)
            return _registered(suffix) if is_same else _registered(sniffed.suffix, by_content=True)
    if not has_loader:
        raise _no_loader(suffix, sniffed)
    return _registered(suffix)


def _sniff(path: Path, suffix: str, *, has_loader: bool) -> Sniffed | None:
    from lazyrag.loaders.detect import sniff

    try:
        if not path.stat().st_size:
            raise NoReaderError("The file holds no text: it is empty.", reason="empty")
        return sniff(path, suffix=suffix if has_loader else "")
    except OSError as exc:
        if has_loader:
            return None
        raise LoadError(
            f"The file cannot be read ({exc.strerror}). Check its permissions."
        ) from exc


def _registered(suffix: str, *, by_content: bool = False) -> FileReader:
    loader = loaders[suffix]
    built_in = loader.__module__.startswith("lazyrag.")
    load = loader if inspect.isfunction(loader) else lambda path: call_loader(loader(), path)
    return FileReader(loader.__name__, load, suffix, built_in, suffix if by_content else "")


def call_loader(loader: Any, path: Path) -> Any:
    """Load a file: by `load_source`, if the source is wanted and the loader has it."""
    return (getattr(loader, "load_source", loader.load) if reading().source else loader.load)(path)


def _plain_text(path: Path, missing: MissingDependencyError) -> LoadedFile:
    """Read a file of a text format as plain text, for want of a package.

    Raises:
        MissingDependencyError: If the format is binary, or the loader a user's.
    """
    from lazyrag.loaders.detect import is_binary

    suffix = known_suffix(path.name)
    if is_binary(suffix) or not is_built_in(suffix):
        raise missing
    loaded = _read(_registered(".txt"), path)
    notes = [*loaded.metadata.get("notes", ()), f"read as plain text: {missing}"]
    return replace(loaded, metadata={**loaded.metadata, "notes": notes})


def _no_loader(suffix: str, sniffed: Sniffed | None) -> NoReaderError:
    files = suffix or "files without suffix"
    problem = f"No loader reads {files}."
    if sniffed is None:
        problem += " Its content is of no known format."
    elif sniffed.suffix not in loaders and sniffed.suffix != suffix:
        problem += f" Its content is that of {sniffed.suffix} files, which none reads either."
    hint = (
        f"{len(loaders)} suffixes are read, see lazyrag.loaders.loaders. Add a reader with"
        " Document.add_reader or @register_loader."
    )
    return NoReaderError(f"{problem} {hint}", reason=f"no loader reads {files}")


def _read(reader: FileReader, path: Path) -> LoadedFile:
    name = reader.name
    state = reading()
    outer_notes = state.notes
    outer_fields = state.fields
    state.notes = []
    state.fields = {}
    try:
        loaded = _loaded(reader.load(path), name)
    except (LoadError, MissingDependencyError) as exc:
        raise _about(exc, loader=name) from (exc.__cause__ or exc)
    except Exception as exc:
        raise LoadError(_problem(reader, exc), loader=name) from exc
    finally:
        notes = state.notes
        fields_read = state.fields
        state.notes = outer_notes
        state.fields = outer_fields
    _check_locations(loaded)
    if state.depth == 1 and not state.source and _UNSEEN.search(loaded.text):
        for match in _SHAPELESS.finditer(loaded.text):
            place = Location(*match.span(), HIDDEN, "without a shape")
            loaded = replace(loaded, tables=(*loaded.tables, place))
    state.spend_text(loaded.text)
    if not loaded.text.strip():
        raise _no_text(reader, notes)
    if notes:
        before = loaded.metadata.get("notes")
        listed = before if isinstance(before, list) else []
        loaded = replace(loaded, metadata={**loaded.metadata, "notes": [*listed, *notes]})
    if fields_read:
        loaded = replace(loaded, fields={**fields_read, **loaded.fields})
    if reader.content and reader.content != ".txt":
        return replace(loaded, metadata={"read_as": reader.content, **loaded.metadata})
    return loaded


_UNSEEN = re.compile("[\u180e\u200b-\u200d\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]")
# Runs of characters that nobody sees and that can be read as bytes: eight of zero width, tags but
# those of flags, and selectors behind selectors.
_SHAPELESS = re.compile(
    "[\u180e\u200b-\u200d\u2060-\u2064\ufeff]{8,}"
    "|(?<![\U0001f3f4\U000e0020-\U000e007f])[\U000e0000-\U000e007f]+"
    "|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,}"
)


def _problem(reader: FileReader, exc: Exception) -> str:
    """The message for an error of a loader that is no `LoadError`."""
    described = f"{type(exc).__name__}: {exc}".rstrip(": \n")
    if reader.built_in:
        return (
            f"{reader.name} could not read the file ({described}). It may be damaged, or of another"
            " format."
        )
    raised = sentence(f"The loader {reader.name} of {reader.of} files raised {described}")
    return f"{raised} Fix it, or let it raise LoadError for files that it cannot read."


def _check_locations(loaded: LoadedFile) -> None:
    # Pages of archive members were counted when they were read.
    counts = Counter(location.kind for location in loaded.locations if " > " not in location.label)
    check_pages(counts["page"])
    check_pages(counts["slide"], "slides")


def _no_text(reader: FileReader, notes: Sequence[str]) -> LoadError:
    if notes:
        problem = sentence(f"Nothing of the file can be read: {notes[0]}")
        return LoadError(problem, loader=reader.name)
    msg = (
        "The file holds no text: it is empty, or its pages are pictures that need text recognition."
    )
    if reader.built_in:
        return NoReaderError(msg, reason="no text", loader=reader.name)
    return LoadError(msg, loader=reader.name)


def is_built_in(suffix: str) -> bool:
    """Whether this package's own loader reads a suffix."""
    return (loaders.target(suffix) or "").startswith("lazyrag.")


def known_suffix(name: str) -> str:
    """The longest suffix of a file's name (``.part.txt`` before ``.txt``) with a registered loader;
    else its last one.
    """
    _, *parts = name.lower()[1:].split(".")
    suffixes = ["." + ".".join(parts[at:]) for at in range(len(parts))]
    last = suffixes[-1] if any(parts[-1:]) else ""
    return next((suffix for suffix in suffixes if suffix in loaders), last)


def _loaded(result: Any, name: str) -> LoadedFile:
    if isinstance(result, LoadedFile):
        return _checked(result, name)
    if isinstance(result, (Mapping, bytes, bytearray)) or not isinstance(
        result, (str, DocNode, Iterable)
    ):
        raise _wrong_result(name, f"returned {type(result).__name__}")
    parts = [result] if isinstance(result, (str, DocNode)) else list(result)
    for part in parts:
        if not isinstance(part, (str, DocNode)):
            raise _wrong_result(name, f"returned {type(part).__name__} among its parts")
    labelled = []
    for number, part in enumerate(parts, start=1):
        text = part if isinstance(part, str) else part.get_text()
        labelled.append((LoadedFile(text), *_part_label(part, number)))
    named = any(kind != "part" for _, kind, _ in labelled)
    joined = joined_file(labelled)
    of_parts = [part.metadata if isinstance(part, DocNode) else EMPTY for part in parts]
    metadata = {**common_metadata(of_parts), **_file_metadata(parts, name)}
    return replace(
        joined, locations=joined.locations if named or len(parts) > 1 else (), metadata=metadata
    )


def _wrong_result(name: str, returned: str) -> LoadError:
    expected = "a LoadedFile, a str, a DocNode, or an iterable of texts and DocNodes"
    return LoadError(f"The loader {name} {returned}; it must return {expected}.")


def _checked(loaded: LoadedFile, name: str) -> LoadedFile:
    locations = loaded.locations
    if not isinstance(loaded.text, str):
        problem = f"text {loaded.text!r:.60}; it must be a str"
    elif not isinstance(loaded.metadata, Mapping):
        problem = f"metadata {loaded.metadata!r:.60}; it must be a mapping"
    elif not isinstance(locations, (tuple, list)) or not all(
        isinstance(location, Location) and 0 <= location.start <= location.end <= len(loaded.text)
        for location in (*locations, *loaded.tables)
    ):
        problem = f"locations {locations!r:.60}; they must be Locations within the text"
    else:
        return replace(loaded, locations=tuple(locations))
    raise LoadError(f"The loader {name} returned a LoadedFile with {problem}.")


def _file_metadata(parts: list[str | DocNode], loader: str) -> JsonObject:
    """The metadata that parts give their file."""
    metadata: JsonObject = {}
    nodes = [part for part in parts if isinstance(part, DocNode)]
    for name, value in chain.from_iterable(node.global_metadata.items() for node in nodes):
        if metadata.setdefault(name, value) != value:
            msg = (
                f"The loader {loader} returned nodes with global_metadata {name!r} of"
                f" {metadata[name]!r} and {value!r}."
            )
            raise LoadError(f"{msg} A file has one value: put what differs into metadata.")
    return metadata


def joined_file(
    parts: Iterable[tuple[LoadedFile, str, str]], metadata: Metadata = EMPTY
) -> LoadedFile:
    r"""Join the parts of a file by empty lines.

    Args:
        parts: In reading order, each with the kind and label of its place.
        metadata: Of the file.

    Example:
        >>> pages = [(LoadedFile("Tea"), "page", "1"), (LoadedFile("Water"), "page", "2")]
        >>> joined_file(pages).locations[1]
        Location(start=5, end=10, kind='page', label='2')
    """
    texts = []
    locations: list[Location] = []
    position = 0
    for part, kind, label in parts:
        texts.append(part.text)
        locations += nested_locations(part, position, kind, label)
        position += len(part.text) + len(_PART_BREAK)
    return LoadedFile(_PART_BREAK.join(texts), tuple(locations), metadata)


def nested_locations(loaded: LoadedFile, start: int, kind: str, label: str) -> list[Location]:
    """The locations of a nested file: one for all of it, then its own.

    Args:
        loaded: The nested file.
        start: Its position in the outer text.
        kind: Kind of its place: ``"member"``.
        label: Label of its place, and prefix of the labels of its own ones.

    Example:
        >>> page = LoadedFile("Green tea", (Location(0, 9, "page", "1"),))
        >>> nested = nested_locations(page, 20, "member", "teas.pdf")
        >>> [(location.start, location.kind, location.label) for location in nested]
        [(20, 'member', 'teas.pdf'), (20, 'page', 'teas.pdf > 1')]
    """
    locations = [Location(start, start + len(loaded.text), kind, label)]
    locations += (
        Location(start + place.start, start + place.end, place.kind, f"{label} > {place.label}")
        for place in loaded.locations
    )
    return locations + moved(loaded.tables, start)


def moved(locations: Iterable[Location], by: int) -> list[Location]:
    """Locations of a part of a text, as those of the complete text."""
    return [
        location._replace(start=location.start + by, end=location.end + by)
        for location in locations
    ]


_CONTAINED = frozenset(["attachment", "member", "message"])


def source_texts(loaded: LoadedFile) -> list[tuple[str, str]]:
    r"""The texts of a file and of the files inside of it, by the label of their place; "" for its
    own.

    Example:
        >>> places = (Location(0, 3, "member", "a.json"), Location(5, 8, "member", "b.html"))
        >>> source_texts(LoadedFile("[1]\n\n<p>", places))
        [('a.json', '[1]'), ('b.html', '<p>')]
    """
    text = loaded.text
    at = 0
    inner = sorted(
        (location for location in loaded.locations if location.kind in _CONTAINED),
        key=lambda location: (location.start, -location.end),
    )
    files = [(Location(0, len(text), "", ""), list[str]())]
    within = [files[0]]  # a file's own text is all that is in no file inside of it
    for location in [*inner, Location(len(text), len(text), "", "")]:
        while len(within) > 1 and within[-1][0].end <= location.start:
            around, pieces = within.pop()
            pieces.append(text[at : around.end])
            at = around.end
        within[-1][1].append(text[at : location.start])
        at = location.start
        within.append((location, []))
        files.append(within[-1])
    texts = [(file.label, "".join(pieces)) for file, pieces in files]
    return [(label, source) for label, source in texts if source.strip()]


def _part_label(part: str | DocNode, number: int) -> tuple[str, str]:
    if isinstance(part, DocNode):
        for kind in ("page", "slide", "sheet", "row", "heading"):
            if kind in part.metadata:
                return kind, str(part.metadata[kind])
    return "part", str(number)


_COOKIE = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")


class SourceLoader:
    """Reads source code, character by character."""

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        from lazyrag.loaders.detect import find_encoding

        read = find_encoding(path.read_bytes())
        return LoadedFile(read.text, metadata=read.metadata)


class PythonLoader:
    """Reads Python code as it is; each top-level function and class is a location, with its
    decorators.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        from lazyrag.loaders.detect import find_encoding
        from lazyrag.text.structure import python_definitions

        data = path.read_bytes()
        cookies = (_COOKIE.match(line) for line in data.split(b"\n", 2)[:2])
        read = find_encoding(
            data, declared=next((cookie[1].decode() for cookie in cookies if cookie), None)
        )
        return LoadedFile(read.text, tuple(python_definitions(read.text)), read.metadata)
