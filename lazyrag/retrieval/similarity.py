"""Similarities and indexes: how the nodes of a group are ranked for a query."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias, overload

import numpy as np

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.errors import ConfigError, RetrievalError, TransformError, UnsupportedError
from lazyrag.indexes.bm25 import BM25, LexicalIndex, Variant
from lazyrag.models.embedding import UNREAD_SHARE, CheckedEmbedder, unknown_share
from lazyrag.read.nodes import SearchMode
from lazyrag.read.scope import Reader
from lazyrag.read.snapshot import Hits, Snapshot, keyed, merge_rankings
from lazyrag.registry import Registry
from lazyrag.retrieval.stages import validate_nodes
from lazyrag.text.analyzers import term_function
from lazyrag.types import (
    AnyCallable,
    Embedding,
    FloatArray,
    FunctionT,
    Keywords,
    Metric,
    Ranking,
    SparseVector,
    Vector,
)
from lazyrag.validation import (
    check_call,
    check_keywords,
    first_parameters,
    function_name,
    keyword_names,
    known_keywords,
    required_names,
    validate_choice,
    validate_range,
)

Mode: TypeAlias = Literal["text", "embedding"]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One search by a Retriever.

    Args:
        query: A text that is not blank.
        group: The node group to rank.
        snapshot: Of n Documents.
        filters: Narrow what is ranked.
        topk: How many nodes to return, at least 1.
        embed_key: The embed key to search by; None where texts are compared.
        vectors: The query's vector for each Document; () where texts are compared.
    """

    query: str
    group: str
    snapshot: Snapshot
    filters: FilterLike | None
    topk: int
    embed_key: str | None = None
    vectors: Sequence[Embedding] = ()


class Search(Protocol):
    """Ranks the nodes of a group."""

    def rank(self, request: SearchRequest) -> Hits:
        """Return the best nodes of all Documents, best first, ties by uid; at most the request's
        topk.
        """


class KeywordSearch:
    """Base of the searches by terms.

    Args:
        analyser: Name of the registered analyser.
    """

    def __init__(self, analyser: str) -> None:
        self.analyser = analyser
        term_function(analyser)  # raises for an unknown one

    def terms(self, query: str) -> list[str]:
        """Return the terms of a query; its stop words if it has no others."""
        try:
            terms = term_function(self.analyser, is_query=True)(query)
            return terms or term_function(self.analyser, stop_words=True)(query)
        except TransformError as exc:
            raise RetrievalError(str(exc)) from exc


class TermSearch(KeywordSearch):
    """BM25 on an index of terms; several Documents are ranked by common statistics.

    Args:
        analyser: Name of the registered analyser.
        k1: See `BM25`.
        b: See `BM25`.
        variant: See `BM25`.
    """

    def __init__(
        self, analyser: str, k1: float = 1.5, b: float = 0.75, variant: Variant = "lucene"
    ) -> None:
        super().__init__(analyser)
        self._model = BM25(k1, b, variant)

    def on_server(self, *, instead: bool = False) -> TextSearch:
        """The same search by the segment store.

        Args:
            instead: Whether this search ranks what the store cannot.

        Raises:
            ConfigError: If it has parameters of its own.
        """
        if self._model != BM25():
            raise ConfigError(
                "index='server' takes no k1, b or variant: a server has its own. Omit them, or pass"
                " index='exact'."
            )
        return TextSearch(self.analyser, self if instead else None)

    def rank(self, request: SearchRequest) -> Hits:
        """See `Search.rank`; only nodes that share a term with the query."""
        terms = self.terms(request.query)
        if not terms:
            return []
        return request.snapshot.rank_terms(
            request.group, self.analyser, terms, request.topk, request.filters, self._model
        )

    def matched_share(self, request: SearchRequest, score: float) -> float:
        """A score as a share of what a text could have that repeats each term of the query."""
        repeats = Counter(self.terms(request.query))
        statistics = request.snapshot.term_statistics(
            request.group, self.analyser, list(repeats), self._model
        )
        pairs = zip(statistics.idf(self._model), repeats.values(), strict=True)
        return score / math.fsum(idf * times for idf, times in pairs)


