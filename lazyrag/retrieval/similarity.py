"""Similarities: named functions from a query and nodes to scores."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, overload

import numpy as np

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.document.nodes import SearchMode
from lazyrag.document.reader import Reader
from lazyrag.document.snapshot import Hits, Snapshot, keyed, merged
from lazyrag.errors import ConfigError, RetrievalError, TransformError, known_names, warn_user
from lazyrag.indexes.bm25 import BM25, LexicalIndex, Variant
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.registry import Registry
from lazyrag.retrieval.stages import Query
from lazyrag.text.analyzers import term_function
from lazyrag.types import Embedding, Metric, Ranking, SparseVector, Vector
from lazyrag.validation import check_keywords, function_name, keyword_names, known_keywords

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What a Retriever asks of a search.

    Args:
        query: A text that is not blank.
        group: The node group to rank.
        snapshot: Of n Documents.
        filters: As they were given.
        topk: How many nodes are wanted, at least 1.
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
        """The best nodes of all Documents, best first, ties by uid; at most the request's topk."""


class TermSearch:
    """BM25 on an index over terms; several Documents are ranked by common statistics.

    Args:
        analyser: Name of the registered analyser.
        k1: See `BM25`.
        b: See `BM25`.
        variant: See `BM25`.

    Raises:
        NotRegisteredError: If there is no such analyser.
        ConfigError: If a parameter of BM25 is out of its range.
    """

    def __init__(self, analyser: str, k1: float = 1.5, b: float = 0.75, variant: Variant = "lucene") -> None:
        self.analyser = analyser
        self._terms_of = term_function(analyser)
        self._model = BM25(k1, b, variant)

    def terms(self, query: str) -> list[str]:
        """The terms that are looked for.

        Raises:
            RetrievalError: If the analyser fails.
        """
        return _terms(self._terms_of, query)

    def rank(self, request: SearchRequest) -> Hits:
        """See `Search.rank`; only nodes that share a term with the query."""
        terms = self.terms(request.query)
        if not terms:
            return []
        return request.snapshot.rank_terms(
            request.group, self.analyser, terms, request.topk, request.filters, self._model
        )


@dataclass(frozen=True, slots=True)
class TextSearch:
    """The segment store's own ranking of texts, by the terms of an analyser.

    Args:
        analyser: Name of the registered analyser.
    """

    analyser: str

    def terms(self, query: str) -> list[str]:
        """The terms that are looked for.

        Raises:
            RetrievalError: If the analyser fails.
        """
        return _terms(term_function(self.analyser), query)

    def rank(self, request: SearchRequest) -> Hits:
        """See `Search.rank`.

        Raises:
            ConfigError: If several Documents are asked: their scores do not compare.
            UnsupportedError: If the segment store does not rank by text, or has no terms of the analyser.
        """
        parts = request.snapshot.parts
        if len(parts) > 1:
            msg = (
                f"index='native' was asked for over {len(parts)} Documents; a server ranks each by its own "
                "statistics, so that scores do not compare. Ask one Document, or use index='default'."
            )
            raise ConfigError(msg)
        terms = self.terms(request.query)
        if not terms:
            return []
        return parts[0].rank_text(request.group, self.analyser, terms, request.topk, request.filters)


