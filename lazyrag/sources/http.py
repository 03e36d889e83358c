"""The records of a paged HTTP API."""

from __future__ import annotations

import email.utils
import functools
import hashlib
import http.client
import io
import ipaddress
import json
import math
import os
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
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from lazyrag._version import __version__
from lazyrag.errors import ConfigError, LoadError, UnknownKeywordError, known_names
from lazyrag.loaders.records import Mapping as JsonObject
from lazyrag.loaders.records import Value, records_path
from lazyrag.sources.base import (
    CutShort,
    Event,
    FailedItem,
    FetchError,
    FetchReport,
    LoadedItem,
    RecordForm,
    digest,
    fetch,
    json_value,
    loaded_items,
    value_at,
)
from lazyrag.validation import keyword_names, known_arguments, text_list, whole_number, yes_or_no

if TYPE_CHECKING:
    from typing import Unpack


Address = ipaddress.IPv4Address | ipaddress.IPv6Address

PORTS = {"http": 80, "https": 443}

_LONGEST_URL = 8_000
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
        ("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"),
    )
)
"""Where clouds tell machines their secrets. Not all of these are private addresses."""


@dataclass(frozen=True, slots=True)
class WebUrl:
    """A URL of http or https, taken apart, in its canonical form.

    Args:
        scheme: ``http`` or ``https``.
        host: In lower case, as ASCII; an address of version 6 without brackets.
        port: The one it says or stands for.
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
        """Host and port as a URL has them, a default port left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> tuple[str, str, int]:
        """What credentials are for."""
        return self.scheme, self.host, self.port

    @property
    def shown(self) -> str:
        """For messages: queries may hold keys."""
        path, mark, _ = self.target.partition("?")
        return f"{self.scheme}://{self.netloc}{path}" + ("?..." if mark else "")


def web_url(url: Any, base: WebUrl | None = None) -> WebUrl:
    """A URL in its canonical form: what stands for the same page by RFC 3986 is the same text.

    Scheme and host are in lower case; a default port, dots in the path and the fragment are gone; only what has to be
    escaped is.

    Args:
        url: A URL of http or https, without user and password.
        base: What a relative one is relative to.

    Raises:
        ConfigError: If it is something else. What may be secret in it is not shown.

    Example:
        >>> str(web_url("HTTPS://Example.com:443/tea/../%7eli?q=绿茶#top"))
        'https://example.com/~li?q=%E7%BB%BF%E8%8C%B6'
    """
    if not isinstance(url, str):
        msg = f"The URL is {type(url).__name__}; give a text such as 'https://example.com/tea'."
        raise ConfigError(msg)
    problem = "is too long" if len(url) > _LONGEST_URL else ""
    url = url.strip(" \t\r\n\f")
    try:
        parts = urllib.parse.urlsplit(urllib.parse.urljoin(str(base), url) if base else url)
        port = parts.port
        host = _host(parts.hostname or "")
    except ValueError as exc:
        parts, port, host = urllib.parse.urlsplit(""), None, ""
        problem = problem or f"cannot be read ({_told(exc)})"
    if not problem:
        problem = _problem(url, parts, host, port)
    if problem:
        shown = url.partition("?")[0].partition("#")[0].rpartition("@")[2]
        msg = f"The URL {shown!r:.200} {problem}. Give one of http or https, such as 'https://example.com/tea'."
        raise ConfigError(msg)
    target = _path(parts.path) + (f"?{_quoted(parts.query, _IN_QUERIES)}" if parts.query else "")
    return WebUrl(parts.scheme, host, PORTS[parts.scheme] if port is None else port, target)


def _told(exc: ValueError) -> str:
    """Why a URL cannot be read, without the URL."""
    return str(exc) if isinstance(exc, _HostError) else "its host or port is malformed"


