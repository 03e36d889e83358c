"""Store files (SQLite), and the "map" store of segments on disk."""

from __future__ import annotations

import functools
import json
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

from lazyrag.data.fields import Schema, schema_text
from lazyrag.data.filters import Filter, matches
from lazyrag.data.segment import EMPTY, Location, ReadOnly, Segment, digest
from lazyrag.errors import ConfigError, StoreDamagedError, StoreError
from lazyrag.storage.arrays import ArrayFiles
from lazyrag.storage.database import Database, InTransaction, RawText, is_server
from lazyrag.stores.protocol import (
    Feature,
    check_deletion,
    other_fields,
    unknown_collection,
)
from lazyrag.stores.tables import STORE_FORMAT, TERM_ARRAY_FILES, VECTOR_ARRAY_FILES
from lazyrag.types import Closable, Fields, PathLike

StoredText: TypeAlias = "str | bytes"
"""A text; as UTF-8 bytes if it has half a surrogate pair, which SQLite's texts cannot store."""


class OriginRow(NamedTuple):
    """A row of the values that the segments of one build share."""

    digest: bytes
    node_group: StoredText
    document_id: StoredText
    path: StoredText
    fields: StoredText


SEGMENT_COLUMNS = tuple(
    "collection key origin build parent number is_json content metadata span_start span_end"
    " places".split()
)

SegmentRow: TypeAlias = tuple[Any, ...]
"""One segment as a row holds it, by `SEGMENT_COLUMNS`; a plain tuple, as there are many."""

OriginKey: TypeAlias = tuple[str, str, str, int]
"""Group, document and path of a segment, and the id of its fields: the segments keep these
alive."""


class Origin(NamedTuple):
    """The values that the segments of one build share."""

    group: str
    document_id: str
    path: str
    fields: Fields


def origin_key(segment: Segment) -> OriginKey:
    """Key of a segment's origin."""
    return segment.group, segment.document_id, segment.path, id(segment.fields)


def origin_rows(segments: Iterable[Segment]) -> dict[OriginKey, OriginRow]:
    """The distinct origins of segments.

    Raises:
        ConfigError: If fields are no JSON values.

    Example:
        >>> node = Segment("u", 1, "block", "d", "a.txt", None, 1, 0)
        >>> origin_rows([node, node])[origin_key(node)].path
        'a.txt'
    """
    origins = {}
    for segment in segments:
        shared = origin_key(segment)
        if shared not in origins:
            fields = _json(segment, "fields", segment.fields)
            group, document_id, path, _ = shared
            key = bytes.fromhex(digest([group, document_id, path, read_text(fields)]))
            origins[shared] = OriginRow(
                key, stored_text(group), stored_text(document_id), stored_text(path), fields
            )
    return origins


def segment_rows(
    segments: Iterable[tuple[str, Segment]], collection: int, origins: Mapping[OriginKey, int]
) -> list[SegmentRow]:
    """Rows for segments. Metadata that several of them hold as one object is written as JSON once.

    Args:
        segments: With their keys.
        collection: Number of their collection.
        origins: Numbers of their origins.

    Raises:
        ConfigError: If content or metadata are no JSON values.

    Example:
        >>> node = Segment("u", 1, "block", "d", "a.txt", None, 1, 0)
        >>> segment_rows([("u-1", node)], 7, {origin_key(node): 3})
        [(7, 'u-1', 3, 1, None, 1, True, '0', '{}', None, None, '[]')]
    """
    texts: dict[int, StoredText] = {}  # by the id of an object: the segments keep them alive
    rows = []
    for key, segment in segments:
        content = segment.content
        parent = segment.parent
        metadata = texts.get(id(segment.metadata))
        if metadata is None:
            metadata = texts[id(segment.metadata)] = _json(segment, "metadata", segment.metadata)
        rows.append(
            (
                collection,
                stored_text(key),
                origins[origin_key(segment)],
                segment.build,
                None if parent is None else stored_text(parent),
                segment.number,
                not isinstance(content, str),
                (
                    stored_text(content)
                    if isinstance(content, str)
                    else _json(segment, "content", content)
                ),
                metadata,
                *(segment.span or (None, None)),
                _json(segment, "places", segment.locations) if segment.locations else "[]",
            )
        )
    return rows


