"""Explanations: how each node of a result passed through the stages of a retrieval, and where
others were dropped.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

from lazyrag.data.encoding import to_dict
from lazyrag.data.filters import And, Condition, Filter, FilterLike, Not, Or, parse_filter
from lazyrag.data.node import DocNode
from lazyrag.data.result import supersession_text
from lazyrag.data.segment import EMPTY
from lazyrag.errors import count
from lazyrag.read.supersession import find_superseding
from lazyrag.retrieval.stages import JsonRecord, Reason, Stage, StageKind
from lazyrag.text.question_parts import find_coverage
from lazyrag.types import JsonObject, Keywords, Metadata

_WIDTH = 100
_TEXT_SHOWN = 200
_DROPPED_SHOWN = 3
_UIDS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class StageSummary(JsonRecord):
    """One stage of a retrieval.

    Args:
        number: From 1; every stage comes after its inputs.
        kind: What it does: ``"retriever"``, ``"fusion"``, ``"reranker"`` ...
        name: Its name.
        inputs: Numbers of the stages whose nodes it took.
        settings: Its settings.
        given: How many nodes it returned.
        dropped: How many nodes of its inputs it dropped.
        seconds: Its duration without its inputs.
    """

    number: int
    kind: StageKind
    name: str
    inputs: tuple[int, ...]
    settings: Keywords = field(hash=False)
    given: int
    dropped: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Standing(JsonRecord):
    """Rank and score of a node in a stage.

    Args:
        stage: Number of the stage.
        kind: Of the stage.
        name: Of the stage.
        uid: Of the node: not the hit's uid where the hit represents another node.
        rank: From 1; None where a retriever of a fusion did not return it.
        score: Its score in the stage.
        share: What it added to the score of the fusion behind; None without one. Contributions add
            up to it.
        contributions: The same by the number of the fusion: several may have taken the stage's
            nodes, and ``share`` is what it added to the last of them.
    """

    stage: int
    kind: StageKind
    name: str
    uid: str
    rank: int | None
    score: float | Any  # None is the exception, see `DocNode.score`
    share: float | None = None
    contributions: Mapping[int, float] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        score = "" if self.score is None else f" {number_text(self.score)}"
        share = "" if self.share is None else f" (+{number_text(self.share)})"
        place = "not returned" if self.rank is None else f"#{self.rank}"
        return f"{place}{score}{share}"


@dataclass(frozen=True, slots=True)
class ExplainedHit(JsonRecord):
    """Why a node of a result has its rank.

    Args:
        rank: Its rank in the result, from 1.
        uid: Of the node.
        score: Its final score; None where it has none.
        group: Its group.
        path: Its document.
        number: Its ordinal in its group and document.
        text: The beginning of its text, on one line.
        merged_from: Uids of the other retrieved nodes that it represents.
        contributions: What each input of the last fusion added to its score there, by the input's
            name; empty without a fusion. Of inputs with one name the second is ``"name (2)"`` and
            so on.
        fused: The score that the contributions add up to; None without a fusion.
        standings: Its standing in each stage, retrievers first, with those of the nodes that it
            represents.
        node: The node.
        superseded: What replaces its document in the end, with the names that the metadata of a hit
            has; {} for nothing. With ``as_of`` a hit may have an earlier version there. See
            `lazyrag.read.superseded`.
    """

    rank: int
    uid: str
    score: float | Any
    group: str
    path: str
    number: int
    text: str
    merged_from: tuple[str, ...] = ()
    contributions: Mapping[str, float] = field(default_factory=lambda: EMPTY, hash=False)
    fused: float | None = None
    standings: tuple[Standing, ...] = ()
    node: DocNode | Any = field(default=None, compare=False, repr=False)
    superseded: Metadata = field(default_factory=lambda: EMPTY, hash=False, repr=False)

    @property
    def superseded_by(self) -> str:
        """The document that replaces its one; "" for none."""
        return str(self.superseded.get("superseded_by", ""))

    def to_dict(self) -> JsonObject:
        """Return its fields, ready for JSON; ``superseded_by`` and what else is about it only where
        there is such a document.
        """
        return {**JsonRecord.to_dict(self), **self.superseded}

    def __str__(self) -> str:
        there = [
            standing
            for standing in self.standings
            if standing.rank is not None and standing.kind != "cut"
        ]
        # of the nodes that it represents
        best = {standing.stage: standing for standing in reversed(there)}
        standings = [f"{standing.name} {standing}" for standing in reversed(best.values())]
        location = f"{self.path} {self.group} {self.number}"
        last = f"#{self.rank} {number_text(self.score)} {location}".rstrip()
        if standings:
            last += f": {' > '.join(standings)}"
        return "; ".join(filter(None, (last, supersession_text(self.superseded))))


@dataclass(frozen=True, slots=True)
class DroppedNode(JsonRecord):
    """A node that a stage dropped.

    Args:
        stage: Number of the stage.
        name: Of the stage.
        uid: Of the node.
        path: Its document.
        group: Its group.
        number: Its ordinal in its group and document.
        rank: Its rank before, from 1: the best one, where several stages came before.
        score: Its score there.
    """

    stage: int
    name: str
    uid: str
    path: str
    group: str
    number: int
    rank: int
    score: float | Any


@dataclass(frozen=True, slots=True)
class Explanation(Sequence[ExplainedHit]):
    """Why the nodes of a result have their ranks: a sequence of its hits, best first.

    ``str(explanation)`` is a table for people; ``str(explanation[0])`` is one line for one hit.

    Args:
        query: The query.
        filters: The filter of the call; None for none.
        hits: The nodes of the result, each with its standing in every stage.
        stages: The stages, each after its inputs; the last one gave the result.
        dropped: The nodes that each stage dropped, with their rank before, stage by stage.
        seconds: Duration of the call, without the explaining.
        parts: Of a question with several parts: by part the ranks of the hits that cover it, which
            have more than half of the words by which it differs from the other parts.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea": "green tea", "coffee": "no leaves"})
        >>> explanation = Retriever(docs, "FineChunk", similarity="bm25").explain("tea")
        >>> [(hit.rank, hit.path) for hit in explanation]
        [(1, 'tea')]
        >>> [stage.name for stage in explanation.stages]
        ['bm25']
    """

    query: str
    filters: FilterLike | None = field(hash=False)
    hits: tuple[ExplainedHit, ...]
    stages: tuple[StageSummary, ...]
    dropped: tuple[DroppedNode, ...]
    seconds: float
    parts: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, index: int) -> ExplainedHit: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ExplainedHit]: ...
    def __getitem__(self, index: int | slice) -> ExplainedHit | Sequence[ExplainedHit]:
        return self.hits[index]

    def __str__(self) -> str:
        filters = self._filter_text()
        head = f"query: {_line(self.query)}" + ("" if filters is None else f"\nfilter: {filters}")
        hits = _hit_table(self.hits, self.stages) if self.hits else "no hits"
        parts = [["covered by", "part"]]
        for part, ranks in self.parts.items():
            parts.append([", ".join(map(str, ranks)) or "nothing", part])
        tables = [hits, "\n".join(_table(parts, right=[])), _stage_table(self)]
        return "\n\n".join([head, *(tables if self.parts else tables[::2])])

    def __repr__(self) -> str:
        stages = " > ".join(stage.name for stage in self.stages)
        return f"<Explanation of {self.query!r}: {count(len(self.hits), 'hit')} of {stages}>"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre style='font-family: monospace'>{escape(str(self))}</pre>"

    def _filter_text(self) -> str | None:
        parsed = parse_filter(self.filters)
        return None if parsed is None else filter_text(parsed)

    def to_dict(self) -> JsonObject:
        """Return everything as JSON types, see `lazyrag.data.encoding.to_dict`; filters as text,
        and ``parts`` only of a question that has several.
        """
        return {
            "query": self.query,
            "filters": self._filter_text(),
            "seconds": self.seconds,
            "hits": to_dict(self.hits),
            "stages": to_dict(self.stages),
            "dropped": to_dict(self.dropped),
            **({"parts": to_dict(self.parts)} if self.parts else {}),
        }

    def to_json(self, indent: int | None = None) -> str:
        """Return `to_dict` as JSON text, with the letters of all languages as they are.

        Args:
            indent: Spaces of indentation; None for one line.
        """
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)


def build_explanation(last: Stage, query: str, filters: FilterLike | None = None) -> Explanation:
    """Explain a trace.

    Args:
        last: The last stage.
        query: The query.
        filters: The filter of the call.
    """
    tracks = Tracks(last)
    hits = [_hit(tracks, rank, node) for rank, node in enumerate(last.nodes, start=1)]
    summaries = []
    all_dropped = []
    parts = ()
    for number, stage in enumerate(tracks.stages, start=1):
        if stage.kind == "queries":
            parts = stage.settings.get("parts", ())
        dropped = _dropped(tracks, stage)
        all_dropped += dropped
        summaries.append(
            StageSummary(
                number,
                stage.kind,
                stage.name,
                tuple(map(tracks.number, stage.inputs)),
                stage.settings,
                len(stage.nodes),
                len(dropped),
                stage.seconds,
            )
        )
    return Explanation(
        query,
        filters,
        tuple(hits),
        tuple(summaries),
        tuple(all_dropped),
        math.fsum(stage.seconds for stage in tracks.stages),
        find_coverage(parts, [f"{node.path} {node.get_text()}" for node in last.nodes]),
    )


class Tracks:
    """A tree of stages, numbered from 1, each after its inputs.

    Args:
        last: The last stage.
    """

    def __init__(self, last: Stage) -> None:
        self.stages = _inputs_first(last)
        self.last = last
        self._numbers = {id(stage): number for number, stage in enumerate(self.stages, start=1)}
        self._standings = {id(stage): _standings(stage.nodes) for stage in self.stages}
        self._carriers: dict[tuple[int, str], list[DocNode]] = {}
        self._reasons: dict[tuple[int, str], Reason] = {}
        self._inputs = {id(stage): _input_nodes(stage) for stage in self.stages}

    def number(self, stage: Stage) -> int:
        """Number of a stage."""
        return self._numbers[id(stage)]

    def standing_of(self, stage: Stage, node: DocNode) -> tuple[int | None, float | None]:
        """Rank of a node in a stage, from 1, and its score; None where it is not there."""
        return self._standings[id(stage)].get(node, (None, None))

    def origins(self, stage: Stage, node: DocNode) -> list[DocNode]:
        """The nodes of a stage's inputs that one of its nodes represents: itself and those that it
        replaced.
        """
        input_nodes = self._inputs[id(stage)]
        origins = [node] if node in input_nodes.get(node.uid, ()) else []
        if node in stage.origins:
            origins += stage.origins[node]
        else:
            for uid in node.merged_from:
                origins += [
                    source for source in input_nodes.get(uid, ()) if _tree(source) is _tree(node)
                ]
        return list(dict.fromkeys(origins))

    def dropped(self, stage: Stage) -> list[DocNode]:
        """The nodes of a stage's inputs that none of its nodes represents."""
        dropped = {}
        for source in stage.inputs:
            dropped.update(dict.fromkeys(source.nodes))
        for node in stage.nodes:
            for origin in self.origins(stage, node):
                dropped.pop(origin, None)
        return list(dropped)

    def carriers(self, stage: Stage, uid: str) -> list[DocNode]:
        """The nodes of a stage that have a uid or represent a node with it, in the stage's
        order.
        """
        cached = self._carriers.get((id(stage), uid))
        if cached is None:
            before = set(self._input_carriers(stage, uid))
            cached = self._carriers[id(stage), uid] = [
                node
                for node in stage.nodes
                if node.uid == uid
                # a neighbour that a window brought need not be among the inputs
                or uid in node.merged_from
                or (before and not before.isdisjoint(self.origins(stage, node)))
            ]
        return cached

    def _input_carriers(self, stage: Stage, uid: str) -> list[DocNode]:
        carriers = []
        for source in stage.inputs:
            carriers += self.carriers(source, uid)
        return carriers

    def best(
        self, stages: Sequence[Stage], nodes: Sequence[DocNode]
    ) -> tuple[Stage, DocNode, int] | None:
        """The best rank of some nodes in some stages: stage, node, rank."""
        best: tuple[Stage, DocNode, int] | None = None
        for stage in stages:
            for node in nodes:
                rank = self.standing_of(stage, node)[0]
                if rank is not None and (best is None or rank < best[2]):
                    best = stage, node, rank
        return best

    def reason(self, uid: str) -> Reason:
        """Why a node is not in the result: the node that represents it or the stage that dropped
        it; else its rank.
        """
        carriers = self.carriers(self.last, uid)
        nodes = [node for node in carriers if node.uid == uid]
        if nodes:
            rank, score = self.standing_of(self.last, nodes[0])
            return Reason(
                uid, "result", f"It is in the result at rank {rank}.", rank, score, cause="found"
            )
        return self._merged(uid, carriers[0]) if carriers else self._lost(self.last, uid)

    def _merged(self, uid: str, carrier: DocNode) -> Reason:
        """The reason for a node that another one represents: the stage that merged it."""
        rank, _ = self.standing_of(self.last, carrier)
        message = (
            f"The {carrier.group or 'new'} node {carrier.uid} represents it in the result, at rank"
            f" {rank}."
        )
        stage = self.last
        while True:
            before = [source for source in stage.inputs if self.carriers(source, uid)]
            nodes = []
            for source in before:
                nodes += [node for node in source.nodes if node.uid == uid]
            best = self.best(before, nodes)
            if best is not None:
                return Reason(
                    uid,
                    stage.name,
                    message,
                    best[2],
                    self.standing_of(best[0], best[1])[1],
                    cause="merged",
                )
            if not before:
                return Reason(uid, stage.name, message, cause="merged")
            stage = before[0]

    def _lost(self, stage: Stage, uid: str) -> Reason:
        """The reason for a node that a stage did not return; cached, as two stages may share an
        input.
        """
        cached = self._reasons.get((id(stage), uid))
        if cached is None:
            cached = self._reasons[id(stage), uid] = self._reason_of(stage, uid)
        return cached

    def _reason_of(self, stage: Stage, uid: str) -> Reason:
        if stage.why is not None:
            return stage.why(uid)
        best = self.best(stage.inputs, self._input_carriers(stage, uid))
        if best is not None:
            where, node, rank = best
            score = self.standing_of(where, node)[1]
            text = (
                f"{_stage_text(stage)} dropped it: it came with rank {rank} of {len(where.nodes)}"
                f" from {where.name}"
            )
            text += "." if score is None else f", its score was {score:.4g}."
            if node.uid != uid:
                text += f" The node {node.uid} represented it there."
            return Reason(uid, stage.name, text, rank, score)
        if not stage.inputs:
            return Reason(uid, stage.name, f"{stage.name} did not return it.", cause="no-reason")
        reasons = tuple(dict.fromkeys(self._lost(source, uid) for source in stage.inputs))
        if len(reasons) == 1:
            return reasons[0]
        text = f"None of the {len(stage.inputs)} inputs of {stage.name} returned it."
        return Reason(uid, stage.name, text, inputs=reasons, cause="inputs")


