"""Characters on paper as stretches of lines, and those as rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lazyrag.loaders.pdf_order import Piece, has_right_to_left, logical_text
from lazyrag.loaders.pdf_page import Glyph
from lazyrag.loaders.pdf_repair import is_chinese, is_joined

# All in sizes of the font.
SAME_LINE = 0.25
"""How far base lines of one line may be apart."""
_WORD_GAP = 0.16
_MIXED_WORD_GAP = 0.2
_CHINESE_WORD_GAP = 0.65
_CELL_GAP = 1.0
_OVERLAP = -0.6
_SAME_PLACE = 0.12
_FARTHEST = 1e6  # in points
_RAISED = 0.6  # an exponent or index stays in its line


@dataclass(slots=True)
class Segment:
    """A stretch of a line without wide gaps.

    Args:
        text: What it reads as.
        left: Where it begins, in points.
        right: Where it ends.
        base: The height of its base line, upwards.
        size: Of its font.
    """

    text: str
    left: float
    right: float
    base: float
    size: float

    @property
    def bottom(self) -> float:
        """How far down it reaches."""
        return self.base - 0.2 * self.size

    @property
    def top(self) -> float:
        """How far up it reaches."""
        return self.base + 0.75 * self.size


@dataclass(slots=True)
class Row:
    """Segments side by side."""

    cells: list[Segment] = field(default_factory=list)

    @property
    def base(self) -> float:
        """The height of its base line."""
        return self.cells[0].base

    @property
    def size(self) -> float:
        """Of its largest font."""
        return max(cell.size for cell in self.cells)

    @property
    def left(self) -> float:
        """Where it begins."""
        return min(cell.left for cell in self.cells)

    @property
    def right(self) -> float:
        """Where it ends."""
        return max(cell.right for cell in self.cells)


def segments(glyphs: Iterable[Glyph]) -> list[Segment]:
    """Characters as stretches of lines, in the order in which they were drawn."""
    found: list[Segment] = []
    pieces: list[list[Piece]] = []  # of each segment, as they were drawn
    texts: list[list[str]] = []  # while a segment grows, its own text is that of its last piece
    blank = False
    drawn: dict[tuple[str, int, int], list[float]] = {}
    for glyph in glyphs:
        if not glyph.text.strip():
            blank = True
            continue
        if not _is_on_paper(glyph) or _is_drawn_again(glyph, drawn):
            continue
        current = found[-1] if found else None
        between = _between(current, glyph, blank=blank) if current is not None else None
        if current is None or between is None:
            found.append(Segment(glyph.text, glyph.left, glyph.right, glyph.base, glyph.size))
            pieces.append([(glyph.text, glyph.left, glyph.right)])
            texts.append([glyph.text])
        else:
            _extend(current, glyph)
            pieces[-1].append((glyph.text, glyph.left, glyph.right))
            texts[-1] += (between, glyph.text)
        blank = False
    for one, drawn_as, told in zip(found, pieces, texts, strict=True):
        one.text = "".join(told)
        if has_right_to_left(one.text):
            one.text = logical_text(drawn_as, _WORD_GAP * one.size)
    return found


def _is_on_paper(glyph: Glyph) -> bool:
    """Whether its place is one: damaged files give numbers without end, and no numbers."""
    numbers = (glyph.left, glyph.right, glyph.base, glyph.size)
    return all(-_FARTHEST < number < _FARTHEST for number in numbers)


def _is_drawn_again(glyph: Glyph, drawn: dict[tuple[str, int, int], list[float]]) -> bool:
    """Whether the same was drawn at the same place before, as bold letters and shadows are; it is noted."""
    line, at = round(glyph.base), int(glyph.left // max(glyph.size, 1.0))
    near = (left for place in (at - 1, at, at + 1) for left in drawn.get((glyph.text, line, place), ()))
    if any(abs(left - glyph.left) < _SAME_PLACE * glyph.size for left in near):
        return True
    drawn.setdefault((glyph.text, line, at), []).append(glyph.left)
    return False


def _extend(segment: Segment, glyph: Glyph) -> None:
    segment.text = glyph.text
    segment.left = min(segment.left, glyph.left)
    segment.right = max(segment.right, glyph.right)
    if glyph.size > 1.15 * segment.size:
        segment.base, segment.size = glyph.base, glyph.size


def _between(segment: Segment, glyph: Glyph, *, blank: bool) -> str | None:
    """What stands between a segment and the character drawn next; None if it is no part of that segment."""
    size = max(segment.size, glyph.size)
    rise = abs(glyph.base - segment.base)
    if rise > SAME_LINE * size and (rise > _RAISED * size or 0.87 < glyph.size / (segment.size or 1) < 1.15):
        return None
    gap = glyph.left - segment.right
    if gap < _OVERLAP * size and has_right_to_left(segment.text + glyph.text):
        gap = segment.left - glyph.right
        if gap < _OVERLAP * size:
            return "" if segment.left - size <= glyph.left and glyph.right <= segment.right + size else None
    if not _OVERLAP * size <= gap <= _CELL_GAP * size:
        return None
    return gap_text(segment.text[-1], glyph.text[0], gap / (size or 1), blank=blank)


def gap_text(before: str, after: str, gap: float, *, blank: bool) -> str:
    """A blank, or none, for a gap between two characters.

    Args:
        before: The character before it.
        after: The one after it.
        gap: Its width, in sizes of the font.
        blank: Whether a blank was drawn there. Between Chinese characters that says nothing: writers put them there.
    """
    if is_chinese(before) and is_chinese(after):
        return " " if gap >= _CHINESE_WORD_GAP else ""
    if is_joined(before) or is_joined(after):
        return " " if blank or gap >= _MIXED_WORD_GAP else ""
    return " " if blank or gap >= _WORD_GAP else ""


def rows_of(found: Iterable[Segment]) -> list[Row]:
    """Segments as rows, from top to bottom, those of a row from left to right."""
    rows: list[Row] = []
    for one in sorted(found, key=lambda segment: -segment.base):
        if rows and abs(rows[-1].base - one.base) <= SAME_LINE * 1.4 * max(one.size, rows[-1].cells[0].size):
            rows[-1].cells.append(one)
        else:
            rows.append(Row([one]))
    for row in rows:
        row.cells = _united(sorted(row.cells, key=lambda segment: segment.left))
    return rows


def _united(cells: Sequence[Segment]) -> list[Segment]:
    """Segments of a row, those without a wide gap between them as one."""
    united: list[Segment] = []
    for cell in cells:
        last = united[-1] if united else None
        size = max(cell.size, last.size) if last else 0.0
        if last is None or cell.left - last.right > _CELL_GAP * size:
            united.append(Segment(cell.text, cell.left, cell.right, cell.base, cell.size))
            continue
        blank = cell.left - last.right > _WORD_GAP * size
        last.text += gap_text(last.text[-1], cell.text[0], (cell.left - last.right) / (size or 1), blank=blank)
        last.text += cell.text
        last.right = max(last.right, cell.right)
    return united
