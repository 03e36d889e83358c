"""Feedback: what was found first says what else to look for."""

from __future__ import annotations

import time

from lazyrag.data.node import DocNode
from lazyrag.document.snapshot import Snapshot
from lazyrag.errors import ConfigError
from lazyrag.retrieval.base import BaseRetriever, as_retriever, check_retrievers
from lazyrag.retrieval.ranked import LazyStage, Query
from lazyrag.retrieval.search import checked_towards
from lazyrag.retrieval.stages import NodeRetriever
from lazyrag.validation import known_arguments, whole_number


@known_arguments
class FeedbackRetriever(BaseRetriever[list[DocNode]]):
    """Asks a retriever twice: the second time with the query's vector moved towards the best nodes of the first time.

    Where a question has many good answers, more of them are found: texts that say the same in other words. Where it has
    one, the first place may be lost to a neighbour of it, unless a reranker comes after; see docs/quality.md. The query
    is embedded once. What ranks by words or by sparse vectors is asked as it was.

    Args:
        retriever: A `Retriever` by embeddings, or a `HybridRetriever` with one in it.
        nodes: How many of the first nodes the query is moved towards, at least 1.
        weight: How far, see `Retriever.towards`.

    Raises:
        ConfigError: If the retriever's queries cannot be moved, or a value is out of its range.

    Source:
        See `lazyrag.retrieval.search.moved`.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> vectors = {"tea": [1.0, 0.0], "oolong": [0.8, 0.6], "pu-erh": [0.6, 0.8], "soup": [0.7, -0.7]}
        >>> docs = Document(embed=vectors.__getitem__)
        >>> _ = docs.add_texts({"a": "oolong", "b": "pu-erh", "c": "soup"})
        >>> retriever = Retriever(docs, "FineChunk")
        >>> [node.text for node in retriever("tea")]
        ['oolong', 'soup', 'pu-erh']
        >>> [node.text for node in FeedbackRetriever(retriever, nodes=1)("tea")]
        ['oolong', 'pu-erh', 'soup']
    """

    def __init__(self, retriever: NodeRetriever, *, nodes: int = 2, weight: float = 0.7) -> None:
        if isinstance(retriever, type) or not as_retriever(retriever).moves:
            msg = (
                f"FeedbackRetriever got {retriever!r:.80}, whose queries cannot be moved; give a Retriever by "
                "embeddings and without target=, or a HybridRetriever with one in it."
            )
            raise ConfigError(msg)
        self._combine(check_retrievers("FeedbackRetriever", [retriever]))
        self._nodes = whole_number("nodes", nodes, 1)
        _, self._weight = checked_towards([], weight, ())

    @property
    def descends(self) -> bool | None:
        """Whether a higher score of its nodes is a better one, as the retriever says."""
        return self.retrievers[0].descends

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """See `BaseRetriever.run`."""
        [retriever] = self.retrievers
        begun = time.perf_counter()
        first = () if query.is_blank else retriever.run(query.with_topk(self._nodes), snapshot).nodes()
        seconds = time.perf_counter() - begun
        found = retriever.run(query.moved_towards(first, self._weight), snapshot)
        said = {"towards": [node.uid for node in first], "weight": self._weight}
        return found.followed("step", "feedback", said=said, seconds=seconds)
