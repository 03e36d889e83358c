"""Specification 004's rerankers: the interface, and how they are chosen."""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from lazyrag.errors import ConfigError
from lazyrag.interop.dify.documents import Document
from lazyrag.registry import Registry
from lazyrag.validation import known_keywords


class RerankMode(str, enum.Enum):
    """How found documents are put in order (spec 004).

    Example:
        >>> RerankMode("weighted_score") is RerankMode.WEIGHTED_SCORE
        True
    """

    RERANKING_MODEL = "reranking_model"
    """By a rerank model."""
    WEIGHTED_SCORE = "weighted_score"
    """By the weighted sum of a vector score and a keyword score."""


class BaseRerankRunner(abc.ABC):
    """What puts found documents in order, for those who bring one of their own (spec 004, section 10)."""

    @abc.abstractmethod
    def run(
        self,
        query: str,
        documents: list[Document],
        score_threshold: float | None = None,
        top_n: int | None = None,
        user: str | None = None,
    ) -> list[Document]:
        """Order documents.

        Args:
            query: The question.
            documents: What was found, in any order.
            score_threshold: The lowest score that is kept, in [0, 1]; None keeps all.
            top_n: At most so many, from 1 to 100; None for all.
            user: On whose behalf, for models that account by user.

        Returns:
            Copies with their new ``metadata["score"]`` in [0, 1], best first; each document once.
        """


RerankRunner: TypeAlias = Callable[..., BaseRerankRunner]
"""A subclass of `BaseRerankRunner`, or a function that makes one."""

rerank_runners: Registry[RerankRunner] = Registry("rerank runner", entry_point_group="lazyrag.rerank_runners")
rerank_runners.declare("reranking_model", "lazyrag.interop.dify.rerank_runners:RerankModelRunner")
rerank_runners.declare("weighted_score", "lazyrag.interop.dify.rerank_runners:WeightRerankRunner")


class RerankRunnerFactory:
    """Makes rerankers by name (spec 004, section 10).

    Example:
        >>> runner = RerankRunnerFactory.create_rerank_runner("reranking_model", lambda query, documents, top_n: [])
        >>> type(runner).__name__
        'RerankModelRunner'
    """

    @staticmethod
    def create_rerank_runner(runner_type: RerankMode | str, *args: Any, **kwargs: Any) -> BaseRerankRunner:
        """A reranker.

        Args:
            runner_type: A `RerankMode`, or the name of a registered runner.
            args: The runner's arguments.
            kwargs: Those by name.

        Raises:
            NotRegisteredError: If the type is unknown.
            ConfigError: If the arguments do not fit, or what was registered makes no runner.
        """
        name = runner_type.value if isinstance(runner_type, RerankMode) else runner_type
        runner = rerank_runners[name](*args, **kwargs)
        if not isinstance(runner, BaseRerankRunner):
            msg = f"The rerank runner {name!r} made {runner!r:.80}, which is no BaseRerankRunner."
            raise ConfigError(msg)
        return runner

    @staticmethod
    @known_keywords
    def register(name: str, runner: RerankRunner, *, replace: bool = False) -> RerankRunner:
        """Make a reranker known by a name.

        Args:
            name: Its name.
            runner: A subclass of `BaseRerankRunner`, or a function that makes one.
            replace: Take the name over from another one.

        Returns:
            The runner, unchanged.

        Raises:
            AlreadyRegisteredError: If the name is taken and ``replace`` is false.
            ConfigError: If it is no callable.
        """
        if not callable(runner):
            msg = f"RerankRunnerFactory.register got {runner!r:.80}; give a subclass of BaseRerankRunner."
            raise ConfigError(msg)
        return rerank_runners.register(name, runner, replace=replace)


def distinct(documents: Sequence[Document]) -> list[Document]:
    """Documents without those that come again: by ``doc_id``, and by text and metadata where they have none.

    Raises:
        ConfigError: If one is no document, or its ``doc_id`` is none.

    Example:
        >>> len(distinct([Document("tea", {"doc_id": "1", "score": 0.5}), Document("tea", {"doc_id": "1"})]))
        1
    """
    seen: set[Any] = set()
    kept: list[Document] = []
    for document in documents:
        if not isinstance(document, Document):
            msg = f"documents holds {document!r:.80}; give lazyrag.interop.dify.Document objects."
            raise ConfigError(msg)
        doc_id = document.metadata.get("doc_id")
        try:
            known = doc_id in seen if doc_id is not None else document in kept
        except TypeError as exc:
            msg = f"A document has the doc_id {doc_id!r:.80}; give a text."
            raise ConfigError(msg) from exc
        if known:
            continue
        seen.add(doc_id)
        kept.append(document)
    return kept
