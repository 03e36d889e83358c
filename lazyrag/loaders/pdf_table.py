"""Rows of a page as lines: which of them are a table's, and which columns their cells stand in."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

Cell: TypeAlias = tuple[float, float, str]
"""Left and right edge in points, and the text."""

_BETWEEN = " | "
_WIDE = 2.0  # in sizes of the font: beside so wide a gap one row alone is a table's
_ALIGNED = 0.6
_MOST_COLUMNS = 100
_NEAR = 3  # rows above and beneath that tell a table
_TIGHT = 1.45
_TIGHTEST_OF_USUAL = 0.85
_BULLET = re.compile(r"[•·▪■◦●○‣∗*–—-]|\(?[0-9]{1,3}[.)、]|\(?[a-zA-Z][.)]|[①-⑳]|\[\d{1,3}\]|[0-9]+(?:\.[0-9]+)+")


@dataclass(frozen=True, slots=True)
class Line:
    """A row as text.

    Args:
        text: Of the row; "" for one that goes on in the cells above it.
        is_of_table: Whether it is a row of a table.
        is_part_of_previous: Whether its text stands in the row above.
    """

    text: str
    is_of_table: bool = False
    is_part_of_previous: bool = False


def table_lines(rows: Sequence[Sequence[Cell]], sizes: Sequence[tuple[float, float]]) -> list[Line]:
    """A line for each row; ``|`` stands between the cells of tables.

    Args:
        rows: From top to bottom, cells from left to right.
        sizes: The base line's height and the size of the font of each.

    Returns:
        A line for each row.

    Example:
        >>> rows = [[(0, 20, "tea"), (80, 99, "price")], [(0, 30, "Sencha"), (90, 99, "12")], [(0, 300, "All prices.")]]
        >>> [line.text for line in table_lines(rows, [(40, 10), (26, 10), (12, 10)])]
        ['tea | price', 'Sencha | 12', 'All prices.']
    """
    lines: list[Line] = []
    block: list[int] = []
    for at, row in enumerate(rows):
        if _is_of_table(rows, sizes, at):
            block.append(at)
            continue
        lines += _block_lines(rows, sizes, block)
        block = []
        lines.append(Line(" ".join(text for _, _, text in row)))
    return lines + _block_lines(rows, sizes, block)


def _is_of_table(rows: Sequence[Sequence[Cell]], sizes: Sequence[tuple[float, float]], at: int) -> bool:
    row, size = rows[at], sizes[at][1]
    if len(row) == 1:
        return _goes_on(rows, sizes, at)
    if len(row) == 2 and _BULLET.fullmatch(row[0][2]):
        return False
    if len(row) > 2 and max(b[0] - a[1] for a, b in pairwise(row)) >= _WIDE * size:
        return True
    near = [rows[other] for other in range(max(0, at - _NEAR), min(len(rows), at + _NEAR + 1)) if other != at]
    return any(_are_aligned(row, other[1:], size) or _are_aligned(row[1:], other, size) for other in near if other[1:])


def _are_aligned(some: Sequence[Cell], others: Sequence[Cell], size: float) -> bool:
    return any(
        abs(a[0] - b[0]) < _ALIGNED * size or abs(a[1] - b[1]) < _ALIGNED * size
        for a in some[:_MOST_COLUMNS]
        for b in others[:_MOST_COLUMNS]
    )


def _goes_on(rows: Sequence[Sequence[Cell]], sizes: Sequence[tuple[float, float]], at: int) -> bool:
    """Whether the only cell of a row stands among rows of a table, in one of their columns but the first."""
    neighbours = [other for other in (at - 1, at + 1) if 0 <= other < len(rows) and len(rows[other]) > 1]
    if not neighbours:
        return False
    left, right, _ = rows[at][0]
    return any(
        any(abs(left - a) < _ALIGNED * sizes[at][1] and right <= b + 4 * sizes[at][1] for a, b, _ in rows[other][1:])
        for other in neighbours
    )


def _block_lines(
    rows: Sequence[Sequence[Cell]], sizes: Sequence[tuple[float, float]], block: Sequence[int]
) -> list[Line]:
    """The rows of a table, empty cells between others kept, so that a value stands in its column."""
    columns = _columns([rows[at] for at in block])
    if not 0 < len(columns) <= _MOST_COLUMNS:
        between = _BETWEEN if columns else " "
        return [Line(between.join(text for _, _, text in rows[at]), is_of_table=bool(columns)) for at in block]
    cells = [_in_columns(rows[at], columns) for at in block]
    steps = [0.0] + [(sizes[above][0] - sizes[at][0]) / (sizes[at][1] or 1) for above, at in pairwise(block)]
    usual = [step for step, own in zip(steps, cells, strict=True) if step and own[0]]
    tight = max(_TIGHT, min(2.2, _TIGHTEST_OF_USUAL * statistics.median(usual))) if len(usual) > 1 else _TIGHT
    filled: list[list[str]] = []
    for step, own in zip(steps, cells, strict=True):
        if filled and step < tight and _continues(own, next(one for one in reversed(filled) if one)):
            start = max(at for at, one in enumerate(filled) if one)
            filled[start] = [f"{a} {b}".strip() for a, b in zip(filled[start], own, strict=True)]
            filled.append([])
        else:
            filled.append(own)
    return [
        Line(_BETWEEN.join(own).strip().rstrip(" |"), is_of_table=True, is_part_of_previous=not own) for own in filled
    ]


def _continues(cells: Sequence[str], above: Sequence[str]) -> bool:
    """Whether a row holds the rest of cells above it, and nothing beside them."""
    filled = [at for at, text in enumerate(cells) if text]
    return not cells[0] and len(filled) < sum(map(bool, above)) and all(above[at] for at in filled)


def _columns(rows: Sequence[Sequence[Cell]]) -> list[tuple[float, float]]:
    """Left and right edges of the columns: of the rows' cells, those that stand above one another are one."""
    merged: list[list[float]] = []
    widest = max((len(row) for row in rows), default=0)
    # A head over several columns would make them one, so rows with few cells do not take part where others do.
    telling = [row for row in rows if len(row) > max(1, widest // 2)]
    for left, right, _ in sorted(cell for row in telling for cell in row):
        if merged and left < merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], right)
        else:
            merged.append([left, right])
    return [(left, right) for left, right in merged]


def _in_columns(row: Sequence[Cell], columns: Sequence[tuple[float, float]]) -> list[str]:
    texts = [""] * len(columns)
    for left, right, text in row:
        at = max(range(len(columns)), key=lambda one: min(right, columns[one][1]) - max(left, columns[one][0]))
        texts[at] = f"{texts[at]} {text}".strip()
    return texts
