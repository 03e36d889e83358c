"""Indexes that other programs filled, asked for hits: a collection of Chroma, an index of faiss with its texts."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lazyrag.data.filters import FilterLike
from lazyrag.data.result import Hit
from lazyrag.errors import ConfigError, EmbeddingError, LazyRAGError, RetrievalError, known_names
from lazyrag.indexes.dense import read_faiss_index
from lazyrag.models.concurrency import in_thread
from lazyrag.models.embedding import CheckedEmbedder, as_vector
from lazyrag.models.protocols import is_embedder
from lazyrag.pipeline.search import Found, told_by

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


_TEXTS = ("text", "content", "page_content", "chunk", "chunk_text", "passage")
_FIELD = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_UNSAFE = re.compile(r"[\"'\\\x00-\x1f]")


@dataclass(frozen=True, slots=True)
class MilvusCollection:
    """A collection that another program filled, and which of its fields are what.

    Args:
        client: A ``MilvusClient`` or ``AsyncMilvusClient`` that is connected.
        name: The collection; None for the only one there is.
        text_field: The field with the texts; None for the one that is called as such fields usually are.
        vector_field: The field with the vectors; None for the only one.

    Raises:
        ConfigError: If the client is none.

    Example::

        collection = MilvusCollection(MilvusClient("http://localhost:19530"), "articles", text_field="body")
        pipeline = RAGPipeline(embed, collection)
    """

    client: Any
    name: str | None = None
    text_field: str | None = None
    vector_field: str | None = None

    def __post_init__(self) -> None:
        needed = ("search", "describe_collection", "list_collections", "describe_index", "list_indexes")
        missing = [one for one in needed if not callable(getattr(self.client, one, None))]
        if missing:
            msg = (
                f"milvus_client is {self.client!r:.60}, which has no {missing[0]}(); give a pymilvus.MilvusClient, or "
                "an AsyncMilvusClient of pymilvus 3 (that of 2.5 lacks methods). For what finds nodes: "
                "RAGPipeline(retriever=...)."
            )
            raise ConfigError(msg)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which field of a collection is what."""

    key: str
    text: str
    vector: str
    metric: str
    fields: tuple[str, ...]
    dynamic: bool


class MilvusFinder:
    """Finds hits in one collection by the vector of the question.

    Args:
        embedding_manager: Makes the question's vector: an `Embedder`; a callable from ONE text to a vector, which may
            be asynchronous; or an object with a method for that, ``embed_query`` for example.
        collection: A client, or a `MilvusCollection`.

    Raises:
        ConfigError: If one of the two is not of these kinds. What is not clear about the collection is said at the
            first question, which asks for it.
    """

    def __init__(self, embedding_manager: Any, collection: Any) -> None:
        given = collection if isinstance(collection, MilvusCollection) else MilvusCollection(collection)
        self._embed = query_embedding(embedding_manager)
        self._given = given
        self._collection = given.name
        self._layout: _Layout | None = None

    @property
    def name(self) -> str:
        """The collection's."""
        return self._collection or "milvus"

    async def find(self, query: str, topk: int, filters: FilterLike | None) -> Found:
        """At most ``topk`` hits, best first; equal scores by id.

        Args:
            query: The question.
            topk: How many.
            filters: ``{field: value}`` or ``{field: [values]}``, all of which must hold.

        Raises:
            ConfigError: If the collection, a field of it or a filter is not clear.
            RetrievalError: If Milvus fails, or gives rows without a text.
        """
        if not query.strip():
            return Found([])
        layout = self._layout = self._layout or await self._described()
        vector = await self._embed(query)
        rows = await self._call(
            "search",
            collection_name=self._collection,
            data=[vector],
            anns_field=layout.vector,
            limit=topk,
            filter=_expression(filters, layout),
            output_fields=["*"],
        )
        hits = [_hit(row, layout) for row in rows[0]]
        return Found(sorted(hits, key=lambda hit: (-hit.score, hit.id))[:topk])

    async def _described(self) -> _Layout:
        if self._collection is None:
            names = list(await self._call("list_collections"))
            if len(names) != 1:
                told = known_names("", names)
                msg = f"Milvus has {len(names)} collections; name one: MilvusCollection(client, name). {told}"
                raise ConfigError(msg)
            [self._collection] = names
        told = await self._call("describe_collection", collection_name=self._collection)
        fields = {one["name"]: one for one in told["fields"]}
        text, vector = self._given.text_field, self._given.vector_field
        vectors = [name for name, one in fields.items() if "dim" in (one.get("params") or {})]
        layout = _Layout(
            key=next((name for name, one in fields.items() if one.get("is_primary")), "id"),
            text=_chosen(
                "text_field", text, [*fields], [one for one in _TEXTS if one in fields], dynamic=_dynamic(told)
            ),
            vector=_chosen("vector_field", vector, vectors, vectors, dynamic=False),
            metric="",
            fields=tuple(fields),
            dynamic=_dynamic(told),
        )
        return dataclasses.replace(layout, metric=await self._metric(layout.vector))

    async def _metric(self, vector: str) -> str:
        """What the vectors are compared by: of the index over them, whatever its name is."""
        names = [vector, *await self._call("list_indexes", collection_name=self._collection)]
        for name in dict.fromkeys(names):
            index = await self._call("describe_index", collection_name=self._collection, index_name=name)
            # Where a version does not say which field an index is over, a collection has one index.
            if index and index.get("field_name", vector) == vector and index.get("metric_type"):
                return str(index["metric_type"]).upper()
        msg = f"The collection {self._collection!r} has no index over {vector!r}. Make one: create_index."
        raise ConfigError(msg)

    async def _call(self, method: str, **arguments: Any) -> Any:
        function = getattr(self._given.client, method)
        with told_by(f"Milvus, asked to {method.replace('_', ' ')},"):
            if inspect.iscoroutinefunction(function):
                return await function(**arguments)
            return await in_thread(function, **arguments)


