"""Vector store on Milvus: a server, or a file of Milvus Lite."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from lazyrag.data.filters import Filter, matches
from lazyrag.errors import ConfigError, SchemaMismatchError, UnsupportedError
from lazyrag.stores.milvus_client import NAME, MilvusConnection
from lazyrag.stores.milvus_encoding import (
    ALWAYS,
    KEY,
    ROW,
    VECTOR,
    Layout,
    all_of,
    decode_fields,
    decode_row,
    decode_text,
    encode_rows,
    field_columns,
    key_after,
    key_in,
    milvus_query,
    row_bytes,
    row_columns,
    split_filter,
    window_of,
)
from lazyrag.stores.milvus_index import IndexChoice, IndexKwargs, IndexSettings
from lazyrag.stores.protocol import (
    Candidate,
    Feature,
    Match,
    StoreLocation,
    VectorRow,
    VectorSchema,
    batches,
    best_first,
    check_deletion,
    check_queries,
    check_schema,
    check_vectors,
    exact_ranking,
    last_rows,
    native_ranking,
    part_of_rows,
    rank_rows,
)
from lazyrag.types import Embedding, Embeddings, JsonObject, Keywords, PathLike, Ranking
from lazyrag.validation import known_arguments, validate_choice, validate_mapping

_UPSERT_BYTES = 8 * 2**20  # of one message; servers take 64 MiB
# of dense vectors; Milvus Lite 2.5 fails at the index of others
_MIN_DIMENSION = 2
_MAX_DIMENSION = 32_768

Consistency: TypeAlias = Literal["Strong", "Session", "Bounded", "Eventually"]
"""Milvus's consistency levels."""


