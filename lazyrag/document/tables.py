"""The tables of a Document, and read-only SQL over them: `Document.tables` and `Document.sql`."""

from __future__ import annotations

import csv
import datetime as dt
import io
import itertools
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lazyrag.data.node import DocNode
from lazyrag.data.segment import TABLE, Span
from lazyrag.data.tables import cell_range
from lazyrag.errors import ConfigError, missing_package, sentence
from lazyrag.validation import validate_integer, validate_text

if TYPE_CHECKING:
    from lazyrag.document.document import Document

_MAX_NAME = 60
_RESERVED = frozenset(
    (
        "all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create "
        "default deferrable desc describe distinct do else end except false fetch for foreign from group having in "
        "initially intersect into lambda lateral leading limit not null offset on only or order pivot placing primary "
        "qualify references returning select show some summarize symmetric table then to trailing true union unique "
        "unpivot using variadic when where window with asof at cross full inner is join left natural outer positional "
        "right semi anti try_cast glob rowid"  # rowid: number of a row, which finds its location
    ).split()
)
_ROW_BITS = 40  # of a row's number in its key; the number of its table is above
_MAX_ROW_LOCATIONS = 100
_TIME_LIMIT_S = 30.0
_SETTINGS: Mapping[str, Any] = {
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "memory_limit": "1GB",
    "python_enable_replacements": False,  # variables of this program
    "temp_directory": "",
    "threads": 1,  # the same rows in the same order every time
}
_TYPES = (
    ("BIGINT", re.compile(r"-?(?:0|[1-9]\d{0,17})")),
    # Longer numbers, as of accounts, would be rounded: they stay texts.
    ("DOUBLE", re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d+)?(?:e[-+]?\d{1,2})?", re.IGNORECASE)),
    ("DATE", re.compile(r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])")),
    (
        "TIMESTAMP",
        re.compile(r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])(?: (?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)?"),
    ),
    ("BOOLEAN", re.compile(r"true|false", re.IGNORECASE)),
)


