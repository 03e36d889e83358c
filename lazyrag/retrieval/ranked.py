"""What retrievers rank, before nodes are read; and several retrievers over one state of their Documents."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.document.consistency import consistent_read
from lazyrag.document.reader import Reader
from lazyrag.errors import ConfigError, RetrievalError
from lazyrag.retrieval.asking import Key
from lazyrag.retrieval.retriever import Retriever
from lazyrag.retrieval.stages import NodeRetriever, Stage

R = TypeVar("R")

NodeKey: TypeAlias = tuple[str, int]
"""A node among those of several Documents: its uid, and its Document's number in the order they were first met in."""


@runtime_checkable
class Reading(Protocol):
    """A retriever that says which Documents it reads, so that several retrievers read one state of them."""

    @property
    def readers(self) -> list[Reader]:
        """Through which it reads its Documents."""
        ...

    def prepare(self) -> None:
        """Build what a question will need, before it begins to read."""
        ...


@dataclass(frozen=True, slots=True)
class Ranked:
    """What a retriever ranked, and the way to the nodes.

    Args:
        ranking: Keys with scores, best first. A higher score is a better one, whatever the retriever's own direction.
        read: From some of the keys, with scores, to their nodes, which carry those scores.
    """

    ranking: list[tuple[NodeKey, float]]
    read: Callable[[Sequence[tuple[NodeKey, float]]], dict[NodeKey, DocNode]]


class Numbers:
    """Numbers Documents, and nodes outside of any, in the order in which they are first met."""

    def __init__(self) -> None:
        self._known: list[object] = []

    def of(self, tree: object) -> int:
        """The number of a Document, by what stands for its tree."""
        for number, known in enumerate(self._known):  # they are few
            if known is tree:
                return number
        self._known.append(tree)
        return len(self._known) - 1

    def __len__(self) -> int:
        return len(self._known)

    def key(self, node: DocNode) -> NodeKey:
        """A node's key."""
        return node.uid, self.of(None if node.reader is None else node.reader.tree)


def check_query(query: Any) -> bool:
    """Whether there is anything to ask: False for a blank query.

    Raises:
        ConfigError: If it is no text.
    """
    if not isinstance(query, str):
        msg = f"The query is {query!r} ({type(query).__name__}); give a text."
        raise ConfigError(msg)
    return bool(query.strip())


def check_retrievers(what: str, retrievers: Sequence[Any]) -> None:
    """Refuse what is no retriever of nodes.

    Raises:
        ConfigError: If there is none, or one is no callable, or gives texts or dicts.
    """
    if not retrievers:
        msg = f"{what} got no retriever; give at least one, such as Retriever(docs, 'FineChunk', similarity='bm25')."
        raise ConfigError(msg)
    for one in retrievers:
        if not callable(one) or isinstance(one, type):
            msg = f"{what} got {one!r:.80}; give retrievers: callables (query, filters=None, topk=None) -> nodes."
            raise ConfigError(msg)
        if getattr(one, "output_format", None) is not None:
            msg = f"{what} got a retriever with output_format={one.output_format!r}; give one with output_format=None."
            raise ConfigError(msg)


def readers_of(retrievers: Iterable[object]) -> list[Reader]:
    """The readers of retrievers, as far as they tell: each Document's first one."""
    readers = [reader for one in retrievers if isinstance(one, Reading) for reader in one.readers]
    return list({id(reader.tree): reader for reader in reversed(readers)}.values())[::-1]


def prepare_all(retrievers: Iterable[object]) -> None:
    """Let retrievers build what a question will need."""
    for one in retrievers:
        if isinstance(one, Reading):
            one.prepare()


def read_together(retrievers: Sequence[object], read: Callable[[], R]) -> R:
    """What a read gives of one state of all Documents that retrievers tell of; see `consistent_read`."""
    prepare_all(retrievers)
    trees = [reader.tree for reader in readers_of(retrievers)]
    return consistent_read(trees, read) if trees else read()


def ranked(retriever: NodeRetriever, query: str, filters: FilterLike | None, topk: int, numbers: Numbers) -> Ranked:
    """What a retriever finds; a `Retriever`'s nodes are read only when they are asked for.

    Args:
        retriever: Any.
        query: A text that is not blank.
        filters: As in a call.
        topk: At most so many.
        numbers: Of the Documents met so far in this question.

    Raises:
        RetrievalError: If a callable returns something else than nodes.
    """
    if not isinstance(retriever, Retriever) or retriever.target is not None:
        return of_nodes(found(retriever, query, filters, topk), numbers, descends=descends(retriever))
    common = [numbers.of(reader.tree) for reader in retriever.readers]
    ranking = retriever.ranking(query, filters, topk)
    own: dict[NodeKey, Key] = {(key[0], common[key[1]]): key for key, _ in ranking}

    def read(wanted: Sequence[tuple[NodeKey, float]]) -> dict[NodeKey, DocNode]:
        nodes = retriever.nodes([(own[key], score) for key, score in wanted])
        return {(key[0], common[key[1]]): node for key, node in nodes.items()}

    sign = 1.0 if retriever.descends else -1.0
    return Ranked([((key[0], common[key[1]]), sign * score) for key, score in ranking], read)


def of_nodes(nodes: Iterable[DocNode], numbers: Numbers, *, descends: bool = True) -> Ranked:
    """Nodes as a ranking; the score of those without one is nan.

    Args:
        nodes: Best first.
        numbers: Of the Documents met so far in this question.
        descends: Whether a higher score is a better one.
    """
    listed = [(numbers.key(node), node) for node in nodes]
    by_key = dict(reversed(listed))  # of one node that comes twice, the first
    sign = 1.0 if descends else -1.0

    def read(wanted: Sequence[tuple[NodeKey, float]]) -> dict[NodeKey, DocNode]:
        return {key: by_key[key].with_score(score) for key, score in wanted}

    return Ranked([(key, math.nan if one.score is None else sign * one.score) for key, one in listed], read)


def found(retriever: NodeRetriever, query: str, filters: FilterLike | None, topk: int) -> list[DocNode]:
    """The nodes that a retriever returns, checked, and at most ``topk`` of them.

    Raises:
        RetrievalError: If it returns something else.
    """
    nodes: Any = retriever(query, filters=filters, topk=topk)
    if not isinstance(nodes, (list, tuple)) or not all(isinstance(node, DocNode) for node in nodes):
        msg = f"The retriever {name_of(retriever)} returned {nodes!r:.80}; a list of nodes is needed, best first."
        raise RetrievalError(msg)
    return list(nodes[:topk])


def descends(retriever: object) -> bool:
    """Whether a higher score is a better one: yes, unless the retriever says otherwise."""
    return bool(getattr(retriever, "descends", True))


def traced(retriever: NodeRetriever, query: str, filters: FilterLike | None, topk: int) -> Stage:
    """A retriever's own stages, or one leaf for a callable that records none."""
    trace = getattr(retriever, "trace", None)
    if callable(trace):
        stage: Stage = trace(query, filters=filters, topk=topk)
        return stage
    nodes = found(retriever, query, filters, topk)
    return Stage("retriever", name_of(retriever), tuple(nodes), retriever=retriever)


def name_of(retriever: object) -> str:
    """What a reader would call a retriever: a function's name, else its class."""
    name = getattr(retriever, "__name__", None)
    return name if isinstance(name, str) else type(retriever).__name__
