"""Vectors in Chroma: in a folder, on a server, or in memory."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import itertools
import json
import math
import os
import random
import struct
import threading
import time
import urllib.parse
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast

import numpy as np

from lazyrag.data.fields import DataType, DocField, Schema
from lazyrag.data.filters import Condition, Filter, matches
from lazyrag.errors import (
    ConfigError,
    LazyRAGError,
    SchemaMismatchError,
    StoreConnectionError,
    StoreError,
    UnsupportedError,
    known_names,
    missing_package,
)
from lazyrag.models.openai.client import seconds
from lazyrag.stores.protocol import (
    Candidate,
    Feature,
    Location,
    Pushed,
    VectorRow,
    VectorSchema,
    check_deletion,
    check_queries,
    check_schema,
    check_vectors,
    exact_ranking,
    other_schema,
    pushed_down,
)
from lazyrag.stores.sqlite import read_schema, schema_text
from lazyrag.types import Embeddings, Fields, FieldValue, Matrix, Metric, Ranking, Scalar, Vector
from lazyrag.validation import whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
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


MISSING: Final = "lr_missing"
"""The metadata key of the names of the fields that a row does not have."""

NATIVE: Final = "f_"
"""What the metadata key of a field's value begins with."""

_FLOATS = (DataType.FLOAT, DataType.DOUBLE)
_TOLD = {
    DataType.BOOLEAN: bool,
    DataType.INT32: int,
    DataType.INT64: int,
    DataType.FLOAT: float,
    DataType.DOUBLE: float,
    DataType.VARCHAR: str,
    DataType.DATE: str,
}
_OTHER_BITS = (1 << 63) - 1
_NO_UTF8 = "'"  # what the texts begin with that are not written as JSON


def native_values(fields: Fields, schema: Schema) -> dict[str, Any]:
    """What filters read of a row: a value for every field, None where Chroma is to have none.

    All keys are always named, as Chroma merges what it is given into what a row has.

    Args:
        fields: Of the row.
        schema: Of the collection.

    Example:
        >>> native_values({"year": 2002}, {"year": DocField(DataType.INT32), "author": DocField(DataType.VARCHAR)})
        {'lr_missing': ['author'], 'f_year': 2002, 'f_author': None}
    """
    missing: list[str] = []
    values: dict[str, Any] = {MISSING: missing}
    for name, field in schema.items():
        value = fields.get(name)
        if value is None:
            missing.append(name)
            values[NATIVE + name] = None
        elif isinstance(value, tuple):
            values[NATIVE + name] = [native_value(field, one) for one in value] or None
        else:
            values[NATIVE + name] = native_value(field, value)
    if not missing:
        values[MISSING] = None
    return values


def untold(fields: Fields, schema: Schema) -> dict[str, FieldValue]:
    """Those fields of a row that `told` does not make of its native values.

    Args:
        fields: Of the row.
        schema: Of the collection.

    Example:
        >>> untold({"year": 2002, "pages": 7, "size": -0.0},
        ...        {"year": DocField(DataType.INT32), "size": DocField(DataType.DOUBLE)})
        {'pages': 7, 'size': -0.0}
    """
    return {name: value for name, value in fields.items() if not _is_told(schema.get(name), value)}


def told(values: Mapping[str, Any], schema: Schema) -> dict[str, FieldValue]:
    """The fields that `native_values` tells, but for those that are `untold`.

    Args:
        values: The metadata of a row.
        schema: Of the collection.

    Example:
        >>> schema = {"day": DocField(DataType.DATE), "size": DocField(DataType.DOUBLE)}
        >>> told(native_values({"day": "2024-05-01", "size": -0.1}, schema), schema)
        {'day': '2024-05-01', 'size': -0.1}
    """
    missing = values.get(MISSING) or ()
    found: dict[str, FieldValue] = {}
    for name, field in schema.items():
        held = values.get(NATIVE + name)
        if field.data_type is DataType.ARRAY:
            if held is None and name not in missing:
                found[name] = ()
        elif held is not None and not isinstance(held, list):
            found[name] = _read(field.data_type, held)
    return found


def native_value(field: DocField, value: Scalar) -> Scalar:
    r"""A value as Chroma gets it, in rows and in filters: the one place where values are written in its language.

    Texts are only ever compared for equality there. As JSON they are ASCII, without control characters, and different
    texts stay different; those with half a surrogate pair, two of which JSON takes for one character, are hexadecimal.
    Days and floats become integers, which have their order: Chroma orders no texts, and it reads a quarter of all
    floats as one of their neighbours.

    Example:
        >>> native_value(DocField(DataType.DATE), "2024-05-01"), native_value(DocField(DataType.VARCHAR), "茶")
        (739007, '"\\u8336"')
    """
    data_type = field.element_type or field.data_type
    if isinstance(value, str):
        return dt.date.fromisoformat(value).toordinal() if data_type is DataType.DATE else _text(value)
    return _ordered(float(value)) if data_type in _FLOATS else value


