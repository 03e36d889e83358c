"""The splitter of HTML."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import itertools
import json
import re
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from lazyrag.data.node import DocNode
from lazyrag.data.segment import Span
from lazyrag.errors import ConfigError, TransformError, known_names, missing_package
from lazyrag.text.sentences import is_boundary, sentence_ends
from lazyrag.text.structure import (
    BLOCKS,
    Block,
    Tag,
    Value,
    heading_places,
    html_headings,
    html_tags,
    html_text,
    json_values,
    markdown_blocks,
    markdown_headings,
    python_definitions,
    string_value,
)
from lazyrag.text.tokens import TokenCounter
from lazyrag.transforms.base import NodeTransform, transforms
from lazyrag.transforms.splitters import Packer, chunks, closed, word_ends
from lazyrag.validation import known_arguments, yes_or_no

# By language: the package that brings its grammar, the function in it, and the suffixes of its files.
_GRAMMARS: Mapping[str, tuple[str, str, str]] = {
    "bash": ("tree_sitter_bash", "language", ".bash .sh"),
    "c": ("tree_sitter_c", "language", ".c .h"),
    "cpp": ("tree_sitter_cpp", "language", ".cc .cpp .cxx .hpp"),
    "csharp": ("tree_sitter_c_sharp", "language", ".cs"),
    "go": ("tree_sitter_go", "language", ".go"),
    "java": ("tree_sitter_java", "language", ".java"),
    "javascript": ("tree_sitter_javascript", "language", ".js .jsx .mjs"),
    "php": ("tree_sitter_php", "language_php", ".php"),
    "python": ("tree_sitter_python", "language", ".py .pyi"),
    "ruby": ("tree_sitter_ruby", "language", ".rb"),
    "rust": ("tree_sitter_rust", "language", ".rs"),
    "tsx": ("tree_sitter_typescript", "language_tsx", ".tsx"),
    "typescript": ("tree_sitter_typescript", "language_typescript", ".ts"),
}
LANGUAGES = tuple(_GRAMMARS)
"""Names of the languages."""

_BY_SUFFIX = {suffix: name for name, (_, _, suffixes) in _GRAMMARS.items() for suffix in suffixes.split()}


class Part(NamedTuple):
    """A node of a syntax tree.

    Args:
        start: Where it begins in the text, in characters.
        end: Where it ends.
        kind: What the grammar calls it.
        depth: How many nodes it stands in.
        name: The name that it defines; "" where it defines nothing.
        is_leaf: Whether nothing stands in it: a token.
    """

    start: int
    end: int
    kind: str
    depth: int
    name: str
    is_leaf: bool


def language_of(path: str) -> str:
    """The language of a file by its suffix; "" for another one.

    Example:
        >>> language_of("brew/Kettle.RS"), language_of("notes.txt")
        ('rust', '')
    """
    return _BY_SUFFIX.get(PurePath(path).suffix.lower(), "")


def checked_language(language: Any) -> str:
    """A language's name.

    Raises:
        ConfigError: If there is none of that name.
    """
    if language not in _GRAMMARS:
        msg = f"language is {language!r:.80}. {known_names(str(language), LANGUAGES)}"
        raise ConfigError(msg)
    return str(language)


@functools.cache
def is_installed(language: str) -> bool:
    """Whether a language's grammar is there; nothing is imported."""
    return all(importlib.util.find_spec(package) for package in ("tree_sitter", _GRAMMARS[language][0]))


@functools.cache
def _language(language: str) -> Any:
    package, function, _ = _GRAMMARS[language]
    try:
        import tree_sitter

        grammar = importlib.import_module(package)
    except ModuleNotFoundError as exc:
        raise missing_package(f"CodeSplitter(language={language!r})", exc, "code") from exc
    return tree_sitter.Language(getattr(grammar, function)())


def load_grammar(language: str) -> None:
    """Import a language's grammar.

    Raises:
        MissingDependencyError: If it is not installed.
    """
    _language(language)


