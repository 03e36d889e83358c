"""`Reranker`: named functions that reorder or drop nodes."""

from __future__ import annotations

import math
import numbers
import os
import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, TypeAlias, TypeVar, overload

from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY
from lazyrag.document.reader import Reader
from lazyrag.errors import AnswerWarning, ConfigError, LazyRAGError, RetrievalError, known_names, warn_user
from lazyrag.models.chat import ChatCallable
from lazyrag.models.embedding import CheckedEmbedder, shown
from lazyrag.models.local import LocalModel, local_rerank_model
from lazyrag.models.onnx.models import MaxSimModel, can_share
from lazyrag.models.protocols import ChatModel, RerankModel
from lazyrag.models.rerank import (
    Bm25RerankModel,
    ListwiseRerankModel,
    PointwiseRerankModel,
    Variant,
    checked_query,
    checked_ranking,
)
from lazyrag.ranking.fusion import NormaliseLike, fusions
from lazyrag.registry import Registry
from lazyrag.retrieval.stages import Fusing, Stage
from lazyrag.text.sentences import CJK_LETTERS
from lazyrag.validation import (
    check_keywords,
    function_name,
    keyword_names,
    known_keywords,
    required_names,
    text_list,
    whole_number,
    yes_or_no,
)

F = TypeVar("F", bound=Callable[..., Any])

_SECRET = re.compile(
    r"(?:^|[_-])(?:key|apikey|token|secret|passw(?:or)?d|passphrase|authorization|credentials?|cookie)$|^(?:pwd|auth)$"
    r"|(?:api|access|private)[_-]?keys?$|secret|password",
    re.IGNORECASE,
)
_NO_SECRETS = frozenset({"embed_key"})


class RerankStep(Protocol):
    """What does a Reranker's work, with its keywords checked and its models at hand."""

    def trace(self, stage: Stage, query: str) -> Stage:
        """The stage that comes of reranking a stage's nodes; below it, as inputs, whatever it is made of."""
        ...


