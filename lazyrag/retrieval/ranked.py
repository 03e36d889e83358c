"""What retrievers rank, before nodes are read; and several retrievers over one state of their Documents."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeGuard, TypeVar, runtime_checkable

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.errors import ConfigError
from lazyrag.retrieval.asking import Key
from lazyrag.retrieval.retriever import Retriever
from lazyrag.retrieval.stages import NodeRetriever, asked_nodes

R = TypeVar("R")

NodeKey: TypeAlias = tuple[str, int]
"""A node among those of several Documents: its uid, and its Document's number in the order they were first met in."""

OUTSIDE = -1
"""The number of nodes outside of any Document."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """What a retriever ranked, and the way to the nodes.

    Args:
        ranking: Keys with scores, best first. A higher score is a better one, whatever the retriever's own direction.
        read: From some of the keys, with scores, to their nodes, which carry those scores.
        stands_in: Whether some of its nodes are outside of any Document and stand for a Document's.
    """

    ranking: list[tuple[NodeKey, float]]
    read: Callable[[Sequence[tuple[NodeKey, float]]], dict[NodeKey, DocNode]]
    stands_in: bool = False


NOTHING = Ranked([], lambda _: {})
"""What stands for a retriever that is not asked."""


class Numbers:
    """Numbers Documents in the order in which they are first met.

    Args:
        trees: Of Documents that are met before any others.
    """

    def __init__(self, trees: Iterable[object] = ()) -> None:
        self._known: list[object] = []
        for tree in trees:
            self.of(tree)

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
        return node.uid, OUTSIDE if node.reader is None else self.of(node.reader.tree)


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


def check_weights(weights: Any, count: int) -> tuple[float, ...]:
    """Weights of retrievers.

    Args:
        weights: What was given.
        count: Of the retrievers.

    Raises:
        ConfigError: If they are not one number >= 0 for each, with a finite sum above 0.
    """
    given = weights.tolist() if hasattr(weights, "tolist") else weights  # numpy's arrays are no sequences
    listed = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else []
    if len(listed) != count or not all(map(is_weight, listed)) or not 0 < sum(map(float, listed)) < math.inf:
        msg = f"weights is {weights!r} for {count} retrievers; give one number >= 0 for each, not all 0."
        raise ConfigError(msg)
    return tuple(map(float, listed))


def is_weight(value: Any) -> TypeGuard[float]:
    """Whether a value is a number from 0 up, and finite."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 <= float(value) < math.inf


