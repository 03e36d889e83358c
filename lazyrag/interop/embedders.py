"""Objects with ``embed_documents`` and ``embed_query``, as specification 004 and LangChain have them, as embedders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from lazyrag.models.embedding import EmbedCallable, as_embedder
from lazyrag.models.protocols import Embedder, InputType, is_embedder


@runtime_checkable
class TwoWayEmbeddings(Protocol):
    """What embeds documents in lists, and queries one by one."""

    def embed_documents(self, texts: list[str]) -> Sequence[Any]:
        """The vectors of n texts, in their order."""
        ...

    def embed_query(self, text: str) -> Any:
        """The vector of a question."""
        ...


class AdaptedEmbedder:
    """A `TwoWayEmbeddings` as a `lazyrag.Embedder`; its answers are checked where they are used.

    Args:
        embeddings: The object.
        identity: Which model it is, ``"provider:model"``; left out, its attribute ``identity``, ``model_name`` or
            ``model``, if that is a text.
        batch_size: How many texts ``embed_documents`` gets at once.

    Example:
        >>> class Lengths:
        ...     def embed_documents(self, texts):
        ...         return [[float(len(text)), 1.0] for text in texts]
        ...
        ...     def embed_query(self, text):
        ...         return [float(len(text)), 0.0]
        >>> AdaptedEmbedder(Lengths()).embed(["tea"], "query")
        [[3.0, 0.0]]
    """

    dimension = None
    max_tokens = None
    normalised = False

    def __init__(self, embeddings: TwoWayEmbeddings, identity: str | None = None, batch_size: int = 64) -> None:
        self.embeddings = embeddings
        told = [identity, *(getattr(embeddings, name, None) for name in ("identity", "model_name", "model"))]
        self.identity = next((one for one in told if isinstance(one, str) and one), "")
        self.batch_size = batch_size

    def embed(self, texts: Sequence[str], input_type: InputType = "document") -> Sequence[Any]:
        """The object's own answers."""
        if input_type == "query":
            return [self.embeddings.embed_query(text) for text in texts]
        return self.embeddings.embed_documents(list(texts))


def embedder_of(embeddings: TwoWayEmbeddings | Embedder | EmbedCallable) -> Embedder:
    """An `Embedder` as it is; one that an object holds as ``embedder``; any other object behind an adapter.

    Raises:
        ConfigError: If it is nothing that embeds.

    Example:
        >>> embedder_of(lambda text: [1.0]).embed(["tea"])
        [[1.0]]
    """
    if is_embedder(embeddings):
        return embeddings
    if isinstance(embeddings, TwoWayEmbeddings):
        held = getattr(embeddings, "embedder", None)
        return held if is_embedder(held) else AdaptedEmbedder(embeddings)
    return as_embedder(embeddings, "embeddings")