def syntax(text: str, language: str) -> Iterator[Part]:
    """The nodes of a text's syntax tree, each before what stands in it; broken code has one, too.

    Raises:
        MissingDependencyError: If the language's grammar is not installed.
    """
    grammar = _language(language)
    import tree_sitter

    data = text.encode("utf-8", "surrogatepass")
    places = _places(text, data)
    cursor: Any = tree_sitter.Parser(grammar).parse(data).walk()
    depth = 0
    while True:
        node = cursor.node
        named = _named(node) if _defines(node.type) else None
        name = "" if named is None else text[places(named.start_byte) : places(named.end_byte)]
        start, end = places(node.start_byte), places(node.end_byte)
        yield Part(start, end, node.type, depth, name, node.child_count == 0)
        if cursor.goto_first_child():
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
            depth -= 1


def _named(node: Any) -> Any:
    """The node of the name that a definition gives; in C it stands inside of what is declared."""
    found = node.child_by_field_name("name")
    inner = node.child_by_field_name("declarator") if node.type == "function_definition" else None
    while found is None and inner is not None:
        inner, outer = inner.child_by_field_name("declarator"), inner
        found = outer if inner is None else None
    return found


def _defines(kind: str) -> bool:
    return kind in _DEFINING or kind.endswith(("_definition", "_declaration", "_item", "_specifier", "_spec"))


_DEFINING = frozenset(["class", "module", "method", "singleton_method", "class_body", "function", "type_spec"])


class _Bytes:
    """From places in bytes to places in characters."""

    def __init__(self, text: str) -> None:
        self._at = []
        for number, character in enumerate(text):
            self._at += [number] * len(character.encode("utf-8", "surrogatepass"))
        self._at.append(len(text))

    def __call__(self, place: int) -> int:
        return self._at[place]


def _places(text: str, data: bytes) -> Callable[[int], int]:
    return int if len(text) == len(data) else _Bytes(text)


_DEEPEST = 24  # levels; what is nested deeper is cut at the ends of lines
_UNINDENTED = re.compile(r"\n(?=\S)")
_MARGIN = re.compile(r"\n(?=[^\s})\]])")
_LINE = re.compile(r"\n")


class Definition(NamedTuple):
    """A function, a class or the like, with its dotted path: ``"Kettle.boil"``."""

    start: int
    end: int
    path: str


@known_arguments
class CodeSplitter(NodeTransform):
    r"""Splits source code at its definitions: as many whole functions, classes or statements as fit make a chunk.

    What does not fit is taken apart by what stands in it: a class by its methods, a function by its statements, those
    at the ends of lines; no token is cut in two unless it alone does not fit. A comment stays with what follows it.
    Chunks say in their metadata what they are of: ``{"definition": "Kettle.boil", "language": "python"}``.

    The grammars are those of tree-sitter (``pip install "lazyrag[code]"``); nothing is downloaded at run time. Where
    the language is told by the file's suffix and there is no grammar of it, code is cut at definitions as its lines
    show them: at blank lines and at what begins at the margin.

    Args:
        chunk_size: Most tokens of a chunk, at least 1.
        chunk_overlap: Most tokens that two neighbours share, at least 0 and at most half of chunk_size.
        language: One of bash, c, cpp, csharp, go, java, javascript, php, python, ruby, rust, tsx, typescript; None
            for what the suffix of the document's path says.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If a size is out of its range, or the language or the counter is none.
        MissingDependencyError: If a language is given whose grammar is not installed.

    Example:
        >>> code = "def boil(heat):\n    return heat\n\n\nclass Kettle:\n    volume = 1\n"
        >>> for node in CodeSplitter(chunk_size=14, language="python")(DocNode(text=code)):
        ...     print(node.metadata["definition"], repr(node.text))
        boil 'def boil(heat):\n    return heat\n\n\n'
        Kettle 'class Kettle:\n    volume = 1\n'
    """

    def __init__(
        self,
        chunk_size: int = 1024,
        chunk_overlap: int = 0,
        *,
        language: str | None = None,
        counter: TokenCounter | str = "utf8",
    ) -> None:
        self._packer = Packer(chunk_size, chunk_overlap, counter)
        self.chunk_size, self.chunk_overlap = self._packer.size, self._packer.overlap
        self.counter = self._packer.counter
        self.language = None if language is None else checked_language(language)
        if self.language is not None:
            load_grammar(self.language)
        if type(self) is CodeSplitter:  # a subclass may do anything, so its code has to count
            told = self.language or "+".join(one for one in LANGUAGES if is_installed(one)) or "lines"
            self.identity = f"CodeSplitter/1 {self._packer.told} language={told}"

    def path_told(self, path: str) -> str:
        """What of a document's path decides about its chunks: the language."""
        return self.language or language_of(path)

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The chunks of the node's text, with their spans in it, their definitions and the language."""
        text, language = node.get_text(), self.path_told(node.path)
        levels, definitions = _read(text, language)
        for start, end in self._packer.spans(text, levels):
            own = text[start:end]
            if not own.isspace():
                inked = (end - len(own.lstrip()), start + len(own.rstrip()))
                told = {"definition": _definition(definitions, inked), "language": language}
                metadata = {name: value for name, value in told.items() if value}
                yield DocNode(text=own, span=(start, end), metadata=metadata)

    def split(self, text: str) -> list[Span]:
        """The spans of the chunks of a text, in order; see `lazyrag.transforms.splitters.Packer.spans`."""
        return self._packer.spans(text, _read(text, self.language or "")[0])


