"""Structure of texts: headings, HTML, JSON, Markdown, Python definitions. And removal of parts of a
text.
"""

from __future__ import annotations

import html
import json
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from lazyrag.data.segment import Location, Locations, Span


class Heading(NamedTuple):
    """A heading: start of its line, level from 1, title."""

    start: int
    level: int
    title: str


_MAX_LABELS = 1 << 23
_SHORT_LABEL = 100
"""Characters of all labels, and of each after them: a long title stands above any number of
others."""


def heading_locations(headings: Sequence[Heading], length: int) -> Locations:
    """Return the section under each heading, up to the next one, labelled with the path of headings
    above.

    Args:
        headings: In the text's order.
        length: The text's length.

    Example:
        >>> headings = [Heading(0, 1, "Tea"), Heading(9, 2, "Picking")]
        >>> [location.label for location in heading_locations(headings, 20)]
        ['Tea', 'Tea > Picking']
    """
    locations = []
    path: list[Heading] = []
    written = 0
    for number, heading in enumerate(headings):
        while path and path[-1].level >= heading.level:
            path.pop()
        path.append(heading)
        end = headings[number + 1].start if number + 1 < len(headings) else length
        written += sum(len(ancestor.title) for ancestor in path)
        label = heading.title[:_SHORT_LABEL]
        if written <= _MAX_LABELS:
            label = " > ".join(ancestor.title for ancestor in path)
        locations.append(Location(heading.start, end, "heading", label))
    return tuple(locations)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A text with parts removed, which maps positions to its source.

    Args:
        text: The remaining text.
        starts: Where its contiguous pieces of the source begin, ascending from 0.
        origins: Where each of them begins in the source.

    Example:
        >>> cleaned = Cleaned("green  tea").without([(6, 7)])
        >>> cleaned.text, cleaned.span(6, 9), cleaned.span(0, 9)
        ('green tea', (7, 10), None)
    """

    text: str
    starts: array[int] = field(default_factory=lambda: array("q", [0]))
    origins: array[int] = field(default_factory=lambda: array("q", [0]))

    def span(self, start: int, end: int) -> Span | None:
        """Map a span to the source; None where something was removed inside of it."""
        at = bisect_right(self.starts, start) - 1
        if at + 1 < len(self.starts) and end > self.starts[at + 1]:
            return None
        shift = self.origins[at] - self.starts[at]
        return start + shift, end + shift

    def without(self, removed: Iterable[Span]) -> Cleaned:
        """Remove spans of its text, which are in order and do not overlap."""
        pieces = []
        starts = array("q")
        origins = array("q")
        position = length = 0
        for start, end in (*removed, (len(self.text), len(self.text))):
            if start > position:
                for at, origin in self._stretches(position, start):
                    starts.append(length + at - position)
                    origins.append(origin)
                pieces.append(self.text[position:start])
                length += start - position
            position = end
        return Cleaned("".join(pieces), starts, origins) if starts else Cleaned("")

    def _stretches(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Where the contiguous pieces of a span begin, in the text and in the source."""
        at = bisect_right(self.starts, start) - 1
        yield start, self.origins[at] + start - self.starts[at]
        at += 1
        while at < len(self.starts) and self.starts[at] < end:
            yield self.starts[at], self.origins[at]
            at += 1


_SPACE = "[\t\x0b\x0c \u00a0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000]"
_EMPTY_LINES = re.compile(rf"\r?\n(?:{_SPACE}*\r?\n){{2,}}")
_SPACES = re.compile(rf"{_SPACE}{{2,}}")


def extra_spaces(text: str) -> list[Span]:
    r"""Find superfluous white space: all but one empty line in a row, all but the first of several
    spaces.

    Example:
        >>> Cleaned("one\n\n \n\ntwo  three").without(extra_spaces("one\n\n \n\ntwo  three")).text
        'one\n\ntwo three'
    """
    gaps = []
    for match in _EMPTY_LINES.finditer(text):
        lines = match[0]
        first = 2 if lines.startswith("\r") else 1
        gaps.append((match.start() + first, match.end() - (2 if lines.endswith("\r\n") else 1)))
    between = iter(gaps)
    hole = next(between, None)
    spaces = []
    for match in _SPACES.finditer(text):
        while hole is not None and hole[1] <= match.start():
            hole = next(between, None)
        if hole is None or match.start() < hole[0]:
            spaces.append((match.start() + 1, match.end()))
    return sorted(gaps + spaces)


