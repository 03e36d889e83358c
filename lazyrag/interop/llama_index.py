"""LlamaIndex adapters: retrievers, and nodes in both directions.

from lazyrag.interop.llama_index import as_retriever

as_retriever(Retriever(docs, "FineChunk", similarity="bm25")).retrieve("How long does opened tea
keep?")
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.document.document import Document
from lazyrag.errors import optional_package
from lazyrag.ingest.report import IngestReport
from lazyrag.interop.frameworks import (
    add_pieces,
    node_metadata,
    validate_objects,
    validate_retriever,
)
from lazyrag.retrieval.stages import NodeRetriever
from lazyrag.validation import known_keywords

if TYPE_CHECKING:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import BaseNode, NodeWithScore


@known_keywords
def as_retriever(
    retriever: NodeRetriever, *, filters: FilterLike | None = None, topk: int | None = None
) -> BaseRetriever:
    """Convert a retriever to a LlamaIndex `BaseRetriever`, for ``retrieve``, ``aretrieve`` and
    query engines.

    Args:
        retriever: A `lazyrag.Retriever`, a hybrid, a chain, or a callable (query, filters=None,
            topk=None) -> nodes.
        filters: For every query.
        topk: Maximum number of nodes; None: the retriever's default.

    Returns:
        A retriever whose results are made by `to_node`.

    Raises:
        ConfigError: If it is not a retriever of nodes.
        MissingDependencyError: If llama-index-core is not installed.
    """
    return _retriever_class()(validate_retriever(retriever), filters, topk)


def to_node(node: DocNode) -> NodeWithScore:
    """Convert a node to a LlamaIndex node: text, uid as ``id_``, metadata, span in the document,
    score.

    The node's metadata take precedence over the file's; ``source`` (the path), ``location``,
    ``group`` and ``document_id`` are added if the names are free. Models read and embed the text
    alone, as in this package.

    Raises:
        MissingDependencyError: If llama-index-core is not installed.
    """
    schema = _schema()
    metadata = node_metadata(node)
    metadata.pop("score", None)
    start, end = node.span or (None, None)
    names = [*metadata]
    text_node = schema.TextNode(
        id_=node.uid,
        text=node.get_content(),
        metadata=metadata,
        excluded_embed_metadata_keys=names,
        excluded_llm_metadata_keys=names,
        start_char_idx=start,
        end_char_idx=end,
    )
    return schema.NodeWithScore(node=text_node, score=node.score)


def add_nodes(docs: Document, nodes: Iterable[BaseNode | NodeWithScore]) -> IngestReport:
    """Add LlamaIndex nodes or documents to a Document, each as one text with its metadata.

    Args:
        docs: The Document. A known id replaces the old one.
        nodes: Identified by ``node_id``.

    Returns:
        The report of the ingestion.

    Raises:
        ConfigError: If two have one id, a text is blank, or metadata cannot be stored.
        MissingDependencyError: If llama-index-core is not installed.
    """
    schema = _schema()
    unscored = [node.node if isinstance(node, schema.NodeWithScore) else node for node in nodes]
    pieces = validate_objects(unscored, schema.BaseNode, "LlamaIndex nodes")
    none = schema.MetadataMode.NONE
    return add_pieces(
        docs, [(node.node_id, node.get_content(none), node.metadata) for node in pieces]
    )


@functools.cache
def _retriever_class() -> type[Any]:
    """Make the class when it is first needed: importing this module imports nothing of
    LlamaIndex.
    """
    _schema()  # names the extra to install
    from llama_index.core.base.base_retriever import BaseRetriever

    # whose own code is not read, see setup.cfg
    class LazyRAGRetriever(BaseRetriever):  # type: ignore[misc]
        """A retriever of lazyrag."""

        def __init__(
            self, retriever: NodeRetriever, filters: FilterLike | None, topk: int | None
        ) -> None:
            super().__init__()
            self.retriever = retriever
            self.filters = filters
            self.topk = topk

        def _retrieve(self, query_bundle: Any) -> list[NodeWithScore]:
            return [
                to_node(node)
                for node in self.retriever(query_bundle.query_str, self.filters, self.topk)
            ]

        async def _aretrieve(self, query_bundle: Any) -> list[NodeWithScore]:
            return await asyncio.to_thread(self._retrieve, query_bundle)

    return LazyRAGRetriever


def _schema() -> Any:
    with optional_package("lazyrag.interop.llama_index", "llama-index"):
        from llama_index.core import schema
    return schema
