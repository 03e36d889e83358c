"""The process that runs SQL for `Tables.sql`: DuckDB in a process of its own, whose memory is
limited.

DuckDB's own limit leaves out what it holds of long strings, and a thread cannot be ended. Started
as a script, this module imports nothing else of the package.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from lazyrag.types import JsonMapping, JsonObject

Rows: TypeAlias = "tuple[list[str], list[str], list[tuple[Any, ...]]]"
"""Tables that are joined, names of columns, and rows; the last column has the keys of the rows that
each is made of."""

ROW_BITS = 40  # of a row's number in its key; the number of its table is above
PROGRAM = __file__
MEMORY = 1 << 30
"""Bytes that a query may take."""
_MAX_RESULT = 1 << 26
_SETTINGS: Mapping[str, Any] = {
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "memory_limit": "768MB",
    "python_enable_replacements": False,  # variables of this program
    "temp_directory": "",
    "threads": 1,  # the same rows in the same order every time
}
_DATE = r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_TYPES = (
    ("BIGINT", re.compile(r"-?(?:0|[1-9]\d{0,17})")),
    # Longer numbers, as of accounts, would be rounded: they stay texts.
    ("DOUBLE", re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d+)?(?:e[-+]?\d{1,2})?", re.IGNORECASE)),
    ("DATE", re.compile(_DATE)),
    ("TIMESTAMP", re.compile(_DATE + r"(?: (?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)?")),
    ("BOOLEAN", re.compile(r"true|false", re.IGNORECASE)),
)


# Values that JSON has not are pairs of a tag and a value that it has.
_TAGGED: Mapping[type, Callable[[Any], Any]] = {
    bytes: bytes.hex,
    dict: lambda value: [[encode(key), encode(item)] for key, item in value.items()],
    dt.date: dt.date.isoformat,
    dt.datetime: dt.datetime.isoformat,
    dt.time: dt.time.isoformat,
    dt.timedelta: lambda value: [value.days, value.seconds, value.microseconds],
    list: lambda value: [*map(encode, value)],
    tuple: lambda value: [*map(encode, value)],
    uuid.UUID: str,
    Decimal: str,
}
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "bytes": bytes.fromhex,
    "dict": lambda value: {decode(key): decode(item) for key, item in value},
    "date": dt.date.fromisoformat,
    "datetime": dt.datetime.fromisoformat,
    "time": dt.time.fromisoformat,
    "timedelta": lambda value: dt.timedelta(*value),
    "list": lambda value: [*map(decode, value)],
    "tuple": lambda value: tuple(map(decode, value)),
    "UUID": uuid.UUID,
    "Decimal": Decimal,
}


def encode(value: Any) -> Any:
    """A value of a result as JSON, for `decode`."""
    kind = type(value)
    return [kind.__name__, _TAGGED[kind](value)] if kind in _TAGGED else value


def decode(value: Any) -> Any:
    """The value that `encode` wrote."""
    return _READERS[value[0]](value[1]) if isinstance(value, list) else value


def run(source: BinaryIO, target: BinaryIO) -> None:
    """Receive a query, send the names of its tables, receive these, and send the rows, or an
    error.
    """
    path, query, limit = json.loads(source.readline())
    sys.path[:] = path
    import duckdb

    def send(*answer: Any) -> None:
        data = json.dumps(answer, default=str).encode()
        target.write((data if len(data) <= _MAX_RESULT else b'["memory"]') + b"\n")
        target.flush()

    try:
        with duckdb.connect(":memory:", config=dict(_SETTINGS)) as connection:
            _limit()
            statements = connection.extract_statements(query)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                send("statement")
                return
            tree = _syntax(connection, query)
            send("tables", *_table_names(tree))
            tables: list[tuple[int, str, Sequence[str], list[list[str]]]] = json.loads(
                source.readline()
            )
            for _, name, columns, cells in tables:
                _fill(connection, name, columns, cells)
            connection.execute("SET lock_configuration = true")
            joined, names, rows = _rows(
                connection, query, limit, {name: number for number, name, *_ in tables}
            )
            send("rows", joined, names, [[*map(encode, row)] for row in rows])
    except (duckdb.OutOfMemoryException, MemoryError):
        send("memory")
    except RecursionError:
        send("error", "It is nested too deep.")
    except duckdb.Error as exc:
        # what follows are hints, which name DuckDB's own tables
        send("error", str(exc).partition("\n")[0])


def _limit() -> None:
    """Let the system refuse more memory, and files of any length."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (120, 120))  # seconds, if nobody is left to end it
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (ImportError, OSError):
        return
    most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _fill(
    connection: Any, name: str, columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    types = [_type(rows, at) for at in range(len(columns))]
    selected = ", ".join(
        f"TRY_CAST(nullif(r[{at}], '') AS {kind}) AS \"{column}\""
        for at, (column, kind) in enumerate(zip(columns, types, strict=True), start=1)
    )
    cells = "(SELECT unnest(?::VARCHAR[][]) AS r)"
    query = f'CREATE TABLE "{name}" AS SELECT {selected} FROM {cells}'  # noqa: S608
    connection.execute(query, [rows])


def _type(rows: Sequence[Sequence[str]], at: int) -> str:
    """The type that all filled cells of a column have, except for formulas without a value."""
    kinds = list(_TYPES)
    for row in rows:
        cell = row[at] if at < len(row) else ""
        if cell and not cell.startswith("="):
            kinds = [
                (kind, form)
                for kind, form in kinds
                if form.fullmatch(cell) and _is_value(kind, cell)
            ]
    return kinds[0][0] if 0 < len(kinds) < len(_TYPES) else "VARCHAR"


def _is_value(kind: str, cell: str) -> bool:
    """Whether a cell of a type's form is a value of it: February has no 30th day."""
    try:
        return kind not in ("DATE", "TIMESTAMP") or bool(dt.date.fromisoformat(cell[:10]))
    except ValueError:
        return False


def _rows(connection: Any, query: str, limit: int, numbers: Mapping[str, int]) -> Rows:
    from duckdb import BinderException

    tree = _syntax(connection, query)
    joined = {name for name, _ in _sources(tree["statements"][0]["node"].get("from_table") or {})}
    for located in _located(connection, tree, numbers):
        try:
            return [*joined], *_fetch(connection, located, limit)
        except BinderException:  # its rows are not rows of the tables
            continue
    names, rows = _fetch(connection, query, limit)
    return [*joined], [*names, ""], [(*row, None) for row in rows]


def _fetch(connection: Any, query: str, limit: int) -> tuple[list[str], list[tuple[Any, ...]]]:
    result = connection.execute(query)
    return [column[0] for column in result.description], result.fetchmany(limit)


def _located(connection: Any, tree: JsonMapping, numbers: Mapping[str, int]) -> Iterator[str]:
    """The query with keys of the rows that each result row is made of as last column; two forms to
    try.
    """
    node = tree["statements"][0]["node"]
    kinds = {modifier["type"] for modifier in node.get("modifiers", ())}
    if node["type"] != "SELECT_NODE" or "DISTINCT_MODIFIER" in kinds:
        return
    keys = [
        f"""{numbers[name] << ROW_BITS} + "{alias.replace('"', '""')}".rowid"""
        for name, alias in _sources(node.get("from_table") or {})
        if name in numbers
    ]
    if not keys:
        return
    selected = node["select_list"]
    # GROUP BY ALL would group by it
    of_rows = [] if node["aggregate_handling"] == "FORCE_AGGREGATES" else ["[{}]"]
    for form in (*of_rows, "flatten(list([{}]))"):
        extra = _syntax(connection, f"SELECT {form.format(', '.join(keys))} AS _rows")
        node["select_list"] = [*selected, *extra["statements"][0]["node"]["select_list"]]
        [text] = connection.execute(
            "SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]
        ).fetchone()
        yield text


def _syntax(connection: Any, query: str) -> JsonObject:
    [text] = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone()
    tree: JsonObject = json.loads(text)
    return tree


def _table_names(tree: Any) -> Iterator[str]:
    """Names of all tables in a query."""
    if isinstance(tree, dict) and tree.get("type") == "BASE_TABLE":
        yield str(tree["table_name"]).lower()
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list):
        for part in tree:
            yield from _table_names(part)


def _sources(table: JsonMapping) -> Iterator[tuple[str, str]]:
    """Names and aliases of the tables that a FROM clause joins."""
    if table.get("type") == "BASE_TABLE":
        name = str(table["table_name"]).lower()
        yield name, str(table.get("alias") or name)
    elif table.get("type") == "JOIN":
        yield from _sources(table["left"])
        yield from _sources(table["right"])


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else is printed among the answers
    run(sys.stdin.buffer, answers)
