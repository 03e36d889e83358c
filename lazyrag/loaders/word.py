"""Word documents: `DocxLoader`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from lazyrag.data.segment import CODE_BLOCK, LIST_ITEM
from lazyrag.data.tables import FoundTable
from lazyrag.errors import LoadError
from lazyrag.loaders.archives import (
    Archive,
    Element,
    Relation,
    attribute,
    load_member,
    member_folder,
    open_archive,
    picture_text,
    properties,
    related,
    relations,
)
from lazyrag.loaders.base import LoadedFile, reading
from lazyrag.loaders.detect import clean
from lazyrag.loaders.formulas import formula_text
from lazyrag.loaders.hidden import mark_hidden_runs, unmarked
from lazyrag.loaders.rtf import HEADING_STYLE
from lazyrag.loaders.slides import drawn_lines
from lazyrag.loaders.symbols import symbol_text, with_reading
from lazyrag.loaders.tables import (
    Grid,
    GridCell,
    LineKind,
    TextLines,
    cell_text,
    numbered_notes,
    read_table,
)
from lazyrag.validation import known_arguments, validate_boolean

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MAX_LIST_LEVELS = 9
_PLACEHOLDER = re.compile(r"%([1-9])")
_ROMAN = dict(
    zip(
        (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
        "m cm d cd c xc l xl x ix v iv i".split(),
        strict=True,
    )
)
_DIGITS = "零一二三四五六七八九"


_UNNUMBERED = ("", 0)


class _Level(NamedTuple):
    """Number format of a level: ``%1.%2`` are the numbers of the first two levels."""

    start: int
    form: str
    text: str
    style: str


class _List(NamedTuple):
    """A list: the definition whose counter it shares, its levels, and those that it restarts."""

    definition: str
    levels: dict[int, _Level]
    restarts: dict[int, int]


class Numbering:
    """Numbers the paragraphs of a document.

    Args:
        archive: The document.
        main: Its main part.
        styles: Its styles.
    """

    def __init__(self, archive: Archive, main: str, styles: Sequence[Element]) -> None:
        self._lists: dict[str, _List] = {}
        self._of_styles: dict[str, tuple[str, int | None]] = {}
        self._counts: dict[str, list[int | None]] = {}
        self._begun: set[tuple[str, int]] = set()
        self._read_lists(archive.optional(related(archive, "numbering", main)))
        if self._lists:
            self._read_styles(styles)

    def mark(self, paragraph: Any) -> tuple[str, int]:
        """The number or bullet of a paragraph, with a space, and its level from 1; "" and 0 without
        one. Call it for each paragraph, in order.
        """
        properties = paragraph.find(f"{_W}pPr") if self._lists else None
        if properties is None:
            return _UNNUMBERED
        style = _value(properties, "pStyle")
        key, depth = self._of_styles.get(style, ("", None))
        numbered = properties.find(f"{_W}numPr")
        if numbered is not None:
            key = _value(numbered, "numId") or key
            depth = _number(_value(numbered, "ilvl"), depth)
        numbering = self._lists.get(key)
        if numbering is None:
            return _UNNUMBERED
        if depth is None:
            depth = next(
                (number for number, level in numbering.levels.items() if level.style == style), 0
            )
        level = numbering.levels.get(depth)
        if level is None:
            return _UNNUMBERED
        counts = self._count(key, numbering, depth)
        mark = _PLACEHOLDER.sub(
            lambda location: self._written(numbering, counts, int(location[1]) - 1), level.text
        ).strip()
        if level.form == "bullet":
            mark = "•"  # the file's own is in a symbol font
        return (f"{mark} ", depth + 1) if mark and level.form != "none" else _UNNUMBERED

    def _count(self, key: str, numbering: _List, depth: int) -> list[int | None]:
        counts = self._counts.setdefault(numbering.definition, [None] * _MAX_LIST_LEVELS)
        start = numbering.levels[depth].start
        if depth in numbering.restarts and (key, depth) not in self._begun:
            start = numbering.restarts[depth]
            counts[depth] = None
        self._begun.add((key, depth))
        before = counts[depth]
        counts[depth] = start if before is None else before + 1
        counts[depth + 1 :] = [None] * (_MAX_LIST_LEVELS - depth - 1)
        return counts

    @staticmethod
    def _written(numbering: _List, counts: list[int | None], depth: int) -> str:
        level = numbering.levels.get(depth)
        if level is None:
            return ""
        count = counts[depth]
        return number_text(level.start if count is None else count, level.form)

    def _read_lists(self, part: Iterable[Element]) -> None:
        listed = list(part)
        numbers = [element for element in listed if element.tag == f"{_W}num"]
        definitions = {
            _attribute(element, "abstractNumId"): dict(_levels(element))
            for element in listed
            if element.tag == f"{_W}abstractNum"
        }
        for number in numbers:
            key = _value(number, "abstractNumId")
            levels = dict(definitions.get(key, {}))
            restarts = {}
            for override in number.iterfind(f"{_W}lvlOverride"):
                levels |= dict(_levels(override))
                start = _number(_value(override, "startOverride"), None)
                depth = _number(_attribute(override, "ilvl"), 0) or 0
                if start is not None:
                    restarts[depth] = start
            self._lists[_attribute(number, "numId")] = _List(key, levels, restarts)

    def _read_styles(self, styles: Sequence[Element]) -> None:
        parents = {}
        of_style = {}
        for style in styles:
            name = _attribute(style, "styleId")
            parents[name] = _value(style, "basedOn")
            numbered = style.find(f"{_W}pPr/{_W}numPr")
            if numbered is not None:
                of_style[name] = _value(numbered, "numId"), _number(_value(numbered, "ilvl"), None)
        nearest = {"": ""}  # by style: itself or the style above it that has a number
        for name in parents:
            above = name
            passed = []
            while above not in nearest and above not in of_style:
                nearest[above] = ""  # of a circle
                passed.append(above)
                above = parents.get(above, "")
            above = nearest.get(above, above)
            nearest.update(dict.fromkeys(passed, above))
            key, depth = of_style.get(above, ("", None))
            if not key and above in of_style:  # a style of a deeper level has only its depth
                higher = of_style.get(parents.get(above, ""), ("", None))
                key = higher[0]
            if key:
                self._of_styles[name] = key, depth


def _levels(parent: Any) -> list[tuple[int, _Level]]:
    levels = []
    for element in parent.iterfind(f"{_W}lvl"):
        depth = _number(_attribute(element, "ilvl"), None)
        if depth is not None and 0 <= depth < _MAX_LIST_LEVELS:
            start = _number(_value(element, "start"), 0) or 0
            form = _value(element, "numFmt") or "decimal"
            levels.append(
                (depth, _Level(start, form, _value(element, "lvlText"), _value(element, "pStyle")))
            )
    return levels


def _attribute(element: Any, name: str) -> str:
    return str(element.get(f"{_W}{name}") or "")


def _value(parent: Any, name: str) -> str:
    element = None if parent is None else parent.find(f"{_W}{name}")
    return "" if element is None else _attribute(element, "val")


def _number(text: str, default: int | None) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,6}", text, re.ASCII) else default


def number_text(number: int, form: str) -> str:
    """A number in one of Word's forms, such as ``"upperRoman"``; in digits for others."""
    return _FORMS.get(form, str)(number)


