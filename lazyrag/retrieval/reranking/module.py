"""Reranking by whatever model is given: spec 001's ``ModuleReranker``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.errors import ConfigError
from lazyrag.models.local_rerank import LocalModel, local_rerank_model
from lazyrag.models.protocol import RerankModel
from lazyrag.ranking.fusion import NormaliseLike
from lazyrag.retrieval.reranker import RerankFunction
from lazyrag.retrieval.reranking.step import ModelStep, reranked


def module_reranker(
    nodes: list[DocNode],
    model: LocalModel | RerankModel | Callable[..., Any],
    query: str,
    topk: int = -1,
    weight: float = 1.0,
    normalise: NormaliseLike = "min_max",
    **kwargs: Any,
) -> list[DocNode]:
    """Order nodes by a rerank model (spec 001's ``ModuleReranker``).

    Args:
        nodes: What to order.
        model: A folder with a cross-encoder, or its name in the hub's cache on this machine, see
            `lazyrag.models.local_rerank.local_rerank_model`. Or a `RerankModel`, or any callable
            ``model(query, documents=[...], top_n=n) -> [(index, score), ...]``, higher scores being better.
        query: The query.
        topk: At most so many nodes; -1 means all.
        weight: The share of the model's scores, see `lazyrag.retrieval.reranking.step.ModelStep`. 1 takes them alone.
        normalise: How both are brought to a common range, see there.
        kwargs: Passed to the model, which is none of a folder or name then.

    Returns:
        Nodes with their scores, best first, ties in the order they came in.

    Raises:
        ConfigError: If a value is out of its range, or there is no such model.
        MissingDependencyError: If a package is needed that is not installed.
        RetrievalError: If the model raises, or returns something else.
    """
    return reranked(_step(model, topk, weight, normalise, **kwargs), nodes, query)


def _step(
    model: Any, topk: int = -1, weight: float = 1.0, normalise: NormaliseLike = "min_max", **keywords: Any
) -> ModelStep:
    asked = model
    if isinstance(model, (str, os.PathLike)):
        if keywords:
            name = next(iter(keywords))
            msg = (
                f"ModuleReranker got {name}= and model={str(model)!r}; a model of that kind takes no further keywords."
            )
            raise ConfigError(msg)
        asked = local_rerank_model(model)
    if not callable(asked):
        msg = (
            f"ModuleReranker got model={model!r}; give a folder, a name, a RerankModel, or a callable "
            "model(query, documents=[...], top_n=n)."
        )
        raise ConfigError(msg)
    return ModelStep("ModuleReranker", lambda _: asked, topk, weight, normalise, keywords)


MODULE_RERANKER = RerankFunction("ModuleReranker", module_reranker, batch=True, make=_step)