@dataclass(frozen=True, slots=True)
class VectorSearch:
    """The vector store's own search.

    Args:
        metric: What the vectors must be ranked by; None for whatever they are.
        mode: Exactly; approximately, by the one that may miss some of the nearest, dense vectors only; or natively, as
            the store finds them.
    """

    metric: Metric | None = None
    mode: SearchMode = "exact"

    def rank(self, request: SearchRequest) -> Hits:
        """See `Search.rank`; sparse vectors only of nodes that share a dimension with the query.

        Raises:
            ConfigError: If the vectors are ranked by another metric, or those of several Documents by two.
            UnsupportedError: If a vector store has no approximate search.
            MissingDependencyError: If that needs a package which is not installed.
        """
        group, embed_key = request.group, str(request.embed_key)
        found = sorted(request.snapshot.metrics(group, embed_key))
        self._check_metric(found, embed_key)
        return request.snapshot.rank_vectors(
            group, embed_key, request.vectors, request.topk, request.filters, mode=self.mode
        )

    def _check_metric(self, found: Sequence[Metric], embed_key: str) -> None:
        if len(found) > 1:
            msg = (
                f"Under the embed key {embed_key!r} the vectors of one Document are dense and those of another are "
                "sparse. Their scores do not compare. Ask each by a Retriever of its own."
            )
            raise ConfigError(msg)
        if self.mode == "approximate" and "ip" in found:
            msg = (
                f"index='ann' searches dense vectors, and those under the embed key {embed_key!r} are sparse. "
                "Use index='default', which is fast for them at any size."
            )
            raise ConfigError(msg)
        if self.metric is not None and found not in ([], [self.metric]):
            kind, told = ("sparse", "inner product") if found == ["ip"] else ("dense", "cosine")
            msg = (
                f"similarity={self.metric!r} was asked for, and the vectors under the embed key {embed_key!r} are "
                f"{kind}: they are ranked by {told}. Leave similarity out, give similarity={found[0]!r}, or choose "
                "other keys with embed_keys=[...]."
            )
            raise ConfigError(msg)


def _terms(terms_of: Callable[[str], list[str]], query: str) -> list[str]:
    try:
        return terms_of(query)
    except TransformError as exc:
        raise RetrievalError(str(exc)) from exc


def embedded(embedder: CheckedEmbedder, query: Query) -> Embedding:
    """The vector of a query, computed once a call.

    Raises:
        EmbeddingError: If the query cannot be embedded.
    """
    key = id(embedder.given), query.text  # the retriever holds the embedder, so its id stays its own
    plain: Embedding | None = query.memo.get(key)
    if plain is None:
        plain = query.memo[key] = embedder.embed([query.text], input_type="query")[0]
    return plain


def query_vector(
    embedder: CheckedEmbedder, embed_key: str, query: Query, towards: tuple[Sequence[DocNode], float]
) -> Embedding:
    """The vector of a query under an embed key: embedded once a call; a sparse one is never moved.

    Args:
        embedder: Embeds the query.
        embed_key: The embed key.
        query: The query, which remembers its vector.
        towards: Nodes that the vector is moved towards, and how far.

    Raises:
        EmbeddingError: If the query cannot be embedded.
    """
    plain = embedded(embedder, query)
    nodes, weight = towards
    if not nodes or isinstance(plain, dict):
        return plain
    theirs = [vector_of(node, embed_key) for node in nodes if _embeds_alike(node, embedder, embed_key)]
    return moved(plain, [one for one in theirs if one is not None], weight)


def moved(vector: Vector, towards: Sequence[Vector], weight: float) -> Vector:
    """A query's vector moved towards those of nodes.

    Its direction becomes that of q + weight x m, where q is the query's vector brought to length 1, and m is the mean
    of the nodes' vectors, each brought to length 1 before and the mean after. Its length stays.

    Args:
        vector: (dim,) float32.
        towards: n arrays of the same shape; none leaves the vector as it is, as does what has no direction.
        weight: At least 0.

    Returns:
        (dim,) float32.

    Source:
        Rocchio: Relevance Feedback in Information Retrieval, 1971; over embeddings: Li and others: Pseudo Relevance
        Feedback with Deep Language Models and Dense Retrievers, TOIS 2023, doi:10.1145/3570724.

    Example:
        >>> moved(np.array([5.0, 0.0], np.float32), [np.array([0.0, 3.0], np.float32)], 0.75).tolist()
        [4.0, 3.0]
    """
    if not towards or weight == 0:
        return vector
    mean = _unit(np.mean([_unit(one.astype(np.float64)) for one in towards], axis=0))
    plain = vector.astype(np.float64)
    direction = _unit(_unit(plain) + weight * mean)
    return (float(np.linalg.norm(plain)) * direction).astype(np.float32) if direction.any() else vector


def vector_of(node: DocNode, embed_key: str) -> Vector | None:
    """A node's dense vector under an embed key; None where it has none."""
    found = node.embeddings.get(embed_key)
    return found if isinstance(found, np.ndarray) else None


