"""Texts of documents and answers with marks and citations, as blocks for the page."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from lazyrag.data.segment import Location, Span
from lazyrag.text.sentences import resolve_language

Piece: TypeAlias = tuple[str, Any]
"""A text with its mark or style; or "" with the number of a citation."""
Chip: TypeAlias = tuple[int, int, list[int]]
"""A marker of an answer: start, end, and the numbers of its citations."""
Mark: TypeAlias = tuple[str, int, int]
"""A style with its start and end in an answer."""
Line: TypeAlias = tuple[str, int, int]
"""A line of an answer: kind, start, end."""
_FENCE = re.compile(r"^[ \t]*(?:`{3,}[^`\n]*$|~{3,})", re.MULTILINE)
_TABLE_RULE = re.compile(r"[|:\s-]*")


class MarkedBlock(NamedTuple):
    """A part of a document's text.

    Args:
        kind: ``p``, ``pre``, ``h3``, ``h4``, or ``row`` of a table.
        cells: Its cells, each of pairs of a text and the number of its mark, 0 for none.
        is_context: Whether it surrounds what matters.
        anchor: Where a heading begins in the outline.
    """

    kind: str
    cells: list[list[tuple[str, int]]]
    is_context: bool
    anchor: int


def text_blocks(
    text: str,
    shown_span: Span,
    marks: Sequence[tuple[int, int, int]],
    outline: Sequence[Location],
    focus: Sequence[Span],
) -> list[MarkedBlock]:
    """Part of a document's text, with marks (number, start, end); what is in no focus is
    context.
    """
    headings = _headings_by_start(text, outline)
    blocks: list[MarkedBlock] = []
    following = shown_span[0]
    is_code = len(_FENCE.findall(text[:following])) % 2 == 1
    continues = False
    for line in text[slice(*shown_span)].splitlines(keepends=True):
        start = following
        following += len(line)
        is_fence = _FENCE.match(line) is not None
        if is_fence:
            is_code = not is_code
        if is_fence or (not is_code and _is_separator(line)):
            continues = False
            continue
        is_context = not any(first < following and start < last for first, last in focus)
        heading = None if is_code else headings.get(start)
        kind, spans = _classify(line, start, heading, is_code=is_code)
        cells = [mark_span(text, span, marks) for span in spans]
        last = blocks[-1] if continues and kind in ("p", "pre") else None
        if last and (last.kind, last.is_context) == (kind, is_context):
            last.cells[0].extend([("\n", 0), *cells[0]])
        else:
            blocks.append(MarkedBlock(kind, cells, is_context, heading.start if heading else 0))
        continues = True
    return blocks


def _headings_by_start(text: str, outline: Sequence[Location]) -> Mapping[int, Location]:
    headings = {}
    for location in outline:
        if location.kind == "heading":
            section = text[location.start : location.end]
            headings[location.start + len(section) - len(section.lstrip())] = location
    return headings


def _is_separator(line: str) -> bool:
    """Whether a line is blank, or the rule below a table's head."""
    return not line.strip() or ("|" in line and _TABLE_RULE.fullmatch(line) is not None)


def _classify(
    line: str, start: int, heading: Location | None, *, is_code: bool
) -> tuple[str, list[Span]]:
    """The kind of a line of a document, and the spans of its cells."""
    row = line.rstrip()
    end = start + len(row)
    if is_code:
        return "pre", [(start, end)]
    if heading is not None:
        marker = len(line) - len(line.lstrip("# "))
        return "h3" if heading.label.count(" > ") < 2 else "h4", [(start + marker, end)]
    if " | " not in line and not line.startswith("|"):
        return "p", [(start, end)]
    bars = [match.start() for match in re.finditer(r"\|", row)]
    cuts = itertools.pairwise([-1, *bars, len(row)])
    cells = [(start + left + 1, start + right) for left, right in cuts]
    return "row", cells[row.startswith("|") : len(cells) - row.endswith("|")]


def mark_span(
    text: str, span: Span, marks: Iterable[tuple[int, int, int]]
) -> list[tuple[str, int]]:
    """A stretch of text as pairs of a text and the number of its mark."""
    pieces = []
    at, stop = span
    for number, start, end in sorted(marks, key=lambda mark: mark[1:]):
        first = max(start, at)
        last = min(end, stop)
        if first < last or (start == end and at <= start < stop):
            pieces += [(text[at:first], 0), (text[first:last], number)]
            at = last
    pieces.append((text[at:stop], 0))
    return [piece for piece in pieces if any(piece)]


# Answers

_LIST = re.compile(r"\s*(?:[-*•]|(\d{1,3})[.)、])\s+")
_HEADING = re.compile(r"#{1,6} ")
_RULE = re.compile(r"\s*\|[|:\s-]*-[|:\s-]*")
_INLINE = re.compile(r"\*\*([^*\n]+)\*\*|`([^`\n]+)`")
_PUNCTUATION = re.compile(r"[.,;:!?]+")


