"""Entries of a file, asked for what they should be; an error says in which line they are something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from lazyrag.errors import ConfigError, known_names
from lazyrag.loaders.located import Located
from lazyrag.validation import whole_number

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Checked:
    """An entry of a file: what it is called in messages, its value and its line.

    Each method gives the value as one kind of thing, or raises a ConfigError that begins with the line.

    Example:
        >>> Checked("topk", Located("three", 7)).whole(1)
        Traceback (most recent call last):
        ...
        lazyrag.errors.ConfigError: line 7: topk is 'three'; give a whole number of at least 1.
    """

    what: str
    held: Located

    @property
    def line(self) -> int:
        """Where it stands."""
        return self.held.line

    @property
    def is_mapping(self) -> bool:
        """Whether it has names and values."""
        return isinstance(self.held.value, dict)

    def called(self, what: str) -> Checked:
        """The same by another name."""
        return replace(self, what=what)

    def wrong(self, said: str) -> ConfigError:
        """The error that says something of it."""
        return ConfigError(f"line {self.line}: {self.what} {said}")

    def told(self, function: Callable[[], T]) -> T:
        """What a function returns; what it raises gets the line."""
        try:
            return function()
        except ConfigError as exc:
            msg = f"line {self.line}: {exc}"
            raise ConfigError(msg) from exc

    def mapping(self, *known: str, required: Sequence[str] = ()) -> dict[str, Checked]:
        """A mapping with none but these names."""
        entries = self.any_mapping()
        for name, entry in entries.items():
            if name not in known:
                msg = f"line {entry.line}: {self.what} has no entry {name!r}. {known_names(name, known)}"
                raise ConfigError(msg)
        for name in required:
            if name not in entries:
                raise self.wrong(f"lacks {name!r}. Give it.")
        return entries

    def any_mapping(self) -> dict[str, Checked]:
        """A mapping with names of any kind."""
        if not self.is_mapping:
            raise self._is_no("a mapping of names to values")
        return {name: Checked(name, value) for name, value in self.held.value.items()}

    def items(self) -> list[Checked]:
        """The entries of a list."""
        if not isinstance(self.held.value, list):
            raise self._is_no("a list")
        return [Checked(f"Entry {number} of {self.what}", one) for number, one in enumerate(self.held.value, start=1)]

    def text(self) -> str:
        """A text that is not blank."""
        if not isinstance(self.held.value, str) or not self.held.value.strip():
            raise self._is_no("a text that is not blank")
        return self.held.value

    def whole(self, least: int) -> int:
        """A whole number of at least so much."""
        return self.told(lambda: whole_number(self.what, self.held.value, least))

    def share(self) -> float:
        """A number above 0 and up to 1."""
        value = self.held.value
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
            raise self._is_no("a number above 0 and up to 1")
        return float(value)

    def path(self, folder: Path) -> Path:
        """A file or folder that is there, relative to a folder."""
        path = folder / self.text()
        if not path.exists():
            raise self.wrong(
                f"is {self.held.value!r}, and {str(path)!r} is not there. Paths start at the file's folder."
            )
        return path

    def plain_mapping(self) -> dict[str, Any]:
        """A mapping as it is, with plain values."""
        return {name: _plain(entry.held) for name, entry in self.any_mapping().items()}

    def _is_no(self, needed: str) -> ConfigError:
        return self.wrong(f"is {_plain(self.held)!r:.60}; give {needed}.")


def _plain(held: Located) -> Any:
    if isinstance(held.value, dict):
        return {name: _plain(value) for name, value in held.value.items()}
    return [_plain(one) for one in held.value] if isinstance(held.value, list) else held.value