def _embeds_alike(node: DocNode, embedder: CheckedEmbedder, embed_key: str) -> bool:
    """Whether a node's Document embeds by the same model; vectors of another one say nothing about a query's."""
    if not isinstance(node.reader, Reader):
        return False
    [theirs] = node.reader.embedders([embed_key])
    identity = embedder.embedder.identity
    return theirs.given is embedder.given or (identity != "" and theirs.embedder.identity == identity)


def checked_towards(nodes: Any, weight: Any, trees: Sequence[object]) -> tuple[list[DocNode], float]:
    """What vectors are moved towards: the nodes of some Documents, and how far.

    Raises:
        ConfigError: If there are other things than nodes, or the weight is below 0 or not finite.
    """
    listed = [nodes] if isinstance(nodes, DocNode) or not isinstance(nodes, Iterable) else list(nodes)
    if isinstance(nodes, DocNode) or not all(isinstance(node, DocNode) for node in listed):
        msg = f"A query is moved towards a list of nodes, not {nodes!r:.80}. Give what a retriever returned."
        raise ConfigError(msg)
    if isinstance(weight, bool) or not isinstance(weight, numbers.Real) or not 0 <= float(weight) < math.inf:
        msg = f"weight is {weight!r}; give a number from 0 up, such as 0.7: how far a query is moved towards the nodes."
        raise ConfigError(msg)
    return [node for node in listed if node.reader is not None and node.reader.tree in trees], float(weight)


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector


F = TypeVar("F", bound=Callable[..., Any])

Mode: TypeAlias = Literal["text", "embedding"]
MODES: tuple[Mode, ...] = ("text", "embedding")


