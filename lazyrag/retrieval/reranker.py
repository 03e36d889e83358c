"""Rerankers: `Reranker`, the registry of functions that reorder or drop nodes, and the built-in
ones.
"""

from __future__ import annotations

import math
import numbers
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast, overload

from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY
from lazyrag.errors import AnswerWarning, ConfigError, RetrievalError, errors_of, warn_user
from lazyrag.models.chat import ChatCallable
from lazyrag.models.concurrency import in_thread
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
from lazyrag.read.scope import Reader
from lazyrag.registry import Registry
from lazyrag.retrieval.base import OutputFormat, checked_output, render
from lazyrag.retrieval.hybrid import BoundFusion
from lazyrag.retrieval.similarity import takes_several
from lazyrag.retrieval.stages import Stage, validate_nodes
from lazyrag.text.analyzers import analysers, normal_form
from lazyrag.text.sentences import CJK_LETTERS
from lazyrag.types import AnyCallable, FunctionT, JsonObject, Keywords, PlaceRanking
from lazyrag.validation import (
    check_call,
    check_keywords,
    first_parameters,
    function_name,
    is_list_of,
    keyword_names,
    known_keywords,
    require,
    required_names,
    validate_boolean,
    validate_choice,
    validate_integer,
    validate_range,
    validate_texts,
)

T_co = TypeVar("T_co", covariant=True)

_SECRET = re.compile(
    r"(?:^|[_-])(?:key|apikey|token|secret|passw(?:or)?d|passphrase|authorization|credentials?"
    r"|cookie)$|^(?:pwd|auth)$"
    r"|(?:api|access|private)[_-]?keys?$|secret|password",
    re.IGNORECASE,
)
_NO_SECRETS = frozenset({"embed_key"})
OnRerankError: TypeAlias = Literal["raise", "keep"]
_KEYWORDS = ("output_format", "join", "topk", "on_error")
"""Keywords of every Reranker."""


@dataclass(frozen=True, slots=True)
class RerankFunction:
    """A registered reranker.

    Args:
        name: Its name.
        func: With batch from a list of nodes to a list of nodes, else from a node to the node or
            None. Of a built-in reranker with a model: from its settings to a `ModelStep` or a
            `FusionStep`.
        batch: Which of the two.
        check: Validates the keywords of a Reranker when it is made.
        makes_step: Whether func makes a step.
        rescores: Whether its nodes have new scores, a higher one being better; None where that is
            unknown.
    """

    name: str
    func: AnyCallable
    batch: bool = True
    check: Callable[..., None] | None = None
    makes_step: bool = False
    rescores: bool | None = None

    def __call__(self, nodes: Sequence[DocNode], **kwargs: Any) -> list[DocNode]:
        """Call the function and return the nodes that it keeps, in its order.

        Raises:
            RetrievalError: If the function raises, or returns something that its prototype does not
                allow.
        """
        with errors_of(f"The reranker {self.name!r}", RetrievalError):
            if self.batch:
                returned = self.func(list(nodes), **kwargs)
            else:
                results = [self.func(node, **kwargs) for node in nodes]
                returned = [node for node in results if node is not None]
        if not is_list_of(returned, DocNode):
            expected = "a list of nodes" if self.batch else "the node or None"
            raise RetrievalError(
                f"The reranker {self.name!r} must return {expected}; it returned {returned!r:.80}."
            )
        return list(returned)


rerankers: Registry[RerankFunction] = Registry("reranker", entry_point_group="lazyrag.rerankers")


