"""What the embedding cache's file holds: its tables, how a vector lies in a row, and spec 004's view of them."""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
import uuid
import zlib
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lazyrag.errors import ConfigError, StoreError
from lazyrag.models.embedding import as_vector
from lazyrag.storage.database import FileFormat
from lazyrag.types import Embedding

ROW_BYTES = 512
"""What a row takes beside its vector, towards ``max_bytes``: its key, indexes, and the part of a page that stays empty.
It is part of the file's format. Measured, per row: 420 bytes beside 256 numbers, 580 beside 384, 1024, 2048 or 3072,
1,090 beside 768, 2,120 beside 512 or 1536, whose rows fit a page of 4096 bytes badly."""

_DENSE, _SPARSE = 0, 1  # kinds of rows
_DENSE_BYTES, _SPARSE_BYTES = 4, 16  # of one number; of one dimension and its weight

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
    migrations=(_SCHEMA,),
    when_damaged=(
        "It holds nothing that cannot be computed again: delete it, with the files beside it whose names end in -wal "
        "and -shm, and a new one is made."
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
    """A row of spec 004's table of cached embeddings; see `lazyrag.models.cache.EmbeddingCache.embeddings`.

    Args:
        id: A UUID, made of the model's names and the text's hash: the same in every file.
        model_name: The model.
        hash: SHA-256 of the text in UTF-8, 64 hexadecimal digits. (The spec has MD5, for which colliding texts can be
            made.)
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
        numbers: list[float] = np.frombuffer(base64.b64decode(self.embedding_vector), "<f4").tolist()
        return numbers


def hash_of(text: str) -> bytes:
    """SHA-256 of a text in UTF-8, 32 bytes; also of one with half a surrogate pair, as broken files have them."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class StoredVector(NamedTuple):
    """A vector as a row holds it.

    Args:
        text_hash: `hash_of` its text.
        kind: 0 for a dense vector, 1 for a sparse one.
        numbers: Little-endian: float32 numbers; or uint64 dimensions and, after all of them, their float64 weights.
        checksum: CRC-32 of these three; the hash is in it so that a damaged file cannot give one text another's vector.
    """

    text_hash: bytes
    kind: int
    numbers: bytes
    checksum: int


def encoded(text: str, vector: Embedding, dimension: int) -> StoredVector:
    """A vector as it is stored.

    Args:
        text: What it is the vector of.
        vector: Finite numbers; or dimensions below 2**64 to weights.
        dimension: How many numbers a dense one must have; 0 for any.

    Raises:
        ConfigError: If the vector is none, or has another length.
    """
    try:
        checked = as_vector(vector)
        if isinstance(checked, dict):
            dimensions, weights = np.array(list(checked), "<u8"), np.array(list(checked.values()), "<f8")
            kind, numbers = _SPARSE, dimensions.tobytes() + weights.tobytes()
        else:
            kind, numbers = _DENSE, checked.astype("<f4", copy=False).tobytes()
    except (ValueError, OverflowError) as exc:
        msg = f"The text {text!r:.60} has no vector that can be stored: its embedder {exc}."
        raise ConfigError(msg) from exc
    if dimension and kind == _DENSE and len(checked) != dimension:
        msg = f"The vector of the text {text!r:.60} has {len(checked)} numbers; those of its space have {dimension}."
        raise ConfigError(msg)
    text_hash = hash_of(text)
    return StoredVector(text_hash, kind, numbers, _checksum(text_hash, kind, numbers))


def decoded(stored: StoredVector, dimension: int) -> Embedding | None:
    """A stored vector as it was given, a copy; None where what is stored is not that text's vector any more."""
    text_hash, kind, numbers, checksum = stored
    if not isinstance(numbers, bytes) or kind not in (_DENSE, _SPARSE):
        return None
    if _checksum(text_hash, kind, numbers) != checksum:
        return None
    entries, rest = divmod(len(numbers), _DENSE_BYTES if kind == _DENSE else _SPARSE_BYTES)
    if rest:
        return None
    if kind == _DENSE:
        vector = np.frombuffer(numbers, "<f4").astype(np.float32)
        return vector if entries and dimension in (0, entries) and np.isfinite(vector).all() else None
    dimensions, weights = np.frombuffer(numbers, "<u8", entries), np.frombuffer(numbers, "<f8", offset=8 * entries)
    return dict(zip(dimensions.tolist(), weights.tolist(), strict=True)) if np.isfinite(weights).all() else None


def spec_names(identity: str, dimension: int, normalised: bool) -> tuple[str, str]:
    """Provider and model as spec 004's table names them; what differs in any of the three gets different names.

    Example:
        >>> spec_names("openai:text-embedding-3-small", 256, True)
        ('openai', 'text-embedding-3-small (256, normalised)')
        >>> spec_names("my-model", 0, False)
        ('', 'my-model')
    """
    provider, _, model = identity.partition(":")
    if not (provider and model):
        provider, model = "", identity
    details = ", ".join([str(dimension)] * bool(dimension) + ["normalised"] * bool(normalised))
    # A model whose own name ends in a bracket gets one more, or it could be another one's name with its dimension.
    return provider, f"{model} ({details})" if details or model.endswith(")") else model


def add_view(connection: sqlite3.Connection) -> None:
    """Make spec 004's table as a temporary view ``embeddings`` of the tables ``vector`` and ``space``.

    Its columns are the fields of `EmbeddingRow`, and ``row``, by which it can be read in pages.
    """
    functions: dict[str, tuple[int, Callable[..., Any]]] = {
        "embedding_id": (4, _embedding_id),
        "provider_name": (1, lambda identity: spec_names(identity, 0, False)[0]),
        "model_name": (3, lambda identity, dimension, normalised: spec_names(identity, dimension, normalised)[1]),
        "base64": (1, lambda numbers: base64.b64encode(numbers).decode()),
        "is_dense": (5, _is_dense),
    }
    for name, (arguments, function) in functions.items():
        connection.create_function(name, arguments, function, deterministic=True)
    connection.execute(_VIEW)


def _is_dense(text_hash: bytes, kind: int, numbers: bytes, checksum: int, dimension: int) -> bool:
    return isinstance(decoded(StoredVector(text_hash, kind, numbers, checksum), dimension), np.ndarray)


def _embedding_id(identity: str, dimension: int, normalised: int, text_hash: bytes) -> str:
    names = spec_names(identity, dimension, bool(normalised))
    return str(uuid.uuid5(uuid.NAMESPACE_OID, json.dumps([*names, text_hash.hex()])))


def _checksum(text_hash: bytes, kind: int, numbers: bytes) -> int:
    return zlib.crc32(numbers, zlib.crc32(text_hash, kind))


def copy_file(connection: sqlite3.Connection, target: Path) -> None:
    """Write all that a connection's database holds into another file, all or nothing.

    Raises:
        StoreError: If the file cannot be written.
    """
    unfinished = target.with_name(target.name + ".unfinished")
    try:
        unfinished.unlink(missing_ok=True)
        with closing(sqlite3.connect(unfinished)) as copy:
            connection.backup(copy)
        unfinished.replace(target)
    except (OSError, sqlite3.Error) as exc:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        msg = f"The embedding cache cannot be copied to {str(target)!r}: {exc}. Look at its folder's room and rights."
        raise StoreError(msg, store=str(target)) from exc