class _HostError(ValueError):
    """A host that is none."""


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
    """A host as it is asked for: a name as ASCII in lower case, or an address in its one plain form."""
    if ":" in host:
        if "%" in host:
            msg = "its address has a zone"
            raise _HostError(msg)
        return str(ipaddress.IPv6Address(host))
    # As browsers do: full-width digits are digits, and the full stop of Chinese is a dot.
    folded = unicodedata.normalize("NFKC", urllib.parse.unquote(host)).replace("\u3002", ".").lower()
    if not folded.isascii():
        try:
            folded = folded.encode("idna").decode("ascii")
        except UnicodeError as exc:
            msg = "its host is no name"
            raise _HostError(msg) from exc
    if not folded:
        return ""
    if _ENDS_IN_A_NUMBER.search(folded):
        try:
            return str(ipaddress.IPv4Address(folded.removesuffix(".")))
        except ValueError as exc:
            msg = "its host is a number; addresses have four decimal parts"
            raise _HostError(msg) from exc
    if len(folded) > 253 or not _HOST.fullmatch(folded):
        msg = "its host is no name"
        raise _HostError(msg)
    return folded.removesuffix(".")


def _path(path: str) -> str:
    """A path without dots, its escapes in one form. Empty segments are kept: servers tell them apart."""
    kept: list[str] = []
    segments = _quoted(path, _IN_PATHS).split("/")[1:] or [""]
    for at, segment in enumerate(segments):
        last = at == len(segments) - 1
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
        if last and segment in {".", ".."}:
            kept.append("")
    return "/" + "/".join(kept)


def quoted_target(text: str) -> str:
    """A path with its query as URLs here have them, but for its dots: only what has to be escaped is.

    Example:
        >>> quoted_target("/%7eli/*?q=绿茶")
        '/~li/*?q=%E7%BB%BF%E8%8C%B6'
    """
    return _quoted(text, _IN_QUERIES)


def _quoted(text: str, safe: str) -> str:
    quoted = urllib.parse.quote(text, safe=safe, errors="replace")
    # A percent sign that escapes nothing is one itself.
    quoted = re.sub(r"%(?![0-9a-fA-F]{2})", "%25", quoted)
    return _ESCAPE.sub(_escape, quoted)


def _escape(found: re.Match[str]) -> str:
    character = chr(int(found[1], 16))
    return character if character in _UNRESERVED else found[0].upper()


@dataclass(frozen=True, slots=True)
class AddressRule:
    """Where a source may connect to: public addresses, and what its user opens.

    Args:
        allow_private: Also loopback and private networks. Link-local addresses, multicast and those where clouds keep
            their secrets stay closed.
        allow_hosts: Names or addresses, each with or without ``:port``, that may lie anywhere.

    Raises:
        ConfigError: If one is of the wrong kind.

    Example:
        >>> AddressRule(allow_hosts=("127.0.0.1",)).resolved(web_url("http://127.0.0.1/"))
        ['127.0.0.1']
    """

    allow_private: bool = False
    allow_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "allow_private", yes_or_no("allow_private", self.allow_private))
        hosts = tuple(host.lower() for host in text_list("allow_hosts", self.allow_hosts))
        object.__setattr__(self, "allow_hosts", hosts)

    def resolved(self, url: WebUrl) -> list[str]:
        """The addresses of a URL's host, to be connected to as they are: a second look-up might say others.

        Raises:
            FetchError: If the host has no address, or any of them is closed.
        """
        try:
            found = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as exc:
            msg = f"{url.shown}: the host {url.host!r} has no address ({getattr(exc, 'strerror', None) or exc})."
            raise FetchError(msg, url=url.shown, transient=getattr(exc, "errno", 0) == socket.EAI_AGAIN) from exc
        addresses = list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
        if url.host not in self.allow_hosts and f"{url.host}:{url.port}" not in self.allow_hosts:
            for address in addresses:
                self._check(address, url)
        return addresses

    def _check(self, address: str, url: WebUrl) -> None:
        kind = closed_kind(address, allow_private=self.allow_private)
        if kind:
            msg = (
                f"{url.shown} lies at {address}, which is {kind}. Only public addresses are asked; "
                f"allow_hosts=[{url.host!r}] opens this host, allow_private=True private networks."
            )
            raise FetchError(msg, url=url.shown)


