"""The columns of a page, in the order of reading."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from lazyrag.loaders.pdf_lines import Segment, rows_of
from lazyrag.loaders.pdf_repair import is_chinese

Interval: TypeAlias = tuple[float, float]

# In sizes of the font.
_LARGE_GAP = 3.5
_GUTTER = 0.7

_LEAST_ROWS_OF_COLUMN = 3
_LEAST_UNITS_OF_COLUMN = 18  # a Chinese character is two
_LEAST_FILL_OF_COLUMN = 0.6
_MOST_NESTED = 6
_MOST_GUTTERS = 8
_MOST_GAPS = 100


def regions(found: Sequence[Segment], depth: int = 0) -> list[list[Segment]]:
    """Stretches of a page in the order of reading, each in one column, from top to bottom."""
    if depth >= _MOST_NESTED or len(found) < 2 * _LEAST_ROWS_OF_COLUMN:
        return [list(found)]
    result: list[list[Segment]] = []
    plain: list[Segment] = []
    for group in _groups(_bands(found)):
        sides = _columns([one for band in group for one in band])
        if sides is None:
            plain += [one for band in group for one in band]
            continue
        if plain:
            result.append(plain)
            plain = []
        for side in sides:
            result += regions(side, depth + 1)
    return [*result, plain] if plain else result


def _bands(found: Iterable[Segment]) -> list[list[Segment]]:
    """Stretches between which a straight line runs through, from top to bottom."""
    bands: list[list[Segment]] = []
    lowest = 0.0
    for one in sorted(found, key=lambda segment: -segment.top):
        if bands and one.top > lowest:
            bands[-1].append(one)
            lowest = min(lowest, one.bottom)
        else:
            bands.append([one])
            lowest = one.bottom
    return bands


def _groups(bands: Sequence[list[Segment]]) -> list[list[list[Segment]]]:
    """Bands in sequence that a gutter runs through, and those that none does."""
    groups: list[list[list[Segment]]] = []
    gutters: list[Interval] = []  # of the last group; none in a group without
    for band in bands:
        own = _gaps(band)
        if gutters:
            edges = _free(band)
            kept = [gap for gap in _common(gutters, edges) if gap[1] - gap[0] >= _GUTTER * band[0].size]
            apart = len(edges) == 2 and groups[-1][-1][0].base - band[0].base > _LARGE_GAP * band[0].size
            if kept and not apart:
                groups[-1].append(band)
                gutters = kept
                continue
            gutters = []
            groups.append([band])
        elif groups and not own:
            groups[-1].append(band)
        else:
            groups.append([band])
        gutters = own
    return groups


def _gaps(band: Sequence[Segment]) -> list[Interval]:
    """Gaps inside of a band that are wide enough for a gutter."""
    found = [gap for gap in _free(band)[1:-1] if gap[1] - gap[0] >= _GUTTER * band[0].size]
    return found if len(found) <= _MOST_GAPS else []


def _free(found: Iterable[Segment]) -> list[Interval]:
    """What is free from left to right, the endless edges included."""
    free: list[Interval] = []
    end = float("-inf")
    for one in sorted(found, key=lambda segment: segment.left):
        if one.left > end:
            free.append((end, one.left))
        end = max(end, one.right)
    return [*free, (end, float("inf"))]


def _common(some: Iterable[Interval], others: Sequence[Interval]) -> list[Interval]:
    return [(max(a[0], b[0]), min(a[1], b[1])) for a in some for b in others if min(a[1], b[1]) > max(a[0], b[0])]


def _columns(found: Sequence[Segment]) -> tuple[list[Segment], list[Segment]] | None:
    """The two sides of the gutter, if there is one and running text stands on both of its sides."""
    for left, right in sorted(_free(found)[1:-1], key=lambda gap: gap[0] - gap[1])[:_MOST_GUTTERS]:
        sides = [one for one in found if one.right <= left], [one for one in found if one.left >= right]
        if all(map(_is_running_text, sides)):
            return sides
    return None


def _is_running_text(side: Sequence[Segment]) -> bool:
    """Whether lines fill their column, as those of a table do not."""
    rows = rows_of(side)
    if len(rows) < _LEAST_ROWS_OF_COLUMN:
        return False
    width = max(row.right for row in rows) - min(row.left for row in rows)
    units = statistics.median(
        max(sum(2 if is_chinese(one) else 1 for one in cell.text) for cell in row.cells) for row in rows
    )
    fill = statistics.median(max(cell.right - cell.left for cell in row.cells) for row in rows) / (width or 1)
    return units >= _LEAST_UNITS_OF_COLUMN and fill >= _LEAST_FILL_OF_COLUMN