# The characters of web addresses; a Chinese character beside one is no part of it.
_ADDRESS = r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]"
_SCHEME = r"(?:(?:https?|ftp)://|www\.)"
_WHERE = r"[^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*"
_IMAGE = rf"!\[[^\[\]]*\]\({_WHERE}(?:\s+\"[^\"]*\")?\)"
_MAIL = r"(?<![A-Za-z0-9_.%+-])(?:mailto:)?[A-Za-z0-9_.%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
_REMOVED = re.compile(
    rf"(?P<image>{_IMAGE})"
    rf"|\[(?P<label>(?:{_IMAGE}|[^\[\]])*)\]"
    rf"\(\s*<?(?:{_SCHEME}|mailto:){_WHERE}>?(?:\s+\"[^\"]*\")?\s*\)"
    rf"|(?P<whole><(?:{_SCHEME}|mailto:)[^\s<>]*>|<{_MAIL}>)"
    rf"|(?P<url>(?<![A-Za-z0-9]){_SCHEME}(?=[A-Za-z0-9\[%]){_ADDRESS}+)"
    rf"|(?P<mail>{_MAIL})",
    re.IGNORECASE,
)
_CLOSING = {")": "(", "]": "["}


def web_addresses(text: str) -> list[Span]:
    """Find web and mail addresses. The text of a Markdown link stays, and so do images.

    Example:
        >>> text = "详见https://tea.cn/a_(b)。[Tea](http://tea.org) or <me@tea.org>."
        >>> Cleaned(text).without(web_addresses(text)).text
        '详见。Tea or .'
    """
    return list(_addresses(text, 0, len(text)))


def _addresses(text: str, start: int, end: int) -> Iterator[Span]:
    for match in _REMOVED.finditer(text, start, end):
        if match["label"] is not None:
            label = match.span("label")
            yield match.start(), label[0]
            yield from _addresses(text, *label)
            yield label[1], match.end()
        elif match["url"] is not None:
            yield match.start(), match.start() + _url_length(match[0])
        elif match["image"] is None:
            yield match.span()


def _url_length(url: str) -> int:
    """Length of an address without trailing marks that end a sentence or close a bracket."""
    counts = {mark: url.count(mark) for mark in "()[]"}
    length = len(url)
    while length:
        last = url[length - 1]
        if last in _CLOSING and counts[last] > counts[_CLOSING[last]]:
            counts[last] -= 1
        elif last not in "?!.,:;'*_~":
            break
        length -= 1
    return length


_OPENING = re.compile(r'"""|\'\'\'|["\'#]')
_CLOSING_QUOTES = {
    **{mark: re.compile(rf"\\.|{mark}", re.DOTALL) for mark in ('"""', "'''")},
    **{mark: re.compile(rf"\\(?:\r\n|.)|{mark}|(?=[\r\n])", re.DOTALL) for mark in "\"'"},
    "#": re.compile(r"(?=[\r\n])"),
}
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_DEFINITION = re.compile(r"(?:async[ \t]+def|def|class)[ \t]+([^\W\d]\w*)")


def python_definitions(text: str) -> Iterator[Location]:
    """Find top-level functions and classes, up to their last line that is neither blank nor a
    comment.

    It scans lines: `ast` fails on code of other versions of Python, on incomplete files and on deep
    nesting, and warns.
    """
    bare = _covered(text)
    start = end = depth = 0
    decorated: int | None = None
    name = ""
    continued = False
    for match in _LINE.finditer(bare):
        line = match[0].rstrip()
        if not line:
            continue
        definition = _DEFINITION.match(line)  # never inside brackets, even in broken code
        if definition or not (line[0].isspace() or depth > 0 or continued):
            if name:
                yield Location(start, end, "definition", name)
            start = match.start() if decorated is None else decorated
            name = definition[1] if definition else ""
            decorated = start if line[0] == "@" else None
        end = match.start() + len(line)
        depth = (
            (0 if definition else depth) + sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
        )
        continued = line.endswith("\\")
    if name:
        yield Location(start, end, "definition", name)


