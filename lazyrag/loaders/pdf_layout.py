"""Layout of PDF pages: located characters become text in reading order, with columns, lines and
tables.
"""

from __future__ import annotations

import bisect
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

from lazyrag.loaders.bidi import has_right_to_left, right_to_left_share
from lazyrag.loaders.pdf_lines import (
    BLANK,
    CELL_GAP,
    Gap,
    Glyph,
    Interval,
    LineSegment,
    SizedLine,
    TextRow,
    Word,
    is_chinese,
    is_joined,
    join,
    logical_text,
    respace,
)
from lazyrag.loaders.pdf_tables import are_even, common, free_intervals, table_lines

# PDF writers map glyphs to radicals (U+2F46 for U+65E0, U+2ED3 for U+957F) and ligatures instead of
# letters. Radicals without a compatibility mapping are replaced by Unicode's equivalent unified
# ideographs.
_RADICALS: dict[int, int] = str.maketrans(
    "\u2e81\u2e84\u2e88\u2e8a\u2e8c\u2e8d\u2e92\u2e93\u2e96\u2e98\u2e99\u2e9b\u2e9c\u2e9d\u2e9e"
    "\u2e9f\u2ea0\u2ea1\u2ea3\u2ea4\u2ea5\u2ea6\u2ea7\u2ea8\u2ea9\u2eab\u2eac\u2ead\u2eaf\u2eb0"
    "\u2eb1\u2eb2\u2eb6\u2eb9\u2eba\u2ebb\u2ebc\u2ebe\u2ebf\u2ec0\u2ec1\u2ec2\u2ec3\u2ec4\u2ec5"
    "\u2ec6\u2ec8\u2ec9\u2ecb\u2ecc\u2ecd\u2ece\u2ed0\u2ed1\u2ed3\u2ed4\u2ed6\u2ed7\u2ed8\u2ed9"
    "\u2eda\u2edb\u2edc\u2edd\u2edf\u2ee0\u2ee2\u2ee3\u2ee4\u2ee5\u2ee6\u2ee7\u2ee8\u2ee9\u2eea"
    "\u2eeb\u2eec\u2eed\u2eee\u2eef\u2ef0\u2ef1\u2ef2\u2ef3",
    "厂乙刀卜小小巳幺忄扌攵旡日月歺母民氵灬爫爫丬牛犭王目示礻糹纟罓罒羊耂肀聿肉艹艹艹虎衤覀西见角讠贝车辶"
    "辶辶钅長长门阝雨青韦页风飞食飠饣马骨鬼鱼鸟卤麦黄黾斉齐歯齿竜龙龜亀龟",
)
_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0xFFFE, 0xFFFF])
_COMPATIBILITY_LETTERS = [
    *range(0x2E80, 0x2FE0),
    *range(0xF900, 0xFB07),
    *range(0xFB1D, 0xFE00),
    *range(0xFE70, 0xFEFD),
]
# pdfium has codes of its own for a hyphen at a line end; a tab between words is a space.
_LETTERS: dict[int, str | int | None] = {
    **_CONTROLS,
    0x02: "-",
    0xFFFE: "-",
    0x09: " ",
    0x0A: " ",
    0x0D: " ",
    0xA0: " ",
    0xF0B7: "•",
    **{code: unicodedata.normalize("NFKC", chr(code)).strip() for code in _COMPATIBILITY_LETTERS},
    **_RADICALS,
}


def letters(text: str) -> str:
    r"""Replace radicals and ligatures by letters; remove control characters and lone surrogates.

    Example:
        >>> letters("\u2f46 \ufb01\x00")
        '无 fi'
    """
    if text.isascii() and text.isprintable():
        return text
    text = text.translate(_LETTERS)
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
    return text