def closed_kind(address: str, *, allow_private: bool = False) -> str:
    """What kind of address one is that is not asked; "" for one that may be.

    Args:
        address: Of version 4 or 6. One of version 6 that stands for one of version 4 is as that one is.
        allow_private: Whether loopback and private networks may be asked.

    Example:
        >>> closed_kind("::ffff:10.0.0.1"), closed_kind("10.0.0.1", allow_private=True), closed_kind("93.184.215.14")
        ('a private address', '', '')
    """
    return next((kind for one in _meant(ipaddress.ip_address(address)) if (kind := _kind(one, allow_private))), "")


def _meant(address: Address) -> Iterator[Address]:
    """An address, and those of version 4 that it leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        yield address
        return
    embedded = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        embedded.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if address.ipv4_mapped is None and address not in _NAT64:  # these two are nothing but the other address
        yield address
    yield from (one for one in embedded if one is not None)


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
_GZIP_OR_ZLIB = 47  # of zlib: window bits, and the header tells which of the two it is
_AGAIN = frozenset([408, 425, 429, 500, 502, 503, 504])


@dataclass(frozen=True, slots=True)
class Limits:
    """What one exchange may take.

    Args:
        timeout_s: Seconds without a byte.
        deadline_s: Seconds in all.
        max_bytes: Bytes of the answer, unpacked.
    """

    timeout_s: float
    deadline_s: float
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of a server.

    Args:
        url: What was asked.
        status: Its status.
        headers: By name in lower case; of those that stand twice, joined by commas.
        body: What it holds, unpacked.
    """

    url: WebUrl
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_transient(self) -> bool:
        """Whether the same request may have another answer later."""
        return self.status in _AGAIN

    @property
    def retry_after_s(self) -> float | None:
        """How long the server asks to wait, None if it does not say."""
        said = self.headers.get("retry-after", "").strip()
        if said.isascii() and said.isdigit():
            return float(said[:12])
        try:
            return max(0.0, email.utils.parsedate_to_datetime(said).timestamp() - time.time()) if said else None
        except (ValueError, OverflowError):
            return None

    @property
    def content_type(self) -> str:
        """The type it declares, in lower case and without parameters; "" for none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str | None:
        """The encoding it declares."""
        for part in self.headers.get("content-type", "").split(";")[1:]:
            name, _, value = part.partition("=")
            if name.strip().lower() == "charset":
                return value.strip().strip("\"'")[:40] or None
        return None


def exchange(
    method: str, url: WebUrl, headers: Mapping[str, str], body: bytes | None, *, rule: AddressRule, limits: Limits
) -> Answer:
    """Ask once. No redirect is followed, nothing is repeated, no proxy is asked.

    Args:
        method: ``GET`` or ``POST``.
        url: Whom.
        headers: What is sent along.
        body: What is sent, if anything.
        rule: Where may be connected to.
        limits: What it may take.

    Raises:
        FetchError: If there is no answer, or it breaks a limit.
    """
    ends_at = time.monotonic() + limits.deadline_s
    try:
        with _connected(url, rule, limits, ends_at) as connection:
            asked = http.client.HTTPConnection(url.netloc)
            asked.sock = _Timed(connection, limits.timeout_s, ends_at)
            asked.auto_open = 0  # it must not connect by itself
            asked.request(method, url.target, body, {**headers, "Host": url.netloc, "Connection": "close"})
            answer = asked.getresponse()
            found = _collected(answer)
            return Answer(url, answer.status, found, _wanted(answer, found, url, limits.max_bytes))
    except FetchError:
        raise
    except TimeoutError as exc:
        late = time.monotonic() >= ends_at
        what = f"was not done after {limits.deadline_s:g} s" if late else f"was silent for {limits.timeout_s:g} s"
        msg = f"{url.shown} {what}. Raise {'deadline_s' if late else 'timeout_s'} if it is that slow."
        raise FetchError(msg, url=url.shown, transient=True) from exc
    except ssl.SSLCertVerificationError as exc:
        msg = f"{url.shown}: its certificate is refused ({exc.verify_message})."
        raise FetchError(msg, url=url.shown) from exc
    except (http.client.HTTPException, OSError, zlib.error) as exc:
        told = f"{type(exc).__name__}: {exc}".rstrip(": ")
        msg = f"{url.shown} gave no answer that can be read ({told:.200})."
        raise FetchError(msg, url=url.shown, transient=isinstance(exc, (OSError, http.client.IncompleteRead))) from exc


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _connected(url: WebUrl, rule: AddressRule, limits: Limits, ends_at: float) -> socket.socket:
    """A connection to the first address that takes one; its name goes no further than to the certificate."""
    failed: OSError | None = None
    for address in rule.resolved(url):
        try:
            connection = socket.create_connection((address, url.port), _left(limits.timeout_s, ends_at))
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


class _Timed:
    """A connection of which each step may take what is left of the time: a server that drips is never silent."""

    def __init__(self, connection: socket.socket, timeout_s: float, ends_at: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._ends_at = ends_at

    def sendall(self, data: Any) -> None:
        """Send all of it."""
        self._connection.settimeout(_left(self._timeout_s, self._ends_at))
        self._connection.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What comes, to be read."""
        return io.BufferedReader(_Coming(self._read_into), _PIECE)

    def close(self) -> None:
        """Whoever opened the connection closes it: the answer is still to be read."""

    def _read_into(self, buffer: Any) -> int:
        self._connection.settimeout(_left(self._timeout_s, self._ends_at))
        return self._connection.recv_into(buffer)


