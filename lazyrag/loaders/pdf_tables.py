"""Tables of a PDF page: rows of a column of the page become lines, with ``|`` between the cells of
those that have their gaps at the same places.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from lazyrag.loaders.pdf_lines import CELL_GAP, Interval, TextRow, Word, join

_BETWEEN = " | "
_MAX_COLUMNS = 100
_NEAR = 3  # rows above and below that are compared
_TIGHT = 1.45
_LOOSER = 1.2  # a line is part of the row below if the step above is so much wider
_BESIDE = 0.85  # font sizes: a line between the lines of other cells of its row
_TIGHTEST_OF_USUAL = 0.85
_BULLET = re.compile(
    r"[•·▪■◦●○‣∗*–—-]|\(?[0-9]{1,3}[.)、]|\(?[a-zA-Z][.)]|[①-⑳]|\[\d{1,3}\]|[0-9]+(?:\.[0-9]+)+"
)
_NUMBER = re.compile(r"[-+$€£¥]?\d[\d.,]*%?")
# In font sizes.
_SHARED = 0.5  # of two gaps one above the other
_WIDEST_CELL_GAP = 1.4
_CLOSE = 2.2  # rows
_FAR = 5.0
_ALIGNED = 0.6
_EVEN = 0.2  # blanks of a justified line differ by less
_SEPARATOR = 0.35
_SEPARATOR_OF_FEW = 0.6

_LETTERS = 2.2  # that a gap between cells is wide: a sentence may end with two blanks
_FEW_ROWS = 5
_BLANKS = 1.3  # that a gap between columns is wide
_CROSSED = 0.3  # of a separator
_PROSE = 0.4  # rows without gaps that reach the right edge


@dataclass(frozen=True, slots=True)
class Line:
    """A row as text.

    Args:
        text: Of the row; "" if it was merged into the row above.
        is_table_row: Whether it belongs to a table.
        is_merged: Whether its text is in the row above.
    """

    text: str
    is_table_row: bool = False
    is_merged: bool = False


def table_lines(rows: Sequence[TextRow]) -> list[Line]:
    """Convert rows to lines, with ``|`` between the cells of tables.

    Args:
        rows: From top to bottom.

    Example:
        >>> from lazyrag.loaders.pdf_lines import LineSegment
        >>> header = [LineSegment("tea", 0, 20, 40, 10), LineSegment("price", 80, 99, 40, 10)]
        >>> row = [LineSegment("Sencha", 0, 30, 26, 10), LineSegment("12", 90, 99, 26, 10)]
        >>> rows = [TextRow(cells) for cells in (header, row)]
        >>> [line.text for line in table_lines(rows)]
        ['tea | price', 'Sencha | 12']
    """
    gaps = _without_justified(rows, [_cell_gaps(row) for row in rows])
    is_row = [_is_linked(rows, gaps, at) for at in range(len(rows))]
    is_row = [is_row[at] or _goes_on(rows, is_row, at) for at in range(len(rows))]
    lines: list[Line] = []
    block: list[TextRow] = []
    for at, row in enumerate(rows):
        if block and (not is_row[at] or block[-1].base - row.base > _FAR * row.size):
            lines += _block_lines(block)
            block = []
        if is_row[at]:
            block.append(row)
        else:
            lines.append(Line(row.text))
    return lines + _block_lines(block)


def _cell_gaps(row: TextRow) -> list[Interval]:
    """The gaps of a row that may part cells: wider than two letters, and not after a bullet."""
    cells = row.cells
    if len(cells) == 2 and _BULLET.fullmatch(cells[0].text):
        return []
    letters = sum(len(cell.text) for cell in cells)
    width = sum(cell.right - cell.left for cell in cells)
    least = max(CELL_GAP * row.size, min(_WIDEST_CELL_GAP * row.size, _LETTERS * width / letters))
    return [gap for gap in row.gaps if gap[1] - gap[0] >= least]


def _without_justified(
    rows: Sequence[TextRow], gaps: Sequence[list[Interval]]
) -> list[list[Interval]]:
    """The gaps of rows, without those of justified lines among prose."""
    right = max((row.cells[-1].right for row in rows), default=0.0)
    whole = 0  # lines of prose that reach the right edge
    justified = []
    for row in rows:
        is_full = right - row.cells[-1].right < row.size
        whole += is_full and len(row.cells) == 1
        justified.append(is_full and len(row.cells) > 1 and _is_stretched(row))
    if whole <= _PROSE * (len(rows) - sum(justified)):
        return list(gaps)
    return [[] if just else some for just, some in zip(justified, gaps, strict=True)]


def _is_linked(rows: Sequence[TextRow], gaps: Sequence[Sequence[Interval]], at: int) -> bool:
    """Whether a row has gaps where a row near it has some, with nothing between them."""
    if not gaps[at]:
        return False
    for step in (-1, 1):
        free: list[Interval] = list(gaps[at])
        for other in range(at + step, at + step * (_NEAR + 1), step):
            if not 0 <= other < len(rows) or not free:
                break
            shared = common(free, gaps[other], _SHARED * rows[at].size)
            fewer = min(len(gaps[at]), len(gaps[other]))
            if shared and len(shared) >= fewer / 2:
                return True
            free = [gap for gap in free if not _is_crossed(gap, rows[other])]
    return False


def _is_stretched(row: TextRow) -> bool:
    """Whether all blanks of a row are nearly as wide, as in a justified line."""
    if any(" " in text for _, _, text in row.spans):
        return False  # drawn at once, with narrow blanks
    return are_even([(a[1], b[0]) for a, b in pairwise(row.spans)], row.size)


def are_even(gaps: Sequence[Interval], size: float) -> bool:
    """Whether gaps are as wide as each other, as in a justified line of a font size."""
    widths = [right - left for left, right in gaps]
    return not widths or max(widths) - min(widths) <= _EVEN * size


def common(some: Sequence[Interval], others: Sequence[Interval], least: float) -> list[Interval]:
    """What intervals have in common, where that is as wide as the least, in points."""
    pairs = ((max(a[0], b[0]), min(a[1], b[1])) for a in some for b in others)
    return [gap for gap in pairs if gap[1] - gap[0] >= least]


def _is_crossed(gap: Interval, row: TextRow) -> bool:
    """Whether a word of a row is in a gap."""
    slack = _CROSSED * (gap[1] - gap[0])
    return any(left < gap[1] - slack and right > gap[0] + slack for left, right, _ in row.spans)


def _goes_on(rows: Sequence[TextRow], is_row: Sequence[bool], at: int) -> bool:
    """Whether a row of one cell continues a table: below a column other than the first, or among
    rows of it.
    """
    row = rows[at]
    if len(row.cells) > 1:
        return False
    [cell] = row.cells
    around = [_table_row(rows, is_row, at, step) for step in (-1, 1)]
    near = [other for other in around if other]
    if len(near) == 2 and not any(
        cell.left < start and cell.right > end for other in near for start, end in other.gaps
    ):
        return True
    return any(_is_beside(row, other) or _is_below(row, other) for other in near)


def _is_beside(row: TextRow, other: TextRow) -> bool:
    """Whether a line is between the lines of other cells of a row."""
    return abs(row.base - other.base) < _BESIDE * row.size and not any(
        row.left < cell.right and row.right > cell.left for cell in other.cells
    )


def _is_below(row: TextRow, other: TextRow) -> bool:
    """Whether a line is below or above a cell of a row, other than the first."""
    return any(
        abs(row.left - cell.left) < _ALIGNED * row.size and row.right <= cell.right + 4 * row.size
        for cell in other.cells[1:]
    )


def _table_row(
    rows: Sequence[TextRow], is_row: Sequence[bool], at: int, step: int
) -> TextRow | None:
    """The next row of a table above or below a row, with only rows of one cell between them."""
    for other in range(at + step, at + step * (_NEAR + 1), step):
        if not 0 <= other < len(rows):
            return None
        before = rows[other - step]
        if abs(before.base - rows[other].base) > _CLOSE * max(before.size, rows[other].size):
            return None
        if is_row[other]:
            return rows[other]
        if len(rows[other].cells) > 1:
            return None
    return None


def _block_lines(block: Sequence[TextRow]) -> list[Line]:
    """The rows of a table. Empty cells between others stay, so that each value is in its column."""
    if not block:
        return []
    separators = _separators(block)
    if not 0 < len(separators) < _MAX_COLUMNS:
        between = _BETWEEN if separators else " "
        texts = [join(between, (cell.text for cell in row.cells)) for row in block]
        return [Line(text, is_table_row=bool(separators)) for text in texts]
    cells = [_in_columns(row, separators) for row in block]
    steps = [(above.base - row.base) / (row.size or 1) for above, row in pairwise(block)]
    return [Line(_row_text(texts), True, not texts) for texts in _merge_continued(cells, steps)]


def _row_text(cells: Sequence[str]) -> str:
    """The cells of a row, without empty ones at its end; a bar marks a row of one cell."""
    filled = [at for at, text in enumerate(cells) if text]
    if filled == [0]:
        return cells[0] + _BETWEEN.rstrip()
    return join(_BETWEEN, cells[: filled[-1] + 1]).strip() if filled else ""


def _merge_continued(cells: Sequence[list[str]], steps: Sequence[float]) -> list[list[str]]:
    """Add rows that only continue cells to the row above, and leave them empty.

    Args:
        cells: The texts of each row.
        steps: The distance of each row but the first from the row above, in font sizes.
    """
    tight = _tight_step(cells[1:], steps)
    merged = [cells[0]]
    start = 0  # the last row that is not merged
    lowest = cells[0]  # the last line of each of its cells
    is_open = False  # whether it lacks its first cell, which is level with its last line
    rows = zip(cells[1:], steps, [*steps[1:], float("inf")], strict=False)
    for at, (texts, step, below) in enumerate(rows, start=1):
        opens = not texts[0] and below < min(tight, step / _LOOSER)
        goes_on = step < tight and not opens and (is_open or _continues(texts, merged[start]))
        is_beside = step < _BESIDE and not _share_column(texts, cells[at - 1])
        if (goes_on or is_beside) and not _have_numbers(texts, lowest):
            above = merged[start]
            merged[start] = [(a + " " + b).strip() for a, b in zip(above, texts, strict=True)]
            merged.append([])
            lowest = [b or a for a, b in zip(lowest, texts, strict=True)]
            is_open = is_open and not texts[0]
        else:
            merged.append(texts)
            start = at
            lowest = texts
            is_open = opens
    return merged


def _tight_step(cells: Sequence[list[str]], steps: Sequence[float]) -> float:
    """The step between lines of one row, at most."""
    usual = [step for step, texts in zip(steps, cells, strict=True) if texts[0]]
    if len(usual) < 2:
        return _TIGHT
    return max(_TIGHT, min(2.2, _TIGHTEST_OF_USUAL * statistics.median(usual)))


def _share_column(cells: Sequence[str], others: Sequence[str]) -> bool:
    return any(a and b for a, b in zip(cells, others, strict=True))


def _have_numbers(cells: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two rows have numbers in one column, as those beside a cell that spans both."""
    return any(
        _NUMBER.fullmatch(a) and _NUMBER.fullmatch(b) for a, b in zip(cells, others, strict=True)
    )


