"""The grid of a table: merged cells, header rows, titles, and its lines of text, for the loaders of
all formats.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeAlias

from lazyrag.data.segment import NOTE_CALL, Location
from lazyrag.data.tables import FoundTable, header_votes, is_header, joined_names
from lazyrag.loaders.base import LoadedFile, moved, reading
from lazyrag.text.structure import Heading, heading_locations
from lazyrag.types import Metadata

STEPS_PER_CELL = 10
"""Work of a cell in marked text, beside its grid."""
_MAX_COLUMNS = 16_384
_MAX_COPIED = 1 << 20
"""Characters that merged cells add to the further places that they cover: a small file may merge
millions of cells."""
_MAX_CELLS = 1 << 21
_ALWAYS_DATA = 1 << 16
_MAX_EMPTY = 4
"""Cells of a table as data, empty ones too: one wide row among many makes a table of mostly
nothing."""
_SEPARATOR = len(" | ")
_MAX_HEADER = 5
_CALL = re.compile(r"\[(\d+)\]")
_NOTES = frozenset(["comment", "footnote"])


@dataclass(eq=False, slots=True)
class GridCell:
    """A cell; merged ones cover several columns or rows.

    Args:
        text: Its text, on one line.
        columns: How many columns it covers.
        rows: How many rows it covers; 0 continues the cell above it.
    """

    text: str
    columns: int = 1
    rows: int = 1


Grid: TypeAlias = list[list[GridCell]]
"""The cells of a table, row by row."""

_BLANK = GridCell("")


def expand(rows: Iterable[Iterable[GridCell]]) -> Grid:
    """Place cells in a grid, by the algorithm of HTML: a merged cell is in every place that it
    covers.

    Args:
        rows: The cells of each row, without the places that merged cells of this row and of rows
            above cover.

    Example:
        >>> header = [GridCell("tea", rows=2), GridCell("2024", columns=2)]
        >>> grid = expand([header, [GridCell("kg"), GridCell("EUR")]])
        >>> [[cell.text for cell in row] for row in grid]
        [['tea', '2024', '2024'], ['tea', 'kg', 'EUR']]
    """
    grid: Grid = []
    # by column: a cell of a row above, and the rows that it still covers
    covered: dict[int, tuple[GridCell, int]] = {}
    budget = _MAX_COPIED
    for row in rows:
        line: list[GridCell] = []
        below = {}
        for cell in itertools.chain(row, [None]):
            width = max(covered, default=-1) + 1 if cell is None else 0
            while (column := len(line)) in covered or column < width:
                above, rest = covered.get(column, (_BLANK, 1))
                budget -= len(above.text) + _SEPARATOR
                if rest > 1:
                    below[column] = above, rest - 1
                line.append(above)
            if cell is None:
                break
            count = max(1, min(cell.columns, 1 + budget // (len(cell.text) + _SEPARATOR)))
            budget -= (count - 1) * (len(cell.text) + _SEPARATOR)
            before = grid[-1] if grid and cell.rows == 0 else []
            for at in range(column, column + count):
                line.append(cell if cell.rows else before[at] if at < len(before) else _BLANK)
                if cell.rows > 1:
                    below[at] = cell, cell.rows - 1
        covered = below if budget > 0 else {}
        grid.append(line)
    return grid


def is_title(row: Sequence[GridCell]) -> bool:
    """Whether one merged cell fills a row."""
    return len(row) > 1 and all(cell is row[0] for cell in row)


def is_grouped(row: Sequence[GridCell]) -> bool:
    """Whether a row has a cell over several columns, with others beside it: names of groups of
    columns.
    """
    return not is_title(row) and any(
        cell is right and cell.text for cell, right in itertools.pairwise(row)
    )


def read_table(
    rows: Iterable[Iterable[GridCell]], *, header: int = 0, caption: str = ""
) -> tuple[str, list[FoundTable]]:
    r"""Turn a table into text, and into data if it has two columns and rows or more.

    A row is a line with ``|`` between the cells; a merged cell that fills a row stands there once.

    Args:
        rows: See `expand`.
        header: Number of rows that the file declares as header; 0 if it does not say.
        caption: Its caption; "" takes a title in the first row.

    Example:
        >>> title = [GridCell("Teas", columns=2)]
        >>> rows = [title, [GridCell("tea"), GridCell("kg")], [GridCell("green"), GridCell("4")]]
        >>> text, [table] = read_table(rows)
        >>> text, table.caption, table.names, table.rows
        ('Teas\ntea | kg\ngreen | 4', 'Teas', ('tea', 'kg'), (('green', '4'),))
    """
    full = expand(rows)
    grid = [row for row in full if any(_texts(row))]
    header -= sum(not any(_texts(row)) for row in full[:header])
    reading().spend(sum(map(len, grid)))
    used = _used_columns(map(_texts, grid))
    texts = [_row_texts(row, used) for row in grid]
    text = "\n".join(map(row_line, texts))
    titles = len(list(itertools.takewhile(is_title, grid)))
    caption = caption or " ".join(row[0].text for row in grid[:titles])
    grid = grid[titles:]
    texts = texts[titles:]
    header = max(0, header - titles)
    header = min(header or _header_rows(grid, texts), len(texts) - 1)
    if not _is_data(texts, len(used)):
        return text, []
    padded = [(*row, *[""] * (len(used) - len(row))) for row in texts]
    names = joined_names(padded[:header])
    return text, [FoundTable(names, tuple(padded[header:]), header, caption)]


def _texts(row: Sequence[GridCell]) -> list[str]:
    return [cell.text for cell in row]


def _row_texts(row: Sequence[GridCell], used: Sequence[int]) -> list[str]:
    """The texts of a row in the used columns; that of a title once."""
    columns = [0] if is_title(row) else itertools.takewhile(len(row).__gt__, used)
    return [row[at].text for at in columns]


def _used_columns(rows: Iterable[Sequence[str]]) -> list[int]:
    """The numbers of the columns with a filled cell, from 0."""
    used: set[int] = set()
    for row in rows:
        used.update(at for at, text in enumerate(row) if text)
    return sorted(used)


def _is_data(rows: Sequence[Sequence[str]], width: int) -> bool:
    """Whether rows are a table as data: two columns and rows or more, and not mostly empty."""
    count = len(rows) * width
    if min(len(rows), width) < 2 or count > _MAX_CELLS:
        return False
    return count <= _ALWAYS_DATA or count <= _MAX_EMPTY * sum(sum(map(bool, row)) for row in rows)


def row_line(cells: Sequence[str]) -> str:
    """The cells of a row on one line, without empty ones at its end.

    Example:
        >>> row_line(["green", "", "4", ""])
        'green |  | 4'
    """
    last = max((at for at, cell in enumerate(cells) if cell), default=-1)
    return " | ".join(cells[: last + 1])


def one_line(lines: str) -> str:
    r"""The lines of a table inside a cell, as text of the cell.

    Example:
        >>> one_line("tea | kg\ngreen | 4")
        'tea, kg; green, 4'
    """
    return lines.replace(" | ", ", ").replace("\n", "; ")


LineKind: TypeAlias = int | list[FoundTable] | tuple[str, str]
"""What a line is: the level of a heading, 0 for none; tables; or kind and label of a location."""


def numbered_notes(notes: Iterable[str]) -> Iterator[tuple[str, LineKind]]:
    """The footnotes that are not empty, as lines."""
    for number, note in enumerate(notes, start=1):
        if note:
            yield f"[{number}] {note}", ("footnote", str(number))


def cell_text(blocks: Iterable[tuple[str, LineKind]], nested: list[FoundTable]) -> str:
    """The blocks of a cell on one line; the tables among them are added to the nested ones."""
    lines = []
    for block, data in blocks:
        if isinstance(data, list):
            nested += data
        text = one_line(block) if isinstance(data, list) else block
        lines.append(" ".join(text.split()))
    return " ".join(lines).strip()


@dataclass(slots=True)
class TextLines:
    """The lines of a text, with its headings, tables and other places."""

    lines: list[str] = field(default_factory=list)
    length: int = 0
    headings: list[Heading] = field(default_factory=list)
    places: list[Location] = field(default_factory=list)
    """Tables and other locations but headings."""
    notes: list[Any] = field(default_factory=list)
    """Footnotes and endnotes whose calls were read, in order."""
    calls: int = 0

    def add(self, line: str, kind: LineKind = 0) -> None:
        """Add a block."""
        end = self.length + len(line)
        if isinstance(kind, list):
            self.places += (table.location(self.length, end) for table in kind)
        elif isinstance(kind, tuple):
            self.places.append(Location(self.length, end, *kind))
        elif kind and line.strip():
            self.headings.append(Heading(self.length, kind, " ".join(line.split())))
        if self.calls < len(self.notes):
            self._locate_calls(line)
        self.lines.append(line)
        self.length = end + 1

    def _locate_calls(self, line: str) -> None:
        """Locate the calls of the notes that were read with a line."""
        for match in _CALL.finditer(line):
            if self.calls < len(self.notes) and match[1] == str(self.calls + 1):
                self.calls += 1
                place = Location(*match.span(), NOTE_CALL, match[1])
                self.places += moved([place], self.length)

    def add_all(self, blocks: Iterable[tuple[str, LineKind]]) -> None:
        """Add blocks, in order."""
        for line, kind in blocks:
            self.add(line, kind)

    def loaded(self, metadata: Metadata) -> LoadedFile:
        """The file of these lines; its sections end before its notes."""
        text = "\n".join(self.lines)
        notes = (place.start for place in self.places if place.kind in _NOTES)
        sections = heading_locations(self.headings, next(notes, len(text)))
        return LoadedFile(text, (*sections, *self.places), metadata)


def _header_rows(grid: Sequence[Sequence[GridCell]], texts: Sequence[Sequence[str]]) -> int:
    """Number of header rows of a table that declares none: rows of groups of columns, and one of
    names.
    """
    groups = len(list(itertools.takewhile(is_grouped, grid[:_MAX_HEADER])))
    count = groups + 1
    return count if is_header(joined_names(texts[:count]), texts[count:]) else 0


_SAMPLE = 10
"""Rows among which the column names are searched."""
_MAX_NAME_LENGTH = 100

Merge: TypeAlias = tuple[int, int, int, int]
"""A merged cell of a sheet: first and last row, first and last column, from 1."""


class ShownText(str):
    """The value of a cell as text, and how its program shows it."""

    __slots__ = ("shown",)
    shown: str

    def __new__(cls, value: str, shown: str) -> Self:
        """Make a text of a value."""
        text = super().__new__(cls, value)
        text.shown = " ".join(shown.split())
        return text


class SheetRow(NamedTuple):
    """A row of a sheet with a filled cell.

    Args:
        number: Its number.
        texts: Its cells as texts.
        is_named: Whether its cells are texts, and not numbers or dates.
        is_title: Whether one merged cell fills it.
        is_grouped: Whether cells over several columns are among its cells.
    """

    number: int
    texts: list[str]
    is_named: bool = True
    is_title: bool = False
    is_grouped: bool = False

    @property
    def filled(self) -> int:
        """The number of filled cells."""
        return sum(map(bool, self.texts))

    @property
    def shown(self) -> list[str]:
        """Its cells as their program shows them."""
        return [text.shown if isinstance(text, ShownText) else text for text in self.texts]

    def cut(self, start: int, end: int) -> SheetRow:
        """The row without the columns outside of a part."""
        return self._replace(texts=self.texts[start:end])


@dataclass(slots=True)
class Island:
    """A table of a sheet, or rows without column names.

    Args:
        column: Number of its first column, from 0.
        above: The rows above the column names.
        header: The rows with the column names.
        body: The rows below.
    """

    column: int
    above: list[SheetRow] = field(default_factory=list)
    header: list[SheetRow] = field(default_factory=list)
    body: list[SheetRow] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns; () without any."""
        return joined_names([row.texts for row in self.header])

    def table(self, sheet: str) -> FoundTable | None:
        """The table as data, if it has two columns and rows or more."""
        rows = [*self.header, *self.body]
        used = _used_columns(row.texts for row in rows)
        if len(used) < 2:
            return None
        first = used[0]
        end = used[-1] + 1
        if not _is_data([row.texts for row in rows], end - first):
            return None
        cells = [tuple((row.texts + [""] * (end - len(row.texts)))[first:end]) for row in rows]
        runs: list[tuple[int, int]] = []
        for row in rows:
            if runs and row.number == runs[-1][1] + 1:
                runs[-1] = runs[-1][0], row.number
            else:
                runs.append((row.number, row.number))
        titles = [row.texts for row in self.above if row.filled == 1]
        header = len(self.header)
        return FoundTable(
            joined_names(cells[:header]),
            tuple(cells[header:]),
            header,
            " ".join(titles[-1]).strip() if titles else "",
            sheet,
            self.column + first + 1,
            tuple(runs),
        )