def letters(number: int) -> str:
    """Word's letters: z is followed by aa, bb."""
    times, letter = divmod(number - 1, 26)
    return chr(ord("a") + letter) * min(times + 1, 40) if number > 0 else "0"


def roman(number: int) -> str:
    """Roman numerals in lower case."""
    pieces = []
    for value, letters in _ROMAN.items():
        times, number = divmod(number, value)
        pieces.append(letters * min(times, 40))
    return "".join(pieces)


def _chinese(number: int) -> str:
    """Chinese numerals up to 99; larger numbers digit by digit."""
    if not 0 < number < 100:
        return "".join(_DIGITS[int(digit)] for digit in str(number))
    tens, ones = divmod(number, 10)
    head = ""
    if tens:
        head = "十" if tens == 1 else f"{_DIGITS[tens]}十"
    return head + (_DIGITS[ones] if ones else "")


_FORMS: dict[str, Callable[[int], str]] = {
    "chineseCounting": _chinese,
    "chineseCountingThousand": _chinese,
    "decimalZero": lambda number: f"{number:02}",
    "japaneseCounting": _chinese,
    "lowerLetter": letters,
    "lowerRoman": roman,
    "taiwaneseCountingThousand": _chinese,
    "upperLetter": lambda number: letters(number).upper(),
    "upperRoman": lambda number: roman(number).upper(),
}


