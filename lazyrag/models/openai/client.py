"""Endpoints that speak OpenAI's protocol: limits, retries, streams. The one place that imports an HTTP library.

The library is httpx2, the maintained continuation of httpx, or httpx itself where that is what is installed. OpenAI's
own client was tried, and left: it takes half a second to import, knows no rerank, follows redirects, and hands over
vectors in whatever number and order they come.
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
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from lazyrag.errors import ConfigError, missing_package, sentence
from lazyrag.models import concurrency as background
from lazyrag.validation import check_keywords, keyword_names, known_arguments, whole_number

if TYPE_CHECKING:
    from typing import Self

    import httpx2


# Lock timeouts (409), early data (425) and any trouble of the server's own but what it will never do (501, 505).
_AGAIN = {408, 409, 425, 429}
_NEVER = {501, 505}
_NEVER_CODES = {"insufficient_quota"}  # comes as 429, and waiting does not help
_OF_THE_TEXTS = {400, 413, 422}

_ADVICE = {
    401: "Check the key: api_key, or LAZYRAG_API_KEY or OPENAI_API_KEY in the environment.",
    403: "Check the key, and whether it may use this model.",
    404: "Check base_url (it usually ends in /v1) and the name of the model.",
    405: "Check base_url (it usually ends in /v1).",
    429: "Lower concurrency, or set requests_per_minute.",
}

ALWAYS = sys.maxsize
_SHOWN = 200  # characters of an answer in a message


class EndpointError(Exception):
    """A call that failed; the public models turn it into an error of their own.

    Args:
        what: What happened, and what to do, to follow "failed: ".
        status: Of the server's answer; None where there was none, or it was a 200 that cannot be used.
        retries: How often it is worth another try: 0 for never, `ALWAYS` for as often as the endpoint may.
        wait_s: How long the server asked to wait, in seconds.
        refused: Whether it may lie in what was sent: the same endpoint may take something else.
        exhausted: Whether what was paid for is used up, so that every call would fail.
    """

    def __init__(
        self,
        what: str,
        *,
        status: int | None = None,
        retries: int = 0,
        wait_s: float | None = None,
        refused: bool = False,
        exhausted: bool = False,
    ) -> None:
        super().__init__()
        self.what = what
        self.status = status
        self.retries = retries
        self.wait_s = wait_s
        self.refused = refused
        self.exhausted = exhausted
        self.tries = 0

    @property
    def hopeless(self) -> bool:
        """Whether every other call to this endpoint would fail alike."""
        redirect = self.status is not None and 300 <= self.status < 400
        return redirect or self.exhausted or self.status in {401, 403, 404, 405}

    def __str__(self) -> str:
        return self.what + (f" It was tried {self.tries} times." if self.tries > 1 else "")


def answer_error(
    status: int, headers: Mapping[str, str], body: bytes | str, hidden: Callable[[str], str] = str
) -> EndpointError:
    """The error for an answer that is none of success.

    Args:
        status: Its status.
        headers: Its headers, names in lower case or in a mapping that does not care.
        body: Its body.
        hidden: Takes secrets out of a text.

    Example:
        >>> print(answer_error(401, {}, '{"error": {"message": "no such key"}}'))
        401 Unauthorized: no such key. Check the key: api_key, or LAZYRAG_API_KEY or OPENAI_API_KEY in the environment.
    """
    told, code = _message(body, hidden)
    if 300 <= status < 400:
        told = f"it points to {hidden(headers.get('location', 'nowhere'))!r:.200}, and redirects are not followed"
    again = status in _AGAIN or (status >= 500 and status not in _NEVER)
    return EndpointError(
        f"{_named(status)}: {sentence(told)} {_advice(status)}".rstrip(),
        status=status,
        retries=ALWAYS if again and code not in _NEVER_CODES else 0,
        wait_s=retry_after_s(headers),
        refused=status in _OF_THE_TEXTS,
        exhausted=code in _NEVER_CODES,
    )


def parsed(body: bytes | str, hidden: Callable[[str], str] = str) -> Any:
    """The JSON of a successful answer, or of an event in a stream.

    Args:
        body: What came.
        hidden: Takes secrets out of a text.

    Raises:
        EndpointError: If it is no JSON, or holds an error.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as exc:
        msg = f"the answer is not JSON: {beginning(body, hidden)!r}. Check base_url, and what stands in between."
        raise EndpointError(msg, retries=1) from exc  # once: it may have been cut
    error = value.get("error") if isinstance(value, dict) else None
    if not error:
        return value
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int) and 400 <= code < 600:
        raise answer_error(code, {}, body, hidden)
    msg = f"the answer is an error: {sentence(_message(body, hidden)[0])}"
    raise EndpointError(msg)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long an answer asks to wait, in seconds, at least 0; None where it does not.

    Source:
        RFC 9110, 10.2.3: seconds or a date, which is compared with the answer's own, as clocks differ. The header in
        milliseconds is OpenAI's.

    Example:
        >>> retry_after_s({"retry-after": "2"}), retry_after_s({"retry-after-ms": "150"}), retry_after_s({})
        (2.0, 0.15, None)
    """
    in_ms, after = _number(headers.get("retry-after-ms")), headers.get("retry-after")
    if in_ms is not None:
        return max(0.0, in_ms / 1000)
    seconds = _number(after)
    if seconds is None and (until := _date(after)) is not None:
        now = _date(headers.get("date"))
        seconds = until - (time.time() if now is None else now)
    return None if seconds is None else max(0.0, seconds)


def beginning(body: bytes | str, hidden: Callable[[str], str] = str) -> str:
    """The beginning of a body, on one line."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    line = " ".join(hidden(text).split())  # hidden first: a secret that is cut in two would not be found
    return line if len(line) <= _SHOWN else line[:_SHOWN] + " ..."