def _read(text: str, language: str) -> tuple[list[array[int]], list[Definition]]:
    """Where parts of a code end, from large to small, and its definitions."""
    if language and is_installed(language):
        return _by_grammar(text, language)
    definitions = [
        Definition(one.start, one.end, one.label) for one in (python_definitions(text) if language == "python" else ())
    ]
    outer = (_line_end(text, one.end) for one in definitions)
    levels = [outer] if definitions else []
    found = [_ends(_MARGIN, text), _behind_blank_lines(text), _ends(_LINE, text)]
    if not definitions:  # a margin behind a blank line is where something new begins
        found.insert(0, sorted({*found[0]} & {*found[1]}))
        del found[1]
    else:
        del found[0]
    return [_level(text, ends) for ends in (*levels, *found, word_ends(text))], definitions


def _by_grammar(text: str, language: str) -> tuple[list[array[int]], list[Definition]]:
    by_depth: dict[int, set[int]] = defaultdict(set)
    tokens: set[int] = set()
    definitions: list[Definition] = []
    line: list[tuple[int, str]] = []  # the definitions around, with their depths
    for part in syntax(text, language):
        if part.is_leaf:
            tokens.update((part.start, part.end))
        while line and line[-1][0] >= part.depth:
            line.pop()
        if part.name:
            line.append((part.depth, part.name))
            definitions.append(Definition(part.start, part.end, ".".join(name for _, name in line)))
        leads = "comment" in part.kind or "attribute" in part.kind or "decorator" in part.kind
        if not (leads or part.is_leaf) and 0 < part.depth <= _DEEPEST:  # a bare "{" closes nothing
            end = _line_end(text, part.end)
            if end and text[end - 1] == "\n":
                by_depth[part.depth].add(end)
    levels, ends = [], set[int]()
    for depth in sorted(by_depth):
        if not by_depth[depth] <= ends:
            ends = ends | by_depth[depth]
            levels.append(_level(text, ends))
    lines = tokens & {place for end in _ends(_LINE, text) for place in (end, end - 1)}
    return [*levels, _level(text, {_line_end(text, place) for place in lines}), _level(text, tokens)], definitions


def _ends(pattern: re.Pattern[str], text: str) -> list[int]:
    return [match.end() for match in pattern.finditer(text)]


def _behind_blank_lines(text: str) -> list[int]:
    """Where lines begin that are not indented and follow a blank one; a pattern of that takes time squared."""
    ends = []
    for end in _ends(_UNINDENTED, text):
        before = text.rfind("\n", 0, end - 1)
        if before >= 0 and not text[before + 1 : end - 1].strip():
            ends.append(end)
    return ends


def _level(text: str, ends: Iterable[int]) -> array[int]:
    return closed(array("q", sorted(end for end in {*ends} if end > 0 and is_boundary(text, end))), len(text))


def _line_end(text: str, end: int) -> int:
    """Behind the white space at a place, up to the indent of the line that follows; the place itself within a line."""
    at = end
    while at < len(text) and text[at].isspace():
        at += 1
    line = text.rfind("\n", end, at) + 1
    if line:
        return line
    return at if at == len(text) else end