def _read(data_type: DataType, held: Any) -> Scalar:
    """The value that `native_value` wrote; anything for one that is untold."""
    if data_type is DataType.DATE:
        return dt.date.fromordinal(held).isoformat() if isinstance(held, int) else ""
    if data_type in _FLOATS:
        return _float(held) if isinstance(held, int) else 0.0
    if not isinstance(held, str):
        value: Scalar = held
        return value
    if held.startswith(_NO_UTF8):
        return bytes.fromhex(held[1:]).decode("utf-8", "surrogatepass")
    return held[1:-1] if "\\" not in held else str(json.loads(held))


def _is_told(field: DocField | None, value: FieldValue) -> bool:
    """Whether `_read` makes the same of what `native_value` makes of it."""
    if field is None or value is None:
        return False
    if field.data_type is DataType.ARRAY:
        return value == ()  # nobody says that Chroma keeps the order of lists
    if type(value) is not _TOLD[field.data_type]:
        return False
    if field.data_type is DataType.DATE:
        return dt.date.fromisoformat(str(value)).isoformat() == value
    return value != 0 or str(value) != "-0.0"


def _text(value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return _NO_UTF8 + value.encode("utf-8", "surrogatepass").hex()
    return json.dumps(value)


def _ordered(number: float) -> int:
    """An integer of 64 bits for a float, in the order of floats; the same for -0.0 as for 0.0."""
    [bits] = struct.unpack(">q", struct.pack(">d", number + 0.0))
    return int(bits) if bits >= 0 else bits ^ _OTHER_BITS


def _float(ordered: int) -> float:
    """The float that `_ordered` got."""
    [number] = struct.unpack(">d", struct.pack(">q", ordered if ordered >= 0 else ordered ^ _OTHER_BITS))
    return float(number)


Where: TypeAlias = "dict[str, Any]"
"""A filter as Chroma takes it: one key, which is a metadata key, ``$and`` or ``$or``."""

REST = "lr_rest"
"""The metadata key of what else there is of a row: JSON, never empty."""

_ORDERINGS = {"gt": "$gt", "ge": "$gte", "lt": "$lt", "le": "$lte"}
_OPPOSITES = {
    one: other
    for pair in (("$eq", "$ne"), ("$in", "$nin"), ("$contains", "$not_contains"))
    for one, other in (pair, pair[::-1])
}
_REVERSED = {"$gt": "$lte", "$gte": "$lt", "$lt": "$gte", "$lte": "$gt"}

# SQLite answers behind Chroma's filters. Seen with 1.5.9: 40,000 values, 2,000 parts or 60 levels are errors.
_MOST_VALUES = 5_000
_MOST_PARTS = 200
_MOST_LEVELS = 12


def divided(filter: Filter | None, schema: Schema) -> Pushed[Where]:  # noqa: A002  the word of the domain
    """A bound filter, divided between Chroma and us; one that is too large for Chroma is all ours.

    Example:
        >>> divided(Condition("year", "gt", 2000), {"year": DocField(DataType.INT32)})
        Pushed(native={'f_year': {'$gt': 2000}}, rest=None)
    """
    pushed = pushed_down(filter, ChromaDialect(schema))
    if pushed.native is not None and not _fits(pushed.native):
        return Pushed(rest=filter)
    return pushed


@dataclass(frozen=True, slots=True)
class ChromaDialect:
    """Chroma's language of filters, over the fields of a schema; see `lazyrag.stores.protocol.Dialect`.

    It orders numbers only, so that days are kept as numbers; it knows no parts of texts and no whole arrays.

    Args:
        schema: Of the collection.

    Example:
        >>> ChromaDialect({"year": DocField(DataType.INT32)}).condition(Condition("year", "exists"))
        {'lr_missing': {'$not_contains': 'year'}}
    """

    schema: Schema

    def condition(self, condition: Condition) -> Where | None:
        """See `lazyrag.stores.protocol.Dialect.condition`."""
        name, op, value = condition.field, condition.op, condition.value
        field = self.schema.get(name)
        if field is None:
            return None
        if op == "exists":
            return _missing(name, value is False)
        if op in ("ne", "not in"):
            positive = self.condition(Condition(name, "eq" if op == "ne" else "in", value))
            return None if positive is None else self.negated(positive)
        if op == "in":
            return self._in(name, field, value)
        return _missing(name, True) if value is None else _comparison(name, field, op, value)

    def all_of(self, parts: Sequence[Where]) -> Where:
        """See `lazyrag.stores.protocol.Dialect.all_of`."""
        return {"$and": list(parts)}

    def any_of(self, parts: Sequence[Where]) -> Where:
        """See `lazyrag.stores.protocol.Dialect.any_of`."""
        return {"$or": list(parts)}

    def negated(self, part: Where) -> Where:
        """See `lazyrag.stores.protocol.Dialect.negated`: Chroma has no "not", but each of its words has an opposite."""
        [(key, held)] = part.items()
        if key in ("$and", "$or"):
            return {"$or" if key == "$and" else "$and": [self.negated(one) for one in held]}
        [(op, value)] = held.items()
        if op in _OPPOSITES:
            return {key: {_OPPOSITES[op]: value}}  # these also hold where the key is not there
        return self.any_of([{key: {_REVERSED[op]: value}}, _missing(key.removeprefix(NATIVE), True)])

    def never(self) -> Where:
        """See `lazyrag.stores.protocol.Dialect.never`."""
        return {REST: {"$eq": ""}}

    def _in(self, name: str, field: DocField, values: Sequence[Scalar | None]) -> Where:
        named = [native_value(field, one) for one in values if one is not None]
        key, parts = NATIVE + name, list[Where]()
        if field.element_type is not None:
            parts = [{key: {"$contains": one}} for one in named]
        elif named:
            parts = [{key: {"$in": named}}]
        if None in values:
            parts.append(_missing(name, True))
        if not parts:
            return self.never()
        return parts[0] if len(parts) == 1 else self.any_of(parts)


def _comparison(name: str, field: DocField, op: str, value: Any) -> Where | None:
    """``eq``, ``contains`` or an ordering with a value that is not None."""
    is_array = field.element_type is not None
    if is_array != (op == "contains") or (op in _ORDERINGS and field.data_type is DataType.VARCHAR):
        return None
    native = {"eq": "$eq", "contains": "$contains", **_ORDERINGS}[op]
    return {NATIVE + name: {native: native_value(field, value)}}


def _missing(name: str, is_missing: bool) -> Where:
    return {MISSING: {"$contains" if is_missing else "$not_contains": name}}


def _fits(where: Where) -> bool:
    levels, parts, values = _sizes(where)
    return levels <= _MOST_LEVELS and parts <= _MOST_PARTS and values <= _MOST_VALUES


def _sizes(where: Where) -> tuple[int, int, int]:
    """How many levels, parts and values there are."""
    [(key, held)] = where.items()
    if key not in ("$and", "$or"):
        [value] = held.values()
        return 1, 1, len(value) if isinstance(value, list) else 1
    levels, parts, values = zip(*map(_sizes, held), strict=True)
    return 1 + max(levels), 1 + sum(parts), sum(values)


Space: TypeAlias = Literal["ip", "l2"]
"""What Chroma measures distances by."""

_FIELDS, _VECTOR = "fields", "vector"  # in a row's rest
_SCHEMA = "lazyrag"
_LAYOUT = 2  # of what rows consist
_UNIT = 1e-6  # by which lengths of float32 vectors that were made one unit long may differ from that; seen: 2e-7


def space_of(metric: Metric) -> Space:
    """What Chroma measures by where we rank by a metric.

    Its own cosine does not give back the vectors that it was given: it divides them by their lengths, and so do
    embedders, so that only some last bits change. The inner product of unit vectors is the same, and gives them back.

    Example:
        >>> space_of("cosine"), space_of("l2")
        ('ip', 'l2')
    """
    return "l2" if metric == "l2" else "ip"


def placed(vectors: Matrix, metric: Metric) -> Matrix:
    """Vectors as they stand in Chroma's index, or as its index is asked for them.

    Args:
        vectors: (n, dimension).
        metric: Of the collection.

    Returns:
        (n, dimension) float32: under the cosine of length 1, those of no length apart.

    Example:
        >>> placed(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32), "cosine").tolist()
        [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    if metric != "cosine" or _are_units(vectors):
        return np.asarray(vectors, np.float32)
    exact = np.asarray(vectors, np.float64)
    largest = np.abs(exact).max(axis=1, keepdims=True, initial=0.0)
    scaled = np.divide(exact, largest, out=np.zeros_like(exact), where=largest > 0)  # its squares are in range
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    units = np.divide(scaled, lengths, out=scaled, where=lengths > 0)
    stays = (np.abs(largest * lengths - 1.0) <= _UNIT) | (largest == 0)
    return np.where(stays, vectors, units).astype(np.float32)


def written(rows: Sequence[VectorRow], schema: VectorSchema) -> tuple[Matrix, list[dict[str, Any]]]:
    """The vectors and the metadata of rows, which have vectors of the schema's dimension.

    Raises:
        ConfigError: If a number is not finite.
    """
    vectors = np.stack([cast("Vector", row.vector) for row in rows]).astype(np.float32)
    if not np.isfinite(vectors).all():
        raise ConfigError("upsert() got a vector with nan or infinity in it; every number must be finite.")
    units = placed(vectors, schema.metric)
    is_kept = (units.view(np.uint32) == vectors.view(np.uint32)).all(axis=1)  # the sign of a zero, too
    by_object: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}  # the rows of one file share their fields
    metadata = []
    for row, vector, is_whole in zip(rows, vectors, is_kept.tolist(), strict=True):
        shared = by_object.get(id(row.fields))
        if shared is None:
            shared = by_object[id(row.fields)] = _metadata(row.fields, schema.fields)
        values, rest = shared
        if not is_whole:
            rest = {**rest, _VECTOR: base64.b64encode(vector.astype("<f4").tobytes()).decode()}
        metadata.append({**values, REST: json.dumps(rest) if rest else None})
    return units, metadata


def read(
    keys: Sequence[str], vectors: NDArray[Any], metadata: Sequence[Mapping[str, Any]], schema: Schema
) -> list[VectorRow]:
    """The rows of which `written` made vectors and metadata, in a collection whose fields are given."""
    rows = []
    for key, vector, held in zip(keys, np.asarray(vectors, np.float32), metadata, strict=True):
        kept = _rest(held).get(_VECTOR)
        whole = vector if kept is None else np.frombuffer(base64.b64decode(kept), "<f4").astype(np.float32)
        rows.append(VectorRow(key, whole, read_fields(held, schema)))
    return rows


def read_fields(metadata: Mapping[str, Any] | None, schema: Schema) -> Fields:
    """The fields of a row in a collection whose fields are given. Chroma says None of a row without any metadata."""
    held = metadata or {}
    others = _rest(metadata).get(_FIELDS, {})
    return told(held, schema) | {
        name: tuple(value) if isinstance(value, list) else value for name, value in others.items()
    }


def schema_metadata(schema: VectorSchema) -> dict[str, str]:
    """What a collection says of itself: the same for equal schemas.

    Example:
        >>> schema_metadata(VectorSchema(2, "l2", {}))
        {'lazyrag': '{"layout": 2, "dimension": 2, "metric": "l2", "fields": "{}"}'}
    """
    said = {"layout": _LAYOUT, "dimension": schema.dimension, "metric": schema.metric}
    return {_SCHEMA: json.dumps({**said, "fields": schema_text(schema.fields)})}


def kept_schema(metadata: Mapping[str, Any] | None, collection: str = "") -> VectorSchema | None:
    """The schema of a collection; None if it is none of ours.

    Args:
        metadata: The collection's own.
        collection: Its name, for messages.

    Raises:
        SchemaMismatchError: If its rows are laid out as another version of lazyrag does.

    Example:
        >>> schema = VectorSchema(2, "l2", {})
        >>> kept_schema(schema_metadata(schema)) == schema, kept_schema({"hnsw:space": "l2"})
        (True, None)
    """
    if metadata is None or _SCHEMA not in metadata:
        return None
    said = json.loads(metadata[_SCHEMA])
    layout = said.get("layout", 1)
    if layout != _LAYOUT:
        msg = (
            f"Collection {collection!r} in Chroma has rows of layout {layout}, written by another version of lazyrag; "
            f"this one reads {_LAYOUT}. Drop it and read the files again, or use the version that wrote it."
        )
        raise SchemaMismatchError(msg, store=STORE, collection=collection)
    return VectorSchema(said["dimension"], said["metric"], read_schema(said["fields"]))


def _metadata(fields: Fields, schema: Schema) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of fields for filters, and what they do not tell."""
    others = untold(fields, schema)
    return native_values(fields, schema), {_FIELDS: others} if others else {}


def _rest(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    text = None if metadata is None else metadata.get(REST)
    return {} if text is None else cast("dict[str, Any]", json.loads(text))


def _are_units(vectors: Matrix) -> bool:
    """Whether all vectors are one unit long, which they mostly are."""
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))
    return bool((np.abs(lengths - 1.0) <= _UNIT).all())


