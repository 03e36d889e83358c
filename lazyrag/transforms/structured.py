"""Splitters of structured text: source code, JSON, YAML, XML, HTML, Markdown."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import itertools
import json
import re
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple, TypeAlias

from lazyrag.data.node import DocNode
from lazyrag.data.segment import Location, Span
from lazyrag.errors import TransformError, optional_package
from lazyrag.text.sentences import is_boundary, sentence_ends
from lazyrag.text.structure import (
    BLOCKS,
    MAX_DEPTH,
    Block,
    Cleaned,
    Heading,
    Tag,
    Value,
    heading_locations,
    html_headings,
    html_tags,
    html_text,
    json_step,
    json_values,
    markdown_blocks,
    markdown_headings,
    python_definitions,
    string_value,
    xml_elements,
)
from lazyrag.text.tokens import TokenCounter
from lazyrag.transforms.base import NodeTransform
from lazyrag.transforms.splitters import Levels, Packer, TextSplitter, chunks, closed, word_ends
from lazyrag.validation import known_arguments, validate_boolean, validate_choice

# By language: package of its grammar, function in it, suffixes of its files.
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
_BY_SUFFIX: dict[str, str] = {}
for _name, (_, _, _suffixes) in _GRAMMARS.items():
    _BY_SUFFIX.update(dict.fromkeys(_suffixes.split(), _name))


class Part(NamedTuple):
    """A node of a syntax tree.

    Args:
        start: Start in the text, in characters.
        end: End in the text.
        kind: Type in the grammar.
        depth: Number of ancestors.
        name: Name that it defines; "" if it is no definition.
        is_leaf: Whether it is a token.
    """

    start: int
    end: int
    kind: str
    depth: int
    name: str
    is_leaf: bool


def language_of(path: str) -> str:
    """Return the language of a file by its suffix; "" if there is none.

    Example:
        >>> language_of("brew/Kettle.RS"), language_of("notes.txt")
        ('rust', '')
    """
    return _BY_SUFFIX.get(PurePath(path).suffix.lower(), "")


@functools.cache
def is_installed(language: str) -> bool:
    """Whether a language's grammar is installed; nothing is imported."""
    return all(
        importlib.util.find_spec(package) for package in ("tree_sitter", _GRAMMARS[language][0])
    )


@functools.cache
def load_grammar(language: str) -> Any:
    """Import a language's grammar.

    Raises:
        MissingDependencyError: If it is not installed.
    """
    package, function, _ = _GRAMMARS[language]
    with optional_package(f"CodeSplitter(language={language!r})", "code"):
        import tree_sitter

        grammar = importlib.import_module(package)
    return tree_sitter.Language(getattr(grammar, function)())


def syntax(text: str, language: str) -> Iterator[Part]:
    """Yield the nodes of a text's syntax tree, parents first. Invalid code has a tree too.

    Raises:
        MissingDependencyError: If the language's grammar is not installed.
    """
    grammar = load_grammar(language)
    import tree_sitter

    data = text.encode("utf-8", "surrogatepass")
    in_characters = int if len(text) == len(data) else _character_offsets(text).__getitem__
    cursor: Any = tree_sitter.Parser(grammar).parse(data).walk()
    depth = 0
    while True:
        node = cursor.node
        named = _name_node(node) if _is_definition(node.type) else None
        name = (
            ""
            if named is None
            else text[in_characters(named.start_byte) : in_characters(named.end_byte)]
        )
        start = in_characters(node.start_byte)
        end = in_characters(node.end_byte)
        yield Part(start, end, node.type, depth, name, node.child_count == 0)
        if cursor.goto_first_child():
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
            depth -= 1


def _name_node(node: Any) -> Any:
    """Return the node with the name of a definition; in C it is inside the declarator."""
    named = node.child_by_field_name("name")
    outer = node if node.type == "function_definition" else None
    while named is None and outer is not None:
        inner = outer.child_by_field_name("declarator")
        if inner is None and outer is not node:
            named = outer
        outer = inner
    return named


def _is_definition(kind: str) -> bool:
    return kind in _DEFINING or kind.endswith(
        ("_definition", "_declaration", "_item", "_specifier", "_spec")
    )


_DEFINING = frozenset(
    ["class", "module", "method", "singleton_method", "class_body", "function", "type_spec"]
)


