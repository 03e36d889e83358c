"""Endpoints that speak OpenAI's protocol: limits, retries, streams. The one place that imports an HTTP library.

The library is httpx2, the maintained continuation of httpx, or httpx itself where that is what is installed. OpenAI's
own client was tried, and left: it takes half a second to import, knows no rerank, follows redirects, and hands over
vectors in whatever number and order they come.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from lazyrag.errors import ConfigError, missing_package
from lazyrag.models import background
from lazyrag.models.http.faults import ALWAYS, EndpointError, answer_error, parsed
from lazyrag.models.http.limits import RateLimit
from lazyrag.models.http.settings import EndpointOptions, checked_url, encoded, seconds, secret_headers
from lazyrag.models.http.sse import EventDecoder
from lazyrag.validation import check_keywords, keyword_names, known_arguments, whole_number

if TYPE_CHECKING:
    from typing import Self

    import httpx2

T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 20.0  # before the second try, doubling; of each a random share is waited

_END: Any = object()


@dataclass(frozen=True, slots=True)
class _Pool:
    """What all calls on one loop share."""

    client: httpx2.AsyncClient
    slots: asyncio.Semaphore
    limit: RateLimit | None


@known_arguments
class Endpoint:
    """A server that speaks OpenAI's protocol: one pool of connections, one limit, for all threads and event loops.

    A model is given its URL, or an Endpoint, so that several models share it. Redirects are not followed, since what is
    sent is the user's texts and key. Proxies and certificates come from the environment as the library reads it.

    Args:
        base_url: ``"http://host:port/v1"``, with ``http`` or ``https``; without credentials, query or fragment.
        api_key: Sent as a bearer token. None takes ``LAZYRAG_API_KEY``, else ``OPENAI_API_KEY``, from the environment
            now; "" sends none.
        timeout_s: How long the server may be silent, in seconds.
        connect_timeout_s: How long connecting may take, in seconds.
        deadline_s: How long a call may take in all, in seconds: every try, the pauses between them, a whole stream.
            What it waits for its turn, by the two limits below, does not count.
        retries: How often a call is tried again after trouble that may pass, at least 0.
        concurrency: How many calls may be under way at once, at least 1; a call that pauses counts.
        requests_per_minute: At most so many tries start in any 60 seconds; None for no limit.
        headers: Sent with each request, and as secret as the key.
        trust_env: False ignores what the environment says of proxies and certificates.

    Raises:
        ConfigError: If a value is out of its range.
        MissingDependencyError: If no HTTP library is installed.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        timeout_s: float = 120.0,
        connect_timeout_s: float = 10.0,
        deadline_s: float = 600.0,
        retries: int = 4,
        concurrency: int = 8,
        requests_per_minute: int | None = None,
        headers: Mapping[str, str] | None = None,
        trust_env: bool = True,
    ) -> None:
        self._library = _http_library()
        _tenacity()
        self.base_url = checked_url(base_url)
        try:
            self._library.URL(self.base_url)
        except self._library.InvalidURL as exc:
            raise ConfigError(f"base_url is {self.base_url!r:.200}: {exc}.") from exc
        self.timeout_s = seconds("timeout_s", timeout_s)
        self.connect_timeout_s = seconds("connect_timeout_s", connect_timeout_s)
        self.deadline_s = seconds("deadline_s", deadline_s)
        self.retries = whole_number("retries", retries, 0)
        self.concurrency = whole_number("concurrency", concurrency, 1)
        self.requests_per_minute = requests_per_minute
        if requests_per_minute is not None:
            whole_number("requests_per_minute", requests_per_minute, 1)
        self._secrets = secret_headers(api_key, headers)
        self._trust_env = trust_env
        self._closed = False
        self._not_before = 0.0  # by time.monotonic
        # By loop: a forked child has a new one. Its parent's pool is kept and left alone: the sockets are the parent's.
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r})"

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send JSON, and return the JSON of the answer; to be run on the private loop.

        Args:
            path: Under the base URL: ``"/embeddings"``.
            body: What is sent.

        Raises:
            EndpointError: If it fails for good.
        """
        call = _Call(self, path)

        async def attempt() -> Any:
            response = await self._send(call.url, content)
            try:
                return parsed(await response.aread(), self._secrets.hidden)
            finally:
                await response.aclose()

        content = encoded(body)
        async with self._pool().slots:
            return await call.tried(attempt)

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Any, None]:
        """Send JSON, and yield the JSON of each event of the answer as it comes; to be run on the private loop.

        Only what comes before the first event is tried again. A server that does not stream, and answers with one piece
        of JSON, gives that.

        Yields:
            Parsed JSON; at last None if the stream was ended by ``[DONE]``, as it should.

        Raises:
            EndpointError: If it fails for good.
        """
        call = _Call(self, path)

        async def begin() -> tuple[AsyncGenerator[Any, None], Any]:
            pieces = self._pieces(await self._send(call.url, content), call)
            return pieces, await anext(pieces, _END)

        content = encoded(body)
        async with self._pool().slots:
            pieces, piece = await call.tried(begin)
            async with contextlib.aclosing(pieces):
                while piece is not _END:
                    yield piece
                    with self._library_errors():
                        piece = await anext(pieces, _END)

    def hide_secrets(self, fault: EndpointError) -> EndpointError:
        """The fault, without the key and the headers in its words: some servers repeat them."""
        fault.what = self._secrets.hidden(fault.what)
        return fault

    def close(self) -> None:
        """Close the connections; calls that are under way fail, as does every later one."""
        self._closed = True
        if self._pools:
            background.run(self._shut())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        if self._pools:
            await background.arun(self._shut())

    async def _turn(self) -> None:
        """Wait until the server, if it asked for a pause, and the rate limit allow another try."""
        while (pause_s := self._not_before - time.monotonic()) > 0:  # noqa: ASYNC110  another call may prolong it
            await asyncio.sleep(pause_s)
        if limit := self._pool().limit:
            await limit.wait()

    def pause(self, wait_s: float) -> None:
        """Start no further try for so many seconds, whichever call it is: the server has asked for it."""
        self._not_before = max(self._not_before, time.monotonic() + wait_s)

    @contextlib.contextmanager
    def _library_errors(self) -> Iterator[None]:
        """What the HTTP library raises becomes an `EndpointError`."""
        http = self._library
        try:
            yield
        except http.ConnectTimeout as exc:
            msg = f"no connection within connect_timeout_s={self.connect_timeout_s:g}. Check base_url."
            raise EndpointError(msg, retries=ALWAYS) from exc
        except http.TimeoutException as exc:
            msg = f"the server was silent for timeout_s={self.timeout_s:g}. Raise that for a slow model."
            raise EndpointError(msg, retries=ALWAYS) from exc
        except http.ConnectError as exc:
            msg = f"no connection ({exc}). Check base_url, and whether the server runs."
            raise EndpointError(msg, retries=ALWAYS) from exc
        except http.RequestError as exc:
            msg = f"the connection broke ({type(exc).__name__}: {exc})."
            raise EndpointError(msg, retries=ALWAYS) from exc

    async def _shut(self) -> None:
        if pool := self._pools.get(asyncio.get_running_loop()):
            await pool.client.aclose()

    def _pool(self) -> _Pool:
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            http = self._library
            client = http.AsyncClient(
                headers=self._secrets.headers,
                timeout=http.Timeout(self.timeout_s, connect=self.connect_timeout_s),
                # Our own limit is asked first; two of them would wait for each other.
                limits=http.Limits(max_connections=None, max_keepalive_connections=self.concurrency),
                follow_redirects=False,
                trust_env=self._trust_env,
            )
            limit = None if self.requests_per_minute is None else RateLimit(self.requests_per_minute)
            self._pools[loop] = _Pool(client, asyncio.Semaphore(self.concurrency), limit)
            weakref.finalize(self, _release, client, loop).atexit = False
        return self._pools[loop]

    async def _send(self, url: str, content: bytes) -> httpx2.Response:
        """The answer to a request, if it is one of success, with its body still to be read."""
        if self._closed:
            msg = f"{self!r} is closed. Make a new one."
            raise EndpointError(msg)
        client = self._pool().client
        request = client.build_request("POST", url, content=content, headers={"Content-Type": "application/json"})
        response = await client.send(request, stream=True)
        if response.is_success:
            return response
        try:
            body = await response.aread()
        finally:
            await response.aclose()
        raise answer_error(response.status_code, response.headers, body, self._secrets.hidden)

    async def _pieces(self, response: httpx2.Response, call: _Call) -> AsyncGenerator[Any, None]:
        """The parsed events of an answer, which is closed at their end."""
        try:
            if "json" in response.headers.get("content-type", ""):
                yield parsed(await response.aread(), self._secrets.hidden)
                yield None
                return
            async for data in _event_data(response.aiter_bytes(), call):
                if data == "[DONE]":
                    yield None
                    return
                yield parsed(data, self._secrets.hidden)
        finally:
            await response.aclose()


class _Call:
    """One call: its tries, and when its time is up."""

    def __init__(self, endpoint: Endpoint, path: str) -> None:
        self.url = endpoint.base_url + path
        self._endpoint = endpoint
        self._tries = 0
        self._until = math.inf

    def check_time(self) -> None:
        """Raise an `EndpointError` if the time is up."""
        if self._left_s <= 0:
            raise self._late()

    async def tried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What an attempt returns that succeeds; it is repeated as long as that is worthwhile."""
        tenacity = _tenacity()
        spread = tenacity.wait_random_exponential(multiplier=FIRST_PAUSE_S, max=LONGEST_PAUSE_S)
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(EndpointError),
            stop=self._gives_up,
            wait=lambda state: (state.outcome.exception().wait_s or 0.0) + spread(state),
            sleep=asyncio.sleep,
            reraise=True,
        )
        self._until = time.monotonic() + self._endpoint.deadline_s

        async def once() -> T:
            asked = time.monotonic()
            await self._endpoint._turn()
            self._until += time.monotonic() - asked
            self._tries += 1
            try:
                with self._endpoint._library_errors():
                    return await asyncio.wait_for(attempt(), self._left_s)
            except asyncio.TimeoutError as exc:
                raise self._late() from exc

        result: T = await retrying(once)
        return result

    @property
    def _left_s(self) -> float:
        return self._until - time.monotonic()

    def _gives_up(self, state: Any) -> bool:
        fault: EndpointError = state.outcome.exception()
        fault.tries = self._tries
        if self._tries > min(fault.retries, self._endpoint.retries):
            return True
        pause_s = min(FIRST_PAUSE_S * 2.0 ** min(self._tries - 1, 50), LONGEST_PAUSE_S)  # at the longest
        if pause_s + (fault.wait_s or 0.0) < self._left_s:
            self._endpoint.pause(fault.wait_s or 0.0)
            return False
        asked = f"The server asks to wait {fault.wait_s:g} s; of" if fault.wait_s else "Of"
        fault.what += f" {asked} deadline_s={self._endpoint.deadline_s:g} too little is left for another try."
        return True

    def _late(self) -> EndpointError:
        return EndpointError(f"it took longer than deadline_s={self._endpoint.deadline_s:g}. Raise that if it may.")


