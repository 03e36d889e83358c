"""Segment store on OpenSearch: shared between machines, with OpenSearch's own full-text search."""

from __future__ import annotations

import functools
import json
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count, islice
from typing import Any, Generic, TypeAlias, TypeVar

from lazyrag.data.fields import Schema, schema_text
from lazyrag.data.filters import Filter, matches
from lazyrag.data.segment import Segment, digest
from lazyrag.errors import (
    ConfigError,
    SchemaMismatchError,
    StoreError,
    UnsupportedError,
    known_names,
)
from lazyrag.stores.opensearch_client import (
    FIRST_PAUSE_S,
    MAX_IN_FLIGHT,
    STORE,
    OpenSearchConnection,
    T,
    no_collection,
    parse_addresses,
    raise_for_shards,
    row_error,
)
from lazyrag.stores.opensearch_encoding import (
    _OWN_NAMES,
    KEY,
    TERMS,
    FilterDialect,
    Query,
    Shape,
    decode_segment,
    join_terms,
    read_shape,
    segment_encoder,
)
from lazyrag.stores.protocol import (
    TRANSIENT_STATUSES,
    Feature,
    Pushed,
    StoreLocation,
    VectorRow,
    backoff_s,
    batches,
    builds_by_key,
    check_deletion,
    foreign_collection,
    other_fields,
    push_down,
)
from lazyrag.text.analyzers import analysers
from lazyrag.types import JsonObject, Keywords, Ranking
from lazyrag.validation import (
    require,
    validate_choice,
    validate_integer,
    validate_mapping,
    validate_texts,
)

_DEFAULT_ANALYSERS = ("en", "zh")
_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,59}")
_IF_PRESENT = {"ignore_unavailable": "true"}
_SOURCE = {"excludes": [TERMS]}  # of a document: all that a segment is made from
_COMPLETE = {"allow_partial_search_results": "false", "search_type": "dfs_query_then_fetch"}
PAGE = 1_000  # rows of one request
_NAMES_AT_ONCE = 50  # a request's line has at most 4,096 bytes
_PASSES = 10  # over rows that others change while they are being deleted
MAX_HITS = 10_000  # of one request
_BULK_ROWS = 500
_BULK_CHARACTERS = 4_000_000  # of a request, unless a single row has more; servers take 100 MB
_SHARDS_WAIT = "10s"
_BULK_RESULTS = "items.*.status,items.*.result,items.*.error"  # a quarter of a complete answer

Row = TypeVar("Row", Segment, VectorRow)
Action: TypeAlias = "tuple[str, str]"
"""One row to write or delete: its key, and its lines of a bulk request, each with a line end."""


