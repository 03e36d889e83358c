"""The client of OpenSearch: requests and errors."""

from __future__ import annotations

import inspect
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeVar

from lazyrag.errors import ConfigError, StoreConnectionError, StoreError, optional_package, sentence
from lazyrag.stores.protocol import TRANSIENT_STATUSES, backoff_s
from lazyrag.types import JsonObject, Keywords
from lazyrag.validation import (
    is_list_of,
    require,
    validate_integer,
    validate_mapping,
    validate_number,
)

T = TypeVar("T")

STORE: Final = "opensearch"
FIRST_PAUSE_S = 0.2
"""Pause before the second try; it doubles."""
MAX_IN_FLIGHT = 4
"""Bulk requests at once, to a server that is not busy."""


def parse_addresses(uris: Any) -> tuple[str, ...]:
    """The addresses of a cluster's nodes, with a scheme.

    Example:
        >>> parse_addresses("localhost:9200")
        ('http://localhost:9200',)
    """
    listed = [uris] if isinstance(uris, str) else uris
    is_valid = is_list_of(listed, str) and bool(listed) and all(listed)
    require(is_valid, "uris", uris, "an address such as 'localhost:9200', or a list of them")
    return tuple(uri if "://" in uri else f"http://{uri}" for uri in listed)


def dump_json(document: JsonObject) -> str:
    """A document with arrays of numbers, as JSON: 18 times as fast as by `json`."""
    import orjson

    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY).decode()


_RETRIES = 5
_WAIT_S = 120.0  # longer than a node takes to restart
_TIMEOUT_S = 30.0
_BUSY = 429  # status
# Of documents whose shard is not there yet, after a restart, and of searches on a node that is
# lost, which have status 500, and sometimes no other cause.
_RECOVERING = (
    "illegal_index_shard_state_exception",
    "no_shard_available_action_exception",
    "node_closed_exception",
    "node_disconnected_exception",
    "node_not_connected_exception",
    "search_phase_execution_exception",
)
_UNREACHABLE = (ConnectionRefusedError, socket.gaierror, TimeoutError)
# open ones; opensearch-py's 10 are fewer than the threads that a Document may have
_CONNECTIONS = 16
_WHERE = "the kwargs of the store 'opensearch'"


