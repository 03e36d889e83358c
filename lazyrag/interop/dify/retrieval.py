"""Specification 004's way out: from a query to documents, and from nodes to the segments that are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.errors import ConfigError, known_names
from lazyrag.interop.dify.documents import (
    Document,
    DocumentSegment,
    MetadataCondition,
    checked_query,
    checked_threshold,
    checked_top_k,
    metadata_of,
    unit_score,
    unit_scores,
)
from lazyrag.interop.dify.reranking import BaseRerankRunner, distinct
from lazyrag.interop.dify.vectors import BaseVector, Vector
from lazyrag.retrieval.hybrid import RetrievalMethod
from lazyrag.validation import known_arguments, known_keywords


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
    """Search a data set: by vectors, by words or both, without doubles, reranked, cut (spec 004, section 8).

    Args:
        vector: The data set.
        query: A question; a blank one finds nothing.
        retrieval_method: A `RetrievalMethod`. Keyword search is full-text search here; `lazyrag.retriever_for` tells
            the two apart.
        top_k: At most so many documents, from 1 to 100. Each search gives as many.
        score_threshold: The lowest score that is kept, in [0, 1]: the reranker's where there is one.
        reranker: Puts what was found in order. Hybrid search needs one: scores of vectors and of words do not compare.
        filters: Which documents may be found.

    Returns:
        Documents with ``metadata["score"]`` in [0, 1], best first.

    Raises:
        ConfigError: If an argument is out of its range or none, or a hybrid search has no reranker.
    """
    if not isinstance(vector, (Vector, BaseVector)):
        msg = (
            f"vector is {vector!r:.80}; give a Vector. A node group of a lazyrag.Document is one by "
            "GroupVector(docs, group_name)."
        )
        raise ConfigError(msg)
    known = [one.value for one in RetrievalMethod]
    if retrieval_method not in known:
        msg = f"The retrieval method is {retrieval_method!r:.80}. {known_names(str(retrieval_method), known)}"
        raise ConfigError(msg)
    method = RetrievalMethod(retrieval_method)
    if method is RetrievalMethod.HYBRID_SEARCH and reranker is None:
        msg = (
            "A hybrid search puts what vectors and words find in one order: give reranker=, such as WeightRerankRunner."
        )
        raise ConfigError(msg)
    limit, lowest = checked_top_k(top_k), checked_threshold(score_threshold)
    if not checked_query(query).strip():
        return []
    keywords = {} if filters is None else {"filters": filters}
    found: list[Document] = []
    if RetrievalMethod.is_support_semantic_search(method):
        found += vector.search_by_vector(query, limit, score_threshold if reranker is None else None, **keywords)
    if method is not RetrievalMethod.SEMANTIC_SEARCH:
        found += vector.search_by_full_text(query, limit, **keywords)
    found = distinct(found)
    if reranker is not None:
        return reranker.run(query, found, score_threshold, limit)
    return [one for one in found if unit_score(one.metadata.get("score")) >= lowest][:limit]


@known_arguments
@dataclass(frozen=True, slots=True)
class RetrievalChildChunk:
    """A child that was found, of a segment that is read.

    Args:
        id: Its uid.
        content: Its text.
        score: In [0, 1]; None where it has none.
        position: Where it stands in its document, from 0.
    """

    id: str
    content: str
    score: float | None = None
    position: int = 0


@known_arguments
@dataclass(frozen=True, slots=True)
class RetrievalSegments:
    r"""A segment that is read, with those of its children that were found (named by spec 004).

    Args:
        segment: What is read.
        child_chunks: Its children that were found, best first; () where it was found itself.
        score: In [0, 1]; that of its best child where children were found.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> docs.create_node_group("line", transform=str.splitlines)
        >>> _ = docs.add_texts({"teas": "green tea\nblack tea"})
        >>> [found] = RetrievalSegments.from_nodes(Retriever(docs, "line", "bm25")("green tea"))
        >>> found.segment.content == "green tea\nblack tea", [child.content for child in found.child_chunks]
        (True, ['green tea', 'black tea'])
    """

    segment: DocumentSegment
    child_chunks: tuple[RetrievalChildChunk, ...] = ()
    score: float | None = None

    @classmethod
    def from_nodes(cls, nodes: Sequence[DocNode], dataset_id: str = "") -> list[RetrievalSegments]:
        """What a retriever over children found, by parent, in the order of their best children.

        A node without a parent, and a whole document, stands for itself. Scores are divided by the best one.

        Raises:
            ConfigError: If a score is below 0, or not finite.
        """
        scores = iter(unit_scores([node.score for node in nodes if node.score is not None], "max"))
        found: dict[str, tuple[DocNode, list[RetrievalChildChunk], float | None]] = {}
        for node in nodes:
            score = None if node.score is None else next(scores)
            parent = None if node.group == LAZY_ROOT_NAME else node.parent
            read = node if parent is None else parent
            _, children, _ = found.setdefault(read.uid, (read, [], score))
            if parent is not None:
                children.append(RetrievalChildChunk(node.uid, node.text, score, max(node.number - 1, 0)))
        return [
            cls(_segment(read, score, dataset_id), tuple(children), score) for read, children, score in found.values()
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
