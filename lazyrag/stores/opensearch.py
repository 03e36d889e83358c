"""Segments in OpenSearch (spec 001's ``opensearch``), for machines that share them and for its own full-text search."""

from __future__ import annotations

import dataclasses
import inspect
import json
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from lazyrag.data.fields import DataType, DocField, Schema
from lazyrag.data.filters import Condition, Filter, matches
from lazyrag.data.segment import EMPTY, Place, ReadOnly, Segment, content_text, digest
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
from lazyrag.stores.protocol import Feature, Location, Pushed, check_deletion, pushed_down
from lazyrag.stores.sqlite import read_schema, schema_text
from lazyrag.text.analyzers import analysers, term_function
from lazyrag.types import Fields, FieldValue, Ranking, Scalar
from lazyrag.validation import text_list, whole_number

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


_MOST_ROWS = 500
_TOLD = "items.*.status,items.*.result,items.*.error"  # of the answer: the rest is three quarters of it
_MOST_CHARACTERS = 4_000_000  # of a request, unless a single row has more; servers take 100 MB


@dataclass(frozen=True, slots=True)
class Action:
    """One row to be written or deleted.

    Args:
        key: The row's key.
        lines: The lines of JSON that say so, each ended.
    """

    key: str
    lines: str


@dataclass(frozen=True, slots=True)
class Written:
    """What became of some actions.

    Args:
        gone: How many rows were there and are deleted.
        conflicts: How many have been changed by others since they were looked at, and still stand.
    """

    gone: int = 0
    conflicts: int = 0


def put(key: str, document: str) -> Action:
    """Write a document, a line of JSON, in place of whatever has its key.

    Example:
        >>> put("k", '{"a":1}').lines.splitlines()
        ['{"index":{"_id":"k"}}', '{"a":1}']
    """
    return Action(key, f'{{"index":{{"_id":{json.dumps(key)}}}}}\n{document}\n')


def remove(key: str, seen: dict[str, int] | None = None) -> Action:
    """Delete a row, if it is there; and only as it was seen, if that is given.

    Args:
        key: The row's key.
        seen: ``if_seq_no`` and ``if_primary_term``, which change whenever a row does.
    """
    return Action(key, json.dumps({"delete": {"_id": key, **(seen or {})}}) + "\n")


def write(connection: Connection, collection: str, alias: str, actions: Iterable[Action]) -> Written:
    """Carry out actions, and make them visible to every search.

    Args:
        connection: The cluster.
        collection: The index.
        alias: Its alias for writing: with a name that must be an alias, OpenSearch makes no index by itself.
        actions: Of different keys.

    Raises:
        StoreError: If any of them failed; those of earlier requests, and others of its own, may have been carried out.
    """
    gone = conflicts = 0
    for some in _batches(actions):
        results = _carried_out(connection, collection, alias, some)
        gone += results.count("deleted")
        conflicts += results.count("conflict")
    answer = connection.ask(lambda client: client.indices.refresh(index=collection), collection=collection)
    check_shards(collection, answer)
    return Written(gone, conflicts)


