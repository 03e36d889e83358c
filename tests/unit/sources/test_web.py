"""Websites, link by link: order, scope, robots.txt, types, limits, and pages that mean harm."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Document, Retriever
from lazyrag.errors import ConfigError, LoadError
from lazyrag.sources import CutShort, FailedItem, SourceItem, WebsiteSource, metadata_of
from lazyrag.sources.http import web_url
from lazyrag.sources.web import MAX_LINKS, delay_s, links_of, parse_robots
from tests.web_server import Web


@pytest.fixture
def web():
    """A local server."""
    served = Web()
    yield served
    served.close()


def page(text, *links):
    """A page with links."""
    return f"<html><title>{text}</title><body><p>{text}</p>" + "".join(
        f'<a href="{link}">x</a>' for link in links
    )


def source_of(web, path="/", **options):
    """A source that may ask the server."""
    return WebsiteSource(
        web.url + path, **{"allow_private": True, "retries": 0, "backoff_s": 0.01, **options}
    )


def paths(source):
    """Paths of the pages that come; anything else as it is."""
    return [
        web_url(event.identity).target if isinstance(event, SourceItem) else event for event in source.items()
    ]  # fmt: skip


@pytest.mark.parametrize("concurrency", [1, 4])
def test_pages_come_in_the_order_of_the_links(web, concurrency):
    """Level by level, each once, whatever answers first; fragments and other forms of a URL are the
    same page.
    """
    web.routes["/"] = page(
        "home", "/slow", "b#part", "./b", f"HTTP://127.0.0.1:{web.port}/c", "mailto:x@y.z", "/"
    )
    web.routes["/slow"] = lambda _: time.sleep(0.1) or page("slow", "/d", "/b")
    web.routes["/b"] = page("b", "/e")
    web.routes["/c"] = page("c")
    web.routes["/d"] = page("d")
    web.routes["/e"] = page("e", "/d")
    assert paths(source_of(web, concurrency=concurrency)) == ["/", "/slow", "/b", "/c", "/d", "/e"]
    assert sorted(web.paths) == ["/", "/b", "/c", "/d", "/e", "/slow"]


def test_scope(web):
    """Depth, host, include and exclude; what is out of scope is not asked for."""
    web.routes["/"] = page(
        "home", "/docs/a", "/blog/x", "/docs/old/y", "http://other.example/", "/docs/a?print=1"
    )
    web.routes["/docs/a"] = page("a", "/docs/b")
    web.routes["/docs/b"] = page("b", "/docs/c")
    web.routes["/docs/c"] = page("c")
    source = source_of(web, include=["/docs/*"], exclude=["/docs/old/*", "*?print=*"], max_depth=2)
    assert paths(source) == ["/", "/docs/a", "/docs/b"]
    assert web.paths == ["/", "/docs/a", "/docs/b"]
    assert paths(source_of(web, max_depth=0)) == ["/"]
    assert paths(source_of(web, include=[f"{web.url}/docs/a"])) == ["/", "/docs/a"]


def test_robots_txt_is_respected(web):
    """What it forbids to us is not asked for, on redirects neither; rules for others do not
    count.
    """
    web.routes["/robots.txt"] = (
        200,
        {},
        b"\xef\xbb\xbfUser-agent: lazyrag\nDisallow: /private\n\nUser-agent: *\nDisallow: /",
    )
    web.routes["/"] = page("home", "/private/a", "/open", "/led")
    web.routes["/open"] = page("open")
    web.routes["/led"] = (302, {"Location": "/private/b"}, b"")
    assert paths(source_of(web)) == ["/", "/open"]
    assert sorted(web.paths) == ["/", "/led", "/open"]
    assert sum(request.path == "/robots.txt" for request in web.requests) == 1
    with pytest.raises(LoadError, match=r"robots.txt of .* forbids"):
        list(source_of(web, user_agent="OtherBot/1.0").items())
    with pytest.raises(LoadError, match=r"leads to what its robots\.txt forbids"):
        list(source_of(web, "/led").items())


@pytest.mark.parametrize(
    ("answer", "allowed"), [((404, {}, b""), True), ((403, {}, b""), True), ((503, {}, b""), False)]
)
def test_robots_txt_that_is_not_there(web, answer, allowed):
    """No file allows everything; one that cannot be had for the moment allows nothing (RFC
    9309).
    """
    web.routes["/robots.txt"] = answer
    web.routes["/"] = page("home")
    if allowed:
        assert paths(source_of(web)) == ["/"]
        return
    with pytest.raises(LoadError, match=r"robots\.txt answers 503"):
        list(source_of(web).items())
    assert web.paths == []


def test_a_host_may_ask_for_pauses(web):
    """Crawl-delay is kept between the starts of requests, one after the other."""
    times = []

    def timed(_):
        times.append(time.monotonic())
        return page("x", "/a", "/b")

    web.routes.update(dict.fromkeys(["/", "/a", "/b"], timed))
    web.routes["/robots.txt"] = (200, {}, b"User-agent: *\nRequest-rate: 10/2")
    assert len(paths(source_of(web, concurrency=4))) == 3
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) > 0.15
    web.routes["/robots.txt"] = (200, {}, b"User-agent: *\nCrawl-delay: 100000")
    *_, last = source_of(web, max_seconds=5).items()
    assert isinstance(last, CutShort)


def test_noindex_and_nofollow(web):
    """As meta element, as header, and as a link's rel."""
    web.routes["/"] = (
        page("home", "/noindex", "/nofollow", "/header")
        + '<a rel="external nofollow" href="/never">x</a>'
    )
    web.routes["/noindex"] = '<meta name="Robots" content="NoIndex">' + page("hidden", "/found")
    web.routes["/nofollow"] = '<meta name="robots" content="nofollow">' + page("kept", "/never")
    web.routes["/header"] = (
        200,
        {"Content-Type": "text/html", "X-Robots-Tag": "none"},
        page("x", "/never").encode(),
    )
    web.routes["/found"] = page("found")
    assert paths(source_of(web)) == ["/", "/nofollow", "/found"]
    assert "/never" not in web.paths


