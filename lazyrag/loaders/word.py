"""Word documents and Rich Text: `DocxLoader` and `RtfLoader`."""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from lazyrag.data.segment import Location
from lazyrag.data.tables import FoundTable
from lazyrag.errors import LoadError
from lazyrag.loaders.archives import (
    Archive,
    Element,
    local_name,
    open_archive,
    picture_text,
    properties,
    related,
    relations,
)
from lazyrag.loaders.base import LoadedFile, reading
from lazyrag.loaders.detect import clean
from lazyrag.loaders.tables import GridCell, one_line, read_table
from lazyrag.text.structure import Heading, heading_locations
from lazyrag.validation import known_arguments, validate_boolean

_SIMPLE = re.compile(r"[\w.,]*|.", re.DOTALL)


def formula_text(formula: Element) -> str:
    """A formula on one line: ``a/(b+c)``, ``x^2``, ``x_i``, ``√(x)``.

    Args:
        formula: An ``oMath``, or any element in one.
    """
    write = _WRITERS.get(local_name(formula))
    if write is not None:
        return write(formula)
    if local_name(formula) == "t":
        return formula.text or ""
    return "".join(formula_text(child) for child in formula if not local_name(child).endswith("Pr"))


def _part(formula: Element, name: str) -> str:
    """The text of a part; "" without one."""
    return "".join(formula_text(child) for child in formula if local_name(child) == name)


def _elements(formula: Element) -> list[str]:
    return [formula_text(child) for child in formula if local_name(child) == "e"]


def _bracketed(text: str) -> str:
    text = text.strip()
    return text if _SIMPLE.fullmatch(text) else f"({text})"


def _mark(formula: Element, properties: str, name: str, default: str) -> str:
    """A character chosen by a formula's properties."""
    found = formula.find(f"{{*}}{properties}/{{*}}{name}")
    if found is None:
        return default
    return next(
        (str(value) for key, value in found.attrib.items() if str(key).endswith("}val")), ""
    )


def _scripts(formula: Element) -> str:
    below = _part(formula, "sub")
    above = _part(formula, "sup")
    return (f"_{_bracketed(below)}" if below else "") + (f"^{_bracketed(above)}" if above else "")


def _raised(formula: Element) -> str:
    return _part(formula, "e") + _scripts(formula)


def _root(formula: Element) -> str:
    degree = _part(formula, "deg")
    return f"{'' if degree.strip() in ('', '2') else degree}√{_bracketed(_part(formula, 'e'))}"


def _delimited(formula: Element) -> str:
    between = _mark(formula, "dPr", "sepChr", "|").join(_elements(formula))
    return f"{_mark(formula, 'dPr', 'begChr', '(')}{between}{_mark(formula, 'dPr', 'endChr', ')')}"


def _limit(formula: Element) -> str:
    return f"{_part(formula, 'e')}_{_bracketed(_part(formula, 'lim'))}"


_WRITERS: dict[str, Callable[[Element], str]] = {
    "d": _delimited,
    "eqArr": lambda formula: "; ".join(_elements(formula)),
    "f": lambda formula: f"{_bracketed(_part(formula, 'num'))}/{_bracketed(_part(formula, 'den'))}",
    "limLow": _limit,
    "limUpp": _limit,
    "m": lambda formula: "; ".join(
        ", ".join(_elements(row)) for row in formula if local_name(row) == "mr"
    ),
    "nary": lambda formula: (
        f"{_mark(formula, 'naryPr', 'chr', '∫')}{_scripts(formula)} {_part(formula, 'e')}"
    ),
    "rad": _root,
    "sPre": _raised,
    "sSub": _raised,
    "sSubSup": _raised,
    "sSup": _raised,
}