class _Coming(io.RawIOBase):
    """Bytes as they come."""

    def __init__(self, read_into: Any) -> None:
        self._read_into = read_into

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there, waiting for the first byte."""
        return int(self._read_into(buffer))


def _collected(answer: http.client.HTTPResponse) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in answer.getheaders():
        key = name.lower()
        found[key] = f"{found[key]}, {value}" if key in found else value
    return found


def _wanted(answer: http.client.HTTPResponse, headers: Mapping[str, str], url: WebUrl, most: int) -> bytes:
    """The body; of redirects and errors only a short one: it says why, and may be endless."""
    if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
        return _body(answer, headers, url, most)
    try:
        return _body(answer, headers, url, min(most, _PIECE))
    except (FetchError, http.client.HTTPException, zlib.error):  # its status is what counts
        return b""


def _body(answer: http.client.HTTPResponse, headers: Mapping[str, str], url: WebUrl, most: int) -> bytes:
    """The body, unpacked; it is never read further than the limit."""
    if (answer.length or 0) > most:
        raise _too_large(url, most)
    packing = headers.get("content-encoding", "").strip().lower()
    if packing in {"", "identity"}:
        unpack = None
    elif packing in {"gzip", "x-gzip", "deflate"}:
        unpack = _Unpacker(most, raw_allowed=packing == "deflate")
    else:
        msg = f"{url.shown} answers with the Content-Encoding {packing!r:.40}, which was not asked for."
        raise FetchError(msg, url=url.shown, status=answer.status)
    pieces = []
    length = 0
    while piece := answer.read(_PIECE):
        piece = unpack.feed(piece) if unpack else piece
        length += len(piece)
        if length > most:
            raise _too_large(url, most)
        pieces.append(piece)
    if answer.length or (unpack and not unpack.is_done):
        msg = f"{url.shown} ends its answer before its end."
        raise FetchError(msg, url=url.shown, status=answer.status, transient=True)
    return b"".join(pieces)


def _too_large(url: WebUrl, most: int) -> FetchError:
    msg = f"{url.shown} has an answer of more than {most:,} bytes. Raise max_bytes if it is meant to be that large."
    return FetchError(msg, url=url.shown)


class _Unpacker:
    """Unpacks gzip and deflate, and never makes more than one byte too many."""

    def __init__(self, most: int, *, raw_allowed: bool) -> None:
        self._left = most + 1
        self._raw_allowed = raw_allowed
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._is_new = True

    @property
    def is_done(self) -> bool:
        """Whether the end of what was packed has come; an empty body is whole."""
        return self._stream.eof or self._is_new

    def feed(self, piece: bytes) -> bytes:
        """What a piece unpacks to, as far as the limit goes."""
        made = []
        while piece and self._left > 0:
            if self._stream.eof:  # several packed streams may follow each other
                self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
            try:
                made.append(self._stream.decompress(piece, self._left))
            except zlib.error:
                if not (self._is_new and self._raw_allowed):
                    raise
                # Some servers leave out the header that deflate should have.
                self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
                made.append(self._stream.decompress(piece, self._left))
            self._is_new = self._raw_allowed = False
            self._left -= len(made[-1])
            piece = self._stream.unused_data if self._stream.eof else b""
        return b"".join(made)


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
        allow_private: Also ask private networks and this machine; see `lazyrag.sources.http.AddressRule`.
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


_LINK = re.compile(r"<([^<>]*)>([^<]*)")
_IS_NEXT = re.compile(r";\s*rel\s*=\s*(?:\"[^\"]*\bnext\b[^\"]*\"|next\b)", re.IGNORECASE)


class Paging(Protocol):
    """Leads from one page of an API to the next."""

    def first(self, url: WebUrl) -> WebUrl:
        """The URL of the first page."""

    def following(self, url: WebUrl, answer: Answer, value: Value, count: int) -> WebUrl | None:
        """The URL of the next page.

        Args:
            url: Of this page.
            answer: The answer to it.
            value: What its JSON holds.
            count: How many records it has.

        Returns:
            The URL, or None after the last page.

        Raises:
            ConfigError: If the answer leads to what is no URL.
        """


@known_arguments
@dataclass(frozen=True, slots=True)
class LinkHeader:
    """The header ``Link`` with ``rel="next"`` holds the next page's URL, as GitHub's API has it.

    Source:
        RFC 8288.

    Example:
        >>> LinkHeader()
        LinkHeader()
    """

    def first(self, url: WebUrl) -> WebUrl:
        """The URL itself."""
        return url

    def following(self, url: WebUrl, answer: Answer, value: Value, count: int) -> WebUrl | None:
        """What the header says; None where it names no next page."""
        del value, count
        targets = (target for target, said in _LINK.findall(answer.headers.get("link", "")) if _IS_NEXT.search(said))
        return next((web_url(target, url) for target in targets), None)


@known_arguments
@dataclass(frozen=True, slots=True)
class NextLink:
    """The answer holds the next page's URL, whole or relative.

    Args:
        path: Where, such as ``"links.next"``.

    Example:
        >>> NextLink("links.next").path
        'links.next'
    """

    path: str = "next"

    def __post_init__(self) -> None:
        _check_text("path", self.path)

    def first(self, url: WebUrl) -> WebUrl:
        """The URL itself."""
        return url

    def following(self, url: WebUrl, answer: Answer, value: Value, count: int) -> WebUrl | None:
        """What stands at the path; None where nothing does."""
        del answer, count
        found = value_at(value, self.path)
        return web_url(found, url) if found not in (None, "", False) else None


@known_arguments
@dataclass(frozen=True, slots=True)
class Cursor:
    """The answer holds a text that the next request repeats.

    Args:
        path: Where, such as ``"meta.next_cursor"``.
        param: The parameter that takes it.

    Example:
        >>> Cursor("meta.next_cursor", "after").param
        'after'
    """

    path: str = "next_cursor"
    param: str = "cursor"

    def __post_init__(self) -> None:
        _check_text("path", self.path)
        _check_text("param", self.param)

    def first(self, url: WebUrl) -> WebUrl:
        """The URL itself."""
        return url

    def following(self, url: WebUrl, answer: Answer, value: Value, count: int) -> WebUrl | None:
        """The same URL with the cursor; None where there is none."""
        del answer, count
        found = value_at(value, self.path)
        if found in (None, "", False):
            return None
        if not isinstance(found, str):
            msg = f"The answer's {self.path!r} is no text or number; name the path of the cursor."
            raise ConfigError(msg)
        return with_params(url, {self.param: found})


@known_arguments
@dataclass(frozen=True, slots=True)
class PageNumber:
    """A parameter counts the pages, until one of them is empty.

    Args:
        param: The parameter.
        start: The number of the first page.

    Example:
        >>> str(PageNumber("p").first(web_url("https://example.com/teas?sort=id")))
        'https://example.com/teas?sort=id&p=1'
    """

    param: str = "page"
    start: int = 1

    def __post_init__(self) -> None:
        _check_text("param", self.param)
        whole_number("start", self.start, 0)

    def first(self, url: WebUrl) -> WebUrl:
        """The URL with the first number."""
        return with_params(url, {self.param: str(self.start)})

    def following(self, url: WebUrl, answer: Answer, value: Value, count: int) -> WebUrl | None:
        """The URL with the next number; None after an empty page."""
        del answer, value
        return with_params(url, {self.param: str(_number(url, self.param) + 1)}) if count else None


@known_arguments
@dataclass(frozen=True, slots=True)
class Offset:
    """A parameter says how many records to pass over, until a page is empty.

    Args:
        param: The parameter.
        limit: How many records to ask for.
        limit_param: The parameter that says so; "" for none.

    Example:
        >>> str(Offset(limit=50).first(web_url("https://example.com/teas")))
        'https://example.com/teas?offset=0&limit=50'
    """

    param: str = "offset"
    limit: int = 100
    limit_param: str = "limit"

    def __post_init__(self) -> None:
        _check_text("param", self.param)
        whole_number("limit", self.limit, 1)

    def first(self, url: WebUrl) -> WebUrl:
        """The URL with the offset 0."""
        further = {self.limit_param: str(self.limit)} if self.limit_param else {}
        return with_params(url, {self.param: "0", **further})

    def following(self, url: WebUrl, answer: Answer, value: Value, count: int) -> WebUrl | None:
        """The URL with the next offset; None after an empty page. A page may be shorter than was asked for."""
        del answer, value
        return with_params(url, {self.param: str(_number(url, self.param) + count)}) if count else None


def with_params(url: WebUrl, params: dict[str, str]) -> WebUrl:
    """A URL with parameters in its query, in the place of those of the same name.

    Example:
        >>> str(with_params(web_url("https://example.com/?page=1&a=b"), {"page": "2"}))
        'https://example.com/?a=b&page=2'
    """
    path, _, query = url.target.partition("?")
    kept = [pair for pair in _pairs(query) if urllib.parse.unquote_plus(pair.partition("=")[0]) not in params]
    joined = "&".join([*kept, *([urllib.parse.urlencode(params)] if params else [])])
    return web_url(path + (f"?{joined}" if joined else ""), url)


def _pairs(query: str) -> Iterator[str]:
    return (pair for pair in query.split("&") if pair)


def _number(url: WebUrl, param: str) -> int:
    query = urllib.parse.parse_qs(url.target.partition("?")[2])
    return int(query[param][-1])


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        msg = f"{what} is {value!r:.80}; give a text that is not blank."
        raise ConfigError(msg)


class HttpRecordsSource:
    r"""The records that an HTTP API gives page by page as JSON; each is an item.

    Args:
        url: The URL of the first page.
        identity: The fields that tell records apart, by which an edited record is known again; one as a text.
        records: Path to the list of records in an answer, such as ``"data.items"``; "" if the answer is the list.
        paging: How the next page is asked for: `LinkHeader`, `NextLink`, `Cursor`, `PageNumber` or `Offset`.
        params: Parameters for the query of the first page.
        template: A text with paths in braces, as in ``"{name} costs {price}"``; None for ``fields``, a line
            ``path: value`` for each.
        fields: The paths that become text; () for all.
        metadata: The paths that become metadata.
        max_pages: Pages at most; a run that comes to a limit is cut short, and removes nothing.
        max_seconds: Seconds at most.
        max_total_bytes: Bytes of all answers at most.
        web: The keywords of `lazyrag.sources.http.WebClient`, such as ``headers`` and ``allow_private``.

    Raises:
        ConfigError: If a value is of the wrong kind.

    Example, with an API that pages as GitHub's does::

        issues = HttpRecordsSource(
            "https://api.github.com/repos/python/cpython/issues",
            identity="id", template="{title}\n\n{body}", metadata=["state", "html_url"],
            headers={"Authorization": f"Bearer {token}"},
        )
        issues.fetch("issues")
    """

    def __init__(
        self,
        url: str,
        *,
        identity: str | Sequence[str] = "id",
        records: str = "",
        paging: Paging | None = None,
        params: Mapping[str, object] | None = None,
        template: str | None = None,
        fields: Sequence[str] = (),
        metadata: Sequence[str] = (),
        max_pages: int = 1000,
        max_seconds: float = 3600.0,
        max_total_bytes: int = 1_000_000_000,
        **web: Unpack[WebOptions],
    ) -> None:
        if params is not None and not isinstance(params, Mapping):
            msg = f"params is of type {type(params).__name__}; give a mapping of names to values."
            raise ConfigError(msg)
        self._paging: Paging = LinkHeader() if paging is None else paging
        if isinstance(self._paging, type) or not callable(getattr(self._paging, "following", None)):
            msg = f"paging is {paging!r:.80}; give LinkHeader(), NextLink(...), Cursor(...), PageNumber() or Offset()."
            raise ConfigError(msg)
        own = web_url(url)
        self._url = with_params(own, {str(name): str(value) for name, value in (params or {}).items()})
        self._records = records_path(records)
        self._form = functools.partial(RecordForm, identity, template, fields, metadata)  # anew for each run
        self._form()
        self._max_pages = whole_number("max_pages", max_pages, 1)
        self._max_seconds = checked_seconds("max_seconds", max_seconds)
        self._max_total_bytes = whole_number("max_total_bytes", max_total_bytes, 1)
        self._client = make_client(HttpRecordsSource, own, web)

    def __repr__(self) -> str:
        return f"HttpRecordsSource({self._url.shown!r})"

    @property
    def name(self) -> str:
        """What a folder remembers it by."""
        return f"api {self._url.shown} {digest(f'{self._url.target} {self._records}')}"

    def items(self) -> Iterator[Event]:
        """The records, page by page. A page that cannot be had cuts the run short, the first one is an error.

        Raises:
            LoadError: If the first page cannot be had, or no record has a field that is named.
        """
        form = self._form()
        ends_at = time.monotonic() + self._max_seconds
        seen: set[WebUrl] = set()
        read: set[bytes] = set()
        total = 0
        url: WebUrl | None = self._paging.first(self._url)
        while url is not None:
            reason = self._reason_to_stop(url, seen, ends_at)
            if reason:
                yield CutShort(reason)
                return
            seen.add(url)
            try:
                answer, found, url = self._page(url)
            except LoadError as exc:
                if len(seen) == 1:
                    raise
                yield CutShort(f"page {len(seen)}: {exc}")
                return
            total += len(answer.body)
            if total > self._max_total_bytes:
                yield CutShort(f"there are more than max_total_bytes={self._max_total_bytes:,}")
                return
            mark = hashlib.blake2b(answer.body, digest_size=16).digest()
            if found and mark in read:
                yield CutShort(f"page {len(seen)} repeats an earlier one: the API does not take this paging")
                return
            read.add(mark)
            for number, record in enumerate(found, start=1):
                where = f"page {len(seen)}, record {number}"
                if isinstance(record, JsonObject):
                    yield form.item(record, where)
                else:
                    yield FailedItem(where, f"It is {record!r:.60}, not an object. Give the path to the records.")
        form.check_all_found()

    def load(self) -> Iterator[LoadedItem]:
        """The records as text, with their metadata."""
        return loaded_items(self)

    def fetch(self, folder: str | os.PathLike[str]) -> FetchReport:
        """Write each record into a file of a folder; see `lazyrag.sources.fetch`."""
        return fetch(self, folder)

    def _reason_to_stop(self, url: WebUrl, seen: set[WebUrl], ends_at: float) -> str:
        if url in seen:
            return f"page {len(seen)} leads back to {url.shown}, which was read before"
        if len(seen) >= self._max_pages:
            return f"there are more than max_pages={self._max_pages}"
        return f"max_seconds={self._max_seconds:g} are over" if time.monotonic() > ends_at else ""

    def _page(self, url: WebUrl) -> tuple[Answer, list[Value], WebUrl | None]:
        answer = self._client.get(url, accept="application/json")
        value = json_value(answer.body, f"The answer of {url.shown}")
        found = value_at(value, self._records)
        if not isinstance(found, list):
            known = [name for name, _ in value.items][:50] if isinstance(value, JsonObject) else []
            msg = f"The answer of {url.shown} has no list at {self._records!r}. {known_names(self._records, known)}"
            raise LoadError(msg, path=url.shown)
        try:
            return answer, found, self._paging.following(url, answer, value, len(found))
        except ConfigError as exc:
            msg = f"{url.shown} leads to what may not be asked. {exc}"
            raise FetchError(msg, url=url.shown) from exc