def merged_rows(rows: Iterable[SheetRow], merges: Iterable[Merge]) -> list[SheetRow]:
    """Write the texts of merged cells into all cells that they cover, except for titles.

    Example:
        >>> rows = [SheetRow(1, ["tea", "4"]), SheetRow(2, ["", "5"])]
        >>> [row.texts for row in merged_rows(rows, [(1, 2, 1, 1)])]
        [['tea', '4'], ['tea', '5']]
    """
    by_number = {row.number: row for row in rows}
    numbers = sorted(by_number)
    copied = 0
    # whether a row is a title shows when others are filled
    for top, bottom, left, right in sorted(merges, key=lambda merge: merge[0] == merge[1]):
        first = by_number.get(top)
        if first is None or left > len(first.texts) or not first.texts[left - 1]:
            continue
        text = first.texts[left - 1]
        reading().spend(1 + len(first.texts) // 8)
        if right > left and first.filled == 1 and bottom == top:
            by_number[top] = first._replace(is_title=True)
            continue
        start = bisect.bisect_left(numbers, top)
        for number in numbers[start : bisect.bisect_right(numbers, bottom)]:
            row = by_number[number]
            end = min(right, _MAX_COLUMNS)
            copied += (len(text) + _SEPARATOR) * (end - left + 1)
            if copied > _MAX_COPIED:
                return list(by_number.values())
            row.texts.extend([""] * (end - len(row.texts)))
            row.texts[left - 1 : end] = [text] * (end - left + 1)
            by_number[number] = row._replace(is_grouped=row.is_grouped or end > left)
    return list(by_number.values())


def islands(rows: Sequence[SheetRow]) -> Iterator[Island]:
    """The tables of a sheet: below each other with an empty row between, or side by side with an
    empty column between.

    Rows below an empty row belong to the table above unless they have column names of their own:
    names above numbers, a title, or columns beyond those of the table.

    Example:
        >>> rows = [["tea", "kg"], ["green", "4"], ["town", "km"], ["Uji", "7"]]
        >>> sheet = [SheetRow(at + at // 3, row) for at, row in enumerate(rows, start=1)]
        >>> [island.names for island in islands(sheet)]
        [('tea', 'kg'), ('town', 'km')]
    """
    current = None
    waiting: list[SheetRow] = []  # titles, or names with an empty row below
    for run in _runs(rows):
        block = [*waiting, *run]
        if run[-1] is not rows[-1] and (
            all(row.is_title or row.filled == 1 for row in run)
            or (current is None and len(run) == 1)
        ):
            waiting = block
            continue
        waiting = []
        parts = _side_by_side(block)
        island = _island(block, 0)
        if not parts and current is not None and not _starts(island, current):
            current.body += block
            continue
        if current is not None:
            yield current
        current = None
        if parts:
            yield from parts
        elif island.header:
            current = island
        else:
            yield island
    if current is not None:
        yield current


def _runs(rows: Sequence[SheetRow]) -> Iterator[list[SheetRow]]:
    """Rows without an empty row between them."""
    for _, run in itertools.groupby(enumerate(rows), lambda pair: pair[1].number - pair[0]):
        yield [row for _, row in run]


def _island(rows: list[SheetRow], column: int) -> Island:
    """Rows with the column names: the first of the top rows that fills most of the columns with
    different texts.
    """
    top = rows[:_SAMPLE]
    widest = max(row.filled for row in top)
    for at in range(len(top) - 1):
        end = at + 1
        while rows[end - 1].is_grouped and end < min(at + _MAX_HEADER, len(rows) - 1):
            end += 1
        header = rows[at:end]
        names = list(filter(None, joined_names([row.texts for row in header])))
        if len(names) >= max(2, widest / 2):
            different = len(set(names)) == len(names) and max(map(len, names)) <= _MAX_NAME_LENGTH
            if different and all(row.is_named for row in header):
                return Island(column, rows[:at], header, rows[end:])
            break
    return Island(column, body=rows)


def _starts(new: Island, current: Island) -> bool:
    """Whether rows below an empty row are another table."""
    if not new.header:
        return False
    width = max(len(row.texts) for row in current.header)
    beyond = any(any(row.texts[width:]) for row in new.header)
    return bool(new.above) or beyond or header_votes(new.names, [row.texts for row in new.body]) > 0


def _side_by_side(rows: list[SheetRow]) -> list[Island]:
    """Tables with an empty column between them; [] if the rows are one table.

    Tables have titles of their own, the same names, or another height: else the column is a space
    in one table.
    """
    used = _used_columns(row.texts for row in rows if row.filled > 1)
    starts = [at for before, at in itertools.pairwise([-2, *used]) if at > before + 1]
    if len(starts) < 2:
        return []
    above = list(itertools.takewhile(lambda row: row.is_title, rows))
    parts = []
    for start, end in itertools.pairwise([*starts, _MAX_COLUMNS]):
        cut = [row.cut(start, end) for row in rows[len(above) :]]
        part = _island([row for row in cut if row.filled], start)
        columns = bisect.bisect_left(used, end) - bisect.bisect_left(used, start)
        if not part.header or columns < 2:
            return []
        parts.append(part)
    if not _are_apart(parts):
        return []
    return [Island(0, body=above), *parts] if above else parts


def _are_apart(parts: Sequence[Island]) -> bool:
    """Whether tables side by side have titles, the same names, or different heights."""
    names = list(filter(None, itertools.chain.from_iterable(part.names for part in parts)))
    heights = {(part.header[0].number, part.body[-1].number) for part in parts}
    return len(set(names)) < len(names) or len(heights) > 1 or all(part.above for part in parts)
