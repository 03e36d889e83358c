"""Array files: bundles of named arrays that are never changed, named by what they hold, mapped where they are read.

What lies in a file is described in `lazyrag.storage.array_format`.
"""

from __future__ import annotations

import errno
import io
import math
import mmap
import os
import re
import secrets
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import numpy as np

from lazyrag.errors import StoreError
from lazyrag.storage.array_format import FILE_NAME, Arrays, DamagedError, check_stream, decoded, encoded, joined

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

_TEMPORARY = re.compile(FILE_NAME.pattern + r"\.[0-9a-f]{16}\.tmp")

_SCRATCH_BYTES = 1 << 24  # from which room for an array is on the disk

_REPAIR = "Run verify() and repair()."
_FULL = (
    "cannot be written: the disk is full, or a limit is reached. Nothing of it was kept, the rest is there; make room."
)
_RIGHTS = "cannot be read or written. Check the rights of the file and of its folder."
_EXPLANATIONS = {
    errno.ENOENT: f"is missing. {_REPAIR}",
    errno.ENOSPC: _FULL,
    errno.EFBIG: _FULL,
    getattr(errno, "EDQUOT", errno.ENOSPC): _FULL,  # Windows has no quotas
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EROFS: _RIGHTS,
}


class ArrayFiles:
    """The array files of one folder.

    A bundle that was written is never changed, so that what is read from it stays as it is while it is in use, also
    after its file was deleted. Opening maps the file into memory: pages are read from the disk when they are looked at,
    and shared by all processes. Threads and processes may use one folder at the same time.

    Args:
        folder: Where the files lie; made when the first is written, in a folder that exists. None: they lie in this
            process's memory, and behave the same.
        read_only: Write, delete and renew nothing.

    Example:
        >>> import numpy as np
        >>> files = ArrayFiles(None)
        >>> name = files.write({"rows": np.arange(3), "weights": np.ones((3, 2), np.float32)})
        >>> files.open(name)["rows"].tolist(), files.names() == [name], files.check(name)
        ([0, 1, 2], True, '')
    """

    def __init__(self, folder: Path | None, *, read_only: bool = False) -> None:
        self.folder = folder
        self.read_only = read_only
        self._place: _Place = _Memory() if folder is None else _Folder(folder)

    def __repr__(self) -> str:
        return f"ArrayFiles({None if self.folder is None else os.fspath(self.folder)!r})"

    def write(self, arrays: Arrays) -> str:
        """Store a bundle; on return no power cut takes it.

        Args:
            arrays: Names to arrays of any shape, also without rows. Their types: truth values, whole, real and complex
                numbers of up to 64 bits (a part), times, texts and bytes of a fixed width.

        Returns:
            The bundle's name. The same content has the same name: where it lies there already, whole, only its time is
            renewed.

        Raises:
            ConfigError: If something is no array, or of another type.
            StoreError: If it cannot be written; nothing half-written stays.
        """
        name, pieces = encoded(arrays)
        with self._changing(name):
            if self.check(name) or not self._place.renew(name):
                self._place.save(name, pieces)
            self._place.secure()
        return name

    def scratch(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Room for an array that is to be written: on the folder's disk where it is large, so that memory need not
        hold it, and gone with the array.

        Args:
            shape: Of the array.
            dtype: A plain type.

        Raises:
            StoreError: If the disk has no room for it.
        """
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if self.folder is None or size < _SCRATCH_BYTES:
            return np.empty(shape, dtype)
        with self._changing():
            self.folder.mkdir(exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as file:
                _reserve(file.fileno(), size)
                return np.asarray(np.memmap(file, dtype, mode="r+", shape=shape))

    def open(self, name: str) -> Arrays:
        """The arrays of a bundle: read-only, little-endian, each at an address that is a multiple of 64.

        Raises:
            StoreError: If the file is missing, cut, not the one of that name, or its header is damaged. Damage in the
                data is found by `check`.
        """
        with self._explained(_checked(name)):
            try:
                return MappingProxyType(decoded(self._place.load(name), name))
            except DamagedError as exc:
                raise self._error(name, f"{exc}. {_REPAIR}") from exc

    def check(self, name: str) -> str:
        """What is wrong with a bundle, all of which is read: ``"is missing"``; or "" if it is whole.

        Raises:
            StoreError: If that is no name of a bundle.
        """
        try:
            with self._place.stream(_checked(name)) as file:
                check_stream(file, name)
        except DamagedError as exc:
            return str(exc)
        except OSError as exc:
            return "is missing" if isinstance(exc, FileNotFoundError) else f"cannot be read: {exc.strerror or exc}"
        return ""

    def names(self) -> list[str]:
        """All bundles that lie there, sorted."""
        with self._explained():
            return sorted(filter(FILE_NAME.fullmatch, self._place.entries()))

    def delete(self, names: Iterable[str]) -> None:
        """Remove bundles; missing ones are fine. Arrays that were read from them stay as they are.

        Windows keeps a file that some process has mapped; it is still there then, for a later call.
        """
        for name in names:
            with self._changing(_checked(name)):
                self._place.remove(name)

    def retire(self, names: Iterable[str]) -> None:
        """Renew the time of bundles that are no longer named anywhere: readers may be about to open them."""
        for name in names:
            with self._changing(_checked(name)):
                self._place.renew(name)

    def age_s(self, name: str) -> float:
        """Seconds since a bundle was written or its time renewed, at least 0.

        Raises:
            StoreError: If it is missing.
        """
        with self._explained(_checked(name)):
            return max(0.0, time.time() - self._place.modified(name))

    def sweep(self, *, older_than_s: float = 3600.0) -> int:
        """Remove what writers that were killed left half-written; returns how many files went.

        Args:
            older_than_s: Younger ones may still be in the making.
        """
        gone = 0
        with self._changing():
            for name in filter(_TEMPORARY.fullmatch, self._place.entries()):
                with suppress(FileNotFoundError):  # its writer was only slow, and is done
                    if time.time() - self._place.modified(name) >= older_than_s:
                        self._place.remove(name)
                        gone += 1
        return gone

    @contextmanager
    def _changing(self, name: str = "") -> Iterator[None]:
        if self.read_only:
            raise self._error(name, "cannot be changed: it was opened with read_only=True. Open it without to write.")
        with self._explained(name):
            yield

    @contextmanager
    def _explained(self, name: str = "") -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            told = _EXPLANATIONS.get(exc.errno or 0, f"cannot be used: {exc.strerror or exc}.")
            raise self._error(name, told) from exc

    def _error(self, name: str, what: str) -> StoreError:
        folder = Path(":memory:") if self.folder is None else self.folder
        kind = "array file" if name else "folder of array files"
        return StoreError(f"The {kind} {os.fspath(folder / name)!r} {what}", store=os.fspath(folder))


class _Place(Protocol):
    """Where bundles lie as bytes, by name. All methods raise OSError."""

    def load(self, name: str) -> memoryview:
        """All of its bytes, read-only."""

    def stream(self, name: str) -> BinaryIO:
        """Its bytes, read afresh."""

    def save(self, name: str, pieces: list[memoryview]) -> None:
        """Write it, whole or not at all."""

    def secure(self) -> None:
        """Wait until the disk has the names of what was saved."""

    def renew(self, name: str) -> bool:
        """Set its time to now; returns whether it is there."""

    def modified(self, name: str) -> float:
        """Its time, in seconds since 1970."""

    def entries(self) -> list[str]:
        """All names, those of half-written bundles included."""

    def remove(self, name: str) -> None:
        """Remove it, if it is there."""


class _Folder:
    """Files, each mapped once for as long as an array of it is in use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._secured = False  # whether the disk has the folder's own name
        self._mapped: weakref.WeakValueDictionary[str, mmap.mmap] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def load(self, name: str) -> memoryview:
        with self._lock:
            mapped = self._mapped.get(name)
            if mapped is None:
                with self.stream(name) as file:
                    if not os.fstat(file.fileno()).st_size:
                        return memoryview(b"")  # nothing to map
                    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self._mapped[name] = mapped
            return memoryview(mapped)

    def stream(self, name: str) -> BinaryIO:
        return (self._folder / name).open("rb")

    def save(self, name: str, pieces: list[memoryview]) -> None:
        self._folder.mkdir(exist_ok=True)
        temporary = self._folder / f"{name}.{secrets.token_hex(8)}.tmp"
        try:
            with temporary.open("xb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._folder / name)
        except BaseException:
            with suppress(OSError):  # the first error is the one to tell of
                temporary.unlink()
            raise
        with self._lock:
            self._mapped.pop(name, None)  # of a damaged file that this one replaces

    def secure(self) -> None:
        _sync_folder(self._folder)
        if not self._secured:
            _sync_folder(self._folder.parent)
            self._secured = True

    def renew(self, name: str) -> bool:
        try:
            os.utime(self._folder / name)
        except FileNotFoundError:
            return False
        return True

    def modified(self, name: str) -> float:
        return (self._folder / name).stat().st_mtime

    def entries(self) -> list[str]:
        try:
            return [path.name for path in self._folder.iterdir()]
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> None:
        with self._lock:
            self._mapped.pop(name, None)
        try:
            (self._folder / name).unlink(missing_ok=True)
        except PermissionError:
            if os.name != "nt":  # there it means that a process has mapped it
                raise


class _Memory:
    """The same in this process's memory."""

    def __init__(self) -> None:
        self._held: dict[str, memoryview] = {}
        self._times: dict[str, float] = {}

    def load(self, name: str) -> memoryview:
        held = self._held.get(name)
        if held is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return held

    def stream(self, name: str) -> BinaryIO:
        return io.BytesIO(self.load(name))

    def save(self, name: str, pieces: list[memoryview]) -> None:
        self._times[name] = time.time()
        self._held[name] = joined(pieces)

    def secure(self) -> None:
        """Nothing outlives the process."""

    def renew(self, name: str) -> bool:
        self._times[name] = time.time()
        return name in self._held

    def modified(self, name: str) -> float:
        self.load(name)
        return self._times[name]

    def entries(self) -> list[str]:
        return list(self._held)

    def remove(self, name: str) -> None:
        self._held.pop(name, None)


def _checked(name: str) -> str:
    """A name that leads to nothing else: names come out of files."""
    if not isinstance(name, str) or FILE_NAME.fullmatch(name) is None:
        msg = f"{name!r:.80} is no name of an array file, which is 32 hexadecimal digits and '.arr'. {_REPAIR}"
        raise StoreError(msg)
    return name


def _reserve(descriptor: int, size: int) -> None:
    """Give a file its blocks: writing to a mapped file for which the disk has none ends the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    zeros = bytes(_SCRATCH_BYTES)
    for start in range(0, size, len(zeros)):
        os.write(descriptor, zeros[: size - start])


def _sync_folder(folder: Path) -> None:
    """Wait until the disk has a folder's entries. (Windows opens no folders, and sees to it by itself.)"""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
