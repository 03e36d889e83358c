"""Which URLs and addresses a source asks."""

from __future__ import annotations

import ipaddress
import socket
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.errors import ConfigError
from lazyrag.sources.base import FetchError
from lazyrag.sources.http import AddressRule, blocked_kind, web_url

_CLOSED = """127.0.0.1 127.8.9.1 10.1.1.1 172.16.0.1 172.31.255.255 192.168.0.1 169.254.169.254 169.254.1.1 100.64.0.1
100.100.100.200 168.63.129.16 192.0.0.192 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 0.0.0.0 0.1.2.3 192.0.2.1
198.18.0.1 ::1 :: fe80::1 fc00::1 fd00:ec2::254 fec0::1 ff02::1 2001:db8::1 ::ffff:127.0.0.1 ::ffff:a9fe:a9fe
::127.0.0.1 2002:7f00:1:: 64:ff9b::7f00:1 64:ff9b:1::1 2001:0:7f00:1::""".split()
_OPEN = "8.8.8.8 93.184.215.14 172.32.0.1 2606:4700::1111 ::ffff:8.8.8.8 64:ff9b::808:808".split()


@pytest.mark.parametrize("address", _CLOSED)
def test_what_is_not_public_is_closed(address):
    """Loopback, private, link-local, multicast, reserved and metadata addresses, in every disguise
    of version 6.
    """
    assert blocked_kind(address)


@pytest.mark.parametrize("address", _OPEN)
def test_what_is_public_is_open(address):
    """Public addresses are asked, also those that stand in one of version 6."""
    assert not blocked_kind(address)


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.1.1.1", "192.168.0.1", "::1", "fc00::1", "100.64.0.1"]
)
def test_private_networks_can_be_opened(address):
    """allow_private opens loopback and private networks."""
    assert not blocked_kind(address, allow_private=True)


@pytest.mark.parametrize(
    "address", "169.254.169.254 fe80::1 224.0.0.1 100.100.100.200 fd00:ec2::254 0.0.0.0".split()
)
def test_secrets_of_clouds_stay_closed(address):
    """Link-local addresses, multicast and metadata stay closed with allow_private."""
    assert blocked_kind(address, allow_private=True)


@given(st.integers(0, 2**32 - 1))
def test_an_address_of_version_4_is_as_closed_in_version_6(number):
    """Mapped, 6to4 and NAT64: whatever stands for an address is no more open than it."""
    address = ipaddress.IPv4Address(number)
    disguises = [
        ipaddress.IPv6Address((0xFFFF << 32) | number),
        ipaddress.IPv6Address((0x2002 << 112) | (number << 80)),
        ipaddress.IPv6Address((0x64FF9B << 96) | number),
    ]
    if blocked_kind(str(address)):
        assert all(blocked_kind(str(one)) for one in disguises)
    else:
        assert not blocked_kind(str(disguises[0]))


@given(st.integers(0, 2**32 - 1))
def test_nothing_that_python_calls_private_is_open(number):
    """The rule is never more open than Python's own list of global addresses."""
    address = ipaddress.IPv4Address(number)
    if not address.is_global or address.is_multicast:
        assert blocked_kind(str(address))


