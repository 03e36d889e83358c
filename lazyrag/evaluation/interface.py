"""Systems under evaluation and their samples: `RAGInterface` (spec 002), adapters, `prepare`,
export to RAGAS.
"""

from __future__ import annotations

import abc
import dataclasses
import inspect
import math
import numbers
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast

from lazyrag.data.result import GenerationResult, Hit, M_co, RetrievalResult
from lazyrag.errors import (
    AnswerWarning,
    ConfigError,
    InterfaceError,
    nearest,
    optional_package,
    warn_user,
)
from lazyrag.models import concurrency
from lazyrag.models.chat import ChatCallable, as_chat_model
from lazyrag.models.protocols import ChatModel, ChatOptions, Message, Prompt
from lazyrag.pipeline.pipeline import RAGPipeline
from lazyrag.retrieval.base import check_retrievers
from lazyrag.retrieval.stages import (
    NodeRetriever,
    Searchable,
    callable_name,
    check_query,
    retrieve_nodes,
)
from lazyrag.text.sentences import resolve_language
from lazyrag.types import JsonMapping, JsonObject, Metadata
from lazyrag.validation import is_list_of, known_arguments, require, validate_integer

if TYPE_CHECKING:
    from ragas import EvaluationDataset, SingleTurnSample


_AT_A_TIME = 16

PAIRS = (("retrieve", "retrieve_with_metadata"), ("generate", "generate_with_metadata"))
"""The old and the new form of each step. A system implements at least one form of each pair."""

_OTHER = {**dict(PAIRS), **{new: old for old, new in PAIRS}}


