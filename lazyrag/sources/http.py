"""HTTP for sources: URLs, the SSRF guard and the client."""

from __future__ import annotations

import email.message
import email.utils
import functools
import gzip
import http.client
import io
import ipaddress
import json
import random
import re
import socket
import ssl
import time
import unicodedata
import urllib.parse
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypedDict

from lazyrag._version import __version__
from lazyrag.errors import ConfigError
from lazyrag.sources.base import (
    FetchError,
)
from lazyrag.types import AnyCallable, Headers
from lazyrag.validation import (
    check_keywords,
    keyword_names,
    public_url,
    require,
    validate_boolean,
    validate_integer,
    validate_seconds,
    validate_texts,
)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

PORTS = {"http": 80, "https": 443}

_MAX_URL_LENGTH = 8_000
_BAD_CHARACTER = re.compile(r"[\x00-\x20\x7f\\]")
_HOST = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?")
_ENDS_IN_A_NUMBER = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)\.?$")
_ESCAPE = re.compile(r"%([0-9a-fA-F]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_IN_PATHS = "/:@!$&'()*+,;=-._~%"
_IN_QUERIES = _IN_PATHS + "?[]"
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_SHARED = ipaddress.IPv4Network("100.64.0.0/10")  # of providers; neither private nor global
_METADATA = frozenset(
    map(
        ipaddress.ip_address,
        (
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
        ),
    )
)
"""Metadata services of clouds, which hold secrets. Not all of these addresses are private."""


@dataclass(frozen=True, slots=True)
class WebUrl:
    """A parsed URL of http or https, in its canonical form.

    Args:
        scheme: ``http`` or ``https``.
        host: In lower case, as ASCII; an IPv6 address without brackets.
        port: Explicit or default.
        target: Path and query, as they are sent.
    """

    scheme: str
    host: str
    port: int
    target: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.target}"

    @property
    def netloc(self) -> str:
        """Host and port as in a URL, without a default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: the scope of credentials."""
        return self.scheme, self.host, self.port

    @property
    def shown(self) -> str:
        """The URL without its query, which may hold keys; for messages."""
        path, mark, _ = self.target.partition("?")
        return f"{self.scheme}://{self.netloc}{path}" + ("?..." if mark else "")

    def error(self, problem: str, **details: Any) -> FetchError:
        """An error about the URL; see `FetchError` for the details."""
        return FetchError(f"{self.shown} {problem}", url=self.shown, **details)


def web_url(url: Any, base: WebUrl | None = None) -> WebUrl:
    """Parse a URL into its canonical form: URLs of one page by RFC 3986 are equal.

    Scheme and host become lower case; a default port, dots in the path, the fragment and needless
    escapes are removed.

    Args:
        url: A URL of http or https, without user and password.
        base: The URL that a relative one refers to.

    Raises:
        ConfigError: If it is something else. Parts that may be secret are not shown.

    Example:
        >>> str(web_url("HTTPS://Example.com:443/tea/../%7eli?q=绿茶#top"))
        'https://example.com/~li?q=%E7%BB%BF%E8%8C%B6'
    """
    if not isinstance(url, str):
        raise ConfigError(
            f"url must be a text such as 'https://example.com/tea'; got {type(url).__name__}."
        )
    problem = "is too long" if len(url) > _MAX_URL_LENGTH else ""
    url = url.strip(" \t\r\n\f")
    try:
        parts = urllib.parse.urlsplit(urllib.parse.urljoin(str(base), url) if base else url)
        port = parts.port
        host = _host(parts.hostname or "")
    except ValueError as exc:  # its own message may show secrets
        parts = urllib.parse.urlsplit("")
        port = None
        host = ""
        reason = exc if isinstance(exc, _HostError) else "its host or port is malformed"
        problem = problem or f"cannot be read ({reason})"
    if not problem:
        problem = _problem(url, parts, host, port)
    if problem:
        public = public_url(url)
        raise ConfigError(
            f"The URL {public!r:.200} {problem}. Give one of http or https, such as"
            " 'https://example.com/tea'."
        )
    target = _path(parts.path) + (f"?{_quoted(parts.query, _IN_QUERIES)}" if parts.query else "")
    return WebUrl(parts.scheme, host, PORTS[parts.scheme] if port is None else port, target)


