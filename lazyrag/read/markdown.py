"""Documents as Markdown: `to_markdown`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from lazyrag.data.segment import (
    CODE_BLOCK,
    LIST_ITEM,
    NOTE_CALL,
    TITLE,
    Segment,
    content_text,
)
from lazyrag.data.tables import FoundTable
from lazyrag.loaders import SOURCE_SUFFIXES
from lazyrag.read.catalogue import find_root
from lazyrag.read.scope import Collection, reader_of
from lazyrag.transforms.tables import document_tables

_MARKDOWN = frozenset([".md", ".markdown"])
_LINES_ARE_PARAGRAPHS = frozenset(
    ".doc .docm .docx .dotx .odp .odt .ppt .pptx .rtf .xls .xlsb .xlsm .xlsx .ods".split()
)
_TITLED = frozenset(["chapter", "heading", "sheet"])
_MAX_LEVEL = 6
_BESIDE_A_TITLE = 20  # characters, such as its number
_CALL = "\ufdd0"  # which no text has
_ITEM = re.compile(r"(?:-|\d{1,9}[.)])\s")
_INDENTATION = "   "  # of a list in an item with a dash or a digit
_ADORNMENT = r"(?:\n([^\w\s])\3{2,}[ \t]*(?=\n|\Z))?"  # below a title of reStructuredText
_BULLET = re.compile(r"^([ \t]*)[•▪●◦‣] ?", re.MULTILINE)


def to_markdown(docs: Collection, path: str) -> str:
    r"""Return the text of a document as Markdown: headings, lists, tables, code and footnotes.

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
        return f"{_fenced(text, suffix[1:])}\n"
    text = _with_calls(root, text)
    pieces = []
    end = 0
    for start, minus_end, block in sorted([*_marked(root, text), *_tables(root)]):
        if start >= end:
            pieces += [_paragraphs(text[end:start], suffix), block]
            end = -minus_end
    pieces.append(_paragraphs(text[end:], suffix))
    return "\n\n".join(filter(None, pieces)).replace(_CALL, "[^") + "\n"


def _with_calls(root: Segment, text: str) -> str:
    """The text with a mark in place of the first bracket of each call of a footnote."""
    characters = list(text)
    for place in root.locations:
        if place.kind == NOTE_CALL:
            characters[place.start] = _CALL
    return "".join(characters)


def _fenced(code: str, language: str) -> str:
    longest = max(["~~", *re.findall("~+", code)], key=len)
    fence = f"{longest}~"  # longer than any in the code, which would end it
    return f"{fence}{language}\n{code.rstrip()}\n{fence}"


def _paragraphs(text: str, suffix: str) -> str:
    """A stretch of text with lists of Markdown; each line is a paragraph where the format has it
    so.
    """
    text = _BULLET.sub(r"\1- ", text.strip("\n"))
    if suffix not in _LINES_ARE_PARAGRAPHS:
        return text
    return "\n\n".join(filter(None, map(str.strip, text.split("\n"))))


def _marked(root: Segment, text: str) -> Iterator[tuple[int, int, str]]:
    """Start and negative end of what is marked, and the same in Markdown: headings, code, footnotes
    and the first lines of list items.
    """
    for start, end, kind, label in root.locations:
        words = text[start:end]
        if kind in _TITLED:
            yield from _headings(label.split(" > "), start, text)
        elif kind == TITLE:
            yield start, -end, f"# {' '.join(words.split())}"
        elif kind == CODE_BLOCK:
            yield start, -end, _fenced(words, label)
        elif kind == "footnote":
            yield start, -end, f"[^{label}]: {words.removeprefix(f'[{label}] ')}"
        elif kind == LIST_ITEM:
            line = words.partition("\n")[0]
            item = _BULLET.sub("- ", line)
            mark = "" if _ITEM.match(item) else "- "
            indentation = _INDENTATION * (int(label) - 1)
            yield start, -start - len(line), indentation + mark + item


def _headings(titles: list[str], start: int, text: str) -> Iterator[tuple[int, int, str]]:
    """The lines with the title of a section at its start, with what adorns them; none if the text
    has others.
    """
    for level in range(len(titles)):
        title = " > ".join(titles[level:])  # which may have such a mark itself
        words = r"\s+".join(map(re.escape, title.split())).replace(r"\[", rf"[\[{_CALL}]")
        lines = re.compile(rf"(?:.*\n){{0,2}}?(.*?({words}).*){_ADORNMENT}").match(text, start)
        most = min(2 * len(title), _BESIDE_A_TITLE)
        if lines and len(lines[1]) - len(lines[2]) <= most:
            yield start, -lines.end(), f"{'#' * min(level + 1, _MAX_LEVEL)} {title}"
            return


def _tables(root: Segment) -> Iterator[tuple[int, int, str]]:
    """Start and negative end of the stretches of tables, and the same as tables of Markdown."""
    for place, table, spans in document_tables(root):
        block = _markdown_table(table)
        for start, end in spans or [(place.start, place.end)]:
            yield start, -end, block
            block = ""


def _markdown_table(table: FoundTable) -> str:
    names = table.names or ("",) * len(table.rows[0])
    rule = ("---",) * len(names)
    return "\n".join(_markdown_row(row) for row in (names, rule, *table.rows))


def _markdown_row(cells: tuple[str, ...]) -> str:
    written = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(written)} |"
