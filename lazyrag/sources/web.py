"""Websites: `WebsiteSource` follows links and respects robots.txt."""

from __future__ import annotations

import fnmatch
import re
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple, Unpack

from lxml import etree
from protego import Protego

from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders.detect import decode
from lazyrag.loaders.html import main_markup
from lazyrag.sources.base import (
    BaseSource,
    CutShort,
    Event,
    FailedItem,
    FetchError,
    SourceItem,
    digest,
)
from lazyrag.sources.http import HttpResponse, WebClient, WebOptions, WebUrl, make_client, web_url
from lazyrag.validation import (
    validate_boolean,
    validate_integer,
    validate_range,
    validate_seconds,
    validate_texts,
)

MAX_LINKS = 10_000
"""Links of one page that are followed."""


@dataclass(frozen=True, slots=True)
class PageLinks:
    """The links of a page.

    Args:
        urls: In page order, without duplicates; none if the page forbids to follow its links.
        may_be_indexed: Whether the page allows indexing.
        is_complete: False if it has more than `MAX_LINKS` links.
    """

    urls: tuple[WebUrl, ...] = ()
    may_be_indexed: bool = True
    is_complete: bool = True


def links_of(markup: bytes, url: WebUrl, robots_header: str = "") -> PageLinks:
    """Extract the links of an HTML page to http and https, without fragments.

    Args:
        markup: The page, in UTF-8.
        url: Its URL.
        robots_header: The response's ``X-Robots-Tag``.

    Example:
        >>> page = b"<a href='b#part'>B</a> <a href='mailto:li@example.com'>Li</a>"
        >>> [str(link) for link in links_of(page, web_url("https://example.com/a")).urls]
        ['https://example.com/b']
    """
    parser = etree.HTMLParser(
        encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True
    )
    try:
        root = etree.fromstring(markup, parser)
    except etree.XMLSyntaxError:  # a page without an element
        root = None
    directives = _words(robots_header)
    for meta in root.iter("meta") if root is not None else ():
        if (meta.get("name") or "").strip().lower() == "robots":
            directives |= _words(meta.get("content"))
    may_be_indexed = directives.isdisjoint({"noindex", "none"})
    if root is None or not directives.isdisjoint({"nofollow", "none"}):
        return PageLinks((), may_be_indexed)
    bases = [reference for element in root.iter("base") if (reference := element.get("href"))]
    base = (_resolved(bases[0], url) if bases else None) or url
    links: dict[WebUrl, None] = {}
    for number, reference in enumerate(_references(root)):
        if number == MAX_LINKS:
            return PageLinks(tuple(links), may_be_indexed, is_complete=False)
        target = _resolved(reference, base)
        if target is not None:
            links.setdefault(target)
    return PageLinks(tuple(links), may_be_indexed)


def _references(root: etree._Element) -> Iterator[str]:
    for element in root.iter("a", "area"):
        reference = element.get("href")
        if reference and "nofollow" not in _words(element.get("rel")):
            yield reference


def _resolved(reference: str | None, base: WebUrl) -> WebUrl | None:
    """The target of a link; None for other schemes and malformed URLs."""
    try:
        return web_url(reference, base)
    except ConfigError:
        return None


def _words(text: str | None) -> set[str]:
    return set((text or "").lower().replace(",", " ").replace(":", " ").split())


_MAX_BYTES = 512_000  # RFC 9309: at least 500 KiB are read
_AGENT_VERSION = re.compile(r"(?im)^([ \t]*user-agent[ \t]*:[^/#\n]*)/[^\n]*")


def parse_robots(text: str) -> Protego:
    r"""Parse a robots.txt (RFC 9309).

    Example:
        >>> rules = parse_robots("User-agent: *\nDisallow: /*.pdf$")
        >>> urls = [f"https://example.com/{path}" for path in ("list.pdf", "list.pdf?page=2")]
        >>> [rules.can_fetch(url, "lazyrag") for url in urls]
        [False, True]
    """
    return Protego.parse(_AGENT_VERSION.sub(r"\1", text))


def delay_s(rules: Protego, agent: str) -> float:
    """Seconds between two requests, by ``Crawl-delay`` and ``Request-rate``."""
    rate = rules.request_rate(agent)
    return max(rules.crawl_delay(agent) or 0.0, rate.seconds / rate.requests if rate else 0.0)


