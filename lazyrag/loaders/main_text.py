"""The main text of a web page: `keep_main_text` removes what is around it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lazyrag.loaders.archives import Element

_ASIDE = frozenset(
    ["aside", "button", "dialog", "footer", "form", "input", "menu", "nav", "select"]
)
_ASIDE_ROLES = frozenset(
    "alert banner complementary contentinfo dialog menu menubar navigation search toolbar"
    " tablist".split()
)
_ASIDE_NAMES = re.compile(
    r"advert|breadcrumb|byline|comment|cookie|copyright|disqus|footer|kommentar|navigation"
    r"|newsletter|paginat|popular|promo|related|sharing|sidebar|sponsor|subscri|tagcloud|trending"
    r"|(?:^|[\s_-])(?:ads?|author|backlink|banner|bio|colophon|consent|credits?|cta|disclaimer|foot"
    r"|imprint|impressum|linklist|login|meta|nav|noprint|pager|popup|postnav|rating"
    r"|recommended|reply|secondary|shared?|sharedaddy|shariff|signup|skip(?:link|to\w*)?|social"
    r"|table-of-contents|taglist|tags?|textwidget|toc|toolbar)(?:$|[\s_-])",
    re.IGNORECASE,
)
_UNSEEN = frozenset(["head", "noscript", "script", "style", "svg", "template"])
_HEADINGS = frozenset(["h1", "h2", "h3", "h4", "h5", "h6"])
_NEVER_ASIDE = frozenset(["body", "main", "article", *_HEADINGS])
_BLOCKS = frozenset(["div", "ul", "ol", "section", "p"])
_ITEMS = frozenset(["dd", "li", "td", "th"])
_CONTAINERS = frozenset("article body center div form main section span table tbody td tr".split())
_MIN_SHARE = 0.25
"""Minimum share of a page's text for a part to be the main one."""
_MAX_LINKS = 0.5
"""Maximum share of links in a block's text."""
_DENSE = 0.5
"""Minimum share of the prose for a part to be the main one among its neighbours."""
_MIN_BYTES = 30
"""Of a text between tags that counts as prose: six words, or ten Chinese letters."""


@dataclass(slots=True)
class _Weight:
    """Letters, letters in links, links and letters of prose of an element; whether it has an h1 or
    h2.
    """

    letters: int = 0
    linked: int = 0
    links: int = 0
    prose: int = 0
    headed: bool = False

    def add(self, other: _Weight) -> None:
        self.letters += other.letters
        self.linked += other.linked
        self.links += other.links
        self.prose += other.prose
        self.headed = self.headed or other.headed

    def add_text(self, text: str | None) -> None:
        words = (text or "").strip()
        self.letters += len(words)
        if len(words.encode("utf-8", "replace")) >= _MIN_BYTES:
            self.prose += len(words)


def keep_main_text(page: Element) -> None:
    """Remove everything from a page but its head and main text: banners, navigation, side bars,
    comments, lists of links, footers.

    The main text is in ``<main>`` or the only ``<article>``, if that has a fair share of the page's
    text, and there in the part with most of the prose. What precedes it stays if it is a heading or
    prose. If hardly anything would remain, nothing is removed.
    """
    weights = _weigh(page)
    least = _MIN_SHARE * weights[page].letters
    candidates = (part for part in _candidates(page) if weights[part].letters >= least)
    part = next(candidates, page)
    _isolate(part)
    _remove_asides(part, weights)
    _keep_densest(part)


def _weigh(page: Element) -> dict[Element, _Weight]:
    """The weight of each element, children before parents."""
    weights = {}
    for element in reversed([element for element in page.iter() if isinstance(element.tag, str)]):
        weight = weights[element] = _Weight()
        if element.tag in _UNSEEN:
            continue
        weight.add_text(element.text)
        for child in element:
            if child in weights:
                weight.add(weights[child])
            weight.add_text(child.tail)
        if element.tag == "a":
            weight.linked = weight.letters
            weight.links = 1
            weight.prose = 0
        elif element.tag == "table":  # a table of contents, for example: tables are not menus
            weight.linked = weight.links = 0
        weight.headed = weight.headed or element.tag in {"h1", "h2"}
    return weights


