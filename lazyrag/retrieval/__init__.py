"""Similarities, retrievers, postprocessors, rerankers, explanations."""

from lazyrag._lazy import lazy_names

# The same names are listed in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lazyrag.retrieval.bm25_retriever": "BM25Retriever",
        "lazyrag.retrieval.dated": "AsOfRetriever Recency",
        "lazyrag.retrieval.explain": "Explanation",
        "lazyrag.retrieval.hybrid": (
            "FeedbackRetriever HybridRetriever RetrievalMethod retriever_for"
        ),
        "lazyrag.retrieval.inferring": "FieldRetriever",
        "lazyrag.retrieval.parts": "PartsRetriever",
        "lazyrag.retrieval.postprocessors": (
            "MMR AutoMerge Distinct RetrievalChain ScoreThreshold Windows auto_merge"
        ),
        "lazyrag.retrieval.query_rewriting": "MultiQueryRetriever QueryRewriter",
        "lazyrag.retrieval.reranker": "Reranker register_reranker rerankers",
        "lazyrag.retrieval.retriever": "Retriever",
        "lazyrag.retrieval.similarity": "register_similarity similarities",
    },
)