@dataclass(frozen=True, slots=True)
class RerankFunction:
    """A registered reranker.

    Args:
        name: Its name.
        func: With batch from a list of nodes to a list of nodes, else from a node to the node or None.
        batch: Which of the two.
        check: Called with a Reranker's keywords when it is made; raises where they make no sense.
        make: Called with them when it is made; what it gives is asked instead of func, and gives the same nodes.
        rescores: Whether its nodes have scores of its own, a higher one being better; None where nobody says.
    """

    name: str
    func: Callable[..., Any]
    batch: bool
    check: Callable[..., None] | None = None
    make: Callable[..., RerankStep] | None = None
    rescores: bool | None = None

    def __call__(self, nodes: Sequence[DocNode], **kwargs: Any) -> list[DocNode]:
        """The nodes that the function keeps, in its order.

        Raises:
            RetrievalError: If the function raises, or returns something else than its prototype says.
        """
        with self.told():
            kept = self.func(list(nodes), **kwargs) if self.batch else [self.func(node, **kwargs) for node in nodes]
        if not self.batch:
            kept = [node for node in kept if node is not None]
        if not isinstance(kept, (list, tuple)) or not all(isinstance(node, DocNode) for node in kept):
            wanted = "a list of nodes" if self.batch else "the node or None"
            msg = f"The reranker {self.name!r} returned {kept!r:.80}; it must return {wanted}."
            raise RetrievalError(msg)
        return list(kept)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Turns whatever is raised inside into an error that names the reranker; errors of this package stay."""
        try:
            yield
        except LazyRAGError:
            raise
        except Exception as exc:
            msg = f"The reranker {self.name!r} raised {type(exc).__name__}: {exc}"
            raise RetrievalError(msg) from exc


rerankers: Registry[RerankFunction] = Registry("reranker", entry_point_group="lazyrag.rerankers")
rerankers.declare("BM25Reranker", "lazyrag.retrieval.reranker:BM25_RERANKER")
rerankers.declare("FusionReranker", "lazyrag.retrieval.reranker:FUSION_RERANKER")
rerankers.declare("KeywordFilter", "lazyrag.retrieval.reranker:KEYWORD_FILTER")
rerankers.declare("ListwiseReranker", "lazyrag.retrieval.reranker:LISTWISE_RERANKER")
rerankers.declare("MaxSimReranker", "lazyrag.retrieval.reranker:MAX_SIM_RERANKER")
rerankers.declare("ModuleReranker", "lazyrag.retrieval.reranker:MODULE_RERANKER")
rerankers.declare("PointwiseReranker", "lazyrag.retrieval.reranker:POINTWISE_RERANKER")


@overload
def register_reranker(func: F, batch: bool = ..., *, name: str | None = ..., replace: bool = ...) -> F: ...
@overload
def register_reranker(
    func: None = ..., batch: bool = ..., *, name: str | None = ..., replace: bool = ...
) -> Callable[[F], F]: ...
@known_keywords
def register_reranker(
    func: F | None = None,
    batch: bool = False,
    *,
    name: str | None = None,
    replace: bool = False,
) -> Any:
    """Register a reranker function (spec 001), as a call or as a decorator with or without arguments.

    The function gets the nodes by position, and by keyword the query and what `Reranker` was made with::

        batch=True:   func(nodes: list[DocNode], **kwargs) -> list[DocNode]
        batch=False:  func(node: DocNode, **kwargs) -> DocNode | None      # None drops the node

    Args:
        func: The function; left out, a decorator is returned.
        batch: Whether the function gets all nodes at once.
        name: Its name; left out, ``func.__name__``.
        replace: Take the name over from another reranker.

    Returns:
        The function, unchanged.

    Raises:
        ConfigError: If func is no function.
        AlreadyRegisteredError: If the name is taken.

    Example:
        >>> @register_reranker(batch=True, replace=True)
        ... def shortest_first(nodes, **kwargs):
        ...     return sorted(nodes, key=lambda node: len(node.text))
        >>> [node.text for node in Reranker("shortest_first")([DocNode(text="bbb"), DocNode(text="a")], query="")]
        ['a', 'bbb']
    """

    def enter(function: F) -> F:
        named = function_name("register_reranker", function, name)
        rerankers.register(named, RerankFunction(named, function, batch), replace=replace)
        return function

    return enter if func is None else enter(func)


class Reranker:
    """Reorders or filters retrieved nodes by a registered function (spec 001).

    Args:
        name: Name of a registered reranker, such as ``"ModuleReranker"`` or ``"KeywordFilter"``.
        kwargs: Passed to the function at every call.

    Raises:
        NotRegisteredError: If the name is unknown.
        ConfigError: If the function takes no such keyword.

    Example:
        >>> keep = Reranker("KeywordFilter", required_keys=["tea"], exclude_keys=["iced"])
        >>> [node.text for node in keep([DocNode(text="Green tea"), DocNode(text="Iced tea")], query="tea")]
        ['Green tea']
    """

    def __init__(self, name: str = "ModuleReranker", **kwargs: Any) -> None:
        self._function = rerankers[name]
        self._kwargs = kwargs
        named, takes_any = keyword_names(self._function.func, skip=1)
        self._takes_query = takes_any or "query" in named
        check_keywords(f"The reranker {name!r}", self._function.func, kwargs, skip=1)
        missing = [one for one in required_names(self._function.func, skip=1) if one not in {"query", *kwargs}]
        if missing:
            msg = f"The reranker {name!r} needs {missing[0]}=. Its keywords: {', '.join(named)}."
            raise ConfigError(msg)
        if self._function.check is not None:
            self._function.check(**kwargs)
        self._step = None if self._function.make is None else self._function.make(**kwargs)

    def __repr__(self) -> str:
        return f"Reranker({self.name!r})"

    @property
    def name(self) -> str:
        """Its registered name."""
        return self._function.name

    @property
    def rescores(self) -> bool | None:
        """Whether its nodes have scores of its own, a higher one being better; None where nobody says."""
        return True if self._step is not None else self._function.rescores

    @property
    def descend(self) -> bool | None:
        """How it reads the scores that nodes come with: True: a higher one is better; None: not at all, as far as said.

        A `RetrievalChain` refuses it where lower scores are better.
        """
        found: bool | None = getattr(self._step, "descend", None)
        return found

    @property
    def keywords(self) -> Mapping[str, Any]:
        """What it was made with."""
        return dict(self._kwargs)

    @known_keywords
    def __call__(self, nodes: Iterable[DocNode], query: str = "") -> list[DocNode]:
        """Rerank nodes.

        Args:
            nodes: What a retriever returned, in its order.
            query: The query they were retrieved for.

        Returns:
            The nodes that are kept, in the new order.

        Raises:
            ConfigError: If something in nodes is no DocNode.
            RetrievalError: If the function fails.
        """
        return list(self.trace(Stage("step", "nodes", tuple(_checked(nodes))), query).nodes)

    def trace(self, stage: Stage, query: str = "") -> Stage:
        """Rerank the nodes of a stage, and say how it was done.

        Args:
            stage: What gave the nodes.
            query: The query they were retrieved for.

        Returns:
            A stage above it, with the nodes that a call returns. Where scores are mixed (``weight=``), it is a fusion
            of the stage and the reranker's own, and its shares say what each gave.

        Raises:
            RetrievalError: If the function fails.
        """
        if self._step is not None:
            with self._function.told():
                return self._step.trace(stage, query)
        kwargs = {"query": query, **self._kwargs} if self._takes_query else self._kwargs
        started = time.perf_counter()
        nodes = tuple(self._function(stage.nodes, **kwargs))
        seconds = time.perf_counter() - started
        return Stage("reranker", self.name, nodes, (stage,), said=shown_keywords(self._kwargs), seconds=seconds)


def shown_keywords(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords for people to read: what a key, token, secret or password is called stands there as ``"***"``.

    Example:
        >>> shown_keywords({"api_key": "k-1", "max_tokens": 9, "headers": {"Authorization": "Bearer k-1"}})
        {'api_key': '***', 'max_tokens': 9, 'headers': {'Authorization': '***'}}
    """
    return {name: "***" if _is_secret(name, value) else _shown(value) for name, value in keywords.items()}


