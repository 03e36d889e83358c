"""Retrievers that combine others: `HybridRetriever`, `FeedbackRetriever`."""

from __future__ import annotations

import copy
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeAlias

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.result import RetrievalResult
from lazyrag.errors import ConfigError, RetrievalError, warn_user
from lazyrag.ranking.fusion import (
    Fusion,
    Weights,
    comb_max_contributions,
    comb_mnz_contributions,
    fusions,
    rank_by_sum,
    validate_weights,
    weighted_contributions,
)
from lazyrag.read.scope import Documents
from lazyrag.read.snapshot import OUTSIDE, ActiveRead, Hits, NodeKey, Snapshot
from lazyrag.retrieval.base import (
    DEFAULT_TOPK,
    BaseRetriever,
    LazyStage,
    LoadedStage,
    Query,
    WrappingRetriever,
    check_retrievers,
    hits_of,
    skipped_stage,
)
from lazyrag.retrieval.retriever import Retriever, matched_share, validate_documents
from lazyrag.retrieval.similarity import similarities, validate_feedback
from lazyrag.retrieval.stages import NodeRetriever, Origins, Searchable, Stage, StageKind
from lazyrag.stores.protocol import BatchesSearches
from lazyrag.text.analyzers import composed_form
from lazyrag.text.scripts import FOREIGN_WORD, main_language
from lazyrag.types import DayLike, InferFilters, Keywords, Parts
from lazyrag.validation import (
    keyword_names,
    known_keywords,
    require,
    validate_choice,
    validate_integer,
    validate_range,
)

WeightsLike: TypeAlias = "Weights | Sequence[float]"
Dedupe: TypeAlias = Literal["text"]

# Defaults of `HybridRetriever.over`: one setting for all texts; docs/quality.md has the
# measurements.
OVER_SIMILARITY = "bm25_chinese"  # as good as "bm25" on English, and better on Chinese
OVER_FUSION = "weighted"
OVER_WEIGHTS: tuple[float, float] = (0.6, 0.4)
OVER_FUSION_KW: Keywords = {"normalise": "max"}
OVER_LEAST_DEPTH = 100

SPEC_WEIGHTS: tuple[float, float] = (0.7, 0.3)
"""Default weights of a vector and a BM25 retriever under ``"weighted"`` (spec 003)."""

LEAST_SHARE = 0.22
"""Of a query's terms that the best text must match where there are texts in other languages. Below
it, the answer is taken to be in one of them: vectors are compared across languages, and keyword
search is asked for names and numbers alone.
"""
LEAST_SHARES = {"th": 0.145}
"""The same for other languages: Thai words become several terms each."""
NAMES_WEIGHT = 1 / 8  # of the weight of keyword search

_ASCII_WORDS = re.compile("[0-9A-Za-z][!-~]*")

_OTHER = "Pass embed= a model of that language; explain() has the share of unknown letters."

_DISAGREEMENT = (
    "Hybrid search leaves the vectors out: they agree with the words of their texts no more than"
    " random ones. Is the model right, and its prefixes and pooling? Pass weights=[0.6, 0.4] to"
    " use them."
)

_PARAMETERS = "fusion_method weights topk depth dedupe vector_retriever bm25_retriever".split()


def _least_share(text: str) -> float:
    return LEAST_SHARES.get(main_language(text), LEAST_SHARE)


