"""A connection to OpenSearch: tried again while trouble may pass, its errors told as ours.

The one place that imports opensearch-py.
"""

from __future__ import annotations

import inspect
import random
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeVar

from lazyrag.errors import ConfigError, StoreConnectionError, StoreError, known_names, missing_package, sentence
from lazyrag.validation import whole_number

T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0  # before the second try, doubling; of each at least half is waited
RETRIES = 5
TIMEOUT_S = 30.0
TRANSIENT = frozenset([429, 502, 503, 504])
"""Statuses of an answer after which the same may succeed a little later."""

STORE: Final = "opensearch"

_UNREACHABLE = (ConnectionRefusedError, socket.gaierror, TimeoutError)
_CONNECTIONS = 16  # that are kept open; opensearch-py's 10 are fewer than the threads that a Document may have
_WHERE = "store_conf['segment_store']['kwargs']"


def checked_addresses(uris: Any) -> tuple[str, ...]:
    """The addresses of a cluster's nodes, with a scheme.

    Raises:
        ConfigError: If there is none, or one is no text.

    Example:
        >>> checked_addresses("localhost:9200")
        ('http://localhost:9200',)
    """
    listed = [uris] if isinstance(uris, str) else uris
    if not isinstance(listed, (list, tuple)) or not listed or not all(isinstance(one, str) and one for one in listed):
        msg = f"uris is {uris!r}; give an address such as 'localhost:9200', or a list of them."
        raise ConfigError(msg)
    return tuple(one if "://" in one else f"http://{one}" for one in listed)


class Connection:
    """Connections to the nodes of one cluster; threads may share it.

    Args:
        uris: Checked addresses.
        client_kwargs: Keywords of opensearch-py's client, and ``user`` with ``password``. ``max_retries`` says how
            often a request is tried again, ``timeout`` how long the server may be silent, in seconds.

    Raises:
        ConfigError: If a keyword is unknown, or does not go with another one.
        MissingDependencyError: If opensearch-py is not installed.
    """

    def __init__(self, uris: Sequence[str], client_kwargs: Mapping[str, Any]) -> None:
        self._library = _library()
        options = {"timeout": TIMEOUT_S, "pool_maxsize": _CONNECTIONS, **client_kwargs}
        self._retries = whole_number("client_kwargs['max_retries']", options.pop("max_retries", RETRIES), 0)
        self._timeout_s = options["timeout"]
        options = _with_credentials(options)
        _check_known(self._library, options)
        try:
            # Its own retries know no pause.
            self._client = self._library.OpenSearch(hosts=list(uris), max_retries=0, **options)
        except (self._library.ImproperlyConfigured, ValueError, TypeError, OSError) as exc:
            msg = f"opensearch-py does not accept {_WHERE}: {sentence(exc)} Correct its uris and client_kwargs."
            raise ConfigError(msg) from exc
        self._nodes = len(uris)
        self.name = ", ".join(dict.fromkeys(one.host for one in self._client.transport.seed_connections))

    def ask(self, request: Callable[[Any], T], *, collection: str = "") -> T:
        """What a request answers.

        It is repeated, with pauses, after an answer that is among `TRANSIENT` and where a connection breaks, and asked
        of another node where one is not reached; not after a timeout: a server that is late has the request still.

        Args:
            request: From the client to its answer. It may be called several times.
            collection: What it is about, for messages.

        Raises:
            StoreConnectionError: If the server is not reached, refuses who asks, or does not answer in time.
            StoreError: If it answers with an error.
        """
        library, tries = self._library, 0
        while True:
            try:
                return request(self._client)
            except library.SerializationError as exc:
                msg = f"What answers at {self.name} is no OpenSearch: {sentence(exc)} Correct {_WHERE}['uris']."
                raise StoreConnectionError(msg, store=STORE, collection=collection) from exc
            except library.TransportError as exc:
                if tries == self._retries or not self._may_pass(exc, tries):
                    self._raise(exc, collection)
            pause(tries)
            tries += 1

    @property
    def retries(self) -> int:
        """How often a request is tried again."""
        return self._retries

    def close(self) -> None:
        """Let go of all connections."""
        self._client.close()

    def _may_pass(self, fault: Any, tries: int) -> bool:
        library = self._library
        if isinstance(fault, (library.ConnectionTimeout, library.SSLError)):
            return False
        if not isinstance(fault, library.ConnectionError):
            return fault.status_code in TRANSIENT
        # Nobody is there: the next try goes to another node, if there is one.
        return not isinstance(_innermost(fault.info), _UNREACHABLE) or tries + 1 < self._nodes

    def _raise(self, fault: Any, collection: str) -> NoReturn:
        library = self._library
        if isinstance(fault, library.ConnectionTimeout):
            msg = (
                f"OpenSearch at {self.name} did not answer within timeout={self._timeout_s} s. Look at what it is "
                f"doing, or raise {_WHERE}['client_kwargs']['timeout']."
            )
        elif isinstance(fault, library.ConnectionError):
            msg = (
                f"Cannot reach OpenSearch at {self.name}: {sentence(_innermost(fault.info))} Start it, or correct "
                f"{_WHERE}['uris']."
            )
        elif fault.status_code in (401, 403):
            msg = (
                f"OpenSearch at {self.name} refuses this user ({fault.status_code}: {_reason(fault.info)}) Give 'user' "
                f"and 'password' of one with the rights for it in {_WHERE}['client_kwargs']."
            )
        elif fault.status_code in TRANSIENT:
            msg = (
                f"OpenSearch at {self.name} is overloaded or starting, and was so at {self._retries + 1} tries "
                f"({fault.status_code}: {_reason(fault.info)}) Try again later."
            )
        elif fault.status_code == 404 and fault.error == "index_not_found_exception":
            raise missing_collection(collection) from fault
        else:
            msg = f"OpenSearch at {self.name} answered {fault.status_code}: {_reason(fault.info)}"
            raise StoreError(msg, store=STORE, collection=collection) from fault
        raise StoreConnectionError(msg, store=STORE, collection=collection) from fault