class TextSearch(KeywordSearch):
    """The segment store's own text ranking, by the terms of an analyser, of one Document.

    Args:
        analyser: Name of the registered analyser.
        instead: Ranks groups and filters that the store cannot, as groups of earlier releases.
    """

    def __init__(self, analyser: str, instead: TermSearch | None = None) -> None:
        super().__init__(analyser)
        self._instead = instead

    def rank(self, request: SearchRequest) -> Hits:
        """See `Search.rank`."""
        terms = self.terms(request.query)
        if not terms:
            return []
        [part] = request.snapshot.parts
        group = request.group
        try:
            return part.rank_text(group, self.analyser, terms, request.topk, request.filters)
        except UnsupportedError:
            if self._instead is None:
                raise
        part.state.unranked.add((group, self.analyser))
        return self._instead.rank(request)


@dataclass(frozen=True, slots=True)
class VectorSearch:
    """The vector store's own search.

    Args:
        metric: The metric that the vectors must have; None for any.
        mode: ``"exact"``; ``"approximate"``, for dense vectors, which may miss some of the nearest;
            or ``"native"``, as the store does it.
    """

    metric: Metric | None = None
    mode: SearchMode = "exact"

    def rank(self, request: SearchRequest) -> Hits:
        """See `Search.rank`; sparse vectors only of nodes that share a dimension with the query."""
        group = request.group
        embed_key = str(request.embed_key)
        self._check_metric(sorted(request.snapshot.metrics(group, embed_key)), embed_key)
        return request.snapshot.rank_vectors(
            group, embed_key, request.vectors, request.topk, request.filters, mode=self.mode
        )

    def _check_metric(self, metrics: Sequence[Metric], embed_key: str) -> None:
        if len(metrics) > 1:
            problem = (
                f"The embed key {embed_key!r} has dense vectors in one Document and sparse ones in"
                " another"
            )
            raise ConfigError(f"{problem}. Their scores do not compare. Use a Retriever for each.")
        if self.mode == "approximate" and "ip" in metrics:
            raise ConfigError(
                f"index='ann' needs dense vectors; the embed key {embed_key!r} has sparse ones. Use"
                " index='exact'."
            )
        if self.metric is not None and metrics not in ([], [self.metric]):
            kind, metric = ("sparse", "inner product") if metrics == ["ip"] else ("dense", "cosine")
            raise ConfigError(
                f"similarity={self.metric!r} does not fit the embed key {embed_key!r}, whose"
                f" vectors are {kind} and ranked by {metric}. Omit similarity, pass {metrics[0]!r},"
                " or choose others with embed_keys=[...]."
            )


