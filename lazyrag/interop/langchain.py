"""LangChain: any retriever of this package as one of its own, its documents as texts and back, its embeddings.

from lazyrag.interop.langchain import as_retriever

chain_retriever = as_retriever(Retriever(docs, "FineChunk", similarity="bm25"))
chain_retriever.invoke("How long does opened tea keep?")
"""

from __future__ import annotations

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
    from langchain_core.documents import Document as LangChainDocument
    from langchain_core.retrievers import BaseRetriever


@known_keywords
def as_retriever(
    retriever: NodeRetriever, *, filters: FilterLike | None = None, topk: int | None = None
) -> BaseRetriever:
    """A retriever of this package as a LangChain `BaseRetriever`, for ``invoke``, ``ainvoke``, ``batch`` and chains.

    Args:
        retriever: A `lazyrag.Retriever`, a hybrid, a chain, or any callable (query, filters=None, topk=None) -> nodes.
        filters: For every question.
        topk: At most so many nodes; None leaves it to the retriever.

    Returns:
        One whose documents have the node's uid as ``id`` and what `to_document` says as metadata.

    Raises:
        ConfigError: If it is no retriever of nodes.
        MissingDependencyError: If langchain-core is not installed.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"a": "green tea", "b": "coffee"})
        >>> [found] = as_retriever(Retriever(docs, "FineChunk", similarity="bm25")).invoke("tea")
        >>> found.page_content, found.metadata["source"]
        ('green tea', 'a')
    """
    checked = checked_retriever(retriever)
    made: BaseRetriever = _retriever_class()(retriever=checked, filters=filters, topk=topk)
    return made


def to_document(node: DocNode) -> LangChainDocument:
    """A node as a LangChain document: its text, its uid as ``id``, and as metadata the file's, overlaid with its own.

    Where they are known and the names are free, ``source`` (the path), ``place``, ``group``, ``document_id`` and
    ``score`` stand beside them.

    Raises:
        MissingDependencyError: If langchain-core is not installed.

    Example:
        >>> to_document(DocNode(text="green tea", uid="7", score=0.5)).metadata
        {'score': 0.5}
    """
    return _document_class()(page_content=node.get_content(), id=node.uid, metadata=node_metadata(node))


def add_documents(docs: Document, documents: Iterable[LangChainDocument]) -> IngestReport:
    """Take LangChain documents into a Document, each as one text with its metadata.

    Args:
        docs: The Document. What was taken in is found after this; a known id takes the old one's place.
        documents: Each known by its ``id``; by a hash of text and metadata where it has none, so that the same
            documents taken in again change nothing.

    Returns:
        What became of them.

    Raises:
        ConfigError: If two have one id, a text is blank, or metadata cannot be kept.
        MissingDependencyError: If langchain-core is not installed.

    Example:
        >>> from langchain_core.documents import Document as LangChainDocument
        >>> from lazyrag import Document
        >>> docs = Document()
        >>> print(add_documents(docs, [LangChainDocument("green tea", id="a", metadata={"season": "spring"})]))
        1 added, 0 failed, 0 skipped
        >>> [to_document(node).metadata["season"] for node in docs.get_nodes()]
        ['spring']
    """
    kind = _document_class()
    pieces = checked_nodes(documents, kind, "LangChain documents")
    return add_pieces(docs, [(one.id, one.page_content, one.metadata) for one in pieces])


@functools.cache
def _retriever_class() -> type[Any]:
    """Made when it is first needed: naming this module imports nothing of LangChain."""
    try:
        from langchain_core.retrievers import BaseRetriever
    except ModuleNotFoundError as exc:
        raise missing_package("lazyrag.interop.langchain", exc, "langchain") from exc

    class LazyRAGRetriever(BaseRetriever):
        """A retriever of lazyrag."""

        retriever: Any
        filters: Any = None
        topk: int | None = None

        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[LangChainDocument]:  # noqa: ARG002
            return [to_document(node) for node in self.retriever(query, self.filters, self.topk)]

    return LazyRAGRetriever


def _document_class() -> type[LangChainDocument]:
    try:
        from langchain_core.documents import Document as LangChainDocument
    except ModuleNotFoundError as exc:
        raise missing_package("lazyrag.interop.langchain", exc, "langchain") from exc
    return LangChainDocument
