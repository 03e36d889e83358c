"""The client of Milvus: connections, retries and errors."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from lazyrag.errors import (
    ConfigError,
    StoreConnectionError,
    StoreDamagedError,
    StoreError,
    optional_package,
    sentence,
)
from lazyrag.stores.milvus_encoding import KEY, MAX_BYTES, ROW, VECTOR, Layout, columns_of
from lazyrag.stores.milvus_index import IndexChoice
from lazyrag.stores.protocol import foreign_collection, is_damage
from lazyrag.types import JsonMapping, Keywords, Metric, PathLike
from lazyrag.validation import require, validate_seconds

_FIRST_SPARSE = (2, 4)  # version of a server with sparse vectors: older ones crash on such a column
T = TypeVar("T")

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
"""Name of a database or a collection."""

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

    def __init__(self, uri: PathLike, db_name: str, client_kwargs: Keywords) -> None:
        self.path, self.address = _parse_uri(uri)
        is_name = isinstance(db_name, str) and NAME.fullmatch(db_name) is not None
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
        """Connect, and create the database, or the folder of a file, if missing. Idempotent.

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
                    self.path.parent.mkdir(parents=True, exist_ok=True)
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

        def describe(client: Any) -> JsonMapping | None:
            if not client.has_collection(collection, timeout=self._timeout_s):
                return None
            described: JsonMapping = client.describe_collection(collection, timeout=self._timeout_s)
            return described

        described = self._run("a description", collection, describe)
        if described is None:
            return None
        properties = dict(described.get("properties") or {})
        text = described.get("description") or properties.get(_PROPERTY, "")
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
        error = StoreError if self.path is None else StoreDamagedError
        return error(msg, store="milvus", collection=collection)

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
            msg = f"Milvus at {self.address} refused {operation}: {cause}"
            return error(msg, store="milvus", collection=collection)
        if self.path is None:
            advice = (
                "Start Milvus there, or give the path of a file that ends in '.db' as the uri, for"
                " Milvus Lite."
            )
        else:
            advice = (
                "Only one program can have such a file open. If no other has it, the file is"
                " damaged: move it away, and the next sync rebuilds it."
            )
        tried = "Cannot connect to" if is_opening else f"Cannot reach, for {operation},"
        msg = f"{tried} Milvus at {self.address} (timeout {self._timeout_s:g} s): {cause} {advice}"
        return StoreConnectionError(msg, store="milvus", collection=collection)


def _parse_uri(uri: PathLike) -> tuple[Path | None, str]:
    """The path of a file, None for a server; and the address, which is the URL of a server."""
    text = os.fspath(uri) if isinstance(uri, (str, os.PathLike)) else ""
    if "://" in text:
        return None, text
    if _SERVER.fullmatch(text):
        return None, f"http://{text.rstrip('/')}"
    if text.endswith(".db"):
        path = Path(os.path.realpath(Path(text).expanduser()))
        return path, str(path)
    raise ConfigError(
        "uri must be the address of a Milvus server, such as 'localhost:19530', or the path of a"
        f" file that ends in '.db'; got {uri!r}."
    )


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
    with optional_package("The Milvus store", "milvus"):
        import pymilvus  # an extra, and half a second
    return pymilvus


def _grpc() -> Any:
    import grpc  # below pymilvus, which does not wrap all of its errors

    return grpc