def _definition(definitions: Sequence[Definition], span: Span) -> str:
    """What a chunk is of: the innermost definition around it; else the outermost ones that it touches."""
    start, end = span
    around = [one for one in definitions if one.start <= start and end <= one.end]
    if around:
        return min(around, key=lambda one: one.end - one.start).path
    touched: list[Definition] = []
    for one in definitions:
        if one.start < end and start < one.end and not (touched and one.end <= touched[-1].end):
            touched.append(one)
    return ", ".join(one.path for one in touched)


transforms.register("CodeSplitter", CodeSplitter)


_FORMS = ("json", "lines")
_ESCAPES = {code: json.dumps(chr(code))[1:-1] for code in (*range(32), ord('"'), ord("\\"))}
"""What JSON does not allow in a text, by its code."""


@known_arguments
class JSONSplitter(NodeTransform):
    """Splits JSON along its structure; every chunk says where it stands: ``{"path": "$.teas[2:5]"}``.

    A value that fits is one chunk. Of a larger array or object, as many members as fit make a chunk, written as an
    array or object of their own, so that every chunk is JSON again. A member that does not fit is taken apart itself;
    a text is at the ends of sentences and words. Several values in one text (JSON Lines) are split like an array.

    ``form="lines"`` writes a line for each number, text and literal instead, ``teas[2].name: Longjing``, which is
    what full-text search and embedding models read best.

    The loader of ``.json`` files writes such lines itself; this is for JSON that came as text, such as that of
    `Document.add_texts`, or read by a loader of your own.

    Args:
        chunk_size: Most tokens of a chunk, at least 1.
        form: ``"json"`` or ``"lines"``.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If a size is out of its range, the form is unknown or the counter is none.

    Example:
        >>> splitter = JSONSplitter(chunk_size=8)
        >>> for node in splitter(DocNode(text='{"teas": ["green", "black", "white"], "heat": 80}')):
        ...     print(node.metadata["path"], node.text)
        $.teas[0:2] ["green", "black"]
        $.teas[2:3] ["white"]
        $ {"heat": 80}
    """

    reads_text_only = True

    def __init__(self, chunk_size: int = 1024, *, form: str = "json", counter: TokenCounter | str = "utf8") -> None:
        if form not in _FORMS:
            msg = f"form is {form!r:.80}. {known_names(str(form), _FORMS)}"
            raise ConfigError(msg)
        self._packer = Packer(chunk_size, 0, counter)
        self.chunk_size, self.counter, self.form = self._packer.size, self._packer.counter, form
        if type(self) is JSONSplitter:  # a subclass may do anything, so its code has to count
            self.identity = f"JSONSplitter/1 {self._packer.told} form={form}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The chunks of the node's JSON; those that stand in it as they are have their spans.

        Raises:
            TransformError: If it is no JSON.
        """
        text = node.get_text()
        try:
            values = json_values(text)
            if len(values) > 1:
                whole = Value(values[0].start, values[0].start, values[-1].end, "array", children=values)
                found = self._lines(text, whole) if self.form == "lines" else self._members(text, whole, "$")
            else:
                found = self._lines(text, *values) if self.form == "lines" else self._parts(text, values, "$")
            yield from found
        except ValueError as exc:
            msg = (
                f"The text is no JSON: {exc}. JSONSplitter takes JSON as it is written, such as that of add_texts; the "
                "loader of .json files writes lines of 'name: value' instead, which RecursiveSplitter splits."
            )
            raise TransformError(msg) from exc

    def _fits(self, text: str) -> bool:
        return self.counter.count(text) <= self.chunk_size

    def _parts(self, text: str, values: Sequence[Value], path: str) -> Iterator[DocNode]:
        for value in values:
            source = text[value.value : value.end]
            if self._fits(source):
                yield DocNode(text=source, span=(value.value, value.end), metadata={"path": path})
            elif value.children:
                yield from self._members(text, value, path)
            elif value.kind == "string":
                yield from self._pieces(source, path)
            else:  # a number of hundreds of digits, or a size below that of "null"
                for start, end in self._packer.spans(source, [array("q", [len(source)])]):
                    yield _node(source[start:end], path, (value.value + start, value.value + end))

    def _members(self, text: str, container: Value, path: str) -> Iterator[DocNode]:
        """Runs of members that fit together as a container of their own; what does not fit is taken apart."""
        is_array = container.kind == "array"
        opening, ending = "[]" if is_array else "{}"
        members = container.children
        separate = container.value == members[0].start  # several values, with no commas between them
        first = 0
        while first < len(members):
            last, wrapped, joined = first, "", ""
            while last < len(members):
                one = members[last]
                if separate:
                    joined = f"{joined}, {text[one.start : one.end]}" if last > first else text[one.start : one.end]
                inner = joined if separate else text[members[first].start : one.end]
                if not self._fits(f"{opening}{inner}{ending}"):
                    break
                last, wrapped = last + 1, f"{opening}{inner}{ending}"
            if last > first:
                yield _node(wrapped, f"{path}[{first}:{last}]" if is_array else path)
                first = last
            else:
                yield from self._parts(text, members[first : first + 1], path + members[first].step)
                first += 1

    def _pieces(self, source: str, path: str) -> Iterator[DocNode]:
        """A text's pieces, each a JSON string again; no escape is torn, and there are only those that JSON needs."""
        text = string_value(source)
        inner = text.translate(_ESCAPES)
        places = [0, *itertools.accumulate(len(_ESCAPES.get(ord(one), one)) for one in text)]
        room = Packer(max(1, self.chunk_size - self.counter.count('""')), 0, self.counter)
        whole = (at for at in range(1, len(text) + 1) if is_boundary(text, at))
        found = (sentence_ends(text), word_ends(text), whole, range(1, len(text) + 1))
        levels = [array("q", (places[end] for end in ends)) for ends in found]
        for start, end in room.spans(inner, levels):
            yield _node(f'"{inner[start:end]}"', path)

    def _lines(self, text: str, value: Value | None = None) -> Iterator[DocNode]:
        held: list[tuple[list[str], str]] = []
        for steps, told in _leaves(text, value, []) if value is not None else ():
            name = "".join(steps).removeprefix(".")
            line = f"{name}: {told}" if name else told
            if held and not self._fits("\n".join([*(one for _, one in held), line])):
                yield _of_lines(held)
                held = []
            if self._fits(line):
                held.append((steps, line))
            else:
                yield from self._of_long_line(name, told, "$" + "".join(steps))
        if held:
            yield _of_lines(held)

    def _of_long_line(self, name: str, told: str, path: str) -> Iterator[DocNode]:
        """A line that does not fit in pieces that each repeat its name, where that leaves room for more than it."""
        prefix = f"{name}: " if name and 2 * self.counter.count(f"{name}: ") <= self.chunk_size else ""
        body = told if prefix or not name else f"{name}: {told}"
        room = Packer(self.chunk_size - self.counter.count(prefix), 0, self.counter)
        for start, end in room.spans(body, [sentence_ends(body)]):
            if not body[start:end].isspace():
                yield _node(prefix + body[start:end], path)


