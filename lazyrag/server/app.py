"""The application: routes, problems, request ids."""

from __future__ import annotations

import logging
import re
import time
import uuid
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.params import Query
from starlette.exceptions import HTTPException
from starlette.responses import Response

from lazyrag._version import __version__
from lazyrag.errors import LazyRAGError, known_names
from lazyrag.server.api import access as routes_access
from lazyrag.server.api import answers as routes_answers
from lazyrag.server.api import dify, rerank, uploads
from lazyrag.server.api import documents as routes_documents
from lazyrag.server.api import search as routes_search
from lazyrag.server.core import sets
from lazyrag.server.core.middleware import AccessMiddleware, wants_page
from lazyrag.server.core.principal import Principal
from lazyrag.server.core.problems import (
    ProblemError,
    describe_field,
    problem_of,
    try_again,
    with_problems,
)
from lazyrag.server.core.service import Service
from lazyrag.server.core.sets import unopened_sets
from lazyrag.server.openai import answers as openai_answers
from lazyrag.server.openai import files as openai_files
from lazyrag.server.openai import models as openai_models
from lazyrag.server.openai import stores as openai_stores
from lazyrag.server.openai.protocol import with_openai
from lazyrag.server.page import (
    ask,
    document,
    evaluate,
    manage,
    matches,
    operate,
    page,
    search,
    sources,
)

log = logging.getLogger("lazyrag.server")

ROUTERS = tuple(
    module.router
    for module in (
        routes_search,  # first: routes are tried in turn
        routes_access,
        routes_documents,
        routes_answers,
        uploads,
        sets,
        openai_files,
        openai_stores,
        openai_models,
        openai_answers,
        rerank,
        dify,
    )
)

PAGES = (page, operate, manage, evaluate, ask, search, matches, sources, document)
"""The last one has the path of any document."""


def create_app(service: Service, *, root_path: str = "") -> FastAPI:
    """The service as an ASGI application.

    Args:
        service: What it serves.
        root_path: The path of a proxy in front of it, such as ``"/rag"``.
    """
    checks = [Depends(_check_query)]
    app = FastAPI(
        title="lazyrag", version=__version__, docs_url=None, redoc_url=None, dependencies=checks
    )
    app.state.service = service
    app.add_middleware(AccessMiddleware, service, page.problem_page)
    app.add_middleware(RequestMiddleware, root_path)
    app.add_exception_handler(ProblemError, _problem)
    app.add_exception_handler(LazyRAGError, _problem)
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _problem)
    for router in ROUTERS:
        app.include_router(router)
    for module in PAGES:
        app.include_router(module.router)

    @app.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, str]:
        """Report that the process runs."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["health"])
    async def readyz() -> dict[str, str]:
        """Report whether every set can be read."""
        reasons = [*service.pending.values(), *await service.run(unopened_sets, service)]
        for reason in reasons:
            raise try_again(503, reason)
        for docs in [*service.sets.values()]:  # others come while one is waited for
            await service.run(repr, docs)
        return {"status": "ready"}

    async def mcp(request: Request) -> Any:  # the first request imports what it needs
        from lazyrag.server import load

        await _check_query(request)

        return (await service.run(load, "mcp", "The route /mcp")).McpApp(service)

    for path in ("/mcp", "/mcp/write"):
        app.add_route(path, mcp, methods=["POST"])
    described = app.openapi
    app.openapi = lambda: with_openai(with_problems(described()))  # type: ignore[method-assign]
    return app


async def _check_query(request: Request) -> None:
    """Refuse parameters that the route does not have, before anything is done.

    Links to pages may have them, since other sites add some to track visitors.

    Raises:
        ProblemError: 422, or 400 as OpenAI's error.
    """
    route = request.scope.get("route")  # MCP has none
    params = get_flat_params(route.dependant) if route else []
    names = {param.alias for param in params if isinstance(param.field_info, Query)}
    is_page = route is not None and not route.include_in_schema
    if is_page:
        names.add("csrf")
    unknown = next((name for name in request.query_params if name not in names), None)
    if unknown is not None and not (is_page and request.method in ("GET", "HEAD")):
        remedy = known_names(unknown, names) if names else "This route has no query parameters."
        errors = [{"field": f"query.{unknown}", "message": "Unknown parameter"}]
        raise ProblemError(
            422,
            f"Unknown parameter: {unknown[:80]!a}.",
            remedy,
            errors=errors,
            code="unknown_parameter",
        )


class RequestMiddleware:
    """Gives every request an id and a principal, and logs it without its content."""

    def __init__(self, app: Any, root_path: str) -> None:
        self.app = app
        self.root_path = root_path

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope["root_path"] = self.root_path or scope.get("root_path", "")
        began = time.perf_counter()
        request_id = uuid.uuid4().hex
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        state.setdefault("principal", Principal())
        status = 500

        async def send_with_id(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                others = [header for header in message["headers"] if header[0] != b"x-request-id"]
                message["headers"] = [*others, (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            seconds = time.perf_counter() - began
            scope["app"].state.service.metrics.observe(scope, status, seconds)
            log.info(
                "%s %s %d %.1f ms %s",
                scope["method"],
                scope["path"],
                status,
                1000 * seconds,
                request_id,
            )


async def _problem(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    if problem.status >= 500 and not isinstance(error, ProblemError):
        log.error("request %s failed", request.state.request_id, exc_info=error)
    if wants_page(request.scope):
        response = await page.problem_page(request, problem)
    else:
        response = problem.response(request.scope)
    # of unexpected errors the middleware sees no response
    response.headers["x-request-id"] = request.state.request_id
    return response


_OPENAI = re.compile(
    r"(?!.*/(?:v1|s)/).*"
    r"/(?:models|chat/completions|responses|embeddings|files|uploads|vector_stores)\b"
)


async def _http_problem(request: Request, error: Exception) -> Response:
    """An error of the framework: an unknown route, a method that a route has not, a limit of the
    middleware.
    """
    status = getattr(error, "status_code", 500)
    detail = str(getattr(error, "detail", error))
    headers = getattr(error, "headers", None)
    remedy = ""
    if status in (404, 405):
        detail = f"There is no route {request.method} {request.url.path}"
        remedy = (
            f"Allowed: {headers['Allow']}." if headers else "GET /openapi.json lists the routes."
        )
        if _OPENAI.match(request.url.path):
            remedy = "The routes of OpenAI's API are below /v1: let base_url end with it."
    return await _problem(request, ProblemError(status, f"{detail}.", remedy, headers=headers))


async def _invalid(request: Request, error: Exception) -> Response:
    errors = error.errors() if isinstance(error, RequestValidationError) else []
    fields = [
        {"field": ".".join(map(str, failure["loc"])), "message": failure["msg"]}
        for failure in errors
    ]
    message = "; ".join(map(describe_field, errors[:3]))
    return await _problem(
        request, ProblemError(422, f"{message}.", "See GET /openapi.json.", errors=fields)
    )
