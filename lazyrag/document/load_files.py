"""Loading files, in this process or in others."""

from __future__ import annotations

import fnmatch
import functools
import inspect
import os
import re
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import LifoQueue
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias, TypeVar, overload

from lazyrag.document.fingerprint import Fingerprint, fingerprint
from lazyrag.errors import ConfigError, IngestionError, LoadError, sentence
from lazyrag.loaders.base import (
    DEFAULT_LIMITS,
    DataLoader,
    FileReader,
    Loadable,
    LoadedFile,
    LoadLimits,
    is_built_in,
    known_suffix,
    load_file,
    loaders,
    over_limit,
)
from lazyrag.loaders.detect import sniff
from lazyrag.loaders.directory import FoundFile
from lazyrag.validation import known_keywords

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


ReaderLike: TypeAlias = "Callable[[Path], Loadable] | type[DataLoader] | DataLoader"
"""What may read a file: a function of its path, a loader class without arguments, a loader."""

R = TypeVar("R", bound="Callable[[Path], Loadable] | type[DataLoader] | DataLoader")

_SPECIAL = frozenset("*?[")
_MOST_OPEN = 4  # of ``**/`` in a pattern that may stand for no folder
_CONTAINERS = frozenset(
    f"lazyrag.loaders.{target}"
    for target in ("mail:EmlLoader", "mail:MboxLoader", "msg:MsgLoader", "archives:ZipLoader")
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


_LOOKED_AT_EVERY_S = 0.1
_LOOKS_AFTER_PARENT_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class ReaderTable:
    """What reads which files in the process that asks, as far as it is not the same in every process.

    Args:
        readers: Patterns with what the user named for them, packed by `portable`, in the order in which they are asked.
        loaders: Suffixes of loaders that are not built in, with where they can be imported from.
    """

    readers: tuple[tuple[str, bytes | None], ...] = ()
    loaders: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """A file to be loaded.

    Args:
        path: Where it lies.
        name: Its identity.
        loader: What reads it, as far as its name tells, for messages.
        limits: What it may take.
        table: What reads which files.
    """

    path: str
    name: str
    loader: str
    limits: LoadLimits
    table: ReaderTable


@dataclass(frozen=True, slots=True)
class _Answer:
    """What became of a file: its text, or why there is none. Neither means that only the asking process can load it."""

    loaded: LoadedFile | None = None
    error: LoadError | None = None
    lacks_memory: bool = False


class LoadingProcess:
    """Another process, which loads one file after the other.

    Raises:
        IngestionError: If it does not start.
    """

    def __init__(self) -> None:
        import multiprocessing  # which few programs need, and all would wait for

        self.count = 0
        # A fork would copy locks that other threads hold.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._folder = tempfile.mkdtemp(prefix="lazyrag-")  # what it leaves behind when it is killed goes with it
        self._process = context.Process(target=_serve, args=(theirs, self._folder))
        try:
            with theirs:
                self._process.start()
            self._wait(LoadLimits(time_s=0, memory_bytes=0))
        except OSError as exc:
            shutil.rmtree(self._folder, ignore_errors=True)
            msg = (
                "No process to load files in could be started; what it had to say stands on the error output. "
                "A program that asks for processes lies in a file and does so under `if __name__ == '__main__':`. "
                "Document(processes=0) does without."
            )
            raise IngestionError(msg) from exc

    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.is_alive()

    def load(self, request: Request) -> LoadedFile | None:
        """Load a file; None if something that reads it is not to be had in another process.

        Raises:
            LoadError: If it cannot be loaded, or exceeds a limit.
        """
        self.count += 1
        try:
            self._connection.send(request)
            answer: _Answer = self._wait(request.limits)
        except LoadError as exc:
            self.end()
            raise _failed(request, exc) from exc
        except OSError as exc:
            self.end()
            msg = "The process that loaded the file ended: its loader crashed, or the memory was not enough."
            raise _failed(request, msg) from exc
        except Exception as exc:
            raise _cannot_pass(request, exc) from exc
        if answer.lacks_memory:
            self.end()
            raise _failed(request, _too_much_memory(request.limits))
        if answer.error is not None:
            raise answer.error
        return answer.loaded

    def _wait(self, limits: LoadLimits) -> Any:
        """What it says next; an OSError if it ends instead, a LoadError if it takes too long or too much."""
        started = time.monotonic()
        # A process that it began may hold its end of the pipe: nothing but a look tells that it has ended.
        while not self._connection.poll(_LOOKED_AT_EVERY_S):
            if not self._process.is_alive() and not self._connection.poll():
                raise ConnectionResetError
            if limits.time_s is not None and time.monotonic() - started > limits.time_s:
                raise over_limit(f"Loading the file took longer than {limits.time_s:g} s", "time_s", limits.time_s)
            if limits.memory_bytes is not None and resident_bytes(self._process.pid) > limits.memory_bytes:
                raise _too_much_memory(limits)
        try:
            return self._connection.recv()
        except EOFError as exc:
            raise ConnectionResetError from exc

    def dismiss(self) -> None:
        """Tell it that no more files come."""
        self._connection.close()

    def end(self, *, within: float = 0.0) -> None:
        """Wait for it to end by itself, if so long; then end it, with the processes that it began."""
        self.dismiss()
        self._process.join(within)
        if self._process.is_alive():
            _kill(self._process.pid)
            self._process.kill()
            self._process.join()
        shutil.rmtree(self._folder, ignore_errors=True)


def _kill(pid: int | None) -> None:
    """Kill a process and those that it began, where the system has groups of them and it has come to lead one."""
    if pid is not None and hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) == pid:
                os.killpg(pid, signal.SIGKILL)