class OpenSearchConnection:
    """Connections to the nodes of one cluster, for all threads.

    Args:
        uris: Addresses.
        client_kwargs: Keywords of opensearch-py's client, and ``user`` with ``password``.

    Raises:
        ConfigError: If a keyword is unknown, or does not go with another one.
        MissingDependencyError: If opensearch-py or orjson is not installed.
    """

    def __init__(self, uris: Sequence[str], client_kwargs: Keywords) -> None:
        with optional_package("The store 'opensearch'", "opensearch"):
            import opensearchpy
            import orjson  # noqa: F401  writes vectors
        self._library: Any = opensearchpy
        options = {"timeout": _TIMEOUT_S, "pool_maxsize": _CONNECTIONS, **client_kwargs}
        self.retries = validate_integer(
            "client_kwargs['max_retries']", options.pop("max_retries", _RETRIES), 0
        )
        self.wait_s = validate_number(
            "client_kwargs['wait_s']",
            options.pop("wait_s", _WAIT_S),
            "a number >= 0",
            lambda seconds: seconds >= 0,
        )
        self.timeout_s = options["timeout"]
        options = _with_credentials(options)
        validate_mapping(
            f"client_kwargs of {_WHERE}", options, _client_keywords(opensearchpy, options)
        )
        try:
            # Its own retries do not pause.
            self._client = self._library.OpenSearch(hosts=list(uris), max_retries=0, **options)
        except (self._library.ImproperlyConfigured, ValueError, TypeError, OSError) as exc:
            raise ConfigError(
                f"opensearch-py does not accept {_WHERE}: {sentence(exc)} Correct its uris and"
                " client_kwargs."
            ) from exc
        self._nodes = len(uris)
        self.in_flight = MAX_IN_FLIGHT
        self.name = ", ".join(
            dict.fromkeys(connection.host for connection in self._client.transport.seed_connections)
        )

    def run(self, request: Callable[[Any], T], *, collection: str = "", wait_s: float = 0.0) -> T:
        """Run an idempotent request on the client, with retries.

        It is retried after a transient status and a broken connection, and on another node where
        one is not reached; not after a timeout: a slow server still has the request.

        Args:
            request: The request.
            collection: For messages.
            wait_s: For how many seconds it is retried at least, also where no node is reached.

        Raises:
            StoreConnectionError: If the server is not reached, refuses the user, or does not answer
                in time.
            StoreError: If it answers with an error.
        """
        library = self._library
        deadline = time.monotonic() + wait_s
        tries = 0
        while True:
            try:
                return request(self._client)
            except library.SerializationError as exc:
                raise StoreConnectionError(
                    f"The server at {self.name} is not OpenSearch: {sentence(exc)} Correct"
                    f" the uris in {_WHERE}.",
                    store=STORE,
                    collection=collection,
                ) from exc
            except library.TransportError as exc:
                has_tries = tries < self.retries and self._may_reach(exc, tries)
                has_time = time.monotonic() < deadline
                if not self._is_transient(exc) or not (has_tries or has_time):
                    self._raise(exc, collection)
                if exc.status_code == _BUSY:
                    self.reduce_in_flight()
            time.sleep(backoff_s(tries, FIRST_PAUSE_S))
            tries += 1

    def reduce_in_flight(self) -> None:
        """Halve the number of concurrent bulk requests: the server is busy."""
        self.in_flight = max(1, self.in_flight // 2)

    def read(self, client: Any, collection: str, keys: Sequence[str]) -> Any:
        """The answer for each of some keys; a request for `run`, also where a shard recovers."""
        # Complete documents: leaving a part out takes OpenSearch longer than sending it.
        documents = client.mget(index=collection, body={"ids": keys})["docs"]
        for document in documents:
            kind = document.get("error", {}).get("type")
            if kind in _RECOVERING:
                raise self._library.TransportError(503, kind, document)
        return documents

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _is_transient(self, fault: Any) -> bool:
        library = self._library
        if isinstance(fault, (library.ConnectionTimeout, library.SSLError)):
            return False
        is_lost = isinstance(fault, library.ConnectionError)
        is_recovering = _reason(fault.info).startswith(_RECOVERING)
        return is_lost or is_recovering or fault.status_code in TRANSIENT_STATUSES

    def _may_reach(self, fault: Any, tries: int) -> bool:
        """Whether the next try may reach a node: after an unreachable one it goes to another."""
        if not isinstance(fault, self._library.ConnectionError):
            return True
        return not isinstance(_first_cause(fault.info), _UNREACHABLE) or tries + 1 < self._nodes

    def _raise(self, fault: Any, collection: str) -> NoReturn:
        library = self._library
        if isinstance(fault, library.ConnectionTimeout):
            msg = (
                f"OpenSearch at {self.name} did not answer within timeout={self.timeout_s} s."
                f" Check its load, or raise 'timeout' in client_kwargs of {_WHERE}."
            )
        elif isinstance(fault, library.ConnectionError):
            msg = (
                f"Cannot reach OpenSearch at {self.name}: {sentence(_first_cause(fault.info))}"
                f" Start it, or correct the uris in {_WHERE}."
            )
        elif fault.status_code in (401, 403):
            msg = (
                f"OpenSearch at {self.name} refuses this user ({fault.status_code}:"
                f" {_reason(fault.info)}) Give 'user' and 'password' of one with the rights for it"
                f" in the client_kwargs of {_WHERE}."
            )
        elif fault.status_code in TRANSIENT_STATUSES:
            msg = (
                f"OpenSearch at {self.name} is overloaded or starting: it failed at"
                f" {self.retries + 1} tries ({fault.status_code}: {_reason(fault.info)}) Try again"
                " later."
            )
        elif fault.status_code == 404 and fault.error == "index_not_found_exception":
            raise no_collection(collection) from fault
        else:
            msg = f"OpenSearch at {self.name} answered {fault.status_code}: {_reason(fault.info)}"
            raise StoreError(msg, store=STORE, collection=collection) from fault
        raise StoreConnectionError(msg, store=STORE, collection=collection) from fault


def no_collection(collection: str) -> StoreError:
    """The error for a collection that does not exist."""
    return StoreError(
        f"There is no collection {collection!r}. Create it first.",
        store=STORE,
        collection=collection,
    )


def row_error(collection: str, key: str, error: Mapping[str, Any]) -> StoreError:
    """The error for one row of a request of many."""
    if error.get("type") == "index_not_found_exception":
        return no_collection(collection)
    msg = (
        f"OpenSearch refuses row {key!r} of collection {collection!r}: {_reason({'error': error})}"
    )
    return StoreError(msg, store=STORE, collection=collection)


def raise_for_shards(collection: str, answer: Mapping[str, Any]) -> None:
    """Raise a StoreError if a shard has failed: the answer is incomplete."""
    shards = answer["_shards"]
    if shards["failed"]:
        reason = "; ".join(
            _reason(failure.get("reason")) for failure in shards.get("failures", ())[:1]
        )
        msg = (
            f"{shards['failed']} of {shards['total']} shards of collection {collection!r} failed."
            f" {reason}"
        )
        raise StoreError(msg.strip(), store=STORE, collection=collection)


def _with_credentials(options: Keywords) -> dict[str, Any]:
    """Spec 001's ``user`` and ``password`` as opensearch-py takes them."""
    rest = {name: value for name, value in options.items() if name not in ("user", "password")}
    if len(rest) == len(options):
        return rest
    user = options.get("user")
    password = options.get("password")
    if not isinstance(user, str) or not isinstance(password, str) or "http_auth" in options:
        raise ConfigError(
            f"client_kwargs of {_WHERE} takes 'user' and 'password', both of them texts, or"
            " 'http_auth' instead."
        )
    return {**rest, "http_auth": (user, password)}


def _client_keywords(library: Any, options: Keywords) -> set[str]:
    """The keywords that opensearch-py uses; it ignores others, such as a misspelt
    ``verify_certs``.
    """
    transport = options.get("transport_class", library.Transport)
    connection = options.get("connection_class", library.Urllib3HttpConnection)
    pool = options.get("connection_pool_class", library.ConnectionPool)
    takers = (library.OpenSearch, transport, connection, *connection.__mro__[1:-1], pool)
    names = {"user", "password"}.union(*(inspect.signature(taker).parameters for taker in takers))
    return names - {"self", "hosts", "kwargs", "connections"}


def _reason(info: Any) -> str:
    """The server's reason, as a sentence."""
    error = info.get("error", info) if isinstance(info, Mapping) else info
    if isinstance(error, Mapping):
        root = [*error.get("root_cause", ()), error][0]
        error = f"{root.get('type')}: {root.get('reason')}"
    return sentence(str(error).strip()[:500] or "no reason given")


def _first_cause(fault: BaseException) -> BaseException:
    """The first error of a chain: urllib3 wraps the operating system's in errors that name objects
    by their address.
    """
    while (inner := fault.__cause__ or fault.__context__) is not None:
        fault = inner
    return fault