_KEYS_AT_ONCE = 5_000  # SQLite behind Chroma takes some 32,000 parameters
_KEYS_IN_A_SEARCH = 20_000
_BYTES_AT_ONCE = 16 * 2**20  # of vectors; a server refuses requests of 40 MB


class Collection:
    """A collection of Chroma's. Every call of it is tried again where that may help.

    Args:
        connection: The open connection.
        handle: Chroma's object for the collection.
        schema: What its rows look like.
    """

    def __init__(self, connection: Connection, handle: Any, schema: VectorSchema) -> None:
        self.schema = schema
        self._connection = connection
        self._handle = handle

    def count(self) -> int:
        """Number of rows."""
        return int(self._call("count"))

    def keys(self, where: Where | None = None) -> list[str]:
        """The keys of all rows that meet a filter, in no order."""
        return cast("list[str]", self._call("get", where=where, include=[])["ids"])

    def fields(self, where: Where | None) -> list[tuple[str, Fields]]:
        """The keys and fields of all rows that meet a filter, in no order."""
        found = self._call("get", where=where, include=["metadatas"])
        return [
            (key, read_fields(one, self.schema.fields))
            for key, one in zip(found["ids"], found["metadatas"], strict=True)
        ]

    def rows(self, keys: Iterable[str]) -> dict[str, VectorRow]:
        """By key, the rows of those keys that are present."""
        rows: dict[str, VectorRow] = {}
        for some in _pieces(list(dict.fromkeys(keys)), _KEYS_AT_ONCE):
            found = self._call("get", ids=some, include=["embeddings", "metadatas"])
            parts = found["ids"], found["embeddings"], found["metadatas"]
            rows.update((row.key, row) for row in read(*parts, self.schema.fields))
        return rows

    def upsert(self, rows: Sequence[VectorRow]) -> None:
        """Write rows of different keys whole; at least one."""
        most = int(self._connection.run(lambda client: client.get_max_batch_size()))
        by_bytes = _BYTES_AT_ONCE // (4 * self.schema.dimension)
        vectors, metadata = written(rows, self.schema)
        keys = [row.key for row in rows]
        for some in _pieces(range(len(rows)), max(1, min(most, by_bytes))):
            part = slice(some[0], some[-1] + 1)
            self._call("upsert", ids=keys[part], embeddings=vectors[part], metadatas=metadata[part])

    def delete(self, keys: Iterable[str]) -> int:
        """Delete the rows of those keys that are present; returns how many they were."""
        gone = 0
        for some in _pieces(list(dict.fromkeys(keys)), _KEYS_AT_ONCE):
            # Chroma counts those that it has never had, too.
            there = self._call("get", ids=some, include=[])["ids"]
            if there:
                self._call("delete", ids=there)
            gone += len(there)
        return gone

    def nearest(
        self, query: Vector, count: int, where: Where | None, keys: Sequence[str] | None = None
    ) -> list[tuple[str, float]]:
        """What Chroma's own search finds: at most so many keys, each with its worth, see `Candidate`; best first.

        Rows whose distance is beyond float32's range are left out.

        Args:
            query: (dimension,) finite.
            count: At least 1.
            where: A filter.
            keys: Of the rows that meet the filter, where they are known; Chroma need not look at the filter again.
        """
        only: dict[str, Any] = {"where": where}
        if keys is not None and len(keys) <= _KEYS_IN_A_SEARCH:
            only = {"ids": keys}
        [vector] = placed(query[None], self.schema.metric)
        found = self._call("query", query_embeddings=[vector], n_results=count, include=["distances"], **only)
        pairs = zip(found["ids"][0], found["distances"][0], strict=True)
        one = 0.0 if self.schema.metric == "l2" else 1.0  # it tells the square of the distance, or 1 - the product
        return [(key, one - far) for key, far in pairs if far is not None and math.isfinite(far)]

    def _call(self, method: str, **kwargs: Any) -> Any:
        """What a method of Chroma's object returns."""
        return self._connection.run(lambda _: getattr(self._handle, method)(**kwargs))


