"""The rows of a database query."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lazyrag.errors import ConfigError, LoadError, known_names
from lazyrag.sources.folder import FetchReport, fetch
from lazyrag.sources.items import Event, LoadedItem, digest, loaded_items
from lazyrag.sources.records import RecordForm
from lazyrag.sources.rows import rows_of
from lazyrag.validation import known_arguments, whole_number


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
