"""Store files (SQLite): their format, with the ledger's tables, and the "map" stores on disk."""

from __future__ import annotations

import functools
import json
import os
import re
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np

from lazyrag.data.fields import Schema, schema_text
from lazyrag.data.filters import Filter, matches
from lazyrag.data.segment import EMPTY, Location, ReadOnly, Segment, digest
from lazyrag.errors import (
    CacheWarning,
    ConfigError,
    SchemaMismatchError,
    StoreDamagedError,
    StoreError,
    known_names,
    sentence,
    warn_user,
)
from lazyrag.indexes.dense import DenseBlock, DenseState, Graph, check_installed
from lazyrag.indexes.hnsw import MIN_ROWS, approximate_rankings
from lazyrag.indexes.postings import Mask, encoded_keys
from lazyrag.indexes.tiers import tail_to_join, without
from lazyrag.progress.blocks import acquired, contextmanager
from lazyrag.storage.arrays import ArrayFiles, DamagedError, damage_of, joined
from lazyrag.storage.arrays import decoded as decoded_arrays
from lazyrag.storage.database import Database, FileFormat, RawText, is_server
from lazyrag.stores.protocol import (
    Feature,
    Part,
    State,
    VectorRow,
    VectorSchema,
    check_deletion,
    check_schema,
    check_vectors,
    joined_parts,
    only_dense,
    other_schema,
    part_of_arrays,
    part_of_rows,
    searched,
    state_of,
)
from lazyrag.types import Embeddings, Fields, Matrix, Metric, Ranking

if TYPE_CHECKING:
    from typing import Self

    from numpy.typing import NDArray


# Table `space` has the indexes: vectors and keyword indexes. Stored names do not change.
LEDGER_TABLES = """
-- Numbers of rows are never given out twice (AUTOINCREMENT): programs remember what they read by them.
-- One ledger for each Document name in the file.
CREATE TABLE ledger (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    token TEXT NOT NULL DEFAULT (lower(hex(randomblob(8)))),  -- of no other ledger; it is in the names of collections
    changes INTEGER NOT NULL DEFAULT 0,   -- grows when what is live changes
    removals INTEGER NOT NULL DEFAULT 0,  -- grows before anything is removed from a store
    forgotten INTEGER NOT NULL DEFAULT 0, -- value of changes when rows of deleted documents were last removed
    holder TEXT NOT NULL DEFAULT '',      -- who may write: the lease
    holder_told TEXT NOT NULL DEFAULT '', -- the same for people, and how to see whether it still runs (JSON)
    expires_at REAL NOT NULL DEFAULT 0    -- seconds since 1970
);
-- Build numbers are given out once in the whole file.
CREATE TABLE build_sequence (next INTEGER NOT NULL);
INSERT INTO build_sequence VALUES (1);
CREATE TABLE document (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    ledger INTEGER NOT NULL REFERENCES ledger (id),
    uid TEXT NOT NULL,                    -- of its root node
    identity TEXT NOT NULL,               -- path relative to the dataset, or the user's id
    origin TEXT NOT NULL,                 -- 'dataset', 'file' (added singly), 'text' (added as text)
    status TEXT NOT NULL,                 -- 'new' (nothing live yet), 'live', 'deleted', 'excluded' (by the user)
    size INTEGER, mtime_ns INTEGER, inode INTEGER,  -- of the file when it was read; NULL for a text
    seen_ns INTEGER NOT NULL DEFAULT 0,   -- when they were looked at
    content_hash TEXT NOT NULL DEFAULT '',
    mark TEXT NOT NULL DEFAULT '',        -- digest of its loader and of what the user says of it
    loaded TEXT NOT NULL DEFAULT '{}',    -- metadata that the loader found (JSON)
    said TEXT NOT NULL DEFAULT '{}',      -- metadata that file_metadata gave (JSON)
    updates TEXT NOT NULL DEFAULT '{}',   -- metadata that update_metadata gave (JSON)
    version INTEGER NOT NULL DEFAULT 0,
    changed INTEGER NOT NULL DEFAULT 0,   -- value of ledger.changes when its live builds last changed
    UNIQUE (ledger, uid)
);
CREATE INDEX document_by_change ON document (ledger, changed);
CREATE TABLE node_group (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    ledger INTEGER NOT NULL REFERENCES ledger (id),
    name TEXT NOT NULL,
    parent INTEGER REFERENCES node_group (id),  -- NULL for the root group
    fingerprint TEXT NOT NULL,            -- of its definition and those above it
    collection TEXT NOT NULL,             -- of its segments
    status TEXT NOT NULL,                 -- 'building', 'live', 'dropped'
    whole INTEGER NOT NULL DEFAULT 0,     -- 1 once it was built for every document
    dropped_at REAL NOT NULL DEFAULT 0,
    UNIQUE (ledger, collection)
);
CREATE TABLE build (
    number INTEGER PRIMARY KEY,
    document INTEGER NOT NULL REFERENCES document (id),
    node_group INTEGER NOT NULL REFERENCES node_group (id),
    parent INTEGER,                       -- the build it was made of; NULL in the root group
    root INTEGER NOT NULL,                -- the build of the root group above it, or itself
    input TEXT NOT NULL,                  -- digest of all that its transform could see
    output TEXT NOT NULL,                 -- digest of its nodes
    counts TEXT NOT NULL,                 -- how many nodes each node of the parent build gave (JSON)
    status TEXT NOT NULL,                 -- 'writing', 'written' (acknowledged by the store), 'dead'
    dead_at REAL NOT NULL DEFAULT 0
);
CREATE INDEX build_by_document ON build (document, node_group);
CREATE INDEX build_by_group ON build (node_group);
CREATE INDEX build_by_status ON build (status) WHERE status = 'dead';
CREATE TABLE live (
    document INTEGER NOT NULL REFERENCES document (id),
    node_group INTEGER NOT NULL REFERENCES node_group (id),
    build INTEGER NOT NULL REFERENCES build (number),
    PRIMARY KEY (document, node_group)
) WITHOUT ROWID;
CREATE INDEX live_by_group ON live (node_group);
CREATE TABLE version (
    document INTEGER NOT NULL REFERENCES document (id),
    number INTEGER NOT NULL,
    root INTEGER NOT NULL,                -- its build of the root group
    created_at REAL NOT NULL,
    content_hash TEXT NOT NULL,
    loaded TEXT NOT NULL, said TEXT NOT NULL, updates TEXT NOT NULL,
    PRIMARY KEY (document, number)
) WITHOUT ROWID;
CREATE TABLE space (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    node_group INTEGER NOT NULL REFERENCES node_group (id),
    kind TEXT NOT NULL,                   -- 'terms' or 'vectors'
    name TEXT NOT NULL,                   -- the analyser, or the embed key
    identity TEXT NOT NULL,               -- of the analyser or the embed callable
    collection TEXT NOT NULL,             -- of its vectors; '' for terms
    dimension INTEGER NOT NULL DEFAULT 0, -- 0: there is none yet; -1: vectors are sparse
    status TEXT NOT NULL,                 -- 'building', 'live', 'dropped'
    whole INTEGER NOT NULL DEFAULT 0,
    dropped_at REAL NOT NULL DEFAULT 0,
    UNIQUE (node_group, kind, name, identity)
);
CREATE TABLE covered (                    -- builds that a space holds
    space INTEGER NOT NULL REFERENCES space (id),
    build INTEGER NOT NULL,
    PRIMARY KEY (space, build)
) WITHOUT ROWID;
CREATE INDEX covered_by_build ON covered (build);
CREATE TABLE term_part (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    space INTEGER NOT NULL REFERENCES space (id),
    file TEXT NOT NULL,                   -- name of an array file
    arrays BLOB,                          -- what would stand in it, where the part is small; then there is no file
    rows INTEGER NOT NULL,
    builds BLOB NOT NULL                  -- (b, 2) int64, little-endian: build and how many rows, in the rows' order
);
CREATE INDEX term_part_by_space ON term_part (space);
CREATE TABLE failure (
    ledger INTEGER NOT NULL REFERENCES ledger (id),
    identity TEXT NOT NULL,
    stage TEXT NOT NULL,
    kind TEXT NOT NULL,                   -- class of the error
    message TEXT NOT NULL,
    failed_at REAL NOT NULL,
    PRIMARY KEY (ledger, identity, stage)
) WITHOUT ROWID;
CREATE TABLE program (                    -- who works with which definitions
    id TEXT PRIMARY KEY,
    ledger INTEGER NOT NULL REFERENCES ledger (id),
    told TEXT NOT NULL,                   -- who it is, and how to see whether it still runs (JSON)
    seen_at REAL NOT NULL,
    definitions TEXT NOT NULL             -- group name to fingerprint (JSON)
) WITHOUT ROWID;
"""