@dataclass(frozen=True, slots=True)
class Similarity:
    """A registered similarity.

    Args:
        name: Its name.
        func: One of spec 001's four prototypes, by mode and batch.
        mode: ``"text"``: func gets the query as text; ``"embedding"``: as a list of floats, or as a
            dict from dimension to weight where vectors are sparse, and nodes that carry their
            vector as ``node.embedding``.
        descend: Whether a higher score is better.
        batch: Whether func gets all nodes and returns pairs (node, score), or one node and returns
            its score.
        search: For a similarity with an index: makes the search from its keywords. Then func
            documents the score and ranks nodes outside of a Document.
    """

    name: str
    func: AnyCallable
    mode: Mode
    descend: bool = True
    batch: bool = False
    search: Callable[..., Search] | None = None

    def make_search(self, kwargs: Keywords) -> Search:
        """Make the exact search: by the similarity's own index or, without one, node by node.

        Args:
            kwargs: Keywords of func, checked by `check_kwargs`.
        """
        return _FunctionSearch(self, kwargs) if self.search is None else self.search(**kwargs)

    def scored(
        self, query: str | list[float] | SparseVector, nodes: Sequence[DocNode], **kwargs: Any
    ) -> tuple[Sequence[DocNode], FloatArray]:
        """Score nodes by the function.

        Args:
            query: Text, or the query's vector, by mode.
            nodes: The nodes to score; in embedding mode each carries its vector.
            kwargs: Passed to the function.

        Returns:
            The n nodes that have a score, in no particular order, and their (n,) scores; a batch
            function may leave nodes out.

        Raises:
            RetrievalError: If the function raises, or returns something that its prototype does not
                allow.
        """
        func = self.func
        try:
            if self.batch:
                returned = func(query, list(nodes), **kwargs)
            else:
                values = [func(query, node, **kwargs) for node in nodes]
        except Exception as exc:
            raise RetrievalError(self._failure(exc)) from exc
        if not self.batch:
            return nodes, self._scores(values)
        pairs = returned if isinstance(returned, (list, tuple)) else [returned]
        return self._scored_subset(pairs, nodes)

    def _failure(self, exc: Exception) -> str:
        """The message for an exception of the function."""
        message = f"The similarity {self.name!r} raised {type(exc).__name__}: {exc}."
        if not isinstance(exc, (TypeError, AttributeError)):
            return message
        other = "embedding" if self.mode == "text" else "text"
        return (
            f"{message} It was called with {self._arguments}. Pass batch={not self.batch} or"
            f" mode={other!r} where it is registered, if it expects that."
        )

    def _scored_subset(
        self, pairs: Sequence[Any], nodes: Sequence[DocNode]
    ) -> tuple[list[DocNode], FloatArray]:
        """The nodes for which a batch function returned a score, in its order."""
        nodes_by_uid = {node.uid: node for node in nodes}
        by_uid = {}
        for pair in pairs:
            node, value = (
                pair if isinstance(pair, (list, tuple)) and len(pair) == 2 else (None, None)
            )
            uid = node.uid if isinstance(node, DocNode) else ""
            if uid not in nodes_by_uid or uid in by_uid:
                raise RetrievalError(
                    f"The similarity {self.name!r} returned {pair!r:.80}; called with"
                    f" {self._arguments}, it must return a list of pairs (node, score), each of the"
                    " given nodes at most once."
                )
            by_uid[uid] = value
        return [nodes_by_uid[uid] for uid in by_uid], self._scores(list(by_uid.values()))

    @property
    def _arguments(self) -> str:
        query = "a text" if self.mode == "text" else "a vector"
        nodes = "a list of nodes (batch=True)" if self.batch else "one node (batch=False)"
        return f"{query} (mode={self.mode!r}) and {nodes}"

    def is_worse(self, score: float, cut_off: float) -> bool:
        """Whether a score is worse than a cut-off; an equal one is not."""
        return score < cut_off if self.descend else score > cut_off

    def check_kwargs(self, kwargs: Keywords, also_known: Sequence[str] = ()) -> None:
        """Raise an UnknownKeywordError for a keyword that the function does not take or that looks
        misspelt.

        Args:
            kwargs: Keywords for the function.
            also_known: Keywords of the caller that a misspelt one may have meant.
        """
        check_keywords(
            f"The similarity {self.name!r}", self.func, kwargs, skip=2, also_known=also_known
        )

    def _scores(self, values: list[Any]) -> FloatArray:
        if {*map(type, values)} <= {float, int}:
            scores = np.array(values, np.float64)
            if not np.isnan(scores).any():
                return scores
        return np.array([self._score(value) for value in values], np.float64)

    def _score(self, value: Any) -> float:
        try:
            score = float(value)
        except (TypeError, ValueError):
            score = math.nan
        if math.isnan(score):
            msg = (
                f"The similarity {self.name!r} returned the score {value!r:.80}; it must be a"
                " number."
            )
            if isinstance(value, (list, tuple)) and not self.batch:
                msg = (
                    f"{msg} A function that returns pairs (node, score) is registered with"
                    " batch=True."
                )
            raise RetrievalError(msg)
        return score


class _FunctionSearch:
    """Scores every node of a group that matches the filters with a function."""

    def __init__(self, similarity: Similarity, kwargs: Keywords) -> None:
        self._similarity = similarity
        self._kwargs = kwargs
        named, _ = keyword_names(similarity.func, skip=2)
        self._takes_key = similarity.mode == "embedding" and "embed_key" in named

    def rank(self, request: SearchRequest) -> Hits:
        """See `Search.rank`."""
        parts = request.snapshot.parts
        for part in parts:
            if part.indexer.nodes.downloads_texts:
                part.indexer.nodes.require_few(part.size(request.group), request.group)
        descend = self._similarity.descend
        queries: list[Any] = [
            dict(vector) if isinstance(vector, dict) else vector.tolist()
            for vector in request.vectors
        ]
        if not queries:
            queries = [request.query] * len(parts)
        kwargs = dict(self._kwargs)
        if self._takes_key:
            kwargs["embed_key"] = request.embed_key
        rankings = []
        for part, query in zip(parts, queries, strict=True):
            nodes: list[DocNode] = []
            scores = [np.zeros(0)]
            for page in part.scan(request.group, request.filters, request.embed_key):
                page_nodes, page_scores = self._similarity.scored(query, page, **kwargs)
                nodes += page_nodes
                scores.append(page_scores)
            best = _best(nodes, np.concatenate(scores), request.topk, descend=descend)
            rankings.append(keyed(best, part.document_index))
        return merge_rankings(rankings, request.topk, descend=descend)


