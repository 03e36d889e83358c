"""The names of specification 004: views of this package's classes, and some of the classes themselves.

from lazyrag.interop.dify import Document, Vector, retrieve
"""

from lazyrag.interop.dify.documents import (
    Condition,
    Document,
    DocumentSegment,
    MetadataCondition,
    doc_hash,
)
from lazyrag.interop.dify.embeddings import (
    CacheEmbedding,
    Embedding,
    EmbeddingInputType,
    Embeddings,
    keep_rows,
    rows_of,
)
from lazyrag.interop.dify.indexing import ProcessRule, extract, transform
from lazyrag.interop.dify.retrieval import (
    BaseRerankRunner,
    RerankMode,
    RerankModelRunner,
    RerankRunnerFactory,
    RetrievalChildChunk,
    RetrievalSegments,
    WeightRerankRunner,
    retrieve,
)
from lazyrag.interop.dify.vectors import (
    BaseVector,
    DocumentVector,
    Field,
    GroupVector,
    Vector,
    VectorType,
    register_vector_factory,
)
from lazyrag.ranking.fusion import KeywordSetting, VectorSetting, Weights
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