@overload
def register_reranker(
    func: FunctionT, batch: bool | None = ..., *, name: str | None = ..., replace: bool = ...
) -> FunctionT: ...
@overload
def register_reranker(
    func: None = ..., batch: bool | None = ..., *, name: str | None = ..., replace: bool = ...
) -> Callable[[FunctionT], FunctionT]: ...
@known_keywords
def register_reranker(
    func: FunctionT | None = None,
    batch: bool | None = None,
    *,
    name: str | None = None,
    replace: bool = False,
) -> Any:
    """Register a reranker function (spec 001), as a call or as a decorator with or without
    arguments.

    The function gets the nodes by position, and by keyword the query and the keywords of the
    `Reranker`::

        batch=True:   func(nodes: list[DocNode], **kwargs) -> list[DocNode]
        batch=False:  func(node: DocNode, **kwargs) -> DocNode | None      # None drops the node

    Args:
        func: The function; without one, a decorator is returned.
        batch: Whether the function gets all nodes at once. By default where its parameter is called
            ``nodes`` or annotated as a list.
        name: Its name; by default ``func.__name__``.
        replace: Whether to replace another reranker of this name.

    Returns:
        The function, unchanged.

    Raises:
        ConfigError: If func is not callable.
        AlreadyRegisteredError: If the name is taken.

    Example:
        >>> @register_reranker(replace=True)
        ... def shortest_first(nodes, **kwargs):
        ...     return sorted(nodes, key=lambda node: len(node.text))
        >>> nodes = [DocNode(text="bbb"), DocNode(text="a")]
        >>> [node.text for node in Reranker("shortest_first")(nodes, query="")]
        ['a', 'bbb']
    """

    def register(function: FunctionT) -> FunctionT:
        label = function_name("register_reranker", function, name)
        several = takes_several(*first_parameters(function, 1)[0]) if batch is None else batch
        rerankers.register(label, RerankFunction(label, function, several), replace=replace)
        return function

    return register if func is None else register(func)