def _best(nodes: Sequence[DocNode], scores: FloatArray, topk: int, *, descend: bool) -> Ranking:
    """The topk best as a ranking: best first, ties by key."""
    sign = -1.0 if descend else 1.0
    rows = np.arange(len(nodes))
    if len(nodes) > topk:  # the keys of the others are not needed
        values = sign * scores
        rows = np.flatnonzero(values <= np.partition(values, topk - 1)[topk - 1])
    pairs = [
        (nodes[row].segment.key, score)
        for row, score in zip(rows.tolist(), scores[rows].tolist(), strict=True)
    ]
    return sorted(pairs, key=lambda pair: (sign * pair[1], pair[0]))[:topk]


similarities: Registry[Similarity] = Registry(
    "similarity", entry_point_group="lazyrag.similarities"
)


@overload
def register_similarity(
    func: FunctionT,
    mode: Mode | None = ...,
    descend: bool | None = ...,
    batch: bool | None = ...,
    *,
    name: str | None = ...,
    replace: bool = ...,
    decend: bool | None = ...,
) -> FunctionT: ...
@overload
def register_similarity(
    func: None = ...,
    mode: Mode | None = ...,
    descend: bool | None = ...,
    batch: bool | None = ...,
    *,
    name: str | None = ...,
    replace: bool = ...,
    decend: bool | None = ...,
) -> Callable[[FunctionT], FunctionT]: ...
@known_keywords
def register_similarity(
    func: FunctionT | None = None,
    mode: Mode | None = None,
    descend: bool | None = None,
    batch: bool | None = None,
    *,
    name: str | None = None,
    replace: bool = False,
    decend: bool | None = None,
) -> Any:
    """Register a similarity function (spec 001), as a call or as a decorator with or without
    arguments.

    The function is called with the query and the nodes by position, so its parameters may have any
    names::

        text, batch:        func(query: str, nodes: list[DocNode], **kw) -> list[tuple[DocNode,
        float]] text, single:       func(query: str, node: DocNode, **kw) -> float
        embedding, batch:   func(query: list[float], nodes: list[DocNode], **kw) ->
        list[tuple[DocNode, float]] embedding, single:  func(query: list[float], node: DocNode,
        **kw) -> float

    In embedding mode each node carries one vector, ``node.embedding``: that of the embed key of the
    search, which a parameter named ``embed_key`` receives. Where vectors are sparse, query and
    ``node.embedding`` are dicts from dimension to weight. A batch function gets the nodes in the
    documents' order, at least one and at most about 100,000 in one call.

    Args:
        func: The function; without one, a decorator is returned.
        mode: What the query is, and whether nodes carry vectors. By default ``"embedding"`` where
            the first parameter is annotated as a list of floats, else ``"text"``.
        descend: Whether a higher score is better; True by default.
        batch: Whether the function gets all nodes at once. By default where the second parameter is
            named ``nodes`` or annotated as a list.
        name: Its name; by default ``func.__name__``. A lambda needs one.
        replace: Whether to replace another similarity of this name.
        decend: Spec 001's spelling of ``descend``.

    Returns:
        The function, unchanged.

    Raises:
        ConfigError: If the mode is unknown, or func cannot be called with a query and nodes.
        AlreadyRegisteredError: If the name is taken.
        TypeError: If both spellings are given.

    Example:
        >>> @register_similarity(replace=True)
        ... def same_length(query: str, node: DocNode) -> float:
        ...     return -abs(len(query) - len(node.get_text()))
        >>> same_length("abc", DocNode(text="ab"))
        -1
    """
    if decend is not None:
        if descend is not None:
            raise TypeError(
                "register_similarity got descend and decend, two spellings of one parameter. Pass"
                " descend."
            )
        descend = decend
    if mode is not None:
        validate_choice("mode", mode, ("text", "embedding"))

    def register(function: FunctionT) -> FunctionT:
        label = function_name("register_similarity", function, name)
        similarity = make_similarity(label, function, mode, batch, descend=descend is not False)
        similarities.register(label, similarity, replace=replace)
        return function

    return register if func is None else register(func)


