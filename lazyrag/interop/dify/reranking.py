"""Specification 004's rerankers: the interface, and how they are chosen."""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from lazyrag.data.node import DocNode
from lazyrag.errors import ConfigError
from lazyrag.interop.dify.documents import (
    Document,
    checked_query,
    checked_threshold,
    checked_top_k,
    clipped_cosine,
    unit_scores,
)
from lazyrag.interop.embedders import TwoWayEmbeddings, embedder_of
from lazyrag.models.embedding import CheckedEmbedder, EmbedCallable
from lazyrag.models.protocols import Embedder, RerankModel
from lazyrag.models.rerank import RerankCallable, as_rerank_model
from lazyrag.ranking.fusion import weighted
from lazyrag.ranking.scores import Normalisation, Weights, normalised
from lazyrag.registry import Registry
from lazyrag.retrieval.similarity import bm25_chinese, cosine
from lazyrag.validation import known_arguments, known_keywords


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
rerank_runners.declare("reranking_model", "lazyrag.interop.dify.reranking:RerankModelRunner")
rerank_runners.declare("weighted_score", "lazyrag.interop.dify.reranking:WeightRerankRunner")


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


@known_arguments
class RerankModelRunner(BaseRerankRunner):
    """Orders documents by a rerank model.

    Args:
        rerank_model_instance: A `lazyrag.RerankModel`, or a function
            ``model(query, documents=[...], top_n=n) -> [(index, score), ...]``.
        normalise: How scores are brought to [0, 1] over the documents of one question, see
            `lazyrag.ranking.scores.normalised`. ``"none"`` is for models whose scores lie there, which makes
            ``score_threshold`` mean the same for every question.

    Raises:
        ConfigError: If it is no model.

    Example:
        >>> by_length = lambda query, documents, top_n: [(i, len(d) / 9) for i, d in enumerate(documents)]
        >>> runner = RerankModelRunner(by_length)
        >>> [found] = runner.run("tea?", [Document("tea"), Document("green tea")], top_n=1)
        >>> found.page_content, found.metadata["score"]
        ('green tea', 1.0)
    """

    def __init__(
        self, rerank_model_instance: RerankModel | RerankCallable, *, normalise: Normalisation = "none"
    ) -> None:
        self.model = as_rerank_model(rerank_model_instance)
        self.normalise: Normalisation = normalise
        normalised([], normalise)

    def run(
        self,
        query: str,
        documents: list[Document],
        score_threshold: float | None = None,
        top_n: int | None = None,
        user: str | None = None,  # noqa: ARG002  of the interface
    ) -> list[Document]:
        """See `BaseRerankRunner.run`; ``user`` is not passed on, as rerank models take none.

        A model is asked nothing about a blank query, or about no documents: the order stays, and every score is 0.

        Raises:
            ConfigError: If an argument is out of its range, or a score is and ``normalise`` is ``"none"``.
            RetrievalError: If the model fails.
        """
        query, limits = checked_query(query), _limits(score_threshold, top_n)
        found = distinct(documents)
        if not found or not query.strip():
            return _kept([(one, 0.0) for one in found], limits)
        ranking = self.model(query, [one.page_content for one in found], None)
        scores = unit_scores([score for _, score in ranking], self.normalise)
        return _kept([(found[place], score) for (place, _), score in zip(ranking, scores, strict=True)], limits)


@known_arguments
class WeightRerankRunner(BaseRerankRunner):
    """Orders documents by ``vector_score * vector_weight + keyword_score * keyword_weight`` (spec 004, section 5).

    The vector score is the cosine of query and text, or 0 where that is below. The keyword score is BM25 over the
    documents alone, divided by the best. What ``metadata["score"]`` says is not read: nobody knows what made it.

    Args:
        weights: How much each counts.
        embeddings: What embeds query and texts, best an `lazyrag.interop.dify.CacheEmbedding` that has seen the texts;
            may be left out where vectors count nothing.

    Raises:
        ConfigError: If there are no weights, or no embeddings for them.

    Example:
        >>> from lazyrag import KeywordSetting, VectorSetting
        >>> weights = Weights(VectorSetting(0.0, "none", "none"), KeywordSetting(1.0))
        >>> found = WeightRerankRunner(weights).run("green tea", [Document("black tea"), Document("green tea")])
        >>> [document.page_content for document in found]
        ['green tea', 'black tea']
    """

    def __init__(self, weights: Weights, embeddings: TwoWayEmbeddings | Embedder | EmbedCallable | None = None) -> None:
        if not isinstance(weights, Weights):
            msg = f"weights is {weights!r:.80}; give Weights(VectorSetting(...), KeywordSetting(...))."
            raise ConfigError(msg)
        if embeddings is None and weights.vector_setting.vector_weight > 0:
            msg = "The vector weight is above 0, and there are no embeddings to compare vectors of. Give embeddings=."
            raise ConfigError(msg)
        self.weights = weights
        self.embedder = (
            None if embeddings is None else CheckedEmbedder(embedder_of(embeddings), "The embeddings of the reranker")
        )

    def run(
        self,
        query: str,
        documents: list[Document],
        score_threshold: float | None = None,
        top_n: int | None = None,
        user: str | None = None,  # noqa: ARG002  of the interface
    ) -> list[Document]:
        """See `BaseRerankRunner.run`. To a blank query nothing is close: the order stays, and every score is 0.

        Raises:
            ConfigError: If an argument is out of its range.
            EmbeddingError: If a text has no vector.
        """
        query, limits = checked_query(query), _limits(score_threshold, top_n)
        found = distinct(documents)
        if not found:
            return []
        vectors = self._vectors(query, [one.page_content for one in found])
        nodes = [
            DocNode(text=one.page_content, uid=str(place), embeddings={"": vector})
            for place, (one, vector) in enumerate(zip(found, vectors[1:], strict=True))
        ]
        by_meaning = [(node, clipped_cosine(cosine(vectors[0], node))) for node in nodes]
        by_words = normalised(bm25_chinese(query, nodes), "max") if query.strip() else []
        pairs = [[(int(node.uid), score) for node, score in ranking] for ranking in (by_meaning, by_words)]
        ranking = weighted(pairs, weights=self.weights.shares, normalise="none")
        return _kept([(found[place], score) for place, score in ranking], limits)

    def _vectors(self, query: str, texts: list[str]) -> list[Any]:
        """The query's vector and the texts'; of no length where they count nothing, or the query is blank."""
        if self.embedder is None or not self.weights.vector_setting.vector_weight or not query.strip():
            return [np.zeros(1, np.float32)] * (len(texts) + 1)
        [asked] = self.embedder.embed([query], input_type="query")
        return [asked, *self.embedder.embed(texts, dimension=len(asked))]


def _limits(score_threshold: float | None, top_n: int | None) -> tuple[float, int | None]:
    """The lowest score and the number of documents that are kept: checked before a model is asked."""
    return checked_threshold(score_threshold), None if top_n is None else checked_top_k(top_n, "top_n")


def _kept(ranking: Sequence[tuple[Document, float]], limits: tuple[float, int | None]) -> list[Document]:
    lowest, most = limits
    return [Document(one.page_content, {**one.metadata, "score": score}) for one, score in ranking if score >= lowest][
        :most
    ]