def _character_offsets(text: str) -> list[int]:
    """Return the character offset of each byte offset in UTF-8."""
    offsets = []
    for number, character in enumerate(text):
        offsets += [number] * len(character.encode("utf-8", "surrogatepass"))
    return [*offsets, len(text)]


_MAX_DEPTH = 24  # deeper nodes are cut at the ends of lines
_UNINDENTED = re.compile(r"\n(?=\S)")
_MARGIN = re.compile(r"\n(?=[^\s})\]])")
_LINE = re.compile(r"\n")


class Named(NamedTuple):
    """A named part of a text, with its path: ``"Kettle.boil"`` of code, ``"/teas/tea[2]"`` of
    XML.
    """

    start: int
    end: int
    path: str


EndsByDepth: TypeAlias = dict[int, set[int]]
"""Where parts of a text end, by their depth in its structure."""

Outline: TypeAlias = "tuple[Levels, list[Named]]"
"""Where the parts of a text end, and those that have names."""


class _StructuredSplitter(TextSplitter):
    """Constructor of splitters whose chunks do not overlap by default."""

    def __init__(
        self,
        chunk_size: int = 1024,
        chunk_overlap: int = 0,
        *,
        counter: TokenCounter | str = "utf8",
    ) -> None:
        super().__init__(chunk_size, chunk_overlap, counter=counter)


class _OutlineSplitter(_StructuredSplitter):
    """Base of splitters that pack the parts of a text and name those that a chunk is in."""

    reads_text_only = True
    reads_source = True
    label = "path"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """Split the node's text into chunks with spans and the name of their part."""
        text = node.get_text()
        language = self._language(node)
        levels, parts = self._outline(text, language)
        name_of = _finder(parts)
        for start, end in self._packer.spans(text, levels):
            chunk = text[start:end]
            if not chunk.isspace():
                values = {
                    self.label: name_of(end - len(chunk.lstrip()), start + len(chunk.rstrip())),
                    "language": language,
                }
                yield DocNode(
                    text=chunk,
                    span=(start, end),
                    metadata={key: value for key, value in values.items() if value},
                )

    def _levels(self, text: str) -> Levels:
        return self._outline(text, self._language(DocNode(text=text)))[0]

    def _language(self, node: DocNode) -> str:  # noqa: ARG002  of code only
        return ""

    def _outline(self, text: str, language: str) -> Outline:
        """Return where parts of a text end, from large to small, and its named parts in order,
        outer ones first.
        """
        raise NotImplementedError


def _finder(parts: Sequence[Named]) -> Callable[[int, int], str]:
    """A function from a span to the path of the innermost part around it, else of the outermost
    ones it touches.
    """
    starts = [part.start for part in parts]
    above: list[int] = []  # the part around each; -1 for none
    for number, part in enumerate(parts):
        around = number - 1
        while around >= 0 and parts[around].end < part.end:
            around = above[around]
        above.append(around)

    def find(start: int, end: int) -> str:
        at = first = bisect_right(starts, start) - 1
        while at >= 0 and parts[at].end < end:
            at = above[at]
            first = at if at >= 0 and parts[at].end > start else first
        if at >= 0:
            return parts[at].path
        touched: list[Named] = []
        for part in parts[max(first, 0) : bisect_left(starts, end)]:
            if start < part.end and not (touched and part.end <= touched[-1].end):
                touched.append(part)
        return ", ".join(part.path for part in touched)

    return find


