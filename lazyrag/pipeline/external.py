"""Search in indexes that other programs filled: Milvus and Chroma collections, OpenSearch indexes,
faiss indexes with their texts.
"""

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
from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit
from lazyrag.errors import ConfigError, EmbeddingError, RetrievalError, errors_of, known_names
from lazyrag.indexes.dense import read_faiss_index
from lazyrag.models.concurrency import in_thread
from lazyrag.models.embedding import CheckedEmbedder, as_vector
from lazyrag.models.protocols import is_embedder
from lazyrag.pipeline.search import RetrievedItems
from lazyrag.types import JsonMapping, JsonObject, Metadata, PathLike
from lazyrag.validation import require, validate_integer, validate_text, validate_texts

_SOURCE_FIELDS = ("source", "file_name", "path", "file", "url", "title")
_DOCUMENT_FIELDS = ("document_id", "doc_id", "file_id")
_CHUNK_FIELDS = ("chunk_id", "chunk_index", "number", "position")
_QUERY_METHODS = ("embed_query", "aembed_query", "embed_text", "encode_query", "encode", "embed")


def foreign_hit(key: str, text: str, score: float, fields: Metadata) -> Hit:
    """Make a hit of a row of another program's index; source, document and chunk number come from
    the usual fields.

    Example:
        >>> foreign_hit("7", "Tea.", 0.5, {"title": "Leaves"}).source
        'Leaves'
    """
    source = _first_value(fields, _SOURCE_FIELDS)
    document = _first_value(fields, _DOCUMENT_FIELDS)
    chunk = _first_value(fields, _CHUNK_FIELDS)
    number = chunk if isinstance(chunk, int) else 0
    return Hit(key, text, score, str(source), str(document), number, fields)


def _first_value(fields: Metadata, names: Sequence[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), "")


def distance_score(distance: float) -> float:
    """Convert a squared distance to a score: 1.0 for the same vector, towards 0 far away.

    Example:
        >>> distance_score(0.0), distance_score(1.0)
        (1.0, 0.5)
    """
    return 1 / (1 + distance)


def query_embedding(manager: Any) -> Callable[[str], Awaitable[list[float]]]:
    """Make a coroutine function that embeds queries.

    Args:
        manager: An `Embedder`; a callable from ONE text to a vector, which may be asynchronous; or
            an object with such a method, for example ``embed_query``.

    Raises:
        ConfigError: If it is none of these.
    """
    if is_embedder(manager):
        embedder = CheckedEmbedder(manager, "The embedding manager")

        async def embed(query: str) -> list[float]:
            return [
                float(number)
                for number in (await in_thread(embedder.embed, [query], input_type="query"))[0]
            ]

        return embed
    method = next((name for name in _QUERY_METHODS if callable(getattr(manager, name, None))), None)
    function = manager if method is None else getattr(manager, method)
    expected = (
        "an Embedder, a callable from one text to a vector, or an object with"
        f" {', '.join(_QUERY_METHODS)}"
    )
    require(
        callable(function) and not isinstance(manager, type), "embedding_manager", manager, expected
    )

    async def call(query: str) -> list[float]:
        with errors_of("The embedding manager", EmbeddingError):
            vector = as_vector(await _call(function, query))
        if isinstance(vector, dict):
            raise EmbeddingError(
                "The embedding manager returned a sparse vector; collections need a dense one."
            )
        return [float(number) for number in vector]

    return call


