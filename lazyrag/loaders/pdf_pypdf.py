"""PDF through pypdf: in Python alone, and always there."""

from __future__ import annotations

import functools
import importlib
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pypdf
from pypdf.generic import ContentStream, DictionaryObject

from lazyrag.loaders.pdf_layout import (
    Glyph,
    NeedsPasswordError,
    PageContent,
    has_right_to_left,
    letters,
    quarter_turns,
    turned,
)

Matrix: TypeAlias = "tuple[float, float, float, float, float, float]"

_UNIT: Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)
_FIELDS = ("Title", "Author", "Subject", "Keywords", "Creator", "Producer", "CreationDate", "ModDate")
_PAINTING = frozenset([b"f", b"F", b"f*", b"B", b"B*", b"b", b"b*", b"S", b"s", b"sh", b"INLINE IMAGE", b"EI"])
_MOST_GLYPHS = 1_000_000
_MOST_FORMS = 5_000
_DEEPEST = 12
_APART = 0.05  # letters with more between them, in sizes of their font, are looked at one by one
_BLANK = Glyph(" ", 0.0, 0.0, 0.0, 0.0)
# Where pypdf keeps what decodes a font's codes; it is not among the names that it promises to keep.
_HOMES_OF_FONTS = ("pypdf.generic._font", "pypdf._font")


class PypdfFile:
    """A PDF that is open in pypdf.

    Args:
        path: An existing file.
        passwords: Tried one after the other, the empty one first.

    Raises:
        NeedsPasswordError: If none of them opens it.
    """

    name = "pypdf"

    def __init__(self, path: Path, passwords: tuple[str, ...] = ()) -> None:
        with unheard():
            self._reader = pypdf.PdfReader(path)
            try:
                _decrypt(self._reader, ("", *passwords))
                self.count = len(self._reader.pages)
            except BaseException:
                self._reader.close()
                raise
        self._fonts: dict[int, Any] = {}

    def page(self, index: int) -> PageContent:
        """The characters of a page."""
        with unheard():
            page = self._reader.pages[index]
            kind = font_class()
            if kind is None:
                return PageContent([], drawn="/XObject" in page.get("/Resources", {}), plain=page.extract_text() or "")
            return _Drawing(self._reader, self._font, kind).of(page)

    def information(self) -> Mapping[str, str]:
        """What the file says of itself."""
        with unheard():
            found: Mapping[str, Any] = self._reader.metadata or {}
            return {name: str(found[f"/{name}"]) for name in _FIELDS if isinstance(found.get(f"/{name}"), str)}

    def close(self) -> None:
        """Let go of the file."""
        self._reader.close()

    def _font(self, resource: Any, kind: Any) -> Any:
        """A font, made once for all pages."""
        found = resource.get_object()
        if id(found) not in self._fonts:
            made = _Letters(kind.from_font_resource(found)) if isinstance(found, DictionaryObject) else None
            self._fonts[id(found)] = (made, found)  # the latter is kept, so that no other gets its id
        return self._fonts[id(found)][0]


def _decrypt(reader: pypdf.PdfReader, passwords: tuple[str, ...]) -> None:
    if reader.is_encrypted and not any(reader.decrypt(one) for one in passwords):
        raise NeedsPasswordError


class _State:
    """What the operators of a content stream set."""

    __slots__ = ("font", "leading", "matrix", "rise", "scale", "size", "spacing", "word_spacing")

    def __init__(self) -> None:
        self.matrix: Matrix = _UNIT
        self.font: Any = None
        self.size = self.spacing = self.word_spacing = self.leading = self.rise = 0.0
        self.scale = 1.0

    def copy(self) -> _State:
        other = _State()
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other


