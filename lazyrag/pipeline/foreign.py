"""What indexes that other programs filled have in common: the vector of a question, and their rows as hits."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from lazyrag.data.result import Hit
from lazyrag.errors import ConfigError, EmbeddingError, LazyRAGError
from lazyrag.models.embedding import CheckedEmbedder, as_vector
from lazyrag.models.protocol import is_embedder
from lazyrag.models.threads import in_thread

_SOURCES = ("source", "file_name", "path", "file", "url", "title")
_DOCUMENTS = ("document_id", "doc_id", "file_id")
_CHUNKS = ("chunk_id", "chunk_index", "number", "position")
_QUERY_METHODS = ("embed_query", "aembed_query", "embed_text", "encode_query", "encode", "embed")


def foreign_hit(key: str, text: str, score: float, fields: Mapping[str, Any]) -> Hit:
    """A row of another program's index; source, document and number from the fields that are usually called so.

    Example:
        >>> foreign_hit("7", "Tea.", 0.5, {"title": "Leaves"}).source
        'Leaves'
    """
    source, document, chunk = (_first(fields, names) for names in (_SOURCES, _DOCUMENTS, _CHUNKS))
    return Hit(
        id=key,
        text=text,
        score=score,
        source="" if source is None else str(source),
        document_id="" if document is None else str(document),
        chunk_id=chunk if isinstance(chunk, int) else 0,
        metadata=fields,
    )


def of_distance(distance: float) -> float:
    """The score of a squared distance: 1.0 for the same vector, towards 0 far away.

    Example:
        >>> of_distance(0.0), of_distance(1.0)
        (1.0, 0.5)
    """
    return 1 / (1 + distance)


def query_embedding(manager: Any) -> Callable[[str], Awaitable[list[float]]]:
    """How to make the vector of a question.

    Args:
        manager: An `Embedder`; a callable from ONE text to a vector, which may be asynchronous; or an object with a
            method for that, ``embed_query`` for example.

    Raises:
        ConfigError: If it is none of these.
    """
    if is_embedder(manager):
        embedder = CheckedEmbedder(manager, "The embedding manager")

        async def embedded(query: str) -> list[float]:
            return [float(one) for one in (await in_thread(embedder.embed, [query], input_type="query"))[0]]

        return embedded
    method = next((one for one in _QUERY_METHODS if callable(getattr(manager, one, None))), None)
    function = manager if method is None else getattr(manager, method)
    if not callable(function) or isinstance(manager, type):
        msg = (
            f"embedding_manager is {manager!r:.60}; give an Embedder, a callable from one text to a vector, or an "
            f"object with one of {', '.join(_QUERY_METHODS)}."
        )
        raise ConfigError(msg)

    async def called(query: str) -> list[float]:
        try:
            value = function(query) if _awaits(function) else await in_thread(function, query)
            value = await value if inspect.isawaitable(value) else value
            vector = as_vector(value)
        except LazyRAGError:
            raise
        except Exception as exc:
            msg = f"The embedding manager raised {type(exc).__name__} for a question: {exc}."
            raise EmbeddingError(msg) from exc
        if isinstance(vector, dict):
            msg = "The embedding manager gave a sparse vector; the search of a collection needs a dense one."
            raise EmbeddingError(msg)
        return [float(one) for one in vector]

    return called


def _awaits(function: Any) -> bool:
    called = function if inspect.isroutine(function) else function.__call__
    return inspect.iscoroutinefunction(called)


def _first(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)