async def _call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Await a coroutine function; run other callables in a thread."""
    called = function if inspect.isroutine(function) else function.__call__
    if inspect.iscoroutinefunction(called):
        return await function(*args, **kwargs)
    returned = await in_thread(function, *args, **kwargs)
    return await returned if inspect.isawaitable(returned) else returned


def _filter_values(filters: FilterLike | None, where: str) -> dict[str, list[Any]]:
    """The values that each field may have."""
    is_mapping = isinstance(filters, Mapping) and all(isinstance(name, str) for name in filters)
    require(
        filters is None or is_mapping,
        "filters",
        filters,
        f"{{field: value}} or {{field: [values]}} for {where}",
    )
    values = {}
    for name, value in filters.items() if isinstance(filters, Mapping) else ():
        values[name] = list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]
        require(
            bool(values[name]), f"The filter on {name!r}", value, "a list of at least one value"
        )
    return values


def _best_first(hits: list[Hit]) -> list[Hit]:
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))


# Milvus

_MILVUS_METHODS = (
    "search",
    "describe_collection",
    "list_collections",
    "describe_index",
    "list_indexes",
)
_TEXT_FIELDS = ("text", "content", "page_content", "chunk", "chunk_text", "passage")
_FIELD = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_OPENSEARCH_TOPK = 6
_UNSAFE = re.compile(r"[\"'\\\x00-\x1f]")


@dataclass(frozen=True, slots=True)
class MilvusCollection:
    """A Milvus collection that another program filled, and the roles of its fields.

    Args:
        client: A connected ``MilvusClient`` or ``AsyncMilvusClient``.
        name: The collection; None if there is only one.
        text_field: The field with the texts; None for the one with a usual name.
        vector_field: The field with the vectors; None if there is only one.

    Raises:
        ConfigError: If the client is not a Milvus client.

    Example::

        collection = MilvusCollection(MilvusClient("http://localhost:19530"), "articles",
        text_field="body") pipeline = RAGPipeline(embed, collection)
    """

    client: Any
    name: str | None = None
    text_field: str | None = None
    vector_field: str | None = None

    def __post_init__(self) -> None:
        missing = next(
            (name for name in _MILVUS_METHODS if not callable(getattr(self.client, name, None))),
            None,
        )
        expected = "a MilvusClient of pymilvus, or an AsyncMilvusClient of pymilvus 3"
        hint = f"It has no {missing}(). For other retrievers: RAGPipeline(retriever=...)."
        require(missing is None, "milvus_client", self.client, expected, hint)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The roles of a collection's fields."""

    key: str
    text: str
    vector: str
    metric: str
    fields: tuple[str, ...]
    is_dynamic: bool  # rows may have fields beyond the schema


class MilvusFinder:
    """Searches a Milvus collection by the vector of the query.

    Args:
        embedding_manager: Embeds queries: an `Embedder`; a callable from ONE text to a vector,
            which may be asynchronous; or an object with such a method, for example ``embed_query``.
        collection: A client, or a `MilvusCollection`.

    Raises:
        ConfigError: If an argument is invalid. The collection itself is inspected by the first
            query.
    """

    def __init__(self, embedding_manager: Any, collection: Any) -> None:
        if not isinstance(collection, MilvusCollection):
            collection = MilvusCollection(collection)
        self._embed = query_embedding(embedding_manager)
        self._settings = collection
        self._collection = collection.name
        self._layout: _Layout | None = None

    @property
    def name(self) -> str:
        """Name of the collection."""
        return self._collection or "milvus"

    async def find(self, query: str, topk: int, filters: FilterLike | None) -> RetrievedItems:
        """Return at most ``topk`` hits, best first; equal scores by id.

        Args:
            query: The query.
            topk: Maximum number of hits.
            filters: ``{field: value}`` or ``{field: [values]}``, all of which must match.

        Raises:
            ConfigError: If the collection, one of its fields or a filter is ambiguous or unknown.
            RetrievalError: If Milvus fails, or returns rows without a text.
        """
        layout = self._layout = self._layout or await self._inspect()
        rows = await self._request(
            "search",
            collection_name=self._collection,
            data=[await self._embed(query)],
            anns_field=layout.vector,
            limit=topk,
            filter=_milvus_filter(filters, layout),
            output_fields=["*"],
        )
        return RetrievedItems(_best_first([_milvus_hit(row, layout) for row in rows[0]])[:topk])

    async def _inspect(self) -> _Layout:
        """Read the collection's schema."""
        if self._collection is None:
            names = list(await self._request("list_collections"))
            if len(names) != 1:
                msg = (
                    f"Milvus has {len(names)} collections; name one: MilvusCollection(client,"
                    " name)."
                )
                raise ConfigError(f"{msg} {known_names('', names)}")
            [self._collection] = names
        schema = await self._request("describe_collection", collection_name=self._collection)
        fields = {field["name"]: field for field in schema["fields"]}
        is_dynamic = bool(schema.get("enable_dynamic_field"))
        texts = [name for name in _TEXT_FIELDS if name in fields]
        vectors = [name for name, field in fields.items() if "dim" in (field.get("params") or {})]
        text = _choose(
            "text_field", self._settings.text_field, [*fields], texts, is_dynamic=is_dynamic
        )
        vector = _choose(
            "vector_field", self._settings.vector_field, vectors, vectors, is_dynamic=False
        )
        key = next((name for name, field in fields.items() if field.get("is_primary")), "id")
        return _Layout(key, text, vector, await self._metric(vector), tuple(fields), is_dynamic)

    async def _metric(self, vector: str) -> str:
        """The metric of the index over the vectors; the index may have any name."""
        names = [vector, *await self._request("list_indexes", collection_name=self._collection)]
        for name in dict.fromkeys(names):
            index = await self._request(
                "describe_index", collection_name=self._collection, index_name=name
            )
            # Versions that do not name the field of an index allow one index a collection.
            if index and index.get("field_name", vector) == vector and index.get("metric_type"):
                return str(index["metric_type"]).upper()
        raise ConfigError(
            f"The collection {self._collection!r} has no index over {vector!r}. Call create_index."
        )

    async def _request(self, method: str, **arguments: Any) -> Any:
        with errors_of(f"The Milvus method {method}", RetrievalError):
            return await _call(getattr(self._settings.client, method), **arguments)


