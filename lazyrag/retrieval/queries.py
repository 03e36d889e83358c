"""`MultiQueryRetriever`: one question asked in several ways, the results fused."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lazyrag.arguments import known_keywords, whole_number
from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.document.builder import Builder
from lazyrag.errors import ConfigError, LazyRAGError, RetrievalError
from lazyrag.models.protocol import ChatModel
from lazyrag.retrieval.explain import Explanation, explain, why_not
from lazyrag.retrieval.fusing import Fusing
from lazyrag.retrieval.ranked import (
    Numbers,
    check_retrievers,
    descends,
    ranked,
)
from lazyrag.retrieval.rewriting import QueryRewriter, same
from lazyrag.retrieval.stages import NodeRetriever, Reason, Stage, check_query, stage_of
from lazyrag.retrieval.together import prepare_all, read_together, trees_of

_FUSED_AT_LEAST = 50
_PARAMETERS = "retriever rewrite n fusion_method topk depth".split()


class MultiQueryRetriever:
    """Asks a retriever a question in several ways, and fuses what it finds into one ranking.

    The question itself is always asked, first. A rewriting that fails is an error: nothing is left out in silence.

    Args:
        retriever: Any retriever of nodes.
        rewrite: A callable from the question to a list of queries; a `ChatModel`, which then is asked for other
            wordings (see `QueryRewriter` for other tasks and prompts).
        n: At most so many queries beside the question.
        fusion_method: Name of a registered fusion.
        topk: At most so many nodes.
        depth: How many nodes of each query are fused; None: 4 x topk, and at least 50.
        fusion_kw: Keywords of the fusion, but no weights, nor lists of a value for each ranking: the number of queries
            varies.

    Raises:
        NotRegisteredError: If there is no such fusion.
        ConfigError: If another argument is out of its range, or of the wrong kind.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"a": "green tea", "b": "matcha", "c": "coffee"})
        >>> words = {"tea": ["matcha", "oolong"]}
        >>> retriever = MultiQueryRetriever(
        ...     Retriever(docs, "FineChunk", similarity="bm25"), lambda query: words.get(query, [])
        ... )
        >>> sorted(node.text for node in retriever("tea"))
        ['green tea', 'matcha']
    """

    def __init__(
        self,
        retriever: NodeRetriever,
        rewrite: ChatModel | Callable[[str], Sequence[str]],
        n: int = 3,
        *,
        fusion_method: str = "rrf",
        topk: int = 6,
        depth: int | None = None,
        **fusion_kw: Any,
    ) -> None:
        check_retrievers("MultiQueryRetriever", [retriever])
        self._retriever = retriever
        self._n = whole_number("n", n, 1)
        self._rewrite: Callable[[str], Any] = QueryRewriter(rewrite, n=n) if isinstance(rewrite, ChatModel) else rewrite
        if not callable(self._rewrite):
            msg = f"rewrite is {rewrite!r:.80}; give a callable from a question to a list of queries, or a ChatModel."
            raise ConfigError(msg)
        if "weights" in fusion_kw:
            msg = "MultiQueryRetriever takes no weights: how many queries there are is known only when it is asked."
            raise ConfigError(msg)
        self._fusing = Fusing.checked(fusion_method, fusion_kw, _PARAMETERS)
        self._fusing.try_out(2)
        try:
            self._fusing.try_out(3)
        except LazyRAGError as exc:
            msg = (
                f"MultiQueryRetriever got {fusion_kw!r:.80}, which fits a certain number of queries, and that is known "
                "only when it is asked. Give values that hold for every query."
            )
            raise ConfigError(msg) from exc
        self._fusing.check_directions([descends(retriever)])
        self._topk = whole_number("topk", topk, 1)
        self._depth = None if depth is None else whole_number("depth", depth, 1)

    @property
    def trees(self) -> list[Builder]:
        """The trees of its Documents, for reads of several retrievers that are to see one state."""
        return trees_of([self._retriever])

    def prepare(self) -> None:
        """Build what a question will need, before it begins to read."""
        prepare_all([self._retriever])

    def queries(self, query: str) -> list[str]:
        """What is asked for a question: itself, then at most ``n`` others, each once.

        Raises:
            ConfigError: If the question is no text.
            GenerationError: If a chat model fails.
            RetrievalError: If the rewriting raises, or returns something else than a list of texts.
        """
        if not check_query(query):
            return []
        try:
            given = self._rewrite(query)
        except LazyRAGError:
            raise
        except Exception as exc:
            msg = f"The rewriting raised {type(exc).__name__} for {query!r:.60}: {exc}"
            raise RetrievalError(msg) from exc
        if not isinstance(given, (list, tuple)) or not all(isinstance(one, str) for one in given):
            msg = f"The rewriting returned {given!r:.80} for {query!r:.60}; a list of texts is needed."
            raise RetrievalError(msg)
        asked = {same(query): query}
        for one in given:
            if one.strip():
                asked.setdefault(same(one), one)
        return list(asked.values())[: self._n + 1]

    @known_keywords
    def __call__(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> list[DocNode]:
        """The best nodes for a question in all its wordings.

        Args:
            query: A question. A blank one finds nothing, and nobody is asked to rewrite it.
            filters: For every query.
            topk: Another bound for this call.

        Returns:
            Nodes with fused scores, best first, ties by uid.

        Raises:
            ConfigError: If the query is no text, or a filter does not fit.
            GenerationError: If a chat model fails.
            RetrievalError: If the rewriting raises, or it or the retriever returns something else than it must. What a
                retriever of one's own raises comes through as it is.
        """
        limit, depth = self._bounds(topk)
        queries = self.queries(query)

        def read() -> list[DocNode]:
            met = Numbers(self.trees)
            found = [ranked(self._retriever, one, filters, depth, met) for one in queries]
            return self._fusing.cut_at(depth).best(found, limit)

        return read_together([self._retriever], read) if queries else []

    @known_keywords
    def trace(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Stage:
        """The stages of a call with the same arguments; the queries stand in ``said``."""
        limit, depth = self._bounds(topk)
        begun = time.perf_counter()
        queries = self.queries(query)
        rewriting_s = time.perf_counter() - begun

        def read() -> Stage:
            inputs = [stage_of(self._retriever, one, filters, depth) for one in queries]
            directions = [descends(self._retriever)] * len(inputs)
            fusing = self._fusing.cut_at(depth)
            fused = fusing.stage("queries", fusing.fusion.name, inputs, directions, depth, self.trees)
            said = {**fused.said, "queries": queries}
            fused = replace(fused, said=said, seconds=fused.seconds + rewriting_s)
            return Stage("cut", "topk", fused.nodes[:limit], (fused,), said={"topk": limit})

        return read_together([self._retriever] if queries else [], read)

    @known_keywords
    def explain(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Explanation:
        """Why the nodes of a result stand where they stand; see `lazyrag.explain`."""
        return explain(self, query, filters, topk)

    @known_keywords
    def why_not(self, uid: str, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Reason:
        """Why a node is not in a result, or at which rank it is; see `lazyrag.why_not`."""
        return why_not(self, uid, query, filters, topk)

    def _bounds(self, topk: int | None) -> tuple[int, int]:
        limit = self._topk if topk is None else whole_number("topk", topk, 1)
        return limit, max(_FUSED_AT_LEAST, 4 * limit) if self._depth is None else self._depth
