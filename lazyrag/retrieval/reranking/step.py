"""What every reranker with a model does: score the nodes, mix that with the scores they came with, cut."""

from __future__ import annotations

import math
import numbers
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY
from lazyrag.errors import AnswerWarning, ConfigError, warn_user
from lazyrag.models.embedding import shown
from lazyrag.models.protocol import RerankModel
from lazyrag.models.rerank import checked_query, checked_ranking
from lazyrag.ranking.fusion import NormaliseLike, fusions
from lazyrag.retrieval.reranker import RerankStep
from lazyrag.retrieval.stages import Stage
from lazyrag.validation import whole_number

ModelOf: TypeAlias = Callable[[Sequence[DocNode]], RerankModel]
"""Which model ranks some nodes."""

_Scores: TypeAlias = "dict[int, float]"  # by place among the nodes that came in


@dataclass(frozen=True, slots=True)
class ModelStep:
    """A reranker's work, as `lazyrag.Reranker` holds it.

    Args:
        name: The reranker's.
        model_of: Which model ranks the nodes, which are never none.
        topk: At most so many nodes are kept; -1 means all.
        weight: The share of the model's scores beside those that the nodes came with, in [0, 1]. 1: the model's scores
            alone, as it gives them. Below: both are brought to a common range over the nodes, and the score is
            weight x the model's + (1 - weight) x the other. The scores that nodes came with are better where they are
            higher. No node is dropped because the model leaves it out, and there is an `AnswerWarning`: with weight 1
            it comes behind those that it scores, with the lowest of its scores; else it gets 0 of it.
        normalise: How they are brought there: a name, or two, for what came and for the model's; see
            `lazyrag.ranking.scores.normalised`. Not ``"theoretical"``, whose bound is known to nobody here.
        keywords: Passed to the model.

    Raises:
        ConfigError: If topk, weight or normalise is out of its range.
    """

    name: str
    model_of: ModelOf
    topk: int = -1
    weight: float = 1.0
    normalise: NormaliseLike = "min_max"
    keywords: Mapping[str, Any] = field(default_factory=lambda: EMPTY)

    def __post_init__(self) -> None:
        checked_topk(self.topk)
        checked_weight(self.weight)
        self._shares([], [])

    @property
    def descend(self) -> bool | None:
        """True where the scores that nodes come with count; a higher one is better."""
        return True if self.weight < 1 else None

    def trace(self, stage: Stage, query: str) -> Stage:
        """A stage's nodes reranked. One that comes twice is taken once, at its first place.

        Returns:
            With weight 1 the reranker's stage. Else a fusion of the stage that came in and the reranker's, with each
            one's share of every score; and a cut, where there is a topk.

        Raises:
            ConfigError: If the query is blank, or weight is below 1 and a node came without a score.
            RetrievalError: If the model fails, or returns something else than pairs.
        """
        nodes = tuple(dict.fromkeys(stage.nodes))
        if nodes:
            checked_query(query)
        limit = len(nodes) if self.topk == -1 else min(self.topk, len(nodes))
        asked = limit if self.weight == 1 else len(nodes)
        started = time.perf_counter()
        model = self.model_of(nodes) if nodes else None
        scores = self._scored(model, nodes, query, asked) if model is not None else {}
        said = {"topk": self.topk} if asked < len(nodes) else {}
        ranked = Stage(
            "reranker",
            self.name,
            tuple(nodes[place].with_score(score) for place, score in scores.items()),
            (stage,),
            said=said,
            seconds=time.perf_counter() - started,
        )
        if self.weight == 1:
            return ranked
        mixed = self._mixed(stage, nodes, ranked, scores)
        if limit == len(nodes):
            return mixed
        return Stage("cut", "topk", mixed.nodes[:limit], (mixed,), said={"topk": self.topk})

    def _scored(self, model: RerankModel, nodes: Sequence[DocNode], query: str, most: int) -> _Scores:
        """The model's scores, best first, ties in the order the nodes came in."""
        returned = model(query, documents=[node.get_content() for node in nodes], top_n=most, **self.keywords)
        scores = dict(checked_ranking(returned, len(nodes))[:most])
        if len(scores) < most:
            others = "come behind them" if self.weight == 1 else "get nothing of it"
            msg = (
                f"{shown(model)} was asked for {most} of {len(nodes)} passages and has scores for {len(scores)}. The "
                f"others {others}; none is dropped. topk= says how many are kept."
            )
            warn_user(msg, AnswerWarning)
        return scores if self.weight < 1 else _filled(scores, len(nodes), most)

    def _mixed(self, stage: Stage, nodes: Sequence[DocNode], ranked: Stage, scores: _Scores) -> Stage:
        started = time.perf_counter()
        shares = self._shares(_incoming(nodes), list(scores.items()))
        totals = {place: math.fsum(both) for place, both in shares.items()}
        order = sorted(totals, key=lambda place: (-totals[place], place))
        return Stage(
            "fusion",
            "weighted",
            tuple(nodes[place].with_score(totals[place]) for place in order),
            (stage, ranked),
            shares={nodes[place]: shares[place] for place in order},
            said={"weight": self.weight, "normalise": self.normalise},
            seconds=time.perf_counter() - started,
        )

    def _shares(
        self, came: Sequence[tuple[int, float]], told: Sequence[tuple[int, float]]
    ) -> dict[int, tuple[float, ...]]:
        """By place what the score that a node came with adds, and the model's."""
        weights = [1 - self.weight, self.weight]
        return fusions["weighted"].shares([came, told], weights=weights, normalise=self.normalise)


def reranked(step: RerankStep, nodes: Sequence[DocNode], query: str) -> list[DocNode]:
    """Nodes reranked without a record of it."""
    return list(step.trace(Stage("step", "nodes", tuple(nodes)), query).nodes)


def checked_topk(topk: Any) -> int:
    """A bound, or -1 for none.

    Raises:
        ConfigError: If it is something else.
    """
    return -1 if isinstance(topk, numbers.Integral) and topk == -1 else whole_number("topk (-1 for all)", topk, 1)


def checked_weight(weight: Any, name: str = "weight") -> float:
    """A share.

    Raises:
        ConfigError: If it is no number in [0, 1].
    """
    if isinstance(weight, bool) or not isinstance(weight, numbers.Real) or not 0 <= float(weight) <= 1:
        msg = f"{name} is {weight!r}; give a number in [0, 1]: the share of the reranker's score. 1 takes it alone."
        raise ConfigError(msg)
    return float(weight)


def _filled(scores: _Scores, count: int, most: int) -> _Scores:
    """Scores, and behind them nodes that have none, in their order, up to a number of all."""
    lowest = min(scores.values(), default=0.0)
    left_out = [place for place in range(count) if place not in scores]
    return {**scores, **dict.fromkeys(left_out[: most - len(scores)], lowest)}


def _incoming(nodes: Sequence[DocNode]) -> list[tuple[int, float]]:
    """The scores that nodes came with, by place."""
    scores = []
    for place, node in enumerate(nodes):
        if node.score is None or not math.isfinite(node.score):
            msg = (
                f"A reranker with weight= mixes its scores with those that the nodes came with, and {node!r} has the "
                f"score {node.score!r}. Give it what a retriever returned, or leave weight at 1."
            )
            raise ConfigError(msg)
        scores.append((place, node.score))
    return scores