def answer_lines(text: str) -> Iterator[Line]:
    """The lines of an answer. Blocks of code are one; the rule below a table's head is left out."""
    at = 0
    code = -1
    lines = text.splitlines(keepends=True)
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        start = at
        at += len(line)
        if line.lstrip().startswith("```"):
            if code >= 0:
                yield "pre", code, start
            code = at if code < 0 else -1
        elif code < 0:
            kind, indent = _classify_answer(line, below)
            if kind:
                yield kind, start + indent, at
    if code >= 0:
        yield "pre", code, at


def _classify_answer(line: str, below: str) -> tuple[str, int]:
    """The kind of a line of an answer, "" if it is left out, and where its text begins."""
    if line.lstrip().startswith("|") and line.count("|") > 1:
        if _RULE.fullmatch(line):
            return "", 0
        return "head" if _RULE.fullmatch(below) else "row", 0
    if entry := _LIST.match(line):
        return f"ol {entry[1]}" if entry[1] else "ul", entry.end()
    if heading := _HEADING.match(line):
        return "h", heading.end()
    return "p" if line.strip() else "", 0


def answer_blocks(
    text: str, lines: Iterable[Line], chips: Sequence[Chip], marks: Sequence[Mark]
) -> list[tuple[str, list[Any]]]:
    """An answer as blocks, each a kind and its pieces, of a table's row its cells.

    Args:
        text: The answer.
        lines: Its lines, see `answer_lines`.
        chips: Its markers, in order.
        marks: Statements, and words of them, with their styles; without overlaps.
    """
    marks = sorted(marks, key=itemgetter(1, 2))
    is_zh = resolve_language("auto", text) == "zh"
    blocks = []
    for kind, start, end in lines:
        pieces: list[Any]
        if kind == "pre":
            pieces = [(text[start:end], "")]
        elif kind in ("head", "row"):
            cells = _answer_cells(text, start, end)
            pieces = [_inline(text, cell, chips, marks, is_zh=is_zh) for cell in cells]
        else:
            pieces = _inline(text, (start, end), chips, marks, is_zh=is_zh)
        blocks.append((kind, pieces))
    return blocks


def _answer_cells(text: str, start: int, end: int) -> list[Span]:
    """The cells of a row of a table; what stands behind its last bar, such as a citation, is a
    cell, too.
    """
    matches = re.finditer(r"(?:\\.|[^|\\])+", text[start:end])
    cells = [(start + match.start(), start + match.end()) for match in matches]
    outer = cells[:1] + cells[-1:]
    return [cell for cell in cells if cell not in outer or text[slice(*cell)].strip()]


def _inline(
    text: str, span: Span, chips: Sequence[Chip], marks: Sequence[Mark], *, is_zh: bool
) -> list[Piece]:
    """A line as pairs of a text and its style, and of "" and the number of a citation."""
    pieces = []
    at, stop = span
    punctuation = ""
    first = bisect_left(chips, at, key=itemgetter(0))
    for start, end, numbers in chips[first : bisect_left(chips, stop, key=itemgetter(0))]:
        pieces += _styled(text, (at, start), marks, punctuation)
        punctuation = ""
        at = end
        if pieces and isinstance(pieces[-1][1], str):
            sentence, style = pieces[-1]
            sentence = sentence.rstrip()
            if numbers and is_zh:  # the citation goes before the punctuation
                length = len(sentence.rstrip("。，；：！？"))
                punctuation = sentence[length:]
                sentence = sentence[:length]
            elif numbers and (match := _PUNCTUATION.match(text, end, stop)):  # behind it
                sentence += match[0]
                at = match.end()
            pieces[-1] = sentence, style
        pieces += [("", number) for number in numbers]
    return pieces + _styled(text, (at, stop), marks, punctuation)


def _styled(text: str, span: Span, marks: Sequence[Mark], before: str) -> list[Piece]:
    pieces = [(before, "")]
    at, stop = span
    first = bisect_left(marks, at, key=itemgetter(2))
    marks = marks[first : bisect_right(marks, stop, key=itemgetter(1))]
    styles = ["", *(style for style, _, _ in marks)]
    numbered = [(number, start, end) for number, (_, start, end) in enumerate(marks, start=1)]
    for match in _INLINE.finditer(text, at, stop):
        pieces += [
            (part, styles[number])
            for part, number in mark_span(text, (at, match.start()), numbered)
        ]
        pieces.append((match[1], "b") if match[1] else (match[2], "code"))
        at = match.end()
    pieces += [(part, styles[number]) for part, number in mark_span(text, (at, stop), numbered)]
    return [piece for piece in pieces if piece[0]]
