"""Numbers of lists and headings in Word documents, which programs count and files do not hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from lazyrag.loaders.archives import Archive
from lazyrag.loaders.ooxml import related

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DEEPEST = 9
_PLACEHOLDER = re.compile(r"%([1-9])")
_ROMAN = {1000: "m", 900: "cm", 500: "d", 400: "cd", 100: "c", 90: "xc", 50: "l", 40: "xl", 10: "x", 9: "ix", 5: "v"}
_ROMAN |= {4: "iv", 1: "i"}
_DIGITS = "零一二三四五六七八九"


class _Level(NamedTuple):
    """How a level is counted and written: ``%1.%2`` stands for the numbers of the first two levels."""

    start: int
    form: str
    text: str
    style: str


class _List(NamedTuple):
    """A list: the definition that it counts in, its levels, and where levels begin anew with it."""

    definition: str
    levels: dict[int, _Level]
    restarts: dict[int, int]


class Numbering:
    """The numbers of a document, paragraph by paragraph.

    Args:
        archive: The document.
        main: Its main part.

    Raises:
        LoadError: If its parts on numbers or styles cannot be read.
    """

    def __init__(self, archive: Archive, main: str) -> None:
        self._lists: dict[str, _List] = {}
        self._of_styles: dict[str, tuple[str, int | None]] = {}
        self._counts: dict[str, list[int | None]] = {}
        self._begun: set[tuple[str, int]] = set()
        part = related(archive, "numbering", main)
        if part:
            self._read_lists(archive.xml(part))
            styles = related(archive, "styles", main)
            self._read_styles(archive.xml(styles) if styles else ())

    def mark(self, paragraph: Any) -> str:
        """The number or bullet before a paragraph, with a space behind it; "" where there is none.

        To be asked for each paragraph, in order, as it counts.
        """
        if not self._lists:
            return ""
        properties = paragraph.find(f"{_W}pPr")
        if properties is None:
            return ""
        style = _value(properties, "pStyle")
        key, depth = self._of_styles.get(style, ("", None))
        own = properties.find(f"{_W}numPr")
        if own is not None:
            key = _value(own, "numId") or key
            depth = _number(_value(own, "ilvl"), depth)
        found = self._lists.get(key)
        if found is None:
            return ""
        if depth is None:
            depth = next((number for number, level in found.levels.items() if level.style == style), 0)
        level = found.levels.get(depth)
        if level is None:
            return ""
        counts = self._count(key, found, depth)
        mark = _PLACEHOLDER.sub(lambda place: self._written(found, counts, int(place[1]) - 1), level.text).strip()
        if level.form == "bullet":
            mark = "•"  # the file's own stands in a font of symbols
        return f"{mark} " if mark and level.form != "none" else ""

    def _count(self, key: str, found: _List, depth: int) -> list[int | None]:
        counts = self._counts.setdefault(found.definition, [None] * _DEEPEST)
        start = found.levels[depth].start
        if depth in found.restarts and (key, depth) not in self._begun:
            start, counts[depth] = found.restarts[depth], None
        self._begun.add((key, depth))
        before = counts[depth]
        counts[depth] = start if before is None else before + 1
        counts[depth + 1 :] = [None] * (_DEEPEST - depth - 1)
        return counts

    @staticmethod
    def _written(found: _List, counts: list[int | None], depth: int) -> str:
        level = found.levels.get(depth)
        if level is None:
            return ""
        count = counts[depth]
        return _FORMS.get(level.form, str)(level.start if count is None else count)

    def _read_lists(self, part: Any) -> None:
        definitions = {_own(one, "abstractNumId"): dict(_levels(one)) for one in part.iterfind(f"{_W}abstractNum")}
        for one in part.iterfind(f"{_W}num"):
            key = _value(one, "abstractNumId")
            levels = dict(definitions.get(key, {}))
            restarts = {}
            for override in one.iterfind(f"{_W}lvlOverride"):
                levels |= dict(_levels(override))
                start = _number(_value(override, "startOverride"), None)
                depth = _number(_own(override, "ilvl"), 0) or 0
                if start is not None:
                    restarts[depth] = start
            self._lists[_own(one, "numId")] = _List(key, levels, restarts)

    def _read_styles(self, part: Any) -> None:
        parents: dict[str, str] = {}
        own: dict[str, tuple[str, int | None]] = {}
        for style in part:
            name = _own(style, "styleId")
            parents[name] = _value(style, "basedOn")
            numbered = style.find(f"{_W}pPr/{_W}numPr")
            if numbered is not None:
                own[name] = _value(numbered, "numId"), _number(_value(numbered, "ilvl"), None)
        for name in parents:
            above, seen = name, {""}
            while above not in seen and above not in own:
                seen.add(above)
                above = parents.get(above, "")
            key, depth = own.get(above, ("", None))
            if not key and above in own:  # a style of a deeper level names its depth alone
                higher = own.get(parents.get(above, ""), ("", None))
                key = higher[0]
            if key:
                self._of_styles[name] = key, depth


def _levels(parent: Any) -> list[tuple[int, _Level]]:
    levels = []
    for one in parent.iterfind(f"{_W}lvl"):
        depth = _number(_own(one, "ilvl"), None)
        if depth is not None and 0 <= depth < _DEEPEST:
            start = _number(_value(one, "start"), 0) or 0
            form = _value(one, "numFmt") or "decimal"
            levels.append((depth, _Level(start, form, _value(one, "lvlText"), _value(one, "pStyle"))))
    return levels


def _own(element: Any, name: str) -> str:
    return str(element.get(f"{_W}{name}") or "")


def _value(parent: Any, name: str) -> str:
    found = parent.find(f"{_W}{name}")
    return "" if found is None else _own(found, "val")


def _number(text: str, default: int | None) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,6}", text, re.ASCII) else default


def _letters(number: int) -> str:
    """As Word counts with letters: z is followed by aa, bb."""
    times, letter = divmod(number - 1, 26)
    return chr(ord("a") + letter) * min(times + 1, 40) if number > 0 else "0"


def _roman(number: int) -> str:
    pieces = []
    for value, letters in _ROMAN.items():
        times, number = divmod(number, value)
        pieces.append(letters * min(times, 40))
    return "".join(pieces)


def _chinese(number: int) -> str:
    """Numbers up to 99 as they are counted in Chinese; larger ones digit by digit."""
    if not 0 < number < 100:
        return "".join(_DIGITS[int(digit)] for digit in str(number))
    tens, ones = divmod(number, 10)
    head = "" if not tens else "十" if tens == 1 else f"{_DIGITS[tens]}十"
    return head + (_DIGITS[ones] if ones else "")


_FORMS: dict[str, Callable[[int], str]] = {
    "chineseCounting": _chinese,
    "chineseCountingThousand": _chinese,
    "decimalZero": lambda number: f"{number:02}",
    "japaneseCounting": _chinese,
    "lowerLetter": _letters,
    "lowerRoman": _roman,
    "taiwaneseCountingThousand": _chinese,
    "upperLetter": lambda number: _letters(number).upper(),
    "upperRoman": lambda number: _roman(number).upper(),
}
