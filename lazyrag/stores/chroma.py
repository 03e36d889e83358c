"""Vector store on Chroma: a server, a folder, or memory."""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from lazyrag.data.filters import And, Filter, matches
from lazyrag.errors import (
    ConfigError,
    StoreConnectionError,
    StoreDamagedError,
    StoreError,
    UnsupportedError,
)
from lazyrag.stores.chroma_client import ChromaConnection, CollectionGoneError
from lazyrag.stores.chroma_encoding import (
    _STORE,
    Where,
    decode_fields,
    decode_rows,
    encode_rows,
    read_schema_metadata,
    schema_metadata,
    split_filter,
    unit_vectors,
)
from lazyrag.stores.protocol import (
    Candidate,
    Feature,
    Match,
    Pushed,
    State,
    StoreLocation,
    VectorRow,
    VectorSchema,
    batches,
    check_deletion,
    check_queries,
    check_schema,
    check_vectors,
    exact_ranking,
    foreign_collection,
    last_rows,
    native_ranking,
    other_schema,
    searched,
    state_of_rows,
)
from lazyrag.types import (
    Embeddings,
    JsonObject,
    Keywords,
    Matrix,
    Metric,
    PathLike,
    Ranking,
    Vector,
)
from lazyrag.validation import (
    validate_choice,
    validate_integer,
    validate_mapping,
    validate_range,
    validate_seconds,
)

T = TypeVar("T")

_METRICS: tuple[Metric, ...] = ("cosine", "ip", "l2")
_INTEGERS = (
    "batch_size",
    "ef_construction",
    "ef_search",
    "max_neighbors",
    "num_threads",
    "sync_threshold",
)
_INDEX_KEYS = (*_INTEGERS, "resize_factor", "space")
_ROUNDING = 2.0**-24  # Chroma returns 1 - the product, in float32


