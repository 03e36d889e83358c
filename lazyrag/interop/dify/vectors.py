"""How specification 004's vector stores are chosen, and what holds for each of them."""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from lazyrag.data.fields import DataType, DocField, check_value
from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME, check_metadata, copy_value
from lazyrag.document.document import Document as Collection
from lazyrag.errors import ConfigError, NotRegisteredError, UnsupportedError
from lazyrag.interop.dify.documents import (
    Document,
    MetadataCondition,
    checked_threshold,
    checked_top_k,
    clipped_cosine,
    filter_of,
    unit_score,
    unit_scores,
)
from lazyrag.interop.embedders import embedder_of
from lazyrag.registry import Registry
from lazyrag.retrieval.hybrid import OVER_SIMILARITY
from lazyrag.retrieval.retriever import Retriever
from lazyrag.validation import check_keywords, known_keywords

if TYPE_CHECKING:
    from typing import Self


class Field(str, enum.Enum):
    """The names under which the system that spec 004 describes writes a document to its vector stores.

    Example:
        >>> Field.CONTENT_KEY.value
        'page_content'
    """

    CONTENT_KEY = "page_content"
    """The text."""
    METADATA_KEY = "metadata"
    """Its metadata."""
    VECTOR = "vector"
    """Its vector."""
    DOC_ID = "metadata.doc_id"
    """The piece's id within the metadata."""
    DOCUMENT_ID = "metadata.document_id"
    """Its document's."""


class BaseVector(abc.ABC):
    """A vector store of one data set (spec 004, section 6), for those who bring one of their own.

    Args:
        dataset: The data set: its id, or an object with an attribute ``id``.
        attributes: Names of metadata by which can be filtered.
        embeddings: What embeds documents and queries.
    """

    def __init__(self, dataset: Any, attributes: Sequence[str], embeddings: Any) -> None:
        self.dataset = dataset
        self.attributes = attributes
        self.embeddings = embeddings

    @abc.abstractmethod
    def create(self, documents: list[Document]) -> None:
        """Insert documents; they are found from now on."""

    @abc.abstractmethod
    def search_by_vector(
        self, query: str, top_k: int, score_threshold: float | None = None, **kwargs: Any
    ) -> list[Document]:
        """At most top_k documents, best first, whose ``metadata["score"]`` is at least the threshold."""

    def search_by_full_text(self, query: str, top_k: int, **kwargs: Any) -> list[Document]:  # noqa: ARG002  for subclasses
        """At most top_k documents by their words, best first.

        Raises:
            UnsupportedError: If the store cannot; one of the specification's version V1 cannot.
        """
        msg = f"{type(self).__name__} does not search full text. Define search_by_full_text, or search by vector."
        raise UnsupportedError(msg)

    @abc.abstractmethod
    def delete(self) -> None:
        """Delete all documents."""

    @abc.abstractmethod
    def delete_by_ids(self, ids: list[str]) -> None:
        """Delete documents by their ``doc_id``; one that is not there is no error."""


def checked_attributes(attributes: Any) -> dict[str, DocField]:
    """The fields that filters may read: as they are declared, and as text where only their names are given.

    Raises:
        ConfigError: If they are none, or one has the name under which all of the metadata is kept.

    Example:
        >>> checked_attributes(["source"])["source"].data_type
        <DataType.VARCHAR: 'varchar'>
    """
    mapping = isinstance(attributes, Mapping)
    if not mapping and not (isinstance(attributes, (list, tuple)) and all(isinstance(one, str) for one in attributes)):
        msg = f"attributes is {attributes!r:.80}; give a list of names, or a mapping from names to DocField."
        raise ConfigError(msg)
    if Field.METADATA_KEY.value in attributes:
        msg = "attributes has the name 'metadata', under which all of the metadata is kept. Choose another name."
        raise ConfigError(msg)
    return dict(attributes) if mapping else {name: DocField(DataType.VARCHAR) for name in attributes}


def checked_documents(documents: Any) -> dict[str, Document]:
    """Documents by the ``doc_id`` that each of them has alone.

    Raises:
        ConfigError: If two have one ``doc_id``, or one has none.

    Example:
        >>> [*checked_documents([Document("tea", {"doc_id": "1"})])]
        ['1']
    """
    if not isinstance(documents, (list, tuple)) or not all(isinstance(one, Document) for one in documents):
        msg = f"documents is {documents!r:.80}; give a list of lazyrag.interop.dify.Document."
        raise ConfigError(msg)
    by_id: dict[str, Document] = {}
    for place, document in enumerate(documents):
        doc_id = document.metadata.get("doc_id")
        if not isinstance(doc_id, str) or not doc_id.strip() or doc_id in by_id:
            msg = (
                f"documents[{place}] has the doc_id {doc_id!r:.80}; each needs one of its own in its metadata, such as "
                "str(uuid.uuid4())."
            )
            raise ConfigError(msg)
        by_id[doc_id] = document
    return by_id


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


class VectorType(str, enum.Enum):
    """The vector stores that have a name here; `register_vector_factory` adds others by any name.

    Example:
        >>> VectorType("milvus") is VectorType.MILVUS
        True
    """

    MAP = "map"
    """This package's own: memory, or a file."""
    CHROMA = "chroma"
    """Chroma, a folder or a server."""
    MILVUS = "milvus"
    """Milvus, a file or a server."""


