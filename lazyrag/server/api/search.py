"""Routes that read: search, explanations, nodes and their surroundings, the agent's tools,
metrics.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import PlainTextResponse, Response

from lazyrag.data.encoding import to_dict
from lazyrag.data.filters import And, Condition, Filter, FilterLike, Not, Or, parse_filter
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.document import CollectedItem, CollectedPage, Document, Table, TableLocation
from lazyrag.document.collect import MAX_ITEMS
from lazyrag.errors import ConfigError
from lazyrag.generation.answerable import is_weak
from lazyrag.pipeline.tracing import retrieval_span
from lazyrag.read import glob as find_paths
from lazyrag.read import grep as find_text
from lazyrag.read import outline as find_outline
from lazyrag.read import related as find_related
from lazyrag.read.explore import TextMatch
from lazyrag.retrieval.explain import DroppedNode, ExplainedHit, Explanation, StageSummary, Standing
from lazyrag.retrieval.inferring import inferred_values
from lazyrag.retrieval.stages import Reason
from lazyrag.server.core.body import Body, Name, SearchOptions, make_model
from lazyrag.server.core.problems import ProblemError
from lazyrag.server.core.service import Administrator, require_unrestricted, service_of
from lazyrag.server.core.set_request import Searching, SetRequest
from lazyrag.text.tokens import resolve_counter
from lazyrag.types import JsonMapping, JsonObject
from lazyrag.validation import named_filters

router = APIRouter()
sets = APIRouter(prefix="/api/v1/sets/{set}", tags=["search"])

MAX_TOPK = 1_000
MAX_QUERY = 8_192
"""Characters."""
MAX_FILTER_DEPTH = 16
MAX_FILTER_PARTS = 1_000

# Models

Question = Annotated[str, Field(max_length=MAX_QUERY)]
Filters = Annotated[
    JsonObject | None, Field(description="Values by field, or a condition: see `filter_of`.")
]
Limit = Annotated[int, Query(ge=1, le=1_000)]
JsonFilter = Annotated[
    str | None, Query(max_length=MAX_QUERY, description='JSON, such as {"file_type": [".pdf"]}')
]
OldJsonFilter = Annotated[
    str | None, Query(max_length=MAX_QUERY, description="The same as filters.", deprecated=True)
]
First = Annotated[int, Field(ge=0, le=1_000_000, description="The `next` of the call before.")]
Budget = Annotated[int, Field(ge=100, le=20_000, description="Tokens of the results, at most.")]
MAX_LINES = 1_000
"""Results that are counted and listed at once."""
REST = {"next": int | None, "rest": int}
"""Fields of a page: the `start` of the next one, and how many results are left."""
Span = Annotated[list[int], Field(min_length=2, max_length=2)]
Score = float | str | None
"""Scores that are no numbers are texts: ``"nan"``, ``"-inf"``."""


class SearchFields(SearchOptions):
    """A search. A blank query finds nothing."""

    query: Question
    topk: Annotated[int, Field(ge=1, le=MAX_TOPK)] = 6
    filters: Filters = None


class SearchBody(SearchFields):
    """A search, with an explanation of each hit's rank if that is wanted."""

    explain: bool = False


class WhyNotBody(SearchFields):
    """A search, and the node that it lacks."""

    uid: Name


class GrepBody(Body):
    """A literal text to look for."""

    text: Annotated[str, Field(min_length=1, max_length=1_000)]
    filters: Filters = None
    limit: Annotated[int, Field(ge=1, le=MAX_LINES)] = 100
    start: First = 0
    max_tokens: Budget | None = None
    ignore_case: bool = False
    regex: Annotated[bool, Field(description="A regular expression of RE2.")] = False


Cursor = Annotated[
    str | None, Field(max_length=8_192, description="The `next` of the page before.")
]
Unit = Literal["document", "node", "row"]


