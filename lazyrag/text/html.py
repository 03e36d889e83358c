"""HTML as it is written: its tags with their places, and the text between them."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from lazyrag.text.headings import Heading

_NAME = re.compile(r"/?([A-Za-z][^\s/>]*)")
# A ">" inside a quoted value ends no tag. What is never closed ends with the text.
_TAG_PART = re.compile(r"""[^>"'=]+|=\s*(?:"[^"]*(?:"|\Z)|'[^']*(?:'|\Z))?|["']""")
_HEADING = re.compile(r"h[1-6]")
_RAW = frozenset(["script", "style", "textarea", "title", "xmp"])
_UNSEEN = frozenset(["script", "style", "template", "title"])
BLOCKS = frozenset(
    "address article aside blockquote body br caption dd details div dl dt fieldset figcaption figure footer form "
    "h1 h2 h3 h4 h5 h6 head header hr html li main nav ol p pre section summary table tbody td tfoot th thead title "
    "tr ul".split()
)
"""Names of the elements that browsers put on lines of their own."""


class Tag(NamedTuple):
    """A tag, a comment or a declaration: where it stands, its name in lower case, whether it closes something.

    Comments and declarations have the name ``"!"``.
    """

    start: int
    end: int
    name: str
    closes: bool


def html_tags(text: str) -> Iterator[Tag]:
    """The tags of a text in order, in linear time, whatever is broken in it.

    Example:
        >>> [tag.name for tag in html_tags("<p>Tea<!-- x --></p> a < b")]
        ['p', '!', 'p']
    """
    at = text.find("<")
    while at >= 0:
        end = at + 1
        if text.startswith(("<!", "<?"), at):
            end = _behind(text, "-->" if text.startswith("<!--", at) else ">", at + 2)
            yield Tag(at, end, "!", closes=False)
        elif (name := _NAME.match(text, at + 1)) is not None:
            end = _tag_end(text, name.end())
            tag = Tag(at, end, name[1].lower(), text[at + 1] == "/")
            yield tag
            if tag.name in _RAW and not tag.closes:
                closing = re.compile(rf"</{tag.name}(?=[\s/>])", re.IGNORECASE).search(text, end)
                end = closing.start() if closing else len(text)
        at = text.find("<", end)


def _tag_end(text: str, at: int) -> int:
    while at < len(text) and text[at] != ">":
        part = _TAG_PART.match(text, at)
        at = part.end() if part else at + 1
    return min(at + 1, len(text))


def _behind(text: str, what: str, at: int) -> int:
    found = text.find(what, at)
    return len(text) if found < 0 else found + len(what)


def html_headings(text: str) -> Iterator[Heading]:
    """The headings, h1 to h6, where their tags begin; without those that say nothing.

    Example:
        >>> [heading.title for heading in html_headings("<h1>Green <b>tea</b></h1><p>It keeps.")]
        ['Green tea']
    """
    opened: Tag | None = None
    for tag in html_tags(text):
        if _HEADING.fullmatch(tag.name) is None:
            continue
        if opened is not None:
            title = " ".join(html_text(text[opened.start : tag.start]).split())
            if title:
                yield Heading(opened.start, int(opened.name[1]), title)
        opened = None if tag.closes else tag


def html_text(text: str) -> str:
    r"""What a reader sees: text without tags, blocks as lines, no scripts and styles; white space as browsers show it.

    Example:
        >>> html_text("<h1>Tea</h1><p>Green &amp; <b>black</b></p>")
        'Tea\nGreen & black'
    """
    pieces: list[str] = []
    at = hidden = preserved = 0
    for tag in [*html_tags(text), Tag(len(text), len(text), "", closes=False)]:
        if not hidden and tag.start > at:
            seen = html.unescape(text[at : tag.start])
            pieces.append(seen if preserved else re.sub(r"[ \t\r\n\f]+", " ", seen))
        at = tag.end
        step = -1 if tag.closes else 1
        if tag.name in _UNSEEN:
            hidden = max(0, hidden + step)
        elif tag.name == "pre":
            preserved = max(0, preserved + step)
        if tag.name in ("td", "th"):
            pieces.append("\t" if tag.closes else "")
        elif tag.name in BLOCKS:
            pieces.append("\n")
    lines = (line.strip(" \t\n") if not preserved else line for line in "".join(pieces).split("\n"))
    return "\n".join(line for line in lines if line.strip())
