"""Asking servers: limits, redirects, repetitions, credentials; and servers that mean harm."""

from __future__ import annotations

import datetime as dt
import gzip
import itertools
import socket
import ssl
import time
import zlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lazyrag.errors import ConfigError, UnknownKeywordError
from lazyrag.sources import WebsiteSource
from lazyrag.sources import http as exchange
from lazyrag.sources.base import FetchError
from lazyrag.sources.http import WebClient, make_client, web_url
from tests.web_server import Web

SECRET = "a-token-that-nobody-may-see"  # noqa: S105


@pytest.fixture
def web():
    """A local server."""
    served = Web()
    yield served
    served.close()


def client_of(web, **options):
    """A client that may ask the server."""
    return WebClient(
        web_url(web.url), **{"allow_private": True, "retries": 0, "backoff_s": 0.01, **options}
    )


def got(web, path, **options):
    """What a client gets."""
    return client_of(web, **options).get(web_url(web.url + path))


def failed(web, path, **options):
    """The error that a client gets."""
    with pytest.raises(FetchError) as caught:
        got(web, path, **options)
    assert caught.value.path.startswith("http://127.0.0.1")
    return caught.value


def test_an_answer(web):
    """Status, headers, body, type and encoding; the request says who asks, and that nothing is kept
    open.
    """
    web.routes["/tea"] = (
        200,
        {"Content-Type": 'Text/HTML; Charset="GBK"', "X-Two": "1"},
        b"<p>tea",
    )
    answer = got(web, "/tea?q=1")
    assert (answer.status, answer.body, answer.content_type, answer.charset) == (
        200,
        b"<p>tea",
        "text/html",
        "gbk",
    )
    [request] = web.requests
    assert request.target == "/tea?q=1"
    assert request.headers["host"] == f"127.0.0.1:{web.port}"
    assert request.headers["user-agent"].startswith("lazyrag/")
    assert request.headers["connection"] == "close"


def test_this_machine_is_not_asked_unless_allowed(web):
    """Without allow_private or allow_hosts no connection is made."""
    web.routes["/"] = "tea"
    assert "loopback" in str(failed(web, "/", allow_private=False))
    assert web.requests == []
    assert got(web, "/", allow_private=False, allow_hosts=["127.0.0.1"]).body == b"tea"


def test_the_checked_address_is_the_one_that_is_asked(web, monkeypatch):
    """A host that has a public address first and this machine's at the next look is never asked
    here: DNS rebinding.
    """
    web.routes["/"] = "inside"
    real, looks, asked = socket.getaddrinfo, [], []

    def rebinding(host, port, *args, **kwargs):
        if host != "rebinding.example":
            return real(host, port, *args, **kwargs)
        looks.append(host)
        address = "8.8.8.8" if len(looks) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    def connect(address, timeout):
        asked.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    monkeypatch.setattr(socket, "create_connection", connect)
    url = web_url(f"http://rebinding.example:{web.port}/")
    client = WebClient(url, retries=0)
    with pytest.raises(FetchError, match="no valid response"):
        client.get(url)
    assert (looks, asked) == (["rebinding.example"], ["8.8.8.8"])
    with pytest.raises(FetchError, match="loopback"):
        client.get(url)
    assert asked == ["8.8.8.8"]


def test_redirects_are_followed(web):
    """Relative ones, several in a row; the answer tells where it came from."""
    web.routes.update(
        {"/a": (302, {"Location": "b?x"}, b""), "/b": (308, {"Location": "/c"}, b""), "/c": "tea"}
    )
    answer = got(web, "/a")
    assert (answer.body, str(answer.url)) == (b"tea", f"{web.url}/c")


def test_redirects_end(web):
    """Circles and endless chains are errors."""
    web.routes["/round"] = (302, {"Location": "/there"}, b"")
    web.routes["/there"] = (302, {"Location": "/round"}, b"")
    web.routes["/more"] = lambda request: (302, {"Location": f"/more?{len(web.requests)}"}, b"")
    assert "circle" in str(failed(web, "/round"))
    assert "more than 5 times" in str(failed(web, "/more"))
    assert len(web.requests) == 2 + 6


