"""Values of JSON and YAML with the lines they stand on, for messages that say where something is wrong."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from lazyrag.errors import ConfigError

DEEPEST = 50
"""Lists and mappings may be nested so deep."""

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Located:
    """A value and where it stands.

    Args:
        value: A dict from text to `Located`, a list of `Located`, a text, a number, a truth value, None.
        line: Its first line, from 1.
    """

    value: Any
    line: int


def located_json(text: str) -> Located:
    r"""The value of a JSON text, and of all that is in it, with lines.

    Raises:
        ConfigError: If it is no JSON, a name stands twice in an object, or it is nested too deep; the message begins
            with the line.

    Example:
        >>> located_json('{\n"topk": 3}').value["topk"]
        Located(value=3, line=2)
    """
    try:
        json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as exc:
        msg = f"line {exc.lineno}: This is no JSON ({exc.msg}, column {exc.colno}). Mend it."
        raise ConfigError(msg) from exc
    except RecursionError as exc:
        raise nested_too_deep(1) from exc
    breaks = [match.start() for match in re.finditer("\n", text)]
    value, _ = _Scan(text, breaks).value(0, 1)
    return value


def nested_too_deep(line: int) -> ConfigError:
    """The error for values within values within values."""
    return ConfigError(f"line {line}: Values are nested more than {DEEPEST} deep. Write them flatter.")


def named_twice(name: str, line: int) -> ConfigError:
    """The error for a name that a mapping has twice, of which only one could count."""
    return ConfigError(f"line {line}: {name!r} is given twice. Leave one of them out.")


@dataclass(frozen=True, slots=True)
class _Scan:
    """A text that is JSON; what reads it need not look for mistakes."""

    text: str
    breaks: list[int]

    def value(self, index: int, depth: int) -> tuple[Located, int]:
        """The value that begins at an index or behind it, and where it ends."""
        start = self.skip(index)
        line = bisect_right(self.breaks, start) + 1
        if depth > DEEPEST:
            raise nested_too_deep(line)
        if self.text[start] == "{":
            members, end = self.members(start + 1, depth)
            return Located(members, line), end
        if self.text[start] == "[":
            items, end = self.items(start + 1, depth)
            return Located(items, line), end
        found, end = _DECODER.raw_decode(self.text, start)
        return Located(found, line), end

    def items(self, index: int, depth: int) -> tuple[list[Located], int]:
        """The values of an array, behind its bracket."""
        found: list[Located] = []
        index = self.skip(index)
        while self.text[index] != "]":
            value, index = self.value(index, depth + 1)
            found.append(value)
            index = self.behind_comma(index)
        return found, index + 1

    def members(self, index: int, depth: int) -> tuple[dict[str, Located], int]:
        """The members of an object, behind its brace."""
        found: dict[str, Located] = {}
        index = self.skip(index)
        while self.text[index] != "}":
            line = bisect_right(self.breaks, index) + 1
            name, index = _DECODER.raw_decode(self.text, index)
            if name in found:
                raise named_twice(name, line)
            found[name], index = self.value(self.skip(index) + 1, depth + 1)
            index = self.behind_comma(index)
        return found, index + 1

    def behind_comma(self, index: int) -> int:
        """Where the next value, or the closing bracket, stands."""
        index = self.skip(index)
        return self.skip(index + 1) if self.text[index] == "," else index

    def skip(self, index: int) -> int:
        """Behind white space."""
        match = _SPACE.match(self.text, index)
        return index if match is None else match.end()


def _no_number(name: str) -> None:
    msg = f"line 1: {name} is no number of JSON. Write another one."
    raise ConfigError(msg)
