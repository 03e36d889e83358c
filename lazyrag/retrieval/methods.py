"""The ways of searching that spec 004 names, and the retriever for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.document.document import Document
from lazyrag.errors import ConfigError, known_names
from lazyrag.retrieval.hybrid import OVER_SIMILARITY, HybridRetriever
from lazyrag.retrieval.retriever import Retriever
from lazyrag.retrieval.similarity import similarities
from lazyrag.validation import keyword_names, known_keywords


class RetrievalMethod(str, Enum):
    """A way of searching (spec 004).

    Example:
        >>> RetrievalMethod("hybrid_search") is RetrievalMethod.HYBRID_SEARCH
        True
        >>> RetrievalMethod.is_support_semantic_search("keyword_search")
        False
    """

    SEMANTIC_SEARCH = "semantic_search"
    """By embeddings."""
    FULL_TEXT_SEARCH = "full_text_search"
    """By BM25: rare words count more, and so do repeated ones and short texts."""
    HYBRID_SEARCH = "hybrid_search"
    """Both, fused."""
    KEYWORD_SEARCH = "keyword_search"
    """By the query's words that are there: each counts once, rare ones more, whatever the length of the text."""

    @staticmethod
    def is_support_semantic_search(retrieval_method: str) -> bool:
        """Whether a method searches by embeddings."""
        return retrieval_method in {RetrievalMethod.SEMANTIC_SEARCH.value, RetrievalMethod.HYBRID_SEARCH.value}

    @staticmethod
    def is_support_fulltext_search(retrieval_method: str) -> bool:
        """Whether a method searches the full text by BM25."""
        return retrieval_method in {RetrievalMethod.FULL_TEXT_SEARCH.value, RetrievalMethod.HYBRID_SEARCH.value}


@known_keywords
def retriever_for(
    method: RetrievalMethod | str,
    doc: Document | Sequence[Document],
    group_name: str,
    topk: int = 6,
    *,
    similarity: str = OVER_SIMILARITY,
) -> Retriever[list[DocNode]] | HybridRetriever:
    """The retriever of a method, for a Document.

    Args:
        method: A `RetrievalMethod`, or its value.
        doc: A Document, or several.
        group_name: The node group to search.
        topk: At most so many nodes.
        similarity: Of the search by words: ``"bm25_chinese"``, which finds English as ``"bm25"`` does, or another one.
            Without effect where a method searches by embeddings alone. ``"keyword_search"`` takes one of BM25.

    Raises:
        ConfigError: If the method is unknown, it needs embeddings and the Document has none, or the similarity is not
            one of words.
        NotRegisteredError: If the group or the similarity is unknown.

    Example:
        >>> docs = Document()
        >>> _ = docs.add_texts({"a": "green tea, tea and tea", "b": "green tea from Wuyi"})
        >>> [node.path for node in retriever_for("keyword_search", docs, "FineChunk")("tea from Wuyi")]
        ['b', 'a']
    """
    known = [one.value for one in RetrievalMethod]
    if method not in known:
        msg = f"The retrieval method is {method!r}. {known_names(str(method), known)}"
        raise ConfigError(msg)
    wanted = RetrievalMethod(method)
    if wanted is not RetrievalMethod.SEMANTIC_SEARCH:
        _check_of_words(wanted, similarity)
    if wanted is RetrievalMethod.HYBRID_SEARCH:
        return HybridRetriever.over(doc, group_name, topk, similarity=similarity)
    # With k1 = 0 BM25 adds up the idf of the terms that are there, whatever their number and the text's length.
    keywords: dict[str, Any] = {"k1": 0.0, "b": 0.0} if wanted is RetrievalMethod.KEYWORD_SEARCH else {}
    name = None if wanted is RetrievalMethod.SEMANTIC_SEARCH else similarity
    return Retriever(doc, group_name, name, topk=topk, **keywords)


def _check_of_words(method: RetrievalMethod, name: str) -> None:
    similarity = similarities[name]
    if similarity.mode != "text":
        msg = f"{method.value!r} searches by words, and the similarity {name!r} by embeddings. Give 'bm25_chinese'."
        raise ConfigError(msg)
    if method is RetrievalMethod.KEYWORD_SEARCH and not {"k1", "b"} <= {*keyword_names(similarity.func, skip=2)[0]}:
        msg = f"'keyword_search' is BM25 with k1=0, and the similarity {name!r} takes no k1 and b. Give 'bm25_chinese'."
        raise ConfigError(msg)
