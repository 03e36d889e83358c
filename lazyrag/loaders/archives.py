"""Zip containers, read within limits: what office and e-book files are."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from lxml import etree

from lazyrag.errors import LoadError
from lazyrag.loaders.limits import reading

Element: TypeAlias = etree._Element
"""An element of a part that is XML; comments, instructions and entities have no text as their tag."""

MOST_ENTRIES = 50_000
"""Entries in one container."""
MOST_RATIO = 200
"""Unpacked bytes for each packed one of an entry, from `SMALL_ENTRY` on; sheets of equal cells come to 50."""
SMALL_ENTRY = 1 << 20

_CHUNK = 1 << 16
_OLE = bytes.fromhex("d0cf11e0a1b11ae1")
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError)


class Archive:
    """An open container. Entries are read in pieces, so that a header that lies about sizes costs nothing.

    Args:
        file: The zip file.
        what: What the container should be, for messages: ``"Word document"``.
        save_as: What to do about a damaged one, for messages.
    """

    def __init__(self, file: zipfile.ZipFile, what: str, save_as: str) -> None:
        self.infos = file.infolist()
        self.names = tuple(info.filename for info in self.infos)
        self._known = frozenset(self.names)
        self._file = file
        self._what = what
        self._save_as = save_as
        self._reading = reading()
        if len(self.names) > MOST_ENTRIES:
            msg = (
                f"The {what} holds {len(self.names)} entries; at most {MOST_ENTRIES} are read. Split it, or {save_as}."
            )
            raise LoadError(msg)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def read(self, name: str) -> bytes:
        """The bytes of an entry.

        Raises:
            LoadError: If there is no such entry, it is damaged or encrypted, or unpacks to more than is allowed.
        """
        return b"".join(self.pieces(name))

    def xml(self, name: str) -> Element:
        """The root element of an entry that is XML. Entities are not expanded, and nothing else is fetched.

        Raises:
            LoadError: If it cannot be read, see `read`, or is no XML.
        """
        parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True)
        try:
            return etree.fromstring(self.read(name), parser)
        except etree.XMLSyntaxError as exc:
            msg = f"The {self._what} is damaged: its part {name} is no XML that can be read ({exc})."
            raise LoadError(self._advised(msg)) from exc

    def check(self, names: Iterable[str] | None = None) -> None:
        """Read entries without keeping them, before a library that knows no limits does.

        Args:
            names: Which; None for all.

        Raises:
            LoadError: As `read`.
        """
        for name in self.names if names is None else names:
            for _ in self.pieces(name):
                pass

    def pieces(self, entry: str | zipfile.ZipInfo) -> Iterator[bytes]:
        """The bytes of an entry, piece by piece; see `read`. Of several with one name, the name stands for the last."""
        name = entry if isinstance(entry, str) else entry.filename
        try:
            info = self._file.getinfo(entry) if isinstance(entry, str) else entry
        except KeyError as exc:
            msg = f"The file is no {self._what}: it is of another format, as it lacks the part {name}."
            raise LoadError(self._advised(msg)) from exc
        size = 0
        try:
            with self._file.open(info) as stream:
                while piece := stream.read(_CHUNK):
                    size += len(piece)
                    self._reading.count_unpacked(len(piece), self._what)
                    self._weigh(name, size, info.compress_size)
                    yield piece
        except RuntimeError as exc:  # how zipfile says that it wants a password
            msg = f"The {self._what} is encrypted and needs a password. Save it again without one."
            raise LoadError(msg) from exc
        except _DAMAGE as exc:
            msg = f"The {self._what} is damaged: its part {name} cannot be unpacked ({exc})."
            raise LoadError(self._advised(msg)) from exc

    def _weigh(self, name: str, size: int, packed: int) -> None:
        if size > SMALL_ENTRY and size > MOST_RATIO * packed:
            self._reading.exceeded = True
            msg = (
                f"The {self._what} is packed like a zip bomb: its part {name} unpacks to more than {MOST_RATIO} times "
                "its size. If it is what you want to read, save it again from the program that it comes from."
            )
            raise LoadError(msg)

    def _advised(self, problem: str) -> str:
        return f"{problem} {self._save_as[:1].upper()}{self._save_as[1:]}."


@contextmanager
def open_archive(path: Path, what: str, suffix: str) -> Iterator[Archive]:
    """Open a zip container.

    Args:
        path: An existing file.
        what: What it should be, for messages: ``"Word document"``.
        suffix: How it should be saved again where it is none: ``".docx"``.

    Raises:
        LoadError: If it is no zip file, is cut off, is encrypted, or holds too many entries.
    """
    with path.open("rb") as stream:
        if stream.read(2) != b"PK":  # zipfile finds the small archives inside of old office files, too
            raise LoadError(_no_archive(path, what, suffix))
        try:
            with zipfile.ZipFile(stream) as file:
                yield Archive(file, what, f"save it again as {suffix}")
        except zipfile.BadZipFile as exc:
            raise LoadError(_no_archive(path, what, suffix)) from exc


def _no_archive(path: Path, what: str, suffix: str) -> str:
    """Why a file is no zip file, as far as its bytes say."""
    data = path.read_bytes()
    if data.startswith(_OLE) and _ENCRYPTED_PACKAGE in data:
        return f"The {what} is encrypted and needs a password. Save it again without one."
    if data.startswith(_OLE):
        return f"The file is no {what}: it is of another format, that of old office programs. Save it as {suffix}."
    return (
        f"The file is no {what}: it is cut off, encrypted, or of another format. Save it again as {suffix}."
        if data
        else f"The file is no {what}: it is empty. Save it again as {suffix}."
    )


def local_name(element: Element) -> str:
    """An element's name without its namespace, of which office formats have several each; "" for an entity.

    Example:
        >>> local_name(etree.fromstring('<a:t xmlns:a="urn:a"/>'))
        't'
    """
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""
