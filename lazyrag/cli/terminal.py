"""Text for terminals: display width, wrapping, colour, marked words, tables."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lazyrag.generation.units import Unit

_MIN_WIDTH = 40
_MAX_WIDTH = 100
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "mark": "1;33"}
_NO_LINE_START = frozenset("，。、；：？！）》」』】〉”’…,.;:?!)]}%")
"""Characters that never begin a line."""


def width() -> int:
    """Columns to use: those of the terminal, or 80 where there is none."""
    return min(max(shutil.get_terminal_size((80, 24)).columns, _MIN_WIDTH), _MAX_WIDTH)


def has_colour() -> bool:
    """Whether the standard output is a terminal with colours; never with ``NO_COLOR``
    (https://no-color.org).
    """
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def style_text(text: str, style: str) -> str:
    """A text in a style, where there are colours."""
    return f"\033[{_STYLES[style]}m{text}\033[0m" if text and has_colour() else text


def printable(text: str) -> str:
    """A text as one line that cannot control the terminal: files and models may contain escape
    sequences.
    """
    return " ".join(
        "".join(" " if _is_control(character) else character for character in text).split()
    )


def _is_control(character: str) -> bool:
    return (
        unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        or "\u202a" <= character <= "\u202e"
        or "\u2066" <= character <= "\u2069"
    )


def home(path: Path) -> str:
    """A path for people, with ``~`` for the home folder."""
    with suppress(RuntimeError, ValueError):
        return f"~/{Path(os.path.normpath(path.absolute())).relative_to(Path.home()).as_posix()}"
    return os.path.normpath(path)


def cells(text: str) -> int:
    """The number of columns that a text takes: two for East Asian wide characters, none for
    combining ones.

    Example:
        >>> cells("tea"), cells("绿茶")
        (3, 4)
    """
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def _cells_of(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) == "Cf":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """A text with spaces up to a number of columns."""
    space = " " * max(0, columns - cells(text))
    return space + text if right else text + space


def shorten(text: str, columns: int) -> str:
    """A text cut to a number of columns, with an ellipsis.

    Example:
        >>> shorten("绿茶怎么泡", 7)
        '绿茶怎…'
    """
    if cells(text) <= columns:
        return text
    fitting = []
    used = 1
    for character in text:
        used += _cells_of(character)
        if used > columns:
            break
        fitting.append(character)
    return "".join(fitting) + "…"


def wrap(text: str, columns: int | None = None, *, first: str = "", rest: str = "") -> list[str]:
    """Break a text into lines of at most so many columns: between words, and between wide
    characters.

    Args:
        text: One paragraph.
        columns: Width of the lines, with the indent; None for that of the terminal.
        first: Indent of the first line.
        rest: Indent of the others.

    Example:
        >>> wrap("Steep 绿茶 at 80 degrees.", 12)
        ['Steep 绿茶', 'at 80', 'degrees.']
    """
    columns = width() if columns is None else columns
    lines = []
    line = first
    used = cells(first)
    is_empty = True
    for unbroken, is_spaced in _pieces(text):
        piece = unbroken
        size = cells(unbroken)
        gap = " " if is_spaced and not is_empty else ""
        if not is_empty and used + len(gap) + size > columns:
            lines.append(line)
            line = rest
            used = cells(rest)
            gap = ""
        while used + size > columns > cells(rest) + 2:  # a word that is longer than a line
            part = _fitting(piece, columns - used)
            lines.append(line + part)
            piece = piece[len(part) :]
            line = rest
            used = cells(rest)
            size = cells(piece)
        line = line + gap + piece
        used = used + len(gap) + size
        is_empty = False
    return [*lines, line] if not is_empty or not lines else lines


class LiveWrapper:
    r"""Break a text that comes in pieces into lines of the terminal's width, without delay: only a
    word that comes in several pieces may be broken.

    Example:
        >>> wrapper = LiveWrapper(12)
        >>> [wrapper.add(piece) for piece in ("Steep", " tea", " at", " 80 degrees.")]
        ['Steep', ' tea', ' at', '\n80 degrees.']
    """

    def __init__(self, columns: int | None = None) -> None:
        self._columns = width() if columns is None else columns
        self._used = 0
        self._gap = ""

    def add(self, text: str) -> str:
        """What to print now. It cannot control the terminal."""
        parts = []
        for spaces, word in _LIVE.findall(text):
            *lines, gap = spaces.split("\n")
            if lines:
                parts.append("\n" * len(lines))
                self._used = 0
                self._gap = ""
            self._gap += " " * len(gap)
            parts += [self._placed(piece) for piece, _ in _pieces(printable(word))]
        return "".join(parts)

    def _placed(self, piece: str) -> str:
        """A piece behind its space, or on a new line if it does not fit."""
        before = self._gap
        self._gap = ""
        used = self._used + len(before) + cells(piece)
        if self._used and used > self._columns:
            before = "\n"
            used = cells(piece)
        self._used = used
        return before + piece


_LIVE = re.compile(r"(\s*)(\S*)")


def _pieces(text: str) -> Iterable[tuple[str, bool]]:
    """Yield what may not be broken, and whether a space is before it."""
    for word in text.split():
        start = 0
        is_spaced = True
        for at in range(1, len(word)):
            last = word[at - 1]
            character = word[at]
            is_break = (
                2 in (_cells_of(character), _cells_of(last))
                and character not in _NO_LINE_START
                and character != "*"
                and last not in "*（《「『【〈“‘(["
            )
            if is_break:
                yield word[start:at], is_spaced
                start = at
                is_spaced = False
        yield word[start:], is_spaced


def _fitting(text: str, columns: int) -> str:
    used = 0
    for at, character in enumerate(text):
        used += _cells_of(character)
        if used > columns:
            return text[: max(1, at)]
    return text


def table(
    rows: Iterable[Sequence[str]], *, right: Sequence[int] = (), indent: str = ""
) -> list[str]:
    """Lines with aligned columns; the widest column is cut where they do not fit.

    Args:
        rows: The cells, as many in each row.
        right: Columns that are aligned to the right.
        indent: Before each line.
    """
    rows = [list(row) for row in rows]
    if not rows:
        return []
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    excess = cells(indent) + sum(widths) + 2 * (len(widths) - 1) - width()
    if excess > 0:
        widest = widths.index(max(widths))
        widths[widest] = max(8, widths[widest] - excess)
    lines = []
    for row in rows:
        parts = []
        for at, size in enumerate(widths):
            parts.append(pad(shorten(row[at], size), size, right=at in right))
        lines.append((indent + "  ".join(parts)).rstrip())
    return lines


# Passages

# take no columns; become colours after wrapping
_OPEN = "\u2068"
_CLOSE = "\u2069"
_SHORT_LINE = re.compile(r"([^\n,.;:，。；：]{1,15})\n(?=[^\na-z])")  # of a heading
_FENCE = re.compile(r"\s*(?:```|~~~)")
_LINK = re.compile(r"!?\[([^\]]+)\](?:\([^()\s]*(?: \"[^\"]*\")?\)|\[[^\]]*\])")
_TARGET = re.compile(r"!?\[\]\(([^()\s]+)\)")
_ROLE = re.compile(r"(?::[\w:-]+:|\{[\w:-]+\})`~?([^`<]+?)(?:\s*<[^`>]*>)?`")
_RST_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`__?")
_ATTRIBUTES = re.compile(r"(?<=\S)\{:? ?[.#][^{}]*\}")
_TAG = re.compile(r"</?(?:a|abbr|br|div|em|img|kbd|p|small|span|strong|sub|sup)(?: [^<>]*)?/?>")


def passage(text: str, query: str, *, indent: str, lines: int | None = 3) -> list[str]:
    """The part of a text that fits a query best, with the query's words marked.

    Args:
        text: Text of a hit.
        query: The query.
        indent: Before each line.
        lines: Maximum number of lines; None for the complete text, in its own paragraphs.
    """
    from lazyrag.text.analyzers import query_terms

    terms = query_terms(query)
    if lines is None:
        parts = [printable(paragraph) for paragraph in text.splitlines()]
    else:
        parts = [_best_part(text, terms, (width() - cells(indent)) * lines - 8 * lines)]
    wrapped_lines = []
    for part in parts:
        if part:
            wrapped_lines += wrap(_mark(part, terms), first=indent, rest=indent)
    if lines is not None and len(wrapped_lines) > lines:
        last = shorten(wrapped_lines[lines - 1], width() - 1)
        wrapped_lines[lines - 1 :] = [last.rstrip("…") + "…"]
    return [_styled(line) for line in wrapped_lines]


class Room(NamedTuple):
    """Where an excerpt is printed.

    Args:
        indent: Before each line.
        lines: Maximum number of lines.
    """

    indent: str
    lines: int


def fits(text: str, units: Sequence[Unit], query: str, room: Room) -> bool:
    """Whether units of a text can be printed in full."""
    return len(_unit_lines(text, units, query, room.indent)) <= room.lines


def excerpt(text: str, units: Sequence[Unit], query: str, room: Room) -> list[str]:
    """Units of a text, with the query's words marked: code with its lines and indentation, other
    text as paragraphs, an ellipsis for what is left out, and a dot between paragraphs. Of a unit
    that is too long, its beginning; of code the lines with most of the query's words.
    """
    lines = _unit_lines(text, units, query, room.indent)
    if not lines:  # only headings, or the fence of a block without code
        return passage(text, query, indent=room.indent, lines=room.lines)
    if len(lines) > room.lines and units[0].kind == "code":
        counts = [line.count(_OPEN if has_colour() else "*") for line in lines]
        best = counts.index(max(counts))
        first = max(0, min(best - 1, len(lines) - room.lines))
        lines = lines[first : first + room.lines]
    elif len(lines) > room.lines:
        last = shorten(lines[room.lines - 1], width() - 1)
        lines[room.lines - 1 :] = [last.rstrip("…") + "…"]
    elif any(map(str.isalnum, text[units[-1].end :])) and cells(lines[-1]) + 2 < width():
        lines[-1] += " …"
    return [_styled(line) for line in lines]


def _unit_lines(text: str, units: Sequence[Unit], query: str, indent: str) -> list[str]:
    from lazyrag.generation.units import line_of
    from lazyrag.text.analyzers import query_terms

    terms = query_terms(query)
    lines = []
    paragraph = ""
    code = ""
    end = 0
    for unit in units:
        left_out = "… " if any(map(str.isalnum, text[end : unit.start])) else ""
        if code and (left_out or unit.kind != "code"):
            lines += _code_lines(code, terms, indent)
            code = ""
        words = text[unit.start : unit.end]
        if text[unit.start - 1 : unit.start] in ("", "\n"):
            words = _SHORT_LINE.sub(r"\1 · ", words, count=1)
        if paragraph and _is_paragraph_break(text, end, unit.start):
            left_out = left_out or "· "
        end = unit.end
        if unit.kind == "code":
            lines += _wrap_marked(paragraph, terms, indent)
            paragraph = ""
            code = f"{code}\n{line_of(text, unit)}"
        else:
            paragraph = _join([part for part in (paragraph, left_out + plain(words)) if part])
    lines += _code_lines(code, terms, indent)
    return lines + _wrap_marked(paragraph, terms, indent)


def _is_paragraph_break(text: str, end: int, start: int) -> bool:
    """Whether a paragraph, or a line without a full stop such as a heading, ends between units."""
    between = text[end:start]
    return "\n\n" in between or ("\n" in between and text[end - 1] not in ".!?。！？；;")


def _wrap_marked(paragraph: str, terms: frozenset[str], indent: str) -> list[str]:
    return wrap(_mark(paragraph, terms), first=indent, rest=indent) if paragraph else []


def _code_lines(code: str, terms: frozenset[str], indent: str) -> list[str]:
    """Code without its fence, and without the indentation that all lines have."""
    lines = [line for line in code.expandtabs(4).splitlines() if line.strip()]
    wrapped = []
    for line in dedent("\n".join(line for line in lines if not _FENCE.match(line))).splitlines():
        margin = indent + line[: len(line) - len(line.lstrip())]
        wrapped += wrap(_mark(printable(line), terms), first=margin, rest=f"{margin}  ")
    return wrapped


def _styled(line: str) -> str:
    return line.replace(_OPEN, f"\033[{_STYLES['mark']}m").replace(_CLOSE, "\033[0m")


def plain(words: str) -> str:
    """Words without the signs of Markdown, reStructuredText and HTML."""
    words = _TAG.sub("", printable(words).replace("&nbsp;", " "))
    for sign in (_LINK, _TARGET, _ROLE, _RST_LINK):
        words = sign.sub(r"\1", words)
    return " ".join(_ATTRIBUTES.sub("", words).replace("**", "").split())


def _is_wide(term: str) -> bool:
    return cells(term) > len(term)


def _best_part(text: str, terms: frozenset[str], columns: int) -> str:
    """The sentences in a row with most of the query's terms, rare ones first, cut to a number of
    columns.
    """
    from lazyrag.text.sentences import sentence_spans

    texts = [plain(text[start:end]) for start, end in sentence_spans(text)]
    sentences = [sentence for sentence in texts if sentence]
    if not sentences:
        return ""
    found_terms = [_terms_in(sentence, terms) for sentence in sentences]
    first, last, size = _best_window(sentences, found_terms, columns)
    while first and size + cells(sentences[first - 1]) < columns:
        first -= 1
        size += cells(sentences[first]) + 1
    cut = shorten(_join(sentences[first : last + 1]), columns)
    more = last + 1 < len(sentences) and not cut.endswith("…")
    return ("… " if first else "") + cut + (" …" if more else "")


def _terms_in(text: str, terms: frozenset[str]) -> set[str]:
    from lazyrag.text.analyzers import term_spans

    return {term for *_, term in term_spans(text, terms)}


def _best_window(
    sentences: Sequence[str], terms: Sequence[set[str]], columns: int
) -> tuple[int, int, int]:
    """The first and the last of the sentences in a row with the rarest terms, and their size."""
    counts = Counter(itertools.chain.from_iterable(terms))
    windows = []
    for first in range(len(sentences)):
        last = first
        size = cells(sentences[first])
        covered = set(terms[first])
        while last + 1 < len(sentences) and size < columns:
            last += 1
            size += cells(sentences[last]) + 1
            if size <= columns:  # else it will be cut
                covered |= terms[last]
        windows.append((sum(1 / counts[term] for term in covered), -first, last, size))
    _, negative, last, size = max(windows)
    return -negative, last, size


def _join(sentences: Sequence[str]) -> str:
    """Sentences as one text: without a space between wide characters."""
    text = ""
    for sentence in sentences:
        text += (
            " " if text and not (_is_wide(text[-1]) or _is_wide(sentence[0])) else ""
        ) + sentence
    return text


def _mark(text: str, terms: frozenset[str]) -> str:
    from lazyrag.text.analyzers import term_spans

    before, after = (_OPEN, _CLOSE) if has_colour() else ("*", "*")
    parts = []
    done = 0
    merged: list[list[int]] = []
    for start, end, _ in term_spans(text, terms):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(end, merged[-1][1])
        else:
            merged.append([start, end])
    for start, end in merged:
        parts += [text[done:start], before, text[start:end], after]
        done = end
    return "".join([*parts, text[done:]])
