"""What a retrieval did, stage by stage: the record that `explain` and `why_not` read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY

StageKind: TypeAlias = Literal[
    "retriever", "fusion", "queries", "reranker", "diversity", "cut", "merge", "window", "step"
]
"""What a stage does to its inputs' nodes."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage of a retrieval gave, and what it was made of: a tree whose leaves are retrievers.

    Args:
        kind: What the stage does.
        name: Which one it is, as a reader would name it: ``"bm25"``, ``"rrf"``, ``"ModuleReranker"``, ``"topk"``.
        nodes: What it gave, best first, with the scores that it gave them.
        inputs: The stages whose nodes it took; none for a retriever.
        shares: Of a fusion: for each uid what each input added to the score, one number for each, in their order. They
            add up to it.
        said: What it was set to, for people: ``{"k": 60}``.
        seconds: How long it took, without its inputs.
        retriever: Of a leaf: what was asked, which can say why a node is not among its nodes.
    """

    kind: StageKind
    name: str
    nodes: tuple[DocNode, ...]
    inputs: tuple[Stage, ...] = ()
    shares: Mapping[str, tuple[float, ...]] = field(default_factory=lambda: EMPTY)
    said: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    seconds: float = 0.0
    retriever: NodeRetriever | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a node is not in a result, or at which rank it is.

    Args:
        uid: The node's.
        stage: Name of the one stage that dropped it; ``"result"`` where nothing did.
        told: The reason in one sentence.
        rank: Its place before it was dropped, from 1; None where it had none.
        score: Its score there; None where it had none.
        inputs: Where several retrievers were asked and none gave it: each one's reason.
    """

    uid: str
    stage: str
    told: str
    rank: int | None = None
    score: float | None = None
    inputs: tuple[Reason, ...] = ()


class NodeRetriever(Protocol):
    """Whatever finds nodes for a query: a `Retriever`, several of them together, a user's own callable."""

    def __call__(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> list[DocNode]:
        """The best nodes, best first; at most ``topk``, or as many as it gives by itself where that is None."""
        ...


class Traced(NodeRetriever, Protocol):
    """A retriever that records its stages."""

    def trace(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Stage:
        """The last stage; its nodes are what a call returns."""
        ...