@pytest.mark.parametrize(
    "url",
    [
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://017700000001/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://127.0.0.1.1/",
        "http://１２７.1/",
        "http://1.2.3.0x4/",
        "http://256.0.0.1/",
    ],
)
def test_addresses_have_one_form(url):
    """Hexadecimal, octal, short and over-long addresses are refused as they stand."""
    with pytest.raises(ConfigError, match="four decimal parts"):
        web_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "javascript:alert(1)",
        "//example.com/",
        "example.com",
        "http:///tea",
        "http://",
        "",
        "http://user:secret@example.com/",
        "http://secret@example.com/",
        "http://example.com\\@127.0.0.1/",
        "http://example.com/a b",
        "http://example.com/\r\nHost: other",
        "http://exa mple.com/",
        "http://example.com:0/",
        "http://example.com:99999/",
        "http://example.com:abc/",
        "http://[::1/",
        "http://[fe80::1%25eth0]/",
        "http://-example.com/",
        "http://exa%00mple.com/",
        "http://" + "a." * 200 + "com/",
        "http://example.com/" + "a" * 9000,
        None,
        b"http://example.com/",
        7,
    ],
)
def test_other_urls_are_refused(url):
    """Other schemes, users, odd characters and hosts that are none; what may be secret is not
    told.
    """
    with pytest.raises(ConfigError) as caught:
        web_url(url)
    assert "secret" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("HTTP://EXAMPLE.com", "http://example.com/"),
        ("https://example.com:443/a#part", "https://example.com/a"),
        ("http://example.com:443/", "http://example.com:443/"),
        ("http://example.com./", "http://example.com/"),
        ("http://example.com/a/./b/../c", "http://example.com/a/c"),
        ("http://example.com/../..", "http://example.com/"),
        ("http://example.com/a/..", "http://example.com/"),
        ("http://example.com/a//b/", "http://example.com/a//b/"),
        ("http://example.com/%7Eli/%e8%8c%b6?x=%2f", "http://example.com/~li/%E8%8C%B6?x=%2F"),
        ("http://example.com/茶", "http://example.com/%E8%8C%B6"),
        ("http://example.com/100%", "http://example.com/100%25"),
        ("http://例子.测试/", "http://xn--fsqu00a.xn--0zwm56d/"),
        ("http://example。com/", "http://example.com/"),
        ("http://[2001:DB8::0:1]:80/", "http://[2001:db8::1]/"),
        ("http://example.com?q=1", "http://example.com/?q=1"),
    ],
)
def test_the_canonical_form(url, canonical):
    """One page has one URL."""
    assert str(web_url(url)) == canonical


_TEXT = st.text(
    st.characters(
        codec="utf-8", exclude_characters="\\", exclude_categories=["Cc", "Zs", "Zl", "Zp"]
    )
)


@given(
    st.sampled_from(["http", "https"]),
    st.sampled_from(["example.com", "[::1]", "1.2.3.4", "例子.测试"]),
    _TEXT,
)
def test_the_canonical_form_is_stable(scheme, host, rest):
    """A canonical URL is its own canonical form, in ASCII, without fragment, and of the same
    host.
    """
    url = web_url(f"{scheme}://{host}/{rest}")
    assert web_url(str(url)) == url
    assert str(url).isascii()
    assert "#" not in str(url)
    assert url.host == web_url(f"{scheme}://{host}").host


@given(st.text(max_size=60))
def test_any_text_is_a_url_of_the_web_or_refused(text):
    """Whatever is accepted has the host that Python's parser and the canonical text both see, and
    no user.
    """
    try:
        url = web_url("http://" + text)
    except ConfigError:
        return
    parts = urllib.parse.urlsplit(str(url))
    assert parts.hostname == url.host
    assert (parts.port or 80) == url.port
    assert parts.username is None
    assert not set(str(url)) & set(" \t\r\n\\")


def test_a_relative_url_stays_on_the_web():
    """Links are resolved; those that leave the web are refused."""
    base = web_url("https://example.com/a/b")
    assert str(web_url("../c?d", base)) == "https://example.com/c?d"
    assert str(web_url("//other.example/x", base)) == "https://other.example/x"
    for reference in ("mailto:li@example.com", "data:text/html,x", "file:///etc/passwd"):
        with pytest.raises(ConfigError):
            web_url(reference, base)


def test_all_addresses_of_a_host_are_checked(monkeypatch):
    """A host with a public and a private address is refused."""
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80))
        for address in ("8.8.8.8", "10.0.0.1")
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(FetchError, match=r"resolves to 10\.0\.0\.1, which is a private address"):
        AddressRule().resolved(web_url("http://example.com/"))
    assert AddressRule(allow_private=True).resolved(web_url("http://example.com/")) == [
        "8.8.8.8",
        "10.0.0.1",
    ]


def test_the_allow_list_names_hosts_with_or_without_port():
    """A host in the list may lie anywhere; another port or name is not meant."""
    url = web_url("http://127.0.0.1:8080/")
    assert AddressRule(allow_hosts=("127.0.0.1:8080",)).resolved(url) == ["127.0.0.1"]
    for hosts in (("127.0.0.1:80",), ("localhost",)):
        with pytest.raises(FetchError, match="loopback"):
            AddressRule(allow_hosts=hosts).resolved(url)


def test_a_host_without_address_is_an_error_of_ours():
    """A name that does not resolve says so."""
    with pytest.raises(FetchError, match="has no address"):
        AddressRule().resolved(web_url("http://no-such-host.invalid/"))