def _is_secret(name: object, value: Any) -> bool:
    said = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(name))  # apiKey
    return value is not None and said not in _NO_SECRETS and _SECRET.search(said) is not None


def _shown(value: Any) -> Any:
    if isinstance(value, Mapping):
        return shown_keywords(value)
    return [_shown(one) for one in value] if isinstance(value, (list, tuple)) else value


def _checked(nodes: Any) -> list[DocNode]:
    if isinstance(nodes, DocNode) or not isinstance(nodes, Iterable):
        msg = f"A Reranker takes a list of nodes, not {nodes!r:.80}."
        raise ConfigError(msg)
    listed = list(nodes)
    stray = [one for one in listed if not isinstance(one, DocNode)]
    if stray:
        msg = f"A Reranker takes nodes, not {stray[0]!r:.80}. Retrieve with output_format=None."
        raise ConfigError(msg)
    return listed


_LANGUAGES = ("en", "zh")
_CJK = re.compile(f"[{CJK_LETTERS}]")


def keyword_filter(
    node: DocNode, required_keys: Sequence[str] = (), exclude_keys: Sequence[str] = (), language: str = "en"
) -> DocNode | None:
    """Keep a node that holds every required keyword and no excluded one (spec 001's ``KeywordFilter``).

    Case does not matter. A key with Chinese, Japanese or Korean letters is looked for as a substring, another one as a
    whole word or phrase; white space in a phrase matches any white space.

    Args:
        node: A node.
        required_keys: All of them must be there.
        exclude_keys: None of them may be there.
        language: ``"en"`` or ``"zh"``; the keys' own script decides, so both give the same.

    Returns:
        The node, or None to drop it.

    Raises:
        ConfigError: If keys are one text instead of a list, one is blank, or the language is unknown.
    """
    _check_keyword_filter(required_keys, exclude_keys, language)
    text = _folded(node.get_text())
    kept = all(_pattern(key).search(text) for key in required_keys)
    return node if kept and not any(_pattern(key).search(text) for key in exclude_keys) else None


def _check_keyword_filter(required_keys: Any = (), exclude_keys: Any = (), language: Any = "en") -> None:
    if language not in _LANGUAGES:
        msg = f"KeywordFilter got language={language!r}. {known_names(str(language), _LANGUAGES)}"
        raise ConfigError(msg)
    for name, keys in (("required_keys", required_keys), ("exclude_keys", exclude_keys)):
        text_list(f"KeywordFilter's {name}", keys)


@lru_cache(maxsize=4096)
def _pattern(key: str) -> re.Pattern[str]:
    folded = _folded(key.strip())
    if _CJK.search(folded):
        return re.compile(re.escape(folded))
    words = r"\s+".join(map(re.escape, folded.split()))
    # A word may stand right beside Chinese, which has no spaces.
    letter = rf"[^\W{CJK_LETTERS}]"
    return re.compile(rf"(?<!{letter}){words}(?!{letter})")


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


