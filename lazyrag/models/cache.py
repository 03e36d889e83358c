"""Embeddings kept on disk, so that no text is paid for twice."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from lazyrag.errors import ConfigError, StoreError, known_names
from lazyrag.models.cache_file import (
    CACHE_FORMAT,
    ROW_BYTES,
    EmbeddingRow,
    StoredVector,
    add_view,
    copy_file,
    decoded,
    encoded,
    hash_of,
)
from lazyrag.models.protocol import InputType
from lazyrag.storage.database import Database
from lazyrag.types import Embedding
from lazyrag.validation import known_arguments, whole_number

if TYPE_CHECKING:
    from typing import Self

_DEFAULT_MAX_BYTES = 2 * 2**30  # 1 million vectors of 384 numbers, 320,000 of 1536
_KEPT = 0.9  # of max_bytes, when something has to go; so that not every write has to make room
_HASHES_AT_ONCE = 500  # SQLite before 3.32 takes at most 999 variables
_USES_AT_ONCE = 100_000  # bounds their memory
_ROWS_AT_ONCE = 500

_PUT_SPACE = "INSERT INTO space (identity, input_type, dimension, normalised) VALUES (?, ?, ?, ?)"
_FIND_SPACE = "SELECT id FROM space WHERE identity = ? AND input_type = ? AND dimension = ? AND normalised = ?"

_FIND = "SELECT id, text_hash, kind, numbers, checksum FROM vector WHERE space = ? AND text_hash IN ({})"

_FIRST_DENSE = "SELECT text_hash, kind, numbers, checksum FROM vector WHERE space = ? AND kind = 0 LIMIT 1"

_PUT = """
INSERT INTO vector (space, text_hash, kind, numbers, checksum, created_at, updated_at, used)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (space, text_hash) DO UPDATE SET
    kind = excluded.kind, numbers = excluded.numbers, checksum = excluded.checksum,
    updated_at = excluded.updated_at, used = excluded.used
"""


@dataclass(frozen=True, slots=True)
class VectorSpace:
    """What a vector depends on beside its text; vectors of different spaces are never mixed.

    Args:
        identity: Which model, a text that is not blank; see `lazyrag.models.protocol.Embedder.identity`.
        input_type: ``"document"`` or ``"query"``.
        dimension: The length that was asked for, or known before the call; 0 where neither.
        normalised: Whether vectors have length 1.

    Raises:
        ConfigError: If a value is none of those.
    """

    identity: str
    input_type: InputType = "document"
    dimension: int = 0
    normalised: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.identity, str) or not self.identity.strip() or not _is_unicode(self.identity):
            msg = f"The identity of a vector space is {self.identity!r}; give a text that names the model."
            raise ConfigError(msg)
        if self.input_type not in get_args(InputType):
            msg = f"input_type is {self.input_type!r}. {known_names(str(self.input_type), get_args(InputType))}"
            raise ConfigError(msg)
        whole_number("dimension", self.dimension, 0)


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What an `EmbeddingCache` object was asked for, each text counted once per call.

    Args:
        hits: Texts that were there.
        misses: Texts that were not, those whose row was damaged among them.
        damaged: Damaged rows that were found and deleted.
    """

    hits: int = 0
    misses: int = 0
    damaged: int = 0