class RAGInterface(Generic[M_co]):
    """Base class of systems under evaluation (spec 002). Implement one form of retrieval and one of
    generation.

    The old form takes and returns plain texts (`retrieve`, `generate`). The new form returns
    results with ids, scores, candidates, confidence and metadata (`retrieve_with_metadata`,
    `generate_with_metadata`). Each form has a default that calls the other one and passes the same
    objects on. If you implement both, each is used as written.

    The ``batch_`` methods loop over these. Override them if your system is faster on many queries.
    Methods may be coroutine functions: those of many queries run concurrently, at most 16 at a
    time. Where a default has the choice, it prefers the method that keeps metadata to the one that
    is fast.

    A class that implements neither form of a pair is refused when it is defined. So is a class that
    implements the old form below a class that implements the new one, because evaluations call the
    new form and would skip it. To leave methods to subclasses, declare an abstract class:
    ``class Base(RAGInterface, abc.ABC)``.

    The type parameter is the type of both results' metadata: ``RAGInterface[dict[str, int]]``. An
    override that calls its own default must leave the other form to a base class.

    Raises:
        InterfaceError: If a class implements neither form of a pair, a method that nothing
            implements is called, or a method returns a value of the wrong type.

    Example:
        >>> class Old(RAGInterface):
        ...     def retrieve(self, query): return ["Water of 80 degrees."]
        ...     def generate(self, query, contexts): return contexts[0]
        >>> Old().retrieve_with_metadata("How hot?")
        <RetrievalResult: 1 hit, best: Hit(0: 'Water of 80 degrees.')>
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if abc.ABC not in cls.__bases__:
            _validate_class(cls)

    def retrieve(self, query: str) -> list[str]:
        """Return the texts found for a query (old form).

        Args:
            query: The query.

        Returns:
            Texts, best first; [] if nothing is found. By default the contexts of
            `retrieve_with_metadata`, not copied.

        Example:
            >>> class New(RAGInterface):
            ...     def retrieve_with_metadata(self, query):
            ...         return RetrievalResult(["80 degrees."], ["n1"])
            ...     def generate(self, query, contexts): return contexts[0]
            >>> New().retrieve("How hot?")
            ['80 degrees.']
        """
        result: RetrievalResult[Any] = _call_other(self, "retrieve", query)
        return result.contexts

    def retrieve_with_metadata(self, query: str) -> RetrievalResult[M_co]:
        """Return what is found for a query with ids, scores and metadata (new form).

        Args:
            query: The query.

        Returns:
            The texts, best first; their ids and scores where known; metadata of the whole query,
            such as sources or times. By default the list of `retrieve`, and None for the rest.
        """
        return RetrievalResult(_call_other(self, "retrieve_with_metadata", query))

    def generate(self, query: str, contexts: list[str]) -> str:
        """Answer a query from texts (old form).

        Args:
            query: The query.
            contexts: The texts, best first, as `retrieve` returns them.

        Returns:
            The answer. By default the response of `generate_with_metadata`.
        """
        result: GenerationResult[Any] = _call_other(self, "generate", query, contexts)
        return result.response

    def generate_with_metadata(self, query: str, contexts: list[str]) -> GenerationResult[M_co]:
        """Answer a query from texts, with candidates, confidence and metadata (new form).

        Args:
            query: The query.
            contexts: The texts, best first.

        Returns:
            The answer; where known, other candidates, a confidence from 0 to 1, and metadata such
            as tokens or seconds. By default the text of `generate`, and None for the rest.
        """
        return GenerationResult(_call_other(self, "generate_with_metadata", query, contexts))

    def batch_retrieve(self, queries: Sequence[str]) -> list[list[str]]:
        """Run `retrieve` for many queries.

        Args:
            queries: n queries.

        Returns:
            n lists of texts, in the order of the queries. By default those of
            `batch_retrieve_with_metadata` if you implement it, else `retrieve` for each query.

        Raises:
            ConfigError: If the queries are a single string.
        """
        return _run_batch(self, "retrieve", attrgetter("contexts"), queries)

    def batch_retrieve_with_metadata(self, queries: Sequence[str]) -> list[RetrievalResult[M_co]]:
        """Run `retrieve_with_metadata` for many queries.

        Args:
            queries: n queries.

        Returns:
            n results, in the order of the queries. By default `retrieve_with_metadata` for each
            query; if you implement the old form and `batch_retrieve`, the lists of the latter.
        """
        return _run_batch(self, "retrieve_with_metadata", RetrievalResult, queries)

    def batch_generate(
        self, queries: Sequence[str], contexts_list: Sequence[list[str]]
    ) -> list[str]:
        """Run `generate` for many queries.

        Args:
            queries: n queries.
            contexts_list: n lists of texts, as `batch_retrieve` returns them.

        Returns:
            n answers, in the order of the queries. By default those of
            `batch_generate_with_metadata` if you implement it, else `generate` for each query.

        Raises:
            ConfigError: If the numbers of queries and lists differ.
        """
        return _run_batch(self, "generate", attrgetter("response"), queries, contexts_list)

    def batch_generate_with_metadata(
        self, queries: Sequence[str], contexts_list: Sequence[list[str]]
    ) -> list[GenerationResult[M_co]]:
        """Run `generate_with_metadata` for many queries.

        Args:
            queries: n queries.
            contexts_list: n lists of texts.

        Returns:
            n results, in the order of the queries. By default `generate_with_metadata` for each
            query; if you implement the old form and `batch_generate`, the answers of the latter.

        Raises:
            ConfigError: If the numbers of queries and lists differ.
        """
        return _run_batch(self, "generate_with_metadata", GenerationResult, queries, contexts_list)


_RETURNS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "retrieve": ((list, tuple), "a list of texts"),
    "retrieve_with_metadata": (RetrievalResult, "a RetrievalResult"),
    "generate": (str, "a text"),
    "generate_with_metadata": (GenerationResult, "a GenerationResult"),
}
"""What each method must return."""


def _overrides(cls: type, name: str) -> bool:
    """Whether a class overrides a method of the interface."""
    return getattr(cls, name) is not getattr(RAGInterface, name)


def _validate_class(cls: type) -> None:
    """Refuse a class that implements neither form of a pair, or an old form that evaluations would
    skip.
    """
    for old, new in PAIRS:
        if not _overrides(cls, old) and not _overrides(cls, new):
            hint = (
                "A mixin goes before RAGInterface among the bases; an abstract class lists abc.ABC"
                " among its own."
            )
            raise InterfaceError(
                f"{cls.__name__} implements neither {old}() nor {new}(). Implement one. {hint}"
            )
        if old in vars(cls) and new not in vars(cls) and _overrides(cls, new):
            writer = next(base.__name__ for base in cls.__mro__ if new in vars(base))
            hint = f"Implement {new}(), or set {new} = RAGInterface.{new}, which calls yours."
            problem = (
                f"implements {old}(), and evaluations call {new}() of {writer}: yours would be"
                " skipped"
            )
            raise InterfaceError(f"{cls.__name__} {problem}. {hint}")


def _validate_queries(
    queries: Sequence[str], contexts_list: Sequence[list[str]] | None = None
) -> None:
    require(not isinstance(queries, str), "queries", queries, "a list of questions")
    if contexts_list is not None and len(queries) != len(contexts_list):
        raise ConfigError(
            f"{len(queries)} queries need as many lists of contexts; got {len(contexts_list)}."
        )


def _call_other(system: RAGInterface[Any], default: str, *args: Any) -> Any:
    """Call the other form from a default. If that is a default too, raise instead of recursing."""
    other = _OTHER[default]
    if not _overrides(type(system), other):
        raise InterfaceError(
            f"The default {type(system).__name__}.{default}() calls {other}(), which is not"
            " implemented either."
            f" Implement one of them without calling super().{default}()."
        )
    returned = concurrency.settle(getattr(system, other)(*args))
    kinds, expected = _RETURNS[other]
    if not isinstance(returned, kinds):
        raise _wrong_return(system, other, returned, expected)
    return returned


def _run_batch(
    system: RAGInterface[Any],
    method: str,
    convert: Callable[[Any], Any],
    queries: Sequence[str],
    *args: Sequence[Any],
) -> list[Any]:
    """Run a method for many queries: by the other form's batch method if the class has one, else
    query by query. The new form takes precedence over the batch method of the old one.

    Args:
        system: The system.
        method: The method.
        convert: Makes a result of the method from one of the other form.
        queries: The queries.
        args: Further arguments, one for each query.
    """
    _validate_queries(queries, *args)
    other = f"batch_{_OTHER[method]}"
    has_new = method.endswith("_with_metadata") and _overrides(type(system), method)
    if has_new or not _overrides(type(system), other):
        return cast("list[Any]", _each(system, method, queries, *args))
    return list(map(convert, _call_batch(system, other, queries, *args)))


def _call_batch(
    system: RAGInterface[Any], method: str, queries: Sequence[str], *args: Any
) -> Sequence[Any]:
    """Call a batch method, which must return one result of the right type for each query."""
    returned = concurrency.settle(getattr(system, method)(queries, *args))
    kinds, expected = _RETURNS[method.removeprefix("batch_")]
    if not is_list_of(returned, kinds) or len(returned) != len(queries):
        raise _wrong_return(
            system,
            method,
            returned,
            f"a list of {len(queries)} items, each {expected} for one query",
        )
    return returned  # type: ignore[no-any-return]  # validated above


def _each(
    system: RAGInterface[Any],
    method: str,
    *args: Sequence[Any],
    returned_errors: tuple[type[Exception], ...] = (),
) -> Any:
    """Call a method for each query; the results of coroutines are awaited together.

    An adapter is called by several threads. So is a default, which waits itself, of a coroutine
    function.

    Args:
        system: The system.
        method: Name of the method.
        args: A list for each argument.
        returned_errors: The errors that are returned in place of a result.
    """
    workers = 1
    if isinstance(system, _Adapter):
        workers = system.workers
    elif not _overrides(type(system), method) and inspect.iscoroutinefunction(
        getattr(system, _OTHER[method])
    ):
        workers = _AT_A_TIME

    def call(arguments: tuple[Any, ...]) -> Any:
        try:
            return getattr(system, method)(*arguments)
        except returned_errors as exc:
            return exc

    async def gather(results: list[Any]) -> list[Any]:
        import asyncio

        turn = asyncio.Semaphore(_AT_A_TIME)

        async def settle(result: Any) -> Any:
            async with turn:
                try:
                    return await result if inspect.isawaitable(result) else result
                except returned_errors as exc:
                    return exc

        return await concurrency.together(*map(settle, results))

    results = list(concurrency.map_in_threads(call, list(zip(*args, strict=True)), workers))
    return concurrency.run(gather(results)) if any(map(inspect.isawaitable, results)) else results


class _Adapter(RAGInterface[Metadata], abc.ABC):
    """A system whose methods may be called by several threads."""

    workers: int


def _wrong_return(
    system: RAGInterface[Any], method: str, returned: Any, expected: str
) -> InterfaceError:
    description = f"{returned!r:.80} ({type(returned).__name__})"
    return InterfaceError(
        f"{type(system).__name__}.{method}() returned {description}; return {expected}."
    )


_INSTRUCTIONS = {
    "en": "Answer the question from the passages alone. If they do not answer it, say so.",
    "zh": "只根据下面的资料回答问题。资料中没有答案时，请直接说明。",
}
_LABELS = {"en": ("Passages", "Question"), "zh": ("资料", "问题")}


def passages_prompt(query: str, contexts: Sequence[str]) -> tuple[Message, ...]:
    r"""Write a plain prompt in the question's language: the numbered passages, then the question.

    Example:
        >>> print(passages_prompt("How hot?", ["80 degrees."])[1].content)
        Passages:
        [1] 80 degrees.
        <BLANKLINE>
        Question: How hot?
    """
    language = resolve_language("auto", query)
    passages, question = _LABELS[language]
    listed = "\n".join(f"[{number}] {text}" for number, text in enumerate(contexts, start=1))
    colon = "：" if language == "zh" else ": "
    prompt = f"{passages}{colon.rstrip()}\n{listed}\n\n{question}{colon}{query}"
    return Message("system", _INSTRUCTIONS[language]), Message("user", prompt)


@known_arguments
class RetrieverRAG(_Adapter):
    """A retriever and a chat model as a system under evaluation.

    Contexts have the uids of their nodes as ids, and their scores. Metadata of a retrieval: the
    files (``"sources"``), ``"retriever"`` and ``"retrieval_time"`` in seconds. Metadata of an
    answer: ``"model"``, ``"prompt_tokens"`` and ``"completion_tokens"`` (None if the model does not
    report them), ``"finish_reason"`` and ``"generation_time"`` in seconds.

    Args:
        retriever: A `Retriever`, a `HybridRetriever`, a `RetrievalChain`, a callable
            (query, filters=None, topk=None) -> nodes, or a client with ``search(query, top_k)``.
        model: A chat model, or a callable from text to text. None: only retrieval can be evaluated.
        topk: Maximum number of contexts; None: the retriever's default.
        options: For the model. If ``n`` is above 1, ``multi_responses`` has all candidates, and the
            first one is the response.
        prompt: Writes the prompt from a query and its contexts.
        workers: Number of queries that the batch methods and `prepare` work on at a time; 1 for a
            retriever or a model that is not thread-safe.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea.txt": "Water of 80 degrees."})
        >>> rag = RetrieverRAG(Retriever(docs, "FineChunk", "bm25"), lambda text: "80 degrees [1].")
        >>> found = rag.retrieve_with_metadata("How hot is the water?")
        >>> found.contexts, found.metadata["sources"]
        (['Water of 80 degrees.'], ['tea.txt'])
        >>> rag.generate("How hot is the water?", found.contexts)
        '80 degrees [1].'
    """

    def __init__(
        self,
        retriever: NodeRetriever | Searchable,
        model: ChatModel | ChatCallable | None = None,
        *,
        topk: int | None = None,
        options: ChatOptions | None = None,
        prompt: Callable[[str, Sequence[str]], Prompt] = passages_prompt,
        workers: int = _AT_A_TIME,
    ) -> None:
        [checked] = check_retrievers("RetrieverRAG", [retriever])
        require(callable(prompt), "prompt", prompt, "a callable")
        self._retriever = checked.wrapped
        self._model = None if model is None else as_chat_model(model)
        self._topk = None if topk is None else validate_integer("topk", topk, 1)
        self._options = options or ChatOptions()
        self._prompt = prompt
        self.workers = validate_integer("workers", workers, 1)

    def retrieve_with_metadata(self, query: str) -> RetrievalResult[Metadata]:
        """Call the retriever.

        Raises:
            RetrievalError: If it fails, or returns something else than nodes.
        """
        started = time.perf_counter()
        nodes = (
            retrieve_nodes(self._retriever, query, None, self._topk) if check_query(query) else []
        )
        metadata = {
            "sources": [node.path for node in nodes],
            "retriever": callable_name(self._retriever),
            "retrieval_time": time.perf_counter() - started,
        }
        return RetrievalResult.from_nodes(nodes, metadata)

    def generate_with_metadata(self, query: str, contexts: list[str]) -> GenerationResult[Metadata]:
        """Call the model.

        Raises:
            ConfigError: If there is no model.
            GenerationError: If it fails.
        """
        if self._model is None:
            hint = (
                "Pass RetrieverRAG(retriever, model), or evaluate retrieval alone: prepare(...,"
                " generate=False)."
            )
            raise ConfigError(f"This RetrieverRAG has no chat model. {hint}")
        started = time.perf_counter()
        completion = self._model.chat(self._prompt(query, contexts), self._options)
        texts = [choice.text for choice in completion.choices]
        usage = completion.usage
        metadata = {
            "model": completion.model or self._model.identity,
            "prompt_tokens": None if usage is None else usage.prompt_tokens,
            "completion_tokens": None if usage is None else usage.completion_tokens,
            "finish_reason": completion.choices[0].finish_reason,
            "generation_time": time.perf_counter() - started,
        }
        return GenerationResult(texts[0], texts if len(texts) > 1 else None, metadata=metadata)


@known_arguments
class PipelineRAG(_Adapter):
    """A `RAGPipeline` as a system under evaluation.

    Contexts are those that `RAGPipeline.answer` would use, reranked if the pipeline reranks.
    Metadata of a retrieval are the pipeline's (``"query"``, ``"seconds"`` by stage) and
    ``"sources"``, the files. A generation is the result of the pipeline's generator, unchanged.

    Args:
        pipeline: The pipeline. Without a generator only its retrieval can be evaluated.
        top_k: Number of hits to retrieve; None: the pipeline's setting.
        max_tokens: Maximum size of the contexts built for answers; None: the pipeline's setting.
        workers: Number of queries that the batch methods and `prepare` work on at a time.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> from lazyrag import Document, RAGPipeline
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea.txt": "Water of 80 degrees."})
        >>> model = lambda prompt: "80 degrees [1]."
        >>> pipeline = RAGPipeline.over(docs, "FineChunk", generator=model)
        >>> rag = PipelineRAG(pipeline)
        >>> found = rag.retrieve_with_metadata("How hot is the water?")
        >>> rag.generate("How hot is the water?", found.contexts)
        '80 degrees [1].'
    """

    def __init__(
        self,
        pipeline: RAGPipeline,
        *,
        top_k: int | None = None,
        max_tokens: int | None = None,
        workers: int = _AT_A_TIME,
    ) -> None:
        is_pipeline = isinstance(pipeline, RAGPipeline)
        require(
            is_pipeline, "pipeline", pipeline, "a RAGPipeline", "For a retriever use RetrieverRAG."
        )
        self._pipeline = pipeline
        self._top_k = None if top_k is None else validate_integer("top_k", top_k, 1)
        self._max_tokens = (
            None if max_tokens is None else validate_integer("max_tokens", max_tokens, 1)
        )
        self.workers = validate_integer("workers", workers, 1)
        self._hits_by_query: dict[str, Sequence[Hit]] = {}  # by query, to answer from

    def retrieve_with_metadata(self, query: str) -> RetrievalResult[Metadata]:
        """Retrieve, and rerank if the pipeline reranks.

        Raises:
            RetrievalError: If the retriever or the reranker fails.
        """
        sync = self._pipeline.sync
        retrieve = sync.retrieve_and_rerank if self._pipeline.reranks else sync.retrieve
        retrieved = retrieve(query, self._top_k)
        self._hits_by_query[query] = retrieved
        metadata = {**(retrieved.metadata or {}), "sources": [hit.source for hit in retrieved]}
        return dataclasses.replace(
            retrieved, metadata=metadata
        )  # the same lists: nothing is copied

    def generate_with_metadata(self, query: str, contexts: list[str]) -> GenerationResult[Metadata]:
        """Answer from contexts, with the files and locations of those that were retrieved for the
        query.

        Without contexts the answer says that nothing was found.

        Raises:
            ConfigError: If the question is blank.
            GenerationError: If the model fails.

        Warns:
            AnswerWarning: For each problem of the answer.
        """
        hits_by_text = {hit.text: hit for hit in self._hits_by_query.get(query, ())}
        hits = [
            hits_by_text.get(text, Hit(str(number), text, math.nan))
            for number, text in enumerate(contexts, start=1)
        ]
        return self._pipeline.sync.answer_from(hits, self._max_tokens, query=query).generation


_ID_FIELDS = ("retrieved_context_ids", "reference_context_ids")


def _is_ids(value: Any) -> bool:
    return is_list_of(value, (str, numbers.Integral)) and not any(
        isinstance(item, bool) for item in value
    )


def _is_rubrics(value: Any) -> bool:
    return isinstance(value, Mapping) and is_list_of([*value, *value.values()], str)


_FieldType: TypeAlias = tuple[Callable[[Any], bool], str]
"""Whether a value has the type, and its description."""
_TEXT: _FieldType = (lambda value: isinstance(value, str)), "a string"
_MAPPING: _FieldType = (lambda value: isinstance(value, Mapping)), "a mapping"
_TEXTS: _FieldType = (lambda value: is_list_of(value, str)), "a list of strings"
_FIELD_TYPES: Mapping[str, _FieldType] = {
    **dict.fromkeys(("retrieved_contexts", "reference_contexts", "multi_responses"), _TEXTS),
    **dict.fromkeys(_ID_FIELDS, (_is_ids, "a list of ids (strings or integers)")),
    "rubrics": (_is_rubrics, "a mapping from string to string"),
    "scores": (lambda value: is_list_of(value, numbers.Real), "a list of numbers"),
    "confidence": (lambda value: isinstance(value, numbers.Real), "a number"),
    **dict.fromkeys(("retrieval_metadata", "generation_metadata", "extra"), _MAPPING),
}
"""Types of fields; the others are strings."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One question with what was found, answered and expected: RAGAS's ``SingleTurnSample`` without
    that package.

    None means unknown; an empty list means that there is nothing. Lists are not copied. The last
    five fields are not RAGAS's, and `to_ragas` leaves them out.

    Args:
        user_input: The question.
        retrieved_contexts: The texts found, best first.
        reference_contexts: The texts that should be found.
        retrieved_context_ids: The ids of the texts found.
        reference_context_ids: The ids of the texts that should be found.
        response: The answer.
        multi_responses: Candidates, if several were requested.
        reference: The expected answer.
        rubrics: Criteria for a judge, by score.
        persona_name: The person who asks.
        query_style: The style of the question.
        query_length: The length of the question: ``"short"``.
        scores: The scores of the texts found.
        confidence: That of the answer, from 0 to 1.
        retrieval_metadata: Metadata of the retrieval.
        generation_metadata: Metadata of the generation.
        extra: Further fields of the record.

    Raises:
        ConfigError: If a field has the wrong type, or an id occurs twice in a list.

    Example:
        >>> Sample("How hot?", retrieved_context_ids=["n1"]).to_dict()
        {'user_input': 'How hot?', 'retrieved_context_ids': ['n1']}
    """

    user_input: str | None = None
    retrieved_contexts: Sequence[str] | None = None
    reference_contexts: Sequence[str] | None = None
    retrieved_context_ids: Sequence[str | int] | None = None
    reference_context_ids: Sequence[str | int] | None = None
    response: str | None = None
    multi_responses: Sequence[str] | None = None
    reference: str | None = None
    rubrics: Mapping[str, str] | None = None
    persona_name: str | None = None
    query_style: str | None = None
    query_length: str | None = None
    scores: Sequence[float] | None = None
    confidence: float | None = None
    retrieval_metadata: Metadata | None = None
    generation_metadata: Metadata | None = None
    extra: Metadata | None = None

    def __post_init__(self) -> None:
        for name in _ALL_FIELDS:
            value = getattr(self, name)
            has_type, expected = _FIELD_TYPES.get(name, _TEXT)
            is_valid = value is None or has_type(value)
            require(is_valid, f"Sample.{name}", value, f"{expected} or None")
            if name in _ID_FIELDS and value is not None:
                is_distinct = len(set(value)) == len(value)
                hint = "Give each text an id of its own."
                require(is_distinct, f"Sample.{name}", value, "a list of distinct ids", hint)

    def to_dict(self) -> JsonObject:
        """Return the known fields, not copied, as RAGAS's samples do."""
        return {name: value for name in _ALL_FIELDS if (value := getattr(self, name)) is not None}

    def to_ragas(self) -> SingleTurnSample:
        """Convert to a sample of the package ragas.

        Raises:
            MissingDependencyError: If ragas is not installed: ``pip install "lazyrag[ragas]"``.
        """
        with optional_package("Sample.to_ragas", "ragas"):
            from ragas import SingleTurnSample  # seconds, and half a gigabyte of packages
        plain = {name: value for name, value in self.to_dict().items() if name in FIELDS}
        for name in _ID_FIELDS:
            if name in plain:  # ragas does not accept numpy's integers
                plain[name] = [uid if isinstance(uid, str) else int(uid) for uid in plain[name]]
        return SingleTurnSample(**plain)


