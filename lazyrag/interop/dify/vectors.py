"""Vector stores of specification 004: the base class, those over this package's Documents, and
`Vector`.
"""

from __future__ import annotations

import abc
import enum
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from lazyrag.data.fields import DataType, DocField, check_value
from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME, check_metadata, copy_value, root_uid
from lazyrag.document.document import Document as Collection
from lazyrag.errors import ConfigError, NotRegisteredError, UnsupportedError
from lazyrag.interop.dify.documents import (
    MAX_TOP_K,
    Document,
    MetadataCondition,
    clipped_cosine,
    filter_of,
    unit_score,
    unit_scores,
    validate_threshold,
)
from lazyrag.interop.frameworks import embedder_of
from lazyrag.registry import Registry
from lazyrag.retrieval.hybrid import OVER_SIMILARITY
from lazyrag.retrieval.retriever import Retriever
from lazyrag.transforms.base import NodeTransform
from lazyrag.types import Closable, JsonObject, Keywords
from lazyrag.validation import check_keywords, is_list_of, require, validate_integer


class Field(str, enum.Enum):
    """Names of a document's fields in the vector stores of the system that spec 004 describes.

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
    """Base class of vector stores, each of one data set (spec 004, section 6).

    Args:
        dataset: The data set: its id, or an object with an attribute ``id``.
        attributes: Names of metadata to filter by.
        embeddings: Embeds documents and queries.
    """

    def __init__(self, dataset: Any, attributes: Sequence[str], embeddings: Any) -> None:
        self.dataset = dataset
        self.attributes = attributes
        self.embeddings = embeddings

    @abc.abstractmethod
    def create(self, documents: list[Document]) -> None:
        """Insert documents. They are searchable when this returns."""

    @abc.abstractmethod
    def search_by_vector(
        self, query: str, top_k: int, score_threshold: float | None = None, **kwargs: Any
    ) -> list[Document]:
        """Return at most top_k documents, best first, whose ``metadata["score"]`` reaches the
        threshold.
        """

    def search_by_full_text(
        self,
        query: str,  # noqa: ARG002  for subclasses
        top_k: int,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> list[Document]:
        """Return at most top_k documents by full-text search, best first.

        Raises:
            UnsupportedError: If the store has none, such as those of the specification's version
                V1.
        """
        name = type(self).__name__
        raise UnsupportedError(
            f"{name} does not search full text. Define search_by_full_text, or search by vector."
        )

    @abc.abstractmethod
    def delete(self) -> None:
        """Delete all documents."""

    @abc.abstractmethod
    def delete_by_ids(self, ids: list[str]) -> None:
        """Delete documents by ``doc_id``; unknown ids are ignored."""


def attribute_fields(attributes: Any) -> dict[str, DocField]:
    """Return the fields to filter by; names without a declaration become text fields.

    Raises:
        ConfigError: If they are invalid, or one has the name under which the complete metadata are
            stored.

    Example:
        >>> attribute_fields(["source"])["source"].data_type
        <DataType.VARCHAR: 'varchar'>
    """
    is_valid = isinstance(attributes, Mapping) or is_list_of(attributes, str)
    require(
        is_valid, "attributes", attributes, "a list of names, or a mapping from names to DocField"
    )
    for name in {Field.METADATA_KEY.value, "children"}.intersection(attributes):
        raise ConfigError(f"attributes has the reserved name {name!r}. Choose another name.")
    if isinstance(attributes, Mapping):
        return dict(attributes)
    return {name: DocField(DataType.VARCHAR) for name in attributes}


def documents_by_id(documents: Any, parent: str | None = None) -> dict[str, Document]:
    """Return documents by their ``doc_id``.

    Args:
        documents: The documents.
        parent: The ``doc_id`` of the document that they are the children of.

    Raises:
        ConfigError: If two have one ``doc_id``, one has none or a blank text, or a child has
            children.

    Example:
        >>> [*documents_by_id([Document("tea", {"doc_id": "1"})])]
        ['1']
    """
    name = "documents" if parent is None else f"children of {parent!r:.80}"
    require(
        is_list_of(documents, Document), name, documents, "a list of lazyrag.interop.dify.Document"
    )
    by_id = {}
    for number, document in enumerate(documents):
        this = f"documents[{number}]" if parent is None else f"child {number} of {parent!r:.80}"
        doc_id = document.metadata.get("doc_id")
        text = document.page_content
        is_valid = isinstance(doc_id, str) and doc_id.strip() != "" and doc_id not in by_id
        require(is_valid, f"doc_id of {this}", doc_id, "a unique text such as str(uuid.uuid4())")
        if not text.strip():
            raise ConfigError(f"page_content of {this} must not be blank; got {text!r:.80}.")
        if parent is not None and document.children:
            raise ConfigError(
                f"{this} must have no children; add them to the children of {parent!r:.80}."
            )
        by_id[doc_id] = document
        documents_by_id(document.children, doc_id)
    return by_id


_CONTENT = Field.METADATA_KEY.value
_CHILDREN = "children"


class _Children(NodeTransform):
    """The children that a stored document brings, or its text."""

    identity = "lazyrag.interop.dify children/1"

    def transform(self, node: DocNode) -> Any:
        children = node.metadata.get(_CHILDREN)
        return [DocNode(**copy_value(child)) for child in children] if children else node.get_text()


class _CollectionVector(BaseVector):
    """A vector store over a node group of a Document."""

    def __init__(
        self, docs: Collection, group_name: str, dataset: Any, embeddings: Any = None
    ) -> None:
        super().__init__(dataset, [*docs.reader.fields], embeddings)
        self.docs = docs
        self.group_name = group_name

    def search_by_vector(
        self, query: str, top_k: int, score_threshold: float | None = None, **kwargs: Any
    ) -> list[Document]:
        """Search by vectors.

        Args:
            query: A text; a blank one finds nothing.
            top_k: Maximum number of documents, from 1 to 100.
            score_threshold: The lowest score to keep, in [0, 1].
            kwargs: ``filters``: a `MetadataCondition` or its JSON, a mapping of fields, or a
                filter.

        Returns:
            Documents with the cosine, at least 0, as ``metadata["score"]``.

        Raises:
            ConfigError: If an argument is invalid, or there are no embeddings.
        """
        lowest = validate_threshold(score_threshold)
        nodes = self._search("cosine", query, top_k, kwargs)
        scored = [node.with_score(clipped_cosine(node.score or 0.0)) for node in nodes]
        return self._documents([node for node in scored if (node.score or 0.0) >= lowest])

    def search_by_full_text(self, query: str, top_k: int, **kwargs: Any) -> list[Document]:
        """Search by BM25; scores are divided by the best one. See `search_by_vector`."""
        nodes = self._search(OVER_SIMILARITY, query, top_k, kwargs)
        scores = unit_scores([node.score or 0.0 for node in nodes], "max")
        return self._documents(
            [node.with_score(score) for node, score in zip(nodes, scores, strict=True)]
        )

    def _search(self, similarity: str, query: str, top_k: int, kwargs: Keywords) -> list[DocNode]:
        check_keywords("The search", _search_keywords, kwargs, skip=0)
        filters = filter_of(kwargs.get("filters"), self.docs.reader.fields)
        return self._retrieve(
            similarity, query, validate_integer("top_k", top_k, 1, MAX_TOP_K), filters
        )

    def _retrieve(
        self, similarity: str, query: str, topk: int, filters: FilterLike | None
    ) -> list[DocNode]:
        return list(Retriever(self.docs, self.group_name, similarity, topk=topk)(query, filters))

    @abc.abstractmethod
    def _documents(self, nodes: list[DocNode]) -> list[Document]: ...


def _search_keywords(*, filters: MetadataCondition | FilterLike | None = None) -> None:
    """The additional keywords of a search."""


class GroupVector(_CollectionVector):
    """A node group of a Document as a read-only vector store; add documents with the Document's own
    methods.

    Args:
        docs: The Document.
        group_name: The node group to search.
        dataset_id: The ``dataset_id`` of found documents; by default the Document's name.

    Example:
        >>> docs = Collection()
        >>> _ = docs.add_texts({"a": "green tea", "b": "coffee"})
        >>> [found] = GroupVector(docs, "FineChunk").search_by_full_text("tea", top_k=3)
        >>> found.page_content, found.metadata["score"], found.metadata["source"]
        ('green tea', 1.0, 'a')
    """

    def __init__(self, docs: Collection, group_name: str, dataset_id: str = "") -> None:
        super().__init__(docs, group_name, dataset_id or docs.name)

    def create(self, documents: list[Document]) -> None:  # noqa: ARG002  of the interface
        """Unsupported: use the Document's ``add_files``, ``add_texts`` and ``sync``."""
        raise self._unsupported("create", "docs.add_texts or docs.add_files")

    def delete(self) -> None:
        """Unsupported: use the Document's ``delete_files``."""
        raise self._unsupported("delete", "docs.delete_files")

    def delete_by_ids(self, ids: list[str]) -> None:  # noqa: ARG002  of the interface
        """Unsupported: use the Document's ``delete_files``."""
        raise self._unsupported("delete_by_ids", "docs.delete_files")

    def _documents(self, nodes: list[DocNode]) -> list[Document]:
        return Document.from_nodes(nodes, self.dataset, normalise="none")

    def _unsupported(self, method: str, instead: str) -> UnsupportedError:
        return UnsupportedError(
            f"GroupVector.{method} is not supported. Call {instead} of the Document."
        )


