"""Operators over `RAGData` (spec 000): the base class, chains, and the stages from retrieval to
generation.
"""

from __future__ import annotations

import abc
import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, cast

from lazyrag.data.filters import FilterLike
from lazyrag.data.result import Hit, RAGContext, RetrievalResult
from lazyrag.document.document import Document
from lazyrag.errors import ConfigError
from lazyrag.generation.generator import Generator
from lazyrag.generation.prompts import ContextTemplate, Prompts, as_template
from lazyrag.generation.refiners import Refiner
from lazyrag.models import concurrency as background
from lazyrag.models.chat import ChatCallable
from lazyrag.models.concurrency import in_thread
from lazyrag.models.openai.models import HttpChatModel
from lazyrag.models.protocols import ChatModel
from lazyrag.operators.data import (
    TO_REFINE,
    TO_RERANK,
    RAGData,
    Trace,
    append_fields,
    latest_docs,
    latest_results,
    query_of,
    validate_data,
)
from lazyrag.pipeline.external import ChromaFinder, FaissFinder, MilvusFinder
from lazyrag.pipeline.pipeline import OnError, run_all
from lazyrag.pipeline.run import make_rerank
from lazyrag.pipeline.search import RetrievedItems, RetrieverFinder
from lazyrag.retrieval.reranker import Reranker
from lazyrag.retrieval.retriever import Retriever
from lazyrag.retrieval.stages import callable_name
from lazyrag.text.sentences import Language, resolve_language
from lazyrag.types import JsonObject
from lazyrag.validation import (
    is_list_of,
    known_arguments,
    require,
    validate_choice,
    validate_integer,
    validate_text,
)


class Operator(abc.ABC):
    """Base class of steps over `RAGData`: each reads fields of a trace, and appends its own.

    The given dict stays unchanged; the result is a new one with the same values and more.
    Subclasses return the new fields from `process`.

    Example:
        >>> class Shout(Operator):
        ...     def process(self, data):
        ...         return {"custom_shout": data["query"].upper()}
        >>> Shout()({"query": "tea?"})
        {'query': 'tea?', 'custom_shout': 'TEA?'}
    """

    writes: ClassVar[tuple[str, ...]] = ()
    """The standard fields that it writes, overwriting values that are there."""

    @abc.abstractmethod
    def process(self, data: Any) -> Trace:
        """Return the fields to append to a trace, without changing it."""

    async def aprocess(self, data: Any) -> Trace:
        """Run `process` in any event loop; by default in a thread."""
        return await in_thread(self.process, data)

    def execute(self, data: Trace) -> JsonObject:
        """Return the trace with this operator's fields.

        Args:
            data: A dict with at least a ``query``.

        Returns:
            A new dict with the same values.

        Raises:
            ConfigError: If the data is a tuple, has an old format (see `from_legacy`), lacks what
                the operator reads, or would lose a field.
            LazyRAGError: Errors of the operator's own work. They never become an empty list.
        """
        trace = validate_data(data)
        return self._result(trace, self.process(trace))

    async def aexecute(self, data: Trace) -> JsonObject:
        """Run `execute` in any event loop."""
        trace = validate_data(data)
        return self._result(trace, await self.aprocess(trace))

    def _result(self, trace: RAGData, processed: Trace) -> JsonObject:
        return append_fields(trace, processed, self.writes, repr(self))

    def __call__(self, data: Trace) -> JsonObject:
        """Run `execute`."""
        return self.execute(data)

    def batch(
        self,
        many: Sequence[Trace],
        *,
        concurrency: int = 8,
        on_error: OnError = "raise",
    ) -> list[JsonObject]:
        """Run `execute` for many traces, in their order.

        Args:
            many: The traces.
            concurrency: Maximum number at once, at least 1.
            on_error: ``"raise"``: the first error stops the others. ``"collect"``: errors take
                their traces' places.
        """
        return background.run(self.abatch(many, concurrency=concurrency, on_error=on_error))

    async def abatch(
        self,
        many: Sequence[Trace],
        *,
        concurrency: int = 8,
        on_error: OnError = "raise",
    ) -> list[JsonObject]:
        """Run `batch` in any event loop."""
        is_sequence = isinstance(many, Sequence) and not isinstance(many, str)
        require(is_sequence, "many", many, "a list of dicts")
        return cast("list[JsonObject]", await run_all(self.aexecute, many, concurrency, on_error))

    def __rshift__(self, after: Operator | Callable[[Any], Any]) -> OperatorChain:
        """Chain this operator with another one, or with a function from a trace to a trace."""
        return OperatorChain(self, after)

    def __rrshift__(self, before: Callable[[Any], Any]) -> OperatorChain:
        """Chain a function from a trace to a trace with this operator."""
        return OperatorChain(before, self)

    def __repr__(self) -> str:
        return type(self).__name__


