"""What tools/house.py counts, on small modules, and what tools/budgets.py calls lost."""

from __future__ import annotations

import ast
import re
import sys

import pytest

from tests.interpreter import ROOT, python
from tests.shared import shared

SOURCE = '''"""A docstring
of two lines."""
import os  # a comment

# another one

def half(number, own):
    """A docstring."""
    if number % 2 or number > 9:
        raise ValueError("odd")
    low, high = 1, number
    low, high = high, low
    return [cell for row in ([low],) for cell in row]
'''


@pytest.fixture
def tools(monkeypatch):
    """Both scripts as modules."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    for name in ("house", "budgets"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import budgets

    return budgets


def module(tools, name: str, source: str):
    """A module of the package with this source."""
    return tools.house.Module(name, source, ast.parse(source))


def test_tokens_leave_out_prose(tools):
    """Docstrings, comments and blank lines do not count."""
    commented = module(tools, "lazyrag.half", SOURCE)
    bare = module(tools, "lazyrag.half", "import os\n")
    assert tools.house.count_tokens(bare) == (2, 1)
    assert tools.house.count_tokens(commented)[1] == 7


def test_density_counts_what_is_hard_to_read(tools):
    """Nested loops in a comprehension, unrelated values assigned at once, generic names; a swap is
    none.
    """
    census = tools.house.Census()
    census.add(module(tools, "lazyrag.data.half", SOURCE))
    assert census.places["nested"] == ["lazyrag.data.half:13"]
    assert census.places["tuples"] == ["lazyrag.data.half:11"]
    assert census.places["generic"] == ["lazyrag.data.half:7 own"]


def test_branches_of_a_function(tools):
    """An `if`, each operand of `or` but the first, and each loop of a comprehension are
    decisions.
    """
    function = ast.parse(SOURCE).body[-1]
    assert tools.house.count_branches(function) == 5


def test_layers_count_imports_strings_and_registries(tools):
    """A lower package that names a higher one is an edge upward, in whatever form it does."""
    sources = {
        "lazyrag.server": "",
        "lazyrag.document": "from lazyrag.data import node",
        "lazyrag.data": "",
        "lazyrag.data.node": "def load():\n    import lazyrag.server",
        "lazyrag.data.late": "NAME = 'lazyrag.document'",
        "lazyrag.data.entry": "NAME = 'lazyrag.server:app'",
    }
    modules = {name: module(tools, name, source) for name, source in sources.items()}
    imports = tools.house.Imports()
    for each in modules.values():
        imports.add(each, modules)
    figures, places = tools.house.measure_imports(imports)
    assert places["upward"] == [
        "lazyrag.data.late -> lazyrag.document",
        "lazyrag.data.node -> lazyrag.server",
    ]
    assert places["registered upward"] == ["lazyrag.data.entry -> lazyrag.server"]
    assert figures["modules imported by a string"] == 1


def test_circles_are_groups_of_modules(tools):
    """Modules that reach each other are one circle; a chain is none."""
    needs = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}}
    assert tools.house.find_circles(needs) == [["a", "b", "c"]]


def test_what_was_reached_is_not_lost(tools):
    """A figure may miss its bound, but be no worse than the best value recorded."""
    figures = dict(tools.BOUNDS)
    assert tools.find_lost(figures, {}) == []
    worse = {**figures, "tokens": 600_000, "circles among modules": 1}
    assert tools.find_lost(worse, {"tokens": 600_000}) == ["circles among modules"]
    fewer = {**figures, "test lines with public imports only": 0.5}
    assert tools.find_lost(fewer, {}) == ["test lines with public imports only"]


def test_calls_are_frames_of_the_package():
    """Those of other packages are none."""
    script = (
        "import sys; sys.path.insert(0, 'tools')\n"
        "import house\n"
        "import lazyrag\n"
        "print(house.count_calls(lazyrag.__dir__), house.count_calls(lambda: sorted([2, 1])))\n"
    )
    run = python("-c", script)
    assert run.stdout == "(1, 1) (0, 0)\n", run.stderr


@pytest.mark.slow
@pytest.mark.shared
def test_the_rules_are_those_of_the_design():
    """The copy that CI runs alone measures what the design's own script does."""
    design = python(str(shared("tools", "house"))).stdout
    own = python("tools/budgets.py").stdout
    rows = [line for line in own.splitlines()[1:] if re.search(r"\d", line)]
    numbers = [
        re.findall(r"(?<= )[\d,.]+(?= |$)", line.removesuffix("missed"))[-3] for line in rows
    ]
    measured = re.findall(r"^.{58} *([\d,.]+)", design, re.MULTILINE)
    assert set(numbers[:-1]) - {"0"} <= set(measured) | {"0"}