def decoded(row: Iterable[Any], origins: Mapping[int, Origin]) -> Segment:
    """The segment of a row.

    Args:
        row: The columns of a `SegmentRow` but the collection.
        origins: By their numbers; with this row's.
    """
    key, number, build, parent, ordinal, is_json, content, metadata, start, end, locations = row
    origin = origins[number]
    # Most texts are no bytes: `read_text` is called for those that are.
    text = content if isinstance(content, str) else read_text(content)
    name = key if isinstance(key, str) else read_text(key)
    return Segment(
        name[: -len(str(build)) - 1],  # what comes before "-" and the build
        build,
        origin.group,
        origin.document_id,
        origin.path,
        parent if parent is None or isinstance(parent, str) else read_text(parent),
        ordinal,
        json.loads(text) if is_json else text,
        EMPTY if metadata == "{}" else ReadOnly(json.loads(read_text(metadata))),
        origin.fields,
        None if start is None else (start, end),
        (() if locations == "[]" else tuple(map(Location._make, json.loads(read_text(locations))))),
    )


def read_fields(text: StoredText) -> Fields:
    """The fields in a row; lists in them are arrays, and were tuples.

    Example:
        >>> read_fields('{"year": 2024, "tags": ["a"]}')
        {'year': 2024, 'tags': ('a',)}
    """
    # Names are the same for every document, and json makes new ones each time: half of the memory
    # of fields.
    return ReadOnly(
        (sys.intern(name), tuple(value) if isinstance(value, list) else value)
        for name, value in json.loads(read_text(text)).items()
    )


def stored_text(text: str) -> StoredText:
    r"""A text as SQLite can keep it.

    Example:
        >>> stored_text("茶"), stored_text(chr(0xD83C))
        ('茶', b'\xed\xa0\xbc')
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return RawText(text.encode("utf-8", "surrogatepass"))
    return text


def read_text(stored: StoredText) -> str:
    """The text that `stored_text` got."""
    return stored if isinstance(stored, str) else stored.decode("utf-8", "surrogatepass")


def _json(segment: Segment, name: str, value: Any) -> StoredText:
    try:
        return stored_text(JSON_ENCODER.encode(value))
    except (TypeError, ValueError, RecursionError) as exc:
        subject = f"The {name} of node {segment.uid!r} in group {segment.group!r}"
        raise ConfigError(f"{subject} must be a JSON value; got {value!r:.60}: {exc}.") from exc


def mapping_as_dict(value: Any) -> dict[Any, Any]:
    """A mapping as an object of JSON, for encoders."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not among its types")


JSON_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=mapping_as_dict)
YOUNG_S = 3600.0
"""A temporary file of that age belongs to a program that has ended."""