class _AsyncOperator(Operator):
    """An operator that is written as a coroutine."""

    def process(self, data: RAGData) -> Trace:
        """Wait for `aprocess`."""
        return background.run(self.aprocess(data))


class FunctionOperator(Operator):
    """A function from a trace to a trace as an operator, as spec 000 writes custom operators.

    The function gets a copy of the dict: what it adds, for example by ``data.update(...)``, is
    appended.

    Args:
        function: The function, or an object whose method ``execute`` is one; it may be
            asynchronous.

    Raises:
        ConfigError: If it is neither.

    Example:
        >>> def count(data):
        ...     data.update({"custom_count": len(data["retrieval_docs"])})
        ...     return data
        >>> FunctionOperator(count)({"query": "tea?", "retrieval_docs": ["a", "b"]})["custom_count"]
        2
    """

    def __init__(self, function: Any) -> None:
        call = function if callable(function) else getattr(function, "execute", None)
        is_function = callable(call) and not isinstance(function, type)
        expected = (
            "an Operator, a function from a dict to a dict, or an object with a method execute"
        )
        require(is_function, "An operator", function, expected)
        self.function = cast("Callable[[Any], Any]", call)

    def __repr__(self) -> str:
        return f"FunctionOperator({callable_name(self.function)})"

    def process(self, data: RAGData) -> Trace:
        """Call the function."""
        returned = self.function({**data})
        if inspect.isawaitable(returned):
            return background.run(self._awaited(returned, data))
        return self._validated(returned, data)

    async def aprocess(self, data: RAGData) -> Trace:
        """Call the function; one that is not asynchronous runs in a thread."""
        return await self._awaited(await in_thread(self.function, {**data}), data)

    async def _awaited(self, returned: Any, data: RAGData) -> Trace:
        return self._validated(await returned if inspect.isawaitable(returned) else returned, data)

    def _validated(self, returned: Any, data: RAGData) -> Trace:
        if not isinstance(returned, Mapping):
            raise ConfigError(
                f"{self!r} returned {returned!r:.60}; return the dict with fields appended."
            )
        missing = next((name for name in data if name not in returned), None)
        if missing is not None:
            raise ConfigError(
                f"{self!r} returned a dict without {missing!r}; operators append, and keep the"
                " rest."
            )
        return returned


class OperatorChain(Operator):
    """Operators in sequence; ``a >> b >> c`` makes one.

    Args:
        operators: At least one: operators, chains, functions from a trace to a trace.

    Raises:
        ConfigError: If there is none, or one is neither.

    Example:
        >>> first = lambda data: {**data, "custom_a": 1}
        >>> chain = first >> FunctionOperator(lambda data: {**data, "custom_b": 2})
        >>> chain.execute({"query": "tea?"})
        {'query': 'tea?', 'custom_a': 1, 'custom_b': 2}
    """

    def __init__(self, *operators: Operator | Callable[[Any], Any]) -> None:
        if not operators:
            raise ConfigError("The chain has no operators; pass at least one.")
        self.operators: tuple[Operator, ...] = (*chain.from_iterable(map(_steps, operators)),)

    def __repr__(self) -> str:
        return " >> ".join(map(repr, self.operators))

    def process(self, data: Any) -> Any:
        """Run all operators."""
        for operator in self.operators:
            data = operator.execute(data)
        return data

    async def aprocess(self, data: Any) -> Any:
        """Run all operators in any event loop."""
        for operator in self.operators:
            data = await operator.aexecute(data)
        return data

    def _result(self, _: RAGData, processed: Trace) -> JsonObject:
        return cast("JsonObject", processed)


def _steps(operator: Any) -> tuple[Operator, ...]:
    if isinstance(operator, OperatorChain):
        return operator.operators
    return (operator,) if isinstance(operator, Operator) else (FunctionOperator(operator),)


