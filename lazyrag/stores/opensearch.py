"""Segment store on OpenSearch: shared between machines, with OpenSearch's own full-text search."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

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
    backoff_s,
    batches,
    check_deletion,
    foreign_collection,
    other_fields,
    push_down,
)
from lazyrag.text.analyzers import analysers
from lazyrag.types import Ranking
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
        self._connection: OpenSearchConnection | None = None
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
        raise_for_shards(collection, answer)
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
                    raise row_error(collection, document["_id"], document["error"])
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
            deleted, conflicts = self._write(collection, shape, self._deletions(collection, pushed))
            total += deleted
            if not conflicts:
                return total
        msg = (
            f"{conflicts} rows of collection {collection!r} were changed by others in each of"
            f" {_PASSES} attempts to delete them. Let one program write at a time."
        )
        raise StoreError(msg, store=STORE, collection=collection)

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
            raise UnsupportedError(msg, store=STORE, collection=collection)
        if not terms:
            return []
        pushed = push_down(filter, FilterDialect(shape.schema))
        query: Query = {"must": [{"match": {f"{TERMS}.{analyser}": {"query": join_terms(terms)}}}]}
        if pushed.native is not None:
            query["filter"] = [pushed.native]
        body = {
            "query": {"bool": query},
            "sort": [{"_score": "desc"}, {KEY: "asc"}],
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
            for batch in batches(actions, _BULK_ROWS, _BULK_CHARACTERS, _size):
                results = self._bulk(collection, alias, batch)
                deleted += results.count("deleted")
                conflicts += results.count("conflict")
            answer = self._run(collection, lambda client: client.indices.refresh(index=collection))
            raise_for_shards(collection, answer)
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
                    raise row_error(collection, action[0], error)
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
        request = {"sort": [{KEY: "asc"}], "size": page, "track_total_hits": False, **body}
        if after:
            request["search_after"] = [after]
        while page > 0:
            answer = self._run(
                collection,
                lambda client: client.search(index=collection, body=request, params=_COMPLETE),
            )
            raise_for_shards(collection, answer)
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

    def _opened(self) -> OpenSearchConnection:
        connection = self._connection
        if connection is None:
            raise StoreError("The store 'opensearch' is not open. Call open() first.", store=STORE)
        return connection


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
        raise other_fields(collection, present.schema, store=STORE)
    lacking = sorted({*requested.analysers} - {*present.analysers})
    if lacking:
        msg = (
            f"Collection {collection!r} indexes no terms of the analysers {', '.join(lacking)},"
            " which index_kwargs['analysers'] names. Leave them out, or build the group anew."
        )
        raise SchemaMismatchError(msg, store=STORE, collection=collection)


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


def _size(action: Action) -> int:
    """Characters of an action in a request."""
    return len(action[1])


def _matching(hits: Iterable[dict[str, Any]], rest: Filter | None) -> Iterator[dict[str, Any]]:
    """The hits whose rows meet our part of a filter."""
    for hit in hits:
        if rest is None or matches(rest, decode_segment(hit["_source"]).fields):
            yield hit
