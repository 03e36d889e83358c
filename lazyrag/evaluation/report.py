"""Values measured on many questions, as a table, JSON and a picture: what is missing is never counted as 0."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from lazyrag.errors import EvaluationError
from lazyrag.evaluation.answers import mean

_WIDTH, _LEFT, _ROW, _PAD = 640, 200, 28, 16


@dataclass(frozen=True, slots=True)
class MeasureReport:
    """What was measured, one row for each question.

    Args:
        names: What a row is called: the question, or its id.
        rows: By measure; None where a measure does not apply. A measure that a row lacks does not apply to it, either.

    Raises:
        EvaluationError: If there are not as many names as rows, or a value is no finite number.

    Example:
        >>> report = MeasureReport(["q1", "q2"], [{"f1": 1.0}, {"f1": None, "em": 0.0}])
        >>> report.means, report.counts
        ({'f1': 1.0, 'em': 0.0}, {'f1': 1, 'em': 1})
    """

    names: Sequence[str]
    rows: Sequence[Mapping[str, float | None]]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.rows):
            msg = f"There are {len(self.names)} names and {len(self.rows)} rows; give one name for each row."
            raise EvaluationError(msg)
        for name, row in zip(self.names, self.rows, strict=True):
            for measure, value in row.items():
                if value is not None and (not isinstance(value, (int, float)) or not math.isfinite(value)):
                    msg = f"{measure} of {name!r:.60} is {value!r:.40}; give a finite number, or None for none."
                    raise EvaluationError(msg)

    @property
    def measures(self) -> tuple[str, ...]:
        """All that was measured, in the order in which it first came."""
        return tuple(dict.fromkeys(measure for row in self.rows for measure in row))

    @property
    def means(self) -> dict[str, float | None]:
        """By measure, the mean of the values that there are; None where there is none."""
        return {measure: mean([row.get(measure) for row in self.rows]) for measure in self.measures}

    @property
    def counts(self) -> dict[str, int]:
        """By measure, of how many rows the mean is."""
        return {measure: sum(row.get(measure) is not None for row in self.rows) for measure in self.measures}

    def table(self) -> str:
        """Measures with their means and counts, in Markdown.

        Example:
            >>> print(MeasureReport(["q1"], [{"f1": 0.5}]).table())
            | measure | mean | questions |
            |---|---|---|
            | f1 | 0.5000 | 1 of 1 |
        """
        means, counts = self.means, self.counts
        rows = [f"| {name} | {_shown(means[name])} | {counts[name]} of {len(self.rows)} |" for name in self.measures]
        return "\n".join(["| measure | mean | questions |", "|---|---|---|", *rows])

    def to_dict(self) -> dict[str, Any]:
        """Means, counts and rows; ready for JSON, with null for what is missing."""
        rows = [{"name": name, **row} for name, row in zip(self.names, self.rows, strict=True)]
        return {"means": self.means, "counts": self.counts, "rows": rows}

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The same as JSON; also written to a file where there is a path."""
        text = json.dumps(self.to_dict(), ensure_ascii=False, indent=2, allow_nan=False)
        return _written(text, path)

    def plot(self, path: str | os.PathLike[str] | None = None) -> str:
        """A bar for each mean, as SVG, which every browser shows; also written to a file where there is a path.

        Measures have different units: each bar is its mean divided by the larger of 1 and the measure's largest value.
        """
        means, counts = self.means, self.counts
        height = 2 * _PAD + _ROW * max(1, len(means))
        box = f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="13"'
        lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {box}>']
        for at, (measure, value) in enumerate(means.items()):
            largest = max([1.0, *(abs(one) for row in self.rows if (one := row.get(measure)) is not None)])
            length = (_WIDTH - _LEFT - 140) * abs(value or 0.0) / largest
            top = _PAD + _ROW * at
            told = f"{_shown(value)} ({counts[measure]} of {len(self.rows)})"
            lines += [
                f'<text x="{_LEFT - 8}" y="{top + 17}" text-anchor="end">{escape(measure)}</text>',
                f'<rect x="{_LEFT}" y="{top + 4}" width="{length:.1f}" height="{_ROW - 10}" fill="#4477aa"/>',
                f'<text x="{_LEFT + length + 6:.1f}" y="{top + 17}">{told}</text>',
            ]
        return _written("\n".join([*lines, "</svg>"]), path)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _written(text: str, path: str | os.PathLike[str] | None) -> str:
    if path is not None:
        Path(path).write_text(text + "\n", encoding="utf-8")
    return text
