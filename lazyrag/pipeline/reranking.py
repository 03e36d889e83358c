"""What a pipeline reranks by: a `Reranker` over nodes, or any rerank model over texts."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit
from lazyrag.errors import ConfigError
from lazyrag.models.async_rerank import AsyncReranker
from lazyrag.models.rerank import checked_ranking
from lazyrag.models.threads import in_thread
from lazyrag.pipeline.finding import Found, told_by
from lazyrag.retrieval.reranker import Reranker, rerankers

Rerank: TypeAlias = Callable[[str, Found, int], Awaitable[Found]]
"""Of a question and what was found for it, the best, with the reranker's scores."""


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
    if isinstance(reranker, str) and reranker in rerankers:
        msg = f"reranker is the name {reranker!r}; give the reranker itself: Reranker({reranker!r}, ...)."
        raise ConfigError(msg)
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
    async def rerank(query: str, found: Found, topk: int) -> Found:
        items: Sequence[DocNode | Hit] = found.items
        given = [one if isinstance(one, DocNode) else _as_node(one, at) for at, one in enumerate(items)]
        kept = (await in_thread(reranker, given, query))[:topk]
        if all(isinstance(one, DocNode) for one in found.items):
            return Found(kept)
        of = {node.uid: at for at, node in enumerate(given)}
        # A reranker may give nodes that it was not given: such as it merged, for one.
        return Found([_again(node, found, of.get(node.uid)) for node in kept])

    return rerank


def _by_texts(reranker: Any) -> Rerank:
    async def rerank(query: str, found: Found, topk: int) -> Found:
        texts = found.texts()
        if not texts:
            return found
        with told_by(f"The reranker {_name(reranker)!r}"):
            given = await reranker.rerank(query, texts, topk)
        ranking = checked_ranking(given, len(texts), repr(reranker))
        return found.picked(ranking[:topk])

    return rerank


def _again(node: DocNode, found: Found, at: int | None) -> Hit:
    """The hit that a node was made of, with the node's score."""
    hit = None if at is None else found.items[at]
    if not isinstance(hit, Hit):
        return Hit.from_node(node)
    return hit if node.score is None else dataclasses.replace(hit, score=node.score)


def _as_node(hit: Hit, number: int) -> DocNode:
    """A hit without a node as one, for rerankers over nodes."""
    # Ids of others may come twice, and be missing.
    return DocNode(text=hit.text, metadata=hit.metadata, uid=f"hit {number}", score=hit.score)


def _name(reranker: Any) -> str:
    identity = getattr(reranker, "identity", None)
    return identity if isinstance(identity, str) and identity else type(reranker).__name__
