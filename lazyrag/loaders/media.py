"""Pictures, sound and films: files without text, for which a function can be given that finds some."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from lazyrag.data.segment import Place
from lazyrag.errors import AlreadyRegisteredError, ConfigError, LoadError, NoReaderError, known_names, sentence
from lazyrag.loaders.base import LoadedFile, loaders
from lazyrag.loaders.encoding import clean
from lazyrag.loaders.pictures import picture_facts
from lazyrag.loaders.recordings import recording_facts
from lazyrag.validation import known_arguments

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
