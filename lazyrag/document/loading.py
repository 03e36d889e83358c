"""Loading files, in this process or in others."""

from __future__ import annotations

import importlib
import operator
import threading
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lazyrag.errors import LoadError
from lazyrag.loaders.base import LoadedFile, known_suffix, load_file, loaders

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor


class Loading:
    """Calls loaders, in processes of its own where that is asked for and their classes can be imported there.

    A process that ends while it loads (a parser that crashes, or eats all memory) fails its file, and no other one.

    Args:
        processes: How many; 0 for none.
    """

    def __init__(self, processes: int = 0) -> None:
        self.processes = processes
        self._executor: ProcessPoolExecutor | None = None
        self._alone = threading.Lock()

    @contextmanager
    def running(self, count: int) -> Iterator[None]:
        """Have processes ready for so many files, as far as they are wanted."""
        if not self.processes or count < 2 or self._executor is not None:
            yield
            return
        self._executor = _processes(self.processes)
        try:
            yield
        finally:
            executor, self._executor = self._executor, None
            executor.shutdown(wait=True, cancel_futures=True)

    def load(self, path: Path) -> LoadedFile:
        """Load a file; see `lazyrag.loaders.base.load_file`.

        Raises:
            LoadError: If it cannot be loaded.
        """
        place = _place_of_loader(path) if self._executor is not None else None
        if self._executor is None or place is None:
            return load_file(path)
        try:
            loaded = self._executor.submit(_load, *place, str(path))
        except (
            BrokenExecutor,
            OSError,
        ):  # the latter if one is to start while another one breaks them
            return self._load_alone(place, path)
        try:
            return loaded.result()
        except BrokenExecutor:
            return self._load_alone(place, path)

    def _load_alone(self, place: tuple[str, str, str], path: Path) -> LoadedFile:
        """Load a file in a process of its own: another one's end may have taken the common ones with it."""
        with self._alone, _processes(1) as executor:
            try:
                return executor.submit(_load, *place, str(path)).result()
            except BrokenExecutor as exc:
                msg = "The process that loaded the file ended: its loader crashed, or the memory was not enough."
                raise LoadError(msg, path=str(path), loader=place[2].rpartition(".")[2]) from exc


def _processes(count: int) -> ProcessPoolExecutor:
    import multiprocessing  # which few programs need, and all would wait for
    from concurrent.futures import ProcessPoolExecutor

    # A fork would copy locks that other threads hold.
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


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


def _load(suffix: str, module: str, name: str, path: str) -> LoadedFile:
    """Load a file in another process, by the loader that this one has for its suffix."""
    if suffix not in loaders or loaders.target(suffix) != f"{module}:{name}":
        loaders.register(suffix, operator.attrgetter(name)(importlib.import_module(module)), replace=True)
    return load_file(path)
