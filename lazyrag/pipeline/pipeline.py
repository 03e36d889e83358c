"""`RAGPipeline`: from a question to a cited answer, in any event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

from lazyrag.data.filters import FilterLike
from lazyrag.data.result import Answer, AnswerDelta, Hit, RAGContext, RetrievalResult
from lazyrag.document.document import Document
from lazyrag.errors import ConfigError, LazyRAGError, known_names
from lazyrag.generation.citations import CitationManager
from lazyrag.generation.context import ContextBuilder
from lazyrag.generation.generator import Generator
from lazyrag.models import concurrency as background
from lazyrag.models.chat import ChatCallable
from lazyrag.models.local import local_rerank_model
from lazyrag.models.protocols import ChatModel
from lazyrag.pipeline.external import MilvusFinder
from lazyrag.pipeline.run import Parts, Run, make_rerank, warn_of, warn_of_each
from lazyrag.pipeline.search import Finder, RetrieverFinder
from lazyrag.pipeline.settings import PipelineSettings, as_settings
from lazyrag.ranking.fusion import fusions
from lazyrag.retrieval.hybrid import HybridRetriever
from lazyrag.retrieval.postprocessors import RetrievalChain
from lazyrag.retrieval.retriever import Retriever
from lazyrag.retrieval.stages import NodeRetriever, check_query
from lazyrag.validation import keyword_names, known_arguments, known_keywords, whole_number, yes_or_no

T = TypeVar("T")
Q = TypeVar("Q")

OnError: TypeAlias = Literal["raise", "collect"]
"""What becomes of an error: it ends all questions, or stands in the place of its own."""


async def each_query(
    ask: Callable[[str], Awaitable[T]], queries: Sequence[str], concurrency: int, on_error: OnError
) -> list[T | LazyRAGError]:
    """`each` for questions.

    Raises:
        ConfigError: If queries are no list of texts, or as in `each`.
    """
    if isinstance(queries, str) or not isinstance(queries, Sequence) or not all(isinstance(q, str) for q in queries):
        msg = f"queries is {queries!r:.60}; give a list of texts."
        raise ConfigError(msg)
    return await each(ask, queries, concurrency, on_error)


async def each(
    ask: Callable[[Q], Awaitable[T]], many: Sequence[Q], concurrency: int, on_error: OnError
) -> list[T | LazyRAGError]:
    """Do the same for each of many, a bounded number at a time.

    Cancelling ends all of them.

    Args:
        ask: What is done for one.
        many: What it is done for.
        concurrency: How many at once, at least 1.
        on_error: ``"collect"`` keeps errors of this package in their places; others, which are faults of a program,
            are raised in any case.

    Returns:
        What each of them gave, in their order.

    Raises:
        ConfigError: If an argument is out of its range.
    """
    if on_error not in get_args(OnError):
        msg = f"on_error is {on_error!r:.60}. {known_names(str(on_error), get_args(OnError))}"
        raise ConfigError(msg)
    gate = asyncio.Semaphore(whole_number("concurrency", concurrency, 1))
    over: list[BaseException] = []

    async def one(given: Q) -> Any:
        async with gate:
            if over:  # the gate opened because another one failed
                raise asyncio.CancelledError
            try:
                return await ask(given)
            except LazyRAGError as exc:
                if on_error == "collect":
                    return exc
                over.append(exc)
                raise
            except BaseException as exc:
                over.append(exc)
                raise

    tasks = [asyncio.ensure_future(one(given)) for given in many]
    try:
        found: list[T | LazyRAGError] = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return found


WORDS = "bm25_chinese"
"""By words: it serves English as well, see docs/quality.md."""


def over(
    doc: Document | Sequence[Document], group_name: str, settings: PipelineSettings | None, reranker: Any
) -> tuple[NodeRetriever, Any]:
    """A retriever over a Document, or several, and the reranker behind it; see `lazyrag.RAGPipeline.over`."""
    documents = [doc] if isinstance(doc, Document) else list(doc) if isinstance(doc, (list, tuple)) else []
    if not documents or not all(isinstance(one, Document) for one in documents):
        msg = f"RAGPipeline.over got {doc!r:.60}; give a Document, or a list of Documents."
        raise ConfigError(msg)
    embeds = all(one.embed_keys for one in documents)
    if settings is None:
        found = RetrievalChain.over(documents, group_name) if embeds else Retriever(documents, group_name, WORDS)
        return found, reranker
    if reranker is None and settings.rag_use_reranker:
        reranker = _cross_encoder(settings)
    if not settings.rag_use_hybrid_search:
        return Retriever(documents, group_name, "cosine" if embeds else WORDS), reranker
    if not embeds:
        msg = (
            "rag_use_hybrid_search is True, and a Document has no embeddings; give it embed=..., or set "
            "rag_use_hybrid_search to False."
        )
        raise ConfigError(msg)
    return _hybrid(documents, group_name, settings), reranker


def make_finder(manager: Any, client: Any, retriever: Any) -> Finder:
    """What finds hits: a retriever, or a collection of Milvus by the vectors of an embedding manager."""
    given = [name for name, one in (("embedding_manager", manager), ("milvus_client", client)) if one is not None]
    if retriever is not None and not given:
        return RetrieverFinder(retriever)
    if len(given) == 2 and retriever is None:
        return MilvusFinder(manager, client)
    told = ", ".join([*given, *(["retriever"] if retriever is not None else [])]) or "nothing"
    msg = (
        f"RAGPipeline got {told} to find hits with; give retriever=..., or embedding_manager=... and "
        "milvus_client=.... For a Document: RAGPipeline.over(docs, group_name)."
    )
    raise ConfigError(msg)


def make_builder(builder: Any) -> ContextBuilder:
    """What writes contexts: the one that is given, or the default."""
    if builder is not None and not isinstance(builder, ContextBuilder):
        msg = f"context_builder is {builder!r:.60}; give a ContextBuilder."
        raise ConfigError(msg)
    return builder or ContextBuilder()


def _hybrid(documents: list[Document], group_name: str, settings: PipelineSettings) -> HybridRetriever:
    vector, words = Retriever(documents, group_name, "cosine"), Retriever(documents, group_name, WORDS)
    method = settings.hybrid_fusion_method
    weights = [settings.hybrid_vector_weight, settings.hybrid_bm25_weight]
    named, takes_any = keyword_names(fusions[method].func, skip=1)
    # Specification 003's RRF has no weights.
    weighs = method != "rrf" and (takes_any or "weights" in named)
    usual = PipelineSettings()
    if not weighs and weights != [usual.hybrid_vector_weight, usual.hybrid_bm25_weight]:
        msg = (
            f"The settings weigh by {weights[0]:g} and {weights[1]:g}, and hybrid_fusion_method={method!r} has no "
            "weights; set it to 'weighted', or leave the weights as they are."
        )
        raise ConfigError(msg)
    return HybridRetriever(vector, words, fusion_method=method, weights=weights if weighs else None)


def _cross_encoder(settings: PipelineSettings) -> Any:
    # The default is what the model's class takes by itself, which may be less where a batch would sway scores.
    size = settings.reranker_batch_size
    told = None if size == PipelineSettings().reranker_batch_size else size
    try:
        return local_rerank_model(settings.reranker_model, told)
    except ConfigError as exc:
        msg = f"{exc} Or give reranker=..., or set rag_use_reranker to False."
        raise ConfigError(msg) from exc


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


@known_arguments
class RAGPipeline:
    """Retrieves, reranks, builds the context and has a chat model answer from it, with citations (spec 003).

    Its methods are coroutines, for any event loop; ``pipeline.sync`` has them for programs without one, and inside of
    running loops. What blocks works in threads. One pipeline serves many questions at once.

    Hits come from one of two: a retriever of this package, or any other callable (see `RAGPipeline.over` for a
    Document); or a collection of Milvus that another program filled, by the vectors of an embedding manager.

    Args:
        embedding_manager: For ``milvus_client``: an `Embedder`, a callable from one text to a vector, which may be
            asynchronous, or an object with ``embed_query`` or the like.
        milvus_client: A ``pymilvus.MilvusClient`` or ``AsyncMilvusClient`` whose only collection is asked; or a
            `MilvusCollection`, which names one.
        reranker: A `Reranker`; a rerank model or callable; what has an ``async rerank(query, documents, top_k)``; or
            the folder of a cross-encoder.
        retriever: A `Retriever`, `HybridRetriever`, `RetrievalChain`, or a callable (query, filters=None, topk=None)
            that gives nodes or hits and may be asynchronous.
        generator: A `Generator`, a chat model, or a callable from a text to a text; for `answer` and `astream`.
        context_builder: Writes the contexts; by default ``ContextBuilder()``.
        settings: `PipelineSettings`, or `Settings` of the environment: what holds where a call says nothing.
        name: Of the pipeline, for traces.
        capture_content: Whether traces hold questions, texts and answers; see docs/tracing.md.

    Raises:
        ConfigError: If there is not exactly one way to find hits, or an argument is not of its kind.

    Example:
        >>> from lazyrag import Document
        >>> docs = Document()
        >>> _ = docs.add_texts({"green.txt": "Green tea wants water of 80 degrees."})
        >>> pipeline = RAGPipeline.over(docs, "FineChunk", generator=lambda prompt: "Of 80 degrees [1].")
        >>> answer = pipeline.sync.answer("How hot is the water for green tea?")
        >>> answer.text, answer.citations[0].source
        ('Of 80 degrees [1].', 'green.txt')
    """

    def __init__(
        self,
        embedding_manager: Any = None,
        milvus_client: Any = None,
        reranker: Any = None,
        *,
        retriever: Any = None,
        generator: Generator | ChatModel | ChatCallable | None = None,
        context_builder: ContextBuilder | None = None,
        settings: PipelineSettings | Any = None,
        name: str = "rag",
        capture_content: bool = False,
    ) -> None:
        rerank, told = (None, "") if reranker is None else make_rerank(reranker)
        self._parts = Parts(
            finder=make_finder(embedding_manager, milvus_client, retriever),
            rerank=rerank,
            reranker=told,
            builder=make_builder(context_builder),
            generator=generator if generator is None or isinstance(generator, Generator) else Generator(generator),
            citations=CitationManager(),
            settings=as_settings(settings),
            name=name,
            capture_content=yes_or_no("capture_content", capture_content),
        )

    @classmethod
    def over(
        cls,
        doc: Document | Sequence[Document],
        group_name: str,
        *,
        generator: Generator | ChatModel | ChatCallable | None = None,
        reranker: Any = None,
        context_builder: ContextBuilder | None = None,
        settings: PipelineSettings | Any = None,
        **more: Any,
    ) -> RAGPipeline:
        """A pipeline over a Document, or several.

        Without settings, the retrieval that measured best: `RetrievalChain.over` where there are embeddings, else
        ``bm25_chinese``, which serves English as well. With settings, what they say: by meaning alone or as a hybrid
        (by words where there are no embeddings), and reranked by ``reranker_model`` unless a reranker is given or
        ``rag_use_reranker`` is False.

        Args:
            doc: A Document, or several.
            group_name: The node group to search.
            generator: See `RAGPipeline`, as for the others.
            reranker: See there.
            context_builder: See there.
            settings: See there.
            more: ``name``, ``capture_content``.

        Raises:
            ConfigError: If the settings' cross-encoder is not on this machine, or they ask for a hybrid of a Document
                without embeddings.
            NotRegisteredError: If there is no such group.
        """
        retriever, own = over(doc, group_name, None if settings is None else as_settings(settings), reranker)
        return cls(
            retriever=retriever,
            reranker=own,
            generator=generator,
            context_builder=context_builder,
            settings=settings,
            **more,
        )

    def __repr__(self) -> str:
        parts = self._parts
        return f"RAGPipeline({parts.finder.name!r}, reranker={parts.reranker!r}, generator={parts.generator!r})"

    @property
    def reranks(self) -> bool:
        """Whether `answer` reranks what is found: there is a reranker, and the settings do not turn it off."""
        return self._parts.reranks

    @property
    def sync(self) -> SyncPipeline:
        """The same methods for threads, which wait."""
        return SyncPipeline(self)

    @known_keywords
    async def retrieve(
        self, query: str, top_k: int | None = None, filters: FilterLike | None = None
    ) -> RetrievalResult[dict[str, Any]]:
        """The best hits of a question.

        Args:
            query: The question; a blank one finds nothing.
            top_k: At most so many, at least 1; None: as the settings say, 5 by default.
            filters: On the fields of the Document, or of the collection.

        Returns:
            A sequence of hits, best first. Metadata: ``query``, and ``seconds`` by stage.

        Raises:
            ConfigError: If the query is no text, or another argument does not fit.
            RetrievalError: If the retriever fails, or gives something else than nodes.
        """
        run = self._run(query)
        with run.span():
            return await run.result(await run.retrieve(top_k, filters))

    @known_keywords
    async def retrieve_and_rerank(
        self,
        query: str,
        top_k: int | None = None,
        rerank_top_k: int | None = None,
        filters: FilterLike | None = None,
    ) -> RetrievalResult[dict[str, Any]]:
        """The best hits of a question by the reranker, with its scores.

        Args:
            query: The question.
            top_k: How many the reranker gets; None: as the settings say, 5 by default.
            rerank_top_k: How many it leaves; None: as the settings say, 3 by default.
            filters: See `retrieve`.

        Raises:
            ConfigError: If the pipeline has no reranker, or as in `retrieve`.
            RetrievalError: If the retriever or the reranker fails.
        """
        if self._parts.rerank is None:
            msg = "The pipeline has no reranker: give it one, RAGPipeline(..., reranker=...), or call retrieve."
            raise ConfigError(msg)
        run = self._run(query)
        with run.span():
            return await run.result(await run.rerank(await run.retrieve(top_k, filters), rerank_top_k))

    @known_keywords
    async def build_context(
        self,
        results: Sequence[Hit] | RetrievalResult[Any],
        max_tokens: int | None = None,
        *,
        query: str | None = None,
    ) -> str:
        """The text that a chat model reads.

        Args:
            results: Hits, best first.
            max_tokens: Of the whole text, at least 1; None: as the settings say, 2000 by default.
            query: The question in it; None: the one that the results are of, if they say so.

        Raises:
            ConfigError: If template and question alone take more tokens, or an argument is not of its kind.
        """
        run = self._run_of(results, query)
        with run.span():
            return (await run.context(results, max_tokens)).context

    @known_keywords
    async def retrieve_with_context(
        self,
        query: str,
        top_k: int | None = None,
        max_tokens: int | None = None,
        filters: FilterLike | None = None,
    ) -> RAGContext:
        """A question with its context: retrieved, reranked where there is a reranker, and written.

        Args:
            query: The question.
            top_k: How many hits are asked for. The reranker leaves as many as the settings say.
            max_tokens: See `build_context`.
            filters: See `retrieve`.

        Raises:
            ConfigError: See `retrieve` and `build_context`.
            RetrievalError: If the retriever or the reranker fails.
        """
        run = self._run(query)
        with run.span():
            return await run.whole_context(top_k, max_tokens, filters)

    @known_keywords
    async def answer(
        self,
        query: str,
        top_k: int | None = None,
        max_tokens: int | None = None,
        filters: FilterLike | None = None,
    ) -> Answer:
        """A cited answer. Where nothing is found the model is not asked, and the answer says so.

        Args:
            query: The question.
            top_k: See `retrieve_with_context`, as for the others.
            max_tokens: See there.
            filters: See there.

        Raises:
            ConfigError: If the pipeline has no generator, or as in `retrieve_with_context`.
            RetrievalError: If the retriever or the reranker fails.
            GenerationError: If the model fails, or answers with something unusable; its ``context`` is what the model
                was given.

        Warns:
            AnswerWarning: For each thing that is wrong with the answer; they stand in its ``problems``.
        """
        answer = await self._run(query).whole_answer(top_k, max_tokens, filters)
        warn_of(answer)
        return answer

    @known_keywords
    async def answer_from(
        self,
        results: Sequence[Hit] | RetrievalResult[Any],
        max_tokens: int | None = None,
        *,
        query: str | None = None,
    ) -> Answer:
        """A cited answer from hits that are at hand: nothing is retrieved, nothing reranked.

        Args:
            results: Hits, best first.
            max_tokens: See `build_context`.
            query: The question; None: the one that the results are of, if they say so.

        Raises:
            ConfigError: If the pipeline has no generator, there is no question, or as in `build_context`.
            GenerationError: See `answer`.

        Warns:
            AnswerWarning: See `answer`.
        """
        answer = await self._run_of(results, query).answer_from(results, max_tokens)
        warn_of(answer)
        return answer

    async def astream(
        self,
        query: str,
        top_k: int | None = None,
        max_tokens: int | None = None,
        filters: FilterLike | None = None,
    ) -> AsyncGenerator[AnswerDelta, None]:
        """A cited answer piece by piece; see `answer`.

        Citations come with the piece that completes their number; the last piece has the whole answer. Closing the
        iterator ends the model's call.
        """
        async with contextlib.aclosing(self._run(query).deltas(top_k, max_tokens, filters)) as deltas:
            async for delta in deltas:
                if delta.answer is not None:
                    warn_of(delta.answer)
                yield delta

    @known_keywords
    async def batch_retrieve(
        self,
        queries: Sequence[str],
        top_k: int | None = None,
        filters: FilterLike | None = None,
        *,
        concurrency: int = 8,
        on_error: OnError = "raise",
    ) -> list[RetrievalResult[dict[str, Any]]]:
        """`retrieve` for each of some questions, in their order.

        Args:
            queries: The questions.
            top_k: See `retrieve`.
            filters: See `retrieve`.
            concurrency: How many are asked at once, at least 1.
            on_error: ``"raise"``: the first error ends the others. ``"collect"``: it stands in its question's place.
        """
        found = await each_query(lambda one: self.retrieve(one, top_k, filters), queries, concurrency, on_error)
        return cast("list[RetrievalResult[dict[str, Any]]]", found)

    @known_keywords
    async def batch_retrieve_with_context(
        self,
        queries: Sequence[str],
        top_k: int | None = None,
        max_tokens: int | None = None,
        filters: FilterLike | None = None,
        *,
        concurrency: int = 8,
        on_error: OnError = "raise",
    ) -> list[RAGContext]:
        """`retrieve_with_context` for each of some questions; see `batch_retrieve`."""
        found = await each_query(
            lambda one: self.retrieve_with_context(one, top_k, max_tokens, filters),
            queries,
            concurrency,
            on_error,
        )
        return cast("list[RAGContext]", found)

    @known_keywords
    async def batch_answer(
        self,
        queries: Sequence[str],
        top_k: int | None = None,
        max_tokens: int | None = None,
        filters: FilterLike | None = None,
        *,
        concurrency: int = 8,
        on_error: OnError = "raise",
    ) -> list[Answer]:
        """`answer` for each of some questions; see `batch_retrieve`."""
        return warn_of_each(await self._batch_answer(queries, top_k, max_tokens, filters, concurrency, on_error))

    async def _batch_answer(
        self,
        queries: Sequence[str],
        top_k: int | None,
        max_tokens: int | None,
        filters: FilterLike | None,
        concurrency: int,
        on_error: OnError,
    ) -> list[Answer]:
        """`batch_answer`, without warnings."""
        found = await each_query(
            lambda one: self._run(one).whole_answer(top_k, max_tokens, filters),
            queries,
            concurrency,
            on_error,
        )
        return cast("list[Answer]", found)

    def _run(self, query: str) -> Run:
        check_query(query)
        return Run(self._parts, query)

    def _run_of(self, results: Any, query: str | None) -> Run:
        """Of a question, or of the one that results are of, if they say so."""
        metadata = results.metadata if query is None and isinstance(results, RetrievalResult) else None
        told = metadata.get("query", "") if isinstance(metadata, Mapping) else ""
        return self._run(told if query is None else query)
