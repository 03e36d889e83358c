"""A collection of Milvus that another program filled, as a pipeline asks it (spec 003's constructor).

`lazyrag.Document` keeps its own collections; this reads one of any layout: a text, a vector, and what else there is.
The client is used as it is given, a ``pymilvus.MilvusClient`` or ``AsyncMilvusClient``; pymilvus is not imported.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lazyrag.data.filters import FilterLike
from lazyrag.data.result import Hit
from lazyrag.errors import ConfigError, RetrievalError, known_names
from lazyrag.models.threads import in_thread
from lazyrag.pipeline.finding import Found, told_by
from lazyrag.pipeline.foreign import foreign_hit, of_distance, query_embedding

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