class StoreFile(Closable):
    """One open store file, or a store in this process's memory.

    Readers do not wait for writers: each has a connection. In memory there is only one, and they
    do. A thread must not begin to write within a read, and reads within a write with `reading_own`.

    Any number of threads and processes may have the file open; after a fork each process opens it
    for itself.

    Args:
        path: The file; its folder must exist. Array files are in ``<path>.d``. None: in memory, for
            this object alone. Or the URL of a PostgreSQL database; then ``path`` is where this
            machine keeps copies, and no file.
        read_only: Write nothing, and neither create nor migrate the file.
        timeout_s: How long to wait for another connection that writes.

    Raises:
        ConfigError: If the path is invalid, a store in memory is read-only, or the timeout is out
            of range.
        StoreError: If the file is missing (``read_only``), may not be opened, is of another kind or
            a newer format, is damaged, or locked for longer than the timeout.

    Example:
        >>> with StoreFile(None) as file:
        ...     before = file.commit_counter()
        ...     with file.writing() as connection:
        ...         _ = connection.execute(
        ...             "INSERT INTO segment_collection (name, schema) VALUES ('c', '{}')"
        ...         )
        ...     file.commit_counter() == before
        False
    """

    def __init__(
        self,
        path: PathLike | None,
        *,
        read_only: bool = False,
        timeout_s: float = 30.0,
    ) -> None:
        self.read_only = read_only
        self._others: tuple[StoreFile, ...] = ()
        self._flushing = threading.Lock()
        # none: other programs may have written what this one goes on with
        self._flushed_commits = -1
        with ExitStack() as undo:
            database: type[Database] = Database
            if is_server(path):
                from lazyrag.storage import postgres

                database = cast("type[Database]", postgres.PostgresDatabase)
            self.writer = undo.enter_context(
                database(path, STORE_FORMAT, read_only=read_only, timeout_s=timeout_s)
            )
            """The connection that writes."""
            self._reader = self.writer
            self.path: Path | None = None if self.writer.in_memory else self.writer.path
            self.is_server = is_server(path)
            self.address = self.writer.address
            """For messages: the path, or the URL without its password."""
            if not (self.writer.in_memory or read_only):
                self._reader = undo.enter_context(self.writer.second(read_only=True))
            place = self.writer.array_place()
            undo.pop_all()
        self.reading: Callable[[], AbstractContextManager[sqlite3.Connection]] = (
            self._reader.reading
        )
        """A transaction that reads: all its statements see the same state, the last that was
        committed by anybody."""
        # In memory nobody else commits. A connection's counter changes with commits of others: the
        # reader's with those of the writer.
        self.commit_counter: Callable[[], int] = self._reader.data_version
        if self.path is None:  # each query calls it: no frame of ours
            self.commit_counter = functools.partial(getattr, self.writer, "commits")
        """Counter that changes with every commit of any process. Compare values of the same object
        only."""
        self.arrays = ArrayFiles(
            self.path and Path(f"{self.path}.d"), read_only=read_only, place=place
        )
        self.now = self.writer.now
        self.is_writing = self.writer.is_writing
        self.fetch_each = self.writer.fetch_each

    def __repr__(self) -> str:
        return f"StoreFile({self.path and self.address!r}{', read_only=True' * self.read_only})"

    def writing(
        self, *, durable: bool = False, first: InTransaction | None = None
    ) -> AbstractContextManager[sqlite3.Connection]:
        """A transaction that writes: committed at its end, rolled back after an error.

        Args:
            durable: Wait until the disk has it, and with it every transaction that ended before.
            first: Called at its beginning; what it raises rolls the transaction back.

        Raises:
            StoreError: If SQLite fails in it, the file stays locked, was deleted or replaced, is
                closed or read-only.
        """
        for other in self._others:
            other.flush(again=durable)
        return self.writer.writing(durable=durable, first=first)

    def second_writer(self) -> Database:
        """Another connection, which writes even if this object is read-only."""
        return self.writer.second(read_only=False)

    def reading_own(self) -> AbstractContextManager[sqlite3.Connection]:
        """See `reading`; within a transaction that this thread writes, a part of it."""
        return self.writer.reading() if self.is_writing() else self._reader.reading()

    def flush(self, *, again: bool = True) -> None:
        """Wait until the disk has every finished transaction.

        Args:
            again: Also if this object has committed nothing since the last time: another program
                may have.

        Raises:
            StoreError: If the disk fails, or the file is closed.
        """
        self.writer.check_open()  # before the lock, which a fork's copy may have been left with
        with self._flushing:  # whoever relies on the number waits for the flush
            # now already: what another thread commits meanwhile may come too late
            commits = self.writer.commits
            if again or commits != self._flushed_commits:
                self.writer.flush()
                self._flushed_commits = commits

    @staticmethod
    def keep_in_order(files: Sequence[StoreFile]) -> None:
        """Flush the other files before a transaction in one of them.

        Each file survives a power cut up to some transaction; after this, all of them up to the
        same one. So no build is live in one file whose vectors are lost in another, and no number
        of a build is given out twice.

        Args:
            files: The files of one Document.
        """
        for file in files:
            file._others = tuple(other for other in files if other is not file)

    def damage(self) -> str:
        """Check all of the file, and the others of the Document; "" if they are undamaged."""
        for file in (self, *self._others):
            try:
                with file.reading() as connection:
                    lines = connection.execute("PRAGMA quick_check(5)")
                    damage = "; ".join(str(line) for (line,) in lines)
            except StoreError as exc:
                damage = str(exc)
            if damage != "ok":
                return damage if file is self else f"{file.address}: {damage}"
        return ""

    def check_there(self, name: str) -> None:
        """Check, in the transaction that refers to an array file, that it was not deleted as a
        stray one meanwhile.

        Raises:
            StoreError: If it is gone: the program was suspended for long. Repeating the operation
                helps.
        """
        self.arrays.age_s(name)

    def stray_array_files(self, *, older_than_s: float) -> list[str]:
        """Names of array files that no row refers to, and that are at least so old; of all files of
        the Document.
        """
        stray = []
        for file in (self, *self._others):
            with file.reading() as connection:
                stray += file._stray(connection, older_than_s)
        return stray

    def collect_array_files(self, *, older_than_s: float) -> None:
        """Delete stray array files. No writer can refer to one meanwhile, see `check_there`."""
        for file in (self, *self._others):
            with file.writer.writing() as connection:
                stray = file._stray(connection, older_than_s)
                if stray:
                    # otherwise a power cut could bring the rows back that refer to them
                    file.flush()
                    file.arrays.delete(stray)
            file.arrays.sweep(older_than_s=max(older_than_s, YOUNG_S))

    def _stray(self, connection: sqlite3.Connection, older_than_s: float) -> list[str]:
        named: set[str] = set()
        for query in (TERM_ARRAY_FILES, VECTOR_ARRAY_FILES):
            named.update(name for (name,) in connection.execute(query))
        stray = [name for name in self.arrays.names() if name not in named]
        return [name for name in stray if self._age_s(name) >= older_than_s]

    def _age_s(self, name: str) -> float:
        """Age of a file; 0 if another program has just removed it."""
        try:
            return self.arrays.age_s(name)
        except StoreError:
            return 0.0

    def shrink(self) -> None:
        """Return the space of deleted rows to the disk, in all files of the Document.

        Raises:
            StoreError: If another connection keeps a file locked, or the disk is full.
        """
        for file in (self, *self._others):
            if file.path is not None:
                file.writer.shrink()

    def close(self) -> None:
        """Close the file. Waits for transactions of other threads. Idempotent.

        Open arrays stay valid.
        """
        self.commit_counter = self._reader.data_version  # from now on an error, in memory too
        self._reader.close()
        self.writer.close()  # last: the last connection cleans up, which a reader may not


