"""Vectors in Milvus: a server, or a file of Milvus Lite."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

from lazyrag.data.filters import Filter
from lazyrag.errors import ConfigError, SchemaMismatchError, UnsupportedError
from lazyrag.stores.milvus_client import MilvusConnection, no_collection
from lazyrag.stores.milvus_collection import KEYS_AT_ONCE, MilvusCollection, pieces
from lazyrag.stores.milvus_filters import key_among
from lazyrag.stores.milvus_index import IndexChoice, IndexKwargs, IndexSettings
from lazyrag.stores.milvus_schema import LEAST_DIMENSION, MOST_DIMENSION, Layout, row_bytes, written
from lazyrag.stores.milvus_search import exact_rankings, native_rankings
from lazyrag.stores.protocol import Feature, Location, VectorRow, VectorSchema, check_deletion
from lazyrag.stores.vector_kinds import check_schema, check_vectors, part_of_rows
from lazyrag.types import Embeddings, Ranking
from lazyrag.validation import known_arguments

_UPSERT_BYTES = 8 * 2**20  # of one message; servers take 64 MiB
_FIRST_SPARSE = (2, 4)  # the version of a server that keeps sparse vectors: an older one dies of such a column


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
        self._collections: dict[str, MilvusCollection] = {}

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

    @property
    def location(self) -> Location:
        """See `Located.location`."""
        return Location(self._connection.address, is_server=self._connection.path is None)

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
                f"Milvus at {self._connection.address} (version {self._connection.version or 'unknown'}) keeps no "
                "sparse vectors; servers do from 2.4 on, and Milvus Lite does. Use such a one, or the map store."
            )
            raise UnsupportedError(msg, store="milvus", collection=collection)
        if not schema.is_sparse and not LEAST_DIMENSION <= schema.dimension <= MOST_DIMENSION:
            msg = (
                f"Milvus keeps vectors of {LEAST_DIMENSION} to {MOST_DIMENSION} numbers; these have "
                f"{schema.dimension}. Use the map store for them."
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
        self._ready(collection, schema, index)

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
        for batch in _batches(written([*last.values()], schema)):
            self._connection.upsert(collection, batch)

    def get(self, collection: str, keys: Sequence[str]) -> list[VectorRow]:
        """See `VectorStore.get`."""
        return self._known(collection).get(keys)

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[VectorRow]:
        """See `VectorStore.scan`."""
        return self._known(collection).scan(after, limit)

    def delete(
        self,
        collection: str,
        *,
        keys: Sequence[str] | None = None,
        filter: Filter | None = None,  # noqa: A002  the word of the protocol
    ) -> int:
        """See `VectorStore.delete`."""
        known = self._known(collection)
        # Milvus counts keys that it was given, not rows that it had: those that are there are looked up first.
        check_deletion(keys, filter)
        gone = known.present(keys or ()) if filter is None else known.matching(filter)
        for some in pieces(gone, KEYS_AT_ONCE):
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
        return exact_rankings(self._known(collection), vectors, topk, filter)

    def search_natively(
        self,
        collection: str,
        vectors: Embeddings,
        topk: int,
        filter: Filter | None = None,  # noqa: A002  the word of the protocol
    ) -> list[Ranking]:
        """See `NativeVectors.search_natively`. At most as many rows as one answer of Milvus may hold.

        What Milvus cannot rank is found by nobody: vectors without length under the cosine, and sparse vectors with
        weights below 0, or dimensions beyond 32 bits.
        """
        return native_rankings(self._known(collection), vectors, topk, filter)

    @property
    def _keeps_sparse(self) -> bool:
        if self._connection.path is not None:
            return True
        version = self._connection.version
        numbers = re.match(r"v?(\d+)\.(\d+)", version)
        if numbers is None:
            return version.startswith("milvus_lite")  # Milvus Lite as a server
        return (int(numbers[1]), int(numbers[2])) >= _FIRST_SPARSE

    def _known(self, collection: str) -> MilvusCollection:
        """A collection, described and loaded once.

        Raises:
            StoreError: If there is none of that name.
        """
        found = self._collections.get(collection)
        if found is None:
            layout = self._connection.layout(collection)
            if layout is None:
                raise no_collection(self._connection.address, collection)
            found = self._ready(collection, layout.schema, IndexChoice(layout.index_type, layout.index_params, {}))
        return found

    def _ready(self, collection: str, schema: VectorSchema, index: IndexChoice) -> MilvusCollection:
        self._connection.make_ready(collection, schema.metric, index)
        found = self._collections[collection] = MilvusCollection(self._connection, collection, schema, index)
        return found


def _other_layout(collection: str, wanted: Layout, present: Layout | None) -> SchemaMismatchError:
    asked, held = (
        f"dimension {one.schema.dimension}, metric {one.schema.metric!r}, index {one.index_type} "
        f"{dict(one.index_params)}, fields {sorted(one.schema.fields)}"
        for one in (wanted, present or wanted)
    )
    msg = (
        f"Collection {collection!r} was made with {held}; asked for was {asked}. Open it with what it was made "
        "with, or drop it."
    )
    return SchemaMismatchError(msg, store="milvus", collection=collection)


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
