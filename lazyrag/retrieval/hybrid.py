"""`HybridRetriever`: several retrievers asked at once, their rankings fused."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.result import RetrievalResult
from lazyrag.document.document import Document
from lazyrag.document.snapshot import Snapshot
from lazyrag.errors import ConfigError, LazyRAGError, RetrievalError, known_names
from lazyrag.models.concurrency import in_thread
from lazyrag.models.protocols import ChatModel
from lazyrag.ranking.scores import Weights
from lazyrag.retrieval.base import BaseRetriever, as_retriever, check_retrievers, hits_of, unasked
from lazyrag.retrieval.query_rewriting import QueryRewriter, same
from lazyrag.retrieval.retriever import Retriever
from lazyrag.retrieval.similarity import checked_towards, similarities
from lazyrag.retrieval.stages import (
    Fusing,
    LazyStage,
    LoadedStage,
    NodeRetriever,
    Query,
    Reason,
    Stage,
    add_new,
    apart,
    check_query,
    check_weights,
    common_direction,
    is_weight,
)
from lazyrag.validation import keyword_names, known_arguments, known_keywords, whole_number

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


@known_arguments
class FeedbackRetriever(BaseRetriever[list[DocNode]]):
    """Asks a retriever twice: the second time with the query's vector moved towards the best nodes of the first time.

    Where a question has many good answers, more of them are found: texts that say the same in other words. Where it has
    one, the first place may be lost to a neighbour of it, unless a reranker comes after; see docs/quality.md. The query
    is embedded once. What ranks by words or by sparse vectors is asked as it was.

    Args:
        retriever: A `Retriever` by embeddings, or a `HybridRetriever` with one in it.
        nodes: How many of the first nodes the query is moved towards, at least 1.
        weight: How far, see `Retriever.towards`.

    Raises:
        ConfigError: If the retriever's queries cannot be moved, or a value is out of its range.

    Source:
        See `lazyrag.retrieval.similarity.moved`.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> vectors = {"tea": [1.0, 0.0], "oolong": [0.8, 0.6], "pu-erh": [0.6, 0.8], "soup": [0.7, -0.7]}
        >>> docs = Document(embed=vectors.__getitem__)
        >>> _ = docs.add_texts({"a": "oolong", "b": "pu-erh", "c": "soup"})
        >>> retriever = Retriever(docs, "FineChunk")
        >>> [node.text for node in retriever("tea")]
        ['oolong', 'soup', 'pu-erh']
        >>> [node.text for node in FeedbackRetriever(retriever, nodes=1)("tea")]
        ['oolong', 'pu-erh', 'soup']
    """

    def __init__(self, retriever: NodeRetriever, *, nodes: int = 2, weight: float = 0.7) -> None:
        if isinstance(retriever, type) or not as_retriever(retriever).moves:
            msg = (
                f"FeedbackRetriever got {retriever!r:.80}, whose queries cannot be moved; give a Retriever by "
                "embeddings and without target=, or a HybridRetriever with one in it."
            )
            raise ConfigError(msg)
        self._combine(check_retrievers("FeedbackRetriever", [retriever]))
        self._nodes = whole_number("nodes", nodes, 1)
        _, self._weight = checked_towards([], weight, ())

    @property
    def descends(self) -> bool | None:
        """Whether a higher score of its nodes is a better one, as the retriever says."""
        return self.retrievers[0].descends

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """See `BaseRetriever.run`."""
        [retriever] = self.retrievers
        begun = time.perf_counter()
        first = () if query.is_blank else retriever.run(query.with_topk(self._nodes), snapshot).nodes()
        seconds = time.perf_counter() - begun
        found = retriever.run(query.moved_towards(first, self._weight), snapshot)
        said = {"towards": [node.uid for node in first], "weight": self._weight}
        return found.followed("step", "feedback", said=said, seconds=seconds)


# What `HybridRetriever.over` takes where nothing is said: one setting for all texts; docs/quality.md shows why.
OVER_SIMILARITY = "bm25_chinese"  # as good as "bm25" on English, and better on Chinese
OVER_FUSION = "weighted"
OVER_WEIGHTS: tuple[float, float] = (0.6, 0.4)
OVER_FUSION_KW: Mapping[str, Any] = {"normalise": "max"}
OVER_DEPTH: int | None = None

SPEC_WEIGHTS: tuple[float, float] = (0.7, 0.3)
"""Of a vector and a BM25 retriever under ``"weighted"``, where none are given (spec 003)."""

_FUSED_AT_LEAST = 50
_PARAMETERS = "fusion_method weights topk depth dedupe vector_retriever bm25_retriever".split()

WeightsLike: TypeAlias = "Weights | Sequence[float]"
Dedupe: TypeAlias = Literal["text"]


class HybridRetriever(BaseRetriever[list[DocNode]]):
    """Asks several retrievers and fuses what they find into one ranking (spec 003).

    What two retrievers find in different ways, by words and by meaning, they find together better than either alone.
    A node is known by its uid and Document: equal texts stay apart. All Documents are read in one state.

    Args:
        retrievers: One or more: `Retriever`, other hybrids, callables (query, filters=None, topk=None) -> nodes, best
            first. A text behind them is the ``fusion_method``, as in spec 003.
        fusion_method: Name of a registered fusion. ``"rrf"`` reads ranks alone; ``"weighted"`` adds scores, each
            retriever's brought to [0, 1] by min-max over what it found.
        weights: One number >= 0 for each retriever, or spec 004's `Weights` for a vector and a keyword retriever, in
            that order. In RRF a weight multiplies that retriever's 1 / (k + rank). A retriever of weight 0 is not
            asked. None: all count the same; but under ``"weighted"`` two retrievers get 0.7 and 0.3, as in spec 003.
        topk: At most so many nodes.
        depth: How many nodes of each retriever are fused; None: 4 x topk, and at least 50.
        dedupe: ``"text"``: of nodes with the same text only the best one. None: every node is one of its own.
        vector_retriever: The first retriever, by the name that spec 003 gives it.
        bm25_retriever: The last one, likewise.
        fusion_kw: Keywords of the fusion, such as ``k=60``.

    Raises:
        NotRegisteredError: If there is no such fusion.
        ConfigError: If there is no retriever, or an argument is out of its range, or does not go with the others.

    Example:
        >>> docs = Document()
        >>> _ = docs.add_texts({"a": "green tea", "b": "green salad", "c": "black coffee"})
        >>> by_words = Retriever(docs, "FineChunk", similarity="bm25")
        >>> by_letters = lambda query, filters=None, topk=None: [
        ...     node for node in docs.get_nodes("FineChunk") if query[0] == node.text[0]
        ... ]
        >>> [node.text for node in HybridRetriever(by_words, by_letters)("green tea")]
        ['green tea', 'green salad']
    """

    def __init__(
        self,
        *retrievers: NodeRetriever | str,
        fusion_method: str = "rrf",
        weights: WeightsLike | None = None,
        topk: int = 6,
        depth: int | None = None,
        dedupe: Dedupe | None = None,
        vector_retriever: NodeRetriever | None = None,
        bm25_retriever: NodeRetriever | None = None,
        **fusion_kw: Any,
    ) -> None:
        given: list[Any] = list(retrievers)
        if given and isinstance(given[-1], str):
            if fusion_method not in ("rrf", given[-1]):
                msg = f"HybridRetriever got two fusions, {given[-1]!r} and fusion_method={fusion_method!r}. Give one."
                raise ConfigError(msg)
            fusion_method = given.pop()
        given = [one for one in (vector_retriever, *given, bm25_retriever) if one is not None]
        self._combine(check_retrievers("HybridRetriever", given))
        self._fusing = Fusing.checked(fusion_method, fusion_kw, _PARAMETERS)
        self._topk = whole_number("topk", topk, 1)
        self._depth = None if depth is None else whole_number("depth", depth, 1)
        if dedupe not in (None, "text"):
            msg = f"dedupe is {dedupe!r}; give 'text', or None to keep every node."
            raise ConfigError(msg)
        self._dedupe = dedupe
        checked = self._checked_weights(weights)
        if checked is None and fusion_method == "weighted" and len(given) == 2:
            checked = SPEC_WEIGHTS
        self._fusing.weighing(checked).try_out(len(given))
        self._fusing.check_directions([one.descends for one in self.retrievers])
        self._weigh(checked)

    @classmethod
    def over(
        cls,
        doc: Document | Sequence[Document],
        group_name: str,
        topk: int = 6,
        *,
        similarity: str = OVER_SIMILARITY,
        embed_keys: Sequence[str] | None = None,
        fusion_method: str | None = None,
        weights: WeightsLike | None = None,
        depth: int | None = OVER_DEPTH,
        **fusion_kw: Any,
    ) -> HybridRetriever:
        """The usual pair for a Document with embeddings: by meaning, and by words.

        Args:
            doc: A Document, or several.
            group_name: The node group to search.
            topk: At most so many nodes.
            similarity: Of the retriever by words: ``"bm25_chinese"``, which finds English as ``"bm25"`` does, or
                another one.
            embed_keys: The embed keys to search by; None means all.
            fusion_method: Name of a fusion; None, with its weights and keywords: the one that measured best.
            weights: Of the retriever by meaning, and of that by words.
            depth: See `HybridRetriever`.
            fusion_kw: Keywords of the fusion.

        Raises:
            ConfigError: If a Document has no embeddings, or as the constructors raise it.
            NotRegisteredError: If a name is unknown.

        Example:
            >>> docs = Document(embed=lambda text: [float(len(text)), 1.0])
            >>> _ = docs.add_texts({"a": "green tea", "b": "black coffee"})
            >>> [node.text for node in HybridRetriever.over(docs, "FineChunk")("tea")]
            ['green tea', 'black coffee']
        """
        documents: list[Any] = list(doc) if isinstance(doc, (list, tuple)) else [doc]
        bare = [one for one in documents if isinstance(one, Document) and not one.embed_keys]
        if bare:
            msg = (
                f"HybridRetriever.over got {bare[0]!r}, which has no embed, so nothing can be found by meaning. Pass "
                f"Document(embed=...), or ask by words alone: Retriever(docs, {group_name!r}, {similarity!r})."
            )
            raise ConfigError(msg)
        if fusion_method is None:
            fusion_method, fusion_kw = OVER_FUSION, {**OVER_FUSION_KW, **fusion_kw}
            weights = OVER_WEIGHTS if weights is None else weights
        by_meaning = Retriever(documents, group_name, embed_keys=embed_keys)
        by_words = Retriever(documents, group_name, similarity)
        return cls(
            by_meaning, by_words, fusion_method=fusion_method, weights=weights, topk=topk, depth=depth, **fusion_kw
        )

    @known_keywords
    def __call__(
        self,
        query: str,
        filters: FilterLike | None = None,
        topk: int | None = None,
        *,
        weights: WeightsLike | None = None,
    ) -> list[DocNode]:
        """The best nodes for a query; see `BaseRetriever.__call__`.

        Args:
            query: A question or keywords. A blank one finds nothing.
            filters: For all retrievers.
            topk: Another bound for this call.
            weights: Others for this call.
        """
        return BaseRetriever.__call__(self._reweighted(weights), query, filters, topk)

    @known_keywords
    def trace(
        self,
        query: str,
        filters: FilterLike | None = None,
        topk: int | None = None,
        *,
        weights: WeightsLike | None = None,
    ) -> Stage:
        """The stages of a call with the same arguments, with every node that was ranked.

        One of weight 0 stands among them with no nodes, and says that it was not asked.
        """
        return BaseRetriever.trace(self._reweighted(weights), query, filters, topk)

    def prepare(self, query: Query) -> None:
        """See `BaseRetriever.prepare`."""
        for one in self._asked:
            if one is not None:
                one.prepare(query)

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """See `BaseRetriever.run`."""
        limit = self._limit(query)
        depth = max(_FUSED_AT_LEAST, 4 * limit) if self._depth is None else self._depth
        deep = query.with_topk(depth)
        inputs = (
            []
            if query.is_blank
            else [
                unasked(one, snapshot, "its weight is 0", "weight") if asked is None else one.ask(deep, snapshot)
                for one, asked in zip(self.retrievers, self._asked, strict=True)
            ]
        )
        fusing = self._weighing.cut_at(depth)
        directions = [one.descends for one in self.retrievers[: len(inputs)]]
        last: LazyStage = fusing.fused("fusion", fusing.fusion.name, inputs, directions, depth, snapshot)
        if self._dedupe is not None:
            nodes = _distinct(last.nodes())
            last = LoadedStage("step", "dedupe", nodes, snapshot, inputs=(last,), said={"by": self._dedupe})
        return last.cut(limit)

    async def search(
        self,
        query: str,
        top_k: int = 5,
        vector_weight: float | None = None,
        bm25_weight: float | None = None,
        *,
        filters: FilterLike | None = None,
    ) -> RetrievalResult[Any]:
        """The best nodes for a query as a result, in a thread, so that the event loop goes on (spec 003).

        Args:
            query: A question or keywords.
            top_k: At most so many hits.
            vector_weight: Of the first of two retrievers, for this call.
            bm25_weight: Of the second one. Left out, as the constructor says; one alone leaves 1 - it for the other.
            filters: For all retrievers.

        Raises:
            ConfigError: If weights are given and there are not two retrievers, or as a call raises it.
            RetrievalError: As a call raises it.

        Example:
            >>> import asyncio
            >>> docs = Document()
            >>> _ = docs.add_texts({"a": "green tea", "b": "black tea"})
            >>> english, chinese = (Retriever(docs, "FineChunk", name) for name in ("bm25", "bm25_chinese"))
            >>> hybrid = HybridRetriever(english, chinese)
            >>> [hit.text for hit in asyncio.run(hybrid.search("green tea", top_k=1, vector_weight=0.7))]
            ['green tea']
        """
        weights = self._pair(vector_weight, bm25_weight)

        def found() -> RetrievalResult[Any]:
            return RetrievalResult.from_hits(hits_of(self(query, filters, top_k, weights=weights)))

        return await in_thread(found)

    @property
    def moves(self) -> bool:
        """Whether `towards` makes a difference: it does where it does for one of the retrievers."""
        return any(one.moves for one in self.retrievers)

    def towards(self, nodes: Sequence[DocNode], weight: float = 0.7) -> HybridRetriever:
        """The same; those of the retrievers that can move a query towards nodes do; see `Retriever.towards`."""
        moved: list[Any] = [one.towards(nodes, weight) for one in self.retrievers]
        made = copy.copy(self)
        made._combine(moved)
        made._weigh(self._weights)
        return made

    def _reweighted(self, weights: WeightsLike | None) -> HybridRetriever:
        """The same by other weights."""
        if weights is None:
            return self
        made = copy.copy(self)
        made._weigh(self._checked_weights(weights))
        return made

    def _weigh(self, weights: tuple[float, ...] | None) -> None:
        """Take weights; a retriever of weight 0 is not asked, and nothing is built for it."""
        self._weights = weights
        self._weighing = self._fusing.weighing(weights)
        self._asked = self._weighing.asked(self.retrievers)
        self._read(one for one in self._asked if one is not None)

    def _checked_weights(self, weights: Any) -> tuple[float, ...] | None:
        if weights is None:
            return None
        if not self._fusing.takes_weights:
            msg = (
                f"The fusion {self._fusing.fusion.name!r} takes no weights, and weights is {weights!r}. Leave them out."
            )
            raise ConfigError(msg)
        if isinstance(weights, Weights):
            return self._pair(*weights.shares)
        return check_weights(weights, len(self.retrievers))

    def _pair(self, first: float | None, second: float | None) -> tuple[float, ...] | None:
        """The weights of a vector and a keyword retriever."""
        if first is None and second is None:
            return None
        if len(self.retrievers) != 2:
            msg = (
                f"Weights of a vector and a keyword retriever were given, and there are {len(self.retrievers)} "
                "retrievers. Give weights=[...], one number for each."
            )
            raise ConfigError(msg)
        given = first if second is None else second
        if first is None or second is None:
            if not is_weight(given) or given > 1:
                msg = f"One of two weights is {given!r}; give a number from 0 to 1, or both weights."
                raise ConfigError(msg)
            first, second = (given, 1 - given) if second is None else (1 - given, given)
        return self._checked_weights([first, second])


def _distinct(nodes: Sequence[DocNode]) -> list[DocNode]:
    """Of nodes with the same text the first."""
    first: dict[str, DocNode] = {}
    for node in nodes:
        first.setdefault(node.text, node)
    return list(first.values())


class RetrievalMethod(str, Enum):
    """A way of searching (spec 004).

    Example:
        >>> RetrievalMethod("hybrid_search") is RetrievalMethod.HYBRID_SEARCH
        True
        >>> RetrievalMethod.is_support_semantic_search("keyword_search")
        False
    """

    SEMANTIC_SEARCH = "semantic_search"
    """By embeddings."""
    FULL_TEXT_SEARCH = "full_text_search"
    """By BM25: rare words count more, and so do repeated ones and short texts."""
    HYBRID_SEARCH = "hybrid_search"
    """Both, fused."""
    KEYWORD_SEARCH = "keyword_search"
    """By the query's words that are there: each counts once, rare ones more, whatever the length of the text."""

    @staticmethod
    def is_support_semantic_search(retrieval_method: str) -> bool:
        """Whether a method searches by embeddings."""
        return retrieval_method in {RetrievalMethod.SEMANTIC_SEARCH.value, RetrievalMethod.HYBRID_SEARCH.value}

    @staticmethod
    def is_support_fulltext_search(retrieval_method: str) -> bool:
        """Whether a method searches the full text by BM25."""
        return retrieval_method in {RetrievalMethod.FULL_TEXT_SEARCH.value, RetrievalMethod.HYBRID_SEARCH.value}


