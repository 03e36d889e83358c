"""Specification 004's embeddings: the interface, and the one with a cache."""

from __future__ import annotations

import abc
import asyncio
import enum
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lazyrag.errors import ConfigError
from lazyrag.interop.embedders import TwoWayEmbeddings, embedder_of
from lazyrag.models.embedding import EmbedCallable
from lazyrag.models.embedding_cache import CachedEmbedder, EmbeddingCache
from lazyrag.models.protocols import Embedder, InputType
from lazyrag.validation import known_arguments

if TYPE_CHECKING:
    from typing import Self


class EmbeddingInputType(str, enum.Enum):
    """What a text is to an embedder; `lazyrag.models.protocols.InputType` has the same two.

    Example:
        >>> EmbeddingInputType("query") is EmbeddingInputType.QUERY
        True
    """

    DOCUMENT = "document"
    """What is searched."""
    QUERY = "query"
    """What is asked."""


class Embeddings(abc.ABC):
    """What embeds, for those who bring a model of their own (spec 004, section 10).

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
        """The vectors of n texts, in their order, all of one length."""

    @abc.abstractmethod
    def embed_query(self, text: str) -> list[float]:
        """The vector of a question, of that length."""

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """`embed_documents` in a thread, for event loops."""
        return await asyncio.to_thread(self.embed_documents, texts)

    async def aembed_query(self, text: str) -> list[float]:
        """`embed_query` in a thread, for event loops."""
        return await asyncio.to_thread(self.embed_query, text)


@known_arguments
class CacheEmbedding(Embeddings):
    """Embeddings that are computed once for each text, model and kind of text: a face of `lazyrag.CachedEmbedder`.

    Args:
        model: An `Embeddings`, any `lazyrag.Embedder`, or a function from one text to one vector.
        cache: An `lazyrag.EmbeddingCache`, or the path of one, which is opened now and closed by `close`.
        identity: Which model it is, ``"provider:model"``; the model's own where it says one.

    Raises:
        ConfigError: If nothing says which model it is.
        StoreError: If the cache cannot be opened.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cache = pathlib.Path(folder, "cache.db")
        ...     with CacheEmbedding(lambda text: [float(len(text)), 1.0], cache, identity="toy:length") as embeddings:
        ...         embeddings.embed_documents(["tea", "tea"])
        [[3.0, 1.0], [3.0, 1.0]]
    """

    def __init__(
        self,
        model: TwoWayEmbeddings | Embedder | EmbedCallable,
        cache: EmbeddingCache | str | os.PathLike[str],
        *,
        identity: str | None = None,
    ) -> None:
        self.embedder = CachedEmbedder(embedder_of(model), cache, identity=identity)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The vectors of texts that are searched.

        Raises:
            EmbeddingError: If a text has none.
        """
        return self._embed(texts, "document")

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question.

        Raises:
            EmbeddingError: If it has none.
        """
        return self._embed([text], "query")[0]

    def close(self) -> None:
        """Close the cache, if it was given as a path; twice does no harm."""
        self.embedder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _embed(self, texts: Sequence[str], input_type: InputType) -> list[list[float]]:
        vectors = self.embedder.embed(texts, input_type) if texts else []
        if any(isinstance(one, dict) for one in vectors):
            msg = f"{self.embedder.identity!r} gives sparse vectors; specification 004 has lists of numbers."
            raise ConfigError(msg)
        return [[float(number) for number in vector] for vector in vectors]
