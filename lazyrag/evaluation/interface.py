"""What an evaluation asks of a system, whoever wrote it: spec 002's interface, in its old form and its new one."""

from __future__ import annotations

import abc
import dataclasses
import math
import numbers
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lazyrag.data.result import GenerationResult, Hit, M_co, RetrievalResult
from lazyrag.errors import ConfigError, InterfaceError, known_names, missing_package
from lazyrag.loaders.records import Located
from lazyrag.models.chat import ChatCallable, as_chat_model
from lazyrag.models.protocols import ChatModel, ChatOptions, Message, Prompt
from lazyrag.pipeline.pipeline import RAGPipeline
from lazyrag.retrieval.stages import NodeRetriever, asked_nodes, callable_name, check_query
from lazyrag.text.sentences import spoken
from lazyrag.validation import known_arguments, whole_number

if TYPE_CHECKING:
    from ragas import EvaluationDataset, SingleTurnSample


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Checked:
    """An entry of a file: what it is called in messages, its value and its line.

    Each method gives the value as one kind of thing, or raises a ConfigError that begins with the line.

    Example:
        >>> Checked("topk", Located("three", 7)).whole(1)
        Traceback (most recent call last):
        ...
        lazyrag.errors.ConfigError: line 7: topk is 'three'; give a whole number of at least 1.
    """

    what: str
    held: Located

    @property
    def line(self) -> int:
        """Where it stands."""
        return self.held.line

    @property
    def is_mapping(self) -> bool:
        """Whether it has names and values."""
        return isinstance(self.held.value, dict)

    def called(self, what: str) -> Checked:
        """The same by another name."""
        return replace(self, what=what)

    def wrong(self, said: str) -> ConfigError:
        """The error that says something of it."""
        return ConfigError(f"line {self.line}: {self.what} {said}")

    def told(self, function: Callable[[], T]) -> T:
        """What a function returns; what it raises gets the line."""
        try:
            return function()
        except ConfigError as exc:
            msg = f"line {self.line}: {exc}"
            raise ConfigError(msg) from exc

    def mapping(self, *known: str, required: Sequence[str] = ()) -> dict[str, Checked]:
        """A mapping with none but these names."""
        entries = self.any_mapping()
        for name, entry in entries.items():
            if name not in known:
                msg = f"line {entry.line}: {self.what} has no entry {name!r}. {known_names(name, known)}"
                raise ConfigError(msg)
        for name in required:
            if name not in entries:
                raise self.wrong(f"lacks {name!r}. Give it.")
        return entries

    def any_mapping(self) -> dict[str, Checked]:
        """A mapping with names of any kind."""
        if not self.is_mapping:
            raise self._is_no("a mapping of names to values")
        return {name: Checked(name, value) for name, value in self.held.value.items()}

    def items(self) -> list[Checked]:
        """The entries of a list."""
        if not isinstance(self.held.value, list):
            raise self._is_no("a list")
        return [Checked(f"Entry {number} of {self.what}", one) for number, one in enumerate(self.held.value, start=1)]

    def text(self) -> str:
        """A text that is not blank."""
        if not isinstance(self.held.value, str) or not self.held.value.strip():
            raise self._is_no("a text that is not blank")
        return self.held.value

    def whole(self, least: int) -> int:
        """A whole number of at least so much."""
        return self.told(lambda: whole_number(self.what, self.held.value, least))

    def share(self) -> float:
        """A number above 0 and up to 1."""
        value = self.held.value
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
            raise self._is_no("a number above 0 and up to 1")
        return float(value)

    def path(self, folder: Path) -> Path:
        """A file or folder that is there, relative to a folder."""
        path = folder / self.text()
        if not path.exists():
            raise self.wrong(
                f"is {self.held.value!r}, and {str(path)!r} is not there. Paths start at the file's folder."
            )
        return path

    def plain_mapping(self) -> dict[str, Any]:
        """A mapping as it is, with plain values."""
        return {name: _plain(entry.held) for name, entry in self.any_mapping().items()}

    def _is_no(self, needed: str) -> ConfigError:
        return self.wrong(f"is {_plain(self.held)!r:.60}; give {needed}.")