class Robots:
    """The robots.txt of each host, read once.

    A host without the file allows everything; one whose file is temporarily unavailable allows
    nothing.

    Args:
        client: Fetches the files; the rules are those for its user agent.
    """

    def __init__(self, client: WebClient) -> None:
        self._client = client
        self._agent = client.user_agent.partition("/")[0].strip()
        self._rules: dict[tuple[str, str, int], Protego | FetchError] = {}

    def allows(self, url: WebUrl) -> bool:
        """Whether a URL may be fetched.

        Raises:
            FetchError: If the rules of its host are temporarily unavailable.
        """
        return self._rules_of(url).can_fetch(str(url), self._agent)

    def delay_s(self, url: WebUrl) -> float:
        """Seconds that its host wants between two requests."""
        return delay_s(self._rules_of(url), self._agent)

    def _rules_of(self, url: WebUrl) -> Protego:
        if url.origin not in self._rules:
            self._rules[url.origin] = self._fetched(WebUrl(*url.origin, "/robots.txt"))
        rules = self._rules[url.origin]
        if isinstance(rules, FetchError):
            raise rules
        return rules

    def _fetched(self, url: WebUrl) -> Protego | FetchError:
        try:
            body = self._client.get(url, accept="text/plain").body[:_MAX_BYTES]
        except FetchError as exc:
            if (
                not HTTPStatus.BAD_REQUEST <= exc.status < HTTPStatus.INTERNAL_SERVER_ERROR
                or exc.transient
            ):
                return exc
            body = b""
        return parse_robots(body.decode("utf-8-sig", "replace"))


_SUFFIXES = {
    "text/html": ".html",
    "application/xhtml+xml": ".html",
    "text/plain": ".txt",
    "text/markdown": ".md",
    "application/pdf": ".pdf",
}
_SNIFFED = 1024
_GONE = frozenset([404, 410])
_REQUESTS_PER_PAGE = 10  # links may lead to nothing, for ever


class WebsiteSource(BaseSource):
    """Crawls a website from a URL; each page is an item, identified by its URL.

    HTML, plain text, Markdown and PDF are stored, other types skipped. Pages come in link order,
    level by level, whichever server answers first. ``robots.txt``, ``nofollow`` and ``noindex`` are
    respected.

    Args:
        url: The first page.
        max_pages: Maximum of pages; ten times as many requests are sent at most. A run that reaches
            a limit is cut short, and removes nothing.
        max_depth: Maximum of links from the first page; 0 for this page alone.
        same_host: Stay on the host of the first page.
        include: Patterns such as ``"/docs/*"`` for path and query of the pages to read, or for
            complete URLs if they contain ``://``; () for all. The first page is always read.
        exclude: Patterns of pages to skip.
        concurrency: Parallel requests, 1 to 16; 1 where a host wants a pause between requests.
        delay_s: Seconds between the starts of two requests; a host's ``Crawl-delay`` counts if it
            is longer.
        max_seconds: Maximum duration.
        max_total_bytes: Maximum size of all responses.
        main_text: Store only head and main text of HTML pages, without banners, navigation, side
            bars, comments, related links and footers; False for the complete pages.
        web: The keywords of `lazyrag.sources.http.WebClient`, such as ``user_agent`` and
            ``allow_private``.

    Raises:
        ConfigError: If an argument is out of its range.

    Example::

        website = WebsiteSource("https://docs.example.com/", include=["/guide/*"], max_pages=500)
        website.fetch("site")
        docs = Document("site", file_metadata=metadata_of("site"))
    """

    def __init__(
        self,
        url: str,
        *,
        max_pages: int = 100,
        max_depth: int = 5,
        same_host: bool = True,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        concurrency: int = 2,
        delay_s: float = 0.0,
        max_seconds: float = 3600.0,
        max_total_bytes: int = 1_000_000_000,
        main_text: bool = True,
        **web: Unpack[WebOptions],
    ) -> None:
        self._url = web_url(url)
        self._max_pages = validate_integer("max_pages", max_pages, 1)
        self._max_depth = validate_integer("max_depth", max_depth, 0)
        self._same_host = validate_boolean("same_host", same_host)
        self._include = validate_texts("include", include)
        self._exclude = validate_texts("exclude", exclude)
        self._concurrency = validate_integer("concurrency", concurrency, 1, 16)
        self._max_seconds = longest = validate_seconds("max_seconds", max_seconds)
        expected = "a number of seconds from 0 to max_seconds"
        self._delay_s = validate_range("delay_s", delay_s, 0, longest, expected)
        self._max_total_bytes = validate_integer("max_total_bytes", max_total_bytes, 1)
        self._main_text = validate_boolean("main_text", main_text)
        self._client = make_client(WebsiteSource, self._url, web)

    def __repr__(self) -> str:
        return f"WebsiteSource({self._url.shown!r})"

    @property
    def name(self) -> str:
        """The URL."""
        query = self._url.target.partition("?")[2]
        return f"website {self._url.shown}" + (f" {digest(query)}" if query else "")

    def items(self) -> Iterator[Event]:
        """Crawl.

        Raises:
            LoadError: If the first page cannot be fetched.
        """
        crawl = _Crawl(self, Robots(self._client), time.monotonic() + self._max_seconds)
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="lazyrag-website") as pool:
            try:
                yield from crawl.events(pool)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _wants(self, url: WebUrl, host: str) -> bool:
        if self._same_host and url.host != host:
            return False
        if self._include and not _matches(url, self._include):
            return False
        return not _matches(url, self._exclude)


