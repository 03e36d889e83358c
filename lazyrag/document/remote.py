"""A Document of a service: `Document(url=..., name=...)` reads over HTTP what another program stores.

Retrievers, filters, explanations and nodes work as on a Document of this program: a `RemoteSnapshot` answers the calls
of a `LocalSnapshot` by requests. A read sees one state: its first answer names the state, later requests send the name,
and where the service has that state no more, the read begins again.
"""

from __future__ import annotations

import base64
import functools
import html
import http.client
import json
import selectors
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any, Generic, NoReturn, TypeVar, cast
from urllib.parse import quote, urlsplit

import numpy as np

import lazyrag.errors as all_errors
from lazyrag._version import __version__
from lazyrag.data.fields import DocField, read_schema
from lazyrag.data.filters import Condition, Filter, FilterLike, Not
from lazyrag.data.node import DocNode, ShownHits, remember
from lazyrag.data.segment import EMPTY, LAZY_ROOT_NAME, Location, ReadOnly, Segment, digest
from lazyrag.document.document import Document
from lazyrag.document.indexer import Indexer
from lazyrag.document.nodes import SearchMode
from lazyrag.document.reader import Reader
from lazyrag.document.report import IngestReport, Options
from lazyrag.document.snapshot import ActiveRead, DocumentState, Hits, LocalSnapshot, Needs, NodeKey, stale_error
from lazyrag.document.tree import View
from lazyrag.errors import (
    AccessError,
    ConfigError,
    LazyRAGError,
    NotRegisteredError,
    StaleNodeError,
    StoreConnectionError,
    StoreError,
    known_names,
)
from lazyrag.indexes.bm25 import BM25, Statistics
from lazyrag.models.embedding import CheckedEmbedder, EmbedCallable, as_vector, make_embedders
from lazyrag.models.protocols import Embedder, InputType
from lazyrag.types import Embedding, Metric
from lazyrag.validation import known_arguments, require, validate_text

R = TypeVar("R")

TIMEOUT_S = 60.0
_CHECK_S = 3.0  # after so long without an answer, the service is asked whether it runs,
_ALIVE_S = 7.0  # and has to say so within this time
HIDDEN = -1
"""The build of a node that a scope hides, of which only the place in the tree is known."""
MERGED = 1
"""The build of a merged window, which is not in the tree; that of all other nodes is 0."""
_LOADED = 40  # with a ranking of so many nodes come the nodes, as most callers want them all
_LOADED_FIRST = 10  # with a longer one the first ones: it is fused with others, or read by pages
_TOGETHER = 32  # parents or whole documents that come with one that is needed
_WAY_OUT = "Call this method in the program of the service, or use its HTTP API."
_COLLECTED = ("rank", "statistics")
_ROUTES = "sets/{name}/_{route}"


# What both sides write and read: JSON, with arrays of float32 in base64.


def encode_vector(vector: Embedding | None) -> Any:
    """A dense vector as base64 of little-endian float32, a sparse one as a mapping.

    Example:
        >>> encode_vector(np.ones(2, np.float32)), encode_vector({7: 0.5})
        ('AACAPwAAgD8=', {'7': 0.5})
    """
    if vector is None:
        return None
    if isinstance(vector, dict):
        return {str(key): float(weight) for key, weight in vector.items()}
    return base64.b64encode(np.ascontiguousarray(vector, "<f4").tobytes()).decode()


def decode_vector(value: Any) -> Embedding:
    """The vector that `encode_vector` encoded.

    Raises:
        ConfigError: If the value is something else.

    Example:
        >>> decode_vector("AACAPwAAgD8="), decode_vector({"7": 0.5})
        (array([1., 1.], dtype=float32), {7: 0.5})
    """
    try:
        if isinstance(value, str):
            value = np.frombuffer(base64.b64decode(value, validate=True), "<f4")
        return as_vector(value)
    except ValueError as exc:
        raise ConfigError(f"A vector must be base64 of float32, or a mapping to weights; got {value!r:.60}.") from exc


