"""Excel workbooks of before 2007: `XlsLoader`."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xlrd

from lazyrag.errors import LoadError, sentence
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.spreadsheets import Cell, Row, Sheet, SheetLoader, read_sheets


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
        data = path.read_bytes()
        if not data:
            msg = "The file is not a workbook: it is empty. Save it again as .xls or .xlsx."
            raise LoadError(msg)
        if data.startswith(b"PK"):  # a zip file, which xlrd reads before it refuses it
            msg = "The file is not a workbook of the old format, but perhaps of the new one. Save it as .xlsx."
            raise LoadError(msg)
        log = io.StringIO()  # xlrd prints flaws of a file
        try:
            with xlrd.open_workbook(file_contents=data, logfile=log, on_demand=True, ragged_rows=True) as book:
                loaded = read_sheets(_sheets(book), self._selection)
                author = (book.user_name or "").strip()
        except xlrd.XLRDError as exc:
            if "encrypted" in str(exc):
                msg = "The workbook is encrypted and needs a password. Save it again without one."
            else:
                msg = f"{sentence(f'The file is not a workbook of the old format: {exc}')} Save it as .xls or .xlsx."
            raise LoadError(msg) from exc
        return LoadedFile(loaded.text, loaded.locations, {**({"author": author} if author else {}), **loaded.metadata})


def _sheets(book: Any) -> Iterator[Sheet]:
    """The sheets; each is unloaded before the next one is read."""
    for number, name in enumerate(book.sheet_names()):
        sheet = book.sheet_by_index(number)
        yield Sheet(name, _rows(sheet, book.datemode), hidden=sheet.visibility != 0)
        book.unload_sheet(number)


def _rows(sheet: Any, datemode: int) -> Iterator[Row]:
    for number in range(sheet.nrows):
        yield number + 1, [_value(cell.ctype, cell.value, datemode) for cell in sheet.row(number)]


def _value(kind: int, value: Any, datemode: int) -> Cell:
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
