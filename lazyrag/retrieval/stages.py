"""The record of a retrieval, stage by stage, and the protocols of retrievers and steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol, TypeAlias, cast

from lazyrag.data.encoding import to_dict
from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY
from lazyrag.errors import RetrievalError
from lazyrag.models.concurrency import settle
from lazyrag.types import AnyCallable, JsonObject, Keywords
from lazyrag.validation import is_list_of, require

StageKind: TypeAlias = Literal[
    "retriever",
    "fusion",
    "queries",
    "reranker",
    "diversity",
    "cut",
    "merge",
    "window",
    "mapping",
    "step",
]
"""What a stage does to the nodes of its inputs."""

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
    "not-run",
    "no-reason",
]
"""The cause of a `Reason`, for programs.

``"found"``: the node is in the result. ``"merged"``: another node of the result represents it.
``"dropped"``: a later stage removed it. A retriever did not return it because: ``"depth"``: it
ranks too low; ``"cut-off"``: its score is worse than ``similarity_cut_off``; ``"terms"``: it shares
nothing with the query; ``"embedding"``: it has no vector; ``"filter"``; ``"group"``: it belongs to
another group; ``"unknown"``: no such node; ``"query"``: the query is blank; ``"weight"``: the
retriever has weight 0 and did not run; ``"not-run"``: the retriever did not run for another reason;
``"no-reason"``: the retriever, such as a function, records no reasons. ``"inputs"``: none of
several retrievers returned it; each has its own reason.
"""


class JsonRecord:
    """Base of the dataclasses that can be written as JSON."""

    __slots__ = ()

    def to_dict(self) -> JsonObject:
        """Return its fields, ready for JSON."""
        return {
            field.name: to_dict(getattr(self, field.name))
            for field in fields(cast("Any", self))
            if field.repr
        }


ExplainMissing: TypeAlias = "Callable[[str], Reason]"
"""Explains why a uid is not among the nodes of a stage."""

Origins: TypeAlias = "dict[DocNode, tuple[DocNode, ...]]"
"""For nodes that replace others, those that they represent."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The result of one stage of a retrieval and its inputs: a tree whose leaves are retrievers.

    Args:
        kind: What the stage does.
        name: Its name for people: ``"bm25"``, ``"rrf"``, ``"ModuleReranker"``, ``"topk"``.
        nodes: Its nodes, best first, with its scores.
        inputs: The stages whose nodes it took; none for a retriever.
        contributions: Of a fusion: for each uid the contribution of each input to the score, in the
            order of the inputs. They add up to the score. The keys are nodes where several
            Documents may have the same uid.
        settings: Its settings, for people: ``{"k": 60}``.
        seconds: Its duration, without its inputs.
        retriever: Of a leaf: the retriever.
        origins: Of a stage that replaces nodes: for each new node the nodes of the inputs that it
            represents. By default these are the nodes that the node's `merged_from` names.
        why: Of a leaf, or a cut that is a part of it: explains why a uid is not among its nodes for
            this query.
    """

    kind: StageKind
    name: str
    nodes: tuple[DocNode, ...]
    inputs: tuple[Stage, ...] = ()
    contributions: Mapping[Any, tuple[float, ...]] = field(default_factory=lambda: EMPTY)
    settings: Keywords = field(default_factory=lambda: EMPTY)
    seconds: float = 0.0
    retriever: NodeRetriever | Traceable | None = field(default=None, compare=False, repr=False)
    origins: Origins = field(default_factory=dict)
    why: ExplainMissing | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Reason(JsonRecord):
    """Why a node is not in a result, or its rank there.

    Args:
        uid: Of the node.
        stage: Name of the stage that dropped it; ``"result"`` where none did.
        message: The reason in one sentence.
        rank: Its rank before it was dropped, from 1; None where it had none.
        score: Its score there; None where it had none.
        cause: The reason for programs.
        inputs: Where none of several retrievers returned it: the reason of each.
    """

    uid: str
    stage: str
    message: str
    rank: int | None = None
    score: float | None = None
    cause: Cause = "dropped"
    inputs: tuple[Reason, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.stage}: {self.message}"]
        for reason in self.inputs:
            lines += ["  " + line for line in str(reason).splitlines()]
        return "\n".join(lines)


class NodeRetriever(Protocol):
    """Anything that finds nodes for a query: a `Retriever`, a combination of several, your own
    function.
    """

    def __call__(
        self, query: str, filters: FilterLike | None = None, topk: int | None = None
    ) -> list[DocNode]:
        """Return the best nodes, best first: at most ``topk``, or its own default number where that
        is None.
        """
        ...


class Searchable(Protocol):
    """A client of another index, under the names of spec 003."""

    @property
    def search(self) -> AnyCallable:
        """Called as ``search(query, top_k)``, and with ``filters=`` if it takes them; best results
        first.
        """


class Traceable(Protocol):
    """A retriever that records its stages; the output format of its calls does not matter."""

    def trace(
        self, query: str, filters: FilterLike | None = None, topk: int | None = None
    ) -> Stage:
        """Return the last stage; its nodes are those that a call returns."""
        ...


class Postprocessor(Protocol):
    """A step of a chain after retrieval: a `Reranker`, your own function.

    A step may have these attributes, all optional:

    - ``name``: Its name in records and messages; by default that of the function or class.
    - ``kind``: A `StageKind`; ``"step"`` by default.
    - ``settings``: Its settings for records, a mapping; by default the fields of a dataclass.
    - ``origins(given, gave)``: A method that returns the input nodes that each new node represents.
    - ``trace(stage, query) -> Stage``: A method that records more than input and output. It
      replaces the call and the attributes above.
    - ``rescores``: True if the step sets new scores (higher is better), False if it keeps the
      scores of its input. Fusions by score need it for steps behind a retriever whose smaller
      scores are better.
    - ``descend``: Whether the step expects a higher score to be better; None, the default, if it
      ignores scores.
    - ``reads``: False if the step reads no Document, so that it can run outside the read; True by
      default.
    """

    def __call__(self, nodes: list[DocNode], query: str, /) -> list[DocNode]:
        """Return the resulting nodes, best first."""
        ...


def validate_stage(stage: Any, description: str) -> Stage:
    """Return the result of a ``trace`` method if it is a stage.

    Args:
        stage: The result.
        description: Subject of the message.

    Raises:
        RetrievalError: If it is something else.
    """
    require(
        isinstance(stage, Stage),
        description,
        stage,
        "a lazyrag.retrieval.stages.Stage",
        error=RetrievalError,
    )
    return cast("Stage", stage)


def validate_nodes(nodes: Any, hint: str) -> list[DocNode]:
    """Return nodes of any iterable as a list.

    Raises:
        ConfigError: If it is a single node, or something else than nodes.
    """
    listed = list(nodes) if isinstance(nodes, Iterable) and not isinstance(nodes, DocNode) else None
    require(is_list_of(listed, DocNode), "nodes", nodes, "a list of nodes", hint)
    return listed or []


def node_score(step: str, node: DocNode) -> float:
    """Return the score of a node that a step needs.

    Raises:
        RetrievalError: If it has none.
    """
    if node.score is None:
        raise RetrievalError(
            f"{step} needs nodes with scores; {node!r} has none. Put it behind a step that sets"
            " them."
        )
    return node.score


def check_query(query: Any) -> bool:
    """Whether a query is not blank.

    Raises:
        ConfigError: If it is not a string.
    """
    require(isinstance(query, str), "query", query, "a string")
    return bool(query.strip())


def retrieve_nodes(
    retriever: Any, query: str, filters: FilterLike | None, topk: int | None
) -> list[DocNode]:
    """Call a retriever, which may be a coroutine function, and must return nodes. Its own errors
    pass through.

    Raises:
        ConfigError: If it is not callable.
        RetrievalError: If it returns something else than nodes.
    """
    require(
        callable(retriever),
        "retriever",
        retriever,
        "a Retriever or callable (query, filters=None, topk=None)",
    )
    nodes = settle(retriever(query, filters=filters, topk=topk))
    if not is_list_of(nodes, DocNode):
        raise RetrievalError(
            f"The retriever {callable_name(retriever)!r} returned {nodes!r:.80}; it must return a"
            " list of nodes. A Retriever returns nodes with output_format=None."
        )
    return list(nodes)


def callable_name(called: Any) -> str:
    """Name of a callable for people: its own name, else that of its class.

    Example:
        >>> callable_name(len)
        'len'
    """
    named = getattr(called, "__name__", None)
    return named if isinstance(named, str) else type(called).__name__
