"""HTML and e-books: `HtmlLoader` and `EpubLoader`."""

from __future__ import annotations

import itertools
import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from lxml import etree, html

from lazyrag.data.segment import CODE_BLOCK, LIST_ITEM, Location
from lazyrag.data.tables import FoundTable
from lazyrag.errors import LoadError, NoReaderError, sentence
from lazyrag.loaders.archives import Archive, Element, local_name, open_archive, picture_text
from lazyrag.loaders.base import LoadedFile, joined_file, reading
from lazyrag.loaders.detect import clean, decode, find_encoding
from lazyrag.loaders.formulas import formula_text
from lazyrag.loaders.hidden import mark_hidden, unmarked
from lazyrag.loaders.main_text import keep_main_text
from lazyrag.loaders.symbols import with_reading
from lazyrag.loaders.tables import Grid, GridCell, one_line, read_table
from lazyrag.text.sentences import CJK_LETTERS
from lazyrag.text.structure import Heading, heading_locations
from lazyrag.types import JsonMapping
from lazyrag.validation import entry_of, known_arguments, validate_boolean

_DECLARED = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_UNSEEN_TAGS = frozenset(["head", "nav", "noscript", "script", "style", "template", "title"])
_DRAWN_FORMULA = re.compile(r"\b(?:katex-html|mwe-math-fallback|MathJax_Preview)|^MathJax\b")
"""Classes of the drawing of a formula, beside its MathML."""
_HIDING = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)\b", re.IGNORECASE)
_BREAKS = {
    **dict.fromkeys(
        "address article aside body caption center dd details dialog dir div dt fieldset figcaption"
        " footer form header hgroup html legend li main menu nav option search section select"
        " summary tbody tfoot thead tr".split(),
        1,
    ),
    **dict.fromkeys("blockquote dl figure h1 h2 h3 h4 h5 h6 hr ol p pre table ul".split(), 2),
}
"""Line ends around an element."""
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_MARKED = _HEADINGS.keys() | {"li", "pre"}
_CELLS = frozenset(["td", "th"])
_ROW_GROUPS = frozenset(["tbody", "tfoot", "thead"])
_NO_ROWS = _UNSEEN_TAGS | _CELLS | {"caption", "col", "colgroup"}
_IN_LAYOUT = frozenset(["pre", "table", *_HEADINGS])  # of tables without column names or caption
_MAX_INNER = 50  # tables within a table of data
"""What no cell of a grid contains: a table around them arranges blocks."""
# Lines of Chinese source text end anywhere; a space there would split words.
_CJK_EDGE = rf"[{CJK_LETTERS}，。、；：！？（）《》「」『』【】“”‘’…—]"
_LINE_END_IN_CJK = re.compile(rf"(?<={_CJK_EDGE})[^\S\u3000\n]*\n\s*(?={_CJK_EDGE})")
_IS_CJK_EDGE = re.compile(_CJK_EDGE)


@known_arguments
class HtmlLoader:
    """Reads a page as a browser displays it: blocks as lines, tables row by row with ``|`` between
    the cells.

    Invisible parts (scripts, styles, hidden elements) and navigation are skipped. Headings become
    locations; title, description, author, date and language become metadata, as the page declares
    them.

    Args:
        main_text: Skip everything besides the main text, too: banners, side bars, comments,
            related links, footers.
    """

    def __init__(self, *, main_text: bool = False) -> None:
        self._main_text = validate_boolean("main_text", main_text)

    def load_source(self, path: Path) -> LoadedFile:
        """Read the source."""
        data = path.read_bytes()
        declared = _DECLARED.search(data[:4096])
        read = find_encoding(
            data, declared=declared[1].decode("ascii", "replace") if declared else None
        )
        return LoadedFile(read.text, metadata=read.metadata)

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        read = self.load_source(path)
        page = read_html(read.text, main_text=self._main_text)
        return replace(page, metadata={**page.metadata, **read.metadata})


