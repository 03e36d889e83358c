"""The splitter of source code."""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from lazyrag.data.node import DocNode
from lazyrag.data.segment import Span
from lazyrag.text.sentences import is_boundary
from lazyrag.text.structure import python_definitions
from lazyrag.text.tokens import TokenCounter
from lazyrag.transforms.base import NodeTransform, transforms
from lazyrag.transforms.grammars import LANGUAGES, checked_language, is_installed, language_of, load_grammar, syntax
from lazyrag.transforms.packing import Packer, closed
from lazyrag.transforms.separators import word_ends
from lazyrag.validation import known_arguments

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
        """The spans of the chunks of a text, in order; see `lazyrag.transforms.packing.Packer.spans`."""
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
