"""Images, audio and video, which functions that users register read; and subtitles."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

from lazyrag.data.segment import EMPTY
from lazyrag.errors import AlreadyRegisteredError, LoadError, NoReaderError, sentence
from lazyrag.loaders.base import LoadedFile, loaders
from lazyrag.types import Metadata
from lazyrag.validation import known_arguments, require, validate_choice

MediaKind: TypeAlias = Literal["image", "audio", "video"]
"""Kinds of files without text."""

SUFFIXES: dict[MediaKind, tuple[str, ...]] = {
    "image": (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"),
    "audio": (".flac", ".m4a", ".mp3", ".ogg", ".wav"),
    "video": (".mkv", ".mov", ".mp4", ".webm"),
}
"""The suffixes of each kind."""

MediaReader: TypeAlias = "Callable[[Path], str | LoadedFile | Iterable[tuple[float, float, str]]]"
"""From a file's path to its text or description: a text, or pieces (start, end, text), the times in
seconds."""


def without_reader(kind: MediaKind) -> str:
    """Why a file of a kind is skipped."""
    return f"{kind} without a media reader (register_media_reader)"


@known_arguments
class _MediaLoader:
    kind: ClassVar[MediaKind]

    def __init__(self, reader: MediaReader | None = None) -> None:
        require(
            reader is None or callable(reader),
            "reader",
            reader,
            "a function of a path that returns text",
        )
        self._reader = reader

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        if self._reader is None:
            hint = (
                f'Register one with register_media_reader("{self.kind}", function): function(path)'
                " returns text."
            )
            raise NoReaderError(
                f"No text extractor for {self.kind} files. {hint}", reason=without_reader(self.kind)
            )
        return _read(self._reader, path, self.kind)


class ImageLoader(_MediaLoader):
    """Reads an image with a function that extracts its text or describes it; without one it is
    skipped and reported.

    Args:
        reader: From the path to a text; None for the function of `register_media_reader`, if there
            is one.
    """

    kind = "image"


class AudioLoader(_MediaLoader):
    """Reads audio with a function that transcribes it; without one it is skipped and reported.

    Args:
        reader: From the path to a text, or to pieces (start, end, text), which become locations;
            None as for `ImageLoader`.
    """

    kind = "audio"


class VideoLoader(_MediaLoader):
    """Reads video with a function that transcribes or describes it; without one it is skipped and
    reported.

    Args:
        reader: From the path to a text, or to pieces (start, end, text), which become locations;
            None as for `ImageLoader`.
    """

    kind = "video"


_LOADERS: dict[MediaKind, type[_MediaLoader]] = {
    "image": ImageLoader,
    "audio": AudioLoader,
    "video": VideoLoader,
}


def register_media_reader(
    kind: MediaKind, reader: MediaReader, *, replace: bool = False
) -> MediaReader:
    """Register the function that reads images, audio or video: OCR, captions, transcripts.

    It is called once for each new or changed file, by several threads. Suffixes with a loader of
    your own keep it.

    Args:
        kind: ``"image"``, ``"audio"`` or ``"video"``.
        reader: From the path to a text; or to pieces (start, end, text) with times in seconds,
            which become locations of kind ``time``; or to a `LoadedFile`.
        replace: Replace another function.

    Returns:
        The function, unchanged.

    Raises:
        ConfigError: If there is no such kind, or ``reader`` is not callable.
        AlreadyRegisteredError: If the kind has another function.

    Example:
        >>> from lazyrag.loaders import loaders
        >>> with loaders.isolated():
        ...     _ = register_media_reader("image", lambda path: f"A picture called {path.stem}")
    """
    validate_choice("kind of media", kind, _LOADERS)
    require(callable(reader), "reader", reader, "a function of a path that returns text")

    class Registered:  # a class within a function stays in this process, where the function is
        media_reader = (kind, reader)

        def load(self, path: Path) -> LoadedFile:
            return _read(reader, path, kind)

    Registered.__name__ = _LOADERS[kind].__name__
    for suffix in SUFFIXES[kind]:
        current = loaders[suffix]
        registered = getattr(current, "media_reader", None)
        if current is not _LOADERS[kind] and registered is None:
            continue
        if registered not in (None, (kind, reader)) and not replace:
            raise AlreadyRegisteredError(
                f"{kind} files have a reader already: {registered[1]!r}. Pass replace=True to"
                " replace it."
            )
        loaders.register(suffix, Registered, replace=True)
    return reader


def read_image(path: Path) -> LoadedFile:
    """A media reader for images that a vision model reads later, such as
    ``LLMParser(task_type="qa_img")``.

    The text is the file's name; the metadata ``image_path`` and ``image_hash`` identify the image.

    Example:
        >>> with loaders.isolated():
        ...     _ = register_media_reader("image", read_image)
    """
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return LoadedFile(
        path.name, metadata={"image_path": str(path.absolute()), "image_hash": digest}
    )


def _read(reader: MediaReader, path: Path, kind: MediaKind) -> LoadedFile:
    from lazyrag.loaders.detect import clean

    name = getattr(reader, "__name__", type(reader).__name__)
    try:
        result = reader(path)
        if isinstance(result, LoadedFile):
            return result
        if isinstance(result, str):
            return LoadedFile(clean(result))
        pieces = [(float(start), float(end), clean(text).strip()) for start, end, text in result]
    except LoadError:
        raise
    except Exception as exc:
        raised = sentence(f"The reader {name} of {kind} files raised {type(exc).__name__}: {exc}")
        raise LoadError(
            f"{raised} It must return a text, or pieces (start, end, text). Fix it, or let it raise"
            " LoadError."
        ) from exc
    return _transcript(pieces)


def _transcript(
    pieces: Iterable[tuple[float, float, str]], metadata: Metadata = EMPTY
) -> LoadedFile:
    """Pieces with times as lines, each a location."""
    from lazyrag.loaders.tables import TextLines  # few programs need it

    lines = TextLines()
    for start, end, words in pieces:
        if words:
            lines.add(words, ("time", f"{_clock(start)}–{_clock(end)}"))
    return lines.loaded(metadata)


_TIME = r"(?:(\d{1,9}):)?(\d{1,2}):(\d{1,2}(?:[.,]\d{1,9})?)"
_CUE = re.compile(
    rf"^(?:[ \t]*\d+[ \t]*\n)?[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}(?![\d:]).*\n?",
    re.ASCII | re.MULTILINE,
)
"""The times above a cue, with its number."""
_EMPTY_LINE = re.compile(r"^[^\S\n]*$", re.MULTILINE)
_SPEAKER = re.compile(r"<v(?:\.[^\s<>]*)?\s([^<>]*)>")
_FORMATS = re.compile(
    r"</?(?:b|br|c|font|i|lang|rt|ruby|s|span|u|v)(?:[.\s/][^<>]*)?>|<[\d:.]+>|\{\\[^{}]*\}",
    re.IGNORECASE,
)


class SubtitleLoader:
    """Reads WebVTT and SubRip: each cue is a line, and a location of kind ``time``.

    Speaker names precede their words. Notes, styles and formats are skipped.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        from html import unescape

        from lazyrag.loaders.detect import find_encoding

        read = find_encoding(path.read_bytes())
        cues = []
        text = re.sub("\r\n?", "\n", read.text)
        matches = list(_CUE.finditer(text))
        if not matches:
            raise LoadError(
                "The file must have at least one cue, such as 00:01.000 --> 00:02.500; it has none."
                " Save it again, or as .txt."
            )
        ends = [*(match.start() for match in matches[1:]), len(text)]
        for match, end in zip(matches, ends, strict=True):
            words = _EMPTY_LINE.split(text[match.end() : end], maxsplit=1)[0]
            spoken = _FORMATS.sub("", _SPEAKER.sub(r"\1: ", words))
            spoken = " ".join(unescape(spoken).split())
            times = match.groups()
            cues.append((_seconds(*times[:3]), _seconds(*times[3:]), spoken))
        return _transcript(cues, read.metadata)


def _seconds(hours: str, minutes: str, seconds: str) -> float:
    return 3600 * int(hours or 0) + 60 * int(minutes) + float(seconds.replace(",", "."))


def _clock(seconds: float) -> str:
    """Format seconds as players do: ``1:02:03``, or ``02:03`` within the first hour."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"
