"""Results of several retrievers side by side: in proportion to weights, or by priority."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.document.snapshot import Snapshot
from lazyrag.errors import ConfigError, LazyRAGError, RetrievalError, known_names
from lazyrag.retrieval.base import BaseRetriever, check_retrievers, unasked
from lazyrag.retrieval.ranked import LazyStage, LoadedStage, Query, add_new, apart, check_weights, common_direction
from lazyrag.retrieval.stages import NodeRetriever, Reason
from lazyrag.validation import known_arguments, known_keywords, whole_number

Priority: TypeAlias = Literal["high", "normal", "low", "ignore"]
PRIORITIES: tuple[Priority, ...] = ("high", "normal", "low", "ignore")

Combine: TypeAlias = Callable[[list[list[DocNode]]], Sequence[DocNode]]
"""From the nodes that each retriever may give, in the retrievers' order, to the result."""


@known_arguments
class WeightedRetriever(BaseRetriever[list[DocNode]]):
    """Fills a result from several retrievers in proportion to their weights: so many places for each.

    Scores are not compared, so retrievers of any kind go together: one over FAQs, one over manuals. Where one finds
    fewer nodes than its places, the others fill them. A node that several find counts for the one that ranks it best.

    Args:
        retrievers: One or more retrievers of nodes.
        weights: One number >= 0 for each, not all 0; None: all the same. Places are shared out by largest remainder. A
            retriever of weight 0 is not asked.
        topk: At most so many nodes. None: all that the retrievers give by themselves.
        combine: Puts the lists together, instead of in turn: gets one for each retriever, in their order.

    Raises:
        ConfigError: If there is no retriever, or an argument is out of its range.

    Source:
        Largest remainder: Hamilton's method of apportionment.

    Example:
        >>> from lazyrag import DocNode
        >>> faq = lambda query, filters=None, topk=None: [DocNode(text=f"faq {n}", score=1 / n) for n in range(1, 9)]
        >>> manual = lambda query, filters=None, topk=None: [DocNode(text=f"manual {n}", score=9) for n in range(1, 9)]
        >>> [node.text for node in WeightedRetriever(faq, manual, weights=[2, 1], topk=6)("tea")]
        ['faq 1', 'manual 1', 'faq 2', 'faq 3', 'manual 2', 'faq 4']
    """

    def __init__(
        self,
        *retrievers: NodeRetriever,
        weights: Sequence[float] | None = None,
        topk: int | None = 6,
        combine: Combine | None = None,
    ) -> None:
        self._combine(check_retrievers("WeightedRetriever", retrievers))
        self._weigh(check_weights([1.0] * len(retrievers) if weights is None else weights, len(retrievers)))
        self._topk = None if topk is None else whole_number("topk", topk, 1)
        self._combination = _checked_combine(combine)

    @property
    def descends(self) -> bool | None:
        """Whether a higher score of its nodes is a better one; None where the retrievers differ in that."""
        return common_direction(self._asked())

    @known_keywords
    def __call__(
        self,
        query: str,
        filters: FilterLike | None = None,
        topk: int | None = None,
        *,
        weights: Sequence[float] | None = None,
        combine: Combine | None = None,
    ) -> list[DocNode]:
        """The best nodes of each retriever, as many as its weight allows; see `BaseRetriever.__call__`.

        Args:
            query: A question or keywords. A blank one finds nothing.
            filters: For all retrievers.
            topk: Another bound for this call.
            weights: Others for this call.
            combine: Another way to put the lists together, for this call.

        Returns:
            Nodes in turn, in proportion to the weights, each retriever's in its own order and with its own scores,
            which do not compare with those of another one.

        Raises:
            RetrievalError: If ``combine`` raises, or returns something else than nodes, or a node twice.
        """
        asked = self
        if weights is not None or combine is not None:
            asked = copy.copy(self)
            asked._combination = _checked_combine(combine) or self._combination
            asked._weigh(self._weights if weights is None else check_weights(weights, len(self.retrievers)))
        return BaseRetriever.__call__(asked, query, filters, topk)

    def prepare(self, query: Query) -> None:
        """See `BaseRetriever.prepare`."""
        for one in self._asked():
            one.prepare(query)

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """See `BaseRetriever.run`."""
        if query.is_blank:
            return _blank("weighted places", snapshot)
        limit = self._limit(query)
        deep = query.with_topk(limit)
        inputs = [one.ask(deep, snapshot) for one in self._asked()]
        begun = time.perf_counter()
        nodes = _filled([one.nodes() for one in inputs], self._weights, limit, self._combination, snapshot)
        said = {"weights": self._weights, "topk": limit}
        seconds = time.perf_counter() - begun
        left = [one for one, weight in zip(self.retrievers, self._weights, strict=True) if not weight]
        inputs += [unasked(one, snapshot, "its weight is 0", "weight") for one in left]
        return LoadedStage("step", "weighted places", nodes, snapshot, inputs=tuple(inputs), said=said, seconds=seconds)

    def _asked(self) -> list[BaseRetriever[Any]]:
        return [one for one, weight in zip(self.retrievers, self._weights, strict=True) if weight]

    def _weigh(self, weights: tuple[float, ...]) -> None:
        """Take weights; a retriever of weight 0 is not asked, and nothing is built for it."""
        self._weights = weights
        self._read(self._asked())


