"""Segments in OpenSearch (spec 001's ``opensearch``), for machines that share them and for its own full-text search."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from lazyrag.data.fields import Schema
from lazyrag.data.filters import Filter, matches
from lazyrag.data.segment import Segment, digest
from lazyrag.errors import ConfigError, SchemaMismatchError, StoreError, UnsupportedError, known_names
from lazyrag.stores.opensearch_bulk import Action, Written, put, remove, write
from lazyrag.stores.opensearch_client import (
    STORE,
    Connection,
    check_shards,
    checked_addresses,
    item_error,
    missing_collection,
)
from lazyrag.stores.opensearch_filters import FilterDialect, Query
from lazyrag.stores.opensearch_rows import KEY, TERMS, Shape, joined_terms, read_segment, shape_of, writer
from lazyrag.stores.protocol import Feature, Location, check_deletion
from lazyrag.stores.pushdown import Pushed, pushed_down
from lazyrag.stores.segment_rows import schema_text
from lazyrag.text.analyzers import analysers
from lazyrag.types import Ranking
from lazyrag.validation import text_list, whole_number

ANALYSERS = ("en", "zh")
"""Whose terms are indexed where ``index_kwargs`` names no others."""

T = TypeVar("T")

_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,59}")
_IF_THERE = {"ignore_unavailable": "true"}
_WHOLE = {"allow_partial_search_results": "false", "search_type": "dfs_query_then_fetch"}
_PAGE = 500  # rows of one request; OpenSearch gives 10,000 at most
_PASSES = 10  # over rows that others change while they are being deleted
_INDEX_KWARGS = ("analysers", "mappings", "settings")


class OpenSearchSegmentStore:
    """Segments in an OpenSearch cluster, an index for each collection.

    What `upsert` and `delete` acknowledge has been refreshed: every other program finds it. Rows are stored
    whole; beside the fields for filters there are, for ``index="native"``, the terms of our analysers.

    Args:
        uris: Address of a node, or several: ``"localhost:9200"``, ``["https://a:9200", "https://b:9200"]``.
        client_kwargs: What opensearch-py's client takes (``use_ssl``, ``ca_certs``, ``timeout`` ...), and ``user`` with
            ``password``; ``max_retries`` is how often a request is tried again after trouble that may pass.
        index_kwargs: For indexes that are made: ``settings`` as OpenSearch takes them; ``analysers``, the names of
            those whose terms are indexed (``["en", "zh"]``; [] makes upserting faster, and ``index="native"`` refused).

    Raises:
        ConfigError: If one of them is not of that form.

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
        self._uris = checked_addresses(uris)
        self._client_kwargs = dict(client_kwargs or {})
        self._analysers, self._settings = _checked_index_kwargs(index_kwargs or {})
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._shapes: dict[str, Shape] = {}

    @property
    def features(self) -> frozenset[Feature]:
        """``native text`` unless no analyser is named."""
        shared: frozenset[Feature] = frozenset(["persistent", "shared"])
        return shared | {"native text"} if self._analysers else shared

    @property
    def location(self) -> Location:
        """See `Located.location`."""
        return Location(", ".join(self._uris), is_server=True)

    def open(self) -> None:
        """See `Store.open`.

        Raises:
            MissingDependencyError: If opensearch-py is not installed.
            ConfigError: If client_kwargs are not what it takes.
            StoreConnectionError: If no node answers, or the user is refused.
        """
        with self._lock:
            if self._connection is not None:
                return
            connection = Connection(self._uris, self._client_kwargs)
            try:
                connection.ask(lambda client: client.info())
            except StoreError:
                connection.close()
                raise
            self._connection = connection

    def close(self) -> None:
        """See `Store.close`."""
        with self._lock:
            connection, self._connection = self._connection, None
            self._shapes = {}
        if connection is not None:
            connection.close()

    def create(self, collection: str, schema: Schema) -> None:
        """See `SegmentStore.create`.

        Raises:
            SchemaMismatchError: Also if the index lacks the terms of an analyser, or was not made by this store.
        """
        wanted = Shape(schema, self._analysers)
        shape = self._read_shape(collection)
        if shape is None:
            body = wanted.body(self._settings) | {"aliases": {_alias(collection, wanted): {}}}
            try:
                self._ask(collection, lambda client: client.indices.create(index=collection, body=body))
                shape = wanted
            except StoreError:
                shape = self._read_shape(collection)  # another program may have made it meanwhile
                if shape is None:
                    raise
        _check_shape(collection, shape, wanted)
        self._shapes[collection] = shape

    def drop(self, collection: str) -> None:
        """See `Store.drop`."""
        _check_name(collection)
        self._shapes.pop(collection, None)
        self._ask(collection, lambda client: client.indices.delete(index=collection, params=_IF_THERE))

    def count(self, collection: str) -> int:
        """See `Store.count`."""
        _check_name(collection)
        answer = self._ask(collection, lambda client: client.count(index=collection))
        check_shards(collection, answer)
        return int(answer["count"])

    def upsert(self, collection: str, rows: Sequence[Segment]) -> None:
        """See `SegmentStore.upsert`.

        Raises:
            StoreError: If OpenSearch refuses rows; others of the call may have been written.
        """
        shape = self._shape(collection)
        document = writer(shape)
        last = {row.key: row for row in rows}
        self._write(collection, shape, (put(key, document(row)) for key, row in last.items()))

    def get(self, collection: str, keys: Sequence[str]) -> list[Segment]:
        """See `SegmentStore.get`."""
        _check_name(collection)
        found: dict[str, Segment] = {}
        wanted = list(dict.fromkeys(keys))
        for start in range(0, len(wanted), _PAGE):
            found.update(self._present(collection, wanted[start : start + _PAGE]))
        return [found[key] for key in keys if key in found]

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[Segment]:
        """See `SegmentStore.scan`."""
        hits = self._hits(collection, {}, after, min(_PAGE, limit))
        return [read_segment(hit["_source"]) for hit in islice(hits, limit)]

    def delete(
        self,
        collection: str,
        *,
        keys: Sequence[str] | None = None,
        filter: Filter | None = None,  # noqa: A002
    ) -> int:
        """See `SegmentStore.delete`.

        A row that another program changes between being found and being deleted is looked at again. Where a connection
        breaks, and a request is made again, the rows that went with the first time are not counted.
        """
        check_deletion(keys, filter)
        shape = self._shape(collection)
        if filter is None:
            return self._write(collection, shape, map(remove, dict.fromkeys(keys or ()))).gone
        wanted = pushed_down(filter, FilterDialect(shape.schema))
        gone = 0
        for _ in range(_PASSES):
            done = self._write(collection, shape, self._deletions(collection, wanted))
            gone += done.gone
            if not done.conflicts:
                return gone
        msg = (
            f"{done.conflicts} rows of collection {collection!r} were changed by others whenever they were to be "
            f"deleted, {_PASSES} times. Let one program write at a time."
        )
        raise StoreError(msg, store=STORE, collection=collection)

    def search_text(
        self,
        collection: str,
        analyser: str,
        terms: Sequence[str],
        topk: int,
        filter: Filter | None = None,  # noqa: A002
    ) -> Ranking:
        """See `NativeText.search_text`. The statistics are those of all shards, and contain what is not purged yet."""
        topk = whole_number("topk", topk, 1)
        shape = self._shape(collection)
        if analyser not in shape.analysers:
            msg = (
                f"Collection {collection!r} indexes no terms of the analyser {analyser!r}. "
                f"{known_names(analyser, shape.analysers)} Name it in index_kwargs['analysers'] and build the group "
                "anew, or use index='default'."
            )
            raise UnsupportedError(msg, store=STORE, collection=collection)
        if not terms:
            return []
        wanted = pushed_down(filter, FilterDialect(shape.schema))
        query: Query = {"must": [{"match": {f"{TERMS}.{analyser}": {"query": joined_terms(terms)}}}]}
        body = {
            "query": {"bool": query | ({} if wanted.native is None else {"filter": [wanted.native]})},
            "sort": [{"_score": "desc"}, {KEY: "asc"}],
            "_source": wanted.rest is not None,
        }
        hits = self._hits(collection, body, page=min(topk, _PAGE) if wanted.rest is None else _PAGE)
        return [(hit["_id"], hit["_score"]) for hit in islice(_kept(hits, wanted.rest), topk)]

    def _deletions(self, collection: str, wanted: Pushed[Query]) -> Iterator[Action]:
        """The rows that a filter lets through, each to be deleted only if it is still what was looked at."""
        body = {
            "query": wanted.native or {"match_all": {}},
            "_source": wanted.rest is not None,
            "seq_no_primary_term": True,
        }
        for hit in _kept(self._hits(collection, body), wanted.rest):
            yield remove(hit["_id"], {"if_seq_no": hit["_seq_no"], "if_primary_term": hit["_primary_term"]})

    def _hits(
        self, collection: str, body: Mapping[str, Any], after: str = "", page: int = _PAGE
    ) -> Iterator[dict[str, Any]]:
        """What a search finds, in the order of keys or of the body's own; asked for as it is read, a page at a time."""
        _check_name(collection)
        asked = {"sort": [{KEY: "asc"}], "size": page, "track_total_hits": False, **body}
        if after:
            asked["search_after"] = [after]
        while page > 0:
            answer = self._ask(collection, lambda client: client.search(index=collection, body=asked, params=_WHOLE))
            check_shards(collection, answer)
            hits = answer["hits"]["hits"]
            yield from hits
            if len(hits) < page:
                return
            asked["search_after"] = hits[-1]["sort"]

    def _present(self, collection: str, keys: Sequence[str]) -> dict[str, Segment]:
        """The rows of those keys that are there, acknowledged or not."""
        # Whole documents: leaving a part out takes OpenSearch longer than sending it.
        answer = self._ask(collection, lambda client: client.mget(index=collection, body={"ids": keys}))
        found = {}
        for one in answer["docs"]:
            if "error" in one:
                raise item_error(collection, one["_id"], one["error"])
            if one["found"]:
                found[one["_id"]] = read_segment(one["_source"])
        return found

    def _write(self, collection: str, shape: Shape, actions: Iterable[Action]) -> Written:
        try:
            return write(self._open_connection(), collection, _alias(collection, shape), actions)
        except StoreError:
            self._shapes.pop(collection, None)  # it may be another one by now
            raise

    def _shape(self, collection: str) -> Shape:
        """The shape of a collection that is there."""
        if collection not in self._shapes:
            shape = self._read_shape(collection)
            if shape is None:
                raise missing_collection(collection)
            self._shapes[collection] = shape
        return self._shapes[collection]

    def _read_shape(self, collection: str) -> Shape | None:
        """The shape of a collection as the server has it; None if there is none.

        Raises:
            SchemaMismatchError: If there is an index of that name which this store has not made.
        """
        _check_name(collection)
        answer = self._ask(collection, lambda client: client.indices.get_mapping(index=collection, params=_IF_THERE))
        for index in answer.values():
            shape = shape_of(index["mappings"], collection)
            if shape is None:
                msg = (
                    f"OpenSearch has an index {collection!r} that this store has not made. Give the Document another "
                    "name, or remove the index."
                )
                raise SchemaMismatchError(msg, store=STORE, collection=collection)
            return shape
        return None

    def _ask(self, collection: str, request: Callable[[Any], T]) -> T:
        return self._open_connection().ask(request, collection=collection)

    def _open_connection(self) -> Connection:
        connection = self._connection
        if connection is None:
            msg = "The store 'opensearch' is not open. Call open() first."
            raise StoreError(msg, store=STORE)
        return connection


