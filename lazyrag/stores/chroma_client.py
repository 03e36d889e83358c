"""The client of Chroma: connections, retries and errors."""

from __future__ import annotations

import os
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from lazyrag.errors import (
    ConfigError,
    LazyRAGError,
    StoreConnectionError,
    StoreDamagedError,
    StoreError,
    optional_package,
    sentence,
)
from lazyrag.stores.chroma_encoding import _STORE
from lazyrag.stores.protocol import TRANSIENT_STATUSES, backoff_s, is_damage
from lazyrag.validation import public_url, validate_mapping

T = TypeVar("T")

_RETRIES = 3
_MAX_PAUSE_S = 10.0  # that a server may ask for
_CONNECT_S = 10.0
_LOCAL_KWARGS = ("database", "settings", "tenant")
_SERVER_KWARGS = ("database", "headers", "settings", "ssl", "tenant")


class CollectionGoneError(StoreError):
    """Chroma has no collection of that name or number, or no longer."""


class _RetryLaterError(Exception):
    """A server or a proxy may answer later.

    Args:
        status: The HTTP status.
        wait_s: The requested wait in seconds; 0 if there is none.
    """

    def __init__(self, status: int, wait_s: float) -> None:
        super().__init__(f"HTTP {status}")
        self.wait_s = wait_s


class ChromaConnection:
    """Chroma's client, for all threads; it turns failures into our errors and retries transient
    ones.

    Args:
        uri: A server's address; None for none.
        folder: The path of a folder; None for none. Without either, Chroma runs in memory.
        options: Further arguments of Chroma's client.
        timeout_s: How long a server may be silent, in seconds.
    """

    def __init__(self, uri: str | None, folder: str | None, options: Any, timeout_s: float) -> None:
        if uri is not None and folder is not None:
            raise ConfigError(
                f"chromadb takes either uri or dir; got uri={uri!r} and dir={folder!r}. Give one of"
                " them."
            )
        names = _LOCAL_KWARGS if uri is None else _SERVER_KWARGS
        self._options = validate_mapping("client_kwargs", {} if options is None else options, names)
        self.uri = None if uri is None else server_address(uri, self._options.get("ssl"))
        # One spelling for each folder: Chroma shares open ones by their path.
        self.folder: str | None = None
        if folder is not None:
            expanded = os.path.expanduser(folder)  # noqa: PTH111
            self.folder = os.path.realpath(expanded)
        self.address = self.uri or self.folder or "memory"
        self.prefix = ""
        self._timeout_s = timeout_s
        self._client: Any = None
        self._lock = threading.Lock()

    def open(self) -> None:
        """Connect, unless connected."""
        with self._lock:
            if self._client is None:
                chromadb = _chromadb()
                try:
                    self._client = self._connect(chromadb)
                except LazyRAGError:
                    raise
                except Exception as exc:  # Chroma raises ValueError and bare Exceptions, too
                    shared = chromadb.api.client.SharedSystemClient  # it keeps what did not start
                    if not shared._identifier_to_refcount.get(self.folder):
                        shared._identifier_to_system.pop(self.folder, None)
                    if "database" in str(exc) and self._error_class(exc) is StoreDamagedError:
                        raise self._error(exc) from exc
                    raise self._unreachable(exc) from exc
                # There is one Chroma in memory for the whole process: a prefix separates stores.
                self.prefix = f"m{uuid.uuid4().hex}_" if self.address == "memory" else ""

    def close(self) -> None:
        """Close the client and its HTTP sessions. What lies in memory is lost."""
        with self._lock:
            client = self._client
            self._client = None
            if client is not None:
                if self.prefix:
                    for collection in client.list_collections():
                        if collection.name.startswith(self.prefix):
                            client.delete_collection(collection.name)
                sessions = _sessions(client)
                client.close()
                for session in sessions:
                    session.close()

    def run(self, action: Callable[[Any], T]) -> T:
        """Run an idempotent action on Chroma's client, with retries.

        Raises:
            CollectionGoneError: If there is no such collection.
            StoreConnectionError: If Chroma cannot be reached, or is still busy after some tries.
            StoreError: If it fails otherwise, or the connection is closed.
        """
        tries = 0
        while True:
            client = self._client
            if client is None:
                raise StoreError("The store is closed. Open it first.", store=_STORE)
            try:
                return action(client)
            except LazyRAGError:
                raise
            except Exception as exc:  # as above
                pause_s = _pause_s(exc, tries)
                if pause_s is None:
                    raise self._error(exc) from exc
            time.sleep(pause_s)
            tries += 1

    def _connect(self, chromadb: Any) -> Any:
        options = dict(self._options)
        settings = _settings(chromadb, options.pop("settings", None))
        if self.folder is not None:
            return chromadb.PersistentClient(path=self.folder, settings=settings, **options)
        if self.uri is None:
            return chromadb.EphemeralClient(settings=settings, **options)
        options.pop("ssl", None)  # it is in the address
        verify = settings.chroma_server_ssl_verify
        httpx = _httpx()
        limits = httpx.Timeout(self._timeout_s, connect=min(self._timeout_s, _CONNECT_S))
        # The constructor of Chroma's client has no timeout: this request detects a silent server
        # before.
        httpx.get(
            f"{self.uri}/api/v2/heartbeat",
            timeout=limits,
            verify=True if verify is None else verify,
        )
        client = chromadb.HttpClient(
            host=self.uri, ssl=self.uri.startswith("https"), settings=settings, **options
        )
        for session in _sessions(client):
            session.timeout = limits
            session.event_hooks = {"response": [_raise_for_status]}
        return client

    def _error(self, exc: Exception) -> StoreError:
        errors = _chromadb().errors
        if _is_caused_by(exc, errors.NotFoundError):
            return CollectionGoneError(f"Chroma at {self.address}: {exc}", store=_STORE)
        is_refused = _is_caused_by(exc, errors.AuthorizationError, errors.ChromaAuthError)
        if is_refused or _is_network(exc):
            return self._unreachable(exc)
        msg = f"The request to Chroma at {self.address} failed: {_describe(exc)}"
        return self._error_class(exc)(msg, store=_STORE)

    def _error_class(self, exc: Exception) -> type[StoreError]:
        is_damaged = self.folder is not None and is_damage(_describe(exc))
        return StoreDamagedError if is_damaged else StoreError

    def _unreachable(self, exc: Exception) -> StoreConnectionError:
        if self.uri is None:
            advice = (
                "Check that it is a folder of Chroma's, or an empty one, that this program may"
                " write to."
            )
        else:
            advice = (
                "Check the uri and that the server runs: chroma run --path FOLDER. client_kwargs"
                " may name a tenant, a database, headers."
            )
        if _is_caused_by(exc, _httpx().TimeoutException):
            advice = f"It was silent for timeout_s={self._timeout_s:g}. {advice}"
        msg = (
            f"Cannot use the vector store 'chromadb' at {self.address!r}: {_describe(exc)} {advice}"
        )
        return StoreConnectionError(msg, store=_STORE)