def _node(text: str, path: str, span: Span | None = None) -> DocNode:
    return DocNode(text=text, span=span, metadata={"path": path})


def _leaves(text: str, value: Value, steps: list[str]) -> Iterator[tuple[list[str], str]]:
    for one in value.children:
        yield from _leaves(text, one, [*steps, one.step])
    if not value.children:
        source = text[value.value : value.end]
        yield steps, string_value(source) if value.kind == "string" else source


def _of_lines(held: Sequence[tuple[list[str], str]]) -> DocNode:
    shared: list[str] = []
    for together in zip(*(steps for steps, _ in held), strict=False):
        if len({*together}) > 1:
            break
        shared.append(together[0])
    return _node("\n".join(line for _, line in held), "$" + "".join(shared))


transforms.register("JSONSplitter", JSONSplitter)


class Section(NamedTuple):
    """What stands under one heading.

    Args:
        start: Where its heading begins.
        end: Where the next one begins.
        path: Its heading and those above it: ``"Tea > Picking"``; "" before the first one.
    """

    start: int
    end: int
    path: str


@known_arguments
class MarkdownSplitter(NodeTransform):
    r"""Splits Markdown at its headings, and longer sections into chunks of as many blocks as fit.

    A block is what stands between empty lines, a table or a fenced piece of code. One that does not fit is taken apart:
    code and tables at the ends of lines, prose at those of sentences. A heading stays with what follows it. Each chunk
    says in its metadata under which headings it stands: ``{"heading": "Tea > Picking"}``.

    Args:
        chunk_size: Most tokens of a chunk, at least 1.
        chunk_overlap: Most tokens that two neighbours of one section share, at least 0 and at most half of chunk_size.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If a size is out of its range or the counter is none.

    Example:
        >>> splitter = MarkdownSplitter(chunk_size=20)
        >>> for node in splitter(DocNode(text="# Tea\n\nIt keeps.\n\n## Water\n\n80 degrees.\n")):
        ...     print(node.metadata["heading"], repr(node.text))
        Tea '# Tea\n\nIt keeps.\n\n'
        Tea > Water '## Water\n\n80 degrees.\n'
    """

    reads_text_only = True

    def __init__(self, chunk_size: int = 1024, chunk_overlap: int = 0, *, counter: TokenCounter | str = "utf8") -> None:
        self._packer = Packer(chunk_size, chunk_overlap, counter)
        self.chunk_size, self.chunk_overlap = self._packer.size, self._packer.overlap
        self.counter = self._packer.counter
        if type(self) is MarkdownSplitter:  # a subclass may do anything, so its code has to count
            self.identity = f"MarkdownSplitter/1 {self._packer.told}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The chunks of the node's text, with their spans in it and their headings."""
        text = node.get_text()
        for section, spans in self.split(text):
            yield from chunks(text, spans, {"heading": section.path} if section.path else {})

    def split(self, text: str) -> Iterator[tuple[Section, list[Span]]]:
        """The sections of a text, each with the spans of its chunks; together they cover the text without a gap."""
        for section in sections(text):
            own = text[section.start : section.end]
            spans = self._packer.spans(own, _levels(own, has_heading=bool(section.path)))
            yield section, [(section.start + start, section.start + end) for start, end in spans]


