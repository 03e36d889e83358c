"""The lines that open the blocks around a line of code."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.text.indentation import enclosing_lines

JAVA = """\
package tea;

// Boils water.
public class Kettle
{
    @Override
    public int boil(
        int litres
    ) {
        // Slowly.
        if (litres > 2) {
            return 100;
        } else {
            return 99;
        }
    }

    private int pour() { return 1; }
}

class Cup {
    int size;
}
"""


def labels(code: str) -> dict[str, list[str]]:
    """The labels of a code's lines, by the line without its indentation."""
    return {
        code[place.start :].partition("\n")[0].strip(): place.label.split("\n")
        if place.label
        else []
        for place in enclosing_lines(code)
    }


def test_blocks_are_named_by_the_line_that_opens_them() -> None:
    """Brackets, comments and annotations stand between a block and its name; closed blocks are
    left.
    """
    around = labels(JAVA)
    assert around["return 100;"] == [
        "public class Kettle",
        "public int boil(",
        "if (litres > 2) {",
    ]
    assert around["private int pour() { return 1; }"] == ["public class Kettle"]
    assert around["int size;"] == ["class Cup {"]
    assert around["class Cup {"] == []


@pytest.mark.parametrize("code", ["", "\n \n", "x", "\tx\r\n\ty", "}\n  }\n", "    deep\nflat"])
def test_no_block_around(code: str) -> None:
    """Blank lines, lone lines and brackets are inside nothing."""
    assert not any(labels(code).values())


def test_labels_are_bounded() -> None:
    """Of many blocks the innermost eight, of a long line its beginning."""
    code = "".join(f"{' ' * depth}level{depth}{'x' * 500}\n" for depth in range(30))
    last = labels(code)[f"level29{'x' * 500}"]
    assert [line.partition("x")[0] for line in last] == [f"level{depth}" for depth in range(21, 29)]
    assert {len(line) for line in last} == {120}


def statements(depth: int) -> st.SearchStrategy[list[object]]:
    """Nested bodies: a number is a statement, a list a function's body."""
    leaf = st.just(0)
    return st.lists(
        leaf if depth == 0 else st.one_of(leaf, statements(depth - 1)), min_size=1, max_size=4
    )


def written(body: list[object], depth: int, names: list[str]) -> str:
    """Python code of a body, with each function named."""
    code = ""
    for part in body:
        names.append(f"name{len(names)}")
        if isinstance(part, list):
            code += f"{'    ' * depth}def {names[-1]}():\n" + written(part, depth + 1, names)
        else:
            code += f"{'    ' * depth}{names[-1]} = 1\n"
    return code


@given(statements(4))
def test_python_functions_are_those_of_its_parser(body: list[object]) -> None:
    """Every line is inside the functions in which Python's own parser has it."""
    code = written(body, 0, [])
    places = {place.start: place.label for place in enclosing_lines(code)}
    starts = [0]
    for line in code.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def compare(node: ast.AST, around: list[str]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                assert places[starts[child.lineno - 1]] == "\n".join(around)
            inner = [f"def {child.name}():"] if isinstance(child, ast.FunctionDef) else []
            compare(child, [*around, *inner])

    compare(ast.parse(code), [])