def _inputs_first(last: Stage) -> list[Stage]:
    """All stages, each once and after its inputs: two may share an input."""
    ordered: dict[int, Stage] = {}
    pending = [last]
    while pending:
        stage = pending[-1]
        below = [source for source in stage.inputs if id(source) not in ordered]
        if below:
            pending += reversed(below)
        else:
            ordered.setdefault(id(stage), pending.pop())
    return list(ordered.values())


def _standings(nodes: Sequence[DocNode]) -> dict[DocNode, tuple[int | None, float | None]]:
    """Rank and score of each node, of duplicates those of the first."""
    locations: dict[DocNode, tuple[int | None, float | None]] = {}
    for rank, node in enumerate(nodes, start=1):
        locations.setdefault(node, (rank, node.score))
    return locations


def _input_nodes(stage: Stage) -> dict[str, dict[DocNode, None]]:
    """The nodes of a stage's inputs, by uid."""
    nodes: dict[str, dict[DocNode, None]] = {}
    for source in stage.inputs:
        for node in source.nodes:
            nodes.setdefault(node.uid, {})[node] = None
    return nodes


def _tree(node: DocNode) -> object:
    return None if node.reader is None else node.reader.document_token


def _stage_text(stage: Stage) -> str:
    """A stage with its settings: ``topk=3``, ``rrf (k=60)``."""
    if stage.name in stage.settings:
        return f"{stage.name}={stage.settings[stage.name]!r}"
    settings = ", ".join(f"{name}={value!r}" for name, value in stage.settings.items())
    return f"{stage.name} ({settings})" if settings else stage.name


