"""Specification 004 on this package's engine: the classes that code written against it imports.

What works elsewhere in this package is named here again; the rest are views of it.

from lazyrag.interop.dify import Document, Vector, retrieve
"""

from lazyrag.interop.dify.base_vector import BaseVector, Field
from lazyrag.interop.dify.cache_rows import Embedding, keep_rows, rows_of
from lazyrag.interop.dify.conditions import Condition, MetadataCondition
from lazyrag.interop.dify.document_vector import DocumentVector, GroupVector
from lazyrag.interop.dify.documents import Document, DocumentSegment, doc_hash
from lazyrag.interop.dify.embeddings import CacheEmbedding, EmbeddingInputType, Embeddings
from lazyrag.interop.dify.indexing import ProcessRule, extract, transform
from lazyrag.interop.dify.rerank_runners import RerankModelRunner, WeightRerankRunner
from lazyrag.interop.dify.reranking import BaseRerankRunner, RerankMode, RerankRunnerFactory
from lazyrag.interop.dify.retrieval import RetrievalChildChunk, RetrievalSegments, retrieve
from lazyrag.interop.dify.vectors import Vector, VectorType, register_vector_factory
from lazyrag.ranking.scores import KeywordSetting, VectorSetting, Weights
from lazyrag.retrieval.methods import RetrievalMethod
from lazyrag.sources.extract import ExtractSetting
from lazyrag.transforms.pre_processing import PreProcessingRules
from lazyrag.transforms.rules import ParentMode, Rule, Segmentation

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
