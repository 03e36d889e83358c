"""What a retrieval did, stage by stage: the record that `explain` and `why_not` read."""

from __future__ import annotations

import functools
import math
import numbers
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias, TypeGuard, TypeVar

from lazyrag.data.filters import Filter, FilterLike, parse_filter
from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY
from lazyrag.document.snapshot import OUTSIDE, ActiveRead, Hits, NodeKey, Snapshot, UnionSnapshot
from lazyrag.errors import ConfigError, RetrievalError, StaleNodeError
from lazyrag.ranking.fusion import Fusion, comb_max_shares, comb_mnz_shares, fusions, summed, weighted_shares
from lazyrag.validation import keyword_names

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


_PARSED = "parsed filters"


@dataclass(frozen=True, slots=True)
class Query:
    """One call of a retriever.

    Args:
        text: What is asked.
        filters: As they were given.
        topk: At most so many nodes; None for as many as the retriever gives by itself.
        is_explained: Whether every stage is to be recorded, those of functions and steps too.
        memo: What is worked out once a call, however often it is read: vectors, rewritings, answers of rerankers.
        towards: Nodes that the query's vector is moved towards, and how far; None leaves that to the retriever.
        reasons: Functions that say why nodes are missing, until the call ends.
    """

    text: str
    filters: FilterLike | None = None
    topk: int | None = None
    is_explained: bool = False
    memo: dict[Any, Any] = field(default_factory=dict)
    towards: tuple[Sequence[DocNode], float] | None = None
    reasons: list[Callable[[str], Reason]] = field(default_factory=list)

    def during_call(self, why: Callable[[str], Reason]) -> Callable[[str], Reason]:
        """A function that may be kept for longer than the call: it holds the state that was read no longer."""
        reasons, number = self.reasons, len(self.reasons)
        reasons.append(why)

        def reason(uid: str) -> Reason:
            if number >= len(reasons):
                msg = "A trace says why a node is missing during the call only. Call why_not() instead."
                raise StaleNodeError(msg)
            return reasons[number](uid)

        return reason

    def parsed_filters(self) -> Filter | None:
        """The filters, parsed once a call: a generator among their values can be read only once.

        Raises:
            ConfigError: If they are no filters.
        """
        if self.filters is None:
            return None
        if _PARSED not in self.memo:
            self.memo[_PARSED] = parse_filter(self.filters)
        found: Filter | None = self.memo[_PARSED]
        return found

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to look for."""
        return not self.text or self.text.isspace()

    def with_topk(self, topk: int | None) -> Query:
        """The same for another number of nodes."""
        return Query(self.text, self.filters, topk, self.is_explained, self.memo, self.towards, self.reasons)

    def with_text(self, text: str) -> Query:
        """The same for another text."""
        return replace(self, text=text)

    def moved_towards(self, nodes: Sequence[DocNode], weight: float) -> Query:
        """The same, its vector moved towards nodes."""
        return replace(self, towards=(nodes, weight))


class StageExplainer(Protocol):
    """The retriever of a leaf, which explains it."""

    @property
    def given(self) -> Any:
        """The object that a user holds."""

    def described(self, ranked: LazyStage) -> tuple[str, Mapping[str, Any]]:
        """Name and settings of one of its stages."""

    def missing(self, ranked: LazyStage, uid: str) -> Reason:
        """Why a node is not among the hits of one of its stages."""


@dataclass(slots=True, eq=False)
class LazyStage:
    """What one stage of a retrieval ranked. Its nodes are read when they are asked for, inside the read.

    Args:
        kind: What the stage does.
        name: Which one it is; for a `Retriever`'s ranking it is worked out when somebody wants an explanation.
        hits: Keys with the stage's scores, best first.
        snapshot: In which they were ranked.
        group: The group whose nodes the hits are; "" where nodes come from the inputs.
        embed_key: The embed key that they were found by.
        inputs: The stages whose nodes it took.
        shares: Of a fusion: what each input added to each score.
        said: What the stage was set to.
        seconds: How long it took, without its inputs.
        retriever: Of a leaf: what was asked, and can say why a node is missing.
        query: Of a leaf: what it was asked.
        why: Says why a node is not among the hits, instead of the retriever.
    """

    kind: StageKind
    name: str
    hits: Hits
    snapshot: Snapshot
    group: str = ""
    embed_key: str | None = None
    inputs: tuple[LazyStage, ...] = ()
    shares: Mapping[NodeKey, tuple[float, ...]] = field(default_factory=dict)
    said: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    retriever: StageExplainer | None = None
    query: Query | None = None
    why: Callable[[str], Reason] | None = None
    _nodes: tuple[DocNode, ...] | None = field(default=None, repr=False)
    _stage: Stage | None = field(default=None, repr=False)

    def read(self, hits: Sequence[tuple[NodeKey, float]]) -> list[DocNode]:
        """The nodes of some of the hits, in their order, with the scores that are given."""
        if self.group:
            return self.snapshot.nodes(self.group, hits, self.embed_key)
        return self.inputs[0].read(hits)

    def nodes(self) -> tuple[DocNode, ...]:
        """All its nodes, best first."""
        if self._nodes is None:
            self._nodes = tuple(self.read(self.hits)) if self.hits else ()
        return self._nodes

    def cut(self, topk: int | None) -> LazyStage:
        """The best of them, as a stage of its own."""
        return self.followed("cut", "topk", topk, said={"topk": topk})

    def followed(self, kind: StageKind, name: str, topk: int | None = None, **more: Any) -> LazyStage:
        """A stage behind this one that gives its first nodes."""
        return LazyStage(kind, name, self.hits[:topk], self.snapshot, inputs=(self,), **more)

    def stage(self) -> Stage:
        """The record of this stage and of those before it, with all their nodes.

        It says why nodes are missing as long as the call goes on; a record that is kept for longer holds no state.
        """
        if self._stage is None:
            self._stage = self._recorded()
        return self._stage

    def _recorded(self) -> Stage:
        name, said, why = self.name, self.said, self.why
        if self.retriever is not None and self.query is not None:
            name, said = self.retriever.described(self)
            why = functools.partial(self.retriever.missing, self)
        if why is not None and self.query is not None:
            why = self.query.during_call(why)
        inputs = tuple(one.stage() for one in self.inputs)
        nodes = self.nodes()
        shares = self._node_shares(nodes)
        origins = self._origins(nodes)
        retriever = self.retriever.given if self.retriever is not None and not inputs else None
        return Stage(self.kind, name, nodes, inputs, shares, said, self.seconds, retriever, origins, why)

    def _node_shares(self, nodes: Sequence[DocNode]) -> Any:
        if not self.shares:
            return EMPTY
        # Several Documents may have nodes of one uid.
        several = bool(self.group) or len(self.snapshot.parts) > 1 or len({key[1] for key in self.shares}) > 1
        pairs = zip(nodes, self.hits, strict=True)
        return {(node if several else node.uid): self.shares[key] for node, (key, _) in pairs}

    def _origins(self, nodes: Sequence[DocNode]) -> dict[DocNode, tuple[DocNode, ...]]:  # noqa: ARG002
        return {}


class LoadedStage(LazyStage):
    """A stage whose nodes are at hand: what a function returned, what a step made.

    The score of a node without one is nan.
    """

    __slots__ = ("_led", "by_key")

    def __init__(
        self,
        kind: StageKind,
        name: str,
        nodes: Sequence[DocNode],
        snapshot: Snapshot,
        *,
        stage: Stage | None = None,
        origins: Mapping[DocNode, tuple[DocNode, ...]] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(kind, name, [], snapshot, **more)
        self._led = origins or {}
        self._nodes = tuple(nodes)
        self._stage = stage
        self.by_key: dict[NodeKey, DocNode] | None = None

    def read(self, hits: Sequence[tuple[NodeKey, float]]) -> list[DocNode]:
        """See `LazyStage.read`."""
        known = self.by_key or {}
        return [known[key].with_score(score) for key, score in hits]

    def keyed(self) -> LoadedStage:
        """The same with its hits, for a fusion."""
        if self.by_key is None:
            listed = [(_key(node, self.snapshot), node) for node in self.nodes()]
            self.by_key = dict(reversed(listed))  # of one node that comes twice, the first
            self.hits = [(key, math.nan if one.score is None else one.score) for key, one in listed]
        return self

    def _origins(self, nodes: Sequence[DocNode]) -> dict[DocNode, tuple[DocNode, ...]]:  # noqa: ARG002
        return dict(self._led)

    def followed(self, kind: StageKind, name: str, topk: int | None = None, **more: Any) -> LazyStage:
        """See `LazyStage.followed`."""
        return LoadedStage(kind, name, self.nodes()[:topk], self.snapshot, inputs=(self,), **more)


@dataclass(slots=True)
class FusedInput:
    """What a fusion takes of one stage.

    Args:
        ranked: The stage.
        hits: Its hits, with scores of which a higher one is better.
        own: By the key of a hit the stage's own key, where that is another one.
        stands_in: Whether some of its nodes belong to no Document and stand for a Document's.
    """

    ranked: LazyStage
    hits: Hits
    own: Mapping[NodeKey, NodeKey] = field(default_factory=dict)
    stands_in: bool = False

    @classmethod
    def of(cls, ranked: LazyStage, depth: int | None, *, descends: bool | None) -> FusedInput:
        """The first hits of a stage; their scores are nan where nobody knows whether a higher one is better."""
        hits = (ranked.keyed() if isinstance(ranked, LoadedStage) else ranked).hits
        if descends:
            return cls(ranked, hits if depth is None else hits[:depth])
        sign = math.nan if descends is None else -1.0
        return cls(ranked, [(key, sign * score) for key, score in hits[:depth]])

    def read(self, hits: Sequence[tuple[NodeKey, float]]) -> list[DocNode]:
        """See `LazyStage.read`."""
        own = self.own
        return self.ranked.read([(own.get(key, key), score) for key, score in hits] if own else hits)


class FusedStage(LazyStage):
    """A fusion of stages: its nodes are those of the first stage that found them."""

    __slots__ = ("_found",)

    def __init__(
        self, kind: StageKind, name: str, snapshot: Snapshot, found: Sequence[FusedInput], **more: Any
    ) -> None:
        super().__init__(kind, name, [], snapshot, **more)
        self._found = found

    def read(self, hits: Sequence[tuple[NodeKey, float]]) -> list[DocNode]:
        """See `LazyStage.read`."""
        missing = dict(hits)
        nodes: dict[NodeKey, DocNode] = {}
        for one in sorted(self._found, key=lambda one: one.stands_in):  # a Document's own nodes first
            own = [(key, missing.pop(key)) for key, _ in one.hits if key in missing]
            if own:
                nodes.update(zip((key for key, _ in own), one.read(own), strict=True))
        return [nodes[key] for key, _ in hits]

    def _origins(self, nodes: Sequence[DocNode]) -> dict[DocNode, tuple[DocNode, ...]]:
        """For a Document's nodes those outside of any that stood in for them."""
        fused = dict(zip((key for key, _ in self.hits), nodes, strict=True))
        found: dict[DocNode, tuple[DocNode, ...]] = {}
        for one in self._found:
            if one.stands_in and isinstance(one.ranked, LoadedStage) and one.ranked.by_key is not None:
                for key, own in one.own.items():
                    if own[1] == OUTSIDE and key in fused:
                        found[fused[key]] = (*found.get(fused[key], ()), one.ranked.by_key[own])
        return found


