"""Embedding cache in SQLite: EmbeddingCache, CachedEmbedder."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sqlite3
import threading
import time
import uuid
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lazyrag.errors import (
    CacheWarning,
    ConfigError,
    EmbeddingError,
    StoreError,
    sentence,
    warn_user,
)
from lazyrag.models.embedding import (
    CheckedEmbedder,
    EmbedCallable,
    as_embedder,
    as_vector,
    length_of,
    split_blank,
    stack_embeddings,
    validate_embed_texts,
    validate_input_type,
)
from lazyrag.models.protocols import Embedded, EmbeddedBatch, Embedder, InputType
from lazyrag.storage.database import Database, FileFormat
from lazyrag.types import AnyCallable, Closable, Embedding, Matrix, PathLike
from lazyrag.validation import known_arguments, require, validate_integer

ROW_BYTES = 512
"""Bytes counted per row in addition to its vector, for ``max_bytes``: key, indexes, and unused
space of a page. It is part of the file format. Measured, per row: 420 bytes beside 256 numbers, 580
beside 384, 1024, 2048 or 3072, 1,090 beside 768, 2,120 beside 512 or 1536, whose rows fit a page of
4096 bytes badly."""

# kinds of rows
_DENSE = 0
_SPARSE = 1
_CODES = 2
_DENSE_BYTES = 4  # of one number
_SPARSE_BYTES = 16  # of one dimension and its weight

_SCHEMA = """
CREATE TABLE space (
    id INTEGER PRIMARY KEY,
    identity TEXT NOT NULL,
    input_type TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    normalised INTEGER NOT NULL,
    UNIQUE (identity, input_type, dimension, normalised)
);
CREATE TABLE vector (
    id INTEGER PRIMARY KEY,
    space INTEGER NOT NULL REFERENCES space (id),
    text_hash BLOB NOT NULL,
    kind INTEGER NOT NULL,
    numbers BLOB NOT NULL,
    checksum INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    used INTEGER NOT NULL,
    UNIQUE (space, text_hash)
);
CREATE INDEX vector_by_use ON vector (used);
CREATE TABLE total (bytes INTEGER NOT NULL);
INSERT INTO total VALUES (0);
CREATE TRIGGER vector_added AFTER INSERT ON vector BEGIN
    UPDATE total SET bytes = bytes + length(NEW.numbers) + 512;
END;
CREATE TRIGGER vector_replaced AFTER UPDATE OF numbers ON vector BEGIN
    UPDATE total SET bytes = bytes + length(NEW.numbers) - length(OLD.numbers);
END;
CREATE TRIGGER vector_deleted AFTER DELETE ON vector BEGIN
    UPDATE total SET bytes = bytes - length(OLD.numbers) - 512;