def _plain(held: Located) -> Any:
    if isinstance(held.value, dict):
        return {name: _plain(value) for name, value in held.value.items()}
    return [_plain(one) for one in held.value] if isinstance(held.value, list) else held.value


PAIRS = (("retrieve", "retrieve_with_metadata"), ("generate", "generate_with_metadata"))
"""The old and the new form of each step. A system implements at least one of each pair."""


class RAGInterface(Generic[M_co]):
    """A system under evaluation (spec 002): subclass it, and implement one form of retrieving and one of generating.

    The old form takes and gives bare texts (`retrieve`, `generate`), the new one values with ids, scores, candidates,
    confidence and metadata (`retrieve_with_metadata`, `generate_with_metadata`). Each has a default in terms of the
    other, so that either may be called whichever is implemented; of two that are implemented, each is used as it is
    written. What goes through a default is the same object, not a copy.

    The ``batch_`` methods are loops over these. A system that answers many questions faster together overrides them;
    a default of theirs prefers what keeps metadata to what is fast.

    A class that implements neither method of a pair is refused when it is made, and so is one that implements the
    old form where a class above it implements the new one, which would answer for it unseen. A base that leaves them
    to its subclasses says so as any abstract class does: ``class Base(RAGInterface, abc.ABC)``. Asked all the same, a
    default that finds nothing but the other default is an error, and never a recursion.

    The type parameter is that of both results' metadata: ``RAGInterface[dict[str, int]]``. A method may promise a
    narrower one. An override that calls its own default must leave the other form to a class above it.

    Raises:
        InterfaceError: When a class is made that implements neither method of a pair, when a method is asked for that
            nothing implements, or when one returns something else than its form does.

    Example:
        >>> class Old(RAGInterface):
        ...     def retrieve(self, query): return ["Water of 80 degrees."]
        ...     def generate(self, query, contexts): return contexts[0]
        >>> Old().retrieve_with_metadata("How hot?")
        RetrievalResult(contexts=['Water of 80 degrees.'], context_ids=None, scores=None, metadata=None)
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if abc.ABC not in cls.__bases__:
            _check_complete(cls)

    def retrieve(self, query: str) -> list[str]:
        """The texts that are found for a question (old form).

        Args:
            query: The question.

        Returns:
            Texts, best first; [] where nothing is found. By default the contexts of `retrieve_with_metadata`: the
            very list.

        Example:
            >>> class New(RAGInterface):
            ...     def retrieve_with_metadata(self, query): return RetrievalResult(["80 degrees."], ["n1"])
            ...     def generate(self, query, contexts): return contexts[0]
            >>> New().retrieve("How hot?")
            ['80 degrees.']
        """
        return _retrieved(self, _other(self, "retrieve", "retrieve_with_metadata")(query)).contexts

    def retrieve_with_metadata(self, query: str) -> RetrievalResult[M_co]:
        """What is found for a question, with ids, scores and metadata (new form).

        Args:
            query: The question.

        Returns:
            The texts, best first, and where they are known their ids, their scores, and metadata of the whole
            question such as sources or times. By default the list of `retrieve`, and None for the rest.
        """
        return _wrapped(self, _other(self, "retrieve_with_metadata", "retrieve")(query), "retrieve")

    def generate(self, query: str, contexts: list[str]) -> str:
        """The answer to a question from texts (old form).

        Args:
            query: The question.
            contexts: The texts, best first: what `retrieve` gave.

        Returns:
            The answer. By default the response of `generate_with_metadata`.
        """
        given = _other(self, "generate", "generate_with_metadata")(query, contexts)
        return _generated(self, given).response

    def generate_with_metadata(self, query: str, contexts: list[str]) -> GenerationResult[M_co]:
        """The answer to a question from texts, with candidates, confidence and metadata (new form).

        Args:
            query: The question.
            contexts: The texts, best first.

        Returns:
            The answer, and where they are known other candidates, a confidence from 0 to 1, and metadata such as
            tokens or seconds. By default the text of `generate`, and None for the rest.
        """
        return _answered(self, _other(self, "generate_with_metadata", "generate")(query, contexts), "generate")

    def batch_retrieve(self, queries: Sequence[str]) -> list[list[str]]:
        """`retrieve` for many questions.

        Args:
            queries: n questions.

        Returns:
            n lists of texts, in the order of the questions. By default those of `batch_retrieve_with_metadata`, if
            that is implemented; else `retrieve` is called for one after the other.

        Raises:
            ConfigError: If the questions are one text.
        """
        _check_queries(queries)
        if not _is_own(self, "batch_retrieve_with_metadata"):
            return [self.retrieve(query) for query in queries]
        results = _as_many(self, "batch_retrieve_with_metadata", queries, self.batch_retrieve_with_metadata(queries))
        return [_retrieved(self, result, "batch_retrieve_with_metadata").contexts for result in results]

    def batch_retrieve_with_metadata(self, queries: Sequence[str]) -> list[RetrievalResult[M_co]]:
        """`retrieve_with_metadata` for many questions.

        Args:
            queries: n questions.

        Returns:
            n results, in the order of the questions. By default `retrieve_with_metadata` is called for one after the
            other; where only the old form is implemented, and `batch_retrieve` is, its lists are wrapped.
        """
        _check_queries(queries)
        if _is_own(self, "retrieve_with_metadata") or not _is_own(self, "batch_retrieve"):
            return [self.retrieve_with_metadata(query) for query in queries]
        lists = _as_many(self, "batch_retrieve", queries, self.batch_retrieve(queries))
        return [_wrapped(self, contexts, "batch_retrieve") for contexts in lists]

    def batch_generate(self, queries: Sequence[str], contexts_list: Sequence[list[str]]) -> list[str]:
        """`generate` for many questions.

        Args:
            queries: n questions.
            contexts_list: n lists of texts: what `batch_retrieve` gave.

        Returns:
            n answers, in the order of the questions. By default those of `batch_generate_with_metadata`, if that is
            implemented; else `generate` is called for one after the other.

        Raises:
            ConfigError: If there are not as many lists as questions.
        """
        pairs = _paired(queries, contexts_list)
        if not _is_own(self, "batch_generate_with_metadata"):
            return [self.generate(query, contexts) for query, contexts in pairs]
        given = self.batch_generate_with_metadata(queries, contexts_list)
        results = _as_many(self, "batch_generate_with_metadata", queries, given)
        return [_generated(self, result, "batch_generate_with_metadata").response for result in results]

    def batch_generate_with_metadata(
        self, queries: Sequence[str], contexts_list: Sequence[list[str]]
    ) -> list[GenerationResult[M_co]]:
        """`generate_with_metadata` for many questions.

        Args:
            queries: n questions.
            contexts_list: n lists of texts.

        Returns:
            n results, in the order of the questions. By default `generate_with_metadata` is called for one after the
            other; where only the old form is implemented, and `batch_generate` is, its answers are wrapped.

        Raises:
            ConfigError: If there are not as many lists as questions.
        """
        pairs = _paired(queries, contexts_list)
        if _is_own(self, "generate_with_metadata") or not _is_own(self, "batch_generate"):
            return [self.generate_with_metadata(query, contexts) for query, contexts in pairs]
        answers = _as_many(self, "batch_generate", queries, self.batch_generate(queries, contexts_list))
        return [_answered(self, answer, "batch_generate") for answer in answers]


def _overrides(cls: type, name: str) -> bool:
    """Whether a class has a method of its own, or of another base, in the place of the interface's default."""
    return getattr(cls, name) is not getattr(RAGInterface, name)


