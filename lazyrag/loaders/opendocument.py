"""OpenDocument: `OdtLoader` and `OdsLoader`."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from lazyrag.data.segment import Location
from lazyrag.data.tables import FoundTable
from lazyrag.errors import LoadError
from lazyrag.loaders.archives import Archive, Element, attribute, local_name, open_archive
from lazyrag.loaders.base import LoadedFile, reading
from lazyrag.loaders.spreadsheets import Cell, Row, Sheet, SheetLoader, read_sheets
from lazyrag.loaders.tables import GridCell, Merge, cell_text, read_table
from lazyrag.text.structure import Heading, heading_locations

# Comments, deleted text and declarations are invisible; notes are at the bottom of a page.
_UNSEEN = frozenset(
    ["annotation", "note", "tracked-changes", "forms", "sequence-decls", "variable-decls", "shapes"]
)
_MAX_REPEATED = 1_000
"""Repeated rows and cells that are read; programs fill whole sheets with them."""
_MAX_ROWS = 1 << 24
"""Repeated rows that are counted: programs have fewer in a sheet."""
T = TypeVar("T")
_PROPERTIES = {
    "creator": "author",
    "date": "modified",
    "creation-date": "created",
    "keyword": "keywords",
}
_DURATION = re.compile(
    r"P(?:(\d{1,6})D)?T?(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,6})(?:[.,]\d+)?S)?$"
)


class OdtLoader:
    """Reads a text document in body order, tables row by row with ``|`` between the cells.

    Headings become locations; title and author become metadata. Notes, comments, headers and
    footers are skipped.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        with open_archive(path, "text document", ".odt") as archive:
            body = _body(archive, "text", "text document", ".odt")
            metadata = _properties(archive)
        lines: list[str] = []
        headings: list[Heading] = []
        position = 0
        tables: list[Location] = []
        for line, level in _blocks(body):
            if isinstance(level, list):
                if not line:
                    continue
                tables += (table.location(position, position + len(line)) for table in level)
            elif level and line.strip():
                headings.append(Heading(position, level, " ".join(line.split())))
            lines.append(line)
            position += len(line) + 1
        text = "\n".join(lines)
        return LoadedFile(text, heading_locations(headings, len(text)), metadata, tuple(tables))