KEYWORD_FILTER = RerankFunction(
    "KeywordFilter", keyword_filter, batch=False, check=_check_keyword_filter, rescores=False
)


ModelOf: TypeAlias = Callable[[Sequence[DocNode]], RerankModel]
"""Which model ranks some nodes."""

_Scores: TypeAlias = "dict[int, float]"  # by place among the nodes that came in


@dataclass(frozen=True, slots=True)
class ModelStep:
    """A reranker's work, as `lazyrag.Reranker` holds it.

    Args:
        name: The reranker's.
        model_of: Which model ranks the nodes, which are never none.
        topk: At most so many nodes are kept; -1 means all.
        weight: The share of the model's scores beside those that the nodes came with, in [0, 1]. 1: the model's scores
            alone, as it gives them. Below: both are brought to a common range over the nodes, and the score is
            weight x the model's + (1 - weight) x the other. The scores that nodes came with are better where they are
            higher. No node is dropped because the model leaves it out, and there is an `AnswerWarning`: with weight 1
            it comes behind those that it scores, with the lowest of its scores; else it gets 0 of it.
        normalise: How they are brought there: a name, or two, for what came and for the model's; see
            `lazyrag.ranking.scores.normalised`. Not ``"theoretical"``, whose bound is known to nobody here.
        keywords: Passed to the model.

    Raises:
        ConfigError: If topk, weight or normalise is out of its range.
    """

    name: str
    model_of: ModelOf
    topk: int = -1
    weight: float = 1.0
    normalise: NormaliseLike = "min_max"
    keywords: Mapping[str, Any] = field(default_factory=lambda: EMPTY)

    def __post_init__(self) -> None:
        checked_topk(self.topk)
        checked_weight(self.weight)
        self._shares([], [])

    @property
    def descend(self) -> bool | None:
        """True where the scores that nodes come with count; a higher one is better."""
        return True if self.weight < 1 else None

    def trace(self, stage: Stage, query: str) -> Stage:
        """A stage's nodes reranked. One that comes twice is taken once, at its first place.

        Returns:
            With weight 1 the reranker's stage. Else a fusion of the stage that came in and the reranker's, with each
            one's share of every score; and a cut, where there is a topk.

        Raises:
            ConfigError: If the query is blank, or weight is below 1 and a node came without a score.
            RetrievalError: If the model fails, or returns something else than pairs.
        """
        nodes = tuple(dict.fromkeys(stage.nodes))
        if nodes:
            checked_query(query)
        limit = len(nodes) if self.topk == -1 else min(self.topk, len(nodes))
        asked = limit if self.weight == 1 else len(nodes)
        started = time.perf_counter()
        model = self.model_of(nodes) if nodes else None
        scores = self._scored(model, nodes, query, asked) if model is not None else {}
        said = {"topk": self.topk} if asked < len(nodes) else {}
        ranked = Stage(
            "reranker",
            self.name,
            tuple(nodes[place].with_score(score) for place, score in scores.items()),
            (stage,),
            said=said,
            seconds=time.perf_counter() - started,
        )
        if self.weight == 1:
            return ranked
        mixed = self._mixed(stage, nodes, ranked, scores)
        if limit == len(nodes):
            return mixed
        return Stage("cut", "topk", mixed.nodes[:limit], (mixed,), said={"topk": self.topk})

    def _scored(self, model: RerankModel, nodes: Sequence[DocNode], query: str, most: int) -> _Scores:
        """The model's scores, best first, ties in the order the nodes came in."""
        returned = model(query, documents=[node.get_content() for node in nodes], top_n=most, **self.keywords)
        scores = dict(checked_ranking(returned, len(nodes))[:most])
        if len(scores) < most:
            others = "come behind them" if self.weight == 1 else "get nothing of it"
            msg = (
                f"{shown(model)} was asked for {most} of {len(nodes)} passages and has scores for {len(scores)}. The "
                f"others {others}; none is dropped. topk= says how many are kept."
            )
            warn_user(msg, AnswerWarning)
        return scores if self.weight < 1 else _filled(scores, len(nodes), most)

    def _mixed(self, stage: Stage, nodes: Sequence[DocNode], ranked: Stage, scores: _Scores) -> Stage:
        started = time.perf_counter()
        shares = self._shares(_incoming(nodes), list(scores.items()))
        totals = {place: math.fsum(both) for place, both in shares.items()}
        order = sorted(totals, key=lambda place: (-totals[place], place))
        return Stage(
            "fusion",
            "weighted",
            tuple(nodes[place].with_score(totals[place]) for place in order),
            (stage, ranked),
            shares={nodes[place]: shares[place] for place in order},
            said={"weight": self.weight, "normalise": self.normalise},
            seconds=time.perf_counter() - started,
        )

    def _shares(
        self, came: Sequence[tuple[int, float]], told: Sequence[tuple[int, float]]
    ) -> dict[int, tuple[float, ...]]:
        """By place what the score that a node came with adds, and the model's."""
        weights = [1 - self.weight, self.weight]
        return fusions["weighted"].shares([came, told], weights=weights, normalise=self.normalise)


