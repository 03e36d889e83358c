"""Spreadsheets: `XlsxLoader`, `XlsLoader`, and sheets of cells as text, also for `OdsLoader`.

openpyxl and xlrd are packages of an extra, and slow to import: each is imported when a file needs it.
"""

from __future__ import annotations

import datetime as dt
import io
import itertools
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from lazyrag.data.segment import EMPTY, Location
from lazyrag.errors import LoadError, missing_package, sentence
from lazyrag.loaders.archives import local_name, nested_locations, open_archive, properties, related
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.records import Selection, SoughtFields
from lazyrag.validation import known_arguments

Cell: TypeAlias = "str | float | bool | dt.datetime | dt.date | dt.time | dt.timedelta | None"
"""The value of a cell."""

MAX_CHARACTERS = 1 << 27
"""Maximum of characters in the cells and row labels of a workbook."""

Row: TypeAlias = tuple[int, Sequence[Cell]]
"""A row's number, as spreadsheet programs display it, and its cells."""

_ALL = Selection()
_BREAK = "\n\n"

_SAMPLE = 10
"""Rows among which the column names are searched."""
_MAX_NAME_LENGTH = 100


@dataclass(frozen=True, slots=True)
class Sheet:
    """One sheet: its name, its rows from the top, and whether it is hidden."""

    name: str
    rows: Iterable[Row] = field(repr=False)
    hidden: bool = False


@known_arguments
class SheetLoader:
    """Constructor of the loaders of spreadsheets."""

    def __init__(self, *, fields: Sequence[str] = (), template: str | None = None) -> None:
        self._selection = Selection(fields, template)


def read_sheets(
    sheets: Iterable[Sheet], selection: Selection = _ALL, metadata: Mapping[str, str] = EMPTY
) -> LoadedFile:
    r"""Convert a workbook to text; each filled sheet is a location, its name the first line.

    Each row below the column names is a place within the sheet. The names of the sheets, and of the hidden ones, become
    metadata.

    Args:
        sheets: In their order. The rows of a sheet are read before the next sheet.
        selection: The columns that become text, and their form.
        metadata: Further metadata of the workbook.

    Raises:
        LoadError: If the text is longer than `MAX_CHARACTERS`, or no sheet has a selected column.

    Example:
        >>> loaded = read_sheets([Sheet("Prices", [(1, ["tea", "EUR"]), (2, ["green", 4.5])])])
        >>> loaded.text
        'Prices\ntea | EUR\ntea: green; EUR: 4.5'
        >>> [location.label for location in loaded.locations]
        ['Prices', 'Prices > 2']
    """
    sought = SoughtFields(selection.wanted)
    texts: list[str] = []
    locations: list[Location] = []
    names: dict[str, list[str]] = {"sheets": [], "hidden_sheets": []}
    start = length = 0
    for sheet in sheets:
        lines = [sheet.name]
        rows = []
        end = len(sheet.name)
        for number, line in row_lines(sheet.rows, selection, sought):
            length += len(line)
            if number is not None:
                length += len(sheet.name)
                rows.append(Location(end + 1, end + 1 + len(line), "row", str(number)))
            _limit(length)
            lines.append(line)
            end += 1 + len(line)
        if len(lines) == 1:
            continue
        texts.append("\n".join(lines))
        locations += nested_locations(LoadedFile(texts[-1], tuple(rows)), start, "sheet", sheet.name)
        start += end + len(_BREAK)
        for name in ("sheets", "hidden_sheets") if sheet.hidden else ("sheets",):
            names[name].append(sheet.name)
    sought.check()
    listed = {name: found for name, found in names.items() if found}
    return LoadedFile(_BREAK.join(texts), tuple(locations), {**metadata, **listed})


