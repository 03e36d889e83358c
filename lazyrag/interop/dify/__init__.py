"""Specification 004 on this package's engine: the classes that code written against it imports.

What works elsewhere in this package is named here again; the rest are views of it.

from lazyrag.interop.dify import Document, Vector, retrieve
"""

from lazyrag.interop.dify.documents import (
    Condition,
    Document,
    DocumentSegment,
    Embedding,
    MetadataCondition,
    doc_hash,
    keep_rows,
    rows_of,
)
from lazyrag.interop.dify.embeddings import CacheEmbedding, EmbeddingInputType, Embeddings
from lazyrag.interop.dify.indexing import ProcessRule, extract, transform
from lazyrag.interop.dify.reranking import (
    BaseRerankRunner,
    RerankMode,
    RerankModelRunner,
    RerankRunnerFactory,
    WeightRerankRunner,
)
from lazyrag.interop.dify.retrieval import RetrievalChildChunk, RetrievalSegments, retrieve
from lazyrag.interop.dify.vectors import (
    BaseVector,
    DocumentVector,
    Field,
    GroupVector,
    Vector,
    VectorType,
    register_vector_factory,
)
from lazyrag.ranking.scores import KeywordSetting, VectorSetting, Weights
from lazyrag.retrieval.hybrid import RetrievalMethod
from lazyrag.sources.extract import ExtractSetting
from lazyrag.transforms.dify_rules import ParentMode, PreProcessingRules, Rule, Segmentation

__all__ = [
    "BaseRerankRunner",
    "BaseVector",
    "CacheEmbedding",
    "Condition",
    "Document",
    "DocumentSegment",
    "DocumentVector",
    "Embedding",
    "EmbeddingInputType",
    "Embeddings",
    "ExtractSetting",
    "Field",
    "GroupVector",
    "KeywordSetting",
    "MetadataCondition",
    "ParentMode",
    "PreProcessingRules",
    "ProcessRule",
    "RerankMode",
    "RerankModelRunner",
    "RerankRunnerFactory",
    "RetrievalChildChunk",
    "RetrievalMethod",
    "RetrievalSegments",
    "Rule",
    "Segmentation",
    "Vector",
    "VectorSetting",
    "VectorType",
    "WeightRerankRunner",
    "Weights",
    "doc_hash",
    "extract",
    "keep_rows",
    "register_vector_factory",
    "retrieve",
    "rows_of",
    "transform",
]