_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"

_TEXT = frozenset([f"{_W}t", f"{_M}t"])
_RUBY = f"{_W}ruby"
_OTHER_PART = f"{_W}altChunk"
_FORMULAS = frozenset([f"{_M}oMath", f"{_M}oMathPara"])
_NOTES = {f"{_W}footnoteReference": "footnotes", f"{_W}endnoteReference": "endnotes"}
_BOX = f"{_W}txbxContent"
_CHARACTERS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
# Invisible: deleted and moved text, the fallback of a drawing, properties.
_UNSEEN = frozenset(
    [
        f"{_W}del",
        f"{_W}moveFrom",
        f"{_MC}Fallback",
        f"{_W}pPr",
        f"{_W}rPr",
        f"{_W}instrText",
        f"{_W}sectPr",
    ]
)
_STYLES: dict[str, LineKind] = {"Title": 1, "Source Code": (CODE_BLOCK, "")}  # the latter of pandoc
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}"
_PICTURES = frozenset([f"{_DRAWING}docPr", "{urn:schemas-microsoft-com:vml}shape"])


@known_arguments
class DocxLoader:
    """Reads a Word document in body order, tables row by row with ``|`` between the cells.

    Headings become locations; title, author, subject, keywords and dates of the document's
    properties become metadata. Footnotes and endnotes are numbered in order and follow the text, as
    places of kind ``footnote``. Tracked changes are read as accepted, formulas as lines, lists with
    Word's numbers, pictures as their alternative texts.

    Args:
        comments: Read comments; they follow the text, as places of kind ``comment``.
        headers: Read headers and footers, each once, headers before the text and footers after it.
    """

    def __init__(self, *, comments: bool = False, headers: bool = False) -> None:
        self._comments = validate_boolean("comments", comments)
        self._headers = validate_boolean("headers", headers)

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        with open_archive(path, "Word document", ".docx") as archive:
            main = related(archive, "officeDocument")
            document = archive.xml(main) if main else None
            body = None if document is None else document.find(f"{_W}body")
            if body is None:
                raise LoadError(
                    "The file is no Word document, but of another format. Save it as .docx."
                )
            metadata = properties(archive, _PROPERTY_NAMES)
            styles = [
                element
                for element in archive.optional(related(archive, "styles", main))
                if element.tag == f"{_W}style"
            ]
            mark_hidden_runs(body, styles)
            page = _DocxText(
                kinds=_style_kinds(styles),
                numbering=Numbering(archive, main, styles),
                archive=archive,
                targets=relations(archive, main),
                captions=_caption_styles(styles),
            )
            around = _headers_and_footers(archive, main, page) if self._headers else {}
            page.add_all(around.get("header", ()))
            page.add_all(_blocks(body, page))
            page.add_all(around.get("footer", ()))
            page.add_all(numbered_notes(_notes(archive, main, page)))
            comments = _comments(archive, main, page)
            if self._comments:
                page.add_all(comments)
            else:
                count = sum(1 for _ in comments)
                reading().leave_out("comments", count, "DocxLoader(comments=True)")
            if not self._headers:
                repeated = itertools.chain(*_headers_and_footers(archive, main, page).values())
                count = sum(any(map(str.isalpha, line)) for line, _ in repeated)
                reading().leave_out("headers and footers", count, "DocxLoader(headers=True)")
        return unmarked(page.loaded(metadata))


_PROPERTY_NAMES = ("title", "author", "subject", "keywords", "created", "modified")


