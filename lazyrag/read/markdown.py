"""Documents as Markdown: `to_markdown`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from lazyrag.data.segment import Location, Segment, Span, content_text
from lazyrag.data.tables import FoundTable
from lazyrag.loaders import SOURCE_SUFFIXES
from lazyrag.read.catalogue import find_root
from lazyrag.read.scope import Collection, reader_of
from lazyrag.transforms.tables import document_tables

_MARKDOWN = frozenset([".md", ".markdown"])
_LINES_ARE_PARAGRAPHS = frozenset(
    ".doc .docm .docx .dotx .odp .odt .ppt .pptx .rtf .xls .xlsb .xlsm .xlsx .ods".split()
)
_TITLES = frozenset(["heading", "sheet"])
_MAX_LEVEL = 6
_LINES_TO_A_TITLE = 3
_ADORNMENT = re.compile(r"\n([^\w\s])\1{2,}[ \t]*(?=\n|\Z)")  # below a title of reStructuredText
_BULLET = re.compile(r"^([ \t]*)[•▪●◦‣] ?", re.MULTILINE)


def to_markdown(docs: Collection, path: str) -> str:
    r"""Return the text of a document with its headings and tables in Markdown.

    Markdown files are returned as they are, source code in a fence. What Markdown would take for
    marks in other texts is not escaped.

    Args:
        docs: The Document.
        path: Its path relative to the dataset, or its id.

    Raises:
        DatasetPathError: If the document does not exist, or is not visible here.

    Example:
        >>> from lazyrag import Document
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea": "a | b\n---|---\n1 | 2\n\nTea is hot."})
        >>> print(to_markdown(docs, "tea"))
        | a | b |
        | --- | --- |
        | 1 | 2 |
        <BLANKLINE>
        Tea is hot.
        <BLANKLINE>
    """
    root = find_root(reader_of(docs), path)
    text = content_text(root.content)
    suffix = PurePath(path).suffix.lower()
    if suffix in _MARKDOWN:
        return text
    if suffix in SOURCE_SUFFIXES:
        longest = max(["~~", *re.findall("~+", text)], key=len)
        fence = f"{longest}~"  # longer than any in the code, which would end it
        return f"{fence}{suffix[1:]}\n{text.rstrip()}\n{fence}\n"
    blocks = sorted([*_titles(root, text), *_tables(root)])
    pieces = []
    end = 0
    for (start, block_end), block in blocks:
        if start >= end:
            pieces += [_paragraphs(text[end:start], suffix), block]
            end = block_end
    pieces.append(_paragraphs(text[end:], suffix))
    return "\n\n".join(filter(None, pieces)) + "\n"


def _paragraphs(text: str, suffix: str) -> str:
    """A stretch of text with lists of Markdown; each line is a paragraph where the format has it
    so.
    """
    text = _BULLET.sub(r"\1- ", text.strip("\n"))
    if suffix not in _LINES_ARE_PARAGRAPHS:
        return text
    return re.sub(r"(?<!\n)\n(?!\n|[ \t]*(?:- |\d+[.)] ))", "\n\n", text)


def _titles(root: Segment, text: str) -> Iterator[tuple[Span, str]]:
    """The lines of titles, and the same as headings of Markdown."""
    for place in root.locations:
        if place.kind not in _TITLES:
            continue
        *sections, title = place.label.split(" > ")
        span = _line_of(title, place, text)
        if span is not None:
            yield span, f"{'#' * min(len(sections) + 1, _MAX_LEVEL)} {title}"


def _line_of(title: str, place: Location, text: str) -> Span | None:
    """The line with a title at the start of its section, with what adorns it; None if the text has
    another one.
    """
    end = place.start - 1
    for _ in range(_LINES_TO_A_TITLE):
        start = end + 1
        end = text.find("\n", start)
        if end < 0:
            end = len(text)
        if title in text[start:end]:
            adornment = _ADORNMENT.match(text, end)
            return place.start, adornment.end() if adornment else end
    return None


def _tables(root: Segment) -> Iterator[tuple[Span, str]]:
    """The stretches of tables, and the same as tables of Markdown."""
    for place, table, spans in document_tables(root):
        first, *others = spans or [(place.start, place.end)]
        yield first, _markdown_table(table)
        yield from ((span, "") for span in others)


def _markdown_table(table: FoundTable) -> str:
    names = table.names or ("",) * len(table.rows[0])
    rule = ("---",) * len(names)
    return "\n".join(_markdown_row(row) for row in (names, rule, *table.rows))


def _markdown_row(cells: tuple[str, ...]) -> str:
    written = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(written)} |"