_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MAX_LIST_LEVELS = 9
_PLACEHOLDER = re.compile(r"%([1-9])")
_ROMAN = {
    1000: "m",
    900: "cm",
    500: "d",
    400: "cd",
    100: "c",
    90: "xc",
    50: "l",
    40: "xl",
    10: "x",
    9: "ix",
    5: "v",
}
_ROMAN |= {4: "iv", 1: "i"}
_DIGITS = "零一二三四五六七八九"


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

    def mark(self, paragraph: Any) -> str:
        """The number or bullet of a paragraph, with a space; "" without one. Call it for each
        paragraph, in order.
        """
        if not self._lists:
            return ""
        properties = paragraph.find(f"{_W}pPr")
        if properties is None:
            return ""
        style = _value(properties, "pStyle")
        key, depth = self._of_styles.get(style, ("", None))
        own = properties.find(f"{_W}numPr")
        if own is not None:
            key = _value(own, "numId") or key
            depth = _number(_value(own, "ilvl"), depth)
        found = self._lists.get(key)
        if found is None:
            return ""
        if depth is None:
            depth = next(
                (number for number, level in found.levels.items() if level.style == style), 0
            )
        level = found.levels.get(depth)
        if level is None:
            return ""
        counts = self._count(key, found, depth)
        mark = _PLACEHOLDER.sub(
            lambda location: self._written(found, counts, int(location[1]) - 1), level.text
        ).strip()
        if level.form == "bullet":
            mark = "•"  # the file's own is in a symbol font
        return f"{mark} " if mark and level.form != "none" else ""

    def _count(self, key: str, found: _List, depth: int) -> list[int | None]:
        counts = self._counts.setdefault(found.definition, [None] * _MAX_LIST_LEVELS)
        start = found.levels[depth].start
        if depth in found.restarts and (key, depth) not in self._begun:
            start = found.restarts[depth]
            counts[depth] = None
        self._begun.add((key, depth))
        before = counts[depth]
        counts[depth] = start if before is None else before + 1
        counts[depth + 1 :] = [None] * (_MAX_LIST_LEVELS - depth - 1)
        return counts

    @staticmethod
    def _written(found: _List, counts: list[int | None], depth: int) -> str:
        level = found.levels.get(depth)
        if level is None:
            return ""
        count = counts[depth]
        return _FORMS.get(level.form, str)(level.start if count is None else count)

    def _read_lists(self, part: Iterable[Element]) -> None:
        listed = list(part)
        abstract = (one for one in listed if one.tag == f"{_W}abstractNum")
        definitions = {_own(one, "abstractNumId"): dict(_levels(one)) for one in abstract}
        for one in (one for one in listed if one.tag == f"{_W}num"):
            key = _value(one, "abstractNumId")
            levels = dict(definitions.get(key, {}))
            restarts = {}
            for override in one.iterfind(f"{_W}lvlOverride"):
                levels |= dict(_levels(override))
                start = _number(_value(override, "startOverride"), None)
                depth = _number(_own(override, "ilvl"), 0) or 0
                if start is not None:
                    restarts[depth] = start
            self._lists[_own(one, "numId")] = _List(key, levels, restarts)

    def _read_styles(self, styles: Sequence[Element]) -> None:
        parents: dict[str, str] = {}
        own: dict[str, tuple[str, int | None]] = {}
        for style in styles:
            name = _own(style, "styleId")
            parents[name] = _value(style, "basedOn")
            numbered = style.find(f"{_W}pPr/{_W}numPr")
            if numbered is not None:
                own[name] = _value(numbered, "numId"), _number(_value(numbered, "ilvl"), None)
        nearest = {"": ""}  # by style: itself or the style above it that has a number
        for name in parents:
            above = name
            passed = list[str]()
            while above not in nearest and above not in own:
                nearest[above] = ""  # of a circle
                passed.append(above)
                above = parents.get(above, "")
            above = nearest.get(above, above)
            nearest.update(dict.fromkeys(passed, above))
            key, depth = own.get(above, ("", None))
            if not key and above in own:  # a style of a deeper level has only its depth
                higher = own.get(parents.get(above, ""), ("", None))
                key = higher[0]
            if key:
                self._of_styles[name] = key, depth


