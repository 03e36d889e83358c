"""Segment store on OpenSearch: shared between machines, with OpenSearch's own full-text search."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from lazyrag.data.fields import DataType, DocField, Schema, read_schema, schema_text
from lazyrag.data.filters import Condition, Filter, matches
from lazyrag.data.segment import (
    EMPTY,
    Location,
    ReadOnly,
    Segment,
    content_text,
    digest,
    key_build,
    key_uid,
)
from lazyrag.errors import (
    ConfigError,
    SchemaMismatchError,
    StoreConnectionError,
    StoreError,
    UnsupportedError,
    known_names,
    missing_package,
    sentence,
)
from lazyrag.stores.protocol import (
    LAYOUT,
    TRANSIENT_STATUSES,
    Feature,
    Pushed,
    StoreLocation,
    backoff_s,
    batches,
    check_deletion,
    check_layout,
    foreign_collection,
    push_down,
)
from lazyrag.text.analyzers import analysers, term_function
from lazyrag.types import Fields, FieldValue, Ranking, Scalar
from lazyrag.validation import (
    is_list_of,
    require,
    validate_choice,
    validate_integer,
    validate_mapping,
    validate_texts,
)

T = TypeVar("T")

_STORE: Final = "opensearch"
_DEFAULT_ANALYSERS = ("en", "zh")
_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,59}")
_IF_PRESENT = {"ignore_unavailable": "true"}
_COMPLETE = {"allow_partial_search_results": "false", "search_type": "dfs_query_then_fetch"}
_PAGE = 500  # rows of one request; OpenSearch gives 10,000 at most
_PASSES = 10  # over rows that others change while they are being deleted
_BULK_ROWS = 500
_BULK_CHARACTERS = 4_000_000  # of a request, unless a single row has more; servers take 100 MB
_BULK_RESULTS = "items.*.status,items.*.result,items.*.error"  # a quarter of a complete answer

Action: TypeAlias = "tuple[str, str]"
"""One row to write or delete: its key, and its lines of a bulk request, each with a line end."""


class OpenSearchSegmentStore:
    """Segment store on an OpenSearch cluster, with an index for each collection.

    `upsert` and `delete` return after a refresh: every other program sees the change. Beside the
    complete rows an index has the fields for filters and, for ``index="native"``, the terms of our
    analysers.

    Args:
        uris: Address of a node, or several: ``"localhost:9200"``,
            ``["https://a:9200", "https://b:9200"]``.
        client_kwargs: Arguments of opensearch-py's client (``use_ssl``, ``ca_certs``, ``timeout``
            ...), and ``user`` with ``password``; ``max_retries`` is how often a
            request is retried after a transient failure.
        index_kwargs: For new indexes: ``settings`` and ``mappings`` as OpenSearch takes them, the
            latter beside our own properties (``key``, ``segment``, ``present``, ``field``,
            ``whole``, ``terms``); ``analysers``, the names of those whose terms are indexed
            (``["en", "zh"]``; [] makes upserting faster and disables ``index="native"``).

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> sorted(OpenSearchSegmentStore("localhost:9200").features)
        ['native text', 'persistent', 'shared']
    """

    def __init__(
        self,
        uris: str | Sequence[str],
        client_kwargs: Mapping[str, Any] | None = None,
        index_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._uris = parse_addresses(uris)
        self._client_kwargs = dict(validate_mapping("client_kwargs", client_kwargs or {}))
        self._analysers, self._settings, self._mappings = _parse_index_kwargs(index_kwargs or {})
        self._lock = threading.Lock()
        self._connection: _Connection | None = None
        self._shapes: dict[str, Shape] = {}

    @property
    def features(self) -> frozenset[Feature]:
        """``native text`` unless there are no analysers."""
        shared: frozenset[Feature] = frozenset(["persistent", "shared"])
        return shared | {"native text"} if self._analysers else shared

    @property
    def location(self) -> StoreLocation:
        """See `Located.location`."""
        return StoreLocation(", ".join(self._uris), is_server=True)

    def open(self) -> None:
        """See `Store.open`.

        Raises:
            MissingDependencyError: If opensearch-py is not installed.
            ConfigError: If it does not accept client_kwargs.
            StoreConnectionError: If no node answers, or the user is refused.
        """
        with self._lock:
            if self._connection is not None:
                return
            connection = _Connection(self._uris, self._client_kwargs)
            try:
                connection.run(lambda client: client.info())
            except StoreError:
                connection.close()
                raise
            self._connection = connection

    def close(self) -> None:
        """See `Store.close`."""
        with self._lock:
            connection = self._connection
            self._connection = None
            self._shapes = {}
        if connection is not None:
            connection.close()

    def create(self, collection: str, schema: Schema) -> None:
        """See `SegmentStore.create`.

        Raises:
            SchemaMismatchError: Also if the index lacks the terms of an analyser, or was not made
                by this store.
        """
        requested = Shape(schema, self._analysers)
        shape = self._read_shape(collection)
        if shape is None:
            body = requested.body(self._settings, self._mappings) | {
                "aliases": {_alias(collection, requested): {}}
            }
            try:
                self._run(
                    collection, lambda client: client.indices.create(index=collection, body=body)
                )
                shape = requested
            except StoreError:
                # another program may have created it meanwhile
                shape = self._read_shape(collection)
                if shape is None:
                    raise
        _check_shape(collection, shape, requested)
        self._shapes[collection] = shape

    def collections(self, prefix: str) -> list[str]:
        """Names of the indexes that begin with a prefix, sorted."""
        answer = self._opened().run(
            lambda client: client.indices.get_alias(index=f"{prefix}*", params=_IF_PRESENT)
        )
        return sorted(answer)

    def drop(self, collection: str) -> None:
        """See `Store.drop`."""
        self._shapes.pop(collection, None)
        self._run(
            collection, lambda client: client.indices.delete(index=collection, params=_IF_PRESENT)
        )

    def count(self, collection: str) -> int:
        """See `Store.count`."""
        answer = self._run(collection, lambda client: client.count(index=collection))
        _raise_for_shards(collection, answer)
        return int(answer["count"])

    def upsert(self, collection: str, rows: Sequence[Segment]) -> None:
        """See `SegmentStore.upsert`.

        Raises:
            StoreError: If OpenSearch refuses rows; others of the call may have been written.
        """
        shape = self._shape(collection)
        encode = segment_encoder(shape)
        last = {row.key: row for row in rows}  # the last row of a repeated key counts
        self._write(
            collection, shape, (_index_action(key, encode(row)) for key, row in last.items())
        )

    def get(self, collection: str, keys: Sequence[str]) -> list[Segment]:
        """See `SegmentStore.get`."""
        segments: dict[str, Segment] = {}
        for some in batches(dict.fromkeys(keys), _PAGE):
            # Complete documents: leaving a part out takes OpenSearch longer than sending it.
            answer = self._run(
                collection,
                lambda client: client.mget(index=collection, body={"ids": some}),  # noqa: B023
            )
            for document in answer["docs"]:
                if "error" in document:
                    raise _row_error(collection, document["_id"], document["error"])
                if document["found"]:
                    segments[document["_id"]] = decode_segment(document["_source"])
        return [segments[key] for key in keys if key in segments]

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[Segment]:
        """See `SegmentStore.scan`."""
        hits = self._hits(collection, {}, after, min(_PAGE, limit))
        return [decode_segment(hit["_source"]) for hit in islice(hits, limit)]

    def delete(
        self, collection: str, *, keys: Sequence[str] | None = None, filter: Filter | None = None
    ) -> int:
        """See `SegmentStore.delete`.

        A row that another program changes between the search and the deletion is checked again.
        Where a request is retried after a broken connection, rows that the first try has deleted
        are not counted.
        """
        check_deletion(keys, filter)
        shape = self._shape(collection)
        if filter is None:
            return self._write(collection, shape, map(_delete_action, dict.fromkeys(keys or ())))[0]
        pushed = push_down(filter, FilterDialect(shape.schema))
        total = 0
        for _ in range(_PASSES):
            deleted, conflicts = self._write(collection, shape, self._deletions(collection, pushed))
            total += deleted
            if not conflicts:
                return total
        msg = (
            f"{conflicts} rows of collection {collection!r} were changed by others in each of"
            f" {_PASSES} attempts to delete them. Let one program write at a time."
        )
        raise StoreError(msg, store=_STORE, collection=collection)

    def search_text(
        self,
        collection: str,
        analyser: str,
        terms: Sequence[str],
        topk: int,
        filter: Filter | None = None,
    ) -> Ranking:
        """See `NativeText.search_text`. Its statistics are those of all shards, with deleted rows
        until a merge.
        """
        topk = validate_integer("topk", topk, 1)
        shape = self._shape(collection)
        if analyser not in shape.analysers:
            msg = (
                f"Collection {collection!r} indexes no terms of the analyser {analyser!r}."
                f" {known_names(analyser, shape.analysers)} Name it in index_kwargs['analysers']"
                " and build the group anew, or use index='default'."
            )
            raise UnsupportedError(msg, store=_STORE, collection=collection)
        if not terms:
            return []
        pushed = push_down(filter, FilterDialect(shape.schema))
        query: Query = {"must": [{"match": {f"{_TERMS}.{analyser}": {"query": join_terms(terms)}}}]}
        body = {
            "query": {
                "bool": query | ({} if pushed.native is None else {"filter": [pushed.native]})
            },
            "sort": [{"_score": "desc"}, {_KEY: "asc"}],
            "_source": pushed.rest is not None,
        }
        hits = self._hits(collection, body, page=min(topk, _PAGE) if pushed.rest is None else _PAGE)
        return [(hit["_id"], hit["_score"]) for hit in islice(_matching(hits, pushed.rest), topk)]

    def _write(self, collection: str, shape: Shape, actions: Iterable[Action]) -> tuple[int, int]:
        """Run actions on different keys, and refresh the index.

        Returns:
            The numbers of deleted rows, and of conflicts: rows that others have changed since they
            were read.

        Raises:
            StoreError: If an action fails; others of the call may have been run.
        """
        alias = _alias(collection, shape)
        deleted = conflicts = 0
        try:
            for batch in batches(
                actions, _BULK_ROWS, _BULK_CHARACTERS, lambda action: len(action[1])
            ):
                results = self._bulk(collection, alias, batch)
                deleted += results.count("deleted")
                conflicts += results.count("conflict")
            _raise_for_shards(
                collection,
                self._run(collection, lambda client: client.indices.refresh(index=collection)),
            )
        except StoreError:
            self._shapes.pop(collection, None)  # the index may be another one by now
            raise
        return deleted, conflicts

    def _bulk(self, collection: str, alias: str, actions: Sequence[Action]) -> list[str]:
        """The results of actions in one request; those that a busy server rejects are retried.

        The alias is required: else OpenSearch would create a missing index.
        """
        retries = self._opened().retries
        params = {"require_alias": "true", "filter_path": _BULK_RESULTS}
        results: list[str] = []
        for tries in range(retries + 1):
            body = "".join(lines for _, lines in actions)
            answer = self._run(
                collection,
                lambda client: client.bulk(index=alias, body=body, params=params),  # noqa: B023
            )
            rejected = []
            for action, item in zip(actions, answer["items"], strict=True):
                [result] = item.values()
                error = result.get("error")
                if result["status"] in TRANSIENT_STATUSES and tries < retries:
                    rejected.append(action)
                elif error is None:
                    results.append(str(result["result"]))
                elif result["status"] == 409:
                    results.append("conflict")
                else:
                    raise _row_error(collection, action[0], error)
            if not rejected:
                break
            actions = rejected
            time.sleep(backoff_s(tries, FIRST_PAUSE_S))
        return results

    def _deletions(self, collection: str, pushed: Pushed[Query]) -> Iterator[Action]:
        """Deletions of the rows that meet a filter, each only if the row has not changed since."""
        body = {
            "query": pushed.native or {"match_all": {}},
            "_source": pushed.rest is not None,
            "seq_no_primary_term": True,
        }
        for hit in _matching(self._hits(collection, body), pushed.rest):
            yield _delete_action(
                hit["_id"], {"if_seq_no": hit["_seq_no"], "if_primary_term": hit["_primary_term"]}
            )

    def _hits(
        self, collection: str, body: Mapping[str, Any], after: str = "", page: int = _PAGE
    ) -> Iterator[dict[str, Any]]:
        """The hits of a search, in the order of keys or of the body's own; fetched lazily, page by
        page.
        """
        request = {"sort": [{_KEY: "asc"}], "size": page, "track_total_hits": False, **body}
        if after:
            request["search_after"] = [after]
        while page > 0:
            answer = self._run(
                collection,
                lambda client: client.search(index=collection, body=request, params=_COMPLETE),
            )
            _raise_for_shards(collection, answer)
            hits = answer["hits"]["hits"]
            yield from hits
            if len(hits) < page:
                return
            request["search_after"] = hits[-1]["sort"]

    def _shape(self, collection: str) -> Shape:
        """The shape of a collection; StoreError if it does not exist."""
        if collection not in self._shapes:
            shape = self._read_shape(collection)
            if shape is None:
                raise _no_collection(collection)
            self._shapes[collection] = shape
        return self._shapes[collection]

    def _read_shape(self, collection: str) -> Shape | None:
        """The shape of a collection as the server has it; None if it does not exist."""
        answer = self._run(
            collection,
            lambda client: client.indices.get_mapping(index=collection, params=_IF_PRESENT),
        )
        for index in answer.values():
            shape = read_shape(index["mappings"], collection)
            if shape is None:
                raise foreign_collection(collection, "OpenSearch", _STORE)
            return shape
        return None

    def _run(self, collection: str, request: Callable[[Any], T]) -> T:
        # Other names would be several indexes for OpenSearch, or none.
        is_name = isinstance(collection, str) and _NAME.fullmatch(collection) is not None
        require(
            is_name,
            "Collection",
            collection,
            "a name of up to 60 characters of a-z, 0-9 and _, no _ first",
        )
        return self._opened().run(request, collection=collection)

    def _opened(self) -> _Connection:
        connection = self._connection
        if connection is None:
            raise StoreError("The store 'opensearch' is not open. Call open() first.", store=_STORE)
        return connection


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


def _parse_index_kwargs(
    index_kwargs: Any,
) -> tuple[tuple[str, ...], dict[str, Any], dict[str, Any]]:
    """The analysers, the settings and the additional mappings for new indexes."""
    index_kwargs = validate_mapping(
        "index_kwargs", index_kwargs, ("analysers", "mappings", "settings")
    )
    mappings = dict(
        validate_mapping("index_kwargs['mappings']", index_kwargs.get("mappings") or {})
    )
    properties = validate_mapping(
        "index_kwargs['mappings']['properties']", mappings.get("properties") or {}
    )
    for name in (*mappings.get("_meta", {}), *properties):
        if name in _OWN_NAMES:
            msg = (
                f"index_kwargs['mappings'] has {name!r}, a name of the store's own. Choose another"
                " name."
            )
            raise ConfigError(f"{msg} Declare fields for filters with Document(doc_fields=...).")
    settings = validate_mapping("index_kwargs['settings']", index_kwargs.get("settings") or {})
    names = validate_texts(
        "index_kwargs['analysers']", index_kwargs.get("analysers", _DEFAULT_ANALYSERS)
    )
    for name in names:
        validate_choice("analyser in index_kwargs['analysers']", name, analysers)
    return tuple(sorted({*names})), dict(settings), mappings


def _check_shape(collection: str, present: Shape, requested: Shape) -> None:
    if schema_text(present.schema) != schema_text(requested.schema):
        msg = (
            f"Collection {collection!r} has other fields than requested:"
            f" {', '.join(sorted(present.schema))}."
        )
        raise SchemaMismatchError(msg, store=_STORE, collection=collection)
    lacking = sorted({*requested.analysers} - {*present.analysers})
    if lacking:
        msg = (
            f"Collection {collection!r} indexes no terms of the analysers {', '.join(lacking)},"
            " which index_kwargs['analysers'] names. Leave them out, or build the group anew."
        )
        raise SchemaMismatchError(msg, store=_STORE, collection=collection)


def _alias(collection: str, shape: Shape) -> str:
    """The alias for writing: no index has that name, and no index of another shape has that
    alias.
    """
    return f"{collection}.{digest([schema_text(shape.schema), *shape.analysers])}"


def _index_action(key: str, document: str) -> Action:
    """Write a document, a line of JSON, in place of any under its key."""
    return key, f'{{"index":{{"_id":{json.dumps(key)}}}}}\n{document}\n'


def _delete_action(key: str, version: dict[str, int] | None = None) -> Action:
    """Delete a row, if it is there; and only in that version (``if_seq_no`` and
    ``if_primary_term``), if given.
    """
    return key, json.dumps({"delete": {"_id": key, **(version or {})}}) + "\n"


def _matching(hits: Iterable[dict[str, Any]], rest: Filter | None) -> Iterator[dict[str, Any]]:
    """The hits whose rows meet our part of a filter."""
    for hit in hits:
        if rest is None or matches(rest, decode_segment(hit["_source"]).fields):
            yield hit


# --- The client

FIRST_PAUSE_S = 0.2  # before the second try, doubling
_RETRIES = 5
_TIMEOUT_S = 30.0
_UNREACHABLE = (ConnectionRefusedError, socket.gaierror, TimeoutError)
# open ones; opensearch-py's 10 are fewer than the threads that a Document may have
_CONNECTIONS = 16
_WHERE = "store_conf['segment_store']['kwargs']"


class _Connection:
    """Connections to the nodes of one cluster, for all threads.

    Args:
        uris: Addresses.
        client_kwargs: Keywords of opensearch-py's client, and ``user`` with ``password``.

    Raises:
        ConfigError: If a keyword is unknown, or does not go with another one.
        MissingDependencyError: If opensearch-py is not installed.
    """

    def __init__(self, uris: Sequence[str], client_kwargs: Mapping[str, Any]) -> None:
        try:
            import opensearchpy
        except ModuleNotFoundError as exc:
            raise missing_package("The store 'opensearch'", exc, "opensearch") from exc
        self._library: Any = opensearchpy
        options = {"timeout": _TIMEOUT_S, "pool_maxsize": _CONNECTIONS, **client_kwargs}
        self.retries = validate_integer(
            "client_kwargs['max_retries']", options.pop("max_retries", _RETRIES), 0
        )
        self._timeout_s = options["timeout"]
        options = _with_credentials(options)
        validate_mapping(
            f"{_WHERE}['client_kwargs']", options, _client_keywords(opensearchpy, options)
        )
        try:
            # Its own retries do not pause.
            self._client = self._library.OpenSearch(hosts=list(uris), max_retries=0, **options)
        except (self._library.ImproperlyConfigured, ValueError, TypeError, OSError) as exc:
            msg = (
                f"opensearch-py does not accept {_WHERE}: {sentence(exc)} Correct its uris and"
                " client_kwargs."
            )
            raise ConfigError(msg) from exc
        self._nodes = len(uris)
        self.name = ", ".join(
            dict.fromkeys(connection.host for connection in self._client.transport.seed_connections)
        )

    def run(self, request: Callable[[Any], T], *, collection: str = "") -> T:
        """Run an idempotent request on the client, with retries.

        It is retried after a transient status and a broken connection, and on another node where
        one is not reached; not after a timeout: a slow server still has the request.

        Raises:
            StoreConnectionError: If the server is not reached, refuses the user, or does not answer
                in time.
            StoreError: If it answers with an error.
        """
        library = self._library
        tries = 0
        while True:
            try:
                return request(self._client)
            except library.SerializationError as exc:
                msg = (
                    f"The server at {self.name} is not OpenSearch: {sentence(exc)} Correct"
                    f" {_WHERE}['uris']."
                )
                raise StoreConnectionError(msg, store=_STORE, collection=collection) from exc
            except library.TransportError as exc:
                if tries == self.retries or not self._is_transient(exc, tries):
                    self._raise(exc, collection)
            time.sleep(backoff_s(tries, FIRST_PAUSE_S))
            tries += 1

    def close(self) -> None:
        self._client.close()

    def _is_transient(self, fault: Any, tries: int) -> bool:
        library = self._library
        if isinstance(fault, (library.ConnectionTimeout, library.SSLError)):
            return False
        if not isinstance(fault, library.ConnectionError):
            return fault.status_code in TRANSIENT_STATUSES
        # An unreachable node: the next try goes to another one, if there is one.
        return not isinstance(_first_cause(fault.info), _UNREACHABLE) or tries + 1 < self._nodes

    def _raise(self, fault: Any, collection: str) -> NoReturn:
        library = self._library
        if isinstance(fault, library.ConnectionTimeout):
            msg = (
                f"OpenSearch at {self.name} did not answer within timeout={self._timeout_s} s."
                f" Check its load, or raise {_WHERE}['client_kwargs']['timeout']."
            )
        elif isinstance(fault, library.ConnectionError):
            msg = (
                f"Cannot reach OpenSearch at {self.name}: {sentence(_first_cause(fault.info))}"
                f" Start it, or correct {_WHERE}['uris']."
            )
        elif fault.status_code in (401, 403):
            msg = (
                f"OpenSearch at {self.name} refuses this user ({fault.status_code}:"
                f" {_reason(fault.info)}) Give 'user' and 'password' of one with the rights for it"
                f" in {_WHERE}['client_kwargs']."
            )
        elif fault.status_code in TRANSIENT_STATUSES:
            msg = (
                f"OpenSearch at {self.name} is overloaded or starting: it failed at"
                f" {self.retries + 1} tries ({fault.status_code}: {_reason(fault.info)}) Try again"
                " later."
            )
        elif fault.status_code == 404 and fault.error == "index_not_found_exception":
            raise _no_collection(collection) from fault
        else:
            msg = f"OpenSearch at {self.name} answered {fault.status_code}: {_reason(fault.info)}"
            raise StoreError(msg, store=_STORE, collection=collection) from fault
        raise StoreConnectionError(msg, store=_STORE, collection=collection) from fault


def _no_collection(collection: str) -> StoreError:
    return StoreError(
        f"There is no collection {collection!r}. Create it first.",
        store=_STORE,
        collection=collection,
    )


def _row_error(collection: str, key: str, error: Mapping[str, Any]) -> StoreError:
    """The error for one row of a request of many."""
    if error.get("type") == "index_not_found_exception":
        return _no_collection(collection)
    msg = (
        f"OpenSearch refuses row {key!r} of collection {collection!r}: {_reason({'error': error})}"
    )
    return StoreError(msg, store=_STORE, collection=collection)


def _raise_for_shards(collection: str, answer: Mapping[str, Any]) -> None:
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
        raise StoreError(msg.strip(), store=_STORE, collection=collection)


def _with_credentials(options: Mapping[str, Any]) -> dict[str, Any]:
    """Spec 001's ``user`` and ``password`` as opensearch-py takes them."""
    rest = {name: value for name, value in options.items() if name not in ("user", "password")}
    if len(rest) == len(options):
        return rest
    user = options.get("user")
    password = options.get("password")
    if not isinstance(user, str) or not isinstance(password, str) or "http_auth" in options:
        msg = (
            f"{_WHERE}['client_kwargs'] takes 'user' and 'password', both of them texts, or"
            " 'http_auth' instead."
        )
        raise ConfigError(msg)
    return {**rest, "http_auth": (user, password)}