class Reranker(Generic[T_co]):
    """Reorders or filters retrieved nodes by a registered function (spec 001).

    Args:
        name: Name of a registered reranker, such as ``"ModuleReranker"`` or ``"KeywordFilter"``.
        output_format: Form of the result, as that of a `Retriever`: None or ``"node"``,
            ``"content"`` or ``"dict"``.
        join: With ``"content"``, one text: True joins by line ends, a text by itself.
        topk: At most so many nodes, for every reranker; -1 means all. Passed on to functions that
            take it.
        on_error: If the function or its model fails: ``"raise"``, or ``"keep"`` the order of
            before, with an `AnswerWarning`. Explanations show it.
        kwargs: Passed to the function at every call.

    Raises:
        NotRegisteredError: If the name is unknown.
        ConfigError: If another argument is out of its range, or the function takes no such keyword.

    Example:
        >>> keep = Reranker("KeywordFilter", required_keys=["tea"], exclude_keys=["iced"])
        >>> nodes = [DocNode(text="Green tea"), DocNode(text="Iced tea")]
        >>> [node.text for node in keep(nodes, query="tea")]
        ['Green tea']
    """

    @overload
    def __init__(
        self: Reranker[list[DocNode]],
        name: str = ...,
        *,
        output_format: Literal["node"] | None = ...,
        join: Literal[False] = ...,
        topk: int = ...,
        on_error: OnRerankError = ...,
        **kwargs: Any,
    ) -> None: ...
    @overload
    def __init__(
        self: Reranker[Any],
        name: str = ...,
        *,
        output_format: OutputFormat | None = ...,
        join: bool | str = ...,
        topk: int = ...,
        on_error: OnRerankError = ...,
        **kwargs: Any,
    ) -> None: ...
    def __init__(
        self,
        name: str = "ModuleReranker",
        *,
        output_format: OutputFormat | None = None,
        join: bool | str = False,
        topk: int = -1,
        on_error: OnRerankError = "raise",
        **kwargs: Any,
    ) -> None:
        self._function = rerankers[name]
        self._on_error = validate_choice("on_error", on_error, OnRerankError)
        self.output_format, self._join = checked_output(output_format, join)
        func = self._function.func
        skip = 0 if self._function.makes_step else 1
        named, takes_any = keyword_names(func, skip=skip)
        self._takes_query = takes_any or "query" in named
        self._takes_topk = takes_any or "topk" in named
        self._topk = _checked_topk(topk)
        if topk != -1 and self._takes_topk:
            kwargs["topk"] = topk
        self._kwargs = kwargs
        also_known = () if takes_any else _KEYWORDS
        check_keywords(f"The reranker {name!r}", func, kwargs, skip=skip, also_known=also_known)
        for keyword in required_names(func, skip=skip):
            if keyword not in {"query", *kwargs}:
                raise ConfigError(
                    f"The reranker {name!r} needs {keyword}=. Its keywords: {', '.join(named)}."
                )
        if self._function.check is not None:
            self._function.check(**kwargs)
        self._step: ModelStep | FusionStep | None = None
        if self._function.makes_step:
            self._step = func(**kwargs)

    def __repr__(self) -> str:
        return f"Reranker({self.name!r})"

    @property
    def name(self) -> str:
        """Its registered name."""
        return self._function.name

    @property
    def rescores(self) -> bool | None:
        """Whether its nodes have new scores, a higher one being better; None where that is
        unknown.
        """
        return True if self._step is not None else self._function.rescores

    @property
    def descend(self) -> bool | None:
        """True if it reads the scores that nodes come with and a higher one is better, else None.

        A `RetrievalChain` refuses it where lower scores are better.
        """
        return True if self._step is not None and self._step.reads_scores else None

    @property
    def keywords(self) -> Keywords:
        """Its keywords."""
        return dict(self._kwargs)

    @known_keywords
    def __call__(self, nodes: Iterable[DocNode], query: str = "", topk: int | None = None) -> T_co:
        """Rerank nodes.

        Args:
            nodes: The result of a retriever, in its order.
            query: The query of the retriever.
            topk: Another limit for this call; -1 means all.

        Returns:
            The nodes that are kept, in the new order; or the form that ``output_format`` names.

        Raises:
            ConfigError: If something in nodes is not a DocNode.
            RetrievalError: If the function fails.
        """
        listed = validate_nodes(nodes, "Retrieve with output_format=None.")
        ranked = self.trace(Stage("step", "nodes", tuple(listed)), query, topk).nodes
        return cast("T_co", render(ranked, self.output_format, self._join))

    async def arerank(
        self, nodes: Iterable[DocNode], query: str = "", topk: int | None = None
    ) -> T_co:
        """Call it in a thread, so that an event loop goes on; see `__call__`."""
        return await in_thread(self, nodes, query, topk)

    def trace(self, stage: Stage, query: str = "", topk: int | None = None) -> Stage:
        """Rerank the nodes of a stage and record how.

        Args:
            stage: The stage with the nodes.
            query: The query of the retriever.
            topk: Another limit for this call; -1 means all.

        Returns:
            A stage above it, with the nodes of a call. Where scores are mixed (``weight=``), it is
            a fusion of the stage and the reranker's own, with the contribution of each.

        Raises:
            RetrievalError: If the function fails, and ``on_error`` is ``"raise"``.
        """
        limit = self._topk if topk is None else _checked_topk(topk)
        try:
            return self._ranked(stage, query, topk, limit)
        except RetrievalError as exc:
            if self._on_error == "raise":
                raise
            warn_user(
                f"The reranker {self.name!r} failed; the order of before is kept. {exc}",
                AnswerWarning,
            )
        settings = {"failed": "the order of before is kept"}
        return _cut(Stage("reranker", self.name, stage.nodes, (stage,), settings=settings), limit)

    def _ranked(self, stage: Stage, query: str, topk: int | None, limit: int) -> Stage:
        if self._step is not None:
            step = self._step if topk is None else replace(self._step, topk=limit)
            with errors_of(f"The reranker {self.name!r}", RetrievalError):
                return step.trace(stage, query)
        kwargs = {"query": query, **self._kwargs} if self._takes_query else dict(self._kwargs)
        if topk is not None and self._takes_topk:
            kwargs["topk"] = topk
        started = time.perf_counter()
        nodes = tuple(self._function(stage.nodes, **kwargs))
        seconds = time.perf_counter() - started
        ranked = Stage(
            "reranker",
            self.name,
            nodes,
            (stage,),
            settings=masked_keywords(self._kwargs),
            seconds=seconds,
        )
        return _cut(ranked, limit)


