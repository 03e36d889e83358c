"""What sources ask servers with: redirects and repetitions within bounds, credentials for one origin only."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, TypedDict

from lazyrag._version import __version__
from lazyrag.errors import ConfigError, UnknownKeywordError, known_names
from lazyrag.sources.addresses import AddressRule, WebUrl, web_url
from lazyrag.sources.exchange import Answer, Limits, exchange
from lazyrag.sources.faults import FetchError
from lazyrag.validation import keyword_names, whole_number

USER_AGENT = f"lazyrag/{__version__}"

_REDIRECTS = frozenset([301, 302, 303, 307, 308])
_OF_THE_CONNECTION = frozenset("host content-length transfer-encoding connection accept-encoding te upgrade".split())
_ADVICE = {
    401: " Check the token or the headers.",
    403: " Check whether the token or the headers may read this.",
    404: " Check the URL.",
    429: " It asks for fewer requests; run it again later.",
}


class WebOptions(TypedDict, total=False):
    """The keywords that every source on the web takes; `WebClient` says what they mean."""

    headers: Mapping[str, str] | None
    user_agent: str
    allow_private: bool
    allow_hosts: Sequence[str]
    timeout_s: float
    deadline_s: float
    max_bytes: int
    max_redirects: int
    retries: int
    backoff_s: float


class WebClient:
    """Asks servers for a source, within limits. No proxy is asked: the address that was checked is the one asked.

    Args:
        origin: A URL of the server that ``headers`` are for; no other one gets them, on redirects neither.
        headers: What to send with each request, such as ``{"Authorization": "Bearer ..."}``; shown in no message.
        user_agent: What it says that it is.
        allow_private: Also ask private networks and this machine; see `lazyrag.sources.addresses.AddressRule`.
        allow_hosts: Hosts that may be asked wherever they lie, as in ``["wiki.example:8080"]``.
        timeout_s: Seconds without a byte.
        deadline_s: Seconds for one request, and the longest wait before it is repeated.
        max_bytes: Bytes of one answer, unpacked.
        max_redirects: How many redirects are followed, one after the other.
        retries: How often a request is repeated that failed for a reason that passes.
        backoff_s: Seconds before the first repetition, twice as many before the next.

    Raises:
        ConfigError: If a value is out of its range; no header's value is shown.

    Example:
        >>> WebClient(web_url("https://example.com/"), headers={"Authorization": "Bearer secret"})
        WebClient('https://example.com')
    """

    def __init__(
        self,
        origin: WebUrl,
        *,
        headers: Mapping[str, str] | None = None,
        user_agent: str = USER_AGENT,
        allow_private: bool = False,
        allow_hosts: Sequence[str] = (),
        timeout_s: float = 20.0,
        deadline_s: float = 60.0,
        max_bytes: int = 20_000_000,
        max_redirects: int = 5,
        retries: int = 3,
        backoff_s: float = 0.5,
    ) -> None:
        self._origin = origin
        self._secret = checked_headers(headers)
        _check_header("user_agent", "User-Agent", user_agent)
        self.user_agent = user_agent
        self._rule = AddressRule(allow_private, tuple(allow_hosts) if isinstance(allow_hosts, list) else allow_hosts)  # type: ignore[arg-type]
        self._limits = Limits(
            checked_seconds("timeout_s", timeout_s),
            checked_seconds("deadline_s", deadline_s),
            whole_number("max_bytes", max_bytes, 1),
        )
        self._max_redirects = whole_number("max_redirects", max_redirects, 0)
        self._retries = whole_number("retries", retries, 0, 100)
        self._backoff_s = checked_seconds("backoff_s", backoff_s)

    def __repr__(self) -> str:
        scheme, host, port = self._origin.origin
        return f"WebClient({str(WebUrl(scheme, host, port, ''))!r})"

    def get(
        self,
        url: WebUrl,
        *,
        accept: str = "*/*",
        further: Mapping[str, str] | None = None,
        on_redirect: Callable[[WebUrl], None] | None = None,
    ) -> Answer:
        """Ask for a URL, following redirects.

        Args:
            url: The URL.
            accept: The types that are wanted.
            further: Headers that are no secret, for this request.
            on_redirect: Called with each URL that a redirect leads to, before it is asked; may raise `FetchError`.

        Returns:
            An answer with the status 200 to 299; its URL is the one that was asked last.

        Raises:
            FetchError: If there is none.
        """
        return self._repeated(lambda: self._followed(url, {"Accept": accept, **(further or {})}, on_redirect))

    def post(self, url: WebUrl, body: Any, *, further: Mapping[str, str] | None = None) -> Answer:
        """Send JSON to a URL that changes nothing by it, so that it may be repeated; a redirect is an error.

        Raises:
            FetchError: If there is no answer with the status 200 to 299.
        """
        headers = {"Accept": "application/json", "Content-Type": "application/json", **(further or {})}
        data = json.dumps(body, allow_nan=False).encode()
        return self._repeated(lambda: self._checked(self._once("POST", url, headers, data)))

    def hide(self, text: str) -> str:
        """A text without the values of the secret headers: some servers repeat what they refuse."""
        parts = {part for value in self._secret.values() for part in (value, *value.split()) if len(part) >= 4}
        for secret in sorted(parts, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _followed(
        self, url: WebUrl, headers: Mapping[str, str], on_redirect: Callable[[WebUrl], None] | None
    ) -> Answer:
        seen = [url]
        while True:
            answer = self._once("GET", seen[-1], headers, None)
            if answer.status not in _REDIRECTS or not answer.headers.get("location"):
                return self._checked(answer)
            try:
                target = web_url(answer.headers["location"], seen[-1])
            except ConfigError as exc:
                msg = f"{seen[-1].shown} leads to what may not be asked. {exc}"
                raise FetchError(msg, url=url.shown, status=answer.status) from exc
            if target in seen or len(seen) > self._max_redirects:
                why = "leads in a circle" if target in seen else f"leads on more than {self._max_redirects} times"
                msg = f"{url.shown} {why}, the last time to {target.shown}."
                raise FetchError(msg, url=url.shown, status=answer.status)
            if on_redirect is not None:
                on_redirect(target)
            seen.append(target)

    def _once(self, method: str, url: WebUrl, headers: Mapping[str, str], body: bytes | None) -> Answer:
        secret = self._secret if url.origin == self._origin.origin else {}
        sent = {"User-Agent": self.user_agent, "Accept-Encoding": "gzip, deflate", **headers, **secret}
        return exchange(method, url, sent, body, rule=self._rule, limits=self._limits)

    def _checked(self, answer: Answer) -> Answer:
        if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            return answer
        said = self.hide(" ".join(answer.body[:2000].decode("utf-8", "replace").split()))[:200]
        told = f" ({said})" if said and answer.content_type == "application/json" else ""
        msg = f"{answer.url.shown} answers {answer.status}{told}.{_ADVICE.get(answer.status, '')}"
        raise FetchError(
            msg,
            url=answer.url.shown,
            status=answer.status,
            transient=answer.is_transient,
            retry_after_s=answer.retry_after_s,
        )

    def _repeated(self, ask: Callable[[], Answer]) -> Answer:
        attempt = 0
        while True:
            try:
                return ask()
            except FetchError as exc:
                wait = self._backoff_s * 2**attempt * random.uniform(0.5, 1.0)  # noqa: S311  no secret
                if exc.retry_after_s is not None:
                    wait = exc.retry_after_s
                if not exc.transient or attempt == self._retries or wait > self._limits.deadline_s:
                    raise
            time.sleep(wait)
            attempt += 1


def make_client(
    source: Callable[..., Any], origin: WebUrl, options: WebOptions, *, further: Mapping[str, str] | None = None
) -> WebClient:
    """A client from a source's keywords.

    Args:
        source: What takes them beside keywords of its own: a class.
        origin: The server that the headers are for.
        options: The keywords.
        further: Headers of the source's own; the user's come before them.

    Raises:
        UnknownKeywordError: If one is unknown.
        ConfigError: If a value is out of its range.
    """
    for name in options:
        if name not in WebOptions.__annotations__:
            known = {*keyword_names(source, skip=0)[0], *WebOptions.__annotations__}
            raise UnknownKeywordError(f"{source.__name__} takes no argument {name!r}. {known_names(name, known)}")
    given = dict(options)
    own = checked_headers(options.get("headers"))
    taken = {name.lower() for name in own}
    given["headers"] = {**{name: value for name, value in (further or {}).items() if name.lower() not in taken}, **own}
    return WebClient(origin, **given)  # type: ignore[arg-type]


def checked_headers(headers: Any) -> dict[str, str]:
    """Headers that can be sent.

    Raises:
        ConfigError: If one cannot; its value is not shown.
    """
    if headers is not None and not isinstance(headers, Mapping):
        msg = f"headers is of type {type(headers).__name__}; give a mapping of names to values."
        raise ConfigError(msg)
    for name, value in (headers or {}).items():
        _check_header(f"headers[{name!r:.80}]", name, value)
        if name.lower() in _OF_THE_CONNECTION:
            msg = f"headers has {name!r}, which the connection sets by itself. Leave it out."
            raise ConfigError(msg)
    return dict(headers or {})


def _check_header(what: str, name: Any, value: Any) -> None:
    fine = all(isinstance(text, str) and text.isascii() and text.isprintable() for text in (name, value))
    if not fine or not name.strip() or not set(name).isdisjoint(' :\t()<>@,;\\"/[]?={}'):
        msg = f"{what} holds something that cannot be sent (not shown); give ASCII characters, on one line."
        raise ConfigError(msg)


def checked_seconds(what: str, value: Any) -> float:
    """A number of seconds above 0.

    Raises:
        ConfigError: If it is something else.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        msg = f"{what} is {value!r:.80}; give a number of seconds above 0."
        raise ConfigError(msg)
    return float(value)