@known_arguments
class MilvusVectorStore:
    """Vector store on Milvus (spec 001's ``milvus``), with exact rankings by default.

    Milvus's own search gives candidates, which are scored again from the stored vectors. Where its
    answer cannot hold enough of them (more than 16,384 rows, or a tie as wide as that), all rows
    that meet the filter are read. With an index that is not exact, near rows may be missing among
    the candidates, and the store does not declare ``exact``.

    A writer waits until a server's readers see its rows, a fifth of a second for each call: reads
    need no strong consistency. A read for seconds after this process has written asks for
    ``Session``, and keys that are missing are looked up once more with ``Strong``.

    Args:
        uri: The address of a server, such as ``localhost:19530`` or a URL; or the path of a file
            that ends in ``.db``, which Milvus Lite creates if missing. One program at a time can
            open such a file.
        db_name: The database in a server, created if missing; a file is a database of its own.
        client_kwargs: For ``pymilvus.MilvusClient``: ``user``, ``password``, ``token`` ... Its
            ``timeout``, 30 seconds by default, is for every call with all its retries.
        index_kwargs: See `IndexSettings`. A collection keeps the index that it was made with.
        consistency: Consistency level of searches and of reads by key. It matters where a server
            has several replicas: with ``Bounded``, one may be some seconds behind what other
            programs wrote; ``Strong`` waits for it, which takes 0.2 s or more a query.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> index = {"index_type": "HNSW", "params": {"M": 16}}
        >>> store = MilvusVectorStore("localhost:19530", index_kwargs=index)
        >>> sorted(store.features)
        ['native vectors', 'persistent', 'server', 'shared']
    """

    def __init__(
        self,
        uri: PathLike,
        *,
        db_name: str = "lazyrag",
        client_kwargs: Keywords | None = None,
        index_kwargs: IndexKwargs = None,
        consistency: Consistency = "Bounded",
    ) -> None:
        self._settings = IndexSettings(index_kwargs)
        self._consistency = validate_choice("consistency", consistency, Consistency)
        self._connection = MilvusConnection(
            uri, db_name, validate_mapping("client_kwargs", client_kwargs or {})
        )
        self._collections: dict[str, _MilvusCollection] = {}

    @property
    def features(self) -> frozenset[Feature]:
        """Persistent; a server also shared, and it ranks; exact with exact indexes; sparse if
        Milvus is (servers since 2.4).
        """
        features: set[Feature] = {"persistent", "native vectors"}
        if self._connection.path is None:
            features |= {"shared", "server"}
        if self._settings.are_exact:
            features.add("exact")
        if self._connection.supports_sparse:
            features.add("sparse")
        return frozenset(features)

    @property
    def location(self) -> StoreLocation:
        """See `Located.location`."""
        return StoreLocation(self._connection.address, is_server=self._connection.path is None)

    def open(self) -> None:
        """See `Store.open`. StoreConnectionError if Milvus does not answer within the timeout."""
        self._connection.open()

    def close(self) -> None:
        """See `Store.close`."""
        self._collections.clear()
        self._connection.close()

    def create(self, collection: str, schema: VectorSchema) -> None:
        """See `VectorStore.create`. ConfigError for an index that does not go with the schema."""
        check_schema(schema)
        if not NAME.fullmatch(collection):
            raise ConfigError(
                "A collection of Milvus has a name of letters, digits and '_', no digit first; got"
                f" {collection!r}."
            )
        if schema.is_sparse and not self._connection.supports_sparse:
            raise UnsupportedError(
                f"Milvus at {self._connection.address} (version"
                f" {self._connection.version or 'unknown'}) has no sparse vectors; servers have"
                " since 2.4, and Milvus Lite has. Use one of those, or the map store.",
                store="milvus",
                collection=collection,
            )
        if not schema.is_sparse and not _MIN_DIMENSION <= schema.dimension <= _MAX_DIMENSION:
            raise UnsupportedError(
                f"Milvus stores vectors of {_MIN_DIMENSION} to {_MAX_DIMENSION} numbers; these have"
                f" {schema.dimension}. Use the map store for them.",
                store="milvus",
                collection=collection,
            )
        index = self._settings.choice(schema)
        layout = Layout(schema, index.type, index.params)
        present = self._connection.layout(collection)
        if present is None:
            self._connection.create(collection, layout)
            present = self._connection.layout(collection)
        if present is None or present.text != layout.text:
            raise _layout_mismatch(collection, layout, present)
        self._load(collection, schema, index)

    def drop(self, collection: str) -> None:
        """See `Store.drop`."""
        self._collections.pop(collection, None)
        self._connection.call("a removal", "drop_collection", collection, writes=True)

    def count(self, collection: str) -> int:
        """See `Store.count`."""
        return self._opened(collection).count()

    def upsert(self, collection: str, rows: Sequence[VectorRow]) -> None:
        """See `VectorStore.upsert`. Rows are written in batches; each batch is atomic."""
        opened = self._opened(collection)
        # the last row of a repeated key counts
        last = last_rows(rows)
        check_vectors(collection, opened.schema.dimension, last, store="milvus")
        if last:
            opened.upsert(last)

    def get(self, collection: str, keys: Sequence[str]) -> list[VectorRow]:
        """See `VectorStore.get`."""
        return self._opened(collection).get(keys)

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[VectorRow]:
        """See `VectorStore.scan`."""
        return self._opened(collection).scan(after, limit)

    def delete(
        self, collection: str, *, keys: Sequence[str] | None = None, filter: Filter | None = None
    ) -> int:
        """See `Store.delete`."""
        opened = self._opened(collection)
        check_deletion(keys, filter)
        # Milvus counts the given keys, present or not: the present ones are looked up first.
        present = opened.present(keys or ()) if filter is None else opened.matching(filter)
        opened.delete(present)
        return len(present)

    def search(
        self, collection: str, vectors: Embeddings, topk: int, filter: Filter | None = None
    ) -> list[Ranking]:
        """See `VectorStore.search`."""
        return self._opened(collection).search(vectors, topk, filter)

    def search_natively(
        self, collection: str, vectors: Embeddings, topk: int, filter: Filter | None = None
    ) -> list[Ranking]:
        """See `NativeVectors.search_natively`. At most as many rows as one answer of Milvus may
        hold.

        It does not find what Milvus cannot rank: vectors of length 0 under the cosine, and sparse
        vectors with weights below 0, or dimensions beyond 32 bits.
        """
        return self._opened(collection).search_natively(vectors, topk, filter)

    def _opened(self, collection: str) -> _MilvusCollection:
        """A collection, described and loaded once; StoreError if it does not exist."""
        present = self._collections.get(collection)
        if present is None:
            layout = self._connection.layout(collection)
            if layout is None:
                raise self._connection.no_collection(collection)
            present = self._load(
                collection, layout.schema, IndexChoice(layout.index_type, layout.index_params, {})
            )
        return present

    def _load(self, collection: str, schema: VectorSchema, index: IndexChoice) -> _MilvusCollection:
        self._connection.load(collection, schema.metric, index)
        present = self._collections[collection] = _MilvusCollection(
            self._connection, collection, schema, index, self._consistency
        )
        return present


