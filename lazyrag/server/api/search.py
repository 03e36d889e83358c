"""Routes that read: search, explanations, nodes and their surroundings, the agent's tools,
metrics.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field, create_model
from starlette.responses import PlainTextResponse, Response

from lazyrag.data.encoding import to_dict
from lazyrag.data.filters import And, Condition, Filter, FilterLike, Not, Or, parse_filter
from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.document import Document
from lazyrag.errors import ConfigError, StaleNodeError
from lazyrag.pipeline.tracing import retrieval_span
from lazyrag.read import grep as find_text
from lazyrag.read import outline as find_outline
from lazyrag.read import related as find_related
from lazyrag.read.catalogue import TextMatch
from lazyrag.read.snapshot import LocalSnapshot
from lazyrag.retrieval.base import BaseRetriever
from lazyrag.retrieval.explain import DroppedNode, ExplainedHit, Explanation, StageSummary, Standing
from lazyrag.retrieval.stages import Reason
from lazyrag.server.core.body import Body
from lazyrag.server.core.principal import Principal
from lazyrag.server.core.problems import ProblemError
from lazyrag.server.core.service import Service, needs, service_of
from lazyrag.validation import named_filters

router = APIRouter()
sets = APIRouter(prefix="/api/v1/sets/{set}", tags=["search"])

MAX_TOPK = 1_000
MAX_QUERY = 8_192
"""Characters."""
MAX_TEXT = 10_000_000
MAX_FILTER_DEPTH = 16
MAX_FILTER_PARTS = 1_000

# Models

Name = Annotated[str, Field(max_length=200)]
Filters = Annotated[
    dict[str, Any] | None, Field(description="Values by field, or a condition: see `filter_of`.")
]
Limit = Annotated[int, Query(ge=1, le=1_000)]
JsonFilter = Annotated[
    str | None, Query(max_length=MAX_QUERY, description='JSON, such as {"file_type": [".pdf"]}')
]
OldJsonFilter = Annotated[
    str | None, Query(max_length=MAX_QUERY, description="The same as filters.", deprecated=True)
]
Span = Annotated[list[int], Field(min_length=2, max_length=2)]
Score = float | str | None
"""Scores that are no numbers are texts: ``"nan"``, ``"-inf"``."""


class SearchOptions(Body):
    """How to search. `default` is hybrid search if the set has embeddings, else keyword search."""

    group: Name = "MediumChunk"
    retriever: Annotated[
        Name, Field(description="`default`, `hybrid`, `vector`, or the name of a similarity.")
    ] = "default"
    embed_keys: Annotated[list[Name] | None, Field(max_length=16, description="Null for all.")] = (
        None
    )
    target: Annotated[Name | None, Field(description="Map the hits to this group.")] = None


class SearchRequest(SearchOptions):
    """A search. A blank query finds nothing."""

    query: Annotated[str, Field(max_length=MAX_QUERY)]
    topk: Annotated[int, Field(ge=1, le=MAX_TOPK)] = 6
    filters: Filters = None


class SearchBody(SearchRequest):
    """A search, with an explanation of each hit's rank if that is wanted."""

    explain: bool = False


class WhyNotBody(SearchRequest):
    """A search, and the node that it lacks."""

    uid: Name


_TOGETHER = 64  # hits whose parents are read with one request; of many they would take memory


class GrepBody(Body):
    """A literal text to look for."""

    text: Annotated[str, Field(min_length=1, max_length=1_000)]
    filters: Filters = None
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100
    ignore_case: bool = False


def model_of(cls: type, **types: Any) -> Any:
    """Make the model of a dataclass: fields that `to_dict` shows, with their own types or those
    that are given.
    """
    fields: dict[str, Any] = {
        one.name: (types.get(one.name, one.type), ...)
        for one in dataclasses.fields(cls)
        if one.repr
    }
    return create_model(
        cls.__name__,
        __module__=cls.__module__,
        __doc__=(cls.__doc__ or "").partition("\n")[0],
        **fields,
    )


def list_of(model: Any) -> Any:
    """The type of a list of a model that is no class for type checkers."""
    return list[model]


class NodeModel(BaseModel):
    """A node of a set; it has `content` if it is no text."""

    uid: str
    group: str
    document_id: str
    path: str
    number: int
    text: str
    score: float | None
    span: Span | None
    location: str
    merged_from: list[str]
    metadata: dict[str, Any]
    global_metadata: dict[str, Any]
    content: Any = None