# Retrieval

_GROUP = "FineChunk"
_TOPK = 5
_FINDERS = (RetrieverFinder, MilvusFinder, ChromaFinder, FaissFinder)


@known_arguments
class RetrieveOperator(_AsyncOperator):
    """Retrieve texts for a query (spec 000's retrieval stage).

    Each of ``retrieval_results`` has the fields of a `Hit`: ``text``, ``score`` (None if the
    retriever has none), ``metadata``, ``id``, ``source``, ``document_id``, ``chunk_id``. A blank
    query finds nothing.

    Args:
        retriever: A `Retriever`, a `HybridRetriever`, a `RetrievalChain`, or a callable
            (query, filters=None, topk=None) -> nodes or hits, which may be asynchronous.
        topk: Maximum number of texts, at least 1.
        filters: On the fields of the Document, the same for every query.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea.txt": "Water of 80 degrees."})
        >>> retrieve = RetrieveOperator(Retriever(docs, "FineChunk", "bm25"))
        >>> data = retrieve({"query": "How hot is the water?"})
        >>> data["retrieval_docs"], data["retrieval_results"][0]["source"]
        (['Water of 80 degrees.'], 'tea.txt')
    """

    writes: ClassVar = ("retrieval_results", "retrieval_docs", "retrieval_time")

    def __init__(
        self, retriever: Any, topk: int = _TOPK, *, filters: FilterLike | None = None
    ) -> None:
        hint = "Pass a retriever over the Document: Retriever(docs, group_name, ...)."
        require(not _is_document(retriever), "retriever", retriever, "a retriever", hint)
        self._finder = retriever if isinstance(retriever, _FINDERS) else RetrieverFinder(retriever)
        self._topk = validate_integer("topk", topk, 1)
        self._filters = filters

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._finder.name!r}, topk={self._topk})"

    async def aprocess(self, data: RAGData) -> Trace:
        """Retrieve.

        Raises:
            RetrievalError: If the retriever fails, or returns something else than nodes or hits.
        """
        query = query_of(data)
        started = time.perf_counter()
        retrieved = (
            await self._finder.find(query, self._topk, self._filters)
            if query.strip()
            else RetrievedItems([])
        )
        hits = await retrieved.hits()
        seconds = time.perf_counter() - started
        rows = [
            {**hit.to_dict(), "score": None if math.isnan(hit.score) else hit.score} for hit in hits
        ]
        return _stage_fields("retrieval", rows, seconds)


def _stage_fields(stage: str, rows: Sequence[Trace], seconds: float) -> JsonObject:
    return {
        f"{stage}_results": rows,
        f"{stage}_docs": [row["text"] for row in rows],
        f"{stage}_time": seconds,
    }


def _is_document(source: Any) -> bool:
    return isinstance(source, Document) or (is_list_of(source, Document) and len(source) > 0)


def _document_finder(
    operator: Operator, docs: Any, group_name: str, similarity: str, embed: Any
) -> RetrieverFinder:
    if embed is not None:
        msg = (
            "a Document and embed=...; the Document has embeddings of its own: Document(embed=...)."
        )
        raise ConfigError(f"{type(operator).__name__} got {msg}")
    return RetrieverFinder(Retriever(docs, group_name, similarity))


@known_arguments
class Wiki18FAISSRetriever(RetrieveOperator):
    """Spec 000's retriever over a faiss index: over a Document, or over an existing index.

    Args:
        source: A Document with embeddings, or several; or a faiss index, or the file of one.
        documents: For an index: the texts, as a file of JSON lines or its rows; see
            `lazyrag.pipeline.external.FaissFinder`.
        embed: For an index: the embedding that it was built with, an `Embedder` or a callable from
            one text to a vector.
        group_name: For a Document: the node group to search.
        similarity: For a Document: a registered similarity.
        topk: Maximum number of texts.

    Raises:
        ConfigError: If the arguments do not fit together.
    """

    def __init__(
        self,
        source: Any,
        documents: Any = None,
        embed: Any = None,
        *,
        group_name: str = _GROUP,
        similarity: str = "cosine",
        topk: int = _TOPK,
    ) -> None:
        if _is_document(source):
            super().__init__(_document_finder(self, source, group_name, similarity, embed), topk)
            return
        hint = (
            "Or pass an index with documents=... (its texts) and embed=... (the embedding of its"
            " vectors)."
        )
        is_complete = documents is not None and embed is not None
        require(is_complete, "source without documents and embed", source, "a Document", hint)
        super().__init__(FaissFinder(embed, source, documents), topk)


