"""Units of a text: the sentences, list items, table rows and blocks of code that can be quoted."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from lazyrag.data.tables import header_votes, is_header
from lazyrag.text.sentences import last_break, sentence_spans

Kind: TypeAlias = Literal["sentence", "item", "row", "record", "code", "heading", "header"]

MAX_ITEM = 300
"""Characters of a list item that is one unit; the sentences of a longer one are units."""
MAX_SENTENCE = 600
"""Characters of a sentence or record that is one unit; of a longer one parts of `MAX_ITEM` are."""

_HEADING = re.compile(r" {0,3}#{1,6}\s")
_UNDERLINE = re.compile(r"([=\-~^\"'#*+])\1{2,}\s*")
FENCE = re.compile(r"[ \t]*(```+(?!`|\{(?!code))|~~~+(?= *\w))")
"""The line before a block of code."""
_ANY_FENCE = re.compile(r"[ \t]*(```+|~~~+(?= *\w))")
_PROSE_FENCE = re.compile(r"[ \t]*(```+)\{(?!code)")
_ROW = re.compile(r"[ \t]*\||[^|\n]+ \| [^|\n]+ \| ")
_TWO_CELLS = re.compile(r"[^|\n]+ \| [^|\n]+\n?")  # of a row beside another one
# of a loaded table, settings, the head of a mail: ``Tea: Oolong; Price: 7``, ``port: 80``
_FIELD = re.compile(r"[ \t]*[^\s:：;；|][^:：;；|\n]{0,79}(?:: |：)[^\n]*\S")
_RECORD = re.compile(r"[^:;\n]{1,80}: [^\n]*; [^:;\n]{1,80}: ")
_RULE = re.compile(r"(?=.*-)[ \t]*[|:-][|: \t-]*\|[|: \t-]*\s*|[ \t]*\+=[=+]+\s*")  # below a header
ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,3}[.)]|#\.)[ \t]+")
"""The sign of a list item."""
_SECTION = re.compile(r"\d{1,3}[.)][ \t]+")
_MAX_TITLE = 60  # characters
_TIMES_TITLE = 2  # how much longer a line of text below a title is
_NO_TITLE = re.compile(r"[\d.。!?！？；;:：，,|]")
_SENTENCE_END = re.compile(r"[.!?](?!\S)|[。！？]")
_BLANK_LINE = re.compile(r"[ \t\r]*\n")
FINISHED = re.compile(r"[.。!?！？；;:：”\"]\s*\Z")
"""Of a sentence."""
_WORD = re.compile(r"\s*\S")
_MARKUP = re.compile(
    r"[ \t]*(?:\.\. |:::|!!! |=== |\([\w:.-]+\)=\s*$|\[[^\]]+\]:|<!--|:[\w-]+:(?!`))"
)
_DIRECTIVE = re.compile(r"[ \t]*\.\. ([\w-]+)::")
_CODE_DIRECTIVES = ("code", "code-block", "parsed-literal", "sourcecode")
_CUT_CODE = re.compile(r"\s+(?:def |class |import |from |@|>>> |[\w.]+\(|[\w.]+ = )")
"""Of a passage that begins inside of code."""
_OPTION = re.compile(r"[ \t]+:[\w-]+:(?!`)")


class Unit(NamedTuple):
    """What can be quoted of a text: a sentence, a list item or a line with a name and a value, a
    row of a table, a record with the names of its columns, a block of code; or a heading or the
    header of a table, which are context.
    """

    start: int
    end: int
    kind: Kind


def units_of(text: str) -> list[Unit]:
    r"""Split a text into units, in order, without the white space around them.

    Example:
        >>> text = "# Tea\n\nGreen. It is hot.\n\n- An item. Of two.\n\n| a |\n"
        >>> [text[unit.start : unit.end] for unit in units_of(text)]
        ['# Tea', 'Green.', 'It is hot.', '- An item. Of two.', '| a |']
    """
    parts = itertools.chain.from_iterable(_parts(text, unit) for unit in _UnitReader(text).read())
    trimmed = (_trimmed(text, unit) for unit in parts)
    return [unit for unit in trimmed if any(map(str.isalnum, text[unit.start : unit.end]))]


def _parts(text: str, unit: Unit) -> Iterator[Unit]:
    """A unit, or parts of one that is too long to be quoted."""
    start, end, kind = unit
    if end - start <= MAX_SENTENCE or kind not in ("sentence", "record"):
        yield unit
        return
    while end - start > MAX_ITEM:
        stop = last_break(text, start, start + MAX_ITEM)
        if text[stop - 1 : stop + 1].isalnum() and text[stop].isascii():  # a word is not cut
            break
        yield Unit(start, stop, "sentence")
        start = stop
    yield Unit(start, end, "sentence")


def _trimmed(text: str, unit: Unit) -> Unit:
    words = text[unit.start : unit.end]
    start = unit.start + len(words) - len(words.lstrip())
    return Unit(start, start + len(words.strip()), unit.kind)


def line_of(text: str, unit: Unit) -> str:
    """A unit from the beginning of its line, so that its lines have their indents."""
    return text[text.rfind("\n", 0, unit.start) + 1 : unit.end]


class _UnitReader:
    """Reads Markdown, reStructuredText and plain text line by line."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = text.splitlines(keepends=True)
        self._at = 0  # number of the line
        self._start = 0  # where it begins
        self._paragraph: int | None = None  # where it begins
        self._is_item = False
        self._line_before = ""  # the last one with words
        self._prose_fence = ""  # of a note that is open

    def read(self) -> Iterator[Unit]:
        """All units, with white space around them."""
        if count := self._lines_of_cut_code():
            yield self._take(count, "code")
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if not line.strip():
                yield from self._end_paragraph()
                self._skip(1)
            elif _UNDERLINE.fullmatch(line) and self._paragraph is not None:
                yield Unit(self._paragraph, self._start, "heading")
                self._paragraph = None
                self._skip(1)
            elif (fence := FENCE.match(line)) and not self._closes_prose(line):
                yield from self._end_paragraph()
                yield self._take(self._lines_of_fence(fence[1]), "code")
            elif self._begins_literal(line):
                yield self._take(self._lines_of_literal(), "code")
            else:
                yield from self._read_line(line)
        yield from self._end_paragraph()

    def _read_line(self, line: str) -> Iterator[Unit]:
        is_item = bool(ITEM.match(line))
        kind: Kind | None = "heading" if _HEADING.match(line) else self._kind_of_field(line)
        if kind is None and self._is_row(self._at):
            kind = "row"
        if prose := _PROSE_FENCE.match(line):
            self._prose_fence = prose[1]
        signs = (_ANY_FENCE.match, _MARKUP.match, _UNDERLINE.fullmatch)
        is_markup = any(matches(line) for matches in signs)
        if not (is_item or kind or is_markup) and self._is_title_line(line):
            kind = "heading"
        if is_item or kind or is_markup:
            yield from self._end_paragraph()
        if kind == "row" and self._is_header():
            kind = "header"
        if kind:
            yield self._take(1, kind)
            return
        if self._paragraph is None and not is_markup:
            self._paragraph = self._start
            self._is_item = is_item
        self._skip(1)

    def _kind_of_field(self, line: str) -> Kind | None:
        """Of a name with its value beside another one, of a record, or of the header of records."""
        below = self._line(self._at + 1)
        name, bar, _ = line.partition(" | ")
        if bar and below.startswith(f"{name.strip()}: "):
            return "header"
        if not (_FIELD.match(line) and any(map(_FIELD.match, (self._line(self._at - 1), below)))):
            return None
        if _RECORD.match(line):
            return "record"
        return "item" if len(line) <= MAX_ITEM else None

    def _line(self, at: int) -> str:
        """The line of a number; "" beyond the text."""
        return self._lines[at] if 0 <= at < len(self._lines) else ""

    def _is_row(self, at: int) -> bool:
        line, *beside = map(self._line, (at, at - 1, at + 1))
        if _ROW.match(line):
            return True
        return bool(_TWO_CELLS.fullmatch(line)) and any(map(_TWO_CELLS.fullmatch, beside))

    def _is_header(self) -> bool:
        """Whether a row names columns: above a rule, or the first of a plain table by its cells."""
        line = self._lines[self._at]
        if _RULE.fullmatch(self._line(self._at + 1)):
            return True
        if self._is_row(self._at - 1) or line.lstrip().startswith("|"):
            return False
        numbers = itertools.takewhile(self._is_row, range(self._at, len(self._lines)))
        names, *rows = [self._lines[at].split("|") for at in numbers]
        if _TWO_CELLS.fullmatch(line):  # names beside values have no header
            return len(rows) > 1 and header_votes(names, rows) > 0
        # a passage may begin within a table
        return header_votes(names, rows) > 0 or (self._start > 0 and is_header(names, rows))

    def _skip(self, count: int) -> None:
        for line in self._lines[self._at : self._at + count]:
            self._start += len(line)
            if line.strip() and not _OPTION.match(line):
                self._line_before = line
        self._at += count

    def _take(self, count: int, kind: Kind) -> Unit:
        start = self._start
        self._skip(count)
        return Unit(start, self._start, kind)

    def _end_paragraph(self) -> Iterator[Unit]:
        """The item, or the sentences of the paragraph, that ends here."""
        first = self._paragraph
        self._paragraph = None
        if first is None:
            return
        if self._is_title(self._text[first : self._start]):
            yield Unit(first, self._start, "heading")
            return
        if self._is_item and self._start - first <= MAX_ITEM:
            yield Unit(first, self._start, "item")
            return
        for start, end in sentence_spans(self._text[first : self._start]):
            yield Unit(first + start, first + end, "sentence")

    def _is_title(self, paragraph: str) -> bool:
        """Whether a paragraph before others is one short line without a sign or a number, but for
        that of a section: an item that stands alone.
        """
        following = _WORD.match(self._text, self._start)
        if not (following and _BLANK_LINE.match(self._text, self._start)):
            return False
        if not self._is_item:
            return _may_be_title(paragraph.strip())
        number = _SECTION.match(paragraph)
        if number is None or _SECTION.match(self._text, following.end() - 1):
            return False
        return _may_be_title(paragraph[number.end() :].strip())

    def _is_title_line(self, line: str) -> bool:
        """Whether a line stands directly above its text, as in Word: the line before it is
        finished, and the next one has a whole sentence and is much longer.
        """
        words = line.strip()
        below = self._line(self._at + 1).strip()
        is_first = self._paragraph is None or FINISHED.search(self._line_before)
        is_longer = len(below) > _TIMES_TITLE * len(words)
        is_above = is_longer and not below[0].islower() and _SENTENCE_END.search(below)
        return bool(is_first and is_above) and _may_be_title(words)

    def _lines_of_cut_code(self) -> int:
        """Number of lines of a fenced block that began before the text; 0 if there is none."""
        lines = self._lines
        fences = [at for at, line in enumerate(lines) if _ANY_FENCE.match(line)]
        for count, at in enumerate(fences):
            if lines[at].strip(" \t`~\r\n"):  # with a language: it begins a block
                return fences[0] + 1 if count % 2 else 0
        is_cut = len(fences) % 2 and fences[0] and lines[fences[0] - 1].strip()
        return fences[0] + 1 if is_cut else 0

    def _lines_of_fence(self, fence: str) -> int:
        """Number of lines of a fenced block, up to its end or that of the text."""
        for at in range(self._at + 1, len(self._lines)):
            if self._lines[at].strip().startswith(fence):
                return at + 1 - self._at
        return len(self._lines) - self._at

    def _closes_prose(self, line: str) -> bool:
        """Whether a fence closes that of a note or the like."""
        is_closing = line.strip() == self._prose_fence
        if is_closing:
            self._prose_fence = ""
        return is_closing

    def _begins_literal(self, line: str) -> bool:
        """Whether an indented line begins a block of code, as after a colon."""
        before = self._line_before.rstrip()
        directive = _DIRECTIVE.match(before)
        is_before = directive[1] in _CODE_DIRECTIVES if directive else before.endswith("::")
        if not before:
            is_before = bool(_CUT_CODE.match(line))
        elif before.endswith((":", "：")) and line.startswith("    "):
            is_before = is_before or not (directive or _indent(before) or ITEM.match(before))
        is_inside = _indent(line) > _indent(before) and not _OPTION.match(line)
        return is_before and is_inside and self._paragraph is None

    def _lines_of_literal(self) -> int:
        rest = self._lines[self._at :]
        indent = _indent(rest[0])
        is_inside = (not line.strip() or _indent(line) >= indent for line in rest)
        return next((at for at, inside in enumerate(is_inside) if not inside), len(rest))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _may_be_title(words: str) -> bool:
    is_short = len(words) <= _MAX_TITLE and "\n" not in words
    return is_short and not _NO_TITLE.search(words)