def read_html(markup: str, *, main_text: bool = False, marked: bool = False) -> LoadedFile:
    r"""Read HTML, with headings as places and metadata of its head.

    Args:
        markup: A page or a part of one.
        main_text: Only the main text, see `HtmlLoader`.
        marked: Whether the marks of hidden text stay in the text, see `lazyrag.loaders.hidden`.

    Raises:
        LoadError: If there is no element in it.

    Example:
        >>> page = "<p>Menu</p><main><h1>Tea</h1>Green</main><footer>Imprint</footer>"
        >>> read_html(page, main_text=True).text
        'Tea\n\nGreen'
    """
    page = parse_html(markup)
    metadata, fields = _head(page)
    if _MAY_HIDE.search(markup):
        mark_hidden(page)
    if main_text:
        keep_main_text(page)
    writer = _write(page)
    text = "".join(writer.pieces)
    loaded = LoadedFile(
        text,
        heading_locations(sorted(writer.headings), len(text)),
        metadata,
        tuple(writer.tables),
        fields,
    )
    return loaded if marked else unmarked(loaded)


_MAY_HIDE = re.compile(
    r"(?:color|font-size|opacity|position|text-indent)\s*[:=]|<body[^>]* text=", re.IGNORECASE
)
_HEAD_TAGS = frozenset("base link meta noscript object script style template title".split())
_STEPS_PER_TAG = 2
_CHARACTERS_PER_STEP = 8


def main_markup(markup: str) -> str:
    """The markup of a page with its head and main text only; see `HtmlLoader`. Author and date
    become elements of the head, wherever the page declares them.

    Raises:
        LoadError: If there is no element in it.

    Example:
        >>> main_markup("<title>Tea</title><body><main><p>Green</p></main><footer>x</footer>")
        '<html><head><title>Tea</title></head><body><main><p>Green</p></main></body></html>'
    """
    page = parse_html(markup)
    metadata, _ = _head(page)
    keep_main_text(page)
    head = page.find("head")
    for name in ("author", "date"):
        if head is not None and name in metadata:
            head.insert(0, html.Element("meta", name=name, content=metadata[name]))
    return str(html.tostring(page, encoding="unicode"))


