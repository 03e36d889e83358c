"""How a similarity gets at the nodes it ranks: through an index, or one by one."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.document.nodes import SearchMode
from lazyrag.document.reader import Reader
from lazyrag.document.snapshot import Hits, Snapshot
from lazyrag.errors import ConfigError, RetrievalError, TransformError
from lazyrag.indexes.bm25 import BM25, Variant
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.retrieval.ranked import Query
from lazyrag.text.analyzers import term_function
from lazyrag.types import Embedding, Metric, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lazyrag.retrieval.ranked import Query


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What a Retriever asks of a search.

    Args:
        query: A text that is not blank.
        group: The node group to rank.
        snapshot: Of n Documents.
        filters: As they were given.
        topk: How many nodes are wanted, at least 1.
        embed_key: The embed key to search by; None where texts are compared.
        vectors: The query's vector for each Document; () where texts are compared.
    """

    query: str
    group: str
    snapshot: Snapshot
    filters: FilterLike | None
    topk: int
    embed_key: str | None = None
    vectors: Sequence[Embedding] = ()


class Search(Protocol):
    """Ranks the nodes of a group."""

    def rank(self, request: SearchRequest) -> Hits:
        """The best nodes of all Documents, best first, ties by uid; at most the request's topk."""


class TermSearch:
    """BM25 on an index over terms; several Documents are ranked by common statistics.

    Args:
        analyser: Name of the registered analyser.
        k1: See `BM25`.
        b: See `BM25`.
        variant: See `BM25`.

    Raises:
        NotRegisteredError: If there is no such analyser.
        ConfigError: If a parameter of BM25 is out of its range.
    """

    def __init__(self, analyser: str, k1: float = 1.5, b: float = 0.75, variant: Variant = "lucene") -> None:
        self.analyser = analyser
        self._terms_of = term_function(analyser)
        self._model = BM25(k1, b, variant)

    def terms(self, query: str) -> list[str]:
        """The terms that are looked for.

        Raises:
            RetrievalError: If the analyser fails.
        """
        return _terms(self._terms_of, query)

    def rank(self, request: SearchRequest) -> Hits:
        """See `Search.rank`; only nodes that share a term with the query."""
        terms = self.terms(request.query)
        if not terms:
            return []
        return request.snapshot.rank_terms(
            request.group, self.analyser, terms, request.topk, request.filters, self._model
        )


@dataclass(frozen=True, slots=True)
class TextSearch:
    """The segment store's own ranking of texts, by the terms of an analyser.

    Args:
        analyser: Name of the registered analyser.
    """

    analyser: str

    def terms(self, query: str) -> list[str]:
        """The terms that are looked for.

        Raises:
            RetrievalError: If the analyser fails.
        """
        return _terms(term_function(self.analyser), query)

    def rank(self, request: SearchRequest) -> Hits:
        """See `Search.rank`.

        Raises:
            ConfigError: If several Documents are asked: their scores do not compare.
            UnsupportedError: If the segment store does not rank by text, or has no terms of the analyser.
        """
        parts = request.snapshot.parts
        if len(parts) > 1:
            msg = (
                f"index='native' was asked for over {len(parts)} Documents; a server ranks each by its own "
                "statistics, so that scores do not compare. Ask one Document, or use index='default'."
            )
            raise ConfigError(msg)
        terms = self.terms(request.query)
        if not terms:
            return []
        return parts[0].rank_text(request.group, self.analyser, terms, request.topk, request.filters)


@dataclass(frozen=True, slots=True)
class VectorSearch:
    """The vector store's own search.

    Args:
        metric: What the vectors must be ranked by; None for whatever they are.
        mode: Exactly; approximately, by the one that may miss some of the nearest, dense vectors only; or natively, as
            the store finds them.
    """

    metric: Metric | None = None
    mode: SearchMode = "exact"

    def rank(self, request: SearchRequest) -> Hits:
        """See `Search.rank`; sparse vectors only of nodes that share a dimension with the query.

        Raises:
            ConfigError: If the vectors are ranked by another metric, or those of several Documents by two.
            UnsupportedError: If a vector store has no approximate search.
            MissingDependencyError: If that needs a package which is not installed.
        """
        group, embed_key = request.group, str(request.embed_key)
        found = sorted(request.snapshot.metrics(group, embed_key))
        self._check_metric(found, embed_key)
        return request.snapshot.rank_vectors(
            group, embed_key, request.vectors, request.topk, request.filters, mode=self.mode
        )

    def _check_metric(self, found: Sequence[Metric], embed_key: str) -> None:
        if len(found) > 1:
            msg = (
                f"Under the embed key {embed_key!r} the vectors of one Document are dense and those of another are "
                "sparse. Their scores do not compare. Ask each by a Retriever of its own."
            )
            raise ConfigError(msg)
        if self.mode == "approximate" and "ip" in found:
            msg = (
                f"index='ann' searches dense vectors, and those under the embed key {embed_key!r} are sparse. "
                "Use index='default', which is fast for them at any size."
            )
            raise ConfigError(msg)
        if self.metric is not None and found not in ([], [self.metric]):
            kind, told = ("sparse", "inner product") if found == ["ip"] else ("dense", "cosine")
            msg = (
                f"similarity={self.metric!r} was asked for, and the vectors under the embed key {embed_key!r} are "
                f"{kind}: they are ranked by {told}. Leave similarity out, give similarity={found[0]!r}, or choose "
                "other keys with embed_keys=[...]."
            )
            raise ConfigError(msg)