@dataclass(frozen=True, slots=True)
class TableLocation:
    """Where a table or rows of it are.

    Args:
        path: Path of the document.
        location: The place for people, as `DocNode.location`.
        sheet: Name of the sheet; "" if it is not in a workbook.
        cells: The cells in the sheet, such as ``"A4:D4"``; "" if it is not in a workbook.
        span: Start and end in the document's text, for `Document.marks`, which has the boxes on a page; None if
            unknown.
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
        rows = csv.reader(io.StringIO(self.csv, newline=""))
        return [row or [""] for row in itertools.islice(rows, int(self._has_names), None)]

    def row_locations(self, numbers: Iterable[int], text: str = "") -> list[TableLocation]:
        """Where rows are.

        Args:
            numbers: Their numbers in `rows`, from 0.
            text: The document's text, for `TableLocation.span`; "" leaves that out.
        """
        where, header = self.location, int(self._place.get("header", 0))
        spans = _line_spans(text, where.span, len(self.rows) + header, header)
        runs = (range(first, last + 1) for first, last in self._place.get("numbers", ()))
        numbered = list(itertools.chain.from_iterable(runs))
        found = []
        for number in numbers:
            span = spans[number + header] if spans else None
            if not numbered:
                place = f"{where.location}, row {number + 1}".lstrip(", ")
                found.append(TableLocation(self.path, place, span=span))
                continue
            row = numbered[number + header]
            cells = cell_range(self._place["column"], len(self.columns), row, row)
            found.append(TableLocation(self.path, f"row {where.sheet} > {row}", where.sheet, cells, span))
        return found


class SqlRow(dict[str, Any]):
    """A row of a result of `Document.sql`: values by column.

    Attributes:
        locations: Where the rows of tables are that it was made of; the complete tables if they are not known row by
            row, as below subqueries, DISTINCT and UNION.
    """

    locations: tuple[TableLocation, ...] = ()


def _line_spans(text: str, span: Span | None, count: int, header: int) -> list[Span]:
    """The lines of a table's rows in the document's text; [] if a row is not a line there.

    Args:
        text: The document's text.
        span: The table's.
        count: Number of rows, header rows included.
        header: Number of header rows, which the text may leave out.
    """
    if span is None or not text:
        return []
    lines = [(one.start() + span[0], one.end() + span[0]) for one in re.finditer(r"[^\n]+", text[slice(*span)])]
    if len(lines) == count + 1 and not re.search(r"[^\s|:-]", text[slice(*lines[1])]):
        del lines[1]  # Markdown's rule below the names
    if len(lines) == count - header:  # CSV has the names in each row
        lines = [(span[0], span[0])] * header + lines
    return lines if len(lines) == count else []


def list_tables(docs: Document) -> list[Table]:
    """Return the tables of a Document; see `Document.tables`."""
    nodes = docs.get_nodes(TABLE)
    many = {path for path, some in itertools.groupby(nodes, lambda node: node.path) if len(list(some)) > 1}
    names: set[str] = set()
    return [_table(node, names, is_one_of_many=node.path in many) for node in nodes]


def _table(node: DocNode, names: set[str], *, is_one_of_many: bool) -> Table:
    own = node.metadata
    stem = re.sub(r"\.[^.]{1,8}$", "", node.path.rpartition("/")[2])
    title = str(own.get("sheet") or own.get("caption") or node.number) if is_one_of_many else ""
    name = _unique(_identifier(f"{stem} {title}", "table"), names)
    text = node.get_text()
    header = [str(column) for column in own.get("columns", ())]
    width = len(header) or len(next(csv.reader(io.StringIO(text, newline=""))))
    used: set[str] = set()
    columns = tuple(
        _unique(_identifier(column, f"column{at}"), used) for at, column in enumerate(header or [""] * width, start=1)
    )
    place = own.get(TABLE, {})
    start, end = place.get("span", (None, None))
    location = TableLocation(
        node.path,
        node.location,
        str(own.get("sheet", "")),
        str(own.get("cells", "")),
        None if start is None else (start, end),
    )
    return Table(name, node.path, columns, str(own.get("caption", "")), location, node.uid, text, bool(header), place)


def _identifier(text: str, default: str) -> str:
    """A name that SQL reads without quotation marks."""
    name = re.sub(r"\W+", "_", text.lower()).strip("_")[:_MAX_NAME] or default
    return f"_{name}" if name[0].isdecimal() else f"{name}_" if name in _RESERVED else name


def _unique(name: str, taken: set[str]) -> str:
    numbers = itertools.count(2)
    found = name
    while found in taken:
        found = f"{name}_{next(numbers)}"
    taken.add(found)
    return found


def run_sql(docs: Document, query: str, limit: int) -> list[SqlRow]:
    """Run a SELECT over the tables of a Document; see `Document.sql`."""
    validate_text("query", query)
    validate_integer("limit", limit, 1)
    try:
        import duckdb
    except ModuleNotFoundError as exc:
        raise missing_package("Document.sql", exc, "sql") from exc
    tables = list_tables(docs)
    try:
        with duckdb.connect(":memory:", config=dict(_SETTINGS)) as connection:
            statements = connection.extract_statements(query)
            if len(statements) != 1 or statements[0].type is not duckdb.StatementType.SELECT:
                msg = f"query must be one SELECT statement; got {query!r:.200}."
                raise ConfigError(f"{msg} Documents are changed by their files only.")
            asked = set(_table_names(_syntax(connection, query)))
            used = {at: table for at, table in enumerate(tables) if table.name in asked}
            for table in used.values():
                _fill(connection, table)
            connection.execute("SET lock_configuration = true")
            return _rows(docs, connection, query, limit, used)
    except duckdb.InterruptException as exc:
        msg = f"The query was interrupted after {_TIME_LIMIT_S:g} seconds."
        raise ConfigError(f"{msg} Ask for fewer rows, or for joins with a condition.") from exc
    except duckdb.Error as exc:
        problem = str(exc).partition("\n")[0]  # what follows are DuckDB's hints, which name its own tables
        known = ", ".join(f"{table.name}({', '.join(table.columns)})" for table in tables[:20]) or "none"
        raise ConfigError(f"The query fails. {sentence(problem)} Tables: {known}.") from exc


def _fill(connection: Any, table: Table) -> None:
    rows = table.rows
    types = [_type(row[at] for row in rows if at < len(row)) for at in range(len(table.columns))]
    columns = ", ".join(
        f"TRY_CAST(nullif(r[{at}], '') AS {kind}) AS \"{name}\""
        for at, (name, kind) in enumerate(zip(table.columns, types, strict=True), start=1)
    )
    query = f'CREATE TABLE "{table.name}" AS SELECT {columns} FROM (SELECT unnest(?::VARCHAR[][]) AS r)'  # noqa: S608
    connection.execute(query, [rows])


def _type(cells: Iterator[str]) -> str:
    """The type that all filled cells of a column have, except for formulas without a value."""
    kinds = list(_TYPES)
    for cell in cells:
        if cell and not cell.startswith("="):
            kinds = [(kind, form) for kind, form in kinds if form.fullmatch(cell) and _is_value(kind, cell)]
    return kinds[0][0] if 0 < len(kinds) < len(_TYPES) else "VARCHAR"


def _is_value(kind: str, cell: str) -> bool:
    """Whether a cell of a type's form is a value of it: February has no 30th day."""
    try:
        return kind not in ("DATE", "TIMESTAMP") or bool(dt.date.fromisoformat(cell[:10]))
    except ValueError:
        return False


