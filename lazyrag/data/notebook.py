"""HTML of results for notebooks. Texts of files and models are escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Protocol

_PRE = "white-space: pre-wrap; margin: .4em 0"
_SHOWN = 12  # entries of a list


class ShownHit(Protocol):
    """What a notebook shows of a hit."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def text(self) -> str:
        """Its text."""

    @property
    def score(self) -> float:
        """Its score; not finite without one."""

    @property
    def label(self) -> str:
        """Its file and location."""


def answer_html(answer: Any) -> str:
    """The question, the answer, and a folded quote for each citation."""
    quotes = (
        details(f"[{citation.index}] {citation.label}", citation.text_snippet)
        for citation in answer.citations
    )
    doubts = "".join(
        f"<p>⚠ {escape(str(statement))}</p>"
        for statement in answer.statements
        if statement.findings
    )
    problems = "".join(f"<p>⚠ {escape(problem)}</p>" for problem in answer.problems)
    return (
        f"<p><b>{escape(answer.query)}</b></p><p"
        f" style='{_PRE}'>{escape(answer.text)}</p>{''.join(quotes)}{doubts}{problems}"
    )


def hits_html(hits: Iterable[ShownHit]) -> str:
    """A folded text for each hit, best first; a single one is open, and has no rank."""
    listed = list(hits)
    if len(listed) == 1:
        return details(_hit_line(listed[0]), listed[0].text, is_open=True)
    return "".join(
        details(f"{rank}. {_hit_line(hit)}", hit.text) for rank, hit in enumerate(listed, start=1)
    )


def _hit_line(hit: ShownHit) -> str:
    score = f" · {hit.score:.3f}" if math.isfinite(hit.score) else ""
    return f"{hit.label or hit.id}{score}"


def details(summary: str, text: str, *, is_open: bool = False) -> str:
    """A line that unfolds to a text."""
    quote = f"<blockquote style='{_PRE}'>{escape(text)}</blockquote>"
    tag = "details open" if is_open else "details"
    return f"<{tag}><summary>{escape(summary)}</summary>{quote}</details>"


def lines_html(title: str, lines: Sequence[str]) -> str:
    """A title, and up to 12 lines; the others are counted."""
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    items = "".join(f"<li>{escape(line)}</li>" for line in [*lines[:_SHOWN], *more])
    return f"<p>{escape(title)}</p>" + (f"<ul>{items}</ul>" if items else "")


def tree_html(
    title: str, children: Mapping[str, Sequence[str]], labels: Mapping[str, str], root: str
) -> str:
    """A title and a tree.

    Args:
        title: The title.
        children: Names by the name of their parent.
        labels: What to show of each name.
        root: The name at the top.
    """

    def branch(name: str) -> str:
        below = "".join(map(branch, children.get(name, ())))
        return f"<li>{escape(labels[name])}{f'<ul>{below}</ul>' if below else ''}</li>"

    return f"<p><b>{escape(title)}</b></p><ul>{branch(root)}</ul>"