def _message(body: bytes | str, hidden: Callable[[str], str]) -> tuple[str, object]:
    """What an answer says went wrong, in the shapes that servers use, and its code."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return beginning(body, hidden) or "no explanation", None
    error = value.get("error", value) if isinstance(value, dict) else value
    if not isinstance(error, dict):
        return beginning(str(error), hidden), None
    told = next((error[name] for name in ("message", "detail", "msg") if error.get(name)), error)
    return beginning(told if isinstance(told, str) else json.dumps(told), hidden), error.get("code")


def _named(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _advice(status: int) -> str:
    return "Set base_url to where the endpoint is." if 300 <= status < 400 else _ADVICE.get(status, "")


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


class RateLimit:
    """At most n starts in any 60 seconds, in the order they were asked for.

    Of the last n starts the oldest must be 60 seconds ago before the next may follow. So the first n start at once, and
    no stretch of 60 seconds, wherever it begins, holds more than n; a bucket of tokens would let up to 2 n through. It
    belongs to one event loop, and neither knows nor limits what other processes do.

    Args:
        per_minute: n, at least 1; as many times are kept.
        clock: Seconds that never run backwards.
        sleep: Waits so many of them; at least as long, or it is asked again.

    Raises:
        ConfigError: If n is out of its range.

    Example:
        >>> times = []
        >>> async def pass_time(seconds):
        ...     times.append(seconds)
        >>> limit = RateLimit(2, clock=lambda: sum(times), sleep=pass_time)
        >>> async def five():
        ...     for _ in range(5):
        ...         await limit.wait()
        >>> asyncio.run(five())
        >>> times
        [60.0, 60.0]
    """

    def __init__(
        self,
        per_minute: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.per_minute = whole_number("requests_per_minute", per_minute, 1)
        self._clock = clock
        self._sleep = sleep
        self._starts: deque[float] = deque(maxlen=self.per_minute)
        self._turn = asyncio.Lock()

    async def wait(self) -> None:
        """Wait until a start is allowed, and count it; whoever is cancelled while waiting takes nobody's place."""
        async with self._turn:
            while (pause := self._pause()) > 0:
                await self._sleep(pause)
            self._starts.append(self._clock())

    def _pause(self) -> float:
        if len(self._starts) < self.per_minute:
            return 0.0
        return self._starts[0] + WINDOW_S - self._clock()


KEY_VARIABLES = ("LAZYRAG_API_KEY", "OPENAI_API_KEY")

_LONG_ENOUGH = 6  # characters of a secret that stands for itself wherever it is found


class EndpointOptions(TypedDict, total=False):
    """The keywords of `Endpoint`, for those that make one."""

    timeout_s: float
    connect_timeout_s: float
    deadline_s: float
    retries: int
    concurrency: int
    requests_per_minute: int | None
    headers: Mapping[str, str] | None
    trust_env: bool


@dataclass(frozen=True, slots=True)
class Secrets:
    """Headers that no message shows."""

    headers: Mapping[str, str] = field(repr=False)

    def hidden(self, text: str) -> str:
        """The text without them: some servers repeat the key that they refuse."""
        for secret in sorted(self._parts(), key=len, reverse=True):
            # A short one only as a word of its own: hiding its letters everywhere would garble messages.
            word = re.escape(secret) if len(secret) >= _LONG_ENOUGH else rf"(?<!\w){re.escape(secret)}(?!\w)"
            text = re.sub(word, "***", text)
        return text

    def _parts(self) -> set[str]:
        """The headers' values, and what stands in them between spaces and marks: a server may repeat a part."""
        parts = {part for value in self.headers.values() for part in (value, *re.split(r"[\s;,=]+", value))}
        return {part for part in parts if part and part.lower() not in ("bearer", "basic")}