class OdsLoader(SheetLoader):
    """Reads a spreadsheet sheet by sheet; each sheet is a location, each row a line of
    ``column: value``.

    Without column names, ``|`` is between the cells. Formulas yield the last computed value. Hidden
    sheets are read, too. Names of sheets, title and author become metadata. Each row below the
    column names is a location, too, with its number. With fields or a template, rows above the
    names and sheets without names are skipped.

    Args:
        fields: Columns to read, in this order; () for all.
        template: A text with columns in braces, as in ``"{name} costs {price}"``, instead of
            ``column: value``.

    Raises:
        ConfigError: If fields or template are invalid.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        with open_archive(path, "spreadsheet", ".ods") as archive:
            body = _body(archive, "spreadsheet", "spreadsheet", ".ods")
            metadata = _properties(archive)
        hidden = _hidden_styles(body)
        return read_sheets(
            (_sheet(table, hidden) for table in body.iterfind("{*}table")),
            self._selection,
            metadata,
        )


def _sheet(table: Element, hidden: Container[str]) -> Sheet:
    merges = list[Merge]()
    is_hidden = attribute(table, "style-name") in hidden
    return Sheet(attribute(table, "name"), _rows(table, merges), is_hidden, merges)


def _body(archive: Archive, kind: str, name: str, suffix: str) -> Element:
    """The body of a document."""
    if "META-INF/manifest.xml" in archive and b"encryption-data" in archive.read(
        "META-INF/manifest.xml"
    ):
        raise LoadError(f"The {name} is encrypted and needs a password. Save it again without one.")
    body = archive.xml("content.xml").find(f"{{*}}body/{{*}}{kind}")
    if body is None:
        raise LoadError(
            f"The file is not a {name}: it is of another format than its suffix says. Save it as"
            f" {suffix}."
        )
    return body


def _properties(archive: Archive) -> dict[str, str]:
    """Title and author; all properties may fill declared fields."""
    values: dict[str, str] = {}
    for group in archive.optional("meta.xml" if "meta.xml" in archive else ""):
        for element in group:
            name = attribute(element, "name") or local_name(element)
            values.setdefault(_PROPERTIES.get(name, name), (element.text or "").strip())
    filled = {name: text for name, text in values.items() if text}
    author = filled.get("author") or filled.get("initial-creator", "")
    filled |= {"author": author} if author else {}
    reading().fields |= filled
    return {name: filled[name] for name in ("title", "author") if name in filled}


def _count(element: Element, name: str, most: int = _MAX_REPEATED) -> int:
    """A number of repetitions, from 1 to a bound."""
    value = attribute(element, name)
    return max(1, min(int(value), most)) if value.isdecimal() and len(value) < 10 else 1


def _repeated(value: T, times: int) -> list[T]:
    reading().spend(times)
    return [value] * times


def _blocks(parent: Element) -> Iterator[tuple[str, int | list[FoundTable]]]:
    """Paragraphs with their heading level (0: none), and tables with their data, through all
    wrapping elements.
    """
    for child in parent:
        kind = local_name(child)
        if kind in {"p", "h"}:
            level = _count(child, "outline-level") if kind == "h" else 0
            yield "".join(_run_text(child)), level
            for box in child.iter("{*}text-box"):
                # not a box inside one of its boxes
                if next(box.iterancestors("{*}p", "{*}h")) is child:
                    yield from _blocks(box)
        elif kind == "table":
            yield _table(child)
        elif kind and kind not in _UNSEEN:
            yield from _blocks(child)


def _table(table: Element) -> tuple[str, list[FoundTable]]:
    """The lines of a text table; it and the tables inside it as data."""
    nested: list[FoundTable] = []

    def read(cell: Element) -> GridCell:
        return GridCell(
            cell_text(_blocks(cell), nested),
            _count(cell, "number-columns-spanned"),
            _count(cell, "number-rows-spanned"),
        )

    heads = table.iterfind("{*}table-header-rows")
    header = sum(len(list(_own(head, "table-row"))) for head in heads)
    rows = []
    for row in _own(table, "table-row"):
        cells: list[GridCell] = []
        for cell in row:
            if local_name(cell) == "table-cell":
                cells += _repeated(read(cell), _count(cell, "number-columns-repeated"))
        rows.append(cells)
    lines, data = read_table(rows, header=header)
    return "\n".join(lines), [*([data] if data else []), *nested]


def _own(parent: Element, name: str) -> Iterator[Element]:
    """The elements of a name, through elements that only group them, such as a table's header
    rows.
    """
    for child in parent:
        kind = local_name(child)
        if kind == name:
            yield child
        elif kind.startswith(("table-header-", f"{name}s", f"{name}-group")):
            yield from _own(child, name)


def _run_text(parent: Element) -> Iterator[str]:
    yield parent.text or ""
    for child in parent:
        kind = local_name(child)
        if kind == "s":
            count = attribute(child, "c")
            yield "".join(_repeated(" ", int(count) if count.isdecimal() and len(count) < 4 else 1))
        elif kind == "tab":
            yield "\t"
        elif kind == "line-break":
            yield "\n"
        elif kind and kind not in _UNSEEN and kind != "text-box":
            yield from _run_text(child)
        yield child.tail or ""


def _hidden_styles(body: Element) -> frozenset[str]:
    """Names of the styles of hidden tables."""
    root = next(body.iterancestors("{*}document-content"), body)
    names = set()
    for style in root.iterfind("{*}automatic-styles/{*}style"):
        for table_properties in style.iterfind("{*}table-properties"):
            if attribute(table_properties, "display") == "false":
                names.add(attribute(style, "name"))
    return frozenset(names)


def _rows(table: Element, merges: list[Merge]) -> Iterator[Row]:
    """The filled rows, with their numbers; merged cells are added to a list."""
    above = 0
    for row in _own(table, "table-row"):
        cells: list[Cell] = []
        for cell in row:
            if local_name(cell) in {"table-cell", "covered-table-cell"}:
                columns, rows = (
                    _count(cell, f"number-{name}-spanned") for name in ("columns", "rows")
                )
                if columns > 1 or rows > 1:
                    merges.append((above + 1, above + rows, len(cells) + 1, len(cells) + columns))
                cells += _repeated(_value(cell), _count(cell, "number-columns-repeated"))
        while cells and cells[-1] is None:
            cells.pop()
        count = _count(row, "number-rows-repeated", most=_MAX_ROWS)
        for number in range(1, 1 + min(count, _MAX_REPEATED) if cells else 1):
            yield above + number, cells
        above += count


def _value(cell: Element) -> Cell:
    """The value of a cell. Percentages, amounts of money and other types are read as displayed."""
    kind = attribute(cell, "value-type")
    read = _VALUES.get(kind)
    try:
        return (
            read(attribute(cell, f"{kind}-value") or attribute(cell, "value"))
            if read
            else _shown(cell)
        )
    except ValueError:  # an invalid value
        return _shown(cell)


def _shown(cell: Element) -> str | None:
    return "\n".join(line for line, _ in _blocks(cell)).strip() or None


def _date(value: str) -> dt.datetime:
    # some programs write nine digits of a second
    return dt.datetime.fromisoformat(value.partition(".")[0])


def _duration(value: str) -> dt.timedelta:
    parts = _DURATION.match(value)
    if parts is None:
        raise ValueError(value)
    days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return dt.timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


_VALUES: Mapping[str, Callable[[str], Cell]] = {
    "boolean": lambda value: value == "true",
    "date": _date,
    "float": float,
    "time": _duration,
}
