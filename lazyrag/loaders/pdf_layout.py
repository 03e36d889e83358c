"""Characters on paper as text in the order of reading: columns, lines, tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from lazyrag.loaders.pdf_columns import regions
from lazyrag.loaders.pdf_lines import SAME_LINE, Row, Segment, rows_of, segments
from lazyrag.loaders.pdf_order import reads_right_to_left
from lazyrag.loaders.pdf_page import Glyph, PageContent
from lazyrag.loaders.pdf_repair import join_lines, joint
from lazyrag.loaders.pdf_table import table_lines

# All in sizes of the font.
_FULL_WITHIN = 2.0
_INDENT = 0.9
_PARAGRAPH = 1.35

_MOST_SCATTERED = 0.7
_FEW = 30


def page_text(content: PageContent) -> str:
    """The text of a page, in the order of reading.

    Columns are read one after the other, rows of tables as lines with ``|`` between the cells. Wrapped lines of Chinese
    text and words divided by a hyphen are joined; an empty line stands between paragraphs that stand apart.

    Args:
        content: What an engine found.
    """
    if content.plain is not None:
        return join_lines([line.strip() for line in content.plain.splitlines()]).strip()
    by_turn: dict[int, list[Glyph]] = {}
    for glyph in content.glyphs:
        by_turn.setdefault(glyph.turn, []).append(glyph)
    # What is turned against most of the page, such as a stamp along its edge, stands at its end.
    ordered = sorted(by_turn.values(), key=len, reverse=True)
    return "\n\n".join(text for glyphs in ordered if (text := _upright_text(glyphs)))


def _upright_text(glyphs: Iterable[Glyph]) -> str:
    found = segments(glyphs)
    if not found:
        return ""
    if _is_scattered(found):
        return _vertical_text(found)
    text = ""
    for told in (_region_text(region) for region in regions(found)):
        # A sentence that began in one column goes on in the next.
        cut, between = joint(text.rpartition("\n")[2], told) if text and told[0].islower() else (0, "\n\n")
        text = (text[: len(text) - cut] + between if text else "") + told
    return text


def _is_scattered(found: Sequence[Segment]) -> bool:
    """Whether nearly all stretches are single characters, as in lines that run downwards."""
    return len(found) > _FEW and sum(len(one.text) == 1 for one in found) > _MOST_SCATTERED * len(found)


def _vertical_text(found: Sequence[Segment]) -> str:
    """Single characters: those beneath one another are a line, in the order in which they were drawn."""
    text = found[0].text
    for before, one in pairwise(found):
        centre = (one.left + one.right - before.left - before.right) / 2
        beneath = abs(centre) < 0.5 * one.size and 0 < before.base - one.base < 2 * one.size
        beside = abs(one.base - before.base) < SAME_LINE * one.size and abs(one.left - before.right) < 2 * one.size
        text += ("" if beneath else " " if beside else "\n") + one.text
    return text


def _region_text(region: Sequence[Segment]) -> str:
    rows = rows_of(region)
    lines = table_lines(
        [[(cell.left, cell.right, cell.text) for cell in _in_order(row.cells)] for row in rows], _sizes(rows)
    )
    right = max(row.right for row in rows)
    pitch = _pitch(rows)
    text = lines[0].text
    for at in range(1, len(rows)):
        row, line, previous = rows[at], lines[at], lines[at - 1]
        if line.is_part_of_previous:
            continue
        if line.is_of_table or previous.is_of_table:
            between = "\n" if line.is_of_table and previous.is_of_table else _ends(rows[at - 1], row, pitch)
            text += between + line.text
        else:
            cut, between = _joint(rows[at - 1], row, right, pitch, (previous.text, line.text))
            text = text[: len(text) - cut] + between + line.text
    return text


def _in_order(cells: Sequence[Segment]) -> Sequence[Segment]:
    """Cells in the order of reading: from the right where most letters are Arabic or Hebrew."""
    if len(cells) > 1 and reads_right_to_left("".join(cell.text for cell in cells)):
        return cells[::-1]
    return cells


def _sizes(rows: Sequence[Row]) -> list[tuple[float, float]]:
    return [(row.base, row.size) for row in rows]


def _pitch(rows: Sequence[Row]) -> float:
    """The usual distance from one row to the next."""
    steps = Counter(round((a.base - b.base) / (b.size or 1), 1) for a, b in pairwise(rows))
    near = {step: count for step, count in steps.items() if step < 2.2}
    return max(near, key=lambda step: (near[step], -step)) if near else 1.6


def _ends(previous: Row, row: Row, pitch: float) -> str:
    step = (previous.base - row.base) / (max(row.size, previous.size) or 1)
    return "\n\n" if step > _PARAGRAPH * max(pitch, 1.0) else "\n"


def _joint(previous: Row, row: Row, right: float, pitch: float, lines: tuple[str, str]) -> tuple[int, str]:
    """How many characters to cut off between two rows, and what to put there."""
    ends = _ends(previous, row, pitch)
    same = 0.85 < row.size / (previous.size or 1) < 1.18
    full = previous.right >= right - _FULL_WITHIN * row.size
    indented = row.left > previous.left + _INDENT * row.size
    if ends != "\n" or not same:
        return 0, ends
    cut, between = joint(*lines)
    # A divided word says by itself that its line was full.
    if cut or (lines[0].endswith("-") and not between) or (full and not indented):
        return cut, between
    return 0, ends
