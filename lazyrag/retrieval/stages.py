"""What a retrieval did, stage by stage: the record that `explain` and `why_not` read."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY
from lazyrag.errors import ConfigError, RetrievalError

StageKind: TypeAlias = Literal[
    "retriever", "fusion", "queries", "reranker", "diversity", "cut", "merge", "window", "mapping", "step"
]
"""What a stage does to its inputs' nodes."""

Cause: TypeAlias = Literal[
    "found",
    "merged",
    "dropped",
    "depth",
    "cut-off",
    "terms",
    "embedding",
    "filter",
    "group",
    "unknown",
    "query",
    "weight",
    "inputs",
    "unasked",
    "untold",
]
"""What a `Reason` comes down to.

``"found"``: it is in the result; ``"merged"``: another node of the result stands for it. ``"dropped"``: a later stage
took it out. Not given by a retriever: ``"depth"``: it ranks too low; ``"cut-off"``: it is worse than
``similarity_cut_off``; ``"terms"``: it has nothing in common with the query; ``"embedding"``: it has no vector;
``"filter"``; ``"group"``: it is of another one; ``"unknown"``: there is no such node; ``"query"``: the query is blank;
``"weight"``: the retriever weighs 0 and was not asked; ``"unasked"``: it was not asked for another reason;
``"untold"``: it keeps no record that would tell, as a function does. ``"inputs"``: none of several retrievers gave it,
and each has a reason of its own.
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage of a retrieval gave, and what it was made of: a tree whose leaves are retrievers.

    Args:
        kind: What the stage does.
        name: Which one it is, as a reader would name it: ``"bm25"``, ``"rrf"``, ``"ModuleReranker"``, ``"topk"``.
        nodes: What it gave, best first, with the scores that it gave them.
        inputs: The stages whose nodes it took; none for a retriever.
        shares: Of a fusion: for each uid what each input added to the score, one number for each, in their order. They
            add up to it. Keyed by the node instead where Documents may have the same uid.
        said: What it was set to, for people: ``{"k": 60}``.
        seconds: How long it took, without its inputs.
        retriever: Of a leaf: what was asked.
        origins: Of a stage that puts nodes in the place of others: for each new node those of the inputs that it stands
            for. Without it they are those that the node's `merged_from` names.
        why: Of a leaf, or a cut that is a part of it: says why a uid is not among its nodes, of the very question that
            was asked.
    """

    kind: StageKind
    name: str
    nodes: tuple[DocNode, ...]
    inputs: tuple[Stage, ...] = ()
    shares: Mapping[str, tuple[float, ...]] | Mapping[DocNode, tuple[float, ...]] = field(default_factory=lambda: EMPTY)
    said: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    seconds: float = 0.0
    retriever: NodeRetriever | Traceable | None = field(default=None, compare=False, repr=False)
    origins: Mapping[DocNode, tuple[DocNode, ...]] = field(default_factory=dict)
    why: Callable[[str], Reason] | None = field(default=None, compare=False, repr=False)


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
        cause: What it comes down to, for programs.
    """

    uid: str
    stage: str
    told: str
    rank: int | None = None
    score: float | None = None
    inputs: tuple[Reason, ...] = ()
    cause: Cause = "dropped"

    def __str__(self) -> str:
        lines = [f"{self.stage}: {self.told}"]
        lines += ["  " + line for one in self.inputs for line in str(one).splitlines()]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Its fields, those of the inputs likewise; ready for JSON."""
        plain = {name: json_ready(getattr(self, name)) for name in self.__slots__ if name != "inputs"}
        return {**plain, "inputs": [one.to_dict() for one in self.inputs]}


class NodeRetriever(Protocol):
    """Whatever finds nodes for a query: a `Retriever`, several of them together, a user's own callable."""

    def __call__(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> list[DocNode]:
        """The best nodes, best first; at most ``topk``, or as many as it gives by itself where that is None."""
        ...


class Traceable(Protocol):
    """What records its stages, in whatever form a call hands out its nodes."""

    def trace(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Stage:
        """The last stage; its nodes are what a call returns."""
        ...


class Step(Protocol):
    """What a chain does after retrieval: a `Reranker`, a user's function.

    A step may have a method ``trace(stage, query) -> Stage`` that records more than what came and what went. Without
    one, its ``kind``, ``name`` and ``said`` say what it is, and ``origins(given, gave)`` for which nodes others stand.
    ``rescores`` says whether it gives scores of its own, of which a higher one is better, or leaves those that came:
    what fuses by score needs to know that of steps behind a retriever for which a smaller score is better.
    """

    def __call__(self, nodes: list[DocNode], query: str, /) -> list[DocNode]:
        """The nodes that it gives, best first."""
        ...


def checked_stage(stage: Any, what: str) -> Stage:
    """What a trace returned, if it is a stage.

    Args:
        stage: What it returned.
        what: Whose trace it is, for the message.

    Raises:
        RetrievalError: If it is something else.
    """
    if not isinstance(stage, Stage):
        msg = f"{what} is {stage!r:.80}; it must be a lazyrag.retrieval.stages.Stage."
        raise RetrievalError(msg)
    return stage


def check_query(query: Any) -> bool:
    """Whether there is anything to ask: False for a blank query.

    Raises:
        ConfigError: If it is no text.
    """
    if not isinstance(query, str):
        msg = f"The query is {query!r} ({type(query).__name__}); give a text."
        raise ConfigError(msg)
    return bool(query.strip())


def asked_nodes(retriever: Any, query: str, filters: FilterLike | None, topk: int | None) -> list[DocNode]:
    """What a retriever returns, if these are nodes.

    Raises:
        ConfigError: If it is no callable.
        RetrievalError: If it returns something else than nodes. What it raises itself comes through.
    """
    if not callable(retriever):
        msg = f"{retriever!r:.80} is no retriever; give a Retriever or a callable (query, filters=None, topk=None)."
        raise ConfigError(msg)
    given = retriever(query, filters=filters, topk=topk)
    if not isinstance(given, (list, tuple)) or not all(isinstance(node, DocNode) for node in given):
        msg = (
            f"The retriever {callable_name(retriever)!r} returned {given!r:.80}; a list of nodes is needed. "
            "A Retriever gives nodes with output_format=None."
        )
        raise RetrievalError(msg)
    return list(given)


def callable_name(called: Any) -> str:
    """What a reader would call a callable: its own name, else that of its class.

    Example:
        >>> callable_name(len)
        'len'
    """
    named = getattr(called, "__name__", None)
    return named if isinstance(named, str) else type(called).__name__


def json_ready(value: Any) -> Any:
    """A value as JSON can hold it: numbers that are none as text, tuples as lists, what is unknown by its name.

    Example:
        >>> json_ready({"score": float("nan"), "of": (1, 2)})
        {'score': 'nan', 'of': [1, 2]}
    """
    if isinstance(value, (str, bool, int, type(None))):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(key): json_ready(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        listed = [json_ready(one) for one in value]
        return sorted(listed, key=repr) if isinstance(value, (set, frozenset)) else listed
    told = repr(value)
    return callable_name(value) if callable(value) or " at 0x" in told else told
