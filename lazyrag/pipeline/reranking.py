"""What a pipeline reranks by: a `Reranker` over nodes, or any rerank model over texts."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit
from lazyrag.errors import ConfigError
from lazyrag.models.async_rerank import AsyncReranker
from lazyrag.models.rerank import checked_ranking
from lazyrag.models.threads import in_thread
from lazyrag.pipeline.finding import Found
from lazyrag.retrieval.output import hits_of
from lazyrag.retrieval.reranker import Reranker

Rerank: TypeAlias = Callable[[str, Found, int], Awaitable[list[Hit]]]
"""Of a question and what was found for it, the best hits with the reranker's scores."""


def make_rerank(reranker: Any) -> tuple[Rerank, str]:
    """How to rerank, and by what, for traces.

    Args:
        reranker: A `lazyrag.Reranker`; what has ``async rerank(query, documents, top_k)``, as `AsyncReranker` and
            `CrossEncoderReranker` do; a rerank model, or a callable ``(query, documents=[...], top_n=n)``; or the
            folder or name of a cross-encoder on this machine.

    Raises:
        ConfigError: If it is none of these.
    """
    if isinstance(reranker, Reranker):
        return _by_nodes(reranker), reranker.name
    if isinstance(reranker, (str, os.PathLike)):
        return _by_texts(AsyncReranker(reranker)), os.fspath(reranker)
    if inspect.iscoroutinefunction(getattr(reranker, "rerank", None)):
        return _by_texts(reranker), _name(getattr(reranker, "model", reranker))
    if not callable(reranker) or isinstance(reranker, type):
        msg = (
            f"reranker is {reranker!r:.60}; give a Reranker, a rerank model, a callable (query, documents=[...], "
            "top_n=n), what has an async rerank(query, documents, top_k), or the folder of a cross-encoder."
        )
        raise ConfigError(msg)
    return _by_texts(AsyncReranker(reranker)), _name(reranker)


def _by_nodes(reranker: Reranker) -> Rerank:
    async def rerank(query: str, found: Found, topk: int) -> list[Hit]:
        nodes = found.nodes or [_as_node(hit, at) for at, hit in enumerate(found.hits)]
        hit_of = {node.uid: hit for node, hit in zip(nodes, found.hits, strict=True)}
        kept = (await in_thread(reranker, nodes, query))[:topk]
        # A reranker may give other nodes than it was given: what it merged, for one.
        new = {node.uid: hit for node, hit in zip(kept, await in_thread(hits_of, kept), strict=True)}
        return [_scored(hit_of.get(node.uid, new[node.uid]), node.score) for node in kept]

    return rerank


def _by_texts(reranker: Any) -> Rerank:
    async def rerank(query: str, found: Found, topk: int) -> list[Hit]:
        texts = [hit.text for hit in found.hits]
        if not texts:
            return []
        ranking = checked_ranking(await reranker.rerank(query, texts, topk), len(texts), repr(reranker))
        return [_scored(found.hits[at], score) for at, score in ranking[:topk]]

    return rerank


def _as_node(hit: Hit, number: int) -> DocNode:
    """A hit without a node as one, for rerankers over nodes."""
    return DocNode(text=hit.text, metadata=hit.metadata, uid=hit.id or str(number), score=hit.score)


def _scored(hit: Hit, score: float | None) -> Hit:
    return hit if score is None else dataclasses.replace(hit, score=score)


def _name(reranker: Any) -> str:
    identity = getattr(reranker, "identity", None)
    return identity if isinstance(identity, str) and identity else type(reranker).__name__
