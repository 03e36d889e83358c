"""Turn a folder of files into a tree of named node groups, and search any level of it.

from lazyrag import Document, Retriever

docs = Document("folder")
retriever = Retriever(docs, "FineChunk", similarity="bm25")
for node in retriever("How long does opened tea keep?"):
    print(node.score, node.path, node.place, node.text)

PYTEST_DONT_REWRITE: else a program that imports this and then runs pytest is warned that we were imported too early.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lazyrag._version import __version__

if TYPE_CHECKING:
    from lazyrag.data.fields import DataType, DocField
    from lazyrag.data.filters import And, Condition, Not, Or
    from lazyrag.data.node import DocNode
    from lazyrag.data.result import (
        Answer,
        AnswerDelta,
        Citation,
        GenerationDelta,
        GenerationResult,
        Hit,
        RAGContext,
        RetrievalResult,
    )
    from lazyrag.data.segment import LAZY_ROOT_NAME
    from lazyrag.document import Document, IngestReport, Watcher, migrate
    from lazyrag.errors import IngestionWarning, LazyRAGError
    from lazyrag.evaluation.interface import RAGInterface
    from lazyrag.generation.citation_stream import CitationStream
    from lazyrag.generation.citations import CitationManager
    from lazyrag.generation.context import ContextBuilder
    from lazyrag.generation.generator import Generator
    from lazyrag.generation.prompts import Prompts
    from lazyrag.generation.quotes import QuoteCheck
    from lazyrag.generation.refine import Refined, Refiner, register_refiner
    from lazyrag.generation.resolved import ResolvedCitations
    from lazyrag.generation.templates import ContextTemplate
    from lazyrag.generation.tree_refiner import TreeRefiner
    from lazyrag.loaders import LoadedFile, LoadLimits, register_loader
    from lazyrag.loaders.media import register_media_reader
    from lazyrag.models.async_rerank import AsyncReranker, CrossEncoderReranker
    from lazyrag.models.cache import EmbeddingCache
    from lazyrag.models.cached import CachedEmbedder
    from lazyrag.models.chat import CallableChatModel
    from lazyrag.models.chat_rerank import ListwiseRerankModel, PointwiseRerankModel
    from lazyrag.models.http.chat import HttpChatModel
    from lazyrag.models.http.embedder import HttpEmbedder
    from lazyrag.models.http.endpoint import Endpoint
    from lazyrag.models.http.rerank import HttpRerankModel
    from lazyrag.models.late_interaction import MaxSimModel
    from lazyrag.models.onnx.cross_encoder import OnnxCrossEncoder
    from lazyrag.models.onnx.embedder import OnnxEmbedder
    from lazyrag.models.protocol import (
        ChatChoice,
        ChatCompletion,
        ChatDelta,
        ChatModel,
        ChatOptions,
        Embedder,
        Message,
        RerankModel,
    )
    from lazyrag.models.rerank import CallableRerankModel
    from lazyrag.models.sentence_transformers import SentenceTransformerCrossEncoder, SentenceTransformerEmbedder
    from lazyrag.pipeline.defaults import PipelineSettings
    from lazyrag.pipeline.milvus import MilvusCollection
    from lazyrag.pipeline.pipeline import RAGPipeline
    from lazyrag.pipeline.settings import Settings
    from lazyrag.ranking.fusion import ReciprocalRankFusion, register_fusion
    from lazyrag.ranking.scores import KeywordSetting, VectorSetting, Weights
    from lazyrag.retrieval import (
        BM25Retriever,
        HybridRetriever,
        MultiQueryRetriever,
        PriorityRetriever,
        QueryRewriter,
        Reranker,
        RetrievalMethod,
        Retriever,
        WeightedRetriever,
        auto_merge,
        register_reranker,
        register_similarity,
        retriever_for,
    )
    from lazyrag.retrieval.base import explain, why_not
    from lazyrag.retrieval.chain import RetrievalChain
    from lazyrag.retrieval.explain import Explanation
    from lazyrag.retrieval.feedback import FeedbackRetriever
    from lazyrag.retrieval.steps import MMR, AutoMerge, ScoreThreshold, Windows
    from lazyrag.text.tokens import TiktokenCounter
    from lazyrag.transforms import (
        CharacterSplitter,
        CodeSplitter,
        HTMLSplitter,
        JSONSplitter,
        MarkdownSplitter,
        NodeTransform,
        ParentMode,
        PreProcessingRules,
        RecursiveSplitter,
        Rule,
        Segmentation,
        SemanticSplitter,
        SentenceSplitter,
        SentenceWindow,
        TokenSplitter,
        TransformArgs,
        register_transform,
    )
    from lazyrag.transforms.llm import LLMParser

__all__ = [
    "LAZY_ROOT_NAME",
    "MMR",
    "And",
    "Answer",
    "AnswerDelta",
    "AsyncReranker",
    "AutoMerge",
    "BM25Retriever",
    "CachedEmbedder",
    "CallableChatModel",
    "CallableRerankModel",
    "CharacterSplitter",
    "ChatChoice",
    "ChatCompletion",
    "ChatDelta",
    "ChatModel",
    "ChatOptions",
    "Citation",
    "CitationManager",
    "CitationStream",
    "CodeSplitter",
    "Condition",
    "ContextBuilder",
    "ContextTemplate",
    "CrossEncoderReranker",
    "DataType",
    "DocField",
    "DocNode",
    "Document",
    "Embedder",
    "EmbeddingCache",
    "Endpoint",
    "Explanation",
    "FeedbackRetriever",
    "GenerationDelta",
    "GenerationResult",
    "Generator",
    "HTMLSplitter",
    "Hit",
    "HttpChatModel",
    "HttpEmbedder",
    "HttpRerankModel",
    "HybridRetriever",
    "IngestReport",
    "IngestionWarning",
    "JSONSplitter",
    "KeywordSetting",
    "LLMParser",
    "LazyRAGError",
    "ListwiseRerankModel",
    "LoadLimits",
    "LoadedFile",
    "MarkdownSplitter",
    "MaxSimModel",
    "Message",
    "MilvusCollection",
    "MultiQueryRetriever",
    "NodeTransform",
    "Not",
    "OnnxCrossEncoder",
    "OnnxEmbedder",
    "Or",
    "ParentMode",
    "PipelineSettings",
    "PointwiseRerankModel",
    "PreProcessingRules",
    "PriorityRetriever",
    "Prompts",
    "QueryRewriter",
    "QuoteCheck",
    "RAGContext",
    "RAGInterface",
    "RAGPipeline",
    "ReciprocalRankFusion",
    "RecursiveSplitter",
    "Refined",
    "Refiner",
    "RerankModel",
    "Reranker",
    "ResolvedCitations",
    "RetrievalChain",
    "RetrievalMethod",
    "RetrievalResult",
    "Retriever",
    "Rule",
    "ScoreThreshold",
    "Segmentation",
    "SemanticSplitter",
    "SentenceSplitter",
    "SentenceTransformerCrossEncoder",
    "SentenceTransformerEmbedder",
    "SentenceWindow",
    "Settings",
    "TiktokenCounter",
    "TokenSplitter",
    "TransformArgs",
    "TreeRefiner",
    "VectorSetting",
    "Watcher",
    "WeightedRetriever",
    "Weights",
    "Windows",
    "__version__",
    "auto_merge",
    "explain",
    "migrate",
    "register_fusion",
    "register_loader",
    "register_media_reader",
    "register_refiner",
    "register_reranker",
    "register_similarity",
    "register_transform",
    "retriever_for",
    "why_not",
]

# Imported on first use: the engines need numpy, and a program that only names this package should not wait for it.
_HOMES = {
    "And": "lazyrag.data.filters",
    "Answer": "lazyrag.data.result",
    "AnswerDelta": "lazyrag.data.result",
    "AsyncReranker": "lazyrag.models.async_rerank",
    "AutoMerge": "lazyrag.retrieval.steps",
    "BM25Retriever": "lazyrag.retrieval",
    "CachedEmbedder": "lazyrag.models.cached",
    "CallableChatModel": "lazyrag.models.chat",
    "CallableRerankModel": "lazyrag.models.rerank",
    "CharacterSplitter": "lazyrag.transforms",
    "ChatChoice": "lazyrag.models.protocol",
    "ChatCompletion": "lazyrag.models.protocol",
    "ChatDelta": "lazyrag.models.protocol",
    "ChatModel": "lazyrag.models.protocol",
    "ChatOptions": "lazyrag.models.protocol",
    "Citation": "lazyrag.data.result",
    "CitationManager": "lazyrag.generation.citations",
    "CitationStream": "lazyrag.generation.citation_stream",
    "CodeSplitter": "lazyrag.transforms",
    "Condition": "lazyrag.data.filters",
    "ContextBuilder": "lazyrag.generation.context",
    "ContextTemplate": "lazyrag.generation.templates",
    "CrossEncoderReranker": "lazyrag.models.async_rerank",
    "DataType": "lazyrag.data.fields",
    "DocField": "lazyrag.data.fields",
    "DocNode": "lazyrag.data.node",
    "Document": "lazyrag.document",
    "Embedder": "lazyrag.models.protocol",
    "EmbeddingCache": "lazyrag.models.cache",
    "Endpoint": "lazyrag.models.http.endpoint",
    "Explanation": "lazyrag.retrieval.explain",
    "FeedbackRetriever": "lazyrag.retrieval.feedback",
    "GenerationDelta": "lazyrag.data.result",
    "GenerationResult": "lazyrag.data.result",
    "Generator": "lazyrag.generation.generator",
    "HTMLSplitter": "lazyrag.transforms",
    "Hit": "lazyrag.data.result",
    "HttpChatModel": "lazyrag.models.http.chat",
    "HttpEmbedder": "lazyrag.models.http.embedder",
    "HttpRerankModel": "lazyrag.models.http.rerank",
    "HybridRetriever": "lazyrag.retrieval",
    "IngestReport": "lazyrag.document",
    "IngestionWarning": "lazyrag.errors",
    "JSONSplitter": "lazyrag.transforms",
    "KeywordSetting": "lazyrag.ranking.scores",
    "LAZY_ROOT_NAME": "lazyrag.data.segment",
    "LLMParser": "lazyrag.transforms.llm",
    "LazyRAGError": "lazyrag.errors",
    "ListwiseRerankModel": "lazyrag.models.chat_rerank",
    "LoadLimits": "lazyrag.loaders",
    "LoadedFile": "lazyrag.loaders",
    "MMR": "lazyrag.retrieval.steps",
    "MarkdownSplitter": "lazyrag.transforms",
    "MaxSimModel": "lazyrag.models.late_interaction",
    "Message": "lazyrag.models.protocol",
    "MilvusCollection": "lazyrag.pipeline.milvus",
    "MultiQueryRetriever": "lazyrag.retrieval",
    "NodeTransform": "lazyrag.transforms",
    "Not": "lazyrag.data.filters",
    "OnnxCrossEncoder": "lazyrag.models.onnx.cross_encoder",
    "OnnxEmbedder": "lazyrag.models.onnx.embedder",
    "Or": "lazyrag.data.filters",
    "ParentMode": "lazyrag.transforms",
    "PipelineSettings": "lazyrag.pipeline.defaults",
    "PointwiseRerankModel": "lazyrag.models.chat_rerank",
    "PreProcessingRules": "lazyrag.transforms",
    "PriorityRetriever": "lazyrag.retrieval",
    "Prompts": "lazyrag.generation.prompts",
    "QueryRewriter": "lazyrag.retrieval",
    "QuoteCheck": "lazyrag.generation.quotes",
    "RAGContext": "lazyrag.data.result",
    "RAGInterface": "lazyrag.evaluation.interface",
    "RAGPipeline": "lazyrag.pipeline.pipeline",
    "ReciprocalRankFusion": "lazyrag.ranking.fusion",
    "RecursiveSplitter": "lazyrag.transforms",
    "Refined": "lazyrag.generation.refine",
    "Refiner": "lazyrag.generation.refine",
    "RerankModel": "lazyrag.models.protocol",
    "Reranker": "lazyrag.retrieval",
    "ResolvedCitations": "lazyrag.generation.resolved",
    "RetrievalChain": "lazyrag.retrieval.chain",
    "RetrievalMethod": "lazyrag.retrieval",
    "RetrievalResult": "lazyrag.data.result",
    "Retriever": "lazyrag.retrieval",
    "Rule": "lazyrag.transforms",
    "ScoreThreshold": "lazyrag.retrieval.steps",
    "Segmentation": "lazyrag.transforms",
    "SemanticSplitter": "lazyrag.transforms",
    "SentenceSplitter": "lazyrag.transforms",
    "SentenceTransformerCrossEncoder": "lazyrag.models.sentence_transformers",
    "SentenceTransformerEmbedder": "lazyrag.models.sentence_transformers",
    "SentenceWindow": "lazyrag.transforms",
    "Settings": "lazyrag.pipeline.settings",
    "TiktokenCounter": "lazyrag.text.tokens",
    "TokenSplitter": "lazyrag.transforms",
    "TransformArgs": "lazyrag.transforms",
    "TreeRefiner": "lazyrag.generation.tree_refiner",
    "VectorSetting": "lazyrag.ranking.scores",
    "Watcher": "lazyrag.document",
    "WeightedRetriever": "lazyrag.retrieval",
    "Weights": "lazyrag.ranking.scores",
    "Windows": "lazyrag.retrieval.steps",
    "auto_merge": "lazyrag.retrieval",
    "explain": "lazyrag.retrieval.base",
    "migrate": "lazyrag.document",
    "register_fusion": "lazyrag.ranking.fusion",
    "register_loader": "lazyrag.loaders",
    "register_media_reader": "lazyrag.loaders.media",
    "register_refiner": "lazyrag.generation.refine",
    "register_reranker": "lazyrag.retrieval",
    "register_similarity": "lazyrag.retrieval",
    "register_transform": "lazyrag.transforms",
    "retriever_for": "lazyrag.retrieval",
    "why_not": "lazyrag.retrieval.base",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        from lazyrag.errors import known_names

        msg = f"module 'lazyrag' has no attribute {name!r}. {known_names(name, __all__)}"
        raise AttributeError(msg)
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
