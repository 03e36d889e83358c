"""Reranking by a chat model."""

from __future__ import annotations

from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.models.chat import ChatCallable
from lazyrag.models.chat_rerank import ListwiseRerankModel, PointwiseRerankModel
from lazyrag.models.protocol import ChatModel
from lazyrag.ranking.fusion import NormaliseLike
from lazyrag.retrieval.reranker import RerankFunction
from lazyrag.retrieval.reranking.step import ModelStep, reranked


def pointwise_reranker(
    nodes: list[DocNode],
    model: ChatModel | ChatCallable,
    query: str,
    topk: int = -1,
    weight: float = 1.0,
    normalise: NormaliseLike = "min_max",
    **kwargs: Any,
) -> list[DocNode]:
    """Order nodes by what a chat model says of each: whether, or how well, it answers the query.

    Args:
        nodes: What to order.
        model: A `lazyrag.ChatModel`, or a callable that turns a text into a text.
        query: The query.
        topk: At most so many nodes; -1 means all.
        weight: The share of the model's scores, see `lazyrag.retrieval.reranking.step.ModelStep`. 1 takes them alone.
        normalise: How both are brought to a common range, see there.
        kwargs: ``scale``, ``language``, ``prompt``, ``options``, ``concurrency``: see `lazyrag.PointwiseRerankModel`.

    Returns:
        Nodes with their scores, best first, ties in the order they came in.

    Raises:
        ConfigError: If a value is out of its range.
        RetrievalError: If the model fails.
    """
    return reranked(_pointwise(model, topk, weight, normalise, **kwargs), nodes, query)


def listwise_reranker(
    nodes: list[DocNode],
    model: ChatModel | ChatCallable,
    query: str,
    topk: int = -1,
    weight: float = 1.0,
    normalise: NormaliseLike = "min_max",
    **kwargs: Any,
) -> list[DocNode]:
    """Order nodes by a chat model that puts them in order, window by window (RankGPT).

    Args:
        nodes: What to order, in the order of a first ranking.
        model: A `lazyrag.ChatModel`, or a callable that turns a text into a text.
        query: The query.
        topk: At most so many nodes; -1 means all.
        weight: The share of the new ranks, see `lazyrag.retrieval.reranking.step.ModelStep`. 1 takes them alone.
        normalise: How both are brought to a common range, see there.
        kwargs: ``window``, ``step``, ``language``, ``prompt``, ``options``: see `lazyrag.ListwiseRerankModel`.

    Returns:
        Nodes with scores from 1 down, best first.

    Raises:
        ConfigError: If a value is out of its range.
        RetrievalError: If the model fails.
    """
    return reranked(_listwise(model, topk, weight, normalise, **kwargs), nodes, query)


def _pointwise(
    model: Any, topk: int = -1, weight: float = 1.0, normalise: NormaliseLike = "min_max", **settings: Any
) -> ModelStep:
    asked = PointwiseRerankModel(model, **settings)
    return ModelStep("PointwiseReranker", lambda _: asked, topk, weight, normalise)


def _listwise(
    model: Any, topk: int = -1, weight: float = 1.0, normalise: NormaliseLike = "min_max", **settings: Any
) -> ModelStep:
    asked = ListwiseRerankModel(model, **settings)
    return ModelStep("ListwiseReranker", lambda _: asked, topk, weight, normalise)


POINTWISE_RERANKER = RerankFunction("PointwiseReranker", pointwise_reranker, batch=True, make=_pointwise)
LISTWISE_RERANKER = RerankFunction("ListwiseReranker", listwise_reranker, batch=True, make=_listwise)