class _Drawing:
    """Runs a page's operators and notes what they write."""

    def __init__(self, reader: pypdf.PdfReader, font_of: Any, kind: Any) -> None:
        self._reader = reader
        self._font_of = font_of
        self._kind = kind
        self._glyphs: list[Glyph] = []
        self._drawn = False
        self._forms = 0
        self._state = _State()
        self._text: Matrix = _UNIT
        self._line: Matrix = _UNIT

    def of(self, page: Any) -> PageContent:
        contents = page.get_contents()
        if contents is not None:
            self._run(contents, _dictionary(_inherited(page, "/Resources")), 0)
        return PageContent(self._glyphs, self._drawn)

    def _run(self, contents: Any, resources: Any, depth: int) -> None:
        kept: list[_State] = []
        for operands, operator in contents.operations:
            if operator == b"q":
                kept.append(self._state.copy())
            elif operator == b"Q":
                self._state = kept.pop() if kept else self._state
            elif operator == b"Do":
                self._draw(operands, resources, depth)
            elif operator == b"Tf":
                self._set_font(operands, resources)
            elif operator in _PAINTING:
                self._drawn = True
            else:
                self._operate(operator, operands)

    def _operate(self, operator: bytes, operands: Any) -> None:
        """What moves, sets or shows text."""
        state = self._state
        if operator in (b"Tj", b"TJ"):
            self._show(operands[0] if operands else [])
        elif operator == b"BT":
            self._text = self._line = _UNIT
        elif operator in (b"cm", b"Tm"):
            self._set_matrix(operator, _matrix(operands))
        elif operator in (b"Td", b"TD"):
            across, up = _number(operands, 0), _number(operands, 1)
            state.leading = -up if operator == b"TD" else state.leading
            self._next_line(across, up)
        elif operator == b"T*":
            self._next_line(0.0, -state.leading)
        elif operator in (b"'", b'"'):
            if operator == b'"':
                state.word_spacing, state.spacing = _number(operands, 0), _number(operands, 1)
            self._next_line(0.0, -state.leading)
            self._show(operands[-1] if operands else [])
        elif operator == b"Tz":
            state.scale = _number(operands, 0, 100.0) / 100
        elif operator in _SETS:
            setattr(state, _SETS[operator], _number(operands, 0))

    def _set_matrix(self, operator: bytes, matrix: Matrix | None) -> None:
        if matrix is None:
            return
        if operator == b"Tm":
            self._text = self._line = matrix
        else:
            self._state.matrix = _product(matrix, self._state.matrix)

    def _next_line(self, across: float, up: float) -> None:
        self._text = self._line = _product((1.0, 0.0, 0.0, 1.0, across, up), self._line)

    def _set_font(self, operands: Any, resources: Any) -> None:
        fonts = _dictionary(resources.get("/Font"))
        self._state.font = None
        if operands and operands[0] in fonts:
            self._state.font = self._font_of(fonts.raw_get(operands[0]), self._kind)
        self._state.size = _number(operands, 1, self._state.size)

    def _draw(self, operands: Any, resources: Any, depth: int) -> None:
        """A picture, or a form with content of its own."""
        form = _dictionary(resources.get("/XObject")).get(operands[0]) if operands else None
        form = form.get_object() if form is not None else None
        if not isinstance(form, DictionaryObject):
            return
        if form.get("/Subtype") != "/Form":
            self._drawn = True
            return
        self._forms += 1
        if depth >= _DEEPEST or self._forms > _MOST_FORMS:
            return
        before, text, line = self._state.copy(), self._text, self._line
        matrix = _matrix(form.get("/Matrix") or [])
        self._state.matrix = _product(matrix, self._state.matrix) if matrix else self._state.matrix
        own = _dictionary(form.get("/Resources")) or resources
        self._run(ContentStream(form, self._reader), own, depth + 1)
        self._state, self._text, self._line = before, text, line

    def _show(self, shown: Any) -> None:
        state = self._state
        for piece in shown if isinstance(shown, list) else [shown]:
            if isinstance(piece, (int, float)):
                self._advance(-float(piece) / 1000 * state.size * state.scale)
            elif isinstance(piece, (str, bytes)) and state.font is not None:
                self._write(piece)

    def _advance(self, across: float) -> None:
        a, b, c, d, e, f = self._text
        self._text = (a, b, c, d, e + across * a, f + across * b)

    def _write(self, piece: str | bytes) -> None:
        """Note the characters of a string, each where it stands."""
        state = self._state
        a, b, c, d, e, f = _product(self._text, state.matrix)
        e, f = e + state.rise * c, f + state.rise * d
        turn = quarter_turns(a * state.scale, b * state.scale)
        size = abs(state.size) * (c * c + d * d) ** 0.5
        if len(self._glyphs) > _MOST_GLYPHS:
            msg = f"a page of more than {_MOST_GLYPHS:,} characters"
            raise ValueError(msg)
        apart = abs(state.spacing) > _APART * abs(state.size)
        offset = start = 0.0
        word = ""
        for read, width, blank in state.font.of(piece):
            wide = width / 1000 * state.size * state.scale
            if word and (apart or not read.strip() or has_right_to_left(word + read)):
                self._add(
                    word, (e + start * a, f + start * b), ((offset - start) * a, (offset - start) * b), size, turn
                )
                word = ""
            if not read.strip():
                self._glyphs += [_BLANK] * bool(read)
            else:
                start = start if word else offset
                word += read
            if word and apart:
                self._add(word, (e + start * a, f + start * b), (wide * a, wide * b), size, turn)
                word = ""
            offset += wide + (state.spacing + (state.word_spacing if blank else 0.0)) * state.scale
        if word:
            end = offset - start - state.spacing * state.scale
            self._add(word, (e + start * a, f + start * b), (end * a, end * b), size, turn)
        self._advance(offset)

    def _add(self, text: str, at: tuple[float, float], wide: tuple[float, float], size: float, turn: int) -> None:
        x, y = at
        far_x, far_y = x + wide[0], y + wide[1]
        box = (min(x, far_x), min(y, far_y), max(x, far_x), max(y, far_y))
        left, right, base = turned(turn, box, at)
        self._glyphs.append(Glyph(text, left, right, base, size, turn))


