"""Fingerprints of transforms: equal for equal code and parameters, whatever its comments, layout or interpreter.

A function counts by its code, together with its defaults, the closure values and the globals
it reads, as far as those are immutable plain values or functions of the same rule; an instance by its class and its
attributes. Code of the standard library and of installed packages counts by module and name, lazyrag's own by name
alone. What cannot be seen (a client, a model, a mutable object) is listed as unseen: only ``version=`` or an
``identity`` attribute can tell two such apart.
"""

from __future__ import annotations

import ast
import dataclasses
import datetime as dt
import decimal
import dis
import enum
import fractions
import functools
import importlib.util
import inspect
import itertools
import linecache
import re
import struct
import sys
import sysconfig
import time
import types
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
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


_PRIMITIVES = (
    *(type(None), bool, int, float, complex, str, bytes, range),
    *(dt.date, dt.datetime, dt.time, dt.timedelta, decimal.Decimal, fractions.Fraction),
)
# What the language or its library keeps in a class for itself.
_NOT_ITS_OWN = ("_abc_impl", "_is_protocol", "_is_runtime_protocol", "__annotate__", "__annotate_func__", "__class__")
# Groups of the first release whose transforms derive from or call these count their modules of that time, and are not
# built again.
_AS_RELEASED = {
    "CharacterSplitter": ".transforms.separators",
    "CodeSplitter": ".transforms.code",
    "DocNode": ".data.node",
    "HTMLSplitter": ".transforms.html",
    "JSONSplitter": ".transforms.json",
    "LLMParser": ".transforms.llm",
    "MarkdownSplitter": ".transforms.markdown",
    "NodeTransform": ".transforms.base",
    "PreProcessingRules": ".transforms.pre_processing",
    "RecursiveSplitter": ".transforms.separators",
    "Segmentation": ".transforms.rules",
    "SemanticSplitter": ".transforms.semantic",
    "SentenceSplitter": ".transforms.splitters",
    "SentenceWindow": ".transforms.windows",
    "TokenSplitter": ".transforms.separators",
}
_CACHED_FUNCTION = type(functools.lru_cache(lambda: None))


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What identifies a transform.

    Args:
        value: 32 hexadecimal digits.
        unseen: What the value does not tell: names and the objects behind them.
    """

    value: str
    unseen: tuple[tuple[str, Any], ...] = ()

    def tells_apart(self, other: Fingerprint) -> bool:
        """Whether two definitions differ, as far as one can see: by value, or by an unseen object's identity."""
        if self.value != other.value or len(self.unseen) != len(other.unseen):
            return True
        pairs = zip(self.unseen, other.unseen, strict=True)
        return any(name != other_name or obj is not other_obj for (name, obj), (other_name, other_obj) in pairs)


def fingerprint(transform: Any, *parts: str) -> Fingerprint:
    """The fingerprint of a transform and whatever else decides about its result.

    Args:
        transform: A function, an instance, a partial, a bound method.
        parts: Further strings that take part.

    Example:
        >>> fingerprint(lambda d: d.split("a")).value == fingerprint(lambda d: d.split("b")).value
        False
    """
    describer = _Describer(_top(_innermost(transform).__module__))
    try:
        description = describer.describe("transform", transform)
    except RecursionError:  # a structure as deep as Python's stack
        return Fingerprint(digest(["unseen", *parts]), (("transform", transform),))
    return Fingerprint(digest([description, *parts]), tuple(describer.unseen))


class _CannotSee(Exception):  # noqa: N818  no error: a library's object is unseen as a whole
    """Raised instead of listing what is unseen."""