_ranks = model_of(Standing, score=Score, share=Score, contributions=dict[str, Score])
_hits = model_of(
    ExplainedHit,
    score=Score,
    fused=Score,
    contributions=dict[str, Score],
    standings=list_of(_ranks),
    merged_from=list[str],
)
_stages = model_of(StageSummary, inputs=list[int])
_dropped = model_of(DroppedNode, score=Score)
_explained = model_of(
    Explanation,
    filters=str | None,
    hits=list_of(_hits),
    stages=list_of(_stages),
    dropped=list_of(_dropped),
)
_Found: Any = create_model(
    "SearchResponse", hits=(list[NodeModel], ...), explanation=(_explained | None, ...)
)
_Nodes = create_model("Nodes", nodes=(list[NodeModel], ...))
_NodePage = create_model(
    "NodePage", __base__=_Nodes, next=(int | None, Field(description="The next `offset`."))
)
_Group = create_model(
    "Group", name=(str, ...), parent=(str | None, ...), documents=(int, ...), nodes=(int, ...)
)
_Location = create_model(
    "Location", start=(int, ...), end=(int, ...), kind=(str, ...), label=(str, ...)
)
_Tree = create_model("Tree", groups=(list_of(_Group), ...), defined=(list[str], ...))

# What routes share


@dataclass(frozen=True)
class Scope:
    """A set as the principal of a request sees it."""

    service: Service
    principal: Principal
    name: str
    docs: Document

    def retriever(self, options: SearchOptions) -> BaseRetriever[list[DocNode]]:
        """The retriever of some options. The last ones are used again: making one costs more than a
        search.
        """
        keys = None if options.embed_keys is None else tuple(options.embed_keys)
        return self.service.retriever(
            self.docs, options.group, options.retriever, keys, options.target
        )

    async def respond(
        self, find: Callable[..., Any], *args: Any, status: int = 200, slow: bool = False
    ) -> Response:
        """Run blocking work, and respond with its result as JSON; of slow work only a few at a
        time.
        """
        async with self.service.slow if slow else nullcontext():
            return as_json(await self.service.run(_read_again, find, *args), status)

    def nodes(self, nodes: Sequence[DocNode]) -> list[dict[str, Any]]:
        """Convert nodes to JSON types, in one state of the set."""
        if sum(len(node.text) for node in nodes) > MAX_TEXT:
            raise ProblemError(
                413, f"The nodes have more than {MAX_TEXT:,} characters.", "Ask for fewer."
            )

        def read(snapshot: LocalSnapshot) -> list[dict[str, Any]]:
            snapshot.prefetch_parents([node.segment for node in nodes[:_TOGETHER]])
            found: list[dict[str, Any]] = to_dict(nodes)
            return found

        return self.docs.reader.read(read)

    def node(self, uid: str, group: str | None = None) -> DocNode:
        """Return a node by uid.

        Raises:
            ProblemError: 404 if there is none that the principal sees.
        """
        for segment in self.docs.reader.held(uid):
            if group in (None, segment.group):
                return self.docs.reader.show(segment)
        raise ProblemError(
            404, f"There is no node {uid!r:.80}.", "Uids change with the text: search again."
        )


async def _scope(
    set: str,  # noqa: A002
    request: Request,
    principal: Annotated[Principal, needs("read")],
) -> Scope:
    service = service_of(request)
    return Scope(service, principal, set, service.view(set, principal))


def _read_again(find: Callable[..., Any], *args: Any) -> Any:
    """Read; once more, if a document was deleted or changed between the search and the reading of
    its nodes.
    """
    with suppress(StaleNodeError):
        return find(*args)
    return find(*args)


Reading = Annotated[Scope, Depends(_scope)]
"""The set of a request."""


def as_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Make a response of JSON types. They are not validated: tests hold them to the OpenAPI
    document.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode(), status, headers, "application/json")