def test_types(web):
    """Pages, text, Markdown and PDF are kept under their suffixes; other types are passed over."""
    web.routes["/"] = page("home", "/t", "/m", "/p", "/png", "/x", "/none", "/none2", "/zip")
    for path, kind, body in [
        ("/t", "text/plain", b"tea"),
        ("/m", "text/markdown; charset=utf-8", b"# tea"),
        ("/p", "application/pdf", b"%PDF-1.4"),
        ("/png", "image/png", b"png"),
        ("/x", "application/xhtml+xml", b"<p>x</p>"),
        ("/none", "", b" <!DOCTYPE HTML><p>y"),
        ("/none2", "", b"\x00\x01"),
        ("/zip", "application/zip", b"PK"),
    ]:
        web.routes[path] = (200, {"Content-Type": kind} if kind else {}, body)
    items = list(source_of(web).items())
    assert [(web_url(item.identity).target, item.suffix) for item in items] == [
        ("/", ".html"), ("/t", ".txt"), ("/m", ".md"), ("/p", ".pdf"), ("/x", ".html"), ("/none", ".html")
    ]  # fmt: skip
    assert items[3].content == b"%PDF-1.4"
    with pytest.raises(LoadError, match="type 'image/png'"):
        list(source_of(web, "/png").items())


def test_encodings(web):
    """The encoding that the answer declares is kept by writing UTF-8; a page that is no text fails
    alone.
    """
    web.routes["/"] = (
        200,
        {"Content-Type": "text/html; charset=gbk"},
        page("绿茶与红茶", "/茶?q=茶", "/bad").encode("gbk"),
    )
    web.routes["/%E8%8C%B6"] = page("茶")
    web.routes["/bad"] = (200, {"Content-Type": "text/plain"}, bytes(range(128, 160)) * 40)
    home, tea, bad = source_of(web).items()
    assert "绿茶与红茶" in home.content.decode()
    assert tea.identity == f"{web.url}/%E8%8C%B6?q=%E8%8C%B6"
    assert isinstance(bad, FailedItem)
    [item, *_] = source_of(web, max_pages=1, max_depth=0).load()
    assert item.text == "绿茶与红茶\n\nxx"


def test_redirects(web):
    """A page is known by where it lies in the end, once; where the first page leads is the host
    that is kept to.
    """
    web.routes["/start"] = (301, {"Location": "/home/"}, b"")
    web.routes["/home/"] = page("home", "/old", "/new", "/away", "/start", "/circle")
    web.routes["/old"] = (302, {"Location": "/new"}, b"")
    web.routes["/new"] = page("new")
    web.routes["/away"] = (302, {"Location": f"http://localhost:{web.port}/new"}, b"")
    web.routes["/circle"] = (302, {"Location": "/circle"}, b"")
    home, new, circle = paths(source_of(web, "/start"))
    assert (home, new) == ("/home/", "/new")
    assert "circle" in circle.error
    web.routes["/other"] = (301, {"Location": f"http://localhost:{web.port}/home/"}, b"")
    first, *_ = source_of(web, "/other").items()
    assert first.identity == f"http://localhost:{web.port}/home/"