def make_similarity(
    name: str,
    func: AnyCallable,
    mode: Mode | None = None,
    batch: bool | None = None,
    *,
    descend: bool = True,
) -> Similarity:
    """A similarity of a function; for what is None see `register_similarity`.

    Raises:
        ConfigError: If the function cannot be called with a query and nodes.
    """
    more = dict.fromkeys(required_names(func, skip=2))  # similarity_kw gives them
    check_call(
        f"The similarity {name!r} cannot be called with (query, node)", func, "", None, **more
    )
    query, nodes = first_parameters(func, 2)
    if mode is None:
        mode = "embedding" if _FLOATS.search(query[1]) else "text"
    if batch is None:
        batch = takes_several(*nodes)
    return Similarity(name, func, mode, descend, batch)


def takes_several(parameter: str, annotation: str) -> bool:
    """Whether a user's function gets all nodes at once, by the parameter that receives them.

    Example:
        >>> takes_several("nodes", ""), takes_several("found", "List[DocNode]")
        (True, True)
    """
    return parameter == "nodes" or _SEVERAL.match(annotation) is not None


_FLOATS = re.compile(r"(?:list|sequence|ndarray)\[.*float|\bVector\b", re.IGNORECASE)
_SEVERAL = re.compile(r"(?:\w+\.)*(?:list|sequence|iterable)\[", re.IGNORECASE)


indexes: Registry[Callable[[Similarity, Keywords], Search]] = Registry(
    "index", entry_point_group="lazyrag.indexes"
)
"""From a similarity and its keywords to the search. ``"default"`` is ``"exact"``, except where
``store_conf`` leaves the ranking to a server.
"""


def approximate_index(similarity: Similarity, kwargs: Keywords) -> Search:
    """``"ann"``: approximate, by graphs over the vectors; faster than exact from some hundred
    thousand nodes on.
    """
    return _vector_search("ann", similarity, kwargs, "approximate")


def smart_embedding_index(similarity: Similarity, kwargs: Keywords) -> Search:
    """``"smart_embedding_index"``: the vector store's own search as it comes; exact in the ``map``
    store.

    Results and scores depend on the store; filters always apply.
    """
    return _vector_search("smart_embedding_index", similarity, kwargs, "native")


def _vector_search(
    index: str, similarity: Similarity, kwargs: Keywords, mode: SearchMode
) -> Search:
    search = similarity.make_search(kwargs)
    if not isinstance(search, VectorSearch):
        raise ConfigError(
            f"index={index!r} searches by embeddings; the similarity {similarity.name!r} does not."
            " Use similarity='cosine', or index='exact'."
        )
    return replace(search, mode=mode)


def server_index(similarity: Similarity, kwargs: Keywords) -> Search:
    """``"server"``, once ``"native"``: the store's own ranking of texts, or of vectors."""
    search = similarity.make_search(kwargs)
    if isinstance(search, TermSearch):
        return search.on_server()
    if isinstance(search, VectorSearch):
        return replace(search, mode="native")
    raise ConfigError(
        f"index='server' ranks by terms or vectors; the similarity {similarity.name!r} does not."
        " Use 'bm25', 'bm25_chinese' or 'cosine', or index='exact'."
    )


indexes.register("ann", approximate_index)
indexes.register("default", Similarity.make_search)
indexes.register("exact", Similarity.make_search)
indexes.register("native", server_index)
indexes.register("server", server_index)
indexes.register("smart_embedding_index", smart_embedding_index)


def default_search(search: Search, readers: Sequence[Reader]) -> Search:
    """The search of ``index="default"``: by the stores where ``store_conf`` leaves it to them.

    Args:
        search: The exact search.
        readers: Of the Documents.
    """
    stores = [reader.indexer.nodes for reader in readers]
    if isinstance(search, TermSearch) and any(store.ranks_text for store in stores):
        return search.on_server(instead=all(store.search is None for store in stores))
    if isinstance(search, VectorSearch) and any(store.ranks_vectors for store in stores):
        # else only exact stores may search, which the snapshot checks
        is_allowed = all(reader.allows_server(vectors=True) for reader in readers)
        return replace(search, mode="native") if is_allowed else search
    return search


