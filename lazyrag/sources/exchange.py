"""One request and its answer, over a connection to an address that was checked, within limits of time and size."""

from __future__ import annotations

import email.utils
import functools
import http.client
import io
import socket
import ssl
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from lazyrag.sources.addresses import AddressRule, WebUrl
from lazyrag.sources.faults import FetchError

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