@dataclass(slots=True, kw_only=True)
class _DocxText(TextLines):
    """State of reading.

    Args:
        kinds: What paragraphs are, by style id.
        numbering: Numbers paragraphs.
        archive: The document.
        targets: Relations of its main part, or of the part that is read.
    """

    kinds: dict[str, LineKind]
    numbering: Numbering
    archive: Archive
    targets: dict[str, Relation]
    captions: frozenset[str] = frozenset()
    """Ids of the styles of captions."""

    def of_part(self, part: str) -> _DocxText:
        """The same state with the relations of another part, such as a header."""
        targets = {}
        with self.archive.tolerated(f"relations of {part}"):
            targets = relations(self.archive, part)
        return replace(self, targets=targets)

    def words(self, parent: Any) -> str:
        """The text of an element, on one line."""
        return " ".join(" ".join(block for block, _ in _blocks(parent, self)).split())


def _notes(archive: Archive, main: str, page: _DocxText) -> Iterator[str]:
    words_of = {}
    # none within notes, which might refer to themselves
    for kind, key in tuple(page.notes):
        if kind not in words_of:
            name = related(archive, kind, main)
            within = page.of_part(name)
            notes = archive.optional(name)
            words_of[kind] = {_attribute(note, "id"): within.words(note) for note in notes}
        words = words_of[kind].get(key, "")
        reading().spend_text(words)
        yield words


def _comments(archive: Archive, main: str, page: _DocxText) -> Iterator[tuple[str, LineKind]]:
    name = related(archive, "comments", main)
    page = page.of_part(name)
    for number, comment in enumerate(archive.optional(name), start=1):
        words = page.words(comment)
        if words:
            author = _attribute(comment, "author") or "somebody"
            yield f"Comment by {author}: {words}", ("comment", str(number))


def _headers_and_footers(
    archive: Archive, main: str, page: _DocxText
) -> dict[str, dict[tuple[str, int], None]]:
    """The distinct lines of all headers, and of all footers, in order."""
    lines_of: dict[str, dict[tuple[str, int], None]] = {"header": {}, "footer": {}}
    for relation in relations(archive, main).values():
        if relation.kind in lines_of and relation.target in archive:
            part = archive.optional(relation.target)
            part_page = page.of_part(relation.target)
            lines = (block for block, _ in _blocks(part, part_page) if block.strip())
            lines_of[relation.kind].update(dict.fromkeys((line, 0) for line in lines))
    return lines_of


def _style_name(style: Element) -> str:
    return _value(style, "name")


def _style_kinds(styles: Iterable[Element]) -> dict[str, LineKind]:
    """What paragraphs are, by style id: headings of the styles Heading 1 to 9 and Title; code."""
    kinds = {}
    for style in styles:
        name = _style_name(style)
        match = HEADING_STYLE.match(name)
        kinds[_attribute(style, "styleId")] = int(match[1]) if match else _STYLES.get(name, 0)
    return kinds


def _caption_styles(styles: Iterable[Element]) -> frozenset[str]:
    return frozenset(
        _attribute(style, "styleId") for style in styles if _style_name(style).lower() == "caption"
    )


def _blocks(parent: Any, page: _DocxText) -> Iterator[tuple[str, LineKind]]:
    """Paragraphs and tables, through all wrapping elements."""
    for child in parent:
        if child.tag == f"{_W}p":
            text = "".join(_run_text(child, page))
            mark, level = page.numbering.mark(child) if text.strip() else _UNNUMBERED
            kind = page.kinds.get(_value(child.find(f"{_W}pPr"), "pStyle"), 0)
            yield mark + text, kind or (level and (LIST_ITEM, str(level)))
            # Text boxes and charts are inside a paragraph and have lines of their own.
            for box in child.iter(_BOX, "{*}chart", "{*}relIds"):
                # not a box inside one of its boxes
                is_direct = next(box.iterancestors(f"{_W}p")) is child
                is_unseen = next(box.iterancestors(*_UNSEEN), None) is not None
                if not is_direct or is_unseen:
                    continue
                if box.tag == _BOX:
                    yield from _blocks(box, page)
                else:
                    lines = drawn_lines(page.archive, page.targets, box)
                    yield from ((line, 0) for line in lines)
        elif child.tag == f"{_W}tbl":
            text, tables = _table(child, page)
            if text:
                yield text, tables
        elif child.tag == _OTHER_PART:
            yield _other_part(child, page), 0
        elif child.tag not in _UNSEEN and isinstance(child.tag, str):
            yield from _blocks(child, page)