def bm25(
    query: str,
    nodes: Sequence[DocNode],
    *,
    k1: float = 1.5,
    b: float = 0.75,
    variant: Variant = "lucene",
    analyser: str = "en",
) -> list[tuple[DocNode, float]]:
    """BM25 of nodes for an English query; Chinese in either is matched by characters and pairs of
    them.

    Args:
        query: A question or keywords.
        nodes: The nodes to score; terms are counted in these alone.
        k1: Saturation of term frequency, >= 0.
        b: Weight of text length, in [0, 1].
        variant: ``"lucene"`` or ``"okapi"``, see `lazyrag.indexes.bm25.BM25`.
        analyser: Name of the registered analyser that turns text into terms.

    Returns:
        Pairs (node, score) of the nodes that share a term with the query, best first, ties by uid.

    Source:
        See `lazyrag.indexes.bm25.BM25`.

    Example:
        >>> nodes = [DocNode(text="green tea"), DocNode(text="coffee")]
        >>> [node.text for node, _ in bm25("teas", nodes)]
        ['green tea']
    """
    if not nodes:
        return []
    terms_of = term_function(analyser, stop_words=True)
    by_uid = {node.uid: node for node in nodes}
    index = LexicalIndex()
    index.add(list(by_uid), [terms_of(node.get_text()) for node in by_uid.values()])
    terms = term_function(analyser, is_query=True)(query) or terms_of(query)
    hits = index.state.search(terms, len(by_uid), model=BM25(k1, b, variant))
    return [(by_uid[uid], score) for uid, score in hits]


def bm25_chinese(
    query: str,
    nodes: Sequence[DocNode],
    *,
    k1: float = 1.5,
    b: float = 0.75,
    variant: Variant = "lucene",
    analyser: str = "zh",
) -> list[tuple[DocNode, float]]:
    """BM25 of nodes for a Chinese query, by characters, pairs of neighbours and jieba's longer
    words; see `bm25`.

    Example:
        >>> [node.text for node, _ in bm25_chinese("茶", [DocNode(text="绿茶"), DocNode(text="咖啡")])]
        ['绿茶']
    """
    return bm25(query, nodes, k1=k1, b=b, variant=variant, analyser=analyser)


def cosine(query: list[float], node: DocNode) -> float:
    """Cosine of the angle between a query's vector and a node's: in [-1, 1], 0 if either has no
    length.

    Example:
        >>> embeddings = {"default": np.array([1, 0], np.float32)}
        >>> cosine([2.0, 0.0], DocNode(text="x", embeddings=embeddings))
        1.0
    """
    ours = _dense(query)
    second = _dense(node.embedding)
    lengths = math.sqrt(float(ours @ ours) * float(second @ second))
    return max(-1.0, min(1.0, float(ours @ second) / lengths)) if lengths else 0.0


def ip(query: list[float] | SparseVector, node: DocNode) -> float:
    """Inner product of a query's vector and a node's, both dense or both sparse.

    Of sparse ones only nodes are ranked that share a dimension with the query, also where the score
    is 0 or less.

    Example:
        >>> ip({3: 2.0, 9: 1.0}, DocNode(text="x", embeddings={"default": {3: 0.5, 7: 2.0}}))
        1.0
    """
    vector = node.embedding
    if not isinstance(query, dict) or not isinstance(vector, dict):
        return float(_dense(query) @ _dense(vector))
    score = 0.0
    # sum() need not add up as the index does
    for dimension in sorted(query.keys() & vector.keys()):
        score += query[dimension] * vector[dimension]
    return score


def nearest(query: list[float] | SparseVector, node: DocNode) -> float:
    """The score of ``similarity=None``: `cosine` where vectors are dense, `ip` where they are
    sparse.

    Example:
        >>> nearest({3: 2.0}, DocNode(text="x", embeddings={"default": {3: 0.5}}))
        1.0
    """
    return ip(query, node) if isinstance(query, dict) else cosine(query, node)


def _dense(vector: list[float] | Embedding) -> FloatArray:
    if isinstance(vector, dict):
        raise ConfigError(
            f"A dense vector is needed; got the sparse {vector!r:.60}. Compare two sparse ones"
            " by ip."
        )
    return np.asarray(vector, np.float64)