def _is_own(system: RAGInterface[Any], name: str) -> bool:
    return _overrides(type(system), name)


def _check_complete(cls: type) -> None:
    for old, new in PAIRS:
        if not _overrides(cls, old) and not _overrides(cls, new):
            msg = (
                f"{cls.__name__} implements neither {old}() nor {new}(). Implement one of them; a mixin that does goes "
                "before RAGInterface among the bases. A base for other classes names abc.ABC among its own."
            )
            raise InterfaceError(msg)
        if old in vars(cls) and new not in vars(cls) and _overrides(cls, new):
            writer = next(base.__name__ for base in cls.__mro__ if new in vars(base))
            msg = (
                f"{cls.__name__} implements {old}(), and {writer} implements {new}(), which an evaluation asks: yours "
                f"would never be heard. Implement {new}(), or say {new} = RAGInterface.{new}, which asks yours."
            )
            raise InterfaceError(msg)


def _other(system: RAGInterface[Any], default: str, other: str) -> Any:
    """The method that a default asks; an error where that is a default, too, which would ask back for ever."""
    if not _is_own(system, other):
        msg = (
            f"{type(system).__name__}.{default}() is asked of its default, which asks {other}(), and that is not "
            f"implemented either. Implement one of them without calling its default, super().{default}()."
        )
        raise InterfaceError(msg)
    return getattr(system, other)


