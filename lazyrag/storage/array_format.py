"""What lies in an array file: named arrays of plain types, one after the other, with what is needed to trust them.

A file has, with all numbers little-endian::

    bytes 0 to 7     b"lzArrays"
    bytes 8 to 11    the format, uint32: 1
    bytes 12 to 15   n, uint32
    n bytes          the header: JSON in ASCII, and spaces up to where the data begin, at a multiple of 64
    the rest         the data: the arrays in the header's order, each in C order and at a multiple of 64, zeros between

The header is ``{"arrays": [{"name", "dtype", "shape", "offset"}, ...], "bytes", "digest"}``: the arrays by name, their
types in numpy's notation, where in the data they begin; how long the data are; their BLAKE2b (128 bits, hexadecimal).

The file's name is the BLAKE2b (128 bits, hexadecimal) of all that stands before the data, and ``.arr``. So opening a
file finds that it was cut, that its header is damaged, or that it is another one's, without a look at the data; reading
all of it finds the rest. Every format keeps to this paragraph and to the first 16 bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazyrag.errors import ConfigError

Arrays: TypeAlias = Mapping[str, NDArray[Any]]
"""Named arrays of any shape and of a plain type."""

ALIGNMENT = 64
"""Of arrays, in bytes: a line of the processor's cache, and more than any of its instructions asks for."""

FILE_NAME = re.compile(r"[0-9a-f]{32}\.arr")
"""Names of array files."""

_FORMAT = 1
_MAGIC = b"lzArrays"
_PREFIX = struct.Struct("<8sII")
_BLOCK = 1 << 20  # bytes that are read at once where a whole file is checked
# Types that are the same on every machine. Objects are not among them: read from a file, they would be addresses.
_PLAIN = re.compile(r"[<|](b1|[iu][1248]|f[248]|c8|c16|[mM]8(\[\w+\])?|[SU]\d+)")


class DamagedError(Exception):
    """A file is not as it was written, or of a newer format; says how, as the end of a sentence about it."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """What a header says of one array."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    def fits(self, room: int) -> bool:
        """Whether it lies within so many bytes; numpy would also look before them."""
        if _PLAIN.fullmatch(self.dtype) is None or min((self.offset, *self.shape)) < 0:
            return False
        return self.offset + math.prod(self.shape) * np.dtype(self.dtype).itemsize <= room


@dataclass(frozen=True, slots=True)
class _Header:
    """What stands before the data: the arrays, where the data begin, their digest."""

    arrays: tuple[_Entry, ...]
    start: int
    digest: str


def encoded(arrays: Arrays) -> tuple[str, list[memoryview]]:
    """A file's name, and its content in pieces; arrays are not copied where they need not be.

    Raises:
        ConfigError: If one is no array, or of a type that not every machine has.

    Example:
        >>> import numpy as np
        >>> name, pieces = encoded({"weights": np.ones(3, np.float32)})
        >>> name, sum(map(len, pieces))
        ('5573a7a5d46f7fe8c3e212b2e901a622.arr', 204)
    """
    entries: list[dict[str, Any]] = []
    pieces: list[memoryview] = []
    hasher = hashlib.blake2b(digest_size=16)
    length = 0
    for name in sorted(arrays):
        array = _plain(name, arrays[name])
        padding = bytes(-length % ALIGNMENT)
        offset = length + len(padding)
        entries.append({"name": name, "dtype": array.dtype.str, "shape": list(array.shape), "offset": offset})
        for piece in (memoryview(padding), array.reshape(-1).view(np.uint8).data):
            pieces.append(piece)
            hasher.update(piece)
        length = offset + array.nbytes
    header = json.dumps({"arrays": entries, "bytes": length, "digest": hasher.hexdigest()})
    header += " " * (-(_PREFIX.size + len(header)) % ALIGNMENT)
    head = _PREFIX.pack(_MAGIC, _FORMAT, len(header)) + header.encode("ascii")
    return _digest(head) + ".arr", [memoryview(head), *pieces]


def decoded(content: memoryview, name: str) -> dict[str, NDArray[Any]]:
    """The arrays of a file's content, as read-only as that is, and not copied. Their data are not looked at.

    Raises:
        DamagedError: If the content is cut, not what a file of that name holds, or its header is damaged.
    """
    header = _read_header(lambda length: bytes(content[:length]), len(content), name)
    return {
        one.name: np.ndarray(one.shape, np.dtype(one.dtype), buffer=content, offset=header.start + one.offset)
        for one in header.arrays
    }


def check_stream(file: BinaryIO, name: str) -> None:
    """Read a whole file and compare it with its name.

    Raises:
        DamagedError: If it is not what was written under that name.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    beginning = file.read(_PREFIX.size)
    header = _read_header(lambda length: beginning + file.read(length - len(beginning)), size, name)
    hasher = hashlib.blake2b(digest_size=16)
    while block := file.read(_BLOCK):
        hasher.update(block)
    if hasher.hexdigest() != header.digest:
        raise DamagedError("is damaged: its data are not those that were written")


def damage_of(content: bytes, name: str) -> str:
    """What is wrong with a file's content in memory; "" if it is what was written under that name."""
    try:
        check_stream(io.BytesIO(content), name)
    except DamagedError as exc:
        return str(exc)
    return ""


def joined(pieces: list[memoryview]) -> memoryview:
    """A file's content in memory, in one piece: read-only, at an address that is a multiple of `ALIGNMENT`."""
    length = sum(map(len, pieces))
    room = np.empty(length + ALIGNMENT, np.uint8)
    at = first = -room.ctypes.data % ALIGNMENT
    for piece in pieces:
        room[at : at + len(piece)] = piece
        at += len(piece)
    room.flags.writeable = False
    return room[first:at].data


def _plain(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """An array as it lies in a file: little-endian, in C order."""
    if isinstance(array, np.ndarray) and array.dtype.kind in "biufcmMSU":  # others may have no order of bytes
        dtype = array.dtype.newbyteorder("<")
        if _PLAIN.fullmatch(dtype.str):
            return np.asarray(array, dtype, order="C")
    kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
    msg = (
        f"The array {name!r} is of type {kind}. Array files hold numpy arrays of truth values, numbers of up to 64 "
        "bits, times, and texts or bytes of a fixed width."
    )
    raise ConfigError(msg)


def _read_header(beginning: Callable[[int], bytes], size: int, name: str) -> _Header:
    """The header of a file, if it and the file's size are as they were written.

    Args:
        beginning: Gives so many bytes from the file's first on. It is asked twice.
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
        raise DamagedError(f"has format {written}, of a newer release; this one reads up to format {_FORMAT}")
    try:
        header = json.loads(head[_PREFIX.size :])
        data = index(header["bytes"])
        entries = tuple(
            _Entry(**{**one, "shape": tuple(map(index, one["shape"])), "offset": index(one["offset"])})
            for one in header["arrays"]
        )
        digest = str(header["digest"])
        fitting = all(one.fits(data) for one in entries)
    except (KeyError, TypeError, ValueError) as exc:  # whoever wrote it, it was not this module
        raise DamagedError("is damaged: its header cannot be understood") from exc
    if not fitting:
        raise DamagedError("is damaged: its arrays do not fit into it")
    if size != len(head) + data:
        raise DamagedError(f"is cut: it has {size} bytes instead of {len(head) + data}")
    return _Header(entries, len(head), digest)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