def turned(
    turn: int, box: tuple[float, float, float, float], origin: tuple[float, float]
) -> tuple[float, float, float]:
    """Left, right and base of a character on the page turned upright.

    Args:
        turn: Quarter turns to the left, 0 to 3.
        box: Left, bottom, right, top.
        origin: Its start on the base line.
    """
    left, bottom, right, top = box
    if turn == 0:
        return left, right, origin[1]
    if turn == 1:
        return bottom, top, -origin[0]
    if turn == 2:
        return -right, -left, -origin[1]
    return -top, -bottom, origin[0]


def quarter_turns(across: Any, up: Any) -> int:
    """The rotation of a direction, in quarter turns to the left.

    Example:
        >>> quarter_turns(1, 0), quarter_turns(0, 1), quarter_turns(-1, 0.1), quarter_turns(0, -1)
        (0, 1, 2, 3)
    """
    if abs(across) >= abs(up):
        return 0 if across >= 0 else 2
    return 1 if up > 0 else 3


_BROKEN = re.compile(r"(?P<word>[^\W\d_]+(?:-[^\W\d_]+)*)(?P<hyphen>[-\u2010\u00ad])$")
_DIGITS = re.compile(r"\d+")
_ROMAN = re.compile(r"^[ivxlc]+$")
_LOOKED_AT = 3
_MIN_PAGES = 3


def mostly_chinese(line: str) -> bool:
    """Whether a third of a line's characters or more are Chinese or Japanese.

    Example:
        >>> mostly_chinese("采用 Transformer 模型进行训练"), mostly_chinese("called 茶 in Chinese")
        (True, False)
    """
    if line.isascii():
        return False
    visible = [character for character in line if not character.isspace()]
    return 3 * sum(map(is_chinese, visible)) >= len(visible) > 0


def joint(first: str, second: str) -> tuple[int, str]:
    r"""How to join two lines of one paragraph.

    Args:
        first: A line that reaches the right edge of its paragraph.
        second: The line below.

    Returns:
        Number of characters to remove from the end of the first, and the text between: ``"\n"`` if
        they stay apart.

    Example:
        >>> joint("绿茶是未经", "发酵的茶"), joint("the infor-", "mation of"), joint("green", "tea")
        ((0, ''), (1, ''), (0, '\n'))
    """
    if not first or not second:
        return 0, "\n"
    broken = _BROKEN.search(first) if first[-1] in "-\u2010\u00ad" else None
    if (
        broken
        and second[0].islower()
        and (broken["hyphen"] == "\u00ad" or broken["word"][-1].islower())
    ):
        # In a word with another hyphen, this one most likely belongs to it.
        return (0 if "-" in broken["word"] else 1), ""
    last = first[-1]
    following = second[0]
    if is_chinese(last) and is_chinese(following):
        return 0, ""
    if mostly_chinese(first) and mostly_chinese(second):
        return 0, "" if is_chinese(last) or is_chinese(following) else " "
    return 0, "\n"