def _choose(
    role: str, name: str | None, names: Sequence[str], likely: Sequence[str], *, is_dynamic: bool
) -> str:
    """The field that was given, or the only likely one."""
    if name is not None:
        if name not in names and not is_dynamic:
            raise ConfigError(
                f"The collection has no field {name!r} for {role}. {known_names(name, names)}"
            )
        return name
    if len(likely) != 1:
        problem = f"{len(likely)} fields are possible" if likely else "no field has a usual name"
        raise ConfigError(
            f"The collection's {role} is unclear: {problem}. Give {role}=...."
            f" {known_names('', names)}"
        )
    return likely[0]


def _milvus_filter(filters: FilterLike | None, layout: _Layout) -> str:
    """Write filters as a Milvus expression: a conjunction of ``field in [values]``."""
    parts = []
    for name, values in _filter_values(filters, "a Milvus collection").items():
        if not _FIELD.match(name) or not (name in layout.fields or layout.is_dynamic):
            raise ConfigError(
                f"The collection has no field {name!r:.60}. {known_names(name, layout.fields)}"
            )
        parts.append(f"{name} in [{', '.join(_literal(name, value) for value in values)}]")
    return " and ".join(parts)


def _literal(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    # Versions of servers unescape by different rules, so texts that need escapes are refused.
    is_safe = isinstance(value, str) and not _UNSAFE.search(value)
    expected = "a number, a boolean, or a text without quotes, backslashes and control characters"
    require(is_safe, f"The filter on {name!r}", value, expected)
    return f'"{value}"'


def _milvus_hit(row: JsonMapping, layout: _Layout) -> Hit:
    fields = dict(row.get("entity") or {})
    key = row.get(layout.key, row.get("id"))
    text = fields.pop(layout.text, None)
    if not isinstance(text, str):
        problem = f"has {text!r:.40} in {layout.text!r}, which is no text. Set text_field."
        raise RetrievalError(f"The row {key!r} of the collection {problem}")
    fields.pop(layout.vector, None)
    fields.pop(layout.key, None)
    distance = float(row["distance"])
    return foreign_hit(
        str(key), text, distance_score(distance) if layout.metric == "L2" else distance, fields
    )


# OpenSearch


@dataclass(frozen=True, slots=True)
class OpenSearchIndex:
    """An OpenSearch index that another program filled, as a retriever. It is only read.

    The server ranks by its own analysers; scores are its BM25. Pass it as
    ``RAGPipeline(retriever=)`` or to a `HybridRetriever`.

    Args:
        client: A connected ``opensearchpy.OpenSearch``.
        index: The index, or an alias.
        text_field: The field with the texts.
        search_fields: The fields that are searched, such as ``"title^2"``; () for the texts alone.

    Raises:
        ConfigError: If an argument is invalid.

    Example::

        articles = OpenSearchIndex(OpenSearch("https://search:9200"), "articles", "body")
        pipeline = RAGPipeline(retriever=articles)
    """

    client: Any
    index: str
    text_field: str = "text"
    search_fields: Sequence[str] = ()

    def __post_init__(self) -> None:
        is_client = callable(getattr(self.client, "search", None))
        require(is_client, "client", self.client, "an OpenSearch client of opensearch-py")
        validate_text("index", self.index)
        validate_text("text_field", self.text_field)
        validate_texts("search_fields", self.search_fields)

    def __call__(
        self, query: str, filters: FilterLike | None = None, topk: int | None = None
    ) -> list[DocNode]:
        """Return at most ``topk`` nodes, 6 by default, best first; equal scores by id.

        Args:
            query: The query.
            filters: ``{field: value}`` or ``{field: [values]}``, all of which must match.
            topk: Maximum number of nodes.

        Raises:
            ConfigError: If an argument is invalid.
            RetrievalError: If OpenSearch fails, or returns documents without a text.
        """
        values = _filter_values(filters, "an OpenSearch index")
        fields = list(self.search_fields) or [self.text_field]
        body = {
            "query": {
                "bool": {
                    "must": [{"multi_match": {"query": query, "fields": fields}}],
                    "filter": [{"terms": {name: allowed}} for name, allowed in values.items()],
                }
            },
            "size": _OPENSEARCH_TOPK if topk is None else validate_integer("topk", topk, 1),
        }
        with errors_of(f"The OpenSearch index {self.index!r}", RetrievalError):
            answer = self.client.search(index=self.index, body=body)
        hits = sorted(answer["hits"]["hits"], key=lambda hit: (-hit["_score"], hit["_id"]))
        return [self._node(hit) for hit in hits]

    def _node(self, hit: JsonMapping) -> DocNode:
        fields = dict(hit["_source"])
        text = fields.pop(self.text_field, None)
        if not isinstance(text, str):
            problem = f"has {text!r:.40} in {self.text_field!r}, which is no text"
            raise RetrievalError(f"The document {hit['_id']!r} {problem}. Set text_field.")
        return DocNode(text=text, uid=hit["_id"], metadata=fields, score=hit["_score"])


# Chroma


class ChromaFinder:
    """Searches a Chroma collection by the vector of the query.

    Args:
        embedding: See `lazyrag.RAGPipeline`; None: the collection embeds queries by its own
            embedding function.
        collection: A ``chromadb`` collection. chromadb is not imported.

    Raises:
        ConfigError: If an argument is invalid.
    """

    def __init__(self, embedding: Any, collection: Any) -> None:
        is_collection = callable(getattr(collection, "query", None)) and not isinstance(
            collection, type
        )
        require(
            is_collection,
            "collection",
            collection,
            "a Chroma collection",
            "Call client.get_collection(name).",
        )
        self._embed = None if embedding is None else query_embedding(embedding)
        self._collection = collection

    @property
    def name(self) -> str:
        """Name of the collection."""
        return str(getattr(self._collection, "name", "chroma"))

    async def find(self, query: str, topk: int, filters: FilterLike | None) -> RetrievedItems:
        """Return at most ``topk`` hits, best first; see `MilvusFinder.find`.

        Raises:
            ConfigError: If the filters are malformed.
            RetrievalError: If Chroma fails, or returns rows without a text.
        """
        vector = None if self._embed is None else await self._embed(query)
        searched: Any = {"query_texts": [query]}
        if vector is not None:
            searched = {"query_embeddings": [vector]}
        with errors_of(f"The Chroma collection {self.name!r}", RetrievalError):
            answer = await in_thread(
                self._collection.query,
                **searched,
                n_results=topk,
                where=_chroma_filter(filters),
                include=["documents", "metadatas", "distances"],
            )
        columns = [answer[name][0] for name in ("ids", "documents", "metadatas", "distances")]
        return RetrievedItems(_best_first([self._hit(*row) for row in zip(*columns, strict=True)]))

    def _hit(self, key: str, text: str | None, fields: Metadata | None, distance: float) -> Hit:
        if text is None:
            raise RetrievalError(
                f"The row {key!r} of the Chroma collection {self.name!r} has no document."
            )
        score = distance_score(distance) if self._space == "l2" else 1 - distance
        return foreign_hit(key, text, score, dict(fields or {}))

    @property
    def _space(self) -> str:
        """The collection's distance; Chroma's default is the squared one."""
        configuration = getattr(self._collection, "configuration_json", None) or {}
        index = configuration.get("hnsw") or configuration.get("spann") or {}
        metadata = getattr(self._collection, "metadata", None) or {}
        return str(index.get("space") or metadata.get("hnsw:space") or "l2")


def _chroma_filter(filters: FilterLike | None) -> JsonObject | None:
    parts = []
    for name, values in _filter_values(filters, "a Chroma collection").items():
        is_valid = all(isinstance(value, (str, int, float)) for value in values)
        require(
            is_valid,
            f"The filter on {name!r}",
            values,
            "a text, a number, a boolean, or a list of these",
        )
        parts.append({name: {"$in": values}})
    if not parts:
        return None
    return {"$and": parts} if len(parts) > 1 else parts[0]


# faiss

_CONTENT_FIELDS = ("contents", "text", "content")
_KEY_FIELDS = ("id", "_id", "docid")
_INNER_PRODUCT = 0  # faiss's METRIC_INNER_PRODUCT; the other metrics are distances


class FaissFinder:
    """Searches a faiss index whose texts are in a file of JSON lines.

    Args:
        embedding: See `lazyrag.RAGPipeline`.
        index: A faiss index, or the file that ``faiss.write_index`` wrote.
        documents: The file of JSON lines, or its rows: row n belongs to vector n. Each is an object
            with its text under ``"contents"``, ``"text"`` or ``"content"``, perhaps an ``"id"`` (by
            default its number from 0), and metadata.

    Raises:
        ConfigError: If the numbers of rows and vectors differ, or a row has no text.
        MissingDependencyError: If the index is a file and faiss is not installed.
    """

    def __init__(
        self,
        embedding: Any,
        index: Any,
        documents: PathLike | Sequence[JsonMapping],
    ) -> None:
        self._embed = query_embedding(embedding)
        self._index = (
            read_faiss_index(Path(index)) if isinstance(index, (str, os.PathLike)) else index
        )
        is_index = callable(getattr(self._index, "search", None)) and hasattr(self._index, "ntotal")
        require(is_index, "index", index, "a faiss index, or the file that faiss.write_index wrote")
        self._hits = _faiss_hits(documents)
        if len(self._hits) != self._index.ntotal:
            counts = f"{self._index.ntotal} vectors, and {len(self._hits)} documents were given"
            raise ConfigError(f"The faiss index has {counts}. Pass one document for each vector.")

    @property
    def name(self) -> str:
        """Class of the index."""
        return type(self._index).__name__

    async def find(self, query: str, topk: int, filters: FilterLike | None) -> RetrievedItems:
        """Return at most ``topk`` hits, best first.

        Raises:
            ConfigError: If there are filters, which faiss does not support; or the vector has the
                wrong length.
        """
        hint = "A faiss index cannot filter. Load the texts into a Document instead."
        require(filters is None, "filters", filters, "None", hint)
        if not self._hits:
            return RetrievedItems([])
        vector = np.asarray([await self._embed(query)], np.float32)
        if vector.shape[1] != self._index.d:
            sizes = f"{vector.shape[1]} numbers, the index {self._index.d}"
            raise ConfigError(
                f"The embedding has {sizes}. Pass the embedding that the index was built with."
            )
        scores, rows = await in_thread(self._index.search, vector, min(topk, len(self._hits)))
        is_product = getattr(self._index, "metric_type", _INNER_PRODUCT) == _INNER_PRODUCT
        scored = []
        for number, row in zip(map(float, scores[0]), map(int, rows[0]), strict=True):
            if row >= 0:  # graphs return -1 if they find fewer
                scored.append((number if is_product else distance_score(number), row))
        scored.sort(key=lambda pair: (-pair[0], pair[1]))
        return RetrievedItems(
            [dataclasses.replace(self._hits[row], score=score) for score, row in scored]
        )


def _faiss_hits(documents: PathLike | Sequence[JsonMapping]) -> list[Hit]:
    if not isinstance(documents, (str, os.PathLike)):
        return [_faiss_hit(number, row, "documents") for number, row in enumerate(documents)]
    path = os.fspath(documents)
    try:
        with Path(path).open(encoding="utf-8") as file:
            return [
                _faiss_hit(number, json.loads(line), path)
                for number, line in enumerate(file)
                if line.strip()
            ]
    except ConfigError:
        raise
    except (OSError, ValueError) as exc:
        raise ConfigError(
            f"The documents of the faiss index at {path} cannot be read: {exc}. Write one JSON"
            " object per line."
        ) from exc


def _faiss_hit(number: int, row: Any, where: str) -> Hit:
    name = next(
        (
            key
            for key in _CONTENT_FIELDS
            if isinstance(row, Mapping) and isinstance(row.get(key), str)
        ),
        None,
    )
    subject = f"Document {number} (from 0) of {where}"
    require(name is not None, subject, row, f"an object with a text under one of {_CONTENT_FIELDS}")
    key = next((row[field] for field in _KEY_FIELDS if row.get(field) is not None), number)
    return foreign_hit(
        str(key), row[name], 0.0, {field: value for field, value in row.items() if field != name}
    )