_REMEMBERED = 2_048  # origins, of some 800 bytes; rows are read build by build, which share theirs
_LARGEST = (1 << 63) - 1  # of SQLite's numbers

# The statements are put together from names of columns, nothing in them comes from outside.
_COLUMNS = ", ".join(SEGMENT_COLUMNS[1:])
_SELECT = f"SELECT {_COLUMNS} FROM segment WHERE collection = ?"  # noqa: S608
_GOT_AT_ONCE = 64  # rows of one statement, which takes half the time of one for each


@functools.cache
def _get(count: int) -> str:
    """The statement that reads rows by builds and keys, in this order: CROSS JOIN makes these the
    outer loop.
    """
    keys = f"(VALUES {', '.join(['(?, ?)'] * count)}) AS wanted"
    number = "(SELECT id FROM segment_collection WHERE name = ?)"
    return (
        _SELECT.replace(
            "FROM segment WHERE collection = ?",
            f"FROM {keys} CROSS JOIN segment ON collection = {number}",
        )
        + " AND build = wanted.column1 AND key = wanted.column2"
    )


_SCAN = f"{_SELECT} AND (build, key) > (?, ?) ORDER BY build, key LIMIT ?"
_INSERT = (
    f"INSERT INTO segment (collection, {_COLUMNS})"  # noqa: S608
    f" VALUES (?{', ?' * len(SEGMENT_COLUMNS[1:])})"
    " ON CONFLICT (collection, build, key) DO NOTHING"
)
_REPLACE = (
    f"UPDATE segment SET ({_COLUMNS}) = (?{', ?' * (len(SEGMENT_COLUMNS) - 2)}) "  # noqa: S608
    "WHERE collection = ? AND build = ? AND key = ?"
)
_DELETE = "DELETE FROM segment WHERE collection = ? AND build = ? AND key = ?"
_ADD_ORIGIN = (
    f"INSERT INTO segment_origin (collection, {', '.join(OriginRow._fields)})"  # noqa: S608
    " VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (collection, digest) DO NOTHING"
)
_ORIGIN = "SELECT id FROM segment_origin WHERE collection = ? AND digest = ?"
_FORGET_ORIGIN = (
    "DELETE FROM segment_origin WHERE id = ? AND NOT EXISTS (SELECT 1 FROM segment WHERE origin ="
    " segment_origin.id)"
)


