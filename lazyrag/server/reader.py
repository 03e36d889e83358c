"""Routes for `Document(url=...)`: the reads of a snapshot. Their form may change; programs use the other routes."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from lazyrag.data.fields import schema_text
from lazyrag.data.filters import Filter, matches, parse_filter
from lazyrag.data.node import DocNode
from lazyrag.data.segment import Segment, key_build, store_key
from lazyrag.document import Document
from lazyrag.document.groups import Step
from lazyrag.document.indexer import Indexer
from lazyrag.document.nodes import PAGE, SearchMode
from lazyrag.document.reader import Reader
from lazyrag.document.remote import StateGoneError, content_digest, decode_vector, encode_segment, encode_vector
from lazyrag.document.shards import shard_mark
from lazyrag.document.snapshot import NOTHING, Hits, LocalSnapshot, Needs, stale_error
from lazyrag.document.tree import View
from lazyrag.errors import ConfigError, known_names
from lazyrag.indexes.bm25 import BM25, Statistics, Variant
from lazyrag.models.embedding import unknown_share
from lazyrag.models.protocols import InputType
from lazyrag.server.problems import ProblemError
from lazyrag.server.routes_search import filter_of
from lazyrag.server.service import Principal, Service, needs, service_of
from lazyrag.server.shards.routes import reader_of
from lazyrag.text.analyzers import term_function

router = APIRouter(prefix="/api/v1", tags=["reader"])
READER = needs("read")

_CHUNK = 10_000  # nodes of a scan in one response
_STATES = 16  # states of a Document that reads in progress may need

Json: TypeAlias = Any
Filters: TypeAlias = dict[str, Any] | None
Count = Field(0, ge=0, lt=2**32)
Reference: TypeAlias = tuple[str, str, str, str | None, int, str | None]
"""See `lazyrag.document.remote.reference`."""


class Call(BaseModel):
    """A call of a method of `_METHODS` in a state of a set; each method reads some of the arguments.

    The state is null in the first call of a read; its answer names the one that it was in.
    """

    model_config = ConfigDict(extra="forbid")
    state: str | None = None
    latest: bool = False
    scope: Filters = None
    needs: list[tuple[str, str | None, str | None]] = []
    group: str = ""
    filters: Filters = None
    by: Literal["terms", "vectors", "text"] = "terms"
    analyser: str = "en"
    terms: list[str] = []
    model: tuple[float, float, Variant] = (1.5, 0.75, "lucene")
    statistics: tuple[int, int, list[int], dict[str, int]] | None = None
    embed_key: str | None = None
    vector: str | dict[str, float] = ""
    mode: SearchMode = "exact"
    topk: int = Field(1, ge=1)
    load: int = Count
    page: int = Count
    offset: int = Count
    wanted: dict[Literal["document_id", "uid", "number"], list[str | int]] = {}
    behind: str | None = None
    size: int = Field(1_000, ge=1, le=5_000)
    uid: str = ""
    nodes: list[Reference] = []
    embed_keys: list[str] = []
    most: int = Count
    before: int = Count
    after: int = Count
    merge: bool = False
    route: Literal["rank", "statistics"] = "rank"
    calls: list[Call] = Field([], max_length=16)


class Texts(BaseModel):
    """Texts to embed."""

    model_config = ConfigDict(extra="forbid")
    embed_key: str
    texts: list[str] = Field(min_length=1, max_length=256)
    input_type: InputType = "document"
    unknown_share: bool = False
    """Ask for the share of each text's letters that the model does not know, instead of vectors."""


@router.post("/sets/{set}/_schema")
async def schema(set: str, request: Request, principal: Principal = READER) -> Response:  # noqa: A002
    """The fields, groups and embed keys of a set."""
    service = service_of(request)
    return await service.run(lambda: _json(_schema(service.view(set, principal))))