class Found:
    """What is near to one query: a fetch for `exact_ranking`.

    Chroma searches a graph (HNSW). Of it a search reaches not all rows, even if it is asked for all: of 3,000 equal
    vectors half, of inner products of vectors of very different lengths a quarter were seen. So a small collection is
    asked for all of its rows, and what does not come is fetched by its key and scored by us.

    Args:
        collection: The collection.
        query: (dimension,) finite.
        where: A filter.
        exact_rows: How many rows a small collection has at most.
    """

    def __init__(self, collection: Collection, query: Vector, where: Where | None, exact_rows: int) -> None:
        self._collection = collection
        self._query = query
        self._where = where
        self._exact_rows = exact_rows
        self._ranked: list[tuple[str, float]] = []
        self._is_all = False  # whether no other rows meet the filter
        self._rows: dict[str, VectorRow] = {}

    def __call__(self, depth: int) -> list[Candidate]:
        """The nearest rows, so many where there are as many."""
        while True:
            if len(self._ranked) < depth and not self._is_all:
                self._ask(depth)
            new = [key for key, _ in self._ranked[:depth] if key not in self._rows]
            if not new:
                return [Candidate(self._rows[key], worth) for key, worth in self._ranked[:depth]]
            self._rows.update(self._collection.rows(new))
            # Some may have been deleted meanwhile; a graph that another program has open remembers them for longer.
            gone = set(new) - self._rows.keys()
            self._ranked = [pair for pair in self._ranked if pair[0] not in gone]

    def _ask(self, depth: int) -> None:
        count = self._collection.count()
        is_small, where = count <= self._exact_rows, self._where
        if is_small and where is not None:
            self._rank_all(self._collection.keys(where))
            return
        asked = max(depth, count) if is_small else depth
        self._ranked = self._collection.nearest(self._query, asked, where) if count else []
        if len(self._ranked) < min(asked, count):
            self._complete(self._collection.keys(where))
        else:
            self._is_all = asked >= count

    def _rank_all(self, keys: Sequence[str]) -> None:
        """Rank the rows that meet the filter."""
        self._ranked = self._collection.nearest(self._query, len(keys), self._where, keys) if keys else []
        self._complete(keys)

    def _complete(self, keys: Sequence[str]) -> None:
        """Put the rows in their places that the search has not reached, and leave out those that are gone.

        Args:
            keys: Of all rows that meet the filter.
        """
        self._is_all = True
        there = set(keys)
        ranked = [pair for pair in self._ranked if pair[0] in there]
        rows = self._collection.rows(there - {key for key, _ in ranked})
        self._rows.update(rows)
        if rows:
            worth = self._worth(np.stack([cast("Vector", row.vector) for row in rows.values()]))
            ranked = sorted([*ranked, *zip(rows, worth, strict=True)], key=lambda pair: -pair[1])
        self._ranked = ranked

    def _worth(self, vectors: Matrix) -> list[float]:
        """Of each vector, (n, dimension), its worth; see `Candidate`."""
        metric = self._collection.schema.metric
        query = placed(self._query[None], metric)[0].astype(np.float64)
        exact = placed(vectors, metric).astype(np.float64)
        worth = -np.square(exact - query).sum(axis=1) if metric == "l2" else exact @ query
        return cast("list[float]", worth.tolist())