LEDGER_ADDITIONS = """
ALTER TABLE ledger ADD COLUMN incoming TEXT NOT NULL DEFAULT '';   -- token of the ledger that is being copied here
ALTER TABLE ledger ADD COLUMN copied_from TEXT NOT NULL DEFAULT ''; -- token of the one that it was copied from
ALTER TABLE node_group ADD COLUMN fields TEXT NOT NULL DEFAULT ''; -- that filters may read (JSON); '' if not known
ALTER TABLE node_group ADD COLUMN definition TEXT NOT NULL DEFAULT ''; -- its parts (JSON); older files lack it
ALTER TABLE space ADD COLUMN model TEXT NOT NULL DEFAULT '';       -- of its vectors (JSON); older files lack it
UPDATE node_group SET fields = coalesce(
    (SELECT schema FROM segment_collection WHERE segment_collection.name = node_group.collection), ''
);
"""
"""Format 2 of the store file: additions to the ledger."""

JOB_TABLE = """
CREATE TABLE job (  -- calls that workers run; docs/storage-format.md has the columns
    id INTEGER PRIMARY KEY AUTOINCREMENT, ledger INTEGER NOT NULL REFERENCES ledger (id), kind TEXT NOT NULL,
    arguments TEXT NOT NULL, documents TEXT NOT NULL, key TEXT, created REAL NOT NULL, updated REAL NOT NULL,
    state TEXT NOT NULL, is_canceled INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0, begun INTEGER,
    worker TEXT NOT NULL DEFAULT '', program TEXT NOT NULL DEFAULT '', heartbeat REAL NOT NULL DEFAULT 0,
    progress TEXT, error TEXT, result TEXT
);
CREATE INDEX job_by_state ON job (ledger, state);
CREATE INDEX job_by_key ON job (ledger, key) WHERE key IS NOT NULL;
ALTER TABLE ledger ADD COLUMN switched TEXT NOT NULL DEFAULT '{}';  -- embed keys that others serve (JSON)
"""
"""Format 3 of the store file: jobs, and embed keys with another model."""