class _HostError(ValueError):
    """An invalid host."""


def _problem(url: str, parts: urllib.parse.SplitResult, host: str, port: int | None) -> str:
    if _BAD_CHARACTER.search(url):
        return "holds a space, a backslash or a control character"
    if parts.scheme not in PORTS:
        return f"has the scheme {parts.scheme!r:.20}"
    if "@" in parts.netloc:
        return "holds a user or a password, which is not shown and would not be sent"
    if not host:
        return "has no host"
    return "has the port 0" if port == 0 else ""


def _host(host: str) -> str:
    """The canonical form of a host: a name as ASCII in lower case, or an address."""
    if ":" in host:
        if "%" in host:
            raise _HostError("its address has a zone")
        return str(ipaddress.IPv6Address(host))
    # Like browsers: full-width digits are digits, and the Chinese full stop is a dot.
    folded = (
        unicodedata.normalize("NFKC", urllib.parse.unquote(host)).replace("\u3002", ".").lower()
    )
    if not folded.isascii():
        try:
            folded = folded.encode("idna").decode("ascii")
        except UnicodeError as exc:
            raise _HostError("its host is no name") from exc
    if not folded:
        return ""
    if _ENDS_IN_A_NUMBER.search(folded):
        try:
            return str(ipaddress.IPv4Address(folded.removesuffix(".")))
        except ValueError as exc:
            raise _HostError("its host is a number; addresses have four decimal parts") from exc
    if len(folded) > 253 or not _HOST.fullmatch(folded):
        raise _HostError("its host is no name")
    return folded.removesuffix(".")


def _path(path: str) -> str:
    """A path without dot segments, with canonical escapes. Empty segments stay: servers distinguish
    them.
    """
    resolved: list[str] = []
    segments = _quoted(path, _IN_PATHS).split("/")[1:] or [""]
    for at, segment in enumerate(segments):
        last = at == len(segments) - 1
        if segment == "..":
            del resolved[-1:]
        elif segment != ".":
            resolved.append(segment)
        if last and segment in {".", ".."}:
            resolved.append("")
    return "/" + "/".join(resolved)


def _quoted(text: str, safe: str) -> str:
    quoted = urllib.parse.quote(text, safe=safe, errors="replace")
    # A percent sign that escapes nothing is one itself.
    quoted = re.sub(r"%(?![0-9a-fA-F]{2})", "%25", quoted)
    return _ESCAPE.sub(_escape, quoted)


def _escape(match: re.Match[str]) -> str:
    character = chr(int(match[1], 16))
    return character if character in _UNRESERVED else match[0].upper()


@dataclass(frozen=True, slots=True)
class AddressRule:
    """The SSRF guard: a source may connect to public addresses, and to those its user allows.

    Args:
        allow_private: Allow loopback and private networks. Link-local and multicast addresses and
            metadata services of clouds stay blocked.
        allow_hosts: Names or addresses, with or without ``:port``, that are allowed at any address.

    Raises:
        ConfigError: If an argument is of the wrong kind.

    Example:
        >>> AddressRule(allow_hosts=("127.0.0.1",)).resolved(web_url("http://127.0.0.1/"))
        ['127.0.0.1']
    """

    allow_private: bool = False
    allow_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "allow_private", validate_boolean("allow_private", self.allow_private)
        )
        hosts = tuple(host.lower() for host in validate_texts("allow_hosts", self.allow_hosts))
        object.__setattr__(self, "allow_hosts", hosts)

    def resolved(self, url: WebUrl) -> list[str]:
        """Resolve a URL's host. Connect to these addresses: a second look-up might return others.

        Raises:
            FetchError: If the host has no address, or any of them is blocked.
        """
        try:
            entries = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as exc:
            raise FetchError(
                f"{url.shown}: the host {url.host!r} has no address"
                f" ({getattr(exc, 'strerror', None) or exc}).",
                url=url.shown,
                transient=getattr(exc, "errno", 0) == socket.EAI_AGAIN,
            ) from exc
        addresses = list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in entries))
        if url.host not in self.allow_hosts and f"{url.host}:{url.port}" not in self.allow_hosts:
            for address in addresses:
                self._check(address, url)
        return addresses

    def _check(self, address: str, url: WebUrl) -> None:
        kind = blocked_kind(address, allow_private=self.allow_private)
        if kind:
            raise url.error(
                f"resolves to {address}, which is {kind}. Only public addresses are allowed;"
                f" allow_hosts=[{url.host!r}] opens this host, allow_private=True private networks."
            )


