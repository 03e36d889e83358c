"""Rows of a query in batches, from any DB-API module or through SQLAlchemy."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

from lazyrag.errors import ConfigError, LazyRAGError, LoadError, missing_package

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