@known_arguments
class CodeSplitter(_OutlineSplitter):
    r"""Splits source code at its definitions, into chunks of as many whole functions, classes or
    statements as fit.

    What does not fit is split inside: a class at its methods, a function at its statements, a
    statement at the ends of lines; a token is cut only if it alone does not fit. A comment stays
    with the code after it. Chunks have their definition and language in the metadata:
    ``{"definition": "Kettle.boil", "language": "python"}``.

    The grammars are those of tree-sitter (``pip install "lazyrag[code]"``); nothing is downloaded
    at run time. If the suffix names a language whose grammar is not installed, code is split by
    layout: at blank lines and unindented lines.

    Of files whose loader renders them, such as .html, it reads the source.

    Args:
        chunk_size: Maximum tokens of a chunk, at least 1.
        chunk_overlap: Maximum tokens that two neighbours share, below chunk_size.
        language: One of bash, c, cpp, csharp, go, java, javascript, php, python, ruby, rust, tsx,
            typescript; None for that of the file's suffix.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If an argument is invalid.
        MissingDependencyError: If the grammar of ``language`` is not installed.

    Example:
        >>> code = "def boil(heat):\n    return heat\n\n\nclass Kettle:\n    volume = 1\n"
        >>> for node in CodeSplitter(chunk_size=14, language="python")(DocNode(text=code)):
        ...     print(node.metadata["definition"], repr(node.text))
        boil 'def boil(heat):\n    return heat\n\n\n'
        Kettle 'class Kettle:\n    volume = 1\n'
    """

    reads_text_only = False  # the language may come from the path
    label = "definition"

    def __init__(
        self,
        chunk_size: int = 1024,
        chunk_overlap: int = 0,
        *,
        language: str | None = None,
        counter: TokenCounter | str = "utf8",
    ) -> None:
        super().__init__(chunk_size, chunk_overlap, counter=counter)
        self.language = language
        if language is not None:
            load_grammar(validate_choice("language", language, _GRAMMARS))
        languages = (
            language or "+".join(name for name in _GRAMMARS if is_installed(name)) or "lines"
        )
        self._set_identity(f" language={languages}")

    def path_key(self, path: str) -> str:
        """Return the part of a document's path that affects its chunks: the language."""
        return self.language or language_of(path)

    def _language(self, node: DocNode) -> str:
        # A document with an id of the user's has a file of another name.
        return self.path_key(node.path) or language_of(
            str(node.global_metadata.get("file_name", ""))
        )

    def _outline(self, text: str, language: str) -> Outline:
        if language and is_installed(language):
            return _by_grammar(text, language)
        locations = python_definitions(text) if language == "python" else ()
        definitions = [Named(place.start, place.end, place.label) for place in locations]
        margins = _ends(_MARGIN, text)
        blanks = _after_blank_lines(text)
        lines = _ends(_LINE, text)
        outer = [_line_end(text, definition.end) for definition in definitions]
        # Without definitions, unindented text after a blank line is where something new begins.
        levels = [outer or {*margins} & {*blanks}, blanks, lines, word_ends(text)]
        return [_level(text, ends) for ends in levels], definitions


def _by_grammar(text: str, language: str) -> Outline:
    by_depth: EndsByDepth = defaultdict(set)
    tokens: set[int] = set()
    definitions = []
    around: list[tuple[int, str]] = []  # enclosing definitions with their depths
    for part in syntax(text, language):
        if part.is_leaf:
            tokens.update((part.start, part.end))
        while around and around[-1][0] >= part.depth:
            around.pop()
        if part.name:
            around.append((part.depth, part.name))
            definitions.append(Named(part.start, part.end, ".".join(name for _, name in around)))
        leads = "comment" in part.kind or "attribute" in part.kind or "decorator" in part.kind
        # a bare "{" closes nothing
        if not (leads or part.is_leaf) and 0 < part.depth <= _MAX_DEPTH:
            end = _line_end(text, part.end)
            if end and text[end - 1] == "\n":
                by_depth[part.depth].add(end)
    return [*_depth_levels(text, by_depth), *_token_levels(text, tokens)], definitions


def _token_levels(text: str, tokens: set[int]) -> Levels:
    """The ends of lines that end with a token, and all ends of tokens."""
    ends = _ends(_LINE, text)
    lines = tokens.intersection(itertools.chain(ends, (end - 1 for end in ends)))
    return [_level(text, {_line_end(text, location) for location in lines}), _level(text, tokens)]


def _depth_levels(text: str, by_depth: EndsByDepth) -> Levels:
    """Return where parts end, a level for each depth with those above it."""
    levels = []
    ends = set[int]()
    for depth in sorted(by_depth):
        if not by_depth[depth] <= ends:
            ends = ends | by_depth[depth]
            levels.append(_level(text, ends))
    return levels


def _ends(pattern: re.Pattern[str], text: str) -> list[int]:
    return [match.end() for match in pattern.finditer(text)]


def _after_blank_lines(text: str) -> list[int]:
    """Return where unindented lines begin after a blank one; a single pattern would take quadratic
    time.
    """
    ends = []
    for end in _ends(_UNINDENTED, text):
        before = text.rfind("\n", 0, end - 1)
        if before >= 0 and not text[before + 1 : end - 1].strip():
            ends.append(end)
    return ends


