"""The kinds of index that ``Retriever(index=...)`` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lazyrag.errors import ConfigError
from lazyrag.registry import Registry
from lazyrag.retrieval.search import Search, TermSearch, TextSearch, VectorSearch
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

    What another store finds, and by which scores, is its own affair: filters hold, nothing else is promised.

    Raises:
        ConfigError: If the similarity is not answered by a vector store.
    """
    search = similarity.searched(kwargs)
    if not isinstance(search, VectorSearch):
        msg = f"smart_embedding_index is a vector store's own search; {similarity.name!r} does not search one."
        raise ConfigError(msg)
    return replace(search, mode="native")


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
    return replace(search, mode="approximate")


def of_server(similarity: Similarity, kwargs: Mapping[str, Any]) -> Search:
    """``"native"``: a search server's own ranking of texts, by the terms of our analysers.

    Raises:
        ConfigError: If the similarity is not BM25, or one of its parameters is given, which the server has its own of.
    """
    search = similarity.searched(kwargs)
    if not isinstance(search, TermSearch):
        msg = (
            f"index='native' is a search server's own ranking by text, and the similarity {similarity.name!r} is none "
            "by terms. Use similarity='bm25' or 'bm25_chinese', or index='default'."
        )
        raise ConfigError(msg)
    own = sorted(kwargs.keys() - {"analyser"})
    if own:
        msg = f"index='native' got {own[0]!r}, which a search server has its own of. Leave it out, or ask the default."
        raise ConfigError(msg)
    return TextSearch(search.analyser)


indexes.register("ann", of_graphs)
indexes.register("default", exact)
indexes.register("native", of_server)
indexes.register("smart_embedding_index", of_vector_store)