def reranked(step: RerankStep, nodes: Sequence[DocNode], query: str) -> list[DocNode]:
    """Nodes reranked without a record of it."""
    return list(step.trace(Stage("step", "nodes", tuple(nodes)), query).nodes)


def checked_topk(topk: Any) -> int:
    """A bound, or -1 for none.

    Raises:
        ConfigError: If it is something else.
    """
    return -1 if isinstance(topk, numbers.Integral) and topk == -1 else whole_number("topk (-1 for all)", topk, 1)


def checked_weight(weight: Any, name: str = "weight") -> float:
    """A share.

    Raises:
        ConfigError: If it is no number in [0, 1].
    """
    if isinstance(weight, bool) or not isinstance(weight, numbers.Real) or not 0 <= float(weight) <= 1:
        msg = f"{name} is {weight!r}; give a number in [0, 1]: the share of the reranker's score. 1 takes it alone."
        raise ConfigError(msg)
    return float(weight)


def _filled(scores: _Scores, count: int, most: int) -> _Scores:
    """Scores, and behind them nodes that have none, in their order, up to a number of all."""
    lowest = min(scores.values(), default=0.0)
    left_out = [place for place in range(count) if place not in scores]
    return {**scores, **dict.fromkeys(left_out[: most - len(scores)], lowest)}


def _incoming(nodes: Sequence[DocNode]) -> list[tuple[int, float]]:
    """The scores that nodes came with, by place."""
    scores = []
    for place, node in enumerate(nodes):
        if node.score is None or not math.isfinite(node.score):
            msg = (
                f"A reranker with weight= mixes its scores with those that the nodes came with, and {node!r} has the "
                f"score {node.score!r}. Give it what a retriever returned, or leave weight at 1."
            )
            raise ConfigError(msg)
        scores.append((place, node.score))
    return scores


def pointwise_reranker(
    nodes: list[DocNode],
    model: ChatModel | ChatCallable,
    query: str,
    topk: int = -1,
    weight: float = 1.0,
    normalise: NormaliseLike = "min_max",
    **kwargs: Any,
) -> list[DocNode]:
    """Order nodes by what a chat model says of each: whether, or how well, it answers the query.

    Args:
        nodes: What to order.
        model: A `lazyrag.ChatModel`, or a callable that turns a text into a text.
        query: The query.
        topk: At most so many nodes; -1 means all.
        weight: The share of the model's scores, see `lazyrag.retrieval.reranker.ModelStep`. 1 takes them alone.
        normalise: How both are brought to a common range, see there.
        kwargs: ``scale``, ``language``, ``prompt``, ``options``, ``concurrency``: see `lazyrag.PointwiseRerankModel`.

    Returns:
        Nodes with their scores, best first, ties in the order they came in.

    Raises:
        ConfigError: If a value is out of its range.
        RetrievalError: If the model fails.
    """
    return reranked(_pointwise(model, topk, weight, normalise, **kwargs), nodes, query)


def listwise_reranker(
    nodes: list[DocNode],
    model: ChatModel | ChatCallable,
    query: str,
    topk: int = -1,
    weight: float = 1.0,
    normalise: NormaliseLike = "min_max",
    **kwargs: Any,
) -> list[DocNode]:
    """Order nodes by a chat model that puts them in order, window by window (RankGPT).

    Args:
        nodes: What to order, in the order of a first ranking.
        model: A `lazyrag.ChatModel`, or a callable that turns a text into a text.
        query: The query.
        topk: At most so many nodes; -1 means all.
        weight: The share of the new ranks, see `lazyrag.retrieval.reranker.ModelStep`. 1 takes them alone.
        normalise: How both are brought to a common range, see there.
        kwargs: ``window``, ``step``, ``language``, ``prompt``, ``options``: see `lazyrag.ListwiseRerankModel`.

    Returns:
        Nodes with scores from 1 down, best first.

    Raises:
        ConfigError: If a value is out of its range.
        RetrievalError: If the model fails.
    """
    return reranked(_listwise(model, topk, weight, normalise, **kwargs), nodes, query)


