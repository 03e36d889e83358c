"""Code as text that is equal for equal code, whatever its comments, layout or interpreter."""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import itertools
import linecache
import sys
import time
import types
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lazyrag.data.segment import digest

_MOST_ATTEMPTS = 20
_DEFINITIONS = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef)


def code_text(code: types.CodeType) -> str:
    """A function's normalised syntax tree; its bytecode where no source is at hand, or it is not the code that runs.

    Bytecode is tagged with the Python version, since every version compiles in its own way.
    """
    node = _definition(code)
    try:
        return _bytecode(code) if node is None else _normal(node)
    except RecursionError:  # hundreds of branches in one another
        return _bytecode(code)


def names_read(code: types.CodeType) -> Iterator[tuple[str, ...]]:
    """The globals that a function and those inside it read, each with the attributes read from it in one go.

    Example:
        >>> list(names_read((lambda: os.path.join).__code__))
        [('os', 'path', 'join')]
    """
    path: tuple[str, ...] = ()
    for instruction in _instructions(code):
        if path and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            path = (*path, str(instruction.argval))
            continue
        if path:
            yield path
        path = (str(instruction.argval),) if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") else ()
    for inner in _inner(code):
        yield from names_read(inner)


def imports(code: types.CodeType) -> Iterator[str]:
    """The modules that a function and those inside it import while they run; relative ones begin with a dot."""
    before: list[Any] = [0, 0]
    for instruction in _instructions(code):
        if instruction.opname == "IMPORT_NAME":
            level = before[-2]  # behind it comes the list of names
            yield "." * (level if isinstance(level, int) else 0) + str(instruction.argval)
        before.append(instruction.argval)
    for inner in _inner(code):
        yield from imports(inner)


def _instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    """Without the prefixes that only widen the argument of the next one."""
    return (one for one in dis.get_instructions(code) if one.opname != "EXTENDED_ARG")


def _inner(code: types.CodeType) -> Iterator[types.CodeType]:
    return (one for one in code.co_consts if isinstance(one, types.CodeType))


def _bytecode(code: types.CodeType) -> str:
    version = f"{sys.implementation.name}{sys.version_info[0]}.{sys.version_info[1]}"
    constants = map(_constant, code.co_consts[_has_docstring(code) :])
    return digest([version, code.co_code.hex(), *code.co_names, *code.co_varnames, *code.co_freevars, "|", *constants])


def _constant(value: object) -> str:
    if isinstance(value, types.CodeType):
        return _bytecode(value)
    if isinstance(value, frozenset):  # its order differs from run to run
        return f"frozenset{sorted(map(_constant, value))}"
    return f"tuple{list(map(_constant, value))}" if isinstance(value, tuple) else repr(value)


def _has_docstring(code: types.CodeType) -> bool:
    """Whether the first constant is a docstring: Python 3.14 says so, before it was so for every ``def``."""
    if sys.version_info >= (3, 14):
        return bool(code.co_flags & inspect.CO_HAS_DOCSTRING)
    return not code.co_name.startswith("<") and bool(code.co_consts) and isinstance(code.co_consts[0], str)


def _definition(code: types.CodeType) -> ast.AST | None:
    """The syntax tree of the function that this code was compiled from, None where it cannot be told for certain."""
    lines = linecache.getlines(code.co_filename)
    parsed = _parsed(code.co_filename, "".join(lines)) if lines else None
    if parsed is None:
        return None
    definitions, codes = parsed
    if code not in codes:  # the file has changed since it was imported
        return None
    named = [
        node for node in definitions.get(code.co_firstlineno, ()) if getattr(node, "name", "<lambda>") == code.co_name
    ]
    if len(named) > 1:
        named = [node for node in named if _spans(node, code)]
    return named[0] if len(named) == 1 else None


@functools.lru_cache(maxsize=64)
def _parsed(filename: str, source: str) -> tuple[Mapping[int, Sequence[ast.AST]], frozenset[types.CodeType]] | None:
    """A file's definitions by their first line, and all the code in it."""
    try:
        tree = _syntax_tree(source)
        codes = frozenset(_nested(compile(source, filename, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError):
        return None
    definitions: dict[int, list[ast.AST]] = defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITIONS):
            decorators = getattr(node, "decorator_list", [])
            definitions[min([node.lineno, *(one.lineno for one in decorators)])].append(node)
    return definitions, codes


def _syntax_tree(source: str) -> ast.Module:
    """The syntax tree of a source.

    Python 3.11 counts the depth of this recursion for all threads together, and raises SystemError where another thread
    parses at the same time (https://github.com/python/cpython/issues/106905).
    """
    for attempt in itertools.count(1):
        try:
            return ast.parse(source)
        except SystemError:
            if attempt == _MOST_ATTEMPTS:
                raise
            time.sleep(0.001 * attempt)
    raise AssertionError  # the count has no end


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for inner in _inner(code):
        yield from _nested(inner)


def _spans(node: ast.AST, code: types.CodeType) -> bool:
    """Whether the code's instructions lie within the node; tells apart several lambdas on a line (Python >= 3.11)."""
    if not hasattr(code, "co_positions"):
        return False
    body: Any = node.body if isinstance(node, ast.Lambda) else node
    start, end = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    places = [(line, column) for line, _, column, _ in code.co_positions() if line and column]
    return bool(places) and all(start <= place <= end for place in places)


def _normal(node: Any) -> str:
    """A syntax tree without positions, docstrings and empty parts, which differ between Python versions."""
    if isinstance(node, list):
        return "[" + ",".join(map(_normal, node)) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = []
    for name, value in ast.iter_fields(node):
        if name in ("ctx", "kind", "type_comment") or value is None or value == []:
            continue
        documented = name == "body" and isinstance(value, list) and _is_docstring(value[0])
        fields.append(f"{name}={_normal(value[1:] if documented else value)}")
    return f"{type(node).__name__}({','.join(fields)})"


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