def encode_segment(segment: Segment, *, is_hidden: bool = False, is_merged: bool = False) -> list[Any]:
    """A node for JSON, without the number of its build; of a hidden one only its place in the tree."""
    if is_hidden:
        hidden = Segment(segment.uid, HIDDEN, segment.group, segment.document_id, "", segment.parent, 0, "")
        return list(hidden._replace(span=segment.span))
    locations = [(one.start, one.end, one.kind, one.label) for one in segment.locations]
    return list(segment._replace(build=MERGED if is_merged else 0, locations=cast("Any", locations)))


def decode_segment(row: Sequence[Any]) -> Segment:
    """The node that `encode_segment` encoded."""
    one = Segment(*row)
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in one.fields.items()}
    return one._replace(
        metadata=ReadOnly(one.metadata) if one.metadata else EMPTY,
        fields=ReadOnly(fields),
        span=None if one.span is None else (one.span[0], one.span[1]),
        locations=tuple(Location(*cast("Any", place)) for place in one.locations),
    )


def reference(segment: Segment) -> list[Any]:
    """What names a node to the service: its place in the tree, and a digest of its content."""
    content = None if segment.build == MERGED else content_digest(segment)
    return [segment.group, segment.document_id, segment.uid, segment.parent, segment.number, content]


def content_digest(segment: Segment) -> str:
    """Distinguishes a node from another one in its place in the tree."""
    return digest([json.dumps(segment.content, sort_keys=True), str(segment.span)])


def encode_filter(filters: Filter | None) -> Any:
    """A filter for JSON.

    Example:
        >>> encode_filter(~Condition("year", ">", 2000))
        {'not': {'field': 'year', 'op': 'gt', 'value': 2000}}
    """
    if filters is None:
        return None
    if isinstance(filters, Condition):
        return {"field": filters.field, "op": filters.op, "value": filters.value}
    if isinstance(filters, Not):
        return {"not": encode_filter(filters.filter)}
    return {type(filters).__name__.lower(): [encode_filter(one) for one in filters.filters]}


# The client

_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)  # for one socket the one that begins fastest


class Connection:
    """HTTP connections to a service, which are kept open. Threads may share it.

    Args:
        url: Of the service.
        token: An access token; None where the service needs none.

    Raises:
        ConfigError: If the URL is none of HTTP.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self._idle: list[http.client.HTTPConnection] = []
        parts = urlsplit(validate_text("url", url))
        is_http = parts.scheme in ("http", "https") and parts.hostname is not None
        require(is_http, "url", url, "the address of a service, such as 'http://127.0.0.1:8400'")
        self.url = url.rstrip("/")
        self._base = parts.path.rstrip("/")
        self._where = str(parts.hostname), parts.port
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        headers = {"Host": parts.netloc.rpartition("@")[2], "User-Agent": f"lazyrag/{__version__}"}
        headers |= {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if token is not None:
            headers["Authorization"] = f"Bearer {validate_text('token', token)}"
            require(token.isprintable() and token.isascii(), "token", "another text", "printable ASCII characters")
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in headers.items())

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a request that changes nothing and may be repeated, and return the JSON of the answer.

        Raises:
            StoreConnectionError: If the service does not answer.
            AccessError: If the token is missing or does not allow it.
            LazyRAGError: The error that the service reports, of its class.
        """
        data = json.dumps(body).encode()
        head = f"POST {self._base}/api/v1/{path} HTTP/1.1\r\n{self._headers}Content-Length: {len(data)}\r\n\r\n"
        request, turn = head.encode("latin-1") + data, _turn.get()
        link = None if turn is None else turn.take(self, request)
        while True:
            reused = bool(self._idle) or link is not None
            try:
                if link is None:
                    link = self._send(request)
                    if turn is not None and turn.begins:
                        turn.keep(self, request, link)
                        raise RequestSent
                status, content = self._receive(link)
            except (OSError, http.client.HTTPException) as exc:
                if link is not None:
                    link.close()
                link = None
                if reused and not isinstance(exc, TimeoutError):  # the service closes connections that wait for long
                    continue
                msg = f"The service at {self.url} does not answer: {str(exc) or type(exc).__name__}. "
                raise StoreConnectionError(f"{msg}Check the address, and that `lazyrag serve` runs.") from exc
            try:
                found = json.loads(content.decode("utf-8", "surrogatepass"))
            except ValueError:
                raise problem_error(status, None, self.url) from None
            if status == HTTPStatus.OK:
                return found
            raise problem_error(status, found, self.url)

    def _send(self, request: bytes) -> http.client.HTTPConnection:
        """Send a request at once, by a connection that is open, or a new one."""
        try:
            link = self._idle.pop()
        except IndexError:
            link = self._kind(*self._where, timeout=_ALIVE_S)
            link.connect()
            link.sock.settimeout(TIMEOUT_S)
        try:
            link.sock.sendall(request)
        except BaseException:
            link.close()
            raise
        return link

    def _receive(self, link: http.client.HTTPConnection) -> tuple[int, bytes]:
        self._wait(link.sock)
        answer = http.client.HTTPResponse(link.sock, method="POST")
        try:
            answer.begin()
            content = answer.read()
        finally:
            answer.close()
        if answer.will_close:
            link.close()
        else:
            self._idle.append(link)
        return answer.status, content

    def _wait(self, sock: socket.socket) -> None:
        """Wait for an answer, as long as the service runs: one that hangs accepts requests and never answers."""
        until = time.monotonic() + TIMEOUT_S
        with _Selector() as ready:
            ready.register(sock, selectors.EVENT_READ)
            while not ready.select(_CHECK_S):
                if time.monotonic() > until:
                    raise TimeoutError("timed out")
                with closing(self._kind(*self._where, timeout=_ALIVE_S)) as link:
                    link.request("GET", f"{self._base}/healthz")
                    link.getresponse().read()

    def close(self) -> None:
        """Close the connections."""
        while self._idle:
            self._idle.pop().close()

    __del__ = close


