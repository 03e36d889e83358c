"""Rows of the sheets of .xlsx workbooks, read in one pass, without the XML of a sheet in memory."""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from openpyxl.formula.translate import Translator
from openpyxl.styles.numbers import BUILTIN_FORMATS, is_date_format, is_timedelta_format
from openpyxl.utils import column_index_from_string
from openpyxl.utils.datetime import MAC_EPOCH, WINDOWS_EPOCH, from_excel, from_ISO8601

from lazyrag.loaders.archives import Archive, Element, local_name, related, unescaped
from lazyrag.loaders.base import reading
from lazyrag.loaders.cells import Cell, Row, duration_text, shown_as
from lazyrag.loaders.tables import Merge

FORMATS: Mapping[int, str] = BUILTIN_FORMATS
"""Number formats that a workbook need not have, by their number."""
EPOCHS = {False: WINDOWS_EPOCH, True: MAC_EPOCH}
"""The day from which dates are counted; by whether it is in 1904."""
_MAX_CODE = 255
"""Characters of a number format; openpyxl takes quadratic time for longer ones."""
_NUMBER = re.compile(
    r"\s*[-+]?(?:\d{1,400}(?:\.\d*)?|\.\d+)(?P<exponent>[eE][-+]?\d+)?\s*", re.ASCII
)
_ROW_NUMBER = re.compile(r"\d{1,7}", re.ASCII)
_RANGE = re.compile(r"([A-Z]{1,3})(\d{1,7}):([A-Z]{1,3})(\d{1,7})", re.ASCII)
_DIGITS = "0123456789"


class Style(NamedTuple):
    """The number format of cells, and whether their numbers are dates or durations."""

    code: str = "General"
    is_date: bool = False
    is_duration: bool = False


class Workbook(NamedTuple):
    """What the sheets of a workbook share.

    Args:
        strings: Texts that cells name by number.
        styles: By their number.
        epoch: The day from which dates are counted.
    """

    strings: Sequence[str]
    styles: Sequence[Style]
    epoch: dt.datetime


def read_workbook(archive: Archive, main: str) -> Workbook:
    """Read what the sheets share, as far as it is not damaged.

    Args:
        archive: The file.
        main: Its part with the list of sheets.
    """
    strings: list[str] = []
    part = related(archive, "sharedStrings", main)
    with archive.tolerated(f"part {part}"):
        strings += map(_string, archive.elements(part, "si") if part else ())
    is_1904 = False
    for settings in archive.xml(main).iterfind("{*}workbookPr"):
        is_1904 = settings.get("date1904") in ("1", "true")
    part = related(archive, "styles", main)
    styles: list[Style] = []
    with archive.tolerated(f"part {part}"):
        styles += _styles(archive.xml(part)) if part else ()
    return Workbook(strings, styles, EPOCHS[is_1904])


def _string(element: Element) -> str:
    """A text with formats, without the readings of its characters."""
    texts = []
    for child in element:
        parts = child if local_name(child) == "r" else (child,)
        texts += [part.text or "" for part in parts if local_name(part) == "t"]
    return _decoded("".join(texts))


def _decoded(text: str) -> str:
    return unescaped(text) if "_x" in text else text


def _styles(root: Element) -> Iterator[Style]:
    codes: dict[str, str] = {str(number): code for number, code in FORMATS.items()}
    for form in root.iterfind("{*}numFmts/{*}numFmt"):
        codes[form.get("numFmtId", "")] = form.get("formatCode", "")
    for form in root.iterfind("{*}cellXfs/{*}xf"):
        yield style_of(codes.get(form.get("numFmtId", ""), ""))


@functools.lru_cache(maxsize=1_024)
def style_of(code: str) -> Style:
    """The style of a number format."""
    if not code or len(code) > _MAX_CODE:
        return Style()
    return Style(code, is_date_format(code), is_timedelta_format(code))


