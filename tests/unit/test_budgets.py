"""What tools/budgets.py counts, on small modules. The package itself is measured by CI, not here."""

from __future__ import annotations

import ast

import pytest

from tests.interpreter import ROOT, python

SOURCE = '''"""A docstring
of two lines."""
import os  # a comment

# another one

def half(number):
    """A docstring."""
    if number % 2:
        msg = "odd"
        raise ValueError(msg)
    if number > 9:
        return [one for one in (
            number, 1)]
    positive("number", number)
    return number // 2
'''


@pytest.fixture
def budgets(monkeypatch):
    """The script as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    monkeypatch.delitem(__import__("sys").modules, "budgets", raising=False)
    import budgets

    return budgets


def test_code_lines_leave_out_prose(budgets):
    """Docstrings, comments and blank lines do not count; each line of a statement does."""
    module = budgets.Module("lazyrag.half", SOURCE, ast.parse(SOURCE))
    assert budgets.code_rows(module) == {3, 7, 9, 10, 11, 12, 13, 14, 15, 16}


def test_guards_and_checks(budgets):
    """A guard only raises; a call of a helper is a check as well, and so is a module of helpers."""
    module = budgets.Module("lazyrag.half", SOURCE, ast.parse(SOURCE))
    assert budgets.guard_rows(module) == {9, 10, 11}
    assert budgets.check_rows(module, frozenset()) == {9, 10, 11}
    assert budgets.check_rows(module, frozenset({"positive"})) == {9, 10, 11, 15}
    helpers = budgets.Module("lazyrag.validation", SOURCE, ast.parse(SOURCE))
    assert budgets.check_rows(helpers, frozenset()) >= {3, 7, 16}


def test_a_lonely_module_has_one_importer_beside_it(budgets):
    """An importer in another package, a second one, and the package itself make none lonely."""
    sources = {
        "lazyrag": "",
        "lazyrag.a": "from lazyrag.a import one",
        "lazyrag.a.one": "def run():\n    from lazyrag.a.two import x",
        "lazyrag.a.two": "import lazyrag.a.three",
        "lazyrag.a.three": "",
        "lazyrag.b.four": "from lazyrag.a import three",
    }
    modules = [budgets.Module(name, source, ast.parse(source)) for name, source in sources.items()]
    assert budgets.lonely_modules(modules) == ["lazyrag.a.two"]


def test_bounds_are_met_or_missed(budgets):
    """Only bounds of the column "now" are enforced; a lower bound is missed below it."""
    figures = dict.fromkeys((bound.name for bound in budgets.ALL_BOUNDS), 0.0)
    assert budgets.missed(figures) == []
    calls = "BM25 query, memory: own calls"
    assert budgets.missed({**figures, calls: 90}) == []
    assert budgets.missed({**figures, calls: 91, "AST statements": 100_000}) == [calls]
    lines = budgets.table({**figures, calls: 91}).splitlines()
    assert max(map(len, lines)) <= 80
    [line] = [line for line in lines if line.startswith(calls)]
    assert line.split()[-4:] == ["91", "90", "90", "MISSED"]
    [line] = [line for line in lines if line.startswith("test lines")]
    assert line.endswith("later")


def test_own_calls_are_frames_of_the_package():
    """Those of other packages are none."""
    script = (
        "import sys; sys.path.insert(0, 'tools')\n"
        "import budgets\n"
        "import lazyrag\n"
        "print(budgets.walk(lazyrag.__dir__), budgets.walk(sorted, [2, 1]))\n"
    )
    run = python("-c", script)
    assert run.stdout == "Walk(modules=1, calls=1) Walk(modules=0, calls=0)\n", run.stderr