TERM_ARRAY_FILES = "SELECT file FROM term_part WHERE arrays IS NULL"
"""The names of all array files that hold parts of lexical indexes."""


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
    "collection key origin build parent number is_json content metadata span_start span_end places".split()
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
    origins: dict[OriginKey, OriginRow] = {}
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
    rows: list[SegmentRow] = []
    for key, segment in segments:
        content = segment.content
        parent = segment.parent
        metadata = texts.get(id(segment.metadata))
        if metadata is None:
            metadata = texts[id(segment.metadata)] = _json(segment, "metadata", segment.metadata)
        locations = [
            (location.start, location.end, location.kind, location.label)
            for location in segment.locations
        ]
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
                _json(segment, "places", locations) if locations else "[]",
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
        (
            ()
            if locations == "[]"
            else tuple(Location(*location) for location in json.loads(read_text(locations)))
        ),
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
        return stored_text(_ENCODER.encode(value))
    except (TypeError, ValueError, RecursionError) as exc:
        subject = f"The {name} of node {segment.uid!r} in group {segment.group!r}"
        raise ConfigError(f"{subject} must be a JSON value; got {value!r:.60}: {exc}.") from exc


def _as_dict(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not among its types")


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_as_dict)


VECTOR_TABLES = """
CREATE TABLE vector_collection (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    dimension INTEGER NOT NULL,   -- -1: its vectors are sparse
    metric TEXT NOT NULL,         -- 'cosine', 'ip' or 'l2'
    schema TEXT NOT NULL          -- the declared fields (JSON)
);
-- Rows of a collection that were written or merged together. A part is never changed but for its dead rows, and its
-- number is never given out twice: programs remember parts by them. Older parts have smaller numbers.
CREATE TABLE vector_part (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    collection INTEGER NOT NULL REFERENCES vector_collection (id),
    size INTEGER NOT NULL,        -- how many rows it has, the dead ones included
    arrays TEXT NOT NULL,         -- name of its bundle of arrays: those of a DenseBlock or of a SparsePart
    dead BLOB,                    -- a bit for each row, the first one highest, 1 where it is dead; NULL: all live
    content BLOB                  -- the bundle itself where it is small; NULL where it is an array file
);
CREATE INDEX vector_part_by_collection ON vector_part (collection);
"""

VECTOR_PARTS = "SELECT arrays FROM vector_part"
"""The names of all parts' bundles, in files or not."""

VECTOR_ARRAY_FILES = f"{VECTOR_PARTS} WHERE content IS NULL"
"""The names of all array files that hold vectors; others like them are not in use."""


CollectionRow: TypeAlias = tuple[int, int, Metric, str]
"""A collection's number, dimension, metric and schema (JSON)."""


def collection_row(connection: sqlite3.Connection, collection: str) -> CollectionRow | None:
    """A collection; None if it does not exist."""
    row = connection.execute(
        "SELECT id, dimension, metric, schema FROM vector_collection WHERE name = ?", (collection,)
    ).fetchone()
    return cast("CollectionRow | None", row)


def dead_bits(alive: Mask | None) -> bytes | None:
    """A part's dead rows as stored in the table.

    Example:
        >>> dead_bits(np.array([True, False, True])), dead_bits(np.array([True]))
        (b'@', None)
    """
    return None if alive is None or alive.all() else np.packbits(~alive).tobytes()


def alive_mask(dead: bytes | None, size: int) -> Mask | None:
    """Inverse of `dead_bits`: the mask of a part's live rows; None if all are live.

    Example:
        >>> alive_mask(b"@", 3).tolist()
        [True, False, True]
    """
    if dead is None:
        return None
    alive: Mask = np.unpackbits(np.frombuffer(dead, np.uint8), count=size) == 0
    return alive


def insert_part(
    connection: sqlite3.Connection,
    collection: int,
    size: int,
    name: str,
    content: bytes | None,
    alive: Mask | None,
) -> None:
    """Enter a part: its size, the name of its bundle, its content if that is not an array file, its
    live rows.
    """
    connection.execute(
        "INSERT INTO vector_part (collection, size, arrays, content, dead) VALUES (?, ?, ?, ?, ?)",
        (collection, size, name, content, dead_bits(alive)),
    )


SEGMENT_TABLES = """
CREATE TABLE segment_collection (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    schema TEXT NOT NULL          -- the declared fields (JSON)
);
-- What the segments of one build share. Numbers are never given out twice: programs remember rows by them.
CREATE TABLE segment_origin (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    collection INTEGER NOT NULL REFERENCES segment_collection (id),
    digest BLOB NOT NULL,         -- of the four that follow
    node_group TEXT NOT NULL,
    document_id TEXT NOT NULL,    -- uid of its root node
    path TEXT NOT NULL,
    fields TEXT NOT NULL,         -- what filters read (JSON)
    UNIQUE (collection, digest)
);
CREATE TABLE segment (
    id INTEGER PRIMARY KEY,
    collection INTEGER NOT NULL REFERENCES segment_collection (id),
    key TEXT NOT NULL,            -- uid and build
    origin INTEGER NOT NULL REFERENCES segment_origin (id),
    build INTEGER NOT NULL,
    parent TEXT,                  -- uid of its parent; NULL for a root node
    number INTEGER NOT NULL,      -- among the nodes of its group in its document, from 1
    is_json INTEGER NOT NULL,     -- 0 where the content is text, 1 where it is another JSON value
    content TEXT NOT NULL,
    metadata TEXT NOT NULL,       -- JSON
    span_start INTEGER,           -- in its source, in characters; NULL where it has none
    span_end INTEGER,
    places TEXT NOT NULL,         -- a root node's pages and headings: [[start, end, kind, label], ...] (JSON)
    UNIQUE (collection, build, key)  -- new rows come last: in the order of uids they would be all over the index
);
CREATE INDEX segment_by_origin ON segment (origin);
"""
"""Texts that are no valid UTF-8 (half a surrogate pair, as broken files have them) lie as BLOBs, in
UTF-8 that has them nevertheless."""

