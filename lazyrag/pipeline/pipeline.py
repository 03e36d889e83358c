"""`RAGPipeline`: from a question to a cited answer, in any event loop; `SyncPipeline`: the same
without one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Concatenate, Literal, ParamSpec, TypeAlias, TypeVar, cast

from lazyrag.data.filters import FilterLike
from lazyrag.data.result import Answer, AnswerDelta, Hit, RAGContext, RetrievalResult
from lazyrag.document.document import Document
from lazyrag.errors import ConfigError, LazyRAGError
from lazyrag.generation.citations import CitationManager
from lazyrag.generation.claims import Judge
from lazyrag.generation.context import ContextBuilder
from lazyrag.generation.generator import Generator
from lazyrag.models import concurrency as background
from lazyrag.models.chat import ChatCallable
from lazyrag.models.concurrency import together
from lazyrag.models.local import local_rerank_model
from lazyrag.models.protocols import ChatModel, History, Message, as_messages
from lazyrag.pipeline.defaults import (
    RERANKER_SETTINGS,
    SEARCH_SETTINGS,
    PipelineSettings,
    as_settings,
    require_defaults,
    reset,
)
from lazyrag.pipeline.external import MilvusFinder
from lazyrag.pipeline.run import Parts, Run, emit_answer_warnings, make_rerank
from lazyrag.pipeline.search import Finder, RetrieverFinder
from lazyrag.read.scope import Collection
from lazyrag.retrieval.hybrid import (
    OVER_SIMILARITY,
    BoundFusion,
    HybridRetriever,
    default_retriever,
)
from lazyrag.retrieval.reranker import Reranker, rerankers
from lazyrag.retrieval.retriever import Retriever, validate_documents
from lazyrag.retrieval.stages import NodeRetriever, check_query
from lazyrag.types import JsonObject
from lazyrag.validation import (
    is_list_of,
    known_arguments,
    known_keywords,
    require,
    validate_boolean,
    validate_choice,
    validate_integer,
    validate_range,
    validate_text,
)

P = ParamSpec("P")
Q = TypeVar("Q")
T = TypeVar("T")

OnError: TypeAlias = Literal["raise", "collect"]
"""Whether an error stops all questions, or takes the place of its own."""

FALLBACK_RERANKER = "BM25Reranker"
"""Of `RAGPipeline.retrieve_and_rerank`, if the pipeline has no reranker: it needs no model."""


async def run_all(
    function: Callable[[Q], Awaitable[T]], items: Sequence[Q], concurrency: int, on_error: OnError
) -> list[T | LazyRAGError]:
    """Call a coroutine function for many items, a bounded number at a time. Cancelling stops all of
    them.

    Args:
        function: Called with one item.
        items: The items.
        concurrency: Maximum number at once, at least 1.
        on_error: ``"collect"``: errors of this package take their items' places. Other errors are
            faults of a program, and are raised in any case.

    Returns:
        The results, in the order of the items.

    Raises:
        ConfigError: If an argument is invalid.
    """
    validate_choice("on_error", on_error, OnError)
    gate = asyncio.Semaphore(validate_integer("concurrency", concurrency, 1))
    is_stopped = False

    async def run_one(item: Q) -> Any:
        nonlocal is_stopped
        async with gate:
            if is_stopped:  # the gate opened because another item failed
                raise asyncio.CancelledError
            try:
                return await function(item)
            except BaseException as exc:
                if on_error == "collect" and isinstance(exc, LazyRAGError):
                    return exc
                is_stopped = True
                raise

    return await together(*map(run_one, items))


def _warning(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorator: emit the warnings of answers in the task that awaits them."""

    @functools.wraps(method)
    async def answered(*args: P.args, **kwargs: P.kwargs) -> T:
        return emit_answer_warnings(await method(*args, **kwargs))

    return answered