def _retrieved(system: RAGInterface[Any], given: Any, method: str = "retrieve_with_metadata") -> RetrievalResult[Any]:
    if not isinstance(given, RetrievalResult):
        raise _returned(system, method, given, "a RetrievalResult")
    return given


def _generated(system: RAGInterface[Any], given: Any, method: str = "generate_with_metadata") -> GenerationResult[Any]:
    if not isinstance(given, GenerationResult):
        raise _returned(system, method, given, "a GenerationResult")
    return given


def _wrapped(system: RAGInterface[Any], contexts: Any, method: str) -> RetrievalResult[Any]:
    if not isinstance(contexts, (list, tuple)):
        raise _returned(system, method, contexts, "a list of texts")
    return RetrievalResult(contexts)  # type: ignore[arg-type]  # a tuple does as well, and is not copied


def _answered(system: RAGInterface[Any], answer: Any, method: str) -> GenerationResult[Any]:
    if not isinstance(answer, str):
        raise _returned(system, method, answer, "a text")
    return GenerationResult(answer)


def _as_many(system: RAGInterface[Any], method: str, queries: Sequence[str], given: Any) -> Sequence[Any]:
    if not isinstance(given, (list, tuple)) or len(given) != len(queries):
        raise _returned(system, method, given, f"a list of {len(queries)}, one for each question")
    return given


def _returned(system: RAGInterface[Any], method: str, given: Any, needed: str) -> InterfaceError:
    msg = f"{type(system).__name__}.{method}() returned {given!r:.80} ({type(given).__name__}); return {needed}."
    return InterfaceError(msg)


def _check_queries(queries: Sequence[str]) -> None:
    if isinstance(queries, str):
        msg = f"queries is the text {queries!r:.60}; give a list of questions."
        raise ConfigError(msg)


def _paired(queries: Sequence[str], contexts_list: Sequence[list[str]]) -> list[tuple[str, list[str]]]:
    _check_queries(queries)
    if len(queries) != len(contexts_list):
        msg = f"There are {len(queries)} queries and {len(contexts_list)} lists of contexts; give one list for each."
        raise ConfigError(msg)
    return list(zip(queries, contexts_list, strict=True))


_INSTRUCTIONS = {
    "en": "Answer the question from the passages alone. If they do not answer it, say so.",
    "zh": "只根据下面的资料回答问题。资料中没有答案时，请直接说明。",
}
_LABELS = {"en": ("Passages", "Question"), "zh": ("资料", "问题")}


