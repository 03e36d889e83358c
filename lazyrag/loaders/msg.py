"""Mails of Outlook: `MsgLoader`."""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import olefile

from lazyrag.errors import LoadError
from lazyrag.loaders.archives import load_member
from lazyrag.loaders.base import LoadedFile, reading
from lazyrag.loaders.detect import clean, decode_lossy
from lazyrag.loaders.html import read_html
from lazyrag.loaders.mail import Attachment, base_name, whole_mail
from lazyrag.loaders.rtf import read_rtf
from lazyrag.types import JsonObject

MAGIC = bytes.fromhex("d0cf11e0a1b11ae1")
_HEADER = 512
_ADVICE = "Save the mail again as .msg or .eml."


class Container:
    """An open compound file. Its sizes are not trusted beyond the size on disk.

    Args:
        file: The compound file.
        size: Bytes on disk.
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
        """Names of the non-empty subfolders, in the container's order."""
        depth = len(folder)
        inside = (
            path[depth] for path in self.streams if path[:depth] == folder and len(path) > depth + 1
        )
        return list(dict.fromkeys(inside))

    def read(self, path: tuple[str, ...]) -> bytes:
        """The bytes of a stream; none if it is missing.

        Raises:
            LoadError: If the streams are longer than the file, as only circular ones are.
        """
        if path not in self:
            return b""
        self._read += self._file.get_size(list(path))
        if self._read > 4 * self._size:  # a stream may be read twice
            raise LoadError(
                "The file is damaged: its parts are longer than itself. Save it again from its"
                " program."
            )
        with self._file.openstream(list(path)) as stream:
            data: bytes = stream.read()
        return data


@contextmanager
def open_container(path: Path) -> Iterator[Container]:
    """Open a compound file.

    Raises:
        LoadError: If it is not one, or is damaged.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        header = stream.read(_HEADER)
    if not header.startswith(MAGIC):
        raise LoadError(
            "The file is of another format than its suffix says, or is damaged: it is no compound"
            f" file. {_ADVICE}"
        )
    # olefile reads as many tables as the header says, and copies them all for each one.
    tables = int.from_bytes(header[44:48], "little"), int.from_bytes(header[72:76], "little")
    if max(tables) * _HEADER > size:
        raise LoadError(f"The file is damaged: its tables are longer than itself. {_ADVICE}")
    try:
        with olefile.OleFileIO(str(path)) as file:
            yield Container(file, size)
    except LoadError:
        raise
    except (OSError, ValueError, IndexError, RecursionError) as exc:
        raise LoadError(f"The file is damaged: {exc}. {_ADVICE}") from exc


_MAX_RTF = 1 << 26  # bytes of a decompressed body

# Properties by their numbers in [MS-OXPROPS].
_SUBJECT = 0x0037
_BODY = 0x1000
_HTML = 0x1013
_PACKED_RTF = 0x1009
_SENDER = 0x0C1A
_SENDER_ADDRESS = 0x0C1F
_SENDER_SMTP = 0x5D01
_NAME = 0x3001
_ADDRESS = 0x3003
_SMTP = 0x39FE
_ROLE = 0x0C15
_DISPLAY = {"to": 0x0E04, "cc": 0x0E03}
_ROLES = {1: "to", 2: "cc"}
_SENT = 0x0039
_DELIVERED = 0x0E06
_INTERNET_PAGE = 0x3FDE
_MESSAGE_PAGE = 0x3FFD
_DATA = 0x3701
_LONG_NAME = 0x3707
_SHORT_NAME = 0x3704

Folder: TypeAlias = tuple[str, ...]


class MsgLoader:
    """Reads a mail of Outlook: subject, sender, recipients and date as its first lines, its body,
    its attachments.

    Of alternative bodies the plain text is read, else the HTML, else the Rich Text. Attachments are
    read as those of an eml, nested mails too. Headers and names of attachments become metadata,
    unread ones with their reasons.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        with open_container(path) as container:
            if not any(path[0].startswith("__properties_version1") for path in container.streams):
                raise LoadError(
                    "The file is not a mail: it is of another program, and its suffix is wrong."
                    f" {_ADVICE}"
                )
            return _read(container, ())

    load_source = load


def _read(container: Container, folder: Folder) -> LoadedFile:
    mail = _Item(container, folder, header=24 if folder else 32)
    sender = _person(mail.text(_SENDER), mail.text(_SENDER_SMTP) or mail.text(_SENDER_ADDRESS))
    headers: JsonObject = {"subject": " ".join(mail.text(_SUBJECT).split()), "from": sender}
    headers |= _recipients(mail)
    headers["date"] = mail.time(_SENT) or mail.time(_DELIVERED)
    headers = {name: value for name, value in headers.items() if value}
    bodies = []
    with reading().tolerated("body"):
        bodies.append(_body(mail))
    return whole_mail(headers, bodies, functools.partial(_attachments, mail))


