"""`Reranker`: named functions that reorder or drop nodes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, overload

from lazyrag.data.node import DocNode
from lazyrag.errors import ConfigError, LazyRAGError, RetrievalError
from lazyrag.registry import Registry
from lazyrag.retrieval.stages import Stage
from lazyrag.validation import check_keywords, function_name, keyword_names, known_keywords, required_names

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
rerankers.declare("BM25Reranker", "lazyrag.retrieval.reranking.words:BM25_RERANKER")
rerankers.declare("FusionReranker", "lazyrag.retrieval.reranking.several:FUSION_RERANKER")
rerankers.declare("KeywordFilter", "lazyrag.retrieval.built_in_rerankers:KEYWORD_FILTER")
rerankers.declare("ListwiseReranker", "lazyrag.retrieval.reranking.chat:LISTWISE_RERANKER")
rerankers.declare("MaxSimReranker", "lazyrag.retrieval.reranking.maxsim:MAX_SIM_RERANKER")
rerankers.declare("ModuleReranker", "lazyrag.retrieval.reranking.module:MODULE_RERANKER")
rerankers.declare("PointwiseReranker", "lazyrag.retrieval.reranking.chat:POINTWISE_RERANKER")


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
