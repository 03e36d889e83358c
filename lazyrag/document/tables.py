"""The tables of a Document, and read-only SQL over them: `Document.tables`."""

from __future__ import annotations

import builtins
import io
import itertools
import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from lazyrag.data.node import DocNode
from lazyrag.data.segment import TABLE, Span
from lazyrag.data.tables import cell_range
from lazyrag.document.sql_process import MEMORY, PROGRAM, ROW_BITS, decode
from lazyrag.errors import ConfigError, missing_package, sentence
from lazyrag.read.catalogue import read_text_of
from lazyrag.read.scope import Collection
from lazyrag.validation import known_keywords, validate_integer, validate_text

_MAX_NAME = 60
_RESERVED = frozenset(
    (
        "all analyse analyze and any array as asc asymmetric both case cast check collate column"
        " constraint create "
        "default deferrable desc describe distinct do else end except false fetch for foreign from"
        " group having in "
        "initially intersect into lambda lateral leading limit not null offset on only or order"
        " pivot placing primary "
        "qualify references returning select show some summarize symmetric table then to trailing"
        " true union unique "
        "unpivot using variadic when where window with asof at cross full inner is join left"
        " natural outer positional "
        "right semi anti try_cast glob rowid"  # rowid: number of a row, which finds its location
    ).split()
)
_MAX_ROW_LOCATIONS = 100
_START_S = 60.0
_TIME_LIMIT_S = 30.0
_EXCEEDED = {
    "time": (
        f"The query was interrupted after {_TIME_LIMIT_S:g} seconds. Ask for less, or for joins"
        " with a condition."
    ),
    "memory": (
        f"The query needs more than {MEMORY >> 20} MiB of memory. Ask for fewer rows, or for"
        " shorter values."
    ),
}


@dataclass(frozen=True, slots=True)
class TableLocation:
    """Where a table or rows of it are.

    Args:
        path: Path of the document.
        location: The place for people, as `DocNode.location`.
        sheet: Name of the sheet; "" if it is not in a workbook.
        cells: The cells in the sheet, such as ``"A4:D4"``; "" if it is not in a workbook.
        span: Start and end in the document's text, for `lazyrag.read.marks`, which has the boxes on
            a page; None if unknown.
    """

    path: str
    location: str
    sheet: str = ""
    cells: str = ""
    span: Span | None = None

    def __str__(self) -> str:
        return f"{self.path}, {self.location}" if self.location else self.path


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a document.

    Args:
        name: Its name in SQL.
        path: Path of its document.
        columns: Names of its columns in SQL.
        caption: Its title; "" for none.
        location: Where it is.
        uid: Uid of its node in the group ``table``.
        csv: All of it as CSV, with the column names of the document first.
    """

    name: str
    path: str
    columns: tuple[str, ...]
    caption: str
    location: TableLocation
    uid: str
    csv: str = field(repr=False)
    _has_names: bool = field(default=True, repr=False)
    _place: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def rows(self) -> list[list[str]]:
        """The cells of the rows below the column names."""
        import csv

        rows = csv.reader(io.StringIO(self.csv, newline=""))
        return [row or [""] for row in itertools.islice(rows, int(self._has_names), None)]

    def row_locations(self, numbers: Iterable[int], text: str = "") -> list[TableLocation]:
        """Where rows are.

        Args:
            numbers: Their numbers in `rows`, from 0.
            text: The document's text, for `TableLocation.span`; "" leaves that out.
        """
        where = self.location
        header = int(self._place.get("header", 0))
        stretches = self._place.get("spans") or [where.span]
        spans = _line_spans(text, stretches, len(self.rows) + header, header)
        runs = (range(first, last + 1) for first, last in self._place.get("numbers", ()))
        sheet_rows = list(itertools.chain.from_iterable(runs))
        locations = []
        for number in numbers:
            span = spans[number + header] if spans else None
            if not sheet_rows:
                label = f"{where.location}, row {number + 1}".lstrip(", ")
                locations.append(TableLocation(self.path, label, span=span))
                continue
            row = sheet_rows[number + header]
            label = f"row {where.sheet} > {row}"
            cells = cell_range(self._place["column"], len(self.columns), row, row)
            locations.append(TableLocation(self.path, label, where.sheet, cells, span))
        return locations


class SqlRow(dict[str, Any]):
    """A row of a result of `Tables.sql`: values by column.

    Attributes:
        locations: Where the rows of tables are that it was made of; the complete tables if they are
            not known row by row, as below subqueries, DISTINCT and UNION.
    """

    locations: tuple[TableLocation, ...] = ()


class Tables:
    """The tables of a Document's documents, and SQL over them."""

    def __init__(self, docs: Collection) -> None:
        self._docs = docs

    if not TYPE_CHECKING:  # a checker would accept the call

        def __call__(self, *_args: object, **_kwargs: object) -> None:
            """Refuse the call of release 0.2."""
            raise TypeError("docs.tables is not a method. Use docs.tables.list().")

    def list(self) -> list[Table]:
        r"""Return the tables of the documents, by document in order of path.

        They are the nodes of the built-in group ``table``, which retrievers search by any of their
        cells.

        Raises:
            IngestionError: If every document fails.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"prices.md": "| tea | EUR |\n|---|---|\n| green | 4.5 |"})
            >>> [(table.name, table.columns, table.rows) for table in docs.tables.list()]
            [('prices', ('tea', 'eur'), [['green', '4.5']])]
        """
        nodes = self._docs.get_nodes(TABLE)
        counts = Counter(node.path for node in nodes)
        names: set[str] = set()
        return [make_table(node, names, is_one_of_many=counts[node.path] > 1) for node in nodes]

    @known_keywords
    def sql(self, query: str, *, limit: int = 1_000) -> builtins.list[SqlRow]:
        """Run a SELECT statement over the tables. It can read nothing else: no file, no network,
        no variable.

        Each row of the result has ``locations``: where the rows of the tables are that it was made
        of. Columns of numbers, dates and booleans have these types, empty cells are NULL. Needs
        lazyrag[sql], which installs DuckDB.

        Args:
            query: One SELECT statement in the dialect of DuckDB; names as in `list`.
            limit: At most so many rows.

        Raises:
            ConfigError: If it is not one SELECT statement, or fails.
            MissingDependencyError: If DuckDB is not installed.
        """
        validate_text("query", query)
        validate_integer("limit", limit, 1)
        if find_spec("duckdb") is None:
            raise missing_package("Document.tables.sql", "duckdb", "sql")
        tables = self.list()
        queried, status, answer = _run_query(tables, query, limit)
        if status == "rows":
            joined, names, encoded = answer
            rows = [tuple(map(decode, row)) for row in encoded]
            return _locate_rows(self._docs, queried, joined, names, rows)
        if status == "error":
            described = [f"{table.name}({', '.join(table.columns)})" for table in tables[:20]]
            listed = ", ".join(described) or "none"
            raise ConfigError(f"The query fails. {sentence(answer[0])} Tables: {listed}.")
        statement = (
            f"query must be one SELECT statement; got {query!r:.200}. Documents are changed by"
            " their files only."
        )
        raise ConfigError(statement if status == "statement" else _EXCEEDED[status])


