"""Segments in a store file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from lazyrag.data.fields import Schema
from lazyrag.data.filters import Filter, matches
from lazyrag.data.segment import Segment
from lazyrag.errors import SchemaMismatchError, StoreError, known_names
from lazyrag.stores.protocol import Feature, check_deletion
from lazyrag.stores.segment_rows import (
    SEGMENT_COLUMNS,
    Origin,
    OriginRow,
    StoredText,
    decoded,
    origin_rows,
    read_fields,
    read_text,
    schema_fields,
    schema_text,
    segment_rows,
    stored_text,
)
from lazyrag.stores.store_file import StoreFile

_REMEMBERED = 2_048  # origins, of some 800 bytes; rows are read build by build, which share theirs
_LARGEST = (1 << 63) - 1  # of SQLite's numbers

# The statements are put together from names of columns, nothing in them comes from outside.
_COLUMNS = ", ".join(SEGMENT_COLUMNS[1:])
_SELECT = f"SELECT {_COLUMNS} FROM segment WHERE collection = ?"  # noqa: S608
_GET = f"{_SELECT} AND build = ? AND key = ?"
_SCAN = f"{_SELECT} AND (build, key) > (?, ?) ORDER BY build, key LIMIT ?"
_INSERT = (
    f"INSERT INTO segment (collection, {_COLUMNS}) VALUES (?{', ?' * len(SEGMENT_COLUMNS[1:])}) "  # noqa: S608
    "ON CONFLICT (collection, build, key) DO NOTHING"
)
_REPLACE = (
    f"UPDATE segment SET ({_COLUMNS}) = (?{', ?' * (len(SEGMENT_COLUMNS) - 2)}) "  # noqa: S608
    "WHERE collection = ? AND build = ? AND key = ?"
)
_DELETE = "DELETE FROM segment WHERE collection = ? AND build = ? AND key = ?"
_ADD_ORIGIN = (
    f"INSERT INTO segment_origin (collection, {', '.join(OriginRow._fields)}) VALUES (?, ?, ?, ?, ?, ?) "  # noqa: S608
    "ON CONFLICT (collection, digest) DO NOTHING"
)
_FORGET_ORIGIN = (
    "DELETE FROM segment_origin WHERE id = ? AND NOT EXISTS (SELECT 1 FROM segment WHERE origin = segment_origin.id)"
)


class MapFileSegmentStore:
    """Segments in a store file (spec 001's ``map`` with a ``uri``).

    What the segments of one build share lies in the file once, and is one object where it is read. Whatever another
    process has committed is seen by the next call.

    Args:
        file: The open store file. Whoever opened it closes it; other stores may share it.

    Example:
        >>> with StoreFile(None) as file:
        ...     store = MapFileSegmentStore(file)
        ...     store.create("c", {})
        ...     store.upsert("c", [Segment("u", 1, "block", "d", "a.txt", None, 1, "tea")])
        ...     store.count("c"), store.get("c", ["u-1"])[0].content
        (1, 'tea')
    """

    def __init__(self, file: StoreFile) -> None:
        self._file = file
        self._origins = _Origins()

    @property
    def features(self) -> frozenset[Feature]:
        """Persistent and shared, but for a store file in memory."""
        return frozenset() if self._file.path is None else frozenset(["persistent", "shared"])

    def open(self) -> None:
        """Nothing to connect to: the file is open."""

    def close(self) -> None:
        """Nothing to let go of: the file belongs to whoever opened it."""

    def create(self, collection: str, schema: Schema) -> None:
        """See `SegmentStore.create`."""
        asked = schema_text(schema)
        with self._file.reading() as connection:
            present = _schema(connection, collection)
        if present is None:  # one that reads only gets by without
            with self._file.writing() as connection:
                connection.execute(
                    "INSERT INTO segment_collection (name, schema) VALUES (?, ?) ON CONFLICT (name) DO NOTHING",
                    (collection, asked),
                )
                present = _schema(connection, collection)  # another process may have been faster
        if present != asked:
            fields = ", ".join(schema_fields(present or ""))
            msg = f"Collection {collection!r} has other fields than asked for: {fields}."
            raise SchemaMismatchError(msg, store="map", collection=collection)

    def drop(self, collection: str) -> None:
        """See `Store.drop`."""
        with self._file.writing() as connection:
            row = _row(connection, collection)
            if row is not None:
                connection.execute("DELETE FROM segment WHERE collection = ?", row)
                connection.execute("DELETE FROM segment_origin WHERE collection = ?", row)
                connection.execute("DELETE FROM segment_collection WHERE id = ?", row)

    def count(self, collection: str) -> int:
        """See `Store.count`."""
        with self._reading(collection) as (connection, number):
            [rows] = connection.execute("SELECT count(*) FROM segment WHERE collection = ?", (number,)).fetchone()
        return int(rows)

    def upsert(self, collection: str, rows: Sequence[Segment]) -> None:
        """See `SegmentStore.upsert`."""
        by_key = {row.key: row for row in rows}  # of a key's rows the last one counts
        origins = origin_rows(by_key.values())
        with self._writing(collection) as (connection, number):
            ids = {shared: _origin_id(connection, number, origin) for shared, origin in origins.items()}
            in_order = sorted(by_key.items(), key=_index_order)  # in which the index grows faster
            values = segment_rows(in_order, number, ids)
            before = connection.total_changes
            connection.executemany(_INSERT, values)
            if connection.total_changes - before == len(values):
                return  # as it is with a new build
            keys = [(number, *_placed(key)) for key in by_key]
            left = _origins_of(connection, keys)
            connection.executemany(
                _REPLACE, ((*row[1:], number, *_placed(key)) for (key, _), row in zip(in_order, values, strict=True))
            )
            connection.executemany(_FORGET_ORIGIN, left)

    def get(self, collection: str, keys: Sequence[str]) -> list[Segment]:
        """See `SegmentStore.get`."""
        with self._reading(collection) as (connection, number):
            # One statement for each key is as fast as one for all of them, and has no bound for their number.
            found = [connection.execute(_GET, (number, *_placed(key))).fetchone() for key in keys]
            rows = [row for row in found if row is not None]
            origins = self._origins.read(connection, rows)
        return [decoded(row, origins) for row in rows]

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[Segment]:
        """See `SegmentStore.scan`."""
        with self._reading(collection) as (connection, number):
            rows = connection.execute(_SCAN, (number, *_placed(after), limit)).fetchall()
            origins = self._origins.read(connection, rows)
        return [decoded(row, origins) for row in rows]

    def delete(
        self,
        collection: str,
        *,
        keys: Sequence[str] | None = None,
        filter: Filter | None = None,  # noqa: A002  the word of the domain
    ) -> int:
        """See `SegmentStore.delete`."""
        check_deletion(keys, filter)
        with self._writing(collection) as (connection, number):
            if filter is not None:
                gone = _met(connection, number, filter)
                statement = "DELETE FROM segment WHERE origin = ?"
                rows: Sequence[tuple[object, ...]] = gone
            else:
                rows = [(number, *_placed(key)) for key in keys or ()]
                gone = _origins_of(connection, rows)
                statement = _DELETE
            before = connection.total_changes
            connection.executemany(statement, rows)
            deleted = connection.total_changes - before
            connection.executemany(_FORGET_ORIGIN, gone)
        return deleted

    @contextmanager
    def _reading(self, collection: str) -> Iterator[tuple[sqlite3.Connection, int]]:
        with self._file.reading() as connection:
            yield connection, _number(connection, collection)

    @contextmanager
    def _writing(self, collection: str) -> Iterator[tuple[sqlite3.Connection, int]]:
        with self._file.writing() as connection:
            yield connection, _number(connection, collection)


class _Origins:
    """Origins that were read, so that what segments share is one object: indexes and filters look at each object once.

    It remembers a bounded number; of one that is read again after it was forgotten there are two.
    """

    def __init__(self) -> None:
        self._known: dict[int, Origin] = {}
        self._lock = threading.Lock()

    def read(self, connection: sqlite3.Connection, rows: Iterable[Sequence[int]]) -> dict[int, Origin]:
        """The origins of rows, by their numbers. Numbers are never used again, so that none of them changes."""
        found: dict[int, Origin] = {}
        for row in rows:
            number = row[1]
            if number not in found:
                found[number] = self._known.get(number) or self._read(connection, number)
        return found

    def _read(self, connection: sqlite3.Connection, number: int) -> Origin:
        found = connection.execute(
            "SELECT node_group, document_id, path, fields FROM segment_origin WHERE id = ?", (number,)
        ).fetchone()
        if found is None:
            msg = f"The store has no row {number} of what segments share, which one of them names. Run verify()."
            raise StoreError(msg, store="map")
        group, document_id, path, fields = found
        origin = Origin(read_text(group), read_text(document_id), read_text(path), read_fields(fields))
        with self._lock:
            while len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            return self._known.setdefault(number, origin)  # another thread may have been faster


def _placed(key: str) -> tuple[int, StoredText]:
    """A key as the index has it, behind its build; what is no node's key stands before all of them."""
    build = key.rpartition("-")[2]
    number = int(build) if build.isdecimal() and len(build) <= len(str(_LARGEST)) else -1
    return min(number, _LARGEST), stored_text(key)


def _index_order(row: tuple[str, Segment]) -> tuple[int, str]:
    return row[1].build, row[0]


def _row(connection: sqlite3.Connection, collection: str) -> tuple[int] | None:
    row: tuple[int] | None = connection.execute(
        "SELECT id FROM segment_collection WHERE name = ?", (collection,)
    ).fetchone()
    return row


def _number(connection: sqlite3.Connection, collection: str) -> int:
    row = _row(connection, collection)
    if row is None:
        present = [name for (name,) in connection.execute("SELECT name FROM segment_collection")]
        msg = f"There is no collection {collection!r}. {known_names(collection, present)} Create it first."
        raise StoreError(msg, store="map", collection=collection)
    return row[0]


def _schema(connection: sqlite3.Connection, collection: str) -> str | None:
    row = connection.execute("SELECT schema FROM segment_collection WHERE name = ?", (collection,)).fetchone()
    return None if row is None else str(row[0])


def _origin_id(connection: sqlite3.Connection, collection: int, origin: OriginRow) -> int:
    added = connection.execute(_ADD_ORIGIN, (collection, *origin))
    if added.rowcount == 1 and added.lastrowid is not None:
        return added.lastrowid
    row: tuple[int] = connection.execute(
        "SELECT id FROM segment_origin WHERE collection = ? AND digest = ?", (collection, origin.digest)
    ).fetchone()
    return row[0]


def _origins_of(connection: sqlite3.Connection, keys: Iterable[Sequence[object]]) -> list[tuple[int]]:
    """The origins of those rows that are present, each once."""
    found: set[tuple[int]] = set()
    for key in keys:
        found.update(
            connection.execute("SELECT origin FROM segment WHERE collection = ? AND build = ? AND key = ?", key)
        )
    return list(found)


def _met(connection: sqlite3.Connection, collection: int, filter: Filter) -> list[tuple[int]]:  # noqa: A002
    """The origins whose fields a filter lets through."""
    decided: dict[str | bytes, bool] = {}
    gone: list[tuple[int]] = []
    for number, fields in connection.execute(
        "SELECT id, fields FROM segment_origin WHERE collection = ?", (collection,)
    ):
        if fields not in decided:
            decided[fields] = matches(filter, read_fields(fields))
        if decided[fields]:
            gone.append((number,))
    return gone
