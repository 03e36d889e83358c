"""An explanation as plain text for a terminal, in columns; wide characters take two."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from lazyrag.data.filters import FilterLike, parse_filter
from lazyrag.retrieval.explained import DroppedNode, ExplainedHit, StageSummary, number_text
from lazyrag.retrieval.missing import filter_text
from lazyrag.retrieval.stages import json_ready

_WIDTH = 100
_DROPPED_SHOWN = 3
_UIDS_SHOWN = 3
_SILENT = ("cut",)  # what they do to hits is nothing: they drop others


def rendered(
    query: str,
    filters: FilterLike | None,
    hits: Sequence[ExplainedHit],
    stages: Sequence[StageSummary],
    dropped: Sequence[DroppedNode],
) -> str:
    """The hits with a column for each stage, then the stages with what they dropped."""
    parsed = parse_filter(filters)
    head = f"query: {_line(query)}"
    if parsed is not None:
        head += f"\nfilter: {filter_text(parsed)}"
    parts = [head, _hits(hits, stages) if hits else "no hits", _stages(query, stages, dropped)]
    return "\n\n".join(parts)


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Rows as lines with aligned columns.

    Args:
        rows: Of equal length.
        right: Columns that are moved to the right.

    Example:
        >>> table([["茶", "1"], ["tea", "10"]], right=[1])
        ['茶    1', 'tea  10']
    """
    widths = [max(map(text_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for at, (cell, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - text_width(cell))
            cells.append(space + cell if at in right else cell + space)
        lines.append("  ".join(cells).rstrip())
    return lines


def text_width(text: str) -> int:
    """How many columns of a terminal a text takes: two for wide characters, none for combining ones.

    Example:
        >>> text_width("绿茶 tea")
        8
    """
    return sum(map(_character_width, text))


def clipped(text: str, width: int) -> str:
    """A text cut to a number of columns, with an ellipsis where something is cut.

    Example:
        >>> clipped("绿茶和红茶", 7)
        '绿茶...'
    """
    if text_width(text) <= width:
        return text
    taken, kept = 3, []
    for character in text:
        taken += _character_width(character)
        if taken > width:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "..."


def _character_width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _line(text: str) -> str:
    """A text on one line, without what steers a terminal."""
    return "".join(one if one.isprintable() else " " for one in " ".join(text.split()))


def _hits(hits: Sequence[ExplainedHit], stages: Sequence[StageSummary]) -> str:
    shown = [stage for stage in stages if stage.kind not in _SILENT]
    rows = [["#", "score", "node", *(f"{stage.number} {stage.name}" for stage in shown)]]
    rows += [
        [str(hit.rank), number_text(hit.score), _node(hit), *(_cell(hit, stage) for stage in shown)] for hit in hits
    ]
    head, *lines = table(rows, right=[0, 1])
    indent = " " * 4
    out = [head]
    for hit, line in zip(hits, lines, strict=True):
        out += [line, indent + clipped(_line(hit.text), _WIDTH - len(indent))]
        if hit.merged_from:
            named = ", ".join(hit.merged_from[:_UIDS_SHOWN])
            more = len(hit.merged_from) - _UIDS_SHOWN
            out.append(f"{indent}stands for {named}{f' and {more} more' if more > 0 else ''}")
    return "\n".join(out)


def _node(one: ExplainedHit | DroppedNode) -> str:
    """A node as people would name it."""
    return f"{clipped(_line(one.path), 40)} {_line(one.group)} {one.number}" if one.path else one.uid


def _cell(hit: ExplainedHit, stage: StageSummary) -> str:
    """A hit in a stage: rank, score, share; the best of those that it stands for."""
    there = [one for one in hit.standings if one.stage == stage.number]
    ranked = [one for one in there if one.rank is not None]
    if not ranked:
        return "-"
    best = ranked[0]
    cell = f"#{best.rank}" if best.score is None else f"#{best.rank} {number_text(best.score)}"
    if best.share is not None:
        cell += f" (+{number_text(best.share)})"
    return cell if len(ranked) == 1 else f"{cell} and {len(ranked) - 1} more"


def _stages(query: str, stages: Sequence[StageSummary], dropped: Sequence[DroppedNode]) -> str:
    rows = [["stage", "from", "gave", "dropped", "ms", "set to"]]
    for stage in stages:
        told = {name: value for name, value in stage.said.items() if (name, value) != ("query", query)}
        said = ", ".join(f"{name}={_line(str(json_ready(value)))}" for name, value in told.items())
        inputs = " ".join(map(str, stage.inputs)) or "-"
        counts = [str(stage.given), str(stage.dropped), f"{1000 * stage.seconds:.1f}"]
        rows.append([f"{stage.number} {stage.name}", inputs, *counts, clipped(said, _WIDTH)])
    lines = table(rows, right=[2, 3, 4])
    for stage in stages:
        lost = [one for one in dropped if one.stage == stage.number]
        if lost:
            named = [f"#{one.rank} {number_text(one.score)} {_node(one)}" for one in lost[:_DROPPED_SHOWN]]
            more = f"; and {len(lost) - len(named)} more" if len(lost) > len(named) else ""
            lines.append(f"{stage.number} {stage.name} dropped {'; '.join(named)}{more}")
    return "\n".join(lines)
