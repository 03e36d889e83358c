"""Routes for `Document(url=...)`: the reads of a snapshot. Their form is not stable; programs use the other routes."""

from __future__ import annotations

import hashlib
import json
import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Literal, TypeAlias

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from lazyrag.data.fields import schema_text
from lazyrag.data.filters import Filter, matches
from lazyrag.data.node import DocNode
from lazyrag.data.segment import Segment, store_key
from lazyrag.document import Document
from lazyrag.document.groups import Step
from lazyrag.document.indexer import Indexer
from lazyrag.document.nodes import PAGE, SearchMode
from lazyrag.document.reader import Reader
from lazyrag.document.remote import (
    content_digest,
    decode_filter,
    decode_statistics,
    decode_vector,
    encode_segment,
    encode_statistics,
    encode_vector,
)
from lazyrag.document.snapshot import NOTHING, LocalSnapshot, Needs, stale_error
from lazyrag.document.tree import View
from lazyrag.errors import ConfigError
from lazyrag.indexes.bm25 import BM25, Variant
from lazyrag.models.protocols import InputType
from lazyrag.server.problems import ProblemError
from lazyrag.server.service import Principal, needs, service_of
from lazyrag.text.analyzers import term_function

router = APIRouter(prefix="/api/v1", tags=["reader"])
READER = needs("read")

_CHUNK = 10_000  # nodes of a scan in one response
_STATES = 16  # states of a Document that reads in progress may need

Json: TypeAlias = dict[str, Any]
Reference: TypeAlias = tuple[str, str, str, str | None, int, str | None]
"""See `lazyrag.document.remote.reference`."""


class Read(BaseModel):
    """What all requests of a read have."""

    model_config = ConfigDict(extra="forbid")
    state: str | None = None
    scope: Any = None
    needs: list[tuple[str, str | None, str | None]] = []

    def all_needs(self) -> Needs:
        """What must be built for the read."""
        return frozenset(Step(group, analyser, key) for group, analyser, key in self.needs)


class Statistics(Read):
    """Terms of a keyword index are counted, or the metrics of vectors named."""

    group: str | None = None
    analyser: str | None = None
    terms: list[str] = []
    model: tuple[float, float, Variant] = (1.5, 0.75, "lucene")
    embed_key: str | None = None


class Rank(Read):
    """A ranking."""

    by: Literal["terms", "vectors", "text"]
    group: str
    topk: int = Field(ge=1)
    filters: Any = None
    load: bool = False
    analyser: str = ""
    terms: list[str] = []
    model: tuple[float, float, Variant] = (1.5, 0.75, "lucene")
    statistics: tuple[int, int, list[int], dict[str, int]] | None = None
    embed_key: str = ""
    vector: Any = None
    mode: SearchMode = "exact"


class Scan(Read):
    """A part of all nodes of a group, with their vectors."""

    group: str
    filters: Any = None
    embed_key: str | None = None
    page: int = Field(0, ge=0, lt=2**32)
    offset: int = Field(0, ge=0, lt=2**32)


class Nodes(Read):
    """Nodes of a group by document, from behind a document on."""

    group: str
    filters: Any = None
    wanted: dict[Literal["document_id", "uid", "number"], list[Any]] = {}
    after: Any = None
    size: int = Field(1_000, ge=1, le=5_000)


class Related(Read):
    """Nodes that others lead to, or their vectors."""

    how: Literal["nodes", "find", "vectors", "parents", "root", "children", "children_up_to", "related", "windows"]
    nodes: list[Reference] = []
    uid: str = ""
    embed_keys: list[str] = []
    group: str = ""
    most: int = Field(0, ge=0, lt=2**32)
    before: int = Field(0, ge=0, lt=2**32)
    after: int = Field(0, ge=0, lt=2**32)
    merge: bool = False


class Texts(BaseModel):
    """Texts to embed."""

    model_config = ConfigDict(extra="forbid")
    embed_key: str
    texts: list[str] = Field(max_length=256)
    input_type: InputType = "document"


@router.post("/sets/{name}/_schema")
async def schema(name: str, request: Request, principal: Principal = READER) -> Response:
    """The fields, groups and embed keys of a set."""
    service = service_of(request)
    return await service.run(lambda: _json(_schema(service.view(name, principal))))


