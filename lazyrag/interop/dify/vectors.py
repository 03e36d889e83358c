"""How specification 004's vector stores are chosen, and what holds for each of them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from lazyrag.errors import ConfigError, NotRegisteredError
from lazyrag.interop.dify.base_vector import BaseVector, checked_documents
from lazyrag.interop.dify.documents import Document
from lazyrag.interop.dify.ranges import checked_threshold, checked_top_k, unit_score
from lazyrag.registry import Registry
from lazyrag.validation import known_keywords

if TYPE_CHECKING:
    from typing import Self


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
vector_factories.declare("chroma", "lazyrag.interop.dify.document_vector:on_chroma")
vector_factories.declare("map", "lazyrag.interop.dify.document_vector:on_map")
vector_factories.declare("milvus", "lazyrag.interop.dify.document_vector:on_milvus")


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
