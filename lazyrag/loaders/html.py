"""HTML pages."""

from __future__ import annotations

import re
from pathlib import Path

from lxml import etree, html

from lazyrag.errors import LoadError, sentence
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.encoding import clean, find_encoding
from lazyrag.loaders.main_text import main_part
from lazyrag.text.sentences import CJK_LETTERS
from lazyrag.text.structure import Heading, heading_places
from lazyrag.validation import known_arguments, yes_or_no

_DECLARED = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_UNSEEN = frozenset(["head", "nav", "noscript", "script", "style", "svg", "template", "title"])
_HIDING = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)\b", re.IGNORECASE)
_BREAKS = {
    **dict.fromkeys(
        "address article aside body caption center dd details dialog dir div dt fieldset figcaption footer form header "
        "hgroup html legend li main menu nav option search section select summary tbody tfoot thead tr".split(),
        1,
    ),
    **dict.fromkeys("blockquote dl figure h1 h2 h3 h4 h5 h6 hr ol p pre table ul".split(), 2),
}
"""Line ends around an element."""
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_CELLS = frozenset(["td", "th"])
# A line of Chinese source text ends anywhere; a space there would tear words.
_CJK_EDGE = rf"[{CJK_LETTERS}，。、；：！？（）《》「」『』【】“”‘’…—]"
_LINE_END_IN_CJK = re.compile(rf"(?<={_CJK_EDGE})[^\S\u3000\n]*\n\s*(?={_CJK_EDGE})")
_IS_CJK_EDGE = re.compile(_CJK_EDGE)


@known_arguments
class HtmlLoader:
    """Reads a page as a browser shows it: blocks on lines, tables row by row with ``|`` between filled cells.

    What a reader does not see (scripts, styles, hidden parts) and navigation is left out. Headings become places;
    title, description, author and language become metadata.

    Args:
        main_text: Leave out what stands beside the main text, too: banners, side bars, related links, footers.
    """

    def __init__(self, *, main_text: bool = False) -> None:
        self._main_text = yes_or_no("main_text", main_text)

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        data = path.read_bytes()
        declared = _DECLARED.search(data[:4096])
        read = find_encoding(data, declared=declared[1].decode("ascii", "replace") if declared else None)
        page = read_html(read.text, main_text=self._main_text)
        return LoadedFile(page.text, page.places, {**page.metadata, **read.metadata})


def read_html(markup: str, *, main_text: bool = False) -> LoadedFile:
    r"""The text of a page, its headings as places, what its head says as metadata.

    Args:
        markup: HTML, whole or in part.
        main_text: Only the main text, see `HtmlLoader`.

    Raises:
        LoadError: If there is no element in it.

    Example:
        >>> read_html("<p>Menu</p><main><h1>Tea</h1>Green</main><footer>Imprint</footer>", main_text=True).text
        'Tea\n\nGreen'
    """
    # lxml refuses text that declares an encoding of its own, so it is handed bytes in one that we name.
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    try:
        page = html.document_fromstring(markup.encode("utf-8", "replace"), parser=parser)
    except etree.ParserError as exc:
        msg = sentence(f"The page holds no element: {exc}")
        raise LoadError(msg) from exc
    too_deep = [entry.message for entry in parser.error_log if "depth" in entry.message.lower()]
    if too_deep:
        msg = f"The page nests its elements too deep to be read whole ({too_deep[0]})."
        raise LoadError(msg)
    said = _head(page)
    writer = _write(main_part(page) if main_text else page)
    text = "".join(writer.pieces)
    return LoadedFile(text, heading_places(sorted(writer.headings), len(text)), said)


def _head(page: html.HtmlElement) -> dict[str, str]:
    """Title, description, author and language, as far as the page says them."""
    named: dict[str, str] = {}
    for meta in page.iter("meta"):
        name = (meta.get("name") or meta.get("property") or meta.get("http-equiv") or "").lower()
        named.setdefault(name, meta.get("content") or "")
    said = {
        "title": page.findtext(".//title") or "",
        "description": named.get("description") or named.get("og:description", ""),
        "author": named.get("author", ""),
        "language": page.get("lang") or named.get("content-language", ""),
    }
    folded = {name: " ".join(clean(value).split()) for name, value in said.items()}
    return {name: value for name, value in folded.items() if value}


def _write(page: html.HtmlElement) -> _Writer:
    writer = _Writer()
    inside: list[str] = []  # the open <pre> elements and table cells that hold no table
    walker = etree.iterwalk(page, events=("start", "end"))
    for event, element in walker:
        tag = element.tag
        if event == "start" and (tag in _UNSEEN or _is_hidden(element)):
            walker.skip_subtree()
        elif event == "start":
            _open(element, writer, inside)
        else:
            _close(tag, writer, inside)
            writer.write(element.tail, verbatim="pre" in inside)
    return writer


def _is_hidden(element: html.HtmlElement) -> bool:
    """Whether a browser shows an element only if a script says so. Panels of tabs are shown by a click."""
    if element.get("hidden") is not None:
        hidden = bool(element.get("hidden") != "until-found")
    else:
        style = element.get("style")
        hidden = style is not None and _HIDING.search(style) is not None
    return hidden and bool(element.get("role") != "tabpanel")