def _covered(text: str) -> str:
    """Python code with strings, line ends included, replaced by NULs and comments by spaces."""
    pieces = []
    at = 0
    while opening := _OPENING.search(text, at):
        pieces.append(text[at : opening.start()])
        closing = _CLOSING_QUOTES[opening[0]].search(text, opening.end())
        while closing and closing[0].startswith("\\"):
            closing = _CLOSING_QUOTES[opening[0]].search(text, closing.end())
        at = closing.end() if closing else len(text)
        pieces.append((" " if opening[0] == "#" else "\0") * (at - opening.start()))
    return "".join([*pieces, text[at:]])


_NAME = re.compile(r"/?([A-Za-z][^\s/>]*)")
# A ">" inside a quoted value ends no tag. An unclosed tag ends with the text.
_TAG_PART = re.compile(r"""[^>"'=]+|=\s*(?:"[^"]*(?:"|\Z)|'[^']*(?:'|\Z))?|["']""")
_HEADING = re.compile(r"h[1-6]")
_RAW = frozenset(["script", "style", "textarea", "title", "xmp"])
_UNSEEN = frozenset(["script", "style", "template", "title"])
BLOCKS = frozenset(
    "address article aside blockquote body br caption dd details div dl dt fieldset figcaption"
    " figure footer form h1 h2 h3 h4 h5 h6 head header hr html li main nav ol p pre section summary"
    " table tbody td tfoot th thead title tr ul".split()
)
"""Block elements, which browsers show on lines of their own."""


class Tag(NamedTuple):
    """A tag: span, name in lower case, whether it closes. Comments and declarations are named
    ``"!"``.
    """

    start: int
    end: int
    name: str
    closes: bool


def html_tags(text: str) -> Iterator[Tag]:
    """Find the tags of a text in order, in linear time, also in broken HTML.

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


def _behind(text: str, target: str, at: int) -> int:
    position = text.find(target, at)
    return len(text) if position < 0 else position + len(target)


def html_headings(text: str) -> Iterator[Heading]:
    """Find the headings h1 to h6 that have text.

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
    r"""Extract the visible text: blocks as lines, no scripts and styles, white space as browsers
    show it.

    Example:
        >>> html_text("<h1>Tea</h1><p>Green &amp; <b>black</b></p>")
        'Tea\nGreen & black'
    """
    pieces = []
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


MAX_DEPTH = 200
"""Maximum nesting of arrays and objects."""

_JSON_SPACE = re.compile(r"[ \t\r\n\ufeff]*")
_STRING = re.compile(r'"[^"\\]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\]*)*"')
_OTHER = re.compile(
    r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.+-])"
    r"|(?:true|false|null|NaN|-?Infinity)(?!\w)"
)
_PLAIN_KEY = re.compile(r"[^\W\d]\w*")


@dataclass(slots=True)
class Value:
    """A JSON value in a text.

    Args:
        start: Where it begins; for a member of an object, where its key begins.
        value: Where the value itself begins.
        end: Where it ends.
        kind: Its type; an ``other`` is a number or a literal.
        step: Its step in a JSON path: ``".name"``, ``"[3]"``.
        children: Of an array or an object.
    """

    start: int
    value: int
    end: int
    kind: Literal["object", "array", "string", "other"]
    step: str = ""
    children: list[Value] = field(default_factory=list)


def json_values(text: str) -> list[Value]:
    r"""Parse the values of a text: one, or several with white space between them, as in JSON Lines.

    Raises:
        ValueError: If it is not JSON, or nested deeper than `MAX_DEPTH`; the message has line and
            column.

    Example:
        >>> [one.step for one in json_values('{"tea": ["green"], "a b": 1}')[0].children]
        ['.tea', "['a b']"]
    """
    reader = _JsonReader(text)
    values = []
    while reader.at < len(text):
        values.append(reader.value(0))
        reader.space()
    if len(values) > 1:
        for number, value in enumerate(values):
            value.step = f"[{number}]"
    return values


