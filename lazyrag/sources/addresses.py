"""URLs and addresses that a source may ask: what a URL says, and where its host really lies."""

from __future__ import annotations

import ipaddress
import re
import socket
import unicodedata
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lazyrag.errors import ConfigError
from lazyrag.sources.faults import FetchError
from lazyrag.validation import text_list, yes_or_no

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
