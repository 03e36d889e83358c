"""Retrieving as a step: a retriever's hits as ``retrieval_results`` and ``retrieval_docs``."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from lazyrag.data.filters import FilterLike
from lazyrag.data.result import Hit
from lazyrag.document.document import Document
from lazyrag.errors import ConfigError
from lazyrag.models import background
from lazyrag.operators.data import RAGData, query_of
from lazyrag.operators.operator import Operator
from lazyrag.pipeline.finding import Finder, RetrieverFinder
from lazyrag.pipeline.milvus import MilvusFinder
from lazyrag.pipeline.prebuilt import ChromaFinder, FaissFinder
from lazyrag.retrieval.retriever import Retriever
from lazyrag.validation import known_arguments, whole_number

_GROUP = "FineChunk"
_TOPK = 5


@known_arguments
class RetrieveOperator(Operator):
    """Finds texts for a question (spec 000's retrieval stage).

    Each of ``retrieval_results`` has the fields of a `Hit`: ``text``, ``score`` (None where the retriever has none),
    ``metadata``, and ``id``, ``source``, ``document_id``, ``chunk_id``. A blank query finds nothing.

    Args:
        retriever: A `Retriever`, a `HybridRetriever`, a `RetrievalChain`, or any callable
            (query, filters=None, topk=None) -> nodes or hits, which may be asynchronous.
        topk: At most so many, at least 1.
        filters: On the fields of the Document, the same for every question.

    Raises:
        ConfigError: If an argument is out of its range.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea.txt": "Water of 80 degrees."})
        >>> data = RetrieveOperator(Retriever(docs, "FineChunk", "bm25"))({"query": "How hot is the water?"})
        >>> data["retrieval_docs"], data["retrieval_results"][0]["source"]
        (['Water of 80 degrees.'], 'tea.txt')
    """

    writes: ClassVar = ("retrieval_results", "retrieval_docs", "retrieval_time")

    def __init__(self, retriever: Any, topk: int = _TOPK, *, filters: FilterLike | None = None) -> None:
        if _is_document(retriever):
            msg = f"RetrieveOperator got {retriever!r:.60}; give a retriever over it, Retriever(docs, group_name, ...)."
            raise ConfigError(msg)
        self._finder = retriever if isinstance(retriever, _FINDERS) else RetrieverFinder(retriever)
        self._topk = whole_number("topk", topk, 1)
        self._filters = filters

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._finder.name!r}, topk={self._topk})"

    def process(self, data: RAGData) -> Mapping[str, Any]:
        """What is found."""
        return background.run(self.aprocess(data))

    async def aprocess(self, data: RAGData) -> Mapping[str, Any]:
        """What is found.

        Raises:
            RetrievalError: If the retriever fails, or gives something else than nodes or hits.
        """
        query = query_of(data)
        begun = time.perf_counter()
        hits = await (await self._finder.find(query, self._topk, self._filters)).hits()
        seconds = time.perf_counter() - begun
        return {
            "retrieval_results": [row_of(hit) for hit in hits],
            "retrieval_docs": [hit.text for hit in hits],
            "retrieval_time": seconds,
        }


_FINDERS = (RetrieverFinder, MilvusFinder, ChromaFinder, FaissFinder)


def row_of(hit: Hit) -> dict[str, Any]:
    """A hit as a row of results: its fields, with None for a score that nobody gave."""
    row = hit.to_dict()
    return {**row, "score": None if math.isnan(hit.score) else hit.score}


def _over(docs: Any, group_name: str, similarity: str) -> Finder:
    """What finds nodes of a Document, or of several."""
    return RetrieverFinder(Retriever(docs, group_name, similarity))


def _is_document(source: Any) -> bool:
    many = isinstance(source, Sequence) and not isinstance(source, str) and len(source) > 0
    return isinstance(source, Document) or (many and all(isinstance(one, Document) for one in source))


def _refuse_embed(name: str, embed: Any) -> None:
    if embed is not None:
        msg = f"{name} got a Document and embed=...; the Document has embeddings of its own: Document(embed=...)."
        raise ConfigError(msg)


@known_arguments
class Wiki18FAISSRetriever(RetrieveOperator):
    """Spec 000's retriever over a faiss index: over a Document, or over such an index that is built already.

    Args:
        source: A Document with embeddings, or several; or a faiss index, or the file of one.
        documents: For an index: the texts, a file of JSON lines or its rows; see
            `lazyrag.pipeline.prebuilt.FaissFinder`.
        embed: For an index: what it was made with; an `Embedder` or a callable from one text to a vector.
        group_name: For a Document: the node group to search.
        similarity: For a Document: a registered similarity.
        topk: At most so many.

    Raises:
        ConfigError: If what is given does not fit together.
    """

    def __init__(
        self,
        source: Any,
        documents: Any = None,
        embed: Any = None,
        *,
        group_name: str = _GROUP,
        similarity: str = "cosine",
        topk: int = _TOPK,
    ) -> None:
        if _is_document(source):
            _refuse_embed("Wiki18FAISSRetriever", embed)
            super().__init__(_over(source, group_name, similarity), topk)
            return
        if documents is None or embed is None:
            msg = (
                f"Wiki18FAISSRetriever got {source!r:.60} alone; give a Document, or an index with documents=... (its "
                "texts) and embed=... (what its vectors were made with)."
            )
            raise ConfigError(msg)
        super().__init__(FaissFinder(embed, source, documents), topk)


@known_arguments
class ChromaRetriever(RetrieveOperator):
    """Spec 000's retriever over Chroma: over a Document (with a store on Chroma or any other), or over a collection.

    Args:
        source: A Document, or several; or a ``chromadb`` collection that another program filled.
        embed: For a collection: an `Embedder` or a callable from one text to a vector; None lets the collection embed
            questions itself.
        group_name: For a Document: the node group to search.
        similarity: For a Document: a registered similarity.
        topk: At most so many.
        filters: The same for every question.

    Raises:
        ConfigError: If what is given does not fit together.
    """

    def __init__(
        self,
        source: Any,
        embed: Any = None,
        *,
        group_name: str = _GROUP,
        similarity: str = "cosine",
        topk: int = _TOPK,
        filters: FilterLike | None = None,
    ) -> None:
        if _is_document(source):
            _refuse_embed("ChromaRetriever", embed)
            super().__init__(_over(source, group_name, similarity), topk, filters=filters)
        else:
            super().__init__(ChromaFinder(embed, source), topk, filters=filters)


@known_arguments
class MilvusRetriever(RetrieveOperator):
    """Spec 000's retriever over Milvus: over a Document (with a store on Milvus or any other), or over a collection.

    Args:
        source: A Document, or several; or a ``pymilvus.MilvusClient`` or a `MilvusCollection` that another program
            filled.
        embed: For a collection: an `Embedder` or a callable from one text to a vector.
        group_name: For a Document: the node group to search.
        similarity: For a Document: a registered similarity.
        topk: At most so many.
        filters: The same for every question.

    Raises:
        ConfigError: If what is given does not fit together.
    """

    def __init__(
        self,
        source: Any,
        embed: Any = None,
        *,
        group_name: str = _GROUP,
        similarity: str = "cosine",
        topk: int = _TOPK,
        filters: FilterLike | None = None,
    ) -> None:
        if _is_document(source):
            _refuse_embed("MilvusRetriever", embed)
            super().__init__(_over(source, group_name, similarity), topk, filters=filters)
        else:
            super().__init__(MilvusFinder(embed, source), topk, filters=filters)