def _chosen(what: str, wanted: str | None, known: Sequence[str], likely: Sequence[str], *, dynamic: bool) -> str:
    """The field that was named, or the one that is meant."""
    if wanted is not None:
        if wanted not in known and not dynamic:
            msg = f"The collection has no field {wanted!r} for {what}. {known_names(wanted, known)}"
            raise ConfigError(msg)
        return wanted
    if len(likely) != 1:
        found = f"{len(likely)} fields may be meant" if likely else "none of its fields is called as usual"
        msg = f"Which field of the collection is it? Give {what}=...; {found}. {known_names('', known)}"
        raise ConfigError(msg)
    return likely[0]


def _dynamic(told: Mapping[str, Any]) -> bool:
    """Whether rows may have fields beyond those of the schema."""
    return bool(told.get("enable_dynamic_field"))


def _expression(filters: FilterLike | None, layout: _Layout) -> str:
    """Filters in Milvus's words: all of ``field in [values]``."""
    if filters is None:
        return ""
    if not isinstance(filters, Mapping):
        msg = f"filters is {filters!r:.60}; for a Milvus collection give {{field: value}} or {{field: [values]}}."
        raise ConfigError(msg)
    parts = []
    for name, value in filters.items():
        if not isinstance(name, str) or not _FIELD.match(name) or not (name in layout.fields or layout.dynamic):
            msg = f"The collection has no field {name!r:.60}. {known_names(str(name), layout.fields)}"
            raise ConfigError(msg)
        values = list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]
        if not values:
            msg = f"The filter on {name!r} has no values; give at least one."
            raise ConfigError(msg)
        parts.append(f"{name} in [{', '.join(_literal(name, one) for one in values)}]")
    return " and ".join(parts)


