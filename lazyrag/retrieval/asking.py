"""One question to a `Retriever`: rankings, their fusion, the nodes of the best, what these are mapped to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from lazyrag.data.filters import Filter
from lazyrag.data.node import DocNode
from lazyrag.data.segment import Segment, key_uid
from lazyrag.document.consistency import consistent_read
from lazyrag.document.reader import Reader
from lazyrag.ranking.fusion import rrf
from lazyrag.retrieval.built_in_similarities import OWN_METRIC
from lazyrag.retrieval.query_vectors import QueryVectors
from lazyrag.retrieval.search import Question, Search
from lazyrag.retrieval.similarity import Similarity
from lazyrag.typing import Ranking

_FUSED_AT_LEAST = 50

R = TypeVar("R")

Key: TypeAlias = tuple[str, int, str]
"""A node of one of several Documents: its uid, the Document's position, the store's key."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a Retriever answers any question.

    Args:
        group: The node group to rank.
        target: The group that hits are mapped to; None for none.
        similarity: What ranks.
        search: How it gets at the nodes.
        embed_keys: The embed keys to rank by; () where texts are compared.
        cut_off: Cut-offs by embed key; under "" the one for all.
        query_vectors: Makes the vectors of queries.
    """

    group: str
    target: str | None
    similarity: Similarity
    search: Search
    embed_keys: tuple[str, ...]
    cut_off: Mapping[str, float]
    query_vectors: QueryVectors = field(default_factory=QueryVectors)

    @property
    def found_by(self) -> str | None:
        """The embed key that hits are found by; None where there is none, or several."""
        return self.embed_keys[0] if len(self.embed_keys) == 1 else None

    @property
    def descends(self) -> bool:
        """Whether a higher score of a hit is a better one; fused scores always are."""
        return self.similarity.descend or len(self.embed_keys) > 1

    def cut_off_of(self, embed_key: str | None) -> float:
        """The cut-off of a ranking; minus infinity for none."""
        return self.cut_off.get(embed_key or "", self.cut_off.get("", -math.inf))

    def is_cut(self, embed_key: str | None, score: float) -> bool:
        """Whether a score is worse than the cut-off."""
        cut_off = self.cut_off_of(embed_key)
        return cut_off != -math.inf and self.similarity.is_worse(score, cut_off)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as a Retriever asks it.

    Args:
        plan: How it is answered.
        query: A text; a blank one has no answer.
        readers: Of n Documents.
        filters: n bound filters, or None where there is none.
        topk: How many nodes are wanted, at least 1.
    """

    plan: Plan
    query: str
    readers: Sequence[Reader]
    filters: Sequence[Filter | None]
    topk: int

    def read(self, read: Callable[[], R]) -> R:
        """What a read gives of one state of the Documents, after all is built that it needs."""
        plan = self.plan
        if self.query.strip():
            for reader in self.readers:
                reader.prepare(plan.group, plan.embed_keys, plan.target)
        return consistent_read([reader.tree for reader in self.readers], read)

    @property
    def embed_keys(self) -> tuple[str | None, ...]:
        """One for each ranking; texts are ranked under none."""
        return self.plan.embed_keys or (None,)

    @property
    def depth(self) -> int:
        """How many nodes of each ranking are used."""
        return self.topk if len(self.embed_keys) == 1 else max(_FUSED_AT_LEAST, 4 * self.topk)

    def name_of(self, embed_key: str | None) -> str:
        """What a ranking is called: the similarity, with the embed key where there are several."""
        plan = self.plan
        name = plan.similarity.name
        if plan.similarity is OWN_METRIC and embed_key is not None and self.query.strip():
            known = {reader.metric(plan.group, embed_key) for reader in self.readers} - {None}
            name = min(map(str, known), default=name)
        return name if len(plan.embed_keys) < 2 else f"{name}:{embed_key}"

    def hits(self) -> list[DocNode]:
        """The answer, within one read."""
        best = self.best()
        nodes = self.nodes(best, self.plan.found_by)
        hits = [(nodes[key], key[1]) for key, _ in best if key in nodes]
        if self.plan.target is None:
            return [node for node, _ in hits]
        return [node for node, _ in self.mapped(hits, self.plan.target)]

    def best(self) -> list[tuple[Key, float]]:
        """The ranking that hits are taken of, before a target maps them; no node is read."""
        rankings = [self.kept(embed_key, self.ranking(embed_key)) for embed_key in self.embed_keys]
        return (rankings[0] if len(rankings) == 1 else rrf(rankings))[: self.topk]

    def ranking(self, embed_key: str | None) -> list[tuple[Key, float]]:
        """The nodes of all Documents, as many as are used."""
        asked = Question(
            self.query, self.plan.group, self.readers, self.filters, self.depth, embed_key, self.plan.query_vectors
        )
        return merged(self.plan.search.rank(asked), self.plan.similarity)[: self.depth]

    def kept(self, embed_key: str | None, ranking: list[tuple[Key, float]]) -> list[tuple[Key, float]]:
        """Those of a ranking that are not worse than the cut-off."""
        plan = self.plan
        if plan.cut_off_of(embed_key) == -math.inf:
            return ranking
        return [(key, score) for key, score in ranking if not plan.is_cut(embed_key, score)]

    def nodes(self, ranking: Sequence[tuple[Key, float]], embed_key: str | None) -> dict[Key, DocNode]:
        """The nodes of a ranking, with its scores and the embed key they were found by."""
        nodes: dict[Key, DocNode] = {}
        for number, reader in enumerate(self.readers):
            own = [(key, score) for (_, at, key), score in ranking if at == number]
            found = reader.nodes(self.plan.group, own, embed_key)
            nodes.update(((node.uid, number, node.segment.key), node) for node in found)
        return nodes

    def mapped(self, hits: Sequence[tuple[DocNode, int]], target: str) -> list[tuple[DocNode, list[DocNode]]]:
        """Hits mapped to another group within their own Documents, in their order; each with all that led there."""
        relate = [reader.relatives().relating(target) for reader in self.readers]
        found: dict[tuple[str, int], tuple[DocNode, list[DocNode]]] = {}
        for node, number in hits:
            for segment in relate[number](node):
                known = found.get((segment.uid, number))
                if known is None:
                    made = DocNode.from_segment(segment, self.readers[number], score=node.score)
                    found[segment.uid, number] = made, [node]
                else:
                    known[1].append(node)
        return list(found.values())

    def leading(self, uid: str) -> list[tuple[int, Segment]]:
        """The nodes of the searched group that would lead to a node of the target group, by position of Document."""
        found = []
        for number, reader in enumerate(self.readers):
            for one in reader.held(uid):
                if one.group == self.plan.target:
                    node = DocNode.from_segment(one, reader)
                    found += [(number, below) for below in reader.relatives().relating(self.plan.group)(node)]
        return found


def merged(rankings: list[Ranking], similarity: Similarity) -> list[tuple[Key, float]]:
    """Rankings of Documents as one: best first, ties by uid, then by the Documents' order."""
    together = [
        ((key_uid(key), number, key), score) for number, ranking in enumerate(rankings) for key, score in ranking
    ]
    if len(rankings) > 1:
        sign = -1.0 if similarity.descend else 1.0
        together.sort(key=lambda item: (sign * item[1], item[0]))
    return together