def resident_bytes(pid: int | None) -> int:
    """What a process has in memory; 0 where the system does not tell.

    Example:
        >>> resident_bytes(None)
        0
    """
    try:
        fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0


def _too_much_memory(limits: LoadLimits) -> LoadError:
    most = limits.memory_bytes or 0
    return over_limit(f"Loading the file took more than {most / (1 << 20):,.4g} MiB", "memory_bytes", most)


def portable(given: Any) -> bytes | None:
    """A reader, so that another process can have it; None for what only this one has.

    A function or class goes by its name, an instance by its class's and its attributes.
    """
    from multiprocessing.reduction import ForkingPickler
    from pickle import PicklingError

    named = given if hasattr(given, "__qualname__") else type(given)
    if named.__module__ == "__main__" or "<" in named.__qualname__:
        return None
    try:
        return bytes(ForkingPickler.dumps(given))
    except (PicklingError, TypeError, ValueError, AttributeError, LookupError, RuntimeError, OSError):
        return None


def importable_loaders() -> tuple[tuple[str, str | None], ...]:
    """Suffixes whose loaders are not built in, and where other processes can import them from; None for nowhere."""
    found: list[tuple[str, str | None]] = []
    for suffix in loaders:
        if is_built_in(suffix):
            continue
        target = loaders.target(suffix)
        if target is None:
            loader = loaders[suffix]
            is_there = loader.__module__ != "__main__" and "<" not in loader.__qualname__
            target = f"{loader.__module__}:{loader.__qualname__}" if is_there else None
        found.append((suffix, target))
    return tuple(found)


def _cannot_pass(request: Request, error: Exception) -> LoadError:
    told = sentence(f"{type(error).__name__}: {error}")
    msg = (
        f"{request.loader}, or what it gives, cannot pass between processes: {told} Document(processes=0) does without."
    )
    return _failed(request, msg)


def _failed(request: Request, message: object) -> LoadError:
    return LoadError(str(message), path=request.path, loader=request.loader)


# What follows runs in the other process.


class _OnlyThere(BaseException):
    """Something that reads the file, or one within it, is to be had only in the process that asks.

    No Exception: nothing between here and `_answer` may take it for a failure of the file.
    """


class _OnlyThereLoader:
    """Stands for a loader that cannot be imported here."""

    def load(self, path: Path) -> NoReturn:
        raise _OnlyThere(path)


def _serve(connection: Connection, folder: str) -> None:
    """Say that this process is there, then load what is asked for, until nobody asks any longer."""
    from multiprocessing.reduction import ForkingPickler

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches all processes of a terminal; who asks decides
    if hasattr(os, "setsid"):
        with suppress(OSError):
            os.setsid()  # whoever kills this process kills those that it began
    tempfile.tempdir = folder
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    connection.send(None)
    while True:
        try:
            request: Request = connection.recv()
        except (EOFError, OSError):
            return
        try:
            data = ForkingPickler.dumps(_answer(request))
        except Exception as exc:  # noqa: BLE001  told to who asked
            data = ForkingPickler.dumps(_Answer(error=_cannot_pass(request, exc)))
        connection.send_bytes(data)


def _end_with(parent: int) -> None:
    """End this process when the one that asks is gone, be it in the midst of a file that never ends."""
    while os.getppid() == parent:
        time.sleep(_LOOKS_AFTER_PARENT_EVERY_S)
    os._exit(1)


def _answer(request: Request) -> _Answer:
    """A file, loaded by what reads it in the process that asks."""
    for suffix, target in request.table.loaders:
        if target is None:
            loaders.register(suffix, _OnlyThereLoader, replace=True)
        elif loaders.target(suffix) != target:
            loaders.declare(suffix, target, replace=True)
    _limit_memory(request.limits.memory_bytes)

    def find(*names: str) -> FileReader | None:
        return next((_unpacked(*one) for one in request.table.readers if reads(one[0], names)), None)

    try:
        limits = replace(request.limits, time_s=None, memory_bytes=None)
        return _Answer(load_file(request.path, name=request.name, limits=limits, readers=find))
    except _OnlyThere:
        return _Answer()
    except LoadError as exc:
        return _Answer(error=exc, lacks_memory=isinstance(exc.__cause__, MemoryError))
    except MemoryError:
        return _Answer(lacks_memory=True)