class MapFileSegmentStore:
    """Segments in a store file (spec 001's ``map`` with a ``uri``).

    Values that the segments of one build share are stored once, and are one object when read.
    Commits of other processes are visible to the next call.

    Args:
        file: The open store file. The caller closes it; other stores may share it.

    Example:
        >>> with StoreFile(None) as file:
        ...     store = MapFileSegmentStore(file)
        ...     store.create("c", {})
        ...     store.upsert("c", [Segment("u", 1, "block", "d", "a.txt", None, 1, "tea")])
        ...     store.count("c"), store.get("c", ["u-1"])[0].content
        (1, 'tea')
    """

    def __init__(self, file: StoreFile) -> None:
        self.file = file
        self._origins = _Origins(file)

    @property
    def features(self) -> frozenset[Feature]:
        """Persistent and shared, unless the file is in memory."""
        return frozenset() if self.file.path is None else frozenset(["persistent", "shared"])

    def open(self) -> None:
        """Do nothing: the file is open."""

    def close(self) -> None:
        """Do nothing: the caller closes the file."""

    def create(self, collection: str, schema: Schema) -> None:
        """See `SegmentStore.create`."""
        fields_text = schema_text(schema)
        # a read-only store has the collections that its programs use
        transaction = self.file.reading if self.file.read_only else self.file.writing
        with transaction() as connection:
            _, present = _collection(connection, collection)
            if present is None:
                if self.file.read_only:
                    self.file.writer.refuse_to_write()
                present = fields_text
                connection.execute(
                    "INSERT INTO segment_collection (name, schema) VALUES (?, ?)",
                    (collection, fields_text),
                )
        if present != fields_text:
            raise other_fields(collection, json.loads(present or "{}"))

    def drop(self, collection: str) -> None:
        """See `Store.drop`."""
        with self.file.writing() as connection:
            number, _ = _collection(connection, collection)
            connection.execute("DELETE FROM segment WHERE collection = ?", (number,))
            connection.execute("DELETE FROM segment_origin WHERE collection = ?", (number,))
            connection.execute("DELETE FROM segment_collection WHERE id = ?", (number,))

    def count(self, collection: str) -> int:
        """See `Store.count`."""
        with self.file.reading() as connection:
            number = _number(connection, collection)
            [rows] = connection.execute(
                "SELECT count(*) FROM segment WHERE collection = ?", (number,)
            ).fetchone()
        return int(rows)

    def upsert(self, collection: str, rows: Sequence[Segment]) -> None:
        """See `SegmentStore.upsert`."""
        by_key = {row.key: row for row in rows}  # of a key's rows the last one counts
        origins = origin_rows(by_key.values())
        with self.file.writing() as connection:
            number = _number(connection, collection)
            numbers = self._origin_ids(connection, number, list(origins.values()))
            ids = dict(zip(origins, numbers, strict=True))
            # in which the index grows faster
            in_order = sorted(by_key.items(), key=lambda row: (row[1].build, row[0]))
            values = segment_rows(in_order, number, ids)
            before = connection.total_changes
            connection.executemany(_INSERT, values)
            if connection.total_changes - before == len(values):
                return  # as it is with a new build
            keys = [(number, *_placed(key)) for key in by_key]
            left = _origins_of(connection, keys)
            pairs = zip(in_order, values, strict=True)
            replaced = ((*row[1:], number, *_placed(key)) for (key, _), row in pairs)
            connection.executemany(_REPLACE, replaced)
            connection.executemany(_FORGET_ORIGIN, left)

    def get(self, collection: str, keys: Sequence[str]) -> list[Segment]:
        """See `SegmentStore.get`."""
        with self.file.reading() as connection:
            rows = []
            if self.file.is_server:  # promises no order of joins
                rows = self.file.fetch_each(
                    connection, _get(1), ((*_placed(key), collection) for key in keys)
                )
            else:
                for at in range(0, len(keys), _GOT_AT_ONCE):
                    some = keys[at : at + _GOT_AT_ONCE]
                    placed = chain.from_iterable(map(_placed, some))
                    rows += connection.execute(_get(len(some)), [*placed, collection])
            if not rows:
                _number(connection, collection)  # raises where there is no collection
            origins = self._origins.read(connection, rows)
        return [decoded(row, origins) for row in rows]

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[Segment]:
        """See `SegmentStore.scan`."""
        with self.file.reading() as connection:
            number = _number(connection, collection)
            rows = connection.execute(_SCAN, (number, *_placed(after), limit)).fetchall()
            origins = self._origins.read(connection, rows)
        return [decoded(row, origins) for row in rows]

    def builds_of(self, collection: str, uid: str) -> list[int]:
        """See `SegmentStore.builds_of`; reads the whole index of keys."""
        with self.file.reading() as connection:
            number = _number(connection, collection)
            rows = connection.execute(
                "SELECT build FROM segment WHERE collection = ? AND key > ? AND key < ?"
                " ORDER BY build",
                (number, stored_text(f"{uid}-"), stored_text(f"{uid}.")),
            ).fetchall()
        return [build for (build,) in rows]

    def delete(
        self, collection: str, *, keys: Sequence[str] | None = None, filter: Filter | None = None
    ) -> int:
        """See `Store.delete`."""
        check_deletion(keys, filter)
        with self.file.writing() as connection:
            number = _number(connection, collection)
            before = connection.total_changes
            if filter is not None:
                origins = _matching_origins(connection, number, filter)
                connection.executemany("DELETE FROM segment WHERE origin = ?", origins)
            else:
                rows = [(number, *_placed(key)) for key in keys or ()]
                origins = _origins_of(connection, rows)
                connection.executemany(_DELETE, rows)
            deleted = connection.total_changes - before
            connection.executemany(_FORGET_ORIGIN, origins)
        return deleted

    def delete_builds(self, collection: str, builds: Iterable[int]) -> None:
        """Delete all rows of some builds."""
        with self.file.writing() as connection:
            number = _number(connection, collection)
            rows = [(number, build) for build in builds]
            find = "SELECT DISTINCT origin FROM segment WHERE collection = ? AND build = ?"
            origins: list[tuple[int]] = []
            for row in rows:
                origins += connection.execute(find, row)
            connection.executemany("DELETE FROM segment WHERE collection = ? AND build = ?", rows)
            connection.executemany(_FORGET_ORIGIN, origins)

    def _origin_ids(
        self, connection: sqlite3.Connection, collection: int, origins: Sequence[OriginRow]
    ) -> list[int]:
        """The numbers of origins, entered if they are new."""
        if not self.file.is_server:
            return [_origin_id(connection, collection, origin) for origin in origins]
        connection.executemany(_ADD_ORIGIN, [(collection, *origin) for origin in origins])
        rows = self.file.fetch_each(
            connection, _ORIGIN, [(collection, origin.digest) for origin in origins]
        )
        return [number for (number,) in rows]


