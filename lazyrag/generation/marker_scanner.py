"""Finding markers in an answer that may still be growing: whatever the pieces are, the same markers are found.

Every question is answered from a bounded stretch behind its place, and only when that stretch is there or the text has
ended. So the whole is read once, in linear time, and a piece of one character costs no more than that stretch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lazyrag.generation.markers import CLOSER_OF, LONGEST_BODY, Marker, read_marker, read_unclosed

_HOLD = 1000  # characters that code within a line, and the first line of a block of code, may have
_SPECIAL = re.compile(r"[\[【［〔`\\\n]")
_BODY = re.compile(rf"[^\[\]【】［］〔〕`\n]{{0,{LONGEST_BODY}}}")
_BACKTICKS = re.compile(rf"`{{1,{_HOLD}}}")
_BACKTICKS_OR_END = re.compile(r"`+|\n")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_FENCE_BEGUN = re.compile(r" {0,3}(?:~+|`*)")
_ESCAPABLE = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
# What makes [1](...) a link and no citation: it is told within _LINK_HOLD characters.
_LINK = re.compile(r"\(<?(?:[A-Za-z][A-Za-z0-9+.-]{0,15}://|mailto:|www\.|/|#|\.{1,2}/)")
_LINK_BEGUN = re.compile(r"\(<?[A-Za-z0-9+.-]{0,16}:?/?")
_LINK_HOLD = 24


@dataclass(frozen=True, slots=True)
class Scanned:
    """What was found in a text.

    Args:
        markers: In their order.
        code: Start and end of each stretch of code; markers in it are none.
    """

    markers: tuple[Marker, ...]
    code: tuple[tuple[int, int], ...]


def scan(text: str) -> Scanned:
    """The markers and the code of a whole text.

    Example:
        >>> [marker.text for marker in scan("Tea [1] of `x[2]` 【3】").markers]
        ['[1]', '【3】']
    """
    scanner = MarkerScanner()
    markers = scanner.feed(text)
    return Scanned((*markers, *scanner.finish()), tuple(scanner.code))


def without_markers(text: str) -> str:
    """A text with a space in the place of each marker, be it malformed or not.

    Example:
        >>> without_markers("80 degrees [1][2].")
        '80 degrees   .'
    """
    pieces, at = [], 0
    for marker in scan(text).markers:
        pieces.append(text[at : marker.start])
        at = marker.end
    return " ".join([*pieces, text[at:]])


class MarkerScanner:
    """Finds markers in a text that comes in pieces.

    Markers in Markdown's code are none: within a line between one, two or three backticks and as many, and in blocks
    between lines of at least three backticks or tildes; nor is the text of a link, ``[1](https://...)``, or what
    stands behind a backslash.

    Example:
        >>> scanner = MarkerScanner()
        >>> [marker.numbers for piece in ("Tea [", "1", "] is") for marker in scanner.feed(piece)]
        [(1,)]
    """

    def __init__(self) -> None:
        self.code: list[tuple[int, int]] = []
        self._text = ""  # what is not settled yet
        self._begins = 0  # where that stands in the whole
        self._line_begins = True
        self._fence = ""  # of the block of code that is open
        self._code_begins = 0
        self._in_line_of_code = False
        self._ended = False
        self._markers: list[Marker] = []

    def feed(self, piece: str) -> tuple[Marker, ...]:
        """The markers that became certain with a piece."""
        self._text += piece
        at = 0
        while at < len(self._text) or self._line_begins:
            after = self._step(at)
            if after is None:
                break
            at = after
            if at >= len(self._text):
                break
        self._text = self._text[at:]
        self._begins += at
        found, self._markers = tuple(self._markers), []
        return found

    def finish(self) -> tuple[Marker, ...]:
        """The markers of the rest: the text has ended."""
        self._ended = True
        found = self.feed("")
        if self._fence:
            self.code.append((self._code_begins, self._begins))
            self._fence = ""
        return found

    def _step(self, at: int) -> int | None:
        """The place behind the next thing that is settled; None if that takes more text."""
        if self._in_line_of_code:
            return self._rest_of_line(at)
        if self._line_begins:
            return self._code_line(at) if self._fence else self._first_of_line(at)
        special = _SPECIAL.search(self._text, at)
        if special is None:
            return len(self._text)
        at = special.start()
        if special.group() == "\n":
            self._line_begins = True
            return at + 1
        if special.group() == "\\":
            return self._escaped(at)
        return self._inline_code(at) if special.group() == "`" else self._bracket(at)

    def _lacks(self, at: int, length: int) -> bool:
        """Whether fewer characters than that stand behind a place, and more may come."""
        return not self._ended and len(self._text) - at < length

    def _first_of_line(self, at: int) -> int | None:
        """Open a block of code, if this line begins one."""
        if self._lacks(at, _HOLD):
            begun = _FENCE_BEGUN.match(self._text, at)
            if begun and begun.end() == len(self._text):
                return None
        fence = _FENCE.match(self._text, at, at + _HOLD)
        if fence:
            line_end = self._text.find("\n", at, at + _HOLD)
            if line_end < 0 and self._lacks(at, _HOLD):
                return None
            info = self._text[fence.end() : line_end if line_end >= 0 else at + _HOLD]
            if fence[1][0] == "~" or "`" not in info:
                self._fence, self._code_begins = fence[1], self._begins + at
                self._line_begins, self._in_line_of_code = False, True
                return fence.end()
        self._line_begins = False
        return at

    def _code_line(self, at: int) -> int | None:
        """A line of a block of code, which may be its last."""
        line_end = self._text.find("\n", at, at + _HOLD)
        if line_end < 0 and self._lacks(at, _HOLD):
            return None
        line = self._text[at : line_end if line_end >= 0 else at + _HOLD]
        mark = line.strip()
        closes = len(line) - len(line.lstrip(" ")) <= 3 and mark.strip(self._fence[0]) == ""
        if closes and len(mark) >= len(self._fence) and len(line) < _HOLD:
            self.code.append((self._code_begins, self._begins + at + len(line)))
            self._fence, self._line_begins = "", False
            return at + len(line)
        self._line_begins, self._in_line_of_code = False, True
        return at

    def _rest_of_line(self, at: int) -> int:
        line_end = self._text.find("\n", at)
        if line_end < 0:
            return len(self._text)
        self._line_begins, self._in_line_of_code = True, False
        return line_end + 1

    def _escaped(self, at: int) -> int | None:
        if self._lacks(at, 2):
            return None
        return at + 2 if self._text[at + 1 : at + 2] in _ESCAPABLE else at + 1

    def _inline_code(self, at: int) -> int | None:
        """The place behind code within a line, or behind backticks that nothing closes."""
        opening = _BACKTICKS.match(self._text, at)
        end = opening.end() if opening else at + 1
        if end == len(self._text) and self._lacks(at, _HOLD):
            return None
        if end - at > 3:
            return end
        for run in _BACKTICKS_OR_END.finditer(self._text, end, at + _HOLD):
            if run.group() == "\n":
                return end
            if run.end() == len(self._text) and self._lacks(at, _HOLD):
                return None
            if len(run.group()) == end - at:
                self.code.append((self._begins + at, self._begins + run.end()))
                return run.end()
        return None if self._lacks(at, _HOLD) else end

    def _bracket(self, at: int) -> int | None:
        """The place behind a marker, or behind a bracket that begins none."""
        opener = self._text[at]
        if self._lacks(at, 2):
            return None
        if self._text.startswith(opener, at + 1):
            doubled = self._closed(at, opener * 2)
            return at + 1 if doubled == at else doubled
        after = self._closed(at, opener)
        if after != at:
            return after
        body = _BODY.match(self._text, at + 1)
        end = body.end() if body else at + 1
        if not self._text.startswith(CLOSER_OF[opener], end):
            marker = read_unclosed(self._begins + at, opener, self._text[at + 1 : end])
            if marker:
                self._markers.append(marker)
                return at + len(marker.text)
        return at + 1

    def _closed(self, at: int, opener: str) -> int | None:
        """The place behind a closed marker or a link; the place itself if there is neither."""
        closer = CLOSER_OF[opener[0]] * len(opener)
        begins = at + len(opener)
        body = _BODY.match(self._text, begins)
        end = body.end() if body else begins
        if self._lacks(end, 1 if self._text[end : end + 1] != closer[0] else len(closer)):
            return None
        closed = self._text.startswith(closer, end)
        marker = read_marker(self._begins + at, opener, self._text[begins:end]) if closed else None
        if marker is None:
            return at
        after = end + len(closer)
        behind = self._text[after : after + _LINK_HOLD]
        if _LINK.match(behind):
            return after
        if self._lacks(after, _LINK_HOLD) and (behind == "" or _LINK_BEGUN.fullmatch(behind)):
            return None
        self._markers.append(marker)
        return after
