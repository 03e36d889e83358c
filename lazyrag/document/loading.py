"""Loading files, in this process or in others."""

from __future__ import annotations

import importlib
import operator
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import LifoQueue
from typing import TYPE_CHECKING, Any

from lazyrag.errors import IngestionError, LoadError, sentence
from lazyrag.loaders.base import LoadedFile, known_suffix, load_file, loaders

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_LOOKED_AT_EVERY_S = 0.5
_ENDS_WITHIN_S = 5.0  # an idle process, when nobody asks it for anything any longer


class Loading:
    """Calls loaders, in processes of its own where that is asked for and their classes can be imported there.

    A process that ends while it loads (a parser that crashes, or eats all memory) fails its file, and no other one:
    each has one file at a time, and a pipe of its own. (What breaks a `concurrent.futures.ProcessPoolExecutor` fails
    the files of all its processes, and can leave the program waiting for one that was about to start.)

    Args:
        processes: How many; 0 for none.
    """

    def __init__(self, processes: int = 0) -> None:
        self.processes = processes
        self._idle: LifoQueue[_LoadingProcess | None] | None = None  # None for one that is yet to start

    @contextmanager
    def running(self, count: int) -> Iterator[None]:
        """Have processes ready for so many files, as far as they are wanted."""
        if not self.processes or count < 2 or self._idle is not None:
            yield
            return
        idle: LifoQueue[_LoadingProcess | None] = LifoQueue()
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

    def load(self, path: Path) -> LoadedFile:
        """Load a file; see `lazyrag.loaders.base.load_file`.

        Raises:
            LoadError: If it cannot be loaded.
            IngestionError: If a process is wanted, and none can be started.
        """
        idle = self._idle
        place = _place_of_loader(path) if idle is not None else None
        if idle is None or place is None:
            return load_file(path)
        process = idle.get()
        try:
            if process is None or not process.is_alive():
                process = None
                process = _LoadingProcess()
            return process.load(place, path)
        except BaseException as exc:
            if process is not None and not isinstance(exc, LoadError):
                process.end()  # an answer that nobody waits for any longer may be on its way
            raise
        finally:
            idle.put(process)


class _LoadingProcess:
    """Another process, which loads one file after the other.

    Raises:
        IngestionError: If it does not start.
    """

    def __init__(self) -> None:
        import multiprocessing  # which few programs need, and all would wait for

        # A fork would copy locks that other threads hold.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,))
        try:
            with theirs:
                self._process.start()
            self._answer()
        except OSError as exc:
            msg = (
                "No process to load files in could be started; what it had to say stands on the error output. "
                "A program that asks for processes lies in a file and does so under `if __name__ == '__main__':`. "
                "Document(processes=0) does without."
            )
            raise IngestionError(msg) from exc

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def load(self, place: tuple[str, str, str], path: Path) -> LoadedFile:
        try:
            self._connection.send((*place, str(path)))
            answer = self._answer()
        except OSError as exc:
            self.end()
            msg = "The process that loaded the file ended: its loader crashed, or the memory was not enough."
            raise LoadError(msg, path=str(path), loader=_name_of(place)) from exc
        except Exception as exc:
            raise _cannot_pass(place, path, exc) from exc
        if isinstance(answer, LoadError):
            raise answer
        loaded: LoadedFile = answer
        return loaded

    def _answer(self) -> Any:
        """What it says next; an OSError if it ends instead."""
        # A process that it began may hold its end of the pipe: nothing but a look tells that it has ended.
        while not self._connection.poll(_LOOKED_AT_EVERY_S):
            if not self._process.is_alive() and not self._connection.poll():
                raise ConnectionResetError
        try:
            return self._connection.recv()
        except EOFError as exc:
            raise ConnectionResetError from exc

    def dismiss(self) -> None:
        """Tell it that no more files come."""
        self._connection.close()

    def end(self, *, within: float = 0.0) -> None:
        """Wait for it to end by itself, if so long; then end it."""
        self.dismiss()
        self._process.join(within)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _place_of_loader(path: Path) -> tuple[str, str, str] | None:
    """Suffix, module and qualified name of a file's loader, if another process can import it; None if it cannot."""
    suffix = known_suffix(path)
    if suffix not in loaders:
        return None
    target = loaders.target(suffix)
    if target is not None:
        module, _, name = target.partition(":")
        return suffix, module, name
    loader = loaders[suffix]
    if loader.__module__ == "__main__" or "<" in loader.__qualname__:
        return None
    return suffix, loader.__module__, loader.__qualname__


def _name_of(place: tuple[str, str, str]) -> str:
    return place[2].rpartition(".")[2]


def _cannot_pass(place: tuple[str, str, str], path: Path | str, error: Exception) -> LoadError:
    name = _name_of(place)
    told = sentence(f"{type(error).__name__}: {error}")
    msg = f"{name}, or what it gives, cannot pass between processes: {told} Document(processes=0) does without."
    return LoadError(msg, path=str(path), loader=name)


def _serve(connection: Connection) -> None:
    """Say that this process is there, then load what is asked for, until nobody asks any longer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches all processes of a terminal; who asks decides
    connection.send(None)
    while True:
        try:
            suffix, module, name, path = connection.recv()
        except (EOFError, OSError):
            return
        connection.send_bytes(_answer(suffix, module, name, path))


def _answer(suffix: str, module: str, name: str, path: str) -> Any:
    """A file, loaded by the loader that the asking process has for its suffix, or the error; ready to be sent."""
    from multiprocessing.reduction import ForkingPickler

    try:
        if suffix not in loaders or loaders.target(suffix) != f"{module}:{name}":
            loaders.register(suffix, operator.attrgetter(name)(importlib.import_module(module)), replace=True)
        return ForkingPickler.dumps(load_file(path))
    except LoadError as exc:
        return ForkingPickler.dumps(exc)
    except Exception as exc:  # noqa: BLE001  told to who asked
        return ForkingPickler.dumps(_cannot_pass((suffix, module, name), path, exc))