def filter_of(given: Mapping[str, Any] | None, depth: int = 0, parts: int = 1) -> FilterLike | None:
    """Read a filter of JSON.

    Either ``{"year": [2024, 2025]}``, where every field must have one of its values, or a condition
    ``{"field": "year", "op": ">=", "value": 2024}``, or ``{"and": [...]}``, ``{"or": [...]}``,
    ``{"not": {...}}`` of filters.

    Raises:
        ConfigError: If it is something else, nested too deeply, or too large.

    Example:
        >>> filter_of({"not": {"field": "year", "op": "<", "value": 2000}})
        Not(Condition('year', 'lt', 2000))
    """
    if given is None:
        return None
    if depth > MAX_FILTER_DEPTH:
        raise ConfigError(f"filters must not be nested more than {MAX_FILTER_DEPTH} times.")
    if {"field", "op"} <= given.keys() <= {"field", "op", "value"}:
        return Condition(**given)
    word, value = next(iter(given.items())) if len(given) == 1 else ("", None)
    if word == "not" and isinstance(value, Mapping):
        return Not(_part(value, depth, parts))
    if (
        word in ("and", "or")
        and isinstance(value, list)
        and all(isinstance(one, Mapping) for one in value)
    ):
        # As if all parts beside this one were as large: never less than there are.
        if (parts := parts * len(value)) > MAX_FILTER_PARTS:
            raise ConfigError(
                f"filters must not have more than {MAX_FILTER_PARTS:,} conditions. Give lists of"
                " values."
            )
        return (And if word == "and" else Or)(*(_part(one, depth, parts) for one in value))
    return given


def _part(given: Mapping[str, Any], depth: int, parts: int) -> Filter:
    found = parse_filter(filter_of(given, depth + 1, parts))
    return And() if found is None else found


def json_filter(filters: str | None, where: str | None = None) -> FilterLike | None:
    """Read the filter of a query parameter, which has two names."""
    given = {
        name: text for name, text in (("filters", filters), ("where", where)) if text is not None
    }
    text = named_filters(given).get("filters")
    try:
        found = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        found = text
    if found is not None and not isinstance(found, dict):
        raise ProblemError(
            422, "The filter must be a JSON object.", 'Such as {"file_type": [".pdf"]}.'
        )
    return filter_of(found)


# Search


@sets.post("/search", response_model=_Found)
async def search(body: SearchBody, scope: Reading) -> Response:
    """Search a node group."""

    def find() -> dict[str, Any]:
        retriever = scope.retriever(body)
        given = (body.query, filter_of(body.filters), body.topk)
        found = None
        if not body.explain:
            with retrieval_span(scope.name, body.query, body.topk):
                nodes = retriever(*given)
        else:
            found = retriever.explain(*given)
            nodes = [hit.node for hit in found if hit.node is not None]
        return {"hits": scope.nodes(nodes), "explanation": to_dict(found)}

    return await scope.respond(find)


@sets.post("/why-not", response_model=Reason)
async def why_not(body: WhyNotBody, scope: Reading) -> Response:
    """Explain why a node is not among the hits of a search, or give its rank."""

    def find() -> Any:
        return to_dict(
            scope.retriever(body).why_not(body.uid, body.query, filter_of(body.filters), body.topk)
        )

    return await scope.respond(find)


# Nodes

Path = Annotated[str, Query(min_length=1, max_length=4_096, description="The document.")]
Window = Annotated[int, Query(ge=0, le=100)]
InGroup = Annotated[
    str | None,
    Query(max_length=200, alias="group", description="Where several groups have the uid."),
]