_SETS = {b"Tc": "spacing", b"Tw": "word_spacing", b"TL": "leading", b"Ts": "rise"}


class _Letters:
    """What a font's codes read as, and how wide they are; each is found out once."""

    def __init__(self, font: Any) -> None:
        self._font = font
        self._known: dict[str, tuple[str, float, bool]] = {}

    def of(self, piece: str | bytes) -> Iterator[tuple[str, float, bool]]:
        """For each code of a string its text, its width in thousandths, and whether it is a blank."""
        if isinstance(piece, str):
            piece = getattr(piece, "original_bytes", None) or piece.encode("latin-1", "replace")
        named = self._font.encoding
        if isinstance(named, str):
            codes: Iterable[str] = piece.decode(named, "surrogatepass" if "16" in named else "replace")
        else:
            codes = map(chr, piece)
        for code in codes:
            if code not in self._known:
                self._known[code] = self._found_out(
                    code, code if isinstance(named, str) else named.get(ord(code), code)
                )
            yield self._known[code]

    def _found_out(self, code: str, name: str) -> tuple[str, float, bool]:
        font, widths = self._font, self._font.character_widths
        width = font.space_width if code == font.space_char else widths.get(code, widths.get("default", 500))
        return letters("".join(font.character_map.get(one, one) for one in name)), float(width), code == " "


def _matrix(operands: Any) -> Matrix | None:
    """Six numbers, or None."""
    if not isinstance(operands, list) or len(operands) < 6:
        return None
    if not all(isinstance(one, (int, float)) for one in operands[-6:]):
        return None
    a, b, c, d, e, f = (float(one) for one in operands[-6:])
    return a, b, c, d, e, f


def _product(first: Matrix, second: Matrix) -> Matrix:
    a, b, c, d, e, f = first
    g, h, i, j, k, m = second
    return a * g + b * i, a * h + b * j, c * g + d * i, c * h + d * j, e * g + f * i + k, e * h + f * j + m


def _number(operands: Any, at: int, otherwise: float = 0.0) -> float:
    found = operands[at] if at < len(operands) else None
    return float(found) if isinstance(found, (int, float)) else otherwise


def _dictionary(found: Any) -> DictionaryObject:
    found = found.get_object() if found is not None else None
    return found if isinstance(found, DictionaryObject) else DictionaryObject()


def _inherited(page: Any, name: str) -> Any:
    """What a page says, or the nodes above it in the tree of pages."""
    for _ in range(_DEEPEST):
        if name in page:
            return page[name]
        page = _dictionary(page.get("/Parent"))
    return None


@functools.cache
def font_class() -> Any:
    """What decodes the codes of fonts; None where pypdf has moved it."""
    for home in _HOMES_OF_FONTS:
        try:
            found = getattr(importlib.import_module(home), "Font", None)
        except ModuleNotFoundError:
            continue
        if hasattr(found, "from_font_resource"):
            return found
    return None


class _OfOtherThreads(logging.Filter):
    """Lets through what other threads log than those that are inside of `unheard`."""

    def __init__(self) -> None:
        super().__init__()
        self.inside: list[int] = []

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002
        return threading.get_ident() not in self.inside


_others = _OfOtherThreads()
_changing_filters = threading.Lock()


@contextmanager
def unheard() -> Iterator[None]:
    """Keep from the log what pypdf says of a file's flaws in this thread: what matters of them is reported by us.

    A logger does not pass its filters on to those beneath it, so each of them gets ours, until the last thread is done.
    """
    with _changing_filters:
        _others.inside.append(threading.get_ident())
        for logger in _loggers():
            logger.addFilter(_others)
    try:
        yield
    finally:
        with _changing_filters:
            _others.inside.remove(threading.get_ident())
            for logger in () if _others.inside else _loggers():
                logger.removeFilter(_others)


@functools.cache
def _loggers() -> tuple[logging.Logger, ...]:
    """The loggers of pypdf's modules, which bear their names; some are imported in the midst of reading."""
    root = Path(pypdf.__file__).parent
    names = (".".join(file.relative_to(root.parent).with_suffix("").parts) for file in root.rglob("*.py"))
    return tuple(logging.getLogger(name.removesuffix(".__init__")) for name in names)