def _pieces(whole: Sequence[T], size: int) -> list[Sequence[T]]:
    return [whole[start : start + size] for start in range(0, len(whole), size)]


_METRICS: tuple[Metric, ...] = ("cosine", "ip", "l2")
_WHOLE_NUMBERS = ("batch_size", "ef_construction", "ef_search", "max_neighbors", "num_threads", "sync_threshold")
_INDEX_KEYS = (*_WHOLE_NUMBERS, "resize_factor", "space")
_ROUNDING = 2.0**-24  # Chroma tells 1 - the product, in float32
_WIDER = 4  # times as many candidates where a filter of ours has left too few


@dataclass(frozen=True, slots=True)
class _Scan:
    """A scan that is under way.

    Args:
        target: The collection.
        last: The key that the last page ended with.
        keys: Those of all rows, in order.
    """

    target: Collection
    last: str
    keys: Sequence[str]


class ChromaVectorStore:
    """Vectors in Chroma (spec 001's ``chromadb``): on a server, in a folder, or in memory if neither is given.

    A search is exact in collections of at most ``exact_rows`` rows: what Chroma's graph does not reach is fetched. In
    larger ones some of the nearest rows may be missing; those that are there are scored and ordered exactly. A folder
    is for one program at a time: Chroma does not tell another one what has changed.

    Args:
        uri: Address of a server, such as ``"localhost:8000"`` or ``"https://chroma.example.com"``.
        dir: Path of a folder, made where there is none.
        index_kwargs: Settings of the graph, for collections that are made: ``{"hnsw": {"ef_construction": 200}}``, or
            that mapping itself. Known: batch_size, ef_construction, ef_search, max_neighbors, num_threads,
            resize_factor, space, sync_threshold. A space is the metric by its name; it may be left out.
        client_kwargs: For Chroma's client: tenant, database, settings (a mapping), and for a server headers and ssl.
        exact_rows: Up to how many rows a search is exact, at least 0. The more, the longer searches of collections take
            that have as many.
        timeout_s: How long a server may be silent, in seconds.

    Raises:
        ConfigError: If an argument is out of its range or unknown.

    Example:
        >>> store = ChromaVectorStore(dir="vectors", index_kwargs={"hnsw": {"space": "cosine", "ef_construction": 200}})
        >>> sorted(store.features)
        ['exact when small', 'native vectors', 'persistent']
    """

    def __init__(
        self,
        uri: str | None = None,
        dir: str | os.PathLike[str] | None = None,  # noqa: A002  spec 001's name
        *,
        index_kwargs: Mapping[str, Any] | None = None,
        client_kwargs: Mapping[str, Any] | None = None,
        exact_rows: int = 10_000,
        timeout_s: float = 60.0,
    ) -> None:
        folder = None if dir is None else os.fspath(dir)
        place = Place(uri, folder, {} if client_kwargs is None else client_kwargs, seconds("timeout_s", timeout_s))
        self._connection = Connection(place)
        self._index = _index_settings({} if index_kwargs is None else index_kwargs)
        self._exact_rows = whole_number("exact_rows", exact_rows, 0)
        self._known: dict[str, Collection] = {}
        self._scans: dict[str, _Scan] = {}

    @property
    def features(self) -> frozenset[Feature]:
        """Exact when small, native vectors; what lies in a folder or on a server lasts, and a server is shared."""
        features: frozenset[Feature] = frozenset(["exact when small", "native vectors"])
        place = self._connection.place
        if place.uri is not None:
            return features | {"persistent", "shared"}
        return features if place.folder is None else features | {"persistent"}

    @property
    def exact_rows(self) -> int:
        """See `ExactWhenSmall.exact_rows`."""
        return self._exact_rows

    @property
    def location(self) -> Location | None:
        """See `Located.location`."""
        place = self._connection.place
        if place.uri is not None:
            return Location(place.uri, is_server=True)
        return None if place.folder is None else Location(place.folder, is_server=False)

    def open(self) -> None:
        """See `Store.open`.

        Raises:
            StoreConnectionError: If the server or the folder cannot be reached.
            MissingDependencyError: If chromadb is not installed.
        """
        self._connection.open()

    def close(self) -> None:
        """See `Store.close`; what lies in memory is gone."""
        self._known.clear()
        self._scans.clear()
        self._connection.close()

    def create(self, collection: str, schema: VectorSchema) -> None:
        """See `VectorStore.create`. ConfigError, too, for another metric than the space in ``index_kwargs``."""
        check_schema(schema)
        if schema.is_sparse:
            msg = f"Chroma keeps dense vectors only; the vectors of {collection!r} are sparse. Use 'map' or 'milvus'."
            raise UnsupportedError(msg, store=STORE, collection=collection)
        if self._index.get("space", schema.metric) != schema.metric:
            msg = (
                f"index_kwargs of chromadb has space={self._index['space']!r}, and the vectors of {collection!r} are "
                f"ranked by {schema.metric!r}. Leave the space out, or give the metric's name."
            )
            raise ConfigError(msg)
        try:
            found = self._found(collection)
        except CollectionGoneError:
            found = self._made(collection, schema)
        if schema_metadata(found.schema) != schema_metadata(schema):
            raise other_schema(collection, found.schema.dimension, found.schema.metric, schema, store=STORE)

    def drop(self, collection: str) -> None:
        """See `Store.drop`."""
        self._known.pop(collection, None)
        self._scans.pop(collection, None)
        name = self._name(collection)
        try:
            self._connection.run(lambda client: client.delete_collection(name))
        except CollectionGoneError:
            return

    def count(self, collection: str) -> int:
        """See `Store.count`."""
        return self._on(collection, Collection.count)

    def upsert(self, collection: str, rows: Sequence[VectorRow]) -> None:
        """See `VectorStore.upsert`. Other programs may see a part of many rows before the call returns."""
        last = list({row.key: row for row in rows}.values())  # of a key that stands twice, the later row counts

        def write(target: Collection) -> None:
            check_vectors(collection, target.schema.dimension, last, store=STORE)
            if last:
                target.upsert(last)

        self._scans.pop(collection, None)
        self._on(collection, write)

    def get(self, collection: str, keys: Sequence[str]) -> list[VectorRow]:
        """See `VectorStore.get`."""
        rows = self._on(collection, lambda target: target.rows(keys))
        return [rows[key] for key in keys if key in rows]

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[VectorRow]:
        """See `VectorStore.scan`.

        Chroma has no order of keys: all of them are read for the first page, and kept for the next one as long as
        nobody seems to have written. Rows that other programs add meanwhile may not be among the pages.
        """
        return self._on(collection, lambda target: self._page(collection, target, after, limit))

    def delete(
        self,
        collection: str,
        *,
        keys: Sequence[str] | None = None,
        filter: Filter | None = None,  # noqa: A002  the word of the protocol
    ) -> int:
        """See `VectorStore.delete`."""
        check_deletion(keys, filter)

        def remove(target: Collection) -> int:
            if filter is None:
                return target.delete(keys or ())
            pushed = divided(filter, target.schema.fields)
            if (rest := pushed.rest) is None:
                return target.delete(target.keys(pushed.native))
            return target.delete(key for key, fields in target.fields(pushed.native) if matches(rest, fields))

        self._scans.pop(collection, None)
        return self._on(collection, remove)

    def search(
        self,
        collection: str,
        vectors: Embeddings,
        topk: int,
        filter: Filter | None = None,  # noqa: A002  the word of the protocol
    ) -> list[Ranking]:
        """See `VectorStore.search`; exact in collections of at most `exact_rows` rows."""

        def ranked(target: Collection, query: Vector, pushed: Pushed[Where]) -> Ranking:
            fetch = Found(target, query, pushed.native, self._exact_rows)
            return exact_ranking(query, topk, target.schema, fetch, rest=pushed.rest, rounding=_ROUNDING)

        return self._on(collection, lambda target: _each(target, vectors, topk, filter, ranked))

    def search_natively(
        self,
        collection: str,
        vectors: Embeddings,
        topk: int,
        filter: Filter | None = None,  # noqa: A002  the word of the protocol
    ) -> list[Ranking]:
        """See `NativeVectors.search_natively`."""

        def ranked(target: Collection, query: Vector, pushed: Pushed[Where]) -> Ranking:
            kept = _native_hits(target, query, topk, pushed)
            scores = [(key, _score(worth, target.schema.metric)) for key, worth in kept]
            return sorted(scores, key=lambda pair: (-pair[1], pair[0]))

        return self._on(collection, lambda target: _each(target, vectors, topk, filter, ranked))

    def _on(self, collection: str, action: Callable[[Collection], T]) -> T:
        """What an action on a collection returns; done again if the one that was known has been dropped and remade."""
        known = self._known.get(collection)
        if known is not None:
            try:
                return action(known)
            except CollectionGoneError:
                self._known.pop(collection, None)
        try:
            return action(self._found(collection))
        except CollectionGoneError as exc:
            msg = f"There is no collection {collection!r} in Chroma at {self._connection.place}. Create it first."
            raise StoreError(msg, store=STORE, collection=collection) from exc

    def _found(self, collection: str) -> Collection:
        """A collection as it is in Chroma now; CollectionGoneError if it is not."""
        name = self._name(collection)
        handle = self._connection.run(lambda client: client.get_collection(name, embedding_function=None))
        schema = kept_schema(handle.metadata, collection)
        if schema is None:
            msg = (
                f"Collection {collection!r} in Chroma at {self._connection.place} was not made by lazyrag. Drop it, or "
                "give the Document another name."
            )
            raise SchemaMismatchError(msg, store=STORE, collection=collection)
        found = self._known[collection] = Collection(self._connection, handle, schema)
        return found

    def _made(self, collection: str, schema: VectorSchema) -> Collection:
        name, space = self._name(collection), space_of(schema.metric)
        try:
            self._connection.run(
                lambda client: client.create_collection(
                    name,
                    embedding_function=None,
                    configuration={"hnsw": {**self._index, "space": space}},
                    metadata=schema_metadata(schema),
                )
            )
        except StoreConnectionError:
            raise
        except StoreError as exc:
            try:  # another program may have made it meanwhile, or our own first try
                return self._found(collection)
            except CollectionGoneError:
                raise exc from exc.__cause__
        return self._found(collection)

    def _name(self, collection: str) -> str:
        return self._connection.prefix + collection

    def _page(self, collection: str, target: Collection, after: str, limit: int) -> list[VectorRow]:
        scan = self._scans.pop(collection, None)
        is_next = scan is not None and scan.target is target and scan.last == after
        keys = scan.keys if scan is not None and is_next and len(scan.keys) == target.count() else None
        while True:
            if keys is None:
                keys = sorted(target.keys())
            first = bisect_right(keys, after)
            wanted = keys[first : first + limit]
            rows = target.rows(wanted)
            if len(rows) == len(wanted):
                break
            keys = None  # some have gone meanwhile
        if first + limit < len(keys):
            self._scans[collection] = _Scan(target, wanted[-1], keys)
        return [rows[key] for key in wanted]