def _schema(docs: Document) -> Json:
    embedders = docs.reader.embedders(None) if docs.embed_keys else []
    identities = {one.key: one.embedder.identity for one in embedders}
    telling = [one.key for one in embedders if unknown_share(one.embedder, "?") is not None]
    groups = {name: docs.reader.line(name) for name in docs.groups}
    embed = {"embed": identities, "unknown_share": telling}
    return {"fields": schema_text(docs.fields), "groups": groups, **embed, "shard": shard_mark(docs)}


@router.post("/sets/{set}/_embed")
async def embed(set: str, body: Texts, request: Request, principal: Principal = READER) -> Response:  # noqa: A002
    """Embed texts as the set does."""
    service = service_of(request)

    def run() -> Response:
        [embedder] = service.view(set, principal).reader.embedders([body.embed_key])
        if body.unknown_share:
            return _json([unknown_share(embedder.embedder, text) for text in body.texts])
        return _json([encode_vector(one) for one in embedder.embed(body.texts, input_type=body.input_type)])

    return await service.run(run)


# Methods


def _statistics(snapshot: LocalSnapshot, call: Call, _: Sequence[Segment]) -> Json:
    found = snapshot.term_statistics(call.group, call.analyser, call.terms, BM25(*call.model))
    return found.rows, found.tokens, found.frequencies, found.vocabulary


def _metrics(snapshot: LocalSnapshot, call: Call, _: Sequence[Segment]) -> Json:
    return sorted(snapshot.metrics(call.group, str(call.embed_key)))


def _rank(snapshot: LocalSnapshot, call: Call, _: Sequence[Segment]) -> Json:
    if snapshot.source.scope is not None and (call.by == "text" or call.mode != "exact"):
        raise ConfigError("This index ranks by nodes that a restricted Document hides. Use index='default'.")
    hits: Hits = []
    filters, group = filter_of(call.filters), call.group
    topk = call.topk if call.topk <= PAGE else min(call.topk, max(1, snapshot.size(group)))
    if call.by == "vectors":
        key, vectors = str(call.embed_key), [decode_vector(call.vector)]
        hits = snapshot.rank_vectors(group, key, vectors, topk, filters, mode=call.mode)
    elif call.terms and call.by == "text":
        hits = snapshot.rank_text(group, call.analyser, call.terms, topk, filters)
    elif call.terms:
        common = None
        if call.statistics is not None:
            count, tokens, frequencies, vocabulary = call.statistics
            common = Statistics(count, tokens, tuple(frequencies), Counter(vocabulary))
        hits = snapshot.rank_terms(group, call.analyser, call.terms, topk, filters, BM25(*call.model), common)
    if snapshot.source.scope is not None or len(hits) <= call.load:
        nodes = [node.segment for node in snapshot.nodes(group, hits)]
        documents = [one.document_id for one in nodes]
    else:
        nodes = [node.segment for node in snapshot.nodes(group, hits[: call.load])]
        owners = snapshot.state.view.tree.live_owners(snapshot.group(group))
        documents = [owners[key_build(key)] for (_, _, key), _ in hits]
    rows = [(uid, document, float(score)) for ((uid, _, _), score), document in zip(hits, documents, strict=True)]
    return {"hits": rows, "nodes": _rows(nodes[: call.load])}


def _together(snapshot: LocalSnapshot, call: Call, _: Sequence[Segment]) -> Json:
    """Rankings and statistics in one state."""
    return [_METHODS[one.route](snapshot, one, ()) for one in call.calls]


def _scan(snapshot: LocalSnapshot, call: Call, _: Sequence[Segment]) -> Json:
    """A part of a page that a similarity function gets, and where the next part is."""
    key, end = call.embed_key, call.offset + _CHUNK
    page = next(islice(snapshot.scan(call.group, filter_of(call.filters), key), call.page, None), [])
    nodes = page[call.offset : end]
    is_last = not page or snapshot.size(call.group) <= PAGE
    behind = (call.page, end) if end < len(page) else None if is_last else (call.page + 1, 0)
    vectors = [] if key is None else [encode_vector(node.embeddings[key]) for node in nodes]
    return {"nodes": _rows([node.segment for node in nodes]), "vectors": vectors, "next": behind}