def _pointwise(
    model: Any, topk: int = -1, weight: float = 1.0, normalise: NormaliseLike = "min_max", **settings: Any
) -> ModelStep:
    asked = PointwiseRerankModel(model, **settings)
    return ModelStep("PointwiseReranker", lambda _: asked, topk, weight, normalise)


def _listwise(
    model: Any, topk: int = -1, weight: float = 1.0, normalise: NormaliseLike = "min_max", **settings: Any
) -> ModelStep:
    asked = ListwiseRerankModel(model, **settings)
    return ModelStep("ListwiseReranker", lambda _: asked, topk, weight, normalise)


POINTWISE_RERANKER = RerankFunction("PointwiseReranker", pointwise_reranker, batch=True, make=_pointwise)
LISTWISE_RERANKER = RerankFunction("ListwiseReranker", listwise_reranker, batch=True, make=_listwise)


WEIGHT = 0.4
"""What measured best behind a hybrid: docs/quality.md."""


def max_sim_reranker(
    nodes: list[DocNode],
    query: str,
    embedder: Any = None,
    embed_key: str | None = None,
    topk: int = -1,
    weight: float = WEIGHT,
    normalise: NormaliseLike = "min_max",
) -> list[DocNode]:
    """Order nodes by late interaction (MaxSim) over the token embeddings of an embedding model.

    It needs no model beside the one that a Document embeds with.

    Args:
        nodes: What to order.
        query: The query.
        embedder: What gives token embeddings, such as an `lazyrag.OnnxEmbedder`. Or a `lazyrag.MaxSimModel`, which says
            how many of them are kept in memory. None: the embedder of the nodes' Document.
        embed_key: Which of the Document's, where several give token embeddings.
        topk: At most so many nodes; -1 means all.
        weight: The share of the new scores, see `lazyrag.retrieval.reranker.ModelStep`.
        normalise: How both are brought to a common range, see there.

    Returns:
        Nodes with their scores, best first, ties in the order they came in.

    Raises:
        ConfigError: If no embedder gives token embeddings, or several do; or a value is out of its range.
        RetrievalError: If the embedder fails.

    Source:
        Khattab, Zaharia: ColBERT, SIGIR 2020, doi:10.1145/3397271.3401075.
    """
    return reranked(_step(embedder, embed_key, topk, weight, normalise), nodes, query)


def _step(
    embedder: Any = None,
    embed_key: str | None = None,
    topk: int = -1,
    weight: float = WEIGHT,
    normalise: NormaliseLike = "min_max",
) -> ModelStep:
    if embedder is not None and embed_key is not None:
        msg = f"MaxSimReranker got embed_key={embed_key!r} and an embedder; a key names one of the Document's."
        raise ConfigError(msg)
    if embedder is None:
        return ModelStep("MaxSimReranker", _OfDocuments(embed_key), topk, weight, normalise)
    model = embedder if isinstance(embedder, MaxSimModel) else MaxSimModel(_inner(embedder))
    return ModelStep("MaxSimReranker", lambda _: model, topk, weight, normalise)


class _OfDocuments:
    """The model over the embedder of whatever Document some nodes belong to.

    It holds no embedder, as Documents come and go: what is kept of passages belongs to the embedder, and goes with it.
    Of embedders that cannot have it so, it holds the last one.
    """

    def __init__(self, embed_key: str | None) -> None:
        self._key = embed_key
        self._last: MaxSimModel | None = None

    def __call__(self, nodes: Sequence[DocNode]) -> MaxSimModel:
        readers = {id(node.reader): node.reader for node in nodes}
        found = list({id(one): one for one in map(self._embedder, readers.values())}.values())
        if len(found) > 1 and len(identities := {one.identity or str(id(one)) for one in found}) > 1:
            msg = (
                f"The nodes' Documents embed by different models: {sorted(identities)}. Their scores do not "
                "compare. Give MaxSimReranker one by embedder=."
            )
            raise ConfigError(msg)
        held = self._last
        if held is not None and held.embedder is found[0]:
            return held
        model = MaxSimModel(found[0])
        self._last = None if can_share(found[0]) else model
        return model

    def _embedder(self, reader: object) -> Any:
        if not isinstance(reader, Reader):
            msg = "MaxSimReranker got nodes outside a Document. Pass it embedder=, such as an OnnxEmbedder."
            raise ConfigError(msg)
        embedders = reader.embedders(None if self._key is None else [self._key])
        able = token_embedders(embedders)
        if len({id(one) for one in able.values()}) == 1:
            return next(iter(able.values()))
        keys = ", ".join(sorted(able or {one.key for one in embedders}))
        msg = (
            f"Several embed keys of the nodes' Document give token embeddings: {keys}. Choose one by embed_key=."
            if able
            else f"Of the nodes' Document no embedder gives token embeddings (its embed keys: {keys}). An OnnxEmbedder "
            "does; pass one by embedder=."
        )
        raise ConfigError(msg)


