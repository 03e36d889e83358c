"""Reranking by words, without a model."""

from __future__ import annotations

from lazyrag.data.node import DocNode
from lazyrag.models.bm25_rerank import Bm25RerankModel, Variant
from lazyrag.ranking.fusion import NormaliseLike
from lazyrag.retrieval.reranker import RerankFunction
from lazyrag.retrieval.reranking.step import ModelStep, reranked


def bm25_reranker(
    nodes: list[DocNode],
    query: str,
    analyser: str = "auto",
    variant: Variant = "plus",
    topk: int = -1,
    weight: float = 1.0,
    normalise: NormaliseLike = "min_max",
) -> list[DocNode]:
    """Order nodes by BM25, with terms counted in these nodes alone (the library rank-bm25).

    Args:
        nodes: What to order.
        query: The query.
        analyser: Turns text into terms, see `lazyrag.models.bm25_rerank.Bm25RerankModel`.
        variant: ``"plus"``, ``"okapi"`` or ``"l"``, see there.
        topk: At most so many nodes; -1 means all.
        weight: The share of the new scores, see `lazyrag.retrieval.reranking.step.ModelStep`. 1 takes them alone.
        normalise: How both are brought to a common range, see there.

    Returns:
        Nodes with their scores, best first, ties in the order they came in.

    Raises:
        ConfigError: If a value is out of its range.
        NotRegisteredError: If there is no such analyser.
    """
    return reranked(_step(analyser, variant, topk, weight, normalise), nodes, query)


def _step(
    analyser: str = "auto",
    variant: Variant = "plus",
    topk: int = -1,
    weight: float = 1.0,
    normalise: NormaliseLike = "min_max",
) -> ModelStep:
    model = Bm25RerankModel(analyser=analyser, variant=variant)
    return ModelStep("BM25Reranker", lambda _: model, topk, weight, normalise)


BM25_RERANKER = RerankFunction("BM25Reranker", bm25_reranker, batch=True, make=_step)