def masked_keywords(keywords: Keywords) -> JsonObject:
    """Mask the values of keywords that look like keys, tokens, secrets or passwords.

    Example:
        >>> headers = {"Authorization": "Bearer k-1"}
        >>> masked_keywords({"api_key": "k-1", "max_tokens": 9, "headers": headers})
        {'api_key': '***', 'max_tokens': 9, 'headers': {'Authorization': '***'}}
    """
    return {
        name: "***" if _is_secret(name, value) else _masked(value)
        for name, value in keywords.items()
    }


def _is_secret(name: object, value: Any) -> bool:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(name))  # apiKey
    return value is not None and words not in _NO_SECRETS and _SECRET.search(words) is not None


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return masked_keywords(value)
    return [_masked(item) for item in value] if isinstance(value, (list, tuple)) else value


_CJK = re.compile(f"[{CJK_LETTERS}]")


def keyword_filter(
    node: DocNode,
    required_keys: Sequence[str] = (),
    exclude_keys: Sequence[str] = (),
    language: str = "en",
) -> DocNode | None:
    """Keep a node that contains every required keyword and no excluded one (spec 001's
    ``KeywordFilter``).

    Case does not matter. A key with Chinese, Japanese or Korean letters is matched as a substring,
    another one as a whole word or phrase; white space in a phrase matches any white space.

    Args:
        node: A node.
        required_keys: All of them must occur.
        exclude_keys: None of them may occur.
        language: Name of a registered analyser, such as ``"en"``; the keys' own script decides, so
            all give the same.

    Returns:
        The node, or None to drop it.

    Raises:
        ConfigError: If keys are one text instead of a list, one is blank, or the language is
            unknown.
    """
    _check_keyword_filter(required_keys, exclude_keys, language)
    text = normal_form(node.get_text())
    has_all = all(_pattern(key).search(text) for key in required_keys)
    return node if has_all and not any(_pattern(key).search(text) for key in exclude_keys) else None


def _check_keyword_filter(
    required_keys: Any = (), exclude_keys: Any = (), language: Any = "en"
) -> None:
    validate_choice("language of KeywordFilter", language, analysers)
    validate_texts("KeywordFilter's required_keys", required_keys)
    validate_texts("KeywordFilter's exclude_keys", exclude_keys)


@lru_cache(maxsize=4096)
def _pattern(key: str) -> re.Pattern[str]:
    folded = normal_form(key.strip())
    if _CJK.search(folded):
        return re.compile(re.escape(folded))
    words = r"\s+".join(map(re.escape, folded.split()))
    # A word may be right beside Chinese, which has no spaces.
    letter = rf"[^\W{CJK_LETTERS}]"
    return re.compile(rf"(?<!{letter}){words}(?!{letter})")


_Scores: TypeAlias = "dict[int, float]"  # by position among the incoming nodes


