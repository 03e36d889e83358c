"""Tables of a document as nodes: the built-in group ``table``."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lazyrag.data.node import SOURCE_LOCATION, DocNode, describe_span
from lazyrag.data.segment import TABLE, Location, Locations, Segment, Span, content_text
from lazyrag.data.tables import FoundTable, header_votes, is_header
from lazyrag.transforms.base import NodeTransform
from lazyrag.types import JsonObject

_LINE = re.compile(r"[^\n]+")
_RULE = re.compile(r"\s*\|?(?:\s*:?-+:?\s*\|)+\s*(?::?-+:?\s*)?")
_MAX_CELL = 1 << 17
_MAX_TABLES = 10_000
_MAX_EMPTY = 1 << 16
_EMPTY_SHARE = 4
_SEPARATOR = re.compile(r"(?<!\\)\|")
_PAGE_NUMBER = re.compile(r"\b\d{1,3}\b")
_EDGE = 4  # lines
_BETWEEN = re.compile(
    r"^[\W\d]*$|\b(?:continued|cont['’.]?d|fortsetzung|suite|continuaci[oó]n)\b|[续續続]",
    re.IGNORECASE,
)
"""A line that may be between the parts of a table, beside those that are repeated."""


class PlacedTable(NamedTuple):
    """A table with its place in a document's text.

    Args:
        place: From its first to its last row.
        table: Its cells.
        spans: The stretches of its rows, where others are between them; [] if none are.
    """

    place: Location
    table: FoundTable
    spans: Sequence[Span] = ()


class TableExtractor(NodeTransform):
    """Makes a node of each table of a document: its text is the table as CSV, with the column names
    first.

    Tables are those that the document's loader found, those of Markdown text, and rows with ``|``
    on the pages of a PDF, the first 10,000; one that goes on over pages is one table. The metadata
    of a node has ``columns`` and, where known, ``caption``, ``sheet`` and ``cells``; ``table`` has
    its stretch in the document's text and the numbers of its rows.
    """

    identity = "TableExtractor/1"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """Yield the tables, in order."""
        places = _Stretches(node.segment.locations)
        for place, table, spans in document_tables(node.segment):
            cells = itertools.chain(table.names, *table.rows)
            if any(len(cell) > _MAX_CELL for cell in cells):
                continue  # a page within a frame, which no program reads from CSV
            origin = {"caption": table.caption, "sheet": table.sheet, "cells": table.cells}
            metadata: JsonObject = {name: value for name, value in origin.items() if value}
            metadata["columns"] = list(table.names)
            metadata[TABLE] = {"span": [place.start, place.end], "header": table.header}
            if len(spans) > 1:
                metadata[TABLE]["spans"] = [list(span) for span in spans]
            if table.numbers:
                metadata[TABLE] |= {
                    "column": table.column,
                    "numbers": [list(run) for run in table.numbers],
                }
            if table.cells:
                metadata[SOURCE_LOCATION] = f"sheet {table.sheet}, cells {table.cells}"
            else:
                near = node.segment._replace(locations=places.touching(place.start, place.end))
                metadata[SOURCE_LOCATION] = describe_span(near, (place.start, place.end))
            yield DocNode(text=table.csv, metadata=metadata)


def document_tables(root: Segment) -> list[PlacedTable]:
    """The first 10,000 tables of a document with their places in its text, in order."""
    located = [location for location in root.locations if location.kind == TABLE]
    tables = [PlacedTable(location, FoundTable.read(location.label)) for location in located]
    tables += _piped(root, located)
    return sorted(tables, key=lambda placed: placed.place.start)[:_MAX_TABLES]


class _Stretches:
    """Locations by their position: a page of thousands of tables has as many headings."""

    def __init__(self, locations: Iterable[Location]) -> None:
        self._sorted = sorted(locations, key=lambda location: location.start)
        self._starts = [location.start for location in self._sorted]
        self._reach = list(itertools.accumulate((location.end for location in self._sorted), max))

    def touching(self, start: int, end: int) -> Locations:
        """Those with a character between two positions."""
        some = self._sorted[bisect_right(self._reach, start) : bisect_left(self._starts, end)]
        return tuple(location for location in some if location.end > start)

    def contain(self, place: Location) -> bool:
        """Whether a place is within one of them."""
        touching = self.touching(place.start, place.end)
        return any(around.start <= place.start and place.end <= around.end for around in touching)


def _repeated(table: Sequence[list[str]], rows: Sequence[list[str]]) -> int | None:
    """How many rows at the head of a page repeat the head of a table on the page before; None if
    they are those of another table.
    """
    first, *body = table
    votes = header_votes(first, body)
    if rows[0] != first:
        is_body = votes > 0 > header_votes(rows[0], rows[1:])
        return 0 if is_body and _number_columns(body) == _number_columns(rows) else None
    count = 1
    while count < len(rows) and table[count : count + 1] == [rows[count]]:
        if header_votes(rows[count], body) < 0:
            break
        count += 1
    # below a blank corner, other names may follow
    below = [row for some in (table, rows) for row in some[count : count + 1]]
    is_complete = any(row[0] for row in rows[:count]) or all(
        header_votes(row, body) < 0 for row in below
    )
    return count if is_complete and votes >= 0 and any(first[1:]) else None


def _number_columns(rows: Sequence[Sequence[str]]) -> list[int]:
    """Of each column 1 if it is one of numbers, else 0."""
    width = max(map(len, rows))
    return [header_votes((*[""] * at, "name"), rows) for at in range(width)]


class _Pages(_Stretches):
    """The pages of a text."""

    def __init__(self, text: str, pages: Iterable[Location]) -> None:
        super().__init__(pages)
        self._text = text

    def are_joined(self, end: int, start: int) -> bool:
        """Whether only running heads, page numbers and the like are between the end of a table and
        the start of one on the next page.
        """
        first = bisect_left(self._starts, end) - 1
        if bisect_right(self._starts, start) != first + 2:
            return False
        edges: Counter[str] = Counter()
        for page in self._sorted[max(0, first - 1) : first + 3]:
            lines = _patterns(self._text[page.start : page.end])
            edges.update({*lines[:_EDGE], *lines[-_EDGE:]})
        between = _patterns(self._text[end:start])
        return all(edges[line] > 1 or _BETWEEN.search(line) for line in between)


def _patterns(text: str) -> list[str]:
    """Lines without the numbers of pages."""
    return [line for line in _PAGE_NUMBER.sub("#", text).splitlines() if line]


@dataclass(slots=True)
class _PipedTable:
    """Lines with ``|``: their cells, and the stretches that they are in."""

    rows: list[list[str]]
    spans: list[Span]
    has_rule: bool

    @classmethod
    def read(cls, run: Sequence[re.Match[str]]) -> _PipedTable:
        """The table of some lines."""
        has_rule = _RULE.fullmatch(run[1][0]) is not None
        rows = [_cells(line[0], bordered=has_rule) for line in run]
        if has_rule:
            del rows[1]
        return cls(rows, [(run[0].start(), run[-1].end())], has_rule)

    def goes_on(self, rows: Sequence[list[str]], run: Sequence[re.Match[str]]) -> bool:
        """Whether the rows at the head of the next page are of this table; it has them then, but
        for a repeated head.
        """
        count = _repeated(self.rows, rows)
        if count is None:
            return False
        self.rows += rows[count:]
        self.spans += [(line.start(), run[-1].end()) for line in run[count : count + 1]]
        return True

    def place(self) -> Iterator[PlacedTable]:
        """Yield the table with its place, unless it has one row or column, or is nearly empty."""
        width = max(map(len, self.rows))
        cells = sum(map(len, self.rows))
        if width * len(self.rows) > max(_MAX_EMPTY, _EMPTY_SHARE * cells):
            return  # one wide row among many narrow ones
        full = [tuple(row + [""] * (width - len(row))) for row in self.rows]
        header = int(self.has_rule or is_header(full[0], full[1:]))
        if width > 1 and len(full) > 1:
            place = Location(self.spans[0][0], self.spans[-1][1], TABLE, "")
            table = FoundTable(full[0] if header else (), tuple(full[header:]), header)
            yield PlacedTable(place, table, self.spans)


def _piped(root: Segment, located: Sequence[Location]) -> Iterator[PlacedTable]:
    """Tables of lines with ``|`` that are in no located table: with a rule below the header, or on
    pages; one that goes on at the head of the next page is one table.
    """
    text = content_text(root.content)
    pages = _Pages(text, (location for location in root.locations if location.kind == "page"))
    tables: list[_PipedTable] = []
    for run in _piped_runs(text, _Stretches(located)):
        table = _PipedTable.read(run)
        start, end = table.spans[0]
        if not table.has_rule:
            if not pages.contain(Location(start, end, TABLE, "")):
                continue
            is_next = bool(tables) and pages.are_joined(tables[-1].spans[-1][1], start)
            if is_next and tables[-1].goes_on(table.rows, run):
                continue
        tables.append(table)
    return itertools.chain.from_iterable(table.place() for table in tables)


def _piped_runs(text: str, tables: _Stretches) -> Iterator[list[re.Match[str]]]:
    """Two or more adjacent lines with ``|`` outside of tables."""
    run: list[re.Match[str]] = []
    for line in _LINE.finditer(text):
        if "|" not in line[0] or tables.touching(line.start(), line.start() + 1):
            continue
        if run and line.start() != run[-1].end() + 1:
            if len(run) > 1:
                yield run
            run = []
        run.append(line)
    if len(run) > 1:
        yield run


def _cells(line: str, *, bordered: bool) -> list[str]:
    """The cells of a line; a page has no ``|`` at its ends, except beside empty cells."""
    line = line.strip()
    inner = line.removeprefix("|") if bordered else line
    inner = inner.removesuffix("|") if len(inner) < len(line) else inner
    return [cell.strip().replace("\\|", "|") for cell in _SEPARATOR.split(inner)]
