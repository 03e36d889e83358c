"""Text formats: plain text, Markdown, reStructuredText, notebooks."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from lazyrag.data.segment import CODE_BLOCK, Location
from lazyrag.errors import LoadError
from lazyrag.loaders.base import LoadedFile, SourceLoader, joined_file
from lazyrag.loaders.detect import clean, decode, find_encoding
from lazyrag.loaders.hidden import markdown_comments
from lazyrag.text.structure import Heading, front_matter, heading_locations, markdown_headings
from lazyrag.types import JsonObject
from lazyrag.validation import entry_of, known_arguments, validate_boolean


class MarkdownLoader:
    """Reads Markdown as it is, marks included; headings become locations. Comments are marked as
    hidden text.

    Simple lines of its front matter (``title: Tea``, ``tags: [green, black]``) become metadata.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        read = find_encoding(path.read_bytes())
        locations = heading_locations(list(markdown_headings(read.text)), len(read.text))
        metadata = {**front_matter(read.text), **read.metadata}
        comments = tuple(markdown_comments(read.text))
        return LoadedFile(read.text, locations, metadata, tables=comments)


_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # of terminals, in printed output


@known_arguments
class NotebookLoader:
    """Reads a Jupyter notebook cell by cell, Markdown and code as they are; each cell with text is
    a location.

    Text outputs and errors follow the code; pictures and HTML are skipped. The kernel's language
    becomes the metadata ``language``, the number of cells ``cells``.

    Args:
        outputs: Read the outputs of code.

    Raises:
        ConfigError: If outputs is not a boolean.

    Example:
        >>> import tempfile
        >>> outputs = [{"data": {"text/plain": "160"}}]
        >>> cell = {"cell_type": "code", "source": ["2 * 80"], "outputs": outputs}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "tea.ipynb")
        ...     _ = path.write_text(json.dumps({"nbformat": 4, "cells": [cell]}), encoding="utf-8")
        ...     NotebookLoader().load(path).text.split()
        ...     NotebookLoader(outputs=False).load(path).text
        ['2', '*', '80', '160']
        '2 * 80'
    """

    def __init__(self, *, outputs: bool = True) -> None:
        self._outputs = validate_boolean("outputs", outputs)

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        notebook = _parsed(decode(path.read_bytes()))
        cells = _cells(notebook)
        language = _language(notebook)
        parts = []
        for number, cell in enumerate(cells, start=1):
            text = self._text(cell)
            if text.strip():
                code = Location(0, len(_source(cell)), CODE_BLOCK, language)
                tables = (code,) if cell.get("cell_type") == "code" else ()
                parts.append((LoadedFile(text, tables=tables), "cell", str(number)))
        metadata = {**({"language": language} if language else {}), "cells": len(cells)}
        return joined_file(parts, metadata)

    def _text(self, cell: JsonObject) -> str:
        printed = _outputs(cell) if self._outputs else ()
        return "\n\n".join(filter(str.strip, (_source(cell), *map(clean, printed))))


def _source(cell: JsonObject) -> str:
    return clean(_joined(cell.get("source", cell.get("input"))))  # "input" until format 3


def _parsed(text: str) -> JsonObject:
    problem = ""
    try:
        notebook = json.loads(text, strict=False)
    except (
        ValueError,
        RecursionError,
    ) as exc:  # ValueError also for a number of thousands of digits
        problem = f" ({exc})"
        notebook = None
    if not isinstance(notebook, dict):
        raise LoadError(
            f"The file is not a notebook: cut off, or of another format{problem}. Save it again."
        )
    return notebook


def _cells(notebook: JsonObject) -> list[JsonObject]:
    """The cells; until format 3 they are in worksheets."""
    sheets = notebook.get("worksheets")
    holders = sheets if isinstance(sheets, list) else [notebook]
    lists = [entry_of(holder, "cells") for holder in holders]
    if not lists or not all(isinstance(cells, list) for cells in lists):
        raise LoadError(
            "The file is not a notebook: it has no list of cells. Save it again from Jupyter, or as"
            " .json."
        )
    cells = chain.from_iterable(filter(None, lists))
    return [cell if isinstance(cell, dict) else {} for cell in cells]


def _outputs(cell: JsonObject) -> Iterator[str]:
    """Outputs and errors of a cell, as text."""
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else ():
        if not isinstance(output, dict):
            continue
        data = output.get("data")
        plain = entry_of(data, "text/plain")
        text = _joined(output.get("text")) or _joined(plain)
        if not text and output.get("ename"):
            text = f"{output['ename']}: {output.get('evalue', '')}"
        yield _COLOURS.sub("", text).strip("\n")


def _joined(source: Any) -> str:
    """A text, which notebooks store as a list of lines."""
    lines = source if isinstance(source, list) else [source]
    return "".join(line for line in lines if isinstance(line, str))


def _language(notebook: JsonObject) -> str:
    metadata = notebook.get("metadata")
    for location, name in (("language_info", "name"), ("kernelspec", "language")):
        entry = entry_of(metadata, location)
        if isinstance(entry, dict) and isinstance(entry.get(name), str):
            return clean(entry[name])
    return ""


class TextLoader(SourceLoader):
    """Reads plain text, character by character. An encoding other than UTF-8 becomes metadata."""


_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*")
_NO_TITLE = re.compile(r"\s|\.\.(?:\s|$)|[-*+•‣⁃]\s")
_ALWAYS_LONG_ENOUGH = 4


class RstLoader:
    """Reads reStructuredText as it is, marks included; section titles become locations."""

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        read = find_encoding(path.read_bytes())
        return LoadedFile(
            read.text, heading_locations(list(_headings(read.text)), len(read.text)), read.metadata
        )


def _headings(text: str) -> Iterator[Heading]:
    """Titles with a line below, or above and below; levels follow the first occurrence of each
    style.
    """
    levels: dict[tuple[str, bool], int] = {}
    lines = text.splitlines(keepends=True)
    start = at = 0
    first = -1  # where the targets of links begin that are right above: they name the next section
    fresh = True  # a block may begin here
    while at < len(lines):
        taken = 1
        title, over = (
            _title([line.rstrip() for line in lines[at : at + 3]]) if fresh else ("", False)
        )
        if title:
            taken = 3 if over else 2
            style = (lines[at + taken - 1][0], over)
            yield Heading(
                start if first < 0 else first, levels.setdefault(style, len(levels) + 1), title
            )
        if lines[at].startswith(".. _"):
            first = start if first < 0 else first
        elif title or lines[at].strip():
            first = -1
        fresh = bool(title) or not lines[at].strip()
        start += sum(map(len, lines[at : at + taken]))
        at += taken


def _title(lines: list[str]) -> tuple[str, bool]:
    """The title in a block's first lines, "" without one, and whether it has a line above."""
    first, second, third = (*lines, "", "")[:3]
    if _ADORNMENT.fullmatch(first):
        titled = bool(second.strip()) and first == third and not _ADORNMENT.fullmatch(second)
        return (second.strip(), True) if titled and _reaches(first, second) else ("", False)
    titled = bool(first and _ADORNMENT.fullmatch(second)) and not _NO_TITLE.match(first)
    return (first, False) if titled and _reaches(second, first) else ("", False)


def _reaches(adornment: str, title: str) -> bool:
    """Whether a line is long enough: four characters, or as wide as the title; Chinese is two
    columns wide.
    """
    if len(adornment) >= _ALWAYS_LONG_ENOUGH:
        return True
    return len(adornment) >= sum(
        1 + (unicodedata.east_asian_width(character) in "WF") for character in title
    )