@runtime_checkable
class Movable(Protocol):
    """A retriever whose queries can be moved towards nodes."""

    def __call__(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> list[DocNode]:
        """See `NodeRetriever`."""
        ...

    @property
    def moves(self) -> bool:
        """Whether moving makes a difference."""
        ...

    def towards(self, nodes: Sequence[DocNode], weight: float = 0.7) -> Movable:
        """The same retriever, moved; see `Retriever.towards`."""
        ...

    def for_one_question(self) -> Movable:
        """The same retriever, which embeds a query once; see `Retriever.for_one_question`."""
        ...


def can_move(retriever: object) -> TypeGuard[Movable]:
    """Whether queries of a retriever can be moved towards nodes."""
    return not isinstance(retriever, type) and isinstance(retriever, Movable) and retriever.moves


def ranked(retriever: NodeRetriever, query: str, filters: FilterLike | None, topk: int, met: Numbers) -> Ranked:
    """What a retriever finds; a `Retriever`'s nodes are read only when they are asked for.

    Args:
        retriever: Any.
        query: A text that is not blank.
        filters: As in a call.
        topk: At most so many.
        met: Of the Documents met so far in this question.

    Raises:
        RetrievalError: If a callable returns something else than nodes.
    """
    if not isinstance(retriever, Retriever) or retriever.plan.target is not None:
        return of_nodes(asked_nodes(retriever, query, filters, topk)[:topk], met, descends=descends(retriever))
    asked = retriever.asked(query, filters, topk)
    common = [met.of(reader.tree) for reader in asked.readers]
    ranking = asked.best()
    own: dict[NodeKey, Key] = {(key[0], common[key[1]]): key for key, _ in ranking}

    def read(wanted: Sequence[tuple[NodeKey, float]]) -> dict[NodeKey, DocNode]:
        nodes = asked.nodes([(own[key], score) for key, score in wanted], asked.plan.found_by)
        return {(key[0], common[key[1]]): node for key, node in nodes.items()}

    sign = 1.0 if asked.plan.descends else -1.0
    return Ranked([((key[0], common[key[1]]), sign * score) for key, score in ranking], read)


def of_nodes(nodes: Iterable[DocNode], met: Numbers, *, descends: bool | None = True) -> Ranked:
    """Nodes as a ranking; the score of those without one is nan, and of all where they do not compare.

    Args:
        nodes: Best first.
        met: Of the Documents met so far in this question.
        descends: Whether a higher score is a better one; None where that cannot be told.
    """
    listed = [(met.key(node), node) for node in nodes]
    by_key = dict(reversed(listed))  # of one node that comes twice, the first
    sign = math.nan if descends is None else 1.0 if descends else -1.0

    def read(wanted: Sequence[tuple[NodeKey, float]]) -> dict[NodeKey, DocNode]:
        return {key: by_key[key].with_score(score) for key, score in wanted}

    return Ranked([(key, math.nan if one.score is None else sign * one.score) for key, one in listed], read)


def owners(keys: Iterable[NodeKey]) -> dict[str, int]:
    """By uid, the first Document that has a node of it.

    An index of texts under the uids of a Document's nodes, such as spec 003's `BM25Retriever`, finds those nodes: what
    is outside of any Document is the node that has its uid, if one of the keys says that there is one.
    """
    found: dict[str, int] = {}
    for uid, number in keys:
        if number != OUTSIDE:
            found[uid] = min(number, found.get(uid, number))
    return found


def joined(found: Sequence[Ranked]) -> list[Ranked]:
    """Rankings in which nodes outside of any Document are those that have their uids; see `owners`."""
    if not any(key[1] == OUTSIDE for one in found for key, _ in one.ranking):
        return list(found)
    owned = owners(key for one in found for key, _ in one.ranking)
    return [_standing_in(one, owned) for one in found]


def _standing_in(one: Ranked, owned: Mapping[str, int]) -> Ranked:
    new = {key: (key[0], owned[key[0]]) for key, _ in one.ranking if key[1] == OUTSIDE and key[0] in owned}
    old = {key: before for before, key in new.items()}

    def read(wanted: Sequence[tuple[NodeKey, float]]) -> dict[NodeKey, DocNode]:
        nodes = one.read([(old.get(key, key), score) for key, score in wanted])
        return {new.get(key, key): node for key, node in nodes.items()}

    return Ranked([(new.get(key, key), score) for key, score in one.ranking], read, bool(new)) if new else one


def descends(retriever: object) -> bool | None:
    """Whether a higher score of a retriever's nodes is a better one: yes, unless it says otherwise by ``descends``.

    None where that cannot be told: of a retriever whose nodes come from several that differ in it, or from functions
    that do not say whether the scores are theirs.
    """
    said = getattr(retriever, "descends", True)
    return None if said is None else bool(said)


def common_direction(retrievers: Iterable[object]) -> bool | None:
    """What `descends` says of all of them; None where they differ, or one cannot tell."""
    found = {descends(one) for one in retrievers}
    return found.pop() if len(found) == 1 else None


def add_new(nodes: dict[NodeKey, DocNode], more: Sequence[DocNode], numbers: Numbers) -> None:
    """Put nodes behind others, but for those that are there, or for which one of a Document stands."""
    known = owners(nodes)
    for node in more:
        uid, number = numbers.key(node)
        if (uid, OUTSIDE) not in nodes and not (number == OUTSIDE and uid in known):
            nodes.setdefault((uid, number), node)


def apart(lists: Sequence[Sequence[DocNode]]) -> list[list[DocNode]]:
    """The lists, each node only in the one where it ranks best, of equal ones the first."""
    numbers = Numbers()
    keyed = [[(numbers.key(node), node) for node in nodes] for nodes in lists]
    owned = owners(key for nodes in keyed for key, _ in nodes)
    keyed = [[(_own(key, owned), node) for key, node in nodes] for nodes in keyed]
    best: dict[NodeKey, tuple[int, int]] = {}
    for number, nodes in enumerate(keyed):
        for rank, (key, _) in enumerate(nodes):
            best[key] = min(best.get(key, (rank, number)), (rank, number))
    return [
        [node for rank, (key, node) in enumerate(nodes) if best[key] == (rank, number)]
        for number, nodes in enumerate(keyed)
    ]


def _own(key: NodeKey, owned: Mapping[str, int]) -> NodeKey:
    """The key of the node that one outside of any Document stands for; another key as it is."""
    uid, number = key
    return (uid, owned.get(uid, OUTSIDE)) if number == OUTSIDE else key
