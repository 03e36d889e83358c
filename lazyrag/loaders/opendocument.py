"""Texts and spreadsheets of LibreOffice and other programs that write OpenDocument."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from lazyrag.errors import LoadError
from lazyrag.loaders.archives import Archive, Element, local_name, open_archive
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.records import Selection
from lazyrag.loaders.spreadsheets import Cell, Row, Sheet, read_sheets
from lazyrag.text.structure import Heading, heading_places
from lazyrag.validation import known_arguments

# Comments, deleted text and declarations hold nothing that a reader sees; notes stand at the foot of a page.
_UNSEEN = frozenset(["annotation", "note", "tracked-changes", "forms", "sequence-decls", "variable-decls", "shapes"])
_MOST_REPEATED = 1_000
"""Equal rows in a row, and equal cells in one, that are read; programs fill whole sheets with them."""
_MOST_ROWS = 1 << 24
"""Equal rows in a row that are counted: programs have fewer in a sheet."""
_DURATION = re.compile(r"P(?:(\d{1,6})D)?T?(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,6})(?:[.,]\d+)?S)?$")


class OdtLoader:
    """Reads a text document in the order of its body, tables included, row by row with ``|`` between the cells.

    Headings become places; title and author become metadata. Notes, comments, headers and footers are left out.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        with open_archive(path, "text document", ".odt") as archive:
            body = _body(archive, "text", "text document", ".odt")
            metadata = _properties(archive)
        lines: list[str] = []
        headings: list[Heading] = []
        position = 0
        for line, level in _blocks(body):
            if level and line.strip():
                headings.append(Heading(position, level, " ".join(line.split())))
            lines.append(line)
            position += len(line) + 1
        text = "\n".join(lines)
        return LoadedFile(text, heading_places(headings, len(text)), metadata)


@known_arguments
class OdsLoader:
    """Reads a spreadsheet sheet by sheet; each sheet is a place, each row a line of ``column: value``.

    Where no names of columns are found, ``|`` stands between the cells. Formulas give the value that was computed last.
    Hidden sheets are read, too. Names of sheets, title and author become metadata.

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
        with open_archive(path, "spreadsheet", ".ods") as archive:
            body = _body(archive, "spreadsheet", "spreadsheet", ".ods")
            metadata = _properties(archive)
        hidden = _hidden_styles(body)
        loaded = read_sheets(
            (
                Sheet(_said(table, "name"), _rows(table), hidden=_said(table, "style-name") in hidden)
                for table in body.iterfind("{*}table")
            ),
            self._selection,
        )
        return LoadedFile(loaded.text, loaded.places, {**metadata, **loaded.metadata})


def _body(archive: Archive, kind: str, what: str, suffix: str) -> Element:
    """The body of a document of some kind."""
    if "META-INF/manifest.xml" in archive and b"encryption-data" in archive.read("META-INF/manifest.xml"):
        msg = f"The {what} is encrypted and needs a password. Save it again without one."
        raise LoadError(msg)
    body = archive.xml("content.xml").find(f"{{*}}body/{{*}}{kind}")
    if body is None:
        msg = f"The file is no {what}: it is of another format than its suffix says. Save it as {suffix}."
        raise LoadError(msg)
    return body


def _properties(archive: Archive) -> dict[str, str]:
    """Title and author, where the document says them."""
    if "meta.xml" not in archive:
        return {}
    meta = archive.xml("meta.xml")
    said = {
        "title": meta.findtext(".//{*}title"),
        "author": meta.findtext(".//{*}creator") or meta.findtext(".//{*}initial-creator"),
    }
    return {name: value.strip() for name, value in said.items() if value and value.strip()}


def _said(element: Element, name: str) -> str:
    """An attribute, whatever its namespace; "" where there is none."""
    suffix = f"}}{name}"
    return next((str(value) for key, value in element.attrib.items() if str(key).endswith(suffix)), "")


def _count(element: Element, name: str, most: int = _MOST_REPEATED) -> int:
    """How often something stands there, from 1 to the most that is read."""
    said = _said(element, name)
    return max(1, min(int(said), most)) if said.isdecimal() and len(said) < 10 else 1


def _blocks(parent: Element) -> Iterator[tuple[str, int]]:
    """Text and heading level (0: none) of paragraphs and of rows of tables, through every element around them."""
    for child in parent:
        kind = local_name(child)
        if kind in {"p", "h"}:
            level = _count(child, "outline-level") if kind == "h" else 0
            yield "".join(_run_text(child)), level
            for box in child.iter("{*}text-box"):
                if next(box.iterancestors("{*}p", "{*}h")) is child:  # not a box inside one of its boxes
                    yield from _blocks(box)
        elif kind == "table":
            yield from ((row, 0) for row in _lines(child))
        elif kind and kind not in _UNSEEN:
            yield from _blocks(child)


def _lines(table: Element) -> Iterator[str]:
    """The rows of a table in a text, each a line."""
    for row in _own(table, "table-row"):
        cells = [" ".join(" ".join(line.split()) for line, _ in _blocks(cell)).strip() for cell in row]
        if any(cells):
            yield " | ".join(cells)


def _own(parent: Element, name: str) -> Iterator[Element]:
    """The elements of a name inside of what only groups them, such as the rows of a table's head."""
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
            yield " " * (int(count) if (count := _said(child, "c")).isdecimal() and len(count) < 4 else 1)
        elif kind == "tab":
            yield "\t"
        elif kind == "line-break":
            yield "\n"
        elif kind and kind not in _UNSEEN and kind != "text-box":
            yield from _run_text(child)
        yield child.tail or ""


def _hidden_styles(body: Element) -> frozenset[str]:
    """The names of the styles whose tables are not shown."""
    root = next(body.iterancestors("{*}document-content"), body)
    return frozenset(
        _said(style, "name")
        for style in root.iterfind("{*}automatic-styles/{*}style")
        if any(_said(one, "display") == "false" for one in style.iterfind("{*}table-properties"))
    )


def _rows(table: Element) -> Iterator[Row]:
    """The rows that hold something, with the number that they have where each is counted."""
    above = 0
    for row in _own(table, "table-row"):
        cells: list[Cell] = []
        for cell in row:
            if local_name(cell) in {"table-cell", "covered-table-cell"}:
                cells += [_value(cell)] * _count(cell, "number-columns-repeated")
        while cells and cells[-1] is None:
            cells.pop()
        count = _count(row, "number-rows-repeated", most=_MOST_ROWS)
        for number in range(1, 1 + min(count, _MOST_REPEATED) if cells else 1):
            yield above + number, cells
        above += count


def _value(cell: Element) -> Cell:
    """What a cell holds. Percentages, amounts of money and what is no number are read as they are shown."""
    kind = _said(cell, "value-type")
    read = _VALUES.get(kind)
    try:
        return read(_said(cell, f"{kind}-value") or _said(cell, "value")) if read else _shown(cell)
    except ValueError:  # it is not what it says to be
        return _shown(cell)


def _shown(cell: Element) -> str | None:
    return "\n".join(line for line, _ in _blocks(cell)).strip() or None


def _date(said: str) -> dt.datetime:
    return dt.datetime.fromisoformat(said.partition(".")[0])  # some programs write nine digits of a second


def _duration(said: str) -> dt.timedelta:
    parts = _DURATION.match(said)
    if parts is None:
        raise ValueError(said)
    days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return dt.timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


_VALUES: Mapping[str, Callable[[str], Cell]] = {
    "boolean": lambda said: said == "true",
    "date": _date,
    "float": float,
    "time": _duration,
}