def _dropped(tracks: Tracks, stage: Stage) -> list[DroppedNode]:
    dropped = []
    for node in tracks.dropped(stage):
        best = tracks.best(stage.inputs, [node])
        if best is not None:
            source, _, rank = best
            score = tracks.standing_of(source, node)[1]
            labels = tracks.number(stage), stage.name, node.uid, node.path, node.group, node.number
            dropped.append(DroppedNode(*labels, rank, score))
    return sorted(dropped, key=lambda node: node.rank)


def _hit(tracks: Tracks, rank: int, node: DocNode) -> ExplainedHit:
    track = _HitTrack(tracks)
    track.follow(node)
    standings = sorted(
        track.seen.values(), key=lambda standing: (standing.stage, standing.rank or math.inf)
    )
    retrieved = [
        standing.uid
        for standing in standings
        if standing.uid != node.uid and not tracks.stages[standing.stage - 1].inputs
    ]
    beginning = " ".join(node.get_text()[: 2 * _TEXT_SHOWN].split())
    newest = find_superseding(node)
    return ExplainedHit(
        rank,
        node.uid,
        node.score,
        node.group,
        node.path,
        node.number,
        beginning[:_TEXT_SHOWN],
        tuple(dict.fromkeys(retrieved)),
        track.contributions,
        track.fused,
        tuple(standings),
        node,
        newest.to_metadata() if newest else EMPTY,
    )