def blocked_kind(address: str, *, allow_private: bool = False) -> str:
    """The kind of a blocked address; "" for an allowed one.

    Args:
        address: IPv4 or IPv6. An IPv6 address that embeds an IPv4 address counts as that one.
        allow_private: Whether loopback and private networks are allowed.

    Example:
        >>> blocked_kind("::ffff:10.0.0.1"), blocked_kind("93.184.215.14")
        ('a private address', '')
        >>> blocked_kind("10.0.0.1", allow_private=True)
        ''
    """
    kinds = (
        _kind(candidate, allow_private)
        for candidate in _with_embedded(ipaddress.ip_address(address))
    )
    return next(filter(None, kinds), "")


def _with_embedded(address: Address) -> Iterator[Address]:
    """An address, and the IPv4 addresses embedded in it."""
    if isinstance(address, ipaddress.IPv4Address):
        yield address
        return
    embedded = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        embedded.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if address.ipv4_mapped is None and address not in _NAT64:  # these two are only another notation
        yield address
    yield from (inner for inner in embedded if inner is not None)


def _kind(address: Address, allow_private: bool) -> str:
    kind = ""
    if address in _METADATA:
        kind = "where a cloud keeps a machine's secrets"
    elif address.is_multicast:
        kind = "a multicast address"
    elif address.is_link_local:
        kind = "a link-local address"
    elif address.is_unspecified:
        kind = "the unspecified address"
    elif address.is_loopback:
        kind = "" if allow_private else "a loopback address"
    elif isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        kind = "a site-local address"
    elif address.is_reserved and address not in _COMPATIBLE:
        kind = "a reserved address"
    elif address.is_private or address in _SHARED:
        kind = "" if allow_private else "a private address"
    elif not address.is_global:
        kind = "a reserved address"
    return kind


