"""`BaseVector` over this package's engine: a data set in a Document of its own, and the view of a Document there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lazyrag.data.fields import DocField, check_value
from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME, check_metadata, copy_value
from lazyrag.document.document import Document as Collection
from lazyrag.errors import ConfigError, UnsupportedError
from lazyrag.interop.dify.base_vector import BaseVector, Field, checked_attributes, checked_documents
from lazyrag.interop.dify.conditions import MetadataCondition, filter_of
from lazyrag.interop.dify.documents import Document
from lazyrag.interop.dify.ranges import checked_threshold, checked_top_k, clipped_cosine, unit_scores
from lazyrag.interop.embedders import embedder_of
from lazyrag.retrieval.hybrid import OVER_SIMILARITY
from lazyrag.retrieval.retriever import Retriever
from lazyrag.validation import check_keywords

_CONTENT = Field.METADATA_KEY.value


class GroupVector(BaseVector):
    """A node group of a Document that you hold, as specification 004 searches one; it is filled by its own methods.

    Args:
        docs: The Document.
        group_name: The node group that is searched.
        dataset_id: The ``dataset_id`` of what is found; the Document's name where it is left out.

    Example:
        >>> docs = Collection()
        >>> _ = docs.add_texts({"a": "green tea", "b": "coffee"})
        >>> [found] = GroupVector(docs, "FineChunk").search_by_full_text("tea", top_k=3)
        >>> found.page_content, found.metadata["score"], found.metadata["source"]
        ('green tea', 1.0, 'a')
    """

    def __init__(self, docs: Collection, group_name: str, dataset_id: str = "") -> None:
        super().__init__(dataset_id or docs.name, [*docs.fields], None)
        self.docs = docs
        self.group_name = group_name

    def create(self, documents: list[Document]) -> None:  # noqa: ARG002  of the interface
        """Not possible: the Document is filled by ``add_files``, ``add_texts`` and ``sync``."""
        raise self._unsupported("create", "docs.add_texts or docs.add_files")

    def delete(self) -> None:
        """Not possible, as `create`."""
        raise self._unsupported("delete", "docs.delete_files")

    def delete_by_ids(self, ids: list[str]) -> None:  # noqa: ARG002  of the interface
        """Not possible, as `create`."""
        raise self._unsupported("delete_by_ids", "docs.delete_files")

    def search_by_vector(
        self, query: str, top_k: int, score_threshold: float | None = None, **kwargs: Any
    ) -> list[Document]:
        """Nodes by their embeddings; a score is the cosine, or 0 where that is below."""
        nodes = _by_vector(
            self.docs, self.group_name, query, top_k, score_threshold, **_search_keywords(self.docs, kwargs)
        )
        return Document.from_nodes(nodes, self.dataset, normalise="none")

    def search_by_full_text(self, query: str, top_k: int, **kwargs: Any) -> list[Document]:
        """Nodes by BM25; a score is the BM25 score divided by the best one."""
        nodes = _by_words(self.docs, self.group_name, query, top_k, **_search_keywords(self.docs, kwargs))
        return Document.from_nodes(nodes, self.dataset, normalise="none")

    def _unsupported(self, method: str, instead: str) -> UnsupportedError:
        return UnsupportedError(f"GroupVector.{method} does not change a Document that you hold. Call {instead} of it.")


class DocumentVector(BaseVector):
    """A data set in a Document of its own, one text for each document, on any of this package's stores.

    Args:
        dataset: The data set's id, or an object with an attribute ``id``.
        attributes: Names of metadata that filters may read, as text; or a mapping from names to `lazyrag.DocField`.
        embeddings: An `Embeddings`, any embedder, or a function from text to vector. None: only full text is searched.
        store_conf: Where it is kept, as `lazyrag.Document` takes it; in memory where it is left out.

    Raises:
        ConfigError: If an argument does not fit.

    Example:
        >>> vector = DocumentVector("teas", ["source"], lambda text: [float("tea" in text), 0.0])
        >>> vector.create([Document("green tea", {"doc_id": "1", "source": "a"})])
        >>> vector.search_by_vector("tea?", 3, filters={"source": "a"})[0].metadata
        {'doc_id': '1', 'source': 'a', 'score': 1.0}
    """

    def __init__(
        self,
        dataset: Any,
        attributes: Sequence[str] | Mapping[str, DocField] = (),
        embeddings: Any = None,
        *,
        store_conf: Mapping[str, Any] | None = None,
    ) -> None:
        fields = checked_attributes(attributes)
        super().__init__(dataset, list(fields), embeddings)
        embed = None if embeddings is None else embedder_of(embeddings)
        self.docs = Collection(name=_dataset_id(dataset), embed=embed, doc_fields=fields, store_conf=store_conf)

    def create(self, documents: list[Document]) -> None:
        """Insert documents; one whose ``doc_id`` is there takes the old one's place.

        Returns when they are found by every reader. One that cannot be embedded is not kept, and what it was to replace
        stays; the others are inserted.

        Raises:
            ConfigError: If a document has no ``doc_id`` of its own, its text is blank, or metadata cannot be kept; then
                nothing is inserted.
            EmbeddingError: If a text has no vector, or one of another length than the data set's.
        """
        by_id = checked_documents(documents)
        if not by_id:
            return
        stored = {doc_id: self._stored(doc_id, one) for doc_id, one in by_id.items()}
        if self.docs.embed_keys:  # before it is filled, so that nothing becomes live without its vector
            Retriever(self.docs, LAZY_ROOT_NAME, "cosine").build()
        texts = {doc_id: one.page_content for doc_id, one in by_id.items()}
        report = self.docs.add_texts(texts, stored)
        failed = {one.path: one.error for one in report.failed if one.path in texts}
        if failed:
            self.docs.delete_files([path for path in failed if path in report.added])
            raise next(iter(failed.values()))

    def search_by_vector(
        self, query: str, top_k: int, score_threshold: float | None = None, **kwargs: Any
    ) -> list[Document]:
        """The documents closest to a query.

        Args:
            query: A text; a blank one finds nothing.
            top_k: At most so many, from 1 to 100.
            score_threshold: The lowest score that is kept, in [0, 1].
            kwargs: ``filters``: a `MetadataCondition` or its JSON, a mapping of fields, or a filter.

        Returns:
            Documents as they were inserted, with the cosine, or 0 where that is below, as ``metadata["score"]``.

        Raises:
            ConfigError: If an argument is out of its range, or the data set has no embeddings.
        """
        nodes = _by_vector(
            self.docs, LAZY_ROOT_NAME, query, top_k, score_threshold, **_search_keywords(self.docs, kwargs)
        )
        return [_restored(node) for node in nodes]

    def search_by_full_text(self, query: str, top_k: int, **kwargs: Any) -> list[Document]:
        """The documents that share words with a query, by BM25; a score is the BM25 score divided by the best one."""
        nodes = _by_words(self.docs, LAZY_ROOT_NAME, query, top_k, **_search_keywords(self.docs, kwargs))
        return [_restored(node) for node in nodes]

    def delete(self) -> None:
        """Delete all documents."""
        self.docs.delete_files([node.path for node in self.docs.get_nodes()])

    def delete_by_ids(self, ids: list[str]) -> None:
        """Delete documents by ``doc_id``; one that is not there is no error."""
        there = {node.path for node in self.docs.get_nodes()}
        self.docs.delete_files([one for one in dict.fromkeys(ids) if one in there])

    def close(self) -> None:
        """Let go of files and connections; twice does no harm."""
        self.docs.close()

    def _stored(self, doc_id: str, document: Document) -> dict[str, Any]:
        """What is kept of a document's metadata: all of it but the score, and beside it what filters read.

        It is checked here, as a Document whose texts all fail to load answers nothing from then on.
        """
        kept = {name: value for name, value in document.metadata.items() if name != "score"}
        fields = {name: kept[name] for name in self.attributes if kept.get(name) is not None}
        try:
            check_metadata(kept)
            for name, value in fields.items():
                check_value(name, self.docs.fields[name], value)
        except ConfigError as exc:
            msg = f"The document {doc_id!r:.80} cannot be kept. {exc}"
            raise ConfigError(msg) from exc
        return {**fields, _CONTENT: kept}


def on_map(dataset: Any, attributes: Any = (), embeddings: Any = None, **options: Any) -> DocumentVector:
    """A data set in memory, or in the file that ``uri`` names."""
    conf = {"segment_store": {"type": "map", "kwargs": options}} if options else None
    return DocumentVector(dataset, attributes, embeddings, store_conf=conf)


def on_milvus(dataset: Any, attributes: Any = (), embeddings: Any = None, **options: Any) -> DocumentVector:
    """A data set in Milvus: ``uri`` and the store's other arguments; ``ledger`` beside a server."""
    return _on_vectors("milvus", dataset, attributes, embeddings, options)