def _each(
    target: Collection,
    vectors: Embeddings,
    topk: int,
    filter: Filter | None,  # noqa: A002  the word of the domain
    ranked: Callable[[Collection, Vector, Pushed[Where]], Ranking],
) -> list[Ranking]:
    """A ranking for each of some queries, which are checked first."""
    schema = target.schema
    check_queries(schema, vectors, topk)
    pushed = divided(filter, schema.fields)
    return [ranked(target, cast("Vector", query), pushed) for query in vectors]


def _native_hits(target: Collection, query: Vector, topk: int, pushed: Pushed[Where]) -> list[tuple[str, float]]:
    """The keys that Chroma finds and that meet the filter, each with its worth."""
    depth, rest = topk, pushed.rest
    while True:
        hits = kept = target.nearest(query, depth, pushed.native)
        if rest is not None:
            rows = target.rows(key for key, _ in hits)
            kept = [pair for pair in hits if pair[0] in rows and matches(rest, rows[pair[0]].fields)]
        if len(kept) >= topk or len(hits) < depth:
            return kept[:topk]
        depth *= _WIDER


def _score(worth: float, metric: Metric) -> float:
    """A worth as `VectorStore.search` tells it."""
    if metric == "l2":
        return 1.0 / (1.0 + math.sqrt(max(-worth, 0.0)))
    return min(max(worth, -1.0), 1.0) if metric == "cosine" else worth