def parse_html(markup: str) -> html.HtmlElement:
    """Parse a page; see `read_html`."""
    reading().spend(_STEPS_PER_TAG * markup.count("<") + len(markup) // _CHARACTERS_PER_STEP)
    # lxml refuses text that declares an encoding, so it gets bytes.
    parser = html.HTMLParser(
        encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True
    )
    try:
        page = html.document_fromstring(markup.encode("utf-8", "replace"), parser=parser)
    except etree.ParserError as exc:
        raise NoReaderError(
            sentence(f"The page holds no element: {exc}"), reason="no text"
        ) from exc
    too_deep = [entry.message for entry in parser.error_log if "depth" in entry.message.lower()]
    if too_deep:
        raise LoadError(f"The elements of the page are nested too deep to be read ({too_deep[0]}).")
    _end_head(page)
    return page


def _end_head(page: html.HtmlElement) -> None:
    """Move elements that lxml does not know, such as ``<main>``, from the head to the body, which
    begins with them where a page has no ``<body>``.
    """
    strays = [element for element in page.iterfind("head/*") if element.tag not in _HEAD_TAGS]
    body = page.find("body")
    if strays and body is None:
        body = etree.SubElement(page, "body")
    for position, element in enumerate(strays):
        body.insert(position, element)


def _head(page: html.HtmlElement) -> tuple[dict[str, str], dict[str, str]]:
    """Title, description, author, date and language; and all ``<meta>``, also without their
    prefixes such as ``dc.``.
    """
    contents: dict[str, str] = {}
    for meta in page.iter("meta"):
        name = meta.get("name") or meta.get("property") or meta.get("http-equiv") or ""
        contents.setdefault(name.lower(), _folded(meta.get("content")))
    article = next(_articles(page), {})
    metadata = {
        "title": _folded(page.findtext("head/title")),
        "description": contents.get("description") or contents.get("og:description", ""),
        "author": _find_author(contents, article),
        "date": _find_date(contents, article) or _time(page),
        "language": _folded(page.get("lang")) or contents.get("content-language", ""),
    }
    metadata = {name: value for name, value in metadata.items() if value}
    return metadata, _meta_fields(contents)


def _meta_fields(contents: Mapping[str, str]) -> dict[str, str]:
    """All ``<meta>``, also without their prefixes."""
    fields: dict[str, str] = {}
    for name in sorted(contents, key=lambda name: len(_META_PREFIX.split(name))):
        for alias in (name, _META_PREFIX.split(name)[-1]):
            fields.setdefault(_META_MARKS.sub("_", alias), contents[name])
    return {name: value for name, value in fields.items() if name and value}


_AUTHOR_NAMES = ("author", "article:author", "dc.creator", "dcterms.creator", "citation_author")
_DATE_NAMES = (
    "article:published_time",
    "date",
    "dc.date",
    "dcterms.created",
    "dcterms.date",
    "citation_publication_date",
)


def _articles(page: html.HtmlElement) -> Iterator[JsonMapping]:
    """The objects of a page's JSON-LD with a date of publication, without nested ones."""
    for script in page.iter("script"):
        if (script.get("type") or "").lower() != "application/ld+json":
            continue
        try:
            data = json.loads(script.text or "")
        except (ValueError, RecursionError):
            continue
        for entry in data if isinstance(data, list) else [data]:
            graph = entry_of(entry, "@graph")
            for item in graph if isinstance(graph, list) else [entry]:
                if isinstance(item, dict) and item.get("datePublished"):
                    yield item


def _find_author(contents: Mapping[str, str], article: JsonMapping) -> str:
    """The author by ``<meta>``, or the names of the authors of an object of JSON-LD."""
    for name in _AUTHOR_NAMES:
        author = contents.get(name, "")
        if author and "://" not in author:
            return author
    authors = article.get("author")
    listed = authors if isinstance(authors, list) else [authors]
    names = [_text(author.get("name") if isinstance(author, dict) else author) for author in listed]
    return ", ".join(filter(None, names))


def _find_date(contents: Mapping[str, str], article: JsonMapping) -> str:
    """The date by ``<meta>`` or JSON-LD."""
    dates = [contents.get(name, "") for name in _DATE_NAMES]
    return next(filter(None, dates), "") or _text(article.get("datePublished"))


def _time(page: html.HtmlElement) -> str:
    """The time that a page marks as its publication, or its only ``<time>``."""
    published = page.xpath("//*[@itemprop='datePublished' or (self::time and @pubdate)]")
    times = published[:1] or list(page.iter("time"))
    if len(times) != 1:
        return ""
    return _folded(times[0].get("datetime") or times[0].get("content"))


def _text(value: object) -> str:
    return _folded(value) if isinstance(value, str) else ""


def _folded(text: str | None) -> str:
    return " ".join(clean(text or "").split())


_META_PREFIX = re.compile(r"[.:]")
_META_MARKS = re.compile(r"[-.:]")


def _write(page: html.HtmlElement, *, in_cell: bool = False) -> _Writer:
    writer = _Writer()
    inside: list[str] = []  # the open <pre> elements and table cells without a table
    unseen: html.HtmlElement | None = None  # nothing of it was opened that its end could close
    with_blocks = _elements_with_blocks(page)
    walker = etree.iterwalk(page, events=("start", "end"))
    for event, element in walker:
        tag = element.tag
        if event == "end":
            if element is not unseen:
                _close(tag, writer, inside)
            if tag in _BREAKS:
                writer.line(_BREAKS[tag], folded=not _CELLS.isdisjoint(inside))
            if element is not page:
                writer.write(element.tail, verbatim="pre" in inside)
            continue
        is_hidden = tag in _UNSEEN_TAGS or _is_hidden(element)
        is_line = tag in _WITHOUT_BLOCKS and element is not page and element not in with_blocks
        if is_hidden or is_line:
            if not is_hidden:
                _write_without_blocks(element, writer)
            unseen = element
            walker.skip_subtree()
            continue
        _open(element, writer, inside)
        if tag == "table" and not inside and (rows := _grid_rows(element)) is not None:
            if in_cell:
                writer.write(one_line(read_table(rows)[0]), verbatim=False)
            else:
                _write_table(element, rows, writer)
            walker.skip_subtree()
    return writer


def _elements_with_blocks(page: html.HtmlElement) -> set[html.HtmlElement | None]:
    """The formulas, words with a reading and drawings around blocks: those without an end, which
    browsers end before the next block.
    """
    present = [tag for tag in _WITHOUT_BLOCKS if next(page.iter(tag), None) is not None]
    elements: set[html.HtmlElement | None] = set()
    for block in page.iterdescendants(*_BREAKS) if present else ():
        for tag in present:
            elements.add(next(block.iterancestors(tag, *_MAY_HOLD_BLOCKS), None))
    return elements


def _write_without_blocks(element: html.HtmlElement, writer: _Writer) -> None:
    try:
        _WITHOUT_BLOCKS[element.tag](element, writer)
    except RecursionError:
        writer.write(f" {' '.join(map(str, element.itertext()))} ", verbatim=False)


def _outermost(parent: html.HtmlElement, *tags: str) -> Iterator[html.HtmlElement]:
    """The descendants of some tags that are not within one another."""
    inner = set()
    for element in list(parent.iter(*tags)):
        if element not in inner:
            inner.update(element.iter(*tags))
            yield element


def _write_labels(drawing: html.HtmlElement, writer: _Writer) -> None:
    """Write the labels of an SVG drawing, each on a line."""
    labels = _outermost(drawing, "text", "foreignobject")
    for text in [_cell_text(label) for label in labels if not _is_hidden(label)]:
        writer.line(1, folded=False)
        writer.write(text, verbatim=False)
        writer.line(1, folded=False)


def _write_ruby(word: html.HtmlElement, writer: _Writer) -> None:
    """Write a word, and then the readings above its characters."""
    readings = [_cell_text(part) for part in _outermost(word, "rt")]
    etree.strip_elements(word, "rt", "rp", "rtc", with_tail=False)
    writer.write(with_reading(_cell_text(word), "".join(readings)), verbatim=False)


_MAY_HOLD_BLOCKS = ("annotation-xml", "foreignobject")
_WITHOUT_BLOCKS: dict[str, Callable[[html.HtmlElement, _Writer], None]] = {
    "math": lambda formula, writer: writer.write(formula_text(formula), verbatim=False),
    "ruby": _write_ruby,
    "svg": _write_labels,
}


def _write_table(
    table: html.HtmlElement, rows: Sequence[Sequence[GridCell]], writer: _Writer
) -> None:
    caption = table.find("caption")
    if caption is not None and not _is_hidden(caption):
        writer.write(_cell_text(caption), verbatim=False)
        writer.line(1, folded=False)
    writer.table(*read_table(rows, header=_header_count(table), caption=_caption(table)))


def _grid_rows(table: html.HtmlElement) -> Grid | None:
    """The rows of a table; None if it arranges blocks, or has text outside of its cells."""
    parts = _grid_parts(table)
    if parts is None:
        return None
    groups: list[list[html.HtmlElement]] = [[]]
    for part in parts:
        if part.tag in _ROW_GROUPS:
            groups.append([])
        elif part.tag == "tr" and not (_is_hidden(part) or _is_hidden(part.getparent())):
            groups[-1].append(part)
    rows = []
    for group in groups:
        for at, row in enumerate(group):
            cells = (cell for cell in row.iterchildren("td", "th") if not _is_hidden(cell))
            rows.append([_grid_cell(cell, len(group) - at) for cell in cells])
    return rows


def _grid_parts(table: html.HtmlElement) -> list[html.HtmlElement] | None:
    """The elements of a table that are not of a table within it; None if it is no grid."""
    if _has_text(table.text):
        return None
    reading().spend(sum(1 for _ in table.iter()))
    inner_tables = [*itertools.islice(table.iterdescendants("table"), _MAX_INNER)]
    is_data = len(inner_tables) < _MAX_INNER and any(
        _is_own(part, table) for part in table.iter("th", "thead", "caption")
    )
    nested = set()
    if is_data:
        for inner in inner_tables:
            if _is_own(inner, table):
                nested.update(inner.iter())
    parts = [part for part in table.iter("*") if part is not table and part not in nested]
    if any(_arranges_blocks(part, is_data=is_data) for part in parts):
        return None
    return parts


def _arranges_blocks(part: html.HtmlElement, *, is_data: bool) -> bool:
    """Whether a part of a table is no part of a grid: a block, or text outside of the cells."""
    if part.tag in _IN_LAYOUT and not is_data:
        return True
    parent = part.getparent().tag
    is_outside = parent in _ROW_GROUPS or parent in {"table", "tr"}
    if part.tag in _ROW_GROUPS or part.tag == "tr":
        return not is_outside or _has_text(part.text) or _has_text(part.tail)
    return is_outside and (part.tag not in _NO_ROWS or _has_text(part.tail))


def _has_text(text: str | None) -> bool:
    return text is not None and bool(text.strip())


def _is_own(part: html.HtmlElement, table: html.HtmlElement) -> bool:
    """Whether a part of a table is not within a table in one of its cells."""
    return next(part.iterancestors("table"), None) is table


def _grid_cell(cell: html.HtmlElement, most_rows: int) -> GridCell:
    rows = _integer(cell.get("rowspan"), 1)
    return GridCell(
        _cell_text(cell),
        min(max(1, _integer(cell.get("colspan"), 1)), 1_000),
        min(rows, most_rows) or most_rows,
    )


def _header_count(table: html.HtmlElement) -> int:
    """The number of rows of a table's head, or of its first rows without a cell of data."""
    rows = [row for row in table.iter("tr") if _is_own(row, table) and not _is_hidden(row)]
    in_head = itertools.takewhile(lambda row: row.getparent().tag == "thead", rows)
    of_names = itertools.takewhile(
        lambda row: row.find("th") is not None and row.find("td") is None, rows[:-1]
    )
    return len(list(in_head)) or len(list(of_names))


def _caption(table: html.HtmlElement) -> str:
    above = table.getparent()
    caption = table.find("caption")
    if caption is None and above is not None and above.tag == "figure":
        caption = above.find("figcaption")
    return "" if caption is None or _is_hidden(caption) else _cell_text(caption)


def _cell_text(cell: html.HtmlElement) -> str:
    """The text of an element on one line."""
    if not len(cell):  # nearly always, and ten times as fast
        return " ".join(_LINE_END_IN_CJK.sub("", cell.text or "").split())
    return " ".join("".join(_write(cell, in_cell=True).pieces).split())


def _is_hidden(element: html.HtmlElement) -> bool:
    """Whether a browser hides an element until a script shows it. Tab panels appear on a click."""
    hidden = element.get("hidden")
    style = element.get("style")
    is_hidden = (
        hidden != "until-found"
        if hidden is not None
        else style is not None and _HIDING.search(style)
    )
    classes = element.get("class") or ""
    if element.tag == "nobr" or _DRAWN_FORMULA.search(classes):
        beside = (element.getprevious(), element.getnext())
        if not _has_math(element) and any(map(_has_math, beside)):
            return True
    return bool(is_hidden) and element.get("role") != "tabpanel" and "mwe-math" not in classes


def _has_math(element: html.HtmlElement | None) -> bool:
    return element is not None and next(element.iter("math"), None) is not None


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
    if tag in _MARKED:
        writer.open_block(element)
    if tag == "li":
        writer.begin_item(element)
    elif tag == "img":
        writer.write(picture_text(element.get("alt")), verbatim=False)
    elif tag == "pre":
        inside.append(tag)
    text = element.text or ""
    if tag == "pre":  # browsers ignore its first line end
        text = text.removeprefix("\r").removeprefix("\n")
    writer.write(text, verbatim="pre" in inside)


def _close(tag: str, writer: _Writer, inside: list[str]) -> None:
    if tag in _MARKED:
        writer.close_block()
    if inside and tag == inside[-1]:
        inside.pop()


def _integer(text: str | None, default: int) -> int:
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,6}", text, re.ASCII) else default


