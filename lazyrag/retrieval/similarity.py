"""Similarities: named functions from a query and nodes to scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

import numpy as np

from lazyrag.data.node import DocNode
from lazyrag.document.snapshot import Hits, keyed, merged
from lazyrag.errors import ConfigError, RetrievalError, known_names, warn_user
from lazyrag.registry import Registry
from lazyrag.retrieval.search import Search, SearchRequest
from lazyrag.types import Embedding, Ranking, SparseVector
from lazyrag.validation import check_keywords, function_name, keyword_names, known_keywords

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
similarities.declare("bm25", "lazyrag.retrieval.built_in_similarities:BM25_ENGLISH")
similarities.declare("bm25_chinese", "lazyrag.retrieval.built_in_similarities:BM25_CHINESE")
similarities.declare("cosine", "lazyrag.retrieval.built_in_similarities:COSINE")
similarities.declare("ip", "lazyrag.retrieval.built_in_similarities:INNER_PRODUCT")


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