@dataclass(frozen=True, slots=True)
class Similarity:
    """A registered similarity.

    Args:
        name: Its name.
        func: One of spec 001's four prototypes, by mode and batch.
        mode: ``"text"``: func gets the query as text; ``"embedding"``: as a list of floats, or as a dict from dimension
            to weight where vectors are sparse, and nodes that carry their vector as ``node.embedding``.
        descend: Whether a higher score is better.
        batch: Whether func gets all nodes and returns pairs (node, score), or one node and returns its score.
        search: For a similarity that brings an index: from its keywords to the search which answers it. Then func
            says what is computed, and serves nodes outside of a Document.
    """

    name: str
    func: Callable[..., Any]
    mode: Mode
    descend: bool
    batch: bool
    search: Callable[..., Search] | None = None

    def searched(self, kwargs: Mapping[str, Any]) -> Search:
        """The search that ranks by this similarity.

        Args:
            kwargs: Keywords of func, checked by `check_kwargs`.
        """
        return _FunctionSearch(self, kwargs) if self.search is None else self.search(**kwargs)

    def rank(
        self, query: str | list[float] | SparseVector, nodes: Sequence[DocNode], **kwargs: Any
    ) -> list[tuple[DocNode, float]]:
        """Score nodes, best first by this similarity's direction, ties by uid.

        Args:
            query: Text, or the query's vector, by mode.
            nodes: What to score; in embedding mode each carries its vector.
            kwargs: Passed through to the function.

        Returns:
            Pairs (node, score); a batch function may leave nodes out.

        Raises:
            RetrievalError: If the function raises, or returns something else than its prototype says.
        """
        sign = -1.0 if self.descend else 1.0
        ranked, scores = self.scored(query, nodes, **kwargs)
        return sorted(zip(ranked, scores.tolist(), strict=True), key=lambda pair: (sign * pair[1], pair[0].uid))

    def scored(
        self, query: str | list[float] | SparseVector, nodes: Sequence[DocNode], **kwargs: Any
    ) -> tuple[Sequence[DocNode], NDArray[np.float64]]:
        """See `rank`: the n nodes that have a score, in no particular order, and their (n,) scores."""
        return self._batch(query, nodes, kwargs) if self.batch else self._one_by_one(query, nodes, kwargs)

    def is_worse(self, score: float, cut_off: float) -> bool:
        """Whether a score is worse than a cut-off; an equal one is not."""
        return score < cut_off if self.descend else score > cut_off

    def check_kwargs(self, kwargs: Mapping[str, Any], also_known: Sequence[str] = ()) -> None:
        """Refuse a keyword that the function does not take, or takes only as one of any and that looks misspelt.

        Args:
            kwargs: What is to be passed through.
            also_known: Keywords of the caller that a misspelt one may have meant.

        Raises:
            UnknownKeywordError: Naming the nearest known keyword.
        """
        check_keywords(f"The similarity {self.name!r}", self.func, kwargs, skip=2, also_known=also_known)

    def _one_by_one(
        self, query: Any, nodes: Sequence[DocNode], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[DocNode], NDArray[np.float64]]:
        func = self.func
        try:
            values = [func(query, node, **kwargs) for node in nodes]
        except Exception as exc:
            raise self._raised(exc) from exc
        return nodes, self._scores(values)

    def _batch(
        self, query: Any, nodes: Sequence[DocNode], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[DocNode], NDArray[np.float64]]:
        try:
            returned = self.func(query, list(nodes), **kwargs)
        except Exception as exc:
            raise self._raised(exc) from exc
        pairs = returned if isinstance(returned, (list, tuple)) else [returned]
        if len(pairs) == len(nodes) and all(map(_is_of, pairs, nodes)):
            return nodes, self._scores([score for _, score in pairs])
        known = {node.uid: node for node in nodes}
        values: dict[str, Any] = {}
        for pair in pairs:
            node, value = pair if isinstance(pair, (list, tuple)) and len(pair) == 2 else (None, None)
            uid = node.uid if isinstance(node, DocNode) else ""
            if uid not in known or uid in values:
                msg = (
                    f"The similarity {self.name!r} returned {pair!r:.80}; a batch function returns a list of pairs "
                    "(node, score), each node being one of those it was given, once."
                )
                raise RetrievalError(msg)
            values[uid] = value
        return [known[uid] for uid in values], self._scores(list(values.values()))

    def _raised(self, exc: Exception) -> RetrievalError:
        return RetrievalError(f"The similarity {self.name!r} raised {type(exc).__name__}: {exc}")

    def _scores(self, values: list[Any]) -> NDArray[np.float64]:
        if {*map(type, values)} <= {float, int}:
            scores = np.array(values, np.float64)
            if not np.isnan(scores).any():
                return scores
        return np.array([self._score(value) for value in values], np.float64)

    def _score(self, value: Any) -> float:
        try:
            score = float(value)
        except (TypeError, ValueError) as exc:
            msg = f"The similarity {self.name!r} returned {value!r:.80} as a score; a number is needed."
            raise RetrievalError(msg) from exc
        if math.isnan(score):
            msg = f"The similarity {self.name!r} returned nan as a score, which has no place in a ranking."
            raise RetrievalError(msg)
        return score


def _is_of(pair: Any, node: DocNode) -> bool:
    """Whether what a batch function returned in a node's place is a pair of that node and its score."""
    return isinstance(pair, (list, tuple)) and len(pair) == 2 and pair[0] is node


class _FunctionSearch:
    """Every node of a group that the filters let through, ranked by a function."""

    def __init__(self, similarity: Similarity, kwargs: Mapping[str, Any]) -> None:
        self._similarity = similarity
        self._kwargs = kwargs
        self._told_the_key = similarity.mode == "embedding" and "embed_key" in keyword_names(similarity.func, skip=2)[0]

    def rank(self, request: SearchRequest) -> Hits:
        """See `Search.rank`."""
        parts, descend = request.snapshot.parts, self._similarity.descend
        asked: list[Any] = [_given(vector) for vector in request.vectors] or [request.query] * len(parts)
        kwargs = {**self._kwargs, "embed_key": request.embed_key} if self._told_the_key else self._kwargs
        rankings: list[Hits] = []
        for part, query in zip(parts, asked, strict=True):
            nodes: list[DocNode] = []
            scores = [np.zeros(0)]
            for page in part.scan(request.group, request.filters, request.embed_key):
                found, theirs = self._similarity.scored(query, page, **kwargs)
                nodes += found
                scores.append(theirs)
            best = _best(nodes, np.concatenate(scores), request.topk, descend=descend)
            rankings.append(keyed(best, part.part))
        return merged(rankings, request.topk, descend=descend)


