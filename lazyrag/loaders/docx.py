"""Word documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lazyrag.loaders.archives import open_archive
from lazyrag.loaders.base import LoadedFile
from lazyrag.text.headings import Heading, heading_places

if TYPE_CHECKING:
    from docx.document import Document as WordDocument

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"

_TEXT = frozenset([f"{_W}t", f"{_M}t"])
_CHARACTERS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
# Deleted and moved-away text, the older copy of a drawing, and properties hold nothing that a reader sees.
_UNSEEN = frozenset(
    [f"{_W}del", f"{_W}moveFrom", f"{_MC}Fallback", f"{_W}pPr", f"{_W}rPr", f"{_W}instrText", f"{_W}sectPr"]
)
_HEADING_STYLE = re.compile(r"(?:heading|标题)\s*([1-9])$", re.IGNORECASE)


class DocxLoader:
    """Reads a Word document in the order of its body, tables included, row by row with ``|`` between the cells.

    Headings become places; title and author from the document's properties become metadata. Headers, footers,
    footnotes and comments are left out.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        import docx  # python-docx takes a tenth of a second to import

        with open_archive(path, "Word document", ".docx") as archive:
            archive.check()
        document = docx.Document(str(path))
        lines: list[str] = []
        headings: list[Heading] = []
        position = 0
        levels = _heading_levels(document)
        for block, level in _blocks(document.element.body, levels):
            if level and block.strip():
                headings.append(Heading(position, level, " ".join(block.split())))
            lines.append(block)
            position += len(block) + 1
        text = "\n".join(lines)
        return LoadedFile(text, heading_places(headings, len(text)), _properties(document))


def _properties(document: WordDocument) -> dict[str, str]:
    """Title and author, where the document has properties; python-docx would make up a title where it has none."""
    from docx.opc.constants import RELATIONSHIP_TYPE

    try:
        document.part.package.part_related_by(RELATIONSHIP_TYPE.CORE_PROPERTIES)
    except KeyError:
        return {}
    said = {"title": document.core_properties.title, "author": document.core_properties.author}
    return {name: value.strip() for name, value in said.items() if value and value.strip()}


def _heading_levels(document: WordDocument) -> dict[str, int]:
    """Heading level by style id: styles named Heading 1 to 9, Title counting as 1."""
    levels = {}
    for style in document.styles:
        name = style.name or ""
        match = _HEADING_STYLE.match(name)
        if match or name == "Title":
            levels[style.style_id] = int(match[1]) if match else 1
    return levels


def _blocks(parent: Any, levels: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Text and heading level (0: none) of paragraphs and of table rows, in order, through every wrapping element."""
    for child in parent:
        if child.tag == f"{_W}p":
            style = child.find(f"{_W}pPr/{_W}pStyle")
            yield "".join(_run_text(child)), levels.get(style.get(f"{_W}val"), 0) if style is not None else 0
            # Text boxes hang inside a paragraph and hold paragraphs of their own.
            for box in child.iter(f"{_W}txbxContent"):
                own = next(box.iterancestors(f"{_W}p")) is child  # not a box inside one of its boxes
                if own and not any(above.tag == f"{_MC}Fallback" for above in box.iterancestors()):
                    yield from _blocks(box, levels)
        elif child.tag == f"{_W}tbl":
            yield from ((row, 0) for row in _rows(child, levels))
        elif child.tag not in _UNSEEN and isinstance(child.tag, str):
            yield from _blocks(child, levels)


def _rows(table: Any, levels: dict[str, int]) -> Iterator[str]:
    for row in table.iter(f"{_W}tr"):
        if next(row.iterancestors(f"{_W}tbl")) is not table:
            continue
        cells = []
        for cell in row.iter(f"{_W}tc"):
            if next(cell.iterancestors(f"{_W}tbl")) is not table:
                continue  # it belongs to a table inside one of our cells, whose text that cell yields
            merged = cell.find(f"{_W}tcPr/{_W}vMerge")
            if merged is None or merged.get(f"{_W}val") == "restart":
                words = " ".join(" ".join(block.split()) for block, _ in _blocks(cell, levels))
                cells.append(words.strip())
        if any(cells):
            yield " | ".join(cells)


def _run_text(paragraph: Any) -> Iterator[str]:
    for child in paragraph:
        if child.tag in _TEXT:
            yield child.text or ""
        elif child.tag in _CHARACTERS:
            yield _CHARACTERS[child.tag]
        elif child.tag not in _UNSEEN and child.tag != f"{_W}txbxContent" and isinstance(child.tag, str):
            yield from _run_text(child)