class _Writer:
    """Collects text and folds white space as browsers do."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.headings: list[Heading] = []
        self.tables: list[Location] = []
        self._length = 0
        self._owed = ""  # separator before the next word
        self._owed_for_line_end = False  # the separator was a line end in the source
        self._items: dict[html.HtmlElement, int] = {}  # number of the last item by ordered list
        self._numbered = False  # nothing has followed an item's number yet
        # with start and first piece after the first word
        self._open_blocks: list[tuple[html.HtmlElement, list[int]]] = []
        self._depth = 0  # of list items

    def write(self, text: str | None, *, verbatim: bool) -> None:
        """Add text; white space is folded except in ``<pre>``."""
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

    def table(self, text: str, tables: Iterable[FoundTable]) -> None:
        """Add a table."""
        if text:
            self._append(text)
        start = self._length - len(text)
        self.tables += (table.location(start, self._length) for table in tables)

    def line(self, breaks: int, *, folded: bool) -> None:
        """Request line ends, or a space inside a table cell."""
        if self._numbered:
            return
        if not folded and not self._owed.startswith("\n" * breaks):
            self._owed = "\n" * breaks
        elif folded and not self._owed:
            self._owed = " "
        self._owed_for_line_end = False

    def line_break(self, *, folded: bool) -> None:
        """Request one more line end, up to an empty line; or a space inside a table cell."""
        ends = self._owed.count("\n")
        self.line(min(ends + 1, 2), folded=folded)

    def begin_item(self, item: html.HtmlElement) -> None:
        """Begin a list item, with its number if the list is ordered."""
        self._depth += 1
        above = item.getparent()
        if above is None or above.tag != "ol" or above.get("reversed") is not None:
            return
        before = self._items.get(above, _integer(above.get("start"), 1) - 1)
        self._items[above] = _integer(item.get("value"), before + 1)
        self.write(f"{self._items[above]}. ", verbatim=False)
        self._numbered = True

    def cell(self) -> None:
        """Request the separator of cells, except before the first of a row."""
        if not self._owed.startswith("\n"):
            self._owed = " | "
            self._owed_for_line_end = False

    def open_block(self, element: html.HtmlElement) -> None:
        """Begin a heading, an item or code at the next word."""
        self._open_blocks.append((element, []))

    def close_block(self) -> None:
        """End the innermost block; one without words is dropped."""
        element, begun = self._open_blocks.pop()
        if element.tag == "li":
            self._depth -= 1
            self._numbered = False
        if not begun:
            return
        start, first_piece = begun
        if element.tag == "li":
            self.tables.append(Location(start, self._length, LIST_ITEM, str(self._depth + 1)))
        elif element.tag == "pre":
            self.tables.append(Location(start, self._length, CODE_BLOCK, ""))
        else:
            title = " ".join("".join(self.pieces[first_piece:]).split()).strip("\u200b\ufeff\xb6 ")
            if title:
                self.headings.append(Heading(start, _HEADINGS[element.tag], title))

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
        if text.strip():
            for _, begun in reversed(self._open_blocks):
                if begun:
                    break
                begun[:] = self._length, len(self.pieces)
        self._put(text)

    def _put(self, piece: str) -> None:
        if piece:
            self.pieces.append(piece)
            self._length += len(piece)


_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_METADATA = {"title": "title", "creator": "author", "language": "language"}
_PAGES = frozenset(["application/xhtml+xml", "text/html", "application/x-dtbook+xml"])
# HTML has no other empty elements: it would read everything after <title/> as the title.
_EMPTY_ELEMENT = re.compile(
    r"<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr)\b)"
    r"([a-zA-Z][\w:-]*)([^<>]*)/>"
)


class EpubLoader:
    """Reads an e-book chapter by chapter in reading order, as HTML pages.

    Each chapter with text is a location of kind ``chapter``, labelled with its first heading, else
    its number; so are the sections below its other headings. Title, author and language become
    metadata. Pictures and the table of contents are skipped.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        parts = []
        with open_archive(path, "e-book", ".epub") as archive:
            package = _package(archive)
            book = archive.xml(package)
            protected = _protected(archive)
            for number, name in enumerate(_chapters(book, package), start=1):
                if name in protected:
                    raise LoadError(
                        "The e-book is protected against copying; only other books can be read."
                    )
                page = LoadedFile("")
                with archive.tolerated(f"chapter {number} ({name})"):
                    page = _chapter(archive, name)
                if page.text.strip():
                    label = page.locations[0].label if page.locations else str(number)
                    sections = tuple(
                        place._replace(label=place.label.removeprefix(f"{label} > "))
                        for place in page.locations[1:]
                    )
                    parts.append((replace(page, locations=sections), "chapter", label))
        return joined_file(parts, _metadata(book))


