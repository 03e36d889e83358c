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
    from lazyrag.generation.citations import CitationManager, CitationStream, QuoteCheck, ResolvedCitations
    from lazyrag.generation.context import ContextBuilder
    from lazyrag.generation.generator import Generator
    from lazyrag.generation.prompts import ContextTemplate, Prompts
    from lazyrag.generation.refiners import Refined, Refiner, TreeRefiner, register_refiner
    from lazyrag.loaders import LoadedFile, LoadLimits, register_loader
    from lazyrag.loaders.media import register_media_reader
    from lazyrag.models.chat import CallableChatModel
    from lazyrag.models.embedding_cache import CachedEmbedder, EmbeddingCache
    from lazyrag.models.local import AsyncReranker, CrossEncoderReranker
    from lazyrag.models.onnx.models import MaxSimModel, OnnxCrossEncoder, OnnxEmbedder
    from lazyrag.models.openai.client import Endpoint
    from lazyrag.models.openai.models import HttpChatModel, HttpEmbedder, HttpRerankModel
    from lazyrag.models.protocols import (
        ChatChoice,
        ChatCompletion,
        ChatDelta,
        ChatModel,
        ChatOptions,
        Embedder,
        Message,
        RerankModel,
    )
    from lazyrag.models.rerank import CallableRerankModel, ListwiseRerankModel, PointwiseRerankModel
    from lazyrag.models.sentence_transformers import SentenceTransformerCrossEncoder, SentenceTransformerEmbedder
    from lazyrag.pipeline.external import MilvusCollection
    from lazyrag.pipeline.pipeline import RAGPipeline
    from lazyrag.pipeline.settings import PipelineSettings, Settings
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
    from lazyrag.retrieval.explain import Explanation
    from lazyrag.retrieval.hybrid import FeedbackRetriever
    from lazyrag.retrieval.postprocessors import MMR, AutoMerge, RetrievalChain, ScoreThreshold, Windows
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
    "AsyncReranker": "lazyrag.models.local",
    "AutoMerge": "lazyrag.retrieval.postprocessors",
    "BM25Retriever": "lazyrag.retrieval",
    "CachedEmbedder": "lazyrag.models.embedding_cache",
    "CallableChatModel": "lazyrag.models.chat",
    "CallableRerankModel": "lazyrag.models.rerank",
    "CharacterSplitter": "lazyrag.transforms",
    "ChatChoice": "lazyrag.models.protocols",
    "ChatCompletion": "lazyrag.models.protocols",
    "ChatDelta": "lazyrag.models.protocols",
    "ChatModel": "lazyrag.models.protocols",
    "ChatOptions": "lazyrag.models.protocols",
    "Citation": "lazyrag.data.result",
    "CitationManager": "lazyrag.generation.citations",
    "CitationStream": "lazyrag.generation.citations",
    "CodeSplitter": "lazyrag.transforms",
    "Condition": "lazyrag.data.filters",
    "ContextBuilder": "lazyrag.generation.context",
    "ContextTemplate": "lazyrag.generation.prompts",
    "CrossEncoderReranker": "lazyrag.models.local",
    "DataType": "lazyrag.data.fields",
    "DocField": "lazyrag.data.fields",
    "DocNode": "lazyrag.data.node",
    "Document": "lazyrag.document",
    "Embedder": "lazyrag.models.protocols",
    "EmbeddingCache": "lazyrag.models.embedding_cache",
    "Endpoint": "lazyrag.models.openai.client",
    "Explanation": "lazyrag.retrieval.explain",
    "FeedbackRetriever": "lazyrag.retrieval.hybrid",
    "GenerationDelta": "lazyrag.data.result",
    "GenerationResult": "lazyrag.data.result",
    "Generator": "lazyrag.generation.generator",
    "HTMLSplitter": "lazyrag.transforms",
    "Hit": "lazyrag.data.result",
    "HttpChatModel": "lazyrag.models.openai.models",
    "HttpEmbedder": "lazyrag.models.openai.models",
    "HttpRerankModel": "lazyrag.models.openai.models",
    "HybridRetriever": "lazyrag.retrieval",
    "IngestReport": "lazyrag.document",
    "IngestionWarning": "lazyrag.errors",
    "JSONSplitter": "lazyrag.transforms",
    "KeywordSetting": "lazyrag.ranking.scores",
    "LAZY_ROOT_NAME": "lazyrag.data.segment",
    "LLMParser": "lazyrag.transforms.llm",
    "LazyRAGError": "lazyrag.errors",
    "ListwiseRerankModel": "lazyrag.models.rerank",
    "LoadLimits": "lazyrag.loaders",
    "LoadedFile": "lazyrag.loaders",
    "MMR": "lazyrag.retrieval.postprocessors",
    "MarkdownSplitter": "lazyrag.transforms",
    "MaxSimModel": "lazyrag.models.onnx.models",
    "Message": "lazyrag.models.protocols",
    "MilvusCollection": "lazyrag.pipeline.external",
    "MultiQueryRetriever": "lazyrag.retrieval",
    "NodeTransform": "lazyrag.transforms",
    "Not": "lazyrag.data.filters",
    "OnnxCrossEncoder": "lazyrag.models.onnx.models",
    "OnnxEmbedder": "lazyrag.models.onnx.models",
    "Or": "lazyrag.data.filters",
    "ParentMode": "lazyrag.transforms",
    "PipelineSettings": "lazyrag.pipeline.settings",
    "PointwiseRerankModel": "lazyrag.models.rerank",
    "PreProcessingRules": "lazyrag.transforms",
    "PriorityRetriever": "lazyrag.retrieval",
    "Prompts": "lazyrag.generation.prompts",
    "QueryRewriter": "lazyrag.retrieval",
    "QuoteCheck": "lazyrag.generation.citations",
    "RAGContext": "lazyrag.data.result",
    "RAGInterface": "lazyrag.evaluation.interface",
    "RAGPipeline": "lazyrag.pipeline.pipeline",
    "ReciprocalRankFusion": "lazyrag.ranking.fusion",
    "RecursiveSplitter": "lazyrag.transforms",
    "Refined": "lazyrag.generation.refiners",
    "Refiner": "lazyrag.generation.refiners",
    "RerankModel": "lazyrag.models.protocols",
    "Reranker": "lazyrag.retrieval",
    "ResolvedCitations": "lazyrag.generation.citations",
    "RetrievalChain": "lazyrag.retrieval.postprocessors",
    "RetrievalMethod": "lazyrag.retrieval",
    "RetrievalResult": "lazyrag.data.result",
    "Retriever": "lazyrag.retrieval",
    "Rule": "lazyrag.transforms",
    "ScoreThreshold": "lazyrag.retrieval.postprocessors",
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
    "TreeRefiner": "lazyrag.generation.refiners",
    "VectorSetting": "lazyrag.ranking.scores",
    "Watcher": "lazyrag.document",
    "WeightedRetriever": "lazyrag.retrieval",
    "Weights": "lazyrag.ranking.scores",
    "Windows": "lazyrag.retrieval.postprocessors",
    "auto_merge": "lazyrag.retrieval",
    "explain": "lazyrag.retrieval.base",
    "migrate": "lazyrag.document",
    "register_fusion": "lazyrag.ranking.fusion",
    "register_loader": "lazyrag.loaders",
    "register_media_reader": "lazyrag.loaders.media",
    "register_refiner": "lazyrag.generation.refiners",
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