@known_arguments
class PriorityRetriever(BaseRetriever[list[DocNode]]):
    """Takes what the most important retriever finds, then what the next one does, until there is enough.

    A retriever is asked only if those before it found too little. Each gives its whole list, as long as it makes it by
    itself: give it a ``topk`` of its own.

    Args:
        retrievers: One or more retrievers of nodes.
        priorities: For each ``"high"``, ``"normal"``, ``"low"`` or ``"ignore"``: it is not asked. None: all normal.
            Those of one priority are asked in the order in which they are given.
        topk: At most so many nodes. None: all that the retrievers give.

    Raises:
        ConfigError: If there is no retriever, or an argument is out of its range.

    Example:
        >>> from lazyrag import DocNode
        >>> faq = lambda query, filters=None, topk=None: [DocNode(text="faq")] if "tea" in query else []
        >>> manual = lambda query, filters=None, topk=None: [DocNode(text="manual 1"), DocNode(text="manual 2")]
        >>> retriever = PriorityRetriever(manual, faq, priorities=["low", "high"], topk=2)
        >>> [node.text for node in retriever("tea")], [node.text for node in retriever("water")]
        (['faq', 'manual 1'], ['manual 1', 'manual 2'])
    """

    def __init__(
        self,
        *retrievers: NodeRetriever,
        priorities: Sequence[Priority] | None = None,
        topk: int | None = 6,
    ) -> None:
        self._combine(check_retrievers("PriorityRetriever", retrievers))
        self._priorities = self._checked_priorities(["normal"] * len(retrievers) if priorities is None else priorities)
        self._topk = None if topk is None else whole_number("topk", topk, 1)

    @property
    def descends(self) -> bool | None:
        """Whether a higher score of its nodes is a better one; None where the retrievers differ in that."""
        return common_direction(self._in_order())

    def prepare(self, query: Query) -> None:
        """See `BaseRetriever.prepare`: the retrievers behind the first one may never be asked."""
        for one in self._in_order()[:1]:
            one.prepare(query)

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """See `BaseRetriever.run`.

        Returns:
            Nodes, each once, each retriever's in its own order and with its own scores, which do not compare with those
            of another one.
        """
        if query.is_blank:
            return _blank("priority", snapshot)
        limit = self._limit(query)
        asked, whole = self._in_order(), query.with_topk(None)
        found: dict[tuple[str, int], DocNode] = {}
        inputs: list[LazyStage] = []
        for one in asked:
            if limit is None or len(found) < limit:
                inputs.append(one.ask(whole, snapshot))
                add_new(found, inputs[-1].nodes(), snapshot)
        nodes = list(found.values())[:limit]
        said = {"priorities": self._priorities, "topk": limit, "asked": len(inputs)}
        ignored = [one for level, one in zip(self._priorities, self.retrievers, strict=True) if level == "ignore"]
        inputs += [unasked(one, snapshot, "those before it gave enough") for one in asked[len(inputs) :]]
        inputs += [unasked(one, snapshot, "its priority is 'ignore'") for one in ignored]
        return LoadedStage("step", "priority", nodes, snapshot, inputs=tuple(inputs), said=said)

    def _in_order(self) -> list[BaseRetriever[Any]]:
        """The retrievers that may be asked, the most important first."""
        pairs = list(zip(self._priorities, self.retrievers, strict=True))
        return [retriever for level in PRIORITIES[:-1] for priority, retriever in pairs if priority == level]

    def _checked_priorities(self, priorities: Any) -> tuple[Priority, ...]:
        listed = list(priorities) if isinstance(priorities, Sequence) and not isinstance(priorities, str) else []
        if len(listed) != len(self.retrievers):
            msg = f"priorities is {priorities!r} for {len(self.retrievers)} retrievers; give one for each."
            raise ConfigError(msg)
        for one in listed:
            if one not in PRIORITIES:
                msg = f"A priority is {one!r}. {known_names(str(one), PRIORITIES)}"
                raise ConfigError(msg)
        return tuple(listed)


