"""The rows of a database query."""

from __future__ import annotations

import functools
import itertools
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

from lazyrag.errors import ConfigError, LazyRAGError, LoadError, known_names, missing_package
from lazyrag.sources.base import Event, FetchReport, LoadedItem, RecordForm, digest, fetch, loaded_items
from lazyrag.validation import known_arguments, whole_number

Rows: TypeAlias = "tuple[Sequence[str], Iterator[Sequence[Any]]]"
"""Names of the columns, and the rows in batches."""

_READ_ONLY = {"mysql": "SET SESSION TRANSACTION READ ONLY", "mariadb": "SET SESSION TRANSACTION READ ONLY"}


def rows_of(
    connect: Callable[[], Any] | str, query: str, parameters: Sequence[Any] | Mapping[str, Any], batch: int
) -> Callable[[], AbstractContextManager[Rows]]:
    """A query that can be asked, each time on a connection of its own.

    Args:
        connect: A function that gives a connection of a DB-API module, or a URL of SQLAlchemy.
        query: One statement.
        parameters: Values for its placeholders.
        batch: Rows that are fetched at a time.

    Raises:
        ConfigError: If it cannot be asked that way.
        MissingDependencyError: If a URL is given and SQLAlchemy is not installed.
    """
    if isinstance(connect, str):
        if not isinstance(parameters, Mapping) and parameters:
            msg = "parameters is a list; with a URL give a mapping, and write the placeholders as :name."
            raise ConfigError(msg)
        return functools.partial(_through_sqlalchemy, _sqlalchemy_url(connect), query, dict(parameters or {}), batch)
    # Connections of sqlite3 can be called, too.
    if callable(connect) and (isinstance(connect, type) or not hasattr(connect, "cursor")):
        return functools.partial(_through_connection, connect, query, parameters, batch)
    msg = (
        f"connect is of type {type(connect).__name__}; give a function that opens a connection, or a URL of "
        "SQLAlchemy. A connection itself is not opened anew for the next run."
    )
    raise ConfigError(msg)


@contextmanager
def _through_connection(
    connect: Callable[[], Any], query: str, parameters: Sequence[Any] | Mapping[str, Any], batch: int
) -> Iterator[Rows]:
    with _explained():
        connection = connect()
    try:
        with _explained():
            if isinstance(connection, sqlite3.Connection):
                connection.execute("PRAGMA query_only = ON")
            cursor = connection.cursor()
            cursor.arraysize = batch
            # Some modules take a query without parameters otherwise: a percent sign is then one.
            cursor.execute(query, parameters) if parameters else cursor.execute(query)
        if cursor.description is None:
            msg = "The query gives no rows. Give one that does, such as a SELECT."
            raise LoadError(msg, loader="DatabaseSource")
        yield [str(column[0]) for column in cursor.description], _batches(lambda: cursor.fetchmany(batch))
    finally:
        try:
            with _explained():
                connection.rollback()
        finally:
            connection.close()


def _batches(fetch: Callable[[], Sequence[Any]]) -> Iterator[Sequence[Any]]:
    while True:
        with _explained():
            rows = fetch()
        if not rows:
            return
        yield rows


def _sqlalchemy_url(url: str) -> Any:
    try:
        from sqlalchemy.engine import make_url  # an extra
    except ModuleNotFoundError as exc:
        raise missing_package("DatabaseSource with a URL", exc, "sql") from exc
    try:
        return make_url(url)
    except Exception as exc:
        msg = "connect is no URL that SQLAlchemy reads (not shown). Give one such as 'sqlite:///teas.db'."
        raise ConfigError(msg) from exc


@contextmanager
def _through_sqlalchemy(url: Any, query: str, parameters: Mapping[str, Any], batch: int) -> Iterator[Rows]:
    import sqlalchemy  # an extra
    from sqlalchemy.pool import NullPool

    hidden = str(url.password or "")
    with _explained(hidden):
        engine = sqlalchemy.create_engine(url, poolclass=NullPool, hide_parameters=True)
        connection = engine.connect()
    try:
        with _explained(hidden):
            _make_read_only(connection)
            result = connection.execution_options(yield_per=batch).execute(sqlalchemy.text(query), parameters)
        if not result.returns_rows:
            msg = "The query gives no rows. Give one that does, such as a SELECT."
            raise LoadError(msg, loader="DatabaseSource")
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
    """What the database raises, as an error of ours; a password is not shown."""
    try:
        yield
    except LazyRAGError:
        raise
    except Exception as exc:
        told = f"{type(exc).__name__}: {exc}".strip()
        told = told.replace(hidden, "***") if hidden else told
        do = "Check the connection, the query and its parameters."
        if isinstance(exc, ModuleNotFoundError):
            do = "Install that package: it is the database's driver, or name another one in the URL."
        msg = f"The database did not answer the query ({told:.300}). {do}"
        raise LoadError(msg, loader="DatabaseSource") from exc