def string_value(source: str) -> str:
    """Decode a JSON string."""
    value: str = json.loads(source, strict=False)
    return value


class _JsonReader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.space()

    def space(self) -> None:
        match = _JSON_SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def value(self, depth: int) -> Value:
        start = self.at
        first = self.text[self.at : self.at + 1]
        if first in ("{", "["):
            if depth >= MAX_DEPTH:
                raise self._error(f"nested deeper than {MAX_DEPTH}")
            self.at += 1
            children = list(self._members(depth + 1, is_object=first == "{"))
            return Value(
                start, start, self.at, "object" if first == "{" else "array", children=children
            )
        match = (_STRING if first == '"' else _OTHER).match(self.text, self.at)
        if match is None:
            raise self._error("no value")
        self.at = match.end()
        return Value(start, start, self.at, "string" if first == '"' else "other")

    def _members(self, depth: int, *, is_object: bool) -> Iterator[Value]:
        closing = "}" if is_object else "]"
        self.space()
        number = 0
        while not self.text.startswith(closing, self.at):
            if number:
                self._expect(",")
            start = self.at
            step = f"[{number}]"
            if is_object:
                key = _STRING.match(self.text, self.at)
                if key is None:
                    raise self._error("no key")
                step = json_step(string_value(key[0]))
                self.at = key.end()
                self.space()
                self._expect(":")
            member = self.value(depth)
            member.start = start
            member.step = step
            yield member
            self.space()
            number += 1
        self.at += 1

    def _expect(self, mark: str) -> None:
        if not self.text.startswith(mark, self.at):
            raise self._error(f"no {mark!r}")
        self.at += 1
        self.space()

    def _error(self, problem: str) -> ValueError:
        line = self.text.count("\n", 0, self.at) + 1
        column = self.at - self.text.rfind("\n", 0, self.at)
        return ValueError(f"{problem} at line {line}, column {column}")


def json_step(key: str) -> str:
    """The step to a member in a path: ``.name`` or ``['a name']``."""
    if _PLAIN_KEY.fullmatch(key):
        return f".{key}"
    return "['" + key.replace("\\", "\\\\").replace("'", "\\'") + "']"


@dataclass(slots=True, eq=False)
class XmlElement:
    """An element of XML.

    Args:
        name: Its name.
        parent: The element around it.
        attributes: Names and values in turn.
        start: Where its tag begins, in bytes of UTF-8.
        first: Index of its first piece of text.
        depth: Number of elements around it.
        number: Its number among the siblings of its name.
        end: Where its closing tag begins; of an empty element, where its tag ends.
        last: Index behind its last piece of text.
        behind: Index of the next element that is not inside of it.
        has_text: Whether it has text of its own.
        counts: Number of its children by name.
    """

    name: str
    parent: XmlElement | None
    attributes: list[str]
    start: int
    first: int
    depth: int
    number: int = 1
    end: int = 0
    last: int = 0
    behind: int = 0
    has_text: bool = False
    counts: dict[str, int] = field(default_factory=dict)

    def path(self) -> str:
        """Its XPath, with numbers for several siblings of a name."""
        steps = []
        element: XmlElement | None = self
        while element:
            several = element.parent and element.parent.counts[element.name] > 1
            steps.append(f"/{element.name}[{element.number}]" if several else f"/{element.name}")
            element = element.parent
        return "".join(reversed(steps))


_SHORT_ENTITY = 64


