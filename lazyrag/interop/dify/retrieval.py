"""Retrieval of specification 004: rerankers, `retrieve`, and found nodes as segments with their
children.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.errors import ConfigError
from lazyrag.interop.dify.documents import (
    MAX_TOP_K,
    Document,
    DocumentSegment,
    MetadataCondition,
    clipped_cosine,
    metadata_of,
    unit_score,
    unit_scores,
    validate_threshold,
)
from lazyrag.interop.dify.vectors import BaseVector, Vector
from lazyrag.interop.frameworks import TwoWayEmbeddings, embedder_of
from lazyrag.models.embedding import CheckedEmbedder, EmbedCallable
from lazyrag.models.protocols import Embedder, RerankModel
from lazyrag.models.rerank import RerankCallable, as_rerank_model
from lazyrag.ranking.fusion import Normalisation, Weights, normalised, weighted
from lazyrag.registry import Registry
from lazyrag.retrieval.hybrid import RetrievalMethod
from lazyrag.retrieval.similarity import bm25_chinese, cosine
from lazyrag.types import PlaceRanking
from lazyrag.validation import (
    known_keywords,
    require,
    validate_choice,
    validate_integer,
    validate_string,
)


class RerankMode(str, enum.Enum):
    """Kinds of reranking (spec 004).

    Example:
        >>> RerankMode("weighted_score") is RerankMode.WEIGHTED_SCORE
        True
    """

    RERANKING_MODEL = "reranking_model"
    """By a rerank model."""
    WEIGHTED_SCORE = "weighted_score"
    """By the weighted sum of a vector score and a keyword score."""


class BaseRerankRunner(abc.ABC):
    """Base class of rerankers of documents (spec 004, section 10)."""

    @abc.abstractmethod
    def run(
        self,
        query: str,
        documents: list[Document],
        score_threshold: float | None = None,
        top_n: int | None = None,
        user: str | None = None,
    ) -> list[Document]:
        """Rerank documents.

        Args:
            query: The query.
            documents: Found documents, in any order.
            score_threshold: The lowest score to keep, in [0, 1]; None: all.
            top_n: Maximum number of documents, from 1 to 100; None: all.
            user: The user, for models that account by user.

        Returns:
            Copies with their new ``metadata["score"]`` in [0, 1], best first; each document once.
        """


RerankRunner: TypeAlias = Callable[..., BaseRerankRunner]
"""A subclass of `BaseRerankRunner`, or a function that returns an instance."""

rerank_runners: Registry[RerankRunner] = Registry(
    "rerank runner", entry_point_group="lazyrag.rerank_runners"
)
rerank_runners.declare("reranking_model", "lazyrag.interop.dify.retrieval:RerankModelRunner")
rerank_runners.declare("weighted_score", "lazyrag.interop.dify.retrieval:WeightRerankRunner")


class RerankRunnerFactory:
    """Makes rerankers by name (spec 004, section 10).

    Example:
        >>> model = lambda query, documents, top_n: []
        >>> runner = RerankRunnerFactory.create_rerank_runner("reranking_model", model)
        >>> type(runner).__name__
        'RerankModelRunner'
    """

    @staticmethod
    def create_rerank_runner(
        runner_type: RerankMode | str, *args: Any, **kwargs: Any
    ) -> BaseRerankRunner:
        """Make a reranker.

        Args:
            runner_type: A `RerankMode`, or the name of a registered runner.
            args: The runner's arguments.
            kwargs: The runner's keyword arguments.

        Raises:
            NotRegisteredError: If the type is unknown.
            ConfigError: If the arguments are invalid, or the registered function returns no runner.
        """
        name = runner_type.value if isinstance(runner_type, RerankMode) else runner_type
        runner = rerank_runners[name](*args, **kwargs)
        require(
            isinstance(runner, BaseRerankRunner),
            f"The result of {name!r}",
            runner,
            "a BaseRerankRunner",
        )
        return runner

    @staticmethod
    def register(name: str, runner: RerankRunner, *, replace: bool = False) -> RerankRunner:
        """Register a reranker.

        Args:
            name: Its name.
            runner: A subclass of `BaseRerankRunner`, or a function that returns an instance.
            replace: Replace another runner of the same name.

        Returns:
            The runner, unchanged.

        Raises:
            AlreadyRegisteredError: If the name is taken and ``replace`` is False.
            ConfigError: If it is not callable.
        """
        require(callable(runner), "runner", runner, "a subclass of BaseRerankRunner")
        return rerank_runners.register(name, runner, replace=replace)


def distinct(documents: Sequence[Document]) -> list[Document]:
    """Remove duplicates: by ``doc_id``, or by text and metadata without one.

    Raises:
        ConfigError: If one is not a `Document`, or its ``doc_id`` cannot be hashed.

    Example:
        >>> documents = [Document("tea", {"doc_id": "1", "score": score}) for score in (0.5, 0.4)]
        >>> len(distinct(documents))
        1
    """
    seen = set()
    unique = []
    for document in documents:
        require(
            isinstance(document, Document),
            "documents",
            document,
            "lazyrag.interop.dify.Document objects",
        )
        doc_id = document.metadata.get("doc_id")
        try:
            is_duplicate = doc_id in seen if doc_id is not None else document in unique
        except TypeError as exc:
            raise ConfigError(f"doc_id must be a string; got {doc_id!r:.80}.") from exc
        if not is_duplicate:
            seen.add(doc_id)
            unique.append(document)
    return unique


class _ScoringRunner(BaseRerankRunner):
    """Scores documents by their texts, and keeps the best."""

    def run(
        self,
        query: str,
        documents: list[Document],
        score_threshold: float | None = None,
        top_n: int | None = None,
        user: str | None = None,  # noqa: ARG002  of the interface
    ) -> list[Document]:
        """See `BaseRerankRunner.run`; ``user`` is ignored, since models take none.

        For a blank query or without documents no model is called: the order stays, and every score
        is 0.

        Raises:
            ConfigError: If an argument is invalid, or a score is outside [0, 1].
            EmbeddingError: If a text has no vector.
            RetrievalError: If the model fails.
        """
        validate_string("query", query)
        lowest = validate_threshold(score_threshold)
        most = None if top_n is None else validate_integer("top_n", top_n, 1, MAX_TOP_K)
        candidates = distinct(documents)
        if not candidates:
            return []
        ranking = self._rank(query, [document.page_content for document in candidates])
        return [candidates[at].with_score(score) for at, score in ranking if score >= lowest][:most]

    @abc.abstractmethod
    def _rank(self, query: str, texts: list[str]) -> PlaceRanking: ...


class RerankModelRunner(_ScoringRunner):
    """Reranks documents by a rerank model.

    Args:
        rerank_model_instance: A `lazyrag.models.RerankModel`, or a function
            ``model(query, documents=[...], top_n=n) -> [(index, score), ...]``.
        normalise: Normalisation of the scores of one query to [0, 1], see
            `lazyrag.ranking.fusion.normalised`. ``"none"`` is for models whose scores are in [0,
            1]; then ``score_threshold`` means the same for every query.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> def by_length(query, documents, top_n):
        ...     return [(number, len(text) / 9) for number, text in enumerate(documents)]
        >>> runner = RerankModelRunner(by_length)
        >>> [found] = runner.run("tea?", [Document("tea"), Document("green tea")], top_n=1)
        >>> found.page_content, found.metadata["score"]
        ('green tea', 1.0)
    """

    def __init__(
        self,
        rerank_model_instance: RerankModel | RerankCallable,
        *,
        normalise: Normalisation = "none",
    ) -> None:
        self.model = as_rerank_model(rerank_model_instance)
        self.normalise: Normalisation = normalise
        normalised([], normalise)  # validates the name

    def _rank(self, query: str, texts: list[str]) -> PlaceRanking:
        if not query.strip():
            return [(at, 0.0) for at in range(len(texts))]
        ranking = self.model(query, texts, None)
        scores = unit_scores([score for _, score in ranking], self.normalise)
        return [(at, score) for (at, _), score in zip(ranking, scores, strict=True)]


class WeightRerankRunner(_ScoringRunner):
    """Reranks documents by ``vector_score * vector_weight + keyword_score * keyword_weight`` (spec
    004, section 5).

    The vector score is the cosine of query and text, at least 0. The keyword score is BM25 over the
    documents alone, divided by the best one. Previous scores are not used.

    Args:
        weights: The weights.
        embeddings: Embeds query and texts; best an `lazyrag.interop.dify.CacheEmbedding` that has
            the texts. Optional if the vector weight is 0.

    Raises:
        ConfigError: If the weights are invalid, or there are no embeddings for them.

    Example:
        >>> from lazyrag.ranking import KeywordSetting, VectorSetting
        >>> weights = Weights(VectorSetting(0.0, "none", "none"), KeywordSetting(1.0))
        >>> documents = [Document("black tea"), Document("green tea")]
        >>> ranked = WeightRerankRunner(weights).run("green tea", documents)
        >>> [document.page_content for document in ranked]
        ['green tea', 'black tea']
    """

    def __init__(
        self,
        weights: Weights,
        embeddings: TwoWayEmbeddings | Embedder | EmbedCallable | None = None,
    ) -> None:
        is_weights = isinstance(weights, Weights)
        require(is_weights, "weights", weights, "Weights(VectorSetting(...), KeywordSetting(...))")
        self.weights = weights
        self.embedder: CheckedEmbedder | None = None
        if embeddings is not None:
            self.embedder = CheckedEmbedder(
                embedder_of(embeddings), "The embeddings of the reranker"
            )
        elif weights.vector_setting.vector_weight > 0:
            raise ConfigError(
                "The vector weight is above 0, and there are no embeddings. Pass embeddings=..."
            )

    def _rank(self, query: str, texts: list[str]) -> PlaceRanking:
        vectors = self._vectors(query, texts)
        nodes = [
            DocNode(text=text, uid=str(at), embeddings={"": vector})
            for at, (text, vector) in enumerate(zip(texts, vectors[1:], strict=True))
        ]
        by_vector = [(int(node.uid), clipped_cosine(cosine(vectors[0], node))) for node in nodes]
        by_keyword = []
        if query.strip():
            scored = normalised(bm25_chinese(query, nodes), "max")
            by_keyword = [(int(node.uid), score) for node, score in scored]
        return weighted([by_vector, by_keyword], weights=self.weights.shares, normalise="none")

    def _vectors(self, query: str, texts: list[str]) -> list[Any]:
        """Vectors of the query and the texts; zeros if they do not count, or the query is blank."""
        if (
            self.embedder is None
            or not self.weights.vector_setting.vector_weight
            or not query.strip()
        ):
            return [np.zeros(1, np.float32)] * (len(texts) + 1)
        [vector] = self.embedder.embed([query], input_type="query")
        return [vector, *self.embedder.embed(texts, dimension=len(vector))]


@known_keywords
def retrieve(
    vector: Vector | BaseVector,
    query: str,
    retrieval_method: RetrievalMethod | str = RetrievalMethod.SEMANTIC_SEARCH,
    top_k: int = 4,
    score_threshold: float | None = None,
    *,
    reranker: BaseRerankRunner | None = None,
    filters: MetadataCondition | FilterLike | None = None,
) -> list[Document]:
    """Search a data set by vectors, keywords or both; deduplicate, rerank and cut the result (spec
    004, section 8).

    Args:
        vector: The data set.
        query: The query; a blank one finds nothing.
        retrieval_method: A `RetrievalMethod`. Keyword search is full-text search here;
            `lazyrag.retrieval.retriever_for` distinguishes them.
        top_k: Maximum number of documents, from 1 to 100, also of each search.
        score_threshold: The lowest score to keep, in [0, 1]: the reranker's if there is one.
        reranker: Required for hybrid search, since scores of vector and keyword search cannot be
            compared.
        filters: A filter on the documents.

    Returns:
        Documents with ``metadata["score"]`` in [0, 1], best first. A parent stands once, with the
        children that were found; rerankers read the parent's text.

    Raises:
        ConfigError: If an argument is invalid, or a hybrid search has no reranker.
    """
    hint = "For a node group of a lazyrag.Document use GroupVector(docs, group_name)."
    require(isinstance(vector, (Vector, BaseVector)), "vector", vector, "a Vector", hint)
    methods = [method.value for method in RetrievalMethod]
    method = RetrievalMethod(validate_choice("retrieval_method", retrieval_method, methods))
    if method is RetrievalMethod.HYBRID_SEARCH and reranker is None:
        raise ConfigError(
            "A hybrid search needs a reranker. Pass reranker=..., such as WeightRerankRunner."
        )
    limit = validate_integer("top_k", top_k, 1, MAX_TOP_K)
    lowest = validate_threshold(score_threshold)
    validate_string("query", query)
    if not query.strip():
        return []
    keywords = {} if filters is None else {"filters": filters}
    documents = []
    if RetrievalMethod.is_support_semantic_search(method):
        documents += vector.search_by_vector(
            query, limit, score_threshold if reranker is None else None, **keywords
        )
    if method is not RetrievalMethod.SEMANTIC_SEARCH:
        documents += vector.search_by_full_text(query, limit, **keywords)
    documents = distinct(documents)
    if reranker is not None:
        return reranker.run(query, documents, score_threshold, limit)
    scores = [unit_score(document.metadata.get("score")) for document in documents]
    pairs = zip(documents, scores, strict=True)
    return [document for document, score in pairs if score >= lowest][:limit]


@dataclass(frozen=True, slots=True)
class RetrievalChildChunk:
    """A found child of a segment.

    Args:
        id: Its uid.
        content: Its text.
        score: In [0, 1], or None.
        position: Its position in the document, from 0.
    """

    id: str
    content: str
    score: float | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class RetrievalSegments:
    r"""A segment to read with its found children (named by spec 004).

    Args:
        segment: The segment.
        child_chunks: Its found children, best first; () if it was found itself.
        score: In [0, 1]; that of its best child if children were found.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> docs.create_node_group("line", transform=str.splitlines)
        >>> _ = docs.add_texts({"teas": "green tea\nblack tea"})
        >>> nodes = Retriever(docs, "line", "bm25")("green tea")
        >>> [segments] = RetrievalSegments.from_nodes(nodes)
        >>> segments.segment.content
        'green tea\nblack tea'
        >>> [child.content for child in segments.child_chunks]
        ['green tea', 'black tea']
    """

    segment: DocumentSegment
    child_chunks: tuple[RetrievalChildChunk, ...] = ()
    score: float | None = None

    @classmethod
    def from_nodes(cls, nodes: Sequence[DocNode], dataset_id: str = "") -> list[RetrievalSegments]:
        """Group the nodes that a retriever over children found by parent, in the order of their
        best children.

        A node without a parent and a complete document are their own segments. Scores are divided
        by the best one.

        Raises:
            ConfigError: If a score is below 0, or not finite.
        """
        scores = iter(unit_scores([node.score for node in nodes if node.score is not None], "max"))
        segments: dict[str, tuple[DocNode, list[RetrievalChildChunk], float | None]] = {}
        for node in nodes:
            score = None if node.score is None else next(scores)
            parent = None if node.group == LAZY_ROOT_NAME else node.parent
            read = node if parent is None else parent
            _, children, _ = segments.setdefault(read.uid, (read, [], score))
            if parent is not None:
                children.append(
                    RetrievalChildChunk(node.uid, node.text, score, max(node.number - 1, 0))
                )
        return [
            cls(_segment(read, score, dataset_id), tuple(children), score)
            for read, children, score in segments.values()
        ]


def _segment(node: DocNode, score: float | None, dataset_id: str) -> DocumentSegment:
    metadata = metadata_of(node.with_score(score), dataset_id)
    return DocumentSegment(
        id=node.uid,
        dataset_id=dataset_id,
        document_id=node.document_id,
        content=node.text,
        position=max(node.number - 1, 0),
        score=score,
        metadata={name: value for name, value in metadata.items() if name != "score"},
    )
