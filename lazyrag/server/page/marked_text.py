"""Texts of documents with marks, as blocks for the page."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from lazyrag.data.segment import Location, Span

Block: TypeAlias = tuple[str, list[list[tuple[str, int]]], bool, int]
"""A part of a text: ``p``, ``pre``, ``h3``, ``h4``, ``row`` of a table; its cells, each of pairs of
a text and the number of its mark, 0 for none; whether it surrounds what matters; and where a
heading begins in the outline."""
_FENCE = re.compile(r"^[ \t]*(?:`{3,}[^`\n]*$|~{3,})", re.MULTILINE)


def text_blocks(
    text: str,
    shown: Span,
    marks: Sequence[tuple[int, int, int]],
    outline: Sequence[Location],
    focus: Sequence[Span],
) -> list[Block]:
    """Part of a document's text, with marks (number, start, end); what is in no focus is
    context.
    """
    headings = {
        one.start + len(text[one.start : one.end]) - len(text[one.start : one.end].lstrip()): one
        for one in outline
        if one.kind == "heading"
    }
    found: list[Block] = []
    at = shown[0]
    is_code = len(_FENCE.findall(text[:at])) % 2 == 1
    for line in text[slice(*shown)].splitlines(keepends=True):
        start = at
        end = at + len(line.rstrip())
        at = at + len(line)
        is_fence = _FENCE.match(line) is not None
        is_code ^= is_fence
        is_blank = not line.strip() or ("|" in line and re.fullmatch(r"[|:\s-]*", line) is not None)
        if is_fence or (is_blank and not is_code):
            found += [("", [], False, 0)] if found and found[-1][0] else []
            continue
        is_context = not any(first < at and start < last for first, last in focus)
        if is_code:
            cells = [(start, end)]
            kind = "pre"
        elif start in headings:
            start += len(line) - len(line.lstrip("# "))
            cells = [(start, end)]
            kind = "h3" if headings[at - len(line)].label.count(" > ") < 2 else "h4"
        elif " | " in line or line.startswith("|"):
            cuts = [
                start - 1,
                *(start + one.start() for one in re.finditer(r"\|", line.rstrip())),
                end,
            ]
            cells = [(one + 1, two) for one, two in itertools.pairwise(cuts)]
            kind = "row"
            cells = cells[line.startswith("|") : len(cells) - (line.rstrip().endswith("|"))]
        else:
            cells = [(start, end)]
            kind = "p"
        parts = [_marked(text, one, marks) for one in cells]
        if kind in ("p", "pre") and found and (found[-1][0], found[-1][2]) == (kind, is_context):
            found[-1][1][0].extend([("\n", 0), *parts[0]])
        else:
            found.append(
                (kind, parts, is_context, headings[at - len(line)].start if kind[0] == "h" else 0)
            )
    return [one for one in found if one[0]]


def _marked(text: str, span: Span, marks: Iterable[tuple[int, int, int]]) -> list[tuple[str, int]]:
    """A stretch of text as pairs of a text and the number of its mark."""
    found = []
    at = span[0]
    for number, start, end in sorted(marks, key=lambda one: one[1:]):
        first = max(start, at)
        last = min(end, span[1])
        if first < last or (start == end and at <= start < span[1]):
            found += [(text[at:first], 0), (text[first:last], number)]
            at = last
    return [one for one in (*found, (text[at : span[1]], 0)) if any(one)]


_LIST = re.compile(r"\s*(?:[-*•]|(\d{1,3})[.)、])\s+")
_RULE = re.compile(r"\s*\|[|:\s-]*-[|:\s-]*")
_INLINE = re.compile(r"\*\*([^*\n]+)\*\*|`([^`\n]+)`")


def _lines(text: str) -> Iterator[tuple[str, int, int]]:
    """The lines of an answer: kind, start, end. Blocks of code are one; the rule below a table's
    head is left out.
    """
    at = 0
    code = -1
    lines = text.splitlines(keepends=True)
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        start = at
        at = at + len(line)
        if line.lstrip().startswith("```"):
            if code >= 0:
                yield "pre", code, start
            code = at if code < 0 else -1
        elif code < 0 and line.lstrip().startswith("|") and line.count("|") > 1:
            if not _RULE.fullmatch(line):
                yield "head" if _RULE.fullmatch(below) else "row", start, at
        elif code < 0 and line.strip():
            item = _LIST.match(line)
            head = re.match(r"#{1,6} ", line)
            begins = item or head
            kind = f"ol {item[1]}" if item and item[1] else "ul" if item else "h" if head else "p"
            yield kind, start + (begins.end() if begins else 0), at
    if code >= 0:
        yield "pre", code, at


def _cells(text: str, start: int, end: int) -> list[Span]:
    """The cells of a row of a table; what stands behind its last bar, such as a citation, is a
    cell, too.
    """
    found = [
        (start + one.start(), start + one.end())
        for one in re.finditer(r"(?:\\.|[^|\\])+", text[start:end])
    ]
    return [one for one in found if text[slice(*one)].strip() or found[0] != one != found[-1]]


def _inline(
    text: str,
    span: Span,
    chips: Sequence[tuple[int, int, list[int]]],
    bare: Sequence[Span],
    *,
    is_zh: bool,
) -> list[tuple[str, Any]]:
    """A line as pairs of a text and its style, and of "" and the number of a citation."""
    found: list[tuple[str, Any]] = []
    at = span[0]
    held = ""
    for start, end, numbers in (
        *(one for one in chips if span[0] <= one[0] < span[1]),
        (span[1], span[1], []),
    ):
        found += _styled(text, (at, start), bare, held)
        held = ""
        at = end
        if not numbers:
            continue
        if found and isinstance(found[-1][1], str):
            found[-1] = found[-1][0].rstrip(), found[-1][1]
            stop = re.search(r"[。，；：！？]+$", found[-1][0]) if is_zh else None
            after = None if is_zh else re.match(r"[.,;:!?]+", text[end : span[1]])
            if stop:  # before the punctuation
                held = stop[0]
                found[-1] = found[-1][0][: stop.start()], found[-1][1]
            elif after:  # behind it
                found[-1] = found[-1][0] + after[0], found[-1][1]
                at += after.end()
        found += [("", one) for one in numbers]
    return [*found, (held, "")] if held else found


def _styled(text: str, span: Span, bare: Sequence[Span], before: str) -> list[tuple[str, str]]:
    found = [(before, "")] if before else []
    for part, number in _marked(text, span, [(1, start, end) for start, end in bare]):
        at = 0
        style = "bare" if number else ""
        for match in _INLINE.finditer(part):
            kind, word = ("b", match[1]) if match[1] else ("code", match[2])
            found += [(part[at : match.start()], style), (word, kind)]
            at = match.end()
        found.append((part[at:], style))
    return [one for one in found if one[0]]
