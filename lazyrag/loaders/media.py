"""Pictures, sound and films: files without text, for which a function can be given that finds some."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, get_args

from lazyrag.data.segment import Place
from lazyrag.errors import (
    AlreadyRegisteredError,
    ConfigError,
    LoadError,
    NoReaderError,
    known_names,
    missing_package,
    sentence,
)
from lazyrag.loaders.base import LoadedFile, loaders
from lazyrag.loaders.detect import clean
from lazyrag.validation import known_arguments

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


_TAGS = ("title", "artist", "album", "composer", "genre", "year", "comment")


def recording_facts(path: Path) -> dict[str, Any]:
    """Duration in seconds and the tags of a recording, as far as it has any.

    Formats without tags that are known here (mkv, webm) have none. What damage hinders stands under
    ``unread_metadata``: a recording that cannot be read as to its tags may still be played.

    Args:
        path: A recording.

    Raises:
        MissingDependencyError: If tinytag is not installed.
        OSError: If the file cannot be read.
    """
    try:
        from tinytag import TinyTag, TinyTagException, UnsupportedFormatError
    except ModuleNotFoundError as exc:
        what = "The metadata of recordings"
        raise missing_package(what, exc, "media") from exc
    try:
        tag = TinyTag.get(path)
    except UnsupportedFormatError:
        return {}
    except (TinyTagException, ValueError, ArithmeticError, LookupError, TypeError) as exc:
        return {"unread_metadata": f"{type(exc).__name__}: {exc}".rstrip(": ")}
    found: dict[str, Any] = {"duration_s": round(tag.duration, 3) if tag.duration else None}
    found |= {name: " ".join(str(getattr(tag, name)).split()) for name in _TAGS if getattr(tag, name)}
    return {name: value for name, value in found.items() if value}


MediaKind: TypeAlias = Literal["image", "audio", "video"]
"""What a file without text is."""

SUFFIXES: dict[MediaKind, tuple[str, ...]] = {
    "image": (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"),
    "audio": (".flac", ".m4a", ".mp3", ".ogg", ".wav"),
    "video": (".mkv", ".mov", ".mp4", ".webm"),
}
"""The suffixes of each kind."""

_WHAT: dict[MediaKind, str] = {"image": "a picture", "audio": "sound", "video": "a film"}

MediaReader: TypeAlias = "Callable[[Path], str | LoadedFile | Iterable[tuple[float, float, str]]]"
"""From a file's path to what it shows or says: a text, or pieces (start, end, text), the times in seconds."""


@known_arguments
class ImageLoader:
    """Reads a picture by a function that finds its text or describes it; without one it is left out and reported.

    Width, height, date and camera become metadata.

    Args:
        reader: From the path to a text; None for none, unless `register_media_reader` was given one.
    """

    def __init__(self, reader: MediaReader | None = None) -> None:
        self._reader = reader

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        return _load(path, "image", self._reader)


@known_arguments
class AudioLoader:
    """Reads sound by a function that writes down what is said; without one it is left out and reported.

    Duration and tags such as title and artist become metadata (extra ``media``). Pieces with times become places.

    Args:
        reader: From the path to a text, or to pieces (start, end, text); None as for `ImageLoader`.
    """

    def __init__(self, reader: MediaReader | None = None) -> None:
        self._reader = reader

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        return _load(path, "audio", self._reader)


@known_arguments
class VideoLoader:
    """Reads a film by a function that writes down what is said or seen; without one it is left out and reported.

    Duration and tags become metadata where they are known (extra ``media``). Pieces with times become places.

    Args:
        reader: From the path to a text, or to pieces (start, end, text); None as for `ImageLoader`.
    """

    def __init__(self, reader: MediaReader | None = None) -> None:
        self._reader = reader

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        return _load(path, "video", self._reader)


_LOADERS: dict[MediaKind, type] = {"image": ImageLoader, "audio": AudioLoader, "video": VideoLoader}


