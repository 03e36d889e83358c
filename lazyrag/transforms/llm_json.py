"""JSON as chat models write it: with prose around it, single quotes, trailing commas, full-width marks, cut short.

What is found is what stands there: a text is never completed, and what was cut in its middle is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

_MOST_TRIES = 16  # brackets at which JSON may begin; prose has few
_DEEPEST = 32
_CLOSING = {"[": "]］", "［": "]］", "{": "}｝", "｛": "}｝"}
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "＂": "＂"}
_OPENING = re.compile(r"[\[［{｛]")
_SPACE = re.compile(r"(?:\s|//[^\n]*\n)*")
_AFTER_TEXT = re.compile(r"\s{0,200}(?:[,:\]}，：、；;］｝]|\Z|\n\s{0,200}[\"'“‘])")
_NUMBER = re.compile(r"-?\d{1,300}(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?(?![\w.])")
_WORD = re.compile(r"[^\s\[\]{}\"'“”,:，：［］｛｝][^\[\]{}\"“”,:，：［］｛｝\n]*")
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", "'": "'", '"': '"'}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


class Found(NamedTuple):
    """JSON in an answer.

    Args:
        value: What it says, without what was cut in its middle.
        is_cut: Whether the answer ended before it did.
    """

    value: Any
    is_cut: bool = False


class _NotJson(Exception):  # noqa: N818  no error: another bracket is tried
    """What stands here is no JSON, however read."""


def find_json(text: str, wanted: Callable[[Any], bool], *, takes_words: bool = False) -> Found | None:
    """The first JSON in a text that is of the wanted kind; None where there is none.

    Args:
        text: An answer.
        wanted: Whether a list or mapping is what was asked for.
        takes_words: Whether items may lack their quotes, where nothing stands around the list.

    Example:
        >>> find_json("Sure: ['tea', 'milk',] as asked", lambda value: isinstance(value, list))
        Found(value=['tea', 'milk'], is_cut=False)
        >>> find_json('[{"q": "Hot?", "a": "Yes."}, {"q": "Co', bool)
        Found(value=[{'q': 'Hot?', 'a': 'Yes.'}], is_cut=True)
    """
    strict = _strict(text)
    if strict is not None and wanted(strict.value):
        return strict
    starts = [match.start() for match in _OPENING.finditer(text)][:_MOST_TRIES]
    for start in starts:
        found = _at(text, start, takes_words=False)
        if found is not None and wanted(found.value):
            return found
    bare = text.strip()
    if takes_words and _OPENING.match(bare):
        found = _at(bare, 0, takes_words=True)
        if found is not None and wanted(found.value):
            return found
    return None


def _strict(text: str) -> Found | None:
    try:
        return Found(json.loads(text, parse_constant=_refused))
    except (ValueError, RecursionError):
        return None


def _refused(constant: str) -> NoReturn:
    raise ValueError(constant)


def _at(text: str, start: int, *, takes_words: bool) -> Found | None:
    reader = _Reader(text, start, takes_words=takes_words)
    try:
        value = reader.value(0)
    except _NotJson:
        return None
    return Found(value, reader.is_cut)


class _Reader:
    """Reads one value, and notes where the text ends before it does."""

    def __init__(self, text: str, start: int, *, takes_words: bool) -> None:
        self._text = text
        self._at = start
        self._takes_words = takes_words
        self.is_cut = False

    def value(self, depth: int) -> Any:
        """The value that begins here; where it is cut, `is_cut` becomes true."""
        mark = self._next()
        if mark == "":
            self.is_cut = True
            return None
        if depth > _DEEPEST:
            raise _NotJson
        if mark in "[［":
            return self._list(depth)
        if mark in "{｛":
            return self._mapping(depth)
        if mark in _QUOTES:
            return self._quoted(mark)
        return self._bare(is_key=False)

    def _next(self) -> str:
        """The next mark that is no white space; "" at the end."""
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space is not None else self._at
        return self._text[self._at : self._at + 1]

    def _list(self, depth: int) -> list[Any]:
        closing = _CLOSING[self._text[self._at]]
        self._at += 1
        values: list[Any] = []
        while not self._ends(closing):
            value = self.value(depth + 1)
            if self.is_cut:
                break
            values.append(value)
            self._separated(closing)
        return values

    def _mapping(self, depth: int) -> dict[str, Any]:
        closing = _CLOSING[self._text[self._at]]
        self._at += 1
        values: dict[str, Any] = {}
        while not self._ends(closing):
            mark = self._next()
            key = self._quoted(mark) if mark in _QUOTES else self._bare(is_key=True)
            colon = self._next()
            if self.is_cut or not colon:
                self.is_cut = True
                break
            if colon not in ":：":
                raise _NotJson
            self._at += 1
            value = self.value(depth + 1)
            if not self.is_cut or isinstance(value, list):  # the whole items of a list that is cut are whole
                values[str(key)] = value
            if self.is_cut:
                break
            self._separated(closing)
        return values

    def _ends(self, closing: str) -> bool:
        """Whether the list or mapping ends here, and go past its end."""
        mark = self._next()
        self.is_cut = self.is_cut or not mark
        if mark and mark in closing:
            self._at += 1
            return True
        return self.is_cut

    def _separated(self, closing: str) -> None:
        """Go past what stands between two items; a line's end does as well as a comma."""
        before = self._at
        mark = self._next()
        if mark and mark in ",，、;；":
            self._at += 1
        elif mark and mark not in closing and "\n" not in self._text[before : self._at]:
            raise _NotJson

    def _quoted(self, mark: str) -> str:
        """A text in quotes. A quote within it is one behind which nothing of JSON follows."""
        begin = self._at + 1
        position = begin
        closing = _QUOTES[mark]
        while True:
            end = self._text.find(closing, position)
            if end < 0:
                self.is_cut, self._at = True, len(self._text)
                return ""
            slashes = end - begin - len(self._text[begin:end].rstrip("\\")) if self._text[end - 1] == "\\" else 0
            if slashes % 2 == 0 and _AFTER_TEXT.match(self._text, end + 1):
                self._at = end + 1
                return _unescaped(self._text[begin:end])
            position = end + 1

    def _bare(self, *, is_key: bool) -> Any:
        number = None if is_key else _NUMBER.match(self._text, self._at)
        if number is not None:
            self._at = number.end()
            told = number.group()
            return int(told) if told.lstrip("-").isdigit() else float(told)
        word = _WORD.match(self._text, self._at)
        if word is None:
            raise _NotJson
        self._at = word.end()
        told = word.group().strip()
        if not is_key and told in _WORDS:
            return _WORDS[told]
        if not is_key and not self._takes_words:
            raise _NotJson
        if word.end() == len(self._text):
            self.is_cut = True
        return told


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    try:
        whole: str = json.loads(f'"{text}"', strict=False)
    except ValueError:
        return _ESCAPE.sub(_mark, text)
    return whole


def _mark(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    return _ESCAPES.get(match[2], match[0])
