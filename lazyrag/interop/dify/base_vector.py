"""Specification 004's interface of vector stores."""

from __future__ import annotations

import abc
import enum
from collections.abc import Mapping, Sequence
from typing import Any

from lazyrag.data.fields import DataType, DocField
from lazyrag.errors import ConfigError, UnsupportedError
from lazyrag.interop.dify.documents import Document


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
