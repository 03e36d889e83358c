"""Tables of a document as nodes: the built-in group ``table``."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from lazyrag.data.node import SOURCE_LOCATION, DocNode, describe_span
from lazyrag.data.segment import NOT_SHOWN, TABLE, Location, Segment, content_text
from lazyrag.data.tables import FoundTable, is_header
from lazyrag.transforms.base import NodeTransform
from lazyrag.types import JsonObject

_LINE = re.compile(r"[^\n]+")
_RULE = re.compile(r"\s*\|?(?:\s*:?-+:?\s*\|)+\s*(?::?-+:?\s*)?")
_MAX_CELL = 1 << 17
_MAX_TABLES = 10_000
_MAX_EMPTY = 1 << 16
_EMPTY_SHARE = 4
_SEPARATOR = re.compile(r"(?<!\\)\|")


class TableExtractor(NodeTransform):
    """Makes a node of each table of a document: its text is the table as CSV, with the column names
    first.

    Tables are those that the document's loader found, those of Markdown text, and rows with ``|``
    on the pages of a PDF, the first 10,000. The metadata of a node has ``columns`` and, where
    known, ``caption``, ``sheet`` and ``cells``; ``table`` has its stretch in the document's text
    and the numbers of its rows.
    """

    identity = "TableExtractor/1"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """Yield the tables, in order."""
        places = _Stretches(
            location for location in node.segment.locations if location.kind not in NOT_SHOWN
        )
        for place, table in document_tables(node.segment):
            cells = itertools.chain(table.names, *table.rows)
            if any(len(cell) > _MAX_CELL for cell in cells):
                continue  # a page within a frame, which no program reads from CSV
            origin = {"caption": table.caption, "sheet": table.sheet, "cells": table.cells}
            metadata: JsonObject = {name: value for name, value in origin.items() if value}
            metadata["columns"] = list(table.names)
            metadata[TABLE] = {"span": [place.start, place.end], "header": table.header}
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


def document_tables(root: Segment) -> list[tuple[Location, FoundTable]]:
    """The first 10,000 tables of a document with their places in its text, in order."""
    located = [location for location in root.locations if location.kind == TABLE]
    tables = [(location, FoundTable.read(location.label)) for location in located]
    tables += _piped(root, located)
    return sorted(tables, key=lambda pair: pair[0].start)[:_MAX_TABLES]


class _Stretches:
    """Locations by their position: a page of thousands of tables has as many headings."""

    def __init__(self, locations: Iterable[Location]) -> None:
        self._sorted = sorted(locations, key=lambda location: location.start)
        self._starts = [location.start for location in self._sorted]
        self._reach = list(itertools.accumulate((location.end for location in self._sorted), max))

    def touching(self, start: int, end: int) -> tuple[Location, ...]:
        """Those with a character between two positions."""
        some = self._sorted[bisect_right(self._reach, start) : bisect_left(self._starts, end)]
        return tuple(location for location in some if location.end > start)

    def contain(self, place: Location) -> bool:
        """Whether a place is within one of them."""
        touching = self.touching(place.start, place.end)
        return any(around.start <= place.start and place.end <= around.end for around in touching)


def _piped(root: Segment, located: Sequence[Location]) -> Iterator[tuple[Location, FoundTable]]:
    """Tables of lines with ``|`` that are in no located table: with a rule below the header, or on
    a page.
    """
    pages = _Stretches(location for location in root.locations if location.kind == "page")
    for run in _piped_runs(content_text(root.content), _Stretches(located)):
        place = Location(run[0].start(), run[-1].end(), TABLE, "")
        has_rule = _RULE.fullmatch(run[1][0]) is not None
        if not has_rule and not pages.contain(place):
            continue
        rows = [_cells(line[0], bordered=has_rule) for line in run]
        if has_rule:
            del rows[1]
        width = max(map(len, rows))
        if width * len(rows) > max(_MAX_EMPTY, _EMPTY_SHARE * sum(map(len, rows))):
            continue  # one wide row among many narrow ones
        full = [tuple(row + [""] * (width - len(row))) for row in rows]
        header = int(has_rule or is_header(full[0], full[1:]))
        if width > 1 and len(full) > 1:
            yield place, FoundTable(full[0] if header else (), tuple(full[header:]), header)


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