def _levels(parent: Any) -> list[tuple[int, _Level]]:
    levels = []
    for one in parent.iterfind(f"{_W}lvl"):
        depth = _number(_own(one, "ilvl"), None)
        if depth is not None and 0 <= depth < _MAX_LIST_LEVELS:
            start = _number(_value(one, "start"), 0) or 0
            form = _value(one, "numFmt") or "decimal"
            levels.append(
                (depth, _Level(start, form, _value(one, "lvlText"), _value(one, "pStyle")))
            )
    return levels


def _own(element: Any, name: str) -> str:
    return str(element.get(f"{_W}{name}") or "")


def _value(parent: Any, name: str) -> str:
    found = None if parent is None else parent.find(f"{_W}{name}")
    return "" if found is None else _own(found, "val")


def _number(text: str, default: int | None) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,6}", text, re.ASCII) else default


def _letters(number: int) -> str:
    """Word's letters: z is followed by aa, bb."""
    times, letter = divmod(number - 1, 26)
    return chr(ord("a") + letter) * min(times + 1, 40) if number > 0 else "0"


def _roman(number: int) -> str:
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
    head = "" if not tens else "十" if tens == 1 else f"{_DIGITS[tens]}十"
    return head + (_DIGITS[ones] if ones else "")


_FORMS: dict[str, Callable[[int], str]] = {
    "chineseCounting": _chinese,
    "chineseCountingThousand": _chinese,
    "decimalZero": lambda number: f"{number:02}",
    "japaneseCounting": _chinese,
    "lowerLetter": _letters,
    "lowerRoman": _roman,
    "taiwaneseCountingThousand": _chinese,
    "upperLetter": lambda number: _letters(number).upper(),
    "upperRoman": lambda number: _roman(number).upper(),
}


_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"

_TEXT = frozenset([f"{_W}t", f"{_M}t"])
_FORMULAS = frozenset([f"{_M}oMath", f"{_M}oMathPara"])
_NOTES = {f"{_W}footnoteReference": "footnotes", f"{_W}endnoteReference": "endnotes"}
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
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}"
_PICTURES = frozenset([f"{_DRAWING}docPr", "{urn:schemas-microsoft-com:vml}shape"])
_HEADING_STYLE = re.compile(r"(?:heading|标题)\s*([1-9])$", re.IGNORECASE)


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
                one
                for one in archive.optional(related(archive, "styles", main))
                if one.tag == f"{_W}style"
            ]
            page = _Page(
                _heading_levels(styles),
                Numbering(archive, main, styles),
                captions=_caption_styles(styles),
            )
            around = _headers_and_footers(archive, main, page) if self._headers else {}
            lines = _blocks(body, page)
            for block, level in itertools.chain(
                around.get("header", ()), lines, around.get("footer", ())
            ):
                page.add(block, level)
            within = page.length
            page.add_notes(_notes(archive, main, page))
            if self._comments:
                page.add_notes(_comments(archive, main, page))
        text = "\n".join(page.lines)
        headings = heading_locations(page.headings, min(within, len(text)))
        return LoadedFile(text, (*headings, *page.locations), metadata, tuple(page.tables))


_PROPERTY_NAMES = ("title", "author", "subject", "keywords", "created", "modified")


@dataclass(slots=True)
class _Page:
    """State of reading.

    Args:
        levels: Heading levels by style id.
        numbering: Numbers paragraphs.
    """

    levels: dict[str, int]
    numbering: Numbering
    lines: list[str] = field(default_factory=list)
    length: int = 0
    headings: list[Heading] = field(default_factory=list)
    locations: list[Location] = field(default_factory=list)
    captions: frozenset[str] = frozenset()
    """Ids of the styles of captions."""
    tables: list[Location] = field(default_factory=list)
    noted: list[tuple[str, str]] = field(default_factory=list)
    """References to footnotes and endnotes, in order: the kind of part, and the id there."""

    def add(self, line: str, level: int | list[FoundTable] = 0) -> None:
        if isinstance(level, list):
            self.tables += (one.location(self.length, self.length + len(line)) for one in level)
        elif level and line.strip():
            self.headings.append(Heading(self.length, level, " ".join(line.split())))
        self.lines.append(line)
        self.length += len(line) + 1

    def add_notes(self, notes: Iterable[tuple[str, str, str]]) -> None:
        """Add notes: kind of place, label, line."""
        for kind, label, line in notes:
            self.locations.append(Location(self.length, self.length + len(line), kind, label))
            self.add(line)

    def words(self, parent: Any) -> str:
        """The text of an element, on one line."""
        return " ".join(word for block, _ in _blocks(parent, self) for word in block.split())


