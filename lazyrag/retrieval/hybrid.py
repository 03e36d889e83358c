"""`HybridRetriever`: several retrievers asked at once, their rankings fused."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.result import RetrievalResult
from lazyrag.document.document import Document
from lazyrag.document.snapshot import Snapshot
from lazyrag.errors import ConfigError
from lazyrag.models.threads import in_thread
from lazyrag.ranking.scores import Weights
from lazyrag.retrieval.base import BaseRetriever, check_retrievers, unasked
from lazyrag.retrieval.output import hits_of
from lazyrag.retrieval.ranked import Fusing, LazyStage, LoadedStage, Query, check_weights, is_weight
from lazyrag.retrieval.retriever import Retriever
from lazyrag.retrieval.stages import NodeRetriever, Stage
from lazyrag.validation import known_keywords, whole_number

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
