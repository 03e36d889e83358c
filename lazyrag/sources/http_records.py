"""Records of HTTP APIs: `HttpRecordsSource` and its kinds of paging."""

from __future__ import annotations

import functools
import hashlib
import re
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Unpack

from lazyrag.errors import ConfigError, LoadError, known_names
from lazyrag.loaders.records import OrderedFields, RecordValue, records_path
from lazyrag.sources.base import (
    BaseSource,
    CutShort,
    Event,
    FailedItem,
    RecordForm,
    digest,
    json_value,
    value_at,
)
from lazyrag.sources.http import (
    HttpResponse,
    WebOptions,
    WebUrl,
    make_client,
    web_url,
)
from lazyrag.validation import (
    known_arguments,
    require,
    validate_integer,
    validate_seconds,
    validate_text,
)

_LINK = re.compile(r"<([^<>]*)>([^<]*)")
_IS_NEXT = re.compile(r";\s*rel\s*=\s*(?:\"[^\"]*\bnext\b[^\"]*\"|next\b)", re.IGNORECASE)


class Page(NamedTuple):
    """A page of an API: its URL, the response, the parsed JSON, and the number of records."""

    url: WebUrl
    answer: HttpResponse
    value: RecordValue
    records: int


class Paging(Protocol):
    """Pagination of an API."""

    def first(self, url: WebUrl) -> WebUrl:
        """The URL of the first page."""
        return url

    def following(self, page: Page) -> WebUrl | None:
        """The URL of the next page; None after the last one.

        Raises:
            ConfigError: If the response leads to an invalid URL.
        """


@known_arguments
@dataclass(frozen=True, slots=True)
class LinkHeader(Paging):
    """The header ``Link`` with ``rel="next"`` has the next page's URL, as in GitHub's API.

    Source:
        RFC 8288.

    Example:
        >>> LinkHeader()
        LinkHeader()
    """

    def following(self, page: Page) -> WebUrl | None:
        """The header's URL; None without one."""
        links = _LINK.findall(page.answer.headers.get("link", ""))
        targets = (target for target, parameters in links if _IS_NEXT.search(parameters))
        return next((web_url(target, page.url) for target in targets), None)


@known_arguments
@dataclass(frozen=True, slots=True)
class NextLink(Paging):
    """The response has the next page's URL, absolute or relative.

    Args:
        path: Its path, such as ``"links.next"``.

    Example:
        >>> NextLink("links.next").path
        'links.next'
    """

    path: str = "next"

    def __post_init__(self) -> None:
        validate_text("path", self.path)

    def following(self, page: Page) -> WebUrl | None:
        """The URL at the path; None without one."""
        target = value_at(page.value, self.path)
        return web_url(target, page.url) if target not in (None, "", False) else None


@known_arguments
@dataclass(frozen=True, slots=True)
class Cursor(Paging):
    """The response has a cursor for the next request.

    Args:
        path: Its path, such as ``"meta.next_cursor"``.
        param: The query parameter for it.

    Example:
        >>> Cursor("meta.next_cursor", "after").param
        'after'
    """

    path: str = "next_cursor"
    param: str = "cursor"

    def __post_init__(self) -> None:
        validate_text("path", self.path)
        validate_text("param", self.param)

    def following(self, page: Page) -> WebUrl | None:
        """The URL with the cursor; None without one."""
        cursor = value_at(page.value, self.path)
        if cursor in (None, "", False):
            return None
        if not isinstance(cursor, str):
            raise ConfigError(
                f"The response's {self.path!r} must be a text or number. Name the cursor's path."
            )
        return with_params(page.url, {self.param: cursor})


