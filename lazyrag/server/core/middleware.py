"""The middleware that guards every route: tokens, sessions, origins, limits, the audit log."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request, cookie_parser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lazyrag.errors import StoreError
from lazyrag.server.core.access import COOKIE, Access, is_local
from lazyrag.server.core.principal import Principal
from lazyrag.server.core.problems import ProblemError, local_path
from lazyrag.server.core.service import Service

READ_S = 30.0
"""Longest wait for a request's headers, and for the next piece of its body."""
MAX_BODY = 1_000_000
MAX_STREAMS = 100
"""Event streams of a principal at the same time, per process."""
CHECK_S = 5.0
"""How often an open event stream looks whether its token is still valid, in seconds, if events come
so often."""
PUBLIC = re.compile(r"POST /api/v1/session|(GET|HEAD|POST) /login|(GET|HEAD) /static/.*")
"""Methods and paths that need no token."""

_AUDIT_BYTES = 2_000  # of a query's body in the audit log, if queries are recorded
_HEALTH = ("/healthz", "/readyz")
_NO_PAGE = re.compile(r"/(api|v1|v2|mcp|dify|static|healthz|readyz|metrics|openapi\.json)(/.*)?")
_SET = re.compile(r"/(?:api/v1/sets|s)/([^/]+)")
_FORWARDED = re.compile(r'for\s*=\s*"?([^";,]*)', re.IGNORECASE)
_LIMITS: Sequence[tuple[re.Pattern[str], float]] = (
    (
        re.compile(r"/api/v1/sets/[^/]+/(documents|uploads/[^/]+/parts/[^/]+)|/s/[^/]+/files"),
        float("inf"),
    ),
    (re.compile(r"/api/v1/sets/[^/]+/(texts|_\w+)"), 16 * MAX_BODY),
    (re.compile(r"/v1/(files|uploads/[^/]+/parts)"), float("inf")),
    (re.compile(r"/v1/(chat/completions|responses|embeddings|rerank)|/v2/rerank"), 16 * MAX_BODY),
)
_QUERIES = re.compile(  # they change nothing
    r"POST (/api/v1/sets/[^/]+/(search|why-not|answers|grep|collect|sql|_\w+)"
    r"|/v1/vector_stores/[^/]+/search"
    r"|/v1/(chat/completions|responses|embeddings|rerank)|/v2/rerank|/dify/retrieval|/mcp"
    r"|/s/[^/]+/ask)"
)
_SLOWEST = 4_096  # bytes of a body per second, after READ_S
_MAX_HEADERS = 16_384
_MAX_UNREAD = 32_768  # bytes of headers, before they are complete
_DENIED = (401, 403, 421)
_SAFE = ("GET", "HEAD", "OPTIONS")
_HEADERS = {
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"private, no-cache",
}
"""Headers of every response that has not its own."""