def _unpacked(pattern: str, packed: bytes | None) -> FileReader:
    from multiprocessing.reduction import ForkingPickler

    if packed is None:
        return as_reader(pattern, _OnlyThereLoader)
    return as_reader(pattern, ForkingPickler.loads(packed))


def _limit_memory(most: int | None) -> None:
    """Have the system refuse what goes beyond the limit, where it can: looks from time to time find it later.

    Not for the default limit: programs that a loader begins inherit it, and some reserve far more than they use.
    """
    try:
        import resource

        sizes = Path("/proc/self/statm").read_text(encoding="ascii").split()
    except (ImportError, OSError):
        return
    page = os.sysconf("SC_PAGE_SIZE")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    unused = (int(sizes[0]) - int(sizes[1])) * page  # addresses that take no memory
    soft = hard if most in (None, DEFAULT_LIMITS.memory_bytes) else unused + (most or 0)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


_ENDS_WITHIN_S = 5.0  # an idle process, when nobody asks it for anything any longer


class Loading:
    """Calls readers and loaders, in processes of its own where that is asked for and they can be imported there.

    A process that ends while it loads (a parser that crashes, or eats all memory) fails its file, and no other one:
    each has one file at a time, and a pipe of its own. (What breaks a `concurrent.futures.ProcessPoolExecutor` fails
    the files of all its processes, and can leave the program waiting for one that was about to start.) So does one that
    exceeds its time or memory, and is killed for it.

    Args:
        processes: How many; 0 for none.
        limits: What one file may take.
        readers: What the user named for files of certain names.
    """

    def __init__(self, processes: int = 0, limits: LoadLimits = DEFAULT_LIMITS, readers: Readers | None = None) -> None:
        self.processes = processes
        self.readers = readers or Readers()
        self._limits = limits
        self._idle: LifoQueue[LoadingProcess | None] | None = None  # None for one that is yet to start
        self._table = ReaderTable()

    @contextmanager
    def running(self, count: int) -> Iterator[None]:
        """Have processes ready for so many files, as far as they are wanted; each starts when it is needed."""
        if not self.processes or not count or self._idle is not None:
            yield
            return
        self._table = ReaderTable(
            tuple((one.pattern, portable(one.given)) for one in self.readers.all()), importable_loaders()
        )
        idle: LifoQueue[LoadingProcess | None] = LifoQueue()
        for _ in range(self.processes):
            idle.put(None)
        self._idle = idle
        try:
            yield
        finally:
            self._idle = None
            started = [process for process in idle.queue if process is not None]
            for process in started:
                process.dismiss()
            for process in started:
                process.end(within=_ENDS_WITHIN_S)

    def load(self, file: FoundFile) -> LoadedFile:
        """Load a file; see `lazyrag.loaders.base.load_file`.

        Raises:
            LoadError: If it cannot be loaded, or exceeds a limit.
            IngestionError: If a process is wanted, and none can be started.
        """
        idle = self._idle
        if idle is None or not self._is_for_processes(file):
            return self._load_here(file)
        process = idle.get()
        try:
            if process is None or not process.is_alive():
                process = None
                process = LoadingProcess()
            request = Request(str(file.path), file.identity, self._name_of(file), self._limits, self._table)
            loaded = process.load(request)
        except BaseException as exc:
            if process is not None and not isinstance(exc, LoadError):
                process.end()  # an answer that nobody waits for any longer may be on its way
            raise
        finally:
            most = self._limits.files_per_process
            if process is not None and most is not None and process.count >= most:
                process.end(within=_ENDS_WITHIN_S)
                process = None
            idle.put(process)
        return self._load_here(file) if loaded is None else loaded

    def _is_for_processes(self, file: FoundFile) -> bool:
        """Whether what reads a file can be imported elsewhere, as far as its name tells."""
        names = file.identity, file.path.name
        for pattern, packed in self._table.readers:
            if reads(pattern, names):
                return packed is not None
        return dict(self._table.loaders).get(known_suffix(file.path), "") is not None

    def _name_of(self, file: FoundFile) -> str:
        """What reads a file, as far as its name tells."""
        named = self.readers.find(file.identity, file.path.name)
        if named is not None:
            return named.reader().name
        suffix = known_suffix(file.path)
        if suffix not in loaders:
            return "its loader"
        target = loaders.target(suffix)
        return target.rpartition(":")[2].rpartition(".")[2] if target else loaders[suffix].__name__

    def _load_here(self, file: FoundFile) -> LoadedFile:
        return load_file(file.path, name=file.identity, limits=self._limits, readers=self._find)

    def _find(self, *names: str) -> FileReader | None:
        named = self.readers.find(*names)
        return None if named is None else named.reader()