def _open(element: html.HtmlElement, writer: _Writer, inside: list[str]) -> None:
    tag = element.tag
    folded = not _CELLS.isdisjoint(inside)
    if tag in _CELLS and next(element.iterdescendants("table"), None) is None:
        writer.cell()
        inside.append(tag)
    elif tag == "br":
        writer.line_break(folded=folded)
    elif tag in _BREAKS or tag in _CELLS:
        writer.line(_BREAKS.get(tag, 1), folded=folded)
    if tag in _HEADINGS:
        writer.open_heading(_HEADINGS[tag])
    elif tag == "li":
        writer.number(element)
    elif tag == "pre":
        inside.append(tag)
    writer.write(_without_first_line_end(element) if tag == "pre" else element.text, verbatim="pre" in inside)


def _close(tag: str, writer: _Writer, inside: list[str]) -> None:
    if tag in _HEADINGS:
        writer.close_heading()
    if inside and tag == inside[-1]:
        inside.pop()
    if tag == "li":
        writer.end_item()
    if tag in _BREAKS:
        writer.line(_BREAKS[tag], folded=not _CELLS.isdisjoint(inside))


def _integer(text: str | None, default: int) -> int:
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,6}", text, re.ASCII) else default


def _without_first_line_end(pre: html.HtmlElement) -> str:
    return (pre.text or "").removeprefix("\r").removeprefix("\n")


class _Writer:
    """Collects text, folding white space as a browser does."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.headings: list[Heading] = []
        self._length = 0
        self._owed = ""  # what stands between the last word and the next one
        self._owed_for_line_end = False  # whether an owed space was a line end in the source
        self._items: dict[html.HtmlElement, int] = {}  # ordered lists, and the number of their last item
        self._numbered = False  # whether nothing has come yet behind an item's number
        self._open_headings: list[list[int]] = []  # level, and once a word came: start, first piece

    def write(self, text: str | None, *, verbatim: bool) -> None:
        """Add text; its white space is folded unless it stands in ``<pre>``."""
        if not text:
            return
        if verbatim:
            self._append(text)
            return
        words = _LINE_END_IN_CJK.sub("", text).split()
        lead = text[: len(text) - len(text.lstrip())]
        if lead and not self._owed:
            self._owe_space(lead)
        if words:
            self._append(" ".join(words))
            tail = text[len(text.rstrip()) :]
            if tail:
                self._owe_space(tail)

    def line(self, breaks: int, *, folded: bool) -> None:
        """Owe line ends, or a space inside a table's cell."""
        if self._numbered:
            return
        if not folded and not self._owed.startswith("\n" * breaks):
            self._owed = "\n" * breaks
        elif folded and not self._owed:
            self._owed = " "
        self._owed_for_line_end = False

    def line_break(self, *, folded: bool) -> None:
        """Owe one more line end, at most an empty line; or a space inside a table's cell."""
        ends = self._owed.count("\n")
        self.line(min(ends + 1, 2), folded=folded)

    def number(self, item: html.HtmlElement) -> None:
        """Write the number of an item, if its list is an ordered one."""
        above = item.getparent()
        if above is None or above.tag != "ol" or above.get("reversed") is not None:
            return
        before = self._items.get(above, _integer(above.get("start"), 1) - 1)
        self._items[above] = _integer(item.get("value"), before + 1)
        self.write(f"{self._items[above]}. ", verbatim=False)
        self._numbered = True

    def end_item(self) -> None:
        """Note that what follows stands no longer behind an item's number."""
        self._numbered = False

    def cell(self) -> None:
        """Owe the mark between two cells, unless the cell is the first of its row."""
        if not self._owed.startswith("\n"):
            self._owed = " | "
            self._owed_for_line_end = False

    def open_heading(self, level: int) -> None:
        """Note that a heading begins with the next word."""
        self._open_headings.append([level])

    def close_heading(self) -> None:
        """Give the heading that was opened last its words; one without words is none."""
        level, *begun = self._open_headings.pop()
        if begun:
            start, first_piece = begun
            title = " ".join("".join(self.pieces[first_piece:]).split()).strip("\u200b\ufeff\xb6 ")
            if title:
                self.headings.append(Heading(start, level, title))

    def _owe_space(self, white: str) -> None:
        self._owed = " "
        self._owed_for_line_end = "\n" in white

    def _append(self, text: str) -> None:
        if self._length:
            torn = self._owed == " " and self._owed_for_line_end
            if not (torn and _IS_CJK_EDGE.match(self.pieces[-1][-1:]) and _IS_CJK_EDGE.match(text)):
                self._put(self._owed)
        self._owed = ""
        self._numbered = False
        for heading in self._open_headings:
            if len(heading) == 1 and text.strip():
                heading += [self._length, len(self.pieces)]
        self._put(text)

    def _put(self, piece: str) -> None:
        if piece:
            self.pieces.append(piece)
            self._length += len(piece)
