"""The definitions of Python code, read from its lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lazyrag.data.segment import Place

_OPENING = re.compile(r'"""|\'\'\'|["\'#]')
_CLOSING = {
    **{mark: re.compile(rf"\\.|{mark}", re.DOTALL) for mark in ('"""', "'''")},
    **{mark: re.compile(rf"\\(?:\r\n|.)|{mark}|(?=[\r\n])", re.DOTALL) for mark in "\"'"},
    "#": re.compile(r"(?=[\r\n])"),
}
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_DEFINITION = re.compile(r"(?:async[ \t]+def|def|class)[ \t]+([^\W\d]\w*)")


def python_definitions(text: str) -> Iterator[Place]:
    """Functions and classes at the margin, up to their last line that is neither blank nor a comment.

    Read from the lines: `ast` fails on code of other versions of Python and on half a file, warns of what it finds in
    code, and ends on deep nesting.
    """
    bare = _covered(text)
    start = end = depth = 0
    decorated: int | None = None
    name = ""
    continued = False
    for found in _LINE.finditer(bare):
        line = found[0].rstrip()
        if not line:
            continue
        definition = _DEFINITION.match(line)  # nor does it stand in brackets, whatever broken code says
        if definition or not (line[0].isspace() or depth > 0 or continued):
            if name:
                yield Place(start, end, "definition", name)
            start = found.start() if decorated is None else decorated
            name = definition[1] if definition else ""
            decorated = start if line[0] == "@" else None
        end = found.start() + len(line)
        depth = (0 if definition else depth) + sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
        continued = line.endswith("\\")
    if name:
        yield Place(start, end, "definition", name)


def _covered(text: str) -> str:
    """Python code in which NULs stand for the characters of texts, line ends too, and spaces for comments."""
    pieces = []
    at = 0
    while opening := _OPENING.search(text, at):
        pieces.append(text[at : opening.start()])
        closing = _CLOSING[opening[0]].search(text, opening.end())
        while closing and closing[0].startswith("\\"):
            closing = _CLOSING[opening[0]].search(text, closing.end())
        at = closing.end() if closing else len(text)
        pieces.append((" " if opening[0] == "#" else "\0") * (at - opening.start()))
    return "".join([*pieces, text[at:]])
