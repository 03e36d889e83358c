"""Word documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lazyrag.data.segment import Place
from lazyrag.loaders.archives import Archive, open_archive
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.encoding import clean
from lazyrag.loaders.formulas import formula_text
from lazyrag.loaders.numbering import Numbering
from lazyrag.loaders.ooxml import related, relations
from lazyrag.text.structure import Heading, heading_places
from lazyrag.validation import known_arguments, yes_or_no

if TYPE_CHECKING:
    from docx.document import Document as WordDocument

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"

_TEXT = frozenset([f"{_W}t", f"{_M}t"])
_FORMULAS = frozenset([f"{_M}oMath", f"{_M}oMathPara"])
_NOTES = {f"{_W}footnoteReference": "footnotes", f"{_W}endnoteReference": "endnotes"}
_CHARACTERS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
# Deleted and moved-away text, the older copy of a drawing, and properties hold nothing that a reader sees.
_UNSEEN = frozenset(
    [f"{_W}del", f"{_W}moveFrom", f"{_MC}Fallback", f"{_W}pPr", f"{_W}rPr", f"{_W}instrText", f"{_W}sectPr"]
)
_HEADING_STYLE = re.compile(r"(?:heading|标题)\s*([1-9])$", re.IGNORECASE)


@known_arguments
class DocxLoader:
    """Reads a Word document in the order of its body, tables included, row by row with ``|`` between the cells.

    Headings become places; title, author, subject, keywords and dates of the document's properties become metadata.
    Footnotes and endnotes are numbered as they are met and follow the text, as places of kind ``footnote``. Tracked
    changes are read as if accepted, formulas as lines. Lists
    are numbered as Word numbers them. Pictures are left out.

    Args:
        comments: Read comments, too: they follow the text, as places of kind ``comment``.
        headers: Read headers and footers, too: each once, headers before the text and footers behind it.
    """

    def __init__(self, *, comments: bool = False, headers: bool = False) -> None:
        self._comments = yes_or_no("comments", comments)
        self._headers = yes_or_no("headers", headers)

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        import docx  # python-docx takes a tenth of a second to import

        with open_archive(path, "Word document", ".docx") as archive:
            archive.check()
            main = related(archive, "officeDocument")
            document = docx.Document(str(path))
            page = _Page(_heading_levels(document), Numbering(archive, main))
            around = _headers_and_footers(archive, main, page) if self._headers else {}
            for line in around.get("header", ()):
                page.add(line)
            for block, level in _blocks(document.element.body, page):
                page.add(block, level)
            for line in around.get("footer", ()):
                page.add(line)
            within = page.length
            page.add_notes(_notes(archive, main, page))
            if self._comments:
                page.add_notes(_comments(archive, main, page))
        text = "\n".join(page.lines)
        headings = heading_places(page.headings, min(within, len(text)))
        return LoadedFile(text, (*headings, *page.places), _properties(document))


@dataclass(slots=True)
class _Page:
    """What has been read so far, and what it takes to read on.

    Args:
        levels: Levels of headings by the ids of styles.
        numbering: What numbers paragraphs.
    """

    levels: dict[str, int]
    numbering: Numbering
    lines: list[str] = field(default_factory=list)
    length: int = 0
    headings: list[Heading] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    noted: list[tuple[str, str]] = field(default_factory=list)
    """Footnotes and endnotes in the order in which they are called: the kind of part that holds one, its id there."""

    def add(self, line: str, level: int = 0) -> None:
        if level and line.strip():
            self.headings.append(Heading(self.length, level, " ".join(line.split())))
        self.lines.append(line)
        self.length += len(line) + 1

    def add_notes(self, notes: Iterable[tuple[str, str, str]]) -> None:
        """Add notes: the kind of place, its label, its line."""
        for kind, label, line in notes:
            self.places.append(Place(self.length, self.length + len(line), kind, label))
            self.add(line)

    def words(self, parent: Any) -> str:
        """All that stands in an element, on one line."""
        return " ".join(word for block, _ in _blocks(parent, self) for word in block.split())


def _notes(archive: Archive, main: str, page: _Page) -> Iterator[tuple[str, str, str]]:
    parts: dict[str, dict[str, Any]] = {}
    for number, (kind, key) in enumerate(tuple(page.noted), start=1):  # none within notes, which might call themselves
        if kind not in parts:
            part = related(archive, kind, main)
            parts[kind] = {_said(one, "id"): one for one in archive.xml(part)} if part else {}
        words = page.words(parts[kind][key]) if key in parts[kind] else ""
        if words:
            yield "footnote", str(number), f"[{number}] {words}"


def _comments(archive: Archive, main: str, page: _Page) -> Iterator[tuple[str, str, str]]:
    part = related(archive, "comments", main)
    for number, comment in enumerate(archive.xml(part) if part else (), start=1):
        words = page.words(comment)
        if words:
            yield "comment", str(number), f"Comment by {_said(comment, 'author') or 'somebody'}: {words}"


def _headers_and_footers(archive: Archive, main: str, page: _Page) -> dict[str, list[str]]:
    """The different lines of all headers, and of all footers, in order."""
    found: dict[str, list[str]] = {"header": [], "footer": []}
    for relation in relations(archive, main).values():
        if relation.kind in found and relation.target in archive:
            for block, _ in _blocks(archive.xml(relation.target), page):
                if block.strip() and block not in found[relation.kind]:
                    found[relation.kind].append(block)
    return found


def _said(element: Any, name: str) -> str:
    """An attribute of Word's own."""
    return str(element.get(f"{_W}{name}") or "")