@pytest.mark.parametrize(
    "target",
    ["file:///etc/passwd", "ftp://example.com/", "http://u:p@example.com/", "http://0x7f.1/"],
)
def test_redirects_stay_on_the_web(web, target):
    """Another scheme, a user, a disguised address: not followed."""
    web.routes["/"] = (302, {"Location": target}, b"")
    assert "invalid URL" in str(failed(web, "/"))


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest/meta-data/", "http://[::ffff:169.254.169.254]/"]
)
def test_a_redirect_is_checked_as_the_first_url_is(web, target):
    """A public server cannot lead to a closed address."""
    web.routes["/"] = (302, {"Location": target}, b"")
    with pytest.raises(FetchError, match="cloud keeps"):
        got(web, "/")


def test_credentials_stay_with_their_origin(web):
    """Another host, or another port of the same one, does not get them on a redirect."""
    other = Web()
    try:
        other.routes["/x"] = "tea"
        web.routes["/x"] = (302, {"Location": f"{other.url}/x"}, b"")
        headers = {"Authorization": f"Bearer {SECRET}", "X-Key": SECRET}
        assert got(web, "/x", headers=headers).body == b"tea"
        assert web.requests[0].headers["authorization"] == f"Bearer {SECRET}"
        assert SECRET not in str(other.requests)
        assert len(other.requests) == 1
    finally:
        other.close()


def test_secrets_are_in_no_message(web):
    """Not in errors, though the server repeats them, nor in the repr, nor in a refused header's
    message.
    """
    said = f'{{"error": "bad key {SECRET}"}}'.encode()
    web.routes["/"] = (401, {"Content-Type": "application/json"}, said)
    error = failed(web, "/?token=abc", headers={"Authorization": f"Bearer {SECRET}"})
    assert SECRET not in str(error)
    assert "bad key ***" in str(error)
    assert "abc" not in str(error)
    assert error.status == 401
    assert SECRET not in repr(client_of(web, headers={"Authorization": SECRET}))
    with pytest.raises(ConfigError) as caught:
        client_of(web, headers={"Authorization": SECRET + "\r\nX: y"})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_what_passes_is_repeated(web, status):
    """Statuses that pass, as long as retries allows."""
    web.routes["/"] = lambda _: "tea" if len(web.requests) == 3 else (status, {}, b"")
    assert got(web, "/", retries=2).body == b"tea"
    web.requests.clear()
    web.routes["/"] = (status, {}, b"")
    error = failed(web, "/", retries=2)
    assert (error.status, error.transient, len(web.requests)) == (status, True, 3)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 501, 304])
def test_what_stays_is_not_repeated(web, status):
    """Other statuses are asked for once."""
    web.routes["/"] = (status, {}, b"")
    error = failed(web, "/", retries=2)
    assert (error.status, error.transient, len(web.requests)) == (status, False, 1)


def test_a_server_says_how_long_to_wait(web):
    """Retry-After comes before the client's own pause; one that is longer than the deadline ends
    it.
    """
    web.routes["/"] = lambda _: (
        "tea" if len(web.requests) == 2 else (429, {"Retry-After": "0"}, b"")
    )
    began = time.monotonic()
    assert got(web, "/", retries=1, backoff_s=30.0).body == b"tea"
    assert time.monotonic() - began < 20
    web.requests.clear()
    web.routes["/"] = (503, {"Retry-After": "3600"}, b"")
    assert failed(web, "/", retries=5).retry_after_s == 3600
    web.routes["/"] = (503, {"Retry-After": "Wed, 21 Oct 2076 07:28:00 GMT"}, b"")
    assert failed(web, "/", retries=5).retry_after_s > 3600
    web.routes["/"] = (503, {"Retry-After": "soon"}, b"")
    assert failed(web, "/").retry_after_s is None
    assert len(web.requests) == 3