def places(seats: int, weights: Sequence[float]) -> list[int]:
    """Seats shared out in proportion to weights, by largest remainder; ties go to the first.

    Args:
        seats: How many there are, at least 0.
        weights: At least one, all > 0.

    Example:
        >>> places(10, [0.5, 0.3, 0.15])
        [5, 3, 2]
    """
    parts = [Fraction(weight) for weight in weights]  # floats would break ties by how they are rounded
    exact = [seats * part / sum(parts) for part in parts]
    whole = [int(one) for one in exact]
    by_rest = sorted(range(len(weights)), key=lambda index: (whole[index] - exact[index], index))
    for index in by_rest[: seats - sum(whole)]:
        whole[index] += 1
    return whole


def _blank(name: str, snapshot: Snapshot) -> LazyStage:
    """The stage of a blank query."""

    def why(uid: str) -> Reason:
        return Reason(uid, name, "The query is blank, and finds nothing.", cause="query")

    return LoadedStage("step", name, (), snapshot, why=why)


def _filled(
    gave: Iterable[Sequence[DocNode]],
    weights: Sequence[float],
    topk: int | None,
    combine: Combine | None,
    snapshot: Snapshot,
) -> list[DocNode]:
    """As many nodes of each list as it has places, put together; what weighs 0 was not asked and has an empty list."""
    given = iter(gave)
    own = apart([next(given)[:topk] if weight else [] for weight in weights], snapshot)
    quotas = [len(one) for one in own] if topk is None else _quotas([len(one) for one in own], weights, topk)
    taken = [one[:quota] for one, quota in zip(own, quotas, strict=True)]
    if combine is None:
        return _in_turn(taken)
    try:
        nodes: Any = combine(taken)
    except LazyRAGError:
        raise
    except Exception as exc:
        msg = f"combine raised {type(exc).__name__}: {exc}"
        raise RetrievalError(msg) from exc
    if not isinstance(nodes, (list, tuple)) or not all(isinstance(node, DocNode) for node in nodes):
        msg = f"combine returned {nodes!r:.80}; a list of nodes is needed, best first."
        raise RetrievalError(msg)
    keys = Counter((node.uid, snapshot.part_of(node)) for node in nodes)
    twice = [uid for (uid, _), count in keys.items() if count > 1]
    if twice:
        msg = f"combine returned the node {twice[0]!r} twice; each may stand in a result once."
        raise RetrievalError(msg)
    return list(nodes[:topk])


def _quotas(lengths: Sequence[int], weights: Sequence[float], topk: int) -> list[int]:
    """How many nodes of each list are taken; places that one cannot fill go to the others by their weights."""
    quotas = [0] * len(lengths)
    while True:
        open_ones = [index for index, weight in enumerate(weights) if weight > 0 and quotas[index] < lengths[index]]
        left = topk - sum(quotas)
        if not open_ones or left == 0:
            return quotas
        more = places(left, [weights[index] for index in open_ones])
        for index, seats in zip(open_ones, more, strict=True):
            quotas[index] = min(lengths[index], quotas[index] + seats)


def _in_turn(lists: Sequence[Sequence[DocNode]]) -> list[DocNode]:
    """Lists as one, each spread evenly over it, in the lists' order where two are due."""
    due = [
        ((rank + 0.5) / len(nodes), number, rank) for number, nodes in enumerate(lists) for rank in range(len(nodes))
    ]
    return [lists[number][rank] for _, number, rank in sorted(due)]


def _checked_combine(combine: Any) -> Combine | None:
    if combine is not None and not callable(combine):
        msg = f"combine is {combine!r:.80}; give a function from the retrievers' lists of nodes to one list."
        raise ConfigError(msg)
    checked: Combine | None = combine
    return checked
