"""The built-in similarities: entries like any other that also name the index which answers them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lazyrag.data.node import DocNode
from lazyrag.errors import ConfigError
from lazyrag.indexes.bm25 import BM25, LexicalIndex, Variant
from lazyrag.retrieval.search import TermSearch, VectorSearch
from lazyrag.retrieval.similarity import Similarity
from lazyrag.text.analyzers import term_function
from lazyrag.types import Embedding, SparseVector

if TYPE_CHECKING:
    from numpy.typing import NDArray


def bm25(
    query: str,
    nodes: Sequence[DocNode],
    *,
    k1: float = 1.5,
    b: float = 0.75,
    variant: Variant = "lucene",
    analyser: str = "en",
) -> list[tuple[DocNode, float]]:
    """BM25 of nodes for an English query; Chinese in either is matched by characters and pairs of them.

    Args:
        query: A question or keywords.
        nodes: What to score; they are the whole collection that terms are counted in.
        k1: Saturation of term frequency, >= 0.
        b: Weight of text length, in [0, 1].
        variant: ``"lucene"`` or ``"okapi"``, see `lazyrag.indexes.bm25.BM25`.
        analyser: Name of the registered analyser that turns text into terms.

    Returns:
        Pairs (node, score) of the nodes that share a term with the query, best first, ties by uid.

    Source:
        See `lazyrag.indexes.bm25.BM25`.

    Example:
        >>> [node.text for node, _ in bm25("teas", [DocNode(text="green tea"), DocNode(text="coffee")])]
        ['green tea']
    """
    return _bm25(analyser, query, nodes, BM25(k1, b, variant))


def bm25_chinese(
    query: str,
    nodes: Sequence[DocNode],
    *,
    k1: float = 1.5,
    b: float = 0.75,
    variant: Variant = "lucene",
    analyser: str = "zh",
) -> list[tuple[DocNode, float]]:
    """BM25 of nodes for a Chinese query, by characters, pairs of neighbours and jieba's longer words; see `bm25`.

    Example:
        >>> [node.text for node, _ in bm25_chinese("茶", [DocNode(text="绿茶"), DocNode(text="咖啡")])]
        ['绿茶']
    """
    return _bm25(analyser, query, nodes, BM25(k1, b, variant))


def cosine(query: list[float], node: DocNode) -> float:
    """Cosine of the angle between a query's vector and a node's: in [-1, 1], 0 if either has no length.

    Example:
        >>> cosine([2.0, 0.0], DocNode(text="x", embeddings={"default": np.array([1, 0], np.float32)}))
        1.0
    """
    ours, theirs = _dense(query), _dense(node.embedding)
    lengths = math.sqrt(float(ours @ ours) * float(theirs @ theirs))
    return max(-1.0, min(1.0, float(ours @ theirs) / lengths)) if lengths else 0.0


def ip(query: list[float] | SparseVector, node: DocNode) -> float:
    """Inner product of a query's vector and a node's, both dense or both sparse.

    Of sparse ones only nodes are ranked that share a dimension with the query, also where the score is 0 or less.

    Example:
        >>> ip({3: 2.0, 9: 1.0}, DocNode(text="x", embeddings={"default": {3: 0.5, 7: 2.0}}))
        1.0
    """
    theirs = node.embedding
    if not isinstance(query, dict) or not isinstance(theirs, dict):
        return float(_dense(query) @ _dense(theirs))
    score = 0.0
    for dimension in sorted(query.keys() & theirs.keys()):  # sum() need not add up as the index does
        score += query[dimension] * theirs[dimension]
    return score


def nearest(query: list[float] | SparseVector, node: DocNode) -> float:
    """What ``similarity=None`` stands for: `cosine` where vectors are dense, `ip` where they are sparse.

    Example:
        >>> nearest({3: 2.0}, DocNode(text="x", embeddings={"default": {3: 0.5}}))
        1.0
    """
    return ip(query, node) if isinstance(query, dict) else cosine(query, node)


def _dense(vector: list[float] | Embedding) -> NDArray[np.float64]:
    if isinstance(vector, dict):
        msg = (
            f"A vector is sparse ({vector!r:.60}) where a dense one is needed; sparse ones go with sparse ones, by ip."
        )
        raise ConfigError(msg)
    return np.asarray(vector, np.float64)


def _bm25(analyser: str, query: str, nodes: Sequence[DocNode], model: BM25) -> list[tuple[DocNode, float]]:
    if not nodes:
        return []
    terms = term_function(analyser)
    by_uid = {node.uid: node for node in nodes}
    index = LexicalIndex()
    index.add(list(by_uid), [terms(node.get_text()) for node in by_uid.values()])
    return [(by_uid[uid], score) for uid, score in index.search(terms(query), len(by_uid), model=model)]


BM25_ENGLISH = Similarity("bm25", bm25, "text", descend=True, batch=True, search=partial(TermSearch, analyser="en"))
BM25_CHINESE = Similarity(
    "bm25_chinese", bm25_chinese, "text", descend=True, batch=True, search=partial(TermSearch, analyser="zh")
)
COSINE = Similarity(
    "cosine", cosine, "embedding", descend=True, batch=False, search=partial(VectorSearch, metric="cosine")
)
INNER_PRODUCT = Similarity("ip", ip, "embedding", descend=True, batch=False, search=partial(VectorSearch, metric="ip"))
OWN_METRIC = Similarity("cosine or ip", nearest, "embedding", descend=True, batch=False, search=VectorSearch)
"""Each collection's own, where no similarity is named."""