def _level(text: str, ends: Iterable[int]) -> array[int]:
    return closed(
        array("q", sorted(end for end in {*ends} if end > 0 and is_boundary(text, end))), len(text)
    )


def _line_end(text: str, end: int) -> int:
    """Skip white space up to the indentation of the next line; nothing if code follows on the same
    line.
    """
    at = end
    while at < len(text) and text[at].isspace():
        at += 1
    line = text.rfind("\n", end, at) + 1
    if line:
        return line
    return at if at == len(text) else end


@known_arguments
class YAMLSplitter(_OutlineSplitter):
    r"""Splits YAML source at its documents, list items and keys, into chunks of as many as fit.

    A value that does not fit is split inside, at last at the ends of lines and words. Comments stay
    with what follows them. Chunks are the source as it is, indentation included, with the path of
    the value around them in the metadata: ``{"path": "$.teas[2]"}``.

    Args:
        chunk_size: Maximum tokens of a chunk, at least 1.
        chunk_overlap: Maximum tokens that two neighbours share, below chunk_size.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> splitter = YAMLSplitter(chunk_size=10)
        >>> text = "teas:\n- name: green\n  kg: 2\n- name: black\nopen: true\n"
        >>> for node in splitter(DocNode(text=text)):
        ...     print(node.metadata["path"], repr(node.text))
        $.teas 'teas:\n- name: green\n  kg: 2\n'
        $ '- name: black\nopen: true\n'
    """

    source_suffixes = (".yaml", ".yml")

    def _outline(self, text: str, _: str) -> Outline:
        import yaml  # slow to import

        outline = _YamlOutline(text)
        try:
            # Tags create no objects: values are not constructed.
            documents = list(
                yaml.compose_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            )
            for number, node in enumerate(documents):
                if node is not None:
                    start = outline.start(node)
                    outline.ends[0].add(start)
                    outline.add(node, f"$[{number}]" if len(documents) > 1 else "$", 1, start)
        except (yaml.YAMLError, ValueError, RecursionError) as exc:
            mark = getattr(exc, "problem_mark", None)
            where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
            raise _format_error(".yaml", f"{getattr(exc, 'problem', None) or exc}{where}") from exc
        return [
            *_depth_levels(text, outline.ends),
            _level(text, _ends(_LINE, text)),
            sentence_ends(text),
        ], outline.parts


def _format_error(suffix: str, problem: object) -> TransformError:
    name = suffix[1:].upper()
    if re.match("nested deeper|maximum recursion", str(problem)):
        return TransformError(f"The {name} cannot be split: {problem}.")
    hint = (
        "Fix it, or limit the splitter to files of its kind: TransformArgs(...,"
        f" pattern='*{suffix}')."
    )
    return TransformError(f"The text is no {name}: {problem}. {hint}")


_LEAD = " \t-?:"  # what stands between the beginning of a line and an item of YAML
_ABOVE = re.compile(r"[ \t]*#|---|%")  # lines that belong to the item below them