def inputs_of(stages: Sequence[LazyStage], descends: Sequence[bool | None], depth: int | None) -> list[FusedInput]:
    """What a fusion takes of some stages, each node under one key.

    An index of texts under the uids of a Document's nodes, such as spec 003's `BM25Retriever`, finds those nodes: what
    is outside of any Document is the node that has its uid, if one of the stages found that.
    """
    found = [FusedInput.of(one, depth, descends=up) for one, up in zip(stages, descends, strict=True)]
    if not any(isinstance(one, LoadedStage) for one in stages):
        return found
    known = _Keys(key for one in found for key, _ in one.hits)
    return [_under(one, known) for one in found]


class _Keys:
    """The one key of each node, among the keys of several stages."""

    def __init__(self, keys: Iterable[NodeKey]) -> None:
        self._first: dict[tuple[str, int], NodeKey] = {}
        self._owner: dict[str, int] = {}
        for key in keys:
            uid, part, _ = key
            self._first.setdefault((uid, part), key)
            if part != OUTSIDE:
                self._owner[uid] = min(part, self._owner.get(uid, part))

    def __getitem__(self, key: NodeKey) -> NodeKey:
        uid, part, _ = key
        return self._first[uid, self._owner.get(uid, OUTSIDE) if part == OUTSIDE else part]