class _Visit(NamedTuple):
    """A page to fetch, and its distance from the first one."""

    url: WebUrl
    depth: int


class _SkippedError(Exception):
    """A redirect leads to an unwanted page."""


class _Crawl:
    """One run through a website."""

    def __init__(self, source: WebsiteSource, robots: Robots, ends_at: float) -> None:
        self._source = source
        self._robots = robots
        self._ends_at = ends_at
        self._host = source._url.host
        self._pending: deque[_Visit] = deque([_Visit(source._url, 0)])
        self._queued = {source._url}
        self._fetched: set[WebUrl] = set()
        self._kept = 0
        self._requests = 0
        self._bytes = 0
        self._starts_at: dict[tuple[str, str, int], float] = {}
        self._cut_short = ""
        self._links_left = ""  # makes the run incomplete without ending it

    def events(self, pool: ThreadPoolExecutor) -> Iterator[Event]:
        """Fetch pages in queue order, some of them ahead."""
        ahead: deque[tuple[_Visit, Future[HttpResponse]]] = deque()
        while ahead or (self._pending and not self._cut_short):
            yield from self._fetch_ahead(pool, ahead)
            if not ahead:
                continue
            visit, answer = ahead.popleft()
            event = self._event(visit, answer)
            if event is not None:
                yield event
            if self._kept == self._source._max_pages and (self._pending or ahead):
                self._cut_short = self._cut_short or f"there are more than max_pages={self._kept}"
        if reason := self._cut_short or self._links_left:
            yield CutShort(reason)

    def _fetch_ahead(
        self, pool: ThreadPoolExecutor, ahead: deque[tuple[_Visit, Future[HttpResponse]]]
    ) -> Iterator[FailedItem]:
        """Begin to fetch pending pages while there is room; yield those that must not be."""
        while (
            self._pending
            and not self._cut_short
            and len(ahead) < min(self._room(), self._source._max_pages - self._kept)
        ):
            visit = self._pending.popleft()
            try:
                may_start = self._may_start(visit)
            except FetchError as exc:
                yield self._failed(visit, exc)
                continue
            if may_start:
                ahead.append((visit, pool.submit(self._get, visit)))

    def _room(self) -> int:
        return (
            1
            if self._source._delay_s or any(self._starts_at.values())
            else self._source._concurrency
        )

    def _may_start(self, visit: _Visit) -> bool:
        """Wait for a page's turn; False if robots.txt forbids it or a limit is reached."""
        now = time.monotonic()
        if self._requests >= _REQUESTS_PER_PAGE * self._source._max_pages:
            self._cut_short = f"{self._requests} requests gave only {self._kept} pages"
            return False
        if not self._robots.allows(visit.url):
            if visit.depth == 0:
                raise visit.url.error(
                    f"is what the robots.txt of {visit.url.netloc} forbids. Ask its owner."
                )
            return False
        delay = max(self._source._delay_s, self._robots.delay_s(visit.url))
        turn = max(now, self._starts_at.get(visit.url.origin, 0.0))
        if turn > self._ends_at:
            self._cut_short = f"max_seconds={self._source._max_seconds:g} are over"
            return False
        time.sleep(max(0.0, turn - now))
        self._requests += 1
        self._starts_at[visit.url.origin] = turn + delay if delay else 0.0
        return True

    def _get(self, visit: _Visit) -> HttpResponse:
        def check(url: WebUrl) -> None:
            first = visit.depth == 0  # it may redirect: example.com to www.example.com
            if not (first or self._source._wants(url, self._host)) or not self._robots.allows(url):
                raise _SkippedError

        accept = "text/html, application/xhtml+xml, text/plain, text/markdown, application/pdf"
        return self._source._client.get(visit.url, accept=accept, on_redirect=check)

    def _event(self, visit: _Visit, future: Future[HttpResponse]) -> Event | None:
        try:
            answer = future.result()
            if visit.depth == 0:
                self._host = answer.url.host
            if answer.url in self._fetched:
                return None
            self._fetched.add(answer.url)
            self._queued.add(answer.url)
            self._bytes += len(answer.body)
            if self._bytes > self._source._max_total_bytes:
                self._cut_short = (
                    f"there are more than max_total_bytes={self._source._max_total_bytes:,}"
                )
                return None
            return self._item(visit, answer)
        except _SkippedError as exc:
            if visit.depth == 0:
                raise visit.url.error(
                    "leads to what its robots.txt forbids. Ask its owner."
                ) from exc
            return None
        except LoadError as exc:
            return self._failed(visit, exc)

    def _item(self, visit: _Visit, answer: HttpResponse) -> Event | None:
        suffix = _suffix(answer)
        robots_header = answer.headers.get("x-robots-tag", "")
        content = answer.body if suffix in {"", ".pdf"} else _as_utf8(answer)
        links = links_of(content, answer.url, robots_header) if suffix == ".html" else PageLinks()
        if not links.is_complete:
            self._links_left = f"{answer.url.shown} has more than {MAX_LINKS:,} links"
        if visit.depth < self._source._max_depth:
            for url in links.urls:
                if url not in self._queued and self._source._wants(url, self._host):
                    self._queued.add(url)
                    self._pending.append(_Visit(url, visit.depth + 1))
        if visit.depth == 0 and not suffix:
            problem = f"is of the type {answer.content_type!r:.60}. Pages, text and PDF are read."
            raise answer.url.error(problem, status=answer.status)
        if not suffix or not links.may_be_indexed or "noindex" in robots_header.lower():
            return None
        self._kept += 1
        if self._source._main_text and suffix == ".html":
            content = _main_content(content)
        return SourceItem(str(answer.url), content, suffix, {"url": str(answer.url)})

    @staticmethod
    def _failed(visit: _Visit, exc: LoadError) -> FailedItem:
        """Report a failed page; raise if it is the first one."""
        if visit.depth == 0:
            raise exc
        status, transient = (
            (exc.status, exc.transient) if isinstance(exc, FetchError) else (0, False)
        )
        return FailedItem(str(visit.url), str(exc), transient, gone=status in _GONE)


def _matches(url: WebUrl, patterns: Sequence[str]) -> bool:
    return any(
        fnmatch.fnmatchcase(str(url) if "://" in pattern else url.target, pattern)
        for pattern in patterns
    )


def _suffix(answer: HttpResponse) -> str:
    """The suffix of a page's file; "" for types that are skipped."""
    if answer.content_type:
        return _SUFFIXES.get(answer.content_type, "")
    beginning = answer.body[:_SNIFFED].lstrip().lower()
    if beginning.startswith(b"%pdf-"):
        return ".pdf"
    return ".html" if beginning.startswith((b"<!doctype html", b"<html")) else ""


def _main_content(content: bytes) -> bytes:
    """The main text of a page with its head; a page that cannot be parsed as it is."""
    try:
        return main_markup(content.decode("utf-8", "replace")).encode("utf-8", "replace")
    except LoadError:
        return content


def _as_utf8(answer: HttpResponse) -> bytes:
    """A page's bytes as UTF-8: a file would lose the encoding that the response declares."""
    try:
        answer.body.decode("utf-8")
    except UnicodeDecodeError:
        return decode(answer.body, declared=answer.charset).encode("utf-8", "replace")
    return answer.body