def _walk(snapshot: LocalSnapshot, call: Call, _: Sequence[Segment]) -> Json:
    """The nodes of some documents, and behind which document there are more."""
    snapshot.group(call.group)  # so that the state has it
    wanted: dict[str, frozenset[Any]] = {name: frozenset(values) for name, values in call.wanted.items()}
    if call.behind is not None:
        listed = snapshot.state.view.tree.in_order()
        uids = frozenset(one.uid for one in listed if one.identity > call.behind)
        wanted["document_id"] = uids & wanted.get("document_id", uids)
    found: list[Segment] = []
    for node in snapshot.walk(call.group, filter_of(call.filters), wanted):
        if len(found) >= call.size and node.path != found[-1].path:
            return {"nodes": _rows(found), "behind": found[-1].path}
        found.append(node.segment)
    return {"nodes": _rows(found), "behind": None}


def _parents(snapshot: LocalSnapshot, _: Call, segments: Sequence[Segment]) -> Json:
    """The parent of each node; above a hidden one the next ones, up to one that is visible."""
    snapshot.prefetch_parents(segments)
    chains = []
    for segment in segments:
        chain: list[Segment] = []
        above = snapshot.parent(segment)
        while above is not None:
            chain.append(above)
            above = None if snapshot.sees(above) else snapshot.parent(above)
        chains.append(_rows(chain, snapshot))
    return chains


def _children(snapshot: LocalSnapshot, _: Call, segments: Sequence[Segment]) -> Json:
    found = snapshot.children(_only(segments))
    return {name: _rows([node.segment for node in nodes]) for name, nodes in found.items()}


def _children_up_to(snapshot: LocalSnapshot, call: Call, segments: Sequence[Segment]) -> Json:
    found = snapshot.children_up_to(_only(segments), call.group, call.most)
    return None if found is None else _rows(found)


def _related(snapshot: LocalSnapshot, call: Call, segments: Sequence[Segment]) -> Json:
    nodes = [DocNode.from_segment(one, snapshot.source) for one in segments]
    found = snapshot.related_nodes(nodes, call.group)
    distinct = {one.uid: one for own in found for one in own}
    return {"nodes": _rows(list(distinct.values())), "uids": [[one.uid for one in own] for own in found]}


def _windows(snapshot: LocalSnapshot, call: Call, segments: Sequence[Segment]) -> Json:
    """Windows; each of their nodes with the number of the given one that it has its score from."""
    nodes = [DocNode.from_segment(one, snapshot.source, score=float(at)) for at, one in enumerate(segments)]
    found = snapshot.windows(nodes, call.before, call.after, merge=call.merge)

    def row(one: DocNode) -> Json:
        return encode_segment(one.segment, is_merged=bool(one.merged_from)), int(one.score), one.merged_from

    return [(rank, list(map(row, own))) for rank, own in found]


def _vectors(snapshot: LocalSnapshot, call: Call, segments: Sequence[Segment]) -> Json:
    by_key = [snapshot.vectors(segments, key) for key in call.embed_keys]
    return [[encode_vector(own[at]) for own in by_key] for at in range(len(segments))]


_METHODS: Mapping[str, Callable[[LocalSnapshot, Call, Sequence[Segment]], Json]] = {
    "statistics": _statistics,
    "metrics": _metrics,
    "rank": _rank,
    "together": _together,
    "scan": _scan,
    "walk": _walk,
    "nodes": lambda _, __, segments: _rows(segments),
    "find": lambda snapshot, call, _: _rows([one for _, one in snapshot.find(call.uid)]),
    "vectors": _vectors,
    "parents": _parents,
    "root": lambda snapshot, _, segments: _rows([snapshot.root(one) for one in segments], snapshot),
    "children": _children,
    "children_up_to": _children_up_to,
    "related": _related,
    "windows": _windows,
}