def _properties(document: WordDocument) -> dict[str, str]:
    """What the document's properties say, where it has any; python-docx would make up a title where it has none."""
    from docx.opc.constants import RELATIONSHIP_TYPE

    try:
        document.part.package.part_related_by(RELATIONSHIP_TYPE.CORE_PROPERTIES)
    except KeyError:
        return {}
    core = document.core_properties
    said = {name: clean(getattr(core, name) or "").strip() for name in ("title", "author", "subject", "keywords")}
    said |= {name: when.isoformat() if (when := getattr(core, name)) else "" for name in ("created", "modified")}
    return {name: value for name, value in said.items() if value}


def _heading_levels(document: WordDocument) -> dict[str, int]:
    """Heading level by style id: styles named Heading 1 to 9, Title counting as 1."""
    levels = {}
    for style in document.styles:
        name = style.name or ""
        match = _HEADING_STYLE.match(name)
        if match or name == "Title":
            levels[style.style_id] = int(match[1]) if match else 1
    return levels


def _blocks(parent: Any, page: _Page) -> Iterator[tuple[str, int]]:
    """Text and heading level (0: none) of paragraphs and of table rows, in order, through every wrapping element."""
    for child in parent:
        if child.tag == f"{_W}p":
            style = child.find(f"{_W}pPr/{_W}pStyle")
            text = "".join(_run_text(child, page))
            mark = page.numbering.mark(child) if text.strip() else ""
            yield mark + text, page.levels.get(style.get(f"{_W}val"), 0) if style is not None else 0
            # Text boxes hang inside a paragraph and hold paragraphs of their own.
            for box in child.iter(f"{_W}txbxContent"):
                own = next(box.iterancestors(f"{_W}p")) is child  # not a box inside one of its boxes
                if own and not any(above.tag == f"{_MC}Fallback" for above in box.iterancestors()):
                    yield from _blocks(box, page)
        elif child.tag == f"{_W}tbl":
            yield from ((row, 0) for row in _rows(child, page))
        elif child.tag not in _UNSEEN and isinstance(child.tag, str):
            yield from _blocks(child, page)


def _rows(table: Any, page: _Page) -> Iterator[str]:
    for row in table.iter(f"{_W}tr"):
        if next(row.iterancestors(f"{_W}tbl")) is not table:
            continue
        cells = []
        for cell in row.iter(f"{_W}tc"):
            if next(cell.iterancestors(f"{_W}tbl")) is not table:
                continue  # it belongs to a table inside one of our cells, whose text that cell yields
            merged = cell.find(f"{_W}tcPr/{_W}vMerge")
            if merged is None or merged.get(f"{_W}val") == "restart":
                words = " ".join(" ".join(block.split()) for block, _ in _blocks(cell, page))
                cells.append(words.strip())
        if any(cells):
            yield " | ".join(cells)


def _run_text(paragraph: Any, page: _Page) -> Iterator[str]:
    for child in paragraph:
        if child.tag in _TEXT:
            yield child.text or ""
        elif child.tag in _CHARACTERS:
            yield _CHARACTERS[child.tag]
        elif child.tag in _FORMULAS:
            yield formula_text(child)
        elif child.tag in _NOTES:
            page.noted.append((_NOTES[child.tag], _said(child, "id")))
            yield f"[{len(page.noted)}]"
        elif child.tag not in _UNSEEN and child.tag != f"{_W}txbxContent" and isinstance(child.tag, str):
            yield from _run_text(child, page)