def passages_prompt(query: str, contexts: Sequence[str]) -> tuple[Message, ...]:
    r"""A plain prompt: the passages, each after its number, then the question; in the question's language.

    Example:
        >>> print(passages_prompt("How hot?", ["80 degrees."])[1].content)
        Passages:
        [1] 80 degrees.
        <BLANKLINE>
        Question: How hot?
    """
    language = spoken("auto", query)
    passages, question = _LABELS[language]
    listed = "\n".join(f"[{number}] {text}" for number, text in enumerate(contexts, start=1))
    colon = "：" if language == "zh" else ": "
    asked = f"{passages}{colon.rstrip()}\n{listed}\n\n{question}{colon}{query}"
    return Message("system", _INSTRUCTIONS[language]), Message("user", asked)


@known_arguments
class RetrieverRAG(RAGInterface[Mapping[str, Any]]):
    """A retriever and a chat model as a system under evaluation.

    Contexts carry the uids of their nodes as ids, and their scores. The metadata of a retrieval say which files the
    contexts are of (``"sources"``) and how long it took (``"retrieval_time"``, seconds); those of an answer name the
    ``"model"``, its tokens (``"prompt_tokens"``, ``"completion_tokens"``, None where it does not tell), its
    ``"finish_reason"`` and the ``"generation_time"`` in seconds.

    Args:
        retriever: A `Retriever`, a `HybridRetriever`, a `RetrievalChain`, any callable
            (query, filters=None, topk=None) -> nodes.
        model: A chat model, or a callable that turns a text into a text. None: only retrieval is evaluated, and asking
            for an answer is an error.
        topk: At most so many contexts; None: as many as the retriever gives by itself.
        options: For the model; with ``n`` above 1 all candidates are in ``multi_responses``, the first is the response.
        prompt: Makes what the model is asked from a question and its contexts.

    Raises:
        ConfigError: If an argument cannot be used as what it is.

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
        retriever: NodeRetriever,
        model: ChatModel | ChatCallable | None = None,
        *,
        topk: int | None = None,
        options: ChatOptions | None = None,
        prompt: Callable[[str, Sequence[str]], Prompt] = passages_prompt,
    ) -> None:
        for name, value in (("retriever", retriever), ("prompt", prompt)):
            if not callable(value):
                msg = f"RetrieverRAG got {name}={value!r:.80}; give something that can be called."
                raise ConfigError(msg)
        self._retriever = retriever
        self._model = None if model is None else as_chat_model(model)
        self._topk = None if topk is None else whole_number("topk", topk, 1)
        self._options = options or ChatOptions()
        self._prompt = prompt

    def retrieve_with_metadata(self, query: str) -> RetrievalResult[Mapping[str, Any]]:
        """Ask the retriever.

        Raises:
            RetrievalError: If it fails, or returns something else than nodes.
        """
        began = time.perf_counter()
        nodes = asked_nodes(self._retriever, query, None, self._topk) if check_query(query) else []
        took_s = time.perf_counter() - began
        metadata = {
            "sources": [node.path for node in nodes],
            "retriever": callable_name(self._retriever),
            "retrieval_time": took_s,
        }
        return RetrievalResult.from_nodes(nodes, metadata)

    def generate_with_metadata(self, query: str, contexts: list[str]) -> GenerationResult[Mapping[str, Any]]:
        """Ask the model.

        Raises:
            ConfigError: If there is no model.
            GenerationError: If it fails.
        """
        if self._model is None:
            msg = (
                "This RetrieverRAG has no model to answer with. Give one, RetrieverRAG(retriever, model), or evaluate "
                "retrieval alone: prepare(records, rag, generate=False)."
            )
            raise ConfigError(msg)
        began = time.perf_counter()
        completion = self._model.chat(self._prompt(query, contexts), self._options)
        took_s = time.perf_counter() - began
        texts = [choice.text for choice in completion.choices]
        usage = completion.usage
        metadata = {
            "model": completion.model or self._model.identity,
            "prompt_tokens": None if usage is None else usage.prompt_tokens,
            "completion_tokens": None if usage is None else usage.completion_tokens,
            "finish_reason": completion.choices[0].finish_reason,
            "generation_time": took_s,
        }
        return GenerationResult(texts[0], texts if len(texts) > 1 else None, metadata=metadata)


@known_arguments
class PipelineRAG(RAGInterface[Mapping[str, Any]]):
    """A `RAGPipeline` as a system under evaluation: what it finds, and what it answers from the contexts it is given.

    Contexts are those that `RAGPipeline.answer` would put into its context, reranked where the pipeline reranks. The
    metadata of a retrieval are the pipeline's (``"query"``, ``"seconds"`` by stage) and ``"sources"``, the files. A
    generation is the very result of the pipeline's generator.

    Args:
        pipeline: The pipeline; one without generator can be evaluated for its retrieval alone.
        top_k: How many hits are asked for; None: as the pipeline's settings say.
        max_tokens: Of the contexts that are built for answers; None: as the pipeline's settings say.

    Raises:
        ConfigError: If an argument cannot be used as what it is.

    Example:
        >>> from lazyrag import Document, RAGPipeline
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea.txt": "Water of 80 degrees."})
        >>> rag = PipelineRAG(RAGPipeline.over(docs, "FineChunk", generator=lambda prompt: "80 degrees [1]."))
        >>> found = rag.retrieve_with_metadata("How hot is the water?")
        >>> rag.generate("How hot is the water?", found.contexts)
        '80 degrees [1].'
    """

    def __init__(self, pipeline: RAGPipeline, *, top_k: int | None = None, max_tokens: int | None = None) -> None:
        if not isinstance(pipeline, RAGPipeline):
            msg = f"PipelineRAG got {pipeline!r:.80}; give a RAGPipeline. For a retriever there is RetrieverRAG."
            raise ConfigError(msg)
        self._pipeline = pipeline
        self._top_k = None if top_k is None else whole_number("top_k", top_k, 1)
        self._max_tokens = None if max_tokens is None else whole_number("max_tokens", max_tokens, 1)

    def retrieve_with_metadata(self, query: str) -> RetrievalResult[Mapping[str, Any]]:
        """Ask the pipeline for its hits.

        Raises:
            RetrievalError: If the retriever or the reranker fails.
        """
        asked = self._pipeline.sync
        found = (asked.retrieve_and_rerank if self._pipeline.reranks else asked.retrieve)(query, self._top_k)
        metadata = {**(found.metadata or {}), "sources": [hit.source for hit in found]}
        return dataclasses.replace(found, metadata=metadata)  # the same lists: nothing is copied

    def generate_with_metadata(self, query: str, contexts: list[str]) -> GenerationResult[Mapping[str, Any]]:
        """Have the pipeline answer from contexts; without any it says that it found nothing.

        Raises:
            ConfigError: If the pipeline has no generator, or the question is blank.
            GenerationError: If the model fails.

        Warns:
            AnswerWarning: For each thing that is wrong with the answer.
        """
        hits = [Hit(str(number), text, math.nan) for number, text in enumerate(contexts, start=1)]
        return self._pipeline.sync.answer_from(hits, self._max_tokens, query=query).generation


_TEXTS = ("user_input", "response", "reference", "persona_name", "query_style", "query_length")
_LISTS = ("retrieved_contexts", "reference_contexts", "multi_responses")
_IDS = ("retrieved_context_ids", "reference_context_ids")


@dataclass(frozen=True, slots=True)
class Sample:
    """One question with what was found, answered and expected: RAGAS's ``SingleTurnSample``, without that package.

    What is not known is None. An empty list says something else: that there is nothing. Lists are held by reference.

    Args:
        user_input: The question.
        retrieved_contexts: The texts that were found, best first.
        reference_contexts: The texts that should be found.
        retrieved_context_ids: The ids of what was found.
        reference_context_ids: The ids of what should be found.
        response: The answer.
        multi_responses: Candidates, where several were asked for.
        reference: The answer that is expected.
        rubrics: What a judge gives points for, by score.
        persona_name: Who asks.
        query_style: How the question is put.
        query_length: How long it is: ``"short"``.

    Raises:
        ConfigError: If a field has another type.

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

    def __post_init__(self) -> None:
        for names, is_right, needed in (
            (_TEXTS, _is_text, "a text"),
            (_LISTS, _is_texts, "a list of texts"),
            (_IDS, _is_ids, "a list of ids: texts or whole numbers"),
            (("rubrics",), _is_rubrics, "a mapping from text to text"),
        ):
            for name in names:
                value = getattr(self, name)
                if value is not None and not is_right(value):
                    msg = f"A sample's {name} is {value!r:.80}; give {needed}, or None where it is not known."
                    raise ConfigError(msg)

    def to_dict(self) -> dict[str, Any]:
        """The fields that are known, by reference; as RAGAS's samples write themselves."""
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}

    def to_ragas(self) -> SingleTurnSample:
        """The same as a sample of the package ragas.

        Raises:
            MissingDependencyError: If ragas is not installed: ``pip install "lazyrag[ragas]"``.
        """
        try:
            from ragas import SingleTurnSample  # seconds, and half a gigabyte of packages
        except ModuleNotFoundError as exc:
            raise missing_package("Sample.to_ragas", exc, "ragas") from exc
        plain = self.to_dict()
        for name in _IDS:
            if name in plain:  # numbers of numpy are none to it
                plain[name] = [one if isinstance(one, str) else int(one) for one in plain[name]]
        return SingleTurnSample(**plain)