@dataclass(frozen=True, slots=True)
class ModelStep:
    """A reranker by a model.

    Args:
        name: The reranker's.
        model_for: Returns the model for some nodes, at least one.
        topk: At most so many nodes are kept; -1 means all.
        weight: The share of the model's scores beside those that the nodes came with, in [0, 1]. 1:
            the model's scores alone, as they are. Below: both are brought to a common range over
            the nodes, and the score is weight x the model's + (1 - weight) x the other. Incoming
            scores are better where they are higher. No node is dropped because the model leaves it
            out, and there is an `AnswerWarning`: with weight 1 it comes behind those with a score,
            with the lowest of these; else it gets 0 of it.
        normalise: How they are brought there: a name, or two, for the incoming scores and for the
            model's; see `lazyrag.ranking.fusion.normalised`. Not ``"theoretical"``, whose bound is
            unknown here.
        keywords: Passed to the model.

    Raises:
        ConfigError: If topk, weight or normalise is out of its range.
    """

    name: str
    model_for: Callable[[Sequence[DocNode]], RerankModel]
    topk: int = -1
    weight: float = 1.0
    normalise: NormaliseLike = "min_max"
    keywords: Keywords = field(default_factory=lambda: EMPTY)

    def __post_init__(self) -> None:
        _checked_topk(self.topk)
        validate_range("weight", self.weight, 0, 1, "a number in [0, 1]")
        self._contributions([], [])  # checks normalise

    @property
    def reads_scores(self) -> bool:
        """Whether it uses the scores that nodes come with, a higher one being better."""
        return self.weight < 1

    def trace(self, stage: Stage, query: str) -> Stage:
        """Rerank a stage's nodes; of duplicates the first.

        Returns:
            With weight 1 the reranker's stage. Else a fusion of the incoming stage and the
            reranker's, with the contribution of each; and a cut, where there is a topk.

        Raises:
            ConfigError: If the query is blank, or weight is below 1 and a node came without a
                score.
            RetrievalError: If the model fails, or returns something else than pairs.
        """
        nodes = tuple(dict.fromkeys(stage.nodes))
        if nodes:
            checked_query(query)
        limit = len(nodes) if self.topk == -1 else min(self.topk, len(nodes))
        count = limit if self.weight == 1 else len(nodes)
        started = time.perf_counter()
        scores = self._scored(nodes, query, count) if nodes else {}
        reranked = tuple(nodes[at].with_score(score) for at, score in scores.items())
        settings = {"topk": self.topk} if count < len(nodes) else {}
        seconds = time.perf_counter() - started
        ranked = Stage(
            "reranker", self.name, reranked, (stage,), settings=settings, seconds=seconds
        )
        if self.weight == 1:
            return ranked
        return _cut(self._mixed(nodes, ranked, scores), self.topk)

    def _scored(self, nodes: Sequence[DocNode], query: str, count: int) -> _Scores:
        """The model's scores, best first, ties in the order of the nodes."""
        model = self.model_for(nodes)
        returned = model(
            query, documents=[node.get_content() for node in nodes], top_n=count, **self.keywords
        )
        scores = dict(checked_ranking(returned, len(nodes))[:count])
        if len(scores) < count:
            others = (
                "rank last" if self.weight == 1 else "keep only their share of the earlier score"
            )
            message = (
                f"{shown(model)} returned {len(scores)} scores for {len(nodes)} passages with"
                f" top_n={count}; the others {others}. Limit the number of nodes with topk=."
            )
            warn_user(message, AnswerWarning)
        if self.weight < 1:
            return scores
        lowest = min(scores.values(), default=0.0)
        others_at = [at for at in range(len(nodes)) if at not in scores]
        return {**scores, **dict.fromkeys(others_at[: count - len(scores)], lowest)}

    def _mixed(self, nodes: Sequence[DocNode], ranked: Stage, scores: _Scores) -> Stage:
        """Fuse the incoming scores of nodes with those of the reranker's stage."""
        started = time.perf_counter()
        contributions = self._contributions(_incoming(nodes), list(scores.items()))
        totals = {at: math.fsum(both) for at, both in contributions.items()}
        order = sorted(totals, key=lambda at: (-totals[at], at))
        mixed = tuple(nodes[at].with_score(totals[at]) for at in order)
        return Stage(
            "fusion",
            "weighted",
            mixed,
            (*ranked.inputs, ranked),
            contributions={nodes[at]: contributions[at] for at in order},
            settings={"weight": self.weight, "normalise": self.normalise},
            seconds=time.perf_counter() - started,
        )

    def _contributions(
        self, incoming: Sequence[tuple[int, float]], scored: Sequence[tuple[int, float]]
    ) -> dict[int, tuple[float, ...]]:
        """The contributions of incoming and new scores, by position."""
        weights = [1 - self.weight, self.weight]
        return fusions["weighted"].contributions(
            [incoming, scored], weights=weights, normalise=self.normalise
        )


def _incoming(nodes: Sequence[DocNode]) -> PlaceRanking:
    """The scores that nodes came with, by position."""
    scores = []
    for at, node in enumerate(nodes):
        if node.score is None or not math.isfinite(node.score):
            needed = "A reranker with weight= below 1 needs nodes with scores"
            raise ConfigError(
                f"{needed}; {node!r} has {node.score!r}. Pass a retriever's result, or weight=1."
            )
        scores.append((at, node.score))
    return scores


