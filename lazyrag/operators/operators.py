"""Retrieving as a step: a retriever's hits as ``retrieval_results`` and ``retrieval_docs``."""

from __future__ import annotations

import abc
import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, cast, get_args

from lazyrag.data.filters import FilterLike
from lazyrag.data.result import GenerationResult, Hit, RAGContext, RetrievalResult
from lazyrag.document.document import Document
from lazyrag.errors import ConfigError, known_names
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
    appended,
    checked_data,
    latest_docs,
    latest_results,
    query_of,
)
from lazyrag.pipeline.external import ChromaFinder, FaissFinder, MilvusFinder
from lazyrag.pipeline.pipeline import OnError, each
from lazyrag.pipeline.run import make_rerank
from lazyrag.pipeline.search import Finder, Found, RetrieverFinder
from lazyrag.retrieval.reranker import Reranker
from lazyrag.retrieval.retriever import Retriever
from lazyrag.retrieval.stages import callable_name
from lazyrag.text.sentences import Language, spoken
from lazyrag.validation import known_arguments, whole_number


class Operator(abc.ABC):
    """A step over `RAGData`: it reads fields of a trace, and appends its own.

    The dict that is given stays as it is; what comes back is another one, with the same values and more. A subclass
    says in `process` what it appends.

    Example:
        >>> class Shout(Operator):
        ...     def process(self, data):
        ...         return {"custom_shout": data["query"].upper()}
        >>> Shout()({"query": "tea?"})
        {'query': 'tea?', 'custom_shout': 'TEA?'}
    """

    writes: ClassVar[tuple[str, ...]] = ()
    """The standard fields that it writes, again where they have a value already."""

    @abc.abstractmethod
    def process(self, data: RAGData) -> Mapping[str, Any]:
        """The fields that it appends to a trace, which it does not change."""

    async def aprocess(self, data: RAGData) -> Mapping[str, Any]:
        """The same in any event loop; by default `process` in a thread."""
        return await in_thread(self.process, data)

    def execute(self, data: Mapping[str, Any]) -> RAGData:
        """The trace with this operator's fields.

        Args:
            data: A dict with at least a ``query``.

        Returns:
            A new dict. What was there is in it, the same objects.

        Raises:
            ConfigError: If the data are a tuple, in a format that was given up (see `from_legacy`), lack what the
                operator reads, or would lose a field.
            LazyRAGError: What the operator's own work raises: nothing becomes an empty list in silence.
        """
        given = checked_data(data)
        return appended(given, self.process(given), self.writes, repr(self))

    async def aexecute(self, data: Mapping[str, Any]) -> RAGData:
        """See `execute`; in any event loop."""
        given = checked_data(data)
        return appended(given, await self.aprocess(given), self.writes, repr(self))

    def __call__(self, data: Mapping[str, Any]) -> RAGData:
        """See `execute`."""
        return self.execute(data)

    def batch(
        self, many: Sequence[Mapping[str, Any]], *, concurrency: int = 8, on_error: OnError = "raise"
    ) -> list[RAGData]:
        """`execute` for many traces, in their order.

        Args:
            many: The traces.
            concurrency: How many at once, at least 1.
            on_error: ``"raise"``: the first error ends the others. ``"collect"``: it stands in its trace's place.
        """
        return background.run(self.abatch(many, concurrency=concurrency, on_error=on_error))

    async def abatch(
        self, many: Sequence[Mapping[str, Any]], *, concurrency: int = 8, on_error: OnError = "raise"
    ) -> list[RAGData]:
        """See `batch`; in any event loop."""
        if isinstance(many, (str, Mapping)) or not isinstance(many, Sequence):
            msg = f"batch got {many!r:.60} ({type(many).__name__}); give a list of dicts."
            raise ConfigError(msg)
        return cast("list[RAGData]", await each(self.aexecute, many, concurrency, on_error))

    def __rshift__(self, after: Operator | Callable[[Any], Any]) -> OperatorChain:
        """Chain: another operator, or a function from a trace to a trace, on what this one gives."""
        return OperatorChain(self, after)

    def __rrshift__(self, before: Callable[[Any], Any]) -> OperatorChain:
        """Chain: this operator on what a function from a trace to a trace gives."""
        return OperatorChain(before, self)

    def __repr__(self) -> str:
        return type(self).__name__