def sections(text: str) -> Iterator[Section]:
    r"""What stands before the first heading, if anything, and under each of them.

    Example:
        >>> [section.path for section in sections("Before\n\n# Tea\n## Water\n")]
        ['', 'Tea', 'Tea > Water']
    """
    places = heading_places(list(markdown_headings(text)), len(text))
    first = places[0].start if places else len(text)
    if first:
        yield Section(0, first, "")
    for place in places:
        yield Section(place.start, place.end, place.label)


def _levels(text: str, *, has_heading: bool) -> list[array[int]]:
    """Where a section's blocks end, and where sentences and lines of code and tables do."""
    blocks = list(markdown_blocks(text))
    # What comes before that would be the heading alone.
    least = _heading_end(text) if has_heading else 0
    ends = array("q", (block.end for block in blocks if block.end > least))
    fine = array("q")
    for block in blocks:
        fine.extend(end for end in _ends_within(text, block) if end > least)
    return [closed(ends, len(text)), closed(fine, len(text))]


def _ends_within(text: str, block: Block) -> Iterator[int]:
    own = text[block.start : block.end]
    if not block.is_verbatim:
        yield from (block.start + end for end in sentence_ends(own) if is_boundary(text, block.start + end))
        return
    position = block.start
    for line in own.splitlines(keepends=True):
        position += len(line)
        if is_boundary(text, position):
            yield position


def _heading_end(text: str) -> int:
    """Where a section's heading ends, which it begins with: ``# Tea``, or a line with another one drawn beneath it."""
    first, *others = text.splitlines(keepends=True)
    end = len(first)
    if not first.lstrip().startswith("#") and others:
        end += len(others[0])
    return end + len(text[end:]) - len(text[end:].lstrip())


transforms.register("MarkdownSplitter", MarkdownSplitter)