class _YamlOutline:
    """Values of YAML with their paths, and where items end by depth: where the next ones begin."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.ends: EndsByDepth = defaultdict(set)
        self.parts: list[Named] = []
        self._aliased: set[int] = set()

    def add(self, node: Any, path: str, depth: int, start: int) -> None:
        """Add a value and what is in it; of an aliased one, only its first place counts."""
        if id(node) in self._aliased:
            return
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")
        self._aliased.add(id(node))
        self.parts.append(Named(start, node.end_mark.index, path))
        is_mapping = node.id == "mapping"
        for number, item in enumerate(node.value if node.id != "scalar" else ()):
            first, value = item if is_mapping else (item, item)
            step = (
                json_step(first.value if first.id == "scalar" else "?")
                if is_mapping
                else f"[{number}]"
            )
            at = first.start_mark.index if node.flow_style else self.start(first)
            if number:  # a key stays with the first item below it
                self.ends[depth].add(at)
            self.add(value, path + step, depth + 1, at)

    def start(self, node: Any) -> int:
        """The beginning of a value's line, of the comments above it at first; its own inside of a
        line.
        """
        text = self.text
        at = node.start_mark.index
        line = text.rfind("\n", 0, at) + 1
        if text[line:at].strip(_LEAD):
            return int(at)
        while line and not text.startswith("---", line):
            above = text.rfind("\n", 0, line - 1) + 1
            if not _ABOVE.match(text, above):
                break
            line = above
        return line


@known_arguments
class XMLSplitter(_OutlineSplitter):
    r"""Splits XML source between elements, into chunks of as many whole elements as fit.

    An element that does not fit is split inside, at last at the ends of sentences and words; a tag
    is cut only if it alone does not fit. Chunks are the source as it is, with the path of the
    element around them in the metadata: ``{"path": "/teas/tea[2]"}``. Text that is not well-formed,
    or declares entities, is an error.

    Args:
        chunk_size: Maximum tokens of a chunk, at least 1.
        chunk_overlap: Maximum tokens that two neighbours share, below chunk_size.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> splitter = XMLSplitter(chunk_size=12)
        >>> text = "<teas><tea>Longjing, green</tea><tea>Keemun</tea></teas>"
        >>> for node in splitter(DocNode(text=text)):
        ...     print(node.metadata["path"], node.text)
        /teas <teas><tea>Longjing, green</tea>
        /teas <tea>Keemun</tea></teas>
    """

    source_suffixes = (".xml",)

    def _outline(self, text: str, _: str) -> Outline:
        from xml.parsers import expat

        try:
            elements = xml_elements(text)[0]
        except (expat.ExpatError, ValueError, RecursionError) as exc:
            raise _format_error(".xml", exc) from exc
        character = int if text.isascii() else _character_offsets(text).__getitem__
        by_depth: EndsByDepth = defaultdict(set)
        parts = []
        for element in elements:
            start = character(element.start)
            end = character(element.end)
            end = text.find(">", end) + 1 if text.startswith("</", end) else end
            parts.append(Named(start, end, element.path()))
            closing = _CLOSING_TAGS.match(text, end)
            by_depth[element.depth].add(closing.end() if closing else end)
            if element.depth:  # where the content of the element around it can be cut
                by_depth[element.depth + 1].add(start)
        return [*_depth_levels(text, by_depth), *_markup_levels(text, [*html_tags(text)])], parts


_CLOSING_TAGS = re.compile(r"(?:\s*</[^>]*>)*\s*")


_ESCAPES = {code: json.dumps(chr(code))[1:-1] for code in (*range(32), ord('"'), ord("\\"))}
"""Escapes of characters that JSON does not allow in a string."""


@known_arguments
class JSONSplitter(NodeTransform):
    """Splits JSON along its structure; chunks have their path in the metadata:
    ``{"path": "$.teas[2:5]"}``.

    A value that fits is one chunk. Of a larger array or object, as many members as fit make a
    chunk, written as an array or object, so that every chunk is JSON. A member that does not fit is
    split itself; a string is split at the ends of sentences and words. Several values in one text
    (JSON Lines) are split like an array.

    ``form="lines"`` writes a line for each leaf instead, ``teas[2].name: Longjing``, which suits
    keyword search and embedding models.

    Of ``.json`` and ``.jsonl`` files it reads the source, not the lines that their loader writes.

    Args:
        chunk_size: Maximum tokens of a chunk, at least 1.
        form: ``"json"`` or ``"lines"``.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> splitter = JSONSplitter(chunk_size=8)
        >>> for node in splitter(DocNode(text='{"teas": ["green", "black", "white"], "heat": 80}')):
        ...     print(node.metadata["path"], node.text)
        $.teas[0:2] ["green", "black"]
        $.teas[2:3] ["white"]
        $ {"heat": 80}
    """

    reads_text_only = reads_source = True
    source_suffixes = (".json", ".jsonl", ".ndjson")

    def __init__(
        self, chunk_size: int = 1024, *, form: str = "json", counter: TokenCounter | str = "utf8"
    ) -> None:
        validate_choice("form", form, ("json", "lines"))
        self._packer = Packer(chunk_size, 0, counter)
        self.chunk_size = self._packer.size
        self.counter = self._packer.counter
        self.form = form
        if type(self).__module__.startswith("lazyrag."):
            self.identity = f"JSONSplitter/1 {self._packer.settings} form={form}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """Split the node's JSON; chunks that are copied from it have spans.

        Raises:
            TransformError: If it is no JSON.
        """
        text = node.get_text()
        try:
            values = json_values(text)
            if len(values) > 1:
                start = values[0].start
                several = Value(start, start, values[-1].end, "array", children=values)
                if self.form == "lines":
                    yield from self._lines(text, several)
                else:
                    yield from self._members(text, several, "$")
            elif self.form == "lines":
                yield from self._lines(text, *values)
            else:
                yield from self._parts(text, values, "$")
        except ValueError as exc:
            raise _format_error(".json", exc) from exc

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
        """Yield runs of members that fit as a container; a member that does not fit is split."""
        is_array = container.kind == "array"
        opening, ending = "[]" if is_array else "{}"
        members = container.children
        # several values, with no commas between them
        separate = container.value == members[0].start
        first = 0
        while first < len(members):
            last = first
            wrapped = ""
            joined = ""
            while last < len(members):
                member = members[last]
                if separate:
                    joined = (
                        f"{joined}, {text[member.start : member.end]}"
                        if last > first
                        else text[member.start : member.end]
                    )
                inner = joined if separate else text[members[first].start : member.end]
                if not self._fits(f"{opening}{inner}{ending}"):
                    break
                last = last + 1
                wrapped = f"{opening}{inner}{ending}"
            if last > first:
                yield _node(wrapped, f"{path}[{first}:{last}]" if is_array else path)
                first = last
            else:
                yield from self._parts(text, members[first : first + 1], path + members[first].step)
                first += 1

    def _pieces(self, source: str, path: str) -> Iterator[DocNode]:
        """Yield the pieces of a string as JSON strings, with the escapes that JSON needs; none is
        cut.
        """
        text = string_value(source)
        inner = text.translate(_ESCAPES)
        locations = [
            0,
            *itertools.accumulate(len(_ESCAPES.get(ord(letter), letter)) for letter in text),
        ]
        room = Packer(max(1, self.chunk_size - self.counter.count('""')), 0, self.counter)
        positions = range(1, len(text) + 1)
        boundaries = [at for at in positions if is_boundary(text, at)]
        levels = [
            array("q", map(locations.__getitem__, ends))
            for ends in (sentence_ends(text), word_ends(text), boundaries, positions)
        ]
        for start, end in room.spans(inner, levels):
            yield _node(f'"{inner[start:end]}"', path)

    def _lines(self, text: str, value: Value | None = None) -> Iterator[DocNode]:
        pending: list[tuple[list[str], str]] = []
        for steps, leaf in _leaves(text, value, []) if value is not None else ():
            name = "".join(steps).removeprefix(".")
            line = f"{name}: {leaf}" if name else leaf
            if pending and not self._fits("\n".join([*(other for _, other in pending), line])):
                yield _lines_node(pending)
                pending = []
            if self._fits(line):
                pending.append((steps, line))
            else:
                yield from self._long_line(name, leaf, "$" + "".join(steps))
        if pending:
            yield _lines_node(pending)

    def _long_line(self, name: str, leaf: str, path: str) -> Iterator[DocNode]:
        """Split a line that does not fit; each piece repeats its name, if that leaves room."""
        prefix = (
            f"{name}: " if name and 2 * self.counter.count(f"{name}: ") <= self.chunk_size else ""
        )
        body = leaf if prefix or not name else f"{name}: {leaf}"
        room = Packer(self.chunk_size - self.counter.count(prefix), 0, self.counter)
        for start, end in room.spans(body, [sentence_ends(body)]):
            if not body[start:end].isspace():
                yield _node(prefix + body[start:end], path)


def _node(text: str, path: str, span: Span | None = None) -> DocNode:
    return DocNode(text=text, span=span, metadata={"path": path})


def _leaves(text: str, value: Value, steps: list[str]) -> Iterator[tuple[list[str], str]]:
    for child in value.children:
        yield from _leaves(text, child, [*steps, child.step])
    if not value.children:
        source = text[value.value : value.end]
        yield steps, string_value(source) if value.kind == "string" else source


def _lines_node(lines: Sequence[tuple[list[str], str]]) -> DocNode:
    shared: list[str] = []
    for together in zip(*(steps for steps, _ in lines), strict=False):
        if len({*together}) > 1:
            break
        shared.append(together[0])
    return _node("\n".join(line for _, line in lines), "$" + "".join(shared))


def sections(text: str, headings: Iterable[Heading]) -> list[Location]:
    r"""Return the text before the first heading, if any, without a label, and the section of each
    heading.

    Example:
        >>> text = "Before\n\n# Tea\n## Water\n"
        >>> [section.label for section in sections(text, markdown_headings(text))]
        ['', 'Tea', 'Tea > Water']
    """
    locations = heading_locations(list(headings), len(text))
    first = locations[0].start if locations else len(text)
    return [*([Location(0, first, "heading", "")] if first else []), *locations]


def _heading(section: Location) -> dict[str, str]:
    """Return the metadata of a section's chunks."""
    return {"heading": section.label} if section.label else {}