def row_lines(
    rows: Iterable[Row], selection: Selection = _ALL, sought: SoughtFields | None = None
) -> Iterator[tuple[int | None, str]]:
    """A line for each filled row, with the row's number if it is below the column names.

    Rows below the column names become ``name: value; name: value``, or the selected form. The names and the rows above,
    and the rows of tables without names, have ``|`` between the cells; they are skipped if columns are selected. The
    column names are the first of the top rows that fills most of the columns with different short texts.

    Args:
        rows: From the top, of any length.
        selection: The columns that become text, and their form.
        sought: Receives the column names.

    Raises:
        LoadError: If a row is longer than `MAX_CHARACTERS`.

    Example:
        >>> table = enumerate([["Tea 2024"], ["tea", "price"], ["green", 4.0], [None, 3]], start=1)
        >>> list(row_lines(table))
        [(None, 'Tea 2024'), (None, 'tea | price'), (3, 'tea: green; price: 4'), (4, 'price: 3')]
    """
    below = ((number, row, cells) for number, row in rows if any(cells := _cells(row)))
    top = list(itertools.islice(below, _SAMPLE))
    at = _names_at([(row, cells) for _, row, cells in top])
    names: Sequence[str] = top[at][2] if at is not None else ()
    if sought is not None:
        sought.meet(names)
    first = len(top) if at is None else at + 1  # of the rows below the names
    if not selection.wanted:
        yield from ((None, _joined(cells)) for _, _, cells in top[:first])
    if at is None:
        yield from ((None, _joined(cells)) for _, _, cells in below if not selection.wanted)
        return
    for number, _, cells in itertools.chain(top[first:], below):
        named = [pair for pair in itertools.zip_longest(names, cells, fillvalue="") if pair[1]]
        line = selection.text_of(named, "; ")
        if line.strip():
            yield number, line


def _cells(row: Sequence[Cell]) -> list[str]:
    _limit(sum(len(value) for value in row if isinstance(value, str)))
    return [cell_text(value) for value in row]


def _limit(length: int) -> None:
    """A small file may repeat a long text in millions of cells."""
    if length > MAX_CHARACTERS:
        raise LoadError(f"The workbook has more than {MAX_CHARACTERS} characters. Split it into several files.")


def _names_at(top: Sequence[tuple[Sequence[Cell], Sequence[str]]]) -> int | None:
    """Index of the row with the column names; None without one above another row."""
    widest = max((sum(map(bool, cells)) for _, cells in top), default=0)
    for at, (row, cells) in enumerate(top[:-1]):
        names = [cell for cell in cells if cell]
        if len(names) >= max(2, widest / 2):
            texts = all(isinstance(value, str) for value, cell in zip(row, cells, strict=True) if cell)
            different = len(set(names)) == len(names) and max(map(len, names)) <= _MAX_NAME_LENGTH
            return at if texts and different else None
    return None


def _joined(cells: Sequence[str]) -> str:
    last = max(at for at, cell in enumerate(cells) if cell)
    first = next(at for at, cell in enumerate(cells) if cell)
    return " | ".join(cells[first : last + 1])


def cell_text(value: Cell) -> str:
    """Format a cell: dates as ISO 8601, numbers with the 15 digits of spreadsheets, white space folded.

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
    return str(day)  # ISO 8601 for dates and times


_UNPACKED = (".xml", ".rels")


class XlsxLoader(SheetLoader):
    """Reads a workbook sheet by sheet; each sheet is a location, each row a line of ``column: value``.

    Without column names, ``|`` is between the cells. Formulas yield the last computed value, dates are ISO 8601. Hidden
    sheets are read, too. Names of sheets, title and author become metadata. Charts, pictures and comments are skipped.

    Each row below the column names is a location, too, with its number. With fields or a template, rows above the names
    and sheets without names are skipped.

    Args:
        fields: Columns to read, in this order; () for all.
        template: A text with columns in braces, as in ``"{name} costs {price}"``, instead of ``column: value``.

    Raises:
        ConfigError: If fields or template are invalid.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        try:
            import openpyxl
        except ModuleNotFoundError as exc:
            raise missing_package("The loader of .xlsx files", exc, "office") from exc
        with open_archive(path, "workbook", ".xlsx") as archive:
            main = related(archive, "officeDocument")
            if not main.endswith(".xml") or local_name(archive.xml(main)) != "workbook":
                raise LoadError("The file is not a workbook, but of another format. Save it as .xlsx.")
            archive.check(name for name in archive.names if name.endswith(_UNPACKED))
            metadata = properties(archive)
        source = path.open("rb") if isinstance(archive.source, str) else archive.source
        with source as file, _unwarned():
            book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
            sheets = (Sheet(one.title, _xlsx_rows(one), one.sheet_state != "visible") for one in book.worksheets)
            return read_sheets(sheets, self._selection, metadata)


