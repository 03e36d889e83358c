"""Databases: `DatabaseSource` reads the rows of a query."""

from __future__ import annotations

import functools
import itertools
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from lazyrag.errors import ConfigError, LazyRAGError, LoadError, known_names, optional_package
from lazyrag.progress.blocks import contextmanager
from lazyrag.sources.base import BaseSource, Event, RecordForm, digest
from lazyrag.validation import known_arguments, require, validate_integer, validate_text

Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]
Rows: TypeAlias = tuple[Sequence[str], Iterator[Sequence[Any]]]
"""Names of the columns, and the rows in batches."""

_READ_ONLY = {
    "mysql": "SET SESSION TRANSACTION READ ONLY",
    "mariadb": "SET SESSION TRANSACTION READ ONLY",
}


def _rows_of(
    connect: Callable[[], Any] | str, query: str, parameters: Parameters, batch: int
) -> Callable[[], AbstractContextManager[Rows]]:
    """A function that runs the query, each time on a new connection."""
    if isinstance(connect, str):
        is_valid = isinstance(parameters, Mapping) or not parameters
        require(
            is_valid,
            "parameters",
            type(parameters),
            "a mapping for a URL, with placeholders as :name",
        )
        return functools.partial(
            _through_sqlalchemy, _sqlalchemy_url(connect), query, dict(parameters or {}), batch
        )
    # Connections of sqlite3 are callable, too.
    is_function = callable(connect) and (
        isinstance(connect, type) or not hasattr(connect, "cursor")
    )
    expected = "a function that opens a connection, or a URL of SQLAlchemy"
    require(
        is_function, "connect", type(connect), expected, "Each run opens a connection of its own."
    )
    return functools.partial(_through_connection, connect, query, parameters, batch)


@contextmanager
def _through_connection(
    connect: Callable[[], Any], query: str, parameters: Parameters, batch: int
) -> Iterator[Rows]:
    with _explained():
        connection = connect()
    try:
        with _explained():
            if isinstance(connection, sqlite3.Connection):
                connection.execute("PRAGMA query_only = ON")
            cursor = connection.cursor()
            cursor.arraysize = batch
            # Without parameters, some modules take a percent sign as itself.
            cursor.execute(query, parameters) if parameters else cursor.execute(query)
        if cursor.description is None:
            raise _no_rows()
        yield (
            [str(column[0]) for column in cursor.description],
            _batches(lambda: cursor.fetchmany(batch)),
        )
    finally:
        try:
            with _explained():
                connection.rollback()
        finally:
            connection.close()


def _no_rows() -> LoadError:
    return LoadError(
        "The query returns no rows. Pass one that does, such as a SELECT.", loader="DatabaseSource"
    )


def _batches(fetch: Callable[[], Sequence[Any]]) -> Iterator[Sequence[Any]]:
    while True:
        with _explained():
            rows = fetch()
        if not rows:
            return
        yield rows


def _sqlalchemy_url(url: str) -> Any:
    with optional_package("DatabaseSource with a URL", "sql"):
        from sqlalchemy.engine import make_url  # an extra
    try:
        return make_url(url)
    except Exception as exc:
        raise ConfigError(
            "connect must be a URL of SQLAlchemy such as 'sqlite:///teas.db'; the one given is not"
            " shown."
        ) from exc


@contextmanager
def _through_sqlalchemy(
    url: Any, query: str, parameters: Mapping[str, Any], batch: int
) -> Iterator[Rows]:
    import sqlalchemy  # an extra
    from sqlalchemy.pool import NullPool

    hidden = str(url.password or "")
    with _explained(hidden):
        engine = sqlalchemy.create_engine(url, poolclass=NullPool, hide_parameters=True)
        connection = engine.connect()
    try:
        with _explained(hidden):
            _make_read_only(connection)
            result = connection.execution_options(yield_per=batch).execute(
                sqlalchemy.text(query), parameters
            )
        if not result.returns_rows:
            raise _no_rows()
        yield list(result.keys()), _batches(lambda: result.fetchmany(batch))
    finally:
        with _explained(hidden):
            connection.close()  # rolls back
            engine.dispose()


def _make_read_only(connection: Any) -> None:
    dialect = connection.dialect.name
    if dialect == "sqlite":
        connection.exec_driver_sql("PRAGMA query_only = ON")
    elif dialect == "postgresql":
        connection.execution_options(postgresql_readonly=True)
    elif dialect in _READ_ONLY:
        connection.exec_driver_sql(_READ_ONLY[dialect])
        connection.rollback()  # it holds from the next transaction on