_ALL_FIELDS = tuple(field.name for field in fields(Sample))
FIELDS = _ALL_FIELDS[:12]
"""RAGAS's twelve fields, in its order."""

SYSTEM_FIELDS = ("retrieved_contexts", "retrieved_context_ids", "response", "multi_responses")
"""The fields that the system fills; a record has the others."""

_RECORD_FIELDS = tuple(name for name in FIELDS if name not in SYSTEM_FIELDS)
_TYPO = 0.88
"""Similarity of a misspelt field, such as ``referense``; ``query_type`` is one of its own beside
``query_style``."""


def to_ragas_dataset(samples: Sequence[Sample]) -> EvaluationDataset:
    """Convert samples to a data set of the package ragas, for ``ragas.evaluate``.

    Args:
        samples: At least one. RAGAS needs the same fields in all of them.

    Raises:
        MissingDependencyError: If ragas is not installed: ``pip install "lazyrag[ragas]"``.
        ConfigError: If there is no sample.
    """
    require(bool(samples), "samples", samples, "a list of at least one sample")
    converted = [sample.to_ragas() for sample in samples]
    from ragas import EvaluationDataset  # installed, since the samples were converted

    return EvaluationDataset(samples=converted)


def prepare(records: Any, rag: RAGInterface[Any], *, generate: bool = True) -> list[Sample]:
    """Run a system on each record's question, and make a sample of each.

    The system's batch methods are called: first for all retrievals, then for all answers.

    Args:
        records: Mappings of what is expected, by RAGAS's names: always ``user_input``, the
            question; where known ``reference``, ``reference_contexts``, ``reference_context_ids``,
            ``rubrics``, ``persona_name``, ``query_style`` and ``query_length``. Further fields go
            to `Sample.extra`; an ``id`` must be unique. Or samples: `Sample`, RAGAS's
            ``SingleTurnSample`` or its ``EvaluationDataset``, whose retrieved contexts and
            responses are not used.
        rag: The system. Fields that it does not fill are None, and so is the response where the
            system fails for some records, unless it answers by a batch method of its own.
        generate: Whether to generate answers; if False, only retrieval can be evaluated.

    Returns:
        A sample for each record, in order.

    Raises:
        ConfigError: If a record has no question, a field of the wrong type, or another
            one's ``id``.
        InterfaceError: If the system is no `RAGInterface`, or a method returns a value of the wrong
            type.

    Warns:
        AnswerWarning: If some answers failed.
        UserWarning: If a further field seems to be a misspelt one.

    Example:
        >>> class Tea(RAGInterface):
        ...     def retrieve_with_metadata(self, query):
        ...         return RetrievalResult(["80 degrees."], ["n1"])
        ...     def generate(self, query, contexts): return contexts[0]
        >>> [sample] = prepare([{"user_input": "How hot?", "reference_context_ids": ["n1"]}], Tea())
        >>> sample.retrieved_context_ids, sample.response, sample.multi_responses
        (['n1'], '80 degrees.', None)
    """
    is_system = isinstance(rag, RAGInterface)
    expected = "an instance of a subclass of RAGInterface"
    require(is_system, "rag", rag, expected, error=InterfaceError)
    listed = list(getattr(records, "samples", records))
    records = [_validate_record(number, record) for number, record in enumerate(listed, start=1)]
    ids = [record["extra"]["id"] for record in records if "id" in record["extra"]]
    twice = next((record_id for record_id, times in Counter(ids).items() if times > 1), None)
    require(twice is None, "'id' of the records", twice, "unique")
    queries = [record["user_input"] for record in records]
    retrieved = _call_batch(rag, "batch_retrieve_with_metadata", queries)
    samples = _samples(records, retrieved)
    if not generate:  # else the samples were validated before any model is paid for
        return samples
    answers = _answers(rag, queries, [result.contexts for result in retrieved])
    return _samples(records, retrieved, answers)