def test_failures(web):
    """A page that fails is one failure; gone, refused and passing ones are told apart; the first's
    goes up.
    """
    web.routes["/"] = page("home", "/gone", "/secret", "/down", "/cut")
    web.routes["/gone"] = (410, {}, b"")
    web.routes["/secret"] = (403, {}, b"")
    web.routes["/down"] = (500, {}, b"")
    web.routes["/cut"] = (200, {"Content-Length": "99"}, b"half")
    _, *failed = source_of(web).items()
    assert [(one.gone, one.transient) for one in failed] == [
        (True, False),
        (False, False),
        (False, True),
        (False, True),
    ]
    with pytest.raises(LoadError, match="answers 404"):
        list(source_of(web, "/missing").items())


def test_limits(web):
    """max_pages is the number of pages that come, the first ones; max_seconds ends the run; both
    say so.
    """
    for number in range(30):
        web.routes[f"/{number or ''}"] = page(
            str(number), f"/{2 * number + 1}", f"/{2 * number + 2}"
        )
    *items, last = paths(source_of(web, max_pages=5, concurrency=3))
    assert items == ["/", "/1", "/2", "/3", "/4"]
    assert last == CutShort("there are more than max_pages=5")
    assert len(web.paths) == 5
    *items, last = paths(source_of(web, max_seconds=0.1, delay_s=0.06))
    assert len(items) in {1, 2}
    assert "max_seconds" in last.reason


def test_all_pages_together_have_a_limit(web):
    """What would be more than max_total_bytes is not kept, and the run says so."""
    web.routes["/"] = page("home", "/a", "/b")
    web.routes["/a"] = web.routes["/b"] = page("x" * 1000)
    *items, last = paths(source_of(web, max_total_bytes=3000))
    assert items == ["/", "/a"]
    assert last == CutShort("there are more than max_total_bytes=3,000")


@pytest.mark.slow
def test_a_hundred_thousand_links(web):
    """The first links of a page are followed, and the run says that it is not complete."""
    web.routes["/"] = page("home", *(f"/{number}" for number in range(100_000)))
    began = time.process_time()
    *events, last = source_of(web, max_depth=0).items()
    assert len(events) == 1
    assert f"more than {MAX_LINKS:,} links" in last.reason
    assert time.process_time() - began < 20


def test_links_that_lead_nowhere_end(web):
    """A page of dead links costs ten requests for each page that is wanted, and no more."""
    web.routes["/"] = page("home", *(f"/{number}" for number in range(1000)))
    *_, last = source_of(web, max_pages=3).items()
    assert last == CutShort("30 requests gave only 1 pages")
    assert len(web.paths) == 30


def test_a_page_may_not_lead_inside(web):
    """Without allow_private a website cannot name this machine, in whatever form."""
    web.routes["/"] = page(
        "home",
        f"http://localhost:{web.port}/a",
        "http://169.254.169.254/",
        "http://[::1]/",
        "http://0x7f.1/",
    )
    events = list(
        source_of(web, same_host=False, allow_private=False, allow_hosts=["127.0.0.1"]).items()
    )
    assert [type(event) for event in events] == [SourceItem, FailedItem, FailedItem, FailedItem]
    assert web.paths == ["/"]


def test_a_folder_follows_a_website(web, tmp_path):
    """Changed pages are updated, pages that are gone removed, pages that fail for now kept; a
    Document answers.
    """
    web.routes["/"] = page("home", "/a", "/b", "/c")
    for name in "abc":
        web.routes[f"/{name}"] = page(f"Tea {name} grows in Uji")
    source = source_of(web)
    assert len(source.fetch(tmp_path).added) == 4
    web.routes["/a"] = page("Tea a grows in Kyoto")
    web.routes["/b"] = (500, {}, b"")
    web.routes["/"] = page("home", "/a", "/b")
    report = source.fetch(tmp_path)
    assert (report.updated, report.retained) == (
        (f"{web.url}/", f"{web.url}/a"),
        (f"{web.url}/b", f"{web.url}/c"),
    )
    web.routes["/b"] = (404, {}, b"")
    assert source.fetch(tmp_path).removed == (f"{web.url}/b", f"{web.url}/c")
    docs = Document(tmp_path, file_metadata=metadata_of(tmp_path))
    [node] = Retriever(docs, "CoarseChunk", similarity="bm25", topk=1)("Kyoto")
    assert node.global_metadata["source"] == f"{web.url}/a"
    assert node.global_metadata["title"] == "Tea a grows in Kyoto"


def test_pages_are_stored_as_their_main_text(web):
    """Links of navigation are followed, and left out of the stored pages unless main_text=False."""
    article = "".join(f"<p>Leaf {number} is picked in April and dried.</p>" for number in range(9))
    time = "<time datetime=2024-05-01>May</time>"
    menu = f"<footer>{time}<a href=/a>Teas of the house</a></footer>"
    web.routes["/"] = f"<title>Tea</title><main>{article}</main>{menu}"
    web.routes["/a"] = page("Tea a")
    [home, _] = source_of(web).load()
    assert "Teas of the house" not in home.text
    assert "Leaf 8" in home.text
    assert (home.metadata["title"], home.metadata["date"]) == ("Tea", "2024-05-01")
    [home, _] = source_of(web, main_text=False).items()
    assert home.content.decode() == web.routes["/"]