def _notes(archive: Archive, main: str, page: _Page) -> Iterator[tuple[str, str, str]]:
    parts: dict[str, dict[str, Any]] = {}
    words_of: dict[tuple[str, str], str] = {}
    for number, (kind, key) in enumerate(
        tuple(page.noted), start=1
    ):  # none within notes, which might refer to themselves
        if kind not in parts:
            part = archive.optional(related(archive, kind, main))
            parts[kind] = {_own(one, "id"): one for one in part}
        if (kind, key) not in words_of:
            words_of[kind, key] = page.words(parts[kind][key]) if key in parts[kind] else ""
        words = words_of[kind, key]
        reading().spend_text(words)
        if words:
            yield "footnote", str(number), f"[{number}] {words}"


def _comments(archive: Archive, main: str, page: _Page) -> Iterator[tuple[str, str, str]]:
    part = archive.optional(related(archive, "comments", main))
    for number, comment in enumerate(part, start=1):
        words = page.words(comment)
        if words:
            yield (
                "comment",
                str(number),
                f"Comment by {_own(comment, 'author') or 'somebody'}: {words}",
            )


def _headers_and_footers(
    archive: Archive, main: str, page: _Page
) -> dict[str, dict[tuple[str, int], None]]:
    """The distinct lines of all headers, and of all footers, in order."""
    found: dict[str, dict[tuple[str, int], None]] = {"header": {}, "footer": {}}
    for relation in relations(archive, main).values():
        if relation.kind in found and relation.target in archive:
            part = archive.optional(relation.target)
            lines = (block for block, _ in _blocks(part, page) if block.strip())
            found[relation.kind].update(dict.fromkeys((line, 0) for line in lines))
    return found


def _style_name(style: Element) -> str:
    return _value(style, "name")


def _heading_levels(styles: Iterable[Element]) -> dict[str, int]:
    """Heading levels by style id: of the styles Heading 1 to 9, and 1 for Title."""
    levels = {}
    for style in styles:
        name = _style_name(style)
        match = _HEADING_STYLE.match(name)
        if match or name == "Title":
            levels[_own(style, "styleId")] = int(match[1]) if match else 1
    return levels


def _caption_styles(styles: Iterable[Element]) -> frozenset[str]:
    return frozenset(
        _own(one, "styleId") for one in styles if _style_name(one).lower() == "caption"
    )


def _blocks(parent: Any, page: _Page) -> Iterator[tuple[str, int | list[FoundTable]]]:
    """Paragraphs with their heading level (0: none), and tables with their data, through all
    wrapping elements.
    """
    for child in parent:
        if child.tag == f"{_W}p":
            style = child.find(f"{_W}pPr/{_W}pStyle")
            text = "".join(_run_text(child, page))
            mark = page.numbering.mark(child) if text.strip() else ""
            yield mark + text, page.levels.get(style.get(f"{_W}val"), 0) if style is not None else 0
            # Text boxes are inside a paragraph and have paragraphs of their own.
            for box in child.iter(f"{_W}txbxContent"):
                # not a box inside one of its boxes
                own = next(box.iterancestors(f"{_W}p")) is child
                if own and not any(above.tag == f"{_MC}Fallback" for above in box.iterancestors()):
                    yield from _blocks(box, page)
        elif child.tag == f"{_W}tbl":
            text, tables = _table(child, page)
            if text:
                yield text, tables
        elif child.tag not in _UNSEEN and isinstance(child.tag, str):
            yield from _blocks(child, page)


