"""What an evaluation asks of a system, whoever wrote it: spec 002's interface, in its old form and its new one."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, Generic

from lazyrag.data.result import GenerationResult, M_co, RetrievalResult
from lazyrag.errors import ConfigError, InterfaceError

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