def checked_url(base_url: Any) -> str:
    """A base URL without its last slash; a message shows nothing of it that may be secret."""
    needed = 'give one such as "http://localhost:8000/v1", without credentials, query or fragment'
    if not isinstance(base_url, str):
        msg = f"base_url is {type(base_url).__name__}; {needed}."
        raise ConfigError(msg)
    url = base_url.strip().rstrip("/")
    shown = url.partition("?")[0].partition("#")[0].rpartition("@")[2]
    try:
        parts = urllib.parse.urlsplit(url)
        fine = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        fine = False
    if not fine or "@" in parts.netloc or any(mark in url for mark in "?# \t\n\\"):
        msg = f"base_url is {shown!r:.200} (credentials and query not shown); {needed}."
        raise ConfigError(msg)
    return url


def checked_text(what: str, value: Any, *, blank: bool = False) -> str:
    """A text, which is not blank unless it may be.

    Raises:
        ConfigError: If it is something else.
    """
    if not isinstance(value, str) or not (blank or value.strip()):
        msg = f"{what} is {value!r:.80}; give a text" + ("." if blank else " that is not blank.")
        raise ConfigError(msg)
    return value


def seconds(what: str, value: Any) -> float:
    """A length of time, above 0 and finite.

    Raises:
        ConfigError: If it is something else.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        msg = f"{what} is {value!r}; give a number of seconds above 0."
        raise ConfigError(msg)
    return float(value)


def secret_headers(api_key: Any, headers: Mapping[str, str] | None) -> Secrets:
    """The headers that are sent with each request.

    Args:
        api_key: The key; None takes the first of `KEY_VARIABLES` that the environment has; "" for none.
        headers: Further ones; an Authorization among them takes the place of the key.

    Raises:
        ConfigError: If one cannot be sent; the message shows no value.
    """
    if api_key is None:
        api_key = next((key for name in KEY_VARIABLES if (key := os.environ.get(name))), "")
    if not isinstance(api_key, str):
        msg = f"api_key is of type {type(api_key).__name__}; give a text, or None."
        raise ConfigError(msg)
    if headers is not None and not isinstance(headers, Mapping):
        msg = f"headers is of type {type(headers).__name__}; give a mapping of names to values."
        raise ConfigError(msg)
    further = dict(headers or {})
    key = api_key.strip()  # a file's last line ends
    if key and not any(str(name).lower() == "authorization" for name in further):
        _check_header("api_key", key)
        further["Authorization"] = f"Bearer {key}"
    for name, value in further.items():
        _check_header(f"headers[{name!r:.80}]", name, value)
    return Secrets(further)


def _check_header(what: str, *texts: Any) -> None:
    if not all(isinstance(text, str) and text.isascii() and text.isprintable() for text in texts):
        msg = f"{what} holds something that cannot be sent (not shown); give ASCII characters, on one line."
        raise ConfigError(msg)


def encoded(body: Mapping[str, Any]) -> bytes:
    """What is to be sent, as JSON.

    Raises:
        EndpointError: If it is none, for half of a surrogate pair in a text, or an object among the options.
    """
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as exc:
        msg = f"the request cannot be written as JSON: {exc}."
        raise EndpointError(msg, refused=True) from exc


_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventDecoder:
    r"""Turns a stream of bytes, cut anywhere, into the data of its events.

    Lines end at LF, CR or CR LF and nowhere else: the other line ends of Unicode may stand inside of JSON. Comments,
    event names, ids and events without data are passed over.

    Source:
        WHATWG HTML, 9.2.6, Interpreting an event stream.

    Example:
        >>> decoder = EventDecoder()
        >>> decoder.feed(b": hello\n\ndata: gr"), decoder.feed("ün\ndata:tea\n\nda".encode())
        ([], ['grün\ntea'])
    """

    def __init__(self) -> None:
        self._line = bytearray()  # what has come of a line without its end
        self._data: list[str] = []
        self._first = True

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that this chunk ends, in order."""
        self._line += chunk
        if not (b"\n" in chunk or self._line.rfind(b"\r", -len(chunk) - 1) >= 0):
            return []
        # A CR at the end may be half of a CR LF: it waits for the next chunk.
        complete, half = (self._line[:-1], b"\r") if self._line.endswith(b"\r") else (self._line, b"")
        *lines, rest = _LINE_END.split(complete)
        self._line = bytearray(rest + half)
        return [data for line in lines if (data := self._read(bytes(line))) is not None]

    def end(self) -> list[str]:
        """The data of a last event that lacks its empty line: the stream was cut, or a server that leaves it out."""
        lines = [*_LINE_END.split(bytes(self._line)), b""]
        self._line.clear()
        return [data for line in lines if (data := self._read(line)) is not None]

    def _read(self, line: bytes) -> str | None:
        if self._first:
            line, self._first = line.removeprefix(_BYTE_ORDER_MARK), False
        if not line:
            data, self._data = self._data, []
            return "\n".join(data) if data else None
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
        return None


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