class ChromaVectorStore:
    """Vector store on Chroma (spec 001's ``chromadb``): on a server, in a folder, or in memory if
    neither is given.

    A search is exact in collections of at most ``exact_rows`` rows: rows that Chroma's graph does
    not reach are fetched. In a folder or memory, the second search since a change keeps a copy of
    all rows in memory, and the following ones read that. In larger collections some of the nearest
    rows may be missing; those found are scored and ordered exactly. Only one program at a time can
    use a folder: Chroma does not notify others of changes.

    Args:
        uri: Address of a server, such as ``"localhost:8000"`` or ``"https://chroma.example.com"``.
        dir: Path of a folder, created if missing.
        index_kwargs: Settings of the graph, for new collections:
            ``{"hnsw": {"ef_construction": 200}}``, or that mapping itself. Known: batch_size,
            ef_construction, ef_search, max_neighbors, num_threads, resize_factor, space,
            sync_threshold. A space is the metric by its name; it may be left out.
        client_kwargs: For Chroma's client: tenant, database, settings (a mapping), and for a server
            headers and ssl.
        exact_rows: Up to how many rows a search is exact, at least 0. The larger it is, the slower
            the search of a collection of that size.
        timeout_s: How long a server may be silent, in seconds.

    Raises:
        ConfigError: If an argument is out of its range or unknown.

    Example:
        >>> settings = {"hnsw": {"space": "cosine", "ef_construction": 200}}
        >>> store = ChromaVectorStore(dir="vectors", index_kwargs=settings)
        >>> sorted(store.features)
        ['exact when small', 'native vectors', 'persistent']
    """

    def __init__(
        self,
        uri: str | None = None,
        dir: PathLike | None = None,  # noqa: A002  spec 001's name
        *,
        index_kwargs: Keywords | None = None,
        client_kwargs: Keywords | None = None,
        exact_rows: int = 10_000,
        timeout_s: float = 60.0,
    ) -> None:
        timeout_s = validate_seconds("timeout_s", timeout_s)
        self._connection = ChromaConnection(
            uri, None if dir is None else os.fspath(dir), client_kwargs, timeout_s
        )
        self._index = _index_settings({} if index_kwargs is None else index_kwargs)
        self._exact_rows = validate_integer("exact_rows", exact_rows, 0)
        self._collections: dict[str, _ChromaCollection] = {}
        # with the key of the last row, and all keys
        self._scans: dict[str, tuple[_ChromaCollection, str, list[str]]] = {}

    @property
    def features(self) -> frozenset[Feature]:
        """Exact when small, native vectors; persistent in a folder or on a server; shared on a
        server.
        """
        features: frozenset[Feature] = frozenset(["exact when small", "native vectors"])
        if self._connection.uri is not None:
            return features | {"persistent", "shared"}
        return features if self._connection.folder is None else features | {"persistent"}

    @property
    def exact_rows(self) -> int:
        """See `ExactWhenSmall.exact_rows`."""
        return self._exact_rows

    @property
    def location(self) -> StoreLocation | None:
        """See `Located.location`."""
        if self._connection.uri is not None:
            return StoreLocation(self._connection.uri, is_server=True)
        folder = self._connection.folder
        return None if folder is None else StoreLocation(folder, is_server=False)

    def open(self) -> None:
        """See `Store.open`.

        Raises:
            StoreConnectionError: If the server or the folder cannot be reached.
            MissingDependencyError: If chromadb is not installed.
        """
        self._connection.open()

    def close(self) -> None:
        """See `Store.close`. What lies in memory is lost."""
        self._collections.clear()
        self._scans.clear()
        self._connection.close()

    def create(self, collection: str, schema: VectorSchema) -> None:
        """See `VectorStore.create`. ConfigError, too, for another metric than the space in
        ``index_kwargs``.
        """
        check_schema(schema)
        if schema.is_sparse:
            raise UnsupportedError(
                f"Chroma stores dense vectors only; those of {collection!r} are sparse. Use 'map'"
                " or 'milvus'.",
                store=_STORE,
                collection=collection,
            )
        if self._index.get("space", schema.metric) != schema.metric:
            raise ConfigError(
                f"index_kwargs of chromadb has space={self._index['space']!r}, but the metric of"
                f" {collection!r} is {schema.metric!r}. Leave the space out, or pass the metric's"
                " name."
            )
        try:
            present = self._find(collection)
        except CollectionGoneError:
            present = self._create(collection, schema)
        if schema_metadata(present.schema) != schema_metadata(schema):
            raise other_schema(
                collection, present.schema.dimension, present.schema.metric, schema, store=_STORE
            )

    def drop(self, collection: str) -> None:
        """See `Store.drop`."""
        self._collections.pop(collection, None)
        self._scans.pop(collection, None)
        name = self._name(collection)
        try:
            self._connection.run(lambda client: client.delete_collection(name))
        except CollectionGoneError:
            return

    def count(self, collection: str) -> int:
        """See `Store.count`."""
        return self._run(collection, _ChromaCollection.count)

    def upsert(self, collection: str, rows: Sequence[VectorRow]) -> None:
        """See `VectorStore.upsert`. Other programs may see a part of many rows before the call
        returns.
        """
        # the last row of a repeated key counts
        last = last_rows(rows)

        def write(target: _ChromaCollection) -> None:
            check_vectors(collection, target.schema.dimension, last, store=_STORE)
            if last:
                target.upsert(last)

        self._scans.pop(collection, None)
        self._run(collection, write)

    def get(self, collection: str, keys: Sequence[str]) -> list[VectorRow]:
        """See `VectorStore.get`."""
        rows = self._run(collection, lambda target: target.rows(keys))
        return [rows[key] for key in keys if key in rows]

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[VectorRow]:
        """See `VectorStore.scan`.

        Chroma does not order keys: the first page reads all of them, and the next one reuses them
        unless the collection seems to have changed. Rows that other programs add meanwhile may be
        missing from the pages.
        """
        return self._run(collection, lambda target: self._page(collection, target, after, limit))

    def delete(
        self, collection: str, *, keys: Sequence[str] | None = None, filter: Filter | None = None
    ) -> int:
        """See `Store.delete`."""
        check_deletion(keys, filter)

        def remove(target: _ChromaCollection) -> int:
            return target.delete(keys or () if filter is None else target.matching(filter))

        self._scans.pop(collection, None)
        return self._run(collection, remove)

    def search(
        self, collection: str, vectors: Embeddings, topk: int, filter: Filter | None = None
    ) -> list[Ranking]:
        """See `VectorStore.search`; exact in collections of at most `exact_rows` rows, and where
        `is_exact` said so.
        """

        def rank(target: _ChromaCollection, query: Vector, pushed: Pushed[Where]) -> Ranking:
            fetch = _NearestRows(target, query, pushed.native, self._exact_rows)
            return exact_ranking(
                query, topk, target.schema, fetch, rest=pushed.rest, rounding=_ROUNDING
            )

        def search(target: _ChromaCollection) -> list[Ranking]:
            state = None if self._connection.uri else target.copy(self._exact_rows)
            if state is None:
                state = target.cached_part(filter)
            if state is not None:
                return searched(state, vectors, topk, filter)
            return self._ranked(target, vectors, topk, filter, rank)

        return self._run(collection, search)

    def is_exact(self, collection: str, filter: Filter | None = None) -> bool:
        """See `ExactInScope.is_exact`."""
        most = self._exact_rows

        def check(target: _ChromaCollection) -> bool:
            return target.count() <= most or (filter is not None and target.read_part(filter, most))

        return self._run(collection, check)

    def search_natively(
        self, collection: str, vectors: Embeddings, topk: int, filter: Filter | None = None
    ) -> list[Ranking]:
        """See `NativeVectors.search_natively`."""

        def rank(target: _ChromaCollection, query: Vector, pushed: Pushed[Where]) -> Ranking:
            return native_ranking(
                topk, target.schema.metric, lambda depth: target.matches(query, depth, pushed)
            )

        return self._run(
            collection, lambda target: self._ranked(target, vectors, topk, filter, rank)
        )

    @staticmethod
    def _ranked(
        target: _ChromaCollection,
        vectors: Embeddings,
        topk: int,
        filter: Filter | None,
        rank: Callable[[_ChromaCollection, Vector, Pushed[Where]], Ranking],
    ) -> list[Ranking]:
        check_queries(target.schema, vectors, topk)
        pushed = split_filter(filter, target.schema.fields)
        return [rank(target, query, pushed) for query in cast("Matrix", vectors)]

    def _run(self, collection: str, action: Callable[[_ChromaCollection], T]) -> T:
        """Run an action on a collection; again if the cached one has been dropped and created
        anew.
        """
        cached = self._collections.get(collection)
        if cached is not None:
            try:
                return action(cached)
            except CollectionGoneError:
                self._collections.pop(collection, None)
        try:
            return action(self._find(collection))
        except CollectionGoneError as exc:
            msg = (
                f"There is no collection {collection!r} in Chroma at {self._connection.address}."
                " Create it first."
            )
            error = StoreError if self._connection.folder is None else StoreDamagedError
            raise error(msg, store=_STORE, collection=collection) from exc

    def _find(self, collection: str) -> _ChromaCollection:
        """Look a collection up in Chroma; CollectionGoneError if it is not there."""
        name = self._name(collection)
        handle = self._connection.run(
            lambda client: client.get_collection(name, embedding_function=None)
        )
        schema = read_schema_metadata(handle.metadata, collection)
        if schema is None:
            raise foreign_collection(collection, f"Chroma at {self._connection.address}", _STORE)
        opened = self._collections[collection] = _ChromaCollection(self._connection, handle, schema)
        return opened

    def _create(self, collection: str, schema: VectorSchema) -> _ChromaCollection:
        name = self._name(collection)
        # Chroma's own cosine does not return vectors as they were written: it divides them by their
        # lengths, which changes some last bits. The inner product of unit vectors is the same, and
        # returns them.
        space = "l2" if schema.metric == "l2" else "ip"
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
            try:  # another program may have created it meanwhile, or our own first try
                return self._find(collection)
            except CollectionGoneError:
                raise exc from exc.__cause__
        return self._find(collection)

    def _name(self, collection: str) -> str:
        return self._connection.prefix + collection

    def _page(
        self, collection: str, target: _ChromaCollection, after: str, limit: int
    ) -> list[VectorRow]:
        previous, last, keys = self._scans.pop(collection, (None, "", []))
        is_next = previous is target and last == after and len(keys) == target.count()
        while True:
            if not is_next:
                keys = sorted(target.keys())
            first = bisect_right(keys, after)
            page = keys[first : first + limit]
            rows = target.rows(page)
            if len(rows) == len(page):
                break
            is_next = False  # some rows have been deleted meanwhile
        if first + limit < len(keys):
            self._scans[collection] = (target, page[-1], keys)
        return [rows[key] for key in page]


