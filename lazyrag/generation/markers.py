"""Citation markers in answers: [1] and its many variants, found with their positions, and
rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Reading one marker

CLOSER_OF = {"[": "]", "【": "】", "［": "］", "〔": "〕"}
MAX_BODY_LENGTH = 300
WIDEST_RANGE = 100

_DIGITS = "[0-9０-９]"
LABEL = (
    r"(?:参考资料|参考文献|参考来源|资料来源|资料|来源|文献|参考|引用|出处|文档|片段|上下文"
    r"|sources?|documents?|docs?|references?|refs?|citations?|cites?|passages?|contexts?|chunks?"
    r"|snippets?)"
)
"""Regular expression of labels that models put before a source's number."""
_LABELLED = rf"(?:{LABEL}[\s.:：#_-]*)"
_DASH = r"(?:[-‐‑‒–—−~～〜]|至|到|to\b)"
_SEPARATOR = r"(?:[,，、;；&和与及]|and\b)"
_PLACE = r"(?:pp?\.|pages?\b|sections?\b|sec\.|chapters?\b|ch\.|lines?\b|§|第|页)"
_ITEM = rf"{_LABELLED}?{_DIGITS}+(?:\s*{_DASH}\s*{_LABELLED}?{_DIGITS}+)?"
_SPANS = re.compile(
    rf"{_LABELLED}?({_DIGITS}+)(?:\s*({_DASH})\s*{_LABELLED}?({_DIGITS}+))?", re.IGNORECASE
)
_WELL_FORMED = re.compile(
    rf"(?P<head>\^?\s*{_LABELLED}?)(?P<items>{_DIGITS}+(?:\s*{_DASH}\s*{_LABELLED}?{_DIGITS}+)?"
    rf"(?:\s*(?P<separator>{_SEPARATOR}\s*){_ITEM})*)(?P<tail>\s*(?:†.*)?|\s*[,，"
    rf":：]\s*{_PLACE}.*|\s*[:：|].*)",
    re.IGNORECASE,
)
_PLACED = re.compile(rf"\s*[,，:：]\s*{_PLACE}", re.IGNORECASE)
# Between items with texts of their own: "Source 1: tea.txt, Source 2: milk.txt".
_NEXT_NOTED = re.compile(
    rf"(\s*{_SEPARATOR}\s*)(?={_LABELLED}{_DIGITS}|{_DIGITS}+\s*[†:：|])", re.IGNORECASE
)
_DATE = re.compile(rf"{_DIGITS}{{4}}[-/.]{_DIGITS}{{1,2}}[-/.]{_DIGITS}{{1,2}}")
# Only numbers and separators, or a label before a number: an intended marker.
_MEANT = re.compile(
    rf"(?:[-\s]*{_DIGITS}[0-9０-９\s,，、"
    rf";；.．~～〜–—−-]*|{_DIGITS}+(?:\s*(?:\bor\b|或|[/|])\s*{_DIGITS}+)+"
    rf"|\^?{_LABELLED}[\s-]*{_DIGITS}.*)",
    re.IGNORECASE,
)
_BEGUN = re.compile(rf"\s*\^?{_LABELLED}?{_DIGITS}+(?![0-9０-９A-Za-z:/])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Marker:
    """A pair of brackets in an answer that cites, or was meant to.

    Args:
        start: Its start in the answer.
        end: Its end.
        text: Its characters.
        ranges: First and last number of each item: ``[1, 3-5]`` has (1, 1) and (3, 5). Empty if it
            has a fault.
        fault: The problem, as a sentence, or "".

    Example:
        >>> Marker(0, 8, "[1, 3-5]", ((1, 1), (3, 5))).numbers
        (1, 3, 4, 5)
    """

    start: int
    end: int
    text: str
    ranges: tuple[tuple[int, int], ...] = ()
    fault: str = ""

    @property
    def numbers(self) -> tuple[int, ...]:
        """Its numbers, in order, each once."""
        numbers = {}
        for first, last in self.ranges:
            numbers.update(dict.fromkeys(range(first, last + 1)))
        return tuple(numbers)


def read_marker(start: int, opener: str, body: str) -> Marker | None:
    """Read a pair of brackets as a marker, with a fault if it is malformed; None if it is not a
    marker.

    Args:
        start: Index of the opening bracket.
        opener: The opening bracket: one of `CLOSER_OF`, once or twice.
        body: The text between the brackets.

    Example:
        >>> read_marker(5, "[", "2-4").ranges, read_marker(5, "[", "note") is None
        (((2, 4),), True)
    """
    closer = CLOSER_OF[opener[0]] * len(opener)
    text = f"{opener}{body}{closer}"
    end = start + len(text)
    match = _well_formed(body)
    if match is None:
        is_meant = _MEANT.fullmatch(body.strip()) and not _DATE.fullmatch(body.strip())
        fault = f"The marker {_abbreviated(text)} is malformed; write it as [1], [1, 2] or [1-3]."
        return Marker(start, end, text, fault=fault) if is_meant else None
    noted = _noted(body)
    items = " ".join(item["items"] for item, _ in noted) if noted else match["items"]
    ranges = _ranges(items)
    for low, high in ranges:
        if low > high:
            fault = (
                f"The marker {_abbreviated(text)} runs backwards; write the smaller number first."
            )
            return Marker(start, end, text, fault=fault)
        if high - low >= WIDEST_RANGE:
            fault = (
                f"The marker {_abbreviated(text)} names more than {WIDEST_RANGE} sources; name at"
                " most that many."
            )
            return Marker(start, end, text, fault=fault)
    return Marker(start, end, text, ranges)


def read_unclosed(start: int, opener: str, body: str) -> Marker | None:
    """Read an unclosed bracket as a marker with a fault; None if it was not meant as one.

    Example:
        >>> read_unclosed(0, "[", "1 ").text
        '[1'
    """
    begun = _BEGUN.match(body)
    if begun is None:
        return None
    text = opener + begun.group()
    fault = f"The marker {_abbreviated(text)} is not closed; write it as [1]."
    return Marker(start, start + len(text), text, fault=fault)


def rewritten(marker: Marker, mapping: Mapping[int, int | None]) -> str:
    """Return a marker with other numbers, in the style of the old one; "" if all numbers are
    removed.

    Args:
        marker: A marker without a fault.
        mapping: From old number to new; None removes a number, and other numbers stay.

    Example:
        >>> rewritten(read_marker(0, "【", "资料1，资料2"), {1: 4})
        '【资料4，资料2】'
        >>> rewritten(read_marker(0, "[", "Source 1: tea.txt, Source 2: milk.txt"), {1: 2, 2: 1})
        '[Source 2: tea.txt, Source 1: milk.txt]'
    """
    numbers = marker.numbers
    changed = [mapping.get(number, number) for number in numbers]
    remaining = list(dict.fromkeys(number for number in changed if number is not None))
    if tuple(remaining) == numbers or not remaining:
        return marker.text if remaining else ""
    opener = marker.text[: 2 if marker.text[1] == marker.text[0] else 1]
    closer = CLOSER_OF[opener[0]] * len(opener)
    old = marker.text[len(opener) : -len(closer)]
    match = _well_formed(old)
    if match is None:
        raise ValueError(f"{marker.text!r} has a fault.")
    body = _rewritten_notes(_noted(old), mapping)
    body = body or match["head"] + _items(remaining, match) + match["tail"]
    if len(body) > MAX_BODY_LENGTH:  # it would not be read again
        return "".join(f"{opener}{number}{closer}" for number in remaining)
    return f"{opener}{body}{closer}"


def _well_formed(body: str) -> re.Match[str] | None:
    """Match a well-formed body. Text after the numbers needs a label before them, or must be a
    location.
    """
    match = _WELL_FORMED.fullmatch(body.strip())
    if match is None or match["head"].strip(" \t^") or _PLACED.match(match["tail"]):
        return match
    return None if match["tail"].lstrip()[:1] in (":", "：", "|") else match


def _noted(body: str) -> list[tuple[re.Match[str], str]]:
    """Items with texts of their own, each with the separator before it; [] if there are not at
    least two.
    """
    match = _well_formed(body)
    if match is None or not _NEXT_NOTED.search(match["tail"]):
        return []
    pieces = _NEXT_NOTED.split(body.strip())  # item, separator, item, ...
    read = [_well_formed(piece) for piece in pieces[::2]]
    separators = ["", *pieces[1::2]]
    items = [
        (item, separator)
        for item, separator in zip(read, separators, strict=True)
        if item is not None
    ]
    return items if len(items) == len(read) else []


def _rewritten_notes(
    items: Sequence[tuple[re.Match[str], str]], mapping: Mapping[int, int | None]
) -> str:
    """Items with texts of their own, each with its new number; removed ones are left out."""
    remaining: list[str] = []
    for item, separator in items:
        marker = Marker(0, 0, f"[{item.group()}]", _ranges(item["items"]))
        written = rewritten(marker, mapping)[1:-1]
        if written:
            remaining.append((separator if remaining else "") + written)
    return "".join(remaining)


def _ranges(items: str) -> tuple[tuple[int, int], ...]:
    return tuple((int(first), int(last or first)) for first, _, last in _SPANS.findall(items))


def _items(numbers: Sequence[int], match: re.Match[str]) -> str:
    """Format numbers as items of a marker, with its separator, dash and labels."""
    dashes = [dash for _, dash, _ in _SPANS.findall(match["items"]) if dash]
    dash = dashes[0] if dashes else ""
    if _is_ascii_word(dash):
        dash = f" {dash} "
    items = []
    for first, last in _runs_of_numbers(numbers, WIDEST_RANGE if dashes else 1):
        items.append(str(first) if first == last else f"{first}{dash}{last}")
    separator = match["separator"] or (", " if match["head"].isascii() else "，")
    if _is_ascii_word(separator[:1]):
        separator = f" {separator}"
    label = ""
    if re.search(rf"{_SEPARATOR}\s*{_LABELLED}", match["items"], re.IGNORECASE):
        label = match["head"].strip().lstrip("^")
    if label.isascii() and label:
        label += " "
    return (separator + label).join(items)


def _is_ascii_word(text: str) -> bool:
    return text.isalpha() and text.isascii()


def _runs_of_numbers(numbers: Sequence[int], longest: int) -> list[tuple[int, int]]:
    """Runs of consecutive numbers as pairs (first, last)."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        first, last = runs[-1] if runs else (number, number)
        if number == last + 1 and number - first < longest:
            runs[-1] = first, number
        else:
            runs.append((number, number))
    return runs


def _abbreviated(text: str) -> str:
    return repr(text) if len(text) <= 40 else repr(text[:40] + "...")


# Scanning text

_HOLD = 1000  # maximum size of code within a line, and of the first line of a block of code
_SPECIAL = re.compile(r"[\[【［〔`\\\n]")
_BODY = re.compile(rf"[^\[\]【】［］〔〕`\n]{{0,{MAX_BODY_LENGTH}}}")
_BACKTICKS = re.compile(rf"`{{1,{_HOLD}}}")
_BACKTICKS_OR_END = re.compile(r"`+|\n")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_FENCE_BEGUN = re.compile(r" {0,3}(?:~+|`*)")
_ESCAPABLE = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
# [1](...) is a link, recognised within _LINK_HOLD characters.
_LINK = re.compile(r"\(<?(?:[A-Za-z][A-Za-z0-9+.-]{0,15}://|mailto:|www\.|/|#|\.{1,2}/)")
_LINK_BEGUN = re.compile(r"\(<?[A-Za-z0-9+.-]{0,16}:?/?")
_LINK_HOLD = 24


@dataclass(frozen=True, slots=True)
class Scanned:
    """Markers and code of a text.

    Args:
        markers: In order.
        code: Start and end of each piece of code; brackets within are not markers.
    """

    markers: tuple[Marker, ...]
    code: tuple[tuple[int, int], ...]


def scan(text: str) -> Scanned:
    """Find the markers and the code of a complete text.

    Example:
        >>> [marker.text for marker in scan("Tea [1] of `x[2]` 【3】").markers]
        ['[1]', '【3】']
    """
    scanner = MarkerScanner()
    markers = scanner.feed(text)
    return Scanned((*markers, *scanner.finish()), tuple(scanner.code))


def without_markers(text: str) -> str:
    """Replace each marker by a space, malformed ones too.

    Example:
        >>> without_markers("80 degrees [1][2].")
        '80 degrees   .'
    """
    return replace_markers(text, " ")


def replace_markers(text: str, replacement: str) -> str:
    """Replace each marker of a text."""
    pieces = []
    at = 0
    for marker in scan(text).markers:
        pieces.append(text[at : marker.start])
        at = marker.end
    return replacement.join([*pieces, text[at:]])


class MarkerScanner:
    """Finds markers in a streamed text.

    Not markers: Markdown code, which is within a line between one, two or three backticks and as
    many, or in blocks between lines of at least three backticks or tildes; texts of links,
    ``[1](https://...)``; brackets after a backslash.

    Example:
        >>> scanner = MarkerScanner()
        >>> [marker.numbers for piece in ("Tea [", "1", "] is") for marker in scanner.feed(piece)]
        [(1,)]
    """

    def __init__(self) -> None:
        self.code: list[tuple[int, int]] = []
        self._text = ""  # undecided text
        self._begins = 0  # its index in the complete text
        self._line_begins = True
        self._fence = ""  # of the open block of code
        self._code_begins = 0
        self._in_line_of_code = False
        self._ended = False
        self._markers: list[Marker] = []

    def feed(self, piece: str) -> tuple[Marker, ...]:
        """Add a piece, and return the markers that are certain now."""
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
        markers = tuple(self._markers)
        self._markers = []
        return markers

    def finish(self) -> tuple[Marker, ...]:
        """Return the markers of the rest, at the end of the text."""
        self._ended = True
        markers = self.feed("")
        if self._fence:
            self.code.append((self._code_begins, self._begins))
            self._fence = ""
        return markers

    def _step(self, at: int) -> int | None:
        """Return the index after the next decided part; None if more text is needed."""
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
        """Whether fewer characters follow an index, and more may come."""
        return not self._ended and len(self._text) - at < length

    def _first_of_line(self, at: int) -> int | None:
        """Open a block of code if this line begins one."""
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
                self._fence = fence[1]
                self._code_begins = self._begins + at
                self._line_begins = False
                self._in_line_of_code = True
                return fence.end()
        self._line_begins = False
        return at

    def _code_line(self, at: int) -> int | None:
        """Read a line of a block of code, perhaps its last."""
        line_end = self._text.find("\n", at, at + _HOLD)
        if line_end < 0 and self._lacks(at, _HOLD):
            return None
        line = self._text[at : line_end if line_end >= 0 else at + _HOLD]
        mark = line.strip()
        closes = len(line) - len(line.lstrip(" ")) <= 3 and mark.strip(self._fence[0]) == ""
        if closes and len(mark) >= len(self._fence) and len(line) < _HOLD:
            self.code.append((self._code_begins, self._begins + at + len(line)))
            self._fence = ""
            self._line_begins = False
            return at + len(line)
        self._line_begins = False
        self._in_line_of_code = True
        return at

    def _rest_of_line(self, at: int) -> int:
        line_end = self._text.find("\n", at)
        if line_end < 0:
            return len(self._text)
        self._line_begins = True
        self._in_line_of_code = False
        return line_end + 1

    def _escaped(self, at: int) -> int | None:
        if self._lacks(at, 2):
            return None
        return at + 2 if self._text[at + 1 : at + 2] in _ESCAPABLE else at + 1

    def _inline_code(self, at: int) -> int | None:
        """Return the index after code within a line, or after unclosed backticks."""
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
        """Return the index after a marker, or after a bracket that begins none."""
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
        """Return the index after a closed marker or a link; the same index if there is neither."""
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
