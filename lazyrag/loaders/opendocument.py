"""OpenDocument: `OdtLoader`, `OdpLoader` and `OdsLoader`."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from lazyrag.data.segment import LIST_ITEM
from lazyrag.data.tables import FoundTable
from lazyrag.errors import LoadError
from lazyrag.loaders.archives import Archive, Element, attribute, local_name, open_archive
from lazyrag.loaders.base import LoadedFile, check_pages, reading
from lazyrag.loaders.cells import Cell, Row
from lazyrag.loaders.cells import cell_text as sheet_text
from lazyrag.loaders.records import SelectingLoader
from lazyrag.loaders.slides import slides_file
from lazyrag.loaders.spreadsheets import Sheet, read_sheets
from lazyrag.loaders.tables import (
    GridCell,
    LineKind,
    Merge,
    ShownText,
    TextLines,
    cell_text,
    numbered_notes,
    read_table,
)
from lazyrag.loaders.word import number_text

# Comments, deleted text and declarations are invisible; notes follow the text.
_UNSEEN = frozenset(
    [
        "annotation",
        "tracked-changes",
        "forms",
        "sequence-decls",
        "variable-decls",
        "shapes",
    ]
)
_MAX_REPEATED = 1_000
"""Repeated rows and cells that are read; programs fill whole sheets with them."""
_MAX_ROWS = 1 << 24
"""Repeated rows that are counted: programs have fewer in a sheet."""
_MAX_COUNT_DIGITS = 10
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


@dataclass(slots=True)
class _OdfText(TextLines):
    """A document or a slide, and the state of reading it.

    Args:
        levels: The forms of lists with numbers, by style and depth.
    """

    levels: Mapping[tuple[str, int], Element] = field(default_factory=dict)
    lists: list[str] = field(default_factory=list)
    """Styles of the lists around a paragraph."""
    counts: list[int] = field(default_factory=list)
    mark: tuple[str, LineKind] = ("", 0)
    """Number and kind of the item that begins."""

    def open_list(self, lines: Element) -> None:
        """Begin a list; one within another has its style."""
        above = self.lists[-1] if self.lists else ""
        self.lists.append(attribute(lines, "style-name") or above)
        depth = len(self.lists)
        level = self.levels.get((self.lists[-1], depth))
        if attribute(lines, "continue-numbering") != "true" or len(self.counts) < depth:
            self.counts[depth - 1 :] = [0 if level is None else _count(level, "start-value") - 1]

    def begin_item(self, item: Element) -> None:
        """Count an item of the innermost list."""
        depth = len(self.lists)
        if not 0 < depth <= len(self.counts):
            return
        start = attribute(item, "start-value")
        is_number = start.isdecimal() and len(start) < _MAX_COUNT_DIGITS
        self.counts[depth - 1 :] = [int(start) if is_number else self.counts[depth - 1] + 1]
        level = self.levels.get((self.lists[-1], depth))
        number = ""
        if level is not None:
            numbers = []
            for at in range(max(0, depth - _count(level, "display-levels")), depth):
                form = attribute(self.levels.get((self.lists[-1], at + 1), level), "num-format")
                numbers.append(number_text(self.counts[at], _FORMS.get(form, form)))
            around = [attribute(level, f"num-{name}") for name in ("prefix", "suffix")]
            number = f"{'.'.join(numbers).join(around)} "
        self.mark = number, (LIST_ITEM, str(depth))

    def take_mark(self) -> tuple[str, LineKind]:
        """Number and kind of the item, before its first words."""
        mark = self.mark
        self.mark = "", 0
        return mark

    def note_texts(self) -> Iterator[str]:
        """The notes, each on a line."""
        for note in tuple(self.notes):
            body = note.find("{*}note-body")
            blocks = () if body is None else _blocks(body, self)
            yield " ".join(" ".join(line for line, _ in blocks).split())


_FORMS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
"""Word's names of forms of numbers."""


def _list_levels(archive: Archive, body: Element) -> dict[tuple[str, int], Element]:
    """The forms of lists with numbers, by style and depth."""
    levels = {}
    roots: list[Iterable[Element]] = [
        archive.optional("styles.xml" if "styles.xml" in archive else "")
    ]
    roots.append(next(body.iterancestors("{*}document-content"), body))
    for part in itertools.chain.from_iterable(roots):
        for level in part.iter("{*}list-level-style-number"):
            style = level.getparent()
            if style is not None and attribute(level, "num-format"):
                levels[attribute(style, "name"), _count(level, "level")] = level
    return levels