def _index_settings(index_kwargs: Any) -> JsonObject:
    """Check the settings of Chroma's graph."""
    owner = "index_kwargs of chromadb"
    settings = validate_mapping(owner, index_kwargs)
    if "hnsw" in settings:
        if len(settings) > 1:
            raise ConfigError(
                f"{owner} must be {{'hnsw': {{...}}}} with nothing beside it;"
                f" got {settings!r:.200}."
            )
        owner = "index_kwargs['hnsw'] of chromadb"
        settings = settings["hnsw"]
    validate_mapping(owner, settings, _INDEX_KEYS)
    for name in _INTEGERS:
        if name in settings:
            validate_integer(f"{name} in {owner}", settings[name], 1)
    validate_choice(f"space in {owner}", settings.get("space", "l2"), _METRICS)
    resize_factor = settings.get("resize_factor", 1.2)
    validate_range(f"resize_factor in {owner}", resize_factor, 1)
    return dict(settings)


_KEYS_PER_CALL = 5_000  # SQLite behind Chroma takes some 32,000 parameters
_KEYS_PER_SEARCH = 20_000
_PARTS = 8  # that stay in memory
_BYTES_PER_CALL = 16 * 2**20  # of vectors; a server refuses requests of 40 MB
# by this program, for each of Chroma's collections; stores share folders
_changes: Counter[Any] = Counter()