def _line_spans(text: str, stretches: Sequence[Span | None], count: int, header: int) -> list[Span]:
    """The lines of a table's rows in the document's text; [] if a row is not a line there.

    Args:
        text: The document's text.
        stretches: Those of its lines.
        count: Number of rows, header rows included.
        header: Number of header rows, which the text may leave out.
    """
    if stretches[0] is None or not text:
        return []
    lines = [
        match.span()
        for start, end in filter(None, stretches)
        for match in re.compile(r"[^\n]+").finditer(text, start, end)
    ]
    if len(lines) == count + 1 and not re.search(r"[^\s|:-]", text[slice(*lines[1])]):
        del lines[1]  # Markdown's rule below the names
    if len(lines) == count - header:  # CSV has the names in each row
        start = stretches[0][0]
        lines = [(start, start)] * header + lines
    return lines if len(lines) == count else []


def make_table(node: DocNode, names: set[str], *, is_one_of_many: bool) -> Table:
    """The table of a node of the group ``table``.

    Args:
        node: The node.
        names: Names in SQL that are taken; that of the table is added.
        is_one_of_many: Whether its document has more tables, so that its title is in its name.
    """
    import csv

    metadata = node.metadata
    stem = re.sub(r"\.[^.]{1,8}$", "", node.path.rpartition("/")[2])
    title = (
        str(metadata.get("sheet") or metadata.get("caption") or node.number)
        if is_one_of_many
        else ""
    )
    name = _unique(_identifier(f"{stem} {title}", "table"), names)
    text = node.get_text()
    header = [str(column) for column in metadata.get("columns", ())]
    width = len(header) or len(next(csv.reader(io.StringIO(text, newline=""))))
    used: set[str] = set()
    columns = tuple(
        _unique(_identifier(column, f"column{at}"), used)
        for at, column in enumerate(header or [""] * width, start=1)
    )
    place = metadata.get(TABLE, {})
    start, end = place.get("span", (None, None))
    location = TableLocation(
        node.path,
        node.location,
        str(metadata.get("sheet", "")),
        str(metadata.get("cells", "")),
        None if start is None else (start, end),
    )
    return Table(
        name,
        node.path,
        columns,
        str(metadata.get("caption", "")),
        location,
        node.uid,
        text,
        bool(header),
        place,
    )