@known_arguments
@dataclass(frozen=True, slots=True)
class PageNumber(Paging):
    """A parameter counts pages, until one is empty.

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
        validate_text("param", self.param)
        validate_integer("start", self.start, 0)

    def first(self, url: WebUrl) -> WebUrl:
        """The URL with the first number."""
        return with_params(url, {self.param: str(self.start)})

    def following(self, page: Page) -> WebUrl | None:
        """The URL with the next number; None after an empty page."""
        return (
            with_params(page.url, {self.param: str(_number(page.url, self.param) + 1)})
            if page.records
            else None
        )


@known_arguments
@dataclass(frozen=True, slots=True)
class Offset(Paging):
    """A parameter counts records to skip, until a page is empty.

    Args:
        param: The parameter.
        limit: Page size.
        limit_param: The parameter for it; "" for none.

    Example:
        >>> str(Offset(limit=50).first(web_url("https://example.com/teas")))
        'https://example.com/teas?offset=0&limit=50'
    """

    param: str = "offset"
    limit: int = 100
    limit_param: str = "limit"

    def __post_init__(self) -> None:
        validate_text("param", self.param)
        validate_integer("limit", self.limit, 1)

    def first(self, url: WebUrl) -> WebUrl:
        """The URL with the offset 0."""
        further = {self.limit_param: str(self.limit)} if self.limit_param else {}
        return with_params(url, {self.param: "0", **further})

    def following(self, page: Page) -> WebUrl | None:
        """The URL with the next offset; None after an empty page. Pages may be shorter than
        requested.
        """
        number = _number(page.url, self.param) + page.records
        return with_params(page.url, {self.param: str(number)}) if page.records else None


def with_params(url: WebUrl, params: dict[str, str]) -> WebUrl:
    """Set parameters of a URL's query.

    Example:
        >>> str(with_params(web_url("https://example.com/?page=1&a=b"), {"page": "2"}))
        'https://example.com/?a=b&page=2'
    """
    path, _, query = url.target.partition("?")
    pairs = filter(None, query.split("&"))
    others = [
        pair for pair in pairs if urllib.parse.unquote_plus(pair.partition("=")[0]) not in params
    ]
    joined = "&".join([*others, *([urllib.parse.urlencode(params)] if params else [])])
    return web_url(path + (f"?{joined}" if joined else ""), url)


def _number(url: WebUrl, param: str) -> int:
    query = urllib.parse.parse_qs(url.target.partition("?")[2])
    return int(query[param][-1])


class HttpRecordsSource(BaseSource):
    r"""Reads the records of a paged JSON API; each is an item.

    Args:
        url: The URL of the first page.
        identity: The fields that identify a record from run to run; a single one as a text.
        records: Path to the list of records in a response, such as ``"data.items"``; "" if the
            response is the list.
        paging: How to get the next page: `LinkHeader`, `NextLink`, `Cursor`, `PageNumber` or
            `Offset`.
        params: Query parameters of the first page.
        template: A text with paths in braces, as in ``"{name} costs {price}"``; None for a line
            ``path: value`` for each of ``fields``.
        fields: The paths that become text; () for all.
        metadata: The paths that become metadata.
        max_pages: Maximum of pages; a run that reaches a limit is cut short, and removes nothing.
        max_seconds: Maximum duration.
        max_total_bytes: Maximum size of all responses.
        web: The keywords of `lazyrag.sources.http.WebClient`, such as ``headers`` and
            ``allow_private``.

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
        params = {} if params is None else params
        require(isinstance(params, Mapping), "params", type(params), "a mapping of names to values")
        self._paging: Paging = LinkHeader() if paging is None else paging
        is_paging = callable(getattr(paging, "following", None)) and not isinstance(paging, type)
        expected = "LinkHeader(), NextLink(), Cursor(), PageNumber() or Offset()"
        require(paging is None or is_paging, "paging", paging, expected)
        address = web_url(url)
        self._url = with_params(address, {str(name): str(value) for name, value in params.items()})
        self._records = records_path(records)
        # a new one for each run
        self._form = functools.partial(RecordForm, identity, template, fields, metadata)
        self._form()
        self._max_pages = validate_integer("max_pages", max_pages, 1)
        self._max_seconds = validate_seconds("max_seconds", max_seconds)
        self._max_total_bytes = validate_integer("max_total_bytes", max_total_bytes, 1)
        self._client = make_client(HttpRecordsSource, address, web)

    def __repr__(self) -> str:
        return f"HttpRecordsSource({self._url.shown!r})"

    @property
    def name(self) -> str:
        """The URL and the path of the records."""
        return f"api {self._url.shown} {digest(f'{self._url.target} {self._records}')}"

    def items(self) -> Iterator[Event]:
        """Fetch the records, page by page. A page that fails cuts the run short.

        Raises:
            LoadError: If the first page fails, or no record has one of the named fields.
        """
        form = self._form()
        ends_at = time.monotonic() + self._max_seconds
        seen: set[WebUrl] = set()
        read = set()
        total = 0
        url: WebUrl | None = self._paging.first(self._url)
        while url is not None:
            reason = self._reason_to_stop(url, seen, ends_at)
            if reason:
                yield CutShort(reason)
                return
            seen.add(url)
            try:
                answer, records, url = self._page(url)
            except LoadError as exc:
                if len(seen) == 1:
                    raise
                yield CutShort(f"page {len(seen)}: {exc}")
                return
            total += len(answer.body)
            if total > self._max_total_bytes:
                yield CutShort(f"there are more than max_total_bytes={self._max_total_bytes:,}")
                return
            checksum = hashlib.blake2b(answer.body, digest_size=16).digest()
            if records and checksum in read:
                yield CutShort(
                    f"page {len(seen)} repeats an earlier one: the API does not take this paging"
                )
                return
            read.add(checksum)
            for number, record in enumerate(records, start=1):
                where = f"page {len(seen)}, record {number}"
                if isinstance(record, OrderedFields):
                    yield form.item(record, where)
                else:
                    yield FailedItem(
                        where, f"It is {record!r:.60}, not an object. Pass the path to the records."
                    )
        form.check_all_found()

    def _reason_to_stop(self, url: WebUrl, seen: set[WebUrl], ends_at: float) -> str:
        if url in seen:
            return f"page {len(seen)} leads back to {url.shown}, which was read before"
        if len(seen) >= self._max_pages:
            return f"there are more than max_pages={self._max_pages}"
        return f"max_seconds={self._max_seconds:g} are over" if time.monotonic() > ends_at else ""

    def _page(self, url: WebUrl) -> tuple[HttpResponse, list[RecordValue], WebUrl | None]:
        answer = self._client.get(url, accept="application/json")
        value = json_value(answer.body, f"The response of {url.shown}")
        records = value_at(value, self._records)
        if not isinstance(records, list):
            names = (
                [name for name, _ in value.items][:50] if isinstance(value, OrderedFields) else []
            )
            raise LoadError(
                f"The response of {url.shown} has no list at {self._records!r}."
                f" {known_names(self._records, names)}",
                path=url.shown,
            )
        try:
            return answer, records, self._paging.following(Page(url, answer, value, len(records)))
        except ConfigError as exc:
            raise url.error(f"leads to an invalid URL. {exc}") from exc