class RequestSent(BaseException):  # noqa: N818  no error: ends the first call of a function, see `Turn`
    """A request was sent, and its answer is awaited later."""


class Turn(Generic[R]):
    """A function that is called up to its first request, and later again, when it gets the answer.

    So the requests of several functions are sent before the first answer is awaited, without threads.

    Args:
        function: It reads, and has no other effects.
        given: Its arguments.
    """

    def __init__(self, function: Callable[..., R], *given: Any) -> None:
        self._call = functools.partial(function, *given)
        self._sent: tuple[Connection, bytes, http.client.HTTPConnection] | None = None
        self._found: list[R] = []
        self.begins = True
        with suppress(RequestSent):
            self._found.append(self._run())
        self.begins = False

    def _run(self) -> R:
        outer = _turn.get()
        try:
            _turn.set(self)
            return self._call()
        finally:
            _turn.set(outer)

    def result(self) -> R:
        """The function's result."""
        return self._found[0] if self._found else self._run()

    def keep(self, connection: Connection, request: bytes, link: http.client.HTTPConnection) -> None:
        """Remember a request that was sent."""
        self._sent = connection, request, link

    def take(self, connection: Connection, request: bytes) -> http.client.HTTPConnection | None:
        """The link by which a request was sent, if it was."""
        if self._sent is None or self._sent[:2] != (connection, request):
            return None
        link, self._sent = self._sent[2], None
        return link

    def __del__(self) -> None:
        if self._sent is not None:
            self._sent[2].close()


_turn: ContextVar[Turn[Any] | None] = ContextVar("lazyrag_turn", default=None)


class StateGoneError(StaleNodeError):
    """The service has the state of a read no more; the read begins again."""


def problem_error(status: int, problem: Any, url: str) -> LazyRAGError:
    """The exception of a problem (RFC 9457) that a service answered with."""
    known = problem if isinstance(problem, dict) else {}
    text = " ".join(str(known[name]) for name in ("detail", "remedy") if known.get(name))
    if known.get("is_gone"):
        return StateGoneError(text)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        text = known.get("detail") or f"The service refuses the request ({status})."  # its remedy is for HTTP clients
        return AccessError(f"{text} Pass a token that allows it: token='lrg_...'. (service at {url})")
    kind = getattr(all_errors, str(known.get("error")), None)
    if isinstance(kind, type) and issubclass(kind, LazyRAGError):
        return kind(text)
    if not text:
        return StoreConnectionError(f"{url} answers with status {status}, and not as a service of lazyrag does.")
    return ConfigError(text) if status < HTTPStatus.INTERNAL_SERVER_ERROR else StoreError(text)