class FunctionOperator(Operator):
    """A function from a trace to a trace, as spec 000 writes custom operators, as a step.

    It gets a dict of its own: what it appends to that, by ``data.update(...)`` for example, is appended.

    Args:
        function: The function; it may be asynchronous.

    Raises:
        ConfigError: If it is none.

    Example:
        >>> def count(data):
        ...     data.update({"custom_count": len(data["retrieval_docs"])})
        ...     return data
        >>> FunctionOperator(count)({"query": "tea?", "retrieval_docs": ["a", "b"]})["custom_count"]
        2
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        if not callable(function) or isinstance(function, type):
            msg = f"An operator is {function!r:.60}; give an Operator, or a function from a dict to a dict."
            raise ConfigError(msg)
        self.function = function

    def __repr__(self) -> str:
        return f"The operator {callable_name(self.function)!r}"

    def process(self, data: RAGData) -> Mapping[str, Any]:
        """What the function gives."""
        given = self.function({**data})
        return background.run(self._awaited(given, data)) if inspect.isawaitable(given) else self._fields(given, data)

    async def aprocess(self, data: RAGData) -> Mapping[str, Any]:
        """What the function gives; one that is not asynchronous runs in a thread."""
        return await self._awaited(await in_thread(self.function, {**data}), data)

    async def _awaited(self, given: Any, data: RAGData) -> Mapping[str, Any]:
        return self._fields(await given if inspect.isawaitable(given) else given, data)

    def _fields(self, given: Any, data: RAGData) -> Mapping[str, Any]:
        if not isinstance(given, Mapping):
            msg = f"{self!r} returned {given!r:.60} ({type(given).__name__}); return the dict, with fields appended."
            raise ConfigError(msg)
        gone = next((name for name in data if name not in given), None)
        if gone is not None:
            msg = f"{self!r} returned a dict without {gone!r}, which it was given; operators append, and keep the rest."
            raise ConfigError(msg)
        return given


class OperatorChain(Operator):
    """Operators one after the other; ``a >> b >> c`` makes one.

    Args:
        operators: At least one: operators, chains of them, functions from a trace to a trace.

    Raises:
        ConfigError: If there is none, or one is neither.

    Example:
        >>> chain = (lambda data: {**data, "custom_a": 1}) >> FunctionOperator(lambda data: {**data, "custom_b": 2})
        >>> chain.execute({"query": "tea?"})
        {'query': 'tea?', 'custom_a': 1, 'custom_b': 2}
    """

    def __init__(self, *operators: Operator | Callable[[Any], Any]) -> None:
        self.operators: tuple[Operator, ...] = tuple(one for given in operators for one in _steps(given))
        if not self.operators:
            msg = "A chain has no operators; give at least one."
            raise ConfigError(msg)

    def __repr__(self) -> str:
        return " >> ".join(map(repr, self.operators))

    def process(self, data: RAGData) -> Mapping[str, Any]:
        """What all of them append."""
        for one in self.operators:
            data = one.execute(data)
        return data

    async def aprocess(self, data: RAGData) -> Mapping[str, Any]:
        """What all of them append, in any event loop."""
        for one in self.operators:
            data = await one.aexecute(data)
        return data

    def execute(self, data: Mapping[str, Any]) -> RAGData:
        """The trace with the fields of all of them; see `Operator.execute`."""
        return cast("RAGData", self.process(checked_data(data)))

    async def aexecute(self, data: Mapping[str, Any]) -> RAGData:
        """See `execute`; in any event loop."""
        return cast("RAGData", await self.aprocess(checked_data(data)))


def _steps(given: Any) -> tuple[Operator, ...]:
    if isinstance(given, OperatorChain):
        return given.operators
    return (given,) if isinstance(given, Operator) else (FunctionOperator(given),)


_PLAIN = {"item": "{text}", "separator": "\n"}  # the texts, line by line, without numbers and names
TEMPLATES: Mapping[str, ContextTemplate] = {
    "zh": ContextTemplate(
        "根据以下上下文回答问题:\n上下文: {sources}\n问题: {query}\n答案:",
        item="{text}",
        separator="\n",
        nothing="（无）",
    ),
    "en": ContextTemplate(
        "Answer the question from the following context.\nContext: {sources}\nQuestion: {query}\nAnswer:",
        **_PLAIN,
    ),
}
"""Spec 000's prompt, and the same in English."""