class DocumentVector(_CollectionVector):
    """A data set in a Document of its own, one text for each document, in any of this package's
    stores.

    Documents with `Document.children` are searched by them; results are the parents, with the
    children that were found.

    Args:
        dataset: The data set's id, or an object with an attribute ``id``.
        attributes: Names of metadata to filter by, as text; or a mapping from names to
            `lazyrag.DocField`.
        embeddings: An `Embeddings`, any embedder, or a function from text to vector. None: only
            full-text search.
        store_conf: See `lazyrag.Document`; by default in memory.

    Raises:
        ConfigError: If an argument is invalid.

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
        fields = attribute_fields(attributes)
        embed = None if embeddings is None else embedder_of(embeddings)
        docs = Collection(
            name=_dataset_id(dataset), embed=embed, doc_fields=fields, store_conf=store_conf
        )
        docs.create_node_group(_CHILDREN, _Children)
        has_children = any(group.name == _CHILDREN for group in docs.status().groups)
        super().__init__(docs, _CHILDREN if has_children else LAZY_ROOT_NAME, dataset, embeddings)
        self.attributes = list(fields)

    def create(self, documents: list[Document]) -> None:
        """Insert documents, replacing those of the same ``doc_id``. They are searchable when this
        returns.

        If a document cannot be embedded, it is not inserted and its previous version stays; the
        others are inserted.

        Raises:
            ConfigError: If a document has no unique ``doc_id``, its text is blank, or metadata
                cannot be stored; then nothing is inserted.
            EmbeddingError: If a text has no vector, or one of another length than the data set's.
        """
        by_id = documents_by_id(documents)
        if not by_id:
            return
        stored = {doc_id: self._stored(doc_id, document) for doc_id, document in by_id.items()}
        if any(document.children for document in by_id.values()):
            self.group_name = _CHILDREN
        # so that nothing becomes live without its vector
        if self.docs.reader.embed_keys or self.group_name == _CHILDREN:
            self.docs.activate_group(self.group_name, embed_keys=self.docs.reader.embed_keys)
        texts = {doc_id: document.page_content for doc_id, document in by_id.items()}
        report = self.docs.add_texts(texts, stored)
        failed = [failure for failure in report.failed if failure.path in texts]
        if failed:
            self.docs.delete_files(
                [failure.path for failure in failed if failure.path in report.added]
            )
            raise failed[0].error

    def delete(self) -> None:
        """Delete all documents."""
        self.docs.delete_files([node.path for node in self.docs.get_nodes()])

    def delete_by_ids(self, ids: list[str]) -> None:
        """Delete documents by ``doc_id``, with their children; one that is not there is no
        error.
        """
        present = self.docs.get_nodes(document_ids=[root_uid(doc_id) for doc_id in ids])
        self.docs.delete_files([node.path for node in present])

    def close(self) -> None:
        """Close files and connections. Idempotent."""
        self.docs.close()

    def _retrieve(
        self, similarity: str, query: str, topk: int, filters: FilterLike | None
    ) -> list[DocNode]:
        # several children may have one parent
        depth = topk if self.group_name == LAZY_ROOT_NAME else 4 * topk
        while True:
            nodes = super()._retrieve(similarity, query, depth, filters)
            best = [*dict.fromkeys(node.document_id for node in nodes)][:topk]
            if len(best) == topk or len(nodes) < depth:
                return [node for node in nodes if node.document_id in best]
            depth *= 4

    def _documents(self, nodes: list[DocNode]) -> list[Document]:
        parents = self.docs.find(LAZY_ROOT_NAME)(nodes)
        documents = {
            node.uid: Document(node.text, {**_content(node), "score": node.score})
            for node in parents
        }
        for node in nodes:
            if node.group == _CHILDREN and node.metadata and node.document_id in documents:
                parent = documents[node.document_id]
                metadata = {**parent.metadata, **_content(node), "score": node.score}
                parent.children.append(Document(node.text, metadata))
        return [*documents.values()]

    def _stored(self, doc_id: str, document: Document) -> JsonObject:
        """The stored metadata of a document: all but the score, the fields to filter by, and the
        children.

        They are validated here, since a Document whose texts all fail to load raises from then on.
        """
        metadata = {name: value for name, value in document.metadata.items() if name != "score"}
        fields = {
            name: metadata[name] for name in self.attributes if metadata.get(name) is not None
        }
        try:
            check_metadata(metadata)
            for name, value in fields.items():
                check_value(name, self.docs.reader.fields[name], value)
        except ConfigError as exc:
            raise ConfigError(f"The document {doc_id!r:.80} cannot be stored. {exc}") from exc
        children = [
            {"text": child.page_content, "metadata": self._stored(doc_id, child)}
            for child in document.children
        ]
        return {**fields, _CONTENT: metadata, **({_CHILDREN: children} if children else {})}


def on_map(
    dataset: Any, attributes: Any = (), embeddings: Any = None, **options: Any
) -> DocumentVector:
    """Make a data set in memory, or in the file ``uri``."""
    conf = {"segment_store": {"type": "map", "kwargs": options}} if options else None
    return DocumentVector(dataset, attributes, embeddings, store_conf=conf)


def _on_vectors(
    store: str, dataset: Any, attributes: Any = (), embeddings: Any = None, **options: Any
) -> DocumentVector:
    ledger = {"ledger": options.pop("ledger")} if "ledger" in options else {}
    conf = {"vector_store": {"type": store, "kwargs": options}, **ledger}
    return DocumentVector(dataset, attributes, embeddings, store_conf=conf)


on_milvus = functools.partial(_on_vectors, "milvus")
"""Makes a data set in Milvus: ``uri`` and the store's other arguments; with a server also
``ledger``."""
on_chroma = functools.partial(_on_vectors, "chromadb")
"""Makes a data set in Chroma: ``dir`` or ``host`` and the store's arguments; with a server also
``ledger``."""


def _content(node: DocNode) -> JsonObject:
    return copy_value(dict(node.metadata.get(_CONTENT, {})))


def _dataset_id(dataset: Any) -> str:
    identifier = dataset if isinstance(dataset, str) else getattr(dataset, "id", None)
    is_valid = isinstance(identifier, str) and identifier.strip() != ""
    require(is_valid, "dataset", dataset, "the data set's id, or an object with an attribute id")
    return identifier  # type: ignore[return-value]  # validated above


class VectorType(str, enum.Enum):
    """Names of the built-in vector stores; add others by `register_vector_factory`.

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
"""Called as ``factory(dataset, attributes, embeddings, **options)``; a subclass of `BaseVector` is
one."""