class RemoteEmbedder:
    """The embed callable of a service under one embed key.

    Args:
        indexer: The Document.
        key: The embed key.
        known: The schema of the Document.
    """

    dimension = max_tokens = None
    normalised = False
    batch_size = 64

    def __init__(self, indexer: RemoteIndexer, key: str, known: Mapping[str, Any]) -> None:
        self._indexer = indexer
        self._key = key
        self.identity: str = known["embed"][key]
        self._tells = key in known.get("unknown_share", ())

    def embed(self, texts: Sequence[str], input_type: InputType = "document") -> Sequence[Any]:
        """See `Embedder.embed`."""
        body = {"embed_key": self._key, "texts": list(texts), "input_type": input_type}
        return [decode_vector(one) for one in self._indexer.post("embed", body)]

    def unknown_share(self, text: str) -> float | None:
        """See `lazyrag.models.embedding.unknown_share`."""
        if not self._tells or text.isascii():
            return None
        [share] = self._indexer.post("embed", {"embed_key": self._key, "texts": [text], "unknown_share": True})
        return cast("float | None", share)


class RemoteIndexer:
    """What reads and retrievers use of an `Indexer`, for a Document of a service. It builds nothing.

    Args:
        connection: To the service.
        name: Name of the set.
        embed: Embed callables that replace those of the service.
    """

    nodes: Any = None
    changes = removals = 0  # as of every `RemoteView` that is not gone
    switched: Mapping[str, str] = {}
    options = Options()

    def __init__(self, connection: Connection, name: str, embed: Any) -> None:
        self._connection = connection
        self.name = name
        self.url = connection.url
        self.where = f"Document {name!r} ({connection.url})"
        self.hits: ShownHits = set()
        self.is_closed = False
        self.ledger = self.tree = self.last_view = self
        self.metrics: dict[Any, set[Metric]] = {}
        self._load()
        identities = {key: RemoteEmbedder(self, key, self._known) for key in self._known["embed"]}
        own = make_embedders(embed, None)
        unknown = [key for key in own if key not in identities]
        require(not unknown, "The keys of embed", unknown, f"embed keys of the service: {sorted(identities)}")
        for key, one in own.items():
            model, theirs = one.embedder.identity, identities[key].identity
            require("" in (model, theirs) or model == theirs, f"The model of embed[{key!r}]", model, repr(theirs))
        self.embedders: Mapping[str, CheckedEmbedder] = {**make_embedders(identities or None, 1), **own}

    def _load(self) -> None:
        self._known = self.post("schema", {})
        self.schema: Mapping[str, DocField] = read_schema(self._known["fields"])

    @property
    def lines(self) -> Mapping[str, list[str]]:
        """Of each group its name and those above it, the root group last."""
        return cast("Mapping[str, list[str]]", self._known["groups"])

    def line(self, group: str) -> list[str]:
        """See `Reader.line`; the service may have defined the group meanwhile."""
        if group not in self.lines:
            self._load()
        if group not in self.lines:
            raise NotRegisteredError(f"No node group is named {group!r}. {known_names(group, self.lines)}")
        return self.lines[group]

    def post(self, route: str, body: Mapping[str, Any]) -> Any:
        """Call a route of the set."""
        if self.is_closed:
            raise StoreError(f"{self.where} is closed. Open it again.")
        return self._connection.post(_ROUTES.format(name=quote(self.name, safe=""), route=route), body)

    def has(self, view: RemoteView, needs: Needs) -> bool:
        """Note what is needed: the service builds it with the next request."""
        view.needs |= needs
        view.met.add(needs)
        return True

    def paused(self, timeout_s: float) -> nullcontext[bool]:  # noqa: ARG002  the signature of an Indexer
        """False: writers of the service cannot be paused."""
        return nullcontext(False)

    def __getattr__(self, name: str) -> NoReturn:
        raise ConfigError(f"{self.where} only reads. {_WAY_OUT}")

    def close(self) -> None:
        """Close the connections."""
        self.is_closed = True
        self._connection.close()


