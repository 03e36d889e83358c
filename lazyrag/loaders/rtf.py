"""Rich Text: `RtfLoader`."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from lazyrag.errors import LoadError
from lazyrag.loaders.base import LoadedFile, reading
from lazyrag.loaders.detect import clean
from lazyrag.loaders.symbols import is_symbol_font, symbol_text
from lazyrag.loaders.tables import TextLines, numbered_notes

HEADING_STYLE = re.compile(r"(?:heading|标题)\s*([1-9])$", re.IGNORECASE)
"""Names of the styles of headings, and their levels."""

MAX_DEPTH = 10_000
"""Nesting of groups that is read."""

_TOKEN = re.compile(
    rb"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,10})?[ ]?"
    rb"|\\'(?P<byte>[0-9a-fA-F]{2})"
    rb"|\\(?P<symbol>[^a-zA-Z])"
    rb"|(?P<brace>[{}])"
    rb"|(?P<text>[^\\{}\r\n]+)"
)
_CHARACTERS = {
    "tab": "\t", "line": "\n", "page": "\n", "column": "\n", "nestcell": " | ", "nestrow": " ",
    "zwj": "\u200d", "emdash": "—", "endash": "–", "emspace": "\u2003", "enspace": "\u2002",
    "bullet": "•", "zwnj": "\u200c", "lquote": "‘", "rquote": "’", "ldblquote": "“",
    "rdblquote": "”",
}  # fmt: skip
_SYMBOLS = {"~": "\xa0", "_": "-", "\\": "\\", "{": "{", "}": "}"}
# Groups without text of the page, in addition to unknown groups that are marked as optional.
_UNSEEN = frozenset(
    "colortbl filetbl fldinst footer footerf footerl footerr header headerf headerl headerr"
    " nonesttables nonshppict objdata objclass objname pict private revtbl rsidtbl rxe shprslt sp"
    " tc template txe xe annotation atnauthor atnid comment company operator creatim revtim printim"
    " buptim bkmkstart bkmkend keywords category manager hlinkbase nesttableprops listtable"
    " listoverridetable generator themedata datastore latentstyles pgptbl xmlnstbl"
    " mmathPict".split()
)
_LEFT_OUT = {
    "annotation": "comments",
    **dict.fromkeys("footer footerf footerl footerr".split(), "footers"),
    **dict.fromkeys("header headerf headerl headerr".split(), "headers"),
}
"""What readers see of groups that are not read."""
_SEEN_IF_MARKED = frozenset(["shpinst", "shptxt", "shpgrp", "footnote", "moMath", "moMathPara"])
_PROPERTIES = {"title": "title", "author": "author", "subject": "subject"}
_CODE_PAGES = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850", "ansi": "cp1252"}
_CHARSETS = {
    0: "cp1252", 77: "mac_roman", 128: "cp932", 129: "cp949", 130: "johab", 134: "gbk", 136: "big5",
    161: "cp1253", 162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257",
    204: "cp1251", 222: "cp874", 238: "cp1250", 255: "cp437",
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
    reader = _RtfReader()
    reader.read(data)
    for parts in sorted(set(_LEFT_OUT.values())):
        reading().leave_out(parts, reader.left_out[parts])
    return reader.finished()


@dataclass(slots=True)
class _GroupState:
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
class _RtfReader(TextLines):
    """Reads the tokens of a file."""

    state: _GroupState = field(default_factory=_GroupState)
    stack: list[_GroupState] = field(default_factory=list)
    default: str = "cp1252"
    fonts: dict[int, str] = field(default_factory=dict)
    font: int = 0
    default_font: int = 0
    levels: dict[int, int] = field(default_factory=dict)
    paragraph: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)
    note: list[str] = field(default_factory=list)
    properties: dict[str, list[str]] = field(default_factory=dict)
    bytes_read: bytearray = field(default_factory=bytearray)
    to_skip: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
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

    def finished(self) -> LoadedFile:
        while self.lines and not self.lines[-1].strip():
            self.length -= len(self.lines.pop()) + 1
        self.add_all(numbered_notes(map(_joined, self.notes)))
        metadata = {}
        for name, pieces in self.properties.items():
            value = " ".join(_joined(pieces).split())
            if value:
                metadata[name] = value
        return self.loaded(metadata)

    def _brace(self, *, opens: bool) -> None:
        self._flush()
        self.is_marked = False
        self.to_skip = 0
        if opens:
            if len(self.stack) >= MAX_DEPTH:
                msg = (
                    f"Its groups are nested deeper than {MAX_DEPTH:,} levels, which no program"
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
        elif word in _CHARACTERS:
            self._take(_CHARACTERS[word])
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
        if word in _UNSEEN or (marked and word not in _SEEN_IF_MARKED):
            state.target = ""
            self.left_out[_LEFT_OUT.get(word, "")] += 1
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
            name = _codec_name(f"cp{number}")
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
            name = self._font_encoding() or self.default
            if is_symbol_font(name):
                name = "latin-1"  # its codes are replaced later
            # The file's own code page takes precedence over the default of an ANSI font.
            text = self.bytes_read.decode(self.default if name == "cp1252" else name, "replace")
            self.bytes_read.clear()
            self._put(text)

    def _font_encoding(self) -> str:
        """The codec of the present font, or the name of a symbol font; "" for the file's own."""
        return self.state.encoding or self.fonts.get(self.default_font, "")

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
            self.paragraph.append(symbol_text(text, self._font_encoding()))
        elif state.target == "note":
            self.note.append(symbol_text(text, self._font_encoding()))
        elif state.target == "styles":
            self._name_style(text)
        elif state.target == "fonts":
            name = text.strip(" ;")
            if is_symbol_font(name):
                self.fonts[self.font] = name
        else:
            self.properties.setdefault(state.target, []).append(text)

    def _name_style(self, text: str) -> None:
        for piece in text.split(";"):
            heading = HEADING_STYLE.match(piece.strip())
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
        line = _joined(self.paragraph)
        if line.strip() or (self.lines and self.lines[-1]):  # keep one of several empty lines
            self.add(line, self.state.level)
        self.paragraph.clear()

    def _end_cell(self) -> None:
        if self.state.target == "body":
            self.cells.append(" ".join(_joined(self.paragraph).split()).removesuffix(" |"))
            self.paragraph.clear()

    def _end_row(self) -> None:
        if any(self.cells):
            self.add(" | ".join(self.cells))
        self.cells.clear()

    def _reset_paragraph(self) -> None:
        self.state.in_table = False
        self.state.level = 0

    def _plain(self) -> None:
        self.state.hidden = False
        self.state.deleted = False


_SWITCHES = {"v": "hidden", "deleted": "deleted", "intbl": "in_table"}
_MARKS: dict[str, Callable[[_RtfReader], None]] = {
    "par": _RtfReader._end_paragraph_mark,
    "sect": _RtfReader._end_paragraph_mark,
    "cell": _RtfReader._end_cell,
    "row": _RtfReader._end_row,
    "pard": _RtfReader._reset_paragraph,
    "plain": _RtfReader._plain,
}


def _codec_name(encoding: str) -> str:
    """Python's name of an encoding; "" for an unknown one."""
    encoding = {"cp65001": "utf-8", "cp936": "gbk", "cp10000": "mac_roman"}.get(encoding, encoding)
    try:
        return codecs.lookup(encoding).name
    except LookupError:
        return ""


def _joined(pieces: Iterable[str]) -> str:
    r"""Join pieces of text, and surrogate pairs, which the format writes as two ``\u``."""
    data = "".join(pieces).encode("utf-16-le", "surrogatepass")
    return clean(data.decode("utf-16-le", "replace"))
