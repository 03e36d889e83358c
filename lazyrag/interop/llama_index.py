"""LlamaIndex: any retriever of this package as one of its own, its nodes as texts and back.

from lazyrag.interop.llama_index import as_retriever

as_retriever(Retriever(docs, "FineChunk", similarity="bm25")).retrieve("How long does opened tea keep?")
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.document.document import Document
from lazyrag.document.report import IngestReport
from lazyrag.errors import missing_package
from lazyrag.interop.neighbours import add_pieces, checked_nodes, checked_retriever, node_metadata
from lazyrag.retrieval.stages import NodeRetriever
from lazyrag.validation import known_keywords

if TYPE_CHECKING:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import BaseNode, NodeWithScore


@known_keywords
def as_retriever(
    retriever: NodeRetriever, *, filters: FilterLike | None = None, topk: int | None = None
) -> BaseRetriever:
    """A retriever of this package as a LlamaIndex `BaseRetriever`, for ``retrieve``, ``aretrieve`` and query engines.

    Args:
        retriever: A `lazyrag.Retriever`, a hybrid, a chain, or any callable (query, filters=None, topk=None) -> nodes.
        filters: For every question.
        topk: At most so many nodes; None leaves it to the retriever.

    Returns:
        One whose results are `to_node` of this package's, with their scores.

    Raises:
        ConfigError: If it is no retriever of nodes.
        MissingDependencyError: If llama-index-core is not installed.
    """
    checked = checked_retriever(retriever)
    made: BaseRetriever = _retriever_class()(checked, filters, topk)
    return made


def to_node(node: DocNode) -> NodeWithScore:
    """A node as a LlamaIndex node: its text, its uid as ``id_``, its metadata, its span in the document, its score.

    The metadata are the file's, overlaid with the node's own; ``source`` (the path), ``place``, ``group`` and
    ``document_id`` stand beside them where the names are free. Models that read or embed it are shown the text alone,
    as they are by this package.

    Raises:
        MissingDependencyError: If llama-index-core is not installed.
    """
    schema = _schema()
    metadata = node_metadata(node)
    metadata.pop("score", None)
    start, end = node.span or (None, None)
    names = [*metadata]
    made = schema.TextNode(
        id_=node.uid,
        text=node.get_content(),
        metadata=metadata,
        excluded_embed_metadata_keys=names,
        excluded_llm_metadata_keys=names,
        start_char_idx=start,
        end_char_idx=end,
    )
    return schema.NodeWithScore(node=made, score=node.score)


def add_nodes(docs: Document, nodes: Iterable[BaseNode | NodeWithScore]) -> IngestReport:
    """Take LlamaIndex nodes or documents into a Document, each as one text with its metadata.

    Args:
        docs: The Document. A known id takes the old one's place.
        nodes: Each known by its ``node_id``.

    Returns:
        What became of them.

    Raises:
        ConfigError: If two have one id, a text is blank, or metadata cannot be kept.
        MissingDependencyError: If llama-index-core is not installed.
    """
    schema = _schema()
    held = [one.node if isinstance(one, schema.NodeWithScore) else one for one in nodes]
    pieces = checked_nodes(held, schema.BaseNode, "LlamaIndex nodes")
    none = schema.MetadataMode.NONE
    return add_pieces(docs, [(one.node_id, one.get_content(none), one.metadata) for one in pieces])


@functools.cache
def _retriever_class() -> type[Any]:
    """Made when it is first needed: naming this module imports nothing of LlamaIndex."""
    _schema()  # says what to install
    from llama_index.core.base.base_retriever import BaseRetriever

    class LazyRAGRetriever(BaseRetriever):  # type: ignore[misc]  # whose own code is not read, see setup.cfg
        """A retriever of lazyrag."""

        def __init__(self, retriever: NodeRetriever, filters: FilterLike | None, topk: int | None) -> None:
            super().__init__()
            self.retriever, self.filters, self.topk = retriever, filters, topk

        def _retrieve(self, query_bundle: Any) -> list[NodeWithScore]:
            return [to_node(node) for node in self.retriever(query_bundle.query_str, self.filters, self.topk)]

        async def _aretrieve(self, query_bundle: Any) -> list[NodeWithScore]:
            return await asyncio.to_thread(self._retrieve, query_bundle)

    return LazyRAGRetriever


def _schema() -> Any:
    try:
        from llama_index.core import schema
    except ModuleNotFoundError as exc:
        raise missing_package("lazyrag.interop.llama_index", exc, "llama-index") from exc
    return schema
