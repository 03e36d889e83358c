"""Excel workbooks."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openpyxl

from lazyrag.errors import LoadError
from lazyrag.loaders.archives import local_name, open_archive, properties, related
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.records import Selection
from lazyrag.loaders.spreadsheets import Row, Sheet, read_sheets
from lazyrag.validation import known_arguments

_UNPACKED = (".xml", ".rels")


@known_arguments
class XlsxLoader:
    """Reads a workbook sheet by sheet; each sheet is a place, each row a line of ``column: value``.

    Where no names of columns are found, ``|`` stands between the cells. Formulas give the value that was computed last,
    dates ISO 8601. Hidden sheets are read, too. Names of sheets, title and author become metadata. Charts, pictures and
    comments are left out.

    Each row below the names of columns is a place as well, with its number in the spreadsheet. Where fields or a
    template are given, rows above the names and sheets without names are left out.

    Args:
        fields: Columns to take, in this order; () takes all.
        template: A text with columns in braces, as in ``"{name} costs {price}"``, instead of ``column: value``.

    Raises:
        ConfigError: If fields or template cannot be used.
    """

    def __init__(self, *, fields: Sequence[str] = (), template: str | None = None) -> None:
        self._selection = Selection(fields, template)

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        with open_archive(path, "workbook", ".xlsx") as archive:
            main = related(archive, "officeDocument")
            if not main.endswith(".xml") or local_name(archive.xml(main)) != "workbook":
                msg = "The file is no workbook: it is of another format than its suffix says. Save it as .xlsx."
                raise LoadError(msg)
            archive.check(name for name in archive.names if name.endswith(_UNPACKED))
            said = properties(archive)
        with path.open("rb") as file, _unwarned():
            book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
            loaded = read_sheets(
                (Sheet(one.title, _rows(one), hidden=one.sheet_state != "visible") for one in book.worksheets),
                self._selection,
            )
        return LoadedFile(loaded.text, loaded.places, {**said, **loaded.metadata})


_one_at_a_time = threading.Lock()


@contextmanager
def _unwarned() -> Iterator[None]:
    """Ignore what openpyxl warns of: parts of a workbook that hold no cells, such as rules for entering values.

    Filters of warnings are the whole process's, hence the lock; of Python code one thread at a time runs anyway.
    """
    with _one_at_a_time, warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"openpyxl\.")
        yield


def _rows(sheet: Any) -> Iterator[Row]:
    """The rows of a sheet, empty ones too; a percentage is read as it is shown."""
    # What a sheet says of its size is often wrong, and can have a million rows padded to the last column.
    sheet.reset_dimensions()
    for number, row in enumerate(sheet.iter_rows(), start=1):
        cells = [
            f"{cell.value * 100:.15g}%"
            if isinstance(cell.value, (int, float)) and not isinstance(cell.value, bool) and "%" in cell.number_format
            else cell.value
            for cell in row
        ]
        yield number, cells