@known_arguments
class EmbeddingCache:
    """Vectors by model and text in a SQLite file of their own, for any number of threads and processes at once.

    A vector comes back bit for bit as it was stored. One whose row is damaged is never returned: every row carries a
    checksum over text, kind and numbers. What one call stores is stored in one transaction, and is there after a crash.

    The file is bounded: when a write passes ``max_bytes``, the vectors that were not used for the longest time go,
    until 90 % are left. Reading writes nothing: which rows were used is remembered, and written with the next
    `put_many`, with `close`, or after 100,000 of them; a crash in between loses nothing but that. Room that became free
    is used again; only `clear` makes the file smaller.

    Args:
        path: The file; made where there is none, in a folder that exists.
        max_bytes: At least 1. Counted are vectors and 512 bytes for each. The file itself may be a little larger: by a
            quarter for vectors of 1536 numbers, at worst by two thirds, for 512.
        timeout_s: How long to wait for another process that writes.

    Raises:
        ConfigError: If an argument is out of its range.
        StoreError: If the file cannot be opened, is damaged, of a newer format, or no embedding cache.

    Example:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> space = VectorSpace("local:toy", dimension=2)
        >>> with tempfile.TemporaryDirectory() as folder, EmbeddingCache(pathlib.Path(folder, "cache.db")) as cache:
        ...     cache.put_many(space, {"tea": np.array([0.5, 2], np.float32)})
        ...     cache.get_many(space, ["tea", "coffee"])
        {'tea': array([0.5, 2. ], dtype=float32)}
    """

    def __init__(
        self, path: str | os.PathLike[str], *, max_bytes: int = _DEFAULT_MAX_BYTES, timeout_s: float = 30.0
    ) -> None:
        self.max_bytes = whole_number("max_bytes", max_bytes, 1)
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """Write all of it into another file, all or nothing.

        Args:
            path: Of the file; what is there is replaced.

        Raises:
            StoreError: If the file cannot be written.
        """
        with self._database.reading() as connection:
            copy_file(connection, Path(path).expanduser().absolute())

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
            For each text that is there its vector: (dim,) float32, or dimensions to weights; a copy of its own.

        Raises:
            StoreError: If the file cannot be read.
        """
        if isinstance(texts, str):
            msg = f"get_many got the text {texts!r:.60}; give a list of texts."
            raise ConfigError(msg)
        texts_by_hash = {hash_of(text): text for text in texts}
        found: dict[str, Embedding] = {}
        used, damaged = [], []
        for row, stored in self._rows(space, list(texts_by_hash)):
            vector = decoded(stored, space.dimension)
            if vector is None:
                damaged.append((row,))
            else:
                used.append(row)
                found[texts_by_hash[stored.text_hash]] = vector
        if damaged:
            with self._database.writing() as connection:  # if another put a whole one there meanwhile, that goes too
                connection.executemany("DELETE FROM vector WHERE id = ?", damaged)
        self._count(used, misses=len(texts_by_hash) - len(used), damaged=len(damaged))
        return found

    def put_many(self, space: VectorSpace, vectors: Mapping[str, Embedding]) -> None:
        """Store vectors, all or none of them; a text that has one gets the new one.

        Args:
            space: Which model's, and how.
            vectors: Texts to vectors: finite numbers, as many as the space's dimension where that is not 0; or
                dimensions to weights.

        Raises:
            ConfigError: If one is something else, or has another length than those stored before.
            StoreError: If the file cannot be written; it is as it was before.
        """
        entries = [encoded(text, vector, space.dimension) for text, vector in vectors.items()]
        if not entries:
            return
        now = int(time.time())
        with self._database.writing() as connection:
            number = _number_of(connection, space)
            if number is None:
                number = connection.execute(_PUT_SPACE, _key(space)).lastrowid
            if not space.dimension:
                _check_lengths(connection, number, entries)
            mark = self._write_uses(connection)
            connection.executemany(_PUT, ((number, *entry, now, now, mark) for entry in entries))
            self._make_room(connection)

    def clear(self) -> None:
        """Delete everything, and give the room back to the disk.

        Raises:
            StoreError: If the file cannot be written.
        """
        with self._database.writing() as connection:
            connection.execute("DELETE FROM vector")
            connection.execute("DELETE FROM space")
        self._database.shrink()

    def close(self) -> None:
        """Close the file; twice does no harm."""
        if self._used:
            self._remember_uses()
        self._database.close()

    def embeddings(self) -> Iterator[EmbeddingRow]:
        """The cache as spec 004's table, section 7, in the order in which its rows were made.

        The table's key is (model_name, hash, provider_name), ours has more in it. So provider_name is what stands
        before the first colon of the identity, if anything does; model_name is the rest, with dimension and
        normalisation where they are known: ``"openai:text-embedding-3-small"`` with dimension 256 becomes
        ``"openai"``, ``"text-embedding-3-small (256)"``. Embedded questions and sparse vectors are left out, and
        damaged rows. No two rows have the same key.

        The same rows are a view ``embeddings`` for SQL of your own, in `reading`.

        Raises:
            StoreError: If the file cannot be read.
        """
        columns = ", ".join(field.name for field in fields(EmbeddingRow))
        page = f"SELECT row, {columns} FROM embeddings WHERE row > ? ORDER BY row LIMIT {_ROWS_AT_ONCE}"  # noqa: S608
        last = 0
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(page, (last,)).fetchall()
            for last, *values in rows:  # noqa: B007  read above, for the next page
                yield EmbeddingRow(*values)
            if len(rows) < _ROWS_AT_ONCE:
                return

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """The file for SQL of your own that reads, in one short transaction; other threads wait for its end.

        Example:
            >>> import pathlib, tempfile
            >>> with tempfile.TemporaryDirectory() as folder, EmbeddingCache(pathlib.Path(folder, "cache.db")) as cache:
            ...     with cache.reading() as connection:
            ...         connection.execute("SELECT count(*) FROM embeddings").fetchone()
            (0,)
        """
        return self._database.reading()

    def _rows(self, space: VectorSpace, hashes: list[bytes]) -> list[tuple[int, StoredVector]]:
        rows: list[tuple[int, StoredVector]] = []
        with self._database.reading() as connection:
            number = _number_of(connection, space)
            for start in range(0, len(hashes) if number is not None else 0, _HASHES_AT_ONCE):
                some = hashes[start : start + _HASHES_AT_ONCE]
                find = _FIND.format(", ".join("?" * len(some)))
                rows += [(row, StoredVector(*rest)) for row, *rest in connection.execute(find, (number, *some))]
        return rows

    def _count(self, used: list[int], *, misses: int, damaged: int) -> None:
        with self._counting:
            was = self._stats
            self._stats = CacheStats(was.hits + len(used), was.misses + misses, was.damaged + damaged)
            self._used.update(used)
            many = len(self._used) >= _USES_AT_ONCE
        if many:
            self._remember_uses()

    def _remember_uses(self) -> None:
        # Where it fails, only the order in which vectors will have to go is not the best one.
        with suppress(StoreError), self._database.writing() as connection:
            self._write_uses(connection)

    def _write_uses(self, connection: sqlite3.Connection) -> int:
        """Mark rows as the ones used last. Marks are counted, since a computer's clock may be set back.

        Returns:
            The next mark, for what is stored after that.
        """
        [mark] = connection.execute("SELECT coalesce(max(used), 0) + 1 FROM vector").fetchone()
        with self._counting:
            used, self._used = self._used, set()
        # A row may have been deleted and its number given away: then another one stays a little longer.
        connection.executemany("UPDATE vector SET used = ? WHERE id = ?", ((mark, row) for row in sorted(used)))
        return int(mark) + 1

    def _make_room(self, connection: sqlite3.Connection) -> None:
        """Delete the rows used longest ago, where there is too much."""
        total = _total(connection)
        if total <= self.max_bytes:
            return
        surplus = total - int(_KEPT * self.max_bytes)
        last = (0, 0)
        for used, row, size in connection.execute("SELECT used, id, length(numbers) FROM vector ORDER BY used, id"):
            last = used, row
            surplus -= size + ROW_BYTES
            if surplus <= 0:
                break
        connection.execute("DELETE FROM vector WHERE (used, id) <= (?, ?)", last)


def _key(space: VectorSpace) -> tuple[str, str, int, bool]:
    return space.identity, space.input_type, int(space.dimension), bool(space.normalised)


def _number_of(connection: sqlite3.Connection, space: VectorSpace) -> int | None:
    """Asked for in each transaction: another process may have cleared the cache and given the number to another."""
    found = connection.execute(_FIND_SPACE, _key(space)).fetchone()
    return found[0] if found else None


def _check_lengths(connection: sqlite3.Connection, number: int | None, entries: Sequence[StoredVector]) -> None:
    """Dense vectors of one space have one length, also where none was known before the first call."""
    lengths = {len(one.numbers) // 4 for one in entries if one.kind == 0}
    stored = connection.execute(_FIRST_DENSE, (number,)).fetchone() if lengths else None
    if stored and (first := decoded(StoredVector(*stored), 0)) is not None:
        lengths.add(len(first))
    if len(lengths) > 1:
        counts = " and ".join(map(str, sorted(lengths)))
        msg = (
            f"Vectors of {counts} numbers cannot be the same model's. Give each model, and each dimension of one, an "
            "identity of its own; if a model has changed under its identity, clear the cache."
        )
        raise ConfigError(msg)


def _total(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT bytes FROM total").fetchone()[0])


def _is_unicode(text: str) -> bool:
    """Whether a text can be written to a file; one with half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
