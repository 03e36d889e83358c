"""Spreadsheets: `XlsxLoader`, `XlsLoader`, and sheets of cells as text, also for `OdsLoader`.

openpyxl and xlrd are packages of an extra, and slow to import: each is imported when a file needs
it.
"""

from __future__ import annotations

import datetime as dt
import functools
import io
import itertools
import re
import threading
import warnings
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from xml.parsers import expat

from lazyrag.data.segment import EMPTY, Location
from lazyrag.data.tables import column_letters
from lazyrag.errors import LoadError, missing_package, sentence
from lazyrag.loaders.archives import (
    Archive,
    Element,
    attribute,
    local_name,
    nested_locations,
    open_archive,
    properties,
    related,
    relations,
    unescaped,
)
from lazyrag.loaders.base import LoadedFile, reading
from lazyrag.loaders.number_formats import is_percentage, shown_number
from lazyrag.loaders.records import FieldSelection, SoughtFields
from lazyrag.loaders.slides import paragraphs
from lazyrag.loaders.tables import Island, Merge, SheetRow, ShownText, islands, merged_rows
from lazyrag.progress.blocks import contextmanager
from lazyrag.validation import known_arguments

Cell: TypeAlias = "str | float | bool | dt.datetime | dt.date | dt.time | dt.timedelta | None"
"""The value of a cell."""

_STEPS_PER_LINE = 4
_CHARACTERS_PER_STEP = 8

Row: TypeAlias = tuple[int, Sequence[Cell]]
"""A row's number, as spreadsheet programs display it, and its cells."""

_ALL = FieldSelection()
_BREAK = "\n\n"

_MAX_LISTED = 100
_MAX_DAYS = 1e6
"""Of a duration; longer ones are numbers."""
_MAX_EXACT = 1 << 53
"""Integers up to it have all digits."""
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


@known_arguments
class SheetLoader:
    """Constructor of the loaders of spreadsheets."""

    def __init__(self, *, fields: Sequence[str] = (), template: str | None = None) -> None:
        self._selection = FieldSelection(fields, template)


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
    texts: list[str] = []
    locations: list[Location] = []
    names: dict[str, list[str]] = {"sheets": [], "hidden_sheets": [], "formulas_without_values": []}
    start = 0
    for sheet in sheets:
        text, places = _sheet_text(sheet, selection, sought)
        if not text:
            continue
        texts.append(text)
        locations += nested_locations(LoadedFile(text, tuple(places)), start, "sheet", sheet.name)
        start += len(text) + len(_BREAK)
        names["sheets"].append(sheet.name)
        if sheet.hidden:
            names["hidden_sheets"].append(sheet.name)
        names["formulas_without_values"] += (
            f"{sheet.name}!{cell}" for cell in sheet.formulas[:_MAX_LISTED]
        )
    sought.check()
    listed = {name: values for name, values in names.items() if values}
    return LoadedFile(_BREAK.join(texts), tuple(locations), {**metadata, **listed})