def _rows(segments: Sequence[Segment], snapshot: LocalSnapshot | None = None) -> list[Json]:
    """Visible nodes for JSON; with a snapshot some may be hidden."""
    return [encode_segment(one, is_hidden=snapshot is not None and not snapshot.sees(one)) for one in segments]


def _only(segments: Sequence[Segment]) -> Segment:
    if len(segments) != 1:
        raise ConfigError(f"nodes must be one node; got {len(segments)}.")
    return segments[0]


def _located(snapshot: LocalSnapshot, references: Sequence[Reference], seen: Filter | None) -> list[Segment]:
    """The live nodes that references name.

    Raises:
        StaleNodeError: If one is not live, has changed, or is none that the principal sees.
    """
    places: list[tuple[str, str] | None] = []
    for group, document, uid, _, number, content in references:
        live = snapshot.state.view.groups.get(group)
        build = None if live is None else live.builds.get(document)
        if live is None or build is None:
            places.append(None)
            continue
        is_window = content is None and 0 < number <= build.size  # where its first node is
        own = build.uids[number - 1] if is_window else uid
        places.append((live.collection, store_key(own, build.number)))
    found: dict[tuple[str, str], Segment] = {}
    wanted: dict[str, dict[str, None]] = {}
    for collection, key in filter(None, places):
        wanted.setdefault(collection, {})[key] = None
    for collection, keys in wanted.items():
        found |= {(collection, one.key): one for one in snapshot.indexer.nodes.segments.get(collection, [*keys])}
    segments: list[Segment] = []
    for (group, document, uid, parent, number, content), place in zip(references, places, strict=True):
        there = None if place is None else found.get(place)
        is_same = there is not None and (
            (not number or there.parent == parent) if content is None else content_digest(there) == content
        )
        # The first of them: whether another one is hidden or missing decides nothing.
        if there is None or not is_same or (seen is not None and not matches(seen, there.fields)):
            raise stale_error(Segment(uid, 0, group, document, "", parent, number, ""))
        segments.append(there)
    return segments


# One state for all calls of a read


class _PinnedReader(Reader):
    """A reader of the state that a client's read began with."""

    def __init__(self, reader: Reader, view: View) -> None:
        super().__init__(reader.indexer, reader.scope, reader.unscoped)
        self._view: View | None = view

    def build(self, needs: Needs) -> View:
        """The state, once: who needs another one, begins again."""
        view, self._view = self._view, None
        if view is None or not self.indexer.has(view, needs):
            super().build(needs)
            raise StateGoneError
        return view


class _States:
    """The last states of a Document by scope, and their names.

    A name counts all changes; who sees only a part of the documents gets one that says nothing, another one each time.
    """

    def __init__(self, indexer: Indexer) -> None:
        self._key = indexer.ledger.token.encode()[:64]
        self._views: OrderedDict[tuple[Filter | None, int], View] = OrderedDict()

    def name_of(self, reader: Reader, view: View, *, is_partial: bool) -> str:
        """Remember a state and return its name."""
        self._views[reader.scope, view.tree.changes] = view
        while len(self._views) > _STATES:
            self._views.popitem(last=False)
        name, nonce = (view.tree.changes + 1).to_bytes(8, "big"), os.urandom(8)
        return (nonce + self._masked(nonce, name) if is_partial else name).hex()

    def pinned(self, reader: Reader, name: str, *, is_partial: bool, latest: bool) -> Reader:
        """A reader of a state, or only of the latest one.

        Raises:
            StateGoneError: If it is gone.
        """
        try:
            data = bytes.fromhex(name)
        except ValueError:
            raise StateGoneError from None
        changes = int.from_bytes(self._masked(data[:8], data[8:]) if is_partial else data, "big") - 1
        view = self._views.get((reader.scope, changes))
        if view is None or latest or view.removals != reader.indexer.ledger.removals:
            view = reader.build(NOTHING)
            if view.tree.changes != changes:
                raise StateGoneError
        return _PinnedReader(reader, view)

    def _masked(self, nonce: bytes, data: bytes) -> bytes:
        pad = hashlib.blake2b(nonce, key=self._key, digest_size=8).digest()
        return bytes(one ^ other for one, other in zip(data, pad, strict=False))


