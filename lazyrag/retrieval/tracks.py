"""The ways of nodes through a tree of stages: what stands for what, and where each is lost."""

from __future__ import annotations

from collections.abc import Sequence

from lazyrag.data.node import DocNode
from lazyrag.retrieval.stages import Reason, Stage


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