def _table(table: Any, page: _Page) -> tuple[str, list[FoundTable]]:
    """The lines of a table; it and the tables inside it as data."""
    nested: list[FoundTable] = []
    rows: list[list[GridCell]] = []
    header = 0
    for row in table.iter(f"{_W}tr"):
        if next(row.iterancestors(f"{_W}tbl")) is not table:
            continue  # of a nested table, whose text the outer cell holds
        skipped = _number(_value(row.find(f"{_W}trPr"), "gridBefore"), 0) or 0
        cells = [GridCell("", skipped)] if skipped else []
        own = (
            cell for cell in row.iter(f"{_W}tc") if next(cell.iterancestors(f"{_W}tbl")) is table
        )
        cells += (_cell(cell, page, nested) for cell in own)
        header += header == len(rows) and row.find(f"{_W}trPr/{_W}tblHeader") is not None
        rows.append(cells)
    caption = _value(table.find(f"{_W}tblPr"), "tblCaption")
    for near in (table.getprevious(), table.getnext()) if page.captions else ():
        if (
            not caption
            and near is not None
            and _value(near.find(f"{_W}pPr"), "pStyle") in page.captions
        ):
            caption = " ".join("".join(text.text or "" for text in near.iter(f"{_W}t")).split())
    lines, found = read_table(rows, header=header, caption=caption)
    return "\n".join(lines), [*([found] if found else []), *nested]


def _cell(cell: Any, page: _Page, nested: list[FoundTable]) -> GridCell:
    properties = cell.find(f"{_W}tcPr")
    columns = _number(_value(properties, "gridSpan"), 1) or 1
    merged = None if properties is None else properties.find(f"{_W}vMerge")
    if merged is not None and _own(merged, "val") != "restart":
        return GridCell("", columns, rows=0)
    words = []
    for block, level in _blocks(cell, page):
        if isinstance(level, list):  # of a table inside the cell
            nested += level
        words.append(" ".join((one_line(block) if isinstance(level, list) else block).split()))
    return GridCell(" ".join(words).strip(), columns)


def _run_text(paragraph: Any, page: _Page) -> Iterator[str]:
    for child in paragraph:
        if child.tag in _TEXT:
            yield child.text or ""
        elif child.tag in _CHARACTERS:
            yield _CHARACTERS[child.tag]
        elif child.tag in _FORMULAS:
            yield formula_text(child)
        elif child.tag in _PICTURES:
            yield picture_text(child.get("descr") or child.get("alt"))
            yield from _run_text(child, page)
        elif child.tag in _NOTES:
            page.noted.append((_NOTES[child.tag], _own(child, "id")))
            yield f"[{len(page.noted)}]"
        elif (
            child.tag not in _UNSEEN
            and child.tag != f"{_W}txbxContent"
            and isinstance(child.tag, str)
        ):
            yield from _run_text(child, page)


MAX_RTF_DEPTH = 10_000
"""Nesting of groups that is read."""