def xml_elements(text: str) -> tuple[list[XmlElement], list[str]]:
    """Parse XML into its elements, in order, and its pieces of text.

    Raises:
        expat.ExpatError: If it is not well-formed.
        RecursionError: If it is nested deeper than `MAX_DEPTH`.
        ValueError: If it declares a parameter entity, or one that is long, refers to other
            entities, or names a text file.
    """
    from xml.parsers import expat

    parser = expat.ParserCreate()
    elements = []
    pieces: list[str] = []
    within: list[XmlElement] = []

    def begin(name: str, attributes: list[str]) -> None:
        if len(within) >= MAX_DEPTH:
            raise RecursionError(f"nested deeper than {MAX_DEPTH}")
        parent = within[-1] if within else None
        element = XmlElement(
            name, parent, attributes, parser.CurrentByteIndex, len(pieces), len(within)
        )
        if parent is not None:
            element.number = parent.counts[name] = parent.counts.get(name, 0) + 1
        elements.append(element)
        within.append(element)

    def finish(_: str) -> None:
        element = within.pop()
        element.end = parser.CurrentByteIndex
        element.last = len(pieces)
        element.behind = len(elements)

    def add(piece: str) -> None:
        pieces.append(piece)
        within[-1].has_text |= not piece.isspace()

    def skip(name: str, is_parameter: bool) -> None:
        """Read a reference to an entity of an external document type; most are HTML's."""
        if not is_parameter and within:
            add(html.unescape(f"&{name};"))

    def declare(name: str, is_parameter: int, value: str | None, *places: str | None) -> None:
        """Allow short texts, and names of pictures and the like, which have a notation."""
        is_short = value is not None and len(value) <= _SHORT_ENTITY and not set(value) & set("&<")
        if is_parameter or not (is_short or places[-1]):
            raise ValueError(
                f"declares an entity ({name:.80}) that is longer than {_SHORT_ENTITY} characters,"
                " or refers to others or to a file"
            )

    parser.buffer_text = parser.ordered_attributes = True
    parser.StartElementHandler = begin
    parser.EndElementHandler = finish
    parser.CharacterDataHandler = add
    parser.EntityDeclHandler = declare
    parser.SkippedEntityHandler = skip
    parser.Parse(text, True)
    return elements, pieces


_FENCE = re.compile(
    r" {0,3}(?:(?P<ticks>`{3,})(?=[^`]*$)|(?P<tildes>~{3,}))"
)  # backticks on both sides are inline code
_FRONT_MATTER = re.compile(
    r"---[ \t]*\r?\n(?=\S)(?:[^\n]*\n){0,100}?(?:---|\.\.\.)[ \t]*(?:\r?\n|$)"
)
_FIELD = re.compile(r"([\w][\w .-]{0,99}?)[ \t]*:(?:[ \t]+(.*))?$")
_ITEM = re.compile(r"[ \t]*-[ \t]+(\S.*)$")
_NO_PARAGRAPH = re.compile(r"\t| {4}|\s*(?:[>|]|[-*+][ \t]|\d{1,9}[.)][ \t])")
_HASHES = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_ROW = re.compile(r" {0,3}\|")
_RAW_HTML = re.compile(
    r" {0,3}<(?:(?P<tag>script|pre|style|textarea)(?=[\s>]|$)|!--)", re.IGNORECASE
)
_ATTRIBUTES = re.compile(r"(?<!\S)\{:?[ \t]*[#.][^{}]*\}[ \t]*$")
"""Attributes of a heading, such as ``{ #id .class }``."""


class Block(NamedTuple):
    """Lines between empty ones, or a fenced piece of code.

    Args:
        start: Where it begins.
        end: Behind the empty lines that follow it.
        is_verbatim: Whether its lines count one by one: code in a fence, or a table.
    """

    start: int
    end: int
    is_verbatim: bool


def markdown_headings(text: str) -> Iterator[Heading]:
    r"""Find ATX and setext headings, outside of code in fences or HTML, of comments and front
    matter, in order.

    Example:
        >>> text = "# Tea\n\n```\n# no\n```\nWater\n-----\n"
        >>> [heading.title for heading in markdown_headings(text)]
        ['Tea', 'Water']
    """
    above: tuple[int, str] | None = None  # start and text of a paragraph's single line
    for start, line in _open_lines(text, _after_front_matter(text)):
        if hashes := _HASHES.match(line):
            yield Heading(start, len(hashes[1]), _without_closing_hashes(hashes[2] or ""))
            above = None
        elif above and (underline := _UNDERLINE.match(line)):
            title = _ATTRIBUTES.sub("", above[1]).rstrip()
            yield Heading(above[0], 1 if underline[1][0] == "=" else 2, title)
            above = None
        else:
            first_of_paragraph = above is None and line.strip() and not _NO_PARAGRAPH.match(line)
            above = (start, line.strip()) if first_of_paragraph else None