def _given(vector: Embedding) -> list[float] | SparseVector:
    """A query's vector as functions get it: a copy."""
    return dict(vector) if isinstance(vector, dict) else vector.tolist()


def _best(nodes: Sequence[DocNode], scores: NDArray[np.float64], topk: int, *, descend: bool) -> Ranking:
    """The topk best as a ranking: best first, ties by key."""
    sign = -1.0 if descend else 1.0
    rows = np.arange(len(nodes))
    if len(nodes) > topk:  # of the others nobody needs the key
        values = sign * scores
        rows = np.flatnonzero(values <= np.partition(values, topk - 1)[topk - 1])
    pairs = [(nodes[row].segment.key, score) for row, score in zip(rows.tolist(), scores[rows].tolist(), strict=True)]
    return sorted(pairs, key=lambda pair: (sign * pair[1], pair[0]))[:topk]


similarities: Registry[Similarity] = Registry("similarity", entry_point_group="lazyrag.similarities")
similarities.declare("bm25", "lazyrag.retrieval.similarity:BM25_ENGLISH")
similarities.declare("bm25_chinese", "lazyrag.retrieval.similarity:BM25_CHINESE")
similarities.declare("cosine", "lazyrag.retrieval.similarity:COSINE")
similarities.declare("ip", "lazyrag.retrieval.similarity:INNER_PRODUCT")


@overload
def register_similarity(func: F) -> F: ...
@overload
def register_similarity(
    func: F,
    mode: Mode = ...,
    descend: bool | None = ...,
    batch: bool = ...,
    *,
    name: str | None = ...,
    replace: bool = ...,
    decend: bool | None = ...,
) -> F: ...
@overload
def register_similarity(
    func: None = ...,
    mode: Mode = ...,
    descend: bool | None = ...,
    batch: bool = ...,
    *,
    name: str | None = ...,
    replace: bool = ...,
    decend: bool | None = ...,
) -> Callable[[F], F]: ...
@known_keywords
def register_similarity(
    func: F | None = None,
    mode: Mode = "text",
    descend: bool | None = None,
    batch: bool = False,
    *,
    name: str | None = None,
    replace: bool = False,
    decend: bool | None = None,
) -> Any:
    """Register a similarity function (spec 001), as a call or as a decorator with or without arguments.

    The function is called with the query and the nodes by position, so its parameters may have any names::

        text, batch:        func(query: str, nodes: list[DocNode], **kw) -> list[tuple[DocNode, float]]
        text, single:       func(query: str, node: DocNode, **kw) -> float
        embedding, batch:   func(query: list[float], nodes: list[DocNode], **kw) -> list[tuple[DocNode, float]]
        embedding, single:  func(query: list[float], node: DocNode, **kw) -> float

    In embedding mode each node carries one vector, ``node.embedding``: that of the embed key which is asked for, and
    which a parameter named ``embed_key`` is told. Where vectors are sparse, query and ``node.embedding`` are dicts from
    dimension to weight. A batch function gets the nodes in the documents' order, at least one
    and at most about 100,000 in one call.

    Args:
        func: The function; left out, a decorator is returned.
        mode: What the query is, and whether nodes carry vectors.
        descend: Whether a higher score is better; True by default.
        batch: Whether the function gets all nodes at once.
        name: Its name; left out, ``func.__name__``.
        replace: Take the name over from another similarity.
        decend: Spec 001's spelling of ``descend``; deprecated.

    Returns:
        The function, unchanged.

    Raises:
        ConfigError: If the mode is unknown or func is no function.
        AlreadyRegisteredError: If the name is taken.
        TypeError: If both spellings are given.

    Example:
        >>> @register_similarity(mode="text", batch=False, replace=True)
        ... def same_length(query, node):
        ...     return -abs(len(query) - len(node.get_text()))
        >>> same_length("abc", DocNode(text="ab"))
        -1
    """
    if decend is not None:
        if descend is not None:
            msg = "register_similarity got descend and decend, two spellings of one parameter. Give descend."
            raise TypeError(msg)
        warn_user("decend is deprecated and goes with lazyrag 1.0; write descend.", DeprecationWarning)
        descend = decend
    if mode not in MODES:
        msg = f"register_similarity got mode={mode!r}. {known_names(str(mode), MODES)}"
        raise ConfigError(msg)
    higher = True if descend is None else descend

    def enter(function: F) -> F:
        named = function_name("register_similarity", function, name)
        similarities.register(named, Similarity(named, function, mode, higher, batch), replace=replace)
        return function

    return enter if func is None else enter(func)


