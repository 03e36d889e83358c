"""How an API is asked for its next page."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from lazyrag.errors import ConfigError
from lazyrag.loaders.leaves import Value
from lazyrag.sources.addresses import WebUrl, web_url
from lazyrag.sources.exchange import Answer
from lazyrag.sources.records import value_at
from lazyrag.validation import known_arguments, whole_number

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