class AccessMiddleware:
    """Guards every route: hosts, origins, limits, tokens, audit log, headers of responses."""

    def __init__(
        self, app: Any, service: Service, problem_page: Callable[..., Any] | None = None
    ) -> None:
        self.app = app
        self.service = service
        self.problem_page = problem_page

    @property
    def access(self) -> Access:
        """The access of the service."""
        assert self.service.access is not None  # noqa: S101  the app has these routes with one only
        return self.service.access

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """See ASGI."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] != "http" or self.service.access is None:
            await self.app(scope, receive, send)
        else:
            await self._handle(scope, receive, send)

    async def _handle(self, scope: Any, receive: Any, send: Any) -> None:
        exchange = _Exchange(self, scope, receive, send)
        try:
            exchange.is_logged = await self._admit(scope, exchange.path, exchange.limit)
        except ProblemError as problem:
            if problem.status in _DENIED and (wait := self.access.denials.take(_address(scope))):
                problem = _too_many(wait)  # denied requests must not fill the audit log
            await self.refuse(problem, scope, receive, exchange.send)
            return
        try:
            with exchange.ending:
                await self.app(scope, exchange.receive, exchange.send)
        finally:
            self.access.streams[scope["state"]["principal"].id] -= exchange.is_stream

    async def refuse(self, problem: ProblemError, scope: Any, receive: Any, send: Any) -> None:
        """Send a problem: as a page to a browser that shows one, else as JSON."""
        response = problem.response(scope)
        if self.problem_page is not None and wants_page(scope):
            response = await self.problem_page(Request(scope), problem)
        await response(scope, receive, send)

    async def _admit(self, scope: Any, path: str, limit: float) -> bool:
        """Give a request its principal, and return whether it changes something, and is in the
        audit log.

        Raises:
            ProblemError: If it is not admitted.
        """
        headers = Headers(scope=scope)
        scope["state"]["principal"] = Principal("anonymous", "read", ())
        if sum(len(name) + len(value) for name, value in scope["headers"]) > _MAX_HEADERS:
            raise ProblemError(431, f"The headers have more than {_MAX_HEADERS:,} bytes.")
        if float(headers.get("content-length", 0)) > limit:
            raise ProblemError(
                413, f"The body has more than {limit:,.0f} bytes.", "Send it in several requests."
            )
        if path in _HEALTH:
            return False
        host = re.sub(r":\d*$", "", headers.get("host", "")).lower()
        if host not in self.access.hosts:
            raise ProblemError(
                421, f"The host {host[:100]!a} is not one of this service.", _HOST_REMEDY
            )
        bearer = _bearer(headers)
        _check_origin(scope["method"], headers, has_token=bool(bearer))
        principal = await self.principal(scope, headers)
        if principal is not None:
            scope["state"]["principal"] = principal
            if wait := self.access.requests.take(principal.id):
                raise _too_many(wait)
        elif not PUBLIC.fullmatch(f"{scope['method']} {path}"):
            challenge = 'Bearer realm="lazyrag"' + (
                ', error="invalid_token"' if bearer is not None else ""
            )
            msg = "The token is not valid." if bearer is not None else "The request has no token."
            raise ProblemError(401, msg, _BEARER_REMEDY, headers={"WWW-Authenticate": challenge})
        is_logged = scope["method"] not in _SAFE and not _QUERIES.fullmatch(
            f"{scope['method']} {path}"
        )
        if is_logged and principal is not None:
            await self.record(scope, path, None)
        return is_logged

    async def principal(self, scope: Any, headers: Headers) -> Principal | None:
        """The principal of a request; None without a valid token."""
        access = self.access
        if not access.is_closed():
            # A proxy on this machine must not open the service to others.
            passed = ",".join(
                headers.getlist("x-forwarded-for") + headers.getlist("x-real-ip")
            ).split(",")
            addresses = [
                _address(scope),
                *passed,
                *_FORWARDED.findall(";".join(headers.getlist("forwarded"))),
            ]
            return (
                Principal() if all(is_local(address) for address in addresses if address) else None
            )
        if (bearer := _bearer(headers)) is not None:
            return access.of_token(bearer)
        session = cookie_parser(headers.get("cookie", "")).get(COOKIE)
        return None if session is None else access.of_session(session)

    async def record(self, scope: Any, path: str, status: int | None, text: str = "") -> None:
        """Append a request to the audit log.

        Raises:
            ProblemError: 503 if that is not possible.
        """
        state = scope["state"]
        match = _SET.match(path)
        document = scope.get("path_params", {}).get("document_id")
        row = {
            "address": _address(scope),
            "dataset": state.get("dataset") or (match[1][:100] if match else ""),
            "documents": state.get("documents") or ([document] if document else []),
            "status": status,
            "request": state["request_id"],
            "text": text,
        }
        record = self.access.record
        principal = state["principal"].id
        try:
            await anyio.to_thread.run_sync(
                lambda: record(principal, f"{scope['method'][:10]} {path[:300]}", **row)
            )
        except StoreError as exc:
            remedy = "Check the disk of the service's state folder."
            raise ProblemError(503, "The audit log cannot be written.", remedy) from exc


class _Exchange:
    """A request and its response: limited, recorded, and a stream only as long as its token is
    valid.
    """

    def __init__(self, guard: AccessMiddleware, scope: Any, receive: Any, send: Any) -> None:
        self._guard = guard
        self._scope = scope
        self._receive = receive
        self._send = send
        self.path = local_path(scope)
        self.limit = next(
            (most for pattern, most in _LIMITS if pattern.fullmatch(self.path)), MAX_BODY
        )
        self.ending = anyio.CancelScope()
        self.is_logged = self.is_stream = False
        self._has_text = (
            guard.access.texts and _QUERIES.fullmatch(f"{scope['method']} {self.path}") is not None
        )
        self._limited = _limit_body(receive, self.limit)
        self._text = bytearray()
        self._checked = time.monotonic()

    async def receive(self) -> Any:
        """See ASGI."""
        message = await self._limited()
        if self._has_text:
            self._text += message.get("body", b"")[: _AUDIT_BYTES - len(self._text)]
        return message

    async def send(self, message: Any) -> None:
        """See ASGI."""
        if self.ending.cancel_called:
            return
        if message["type"] == "http.response.start":
            try:
                await self._begin(message)
            except ProblemError as problem:
                self.ending.cancel()
                await self._guard.refuse(problem, self._scope, self._receive, self._send)
                return
        elif self.is_stream and time.monotonic() - self._checked > CHECK_S:
            self._checked = time.monotonic()
            present = await self._guard.principal(self._scope, Headers(scope=self._scope))
            if present != self._scope["state"]["principal"]:
                self.ending.cancel()
                message = {"type": "http.response.body"}
        await self._send(message)

    async def _begin(self, message: Any) -> None:
        status = message["status"]
        streams = self._guard.access.streams
        principal_id = self._scope["state"]["principal"].id
        is_guess = self.is_logged and principal_id == "anonymous"  # a log-in that failed
        if is_guess and (wait := self._guard.access.denials.take(_address(self._scope))):
            raise _too_many(wait)
        if self.is_logged or self._has_text or status in _DENIED:
            await self._guard.record(
                self._scope, self.path, status, self._text.decode(errors="replace")
            )
        if dict(message["headers"]).get(b"content-type", b"").startswith(b"text/event-stream"):
            if streams[principal_id] >= MAX_STREAMS:
                raise _too_many(CHECK_S)
            self.is_stream = True
            streams[principal_id] = streams[principal_id] + 1
        message["headers"] = _headers(message["headers"])


_HOST_REMEDY = "Add the name to allowed_hosts in [server] of the configuration."
_BEARER_REMEDY = (
    "Send the header 'Authorization: Bearer lrg_...'; lazyrag token create makes a token."
)


def _too_many(wait: float) -> ProblemError:
    remedy = "Wait for the time in Retry-After."
    return ProblemError(
        429, "Too many requests.", remedy, headers={"Retry-After": str(int(wait) + 1)}
    )


def wants_page(scope: Any) -> bool:
    """Whether a request comes from a browser that shows a page, and not from a program."""
    path = local_path(scope)
    return not _NO_PAGE.fullmatch(path) and "text/html" in Headers(scope=scope).get("accept", "")


def _address(scope: Any) -> str:
    return str(scope["client"][0]) if scope.get("client") else ""


def _bearer(headers: Headers) -> str | None:
    authorization = headers.get("authorization")
    if authorization is None:
        return None
    scheme, _, text = authorization.partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""


def _check_origin(method: str, headers: Headers, *, has_token: bool) -> None:
    """Check that no page of another site sends the request.

    Raises:
        ProblemError: If one does, or could.
    """
    site = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    is_own = site == "same-origin" or (
        site is None
        and origin is not None
        and urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
    )
    is_foreign = site in ("cross-site", "same-site") or (origin is not None and not is_own)
    if method in _SAFE:
        is_foreign = is_foreign and site is not None and headers.get("sec-fetch-mode") != "navigate"
    if is_foreign:
        raise ProblemError(
            403, "The request comes from a page of another site.", "Send it from the service's own."
        )
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    # None of these can be sent by a foreign page without a preflight, which fails.
    is_deliberate = kind == "application/json" or has_token or "idempotency-key" in headers
    if method == "POST" and not (is_own or is_deliberate):
        remedy = (
            "Add a header: 'Content-Type: application/json' to JSON, 'Idempotency-Key: 1' to a"
            " form, or a token."
        )
        raise ProblemError(403, "The request could come from a page of another site.", remedy)


def _headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    cleaned = [
        (name.translate(None, b"\r\n\0"), value.translate(None, b"\r\n\0"))
        for name, value in headers
    ]
    names = {name.lower() for name, _ in cleaned}
    return [*cleaned, *(header for header in _HEADERS.items() if header[0] not in names)]


def _limit_body(receive: Any, limit: float) -> Callable[[], Any]:
    """Receive a body of limited size, from a client that sends without long pauses."""
    size = 0
    waited = 0.0
    is_complete = False

    async def limited() -> Any:
        nonlocal size, waited, is_complete
        if is_complete:
            return await receive()
        began = time.monotonic()
        try:
            with anyio.fail_after(min(READ_S, max(0.0, READ_S + size / _SLOWEST - waited))):
                message = await receive()
        except TimeoutError as exc:
            raise HTTPException(
                408, "The body arrives too slowly", headers={"Connection": "close"}
            ) from exc
        waited += time.monotonic() - began
        size += len(message.get("body", b""))
        is_complete = not message.get("more_body", False)
        if size > limit:
            raise HTTPException(413, f"The body has more than {limit:,.0f} bytes")
        return message

    return limited


class TimedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with limits for the time and the size of a request's headers, which
    uvicorn has not.
    """

    _timer: Any = None
    _unread = 0  # bytes since the last part of a message that was complete

    def connection_made(self, transport: Any) -> None:
        """See asyncio."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(READ_S, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self._unread += len(data)
        super().data_received(data)
        if self._unread > _MAX_UNREAD and not self.transport.is_closing():
            self.send_400_response(f"The headers have more than {_MAX_UNREAD:,} bytes.")
        elif not self._unread:
            self._timer = self._timer and self._timer.cancel()
        elif self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._timer = self.loop.call_later(READ_S, self.timeout_keep_alive_handler)

    def on_headers_complete(self) -> None:
        """See uvicorn."""
        self._unread = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """See uvicorn."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """See uvicorn."""
        self._unread = 0
        super().on_message_complete()
