"""Why a node is not among those that a `Retriever` gave."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from lazyrag.data.filters import And, Condition, Filter, Not, Or, matches
from lazyrag.data.node import DocNode
from lazyrag.data.segment import Segment
from lazyrag.document.snapshot import LocalSnapshot, NodeKey, Snapshot
from lazyrag.retrieval.ranked import LazyStage, Query
from lazyrag.retrieval.search import Search, SearchRequest, TermSearch, TextSearch, VectorSearch
from lazyrag.retrieval.similarity import Similarity
from lazyrag.retrieval.stages import Cause, Reason
from lazyrag.retrieval.tracks import Tracks
from lazyrag.types import Fields

_TERMS_SHOWN = 12

Found: TypeAlias = tuple[LocalSnapshot, NodeKey, Segment]
"""A node, and the part of the snapshot that it was found in."""


class RankingRetriever(Protocol):
    """What is asked about the ranking: a `Retriever`."""

    group: str
    target: str | None
    search: Search
    similarity: Similarity

    def cut_off(self, embed_key: str | None) -> float:
        """The cut-off of a ranking; minus infinity for none."""

    def request(self, query: Query, snapshot: Snapshot, embed_key: str | None, topk: int) -> SearchRequest:
        """What its search is asked."""

    def ranking_name(self, ranked: LazyStage) -> str:
        """What a ranking is called."""


def missing(retriever: RankingRetriever, ranked: LazyStage, uid: str) -> Reason:
    """Why a node is not among those of a ranking; called inside the read in which the ranking was made.

    What cannot be seen through a restricted view does not exist for it.

    Args:
        retriever: What ranked.
        ranked: The ranking.
        uid: Of a node that the ranking did not give.
    """
    if ranked.query is None:
        raise AssertionError  # a ranking has one
    return _Missing(retriever, ranked, ranked.query, uid).reason()


def unmapped(retriever: RankingRetriever, last: LazyStage, uid: str) -> Reason:
    """Why a node is not among those that the hits of a stage were mapped to.

    Args:
        retriever: What mapped them.
        last: The hits.
        uid: Of a node that they were not mapped to.
    """
    tracks = Tracks(last.stage())
    leading = _leading(retriever, last, uid)
    uids = {one.uid for _, _, one in leading}
    found = {node.uid for stage in tracks.stages for node in stage.nodes} & uids  # by one embed key, and then cut
    if found:
        reasons = [tracks.reason(one) for one in sorted(found)]
        best = min(reasons, key=lambda one: math.inf if one.rank is None else one.rank)
        return replace(best, uid=uid, told=not_led(retriever.group, len(leading), best.told))
    reason = tracks.reason(uid)
    if reason.cause != "found":
        return reason
    target = str(retriever.target)
    told = f"It was found with rank {reason.rank}, and leads to no node of the target group {target!r}."
    return replace(reason, stage=target, told=told, cause="dropped")


def _held(ranked: LazyStage, uid: str) -> list[Found]:
    """The nodes with a uid, of every group."""
    return [(part, key, one) for part in ranked.snapshot.parts for key, one in part.find(uid)]


def _leading(retriever: RankingRetriever, ranked: LazyStage, uid: str) -> list[Found]:
    """The nodes of the searched group that would lead to a node of the target group."""
    found = []
    for part, _, one in _held(ranked, uid):
        if one.group == retriever.target:
            below = part.relating(retriever.group)(DocNode.from_segment(one, part.source))
            found += [(part, (led.uid, part.part, led.key), led) for led in below]
    return found


@dataclass(frozen=True, slots=True)
class _Missing:
    """See `missing`."""

    retriever: RankingRetriever
    ranked: LazyStage
    query: Query
    uid: str

    def reason(self) -> Reason:
        """The first of all reasons that holds."""
        if self.query.is_blank:
            return self._told("query", "The query is blank, and finds nothing.")
        held = _held(self.ranked, self.uid)
        if not held:
            where = "the Document" if len(self.ranked.snapshot.parts) == 1 else "the Documents"
            return self._told("unknown", f"There is no node {self.uid!r} in {where}.")
        group, target = self.retriever.group, self.retriever.target
        own = [found for found in held if found[2].group == group]
        if not own and target in [one.group for _, _, one in held]:
            own = _leading(self.retriever, self.ranked, self.uid)
            if not own:
                return self._told(
                    "group", f"It is of the target group {target!r}, and no node of {group!r} leads to it."
                )
            reason = self._of(own)
            return replace(reason, told=not_led(group, len(own), reason.told))
        if not own:
            told = f"It is a node of the group {held[0][2].group!r}, and this retriever searches {group!r}."
            return self._told("group", told)
        return self._of(own)

    def _of(self, own: Sequence[Found]) -> Reason:
        """Why none of some nodes of the searched group was given: the best reason."""
        wanted = [part.source.bind(self.query.parsed_filters()) for part, _, _ in own]
        left = [found for found, one in zip(own, wanted, strict=True) if one is None or matches(one, found[2].fields)]
        if left:
            return self._too_low(left) or self._unranked(left)
        last = wanted[-1]
        told = "The filter excludes it." if last is None else excluded(last, own[-1][2].fields)
        return Reason(self.uid, "filter", told, cause="filter")

    def _told(self, cause: Cause, told: str, rank: int | None = None, score: float | None = None) -> Reason:
        return Reason(self.uid, self.retriever.ranking_name(self.ranked), told, rank, score, cause=cause)

    def _too_low(self, own: Sequence[Found]) -> Reason | None:
        """The node's place in the ranking of all nodes; None if it has none."""
        retriever, embed_key, depth = self.retriever, self.ranked.embed_key, self.query.topk or 1
        snapshot = self.ranked.snapshot
        search, exact = retriever.search, ""
        if isinstance(search, VectorSearch) and search.mode != "exact":
            search, exact = replace(search, mode="exact"), " in the exact ranking"
        everything = max(depth, snapshot.size(retriever.group))
        ranking = search.rank(retriever.request(self.query, snapshot, embed_key, everything))
        keys = {key for _, key, _ in own}
        at = next((at for at, (key, _) in enumerate(ranking) if key in keys), None)
        if at is None:
            return None
        rank, score = at + 1, ranking[at][1]
        cut_off = retriever.cut_off(embed_key)
        if cut_off != -math.inf and retriever.similarity.is_worse(score, cut_off):
            told = f"Its score {score:.4g} is worse than similarity_cut_off={cut_off:.4g}."
            return Reason(self.uid, "similarity_cut_off", told, rank, score, cause="cut-off")
        if rank <= depth:
            told = f"Its rank is {rank}{exact}, and the search that was asked for missed it: index='default' does not."
        else:
            told = f"Its rank is {rank} of {len(ranking)}{exact}, and {depth} were asked for."
        return self._told("depth", told, rank, score)

    def _unranked(self, own: Sequence[Found]) -> Reason:
        """Why a node has no place in the ranking of all nodes."""
        search, embed_key = self.retriever.search, self.ranked.embed_key
        if isinstance(search, (TermSearch, TextSearch)):
            terms = list(dict.fromkeys(search.terms(self.query.text)))
            named = ", ".join(map(repr, terms[:_TERMS_SHOWN])) + (", ..." if len(terms) > _TERMS_SHOWN else "")
            if not terms:
                return self._told("query", "The query has no terms that could be looked for.")
            return self._told("terms", f"It shares no term with the query, whose terms are {named}.")
        if embed_key is not None and not any(embed_key in part.embeddings(one) for part, _, one in own):
            return self._told("embedding", f"It has no embedding under the key {embed_key!r}.")
        if isinstance(search, VectorSearch):
            return self._told("terms", "Its vector shares no dimension with the query's.")
        return self._told("terms", f"The similarity {self.retriever.similarity.name!r} gave it no score.")