def pause(tries: int) -> None:
    """Wait before a request is made for the next time: twice as long as after the try before, and a share at random."""
    longest = min(FIRST_PAUSE_S * 2.0**tries, LONGEST_PAUSE_S)
    time.sleep(random.uniform(longest / 2, longest))  # noqa: S311  nobody is to guess it


def missing_collection(collection: str) -> StoreError:
    """The error for a collection that was never created."""
    return StoreError(f"There is no collection {collection!r}. Create it first.", store=STORE, collection=collection)


def item_error(collection: str, key: str, error: Mapping[str, Any]) -> StoreError:
    """The error for one row of a request of many."""
    if error.get("type") == "index_not_found_exception":
        return missing_collection(collection)
    msg = f"OpenSearch refuses row {key!r} of collection {collection!r}: {_reason({'error': error})}"
    return StoreError(msg, store=STORE, collection=collection)


def check_shards(collection: str, answer: Mapping[str, Any]) -> None:
    """Raise a StoreError if an answer is not that of all shards."""
    shards = answer["_shards"]
    if shards["failed"]:
        told = "; ".join(_reason(one.get("reason")) for one in shards.get("failures", ())[:1])
        msg = f"{shards['failed']} of {shards['total']} shards of collection {collection!r} failed. {told}"
        raise StoreError(msg.strip(), store=STORE, collection=collection)


def _with_credentials(options: Mapping[str, Any]) -> dict[str, Any]:
    """Spec 001's ``user`` and ``password`` as opensearch-py takes them."""
    rest = {name: value for name, value in options.items() if name not in ("user", "password")}
    if len(rest) == len(options):
        return rest
    user, password = options.get("user"), options.get("password")
    if not isinstance(user, str) or not isinstance(password, str) or "http_auth" in options:
        msg = f"{_WHERE}['client_kwargs'] takes 'user' and 'password', both of them texts, or 'http_auth' instead."
        raise ConfigError(msg)
    return {**rest, "http_auth": (user, password)}


def _check_known(library: Any, options: Mapping[str, Any]) -> None:
    """Refuse a keyword that nothing in opensearch-py takes: it would pass over a misspelt ``verify_certs``."""
    transport = options.get("transport_class", library.Transport)
    connection = options.get("connection_class", library.Urllib3HttpConnection)
    takers = (library.OpenSearch, transport, connection, *connection.__mro__[1:-1])
    takers = (*takers, options.get("connection_pool_class", library.ConnectionPool))
    known = {name for taker in takers for name in inspect.signature(taker).parameters}
    known = known - {"self", "hosts", "kwargs", "connections"} | {"user", "password"}
    for name in options:
        if name not in known:
            msg = f"{_WHERE}['client_kwargs'] has the key {name!r}. {known_names(str(name), known)}"
            raise ConfigError(msg)


def _reason(info: Any) -> str:
    """What the server says is wrong, as a sentence."""
    error = info.get("error", info) if isinstance(info, Mapping) else info
    if isinstance(error, Mapping):
        root = [*error.get("root_cause", ()), error][0]
        error = f"{root.get('type')}: {root.get('reason')}"
    return sentence(str(error).strip()[:500] or "no reason given")


def _innermost(fault: BaseException) -> BaseException:
    """What began it: urllib3 wraps an error of the operating system in errors that name objects by their address."""
    while (inner := fault.__cause__ or fault.__context__) is not None:
        fault = inner
    return fault


def _library() -> Any:
    try:
        import opensearchpy
    except ModuleNotFoundError as exc:
        raise missing_package("The store 'opensearch'", exc, "opensearch") from exc
    return opensearchpy
