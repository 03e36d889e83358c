"""Structured output of chat models: the JSON schema that is sent, and a tolerant JSON reader for
the answer.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from lazyrag.models.chat import CallableChatModel
from lazyrag.models.protocols import ChatModel, ChatOptions
from lazyrag.types import JsonMapping, JsonObject


def object_schema(**properties: Any) -> JsonObject:
    """JSON schema of an object whose properties are all required, as strict structured output wants
    it.

    Example:
        >>> object_schema(score={"type": "integer"})["required"]
        ['score']
    """
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def with_schema(model: ChatModel, schema: JsonMapping) -> ChatOptions | None:
    """Return a model's own options with a JSON schema; None for a model whose options are
    unknown.
    """
    options = getattr(model, "options", None)
    if isinstance(options, ChatOptions):
        return dataclasses.replace(options, json_schema=schema)
    return ChatOptions(json_schema=schema) if isinstance(model, CallableChatModel) else None


class FoundJson(NamedTuple):
    """JSON found in an answer.

    Args:
        value: The value, without the item that was cut off.
        is_cut: Whether the answer ended before the JSON did.
    """

    value: Any
    is_cut: bool = False


_MAX_TRIES = 16  # brackets at which JSON may begin; prose has few
_MAX_DEPTH = 32
_MAX_QUOTES = 1000  # unescaped ones inside a string
_OPENING = re.compile(r"[\[［{｛]")


def find_json(text: str, is_wanted: Callable[[Any], bool]) -> FoundJson | None:
    """Find the first JSON list or object in a text that meets a condition.

    Accepts what models write in place of JSON: single, typographic or full-width quotes, full-width
    punctuation, trailing and missing commas, unquoted keys, comments, text around the JSON, and an
    end that was cut off.

    Args:
        text: An answer.
        is_wanted: Whether a value is of the expected kind.

    Example:
        >>> find_json("Sure: ['tea', 'milk',] as requested", lambda value: isinstance(value, list))
        FoundJson(value=['tea', 'milk'], is_cut=False)
        >>> find_json('[{"q": "Hot?", "a": "Yes."}, {"q": "Co', bool)
        FoundJson(value=[{'q': 'Hot?', 'a': 'Yes.'}], is_cut=True)
    """
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        pass
    else:
        if is_wanted(value):
            return FoundJson(value)
    for match in list(_OPENING.finditer(text))[:_MAX_TRIES]:
        reader = _Reader(text, match.start())
        try:
            found_json = FoundJson(reader.value(0), reader.is_cut)
        except _NotJson:
            continue
        if is_wanted(found_json.value):
            return found_json
    return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)  # NaN and Infinity


_CLOSING = {"[": "]］", "［": "]］", "{": "}｝", "｛": "}｝"}
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "＂": "＂"}
_SPACE = re.compile(r"(?:\s|//[^\n]*\n)*")
_AFTER_STRING = re.compile(r"\s{0,200}(?:[,:\]}，：、；;］｝]|\Z|\n\s{0,200}[\"'“‘])")
_NUMBER = re.compile(r"-?\d{1,300}(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?(?![\w.])")
_WORD = re.compile(r"[^\s\[\]{}\"'“”,:，：［］｛｝][^\[\]{}\"“”,:，：［］｛｝\n]*")
_LITERALS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "/": "/",
    "\\": "\\",
    "'": "'",
    '"': '"',
}


class _NotJson(Exception):  # noqa: N818
    """Raised where a text is no JSON, so that the next bracket is tried."""


class _Reader:
    """Recursive-descent reader for one value; `is_cut` is set if the text ends inside it."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._at = start
        self.is_cut = False

    def value(self, depth: int) -> Any:
        """Read the value that begins here."""
        mark = self._next()
        if mark == "":
            self.is_cut = True
            return None
        if depth > _MAX_DEPTH:
            raise _NotJson
        if mark in "[［":
            return self._list(depth)
        if mark in "{｛":
            return self._object(depth)
        if mark in _QUOTES:
            return self._string(mark)
        return self._number_or_literal()

    def _next(self) -> str:
        """Skip white space and return the next character; "" at the end."""
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space is not None else self._at
        return self._text[self._at : self._at + 1]

    def _list(self, depth: int) -> list[Any]:
        closing = _CLOSING[self._text[self._at]]
        self._at += 1
        values = []
        while not self._ends(closing):
            value = self.value(depth + 1)
            if self.is_cut:
                break
            values.append(value)
            self._skip_separator(closing)
        return values

    def _object(self, depth: int) -> JsonObject:
        closing = _CLOSING[self._text[self._at]]
        self._at += 1
        values = {}
        while not self._ends(closing):
            mark = self._next()
            key = self._string(mark) if mark in _QUOTES else self._word()
            colon = self._next()
            if self.is_cut or not colon:
                self.is_cut = True
                break
            if colon not in ":：":
                raise _NotJson
            self._at += 1
            value = self.value(depth + 1)
            # a list that was cut holds complete items only
            if not self.is_cut or isinstance(value, list):
                values[key] = value
            if self.is_cut:
                break
            self._skip_separator(closing)
        return values

    def _ends(self, closing: str) -> bool:
        """Whether the list or object ends here; skips its closing bracket."""
        mark = self._next()
        self.is_cut = self.is_cut or not mark
        if mark and mark in closing:
            self._at += 1
            return True
        return self.is_cut

    def _skip_separator(self, closing: str) -> None:
        """Skip the separator between two items; a line break counts as one."""
        before = self._at
        mark = self._next()
        if mark and mark in ",，、;；":
            self._at += 1
        elif mark and mark not in closing and "\n" not in self._text[before : self._at]:
            raise _NotJson

    def _string(self, mark: str) -> str:
        """Read a string; a quotation mark inside it is one that no JSON follows."""
        begin = position = self._at + 1
        closing = _QUOTES[mark]
        for _ in range(_MAX_QUOTES):
            end = self._text.find(closing, position)
            if end < 0:
                self.is_cut = True
                self._at = len(self._text)
                return ""
            slashes = (
                end - begin - len(self._text[begin:end].rstrip("\\"))
                if self._text[end - 1] == "\\"
                else 0
            )
            if slashes % 2 == 0 and _AFTER_STRING.match(self._text, end + 1):
                self._at = end + 1
                return _unescape(self._text[begin:end])
            position = end + 1
        raise _NotJson

    def _number_or_literal(self) -> Any:
        number = _NUMBER.match(self._text, self._at)
        if number is not None:
            self._at = number.end()
            digits = number.group()
            return int(digits) if digits.lstrip("-").isdigit() else float(digits)
        word = self._word()
        if word not in _LITERALS:
            raise _NotJson
        return _LITERALS[word]

    def _word(self) -> str:
        word = _WORD.match(self._text, self._at)
        if word is None:
            raise _NotJson
        self._at = word.end()
        return word.group().strip()


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    try:
        decoded: str = json.loads(f'"{text}"', strict=False)
    except ValueError:
        return _ESCAPE.sub(
            lambda match: chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[2], match[0]),
            text,
        )
    return decoded