def _literal(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    # Servers of different versions unescape by different rules, so nothing that would need it is sent.
    if isinstance(value, str) and not _UNSAFE.search(value):
        return f'"{value}"'
    msg = (
        f"The filter on {name!r} has the value {value!r:.60}; a number, True or False, or a text without quotes, "
        "backslashes and control characters can be asked for."
    )
    raise ConfigError(msg)


def _hit(row: Mapping[str, Any], layout: _Layout) -> Hit:
    fields = dict(row.get("entity") or {})
    key = row.get(layout.key, row.get("id"))
    text = fields.pop(layout.text, None)
    if not isinstance(text, str):
        msg = f"The row {key!r} of the collection has {text!r:.40} in {layout.text!r}; a text is needed: text_field=..."
        raise RetrievalError(msg)
    fields.pop(layout.vector, None)
    fields.pop(layout.key, None)
    distance = float(row["distance"])
    return foreign_hit(str(key), text, of_distance(distance) if layout.metric == "L2" else distance, fields)


_TEXT_FIELDS = ("contents", "text", "content")
_KEYS = ("id", "_id", "docid")
_INNER_PRODUCT = 0  # faiss's METRIC_INNER_PRODUCT; everything else is a distance


class ChromaFinder:
    """Finds hits in a collection of Chroma by the vector of the question.

    Args:
        embedding: See `lazyrag.RAGPipeline`; None lets the collection embed the question itself, by the function that
            it was made with.
        collection: A ``chromadb`` collection. chromadb is not imported.

    Raises:
        ConfigError: If one of the two is not of its kind.
    """

    def __init__(self, embedding: Any, collection: Any) -> None:
        if not callable(getattr(collection, "query", None)) or isinstance(collection, type):
            msg = f"A Chroma collection is {collection!r:.60}; give client.get_collection(name)."
            raise ConfigError(msg)
        self._embed = None if embedding is None else query_embedding(embedding)
        self._collection = collection

    @property
    def name(self) -> str:
        """The collection's."""
        return str(getattr(self._collection, "name", "chroma"))

    async def find(self, query: str, topk: int, filters: FilterLike | None) -> Found:
        """At most ``topk`` hits, best first; filters are ``{field: value}`` or ``{field: [values]}``, all must hold.

        Raises:
            ConfigError: If the filters have another form.
            RetrievalError: If Chroma fails, or gives rows without a text.
        """
        if not query.strip():
            return Found([])
        asked = {"query_texts": [query]} if self._embed is None else {"query_embeddings": [await self._embed(query)]}
        where = _where(filters)
        with told_by(f"The Chroma collection {self.name!r}"):
            told = await in_thread(
                self._collection.query,
                **asked,
                n_results=topk,
                where=where,
                include=["documents", "metadatas", "distances"],
            )
        rows = zip(told["ids"][0], told["documents"][0], told["metadatas"][0], told["distances"][0], strict=True)
        hits = [self._hit(*row) for row in rows]
        return Found(sorted(hits, key=lambda hit: (-hit.score, hit.id)))

    def _hit(self, key: str, text: str | None, fields: Mapping[str, Any] | None, distance: float) -> Hit:
        if text is None:
            msg = f"The row {key!r} of the Chroma collection {self.name!r} has no document; only its vector was added."
            raise RetrievalError(msg)
        score = of_distance(distance) if self._space == "l2" else 1 - distance
        return foreign_hit(key, text, score, dict(fields or {}))

    @property
    def _space(self) -> str:
        """How Chroma compares; without a word of it, by squared distances."""
        told = getattr(self._collection, "configuration_json", None) or {}
        inside = told.get("hnsw") or told.get("spann") or {}
        metadata = getattr(self._collection, "metadata", None) or {}
        return str(inside.get("space") or metadata.get("hnsw:space") or "l2")


class FaissFinder:
    """Finds hits in an index of faiss, the texts of which stand in a file of JSON lines.

    Args:
        embedding: See `lazyrag.RAGPipeline`.
        index: The file that ``faiss.write_index`` wrote, or an index of faiss itself.
        documents: The file, or its rows: line n belongs to vector n. Each is an object with its text under
            ``"contents"``, ``"text"`` or ``"content"``; ``"id"`` is its id, else its number from 0; the rest is
            metadata.

    Raises:
        ConfigError: If there are not as many lines as vectors, or a line has no text.
        MissingDependencyError: If the index is a file and faiss is not installed.
    """

    def __init__(
        self, embedding: Any, index: Any, documents: str | os.PathLike[str] | Sequence[Mapping[str, Any]]
    ) -> None:
        self._embed = query_embedding(embedding)
        self._index = read_faiss_index(Path(index)) if isinstance(index, (str, os.PathLike)) else index
        if not callable(getattr(self._index, "search", None)) or not hasattr(self._index, "ntotal"):
            msg = f"A faiss index is {index!r:.60}; give an index, or the file that faiss.write_index wrote."
            raise ConfigError(msg)
        self._hits = _rows(documents)
        if len(self._hits) != self._index.ntotal:
            msg = f"The faiss index has {self._index.ntotal} vectors, and {len(self._hits)} documents were given."
            raise ConfigError(msg)

    @property
    def name(self) -> str:
        """Of what kind it is."""
        return type(self._index).__name__

    async def find(self, query: str, topk: int, filters: FilterLike | None) -> Found:
        """At most ``topk`` hits, best first.

        Raises:
            ConfigError: If there are filters: such an index knows nothing but vectors; or the vector of the question
                is of another length.
        """
        if filters is not None:
            msg = (
                f"filters is {filters!r:.60}; an index of faiss cannot filter. Load the texts into a Document instead."
            )
            raise ConfigError(msg)
        if not query.strip() or not self._hits:
            return Found([])
        vector = np.asarray([await self._embed(query)], np.float32)
        if vector.shape[1] != self._index.d:
            msg = (
                f"The embedding has {vector.shape[1]} numbers, the index {self._index.d}; give the "
                "embedding that it was made with."
            )
            raise ConfigError(msg)
        scores, places = await in_thread(self._index.search, vector, min(topk, len(self._hits)))
        by_product = getattr(self._index, "metric_type", _INNER_PRODUCT) == _INNER_PRODUCT
        found = [
            (float(one) if by_product else of_distance(float(one)), int(at))
            for one, at in zip(scores[0], places[0], strict=True)
            if at >= 0  # graphs say -1 where they find fewer
        ]
        best = sorted(found, key=lambda one: (-one[0], one[1]))
        return Found([_scored(self._hits[at], score) for score, at in best])


def _where(filters: FilterLike | None) -> dict[str, Any] | None:
    if filters is None:
        return None
    if not isinstance(filters, Mapping) or not all(isinstance(name, str) for name in filters):
        msg = f"filters is {filters!r:.60}; for a Chroma collection give {{field: value}} or {{field: [values]}}."
        raise ConfigError(msg)
    parts: list[dict[str, Any]] = []
    for name, value in filters.items():
        values = list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]
        if not values or not all(isinstance(one, (str, int, float)) for one in values):
            msg = f"The filter on {name!r} is {value!r:.60}; give a text, a number, True or False, or a list of such."
            raise ConfigError(msg)
        parts.append({name: {"$in": values}})
    return {"$and": parts} if len(parts) > 1 else parts[0] if parts else None


