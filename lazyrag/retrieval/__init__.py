"""Asking a Document: similarities, retrievers, rerankers."""

from lazyrag.retrieval.bm25_retriever import BM25Retriever
from lazyrag.retrieval.hybrid import (
    HybridRetriever,
    MultiQueryRetriever,
    PriorityRetriever,
    RetrievalMethod,
    WeightedRetriever,
    retriever_for,
)
from lazyrag.retrieval.postprocessors import auto_merge
from lazyrag.retrieval.query_rewriting import QueryRewriter
from lazyrag.retrieval.reranker import Reranker, register_reranker, rerankers
from lazyrag.retrieval.retriever import Retriever
from lazyrag.retrieval.similarity import register_similarity, similarities

__all__ = [
    "BM25Retriever",
    "HybridRetriever",
    "MultiQueryRetriever",
    "PriorityRetriever",
    "QueryRewriter",
    "Reranker",
    "RetrievalMethod",
    "Retriever",
    "WeightedRetriever",
    "auto_merge",
    "register_reranker",
    "register_similarity",
    "rerankers",
    "retriever_for",
    "similarities",
]