def _rows(docs: Document, connection: Any, query: str, limit: int, used: Mapping[int, Table]) -> list[SqlRow]:
    from duckdb import BinderException

    tree = _syntax(connection, query)
    node = tree["statements"][0]["node"]
    joined = dict(_sources(node.get("from_table") or {}))
    beside = tuple(table.location for table in used.values() if table.name not in joined)  # in subqueries
    for located in _located(connection, tree, used):
        try:
            names, rows = _fetch(connection, located, limit)
            break
        except BinderException:  # its rows are not rows of the tables
            continue
    else:
        names, rows = _fetch(connection, query, limit)
        rows = [(*row, None) for row in rows]
        names = [*names, ""]
    taken: set[str] = set()
    columns = [_unique(name, taken) for name in names[:-1]]
    keys = [_known_keys(row[-1]) for row in rows]
    places = _places(docs, used, {key for some in keys if some is not None for key in some})
    result = []
    for (*values, _), some in zip(rows, keys, strict=True):
        row = SqlRow(zip(columns, values, strict=True))
        if some is None:
            row.locations = tuple(table.location for table in used.values())
        elif len(some) > _MAX_ROW_LOCATIONS:
            row.locations = (*(used[at].location for at in sorted({key >> _ROW_BITS for key in some})), *beside)
        else:
            row.locations = (*(places[key] for key in some), *beside)
        result.append(row)
    return result


def _known_keys(keys: Sequence[int | None] | None) -> list[int] | None:
    """The keys of rows, in order, without those of a join that found none."""
    return None if keys is None else sorted({key for key in keys if key is not None})


def _places(docs: Document, used: Mapping[int, Table], keys: Iterable[int]) -> dict[int, TableLocation]:
    """The locations of rows by key."""
    texts: dict[str, str] = {}
    found: dict[int, TableLocation] = {}
    for at, some in itertools.groupby(sorted(keys), lambda key: key >> _ROW_BITS):
        table, own = used[at], list(some)
        if table.path not in texts:
            texts[table.path] = docs.read(table.path)
        numbers = [key & ((1 << _ROW_BITS) - 1) for key in own]
        found.update(zip(own, table.row_locations(numbers, texts[table.path]), strict=True))
    return found


def _fetch(connection: Any, query: str, limit: int) -> tuple[list[str], list[tuple[Any, ...]]]:
    timer = threading.Timer(_TIME_LIMIT_S, connection.interrupt)
    timer.start()
    try:
        found = connection.execute(query)
        names = [column[0] for column in found.description]
        return names, found.fetchmany(limit)
    finally:
        timer.cancel()
        timer.join()  # else it may interrupt a closed connection


def _located(connection: Any, tree: Mapping[str, Any], used: Mapping[int, Table]) -> Iterator[str]:
    """The query with keys of the rows that each result row is made of as last column; two forms to try."""
    node = tree["statements"][0]["node"]
    kinds = {one["type"] for one in node.get("modifiers", ())}
    if node["type"] != "SELECT_NODE" or "DISTINCT_MODIFIER" in kinds:
        return
    numbers = {table.name: at for at, table in used.items()}
    keys = [
        f"""{numbers[name] << _ROW_BITS} + "{alias.replace('"', '""')}".rowid"""
        for name, alias in _sources(node.get("from_table") or {})
        if name in numbers
    ]
    if not keys:
        return
    selected = node["select_list"]
    of_rows = [] if node["aggregate_handling"] == "FORCE_AGGREGATES" else ["[{}]"]  # GROUP BY ALL would group by it
    for form in (*of_rows, "flatten(list([{}]))"):
        extra = _syntax(connection, f"SELECT {form.format(', '.join(keys))} AS _rows")
        node["select_list"] = [*selected, *extra["statements"][0]["node"]["select_list"]]
        yield connection.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchone()[0]


def _syntax(connection: Any, query: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone()[0])
    return found


def _table_names(tree: Any) -> Iterator[str]:
    """Names of all tables in a query."""
    if isinstance(tree, dict) and tree.get("type") == "BASE_TABLE":
        yield str(tree["table_name"]).lower()
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _table_names(part)


def _sources(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and aliases of the tables that a FROM clause joins."""
    if table.get("type") == "BASE_TABLE":
        name = str(table["table_name"]).lower()
        yield name, str(table.get("alias") or name)
    elif table.get("type") == "JOIN":
        yield from _sources(table["left"])
        yield from _sources(table["right"])
