"""The main text of a web page: what is left without menus, banners, related links and the like."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lazyrag.loaders.archives import Element

_ASIDE = frozenset(["aside", "button", "dialog", "footer", "form", "input", "menu", "nav", "select"])
_ASIDE_ROLES = frozenset(
    "alert banner complementary contentinfo dialog menu menubar navigation search toolbar tablist".split()
)
_ASIDE_NAMES = re.compile(
    r"(?:^|[\s_-])(?:ad|ads|advert|advertisement|banner|breadcrumbs?|comments?|consent|cookies?|disqus|newsletter|pager|"
    r"pagination|popup|promo|recommended|related|share|sharing|sidebar|skip(?:link|to\w*)?|social|sponsor\w*|subscribe|"
    r"tagcloud|tags?|toc|table-of-contents|toolbar|widget)(?:$|[\s_-])",
    re.IGNORECASE,
)
_UNSEEN = frozenset(["head", "noscript", "script", "style", "svg", "template"])
_NEVER_ASIDE = frozenset(["body", "main", "article", "h1", "h2", "h3", "h4", "h5", "h6"])
_BLOCKS = frozenset(["div", "ul", "ol", "section", "p"])
_LEAST_SHARE = 0.25
"""Of a page's text, where a part of it that says to be the main one is believed."""
_MOST_LINKS = 0.7
"""Of a block's text; a block with more consists of links."""
_LEAST_LINKS = 3


@dataclass(slots=True)
class _Weight:
    """What an element holds: letters, letters in links, links, and whether one of the two upper headings."""

    letters: int = 0
    linked: int = 0
    links: int = 0
    headed: bool = False

    def add(self, other: _Weight) -> None:
        self.letters += other.letters
        self.linked += other.linked
        self.links += other.links
        self.headed = self.headed or other.headed


def main_part(page: Element) -> Element:
    """The element that holds a page's main text. What stands beside the text in it is taken out of the tree.

    ``<main>`` or the only ``<article>`` is taken at its word if a fair share of the page's text is in it; else the
    whole body is. Headings and tables stay. Where hardly anything would be left, the element stays as it is.
    """
    weights = _weigh(page)
    least = _LEAST_SHARE * weights[page].letters
    part = next((one for one in _candidates(page) if weights[one].letters >= least), page)
    whole = weights[part].letters
    aside: list[Element] = []
    pending = list(part)
    while pending:
        one = pending.pop()
        if one in weights and _is_aside(one, weights[one], whole):
            aside.append(one)
        elif one in weights:
            pending.extend(one)
    if whole - sum(weights[one].letters for one in aside) >= _LEAST_SHARE * whole:
        for one in aside:
            _take_out(one)
    return part


def _weigh(page: Element) -> dict[Element, _Weight]:
    """The weight of each element; those before their parents that come later."""
    weights: dict[Element, _Weight] = {}
    for one in reversed([one for one in page.iter() if isinstance(one.tag, str)]):
        weight = weights[one] = _Weight()
        if one.tag in _UNSEEN:
            continue
        weight.letters = len((one.text or "").strip())
        for child in one:
            if child in weights:
                weight.add(weights[child])
            weight.letters += len((child.tail or "").strip())
        if one.tag == "a":
            weight.linked, weight.links = weight.letters, 1
        elif one.tag == "table":  # of contents, say: tables are no menus
            weight.linked = weight.links = 0
        weight.headed = weight.headed or one.tag in {"h1", "h2"}
    return weights


def _candidates(page: Element) -> list[Element]:
    articles = list(page.iter("article"))
    named = [one for one in page.iter() if isinstance(one.tag, str) and one.get("role") == "main"]
    return [*page.iter("main"), *named, *(articles if len(articles) == 1 else [])]


def _is_aside(element: Element, weight: _Weight, whole: int) -> bool:
    """Whether an element stands beside the main text: by its kind, its role, its name, or as a block of links."""
    tag = element.tag
    if tag in _ASIDE or element.get("role", "") in _ASIDE_ROLES:
        return True
    if tag == "header":
        return not weight.headed
    named = f"{element.get('class') or ''} {element.get('id') or ''}"
    if tag not in _NEVER_ASIDE and _ASIDE_NAMES.search(named):
        return weight.letters < 0.3 * whole  # a name that stands for most of the text means something else
    of_links = weight.linked > _MOST_LINKS * weight.letters and weight.letters < 80 * weight.links
    return tag in _BLOCKS and weight.links >= _LEAST_LINKS and not weight.headed and of_links


def _take_out(element: Element) -> None:
    """Remove an element, but not the text behind it."""
    parent = element.getparent()
    if parent is None:
        return
    tail = element.tail
    before = element.getprevious()
    if tail and before is not None:
        before.tail = (before.tail or "") + tail
    elif tail:
        parent.text = (parent.text or "") + tail
    parent.remove(element)
