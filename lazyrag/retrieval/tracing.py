"""The stages of one question to a `Retriever`."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.ranking.fusion import fusions, summed
from lazyrag.retrieval.asking import Asked, Key
from lazyrag.retrieval.missing import filter_text, missing, not_led
from lazyrag.retrieval.stages import Reason, Stage, Traceable
from lazyrag.retrieval.tracks import Tracks


def traced(asked: Asked, retriever: Traceable) -> Stage:
    """What a question did, stage by stage, within one read.

    Each ranking is a leaf, with a cut behind it where there is a cut-off; several are fused and cut to ``topk``; a
    target maps what is left.
    """
    nodes: dict[Key, DocNode] = {}
    rankings, stages = [], []
    for embed_key in asked.embed_keys:
        why = functools.partial(missing, asked, embed_key)
        started = time.perf_counter()
        ranking = asked.ranking(embed_key) if asked.query.strip() else []
        found = asked.nodes(ranking, embed_key)
        nodes.update(found)
        stage = Stage(
            "retriever",
            asked.name_of(embed_key),
            tuple(found[key] for key, _ in ranking if key in found),
            said=_said(asked, embed_key),
            seconds=time.perf_counter() - started,
            retriever=retriever,
            why=why,
        )
        kept = asked.kept(embed_key, ranking)
        cut_off = asked.plan.cut_off_of(embed_key)
        if cut_off != -math.inf:
            left = tuple(found[key] for key, _ in kept if key in found)
            stage = Stage("cut", "similarity_cut_off", left, (stage,), said={"similarity_cut_off": cut_off}, why=why)
        rankings.append(kept)
        stages.append(stage)
    last = stages[0] if len(stages) == 1 else _fused(asked, stages, rankings, nodes)
    return last if asked.plan.target is None else _mapped(asked, last, asked.plan.target)


def _said(asked: Asked, embed_key: str | None) -> dict[str, Any]:
    told: dict[str, Any] = {"query": asked.query, "group": asked.plan.group, "topk": asked.depth}
    if embed_key is not None:
        told["embed_key"] = embed_key
    wanted = next((one for one in asked.filters if one is not None), None)
    if wanted is not None:
        told["filters"] = filter_text(wanted)
    return told


def _fused(
    asked: Asked, stages: Sequence[Stage], rankings: Sequence[list[tuple[Key, float]]], nodes: dict[Key, DocNode]
) -> Stage:
    started = time.perf_counter()
    shares = fusions["rrf"].shares(rankings)
    fused = [
        (key, DocNode.from_segment(nodes[key].segment, nodes[key].reader, score=score))
        for key, score in summed(shares)
        if key in nodes
    ]
    stage = Stage(
        "fusion",
        "rrf",
        tuple(node for _, node in fused),
        tuple(stages),
        shares={node: shares[key] for key, node in fused},
        seconds=time.perf_counter() - started,
    )
    return Stage("cut", "topk", stage.nodes[: asked.topk], (stage,), said={"topk": asked.topk})


def _mapped(asked: Asked, last: Stage, target: str) -> Stage:
    started = time.perf_counter()
    numbers: dict[int, int] = {id(reader.tree): number for number, reader in enumerate(asked.readers)}
    hits = [(node, numbers[id(node.reader.tree)]) for node in last.nodes if node.reader is not None]
    pairs = asked.mapped(hits, target)
    return Stage(
        "mapping",
        target,
        tuple(node for node, _ in pairs),
        (last,),
        said={"from": asked.plan.group, "to": target},
        seconds=time.perf_counter() - started,
        origins={node: tuple(led) for node, led in pairs},
        why=functools.partial(_unmapped, asked, last, target),
    )


def _unmapped(asked: Asked, last: Stage, target: str, uid: str) -> Reason:
    """Why a node is not among those that hits were mapped to."""
    tracks = Tracks(last)
    leading = asked.leading(uid)
    uids = {one.uid for _, one in leading}
    found = {node.uid for stage in tracks.stages for node in stage.nodes} & uids  # by one embed key, and then cut
    if found:
        reasons = [tracks.reason(one) for one in sorted(found)]
        best = min(reasons, key=lambda one: math.inf if one.rank is None else one.rank)
        return replace(best, uid=uid, told=not_led(asked.plan.group, len(leading), best.told))
    reason = tracks.reason(uid)
    if reason.cause != "found":
        return reason
    told = f"It was found with rank {reason.rank}, and leads to no node of the target group {target!r}."
    return replace(reason, stage=target, told=told, cause="dropped")
