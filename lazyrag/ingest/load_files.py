"""Load files: which reader loads which file, in this process or in others."""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import inspect
import itertools
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias, TypeVar, cast, overload
from weakref import WeakKeyDictionary

from lazyrag.data.pictures import PICTURES
from lazyrag.data.segment import IMAGE, Segment
from lazyrag.errors import ConfigError, LazyRAGError, LoaderEndedError, LoadError, set_stop_event
from lazyrag.groups.fingerprint import Fingerprint, fingerprint
from lazyrag.loaders.base import (
    DEFAULT_LIMITS,
    DataLoader,
    FileReader,
    Loadable,
    LoadedFile,
    LoadLimits,
    call_loader,
    is_built_in,
    known_suffix,
    load_file,
    loaders,
    packed_file,
    read_within,
    unpacked_file,
)
from lazyrag.loaders.directory import FoundFile, signature_of
from lazyrag.loaders.process import ChildProcess
from lazyrag.progress.blocks import contextmanager
from lazyrag.types import JsonObject, Metadata
from lazyrag.validation import known_keywords, require

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future, ThreadPoolExecutor
    from queue import LifoQueue

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 4  # items for each worker that may be done before their results are read
# handing an item over costs a few tenths of a millisecond when Python does the work
_WORTH_A_THREAD_S = 0.002
_SURELY_WORTH_ONE_S = 0.05

_owners = threading.local()
_stop_events: WeakKeyDictionary[Executor, threading.Event] = WeakKeyDictionary()


def _set_up(owner: object, stopping: threading.Event) -> None:
    _owners.owner = owner
    set_stop_event(stopping)


@contextmanager
def worker_pool(workers: int, count: int, owner: object) -> Iterator[ThreadPoolExecutor | None]:
    """Threads for several items, or None; stopped at once when the body raises."""
    if workers == 1 or count < 2:
        yield None
        return
    from concurrent.futures import ThreadPoolExecutor  # 8 ms, which a start without changes saves

    stopping = threading.Event()
    executor = ThreadPoolExecutor(
        workers, "lazyrag ingestion", initializer=_set_up, initargs=(owner, stopping)
    )
    _stop_events[executor] = stopping
    try:
        yield executor
    except BaseException:
        stopping.set()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def is_worker_of(owner: object) -> bool:
    """Whether this thread is a worker of an owner, see `worker_pool`."""
    return getattr(_owners, "owner", None) is owner


def map_in_order(
    executor: Executor | None, workers: int, function: Callable[[T], R], items: Iterable[T]
) -> Iterator[tuple[T, R | Exception]]:
    """Yield each item with the function's result, or the exception that it raised, in the items'
    order.

    Items are processed here, one after the other, until threads pay: until one takes very long, or
    two in a row take long (a single one may have met the garbage collector). Only a few results
    wait to be read, so memory is bounded. On an interrupt, items that were not begun are dropped,
    and those that were begun are finished before the interrupt continues, unless they check
    `lazyrag.errors` and stop.

    Args:
        executor: Its workers call the function; None for none.
        workers: How many it has.
        function: Called with each item, by several workers at once.
        items: Any number.

    Example:
        >>> list(map_in_order(None, 1, lambda n: 6 // n, [3, 0]))
        [(3, 2), (0, ZeroDivisionError('integer division or modulo by zero'))]
    """
    rest = iter(items)
    was_long = False
    for item in rest:
        since = time.perf_counter()
        try:
            result: R | Exception = function(item)
        except Exception as exc:  # noqa: BLE001  it is the item's result
            result = exc
        took = time.perf_counter() - since
        is_long = took > _WORTH_A_THREAD_S
        yield item, result
        if executor is not None and (took > _SURELY_WORTH_ONE_S or (is_long and was_long)):
            yield from _map_in_threads(executor, workers, function, rest)
        was_long = is_long