END;
"""

CACHE_FORMAT = FileFormat(
    name="embedding cache",
    application_id=int.from_bytes(b"lzEC", "big"),
    migrations=(_SCHEMA, "UPDATE vector SET used = updated_at;"),  # before, it counted from 1
    when_damaged=(
        "It holds nothing that cannot be computed again: delete it, with the files beside it whose"
        " names end in -wal and -shm, and a new one is made."
    ),
)

_VIEW = """
CREATE TEMP VIEW embeddings AS SELECT
    embedding_id(identity, dimension, normalised, text_hash) AS id,
    model_name(identity, dimension, normalised) AS model_name,
    lower(hex(text_hash)) AS hash,
    provider_name(identity) AS provider_name,
    base64(numbers) AS embedding_vector,
    strftime('%Y-%m-%dT%H:%M:%SZ', created_at, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%SZ', updated_at, 'unixepoch') AS updated_at,
    vector.id AS row
FROM vector JOIN space ON space.id = vector.space
WHERE input_type = 'document' AND is_dense(text_hash, kind, numbers, checksum, dimension)
"""


@dataclass(frozen=True, slots=True)
class EmbeddingRow:
    """A row of spec 004's table of cached embeddings; see
    `lazyrag.models.embedding_cache.EmbeddingCache.embeddings`.

    Args:
        id: A UUID, made of the model's names and the text's hash: the same in every file.
        model_name: The model.
        hash: SHA-256 of the text in UTF-8, 64 hexadecimal digits. (The spec has MD5, for which
            colliding texts can be made.)
        provider_name: The model's provider, "" where not known.
        embedding_vector: The vector's float32 numbers, little-endian, in Base64.
        created_at: When a vector of the text was first stored, UTC: ``"2025-01-31T12:00:00Z"``.
        updated_at: When this vector was.
    """

    id: str
    model_name: str
    hash: str
    provider_name: str
    embedding_vector: str
    created_at: str
    updated_at: str

    def get_embedding(self) -> list[float]:
        """The vector's numbers."""
        numbers: list[float] = np.frombuffer(
            base64.b64decode(self.embedding_vector), "<f4"
        ).tolist()
        return numbers


def hash_of(text: str) -> bytes:
    """SHA-256 of a text in UTF-8, 32 bytes; also of one with half a surrogate pair, as broken files
    have them.
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class StoredVector(NamedTuple):
    """A vector as a row holds it.

    Args:
        text_hash: `hash_of` its text.
        kind: 0 for a dense vector, 1 for a sparse one, 2 for bytes.
        numbers: Little-endian: float32 numbers; or uint64 dimensions and, after all of them, their
            float64 weights.
        checksum: CRC-32 of these three; the hash is in it so that a damaged file cannot give one
            text another's vector.
    """

    text_hash: bytes
    kind: int
    numbers: bytes
    checksum: int


def encode_vector(text: str, vector: Embedding | bytes, dimension: int) -> StoredVector:
    """A vector as it is stored; bytes, such as quantised token vectors, as they are.

    Args:
        text: What it is the vector of.
        vector: Finite numbers; or dimensions below 2**64 to weights.
        dimension: How many numbers a dense one must have; 0 for any.

    Raises:
        ConfigError: If the vector is none, or has another length.
    """
    if isinstance(vector, bytes):
        return StoredVector(hash_of(text), _CODES, vector, _checksum(hash_of(text), _CODES, vector))
    try:
        checked = as_vector(vector)
        if isinstance(checked, dict):
            dimensions = np.array(list(checked), "<u8")
            weights = np.array(list(checked.values()), "<f8")
            kind = _SPARSE
            numbers = dimensions.tobytes() + weights.tobytes()
        else:
            kind = _DENSE
            numbers = checked.astype("<f4", copy=False).tobytes()
    except (ValueError, OverflowError) as exc:
        raise ConfigError(
            f"The text {text!r:.60} has no vector that can be stored: its embedder {exc}."
        ) from exc
    if dimension and kind == _DENSE and len(checked) != dimension:
        raise ConfigError(
            f"The vector of the text {text!r:.60} has {len(checked)} numbers; those of its space"
            f" have {dimension}."
        )
    text_hash = hash_of(text)
    return StoredVector(text_hash, kind, numbers, _checksum(text_hash, kind, numbers))


def decode_vector(stored: StoredVector, dimension: int) -> Embedding | bytes | None:
    """A stored vector as it was given, a copy; None where what is stored is not that text's vector
    any more.
    """
    text_hash, kind, numbers, checksum = stored
    if not isinstance(numbers, bytes) or kind not in (_DENSE, _SPARSE, _CODES):
        return None
    if _checksum(text_hash, kind, numbers) != checksum:
        return None
    if kind == _CODES:
        return numbers
    entries, rest = divmod(len(numbers), _DENSE_BYTES if kind == _DENSE else _SPARSE_BYTES)
    if rest:
        return None
    if kind == _DENSE:
        vector = np.frombuffer(numbers, "<f4").astype(np.float32)
        return (
            vector if entries and dimension in (0, entries) and np.isfinite(vector).all() else None
        )
    dimensions = np.frombuffer(numbers, "<u8", entries)
    weights = np.frombuffer(numbers, "<f8", offset=8 * entries)
    return (
        dict(zip(dimensions.tolist(), weights.tolist(), strict=True))
        if np.isfinite(weights).all()
        else None
    )


def spec_names(identity: str, dimension: int, normalised: bool) -> tuple[str, str]:
    """Provider and model as spec 004's table names them; what differs in any of the three gets
    different names.

    Example:
        >>> spec_names("openai:text-embedding-3-small", 256, True)
        ('openai', 'text-embedding-3-small (256, normalised)')
        >>> spec_names("my-model", 0, False)
        ('', 'my-model')
    """
    provider, _, model = identity.partition(":")
    if not (provider and model):
        provider = ""
        model = identity
    details = ", ".join([str(dimension)] * bool(dimension) + ["normalised"] * bool(normalised))
    # A model whose own name ends in a bracket gets one more, or it could be another one's name with
    # its dimension.
    return provider, f"{model} ({details})" if details or model.endswith(")") else model


def add_view(connection: sqlite3.Connection) -> None:
    """Make spec 004's table as a temporary view ``embeddings`` of the tables ``vector`` and
    ``space``.

    Its columns are the fields of `EmbeddingRow`, and ``row``, by which it can be read in pages.
    """
    functions: dict[str, tuple[int, AnyCallable]] = {
        "embedding_id": (4, _embedding_id),
        "provider_name": (1, lambda identity: spec_names(identity, 0, False)[0]),
        "model_name": (
            3,
            lambda identity, dimension, normalised: spec_names(identity, dimension, normalised)[1],
        ),
        "base64": (1, lambda numbers: base64.b64encode(numbers).decode()),
        "is_dense": (5, _is_dense),
    }
    for name, (arguments, function) in functions.items():
        connection.create_function(name, arguments, function, deterministic=True)
    connection.execute(_VIEW)


def _is_dense(text_hash: bytes, kind: int, numbers: bytes, checksum: int, dimension: int) -> bool:
    return isinstance(
        decode_vector(StoredVector(text_hash, kind, numbers, checksum), dimension), np.ndarray
    )


def _embedding_id(identity: str, dimension: int, normalised: int, text_hash: bytes) -> str:
    names = spec_names(identity, dimension, bool(normalised))
    return str(uuid.uuid5(uuid.NAMESPACE_OID, json.dumps([*names, text_hash.hex()])))


def _checksum(text_hash: bytes, kind: int, numbers: bytes) -> int:
    return zlib.crc32(numbers, zlib.crc32(text_hash, kind))


_DEFAULT_MAX_BYTES = 2 * 2**30  # 1 million vectors of 384 numbers, 320,000 of 1536
_EVICTION_TARGET = 0.9  # of max_bytes; below 1, so that not every write has to evict
_HASHES_AT_ONCE = 500  # SQLite before 3.32 takes at most 999 variables
_USES_AT_ONCE = 100_000  # bounds their memory
_ROWS_AT_ONCE = 500
_DAY_S = 86_400

_PUT_SPACE = "INSERT INTO space (identity, input_type, dimension, normalised) VALUES (?, ?, ?, ?)"
_FIND_SPACE = (
    "SELECT id FROM space WHERE identity = ? AND input_type = ? AND dimension = ? AND"
    " normalised = ?"
)

_FIND = (
    "SELECT id, text_hash, kind, numbers, checksum FROM vector WHERE space = ? AND text_hash IN"
    " ({})"
)

_FIRST_DENSE = (
    "SELECT text_hash, kind, numbers, checksum FROM vector WHERE space = ? AND kind = 0 LIMIT 1"
)

_PUT = """
INSERT INTO vector (space, text_hash, kind, numbers, checksum, created_at, updated_at, used)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (space, text_hash) DO UPDATE SET
    kind = excluded.kind, numbers = excluded.numbers, checksum = excluded.checksum,
    updated_at = excluded.updated_at, used = excluded.used
"""


_DELETE_SUPERSEDED = """
DELETE FROM vector WHERE used < ? AND NOT EXISTS (
    SELECT 1 FROM space WHERE space.id = vector.space AND (
        (? AND input_type = 'query' AND identity IN (SELECT identity FROM kept))
        OR EXISTS (SELECT 1 FROM kept WHERE kept.identity = space.identity
                   AND kept.text_hash IN ('all', vector.text_hash))
    )
)
"""


@dataclass(frozen=True, slots=True)
class VectorSpace:
    """Model settings that vectors depend on; part of the cache key. Vectors of different spaces are
    never mixed.

    Args:
        identity: The model, a text that is not blank; see
            `lazyrag.models.protocols.Embedder.identity`.
        input_type: ``"document"`` or ``"query"``.
        dimension: Number of dimensions if known before the call, else 0.
        normalised: Whether vectors have length 1.

    Raises:
        ConfigError: If a value is none of those.
    """

    identity: str
    input_type: InputType = "document"
    dimension: int = 0
    normalised: bool = False

    def __post_init__(self) -> None:
        is_text = (
            isinstance(self.identity, str)
            and bool(self.identity.strip())
            and _is_unicode(self.identity)
        )
        require(
            is_text, "The identity of a vector space", self.identity, "a text that names the model"
        )
        validate_input_type(self.input_type)
        validate_integer("dimension", self.dimension, 0)


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Lookup counters of a cache object. Each call counts a text once.

    Args:
        hits: Texts with a vector.
        misses: Texts without a vector, including damaged rows.
        damaged: Damaged rows that were found and deleted.
    """

    hits: int = 0
    misses: int = 0
    damaged: int = 0


@known_arguments
class EmbeddingCache(Closable):
    """Vectors by model and text in a SQLite file of their own, for any number of threads and
    processes at once.

    A vector comes back bit for bit as it was stored. One whose row is damaged is never returned:
    every row carries a checksum over text, kind and numbers. What one call stores is stored in one
    transaction, and is there after a crash.

    The file is bounded: when a write exceeds ``max_bytes``, least recently used vectors are evicted
    until 90% of ``max_bytes`` remain. Reads write nothing: the uses of rows are written with the
    next `put_many`, with `close`, or after 100,000 of them; a crash in between loses only these.
    Free space is used again; only `clear` and `retain` shrink the file.

    Args:
        path: The file; made where there is none, in a folder that exists.
        max_bytes: At least 1. Counted are vectors and 512 bytes for each. The file itself may be a
            little larger: by a quarter for vectors of 1536 numbers, at worst by two thirds, for
            512.
        timeout_s: How long to wait for another process that writes.

    Raises:
        ConfigError: If an argument is out of its range.
        StoreError: If the file cannot be opened, is damaged, of a newer format, or no embedding
            cache.

    Example:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> space = VectorSpace("local:toy", dimension=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with EmbeddingCache(pathlib.Path(folder, "cache.db")) as cache:
        ...         cache.put_many(space, {"tea": np.array([0.5, 2], np.float32)})
        ...         cache.get_many(space, ["tea", "coffee"])
        {'tea': array([0.5, 2. ], dtype=float32)}
    """

    def __init__(
        self,
        path: PathLike,
        *,
        max_bytes: int = _DEFAULT_MAX_BYTES,
        timeout_s: float = 30.0,
    ) -> None:
        self.max_bytes = validate_integer("max_bytes", max_bytes, 1)
        self._counting = threading.Lock()
        self._stats = CacheStats()
        self._used: set[int] = set()
        with ExitStack() as undo:
            self._database = undo.enter_context(Database(path, CACHE_FORMAT, timeout_s=timeout_s))
            with self._database.reading() as connection:
                add_view(connection)
            undo.pop_all()
        self.path = self._database.path

    def __repr__(self) -> str:
        return f"EmbeddingCache({os.fspath(self.path)!r}, max_bytes={self.max_bytes})"

    def copy_to(self, path: PathLike) -> None:
        """Write all of it into another file, all or nothing.

        Args:
            path: Of the file; what is there is replaced.

        Raises:
            StoreError: If the file cannot be written.
        """
        target = Path(path).expanduser().absolute()
        unfinished = target.with_name(target.name + ".unfinished")
        try:
            unfinished.unlink(missing_ok=True)
            with (
                self._database.reading() as connection,
                closing(sqlite3.connect(unfinished)) as copy,
            ):
                connection.backup(copy)
            unfinished.replace(target)
        except (OSError, sqlite3.Error) as exc:
            raise StoreError(
                f"The embedding cache cannot be copied to {str(target)!r}: {exc}. Look at its"
                " folder's room and rights.",
                store=str(target),
            ) from exc
        finally:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)

    def __len__(self) -> int:
        with self._database.reading() as connection:
            return int(connection.execute("SELECT count(*) FROM vector").fetchone()[0])

    def __bool__(self) -> bool:
        return True  # an empty cache is a cache

    @property
    def size_bytes(self) -> int:
        """What ``max_bytes`` bounds: the bytes of all vectors, and 512 for each."""
        with self._database.reading() as connection:
            return _total(connection)

    @property
    def stats(self) -> CacheStats:
        """Hits and misses of this object since it was made."""
        return self._stats

    def get_many(self, space: VectorSpace, texts: Iterable[str]) -> dict[str, Embedding]:
        """The vectors of those texts that have one.

        Args:
            space: Which model's, and how.
            texts: Any number of texts, in any order.

        Returns:
            For each text that is there its vector: (dim,) float32, or dimensions to weights; a copy
            of its own.

        Raises:
            StoreError: If the file cannot be read.
        """
        require(not isinstance(texts, str), "texts", texts, "a list of strings")
        texts_by_hash = {hash_of(text): text for text in texts}
        vectors: dict[str, Any] = {}  # bytes where bytes were stored
        used = []
        damaged = []
        for row, stored in self._rows(space, list(texts_by_hash)):
            vector = decode_vector(stored, space.dimension)
            if vector is None:
                damaged.append((row,))
            else:
                used.append(row)
                vectors[texts_by_hash[stored.text_hash]] = vector
        if damaged:
            # if another put a whole one there meanwhile, that goes too
            with self._database.writing() as connection:
                connection.executemany("DELETE FROM vector WHERE id = ?", damaged)
        self._count(used, misses=len(texts_by_hash) - len(used), damaged=len(damaged))
        return vectors

    def put_many(self, space: VectorSpace, vectors: Mapping[str, Embedding | bytes]) -> None:
        """Store vectors, all or none of them; a text that has one gets the new one.

        Args:
            space: Which model's, and how.
            vectors: Texts to vectors: finite numbers, as many as the space's dimension where that
                is not 0; or dimensions to weights; or bytes, which come back as they are.

        Raises:
            ConfigError: If one is something else, or has another length than those stored before.
            StoreError: If the file cannot be written; it is as it was before.
        """
        entries = [encode_vector(text, vector, space.dimension) for text, vector in vectors.items()]
        if not entries:
            return
        now = int(time.time())
        with self._database.writing() as connection:
            number = _number_of(connection, space)
            if number is None:
                number = connection.execute(_PUT_SPACE, _key(space)).lastrowid
            if not space.dimension:
                _check_lengths(connection, number, entries)
            tick = self._flush_uses(connection)
            connection.executemany(_PUT, ((number, *entry, now, now, tick) for entry in entries))
            self._evict(connection)

    def clear(self) -> None:
        """Delete everything, and give the room back to the disk.

        Raises:
            StoreError: If the file cannot be written.
        """
        with self._database.writing() as connection:
            connection.execute("DELETE FROM vector")
            connection.execute("DELETE FROM space")
        self._database.shrink()

    def retain(
        self,
        texts: Iterable[tuple[str, Iterable[str]]],
        identities: Collection[str] = (),
        *,
        unused_days: int = 0,
    ) -> None:
        """Delete superseded vectors, and give the room back to the disk. It may be interrupted at
        any point.

        What is stored or used meanwhile stays, and so do the vectors of queries of every model that
        is named. What stays counts as used now.

        Args:
            texts: Identities of models, each with texts of documents whose vectors stay; a model
                may come repeatedly.
            identities: Models whose vectors all stay.
            unused_days: Only delete superseded vectors, and those of queries, that were neither
                stored nor used for so many days; the file keeps its size then. If there are no such
                vectors, texts are not read.

        Raises:
            StoreError: If the file cannot be written.
        """
        with self._database.writing() as connection:
            tick = self._flush_uses(connection)
            before = tick - validate_integer("unused_days", unused_days, 0) * _DAY_S
            if not connection.execute(
                "SELECT 1 FROM vector WHERE used < ? LIMIT 1", (before,)
            ).fetchone():
                return
            connection.execute(
                "CREATE TEMP TABLE IF NOT EXISTS kept (identity, text_hash, UNIQUE (identity,"
                " text_hash))"
            )
            connection.execute("DELETE FROM kept")
            connection.executemany(
                "INSERT INTO kept VALUES (?, 'all')", [(identity,) for identity in identities]
            )
        for identity, some in texts:  # read between transactions: it may be in another file
            rows = [(identity, hash_of(text)) for text in some]
            with self._database.writing() as connection:
                connection.executemany("INSERT OR IGNORE INTO kept VALUES (?, ?)", rows)
        with self._database.writing() as connection:
            connection.execute(_DELETE_SUPERSEDED, (before, not unused_days))
            connection.execute("UPDATE vector SET used = ? WHERE used < ?", (tick, before))
        if not unused_days:
            self._database.shrink()

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._used:
            self._remember_uses()
        self._database.close()

    def embeddings(self) -> Iterator[EmbeddingRow]:
        """The cache as spec 004's table, section 7, in the order in which its rows were made.

        The table's key is (model_name, hash, provider_name), ours has more in it. So provider_name
        is what stands before the first colon of the identity, if anything does; model_name is the
        rest, with dimension and normalisation where they are known:
        ``"openai:text-embedding-3-small"`` with dimension 256 becomes ``"openai"``,
        ``"text-embedding-3-small (256)"``. Embedded questions and sparse vectors are left out, and
        damaged rows. No two rows have the same key.

        The same rows are a view ``embeddings`` for SQL of your own, in `reading`.

        Raises:
            StoreError: If the file cannot be read.
        """
        columns = ", ".join(field.name for field in fields(EmbeddingRow))
        page = (
            f"SELECT row, {columns} FROM embeddings"  # noqa: S608
            f" WHERE row > ? ORDER BY row LIMIT {_ROWS_AT_ONCE}"
        )
        last = 0
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(page, (last,)).fetchall()
            for last, *values in rows:  # noqa: B007  read above, for the next page
                yield EmbeddingRow(*values)
            if len(rows) < _ROWS_AT_ONCE:
                return

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """The file for SQL of your own that reads, in one short transaction; other threads wait for
        its end.

        Example:
            >>> import pathlib, tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     with EmbeddingCache(pathlib.Path(folder, "cache.db")) as cache:
            ...         with cache.reading() as connection:
            ...             connection.execute("SELECT count(*) FROM embeddings").fetchone()
            (0,)
        """
        return self._database.reading()

    def known(self, space: VectorSpace, texts: Iterable[str]) -> set[str]:
        """Those of some texts that have a vector; this is no use of the vectors."""
        hashes = {hash_of(text): text for text in texts}
        stored_vectors = (stored for _, stored in self._rows(space, list(hashes)))
        return {
            hashes[stored.text_hash]
            for stored in stored_vectors
            if decode_vector(stored, space.dimension) is not None
        }

    def _rows(self, space: VectorSpace, hashes: list[bytes]) -> list[tuple[int, StoredVector]]:
        rows: list[tuple[int, StoredVector]] = []
        with self._database.reading() as connection:
            number = _number_of(connection, space)
            for start in range(0, len(hashes) if number is not None else 0, _HASHES_AT_ONCE):
                some = hashes[start : start + _HASHES_AT_ONCE]
                find = _FIND.format(", ".join("?" * len(some)))
                rows += [
                    (row, StoredVector(*rest))
                    for row, *rest in connection.execute(find, (number, *some))
                ]
        return rows

    def _count(self, used: list[int], *, misses: int, damaged: int) -> None:
        with self._counting:
            was = self._stats
            self._stats = CacheStats(
                was.hits + len(used), was.misses + misses, was.damaged + damaged
            )
            self._used.update(used)
            many = len(self._used) >= _USES_AT_ONCE
        if many:
            self._remember_uses()

    def _remember_uses(self) -> None:
        # Where it fails, only the order in which vectors will have to go is not the best one.
        with suppress(StoreError), self._database.writing() as connection:
            self._flush_uses(connection)

    def _flush_uses(self, connection: sqlite3.Connection) -> int:
        """Mark rows as used now, in seconds since 1970; later than all others, also where the clock
        was set back.

        Returns:
            The next tick, for rows that are stored after that.
        """
        [last] = connection.execute("SELECT coalesce(max(used), 0) FROM vector").fetchone()
        tick = max(last + 1, int(time.time()))
        with self._counting:
            used = self._used
            self._used = set()
        # A row may have been deleted and its id reused: then another row is evicted a little later.
        connection.executemany(
            "UPDATE vector SET used = ? WHERE id = ?", ((tick, row) for row in sorted(used))
        )
        return int(tick) + 1

    def _evict(self, connection: sqlite3.Connection) -> None:
        """Delete the least recently used rows if the size exceeds ``max_bytes``."""
        total = _total(connection)
        if total <= self.max_bytes:
            return
        surplus = total - int(_EVICTION_TARGET * self.max_bytes)
        last = (0, 0)
        for used, row, size in connection.execute(
            "SELECT used, id, length(numbers) FROM vector ORDER BY used, id"
        ):
            last = used, row
            surplus -= size + ROW_BYTES
            if surplus <= 0:
                break
        connection.execute("DELETE FROM vector WHERE (used, id) <= (?, ?)", last)