class HybridRetriever(BaseRetriever[list[DocNode]]):
    """Hybrid search: runs several retrievers and fuses their results into one ranking (spec 003).

    Keyword and vector search find more together than either alone. A node is identified by its uid
    and Document: equal texts stay apart. All Documents are read in one state.

    Args:
        retrievers: One or more: `Retriever`, other hybrids, callables (query, filters=None,
            topk=None) -> nodes, best first, or clients: objects with ``search(query, top_k)``,
            which may be asynchronous and returns nodes, hits, objects with id, text and score, or
            pairs (id, score) of texts that another retriever has: uids of its nodes, or ids of a
            `BM25Retriever` in memory. A text behind them is the ``fusion_method``, as in spec 003.
        fusion_method: Name of a registered fusion. ``"rrf"`` reads ranks alone; ``"weighted"`` adds
            scores, each retriever's brought to [0, 1] by min-max over its results.
        weights: One number >= 0 for each retriever, or spec 004's `Weights` for a vector and a
            keyword retriever, in that order. In RRF a weight multiplies that retriever's 1 / (k +
            rank). A retriever of weight 0 does not run. None: all count the same; but under
            ``"weighted"`` two retrievers get 0.7 and 0.3, as in spec 003.
        topk: At most so many nodes.
        depth: How many nodes of each retriever are fused; None: 4 x topk, and at least 50. Where
            you set neither, a retriever with a ``topk`` of its own gives so many.
        dedupe: ``"text"``: of nodes with the same text only the best one. None: all nodes.
        vector_retriever: The first retriever, under the name of spec 003.
        bm25_retriever: The last one, likewise.
        fusion_kw: Keywords of the fusion, such as ``k=60``.

    Raises:
        NotRegisteredError: If there is no such fusion.
        ConfigError: If there is no retriever, or an argument is out of its range, or does not go
            with the others.

    Example:
        >>> from lazyrag import Document
        >>> docs = Document()
        >>> _ = docs.add_texts({"a": "green tea", "b": "green salad", "c": "black coffee"})
        >>> by_words = Retriever(docs, "FineChunk", similarity="bm25")
        >>> by_letters = lambda query, filters=None, topk=None: [
        ...     node for node in docs.get_nodes("FineChunk") if query[0] == node.text[0]
        ... ]
        >>> [node.text for node in HybridRetriever(by_words, by_letters)("green tea")]
        ['green tea', 'green salad']
    """

    _default_pair: Sequence[Any] = ()  # the retrievers, where the weights are the default ones

    def __init__(
        self,
        *retrievers: NodeRetriever | Searchable | str,
        fusion_method: str = "rrf",
        weights: WeightsLike | None = None,
        topk: int = DEFAULT_TOPK,
        depth: int | None = None,
        dedupe: Dedupe | None = None,
        vector_retriever: NodeRetriever | Searchable | None = None,
        bm25_retriever: NodeRetriever | Searchable | None = None,
        **fusion_kw: Any,
    ) -> None:
        parts: list[Any] = list(retrievers)
        if parts and isinstance(parts[-1], str):
            if fusion_method not in ("rrf", parts[-1]):
                raise ConfigError(
                    f"Two fusions: {parts[-1]!r} and fusion_method={fusion_method!r}. Pass one."
                )
            fusion_method = parts.pop()
        parts = [part for part in (vector_retriever, *parts, bm25_retriever) if part is not None]
        self._set_retrievers(check_retrievers("HybridRetriever", parts))
        self._fusing = BoundFusion.checked(fusion_method, fusion_kw, _PARAMETERS)
        self._set_topk(topk)
        self._depth = None if depth is None else validate_integer("depth", depth, 1)
        require(dedupe in (None, "text"), "dedupe", dedupe, "'text' or None")
        self._dedupe = dedupe
        checked = self._checked_weights(weights)
        if checked is None and fusion_method == "weighted" and len(parts) == 2:
            checked = SPEC_WEIGHTS
        self._fusing.with_weights(checked).try_out(len(parts))
        self._fusing.check_directions([retriever.higher_is_better for retriever in self.retrievers])
        self._set_weights(checked)

    @classmethod
    def over(
        cls,
        doc: Documents,
        group_name: str,
        topk: int = 6,
        *,
        similarity: str = OVER_SIMILARITY,
        embed_keys: Sequence[str] | None = None,
        fusion_method: str | None = None,
        weights: WeightsLike | None = None,
        depth: int | None = None,
        **fusion_kw: Any,
    ) -> HybridRetriever:
        """The usual pair for a Document with embeddings: vector search and keyword search.

        Args:
            doc: A Document, or several.
            group_name: The node group to search.
            topk: At most so many nodes.
            similarity: Of the keyword search: ``"bm25_chinese"``, which finds English as ``"bm25"``
                does, or another.
            embed_keys: The embed keys to search by; None means all.
            fusion_method: Name of a fusion; None, with its weights and keywords: the one that
                measured best.
            weights: Of vector search and keyword search.
            depth: See `HybridRetriever`; here at least 100 by default.
            fusion_kw: Keywords of the fusion.

        Raises:
            ConfigError: If a Document has no embeddings, or as the constructors raise it.
            NotRegisteredError: If a name is unknown.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document(embed=lambda text: [float(len(text)), 1.0])
            >>> _ = docs.add_texts({"a": "green tea", "b": "black coffee"})
            >>> [node.text for node in HybridRetriever.over(docs, "FineChunk")("tea")]
            ['green tea', 'black coffee']
        """
        has_defaults = fusion_method is None and weights is None
        if fusion_method is None:
            fusion_method = OVER_FUSION
            fusion_kw = {**OVER_FUSION_KW, **fusion_kw}
            weights = OVER_WEIGHTS if weights is None else weights
        vector = Retriever(doc, group_name, embed_keys=embed_keys)
        keyword = Retriever(doc, group_name, similarity)
        hybrid = cls(
            vector,
            keyword,
            fusion_method=fusion_method,
            weights=weights,
            topk=topk,
            depth=depth,
            **fusion_kw,
        )
        hybrid._least_depth = OVER_LEAST_DEPTH
        hybrid._default_pair = (vector, keyword) if has_defaults else ()
        return hybrid

    @known_keywords
    def __call__(
        self,
        query: str,
        filters: FilterLike | None = None,
        topk: int | None = None,
        *,
        weights: WeightsLike | None = None,
    ) -> list[DocNode]:
        """Return the best nodes for a query; see `BaseRetriever.__call__`.

        Args:
            query: A question or keywords. A blank one finds nothing.
            filters: For all retrievers.
            topk: Another limit for this call.
            weights: Other weights for this call.
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
        """Return the stages of a call with the same arguments, with every node that was ranked.

        A retriever of weight 0 is among them without nodes.
        """
        return BaseRetriever.trace(self._reweighted(weights), query, filters, topk)

    def prepare(self, query: Query) -> None:
        """Prepare the retrievers that run, with a warning for those whose model cannot read the
        query.
        """
        left_out = self._left_out(query)
        for part in self.running:
            if part in left_out:
                warn_user(
                    f"Queries in a language that its model does not know skip {part!r}. {_OTHER}",
                    UserWarning,
                )
            else:
                part.prepare(query)

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """Run the retrievers and fuse their results. By default vectors that do not agree with the
        words of their texts have less weight, or none.
        """
        agreement = 1.0
        if self._default_pair:
            vector, keyword = self._default_pair
            agreement = vector.agreement(keyword, snapshot)
        if agreement == 1:
            return self._fused(query, snapshot)
        if agreement == 0:
            warn_user(_DISAGREEMENT, UserWarning)
        vector_weight, keyword_weight = OVER_WEIGHTS
        adapted = self._reweighted([vector_weight * agreement, keyword_weight])
        return adapted._fused(query, snapshot, agreement=agreement)

    def _fused(self, query: Query, snapshot: Snapshot, **settings: Any) -> LazyStage:
        limit = self._limit(query)
        depth = self._fused_depth(limit)
        inputs: list[LazyStage] = []
        fusing = self._weighted_fusing
        if not query.is_blank:
            left_out = self._left_out(query)
            if left_out and fusing.takes_weights:  # as if their weight were 0
                fusing = fusing.with_weights(
                    [0.0 if part in left_out else weight for part, weight in self._weighted()]
                )
            begun = time.perf_counter()
            is_batch = self._is_ranked_by_stores and not left_out
            with self._batch(query, snapshot, depth) if is_batch else nullcontext():
                batch_s = time.perf_counter() - begun
                for part, weight in self._weighted():
                    if part in left_out:
                        inputs.append(skipped_stage(part, snapshot, left_out[part]))
                    elif weight:
                        inputs.append(part.run_part(query, snapshot, depth))
                    else:
                        inputs.append(skipped_stage(part, snapshot, "its weight is 0", "weight"))
            inputs[0].seconds += batch_s
            language_analyser = "" if left_out else self._language_analyser(query, snapshot)
            if language_analyser and matched_share(inputs[1]) < _least_share(query.text):
                (vector, vector_weight), (keyword, weight) = self._weighted()
                across = replace(query, language_analyser=language_analyser)
                names = " ".join(_ASCII_WORDS.findall(composed_form(query.text)))
                inputs = [
                    vector.run_part(across, snapshot, depth),
                    keyword.run_part(replace(query, text=names), snapshot, depth),
                ]
                fusing = fusing.with_weights([vector_weight, weight * NAMES_WEIGHT])
        directions = [retriever.higher_is_better for retriever in self.retrievers[: len(inputs)]]
        last: LazyStage = fusing.fused("fusion", inputs, directions, depth, snapshot, **settings)
        if self._dedupe is not None:
            last = self._without_equal_texts(last, snapshot)
        return last.cut(limit)

    def _batch(
        self, query: Query, snapshot: Snapshot, depth: int
    ) -> AbstractContextManager[object]:
        """Within, a server answers the searches of the retrievers by one request, if it can."""
        store = snapshot.parts[0].indexer.nodes.vectors
        if not isinstance(store, BatchesSearches):
            return nullcontext()
        return store.batch_searches(
            partial(part.run_part, query, snapshot, depth) for part in self.running
        )

    def _language_analyser(self, query: Query, snapshot: Snapshot) -> str:
        """The analyser for a search across languages, or "". It needs a vector and a keyword
        retriever over one Document, ranked here.
        """
        pair = [part for part in self.retrievers if isinstance(part, Retriever)]
        is_pair = len(pair) == len(self.retrievers) == len(self.running) == 2
        is_english = query.text.isascii() and FOREIGN_WORD.search(query.text) is None
        if is_english or not is_pair or len(snapshot.parts) != 1:
            return ""
        vector, keyword = pair
        analyser = vector.language_analyser(keyword) if self._fusing.takes_weights else ""
        has_others = analyser and vector.has_other_languages(query, snapshot, analyser)
        return analyser if has_others else ""

    def _without_equal_texts(self, stage: LazyStage, snapshot: Snapshot) -> LazyStage:
        """Of nodes with the same text the best."""
        first = {node.text: node for node in reversed(stage.nodes())}
        nodes = [node for node in stage.nodes() if first[node.text] is node]
        return LoadedStage(
            "step", "dedupe", nodes, snapshot, inputs=(stage,), settings={"by": self._dedupe}
        )

    @known_keywords
    async def search(
        self,
        query: str,
        top_k: int = 5,
        vector_weight: float | None = None,
        bm25_weight: float | None = None,
        *,
        filters: FilterLike | None = None,
    ) -> RetrievalResult[Any]:
        """Search in a thread, so that the event loop stays responsive (spec 003).

        Args:
            query: A question or keywords.
            top_k: At most so many hits.
            vector_weight: Of the first of two retrievers, for this call.
            bm25_weight: Of the second one. By default as in the constructor; one alone leaves 1 -
                it for the other.
            filters: For all retrievers.

        Raises:
            ConfigError: If weights are given and there are not two retrievers, or as a call raises
                it.
            RetrievalError: As a call raises it.

        Example:
            >>> import asyncio
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"a": "green tea", "b": "black tea"})
            >>> english = Retriever(docs, "FineChunk", "bm25")
            >>> chinese = Retriever(docs, "FineChunk", "bm25_chinese")
            >>> hybrid = HybridRetriever(english, chinese)
            >>> search = hybrid.search("green tea", top_k=1, vector_weight=0.7)
            >>> [hit.text for hit in asyncio.run(search)]
            ['green tea']
        """
        from lazyrag.models.concurrency import in_thread

        weights = self._pair(vector_weight, bm25_weight)
        return await in_thread(
            lambda: RetrievalResult.from_hits(hits_of(self(query, filters, top_k, weights=weights)))
        )

    @property
    def supports_feedback(self) -> bool:
        """True if one of the retrievers supports it."""
        return any(retriever.supports_feedback for retriever in self.retrievers)

    def with_feedback(self, nodes: Sequence[DocNode], weight: float = 0.7) -> HybridRetriever:
        """Return a copy whose retrievers move the vectors of queries towards nodes; see
        `Retriever.with_feedback`.
        """
        retrievers: list[Any] = list(self.retrievers)
        clone = copy.copy(self)
        clone.retrievers = tuple(
            part.with_feedback(nodes, weight) if part.supports_feedback else part
            for part in retrievers
        )
        clone._set_weights(self._weights)
        return clone

    def _left_out(self, query: Query) -> dict[BaseRetriever[Any], str]:
        """The retrievers whose models cannot read a query, with the reason, where others can."""
        if query.text.isascii():
            return {}
        reasons = {part: part.unread(query) for part in self.running}
        if all(reasons.values()):
            return {}
        return {part: why for part, why in reasons.items() if why}

    def _reweighted(self, weights: WeightsLike | None) -> HybridRetriever:
        if weights is None:
            return self
        clone = copy.copy(self)
        clone._default_pair = ()
        clone._set_weights(self._checked_weights(weights))
        return clone

    def _set_weights(self, weights: tuple[float, ...] | None) -> None:
        """Set weights; a retriever of weight 0 does not run, and nothing is built for it."""
        self._weights = weights
        self._weighted_fusing = self._fusing.with_weights(weights)
        self._set_running(part for part, weight in self._weighted() if weight)
        self._is_ranked_by_stores = all(part.is_ranked_by_store for part in self.running)

    def _weighted(self) -> Iterator[tuple[BaseRetriever[Any], float]]:
        return zip(self.retrievers, self._weights or [1.0] * len(self.retrievers), strict=True)

    def _checked_weights(self, weights: Any) -> tuple[float, ...] | None:
        if weights is None:
            return None
        if not self._fusing.takes_weights:
            raise ConfigError(
                f"The fusion {self._fusing.fusion.name!r} takes no weights; got {weights!r}. Omit"
                " them."
            )
        if isinstance(weights, Weights):
            return self._pair(*weights.shares)
        return tuple(validate_weights(weights, len(self.retrievers), "retrievers"))

    def _pair(self, first: float | None, second: float | None) -> tuple[float, ...] | None:
        """The weights of a vector and a keyword retriever."""
        if first is None and second is None:
            return None
        if len(self.retrievers) != 2:
            raise ConfigError(
                f"These weights need two retrievers; there are {len(self.retrievers)}. Pass"
                " weights=[...]."
            )
        if second is None:
            second = 1 - _validate_share(first)
        elif first is None:
            first = 1 - _validate_share(second)
        return self._checked_weights([first, second])


def _validate_share(weight: Any) -> float:
    return validate_range("weight", weight, 0, 1)


@dataclass(slots=True)
class _FusedInput:
    """The part of a stage that is fused.

    Args:
        ranked: The stage.
        hits: Its hits, with scores of which a higher one is better; nan where the direction is
            unknown.
        original_keys: By the key of a hit the stage's own key, where that is another one.
        has_aliases: Whether some of its nodes belong to no Document and represent a Document's.
    """

    ranked: LazyStage
    hits: Hits
    original_keys: Mapping[NodeKey, NodeKey] = field(default_factory=dict)
    has_aliases: bool = False

    @classmethod
    def of(
        cls, ranked: LazyStage, depth: int | None, *, higher_is_better: bool | None
    ) -> _FusedInput:
        if isinstance(ranked, LoadedStage):
            ranked.set_hits()
        hits = ranked.hits[:depth]
        if not higher_is_better:
            sign = math.nan if higher_is_better is None else -1.0
            hits = [(key, sign * score) for key, score in hits]
        return cls(ranked, hits)

    def load(self, hits: Hits) -> list[DocNode]:
        original = self.original_keys
        return self.ranked.load(
            [(original.get(key, key), score) for key, score in hits] if original else hits
        )


class _FusedStage(LazyStage):
    """A fusion of stages: its nodes are those of the first stage that found them."""

    __slots__ = ("_sources",)

    def __init__(
        self,
        kind: StageKind,
        name: str,
        snapshot: Snapshot,
        sources: Sequence[_FusedInput],
        **more: Any,
    ) -> None:
        super().__init__(kind, name, [], snapshot, **more)
        self._sources = sources

    def load(self, hits: Hits) -> list[DocNode]:
        """See `LazyStage.load`."""
        group, *others = {source.ranked.group for source in self._sources}
        if group and not others:
            for part in self.snapshot.parts:
                part.preload(group, hits)
        missing = dict(hits)
        nodes: dict[NodeKey, DocNode] = {}
        # a Document's own nodes first
        for source in sorted(self._sources, key=lambda source: source.has_aliases):
            scores = {key: missing.pop(key) for key, _ in source.hits if key in missing}
            if scores:
                nodes.update(zip(scores, source.load(list(scores.items())), strict=True))
        return [nodes[key] for key, _ in hits]

    def _origins(self) -> Origins:
        """Map each Document node to the external nodes with the same uid."""
        keys = (key for key, _ in self.hits)
        fused = dict(zip(keys, self.nodes(), strict=True))
        origins: Origins = {}
        for source in self._sources:
            if source.has_aliases and isinstance(source.ranked, LoadedStage):
                for key, original in source.original_keys.items():
                    if original[1] == OUTSIDE and key in fused:
                        node = fused[key]
                        origins[node] = (*origins.get(node, ()), source.ranked.by_key[original])
        return origins


class _Keys:
    """The one key of each node, among the keys of several stages.

    An index of texts under the uids of a Document's nodes, such as spec 003's `BM25Retriever`,
    finds those nodes: a node outside of any Document is the node that has its uid, if one of the
    stages found that.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[str, int], NodeKey] = {}
        self._owner: dict[str, int] = {}

    def add(self, keys: Iterable[NodeKey]) -> None:
        for key in keys:
            uid, part, _ = key
            self._first.setdefault((uid, part), key)
            if part != OUTSIDE:
                self._owner[uid] = min(part, self._owner.get(uid, part))

    def __getitem__(self, key: NodeKey) -> NodeKey:
        uid, part, _ = key
        return self._first[uid, self._owner.get(uid, OUTSIDE) if part == OUTSIDE else part]

    def resolve(self, source: _FusedInput) -> None:
        """Replace the keys of a stage's hits by those of the nodes that they represent."""
        original = {}
        for key, _ in reversed(source.hits):
            if self[key] != key:
                original[self[key]] = key
        if original:
            source.original_keys = original
            source.has_aliases = any(
                new[1] != OUTSIDE and key[1] == OUTSIDE for new, key in original.items()
            )
            source.hits = [(self[key], score) for key, score in source.hits]