indexes: Registry[Callable[[Similarity, Mapping[str, Any]], Search]] = Registry(
    "index", entry_point_group="lazyrag.indexes"
)
"""From a similarity and its keywords to the search that answers it."""


def exact(similarity: Similarity, kwargs: Mapping[str, Any]) -> Search:
    """``"default"``: exact, by the similarity's own index or, without one, node by node."""
    return similarity.searched(kwargs)


def of_vector_store(similarity: Similarity, kwargs: Mapping[str, Any]) -> Search:
    """``"smart_embedding_index"``: the vector store's own search as it comes; exact in the ``map`` store.

    What another store finds, and by which scores, is its own affair: filters hold, nothing else is promised.

    Raises:
        ConfigError: If the similarity is not answered by a vector store.
    """
    search = similarity.searched(kwargs)
    if not isinstance(search, VectorSearch):
        msg = f"smart_embedding_index is a vector store's own search; {similarity.name!r} does not search one."
        raise ConfigError(msg)
    return replace(search, mode="native")


def of_graphs(similarity: Similarity, kwargs: Mapping[str, Any]) -> Search:
    """``"ann"``: approximate, by graphs over the vectors; faster than exact from some hundred thousand nodes on.

    Raises:
        ConfigError: If the similarity is not answered by a vector store.
    """
    search = similarity.searched(kwargs)
    if not isinstance(search, VectorSearch):
        msg = (
            f"index='ann' searches embeddings approximately, by cosine; the similarity {similarity.name!r} does not "
            "search a vector store. Use similarity='cosine', or index='default'."
        )
        raise ConfigError(msg)
    return replace(search, mode="approximate")


def of_server(similarity: Similarity, kwargs: Mapping[str, Any]) -> Search:
    """``"native"``: a search server's own ranking of texts, by the terms of our analysers.

    Raises:
        ConfigError: If the similarity is not BM25, or one of its parameters is given, which the server has its own of.
    """
    search = similarity.searched(kwargs)
    if not isinstance(search, TermSearch):
        msg = (
            f"index='native' is a search server's own ranking by text, and the similarity {similarity.name!r} is none "
            "by terms. Use similarity='bm25' or 'bm25_chinese', or index='default'."
        )
        raise ConfigError(msg)
    own = sorted(kwargs.keys() - {"analyser"})
    if own:
        msg = f"index='native' got {own[0]!r}, which a search server has its own of. Leave it out, or ask the default."
        raise ConfigError(msg)
    return TextSearch(search.analyser)


indexes.register("ann", of_graphs)
indexes.register("default", exact)
indexes.register("native", of_server)
indexes.register("smart_embedding_index", of_vector_store)


def bm25(
    query: str,
    nodes: Sequence[DocNode],
    *,
    k1: float = 1.5,
    b: float = 0.75,
    variant: Variant = "lucene",
    analyser: str = "en",
) -> list[tuple[DocNode, float]]:
    """BM25 of nodes for an English query; Chinese in either is matched by characters and pairs of them.

    Args:
        query: A question or keywords.
        nodes: What to score; they are the whole collection that terms are counted in.
        k1: Saturation of term frequency, >= 0.
        b: Weight of text length, in [0, 1].
        variant: ``"lucene"`` or ``"okapi"``, see `lazyrag.indexes.bm25.BM25`.
        analyser: Name of the registered analyser that turns text into terms.

    Returns:
        Pairs (node, score) of the nodes that share a term with the query, best first, ties by uid.

    Source:
        See `lazyrag.indexes.bm25.BM25`.

    Example:
        >>> [node.text for node, _ in bm25("teas", [DocNode(text="green tea"), DocNode(text="coffee")])]
        ['green tea']
    """
    return _bm25(analyser, query, nodes, BM25(k1, b, variant))


