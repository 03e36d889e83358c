"""Asking a Document: similarities, retrievers, rerankers."""

from lazyrag.retrieval.merging import auto_merge
from lazyrag.retrieval.reranker import Reranker, register_reranker, rerankers
from lazyrag.retrieval.retriever import Retriever
from lazyrag.retrieval.similarity import register_similarity, similarities

__all__ = [
    "Reranker",
    "Retriever",
    "auto_merge",
    "register_reranker",
    "register_similarity",
    "rerankers",
    "similarities",
]
