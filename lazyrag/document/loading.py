"""Loading files, in this process or in others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from queue import LifoQueue

from lazyrag.document.loading_process import LoadingProcess, ReaderTable, Request, importable_loaders, portable
from lazyrag.document.readers import Readers, reads
from lazyrag.errors import LoadError
from lazyrag.loaders.base import LoadedFile, known_suffix, load_file, loaders
from lazyrag.loaders.directory import FoundFile
from lazyrag.loaders.limits import DEFAULT_LIMITS, FileReader, LoadLimits

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
