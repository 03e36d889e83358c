"""Vectors in Milvus: a server, or a file of Milvus Lite."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from lazyrag.arguments import known_arguments
from lazyrag.data.filters import Filter, matches
from lazyrag.errors import ConfigError, SchemaMismatchError, StoreError, UnsupportedError
from lazyrag.stores.candidates import Candidate, exact_ranking, ranking_of
from lazyrag.stores.milvus_client import MilvusConnection
from lazyrag.stores.milvus_filters import ALWAYS, IS_ASIDE, NOT_ASIDE, all_of, divided, key_after, key_among
from lazyrag.stores.milvus_index import IndexChoice, IndexKwargs, IndexSettings
from lazyrag.stores.milvus_schema import (
    KEY,
    READ,
    ROW,
    Layout,
    key_of,
    plain_query,
    row_bytes,
    row_fields,
    row_of,
    row_values,
    window_of,
)
from lazyrag.stores.protocol import Feature, VectorRow, VectorSchema
from lazyrag.stores.vector_kinds import check_schema, check_vectors, part_of_rows, searched, state_of
from lazyrag.typing import Embedding, Embeddings, Ranking

_UPSERT_BYTES = 8 * 2**20  # of one message; servers take 64 MiB
_KEYS_AT_ONCE = 1000
_NATIVE_SPARE = 4  # times as many rows, where a part of the filter is left to us
_FIRST_SPARSE = (2, 4)  # the version of a server that keeps sparse vectors: an older one dies of such a column


@dataclass(frozen=True, slots=True)
class _Collection:
    """A collection that is loaded.

    Args:
        name: In Milvus.
        schema: It was made with.
        index: Over its vectors.
        window: How many rows one answer may hold.
    """

    name: str
    schema: VectorSchema
    index: IndexChoice
    window: int


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the rows of an answer must meet.

    Args:
        expression: What Milvus looks at; "" for nothing.
        rest: What we look at; None for nothing.
    """

    expression: str
    rest: Filter | None

    def keeps(self, row: VectorRow) -> bool:
        """Whether a row that Milvus let through meets the rest."""
        return self.rest is None or matches(self.rest, row.fields)


class _TooDeepError(Exception):
    """More rows would have to be fetched at once than an answer may hold."""


