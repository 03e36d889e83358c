"""The vectors of queries: as the models give them, or moved towards nodes that are of the kind that is looked for."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrag.data.node import DocNode
from lazyrag.document.builder import Builder
from lazyrag.document.reader import Reader
from lazyrag.errors import ConfigError
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.typing import Embedding, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray


class QueryVectors:
    """Makes the vectors of queries.

    Args:
        towards: Nodes; a query's vector is moved towards theirs. None of them leaves it as it is.
        weight: How far, see `moved`.
        known: Where vectors are kept, for several retrievals of one question; None keeps none.
    """

    def __init__(
        self,
        towards: Sequence[DocNode] = (),
        weight: float = 0.0,
        known: dict[tuple[int, str], tuple[object, Embedding]] | None = None,
    ) -> None:
        self.towards = tuple(towards)
        self.weight = weight
        self._known = known

    def of(self, embedder: CheckedEmbedder, query: str, embed_key: str) -> Embedding:
        """The vector of a query under an embed key; a sparse one is never moved.

        Raises:
            EmbeddingError: If the query cannot be embedded.
        """
        plain = self._plain(embedder, query)
        if isinstance(plain, dict):
            return plain
        theirs = [vector_of(node, embed_key) for node in self.towards if _embeds_alike(node, embedder, embed_key)]
        return moved(plain, [one for one in theirs if one is not None], self.weight)

    def keeping(self) -> QueryVectors:
        """The same, and what is embedded once is kept."""
        return QueryVectors(self.towards, self.weight, {})

    def moving(self, towards: Sequence[DocNode], weight: float) -> QueryVectors:
        """The same, moved; what was kept is shared."""
        return QueryVectors(towards, weight, self._known)

    def _plain(self, embedder: CheckedEmbedder, query: str) -> Embedding:
        if self._known is None:
            return embedder.embed([query], input_type="query")[0]
        key = id(embedder.given), query
        if key not in self._known:  # beside the vector the embedder itself, which keeps its id its own
            self._known[key] = embedder.given, embedder.embed([query], input_type="query")[0]
        return self._known[key][1]


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


def checked_towards(nodes: Any, weight: Any, trees: Sequence[Builder]) -> tuple[list[DocNode], float]:
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