class _MarkupSplitter(_StructuredSplitter):
    """Base of splitters that split at headings first."""

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """Split the node's text into chunks with spans and headings."""
        text = node.get_text()
        for section, spans in self.split(text):
            yield from chunks(text, spans, _heading(section))

    def split(self, text: str) -> Iterator[tuple[Location, list[Span]]]:  # type: ignore[override]
        """Yield the sections of a text with the spans of their chunks; they cover the text without
        gaps.
        """
        for section in self._sections(text):
            section_text = text[section.start : section.end]
            spans = self._packer.spans(
                section_text, self._section_levels(section_text, bool(section.label))
            )
            yield section, [(section.start + start, section.start + end) for start, end in spans]

    def _sections(self, text: str) -> list[Location]:
        raise NotImplementedError

    def _section_levels(self, text: str, has_heading: bool) -> Levels:
        raise NotImplementedError


@known_arguments
class MarkdownSplitter(_MarkupSplitter):
    r"""Splits Markdown at its headings, and longer sections into chunks of as many blocks as fit.

    A block is a paragraph, a table or fenced code. A block that does not fit is split: code and
    tables at the ends of lines, prose at the ends of sentences. A heading stays with the text after
    it. Chunks have their headings in the metadata: ``{"heading": "Tea > Picking"}``.

    Args:
        chunk_size: Maximum tokens of a chunk, at least 1.
        chunk_overlap: Maximum tokens that two neighbours of a section share, below chunk_size.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> splitter = MarkdownSplitter(chunk_size=20)
        >>> for node in splitter(DocNode(text="# Tea\n\nIt keeps.\n\n## Water\n\n80 degrees.\n")):
        ...     print(node.metadata["heading"], repr(node.text))
        Tea '# Tea\n\nIt keeps.\n\n'
        Tea > Water '## Water\n\n80 degrees.\n'
    """

    reads_text_only = True

    def _sections(self, text: str) -> list[Location]:
        return sections(text, markdown_headings(text))

    def _section_levels(self, text: str, has_heading: bool) -> Levels:
        blocks = list(markdown_blocks(text))
        # An end before that would leave the heading alone.
        least = _heading_end(text) if has_heading else 0
        ends = array("q", (block.end for block in blocks if block.end > least))
        fine = array("q")
        for block in blocks:
            fine.extend(end for end in _ends_within(text, block) if end > least)
        return [closed(ends, len(text)), closed(fine, len(text))]