class _HitTrack:
    """The track of one hit, from the result back to the retrievers.

    Args:
        tracks: The stages.
    """

    def __init__(self, tracks: Tracks) -> None:
        self._tracks = tracks
        self.seen: dict[tuple[int, DocNode], Standing] = {}
        self.contributions: dict[str, float] = {}
        self.fused: float | None = None

    def follow(self, hit: DocNode) -> None:
        """Note the standing of a hit, and of the nodes that it represents, in each stage."""
        nodes: dict[int, dict[DocNode, None]] = {id(self._tracks.last): {hit: None}}
        under_fusion: set[int] = set()
        for stage in reversed(self._tracks.stages):
            there = [
                node
                for node in nodes.get(id(stage), ())
                if self._tracks.standing_of(stage, node)[0] is not None
            ]
            is_fusion = False
            for node in there:
                self._note(stage, node, *self._tracks.standing_of(stage, node))
                is_fusion |= self._note_contributions(
                    stage, node, hit, is_last=id(stage) not in under_fusion
                )
            if is_fusion or id(stage) in under_fusion:
                under_fusion.update(map(id, stage.inputs))
            before = {}
            for node in there:
                before.update(dict.fromkeys(self._best_first(stage, node)))
            for source in stage.inputs:
                nodes.setdefault(id(source), {}).update(before)

    def _best_first(self, stage: Stage, node: DocNode) -> list[DocNode]:
        """The nodes that a node represents; the one whose score it took first."""
        ranks = {}
        for origin in self._tracks.origins(stage, node):
            best = self._tracks.best(stage.inputs, [origin])
            ranks[origin] = math.inf if best is None else best[2]
        return sorted(ranks, key=ranks.__getitem__)

    def _note(
        self, stage: Stage, node: DocNode, rank: int | None = None, score: float | None = None
    ) -> Standing:
        number = self._tracks.number(stage)
        standing = Standing(number, stage.kind, stage.name, node.uid, rank, score)
        return self.seen.setdefault((number, node), standing)

    def _note_contributions(
        self, stage: Stage, node: DocNode, hit: DocNode, *, is_last: bool
    ) -> bool:
        """Note what each input of a fusion added to a node's score. False if the stage is not a
        fusion.

        The hit's own shares are those of the last fusion and the best node there; of several
        fusions side by side, of one that gave the hit its score.
        """
        by_node: Mapping[Any, tuple[float, ...]] = stage.contributions
        contributions = by_node.get(node, by_node.get(node.uid))
        if contributions is None:
            return False
        number = self._tracks.number(stage)
        score = self._tracks.standing_of(stage, node)[1]
        sources = [_uncut(source) for source in stage.inputs]
        added: dict[int, list[float]] = {}
        for input_stage, source, share in zip(stage.inputs, sources, contributions, strict=True):
            is_input = self._tracks.standing_of(input_stage, node)[0] is not None
            ranked = self._tracks.standing_of(source, node) if is_input else ()
            standing = self._note(source, node, *ranked)
            parts = added.setdefault(standing.stage, [])
            parts.append(share)
            by_fusion = {**standing.contributions, number: math.fsum(parts)}
            self.seen[standing.stage, node] = replace(
                standing, share=by_fusion[max(by_fusion)], contributions=by_fusion
            )
        if is_last and (self.fused is None or self.fused != hit.score == score):
            self.fused = score
            self.contributions = dict(zip(_stage_names(sources), contributions, strict=True))
        return True