def bm25_chinese(
    query: str,
    nodes: Sequence[DocNode],
    *,
    k1: float = 1.5,
    b: float = 0.75,
    variant: Variant = "lucene",
    analyser: str = "zh",
) -> list[tuple[DocNode, float]]:
    """BM25 of nodes for a Chinese query, by characters, pairs of neighbours and jieba's longer words; see `bm25`.

    Example:
        >>> [node.text for node, _ in bm25_chinese("茶", [DocNode(text="绿茶"), DocNode(text="咖啡")])]
        ['绿茶']
    """
    return _bm25(analyser, query, nodes, BM25(k1, b, variant))


def cosine(query: list[float], node: DocNode) -> float:
    """Cosine of the angle between a query's vector and a node's: in [-1, 1], 0 if either has no length.

    Example:
        >>> cosine([2.0, 0.0], DocNode(text="x", embeddings={"default": np.array([1, 0], np.float32)}))
        1.0
    """
    ours, theirs = _dense(query), _dense(node.embedding)
    lengths = math.sqrt(float(ours @ ours) * float(theirs @ theirs))
    return max(-1.0, min(1.0, float(ours @ theirs) / lengths)) if lengths else 0.0


def ip(query: list[float] | SparseVector, node: DocNode) -> float:
    """Inner product of a query's vector and a node's, both dense or both sparse.

    Of sparse ones only nodes are ranked that share a dimension with the query, also where the score is 0 or less.

    Example:
        >>> ip({3: 2.0, 9: 1.0}, DocNode(text="x", embeddings={"default": {3: 0.5, 7: 2.0}}))
        1.0
    """
    theirs = node.embedding
    if not isinstance(query, dict) or not isinstance(theirs, dict):
        return float(_dense(query) @ _dense(theirs))
    score = 0.0
    for dimension in sorted(query.keys() & theirs.keys()):  # sum() need not add up as the index does
        score += query[dimension] * theirs[dimension]
    return score


def nearest(query: list[float] | SparseVector, node: DocNode) -> float:
    """What ``similarity=None`` stands for: `cosine` where vectors are dense, `ip` where they are sparse.

    Example:
        >>> nearest({3: 2.0}, DocNode(text="x", embeddings={"default": {3: 0.5}}))
        1.0
    """
    return ip(query, node) if isinstance(query, dict) else cosine(query, node)


def _dense(vector: list[float] | Embedding) -> NDArray[np.float64]:
    if isinstance(vector, dict):
        msg = (
            f"A vector is sparse ({vector!r:.60}) where a dense one is needed; sparse ones go with sparse ones, by ip."
        )
        raise ConfigError(msg)
    return np.asarray(vector, np.float64)


def _bm25(analyser: str, query: str, nodes: Sequence[DocNode], model: BM25) -> list[tuple[DocNode, float]]:
    if not nodes:
        return []
    terms = term_function(analyser)
    by_uid = {node.uid: node for node in nodes}
    index = LexicalIndex()
    index.add(list(by_uid), [terms(node.get_text()) for node in by_uid.values()])
    return [(by_uid[uid], score) for uid, score in index.search(terms(query), len(by_uid), model=model)]


BM25_ENGLISH = Similarity("bm25", bm25, "text", descend=True, batch=True, search=partial(TermSearch, analyser="en"))
BM25_CHINESE = Similarity(
    "bm25_chinese", bm25_chinese, "text", descend=True, batch=True, search=partial(TermSearch, analyser="zh")
)
COSINE = Similarity(
    "cosine", cosine, "embedding", descend=True, batch=False, search=partial(VectorSearch, metric="cosine")
)
INNER_PRODUCT = Similarity("ip", ip, "embedding", descend=True, batch=False, search=partial(VectorSearch, metric="ip"))
OWN_METRIC = Similarity("cosine or ip", nearest, "embedding", descend=True, batch=False, search=VectorSearch)
"""Each collection's own, where no similarity is named."""