@known_keywords
def retriever_for(
    method: RetrievalMethod | str,
    doc: Document | Sequence[Document],
    group_name: str,
    topk: int = 6,
    *,
    similarity: str = OVER_SIMILARITY,
) -> Retriever[list[DocNode]] | HybridRetriever:
    """The retriever of a method, for a Document.

    Args:
        method: A `RetrievalMethod`, or its value.
        doc: A Document, or several.
        group_name: The node group to search.
        topk: At most so many nodes.
        similarity: Of the search by words: ``"bm25_chinese"``, which finds English as ``"bm25"`` does, or another one.
            Without effect where a method searches by embeddings alone. ``"keyword_search"`` takes one of BM25.

    Raises:
        ConfigError: If the method is unknown, it needs embeddings and the Document has none, or the similarity is not
            one of words.
        NotRegisteredError: If the group or the similarity is unknown.

    Example:
        >>> docs = Document()
        >>> _ = docs.add_texts({"a": "green tea, tea and tea", "b": "green tea from Wuyi"})
        >>> [node.path for node in retriever_for("keyword_search", docs, "FineChunk")("tea from Wuyi")]
        ['b', 'a']
    """
    known = [one.value for one in RetrievalMethod]
    if method not in known:
        msg = f"The retrieval method is {method!r}. {known_names(str(method), known)}"
        raise ConfigError(msg)
    wanted = RetrievalMethod(method)
    if wanted is not RetrievalMethod.SEMANTIC_SEARCH:
        _check_of_words(wanted, similarity)
    if wanted is RetrievalMethod.HYBRID_SEARCH:
        return HybridRetriever.over(doc, group_name, topk, similarity=similarity)
    # With k1 = 0 BM25 adds up the idf of the terms that are there, whatever their number and the text's length.
    keywords: dict[str, Any] = {"k1": 0.0, "b": 0.0} if wanted is RetrievalMethod.KEYWORD_SEARCH else {}
    name = None if wanted is RetrievalMethod.SEMANTIC_SEARCH else similarity
    return Retriever(doc, group_name, name, topk=topk, **keywords)