class QAPromptor(Operator):
    """Writes the prompt (spec 000's prompting stage).

    It reads ``refining_docs``, else ``reranking_docs``, else ``retrieval_docs``; without any, the prompt says so. Texts
    are put in as they are: braces in them mean nothing.

    Args:
        template: A `ContextTemplate`, or its frame, a text with ``{sources}`` and ``{query}``; None: `TEMPLATES`.
        language: Of the default template: ``"zh"``, ``"en"``, or ``"auto"`` for the question's.

    Raises:
        ConfigError: If the template is none.

    Example:
        >>> print(QAPromptor()({"query": "多热?", "retrieval_docs": ["80 度的水。"]})["prompt"])
        根据以下上下文回答问题:
        上下文: 80 度的水。
        问题: 多热?
        答案:
    """

    writes: ClassVar = ("prompt",)

    def __init__(self, template: ContextTemplate | str | None = None, *, language: Language = "auto") -> None:
        if language not in get_args(Language):
            msg = f"language is {language!r:.60}. {known_names(str(language), get_args(Language))}"
            raise ConfigError(msg)
        given = ContextTemplate(template, **_PLAIN) if isinstance(template, str) else template
        self._template = None if given is None else as_template(given)
        self._language: Language = language

    def process(self, data: RAGData) -> Mapping[str, Any]:
        """The prompt."""
        query = query_of(data)
        _, docs = latest_docs(data)
        template = self._template or TEMPLATES[spoken(self._language, query)]
        return {"prompt": template.fill([(at, "", text) for at, text in enumerate(docs, 1)], query)}


