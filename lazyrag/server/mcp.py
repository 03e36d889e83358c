"""MCP: tools for agents over the sets of a service, at ``/mcp`` and on stdio; the only module that
imports the SDK.

No session is kept: any web process answers any request, in the stateless form of the protocol of
2026 and in that of 2025, which begins with a handshake.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints
from urllib.parse import quote

import anyio
import httpx2
from mcp import Client, MCPError, stdio_server, types
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic import Field, ValidationError, create_model
from starlette.requests import Request

from lazyrag._version import __version__
from lazyrag.data.encoding import to_dict
from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit, Statement
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.errors import StoreError
from lazyrag.generation.answerable import is_weak
from lazyrag.generation.citations import CitationManager
from lazyrag.generation.extractive import write_excerpts
from lazyrag.read import glob as find_paths
from lazyrag.read import grep as find_text
from lazyrag.read import outline as find_outline
from lazyrag.read import related as find_related
from lazyrag.read.catalogue import find_root
from lazyrag.read.rows import dataset_file
from lazyrag.retrieval.inferring import inferred_values
from lazyrag.server.api.documents import Texts, submit_texts
from lazyrag.server.api.search import (
    MAX_LINES,
    MAX_QUERY,
    REST,
    SQL_FIELDS,
    Budget,
    Collected,
    Cursor,
    First,
    Span,
    Unit,
    collect_page,
    filter_of,
    list_of,
    model_of,
    part_of,
    run_sql,
)
from lazyrag.server.core.body import Body, Name, SearchOptions, make_model
from lazyrag.server.core.config import open_set, read_config
from lazyrag.server.core.principal import Principal
from lazyrag.server.core.problems import ProblemError, describe_field, problem_of
from lazyrag.server.core.service import Service, passage_url
from lazyrag.server.core.set_request import SetRequest
from lazyrag.types import JsonObject
from lazyrag.validation import require, without_none

log = logging.getLogger("lazyrag.server")

MAX_READ = 20_000
"""Characters of a document in one result."""
_MAX_PASSAGE = 4_000  # characters
_MAX_EXCERPT = 800
_WAIT_S = 10.0  # for a job, in a thread of the pool
_PREFIX = re.compile(r"^(~[0-9a-f]{8}|file-[0-9a-f]{40})/")  # of documents that were uploaded
_INSTRUCTIONS = (
    "Search the user's documents: search finds passages, fetch gets what is around one, related"
    " similar ones, grep exact words or a regular expression; collect lists and counts all that has"
    " some words, for questions such as how many, which, list all; sql asks tables; glob, outline"
    " and read go through documents; check compares an answer with the passages that it cites. Cite"
    " documents by title and url."
)


@dataclass(frozen=True)
class Caller:
    """Who calls a tool.

    Args:
        service: The service.
        principal: What it may see.
        request: The HTTP request; None on stdio.
    """

    service: Service
    principal: Principal
    request: Any = None

    def scopes(self, name: str = "") -> list[SetRequest]:
        """The named set, or all that the principal may read.

        Raises:
            ProblemError: If there is none.
        """
        scopes = []
        for set_name in [name] if name else sorted(self.service.sets):
            # its labels do not restrict every set
            with nullcontext() if name else suppress(ProblemError):
                view = self.service.view(set_name, self.principal)
                scopes.append(
                    SetRequest(self.service, self.principal, set_name, view, self.request)
                )
        if not scopes:
            raise ProblemError(503, "There is no set that can be read.", "Try again in a moment.")
        return scopes

    def scope(self, name: str) -> SetRequest:
        """The named set, or the only one.

        Raises:
            ProblemError: If there are several.
        """
        scopes = self.scopes(name)
        if len(scopes) > 1:
            names = ", ".join(scope.name for scope in scopes)
            raise ProblemError(422, "set must name one of several sets.", f"Available: {names}.")
        return scopes[0]

    def passage(self, name: str) -> tuple[SetRequest, DocNode]:
        """The passage that an id names."""
        of_set, _, uid = name.rpartition(":")
        scope = self.scope(of_set)
        return scope, scope.node(uid)

    def url(self, scope: SetRequest, node: JsonObject) -> str:
        """The address of a document: its own on the web, that of the page with the node marked, or
        that of its file.
        """
        path = node["path"]
        url = str(node["global_metadata"].get("url", ""))
        if url.startswith(("https://", "http://")):
            return url
        if self.request is not None:
            return passage_url(self.request, scope.name, path, node.get("uid", ""))
        file = dataset_file(scope.unrestricted.reader, path)
        if file is None:
            return f"lazyrag:{quote(scope.name)}/files/{quote(path, errors='replace')}"
        return file.absolute().as_uri()

    def passages(self, scope: SetRequest, nodes: list[DocNode]) -> list[JsonObject]:
        """Nodes as results of a search."""
        return [self._passage(scope, fields) for fields in scope.nodes(nodes)]

    def _passage(self, scope: SetRequest, node: JsonObject) -> JsonObject:
        return {
            "id": f"{scope.name}:{node['uid']}",
            **self.cite(scope, node),
            "text": node["text"].replace("\r\n", "\n")[:_MAX_PASSAGE],
            "set": scope.name,
            "path": node["path"],
            "location": node["location"],
            "score": node["score"],
            "superseded_by": node["metadata"].get("superseded_by", ""),
        }

    def cite(self, scope: SetRequest, node: JsonObject) -> dict[str, str]:
        """Title and address of a node."""
        title = str(node["global_metadata"].get("title") or _PREFIX.sub("", node["path"]))
        title = f"{title} ({node['location']})" if node["location"] else title
        return {"title": title, "url": self.url(scope, node)}


# Tools

InSet = Annotated[Name, Field(description="Name of a set; by default all sets, or the only one.")]
InGroup = Annotated[
    Name, Field(description="Node group: longer or shorter passages. Default: that of the set.")
]
Inferring = Annotated[
    bool | tuple[Name, ...],
    Field(
        description="Whether documents come first that the question names. A list has values of"
        ' `inferred` that are not, such as "-year: 2018".'
    ),
]
AsOf = Annotated[
    str,
    Field(
        max_length=10,
        description="A day such as 2024-05-01: only documents up to it, versions in force first.",
    ),
]
Identity = Annotated[str, Field(min_length=1, max_length=400, description="Id of a passage.")]
DocumentPath = Annotated[
    str, Field(min_length=1, max_length=4_096, description="Path of a document.")
]
Question = Annotated[str, Field(max_length=MAX_QUERY, description="A question or keywords.")]
Literal = Annotated[str, Field(min_length=1, max_length=1_000, description="The text or pattern.")]
NewText = Annotated[
    str, Field(min_length=1, max_length=500_000, description="The text, plain or Markdown.")
]
Answer = Annotated[str, Field(max_length=100_000, description="The answer, with marks like [1].")]
Identities = Annotated[
    list[Identity],
    Field(max_length=50, description="Ids of the passages: [1] is the first one."),
]
Start = Annotated[int, Field(ge=0, description="Position in the text, in characters.")]
End = Annotated[int | None, Field(ge=0, description="By default as far as possible.")]
Limit = Annotated[int, Field(ge=1, le=50, description="Number of results.")]
_FILTERS = 'Values by field, such as {"file_type": [".md"]}; list_sets has the fields.'
Filters = Annotated[JsonObject | None, Field(description=_FILTERS)]

_Place = {"set": str, "path": str}
_Text = {"title": str, "url": str, "text": str}
_Range = {"start": int, "end": int}
_Passage = make_model(
    "Passage",
    id=str,
    **_Text,
    **_Place,
    location=str,
    score=float | None,
    superseded_by=str,
)
_Section = make_model("Section", label=str, kind=str, **_Range)
_Match = make_model("Match", **_Place, span=Span, line=str, location=str)
_Set = make_model("SetInfo", name=str, groups=list[str], fields=list[str])


TOOLS: dict[str, tuple[Callable[..., JsonObject], type[Body], types.Tool]] = {}
"""The function of each tool, the model of its arguments, and what clients see of it."""
_SLOW = ("grep", "add_text", "check", "glob", "collect", "sql")
_WRITING = "add_text"


def _tool(**result: Any) -> Callable[[Callable[..., Any]], Any]:
    """Register a tool, whose result has the given fields."""

    def register(function: Callable[..., Any]) -> Any:
        name = function.__name__
        hints = get_type_hints(function, include_extras=True)
        parameters = list(signature(function).parameters.values())[1:]
        fields: Any = {}
        for parameter in parameters:
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (hints[parameter.name], default)
        arguments = create_model(name, __base__=Body, **fields)
        described = types.Tool(
            name=name,
            description=" ".join(str(function.__doc__).split()),
            input_schema=arguments.model_json_schema(),
            output_schema=make_model(f"{name}_result", **result).model_json_schema(),
            annotations=types.ToolAnnotations(
                read_only_hint=name != _WRITING, open_world_hint=False
            ),
        )
        TOOLS[name] = (function, arguments, described)
        return function

    return register


@_tool(results=list_of(_Passage), inferred=dict[str, list[str]], weak=bool)
def search(
    caller: Caller,
    query: Question,
    set: InSet = "",
    limit: Limit = 8,
    filters: Filters = None,
    group: InGroup = "",
    infer_filters: Inferring = True,
    as_of: AsOf = "",
) -> JsonObject:
    """Search the documents by meaning and keywords. Returns passages with their document and its
    url; of a long passage the sentences that answer best, with "…" for others, which fetch has. If
    `weak`, the documents do not seem to answer the query.
    """
    passages_by_set = []
    inferred: dict[str, list[str]] = {}
    for scope in caller.scopes(set):
        options = SearchOptions(
            group=group or caller.service.group_of(scope.name),
            infer_filters=infer_filters,
            as_of=as_of or None,
        )
        retriever = scope.retriever(options)
        nodes = retriever(query, filter_of(filters), limit)
        inferred |= inferred_values(retriever, query)
        passages_by_set.append(caller.passages(scope, nodes))
    # scores of sets cannot be compared
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*passages_by_set))
    results = [passage for passage in in_turn if passage is not None][:limit]
    texts = [passage["text"] for passage in results]
    weak = is_weak(query, texts, [passage["path"] for passage in results])
    excerpts = write_excerpts(query, texts, [_MAX_EXCERPT] * len(texts))
    results = [{**passage, "text": text} for passage, text in zip(results, excerpts, strict=True)]
    return {"results": results, "inferred": inferred, "weak": weak}


@_tool(id=str, **_Text, metadata=JsonObject)
def fetch(caller: Caller, id: Identity) -> JsonObject:
    """Get a passage with the text around it: its whole document, or 20,000 characters of a long
    one.
    """
    scope, node = caller.passage(id)
    [fields] = scope.nodes([node])
    text = node.text
    metadata = {**fields["global_metadata"], "set": scope.name}
    metadata |= {name: fields[name] for name in ("path", "location")}
    source = None if node.span is None else node.source
    if source is not None and source.group == LAZY_ROOT_NAME:  # else a transform rewrote the text
        start = max(0, min(sum(node.span) - MAX_READ, 2 * (len(source.text) - MAX_READ)) // 2)
        text = source.text[start : start + MAX_READ]
        metadata |= {"start": start, "end": start + len(text), "length": len(source.text)}
    return {"id": id, **caller.cite(scope, fields), "text": text, "metadata": metadata}


@_tool(**_Place, sections=list_of(_Section), **REST)
def outline(
    caller: Caller,
    path: DocumentPath,
    set: InSet = "",
    start: First = 0,
    max_tokens: Budget = 8_000,
) -> JsonObject:
    """List the headings, pages or rows of a document with their positions, to read parts of it."""
    scope = caller.scope(set)
    sections = to_dict(find_outline(scope.docs, path))
    part = part_of("sections", sections, start, MAX_LINES, max_tokens)
    return {"set": scope.name, "path": path, **part}


@_tool(set=str, paths=list[str], **REST)
def glob(
    caller: Caller,
    pattern: Literal,
    set: InSet = "",
    start: First = 0,
    max_tokens: Budget = 4_000,
) -> JsonObject:
    """List the documents whose paths match a pattern, such as `*.md` or `teas/*`."""
    scope = caller.scope(set)
    paths = find_paths(scope.docs, pattern)
    return {"set": scope.name, **part_of("paths", paths, start, MAX_LINES, max_tokens)}


@_tool(set=str, __base__=Collected)
def collect(
    caller: Caller,
    query: Question = "",
    set: InSet = "",
    per: Unit = "document",
    filters: Filters = None,
    group: InGroup = "",
    limit: Limit = 20,
    after: Cursor = None,
    max_tokens: Budget = 4_000,
) -> JsonObject:
    """List all documents, passages (per node) or table rows that have all words of a query, with
    their number: for how many, which, list all. "Phrases" are in quotation marks, OR separates
    alternatives, and a blank query has no condition. `next` is the `after` of the next call.
    """
    scope = caller.scope(set)
    options: dict[str, Any] = {"filters": filter_of(filters), "per": per, "after": after}
    options["group"] = group or caller.service.group_of(scope.name)
    page = collect_page(scope, query, limit, max_tokens, **options)
    return {"set": scope.name, **page}


@_tool(set=str, **SQL_FIELDS)
def sql(
    caller: Caller,
    query: Question = "",
    set: InSet = "",
    start: First = 0,
    max_tokens: Budget = 4_000,
) -> JsonObject:
    """Run a SELECT statement of DuckDB over the tables of the documents, which a blank query lists:
    sums, averages, comparisons of numbers.
    """
    scope = caller.scope(set)
    return {"set": scope.name, **run_sql(scope, query, start, MAX_LINES, max_tokens)}


@_tool(**_Text, **_Place, **_Range, length=int)
def read(
    caller: Caller, path: DocumentPath, set: InSet = "", start: Start = 0, end: End = None
) -> JsonObject:
    """Read a document, or a part of it: at most 20,000 characters. Go on with `start` where the
    last part ended.
    """
    scope = caller.scope(set)
    root = scope.docs.reader.show(find_root(scope.docs.reader, path))
    most = start + MAX_READ
    text = root.text[start : most if end is None else min(most, end)]
    cited = caller.cite(
        scope, {"path": path, "location": "", "global_metadata": root.global_metadata}
    )
    part = {"start": start, "end": start + len(text), "length": len(root.text), "text": text}
    return {**cited, "set": scope.name, "path": path, **part}


@_tool(matches=list_of(_Match), **REST)
def grep(
    caller: Caller,
    text: Literal,
    set: InSet = "",
    limit: Limit = 20,
    ignore_case: bool = True,
    filters: Filters = None,
    regex: bool = False,
    start: First = 0,
    max_tokens: Budget = 4_000,
) -> JsonObject:
    """Find an exact text in the documents, such as a name, a number or a quotation; or a regular
    expression of RE2. The rest is counted up to 1,000 matches of a set.
    """
    condition = filter_of(filters)
    matches = []
    for scope in caller.scopes(set):
        matches_in_set = find_text(
            scope.docs, text, condition, limit=1_000, ignore_case=ignore_case, regex=regex
        )
        matches += [{"set": scope.name, **to_dict(match)} for match in matches_in_set]
    return part_of("matches", matches, start, limit, max_tokens)


@_tool(results=list_of(_Passage))
def related(caller: Caller, id: Identity, limit: Limit = 6) -> JsonObject:
    """Find passages that resemble a passage."""
    scope, node = caller.passage(id)
    return {"results": caller.passages(scope, find_related(scope.docs, node.uid, limit))}


@_tool(statements=list_of(model_of(Statement)), problems=list[str])
def check(caller: Caller, text: Answer, ids: Identities) -> JsonObject:
    """Check each sentence of an answer against the passages that it cites, before you give it to
    the user. The verdicts are supported, contradicted, not_found, not_checkable; problems names
    citations of passages that do not exist, and words that are not in the passage.
    """
    hits = [Hit.from_node(caller.passage(identity)[1]) for identity in ids]
    resolved = CitationManager().resolve(text, hits)
    return {"statements": to_dict(resolved.statements), "problems": [*resolved.problems]}


@_tool(sets=list_of(_Set))
def list_sets(caller: Caller) -> JsonObject:
    """List the sets of documents, with their node groups and the fields for filters."""
    sets = []
    for scope in caller.scopes():
        fields = [*scope.docs.reader.fields]
        sets.append({"name": scope.name, "groups": [*scope.docs.groups], "fields": fields})
    return {"sets": sets}


@_tool(**_Place, state=str)
def add_text(caller: Caller, path: DocumentPath, text: NewText, set: InSet = "") -> JsonObject:
    """Add a document, or replace it. Searches find it as soon as the state is SUCCESS."""
    if not caller.principal.may("write"):
        raise ProblemError(403, "This needs a token with the scope 'write'.", "Use another token.")
    scope = caller.scope(set)
    ids, job = submit_texts(scope, Texts(texts={path: text}))
    # for the audit log
    caller.request.state.documents = [ids[path]]
    caller.request.state.dataset = scope.name
    state = scope.jobs.wait(job.id, _WAIT_S).state
    return {"set": scope.name, "path": ids[path], "state": state}


async def call_tool(caller: Caller, name: str, arguments: JsonObject) -> types.CallToolResult:
    """Call a tool; its errors are results, which a model can read."""
    function, model, _ = TOOLS[name]
    try:
        present = without_none(arguments)
        validated = model.model_validate(present)
        async with caller.service.slow if name in _SLOW else nullcontext():
            result = await caller.service.run(function, caller, **dict(validated))
        text = json.dumps(result, ensure_ascii=False, allow_nan=False)
    except ValidationError as exc:
        errors = [
            describe_field({**error, "loc": ("tool", *error["loc"])}) for error in exc.errors()[:3]
        ]
        return _result(f"{'; '.join(errors)}.", is_error=True)
    except Exception as exc:
        problem = problem_of(exc)
        if problem.status == 500:
            log.exception("The tool %s failed.", name)
        return _result(
            problem.message.replace("See documents().", "List the paths with glob."), is_error=True
        )
    return _result(text)


def _result(text: str, *, is_error: bool = False) -> types.CallToolResult:
    text = text.encode("utf-8", "replace").decode()  # names of files may have half surrogate pairs
    structured = None if is_error else json.loads(text)
    content: list[Any] = [types.TextContent(type="text", text=text)]
    return types.CallToolResult(content=content, structured_content=structured, is_error=is_error)


def _server(call: Any, *, writes: bool) -> Server[Any]:
    """A server of the tools, which a function of the HTTP request (None on stdio), name and
    arguments calls.
    """
    tools = {
        name: described for name, (_, _, described) in TOOLS.items() if writes or name != _WRITING
    }

    async def on_list(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(tools.values()))

    async def on_call(context: Any, params: types.CallToolRequestParams) -> Any:
        if params.name not in tools:
            known_tools = ", ".join(tools)
            message = f"Unknown tool {params.name[:80]!a}. Known: {known_tools}."
            raise MCPError(types.INVALID_PARAMS, message)
        return await call(context.request, params.name, params.arguments or {})

    return Server(
        "lazyrag",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=on_list,
        on_call_tool=on_call,
    )


# Transports


@dataclass(frozen=True)
class McpApp:
    """The tools of a service over streamable HTTP, as an ASGI application for POST."""

    service: Service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """See ASGI."""

        def call(request: Request, name: str, arguments: JsonObject) -> Any:
            return call_tool(
                Caller(self.service, request.state.principal, request), name, arguments
            )

        server = _server(call, writes=scope["path"].endswith("/write"))
        manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
        try:
            async with manager.run():
                await manager.handle_request(scope, receive, send)
        except ExceptionGroup as exc:  # of the limits of the body
            raise exc.exceptions[0] from None


def serve_stdio(path: Path, url: str | None, token: str | None, *, writes: bool) -> None:
    """Serve the tools on the standard input and output until the input ends.

    Args:
        path: A folder with an index, or a configuration file.
        url: A service to pass the calls to instead.
        token: A token of that service.
        writes: Whether there are tools that write.

    Raises:
        StoreError: If there is no index to read.
    """
    with ExitStack() as stack:
        if url is None:
            require(not writes, "--write", writes, "given with --url: the service writes")
            caller = Caller(_open_service(path, stack), Principal())
            call: Any = lambda _, name, arguments: call_tool(caller, name, arguments)  # noqa: E731
        else:
            address = f"{url.rstrip('/')}/mcp{'/write' if writes else ''}"
            call = functools.partial(_relay, address, token)
        server = _server(call, writes=writes)

        async def serve() -> None:
            async with stdio_server() as (reading, writing):
                await server.run(reading, writing, server.create_initialization_options())

        anyio.run(serve)


def _open_service(path: Path, stack: ExitStack) -> Service:
    """The service of a folder or a configuration, with its sets opened for reading."""
    config = read_config(path)
    # for modules that the configuration names
    sys.path.insert(0, str(path.absolute().parent))
    service = Service({}, config.server.state, workers=config.limits.threads)
    with redirect_stdout(sys.stderr):  # the output is for messages alone
        for name, chosen in config.sets.items():
            docs = stack.enter_context(
                open_set(name, chosen, service.state, write=False, fields=None)
            )
            built = [group.name for group in docs.status().groups if group.indexes]
            if chosen.path is not None and not built:
                way_out = f"Run: lazyrag index {chosen.path}"
                raise StoreError(f"{chosen.path} has no searchable passages yet. {way_out}")
            groups = [group for group in chosen.groups if group in built] or built or chosen.groups
            service.groups[name] = groups[0]
            service.sets[name] = docs
    return service


async def _relay(
    url: str, token: str | None, _: Any, name: str, arguments: JsonObject
) -> types.CallToolResult:
    """Let a service call a tool. A connection for each call survives restarts of the service."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=300) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            return await client.call_tool(name, arguments)
    except (ExceptionGroup, MCPError, httpx2.HTTPError) as exc:
        reason: BaseException = exc
    while isinstance(reason, BaseExceptionGroup):
        reason = reason.exceptions[0]
    remedy = "Check its address and the token, and that lazyrag serve runs."
    return _result(f"{url} does not answer ({reason}). {remedy}", is_error=True)
