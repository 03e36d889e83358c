"""The kinds of index that ``Retriever(index=...)`` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lazyrag.errors import ConfigError, UnsupportedError
from lazyrag.registry import Registry
from lazyrag.retrieval.search import Search, VectorSearch
from lazyrag.retrieval.similarity import Similarity

indexes: Registry[Callable[[Similarity, Mapping[str, Any]], Search]] = Registry(
    "index", entry_point_group="lazyrag.indexes"
)
"""From a similarity and its keywords to the search that answers it."""


def exact(similarity: Similarity, kwargs: Mapping[str, Any]) -> Search:
    """``"default"``: exact, by the similarity's own index or, without one, node by node."""
    return similarity.searched(kwargs)


def of_vector_store(similarity: Similarity, kwargs: Mapping[str, Any]) -> Search:
    """``"smart_embedding_index"``: the vector store's own search as it comes; exact in the ``map`` store.

    Raises:
        ConfigError: If the similarity is not answered by a vector store.
    """
    search = similarity.searched(kwargs)
    if not isinstance(search, VectorSearch):
        msg = f"smart_embedding_index is a vector store's own search; {similarity.name!r} does not search one."
        raise ConfigError(msg)
    return search


def of_graphs(similarity: Similarity, kwargs: Mapping[str, Any]) -> Search:
    """``"ann"``: approximate, by graphs over the vectors; faster than exact from some hundred thousand nodes on.

    Raises:
        ConfigError: If the similarity is not answered by a vector store.
    """
    search = similarity.searched(kwargs)
    if not isinstance(search, VectorSearch):
        msg = (
            f"index='ann' searches embeddings approximately, by cosine; the similarity {similarity.name!r} does not "
            "search a vector store. Use similarity='cosine', or index='default'."
        )
        raise ConfigError(msg)
    return replace(search, approximate=True)


def of_server(similarity: Similarity, kwargs: Mapping[str, Any]) -> Search:  # noqa: ARG001  the signature of all
    """``"native"``: a search server's own ranking.

    Raises:
        UnsupportedError: No store of this release has one.
    """
    msg = "index='native' is a search server's own ranking; the map store has none. Use index='default'."
    raise UnsupportedError(msg, store="map")


indexes.register("ann", of_graphs)
indexes.register("default", exact)
indexes.register("native", of_server)
indexes.register("smart_embedding_index", of_vector_store)
