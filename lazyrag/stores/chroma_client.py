"""Chroma's client: opened, closed, asked again after trouble that passes. The one place that imports chromadb."""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lazyrag.errors import ConfigError, LazyRAGError, StoreConnectionError, StoreError, known_names, missing_package

T = TypeVar("T")

STORE = "chromadb"

_RETRIES = 3
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0  # before the second try, doubling; of each a random half is waited
_PASSING = frozenset({429, 502, 503, 504})  # what servers and proxies say when a later try may succeed
_CONNECT_S = 10.0
_LOCAL_KWARGS = ("database", "settings", "tenant")
_SERVER_KWARGS = ("database", "headers", "settings", "ssl", "tenant")


class CollectionGoneError(StoreError):
    """Chroma knows no collection of that name or number, or no longer."""


class _PassingError(Exception):
    """A server or a proxy has answered that it may answer later.

    Args:
        status: The HTTP status.
        wait_s: How long it asks to wait, in seconds; 0 where it does not say.
    """

    def __init__(self, status: int, wait_s: float) -> None:
        super().__init__(f"HTTP {status}")
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True)
class Place:
    """Where a Chroma lies, checked.

    Args:
        uri: A server's address; None for none.
        folder: The path of a folder; None for none. Without either it lies in memory.
        options: Further arguments of Chroma's client.
        timeout_s: How long a server may be silent, in seconds.

    Raises:
        ConfigError: If they do not fit together, or an option is unknown.

    Example:
        >>> Place("localhost:8000").uri, str(Place(None, None))
        ('http://localhost:8000', 'memory')
    """

    uri: str | None = None
    folder: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if self.uri is not None and self.folder is not None:
            msg = f"chromadb got uri={self.uri!r} for a server and dir={self.folder!r} for a folder. Give one of them."
            raise ConfigError(msg)
        known = _LOCAL_KWARGS if self.uri is None else _SERVER_KWARGS
        if not isinstance(self.options, Mapping):
            raise ConfigError(f"client_kwargs is {self.options!r:.200}; give a mapping.")
        for name in self.options:
            if name not in known:
                msg = f"client_kwargs of chromadb has the key {name!r}. {known_names(str(name), known)}"
                raise ConfigError(msg)
        if self.uri is not None:
            object.__setattr__(self, "uri", _address(self.uri, self.options.get("ssl")))
        if self.folder is not None:
            # One spelling for each folder: Chroma shares what it has open by it.
            object.__setattr__(self, "folder", os.path.realpath(os.path.expanduser(self.folder)))  # noqa: PTH111

    def __str__(self) -> str:
        return self.uri or self.folder or "memory"


class Connection:
    """A client of Chroma at a place, for all threads.

    Every failure of it becomes one of our errors. What a server could not do in a moment of trouble is tried again:
    all that stores ask for may be done twice.

    Args:
        place: Where.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.prefix = ""
        self._client: Any = None
        self._lock = threading.Lock()

    def open(self) -> None:
        """Connect, unless it is connected.

        Raises:
            StoreConnectionError: If it cannot be reached.
            MissingDependencyError: If chromadb is not installed.
        """
        with self._lock:
            if self._client is None:
                chromadb = _chromadb()
                try:
                    self._client = self._opened(chromadb)
                except LazyRAGError:
                    raise
                except Exception as exc:  # Chroma raises ValueError and bare Exceptions, too
                    raise self._unreachable(exc) from exc
                # All that lies in memory is one Chroma for the whole process: names of our own keep stores apart.
                self.prefix = f"m{uuid.uuid4().hex}_" if str(self.place) == "memory" else ""

    def close(self) -> None:
        """Let go of it; what lies in memory is gone."""
        with self._lock:
            client, self._client = self._client, None
            if client is not None:
                if self.prefix:
                    for one in client.list_collections():
                        if one.name.startswith(self.prefix):
                            client.delete_collection(one.name)
                sessions = _sessions(client)
                client.close()
                for session in sessions:
                    session.close()

    def run(self, action: Callable[[Any], T]) -> T:
        """What an action on Chroma's client returns.

        Args:
            action: Gets the client; it does nothing that must not be done twice.

        Raises:
            CollectionGoneError: If there is no such collection.
            StoreConnectionError: If Chroma cannot be reached, or has no time for us, after some tries.
            StoreError: If it fails otherwise, or the connection is closed.
        """
        for retry in itertools.count(1):
            client = self._client
            if client is None:
                raise StoreError("The store is closed. Open it first.", store=STORE)
            try:
                return action(client)
            except LazyRAGError:
                raise
            except Exception as exc:  # as above
                pause_s = _pause_s(exc, retry)
                if pause_s is None:
                    raise self._error(exc) from exc
            time.sleep(pause_s)
        raise AssertionError  # pragma: no cover  the count has no end

    def _opened(self, chromadb: Any) -> Any:
        place, options = self.place, dict(self.place.options)
        settings = _settings(chromadb, options.pop("settings", None))
        if place.uri is None:
            if place.folder is None:
                return chromadb.EphemeralClient(settings=settings, **options)
            return chromadb.PersistentClient(path=place.folder, settings=settings, **options)
        options.pop("ssl", None)  # it is in the address
        verify = settings.chroma_server_ssl_verify
        httpx = _httpx()
        limits = httpx.Timeout(place.timeout_s, connect=min(place.timeout_s, _CONNECT_S))
        # Chroma's client waits for ever while it is being made; so a silent server is found out before.
        httpx.get(f"{place.uri}/api/v2/heartbeat", timeout=limits, verify=True if verify is None else verify)
        client = chromadb.HttpClient(host=place.uri, ssl=place.uri.startswith("https"), settings=settings, **options)
        for session in _sessions(client):
            session.timeout = limits
            session.event_hooks = {"response": [_check_status]}
        return client

    def _error(self, exc: Exception) -> StoreError:
        if any(isinstance(one, _chromadb().errors.NotFoundError) for one in _causes(exc)):
            return CollectionGoneError(f"Chroma at {self.place}: {exc}", store=STORE)
        if _is_network(exc) or any(isinstance(one, _no_access()) for one in _causes(exc)):
            return self._unreachable(exc)
        msg = f"Chroma at {self.place} could not do what was asked: {_told(exc)}"
        return StoreError(msg, store=STORE)

    def _unreachable(self, exc: Exception) -> StoreConnectionError:
        if self.place.uri is None:
            advice = "Check that it is a folder of Chroma's, or an empty one, that this program may write to."
        else:
            advice = (
                "Check the uri and that the server runs: chroma run --path FOLDER. client_kwargs may name a tenant, a "
            )
            advice += "database, headers."
        if any(isinstance(one, _httpx().TimeoutException) for one in _causes(exc)):
            advice = f"It was silent for timeout_s={self.place.timeout_s:g}. " + advice
        msg = f"Cannot work with the vector store 'chromadb' at {str(self.place)!r}: {_told(exc)} {advice}"
        return StoreConnectionError(msg, store=STORE)


def _chromadb() -> Any:
    try:
        import chromadb  # most of a second
    except ModuleNotFoundError as exc:
        raise missing_package("The vector store 'chromadb'", exc, "chroma") from exc
    return chromadb


def _httpx() -> Any:
    import httpx  # what chromadb itself uses

    return httpx


def _sessions(client: Any) -> list[Any]:
    """The HTTP clients of Chroma's client, which neither limits their time nor closes them; none in process."""
    servers = (client._server, client._admin_client._server)
    return [server._session for server in servers if hasattr(server, "_session")]