@known_arguments
class DatabaseSource:
    r"""The rows that a query gives; each is an item.

    The rows come in batches, so that a table may be larger than memory. The transaction is rolled back in the end, and
    connections to SQLite, PostgreSQL and MySQL by a URL, and those of `sqlite3`, are made read-only.

    Args:
        connect: A function that gives a new connection of any DB-API module, such as
            ``lambda: sqlite3.connect("teas.db")``; or a URL of SQLAlchemy (extra ``sql``), such as
            ``"postgresql+psycopg://user@host/teas"``.
        query: One statement that gives rows.
        identity: The columns that tell rows apart, by which an edited row is known again; one as a text.
        template: A text with names of columns in braces, as in ``"{name} costs {price}"``; None for ``fields``, a line
            ``column: value`` for each.
        fields: The columns that become text; () for all. Columns of bytes never do.
        metadata: The columns that become metadata.
        parameters: Values for the query's placeholders, bound by the database and never written into the query: a list
            for ``?`` and ``%s``, a mapping for ``:name``. A URL takes a mapping.
        batch: Rows that are fetched at a time.
        name: What the folder remembers the source by; None makes it of the query, so that two queries do not share a
            folder by mistake. Give one to a query that is going to be edited.

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
        >>> teas = DatabaseSource(connect, "SELECT * FROM teas WHERE price > ?", identity="id", parameters=[10])
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
        parameters: Sequence[Any] | Mapping[str, Any] = (),
        batch: int = 500,
        name: str | None = None,
    ) -> None:
        if not isinstance(query, str) or not query.strip():
            msg = f"query is {query!r:.80}; give a statement such as 'SELECT id, name FROM teas'."  # noqa: S608
            raise ConfigError(msg)
        if not isinstance(parameters, (list, tuple, Mapping)):
            msg = f"parameters is of type {type(parameters).__name__}; give a list, or a mapping of names to values."
            raise ConfigError(msg)
        if name is not None and (not isinstance(name, str) or not name.strip()):
            msg = f"name is {name!r:.80}; give a text that is not blank."
            raise ConfigError(msg)
        self._form = functools.partial(RecordForm, identity, template, fields, metadata)  # anew for each run
        self._form()
        self._query = query
        self._parameters = parameters
        self._batch = whole_number("batch", batch, 1)
        self._name = f"database {digest(query)}" if name is None else name
        self._rows = rows_of(connect, query, parameters, self._batch)

    def __repr__(self) -> str:
        return f"DatabaseSource({self._name!r})"

    @property
    def name(self) -> str:
        """What the folder remembers it by."""
        return self._name

    def items(self) -> Iterator[Event]:
        """The rows.

        Raises:
            LoadError: If the database refuses, or a column is not there.
        """
        form = self._form()
        with self._rows() as (columns, batches):
            _check_columns(columns, form.names)
            for number, row in enumerate(itertools.chain.from_iterable(batches), start=1):
                yield form.item(dict(zip(columns, row, strict=True)), f"row {number}")

    def load(self) -> Iterator[LoadedItem]:
        """The rows as text, with their metadata."""
        return loaded_items(self)

    def fetch(self, folder: str | os.PathLike[str]) -> FetchReport:
        """Write each row into a file of a folder; see `lazyrag.sources.fetch`."""
        return fetch(self, folder)


def _check_columns(columns: Sequence[str], named: Sequence[str]) -> None:
    twice = sorted({column for column in columns if list(columns).count(column) > 1})
    if twice:
        msg = f"The query gives several columns named {twice[0]!r}. Name each with AS."
        raise LoadError(msg, loader="DatabaseSource")
    for name in named:
        # Values that are objects or lists, of databases that have such, are reached by paths.
        if name not in columns and name.partition(".")[0].partition("[")[0] not in columns:
            msg = f"The query gives no column {name!r}. {known_names(name, columns)}"
            raise LoadError(msg, loader="DatabaseSource")
