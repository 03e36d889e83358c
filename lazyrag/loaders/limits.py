"""How much of a machine one file may take, and the state of the loading that is under way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

from lazyrag.errors import ConfigError, LoadError
from lazyrag.validation import known_arguments, whole_number

DEEPEST_NESTING = 5
"""Files within files (an archive in a mail in an archive) that are followed."""


@known_arguments
@dataclass(frozen=True, slots=True)
class LoadLimits:
    """What one file may take while it is loaded. What exceeds a limit is one failure, which names the limit.

    ``time_s`` and ``memory_bytes`` can only be held against another process: they need ``Document(processes=...)``.
    Loaders that no other process can import are called without these two.

    Args:
        bytes: Size of a file. 0 or None takes a limit away, here as everywhere below.
        pages: Pages or slides.
        unpacked_bytes: What is unpacked of a container, over all its members and the containers among them.
        time_s: How long a loader may work on a file, in seconds.
        memory_bytes: What the loading process may have in memory, with itself and its libraries, 50 MiB and more;
            other programs that a loader begins do not count. Linux tells it; elsewhere there is no such limit, and one
            that is given is refused.
        files_per_process: Files after which another process takes the place of one: what parsers leak goes with it.

    Raises:
        ConfigError: If one is negative, or no number.

    Example:
        >>> LoadLimits(pages=100, time_s=0).pages
        100
    """

    bytes: int | None = 1 << 30
    pages: int | None = 5_000
    unpacked_bytes: int | None = 1 << 29
    time_s: float | None = 300.0
    memory_bytes: int | None = 1 << 32
    files_per_process: int | None = 500

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is None:
                continue
            if one.name == "time_s":
                if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < math.inf:
                    msg = f"time_s is {value!r}; give seconds, or 0 for no limit."
                    raise ConfigError(msg)
            else:
                value = whole_number(one.name, value, 0)
            object.__setattr__(self, one.name, value or None)


DEFAULT_LIMITS = LoadLimits()


def over_limit(found: str, name: str, limit: float) -> LoadError:
    """The error for a file that exceeds a limit.

    Args:
        found: What was found, as the beginning of a sentence: ``"The file has 20,000 pages"``.
        name: The limit, an argument of `LoadLimits`.
        limit: Its value.

    Example:
        >>> str(over_limit("The file has 9 pages", "pages", 8)).partition(". ")[0]
        'The file has 9 pages; the limit pages=8 is exceeded'
    """
    return LoadError(
        f"{found}; the limit {name}={limit:,} is exceeded. Raise it with Document(limits=LoadLimits({name}=...)); "
        "0 is no limit."
    )


@dataclass(frozen=True, slots=True)
class FileReader:
    """What reads a file.

    Args:
        name: What it is called, for messages.
        load: Reads the file at a path, see `lazyrag.loaders.base.Loadable`.
        of: Which files it reads, for messages: ``".log"``.
        built_in: Whether it is one of ours.
        content: The suffix of such files, if it was chosen by the content of this one; else "".
    """

    name: str
    load: Callable[[Path], Any]
    of: str
    built_in: bool = False
    content: str = ""


FindReader: TypeAlias = Callable[[str, str], "FileReader | None"]
"""From a file's name relative to its dataset or archive, and its own name, to what its user reads it with, or None."""


class Reading:
    """The loading of one file, with the files within it.

    Args:
        limits: What it may take.
        readers: What its user named for files of certain names, those within it included.
    """

    __slots__ = ("depth", "exceeded", "limits", "readers", "unpacked")

    def __init__(self, limits: LoadLimits = DEFAULT_LIMITS, readers: FindReader | None = None) -> None:
        self.limits = limits
        self.readers = readers
        self.depth = 0
        self.unpacked = 0
        self.exceeded = False

    def count_unpacked(self, count: int, what: str) -> None:
        """Count bytes that were unpacked.

        Args:
            count: How many.
            what: What they come from, for the message: ``"Word document"``.

        Raises:
            LoadError: If they are too many, together with those before.
        """
        self.unpacked += count
        most = self.limits.unpacked_bytes
        if most is not None and self.unpacked > most:
            self.exceeded = True
            raise over_limit(f"The {what} unpacks to more than {most / (1 << 20):,.4g} MiB", "unpacked_bytes", most)


_under_way: ContextVar[Reading | None] = ContextVar("lazyrag_reading", default=None)


def reading() -> Reading:
    """The loading that is under way in this thread; a new one, under the default limits, where there is none."""
    return _under_way.get() or Reading()


@contextmanager
def read_within(limits: LoadLimits | None, readers: FindReader | None) -> Iterator[Reading]:
    """Load a file, or one that lies within the file that is being loaded, and shares its limits.

    Args:
        limits: Of a file; None for the default ones, or those of the file that it lies within.
        readers: Of its user; None for none, or those of the file that it lies within.

    Raises:
        LoadError: If files lie within files too deep.
    """
    now = _under_way.get()
    if now is None:
        now = Reading(limits or DEFAULT_LIMITS, readers)
    elif now.depth >= DEEPEST_NESTING:
        msg = f"It lies deeper than {DEEPEST_NESTING} files within files. Unpack the outer ones."
        raise LoadError(msg)
    now.depth += 1
    token = _under_way.set(now)
    try:
        yield now
    finally:
        _under_way.reset(token)
        now.depth -= 1


def check_pages(count: int, kind: str = "pages") -> None:
    """Refuse a file of too many pages; a loader calls it as soon as it knows how many there are.

    Args:
        count: How many.
        kind: What they are called: ``"slides"``.

    Raises:
        LoadError: If they are more than the limit.
    """
    most = reading().limits.pages
    if most is not None and count > most:
        raise over_limit(f"The file has {count:,} {kind}", "pages", most)
