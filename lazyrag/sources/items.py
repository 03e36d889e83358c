"""What a source gives: items with an identity, what failed, and whether it came to its end."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from lazyrag.data.segment import EMPTY, Place
from lazyrag.errors import IngestionWarning, LoadError, warn_user
from lazyrag.loaders import load_file


@dataclass(frozen=True, slots=True)
class SourceItem:
    """One record or page as it will lie in a folder.

    Args:
        identity: What it is known by from run to run, such as a record's key or a page's URL.
        content: Bytes of the file.
        suffix: Of the file, which says what loader reads it.
        metadata: What the source says of it: texts, numbers, True and False, None, and lists of these.
    """

    identity: str
    content: bytes
    suffix: str = ".txt"
    metadata: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class FailedItem:
    """One that could not be had.

    Args:
        identity: What it is known by.
        error: Why not, and what to do.
        transient: Whether it may be there the next time.
        gone: Whether the source says that it is no longer there; its file goes, as if it had not been named.
    """

    identity: str
    error: str
    transient: bool = True
    gone: bool = False


@dataclass(frozen=True, slots=True)
class CutShort:
    """The source ended before its end; what it did not give may still be there.

    Args:
        reason: The limit, or what broke.
    """

    reason: str


Event: TypeAlias = "SourceItem | FailedItem | CutShort"


class Source(Protocol):
    """Where items come from."""

    @property
    def name(self) -> str:
        """What a folder remembers it by: the same for each run of the same source, and no secret in it."""

    def items(self) -> Iterator[Event]:
        """Everything it has, from the beginning, in the same order if nothing changed."""


@dataclass(frozen=True, slots=True)
class LoadedItem:
    """An item as text.

    Args:
        identity: What it is known by from run to run.
        text: The whole text.
        places: Headings or pages, as stretches of the text.
        metadata: What the source and the file itself say; the source comes first.
    """

    identity: str
    text: str
    places: tuple[Place, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


def loaded_items(source: Source) -> Iterator[LoadedItem]:
    """The items of a source as text, one after the other. What fails is warned of, and passed over.

    Args:
        source: Any source.

    Raises:
        LoadError: If the source itself cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        for event in source.items():
            if isinstance(event, SourceItem):
                try:
                    loaded = _loaded(event, Path(folder, f"item{event.suffix}"))
                except LoadError as exc:
                    warn_user(f"{event.identity}: {exc}", IngestionWarning)
                else:
                    yield loaded
            elif isinstance(event, FailedItem):
                warn_user(f"{event.identity}: {event.error}", IngestionWarning)
            else:
                warn_user(f"{source.name} was cut short: {event.reason}", IngestionWarning)


def _loaded(item: SourceItem, path: Path) -> LoadedItem:
    """An item through the loader of its suffix, which takes a path."""
    path.write_bytes(item.content)
    loaded = load_file(path)
    return LoadedItem(item.identity, loaded.text, loaded.places, {**loaded.metadata, **item.metadata})


def digest(text: str) -> str:
    """Eight digits that tell texts apart in a source's name, without showing what may be secret in them.

    Example:
        >>> digest("SELECT 1") == digest("SELECT 2")
        False
    """
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=4).hexdigest()


def plain(value: Any) -> Any:
    """A value as metadata has it: what JSON knows, and texts of the rest.

    Args:
        value: Of a record.

    Example:
        >>> import datetime, decimal
        >>> plain(datetime.date(2026, 4, 1)), plain(decimal.Decimal("2.50")), plain([1, None])
        ('2026-04-01', 2.5, [1, None])
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    as_date: Callable[[], str] | None = getattr(value, "isoformat", None)
    if callable(as_date):
        return as_date()
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return str(value)
    return number if number - number == 0 else None  # NaN and the infinities compare with nothing