class _Describer:
    """Writes an object as a string that is equal for equal code; lists what it cannot see.

    An object that is met again counts as "again", so that work grows with the number of objects and circles end.

    Args:
        home: The transform's own top-level package, whose code counts even if it is installed.
    """

    def __init__(self, home: str) -> None:
        self.unseen: list[tuple[str, Any]] = []
        self._home = home
        self._whole = False  # raise _CannotSee instead of listing
        self._met: dict[int, tuple[int, Any]] = {}  # by id: its number, and the object, which keeps the id taken
        self._collections: dict[int, tuple[str, Any]] = {}

    def describe(self, name: str, value: Any) -> str:
        plain = _immutable(value)
        if plain is not None:
            return plain
        if isinstance(value, (tuple, frozenset)):
            return self._collection(name, value)
        if id(value) in self._met:
            return f"again:{self._met[id(value)][0]}"
        self._met[id(value)] = (len(self._met), value)
        return self._named(value) or self._callable(name, value) or self._instance(name, value)

    def _collection(self, name: str, value: tuple[Any, ...] | frozenset[Any]) -> str:
        # Equal ones count as equal, whether they are one object or not, which may differ between Python versions.
        if id(value) not in self._collections:
            parts = [self.describe(f"{name}[{index}]", one) for index, one in enumerate(value)]
            told = f"{type(value).__name__}:{digest(sorted(parts) if isinstance(value, frozenset) else parts)}"
            self._collections[id(value)] = (told, value)
        return self._collections[id(value)][0]

    def _named(self, value: Any) -> str | None:
        """What counts by its name; None for anything else."""
        if isinstance(value, types.ModuleType):
            return f"named:{_module_of(value.__name__)}" if self._is_library(value.__name__) else None
        if isinstance(value, types.MethodDescriptorType):
            return f"named:{value.__qualname__}"
        if isinstance(value, (type, types.FunctionType)):
            if not self._is_library(value.__module__):
                return None
            return f"named:{_module_of(value.__module__, value.__qualname__)}.{value.__qualname__}" + self._wrapped(
                value
            )
        return self._identified(value)

    def _identified(self, value: Any) -> str | None:
        """What says itself who it is; None for anything else."""
        if not hasattr(type(value), "identity") and "identity" not in getattr(value, "__dict__", {}):
            return None  # not asked for by getattr: an object's own __getattr__ may do anything
        identity = value.identity
        if not isinstance(identity, str) or not identity:
            return None
        # What an identity leaves out it may name: objects that count as they would alone.
        rest = value.identity_rests_on if hasattr(type(value), "identity_rests_on") else {}
        told = [f" {name}={self.describe(f'{type(value).__name__}.{name}', one)}" for name, one in rest.items()]
        return "".join([f"identity:{identity}", *told])

    def _wrapped(self, value: Any) -> str:
        """The user's own functions in a library function's closure: those that it decorates or composes."""
        told = ""
        for cell in getattr(value, "__closure__", None) or ():
            held = cell.cell_contents if _is_filled(cell) else None
            for one in held.values() if isinstance(held, dict) else (held,):
                if isinstance(one, types.FunctionType) and not self._is_library(one.__module__):
                    told += self.describe(one.__name__, one)
        return told

    def _callable(self, name: str, value: Any) -> str | None:  # noqa: PLR0911  one return for each kind
        """What counts by the code behind it; None for anything else."""
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, types.FunctionType):
            return self._function(name, value)
        if isinstance(value, (types.BuiltinFunctionType, types.MethodWrapperType)):
            return digest(["built-in", value.__qualname__, self.describe(f"{name}.self", value.__self__)])
        if isinstance(value, types.MethodType):
            function = self.describe(name, value.__func__)
            code = getattr(value.__func__, "__code__", None)
            if code is not None and _installed(code.co_filename) and not isinstance(value.__self__, type):
                # What a library's object remembers of its use is its own affair.
                return digest(["method", function, self._list(f"{name}.self", value.__self__)])
            return digest(["method", function, self.describe(f"{name}.self", value.__self__)])
        if isinstance(value, functools.partial):
            return digest(["partial", self.describe(name, value.func), self._arguments(name, value)])
        if isinstance(value, _CACHED_FUNCTION):
            return digest(["cached", self.describe(name, value.__wrapped__)])
        return None

    def _arguments(self, name: str, partial: functools.partial[Any] | functools.partialmethod[Any]) -> str:
        return self._parameters(name, {**dict(enumerate(partial.args)), **partial.keywords})

    def _list(self, name: str, value: Any) -> str:
        if self._whole:
            raise _CannotSee
        self.unseen.append((name, value))
        return f"unseen:{type(value).__qualname__}"

    def _function(self, name: str, function: types.FunctionType) -> str:
        code = function.__code__
        parts = ["function", code_text(code)]
        parts.append(self._parameters(f"{name} default", dict(enumerate(function.__defaults__ or ()))))
        parts.append(self._parameters(f"{name} default", function.__kwdefaults__ or {}))
        own = {key: value for key, value in vars(function).items() if key != "__wrapped__"}
        parts.append(self._parameters(name, own))
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                parts.append(self.describe(variable, cell.cell_contents))
            except ValueError:  # an empty cell: assigned later, or never
                parts.append("empty")
        read = dict(
            self._resolved(path, function.__globals__) for path in names_read(code) if path[0] in function.__globals__
        )
        parts += [self.describe(variable, value) for variable, value in sorted(read.items(), key=lambda item: item[0])]
        for module in sorted({*imports(code)}):
            if module.startswith(".") or not self._is_library(module):
                parts.append(self._list(f"import {module}", sys.intern(module)))
        return digest(parts)

    def _resolved(self, path: tuple[str, ...], known: Mapping[str, Any]) -> tuple[str, Any]:
        """What a function reads by a global's name: of a module of the user's own, the attribute that is read."""
        value = known[path[0]]
        used = 1
        while (
            used < len(path)
            and isinstance(value, types.ModuleType)
            and not self._is_library(value.__name__)
            and hasattr(value, path[used])
        ):
            value = getattr(value, path[used])
            used += 1
        return ".".join(path[:used]), value

    def _class(self, cls: type) -> str:
        """A class's own methods and attributes, its bases and its metaclass."""
        parts = [
            "class",
            cls.__qualname__,
            *(self.describe(base.__name__, base) for base in (*cls.__bases__, type(cls))),
        ]
        skipped = set(_NOT_ITS_OWN)
        if dataclasses.is_dataclass(cls):
            held = {one.name: (one.default, one.default_factory) for one in dataclasses.fields(cls)}
            given = {name: [one for one in both if one is not dataclasses.MISSING] for name, both in held.items()}
            parts += [f"fields={list(held)}"]
            parts += [self._parameters(f"{cls.__name__}.{name}", dict(enumerate(some))) for name, some in given.items()]
            skipped |= {*held}
        if issubclass(cls, enum.Enum):
            parts.append(self._parameters(cls.__name__, {name: one.value for name, one in cls.__members__.items()}))
            skipped |= {*cls.__members__} | {name for name in vars(cls) if re.fullmatch("_[^_].*_", name)}
        for name, member in sorted(vars(cls).items()):
            if name not in skipped:
                parts += [f"{name}={told}" for told in self._member(f"{cls.__name__}.{name}", member)]
        return digest(parts)

    def _member(self, name: str, member: Any) -> list[str]:
        """What a class's attribute tells; nothing where the language, not the class, put it there."""
        if isinstance(member, property):
            member = (member.fget, member.fset, member.fdel)
        elif isinstance(member, functools.cached_property):
            member = member.func
        elif isinstance(member, functools.partialmethod):
            return [self.describe(name, member.func), self._arguments(name, member)]
        elif isinstance(member, (classmethod, staticmethod)):
            member = member.__func__
        if isinstance(member, types.FunctionType):
            return [] if _is_made(member) else [self._function(name, member)]
        if name.rpartition(".")[2].startswith("__") and not callable(member):
            return []
        if inspect.isdatadescriptor(member) and self._is_library(type(member).__module__):
            return []
        return [_plain(member) or self.describe(name, member)]

    def _instance(self, name: str, value: Any) -> str:
        attributes = _attributes(value)
        if attributes is None:
            return self._list(name, value)
        if not self._is_library(type(value).__module__):
            return digest(["instance", self.describe(name, type(value)), self._parameters(name, attributes)])
        # What is inside a library's object is its own affair: it counts as a whole or not at all.
        met, collections, whole = dict(self._met), dict(self._collections), self._whole
        self._whole = True
        try:
            inside = self._parameters(name, attributes)
        except _CannotSee:
            self._met, self._collections = met, collections
            inside = None
        finally:
            self._whole = whole
        if inside is None:
            return self._list(name, value)
        return digest(["instance", self.describe(name, type(value)), inside])

    def _parameters(self, name: str, values: Mapping[Any, Any]) -> str:
        """Parameters count by value, lists and mappings of plain values included."""
        parts = []
        for key, value in sorted(values.items(), key=lambda item: str(item[0])):
            parts.append(f"{key}={_plain(value) or self.describe(f'{name}.{key}', value)}")
        return digest(parts)

    def _is_library(self, module: str | None) -> bool:
        """Whether code counts by name: the language's, its library's, this package's, that of other packages."""
        top = _top(module)
        if top in sys.stdlib_module_names or top == "builtins":
            return True
        return top != self._home and (top == "lazyrag" or _installed(_lies_in(top)))


