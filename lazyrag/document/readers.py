"""Which reader reads which file: what users name for a Document, and how a change of it is seen."""

from __future__ import annotations

import fnmatch
import functools
import inspect
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar, overload

from lazyrag.document.fingerprint import Fingerprint, fingerprint
from lazyrag.errors import ConfigError
from lazyrag.loaders.base import DataLoader, Loadable, known_suffix, loaders
from lazyrag.loaders.directory import FoundFile
from lazyrag.loaders.limits import FileReader
from lazyrag.loaders.sniffing import sniff
from lazyrag.validation import known_keywords

ReaderLike: TypeAlias = "Callable[[Path], Loadable] | type[DataLoader] | DataLoader"
"""What may read a file: a function of its path, a loader class without arguments, a loader."""

R = TypeVar("R", bound="Callable[[Path], Loadable] | type[DataLoader] | DataLoader")

_SPECIAL = frozenset("*?[")
_MOST_OPEN = 4  # of ``**/`` in a pattern that may stand for no folder
_CONTAINERS = frozenset(
    f"lazyrag.loaders.{target}" for target in ("mail:EmlLoader", "mail:MboxLoader", "msg:MsgLoader", "zipped:ZipLoader")
)
"""Loaders of files that hold other files, which readers are asked for as well."""


@dataclass(frozen=True, slots=True)
class NamedReader:
    """What a user reads files of certain names with.

    Args:
        pattern: Their names, as given.
        given: What was given.
        fingerprint: Of what was given.
        version: What the user says besides.
    """

    pattern: str
    given: Any
    fingerprint: Fingerprint
    version: str | None = None

    @property
    def identity(self) -> str:
        """What tells it from others, which may read the same files otherwise."""
        return f"reader {self.fingerprint.value} {self.version or ''}"

    def reader(self) -> FileReader:
        """The same for one file."""
        return as_reader(self.pattern, self.given)


def as_reader(pattern: str, given: Any) -> FileReader:
    """What loads a file: a loader's method, a class's anew for each file, or the function itself."""
    if isinstance(given, type):
        return FileReader(given.__name__, lambda path: given().load(path), pattern)
    if callable(getattr(given, "load", None)):
        return FileReader(type(given).__name__, given.load, pattern)
    return FileReader(getattr(given, "__name__", type(given).__name__), given, pattern)


class Readers:
    """Readers by pattern, before those of a base: an instance's before its class's.

    Args:
        base: Readers to fall back to.
    """

    def __init__(self, base: Readers | None = None) -> None:
        self._base = base
        self._lock = threading.Lock()
        self._suffixes: dict[str, NamedReader] = {}
        self._patterns: tuple[NamedReader, ...] = ()  # the last that was named first

    def add(self, reader: NamedReader) -> None:
        """Enter a reader; one of the same pattern goes."""
        suffix = _suffix_of(reader.pattern)
        with self._lock:
            if suffix:
                self._suffixes = {**self._suffixes, suffix: reader}
            else:
                others = (one for one in self._patterns if one.pattern != reader.pattern)
                self._patterns = (reader, *others)

    def find(self, *names: str) -> NamedReader | None:
        """The reader for a file: the first of `all` that reads files of one of its names.

        Args:
            names: Its names: relative to its dataset or archive, and its own.
        """
        if not (self._suffixes or self._patterns):  # nearly always
            return None if self._base is None else self._base.find(*names)
        return next((reader for reader in self.all() if reads(reader.pattern, names)), None)

    def all(self) -> list[NamedReader]:
        """All of them: by suffix, the longest first; by pattern, the last that was named first; then the base's."""
        suffixes = sorted(self._suffixes.items(), key=lambda item: -len(item[0]))
        own = [*(reader for _, reader in suffixes), *self._patterns]
        return [*own, *(self._base.all() if self._base is not None else ())]


class AddReader(Protocol):
    """What `Document.add_reader` is to type checkers: a call, or the maker of a decorator."""

    @overload
    def __call__(self, pattern: str, func: R, *, version: str | None = None) -> R: ...
    @overload
    def __call__(self, pattern: str, func: None = None, *, version: str | None = None) -> Callable[[R], R]: ...