def on_chroma(dataset: Any, attributes: Any = (), embeddings: Any = None, **options: Any) -> DocumentVector:
    """A data set in Chroma: ``dir`` or ``host`` and the store's other arguments; ``ledger`` beside a server."""
    return _on_vectors("chromadb", dataset, attributes, embeddings, options)


def _on_vectors(store: str, dataset: Any, attributes: Any, embeddings: Any, options: dict[str, Any]) -> DocumentVector:
    ledger = {"ledger": options.pop("ledger")} if "ledger" in options else {}
    conf = {"vector_store": {"type": store, "kwargs": options}, **ledger}
    return DocumentVector(dataset, attributes, embeddings, store_conf=conf)


def _by_vector(
    docs: Collection, group: str, query: str, top_k: int, score_threshold: float | None, filters: FilterLike | None
) -> list[DocNode]:
    lowest = checked_threshold(score_threshold)
    nodes = Retriever(docs, group, "cosine", topk=checked_top_k(top_k))(query, filters)
    found = [node.with_score(clipped_cosine(node.score or 0.0)) for node in nodes]
    return [node for node in found if (node.score or 0.0) >= lowest]


def _by_words(docs: Collection, group: str, query: str, top_k: int, filters: FilterLike | None) -> list[DocNode]:
    nodes = Retriever(docs, group, OVER_SIMILARITY, topk=checked_top_k(top_k))(query, filters)
    scores = unit_scores([node.score or 0.0 for node in nodes], "max")
    return [node.with_score(score) for node, score in zip(nodes, scores, strict=True)]


def _search_keywords(docs: Collection, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    check_keywords("The search", _known_keywords, kwargs, skip=0)
    return {"filters": filter_of(kwargs.get("filters"), docs.fields)}


def _known_keywords(*, filters: MetadataCondition | FilterLike | None = None) -> None:
    """The keywords of a search beside those that it names."""


def _restored(node: DocNode) -> Document:
    metadata = copy_value(dict(node.global_metadata.get(_CONTENT, {})))
    return Document(node.text, {**metadata, "score": node.score})


def _dataset_id(dataset: Any) -> str:
    told = dataset if isinstance(dataset, str) else getattr(dataset, "id", None)
    if not isinstance(told, str) or not told.strip():
        msg = f"dataset is {dataset!r:.80}; give the data set's id as a text, or an object that has one."
        raise ConfigError(msg)
    return told