@dataclass(frozen=True, slots=True)
class BoundFusion:
    """A fusion with its keywords.

    Args:
        fusion: A registered fusion.
        keywords: Keywords of the fusion.
        takes_weights: Whether it takes weights.
        takes_depth: Whether it takes the number of nodes of each ranking.
    """

    fusion: Fusion
    keywords: Keywords
    takes_weights: bool
    takes_depth: bool

    @classmethod
    def checked(cls, name: str, keywords: Keywords, also_known: Sequence[str]) -> BoundFusion:
        """Find a fusion by name and check the names of its keywords.

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
        named, takes_any = keyword_names(fusion.func, skip=1)
        return cls(fusion, keywords, takes_any or "weights" in named, "depth" in named)

    @property
    def reads_scores(self) -> bool:
        """Whether the fusion is a built-in one of scores; of others it is unknown."""
        return self.fusion.func in (
            weighted_contributions,
            comb_mnz_contributions,
            comb_max_contributions,
        )

    def with_weights(self, weights: Sequence[float] | None) -> BoundFusion:
        """Return the fusion with weights; None leaves them to the fusion."""
        if weights is None:
            return self
        return replace(self, keywords={**self.keywords, "weights": weights})

    def try_out(self, count: int) -> None:
        """Fuse as many empty rankings, which raises a ConfigError for invalid keywords."""
        self.fusion([[]] * count, **self.keywords)

    def check_directions(self, directions: Sequence[bool | None]) -> None:
        """Refuse a lowest score of 0 for a ranking whose smaller scores are better: negated, all
        are below it.

        Args:
            directions: For each ranking whether a higher score is better; None: for some of its
                nodes.

        Raises:
            ConfigError: If such a ranking is to be normalised by ``"max"``, or ``"theoretical"``
                with a bound >= 0.
        """
        if not self.reads_scores:
            return
        hows = _for_each(self.keywords.get("normalise"), len(directions))
        lows = _for_each(self.keywords.get("lowest"), len(directions))
        for number, (up, how, low) in enumerate(zip(directions, hows, lows, strict=True), start=1):
            is_at_least_0 = how == "theoretical" and low is not None and low >= 0
            if up is False and (how == "max" or is_at_least_0):
                raise ConfigError(
                    f"Smaller scores of retriever {number} are better, so they are negated and 0 is"
                    f" not the lowest, as normalise={how!r} expects. Pass normalise='min_max', or"
                    " 'theoretical' with a lowest below 0."
                )

    def fused(
        self,
        kind: StageKind,
        inputs: Sequence[LazyStage],
        directions: Sequence[bool | None],
        depth: int | None,
        snapshot: Snapshot,
        **params: Any,
    ) -> LazyStage:
        """Fuse stages into one ranking with the contribution of each to each score. No node is
        loaded.

        Args:
            kind: Of the new stage.
            inputs: The stages to fuse.
            directions: For each of them whether a higher score is better; None where that is
                unknown.
            depth: How many nodes of each of them are fused; None: all.
            snapshot: Of the read.
            params: Settings that the stage names beside those of the fusion.
        """
        begun = time.perf_counter()
        sources = [
            _FusedInput.of(part, depth, higher_is_better=up)
            for part, up in zip(inputs, directions, strict=True)
        ]
        if any(isinstance(stage, LoadedStage) for stage in inputs):
            keys = _Keys()
            for source in sources:
                keys.add(key for key, _ in source.hits)
            for source in sources:
                keys.resolve(source)
        settings = {} if depth is None else {"depth": depth}
        fused = _FusedStage(kind, self.fusion.name, snapshot, sources, inputs=tuple(inputs))
        fused.contributions = self._contributions(sources, settings if self.takes_depth else {})
        fused.hits = rank_by_sum(fused.contributions)
        fused.settings = {**self.keywords, **settings, **params}
        fused.seconds = time.perf_counter() - begun
        return fused

    def fused_stages(self, stages: Sequence[Stage]) -> Stage:
        """Fuse recorded stages, outside of any read; a higher score is better in all of them."""
        nowhere = Snapshot(ActiveRead(None), ())
        inputs = [LoadedStage.of(stage, nowhere) for stage in stages]
        return self.fused("fusion", inputs, [True] * len(inputs), None, nowhere).record()

    def _contributions(
        self, sources: Sequence[_FusedInput], more: Keywords
    ) -> dict[NodeKey, tuple[float, ...]]:
        if not sources:
            return {}
        rankings = [source.hits for source in sources]
        try:
            return self.fusion.contributions(rankings, **{**self.keywords, **more})
        except (ConfigError, RetrievalError) as exc:
            if any(math.isnan(score) for _, score in chain.from_iterable(rankings)):
                raise RetrievalError(
                    f"The fusion {self.fusion.name!r} got nodes without scores of known direction."
                    " Return nodes with node.with_score(...). Set the attribute descends on your"
                    " retriever function, or rescores on your step, or use fusion_method='rrf'."
                ) from exc
            raise


def _for_each(value: Any, count: int) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value] * count


def default_retriever(
    doc: Documents,
    group_name: str,
    topk: int = DEFAULT_TOPK,
    **options: Any,
) -> BaseRetriever[list[DocNode]]:
    """Return hybrid search if all Documents have embeddings, else keyword search in Chinese and
    English, with the options of `refine_retriever`.

    It is the choice of `Document.search`, `RAGPipeline.over` and the command line.
    """
    retriever: BaseRetriever[list[DocNode]]
    if all(document.reader.embed_keys for document in validate_documents(doc)):
        retriever = HybridRetriever.over(doc, group_name, topk)
    else:
        retriever = Retriever(doc, group_name, OVER_SIMILARITY, topk=topk)
    return refine_retriever(retriever, **options)


def refine_retriever(
    retriever: BaseRetriever[list[DocNode]],
    *,
    infer_filters: InferFilters = True,
    parts: Parts = "auto",
    as_of: DayLike = None,
) -> BaseRetriever[list[DocNode]]:
    """Put documents first that the question names, see `FieldRetriever`, search parts of a question
    one by one, see `PartsRetriever`, and mark hits of older versions of a document, or search as of
    a day, see `AsOfRetriever`.
    """
    # for those that search
    from lazyrag.retrieval.dated import AsOfRetriever
    from lazyrag.retrieval.inferring import FieldRetriever
    from lazyrag.retrieval.parts import PartsRetriever

    if infer_filters is not False:
        retriever = FieldRetriever(retriever, () if infer_filters is True else infer_filters)
    if validate_choice("parts", parts, Parts) == "auto":
        retriever = PartsRetriever(retriever)
    return AsOfRetriever(retriever, as_of)


class FeedbackRetriever(WrappingRetriever):
    """Pseudo-relevance feedback: searches twice, the second time with the query moved towards the
    first results.

    Where a question has many good answers, this finds more of them: the same content in other
    words. Where it has one, a neighbour may take the first place, unless a reranker comes after;
    see docs/quality.md. The query is embedded once. Keyword search and sparse vectors do not
    change.

    Args:
        retriever: A `Retriever` by embeddings, or a `HybridRetriever` with one in it.
        nodes: Towards how many of the first nodes the query is moved, at least 1. One measured best
            without a reranker.
        weight: How far, see `Retriever.with_feedback`.

    Raises:
        ConfigError: If the retriever does not support feedback, or a value is out of its range.

    Source:
        See `lazyrag.retrieval.similarity.shift_query_vector`.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> vectors = {"tea": [1.0, 0.0], "oolong": [0.8, 0.6], "pu-erh": [0.6, 0.8]}
        >>> vectors["soup"] = [0.7, -0.7]
        >>> docs = Document(embed=vectors.__getitem__)
        >>> _ = docs.add_texts({"a": "oolong", "b": "pu-erh", "c": "soup"})
        >>> retriever = Retriever(docs, "FineChunk")
        >>> [node.text for node in retriever("tea")]
        ['oolong', 'soup', 'pu-erh']
        >>> [node.text for node in FeedbackRetriever(retriever, nodes=1)("tea")]
        ['oolong', 'pu-erh', 'soup']
    """

    def __init__(self, retriever: NodeRetriever, *, nodes: int = 1, weight: float = 0.7) -> None:
        super().__init__(retriever)
        expected = (
            "a Retriever by embeddings without target=, or a hybrid with one, so that queries"
            " can be moved"
        )
        supports = self.retrievers[0].supports_feedback
        require(supports, "FeedbackRetriever's retriever", retriever, expected)
        self._nodes = validate_integer("nodes", nodes, 1)
        _, self._weight = validate_feedback([], weight)

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """Run the retriever twice."""
        [retriever] = self.retrievers
        begun = time.perf_counter()
        first: tuple[DocNode, ...] = ()
        if not query.is_blank:
            first = retriever.run(query.with_topk(self._nodes), snapshot).nodes()
        seconds = time.perf_counter() - begun
        stage = retriever.run(replace(query, feedback=(first, self._weight)), snapshot)
        params = {"feedback": [node.uid for node in first], "weight": self._weight}
        return stage.then("step", "feedback", settings=params, seconds=seconds)


class RetrievalMethod(str, Enum):
    """A way of searching (spec 004).

    Example:
        >>> RetrievalMethod("hybrid_search") is RetrievalMethod.HYBRID_SEARCH
        True
        >>> RetrievalMethod.is_support_semantic_search("keyword_search")
        False
    """

    SEMANTIC_SEARCH = "semantic_search"
    """Vector search."""
    FULL_TEXT_SEARCH = "full_text_search"
    """BM25: rare words count more, and so do repeated ones and short texts."""
    HYBRID_SEARCH = "hybrid_search"
    """Both, fused."""
    KEYWORD_SEARCH = "keyword_search"
    """The query's words that occur: each counts once, rare ones more; the length of the text does
    not count."""

    @staticmethod
    def is_support_semantic_search(retrieval_method: str) -> bool:
        """Whether a method searches by embeddings."""
        return retrieval_method in (RetrievalMethod.SEMANTIC_SEARCH, RetrievalMethod.HYBRID_SEARCH)

    @staticmethod
    def is_support_fulltext_search(retrieval_method: str) -> bool:
        """Whether a method searches the full text by BM25."""
        return retrieval_method in (RetrievalMethod.FULL_TEXT_SEARCH, RetrievalMethod.HYBRID_SEARCH)


@known_keywords
def retriever_for(
    method: RetrievalMethod | str,
    doc: Documents,
    group_name: str,
    topk: int = 6,
    *,
    similarity: str = OVER_SIMILARITY,
) -> Retriever[list[DocNode]] | HybridRetriever:
    """Make the retriever of a method for a Document.

    Args:
        method: A `RetrievalMethod`, or its value.
        doc: A Document, or several.
        group_name: The node group to search.
        topk: At most so many nodes.
        similarity: Of the keyword search: ``"bm25_chinese"``, which finds English as ``"bm25"``
            does, or another one. Without effect on ``"semantic_search"``. ``"keyword_search"``
            takes one of BM25.

    Raises:
        ConfigError: If the method is unknown, it needs embeddings and the Document has none, or the
            similarity does not compare texts.
        NotRegisteredError: If the group or the similarity is unknown.

    Example:
        >>> from lazyrag import Document
        >>> docs = Document()
        >>> _ = docs.add_texts({"a": "green tea, tea and tea", "b": "green tea from Wuyi"})
        >>> retriever = retriever_for("keyword_search", docs, "FineChunk")
        >>> [node.path for node in retriever("tea from Wuyi")]
        ['b', 'a']
    """
    name = validate_choice("retrieval method", method, [member.value for member in RetrievalMethod])
    choice = RetrievalMethod(name)
    if choice is RetrievalMethod.SEMANTIC_SEARCH:
        return Retriever(doc, group_name, topk=topk)
    if similarities[similarity].mode != "text":
        raise ConfigError(
            f"{name!r} needs a similarity of texts; {similarity!r} has none. Pass 'bm25_chinese'."
        )
    if choice is RetrievalMethod.HYBRID_SEARCH:
        return HybridRetriever.over(doc, group_name, topk, similarity=similarity)
    if choice is RetrievalMethod.FULL_TEXT_SEARCH:
        return Retriever(doc, group_name, similarity, topk=topk)
    # With k1 = 0 BM25 adds up the idf of the terms that occur; neither their number nor the text's
    # length counts.
    return Retriever(doc, group_name, similarity, index="exact", topk=topk, k1=0.0, b=0.0)