class OdtLoader:
    """Reads a text document in body order, tables row by row with ``|`` between the cells.

    Headings become locations; title and author become metadata. Footnotes and endnotes are numbered
    in order and follow the text, as places of kind ``footnote``; lists have their numbers.
    Comments, headers and footers are skipped.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        with open_archive(path, "text document", ".odt") as archive:
            body = _body(archive, "text", "text document", ".odt")
            metadata = _properties(archive)
            page = _OdfText(levels=_list_levels(archive, body))
        page.add_all(_blocks(body, page))
        page.add_all(numbered_notes(page.note_texts()))
        return page.loaded(metadata)


class OdpLoader:
    """Reads a presentation slide by slide; each slide is a location.

    Shapes come in stored order, tables row by row with ``|`` between the cells, then the speaker's
    notes. Title and author become metadata. Comments, charts and master pages are skipped.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        with open_archive(path, "presentation", ".odp") as archive:
            body = _body(archive, "presentation", "presentation", ".odp")
            metadata = _properties(archive)
            levels = _list_levels(archive, body)
        slides = []
        for slide in body.iterfind("{*}page"):
            slides.append(_OdfText(levels=levels))
            slides[-1].add_all(_blocks(slide, slides[-1]))
        check_pages(len(slides), "slides")
        return slides_file(slides, metadata)


class OdsLoader(SelectingLoader):
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
    _leave_out(archive, body)
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


def _leave_out(archive: Archive, body: Element) -> None:
    """Note what readers see beside the text: comments, charts, formulas, headers and footers."""
    leave_out = reading().leave_out
    leave_out("comments", len(body.findall(".//{*}annotation")))
    leave_out("charts and formulas", len(body.findall(".//{*}object")))
    if local_name(body) == "text":
        styles = archive.optional("styles.xml" if "styles.xml" in archive else "")
        lines = (line for part in styles for line in part.iterfind("{*}master-page/*/{*}p"))
        leave_out("headers and footers", sum(any(line.itertext()) for line in lines))


def _count(element: Element, name: str, most: int = _MAX_REPEATED) -> int:
    """A number of repetitions, from 1 to a bound."""
    value = attribute(element, name)
    return (
        max(1, min(int(value), most)) if value.isdecimal() and len(value) < _MAX_COUNT_DIGITS else 1
    )


def _repeated(value: T, times: int) -> list[T]:
    reading().spend(times)
    return [value] * times


def _blocks(parent: Element, page: _OdfText) -> Iterator[tuple[str, LineKind]]:
    """Paragraphs and tables, through all wrapping elements."""
    for child in parent:
        kind = local_name(child)
        if kind in {"p", "h"}:
            level = _count(child, "outline-level") if kind == "h" else 0
            words = "".join(_run_text(child, page))
            number, item = page.take_mark() if words.strip() else ("", 0)
            yield number + words, level or item
            for box in child.iter("{*}text-box"):
                # not a box inside one of its boxes
                if next(box.iterancestors("{*}p", "{*}h")) is child:
                    yield from _blocks(box, page)
        elif kind == "table":
            text, tables = _table(child, page)
            if text:
                yield text, tables
        elif kind == "list":
            page.open_list(child)
            yield from _blocks(child, page)
            page.lists.pop()
            page.take_mark()  # of an item without words
        elif kind and kind not in _UNSEEN:
            if kind == "list-item":
                page.begin_item(child)
            yield from _blocks(child, page)


def _table(table: Element, page: _OdfText) -> tuple[str, list[FoundTable]]:
    """The lines of a text table; it and the tables inside it as data."""
    nested: list[FoundTable] = []

    def read(cell: Element) -> GridCell:
        return GridCell(
            cell_text(_blocks(cell, page), nested),
            _count(cell, "number-columns-spanned"),
            _count(cell, "number-rows-spanned"),
        )

    heads = table.iterfind("{*}table-header-rows")
    header = sum(len(list(_own(head, "table-row"))) for head in heads)
    rows = []
    for row in _own(table, "table-row"):
        cells = []
        for cell in row:
            if local_name(cell) == "table-cell":
                cells += _repeated(read(cell), _count(cell, "number-columns-repeated"))
        rows.append(cells)
    text, tables = read_table(rows, header=header)
    return text, tables + nested


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


def _run_text(parent: Element, page: _OdfText) -> Iterator[str]:
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
        elif kind == "note":
            page.notes.append(child)
            yield f"[{len(page.notes)}]"
        elif kind and kind not in _UNSEEN and kind != "text-box":
            yield from _run_text(child, page)
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
    if read is None:
        return _shown(cell)
    try:
        value = read(attribute(cell, f"{kind}-value") or attribute(cell, "value"))
    except ValueError:  # an invalid value
        return _shown(cell)
    if kind != "float":
        return value
    digits = sheet_text(value)
    shown = _shown(cell)
    return ShownText(digits, shown) if shown and shown != digits else value


def _shown(cell: Element) -> str | None:
    return "\n".join(line for line, _ in _blocks(cell, _OdfText())).strip() or None


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
