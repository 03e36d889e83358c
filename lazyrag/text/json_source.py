"""JSON as it is written: its values with their places in the text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

DEEPEST = 200
"""How many arrays and objects may stand in one another."""

_SPACE = re.compile(r"[ \t\r\n\ufeff]*")
_STRING = re.compile(r'"[^"\\]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\]*)*"')
_OTHER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.+-])|(?:true|false|null|NaN|-?Infinity)(?!\w)")
_PLAIN_KEY = re.compile(r"[^\W\d]\w*")


@dataclass(slots=True)
class Value:
    """A value in a text.

    Args:
        start: Where it begins; a member of an object, where its key does.
        value: Where the value itself begins.
        end: Where it ends.
        kind: What it is; an ``other`` is a number or a literal.
        step: How its container names it, as in a JSON path: ``".name"``, ``"[3]"``.
        children: Of an array or an object.
    """

    start: int
    value: int
    end: int
    kind: Literal["object", "array", "string", "other"]
    step: str = ""
    children: list[Value] = field(default_factory=list)


def json_values(text: str) -> list[Value]:
    r"""The values of a text: one, or several with white space between them, as in JSON Lines.

    Raises:
        ValueError: If it is no JSON, or nested deeper than `DEEPEST`; it says where.

    Example:
        >>> [one.step for one in json_values('{"tea": ["green"], "a b": 1}')[0].children]
        ['.tea', "['a b']"]
    """
    reader = _Reader(text)
    values = []
    while reader.at < len(text):
        values.append(reader.value(0))
        reader.space()
    if len(values) > 1:
        for number, one in enumerate(values):
            one.step = f"[{number}]"
    return values


def string_value(source: str) -> str:
    """The text that a JSON string stands for."""
    value: str = json.loads(source, strict=False)
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.space()

    def space(self) -> None:
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def value(self, depth: int) -> Value:
        start, first = self.at, self.text[self.at : self.at + 1]
        if first in ("{", "["):
            if depth >= DEEPEST:
                raise self._error(f"nested deeper than {DEEPEST}")
            self.at += 1
            children = list(self._members(depth + 1, is_object=first == "{"))
            return Value(start, start, self.at, "object" if first == "{" else "array", children=children)
        found = (_STRING if first == '"' else _OTHER).match(self.text, self.at)
        if found is None:
            raise self._error("no value")
        self.at = found.end()
        return Value(start, start, self.at, "string" if first == '"' else "other")

    def _members(self, depth: int, *, is_object: bool) -> Iterator[Value]:
        closing = "}" if is_object else "]"
        self.space()
        number = 0
        while not self.text.startswith(closing, self.at):
            if number:
                self._expect(",")
            start, step = self.at, f"[{number}]"
            if is_object:
                key = _STRING.match(self.text, self.at)
                if key is None:
                    raise self._error("no key")
                step = _step(string_value(key[0]))
                self.at = key.end()
                self.space()
                self._expect(":")
            one = self.value(depth)
            one.start, one.step = start, step
            yield one
            self.space()
            number += 1
        self.at += 1

    def _expect(self, mark: str) -> None:
        if not self.text.startswith(mark, self.at):
            raise self._error(f"no {mark!r}")
        self.at += 1
        self.space()

    def _error(self, what: str) -> ValueError:
        line = self.text.count("\n", 0, self.at) + 1
        column = self.at - self.text.rfind("\n", 0, self.at)
        return ValueError(f"{what} at line {line}, column {column}")


def _step(key: str) -> str:
    if _PLAIN_KEY.fullmatch(key):
        return f".{key}"
    return "['" + key.replace("\\", "\\\\").replace("'", "\\'") + "']"