def _batches(actions: Iterable[Action]) -> Iterator[list[Action]]:
    batch: list[Action] = []
    size = 0
    for one in actions:
        if batch and (len(batch) == _MOST_ROWS or size + len(one.lines) > _MOST_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += len(one.lines)
    if batch:
        yield batch


def _carried_out(connection: Connection, collection: str, alias: str, actions: Sequence[Action]) -> list[str]:
    """The results of actions in one request; those that a busy server puts off are asked for again."""
    results: list[str] = []
    for tries in range(connection.retries + 1):
        answer = _sent(connection, collection, alias, actions)
        put_off = []
        for action, item in zip(actions, answer, strict=True):
            if item["status"] in TRANSIENT and tries < connection.retries:
                put_off.append(action)
            else:
                results.append(_result(collection, action, item))
        if not put_off:
            break
        actions = put_off
        pause(tries)
    return results


def _sent(connection: Connection, collection: str, alias: str, actions: Sequence[Action]) -> list[dict[str, Any]]:
    body = "".join(action.lines for action in actions)
    params = {"require_alias": "true", "filter_path": _TOLD}
    answer = connection.ask(lambda client: client.bulk(index=alias, body=body, params=params), collection=collection)
    return [next(iter(item.values())) for item in answer["items"]]


def _result(collection: str, action: Action, item: dict[str, Any]) -> str:
    error = item.get("error")
    if error is None:
        return str(item["result"])
    if item["status"] == 409:
        return "conflict"
    raise item_error(collection, action.key, error)


Query: TypeAlias = dict[str, Any]
"""A query of OpenSearch's, as JSON."""

PRESENT: Final = "present"
"""The names of the fields that a document has."""

FIELD: Final = "field"
"""An object with the values of the fields by name; arrays as several values."""

WHOLE: Final = "whole"
"""An object with the arrays by name, each as one value."""

_LONGEST_TEXT = 256  # characters of a text that are indexed as they are
_MOST_TERMS = 50_000  # in one `terms` query: OpenSearch takes 65,536
_CUT_MARK = "\ud7ff"  # unassigned, and the last character before the surrogates
_CUT_AT = re.compile("[\ud7ff-\udfff]")
_TEXTS = (DataType.VARCHAR, DataType.DATE)
_RANGES = {"gt": "gt", "ge": "gte", "lt": "lt", "le": "lte"}


def index_text(text: str) -> str:
    """A text as it is indexed: different texts differently.

    A long text, or one with half a surrogate pair, which UTF-8 does not have, is cut, and a digest of the whole (128
    bits) stands for the rest. Its order relative to every text that is indexed as it is stays that of code points: the
    cut mark sorts as the surrogates do, and what is cut off only makes a text greater than its beginning.

    Example:
        >>> index_text("绿茶"), len(index_text("茶" * 10_000))
        ('绿茶', 289)
    """
    broken = _CUT_AT.search(text)
    end = min(broken.start() if broken else len(text), _LONGEST_TEXT)
    return text if end == len(text) else f"{text[:end]}{_CUT_MARK}{digest([text])}"


def index_scalar(value: Scalar) -> Scalar:
    """One value as it is indexed, and as it stands in queries: the only way for a value into either."""
    if isinstance(value, str):
        return index_text(value)
    return value + 0.0 if isinstance(value, float) else value  # -0.0 is another number to Lucene than 0.0


def index_whole(value: Sequence[Scalar]) -> str:
    """An array as one value.

    Example:
        >>> index_whole(("a", "b")) == index_whole(("b", "a"))
        False
    """
    return digest([json.dumps([value + 0.0 if isinstance(value, float) else value for value in value])])


def index_fields(fields: dict[str, FieldValue]) -> dict[str, Any]:
    """What a document says of its fields, None being none."""
    there = {name: value for name, value in fields.items() if value is not None}
    found: dict[str, Any] = {
        PRESENT: sorted(there),
        FIELD: {
            name: [*map(index_scalar, value)] if isinstance(value, tuple) else index_scalar(value)
            for name, value in there.items()
        },
    }
    arrays = {name: index_whole(value) for name, value in there.items() if isinstance(value, tuple)}
    return {**found, WHOLE: arrays} if arrays else found


def untold(fields: Fields, indexed: Mapping[str, Any]) -> dict[str, FieldValue]:
    """Those fields that are indexed otherwise than they are, or not at all.

    Args:
        fields: Of a row.
        indexed: The same, by name, as `index_fields` writes them.

    Example:
        >>> fields = {"day": "2024-05-01", "size": -0.0, "tags": ("a", "b"), "pages": None}
        >>> untold(fields, index_fields(fields)[FIELD])
        {'size': -0.0, 'pages': None}
    """
    return {name: value for name, value in fields.items() if not _is_told(value, indexed.get(name))}


def _is_told(value: FieldValue, indexed: Any) -> bool:
    if isinstance(value, tuple):
        return isinstance(indexed, list) and all(map(_is_told, value, indexed))
    if type(value) is not type(indexed) or value is None:
        return False
    return value == indexed and not (value == 0 and str(value) == "-0.0")


def index_type(field: DocField) -> str:
    """The type that OpenSearch indexes a field's values as. ISO days sort as texts do; a FLOAT is a DOUBLE, too."""
    data_type = field.element_type or field.data_type
    if data_type in _TEXTS:
        return "keyword"
    return {
        DataType.BOOLEAN: "boolean",
        DataType.INT32: "integer",
        DataType.INT64: "long",
        DataType.FLOAT: "double",
        DataType.DOUBLE: "double",
    }[data_type]


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
        """See `Dialect.condition`; None for ``contains`` on text, and for orderings by what no text is indexed as."""
        name, op, value = condition.field, condition.op, condition.value
        if op == "exists":
            return _is_present(name) if value else _not(_is_present(name))
        if op in ("eq", "ne"):
            same = _equals(name, value)
            return same if op == "eq" else _not(same)
        if op in ("in", "not in"):
            among = _is_among(name, value)
            return among if op == "in" else _not(among)
        if op == "contains":
            is_array = self._schema[name].element_type is not None
            return _term(f"{FIELD}.{name}", index_scalar(value)) if is_array else None
        if isinstance(value, str) and index_text(value) != value:
            return None
        return {"range": {f"{FIELD}.{name}": {_RANGES[op]: index_scalar(value)}}}

    def all_of(self, parts: Sequence[Query]) -> Query:
        """See `Dialect.all_of`."""
        return {"bool": {"filter": list(parts)}}

    def any_of(self, parts: Sequence[Query]) -> Query:
        """See `Dialect.any_of`."""
        return _any_of(parts)

    def negated(self, part: Query) -> Query:
        """See `Dialect.negated`."""
        return _not(part)

    def never(self) -> Query:
        """See `Dialect.never`."""
        return {"match_none": {}}


def _equals(name: str, value: FieldValue) -> Query:
    if value is None:
        return _not(_is_present(name))
    if isinstance(value, tuple):
        return _term(f"{WHOLE}.{name}", index_whole(value))
    return _term(f"{FIELD}.{name}", index_scalar(value))


def _is_among(name: str, values: Sequence[Scalar | None]) -> Query:
    """One of the values, or, with None among them, none at all; of an array, any element."""
    known = list(dict.fromkeys(index_scalar(value) for value in values if value is not None))
    parts: list[Query] = [
        {"terms": {f"{FIELD}.{name}": known[start : start + _MOST_TERMS]}}
        for start in range(0, len(known), _MOST_TERMS)
    ]
    if None in values:
        parts.append(_not(_is_present(name)))
    if not parts:
        return {"match_none": {}}
    return parts[0] if len(parts) == 1 else _any_of(parts)


def _is_present(name: str) -> Query:
    return _term(PRESENT, name)


def _term(field: str, value: Scalar) -> Query:
    return {"term": {field: {"value": value}}}


def _any_of(parts: Sequence[Query]) -> Query:
    return {"bool": {"should": list(parts), "minimum_should_match": 1}}


def _not(part: Query) -> Query:
    return {"bool": {"must_not": [part]}}


KEY: Final = "key"
SEGMENT: Final = "segment"
TERMS: Final = "terms"

_META = "lazyrag"
_LAYOUT = 2  # of what a document consists
_SIMILARITY = "lazyrag"
_LONGEST_TERM = 200  # characters; OpenSearch's tokenizer splits what has more than 255


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """What a collection's documents look like.

    Args:
        schema: The fields that filters read.
        analysers: Names of the registered analysers whose terms are indexed, sorted.
    """

    schema: Schema
    analysers: tuple[str, ...]

    def body(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """What creates the index: its mapping, and its settings, the user's before ours."""
        no_search = {"type": "keyword", "index": False, "doc_values": False}
        terms = {
            "type": "text",
            "analyzer": "whitespace",
            "index_options": "freqs",
            "similarity": _SIMILARITY,
        }
        mapping = {
            "dynamic": False,
            "_meta": {_META: {"layout": _LAYOUT, "schema": schema_text(self.schema), "analysers": [*self.analysers]}},
            "properties": {
                KEY: {"type": "keyword"},
                SEGMENT: no_search,
                PRESENT: {"type": "keyword"},
                FIELD: _object({name: {"type": index_type(field)} for name, field in self.schema.items()}),
                WHOLE: _object(
                    {name: {"type": "keyword"} for name, field in self.schema.items() if field.element_type}
                ),
                TERMS: _object(dict.fromkeys(self.analysers, terms)),
            },
        }
        # Those of our own BM25.
        similarity = {"type": "BM25", "k1": 1.5, "b": 0.75}
        ours = {f"index.similarity.{_SIMILARITY}.{name}": value for name, value in similarity.items()}
        return {"settings": {**ours, **settings}, "mappings": mapping}


def shape_of(mapping: Mapping[str, Any], collection: str = "") -> Shape | None:
    """The shape of an index with that mapping; None for an index that was not made here.

    Args:
        mapping: As OpenSearch tells it.
        collection: Name of the index, for messages.

    Raises:
        SchemaMismatchError: If its documents are laid out as another version of lazyrag does.
    """
    kept = mapping.get("_meta", {}).get(_META)
    if kept is None:
        return None
    layout = kept.get("layout", 1)
    if layout != _LAYOUT:
        msg = (
            f"Collection {collection!r} in OpenSearch has rows of layout {layout}, written by another version of "
            f"lazyrag; this one reads {_LAYOUT}. Drop it and read the files again, or use the version that wrote it."
        )
        raise SchemaMismatchError(msg, store="opensearch", collection=collection)
    return Shape(read_schema(kept["schema"]), tuple(kept["analysers"]))


def writer(shape: Shape) -> Callable[[Segment], str]:
    """A function from a segment to its document, as a line of JSON.

    Raises:
        NotRegisteredError: If an analyser of the collection is not registered in this program.
    """
    analysers = {name: term_function(name) for name in shape.analysers}

    def document(segment: Segment) -> str:
        indexed = index_fields({name: segment.fields.get(name) for name in shape.schema})
        found = {KEY: segment.key, SEGMENT: segment_text(segment, indexed[FIELD]), **indexed}
        if analysers:
            text = content_text(segment.content)
            found[TERMS] = {name: joined_terms(terms_of(text)) for name, terms_of in analysers.items()}
        return _DOCUMENT_ENCODER.encode(found)

    return document


def joined_terms(terms: Sequence[str]) -> str:
    """Terms as a text that OpenSearch's whitespace tokenizer takes apart again; the odd ones as digests.

    Example:
        >>> joined_terms(["绿茶", "tea"])
        '绿茶 tea'
    """
    joined = " ".join(terms)
    if joined.split() == [*terms] and _is_utf8(joined) and len(max(terms, key=len, default="")) <= _LONGEST_TERM:
        return joined
    return " ".join(term if _is_plain(term) else digest([term]) for term in terms)


def segment_text(segment: Segment, indexed: Mapping[str, Any]) -> str:
    """What the key and the indexed fields of a segment do not tell, as JSON: a list, which ends with what is not empty.

    Its parts are group, document_id, path, parent, number, content, metadata, other fields, span and places.

    Args:
        segment: The segment.
        indexed: Its fields as filters find them, by name.

    Raises:
        ConfigError: If it holds what is no JSON value.
    """
    _, _, group, document_id, path, parent, number, content, metadata, fields, span, places = segment
    parts: list[Any] = [group, document_id, path, parent, number, content]
    more: list[Any] = [metadata, untold(fields, indexed), span, [dataclasses.astuple(place) for place in places]]
    while more and not more[-1]:
        more.pop()
    parts += [part or None for part in more]
    try:
        text = _ENCODER.encode(parts)
        return text if _is_utf8(text) else _ASCII_ENCODER.encode(parts)
    except (TypeError, ValueError, RecursionError) as exc:
        msg = f"Node {segment.uid!r} in group {segment.group!r} holds what is no JSON value: {exc}."
        raise ConfigError(msg) from exc


def read_segment(source: Mapping[str, Any]) -> Segment:
    """The segment of which `writer` made a document.

    Args:
        source: The whole document.

    Example:
        >>> one = Segment("u", 1, "block", "d", "a.txt", None, 1, 0, fields={"tags": ("a",)}, span=(0, 1))
        >>> read_segment(json.loads(writer(Shape({}, ()))(one))) == one
        True
    """
    kept = json.loads(source[SEGMENT])
    group, document_id, path, parent, number, content, metadata, others, span, places = kept + [None] * (10 - len(kept))
    uid, _, build = source[KEY].rpartition("-")
    fields = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in {**source[FIELD], **(others or {})}.items()
    }
    return Segment(
        uid,
        int(build),
        group,
        document_id,
        path,
        parent,
        number,
        content,
        ReadOnly(metadata) if metadata else EMPTY,
        ReadOnly(fields),
        span and tuple(span),
        tuple(Place(*place) for place in places or ()),
    )


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "dynamic": False, "properties": dict(properties)}


def _is_plain(term: str) -> bool:
    return len(term) <= _LONGEST_TERM and [term] == term.split() and _is_utf8(term)


def _is_utf8(text: str) -> bool:
    """Whether it has no half of a surrogate pair."""
    return text.isascii() or text.encode("utf-8", "ignore").decode() == text


def _as_dict(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    msg = f"{type(value).__name__} is not among its types"
    raise TypeError(msg)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_as_dict)
_DOCUMENT_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_ASCII_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_as_dict)  # it escapes what UTF-8 does not have


ANALYSERS = ("en", "zh")
"""Whose terms are indexed where ``index_kwargs`` names no others."""


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