def _cut(stage: Stage, topk: int) -> Stage:
    """The first nodes of a stage; all with -1."""
    if topk == -1 or topk >= len(stage.nodes):
        return stage
    return Stage("cut", "topk", stage.nodes[:topk], (stage,), settings={"topk": topk})


def _checked_topk(topk: Any) -> int:
    is_all = isinstance(topk, numbers.Integral) and topk == -1
    return -1 if is_all else validate_integer("topk (-1 for all)", topk, 1)


def pointwise_reranker(
    model: ChatModel | ChatCallable,
    topk: int = -1,
    weight: float = 1.0,
    normalise: NormaliseLike = "min_max",
    **kwargs: Any,
) -> ModelStep:
    """Order nodes by a chat model's verdict on each: whether, or how well, it answers the query.

    Args:
        model: A `lazyrag.models.ChatModel`, or a callable that turns a text into a text.
        topk: At most so many nodes; -1 means all.
        weight: The share of the model's scores, see `lazyrag.retrieval.reranker.ModelStep`. 1 takes
            them alone.
        normalise: How both are brought to a common range, see there.
        kwargs: ``scale``, ``language``, ``prompt``, ``options``, ``concurrency``: see
            `lazyrag.models.PointwiseRerankModel`.
    """
    reranker = PointwiseRerankModel(model, **kwargs)
    return ModelStep("PointwiseReranker", lambda _: reranker, topk, weight, normalise)


def listwise_reranker(
    model: ChatModel | ChatCallable,
    topk: int = -1,
    weight: float = 1.0,
    normalise: NormaliseLike = "min_max",
    **kwargs: Any,
) -> ModelStep:
    """Order nodes by a chat model that puts them in order, window by window (RankGPT).

    The nodes come in the order of a first ranking; their new scores go from 1 down.

    Args:
        model: A `lazyrag.models.ChatModel`, or a callable that turns a text into a text.
        topk: At most so many nodes; -1 means all.
        weight: The share of the new ranks, see `lazyrag.retrieval.reranker.ModelStep`. 1 takes them
            alone.
        normalise: How both are brought to a common range, see there.
        kwargs: ``window``, ``step``, ``language``, ``prompt``, ``options``: see
            `lazyrag.models.ListwiseRerankModel`.
    """
    reranker = ListwiseRerankModel(model, **kwargs)
    return ModelStep("ListwiseReranker", lambda _: reranker, topk, weight, normalise)


def max_sim_reranker(
    embedder: Any = None,
    embed_key: str | None = None,
    topk: int = -1,
    weight: float = 0.4,  # measured best behind a hybrid: docs/quality.md
    normalise: NormaliseLike = "min_max",
) -> ModelStep:
    """Order nodes by late interaction (MaxSim) over the token embeddings of an embedding model.

    It needs no model beside the one that a Document embeds with.

    Args:
        embedder: Gives token embeddings, such as an `lazyrag.OnnxEmbedder`. Or a
            `lazyrag.models.MaxSimModel`, which sets how many of them are cached in memory. None:
            the embedder of the nodes' Document.
        embed_key: Which of the Document's, where several give token embeddings.
        topk: At most so many nodes; -1 means all.
        weight: The share of the new scores, see `lazyrag.retrieval.reranker.ModelStep`.
        normalise: How both are brought to a common range, see there.

    Raises:
        ConfigError: If no embedder gives token embeddings, or several do; or a value is out of its
            range.

    Source:
        Khattab, Zaharia: ColBERT, SIGIR 2020, doi:10.1145/3397271.3401075.
    """
    if embedder is None:
        return ModelStep("MaxSimReranker", _DocumentModels(embed_key), topk, weight, normalise)
    if embed_key is not None:
        raise ConfigError(
            f"embed_key names an embedder of the Document; got {embed_key!r} and embedder=. Pass"
            " one."
        )
    model = embedder if isinstance(embedder, MaxSimModel) else MaxSimModel(_inner(embedder))
    return ModelStep("MaxSimReranker", lambda _: model, topk, weight, normalise)


