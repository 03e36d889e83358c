"""Explanations: what became of nodes on their way through the stages of a retrieval."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, overload

from lazyrag.data.filters import And, Condition, Filter, FilterLike, Not, Or, matches, parse_filter
from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY, Segment
from lazyrag.document.snapshot import LocalSnapshot, NodeKey, Snapshot
from lazyrag.retrieval.similarity import Search, SearchRequest, Similarity, TermSearch, TextSearch, VectorSearch
from lazyrag.retrieval.stages import Cause, LazyStage, Query, Reason, Stage, StageKind, json_ready
from lazyrag.types import Fields


@dataclass(frozen=True, slots=True)
class StageSummary:
    """One stage of a retrieval.

    Args:
        number: From 1; every stage comes after those that it took nodes from.
        kind: What it does: ``"retriever"``, ``"fusion"``, ``"reranker"`` ...
        name: Which one it is.
        inputs: Numbers of the stages that it took nodes from.
        said: What it was set to.
        given: How many nodes it gave.
        dropped: How many of those that it got it left out.
        seconds: How long it took by itself.
    """

    number: int
    kind: StageKind
    name: str
    inputs: tuple[int, ...]
    said: Mapping[str, Any] = field(hash=False)
    given: int
    dropped: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Its fields, ready for JSON."""
        return {name: json_ready(getattr(self, name)) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a node stood in a stage.

    Args:
        stage: The stage's number.
        kind: The stage's.
        name: The stage's.
        uid: The node's: another one than the hit's, where the hit stands for it.
        rank: From 1; None where a retriever that was fused with others did not give it.
        score: What the stage gave it.
        share: What it added to the score of the fusion behind; None where none is. The shares add up to that score.
        shares: The same by the number of the fusion: more than one may have taken the stage's nodes, and ``share`` is
            what it added to the last of them.
    """

    stage: int
    kind: StageKind
    name: str
    uid: str
    rank: int | None
    score: float | None
    share: float | None = None
    shares: Mapping[int, float] = field(default_factory=dict, hash=False)

    def to_dict(self) -> dict[str, Any]:
        """Its fields, ready for JSON."""
        return {name: json_ready(getattr(self, name)) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class ExplainedHit:
    """Why one node of a result stands where it stands.

    Args:
        rank: Its place in the result, from 1.
        uid: The node's.
        score: Its final score; None where it has none.
        group: Its group.
        path: Its document.
        number: Its ordinal in its group and document.
        text: The beginning of its text, on one line.
        standings: Where it stood in each stage, retrievers first, with those of the nodes that it stands for.
        merged_from: Uids of the retrieved nodes that it stands for, apart from itself.
        shares: What each input of the last fusion added to the score there, by the input's name; empty where nothing
            was fused. Of inputs with one name the second is ``"name (2)"`` and so on.
        fused: The score that the shares add up to; None where nothing was fused.
        node: The node.
    """

    rank: int
    uid: str
    score: float | None
    group: str
    path: str
    number: int
    text: str
    standings: tuple[Standing, ...]
    merged_from: tuple[str, ...] = ()
    shares: Mapping[str, float] = field(default_factory=lambda: EMPTY, hash=False)
    fused: float | None = None
    node: DocNode | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        there = [one for one in self.standings if one.rank is not None and one.kind != "cut"]
        best = {one.stage: one for one in reversed(there)}  # of those that it stands for
        places = [f"{one.name} #{one.rank}{_valued(one)}" for one in reversed(best.values())]
        last = f"#{self.rank} {number_text(self.score)} {self.path} {self.group} {self.number}".rstrip()
        return f"{last}: {' > '.join(places)}" if places else last

    def to_dict(self) -> dict[str, Any]:
        """Its fields but for the node, ready for JSON."""
        plain = {name: json_ready(getattr(self, name)) for name in self.__slots__ if name not in ("standings", "node")}
        return {**plain, "standings": [one.to_dict() for one in self.standings]}


@dataclass(frozen=True, slots=True)
class DroppedNode:
    """A node that a stage left out.

    Args:
        stage: The stage's number.
        name: The stage's.
        uid: The node's.
        path: Its document.
        group: Its group.
        number: Its ordinal in its group and document.
        rank: Its place before, from 1: the best one, where several stages came before.
        score: Its score there.
    """

    stage: int
    name: str
    uid: str
    path: str
    group: str
    number: int
    rank: int
    score: float | None

    def to_dict(self) -> dict[str, Any]:
        """Its fields, ready for JSON."""
        return {name: json_ready(getattr(self, name)) for name in self.__slots__}


def number_text(value: float | None) -> str:
    """A score for people: four digits; ``-`` for none.

    Example:
        >>> number_text(0.0161290), number_text(None)
        ('0.01613', '-')
    """
    return "-" if value is None else f"{value:.4g}"


def _valued(one: Standing) -> str:
    score = "" if one.score is None else f" {number_text(one.score)}"
    return score if one.share is None else f"{score} (+{number_text(one.share)})"


class Tracks:
    """A tree of stages, numbered from 1, each after its inputs.

    Args:
        last: The last stage.
    """

    def __init__(self, last: Stage) -> None:
        self.stages = _inputs_first(last)
        self.last = last
        self._numbers = {id(stage): number for number, stage in enumerate(self.stages, start=1)}
        self._ranks = {id(stage): _ranks(stage.nodes) for stage in self.stages}
        self._scores = {id(stage): _scores(stage.nodes) for stage in self.stages}
        self._carriers: dict[tuple[int, str], list[DocNode]] = {}
        self._reasons: dict[tuple[int, str], Reason] = {}
        self._given = {id(stage): self._by_uid(stage) for stage in self.stages}

    def number(self, stage: Stage) -> int:
        """A stage's number."""
        return self._numbers[id(stage)]

    def rank(self, stage: Stage, node: DocNode) -> int | None:
        """Where a node stands in a stage, from 1; None where it does not."""
        return self._ranks[id(stage)].get(node)

    def score(self, stage: Stage, node: DocNode) -> float | None:
        """What a stage gave a node."""
        return self._scores[id(stage)].get(node)

    def origins(self, stage: Stage, node: DocNode) -> list[DocNode]:
        """The nodes of a stage's inputs that one of its nodes stands for: itself, and those in whose place it came."""
        given = self._given[id(stage)]
        found = [node] if node in given.get(node.uid, ()) else []
        if node in stage.origins:
            found += stage.origins[node]
        else:
            found += [one for uid in node.merged_from for one in given.get(uid, ()) if _are_of_one_tree(one, node)]
        return list(dict.fromkeys(found))

    def dropped(self, stage: Stage) -> list[DocNode]:
        """The nodes of a stage's inputs that none of its nodes stands for."""
        kept = {origin for node in stage.nodes for origin in self.origins(stage, node)}
        given = dict.fromkeys(node for one in stage.inputs for node in one.nodes)
        return [node for node in given if node not in kept]

    def carriers(self, stage: Stage, uid: str) -> list[DocNode]:
        """The nodes of a stage that have a uid or stand for a node which has it, in the stage's order."""
        known = self._carriers.get((id(stage), uid))
        if known is None:
            before = {node for one in stage.inputs for node in self.carriers(one, uid)}
            known = self._carriers[id(stage), uid] = [
                node
                for node in stage.nodes
                if node.uid == uid
                or uid in node.merged_from  # a neighbour that a window brought need not have been among the inputs
                or (before and not before.isdisjoint(self.origins(stage, node)))
            ]
        return known

    def best(self, stages: Sequence[Stage], nodes: Sequence[DocNode]) -> tuple[Stage, DocNode, int] | None:
        """Where one of some nodes stands best among some stages: there, which, at which rank."""
        places = [
            (rank, number, stage, node)
            for number, stage in enumerate(stages)
            for node in nodes
            if (rank := self.rank(stage, node)) is not None
        ]
        if not places:
            return None
        rank, _, stage, node = min(places, key=lambda place: place[:2])
        return stage, node, rank

    def reason(self, uid: str) -> Reason:
        """What became of a node: its place in the result, what stands for it there, or the stage that dropped it."""
        carriers = self.carriers(self.last, uid)
        own = [node for node in carriers if node.uid == uid]
        if own:
            rank, score = self.rank(self.last, own[0]), self.score(self.last, own[0])
            return Reason(uid, "result", f"It is in the result at rank {rank}.", rank, score, cause="found")
        if carriers:
            return self._merged(self.last, uid, carriers[0])
        return self._lost(self.last, uid)

    def _merged(self, stage: Stage, uid: str, carrier: DocNode) -> Reason:
        """The reason for a node for which another one stands: the stage where that came about."""
        rank = self.rank(self.last, carrier)
        place = None
        while place is None:
            before = [one for one in stage.inputs if self.carriers(one, uid)]
            place = self.best(before, [node for one in before for node in one.nodes if node.uid == uid])
            if place is None and not before:
                break
            stage = stage if place is not None else before[0]
        told = f"The {carrier.group or 'new'} node {carrier.uid} stands for it in the result, at rank {rank}."
        if place is None:
            return Reason(uid, stage.name, told, cause="merged")
        return Reason(uid, stage.name, told, place[2], self.score(place[0], place[1]), cause="merged")

    def _lost(self, stage: Stage, uid: str) -> Reason:
        """The reason for a node that a stage did not give; worked out once, as two stages may share an input."""
        known = self._reasons.get((id(stage), uid))
        if known is None:
            known = self._reasons[id(stage), uid] = self._reason_of(stage, uid)
        return known

    def _reason_of(self, stage: Stage, uid: str) -> Reason:
        if stage.why is not None:
            return stage.why(uid)
        before = [(one, self.carriers(one, uid)) for one in stage.inputs]
        place = self.best(stage.inputs, [node for _, nodes in before for node in nodes])
        if place is not None:
            where, node, rank = place
            score = self.score(where, node)
            told = f"{_told(stage)} dropped it: it came with rank {rank} of {len(where.nodes)} from {where.name}"
            told += "." if score is None else f", its score was {score:.4g}."
            if node.uid != uid:
                told += f" The node {node.uid} stood for it there."
            return Reason(uid, stage.name, told, rank, score)
        if len(before) == 1:
            return self._lost(stage.inputs[0], uid)
        if before:
            told = f"None of the {len(before)} inputs of {stage.name} gave it."
            reasons = tuple(dict.fromkeys(self._lost(one, uid) for one in stage.inputs))
            if len(reasons) == 1:
                return reasons[0]
            return Reason(uid, stage.name, told, inputs=reasons, cause="inputs")
        return Reason(uid, stage.name, f"{stage.name} did not give it.", cause="untold")

    def _by_uid(self, stage: Stage) -> dict[str, dict[DocNode, None]]:
        """The nodes of a stage's inputs, by uid."""
        found: dict[str, dict[DocNode, None]] = {}
        for one in stage.inputs:
            for node in one.nodes:
                found.setdefault(node.uid, {})[node] = None
        return found


def _inputs_first(last: Stage) -> list[Stage]:
    """All stages, each once and after its inputs: two may share an input."""
    found: dict[int, Stage] = {}
    open_ones = [last]
    while open_ones:
        stage = open_ones[-1]
        below = [] if id(stage) in found else [one for one in stage.inputs if id(one) not in found]
        if below:
            open_ones += reversed(below)
        else:
            found.setdefault(id(stage), open_ones.pop())
    return list(found.values())


def _ranks(nodes: Sequence[DocNode]) -> dict[DocNode, int]:
    ranks: dict[DocNode, int] = {}
    for rank, node in enumerate(nodes, start=1):
        ranks.setdefault(node, rank)
    return ranks


def _scores(nodes: Sequence[DocNode]) -> dict[DocNode, float | None]:
    scores: dict[DocNode, float | None] = {}
    for node in nodes:
        scores.setdefault(node, node.score)
    return scores


def _are_of_one_tree(first: DocNode, second: DocNode) -> bool:
    trees = [None if node.reader is None else node.reader.tree for node in (first, second)]
    return trees[0] is trees[1]


def _told(stage: Stage) -> str:
    """A stage as people call it: ``topk=3``, ``rrf (k=60)``."""
    if stage.name in stage.said:
        return f"{stage.name}={stage.said[stage.name]!r}"
    said = ", ".join(f"{name}={value!r}" for name, value in stage.said.items())
    return f"{stage.name} ({said})" if said else stage.name


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


_WIDTH = 100
_DROPPED_SHOWN = 3
_UIDS_SHOWN = 3
_SILENT = ("cut",)  # what they do to hits is nothing: they drop others


def rendered(
    query: str,
    filters: FilterLike | None,
    hits: Sequence[ExplainedHit],
    stages: Sequence[StageSummary],
    dropped: Sequence[DroppedNode],
) -> str:
    """The hits with a column for each stage, then the stages with what they dropped."""
    parsed = parse_filter(filters)
    head = f"query: {_line(query)}"
    if parsed is not None:
        head += f"\nfilter: {filter_text(parsed)}"
    parts = [head, _hits(hits, stages) if hits else "no hits", _stages(query, stages, dropped)]
    return "\n\n".join(parts)


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Rows as lines with aligned columns.

    Args:
        rows: Of equal length.
        right: Columns that are moved to the right.

    Example:
        >>> table([["茶", "1"], ["tea", "10"]], right=[1])
        ['茶    1', 'tea  10']
    """
    widths = [max(map(text_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for at, (cell, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - text_width(cell))
            cells.append(space + cell if at in right else cell + space)
        lines.append("  ".join(cells).rstrip())
    return lines


def text_width(text: str) -> int:
    """How many columns of a terminal a text takes: two for wide characters, none for combining ones.

    Example:
        >>> text_width("绿茶 tea")
        8
    """
    return sum(map(_character_width, text))


def clipped(text: str, width: int) -> str:
    """A text cut to a number of columns, with an ellipsis where something is cut.

    Example:
        >>> clipped("绿茶和红茶", 7)
        '绿茶...'
    """
    if text_width(text) <= width:
        return text
    taken, kept = 3, []
    for character in text:
        taken += _character_width(character)
        if taken > width:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "..."


def _character_width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _line(text: str) -> str:
    """A text on one line, without what steers a terminal."""
    return "".join(one if one.isprintable() else " " for one in " ".join(text.split()))


def _hits(hits: Sequence[ExplainedHit], stages: Sequence[StageSummary]) -> str:
    shown = [stage for stage in stages if stage.kind not in _SILENT]
    rows = [["#", "score", "node", *(f"{stage.number} {stage.name}" for stage in shown)]]
    rows += [
        [str(hit.rank), number_text(hit.score), _node(hit), *(_cell(hit, stage) for stage in shown)] for hit in hits
    ]
    head, *lines = table(rows, right=[0, 1])
    indent = " " * 4
    out = [head]
    for hit, line in zip(hits, lines, strict=True):
        out += [line, indent + clipped(_line(hit.text), _WIDTH - len(indent))]
        if hit.merged_from:
            named = ", ".join(hit.merged_from[:_UIDS_SHOWN])
            more = len(hit.merged_from) - _UIDS_SHOWN
            out.append(f"{indent}stands for {named}{f' and {more} more' if more > 0 else ''}")
    return "\n".join(out)


def _node(one: ExplainedHit | DroppedNode) -> str:
    """A node as people would name it."""
    return f"{clipped(_line(one.path), 40)} {_line(one.group)} {one.number}" if one.path else one.uid


def _cell(hit: ExplainedHit, stage: StageSummary) -> str:
    """A hit in a stage: rank, score, share; the best of those that it stands for."""
    there = [one for one in hit.standings if one.stage == stage.number]
    ranked = [one for one in there if one.rank is not None]
    if not ranked:
        return "-"
    best = ranked[0]
    cell = f"#{best.rank}" if best.score is None else f"#{best.rank} {number_text(best.score)}"
    if best.share is not None:
        cell += f" (+{number_text(best.share)})"
    return cell if len(ranked) == 1 else f"{cell} and {len(ranked) - 1} more"


def _stages(query: str, stages: Sequence[StageSummary], dropped: Sequence[DroppedNode]) -> str:
    rows = [["stage", "from", "gave", "dropped", "ms", "set to"]]
    for stage in stages:
        told = {name: value for name, value in stage.said.items() if (name, value) != ("query", query)}
        said = ", ".join(f"{name}={_line(str(json_ready(value)))}" for name, value in told.items())
        inputs = " ".join(map(str, stage.inputs)) or "-"
        counts = [str(stage.given), str(stage.dropped), f"{1000 * stage.seconds:.1f}"]
        rows.append([f"{stage.number} {stage.name}", inputs, *counts, clipped(said, _WIDTH)])
    lines = table(rows, right=[2, 3, 4])
    for stage in stages:
        lost = [one for one in dropped if one.stage == stage.number]
        if lost:
            named = [f"#{one.rank} {number_text(one.score)} {_node(one)}" for one in lost[:_DROPPED_SHOWN]]
            more = f"; and {len(lost) - len(named)} more" if len(lost) > len(named) else ""
            lines.append(f"{stage.number} {stage.name} dropped {'; '.join(named)}{more}")
    return "\n".join(lines)


_TEXT_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Explanation(Sequence[ExplainedHit]):
    """Why the nodes of a result stand where they stand: a sequence of its hits, best first.

    ``str(explanation)`` is a table for people; ``str(explanation[0])`` is one line for one hit.

    Args:
        query: What was asked.
        filters: The filter that was in force; None for none.
        hits: The nodes of the result, each with its standing in every stage.
        stages: The stages, each after those that it took nodes from; the last one gave the result.
        dropped: What each stage left out, with the rank that it had before, stage by stage.
        seconds: How long all of it took, the explaining left out.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea": "green tea", "coffee": "no leaves"})
        >>> explanation = Retriever(docs, "FineChunk", similarity="bm25").explain("tea")
        >>> [(hit.rank, hit.path) for hit in explanation], [stage.name for stage in explanation.stages]
        ([(1, 'tea')], ['bm25'])
    """

    query: str
    filters: FilterLike | None = field(hash=False)
    hits: tuple[ExplainedHit, ...]
    stages: tuple[StageSummary, ...]
    dropped: tuple[DroppedNode, ...]
    seconds: float

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, index: int) -> ExplainedHit: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ExplainedHit]: ...
    def __getitem__(self, index: int | slice) -> ExplainedHit | Sequence[ExplainedHit]:
        return self.hits[index]

    def __str__(self) -> str:
        return rendered(self.query, self.filters, self.hits, self.stages, self.dropped)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON can hold it: numbers that are none as ``"nan"``, ``"inf"``, ``"-inf"``, filters as text."""
        return {
            "query": self.query,
            "filters": None if self.filters is None else _filter_text(self.filters),
            "seconds": self.seconds,
            "hits": [one.to_dict() for one in self.hits],
            "stages": [one.to_dict() for one in self.stages],
            "dropped": [one.to_dict() for one in self.dropped],
        }

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as JSON, every language's letters as they are.

        Args:
            indent: How far lines are moved in; None for one line.
        """
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)


def explained(last: Stage, query: str, filters: FilterLike | None = None) -> Explanation:
    """What a trace says of each node.

    Args:
        last: The last stage; nothing is read that the stages do not hold.
        query: What was asked.
        filters: The filter that was in force.
    """
    tracks = Tracks(last)
    dropped = {tracks.number(stage): _dropped(tracks, stage) for stage in tracks.stages}
    return Explanation(
        query,
        filters,
        tuple(_hit(tracks, rank, node) for rank, node in enumerate(tracks.last.nodes, start=1)),
        tuple(_summary(tracks, stage, len(dropped[tracks.number(stage)])) for stage in tracks.stages),
        tuple(one for some in dropped.values() for one in some),
        math.fsum(stage.seconds for stage in tracks.stages),
    )


def _filter_text(filters: FilterLike) -> str | None:
    parsed = parse_filter(filters)
    return None if parsed is None else filter_text(parsed)


def _summary(tracks: Tracks, stage: Stage, dropped: int) -> StageSummary:
    return StageSummary(
        tracks.number(stage),
        stage.kind,
        stage.name,
        tuple(map(tracks.number, stage.inputs)),
        stage.said,
        len(stage.nodes),
        dropped,
        stage.seconds,
    )


def _dropped(tracks: Tracks, stage: Stage) -> list[DroppedNode]:
    found = []
    for node in tracks.dropped(stage):
        place = tracks.best(stage.inputs, [node])
        if place is not None:
            where, _, rank = place
            told = tracks.number(stage), stage.name, node.uid, node.path, node.group, node.number
            found.append(DroppedNode(*told, rank, tracks.score(where, node)))
    return sorted(found, key=lambda one: one.rank)


def _hit(tracks: Tracks, rank: int, node: DocNode) -> ExplainedHit:
    walk = _Walk(tracks)
    walk.follow(node)
    standings = walk.standings()
    found = [one.uid for one in standings if one.uid != node.uid and not tracks.stages[one.stage - 1].inputs]
    return ExplainedHit(
        rank,
        node.uid,
        node.score,
        node.group,
        node.path,
        node.number,
        " ".join(node.get_text()[: 2 * _TEXT_SHOWN].split())[:_TEXT_SHOWN],
        standings,
        tuple(dict.fromkeys(found)),
        walk.shares,
        walk.fused,
        node,
    )


class _Walk:
    """The way of one hit, from the result back to the retrievers.

    Args:
        tracks: The stages.
    """

    def __init__(self, tracks: Tracks) -> None:
        self._tracks = tracks
        self._seen: dict[tuple[int, DocNode], Standing] = {}
        self.shares: dict[str, float] = {}
        self.fused: float | None = None

    def standings(self) -> tuple[Standing, ...]:
        """Where the hit, and what it stands for, stood in each stage, in the stages' order."""
        return tuple(sorted(self._seen.values(), key=lambda one: (one.stage, one.rank or math.inf)))

    def follow(self, hit: DocNode) -> None:
        """Note where a hit stands in each stage, and what it stands for; a stage that several took once."""
        nodes: dict[int, dict[DocNode, None]] = {id(self._tracks.last): {hit: None}}
        under_fusion: set[int] = set()
        for stage in reversed(self._tracks.stages):
            there = [node for node in nodes.get(id(stage), ()) if self._tracks.rank(stage, node) is not None]
            shared = False
            for node in there:
                self._note(stage, node)
                shared |= self._note_shares(stage, node, hit, is_last=id(stage) not in under_fusion)
            if shared or id(stage) in under_fusion:
                under_fusion.update(map(id, stage.inputs))
            before = [origin for node in there for origin in self._best_first(stage, node)]
            for one in stage.inputs:
                nodes.setdefault(id(one), {}).update(dict.fromkeys(before))

    def _best_first(self, stage: Stage, node: DocNode) -> list[DocNode]:
        """What a node stands for: the one whose score it took first."""
        origins = self._tracks.origins(stage, node)
        places = {one: self._tracks.best(stage.inputs, [one]) for one in origins}
        return sorted(origins, key=lambda one: math.inf if (place := places[one]) is None else place[2])

    def _note(self, stage: Stage, node: DocNode, *, given: bool = True) -> Standing:
        key = self._tracks.number(stage), node
        known = self._seen.get(key)
        if known is None:
            rank = self._tracks.rank(stage, node) if given else None
            score = self._tracks.score(stage, node) if given else None
            known = self._seen[key] = Standing(key[0], stage.kind, stage.name, node.uid, rank, score)
        return known

    def _note_shares(self, stage: Stage, node: DocNode, hit: DocNode, *, is_last: bool) -> bool:
        """Note what each input of a fusion added to a node's score; whether it is one.

        The hit's own are those of a last fusion, and of the best node there; where several stand side by side, of one
        that gave the hit its score.
        """
        shares = _shares_of(stage, node)
        if shares is None:
            return False
        number, score = self._tracks.number(stage), self._tracks.score(stage, node)
        sources = [_uncut(one) for one in stage.inputs]
        added: dict[int, list[float]] = {}
        for one, source, share in zip(stage.inputs, sources, shares, strict=True):
            standing = self._note(source, node, given=self._tracks.rank(one, node) is not None)
            parts = added.setdefault(standing.stage, [])
            parts.append(share)
            by_fusion = {**standing.shares, number: math.fsum(parts)}
            self._seen[standing.stage, node] = replace(standing, share=by_fusion[max(by_fusion)], shares=by_fusion)
        if is_last and (self.fused is None or self.fused != hit.score == score):
            self.fused = score
            self.shares = dict(zip(_stage_names(sources), shares, strict=True))
        return True


def _shares_of(stage: Stage, node: DocNode) -> tuple[float, ...] | None:
    """What each input added to a node's score."""
    shares: Mapping[Any, tuple[float, ...]] = stage.shares
    return shares.get(node, shares.get(node.uid))


def _uncut(stage: Stage) -> Stage:
    """The stage whose nodes were cut: a cut is nobody's name."""
    while stage.kind == "cut" and len(stage.inputs) == 1:
        stage = stage.inputs[0]
    return stage


def _stage_names(stages: Sequence[Stage]) -> list[str]:
    """The stages' names, each once: a second ``bm25`` is ``bm25 (2)``."""
    counts: dict[str, int] = {}
    names = []
    for stage in stages:
        counts[stage.name] = count = counts.get(stage.name, 0) + 1
        names.append(stage.name if count == 1 else f"{stage.name} ({count})")
    return names
