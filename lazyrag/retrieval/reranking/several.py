"""Several rerankers together: their rankings, and the order that the nodes came in, fused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.errors import ConfigError
from lazyrag.retrieval.ranked import Fusing
from lazyrag.retrieval.reranker import Reranker, RerankFunction
from lazyrag.retrieval.reranking.step import checked_topk, reranked
from lazyrag.retrieval.stages import Stage
from lazyrag.validation import yes_or_no


def fusion_reranker(
    nodes: list[DocNode],
    query: str,
    rerankers: Sequence[Reranker | str],
    fusion: str = "rrf",
    incoming: bool = True,
    topk: int = -1,
    **kwargs: Any,
) -> list[DocNode]:
    """Order nodes by the rankings of several rerankers, and the order they came in, fused.

    Args:
        nodes: What to order. One that comes twice is taken once.
        query: The query.
        rerankers: At least one: a `lazyrag.Reranker`, or the name of one that needs no keywords.
        fusion: Name of a registered fusion: ``"rrf"``, ``"weighted"`` ...
        incoming: Whether the order that the nodes came in is one of the rankings, the first.
        topk: At most so many nodes; -1 means all.
        kwargs: Passed to the fusion: ``k=``, ``weights=``, ``normalise=`` ...

    Returns:
        The nodes that at least one ranking has, with the fused scores, best first, ties by uid.

    Raises:
        NotRegisteredError: If there is no such fusion or reranker.
        ConfigError: If a value is out of its range.
        RetrievalError: If a reranker or the fusion fails, or a fusion of scores meets nodes that came without.
    """
    return reranked(_step(rerankers, fusion, incoming, topk, **kwargs), nodes, query)


@dataclass(frozen=True, slots=True)
class FusionStep:
    """The work of a ``FusionReranker``; see `fusion_reranker`."""

    rerankers: tuple[Reranker, ...]
    fusing: Fusing
    incoming: bool
    topk: int

    @property
    def descend(self) -> bool | None:
        """True where the scores that nodes come with count, here or within; a higher one is better."""
        counts = self.fusing.reads_scores and (self.incoming or not all(one.rescores for one in self.rerankers))
        return True if counts or any(one.descend for one in self.rerankers) else None

    def trace(self, stage: Stage, query: str) -> Stage:
        """A fusion of what came, if it counts, and of each reranker's stage; and a cut, where there is a topk."""
        told = [one.trace(stage, query) for one in self.rerankers]
        inputs = (stage, *told) if self.incoming else tuple(told)
        fused = self.fusing.fused_stages(self.fusing.fusion.name, inputs)
        if self.topk == -1 or self.topk >= len(fused.nodes):
            return fused
        return Stage("cut", "topk", fused.nodes[: self.topk], (fused,), said={"topk": self.topk})


def _step(rerankers: Any, fusion: str = "rrf", incoming: Any = True, topk: int = -1, **keywords: Any) -> FusionStep:
    named = rerankers if isinstance(rerankers, (list, tuple)) else []
    made = [Reranker(one) if isinstance(one, str) else one for one in named]
    if not made or not all(isinstance(one, Reranker) for one in made):
        msg = f"FusionReranker got rerankers={rerankers!r:.80}; give a list of Rerankers, or of their names."
        raise ConfigError(msg)
    fusing = Fusing.checked(fusion, keywords, ("rerankers", "fusion", "incoming", "topk"))
    step = FusionStep(tuple(made), fusing, yes_or_no("incoming", incoming), checked_topk(topk))
    fusing.try_out(len(made) + step.incoming)
    return step


FUSION_RERANKER = RerankFunction("FusionReranker", fusion_reranker, batch=True, make=_step)