def _ends_within(text: str, block: Block) -> Iterator[int]:
    block_text = text[block.start : block.end]
    if not block.is_verbatim:
        yield from (
            block.start + end
            for end in sentence_ends(block_text)
            if is_boundary(text, block.start + end)
        )
        return
    position = block.start
    for line in block_text.splitlines(keepends=True):
        position += len(line)
        if is_boundary(text, position):
            yield position


def _heading_end(text: str) -> int:
    """Return where the heading of a section ends: ``# Tea``, or a line that is underlined."""
    first, *others = text.splitlines(keepends=True)
    end = len(first)
    if not first.lstrip().startswith("#") and others:
        end += len(others[0])
    return end + len(text[end:]) - len(text[end:].lstrip())


@known_arguments
class HTMLSplitter(_MarkupSplitter):
    r"""Splits HTML source at its headings, and longer sections into chunks of as many blocks as
    fit.

    A block is a paragraph, an item, a row, a table. A list, table or other block that fits stays
    together; one that does not fit is split at the blocks inside, then at the ends of sentences and
    words; a tag is cut only if it alone does not fit. Chunks have their headings in the metadata:
    ``{"heading": "Tea > Picking"}``. ``<script>`` and ``<style>`` are left out; a chunk from whose
    middle one is cut has no span. Any text is HTML, broken markup too.

    Of ``.html`` files it reads the source, not the text without tags that their loader returns.

    Args:
        chunk_size: Maximum tokens of a chunk, at least 1.
        chunk_overlap: Maximum tokens that two neighbours of a section share, below chunk_size.
        text_only: Return the visible text instead of the source. It is rewritten, so it has no
            spans.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> splitter = HTMLSplitter(chunk_size=20, text_only=True)
        >>> page = "<h1>Tea</h1><p>It keeps.</p><h2>Water</h2><p>80 degrees."
        >>> for node in splitter(DocNode(text=page)):
        ...     print(node.metadata["heading"], repr(node.text))
        Tea 'Tea\nIt keeps.'
        Tea > Water 'Water\n80 degrees.'
    """

    reads_text_only = reads_source = True
    revision = 2

    def __init__(
        self,
        chunk_size: int = 1024,
        chunk_overlap: int = 0,
        *,
        text_only: bool = False,
        counter: TokenCounter | str = "utf8",
    ) -> None:
        super().__init__(chunk_size, chunk_overlap, counter=counter)
        self.text_only = validate_boolean("text_only", text_only)
        self._set_identity(f" text_only={self.text_only}")

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """Split the node's text into chunks with headings, and with spans unless ``text_only`` is
        set.
        """
        cleaned = Cleaned(node.get_text()).without(_html_code(node.get_text()))
        text = cleaned.text
        for section in self._sections(text) if self.text_only else ():
            visible = html_text(text[section.start : section.end])
            for start, end in self._packer.spans(
                visible, [_level(visible, _ends(_LINE, visible)), sentence_ends(visible)]
            ):
                if piece := visible[start:end].strip():
                    yield DocNode(text=piece, metadata=_heading(section))
        for section, spans in () if self.text_only else self.split(text):
            yield from chunks(cleaned, spans, _heading(section))

    def _sections(self, text: str) -> list[Location]:
        return sections(text, html_headings(text))

    def _section_levels(self, text: str, has_heading: bool) -> Levels:
        tags = list(html_tags(text))
        least = 0
        if has_heading:  # an end before that would leave the heading alone
            closing = (tag for tag in tags if tag.closes and tag.name == tags[0].name)
            least = next((_skip_space(text, tag.end) for tag in closing), 0)
        by_depth = _html_blocks(text, tags)
        for depth, ends in by_depth.items():
            by_depth[depth] = {end for end in ends if end > least}
        return [*_depth_levels(text, by_depth), *_markup_levels(text, tags, least)]