@known_arguments
class _CollectionRetriever(RetrieveOperator):
    """A retriever over a Document, or over a collection of a vector database."""

    finder_class: ClassVar[type[ChromaFinder | MilvusFinder]]

    def __init__(
        self,
        source: Any,
        embed: Any = None,
        *,
        group_name: str = _GROUP,
        similarity: str = "cosine",
        topk: int = _TOPK,
        filters: FilterLike | None = None,
    ) -> None:
        if _is_document(source):
            finder: Any = _document_finder(self, source, group_name, similarity, embed)
        else:
            finder = self.finder_class(embed, source)
        super().__init__(finder, topk, filters=filters)


class ChromaRetriever(_CollectionRetriever):
    """Spec 000's retriever over Chroma: over a Document (with any store), or over an existing
    collection.

    Args:
        source: A Document, or several; or a ``chromadb`` collection that another program filled.
        embed: For a collection: an `Embedder` or a callable from one text to a vector; None: the
            collection embeds queries itself.
        group_name: For a Document: the node group to search.
        similarity: For a Document: a registered similarity.
        topk: Maximum number of texts.
        filters: The same for every query.

    Raises:
        ConfigError: If the arguments do not fit together.
    """

    finder_class: ClassVar = ChromaFinder


class MilvusRetriever(_CollectionRetriever):
    """Spec 000's retriever over Milvus: over a Document (with any store), or over an existing
    collection.

    Args:
        source: A Document, or several; or a ``pymilvus.MilvusClient`` or a `MilvusCollection` that
            another program filled.
        embed: For a collection: an `Embedder` or a callable from one text to a vector.
        group_name: For a Document: the node group to search.
        similarity: For a Document: a registered similarity.
        topk: Maximum number of texts.
        filters: The same for every query.

    Raises:
        ConfigError: If the arguments do not fit together.
    """

    finder_class: ClassVar = MilvusFinder


# Reranking

_RERANK_TOPK = 3


class RerankOperator(_AsyncOperator):
    """Rerank texts (spec 000's reranking stage).

    Reads ``refining_docs``, else ``retrieval_docs``. Each of ``reranking_results`` is the previous
    row of its text with the reranker's score. A second reranking overwrites the first.

    Args:
        reranker: A `Reranker`; a rerank model, or a callable ``(query, documents=[...], top_n=n)``;
            an object with an ``async rerank(query, documents, top_k)``; or the folder of a
            cross-encoder.
        topk: Number of texts to keep, at least 1.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> data = {"query": "green tea", "retrieval_docs": ["Black tea.", "Green tea."]}
        >>> RerankOperator(Reranker("BM25Reranker"), topk=1)(data)["reranking_docs"]
        ['Green tea.']
    """

    writes: ClassVar = ("reranking_results", "reranking_docs", "reranking_time")

    def __init__(self, reranker: Any, topk: int = _RERANK_TOPK) -> None:
        self._rerank, self._name = make_rerank(reranker)
        self._topk = validate_integer("topk", topk, 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, topk={self._topk})"

    async def aprocess(self, data: RAGData) -> Trace:
        """Rerank.

        Raises:
            RetrievalError: If the reranker fails.
        """
        query = query_of(data)
        rows = latest_results(data, TO_RERANK)
        started = time.perf_counter()
        best = await self._best(query, rows) if rows and query.strip() else rows[: self._topk]
        return _stage_fields("reranking", best, time.perf_counter() - started)

    async def _best(self, query: str, rows: list[JsonObject]) -> list[JsonObject]:
        metadata = [row.get("metadata") or {} for row in rows]
        hits = [
            Hit(str(at), row["text"], _score(row), metadata=metadata[at])
            for at, row in enumerate(rows)
        ]
        ranked = await (await self._rerank(query, RetrievedItems(hits), self._topk)).hits()
        row_of = {hit.id: row for hit, row in zip(hits, rows, strict=True)}
        return [  # rerankers may return new texts, such as merged ones
            {
                **row_of.get(hit.id, {"metadata": dict(hit.metadata)}),
                "text": hit.text,
                "score": hit.score,
            }
            for hit in ranked
        ]