def test_closing_early_ends_the_threads(web):
    """Whoever takes only the first pages leaves nothing running."""
    web.routes["/"] = page("home", *(f"/{number}" for number in range(9)))
    events = source_of(web, concurrency=4).items()
    assert next(events).identity == f"{web.url}/"
    events.close()


def test_an_empty_page_has_no_links(web):
    """A page without an element is kept, and leads nowhere."""
    web.routes["/"] = (200, {"Content-Type": "text/html"}, b"")
    assert paths(source_of(web)) == ["/"]


@given(st.binary(max_size=300))
def test_any_bytes_are_a_page(data):
    """Links are found or not; nothing is an error, and all are URLs of the web."""
    found = links_of(data + b"<a href='/tea'>x", web_url("https://example.com/"))
    assert all(url.scheme in {"http", "https"} for url in found.urls)


@pytest.mark.parametrize(
    "options",
    [
        {"url": "example.com"},
        {"max_pages": 0},
        {"max_depth": -1},
        {"same_host": None},
        {"include": "/docs"},
        {"concurrency": 17},
        {"delay_s": -1},
        {"max_seconds": 0},
        {"max_bytes": 0},
        {"max_total_bytes": 0},
    ],
)
def test_values_are_checked(options):
    """Before anything is asked."""
    with pytest.raises(ConfigError):
        WebsiteSource(**{"url": "http://example.com/", **options})


@pytest.mark.parametrize(
    ("rules", "path", "allowed"),
    [
        ("Disallow: /*.pdf$", "/a/tea.pdf", False),
        ("Disallow: /*.pdf$", "/a/tea.pdf?page=2", True),
        ("Disallow: /a/*/private", "/a/b/private/c", False),
        ("Disallow: /*a*b*$", "/xaybz", False),
        ("Disallow: /ab*b$", "/ab", True),
        ("Allow: /\nDisallow: /a/", "/a/b", False),
        ("Disallow: /a\nAllow: /a/b", "/a/b/c", True),
        ("Disallow: /a\nAllow: /a", "/a", True),
        ("Disallow: /%e7%bb%BF", "/%E7%BB%BF/1", False),
        ("Disallow: /绿", "/%E7%BB%BF/1", False),
        ("Disallow: http://[\nDisallow: //[x\nDisallow:", "/a", True),
        ("Disallow: /robots.txt", "/robots.txt", True),
        ("Disallow: /" + "*a" * 2000 + "b", "/" + "a" * 7900, True),
    ],
)
def test_the_longest_rule_of_robots_txt_decides(rules, path, allowed):
    """``*`` and ``$`` mean what RFC 9309 says, and lines that are none do no harm."""
    parsed = parse_robots(f"User-agent: *\n{rules}")
    assert parsed.can_fetch(str(web_url(f"http://example.com{path}")), "lazyrag") is allowed


@pytest.mark.parametrize("line", ["lazyrag", "LazyRAG", "lazyrag/1.0", "lazyrag # us"])
def test_rules_for_us_take_precedence(line):
    """A group for our product token, with or without a version, takes precedence over the one for
    all.
    """
    parsed = parse_robots(f"User-agent: *\nDisallow: /\n\nUser-agent: {line}\nDisallow: /private")
    assert parsed.can_fetch("http://example.com/open", "lazyrag")
    assert not parsed.can_fetch("http://example.com/private", "lazyrag")


@pytest.mark.parametrize(
    ("line", "delay"),
    [
        ("Crawl-delay: 0.5", 0.5),
        ("Crawl-delay: \u00b2", 0),
        ("Crawl-delay: " + "9" * 5000, 0),
        ("Crawl-delay: nan", 0),
        ("Request-rate: 2/1m 0900-1000", 30),
        ("Request-rate: 0/5", 0),
        ("Request-rate: \u00b2/1", 0),
    ],
)
def test_pauses_that_are_no_numbers_are_passed_over(line, delay):
    """What a website says of pauses ends no run."""
    assert delay_s(parse_robots(f"User-agent: *\n{line}"), "lazyrag") == delay


@pytest.mark.parametrize("headers", [{"Content-Encoding": "gzip"}, {"Content-Encoding": "br"}])
def test_an_error_counts_by_its_status(web, headers):
    """A page that is gone is gone, even if what the server says of it cannot be unpacked."""
    web.routes["/"] = page("home", "/gone")
    web.routes["/gone"] = (404, headers, b"no gzip")
    [failed] = [event for event in source_of(web).items() if isinstance(event, FailedItem)]
    assert failed.gone