def _rows(documents: str | os.PathLike[str] | Sequence[Mapping[str, Any]]) -> list[Hit]:
    if isinstance(documents, (str, os.PathLike)):
        told = os.fspath(documents)
        try:
            with Path(documents).open(encoding="utf-8") as file:
                return [_row(number, json.loads(line), told) for number, line in enumerate(file) if line.strip()]
        except (OSError, ValueError) as exc:
            if isinstance(exc, ConfigError):
                raise
            msg = f"The documents of the faiss index at {told} cannot be read: {exc}. One JSON object a line is needed."
            raise ConfigError(msg) from exc
    return [_row(number, row, "documents") for number, row in enumerate(documents)]


def _row(number: int, row: Any, where: str) -> Hit:
    name = next((one for one in _TEXT_FIELDS if isinstance(row, Mapping) and isinstance(row.get(one), str)), None)
    if name is None:
        shown = f"Document {number} (from 0) of {where} is {row!r:.60}"
        msg = f"{shown}; give an object with a text under one of {_TEXT_FIELDS}."
        raise ConfigError(msg)
    key = next((row[one] for one in _KEYS if row.get(one) is not None), number)
    return foreign_hit(str(key), row[name], 0.0, {field: value for field, value in row.items() if field != name})


def _scored(hit: Hit, score: float) -> Hit:
    return Hit(hit.id, hit.text, score, hit.source, hit.document_id, hit.chunk_id, hit.metadata)
