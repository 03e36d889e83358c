"""What a web page says to those that follow links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lxml import etree

from lazyrag.errors import ConfigError
from lazyrag.sources.addresses import WebUrl, web_url

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