def _candidates(page: Element) -> list[Element]:
    articles = list(page.iter("article"))
    with_role = [element for element in page.iter("*") if element.get("role") == "main"]
    return [*page.iter("main"), *with_role, *(articles if len(articles) == 1 else [])]


def _isolate(part: Element) -> None:
    """Remove everything around an element but the page's head."""
    inside = part
    for above in part.iterancestors():
        for child in list(above):
            if child is not inside and child.tag != "head":
                above.remove(child)
        above.text = inside.tail = None
        inside = above


def _remove_asides(part: Element, weights: Mapping[Element, _Weight]) -> None:
    total = weights[part].prose
    asides = list(_find_asides(part, weights))
    removed = sum(weights[element].prose for element in asides)
    if total and total - removed >= _MIN_SHARE * total:
        for element in asides:
            _remove(element)


def _find_asides(part: Element, weights: Mapping[Element, _Weight]) -> Iterator[Element]:
    """The outermost elements that are not main text."""
    total = weights[part].prose
    pending = list(part)
    while pending:
        element = pending.pop()
        if element not in weights:
            continue
        if _is_aside(element, weights[element], total):
            yield element
        else:
            pending.extend(element)


def _is_aside(element: Element, weight: _Weight, total: int) -> bool:
    """Whether an element is not main text: by its tag, role or name, or as a block of links."""
    tag = element.tag
    if tag in _ASIDE or element.get("role", "") in _ASIDE_ROLES:
        return True
    if tag == "header":
        return not weight.headed and not weight.prose
    if tag not in _NEVER_ASIDE and _ASIDE_NAMES.search(_names(element)):
        return weight.prose < total / 2  # for most of the text, the name means something else
    in_list = tag in {"ol", "ul"} or next(element.iterancestors(), element).tag in _ITEMS
    least_links = 3 if weight.headed or in_list else 1
    return (
        tag in _BLOCKS
        and weight.links >= least_links
        and weight.linked > _MAX_LINKS * weight.letters
        and weight.letters < 80 * weight.links
        and weight.prose <= 0.05 * total
    )


def _names(element: Element) -> str:
    """The classes and the id of an element; of a section under a heading that is its anchor."""
    classes = element.get("class") or ""
    is_anchor = len(element) > 0 and element[0].tag in _HEADINGS
    return classes if is_anchor else f"{classes} {element.get('id') or ''}"


def _keep_densest(part: Element) -> None:
    """Remove the neighbours of each element that has most of the prose."""
    weights = _weigh(part)
    total = weights[part].prose
    element = part if total else None
    while element is not None:
        dense = (
            child
            for child in element.iterchildren(*_CONTAINERS)
            if weights[child].prose >= _DENSE * total and not _is_data(child)
        )
        densest = next(dense, None)
        is_before = True
        for child in list(element) if densest is not None else ():
            weight = weights.get(child)
            if child is densest:
                is_before = False
            elif weight is not None and not _stays(weight, total, is_before=is_before):
                _remove(child)
        element = densest


def _is_data(element: Element) -> bool:
    return element.tag == "table" and next(element.iter("th"), None) is not None


def _stays(weight: _Weight, total: int, *, is_before: bool) -> bool:
    """Whether a neighbour of the densest part is main text: title, lead or a large part."""
    is_lead = weight.headed or weight.prose > 0.75 * weight.letters
    return (is_before and is_lead) or weight.prose >= 0.3 * total


def _remove(element: Element) -> None:
    """Remove an element, but not the text after it."""
    parent = element.getparent()
    if parent is None or element.tag == "head":
        return
    tail = element.tail
    before = element.getprevious()
    if tail and before is not None:
        before.tail = (before.tail or "") + tail
    elif tail:
        parent.text = (parent.text or "") + tail
    parent.remove(element)