def _html_code(text: str) -> Iterator[Span]:
    """Find scripts and styles with their tags."""
    start = -1
    for tag in html_tags(text):
        if tag.name in ("script", "style"):
            if tag.closes and start >= 0:
                yield start, tag.end
            start = -1 if tag.closes else tag.start
    if start >= 0:
        yield start, len(text)


_SAME_ENDS = frozenset("dd dt li option p td th tr".split())
"""Elements that end, if no tag closes them, where the next one of the name begins."""


def _html_blocks(text: str, tags: Iterable[Tag]) -> EndsByDepth:
    """Return where blocks begin and end by their depth."""
    by_depth: EndsByDepth = defaultdict(set)
    within: list[str] = []
    counts: dict[str, int] = defaultdict(int)  # of the open elements by name
    for tag in tags:
        if tag.name not in BLOCKS:
            continue
        if tag.closes:
            while counts[tag.name]:
                counts[(closed_one := within.pop())] -= 1
                if closed_one == tag.name:
                    break
            by_depth[min(len(within), _MAX_DEPTH)].add(_skip_space(text, tag.end))
            continue
        if within and within[-1] == tag.name in _SAME_ENDS:
            counts[within.pop()] -= 1
        by_depth[min(len(within), _MAX_DEPTH)].add(tag.start)
        if tag.name not in ("br", "hr"):
            within.append(tag.name)
            counts[tag.name] += 1
    return by_depth


def _markup_levels(text: str, tags: Sequence[Tag], least: int = 0) -> Levels:
    """Return the ends of sentences, and of words and tags; none is inside a tag."""
    starts = [tag.start for tag in tags]

    def outside(position: int) -> bool:
        at = bisect_right(starts, position - 1) - 1
        return at < 0 or position >= tags[at].end

    sentences = [end for end in sentence_ends(text) if end > least and outside(end)]
    words = {tag.start for tag in tags} | {tag.end for tag in tags}
    words.update(end for end in word_ends(text) if outside(end))
    return [_level(text, sentences), _level(text, words)]


def _skip_space(text: str, end: int) -> int:
    """Skip the white space at a position."""
    while end < len(text) and text[end].isspace():
        end += 1
    return end