_PIECE = 1 << 16
_AGAIN = frozenset([408, 425, 429, 500, 502, 503, 504])


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one request.

    Args:
        timeout_s: Seconds without a byte.
        deadline_s: Seconds in total.
        max_bytes: Size of the response, decompressed.
    """

    timeout_s: float
    deadline_s: float
    max_bytes: int


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response.

    Args:
        url: The requested URL.
        status: HTTP status.
        headers: By name in lower case; repeated ones joined by commas.
        body: Decompressed.
    """

    url: WebUrl
    status: int
    headers: Headers
    body: bytes

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in _AGAIN

    @property
    def retry_after_s(self) -> float | None:
        """The ``Retry-After`` header in seconds."""
        value = self.headers.get("retry-after", "").strip()
        if value.isascii() and value.isdigit():
            return float(value[:12])
        try:
            return (
                max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
                if value
                else None
            )
        except (ValueError, OverflowError):
            return None

    @property
    def content_type(self) -> str:
        """The declared type, in lower case and without parameters; "" for none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str | None:
        """The declared encoding."""
        message = email.message.Message()
        message["content-type"] = " ".join(self.headers.get("content-type", "").split())
        return message.get_content_charset()


def send_request(
    method: str,
    url: WebUrl,
    headers: Headers,
    body: bytes | None,
    *,
    rule: AddressRule,
    limits: Limits,
) -> HttpResponse:
    """Send one request, without redirects, retries or proxies.

    Args:
        method: ``GET`` or ``POST``.
        url: The URL.
        headers: Headers to send.
        body: Body to send.
        rule: Allowed addresses.
        limits: Limits of the request.

    Raises:
        FetchError: If there is no valid response, or it exceeds a limit.
    """
    ends_at = time.monotonic() + limits.deadline_s
    try:
        with _connected(url, rule, limits, ends_at) as connection:
            client = http.client.HTTPConnection(url.netloc)
            client.sock = _TimedSocket(connection, limits.timeout_s, ends_at)
            client.auto_open = 0  # it must not connect by itself
            client.request(
                method, url.target, body, {**headers, "Host": url.netloc, "Connection": "close"}
            )
            response = client.getresponse()
            fields = {
                name.lower(): ", ".join(response.headers.get_all(name, ()))
                for name in response.headers
            }
            return HttpResponse(
                url, response.status, fields, _read(response, fields, url, limits.max_bytes)
            )
    except FetchError:
        raise
    except TimeoutError as exc:
        if time.monotonic() >= ends_at:
            problem = (
                f"was not done after {limits.deadline_s:g} s. Raise deadline_s if it is that slow."
            )
        else:
            problem = f"was silent for {limits.timeout_s:g} s. Raise timeout_s if it is that slow."
        raise url.error(problem, transient=True) from exc
    except ssl.SSLCertVerificationError as exc:
        raise url.error(
            f"cannot be trusted: its certificate is refused ({exc.verify_message})."
        ) from exc
    except (http.client.HTTPException, OSError, zlib.error) as exc:
        described = f"{type(exc).__name__}: {exc}".rstrip(": ")
        transient = isinstance(exc, (OSError, http.client.IncompleteRead)) and not isinstance(
            exc, gzip.BadGzipFile
        )
        raise url.error(f"gave no valid response ({described:.200}).", transient=transient) from exc


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _connected(url: WebUrl, rule: AddressRule, limits: Limits, ends_at: float) -> socket.socket:
    """Connect to the first address that accepts; the name serves only to check the certificate."""
    failed = None
    for address in rule.resolved(url):
        try:
            connection = socket.create_connection(
                (address, url.port), _left(limits.timeout_s, ends_at)
            )
        except OSError as exc:
            failed = exc
            continue
        if url.scheme == "http":
            return connection
        try:
            connection.settimeout(_left(limits.timeout_s, ends_at))
            return _tls().wrap_socket(connection, server_hostname=url.host)
        except BaseException:
            connection.close()
            raise
    raise failed or OSError("no address")


def _left(timeout_s: float, ends_at: float) -> float:
    left = ends_at - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return min(timeout_s, left)


class _TimedSocket(io.RawIOBase):
    """A socket each of whose steps may take the remaining time: a server that drips bytes is never
    silent.
    """

    def __init__(self, connection: socket.socket, timeout_s: float, ends_at: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._ends_at = ends_at

    def sendall(self, data: Any) -> None:
        self._connection.settimeout(_left(self._timeout_s, self._ends_at))
        self._connection.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self, _PIECE)

    def close(self) -> None:
        """Do nothing: http.client closes the socket before the response is read. `send_request`
        closes it.
        """

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(_left(self._timeout_s, self._ends_at))
        return self._connection.recv_into(buffer)


def _read(response: http.client.HTTPResponse, headers: Headers, url: WebUrl, most: int) -> bytes:
    """The body; of redirects and errors only a short one: it may be endless."""
    if HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
        return _body(response, headers, url, most)
    try:
        return _body(response, headers, url, min(most, _PIECE))
    except (
        FetchError,
        http.client.HTTPException,
        gzip.BadGzipFile,
        zlib.error,
    ):  # the status matters
        return b""


def _body(response: http.client.HTTPResponse, headers: Headers, url: WebUrl, most: int) -> bytes:
    """The body, decompressed; never read beyond the limit."""
    if (response.length or 0) > most:
        raise _too_large(url, most)
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in {"", "identity", "gzip", "x-gzip"}:
        problem = f"responds with the Content-Encoding {encoding!r:.40}, which was not requested."
        raise url.error(problem, status=response.status)
    stream = gzip.GzipFile(fileobj=response) if encoding.endswith("gzip") else response
    body = bytearray()
    try:
        while piece := stream.read(_PIECE):
            body += piece
            if len(body) > most:
                raise _too_large(url, most)
        is_complete = not response.length
    except EOFError:
        is_complete = False
    if not is_complete:
        raise url.error("ends its response early.", status=response.status, transient=True)
    return bytes(body)


def _too_large(url: WebUrl, most: int) -> FetchError:
    return url.error(f"has a response of more than {most:,} bytes. Raise max_bytes to read it.")


USER_AGENT = f"lazyrag/{__version__}"

_REDIRECTS = frozenset([301, 302, 303, 307, 308])
_OF_THE_CONNECTION = frozenset(
    "host content-length transfer-encoding connection accept-encoding te upgrade".split()
)
_ADVICE = {
    401: " Check the token or the headers.",
    403: " Check whether the token or the headers may read this.",
    404: " Check the URL.",
    429: " It asks for fewer requests; run it again later.",
}


class WebOptions(TypedDict, total=False):
    """The keywords of all sources on the web, see `WebClient`."""

    headers: Headers | None
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
    """HTTP client of a source, with limits and an SSRF guard. Connects to the checked address,
    never through a proxy.

    Args:
        origin: A URL of the server that receives ``headers``; no other server does, on redirects
            neither.
        headers: Sent with each request, such as ``{"Authorization": "Bearer ..."}``; never shown.
        user_agent: The User-Agent header.
        allow_private: Allow private networks and this machine; see
            `lazyrag.sources.http.AddressRule`.
        allow_hosts: Hosts that are allowed at any address, such as ``["wiki.example:8080"]``.
        timeout_s: Seconds without a byte.
        deadline_s: Seconds for one request, and the longest wait before a retry.
        max_bytes: Size of one response, decompressed.
        max_redirects: Redirects in a row.
        retries: Retries of a request that failed for a transient reason.
        backoff_s: Seconds before the first retry, doubled for each further one.

    Raises:
        ConfigError: If a value is out of its range; values of headers are not shown.

    Example:
        >>> WebClient(web_url("https://example.com/"), headers={"Authorization": "Bearer secret"})
        WebClient('https://example.com')
    """

    def __init__(
        self,
        origin: WebUrl,
        *,
        headers: Headers | None = None,
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
        # a list becomes a tuple
        self._rule = AddressRule(allow_private, allow_hosts)  # type: ignore[arg-type]
        self._limits = Limits(
            validate_seconds("timeout_s", timeout_s),
            validate_seconds("deadline_s", deadline_s),
            validate_integer("max_bytes", max_bytes, 1),
        )
        self._max_redirects = validate_integer("max_redirects", max_redirects, 0)
        self._retries = validate_integer("retries", retries, 0, 100)
        self._backoff_s = validate_seconds("backoff_s", backoff_s)

    def __repr__(self) -> str:
        scheme, host, port = self._origin.origin
        return f"WebClient({str(WebUrl(scheme, host, port, ''))!r})"

    def get(
        self,
        url: WebUrl,
        *,
        accept: str = "*/*",
        further: Headers | None = None,
        on_redirect: Callable[[WebUrl], None] | None = None,
    ) -> HttpResponse:
        """Fetch a URL, following redirects.

        Args:
            url: The URL.
            accept: The wanted types.
            further: Further headers, not secret.
            on_redirect: Called with the target of each redirect before it is requested; may raise
                `FetchError`.

        Returns:
            A response with the status 200 to 299; its URL is the last one.

        Raises:
            FetchError: If there is none.
        """
        return self._retried(
            lambda: self._follow_redirects(url, {"Accept": accept, **(further or {})}, on_redirect)
        )

    def post(self, url: WebUrl, body: Any, *, further: Headers | None = None) -> HttpResponse:
        """Post JSON for a query that is safe to retry; a redirect is an error.

        Raises:
            FetchError: If there is no response with the status 200 to 299.
        """
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            **(further or {}),
        }
        data = json.dumps(body, allow_nan=False).encode()
        return self._retried(lambda: self._checked(self._send_once("POST", url, headers, data)))

    def hide(self, text: str) -> str:
        """Mask the secret headers in a text: some servers repeat them in errors."""
        parts: set[str] = set()
        for value in self._secret.values():
            parts.update(part for part in (value, *value.split()) if len(part) >= 4)
        for secret in sorted(parts, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _follow_redirects(
        self, url: WebUrl, headers: Headers, on_redirect: Callable[[WebUrl], None] | None
    ) -> HttpResponse:
        seen = [url]
        while True:
            answer = self._send_once("GET", seen[-1], headers, None)
            if answer.status not in _REDIRECTS or not answer.headers.get("location"):
                return self._checked(answer)
            try:
                target = web_url(answer.headers["location"], seen[-1])
            except ConfigError as exc:
                raise seen[-1].error(
                    f"redirects to an invalid URL. {exc}", status=answer.status
                ) from exc
            if target in seen or len(seen) > self._max_redirects:
                why = (
                    "redirects in a circle"
                    if target in seen
                    else f"redirects more than {self._max_redirects} times"
                )
                raise url.error(f"{why}, the last time to {target.shown}.", status=answer.status)
            if on_redirect is not None:
                on_redirect(target)
            seen.append(target)

    def _send_once(
        self, method: str, url: WebUrl, headers: Headers, body: bytes | None
    ) -> HttpResponse:
        secret = self._secret if url.origin == self._origin.origin else {}
        sent = {"User-Agent": self.user_agent, "Accept-Encoding": "gzip", **headers, **secret}
        return send_request(method, url, sent, body, rule=self._rule, limits=self._limits)

    def _checked(self, answer: HttpResponse) -> HttpResponse:
        if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            return answer
        body = self.hide(" ".join(answer.body[:2000].decode("utf-8", "replace").split()))[:200]
        reason = f" ({body})" if body and answer.content_type == "application/json" else ""
        raise answer.url.error(
            f"answers {answer.status}{reason}.{_ADVICE.get(answer.status, '')}",
            status=answer.status,
            transient=answer.status in _AGAIN,
            retry_after_s=answer.retry_after_s,
        )

    def _retried(self, send: Callable[[], HttpResponse]) -> HttpResponse:
        attempt = 0
        while True:
            try:
                return send()
            except FetchError as exc:
                wait = self._backoff_s * 2**attempt * random.uniform(0.5, 1.0)  # noqa: S311  jitter
                if exc.retry_after_s is not None:
                    wait = exc.retry_after_s
                if not exc.transient or attempt == self._retries or wait > self._limits.deadline_s:
                    raise
            time.sleep(wait)
            attempt += 1


def make_client(
    source: AnyCallable,
    origin: WebUrl,
    options: WebOptions,
    *,
    further: Headers | None = None,
) -> WebClient:
    """Make a client from a source's keywords.

    Args:
        source: The class of the source, for messages.
        origin: The server that receives the headers.
        options: The keywords.
        further: Headers of the source; the user's take precedence.

    Raises:
        UnknownKeywordError: If a keyword is unknown.
        ConfigError: If a value is out of its range.
    """
    check_keywords(
        source.__name__, WebClient, options, skip=1, also_known=keyword_names(source, skip=0)[0]
    )
    user_headers = checked_headers(options.get("headers"))
    taken = {name.lower() for name in user_headers}
    headers = {
        **{name: value for name, value in (further or {}).items() if name.lower() not in taken},
        **user_headers,
    }
    return WebClient(origin, **{**options, "headers": headers})  # type: ignore[arg-type]


def checked_headers(headers: Any) -> dict[str, str]:
    """Check headers.

    Raises:
        ConfigError: If one cannot be sent; its value is not shown.
    """
    if headers is None:
        return {}
    require(isinstance(headers, Mapping), "headers", type(headers), "a mapping of names to values")
    for name, value in headers.items():
        _check_header(f"headers[{name!r:.80}]", name, value)
        if name.lower() in _OF_THE_CONNECTION:
            raise ConfigError(
                f"headers must not have {name!r}, which the connection sets. Leave it out."
            )
    return dict(headers)


def _check_header(argument: str, name: Any, value: Any) -> None:
    valid = all(
        isinstance(text, str) and text.isascii() and text.isprintable() for text in (name, value)
    )
    if not valid or not name.strip() or not set(name).isdisjoint(' :\t()<>@,;\\"/[]?={}'):
        raise ConfigError(
            f"{argument} must be ASCII characters on one line; the value given is not shown."
        )