class RemoteView:
    """The state that one read sees: the name that the service gave it, and what was read of it.

    Args:
        indexer: Of the Document.
        needs: What must be built for the read.
    """

    def __init__(self, indexer: RemoteIndexer, needs: Needs) -> None:
        self.needs = needs
        self.met = {needs}
        self.tree = indexer
        self.removals = 0
        self.state: str | None = None
        self.segments: dict[tuple[str, str], Segment] = {}
        self.rows: dict[tuple[str, str], Sequence[Any]] = {}  # of nodes that nobody has read yet
        self.parents: dict[tuple[str, str], Segment] = {}
        self.documents: dict[str, str] = {}
        self.waiting: dict[str, Any] | None = None  # requests that are collected to be sent together, see `run_calls`
        self.answers: dict[str, Any] = {}  # to them


class RemoteReader(Reader):
    """A Document of a service within a scope. The service applies the scope as well."""

    indexer: Any

    @property
    def schema(self) -> Mapping[str, DocField]:
        """See `Reader.schema`."""
        return cast("Mapping[str, DocField]", self.indexer.schema)

    def report(self) -> IngestReport | None:
        """None: ingestion is the service's matter."""
        return None

    def line(self, group: str) -> list[str]:
        """See `Reader.line`."""
        return cast("list[str]", self.indexer.line(group))

    def build(self, needs: Needs) -> View:
        """A state that begins with the first request."""
        return cast("View", RemoteView(self.indexer, needs))

    def snapshot(self, read: ActiveRead, state: DocumentState) -> LocalSnapshot:
        """See `Reader.snapshot`."""
        return RemoteSnapshot(self, read, state)

    def image(self, segment: Segment, file: Any = None) -> bytes:  # noqa: ARG002  the signature of a Reader
        """Refuse: files are with the service."""
        way = f"GET /api/v1/sets/{self.indexer.name}/images/{segment.uid}"
        raise ConfigError(f"{self.indexer.where} has no files here. Get the picture from the service: {way}.")

    def _sees(self, segment: Segment) -> bool:
        return segment.build != HIDDEN and super()._sees(segment)