def _under(one: FusedInput, known: _Keys) -> FusedInput:
    own = {new: key for key, _ in reversed(one.hits) if (new := known[key]) != key}
    if not own:
        return one
    stands_in = any(new[1] != OUTSIDE and key[1] == OUTSIDE for new, key in own.items())
    return FusedInput(one.ranked, [(known[key], score) for key, score in one.hits], own, stands_in)


def _key(node: DocNode, snapshot: Snapshot) -> NodeKey:
    part = snapshot.part_of(node)
    return node.uid, part, "" if part == OUTSIDE else node.segment.key


R = TypeVar("R")

_BY_SCORES = (weighted_shares, comb_mnz_shares, comb_max_shares)


@dataclass(frozen=True, slots=True)
class Fusing:
    """A fusion with its keywords.

    Args:
        fusion: A registered one.
        keywords: Passed to it.
    """

    fusion: Fusion
    keywords: Mapping[str, Any]

    @classmethod
    def checked(cls, name: str, keywords: Mapping[str, Any], also_known: Sequence[str]) -> Fusing:
        """A fusion by its name, with keywords that it takes.

        Args:
            name: Of a registered fusion.
            keywords: For the fusion.
            also_known: Keywords of the caller that a misspelt one may have meant.

        Raises:
            NotRegisteredError: If there is no such fusion.
            UnknownKeywordError: If it takes no such keyword.
        """
        fusion = fusions[name]
        fusion.check_kwargs(keywords, also_known)
        return cls(fusion, keywords)

    @property
    def takes_weights(self) -> bool:
        """Whether the fusion gives its rankings weights."""
        named, takes_any = keyword_names(self.fusion.func, skip=1)
        return takes_any or "weights" in named

    @property
    def reads_scores(self) -> bool:
        """Whether the fusion is a built-in one of scores; of others it is not known."""
        return self.fusion.func in _BY_SCORES

    def weighing(self, weights: Sequence[float] | None) -> Fusing:
        """The same with weights; None leaves them to the fusion."""
        return self if weights is None else replace(self, keywords={**self.keywords, "weights": weights})

    def cut_at(self, depth: int) -> Fusing:
        """The same for rankings that are cut at a depth, where the fusion minds."""
        return replace(self, keywords={**self.keywords, "depth": depth}) if _takes_depth(self.fusion.func) else self

    def asked(self, retrievers: Sequence[R]) -> list[R | None]:
        """The retrievers, None in the places of those that weigh 0: they are not asked, and stand for no ranking."""
        weights = self.keywords.get("weights") or [1.0] * len(retrievers)
        return [one if weight > 0 else None for one, weight in zip(retrievers, weights, strict=True)]

    def try_out(self, count: int) -> None:
        """Fuse as many empty rankings: keywords that make no sense are refused.

        Raises:
            ConfigError: If they do not.
        """
        self.fusion([[]] * count, **self.keywords)

    def check_directions(self, directions: Sequence[bool | None]) -> None:
        """Refuse a lowest score of 0 for a ranking in which a smaller score is better: turned round, all are below it.

        Args:
            directions: For each ranking whether a higher score is a better one; None: some of its nodes have it so.

        Raises:
            ConfigError: If such a ranking is to be normalised by ``"max"``, or ``"theoretical"`` with a bound >= 0.
        """
        if not self.reads_scores:
            return
        hows, lows = (_for_each(self.keywords.get(name), len(directions)) for name in ("normalise", "lowest"))
        for number, (up, how, low) in enumerate(zip(directions, hows, lows, strict=True)):
            if up is False and (how == "max" or (how == "theoretical" and low is not None and low >= 0)):
                msg = (
                    f"In the results of retriever {number + 1} a smaller score is better, so scores are turned round, "
                    f"and normalise={how!r} takes 0 for the lowest of them. Give normalise='min_max', or 'theoretical' "
                    "with lowest=-x, where x is the largest score that it can give."
                )
                raise ConfigError(msg)

    def fused(
        self,
        kind: StageKind,
        name: str,
        inputs: Sequence[LazyStage],
        descends: Sequence[bool | None],
        depth: int | None,
        snapshot: Snapshot,
        **said: Any,
    ) -> FusedStage:
        """What other stages ranked, as one ranking with what each of them adds to each score; no node is read.

        Args:
            kind: Of the stage.
            name: Of the stage.
            inputs: The stages that are fused.
            descends: For each of them whether a higher score is a better one; None where that cannot be told.
            depth: How many nodes of each of them are fused; None: all.
            snapshot: Of the read.
            said: Settings that the stage names beside those of the fusion.
        """
        begun = time.perf_counter()
        found = inputs_of(inputs, descends, depth)
        fused = FusedStage(kind, name, snapshot, found, inputs=tuple(inputs))
        fused.shares = self._shares(found)
        fused.hits = summed(fused.shares)
        fused.said = {**self.keywords, **({} if depth is None else {"depth": depth}), **said}
        fused.seconds = time.perf_counter() - begun
        return fused

    def fused_stages(self, name: str, stages: Sequence[Stage]) -> Stage:
        """The same of stages that are at hand, outside of any read; a higher score is a better one in all of them."""
        nowhere = UnionSnapshot(ActiveRead(None), ())
        given = [LoadedStage(one.kind, one.name, one.nodes, nowhere, stage=one) for one in stages]
        return self.fused("fusion", name, given, [True] * len(given), None, nowhere).stage()

    def _shares(self, found: Sequence[FusedInput]) -> dict[NodeKey, tuple[float, ...]]:
        try:
            return self.fusion.shares([one.hits for one in found], **self.keywords) if found else {}
        except (ConfigError, RetrievalError) as exc:
            if any(math.isnan(score) for one in found for _, score in one.hits):
                msg = (
                    f"A retriever gave nodes without scores, and the fusion {self.fusion.name!r} needs them; or with "
                    "scores of which nobody says whether a higher one is better. Give them scores with "
                    "node.with_score(...), say descends=... at your retriever or rescores=... at your step, or use "
                    "fusion_method='rrf', which reads ranks alone."
                )
                raise RetrievalError(msg) from exc
            raise


