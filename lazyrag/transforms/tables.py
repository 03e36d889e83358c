"""Tables of a document as nodes: the built-in group ``table``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from lazyrag.data.node import SOURCE_LOCATION, DocNode, describe_span
from lazyrag.data.segment import TABLE, Location
from lazyrag.data.tables import FoundTable, is_header
from lazyrag.transforms.base import NodeTransform

_LINE = re.compile(r"[^\n]+")
_RULE = re.compile(r"\s*\|?(?:\s*:?-+:?\s*\|)+\s*(?::?-+:?\s*)?")
_SEPARATOR = re.compile(r"(?<!\\)\|")


class TableExtractor(NodeTransform):
    """Makes a node of each table of a document: its text is the table as CSV, with the column names first.

    Tables are those that the document's loader found, those of Markdown text, and rows with ``|`` on the pages of a
    PDF. The metadata of a node has ``columns`` and, where known, ``caption``, ``sheet`` and ``cells``; ``table`` has
    its stretch in the document's text and the numbers of its rows.
    """

    identity = "TableExtractor/1"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """Yield the tables, in order."""
        import csv  # few programs need it

        located = [one for one in node.segment.locations if one.kind == TABLE]
        found = [(one, FoundTable.read(one.label)) for one in located]
        found += _piped(node, located)
        for place, table in sorted(found, key=lambda pair: pair[0].start):
            if any(len(cell) > csv.field_size_limit() for row in (table.names, *table.rows) for cell in row):
                continue  # a page within a frame, which no program reads from CSV
            known = {"caption": table.caption, "sheet": table.sheet, "cells": table.cells}
            metadata: dict[str, Any] = {name: value for name, value in known.items() if value}
            metadata["columns"] = list(table.names)
            metadata[TABLE] = {"span": [place.start, place.end], "header": table.header}
            if table.numbers:
                metadata[TABLE] |= {"column": table.column, "numbers": [list(run) for run in table.numbers]}
            where = describe_span(node.segment, (place.start, place.end))
            metadata[SOURCE_LOCATION] = f"sheet {table.sheet}, cells {table.cells}" if table.cells else where
            yield DocNode(text=table.csv, metadata=metadata)


def _piped(node: DocNode, known: Sequence[Location]) -> Iterator[tuple[Location, FoundTable]]:
    """Tables of lines with ``|`` that are in no known table: with a rule below the header, or on a page."""
    text = node.get_text()
    pages = [one for one in node.locations if one.kind == "page"]
    lines = [
        line
        for line in _LINE.finditer(text)
        if "|" in line[0] and not any(one.start <= line.start() < one.end for one in known)
    ]
    breaks = [0, *(at for at in range(1, len(lines)) if lines[at].start() != lines[at - 1].end() + 1), len(lines)]
    for first, end in itertools.pairwise(breaks):
        run = lines[first:end]
        place = Location(run[0].start(), run[-1].end(), TABLE, "") if run else None
        if place is None or len(run) < 2:
            continue
        has_rule = _RULE.fullmatch(run[1][0]) is not None
        if not has_rule and not any(one.start <= place.start and place.end <= one.end for one in pages):
            continue
        rows = [_cells(line[0], bordered=has_rule) for at, line in enumerate(run) if not (has_rule and at == 1)]
        width = max(map(len, rows))
        full = [tuple(row + [""] * (width - len(row))) for row in rows]
        header = int(has_rule or is_header(full[0], full[1:]))
        if width > 1 and len(full) > 1:
            yield place, FoundTable(full[0] if header else (), tuple(full[header:]), header)


def _cells(line: str, *, bordered: bool) -> list[str]:
    """The cells of a line; a page has no ``|`` at its ends, except beside empty cells."""
    line = line.strip()
    inner = line.removeprefix("|") if bordered else line
    inner = inner.removesuffix("|") if len(inner) < len(line) else inner
    return [cell.strip().replace("\\|", "|") for cell in _SEPARATOR.split(inner)]