def _map_in_threads(
    executor: Executor, workers: int, function: Callable[[T], R], items: Iterator[T]
) -> Iterator[tuple[T, R | Exception]]:
    waiting: deque[tuple[T, Future[R]]] = deque()
    interrupt: BaseException | None = None
    try:
        while True:
            try:
                for item in itertools.islice(items, _AHEAD * workers - len(waiting)):
                    waiting.append((item, executor.submit(function, item)))
                if not waiting:
                    break
                result = _result(waiting[0][1])
            except BaseException as exc:
                if interrupt is None:
                    interrupt = exc
                elif not (waiting and _raised(waiting[0][1], exc)):
                    raise  # somebody insists
                items = iter(())  # no more are begun
                if executor in _stop_events:
                    _stop_events[executor].set()
                # cancel what was not begun, and drop what the interrupt ended
                waiting = deque(
                    pair for pair in waiting if not (pair[1].cancel() or _raised(pair[1], exc))
                )
                continue
            item, _ = waiting.popleft()
            yield item, result
    finally:
        for _, future in waiting:
            future.cancel()
    if interrupt is not None:
        raise interrupt


def _result(future: Future[R]) -> R | Exception:
    try:
        return future.result()
    except Exception as exc:  # noqa: BLE001  it is the item's result
        return exc


def _raised(future: Future[R], exc: BaseException) -> bool:
    """Whether an interrupt reached the worker that had this item, not the thread that waits."""
    return future.done() and future.exception() is exc


ReaderLike: TypeAlias = "Callable[[Path], Loadable] | type[DataLoader] | DataLoader"
"""A function of a file's path, a loader class without arguments, or a loader."""

Reader = TypeVar("Reader", bound="Callable[[Path], Loadable] | type[DataLoader] | DataLoader")

_NO_SUFFIX = frozenset("*?[/")  # characters of other patterns
_MAX_OPTIONAL = 4  # of ``**/`` in a pattern that may match no folder
_CONTAINERS = frozenset(
    f"lazyrag.loaders.{target}"
    for target in ("mail:EmlLoader", "mail:MboxLoader", "msg:MsgLoader", "archives:ZipLoader")
)
"""Loaders of files that contain other files, which readers apply to as well."""

_FIRST_MODULES: Mapping[str, str] = {
    "CsvLoader": "delimited",
    "DocxLoader": "docx",
    "EpubLoader": "epub",
    "JsonLinesLoader": "json_records",
    "JsonLoader": "json_records",
    "MarkdownLoader": "markdown",
    "NotebookLoader": "notebook",
    "OldOfficeLoader": "old_office",
    "PptxLoader": "pptx",
    "PythonLoader": "source",
    "RstLoader": "rst",
    "RtfLoader": "rtf",
    "SourceLoader": "source",
    "TextLoader": "plain",
    "XlsLoader": "xls",
    "XlsxLoader": "xlsx",
    "XmlLoader": "markup",
    "ZipLoader": "zipped",
}
"""Modules of loaders in the first release, by which ledgers name them: no file is loaded again
where one has moved."""


@dataclass(frozen=True, slots=True)
class NamedReader:
    """A user's reader for files of certain names.

    Args:
        pattern: Pattern of their names.
        user_reader: The user's function, loader or loader class.
        fingerprint: Its fingerprint.
        version: The user's version.
    """

    pattern: str
    user_reader: Any
    fingerprint: Fingerprint
    version: str | None = None

    @property
    def identity(self) -> str:
        """Distinguishes it from other readers of the same files."""
        return f"reader {self.fingerprint.value} {self.version or ''}"

    def reader(self) -> FileReader:
        """Return the reader as a function of one file."""
        return as_reader(self.pattern, self.user_reader)


def as_reader(pattern: str, user_reader: Any) -> FileReader:
    """Return the function that loads a file: a loader's method, a new instance's method, or the
    function itself.
    """
    name = getattr(user_reader, "__name__", type(user_reader).__name__)
    if isinstance(user_reader, type):
        return FileReader(name, lambda path: call_loader(user_reader(), path), pattern)
    has_load = callable(getattr(user_reader, "load", None))
    load = functools.partial(call_loader, user_reader) if has_load else user_reader
    return FileReader(name, load, pattern)