def _answers(
    rag: RAGInterface[Any], queries: Sequence[str], contexts: Sequence[list[str]]
) -> Sequence[Any]:
    """The answers; without a batch method of the system's own None for one that failed, unless all
    did.
    """
    cls = type(rag)
    in_batches = _overrides(cls, "batch_generate") and not _overrides(cls, "generate_with_metadata")
    if in_batches or _overrides(cls, "batch_generate_with_metadata"):
        return _call_batch(rag, "batch_generate_with_metadata", queries, contexts)
    answers = _each(rag, "generate_with_metadata", queries, contexts, returned_errors=(Exception,))
    for answer in answers:
        if isinstance(answer, InterfaceError):
            raise answer
        if not isinstance(answer, (Exception, GenerationResult)):
            raise _wrong_return(rag, "generate_with_metadata", answer, "a GenerationResult")
    results = [None if isinstance(answer, Exception) else answer for answer in answers]
    failed = [number for number, result in enumerate(results, start=1) if result is None]
    if failed:
        first = answers[failed[0] - 1]
        if len(failed) == len(answers):
            raise first
        which = ", ".join(map(str, failed))
        missing = f"{len(failed)} of {len(answers)} answers failed, of record {which}"
        warn_user(f"{missing}. The first error: {type(first).__name__}: {first}", AnswerWarning)
    return results