def _client_keywords(library: Any, options: Mapping[str, Any]) -> set[str]:
    """The keywords that opensearch-py uses; it ignores others, such as a misspelt
    ``verify_certs``.
    """
    transport = options.get("transport_class", library.Transport)
    connection = options.get("connection_class", library.Urllib3HttpConnection)
    pool = options.get("connection_pool_class", library.ConnectionPool)
    takers = (library.OpenSearch, transport, connection, *connection.__mro__[1:-1], pool)
    names = {name for taker in takers for name in inspect.signature(taker).parameters}
    return names - {"self", "hosts", "kwargs", "connections"} | {"user", "password"}


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


# --- Documents

_KEY: Final = "key"
_SEGMENT: Final = "segment"
_TERMS: Final = "terms"
_PRESENT: Final = "present"  # the names of the fields that a row has
_FIELD: Final = "field"  # an object with the values of the fields by name; arrays as several values
_WHOLE: Final = "whole"  # an object with the arrays by name, each as one value
_META = "lazyrag"
_OWN_NAMES = (_META, _KEY, _SEGMENT, _TERMS, _PRESENT, _FIELD, _WHOLE)
_SIMILARITY = "lazyrag"
_MAX_TERM_LENGTH = 200  # characters; OpenSearch's tokenizer splits terms of more than 255
_MAX_TEXT_LENGTH = 256  # characters of a text that are indexed unchanged
_CUT_MARK = "\ud7ff"  # unassigned, and the last character before the surrogates
_CUT_AT = re.compile("[\ud7ff-\udfff]")
_INDEX_TYPES = {
    DataType.BOOLEAN: "boolean",
    DataType.INT32: "integer",
    DataType.INT64: "long",
    DataType.FLOAT: "double",
    DataType.DOUBLE: "double",
    DataType.VARCHAR: "keyword",
    DataType.DATE: "keyword",  # ISO days sort as texts do
}


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a collection's documents.

    Args:
        schema: The fields that filters read.
        analysers: Names of the registered analysers whose terms are indexed, sorted.
    """

    schema: Schema
    analysers: tuple[str, ...]

    def body(self, settings: Mapping[str, Any], mappings: Mapping[str, Any]) -> dict[str, Any]:
        """The request that creates the index: of settings the user's take precedence, of mappings
        ours.
        """
        terms = {
            "type": "text",
            "analyzer": "whitespace",
            "index_options": "freqs",
            "similarity": _SIMILARITY,
        }
        arrays = [name for name, field in self.schema.items() if field.element_type]
        meta = {
            "layout": LAYOUT,
            "schema": schema_text(self.schema),
            "analysers": [*self.analysers],
        }
        mapping = {
            "dynamic": False,
            **mappings,
            "_meta": {**mappings.get("_meta", {}), _META: meta},
            "properties": {
                **mappings.get("properties", {}),
                _KEY: {"type": "keyword"},
                _SEGMENT: {"type": "keyword", "index": False, "doc_values": False},
                _PRESENT: {"type": "keyword"},
                _FIELD: _object(
                    {name: {"type": _index_type(field)} for name, field in self.schema.items()}
                ),
                _WHOLE: _object({name: {"type": "keyword"} for name in arrays}),
                _TERMS: _object(dict.fromkeys(self.analysers, terms)),
            },
        }
        similarity = {"type": "BM25", "k1": 1.5, "b": 0.75}  # as our own BM25
        ours = {
            f"index.similarity.{_SIMILARITY}.{name}": value for name, value in similarity.items()
        }
        return {"settings": {**ours, **settings}, "mappings": mapping}


def _index_type(field: DocField) -> str:
    return _INDEX_TYPES[field.element_type or field.data_type]


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "dynamic": False, "properties": dict(properties)}


def read_shape(mapping: Mapping[str, Any], collection: str = "") -> Shape | None:
    """The shape of an index with that mapping; None if lazyrag did not create it.

    Raises:
        SchemaMismatchError: If another version of lazyrag has written its documents.
    """
    meta = mapping.get("_meta", {}).get(_META)
    if meta is None:
        return None
    check_layout(meta.get("layout", 1), "OpenSearch", _STORE, collection)
    return Shape(read_schema(meta["schema"]), tuple(meta["analysers"]))


def segment_encoder(shape: Shape) -> Callable[[Segment], str]:
    """A function from a segment to its document, as a line of JSON.

    Raises:
        NotRegisteredError: If an analyser of the collection is not registered in this program.
    """
    term_functions = {name: term_function(name, stop_words=True) for name in shape.analysers}

    def encode(segment: Segment) -> str:
        indexed = index_fields({name: segment.fields.get(name) for name in shape.schema})
        document = {_KEY: segment.key, _SEGMENT: _segment_text(segment, indexed[_FIELD]), **indexed}
        if term_functions:
            text = content_text(segment.content)
            document[_TERMS] = {
                name: join_terms(terms_of(text)) for name, terms_of in term_functions.items()
            }
        return _DOCUMENT_ENCODER.encode(document)

    return encode


def decode_segment(source: Mapping[str, Any]) -> Segment:
    """The segment in a document of `segment_encoder`.

    Example:
        >>> segment = Segment("u", 1, "block", "d", "a.txt", None, 1, 0, fields={"tags": ("a",)}, span=(0, 1))
        >>> decode_segment(json.loads(segment_encoder(Shape({}, ()))(segment))) == segment
        True
    """
    parts = json.loads(source[_SEGMENT])
    group, document_id, path, parent, number, content, metadata, others, span, locations = parts + [
        None
    ] * (10 - len(parts))
    fields = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in {**source[_FIELD], **(others or {})}.items()
    }
    return Segment(
        key_uid(source[_KEY]),
        key_build(source[_KEY]),
        group,
        document_id,
        path,
        parent,
        number,
        content,
        ReadOnly(metadata) if metadata else EMPTY,
        ReadOnly(fields),
        span and tuple(span),
        tuple(Location(*location) for location in locations or ()),
    )


def _segment_text(segment: Segment, indexed: Mapping[str, Any]) -> str:
    """The rest of a segment, beside its key and its indexed fields, as JSON: a list without empty
    parts at its end.

    Its parts are group, document_id, path, parent, number, content, metadata, other fields, span
    and places.

    Raises:
        ConfigError: If the segment holds a value that JSON does not have.
    """
    _, _, group, document_id, path, parent, number, content, metadata, fields, span, locations = (
        segment
    )
    parts: list[Any] = [group, document_id, path, parent, number, content]
    others = fields_beside_index(fields, indexed)
    more: list[Any] = [
        metadata,
        others,
        span,
        [dataclasses.astuple(location) for location in locations],
    ]
    while more and not more[-1]:
        more.pop()
    parts += [part or None for part in more]
    try:
        text = _ENCODER.encode(parts)
        return text if _is_utf8(text) else _ASCII_ENCODER.encode(parts)
    except (TypeError, ValueError, RecursionError) as exc:
        msg = f"Node {segment.uid!r} in group {segment.group!r} must hold JSON values only: {exc}."
        raise ConfigError(msg) from exc


def join_terms(terms: Sequence[str]) -> str:
    """Join terms into a text that OpenSearch's whitespace tokenizer splits again; unusual ones as
    digests.

    Example:
        >>> join_terms(["绿茶", "tea"])
        '绿茶 tea'
    """
    joined = " ".join(terms)
    if (
        joined.split() == [*terms]
        and _is_utf8(joined)
        and len(max(terms, key=len, default="")) <= _MAX_TERM_LENGTH
    ):
        return joined
    return " ".join(term if _is_plain(term) else digest([term]) for term in terms)


def _is_plain(term: str) -> bool:
    return len(term) <= _MAX_TERM_LENGTH and [term] == term.split() and _is_utf8(term)


def _is_utf8(text: str) -> bool:
    """Whether a text has no half of a surrogate pair."""
    return text.isascii() or text.encode("utf-8", "ignore").decode() == text


def _as_dict(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON type")


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_as_dict)
_DOCUMENT_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
# escapes half surrogate pairs
_ASCII_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_as_dict)


def index_fields(fields: Mapping[str, FieldValue]) -> dict[str, Any]:
    """The part of a document that filters read."""
    present = {name: value for name, value in fields.items() if value is not None}
    indexed: dict[str, Any] = {
        _PRESENT: sorted(present),
        _FIELD: {
            name: [*map(_index_scalar, value)] if isinstance(value, tuple) else _index_scalar(value)
            for name, value in present.items()
        },
    }
    arrays = {
        name: _index_array(value) for name, value in present.items() if isinstance(value, tuple)
    }
    return {**indexed, _WHOLE: arrays} if arrays else indexed


def fields_beside_index(fields: Fields, indexed: Mapping[str, Any]) -> dict[str, FieldValue]:
    """The fields that are not indexed, or not unchanged.

    Args:
        fields: Of a row.
        indexed: The same, by name, as `index_fields` indexes them.

    Example:
        >>> fields = {"day": "2024-05-01", "size": -0.0, "tags": ("a", "b"), "pages": None}
        >>> fields_beside_index(fields, index_fields(fields)["field"])
        {'size': -0.0, 'pages': None}
    """
    return {
        name: value for name, value in fields.items() if not _is_unchanged(value, indexed.get(name))
    }


def _is_unchanged(value: FieldValue, indexed: Any) -> bool:
    if isinstance(value, tuple):
        return isinstance(indexed, list) and all(map(_is_unchanged, value, indexed))
    if type(value) is not type(indexed) or value is None:
        return False
    return value == indexed and not (value == 0 and str(value) == "-0.0")


def index_text(text: str) -> str:
    """A text as it is indexed: different texts differently.

    A long text, or one with half a surrogate pair, which UTF-8 does not have, is cut and followed
    by a digest of all of it (128 bits). Compared with every text that is indexed unchanged, the
    order stays that of code points: the cut mark sorts as the surrogates do, and a text is greater
    than its beginning.

    Example:
        >>> index_text("绿茶"), len(index_text("茶" * 10_000))
        ('绿茶', 289)
    """
    broken = _CUT_AT.search(text)
    end = min(broken.start() if broken else len(text), _MAX_TEXT_LENGTH)
    return text if end == len(text) else f"{text[:end]}{_CUT_MARK}{digest([text])}"


def _index_scalar(value: Scalar) -> Scalar:
    """A value as it is indexed and as it is in queries: the only way for a value into either."""
    if isinstance(value, str):
        return index_text(value)
    return value + 0.0 if isinstance(value, float) else value  # Lucene distinguishes -0.0 from 0.0


def _index_array(value: Sequence[Scalar]) -> str:
    """An array as one value."""
    return digest(
        [json.dumps([value + 0.0 if isinstance(value, float) else value for value in value])]
    )


# --- Filters

Query: TypeAlias = dict[str, Any]
"""A query of OpenSearch, as JSON."""

_MAX_TERMS = 50_000  # in one `terms` query: OpenSearch takes 65,536
_RANGES = {"gt": "gt", "ge": "gte", "lt": "lt", "le": "lte"}


class FilterDialect:
    """OpenSearch's query language as a `lazyrag.stores.protocol.Dialect`.

    Args:
        schema: Of the collection whose rows are filtered.

    Example:
        >>> from lazyrag.data.fields import make_schema
        >>> FilterDialect(make_schema(None)).condition(Condition("file_size", ">", 5))
        {'range': {'field.file_size': {'gt': 5}}}
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def condition(self, condition: Condition) -> Query | None:
        """See `Dialect.condition`; None for ``contains`` on text, and for orderings by a text that
        is cut.
        """
        name = condition.field
        op = condition.op
        value = condition.value
        if op == "exists":
            return _exists(name) if value else self.negated(_exists(name))
        if op == "in":
            return self._in(name, value)
        if op == "eq":
            return self._equals(name, value)
        if op == "contains":
            is_array = self._schema[name].element_type is not None
            return _term(f"{_FIELD}.{name}", _index_scalar(value)) if is_array else None
        if op not in _RANGES or (isinstance(value, str) and index_text(value) != value):
            return None
        return {"range": {f"{_FIELD}.{name}": {_RANGES[op]: _index_scalar(value)}}}

    def all_of(self, parts: Sequence[Query]) -> Query:
        """See `Dialect.all_of`."""
        return {"bool": {"filter": list(parts)}}

    def any_of(self, parts: Sequence[Query]) -> Query:
        """See `Dialect.any_of`."""
        return {"bool": {"should": list(parts), "minimum_should_match": 1}}

    def negated(self, part: Query) -> Query:
        """See `Dialect.negated`."""
        return {"bool": {"must_not": [part]}}

    def never(self) -> Query:
        """See `Dialect.never`."""
        return {"match_none": {}}

    def _equals(self, name: str, value: FieldValue) -> Query:
        if value is None:
            return self.negated(_exists(name))
        if isinstance(value, tuple):
            return _term(f"{_WHOLE}.{name}", _index_array(value))
        return _term(f"{_FIELD}.{name}", _index_scalar(value))

    def _in(self, name: str, values: Sequence[Scalar | None]) -> Query:
        """One of the values, or, with None among them, a missing field; of an array, any
        element.
        """
        scalars = dict.fromkeys(_index_scalar(value) for value in values if value is not None)
        parts: list[Query] = [
            {"terms": {f"{_FIELD}.{name}": some}} for some in batches(scalars, _MAX_TERMS)
        ]
        if None in values:
            parts.append(self.negated(_exists(name)))
        if not parts:
            return self.never()
        return parts[0] if len(parts) == 1 else self.any_of(parts)


def _exists(name: str) -> Query:
    return _term(_PRESENT, name)


def _term(field: str, value: Scalar) -> Query:
    return {"term": {field: {"value": value}}}