class Readers:
    """Readers by pattern, which take precedence over those of a base: a class's for an instance.

    Args:
        base: Readers to fall back to.
    """

    def __init__(self, base: Readers | None = None) -> None:
        self._base = base
        self._lock = threading.Lock()
        self._suffixes: dict[str, NamedReader] = {}
        self._patterns: tuple[NamedReader, ...] = ()  # the newest first

    def add(self, reader: NamedReader) -> None:
        """Add a reader, replacing one of the same pattern."""
        suffix = _suffix_of(reader.pattern)
        with self._lock:
            if suffix:
                self._suffixes = {**self._suffixes, suffix: reader}
            else:
                others = [other for other in self._patterns if other.pattern != reader.pattern]
                self._patterns = (reader, *others)

    def find(self, *names: str) -> NamedReader | None:
        """Return the reader of a file: the first of `all` that matches one of its names.

        Args:
            names: Its names: relative to its dataset or archive, and its own.
        """
        if not (self._suffixes or self._patterns):  # nearly always
            return None if self._base is None else self._base.find(*names)
        return next((reader for reader in self.all() if matches(reader.pattern, names)), None)

    def all(self) -> list[NamedReader]:
        """Return all readers: by suffix, the longest first; by pattern, the newest first; then the
        base's.
        """
        suffixes = sorted(self._suffixes, key=len, reverse=True)
        readers = [self._suffixes[suffix] for suffix in suffixes]
        readers += self._patterns
        if self._base is not None:
            readers += self._base.all()
        return readers


class AddReader(Protocol):
    """Type of `Document.add_reader`: a call, or a decorator factory."""

    @overload
    def __call__(self, pattern: str, func: Reader, *, version: str | None = None) -> Reader: ...
    @overload
    def __call__(
        self, pattern: str, func: None = None, *, version: str | None = None
    ) -> Callable[[Reader], Reader]: ...


@known_keywords
def add_reader(
    self_or_class: Any,
    /,
    pattern: str,
    func: ReaderLike | None = None,
    *,
    version: str | None = None,
) -> Any:
    """Set the reader of files of certain names, instead of the loader that is registered for their
    suffix.

    Called on the class, it applies to every Document; called on an instance, to that one, where it
    takes precedence. Suffixes take precedence over patterns, longer suffixes over shorter ones,
    newer patterns over older ones; the same pattern again replaces its reader. The next sync loads
    the affected files again.

    Args:
        self_or_class: The Document, or its class.
        pattern: A suffix, ``"*.log"`` or ``".log"``; or a pattern as of `fnmatch`,
            ``"notes/*.txt"``, for a file's path relative to the dataset, or its name. Case does not
            matter.
        func: A function of the file's `pathlib.Path` that returns its text, or another result of a
            loader; a loader class without arguments, or an instance. None returns a decorator.
        version: Distinguishes readers that look the same: the version of a model, of a program.

    Returns:
        ``func`` unchanged; a decorator without it.

    Raises:
        ConfigError: If the pattern is invalid, or ``func`` cannot read files.

    Example:
        >>> from lazyrag import Document
        >>> docs = Document()
        >>> @docs.add_reader("*.motd")
        ... def read_motd(path):
        ...     return path.read_text(encoding="utf-8")
    """
    is_pattern = isinstance(pattern, str) and bool(pattern.strip()) and pattern != "."
    require(
        is_pattern,
        "pattern",
        pattern,
        "a suffix such as '*.log' or '.log', or a pattern such as 'notes/*.txt'",
    )
    if f".{pattern.lower()}" in loaders:
        msg = (
            f"add_reader got the pattern {pattern!r}, which only a file of that complete name"
            " matches."
        )
        raise ConfigError(
            f"{msg} Pass '.{pattern.lower()}' for the suffix, or '**/{pattern}' for the name."
        )
    require(version is None or isinstance(version, str), "version", version, "a text or None")

    def add(reader: Reader) -> Reader:
        _validate_reader(pattern, reader)
        self_or_class._file_readers.add(NamedReader(pattern, reader, fingerprint(reader), version))
        return reader

    return add if func is None else add(func)


