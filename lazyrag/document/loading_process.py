"""Another process that loads files, within limits of time and memory."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from lazyrag.document.readers import as_reader, reads
from lazyrag.errors import IngestionError, LoadError, sentence
from lazyrag.loaders.base import LoadedFile, is_built_in, load_file, loaders
from lazyrag.loaders.limits import DEFAULT_LIMITS, FileReader, LoadLimits, over_limit

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

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