def _score(row: Trace) -> float:
    score = row.get("score")
    return float(score) if isinstance(score, (int, float)) else math.nan


class BGEReranker(RerankOperator):
    """Spec 000's cross-encoder reranker.

    Args:
        model: The folder of a cross-encoder, or its name if it is on this machine (nothing is
            downloaded; the error says how to get it); or a rerank model, such as `HttpRerankModel`
            for a server.
        topk: Number of texts to keep.

    Raises:
        ConfigError: If the model is not on this machine, or no model.
    """

    def __init__(self, model: Any = "BAAI/bge-reranker-large", topk: int = _RERANK_TOPK) -> None:
        super().__init__(model, topk)


class LLMbased_Reranker(RerankOperator):  # noqa: N801  the specification's name
    """Spec 000's reranker by a chat model, which judges each text.

    Args:
        model: A chat model, or a callable from a text to a text; see docs/rerankers.md.
        topk: Number of texts to keep.
        keywords: Other keywords of the reranker ``"PointwiseReranker"``.

    Raises:
        ConfigError: If the model is invalid, or the reranker takes no such keyword.
    """

    def __init__(
        self, model: ChatModel | ChatCallable, topk: int = _RERANK_TOPK, **keywords: Any
    ) -> None:
        super().__init__(Reranker("PointwiseReranker", model=model, **keywords), topk)


# Refining


class RefinerOperator(Operator):
    """Shorten texts to what answers the query, within a budget of tokens (spec 000's refining
    stage).

    Reads ``reranking_docs``, else ``retrieval_docs``. Each of ``refining_results`` is the previous
    row of its text with the shorter text and ``original_length``, ``refined_length`` (tokens) and
    ``compression_ratio`` (refined divided by original). Texts of which nothing is left are dropped.
    By default, sentences that are irrelevant beside the best one are dropped, also where everything
    fits the budget.

    Args:
        refiner: A `Refiner`, or the name of a registered one: ``"tree"``, ``"long_refiner"``,
            ``"extractive"``, ``"chat"``.
        keywords: With a name, those of `Refiner`: ``budget``, ``counter``, ``model`` and so on.

    Raises:
        ConfigError: If there are keywords beside a `Refiner`, or one is unknown.
        NotRegisteredError: If there is no such refiner.

    Example:
        >>> docs = ["Tea grows on hills. Hot water of 80 degrees."]
        >>> data = {"query": "How hot?", "retrieval_docs": docs}
        >>> data = RefinerOperator("extractive", budget=9)(data)
        >>> data["refining_docs"], data["refining_results"][0]["compression_ratio"] < 1
        (['Hot water of 80 degrees.'], True)
    """

    writes: ClassVar = ("refining_results", "refining_docs", "refining_time")

    def __init__(self, refiner: Refiner | str = "tree", **keywords: Any) -> None:
        require(
            isinstance(refiner, (Refiner, str)),
            "refiner",
            refiner,
            "a Refiner or the name of a registered one",
        )
        if isinstance(refiner, Refiner) and keywords:
            raise ConfigError(
                f"RefinerOperator got a Refiner and {', '.join(keywords)}; pass these to the"
                " Refiner."
            )
        self.refiner = refiner if isinstance(refiner, Refiner) else Refiner(refiner, **keywords)

    def __repr__(self) -> str:
        return f"RefinerOperator({self.refiner!r})"

    def process(self, data: RAGData) -> Trace:
        """Shorten the texts.

        Raises:
            GenerationError: If the refiner fails.
        """
        query = query_of(data)
        rows = latest_results(data, TO_REFINE)
        started = time.perf_counter()
        refined = (
            self.refiner(query, [row["text"] for row in rows]) if rows and query.strip() else []
        )
        seconds = time.perf_counter() - started
        results = [
            {
                **rows[text.index],
                "text": text.text,
                "original_length": text.original_length,
                "refined_length": text.refined_length,
                "compression_ratio": text.compression_ratio,
            }
            for text in refined
        ]
        return _stage_fields("refining", results, seconds)


# Generation

