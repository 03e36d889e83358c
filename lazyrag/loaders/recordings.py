"""What sound and films say of themselves: how long they are, who made them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lazyrag.errors import missing_package

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
