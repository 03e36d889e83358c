"""Reranking by late interaction, over the embedding model that a Document has anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.document.reader import Reader
from lazyrag.errors import ConfigError
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.models.late_interaction import MaxSimModel, can_share
from lazyrag.ranking.fusion import NormaliseLike
from lazyrag.retrieval.reranker import RerankFunction
from lazyrag.retrieval.reranking.step import ModelStep, reranked

WEIGHT = 0.4
"""What measured best behind a hybrid: docs/quality.md."""


def max_sim_reranker(
    nodes: list[DocNode],
    query: str,
    embedder: Any = None,
    embed_key: str | None = None,
    topk: int = -1,
    weight: float = WEIGHT,
    normalise: NormaliseLike = "min_max",
) -> list[DocNode]:
    """Order nodes by late interaction (MaxSim) over the token embeddings of an embedding model.

    It needs no model beside the one that a Document embeds with.

    Args:
        nodes: What to order.
        query: The query.
        embedder: What gives token embeddings, such as an `lazyrag.OnnxEmbedder`. Or a `lazyrag.MaxSimModel`, which says
            how many of them are kept in memory. None: the embedder of the nodes' Document.
        embed_key: Which of the Document's, where several give token embeddings.
        topk: At most so many nodes; -1 means all.
        weight: The share of the new scores, see `lazyrag.retrieval.reranking.step.ModelStep`.
        normalise: How both are brought to a common range, see there.

    Returns:
        Nodes with their scores, best first, ties in the order they came in.

    Raises:
        ConfigError: If no embedder gives token embeddings, or several do; or a value is out of its range.
        RetrievalError: If the embedder fails.

    Source:
        Khattab, Zaharia: ColBERT, SIGIR 2020, doi:10.1145/3397271.3401075.
    """
    return reranked(_step(embedder, embed_key, topk, weight, normalise), nodes, query)


def _step(
    embedder: Any = None,
    embed_key: str | None = None,
    topk: int = -1,
    weight: float = WEIGHT,
    normalise: NormaliseLike = "min_max",
) -> ModelStep:
    if embedder is not None and embed_key is not None:
        msg = f"MaxSimReranker got embed_key={embed_key!r} and an embedder; a key names one of the Document's."
        raise ConfigError(msg)
    if embedder is None:
        return ModelStep("MaxSimReranker", _OfDocuments(embed_key), topk, weight, normalise)
    model = embedder if isinstance(embedder, MaxSimModel) else MaxSimModel(_inner(embedder))
    return ModelStep("MaxSimReranker", lambda _: model, topk, weight, normalise)


class _OfDocuments:
    """The model over the embedder of whatever Document some nodes belong to.

    It holds no embedder, as Documents come and go: what is kept of passages belongs to the embedder, and goes with it.
    Of embedders that cannot have it so, it holds the last one.
    """

    def __init__(self, embed_key: str | None) -> None:
        self._key = embed_key
        self._last: MaxSimModel | None = None

    def __call__(self, nodes: Sequence[DocNode]) -> MaxSimModel:
        readers = {id(node.reader): node.reader for node in nodes}
        found = list({id(one): one for one in map(self._embedder, readers.values())}.values())
        if len(found) > 1 and len(identities := {one.identity or str(id(one)) for one in found}) > 1:
            msg = (
                f"The nodes' Documents embed by different models: {sorted(identities)}. Their scores do not "
                "compare. Give MaxSimReranker one by embedder=."
            )
            raise ConfigError(msg)
        held = self._last
        if held is not None and held.embedder is found[0]:
            return held
        model = MaxSimModel(found[0])
        self._last = None if can_share(found[0]) else model
        return model

    def _embedder(self, reader: object) -> Any:
        if not isinstance(reader, Reader):
            msg = "MaxSimReranker got nodes outside a Document. Pass it embedder=, such as an OnnxEmbedder."
            raise ConfigError(msg)
        embedders = reader.embedders(None if self._key is None else [self._key])
        able = token_embedders(embedders)
        if len({id(one) for one in able.values()}) == 1:
            return next(iter(able.values()))
        keys = ", ".join(sorted(able or {one.key for one in embedders}))
        msg = (
            f"Several embed keys of the nodes' Document give token embeddings: {keys}. Choose one by embed_key=."
            if able
            else f"Of the nodes' Document no embedder gives token embeddings (its embed keys: {keys}). An OnnxEmbedder "
            "does; pass one by embedder=."
        )
        raise ConfigError(msg)


def token_embedders(embedders: Iterable[CheckedEmbedder]) -> dict[str, Any]:
    """Those of a Document's embedders that give token embeddings, by embed key."""
    inner = {one.key: _inner(one.embedder) for one in embedders}
    return {key: one for key, one in inner.items() if _gives_tokens(one)}


def _inner(embedder: Any) -> Any:
    """The embedder inside of one that caches."""
    while not _gives_tokens(embedder) and hasattr(embedder, "embedder"):
        embedder = embedder.embedder
    return embedder


def _gives_tokens(embedder: Any) -> bool:
    made: Callable[..., Any] | None = getattr(embedder, "token_embeddings", None)
    return callable(made)


MAX_SIM_RERANKER = RerankFunction("MaxSimReranker", max_sim_reranker, batch=True, make=_step)
