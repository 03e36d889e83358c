"""Markdown's structure: its headings and the blocks between empty lines, by position in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from lazyrag.text.headings import Heading

_FENCE = re.compile(
    r" {0,3}(?:(?P<ticks>`{3,})(?=[^`]*$)|(?P<tildes>~{3,}))"
)  # backticks on both sides are inline code
_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(?=\S)(?:[^\n]*\n){0,100}?(?:---|\.\.\.)[ \t]*(?:\r?\n|$)")
_FIELD = re.compile(r"([\w][\w .-]{0,99}?)[ \t]*:(?:[ \t]+(.*))?$")
_ITEM = re.compile(r"[ \t]*-[ \t]+(\S.*)$")
_NO_PARAGRAPH = re.compile(r"\t| {4}|\s*(?:[>|]|[-*+][ \t]|\d{1,9}[.)][ \t])")
_HASHES = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_ROW = re.compile(r" {0,3}\|")


class Block(NamedTuple):
    """Lines between empty ones, or a fenced piece of code.

    Args:
        start: Where it begins.
        end: Behind the empty lines that follow it.
        is_verbatim: Whether its lines count one by one: code in a fence, or a table.
    """

    start: int
    end: int
    is_verbatim: bool


def markdown_headings(text: str) -> Iterator[Heading]:
    r"""ATX and setext headings outside fenced code and front matter, in the text's order.

    Example:
        >>> [heading.title for heading in markdown_headings("# Tea\n\n```\n# no\n```\nWater\n-----\n")]
        ['Tea', 'Water']
    """
    fence = ""
    above: tuple[int, str] | None = None  # start and text of a paragraph's single line
    start = _after_front_matter(text)
    for line in text[start:].splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        mark = _FENCE.match(bare)
        if fence:
            fence = "" if _closes(bare, fence) else fence
        elif mark:
            fence, above = mark["ticks"] or mark["tildes"], None
        elif hashes := _HASHES.match(bare):
            yield Heading(start, len(hashes[1]), _without_closing_hashes(hashes[2] or ""))
            above = None
        elif above and (underline := _UNDERLINE.match(bare)):
            yield Heading(above[0], 1 if underline[1][0] == "=" else 2, above[1])
            above = None
        else:
            first_of_paragraph = above is None and bare.strip() and not _NO_PARAGRAPH.match(bare)
            above = (start, bare.strip()) if first_of_paragraph else None
        start += len(line)


def front_matter(text: str) -> dict[str, str | list[str]]:
    r"""What the front matter says in simple lines: texts, and lists of texts. Nested values are passed over.

    Everything is a text, as the file spells it; no YAML is read for it.

    Example:
        >>> front_matter("---\ntitle: \"Tea: a guide\"\ntags: [green, 'black']\nof:\n- Li\n---\n# Tea\n")
        {'title': 'Tea: a guide', 'tags': ['green', 'black'], 'of': ['Li']}
    """
    said: dict[str, str | list[str]] = {}
    items: list[str] | None = None  # the list that lines with a dash belong to
    for line in text[: _after_front_matter(text)].splitlines()[1:-1]:
        named = _FIELD.match(line)
        item = _ITEM.match(line)
        if named:
            items = None
            name, value = named[1], (named[2] or "").strip()
            if not value:
                items = []
                said[name] = items
            elif value[0] == "[" and value[-1] == "]" and "[" not in value[1:]:
                said[name] = [_unquoted(one) for one in value[1:-1].split(",") if one.strip()]
            elif value[0] not in "[{|>&*!#":
                said[name] = _unquoted(value)
        elif item and items is not None and not _FIELD.match(item[1]):
            items.append(_unquoted(item[1]))
        elif line.strip() and not line.lstrip().startswith("#"):
            items = None
    return {name: value for name, value in said.items() if value}


def markdown_blocks(text: str) -> Iterator[Block]:
    r"""The blocks of a text, which cover it without a gap.

    Example:
        >>> text = "Tea\n\n```\na\n\nb\n```\n"
        >>> [(text[block.start : block.end], block.is_verbatim) for block in markdown_blocks(text)]
        [('Tea\n\n', False), ('```\na\n\nb\n```\n', True)]
    """
    fence = ""
    begin = position = 0
    verbatim = blank = False
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        mark = _FENCE.match(bare)
        opens = not fence and mark is not None
        if position > begin and (opens or (blank and not fence and bare.strip())):
            yield Block(begin, position, verbatim)
            begin, verbatim = position, False
        blank = False
        if fence:
            if _closes(bare, fence):
                fence, blank = "", True  # what follows is another block, with or without an empty line
        elif opens and mark is not None:
            fence, verbatim = mark["ticks"] or mark["tildes"], True
        else:
            blank = not bare.strip()
            verbatim = verbatim or (begin == position and bool(_ROW.match(bare)))
        position += len(line)
    if position > begin:
        yield Block(begin, position, verbatim)


def _after_front_matter(text: str) -> int:
    front = _FRONT_MATTER.match(text)
    return front.end() if front else 0


def _unquoted(value: str) -> str:
    """A value without its quotation marks, or without the comment behind it."""
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value.partition(" #")[0].rstrip()


def _closes(line: str, fence: str) -> bool:
    told = line.strip()
    return told.startswith(fence) and not told.strip(fence[0])


def _without_closing_hashes(title: str) -> str:
    """``Tea ##`` is headed ``Tea``, but ``C#`` keeps its mark."""
    title = title.strip(" \t")
    bare = title.rstrip("#")
    return bare.rstrip(" \t") if not bare or bare[-1] in " \t" else title
