"""Containers of old office programs and of Outlook (compound files), read within limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import olefile

from lazyrag.errors import LoadError

MAGIC = bytes.fromhex("d0cf11e0a1b11ae1")
_HEADER = 512


class Container:
    """An open container. What it says of sizes is not believed beyond the size of the file.

    Args:
        file: The compound file.
        size: Bytes of the file on disk.
    """

    def __init__(self, file: olefile.OleFileIO, size: int) -> None:
        self._file = file
        self._size = size
        self._read = 0
        self.streams = tuple(tuple(path) for path in file.listdir(streams=True, storages=False))
        self._known = frozenset(self.streams)

    def __contains__(self, path: tuple[str, ...]) -> bool:
        return path in self._known

    def folders(self, folder: tuple[str, ...]) -> list[str]:
        """The names of the folders right in a folder that hold something, in the container's order."""
        depth = len(folder)
        inside = (path[depth] for path in self.streams if path[:depth] == folder and len(path) > depth + 1)
        return list(dict.fromkeys(inside))

    def read(self, path: tuple[str, ...]) -> bytes:
        """The bytes of a stream; none where there is no such stream.

        Raises:
            LoadError: If the streams together say to be longer than the file, as only those in circles are.
        """
        if path not in self:
            return b""
        self._read += self._file.get_size(list(path))
        if self._read > 4 * self._size:  # a stream may be read twice
            msg = "The file is damaged: its parts are longer than itself. Save it again from its program."
            raise LoadError(msg)
        with self._file.openstream(list(path)) as stream:
            data: bytes = stream.read()
        return data


@contextmanager
def open_container(path: Path, advice: str) -> Iterator[Container]:
    """Open a compound file.

    Args:
        path: An existing file.
        advice: What to do about a damaged one: ``"Save it again as .msg."``.

    Raises:
        LoadError: If it is none, or is damaged.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        header = stream.read(_HEADER)
    if not header.startswith(MAGIC):
        msg = f"The file is of another format than its suffix says, or is damaged: it is no compound file. {advice}"
        raise LoadError(msg)
    # olefile follows as many tables as the header names, and copies them all for each one.
    tables = int.from_bytes(header[44:48], "little"), int.from_bytes(header[72:76], "little")
    if max(tables) * _HEADER > size:
        msg = f"The file is damaged: its tables are longer than itself. {advice}"
        raise LoadError(msg)
    try:
        with olefile.OleFileIO(str(path)) as file:
            yield Container(file, size)
    except LoadError:
        raise
    except (OSError, ValueError, IndexError, RecursionError) as exc:
        msg = f"The file is damaged: {exc}. {advice}"
        raise LoadError(msg) from exc