def make_sample(
    record: Any,
    retrieval: RetrievalResult[Any] | None = None,
    generation: GenerationResult[Any] | None = None,
) -> Sample:
    """Make a sample of results that you already have.

    Args:
        record: What is expected, see `prepare`.
        retrieval: What was found; None if unknown.
        generation: What was answered; None if unknown.

    Raises:
        ConfigError: If the record has no question, or a field of the wrong type.

    Example:
        >>> sample = make_sample({"user_input": "How hot?"}, RetrievalResult(["80 degrees."]))
        >>> sample.retrieved_context_ids
    """
    return _sample(1, _validate_record(1, record), retrieval, generation)


def _validate_record(number: int, record: Any) -> JsonObject:
    """The fields of a record, those beyond the sample's under ``"extra"``."""
    subject = f"Record {number}"
    to_dict = getattr(record, "to_dict", None)
    if hasattr(record, "user_input") and callable(to_dict):  # a Sample, or RAGAS's
        sample = to_dict()
        record = {name: value for name, value in sample.items() if name in _RECORD_FIELDS}
        record |= sample.get("extra", {})
    expected = "a mapping with the question as 'user_input', or a sample"
    require(isinstance(record, Mapping), subject, record, expected)
    fields: JsonObject = {"extra": {}}
    for name, value in record.items():
        if name in SYSTEM_FIELDS:
            raise ConfigError(
                f"{subject} has the field {name!r}, which the system fills. Remove it, or make a"
                " Sample."
            )
        if name in _RECORD_FIELDS:
            fields[name] = value
            continue
        fields["extra"][name] = value
        near = nearest(str(name), _RECORD_FIELDS, _TYPO)
        if near is not None:
            message = f"The field {name!r} of a record goes to Sample.extra. Did you mean {near!r}?"
            warn_user(message, UserWarning)
    question = fields.get("user_input")
    require(isinstance(question, str), f"'user_input' of {subject.lower()}", question, "a string")
    return fields


def _samples(*columns: Sequence[Any]) -> list[Sample]:
    """A sample of each record, from the records, their retrievals, and perhaps their answers."""
    rows = zip(*columns, strict=True)
    return [_sample(number, *row) for number, row in enumerate(rows, start=1)]


def _sample(
    number: int,
    record: JsonMapping,
    retrieval: RetrievalResult[Any] | None,
    generation: GenerationResult[Any] | None = None,
) -> Sample:
    fields = {**record, "extra": record["extra"] or None}
    if retrieval is not None:
        fields["retrieved_contexts"] = retrieval.contexts
        fields["retrieved_context_ids"] = retrieval.context_ids
        fields["scores"] = retrieval.scores
        fields["retrieval_metadata"] = retrieval.metadata
    if generation is not None:
        fields["response"] = generation.response
        fields["multi_responses"] = generation.multi_responses
        fields["confidence"] = generation.confidence
        fields["generation_metadata"] = generation.metadata
    try:
        return Sample(**fields)
    except ConfigError as exc:
        raise ConfigError(f"Record {number}: {exc}") from exc
