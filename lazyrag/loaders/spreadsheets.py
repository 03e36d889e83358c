"""Spreadsheets: `XlsxLoader`, `XlsLoader`, and sheets of cells as text, also for `OdsLoader`.

openpyxl and xlrd are slow to import: each is imported when a file needs it.
"""

from __future__ import annotations

import datetime as dt
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lazyrag.data.segment import EMPTY
from lazyrag.data.tables import column_letters
from lazyrag.errors import LoadError, optional_package, sentence
from lazyrag.loaders.archives import (
    Archive,
    Element,
    attribute,
    local_name,
    open_archive,
    properties,
    related,
    relations,
)
from lazyrag.loaders.base import LoadedFile, joined_file, reading
from lazyrag.loaders.cells import Cell, Row, cell_text, duration_text, shown_as
from lazyrag.loaders.records import FieldSelection, SelectingLoader, SoughtFields
from lazyrag.loaders.slides import paragraphs
from lazyrag.loaders.tables import (
    Island,
    Merge,
    SheetRow,
    ShownText,
    TextLines,
    islands,
    merged_rows,
)

_STEPS_PER_LINE = 4
_CHARACTERS_PER_STEP = 8

_ALL = FieldSelection()

_MAX_LISTED = 100
_MAX_DAYS = 1e6
"""Of a duration; longer ones are numbers."""
_DURATION = re.compile(r"\[[hms]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sheet:
    """One sheet: its name, its rows from the top, and whether it is hidden.

    Merges, comments (cell, "" for a text box, and text) and the cells of formulas without a stored
    value may be added while rows are read.
    """

    name: str
    rows: Iterable[Row] = field(repr=False)
    hidden: bool = False
    merges: Sequence[Merge] = ()
    comments: Sequence[tuple[str, str]] = ()
    formulas: Sequence[str] = ()


def read_sheets(
    sheets: Iterable[Sheet], selection: FieldSelection = _ALL, metadata: Mapping[str, str] = EMPTY
) -> LoadedFile:
    r"""Convert a workbook to text; each filled sheet is a location, its name the first line.

    Each row below the column names is a place within the sheet. The names of the sheets, and of the
    hidden ones, become metadata.

    Args:
        sheets: In their order. The rows of a sheet are read before the next sheet.
        selection: The columns that become text, and their form.
        metadata: Further metadata of the workbook.

    Raises:
        LoadError: If no sheet has a selected column, or they take too much work.

    Example:
        >>> loaded = read_sheets([Sheet("Prices", [(1, ["tea", "EUR"]), (2, ["green", 4.5])])])
        >>> loaded.text
        'Prices\ntea | EUR\ntea: green; EUR: 4.5'
        >>> [location.label for location in loaded.locations]
        ['Prices', 'Prices > 2']
    """
    sought = SoughtFields(selection.names)
    parts = []
    names: dict[str, list[str]] = {"sheets": [], "hidden_sheets": [], "formulas_without_values": []}
    for sheet in sheets:
        lines = _sheet_lines(sheet, selection, sought)
        if len(lines.lines) < 2:
            continue
        parts.append((lines.loaded(EMPTY), "sheet", sheet.name))
        names["sheets"].append(sheet.name)
        if sheet.hidden:
            names["hidden_sheets"].append(sheet.name)
        names["formulas_without_values"] += (
            f"{sheet.name}!{cell}" for cell in sheet.formulas[:_MAX_LISTED]
        )
    sought.check()
    listed = {name: values for name, values in names.items() if values}
    return joined_file(parts, {**metadata, **listed})


def _sheet_lines(sheet: Sheet, selection: FieldSelection, sought: SoughtFields) -> TextLines:
    """The lines of a sheet below its name, and the places of its rows, tables and comments."""
    lines = TextLines()
    lines.add(sheet.name)
    spend = reading().spend
    for island in _islands(sheet):
        first = lines.length
        for number, line in _island_lines(island, selection, sought):
            spend(_STEPS_PER_LINE + (len(line) + len(sheet.name)) // _CHARACTERS_PER_STEP)
            lines.add(line, 0 if number is None else ("row", str(number)))
        table = island.table(sheet.name)
        if table is not None and lines.length > first:
            if not selection.names:
                first += sum(1 + len(_joined(row.shown)) for row in island.above)
            lines.places.append(table.location(first, lines.length - 1))
    for cell, comment in sheet.comments:
        if cell:
            lines.add(f"Comment on {cell}: {comment}", ("comment", cell))
        else:
            lines.add(comment)
    return lines


def _islands(sheet: Sheet) -> Iterator[Island]:
    rows = []
    spend = reading().spend
    for number, values in _until_damaged(sheet):
        spend(1 + len(values))
        texts = [value if isinstance(value, ShownText) else cell_text(value) for value in values]
        if any(texts):
            spend(sum(map(len, texts)) // _CHARACTERS_PER_STEP)
            is_named = all(
                isinstance(value, str) and not isinstance(value, ShownText)
                for value, text in zip(values, texts, strict=True)
                if text
            )
            rows.append(SheetRow(number, texts, is_named))
    return islands(merged_rows(rows, sheet.merges) if sheet.merges else rows)


def _until_damaged(sheet: Sheet) -> Iterator[Row]:
    """The rows of a sheet before its damage, if it has any."""
    with reading().tolerated(f"the rest of sheet {sheet.name!r}"):
        yield from sheet.rows


def _island_lines(
    island: Island, selection: FieldSelection, sought: SoughtFields
) -> Iterator[tuple[int | None, str]]:
    """A line for each filled row, with the row's number if it is below the column names.

    Rows below the column names become ``name: value; name: value``, or the selected form. The names
    and the rows above, and the rows of tables without names, have ``|`` between the cells; they are
    skipped if columns are selected.
    """
    names = island.names
    sought.meet(names)
    if not selection.names:
        plain = [*island.above, *island.header, *(() if names else island.body)]
        yield from ((None, _joined(row.shown)) for row in plain)
    for row in island.body if names else ():
        pairs = itertools.zip_longest(names[: len(row.texts)], row.shown, fillvalue="")
        line = selection.text_of([pair for pair in pairs if pair[1]], "; ")
        if not line.strip():
            continue
        if row.is_title and not selection.names:
            yield None, _joined(row.shown)
        else:
            yield row.number, line


def _joined(cells: Sequence[str]) -> str:
    filled = [at for at, cell in enumerate(cells) if cell]
    return " | ".join(cells[filled[0] : filled[-1] + 1])


class XlsxLoader(SelectingLoader):
    """Reads a workbook sheet by sheet; each sheet is a location, each row a line of
    ``column: value``.

    Without column names, ``|`` is between the cells. Formulas yield the last computed value, dates
    are ISO 8601. Hidden sheets are read, too. Names of sheets, title and author become metadata. A
    formula without a stored value is read as the formula, and its cell is listed in the metadata
    ``formulas_without_values``. Comments and text boxes follow the rows of their sheet. Charts and
    pictures are skipped.

    Each row below the column names is a location, too, with its number. With fields or a template,
    rows above the names and sheets without names are skipped.

    Args:
        fields: Columns to read, in this order; () for all.
        template: A text with columns in braces, as in ``"{name} costs {price}"``, instead of
            ``column: value``.

    Raises:
        ConfigError: If fields or template are invalid.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        with optional_package("The loader of .xlsx files", ""):
            from lazyrag.loaders import workbooks
        with open_archive(path, "workbook", ".xlsx") as archive:
            main = related(archive, "officeDocument")
            if not main.endswith(".xml") or local_name(archive.xml(main)) != "workbook":
                raise LoadError(
                    "The file is not a workbook, but of another format. Save it as .xlsx."
                )
            workbook = workbooks.read_workbook(archive, main)
            targets = relations(archive, main)
            sheets = []
            for element in archive.xml(main).iterfind("{*}sheets/{*}sheet"):
                name = element.get("name", "")
                relation = targets.get(attribute(element, "id"))
                part = "" if relation is None else relation.target
                if part not in archive:
                    reading().note(f"sheet {name!r} left out: the workbook lacks its part {part}.")
                    continue
                reader = workbooks.SheetReader(workbook, name)
                rows = reader.rows(archive, part)
                hidden = element.get("state", "visible") != "visible"
                comments = _comments(archive, part)
                sheets.append(Sheet(name, rows, hidden, reader.merges, comments, reader.formulas))
            return read_sheets(sheets, self._selection, properties(archive))


def _comments(archive: Archive, part: str) -> list[tuple[str, str]]:
    """Each comment with its cell, and the words of text boxes."""
    comments: list[tuple[str, str]] = []
    with archive.tolerated(f"comments of {part}"):
        for relation in relations(archive, part).values():
            if relation.kind in ("comments", "drawing") and relation.target in archive:
                charts = sum(
                    chart.kind == "chart" for chart in relations(archive, relation.target).values()
                )
                reading().leave_out(f"charts of {part}", charts)
                with archive.tolerated(f"{relation.kind} ({relation.target})"):
                    for element in archive.elements(relation.target, "comment", "txBody"):
                        comments += _comment(element)
    return comments


def _comment(element: Element) -> Iterator[tuple[str, str]]:
    """The cell and the words of a comment, or the words of a text box; nothing without words."""
    if local_name(element) == "comment":
        text = "".join(text.text or "" for text in element.iter("{*}t"))
    else:
        is_fallback = next(element.iterancestors("{*}Fallback"), None) is not None
        text = "" if is_fallback else " ".join(paragraphs(element))
    words = " ".join(text.split())
    if words:
        yield element.get("ref", ""), words


class XlsLoader(SelectingLoader):
    """Reads an old workbook sheet by sheet; each sheet is a location, each row a line of
    ``column: value``.

    Without column names, ``|`` is between the cells. Formulas yield the last computed value. Hidden
    sheets are read, too. Comments follow the rows of their sheet. Names of sheets and the author
    become metadata.

    Each row below the column names is a location, too, with its number. With fields or a template,
    rows above the names and sheets without names are skipped.

    Args:
        fields: Columns to read, in this order; () for all.
        template: A text with columns in braces, as in ``"{name} costs {price}"``, instead of
            ``column: value``.

    Raises:
        ConfigError: If fields or template are invalid.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        with optional_package("The loader of .xls files", "office"):
            import xlrd
        data = path.read_bytes()
        if data.startswith(b"PK"):  # a zip file, which xlrd reads before it refuses it
            raise LoadError(
                "The file is not a workbook of the old format, perhaps of the new one. Save it as"
                " .xlsx."
            )
        log = io.StringIO()  # xlrd prints flaws of a file
        try:
            with xlrd.open_workbook(
                file_contents=data,
                logfile=log,
                on_demand=True,
                ragged_rows=True,
                formatting_info=True,
            ) as book:
                author = (book.user_name or "").strip()
                return read_sheets(
                    _xls_sheets(xlrd, book), self._selection, {"author": author} if author else {}
                )
        except xlrd.XLRDError as exc:
            if "encrypted" in str(exc):
                msg = "The workbook is encrypted and needs a password. Save it again without one."
            else:
                msg = (
                    f"{sentence(f'The file is not a workbook of the old format: {exc}')} Save it as"
                    " .xls or .xlsx."
                )
            raise LoadError(msg) from exc


class XlsbLoader(SelectingLoader):
    """Reads a binary workbook sheet by sheet, as `XlsxLoader`, without comments and text boxes.

    Args:
        fields: Columns to read, in this order; () for all.
        template: A text with columns in braces, as in ``"{name} costs {price}"``, instead of
            ``column: value``.

    Raises:
        ConfigError: If fields or template are invalid.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        with optional_package("The loader of .xlsb files", ""):
            from lazyrag.loaders import binary_workbooks
        with open_archive(path, "binary workbook", ".xlsb") as archive:
            main = related(archive, "officeDocument")
            if not main.endswith(".bin"):
                raise LoadError(
                    "The file is not a binary workbook, but of another format. Save it as .xlsb."
                )
            workbook = binary_workbooks.read_binary_workbook(archive, main)
            sheets = []
            for name, part, is_hidden in binary_workbooks.listed_sheets(archive, main):
                if part not in archive:
                    reading().note(f"sheet {name!r} left out: the workbook lacks its part {part}.")
                    continue
                reader = binary_workbooks.BinarySheetReader(workbook)
                sheets.append(Sheet(name, reader.rows(archive, part), is_hidden, reader.merges))
            return read_sheets(sheets, self._selection, properties(archive))


def _xls_sheets(xlrd: Any, book: Any) -> Iterator[Sheet]:
    """The sheets; each is unloaded before the next one is read."""
    for number, name in enumerate(book.sheet_names()):
        sheet = None
        with reading().tolerated(f"sheet {name!r}"):
            sheet = _xls_sheet(xlrd, book, number)
        if sheet is None:
            continue
        merges = [
            (top + 1, bottom, left + 1, right) for top, bottom, left, right in sheet.merged_cells
        ]
        notes = (
            (f"{column_letters(at[1] + 1)}{at[0] + 1}", note.text)
            for at, note in sheet.cell_note_map.items()
        )
        comments = [(cell, words) for cell, text in notes if (words := " ".join(text.split()))]
        yield Sheet(name, _xls_rows(xlrd, sheet, book), sheet.visibility != 0, merges, comments)
        book.unload_sheet(number)


def _xls_sheet(xlrd: Any, book: Any, number: int) -> Any:
    try:
        return book.sheet_by_index(number)
    except xlrd.XLRDError as exc:
        raise LoadError(f"it is damaged ({exc})") from exc


def _xls_rows(xlrd: Any, sheet: Any, book: Any) -> Iterator[Row]:
    styles = [book.format_map.get(style.format_key) for style in book.xf_list]
    codes = ["" if form is None else form.format_str for form in styles]
    for number in range(sheet.nrows):
        yield (
            number + 1,
            [_xls_cell(xlrd, cell, book.datemode, codes) for cell in sheet.row(number)],
        )


def _xls_cell(xlrd: Any, cell: Any, datemode: int, formats: Sequence[str]) -> Cell:
    """The value of a cell, as displayed."""
    kind = cell.ctype
    value = cell.value
    at = cell.xf_index
    form = formats[at] if at is not None and at < len(formats) else ""
    if kind == xlrd.XL_CELL_DATE and _DURATION.search(form) and abs(value) < _MAX_DAYS:
        return duration_text(dt.timedelta(days=value), form)
    if kind == xlrd.XL_CELL_NUMBER:
        return shown_as(value, form)
    return _xls_value(xlrd, kind, value, datemode)


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