class RemoteSnapshot(LocalSnapshot):
    """One state of a Document of a service; see `LocalSnapshot`."""

    __slots__ = ()
    indexer: Any

    @property
    def _view(self) -> RemoteView:
        return cast("RemoteView", self.state.view)

    @property
    def version(self) -> tuple[Any, ...]:
        """See `Snapshot.version`."""
        if self._view.state is None:
            self._ask("nodes", {})
        return (self._view.state,)

    def _ask(self, route: str, body: Mapping[str, Any]) -> Any:
        """Call a route in the state and the scope of the read.

        Raises:
            StaleNodeError: If the service has the state no more; `read` then begins again.
        """
        view = self._view
        if route in _COLLECTED and (view.waiting is not None or view.answers):
            call = {"route": route, **body}
            call.pop("latest", None)
            name = json.dumps(call)
            if view.waiting is not None:
                view.waiting[name] = call
                raise RequestSent
            if name in view.answers:
                return view.answers.pop(name)
        needs = [(one.group, one.analyser, one.embed_key) for one in view.needs] if view.state is None else []
        common = {"state": view.state, "scope": encode_filter(self._scope), "needs": needs}
        try:
            answer = self.indexer.post(route, {**common, **body})
        except StateGoneError:
            view.removals = -1
            raise
        if view.state is None:
            view.state = answer["state"]
        return answer["result"]

    @staticmethod
    def run_calls(parts: Sequence[LocalSnapshot], calls: Sequence[Callable[[], R]]) -> list[R]:
        """See `Snapshot.together`: each is called up to its first request, and again with the answer."""
        remote = [one for one in parts if isinstance(one, RemoteSnapshot)]
        found: dict[int, R] = {}
        for one in remote:
            one._view.waiting = {}
        try:
            for number, call in enumerate(calls):
                with suppress(RequestSent):
                    found[number] = call()
        finally:
            waiting = [one._view.waiting or {} for one in remote]
            for one in remote:
                one._view.waiting = None

        def ask(one: RemoteSnapshot, own: Mapping[str, Any]) -> None:
            if len(own) > 1:
                answers = one._ask("together", {"calls": list(own.values())})
                one._view.answers = dict(zip(own, answers, strict=True))

        list(remote[0].map_calls(ask, remote, waiting))
        return [found[number] if number in found else call() for number, call in enumerate(calls)]

    def _filters(self, filters: FilterLike | None) -> Any:
        return encode_filter(self.source.bind(filters))

    # Rankings

    def term_statistics(self, group: str, analyser: str, terms: Sequence[str], model: BM25) -> Statistics:
        """See `Snapshot.term_statistics`."""
        body = {"group": group, "analyser": analyser, "terms": list(terms), "model": (model.k1, model.b, model.variant)}
        rows, tokens, frequencies, vocabulary = self._ask("statistics", body)
        return Statistics(rows, tokens, tuple(frequencies), Counter(vocabulary))

    def rank_terms(
        self,
        group: str,
        analyser: str,
        terms: Sequence[str],
        topk: int,
        filters: FilterLike | None,
        model: BM25,
        statistics: Statistics | None = None,
    ) -> Hits:
        """See `Snapshot.rank_terms`."""
        known = statistics
        common = None if known is None else (known.rows, known.tokens, known.frequencies, known.vocabulary)
        parameters = model.k1, model.b, model.variant
        more = {"analyser": analyser, "terms": list(terms), "model": parameters, "statistics": common}
        return self._rank("terms", group, topk, filters, more)

    def rank_vectors(
        self,
        group: str,
        embed_key: str,
        vectors: Sequence[Embedding],
        topk: int,
        filters: FilterLike | None,
        *,
        mode: SearchMode = "exact",
    ) -> Hits:
        """See `Snapshot.rank_vectors`."""
        [query] = vectors
        more = {"embed_key": embed_key, "vector": encode_vector(query), "mode": mode}
        return self._rank("vectors", group, topk, filters, more)

    def rank_text(self, group: str, analyser: str, terms: Sequence[str], topk: int, filters: FilterLike | None) -> Hits:
        """See `LocalSnapshot.rank_text`."""
        return self._rank("text", group, topk, filters, {"analyser": analyser, "terms": list(terms)})

    def _rank(self, by: str, group: str, topk: int, filters: FilterLike | None, more: Mapping[str, Any]) -> Hits:
        load = topk if topk <= _LOADED else _LOADED_FIRST
        body = {"by": by, "group": group, "topk": topk, "filters": self._filters(filters), "load": load}
        answer = self._ask("rank", {**body, **more})
        self._view.rows.update(((group, row[0]), row) for row in answer["nodes"])
        hits: Hits = []
        for uid, document, score in answer["hits"]:
            self._view.documents[uid] = document
            hits.append(((uid, self.document_index, f"{uid}-0"), score))
        return hits

    def metrics(self, group: str, embed_key: str) -> set[Metric]:
        """See `Snapshot.metrics`. Those of vectors that were there once are remembered: a new model is checked by its
        vectors' length.
        """
        known: set[Metric] | None = self.indexer.metrics.get((group, embed_key, self._scope))
        if known is None:
            known = set(self._ask("metrics", {"group": group, "embed_key": embed_key}))
            if known and len(self.indexer.metrics) < 1_000:
                self.indexer.metrics[group, embed_key, self._scope] = known
        return known

    def size(self, group: str) -> int:  # noqa: ARG002  the signature of a LocalSnapshot
        """More than any group has: how many there are beside the visible ones is not for clients."""
        return sys.maxsize // 2**16

    def scan(self, group: str, filters: FilterLike | None, embed_key: str | None = None) -> Iterator[list[DocNode]]:
        """See `LocalSnapshot.scan`."""
        body: dict[str, Any] = {"group": group, "filters": self._filters(filters), "embed_key": embed_key}
        at: Any = (0, 0)
        page: list[DocNode] = []
        while at is not None:
            answer = self._ask("scan", {**body, "page": at[0], "offset": at[1]})
            for number, row in enumerate(answer["nodes"]):
                own = None if embed_key is None else {embed_key: decode_vector(answer["vectors"][number])}
                page.append(DocNode.from_segment(self._store(row), self.source, embeddings=own))
            if page and (answer["next"] is None or answer["next"][0] != at[0]):
                yield page
                page = []
            at = answer["next"]

    def walk(
        self, group: str, filters: FilterLike | None, wanted: Mapping[str, Collection[Any]] = EMPTY
    ) -> Iterator[DocNode]:
        """See `LocalSnapshot.walk`; read in pages, each larger than the one before."""
        body = {"group": group, "filters": self._filters(filters)}
        body["wanted"] = {name: list(values) for name, values in wanted.items()}
        behind, size = None, 100
        while size == 100 or behind is not None:
            answer = self._ask("walk", {**body, "behind": behind, "size": size})
            yield from (DocNode.from_segment(self._store(row), self.source) for row in answer["nodes"])
            behind, size = answer["behind"], min(4 * size, 5_000)

    # Nodes

    def nodes(self, group: str, hits: Sequence[tuple[NodeKey, float]], embed_key: str | None = None) -> list[DocNode]:
        """See `Snapshot.nodes`."""
        segments, documents, rows = self._view.segments, self._view.documents, self._view.rows
        for (uid, _, _), _ in hits:
            if (group, uid) in rows:
                self._store(rows.pop((group, uid)))
        missing = [uid for (uid, _, _), _ in hits if (group, uid) not in segments]
        if missing:
            refs = [(group, documents[uid], uid, None, 0, None) for uid in missing]
            for row in self._ask("nodes", {"nodes": refs}):
                self._store(row)
        found = [segments[group, uid] for (uid, _, _), _ in hits]
        nodes = [
            DocNode.from_segment(segment, self.source, score=score, embed_key=embed_key)
            for segment, (_, score) in zip(found, hits, strict=True)
        ]
        remember(nodes, self.indexer.hits)
        return nodes

    def find(self, uid: str) -> list[tuple[NodeKey, Segment]]:
        """See `LocalSnapshot.find`."""
        found = map(self._store, self._ask("find", {"uid": uid}))
        return [((uid, self.document_index, one.key), one) for one in found]

    def embeddings(self, segment: Segment) -> Mapping[str, Embedding]:
        """See `LocalSnapshot.embeddings`."""
        return self._vectors([segment], list(self.indexer.embedders))[0]

    def vectors(self, segments: Sequence[Segment], embed_key: str) -> list[Embedding | None]:
        """See `LocalSnapshot.vectors`."""
        return [found.get(embed_key) for found in self._vectors(segments, [embed_key])]

    def _vectors(self, segments: Sequence[Segment], keys: Sequence[str]) -> list[dict[str, Embedding]]:
        """The vectors of nodes by key; a merged window has none."""
        stored = [one for one in segments if one.build != MERGED]
        rows = self._follow("vectors", stored, embed_keys=keys) if stored and keys else [()] * len(stored)
        found = {
            one.key: {key: decode_vector(vector) for key, vector in zip(keys, row, strict=False) if vector is not None}
            for one, row in zip(stored, rows, strict=True)
        }
        return [found.get(one.key, {}) for one in segments]

    def sees(self, segment: Segment) -> bool:
        """See `LocalSnapshot.sees`."""
        return segment.build != HIDDEN and super().sees(segment)

    def group(self, name: str) -> NoReturn:
        """Refuse: what is stored where is not for clients."""
        raise ConfigError(f"{self.indexer.where} does not show how {name!r} is stored. {_WAY_OUT}")

    # From node to node

    def _follow(self, method: str, segments: Sequence[Segment], **more: Any) -> Any:
        return self._ask(method, {"nodes": [reference(one) for one in segments], **more})

    def _store(self, row: Sequence[Any]) -> Segment:
        segment = decode_segment(row)
        self._view.segments[segment.group, segment.uid] = segment
        return segment

    def parent(self, segment: Segment) -> Segment | None:
        """See `LocalSnapshot.parent`. With it come those of some other nodes that were read."""
        if segment.parent is None:
            return None
        place = self._place_above(segment)
        if place not in self._view.parents:
            alike = (one for one in self._view.segments.values() if one.group == segment.group)
            self._load_parents([segment, *alike], _TOGETHER)
        return self._view.parents[place]

    def prefetch_parents(self, segments: Sequence[Segment]) -> None:
        """See `LocalSnapshot.prefetch_parents`."""
        self._load_parents(segments, len(segments))

    def _load_parents(self, segments: Sequence[Segment], most: int) -> None:
        """Load parents that are not known; above a hidden one also the next ones, up to one that is visible."""
        parents = self._view.parents
        places = {self._place_above(one): one for one in segments if one.parent is not None}
        missing = [one for place, one in places.items() if place not in parents][:most]
        for chain in self._follow("parents", missing) if missing else ():
            parents.update(((one.group, one.uid), one) for one in map(decode_segment, chain))

    def _place_above(self, segment: Segment) -> tuple[str, str]:
        return self.source.line(segment.group)[1], str(segment.parent)

    def root(self, segment: Segment) -> Segment:
        """See `LocalSnapshot.root`. With it come those of some other nodes that were read."""
        if segment.group == LAZY_ROOT_NAME:
            return segment
        roots, own = self._view.parents, segment.document_id
        if (LAZY_ROOT_NAME, own) not in roots:
            others = {one.document_id: one for one in self._view.segments.values()}
            missing = [one for uid, one in others.items() if uid != own and (LAZY_ROOT_NAME, uid) not in roots]
            found = map(decode_segment, self._follow("root", [segment, *missing[: _TOGETHER - 1]]))
            roots.update(((LAZY_ROOT_NAME, one.uid), one) for one in found)
        return roots[LAZY_ROOT_NAME, own]

    def children(self, segment: Segment) -> dict[str, list[DocNode]]:
        """See `LocalSnapshot.children`."""
        found = self._follow("children", [segment])
        return {
            name: [DocNode.from_segment(self._store(row), self.source) for row in rows] for name, rows in found.items()
        }

    def children_up_to(self, segment: Segment, group: str, most: int) -> list[Segment] | None:
        """See `LocalSnapshot.children_up_to`."""
        found = self._follow("children_up_to", [segment], group=group, most=most)
        return None if found is None else [self._store(row) for row in found]

    def related_nodes(self, nodes: Sequence[DocNode], target: str) -> list[list[Segment]]:
        """See `LocalSnapshot.related_nodes`."""
        segments = [self.checked(node) for node in nodes]
        if not segments:
            return []
        answer = self._follow("related", segments, group=target)
        found = {one.uid: one for one in map(self._store, answer["nodes"])}
        return [[found[uid] for uid in uids] for uids in answer["uids"]]

    def windows(
        self, nodes: Sequence[DocNode], before: int, after: int, *, merge: bool
    ) -> list[tuple[int, list[DocNode]]]:
        """See `LocalSnapshot.windows`."""
        if not nodes:
            return []
        segments = [self.checked(node) for node in nodes]
        stale = next((one for one in segments if one.build == MERGED), None)
        if stale is not None:
            raise stale_error(stale)
        found = self._follow("windows", segments, before=before, after=after, merge=merge)
        return [
            (rank, [self.hit(decode_segment(row), nodes[at].score, tuple(merged)) for row, at, merged in window])
            for rank, window in found
        ]