@known_keywords
def add_reader(
    self_or_class: Any, /, pattern: str, func: ReaderLike | None = None, *, version: str | None = None
) -> Any:
    """Say what reads files of certain names, whatever is registered for their suffix.

    On the class it holds for every Document, on an instance for that one, where it goes before the class's. A suffix
    goes before a pattern, a longer suffix before a shorter one, a later pattern before an earlier one; the same pattern
    again takes the earlier one's place. Files that are read otherwise now are read at the next sync.

    Args:
        self_or_class: The Document, or its class.
        pattern: A suffix, ``"*.log"`` or ``".log"``; or a pattern as of `fnmatch`, ``"notes/*.txt"``, that a file's
            path relative to the dataset matches, or its name. Case does not matter.
        func: A function of the file's `pathlib.Path` that returns its text, or whatever loaders return; a loader class
            without arguments, or an instance. None makes this a decorator.
        version: Tells readers apart that look the same: the version of a model, of a program.

    Returns:
        What was given, unchanged; the decorator, if nothing was.

    Raises:
        ConfigError: If the pattern is none, or what is given cannot read files.

    Example:
        >>> from lazyrag import Document
        >>> docs = Document()
        >>> @docs.add_reader("*.motd")
        ... def read_motd(path):
        ...     return path.read_text(encoding="utf-8")
    """
    if not isinstance(pattern, str) or not pattern.strip() or pattern == ".":
        msg = f"add_reader got the pattern {pattern!r}; give a suffix ('*.log', '.log') or a pattern ('notes/*.txt')."
        raise ConfigError(msg)
    if f".{pattern.lower()}" in loaders:
        msg = (
            f"add_reader got the pattern {pattern!r}, which only a file of that whole name matches. "
            f"Give '.{pattern.lower()}' for the suffix; '**/{pattern}' if the name is meant."
        )
        raise ConfigError(msg)
    if version is not None and not isinstance(version, str):
        msg = f"add_reader({pattern!r}) got version={version!r}; give a text, or None."
        raise ConfigError(msg)

    def enter(given: R) -> R:
        _check(pattern, given)
        self_or_class._file_readers.add(NamedReader(pattern, given, fingerprint(given), version))
        return given

    return enter if func is None else enter(func)


def loader_identities(readers: Readers) -> Callable[[FoundFile], str]:
    """A function from a file to what tells its reader from others, which may read it otherwise.

    Nothing is imported for it. Files whose suffix no loader reads are looked into, as loading them does; of the others
    that would take too long, so that one whose content contradicts its suffix counts by its suffix.
    """
    asked = readers.all()
    inside = " ".join(("", *(f"{reader.pattern} {reader.identity}" for reader in asked)))

    @functools.cache
    def of_suffix(suffix: str) -> str:
        if suffix not in loaders:
            return suffix
        target = loaders.target(suffix)
        held = inside if target in _CONTAINERS else ""
        return f"{suffix} {target or fingerprint(loaders[suffix]).value}{held}"

    def of_file(file: FoundFile) -> str:
        path = file.path
        for reader in asked:
            if reads(reader.pattern, (file.identity, path.name)):
                return reader.identity
        suffix = known_suffix(path)
        if suffix in loaders:
            return of_suffix(suffix)
        try:
            found = sniff(path)
        except OSError:  # loading it says why
            found = None
        is_read = found is not None and found.suffix in loaders and found.decides(suffix)
        return f"{suffix} as {of_suffix(found.suffix)}" if found is not None and is_read else suffix

    return of_file


def _check(pattern: str, given: Any) -> None:
    """Refuse what reads no files."""
    loads = getattr(given, "load", None)
    if isinstance(given, type) and callable(loads):
        needed = [
            name
            for name, one in inspect.signature(given).parameters.items()
            if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        ]
        if needed:
            msg = (
                f"add_reader({pattern!r}) got the class {given.__name__}, which needs {', '.join(needed)}. "
                f"Give an instance: {given.__name__}({needed[0]}=...)."
            )
            raise ConfigError(msg)
    elif isinstance(given, type) or not (callable(loads) or callable(given)):
        msg = (
            f"add_reader({pattern!r}) got {given!r}; give a function of the file's path, "
            "a loader class with load(self, path), or an instance of one."
        )
        raise ConfigError(msg)
    if inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(loads):
        msg = f"add_reader({pattern!r}) got {given!r}, which is asynchronous; give a function that returns the text."
        raise ConfigError(msg)


def reads(pattern: str, names: Iterable[str]) -> bool:
    """Whether a pattern stands for a file of some names.

    Case does not matter, and ``**/`` stands for any folders or none.

    Example:
        >>> reads("*.log", ["a/b.LOG"]), reads("a/**/b.*", ["a/b.log"]), reads("a/*", ["b.log"])
        (True, True, False)
    """
    wanted = pattern.lower()
    suffix = _suffix_of(pattern)
    for name in map(str.lower, names):
        own_name = name.rpartition("/")[2]
        if suffix:
            if own_name.endswith(suffix) and own_name != suffix:
                return True
        elif any(fnmatch.fnmatchcase(one, form) for one in (name, own_name) for form in _forms(wanted)):
            return True
    return False


@functools.lru_cache(maxsize=256)
def _forms(pattern: str) -> tuple[str, ...]:
    """A pattern with and without each of its ``**/``, which stand for any folders or none."""
    first, *rest = re.split(r"(?<![^/])\*\*/", pattern, maxsplit=_MOST_OPEN)
    forms = [first]
    for piece in rest:
        forms = [f"{form}{folders}{piece}" for form in forms for folders in ("**/", "")]
    return tuple(forms)


def _suffix_of(pattern: str) -> str:
    """The suffix that a pattern stands for, lower case; "" for other patterns."""
    suffix = pattern.removeprefix("*").lower()
    return suffix if suffix.startswith(".") and "/" not in suffix and _SPECIAL.isdisjoint(suffix) else ""
