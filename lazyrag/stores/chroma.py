"""Vectors in Chroma: in a folder, on a server, or in memory."""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from lazyrag.data.filters import Filter, matches
from lazyrag.errors import (
    ConfigError,
    SchemaMismatchError,
    StoreConnectionError,
    StoreError,
    UnsupportedError,
    known_names,
)
from lazyrag.models.http.settings import seconds
from lazyrag.stores.candidates import exact_ranking
from lazyrag.stores.chroma_client import STORE, CollectionGoneError, Connection, Place
from lazyrag.stores.chroma_collection import Collection, Found
from lazyrag.stores.chroma_filters import Where, divided
from lazyrag.stores.chroma_rows import kept_schema, schema_metadata, space_of
from lazyrag.stores.protocol import Feature, Location, VectorRow, VectorSchema, check_deletion
from lazyrag.stores.pushdown import Pushed
from lazyrag.stores.vector_kinds import check_queries, check_schema, check_vectors, other_schema
from lazyrag.types import Embeddings, Metric, Ranking, Vector
from lazyrag.validation import whole_number

T = TypeVar("T")

_METRICS: tuple[Metric, ...] = ("cosine", "ip", "l2")
_WHOLE_NUMBERS = ("batch_size", "ef_construction", "ef_search", "max_neighbors", "num_threads", "sync_threshold")
_INDEX_KEYS = (*_WHOLE_NUMBERS, "resize_factor", "space")
_ROUNDING = 2.0**-24  # Chroma tells 1 - the product, in float32
_WIDER = 4  # times as many candidates where a filter of ours has left too few


@dataclass(frozen=True, slots=True)
class _Scan:
    """A scan that is under way.

    Args:
        target: The collection.
        last: The key that the last page ended with.
        keys: Those of all rows, in order.
    """

    target: Collection
    last: str
    keys: Sequence[str]


