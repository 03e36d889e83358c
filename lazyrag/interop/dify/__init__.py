"""The names of specification 004: views of this package's classes, and some of the classes
themselves.

from lazyrag.interop.dify import Document, Vector, retrieve
"""

from lazyrag._lazy import lazy_names

# The same names are listed in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lazyrag.interop.dify.documents": (
            "Condition Document DocumentSegment MetadataCondition ProcessRule doc_hash "
            "extract transform"
        ),
        "lazyrag.interop.dify.embeddings": (
            "CacheEmbedding Embedding EmbeddingInputType Embeddings keep_rows rows_of"
        ),
        "lazyrag.interop.dify.retrieval": (
            "BaseRerankRunner RerankMode RerankModelRunner RerankRunnerFactory "
            "RetrievalChildChunk RetrievalSegments WeightRerankRunner retrieve"
        ),
        "lazyrag.interop.dify.vectors": (
            "BaseVector DocumentVector Field GroupVector Vector VectorType register_vector_factory"
        ),
        "lazyrag.ranking.fusion": "KeywordSetting VectorSetting Weights",
        "lazyrag.retrieval.hybrid": "RetrievalMethod",
        "lazyrag.sources.extract": "ExtractSetting",
        "lazyrag.transforms.dify_rules": "ParentMode PreProcessingRules Rule Segmentation",
    },
)