def _chapter(archive: Archive, name: str) -> LoadedFile:
    markup = decode(archive.read(name))
    return (
        read_html(_EMPTY_ELEMENT.sub(r"<\1\2></\1>", markup)) if markup.strip() else LoadedFile("")
    )


def _package(archive: Archive) -> str:
    """The part that lists all others."""
    for element in archive.xml(_CONTAINER).iter("{*}rootfile"):
        return element.get("full-path", "")
    raise LoadError(
        "The e-book is damaged: it has no list of its contents. Save it again as .epub."
    )


def _chapters(book: Element, package: str) -> Iterator[str]:
    """Names of the pages, in reading order, without the table of contents."""
    listed = {item.get("id"): item for item in book.iterfind("{*}manifest/{*}item")}
    for reference in book.iterfind("{*}spine/{*}itemref"):
        item = listed.get(reference.get("idref"))
        if (
            item is not None
            and item.get("media-type") in _PAGES
            and "nav" not in item.get("properties", "").split()
        ):
            yield posixpath.normpath(
                posixpath.join(posixpath.dirname(package), unquote(item.get("href", "")))
            )


def _protected(archive: Archive) -> frozenset[str]:
    """Names of encrypted parts, in many books only fonts."""
    if _ENCRYPTION not in archive:
        return frozenset()
    references = archive.xml(_ENCRYPTION).iter("{*}CipherReference")
    return frozenset(unquote(reference.get("URI", "")) for reference in references)


def _metadata(book: Element) -> dict[str, str]:
    """Title, authors and language of the book."""
    fields: dict[str, list[str]] = {}
    for element in book.iterfind("{*}metadata/*"):
        name = _METADATA.get(local_name(element), local_name(element))
        words = " ".join("".join(map(str, element.itertext())).split())
        if local_name(element) == "meta":
            name = _META_PREFIX.split(element.get("name") or element.get("property") or "")[-1]
            words = words or element.get("content", "")
        if name and words:
            fields.setdefault(name, []).append(words)
    values = {
        name: ", ".join(listed) if name == "author" else listed[0]
        for name, listed in fields.items()
    }
    lists = {
        name: listed for name, listed in fields.items() if len(listed) > 1 and name != "author"
    }
    reading().fields |= {**values, **lists}
    return {name: values[name] for name in _METADATA.values() if name in values}
