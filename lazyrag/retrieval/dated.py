"""`AsOfRetriever`: searches what was in force on a day. `Recency`: prefers newer documents."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from lazyrag.data.fields import validate_day
from lazyrag.data.node import DocNode
from lazyrag.read.scope import Reader
from lazyrag.read.snapshot import Snapshot
from lazyrag.read.supersession import day_of, in_force
from lazyrag.retrieval.base import (
    DEFAULT_TOPK,
    BaseRetriever,
    LazyStage,
    LoadedStage,
    Query,
    check_retrievers,
)
from lazyrag.retrieval.stages import NodeRetriever, Stage, StageKind, callable_name, node_score
from lazyrag.text.editions import is_named
from lazyrag.validation import validate_number, without_none

_FETCHED_AT_LEAST = 20
_FETCHED_TIMES = 4
_MOST_FETCHED = 10_000


class AsOfRetriever(BaseRetriever[list[DocNode]]):
    """Searches with another retriever as of a day.

    Documents dated after the day are left out; those without a date stay. Where an edition has a
    hit that another one replaced by that day (see `lazyrag.read.superseded`), the best hit of the
    edition in force comes directly before it, with the same score, if it has one among four times
    as many hits, unless the query names the year or the version of the older one. So both are seen
    where they contradict each other; ``superseded_by`` in the metadata of the older hit is the
    edition in force.

    The date of a document is ``effective_date``, ``valid_from`` or ``date`` of its metadata; else
    what its file's name has (``lease-2024-05.pdf``); else what the beginning of its text gives as
    its date (``Effective date: 1 May 2024``, ``自2024年5月1日起施行``). A year or a month counts from
    its first day. At most 10,000 nodes are looked at.

    Args:
        retriever: A `Retriever`, a `HybridRetriever`, or another callable (query, filters=None,
            topk=None) -> nodes.
        as_of: The day, as `datetime.date` or ISO text.

    Raises:
        ConfigError: If the retriever cannot be called as one, or ``as_of`` is no day.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"fee-2021.md": "The fee is 10 euros", "fee-2024.md": "It is 12."})
        >>> retriever = Retriever(docs, "FineChunk", similarity="bm25")
        >>> [node.path for node in AsOfRetriever(retriever, "2023-12-31")("the fee of 12 euros")]
        ['fee-2021.md']
        >>> [node.path for node in AsOfRetriever(retriever, "2024-01-01")("the fee of 12 euros")]
        ['fee-2024.md', 'fee-2021.md']
    """

    def __init__(self, retriever: NodeRetriever, as_of: dt.date | str) -> None:
        [part] = check_retrievers("AsOfRetriever", [retriever])
        self._set_retrievers([part])
        self.as_of = validate_day("as_of", as_of)
        self._set_topk(part.own_topk or DEFAULT_TOPK)
        self.__name__ = callable_name(retriever)  # in traces

    @property
    def higher_is_better(self) -> bool | None:
        """As the retriever."""
        return self.retrievers[0].higher_is_better

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """Run the retriever until enough of its nodes are not dated after the day."""
        topk = self._limit(query)
        fetched = max(_FETCHED_AT_LEAST, _FETCHED_TIMES * topk)
        while True:
            stage = self.retrievers[0].run_part(query, snapshot, fetched)
            nodes = self._select(stage.nodes(), query.text)
            is_last = len(stage.nodes()) < fetched or fetched >= _MOST_FETCHED
            if is_last or len(nodes) >= topk:
                break
            fetched = min(_FETCHED_TIMES * fetched, _MOST_FETCHED)
        name = "as_of"
        settings = {name: self.as_of}
        last = LoadedStage("step", name, nodes, snapshot, inputs=(stage,), settings=settings)
        return last.cut(topk)

    def _select(self, nodes: Sequence[DocNode], question: str) -> list[DocNode]:
        """The nodes that are not dated after the day; before an older edition the one in force."""
        remaining = [node for node in nodes if _day(node) <= self.as_of]
        best: dict[tuple[object, str], DocNode] = {}
        for node in remaining:
            best.setdefault((node.reader, node.path), node)
        ordered: dict[DocNode, DocNode] = {}
        for node in remaining:
            path = node.path
            if isinstance(node.reader, Reader):
                path = in_force(node.reader, path, self.as_of)
            newer = best.get((node.reader, path), node)
            if not is_named(node.path, question):
                ordered.setdefault(newer, newer.with_score(node.score))
            is_old = path != node.path
            ordered.setdefault(node, node.with_metadata(superseded_by=path) if is_old else node)
        return list(ordered.values())


@dataclass(frozen=True, slots=True)
class Recency:
    """Chain step that adds a share for newer documents to the scores: ``weight`` times the best
    score for a document of the day ``as_of`` or later, half of that for one that is older by
    ``half_life``, and so on. Nothing for documents without a date; see `AsOfRetriever`.

    Scores depend on documents alone, never on the clock.

    Args:
        half_life: In days, above 0.
        weight: At least 0.
        as_of: From which day ages count, as `datetime.date` or ISO text. None: from the newest day
            among the nodes.

    Raises:
        ConfigError: If an argument is out of its range.

    Example:
        >>> from lazyrag import Document, RetrievalChain, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea-2021.md": "tea is up", "tea-2023.md": "tea is up"})
        >>> retriever = Retriever(docs, "FineChunk", similarity="bm25")
        >>> [node.path for node in RetrievalChain(retriever, Recency())("tea")]
        ['tea-2023.md', 'tea-2021.md']
    """

    half_life: float = 365
    weight: float = 0.2
    as_of: dt.date | str | None = None
    kind: ClassVar[StageKind] = "step"
    rescores: ClassVar[bool] = True
    descend: ClassVar[bool] = True

    def __post_init__(self) -> None:
        validate_number("half_life", self.half_life, "a number above 0", lambda days: days > 0)
        validate_number("weight", self.weight, "a number >= 0", lambda share: 0 <= share < math.inf)
        if self.as_of is not None:
            object.__setattr__(self, "as_of", validate_day("as_of", self.as_of))

    def __call__(self, nodes: Sequence[DocNode], query: str = "") -> list[DocNode]:  # noqa: ARG002
        """Return the nodes with their new scores, best first.

        Raises:
            RetrievalError: If a node has no score.
        """
        return _rescored(self._shares(nodes))

    def trace(self, stage: Stage, query: str) -> Stage:  # noqa: ARG002
        """As a call, with the share of each node."""
        shares = self._shares(stage.nodes)
        dated = _rescored({node: parts[1:] for node, parts in shares.items()})
        dates = Stage("step", "date", tuple(dated), (stage,))
        nodes = tuple(_rescored(shares))
        return Stage("fusion", "Recency", nodes, (stage, dates), shares, without_none(asdict(self)))

    def _shares(self, nodes: Iterable[DocNode]) -> dict[DocNode, tuple[float, ...]]:
        """For each node its score, and what its date adds."""
        scores = {node: node_score("Recency", node) for node in nodes}
        best = max(map(abs, scores.values()), default=0.0)
        days = {node: _day(node) for node in scores}
        last = str(self.as_of or max(days.values(), default=""))
        shares: dict[DocNode, tuple[float, ...]] = {}
        for node, score in scores.items():
            share = 0.0
            if day := days[node]:
                age = dt.date.fromisoformat(last) - dt.date.fromisoformat(day)
                share = self.weight * best * 0.5 ** (max(0, age.days) / self.half_life)
            shares[node] = score, share
        return shares


def _rescored(shares: Mapping[DocNode, tuple[float, ...]]) -> list[DocNode]:
    """Nodes with the sums of their shares as scores, best first."""
    nodes = [node.with_score(math.fsum(parts)) for node, parts in shares.items()]
    return sorted(nodes, key=lambda node: -node.score)


def _day(node: DocNode) -> str:
    """The ISO day of a node's document; "" for none, and for a node of no Document."""
    return day_of(node.reader, node.path) if isinstance(node.reader, Reader) else ""