def register_media_reader(kind: MediaKind, reader: MediaReader, *, replace: bool = False) -> MediaReader:
    """Give the function that reads pictures, sound or films: text recognition, captions, transcripts.

    It is called once for each new or changed file, by several threads. A suffix of the kind that another loader was
    registered for stays with that one.

    Args:
        kind: ``"image"``, ``"audio"`` or ``"video"``.
        reader: From the path to a text; or to pieces (start, end, text) with times in seconds, which become places of
            kind ``time``; or to a `LoadedFile`.
        replace: Take the place of another function.

    Returns:
        The function, unchanged.

    Raises:
        ConfigError: If there is no such kind, or ``reader`` cannot be called.
        AlreadyRegisteredError: If the kind has another function.

    Example:
        >>> from lazyrag.loaders import loaders
        >>> with loaders.isolated():
        ...     _ = register_media_reader("image", lambda path: f"A picture called {path.stem}")
    """
    if kind not in _LOADERS:
        msg = f"There is no media of kind {kind!r}. {known_names(str(kind), get_args(MediaKind))}"
        raise ConfigError(msg)
    if not callable(reader):
        msg = f"register_media_reader needs a function of a path that returns text, not {reader!r}."
        raise ConfigError(msg)

    class Registered:  # a class within a function stays in this process, where the function is
        media_reader = (kind, reader)

        def load(self, path: Path) -> LoadedFile:
            return _load(path, kind, reader)

    Registered.__name__ = _LOADERS[kind].__name__
    for suffix in SUFFIXES[kind]:
        known = loaders[suffix]
        taken_by = getattr(known, "media_reader", None)
        if known is not _LOADERS[kind] and taken_by is None:
            continue
        if taken_by not in (None, (kind, reader)) and not replace:
            msg = (
                f"A reader of {kind} files is registered already: {taken_by[1]!r}. Say replace=True to take its place."
            )
            raise AlreadyRegisteredError(msg)
        loaders.register(suffix, Registered, replace=True)
    return reader


def _load(path: Path, kind: MediaKind, reader: MediaReader | None) -> LoadedFile:
    if reader is None:
        msg = (
            f"The file is {_WHAT[kind]}: it has no text of its own, and no function is given that finds some. "
            f'Give one with register_media_reader("{kind}", function); it gets the path and returns text.'
        )
        raise NoReaderError(msg)
    if not callable(reader):
        msg = f"The loader of {kind} files needs a function of a path that returns text, not {reader!r}."
        raise ConfigError(msg)
    facts = picture_facts(path) if kind == "image" else recording_facts(path)
    read = _read(reader, path, kind)
    return LoadedFile(read.text, read.places, {**facts, **read.metadata})


def _read(reader: MediaReader, path: Path, kind: MediaKind) -> LoadedFile:
    """What a function makes of a file."""
    name = getattr(reader, "__name__", type(reader).__name__)
    try:
        found = reader(path)
        if isinstance(found, LoadedFile):
            return found
        if isinstance(found, str):
            return LoadedFile(clean(found))
        pieces = [(float(start), float(end), clean(text).strip()) for start, end, text in found]
    except LoadError:
        raise
    except Exception as exc:
        said = sentence(f"The reader {name} of {kind} files raised {type(exc).__name__}: {exc}")
        msg = f"{said} It returns a text, or pieces (start, end, text). Mend it, or let it raise LoadError."
        raise LoadError(msg) from exc
    text = ""
    places = []
    for start, end, words in pieces:
        if words:
            places.append(Place(len(text), len(text) + len(words), "time", f"{_clock(start)}-{_clock(end)}"))
            text += words + "\n"
    return LoadedFile(text.removesuffix("\n"), tuple(places))


def _clock(seconds: float) -> str:
    """Seconds as players show them: ``1:02:03``, or ``2:03`` within the first hour."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