_TOKEN = re.compile(
    rb"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,10})?[ ]?"
    rb"|\\'(?P<byte>[0-9a-fA-F]{2})"
    rb"|\\(?P<symbol>[^a-zA-Z])"
    rb"|(?P<brace>[{}])"
    rb"|(?P<text>[^\\{}\r\n]+)"
)
_RTF_CHARACTERS = {
    "tab": "\t", "line": "\n", "page": "\n", "column": "\n", "nestcell": " | ", "nestrow": " ", "zwj": "\u200d",
    "emdash": "—", "endash": "–", "emspace": "\u2003", "enspace": "\u2002", "bullet": "•", "zwnj": "\u200c",
    "lquote": "‘", "rquote": "’", "ldblquote": "“", "rdblquote": "”",
}  # fmt: skip
_SYMBOLS = {"~": "\xa0", "_": "-", "\\": "\\", "{": "{", "}": "}"}
# Groups without text of the page, in addition to unknown groups that are marked as optional.
_RTF_UNSEEN = frozenset(
    "colortbl filetbl fldinst footer footerf footerl footerr header headerf headerl headerr"
    " nonesttables nonshppict objdata objclass objname pict private revtbl rsidtbl rxe shprslt sp"
    " tc template txe xe annotation atnauthor atnid comment company operator creatim revtim printim"
    " buptim bkmkstart bkmkend keywords category manager hlinkbase nesttableprops listtable"
    " listoverridetable generator themedata datastore latentstyles pgptbl xmlnstbl mmathPict".split()
)
_SEEN_IF_MARKED = frozenset(["shpinst", "shptxt", "shpgrp", "footnote", "moMath", "moMathPara"])
_PROPERTIES = {"title": "title", "author": "author", "subject": "subject"}
_CODE_PAGES = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850", "ansi": "cp1252"}
_CHARSETS = {
    0: "cp1252", 77: "mac_roman", 128: "cp932", 129: "cp949", 130: "johab", 134: "gbk", 136: "big5", 161: "cp1253",
    162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874",
    238: "cp1250", 255: "cp437",
}  # fmt: skip
"""Encodings by a font's character set."""


