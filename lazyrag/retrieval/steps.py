"""Steps of a `RetrievalChain`: auto-merge, windows, diversity, thresholds of scores."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from lazyrag.data.node import DocNode
from lazyrag.document.reader import Reader
from lazyrag.document.snapshot import LocalSnapshot
from lazyrag.document.windows import is_window, ranked_windows
from lazyrag.errors import ConfigError, RetrievalError, known_names
from lazyrag.ranking.mmr import mmr, mmr_of_similarities
from lazyrag.retrieval.merging import auto_merge
from lazyrag.retrieval.stages import StageKind
from lazyrag.types import Embedding, SparseVector
from lazyrag.validation import whole_number, yes_or_no


@dataclass(frozen=True, slots=True)
class AutoMerge:
    """A step that lifts nodes to their parents where enough of a parent's children were found: see `auto_merge`.

    Args:
        ratio: Share of a parent's children in (0, 1].
        least: Number of children, at least 1.
        up_to: The highest group to lift to; None for whole documents.
        descend: Whether a higher score is a better one.

    Raises:
        ConfigError: If an argument is out of its range.

    Example:
        >>> AutoMerge(ratio=0.6)
        AutoMerge(ratio=0.6, least=2, up_to=None, descend=True)
    """

    ratio: float = 0.5
    least: int = 2
    up_to: str | None = None
    descend: bool = True
    kind: ClassVar[StageKind] = "merge"

    def __post_init__(self) -> None:
        self([])

    def __call__(self, nodes: Sequence[DocNode], query: str = "") -> list[DocNode]:  # noqa: ARG002  a step's query
        """The nodes, those of one parent put together; see `auto_merge` for errors."""
        return auto_merge(nodes, ratio=self.ratio, least=self.least, up_to=self.up_to, descend=self.descend)


@dataclass(frozen=True, slots=True)
class Windows:
    """A step that widens each node by its neighbours in its group and document: see `Document.window`.

    Windows that overlap or touch are one; it stands where the best of its nodes stood, and has that one's score.

    Args:
        before: How many neighbours before each node, at least 0.
        after: How many behind each, at least 0.
        merge: Give each window as one node; else its nodes one by one.

    Raises:
        ConfigError: If a number is none.

    Example:
        >>> Windows(before=0, after=2)
        Windows(before=0, after=2, merge=True)
    """

    before: int = 1
    after: int = 1
    merge: bool = True
    kind: ClassVar[StageKind] = "window"

    def __post_init__(self) -> None:
        whole_number("before", self.before, 0)
        whole_number("after", self.after, 0)
        yes_or_no("merge", self.merge)

    def __call__(self, nodes: Sequence[DocNode], query: str = "") -> list[DocNode]:  # noqa: ARG002  a step's query
        """The windows, best first.

        Raises:
            ConfigError: If a node belongs to no Document, or is a merged window itself.
            StaleNodeError: If a node does not stand in the live tree any more.
        """
        readers: dict[int, Reader] = {}
        for node in nodes:
            if not isinstance(node.reader, Reader):
                msg = f"Windows widens nodes of a Document, not {node!r}."
                raise ConfigError(msg)
            if is_window(node):
                msg = (
                    f"Windows got {node!r}, which is a merged window of {len(node.merged_from)} nodes and has no "
                    "neighbours. Widen once, with larger numbers, or give the first Windows merge=False."
                )
                raise ConfigError(msg)
            readers.setdefault(id(node.reader.tree), node.reader)
        found: list[tuple[int, list[DocNode]]] = []
        for reader in readers.values():
            own = [(at, node) for at, node in enumerate(nodes) if node.reader and node.reader.tree is reader.tree]
            some = reader.read(partial(self._windows, [node for _, node in own]))
            found += [(own[rank][0], window) for rank, window in some]
        return [node for _, window in sorted(found, key=lambda one: one[0]) for node in window]

    def _windows(self, nodes: Sequence[DocNode], snapshot: LocalSnapshot) -> list[tuple[int, list[DocNode]]]:
        return ranked_windows(snapshot, nodes, self.before, self.after, merge=self.merge)

    def origins(self, given: Sequence[DocNode], gave: Sequence[DocNode]) -> dict[DocNode, tuple[DocNode, ...]]:
        """For each neighbour the nodes in whose windows it stands."""
        beside: dict[tuple[Any, ...], list[DocNode]] = {}
        for node in given:
            beside.setdefault(_place(node), []).append(node)
        known = set(given)
        return {
            node: tuple(
                one
                for one in beside.get(_place(node), ())
                if one.number - self.before <= node.number <= one.number + self.after
            )
            for node in gave
            if node not in known and not node.merged_from
        }


def _place(node: DocNode) -> tuple[Any, ...]:
    return None if node.reader is None else id(node.reader.tree), node.document_id, node.group


@dataclass(frozen=True, slots=True)
class MMR:
    """A step that prefers nodes unlike the better ones: maximal marginal relevance.

    See `lazyrag.ranking.mmr.mmr`.

    A node's vector is the stored one; the text of a node without one, such as a merged window or a node of a group that
    nobody has searched by embedding, is embedded by its Document. Blank texts are like nothing.

    Args:
        lam: From 0 to 1: how much the score counts that nodes come with, brought to [0, 1]; the rest counts against
            likeness.
        embed_key: The embed key whose vectors are compared; None where there is only one.
        topk: At most so many nodes; None for all, in another order.
        descend: Whether a higher score of the nodes is a better one. Of its own scores it always is.

    Raises:
        ConfigError: If an argument is out of its range.

    Source:
        Carbonell, Goldstein: The Use of MMR, Diversity-Based Reranking, SIGIR 1998, doi:10.1145/290941.291025.

    Example:
        >>> one = DocNode(text="one", embeddings={"e": [1, 0]}, score=3)
        >>> uno = DocNode(text="uno", embeddings={"e": [1, 0]}, score=2.9)
        >>> two = DocNode(text="two", embeddings={"e": [0, 1]}, score=2)
        >>> [node.text for node in MMR(topk=2)([one, uno, two])]
        ['one', 'two']
    """

    lam: float = 0.5
    embed_key: str | None = None
    topk: int | None = None
    descend: bool = True
    kind: ClassVar[StageKind] = "diversity"
    rescores: ClassVar[bool] = True

    def __post_init__(self) -> None:
        yes_or_no("descend", self.descend)
        mmr([("any", 1.0)], [[1.0]], lam=self.lam, topk=self.topk)

    def __call__(self, nodes: Sequence[DocNode], query: str = "") -> list[DocNode]:  # noqa: ARG002  a step's query
        """The chosen nodes with their marginal relevance as score, best first.

        Raises:
            ConfigError: If there are several embed keys and none is named, or a node has none; if vectors are of
                different lengths or kinds.
            RetrievalError: If a node has no score.
            EmbeddingError: If a text cannot be embedded.
        """
        distinct = list(dict.fromkeys(nodes))
        sign = 1.0 if self.descend else -1.0
        ranking = [((node.uid, at), sign * _score("MMR", node)) for at, node in enumerate(distinct)]
        vectors = self._vectors(distinct)
        _check_alike(distinct, vectors)
        if any(isinstance(vector, dict) for vector in vectors):
            chosen = mmr_of_similarities(ranking, _cosines(vectors), lam=self.lam, topk=self.topk)
        else:
            rows = _rows(vectors)
            chosen = mmr(ranking, rows, lam=self.lam, topk=self.topk)
        return [distinct[at].with_score(score) for (_, at), score in chosen]

    def _vectors(self, nodes: Sequence[DocNode]) -> list[Embedding | None]:
        """A vector for each node; None for a blank text."""
        vectors = self._stored(nodes)
        missing: dict[int, list[int]] = {}
        for at, node in enumerate(nodes):
            if vectors[at] is None and node.get_text().strip():
                missing.setdefault(id(node.reader), []).append(at)
        for some in missing.values():
            first = nodes[some[0]]
            if not isinstance(first.reader, Reader):
                msg = f"MMR compares vectors, and {first!r} has none under {self._key(first)!r} and is of no Document."
                raise ConfigError(msg)
            [embedder] = first.reader.embedders([self._key(first)])
            for at, made in zip(some, embedder.embed([nodes[at].get_text() for at in some]), strict=True):
                vectors[at] = made
        return vectors

    def _stored(self, nodes: Sequence[DocNode]) -> list[Embedding | None]:
        """The vectors that nodes have; of those of one Document by one look at its store."""
        keys = [self._key(node) for node in nodes]
        vectors: list[Embedding | None] = [None] * len(nodes)
        together: dict[tuple[int, str], list[int]] = {}
        for at, (node, key) in enumerate(zip(nodes, keys, strict=True)):
            if isinstance(node.reader, Reader):
                together.setdefault((id(node.reader), key), []).append(at)
            else:
                vectors[at] = node.embeddings.get(key)
        for (_, key), places in together.items():
            reader = nodes[places[0]].reader
            if isinstance(reader, Reader):
                found = reader.vectors_of([nodes[at].segment for at in places], key)
                for at, vector in zip(places, found, strict=True):
                    vectors[at] = vector
        return vectors

    def _key(self, node: DocNode) -> str:
        if self.embed_key is not None:
            return self.embed_key
        reader = node.reader
        known = [one.key for one in reader.embedders(None)] if isinstance(reader, Reader) else list(node.embeddings)
        if len(known) != 1:
            told = known_names("", known) if known else "It has none at all."
            msg = f"MMR(embed_key=None) needs nodes with one embed key, and {node!r} has {len(known)}. {told}"
            raise ConfigError(msg)
        return known[0]


def _check_alike(nodes: Sequence[DocNode], vectors: Sequence[Embedding | None]) -> None:
    """Refuse vectors that cannot be compared."""
    known = [(node, vector) for node, vector in zip(nodes, vectors, strict=True) if vector is not None]
    for node, vector in known[1:]:
        first = known[0][1]
        told = [_kind(first), _kind(vector)]
        if told[0] != told[1]:
            msg = (
                f"MMR compares vectors of one model: {known[0][0]!r} has {told[0]}, and {node!r} has {told[1]}. Name "
                "another embed_key=, or give it the nodes of one Document."
            )
            raise ConfigError(msg)


def _kind(vector: Embedding) -> str:
    return "a sparse one" if isinstance(vector, dict) else f"one of {len(vector)} numbers"


def _rows(vectors: Sequence[Embedding | None]) -> Any:
    """Dense vectors as a table, with zeros where there is none."""
    dimension = next((len(vector) for vector in vectors if vector is not None), 0)
    return [np.zeros(dimension) if vector is None else np.asarray(vector, np.float64) for vector in vectors]


def _cosines(vectors: Sequence[Embedding | None]) -> list[list[float]]:
    """How alike sparse vectors are: (n, n) cosines, 0 for those below."""
    sparse = [vector if isinstance(vector, dict) else {} for vector in vectors]
    lengths = [math.sqrt(_product(one, one)) for one in sparse]
    return [
        [max(0.0, _product(one, two) / (a * b)) if a * b else 0.0 for two, b in zip(sparse, lengths, strict=True)]
        for one, a in zip(sparse, lengths, strict=True)
    ]


def _product(one: SparseVector, two: SparseVector) -> float:
    return math.fsum(float(one[dimension]) * float(two[dimension]) for dimension in one.keys() & two.keys())


@dataclass(frozen=True, slots=True)
class ScoreThreshold:
    """A step that drops nodes whose score is worse than a bound; what equals it stays.

    Scores mean what the stage before made of them: a cosine, a BM25 score, a fused share, a reranker's number.

    Args:
        score: The bound; None for none.
        of_best: The bound as a share in (0, 1] of the best score among the nodes, which must be above 0.
        descend: Whether a higher score is a better one; ``of_best`` needs that.

    Raises:
        ConfigError: If neither bound is given, or one is out of its range.

    Example:
        >>> nodes = [DocNode(text="a", score=0.9), DocNode(text="b", score=0.5), DocNode(text="c", score=0.2)]
        >>> [node.text for node in ScoreThreshold(0.5)(nodes)]
        ['a', 'b']
        >>> [node.text for node in ScoreThreshold(of_best=0.9)(nodes)]
        ['a']
    """

    score: float | None = None
    of_best: float | None = None
    descend: bool = True
    kind: ClassVar[StageKind] = "cut"
    reads: ClassVar[bool] = False  # a Document

    def __post_init__(self) -> None:
        yes_or_no("descend", self.descend)
        if self.score is None and self.of_best is None:
            msg = "ScoreThreshold got no bound; give score=0.3, or of_best=0.5 for half of the best score."
            raise ConfigError(msg)
        if self.score is not None and not _is_number(self.score):
            msg = f"ScoreThreshold got score={self.score!r}; give a number."
            raise ConfigError(msg)
        if self.of_best is not None and not (_is_number(self.of_best) and 0 < self.of_best <= 1 and self.descend):
            msg = (
                f"ScoreThreshold got of_best={self.of_best!r} with descend={self.descend}; give a share above 0 and up "
                "to 1, of scores of which a higher one is better."
            )
            raise ConfigError(msg)

    def __call__(self, nodes: Sequence[DocNode], query: str = "") -> list[DocNode]:  # noqa: ARG002  a step's query
        """The nodes that are good enough, in their order.

        Raises:
            RetrievalError: If a node has no score, or the best score is not above 0 and a share of it is asked for.
        """
        scores = [_score("ScoreThreshold", node) for node in nodes]
        bounds = [] if self.score is None else [self.score]
        if self.of_best is not None and scores:
            best = max((score for score in scores if not math.isnan(score)), default=math.nan)
            if not best > 0:
                msg = f"ScoreThreshold(of_best={self.of_best}) got {best!r} as the best score, which has to be above 0."
                raise RetrievalError(msg)
            bounds.append(self.of_best * best)
        return [
            node
            for node, score in zip(nodes, scores, strict=True)
            if all(score >= bound if self.descend else score <= bound for bound in bounds)
        ]


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and not math.isnan(value)


def _score(step: str, node: DocNode) -> float:
    if node.score is None:
        msg = f"{step} compares scores, and {node!r} has none. Put it behind what gives scores."
        raise RetrievalError(msg)
    return node.score