def token_embedders(embedders: Iterable[CheckedEmbedder]) -> dict[str, Any]:
    """Those of a Document's embedders that give token embeddings, by embed key."""
    inner = {one.key: _inner(one.embedder) for one in embedders}
    return {key: one for key, one in inner.items() if _gives_tokens(one)}


def _inner(embedder: Any) -> Any:
    """The embedder inside of one that caches."""
    while not _gives_tokens(embedder) and hasattr(embedder, "embedder"):
        embedder = embedder.embedder
    return embedder


def _gives_tokens(embedder: Any) -> bool:
    made: Callable[..., Any] | None = getattr(embedder, "token_embeddings", None)
    return callable(made)


MAX_SIM_RERANKER = RerankFunction("MaxSimReranker", max_sim_reranker, batch=True, make=_step)


def module_reranker(
    nodes: list[DocNode],
    model: LocalModel | RerankModel | Callable[..., Any],
    query: str,
    topk: int = -1,
    weight: float = 1.0,
    normalise: NormaliseLike = "min_max",
    **kwargs: Any,
) -> list[DocNode]:
    """Order nodes by a rerank model (spec 001's ``ModuleReranker``).

    Args:
        nodes: What to order.
        model: A folder with a cross-encoder, or its name in the hub's cache on this machine, see
            `lazyrag.models.local.local_rerank_model`. Or a `RerankModel`, or any callable
            ``model(query, documents=[...], top_n=n) -> [(index, score), ...]``, higher scores being better.
        query: The query.
        topk: At most so many nodes; -1 means all.
        weight: The share of the model's scores, see `lazyrag.retrieval.reranker.ModelStep`. 1 takes them alone.
        normalise: How both are brought to a common range, see there.
        kwargs: Passed to the model, which is none of a folder or name then.

    Returns:
        Nodes with their scores, best first, ties in the order they came in.

    Raises:
        ConfigError: If a value is out of its range, or there is no such model.
        MissingDependencyError: If a package is needed that is not installed.
        RetrievalError: If the model raises, or returns something else.
    """
    return reranked(_module_step(model, topk, weight, normalise, **kwargs), nodes, query)


def _module_step(
    model: Any, topk: int = -1, weight: float = 1.0, normalise: NormaliseLike = "min_max", **keywords: Any
) -> ModelStep:
    asked = model
    if isinstance(model, (str, os.PathLike)):
        if keywords:
            name = next(iter(keywords))
            msg = (
                f"ModuleReranker got {name}= and model={str(model)!r}; a model of that kind takes no further keywords."
            )
            raise ConfigError(msg)
        asked = local_rerank_model(model)
    if not callable(asked):
        msg = (
            f"ModuleReranker got model={model!r}; give a folder, a name, a RerankModel, or a callable "
            "model(query, documents=[...], top_n=n)."
        )
        raise ConfigError(msg)
    return ModelStep("ModuleReranker", lambda _: asked, topk, weight, normalise, keywords)


MODULE_RERANKER = RerankFunction("ModuleReranker", module_reranker, batch=True, make=_module_step)