class _DocumentModels:
    """Models over the embedders of the Documents that nodes belong to.

    It keeps no reference to an embedder, as Documents come and go: the cache of passages belongs to
    the embedder. Only of embedders without weak references, which cannot own a cache, it keeps the
    last one.
    """

    def __init__(self, embed_key: str | None) -> None:
        self._key = embed_key
        self._last: MaxSimModel | None = None

    def __call__(self, nodes: Sequence[DocNode]) -> MaxSimModel:
        readers = {id(node.reader): node.reader for node in nodes}
        by_id = {id(embedder): embedder for embedder in map(self._embedder, readers.values())}
        embedders = list(by_id.values())
        identities = {embedder.identity or str(id(embedder)) for embedder in embedders}
        if len(identities) > 1:
            raise ConfigError(
                f"The nodes' Documents have different models: {sorted(identities)}. Pass one"
                " embedder=."
            )
        last = self._last
        if last is not None and last.embedder is embedders[0]:
            return last
        model = MaxSimModel(embedders[0])
        self._last = None if can_share(embedders[0]) else model
        return model

    def _embedder(self, reader: object) -> Any:
        if not isinstance(reader, Reader):
            raise ConfigError(
                "MaxSimReranker got nodes outside a Document. Pass embedder=, such as an"
                " OnnxEmbedder."
            )
        embedders = reader.embedders(None if self._key is None else [self._key])
        able = token_embedders(embedders)
        if len({id(embedder) for embedder in able.values()}) == 1:
            return next(iter(able.values()))
        keys = ", ".join(sorted(able or {embedder.key for embedder in embedders}))
        if able:
            raise ConfigError(
                f"Several embed keys give token embeddings: {keys}. Pass one as embed_key=."
            )
        raise ConfigError(
            f"Of the nodes' Document no embedder gives token embeddings (its embed keys: {keys})."
            " Pass one that does as embedder=, such as an OnnxEmbedder."
        )


def token_embedders(embedders: Iterable[CheckedEmbedder]) -> dict[str, Any]:
    """Those of a Document's embedders that give token embeddings, by embed key."""
    inner = {embedder.key: _inner(embedder.embedder) for embedder in embedders}
    return {key: embedder for key, embedder in inner.items() if _gives_tokens(embedder)}


def _inner(embedder: Any) -> Any:
    """The embedder inside of one that caches."""
    while not _gives_tokens(embedder) and hasattr(embedder, "embedder"):
        embedder = embedder.embedder
    return embedder


def _gives_tokens(embedder: Any) -> bool:
    return callable(getattr(embedder, "token_embeddings", None))


def module_reranker(
    model: LocalModel | RerankModel | AnyCallable,
    topk: int = -1,
    weight: float = 1.0,
    normalise: NormaliseLike = "min_max",
    **kwargs: Any,
) -> ModelStep:
    """Order nodes by a rerank model (spec 001's ``ModuleReranker``).

    Args:
        model: A folder with a cross-encoder, or its name in the hub's cache on this machine, see
            `lazyrag.models.local.local_rerank_model`. Or a `RerankModel`, or any callable
            ``model(query, documents=[...], top_n=n) -> [(index, score), ...]``, higher scores being
            better.
        topk: At most so many nodes; -1 means all.
        weight: The share of the model's scores, see `lazyrag.retrieval.reranker.ModelStep`. 1 takes
            them alone.
        normalise: How both are brought to a common range, see there.
        kwargs: Passed to the model at every call.

    Raises:
        ConfigError: If a value is out of its range, or there is no such model.
        MissingDependencyError: If a package is needed that is not installed.
    """
    loaded: Any = local_rerank_model(model) if isinstance(model, (str, os.PathLike)) else model
    expected = (
        "a folder, a name, a RerankModel, or a callable model(query, documents=[...], top_n=n)"
    )
    require(callable(loaded) and not isinstance(loaded, type), "model", model, expected)
    description = f"The model {shown(model)} of ModuleReranker"
    check_keywords(
        description, loaded, kwargs, skip=3, also_known=("topk", "weight", "normalise", *_KEYWORDS)
    )
    check_call(
        f"{description} cannot be called with (query, documents=[...], top_n=n)",
        loaded,
        "",
        documents=[],
        top_n=1,
        **kwargs,
    )
    return ModelStep("ModuleReranker", lambda _: loaded, topk, weight, normalise, kwargs)