class _ChromaCollection:
    """A collection in Chroma, with its rows as ours.

    Args:
        connection: The open connection.
        handle: Chroma's object for the collection.
        schema: The schema of its rows.
    """

    def __init__(self, connection: ChromaConnection, handle: Any, schema: VectorSchema) -> None:
        self.schema = schema
        self._connection = connection
        self._handle = handle
        self._version: tuple[int, int] | None = None  # of the last search
        self._copy: State | None = None
        self._parts: dict[Filter | None, tuple[tuple[int, int], State | None]] = {}

    def count(self) -> int:
        return int(self._call("count"))

    def copy(self, most: int) -> State | None:
        """All rows, if they are at most so many and have not changed since the last search; else
        None.

        What changes them is this program, or there is another number of them. Reading all rows
        costs as much as dozens of searches in Chroma, so a program that writes and searches in
        turns does not.
        """
        version = self._state_of_rows()
        if version != self._version:
            self._version = version
            self._copy = None
        elif self._copy is None and 0 < version[1] <= most:
            rows = self._read_rows()
            state = state_of_rows(rows, self.schema)
            if version != (_changes[self._handle.id], len(rows)):
                return None
            self._copy = state
        return self._copy

    def cached_part(self, filter: Filter | None) -> State | None:
        """The rows that `read_part` has read for a filter, or for a part of it; None if there are
        none.
        """
        filters = (filter, *filter.filters) if isinstance(filter, And) else (filter,)
        cached = next((self._parts[part] for part in filters if part in self._parts), None)
        return cached[1] if cached is not None and cached[0] == self._state_of_rows() else None

    def read_part(self, filter: Filter, most: int) -> bool:
        """Read the rows that satisfy a filter, if they are at most so many; whether they are.

        Those of the last filters stay in memory until this program changes rows, or their number
        changes; those of a server, which others change, are read each time.
        """
        version = self._state_of_rows()
        cached = self._parts.pop(filter, None)
        if cached is None or cached[0] != version or self._connection.uri:
            cached = version, self._read_part(filter, most)
        self._parts[filter] = cached
        for other in [*self._parts][:-_PARTS]:
            self._parts.pop(other, None)
        return cached[1] is not None

    def _state_of_rows(self) -> tuple[int, int]:
        return _changes[self._handle.id], self.count()

    def _read_part(self, filter: Filter, most: int) -> State | None:  # noqa: A002
        keys = self.matching(filter, most + 1)
        if len(keys) > most:
            return None
        return state_of_rows([*self.rows(keys).values()], self.schema)

    def keys(self, where: Where | None = None, limit: int | None = None) -> list[str]:
        """The keys of all rows that Chroma's part of a filter lets through, in no order."""
        return cast("list[str]", self._call("get", where=where, include=[], limit=limit)["ids"])

    def matching(self, filter: Filter, limit: int | None = None) -> list[str]:  # noqa: A002
        """The keys of the rows that meet a filter, in no order; with a limit perhaps no more."""
        pushed = split_filter(filter, self.schema.fields)
        if pushed.rest is None:
            return self.keys(pushed.native, limit)
        rows = self._call("get", where=pushed.native, include=["metadatas"])
        return [
            key
            for key, metadata in zip(rows["ids"], rows["metadatas"], strict=True)
            if matches(pushed.rest, decode_fields(metadata, self.schema.fields))
        ]

    def rows(self, keys: Iterable[str]) -> dict[str, VectorRow]:
        """The present ones of some rows, by key."""
        rows: dict[str, VectorRow] = {}
        for some in batches(dict.fromkeys(keys), _KEYS_PER_CALL):
            rows.update((row.key, row) for row in self._read_rows(ids=some))
        return rows

    def _read_rows(self, **selection: Any) -> list[VectorRow]:
        """The selected rows, or all."""
        answer = self._call("get", include=["embeddings", "metadatas"], **selection)
        return decode_rows(
            answer["ids"], answer["embeddings"], answer["metadatas"], self.schema.fields
        )

    def upsert(self, rows: Sequence[VectorRow]) -> None:
        """Write rows of different keys; at least one."""
        most = int(self._connection.run(lambda client: client.get_max_batch_size()))
        size = max(1, min(most, _BYTES_PER_CALL // (4 * self.schema.dimension)))
        vectors, metadata = encode_rows(rows, self.schema)
        keys = [row.key for row in rows]
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            self._change(
                "upsert", ids=keys[part], embeddings=vectors[part], metadatas=metadata[part]
            )

    def delete(self, keys: Iterable[str]) -> int:
        """Delete the present ones of some rows; returns their number."""
        count = 0
        for some in batches(dict.fromkeys(keys), _KEYS_PER_CALL):
            # Chroma counts unknown keys, too
            present = self._call("get", ids=some, include=[])["ids"]
            if present:
                self._change("delete", ids=present)
            count += len(present)
        return count

    def nearest(
        self, query: Vector, count: int, where: Where | None, keys: Sequence[str] | None = None
    ) -> Ranking:
        """Search in Chroma: at most ``count`` keys, each with its raw score (see `Candidate`), best
        first.

        Rows whose distance is beyond float32's range are left out.

        Args:
            query: (dimension,) finite.
            count: At least 1.
            where: A filter.
            keys: Of the rows that meet the filter, if they are known: Chroma need not evaluate it
                again.
        """
        only: JsonObject = {"where": where}
        if keys is not None and len(keys) <= _KEYS_PER_SEARCH:
            only = {"ids": keys}
        [vector] = unit_vectors(query[None], self.schema.metric)
        answer = self._call(
            "query", query_embeddings=[vector], n_results=count, include=["distances"], **only
        )
        pairs = zip(answer["ids"][0], answer["distances"][0], strict=True)
        # distances are squares, or 1 - the product
        base = 0.0 if self.schema.metric == "l2" else 1.0
        return [(key, base - far) for key, far in pairs if far is not None and math.isfinite(far)]

    def matches(self, query: Vector, depth: int, pushed: Pushed[Where]) -> list[Match]:
        """The ``depth`` best results of Chroma's search, with None for those that do not meet our
        part of a filter.
        """
        hits = self.nearest(query, depth, pushed.native)
        rest = pushed.rest
        if rest is None:
            return [*hits]
        rows = self.rows(key for key, _ in hits)
        return [
            pair if pair[0] in rows and matches(rest, rows[pair[0]].fields) else None
            for pair in hits
        ]

    def _change(self, method: str, **kwargs: Any) -> None:
        try:
            self._call(method, **kwargs)
        finally:
            _changes[self._handle.id] += 1
            self._copy = None

    def _call(self, method: str, **kwargs: Any) -> Any:
        return self._connection.run(lambda _: getattr(self._handle, method)(**kwargs))


class _NearestRows:
    """The rows nearest to one query: a fetch for `exact_ranking`.

    Chroma searches a graph (HNSW), which may not reach all rows even if all are requested: it
    missed half of 3,000 equal vectors, and by inner product a quarter of vectors of very different
    lengths. So all rows of a small collection are requested, and missing ones are fetched by their
    keys and scored here.

    Args:
        collection: The collection.
        query: (dimension,) finite.
        where: A filter.
        exact_rows: The largest number of rows of a small collection.
    """

    def __init__(
        self, collection: _ChromaCollection, query: Vector, where: Where | None, exact_rows: int
    ) -> None:
        self._collection = collection
        self._query = query
        self._where = where
        self._exact_rows = exact_rows
        self._ranked: Ranking = []
        self._is_complete = False  # whether no other rows meet the filter
        self._rows: dict[str, VectorRow] = {}

    def __call__(self, depth: int) -> list[Candidate]:
        """The ``depth`` nearest rows, or all if there are fewer."""
        while True:
            if len(self._ranked) < depth and not self._is_complete:
                self._search(depth)
            new = [key for key, _ in self._ranked[:depth] if key not in self._rows]
            if not new:
                return [
                    Candidate(self._rows[key], raw_score) for key, raw_score in self._ranked[:depth]
                ]
            self._rows.update(self._collection.rows(new))
            # Some may have been deleted meanwhile; a graph that another program has open still has
            # them.
            deleted = set(new) - self._rows.keys()
            self._ranked = [pair for pair in self._ranked if pair[0] not in deleted]

    def _search(self, depth: int) -> None:
        collection = self._collection
        query = self._query
        where = self._where
        count = collection.count()
        is_small = count <= self._exact_rows
        if is_small and where is not None:
            keys = collection.keys(where)
            self._ranked = collection.nearest(query, len(keys), where, keys) if keys else []
            self._add_missing(keys)
            return
        limit = max(depth, count) if is_small else depth
        self._ranked = collection.nearest(query, limit, where) if count else []
        if len(self._ranked) < min(limit, count):
            self._add_missing(collection.keys(where))
        else:
            self._is_complete = limit >= count

    def _add_missing(self, keys: Sequence[str]) -> None:
        """Rank the rows that the search has missed, and remove deleted ones.

        Args:
            keys: Of all rows that meet the filter.
        """
        self._is_complete = True
        present = set(keys)
        ranked = [pair for pair in self._ranked if pair[0] in present]
        rows = self._collection.rows(present - {key for key, _ in ranked})
        self._rows.update(rows)
        if rows:
            vectors = np.stack([cast("Vector", row.vector) for row in rows.values()])
            ranked += zip(rows, self._raw_scores(vectors), strict=True)
            ranked.sort(key=lambda pair: -pair[1])
        self._ranked = ranked

    def _raw_scores(self, vectors: Matrix) -> list[float]:
        """The raw scores (see `Candidate`) of vectors, (n, dimension)."""
        metric = self._collection.schema.metric
        query = unit_vectors(self._query[None], metric)[0].astype(np.float64)
        exact = unit_vectors(vectors, metric).astype(np.float64)
        raw_score = -np.square(exact - query).sum(axis=1) if metric == "l2" else exact @ query
        return cast("list[float]", raw_score.tolist())
