"""reStructuredText."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.encoding import find_encoding
from lazyrag.text.structure import Heading, heading_places

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*")
_NO_TITLE = re.compile(r"\s|\.\.(?:\s|$)|[-*+•‣⁃]\s")
_ALWAYS_LONG_ENOUGH = 4


class RstLoader:
    """Reads reStructuredText: the text stays as it is, marks included; its section titles become places."""

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        read = find_encoding(path.read_bytes())
        return LoadedFile(read.text, heading_places(list(_headings(read.text)), len(read.text)), read.metadata)


def _headings(text: str) -> Iterator[Heading]:
    """Titles with a line beneath, or above and beneath; their levels come in the order in which styles first do."""
    levels: dict[tuple[str, bool], int] = {}
    lines = text.splitlines(keepends=True)
    start = at = 0
    fresh = True  # whether a block may begin here
    while at < len(lines):
        taken = 1
        title, over = _title([line.rstrip() for line in lines[at : at + 3]]) if fresh else ("", False)
        if title:
            taken = 3 if over else 2
            style = (lines[at + taken - 1][0], over)
            yield Heading(start, levels.setdefault(style, len(levels) + 1), title)
        fresh = bool(title) or not lines[at].strip()
        start += sum(map(len, lines[at : at + taken]))
        at += taken


def _title(lines: list[str]) -> tuple[str, bool]:
    """The title that a block's first lines are, "" if none, and whether it has a line above."""
    first, second, third = (*lines, "", "")[:3]
    if _ADORNMENT.fullmatch(first):
        titled = bool(second.strip()) and first == third and not _ADORNMENT.fullmatch(second)
        return (second.strip(), True) if titled and _reaches(first, second) else ("", False)
    titled = bool(first and _ADORNMENT.fullmatch(second)) and not _NO_TITLE.match(first)
    return (first, False) if titled and _reaches(second, first) else ("", False)


def _reaches(adornment: str, title: str) -> bool:
    """Whether a line is long enough: four characters, or as wide as the title, whose Chinese is two columns wide."""
    if len(adornment) >= _ALWAYS_LONG_ENOUGH:
        return True
    return len(adornment) >= sum(1 + (unicodedata.east_asian_width(one) in "WF") for one in title)
