"""LangChain adapters: retrievers, and documents in both directions.

from lazyrag.interop.langchain import as_retriever

chain_retriever = as_retriever(Retriever(docs, "FineChunk", similarity="bm25"))
chain_retriever.invoke("How long does opened tea keep?")
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

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
    from langchain_core.documents import Document as LangChainDocument
    from langchain_core.retrievers import BaseRetriever


@known_keywords
def as_retriever(
    retriever: NodeRetriever, *, filters: FilterLike | None = None, topk: int | None = None
) -> BaseRetriever:
    """Convert a retriever to a LangChain `BaseRetriever`, for ``invoke``, ``ainvoke``, ``batch``
    and chains.

    Args:
        retriever: A `lazyrag.Retriever`, a hybrid, a chain, or a callable (query, filters=None,
            topk=None) -> nodes.
        filters: For every query.
        topk: Maximum number of nodes; None: the retriever's default.

    Returns:
        A retriever whose documents are made by `to_document`.

    Raises:
        ConfigError: If it is not a retriever of nodes.
        MissingDependencyError: If langchain-core is not installed.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"a": "green tea", "b": "coffee"})
        >>> [found] = as_retriever(Retriever(docs, "FineChunk", similarity="bm25")).invoke("tea")
        >>> found.page_content, found.metadata["source"]
        ('green tea', 'a')
    """
    validated = validate_retriever(retriever)
    retriever_class: Any = _retriever_class()
    return cast("BaseRetriever", retriever_class(retriever=validated, filters=filters, topk=topk))


def to_document(node: DocNode) -> LangChainDocument:
    """Convert a node to a LangChain document: its text, its uid as ``id``, its metadata over those
    of the file.

    If they are known and the names are free, ``source`` (the path), ``location``, ``group``,
    ``document_id`` and ``score`` are added.

    Raises:
        MissingDependencyError: If langchain-core is not installed.

    Example:
        >>> to_document(DocNode(text="green tea", uid="7", score=0.5)).metadata
        {'score': 0.5}
    """
    return _document_class()(
        page_content=node.get_content(), id=node.uid, metadata=node_metadata(node)
    )


def add_documents(docs: Document, documents: Iterable[LangChainDocument]) -> IngestReport:
    """Add LangChain documents to a Document, each as one text with its metadata.

    Args:
        docs: The Document. Documents are searchable after this; a known id replaces the old one.
        documents: Identified by ``id``, or by a hash of text and metadata, so that adding the same
            documents again changes nothing.

    Returns:
        The report of the ingestion.

    Raises:
        ConfigError: If two have one id, a text is blank, or metadata cannot be stored.
        MissingDependencyError: If langchain-core is not installed.

    Example:
        >>> from langchain_core.documents import Document as LangChainDocument
        >>> from lazyrag import Document
        >>> docs = Document()
        >>> document = LangChainDocument("green tea", id="a", metadata={"season": "spring"})
        >>> print(add_documents(docs, [document]))
        1 added, 0 failed, 0 skipped
        >>> [to_document(node).metadata["season"] for node in docs.get_nodes()]
        ['spring']
    """
    kind = _document_class()
    pieces = validate_objects(documents, kind, "LangChain documents")
    return add_pieces(
        docs, [(document.id, document.page_content, document.metadata) for document in pieces]
    )


@functools.cache
def _retriever_class() -> type[Any]:
    """Make the class when it is first needed: importing this module imports nothing of
    LangChain.
    """
    _document_class()  # names the extra to install
    from langchain_core.retrievers import BaseRetriever

    class LazyRAGRetriever(BaseRetriever):
        """A retriever of lazyrag."""

        retriever: Any
        filters: Any = None
        topk: int | None = None

        def _get_relevant_documents(
            self,
            query: str,
            *,
            run_manager: Any,  # noqa: ARG002
        ) -> list[LangChainDocument]:
            return [to_document(node) for node in self.retriever(query, self.filters, self.topk)]

    return LazyRAGRetriever


def _document_class() -> type[LangChainDocument]:
    with optional_package("lazyrag.interop.langchain", "langchain"):
        from langchain_core.documents import Document as LangChainDocument
    return LangChainDocument
