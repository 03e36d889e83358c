"""HTTP client for endpoints that speak OpenAI's protocol: connection pool, limits, retries,
streams.

The one module that imports an HTTP library. OpenAI's own client takes half a second to import,
knows no rerank, follows redirects, and does not check the number and order of vectors.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import math
import os
import re
import sys
import time
import urllib.parse
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import responses
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypedDict, TypeVar

from lazyrag.errors import ConfigError, optional_package, sentence
from lazyrag.models import concurrency as background
from lazyrag.models.protocols import Usage, report_usage, single_try
from lazyrag.text.tokens import EstimatedTokenCounter
from lazyrag.types import Closable, Headers, JsonMapping, JsonObject
from lazyrag.validation import (
    check_keywords,
    entry_of,
    keyword_names,
    known_arguments,
    public_url,
    require,
    validate_integer,
    validate_seconds,
)

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")
HideSecrets: TypeAlias = Callable[[str], str]
"""Removes secrets from a text."""

# before the second try, doubling; each pause is a random part of it
FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 20.0

# by default: of an answer, and more for each text of the request
_ANSWER_BYTES = 1 << 24
_TEXT_BYTES = 1 << 17
_STREAM_BYTES = 1 << 26
_ERROR_BYTES = 1 << 20  # of an unsuccessful response
_DEADLINE_FACTOR = 10

_END: Any = object()


class EndpointOptions(TypedDict, total=False):
    """Keywords of `Endpoint`, for classes that create one."""

    timeout_s: float
    connect_timeout_s: float
    deadline_s: float | None
    max_answer_bytes: int | None
    retries: int
    concurrency: int
    requests_per_minute: int | None
    rate_limit: RateLimit | None
    headers: Headers | None
    trust_env: bool


@known_arguments
class Endpoint(Closable):
    """A server that speaks OpenAI's protocol, with one connection pool and one limit for all
    threads and event loops.

    Pass an Endpoint in place of a URL to share it between models. Redirects are not followed, since
    requests carry the user's texts and key. Proxies and certificates come from the environment, as
    httpx2 reads it.

    Args:
        base_url: ``"http://host:port/v1"``, with ``http`` or ``https``; without credentials, query
            or fragment.
        api_key: Bearer token. None takes ``LAZYRAG_API_KEY``, else ``OPENAI_API_KEY``, from the
            environment now; "" sends none.
        timeout_s: Maximum silence of the server, in seconds.
        connect_timeout_s: Timeout for connecting, in seconds.
        deadline_s: Timeout for a call as a whole, in seconds: every try, the pauses between them, a
            whole stream. Waiting for the limits of concurrency and rate does not count. None:
            ``10 * timeout_s``, which for a stream holds until the first piece and between two
            pieces.
        max_answer_bytes: Maximum size of an answer, uncompressed. None: 16 MiB, and 128 KiB for
            each text of the request; 64 MiB for a stream.
        retries: How often to retry after a transient failure, at least 0.
        concurrency: Maximum number of concurrent calls, at least 1; a call that pauses counts.
        requests_per_minute: Maximum number of tries that start in any 60 seconds; None for no
            limit.
        rate_limit: A `RateLimit` that several endpoints share, in place of ``requests_per_minute``.
        headers: Sent with each request, and as secret as the key.
        trust_env: Whether to take proxies and certificates from the environment.

    Raises:
        ConfigError: If an argument is invalid.
        MissingDependencyError: If the extra ``openai`` is not installed.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        timeout_s: float = 120.0,
        connect_timeout_s: float = 10.0,
        deadline_s: float | None = None,
        max_answer_bytes: int | None = None,
        retries: int = 4,
        concurrency: int = 8,
        requests_per_minute: int | None = None,
        rate_limit: RateLimit | None = None,
        headers: Headers | None = None,
        trust_env: bool = True,
    ) -> None:
        self._http, _ = _packages()
        self.base_url = checked_url(base_url)
        try:
            self._http.URL(self.base_url)
        except self._http.InvalidURL as exc:
            raise ConfigError(
                f"base_url must be a URL; got {self.base_url!r:.200}: {exc}."
            ) from exc
        self.timeout_s = validate_seconds("timeout_s", timeout_s)
        self.connect_timeout_s = validate_seconds("connect_timeout_s", connect_timeout_s)
        self._has_deadline = deadline_s is not None
        deadline_s = _DEADLINE_FACTOR * self.timeout_s if deadline_s is None else deadline_s
        self.deadline_s = validate_seconds("deadline_s", deadline_s)
        if max_answer_bytes is not None:
            max_answer_bytes = validate_integer("max_answer_bytes", max_answer_bytes, 1)
        self.max_answer_bytes = max_answer_bytes
        self.retries = validate_integer("retries", retries, 0)
        self.concurrency = validate_integer("concurrency", concurrency, 1)
        if requests_per_minute is not None:
            require(rate_limit is None, "rate_limit", rate_limit, "None beside requests_per_minute")
            rate_limit = RateLimit(requests_per_minute)
        require(
            isinstance(rate_limit, RateLimit | None),
            "rate_limit",
            rate_limit,
            "a RateLimit or None",
        )
        self.rate_limit = rate_limit
        self.without_schema: set[str] = set()
        """Models whose requests are rejected with a JSON schema, see `lazyrag.HttpChatModel`."""
        self._secrets = secret_headers(api_key, headers)
        self._trust_env = trust_env
        self._closed = False
        self._not_before = 0.0  # by time.monotonic
        # By loop: a forked child has a new one. Its parent's pool is left alone, since the sockets
        # are the parent's.
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r})"

    async def post(self, path: str, body: JsonMapping, texts: int = 0) -> Any:
        """Send JSON and return the JSON of the answer; runs on the private loop.

        Args:
            path: Under the base URL: ``"/embeddings"``.
            body: Request body.
            texts: Number of texts in it, for the default of ``max_answer_bytes``.

        Raises:
            EndpointError: If it fails for good.
        """
        most = self.max_answer_bytes or _ANSWER_BYTES + _TEXT_BYTES * texts
        call = _Call(self, path, self._tokens(body))
        return await self._post(call, most, **_encode(body))

    async def post_file(
        self, path: str, fields: Mapping[str, str], file: tuple[str, bytes, str]
    ) -> Any:
        """Send a form with a file and return the JSON of the answer; runs on the private loop.

        Args:
            path: See `post`.
            fields: Fields of the form.
            file: Name, bytes and media type of its field ``file``.

        Raises:
            EndpointError: If it fails for good.
        """
        call = _Call(self, path, 0)
        most = self.max_answer_bytes or _ANSWER_BYTES
        return await self._post(call, most, data=fields, files={"file": file})

    async def _post(self, call: _Call, most: int, **request: Any) -> Any:
        """Send a request with retries and return the JSON of its answer, which has at most so many
        bytes.
        """

        async def attempt() -> Any:
            response = await self._send(call.url, **request)
            try:
                return parse_json(await self._read(response, most), self._secrets.hidden)
            finally:
                await response.aclose()

        async with self._pool().slots:
            answer = await call.retry(attempt)
        report_usage(usage_of(answer))
        return answer

    async def events(self, path: str, body: JsonMapping) -> AsyncGenerator[Any, None]:
        """Send JSON and yield the JSON of each event of the answer; runs on the private loop.

        Only failures before the first event are retried. A server that answers with plain JSON
        gives one event.

        Yields:
            Parsed JSON; at last None if the stream ended with ``[DONE]``.

        Raises:
            EndpointError: If it fails for good.
        """
        call = _Call(self, path, self._tokens(body))

        async def begin() -> tuple[AsyncGenerator[Any, None], Any]:
            pieces = self._pieces(await self._send(call.url, **request))
            return pieces, await anext(pieces, _END)

        request = _encode(body)
        async with self._pool().slots:
            pieces, piece = await call.retry(begin)
            async with contextlib.aclosing(pieces):
                usage = None
                while piece is not _END:
                    usage = usage_of(piece) or usage
                    yield piece
                    call.restart()
                    with self._library_errors():
                        piece = await call.within_deadline(anext(pieces, _END))
                report_usage(usage)

    def _tokens(self, body: JsonMapping) -> int:
        """The tokens of a request for the rate limit: all of its JSON, and those that the answer
        may have.
        """
        if self.rate_limit is None or self.rate_limit.tokens_per_minute == math.inf:
            return 0
        answer = body.get("max_completion_tokens") or body.get("max_tokens") or 0
        text, pictures = _PICTURE.subn("", _encode(body)["content"].decode())
        return EstimatedTokenCounter().count(text) + _PICTURE_TOKENS * pictures + int(answer)

    def hide_secrets(self, fault: EndpointError) -> EndpointError:
        """Remove the key and the headers from an error's message: some servers repeat them."""
        fault.problem = self._secrets.hidden(fault.problem)
        return fault

    def close(self) -> None:
        """Close the connections. Running and later calls fail."""
        self._closed = True
        if self._pools:
            background.run(self._shut())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        if self._pools:
            await background.arun(self._shut())

    async def wait_for_turn(self, tokens: int = 0) -> None:
        """Wait until a pause that the server requested is over and the rate limit allows a try with
        so many tokens.
        """
        # Another call may prolong the pause.
        while (pause_s := self._not_before - time.monotonic()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(pause_s)
        if self.rate_limit is not None:
            await self.rate_limit.wait(tokens)

    def pause(self, wait_s: float) -> None:
        """Start no further try of any call for some seconds: the server requested it."""
        self._not_before = max(self._not_before, time.monotonic() + wait_s)

    @contextlib.contextmanager
    def _library_errors(self) -> Iterator[None]:
        """Convert errors of the HTTP library to `EndpointError`."""
        http = self._http
        try:
            yield
        except http.ConnectTimeout as exc:
            raise EndpointError(
                f"no connection within connect_timeout_s={self.connect_timeout_s:g}. Check"
                " base_url.",
                retries=ALWAYS,
                unreachable=True,
            ) from exc
        except http.TimeoutException as exc:
            raise EndpointError(
                f"the server was silent for timeout_s={self.timeout_s:g}. Raise that for a slow"
                " model.",
                retries=ALWAYS,
            ) from exc
        except http.ConnectError as exc:
            msg = f"it cannot be reached ({exc}). Check base_url and the server."
            raise EndpointError(msg, retries=ALWAYS, unreachable=True) from exc
        except http.RequestError as exc:
            # The messages of it and its causes may quote the server, which may repeat the key.
            exc.args = (self._secrets.hidden(str(exc)),)
            exc.__cause__ = None
            exc.__context__ = None
            raise EndpointError(
                f"the connection broke ({type(exc).__name__}: {exc}).", retries=ALWAYS
            ) from exc

    async def _shut(self) -> None:
        if pool := self._pools.get(asyncio.get_running_loop()):
            await pool.client.aclose()

    def _pool(self) -> _Pool:
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            http = self._http
            client = http.AsyncClient(
                headers=self._secrets.headers,
                timeout=http.Timeout(self.timeout_s, connect=self.connect_timeout_s),
                # Calls wait for our own limit only; two limits would wait for each other.
                limits=http.Limits(
                    max_connections=None, max_keepalive_connections=self.concurrency
                ),
                follow_redirects=False,
                trust_env=self._trust_env,
            )
            self._pools[loop] = _Pool(client, asyncio.Semaphore(self.concurrency))
            weakref.finalize(self, _release, client, loop).atexit = False
        return self._pools[loop]

    async def _send(self, url: str, **content: Any) -> httpx2.Response:
        """Send a request and return the successful response, whose body is still to be read."""
        if self._closed:
            raise EndpointError(f"{self!r} is closed. Make a new one.")
        client = self._pool().client
        request = client.build_request(
            "POST", url, **content, extensions={"trace": _close_unsecured()}
        )
        response = await client.send(request, stream=True)
        if response.is_success:
            return response
        try:
            body = await self._read(response, _ERROR_BYTES)
        except EndpointError:  # the status matters more
            body = b""
        finally:
            await response.aclose()
        raise response_error(response.status_code, response.headers, body, self._secrets.hidden)

    async def _read(self, response: httpx2.Response, most: int) -> bytes:
        """Read the body of a response, up to a size."""
        pieces = []
        size = 0
        async with contextlib.aclosing(response.aiter_bytes()) as body:
            async for piece in body:
                size += len(piece)
                if size > most:
                    raise self._too_large(most)
                pieces.append(piece)
        return b"".join(pieces)

    def _too_large(self, most: int) -> EndpointError:
        return EndpointError(
            f"the answer is larger than max_answer_bytes={most:,}. Raise that if it may."
        )

    async def _pieces(self, response: httpx2.Response) -> AsyncGenerator[Any, None]:
        """Yield the parsed events of a response, and close it."""
        most = self.max_answer_bytes or _STREAM_BYTES
        size = 0
        content_type = response.headers.get("content-type", "")
        try:
            if "json" in content_type:
                yield parse_json(await self._read(response, most), self._secrets.hidden)
                yield None
                return
            if content_type.partition(";")[0].strip().lower() != "text/event-stream":
                shown_type = self._secrets.hidden(content_type)
                raise EndpointError(
                    f"the answer is no stream, but of content type {shown_type!r:.80}."
                    " Check base_url."
                )
            async for event in self._http.EventSource(response, max_event_size=most):
                size += len(event.data)
                if size > most:
                    raise self._too_large(most)
                if event.data == "[DONE]":
                    yield None
                    return
                if event.data:  # some servers send empty events to keep the connection
                    yield parse_json(event.data, self._secrets.hidden)
        except self._http.SSEError as exc:  # of an event; the content type is checked above
            raise self._too_large(most) from exc
        finally:
            await response.aclose()


@dataclass(frozen=True, slots=True)
class _Pool:
    """What all calls on one loop share."""

    client: httpx2.AsyncClient
    slots: asyncio.Semaphore


def _close_unsecured() -> Callable[[str, JsonMapping], Awaitable[None]]:
    """Return a trace that closes a connection whose TLS handshake fails: cancelled in it, httpcore2
    leaves it open.
    """
    stream: Any = None

    async def trace(event: str, info: JsonMapping) -> None:
        nonlocal stream
        if event.endswith("connect_tcp.complete"):
            stream = info["return_value"]
        elif event.endswith("start_tls.failed") and stream is not None:
            await stream.aclose()

    return trace


def _release(client: httpx2.AsyncClient, loop: asyncio.AbstractEventLoop) -> None:
    """Close the connections of an endpoint that was dropped without `Endpoint.close`."""
    asyncio.run_coroutine_threadsafe(client.aclose(), loop)


def make_endpoint(
    cls: type[Any], base_url: str | Endpoint, api_key: str | None, options: EndpointOptions
) -> Endpoint:
    """Return the endpoint of a model that was given a URL or an `Endpoint`.

    Args:
        cls: Class of the model; its own keywords are suggested for a misspelt one.
        base_url: The URL, or an endpoint to share.
        api_key: The key, for a URL.
        options: Further keywords of `Endpoint`, for a URL.

    Raises:
        ConfigError: If they do not fit together.
    """
    check_keywords(
        cls.__name__, Endpoint, options, skip=2, also_known=keyword_names(cls, skip=2)[0]
    )
    if not isinstance(base_url, Endpoint):
        return Endpoint(base_url, api_key, **options)
    if api_key is not None or options:
        named = ", ".join(["api_key"] * (api_key is not None) + sorted(options))
        raise ConfigError(
            f"{cls.__name__} got an Endpoint, and {named} beside it. Pass these to the Endpoint."
        )
    return base_url


def _packages() -> tuple[Any, Any]:
    with optional_package("Endpoint", "openai"):
        import httpx2
        import tenacity
    return httpx2, tenacity


class _Call:
    """The tries and the deadline of one call."""

    def __init__(self, endpoint: Endpoint, path: str, tokens: int) -> None:
        self.url = endpoint.base_url + path
        self._retries = 0 if single_try.get() else endpoint.retries
        self._tokens = tokens
        self._endpoint = endpoint
        self._tries = 0
        self._until = math.inf

    async def retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat an attempt until it succeeds, as long as that is worthwhile; return its result."""
        _, tenacity = _packages()
        spread = tenacity.wait_random_exponential(multiplier=FIRST_PAUSE_S, max=MAX_PAUSE_S)
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(EndpointError),
            stop=self._gives_up,
            wait=lambda state: (state.outcome.exception().wait_s or 0.0) + spread(state),
            sleep=asyncio.sleep,
            reraise=True,
        )
        self.restart()

        async def once() -> T:
            began = time.monotonic()
            await self._endpoint.wait_for_turn(self._tokens)
            self._until += time.monotonic() - began
            self._tries += 1
            with self._endpoint._library_errors():
                return await self.within_deadline(attempt())

        result: T = await retrying(once)
        return result

    def restart(self) -> None:
        """Start the deadline, for a stream without one of its own once more with each piece."""
        if self._until == math.inf or not self._endpoint._has_deadline:
            self._until = time.monotonic() + self._endpoint.deadline_s

    async def within_deadline(self, awaitable: Awaitable[T]) -> T:
        """Await something until the deadline of the call.

        Raises:
            EndpointError: If the deadline passes.
        """
        try:
            async with asyncio.timeout(self._left_s):
                return await awaitable
        except TimeoutError as exc:
            raise EndpointError(
                f"it took longer than deadline_s={self._endpoint.deadline_s:g}. Raise that if it"
                " may."
            ) from exc

    @property
    def _left_s(self) -> float:
        return self._until - time.monotonic()

    def _gives_up(self, state: Any) -> bool:
        fault: EndpointError = state.outcome.exception()
        fault.tries = self._tries
        if self._tries > min(fault.retries, self._retries):
            return True
        # at the longest
        pause_s = min(FIRST_PAUSE_S * 2.0 ** min(self._tries - 1, 50), MAX_PAUSE_S)
        if pause_s + (fault.wait_s or 0.0) < self._left_s:
            self._endpoint.pause(fault.wait_s or 0.0)
            return False
        requested = f" The server asks to wait {fault.wait_s:g} s." if fault.wait_s else ""
        fault.problem += (
            f"{requested} deadline_s={self._endpoint.deadline_s:g} leaves no time for another try."
        )
        return True


ALWAYS = sys.maxsize

# Timeouts (408), conflicts (409), early data (425), rate limits (429), and server errors but those
# that never pass.
_TRANSIENT = {408, 409, 425, 429}
_PERMANENT = {501, 505}
_PERMANENT_CODES = {"insufficient_quota"}  # comes as 429, and waiting does not help
_OF_THE_TEXTS = {400, 413, 422}
_ADVICE = {
    401: "Check the key: api_key, or LAZYRAG_API_KEY or OPENAI_API_KEY in the environment.",
    403: "Check the key, and whether it may use this model.",
    404: "Check base_url (it usually ends in /v1) and the name of the model.",
    405: "Check base_url (it usually ends in /v1).",
    429: "Lower concurrency, or set requests_per_minute or rate_limit.",
}
_SHOWN = 200  # characters of an answer in a message


@dataclass(eq=False, repr=False)
class EndpointError(Exception):
    """A failed call; the public models convert it to errors of the package.

    Args:
        problem: What happened and what to do, to follow "failed: ".
        status: HTTP status; None if there was no response, or a 200 that cannot be used.
        retries: How often to retry: 0 for never, `ALWAYS` for as often as the endpoint allows.
        wait_s: Pause that the server requests, in seconds.
        refused: Whether the texts may be the cause: other texts may be accepted.
        exhausted: Whether the quota is used up, so that every call would fail.
        unreachable: Whether there was no connection, so that the request was never sent.
        tries: How often the call was tried.
    """

    problem: str
    status: int | None = None
    retries: int = 0
    wait_s: float | None = None
    refused: bool = False
    exhausted: bool = False
    unreachable: bool = False
    tries: int = 0

    def __post_init__(self) -> None:
        self.args = ()  # tools show them, where `Endpoint.hide_secrets` hides nothing

    @property
    def hopeless(self) -> bool:
        """Whether every other call to this endpoint would fail alike."""
        redirect = self.status is not None and 300 <= self.status < 400
        return redirect or self.exhausted or self.status in {401, 403, 404, 405}

    def __str__(self) -> str:
        return self.problem + (f" It was tried {self.tries} times." if self.tries > 1 else "")


def response_error(
    status: int, headers: Headers, body: bytes | str, hidden: HideSecrets = str
) -> EndpointError:
    """Create the error for an unsuccessful response.

    Args:
        status: HTTP status.
        headers: Headers, with lower-case names or in a case-insensitive mapping.
        body: Body.
        hidden: Removes secrets from a text.

    Example:
        >>> print(response_error(401, {}, '{"error": {"message": "no such key"}}'))
        401 Unauthorized: no such key. Check the key: api_key, or ...
    """
    message, code = _message(body, hidden)
    advice = _ADVICE.get(status, "")
    if 300 <= status < 400:
        message = (
            f"it points to {hidden(headers.get('location', 'nowhere'))!r:.200}, and redirects are"
            " not followed"
        )
        advice = "Set base_url to where the endpoint is."
    status_line = f"{status} {responses.get(status, '')}".rstrip()
    is_transient = status in _TRANSIENT or (status >= 500 and status not in _PERMANENT)
    return EndpointError(
        f"{status_line}: {sentence(message)} {advice}".rstrip(),
        status=status,
        retries=ALWAYS if is_transient and code not in _PERMANENT_CODES else 0,
        wait_s=retry_after_s(headers),
        refused=status in _OF_THE_TEXTS,
        exhausted=code in _PERMANENT_CODES,
    )


def parse_json(body: bytes | str, hidden: HideSecrets = str) -> Any:
    """Parse the JSON of a successful response, or of an event in a stream.

    Args:
        body: The response.
        hidden: Removes secrets from a text.

    Raises:
        EndpointError: If it is no JSON, or holds an error.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise EndpointError(
            f"the answer is not JSON: {_beginning(body, hidden)!r}. Check base_url, and proxies in"
            " between.",
            retries=1,
        ) from exc  # once: it may have been cut
    error = entry_of(value, "error")
    if not error:
        return value
    code = entry_of(error, "code")
    if isinstance(code, int) and 400 <= code < 600:
        raise response_error(code, {}, body, hidden)
    raise EndpointError(f"the answer is an error: {sentence(_message(body, hidden)[0])}")


def usage_of(answer: Any) -> Usage | None:
    """Read the token usage of an answer; None if it is not reported. Texts in, as for embeddings,
    are a prompt.
    """
    usage = entry_of(answer, "usage")
    if not isinstance(usage, dict):
        return None
    of_texts = None if "choices" in answer else 0
    counts: list[Any] = [
        usage.get("prompt_tokens", usage.get("total_tokens")),
        usage.get("completion_tokens", of_texts),
    ]
    return Usage(*counts) if all(type(count) is int for count in counts) else None


def retry_after_s(headers: Headers) -> float | None:
    """Return the pause that a response requests, in seconds; None if it requests none.

    Source:
        RFC 9110, 10.2.3: seconds or a date, which is compared with the response's own date, as
        clocks differ. The header in milliseconds is OpenAI's.

    Example:
        >>> retry_after_s({"retry-after": "2"})
        2.0
        >>> retry_after_s({"retry-after-ms": "150"})
        0.15
        >>> retry_after_s({}) is None
        True
    """
    in_ms = _number(headers.get("retry-after-ms"))
    after = headers.get("retry-after")
    if in_ms is not None:
        return max(0.0, in_ms / 1000)
    wait_s = _number(after)
    if wait_s is None and (until := _date(after)) is not None:
        now = _date(headers.get("date"))
        wait_s = until - (time.time() if now is None else now)
    return None if wait_s is None else max(0.0, wait_s)


def _beginning(body: bytes | str, hidden: HideSecrets) -> str:
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    # hidden first: a secret that is cut in two would not be found
    line = " ".join(hidden(text).split())
    return line if len(line) <= _SHOWN else line[:_SHOWN] + " ..."


def _message(body: bytes | str, hidden: HideSecrets) -> tuple[str, object]:
    """Return the error message of a response, in the shapes that servers use, and its code."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return _beginning(body, hidden) or "no explanation", None
    error = value.get("error", value) if isinstance(value, dict) else value
    if not isinstance(error, dict):
        return _beginning(str(error), hidden), None
    message = next((error[name] for name in ("message", "detail", "msg") if error.get(name)), error)
    text = message if isinstance(message, str) else json.dumps(message)
    return _beginning(text, hidden), error.get("code")


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _date(text: str | None) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text or "").timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


WINDOW_S = 60.0
_PICTURE = re.compile('"data:image/[^"]*"')
_PICTURE_TOKENS = 1_500  # a large one, whatever its bytes


@known_arguments
class RateLimit:
    """Rate limiter of an account: requests and tokens that start in any 60 seconds, in the order of
    the calls.

    Pass one to the `Endpoint` of each model of the account, with any ``base_url``. A call waits
    until enough earlier ones are 60 seconds ago. So no period of 60 seconds exceeds a limit; a
    token bucket would let up to twice as much through. Limits of this process: a
    `SharedRateLimit` is for several.

    A call's tokens are those of its request as `lazyrag.text.tokens.EstimatedTokenCounter` counts
    them, on the safe side, 1,500 for a picture, and its ``max_tokens``. A call with more than the
    limit waits for 60 seconds without any other.

    Args:
        requests_per_minute: Maximum number of tries that start, at least 1; None for no limit.
        tokens_per_minute: Maximum number of their tokens, at least 1; None for no limit.
        clock: Returns monotonic seconds.
        sleep: Waits for some seconds.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> times = []
        >>> async def pass_time(seconds):
        ...     times.append(seconds)
        >>> limit = RateLimit(2, 1000, clock=lambda: sum(times), sleep=pass_time)
        >>> async def calls():
        ...     for tokens in (10, 20, 30, 980):
        ...         await limit.wait(tokens)
        >>> asyncio.run(calls())
        >>> times
        [60.0, 60.0]
    """

    def __init__(
        self,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        limits = {
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
        }
        most = [
            math.inf if limit is None else validate_integer(name, limit, 1)
            for name, limit in limits.items()
        ]
        self.requests_per_minute, self.tokens_per_minute = most
        self._clock = clock
        self._sleep = sleep
        self._started: deque[tuple[float, int]] = deque()  # times and tokens
        # by event loop
        self._locks: weakref.WeakKeyDictionary[Any, asyncio.Lock] = weakref.WeakKeyDictionary()

    async def wait(self, tokens: int = 0) -> None:
        """Wait until a call with so many tokens may start, and count it. A cancelled wait does not
        count.
        """
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            while (pause := self._pause(tokens)) > 0:
                await self._sleep(pause)
            self._started.append((self._clock(), tokens))

    def _pause(self, tokens: int) -> float:
        now = self._clock()
        while self._started and self._started[0][0] + WINDOW_S <= now:
            self._started.popleft()
        return self.pause_after(self._started, tokens, now)

    def pause_after(self, started: Collection[tuple[float, int]], tokens: int, now: float) -> float:
        """Seconds until a call with so many tokens may start.

        Args:
            started: Times and tokens of the calls of the last 60 seconds, the oldest first.
            tokens: Tokens of the call.
            now: The present time.
        """
        count = len(started)
        used = sum(used_tokens for _, used_tokens in started)
        pause = 0.0
        for start, used_tokens in started:
            if count < self.requests_per_minute and used + tokens <= self.tokens_per_minute:
                break
            count = count - 1
            used = used - used_tokens
            pause = start + WINDOW_S - now
        return pause


KEY_VARIABLES = ("LAZYRAG_API_KEY", "OPENAI_API_KEY")

_LONG_SECRET = 6  # characters of a secret that is hidden wherever it occurs


@dataclass(frozen=True, slots=True)
class Secrets:
    """Headers that no message shows."""

    headers: Headers = field(repr=False)

    def hidden(self, text: str) -> str:
        """Remove the headers' values from a text: some servers repeat the key that they refuse."""
        for secret in sorted(self._parts(), key=len, reverse=True):
            # A short one only as a word of its own: hiding its letters everywhere would garble
            # messages.
            word = re.escape(secret)
            if len(secret) < _LONG_SECRET:
                word = rf"(?<!\w){word}(?!\w)"
            text = re.sub(word, "***", text)
        return text

    def _parts(self) -> set[str]:
        """The headers' values and the words in them: a server may repeat a part."""
        parts = {*self.headers.values()}
        for value in self.headers.values():
            parts.update(re.split(r"[\s;,=]+", value))
        return {part for part in parts if part and part.lower() not in ("bearer", "basic")}


def secret_headers(api_key: Any, headers: Any) -> Secrets:
    """Return the headers that are sent with each request.

    Args:
        api_key: The key; None takes the first of `KEY_VARIABLES` in the environment; "" for none.
        headers: Further headers; an Authorization among them replaces the key.

    Raises:
        ConfigError: If one cannot be sent; the message shows no value.
    """
    if api_key is None:
        api_key = next((key for name in KEY_VARIABLES if (key := os.environ.get(name))), "")
    require(isinstance(api_key, str), "api_key", type(api_key), "a string or None")
    require(
        headers is None or isinstance(headers, Mapping),
        "headers",
        type(headers),
        "a mapping or None",
    )
    further = dict(headers or {})
    key = api_key.strip()  # keys from files end with a line break
    if key and not any(str(name).lower() == "authorization" for name in further):
        _check_header("api_key", key)
        further["Authorization"] = f"Bearer {key}"
    for name, value in further.items():
        _check_header(f"headers[{name!r:.80}]", name, value)
    return Secrets(further)


def _check_header(name: str, *texts: Any) -> None:
    if not all(isinstance(text, str) and text.isascii() and text.isprintable() for text in texts):
        raise ConfigError(f"{name} must be ASCII characters on one line; its value is not shown.")


def checked_url(base_url: Any) -> str:
    """Return a base URL without its last slash. Messages show no credentials and no query."""
    expected = (
        'base_url must be such as "http://localhost:8000/v1", without credentials, query or'
        " fragment"
    )
    if not isinstance(base_url, str):
        raise ConfigError(f"{expected}; got {type(base_url).__name__}.")
    url = base_url.strip().rstrip("/")
    safe_url = public_url(url)
    try:
        parts = urllib.parse.urlsplit(url)
        is_valid = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or "@" in parts.netloc or any(mark in url for mark in "?# \t\n\\"):
        raise ConfigError(f"{expected}; got {safe_url!r:.200}.")
    return url


def _encode(body: JsonMapping) -> JsonObject:
    """JSON as the content of a request."""
    try:
        content = json.dumps(
            body, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).encode()
    except (TypeError, ValueError) as exc:  # half a surrogate pair, or an object in the options
        raise EndpointError(f"the request cannot be written as JSON: {exc}.", refused=True) from exc
    return {"content": content, "headers": {"Content-Type": "application/json"}}