def without_repeated_lines(pages: Sequence[str]) -> list[str]:
    r"""Remove lines that are repeated at the top or bottom of most pages; numbers in them may
    differ.

    Args:
        pages: Of fewer than three pages nothing is removed.

    Example:
        >>> pages = [f"Tea report\nPart {word}\n- {at} -" for at, word in enumerate("abcd")]
        >>> without_repeated_lines(pages)
        ['Part a', 'Part b', 'Part c', 'Part d']
    """
    split = [page.splitlines() for page in pages]
    counts: Counter[tuple[str, str]] = Counter()
    for lines in split:
        counts.update({key for _, key in _edges(lines)})
    least = max(_MIN_PAGES, (sum(map(bool, split)) + 1) // 2)
    repeated = {key for key, count in counts.items() if count >= least}
    cleaned = []
    for lines in split:
        repeated_at = {at for at, key in _edges(lines) if key in repeated}
        cleaned.append(
            join("\n", (line for at, line in enumerate(lines) if at not in repeated_at)).strip()
        )
    return cleaned


def _edges(lines: Sequence[str]) -> list[tuple[int, tuple[str, str]]]:
    """Index and pattern of the first and last filled lines."""
    filled = [at for at, line in enumerate(lines) if line.strip()]
    head = filled[:_LOOKED_AT]
    foot = filled[-_LOOKED_AT:]
    return [(at, ("head", _pattern(lines[at]))) for at in head] + [
        (at, ("foot", _pattern(lines[at]))) for at in foot
    ]


def _pattern(line: str) -> str:
    words = " ".join(line.split()).casefold()
    return "#" if _ROMAN.match(words) else _DIGITS.sub("#", words)


# All in font sizes.
_SAME_LINE = 0.25
_WORD_GAP = 0.16
_MIXED_WORD_GAP = 0.2
_CHINESE_WORD_GAP = 0.65
_OVERLAP = -0.6
_SAME_PLACE = 0.12
_FARTHEST = 1e6  # in points
_RAISED = 0.6  # an exponent or index stays in its line


def find_segments(glyphs: Sequence[Glyph]) -> list[LineSegment]:
    """Group characters into segments, in drawing order; those of Arabic and Hebrew pages by their
    places.
    """
    if any(has_right_to_left(glyph.text) for glyph in glyphs):
        return _placed_segments(glyphs)
    drawn: dict[tuple[str, int, int], list[float]] = {}
    segments = []
    gaps: list[list[Gap]] = []  # of each segment, those between its parts
    texts = []  # a growing segment's own text is that of its last piece
    places: list[list[Interval]] = []  # edges of its parts
    current: LineSegment | None = None
    blank = False
    for glyph in glyphs:
        if not glyph.text.strip():
            blank = True
            continue
        if not _is_on_paper(glyph) or _is_drawn_again(glyph, drawn):
            continue
        between = None if current is None else _between(current, glyph, blank=blank)
        if current is None or between is None:
            current = LineSegment(glyph.text, glyph.left, glyph.right, glyph.base, glyph.size)
            segments.append(current)
            gaps.append([])
            texts.append([glyph.text])
            places.append([(glyph.left, glyph.right)])
        else:
            gaps[-1].append(((glyph.left - current.right) / (current.size or 1), blank))
            _extend(current, glyph)
            texts[-1] += (between, glyph.text)
            places[-1].append((glyph.left, glyph.right))
        blank = False
    respace(texts, gaps)
    for segment, parts, edges in zip(segments, texts, places, strict=True):
        segment.text = join("", parts)
        if " " in parts:
            segment.words = _words(parts, edges)
    return segments


def _words(parts: Sequence[str], edges: Sequence[Interval]) -> list[Word]:
    """The words of a segment, of its parts with the texts between them."""
    words = [(*edges[0], parts[0])]
    for at, (left, right) in enumerate(edges[1:], start=1):
        if parts[2 * at - 1]:
            words.append((left, right, parts[2 * at]))
        else:
            before = words[-1]
            words[-1] = (before[0], max(before[1], right), before[2] + parts[2 * at])
    return words


def _placed_segments(glyphs: Sequence[Glyph]) -> list[LineSegment]:
    """Segments by the places of their characters, however they were drawn."""
    drawn: dict[tuple[str, int, int], list[float]] = {}
    visible = [
        glyph
        for glyph in glyphs
        if glyph != BLANK and _is_on_paper(glyph) and not _is_drawn_again(glyph, drawn)
    ]
    rows: list[list[Glyph]] = []
    for glyph in sorted(visible, key=lambda glyph: -glyph.base):
        if rows and _is_on_line(rows[-1][0], glyph):
            rows[-1].append(glyph)
        else:
            rows.append([glyph])
    segments = []
    for row in rows:
        last: LineSegment | None = None
        for glyph in sorted(row, key=lambda glyph: glyph.left):
            if last is not None and (
                glyph.text == " " or glyph.left - last.right <= CELL_GAP * glyph.size
            ):
                last.pieces.append(glyph[:3])  # type: ignore[union-attr]
                if glyph.text != " ":
                    last.text += glyph.text
                    last.right = max(last.right, glyph.right)
                    last.size = max(last.size, glyph.size)
            elif glyph.text != " ":
                last = LineSegment(
                    glyph.text, glyph.left, glyph.right, glyph.base, glyph.size, pieces=[glyph[:3]]
                )
                segments.append(last)
    return segments


def _is_on_line(first: Glyph | LineSegment, other: Glyph | LineSegment) -> bool:
    """Whether two base lines are so near that they are one line."""
    return abs(first.base - other.base) <= _SAME_LINE * 1.4 * max(first.size, other.size)


def _is_on_paper(glyph: Glyph) -> bool:
    """Whether its position is valid: damaged files have infinite ones and NaN."""
    return abs(glyph.left) + abs(glyph.right) + abs(glyph.base) + abs(glyph.size) < _FARTHEST


def _is_drawn_again(glyph: Glyph, drawn: dict[tuple[str, int, int], list[float]]) -> bool:
    """Whether it was drawn at this position before, as for bold letters and shadows; note it."""
    line = round(glyph.base)
    at = int(glyph.left // max(glyph.size, 1.0))
    nearest = _SAME_PLACE * glyph.size
    for position in (at - 1, at, at + 1):
        for left in drawn.get((glyph.text, line, position), ()):
            if abs(left - glyph.left) < nearest:
                return True
    drawn.setdefault((glyph.text, line, at), []).append(glyph.left)
    return False


def _extend(segment: LineSegment, glyph: Glyph) -> None:
    segment.text = glyph.text
    segment.left = min(segment.left, glyph.left)
    segment.right = max(segment.right, glyph.right)
    if glyph.size > 1.15 * segment.size:
        segment.base = glyph.base
        segment.size = glyph.size


def _between(segment: LineSegment, glyph: Glyph, *, blank: bool) -> str | None:
    """The text between a segment and the next character; None if this one begins another
    segment.
    """
    size = max(segment.size, glyph.size)
    rise = abs(glyph.base - segment.base)
    if rise > _SAME_LINE * size and (
        rise > _RAISED * size or 0.87 < glyph.size / (segment.size or 1) < 1.15
    ):
        return None
    gap = glyph.left - segment.right
    if not _OVERLAP * size <= gap <= CELL_GAP * size:
        return None
    return gap_text(segment.text[-1], glyph.text[0], gap / (size or 1), blank=blank)


def gap_text(before: str, after: str, gap: float, *, blank: bool) -> str:
    """A space, or none, for a gap between two characters.

    Args:
        before: The character before it.
        after: The character after it.
        gap: Its width, in font sizes.
        blank: Whether a space was drawn there. Ignored between Chinese characters: writers add
            spaces there.
    """
    if is_chinese(before) and is_chinese(after):
        return " " if gap >= _CHINESE_WORD_GAP else ""
    if is_joined(before) or is_joined(after):
        return " " if blank or gap >= _MIXED_WORD_GAP else ""
    return " " if blank or gap >= _WORD_GAP else ""


def rows_of(segments: Iterable[LineSegment]) -> list[TextRow]:
    """Group segments into rows, from top to bottom, left to right, with their texts in reading
    order.
    """
    lines: list[list[LineSegment]] = []
    for segment in sorted(segments, key=lambda segment: -segment.base):
        if lines and _is_on_line(lines[-1][0], segment):
            lines[-1].append(segment)
        else:
            lines.append([segment])
    rows = []
    for line in lines:
        line.sort(key=lambda segment: segment.left)
        rows.append(TextRow(_united(line) if len(line) > 1 else line))
    _order_letters(rows)
    return rows


def _order_letters(rows: Sequence[TextRow]) -> None:
    """Put the letters of cells with Arabic or Hebrew in reading order."""
    if not any(cell.pieces for row in rows for cell in row.cells):
        return
    share = right_to_left_share("".join(cell.text for row in rows for cell in row.cells))
    for row in rows:
        row.cells = [_in_reading_order(cell, share) for cell in row.cells]


def _in_reading_order(cell: LineSegment, share: float) -> LineSegment:
    if not cell.pieces or not share:
        return cell
    is_reversed = _direction(cell.text, share)
    text = logical_text(cell.pieces, _WORD_GAP * cell.size, right_to_left=is_reversed)
    return replace(cell, text=text)


def _direction(line: str, share: float) -> bool:
    """Whether a line reads from right to left: by its letters, and if they are mixed, by those
    around it.
    """
    line_share = right_to_left_share(line)
    if not has_right_to_left(line):
        return share > 0.5 and line[:1] in ".,:;!?" and line[-1:] not in ".,:;!?"
    return line_share > 0.67 or (line_share > 0.33 and share >= 0.5)


def _united(cells: Sequence[LineSegment]) -> list[LineSegment]:
    """Merge segments of a row that have no wide gap between them."""
    united: list[LineSegment] = []
    for cell in cells:
        last = united[-1] if united else None
        size = max(cell.size, last.size) if last else 0.0
        if last is None or cell.left - last.right > CELL_GAP * size:
            united.append(cell)
            continue
        gap = cell.left - last.right
        between = gap_text(
            last.text[-1], cell.text[0], gap / (size or 1), blank=gap > _WORD_GAP * size
        )
        some = last.spans
        others = cell.spans
        if not between:
            text = some[-1][2] + others[0][2]
            others = [(some[-1][0], others[0][1], text), *others[1:]]
            some = some[:-1]
        united[-1] = replace(
            last,
            text=last.text + between + cell.text,
            right=max(last.right, cell.right),
            words=[*some, *others],
            pieces=[*last.pieces, *cell.pieces] if last.pieces and cell.pieces else None,
        )
    return united


# In font sizes.
_LARGE_GAP = 3.5
_GUTTER = 0.6

_MIN_ROWS_OF_COLUMN = 3
_MIN_UNITS_OF_COLUMN = 18  # a Chinese character is two
_MIN_FILL_OF_COLUMN = 0.6
_MAX_NESTED = 6
_MIN_LEVEL = 3
_LEVEL = 0.7
_LINES_OF_CELL = 6
_PROSE_OF_COLUMN = 0.6
_MAX_LEVEL = 0.5
_MAX_BESIDE = 2
_NEAR_LINE = 1.8
_MAX_GUTTERS = 8
_MAX_GAPS = 100


def regions(segments: Sequence[LineSegment], depth: int = 0) -> list[list[LineSegment]]:
    """Split a page into regions of one column each, in reading order."""
    if depth >= _MAX_NESTED or len(segments) < 2 * _MIN_ROWS_OF_COLUMN:
        return [list(segments)]
    result = []
    plain = []
    for group in _groups(_bands(segments)):
        columns = _columns(group)
        if not columns:
            plain += group
            continue
        if plain:
            result.append(plain)
            plain = []
        for column in columns:
            result += regions(column, depth + 1)
    return [*result, plain] if plain else result


def _bands(segments: Iterable[LineSegment]) -> list[list[LineSegment]]:
    """Groups of segments with free horizontal space between them, from top to bottom."""
    bands: list[list[LineSegment]] = []
    lowest = 0.0
    for segment in sorted(segments, key=lambda segment: -segment.top):
        if bands and segment.top > lowest:
            bands[-1].append(segment)
            lowest = min(lowest, segment.bottom)
        else:
            bands.append([segment])
            lowest = segment.bottom
    return bands


def _groups(bands: Sequence[list[LineSegment]]) -> list[list[LineSegment]]:
    """The segments of adjacent bands that share a gutter, and of those without one."""
    groups: list[list[list[LineSegment]]] = []
    gutters: list[Interval] = []  # of the last group
    for band in bands:
        gaps = _gaps(band)
        shared = _shared(gutters, groups[-1], band) if gutters else []
        if shared or (groups and not gutters and not gaps):
            groups[-1].append(band)
            gutters = shared
            continue
        groups.append([band])
        gutters = gaps
        if gaps and len(groups) > 1:
            groups[-1][:0] = _taken_back(groups[-2], gaps, band)
    return [[*chain.from_iterable(group)] for group in groups if group]


def _shared(
    gutters: Sequence[Interval], group: Sequence[list[LineSegment]], band: Sequence[LineSegment]
) -> list[Interval]:
    """The gutters of a group that run through the band below, too; [] if it is no part of it."""
    edges = _free(band)
    size = band[0].size
    shared = common(gutters, edges, _GUTTER * size)
    if len(edges) > 2:
        return shared
    lowest = min(segment.base for segment in group[-1])
    # a heading over some of the columns parts what is above from what is below
    is_certain = sum(map(len, group)) >= _MIN_ROWS_OF_COLUMN * (len(gutters) + 1)
    is_heading = len(shared) < len(gutters) and is_certain
    return [] if is_heading or lowest - band[0].base > _LARGE_GAP * size else shared


def _taken_back(
    above: list[list[LineSegment]], gutters: Sequence[Interval], below: Sequence[LineSegment]
) -> list[list[LineSegment]]:
    """The last bands of a group that are the first lines of one of the columns below, which begins
    higher than the others.
    """
    taken: list[list[LineSegment]] = []
    while above:
        [*_, band] = above
        size = band[0].size
        is_near = band[0].base - max(segment.base for segment in below) < _NEAR_LINE * size
        shared = common(gutters, _free(band), _GUTTER * size)
        if not is_near or len(shared) < len(gutters) or size != below[0].size:
            break
        taken.insert(0, above.pop())
        below = band
    return taken


def _gaps(band: Sequence[LineSegment]) -> list[Interval]:
    """Gaps in a band that are wide enough for a gutter."""
    gaps = _wide(_free(band)[1:-1], band[0].size)
    return gaps if len(gaps) <= _MAX_GAPS else []


def _wide(gaps: Iterable[Interval], size: float) -> list[Interval]:
    return [gap for gap in gaps if gap[1] - gap[0] >= _GUTTER * size]


def _free(segments: Iterable[LineSegment]) -> list[Interval]:
    """Free intervals from left to right, the unbounded edges included."""
    return free_intervals((segment.left, segment.right) for segment in segments)


def _columns(group: Sequence[LineSegment]) -> list[list[LineSegment]]:
    """The columns of running text beside each other, as many as possible; [] for no or one."""
    size = statistics.median(segment.size for segment in group)
    gutters = sorted(_wide(_free(group)[1:-1], size), key=lambda gap: gap[0] - gap[1])
    ends = sorted(left for left, _ in gutters[:_MAX_GUTTERS])
    strips: list[list[LineSegment]] = [[] for _ in range(len(ends) + 1)]
    for segment in group:
        strips[bisect.bisect_left(ends, segment.right)].append(segment)
    # for each strip the first column, if it and all that follow it are parted into columns
    first: dict[int, list[LineSegment]] = {len(strips): []}
    following: dict[int, int] = {}
    for start in reversed(range(len(strips))):
        column: list[LineSegment] = []
        for end in range(start + 1, len(strips) + 1):
            column += strips[end - 1]
            if end in first and _is_running_text(column):
                first[start] = column
                following[start] = end
                break
    columns = []
    at = 0
    while at in following:
        columns.append(first[at])
        at = following[at]
    if len(columns) < 2:
        return _beside_prose(group, gutters[:_MAX_BESIDE])
    if any(_are_level(*pair) for pair in pairwise(columns)):
        return []
    return columns


def _beside_prose(
    group: Sequence[LineSegment], gutters: Sequence[Interval]
) -> list[list[LineSegment]]:
    """A column of prose and a figure or table beside it; [] without one."""
    for left, right in gutters:
        sides = [
            [segment for segment in group if segment.right <= left],
            [segment for segment in group if segment.left >= right],
        ]
        rows = sorted(map(rows_of, sides), key=len)
        level = _level(*rows)
        if level <= _MAX_LEVEL * len(rows[0]) and any(
            _is_running_text(side, _PROSE_OF_COLUMN) for side in sides
        ):
            return sides
    return []


def _are_level(before: Sequence[LineSegment], after: Sequence[LineSegment]) -> bool:
    """Whether what stands apart begins at the same heights on both sides, as cells of a table do
    and paragraphs do not.
    """
    left = rows_of(before)
    right = rows_of(after)
    some = _starts(left)
    others = _starts(right)
    level = _level(some, others)
    return (
        level >= max(_MIN_LEVEL, _LEVEL * (len(some) + len(others)) / 2)
        and max(len(left), len(right)) <= _LINES_OF_CELL * level
    )


def _level(some: Sequence[TextRow], others: Sequence[TextRow]) -> int:
    """How many rows are at the height of another one."""
    bases = [other.base for other in others]
    return sum(any(abs(row.base - base) < _SAME_LINE * row.size for base in bases) for row in some)


def _starts(rows: Sequence[TextRow]) -> list[TextRow]:
    """The rows that stand apart from the row above."""
    pitch = _pitch(rows)
    return [rows[0], *(row for above, row in pairwise(rows) if _ends(above, row, pitch) != "\n")]


def _is_running_text(side: Sequence[LineSegment], prose: float = 0.0) -> bool:
    """Whether lines fill their column, unlike cells of a table."""
    if len(side) < _MIN_ROWS_OF_COLUMN:
        return False
    rows = rows_of(side)
    if len(rows) < _MIN_ROWS_OF_COLUMN:
        return False
    left = min(row.left for row in rows)
    right = max(row.right for row in rows)
    widths = []
    units = []
    for row in rows:
        if len(row.cells) > 2 and right - row.right < row.size and are_even(row.gaps, row.size):
            widths.append(row.right - row.left)
            units.append(sum(_units(cell.text) for cell in row.cells))
            continue
        widest = max(row.cells, key=lambda cell: cell.right - cell.left)
        widths.append(widest.right - widest.left)
        units.append(_units(widest.text))
    if prose and sum(width > 0.85 * (right - left) for width in widths) < max(5, prose * len(rows)):
        return False
    return (
        statistics.median(widths) >= _MIN_FILL_OF_COLUMN * (right - left)
        and statistics.median(units) >= _MIN_UNITS_OF_COLUMN
    )


def _units(text: str) -> int:
    """The width of a text, but for the dots of leaders: a Chinese character is two."""
    width = len(text) - text.count(".")
    return width if text.isascii() else width + sum(map(is_chinese, text))


# All in font sizes.
_FULL_WITHIN = 2.0
_INDENT = 0.9
_PARAGRAPH = 1.35

_MAX_SCATTERED = 0.7
_FEW = 30


def page_text(glyphs: Iterable[Glyph], sizes: list[SizedLine] | None = None) -> str:
    """The text of a page, in reading order.

    Columns are read one after the other, rows of tables as lines with ``|`` between the cells.
    Wrapped lines of Chinese text and hyphenated words are joined; an empty line separates
    paragraphs that stand apart.

    Args:
        glyphs: In the order in which they were drawn, spaces among them.
        sizes: Gets the lines of running text with their font sizes.
    """
    by_turn: dict[int, list[Glyph]] = {}
    for glyph in glyphs:
        by_turn.setdefault(glyph.turn, []).append(glyph)
    # Text that is turned against most of the page, such as a stamp along its edge, comes last.
    ordered = sorted(by_turn.values(), key=len, reverse=True)
    return join("\n\n", (text for group in ordered if (text := _upright_text(group, sizes))))


def _upright_text(glyphs: Sequence[Glyph], sizes: list[SizedLine] | None) -> str:
    segments = find_segments(glyphs)
    if not segments:
        return ""
    if _is_vertical(segments):
        return _vertical_text(segments)
    text = ""
    for region in regions(segments):
        part = _region_text(region, sizes)
        if not text:
            text = part
            continue
        cut = 0
        between = "\n\n"
        if part[0].islower():  # a sentence may continue in the next column
            cut, between = joint(text.rpartition("\n")[2], part)
        text = text[: len(text) - cut] + between + part
    return text


def _is_vertical(segments: Sequence[LineSegment]) -> bool:
    """Whether nearly all segments are single characters, most of them below the one before."""
    single = sum(len(segment.text) == 1 for segment in segments)
    if len(segments) <= _FEW or single <= _MAX_SCATTERED * len(segments):
        return False
    below = 0
    for before, segment in pairwise(segments):
        is_near = 0 < before.base - segment.base < 2 * segment.size
        below += is_near and _is_in_column(before, segment)
    return 2 * below >= len(segments)


def _is_in_column(first: LineSegment, other: LineSegment) -> bool:
    centre = (other.left + other.right - first.left - first.right) / 2
    return abs(centre) < 0.5 * first.size


def _vertical_text(segments: Sequence[LineSegment]) -> str:
    """Text of lines that run downwards, from right to left."""
    lines: list[list[LineSegment]] = []
    for segment in sorted(segments, key=lambda segment: -(segment.left + segment.right)):
        if lines and _is_in_column(lines[-1][0], segment):
            lines[-1].append(segment)
        else:
            lines.append([segment])
    lowest = min(segment.base for segment in segments)
    text = ""
    is_full = False
    for line in lines:
        line.sort(key=lambda segment: -segment.base)
        added = join("", (segment.text for segment in line))
        between = "\n" if text else ""
        if is_full:
            _, between = joint(text.rpartition("\n")[2], added)
        text = text + between + added
        is_full = line[-1].base < lowest + _FULL_WITHIN * line[-1].size
    return text


def _region_text(region: Sequence[LineSegment], sizes: list[SizedLine] | None) -> str:
    rows = rows_of(region)
    lines = table_lines(rows)
    if sizes is not None:
        sizes += (
            SizedLine(row.size, "" if line.is_table_row else line.text)
            for row, line in zip(rows, lines, strict=True)
        )
    right = max(row.right for row in rows)
    pitch = _pitch(rows)
    text = lines[0].text
    for at in range(1, len(rows)):
        row = rows[at]
        line = lines[at]
        above = lines[at - 1]
        if line.is_merged:
            continue
        if line.is_table_row and above.is_table_row:
            text += "\n" + line.text
        elif line.is_table_row or above.is_table_row:
            text += _ends(rows[at - 1], row, pitch) + line.text
        else:
            cut, between = _joint(rows[at - 1], row, right, pitch, (above.text, line.text))
            text = text[: len(text) - cut] + between + line.text
    return text


def _pitch(rows: Sequence[TextRow]) -> float:
    """The most frequent distance between rows, in font sizes."""
    steps = Counter(round((a.base - b.base) / (b.size or 1), 1) for a, b in pairwise(rows))
    near = {step: count for step, count in steps.items() if step < 2.2}
    return max(near, key=lambda step: (near[step], -step)) if near else 1.6


def _ends(previous: TextRow, row: TextRow, pitch: float) -> str:
    step = (previous.base - row.base) / (max(row.size, previous.size) or 1)
    return "\n\n" if step > _PARAGRAPH * max(pitch, 1.0) else "\n"


def _joint(
    previous: TextRow, row: TextRow, right: float, pitch: float, lines: tuple[str, str]
) -> tuple[int, str]:
    """Number of characters to remove between two rows, and the text to put there."""
    ends = _ends(previous, row, pitch)
    same = 0.85 < row.size / (previous.size or 1) < 1.18
    full = previous.right >= right - _FULL_WITHIN * row.size
    indented = row.left > previous.left + _INDENT * row.size
    if ends != "\n" or not same:
        return 0, ends
    cut, between = joint(*lines)
    # A hyphenated word shows that its line was full.
    if cut or (lines[0].endswith("-") and not between) or (full and not indented):
        return cut, between
    return 0, ends