VectorFactory: TypeAlias = Callable[..., BaseVector]
"""Called as ``factory(dataset, attributes, embeddings, **options)``; a subclass of `BaseVector` is one."""

vector_factories: Registry[VectorFactory] = Registry("vector factory", entry_point_group="lazyrag.vector_factories")
vector_factories.declare("chroma", "lazyrag.interop.dify.vectors:on_chroma")
vector_factories.declare("map", "lazyrag.interop.dify.vectors:on_map")
vector_factories.declare("milvus", "lazyrag.interop.dify.vectors:on_milvus")


@known_keywords
def register_vector_factory(name: str, factory: VectorFactory, *, replace: bool = False) -> VectorFactory:
    """Make a vector store known to `Vector` by a name.

    Args:
        name: Its name.
        factory: A subclass of `BaseVector`, or a function that makes one.
        replace: Take the name over from another one.

    Returns:
        The factory, unchanged.

    Raises:
        AlreadyRegisteredError: If the name is taken and ``replace`` is false.
        ConfigError: If it is no callable.
    """
    if not callable(factory):
        msg = (
            f"register_vector_factory got {factory!r:.80}; give a subclass of BaseVector, or a function that makes one."
        )
        raise ConfigError(msg)
    return vector_factories.register(name, factory, replace=replace)


class Vector:
    """The vector store of a data set, chosen by name (spec 004, section 10). What it gives keeps the invariants.

    Args:
        dataset: See `BaseVector`.
        attributes: See there; the built-in ones also take a mapping from names to `lazyrag.DocField`.
        embeddings: See there; None where full text alone is searched.
        vector_type: A `VectorType`, or the name of a registered factory.
        options: The factory's own: of the built-in ones the arguments of the store, such as ``uri="teas.db"``.

    Raises:
        NotRegisteredError: If the type is unknown.
        ConfigError: If an argument does not fit.

    Example:
        >>> with Vector("teas", embeddings=lambda text: [float("tea" in text), 1.0]) as vector:
        ...     vector.create([Document(text, {"doc_id": text}) for text in ("green tea", "coffee")])
        ...     [document.page_content for document in vector.search_by_vector("tea?", top_k=1)]
        ['green tea']
    """

    def __init__(
        self,
        dataset: Any,
        attributes: Sequence[str] | Mapping[str, Any] = (),
        embeddings: Any = None,
        *,
        vector_type: VectorType | str = VectorType.MAP,
        **options: Any,
    ) -> None:
        store = self.get_vector_factory(vector_type)(dataset, attributes, embeddings, **options)
        if not isinstance(store, BaseVector):
            msg = f"The vector factory {str(vector_type)!r} made {store!r:.80}, which is no BaseVector."
            raise ConfigError(msg)
        self.store = store

    @staticmethod
    def get_vector_factory(vector_type: VectorType | str) -> VectorFactory:
        """What makes a vector store of a type.

        Raises:
            NotRegisteredError: If there is none.
        """
        name = vector_type.value if isinstance(vector_type, VectorType) else vector_type
        try:
            return vector_factories[name]
        except NotRegisteredError as exc:
            msg = f"{exc} For another store define a BaseVector, and name it by register_vector_factory."
            raise NotRegisteredError(msg) from exc

    def create(self, documents: list[Document]) -> None:
        """Insert documents.

        Raises:
            ConfigError: If two have one ``doc_id``, or one has none.
        """
        checked_documents(documents)
        self.store.create(list(documents))

    def search_by_vector(
        self, query: str, top_k: int = 4, score_threshold: float | None = None, **kwargs: Any
    ) -> list[Document]:
        """The documents closest to a query.

        Args:
            query: A text.
            top_k: At most so many, from 1 to 100.
            score_threshold: The lowest ``metadata["score"]`` that is kept, in [0, 1]; None keeps all.
            kwargs: The store's own: of the built-in ones ``filters``.

        Raises:
            ConfigError: If an argument is out of its range, or a custom store's score is.
        """
        lowest = checked_threshold(score_threshold)
        found = self.store.search_by_vector(query, checked_top_k(top_k), score_threshold, **kwargs)
        return [document for document in found[:top_k] if self._score(document) >= lowest]

    def search_by_full_text(self, query: str, top_k: int = 4, **kwargs: Any) -> list[Document]:
        """The documents that share words with a query; see `search_by_vector`.

        Raises:
            UnsupportedError: If the store does not search full text.
        """
        found = self.store.search_by_full_text(query, checked_top_k(top_k), **kwargs)[:top_k]
        for document in found:
            self._score(document)
        return found

    def delete(self) -> None:
        """Delete all documents."""
        self.store.delete()

    def delete_by_ids(self, ids: list[str]) -> None:
        """Delete documents by ``doc_id``; an empty list deletes nothing.

        Raises:
            ConfigError: If it is no list of texts.
        """
        given = list(ids) if isinstance(ids, Iterable) and not isinstance(ids, str) else [None]
        if not all(isinstance(one, str) for one in given):
            msg = f"ids is {ids!r:.80}; give a list of doc_ids, which are texts."
            raise ConfigError(msg)
        if given:
            self.store.delete_by_ids(given)

    def close(self) -> None:
        """Let go of files and connections, where the store has a method ``close``."""
        close = getattr(self.store, "close", None)
        if callable(close):
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _score(self, document: Document) -> float:
        return unit_score(document.metadata.get("score"), f"The score that {type(self.store).__name__} gave")