vector_factories: Registry[VectorFactory] = Registry(
    "vector factory", entry_point_group="lazyrag.vector_factories"
)
vector_factories.declare("chroma", "lazyrag.interop.dify.vectors:on_chroma")
vector_factories.declare("map", "lazyrag.interop.dify.vectors:on_map")
vector_factories.declare("milvus", "lazyrag.interop.dify.vectors:on_milvus")


def register_vector_factory(
    name: str, factory: VectorFactory, *, replace: bool = False
) -> VectorFactory:
    """Register a vector store for `Vector`.

    Args:
        name: Its name.
        factory: A subclass of `BaseVector`, or a function that returns an instance.
        replace: Replace another factory of the same name.

    Returns:
        The factory, unchanged.

    Raises:
        AlreadyRegisteredError: If the name is taken and ``replace`` is False.
        ConfigError: If it is not callable.
    """
    require(
        callable(factory),
        "factory",
        factory,
        "a subclass of BaseVector, or a function that returns an instance",
    )
    return vector_factories.register(name, factory, replace=replace)


class Vector(Closable):
    """Vector store of a data set, selected by name (spec 004, section 10). It validates arguments
    and results.

    Args:
        dataset: See `BaseVector`.
        attributes: See there; the built-in stores also take a mapping from names to
            `lazyrag.DocField`.
        embeddings: See there; None: only full-text search.
        vector_type: A `VectorType`, or the name of a registered factory.
        options: Options of the factory; for the built-in ones the store's arguments, such as
            ``uri="teas.db"``.

    Raises:
        NotRegisteredError: If the type is unknown.
        ConfigError: If an argument is invalid.

    Example:
        >>> with Vector("teas", embeddings=lambda text: [float("tea" in text), 1.0]) as vector:
        ...     vector.create([Document("tea", {"doc_id": "1"}), Document("soup", {"doc_id": "2"})])
        ...     [document] = vector.search_by_vector("tea?", top_k=1)
        >>> document.page_content
        'tea'
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
        require(
            isinstance(store, BaseVector),
            f"The result of {str(vector_type)!r}",
            store,
            "a BaseVector",
        )
        self.store = store

    @staticmethod
    def get_vector_factory(vector_type: VectorType | str) -> VectorFactory:
        """Return the factory of a type of vector store.

        Raises:
            NotRegisteredError: If there is none.
        """
        name = vector_type.value if isinstance(vector_type, VectorType) else vector_type
        try:
            return vector_factories[name]
        except NotRegisteredError as exc:
            raise NotRegisteredError(
                f"{exc} Register other stores by register_vector_factory."
            ) from exc

    def create(self, documents: list[Document]) -> None:
        """Insert documents.

        Raises:
            ConfigError: If two have one ``doc_id``, or one has none.
        """
        documents_by_id(documents)
        self.store.create(list(documents))

    def search_by_vector(
        self, query: str, top_k: int = 4, score_threshold: float | None = None, **kwargs: Any
    ) -> list[Document]:
        """Search documents by vectors.

        Args:
            query: A text.
            top_k: Maximum number of documents, from 1 to 100.
            score_threshold: The lowest ``metadata["score"]`` to keep, in [0, 1]; None: all.
            kwargs: The store's own keywords; the built-in ones take ``filters``.

        Raises:
            ConfigError: If an argument is invalid, or a custom store's score is outside [0, 1].
        """
        lowest = validate_threshold(score_threshold)
        limit = validate_integer("top_k", top_k, 1, MAX_TOP_K)
        documents = self.store.search_by_vector(query, limit, score_threshold, **kwargs)
        return [document for document in documents[:top_k] if self._score(document) >= lowest]

    def search_by_full_text(self, query: str, top_k: int = 4, **kwargs: Any) -> list[Document]:
        """Search documents by full text; see `search_by_vector`.

        Raises:
            UnsupportedError: If the store has no full-text search.
        """
        documents = self.store.search_by_full_text(
            query, validate_integer("top_k", top_k, 1, MAX_TOP_K), **kwargs
        )[:top_k]
        for document in documents:
            self._score(document)
        return documents

    def delete(self) -> None:
        """Delete all documents."""
        self.store.delete()

    def delete_by_ids(self, ids: list[str]) -> None:
        """Delete documents by ``doc_id``; an empty list deletes nothing.

        Raises:
            ConfigError: If the ids are not a list of strings.
        """
        doc_ids = list(ids) if isinstance(ids, Iterable) and not isinstance(ids, str) else ids
        require(is_list_of(doc_ids, str), "ids", ids, "a list of doc_ids, which are strings")
        if doc_ids:
            self.store.delete_by_ids(doc_ids)

    def close(self) -> None:
        """Close files and connections, if the store has a method ``close``."""
        close = getattr(self.store, "close", None)
        if callable(close):
            close()

    def _score(self, document: Document) -> float:
        return unit_score(
            document.metadata.get("score"), f"The score that {type(self.store).__name__} gave"
        )
