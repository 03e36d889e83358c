"""Explanations: what became of nodes on their way through the stages of a retrieval."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

from lazyrag.data.filters import FilterLike, parse_filter
from lazyrag.data.node import DocNode
from lazyrag.retrieval.explained import DroppedNode, ExplainedHit, StageSummary, Standing
from lazyrag.retrieval.missing import filter_text
from lazyrag.retrieval.rendering import rendered
from lazyrag.retrieval.stages import Stage
from lazyrag.retrieval.tracks import Tracks

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
            self.shares = dict(zip(_names(sources), shares, strict=True))
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


def _names(stages: Sequence[Stage]) -> list[str]:
    """The stages' names, each once: a second ``bm25`` is ``bm25 (2)``."""
    counts: dict[str, int] = {}
    names = []
    for stage in stages:
        counts[stage.name] = count = counts.get(stage.name, 0) + 1
        names.append(stage.name if count == 1 else f"{stage.name} ({count})")
    return names