STORE_FORMAT = FileFormat(
    name="store",
    application_id=int.from_bytes(b"lzST", "big"),
    migrations=(SEGMENT_TABLES + VECTOR_TABLES + LEDGER_TABLES, LEDGER_ADDITIONS, JOB_TABLE),
    when_damaged=(
        "Restore a backup; or delete it and the files beside it whose names begin with its own,"
        " except .selection, and ingest the dataset again."
    ),
    reads_from=2,  # nobody has submitted a job, or switched an embed key
)


_YOUNG_S = 3600.0  # a temporary file of that age belongs to a program that has ended


class StoreFile:
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
        ...         _ = connection.execute("INSERT INTO segment_collection (name, schema) VALUES ('c', '{}')")
        ...     file.commit_counter() == before
        False
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        *,
        read_only: bool = False,
        timeout_s: float = 30.0,
    ) -> None:
        self.read_only = read_only
        self._others: tuple[StoreFile, ...] = ()
        self._flushing = threading.Lock()
        self._is_flushed = False  # other programs may have written what this one goes on with
        self._writing_thread = 0
        with ExitStack() as undo:
            database: type[Database] = Database
            if is_server(path):
                from lazyrag.storage import postgres

                database = cast("type[Database]", postgres.PostgresDatabase)
            self._writer = undo.enter_context(
                database(path, STORE_FORMAT, read_only=read_only, timeout_s=timeout_s)
            )
            self._reader = self._writer
            self.path: Path | None = None if self._writer.in_memory else self._writer.path
            self.is_server = is_server(path)
            self.address = self._writer.address
            """For messages: the path, or the URL without its password."""
            if not (self._writer.in_memory or read_only):
                self._reader = undo.enter_context(self._writer.second(read_only=True))
            place = self._writer.array_place()
            undo.pop_all()
        self._identity = self._file_identity()
        self.reading: Callable[[], AbstractContextManager[sqlite3.Connection]] = (
            self._reader.reading
        )
        """A transaction that reads: all its statements see the same state, the last that was
        committed by anybody."""
        # In memory nobody else commits. A connection's counter changes with commits of others: the
        # reader's with those of the writer.
        self.commit_counter: Callable[[], int] = self._reader.data_version
        if self.path is None:  # each query calls it: no frame of ours
            self.commit_counter = functools.partial(getattr, self._writer, "commits")
        """Counter that changes with every commit of any process. Compare values of the same object
        only."""
        self.arrays = ArrayFiles(
            self.path and Path(f"{self.path}.d"), read_only=read_only, place=place
        )
        self.now = self._writer.now
        self.fetch_each = self._writer.fetch_each

    def __repr__(self) -> str:
        return f"StoreFile({self.path and self.address!r}{', read_only=True' * self.read_only})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def writing(
        self, *, durable: bool = False, checked: bool = True
    ) -> Iterator[sqlite3.Connection]:
        """A transaction that writes: committed at its end, rolled back after an error.

        Args:
            durable: Wait until the disk has it, and with it every transaction that ended before.
            checked: Check foreign keys, see `Database.writing`.

        Raises:
            StoreError: If SQLite fails in it, the file stays locked, was deleted or replaced, is
                closed or read-only.
        """
        for other in self._others:
            other.flush(again=durable)
        try:
            with self._writer.writing(durable=durable, checked=checked) as connection:
                before = self._writing_thread
                self._writing_thread = threading.get_ident()
                try:
                    yield connection
                finally:
                    self._writing_thread = before
                # SQLite would write into a file that nobody finds any more
                if not self.is_in_place:
                    path = os.fspath(self.path or "")
                    msg = (
                        f"The store {path!r} was deleted or replaced while it was open. This change"
                        " was not written. Close the Document, put the file back, and open it"
                        " again."
                    )
                    raise StoreError(msg, store=path)
        finally:  # it may be committed, and interrupted then
            self._is_flushed = False

    def second_writer(self) -> Database:
        """Another connection, which writes even if this object is read-only."""
        return self._writer.second(read_only=False)

    def reading_own(self) -> AbstractContextManager[sqlite3.Connection]:
        """See `reading`; within a transaction that this thread writes, a part of it."""
        return (
            self._writer if self._writing_thread == threading.get_ident() else self._reader
        ).reading()

    def _file_identity(self) -> tuple[int, int] | None:
        try:
            status = None if self.path is None else self.path.stat()
        except FileNotFoundError:
            status = None
        return None if status is None else (status.st_dev, status.st_ino)

    @property
    def is_in_place(self) -> bool:
        """Whether the path still leads to the open file, which may have been deleted or
        replaced.
        """
        return self._file_identity() == self._identity

    def flush(self, *, again: bool = True) -> None:
        """Wait until the disk has every finished transaction.

        Args:
            again: Also if this object has committed nothing since the last time: another program
                may have.

        Raises:
            StoreError: If the disk fails, or the file is closed.
        """
        self._writer.check_open()  # before the lock, which a fork's copy may have been left with
        with self._flushing:  # whoever relies on the flag waits for the flush
            if self._is_flushed and not again:
                return
            # now already: what another thread commits meanwhile may come too late
            self._is_flushed = True
            try:
                self._writer.flush()
            except BaseException:
                self._is_flushed = False
                raise

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
                    damage = "; ".join(
                        str(line) for (line,) in connection.execute("PRAGMA quick_check(5)")
                    )
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
            with file._writer.writing() as connection:
                stray = file._stray(connection, older_than_s)
                if stray:
                    # otherwise a power cut could bring the rows back that refer to them
                    file.flush()
                    file.arrays.delete(stray)
            file.arrays.sweep(older_than_s=max(older_than_s, _YOUNG_S))

    def _stray(self, connection: sqlite3.Connection, older_than_s: float) -> list[str]:
        named = {
            name
            for query in (TERM_ARRAY_FILES, VECTOR_ARRAY_FILES)
            for (name,) in connection.execute(query)
        }
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
                file._writer.shrink()

    def close(self) -> None:
        """Close the file. Waits for transactions of other threads. Idempotent.

        Open arrays stay valid.
        """
        self.commit_counter = self._reader.data_version  # from now on an error, in memory too
        self._reader.close()
        self._writer.close()  # last: the last connection cleans up, which a reader may not


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
        with self.file.reading() as connection:
            _, present = _collection(connection, collection)
        if present is None:
            with self.file.writing() as connection:
                connection.execute(
                    "INSERT INTO segment_collection (name, schema) VALUES (?, ?) ON CONFLICT (name)"
                    " DO NOTHING",
                    (collection, fields_text),
                )
                # another process may have been faster
                _, present = _collection(connection, collection)
        if present != fields_text:
            fields = ", ".join(sorted(json.loads(present or "{}")))
            msg = f"Collection {collection!r} has other fields than requested: {fields}."
            raise SchemaMismatchError(msg, store="map", collection=collection)

    def drop(self, collection: str) -> None:
        """See `Store.drop`."""
        with self.file.writing() as connection:
            number, _ = _collection(connection, collection)
            connection.execute("DELETE FROM segment WHERE collection = ?", (number,))
            connection.execute("DELETE FROM segment_origin WHERE collection = ?", (number,))
            connection.execute("DELETE FROM segment_collection WHERE id = ?", (number,))

    def count(self, collection: str) -> int:
        """See `Store.count`."""
        with self._reading(collection) as (connection, number):
            [rows] = connection.execute(
                "SELECT count(*) FROM segment WHERE collection = ?", (number,)
            ).fetchone()
        return int(rows)

    def upsert(self, collection: str, rows: Sequence[Segment]) -> None:
        """See `SegmentStore.upsert`."""
        by_key = {row.key: row for row in rows}  # of a key's rows the last one counts
        origins = origin_rows(by_key.values())
        with self._writing(collection) as (connection, number):
            ids = dict(
                zip(
                    origins,
                    self._origin_ids(connection, number, list(origins.values())),
                    strict=True,
                )
            )
            # in which the index grows faster
            in_order = sorted(by_key.items(), key=lambda row: (row[1].build, row[0]))
            values = segment_rows(in_order, number, ids)
            before = connection.total_changes
            connection.executemany(_INSERT, values)
            if connection.total_changes - before == len(values):
                return  # as it is with a new build
            keys = [(number, *_placed(key)) for key in by_key]
            left = _origins_of(connection, keys)
            connection.executemany(
                _REPLACE,
                (
                    (*row[1:], number, *_placed(key))
                    for (key, _), row in zip(in_order, values, strict=True)
                ),
            )
            connection.executemany(_FORGET_ORIGIN, left)

    def get(self, collection: str, keys: Sequence[str]) -> list[Segment]:
        """See `SegmentStore.get`."""
        with self.file.reading() as connection:
            rows: list[Any] = []
            if self.file.is_server:  # promises no order of joins
                rows = self.file.fetch_each(
                    connection, _get(1), ((*_placed(key), collection) for key in keys)
                )
            else:
                for at in range(0, len(keys), _GOT_AT_ONCE):
                    placed = [
                        value for key in keys[at : at + _GOT_AT_ONCE] for value in _placed(key)
                    ]
                    rows += connection.execute(_get(len(placed) // 2), [*placed, collection])
            if not rows:
                _number(connection, collection)  # raises where there is no collection
            origins = self._origins.read(connection, rows)
        return [decoded(row, origins) for row in rows]

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[Segment]:
        """See `SegmentStore.scan`."""
        with self._reading(collection) as (connection, number):
            rows = connection.execute(_SCAN, (number, *_placed(after), limit)).fetchall()
            origins = self._origins.read(connection, rows)
        return [decoded(row, origins) for row in rows]

    def delete(
        self, collection: str, *, keys: Sequence[str] | None = None, filter: Filter | None = None
    ) -> int:
        """See `SegmentStore.delete`."""
        check_deletion(keys, filter)
        with self._writing(collection) as (connection, number):
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
        with self._writing(collection) as (connection, number):
            rows = [(number, build) for build in builds]
            find = "SELECT DISTINCT origin FROM segment WHERE collection = ? AND build = ?"
            origins = [origin for row in rows for origin in connection.execute(find, row)]
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

    @contextmanager
    def _reading(self, collection: str) -> Iterator[tuple[sqlite3.Connection, int]]:
        with self.file.reading() as connection:
            yield connection, _number(connection, collection)

    @contextmanager
    def _writing(self, collection: str) -> Iterator[tuple[sqlite3.Connection, int]]:
        with self.file.writing() as connection:
            yield connection, _number(connection, collection)


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
        origins: dict[int, Origin] = {}
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
                    f"The store lacks the origin {number} of a segment. Run verify().", store="map"
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
        msg = (
            f"There is no collection {collection!r}. {known_names(collection, present)} Create it"
            " first."
        )
        raise StoreDamagedError(msg, store="map", collection=collection)
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
    origins: list[tuple[int]] = []
    for number, fields in connection.execute(
        "SELECT id, fields FROM segment_origin WHERE collection = ?", (collection,)
    ):
        if fields not in decided:
            decided[fields] = matches(filter, read_fields(fields))
        if decided[fields]:
            origins.append((number,))
    return origins


_GRAPH_FILE = re.compile(r"([0-9a-f]{32})(\.faiss|\.[0-9a-f]{16}\.tmp)")


class Graphs:
    """The graphs over a vector store's large blocks: built when first needed, and kept as long as
    the blocks are.

    Those of a store file are kept in files for the next program: in ``<path>.graphs``, each under
    the name of the array file of its rows.

    Args:
        file: The store file; None for a store in memory.
    """

    def __init__(self, file: StoreFile | None = None) -> None:
        self._file = file
        self._folder = (
            Path(f"{file.path}.graphs") if file is not None and file.path is not None else None
        )
        self._making = threading.Lock()

    def search(
        self,
        state: DenseState,
        names: Sequence[str],
        vectors: Matrix,
        topk: int,
        filter: Filter | None,
    ) -> list[Ranking]:
        """See `Approximate.search_approximately`.

        Args:
            state: The collection's vectors.
            names: Of its blocks' bundles; ignored for a store in memory.
            vectors: (n, dimension) the queries.
            topk: At least 1.
            filter: Bound, over the rows' fields.
        """
        check_installed()  # an approximate search needs the package, however few the rows are
        graphs = [self._of(block, name) for block, name in zip(state.parts, names, strict=True)]
        return approximate_rankings(state, graphs, vectors, topk, filter)

    def _of(self, block: DenseBlock, name: str) -> Graph | None:
        """The graph over a block; None for one that is searched exactly."""
        if len(block) < MIN_ROWS:
            return None
        if not block.graphs:
            with self._making:
                if not block.graphs:  # another thread may have made it meanwhile
                    graph = None if self._folder is None else self._read(self._folder, block, name)
                    block.graphs.append(graph or self._build(block, name))
        return block.graphs[0]

    def _build(self, block: DenseBlock, name: str) -> Graph:
        graph = Graph.of_matrix(block.matrix, block.norms)
        if self._folder is None or self._file is None or self._file.read_only:
            return graph
        try:
            self._write(self._folder, self._file, graph, name)
        except OSError as exc:
            warn_user(
                "A graph of vectors is not stored, and will have to be built again:"
                f" {sentence(exc)}",
                CacheWarning,
            )
            return graph
        # mapped, it needs no memory of its own
        return self._read(self._folder, block, name) or graph

    def _read(self, folder: Path, block: DenseBlock, name: str) -> Graph | None:
        """Read a graph; None if there is none, or it cannot be used."""
        path = _graph_path(folder, name)
        try:
            return Graph.read(path, name, block.matrix.shape[1])
        except FileNotFoundError:
            return None
        except (DamagedError, OSError) as exc:
            warn_user(f"A graph is built anew: {os.fspath(path)!r} {sentence(exc)}", CacheWarning)
            return None

    def _write(self, folder: Path, file: StoreFile, graph: Graph, name: str) -> None:
        """Write a graph, all of it or nothing, and remove graphs of rows that are gone and what
        killed writers left.
        """
        path = _graph_path(folder, name)
        temporary = folder / f"{path.stem}.{os.urandom(8).hex()}.tmp"
        folder.mkdir(exist_ok=True)
        try:
            graph.write(temporary, name)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        graph_files = {
            entry: match
            for entry in folder.iterdir()
            if (match := _GRAPH_FILE.fullmatch(entry.name))
        }
        with file.reading() as connection:  # after the files: what is new is in use
            stems = {bundle.partition(".")[0] for (bundle,) in connection.execute(VECTOR_PARTS)}
        for entry, match in graph_files.items():
            with suppress(FileNotFoundError):  # another program does the same
                old = time.time() - entry.stat().st_mtime >= _YOUNG_S
                if old if match[2].endswith(".tmp") else match[1] not in stems:
                    _remove(entry)


def _graph_path(folder: Path, name: str) -> Path:
    return folder / f"{name.partition('.')[0]}.faiss"


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except PermissionError:
        if os.name != "nt":  # there it means that a process has mapped it
            raise


_MAX_PARTS = 16
# of a part that is joined with no other: a write moves twice as many vectors at most
_FULL_ROWS = 1 << 20
_SMALL_BYTES = 256 * 1024  # a part below that lies in its row: a file of its own would cost more
_MAX_READS = 5  # of a collection whose array files go while they are being opened


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """One row of the table of parts.

    Args:
        id: Its number.
        name: Of its bundle of arrays.
        in_file: Whether that is an array file.
        dead: The bits in the table.
        block: Its rows.
        alive: Mask of live rows; None if all are live.
    """

    id: int
    name: str
    in_file: bool
    dead: bytes | None
    block: Part
    alive: Mask | None


@dataclass(frozen=True, slots=True, eq=False)
class _Collection:
    """A collection as one transaction saw it.

    Args:
        id: Its number.
        schema: Dimension, metric and the declared fields as text.
        parts: Oldest first.
        state: Of its parts, for queries.
    """

    id: int
    schema: tuple[int, Metric, str]
    parts: tuple[_Part, ...]
    state: State


class _UnknownCollectionError(StoreDamagedError):
    """There is no collection of that name, or no longer."""


class MapFileVectorStore:
    """Vectors in a store file (spec 001's ``map`` with a ``uri``), searched exactly, or by graphs
    on request.

    Commits of other programs are visible to the next call. Vectors are read from disk when a search
    needs them. The caller closes the file.

    Args:
        file: The store file.

    Example:
        >>> store = MapFileVectorStore(StoreFile(None))
        >>> store.create("c", VectorSchema(2, "cosine", {}))
        >>> store.upsert("c", [VectorRow("k", np.array([1, 0], np.float32))])
        >>> store.search("c", np.array([[2, 0]], np.float32), 1)
        [[('k', 1.0)]]
    """

    def __init__(self, file: StoreFile) -> None:
        self.file = file
        # with the number of the file's changes
        self._cached: dict[str, tuple[int, _Collection]] = {}
        self._merging = threading.Lock()
        self._graphs = Graphs(file)

    @property
    def features(self) -> frozenset[Feature]:
        """Exact and approximate; persistent and shared, unless the file is in memory."""
        in_memory: frozenset[Feature] = frozenset(["exact", "sparse", "approximate"])
        return in_memory if self.file.path is None else in_memory | {"persistent", "shared"}

    def open(self) -> None:
        """Do nothing: the file is open."""

    def close(self) -> None:
        """Release the arrays."""
        self._cached.clear()

    def create(self, collection: str, schema: VectorSchema) -> None:
        """See `VectorStore.create`."""
        requested = (schema.dimension, schema.metric, schema_text(schema.fields))
        check_schema(schema)
        with self.file.reading() as connection:
            present = collection_row(connection, collection)
        if present is None:
            with self.file.writing() as connection:
                connection.execute(
                    "INSERT INTO vector_collection (name, dimension, metric, schema) VALUES (?, ?,"
                    " ?, ?) ON CONFLICT (name) DO NOTHING",
                    (collection, *requested),
                )
                present = cast("CollectionRow", collection_row(connection, collection))
        _, dimension, metric, fields = present
        if (dimension, metric, fields) != requested:
            raise other_schema(collection, dimension, metric, schema)

    def drop(self, collection: str) -> None:
        """See `Store.drop`."""
        with self.file.writing() as connection:
            row = collection_row(connection, collection)
            if row is None:
                return
            names = connection.execute(
                "SELECT arrays FROM vector_part WHERE collection = ? AND content IS NULL", (row[0],)
            ).fetchall()
            connection.execute("DELETE FROM vector_part WHERE collection = ?", (row[0],))
            connection.execute("DELETE FROM vector_collection WHERE id = ?", (row[0],))
        self._cached.pop(collection, None)
        self.file.arrays.postpone_deletion(name for (name,) in names)

    def count(self, collection: str) -> int:
        """See `Store.count`."""
        return len(self._now(collection).state)

    def upsert(self, collection: str, rows: Sequence[VectorRow]) -> None:
        """See `VectorStore.upsert`."""
        cached = self._cached.get(collection)
        # what may have changed is checked again below
        present = self._now(collection) if cached is None else cached[1]
        last = {row.key: row for row in rows}  # of a key that stands twice, the later row counts
        check_vectors(collection, present.schema[0], last.values())
        if not last:
            return
        block = part_of_rows(list(last.values()), present.schema[0])
        # It is on the disk before anything names it.
        name, content = self.file.arrays.write_or_inline(block.arrays(), _SMALL_BYTES)
        with self.file.writing() as connection:
            present = self._read(connection, collection)
            # it may have been made anew meanwhile
            check_vectors(collection, present.schema[0], last.values())
            retired, _ = mark_rows_dead(connection, present.parts, block.keys)
            if content is None:
                self.file.check_there(name)
            insert_part(connection, present.id, len(block), name, content, None)
            present = self._read(connection, collection)
            is_large = any(part.in_file for part in _parts_to_merge(present))
            if not is_large:
                self._merge(collection, present)
        self.file.arrays.postpone_deletion(retired)
        if is_large:  # merged while others write
            self._merge(collection)

    def get(self, collection: str, keys: Sequence[str]) -> list[VectorRow]:
        """See `VectorStore.get`."""
        return [VectorRow(*row) for row in self._now(collection).state.get(keys)]

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[VectorRow]:
        """See `VectorStore.scan`."""
        return [VectorRow(*row) for row in self._now(collection).state.page(after, limit)]

    def delete(
        self, collection: str, *, keys: Sequence[str] | None = None, filter: Filter | None = None
    ) -> int:
        """See `VectorStore.delete`."""
        self._now(collection)
        check_deletion(keys, filter)
        if keys is not None and not len(keys):
            return 0
        with self.file.writing() as connection:
            present = self._read(connection, collection)
            deleted = (
                present.state.matching(filter)
                if filter is not None
                else list(dict.fromkeys(keys or ()))
            )
            retired, count = mark_rows_dead(connection, present.parts, encoded_keys(deleted))
        self.file.arrays.postpone_deletion(retired)
        if count:
            self._merge(collection)
        return count

    def search(
        self, collection: str, vectors: Embeddings, topk: int, filter: Filter | None = None
    ) -> list[Ranking]:
        """See `VectorStore.search`."""
        return searched(self._now(collection).state, vectors, topk, filter)

    def search_approximately(
        self, collection: str, vectors: Embeddings, topk: int, filter: Filter | None = None
    ) -> list[Ranking]:
        """See `Approximate.search_approximately`."""
        now = self._now(collection)
        state, matrix = only_dense(now.state, vectors)
        return self._graphs.search(state, [part.name for part in now.parts], matrix, topk, filter)

    def _now(self, collection: str) -> _Collection:
        """The present collection, cached until the next commit to the file."""
        reads = 0
        while True:
            # before the reading: what comes between is read again
            changes = self.file.commit_counter()
            cached = self._cached.get(collection)
            if cached is not None and cached[0] == changes:
                return cached[1]
            reads += 1
            try:
                with self.file.reading() as connection:
                    present = self._read(connection, collection)
            except StoreError:
                # Parts may be merged, and their files removed, between the reading of their names
                # and the opening.
                if reads == _MAX_READS or self.file.commit_counter() == changes:
                    raise
            else:
                self._cached[collection] = changes, present
                return present

    def _read(self, connection: sqlite3.Connection, collection: str) -> _Collection:
        """The collection in a transaction; known parts are not opened again."""
        row = collection_row(connection, collection)
        if row is None:
            self._cached.pop(collection, None)
            names = [name for (name,) in connection.execute("SELECT name FROM vector_collection")]
            msg = (
                f"There is no collection {collection!r}. {known_names(collection, names)} Create it"
                " first."
            )
            raise _UnknownCollectionError(msg, store="map", collection=collection)
        number, dimension, metric, fields = row
        before = self._cached.get(collection)
        opened = {part.id: part for part in before[1].parts} if before is not None else {}
        rows = connection.execute(
            "SELECT id, arrays, content IS NULL, size, dead FROM vector_part WHERE collection = ?"
            " ORDER BY id",
            (number,),
        ).fetchall()
        parts = []
        for part_id, name, in_file, size, dead in rows:
            part = opened.get(part_id)
            if part is None or part.dead != dead:
                block = (
                    part.block
                    if part is not None
                    else self._opened(connection, part_id, name, dimension, in_file=in_file)
                )
                part = _Part(part_id, name, bool(in_file), dead, block, alive_mask(dead, size))
            parts.append(part)
        # the same objects
        if before is not None and before[1].id == number and before[1].parts == tuple(parts):
            return before[1]
        state = state_of(
            [part.block for part in parts], [part.alive for part in parts], dimension, metric
        )
        return _Collection(number, (dimension, metric, fields), tuple(parts), state)

    def damage(self, collection: str) -> str:
        """See `Checkable.damage`."""
        with self.file.reading() as connection:
            parts = connection.execute(
                "SELECT arrays, content FROM vector_part JOIN vector_collection ON"
                " vector_collection.id = vector_part.collection WHERE name = ? ORDER BY"
                " vector_part.id",
                (collection,),
            ).fetchall()
        for name, content in parts:
            damage = self.file.arrays.check(name) if content is None else damage_of(content, name)
            if damage:
                return f"the array file {name} {damage}"
        return ""

    def _opened(
        self, connection: sqlite3.Connection, part: int, name: str, dimension: int, *, in_file: bool
    ) -> Part:
        if in_file:
            return part_of_arrays(self.file.arrays.open(name), dimension)
        [content] = connection.execute(
            "SELECT content FROM vector_part WHERE id = ?", (part,)
        ).fetchone()
        try:
            return part_of_arrays(decoded_arrays(joined([memoryview(content)]), name), dimension)
        except DamagedError as exc:
            msg = f"Part {part} of the vectors in {self.file!r} {exc}. Run verify() and repair()."
            raise StoreError(msg, store="map") from exc

    def compact(self, collection: str) -> None:
        """See `Compactable.compact`."""
        self._merge(collection, complete=True)

    def _merge(
        self, collection: str, present: _Collection | None = None, *, complete: bool = False
    ) -> None:
        """Merge the last parts if they are many or small, or all if some of their rows are dead and
        ``complete`` is set.

        Other writers do not wait for it, unless the caller writes; then it passes the present
        collection.

        Before the merged part is entered, its sources are checked: rows that have died meanwhile
        stay dead, and if another program has merged some of the same parts, its result stays.
        """
        # dropped meanwhile
        with acquired(self._merging, 0) as is_free, suppress(_UnknownCollectionError):
            if not is_free:
                return  # another thread merges; the next writer continues
            present = present or self._now(collection)
            old = _parts_to_merge(present, complete=complete)
            if not old:
                return
            blocks = [part.block for part in old]
            alive = [part.alive for part in old]
            block = joined_parts(blocks, alive, present.schema[0], self.file.arrays.scratch)
            name, content = self.file.arrays.write_or_inline(block.arrays(), _SMALL_BYTES)
            with self.file.writing() as connection:
                now = {part.id: part for part in self._read(connection, collection).parts}
                if any(part.id not in now for part in old):
                    return
                left = _since_died(block, old, [now[part.id] for part in old])
                connection.executemany(
                    "DELETE FROM vector_part WHERE id = ?", [(part.id,) for part in old]
                )
                if left is None or left.any():
                    if content is None:
                        self.file.check_there(name)
                    insert_part(connection, present.id, len(block), name, content, left)
            self.file.arrays.postpone_deletion(
                part.name for part in old if part.in_file and part.name != name
            )


def _parts_to_merge(present: _Collection, *, complete: bool = False) -> Sequence[_Part]:
    sizes = [len(part.block) for part in present.parts]
    count = tail_to_join(sizes, len(present.state), _MAX_PARTS, full=_FULL_ROWS)
    if complete and sum(sizes) > len(present.state):
        count = len(sizes)
    return present.parts[len(sizes) - count :]


def mark_rows_dead(
    connection: sqlite3.Connection, parts: Sequence[_Part], keys: NDArray[np.bytes_]
) -> tuple[list[str], int]:
    """Mark the rows of some keys as dead, and delete parts without live rows.

    Returns:
        The names of the deleted parts' array files, and the number of rows that were alive.
    """
    masks, count = without([part.block for part in parts], [part.alive for part in parts], keys)
    retired = []
    for part, mask in zip(parts, masks, strict=True):
        if mask is None or mask is part.alive:
            continue
        if mask.any():
            connection.execute(
                "UPDATE vector_part SET dead = ? WHERE id = ?", (dead_bits(mask), part.id)
            )
        else:
            connection.execute("DELETE FROM vector_part WHERE id = ?", (part.id,))
            if part.in_file:
                retired.append(part.name)
    return retired, count


def _since_died(block: Part, old: Sequence[_Part], now: Sequence[_Part]) -> Mask | None:
    """The mask of a merged block, given its parts at the time of the merge and now."""
    died = [
        before.block.keys[_lives(before) & ~_lives(after)]
        for before, after in zip(old, now, strict=True)
        if before.dead != after.dead
    ]
    if not died:
        return None
    alive = np.ones(len(block), np.bool_)
    alive[block.find(np.concatenate(died))] = False
    return alive


def _lives(part: _Part) -> Mask:
    return np.ones(len(part.block), np.bool_) if part.alive is None else part.alive
