"""Feedback: what was found first says what else to look for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from lazyrag.arguments import known_arguments, known_keywords, whole_number
from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.document.builder import Builder
from lazyrag.errors import ConfigError
from lazyrag.retrieval.explain import Explanation, explain, why_not
from lazyrag.retrieval.query_vectors import checked_towards
from lazyrag.retrieval.ranked import Movable, can_move, descends
from lazyrag.retrieval.stages import Reason, Stage, check_query, stage_of
from lazyrag.retrieval.together import prepare_all, read_together, trees_of


@known_arguments
class FeedbackRetriever:
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
        See `lazyrag.retrieval.query_vectors.moved`.

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

    def __init__(self, retriever: Movable, *, nodes: int = 2, weight: float = 0.7) -> None:
        if not can_move(retriever):
            msg = (
                f"FeedbackRetriever got {retriever!r:.80}, whose queries cannot be moved; give a Retriever by "
                "embeddings and without target=, or a HybridRetriever with one in it."
            )
            raise ConfigError(msg)
        output_format: Any = getattr(retriever, "output_format", None)
        if output_format is not None:
            msg = f"FeedbackRetriever got a retriever with output_format={output_format!r}; leave that out."
            raise ConfigError(msg)
        self._retriever = retriever
        self._nodes = whole_number("nodes", nodes, 1)
        _, self._weight = checked_towards([], weight, ())

    @property
    def trees(self) -> list[Builder]:
        """The trees of the retriever's Documents, for reads of several retrievers that are to see one state."""
        return trees_of([self._retriever])

    @property
    def descends(self) -> bool | None:
        """Whether a higher score of its nodes is a better one, as the retriever says; see `ranked.descends`."""
        return descends(self._retriever)

    def prepare(self) -> None:
        """Build what a question will need, before it begins to read."""
        prepare_all([self._retriever])

    @known_keywords
    def __call__(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> list[DocNode]:
        """The best nodes for a query.

        Args:
            query: A question or keywords. A blank one finds nothing.
            filters: For both times.
            topk: At most so many nodes; None: as many as the retriever gives by itself.

        Returns:
            Nodes with the scores of the second time, best first, ties by uid.

        Raises:
            ConfigError: If the query is no text, or a filter does not fit.
            RetrievalError: If the retriever fails.
        """
        if not check_query(query):
            return []

        asked = self._retriever.for_one_question()  # also where the read is done again

        def read() -> list[DocNode]:
            again, _ = self._again(asked, query, filters)
            return again(query, filters=filters, topk=topk)

        return read_together([self._retriever], read)

    @known_keywords
    def trace(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Stage:
        """The stages of the second time, and towards which nodes the query was moved."""
        asked = self._retriever.for_one_question()

        def read() -> Stage:
            begun = time.perf_counter()
            again, first = self._again(asked, query, filters) if check_query(query) else (asked, [])
            spent = time.perf_counter() - begun
            found = stage_of(again, query, filters, topk)
            said = {"towards": [node.uid for node in first], "weight": self._weight}
            return Stage("step", "feedback", found.nodes, (found,), said=said, seconds=spent)

        return read_together([self._retriever], read)

    @known_keywords
    def explain(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Explanation:
        """Why the nodes of a result stand where they stand; see `lazyrag.explain`."""
        return explain(self, query, filters, topk)

    @known_keywords
    def why_not(self, uid: str, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Reason:
        """Why a node is not in a result, or at which rank it is; see `lazyrag.why_not`."""
        return why_not(self, uid, query, filters, topk)

    def _again(self, asked: Movable, query: str, filters: FilterLike | None) -> tuple[Movable, Sequence[DocNode]]:
        """The retriever as it is asked the second time, and the nodes that the query is moved towards."""
        first = asked(query, filters=filters, topk=self._nodes)
        return asked.towards(first, self._weight), first