def _other_part(chunk: Any, page: _DocxText) -> str:
    """The text of a file within the document that Word shows in this place."""
    key = attribute(chunk, "id")
    relation = page.targets.get(key)
    part = "" if relation is None else relation.target
    with page.archive.tolerated(f"part {part or key}"), member_folder() as folder:
        if not part:
            raise LoadError(f"The document has no part with the relation id {key!r}.")
        if part.endswith(".xml") and part in page.archive:
            raise LoadError("It is a part of the document itself, or Word's XML.")
        return load_member(folder, part, page.archive.pieces(part)).text
    return ""


def _table(table: Any, page: _DocxText) -> tuple[str, list[FoundTable]]:
    """The lines of a table; it and the tables inside it as data."""
    nested: list[FoundTable] = []
    rows: Grid = []
    header = 0
    for row in table.iter(f"{_W}tr"):
        if next(row.iterancestors(f"{_W}tbl")) is not table:
            continue  # of a nested table, whose text the outer cell holds
        skipped = _number(_value(row.find(f"{_W}trPr"), "gridBefore"), 0) or 0
        cells = [GridCell("", skipped)] if skipped else []
        cells += (
            _cell(cell, page, nested)
            for cell in row.iter(f"{_W}tc")
            if next(cell.iterancestors(f"{_W}tbl")) is table
        )
        header += header == len(rows) and row.find(f"{_W}trPr/{_W}tblHeader") is not None
        rows.append(cells)
    text, tables = read_table(rows, header=header, caption=_caption(table, page.captions))
    return text, tables + nested


def _caption(table: Any, styles: frozenset[str]) -> str:
    """The caption of a table, else the paragraph beside it that has a style of captions."""
    caption = _value(table.find(f"{_W}tblPr"), "tblCaption")
    for near in (table.getprevious(), table.getnext()) if styles else ():
        if caption:
            break
        if near is not None and _value(near.find(f"{_W}pPr"), "pStyle") in styles:
            caption = " ".join("".join(text.text or "" for text in near.iter(f"{_W}t")).split())
    return caption


def _cell(cell: Any, page: _DocxText, nested: list[FoundTable]) -> GridCell:
    properties = cell.find(f"{_W}tcPr")
    columns = _number(_value(properties, "gridSpan"), 1) or 1
    merged = None if properties is None else properties.find(f"{_W}vMerge")
    if merged is not None and _attribute(merged, "val") != "restart":
        return GridCell("", columns, rows=0)
    return GridCell(cell_text(_blocks(cell, page), nested), columns)


def _part_text(parent: Any, name: str, page: _DocxText) -> str:
    part = parent.find(f"{_W}{name}")
    return "" if part is None else "".join(_run_text(part, page))


def _symbol(symbol: Any) -> str:
    code = _attribute(symbol, "char")
    is_code = re.fullmatch("[0-9A-Fa-f]{1,4}", code)
    text = symbol_text(chr(int(code, 16)), _attribute(symbol, "font")) if is_code else ""
    return clean(text)


def _run_text(paragraph: Any, page: _DocxText) -> Iterator[str]:
    for child in paragraph:
        if child.tag in _TEXT:
            fonts = paragraph.find(f"{_W}rPr/{_W}rFonts")
            font = "" if fonts is None else _attribute(fonts, "ascii")
            yield symbol_text(child.text or "", font)
        elif child.tag == f"{_W}sym":
            yield _symbol(child)
        elif child.tag == _RUBY:
            base = _part_text(child, "rubyBase", page)
            yield with_reading(base, _part_text(child, "rt", page))
        elif child.tag in _CHARACTERS:
            yield _CHARACTERS[child.tag]
        elif child.tag in _FORMULAS:
            yield formula_text(child)
        elif child.tag in _PICTURES:
            yield picture_text(child.get("descr") or child.get("alt"))
            yield from _run_text(child, page)
        elif child.tag in _NOTES:
            page.notes.append((_NOTES[child.tag], _attribute(child, "id")))
            yield f"[{len(page.notes)}]"
        elif child.tag not in _UNSEEN and child.tag != _BOX and isinstance(child.tag, str):
            yield from _run_text(child, page)