def _sheet_text(
    sheet: Sheet, selection: FieldSelection, sought: SoughtFields
) -> tuple[str, list[Location]]:
    """The lines of a sheet, "" without any below its name; and the places of its rows, tables and
    comments.
    """
    lines = [sheet.name]
    places = []
    end = len(sheet.name)
    spend = reading().spend
    for island in _islands(sheet):
        first = end + 1
        for number, line in _island_lines(island, selection, sought):
            spend(_STEPS_PER_LINE + (len(line) + len(sheet.name)) // _CHARACTERS_PER_STEP)
            if number is not None:
                places.append(Location(end + 1, end + 1 + len(line), "row", str(number)))
            lines.append(line)
            end += 1 + len(line)
        table = island.table(sheet.name)
        if table is not None and end >= first:
            if not selection.names:
                first += sum(1 + len(_joined(row.shown)) for row in island.above)
            places.append(table.location(first, end))
    for cell, comment in sheet.comments:
        line = f"Comment on {cell}: {comment}" if cell else comment
        lines.append(line)
        if cell:
            places.append(Location(end + 1, end + 1 + len(line), "comment", cell))
        end += 1 + len(line)
    return "\n".join(lines) if len(lines) > 1 else "", places


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


_UNPACKED = (".xml", ".rels")


class XlsxLoader(SheetLoader):
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
        try:
            import openpyxl
        except ModuleNotFoundError as exc:
            raise missing_package("The loader of .xlsx files", exc, "") from exc
        with open_archive(path, "workbook", ".xlsx") as archive:
            main = related(archive, "officeDocument")
            if not main.endswith(".xml") or local_name(archive.xml(main)) != "workbook":
                raise LoadError(
                    "The file is not a workbook, but of another format. Save it as .xlsx."
                )
            parts = _sheet_parts(archive, main)
            readable, damaged = _readable_parts(
                archive,
                {part: name for name, part in parts.items()},
                {main, related(archive, "sharedStrings", main)},
            )
            archive.restrict(readable)
            metadata = properties(archive)
            extras = {
                name: _extras(archive, part) for name, part in parts.items() if part in archive
            }
            styles = archive.read(_STYLES) if _STYLES in readable else b""
            is_changed = damaged or _LONG_CODE.search(styles)
            source = _rewritten(archive, readable) if is_changed else archive.source
        with path.open("rb") if isinstance(source, str) else source as file, _unwarned():
            book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
            formulas: Any = {}
            if any(extra.has_formulas for extra in extras.values()):
                formulas = openpyxl.load_workbook(file, read_only=True, keep_links=False)
            sheets = [
                _xlsx_sheet(sheet, formulas, extras.get(sheet.title, _Extras()))
                for sheet in book.worksheets
            ]
            return read_sheets(sheets, self._selection, metadata)


def _sheet_parts(archive: Archive, main: str) -> dict[str, str]:
    """The part of each sheet, by its name."""
    targets = relations(archive, main)
    parts = {}
    for sheet in archive.xml(main).iterfind("{*}sheets/{*}sheet"):
        key = attribute(sheet, "id")
        if key in targets:
            parts[sheet.get("name", "")] = targets[key].target
    return parts


def _xlsx_sheet(sheet: Any, formulas: Any, extra: _Extras) -> Sheet:
    """A sheet whose rows are read later.

    Args:
        sheet: It in the workbook.
        formulas: The workbook with formulas instead of their values, if one has no value.
        extra: Its merged cells and comments.
    """
    unread = list[str]()
    with_formulas = formulas[sheet.title] if extra.has_formulas else None
    if extra.readable is not None:
        for view in filter(None, (sheet, with_formulas)):
            view._get_source = functools.partial(io.BytesIO, extra.readable)
    rows = _xlsx_rows(sheet, with_formulas, unread)
    hidden = sheet.sheet_state != "visible"
    return Sheet(sheet.title, rows, hidden, extra.merges, extra.comments, unread)


def _readable_parts(
    archive: Archive, sheets: Mapping[str, str], needed: Collection[str]
) -> tuple[set[str], bool]:
    """The parts that openpyxl may read, and whether others are damaged; those are noted.

    Args:
        archive: The workbook.
        sheets: Names of the sheets, by part.
        needed: Parts without which no sheet can be read.
    """
    readable = set()
    names = [name for name in archive.names if name.endswith(_UNPACKED)]
    for name in names:
        described = f"sheet {sheets[name]!r} ({name})" if name in sheets else f"part {name}"
        with nullcontext() if name in needed else archive.tolerated(described):
            data = archive.read(name)
            if name not in sheets:  # sheets may be listed several times
                reading().spend(data.count(b"<"))
            # else the rows before the damage are read
            if name not in sheets or b"sheetData" not in data:
                _check_xml(name, data)
            readable.add(name)
    for part, name in sheets.items():
        if part not in archive:
            reading().note(f"sheet {name!r} left out: the workbook lacks its part {part}.")
    return readable, len(readable) < len(names)


def _check_xml(name: str, data: bytes) -> None:
    try:
        expat.ParserCreate().Parse(data, True)  # noqa: FBT003  expat's own argument
    except expat.ExpatError as exc:
        raise LoadError(f"The part {name} is not valid XML ({exc}).") from exc


def _rewritten(archive: Archive, names: Iterable[str]) -> io.BytesIO:
    """A workbook of some of its parts."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            data = archive.read(name)
            if name == _STYLES:
                data = _LONG_CODE.sub(rb'\1"General"', data)
            file.writestr(name, data)
    return target


_STYLES = "xl/styles.xml"
_LONG_CODE = re.compile(rb"""(\bformatCode\s*=\s*)(?:"[^"]{2000,}"|'[^']{2000,}')""")
"""Number formats beyond those of any program: openpyxl takes quadratic time for them."""


_one_at_a_time = threading.Lock()


@contextmanager
def _unwarned() -> Iterator[None]:
    """Ignore openpyxl's warnings about parts without cells. Filters of warnings are global, hence
    the lock.
    """
    with _one_at_a_time, warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"openpyxl\.")
        yield


@dataclass(frozen=True, slots=True)
class _Extras:
    """What openpyxl does not read of a sheet without keeping all of it in memory."""

    merges: Sequence[Merge] = ()
    comments: Sequence[tuple[str, str]] = ()
    has_formulas: bool = False
    readable: bytes | None = None


_MERGED = re.compile(
    rb"<(?:\w+:)?mergeCell\s+ref=[\"']([A-Z]{1,3})(\d{1,7}):([A-Z]{1,3})(\d{1,7})[\"']"
)
_RANGE = re.compile(rb"(mergeCell\s+ref=[\"'])[^\"']*")
_NO_VALUE = re.compile(rb"<f\b[^>]*(?:/>|>[^<]*</f>)\s*(?:<v\s*/>|<v>\s*</v>|</c>)")

