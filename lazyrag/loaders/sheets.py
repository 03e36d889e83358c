"""Tables of cells as text: what the loaders of spreadsheets share."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from lazyrag.errors import LoadError
from lazyrag.loaders.base import LoadedFile, join_parts

Cell: TypeAlias = "str | float | bool | dt.datetime | dt.date | dt.time | dt.timedelta | None"
"""What a cell of a spreadsheet holds."""

MOST_CHARACTERS = 1 << 27
"""Characters in the cells of a workbook."""

_SAMPLE = 10
"""Rows among which the names of columns are looked for."""
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class Sheet:
    """One sheet: its name, its rows from the top, and whether the program that made it hides it."""

    name: str
    rows: Iterable[Sequence[Cell]] = field(repr=False)
    hidden: bool = False


def read_sheets(sheets: Iterable[Sheet]) -> LoadedFile:
    r"""The text of a workbook; each sheet that holds something is a place, its name the first line.

    The names of the sheets become metadata, and those of hidden ones, which are read as well, once more.

    Args:
        sheets: In their order. The rows of one are used up before the next one is asked for.

    Raises:
        LoadError: If the text would be longer than `MOST_CHARACTERS`.

    Example:
        >>> loaded = read_sheets([Sheet("Prices", [["tea", "EUR"], ["green", 4.5]])])
        >>> loaded.text
        'Prices\ntea | EUR\ntea: green; EUR: 4.5'
    """
    texts = []
    names = []
    hidden = []
    length = 0
    for sheet in sheets:
        lines = []
        for line in row_lines(sheet.rows):
            length += len(line)
            _limit(length)
            lines.append(line)
        if lines:
            names.append(sheet.name)
            texts.append("\n".join([sheet.name, *lines]))
            if sheet.hidden:
                hidden.append(sheet.name)
    text, places = join_parts(texts, [("sheet", name) for name in names])
    said = {"sheets": names, "hidden_sheets": hidden}
    return LoadedFile(text, places, {name: value for name, value in said.items() if value})


def row_lines(rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    """A line for each row that holds something.

    Where the names of columns are found, the rows below them read ``name: value; name: value``, and those above and the
    names themselves stand with ``|`` between the cells, as the rows of a table without names do. Names are the first of
    the top rows that fills most of the columns with different short texts.

    Args:
        rows: From the top, of any length.

    Raises:
        LoadError: If a row is longer than `MOST_CHARACTERS`.

    Example:
        >>> list(row_lines([["Tea 2024"], ["tea", "price"], ["green", 4.0], [None, 3]]))
        ['Tea 2024', 'tea | price', 'tea: green; price: 4', 'price: 3']
    """
    below = ((row, cells) for row in rows if any(cells := _cells(row)))
    top = list(itertools.islice(below, _SAMPLE))
    at = _names_at(top)
    names: Sequence[str] = top[at][1] if at is not None else ()
    for number, (_, cells) in enumerate(itertools.chain(top, below)):
        yield _named(names, cells) if at is not None and number > at else _joined(cells)


def _cells(row: Sequence[Cell]) -> list[str]:
    _limit(sum(len(value) for value in row if isinstance(value, str)))
    return [cell_text(value) for value in row]


def _limit(length: int) -> None:
    """A small file can have millions of cells show the same long text."""
    if length > MOST_CHARACTERS:
        msg = f"The workbook shows more than {MOST_CHARACTERS} characters. Split it into several files."
        raise LoadError(msg)


def _names_at(top: Sequence[tuple[Sequence[Cell], Sequence[str]]]) -> int | None:
    """Which of the top rows holds the names of columns; None if it is none of them, or the last."""
    widest = max((sum(map(bool, cells)) for _, cells in top), default=0)
    for at, (row, cells) in enumerate(top[:-1]):
        names = [cell for cell in cells if cell]
        if len(names) >= max(2, widest / 2):
            texts = all(isinstance(value, str) for value, cell in zip(row, cells, strict=True) if cell)
            different = len(set(names)) == len(names) and max(map(len, names)) <= _LONGEST_NAME
            return at if texts and different else None
    return None


def _named(names: Sequence[str], cells: Sequence[str]) -> str:
    named = itertools.zip_longest(names, cells, fillvalue="")
    return "; ".join(f"{name}: {cell}" if name else cell for name, cell in named if cell)


def _joined(cells: Sequence[str]) -> str:
    last = max(at for at, cell in enumerate(cells) if cell)
    first = next(at for at, cell in enumerate(cells) if cell)
    return " | ".join(cells[first : last + 1])


def cell_text(value: Cell) -> str:
    """What a cell shows: dates as ISO 8601, numbers with the 15 digits that spreadsheets keep, white space folded.

    Example:
        >>> [cell_text(value) for value in (2.0, 0.1 + 0.2, True, dt.datetime(2024, 4, 5), None)]
        ['2', '0.3', 'TRUE', '2024-04-05', '']
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, (int, float)):
        whole = isinstance(value, int) or (value.is_integer() and abs(value) < 1e15)
        return str(int(value)) if whole else f"{value:.15g}"
    if isinstance(value, dt.datetime) and value.time() != dt.time.min:
        return value.isoformat(sep=" ", timespec="seconds")
    day = value.date() if isinstance(value, dt.datetime) else value
    return str(day)  # of dates and times that is ISO 8601