def _identifier(text: str, default: str) -> str:
    """A name that SQL reads without quotation marks."""
    name = re.sub(r"\W+", "_", text.lower()).strip("_")[:_MAX_NAME] or default
    if name[0].isdecimal():
        return f"_{name}"
    return f"{name}_" if name in _RESERVED else name


def _unique(name: str, taken: set[str]) -> str:
    numbers = itertools.count(2)
    unique = name
    while unique in taken:
        unique = f"{name}_{next(numbers)}"
    taken.add(unique)
    return unique


def _run_query(
    tables: Sequence[Table], query: str, limit: int
) -> tuple[dict[int, Table], str, Sequence[Any]]:
    """Run a query in a process of its own; return the tables in it by number, and the answer."""
    queried = {}
    with subprocess.Popen(  # noqa: S603  our own module
        [sys.executable, "-P", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            paths = list(map(str, sys.path))
            status, *answer = _ask(process, (paths, query, limit), _START_S)
            if status == "tables":
                queried = {at: table for at, table in enumerate(tables) if table.name in answer}
                content = [
                    (at, table.name, table.columns, table.rows) for at, table in queried.items()
                ]
                status, *answer = _ask(process, content, _TIME_LIMIT_S)
        finally:
            process.kill()
            with suppress(OSError):  # what it has not read
                cast("BinaryIO", process.stdin).close()
    return queried, status, answer


def _ask(process: subprocess.Popen[bytes], message: object, seconds: float) -> Sequence[Any]:
    """Send a message to the process and return its answer, or which limit ended it."""
    until = time.monotonic() + seconds
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        pipe = cast("BinaryIO", process.stdin)
        pipe.write(json.dumps(message).encode() + b"\n")
        pipe.flush()
        answer: list[Any] = json.loads(cast("BinaryIO", process.stdout).readline())
    except (OSError, ValueError):  # it was ended
        return ("time",) if time.monotonic() >= until else ("memory",)
    else:
        return answer
    finally:
        timer.cancel()
        timer.join()


def _locate_rows(
    docs: Collection,
    tables: Mapping[int, Table],
    joined: Container[str],
    names: list[str],
    rows: list[tuple[Any, ...]],
) -> list[SqlRow]:
    """Return the rows of a result with their locations; the last value of each has the keys of the
    rows that it was made of.
    """
    # in subqueries
    beside = tuple(table.location for table in tables.values() if table.name not in joined)
    taken: set[str] = set()
    columns = [_unique(name, taken) for name in names[:-1]]
    row_keys = [_sorted_keys(row[-1]) for row in rows]
    all_keys: set[int] = set()
    all_keys.update(*(keys for keys in row_keys if keys is not None))
    locations = _locate_keys(docs, tables, all_keys)
    result = []
    for (*values, _), keys in zip(rows, row_keys, strict=True):
        row = SqlRow(zip(columns, values, strict=True))
        if keys is None:
            row.locations = tuple(table.location for table in tables.values())
        elif len(keys) > _MAX_ROW_LOCATIONS:
            numbers = sorted({key >> ROW_BITS for key in keys})
            row.locations = (*(tables[number].location for number in numbers), *beside)
        else:
            row.locations = (*(locations[key] for key in keys), *beside)
        result.append(row)
    return result


def _sorted_keys(keys: Sequence[int | None] | None) -> list[int] | None:
    """The keys of rows, in order, without those of a join that found none."""
    return None if keys is None else sorted({key for key in keys if key is not None})


def _locate_keys(
    docs: Collection, tables: Mapping[int, Table], keys: Iterable[int]
) -> dict[int, TableLocation]:
    """The locations of rows by key."""
    texts = {}
    locations: dict[int, TableLocation] = {}
    for number, grouped in itertools.groupby(sorted(keys), lambda key: key >> ROW_BITS):
        table = tables[number]
        if table.path not in texts:
            texts[table.path] = read_text_of(docs.reader, table.path, None)
        table_keys = list(grouped)
        rows = [key & ((1 << ROW_BITS) - 1) for key in table_keys]
        located = table.row_locations(rows, texts[table.path])
        locations.update(zip(table_keys, located, strict=True))
    return locations
