"""`MultiQueryRetriever`: one question asked in several ways, the results fused."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.document.snapshot import Snapshot
from lazyrag.errors import ConfigError, LazyRAGError, RetrievalError
from lazyrag.models.protocol import ChatModel
from lazyrag.retrieval.base import BaseRetriever, check_retrievers
from lazyrag.retrieval.ranked import Fusing, LazyStage, Query
from lazyrag.retrieval.rewriting import QueryRewriter, same
from lazyrag.retrieval.stages import NodeRetriever, check_query
from lazyrag.validation import whole_number

_FUSED_AT_LEAST = 50
_PARAMETERS = "retriever rewrite n fusion_method topk depth".split()


class MultiQueryRetriever(BaseRetriever[list[DocNode]]):
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
        self._combine(check_retrievers("MultiQueryRetriever", [retriever]))
        [self._retriever] = self.retrievers
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
        self._fusing.check_directions([self._retriever.descends])
        self._topk = whole_number("topk", topk, 1)
        self._depth = None if depth is None else whole_number("depth", depth, 1)

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

    def prepare(self, query: Query) -> None:
        """See `BaseRetriever.prepare`: rewrites the query."""
        for one in self._rewritten(query)[0]:
            self._retriever.prepare(query.with_text(one))

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """See `BaseRetriever.run`."""
        limit = self._limit(query)
        depth = max(_FUSED_AT_LEAST, 4 * limit) if self._depth is None else self._depth
        queries, seconds = self._rewritten(query)
        inputs = [self._retriever.ask(query.with_text(one).with_topk(depth), snapshot) for one in queries]
        directions = [self._retriever.descends] * len(inputs)
        fusing = self._fusing.cut_at(depth)
        fused = fusing.fused("queries", fusing.fusion.name, inputs, directions, depth, snapshot, queries=queries)
        fused.seconds += seconds
        return fused.cut(limit)

    def _rewritten(self, query: Query) -> tuple[list[str], float]:
        """What is asked for a question, worked out once a call, and how long that took."""
        key = id(self), query.text
        known: tuple[list[str], float] | None = query.memo.get(key)
        if known is None:
            begun = time.perf_counter()
            queries = self.queries(query.text)
            known = query.memo[key] = queries, time.perf_counter() - begun
        return known