class SheetReader:
    """Reads the rows of a sheet, and what is noted of it on the way.

    Args:
        workbook: What all sheets share.
        name: Of the sheet.
    """

    def __init__(self, workbook: Workbook, name: str) -> None:
        self.merges: list[Merge] = []
        self.formulas: list[str] = []
        """The cells of formulas without a stored value."""
        self._workbook = workbook
        self._name = name
        self._shared: dict[str, Translator] = {}
        self._lost: list[str] = []

    def rows(self, archive: Archive, part: str) -> Iterator[Row]:
        """The rows with cells; values as displayed, formulas where they have no value.

        Raises:
            LoadError: Where the damage of a sheet begins.
        """
        number = 0
        try:
            for element in archive.elements(part, "row", "mergeCell"):
                if local_name(element) == "mergeCell":
                    self.merges += _merges(element.get("ref", ""))
                    continue
                written = element.get("r", "")
                following = int(written) if _ROW_NUMBER.fullmatch(written) else 0
                number = max(number + 1, following)
                yield number, self._row(element, number)
        finally:
            if self._lost:
                first = f"cells of sheet {self._name!r} left out: {len(self._lost)}, such as"
                reading().note(f"{first} {self._lost[0]}: the workbook lacks their texts.")

    def _row(self, row: Element, number: int) -> list[Cell]:
        values = {}
        column = 0
        for cell in row:
            reference = cell.get("r", "")
            column = _column(reference.rstrip(_DIGITS)) or column + 1
            values[column] = self._cell(cell, reference or f"row {number}")
        return [values.get(at) for at in range(1, max(values, default=0) + 1)]

    def _cell(self, cell: Element, reference: str) -> Cell:
        parts: Mapping[str, Element] = {local_name(child): child for child in cell}
        text = parts["v"].text if "v" in parts else None
        formula = parts.get("f")
        if formula is not None and (formula.get("t") == "shared" or not text):
            words = self._formula(formula, reference)
            if not text:
                self.formulas.append(reference)
                return words
        if text:
            return self._value(cell, text, reference)
        return _string(parts["is"]) if "is" in parts else None

    def _formula(self, formula: Element, reference: str) -> str:
        """The formula of a cell. Cells that share a formula name the first cell that has it."""
        words = f"={formula.text or ''}"
        key = formula.get("si", "")
        if formula.get("t") != "shared":
            return words
        if formula.text:
            self._shared.setdefault(key, Translator(words, reference))
        elif key in self._shared:
            return str(self._shared[key].translate_formula(reference))
        return words

    def _value(self, cell: Element, text: str, reference: str) -> Cell:
        kind = cell.get("t", "n")
        if kind == "n":
            style = cell.get("s", "0")
            return self._number(text, int(style) if style.isdecimal() else 0)
        if kind == "s":
            strings = self._workbook.strings
            if text.isdecimal() and int(text) < len(strings):
                return strings[int(text)]
            self._lost.append(reference)
            return None
        if kind == "b":
            return text.strip() in ("1", "true")
        if kind == "d":
            return _date(text)
        return _decoded(text)

    def _number(self, text: str, style_number: int) -> Cell:
        match = _NUMBER.fullmatch(text)
        if match is None:
            return text  # NaN, Infinity, #DIV/0!
        value = float(text) if "." in text or match["exponent"] else int(text)
        return number_cell(value, self._workbook, style_number)


def number_cell(value: float, workbook: Workbook, style_number: int) -> Cell:
    """A number as its style shows it: a number, a date, a duration."""
    styles = workbook.styles
    style = styles[style_number] if style_number < len(styles) else Style()
    if not style.is_date:
        return shown_as(value, style.code)
    try:
        moment: Cell = from_excel(value, workbook.epoch, timedelta=style.is_duration)
    except (OverflowError, ValueError):  # outside of the calendar
        return value
    return duration_text(moment, style.code) if isinstance(moment, dt.timedelta) else moment


def _date(text: str) -> Cell:
    try:
        date: Cell = from_ISO8601(text)
    except ValueError:
        return text
    return date


@functools.lru_cache(maxsize=1 << 15)
def _column(letters: str) -> int:
    """The number of a column, from 1; 0 without one."""
    try:
        number: int = column_index_from_string(letters)
    except ValueError:
        return 0
    return number


def _merges(reference: str) -> Iterator[Merge]:
    """The range of merged cells, which may be written from its last cell."""
    if match := _RANGE.fullmatch(reference):
        left, top, right, bottom = match.groups()
        rows = sorted((int(top), int(bottom)))
        columns = sorted((_column(left), _column(right)))
        yield rows[0], rows[1], columns[0], columns[1]