class RtfLoader:
    """Reads Rich Text: paragraphs as lines, tables row by row with ``|`` between the cells.

    Headings become locations; title, author and subject metadata. Footnotes are numbered in order
    and follow the text, as locations of kind ``footnote``. Headers, footers, comments, pictures,
    hidden and deleted text are skipped.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        data = path.read_bytes()
        if not data.lstrip().startswith(b"{\\rtf"):
            raise LoadError(
                r"The file is not Rich Text: it does not begin with {\rtf. Save it again as .rtf."
            )
        return read_rtf(data)


def read_rtf(data: bytes) -> LoadedFile:
    r"""Read Rich Text, with headings as places and properties as metadata.

    Raises:
        LoadError: If its groups are nested too deep.

    Example:
        >>> read_rtf(rb"{\rtf1\ansi Gr\'fcner {\b Tee}\par}").text
        'Grüner Tee'
    """
    reader = _Reader()
    reader.read(data)
    return reader.loaded()


@dataclass(slots=True)
class _State:
    """State of a group."""

    target: str = "body"  # "body", "note", "fonts", "styles", "info", "", or the name of a property
    encoding: str = ""
    skipped_after_unicode: int = 1
    hidden: bool = False
    deleted: bool = False
    in_table: bool = False
    level: int = 0
    style: int = 0


@dataclass(slots=True)
class _Reader:
    """Reads the tokens of a file."""

    state: _State = field(default_factory=_State)
    stack: list[_State] = field(default_factory=list)
    default: str = "cp1252"
    fonts: dict[int, str] = field(default_factory=dict)
    font: int = 0
    default_font: int = 0
    levels: dict[int, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    length: int = 0
    headings: list[Heading] = field(default_factory=list)
    paragraph: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)
    note: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    properties: dict[str, list[str]] = field(default_factory=dict)
    bytes_read: bytearray = field(default_factory=bytearray)
    to_skip: int = 0
    is_marked: bool = False

    def read(self, data: bytes) -> None:
        position = 0
        # only line ends, which mean nothing, are between tokens
        while match := _TOKEN.search(data, position):
            position = match.end()
            if match["byte"]:
                self._take_bytes(bytes.fromhex(match["byte"].decode()))
            elif match["text"]:
                self._take_bytes(match["text"])
            elif match["brace"]:
                self._brace(opens=match["brace"] == b"{")
            elif match["symbol"]:
                self._symbol(match["symbol"].decode("latin-1"))
            else:
                number = int(match["number"]) if match["number"] else None
                word = match["word"].decode()
                if word == "bin":  # followed by raw bytes
                    position += max(0, number or 0)
                else:
                    self._word(word, number)
        self._flush()
        self._end_paragraph()
        self._end_row()

    def loaded(self) -> LoadedFile:
        while self.lines and not self.lines[-1].strip():
            self.lines.pop()
        text = "\n".join(self.lines)
        locations = list(heading_locations(self.headings, len(text)))
        for number, note in enumerate(self.notes, start=1):
            if note:
                line = f"[{number}] {clean(_joined(note))}"
                locations.append(
                    Location(len(text) + 1, len(text) + 1 + len(line), "footnote", str(number))
                )
                text += f"\n{line}"
        found = {
            name: " ".join(clean(_joined("".join(pieces))).split())
            for name, pieces in self.properties.items()
        }
        return LoadedFile(
            text, tuple(locations), {name: value for name, value in found.items() if value}
        )

    def _brace(self, *, opens: bool) -> None:
        self._flush()
        self.is_marked = False
        self.to_skip = 0
        if opens:
            if len(self.stack) >= MAX_RTF_DEPTH:
                msg = (
                    f"Its groups are nested deeper than {MAX_RTF_DEPTH:,} levels, which no program"
                    " writes."
                )
                raise LoadError(f"{msg} Save it again.")
            self.stack.append(replace(self.state))
        elif self.stack:
            left = self.state.target
            self.state = self.stack.pop()
            if left == "note" and self.state.target != "note":
                self.notes.append(" ".join("".join(self.note).split()))
                self.note.clear()

    def _symbol(self, symbol: str) -> None:
        if symbol == "*":
            self.is_marked = True
        elif symbol in "\r\n":
            self._flush()
            self._end_paragraph_mark()
        elif symbol in _SYMBOLS:
            self._take(_SYMBOLS[symbol])

    def _word(self, word: str, number: int | None) -> None:
        # a control word counts as one character after \u
        if self.to_skip and word not in {"u", "uc"}:
            self.to_skip -= 1
            return
        self._flush()
        marked = self.is_marked
        self.is_marked = False
        if self._sets_target(word, marked=marked):
            return
        if word == "u" and number is not None:
            self._take(chr(number & 0xFFFF), is_unicode=True)
            self.to_skip = self.state.skipped_after_unicode
        elif word == "uc":
            self.state.skipped_after_unicode = max(0, number or 0)
        elif word in _RTF_CHARACTERS:
            self._take(_RTF_CHARACTERS[word])
        elif word in _MARKS:
            _MARKS[word](self)
        elif word in _SWITCHES:
            setattr(self.state, _SWITCHES[word], number != 0)
        elif word in {"f", "deff", "fcharset", "cpg", "ansicpg", *_CODE_PAGES}:
            self._encode(word, number)
        elif word in {"s", "outlinelevel"}:
            self._level(word, number or 0)

    def _sets_target(self, word: str, *, marked: bool) -> bool:
        """Whether a word sets the target of its group."""
        state = self.state
        if word in _RTF_UNSEEN or (marked and word not in _SEEN_IF_MARKED):
            state.target = ""
        elif not state.target:
            return False
        elif word == "footnote":
            if state.target == "body":
                self.paragraph.append(f"[{len(self.notes) + 1}]")
            state.target = "note"
        elif word in {"fonttbl", "stylesheet"}:
            state.target = "fonts" if word == "fonttbl" else "styles"
        elif word == "info":
            state.target = "info"
        elif state.target == "info" and word in _PROPERTIES:
            state.target = _PROPERTIES[word]
        else:
            return False
        return True

    def _encode(self, word: str, number: int | None) -> None:
        state = self.state
        if word == "fcharset":
            if number is not None and number in _CHARSETS:
                self.fonts[self.font] = _CHARSETS[number]
        elif word in {"cpg", "ansicpg"}:
            name = _known(f"cp{number}")
            if word == "cpg" and name:
                self.fonts[self.font] = name
            elif name:
                self.default = name
        elif word == "deff":
            self.default_font = number or 0
        elif word == "f":
            self.font = number or 0
            if state.target != "fonts":
                state.encoding = self.fonts.get(self.font, "")
        else:
            self.default = _CODE_PAGES[word]

    def _level(self, word: str, number: int) -> None:
        state = self.state
        if word == "s":
            state.style = number
            state.level = self.levels.get(number, 0)
        elif state.target == "styles" and 0 <= number <= 8:
            self.levels[state.style] = number + 1
        elif 0 <= number <= 8:
            state.level = number + 1

    def _take_bytes(self, data: bytes) -> None:
        skipped = min(self.to_skip, len(data))
        self.to_skip -= skipped
        self.bytes_read += data[skipped:]

    def _flush(self) -> None:
        """Decode the bytes read so far: a character may consist of several."""
        if self.bytes_read:
            state = self.state
            name = state.encoding or self.fonts.get(self.default_font, "") or self.default
            # The file's own code page takes precedence over the default of an ANSI font.
            text = self.bytes_read.decode(self.default if name == "cp1252" else name, "replace")
            self.bytes_read.clear()
            self._put(text)

    def _take(self, text: str, *, is_unicode: bool = False) -> None:
        self._flush()
        if self.to_skip and not is_unicode:
            self.to_skip -= 1
        else:
            self._put(text)

    def _put(self, text: str) -> None:
        state = self.state
        if state.hidden or state.deleted or not state.target or state.target == "info":
            return
        if state.target == "body":
            self.paragraph.append(text)
        elif state.target == "note":
            self.note.append(text)
        elif state.target == "styles":
            self._name_style(text)
        elif state.target != "fonts":
            self.properties.setdefault(state.target, []).append(text)

    def _name_style(self, text: str) -> None:
        for piece in text.split(";"):
            heading = _HEADING_STYLE.match(piece.strip())
            if heading:
                self.levels[self.state.style] = int(heading[1])

    def _end_paragraph_mark(self) -> None:
        state = self.state
        if state.target == "note":
            self.note.append(" ")
        elif state.target == "body":
            if state.in_table:
                self.paragraph.append(" ")
            else:
                self._end_row()
                self._end_paragraph()

    def _end_paragraph(self) -> None:
        line = clean(_joined("".join(self.paragraph)))
        if line.strip() or (self.lines and self.lines[-1]):  # keep one of several empty lines
            title = " ".join(line.split())
            if self.state.level and title:
                self.headings.append(Heading(self.length, self.state.level, title))
            self._line(line)
        self.paragraph.clear()

    def _end_cell(self) -> None:
        if self.state.target == "body":
            self.cells.append(
                " ".join(clean(_joined("".join(self.paragraph))).split()).removesuffix(" |")
            )
            self.paragraph.clear()

    def _end_row(self) -> None:
        if any(self.cells):
            self._line(" | ".join(self.cells))
        self.cells.clear()

    def _reset_paragraph(self) -> None:
        self.state.in_table = False
        self.state.level = 0

    def _plain(self) -> None:
        self.state.hidden = self.state.deleted = False

    def _line(self, line: str) -> None:
        self.lines.append(line)
        self.length += len(line) + 1


_SWITCHES = {"v": "hidden", "deleted": "deleted", "intbl": "in_table"}
_MARKS: dict[str, Callable[[_Reader], None]] = {
    "par": _Reader._end_paragraph_mark,
    "sect": _Reader._end_paragraph_mark,
    "cell": _Reader._end_cell,
    "row": _Reader._end_row,
    "pard": _Reader._reset_paragraph,
    "plain": _Reader._plain,
}


def _known(encoding: str) -> str:
    """Python's name of an encoding; "" for an unknown one."""
    encoding = {"cp65001": "utf-8", "cp936": "gbk", "cp10000": "mac_roman"}.get(encoding, encoding)
    try:
        return codecs.lookup(encoding).name
    except LookupError:
        return ""


def _joined(text: str) -> str:
    r"""Join surrogate pairs, which the format writes as two ``\u``."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