def not_led(group: str, count: int, told: str) -> str:
    """Why a node of a target group was not reached, of the reason why the best node that leads there was not given.

    Example:
        >>> not_led("line", 2, "Its rank is 3 of 9, and 1 were asked for.")
        "No hit of 'line' leads to it. Of the best of the 2 nodes that would: its rank is 3 of 9, and 1 were asked for."
    """
    which = "the only node" if count == 1 else f"the best of the {count} nodes"
    return f"No hit of {group!r} leads to it. Of {which} that would: {told[:1].lower()}{told[1:]}"


def excluded(wanted: Filter, fields: Fields) -> str:
    """Which condition of a filter excludes a node, and what the node has there instead.

    Args:
        wanted: A bound filter that the fields do not satisfy.
        fields: The node's.

    Example:
        >>> excluded(And(Condition("year", "gt", 2000), Condition("author", "eq", "A")), {"year": 2004, "author": "B"})
        "The filter author == 'A' excludes it: its author is 'B'."
    """
    while isinstance(wanted, And):
        wanted = next(part for part in wanted.filters if not matches(part, fields))
    names = list(dict.fromkeys(_names(wanted)))
    has = [
        f"its {name} is {_shown(fields[name])}" if fields.get(name) is not None else f"it has no {name}"
        for name in names
    ]
    return f"The filter {filter_text(wanted)} excludes it{': ' if has else ''}{', '.join(has)}."


_SIGNS = {"eq": "==", "ne": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def filter_text(wanted: Filter) -> str:
    """A filter as people write it.

    Example:
        >>> filter_text(Condition("year", "in", [2003, 2004]) & ~Condition("author", "exists"))
        'year in [2003, 2004] and not (author exists)'
    """
    if isinstance(wanted, Condition):
        if wanted.op == "exists":
            return f"{wanted.field} exists" if wanted.value else f"{wanted.field} is missing"
        return f"{wanted.field} {_SIGNS.get(wanted.op, wanted.op)} {_shown(wanted.value)}"
    if isinstance(wanted, Not):
        return f"not ({filter_text(wanted.filter)})"
    if not wanted.filters:
        return "everything" if isinstance(wanted, And) else "nothing"
    word = " and " if isinstance(wanted, And) else " or "
    parts = [
        f"({filter_text(part)})" if isinstance(part, (And, Or)) and len(wanted.filters) > 1 else filter_text(part)
        for part in wanted.filters
    ]
    return word.join(parts)


def _shown(value: object) -> str:
    return repr(list(value) if isinstance(value, tuple) else value)


def _names(wanted: Filter) -> Iterator[str]:
    """The fields that a filter looks at."""
    if isinstance(wanted, Condition):
        yield wanted.field
    else:
        for part in (wanted.filter,) if isinstance(wanted, Not) else wanted.filters:
            yield from _names(part)