def _validate_reader(pattern: str, reader: Any) -> None:
    load = getattr(reader, "load", None)
    name = f"The reader of {pattern!r}"
    if isinstance(reader, type) and callable(load):
        required = [
            name
            for name, parameter in inspect.signature(reader).parameters.items()
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        if required:
            msg = f"{name} is the class {reader.__name__}, which needs {', '.join(required)}."
            raise ConfigError(f"{msg} Pass an instance: {reader.__name__}({required[0]}=...).")
    else:
        is_reader = not isinstance(reader, type) and (callable(load) or callable(reader))
        require(
            is_reader,
            name,
            reader,
            "a function of the path, a loader class with load(self, path), or an instance",
        )
    is_async = inspect.iscoroutinefunction(reader) or inspect.iscoroutinefunction(load)
    require(not is_async, name, reader, "a function that is not asynchronous")


def _first_target(target: str | None) -> str | None:
    """The target of a loader in the first release."""
    module, _, name = (target or "").partition(":")
    first = _FIRST_MODULES.get(name) if module.startswith("lazyrag.loaders.") else None
    return f"lazyrag.loaders.{first}:{name}" if first else target


def loader_identities(readers: Readers) -> Callable[[FoundFile], str]:
    """Return a function from a file to the identity of its reader or loader.

    Nothing is imported. Files with an unknown suffix are sniffed as in loading; sniffing all files
    would take too long, so a file whose content contradicts its suffix is identified by its suffix.
    """
    named = readers.all()
    inside = " ".join(("", *(f"{reader.pattern} {reader.identity}" for reader in named)))

    @functools.cache
    def of_suffix(suffix: str) -> str:
        if suffix not in loaders:
            return suffix
        target = loaders.target(suffix)
        nested = inside if target in _CONTAINERS else ""
        return f"{suffix} {_first_target(target) or fingerprint(loaders[suffix]).value}{nested}"

    def of_file(file: FoundFile) -> str:
        name = os.path.basename(file.raw_path)  # noqa: PTH119  a Path takes 5 us
        for reader in named:
            if matches(reader.pattern, (file.identity, name)):
                return reader.identity
        suffix = known_suffix(name)
        if suffix in loaders:
            return of_suffix(suffix)
        # slow to import, and few files have an unknown suffix
        from lazyrag.loaders.detect import sniff

        try:
            sniffed = sniff(file.path)
        except OSError:  # loading reports it
            return suffix
        if sniffed is not None and sniffed.suffix in loaders and sniffed.decides(suffix):
            return f"{suffix} as {of_suffix(sniffed.suffix)}"
        return suffix

    return of_file


def matches(pattern: str, names: Iterable[str]) -> bool:
    """Whether a pattern matches one of a file's names.

    Case does not matter, and ``**/`` matches any folders or none.

    Example:
        >>> matches("*.log", ["a/b.LOG"]), matches("a/**/b.*", ["a/b.log"])
        (True, True)
        >>> matches("a/*", ["b.log"])
        False
    """
    suffix = _suffix_of(pattern)
    for name in map(str.lower, names):
        file_name = name.rpartition("/")[2]
        if suffix:
            if file_name.endswith(suffix) and file_name != suffix:
                return True
            continue
        for variant in _variants(pattern.lower()):
            if fnmatch.fnmatchcase(name, variant) or fnmatch.fnmatchcase(file_name, variant):
                return True
    return False


@functools.lru_cache(maxsize=256)
def _variants(pattern: str) -> tuple[str, ...]:
    """Return a pattern with and without each of its ``**/``."""
    first, *rest = re.split(r"(?<![^/])\*\*/", pattern, maxsplit=_MAX_OPTIONAL)
    variants = [first]
    for piece in rest:
        with_folders = [f"{variant}**/{piece}" for variant in variants]
        variants = with_folders + [f"{variant}{piece}" for variant in variants]
    return tuple(variants)


def _suffix_of(pattern: str) -> str:
    """Return the suffix that a pattern matches, in lower case; "" for other patterns."""
    suffix = pattern.removeprefix("*").lower()
    is_suffix = suffix.startswith(".") and _NO_SUFFIX.isdisjoint(suffix)
    return suffix if is_suffix else ""


def parse_loading(text: str | None) -> JsonObject:
    """Arguments of a Document for ``--loading``: by default, one process loads files within the
    default limits.

    Raises:
        ConfigError: If the text is not a list of ``processes=`` and of limits.

    Example:
        >>> parse_loading("processes=2,time_s=60")["limits"].processes
        2
    """
    values: JsonObject = {}
    for pair in filter(None, (text or "").split(",")):
        name, _, value = pair.partition("=")
        try:
            values[name.strip()] = int(value)
        except ValueError as exc:
            expected = "pairs such as 'processes=2,time_s=60,memory_bytes=1000000000'"
            raise ConfigError(f"loading must be {expected}; got {text!r}.") from exc
    return {"limits": LoadLimits(**{"processes": 1, **values})}


TRIES = 3
"""How often a file is loaded whose loader ends its process."""
_TRY_AGAIN_S = 30.0  # a loader that took longer is not called again
_SERVER = "lazyrag.ingest.load_files:FileServer"
_QUARANTINED = (
    "Quarantined: {} A sync reads the file again when its bytes, its reader or the limits change. "
    "Retry it with sync(retry=True)."
)


class Loading:
    """Calls readers and loaders, in separate processes if requested and if they can be imported
    there.

    A process that ends while it loads (a parser that crashes or exhausts memory) fails only its own
    file: each process has one file at a time. So does one that exceeds its time or memory, which is
    killed.

    Args:
        processes: Number of processes; 0 for none, except for PDF files.
        limits: Limits of one file.
        readers: The user's readers.
    """

    def __init__(
        self,
        processes: int = 0,
        limits: LoadLimits = DEFAULT_LIMITS,
        readers: Readers | None = None,
    ) -> None:
        self.processes = processes
        self.readers = readers or Readers()
        self.limits = limits
        # None for a process that is not started yet
        self._idle: LifoQueue[ChildProcess | None] | None = None
        self._warm: list[ChildProcess] = []  # between two runs
        self._users = 0  # operations that keep them
        # for the processes: patterns with pickled readers, and suffixes with paths of loaders
        self._sent_readers: list[tuple[str, str | None]] = []
        self._sent_loaders: dict[str, str | None] = {}
        # by a launcher, before they are needed
        self.loaded: dict[FoundFile, LoadedFile | LazyRAGError] = {}

    @contextmanager
    def running(self, count: int) -> Iterator[None]:
        """Keep processes for a number of files; each starts when it is needed."""
        if not self.processes or not count:
            yield
            return
        from queue import LifoQueue

        readers = [(reader.pattern, portable(reader.user_reader)) for reader in self.readers.all()]
        self._sent_readers = [
            (pattern, pickled.hex() if pickled else None) for pattern, pickled in readers
        ]
        self._sent_loaders = dict(importable_loaders())
        idle = self._idle
        if idle is None:
            idle = self._idle = LifoQueue()
            for _ in range(self.processes):
                idle.put(self._warm.pop() if self._warm else None)
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._idle = None
                self._warm += [
                    process for process in idle.queue if process is not None and process.keep()
                ]

    def close(self) -> None:
        """End the processes."""
        while self._warm:
            self._warm.pop().end()

    def load(self, file: FoundFile, *, source: bool | str = False) -> LoadedFile:
        """Load a file, or its source; see `lazyrag.loaders.base.load_file`.

        Raises:
            LoadError: If it cannot be loaded, or exceeds a limit.
            LoaderEndedError: If its loader ends each process that calls it.
            IngestionError: If no process can be started.
        """
        loaded = None if source else self.loaded.pop(file, None)
        if loaded is not None and signature_of(file.path) == file.signature:
            if isinstance(loaded, Exception):
                raise loaded
            return loaded
        load = (
            self._load_there
            if self.is_running and self._is_for_processes(file)
            else self._load_here
        )
        started = time.monotonic()
        for tries in range(1, TRIES + 1):
            try:
                return load(file, source)
            except LoaderEndedError as exc:
                if tries == TRIES or time.monotonic() - started > _TRY_AGAIN_S:
                    loader = exc.loader or self._name_of(file)
                    raise LoaderEndedError(
                        _QUARANTINED.format(exc), path=str(file.path), loader=loader
                    ) from exc
        raise AssertionError

    def _load_there(self, file: FoundFile, source: bool | str) -> LoadedFile:  # noqa: FBT001
        """Load a file in a process, unless its reader exists only here."""
        request = {
            "path": str(file.path),
            "name": file.identity,
            "source": source,
            "limits": asdict(self.limits),
        }
        with self._process() as process:
            packed = process.call(
                "load",
                request,
                self._sent_readers,
                [*self._sent_loaders.items()],
                limits=self.limits,
            )
        return self._load_here(file, source) if packed is None else unpacked_file(packed)

    @contextmanager
    def _process(self) -> Iterator[ChildProcess]:
        """A process that nothing else uses."""
        idle = cast("LifoQueue[ChildProcess | None]", self._idle)
        process = idle.get()
        try:
            if process is None or not process.reserve():
                process = None
                process = ChildProcess(_SERVER)
            yield process
        finally:
            most = self.limits.files_per_process
            if process is not None and (
                not process.is_alive or (most is not None and process.count >= most)
            ):
                process.end()
                process = None
            idle.put(process)

    def call(self, function: Callable[..., T], /, *args: Any) -> T:
        """Call an importable function in a process.

        Raises:
            OSError: If the process ends before the function does.
        """
        from multiprocessing.reduction import ForkingPickler

        try:
            with self._process() as process:
                return cast(
                    "T", process.call("call", data=bytes(ForkingPickler.dumps((function, *args))))
                )
        except LoaderEndedError as exc:
            raise ConnectionResetError from exc

    @property
    def is_running(self) -> bool:
        """Whether there are processes, see `running`."""
        return self._idle is not None

    def _is_for_processes(self, file: FoundFile) -> bool:
        """Whether the reader of a file, judged by its name, can be imported in another process."""
        names = file.identity, file.path.name
        for pattern, pickled in self._sent_readers:
            if matches(pattern, names):
                return pickled is not None
        return self._sent_loaders.get(known_suffix(file.path.name), "") is not None

    def _name_of(self, file: FoundFile) -> str:
        """Return the name of a file's reader, judged by the file's name."""
        named = self.find(file.identity, file.path.name)
        if named is not None:
            return named.name
        suffix = known_suffix(file.path.name)
        if suffix not in loaders:
            return "its loader"
        target = loaders.target(suffix)
        return target.rpartition(":")[2].rpartition(".")[2] if target else loaders[suffix].__name__

    def loader_of(self, identity: str, metadata: Metadata) -> tuple[str, Any]:
        """The suffix by which a document was read, and its loader or reader.

        Args:
            identity: The document's.
            metadata: Of its root node.
        """
        name = Path(str(metadata.get("file_name", identity))).name
        named = self.readers.find(identity, name)
        suffix = str(metadata.get("read_as") or known_suffix(name))
        if named is not None:
            return suffix, named.user_reader
        return suffix, loaders[suffix] if suffix in loaders else None  # noqa: SIM401  not a dict

    def has_source(
        self,
        identity: str,
        metadata: Metadata,
        kind: bool | str,  # noqa: FBT001  of a transform
    ) -> bool:
        """Whether a document's text is not that of its file, see `loader_of`; or whether its file
        may have pictures.

        Its loader renders the text, or reads files inside of the file.
        """
        suffix, loader = self.loader_of(identity, metadata)
        if kind != PICTURES:
            return hasattr(loader, "load_source")
        from lazyrag.loaders.pictures import has_pictures

        return has_pictures(suffix)

    def picture(self, path: Path, root: Segment, node: Segment) -> bytes:
        """Read the picture of a node of the group ``image`` from its document's file."""
        from lazyrag.loaders.pictures import read_picture

        suffix, loader = self.loader_of(root.path, root.metadata)
        with read_within(self.limits, self.find):
            image = node.metadata[IMAGE]
            location = str(image.get("place", ""))
            data = read_picture(path, suffix, location, loader)
        # those of a PDF are converted
        if suffix != ".pdf" and hashlib.sha256(data).hexdigest() != str(image.get("sha256", "")):
            problem = (
                f"The picture {location!r:.100} of {path.name!r} is not the one that was ingested"
            )
            raise LoadError(
                f"{problem}: the file beside the page has changed. Change the page, too, and call"
                " sync()."
            )
        return data

    def _load_here(self, file: FoundFile, source: bool | str) -> LoadedFile:  # noqa: FBT001
        return load_file(
            file.path, name=file.identity, limits=self.limits, readers=self.find, source=source
        )

    def find(self, *names: str) -> FileReader | None:
        """Return the user's reader for a file's names; None without one."""
        named = self.readers.find(*names)
        return None if named is None else named.reader()


def portable(reader: Any) -> bytes | None:
    """Return a reader pickled for another process; None if it cannot be imported there."""
    from multiprocessing.reduction import ForkingPickler
    from pickle import PicklingError

    named = reader if hasattr(reader, "__qualname__") else type(reader)
    if named.__module__ == "__main__" or "<" in named.__qualname__:
        return None
    try:
        return bytes(ForkingPickler.dumps(reader))
    except (
        PicklingError,
        TypeError,
        ValueError,
        AttributeError,
        LookupError,
        RuntimeError,
        OSError,
    ):
        return None


def importable_loaders() -> tuple[tuple[str, str | None], ...]:
    """Return the suffixes of loaders that are not built in, with their import paths; None for no
    path.
    """
    targets = []
    for suffix in loaders:
        if is_built_in(suffix):
            continue
        target = loaders.target(suffix)
        if target is None:
            loader = loaders[suffix]
            is_there = loader.__module__ != "__main__" and "<" not in loader.__qualname__
            target = f"{loader.__module__}:{loader.__qualname__}" if is_there else None
        targets.append((suffix, target))
    return tuple(targets)


# The rest runs in the loading process.


class _OnlyInParent(BaseException):
    """The reader of the file, or of one inside it, exists only in the parent process.

    Not an Exception: nothing between here and `FileServer` may mistake it for a failure of the
    file.
    """


class _ParentLoader:
    """Placeholder of a loader that cannot be imported here."""

    def load(self, path: Path) -> NoReturn:
        raise _OnlyInParent(path)


class FileServer:
    """Loads files by the readers and loaders of the parent process."""

    def load(
        self,
        request: JsonObject,
        readers: Sequence[tuple[str, str | None]],
        table: Sequence[tuple[str, str | None]],
    ) -> list[Any] | None:
        """Load a file; None if its reader exists only in the parent process."""
        for suffix, target in table:
            if target is None:
                loaders.register(suffix, _ParentLoader, replace=True)
            elif suffix not in loaders or loaders.target(suffix) != target:
                loaders.declare(suffix, target, replace=True)
        limits = LoadLimits(**request.pop("limits"))
        _limit_memory(limits.memory_bytes)

        def find(*names: str) -> FileReader | None:
            for pattern, pickled in readers:
                if matches(pattern, names):
                    reader = _unpickle(bytes.fromhex(pickled)) if pickled else _ParentLoader
                    return as_reader(pattern, reader)
            return None

        try:
            return packed_file(load_file(**request, limits=limits, readers=find))
        except _OnlyInParent:
            return None

    def call(self, data: bytes) -> Any:
        """Call a function of the parent process."""
        function, *args = _unpickle(data)
        return function(*args)


def _unpickle(data: bytes) -> Any:
    from multiprocessing.reduction import ForkingPickler

    return ForkingPickler.loads(data)


def _limit_memory(most: int | None) -> None:
    """Let the operating system enforce the memory limit if it can; polling detects an excess later.

    Not for the default limit: subprocesses of loaders inherit it, and some reserve far more than
    they use.
    """
    try:
        import resource

        sizes = Path("/proc/self/statm").read_text(encoding="ascii").split()
    except (ImportError, OSError):
        return
    page = os.sysconf("SC_PAGE_SIZE")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    unused = (int(sizes[0]) - int(sizes[1])) * page  # reserved addresses
    soft = hard if most in (None, DEFAULT_LIMITS.memory_bytes) else unused + (most or 0)
    with suppress(ValueError, OSError):
        resource.setrlimit(
            resource.RLIMIT_AS, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard)
        )
