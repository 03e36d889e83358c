"""Tables of documents: rows of texts under named columns, as loaders find them and the group
``table`` holds them.
"""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from lazyrag.data.segment import TABLE, Location

_NUMBER = re.compile(
    r"[-+(]?[¥$€£￥]?\s?[-+]?\d[\d.,'\s]*(?:[eE][-+]?\d+)?\s?[%％)元]?|[-+]?[.,]\d+"
)
_YEAR = re.compile(r"(?:19|20)\d\d")

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # dumps would make others


@dataclass(frozen=True, slots=True)
class FoundTable:
    r"""A table of a document.

    Args:
        names: Names of the columns; () without a header.
        rows: The cells of each row below the header.
        header: Number of header rows.
        caption: Its title; "" for none.
        sheet: Name of its sheet; "" if it is not in a workbook.
        column: Number of its first column in the sheet, from 1; 0 if it is not in a workbook.
        numbers: First and last numbers in the sheet of each run of rows, header rows included.

    Example:
        >>> rows = (("green", "4"),)
        >>> table = FoundTable(("tea", "kg"), rows, 1, sheet="Stock", column=2, numbers=((7, 8),))
        >>> table.csv, table.cells
        ('tea,kg\ngreen,4', 'B7:C8')
        >>> FoundTable.read(table.location(0, 9).label) == table
        True
    """

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    header: int = 0
    caption: str = ""
    sheet: str = ""
    column: int = 0
    numbers: tuple[tuple[int, int], ...] = ()

    @property
    def csv(self) -> str:
        """The table as CSV, with the column names first."""
        import csv  # few programs need it

        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerows(
            [self.names, *self.rows] if self.names else self.rows
        )
        return written.getvalue().rstrip("\n")

    @property
    def cells(self) -> str:
        """Its cells in the sheet, such as ``"B7:C8"``; "" if it is not in a workbook."""
        if not self.numbers:
            return ""
        width = len(self.names or self.rows[0])
        return cell_range(self.column, width, self.numbers[0][0], self.numbers[-1][1])

    def location(self, start: int, end: int, packed: str = "") -> Location:
        """The table as a location of a document's text.

        Args:
            start: Where it begins in the text.
            end: Where it ends.
            packed: Its rows by `packed_row`, with commas between, where it has none itself.
        """
        names, rows, *others = [packed_row(getattr(self, column.name)) for column in fields(self)]
        inner = packed or rows[1:-1]
        return Location(start, end, TABLE, f"[{names},[{inner}],{','.join(others)}]")

    @classmethod
    def read(cls, label: str) -> FoundTable:
        """The table of a location's label."""
        names, rows, header, caption, sheet, column, numbers = json.loads(label)
        runs = tuple((first, last) for first, last in numbers)
        return cls(tuple(names), tuple(map(tuple, rows)), header, caption, sheet, column, runs)


def packed_row(value: object) -> str:
    """A row, or another value, as JSON."""
    return _ENCODER.encode(value)


def cell_range(column: int, width: int, first: int, last: int) -> str:
    """A range of cells.

    Example:
        >>> cell_range(26, 2, 3, 9)
        'Z3:AA9'
    """
    return f"{column_letters(column)}{first}:{column_letters(column + width - 1)}{last}"


def column_letters(number: int) -> str:
    """The letters of a column in a spreadsheet.

    Example:
        >>> column_letters(1), column_letters(28)
        ('A', 'AB')
    """
    letters = ""
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


def joined_names(header: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The names of columns below one or several header rows, the upper ones first.

    Example:
        >>> joined_names([["tea", "2024", "2024"], ["tea", "spring", "autumn"]])
        ('tea', '2024 > spring', '2024 > autumn')
    """
    columns = itertools.zip_longest(*header, fillvalue="")
    return tuple(" > ".join(filter(None, dict.fromkeys(column))) for column in columns)


def is_header(first: Sequence[str], below: Iterable[Sequence[str]]) -> bool:
    """Whether a row names the columns.

    Columns of numbers vote: a name above them differs in kind, another number does not. Without
    votes, names must be filled, distinct and above more than one column.

    Example:
        >>> is_header(["tea", "kg"], [["green", "4"]]), is_header(["green", "4"], [["black", "5"]])
        (True, False)
    """
    body = [row for row in below if any(cell.strip() for cell in row)]
    if not body:
        return False
    votes = header_votes(first, body)
    names = [cell.strip() for cell in first]
    return votes > 0 or (
        votes == 0 and len(names) > 1 and all(names) and len(set(names)) == len(names)
    )


def header_votes(first: Sequence[str], body: Sequence[Sequence[str]]) -> int:
    """The number of columns of numbers below a name, less those below a number."""
    votes = 0
    for column, cell in enumerate(map(str.strip, first)):
        values = [row[column].strip() for row in body if column < len(row) and row[column].strip()]
        if cell and _are_mostly(_NUMBER, values):
            is_number = _NUMBER.fullmatch(cell) is not None
            if _YEAR.fullmatch(cell):  # years may be names
                is_number = _are_mostly(_YEAR, values)
            votes += -1 if is_number else 1
    return votes


def _are_mostly(pattern: re.Pattern[str], values: Sequence[str]) -> bool:
    return 2 * sum(bool(pattern.fullmatch(value)) for value in values) > len(values)
