"""The shape of the package itself."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from pathlib import Path

import lazyrag

ROOT = Path(lazyrag.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


def _name(path: Path) -> str:
    parts = ["lazyrag", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Each module's tree, by its name."""
    return {_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


@functools.cache
def nodes_of(name: str) -> list[ast.AST]:
    """All nodes of a module."""
    return list(ast.walk(modules()[name]))


def test_modules_have_a_name():
    """All modules are found, and none is called utils, helpers, common or misc."""
    assert {
        "lazyrag",
        "lazyrag.data.filters",
        "lazyrag.document.document",
        "lazyrag.testing",
    } <= set(modules())
    assert len(modules()) > 40
    drawers = {"util", "utils", "helper", "helpers", "common", "misc"}
    assert [name for name in modules() if name.rpartition(".")[2] in drawers] == []


def _imports(name: str) -> set[str]:
    """The package's own modules that a module imports anywhere in it, those for type checkers
    included.
    """
    found = set()
    for node in nodes_of(name):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
    return {one for one in found if one in modules()} - {name}


def _for_type_checkers(name: str) -> set[str]:
    """The modules that a module imports under TYPE_CHECKING, and nowhere else at its top."""
    names: dict[bool, set[str]] = {True: set(), False: set()}
    for node in nodes_of(name):
        if (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.Name)
            and node.test.id == "TYPE_CHECKING"
        ):
            names[True] |= {
                one.module or "" for one in node.body if isinstance(one, ast.ImportFrom)
            }
    for node in modules()[name].body:
        if isinstance(node, ast.ImportFrom):
            names[False].add(node.module or "")
    return names[True] - names[False]


def _circle(graph: dict[str, set[str]]) -> list[str]:
    """Some circle in a graph, or nothing."""
    done: set[str] = set()

    def walk(name: str, line: list[str]) -> list[str]:
        if name in line:
            return [*line[line.index(name) :], name]
        if name in done:
            return []
        for other in sorted(graph[name]):
            if found := walk(other, [*line, name]):
                return found
        done.add(name)
        return []

    for name in graph:
        if found := walk(name, []):
            return found
    return []


def test_imports_form_no_circle():
    """At run time, in functions too; the table of public names leads down and is led to by
    nobody.
    """
    # the search does find one
    assert _circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c", "b"]
    assert _circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
    graph = {name: _imports(name) - _for_type_checkers(name) for name in modules()}
    assert sum(map(len, graph.values())) > 60
    users = [name for name, used in graph.items() if "lazyrag" in used]
    graph["lazyrag"] = set()
    assert _circle(graph) == []
    assert users == []


def _public(tree: ast.AST, prefix: str = ""):
    """Public functions and classes, methods of public classes included; not what stands inside
    functions.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if node.name.startswith("_"):
                continue
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from _public(node, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.If, ast.Try)):
            yield from _public(node, prefix)


def _is_overload(node: ast.AST) -> bool:
    return any(
        isinstance(one, ast.Name) and one.id == "overload"
        for one in getattr(node, "decorator_list", [])
    )


def _undocumented(tree: ast.Module) -> list[str]:
    bare = [] if ast.get_docstring(tree) else ["the module"]
    return bare + [
        one for one, node in _public(tree) if not ast.get_docstring(node) and not _is_overload(node)
    ]


def test_everything_public_has_a_docstring():
    """Every module, public class, function, method and property."""
    assert {name: bare for name, tree in modules().items() if (bare := _undocumented(tree))} == {}


def _is_silent(node: ast.AST) -> bool:
    """Whether this is a bare except, or a handler of Exception that neither raises nor uses the
    error.
    """
    if not isinstance(node, ast.ExceptHandler):
        return False
    broad = node.type is None or (
        isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")
    )
    raises = any(isinstance(one, ast.Raise) for one in ast.walk(node))
    uses = any(
        isinstance(one, ast.Name) and one.id == node.name
        for part in node.body
        for one in ast.walk(part)
    )
    return broad and not raises and not uses


def _prints(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    )


def _lines_of(holds: Callable[[ast.AST], bool]) -> dict[str, list[int]]:
    """By module, the lines of the nodes for which something holds."""
    found = {name: [node.lineno for node in nodes_of(name) if holds(node)] for name in modules()}
    return {name: lines for name, lines in found.items() if lines}


def test_no_swallowed_errors_prints_or_bare_asserts():
    """Nothing swallows an error or prints; input is not checked by assert, which -O drops; marked
    ones are internal.
    """
    assert _lines_of(_is_silent) == {}
    assert _lines_of(_prints) == {}
    sources = {_name(path): path.read_text(encoding="utf-8").splitlines() for path in FILES}
    asserts = {
        name: [line for line in lines if "noqa: S101" not in sources[name][line - 1]]
        for name, lines in _lines_of(lambda node: isinstance(node, ast.Assert)).items()
        if not name.startswith("lazyrag.testing")
    }
    assert {name: lines for name, lines in asserts.items() if lines} == {}