class OpenSearchRows(ABC, Generic[Row]):
    """Rows on an OpenSearch cluster, with an index for each collection: what both kinds of store
    share.
    """

    def __init__(
        self,
        uris: str | Sequence[str],
        client_kwargs: Keywords | None = None,
        index_kwargs: Keywords | None = None,
    ) -> None:
        self._uris = parse_addresses(uris)
        self._client_kwargs = dict(validate_mapping("client_kwargs", client_kwargs or {}))
        self._analysers, self._settings, self._mappings = _parse_index_kwargs(index_kwargs or {})
        self._lock = threading.Lock()
        self._connection: OpenSearchConnection | None = None
        self._shapes: dict[str, Shape] = {}
        self._unrefreshed: set[str] = set()  # collections that this object is loading
        self._refreshing = threading.RLock()
        self._published: set[str] = set()  # collections that this object gave their alias

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
            connection = OpenSearchConnection(self._uris, self._client_kwargs)
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

    @abstractmethod
    def _decode(self, source: Mapping[str, Any]) -> Row:
        """The row in a document."""

    def _create(self, collection: str, requested: Shape) -> None:
        """Create an index of that shape, unless it exists."""
        self._unrefreshed.add(collection)  # a load begins
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
        self._unrefreshed.discard(collection)
        self._run(
            collection, lambda client: client.indices.delete(index=collection, params=_IF_PRESENT)
        )

    def count(self, collection: str) -> int:
        """See `Store.count`."""
        self.refresh(collection)
        answer = self._run(collection, lambda client: client.count(index=collection))
        raise_for_shards(collection, answer)
        return int(answer["count"])

    def get(self, collection: str, keys: Sequence[str]) -> list[Row]:
        """See `SegmentStore.get`."""
        rows: dict[str, Row] = {}
        for some in batches(dict.fromkeys(keys), PAGE):
            read = functools.partial(self._opened().read, collection=collection, keys=some)
            for document in self._run(collection, read):
                if "error" in document:
                    raise row_error(collection, document["_id"], document["error"])
                if document["found"]:
                    rows[document["_id"]] = self._decode(document["_source"])
        return [rows[key] for key in keys if key in rows]

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[Row]:
        """See `SegmentStore.scan`."""
        if not after or collection in self._unrefreshed:
            self.refresh(collection)
        hits = self._hits(collection, {"_source": _SOURCE}, after, min(PAGE, limit))
        return [self._decode(hit["_source"]) for hit in islice(hits, limit)]

    def delete(
        self, collection: str, *, keys: Sequence[str] | None = None, filter: Filter | None = None
    ) -> int:
        """See `Store.delete`.

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
            self.refresh(collection)
            deleted, conflicts = self._write(collection, shape, self._deletions(collection, pushed))
            total += deleted
            if not conflicts:
                return total
        raise StoreError(
            f"{conflicts} rows of collection {collection!r} were changed by others in each of"
            f" {_PASSES} attempts to delete them. Let one program write at a time.",
            store=STORE,
            collection=collection,
        )

    def refresh(self, collection: str) -> None:
        """See `Refreshable.refresh`."""
        with self._refreshing:
            self._refresh([collection])

    def refresh_written(self, collections: Iterable[str]) -> None:
        """Make what was written to collections visible to searches: one request for many of them.
        After a failure, the next call or query repeats it.
        """
        with self._refreshing:  # another thread may be refreshing what this one wrote
            written = sorted(self._unrefreshed.intersection(collections))
            for some in batches(written, _NAMES_AT_ONCE):
                self._refresh(some)

    def _refresh(self, collections: Sequence[str]) -> None:
        """Refresh collections: what is written meanwhile needs another one. After a failure, all of
        them do.
        """
        names = ",".join(collections)
        waits = not self._unrefreshed.isdisjoint(collections)
        self._unrefreshed.difference_update(collections)
        try:
            answer = self._run(
                collections[0], lambda client: client.indices.refresh(index=names), waits=waits
            )
            raise_for_shards(names, answer)
        except StoreError:
            self._unrefreshed.update(collections)
            raise

    def _write(self, collection: str, shape: Shape, actions: Iterable[Action]) -> tuple[int, int]:
        """Run actions on different keys, several requests at once.

        Returns:
            The numbers of deleted rows, and of conflicts: rows that others have changed since they
            were read.

        Raises:
            StoreError: If an action fails; others of the call may have been run.
        """
        bulk = functools.partial(self._bulk, collection, _alias(collection, shape))
        counts: Counter[str] = Counter()
        pending: deque[Future[list[str]]] = deque()
        try:
            with ThreadPoolExecutor(MAX_IN_FLIGHT) as executor:
                for batch in batches(actions, _BULK_ROWS, _BULK_CHARACTERS, _size):
                    while len(pending) >= self._opened().in_flight:
                        counts.update(pending.popleft().result())
                    pending.append(executor.submit(bulk, batch))
                for results in pending:
                    counts.update(results.result())
        except StoreError:
            self._shapes.pop(collection, None)  # the index may be another one by now
            raise
        finally:
            self._unrefreshed.add(collection)
        return counts["deleted"], counts["conflict"]

    def _bulk(self, collection: str, alias: str, actions: Sequence[Action]) -> list[str]:
        """The results of actions in one request; those that a busy server rejects are retried.

        The alias is required: else OpenSearch would create a missing index.
        """
        connection = self._opened()
        deadline = time.monotonic() + connection.wait_s
        params: JsonObject = {"require_alias": "true", "filter_path": _BULK_RESULTS}
        if connection.timeout_s:  # the server gives up waiting for recovering shards before it
            params |= {"request_timeout": connection.timeout_s, "timeout": _SHARDS_WAIT}
        results = []
        for tries in count():
            may_retry = tries < connection.retries or time.monotonic() < deadline
            body = "".join(lines for _, lines in actions)
            answer = self._run(
                collection,
                lambda client: client.bulk(index=alias, body=body, params=params),  # noqa: B023
                waits=True,
            )
            rejected = []
            for action, item in zip(actions, answer["items"], strict=True):
                [result] = item.values()
                error = result.get("error")
                if result["status"] in TRANSIENT_STATUSES and may_retry:
                    rejected.append(action)
                elif error is None:
                    results.append(str(result["result"]))
                elif result["status"] == 409:
                    results.append("conflict")
                else:
                    raise row_error(collection, action[0], error)
            if not rejected:
                connection.in_flight = min(MAX_IN_FLIGHT, connection.in_flight + 1)
                break
            connection.reduce_in_flight()
            actions = rejected
            time.sleep(backoff_s(tries, FIRST_PAUSE_S))
        return results

    def _deletions(self, collection: str, pushed: Pushed[Query]) -> Iterator[Action]:
        """Deletions of the rows that meet a filter, each only if the row has not changed since."""
        body = {
            "query": pushed.native or {"match_all": {}},
            "_source": _SOURCE if pushed.rest is not None else False,
            "seq_no_primary_term": True,
        }
        for hit in self._hits(collection, body):
            if self._meets(hit, pushed.rest):
                seen = {"if_seq_no": hit["_seq_no"], "if_primary_term": hit["_primary_term"]}
                yield _delete_action(hit["_id"], seen)

    def _hits(
        self, collection: str, body: Mapping[str, Any], after: str = "", page: int = PAGE
    ) -> Iterator[dict[str, Any]]:
        """The hits of a search, in the order of keys or of the body's own; fetched lazily, page by
        page.
        """
        request = {"sort": [{KEY: "asc"}], "size": page, "track_total_hits": False, **body}
        if after:
            request["search_after"] = [after]
        while page > 0:
            answer = self._run(
                collection,
                # a point in time names its collection
                lambda client: client.search(
                    index=None if "pit" in request else collection, body=request, params=_COMPLETE
                ),
            )
            raise_for_shards(collection, answer)
            hits = answer["hits"]["hits"]
            yield from hits
            if len(hits) < page:
                return
            request["search_after"] = hits[-1]["sort"]

    def _meets(self, hit: Mapping[str, Any], rest: Filter | None) -> bool:
        """Whether a hit's row meets our part of a filter."""
        return rest is None or matches(rest, self._decode(hit["_source"]).fields)

    def _shape(self, collection: str) -> Shape:
        """The shape of a collection; StoreError if it does not exist."""
        if collection not in self._shapes:
            shape = self._read_shape(collection)
            if shape is None:
                raise no_collection(collection)
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
                raise foreign_collection(collection, "OpenSearch", STORE)
            return shape
        return None

    def _run(self, collection: str, request: Callable[[Any], T], *, waits: bool = False) -> T:
        """Run a request; it waits for a lost node if it should, and as long as a load goes on."""
        # Other names would be several indexes for OpenSearch, or none.
        is_name = isinstance(collection, str) and _NAME.fullmatch(collection) is not None
        require(
            is_name,
            "Collection",
            collection,
            "a name of up to 60 characters of a-z, 0-9 and _, no _ first",
        )
        connection = self._opened()
        wait_s = connection.wait_s if waits or self._unrefreshed else 0.0
        return connection.run(request, collection=collection, wait_s=wait_s)

    def _opened(self) -> OpenSearchConnection:
        connection = self._connection
        if connection is None:
            raise StoreError("The store 'opensearch' is not open. Call open() first.", store=STORE)
        return connection