def _schema(docs: Document) -> Json:
    keys = docs.embed_keys
    identities = {one.key: one.embedder.identity for one in docs.reader.embedders(keys)} if keys else {}
    groups = {name: docs.reader.line(name) for name in docs.groups}
    return {"fields": schema_text(docs.fields), "groups": groups, "embed": identities}


@router.post("/sets/{name}/_embed")
async def embed(name: str, body: Texts, request: Request, principal: Principal = READER) -> Response:
    """Embed texts as the set does."""
    service = service_of(request)

    def run() -> Response:
        [embedder] = service.view(name, principal).reader.embedders([body.embed_key])
        found = embedder.embed(body.texts, input_type=body.input_type) if body.texts else ()
        return _json({"vectors": [encode_vector(one) for one in found]})

    return await service.run(run)


@router.post("/sets/{name}/_statistics")
async def statistics(name: str, body: Statistics, request: Request, principal: Principal = READER) -> Response:
    """Statistics of terms, and metrics of vectors."""

    def count(snapshot: LocalSnapshot) -> Json:
        found: Json = {}
        if body.group is not None and body.analyser is not None and body.terms:
            term_function(body.analyser)  # raises for an unknown one
            counted = snapshot.term_statistics(body.group, body.analyser, body.terms, BM25(*body.model))
            found["terms"] = encode_statistics(counted)
        if body.group is not None and body.embed_key is not None:
            snapshot.source.embedders([body.embed_key])
            found["metrics"] = sorted(snapshot.metrics(body.group, body.embed_key))
        return found

    return await _read(name, body, request, principal, count)


@router.post("/sets/{name}/_rank")
async def rank(name: str, body: Rank, request: Request, principal: Principal = READER) -> Response:
    """The best nodes of a group."""

    def run(snapshot: LocalSnapshot) -> Json:
        filters = decode_filter(body.filters)
        topk = min(body.topk, max(1, snapshot.size(body.group)))
        if body.by != "vectors":
            term_function(body.analyser)
        if snapshot.source.scope is not None and (body.by == "text" or body.mode != "exact"):
            raise ConfigError("This ranking depends on nodes that a restricted Document hides. Use index='default'.")
        if not body.terms and body.by != "vectors":
            hits = []
        elif body.by == "terms":
            common = None if body.statistics is None else decode_statistics(body.statistics)
            model = BM25(*body.model)
            hits = snapshot.rank_terms(body.group, body.analyser, body.terms, topk, filters, model, common)
        elif body.by == "text":
            hits = snapshot.rank_text(body.group, body.analyser, body.terms, topk, filters)
        else:
            snapshot.source.embedders([body.embed_key])
            vectors = [decode_vector(body.vector)]
            hits = snapshot.rank_vectors(body.group, body.embed_key, vectors, topk, filters, mode=body.mode)
        nodes = [node.segment for node in snapshot.nodes(body.group, hits)]
        return {
            "hits": [(one.uid, one.document_id, float(hit[1])) for one, hit in zip(nodes, hits, strict=True)],
            "nodes": [encode_segment(one) for one in nodes] if body.load else [],
        }

    return await _read(name, body, request, principal, run)


@router.post("/sets/{name}/_scan")
async def scan(name: str, body: Scan, request: Request, principal: Principal = READER) -> Response:
    """All nodes of a group as a similarity function gets them, in parts."""

    def run(snapshot: LocalSnapshot) -> Json:
        key = body.embed_key
        if key is not None:
            snapshot.source.embedders([key])
        pages = snapshot.scan(body.group, decode_filter(body.filters), key)
        page = next(islice(pages, body.page, None), None)
        if page is None:
            return {"nodes": [], "vectors": [], "next": None}
        end = body.offset + _CHUNK
        nodes = page[body.offset : end]
        at = (body.page, end) if end < len(page) else (body.page + 1, 0)
        return {
            "nodes": [encode_segment(node.segment) for node in nodes],
            "vectors": [] if key is None else [encode_vector(node.embeddings[key]) for node in nodes],
            "next": None if at[1] == 0 and snapshot.size(body.group) <= PAGE else at,
        }

    return await _read(name, body, request, principal, run)