class _Origins:
    """Cache of origins, so that segments share one object: indexes and filters evaluate each object
    once.

    It is bounded; an origin that is read again after it was evicted is another object.
    """

    def __init__(self, file: StoreFile) -> None:
        self._file = file
        self._cached: dict[int, Origin] = {}
        self._lock = threading.Lock()

    def read(
        self, connection: sqlite3.Connection, rows: Iterable[Sequence[int]]
    ) -> dict[int, Origin]:
        """The origins of rows by their numbers, which are never reused."""
        origins = {}
        missing: dict[int, None] = {}
        for row in rows:
            number = row[1]
            if number not in origins and number not in missing:
                cached = self._cached.get(number)
                if cached is None:
                    missing[number] = None
                else:
                    origins[number] = cached
        if missing:
            self._read(connection, missing, origins)
        return origins

    def _read(
        self, connection: sqlite3.Connection, missing: Iterable[int], origins: dict[int, Origin]
    ) -> None:
        query = "SELECT id, node_group, document_id, path, fields FROM segment_origin WHERE id = ?"
        rows = self._file.fetch_each(connection, query, ((number,) for number in missing))
        with self._lock:
            for number, group, document_id, path, fields in rows:
                origin = Origin(
                    read_text(group), read_text(document_id), read_text(path), read_fields(fields)
                )
                while len(self._cached) >= _REMEMBERED:
                    del self._cached[next(iter(self._cached))]
                # another thread may have been faster
                origins[number] = self._cached.setdefault(number, origin)
        for number in missing:
            if number not in origins:
                raise StoreError(
                    f"The store lacks the origin {number} of a segment. Run"
                    " docs.maintenance.verify().",
                    store="map",
                )


