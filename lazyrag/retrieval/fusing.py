"""What several retrievers, or one for several queries, found, as one ranking of nodes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from lazyrag.arguments import keyword_names
from lazyrag.data.node import DocNode
from lazyrag.errors import ConfigError, RetrievalError
from lazyrag.ranking.fusion import Fusion, fusions, summed
from lazyrag.ranking.shares import comb_max_shares, comb_mnz_shares, weighted_shares
from lazyrag.retrieval.ranked import NodeKey, Numbers, Ranked, joined, of_nodes, owners
from lazyrag.retrieval.stages import Stage, StageKind

R = TypeVar("R")

_BY_SCORES = (weighted_shares, comb_mnz_shares, comb_max_shares)


@dataclass(frozen=True, slots=True)
class Fusing:
    """A fusion with its keywords.

    Args:
        fusion: A registered one.
        keywords: Passed to it.
    """

    fusion: Fusion
    keywords: Mapping[str, Any]

    @classmethod
    def checked(cls, name: str, keywords: Mapping[str, Any], also_known: Sequence[str]) -> Fusing:
        """A fusion by its name, with keywords that it takes.

        Args:
            name: Of a registered fusion.
            keywords: For the fusion.
            also_known: Keywords of the caller that a misspelt one may have meant.

        Raises:
            NotRegisteredError: If there is no such fusion.
            UnknownKeywordError: If it takes no such keyword.
        """
        fusion = fusions[name]
        fusion.check_kwargs(keywords, also_known)
        return cls(fusion, keywords)

    @property
    def takes_weights(self) -> bool:
        """Whether the fusion gives its rankings weights."""
        named, takes_any = keyword_names(self.fusion.func, skip=1)
        return takes_any or "weights" in named

    @property
    def reads_scores(self) -> bool:
        """Whether the fusion is a built-in one of scores; of others it is not known."""
        return self.fusion.func in _BY_SCORES

    def weighing(self, weights: Sequence[float] | None) -> Fusing:
        """The same with weights; None leaves them to the fusion."""
        return self if weights is None else replace(self, keywords={**self.keywords, "weights": weights})

    def cut_at(self, depth: int) -> Fusing:
        """The same for rankings that are cut at a depth, where the fusion minds."""
        takes_depth = "depth" in keyword_names(self.fusion.func, skip=1)[0]
        return replace(self, keywords={**self.keywords, "depth": depth}) if takes_depth else self

    def asked(self, retrievers: Sequence[R]) -> list[R | None]:
        """The retrievers, None in the places of those that weigh 0: they are not asked, and stand for no ranking."""
        weights = self.keywords.get("weights") or [1.0] * len(retrievers)
        return [one if weight > 0 else None for one, weight in zip(retrievers, weights, strict=True)]

    def try_out(self, count: int) -> None:
        """Fuse as many empty rankings: keywords that make no sense are refused.

        Raises:
            ConfigError: If they do not.
        """
        self.fusion([[]] * count, **self.keywords)

    def check_directions(self, directions: Sequence[bool | None]) -> None:
        """Refuse a lowest score of 0 for a ranking in which a smaller score is better: turned round, all are below it.

        Args:
            directions: For each ranking whether a higher score is a better one; None: some of its nodes have it so.

        Raises:
            ConfigError: If such a ranking is to be normalised by ``"max"``, or ``"theoretical"`` with a bound >= 0.
        """
        if not self.reads_scores:
            return
        hows, lows = (_for_each(self.keywords.get(name), len(directions)) for name in ("normalise", "lowest"))
        for number, (up, how, low) in enumerate(zip(directions, hows, lows, strict=True)):
            if up is False and (how == "max" or (how == "theoretical" and low is not None and low >= 0)):
                msg = (
                    f"In the results of retriever {number + 1} a smaller score is better, so scores are turned round, "
                    f"and normalise={how!r} takes 0 for the lowest of them. Give normalise='min_max', or 'theoretical' "
                    "with lowest=-x, where x is the largest score that it can give."
                )
                raise ConfigError(msg)

    def best(self, found: Sequence[Ranked], topk: int | None = None) -> list[DocNode]:
        """The best nodes with fused scores; only they are read."""
        found = joined(found)
        return _nodes(summed(self._shares(found))[:topk], found)

    def stage(
        self,
        kind: StageKind,
        name: str,
        inputs: Sequence[Stage],
        descends: Sequence[bool | None],
        depth: int | None = None,
        trees: Iterable[object] = (),
    ) -> Stage:
        """The same over what other stages gave, with what each of them adds to each score.

        Args:
            kind: Of the stage.
            name: Of the stage.
            inputs: The stages that are fused.
            descends: For each of them whether a higher score is a better one; None where that cannot be told.
            depth: How many nodes of each of them are fused; None: all.
            trees: Of the Documents in the order that decides ties between nodes of one uid.
        """
        begun = time.perf_counter()
        met = Numbers(trees)
        pairs = zip(inputs, descends, strict=True)
        found = joined([of_nodes(stage.nodes[:depth], met, descends=up) for stage, up in pairs])
        shares = self._shares(found)
        best = summed(shares)
        nodes = tuple(_nodes(best, found))
        told = {**self.keywords, **({} if depth is None else {"depth": depth})}
        by_key = {met.key(node): node for node in nodes}
        # Several Documents may have the same uid.
        added: Any = {(by_key[key] if len(met) > 1 else key[0]): shares[key] for key in by_key}
        seconds = time.perf_counter() - begun
        given = (node for stage in inputs for node in stage.nodes[:depth])
        return Stage(kind, name, nodes, tuple(inputs), added, told, seconds, origins=_origins(by_key, given))

    def _shares(self, found: Sequence[Ranked]) -> dict[NodeKey, tuple[float, ...]]:
        try:
            return self.fusion.shares([one.ranking for one in found], **self.keywords) if found else {}
        except (ConfigError, RetrievalError) as exc:
            if any(math.isnan(score) for one in found for _, score in one.ranking):
                msg = (
                    f"A retriever gave nodes without scores, and the fusion {self.fusion.name!r} needs them; or with "
                    "scores of which nobody says whether a higher one is better. Give them scores with "
                    "node.with_score(...), say descends=... at your retriever or rescores=... at your step, or use "
                    "fusion_method='rrf', which reads ranks alone."
                )
                raise RetrievalError(msg) from exc
            raise


def _for_each(value: Any, count: int) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value] * count


def _nodes(best: Sequence[tuple[NodeKey, float]], found: Sequence[Ranked]) -> list[DocNode]:
    """The nodes of a fused ranking with its scores, each through the first retriever that found it."""
    missing = dict(best)
    nodes: dict[NodeKey, DocNode] = {}
    for one in sorted(found, key=lambda one: one.stands_in):  # a Document's own nodes first
        own = [(key, missing.pop(key)) for key, _ in one.ranking if key in missing]
        if own:
            nodes |= one.read(own)
    return [nodes[key] for key, _ in best if key in nodes]


def _origins(fused: Mapping[NodeKey, DocNode], given: Iterable[DocNode]) -> dict[DocNode, tuple[DocNode, ...]]:
    """For a Document's nodes those outside of any that stood in for them."""
    owned = owners(fused)
    found: dict[DocNode, tuple[DocNode, ...]] = {}
    for node in given:
        if node.reader is None and node.uid in owned:
            own = fused[node.uid, owned[node.uid]]
            found[own] = (*found.get(own, ()), node)
    return found