@router.post("/sets/{name}/_nodes")
async def nodes(name: str, body: Nodes, request: Request, principal: Principal = READER) -> Response:
    """Nodes of a group, some documents in one response."""

    def run(snapshot: LocalSnapshot) -> Json:
        snapshot.group(body.group)  # the tree has it now
        wanted: Json = {name: frozenset(map(_scalar, values)) for name, values in body.wanted.items()}
        if body.after is not None:
            listed = snapshot.state.view.tree.in_order()
            behind = {one.uid for one in listed if one.identity > str(body.after)}
            wanted["document_id"] = behind & wanted.get("document_id", behind)
        found: list[DocNode] = []
        for node in snapshot.walk(body.group, decode_filter(body.filters), wanted):
            if len(found) >= body.size and node.path != found[-1].path:
                return {"nodes": [encode_segment(one.segment) for one in found], "after": found[-1].path}
            found.append(node)
        return {"nodes": [encode_segment(one.segment) for one in found], "after": None}

    return await _read(name, body, request, principal, run)


def _scalar(value: Any) -> Any:
    if isinstance(value, (str, int, float)):
        return value
    raise ConfigError(f"wanted must have texts and numbers; got {value!r:.60}.")


@router.post("/sets/{name}/_related")
async def related(name: str, body: Related, request: Request, principal: Principal = READER) -> Response:
    """Neighbours of nodes in the tree, or their vectors."""
    seen = service_of(request).view(name, principal).reader.scope

    def run(snapshot: LocalSnapshot) -> Any:
        if body.how == "find":
            return [encode_segment(one) for _, one in snapshot.find(body.uid)]
        return _RELATIONS[body.how](snapshot, _located(snapshot, body.nodes, seen), body)

    return await _read(name, body, request, principal, run)


def _located(snapshot: LocalSnapshot, references: Sequence[Reference], seen: Filter | None) -> list[Segment]:
    """The live nodes that references name.

    Raises:
        StaleNodeError: If one is not live, has changed, or is none that the principal sees.
    """
    groups = snapshot.state.view.groups
    keys: list[tuple[str, str]] = []
    for group, document, uid, parent, number, content in references:
        live = groups.get(group)
        build = None if live is None else live.builds.get(document)
        if live is None or build is None:
            raise stale_error(Segment(uid, 0, group, document, "", parent, number, ""))
        is_merged = content is None and 0 < number <= build.size  # a window is at the place of its first node
        keys.append((live.collection, store_key(build.uids[number - 1] if is_merged else uid, build.number)))
    found: dict[tuple[str, str], Segment] = {}
    for collection in dict.fromkeys(one for one, _ in keys):
        own = list(dict.fromkeys(key for one, key in keys if one == collection))
        found |= {(collection, one.key): one for one in snapshot.indexer.nodes.segments.get(collection, own)}
    for (group, document, uid, parent, number, content), key in zip(references, keys, strict=True):
        there = found.get(key)
        is_same = there is not None and (
            (number == 0 or there.parent == parent) if content is None else content_digest(there) == content
        )
        if there is None or not is_same or not (seen is None or matches(seen, there.fields)):
            raise stale_error(Segment(uid, 0, group, document, "", parent, number, ""))
    return [found[key] for key in keys]


def _parents(snapshot: LocalSnapshot, segments: Sequence[Segment], _: Related) -> list[list[Any]]:
    snapshot.prefetch_parents(segments)
    chains = []
    for segment in segments:
        chain: list[Any] = []
        above = snapshot.parent(segment)
        while above is not None:
            is_seen = snapshot.sees(above)
            chain.append(encode_segment(above, is_hidden=not is_seen))
            above = None if is_seen else snapshot.parent(above)
        chains.append(chain)
    return chains


def _roots(snapshot: LocalSnapshot, segments: Sequence[Segment], _: Related) -> list[Any]:
    roots = map(snapshot.root, segments)
    return [encode_segment(root, is_hidden=not snapshot.sees(root)) for root in roots]


def _children(snapshot: LocalSnapshot, segments: Sequence[Segment], _: Related) -> Json:
    found = snapshot.children(_only(segments))
    return {name: [encode_segment(node.segment) for node in nodes] for name, nodes in found.items()}


def _children_up_to(snapshot: LocalSnapshot, segments: Sequence[Segment], body: Related) -> list[Any] | None:
    found = snapshot.children_up_to(_only(segments), body.group, body.most)
    return None if found is None else [encode_segment(one) for one in found]


def _only(segments: Sequence[Segment]) -> Segment:
    if len(segments) != 1:
        raise ConfigError(f"nodes must be one node here; got {len(segments)}.")
    return segments[0]