for _similarity in (
    Similarity("bm25", bm25, "text", batch=True, search=partial(TermSearch, analyser="en")),
    Similarity(
        "bm25_chinese", bm25_chinese, "text", batch=True, search=partial(TermSearch, analyser="zh")
    ),
    Similarity("cosine", cosine, "embedding", search=partial(VectorSearch, "cosine")),
    Similarity("ip", ip, "embedding", search=partial(VectorSearch, "ip")),
):
    similarities.register(_similarity.name, _similarity)
OWN_METRIC = Similarity("cosine or ip", nearest, "embedding", search=VectorSearch)
"""The metric of each collection, where no similarity is named."""


def query_vector(embedder: CheckedEmbedder, text: str, memo: dict[Any, Any]) -> Embedding:
    """Embed a query, once a call.

    Raises:
        EmbeddingError: If the query cannot be embedded.
    """
    # the retriever references the embedder, so the id is unique
    key = id(embedder.user_object), text
    vector: Embedding | None = memo.get(key)
    if vector is None:
        vector = memo[key] = embedder.embed([text], input_type="query")[0]
    return vector


def unread(embedder: CheckedEmbedder, text: str, memo: dict[Any, Any]) -> str:
    """Say why a model cannot read a query, as half a sentence; "" if it can, or does not tell."""
    key = "unread", id(embedder.user_object), text
    if key not in memo:
        share = unknown_share(embedder.embedder, text) or 0.0
        message = (
            f"the model of embed key {embedder.key!r} does not know {share:.0%} of the query's"
            " letters"
        )
        memo[key] = message if share >= UNREAD_SHARE else ""
    return str(memo[key])


def feedback_vector(
    plain: Embedding,
    embedder: CheckedEmbedder,
    embed_key: str,
    nodes: Sequence[DocNode],
    weight: float,
) -> Embedding:
    """Move a query's vector towards nodes of the same embedding model. A sparse vector is not
    moved.
    """
    if isinstance(plain, dict):
        return plain
    alike = [node for node in nodes if _embeds_alike(node, embedder, embed_key)]
    vectors = [node.embeddings.get(embed_key) for node in alike]
    dense = [vector for vector in vectors if isinstance(vector, np.ndarray)]
    return shift_query_vector(plain, dense, weight)


def shift_query_vector(vector: Vector, vectors: Sequence[Vector], weight: float) -> Vector:
    """Move a query's vector towards those of nodes.

    Its direction becomes that of q + weight x m, where q is the query's vector brought to length 1,
    and m is the mean of the nodes' vectors, each brought to length 1 before and the mean after. Its
    length stays.

    Args:
        vector: (dim,) float32.
        vectors: n arrays of the same shape; none leaves the vector as it is, as does what has no
            direction.
        weight: At least 0.

    Returns:
        (dim,) float32.

    Source:
        Rocchio: Relevance Feedback in Information Retrieval, 1971; over embeddings: Li and others:
        Pseudo Relevance Feedback with Deep Language Models and Dense Retrievers, TOIS 2023,
        doi:10.1145/3570724.

    Example:
        >>> query, hit = np.array([[5.0, 0.0], [0.0, 3.0]], np.float32)
        >>> shift_query_vector(query, [hit], 0.75).tolist()
        [4.0, 3.0]
    """
    if not vectors or weight == 0:
        return vector
    mean = _unit(np.mean([_unit(vector.astype(np.float64)) for vector in vectors], axis=0))
    plain = vector.astype(np.float64)
    direction = _unit(_unit(plain) + weight * mean)
    if not direction.any():
        return vector
    return (float(np.linalg.norm(plain)) * direction).astype(np.float32)


def _embeds_alike(node: DocNode, embedder: CheckedEmbedder, embed_key: str) -> bool:
    """Whether a node's Document uses the same embedding model; vectors of another model do not
    compare.
    """
    if not isinstance(node.reader, Reader):
        return False
    [other] = node.reader.embedders([embed_key])
    identity = embedder.embedder.identity
    return other.user_object is embedder.user_object or (
        identity != "" and other.embedder.identity == identity
    )


def _unit(vector: FloatArray) -> FloatArray:
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector


def validate_feedback(nodes: Any, weight: Any) -> tuple[list[DocNode], float]:
    """Validate the nodes that a query's vector is moved towards, and how far.

    Raises:
        ConfigError: If these are no nodes, or the weight is below 0 or not finite.
    """
    listed = validate_nodes(nodes, "Pass the result of a retriever.")
    expected = "a finite number >= 0"
    weight = validate_range("weight", weight, 0, expected=expected)
    return listed, weight
