"""`AsOfRetriever`: searches what was in force on a day, or marks what is not any more. `Recency`:
prefers newer documents.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from lazyrag.data.fields import validate_day
from lazyrag.data.node import DocNode
from lazyrag.read.scope import Reader
from lazyrag.read.snapshot import Snapshot
from lazyrag.read.supersession import day_of, find_superseding, mark_superseded
from lazyrag.retrieval.base import (
    DEFAULT_TOPK,
    LazyStage,
    LoadedStage,
    NodeList,
    Query,
    WrappingRetriever,
)
from lazyrag.retrieval.stages import NodeRetriever, Stage, StageKind, node_score
from lazyrag.text.dates import is_named
from lazyrag.types import DayLike
from lazyrag.validation import validate_number, validate_range, without_none

_FETCHED_AT_LEAST = 20
_FETCHED_TIMES = 4
_MOST_FETCHED = 10_000


class AsOfRetriever(WrappingRetriever):
    """Searches with another retriever as of a day.

    Documents dated after the day are left out; those without a date stay. Where an edition has a
    hit that another one replaced by that day (see `lazyrag.read.superseded`), the best hit of the
    edition in force comes directly before it, with the same score, if it has one among four times
    as many hits, unless the query names the year or the version of the older one. So both are seen
    where they contradict each other; ``superseded_by`` and ``superseded_reason`` in the metadata of
    the older hit are the edition in force and how that is known.

    Without a day all hits stay as they are, and older ones have this metadata.

    The date of a document is ``effective_date``, ``valid_from`` or ``date`` of its metadata; else
    what its file's name has (``lease-2024-05.pdf``); else what the beginning of its text gives as
    its date (``Effective date: 1 May 2024``, ``自2024年5月1日起施行``). A year or a month counts from
    its first day. At most 10,000 nodes are looked at.

    Args:
        retriever: A `Retriever`, a `HybridRetriever`, or another callable (query, filters=None,
            topk=None) -> nodes.
        as_of: The day, as `datetime.date` or ISO text; None for none.

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

    def __init__(self, retriever: NodeRetriever, as_of: DayLike) -> None:
        super().__init__(retriever)
        self.as_of = as_of if as_of is None else validate_day("as_of", as_of)
        self._set_topk(self.own_topk or DEFAULT_TOPK)

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """Run the retriever until enough of its nodes are not dated after the day."""
        if self.as_of is None:
            return self.retrievers[0].run(query, snapshot)
        topk = self._limit(query)
        fetched = max(_FETCHED_AT_LEAST, _FETCHED_TIMES * topk)
        while True:
            stage = self.retrievers[0].run_part(query, snapshot, fetched)
            nodes = _select(stage.nodes(), query.text, self.as_of)
            is_last = len(stage.nodes()) < fetched or fetched >= _MOST_FETCHED
            if is_last or len(nodes) >= topk:
                break
            fetched = min(_FETCHED_TIMES * fetched, _MOST_FETCHED)
        name = "as_of"
        settings = {name: self.as_of}
        last = LoadedStage("step", name, nodes, snapshot, inputs=(stage,), settings=settings)
        return last.cut(topk)

    def _render(self, ranked: LazyStage) -> Any:
        return self.mark(super()._render(ranked))

    def mark(self, nodes: Iterable[DocNode]) -> NodeList:
        """Nodes of a trace as the retriever returns them, with marks of those of older versions."""
        return NodeList(nodes if self.as_of else map(mark_superseded, nodes))


def _select(nodes: Sequence[DocNode], question: str, as_of: str) -> list[DocNode]:
    """The nodes that are not dated after the day; before an older edition the one in force."""
    remaining = [node for node in nodes if _day(node) <= as_of]
    best: dict[tuple[object, str], DocNode] = {}
    for node in remaining:
        best.setdefault((node.reader, node.path), node)
    ordered: dict[DocNode, DocNode] = {}
    for node in remaining:
        newest = find_superseding(node, as_of)
        newer = best.get((node.reader, newest.by)) if newest else None
        if newer is not None and not is_named(node.path, question):
            ordered.setdefault(newer, newer.with_score(node.score))
        ordered.setdefault(node, mark_superseded(node, as_of))
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
    as_of: DayLike = None
    kind: ClassVar[StageKind] = "step"
    rescores: ClassVar[bool] = True
    descend: ClassVar[bool] = True

    def __post_init__(self) -> None:
        validate_number("half_life", self.half_life, "a number above 0", lambda days: days > 0)
        validate_range("weight", self.weight, 0)
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