@known_arguments
class HTMLSplitter(NodeTransform):
    r"""Splits HTML source at its headings, and longer sections into chunks of as many blocks as fit.

    A block is a paragraph, an item, a row, a table. One that does not fit is cut at the ends of sentences, then of
    words; a tag only where it alone does not fit. Each chunk says in its metadata under which headings it stands:
    ``{"heading": "Tea > Picking"}``.

    The loader of ``.html`` files gives text without tags; this is for source that came as text, such as that of
    `Document.add_texts`, or read by a loader of your own.

    Args:
        chunk_size: Most tokens of a chunk, at least 1.
        chunk_overlap: Most tokens that two neighbours of one section share, at least 0 and at most half of chunk_size.
        text_only: Give the text that a reader sees instead of the source. It is rewritten, so it has no spans.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If a size is out of its range or the counter is none.

    Example:
        >>> splitter = HTMLSplitter(chunk_size=20, text_only=True)
        >>> for node in splitter(DocNode(text="<h1>Tea</h1><p>It keeps.</p><h2>Water</h2><p>80 degrees.")):
        ...     print(node.metadata["heading"], repr(node.text))
        Tea 'Tea\nIt keeps.'
        Tea > Water 'Water\n80 degrees.'
    """

    reads_text_only = True

    def __init__(
        self,
        chunk_size: int = 1024,
        chunk_overlap: int = 0,
        *,
        text_only: bool = False,
        counter: TokenCounter | str = "utf8",
    ) -> None:
        self._packer = Packer(chunk_size, chunk_overlap, counter)
        self.chunk_size, self.chunk_overlap = self._packer.size, self._packer.overlap
        self.counter = self._packer.counter
        self.text_only = yes_or_no("text_only", text_only)
        if type(self) is HTMLSplitter:  # a subclass may do anything, so its code has to count
            self.identity = f"HTMLSplitter/1 {self._packer.told} text_only={self.text_only}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The chunks of the node's text, with their headings, and with their spans in it unless they are rewritten."""
        text = node.get_text()
        if not self.text_only:
            for section, spans in self.split(text):
                yield from chunks(text, spans, {"heading": section.path} if section.path else {})
            return
        for section in _sections(text):
            seen = html_text(text[section.start : section.end])
            for start, end in self._packer.spans(seen, [_line_ends(seen), sentence_ends(seen)]):
                if piece := seen[start:end].strip():
                    yield DocNode(text=piece, metadata={"heading": section.path} if section.path else {})

    def split(self, text: str) -> Iterator[tuple[Section, list[Span]]]:
        """The sections of a source, each with the spans of its chunks; together they cover it without a gap."""
        for section in _sections(text):
            own = text[section.start : section.end]
            spans = self._packer.spans(own, _html_levels(own, has_heading=bool(section.path)))
            yield section, [(section.start + start, section.start + end) for start, end in spans]


def _sections(text: str) -> Iterator[Section]:
    places = heading_places(list(html_headings(text)), len(text))
    first = places[0].start if places else len(text)
    if first:
        yield Section(0, first, "")
    for place in places:
        yield Section(place.start, place.end, place.label)


def _html_levels(text: str, *, has_heading: bool) -> list[array[int]]:
    """Where blocks end, sentences, words and tags; none of them inside a tag."""
    tags = list(html_tags(text))
    least = 0
    if has_heading:  # what ends before that would be the heading alone
        least = next((_spaced(text, tag.end) for tag in tags if tag.closes and tag.name == tags[0].name), 0)
    opening = {tag.start for tag in tags if tag.name in BLOCKS and not tag.closes}
    closing = {_spaced(text, tag.end) for tag in tags if tag.name in BLOCKS and tag.closes}
    blocks = sorted(one for one in opening | closing if one > least)
    outside = _Outside(tags)
    sentences = [end for end in sentence_ends(text) if end > least and outside(end)]
    beside = {place for tag in tags for place in (tag.start, tag.end) if place > 0 and is_boundary(text, place)}
    words = sorted(beside.union(end for end in word_ends(text) if outside(end)))
    return [closed(array("q", ends), len(text)) for ends in (_whole(text, blocks), sentences, words)]


def _whole(text: str, ends: Sequence[int]) -> list[int]:
    return [end for end in ends if is_boundary(text, end)]


def _spaced(text: str, end: int) -> int:
    """Behind the white space at a place."""
    while end < len(text) and text[end].isspace():
        end += 1
    return end


def _line_ends(text: str) -> array[int]:
    ends = [at + 1 for at, character in enumerate(text) if character == "\n"]
    return closed(array("q", ends), len(text))


class _Outside:
    """Whether a place stands in no tag."""

    def __init__(self, tags: Sequence[Tag]) -> None:
        self._starts = [tag.start for tag in tags]
        self._ends = [tag.end for tag in tags]

    def __call__(self, place: int) -> bool:
        at = bisect_right(self._starts, place - 1) - 1
        return at < 0 or place >= self._ends[at]


transforms.register("HTMLSplitter", HTMLSplitter)
