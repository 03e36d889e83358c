"""The rows of specification 004's table of cached embeddings, from an `lazyrag.EmbeddingCache` and into one."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lazyrag.errors import ConfigError
from lazyrag.interop.dify.documents import doc_hash
from lazyrag.models.cache import EmbeddingCache, VectorSpace
from lazyrag.models.cache_file import spec_names
from lazyrag.validation import known_arguments, known_keywords


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)


@known_arguments
@dataclass
class Embedding:
    """One row of specification 004's table of cached embeddings (section 7).

    A program that has such a table reads its rows into this, and `keep_rows` takes them into an
    `lazyrag.EmbeddingCache`; `rows_of` gives those to be written to one. As in the specification it can be changed.

    Args:
        model_name: The model.
        hash: MD5 of the text, see `lazyrag.interop.dify.doc_hash`.
        provider_name: The model's provider.
        embedding_vector: The float32 numbers, little-endian, in Base64.
        id: The primary key; a new UUID where it is left out.
        created_at: When the row was made.
        updated_at: When its vector was set.

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
        """Put a vector into the row.

        Raises:
            ConfigError: If it is not numbers, or one is not finite as a float32.
        """
        self.embedding_vector = base64.b64encode(_numbers(embedding).tobytes()).decode()
        self.updated_at = _now()

    def get_embedding(self) -> list[float]:
        """The row's vector.

        Raises:
            ConfigError: If the row holds none.
        """
        try:
            numbers: list[float] = np.frombuffer(base64.b64decode(self.embedding_vector, validate=True), "<f4").tolist()
        except (binascii.Error, ValueError, TypeError) as exc:
            msg = f"The row {self.id!r} holds no vector: {self.embedding_vector!r:.60}. Set one with set_embedding."
            raise ConfigError(msg) from exc
        if not numbers:
            msg = f"The row {self.id!r} holds no vector. Set one with set_embedding."
            raise ConfigError(msg)
        return numbers


def rows_of(cache: EmbeddingCache, space: VectorSpace, texts: Iterable[str]) -> list[Embedding]:
    """The table's rows of those texts that a cache has vectors of, in their order, one for each text.

    The cache knows texts by SHA-256 and the table by MD5, so the texts are needed.

    Args:
        cache: The cache.
        space: Which model's: ``VectorSpace("openai:text-embedding-3-small")``.
        texts: The texts.

    Raises:
        ConfigError: If the vectors are sparse, or texts is a single text.
        StoreError: If the cache cannot be read.
    """
    provider, model = spec_names(space.identity, space.dimension, space.normalised)
    asked = _distinct(texts)
    found: dict[str, Any] = dict(cache.get_many(space, asked))
    rows = []
    for text in asked:
        if text in found:
            row = Embedding(model, doc_hash(text), provider)
            row.set_embedding(found[text])
            rows.append(row)
    return rows


@known_keywords
def keep_rows(
    cache: EmbeddingCache, space: VectorSpace, rows: Iterable[Embedding], texts: Iterable[str], *, rename: bool = False
) -> int:
    """Take the vectors of some texts from rows of the table into a cache.

    Args:
        cache: The cache.
        space: Under which model they are kept; see `rows_of`.
        rows: Rows of one model and one provider, those of the space.
        texts: The texts; those that no row has the hash of are passed over.
        rename: Keep rows that call provider or model otherwise than the space does; you know them to be the same.

    Returns:
        How many texts have got a vector.

    Raises:
        ConfigError: If the rows are of several models, or of another one than the space; if two of one text differ, a
            vector does not fit the space, or texts is a single text.
        StoreError: If the cache cannot be written.
    """
    asked = _distinct(texts)
    by_hash: dict[str, Embedding] = {}
    models = set()
    for row in rows:
        models.add((row.provider_name, row.model_name))
        if by_hash.setdefault(row.hash, row).embedding_vector != row.embedding_vector:
            msg = f"The rows have two vectors under the hash {row.hash!r:.80}; give one row for each text."
            raise ConfigError(msg)
    if len(models) > 1:
        msg = f"The rows are of several models: {sorted(models)!r:.200}. Keep those of one at a time."
        raise ConfigError(msg)
    if not rename:
        for provider, model in models - _names(space):
            msg = (
                f"The rows are of the model {model!r:.80} of provider {provider!r:.80}, and the space is "
                f"{space.identity!r:.80}; vectors of two models do not compare. Give the rows' space, or say that "
                "only the names differ: keep_rows(..., rename=True)."
            )
            raise ConfigError(msg)
    found = {text: by_hash[doc_hash(text)] for text in asked if doc_hash(text) in by_hash}
    cache.put_many(space, {text: _numbers(row.get_embedding()) for text, row in found.items()})
    return len(found)


def _names(space: VectorSpace) -> set[tuple[str, str]]:
    """What the rows of a space may be called: as `rows_of` does, and without what it adds to the model's name."""
    provider, _, model = space.identity.partition(":")
    plain = (provider, model) if provider and model else ("", space.identity)
    return {plain, spec_names(space.identity, space.dimension, space.normalised)}


def _distinct(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):
        msg = f"texts is the text {texts!r:.80}; give a list of texts."
        raise ConfigError(msg)
    return list(dict.fromkeys(texts))


def _numbers(embedding: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    try:
        numbers = np.asarray(embedding, dtype=np.float64)
    except (TypeError, ValueError) as exc:
        msg = f"An embedding is {embedding!r:.80}; give a list of numbers."
        raise ConfigError(msg) from exc
    if numbers.ndim != 1 or not numbers.size or not (np.abs(numbers) <= np.finfo(np.float32).max).all():
        msg = f"An embedding is {embedding!r:.80}; give a list of finite numbers of at most 32 bits' range."
        raise ConfigError(msg)
    return numbers.astype("<f4")