def _index_settings(index_kwargs: Any) -> dict[str, Any]:
    """The settings of Chroma's graph, checked.

    Raises:
        ConfigError: If one is unknown or out of its range.
    """
    if not isinstance(index_kwargs, Mapping):
        raise ConfigError(f"index_kwargs of chromadb is {index_kwargs!r:.200}; give a mapping.")
    given = index_kwargs
    if "hnsw" in index_kwargs:
        given = index_kwargs["hnsw"]
        if len(index_kwargs) > 1 or not isinstance(given, Mapping):
            msg = f"index_kwargs of chromadb is {index_kwargs!r:.200}; give {{'hnsw': {{...}}}} and nothing beside it."
            raise ConfigError(msg)
    for name, value in given.items():
        if name not in _INDEX_KEYS:
            msg = f"index_kwargs of chromadb has the key {name!r}. {known_names(str(name), _INDEX_KEYS)}"
            raise ConfigError(msg)
        if name in _WHOLE_NUMBERS:
            whole_number(f"{name} in index_kwargs of chromadb", value, 1)
    if given.get("space", "l2") not in _METRICS:
        msg = f"index_kwargs of chromadb has space={given['space']!r}; give one of {', '.join(_METRICS)}."
        raise ConfigError(msg)
    factor = given.get("resize_factor", 1.2)
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 1.0 <= factor < math.inf:
        raise ConfigError(f"index_kwargs of chromadb has resize_factor={factor!r}; give a number of at least 1.")
    return dict(given)
