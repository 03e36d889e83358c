"""Removing parts of a text, and knowing where what is left stood."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A text of which parts were removed.

    Args:
        text: What is left.
        starts: Where in it the stretches begin that stand together in the source, ascending from 0.
        origins: Where each of them stands in the source.

    Example:
        >>> cleaned = Cleaned("green  tea").without([(6, 7)])
        >>> cleaned.text, cleaned.span(6, 9), cleaned.span(0, 9)
        ('green tea', (7, 10), None)
    """

    text: str
    starts: array[int] = field(default_factory=lambda: array("q", [0]))
    origins: array[int] = field(default_factory=lambda: array("q", [0]))

    def span(self, start: int, end: int) -> tuple[int, int] | None:
        """Where a stretch of the text stands in the source; None where something was removed inside of it."""
        at = bisect_right(self.starts, start) - 1
        if at + 1 < len(self.starts) and end > self.starts[at + 1]:
            return None
        shift = self.origins[at] - self.starts[at]
        return start + shift, end + shift

    def without(self, removed: Iterable[tuple[int, int]]) -> Cleaned:
        """The same without some stretches of its text, which are given in order and do not overlap."""
        kept: list[str] = []
        starts, origins = array("q"), array("q")
        position = length = 0
        for start, end in (*removed, (len(self.text), len(self.text))):
            if start > position:
                for at, origin in self._stretches(position, start):
                    starts.append(length + at - position)
                    origins.append(origin)
                kept.append(self.text[position:start])
                length += start - position
            position = end
        return Cleaned("".join(kept), starts, origins) if starts else Cleaned("")

    def _stretches(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Where the stretches within a part of the text begin, in it and in the source."""
        at = bisect_right(self.starts, start) - 1
        yield start, self.origins[at] + start - self.starts[at]
        at += 1
        while at < len(self.starts) and self.starts[at] < end:
            yield self.starts[at], self.origins[at]
            at += 1


_SPACE = "[\t\x0b\x0c \u00a0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000]"
_EMPTY_LINES = re.compile(rf"\r?\n(?:{_SPACE}*\r?\n){{2,}}")
_SPACES = re.compile(rf"{_SPACE}{{2,}}")


def extra_spaces(text: str) -> list[tuple[int, int]]:
    r"""What is too much of white space: all but one empty line in a row, all but the first of several spaces.

    Example:
        >>> Cleaned("one\n\n \n\ntwo  three").without(extra_spaces("one\n\n \n\ntwo  three")).text
        'one\n\ntwo three'
    """
    found = []
    for match in _EMPTY_LINES.finditer(text):
        lines = match[0]
        first = 2 if lines.startswith("\r") else 1
        found.append((match.start() + first, match.end() - (2 if lines.endswith("\r\n") else 1)))
    between = iter(found)
    hole = next(between, None)
    spaces = []
    for match in _SPACES.finditer(text):
        while hole is not None and hole[1] <= match.start():
            hole = next(between, None)
        if hole is None or match.start() < hole[0]:
            spaces.append((match.start() + 1, match.end()))
    return sorted(found + spaces)


# What an address on the web is written with; a Chinese character beside it is no part of it.
_ADDRESS = r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]"
_SCHEME = r"(?:(?:https?|ftp)://|www\.)"
_WHERE = r"[^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*"
_IMAGE = rf"!\[[^\[\]]*\]\({_WHERE}(?:\s+\"[^\"]*\")?\)"
_MAIL = r"(?<![A-Za-z0-9_.%+-])(?:mailto:)?[A-Za-z0-9_.%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
_REMOVED = re.compile(
    rf"(?P<image>{_IMAGE})"
    rf"|\[(?P<label>(?:{_IMAGE}|[^\[\]])*)\]\(\s*<?(?:{_SCHEME}|mailto:){_WHERE}>?(?:\s+\"[^\"]*\")?\s*\)"
    rf"|(?P<whole><(?:{_SCHEME}|mailto:)[^\s<>]*>|<{_MAIL}>)"
    rf"|(?P<url>(?<![A-Za-z0-9]){_SCHEME}(?=[A-Za-z0-9\[%]){_ADDRESS}+)"
    rf"|(?P<mail>{_MAIL})",
    re.IGNORECASE,
)
_CLOSING = {")": "(", "]": "["}


def web_addresses(text: str) -> list[tuple[int, int]]:
    """Addresses on the web and of mail. Of a Markdown link its text stays, an image stays as it is.

    Example:
        >>> text = "详见https://tea.cn/a_(b)。[Tea](http://tea.org) or <me@tea.org>."
        >>> Cleaned(text).without(web_addresses(text)).text
        '详见。Tea or .'
    """
    return list(_addresses(text, 0, len(text)))


def _addresses(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for match in _REMOVED.finditer(text, start, end):
        if match["label"] is not None:
            label = match.span("label")
            yield match.start(), label[0]
            yield from _addresses(text, *label)
            yield label[1], match.end()
        elif match["url"] is not None:
            yield match.start(), match.start() + _url_length(match[0])
        elif match["image"] is None:
            yield match.span()


def _url_length(url: str) -> int:
    """How much of what looks like an address is one: marks that end a sentence or close a bracket are none."""
    counts = {mark: url.count(mark) for mark in "()[]"}
    length = len(url)
    while length:
        last = url[length - 1]
        if last in _CLOSING and counts[last] > counts[_CLOSING[last]]:
            counts[last] -= 1
        elif last not in "?!.,:;'*_~":
            break
        length -= 1
    return length