def _terms(terms_of: Callable[[str], list[str]], query: str) -> list[str]:
    try:
        return terms_of(query)
    except TransformError as exc:
        raise RetrievalError(str(exc)) from exc


def embedded(embedder: CheckedEmbedder, query: Query) -> Embedding:
    """The vector of a query, computed once a call.

    Raises:
        EmbeddingError: If the query cannot be embedded.
    """
    key = id(embedder.given), query.text  # the retriever holds the embedder, so its id stays its own
    plain: Embedding | None = query.memo.get(key)
    if plain is None:
        plain = query.memo[key] = embedder.embed([query.text], input_type="query")[0]
    return plain


def query_vector(
    embedder: CheckedEmbedder, embed_key: str, query: Query, towards: tuple[Sequence[DocNode], float]
) -> Embedding:
    """The vector of a query under an embed key: embedded once a call; a sparse one is never moved.

    Args:
        embedder: Embeds the query.
        embed_key: The embed key.
        query: The query, which remembers its vector.
        towards: Nodes that the vector is moved towards, and how far.

    Raises:
        EmbeddingError: If the query cannot be embedded.
    """
    plain = embedded(embedder, query)
    nodes, weight = towards
    if not nodes or isinstance(plain, dict):
        return plain
    theirs = [vector_of(node, embed_key) for node in nodes if _embeds_alike(node, embedder, embed_key)]
    return moved(plain, [one for one in theirs if one is not None], weight)


def moved(vector: Vector, towards: Sequence[Vector], weight: float) -> Vector:
    """A query's vector moved towards those of nodes.

    Its direction becomes that of q + weight x m, where q is the query's vector brought to length 1, and m is the mean
    of the nodes' vectors, each brought to length 1 before and the mean after. Its length stays.

    Args:
        vector: (dim,) float32.
        towards: n arrays of the same shape; none leaves the vector as it is, as does what has no direction.
        weight: At least 0.

    Returns:
        (dim,) float32.

    Source:
        Rocchio: Relevance Feedback in Information Retrieval, 1971; over embeddings: Li and others: Pseudo Relevance
        Feedback with Deep Language Models and Dense Retrievers, TOIS 2023, doi:10.1145/3570724.

    Example:
        >>> moved(np.array([5.0, 0.0], np.float32), [np.array([0.0, 3.0], np.float32)], 0.75).tolist()
        [4.0, 3.0]
    """
    if not towards or weight == 0:
        return vector
    mean = _unit(np.mean([_unit(one.astype(np.float64)) for one in towards], axis=0))
    plain = vector.astype(np.float64)
    direction = _unit(_unit(plain) + weight * mean)
    return (float(np.linalg.norm(plain)) * direction).astype(np.float32) if direction.any() else vector


def vector_of(node: DocNode, embed_key: str) -> Vector | None:
    """A node's dense vector under an embed key; None where it has none."""
    found = node.embeddings.get(embed_key)
    return found if isinstance(found, np.ndarray) else None


def _embeds_alike(node: DocNode, embedder: CheckedEmbedder, embed_key: str) -> bool:
    """Whether a node's Document embeds by the same model; vectors of another one say nothing about a query's."""
    if not isinstance(node.reader, Reader):
        return False
    [theirs] = node.reader.embedders([embed_key])
    identity = embedder.embedder.identity
    return theirs.given is embedder.given or (identity != "" and theirs.embedder.identity == identity)


def checked_towards(nodes: Any, weight: Any, trees: Sequence[object]) -> tuple[list[DocNode], float]:
    """What vectors are moved towards: the nodes of some Documents, and how far.

    Raises:
        ConfigError: If there are other things than nodes, or the weight is below 0 or not finite.
    """
    listed = [nodes] if isinstance(nodes, DocNode) or not isinstance(nodes, Iterable) else list(nodes)
    if isinstance(nodes, DocNode) or not all(isinstance(node, DocNode) for node in listed):
        msg = f"A query is moved towards a list of nodes, not {nodes!r:.80}. Give what a retriever returned."
        raise ConfigError(msg)
    if isinstance(weight, bool) or not isinstance(weight, numbers.Real) or not 0 <= float(weight) < math.inf:
        msg = f"weight is {weight!r}; give a number from 0 up, such as 0.7: how far a query is moved towards the nodes."
        raise ConfigError(msg)
    return [node for node in listed if node.reader is not None and node.reader.tree in trees], float(weight)


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector
