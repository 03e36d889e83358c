"""Array files: immutable bundles of named arrays, named by a hash of their content and read by
memory mapping.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import mmap
import os
import re
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from operator import index
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np

from lazyrag.errors import ConfigError, StoreError
from lazyrag.progress.blocks import contextmanager
from lazyrag.storage.database import flush_file
from lazyrag.types import AnyArray

with suppress(ImportError):
    import fcntl  # not on Windows

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


# Format of an array file: named arrays of plain types, one after the other, with digests.
#
# A file has, with all numbers little-endian::
#
# bytes 0 to 7     b"lzArrays"
# bytes 8 to 11    the format, uint32: 1
# bytes 12 to 15   n, uint32
# n bytes          the header: JSON in ASCII, and spaces up to where the data begin, at a multiple
# of 64 the rest         the data: the arrays in the header's order, each in C order and at a
# multiple of 64, zeros between
#
# The header is ``{"arrays": [{"name", "dtype", "shape", "offset"}, ...], "bytes", "digest"}``: the
# arrays by name, their types in numpy's notation, where in the data they begin; how long the data
# are; their BLAKE2b (128 bits, hexadecimal).
#
# The file's name is the BLAKE2b (128 bits, hexadecimal) of everything before the data, and
# ``.arr``. So opening a file finds that it was cut, that its header is damaged, or that it is
# another one's, without a look at the data; reading all of it finds the rest. Every format keeps to
# this paragraph and to the first 16 bytes.


Arrays: TypeAlias = "Mapping[str, AnyArray]"
"""Named arrays of any shape and of a plain type."""

ALIGNMENT = 64
"""Alignment of arrays in bytes: a line of the processor's cache."""

FILE_NAME = re.compile(r"[0-9a-f]{32}\.arr")
"""Names of array files."""

_FORMAT = 1
_MAGIC = b"lzArrays"
_PREFIX = struct.Struct("<8sII")
_LARGE_BLOCK = 1 << 22
_BLOCK = 1 << 20  # bytes that are read at once where a whole file is checked
# Types that are the same on every machine. Objects are not among them: read from a file, they would
# be addresses.
_PLAIN = re.compile(r"[<|](b1|[iu][1248]|f[248]|c8|c16|[mM]8(\[\w+\])?|[SU]\d+)")


class DamagedError(Exception):
    """A file is damaged, or of a newer format; the message is the end of a sentence about it."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One array in a header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    def fits(self, room: int) -> bool:
        """Whether it is within ``room`` bytes; numpy would also read before them."""
        if _PLAIN.fullmatch(self.dtype) is None or min((self.offset, *self.shape)) < 0:
            return False
        return self.offset + math.prod(self.shape) * np.dtype(self.dtype).itemsize <= room


def encoded(arrays: Arrays) -> tuple[str, list[memoryview]]:
    """A file's name, and its content in pieces; arrays are copied only if needed.

    Raises:
        ConfigError: If a value is not an array, or of a type that not every machine has.

    Example:
        >>> import numpy as np
        >>> name, pieces = encoded({"weights": np.ones(3, np.float32)})
        >>> name, sum(map(len, pieces))
        ('5573a7a5d46f7fe8c3e212b2e901a622.arr', 204)
    """
    entries = []
    pieces = []
    hasher = hashlib.blake2b(digest_size=16)
    length = 0
    for name in sorted(arrays):
        array = _plain(name, arrays[name])
        padding = bytes(-length % ALIGNMENT)
        offset = length + len(padding)
        entries.append(
            {"name": name, "dtype": array.dtype.str, "shape": list(array.shape), "offset": offset}
        )
        for piece in (memoryview(padding), array.reshape(-1).view(np.uint8).data):
            pieces.append(piece)
            for block in _blocks(piece):
                hasher.update(block)
        length = offset + array.nbytes
    header = json.dumps({"arrays": entries, "bytes": length, "digest": hasher.hexdigest()})
    header += " " * (-(_PREFIX.size + len(header)) % ALIGNMENT)
    head = _PREFIX.pack(_MAGIC, _FORMAT, len(header)) + header.encode("ascii")
    return _digest(head) + ".arr", [memoryview(head), *pieces]


def decoded(content: memoryview, name: str) -> dict[str, AnyArray]:
    """The arrays of a file's content, not copied; their data are not checked.

    Raises:
        DamagedError: If the content is truncated or of another file, or its header is damaged.
    """
    entries, start, _ = _read_header(lambda length: bytes(content[:length]), len(content), name)
    return {
        entry.name: np.ndarray(
            entry.shape, np.dtype(entry.dtype), buffer=content, offset=start + entry.offset
        )
        for entry in entries
    }


def stream_damage(file: BinaryIO, name: str) -> str:
    """Read a whole file and compare it with its name; "" if it is what was written under that name,
    else the damage.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    beginning = file.read(_PREFIX.size)
    try:
        *_, digest = _read_header(
            lambda length: beginning + file.read(length - len(beginning)), size, name
        )
    except DamagedError as exc:
        return str(exc)
    hasher = hashlib.blake2b(digest_size=16)
    while block := file.read(_BLOCK):
        hasher.update(block)
    return (
        ""
        if hasher.hexdigest() == digest
        else "is damaged: its data are not those that were written"
    )