@known_arguments
class RemoteDocument(Document):
    """See `Document`, ``url``. It reads; the service writes."""

    def __init__(
        self,
        *files: object,
        url: str,
        name: str | None = None,
        token: str | None = None,
        embed: Embedder | EmbedCallable | Mapping[str, Embedder | EmbedCallable] | None = None,
    ) -> None:
        require(not files, "dataset", files, "left out with url: the service has the files")
        self.name = "default" if name is None else validate_text("name", name)
        indexer = RemoteIndexer(Connection(url, token), self.name, embed)
        self._indexer = cast("Indexer", indexer)
        self._reader = RemoteReader(self._indexer)

    @property
    def groups(self) -> tuple[str, ...]:
        """See `Document.groups`."""
        lines = cast("Any", self._indexer).lines
        return (*sorted(name for name in lines if name != LAZY_ROOT_NAME), LAZY_ROOT_NAME)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: the service writes."""
        raise ConfigError(f"{self._indexer.where} only reads. {_WAY_OUT}")

    create_node_group = add_reader = activate_group = _unrestricted = _refuse

    @property
    def url(self) -> str:
        """The address of the service."""
        return str(cast("Any", self._indexer).url)

    def __repr__(self) -> str:
        return f"<{self._indexer.where}{'' if self._reader.scope is None else ', restricted'}>"

    def _repr_html_(self) -> str:
        return f"<code>{html.escape(repr(self))}</code>"


RemoteDocument.__name__ = "Document"  # as errors name it