def _continues(cells: Sequence[str], above: Sequence[str]) -> bool:
    """Whether a row only continues cells of the row above."""
    filled = [at for at, text in enumerate(cells) if text]
    return not cells[0] and len(filled) < sum(map(bool, above)) and all(above[at] for at in filled)


def _separators(rows: Sequence[TextRow]) -> list[Interval]:
    """The free stretches between the columns of a table, from left to right."""
    widest = max(len(row.cells) for row in rows)
    # A header that spans columns would unite them, so rows with few cells are ignored.
    full = [row for row in rows if len(row.cells) > max(1, widest // 2)]
    if not full:
        return []
    size = statistics.median(row.size for row in full)
    free = free_intervals(word[:2] for row in full for word in row.spans)[1:-1]
    least = size * (_SEPARATOR if len(full) >= _FEW_ROWS else _SEPARATOR_OF_FEW)
    blanks = _blanks(full, free)
    if blanks:
        least = max(least, _BLANKS * statistics.median(blanks))
    return [gap for gap in free if gap[1] - gap[0] >= least]


def _blanks(rows: Sequence[TextRow], free: Sequence[Interval]) -> list[float]:
    """The widths of the blanks within cells, but those in which no row has a letter."""
    blanks = []
    for cell in chain.from_iterable(row.cells for row in rows):
        for before, after in pairwise(cell.spans):
            if not any(before[1] <= left and right <= after[0] for left, right in free):
                blanks.append(after[0] - before[1])
    return blanks


def free_intervals(taken: Iterable[Interval]) -> list[Interval]:
    """The intervals between others from left to right, the unbounded edges included."""
    free = []
    end = float("-inf")
    for left, right in sorted(taken):
        if left > end:
            free.append((end, left))
        end = max(end, right)
    return [*free, (end, float("inf"))]


def _in_columns(row: TextRow, separators: Sequence[Interval]) -> list[str]:
    """The texts of a row by column: a cell is parted at the separators that none of its words
    crosses, and each part is in the column that it overlaps most.
    """
    texts = [""] * (len(separators) + 1)
    edges = [float("-inf"), *((left + right) / 2 for left, right in separators), float("inf")]
    for left, right, text in _parted(row, separators):
        overlaps = [min(right, b) - max(left, a) for a, b in pairwise(edges)]
        at = overlaps.index(max(overlaps))
        texts[at] = (texts[at] + " " + text).strip()
    return texts


def _parted(row: TextRow, separators: Sequence[Interval]) -> Iterator[Word]:
    """The cells of a row, parted at separators."""
    for cell in row.cells:
        part: list[Word] = []
        for word in cell.spans:
            if part and any(_is_between(part[-1], word, gap) for gap in separators):
                yield part[0][0], part[-1][1], join(" ", (text for _, _, text in part))
                part = []
            part.append(word)
        yield part[0][0], part[-1][1], join(" ", (text for _, _, text in part))


def _is_between(before: Word, after: Word, gap: Interval) -> bool:
    slack = _CROSSED * (gap[1] - gap[0])
    return before[1] <= gap[0] + slack and after[0] >= gap[1] - slack