_one_at_a_time = threading.Lock()


@contextmanager
def _unwarned() -> Iterator[None]:
    """Ignore openpyxl's warnings about parts without cells. Filters of warnings are global, hence the lock."""
    with _one_at_a_time, warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"openpyxl\.")
        yield


def _xlsx_rows(sheet: Any) -> Iterator[Row]:
    """The rows of a sheet, empty ones too; percentages as displayed."""
    # The declared size is often wrong, and can pad a million rows to the last column.
    sheet.reset_dimensions()
    for number, row in enumerate(sheet.iter_rows(), start=1):
        cells = [
            f"{cell.value * 100:.15g}%"
            if isinstance(cell.value, (int, float)) and not isinstance(cell.value, bool) and "%" in cell.number_format
            else cell.value
            for cell in row
        ]
        yield number, cells


class XlsLoader(SheetLoader):
    """Reads an old workbook sheet by sheet; each sheet is a location, each row a line of ``column: value``.

    Without column names, ``|`` is between the cells. Formulas yield the last computed value, percentages their number.
    Hidden sheets are read, too. Names of sheets and the author become metadata.

    Each row below the column names is a location, too, with its number. With fields or a template, rows above the names
    and sheets without names are skipped.

    Args:
        fields: Columns to read, in this order; () for all.
        template: A text with columns in braces, as in ``"{name} costs {price}"``, instead of ``column: value``.

    Raises:
        ConfigError: If fields or template are invalid.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        try:
            import xlrd
        except ModuleNotFoundError as exc:
            raise missing_package("The loader of .xls files", exc, "office") from exc
        data = path.read_bytes()
        if not data:
            raise LoadError("The file is not a workbook: it is empty. Save it again as .xls or .xlsx.")
        if data.startswith(b"PK"):  # a zip file, which xlrd reads before it refuses it
            raise LoadError("The file is not a workbook of the old format, perhaps of the new one. Save it as .xlsx.")
        log = io.StringIO()  # xlrd prints flaws of a file
        try:
            with xlrd.open_workbook(file_contents=data, logfile=log, on_demand=True, ragged_rows=True) as book:
                author = (book.user_name or "").strip()
                return read_sheets(_xls_sheets(xlrd, book), self._selection, {"author": author} if author else {})
        except xlrd.XLRDError as exc:
            if "encrypted" in str(exc):
                msg = "The workbook is encrypted and needs a password. Save it again without one."
            else:
                msg = f"{sentence(f'The file is not a workbook of the old format: {exc}')} Save it as .xls or .xlsx."
            raise LoadError(msg) from exc


def _xls_sheets(xlrd: Any, book: Any) -> Iterator[Sheet]:
    """The sheets; each is unloaded before the next one is read."""
    for number, name in enumerate(book.sheet_names()):
        sheet = book.sheet_by_index(number)
        yield Sheet(name, _xls_rows(xlrd, sheet, book.datemode), hidden=sheet.visibility != 0)
        book.unload_sheet(number)


def _xls_rows(xlrd: Any, sheet: Any, datemode: int) -> Iterator[Row]:
    for number in range(sheet.nrows):
        yield number + 1, [_xls_value(xlrd, cell.ctype, cell.value, datemode) for cell in sheet.row(number)]


def _xls_value(xlrd: Any, kind: int, value: Any, datemode: int) -> Cell:
    if kind == xlrd.XL_CELL_DATE:
        try:
            date: dt.datetime = xlrd.xldate_as_datetime(value, datemode)
        except (OverflowError, ValueError):  # a number outside of the calendar
            return float(value)
        return date.time() if 0 < value < 1 else date
    if kind == xlrd.XL_CELL_BOOLEAN:
        return bool(value)
    if kind == xlrd.XL_CELL_ERROR:
        return str(xlrd.error_text_from_code.get(value, "#ERROR"))
    if kind == xlrd.XL_CELL_NUMBER:
        return float(value)
    return str(value) or None