_states: weakref.WeakKeyDictionary[Indexer, _States] = weakref.WeakKeyDictionary()


Method = Annotated[str, Path(json_schema_extra={"enum": sorted(_METHODS)})]


@router.post("/sets/{set}/_{method}")
async def read(set: str, method: Method, body: Call, request: Request, principal: Principal = READER) -> Response:  # noqa: A002
    """Read in the state and the scope of a call."""
    return await _answer(service_of(request), set, method, body, principal)


class ReadDispatcher:
    """Answers reads before FastAPI looks for their route and checks arguments, which takes longer than most reads.

    What is no valid read, is FastAPI's matter.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._path = re.compile(rf"/api/v1/sets/([^/]+)/_({'|'.join(_METHODS)})")
        self._route = next(one for one in router.routes if getattr(one, "endpoint", None) is read)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """See ASGI."""
        is_post = scope["type"] == "http" and scope["method"] == "POST" and not scope["query_string"]
        found = self._path.fullmatch(scope["path"].removeprefix(scope["root_path"].rstrip("/"))) if is_post else None
        if found is None or not scope["state"]["principal"].may("read"):
            await self._app(scope, receive, send)
            return
        chunks, message = [], {"more_body": True}
        while message.get("more_body"):
            message = await receive()
            chunks.append(message.get("body", b""))
        data = b"".join(chunks)
        try:
            call = Call.model_validate(json.loads(data))
        except (ValueError, RecursionError):
            again = iter([{"type": "http.request", "body": data, "more_body": False}])

            async def received() -> Any:
                return next(again, None) or await receive()

            await self._app(scope, received, send)
            return
        scope["route"] = self._route
        service, principal = scope["app"].state.service, scope["state"]["principal"]
        response = await _answer(service, found[1], found[2], call, principal)
        await response(scope, receive, send)


async def _answer(service: Service, name: str, method: str, body: Call, principal: Principal) -> Response:
    def run() -> Response:
        reader = reader_of(service.view(name, principal))
        if method not in _METHODS:
            raise ProblemError(404, f"There is no method {method!a}.", known_names(method, _METHODS))
        seen, scope = reader.scope, parse_filter(filter_of(body.scope))
        if scope is not None:
            reader = reader.narrowed(scope)
        wanted = frozenset(Step(*step) for step in body.needs)
        for one in (body, *body.calls):
            _check_names(reader, one, wanted)
        states = _states.get(reader.indexer) or _states.setdefault(reader.indexer, _States(reader.indexer))

        def result(snapshot: LocalSnapshot) -> tuple[View, Json]:
            found = _METHODS[method](snapshot, body, _located(snapshot, body.nodes, seen))
            return snapshot.state.view, found

        if body.state is not None:
            pinned = functools.partial(states.pinned, is_partial=seen is not None, latest=body.latest)
            reader, wanted = pinned(reader, body.state), NOTHING
        view, found = reader.read(result, wanted)
        state = body.state or states.name_of(reader, view, is_partial=seen is not None)
        return _json({"state": state, "result": found})

    try:
        return await service.run(run)
    except StateGoneError:
        msg = "The state that the read began with is gone."
        raise ProblemError(409, msg, "Read again from the start.", is_gone=True) from None


def _check_names(reader: Reader, body: Call, wanted: Needs) -> None:
    """Raise an error that says which names are known, if an analyser or an embed key is not."""
    for analyser in {body.analyser, *(one.analyser for one in wanted)} - {None}:
        term_function(str(analyser))
    keys = [key for key in (body.embed_key, *body.embed_keys, *(one.embed_key for one in wanted)) if key is not None]
    if keys:
        reader.embedders(keys)


def _json(value: Json) -> Response:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "surrogatepass"), media_type="application/json")
