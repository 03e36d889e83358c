"""A pipeline for threads: the same methods, which wait."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

from lazyrag.data.filters import FilterLike
from lazyrag.data.result import Answer, AnswerDelta, Hit, RAGContext, RetrievalResult
from lazyrag.models import background
from lazyrag.pipeline.batches import OnError
from lazyrag.pipeline.run import warn_of, warn_of_each
from lazyrag.validation import known_keywords


class SyncPipeline:
    """`RAGPipeline` for programs without an event loop, and for notebooks and functions that a running one called.

    The questions run on the package's private event loop, on a thread of its own, where asynchronous callables of the
    user then run, too. Whatever ends the wait, such as KeyboardInterrupt, ends the question. Errors and warnings are
    those of the coroutines.

    Args:
        pipeline: The pipeline.
    """

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline  # Any: its class leads here

    def __repr__(self) -> str:
        return f"{self._pipeline!r}.sync"

    @known_keywords
    def retrieve(
        self, query: str, top_k: int | None = None, filters: FilterLike | None = None
    ) -> RetrievalResult[dict[str, Any]]:
        """See `RAGPipeline.retrieve`."""
        return background.run(self._pipeline.retrieve(query, top_k, filters))

    @known_keywords
    def retrieve_and_rerank(
        self,
        query: str,
        top_k: int | None = None,
        rerank_top_k: int | None = None,
        filters: FilterLike | None = None,
    ) -> RetrievalResult[dict[str, Any]]:
        """See `RAGPipeline.retrieve_and_rerank`."""
        return background.run(self._pipeline.retrieve_and_rerank(query, top_k, rerank_top_k, filters))

    @known_keywords
    def build_context(
        self,
        results: Sequence[Hit] | RetrievalResult[Any],
        max_tokens: int | None = None,
        *,
        query: str | None = None,
    ) -> str:
        """See `RAGPipeline.build_context`."""
        text: str = background.run(self._pipeline.build_context(results, max_tokens, query=query))
        return text

    @known_keywords
    def retrieve_with_context(
        self,
        query: str,
        top_k: int | None = None,
        max_tokens: int | None = None,
        filters: FilterLike | None = None,
    ) -> RAGContext:
        """See `RAGPipeline.retrieve_with_context`."""
        context: RAGContext = background.run(self._pipeline.retrieve_with_context(query, top_k, max_tokens, filters))
        return context

    @known_keywords
    def answer(
        self,
        query: str,
        top_k: int | None = None,
        max_tokens: int | None = None,
        filters: FilterLike | None = None,
    ) -> Answer:
        """See `RAGPipeline.answer`."""
        answer: Answer = background.run(self._pipeline._run(query).whole_answer(top_k, max_tokens, filters))
        warn_of(answer)
        return answer

    @known_keywords
    def answer_from(
        self,
        results: Sequence[Hit] | RetrievalResult[Any],
        max_tokens: int | None = None,
        *,
        query: str | None = None,
    ) -> Answer:
        """See `RAGPipeline.answer_from`."""
        answer: Answer = background.run(self._pipeline._run_of(results, query).answer_from(results, max_tokens))
        warn_of(answer)
        return answer

    @known_keywords
    def stream(
        self,
        query: str,
        top_k: int | None = None,
        max_tokens: int | None = None,
        filters: FilterLike | None = None,
    ) -> Iterator[AnswerDelta]:
        """See `RAGPipeline.astream`; closing or dropping the iterator ends the model's call."""
        return _warning(self._pipeline._run(query).deltas(top_k, max_tokens, filters))

    @known_keywords
    def batch_retrieve(
        self,
        queries: Sequence[str],
        top_k: int | None = None,
        filters: FilterLike | None = None,
        *,
        concurrency: int = 8,
        on_error: OnError = "raise",
    ) -> list[RetrievalResult[dict[str, Any]]]:
        """See `RAGPipeline.batch_retrieve`."""
        return background.run(
            self._pipeline.batch_retrieve(queries, top_k, filters, concurrency=concurrency, on_error=on_error)
        )

    @known_keywords
    def batch_retrieve_with_context(
        self,
        queries: Sequence[str],
        top_k: int | None = None,
        max_tokens: int | None = None,
        filters: FilterLike | None = None,
        *,
        concurrency: int = 8,
        on_error: OnError = "raise",
    ) -> list[RAGContext]:
        """See `RAGPipeline.batch_retrieve_with_context`."""
        return background.run(
            self._pipeline.batch_retrieve_with_context(
                queries, top_k, max_tokens, filters, concurrency=concurrency, on_error=on_error
            )
        )

    @known_keywords
    def batch_answer(
        self,
        queries: Sequence[str],
        top_k: int | None = None,
        max_tokens: int | None = None,
        filters: FilterLike | None = None,
        *,
        concurrency: int = 8,
        on_error: OnError = "raise",
    ) -> list[Answer]:
        """See `RAGPipeline.batch_answer`."""
        answers: list[Answer] = background.run(
            self._pipeline._batch_answer(queries, top_k, max_tokens, filters, concurrency, on_error)
        )
        return warn_of_each(answers)


def _warning(deltas: AsyncGenerator[AnswerDelta, None]) -> Iterator[AnswerDelta]:
    """The deltas, and warnings where the last of them is taken."""
    for delta in background.stream(deltas):
        if delta.answer is not None:
            warn_of(delta.answer)
        yield delta
