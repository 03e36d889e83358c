"""A connection to Milvus, a server or a file: the only import of pymilvus, whose errors become ours here."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from lazyrag.errors import ConfigError, StoreConnectionError, StoreError, missing_package, sentence
from lazyrag.stores.milvus_index import IndexChoice
from lazyrag.stores.milvus_schema import KEY, MOST_BYTES, ROW, VECTOR, Layout
from lazyrag.types import Metric

T = TypeVar("T")

TIMEOUT_S = 30.0
NO_DATABASE = "default"
"""The database that every server has; it is neither looked for nor made."""

# A server loads collections after it answers, and after a pause takes its own nodes for gone until they have told that
# they are there; of programs that start Milvus Lite 2.5 at once, one makes their folder.
_NOT_YET = ("collection not loaded", "channel not available", "node offline", "Mmap manager has not been init")
_PROPERTY = "lazyrag"  # beside the description, which Milvus Lite 3 forgets; 2.5 forgets properties
_SERVER = re.compile(r"(\[[0-9a-fA-F:]+\]|[^/\\:\s]+):\d+/?")
_DATABASE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_GONE = 100  # Milvus's code for a collection that is not there
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0  # before something is said again
_UNREACHED = 2  # pymilvus's for a connection that failed, Milvus's for a service that is not there


@dataclass(eq=False)
class _File:
    """A file of Milvus Lite that is open in this process.

    Args:
        users: How many connections have it open.
        writing: Held by a writer: Milvus Lite 3 takes one at a time.
    """

    users: int = 0
    writing: threading.Lock = field(default_factory=threading.Lock)


_files: dict[str, _File] = {}
_opening = threading.Lock()


@dataclass(frozen=True, slots=True)
class Nearest:
    """How a search looks.

    Args:
        limit: Most rows for each vector.
        metric: Of the collection.
        params: For its index.
    """

    limit: int
    metric: Metric
    params: Mapping[str, Any]


class MilvusConnection:
    """What the store says to Milvus, in few words.

    Args:
        uri: ``host:port`` or a URL; or the path of a file, which ends in ``.db``.
        db_name: Of the database in a server. A file is one database.
        client_kwargs: For ``pymilvus.MilvusClient``; ``timeout`` is for every call.

    Raises:
        ConfigError: If one of them cannot be right.

    Example:
        >>> MilvusConnection("localhost:19530", "lazyrag", {}).address
        'http://localhost:19530'
    """

    def __init__(self, uri: str | os.PathLike[str], db_name: str, client_kwargs: Mapping[str, Any]) -> None:
        self.path, self.address = _place(uri)
        if not isinstance(db_name, str) or not _DATABASE.fullmatch(db_name):
            msg = f"db_name is {db_name!r}; give at most 255 letters, digits and '_', of which the first is no digit."
            raise ConfigError(msg)
        for name in ("uri", "db_name"):
            if name in client_kwargs:
                msg = f"client_kwargs has {name!r}, which is an argument of the store itself: give it there."
                raise ConfigError(msg)
        timeout_s = client_kwargs.get("timeout", TIMEOUT_S)
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or timeout_s <= 0:
            msg = f"client_kwargs['timeout'] is {timeout_s!r}; give the seconds that a call may take, above 0."
            raise ConfigError(msg)
        self._db_name = db_name
        self._kwargs = {**client_kwargs, "timeout": float(timeout_s)}
        self._timeout_s = float(timeout_s)
        self._client: Any = None
        self._file: _File | None = None
        self.version = ""

    @property
    def is_open(self) -> bool:
        """Whether it has been opened, and not closed since."""
        return self._client is not None

    def open(self) -> None:
        """Connect, and make the database where it is not there. Opening an open connection changes nothing.

        Raises:
            StoreConnectionError: If nothing answers there, or not as Milvus does.
            MissingDependencyError: If pymilvus is not installed.
        """
        with _opening:
            if self.is_open:
                return
            if self.path is None:
                with self._told("the connection", opening=True):
                    self._client = self._server_client()
                    self.version = str(self._client.get_server_version(timeout=self._timeout_s))
            else:
                with self._told("the connection", opening=True):
                    self._client = _pymilvus().MilvusClient(str(self.path), dedicated=True, **self._kwargs)
                self._file = _files.setdefault(str(self.path), _File())
                self._file.users += 1

    def close(self) -> None:
        """Let go of it; the last one lets go of the file, too. Closing a closed connection changes nothing."""
        with _opening:
            if not self.is_open:
                return
            with self._told("the closing"):
                self._client.close()
            self._client = None
            file, self._file = self._file, None
            if file is not None:
                file.users -= 1
                if not file.users:
                    del _files[str(self.path)]
                    from milvus_lite.server_manager import server_manager_instance  # of the extra, as pymilvus

                    server_manager_instance.release_server(str(self.path))

    def layout(self, collection: str) -> Layout | None:
        """What a collection was made with; None where there is no such collection.

        Raises:
            StoreError: If the collection is none of ours.
        """

        def described(client: Any) -> Mapping[str, Any] | None:
            if not client.has_collection(collection, timeout=self._timeout_s):
                return None
            told: Mapping[str, Any] = client.describe_collection(collection, timeout=self._timeout_s)
            return told

        told = self._asked("a description", collection, described)
        if told is None:
            return None
        text = told.get("description") or dict(told.get("properties") or {}).get(_PROPERTY, "")
        found = Layout.parse(text, collection)
        if found is None:
            msg = (
                f"Milvus at {self.address} has a collection {collection!r} that was not made by this package. Name "
                "another database with db_name=, or drop the collection."
            )
            raise StoreError(msg, store="milvus", collection=collection)
        return found

    def create(self, collection: str, layout: Layout) -> None:
        """Make a collection; that there is one already, of the same layout or another, is fine."""

        def made(client: Any) -> None:
            try:
                client.create_collection(
                    collection,
                    schema=_columns(layout),
                    consistency_level="Strong",
                    properties={_PROPERTY: layout.text},
                    timeout=self._timeout_s,
                )
            except _pymilvus().MilvusException:
                if not client.has_collection(collection, timeout=self._timeout_s):
                    raise

        self._asked("a new collection", collection, made, writes=True)

    def make_ready(self, collection: str, metric: Metric, index: IndexChoice) -> None:
        """Give a collection its index, if a crash has left it without, and load it."""

        def ready(client: Any) -> None:
            if not client.list_indexes(collection, field_name=VECTOR):
                params = client.prepare_index_params()
                params.add_index(VECTOR, index_type=index.type, metric_type=metric.upper(), params=dict(index.params))
                client.create_index(collection, params, timeout=self._timeout_s)
            client.load_collection(collection, timeout=self._timeout_s)

        self._asked("an index", collection, ready, writes=True)

    def drop(self, collection: str) -> None:
        """Remove a collection; one that is not there is fine."""
        self._asked(
            "a removal",
            collection,
            lambda client: client.drop_collection(collection, timeout=self._timeout_s),
            writes=True,
        )

    def count(self, collection: str) -> int:
        """How many rows there are."""
        [found] = self._asked(
            "a count",
            collection,
            lambda client: client.query(collection, "", output_fields=["count(*)"], **self._strong),
        )
        return int(found["count(*)"])

    def upsert(self, collection: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows, which have distinct keys."""
        data = [dict(row) for row in rows]
        self._asked(
            "rows", collection, lambda client: client.upsert(collection, data, timeout=self._timeout_s), writes=True
        )

    def delete(self, collection: str, expression: str) -> None:
        """Delete rows by an expression over their keys."""
        self._asked(
            "a deletion",
            collection,
            lambda client: client.delete(collection, filter=expression, timeout=self._timeout_s),
            writes=True,
        )

    def rows(
        self, collection: str, expression: str, columns: Sequence[str], limit: int | None = None
    ) -> list[dict[str, Any]]:
        """The first rows, by key, for which an expression holds; ``key`` is always among the columns.

        Without a limit all of them, in no order: for expressions that name keys, which Milvus then looks up.
        """
        asked = {"output_fields": list(columns), **self._strong}
        if limit is not None:
            # As an iterator asks: without it, Milvus Lite 3 cuts rows off in the order in which they were written.
            # With it, it sorts all rows.
            asked |= {"limit": limit, "iterator": "True"}
        found = self._asked("a query", collection, lambda client: client.query(collection, expression, **asked))
        return [dict(row) for row in found]

    def nearest(
        self, collection: str, vectors: Sequence[Any], expression: str, columns: Sequence[str], how: Nearest
    ) -> list[list[tuple[dict[str, Any], float]]]:
        """For each vector the nearest rows for which an expression holds, each with the distance that Milvus tells."""
        asked = {
            "data": list(vectors),
            "filter": expression,
            "limit": how.limit,
            "output_fields": list(columns),
            "search_params": {"metric_type": how.metric.upper(), "params": dict(how.params)},
            "anns_field": VECTOR,
            **self._strong,
        }
        found = self._asked("a search", collection, lambda client: client.search(collection, **asked))
        return [[({**hit["entity"], KEY: hit.id}, float(hit["distance"])) for hit in hits] for hits in found]

    @property
    def _strong(self) -> dict[str, Any]:
        """What every read says: all that was acknowledged is to be seen."""
        return {"consistency_level": "Strong", "timeout": self._timeout_s}

    def _server_client(self) -> Any:
        client = _pymilvus().MilvusClient
        if self._db_name != NO_DATABASE:
            with _closed_after(client(self.address, dedicated=True, **self._kwargs)) as first:
                if self._db_name not in first.list_databases(timeout=self._timeout_s):
                    try:
                        first.create_database(self._db_name, timeout=self._timeout_s)
                    except _pymilvus().MilvusException:
                        if self._db_name not in first.list_databases(timeout=self._timeout_s):  # nobody else made it
                            raise
        return client(self.address, db_name=self._db_name, dedicated=True, **self._kwargs)

    def _asked(self, what: str, collection: str, say: Callable[[Any], T], *, writes: bool = False) -> T:
        """What Milvus answers. What fails because it cannot be reached is said again, until the timeout.

        Everything that is said here may be said twice. pymilvus repeats some of it itself, but not while a server is
        starting.
        """
        until, pause_s = time.monotonic() + self._timeout_s, _FIRST_PAUSE_S
        while True:
            client, file = self._client, self._file
            if client is None:
                msg = f"The Milvus store at {self.address} is not open. Call open() first."
                raise StoreError(msg, store="milvus", collection=collection)
            try:
                with self._told(what, collection), file.writing if writes and file is not None else nullcontext():
                    return say(client)
            except StoreConnectionError:
                if time.monotonic() + pause_s > until:
                    raise
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    @contextmanager
    def _told(self, what: str, collection: str = "", *, opening: bool = False) -> Iterator[None]:
        """Within, what pymilvus and what it stands on raise becomes ours."""
        errors = (_pymilvus().MilvusException, _grpc().RpcError, ValueError, RuntimeError, OSError)
        try:
            yield
        except errors as exc:
            raise self._error(what, collection, exc, opening=opening) from exc

    def _error(self, what: str, collection: str, exc: Exception, *, opening: bool) -> StoreError:
        code = getattr(exc, "code", None)
        code = code() if callable(code) else code
        cause = sentence(getattr(exc, "message", "") or _details(exc))
        if code == _GONE:
            return no_collection(self.address, collection)
        kinds = _grpc().StatusCode
        lost = (_UNREACHED, kinds.UNAVAILABLE, kinds.DEADLINE_EXCEEDED, kinds.CANCELLED)
        if not opening and code not in lost and not any(told in cause for told in _NOT_YET):
            msg = f"Milvus at {self.address} refused {what}: {cause}"
            return StoreError(msg, store="milvus", collection=collection)
        advice = (
            "Start Milvus there, or give the path of a file that ends in '.db' as the uri: Milvus Lite keeps it."
            if self.path is None
            else "Only one program can have such a file open; its folder must be there."
        )
        tried = "Cannot connect to" if opening else f"Cannot reach, for {what},"
        msg = f"{tried} Milvus at {self.address} (timeout {self._timeout_s:g} s): {cause} {advice}"
        return StoreConnectionError(msg, store="milvus", collection=collection)