def server_address(uri: Any, ssl: Any = None) -> str:
    """Format spec 001's ``ip:port``, or a URL, as ``scheme://host:port``, perhaps with a path.

    Example:
        >>> server_address("localhost:8000")
        'http://localhost:8000'
    """
    needed = (
        'such as "localhost:8000" or "https://host:8000", without credentials, query or fragment'
    )
    if not isinstance(uri, str):
        raise ConfigError(
            f"The uri of chromadb must be an address {needed}; got a {type(uri).__name__}."
        )
    url = uri.strip()
    if "://" not in url:
        url = ("https://" if ssl else "http://") + url
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" and not ssl else 8000)
    except ValueError:
        parts = urllib.parse.urlsplit("")
    if (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        or any(mark in url for mark in "@?# \t\n\\")
    ):
        address = public_url(uri)
        raise ConfigError(f"The uri of chromadb must be an address {needed}; got {address!r:.200}.")
    if ssl is not None and bool(ssl) != (parts.scheme == "https"):
        raise ConfigError(
            f"The uri of chromadb is {uri!r:.200}, and client_kwargs has ssl={ssl!r}. Leave ssl"
            " out."
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"


def _chromadb() -> Any:
    with optional_package("The vector store 'chromadb'", "chroma"):
        import chromadb  # most of a second
    return chromadb


def _httpx() -> Any:
    import httpx  # the one that chromadb uses

    return httpx


def _sessions(client: Any) -> list[Any]:
    """The HTTP clients inside Chroma's client, which sets no timeouts and does not close them; none
    in process.
    """
    servers = (client._server, client._admin_client._server)
    return [server._session for server in servers if hasattr(server, "_session")]


def _settings(chromadb: Any, values: Any) -> Any:
    """Chroma's settings, without telemetry."""
    kind = chromadb.config.Settings
    owner = "client_kwargs['settings'] of chromadb"
    values = validate_mapping(owner, {} if values is None else values, kind.model_fields)
    try:
        return kind(**{**values, "anonymized_telemetry": False})
    except ValueError as exc:
        raise ConfigError(f"{owner} is invalid: {exc}") from exc


def _raise_for_status(response: Any) -> None:
    """Raise for a transient status: Chroma's client drops those of proxies, and their
    ``Retry-After``.
    """
    if response.status_code in TRANSIENT_STATUSES:
        wait = response.headers.get("Retry-After", "")
        raise _RetryLaterError(response.status_code, float(wait) if wait.isdecimal() else 0.0)


_NO_INDEX = "hnsw segment reader: Nothing found on disk"
"""Chroma's error for a query that comes while the first index of a collection is written."""


def _pause_s(exc: Exception, tries: int) -> float | None:
    """How long to wait before the next try, in seconds; None where there should be none."""
    may_pass = _is_network(exc) or _NO_INDEX in str(exc)
    if tries == _RETRIES or not may_pass:
        return None
    if _is_caused_by(exc, _httpx().TimeoutException):
        return None  # it has taken long enough, and the server is busy
    wait_s = next(
        (cause.wait_s for cause in _causes(exc) if isinstance(cause, _RetryLaterError)), 0.0
    )
    return None if wait_s > _MAX_PAUSE_S else wait_s + backoff_s(tries)


def _is_network(exc: Exception) -> bool:
    return _is_caused_by(
        exc, _RetryLaterError, _httpx().TransportError, _chromadb().errors.RateLimitError
    )


def _is_caused_by(exc: Exception, *kinds: type[Exception]) -> bool:
    return any(isinstance(cause, kinds) for cause in _causes(exc))


def _causes(exc: BaseException) -> Iterator[BaseException]:
    """An error and those behind it; Chroma's client wraps the first one in texts of its own."""
    cause: BaseException | None = exc
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _describe(exc: Exception) -> str:
    """A sentence about an error and the one that caused it."""
    first = list(_causes(exc))[-1]
    text = (
        str(exc) if first is exc or not str(first) else f"{exc} ({type(first).__name__}: {first})"
    )
    return sentence(text.strip() or type(exc).__name__)
