"""`connect`: use a set of a service (`lazyrag serve`) from another program, over its HTTP API.

`Client` and `AsyncClient` have the same methods: each sends a `Call`, a request with a function
that reads the answer, which a method of `_Calls` makes.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import mimetypes
import uuid
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, cast
from urllib.parse import quote, urlsplit

import lazyrag.errors as all_errors
from lazyrag.data.segment import LAZY_ROOT_NAME, root_uid
from lazyrag.errors import (
    AccessError,
    ConfigError,
    LazyRAGError,
    StoreConnectionError,
    StoreError,
    known_names,
    optional_package,
)
from lazyrag.types import Closable, JsonMapping, JsonObject
from lazyrag.validation import require, validate_text, without_none

if TYPE_CHECKING:
    from typing import Self

    import httpx2

P = ParamSpec("P")
R = TypeVar("R")
Files: TypeAlias = Iterable[str | Path] | Mapping[str, str | Path | bytes]
"""Paths, or names with paths or bytes."""

Filters: TypeAlias = JsonMapping
"""A filter as JSON, such as ``{"file_type": [".pdf"]}``."""

TIMEOUT_S = 60.0
PAGE = 1_000  # documents in a request


class Record(dict[str, Any]):
    """An object of the service: a dict whose entries are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"The record has no {name!r}. {known_names(name, list(self))}")


@dataclass(frozen=True)
class Call(Generic[R]):
    """A request to a set, with a function that reads its answer.

    Args:
        method: Of HTTP.
        path: Below the set.
        decode: Makes the result of the answer's JSON.
        params: The query of the URL; None leaves a parameter out.
        body: The JSON of the request.
        files: Files of a multipart request.
    """

    method: str
    path: str
    decode: Callable[[Any], R] = lambda answer: answer
    params: JsonMapping = field(default_factory=dict)
    body: JsonMapping | None = None
    files: Sequence[tuple[str, tuple[str, bytes, str]]] = ()


def as_error(status: int, answer: Any, url: str) -> LazyRAGError:
    """The exception for a problem (RFC 9457) that a service returned, of the same class as
    there.
    """
    problem = answer if isinstance(answer, dict) else {}
    parts = [problem.get("detail"), problem.get("remedy")]
    text = " ".join(str(part) for part in parts if part)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        text = problem.get("detail") or f"The service refuses the request ({status})."
        return AccessError(
            f"{text} Pass a token that allows it: token='lrg_...'. (service at {url})"
        )
    kind = getattr(all_errors, str(problem.get("error")), None)
    if isinstance(kind, type) and issubclass(kind, LazyRAGError):
        return kind(text)
    if not text:
        return StoreConnectionError(
            f"{url} is not a lazyrag service: it responds with status {status}."
        )
    return StoreError(text) if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ConfigError(text)


def files_of(files: Files) -> list[tuple[str, tuple[str, bytes, str]]]:
    """The parts of a multipart request for paths, or for names with paths or bytes."""
    is_valid = not isinstance(files, (str, bytes, Path))
    require(is_valid, "files", files, "a list of paths, or a mapping of names to paths or bytes")
    pairs = (
        files.items() if isinstance(files, Mapping) else [(Path(path).name, path) for path in files]
    )
    parts = []
    for name, content in pairs:
        data = content if isinstance(content, bytes) else Path(content).read_bytes()
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        parts.append(("file", (name, data, kind)))
    return parts


class _Calls:
    """The methods of the clients, each as the request that it sends."""

    def search(
        self, /, query: str, *, topk: int = 6, filters: Filters | None = None, **options: Any
    ) -> Call[list[Record]]:
        """Search a node group.

        Args:
            query: The query.
            topk: Number of hits, at least 1.
            filters: A filter as JSON, such as ``{"file_type": [".pdf"]}``.
            options: ``group``, ``retriever``, ``embed_keys``, ``target``: see docs/service.md.
        """
        body = {"query": query, "topk": topk, "filters": filters, **options}
        return Call("POST", "search", lambda answer: answer["hits"], body=body)

    def answer(
        self, /, question: str, *, topk: int = 6, filters: Filters | None = None, **options: Any
    ) -> Call[Record]:
        """Answer a question: ``text`` with ``citations``, and the ``hits`` that it was made from.

        Args:
            question: The question.
            topk: Number of passages, at least 1.
            filters: As for `search`.
            options: As for `search`, and ``history``: earlier turns.
        """
        body = {"question": question, "topk": topk, "filters": filters, **options}
        return Call("POST", "answers", body=body)

    def grep(
        self, text: str, *, filters: Filters | None = None, limit: int = 100
    ) -> Call[list[Record]]:
        """Find a literal text: ``path``, ``span``, ``line`` and ``location`` of each match."""
        body = {"text": text, "filters": filters, "limit": limit}
        return Call("POST", "grep", lambda answer: answer["matches"], body=body)

    def read(self, document: str) -> Call[str]:
        """The text of a document."""
        path = f"nodes/{root_uid(validate_text('document', document))}"
        return Call("GET", path, lambda answer: answer["text"], {"group": LAZY_ROOT_NAME})

    def related(self, uid: str, *, limit: int = 10) -> Call[list[Record]]:
        """The nodes that are most similar to a node."""
        path = f"nodes/{quote(validate_text('uid', uid))}/related"
        return Call("GET", path, lambda answer: answer["nodes"], {"limit": limit})

    def versions(self, document: str) -> Call[list[Record]]:
        """The stored versions of a document."""
        path = f"versions/{quote(validate_text('document', document))}"
        return Call("GET", path, lambda answer: answer["versions"])

    def diff(self, document: str, before: int, after: int) -> Call[Record]:
        """Compare two versions of a document, given their numbers."""
        path = f"diffs/{quote(validate_text('document', document))}"
        return Call("GET", path, params={"before": before, "after": after})

    def status(self) -> Call[Record]:
        """What is built, and what failed."""
        return Call("GET", "status")

    def upload(self, files: Files) -> Call[Record]:
        """Send files; ``job`` of the result ingests them.

        Args:
            files: Paths, or names with paths or bytes.
        """
        return Call("POST", "documents", files=files_of(files))

    def jobs(self, state: str | None = None) -> Call[list[Record]]:
        """The latest jobs, perhaps of one state, such as ``"WORKING"``."""
        return Call("GET", "jobs", lambda answer: answer["jobs"], {"state": state})

    def job(self, job: str) -> Call[Record]:
        """The state of a job."""
        return Call("GET", f"jobs/{quote(validate_text('job', job))}")