def _installed(file: str) -> bool:
    """Whether a file was put there by an installer, in this environment or one that it builds on."""
    return not {"site-packages", "dist-packages"}.isdisjoint(PurePath(file).parts)


def _lies_in(top: str) -> str:
    """The file or folder of a top-level package, imported or not; "" where there is none."""
    module = sys.modules.get(top)
    spec = getattr(module, "__spec__", None)
    if module is None:
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            return ""
    folders = getattr(spec, "submodule_search_locations", None) or [""]
    return getattr(module, "__file__", None) or getattr(spec, "origin", None) or str(next(iter(folders)))


def _module_of(module: str, name: str = "") -> str:
    """A module's name, but for this package's own: its classes and functions may move from module to module."""
    return f"lazyrag{_AS_RELEASED.get(name, '')}" if _top(module) == "lazyrag" else module


def _top(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _innermost(transform: Any) -> Any:
    """The function or class whose code a transform runs."""
    while isinstance(transform, functools.partial):
        transform = transform.func
    if isinstance(transform, types.MethodType):
        transform = transform.__func__
    return transform if isinstance(transform, (types.FunctionType, type)) else type(transform)


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _is_made(function: types.FunctionType) -> bool:
    """Whether the standard library made a method, as for dataclasses and enums: such ones differ between versions."""
    file = function.__code__.co_filename
    if file.startswith("<"):  # no file: made by exec, unless all of its module is
        return bool(getattr(sys.modules.get(function.__module__), "__file__", None))
    return file.startswith(sysconfig.get_path("stdlib")) and not _installed(file)


class _Bare:
    """An instance of this holds nothing but its attributes."""


def _attributes(value: Any) -> dict[str, Any] | None:
    """An instance's attributes; None if it holds more than those, as what is written in C does."""
    cls = type(value)
    slots = _slots(cls)
    pointer = struct.calcsize("P")
    more = cls.__itemsize__ or cls.__basicsize__ > _Bare.__basicsize__ + pointer * len(slots)
    if more or not (slots or hasattr(value, "__dict__")):
        return None
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    remembered = {
        name for base in cls.__mro__ for name, one in vars(base).items() if isinstance(one, functools.cached_property)
    }
    return (
        {**held, **{name: one for name, one in vars(value).items() if name not in remembered}}
        if hasattr(value, "__dict__")
        else held
    )


def _slots(cls: type) -> list[str]:
    """Names of the attributes that a class and its bases keep in slots, as they are stored."""
    found = []
    for base in cls.__mro__:
        given = vars(base).get("__slots__", ())
        for name in (given,) if isinstance(given, str) else given:
            private = name.startswith("__") and not name.endswith("__")
            found.append(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return [name for name in found if name not in ("__dict__", "__weakref__")]


def _immutable(value: Any) -> str | None:
    """A plain value that cannot change; None for anything else."""
    if isinstance(value, re.Pattern):
        return f"pattern:{value.pattern!r}/{value.flags}"
    if isinstance(value, PurePath):
        return f"path:{value.as_posix()}"
    return f"{type(value).__name__}:{value!r}" if type(value) in _PRIMITIVES else None


def _plain(value: Any) -> str | None:
    """Nested lists, tuples, sets and mappings of plain values; None for anything else."""
    if isinstance(value, (list, tuple, set, frozenset)):
        parts = [_plain(one) for one in value]
        if None in parts:
            return None
        return f"{type(value).__name__}{sorted(map(str, parts)) if isinstance(value, (set, frozenset)) else parts}"
    if isinstance(value, dict):
        pairs = [(_plain(key), _plain(held)) for key, held in value.items()]
        return None if any(None in pair for pair in pairs) else f"dict{sorted(map(str, pairs))}"
    return _immutable(value)
