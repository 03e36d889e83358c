"""Indexes that other programs filled, asked for hits: a collection of Chroma, an index of faiss with its texts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lazyrag.data.filters import FilterLike
from lazyrag.data.result import Hit
from lazyrag.errors import ConfigError, RetrievalError
from lazyrag.indexes.dense import read_faiss_index
from lazyrag.models.threads import in_thread
from lazyrag.pipeline.finding import Found, told_by
from lazyrag.pipeline.foreign import foreign_hit, of_distance, query_embedding

_TEXTS = ("contents", "text", "content")
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
    name = next((one for one in _TEXTS if isinstance(row, Mapping) and isinstance(row.get(one), str)), None)
    if name is None:
        msg = f"Document {number} (from 0) of {where} is {row!r:.60}; give an object with a text under one of {_TEXTS}."
        raise ConfigError(msg)
    key = next((row[one] for one in _KEYS if row.get(one) is not None), number)
    return foreign_hit(str(key), row[name], 0.0, {field: value for field, value in row.items() if field != name})


def _scored(hit: Hit, score: float) -> Hit:
    return Hit(hit.id, hit.text, score, hit.source, hit.document_id, hit.chunk_id, hit.metadata)