@functools.lru_cache(maxsize=64)  # a signature is slow to read
def _takes_depth(function: Callable[..., Any]) -> bool:
    return "depth" in keyword_names(function, skip=1)[0]


def _for_each(value: Any, count: int) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value] * count


def add_new(found: dict[tuple[str, int], DocNode], nodes: Sequence[DocNode], snapshot: Snapshot) -> None:
    """Put nodes behind others, but for those that are there, or for which one of a Document stands."""
    known = {uid for uid, part in found if part != OUTSIDE}
    for node in nodes:
        uid, part = node.uid, snapshot.part_of(node)
        if (uid, OUTSIDE) not in found and not (part == OUTSIDE and uid in known):
            found.setdefault((uid, part), node)


def apart(lists: Sequence[Sequence[DocNode]], snapshot: Snapshot) -> list[list[DocNode]]:
    """The lists, each node only in the one where it ranks best, of equal ones the first."""
    keys = [[_key(node, snapshot) for node in nodes] for nodes in lists]
    known = _Keys(key for some in keys for key in some)
    own = [[known[key] for key in some] for some in keys]
    best: dict[NodeKey, tuple[int, int]] = {}
    for number, some in enumerate(own):
        for rank, key in enumerate(some):
            best[key] = min(best.get(key, (rank, number)), (rank, number))
    return [
        [node for rank, (key, node) in enumerate(zip(some, nodes, strict=True)) if best[key] == (rank, number)]
        for number, (some, nodes) in enumerate(zip(own, lists, strict=True))
    ]