@contextmanager
def _explained(hidden: str = "") -> Iterator[None]:
    """Turn errors of the database into LoadErrors, without the password."""
    try:
        yield
    except LazyRAGError:
        raise
    except Exception as exc:
        problem = f"{type(exc).__name__}: {exc}".strip()
        problem = problem.replace(hidden, "***") if hidden else problem
        advice = "Check the connection, the query and its parameters."
        if isinstance(exc, ModuleNotFoundError):
            advice = "Install this driver of the database, or name another one in the URL."
        msg = f"The database did not answer the query ({problem:.300}). {advice}"
        raise LoadError(msg, loader="DatabaseSource") from exc


@known_arguments
class DatabaseSource(BaseSource):
    r"""Reads the rows of a query; each is an item.

    Rows are fetched in batches, so a table may be larger than memory. The transaction is rolled
    back at the end, and connections to SQLite, PostgreSQL and MySQL by a URL, and those of
    `sqlite3`, are read-only.

    Args:
        connect: A function that opens a connection of any DB-API module, such as
            ``lambda: sqlite3.connect("teas.db")``; or a URL of SQLAlchemy (extra ``sql``), such as
            ``"postgresql+psycopg://user@host/teas"``.
        query: One statement that returns rows.
        identity: The columns that identify a row from run to run; a single one as a text.
        template: A text with column names in braces, as in ``"{name} costs {price}"``; None for a
            line ``column: value`` for each of ``fields``.
        fields: The columns that become text; () for all. Columns of bytes are skipped.
        metadata: The columns that become metadata.
        parameters: Values for the query's placeholders, bound by the database: a list for ``?`` and
            ``%s``, a mapping for ``:name``. A URL takes a mapping.
        batch: Rows fetched at a time.
        name: Identifies the source to its folder; None for a hash of the query, so that two queries
            do not share a folder by mistake. Pass one if you are going to edit the query.

    Raises:
        ConfigError: If a value is of the wrong kind.
        MissingDependencyError: If a URL is given and SQLAlchemy is not installed.

    Example:
        >>> import sqlite3, tempfile
        >>> def connect():
        ...     connection = sqlite3.connect(":memory:")
        ...     connection.execute("CREATE TABLE teas (id, name, price)")
        ...     connection.execute("INSERT INTO teas VALUES (1, 'Sencha', 12.5)")
        ...     return connection
        >>> query = "SELECT * FROM teas WHERE price > ?"
        >>> teas = DatabaseSource(connect, query, identity="id", parameters=[10])
        >>> [item.text for item in teas.load()]
        ['id: 1\nname: Sencha\nprice: 12.5']
    """

    def __init__(
        self,
        connect: Callable[[], Any] | str,
        query: str,
        *,
        identity: str | Sequence[str],
        template: str | None = None,
        fields: Sequence[str] = (),
        metadata: Sequence[str] = (),
        parameters: Parameters = (),
        batch: int = 500,
        name: str | None = None,
    ) -> None:
        validate_text("query", query)
        is_valid = isinstance(parameters, (list, tuple, Mapping))
        require(is_valid, "parameters", type(parameters), "a list or a mapping")
        # a new one for each run
        self._form = functools.partial(RecordForm, identity, template, fields, metadata)
        self._form()
        self._name = f"database {digest(query)}" if name is None else validate_text("name", name)
        self._rows = _rows_of(connect, query, parameters, validate_integer("batch", batch, 1))

    def __repr__(self) -> str:
        return f"DatabaseSource({self._name!r})"

    @property
    def name(self) -> str:
        """The argument, or a hash of the query."""
        return self._name

    def items(self) -> Iterator[Event]:
        """Run the query.

        Raises:
            LoadError: If the database refuses it, or a column is missing.
        """
        form = self._form()
        with self._rows() as (columns, batches):
            _check_columns(columns, form.names)
            for number, row in enumerate(itertools.chain.from_iterable(batches), start=1):
                yield form.item(dict(zip(columns, row, strict=True)), f"row {number}")


def _check_columns(columns: Sequence[str], named: Sequence[str]) -> None:
    twice = sorted({column for column in columns if list(columns).count(column) > 1})
    if twice:
        msg = f"The query returns several columns named {twice[0]!r}. Rename them with AS."
        raise LoadError(msg, loader="DatabaseSource")
    for name in named:
        # Paths reach into columns of JSON objects and lists.
        if name not in columns and name.partition(".")[0].partition("[")[0] not in columns:
            msg = f"The query returns no column {name!r}. {known_names(name, columns)}"
            raise LoadError(msg, loader="DatabaseSource")
