"""The pages of a website, link by link."""

from __future__ import annotations

import fnmatch
import os
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

from lxml import etree

from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders.detect import decode
from lazyrag.sources.base import (
    CutShort,
    Event,
    FailedItem,
    FetchError,
    FetchReport,
    LoadedItem,
    SourceItem,
    digest,
    fetch,
    loaded_items,
)
from lazyrag.sources.http import Answer, WebClient, WebUrl, checked_seconds, make_client, quoted_target, web_url
from lazyrag.validation import text_list, whole_number, yes_or_no

if TYPE_CHECKING:
    from typing import Unpack

    from lazyrag.sources.http import WebOptions


MOST_LINKS = 10_000
"""Links of one page that are looked at."""


@dataclass(frozen=True, slots=True)
class PageLinks:
    """What a page links to.

    Args:
        urls: In the order of the page, each once; none if the page asks that its links be not followed.
        may_be_kept: Whether the page allows that it is indexed.
        all_of_them: Whether it has no more than are looked at.
    """

    urls: tuple[WebUrl, ...] = ()
    may_be_kept: bool = True
    all_of_them: bool = True


def links_of(markup: bytes, url: WebUrl, robots_header: str = "") -> PageLinks:
    """The links of a page of HTML, in UTF-8: only those to http and https, without fragments.

    Args:
        markup: The page.
        url: Where it lies.
        robots_header: The value of the answer's ``X-Robots-Tag``.

    Example:
        >>> page = b"<a href='b#part'>B</a> <a href='mailto:li@example.com'>Li</a> <a rel=nofollow href=c>C</a>"
        >>> [str(one) for one in links_of(page, web_url("https://example.com/a")).urls]
        ['https://example.com/b']
    """
    parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    try:
        root = etree.fromstring(markup, parser)
    except etree.XMLSyntaxError:  # a page without an element
        root = None
    told = _words(robots_header)
    if root is None:
        return PageLinks(may_be_kept=told.isdisjoint({"noindex", "none"}))
    for meta in root.iter("meta"):
        if (meta.get("name") or "").strip().lower() == "robots":
            told |= _words(meta.get("content"))
    may_be_kept = told.isdisjoint({"noindex", "none"})
    if not told.isdisjoint({"nofollow", "none"}):
        return PageLinks((), may_be_kept)
    base = next((_resolved(one.get("href"), url) for one in root.iter("base") if one.get("href")), None) or url
    found: dict[WebUrl, None] = {}
    for number, reference in enumerate(_references(root)):
        if number == MOST_LINKS:
            return PageLinks(tuple(found), may_be_kept, all_of_them=False)
        target = _resolved(reference, base)
        if target is not None:
            found.setdefault(target)
    return PageLinks(tuple(found), may_be_kept)


def _references(root: etree._Element) -> Iterator[str]:
    for element in root.iter("a", "area"):
        reference = element.get("href")
        if reference and "nofollow" not in _words(element.get("rel")):
            yield reference


def _resolved(reference: str | None, base: WebUrl) -> WebUrl | None:
    """A link's target; None for what is no page of the web."""
    try:
        return web_url(reference, base)
    except ConfigError:
        return None


def _words(text: str | None) -> set[str]:
    return set((text or "").lower().replace(",", " ").replace(":", " ").split())