def bm25_reranker(
    analyser: str = "auto",
    variant: Variant = "plus",
    topk: int = -1,
    weight: float = 1.0,
    normalise: NormaliseLike = "min_max",
) -> ModelStep:
    """Order nodes by BM25, with terms counted in these nodes alone (the library rank-bm25).

    Args:
        analyser: Turns text into terms, see `lazyrag.models.rerank.Bm25RerankModel`.
        variant: ``"plus"``, ``"okapi"`` or ``"l"``, see there.
        topk: At most so many nodes; -1 means all.
        weight: The share of the new scores, see `lazyrag.retrieval.reranker.ModelStep`. 1 takes
            them alone.
        normalise: How both are brought to a common range, see there.
    """
    model = Bm25RerankModel(analyser=analyser, variant=variant)
    return ModelStep("BM25Reranker", lambda _: model, topk, weight, normalise)


@dataclass(frozen=True, slots=True)
class FusionStep:
    """Several rerankers and a fusion of their rankings; see `fusion_reranker`."""

    rerankers: tuple[Reranker[Any], ...]
    fusing: BoundFusion
    incoming: bool
    topk: int

    @property
    def reads_scores(self) -> bool:
        """See `ModelStep.reads_scores`."""
        counts = self.fusing.reads_scores and (
            self.incoming or not all(step.rescores for step in self.rerankers)
        )
        return counts or any(step.descend for step in self.rerankers)

    def trace(self, stage: Stage, query: str) -> Stage:
        """Rerank a stage's nodes and return the resulting stage above it."""
        ranked = [step.trace(stage, query) for step in self.rerankers]
        return _cut(
            self.fusing.fused_stages([stage, *ranked] if self.incoming else ranked), self.topk
        )


def fusion_reranker(
    rerankers: Sequence[Reranker[Any] | str],
    fusion: str = "rrf",
    incoming: bool = True,
    topk: int = -1,
    **kwargs: Any,
) -> FusionStep:
    """Order nodes by the rankings of several rerankers, and the order they came in, fused.

    Args:
        rerankers: At least one: a `lazyrag.Reranker`, or the name of one that needs no keywords.
        fusion: Name of a registered fusion: ``"rrf"``, ``"weighted"`` ...
        incoming: Whether the order that the nodes came in is one of the rankings, the first.
        topk: At most so many nodes; -1 means all.
        kwargs: Passed to the fusion: ``k=``, ``weights=``, ``normalise=`` ...

    Raises:
        NotRegisteredError: If there is no such fusion or reranker.
        ConfigError: If a value is out of its range.
    """
    fits = bool(rerankers) and is_list_of(rerankers, (Reranker, str))
    require(fits, "rerankers", rerankers, "a list of Rerankers, or of their names")
    steps = [
        Reranker(reranker) if isinstance(reranker, str) else reranker for reranker in rerankers
    ]
    fusing = BoundFusion.checked(fusion, kwargs, ("rerankers", "fusion", "incoming", "topk"))
    _checked_topk(topk)
    fusing.try_out(len(steps) + validate_boolean("incoming", incoming))
    return FusionStep(tuple(steps), fusing, incoming, topk)


for _function in (
    RerankFunction("BM25Reranker", bm25_reranker, makes_step=True),
    RerankFunction("FusionReranker", fusion_reranker, makes_step=True),
    RerankFunction(
        "KeywordFilter", keyword_filter, batch=False, check=_check_keyword_filter, rescores=False
    ),
    RerankFunction("ListwiseReranker", listwise_reranker, makes_step=True),
    RerankFunction("MaxSimReranker", max_sim_reranker, makes_step=True),
    RerankFunction("ModuleReranker", module_reranker, makes_step=True),
    RerankFunction("PointwiseReranker", pointwise_reranker, makes_step=True),
):
    rerankers.register(_function.name, _function)
