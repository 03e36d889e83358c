"""Excel workbooks: `XlsxLoader`."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openpyxl

from lazyrag.errors import LoadError
from lazyrag.loaders.archives import local_name, open_archive, properties, related
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.spreadsheets import Row, Sheet, SheetLoader, read_sheets

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
        with open_archive(path, "workbook", ".xlsx") as archive:
            main = related(archive, "officeDocument")
            if not main.endswith(".xml") or local_name(archive.xml(main)) != "workbook":
                msg = "The file is not a workbook: it is of another format than its suffix says. Save it as .xlsx."
                raise LoadError(msg)
            archive.check(name for name in archive.names if name.endswith(_UNPACKED))
            metadata = properties(archive)
        with path.open("rb") as file, _unwarned():
            book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
            loaded = read_sheets(
                (Sheet(one.title, _rows(one), hidden=one.sheet_state != "visible") for one in book.worksheets),
                self._selection,
            )
        return LoadedFile(loaded.text, loaded.locations, {**metadata, **loaded.metadata})


_one_at_a_time = threading.Lock()


@contextmanager
def _unwarned() -> Iterator[None]:
    """Ignore openpyxl's warnings about parts without cells. Filters of warnings are global, hence the lock."""
    with _one_at_a_time, warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"openpyxl\.")
        yield


def _rows(sheet: Any) -> Iterator[Row]:
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