class CollectBody(Body):
    """All that has the words of a query."""

    query: Question = ""
    filters: Filters = None
    per: Unit = "document"
    group: Name = "MediumChunk"
    limit: Annotated[int, Field(ge=1, le=MAX_ITEMS)] = 100
    after: Cursor = None
    max_tokens: Budget | None = None


class SqlBody(Body):
    """A SELECT statement over the tables; a blank one only lists these."""

    query: Question = ""
    limit: Annotated[int, Field(ge=1, le=MAX_LINES)] = 100
    start: First = 0
    max_tokens: Budget | None = None


def model_of(cls: type, **types: Any) -> Any:
    """Make the model of a dataclass: fields that `to_dict` shows, and others of the given types. A
    pair of a type and its default is that of an optional field.
    """
    shown = {field.name: field.type for field in dataclasses.fields(cls) if field.repr}
    doc = (cls.__doc__ or "").partition("\n")[0]
    return make_model(cls.__name__, __module__=cls.__module__, __doc__=doc, **shown | types)


def list_of(model: Any) -> Any:
    """The type of a list of a model that is no class for type checkers."""
    return list[model]


class HiddenText(BaseModel):
    """A stretch of a node's text, and why readers of the file do not see it."""

    start: int
    end: int
    kind: str
    label: str


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
    hidden_text: list[HiddenText] = Field(description="What readers of the file do not see.")
    merged_from: list[str]
    metadata: JsonObject
    global_metadata: JsonObject
    content: Any = None


_ranks = model_of(Standing, score=Score, share=Score, contributions=dict[str, Score])
_hits = model_of(
    ExplainedHit,
    score=Score,
    fused=Score,
    contributions=dict[str, Score],
    standings=list_of(_ranks),
    merged_from=list[str],
    superseded_by=(str, Field("", description="The document that replaces its one.")),
    superseded_reason=(str, ""),
    superseded_code=(str, ""),
    superseded_values=(dict[str, str], {}),
)
_stages = model_of(StageSummary, inputs=list[int])
_dropped = model_of(DroppedNode, score=Score)
_explained = model_of(
    Explanation,
    filters=str | None,
    hits=list_of(_hits),
    stages=list_of(_stages),
    dropped=list_of(_dropped),
    parts=(dict[str, list[int]], Field({}, description="By part the ranks of what covers it.")),
)
_Found = make_model(
    "SearchResponse",
    hits=list[NodeModel],
    weak=(bool, Field(description="The documents do not seem to answer the query.")),
    inferred=(
        dict[str, list[str]],
        Field(description="What the query names, by field: such documents come first."),
    ),
    explanation=_explained | None,
)


class Nodes(BaseModel):
    """Nodes of a set."""

    nodes: list[NodeModel]


class Group(BaseModel):
    """A node group with its numbers of documents and nodes."""

    name: str
    parent: str | None
    documents: int
    nodes: int


_NodePage = make_model(
    "NodePage", __base__=Nodes, next=(int | None, Field(description="The next `offset`."))
)
_Location = make_model("Location", start=int, end=int, kind=str, label=str)
_Tree = make_model("Tree", groups=list[Group], defined=list[str])

Collected = model_of(
    CollectedPage,
    items=list_of(model_of(CollectedItem, span=Span | None)),
    next=str | None,
    unread=dict[str, str],
)
_Place = model_of(TableLocation, span=Span | None)
_Table = model_of(Table, columns=list[str], location=_Place)
_SqlRow = make_model("SqlRow", values=JsonObject, locations=list_of(_Place))
SQL_FIELDS = {"tables": list_of(_Table), "rows": list_of(_SqlRow), **REST}
"""The fields of what `run_sql` returns."""

# Filters


