"""What stands around a line of source code, by its indentation: of any language, also in broken
code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lazyrag.data.segment import Location

_LINE = re.compile(r"([ \t]*)(\S[^\n]*)")
# Lines that open no block, or stand before the line that names it: comments, brackets, decorators.
_NAMES_NOTHING = re.compile(
    r"//|/\*|\*|#|@|[{}()\[\]]|\"\"\"|'''|(?:else|try)\b|(?:public|private|protected)\s*:"
)
_MAX_BLOCKS = 8
_MAX_LINE = 120


def enclosing_lines(text: str) -> Iterator[Location]:
    r"""Yield each line that is not blank, with the first lines of the blocks around it.

    A block's first line is the nearest one above that is indented less; comments, decorators and
    lines that begin with a bracket are passed over. Of more than 8 blocks the innermost ones count,
    of a line its first 120 characters.

    Yields:
        Locations of the kind ``"block"``, from the start of a line to the end of the text. Labels
        are lines, outermost first; "" where nothing is around.

    Example:
        >>> code = "class Kettle:\n    def boil(self):\n        return 100\n"
        >>> [location.label for location in enclosing_lines(code)]
        ['', 'class Kettle:', 'class Kettle:\ndef boil(self):']
    """
    around: list[tuple[int, str]] = []  # indentation and line of the open blocks
    for match in _LINE.finditer(text):
        indentation = len(match[1])
        outer = [block for block in around if block[0] < indentation]
        label = "\n".join(line for _, line in outer[-_MAX_BLOCKS:])
        yield Location(match.start(), len(text), "block", label)
        if _NAMES_NOTHING.match(match[2]) is None:
            around = [*outer, (indentation, match[2].rstrip()[:_MAX_LINE])]