def _kept(hits: Iterable[dict[str, Any]], rest: Filter | None) -> Iterator[dict[str, Any]]:
    """The hits whose rows satisfy what OpenSearch has not looked at."""
    for hit in hits:
        if rest is None or matches(rest, read_segment(hit["_source"]).fields):
            yield hit


def _alias(collection: str, shape: Shape) -> str:
    """What rows are written to: no index has that name, and none of another shape has that alias."""
    return f"{collection}.{digest([schema_text(shape.schema), *shape.analysers])}"


def _check_name(collection: str) -> None:
    """Refuse what OpenSearch would read as several indexes, or as something else than an index."""
    if not isinstance(collection, str) or not _NAME.fullmatch(collection):
        msg = f"A collection is named {collection!r:.120}; a name is up to 60 characters of a-z, 0-9 and _, no _ first."
        raise ConfigError(msg)


def _check_shape(collection: str, present: Shape, wanted: Shape) -> None:
    if schema_text(present.schema) != schema_text(wanted.schema):
        fields = ", ".join(sorted(present.schema))
        msg = f"Collection {collection!r} has other fields than asked for: {fields}."
        raise SchemaMismatchError(msg, store=STORE, collection=collection)
    lacking = sorted({*wanted.analysers} - {*present.analysers})
    if lacking:
        msg = (
            f"Collection {collection!r} indexes no terms of the analysers {', '.join(lacking)}, which "
            "index_kwargs['analysers'] names. Leave them out, or build the group anew."
        )
        raise SchemaMismatchError(msg, store=STORE, collection=collection)


def _checked_index_kwargs(given: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The analysers and the settings for new indexes."""
    for name in given:
        if name not in _INDEX_KWARGS:
            msg = f"index_kwargs has the key {name!r}. {known_names(str(name), _INDEX_KWARGS)}"
            raise ConfigError(msg)
    if given.get("mappings"):
        msg = (
            f"index_kwargs['mappings'] is {given['mappings']!s:.80}; the store maps its own fields, and keeps no "
            "others. Leave it out, and declare fields for filters with Document(doc_fields=...)."
        )
        raise ConfigError(msg)
    settings = given.get("settings") or {}
    if not isinstance(settings, Mapping):
        msg = f"index_kwargs['settings'] is {settings!r}; give a mapping, such as {{'number_of_replicas': 0}}."
        raise ConfigError(msg)
    names = text_list("index_kwargs['analysers']", given.get("analysers", ANALYSERS))
    for name in names:
        if name not in analysers:
            msg = f"index_kwargs['analysers'] names {name!r}. {known_names(name, analysers)}"
            raise ConfigError(msg)
    return tuple(sorted({*names})), dict(settings)