class _Item:
    """A mail, a recipient or an attachment: properties by number."""

    def __init__(self, container: Container, folder: Folder, header: int = 8) -> None:
        self.container = container
        self.folder = folder
        table = container.read((*folder, "__properties_version1.0"))[header:]
        entries = struct.iter_unpack("<HHIQ", table[: len(table) // 16 * 16])
        self.fixed = {number: value for _, number, _, value in entries}

    def stream(self, number: int, kind: str) -> bytes:
        return self.container.read((*self.folder, f"__substg1.0_{number:04X}{kind}"))

    def text(self, number: int) -> str:
        wide = self.stream(number, "001F")
        if wide:
            return clean(wide.decode("utf-16-le", "replace").rstrip("\0"))
        narrow = self.stream(number, "001E").rstrip(b"\0")
        return decode_lossy(narrow, _encoding(self.fixed.get(_MESSAGE_PAGE)))

    def time(self, number: int) -> str:
        """A date as ISO 8601, in UTC; "" without a valid one."""
        seconds = self.fixed.get(number, 0) // 10_000_000  # from 1601 on
        try:
            moment = dt.datetime(1601, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(seconds=seconds)
        except OverflowError:
            return ""
        return moment.isoformat(sep=" ") if seconds else ""


def _encoding(code_page: int | None) -> str | None:
    return f"cp{code_page & 0xFFFF}" if code_page else None


def _person(name: str, address: str) -> str:
    """A name and an address as in mails. Addresses of a company's directory are skipped."""
    address = address.strip() if "@" in address else ""
    name = " ".join(name.split())
    return f"{name} <{address}>" if address and name not in ("", address) else name or address


def _recipients(mail: _Item) -> dict[str, str]:
    people: dict[str, list[str]] = {"to": [], "cc": []}
    for name in mail.container.folders(mail.folder):
        if name.startswith("__recip_version1.0_"):
            recipient = _Item(mail.container, (*mail.folder, name))
            role = _ROLES.get(recipient.fixed.get(_ROLE, 1) & 0xFF)
            address = recipient.text(_SMTP) or recipient.text(_ADDRESS)
            person = _person(recipient.text(_NAME), address)
            if role and person:
                people[role].append(person)
    return {role: ", ".join(listed) or mail.text(_DISPLAY[role]) for role, listed in people.items()}


def _body(mail: _Item) -> str:
    plain = mail.text(_BODY).replace("\r\n", "\n").strip()
    if plain:
        return plain
    page = mail.stream(_HTML, "0102")
    markup = (
        decode_lossy(page, _encoding(mail.fixed.get(_INTERNET_PAGE))) if page else mail.text(_HTML)
    )
    if markup.strip():
        return (markup if reading().source else read_html(markup, marked=True).text).strip()
    packed = mail.stream(_PACKED_RTF, "0102")
    return read_rtf(unpack_rtf(packed)).text.strip() if packed else ""


def _attachments(mail: _Item, temporary: Path) -> Iterator[Attachment]:
    folders = [
        name
        for name in mail.container.folders(mail.folder)
        if name.startswith("__attach_version1.0_")
    ]
    for number, folder in enumerate(folders, start=1):
        attachment = _Item(mail.container, (*mail.folder, folder))
        name = base_name(
            attachment.text(_LONG_NAME) or attachment.text(_SHORT_NAME) or attachment.text(_NAME)
        )
        inner = (*attachment.folder, f"__substg1.0_{_DATA:04X}000D")  # a mail in a mail is a folder
        if (*inner, "__properties_version1.0") in mail.container:
            yield (
                name or f"attachment {number}.msg",
                functools.partial(_read, mail.container, inner),
            )
        else:
            name = name or f"attachment {number}"
            pieces = itertools.starmap(
                attachment.stream, [(_DATA, "0102")]
            )  # read when the attachment is
            yield name, functools.partial(load_member, temporary, name, pieces)


_DICTIONARY = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript"
    rb" \fdecor MS Sans "
    rb"SerifSymbolArialTimes New RomanCourier{\colortbl\red0\green0\blue0" + b"\r\n"
    rb"\par \pard\plain\f0\fs20\b\i\u\tab\tx"
)
_WINDOW = 4096


def unpack_rtf(data: bytes) -> bytes:
    r"""Decompress the Rich Text of a mail ([MS-OXRTFCP]).

    Raises:
        LoadError: If the compression is unknown, or the text is too large.

    Example:
        >>> data = "2d0000002b0000004c5a4675f1c5c7a703000a00726370673132354232"
        >>> data += "0af32068656c090020627705b06c647d0a800fa0"
        >>> unpack_rtf(bytes.fromhex(data))
        b'{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n'
    """
    if data[8:12] == b"MELA":  # not compressed
        return data[16:]
    if data[8:12] != b"LZFu":
        raise LoadError(f"The body of the mail has an unknown compression. {_ADVICE}")
    window = bytearray(_DICTIONARY.ljust(_WINDOW, b" "))
    at = len(_DICTIONARY)
    unpacked = bytearray()
    for copied, start, length, letter in _steps(data):
        if copied and start == at:  # the end mark
            break
        for offset in range(length):
            # copied bytes may be copied again
            window[at] = window[(start + offset) % _WINDOW] if copied else letter
            unpacked.append(window[at])
            at = (at + 1) % _WINDOW
        if len(unpacked) > _MAX_RTF:
            raise LoadError(
                f"The body of the mail unpacks to more than {_MAX_RTF >> 20} MiB. {_ADVICE}"
            )
    return bytes(unpacked)


def _steps(data: bytes) -> Iterator[tuple[bool, int, int, int]]:
    """Instructions: (True, start, length, _) copies from the window, (False, _, 1, letter) adds a
    letter.
    """
    position = 16
    while position < len(data):
        control = data[position]
        position += 1
        for bit in range(8):
            if control >> bit & 1 and position + 2 <= len(data):
                token = int.from_bytes(data[position : position + 2], "big")
                position += 2
                yield True, token >> 4, (token & 15) + 2, 0
            elif not control >> bit & 1 and position < len(data):
                position += 1
                yield False, 0, 1, data[position - 1]
            else:
                return