def filter_of(condition: JsonMapping | None, depth: int = 0, parts: int = 1) -> FilterLike | None:
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
    if condition is None:
        return None
    if depth > MAX_FILTER_DEPTH:
        raise ConfigError(f"filters must not be nested more than {MAX_FILTER_DEPTH} times.")
    if {"field", "op"} <= condition.keys() <= {"field", "op", "value"}:
        return Condition(**condition)
    word, value = next(iter(condition.items())) if len(condition) == 1 else ("", None)
    if word == "not" and isinstance(value, Mapping):
        return Not(_part(value, depth, parts))
    if (
        word in ("and", "or")
        and isinstance(value, list)
        and all(isinstance(part, Mapping) for part in value)
    ):
        # As if all parts beside this one were as large: never less than there are.
        if (parts := parts * len(value)) > MAX_FILTER_PARTS:
            raise ConfigError(
                f"filters must not have more than {MAX_FILTER_PARTS:,} conditions. Give lists of"
                " values."
            )
        return (And if word == "and" else Or)(*(_part(part, depth, parts) for part in value))
    return condition


def _part(condition: JsonMapping, depth: int, parts: int) -> Filter:
    parsed = parse_filter(filter_of(condition, depth + 1, parts))
    return And() if parsed is None else parsed


def json_filter(filters: str | None, where: str | None = None) -> FilterLike | None:
    """Read the filter of a query parameter, which has two names."""
    parameters = {
        name: text for name, text in (("filters", filters), ("where", where)) if text is not None
    }
    text = named_filters(parameters).get("filters")
    try:
        parsed = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        parsed = text
    if parsed is not None and not isinstance(parsed, dict):
        raise ProblemError(
            422, "The filter must be a JSON object.", 'Such as {"file_type": [".pdf"]}.'
        )
    return filter_of(parsed)


# Search


@sets.post("/search", response_model=_Found)
async def search(body: SearchBody, call: Searching) -> Response:
    """Search a node group."""

    def find() -> JsonObject:
        retriever = call.retriever(body)
        arguments = (body.query, filter_of(body.filters), body.topk)
        explanation = None
        if not body.explain:
            with retrieval_span(call.name, body.query, body.topk):
                nodes = retriever(*arguments)
        else:
            explanation = retriever.explain(*arguments)
            nodes = retriever.mark(hit.node for hit in explanation)
        weak = is_weak(body.query, [node.text for node in nodes], [node.path for node in nodes])
        return {
            "hits": call.nodes(nodes),
            "weak": weak,
            "inferred": inferred_values(retriever, body.query),
            "explanation": to_dict(explanation),
        }

    return await call.respond(find)


@sets.post("/why-not", response_model=Reason)
async def why_not(body: WhyNotBody, call: Searching) -> Response:
    """Explain why a node is not among the hits of a search, or give its rank."""

    def find() -> Any:
        return to_dict(
            call.retriever(body).why_not(body.uid, body.query, filter_of(body.filters), body.topk)
        )

    return await call.respond(find)


# Nodes

Path = Annotated[str, Query(min_length=1, max_length=4_096, description="The document.")]
Window = Annotated[int, Query(ge=0, le=100)]
InGroup = Annotated[
    str | None,
    Query(max_length=200, alias="group", description="Where several groups have the uid."),
]