class ChromaVectorStore:
    """Vectors in Chroma (spec 001's ``chromadb``): on a server, in a folder, or in memory if neither is given.

    A search is exact in collections of at most ``exact_rows`` rows: what Chroma's graph does not reach is fetched. In
    larger ones some of the nearest rows may be missing; those that are there are scored and ordered exactly. A folder
    is for one program at a time: Chroma does not tell another one what has changed.

    Args:
        uri: Address of a server, such as ``"localhost:8000"`` or ``"https://chroma.example.com"``.
        dir: Path of a folder, made where there is none.
        index_kwargs: Settings of the graph, for collections that are made: ``{"hnsw": {"ef_construction": 200}}``, or
            that mapping itself. Known: batch_size, ef_construction, ef_search, max_neighbors, num_threads,
            resize_factor, space, sync_threshold. A space is the metric by its name; it may be left out.
        client_kwargs: For Chroma's client: tenant, database, settings (a mapping), and for a server headers and ssl.
        exact_rows: Up to how many rows a search is exact, at least 0. The more, the longer searches of collections take
            that have as many.
        timeout_s: How long a server may be silent, in seconds.

    Raises:
        ConfigError: If an argument is out of its range or unknown.

    Example:
        >>> store = ChromaVectorStore(dir="vectors", index_kwargs={"hnsw": {"space": "cosine", "ef_construction": 200}})
        >>> sorted(store.features)
        ['exact when small', 'native vectors', 'persistent']
    """

    def __init__(
        self,
        uri: str | None = None,
        dir: str | os.PathLike[str] | None = None,  # noqa: A002  spec 001's name
        *,
        index_kwargs: Mapping[str, Any] | None = None,
        client_kwargs: Mapping[str, Any] | None = None,
        exact_rows: int = 10_000,
        timeout_s: float = 60.0,
    ) -> None:
        folder = None if dir is None else os.fspath(dir)
        place = Place(uri, folder, {} if client_kwargs is None else client_kwargs, seconds("timeout_s", timeout_s))
        self._connection = Connection(place)
        self._index = _index_settings({} if index_kwargs is None else index_kwargs)
        self._exact_rows = whole_number("exact_rows", exact_rows, 0)
        self._known: dict[str, Collection] = {}
        self._scans: dict[str, _Scan] = {}

    @property
    def features(self) -> frozenset[Feature]:
        """Exact when small, native vectors; what lies in a folder or on a server lasts, and a server is shared."""
        features: frozenset[Feature] = frozenset(["exact when small", "native vectors"])
        place = self._connection.place
        if place.uri is not None:
            return features | {"persistent", "shared"}
        return features if place.folder is None else features | {"persistent"}

    @property
    def exact_rows(self) -> int:
        """See `ExactWhenSmall.exact_rows`."""
        return self._exact_rows

    @property
    def location(self) -> Location | None:
        """See `Located.location`."""
        place = self._connection.place
        if place.uri is not None:
            return Location(place.uri, is_server=True)
        return None if place.folder is None else Location(place.folder, is_server=False)

    def open(self) -> None:
        """See `Store.open`.

        Raises:
            StoreConnectionError: If the server or the folder cannot be reached.
            MissingDependencyError: If chromadb is not installed.
        """
        self._connection.open()

    def close(self) -> None:
        """See `Store.close`; what lies in memory is gone."""
        self._known.clear()
        self._scans.clear()
        self._connection.close()

    def create(self, collection: str, schema: VectorSchema) -> None:
        """See `VectorStore.create`. ConfigError, too, for another metric than the space in ``index_kwargs``."""
        check_schema(schema)
        if schema.is_sparse:
            msg = f"Chroma keeps dense vectors only; the vectors of {collection!r} are sparse. Use 'map' or 'milvus'."
            raise UnsupportedError(msg, store=STORE, collection=collection)
        if self._index.get("space", schema.metric) != schema.metric:
            msg = (
                f"index_kwargs of chromadb has space={self._index['space']!r}, and the vectors of {collection!r} are "
                f"ranked by {schema.metric!r}. Leave the space out, or give the metric's name."
            )
            raise ConfigError(msg)
        try:
            found = self._found(collection)
        except CollectionGoneError:
            found = self._made(collection, schema)
        if schema_metadata(found.schema) != schema_metadata(schema):
            raise other_schema(collection, found.schema.dimension, found.schema.metric, schema, store=STORE)

    def drop(self, collection: str) -> None:
        """See `Store.drop`."""
        self._known.pop(collection, None)
        self._scans.pop(collection, None)
        name = self._name(collection)
        try:
            self._connection.run(lambda client: client.delete_collection(name))
        except CollectionGoneError:
            return

    def count(self, collection: str) -> int:
        """See `Store.count`."""
        return self._on(collection, Collection.count)

    def upsert(self, collection: str, rows: Sequence[VectorRow]) -> None:
        """See `VectorStore.upsert`. Other programs may see a part of many rows before the call returns."""
        last = list({row.key: row for row in rows}.values())  # of a key that stands twice, the later row counts

        def write(target: Collection) -> None:
            check_vectors(collection, target.schema.dimension, last, store=STORE)
            if last:
                target.upsert(last)

        self._scans.pop(collection, None)
        self._on(collection, write)

    def get(self, collection: str, keys: Sequence[str]) -> list[VectorRow]:
        """See `VectorStore.get`."""
        rows = self._on(collection, lambda target: target.rows(keys))
        return [rows[key] for key in keys if key in rows]

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[VectorRow]:
        """See `VectorStore.scan`.

        Chroma has no order of keys: all of them are read for the first page, and kept for the next one as long as
        nobody seems to have written. Rows that other programs add meanwhile may not be among the pages.
        """
        return self._on(collection, lambda target: self._page(collection, target, after, limit))

    def delete(
        self,
        collection: str,
        *,
        keys: Sequence[str] | None = None,
        filter: Filter | None = None,  # noqa: A002  the word of the protocol
    ) -> int:
        """See `VectorStore.delete`."""
        check_deletion(keys, filter)

        def remove(target: Collection) -> int:
            if filter is None:
                return target.delete(keys or ())
            pushed = divided(filter, target.schema.fields)
            if (rest := pushed.rest) is None:
                return target.delete(target.keys(pushed.native))
            return target.delete(key for key, fields in target.fields(pushed.native) if matches(rest, fields))

        self._scans.pop(collection, None)
        return self._on(collection, remove)

    def search(
        self,
        collection: str,
        vectors: Embeddings,
        topk: int,
        filter: Filter | None = None,  # noqa: A002  the word of the protocol
    ) -> list[Ranking]:
        """See `VectorStore.search`; exact in collections of at most `exact_rows` rows."""

        def ranked(target: Collection, query: Vector, pushed: Pushed[Where]) -> Ranking:
            fetch = Found(target, query, pushed.native, self._exact_rows)
            return exact_ranking(query, topk, target.schema, fetch, rest=pushed.rest, rounding=_ROUNDING)

        return self._on(collection, lambda target: _each(target, vectors, topk, filter, ranked))

    def search_natively(
        self,
        collection: str,
        vectors: Embeddings,
        topk: int,
        filter: Filter | None = None,  # noqa: A002  the word of the protocol
    ) -> list[Ranking]:
        """See `NativeVectors.search_natively`."""

        def ranked(target: Collection, query: Vector, pushed: Pushed[Where]) -> Ranking:
            kept = _native_hits(target, query, topk, pushed)
            scores = [(key, _score(worth, target.schema.metric)) for key, worth in kept]
            return sorted(scores, key=lambda pair: (-pair[1], pair[0]))

        return self._on(collection, lambda target: _each(target, vectors, topk, filter, ranked))

    def _on(self, collection: str, action: Callable[[Collection], T]) -> T:
        """What an action on a collection returns; done again if the one that was known has been dropped and remade."""
        known = self._known.get(collection)
        if known is not None:
            try:
                return action(known)
            except CollectionGoneError:
                self._known.pop(collection, None)
        try:
            return action(self._found(collection))
        except CollectionGoneError as exc:
            msg = f"There is no collection {collection!r} in Chroma at {self._connection.place}. Create it first."
            raise StoreError(msg, store=STORE, collection=collection) from exc

    def _found(self, collection: str) -> Collection:
        """A collection as it is in Chroma now; CollectionGoneError if it is not."""
        name = self._name(collection)
        handle = self._connection.run(lambda client: client.get_collection(name, embedding_function=None))
        schema = kept_schema(handle.metadata, collection)
        if schema is None:
            msg = (
                f"Collection {collection!r} in Chroma at {self._connection.place} was not made by lazyrag. Drop it, or "
                "give the Document another name."
            )
            raise SchemaMismatchError(msg, store=STORE, collection=collection)
        found = self._known[collection] = Collection(self._connection, handle, schema)
        return found

    def _made(self, collection: str, schema: VectorSchema) -> Collection:
        name, space = self._name(collection), space_of(schema.metric)
        try:
            self._connection.run(
                lambda client: client.create_collection(
                    name,
                    embedding_function=None,
                    configuration={"hnsw": {**self._index, "space": space}},
                    metadata=schema_metadata(schema),
                )
            )
        except StoreConnectionError:
            raise
        except StoreError as exc:
            try:  # another program may have made it meanwhile, or our own first try
                return self._found(collection)
            except CollectionGoneError:
                raise exc from exc.__cause__
        return self._found(collection)

    def _name(self, collection: str) -> str:
        return self._connection.prefix + collection

    def _page(self, collection: str, target: Collection, after: str, limit: int) -> list[VectorRow]:
        scan = self._scans.pop(collection, None)
        is_next = scan is not None and scan.target is target and scan.last == after
        keys = scan.keys if scan is not None and is_next and len(scan.keys) == target.count() else None
        while True:
            if keys is None:
                keys = sorted(target.keys())
            first = bisect_right(keys, after)
            wanted = keys[first : first + limit]
            rows = target.rows(wanted)
            if len(rows) == len(wanted):
                break
            keys = None  # some have gone meanwhile
        if first + limit < len(keys):
            self._scans[collection] = _Scan(target, wanted[-1], keys)
        return [rows[key] for key in wanted]