def _settings(chromadb: Any, given: Any) -> Any:
    """Chroma's settings, without telemetry."""
    kind = chromadb.config.Settings
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"client_kwargs['settings'] of chromadb is {given!r:.200}; give a mapping.")
    for name in given:
        if name not in kind.model_fields:
            known = known_names(str(name), kind.model_fields)
            raise ConfigError(f"client_kwargs['settings'] of chromadb has the key {name!r}. {known}")
    try:
        return kind(**{**given, "anonymized_telemetry": False})
    except ValueError as exc:
        raise ConfigError(f"client_kwargs['settings'] of chromadb is not right: {exc}") from exc


def _address(uri: Any, ssl: Any) -> str:
    """``scheme://host:port``, perhaps with a path, of spec 001's ``ip:port``."""
    needed = 'give one such as "localhost:8000" or "https://host:8000", without credentials, query or fragment'
    if not isinstance(uri, str):
        raise ConfigError(f"The uri of chromadb is {type(uri).__name__}; {needed}.")
    url = uri.strip()
    if "://" not in url:
        url = ("https://" if ssl else "http://") + url
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" and not ssl else 8000)
    except ValueError:
        parts = urllib.parse.urlsplit("")
    is_fine = parts.scheme in {"http", "https"} and parts.hostname and not any(mark in url for mark in "@?# \t\n\\")
    if not is_fine:
        shown = uri.partition("?")[0].partition("#")[0].rpartition("@")[2]
        raise ConfigError(f"The uri of chromadb is {shown!r:.200}; {needed}.")
    if ssl is not None and bool(ssl) != (parts.scheme == "https"):
        raise ConfigError(f"The uri of chromadb is {uri!r:.200}, and client_kwargs has ssl={ssl!r}. Leave ssl out.")
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"


def _check_status(response: Any) -> None:
    """Chroma's client forgets the status of answers that are not its own server's, and what they ask for."""
    if response.status_code in _PASSING:
        asked = response.headers.get("Retry-After", "")
        raise _PassingError(response.status_code, float(asked) if asked.isdecimal() else 0.0)


def _pause_s(exc: Exception, retry: int) -> float | None:
    """How long to wait before trying again, in seconds; None where that is of no use."""
    if retry > _RETRIES or not _is_network(exc):
        return None
    if any(isinstance(one, _httpx().TimeoutException) for one in _causes(exc)):
        return None  # it has taken long enough, and the server has enough to do
    asked = next((one.wait_s for one in _causes(exc) if isinstance(one, _PassingError)), 0.0)
    if asked > _LONGEST_PAUSE_S:
        return None
    return asked + _FIRST_PAUSE_S * 2.0 ** (retry - 1) * random.uniform(0.5, 1.0)  # noqa: S311  no secret


def _is_network(exc: Exception) -> bool:
    kinds = (_PassingError, _httpx().TransportError, _chromadb().errors.RateLimitError)
    return any(isinstance(one, kinds) for one in _causes(exc))


def _no_access() -> tuple[type[Exception], ...]:
    errors = _chromadb().errors
    return errors.AuthorizationError, errors.ChromaAuthError


def _causes(exc: BaseException) -> Iterator[BaseException]:
    """An error and those behind it; Chroma's client puts its own texts before them."""
    seen: BaseException | None = exc
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _told(exc: Exception) -> str:
    """What happened, as a sentence, from the first error on."""
    first = list(_causes(exc))[-1]
    told = str(exc) if first is exc or not str(first) else f"{exc} ({type(first).__name__}: {first})"
    return (told.strip() or type(exc).__name__).rstrip(".") + "."