_MOST_BYTES = 512_000  # RFC 9309: at least 500 KiB are read
_MOST_RULES = 10_000
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_RATE = re.compile(r"([0-9]{1,9})\s*/\s*([0-9]{1,9})([smh]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


@dataclass(slots=True)
class _Group:
    """The rules for some programs.

    Args:
        rules: Patterns of paths, and whether what one fits is allowed.
        delay_s: Seconds between two requests.
    """

    rules: list[tuple[str, bool]] = field(default_factory=list)
    delay_s: float = 0.0


class Rules:
    """What one robots.txt says to one program: the longest rule that fits a path decides, ``*`` and ``$`` understood.

    Lines that say nothing that can be understood are passed over.

    Args:
        lines: Of the file.
        agent: The program's name, without its version; rules for it go before those for all.

    Source:
        RFC 9309, Robots Exclusion Protocol.

    Example:
        >>> rules = Rules(["User-agent: *", "Disallow: /*.pdf$", "Allow: /teas/"], "lazyrag")
        >>> rules.allows("/list.pdf"), rules.allows("/list.pdf?page=2"), rules.allows("/teas/list.pdf")
        (False, True, False)
    """

    def __init__(self, lines: Iterable[str], agent: str) -> None:
        groups = _groups(lines)
        name = agent.lower()
        self._group = groups.get(name) or groups.get("*") or _Group()

    @property
    def delay_s(self) -> float:
        """Seconds that are wanted between two requests."""
        return self._group.delay_s

    def allows(self, target: str) -> bool:
        """Whether a path with its query may be read."""
        if target.partition("?")[0] == "/robots.txt":
            return True
        fitting = ((len(pattern), allowed) for pattern, allowed in self._group.rules if _fits(pattern, target))
        return max(fitting, default=(0, True))[1]  # of two that are equally long, the one that allows


def _groups(lines: Iterable[str]) -> dict[str, _Group]:
    """The rules by name of a program, in lower case; those that stand apart for one name belong together."""
    groups: dict[str, _Group] = {}
    current: list[_Group] = []
    names_end = True
    count = 0
    for key, value in _said(lines):
        if key == "user-agent":
            if names_end:
                current = []
            name = value.partition("/")[0].strip().lower()
            current.append(groups.setdefault(name, _Group()))
            names_end = False
            continue
        if key in {"allow", "disallow"}:
            names_end = True
            count += 1
            pattern = _pattern(value)
            if pattern and count <= _MOST_RULES:
                for group in current:
                    group.rules.append((pattern, key == "allow"))
        elif key in {"crawl-delay", "request-rate"}:
            names_end = True
            for group in current:
                group.delay_s = max(group.delay_s, _delay_s(key, value))
    return groups


def _said(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        key, colon, value = line.partition("#")[0].partition(":")
        if colon:
            yield key.strip().lower(), value.strip()


def _pattern(value: str) -> str:
    """A rule's path with its escapes as URLs have them here; "" for one that is none."""
    return quoted_target(value) if value.startswith(("/", "*")) else ""


def _fits(pattern: str, target: str) -> bool:
    """Whether a rule fits the beginning of a path, or with ``$`` the whole of it; in time that no rule can blow up."""
    is_whole = pattern.endswith("$")
    first, *rest = pattern.removesuffix("$").split("*")
    if not target.startswith(first):
        return False
    position = len(first)
    if is_whole and rest:
        *rest, last = rest
        end = len(target) - len(last)
    elif is_whole:
        return position == len(target)
    else:
        last, end = "", len(target)
    for piece in rest:
        found = target.find(piece, position)
        if found < 0:
            return False
        position = found + len(piece)
    return position <= end and target.endswith(last)


def _delay_s(key: str, value: str) -> float:
    """Seconds between two requests; 0 where a line says nothing that is understood."""
    if key == "crawl-delay":
        return float(value) if _SECONDS.fullmatch(value) else 0.0
    rate = _RATE.match(value)
    return int(rate[2]) * _UNITS[rate[3]] / int(rate[1]) if rate and int(rate[1]) else 0.0


class Robots:
    """The rules of the hosts that are asked, each read once.

    A host without the file allows everything; one whose file cannot be had for the moment allows nothing.

    Args:
        client: Asks for the files; its user agent is whom the rules are for.
    """

    def __init__(self, client: WebClient) -> None:
        self._client = client
        self._agent = client.user_agent.partition("/")[0].strip()
        self._rules: dict[tuple[str, str, int], Rules | FetchError] = {}

    def allows(self, url: WebUrl) -> bool:
        """Whether a URL may be read.

        Raises:
            FetchError: If the rules of its host cannot be had for the moment.
        """
        return self._of(url).allows(url.target)

    def delay_s(self, url: WebUrl) -> float:
        """Seconds that its host wants between two requests."""
        return self._of(url).delay_s

    def _of(self, url: WebUrl) -> Rules:
        if url.origin not in self._rules:
            self._rules[url.origin] = self._read(WebUrl(*url.origin, "/robots.txt"))
        rules = self._rules[url.origin]
        if isinstance(rules, FetchError):
            raise rules
        return rules

    def _read(self, url: WebUrl) -> Rules | FetchError:
        try:
            body = self._client.get(url, accept="text/plain").body[:_MOST_BYTES]
        except FetchError as exc:
            if not HTTPStatus.BAD_REQUEST <= exc.status < HTTPStatus.INTERNAL_SERVER_ERROR or exc.transient:
                return exc
            body = b""
        return Rules(body.decode("utf-8-sig", "replace").splitlines(), self._agent)


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


class WebsiteSource:
    """The pages that can be reached from a URL by following links; each is an item, known by its URL.

    Pages of HTML, plain text, Markdown and PDF are kept, other types passed over. The order is that of the links, level
    by level, whatever answers first. ``robots.txt``, ``nofollow`` and ``noindex`` are respected.

    Args:
        url: Where to begin.
        max_pages: Pages at most, and ten times as many requests; a run that comes to a limit is cut short, and removes
            nothing.
        max_depth: Links from the beginning at most; 0 for the one page.
        same_host: Whether to stay on the host of the first page.
        include: Patterns such as ``"/docs/*"`` for the path and query of the pages to read, or for whole URLs if they
            have ``://``; () for all. The first page is always read.
        exclude: Patterns of pages not to read.
        concurrency: Requests at the same time, 1 to 16; 1 where a host asks for a pause between requests.
        delay_s: Seconds between the starts of two requests; a host's own ``Crawl-delay`` counts if it is longer.
        max_seconds: Seconds at most.
        max_total_bytes: Bytes of all answers at most.
        web: The keywords of `lazyrag.sources.http.WebClient`, such as ``user_agent`` and ``allow_private``.

    Raises:
        ConfigError: If a value is of the wrong kind.

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
        **web: Unpack[WebOptions],
    ) -> None:
        self._url = web_url(url)
        self._max_pages = whole_number("max_pages", max_pages, 1)
        self._max_depth = whole_number("max_depth", max_depth, 0)
        self._same_host = yes_or_no("same_host", same_host)
        self._include = text_list("include", include)
        self._exclude = text_list("exclude", exclude)
        self._concurrency = whole_number("concurrency", concurrency, 1, 16)
        if isinstance(delay_s, bool) or not isinstance(delay_s, (int, float)) or not 0 <= delay_s <= max_seconds:
            msg = f"delay_s is {delay_s!r:.80}; give a number of seconds from 0 to max_seconds."
            raise ConfigError(msg)
        self._delay_s = float(delay_s)
        self._max_seconds = checked_seconds("max_seconds", max_seconds)
        self._max_total_bytes = whole_number("max_total_bytes", max_total_bytes, 1)
        self._client = make_client(WebsiteSource, self._url, web)

    def __repr__(self) -> str:
        return f"WebsiteSource({self._url.shown!r})"

    @property
    def name(self) -> str:
        """What a folder remembers it by."""
        query = self._url.target.partition("?")[2]
        return f"website {self._url.shown}" + (f" {digest(query)}" if query else "")

    def items(self) -> Iterator[Event]:
        """The pages.

        Raises:
            LoadError: If the first page cannot be had.
        """
        crawl = _Crawl(self, Robots(self._client), time.monotonic() + self._max_seconds)
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="lazyrag-website") as pool:
            try:
                yield from crawl.events(pool)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def load(self) -> Iterator[LoadedItem]:
        """The pages as text, with their metadata."""
        return loaded_items(self)

    def fetch(self, folder: str | os.PathLike[str]) -> FetchReport:
        """Write each page into a file of a folder; see `lazyrag.sources.fetch`."""
        return fetch(self, folder)

    def _wants(self, url: WebUrl, host: str) -> bool:
        if self._same_host and url.host != host:
            return False
        if self._include and not _matches(url, self._include):
            return False
        return not _matches(url, self._exclude)


@dataclass(frozen=True, slots=True)
class _Visit:
    """A page that is to be read.

    Args:
        url: Where it is said to lie.
        depth: Links from the beginning.
    """

    url: WebUrl
    depth: int


class _PassedOver(Exception):  # noqa: N818  no error
    """A redirect leads to what is not wanted."""


class _Crawl:
    """One run through a website."""

    def __init__(self, source: WebsiteSource, robots: Robots, ends_at: float) -> None:
        self._source = source
        self._robots = robots
        self._ends_at = ends_at
        self._host = source._url.host
        self._pending: deque[_Visit] = deque([_Visit(source._url, 0)])
        self._known = {source._url}
        self._read: set[WebUrl] = set()
        self._kept = 0
        self._asked = 0
        self._bytes = 0
        self._starts_at: dict[tuple[str, str, int], float] = {}
        self._cut_short = ""
        self._not_followed = ""  # what leaves the run incomplete without ending it

    def events(self, pool: ThreadPoolExecutor) -> Iterator[Event]:
        """Read pages in the order of the queue, some of them ahead."""
        ahead: deque[tuple[_Visit, Future[Answer]]] = deque()
        while ahead or (self._pending and not self._cut_short):
            while (
                self._pending
                and not self._cut_short
                and len(ahead) < min(self._room(), self._source._max_pages - self._kept)
            ):
                visit = self._pending.popleft()
                try:
                    if not self._may_start(visit):
                        continue
                except FetchError as exc:
                    yield self._failed(visit, exc)
                    continue
                ahead.append((visit, pool.submit(self._get, visit)))
            if not ahead:
                continue
            visit, answer = ahead.popleft()
            event = self._event(visit, answer)
            if event is not None:
                yield event
            if self._kept == self._source._max_pages and (self._pending or ahead):
                self._cut_short = self._cut_short or f"there are more than max_pages={self._kept}"
        if reason := self._cut_short or self._not_followed:
            yield CutShort(reason)

    def _room(self) -> int:
        return 1 if self._source._delay_s or any(self._starts_at.values()) else self._source._concurrency

    def _may_start(self, visit: _Visit) -> bool:
        """Wait for a page's turn; False if robots.txt forbids it, or the time is over."""
        now = time.monotonic()
        if self._asked >= _REQUESTS_PER_PAGE * self._source._max_pages:
            self._cut_short = f"{self._asked} requests gave only {self._kept} pages"
            return False
        if not self._robots.allows(visit.url):
            if visit.depth == 0:
                msg = f"The robots.txt of {visit.url.netloc} forbids {visit.url.shown}. Ask its owner."
                raise FetchError(msg, url=visit.url.shown)
            return False
        delay = max(self._source._delay_s, self._robots.delay_s(visit.url))
        turn = max(now, self._starts_at.get(visit.url.origin, 0.0))
        if turn > self._ends_at:
            self._cut_short = f"max_seconds={self._source._max_seconds:g} are over"
            return False
        time.sleep(max(0.0, turn - now))
        self._asked += 1
        self._starts_at[visit.url.origin] = turn + delay if delay else 0.0
        return True

    def _get(self, visit: _Visit) -> Answer:
        """In a thread of the pool."""

        def check(url: WebUrl) -> None:
            first = visit.depth == 0  # it says where the website lies: example.com leads to www.example.com
            if not (first or self._source._wants(url, self._host)) or not self._robots.allows(url):
                raise _PassedOver

        accept = "text/html, application/xhtml+xml, text/plain, text/markdown, application/pdf"
        return self._source._client.get(visit.url, accept=accept, on_redirect=check)

    def _event(self, visit: _Visit, future: Future[Answer]) -> Event | None:
        try:
            answer = future.result()
            if visit.depth == 0:
                self._host = answer.url.host
            if answer.url in self._read:
                return None
            self._read.add(answer.url)
            self._known.add(answer.url)
            self._bytes += len(answer.body)
            if self._bytes > self._source._max_total_bytes:
                self._cut_short = f"there are more than max_total_bytes={self._source._max_total_bytes:,}"
                return None
            return self._item(visit, answer)
        except _PassedOver as exc:
            if visit.depth == 0:
                msg = f"{visit.url.shown} leads to what its robots.txt forbids. Ask its owner."
                raise FetchError(msg, url=visit.url.shown) from exc
            return None
        except LoadError as exc:
            return self._failed(visit, exc)

    def _item(self, visit: _Visit, answer: Answer) -> Event | None:
        suffix = _suffix(answer)
        robots_header = answer.headers.get("x-robots-tag", "")
        content = answer.body if suffix in {"", ".pdf"} else _as_utf8(answer)
        links = links_of(content, answer.url, robots_header) if suffix == ".html" else PageLinks()
        if not links.all_of_them:
            self._not_followed = f"{answer.url.shown} has more than {MOST_LINKS:,} links"
        if visit.depth < self._source._max_depth:
            for url in links.urls:
                if url not in self._known and self._source._wants(url, self._host):
                    self._known.add(url)
                    self._pending.append(_Visit(url, visit.depth + 1))
        if visit.depth == 0 and not suffix:
            msg = f"{answer.url.shown} is of the type {answer.content_type!r:.60}. Pages, text and PDF are read."
            raise FetchError(msg, url=answer.url.shown, status=answer.status)
        if not suffix or not links.may_be_kept or "noindex" in robots_header.lower():
            return None
        self._kept += 1
        return SourceItem(str(answer.url), content, suffix, {"url": str(answer.url)})

    @staticmethod
    def _failed(visit: _Visit, exc: LoadError) -> FailedItem:
        """A page that failed.

        Raises:
            LoadError: If it is the first one.
        """
        if visit.depth == 0:
            raise exc
        status, transient = (exc.status, exc.transient) if isinstance(exc, FetchError) else (0, False)
        return FailedItem(str(visit.url), str(exc), transient, gone=status in _GONE)


def _matches(url: WebUrl, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(str(url) if "://" in pattern else url.target, pattern) for pattern in patterns)


def _suffix(answer: Answer) -> str:
    """The suffix of a page's file; "" for what is not kept."""
    if answer.content_type:
        return _SUFFIXES.get(answer.content_type, "")
    beginning = answer.body[:_SNIFFED].lstrip().lower()
    if beginning.startswith(b"%pdf-"):
        return ".pdf"
    return ".html" if beginning.startswith((b"<!doctype html", b"<html")) else ""


def _as_utf8(answer: Answer) -> bytes:
    """A page's bytes as UTF-8: the encoding that the answer declares would be lost in a file."""
    try:
        answer.body.decode("utf-8")
    except UnicodeDecodeError:
        return decode(answer.body, declared=answer.charset).encode("utf-8", "replace")
    return answer.body