def damage_of(content: bytes, name: str) -> str:
    """Damage of a file's content in memory; "" for none."""
    return stream_damage(io.BytesIO(content), name)


def joined(pieces: list[memoryview]) -> memoryview:
    """A file's content in memory, in one piece: read-only, at an address that is a multiple of
    `ALIGNMENT`.
    """
    length = sum(map(len, pieces))
    room = np.empty(length + ALIGNMENT, np.uint8)
    at = first = -room.ctypes.data % ALIGNMENT
    for piece in pieces:
        room[at : at + len(piece)] = piece
        at += len(piece)
    room.flags.writeable = False
    return room[first:at].data


def unload(mapped: AnyArray | memoryview) -> None:
    """Give back the memory that a mapped array takes: its pages are read again when they are
    needed.

    Example:
        >>> unload(np.zeros(3))  # is in no file: nothing to do
    """
    owner: Any = mapped
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if isinstance(owner, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        owner.madvise(mmap.MADV_DONTNEED)


def _blocks(piece: memoryview) -> Iterator[memoryview]:
    """A piece in parts, of which a mapped file takes the memory of one at a time."""
    for at in range(0, len(piece), _LARGE_BLOCK):
        yield piece[at : at + _LARGE_BLOCK]
        unload(piece)


def _plain(name: str, array: AnyArray) -> AnyArray:
    """An array as stored in a file: little-endian, in C order."""
    # others may have no order of bytes
    if isinstance(array, np.ndarray) and array.dtype.kind in "biufcmMSU":
        dtype = array.dtype.newbyteorder("<")
        if _PLAIN.fullmatch(dtype.str):
            return np.asarray(array, dtype, order="C")
    kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
    raise ConfigError(
        f"The array {name!r} is of type {kind}. Array files hold numpy arrays of truth values,"
        " numbers of up to 64 bits, times, and texts or bytes of a fixed width."
    )


def _read_header(
    beginning: Callable[[int], bytes], size: int, name: str
) -> tuple[tuple[_Entry, ...], int, str]:
    """Read and check a header and the file's size; returns the arrays, the start of the data, and
    their digest.

    Args:
        beginning: Returns the first bytes of the file, so many. Called twice.
        size: Of the file, in bytes.
        name: Of the file.
    """
    prefix = beginning(_PREFIX.size)
    if len(prefix) < _PREFIX.size:
        raise DamagedError(f"is cut: it has {size} bytes")
    magic, written, length = _PREFIX.unpack(prefix)
    head = beginning(_PREFIX.size + length)
    if magic != _MAGIC or name != _digest(head) + ".arr":
        raise DamagedError("is damaged: its header is not the one that was written")
    if written > _FORMAT:
        raise DamagedError(
            f"has format {written}, of a newer release; this one reads up to format {_FORMAT}"
        )
    try:
        header = json.loads(head[_PREFIX.size :])
        data = index(header["bytes"])
        entries = tuple(
            _Entry(
                **{
                    **description,
                    "shape": tuple(map(index, description["shape"])),
                    "offset": index(description["offset"]),
                }
            )
            for description in header["arrays"]
        )
        digest = str(header["digest"])
        fitting = all(entry.fits(data) for entry in entries)
    except (KeyError, TypeError, ValueError) as exc:  # not written by this module
        raise DamagedError("is damaged: its header cannot be understood") from exc
    if not fitting:
        raise DamagedError("is damaged: its arrays do not fit into it")
    if size != len(head) + data:
        raise DamagedError(f"is cut: it has {size} bytes instead of {len(head) + data}")
    return entries, len(head), digest


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


_TEMPORARY = re.compile(FILE_NAME.pattern + r"\.[0-9a-f]{16}\.tmp")

_SCRATCH_BYTES = 1 << 22  # from which room for an array is on the disk

_REPAIR = "Run docs.maintenance.verify() and repair()."
_FULL = (
    "cannot be written: the disk is full, or a limit is reached. The write was rolled back. Free"
    " disk space and retry."
)
_PERMISSIONS = "cannot be read or written. Check the permissions of the file and of its folder."
_EXPLANATIONS = {
    errno.ENOENT: f"is missing. {_REPAIR}",
    errno.ENOSPC: _FULL,
    errno.EFBIG: _FULL,
    getattr(errno, "EDQUOT", errno.ENOSPC): _FULL,  # Windows has no quotas
    errno.EACCES: _PERMISSIONS,
    errno.EPERM: _PERMISSIONS,
    errno.EROFS: _PERMISSIONS,
}


class ArrayFiles:
    """The array files of one folder.

    A bundle is never changed, so its arrays stay valid while they are in use, also after its file
    was deleted. Opening maps the file into memory: pages are read from disk on access, and shared
    by all processes. Threads and processes may use one folder at the same time.

    Args:
        folder: Folder of the files; created with the first file, in a folder that exists. None
            keeps bundles in this process's memory.
        read_only: Refuse to write, delete and renew.
        place: Where the bundles are instead; the folder then has room for scratch only.

    Example:
        >>> import numpy as np
        >>> files = ArrayFiles(None)
        >>> name = files.write({"rows": np.arange(3), "weights": np.ones((3, 2), np.float32)})
        >>> files.open(name)["rows"].tolist(), files.names() == [name], files.check(name)
        ([0, 1, 2], True, '')
    """

    def __init__(self, folder: Path | None, *, read_only: bool = False, place: Any = None) -> None:
        self.folder = folder
        self.read_only = read_only
        self._place: _Folder | _Memory = place or (_Memory() if folder is None else _Folder(folder))

    def __repr__(self) -> str:
        return f"ArrayFiles({None if self.folder is None else os.fspath(self.folder)!r})"

    def write(self, arrays: Arrays) -> str:
        """Store a bundle; on return it survives a power cut.

        Args:
            arrays: Names to arrays of any shape, also without rows. Their types: truth values,
                whole, real and complex numbers of up to 64 bits (a part), times, texts and bytes of
                a fixed width.

        Returns:
            The bundle's name. The same content has the same name: if it is there already and
            undamaged, only its time is renewed.

        Raises:
            ConfigError: If a value is not an array, or of another type.
            StoreError: If it cannot be written; no partial file is left.
        """
        name, pieces = encoded(arrays)
        with self._changing(name):
            if self.check(name) or not self._place.renew(name):
                self._place.save(name, pieces)
            self._place.secure()
        return name

    def scratch(self, shape: tuple[int, ...], dtype: DTypeLike) -> AnyArray:
        """An empty array to be filled: on the folder's disk if it is large, so that it needs no
        memory, and deleted with the array.

        Args:
            shape: Of the array.
            dtype: A plain type.

        Raises:
            StoreError: If the disk has no room for it.
        """
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if self.folder is None or size < _SCRATCH_BYTES:
            return np.empty(shape, dtype)
        import tempfile

        with self._changing():
            self.folder.mkdir(exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as file:
                _reserve(file.fileno(), size)
                return np.asarray(np.memmap(file, dtype, mode="r+", shape=shape))

    def open(self, name: str, content: bytes | None = None) -> Arrays:
        """The arrays of a bundle: read-only, little-endian, each at an address that is a multiple
        of 64.

        Args:
            name: The bundle.
            content: Its content, where it is not in a file; see `write_or_inline`.

        Raises:
            StoreError: If the file is missing, cut, not the one of that name, or its header is
                damaged. Damage in the data is found by `check`.
        """
        with self._explained(_checked(name)):
            try:
                bundle = (
                    self._place.load(name) if content is None else joined([memoryview(content)])
                )
                return MappingProxyType(decoded(bundle, name))
            except DamagedError as exc:
                raise self._error(name, f"{exc}. {_REPAIR}") from exc

    def check(self, name: str) -> str:
        """Check all of a bundle; "" if it is undamaged, else the damage: ``"is missing"``.

        Raises:
            StoreError: If the name is not that of a bundle.
        """
        try:
            return self._damage(name)
        except OSError as exc:
            return f"cannot be read: {exc.strerror or exc}"

    def ensure_damaged(self, name: str) -> None:
        """Read all of a bundle that cannot be opened, to see whether it is missing or damaged.

        Raises:
            StoreError: If it is undamaged, or cannot be read: that proves nothing.
        """
        with self._explained(name):
            if not self._damage(name):
                raise self._error(name, "could not be opened, and is undamaged. Try again.")

    def _damage(self, name: str) -> str:
        try:
            with self._place.stream(_checked(name)) as file:
                return stream_damage(file, name)
        except FileNotFoundError:
            return "is missing"

    def write_or_inline(self, arrays: Arrays, inline_below: int) -> tuple[str, bytes | None]:
        """Store a bundle; returns its name, and its content instead of a file if it has fewer bytes
        than that.
        """
        if sum(array.nbytes for array in arrays.values()) >= inline_below:
            return self.write(arrays), None
        name, pieces = encoded(arrays)
        return name, bytes(joined(pieces))

    def names(self) -> list[str]:
        """All bundles, sorted."""
        with self._explained():
            return sorted(filter(FILE_NAME.fullmatch, self._place.entries()))

    def delete(self, names: Iterable[str]) -> None:
        """Remove bundles; missing ones are ignored. Open arrays stay valid.

        Windows keeps a file that some process has mapped; a later call removes it.
        """
        for name in names:
            with self._changing(_checked(name)):
                self._place.remove(name)

    def postpone_deletion(self, names: Iterable[str]) -> None:
        """Reset the age of unreferenced files so that current readers can still open them."""
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
        """Remove the temporary files of killed writers; returns the number of removed files.

        Args:
            older_than_s: Younger ones may still be in use.
        """
        removed = 0
        with self._changing():
            for name in filter(_TEMPORARY.fullmatch, self._place.entries()):
                with suppress(FileNotFoundError):  # its writer was only slow, and is done
                    if time.time() - self._place.modified(name) >= older_than_s:
                        self._place.remove(name)
                        removed += 1
        return removed

    @contextmanager
    def _changing(self, name: str = "") -> Iterator[None]:
        if self.read_only:
            raise self._error(
                name,
                "cannot be changed: it was opened with read_only=True. Open it without to write.",
            )
        with self._explained(name):
            yield

    @contextmanager
    def _explained(self, name: str = "") -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            explanation = _EXPLANATIONS.get(
                exc.errno or 0, f"cannot be used: {exc.strerror or exc}."
            )
            raise self._error(name, explanation) from exc

    def _error(self, name: str, problem: str) -> StoreError:
        folder = Path(":memory:") if self.folder is None else self.folder
        kind = "array file" if name else "folder of array files"
        return StoreError(
            f"The {kind} {os.fspath(folder / name)!r} {problem}", store=os.fspath(folder)
        )


class _Folder:
    """Bundles in files, each mapped once for as long as an array of it is in use. Methods raise
    OSError.
    """

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
        temporary = self._folder / f"{name}.{os.urandom(8).hex()}.tmp"
        try:
            with temporary.open("xb") as file:
                for block in chain.from_iterable(map(_blocks, pieces)):
                    file.write(block)
                file.flush()
                flush_file(file.fileno(), os.fsync)
            temporary.replace(self._folder / name)
        except BaseException:
            with suppress(OSError):  # the first error is the one to report
                temporary.unlink()
            raise
        with self._lock:
            self._mapped.pop(name, None)  # of a damaged file that this one replaces

    def secure(self) -> None:
        sync_folder(self._folder)
        if not self._secured:
            sync_folder(self._folder.parent)
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
    """Bundles in this process's memory; see `_Folder`."""

    def __init__(self) -> None:
        self._held: dict[str, memoryview] = {}
        self._times: dict[str, float] = {}

    def load(self, name: str) -> memoryview:
        mapped = self._held.get(name)
        if mapped is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return mapped

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
    """Check a name, which comes from a file: it must not lead elsewhere."""
    if not isinstance(name, str) or FILE_NAME.fullmatch(name) is None:
        raise StoreError(
            f"{name!r:.80} is no name of an array file, which is 32 hexadecimal digits and '.arr'."
            f" {_REPAIR}"
        )
    return name


def _reserve(descriptor: int, size: int) -> None:
    """Allocate the blocks of a file: writing to a mapped file on a full disk ends the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    zeros = bytes(_SCRATCH_BYTES)
    for start in range(0, size, len(zeros)):
        os.write(descriptor, zeros[: size - start])


def sync_folder(folder: Path) -> None:
    """Wait until a folder's entries are on disk. (Windows cannot open folders, and does this by
    itself.)
    """
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- Stores that do not flush what they write: their files are marked until we have, since a power
# cut may tear them


def boot_id() -> str:
    """An id of the time since the machine was started; "" where the system has none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


@contextmanager
def flushed(path: str | None) -> Iterator[None]:
    """Mark a store's file or folder as unflushed while it is written, then flush it.

    The mark is locked as long as its writer runs; the next flush also removes the marks of killed
    writers.

    Args:
        path: Of the store; None for one that flushes what it writes.
    """
    boot = boot_id() if path is not None and Path(path).parent.is_dir() else ""
    if not boot:  # a power cut could not be told from a kill; or the store was deleted
        yield
        return
    root = Path(f"{path}")
    mark = Path(f"{path}.unflushed-{boot}-{os.urandom(8).hex()}")
    with _flushing(root), locked(root.parent):
        lock = mark.open("xb")
        _lock(lock.fileno(), fcntl.LOCK_EX)
        sync_folder(root.parent)
    try:
        yield
    finally:
        with lock, _flushing(root):
            # before the flush: what a writer wrote that ends during it may come too late
            with locked(root.parent):
                ended = [
                    mark for mark in _marks(root) if f"-{boot}-" in mark.name and _has_ended(mark)
                ]
            for ended_mark in (root, *root.rglob("*"), root.parent):
                with suppress(FileNotFoundError):  # a temporary file of the store
                    if ended_mark.is_file() or ended_mark.is_dir():
                        sync_folder(ended_mark)
            for ended_mark in (mark, *ended):
                ended_mark.unlink(missing_ok=True)
            sync_folder(root.parent)


@contextmanager
def _flushing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise StoreError(
            f"The store {path} cannot be flushed: {exc.strerror or exc}. Check its folder and the"
            " disk.",
            store=str(path),
        ) from exc


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Exclude other programs that mark the stores of a folder, or set them aside. (Only Linux has
    marks.)
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        _lock(descriptor, fcntl.LOCK_UN)  # a child process may have inherited it
        os.close(descriptor)


def _lock(descriptor: int, operation: int) -> bool:
    with suppress(OSError):  # another program has it, or the file system has no locks
        fcntl.flock(descriptor, operation)
        return True
    return False


def _has_ended(mark: Path) -> bool:
    """Whether the writer of a mark was killed."""
    with suppress(FileNotFoundError), mark.open("rb") as file:
        return _lock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    return False


def _marks(root: Path) -> list[Path]:
    return [
        path for path in root.parent.iterdir() if path.name.startswith(f"{root.name}.unflushed-")
    ]


def torn_marks(path: str) -> list[Path]:
    """Marks of writers that a power cut ended."""
    root = Path(path)
    boot = boot_id()
    if not boot or not root.parent.is_dir():
        return []
    return [
        mark for mark in _marks(root) if not mark.name.startswith(f"{root.name}.unflushed-{boot}-")
    ]