def test_a_closed_port_passes(web):
    """A refused connection may be a restart: it is transient."""
    web.close()
    assert failed(web, "/").transient


def test_an_endless_body_ends(web):
    """A body without end is read up to the limit, with and without a declared length."""
    sent = []

    def endless(_):
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        for _ in itertools.count():
            sent.append(1)
            yield b"x" * 10_000

    web.routes["/"] = endless
    assert "more than 100,000 bytes" in str(failed(web, "/", max_bytes=100_000))
    assert len(sent) < 2000
    web.routes["/"] = (200, {"Content-Length": "100001"}, b"")
    assert "more than 100,000 bytes" in str(failed(web, "/", max_bytes=100_000))
    web.routes["/"] = (200, {}, b"x" * 100_000)
    assert len(got(web, "/", max_bytes=100_000).body) == 100_000


def test_an_endless_error_page_is_still_the_error(web):
    """Of an error's body no more than its beginning is read."""

    def endless(_):
        yield b"HTTP/1.1 404 Gone\r\n\r\n"
        for _ in itertools.count():
            yield b"x" * 10_000

    web.routes["/"] = endless
    assert failed(web, "/").status == 404


@pytest.mark.parametrize("part", ["status", "header", "body", "informational"])
def test_a_slow_drip_ends(web, part):
    """A byte now and then keeps no limit of silence, but the deadline holds."""
    begin = {
        "status": b"H",
        "header": b"HTTP/1.1 200 OK\r\nX: ",
        "body": b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n",
    }

    def drip(_):
        yield begin.get(part, b"")
        for _ in range(3000):
            time.sleep(0.02)
            yield b"HTTP/1.1 100 Continue\r\n\r\n" if part == "informational" else b"x"

    web.routes["/"] = drip
    began = time.monotonic()
    error = failed(web, "/", deadline_s=0.3)
    assert "was not done after 0.3 s" in str(error)
    assert time.monotonic() - began < 30
    assert error.transient


def test_silence_ends(web):
    """A server that says nothing is waited for no longer than timeout_s."""
    web.routes["/"] = lambda _: time.sleep(1) or "tea"
    assert "silent for 0.2 s" in str(failed(web, "/", timeout_s=0.2))
    assert "not done after 0.2 s" in str(failed(web, "/", timeout_s=20, deadline_s=0.2))


def test_a_body_that_is_cut(web):
    """Fewer bytes than declared, or a chunk that breaks off: an error, not half a page."""
    web.routes["/"] = (200, {"Content-Length": "100"}, b"half")
    assert "ends its response early" in str(failed(web, "/"))
    web.routes["/"] = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nff\r\nhalf"
    )
    assert failed(web, "/").transient


def test_chunks(web):
    """A body in chunks is put together."""
    web.routes["/"] = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"
    )
    assert got(web, "/").body == b"hello!"


def test_more_than_declared_is_left(web):
    """What comes after the declared length is not read."""
    web.routes["/"] = (200, {"Content-Length": "3"}, b"teapot")
    assert got(web, "/").body == b"tea"


def test_packed_bodies(web):
    """gzip is requested and unpacked, also in several members; other packings are not requested."""
    web.routes["/"] = (
        200,
        {"Content-Encoding": "gzip"},
        gzip.compress(b"tea" * 1000) + gzip.compress(b"pot"),
    )
    assert got(web, "/").body == b"tea" * 1000 + b"pot"
    assert web.requests[0].headers["accept-encoding"] == "gzip"


@pytest.mark.slow
def test_a_bomb_is_not_unpacked(web):
    """A gigabyte in a megabyte is unpacked as far as the limit."""
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(50)) + packer.flush()
    assert len(bomb) < 100_000
    web.routes["/"] = (200, {"Content-Encoding": "gzip"}, bomb)
    assert "more than 1,000,000 bytes" in str(failed(web, "/", max_bytes=1_000_000))


