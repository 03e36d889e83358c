"""Values of cells as text: the ISO date, the number, the duration."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TypeAlias

from lazyrag.loaders.number_formats import is_percentage, shown_number
from lazyrag.loaders.tables import ShownText

Cell: TypeAlias = "str | float | bool | dt.datetime | dt.date | dt.time | dt.timedelta | None"
"""The value of a cell."""

Row: TypeAlias = tuple[int, Sequence[Cell]]
"""A row's number, as spreadsheet programs display it, and its cells."""

_MAX_EXACT = 1 << 53
"""Integers up to it have all digits."""


def cell_text(value: Cell) -> str:
    """Format a cell: dates as ISO 8601, numbers with the 15 digits of spreadsheets, white space
    folded.

    Example:
        >>> [cell_text(value) for value in (2.0, 0.1 + 0.2, True, dt.datetime(2024, 4, 5), None)]
        ['2', '0.3', 'TRUE', '2024-04-05', '']
    """
    if value is None or isinstance(value, str):
        return " ".join((value or "").split())
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, (int, float)):
        is_integer = isinstance(value, int) or (value.is_integer() and abs(value) <= _MAX_EXACT)
        return str(int(value)) if is_integer else f"{value:.15g}"
    if isinstance(value, dt.datetime) and value.time() != dt.time.min:
        return value.isoformat(sep=" ", timespec="seconds")
    if isinstance(value, dt.timedelta):
        return duration_text(value)
    day = value.date() if isinstance(value, dt.datetime) else value
    return str(day)  # ISO 8601 for dates and times


def duration_text(value: dt.timedelta, number_format: str = "[h]:mm:ss") -> str:
    """Format a duration as spreadsheets do.

    Args:
        value: The duration.
        number_format: The number format of its cell.

    Example:
        >>> duration = dt.timedelta(hours=26, minutes=5)
        >>> [duration_text(duration, form) for form in ("[h]:mm", "[mm]:ss", "[ss]")]
        ['26:05', '1565:00', '93900']
    """
    seconds = round(abs(value.total_seconds()))
    sign = "-" if value.total_seconds() < 0 else ""
    number_format = number_format.lower()
    if "[s" in number_format:
        return f"{sign}{seconds}"
    if "[m" in number_format:
        return f"{sign}{seconds // 60}" + (f":{seconds % 60:02}" if "s" in number_format else "")
    tail = f":{seconds % 60:02}" if "s" in number_format else ""
    return f"{sign}{seconds // 3600}:{seconds // 60 % 60:02}{tail}"


def shown_as(value: float, code: str) -> Cell:
    """A number with a number format, which it is shown in."""
    if code == "General":
        return value
    digits = cell_text(value)
    shown = shown_number(digits, code)
    if is_percentage(code):
        digits = f"{value * 100:.15g}%"
    return ShownText(digits, shown or digits)