def fusion_reranker(
    nodes: list[DocNode],
    query: str,
    rerankers: Sequence[Reranker | str],
    fusion: str = "rrf",
    incoming: bool = True,
    topk: int = -1,
    **kwargs: Any,
) -> list[DocNode]:
    """Order nodes by the rankings of several rerankers, and the order they came in, fused.

    Args:
        nodes: What to order. One that comes twice is taken once.
        query: The query.
        rerankers: At least one: a `lazyrag.Reranker`, or the name of one that needs no keywords.
        fusion: Name of a registered fusion: ``"rrf"``, ``"weighted"`` ...
        incoming: Whether the order that the nodes came in is one of the rankings, the first.
        topk: At most so many nodes; -1 means all.
        kwargs: Passed to the fusion: ``k=``, ``weights=``, ``normalise=`` ...

    Returns:
        The nodes that at least one ranking has, with the fused scores, best first, ties by uid.

    Raises:
        NotRegisteredError: If there is no such fusion or reranker.
        ConfigError: If a value is out of its range.
        RetrievalError: If a reranker or the fusion fails, or a fusion of scores meets nodes that came without.
    """
    return reranked(_fusion_step(rerankers, fusion, incoming, topk, **kwargs), nodes, query)


@dataclass(frozen=True, slots=True)
class FusionStep:
    """The work of a ``FusionReranker``; see `fusion_reranker`."""

    rerankers: tuple[Reranker, ...]
    fusing: Fusing
    incoming: bool
    topk: int

    @property
    def descend(self) -> bool | None:
        """True where the scores that nodes come with count, here or within; a higher one is better."""
        counts = self.fusing.reads_scores and (self.incoming or not all(one.rescores for one in self.rerankers))
        return True if counts or any(one.descend for one in self.rerankers) else None

    def trace(self, stage: Stage, query: str) -> Stage:
        """A fusion of what came, if it counts, and of each reranker's stage; and a cut, where there is a topk."""
        told = [one.trace(stage, query) for one in self.rerankers]
        inputs = (stage, *told) if self.incoming else tuple(told)
        fused = self.fusing.fused_stages(self.fusing.fusion.name, inputs)
        if self.topk == -1 or self.topk >= len(fused.nodes):
            return fused
        return Stage("cut", "topk", fused.nodes[: self.topk], (fused,), said={"topk": self.topk})


def _fusion_step(
    rerankers: Any, fusion: str = "rrf", incoming: Any = True, topk: int = -1, **keywords: Any
) -> FusionStep:
    named = rerankers if isinstance(rerankers, (list, tuple)) else []
    made = [Reranker(one) if isinstance(one, str) else one for one in named]
    if not made or not all(isinstance(one, Reranker) for one in made):
        msg = f"FusionReranker got rerankers={rerankers!r:.80}; give a list of Rerankers, or of their names."
        raise ConfigError(msg)
    fusing = Fusing.checked(fusion, keywords, ("rerankers", "fusion", "incoming", "topk"))
    step = FusionStep(tuple(made), fusing, yes_or_no("incoming", incoming), checked_topk(topk))
    fusing.try_out(len(made) + step.incoming)
    return step


FUSION_RERANKER = RerankFunction("FusionReranker", fusion_reranker, batch=True, make=_fusion_step)


def bm25_reranker(
    nodes: list[DocNode],
    query: str,
    analyser: str = "auto",
    variant: Variant = "plus",
    topk: int = -1,
    weight: float = 1.0,
    normalise: NormaliseLike = "min_max",
) -> list[DocNode]:
    """Order nodes by BM25, with terms counted in these nodes alone (the library rank-bm25).

    Args:
        nodes: What to order.
        query: The query.
        analyser: Turns text into terms, see `lazyrag.models.rerank.Bm25RerankModel`.
        variant: ``"plus"``, ``"okapi"`` or ``"l"``, see there.
        topk: At most so many nodes; -1 means all.
        weight: The share of the new scores, see `lazyrag.retrieval.reranker.ModelStep`. 1 takes them alone.
        normalise: How both are brought to a common range, see there.

    Returns:
        Nodes with their scores, best first, ties in the order they came in.

    Raises:
        ConfigError: If a value is out of its range.
        NotRegisteredError: If there is no such analyser.
    """
    return reranked(_bm25_step(analyser, variant, topk, weight, normalise), nodes, query)


def _bm25_step(
    analyser: str = "auto",
    variant: Variant = "plus",
    topk: int = -1,
    weight: float = 1.0,
    normalise: NormaliseLike = "min_max",
) -> ModelStep:
    model = Bm25RerankModel(analyser=analyser, variant=variant)
    return ModelStep("BM25Reranker", lambda _: model, topk, weight, normalise)


BM25_RERANKER = RerankFunction("BM25Reranker", bm25_reranker, batch=True, make=_bm25_step)