@known_arguments
class RAGPipeline:
    """Retrieve, rerank, build the context and answer from it with a chat model, with citations
    (spec 003).

    The methods are coroutines, for any event loop. ``pipeline.sync`` has the same methods for
    programs without a loop, and inside running loops. Blocking work runs in threads. One pipeline
    serves many questions at once.

    Hits come from a retriever of this package or any other callable (for a Document see
    `RAGPipeline.over`), or from a Milvus collection that another program filled, searched by the
    vectors of an embedding manager.

    Args:
        embedding_manager: For ``milvus_client``: an `Embedder`, a callable from one text to a
            vector, which may be asynchronous, or an object with ``embed_query`` or a similar
            method.
        milvus_client: A ``pymilvus.MilvusClient`` or ``AsyncMilvusClient`` with one collection; or
            a `MilvusCollection`, which names one.
        reranker: A `Reranker`; a rerank model or callable; an object with an
            ``async rerank(query, documents, top_k)``; or the folder of a cross-encoder.
        retriever: A `Retriever`, `HybridRetriever`, `RetrievalChain`, a callable (query,
            filters=None, topk=None) that returns nodes or hits and may be asynchronous, or a client
            with ``search``, see `HybridRetriever`.
        generator: A `Generator`, a chat model, or a callable from a text to a text; for `answer`
            and `astream`. None: answers are quotations of the best passages and their neighbours.
        context_builder: Writes the contexts; by default ``ContextBuilder()``.
        settings: `PipelineSettings`, or `Settings` of the environment: the defaults of calls.
        abstain_at: With a generator: below which probability that the library answers a question it
            is not called, and the answer quotes the closest passages, from 0 to 1; None: it is
            always called. See docs/generation.md for the error rates.
        name: Of the pipeline, for traces.
        capture_content: Whether traces contain questions, texts and answers; see docs/pipeline.md.
        judge: A second opinion on the statements of answers, see `CitationManager`.

    Raises:
        ConfigError: If there is not exactly one way to find hits, or an argument is invalid.

    Example:
        >>> from lazyrag import Document
        >>> docs = Document()
        >>> _ = docs.add_texts({"green.txt": "Green tea wants water of 80 degrees."})
        >>> model = lambda prompt: "Of 80 degrees [1]."
        >>> pipeline = RAGPipeline.over(docs, "FineChunk", generator=model)
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
        abstain_at: float | None = None,
        name: str = "rag",
        capture_content: bool = False,
        judge: Judge | None = None,
    ) -> None:
        is_builder = context_builder is None or isinstance(context_builder, ContextBuilder)
        require(is_builder, "context_builder", context_builder, "a ContextBuilder")
        chosen = as_settings(settings)
        if settings is not None:
            require_defaults(
                chosen,
                SEARCH_SETTINGS,
                "the retriever is passed; RAGPipeline.over makes one of settings",
            )
            if reranker is not None:
                require_defaults(chosen, RERANKER_SETTINGS, "reranker= is passed")
            elif chosen.rag_use_reranker:
                reranker = _reranker_of(chosen)
            else:
                require_defaults(chosen, RERANKER_SETTINGS, "rag_use_reranker is False")
        finder = _make_finder(embedding_manager, milvus_client, retriever)
        rerank, reranker_name = make_rerank(
            Reranker(FALLBACK_RERANKER) if reranker is None else reranker
        )
        self._parts = Parts(
            finder=finder,
            rerank=rerank,
            reranker=reranker_name,
            has_reranker=reranker is not None,
            builder=context_builder or ContextBuilder(),
            generator=(
                generator
                if generator is None or isinstance(generator, Generator)
                else Generator(generator)
            ),
            abstain_at=_validate_abstention(abstain_at),
            citations=CitationManager(judge),
            settings=chosen,
            name=validate_text("name", name),
            capture_content=validate_boolean("capture_content", capture_content),
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
        """Make a pipeline over a Document, or several.

        Without settings: hybrid search (`HybridRetriever.over`) if there are embeddings, else
        keyword search by ``bm25_chinese``, which serves English as well; contexts are not reranked
        unless you pass a reranker. With settings: vector or hybrid search (keyword search if there
        are no embeddings), reranked by ``reranker_model`` unless you pass a reranker or
        ``rag_use_reranker`` is False.

        Args:
            doc: A Document, or several.
            group_name: The node group to search.
            generator: See `RAGPipeline`, also for the following.
            reranker: See there.
            context_builder: See there.
            settings: See there.
            more: ``abstain_at``, ``name``, ``capture_content``, ``judge``.

        Raises:
            ConfigError: If the settings' cross-encoder is not on this machine, they require hybrid
                search of a Document without embeddings, or one of them can have no effect.
            NotRegisteredError: If there is no such group.
        """
        documents = validate_documents(doc)
        chosen = None if settings is None else as_settings(settings)
        return cls(
            retriever=_make_retriever(documents, group_name, chosen),
            reranker=reranker,
            generator=generator,
            context_builder=context_builder,
            # the retriever follows them
            settings=None if chosen is None else reset(chosen, SEARCH_SETTINGS),
            **more,
        )

    def __repr__(self) -> str:
        parts = self._parts
        reranker = parts.reranker if parts.has_reranker else None
        return (
            f"RAGPipeline({parts.finder.name!r}, reranker={reranker!r},"
            f" generator={parts.generator!r})"
        )

    @property
    def reranks(self) -> bool:
        """Whether `answer` reranks: there is a reranker, and the settings do not turn it off."""
        return self._parts.reranks

    @property
    def sync(self) -> SyncPipeline:
        """The same methods without an event loop."""
        return SyncPipeline(self)

    @known_keywords
    async def retrieve(
        self, query: str, top_k: int | None = None, filters: FilterLike | None = None
    ) -> RetrievalResult[JsonObject]:
        """Return the best hits for a question.

        Args:
            query: The question; a blank one finds nothing.
            top_k: Maximum number of hits, at least 1; None: the setting, 5 by default.
            filters: On the fields of the Document, or of the collection.

        Returns:
            A sequence of hits, best first. Metadata: ``query``, and ``seconds`` by stage.

        Raises:
            ConfigError: If an argument is invalid.
            RetrievalError: If the retriever fails, or returns something else than nodes or hits.
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
    ) -> RetrievalResult[JsonObject]:
        """Return the best hits for a question by the reranker, with its scores.

        A pipeline without a reranker uses BM25 over the retrieved texts, which needs no model.

        Args:
            query: The question.
            top_k: Number of hits to rerank; None: the setting, 5 by default.
            rerank_top_k: Number of hits to keep; None: the setting, 3 by default.
            filters: See `retrieve`.

        Returns:
            As `retrieve`; the metadata's ``reranker`` names what reranked.

        Raises:
            ConfigError: If an argument is invalid.
            RetrievalError: If the retriever or the reranker fails.
        """
        run = self._run(query)
        with run.span():
            best = await run.rerank(await run.retrieve(top_k, filters), rerank_top_k)
            return await run.result(best, reranker=self._parts.reranker)

    @known_keywords
    async def build_context(
        self,
        results: Sequence[Hit],
        max_tokens: int | None = None,
        *,
        query: str | None = None,
    ) -> str:
        """Write the text that a chat model reads.

        Args:
            results: Hits, best first.
            max_tokens: Size of the complete text, at least 1; None: the setting, 2000 by default.
            query: The question; None: the query of the results, if their metadata have it.

        Raises:
            ConfigError: If template and question alone take more tokens, or an argument is invalid.
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
        *,
        history: History | None = None,
    ) -> RAGContext:
        """Retrieve, rerank if there is a reranker, and write the context.

        Args:
            query: The question.
            top_k: Number of hits to retrieve. The reranker's number comes from the settings.
            max_tokens: See `build_context`.
            filters: See `retrieve`.
            history: The conversation before the question, oldest message first. The chat model
                rewrites the question as a query that is clear without it, and that query is
                searched; without a generator the question as it is. The context's metadata have
                ``history`` and ``search_query``, and ``problems`` if the model failed and the
                question itself was searched.

        Raises:
            ConfigError: See `retrieve` and `build_context`.
            RetrievalError: If the retriever or the reranker fails.
        """
        run = self._run(query, history)
        with run.span():
            return await run.complete_context(top_k, max_tokens, filters)

    @known_keywords
    @_warning
    async def answer(
        self,
        query: str,
        top_k: int | None = None,
        max_tokens: int | None = None,
        filters: FilterLike | None = None,
        *,
        history: History | None = None,
    ) -> Answer:
        """Answer a question with citations. If nothing is found the model is not called, and the
        answer says so; it is ``weak`` if the library does not seem to answer the question.

        Args:
            query: The question.
            top_k: See `retrieve_with_context`, also for the following.
            max_tokens: See there.
            filters: See there.
            history: See there. The model also reads it, before the context.

        Raises:
            ConfigError: See `retrieve_with_context`.
            RetrievalError: If the retriever or the reranker fails.
            GenerationError: If the model fails, or its answer is unusable; its ``context`` is the
                model's input.

        Warns:
            AnswerWarning: For each of the answer's ``problems``.
        """
        return await self._run(query, history).complete_answer(top_k, max_tokens, filters)

    @known_keywords
    @_warning
    async def answer_from(
        self,
        results: Sequence[Hit],
        max_tokens: int | None = None,
        *,
        query: str | None = None,
    ) -> Answer:
        """Answer with citations from hits that you already have.

        Args:
            results: Hits, best first.
            max_tokens: See `build_context`.
            query: See `build_context`.

        Raises:
            ConfigError: If there is no question, or as in `build_context`.
            GenerationError: See `answer`.

        Warns:
            AnswerWarning: See `answer`.
        """
        return await self._run_of(results, query).answer_from(results, max_tokens)

    @known_keywords
    async def astream(
        self,
        query: str,
        top_k: int | None = None,
        max_tokens: int | None = None,
        filters: FilterLike | None = None,
        *,
        history: History | None = None,
    ) -> AsyncGenerator[AnswerDelta, None]:
        """Stream a cited answer; see `answer`.

        Citations come with the piece that completes their marker; the last piece has the complete
        answer. Closing the iterator ends the model's call.
        """
        async with contextlib.aclosing(
            self._run(query, history).deltas(top_k, max_tokens, filters)
        ) as deltas:
            async for delta in deltas:
                emit_answer_warnings(delta.answer)
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
    ) -> list[RetrievalResult[JsonObject]]:
        """Run `retrieve` for several questions.

        Args:
            queries: The questions.
            top_k: See `retrieve`.
            filters: See `retrieve`.
            concurrency: Maximum number of questions at once, at least 1.
            on_error: ``"raise"``: the first error stops the others. ``"collect"``: errors take
                their questions' places.

        Returns:
            The results, in the order of the questions.
        """
        return await _run_queries(
            lambda query: self.retrieve(query, top_k, filters), queries, concurrency, on_error
        )

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
        """Run `retrieve_with_context` for several questions; see `batch_retrieve`."""
        return await _run_queries(
            lambda query: self.retrieve_with_context(query, top_k, max_tokens, filters),
            queries,
            concurrency,
            on_error,
        )

    @known_keywords
    @_warning
    async def batch_answer(
        self,
        queries: Sequence[str],
        top_k: int | None = None,
        max_tokens: int | None = None,
        filters: FilterLike | None = None,
        *,
        histories: Sequence[History | None] | None = None,
        concurrency: int = 8,
        on_error: OnError = "raise",
    ) -> list[Answer]:
        """Run `answer` for several questions; see `batch_retrieve`.

        Args:
            queries: The questions.
            top_k: See `retrieve`.
            max_tokens: See `build_context`.
            filters: See `retrieve`.
            histories: For each question the conversation before it, or None.
            concurrency: See `batch_retrieve`.
            on_error: See there.
        """
        _validate_queries(queries)
        all_histories = [None] * len(queries) if histories is None else histories
        is_valid = isinstance(all_histories, Sequence) and len(all_histories) == len(queries)
        require(
            is_valid,
            "histories",
            all_histories,
            f"a list with a history or None for each of the {len(queries)} queries",
        )
        pairs = list(zip(queries, all_histories, strict=True))

        def answer(pair: tuple[str, History | None]) -> Awaitable[Answer]:
            return self._run(*pair).complete_answer(top_k, max_tokens, filters)

        return cast("list[Answer]", await run_all(answer, pairs, concurrency, on_error))

    def _run(self, query: str, history: History | None = None) -> Run:
        check_query(query)
        return Run(self._parts, query, _as_history(history))

    def _run_of(self, results: Any, query: str | None) -> Run:
        """A run of a question, or of the query of results."""
        if query is None:
            metadata = results.metadata if isinstance(results, RetrievalResult) else None
            query = metadata.get("query", "") if isinstance(metadata, Mapping) else ""
        return self._run(query)


async def _run_queries(
    function: Callable[[str], Awaitable[T]],
    queries: Sequence[str],
    concurrency: int,
    on_error: OnError,
) -> list[T]:
    """Run `run_all` for questions. Collected errors are not part of the type."""
    _validate_queries(queries)
    return cast("list[T]", await run_all(function, queries, concurrency, on_error))


def _validate_abstention(abstain_at: float | None) -> float | None:
    if abstain_at is not None:
        validate_range("abstain_at", abstain_at, 0, 1, "a number from 0 to 1, or None")
    return abstain_at


def _validate_queries(queries: Any) -> None:
    is_valid = (
        isinstance(queries, Sequence)
        and not isinstance(queries, str)
        and is_list_of([*queries], str)
    )
    require(is_valid, "queries", queries, "a list of strings")


def _as_history(history: Any) -> tuple[Message, ...]:
    """Messages of the user and the assistant; without any, the question begins the conversation."""
    expected = "a list of messages {'role': 'user' or 'assistant', 'content': '...'}, oldest first"
    is_list = isinstance(history, Sequence) and not isinstance(history, str)
    require(history is None or is_list, "history", history, expected)
    messages = as_messages(history, "history") if history else ()
    hint = "Set system messages by Generator(prompts=...)."
    for message in messages:
        require(message.role != "system", "history", message, expected, hint)
    return messages


def _make_finder(manager: Any, client: Any, retriever: Any) -> Finder:
    arguments = {"embedding_manager": manager, "milvus_client": client, "retriever": retriever}
    names = [name for name, value in arguments.items() if value is not None]
    if names == ["retriever"]:
        return RetrieverFinder(retriever)
    if names == ["embedding_manager", "milvus_client"]:
        return MilvusFinder(manager, client)
    hint = (
        "pass retriever=..., or embedding_manager=... and milvus_client=.... For a Document:"
        " RAGPipeline.over."
    )
    raise ConfigError(f"RAGPipeline got {', '.join(names) or 'nothing'} to find hits with; {hint}")


def _make_retriever(
    documents: list[Collection], group_name: str, settings: PipelineSettings | None
) -> NodeRetriever:
    """The retriever of `RAGPipeline.over`."""
    if settings is None:
        return default_retriever(documents, group_name)
    has_embeddings = all(document.reader.embed_keys for document in documents)
    if settings.rag_use_hybrid_search:
        if not has_embeddings:
            msg = (
                "rag_use_hybrid_search is True, and a Document has no embeddings. Pass"
                " Document(embed=...), or set "
            )
            raise ConfigError(f"{msg}rag_use_hybrid_search to False.")
        return _make_hybrid(documents, group_name, settings)
    require_defaults(settings, SEARCH_SETTINGS[1:], "rag_use_hybrid_search is False")
    return Retriever(documents, group_name, "cosine" if has_embeddings else OVER_SIMILARITY)


def _make_hybrid(
    documents: list[Collection], group_name: str, settings: PipelineSettings
) -> HybridRetriever:
    vector = Retriever(documents, group_name, "cosine")
    keyword = Retriever(documents, group_name, OVER_SIMILARITY)
    method = settings.hybrid_fusion_method
    weights = [settings.hybrid_vector_weight, settings.hybrid_bm25_weight]
    # specification 003's RRF has none
    if method != "rrf" and BoundFusion.checked(method, {}, ()).takes_weights:
        return HybridRetriever(vector, keyword, fusion_method=method, weights=weights)
    defaults = PipelineSettings()
    if weights != [defaults.hybrid_vector_weight, defaults.hybrid_bm25_weight]:
        fusion = (
            "specification 003's RRF" if method == "rrf" else f"hybrid_fusion_method={method!r}"
        )
        problem = (
            f"The settings have the weights {weights[0]:g} and {weights[1]:g}, and {fusion} takes"
            " none."
        )
        hint = (
            "Set hybrid_fusion_method to 'weighted', or pass retriever=HybridRetriever(...,"
            f" weights={weights})."
        )
        raise ConfigError(f"{problem} {hint}")
    return HybridRetriever(vector, keyword, fusion_method=method)


def _reranker_of(settings: PipelineSettings) -> Any:
    if settings.reranker_model in rerankers:
        require_defaults(
            settings,
            RERANKER_SETTINGS[1:],
            f"the reranker {settings.reranker_model!r} reads no batches",
        )
        return Reranker(settings.reranker_model)
    # The model's class has a default of its own, which may be smaller where a batch would change
    # scores.
    size = settings.reranker_batch_size
    batch_size = None if size == PipelineSettings().reranker_batch_size else size
    try:
        return local_rerank_model(settings.reranker_model, batch_size)
    except ConfigError as exc:
        raise ConfigError(f"{exc} Or pass reranker=..., or set rag_use_reranker to False.") from exc


def _waiting(
    method: Callable[Concatenate[RAGPipeline, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncPipeline, P], T]:
    """Make a method, with the signature of a coroutine method, that runs it and waits for it."""
    quiet = inspect.unwrap(method)  # the warnings are emitted in the caller's thread

    @functools.wraps(method)
    def wait(self: SyncPipeline, *args: Any, **kwargs: Any) -> Any:
        return emit_answer_warnings(background.run(quiet(self._pipeline, *args, **kwargs)))

    return cast("Callable[Concatenate[SyncPipeline, P], T]", known_keywords(wait))


class SyncPipeline:
    """`RAGPipeline` for programs without an event loop, for notebooks, and for functions that a
    running loop called.

    Questions run on the package's private event loop in a thread of its own; so do your
    asynchronous callables. An interrupt of the wait, such as KeyboardInterrupt, ends the question.
    Errors and warnings are the coroutines'.

    Args:
        pipeline: The pipeline.
    """

    def __init__(self, pipeline: RAGPipeline) -> None:
        self._pipeline = pipeline

    def __repr__(self) -> str:
        return f"{self._pipeline!r}.sync"

    retrieve = _waiting(RAGPipeline.retrieve)
    retrieve_and_rerank = _waiting(RAGPipeline.retrieve_and_rerank)
    build_context = _waiting(RAGPipeline.build_context)
    retrieve_with_context = _waiting(RAGPipeline.retrieve_with_context)
    answer = _waiting(RAGPipeline.answer)
    answer_from = _waiting(RAGPipeline.answer_from)
    batch_retrieve = _waiting(RAGPipeline.batch_retrieve)
    batch_retrieve_with_context = _waiting(RAGPipeline.batch_retrieve_with_context)
    batch_answer = _waiting(RAGPipeline.batch_answer)

    @known_keywords
    def stream(
        self,
        query: str,
        top_k: int | None = None,
        max_tokens: int | None = None,
        filters: FilterLike | None = None,
        *,
        history: History | None = None,
    ) -> Iterator[AnswerDelta]:
        """Run `RAGPipeline.astream`. Closing or dropping the iterator ends the model's call."""
        return _with_warnings(
            self._pipeline._run(query, history).deltas(top_k, max_tokens, filters)
        )


def _with_warnings(deltas: AsyncGenerator[AnswerDelta, None]) -> Iterator[AnswerDelta]:
    for delta in background.stream(deltas):
        emit_answer_warnings(delta.answer)
        yield delta
