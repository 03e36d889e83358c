"""What a pipeline is made of: its way to find hits, over a Document what measured best or what settings say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lazyrag.document.document import Document
from lazyrag.errors import ConfigError
from lazyrag.generation.context import ContextBuilder
from lazyrag.models.local_rerank import local_rerank_model
from lazyrag.pipeline.defaults import PipelineSettings
from lazyrag.pipeline.finding import Finder, RetrieverFinder
from lazyrag.pipeline.milvus import MilvusFinder
from lazyrag.ranking.fusion import fusions
from lazyrag.retrieval.chain import RetrievalChain
from lazyrag.retrieval.hybrid import HybridRetriever
from lazyrag.retrieval.retriever import Retriever
from lazyrag.retrieval.stages import NodeRetriever
from lazyrag.validation import keyword_names

WORDS = "bm25_chinese"
"""By words: it serves English as well, see docs/quality.md."""


def over(
    doc: Document | Sequence[Document], group_name: str, settings: PipelineSettings | None, reranker: Any
) -> tuple[NodeRetriever, Any]:
    """A retriever over a Document, or several, and the reranker behind it; see `lazyrag.RAGPipeline.over`."""
    documents = [doc] if isinstance(doc, Document) else list(doc) if isinstance(doc, (list, tuple)) else []
    if not documents or not all(isinstance(one, Document) for one in documents):
        msg = f"RAGPipeline.over got {doc!r:.60}; give a Document, or a list of Documents."
        raise ConfigError(msg)
    embeds = all(one.embed_keys for one in documents)
    if settings is None:
        found = RetrievalChain.over(documents, group_name) if embeds else Retriever(documents, group_name, WORDS)
        return found, reranker
    if reranker is None and settings.rag_use_reranker:
        reranker = _cross_encoder(settings)
    if not settings.rag_use_hybrid_search:
        return Retriever(documents, group_name, "cosine" if embeds else WORDS), reranker
    if not embeds:
        msg = (
            "rag_use_hybrid_search is True, and a Document has no embeddings; give it embed=..., or set "
            "rag_use_hybrid_search to False."
        )
        raise ConfigError(msg)
    return _hybrid(documents, group_name, settings), reranker


def make_finder(manager: Any, client: Any, retriever: Any) -> Finder:
    """What finds hits: a retriever, or a collection of Milvus by the vectors of an embedding manager."""
    given = [name for name, one in (("embedding_manager", manager), ("milvus_client", client)) if one is not None]
    if retriever is not None and not given:
        return RetrieverFinder(retriever)
    if len(given) == 2 and retriever is None:
        return MilvusFinder(manager, client)
    told = ", ".join([*given, *(["retriever"] if retriever is not None else [])]) or "nothing"
    msg = (
        f"RAGPipeline got {told} to find hits with; give retriever=..., or embedding_manager=... and "
        "milvus_client=.... For a Document: RAGPipeline.over(docs, group_name)."
    )
    raise ConfigError(msg)


def make_builder(builder: Any) -> ContextBuilder:
    """What writes contexts: the one that is given, or the default."""
    if builder is not None and not isinstance(builder, ContextBuilder):
        msg = f"context_builder is {builder!r:.60}; give a ContextBuilder."
        raise ConfigError(msg)
    return builder or ContextBuilder()


def _hybrid(documents: list[Document], group_name: str, settings: PipelineSettings) -> HybridRetriever:
    vector, words = Retriever(documents, group_name, "cosine"), Retriever(documents, group_name, WORDS)
    method = settings.hybrid_fusion_method
    weights = [settings.hybrid_vector_weight, settings.hybrid_bm25_weight]
    named, takes_any = keyword_names(fusions[method].func, skip=1)
    # Specification 003's RRF has no weights.
    weighs = method != "rrf" and (takes_any or "weights" in named)
    usual = PipelineSettings()
    if not weighs and weights != [usual.hybrid_vector_weight, usual.hybrid_bm25_weight]:
        msg = (
            f"The settings weigh by {weights[0]:g} and {weights[1]:g}, and hybrid_fusion_method={method!r} has no "
            "weights; set it to 'weighted', or leave the weights as they are."
        )
        raise ConfigError(msg)
    return HybridRetriever(vector, words, fusion_method=method, weights=weights if weighs else None)


def _cross_encoder(settings: PipelineSettings) -> Any:
    # The default is what the model's class takes by itself, which may be less where a batch would sway scores.
    size = settings.reranker_batch_size
    told = None if size == PipelineSettings().reranker_batch_size else size
    try:
        return local_rerank_model(settings.reranker_model, told)
    except ConfigError as exc:
        msg = f"{exc} Or give reranker=..., or set rag_use_reranker to False."
        raise ConfigError(msg) from exc
