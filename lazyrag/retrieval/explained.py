"""What an explanation is made of: the hits with their standings, the dropped nodes, the stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY
from lazyrag.retrieval.stages import StageKind, json_ready


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