def _each(
    target: Collection,
    vectors: Embeddings,
    topk: int,
    filter: Filter | None,  # noqa: A002  the word of the domain
    ranked: Callable[[Collection, Vector, Pushed[Where]], Ranking],
) -> list[Ranking]:
    """A ranking for each of some queries, which are checked first."""
    schema = target.schema
    check_queries(schema, vectors, topk)
    pushed = divided(filter, schema.fields)
    return [ranked(target, cast("Vector", query), pushed) for query in vectors]


def _native_hits(target: Collection, query: Vector, topk: int, pushed: Pushed[Where]) -> list[tuple[str, float]]:
    """The keys that Chroma finds and that meet the filter, each with its worth."""
    depth, rest = topk, pushed.rest
    while True:
        hits = kept = target.nearest(query, depth, pushed.native)
        if rest is not None:
            rows = target.rows(key for key, _ in hits)
            kept = [pair for pair in hits if pair[0] in rows and matches(rest, rows[pair[0]].fields)]
        if len(kept) >= topk or len(hits) < depth:
            return kept[:topk]
        depth *= _WIDER


def _score(worth: float, metric: Metric) -> float:
    """A worth as `VectorStore.search` tells it."""
    if metric == "l2":
        return 1.0 / (1.0 + math.sqrt(max(-worth, 0.0)))
    return min(max(worth, -1.0), 1.0) if metric == "cosine" else worth


def _index_settings(index_kwargs: Any) -> dict[str, Any]:
    """The settings of Chroma's graph, checked.

    Raises:
        ConfigError: If one is unknown or out of its range.
    """
    if not isinstance(index_kwargs, Mapping):
        raise ConfigError(f"index_kwargs of chromadb is {index_kwargs!r:.200}; give a mapping.")
    given = index_kwargs
    if "hnsw" in index_kwargs:
        given = index_kwargs["hnsw"]
        if len(index_kwargs) > 1 or not isinstance(given, Mapping):
            msg = f"index_kwargs of chromadb is {index_kwargs!r:.200}; give {{'hnsw': {{...}}}} and nothing beside it."
            raise ConfigError(msg)
    for name, value in given.items():
        if name not in _INDEX_KEYS:
            msg = f"index_kwargs of chromadb has the key {name!r}. {known_names(str(name), _INDEX_KEYS)}"
            raise ConfigError(msg)
        if name in _WHOLE_NUMBERS:
            whole_number(f"{name} in index_kwargs of chromadb", value, 1)
    if given.get("space", "l2") not in _METRICS:
        msg = f"index_kwargs of chromadb has space={given['space']!r}; give one of {', '.join(_METRICS)}."
        raise ConfigError(msg)
    factor = given.get("resize_factor", 1.2)
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 1.0 <= factor < math.inf:
        raise ConfigError(f"index_kwargs of chromadb has resize_factor={factor!r}; give a number of at least 1.")
    return dict(given)