def _layout_mismatch(
    collection: str, requested: Layout, present: Layout | None
) -> SchemaMismatchError:
    new, old = (
        f"dimension {layout.schema.dimension}, metric {layout.schema.metric!r}, index"
        f" {layout.index_type} {dict(layout.index_params)}, fields {sorted(layout.schema.fields)}"
        for layout in (requested, present or requested)
    )
    msg = (
        f"Collection {collection!r} was made with {old}; got {new}. Open it as it was made, or"
        " drop it."
    )
    return SchemaMismatchError(msg, store="milvus", collection=collection)


_STRONG = "Strong"
_SESSION = "Session"
# for so long after a write, replicas may be behind it: twice the bound of servers
_SETTLING_S = 10.0
_KEYS_PER_CALL = 1000

Hit: TypeAlias = "tuple[dict[str, Any], float]"
"""A row as Milvus returns it, and its raw score, see `Candidate`."""


class _NotRankedError(Exception):
    """Milvus cannot rank rows for a query, or an answer cannot hold as many as needed."""


@dataclass(slots=True)
class _MilvusCollection:
    """A collection that has its index and is loaded.

    Args:
        connection: To the Milvus that has it.
        name: There.
        schema: Its schema.
        index: Over its vectors.
        consistency: Consistency level of searches and of reads by key.
        written_at: When this process last wrote, on the monotonic clock.
    """

    connection: MilvusConnection
    name: str
    schema: VectorSchema
    index: IndexChoice
    consistency: str
    written_at: float = -math.inf

    @property
    def level(self) -> str:
        """Consistency level of the next read: it sees what this process wrote."""
        is_settling = time.monotonic() - self.written_at < _SETTLING_S
        return _SESSION if is_settling and self.consistency != _STRONG else self.consistency

    @property
    def window(self) -> int:
        """How many rows one answer may hold."""
        return window_of(self.schema)

    def count(self) -> int:
        [count] = self.connection.call(
            "a count",
            "query",
            self.name,
            "",
            output_fields=["count(*)"],
            consistency_level=_STRONG,
        )
        return int(count["count(*)"])

    def upsert(self, rows: Sequence[VectorRow]) -> None:
        """Write rows of different keys; at least one."""
        part_of_rows(rows, self.schema.dimension)  # refuses vectors that cannot be ranked
        encoded = encode_rows(rows, self.schema)
        for batch in batches(encoded, len(encoded), _UPSERT_BYTES, row_bytes):
            self.connection.call("rows", "upsert", self.name, batch, writes=True)
        self._settle()

    def delete(self, keys: Sequence[str]) -> None:
        for some in batches(keys, _KEYS_PER_CALL):
            self.connection.call(
                "a deletion", "delete", self.name, filter=key_in(some), writes=True
            )
        if keys:
            self._settle(_STRONG)  # a server of 2.3 gives deletions no time, as a session needs it

    def _settle(self, consistency: str = _SESSION) -> None:
        """Wait until readers of every consistency level see what was written."""
        self.written_at = time.monotonic()
        if self.connection.path is None:
            self._rows(_NEVER, (KEY,), consistency=consistency)
        else:
            # Milvus Lite 2.5 stamps rows and reads by the millisecond and a counter of each of
            # them: within one millisecond a read may not see what was just written, and a deletion
            # may not delete it.
            time.sleep(0.001)

    def get(self, keys: Sequence[str]) -> list[VectorRow]:
        by_key = self._read_keys(dict.fromkeys(keys), self.level)
        missing = [key for key in dict.fromkeys(keys) if key not in by_key]
        if self.connection.path is None:
            by_key |= self._read_keys(missing, _STRONG)
        return [by_key[key] for key in keys if key in by_key]

    def _read_keys(self, keys: Iterable[str], consistency: str) -> dict[str, VectorRow]:
        by_key = {}
        for some in batches(keys, min(self.window, _KEYS_PER_CALL)):
            columns = row_columns(self.schema.fields)
            for values in self._rows(key_in(some), columns, consistency=consistency):
                row = decode_row(values, self.schema)
                by_key[row.key] = row
        return by_key

    def present(self, keys: Sequence[str]) -> list[str]:
        """Those of some keys that exist, each once."""
        rows = []
        for some in batches(dict.fromkeys(keys), _KEYS_PER_CALL):
            rows += self._rows(key_in(some), (KEY,), consistency=self.level)
        return [decode_text(values[KEY]) for values in rows]

    def matching(self, filter: Filter) -> list[str]:
        """The keys of the rows that meet a bound filter."""
        expression, rest = split_filter(filter, self.schema.fields)
        columns = (KEY,) if rest is None else (KEY, *field_columns(self.schema.fields))
        rows = itertools.chain.from_iterable(self._pages(expression, columns))
        return [
            decode_text(values[KEY])
            for values in rows
            if rest is None or matches(rest, decode_fields(values, self.schema.fields))
        ]

    def scan(self, after: str, limit: int) -> list[VectorRow]:
        pages = self._pages("", row_columns(self.schema.fields), after=after, limit=limit)
        rows = itertools.chain.from_iterable(pages)
        return [decode_row(values, self.schema) for values in rows]

    def search(self, vectors: Embeddings, topk: int, filter: Filter | None) -> list[Ranking]:
        """See `VectorStore.search`."""
        check_queries(self.schema, vectors, topk)
        expression, rest = split_filter(filter, self.schema.fields)
        # ranked rows need no fields, unless we evaluate a part of the filter
        columns = (VECTOR,) if rest is None else row_columns(self.schema.fields)
        hits = _Hits(self, vectors, expression, columns)

        @functools.cache
        def aside() -> list[VectorRow]:
            pages = self._read(all_of(expression, IS_UNRANKABLE), rest)
            return list(itertools.chain.from_iterable(pages))

        def rank(number: int, query: Embedding) -> Ranking:
            def fetch(depth: int) -> list[Candidate]:
                return [
                    Candidate(decode_row(values, self.schema), raw_score)
                    for values, raw_score in hits(number, depth)
                ]

            try:
                ranking = exact_ranking(query, topk, self.schema, fetch, rest=rest)
            except _NotRankedError:
                return self._rank_all(query, topk, expression, rest)
            # Of dense rows only those of length 0 are aside, under the cosine, by which they score
            # 0.
            if not self.schema.is_sparse and (
                self.schema.metric != "cosine" or (len(ranking) == topk and ranking[-1][1] > 0)
            ):
                return ranking
            return self._merge(ranking, query, topk, aside())

        return [rank(number, query) for number, query in enumerate(vectors)]

    def search_natively(
        self, vectors: Embeddings, topk: int, filter: Filter | None
    ) -> list[Ranking]:
        """See `NativeVectors.search_natively`."""
        check_queries(self.schema, vectors, topk)
        expression, rest = split_filter(filter, self.schema.fields)
        columns = () if rest is None else field_columns(self.schema.fields)  # vectors are not sent
        hits = _Hits(self, vectors, expression, columns)

        def rank(number: int) -> Ranking:
            def fetch(depth: int) -> list[Match]:
                return [
                    (
                        (decode_text(values[KEY]), raw_score)
                        if rest is None or matches(rest, decode_fields(values, self.schema.fields))
                        else None
                    )
                    for values, raw_score in hits(number, depth)
                ]

            return native_ranking(topk, self.schema.metric, fetch, self.window)

        return [[] if query is None else rank(number) for number, query in enumerate(hits.queries)]

    def nearest(
        self, queries: Sequence[Embedding], depth: int, expression: str, columns: Sequence[str]
    ) -> list[list[Hit]]:
        """The nearest rows to some queries as Milvus ranks them, of those for which an expression
        holds.
        """
        rankings: list[list[Hit]] = []
        sign = -1.0 if self.schema.metric == "l2" else 1.0
        for some in batches(queries, max(1, self.window // depth)):
            answer = self.connection.call(
                "a search",
                "search",
                self.name,
                data=some,
                filter=all_of(expression, IS_RANKED),
                limit=depth,
                output_fields=list(columns),
                search_params={
                    "metric_type": self.schema.metric.upper(),
                    "params": self.index.params_for(depth),
                },
                anns_field=VECTOR,
                consistency_level=self.level,
            )
            for hits in answer:
                pairs = [
                    ({**hit["entity"], KEY: hit.id}, sign * float(hit["distance"])) for hit in hits
                ]
                rankings.append(pairs)
        return rankings

    def _rank_all(
        self, query: Embedding, topk: int, expression: str, rest: Filter | None
    ) -> Ranking:
        """The best of all rows that meet both parts of a filter."""
        best: Ranking = []
        for rows in self._read(expression, rest):
            best = self._merge(best, query, topk, rows)
        return best

    def _merge(
        self, ranking: Ranking, query: Embedding, topk: int, rows: Sequence[VectorRow]
    ) -> Ranking:
        """The best of a ranking and of other rows."""
        ranked = ranking + rank_rows(query, topk, self.schema, rows)
        return best_first(ranked)[:topk]

    def _read(self, expression: str, rest: Filter | None) -> Iterator[list[VectorRow]]:
        """All rows that meet both parts of a filter, page by page."""
        for page in self._pages(expression, row_columns(self.schema.fields)):
            rows = (decode_row(values, self.schema) for values in page)
            yield [row for row in rows if rest is None or matches(rest, row.fields)]

    def _pages(
        self, expression: str, columns: Sequence[str], *, after: str = "", limit: int | None = None
    ) -> Iterator[list[JsonObject]]:
        """Rows in the order of their keys, in answers that are not too long; at most ``limit`` in
        all.
        """
        while limit is None or limit > 0:
            size = self.window if limit is None else min(limit, self.window)
            behind = key_after(after) if after else ALWAYS
            page = self._rows(all_of(behind, expression), columns, size)
            if not page:  # a page may be short though there is more behind it
                return
            yield page
            after = decode_text(page[-1][KEY])
            limit = None if limit is None else limit - len(page)

    def _rows(
        self,
        expression: str,
        columns: Sequence[str],
        limit: int | None = None,
        *,
        consistency: str = _STRONG,
    ) -> list[JsonObject]:
        """The first rows, by key, for which an expression holds; ``key`` is always among the
        columns.

        Without a limit all of them, in no order: for expressions that name keys, which Milvus looks
        up. Pages have the consistency of the collection, which is ``Strong``.
        """
        # Milvus Lite 2.5 fails to read sparse vectors from a collection that never had a row.
        is_at_risk = (
            self.schema.is_sparse and VECTOR in columns and self.connection.path is not None
        )
        if is_at_risk and not self._rows(expression, (KEY,), 1):
            return []
        # As an iterator: else Milvus Lite 3 cuts rows off in the order in which they were written.
        # So it sorts all.
        page: JsonObject = {} if limit is None else {"limit": limit, "iterator": "True"}
        answer = self.connection.call(
            "a query",
            "query",
            self.name,
            expression,
            output_fields=list(columns),
            consistency_level=consistency,
            **page,
        )
        return [dict(row) for row in answer]


class _Hits:
    """Milvus's answers to the queries of a search, at any depth.

    All queries begin at the same depth: their first answers are fetched together, in few messages.

    Args:
        collection: The collection.
        vectors: The queries.
        expression: Milvus's part of the filter.
        columns: Of the rows.
    """

    def __init__(
        self,
        collection: _MilvusCollection,
        vectors: Embeddings,
        expression: str,
        columns: Sequence[str],
    ) -> None:
        # None: Milvus cannot rank rows
        self.queries = [milvus_query(vector, collection.schema) for vector in vectors]
        self._collection = collection
        self._expression = expression
        self._columns = columns
        self._first: tuple[int, dict[int, list[Hit]]] | None = None

    def __call__(self, number: int, depth: int) -> list[Hit]:
        """The ``depth`` nearest rows to a query; `_NotRankedError` if Milvus cannot say."""
        if self.queries[number] is None or depth > self._collection.window:
            raise _NotRankedError
        if self._first is None:
            self._first = depth, self._fetch(range(len(self.queries)), depth)
        first, hits = self._first
        return hits[number] if depth == first else self._fetch([number], depth)[number]

    def _fetch(self, numbers: Iterable[int], depth: int) -> dict[int, list[Hit]]:
        queries = {
            number: query for number in numbers if (query := self.queries[number]) is not None
        }
        hits = self._collection.nearest([*queries.values()], depth, self._expression, self._columns)
        return dict(zip(queries, hits, strict=True))


_NEVER = key_in([""])  # no row has that key, and no page is read
IS_UNRANKABLE = f'{ROW} >= "1"'
IS_RANKED = f'{ROW} < "1"'