def make_endpoint(
    what: Callable[..., Any], base_url: str | Endpoint, api_key: str | None, options: EndpointOptions
) -> Endpoint:
    """The endpoint of a model that was given a URL, or an `Endpoint`.

    Args:
        what: The model's class; its own keywords are named where one is misspelt.
        base_url: The URL, or an endpoint to be shared.
        api_key: The key, if it is a URL.
        options: Further keywords of `Endpoint`, if it is a URL.

    Raises:
        ConfigError: If they do not fit together.
    """
    check_keywords(what.__name__, Endpoint, options, skip=2, also_known=keyword_names(what, skip=2)[0])
    if not isinstance(base_url, Endpoint):
        return Endpoint(base_url, api_key, **options)
    if api_key is not None or options:
        named = ", ".join(["api_key"] * (api_key is not None) + sorted(options))
        msg = f"{what.__name__} got an Endpoint, and {named} beside it. Give these to the Endpoint."
        raise ConfigError(msg)
    return base_url


def _release(client: httpx2.AsyncClient, loop: asyncio.AbstractEventLoop) -> None:
    """Close the connections of an endpoint that nobody has closed, and nobody can any more."""
    asyncio.run_coroutine_threadsafe(client.aclose(), loop)


async def _event_data(chunks: AsyncIterator[bytes], call: _Call) -> AsyncIterator[str]:
    """What the events of a stream hold; some servers send empty ones, to keep the connection."""
    decoder = EventDecoder()
    async for chunk in chunks:
        call.check_time()  # each of them may be in time, and all together late
        for data in decoder.feed(chunk):
            if data:
                yield data
    for data in decoder.end():
        yield data


def _http_library() -> Any:
    try:
        import httpx2
    except ModuleNotFoundError:  # before Python 3.11, or it is httpx that was installed
        try:
            import httpx
        except ModuleNotFoundError as exc:
            raise missing_package("Endpoint", exc, "openai") from exc
        return httpx
    return httpx2


def _tenacity() -> Any:
    try:
        import tenacity
    except ModuleNotFoundError as exc:
        raise missing_package("Endpoint", exc, "openai") from exc
    return tenacity