@sets.get("/nodes", response_model=_NodePage)
async def list_nodes(
    scope: Reading,
    group: Annotated[str, Query(max_length=200)] = "MediumChunk",
    document_id: Annotated[
        str | None, Query(max_length=200, description="Only nodes of this document.")
    ] = None,
    filters: JsonFilter = None,
    where: OldJsonFilter = None,
    limit: Limit = 100,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Response:
    """List the nodes of a group, by document in order of path, then by number."""

    def find() -> dict[str, Any]:
        ids = None if document_id is None else [document_id]
        condition = json_filter(filters, where)
        found = scope.docs.get_nodes(
            group, document_ids=ids, filters=condition, limit=limit + 1, offset=offset
        )
        return {
            "nodes": scope.nodes(found[:limit]),
            "next": offset + limit if len(found) > limit else None,
        }

    return await scope.respond(find, slow=True)


@sets.get("/nodes/{uid}", response_model=NodeModel)
async def one_node(scope: Reading, uid: str, group: InGroup = None) -> Response:
    """Get a node."""
    return await scope.respond(lambda: to_dict(scope.node(uid, group)))


@sets.get("/nodes/{uid}/neighbours", response_model=_Nodes)
async def neighbours(
    scope: Reading, uid: str, group: InGroup = None, before: Window = 1, after: Window = 1
) -> Response:
    """Get a node with its neighbours in its group and document, in order."""
    return await scope.respond(
        lambda: {"nodes": scope.nodes(scope.docs.window(scope.node(uid, group), before, after))}
    )


@sets.get("/nodes/{uid}/parents", response_model=_Nodes)
async def parents(scope: Reading, uid: str, group: InGroup = None) -> Response:
    """Get the nodes above a node, the nearest first, without the whole document."""

    def find() -> dict[str, Any]:
        found = [scope.node(uid, group)]
        while (above := found[-1].parent) is not None and above.group != LAZY_ROOT_NAME:
            found.append(above)
        return {"nodes": scope.nodes(found[1:])}

    return await scope.respond(find)


@sets.get("/nodes/{uid}/children", response_model=_Nodes)
async def children(scope: Reading, uid: str, group: InGroup = None, limit: Limit = 100) -> Response:
    """Get the nodes below a node, the first ones of each group."""

    def find() -> dict[str, Any]:
        below = scope.node(uid, group).children
        return {
            "nodes": scope.nodes([node for of_group in below.values() for node in of_group[:limit]])
        }

    return await scope.respond(find)


@sets.get("/nodes/{uid}/related", response_model=_Nodes)
async def related(scope: Reading, uid: str, limit: Limit = 6) -> Response:
    """Get the nodes of its group that resemble a node most."""
    return await scope.respond(lambda: {"nodes": scope.nodes(find_related(scope.docs, uid, limit))})


@sets.get("/tree", response_model=_Tree)
async def tree(scope: Reading) -> Response:
    """List the node groups with their parents, and the numbers of documents and nodes that the
    principal sees.
    """
    return await scope.respond(_tree, scope.docs, slow=True)


def _tree(docs: Document) -> dict[str, Any]:
    parents_of = {name: [*docs.reader.line(name)[1:], None][0] for name in docs.groups}
    groups = [{**one, "parent": parents_of.get(one["name"])} for one in count_nodes(docs)[1]]
    return {"groups": groups, "defined": list(docs.groups)}


def count_nodes(
    docs: Document, failed: list[tuple[str, str]] | None = None
) -> tuple[int, list[dict[str, Any]]]:
    """Count the visible documents, and for each built group its documents and nodes.

    Args:
        docs: The set as a principal sees it.
        failed: A list to extend by documents that failed, with the step.
    """
    groups: dict[str, dict[str, Any]] = {}
    count = 0
    after = None
    while page := docs.documents(after=after, limit=1_000):
        after = page[-1].id
        count = count + len(page)
        if failed is not None:
            failed += [(one.id, one.stage) for one in page if one.status == "FAILED"]
        for name, built in (pair for document in page for pair in (document.groups or {}).items()):
            of_group = groups.setdefault(name, {"name": name, "documents": 0, "nodes": 0})
            of_group["documents"] += built["nodes"] > 0
            of_group["nodes"] += built["nodes"]
    return count, [groups[name] for name in sorted(groups)]


# The agent's tools


@sets.get("/outline", response_model=list_of(_Location))
async def outline(scope: Reading, path: Path) -> Response:
    """Get the headings, pages or rows of a document."""
    return await scope.respond(lambda: to_dict(find_outline(scope.docs, path)))


@sets.post("/grep", response_model=list_of(model_of(TextMatch, span=Span)))
async def grep(body: GrepBody, scope: Reading) -> Response:
    """Find a literal text in the documents."""

    def find() -> Any:
        filters = filter_of(body.filters)
        return to_dict(
            find_text(
                scope.docs, body.text, filters, limit=body.limit, ignore_case=body.ignore_case
            )
        )

    return await scope.respond(find, slow=True)


# Metrics


@router.get("/metrics", tags=["health"], response_class=PlainTextResponse)
async def metrics(
    request: Request, principal: Annotated[Principal, needs("admin")]
) -> PlainTextResponse:
    """Metrics of this web process in Prometheus' text format, for admins who see everything."""
    service = service_of(request)
    if principal.labels is not None:
        raise ProblemError(
            403, "Metrics count hidden documents, too.", "Use a token without labels."
        )
    running, waiting = service.running
    gauges: list[tuple[str, dict[str, str], float]] = [
        ("calls_running", {}, running),
        ("calls_waiting", {}, waiting),
    ]
    for name, docs in [*service.sets.items()]:
        status = await service.run(docs.status)
        gauges.append(("documents", {"set": name}, status.documents))
        gauges.append(("failed_steps", {"set": name}, len(status.failed)))
    return PlainTextResponse(service.metrics.text(gauges), media_type="text/plain; version=0.0.4")


router.include_router(sets)