class OpenSearchSegmentStore(OpenSearchRows[Segment]):
    """Segment store on an OpenSearch cluster, with an index for each collection.

    Rows can be read by key once they are acknowledged; searches find them after `refresh`, which a
    query calls when the Document has changed. A document has ``text``, ``path``, ``span`` and
    ``meta`` (the fields for filters), for people and other tools; and for us ``segment``, the
    fields and, for ``index="server"``, the terms of our analysers. For another analyser of the
    server's define ``text`` in ``index_kwargs["mappings"]["properties"]``.

    Args:
        uris: Address of a node, or several: ``"localhost:9200"``,
            ``["https://a:9200", "https://b:9200"]``.
        client_kwargs: Arguments of opensearch-py's client (``use_ssl``, ``ca_certs``, ``timeout``
            ...), and ``user`` with ``password``; ``max_retries`` is how often a
            request is retried after a transient failure, ``wait_s`` (120) how long a write waits
            for a node that restarts.
        index_kwargs: For new indexes: ``settings`` and ``mappings`` as OpenSearch takes them, the
            latter beside our own properties (``key``, ``segment``, ``present``, ``field``,
            ``whole``, ``terms``, ``path``, ``span``, ``meta``); ``analysers``, the names of those
            whose terms are indexed (``["en", "zh"]``; [] makes upserting faster and disables
            ``index="server"``).

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> sorted(OpenSearchSegmentStore("localhost:9200").features)
        ['native text', 'persistent', 'server', 'shared']
    """

    @property
    def features(self) -> frozenset[Feature]:
        """It ranks texts unless there are no analysers."""
        shared: frozenset[Feature] = frozenset(["persistent", "shared"])
        return shared | {"native text", "server"} if self._analysers else shared

    def create(self, collection: str, schema: Schema) -> None:
        """See `SegmentStore.create`.

        Raises:
            SchemaMismatchError: Also if the index lacks the terms of an analyser, or was not made
                by this store.
        """
        self._create(collection, Shape(schema, self._analysers))

    def upsert(self, collection: str, rows: Sequence[Segment]) -> None:
        """See `SegmentStore.upsert`.

        Raises:
            StoreError: If OpenSearch refuses rows; others of the call may have been written.
        """
        shape = self._shape(collection)
        encode = segment_encoder(shape)
        last = {row.key: row for row in rows}  # the last row of a repeated key counts
        self._write(
            collection, shape, (index_action(key, encode(row)) for key, row in last.items())
        )

    def builds_of(self, collection: str, uid: str) -> list[int]:
        """See `SegmentStore.builds_of`."""
        self.refresh(collection)
        return builds_by_key(self, collection, uid)

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
        hits = self._ranked(collection, analyser, terms, topk, filter, has_rows=False)
        return [(hit["_id"], hit["_score"]) for hit in hits]

    def find_rows(
        self,
        collection: str,
        analyser: str,
        terms: Sequence[str],
        topk: int,
        filter: Filter | None = None,
    ) -> list[tuple[Segment, float]]:
        """See `FindsRows.find_rows`."""
        hits = self._ranked(collection, analyser, terms, topk, filter, has_rows=True)
        return [(decode_segment(hit["_source"]), hit["_score"]) for hit in hits]

    def publish(self, collections: Iterable[str]) -> None:
        """See `Published.publish`: all are refreshed by one request, and each gets an alias, its
        name without the digest, in place of those that it replaces.
        """
        live = [*collections]
        self.refresh_written(live)
        actions: list[dict[str, Any]] = []
        unpublished = [name for name in live if name not in self._published]
        for collection in unpublished:
            alias = collection.rpartition("_")[0]
            others = {"index": f"{alias}_*", "alias": alias, "must_exist": False}
            actions += [{"remove": others}, {"add": {"index": collection, "alias": alias}}]
        if actions:
            self._run(
                unpublished[0],
                lambda client: client.indices.update_aliases(body={"actions": actions}),
                waits=True,
            )
            self._published.update(unpublished)

    def _ranked(
        self,
        collection: str,
        analyser: str,
        terms: Sequence[str],
        topk: int,
        filter: Filter | None,
        *,
        has_rows: bool,
    ) -> Iterator[dict[str, Any]]:
        """The hits of a keyword search, with their documents if these are needed."""
        topk = validate_integer("topk", topk, 1)
        shape = self._shape(collection)
        if analyser not in shape.analysers:
            raise UnsupportedError(
                f"Collection {collection!r} indexes no terms of the analyser {analyser!r}."
                f" {known_names(analyser, shape.analysers)} Name it in index_kwargs['analysers']"
                " and build the group anew, or use index='exact'.",
                store=STORE,
                collection=collection,
            )
        if not terms:
            return iter(())
        self.refresh_written([collection])
        pushed = push_down(filter, FilterDialect(shape.schema))
        query: Query = {"must": [{"match": {f"{TERMS}.{analyser}": {"query": join_terms(terms)}}}]}
        if pushed.native is not None:
            query["filter"] = [pushed.native]
        has_source = has_rows or pushed.rest is not None
        body = {
            "query": {"bool": query},
            "sort": [{"_score": "desc"}, {KEY: "asc"}],
            "_source": _SOURCE if has_source else False,
        }
        page = PAGE if has_source else MAX_HITS
        if pushed.rest is None and topk <= page:
            return islice(self._hits(collection, body, page=topk), topk)
        hits = self._hits_of_one_state(collection, body, page)
        return islice((hit for hit in hits if self._meets(hit, pushed.rest)), topk)

    def _hits_of_one_state(
        self, collection: str, body: JsonObject, page: int
    ) -> Iterator[dict[str, Any]]:
        """The hits of a search, see `_hits`; what is written between two pages changes no score."""
        created = self._run(
            collection,
            lambda client: client.create_pit(index=collection, params={"keep_alive": "1m"}),
        )
        pit = created["pit_id"]
        try:
            yield from self._hits(collection, {**body, "pit": {"id": pit}}, page=page)
        finally:
            with suppress(StoreError):  # it expires
                self._run(collection, lambda client: client.delete_pit(body={"pit_id": pit}))

    def _decode(self, source: Mapping[str, Any]) -> Segment:
        return decode_segment(source)


