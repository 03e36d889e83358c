"""A connection to Milvus, a server or a file: the only import of pymilvus, whose errors become ours here."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lazyrag.errors import ConfigError, StoreConnectionError, StoreError, missing_package, sentence
from lazyrag.stores.milvus_index import IndexChoice
from lazyrag.stores.milvus_schema import ASIDE, KEY, MOST_BYTES, ROW, VECTOR, Layout
from lazyrag.typing import Metric

TIMEOUT_S = 30.0
NO_DATABASE = "default"
"""The database that every server has; it is neither looked for nor made."""

_PROPERTY = "lazyrag"  # beside the description, which Milvus Lite 3 forgets; 2.5 forgets properties
_SERVER = re.compile(r"(\[[0-9a-fA-F:]+\]|[^/\\:\s]+):\d+/?")
_DATABASE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_GONE = 100  # Milvus's code for a collection that is not there
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


class MilvusConnection:
    """What the store says to Milvus, in few words.

    pymilvus itself repeats what fails because the server cannot be reached or is too busy, with growing pauses, until
    the timeout: what is said here may be said twice.

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
            with self._told("the closing") as client:
                client.close()
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
        with self._told("a description", collection) as client:
            if not client.has_collection(collection, timeout=self._timeout_s):
                return None
            told = client.describe_collection(collection, timeout=self._timeout_s)
        text = told.get("description") or dict(told.get("properties") or {}).get(_PROPERTY, "")
        found = Layout.parse(text)
        if found is None:
            msg = (
                f"Milvus at {self.address} has a collection {collection!r} that was not made by this package. Name "
                "another database with db_name=, or drop the collection."
            )
            raise StoreError(msg, store="milvus", collection=collection)
        return found

    def create(self, collection: str, layout: Layout) -> None:
        """Make a collection; that there is one already, of the same layout or another, is fine."""
        pymilvus = _pymilvus()
        kinds, text = pymilvus.DataType, layout.text
        # Both places: each of them is forgotten by one version of Milvus Lite.
        columns = pymilvus.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False, description=text)
        columns.add_field(KEY, kinds.VARCHAR, is_primary=True, max_length=MOST_BYTES)
        if layout.schema.is_sparse:
            columns.add_field(VECTOR, kinds.SPARSE_FLOAT_VECTOR)
        else:
            columns.add_field(VECTOR, kinds.FLOAT_VECTOR, dim=layout.schema.dimension)
        columns.add_field(ROW, kinds.VARCHAR, max_length=MOST_BYTES)
        columns.add_field(ASIDE, kinds.INT8)
        for column in layout.columns.values():
            columns.add_field(column, kinds.VARCHAR, max_length=MOST_BYTES)
        with self._told("a new collection", collection) as client, self._writing():
            try:
                client.create_collection(
                    collection,
                    schema=columns,
                    consistency_level="Strong",
                    properties={_PROPERTY: text},
                    timeout=self._timeout_s,
                )
            except pymilvus.MilvusException:
                if not client.has_collection(collection, timeout=self._timeout_s):
                    raise

    def make_ready(self, collection: str, metric: Metric, index: IndexChoice) -> None:
        """Give a collection its index, if a crash has left it without, and load it."""
        with self._told("an index", collection) as client, self._writing():
            if not client.list_indexes(collection, field_name=VECTOR):
                params = _pymilvus().MilvusClient.prepare_index_params()
                params.add_index(VECTOR, index_type=index.type, metric_type=metric.upper(), params=dict(index.params))
                client.create_index(collection, params, timeout=self._timeout_s)
            client.load_collection(collection, timeout=self._timeout_s)

    def drop(self, collection: str) -> None:
        """Remove a collection; one that is not there is fine."""
        with self._told("a removal", collection) as client, self._writing():
            client.drop_collection(collection, timeout=self._timeout_s)

    def count(self, collection: str) -> int:
        """How many rows there are."""
        with self._told("a count", collection) as client:
            found = client.query(collection, "", output_fields=["count(*)"], **self._strong)
        return int(found[0]["count(*)"])

    def upsert(self, collection: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows, which have distinct keys."""
        with self._told("rows", collection) as client, self._writing():
            client.upsert(collection, [dict(row) for row in rows], timeout=self._timeout_s)

    def delete(self, collection: str, expression: str) -> None:
        """Delete rows by an expression over their keys."""
        with self._told("a deletion", collection) as client, self._writing():
            client.delete(collection, filter=expression, timeout=self._timeout_s)

    def rows(self, collection: str, expression: str, columns: Sequence[str], limit: int) -> list[dict[str, Any]]:
        """The first rows, by key, for which an expression holds; ``key`` is always among the columns."""
        with self._told("a query", collection) as client:
            # As an iterator asks: without it, Milvus Lite 3 cuts rows off in the order in which they were written.
            found = client.query(
                collection, expression, output_fields=list(columns), limit=limit, iterator="True", **self._strong
            )
        return [dict(row) for row in found]

    def nearest(
        self,
        collection: str,
        vectors: Sequence[Any],
        expression: str,
        columns: Sequence[str],
        *,
        limit: int,
        metric: Metric,
        params: Mapping[str, Any],
    ) -> list[list[tuple[dict[str, Any], float]]]:
        """For each vector the nearest rows for which an expression holds, each with the distance that Milvus tells."""
        with self._told("a search", collection) as client:
            found = client.search(
                collection,
                data=list(vectors),
                filter=expression,
                limit=limit,
                output_fields=list(columns),
                search_params={"metric_type": metric.upper(), "params": dict(params)},
                anns_field=VECTOR,
                **self._strong,
            )
        return [[({**hit["entity"], KEY: hit.id}, float(hit["distance"])) for hit in hits] for hits in found]

    @property
    def _strong(self) -> dict[str, Any]:
        """What every read says: all that was acknowledged is to be seen."""
        return {"consistency_level": "Strong", "timeout": self._timeout_s}

    def _writing(self) -> AbstractContextManager[object]:
        return nullcontext() if self._file is None else self._file.writing

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

    @contextmanager
    def _told(self, what: str, collection: str = "", *, opening: bool = False) -> Iterator[Any]:
        """The client; what it raises becomes ours."""
        client = self._client
        if client is None and not opening:
            msg = f"The Milvus store at {self.address} is not open. Call open() first."
            raise StoreError(msg, store="milvus", collection=collection)
        errors = (_pymilvus().MilvusException, _grpc().RpcError, ValueError, RuntimeError, OSError)
        try:
            yield client
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
        if not opening and code not in lost:
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
