"""Asking a Document: similarities, retrievers, rerankers."""

from lazyrag.retrieval.combined import PriorityRetriever, WeightedRetriever
from lazyrag.retrieval.hybrid import HybridRetriever
from lazyrag.retrieval.lexical import BM25Retriever
from lazyrag.retrieval.merging import auto_merge
from lazyrag.retrieval.methods import RetrievalMethod, retriever_for
from lazyrag.retrieval.queries import MultiQueryRetriever
from lazyrag.retrieval.reranker import Reranker, register_reranker, rerankers
from lazyrag.retrieval.retriever import Retriever
from lazyrag.retrieval.rewriting import QueryRewriter
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
