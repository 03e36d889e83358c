"""Embeddings of specification 004: the interface, the cached one, and its table of cached
vectors.
"""

from __future__ import annotations

import abc
import asyncio
import base64
import binascii
import datetime as dt
import enum
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lazyrag.errors import ConfigError
from lazyrag.interop.dify.documents import doc_hash
from lazyrag.interop.frameworks import TwoWayEmbeddings, embedder_of
from lazyrag.models.embedding import EmbedCallable
from lazyrag.models.embedding_cache import CachedEmbedder, EmbeddingCache, VectorSpace, spec_names
from lazyrag.models.protocols import Embedder, InputType
from lazyrag.types import Closable, PathLike
from lazyrag.validation import known_arguments, require


class EmbeddingInputType(str, enum.Enum):
    """Kind of a text to embed; `lazyrag.models.protocols.InputType` has the same two.

    Example:
        >>> EmbeddingInputType("query") is EmbeddingInputType.QUERY
        True
    """

    DOCUMENT = "document"
    """A text to search in."""
    QUERY = "query"
    """A query."""


class Embeddings(abc.ABC):
    """Base class of embedding models (spec 004, section 10).

    Example:
        >>> class Lengths(Embeddings):
        ...     def embed_documents(self, texts):
        ...         return [[float(len(text))] for text in texts]
        ...
        ...     def embed_query(self, text):
        ...         return [float(len(text))]
        >>> asyncio.run(Lengths().aembed_query("tea"))
        [3.0]
    """

    @abc.abstractmethod
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of n texts, in their order, all of one length."""

    @abc.abstractmethod
    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query, of the same length."""

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Run `embed_documents` in a thread."""
        return await asyncio.to_thread(self.embed_documents, texts)

    async def aembed_query(self, text: str) -> list[float]:
        """Run `embed_query` in a thread."""
        return await asyncio.to_thread(self.embed_query, text)


@known_arguments
class CacheEmbedding(Embeddings, Closable):
    """Embeddings computed once for each text, model and kind of text: an adapter of
    `lazyrag.CachedEmbedder`.

    Args:
        model: An `Embeddings`, any `lazyrag.models.Embedder`, or a function from one text to one
            vector.
        cache: An `lazyrag.EmbeddingCache`, or the path of one, which is opened now and closed by
            `close`.
        identity: The model, ``"provider:model"``; by default the model's own.

    Raises:
        ConfigError: If the model's identity is unknown.
        StoreError: If the cache cannot be opened.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cache = pathlib.Path(folder, "cache.db")
        ...     embed = lambda text: [float(len(text)), 1.0]
        ...     with CacheEmbedding(embed, cache, identity="toy:length") as embeddings:
        ...         embeddings.embed_documents(["tea", "tea"])
        [[3.0, 1.0], [3.0, 1.0]]
    """

    def __init__(
        self,
        model: TwoWayEmbeddings | Embedder | EmbedCallable,
        cache: EmbeddingCache | PathLike,
        *,
        identity: str | None = None,
    ) -> None:
        self.embedder = CachedEmbedder(embedder_of(model), cache, identity=identity)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of texts to search in.

        Raises:
            EmbeddingError: If a text has none.
        """
        return self._embed(texts, "document")

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query.

        Raises:
            EmbeddingError: If it has none.
        """
        return self._embed([text], "query")[0]

    def close(self) -> None:
        """Close the cache if it was given as a path. Idempotent."""
        self.embedder.close()

    def _embed(self, texts: Sequence[str], input_type: InputType) -> list[list[float]]:
        vectors = self.embedder.embed(texts, input_type) if texts else []
        if any(isinstance(vector, dict) for vector in vectors):
            raise ConfigError(
                f"{self.embedder.identity!r} returns sparse vectors; specification 004 has dense"
                " ones."
            )
        return [list(map(float, vector)) for vector in vectors]


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)


@dataclass
class Embedding:
    """Row of specification 004's table of cached embeddings (section 7). It is mutable, as in the
    specification.

    `keep_rows` imports rows of such a table into an `lazyrag.EmbeddingCache`; `rows_of` exports
    them.

    Args:
        model_name: The model.
        hash: MD5 of the text, see `lazyrag.interop.dify.doc_hash`.
        provider_name: The model's provider.
        embedding_vector: The float32 numbers, little-endian, in Base64.
        id: The primary key; by default a new UUID.
        created_at: Time of creation.
        updated_at: Time at which the vector was set.

    Example:
        >>> row = Embedding("text-embedding-3-small", doc_hash("tea"), "openai")
        >>> row.set_embedding([0.5, 2.0])
        >>> row.embedding_vector, row.get_embedding()
        ('AAAAPwAAAEA=', [0.5, 2.0])
    """

    model_name: str
    hash: str
    provider_name: str
    embedding_vector: str = ""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created_at: dt.datetime = field(default_factory=_now)
    updated_at: dt.datetime = field(default_factory=_now)

    def set_embedding(self, embedding: Sequence[float]) -> None:
        """Set the row's vector.

        Raises:
            ConfigError: If it is not a list of numbers that are finite as float32.
        """
        self.embedding_vector = base64.b64encode(_numbers(embedding).tobytes()).decode()
        self.updated_at = _now()

    def get_embedding(self) -> list[float]:
        """Return the row's vector.

        Raises:
            ConfigError: If the row has none.
        """
        try:
            vector: list[float] = np.frombuffer(
                base64.b64decode(self.embedding_vector, validate=True), "<f4"
            ).tolist()
        except (binascii.Error, ValueError, TypeError):
            vector = []
        if not vector:
            encoded = f"{self.embedding_vector!r:.60}"
            raise ConfigError(
                f"The row {self.id!r} has no vector: {encoded}. Set one with set_embedding."
            )
        return vector


def rows_of(cache: EmbeddingCache, space: VectorSpace, texts: Iterable[str]) -> list[Embedding]:
    """Export rows of the table for the texts that a cache has vectors of, in their order.

    The cache identifies texts by SHA-256 and the table by MD5, so the texts are needed.

    Args:
        cache: The cache.
        space: The model: ``VectorSpace("openai:text-embedding-3-small")``.
        texts: The texts.

    Raises:
        ConfigError: If the vectors are sparse, or texts is a single string.
        StoreError: If the cache cannot be read.
    """
    provider, model = spec_names(space.identity, space.dimension, space.normalised)
    distinct = _distinct(texts)
    vectors: dict[str, Any] = dict(cache.get_many(space, distinct))
    rows = []
    for text in distinct:
        if text in vectors:
            row = Embedding(model, doc_hash(text), provider)
            row.set_embedding(vectors[text])
            rows.append(row)
    return rows


def keep_rows(
    cache: EmbeddingCache,
    space: VectorSpace,
    rows: Iterable[Embedding],
    texts: Iterable[str],
    *,
    rename: bool = False,
) -> int:
    """Import vectors of texts from rows of the table into a cache.

    Args:
        cache: The cache.
        space: The model; see `rows_of`.
        rows: Rows of one model and one provider, those of the space.
        texts: The texts; those without a row are skipped.
        rename: Accept rows with another name of the model or provider.

    Returns:
        Number of texts that got a vector.

    Raises:
        ConfigError: If the rows are of several models, or of another one than the space; if two of
            one text differ, a vector does not fit the space, or texts is a single string.
        StoreError: If the cache cannot be written.
    """
    hashes = {text: doc_hash(text) for text in _distinct(texts)}
    by_hash: dict[str, Embedding] = {}
    models = set()
    for row in rows:
        models.add((row.provider_name, row.model_name))
        if by_hash.setdefault(row.hash, row).embedding_vector != row.embedding_vector:
            raise ConfigError(
                f"The rows have two vectors under the hash {row.hash!r:.80}; give one row for each"
                " text."
            )
    if len(models) > 1:
        raise ConfigError(
            f"The rows are of several models: {sorted(models)!r:.200}. Import one model at a time."
        )
    for provider, model in () if rename else models - _names(space):
        model_of_rows = f"the model {model!r:.80} of provider {provider!r:.80}"
        hint = "Pass the rows' space, or rename=True if only the names differ."
        raise ConfigError(
            f"The rows are of {model_of_rows}, and the space is {space.identity!r:.80}. {hint}"
        )
    row_of_text = {text: by_hash[md5] for text, md5 in hashes.items() if md5 in by_hash}
    cache.put_many(
        space, {text: _numbers(row.get_embedding()) for text, row in row_of_text.items()}
    )
    return len(row_of_text)


def _names(space: VectorSpace) -> set[tuple[str, str]]:
    """Names of a space in rows: those of `rows_of`, and without the suffix that it adds to the
    model's name.
    """
    provider, _, model = space.identity.partition(":")
    plain = (provider, model) if provider and model else ("", space.identity)
    return {plain, spec_names(space.identity, space.dimension, space.normalised)}


def _distinct(texts: Iterable[str]) -> list[str]:
    require(not isinstance(texts, str), "texts", texts, "a list of texts")
    return list(dict.fromkeys(texts))


def _numbers(embedding: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    try:
        numbers = np.asarray(embedding, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    is_finite = (
        numbers.ndim == 1 and numbers.size and (np.abs(numbers) <= np.finfo(np.float32).max).all()
    )
    require(
        bool(is_finite), "embedding", embedding, "a list of finite numbers in the range of float32"
    )
    return numbers.astype("<f4")