@known_arguments
class OpenAIGenerator(Operator):
    """Has a chat model answer the prompt (spec 000's generation stage).

    It reads ``prompt``, which is all that the model is sent, and appends ``generated`` and ``generation_time``.
    Thoughts before the answer are taken off.

    Args:
        model: The model's name at ``base_url``; or a chat model, a callable from a text to a text, or a `Generator`,
            whose own system message then goes before the prompt.
        base_url: The endpoint, which speaks OpenAI's protocol.
        api_key: Its key; None takes LAZYRAG_API_KEY or OPENAI_API_KEY where they are set.

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
            msg = (
                f"OpenAIGenerator got model={model!r:.60} and base_url={base_url!r:.60}; give a model's name with the "
                "base_url of its server, or a chat model alone."
            )
            raise ConfigError(msg)
        asked = HttpChatModel(str(base_url), model, api_key=api_key) if isinstance(model, str) else model
        # The prompt is whole: no system message goes before it.
        self.generator = asked if isinstance(asked, Generator) else Generator(asked, prompts=Prompts(None, None))

    def __repr__(self) -> str:
        return f"OpenAIGenerator({self.generator.model!r})"

    def process(self, data: RAGData) -> Mapping[str, Any]:
        """The answer."""
        begun = time.perf_counter()
        return _fields(self.generator.generate(_context(data)), begun)

    async def aprocess(self, data: RAGData) -> Mapping[str, Any]:
        """The answer; cancelling the task ends the model's call.

        Raises:
            ConfigError: If there is no prompt.
            GenerationError: If the model fails.
        """
        begun = time.perf_counter()
        return _fields(await self.generator.agenerate(_context(data)), begun)


def _context(data: RAGData) -> RAGContext:
    prompt = data.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        msg = f"prompt is {prompt!r:.60}; a text is needed. Put QAPromptor() before the generator."
        raise ConfigError(msg)
    return RAGContext(str(data.get("query") or ""), prompt, RetrievalResult([]), 0)


def _fields(result: GenerationResult[Any], begun: float) -> Mapping[str, Any]:
    return {"generated": result.response, "generation_time": time.perf_counter() - begun}


class RefinerOperator(Operator):
    """Shortens texts to what answers, within a budget of tokens (spec 000's refining stage).

    It reads ``reranking_docs``, else ``retrieval_docs``. Each of ``refining_results`` is the row that the text had
    before, with the shorter text and ``original_length``, ``refined_length`` (tokens) and ``compression_ratio``
    (refined divided by original) in it. Texts of which nothing is left are left out.

    Args:
        refiner: A `Refiner`, or the name of a registered one: ``"tree"``, ``"extractive"``, ``"chat"``.
        keywords: With a name, those of `Refiner`: ``budget``, ``counter``, ``model`` and so on.

    Raises:
        ConfigError: If there are keywords beside a `Refiner`, or one is unknown.
        NotRegisteredError: If there is no such refiner.

    Example:
        >>> data = {"query": "How hot?", "retrieval_docs": ["Tea grows on hills. Hot water of 80 degrees."]}
        >>> data = RefinerOperator("extractive", budget=9)(data)
        >>> data["refining_docs"], data["refining_results"][0]["compression_ratio"] < 1
        (['Hot water of 80 degrees.'], True)
    """

    writes: ClassVar = ("refining_results", "refining_docs", "refining_time")

    def __init__(self, refiner: Refiner | str = "tree", **keywords: Any) -> None:
        if isinstance(refiner, Refiner) and keywords:
            msg = f"RefinerOperator got a Refiner and {', '.join(keywords)}; give these to the Refiner."
            raise ConfigError(msg)
        if not isinstance(refiner, (Refiner, str)):
            msg = f"refiner is {refiner!r:.60}; give a Refiner, or the name of a registered one."
            raise ConfigError(msg)
        self.refiner = refiner if isinstance(refiner, Refiner) else Refiner(refiner, **keywords)

    def __repr__(self) -> str:
        return f"RefinerOperator({self.refiner!r})"

    def process(self, data: RAGData) -> Mapping[str, Any]:
        """The shorter texts.

        Raises:
            GenerationError: If the refiner fails.
        """
        query, rows = query_of(data), latest_results(data, TO_REFINE)
        begun = time.perf_counter()
        refined = self.refiner(query, [row["text"] for row in rows]) if rows and query.strip() else []
        seconds = time.perf_counter() - begun
        results = [
            {
                **rows[one.index],
                "text": one.text,
                "original_length": one.original_length,
                "refined_length": one.refined_length,
                "compression_ratio": one.compression_ratio,
            }
            for one in refined
        ]
        return {
            "refining_results": results,
            "refining_docs": [one.text for one in refined],
            "refining_time": seconds,
        }


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


_GROUP = "FineChunk"
_DEFAULT_TOPK = 5


@known_arguments
class RetrieveOperator(Operator):
    """Finds texts for a question (spec 000's retrieval stage).

    Each of ``retrieval_results`` has the fields of a `Hit`: ``text``, ``score`` (None where the retriever has none),
    ``metadata``, and ``id``, ``source``, ``document_id``, ``chunk_id``. A blank query finds nothing.

    Args:
        retriever: A `Retriever`, a `HybridRetriever`, a `RetrievalChain`, or any callable
            (query, filters=None, topk=None) -> nodes or hits, which may be asynchronous.
        topk: At most so many, at least 1.
        filters: On the fields of the Document, the same for every question.

    Raises:
        ConfigError: If an argument is out of its range.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea.txt": "Water of 80 degrees."})
        >>> data = RetrieveOperator(Retriever(docs, "FineChunk", "bm25"))({"query": "How hot is the water?"})
        >>> data["retrieval_docs"], data["retrieval_results"][0]["source"]
        (['Water of 80 degrees.'], 'tea.txt')
    """

    writes: ClassVar = ("retrieval_results", "retrieval_docs", "retrieval_time")

    def __init__(self, retriever: Any, topk: int = _DEFAULT_TOPK, *, filters: FilterLike | None = None) -> None:
        if _is_document(retriever):
            msg = f"RetrieveOperator got {retriever!r:.60}; give a retriever over it, Retriever(docs, group_name, ...)."
            raise ConfigError(msg)
        self._finder = retriever if isinstance(retriever, _FINDERS) else RetrieverFinder(retriever)
        self._topk = whole_number("topk", topk, 1)
        self._filters = filters

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._finder.name!r}, topk={self._topk})"

    def process(self, data: RAGData) -> Mapping[str, Any]:
        """What is found."""
        return background.run(self.aprocess(data))

    async def aprocess(self, data: RAGData) -> Mapping[str, Any]:
        """What is found.

        Raises:
            RetrievalError: If the retriever fails, or gives something else than nodes or hits.
        """
        query = query_of(data)
        begun = time.perf_counter()
        hits = await (await self._finder.find(query, self._topk, self._filters)).hits()
        seconds = time.perf_counter() - begun
        return {
            "retrieval_results": [row_of(hit) for hit in hits],
            "retrieval_docs": [hit.text for hit in hits],
            "retrieval_time": seconds,
        }


_FINDERS = (RetrieverFinder, MilvusFinder, ChromaFinder, FaissFinder)


def row_of(hit: Hit) -> dict[str, Any]:
    """A hit as a row of results: its fields, with None for a score that nobody gave."""
    row = hit.to_dict()
    return {**row, "score": None if math.isnan(hit.score) else hit.score}


def _over(docs: Any, group_name: str, similarity: str) -> Finder:
    """What finds nodes of a Document, or of several."""
    return RetrieverFinder(Retriever(docs, group_name, similarity))


def _is_document(source: Any) -> bool:
    many = isinstance(source, Sequence) and not isinstance(source, str) and len(source) > 0
    return isinstance(source, Document) or (many and all(isinstance(one, Document) for one in source))


def _refuse_embed(name: str, embed: Any) -> None:
    if embed is not None:
        msg = f"{name} got a Document and embed=...; the Document has embeddings of its own: Document(embed=...)."
        raise ConfigError(msg)


@known_arguments
class Wiki18FAISSRetriever(RetrieveOperator):
    """Spec 000's retriever over a faiss index: over a Document, or over such an index that is built already.

    Args:
        source: A Document with embeddings, or several; or a faiss index, or the file of one.
        documents: For an index: the texts, a file of JSON lines or its rows; see
            `lazyrag.pipeline.external.FaissFinder`.
        embed: For an index: what it was made with; an `Embedder` or a callable from one text to a vector.
        group_name: For a Document: the node group to search.
        similarity: For a Document: a registered similarity.
        topk: At most so many.

    Raises:
        ConfigError: If what is given does not fit together.
    """

    def __init__(
        self,
        source: Any,
        documents: Any = None,
        embed: Any = None,
        *,
        group_name: str = _GROUP,
        similarity: str = "cosine",
        topk: int = _DEFAULT_TOPK,
    ) -> None:
        if _is_document(source):
            _refuse_embed("Wiki18FAISSRetriever", embed)
            super().__init__(_over(source, group_name, similarity), topk)
            return
        if documents is None or embed is None:
            msg = (
                f"Wiki18FAISSRetriever got {source!r:.60} alone; give a Document, or an index with documents=... (its "
                "texts) and embed=... (what its vectors were made with)."
            )
            raise ConfigError(msg)
        super().__init__(FaissFinder(embed, source, documents), topk)


@known_arguments
class ChromaRetriever(RetrieveOperator):
    """Spec 000's retriever over Chroma: over a Document (with a store on Chroma or any other), or over a collection.

    Args:
        source: A Document, or several; or a ``chromadb`` collection that another program filled.
        embed: For a collection: an `Embedder` or a callable from one text to a vector; None lets the collection embed
            questions itself.
        group_name: For a Document: the node group to search.
        similarity: For a Document: a registered similarity.
        topk: At most so many.
        filters: The same for every question.

    Raises:
        ConfigError: If what is given does not fit together.
    """

    def __init__(
        self,
        source: Any,
        embed: Any = None,
        *,
        group_name: str = _GROUP,
        similarity: str = "cosine",
        topk: int = _DEFAULT_TOPK,
        filters: FilterLike | None = None,
    ) -> None:
        if _is_document(source):
            _refuse_embed("ChromaRetriever", embed)
            super().__init__(_over(source, group_name, similarity), topk, filters=filters)
        else:
            super().__init__(ChromaFinder(embed, source), topk, filters=filters)


@known_arguments
class MilvusRetriever(RetrieveOperator):
    """Spec 000's retriever over Milvus: over a Document (with a store on Milvus or any other), or over a collection.

    Args:
        source: A Document, or several; or a ``pymilvus.MilvusClient`` or a `MilvusCollection` that another program
            filled.
        embed: For a collection: an `Embedder` or a callable from one text to a vector.
        group_name: For a Document: the node group to search.
        similarity: For a Document: a registered similarity.
        topk: At most so many.
        filters: The same for every question.

    Raises:
        ConfigError: If what is given does not fit together.
    """

    def __init__(
        self,
        source: Any,
        embed: Any = None,
        *,
        group_name: str = _GROUP,
        similarity: str = "cosine",
        topk: int = _DEFAULT_TOPK,
        filters: FilterLike | None = None,
    ) -> None:
        if _is_document(source):
            _refuse_embed("MilvusRetriever", embed)
            super().__init__(_over(source, group_name, similarity), topk, filters=filters)
        else:
            super().__init__(MilvusFinder(embed, source), topk, filters=filters)