def _key(space: VectorSpace) -> tuple[str, str, int, bool]:
    return space.identity, space.input_type, int(space.dimension), bool(space.normalised)


def _number_of(connection: sqlite3.Connection, space: VectorSpace) -> int | None:
    """Look up the row id of a space. Not cached: another process may clear it."""
    row = connection.execute(_FIND_SPACE, _key(space)).fetchone()
    return row[0] if row else None


def _check_lengths(
    connection: sqlite3.Connection, number: int | None, entries: Sequence[StoredVector]
) -> None:
    """Dense vectors of one space have one length, also where none was known before the first
    call.
    """
    lengths = {len(entry.numbers) // 4 for entry in entries if entry.kind == 0}
    stored = connection.execute(_FIRST_DENSE, (number,)).fetchone() if lengths else None
    if stored and (first := decode_vector(StoredVector(*stored), 0)) is not None:
        lengths.add(len(first))
    if len(lengths) > 1:
        counts = " and ".join(map(str, sorted(lengths)))
        raise ConfigError(
            f"Vectors of {counts} numbers cannot be the same model's. Give each model, and each"
            " dimension of one, an identity of its own; if a model has changed under its identity,"
            " clear the cache."
        )


def _total(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT bytes FROM total").fetchone()[0])


def _is_unicode(text: str) -> bool:
    """Whether a text can be written to a file; one with half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_LOOKED_UP_AT_ONCE = 1024  # texts; bounds the memory of one batch of vectors that are there


@known_arguments
class CachedEmbedder(Closable):
    """Embedder that caches another one's vectors on disk. Takes any embedder or bare callable; a
    `BatchEmbedder`.

    Each batch is stored before it is returned, so a later error or crash cannot lose it. A text
    without a valid vector fails alone and is not stored. If the cache cannot be read, that is an
    error, raised before the model is called. If it cannot be written, the vectors are still
    returned, with a `CacheWarning`, and the call stores nothing more.

    Threads and processes may share it. Two that embed the same new text at the same time may both
    call the model; the vector stored last remains.

    Args:
        embedder: The embedder; see `lazyrag.models.embedding.as_embedder`.
        cache: An `EmbeddingCache`, or the path of one, which is opened now and closed by `close`.
        identity: What the vectors depend on: model, revision, prompts ... By default that of the
            embedder. Read once, together with the embedder's dimension: both are part of the key.

    Raises:
        ConfigError: If there is no identity, or the embedder is invalid.
        StoreError: If the cache cannot be opened.

    Example:
        >>> import pathlib, tempfile
        >>> def embed(text):
        ...     print("asked for", text)
        ...     return [float(len(text)), 1.0]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "cache.db")
        ...     with CachedEmbedder(embed, file, identity="toy:length") as embedder:
        ...         _ = embedder.embed(["tea"])
        ...         embedder.embed(["coffee", "tea"]).tolist()
        asked for tea
        asked for coffee
        [[6.0, 1.0], [3.0, 1.0]]
    """

    batch_size: int  # only where the embedder has one

    def __init__(
        self,
        embedder: Embedder | EmbedCallable,
        cache: EmbeddingCache | PathLike,
        *,
        identity: str | None = None,
    ) -> None:
        self.embedder = as_embedder(embedder)
        self.identity = _identity(self.embedder, identity)
        self._space = VectorSpace(
            self.identity,
            dimension=self.embedder.dimension or 0,
            normalised=self.embedder.normalised,
        )
        self.checked_embedder = CheckedEmbedder(self.embedder, f"The embedder {self.identity!r}")
        batch_size = getattr(self.embedder, "batch_size", None)
        if batch_size is not None:
            self.batch_size = batch_size
        self._owns_cache = not isinstance(cache, EmbeddingCache)
        self.cache = cache if isinstance(cache, EmbeddingCache) else EmbeddingCache(cache)

    def __repr__(self) -> str:
        return f"CachedEmbedder({self.identity!r}, {self.cache!r})"

    @property
    def dimension(self) -> int | None:
        """Dimension of the embedder's vectors."""
        return self.embedder.dimension

    @property
    def max_tokens(self) -> int | None:
        """Token limit of the embedder."""
        return self.embedder.max_tokens

    @property
    def normalised(self) -> bool:
        """Whether the embedder's vectors have length 1."""
        return self.embedder.normalised

    def embed(self, texts: Sequence[str], input_type: InputType = "document") -> Matrix | Any:
        """Embed texts, all or nothing; what was embedded before another text failed stays in the
        cache.

        Returns:
            (n, dim) float32; or a list of n dicts from dimension to weight where vectors are
            sparse.

        Raises:
            EmbeddingError: If a text has no vector; the error of the first one.
            StoreError: If the cache cannot be read.
        """
        embedded: dict[int, Embedded] = {}
        for batch in self.embed_batches(texts, input_type):
            embedded.update(zip(batch.positions, batch.results, strict=True))
        return stack_embeddings(
            [embedded[position] for position in range(len(embedded))],
            self.checked_embedder.name,
            self.dimension or 0,
        )

    def embed_batches(
        self, texts: Sequence[str], input_type: InputType = "document"
    ) -> Iterator[EmbeddedBatch]:
        """Return cached vectors, then new ones batch by batch; equal texts are embedded once."""
        checked = validate_embed_texts(texts)
        embeddable, blank = split_blank(checked)
        if blank is not None:
            yield blank
        positions: dict[str, list[int]] = {}
        for position in embeddable:
            positions.setdefault(checked[position], []).append(position)
        space = replace(self._space, input_type=input_type)
        dimension = space.dimension
        distinct = list(positions)
        missing = []
        for start in range(0, len(distinct), _LOOKED_UP_AT_ONCE):
            some = distinct[start : start + _LOOKED_UP_AT_ONCE]
            cached = self.cache.get_many(space, some)
            missing += [text for text in some if text not in cached]
            if cached:
                dimension = dimension or length_of(next(iter(cached.values())))
                yield _batch(positions, cached)
        storing = True
        for batch in self.checked_embedder.batches(missing, dimension, input_type):
            results = {
                missing[at]: result
                for at, result in zip(batch.positions, batch.results, strict=True)
            }
            storing = storing and self._store(space, results)
            yield _batch(positions, results)

    def cached(self, texts: Iterable[str]) -> set[str]:
        """Those of some texts, as documents, that need not be embedded."""
        return self.cache.known(self._space, texts)

    def close(self) -> None:
        """Close the cache, if it was passed as a path. Idempotent."""
        if self._owns_cache:
            self.cache.close()

    def _store(self, space: VectorSpace, results: Mapping[str, Embedded]) -> bool:
        """Store vectors; return False after a failed write."""
        vectors = {
            text: result
            for text, result in results.items()
            if not isinstance(result, EmbeddingError)
        }
        try:
            self.cache.put_many(space, vectors)
        except (ConfigError, StoreError) as exc:
            # Only a warning, since the model has answered, and the caller can go on with that. And
            # no second try in this call: waiting for a lock takes half a minute each time.
            warn_user(
                f"Could not cache the vectors of {self.identity!r}: {sentence(exc)}", CacheWarning
            )
            return False
        return True


def _identity(embedder: Embedder, declared: str | None) -> str:
    identity = embedder.identity if declared is None else declared
    if not identity:
        function = getattr(embedder, "function", embedder)
        # its repr may show keys
        name = getattr(function, "__qualname__", type(function).__qualname__)
        raise ConfigError(
            f"CachedEmbedder got {name}, which does not say which model it is; a cache could give"
            " its vectors to another model, or another's to it. Pass identity='provider:model', or"
            " give it an attribute identity."
        )
    return identity


def _batch(
    positions: Mapping[str, Sequence[int]], results: Mapping[str, Embedded]
) -> EmbeddedBatch:
    """Results by text as results by place; equal texts share one."""
    places: list[int] = []
    repeated = []
    for text, result in results.items():
        places += positions[text]
        repeated += [result] * len(positions[text])
    return EmbeddedBatch(places, repeated)
