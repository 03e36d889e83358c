"""Shared parts of the adapters for other frameworks: nodes out, texts in, their embeddings as
embedders.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from lazyrag.data.fields import BUILT_IN_FIELDS
from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit
from lazyrag.data.segment import copy_value, digest
from lazyrag.document.document import Document
from lazyrag.errors import ConfigError
from lazyrag.ingest.report import IngestReport
from lazyrag.models.embedding import EmbedCallable, as_embedder, callable_identity
from lazyrag.models.protocols import Embedder, InputType, is_embedder
from lazyrag.retrieval.stages import NodeRetriever
from lazyrag.types import JsonObject, Metadata
from lazyrag.validation import require

T = TypeVar("T")


def validate_retriever(retriever: Any) -> NodeRetriever:
    """Return a retriever of nodes.

    Raises:
        ConfigError: If it is not callable, or returns texts or dicts.

    Example:
        >>> validate_retriever(lambda query, filters=None, topk=None: [])("tea")
        []
    """
    is_valid = callable(retriever) and not isinstance(retriever, type)
    hint = (
        "Pass Retriever(docs, group) with output_format=None, or a callable (query, filters, topk)"
        " -> nodes."
    )
    is_valid = is_valid and getattr(retriever, "output_format", None) is None
    require(is_valid, "retriever", retriever, "a retriever of nodes", hint)
    return cast("NodeRetriever", retriever)


def validate_objects(items: Iterable[Any], kind: type[T], kinds: str) -> list[T]:
    """Return a list of objects of another framework.

    Raises:
        ConfigError: If one is of another class.

    Example:
        >>> validate_objects(["tea"], str, "texts")
        ['tea']
    """
    objects = list(items) if isinstance(items, Iterable) else [items]
    for item in objects:
        require(isinstance(item, kind), "Each item", item, f"one of the {kinds}")
    return objects


def node_metadata(node: DocNode) -> JsonObject:
    """Return the metadata of a node and its file, with its location and score under names that are
    free.

    Example:
        >>> node_metadata(DocNode(text="tea", metadata={"season": "spring"}, score=0.5))
        {'season': 'spring', 'score': 0.5}
    """
    hit = Hit.from_node(node)
    metadata: JsonObject = copy_value(dict(hit.metadata))
    more = {
        "source": hit.source,
        "group": node.group,
        "document_id": hit.document_id,
        "score": node.score,
    }
    for name, value in more.items():
        if value not in (None, ""):
            metadata.setdefault(name, value)
    return metadata


def add_pieces(docs: Document, pieces: Iterable[tuple[str | None, str, Metadata]]) -> IngestReport:
    """Add texts of another framework to a Document, in one step.

    Args:
        docs: The Document.
        pieces: Id, text and metadata of each. Without an id, one is derived from the other two.
            Scores are dropped, as they belong to a query; the six fields that every file has here
            become ``"original_<name>"``.

    Raises:
        ConfigError: If two have one id, a text is blank, or metadata cannot be stored.

    Example:
        >>> docs = Document()
        >>> print(add_pieces(docs, [("a", "green tea", {})]))
        1 added, 0 failed, 0 skipped
    """
    texts: dict[str, str] = {}
    metadata = {}
    for piece_id, text, fields in pieces:
        fields_of_piece = {
            f"original_{name}" if name in BUILT_IN_FIELDS else name: fields[name]
            for name in fields
            if name != "score"
        }
        identifier = piece_id or digest([text, repr(sorted(fields_of_piece.items()))])
        if identifier in texts:
            if piece_id is None and texts[identifier] == text:
                continue
            raise ConfigError(
                f"Two pieces have the id {identifier!r:.80}; give each one of its own."
            )
        texts[identifier] = text
        metadata[identifier] = fields_of_piece
    return docs.add_texts(texts, metadata)


@runtime_checkable
class TwoWayEmbeddings(Protocol):
    """Embeddings with one method for documents and one for queries, as in LangChain and
    specification 004.
    """

    def embed_documents(self, texts: list[str]) -> Sequence[Any]:
        """Return the vectors of n texts, in their order."""
        ...

    def embed_query(self, text: str) -> Any:
        """Return the vector of a query."""
        ...


class AdaptedEmbedder:
    """A `TwoWayEmbeddings` as a `lazyrag.models.Embedder`; its vectors are validated where they are
    used.

    Args:
        embeddings: The object. Its ``identity``, ``model_name`` or ``model`` is the identity, if
            that is a text.

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
    batch_size = 64

    def __init__(self, embeddings: TwoWayEmbeddings) -> None:
        self.embeddings = embeddings
        self.identity = callable_identity(embeddings, "model")

    def embed(self, texts: Sequence[str], input_type: InputType = "document") -> Sequence[Any]:
        """Return the object's vectors."""
        if input_type == "query":
            return [self.embeddings.embed_query(text) for text in texts]
        return self.embeddings.embed_documents(list(texts))


def embedder_of(embeddings: TwoWayEmbeddings | Embedder | EmbedCallable) -> Embedder:
    """Return an embedder: an `Embedder` unchanged, an object's attribute ``embedder``, or an
    adapter.

    Raises:
        ConfigError: If the object cannot embed.

    Example:
        >>> embedder_of(lambda text: [1.0]).embed(["tea"])
        [[1.0]]
    """
    if is_embedder(embeddings):
        return embeddings
    if isinstance(embeddings, TwoWayEmbeddings):
        inner = getattr(embeddings, "embedder", None)
        return inner if is_embedder(inner) else AdaptedEmbedder(embeddings)
    return as_embedder(embeddings, "embeddings")