def _parse_index_kwargs(
    index_kwargs: Any,
) -> tuple[tuple[str, ...], JsonObject, JsonObject]:
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
        raise other_fields(collection, present.schema, store=STORE)
    if (present.dimension, present.metric) != (requested.dimension, requested.metric):
        raise SchemaMismatchError(
            f"Collection {collection!r} has vectors of {present.dimension} numbers and metric"
            f" {present.metric!r}; got {requested.dimension} and {requested.metric!r}. Drop it, or"
            " use another name.",
            store=STORE,
            collection=collection,
        )
    lacking = sorted({*requested.analysers} - {*present.analysers})
    if lacking:
        raise SchemaMismatchError(
            f"Collection {collection!r} indexes no terms of the analysers {', '.join(lacking)},"
            " which index_kwargs['analysers'] names. Leave them out, or build the group anew.",
            store=STORE,
            collection=collection,
        )


def _alias(collection: str, shape: Shape) -> str:
    """The alias for writing: no index has that name, and no index of another shape has that
    alias.
    """
    vectors = [str(shape.dimension), shape.metric] if shape.dimension else []
    return f"{collection}.{digest([schema_text(shape.schema), *shape.analysers, *vectors])}"


def index_action(key: str, document: str) -> Action:
    """Write a document, a line of JSON, in place of any under its key."""
    return key, f'{{"index":{{"_id":{json.dumps(key)}}}}}\n{document}\n'


def _delete_action(key: str, version: dict[str, int] | None = None) -> Action:
    """Delete a row, if it is there; and only in that version (``if_seq_no`` and
    ``if_primary_term``), if given.
    """
    return key, json.dumps({"delete": {"_id": key, **(version or {})}}) + "\n"


def _size(action: Action) -> int:
    """Characters of an action in a request."""
    return len(action[1])