@known_arguments
class MilvusVectorStore:
    """Vectors in Milvus (spec 001's ``milvus``), read with strong consistency and ranked exactly unless told otherwise.

    Milvus's own search gives candidates, which are scored again from the stored vectors. Where its answer cannot hold
    enough of them (more than 16,384 rows, or a tie as wide as that), all rows that meet the filter are read. With an
    index that is not exact, near rows may be missing among the candidates, and the store does not declare ``exact``.

    Args:
        uri: The address of a server, such as ``localhost:19530`` or a URL; or the path of a file that ends in ``.db``,
            which Milvus Lite makes where there is none, and which one program at a time can have open.
        db_name: The database in a server, made where there is none; a file is a database of its own.
        client_kwargs: For ``pymilvus.MilvusClient``: ``user``, ``password``, ``token`` ... Its ``timeout``, 30 seconds
            if left out, is for every call with all its repetitions.
        index_kwargs: See `IndexSettings`. A collection keeps the index that it was made with.

    Raises:
        ConfigError: If an argument cannot be right.

    Example:
        >>> store = MilvusVectorStore("localhost:19530", index_kwargs={"index_type": "HNSW", "params": {"M": 16}})
        >>> sorted(store.features)
        ['native vectors', 'persistent', 'shared']
    """

    def __init__(
        self,
        uri: str | PathLike[str],
        *,
        db_name: str = "lazyrag",
        client_kwargs: Mapping[str, Any] | None = None,
        index_kwargs: IndexKwargs = None,
    ) -> None:
        if not isinstance(client_kwargs or {}, Mapping):
            msg = f"client_kwargs is {client_kwargs!r}; give a mapping of keyword arguments."
            raise ConfigError(msg)
        self._settings = IndexSettings(index_kwargs)
        self._connection = MilvusConnection(uri, db_name, client_kwargs or {})
        self._collections: dict[str, _Collection] = {}

    @property
    def features(self) -> frozenset[Feature]:
        """Persistent; a server also shared; exact with exact indexes; sparse where Milvus is (servers from 2.4 on)."""
        found: set[Feature] = {"persistent", "native vectors"}
        if self._connection.path is None:
            found.add("shared")
        if self._settings.are_exact:
            found.add("exact")
        if self._keeps_sparse:
            found.add("sparse")
        return frozenset(found)

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
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", collection):
            msg = f"Milvus cannot name a collection {collection!r}: letters, digits and '_' only, no digit first."
            raise ConfigError(msg)
        if schema.is_sparse and not self._keeps_sparse:
            msg = (
                f"Milvus at {self._connection.address} (version {self._connection.version or 'unknown'}) keeps no sparse "
                "vectors; servers do from 2.4 on, and Milvus Lite does. Use such a one, or the map store."
            )
            raise UnsupportedError(msg, store="milvus", collection=collection)
        index = self._settings.choice(schema)
        wanted = Layout(schema, index.type, index.params)
        present = self._connection.layout(collection)
        if present is None:
            self._connection.create(collection, wanted)
            present = self._connection.layout(collection)
        if present is None or present.text != wanted.text:
            raise _other_layout(collection, wanted, present)
        self._connection.make_ready(collection, schema.metric, index)
        self._collections[collection] = _Collection(collection, schema, index, window_of(schema))

    def drop(self, collection: str) -> None:
        """See `Store.drop`."""
        self._collections.pop(collection, None)
        self._connection.drop(collection)

    def count(self, collection: str) -> int:
        """See `Store.count`."""
        return self._connection.count(self._known(collection).name)

    def upsert(self, collection: str, rows: Sequence[VectorRow]) -> None:
        """See `VectorStore.upsert`. Batches are written one after the other, each as a whole."""
        schema = self._known(collection).schema
        last = {row.key: row for row in rows}  # of a key that stands twice, the later row counts
        check_vectors(collection, schema.dimension, last.values(), store="milvus")
        if not last:
            return
        part_of_rows([*last.values()], schema.dimension)  # refuses what no ranking could be made of
        values = [row_values(row, schema) for row in last.values()]
        for batch in _batches(values):
            self._connection.upsert(collection, batch)

    def get(self, collection: str, keys: Sequence[str]) -> list[VectorRow]:
        """See `VectorStore.get`."""
        known = self._known(collection)
        found: dict[str, VectorRow] = {}
        for some in _pieces([*dict.fromkeys(keys)], min(known.window, _KEYS_AT_ONCE)):
            rows = self._connection.rows(collection, key_among(some), READ, len(some))
            found |= {row.key: row for row in (row_of(values, known.schema) for values in rows)}
        return [found[key] for key in keys if key in found]

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[VectorRow]:
        """See `VectorStore.scan`."""
        known = self._known(collection)
        rows: list[VectorRow] = []
        for page in self._pages(known, "", READ, after=after, limit=limit):
            rows += [row_of(values, known.schema) for values in page]
        return rows

    def delete(
        self,
        collection: str,
        *,
        keys: Sequence[str] | None = None,
        filter: Filter | None = None,  # noqa: A002  the word of the protocol
    ) -> int:
        """See `VectorStore.delete`."""
        known = self._known(collection)
        if (keys is None) == (filter is None):
            msg = (
                "delete() takes keys= or filter=: give exactly one of them. To remove everything, drop the collection."
            )
            raise ConfigError(msg)
        # Milvus counts keys that it was given, not rows that it had: those that are there are looked up first.
        gone = self._matching(known, filter) if keys is None else self._present(known, keys)
        for some in _pieces(gone, _KEYS_AT_ONCE):
            self._connection.delete(collection, key_among(some))
        return len(gone)

    def search(
        self,
        collection: str,
        vectors: Embeddings,
        topk: int,
        filter: Filter | None = None,  # noqa: A002  the word of the protocol
    ) -> list[Ranking]:
        """See `VectorStore.search`."""
        known = self._known(collection)
        plain = _checked(known.schema, vectors, topk)
        expression, rest = divided(filter, known.schema.fields)
        asked = _Asked(expression, rest)
        fetches = self._fetches(known, plain, asked)
        return [
            self._ranking(known, query, topk, asked, fetch) for query, fetch in zip(vectors, fetches, strict=True)
        ]

    def search_natively(
        self,
        collection: str,
        vectors: Embeddings,
        topk: int,
        filter: Filter | None = None,  # noqa: A002  the word of the protocol
    ) -> list[Ranking]:
        """See `NativeVectors.search_natively`. At most as many rows as one answer of Milvus may hold.

        Vectors and queries that Milvus cannot rank are found by nobody: those without length under the cosine, and
        sparse ones with weights below 0.
        """
        known = self._known(collection)
        plain = _checked(known.schema, vectors, topk)
        expression, rest = divided(filter, known.schema.fields)
        asked = _Asked(expression, rest)
        return [self._native(known, query, topk, asked) if query is not None else [] for query in plain]

    @property
    def _keeps_sparse(self) -> bool:
        if self._connection.path is not None:
            return True
        version = self._connection.version
        numbers = re.match(r"v?(\d+)\.(\d+)", version)
        if numbers is None:
            return version.startswith("milvus_lite")  # Milvus Lite as a server
        return (int(numbers[1]), int(numbers[2])) >= _FIRST_SPARSE

    def _known(self, collection: str) -> _Collection:
        """A collection, described and loaded once.

        Raises:
            StoreError: If there is none of that name.
        """
        found = self._collections.get(collection)
        if found is None:
            layout = self._connection.layout(collection)
            if layout is None:
                msg = f"Milvus at {self._connection.address} has no collection {collection!r}. Create it first."
                raise StoreError(msg, store="milvus", collection=collection)
            index = IndexChoice(layout.index_type, layout.index_params, {})
            self._connection.make_ready(collection, layout.schema.metric, index)
            found = _Collection(collection, layout.schema, index, window_of(layout.schema))
            self._collections[collection] = found
        return found

    def _pages(
        self, known: _Collection, expression: str, columns: Sequence[str], *, after: str = "", limit: int | None = None
    ) -> Iterator[list[dict[str, Any]]]:
        """Rows in the order of their keys, in answers that are not too long; at most ``limit`` in all."""
        while limit is None or limit > 0:
            size = known.window if limit is None else min(limit, known.window)
            behind = key_after(after) if after else ALWAYS
            page = self._connection.rows(known.name, all_of(behind, expression), columns, size)
            if not page:  # a page may be short though there is more behind it
                return
            yield page
            after = key_of(page[-1][KEY])
            limit = None if limit is None else limit - len(page)

    def _read(self, known: _Collection, asked: _Asked, *, expression: str = "") -> Iterator[list[VectorRow]]:
        """All rows that meet what is asked, and an expression besides."""
        for page in self._pages(known, all_of(asked.expression, expression), READ):
            yield [row for row in (row_of(values, known.schema) for values in page) if asked.keeps(row)]

    def _matching(self, known: _Collection, filter: Filter | None) -> list[str]:  # noqa: A002
        expression, rest = divided(filter, known.schema.fields)
        return [
            key_of(values[KEY])
            for page in self._pages(known, expression, (KEY,) if rest is None else (KEY, ROW))
            for values in page
            if rest is None or matches(rest, row_fields(values))
        ]

    def _present(self, known: _Collection, keys: Sequence[str]) -> list[str]:
        found: list[str] = []
        for some in _pieces([*dict.fromkeys(keys)], _KEYS_AT_ONCE):
            rows = self._connection.rows(known.name, key_among(some), (KEY,), len(some))
            found += [key_of(values[KEY]) for values in rows]
        return found

    def _ranking(
        self,
        known: _Collection,
        query: Embedding,
        topk: int,
        asked: _Asked,
        fetch: Callable[[int], list[Candidate]] | None,
    ) -> Ranking:
        """The exact ranking: of candidates, and of the rows that Milvus cannot rank; else of all rows."""
        if fetch is None:
            return self._by_reading(known, query, topk, asked)
        try:
            ranking = exact_ranking(query, topk, known.schema, fetch, rest=asked.rest)
        except _TooDeepError:
            return self._by_reading(known, query, topk, asked)
        # Of dense rows those without length are aside, which score 0.
        above = known.schema.metric != "cosine" or (len(ranking) == topk and ranking[-1][1] > 0)
        if not known.schema.is_sparse and above:
            return ranking
        return self._by_reading(known, query, topk, asked, expression=IS_ASIDE, beside=ranking)

    def _by_reading(
        self,
        known: _Collection,
        query: Embedding,
        topk: int,
        asked: _Asked,
        *,
        expression: str = "",
        beside: Ranking | None = None,
    ) -> Ranking:
        best = beside or []
        for rows in self._read(known, asked, expression=expression):
            both = best + ranking_of(query, topk, known.schema, rows)
            best = sorted(both, key=lambda pair: (-pair[1], pair[0]))[:topk]
        return best

    def _fetches(
        self, known: _Collection, queries: Sequence[Embedding | None], asked: _Asked
    ) -> list[Callable[[int], list[Candidate]] | None]:
        """For each query that Milvus can rank rows for, the nearest of them at any depth.

        What the first one fetches is fetched for all of them in few messages, as they begin at the same depth.
        """
        plain = [number for number, query in enumerate(queries) if query is not None]
        first: dict[int, list[list[Candidate]]] = {}

        def fetch(number: int, depth: int) -> list[Candidate]:
            if depth > known.window:
                raise _TooDeepError
            if not first:
                first[depth] = self._nearest(known, [queries[one] for one in plain], depth, asked)
            if depth in first:
                return first[depth][plain.index(number)]
            return self._nearest(known, [queries[number]], depth, asked)[0]

        return [
            None if query is None else (lambda depth, number=number: fetch(number, depth))
            for number, query in enumerate(queries)
        ]

    def _nearest(
        self, known: _Collection, queries: Sequence[Embedding | None], depth: int, asked: _Asked
    ) -> list[list[Candidate]]:
        """The nearest rows to some queries as Milvus ranks them; none for a query of no dimension."""
        found: list[list[Candidate]] = []
        for some in _pieces(queries, max(1, known.window // depth)):
            hits = self._connection.nearest(
                known.name,
                some,
                all_of(asked.expression, NOT_ASIDE),
                READ,
                limit=depth,
                metric=known.schema.metric,
                params=known.index.params_for(depth),
            )
            sign = -1.0 if known.schema.metric == "l2" else 1.0
            found += [[Candidate(row_of(values, known.schema), sign * far) for values, far in one] for one in hits]
        return found

    def _native(self, known: _Collection, query: Embedding, topk: int, asked: _Asked) -> Ranking:
        depth = min(topk if asked.rest is None else _NATIVE_SPARE * topk, known.window)
        while True:
            [found] = self._nearest(known, [query], depth, asked)
            kept = [one for one in found if asked.keeps(one.row)]
            if len(kept) >= topk or len(found) < depth or depth == known.window:
                scored = [(one.row.key, _score(known.schema, one.worth)) for one in kept]
                return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:topk]
            depth = min(_NATIVE_SPARE * depth, known.window)


def _checked(schema: VectorSchema, vectors: Embeddings, topk: int) -> list[Embedding | None]:
    """What to ask Milvus for, for each query; None where it cannot rank rows for it.

    Raises:
        ConfigError: As every store does, see `VectorStore.search`.
    """
    searched(state_of([], [], schema.dimension, schema.metric), vectors, topk, None)
    return [plain_query(one, schema) for one in vectors]


def _score(schema: VectorSchema, worth: float) -> float:
    return 1.0 / (1.0 + max(0.0, -worth) ** 0.5) if schema.metric == "l2" else worth


def _other_layout(collection: str, wanted: Layout, present: Layout | None) -> SchemaMismatchError:
    asked, held = (
        f"dimension {one.schema.dimension}, metric {one.schema.metric!r}, index {one.index_type} "
        f"{dict(one.index_params)}, fields {sorted(one.schema.fields)}"
        for one in (wanted, present or wanted)
    )
    msg = (
        f"Collection {collection!r} was made with {held}; asked for was {asked}. Open it with what it was made with, or "
        "drop it."
    )
    return SchemaMismatchError(msg, store="milvus", collection=collection)


def _pieces(some: Sequence[Any], size: int) -> Iterator[list[Any]]:
    for first in range(0, len(some), size):
        yield list(some[first : first + size])


def _batches(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Rows in messages of a length that servers take."""
    batch: list[Mapping[str, Any]] = []
    size = 0
    for row in rows:
        own = row_bytes(row)
        if batch and size + own > _UPSERT_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += own
    if batch:
        yield batch