def _placed(key: str) -> tuple[int, StoredText]:
    """Build and key, in the order of the index; a key of another form comes first."""
    build = key.rpartition("-")[2]  # `key_build` refuses keys of another form
    number = int(build) if build.isdecimal() and len(build) <= len(str(_LARGEST)) else -1
    return min(number, _LARGEST), stored_text(key)


def _collection(connection: sqlite3.Connection, collection: str) -> tuple[int | None, str | None]:
    """The number and the schema (JSON) of a collection of segments; two None if it does not
    exist.
    """
    row = connection.execute(
        "SELECT id, schema FROM segment_collection WHERE name = ?", (collection,)
    ).fetchone()
    return row or (None, None)


def _number(connection: sqlite3.Connection, collection: str) -> int:
    number, _ = _collection(connection, collection)
    if number is None:
        present = [name for (name,) in connection.execute("SELECT name FROM segment_collection")]
        raise unknown_collection(collection, present, StoreDamagedError)
    return number


def _origin_id(connection: sqlite3.Connection, collection: int, origin: OriginRow) -> int:
    added = connection.execute(_ADD_ORIGIN, (collection, *origin))
    if added.rowcount == 1 and added.lastrowid is not None:
        return added.lastrowid
    row: tuple[int] = connection.execute(_ORIGIN, (collection, origin.digest)).fetchone()
    return row[0]


def _origins_of(
    connection: sqlite3.Connection, keys: Iterable[Sequence[object]]
) -> list[tuple[int]]:
    """The distinct origins of the rows that exist."""
    origins: set[tuple[int]] = set()
    for key in keys:
        origins.update(
            connection.execute(
                "SELECT origin FROM segment WHERE collection = ? AND build = ? AND key = ?", key
            )
        )
    return list(origins)


def _matching_origins(
    connection: sqlite3.Connection, collection: int, filter: Filter
) -> list[tuple[int]]:
    """The origins whose fields match a filter."""
    decided: dict[str | bytes, bool] = {}
    origins = []
    for number, fields in connection.execute(
        "SELECT id, fields FROM segment_origin WHERE collection = ?", (collection,)
    ):
        if fields not in decided:
            decided[fields] = matches(filter, read_fields(fields))
        if decided[fields]:
            origins.append((number,))
    return origins