@sets.get("/nodes", response_model=_NodePage)
async def list_nodes(
    call: Searching,
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

    def find() -> JsonObject:
        ids = None if document_id is None else [document_id]
        condition = json_filter(filters, where)
        nodes = call.docs.get_nodes(
            group, document_ids=ids, filters=condition, limit=limit + 1, offset=offset
        )
        return {
            "nodes": call.nodes(nodes[:limit]),
            "next": offset + limit if len(nodes) > limit else None,
        }

    return await call.respond(find, slow=True)


@sets.get("/nodes/{uid}", response_model=NodeModel)
async def one_node(call: Searching, uid: str, group: InGroup = None) -> Response:
    """Get a node."""
    return await call.respond(lambda: to_dict(call.node(uid, group)))


@sets.get("/nodes/{uid}/neighbours", response_model=Nodes)
async def neighbours(
    call: Searching, uid: str, group: InGroup = None, before: Window = 1, after: Window = 1
) -> Response:
    """Get a node with its neighbours in its group and document, in order."""
    return await call.respond(
        lambda: {"nodes": call.nodes(call.docs.window(call.node(uid, group), before, after))}
    )


@sets.get("/nodes/{uid}/parents", response_model=Nodes)
async def parents(call: Searching, uid: str, group: InGroup = None) -> Response:
    """Get the nodes above a node, the nearest first, without the whole document."""

    def find() -> JsonObject:
        line = [call.node(uid, group)]
        while (above := line[-1].parent) is not None and above.group != LAZY_ROOT_NAME:
            line.append(above)
        return {"nodes": call.nodes(line[1:])}

    return await call.respond(find)


@sets.get("/nodes/{uid}/children", response_model=Nodes)
async def children(
    call: Searching, uid: str, group: InGroup = None, limit: Limit = 100
) -> Response:
    """Get the nodes below a node, the first ones of each group."""

    def find() -> JsonObject:
        nodes = []
        for of_group in call.node(uid, group).children.values():
            nodes += of_group[:limit]
        return {"nodes": call.nodes(nodes)}

    return await call.respond(find)


@sets.get("/nodes/{uid}/related", response_model=Nodes)
async def related(call: Searching, uid: str, limit: Limit = 6) -> Response:
    """Get the nodes of its group that resemble a node most."""
    return await call.respond(lambda: {"nodes": call.nodes(find_related(call.docs, uid, limit))})


@sets.get("/tree", response_model=_Tree)
async def tree(call: Searching) -> Response:
    """List the node groups with their parents, and the numbers of documents and nodes that the
    principal sees.
    """
    return await call.respond(_tree, call.docs, slow=True)


def _tree(docs: Document) -> JsonObject:
    lines = {name: docs.reader.line(name) for name in docs.groups}
    _, groups = count_nodes(docs)
    for group in groups:
        _, *ancestors = lines.get(group["name"], [""])
        group["parent"] = next(iter(ancestors), None)
    return {"groups": groups, "defined": list(docs.groups)}


def count_nodes(
    docs: Document, failed: list[tuple[str, str]] | None = None
) -> tuple[int, list[JsonObject]]:
    """Count the visible documents, and for each built group its documents and nodes.

    Args:
        docs: The set as a principal sees it.
        failed: A list to extend by documents that failed, with the step.
    """
    groups: dict[str, JsonObject] = {}
    count = 0
    after = None
    while page := docs.documents(after=after, limit=1_000):
        after = page[-1].id
        count = count + len(page)
        if failed is not None:
            failed += [
                (document.id, document.stage) for document in page if document.status == "FAILED"
            ]
        for document in page:
            for name, built in document.groups.items():
                of_group = groups.setdefault(name, {"name": name, "documents": 0, "nodes": 0})
                of_group["documents"] += built["nodes"] > 0
                of_group["nodes"] += built["nodes"]
    return count, [groups[name] for name in sorted(groups)]


# The agent's tools


def part_of(
    name: str, rows: Sequence[Any], start: int, limit: int, max_tokens: int | None
) -> JsonObject:
    """The rows from a number on that fit, the number of the next one, and how many are left.

    Raises:
        ProblemError: If not even the first one fits.
    """
    shown = rows[start : start + limit]
    shown = shown[: _fitting(shown, max_tokens)]
    end = start + len(shown)
    rest = max(0, len(rows) - end)
    return {name: shown, "next": end if rest else None, "rest": rest}


def _fitting(rows: Sequence[Any], max_tokens: int | None) -> int:
    """How many rows fit into a number of tokens."""
    if max_tokens is None:
        return len(rows)
    count_tokens = resolve_counter("estimate").count
    sizes = (count_tokens(json.dumps(row, ensure_ascii=False)) for row in rows)
    fitting = sum(size <= max_tokens for size in itertools.accumulate(sizes))
    if rows and not fitting:
        message = f"A result needs more than max_tokens={max_tokens}."
        raise ProblemError(422, message, "Raise max_tokens, or ask for less.")
    return fitting


@sets.get("/outline", response_model=make_model("Outline", sections=list_of(_Location), **REST))
async def outline(
    call: Searching, path: Path, start: First = 0, max_tokens: Budget | None = None
) -> Response:
    """Get the headings, pages or rows of a document."""

    def find() -> Any:
        sections = to_dict(find_outline(call.docs, path))
        return part_of("sections", sections, start, MAX_LINES, max_tokens)

    return await call.respond(find)


@sets.get("/glob", response_model=make_model("Paths", paths=list[str], **REST))
async def glob(
    call: Searching,
    pattern: Annotated[str, Query(min_length=1, max_length=1_000)],
    start: First = 0,
    max_tokens: Budget | None = None,
) -> Response:
    """List the documents whose paths match a pattern, such as `*.md`."""

    def find() -> Any:
        return part_of("paths", find_paths(call.docs, pattern), start, MAX_LINES, max_tokens)

    return await call.respond(find)


@sets.post("/collect", response_model=Collected)
async def collect(body: CollectBody, call: Searching) -> Response:
    """Find all documents, passages or table rows that have the words of a query, with a count."""

    def find() -> Any:
        return collect_page(call, **{**dict(body), "filters": filter_of(body.filters)})

    return await call.respond(find, slow=True)


def collect_page(
    call: SetRequest, query: str, limit: int, max_tokens: int | None, **options: Any
) -> JsonObject:
    """A page of `Document.collect` within a number of tokens."""
    if options["per"] == "row":
        call.ensure_tables()
    page = call.docs.collect(query, limit=limit, **options)
    fitting = _fitting(to_dict(page.items), max_tokens)
    if fitting < len(page.items):
        page = call.docs.collect(query, limit=fitting, **options)
    result: JsonObject = to_dict(page)
    return result


@sets.post("/sql", response_model=make_model("SqlResponse", **SQL_FIELDS))
async def sql(body: SqlBody, call: Searching) -> Response:
    """Select rows from the tables of the documents."""
    return await call.respond(lambda: run_sql(call, **dict(body)), slow=True)


def run_sql(
    call: SetRequest, query: str, start: int, limit: int, max_tokens: int | None
) -> JsonObject:
    """A page of the tables, if the statement is blank; else of its rows with their places."""
    call.ensure_tables()
    if not query.strip():
        tables = to_dict(call.docs.tables.list())
        return {"rows": [], **part_of("tables", tables, start, limit, max_tokens)}
    rows = call.docs.tables.sql(query, limit=MAX_LINES)
    pairs = [{"values": dict(row), "locations": row.locations} for row in rows]
    return {"tables": [], **part_of("rows", to_dict(pairs), start, limit, max_tokens)}


_TextMatches = make_model("TextMatches", matches=list_of(model_of(TextMatch, span=Span)), **REST)


@sets.post("/grep", response_model=_TextMatches)
async def grep(body: GrepBody, call: Searching) -> Response:
    """Find a literal text, or a regular expression, in the documents. The rest is counted up to
    1,000 matches.
    """

    def find() -> Any:
        options = {"ignore_case": body.ignore_case, "regex": body.regex}
        filters = filter_of(body.filters)
        matches = find_text(call.docs, body.text, filters, limit=MAX_LINES, **options)
        return part_of("matches", to_dict(matches), body.start, body.limit, body.max_tokens)

    return await call.respond(find, slow=True)


# Metrics


@router.get("/metrics", tags=["health"], response_class=PlainTextResponse)
async def metrics(request: Request, principal: Administrator) -> PlainTextResponse:
    """Metrics of this web process in Prometheus' text format, for admins who see everything."""
    service = service_of(request)
    require_unrestricted(principal, "Metrics count hidden documents, too.")
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