def _open_lines(text: str, start: int) -> Iterator[tuple[int, str]]:
    """The lines from a position on, each with its start; "" for those of code and of comments."""
    fence = ""
    closing = ""  # of HTML in which lines are no Markdown
    for line in text[start:].splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        mark = _FENCE.match(bare)
        markup = _RAW_HTML.match(bare)
        yield start, "" if fence or closing or mark or markup else bare
        if fence:
            fence = "" if _closes(bare, fence) else fence
        elif mark and not closing:
            fence = mark["ticks"] or mark["tildes"]
        elif markup and not closing:
            closing = f"</{markup['tag'].lower()}>" if markup["tag"] else "-->"
        if closing in bare.lower():
            closing = ""
        start += len(line)


def front_matter(text: str) -> dict[str, str | list[str]]:
    r"""Read the simple lines of the front matter: texts, and lists of texts. Nested values are
    skipped.

    Everything is a text, as the file spells it; YAML is not parsed.

    Example:
        >>> fields = "title: \"Tea: a guide\"\ntags: [green, 'black']\nof:\n- Li\n"
        >>> front_matter(f"---\n{fields}---\n# Tea\n")
        {'title': 'Tea: a guide', 'tags': ['green', 'black'], 'of': ['Li']}
    """
    fields = {}
    items: list[str] | None = None  # the list that lines with a dash belong to
    for line in text[: _after_front_matter(text)].splitlines()[1:-1]:
        named = _FIELD.match(line)
        item = _ITEM.match(line)
        if named:
            text_of_value = (named[2] or "").strip()
            value = _front_matter_value(text_of_value)
            fields[named[1]] = value
            items = value if isinstance(value, list) and not text_of_value else None
        elif item and items is not None and not _FIELD.match(item[1]):
            items.append(_unquoted(item[1]))
        elif line.strip() and not line.lstrip().startswith("#"):
            items = None
    return {name: value for name, value in fields.items() if value}


def _front_matter_value(text: str) -> str | list[str]:
    """Read a value in one line, or the beginning of a list; "" for structures that are not read."""
    if not text:
        return []
    if text[0] == "[" and text[-1] == "]" and "[" not in text[1:]:
        return [_unquoted(entry) for entry in text[1:-1].split(",") if entry.strip()]
    return "" if text[0] in "[{|>&*!#" else _unquoted(text)


def markdown_blocks(text: str) -> Iterator[Block]:
    r"""Split a text into blocks, which cover it without a gap.

    Example:
        >>> text = "Tea\n\n```\na\n\nb\n```\n"
        >>> [(text[block.start : block.end], block.is_verbatim) for block in markdown_blocks(text)]
        [('Tea\n\n', False), ('```\na\n\nb\n```\n', True)]
    """
    fence = ""
    begin = position = 0
    verbatim = blank = False
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        opening = None if fence else _FENCE.match(bare)
        if position > begin and (opening or (blank and not fence and bare.strip())):
            yield Block(begin, position, verbatim)
            begin = position
            verbatim = False
        if fence:
            # what follows is another block, with or without an empty line
            blank = _closes(bare, fence)
            if blank:
                fence = ""
        elif opening:
            blank = False
            fence = opening["ticks"] or opening["tildes"]
            verbatim = True
        else:
            blank = not bare.strip()
            verbatim = verbatim or (begin == position and bool(_ROW.match(bare)))
        position += len(line)
    if position > begin:
        yield Block(begin, position, verbatim)


def _after_front_matter(text: str) -> int:
    front = _FRONT_MATTER.match(text)
    return front.end() if front else 0


def _unquoted(value: str) -> str:
    """A value without its quotation marks, or without the comment behind it."""
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value.partition(" #")[0].rstrip()


def _closes(line: str, fence: str) -> bool:
    bare = line.strip()
    return bare.startswith(fence) and not bare.strip(fence[0])


def _without_closing_hashes(title: str) -> str:
    """``Tea ##`` is headed ``Tea``, but ``C#`` keeps its mark."""
    title = _ATTRIBUTES.sub("", title).strip(" \t")
    bare = title.rstrip("#")
    return bare.rstrip(" \t") if not bare or bare[-1] in " \t" else title