def test_broken_and_unknown_packings(web):
    """What is no gzip, half of one, or packed otherwise, is an error."""
    web.routes["/"] = (200, {"Content-Encoding": "gzip"}, b"tea")
    assert "no valid response" in str(failed(web, "/"))
    web.routes["/"] = (200, {"Content-Encoding": "gzip"}, gzip.compress(b"tea" * 1000)[:-9])
    assert "ends its response early" in str(failed(web, "/"))
    web.routes["/"] = (200, {"Content-Encoding": "br"}, b"tea")
    assert "'br'" in str(failed(web, "/"))


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"tea\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00",
    ],
    ids=[
        "nothing",
        "no status",
        "huge header",
        "many headers",
        "odd status",
        "odd chunk",
        "binary",
    ],
)
def test_answers_that_are_none(web, answer):
    """Whatever comes is an error of ours that names the URL."""
    web.routes["/"] = answer
    assert web.url in str(failed(web, "/"))


def test_post_is_repeated_and_never_redirected(web):
    """A query by POST is sent again as it was; a redirect of one is an error."""
    web.routes["/q"] = lambda request: (
        {"echo": request.json} if len(web.requests) == 2 else (503, {}, b"")
    )
    answer = client_of(web, retries=1).post(web_url(f"{web.url}/q"), {"size": 100})
    assert answer.body == b'{"echo": {"size": 100}}'
    assert web.requests[0].body == web.requests[1].body
    web.routes["/q"] = (307, {"Location": "/r"}, b"")
    with pytest.raises(FetchError, match="307"):
        client_of(web).post(web_url(f"{web.url}/q"), {})


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_s": 0},
        {"deadline_s": float("inf")},
        {"max_bytes": 0},
        {"retries": -1},
        {"max_redirects": True},
        {"allow_private": "yes"},
        {"allow_hosts": "example.com"},
        {"allow_hosts": [7]},
        {"headers": ["X: y"]},
        {"headers": {"X": 7}},
        {"headers": {"Host": "other"}},
        {"headers": {"X\n": "y"}},
        {"headers": {"Übel": "y"}},
        {"user_agent": "a\nb"},
        {"backoff_s": None},
    ],
)
def test_values_are_checked(options):
    """A value out of its range is an error before anything is asked."""
    with pytest.raises(ConfigError):
        WebClient(web_url("http://example.com/"), **options)


def test_unknown_keywords_are_named():
    """A misspelt keyword names the nearest."""
    with pytest.raises(UnknownKeywordError, match="Did you mean 'timeout_s'"):
        make_client(WebsiteSource, web_url("http://example.com/"), {"timeout": 3})


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("depth", "max_depth"), ("max_page", "max_pages"), ("timeout", "timeout_s")],
)
def test_unknown_keywords_are_near_those_of_the_source_as_well(wrong, meant):
    """A source's own keywords are among the known ones, beside those of its client."""
    with pytest.raises(
        UnknownKeywordError, match=f"WebsiteSource takes no keyword .* Did you mean '{meant}'"
    ):
        WebsiteSource("http://example.com/", **{wrong: 3})


@pytest.fixture
def certificate(tmp_path):
    """A certificate for localhost, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), 1, now, now + dt.timedelta(days=1)
    )
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem = serialization.Encoding.PEM
    path = tmp_path / "certificate.pem"
    path.write_bytes(
        builder.sign(key, hashes.SHA256()).public_bytes(pem)
        + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


def test_certificates_are_checked(certificate, monkeypatch):
    """https asks for the name in the URL, and takes no certificate that nobody vouches for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = Web(context)
    server.routes["/"] = "tea"
    named = f"https://localhost:{server.port}/"
    try:
        exchange._tls.cache_clear()
        with pytest.raises(FetchError, match="certificate is refused"):
            client_of(server).get(web_url(named))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        exchange._tls.cache_clear()
        assert client_of(server).get(web_url(named)).body == b"tea"
        with pytest.raises(FetchError, match="certificate is refused"):
            # by its address, which the certificate does not name
            client_of(server).get(web_url(server.url))
    finally:
        exchange._tls.cache_clear()
        server.close()