def _nodes_related(snapshot: LocalSnapshot, segments: Sequence[Segment], body: Related) -> Json:
    nodes = [DocNode.from_segment(one, snapshot.source) for one in segments]
    found = snapshot.related_nodes(nodes, body.group)
    distinct = {one.uid: one for own in found for one in own}
    places = {uid: place for place, uid in enumerate(distinct)}
    return {
        "nodes": [encode_segment(one) for one in distinct.values()],
        "places": [[places[one.uid] for one in own] for own in found],
    }


def _windows(snapshot: LocalSnapshot, segments: Sequence[Segment], body: Related) -> list[Any]:
    """Windows whose nodes have the place of the node that they get their score from."""
    nodes = [DocNode.from_segment(one, snapshot.source, score=float(at)) for at, one in enumerate(segments)]
    return [
        (
            rank,
            [
                (encode_segment(node.segment, is_merged=bool(node.merged_from)), int(node.score), node.merged_from)
                for node in window
            ],
        )
        for rank, window in snapshot.windows(nodes, body.before, body.after, merge=body.merge)
    ]


def _vectors(snapshot: LocalSnapshot, segments: Sequence[Segment], body: Related) -> list[list[Any]]:
    snapshot.source.embedders(body.embed_keys)
    by_key = [snapshot.vectors(segments, key) for key in body.embed_keys]
    return [[encode_vector(own[at]) for own in by_key] for at in range(len(segments))]


_RELATIONS: dict[str, Callable[[LocalSnapshot, Sequence[Segment], Related], Any]] = {
    "nodes": lambda _, segments, __: [encode_segment(one) for one in segments],
    "vectors": _vectors,
    "parents": _parents,
    "root": _roots,
    "children": _children,
    "children_up_to": _children_up_to,
    "related": _nodes_related,
    "windows": _windows,
}


# One state for all requests of a read


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
            raise _gone()
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
        changes = view.tree.changes
        self._views[reader.scope, changes] = view
        while len(self._views) > _STATES:
            self._views.popitem(last=False)
        if not is_partial:
            return str(changes)
        nonce = os.urandom(8)
        return (nonce + self._masked(nonce, changes.to_bytes(8, "big", signed=True))).hex()

    def pinned(self, reader: Reader, name: str, *, is_partial: bool) -> Reader:
        """A reader of a state.

        Raises:
            ProblemError: If it is gone.
        """
        try:
            data = bytes.fromhex(name) if is_partial else b""
            changes = (
                int.from_bytes(self._masked(data[:8], data[8:16]), "big", signed=True) if is_partial else int(name)
            )
        except ValueError:
            raise _gone() from None
        view = self._views.get((reader.scope, changes))
        if view is None or view.removals != reader.indexer.ledger.removals:
            view = reader.build(NOTHING)
            if view.tree.changes != changes:
                raise _gone()
        return _PinnedReader(reader, view)

    def _masked(self, nonce: bytes, data: bytes) -> bytes:
        pad = hashlib.blake2b(nonce, key=self._key, digest_size=8).digest()
        return bytes(one ^ other for one, other in zip(data, pad, strict=False))


_states: weakref.WeakKeyDictionary[Indexer, _States] = weakref.WeakKeyDictionary()


def _gone() -> ProblemError:
    return ProblemError(409, "The state that the read began with is gone.", "Read again from the start.", is_gone=True)


async def _read(
    name: str, body: Read, request: Request, principal: Principal, function: Callable[[LocalSnapshot], Any]
) -> Response:
    """Call a function with a snapshot in the state and the scope of a request."""
    service = service_of(request)

    def run() -> Response:
        reader = service.view(name, principal).reader
        is_partial = reader.scope is not None
        scope = decode_filter(body.scope)
        if scope is not None:
            reader = reader.narrowed(scope)
        states = _states.setdefault(reader.indexer, _States(reader.indexer))
        if body.state is not None:
            pinned = states.pinned(reader, body.state, is_partial=is_partial)
            return _json({"state": body.state, "result": pinned.read(function)})
        wanted = body.all_needs()
        for one in wanted:
            _ = one.embed_key is None or reader.embedders([one.embed_key])  # raises for an unknown one
            _ = one.analyser is None or term_function(one.analyser)
        view, result = reader.read(lambda snapshot: (function(snapshot), snapshot.state.view)[::-1], wanted)
        return _json({"state": states.name_of(reader, view, is_partial=is_partial), "result": result})

    return await service.run(run)


def _json(value: Any) -> Response:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "surrogatepass"), media_type="application/json")