def _documents(after: str | None, filters: Filters | None) -> Call[Record]:
    where = None if filters is None else json.dumps(filters)
    return Call("GET", "documents", params={"after": after, "limit": PAGE, "where": where})


def _sending(
    make_call: Callable[Concatenate[_Calls, P], Call[R]],
) -> Callable[Concatenate[Client, P], R]:
    """Make a method that sends a call, with the signature of the function that makes it."""

    @functools.wraps(make_call)
    def send(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._send(make_call(self, *args, **kwargs))

    _show_result(send)
    return cast("Callable[Concatenate[Client, P], R]", send)


def _awaiting(
    make_call: Callable[Concatenate[_Calls, P], Call[R]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, R]]:
    """`_sending` as a coroutine; files are read in a thread."""

    @functools.wraps(make_call)
    async def send(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await self._send(await asyncio.to_thread(make_call, self, *args, **kwargs))

    _show_result(send)
    return cast("Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, R]]", send)


def _show_result(method: Any) -> None:
    """Have ``help()`` show what a method returns, not the call that it sends."""
    signature = inspect.signature(method)
    result = signature.return_annotation.removeprefix("Call[").removesuffix("]")
    method.__signature__ = signature.replace(return_annotation=result)


class _Service:
    """Where the set of a client is, and how its requests and answers are written.

    Args:
        url: Of the service.
        token: An access token; None where the service needs none.
        name: Of the set; None for the only one that the token may read.
    """

    def __init__(self, url: str, token: str | None, name: str | None) -> None:
        parts = urlsplit(validate_text("url", url))
        is_http = parts.scheme in ("http", "https") and parts.hostname is not None
        require(is_http, "url", url, "the address of a service, such as 'http://127.0.0.1:8400'")
        self.url = url.rstrip("/")
        self.name = None if name is None else validate_text("name", name)
        self.headers: dict[str, str] = {}
        if token is not None:
            self.headers["Authorization"] = f"Bearer {validate_text('token', token)}"

    def open(self, kind: str) -> Any:
        """Return a new client of httpx2: ``"Client"`` or ``"AsyncClient"``.

        Raises:
            MissingDependencyError: If httpx2 is not installed.
        """
        with optional_package("lazyrag.connect", "openai"):
            import httpx2
        return getattr(httpx2, kind)(timeout=TIMEOUT_S)

    def request(self, call: Call[Any], name: str | None) -> JsonObject:
        """Arguments of httpx2 for a call to a set; without a name, for the list of sets."""
        path = "sets" if name is None else f"sets/{quote(name, safe='')}/{call.path}"
        request: JsonObject = {
            "method": call.method,
            "url": f"{self.url}/api/v1/{path}",
            "headers": {**self.headers, "Idempotency-Key": uuid.uuid4().hex},
            "params": without_none(call.params),
        }
        if call.files:
            request["files"] = call.files
        elif call.body is not None:
            request["json"] = without_none(call.body)
        return request

    def read(self, response: Any) -> Any:
        """The JSON of an answer, with objects as `Record`.

        Raises:
            LazyRAGError: The error that the service reports, of its class.
        """
        try:
            answer = json.loads(response.content, object_hook=Record)
        except ValueError:
            raise as_error(response.status_code, None, self.url) from None
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            raise as_error(response.status_code, answer, self.url)
        return answer

    def choose(self, answer: Any) -> str:
        """The name of the only set in the service's list.

        Raises:
            ConfigError: If there are none or several.
        """
        names = [entry["name"] for entry in answer["sets"]]
        if len(names) != 1:
            raise ConfigError(
                f"name must be a set of {self.url}; got None. {known_names('', names)}"
            )
        return str(names[0])

    def as_connection_error(self, exc: Exception) -> StoreConnectionError:
        """The error of a service that does not answer."""
        reason = str(exc) or type(exc).__name__
        advice = "Check the address, and that `lazyrag serve` runs."
        return StoreConnectionError(
            f"The service at {self.url} does not answer: {reason}. {advice}"
        )


class Client(Closable):
    """A set of a service. Threads may share it; `connect` makes one.

    Results are plain objects of the HTTP API: dicts whose entries are attributes, too, such as
    ``hit.path`` and ``hit["score"]``. All methods raise `AccessError` for a token that does not
    allow the call, `StoreConnectionError` if the service does not answer, and the error that the
    service reports, of its class.

    Args:
        url: Of the service: ``"http://127.0.0.1:8400"``.
        token: An access token; None where the service needs none.
        name: Of the set; None for the only one.

    Example:
        >>> Client("http://127.0.0.1:8400", name="notes")
        <Client: 'notes' at http://127.0.0.1:8400>
    """

    def __init__(self, url: str, token: str | None = None, name: str | None = None) -> None:
        self._service = _Service(url, token, name)
        self._http: httpx2.Client = self._service.open("Client")

    search = _sending(_Calls.search)
    answer = _sending(_Calls.answer)
    grep = _sending(_Calls.grep)
    read = _sending(_Calls.read)
    related = _sending(_Calls.related)
    versions = _sending(_Calls.versions)
    diff = _sending(_Calls.diff)
    status = _sending(_Calls.status)
    upload = _sending(_Calls.upload)
    jobs = _sending(_Calls.jobs)
    job = _sending(_Calls.job)

    def documents(self, filters: Filters | None = None) -> Iterator[Record]:
        """List the documents in order of their ids, page by page."""
        after = None
        while True:
            page = self._send(_documents(after, filters))
            yield from page.documents
            after = page.next
            if after is None:
                return

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._http.close()

    def _send(self, call: Call[R]) -> R:
        if self._service.name is None:
            answer = self._exchange(Call("GET", ""), None)
            self._service.name = self._service.choose(answer)
        return call.decode(self._exchange(call, self._service.name))

    def _exchange(self, call: Call[Any], name: str | None) -> Any:
        import httpx2

        try:
            response = self._http.request(**self._service.request(call, name))
        except httpx2.HTTPError as exc:
            raise self._service.as_connection_error(exc) from exc
        return self._service.read(response)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._service.name!r} at {self._service.url}>"


class AsyncClient:
    """`Client` for asynchronous programs, with the same methods.

    Example:
        >>> AsyncClient("http://127.0.0.1:8400", name="notes")
        <AsyncClient: 'notes' at http://127.0.0.1:8400>
    """

    def __init__(self, url: str, token: str | None = None, name: str | None = None) -> None:
        self._service = _Service(url, token, name)
        self._http: httpx2.AsyncClient = self._service.open("AsyncClient")

    search = _awaiting(_Calls.search)
    answer = _awaiting(_Calls.answer)
    grep = _awaiting(_Calls.grep)
    read = _awaiting(_Calls.read)
    related = _awaiting(_Calls.related)
    versions = _awaiting(_Calls.versions)
    diff = _awaiting(_Calls.diff)
    status = _awaiting(_Calls.status)
    upload = _awaiting(_Calls.upload)
    jobs = _awaiting(_Calls.jobs)
    job = _awaiting(_Calls.job)

    async def documents(self, filters: Filters | None = None) -> AsyncIterator[Record]:
        """See `Client.documents`."""
        after = None
        while True:
            page = await self._send(_documents(after, filters))
            for document in page.documents:
                yield document
            after = page.next
            if after is None:
                return

    async def close(self) -> None:
        """See `Client.close`."""
        await self._http.aclose()

    async def _send(self, call: Call[R]) -> R:
        if self._service.name is None:
            answer = await self._exchange(Call("GET", ""), None)
            self._service.name = self._service.choose(answer)
        return call.decode(await self._exchange(call, self._service.name))

    async def _exchange(self, call: Call[Any], name: str | None) -> Any:
        import httpx2

        try:
            response = await self._http.request(**self._service.request(call, name))
        except httpx2.HTTPError as exc:
            raise self._service.as_connection_error(exc) from exc
        return self._service.read(response)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    __repr__ = Client.__repr__


def connect(url: str, token: str | None = None, name: str | None = None) -> Client:
    """Connect to a set of a service; `AsyncClient` has the same arguments.

    Args:
        url: Of the service: ``"http://127.0.0.1:8400"``.
        token: An access token; None where the service needs none.
        name: Of the set; None for the only one.

    Raises:
        ConfigError: If the URL is not an HTTP address.
        MissingDependencyError: If httpx2 is not installed.

    Example:
        >>> connect("http://127.0.0.1:8400", name="notes")
        <Client: 'notes' at http://127.0.0.1:8400>
    """
    return Client(url, token, name)