FIELDS = tuple(one.name for one in fields(Sample))
"""The twelve fields, in RAGAS's order."""


def to_ragas_dataset(samples: Sequence[Sample]) -> EvaluationDataset:
    """Samples as a data set of the package ragas, for ``ragas.evaluate``.

    Args:
        samples: At least one; RAGAS wants the same fields known in all of them.

    Raises:
        MissingDependencyError: If ragas is not installed: ``pip install "lazyrag[ragas]"``.
        ConfigError: If there is none.
    """
    if not samples:
        msg = "to_ragas_dataset got no sample; give at least one."
        raise ConfigError(msg)
    converted = [sample.to_ragas() for sample in samples]
    from ragas import EvaluationDataset  # there, as the samples have been made

    return EvaluationDataset(samples=converted)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)


def _is_ids(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(
        isinstance(one, (str, numbers.Integral)) and not isinstance(one, bool) for one in value
    )


def _is_rubrics(value: Any) -> bool:
    return isinstance(value, Mapping) and _is_texts([*value, *value.values()])


FOUND = ("retrieved_contexts", "retrieved_context_ids", "response", "multi_responses")
"""What a system gives; a record gives the other fields."""

_OF_RECORDS = tuple(name for name in FIELDS if name not in FOUND)


def prepare(records: Sequence[Mapping[str, Any]], rag: RAGInterface[Any], *, generate: bool = True) -> list[Sample]:
    """Ask a system each record's question, and make a sample of each.

    Everything is asked through the batch methods: first what is found for all questions, then all answers.

    Args:
        records: What is expected, in RAGAS's names: ``user_input``, the question, always; ``reference``,
            ``reference_contexts``, ``reference_context_ids``, ``rubrics``, ``persona_name``, ``query_style`` and
            ``query_length`` where they are known.
        rag: The system. Ids of contexts and candidates that it gives are handed on; what it does not give is None.
        generate: Whether to ask for answers; without, only retrieval can be evaluated.

    Returns:
        A sample for each record, in order.

    Raises:
        ConfigError: If a record has no question, or a field of another name or type; the message says which record.
        InterfaceError: If the system is none, or returns something else than its methods do.

    Example:
        >>> class Tea(RAGInterface):
        ...     def retrieve_with_metadata(self, query): return RetrievalResult(["80 degrees."], ["n1"])
        ...     def generate(self, query, contexts): return contexts[0]
        >>> [sample] = prepare([{"user_input": "How hot?", "reference_context_ids": ["n1"]}], Tea())
        >>> sample.retrieved_context_ids, sample.response, sample.multi_responses
        (['n1'], '80 degrees.', None)
    """
    if not isinstance(rag, RAGInterface):
        msg = f"prepare got the system {rag!r:.80}; give an object of a subclass of RAGInterface."
        raise InterfaceError(msg)
    expected = [_expected(number, record) for number, record in enumerate(records, start=1)]
    queries = [record["user_input"] for record in expected]
    found = _many(
        rag, "batch_retrieve_with_metadata", rag.batch_retrieve_with_metadata(queries), RetrievalResult, queries
    )
    answers: Sequence[GenerationResult[Any] | None] = [None] * len(queries)
    if generate:
        for number, (record, retrieval) in enumerate(zip(expected, found, strict=True), start=1):
            _sample(number, record, retrieval, None)  # what cannot be used is told before any model is paid for
        given = rag.batch_generate_with_metadata(queries, [one.contexts for one in found])
        answers = _many(rag, "batch_generate_with_metadata", given, GenerationResult, queries)
    return [
        _sample(number, record, retrieval, generation)
        for number, (record, retrieval, generation) in enumerate(zip(expected, found, answers, strict=True), start=1)
    ]


def make_sample(
    record: Mapping[str, Any],
    retrieval: RetrievalResult[Any] | None = None,
    generation: GenerationResult[Any] | None = None,
) -> Sample:
    """A sample of results that are at hand.

    Args:
        record: What is expected, see `prepare`.
        retrieval: What was found; None where nobody asked.
        generation: What was answered; None where nobody asked.

    Raises:
        ConfigError: If the record has no question, or a field of another name or type.

    Example:
        >>> make_sample({"user_input": "How hot?"}, RetrievalResult(["80 degrees."])).retrieved_context_ids
    """
    return _sample(1, _expected(1, record), retrieval, generation)


def _expected(number: int, record: Any) -> Mapping[str, Any]:
    if not isinstance(record, Mapping):
        msg = f"Record {number} is {record!r:.80}; give a mapping with the question as 'user_input'."
        raise ConfigError(msg)
    for name in record:
        if name in FOUND:
            msg = f"Record {number} has the field {name!r}, which the system gives. Leave it out, or make a Sample."
            raise ConfigError(msg)
        if name not in _OF_RECORDS:
            msg = f"Record {number} has no field {name!r}. {known_names(str(name), _OF_RECORDS)}"
            raise ConfigError(msg)
    if not isinstance(record.get("user_input"), str):
        msg = f"Record {number} has the question {record.get('user_input')!r:.80}; give a text as 'user_input'."
        raise ConfigError(msg)
    return record


def _sample(
    number: int,
    record: Mapping[str, Any],
    retrieval: RetrievalResult[Any] | None,
    generation: GenerationResult[Any] | None,
) -> Sample:
    try:
        return Sample(
            **record,
            retrieved_contexts=None if retrieval is None else retrieval.contexts,
            retrieved_context_ids=None if retrieval is None else retrieval.context_ids,
            response=None if generation is None else generation.response,
            multi_responses=None if generation is None else generation.multi_responses,
        )
    except ConfigError as exc:
        msg = f"Record {number}: {exc}"
        raise ConfigError(msg) from exc


def _many(rag: object, method: str, given: Any, kind: type[Any], queries: Sequence[str]) -> Sequence[Any]:
    """Results of a batch method, if there is one of the right kind for each question."""
    right = isinstance(given, (list, tuple)) and len(given) == len(queries)
    if not right or not all(isinstance(one, kind) for one in given):
        msg = (
            f"{type(rag).__name__}.{method}() returned {given!r:.80}; return a list of {len(queries)} "
            f"{kind.__name__}s, one for each question."
        )
        raise InterfaceError(msg)
    return given  # type: ignore[no-any-return]  # checked above