def check_weights(weights: Any, count: int) -> tuple[float, ...]:
    """Weights of retrievers.

    Args:
        weights: What was given.
        count: Of the retrievers.

    Raises:
        ConfigError: If they are not one number >= 0 for each, with a finite sum above 0.
    """
    given = weights.tolist() if hasattr(weights, "tolist") else weights  # numpy's arrays are no sequences
    listed = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else []
    if len(listed) != count or not all(map(is_weight, listed)) or not 0 < sum(map(float, listed)) < math.inf:
        msg = f"weights is {weights!r} for {count} retrievers; give one number >= 0 for each, not all 0."
        raise ConfigError(msg)
    return tuple(map(float, listed))


def is_weight(value: Any) -> TypeGuard[float]:
    """Whether a value is a number from 0 up, and finite."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 <= float(value) < math.inf


def descends(retriever: object) -> bool | None:
    """Whether a higher score of a retriever's nodes is a better one: yes, unless it says otherwise by ``descends``.

    None where that cannot be told: of a retriever whose nodes come from several that differ in it, or from functions
    that do not say whether the scores are theirs.
    """
    said = getattr(retriever, "descends", True)
    return None if said is None else bool(said)


def common_direction(retrievers: Iterable[object]) -> bool | None:
    """What `descends` says of all of them; None where they differ, or one cannot tell."""
    found = {descends(one) for one in retrievers}
    return found.pop() if len(found) == 1 else None
