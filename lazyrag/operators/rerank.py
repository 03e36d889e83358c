"""Reranking as a step: the best of what was found, as ``reranking_results`` and ``reranking_docs``."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from lazyrag.data.result import Hit
from lazyrag.models import background
from lazyrag.models.chat import ChatCallable
from lazyrag.models.protocol import ChatModel
from lazyrag.operators.data import TO_RERANK, RAGData, latest_results, query_of
from lazyrag.operators.operator import Operator
from lazyrag.pipeline.finding import Found
from lazyrag.pipeline.reranking import make_rerank
from lazyrag.retrieval.reranker import Reranker
from lazyrag.validation import known_arguments, whole_number

_TOPK = 3


@known_arguments
class RerankOperator(Operator):
    """Puts the texts that answer best first (spec 000's reranking stage).

    It reads ``refining_docs``, else ``retrieval_docs``. Each of ``reranking_results`` is the row that the text had
    before, with the reranker's score in it. A second reranking writes over the first.

    Args:
        reranker: A `Reranker`; a rerank model, or a callable ``(query, documents=[...], top_n=n)``; what has an
            ``async rerank(query, documents, top_k)``; or the folder of a cross-encoder.
        topk: How many are left, at least 1.

    Raises:
        ConfigError: If an argument is not of its kind.

    Example:
        >>> data = {"query": "green tea", "retrieval_docs": ["Black tea.", "Green tea."]}
        >>> RerankOperator(Reranker("BM25Reranker"), topk=1)(data)["reranking_docs"]
        ['Green tea.']
    """

    writes: ClassVar = ("reranking_results", "reranking_docs", "reranking_time")

    def __init__(self, reranker: Any, topk: int = _TOPK) -> None:
        self._rerank, self._name = make_rerank(reranker)
        self._topk = whole_number("topk", topk, 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, topk={self._topk})"

    def process(self, data: RAGData) -> Mapping[str, Any]:
        """The best texts."""
        return background.run(self.aprocess(data))

    async def aprocess(self, data: RAGData) -> Mapping[str, Any]:
        """The best texts.

        Raises:
            RetrievalError: If the reranker fails.
        """
        query, rows = query_of(data), latest_results(data, TO_RERANK)
        begun = time.perf_counter()
        best = await self._best(query, rows) if rows and query.strip() else rows[: self._topk]
        return {
            "reranking_results": best,
            "reranking_docs": [row["text"] for row in best],
            "reranking_time": time.perf_counter() - begun,
        }

    async def _best(self, query: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        hits = [
            Hit(str(at), row["text"], _score(row), metadata=row.get("metadata") or {}) for at, row in enumerate(rows)
        ]
        kept = await (await self._rerank(query, Found(hits), self._topk)).hits()
        # A reranker may give texts that it was not given: such as it merged, for one.
        before: dict[str, dict[str, Any]] = {hit.id: row for hit, row in zip(hits, rows, strict=True)}
        return [
            {**before.get(hit.id, {"metadata": dict(hit.metadata)}), "text": hit.text, "score": hit.score}
            for hit in kept
        ]


def _score(row: Mapping[str, Any]) -> float:
    score = row.get("score")
    return float(score) if isinstance(score, (int, float)) else math.nan


@known_arguments
class BGEReranker(RerankOperator):
    """Spec 000's reranker by a cross-encoder.

    Args:
        model: The folder of a cross-encoder, or its name where it is on this machine (nothing is downloaded); or a
            rerank model: `HttpRerankModel` for a server, for example.
        topk: How many are left.

    Raises:
        ConfigError: If the model is not on this machine, or no model.
    """

    def __init__(self, model: Any, topk: int = _TOPK) -> None:
        super().__init__(model, topk)


@known_arguments
class LLMbased_Reranker(RerankOperator):  # noqa: N801  the specification's name
    """Spec 000's reranker by a chat model, which is asked about each text.

    Args:
        model: A chat model, or a callable from a text to a text; see docs/rerankers.md.
        topk: How many are left.
        keywords: Further ones of the reranker ``"PointwiseReranker"``.

    Raises:
        ConfigError: If the model is none, or the reranker takes no such keyword.
    """

    def __init__(self, model: ChatModel | ChatCallable, topk: int = _TOPK, **keywords: Any) -> None:
        super().__init__(Reranker("PointwiseReranker", model=model, **keywords), topk)
