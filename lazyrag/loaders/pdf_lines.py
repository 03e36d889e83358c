"""Lines of a PDF page: letters of a glyph and of a line in reading order, and the blanks between
words.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self, SupportsIndex, TypeAlias

import numpy as np

from lazyrag.loaders.bidi import has_right_to_left, logical_order, mirrored, right_to_left_share

CELL_GAP = 1.0
"""Width from which a gap parts cells, in font sizes."""
_BESIDE_BLANKS = 1.4
Piece: TypeAlias = tuple[str, float, float]
"""A character, with its left and right edge."""
Word: TypeAlias = tuple[float, float, str]
"""Left and right edge in points, and text."""
Interval: TypeAlias = tuple[float, float]


class Glyph(NamedTuple):
    """One character, or several adjacent ones, in points, seen upright.

    Args:
        text: Its letters; the position of a space is undefined.
        left: Left edge along its line.
        right: Right edge.
        base: Height of the base line, upwards.
        size: Font size.
        turn: Quarter turns of its line to the left; the numbers above are those of the turned page.
    """

    text: str
    left: float
    right: float
    base: float
    size: float
    turn: int = 0


BLANK = Glyph(" ", 0.0, 0.0, 0.0, 0.0)
"""A drawn blank somewhere between two characters."""


class PlacedText(str):
    """A text each of whose letters knows its character on the page; -1 for letters that layout
    added.

    Layout makes the text of a page from such texts by the operations below, and so keeps the
    characters.
    """

    __slots__ = ("at",)
    at: tuple[int, ...]

    def __new__(cls, text: str, at: tuple[int, ...]) -> Self:
        """Make a text of as many letters as places."""
        placed = super().__new__(cls, text)
        placed.at = at
        return placed

    @classmethod
    def of(cls, text: str) -> PlacedText:
        """A text as a placed one."""
        return text if isinstance(text, PlacedText) else cls(text, (-1,) * len(text))

    def __add__(self, other: str) -> PlacedText:
        return PlacedText(str.__add__(self, other), self.at + PlacedText.of(other).at)

    def __radd__(self, other: str) -> PlacedText:
        return PlacedText(str.__add__(other, self), PlacedText.of(other).at + self.at)

    def __getitem__(self, key: SupportsIndex | slice) -> PlacedText:
        at = self.at[key]
        return PlacedText(str.__getitem__(self, key), at if isinstance(at, tuple) else (at,))

    def join(self, texts: Iterable[str], /) -> PlacedText:
        """Called through the class, with a separator of either type."""
        separator = PlacedText.of(self).at
        parts = list(texts)
        at: list[int] = []
        for text in parts:
            at += separator
            at += PlacedText.of(text).at
        return PlacedText(str.join(self, parts), tuple(at[len(separator) :]))

    def rstrip(self, chars: str | None = None, /) -> PlacedText:
        """See `str.rstrip`."""
        return self[: len(str.rstrip(self, chars))]

    def strip(self, chars: str | None = None, /) -> PlacedText:
        """See `str.strip`."""
        return self[len(self) - len(str.lstrip(self, chars)) :].rstrip(chars)

    def splitlines(self, keepends: bool = False) -> list[str]:
        """See `str.splitlines`."""
        ends = [0]
        for line in str.splitlines(self, keepends=True):
            ends.append(ends[-1] + len(line))
        lines = zip(ends, str.splitlines(self, keepends), strict=False)
        return [self[start : start + len(line)] for start, line in lines]


def join(between: str, texts: Iterable[str]) -> str:
    """`str.join` that keeps the type of texts of a subclass, such as one that knows its places on
    the page.

    Example:
        >>> join(", ", ["tea", "water"])
        'tea, water'
    """
    listed = list(texts)
    kind = next((type(text) for text in listed if type(text) is not str), str)
    return kind.join(between, listed)


def replaced(text: str, by: str) -> str:
    """Another text of as many letters, at the places of the first, if it knows them; see `join`."""
    return PlacedText(by, text.at) if isinstance(text, PlacedText) else by


def logical_text(pieces: Sequence[Piece], word_gap: float, *, right_to_left: bool = True) -> str:
    """The characters of a line in reading order; see `lazyrag.loaders.bidi`.

    Args:
        pieces: In any order; letters of one glyph are one piece, and drawn blanks are pieces.
        word_gap: Width from which a gap is a space.
        right_to_left: The direction of the paragraph.

    Example:
        >>> drawn = [("ي", 0, 3), ("ا", 3, 6), ("ش", 6, 9), ("1", 14, 16), ("2", 16, 18)]
        >>> logical_text(drawn, 2) == "12 شاي"
        True
    """
    if any(text == " " for text, _, _ in pieces):
        word_gap *= _BESIDE_BLANKS  # smaller gaps are those of ligatures and marks
    units: list[str] = []
    end = float("inf")
    for text, left, right in _with_marks(pieces):
        if units and units[-1] != " " and (text == " " or left - end >= word_gap):
            units.append(" ")
        if text != " ":
            units.append(text)
        end = right if text == " " else max(end if end < float("inf") else right, right)
    ordered = [units[at] for at in logical_order(units, right_to_left=right_to_left)]
    return join("", map(replaced, ordered, mirrored(ordered))).strip()


def _with_marks(pieces: Sequence[Piece]) -> list[Piece]:
    """Letters from left to right, each with the combining marks over it."""
    # Letters of an alternative text have one position, after which its blank follows.
    letters = sorted(
        (piece for piece in pieces if not unicodedata.combining(piece[0][0])),
        key=lambda piece: (piece[1], not has_right_to_left(piece[0]), piece[0] != " "),
    )
    marks: dict[int, list[Piece]] = {}
    bases = [at for at, letter in enumerate(letters) if has_right_to_left(letter[0])]
    middles = sorted((letters[at][1] + letters[at][2], at) for at in bases or range(len(letters)))
    for mark in pieces:
        if unicodedata.combining(mark[0][0]):
            middle = mark[1] + mark[2]
            near = bisect.bisect(middles, (middle, 0))
            beside = middles[max(0, near - 1) : near + 1] or [(middle, -1)]
            _, at = min(beside, key=lambda pair: abs(pair[0] - middle))
            marks.setdefault(at, []).append(mark)
    for at, over in marks.items():
        over.sort(key=lambda mark: unicodedata.combining(mark[0][0]))
        if at < 0:
            return over
        letter, left, right = letters[at]
        letters[at] = (join("", [letter, *(text for text, _, _ in over)]), left, right)
    return letters


_PRESENTATION_FORMS = frozenset(
    normal
    for code in range(0xFB1D, 0xFEFD)
    if len(normal := unicodedata.normalize("NFKC", chr(code))) > 1
)


def letters_in_order(parts: list[tuple[float, str]]) -> str:
    """Letters of one glyph, with their left edges; pdfium reverses Arabic ones, except those of
    presentation forms.

    Where it gives each letter a place of its own, that decides, and marks follow the letters.

    Example:
        >>> letters_in_order([(5, "ا"), (5, "ل")]) == letters_in_order([(5, "ا"), (8, "ل")]) == "لا"
        True
    """
    text = join("", (text for _, text in parts))
    if not has_right_to_left(text) or text in _PRESENTATION_FORMS:
        return text
    if len({left for left, _ in parts}) == 1:
        return join("", (text for _, text in reversed(parts)))
    marks = [(unicodedata.combining(text[0]), -left, text) for left, text in parts]
    marks.sort(key=lambda mark: (mark[0], 0.0 if mark[0] else mark[1]))
    return join("", (text for _, _, text in marks))


@dataclass(slots=True)
class LineSegment:
    """A part of a line without wide gaps: text, edges and base line in points, font size."""

    text: str
    left: float
    right: float
    base: float
    size: float
    words: list[Word] = field(default_factory=list)
    """Its words; [] if it is one. See `spans`."""
    pieces: list[Piece] | None = None
    """Its characters where some are Arabic or Hebrew; the text is in their order on paper until
    `rows_of`."""

    @property
    def bottom(self) -> float:
        """Bottom edge."""
        return self.base - 0.2 * self.size

    @property
    def top(self) -> float:
        """Top edge."""
        return self.base + 0.75 * self.size

    @property
    def spans(self) -> list[Word]:
        """Its words, with their edges."""
        return self.words or [(self.left, self.right, self.text)]


class TextRow:
    """Segments side by side, from left to right.

    Args:
        cells: At least one.
    """

    def __init__(self, cells: list[LineSegment]) -> None:
        self.cells = cells
        self.base = cells[0].base
        self.size = cells[0].size
        self.left = cells[0].left
        self.right = cells[0].right
        if len(cells) > 1:
            self.size = max(cell.size for cell in cells)
            self.right = max(cell.right for cell in cells)

    @property
    def gaps(self) -> list[Interval]:
        """The gaps between its cells."""
        return [(a.right, b.left) for a, b in itertools.pairwise(self.cells)]

    @property
    def spans(self) -> list[Word]:
        """The words of all cells, with their edges."""
        return [word for cell in self.cells for word in cell.spans]

    @property
    def text(self) -> str:
        """Its cells in reading order: from the right if most letters are Arabic or Hebrew."""
        texts = [cell.text for cell in self.cells]
        if len(texts) > 1 and right_to_left_share("".join(texts)) > 0.5:
            texts.reverse()
        return join(" ", texts)


# Letters written without spaces, and their punctuation. Korean is written with spaces.
_JOINED = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003fffd"
)
_MARKS = (
    "\u3001-\u3003\u3008-\u3011\u3014-\u301b\uff01\uff08\uff09\uff0c\uff0e\uff1a\uff1b\uff1f"
    "\u2018\u2019\u201c\u201d"
)
_LETTER = re.compile(f"[{_JOINED}]")
_MARK = re.compile(f"[{_MARKS}]")


@functools.lru_cache(maxsize=1 << 16)
def is_joined(character: str) -> bool:
    """Whether a character is written without spaces around it, as Chinese and Japanese ones are.

    Example:
        >>> is_joined("茶"), is_joined("ア"), is_joined("차"), is_joined("t")
        (True, True, False, False)
    """
    return _LETTER.match(character) is not None


@functools.lru_cache(maxsize=1 << 16)
def is_chinese(character: str) -> bool:
    """Whether a character is `is_joined` or punctuation between such characters.

    Example:
        >>> is_chinese("。"), is_chinese("."), is_chinese("茶")
        (True, False, True)
    """
    return _LETTER.match(character) is not None or _MARK.match(character) is not None


Gap: TypeAlias = tuple[float, bool]
"""Width of a gap in font sizes, and whether a blank was drawn in it."""
# letters, on average
_SHORTEST_WORD = 3.0
_LONGEST_WORD = 12.0
_SPACED = 4  # letters
_FEWEST_PAIRS = 20
# In font sizes.
NARROW = 0.1
"""Width from which a gap may be a blank, in font sizes."""
_LEAST_BLANK = 0.16
_LEAST_SPREAD = 1e-4


def respace(texts: Sequence[list[str]], gaps: Sequence[Sequence[Gap]]) -> None:
    """Remove blanks from within letter-spaced words, as of text recognition.

    On a page of such words, drawn blanks count alone if there are enough; else the gaps are parted
    into those between letters and those between words. On other pages, so are those of a line of
    single letters.
    """
    least = _spaced_width(texts, gaps)
    for parts, line_gaps in zip(texts, gaps, strict=True):
        if least is None and not _is_spaced_line(parts, line_gaps):
            _part_tight_words(parts, line_gaps)
            continue
        if not line_gaps:
            continue
        wide = least or 2 * statistics.median(width for width, _ in line_gaps)
        for at, (width, blank) in enumerate(line_gaps):
            if parts[2 * at + 1] == " " and not blank and width < wide:
                parts[2 * at + 1] = ""


def _part_tight_words(parts: list[str], gaps: Sequence[Gap]) -> None:
    """Add blanks to narrow gaps of a line whose letters have none, as between words of a justified
    line.
    """
    narrow = [at for at, (width, _) in enumerate(gaps) if width >= NARROW]
    if _SHORTEST_WORD * len(narrow) > sum(map(len, parts[::2])):
        return
    for at in narrow:
        before = parts[2 * at][-1]
        after = parts[2 * at + 2][0]
        if not (parts[2 * at + 1] or is_chinese(before) or is_chinese(after)):
            parts[2 * at + 1] = " "


def _spaced_width(texts: Sequence[list[str]], gaps: Sequence[Sequence[Gap]]) -> float | None:
    """The width of the blanks on a page of letter-spaced words, 0.0 if unclear; None on others."""
    all_gaps = list(itertools.chain.from_iterable(gaps))
    pairs = 0  # of letters beside each other
    parted = 0
    for parts in texts:
        pairs += max(0, sum(map(str.isalpha, join("", parts))) - 1)
        parted += sum(
            between == " " and before[-1].isalpha() and after[0].isalpha()
            for before, between, after in zip(parts[::2], parts[1::2], parts[2::2], strict=False)
        )
    drawn = sum(blank for _, blank in all_gaps)
    if pairs < _FEWEST_PAIRS or 2 * parted < pairs or 2 * drawn >= parted:
        return None
    if pairs <= _LONGEST_WORD * (drawn + len(texts)):
        return CELL_GAP
    return _parting([width for width, _ in all_gaps if width >= _LEAST_BLANK])


def _is_spaced_line(parts: Sequence[str], gaps: Sequence[Gap]) -> bool:
    """Whether a line is of single letters, without drawn blanks."""
    return (
        len(gaps) >= _SPACED
        and all(len(part) == 1 and part.isalpha() and not is_joined(part) for part in parts[::2])
        and not any(blank for _, blank in gaps)
    )


def _parting(widths: Sequence[float]) -> float:
    """The width that parts gaps into two kinds best, each as if normally distributed (Kittler and
    Illingworth).
    """
    ordered = np.sort(np.asarray(widths))
    counts = np.arange(_SPACED, len(ordered) - _SPACED)
    if not len(counts):
        return 0.0
    sums = np.cumsum(ordered)
    squares = np.cumsum(ordered**2)
    cost = np.zeros(len(counts))
    for size, total, square in (
        (counts, sums[counts - 1], squares[counts - 1]),
        (len(ordered) - counts, sums[-1] - sums[counts - 1], squares[-1] - squares[counts - 1]),
    ):
        spread = np.maximum(square / size - (total / size) ** 2, _LEAST_SPREAD)
        share = size / len(ordered)
        cost += share * (np.log(spread) - 2 * np.log(share))
    best = counts[int(cost.argmin())]
    return float(ordered[best - 1] + ordered[best]) / 2


class GlyphCollector:
    """Glyphs with all letters that they stand for, which pdfium gives one by one.

    Args:
        glyphs: Glyphs before them; they are added there.
    """

    def __init__(self, glyphs: list[Glyph]) -> None:
        self._glyphs = glyphs
        self._several: dict[int, list[tuple[float, str]]] = {}  # left edges and letters
        self._begun: dict[tuple[float, float], int] = {}  # the glyph that begins at a point

    def add(self, glyph: Glyph, place: tuple[float, float, float]) -> None:
        """Add a letter, with its left edge and where its glyph begins."""
        point = round(place[1], 2), round(place[2], 2)
        at = self._begun.get(point, -1)
        glyphs = self._glyphs
        if glyph.text == " " or at < 0 or not self._is_of(at, glyph):
            self._begun[point] = len(glyphs)
            glyphs.append(glyph)
        elif at == len(glyphs) - 1 or glyphs[at].text != glyph.text:  # else it is drawn again
            before = glyphs[at]
            self._several.setdefault(at, [(before.left, before.text)]).append(
                (place[0], glyph.text)
            )
            glyphs[at] = before._replace(
                text=before.text + glyph.text,
                left=min(glyph.left, before.left),
                right=max(glyph.right, before.right),
            )

    def _is_of(self, at: int, glyph: Glyph) -> bool:
        """Whether a letter is of the same glyph as one that begins at the same point."""
        before = self._glyphs[at]
        if unicodedata.combining(glyph.text[0]) or unicodedata.combining(before.text[0]):
            return True
        if has_right_to_left(glyph.text):
            return has_right_to_left(before.text)
        return at == len(self._glyphs) - 1 and before[1:4] == glyph[1:4]

    def glyphs(self) -> list[Glyph]:
        """All glyphs, with their letters in reading order."""
        for at, parts in self._several.items():
            self._glyphs[at] = self._glyphs[at]._replace(text=letters_in_order(parts))
        return self._glyphs


_LARGER = 1.15  # than the type of the text
_LONGEST = 150  # characters of a heading
_MOST = 0.25  # of all characters, and headings on a page on average: more are no headings
_MOST_ON_PAGE = 12
_LEVELS = 4


class SizedLine(NamedTuple):
    """A line, with its font size in points."""

    size: float
    text: str


@dataclass(slots=True)
class TypeSizes:
    """How much text of each size a file has, and lines that may be headings: those larger than most
    on their page.
    """

    characters: Counter[float] = field(default_factory=Counter)
    lines: list[tuple[float, str, int]] = field(default_factory=list)
    pages: int = 0

    def add_page(self, lines: Sequence[SizedLine]) -> None:
        """Count the lines of the next page."""
        characters: Counter[float] = Counter()
        for line in lines:
            characters[_rounded(line.size)] += len(line.text)
        if characters:
            usual = characters.most_common(1)[0][0]
            title: list[str] = []  # the lines of a heading that goes on
            before = 0.0
            for size, text in [*((_rounded(line.size), line.text) for line in lines), (0.0, "")]:
                if title and (size != before or not text):
                    self._add(before, " ".join(title))
                    title = []
                if text and size > usual:
                    title.append(text)
                before = size
        self.characters += characters
        self.pages += 1

    def _add(self, size: float, title: str) -> None:
        if (
            len(title) <= _LONGEST
            and sum(letter.isalpha() for letter in title) > 1
            and title[-1] not in ",;，；"
        ):
            self.lines.append((size, title, self.pages))

    def headings(self) -> list[tuple[int, str, int]]:
        """Level from 1, title and index of the page of each heading; not the one title above all of
        them.
        """
        if not self.characters:
            return []
        usual = self.characters.most_common(1)[0][0]
        larger = [line for line in self.lines if line[0] >= _LARGER * usual]
        counts = Counter(size for size, _, _ in larger)
        sizes = sorted(counts, reverse=True)
        if larger and larger[0][0] == sizes[0] and counts[sizes[0]] == 1:
            # the title of the file
            larger = larger[1:]
            sizes = sizes[1:]
        letters = sum(len(title) for _, title, _ in larger)
        if letters > _MOST * self.characters.total() or len(larger) > _MOST_ON_PAGE * self.pages:
            return []
        return [
            (min(sizes.index(size), _LEVELS - 1) + 1, title, page) for size, title, page in larger
        ]


def _rounded(size: float) -> float:
    return round(2 * size) / 2