def _uncut(stage: Stage) -> Stage:
    """The stage behind a cut, whose name people know."""
    while stage.kind == "cut" and len(stage.inputs) == 1:
        stage = stage.inputs[0]
    return stage


def _stage_names(stages: Sequence[Stage]) -> list[str]:
    """Unique names of stages: a second ``bm25`` is ``bm25 (2)``."""
    counts: dict[str, int] = {}
    names = []
    for stage in stages:
        counts[stage.name] = count = counts.get(stage.name, 0) + 1
        names.append(stage.name if count == 1 else f"{stage.name} ({count})")
    return names


_SIGNS = {"eq": "==", "ne": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def filter_text(condition: Filter) -> str:
    """Format a filter for people.

    Example:
        >>> filter_text(Condition("year", "in", [2003, 2004]) & ~Condition("author", "exists"))
        'year in [2003, 2004] and not (author exists)'
    """
    if isinstance(condition, Condition):
        if condition.op == "exists":
            return (
                f"{condition.field} exists" if condition.value else f"{condition.field} is missing"
            )
        sign = _SIGNS.get(condition.op, condition.op)
        return f"{condition.field} {sign} {value_text(condition.value)}"
    if isinstance(condition, Not):
        return f"not ({filter_text(condition.filter)})"
    if not condition.filters:
        return "everything" if isinstance(condition, And) else "nothing"
    word = " and " if isinstance(condition, And) else " or "
    if len(condition.filters) == 1:
        return filter_text(condition.filters[0])
    parts = []
    for part in condition.filters:
        text = filter_text(part)
        parts.append(f"({text})" if isinstance(part, (And, Or)) else text)
    return word.join(parts)


def value_text(value: object) -> str:
    """Format a value of a filter or field."""
    return repr(list(value) if isinstance(value, tuple) else value)


def number_text(value: float | None) -> str:
    """Format a score with four digits; ``-`` for none.

    Example:
        >>> number_text(0.0161290), number_text(None)
        ('0.01613', '-')
    """
    return "-" if value is None else f"{value:.4g}"


def _hit_table(hits: Sequence[ExplainedHit], stages: Sequence[StageSummary]) -> str:
    """The hits with a column for each stage."""
    columns = [stage for stage in stages if stage.kind != "cut"]
    rows = [["#", "score", "node", *(f"{stage.number} {stage.name}" for stage in columns)]]
    for hit in hits:
        cells = [_cell(hit, stage) for stage in columns]
        rows.append([str(hit.rank), number_text(hit.score), _node_text(hit), *cells])
    head, *lines = _table(rows, right=[0, 1])
    indent = " " * 4
    out = [head]
    for hit, line in zip(hits, lines, strict=True):
        out += [line, indent + clipped(_line(hit.text), _WIDTH - len(indent))]
        if hit.merged_from:
            named = ", ".join(hit.merged_from[:_UIDS_SHOWN])
            more = len(hit.merged_from) - _UIDS_SHOWN
            out.append(f"{indent}stands for {named}{f' and {more} more' if more > 0 else ''}")
        if hit.superseded:
            out.append(indent + supersession_text(hit.superseded))
    return "\n".join(out)


def _cell(hit: ExplainedHit, stage: StageSummary) -> str:
    """The best standing of a hit in a stage."""
    ranked = [
        standing
        for standing in hit.standings
        if standing.stage == stage.number and standing.rank is not None
    ]
    if not ranked:
        return "-"
    return str(ranked[0]) if len(ranked) == 1 else f"{ranked[0]} and {len(ranked) - 1} more"


def _stage_table(explanation: Explanation) -> str:
    """The stages with the first nodes that they dropped."""
    rows = [["stage", "from", "gave", "dropped", "ms", "set to"]]
    for stage in explanation.stages:
        settings = ", ".join(
            f"{name}={_line(str(to_dict(value)))}"
            for name, value in stage.settings.items()
            if (name, value) != ("query", explanation.query)
        )
        inputs = " ".join(map(str, stage.inputs)) or "-"
        counts = [str(stage.given), str(stage.dropped), f"{1000 * stage.seconds:.1f}"]
        rows.append([f"{stage.number} {stage.name}", inputs, *counts, clipped(settings, _WIDTH)])
    lines = _table(rows, right=[2, 3, 4])
    for stage in explanation.stages:
        dropped = [node for node in explanation.dropped if node.stage == stage.number]
        if dropped:
            named = [
                f"#{node.rank} {number_text(node.score)} {_node_text(node)}"
                for node in dropped[:_DROPPED_SHOWN]
            ]
            more = f"; and {len(dropped) - len(named)} more" if len(dropped) > len(named) else ""
            lines.append(f"{stage.number} {stage.name} dropped {'; '.join(named)}{more}")
    return "\n".join(lines)


def _node_text(item: ExplainedHit | DroppedNode) -> str:
    if not item.path:
        return item.uid
    return f"{clipped(_line(item.path), 40)} {_line(item.group)} {item.number}"


def _table(rows: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    """Format rows of equal length as lines with aligned columns, some of them to the right."""
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
    """Columns of a text in a terminal: two for wide characters, none for combining ones.

    Example:
        >>> text_width("绿茶 tea")
        8
    """
    return sum(map(_character_width, text))


def clipped(text: str, width: int) -> str:
    """Cut a text to a number of columns, with an ellipsis where something is cut.

    Example:
        >>> clipped("绿茶和红茶", 7)
        '绿茶...'
    """
    if text_width(text) <= width:
        return text
    taken = 3
    characters = []
    for character in text:
        taken += _character_width(character)
        if taken > width:
            break
        characters.append(character)
    return "".join(characters).rstrip() + "..."


def _character_width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _line(text: str) -> str:
    """A text on one line, without terminal control characters."""
    line = " ".join(text.split())
    return "".join(character if character.isprintable() else " " for character in line)
