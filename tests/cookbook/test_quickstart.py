"""The quickstart notebooks run from top to bottom, as a kernel runs them, and show something after
each cell.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.interpreter import ROOT

BOOKS = [ROOT / "cookbook" / name for name in ("quickstart.ipynb", "quickstart.zh.ipynb")]


def code_of(book: Path) -> list[str]:
    """The code cells of a notebook."""
    cells = json.loads(book.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def html_of(value: Any) -> str:
    """What a notebook shows of a value: its HTML, else its repr."""
    return value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)


async def run(cells: list[str]) -> list[str]:
    """What each cell shows. Cells run in one namespace, within a running event loop, as in a
    kernel.
    """
    shown: list[str] = []
    names: dict[str, Any] = {"display": lambda *values: shown.extend(map(html_of, values))}
    pages = []
    for cell in cells:
        shown.clear()
        tree = ast.parse("\n".join(line for line in cell.splitlines() if not line.startswith("%")))
        last = (
            ast.Expression(tree.body.pop().value)
            if tree.body and isinstance(tree.body[-1], ast.Expr)
            else None
        )
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, "cell", "exec"), names)  # noqa: S102  the notebook is ours
            value = eval(compile(last, "cell", "eval"), names) if last else None  # noqa: S307
        pages.append(
            "\n".join(
                [*shown, *([html_of(value)] if value is not None else []), printed.getvalue()]
            )
        )
    return pages


@pytest.mark.slow
@pytest.mark.parametrize(
    ("book", "path", "passage"),
    [
        (BOOKS[0], "handbook/tools-and-vehicles.txt", "Forty parts"),
        (BOOKS[1], "茶园/采摘须知.txt", "每公斤90元"),
    ],
    ids=["en", "zh"],
)
def test_a_notebook_runs_and_shows_its_objects(
    book: Path,
    path: str,
    passage: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
):
    """The report, hits, the tree of groups, a rank's explanation, and an answer whose citation
    unfolds.
    """
    monkeypatch.chdir(book.parent)
    before = sorted(book.parent.iterdir())
    install, report, hits, filtered, tree, sentence, ranks, answer, citations, again = asyncio.run(
        run(code_of(book))
    )
    assert install.strip() == ""
    assert "20 added, 0 failed" in report
    assert hits.count("<details open>") == 3
    assert filtered.count("<details open>") == 1
    assert "<li>section" in tree
    assert "<li>sentence" in tree
    assert sentence.count("<details open>") == 2
    assert "<pre" in ranks
    assert passage in answer
    assert f"<details><summary>[1] {path}" in answer
    assert f"[1] {path}" in citations
    assert "20 added" in again
    assert sorted(book.parent.iterdir()) == before, "a notebook leaves nothing behind"


def test_the_notebooks_are_small_and_have_no_outputs():
    """Both languages have the same kinds of cells; the code is short."""
    books = [json.loads(book.read_text(encoding="utf-8")) for book in BOOKS]
    assert len({tuple(cell["cell_type"] for cell in book["cells"]) for book in books}) == 1
    for path, book in zip(BOOKS, books, strict=True):
        assert path.stat().st_size < 20_000
        code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
        assert len(code) == 10
        assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)
        assert max(len(cell["source"]) for cell in code) <= 10