_PLAIN = {"item": "{text}", "separator": "\n"}  # the texts, line by line, without numbers and names
TEMPLATES: Mapping[str, ContextTemplate] = {
    "zh": ContextTemplate(
        "根据以下上下文回答问题:\n上下文: {sources}\n问题: {query}\n答案:",
        nothing="（无）",
        **_PLAIN,
    ),
    "en": ContextTemplate(
        "Answer the question from the following context.\nContext: {sources}\nQuestion:"
        " {query}\nAnswer:",
        **_PLAIN,
    ),
}
"""Spec 000's prompt, and its English version."""


class QAPromptor(Operator):
    """Write the prompt (spec 000's prompting stage).

    Reads ``refining_docs``, else ``reranking_docs``, else ``retrieval_docs``. Braces in texts have
    no meaning.

    Args:
        template: A `ContextTemplate`, or its frame, a text with ``{sources}`` and ``{query}``;
            None: `TEMPLATES`.
        language: Of the default template: ``"zh"``, ``"en"``, or ``"auto"`` for the question's.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> print(QAPromptor()({"query": "多热?", "retrieval_docs": ["80 度的水。"]})["prompt"])
        根据以下上下文回答问题:
        上下文: 80 度的水。
        问题: 多热?
        答案:
    """

    writes: ClassVar = ("prompt",)

    def __init__(
        self, template: ContextTemplate | str | None = None, *, language: Language = "auto"
    ) -> None:
        self._language: Language = validate_choice("language", language, Language)
        chosen = ContextTemplate(template, **_PLAIN) if isinstance(template, str) else template
        self._template = None if chosen is None else as_template(chosen)

    def process(self, data: RAGData) -> Trace:
        """Write the prompt."""
        query = query_of(data)
        _, docs = latest_docs(data)
        template = self._template or TEMPLATES[resolve_language(self._language, query)]
        return {"prompt": template.fill([(at, "", text) for at, text in enumerate(docs, 1)], query)}


class OpenAIGenerator(_AsyncOperator):
    """Answer the prompt with a chat model (spec 000's generation stage).

    Reads ``prompt``, which is all that the model gets, and appends ``generated`` and
    ``generation_time``. Thoughts before the answer are removed.

    Args:
        model: The model's name at ``base_url``; or a chat model, a callable from a text to a text,
            or a `Generator`, whose system message then precedes the prompt.
        base_url: An endpoint with OpenAI's protocol.
        api_key: Its key; None: LAZYRAG_API_KEY or OPENAI_API_KEY of the environment.

    Raises:
        ConfigError: If a name comes without base_url, or a model with one.

    Example:
        >>> data = {"query": "How hot?", "prompt": "Answer: how hot?"}
        >>> OpenAIGenerator(lambda prompt: "80 degrees.")(data)["generated"]
        '80 degrees.'
    """

    writes: ClassVar = ("generated", "generation_time")

    def __init__(
        self,
        model: str | Generator | ChatModel | ChatCallable,
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> None:
        if isinstance(model, str) != (base_url is not None):
            arguments = f"model={model!r:.60} and base_url={base_url!r:.60}"
            msg = "pass a model's name with the base_url of its server, or a chat model alone."
            raise ConfigError(f"OpenAIGenerator got {arguments}; {msg}")
        chat = (
            HttpChatModel(str(base_url), model, api_key=api_key)
            if isinstance(model, str)
            else model
        )
        # The prompt is complete: no system message precedes it.
        self.generator = (
            chat if isinstance(chat, Generator) else Generator(chat, prompts=Prompts(None, None))
        )

    def __repr__(self) -> str:
        return f"OpenAIGenerator({self.generator.model!r})"

    async def aprocess(self, data: RAGData) -> Trace:
        """Answer; cancelling the task ends the model's call.

        Raises:
            ConfigError: If there is no prompt.
            GenerationError: If the model fails.
        """
        started = time.perf_counter()
        result = await self.generator.agenerate(_prompt_context(data))
        return {"generated": result.response, "generation_time": time.perf_counter() - started}


def _prompt_context(data: RAGData) -> RAGContext:
    if data.get("prompt") is None:
        raise ConfigError("The data has no prompt. Put QAPromptor() before the generator.")
    prompt = validate_text("prompt", data["prompt"])
    return RAGContext(str(data.get("query") or ""), prompt, RetrievalResult([]), 0)