_NO_DIGITS = re.compile(rb"v>(?![-+.\deE]{0,400}+<)")
_NO_NUMBER = re.compile(
    rb"(<(?:\w+:)?c\b[^<>]*)"
    rb"(>(?:<(?:\w+:)?f\b[^<>]*(?:/>|>[^<]*</(?:\w+:)?f>))?\s*+<(?:\w+:)?v>)"
    rb"(?!\s*+[-+]?(?:\d{1,400}+(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?\s*+<)(?=[^<])"
)
_KIND = re.compile(rb"\st=[\"'](\w+)[\"']")


def _extras(archive: Archive, part: str) -> _Extras:
    """Merged cells and comments of a sheet, and whether it has formulas without a stored value."""
    from openpyxl.utils import column_index_from_string

    data = archive.read(part)
    reading().spend(data.count(b"<"))
    cells = (tuple(map(bytes.decode, match.groups())) for match in _MERGED.finditer(data))
    ranges = [
        (int(top), int(bottom), column_index_from_string(left), column_index_from_string(right))
        for left, top, right, bottom in cells
    ]
    merges = [
        (min(top, bottom), max(top, bottom), min(left, right), max(left, right))
        for top, bottom, left, right in ranges
    ]
    comments = []
    for relation in relations(archive, part).values():
        if relation.kind == "comments" and relation.target in archive:
            for comment in archive.xml(relation.target).iterfind("{*}commentList/{*}comment"):
                words = " ".join("".join(text.text or "" for text in comment.iter("{*}t")).split())
                if words:
                    comments.append((comment.get("ref", ""), words))
        elif relation.kind == "drawing" and relation.target in archive:
            with archive.tolerated(f"text boxes ({relation.target})"):
                comments += (("", words) for words in _box_texts(archive.xml(relation.target)))
    # openpyxl refuses ranges such as C3:A1, and what is no number: NaN, Infinity, #DIV/0!
    readable = data if merges == ranges else _RANGE.sub(rb"\1A1", data)
    if _NO_DIGITS.search(data):
        readable = _NO_NUMBER.sub(_text_cell, readable)
    has_formulas = _NO_VALUE.search(data) is not None
    return _Extras(merges, comments, has_formulas, None if readable == data else readable)


def _text_cell(cell: re.Match[bytes]) -> bytes:
    """A cell without a number, as one with a text unless it is of another kind."""
    kind = _KIND.search(cell[1])
    if kind and kind[1] not in (b"n", b"b", b"s"):
        return cell[0]
    return _KIND.sub(b"", cell[1]) + b' t="str"' + cell[2]


def _box_texts(drawing: Element) -> Iterator[str]:
    """The texts of filled text boxes, each on a line."""
    for box in drawing.iter("{*}txBody"):
        is_fallback = next(box.iterancestors("{*}Fallback"), None) is not None
        words = " ".join(" ".join(paragraphs(box)).split())
        if words and not is_fallback:
            yield words


def _xlsx_rows(sheet: Any, formulas: Any, unread: list[str]) -> Iterator[Row]:
    """The rows of a sheet, empty ones too; values as displayed.

    Args:
        sheet: The sheet.
        formulas: The same sheet with formulas instead of their values; None if all have a value.
        unread: Receives the cells of formulas without a value, which are read as formulas.
    """
    # The declared size is often wrong, and can pad a million rows to the last column.
    sheet.reset_dimensions()
    if formulas is None:
        for number, row in enumerate(sheet.iter_rows(), start=1):
            yield number, [_xlsx_value(cell) for cell in row]
        return
    formulas.reset_dimensions()
    rows = zip(sheet.iter_rows(), formulas.iter_rows(), strict=True)
    for number, (row, formula_row) in enumerate(rows, start=1):
        cells = [_xlsx_value(cell) for cell in row]
        for at, cell in enumerate(formula_row):
            if cells[at] is None and cell.data_type == "f":
                cells[at] = str(getattr(cell.value, "text", cell.value))
                unread.append(cell.coordinate)
        yield number, cells


def _xlsx_value(cell: Any) -> Cell:
    value: Cell = cell.value
    if isinstance(value, dt.timedelta):
        return duration_text(value, cell.number_format)
    if isinstance(value, str):
        return unescaped(value) if "_x" in value else value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return _shown_as(value, cell.number_format)


class XlsLoader(SheetLoader):
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
        try:
            import xlrd
        except ModuleNotFoundError as exc:
            raise missing_package("The loader of .xls files", exc, "office") from exc
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
        return _shown_as(value, form)
    return _xls_value(xlrd, kind, value, datemode)


def _shown_as(value: float, code: str) -> Cell:
    """A number with a number format, which it is shown in."""
    if code == "General":
        return value
    digits = cell_text(value)
    shown = shown_number(digits, code)
    if is_percentage(code):
        digits = f"{value * 100:.15g}%"
    return ShownText(digits, shown or digits)


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