def no_collection(address: str, collection: str) -> StoreError:
    """The error for a collection that is not there."""
    msg = f"Milvus at {address} has no collection {collection!r}. Create it first."
    return StoreError(msg, store="milvus", collection=collection)


def _columns(layout: Layout) -> Any:
    """A collection's schema for pymilvus; its own text stands in its description and in a property."""
    kinds = _pymilvus().DataType
    columns = _pymilvus().MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False, description=layout.text)
    columns.add_field(KEY, kinds.VARCHAR, is_primary=True, max_length=MOST_BYTES)
    if layout.schema.is_sparse:
        columns.add_field(VECTOR, kinds.SPARSE_FLOAT_VECTOR)
    else:
        columns.add_field(VECTOR, kinds.FLOAT_VECTOR, dim=layout.schema.dimension)
    columns.add_field(ROW, kinds.VARCHAR, max_length=MOST_BYTES)
    for column in layout.columns.values():
        columns.add_field(column, kinds.VARCHAR, max_length=MOST_BYTES)
    return columns


def _place(uri: str | os.PathLike[str]) -> tuple[Path | None, str]:
    """The path of a file, None for a server; and how it is called, which for a server is its URL."""
    text = os.fspath(uri) if isinstance(uri, (str, os.PathLike)) else ""
    if isinstance(text, str) and text:
        if "://" in text:
            return None, text
        if _SERVER.fullmatch(text):
            return None, f"http://{text.rstrip('/')}"
        if text.endswith(".db"):
            path = Path(os.path.realpath(Path(text).expanduser()))
            return path, str(path)
    msg = (
        f"uri is {uri!r}; give the address of a Milvus server, such as 'localhost:19530', or the path of a file that "
        "ends in '.db'."
    )
    raise ConfigError(msg)


@contextmanager
def _closed_after(client: Any) -> Iterator[Any]:
    try:
        yield client
    finally:
        with suppress(Exception):  # what went wrong before is to be heard
            client.close()


def _details(exc: Exception) -> str:
    details = getattr(exc, "details", None)
    return str(details() if callable(details) else exc) or type(exc).__name__


def _pymilvus() -> Any:
    try:
        import pymilvus  # an extra, and half a second
    except ModuleNotFoundError as exc:
        raise missing_package("The Milvus store", exc, "milvus") from exc
    return pymilvus


def _grpc() -> Any:
    import grpc  # what pymilvus speaks; not all of its errors become pymilvus's

    return grpc
