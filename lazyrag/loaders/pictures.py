"""What pictures say of themselves in their first bytes: width, height, date, camera. No picture is unpacked for it."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

_MOST_SEGMENTS = 1000
_MOST_FIELDS = 500
_WIDTH, _HEIGHT, _MAKE, _MODEL, _CHANGED, _EXIF, _TAKEN = 0x100, 0x101, 0x10F, 0x110, 0x132, 0x8769, 0x9003


def picture_facts(path: Path) -> dict[str, Any]:
    """Width and height in pixels, when a picture was taken (ISO 8601), and by which camera, as far as it says so.

    Args:
        path: A picture in PNG, JPEG, GIF, WebP, TIFF or BMP; of other formats, and of damaged ones, nothing is known.

    Raises:
        OSError: If the file cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(32)
        for mark, read in _READERS.items():
            if head.startswith(mark):
                try:
                    found = read(file, head)
                except (struct.error, IndexError):  # it ends too early
                    return {}
                return {name: value for name, value in found.items() if value}
    return {}


def _sides(width: int, height: int) -> dict[str, Any]:
    return {"width": width, "height": height}


def _gif(_: BinaryIO, head: bytes) -> dict[str, Any]:
    return _sides(*struct.unpack_from("<HH", head, 6))


def _bmp(_: BinaryIO, head: bytes) -> dict[str, Any]:
    if head[14] == 12:  # the oldest form
        return _sides(*struct.unpack_from("<HH", head, 18))
    width, height = struct.unpack_from("<ii", head, 18)
    return _sides(abs(width), abs(height))  # a negative height says that the picture is stored from its top


def _png(file: BinaryIO, head: bytes) -> dict[str, Any]:
    found = _sides(*struct.unpack_from(">II", head, 16))
    position = 8
    for _ in range(_MOST_SEGMENTS):
        length, kind = struct.unpack(">I4s", _at(file, position, 8))
        if kind == b"eXIf":
            return _tiff_fields(file, position + 8) | found
        if kind == b"IEND":
            break
        position += 12 + length
    return found


def _jpeg(file: BinaryIO, _: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    position = 2
    for _number in range(_MOST_SEGMENTS):
        mark, kind, length = struct.unpack(">BBH", _at(file, position, 4))
        if mark != 0xFF:
            break
        if kind == 0xFF:  # filling
            position += 1
            continue
        if kind == 0xE1 and _at(file, position + 4, 6) == b"Exif\0\0":
            found |= _tiff_fields(file, position + 10)
        elif 0xC0 <= kind <= 0xCF and kind not in {0xC4, 0xC8, 0xCC}:
            height, width = struct.unpack(">HH", _at(file, position + 5, 4))
            return found | _sides(width, height)
        position += 2 + length
    return found


def _riff(file: BinaryIO, head: bytes) -> dict[str, Any]:
    if head[8:12] != b"WEBP":
        return {}
    kind = head[12:16]
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", head, 26)
        return _sides(width & 0x3FFF, height & 0x3FFF)
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", head, 21)
        return _sides((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    found = _sides(*(int.from_bytes(head[at : at + 3], "little") + 1 for at in (24, 27)))
    position = 12
    for _ in range(_MOST_SEGMENTS):
        piece = _at(file, position, 8)
        if len(piece) < 8:
            break
        kind, length = struct.unpack("<4sI", piece)
        if kind == b"EXIF":
            start = 6 if _at(file, position + 8, 6) == b"Exif\0\0" else 0
            return _tiff_fields(file, position + 8 + start) | found
        position += 8 + length + length % 2
    return found


def _tiff(file: BinaryIO, _: bytes) -> dict[str, Any]:
    return _tiff_fields(file, 0)


def _tiff_fields(file: BinaryIO, start: int) -> dict[str, Any]:
    """What the fields of a TIFF say; cameras write such fields into other formats, too."""
    mark = _at(file, start, 8)
    order = {b"II": "<", b"MM": ">"}.get(mark[:2])
    if order is None:
        return {}
    fields = _directory(file, start, order, struct.unpack(f"{order}I", mark[4:])[0])
    inner = fields.get(_EXIF)
    if isinstance(inner, int):
        fields |= {_TAKEN: _directory(file, start, order, inner).get(_TAKEN)}
    make, model = (str(fields.get(tag) or "") for tag in (_MAKE, _MODEL))
    camera = model if model.startswith(make) else f"{make} {model}".strip()
    taken = _moment(fields.get(_TAKEN)) or _moment(fields.get(_CHANGED))
    return {"width": fields.get(_WIDTH), "height": fields.get(_HEIGHT), "taken": taken, "camera": camera}


def _directory(file: BinaryIO, start: int, order: str, offset: int) -> dict[int, int | str | None]:
    """The fields of a directory that are wanted: numbers and texts."""
    (count,) = struct.unpack(f"{order}H", _at(file, start + offset, 2))
    fields: dict[int, int | str | None] = {}
    for number in range(min(count, _MOST_FIELDS)):
        entry = _at(file, start + offset + 2 + 12 * number, 12)
        tag, kind, length = struct.unpack_from(f"{order}HHI", entry)
        if kind in {3, 4} and length == 1:
            (fields[tag],) = struct.unpack_from(f"{order}{'H' if kind == 3 else 'I'}", entry, 8)
        elif kind == 2:
            size = min(length, 200)
            at = struct.unpack_from(f"{order}I", entry, 8)[0]
            text = entry[8 : 8 + size] if length <= 4 else _at(file, start + at, size)
            fields[tag] = " ".join(text.partition(b"\0")[0].decode("utf-8", "replace").split())
    return fields


def _moment(value: object) -> str:
    """A date as cameras write it, in ISO 8601; "" where it is none."""
    try:
        return dt.datetime.strptime(str(value), "%Y:%m:%d %H:%M:%S").isoformat(sep=" ")  # noqa: DTZ007  they know no zone
    except ValueError:
        return ""


def _at(file: BinaryIO, position: int, size: int) -> bytes:
    file.seek(position)
    return file.read(size)


_READERS: dict[bytes, Callable[[BinaryIO, bytes], dict[str, Any]]] = {
    b"\x89PNG\r\n\x1a\n": _png,
    b"\xff\xd8\xff": _jpeg,
    b"GIF87a": _gif,
    b"GIF89a": _gif,
    b"RIFF": _riff,
    b"BM": _bmp,
    b"II*\0": _tiff,
    b"MM\0*": _tiff,
}
