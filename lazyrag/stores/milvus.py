"""Vector store on Milvus: a server, or a file of Milvus Lite."""

from __future__ import annotations

import functools
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from lazyrag.data.filters import Filter, matches
from lazyrag.errors import (
    ConfigError,
    SchemaMismatchError,
    StoreConnectionError,
    StoreDamagedError,
    StoreError,
    UnsupportedError,
    missing_package,
    sentence,
)
from lazyrag.stores.milvus_encoding import (
    ALWAYS,
    KEY,
    MAX_BYTES,
    ROW,
    VECTOR,
    Layout,
    all_of,
    columns_of,
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
from lazyrag.stores.protocol import (
    Candidate,
    Feature,
    Match,
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
    is_damage,
    native_ranking,
    part_of_rows,
    rank_rows,
)
from lazyrag.types import (
    Embedding,
    Embeddings,
    Metric,
    Ranking,
)
from lazyrag.validation import (
    known_arguments,
    require,
    validate_choice,
    validate_mapping,
    validate_seconds,
)

T = TypeVar("T")

IndexKwargs: TypeAlias = "Mapping[str, Any] | Sequence[Mapping[str, Any]] | None"
"""One dict for all embed keys, or one for each, with its ``embed_key``."""

_UPSERT_BYTES = 8 * 2**20  # of one message; servers take 64 MiB
_FIRST_SPARSE = (2, 4)  # version of a server with sparse vectors: older ones crash on such a column
# of dense vectors; Milvus Lite 2.5 fails at the index of others
_MIN_DIMENSION = 2
_MAX_DIMENSION = 32_768
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")  # of a database or a collection


@known_arguments
class MilvusVectorStore:
    """Vector store on Milvus (spec 001's ``milvus``), with strong consistency and exact rankings by
    default.

    Milvus's own search gives candidates, which are scored again from the stored vectors. Where its
    answer cannot hold enough of them (more than 16,384 rows, or a tie as wide as that), all rows
    that meet the filter are read. With an index that is not exact, near rows may be missing among
    the candidates, and the store does not declare ``exact``.

    Args:
        uri: The address of a server, such as ``localhost:19530`` or a URL; or the path of a file
            that ends in ``.db``, which Milvus Lite creates if missing. One program at a time can
            open such a file.
        db_name: The database in a server, created if missing; a file is a database of its own.
        client_kwargs: For ``pymilvus.MilvusClient``: ``user``, ``password``, ``token`` ... Its
            ``timeout``, 30 seconds by default, is for every call with all its retries.
        index_kwargs: See `IndexSettings`. A collection keeps the index that it was made with.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> store = MilvusVectorStore("localhost:19530", index_kwargs={"index_type": "HNSW", "params": {"M": 16}})
        >>> sorted(store.features)
        ['native vectors', 'persistent', 'shared']
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        db_name: str = "lazyrag",
        client_kwargs: Mapping[str, Any] | None = None,
        index_kwargs: IndexKwargs = None,
    ) -> None:
        self._settings = IndexSettings(index_kwargs)
        self._connection = MilvusConnection(
            uri, db_name, validate_mapping("client_kwargs", client_kwargs or {})
        )
        self._collections: dict[str, _Collection] = {}

    @property
    def features(self) -> frozenset[Feature]:
        """Persistent; a server also shared; exact with exact indexes; sparse if Milvus is (servers
        since 2.4).
        """
        features: set[Feature] = {"persistent", "native vectors"}
        if self._connection.path is None:
            features.add("shared")
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
        if not _NAME.fullmatch(collection):
            msg = (
                "A collection of Milvus has a name of letters, digits and '_', no digit first; got"
                f" {collection!r}."
            )
            raise ConfigError(msg)
        if schema.is_sparse and not self._connection.supports_sparse:
            msg = (
                f"Milvus at {self._connection.address} (version"
                f" {self._connection.version or 'unknown'}) has no sparse vectors; servers have"
                " since 2.4, and Milvus Lite has. Use one of those, or the map store."
            )
            raise UnsupportedError(msg, store="milvus", collection=collection)
        if not schema.is_sparse and not _MIN_DIMENSION <= schema.dimension <= _MAX_DIMENSION:
            msg = (
                f"Milvus stores vectors of {_MIN_DIMENSION} to {_MAX_DIMENSION} numbers; these have"
                f" {schema.dimension}. Use the map store for them."
            )
            raise UnsupportedError(msg, store="milvus", collection=collection)
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
        last = list({row.key: row for row in rows}.values())
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
        """See `VectorStore.delete`."""
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

    def _opened(self, collection: str) -> _Collection:
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

    def _load(self, collection: str, schema: VectorSchema, index: IndexChoice) -> _Collection:
        self._connection.load(collection, schema.metric, index)
        present = self._collections[collection] = _Collection(
            self._connection, collection, schema, index
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


# --- Index settings

_KEYS = ("embed_key", "index_type", "metric_type", "params", "search_params")
_DENSE = (
    *(
        "AUTOINDEX",
        "DISKANN",
        "FLAT",
        "GPU_BRUTE_FORCE",
        "GPU_CAGRA",
        "GPU_IVF_FLAT",
        "GPU_IVF_PQ",
        "HNSW",
        "HNSW_PQ",
    ),
    *("HNSW_PRQ", "HNSW_SQ", "IVF_FLAT", "IVF_PQ", "IVF_RABITQ", "IVF_SQ8", "SCANN"),
)
_SPARSE = ("SPARSE_INVERTED_INDEX", "SPARSE_WAND")
_EXACT = ("FLAT", *_SPARSE)
_METRICS = ("COSINE", "IP", "L2")
# of sparse indexes: the share of weights that they leave out
_DROPPING = ("drop_ratio_build", "drop_ratio_search")
_DEPTHS = {  # parameters of a search that must be at least its number of rows
    **dict.fromkeys(("HNSW", "HNSW_PQ", "HNSW_PRQ", "HNSW_SQ"), "ef"),
    "DISKANN": "search_list",
    "SCANN": "reorder_k",
}
_MIN_DEPTH = 64


@dataclass(frozen=True, slots=True)
class IndexChoice:
    """The index of a collection.

    Args:
        type: Milvus's name of it.
        params: Parameters to build it with.
        search_params: Parameters of searches.
    """

    type: str
    params: Mapping[str, Any]
    search_params: Mapping[str, Any]

    @property
    def is_exact(self) -> bool:
        """Whether it finds the true nearest rows."""
        return self.type in _EXACT and not any(
            params.get(name) for params in (self.params, self.search_params) for name in _DROPPING
        )

    def params_for(self, depth: int) -> dict[str, Any]:
        """The parameters of a search for that many rows.

        Example:
            >>> IndexChoice("HNSW", {}, {}).params_for(100), IndexChoice("FLAT", {}, {}).params_for(100)
            ({'ef': 100}, {})
        """
        name = _DEPTHS.get(self.type)
        depth_params = (
            {}
            if name is None
            else {name: max(depth, int(self.search_params.get(name, _MIN_DEPTH)))}
        )
        return {**self.search_params, **depth_params}


class IndexSettings:
    """Settings of indexes, from ``index_kwargs``.

    Args:
        index_kwargs: A dict with any of the keys ``index_type``, ``metric_type``, ``params`` (to
            build the index with), ``search_params`` and ``embed_key``; or a list of them, each with
            another ``embed_key``. The default is exact: ``FLAT``, and ``SPARSE_INVERTED_INDEX`` for
            sparse vectors.

    Raises:
        ConfigError: If a key or an index is unknown, or a value is of the wrong type.

    Example:
        >>> settings = IndexSettings([{"embed_key": "vec1", "index_type": "HNSW", "params": {"M": 16}}])
        >>> settings.choice(VectorSchema(2, "cosine", {}, embed_key="vec1")).type
        'HNSW'
        >>> settings.choice(VectorSchema(2, "cosine", {}, embed_key="vec2")).type
        'FLAT'
    """

    def __init__(self, index_kwargs: IndexKwargs) -> None:
        is_list = isinstance(index_kwargs, (list, tuple))
        entries: Any = index_kwargs if is_list else [index_kwargs or {}]
        self._by_embed_key: dict[str | None, Mapping[str, Any]] = {}
        for entry in entries:
            _check_entry(entry)
            embed_key = entry.get("embed_key")
            if is_list and embed_key is None:
                raise ConfigError(
                    f"Each entry of a list in index_kwargs needs an 'embed_key'; got {entry!r}."
                )
            if embed_key in self._by_embed_key:
                raise ConfigError(
                    f"index_kwargs has two entries for the embed key {embed_key!r}. Remove one of"
                    " them."
                )
            self._by_embed_key[embed_key] = entry

    @property
    def are_exact(self) -> bool:
        """Whether every configured index finds the true nearest rows."""
        return all(_choice(entry, "FLAT").is_exact for entry in self._by_embed_key.values())

    def choice(self, schema: VectorSchema) -> IndexChoice:
        """The index of a collection.

        Raises:
            ConfigError: If the index is for other vectors or for another metric.
        """
        entry = self._by_embed_key.get(schema.embed_key, self._by_embed_key.get(None, {}))
        default, allowed = (
            ("SPARSE_INVERTED_INDEX", (*_SPARSE, "AUTOINDEX"))
            if schema.is_sparse
            else ("FLAT", _DENSE)
        )
        chosen = _choice(entry, default)
        if chosen.type not in allowed:
            kind = "sparse" if schema.is_sparse else "dense"
            msg = (
                f"index_type must be one of {', '.join(allowed)} for {kind} vectors; got"
                f" {chosen.type!r}. For vectors of both kinds pass a list of dicts, each with its"
                " 'embed_key'."
            )
            raise ConfigError(msg)
        metric = entry.get("metric_type")
        if metric is not None and metric.lower() != schema.metric:
            msg = (
                f"metric_type must be {schema.metric.upper()!r} for this collection; got"
                f" {metric!r}. Leave it out."
            )
            raise ConfigError(msg)
        return chosen


def _choice(entry: Mapping[str, Any], default: str) -> IndexChoice:
    kind = entry.get("index_type", default).upper()
    return IndexChoice(kind, dict(entry.get("params", {})), dict(entry.get("search_params", {})))


def _check_entry(entry: Any) -> None:
    validate_mapping("index_kwargs", entry, _KEYS)
    for name in ("params", "search_params"):
        validate_mapping(f"index_kwargs[{name!r}]", entry.get(name, {}))
    for name, choices in (
        ("embed_key", None),
        ("index_type", (*_DENSE, *_SPARSE)),
        ("metric_type", _METRICS),
    ):
        value = entry.get(name, "")
        require(isinstance(value, str), f"index_kwargs[{name!r}]", value, "a text")
        if choices and name in entry:
            validate_choice(f"index_kwargs[{name!r}]", value.upper(), choices)


# --- The client

_TIMEOUT_S = 30.0
_DEFAULT_DATABASE = "default"  # every server has it; it is neither looked for nor created

# A server loads collections after it answers, and after a pause considers its own nodes lost until
# they report again; of programs that start Milvus Lite 2.5 at once, one creates their folder.
_TRANSIENT = (
    "collection not loaded",
    "channel not available",
    "node offline",
    "Mmap manager has not been init",
)
_PROPERTY = "lazyrag"  # beside the description, which Milvus Lite 3 loses; 2.5 loses properties
_SERVER = re.compile(r"(\[[0-9a-fA-F:]+\]|[^/\\:\s]+):\d+/?")
_NO_COLLECTION = 100  # Milvus's code
# pymilvus's code for a connection that failed, Milvus's for a service that is missing
_UNREACHED = 2
# before a retry, doubling
_FIRST_PAUSE_S = 0.1
_MAX_PAUSE_S = 2.0
_STRONG: Mapping[str, Any] = {"consistency_level": "Strong"}  # of every read


@dataclass(eq=False)
class _File:
    """A file of Milvus Lite that is open in this process.

    Args:
        users: How many connections have it open.
        writing: Lock of writers: Milvus Lite 3 takes one at a time.
    """

    users: int = 0
    writing: threading.Lock = field(default_factory=threading.Lock)


_files: dict[str, _File] = {}
_opening = threading.Lock()


class MilvusConnection:
    """Requests of the store to Milvus.

    Args:
        uri: ``host:port`` or a URL; or the path of a file, which ends in ``.db``.
        db_name: Of the database in a server. A file is one database.
        client_kwargs: For ``pymilvus.MilvusClient``; ``timeout`` is for every call.

    Raises:
        ConfigError: If one of them is invalid.

    Example:
        >>> MilvusConnection("localhost:19530", "lazyrag", {}).address
        'http://localhost:19530'
    """

    def __init__(
        self, uri: str | os.PathLike[str], db_name: str, client_kwargs: Mapping[str, Any]
    ) -> None:
        self.path, self.address = _parse_uri(uri)
        is_name = isinstance(db_name, str) and _NAME.fullmatch(db_name) is not None
        require(is_name, "db_name", db_name, "up to 255 letters, digits and '_', no digit first")
        for name in ("uri", "db_name"):
            if name in client_kwargs:
                raise ConfigError(
                    f"client_kwargs must not have {name!r}: it is an argument of the store itself."
                )
        self._timeout_s = validate_seconds(
            "client_kwargs['timeout']", client_kwargs.get("timeout", _TIMEOUT_S)
        )
        self._db_name = db_name
        self._kwargs = {**client_kwargs, "timeout": self._timeout_s}
        self._client: Any = None
        self._file: _File | None = None
        self.version = ""

    @property
    def supports_sparse(self) -> bool:
        """Whether this Milvus has sparse vectors; known once it is open."""
        if self.path is not None:
            return True
        numbers = re.match(r"v?(\d+)\.(\d+)", self.version)
        if numbers is None:
            return self.version.startswith("milvus_lite")  # Milvus Lite as a server
        return (int(numbers[1]), int(numbers[2])) >= _FIRST_SPARSE

    def open(self) -> None:
        """Connect, and create the database if missing. Idempotent.

        Raises:
            StoreConnectionError: If there is no answer, or not one of Milvus.
            MissingDependencyError: If pymilvus is not installed.
        """
        with _opening:
            if self._client is not None:
                return
            with self._translate_errors("the connection", is_opening=True):
                if self.path is None:
                    self._client = self._server_client()
                    self.version = str(self._client.get_server_version(timeout=self._timeout_s))
                else:
                    self._client = _pymilvus().MilvusClient(
                        str(self.path), dedicated=True, **self._kwargs
                    )
            if self.path is not None:
                self._file = _files.setdefault(str(self.path), _File())
                self._file.users += 1

    def close(self) -> None:
        """Close the connection; the last one also closes the file. Idempotent."""
        with _opening:
            if self._client is None:
                return
            with self._translate_errors("the closing"):
                self._client.close()
            self._client = None
            file = self._file
            self._file = None
            if file is not None:
                file.users -= 1
                if not file.users:
                    del _files[str(self.path)]
                    # of the extra, as pymilvus
                    from milvus_lite.server_manager import server_manager_instance

                    server_manager_instance.release_server(str(self.path))

    def layout(self, collection: str) -> Layout | None:
        """The layout of a collection; None if it does not exist.

        Raises:
            StoreError: If lazyrag did not create the collection.
        """

        def describe(client: Any) -> Mapping[str, Any] | None:
            if not client.has_collection(collection, timeout=self._timeout_s):
                return None
            described: Mapping[str, Any] = client.describe_collection(
                collection, timeout=self._timeout_s
            )
            return described

        described = self._run("a description", collection, describe)
        if described is None:
            return None
        text = described.get("description") or dict(described.get("properties") or {}).get(
            _PROPERTY, ""
        )
        layout = Layout.parse(text, collection)
        if layout is None:
            raise foreign_collection(collection, f"Milvus at {self.address}", "milvus")
        return layout

    def create(self, collection: str, layout: Layout) -> None:
        """Create a collection, unless there is one of that name."""

        def create(client: Any) -> None:
            try:
                client.create_collection(
                    collection,
                    schema=_pymilvus_schema(layout),
                    consistency_level="Strong",
                    properties={_PROPERTY: layout.text},
                    timeout=self._timeout_s,
                )
            except _pymilvus().MilvusException:
                if not client.has_collection(collection, timeout=self._timeout_s):
                    raise

        self._run("a new collection", collection, create, writes=True)

    def load(self, collection: str, metric: Metric, index: IndexChoice) -> None:
        """Load a collection; create its index first if it is missing, as after a crash."""

        def load(client: Any) -> None:
            if not client.list_indexes(collection, field_name=VECTOR):
                params = client.prepare_index_params()
                params.add_index(
                    VECTOR,
                    index_type=index.type,
                    metric_type=metric.upper(),
                    params=dict(index.params),
                )
                client.create_index(collection, params, timeout=self._timeout_s)
            client.load_collection(collection, timeout=self._timeout_s)

        self._run("an index", collection, load, writes=True)

    def _server_client(self) -> Any:
        client = _pymilvus().MilvusClient
        if self._db_name != _DEFAULT_DATABASE:
            with closing(client(self.address, dedicated=True, **self._kwargs)) as first:
                if self._db_name not in first.list_databases(timeout=self._timeout_s):
                    try:
                        first.create_database(self._db_name, timeout=self._timeout_s)
                    except _pymilvus().MilvusException:
                        # nobody else made it
                        if self._db_name not in first.list_databases(timeout=self._timeout_s):
                            raise
        return client(self.address, db_name=self._db_name, dedicated=True, **self._kwargs)

    def call(
        self,
        operation: str,
        method: str,
        collection: str,
        *args: Any,
        writes: bool = False,
        **options: Any,
    ) -> Any:
        """Call an idempotent method of the client on a collection, with retries until the
        timeout.
        """

        def call(client: Any) -> Any:
            return getattr(client, method)(collection, *args, timeout=self._timeout_s, **options)

        return self._run(operation, collection, call, writes=writes)

    def _run(
        self, operation: str, collection: str, request: Callable[[Any], T], *, writes: bool = False
    ) -> T:
        """Run an idempotent request, with retries until the timeout while Milvus cannot be reached.

        pymilvus retries some requests itself, but not while a server is starting.
        """
        until = time.monotonic() + self._timeout_s
        pause_s = _FIRST_PAUSE_S
        while True:
            client = self._client
            file = self._file
            if client is None:
                msg = f"The Milvus store at {self.address} is not open. Call open() first."
                raise StoreError(msg, store="milvus", collection=collection)
            lock = file.writing if writes and file is not None else nullcontext()
            try:
                with self._translate_errors(operation, collection), lock:
                    return request(client)
            except StoreConnectionError:
                if time.monotonic() + pause_s > until:
                    raise
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    @contextmanager
    def _translate_errors(
        self, operation: str, collection: str = "", *, is_opening: bool = False
    ) -> Iterator[None]:
        """Turn the errors of pymilvus and of the libraries below it into ours."""
        errors = (_pymilvus().MilvusException, _grpc().RpcError, ValueError, RuntimeError, OSError)
        try:
            yield
        except errors as exc:
            raise self._error(operation, collection, exc, is_opening=is_opening) from exc

    def no_collection(self, collection: str) -> StoreError:
        """The error for a collection that does not exist; a file may have lost it."""
        msg = f"Milvus at {self.address} has no collection {collection!r}. Create it first."
        return (StoreError if self.path is None else StoreDamagedError)(
            msg, store="milvus", collection=collection
        )

    def _error(
        self, operation: str, collection: str, exc: Exception, *, is_opening: bool
    ) -> StoreError:
        code = getattr(exc, "code", None)
        code = code() if callable(code) else code
        details = getattr(exc, "details", None)
        details = str(details() if callable(details) else exc) or type(exc).__name__
        cause = sentence(getattr(exc, "message", "") or details)
        if code == _NO_COLLECTION:
            return self.no_collection(collection)
        kinds = _grpc().StatusCode
        lost = (_UNREACHED, kinds.UNAVAILABLE, kinds.DEADLINE_EXCEEDED, kinds.CANCELLED)
        if not is_opening and code not in lost and not any(text in cause for text in _TRANSIENT):
            error = StoreDamagedError if self.path is not None and is_damage(cause) else StoreError
            return error(
                f"Milvus at {self.address} refused {operation}: {cause}",
                store="milvus",
                collection=collection,
            )
        advice = (
            "Start Milvus there, or give the path of a file that ends in '.db' as the uri, for"
            " Milvus Lite."
            if self.path is None
            else (
                "Only one program can have such a file open; its folder must be there. If neither"
                " is the cause, the file is damaged: move it away, and the next sync rebuilds it."
            )
        )
        tried = "Cannot connect to" if is_opening else f"Cannot reach, for {operation},"
        msg = f"{tried} Milvus at {self.address} (timeout {self._timeout_s:g} s): {cause} {advice}"
        return StoreConnectionError(msg, store="milvus", collection=collection)


def _parse_uri(uri: str | os.PathLike[str]) -> tuple[Path | None, str]:
    """The path of a file, None for a server; and the address, which is the URL of a server."""
    text = os.fspath(uri) if isinstance(uri, (str, os.PathLike)) else ""
    if "://" in text:
        return None, text
    if _SERVER.fullmatch(text):
        return None, f"http://{text.rstrip('/')}"
    if text.endswith(".db"):
        path = Path(os.path.realpath(Path(text).expanduser()))
        return path, str(path)
    msg = (
        "uri must be the address of a Milvus server, such as 'localhost:19530', or the path of a"
        f" file that ends in '.db'; got {uri!r}."
    )
    raise ConfigError(msg)


def _pymilvus_schema(layout: Layout) -> Any:
    """The schema of a collection for pymilvus; the layout is stored in its description and in a
    property.
    """
    kinds = _pymilvus().DataType
    schema = _pymilvus().MilvusClient.create_schema(
        auto_id=False, enable_dynamic_field=False, description=layout.text
    )
    schema.add_field(KEY, kinds.VARCHAR, is_primary=True, max_length=MAX_BYTES)
    if layout.schema.is_sparse:
        schema.add_field(VECTOR, kinds.SPARSE_FLOAT_VECTOR)
    else:
        schema.add_field(VECTOR, kinds.FLOAT_VECTOR, dim=layout.schema.dimension)
    for column in (ROW, *columns_of(layout.schema.fields).values()):
        schema.add_field(column, kinds.VARCHAR, max_length=MAX_BYTES)
    return schema


def _pymilvus() -> Any:
    try:
        import pymilvus  # an extra, and half a second
    except ModuleNotFoundError as exc:
        raise missing_package("The Milvus store", exc, "milvus") from exc
    return pymilvus


def _grpc() -> Any:
    import grpc  # below pymilvus, which does not wrap all of its errors

    return grpc


# --- Searches

_KEYS_PER_CALL = 1000

Hit: TypeAlias = "tuple[dict[str, Any], float]"
"""A row as Milvus returns it, and its raw score, see `Candidate`."""


class _TooDeepError(Exception):
    """A search needs more rows at once than an answer may hold."""


@dataclass(frozen=True, slots=True)
class _Collection:
    """A collection that has its index and is loaded.

    Args:
        connection: To the Milvus that has it.
        name: There.
        schema: Its schema.
        index: Over its vectors.
    """

    connection: MilvusConnection
    name: str
    schema: VectorSchema
    index: IndexChoice

    @property
    def window(self) -> int:
        """How many rows one answer may hold."""
        return window_of(self.schema)

    def count(self) -> int:
        [count] = self.connection.call(
            "a count", "query", self.name, "", output_fields=["count(*)"], **_STRONG
        )
        return int(count["count(*)"])

    def upsert(self, rows: Sequence[VectorRow]) -> None:
        """Write rows of different keys; at least one."""
        part_of_rows(rows, self.schema.dimension)  # refuses vectors that cannot be ranked
        encoded = encode_rows(rows, self.schema)
        for batch in batches(encoded, len(encoded), _UPSERT_BYTES, row_bytes):
            self.connection.call("rows", "upsert", self.name, batch, writes=True)
        if self.connection.path is not None:
            # Milvus Lite 2.5 stamps rows and reads by the millisecond and a counter of each of
            # them: within one millisecond a read may not see what was just written, and a deletion
            # may not delete it.
            time.sleep(0.001)

    def delete(self, keys: Sequence[str]) -> None:
        for some in batches(keys, _KEYS_PER_CALL):
            self.connection.call(
                "a deletion", "delete", self.name, filter=key_in(some), writes=True
            )

    def get(self, keys: Sequence[str]) -> list[VectorRow]:
        by_key: dict[str, VectorRow] = {}
        for some in batches(dict.fromkeys(keys), min(self.window, _KEYS_PER_CALL)):
            rows = self._rows(key_in(some), row_columns(self.schema.fields))
            by_key |= {row.key: row for row in (decode_row(values, self.schema) for values in rows)}
        return [by_key[key] for key in keys if key in by_key]

    def present(self, keys: Sequence[str]) -> list[str]:
        """Those of some keys that exist, each once."""
        present_keys: list[str] = []
        for some in batches(dict.fromkeys(keys), _KEYS_PER_CALL):
            present_keys += [
                decode_text(values[KEY]) for values in self._rows(key_in(some), (KEY,))
            ]
        return present_keys

    def matching(self, filter: Filter) -> list[str]:
        """The keys of the rows that meet a bound filter."""
        expression, rest = split_filter(filter, self.schema.fields)
        columns = (KEY,) if rest is None else (KEY, *field_columns(self.schema.fields))
        return [
            decode_text(values[KEY])
            for page in self._pages(expression, columns)
            for values in page
            if rest is None or matches(rest, decode_fields(values, self.schema.fields))
        ]

    def scan(self, after: str, limit: int) -> list[VectorRow]:
        pages = self._pages("", row_columns(self.schema.fields), after=after, limit=limit)
        return [decode_row(values, self.schema) for page in pages for values in page]

    def search(self, vectors: Embeddings, topk: int, filter: Filter | None) -> list[Ranking]:
        """See `VectorStore.search`."""
        check_queries(self.schema, vectors, topk)
        expression, rest = split_filter(filter, self.schema.fields)
        hits = _Hits(self, vectors, expression, row_columns(self.schema.fields))

        @functools.cache
        def aside() -> list[VectorRow]:
            return [
                row for page in self._read(all_of(expression, IS_UNRANKABLE), rest) for row in page
            ]

        def rank(number: int, query: Embedding) -> Ranking:
            def fetch(depth: int) -> list[Candidate]:
                return [
                    Candidate(decode_row(values, self.schema), raw_score)
                    for values, raw_score in hits(number, depth)
                ]

            if hits.queries[number] is None:
                return self._rank_all(query, topk, expression, rest)
            try:
                ranking = exact_ranking(query, topk, self.schema, fetch, rest=rest)
            except _TooDeepError:
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
                **_STRONG,
            )
            rankings += [
                [({**hit["entity"], KEY: hit.id}, sign * float(hit["distance"])) for hit in hits]
                for hits in answer
            ]
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
        return sorted(ranked, key=lambda pair: (-pair[1], pair[0]))[:topk]

    def _read(self, expression: str, rest: Filter | None) -> Iterator[list[VectorRow]]:
        """All rows that meet both parts of a filter, page by page."""
        for page in self._pages(expression, row_columns(self.schema.fields)):
            rows = (decode_row(values, self.schema) for values in page)
            yield [row for row in rows if rest is None or matches(rest, row.fields)]

    def _pages(
        self, expression: str, columns: Sequence[str], *, after: str = "", limit: int | None = None
    ) -> Iterator[list[dict[str, Any]]]:
        """Rows in the order of their keys, in answers that are not too long; at most ``limit`` in
        all.
        """
        while limit is None or limit > 0:
            size = self.window if limit is None else min(limit, self.window)
            page = self._rows(
                all_of(key_after(after) if after else ALWAYS, expression), columns, size
            )
            if not page:  # a page may be short though there is more behind it
                return
            yield page
            after = decode_text(page[-1][KEY])
            limit = None if limit is None else limit - len(page)

    def _rows(
        self, expression: str, columns: Sequence[str], limit: int | None = None
    ) -> list[dict[str, Any]]:
        """The first rows, by key, for which an expression holds; ``key`` is always among the
        columns.

        Without a limit all of them, in no order: for expressions that name keys, which Milvus looks
        up.
        """
        # Milvus Lite 2.5 fails to read sparse vectors from a collection that never had a row.
        is_at_risk = (
            self.schema.is_sparse and VECTOR in columns and self.connection.path is not None
        )
        if is_at_risk and not self._rows(expression, (KEY,), 1):
            return []
        # As an iterator: else Milvus Lite 3 cuts rows off in the order in which they were written.
        # So it sorts all.
        page: dict[str, Any] = {} if limit is None else {"limit": limit, "iterator": "True"}
        answer = self.connection.call(
            "a query",
            "query",
            self.name,
            expression,
            output_fields=list(columns),
            **_STRONG,
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
        self, collection: _Collection, vectors: Embeddings, expression: str, columns: Sequence[str]
    ) -> None:
        # None: Milvus cannot rank rows
        self.queries = [milvus_query(vector, collection.schema) for vector in vectors]
        self._collection = collection
        self._expression = expression
        self._columns = columns
        self._first: tuple[int, dict[int, list[Hit]]] | None = None

    def __call__(self, number: int, depth: int) -> list[Hit]:
        """The ``depth`` nearest rows to a query; _TooDeepError where no answer may hold so many."""
        if depth > self._collection.window:
            raise _TooDeepError
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


# --- Texts


# --- Layout


# --- Rows


# --- Filters


IS_UNRANKABLE = f'{ROW} >= "1"'
IS_RANKED = f'{ROW} < "1"'