def _check_of_words(method: RetrievalMethod, name: str) -> None:
    similarity = similarities[name]
    if similarity.mode != "text":
        msg = f"{method.value!r} searches by words, and the similarity {name!r} by embeddings. Give 'bm25_chinese'."
        raise ConfigError(msg)
    if method is RetrievalMethod.KEYWORD_SEARCH and not {"k1", "b"} <= {*keyword_names(similarity.func, skip=2)[0]}:
        msg = f"'keyword_search' is BM25 with k1=0, and the similarity {name!r} takes no k1 and b. Give 'bm25_chinese'."
        raise ConfigError(msg)


_MULTI_QUERY_PARAMETERS = "retriever rewrite n fusion_method topk depth".split()


class MultiQueryRetriever(BaseRetriever[list[DocNode]]):
    """Asks a retriever a question in several ways, and fuses what it finds into one ranking.

    The question itself is always asked, first. A rewriting that fails is an error: nothing is left out in silence.

    Args:
        retriever: Any retriever of nodes.
        rewrite: A callable from the question to a list of queries; a `ChatModel`, which then is asked for other
            wordings (see `QueryRewriter` for other tasks and prompts).
        n: At most so many queries beside the question.
        fusion_method: Name of a registered fusion.
        topk: At most so many nodes.
        depth: How many nodes of each query are fused; None: 4 x topk, and at least 50.
        fusion_kw: Keywords of the fusion, but no weights, nor lists of a value for each ranking: the number of queries
            varies.

    Raises:
        NotRegisteredError: If there is no such fusion.
        ConfigError: If another argument is out of its range, or of the wrong kind.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"a": "green tea", "b": "matcha", "c": "coffee"})
        >>> words = {"tea": ["matcha", "oolong"]}
        >>> retriever = MultiQueryRetriever(
        ...     Retriever(docs, "FineChunk", similarity="bm25"), lambda query: words.get(query, [])
        ... )
        >>> sorted(node.text for node in retriever("tea"))
        ['green tea', 'matcha']
    """

    def __init__(
        self,
        retriever: NodeRetriever,
        rewrite: ChatModel | Callable[[str], Sequence[str]],
        n: int = 3,
        *,
        fusion_method: str = "rrf",
        topk: int = 6,
        depth: int | None = None,
        **fusion_kw: Any,
    ) -> None:
        self._combine(check_retrievers("MultiQueryRetriever", [retriever]))
        [self._retriever] = self.retrievers
        self._n = whole_number("n", n, 1)
        self._rewrite: Callable[[str], Any] = QueryRewriter(rewrite, n=n) if isinstance(rewrite, ChatModel) else rewrite
        if not callable(self._rewrite):
            msg = f"rewrite is {rewrite!r:.80}; give a callable from a question to a list of queries, or a ChatModel."
            raise ConfigError(msg)
        if "weights" in fusion_kw:
            msg = "MultiQueryRetriever takes no weights: how many queries there are is known only when it is asked."
            raise ConfigError(msg)
        self._fusing = Fusing.checked(fusion_method, fusion_kw, _MULTI_QUERY_PARAMETERS)
        self._fusing.try_out(2)
        try:
            self._fusing.try_out(3)
        except LazyRAGError as exc:
            msg = (
                f"MultiQueryRetriever got {fusion_kw!r:.80}, which fits a certain number of queries, and that is known "
                "only when it is asked. Give values that hold for every query."
            )
            raise ConfigError(msg) from exc
        self._fusing.check_directions([self._retriever.descends])
        self._topk = whole_number("topk", topk, 1)
        self._depth = None if depth is None else whole_number("depth", depth, 1)

    def queries(self, query: str) -> list[str]:
        """What is asked for a question: itself, then at most ``n`` others, each once.

        Raises:
            ConfigError: If the question is no text.
            GenerationError: If a chat model fails.
            RetrievalError: If the rewriting raises, or returns something else than a list of texts.
        """
        if not check_query(query):
            return []
        try:
            given = self._rewrite(query)
        except LazyRAGError:
            raise
        except Exception as exc:
            msg = f"The rewriting raised {type(exc).__name__} for {query!r:.60}: {exc}"
            raise RetrievalError(msg) from exc
        if not isinstance(given, (list, tuple)) or not all(isinstance(one, str) for one in given):
            msg = f"The rewriting returned {given!r:.80} for {query!r:.60}; a list of texts is needed."
            raise RetrievalError(msg)
        asked = {same(query): query}
        for one in given:
            if one.strip():
                asked.setdefault(same(one), one)
        return list(asked.values())[: self._n + 1]

    def prepare(self, query: Query) -> None:
        """See `BaseRetriever.prepare`: rewrites the query."""
        for one in self._rewritten(query)[0]:
            self._retriever.prepare(query.with_text(one))

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """See `BaseRetriever.run`."""
        limit = self._limit(query)
        depth = max(_FUSED_AT_LEAST, 4 * limit) if self._depth is None else self._depth
        queries, seconds = self._rewritten(query)
        inputs = [self._retriever.ask(query.with_text(one).with_topk(depth), snapshot) for one in queries]
        directions = [self._retriever.descends] * len(inputs)
        fusing = self._fusing.cut_at(depth)
        fused = fusing.fused("queries", fusing.fusion.name, inputs, directions, depth, snapshot, queries=queries)
        fused.seconds += seconds
        return fused.cut(limit)

    def _rewritten(self, query: Query) -> tuple[list[str], float]:
        """What is asked for a question, worked out once a call, and how long that took."""
        key = id(self), query.text
        known: tuple[list[str], float] | None = query.memo.get(key)
        if known is None:
            begun = time.perf_counter()
            queries = self.queries(query.text)
            known = query.memo[key] = queries, time.perf_counter() - begun
        return known
