"""Fingerprints of transforms: equal for equal code and parameters, independent of comments, layout
and interpreter.

The fingerprint of a function covers its code, its defaults, and the closure values and globals that
it reads, as far as those are immutable plain values or functions; that of an instance covers its
class and attributes. Code of the standard library and of installed packages is identified by module
and name, lazyrag's own by name alone. Anything opaque (a client, a model, a mutable object) is
listed as unseen: only ``version=`` or an ``identity`` attribute distinguishes two of those.
"""

from __future__ import annotations

import ast
import dataclasses
import datetime as dt
import dis
import enum
import functools
import importlib.util
import inspect
import itertools
import linecache
import re
import struct
import sys
import time
import types
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from lazyrag.data.segment import digest

_MAX_ATTEMPTS = 20
_DEFINITIONS = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef)


def code_text(code: types.CodeType) -> str:
    """Return a function's normalised syntax tree, or its bytecode if the source is missing or
    differs from the code.

    Bytecode is tagged with the Python version, since each version compiles differently.
    """
    node = _definition(code)
    try:
        return _bytecode(code) if node is None else _normal(node)
    except RecursionError:  # deeply nested code
        return _bytecode(code)


def names_read(code: types.CodeType) -> Iterator[tuple[str, ...]]:
    """Yield the globals that a function and its inner functions read, each with its chain of
    attributes.

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
        path = (
            (str(instruction.argval),) if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") else ()
        )
    for inner in _inner(code):
        yield from names_read(inner)


def imports(code: types.CodeType) -> Iterator[str]:
    """Yield the modules that a function and its inner functions import; relative ones begin with a
    dot.
    """
    before: list[Any] = [0, 0]
    for instruction in _instructions(code):
        if instruction.opname == "IMPORT_NAME":
            level = before[-2]  # followed by the list of names
            yield "." * (level if isinstance(level, int) else 0) + str(instruction.argval)
        before.append(instruction.argval)
    for inner in _inner(code):
        yield from imports(inner)


def _instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    """Yield instructions without the prefixes that only widen the next argument."""
    return (
        instruction
        for instruction in dis.get_instructions(code)
        if instruction.opname != "EXTENDED_ARG"
    )


def _inner(code: types.CodeType) -> Iterator[types.CodeType]:
    return (constant for constant in code.co_consts if isinstance(constant, types.CodeType))


def _bytecode(code: types.CodeType) -> str:
    version = f"{sys.implementation.name}{sys.version_info[0]}.{sys.version_info[1]}"
    constants = map(_constant, code.co_consts[_has_docstring(code) :])
    return digest(
        [
            version,
            code.co_code.hex(),
            *code.co_names,
            *code.co_varnames,
            *code.co_freevars,
            "|",
            *constants,
        ]
    )


def _constant(value: object) -> str:
    if isinstance(value, types.CodeType):
        return _bytecode(value)
    if isinstance(value, frozenset):  # its order changes from run to run
        return f"frozenset{sorted(map(_constant, value))}"
    return f"tuple{list(map(_constant, value))}" if isinstance(value, tuple) else repr(value)


def _has_docstring(code: types.CodeType) -> bool:
    """Whether the first constant is a docstring: flagged since Python 3.14, true for every ``def``
    before.
    """
    if sys.version_info >= (3, 14):
        return bool(code.co_flags & inspect.CO_HAS_DOCSTRING)
    return (
        not code.co_name.startswith("<")
        and bool(code.co_consts)
        and isinstance(code.co_consts[0], str)
    )


def _definition(code: types.CodeType) -> ast.AST | None:
    """Return the syntax tree that this code was compiled from, None if uncertain."""
    lines = linecache.getlines(code.co_filename)
    parsed = _parsed(code.co_filename, "".join(lines)) if lines else None
    if parsed is None:
        return None
    definitions, codes = parsed
    if code not in codes:  # the file has changed since it was imported
        return None
    named = [
        node
        for node in definitions.get(code.co_firstlineno, ())
        if getattr(node, "name", "<lambda>") == code.co_name
    ]
    if len(named) > 1:
        named = [node for node in named if _spans(node, code)]
    return named[0] if len(named) == 1 else None


@functools.lru_cache(maxsize=64)
def _parsed(
    filename: str, source: str
) -> tuple[Mapping[int, Sequence[ast.AST]], frozenset[types.CodeType]] | None:
    """Return a file's definitions by first line, and all code objects in it."""
    try:
        tree = _syntax_tree(source)
        codes = frozenset(_nested(compile(source, filename, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError):
        return None
    definitions: dict[int, list[ast.AST]] = defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITIONS):
            decorators = getattr(node, "decorator_list", [])
            first_line = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            definitions[first_line].append(node)
    return definitions, codes


def _syntax_tree(source: str) -> ast.Module:
    """Parse a source.

    Python 3.11 counts the recursion depth for all threads together, and raises SystemError if
    another thread parses at the same time (https://github.com/python/cpython/issues/106905).
    """
    for attempt in itertools.count(1):
        try:
            return ast.parse(source)
        except SystemError:
            if attempt == _MAX_ATTEMPTS:
                raise
            time.sleep(0.001 * attempt)
    raise AssertionError  # unreachable


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for inner in _inner(code):
        yield from _nested(inner)


def _spans(node: ast.AST, code: types.CodeType) -> bool:
    """Whether the code's instructions are within the node; distinguishes several lambdas on a
    line.
    """
    body: Any = node.body if isinstance(node, ast.Lambda) else node
    start = (body.lineno, body.col_offset)
    end = (body.end_lineno, body.end_col_offset)
    positions = [(line, column) for line, _, column, _ in code.co_positions() if line and column]
    return bool(positions) and all(start <= position <= end for position in positions)


def _normal(node: Any) -> str:
    """Serialise a syntax tree without positions, docstrings and empty parts, which differ between
    Python versions.
    """
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
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    dt.date,
    dt.datetime,
    dt.time,
    dt.timedelta,
)
_NUMBERS = ("decimal.Decimal", "fractions.Fraction")  # primitives of modules that import slowly
# Attributes of classes that Python itself sets.
_NOT_ITS_OWN = (
    "_abc_impl",
    "_is_protocol",
    "_is_runtime_protocol",
    "__annotate__",
    "__annotate_func__",
    "__class__",
)
# Module paths in the first release: groups whose transforms derive from or call these are not
# rebuilt.
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
    """Identity of a transform.

    Args:
        value: 32 hexadecimal digits.
        unseen: Names and objects that the value does not cover.
        parts: What the value covers, by name, to tell what has changed: see `changed_parts`.
    """

    value: str
    unseen: tuple[tuple[str, Any], ...] = ()
    parts: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def tells_apart(self, other: Fingerprint) -> bool:
        """Whether two definitions differ, by value or by an unseen object's identity."""
        if self.value != other.value or len(self.unseen) != len(other.unseen):
            return True
        pairs = zip(self.unseen, other.unseen, strict=True)
        return any(
            name != other_name or obj is not other_obj
            for (name, obj), (other_name, other_obj) in pairs
        )


def fingerprint(transform: Any, *parts: str, is_model: bool = False) -> Fingerprint:
    """Return the fingerprint of a transform, or of an embed function.

    Args:
        transform: A function, an instance, a partial, a bound method.
        parts: Further strings that affect its result.
        is_model: Leave out what calls of a model change, such as counters and lists, and what gives
            access to it, such as keys: none of them makes another model.

    Example:
        >>> fingerprint(lambda d: d.split("a")).value == fingerprint(lambda d: d.split("b")).value
        False
    """
    innermost = _innermost(transform)
    describer = _Describer(_top(innermost.__module__), is_model=is_model)
    try:
        description = describer.describe("transform", transform)
    except RecursionError:  # deeper than Python's stack
        return Fingerprint(digest(["unseen", *parts]), (("transform", transform),))
    parts_by_name = {**describer.parts, "transform": _short_name(innermost)}
    return Fingerprint(digest([description, *parts]), tuple(describer.unseen), parts_by_name)


_MAX_REASONS = 3
_CREDENTIAL = re.compile(
    r"(?:^|[._])(?:api_?)?"
    r"(?:key|token|secret|passw(?:or)?d|credentials?|auth(?:orization)?|headers?)$",
    re.IGNORECASE,
)
_NO_SETTINGS = ("num_workers", "retries", "reads_text_only")  # attributes that affect no result
_SETTINGS = "settings"  # all of them: for those that no public attribute shows
_SECRET = re.compile("key|secret|pass|pwd|cred|auth|token|bearer|dsn|ur[il]|conn", re.IGNORECASE)
# Values that are shown and stored as they are.
_PUBLIC = re.compile(r"[-+]?[\d.]+|True|False|None|'[A-Za-z_]{1,20}\d?'")


def changed_parts(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the difference between the `parts` of two fingerprints; "" for none.

    Example:
        >>> changed_parts({"parameter chunk_size": "256"}, {"parameter chunk_size": "512"})
        'parameter chunk_size: 256 -> 512'
    """
    old = before.get("transform")
    new = now.get("transform")
    if old != new and old and new:
        return f"code of function {new} (was {old})"
    changed = [name for name in {**now, **before} if before.get(name) != now.get(name)]
    is_settings = re.compile(rf"parameter {_SETTINGS}( of |\Z)").match
    changed = [name for name in changed if not is_settings(name)] or changed
    # the caller of a new helper first
    changed.sort(key=lambda name: (name not in before or name not in now, name))
    texts = [_difference(name, before, now) for name in changed]
    more = [f"{len(texts) - _MAX_REASONS} more"] if len(texts) > _MAX_REASONS else []
    return ", ".join([*texts[:_MAX_REASONS], *more])


def _difference(name: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
    values = [before.get(name, "none"), now.get(name, "none")]
    if name.startswith("code ") or any(value.startswith("#") for value in values):
        return name
    label = "model" if name.startswith("model ") else f"{name}:"
    return f"{label} {' -> '.join(values)}"


def _short_name(function: Any) -> str:
    return str(function.__qualname__).rpartition("<locals>.")[2]


def _kind_of(value: Any) -> str:
    """Return whether an object is a model, as it says which one, or a parameter: a token counter, a
    transform.
    """
    is_model = any(hasattr(type(value), name) for name in ("embed", "chat", "rerank"))
    return "model" if is_model else "parameter"


def _label_of(value: Any) -> str:
    """Return the identity or name of an object, else the name of its class."""
    label: str = getattr(value, "identity", None) or getattr(value, "name", None) or ""
    return label or type(value).__name__


def _assigned_names(code: types.CodeType) -> Iterator[str]:
    """Yield the variables outside of it that a function and its inner functions assign, such as
    counters.
    """
    for nested in _nested(code):
        for instruction in _instructions(nested):
            if instruction.opname in ("STORE_GLOBAL", "STORE_DEREF"):
                yield str(instruction.argval)


def _without_credentials(name: str, value: Any) -> Any:
    if isinstance(value, (str, bytes, dict)) and _CREDENTIAL.search(name):
        return "credential"
    if type(value) is dict:
        return {key: entry for key, entry in value.items() if not _CREDENTIAL.search(str(key))}
    return value


_STATEFUL_MODULES = (
    "asyncio",
    "collections",
    "concurrent",
    "logging",
    "multiprocessing",
    "queue",
    "threading",
)
_NO_MODEL = ("probe", "batch_size")  # attributes of models that affect no vector
_STATE = (int, float, complex, dt.date, dt.time, dt.timedelta, list, dict, set)


def _settings(attributes: Mapping[str, Any], cls: type | None = None) -> dict[str, Any]:
    """Return the attributes of a model without those that its calls may change, unless they are
    parameters.
    """
    code = getattr(getattr(cls, "__init__", None), "__code__", None)
    parameters = ()
    if code is not None:
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    settings = {}
    for name, value in attributes.items():
        is_state = isinstance(value, _STATE) and not isinstance(value, bool)
        if is_state and name.lstrip("_") not in parameters:
            continue
        if name not in _NO_MODEL:
            settings[name] = value
    return settings


class _CannotSee(Exception):  # noqa: N818  no error: a library's object is unseen as a whole
    """Raised instead of listing an unseen object."""


class _Describer:
    """Serialises an object to a string that is equal for equal code, and lists opaque objects.

    A repeated object becomes "again", so that cycles end and the cost grows with the number of
    objects.

    Args:
        home: The transform's own top-level package, whose code is included even if it is installed.
        is_model: See `fingerprint`.
    """

    def __init__(self, home: str, *, is_model: bool = False) -> None:
        self._is_model = is_model
        self.unseen: list[tuple[str, Any]] = []
        self.parts: dict[str, str] = {}
        self._home = home
        self._complete = False  # raise _CannotSee instead of listing unseen objects
        self._met: dict[int, tuple[int, Any]] = {}  # number by id; the object keeps the id in use
        self._collections: dict[int, tuple[str, Any]] = {}

    def describe(self, name: str, value: Any) -> str:
        if self._is_model:
            value = _without_credentials(name, value)
        plain = _immutable(value)
        if plain is not None:
            self._note(name, plain, repr(value))
            return plain
        if isinstance(value, (tuple, frozenset)):
            return self._collection(name, value)
        if id(value) in self._met:
            return f"again:{self._met[id(value)][0]}"
        self._met[id(value)] = (len(self._met), value)
        named = self._named(value)
        if named is not None:
            self._note_named(name, value, named)
        return named or self._callable(name, value) or self._instance(name, value)

    def _plain(self, name: str, value: Any) -> str:
        """Describe a value, which may be a list or a mapping of plain values."""
        if self._is_model:
            value = _without_credentials(name, value)
        plain = _plain(value)
        if plain is None:
            return self.describe(name, value)
        self._note(name, plain, "" if isinstance(value, (dict, set, frozenset)) else repr(value))
        return plain

    def _note(self, name: str, description: str, text: str, kind: str = "parameter") -> None:
        """Note a parameter: its value if that can be no secret, else a digest, which begins with
        #.
        """
        may_be_secret = not _PUBLIC.fullmatch(text) or _SECRET.search(name)
        if not text or (kind == "parameter" and may_be_secret):
            text = f"#{digest([description])[:8]}"
        label = name.replace(" default.", ".").removeprefix("transform.")
        self.parts[f"{kind} {label}"] = text

    def _note_named(self, name: str, value: Any, named: str) -> None:
        """Note an object that its name or identity describes; of a transform, its public attributes
        and models.
        """
        identity = named.partition(":")[2]
        if name != "transform":
            if not isinstance(value, type):
                self._note(name, named, identity, _kind_of(value))
            return
        function = _short_name(_innermost(value))
        self.parts[f"code of function {function}"] = identity.partition(" ")[0]
        for key, attribute in getattr(value, "__dict__", {}).items():
            kind = _kind_of(attribute)
            label = key.removeprefix("_") if kind == "model" else key
            if label.startswith(("_", "identity", *_NO_SETTINGS)):
                continue
            plain = _plain(attribute)
            text = repr(attribute) if plain is not None else _label_of(attribute)
            self._note(label, plain or text, text, kind)
        self._note(_SETTINGS, identity, "")

    def _collection(self, name: str, value: tuple[Any, ...] | frozenset[Any]) -> str:
        # By equality, not identity: whether equal ones are one object depends on the Python
        # version.
        if id(value) not in self._collections:
            parts = [
                self.describe(f"{name}[{index}]", element) for index, element in enumerate(value)
            ]
            if isinstance(value, frozenset):
                parts.sort()
            text = f"{type(value).__name__}:{digest(parts)}"
            self._collections[id(value)] = (text, value)
        return self._collections[id(value)][0]

    def _named(self, value: Any) -> str | None:
        """Describe objects identified by name; None for others."""
        if isinstance(value, types.ModuleType):
            name = value.__name__
            return f"named:{_module_of(name)}" if self._is_library(name) else None
        if isinstance(value, types.MethodDescriptorType):
            return f"named:{value.__qualname__}"
        if isinstance(value, (type, types.FunctionType)):
            if not self._is_library(value.__module__):
                return None
            name = value.__qualname__
            return f"named:{_module_of(value.__module__, name)}.{name}{self._wrapped(value)}"
        return self._identified(value)

    def _identified(self, value: Any) -> str | None:
        """Describe objects with an ``identity`` attribute; None for others."""
        attributes = getattr(value, "__dict__", {})
        if not hasattr(type(value), "identity") and "identity" not in attributes:
            return None  # not getattr: an object's own __getattr__ may do anything
        identity = value.identity
        if not isinstance(identity, str) or not identity:
            return None
        # Objects that the identity does not cover are described one by one.
        text = f"identity:{identity}"
        rest = value.identity_depends_on if hasattr(type(value), "identity_depends_on") else {}
        for name, dependency in rest.items():
            text += f" {name}={self.describe(f'{type(value).__name__}.{name}', dependency)}"
        return text

    def _wrapped(self, value: Any) -> str:
        """Describe the user's functions in a library function's closure: those that it decorates or
        composes.
        """
        text = ""
        for cell in getattr(value, "__closure__", None) or ():
            content = cell.cell_contents if _is_filled(cell) else None
            for function in content.values() if isinstance(content, dict) else (content,):
                if not isinstance(function, types.FunctionType):
                    continue
                if not self._is_library(function.__module__):
                    text += self.describe(function.__name__, function)
        return text

    def _callable(self, name: str, value: Any) -> str | None:  # noqa: PLR0911
        """Describe objects by the code behind them; None for others."""
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, types.FunctionType):
            return self._function(name, value)
        if isinstance(value, (types.BuiltinFunctionType, types.MethodWrapperType)):
            bound = self.describe(f"{name}.self", value.__self__)
            return digest(["built-in", value.__qualname__, bound])
        if isinstance(value, types.MethodType):
            function = self.describe(name, value.__func__)
            code = getattr(value.__func__, "__code__", None)
            is_installed = code is not None and _installed(code.co_filename)
            # The internal state of a library's object is not part of the definition.
            is_opaque = is_installed and not isinstance(value.__self__, type)
            describe = self._list if is_opaque else self.describe
            return digest(["method", function, describe(f"{name}.self", value.__self__)])
        if isinstance(value, functools.partial):
            function = self.describe(name, value.func)
            return digest(["partial", function, self._arguments(name, value)])
        if isinstance(value, _CACHED_FUNCTION):
            return digest(["cached", self.describe(name, value.__wrapped__)])
        return None

    def _arguments(
        self, name: str, partial: functools.partial[Any] | functools.partialmethod[Any]
    ) -> str:
        return self._parameters(name, {**dict(enumerate(partial.args)), **partial.keywords})

    def _list(self, name: str, value: Any) -> str:
        if self._complete:
            raise _CannotSee
        self.unseen.append((name, value))
        return f"unseen:{type(value).__qualname__}"

    def _function(self, name: str, function: types.FunctionType) -> str:
        code = function.__code__
        text = code_text(code)
        parts = ["function", text]
        self.parts[f"code of function {_short_name(function)}"] = digest([text])[:8]
        defaults = function.__defaults__ or ()
        labels = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
        parts.append(self._parameters(f"{name} default", dict(enumerate(defaults)), labels))
        parts.append(self._parameters(f"{name} default", function.__kwdefaults__ or {}))
        attributes = {key: value for key, value in vars(function).items() if key != "__wrapped__"}
        assigned: set[str] = set()
        if self._is_model:
            attributes = _settings(attributes)
            assigned.update(_assigned_names(code))
        parts.append(self._parameters(name, attributes))
        parts += self._closure(function, assigned)
        read = dict(
            self._resolved(path, function.__globals__)
            for path in names_read(code)
            if path[0] in function.__globals__ and path[0] not in assigned
        )
        parts += [self.describe(variable, read[variable]) for variable in sorted(read)]
        for module in sorted({*imports(code)}):
            if module.startswith(".") or not self._is_library(module):
                parts.append(self._list(f"import {module}", sys.intern(module)))
        return digest(parts)

    def _closure(self, function: types.FunctionType, assigned: set[str]) -> Iterator[str]:
        """Describe the variables of enclosing functions, without those that it assigns."""
        variables = function.__code__.co_freevars
        for variable, cell in zip(variables, function.__closure__ or (), strict=True):
            if variable in assigned:
                continue
            try:
                yield self.describe(variable, cell.cell_contents)
            except ValueError:  # an empty cell
                yield "empty"

    def _resolved(self, path: tuple[str, ...], names: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the object that a function reads by a global's name: for the user's own modules,
        the attribute.
        """
        value = names[path[0]]
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
        """Describe a class's own methods and attributes, its bases and its metaclass."""
        parts = [
            "class",
            cls.__qualname__,
            *(self.describe(base.__name__, base) for base in (*cls.__bases__, type(cls))),
        ]
        skipped = {*_NOT_ITS_OWN}
        if self._is_model:
            skipped |= vars(cls).keys() - _settings(vars(cls), cls).keys()
        if vars(cls).get("forward") is vars(cls).get("transform"):
            skipped.add("forward")  # set by NodeTransform
        if dataclasses.is_dataclass(cls):
            parts += self._fields(cls)
            skipped.update(field.name for field in dataclasses.fields(cls))
        if issubclass(cls, enum.Enum):
            values = {name: member.value for name, member in cls.__members__.items()}
            parts.append(self._parameters(cls.__name__, values))
            skipped.update(values)
            skipped.update(name for name in vars(cls) if re.fullmatch("_[^_].*_", name))
        for name, member in sorted(vars(cls).items()):
            if name not in skipped:
                texts = self._member(f"{cls.__name__}.{name}", member)
                parts += [f"{name}={text}" for text in texts]
        return digest(parts)

    def _fields(self, cls: Any) -> list[str]:
        """Describe the fields of a dataclass, and their defaults."""
        fields = dataclasses.fields(cls)
        parts = [f"fields={[field.name for field in fields]}"]
        for declared in fields:
            defaults = [
                default
                for default in (declared.default, declared.default_factory)
                if default is not dataclasses.MISSING
            ]
            name = f"{cls.__name__}.{declared.name}"
            parts.append(self._parameters(name, dict(enumerate(defaults))))
        return parts

    def _member(self, name: str, member: Any) -> list[str]:
        """Describe a class's attribute; nothing if Python itself set it."""
        if isinstance(member, property):
            member = (member.fget, member.fset, member.fdel)
        elif isinstance(member, functools.cached_property):
            member = member.func
        elif isinstance(member, functools.partialmethod):
            return [self.describe(name, member.func), self._arguments(name, member)]
        elif isinstance(member, (classmethod, staticmethod)):
            member = member.__func__
        if isinstance(member, types.FunctionType):
            return [] if _is_generated(member) else [self._function(name, member)]
        if name.rpartition(".")[2].startswith("__") and not callable(member):
            return []
        if inspect.isdatadescriptor(member) and self._is_library(type(member).__module__):
            return []
        return [self._plain(name, member)]

    def _instance(self, name: str, value: Any) -> str:
        attributes = _attributes(value)
        if attributes is None:
            return self._list(name, value)
        if self._is_model:
            if _top(type(value).__module__) in _STATEFUL_MODULES:
                return self._list(name, value)
            attributes = _settings(attributes, type(value))
        if not self._is_library(type(value).__module__):
            class_text = self.describe(name, type(value))
            return digest(["instance", class_text, self._parameters(name, attributes)])
        # A library's object is described completely or not at all.
        met = dict(self._met)
        collections = dict(self._collections)
        complete = self._complete
        noted = dict(self.parts)
        self._complete = True
        inside = ""
        try:
            inside = self._parameters(name, attributes)
        except _CannotSee:
            self._met = met
            self._collections = collections
            self.parts = noted
        finally:
            self._complete = complete
        if not inside:
            return self._list(name, value)
        return digest(["instance", self.describe(name, type(value)), inside])

    def _parameters(self, name: str, values: Mapping[Any, Any], labels: Sequence[str] = ()) -> str:
        """Describe parameters by value, lists and mappings of plain values included; labels are
        names for people.
        """
        parts = []
        for key, value in sorted(values.items(), key=lambda item: str(item[0])):
            parts.append(f"{key}={self._plain(f'{name}.{labels[key] if labels else key}', value)}")
        return digest(parts)

    def _is_library(self, module: str | None) -> bool:
        """Whether code is identified by name: that of Python, this package and other installed
        packages.
        """
        top = _top(module)
        if top in sys.stdlib_module_names or top == "builtins":
            return True
        return top != self._home and (top == "lazyrag" or _installed(_location_of(top)))


def _installed(file: str) -> bool:
    """Whether a file belongs to an installed package."""
    return not {"site-packages", "dist-packages"}.isdisjoint(PurePath(file).parts)


def _location_of(top: str) -> str:
    """Return the file or folder of a top-level package, imported or not; "" if there is none."""
    module = sys.modules.get(top)
    spec = getattr(module, "__spec__", None)
    if module is None:
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            return ""
    file: str | None = getattr(module, "__file__", None) or getattr(spec, "origin", None)
    if file:
        return file
    folders = getattr(spec, "submodule_search_locations", None) or [""]
    return str(next(iter(folders)))


def _module_of(module: str, name: str = "") -> str:
    """Return a module's name; for this package, one that is independent of its modules, so that
    code may move.
    """
    return f"lazyrag{_AS_RELEASED.get(name, '')}" if _top(module) == "lazyrag" else module


def _top(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _innermost(transform: Any) -> Any:
    """Return the function or class whose code a transform runs."""
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


def _is_generated(function: types.FunctionType) -> bool:
    """Whether the standard library generated a method, as for dataclasses: these differ between
    Python versions.
    """
    file = function.__code__.co_filename
    if file.startswith("<"):  # generated by exec, unless the whole module is
        return bool(getattr(sys.modules.get(function.__module__), "__file__", None))
    import sysconfig

    return file.startswith(sysconfig.get_path("stdlib")) and not _installed(file)


class _Bare:
    """Class whose instances contain only their attributes."""


def _attributes(value: Any) -> dict[str, Any] | None:
    """Return an instance's attributes; None if it contains more, as objects of C extensions do."""
    cls = type(value)
    slots = _slots(cls)
    pointer = struct.calcsize("P")
    more = cls.__itemsize__ or cls.__basicsize__ > _Bare.__basicsize__ + pointer * len(slots)
    if more or not (slots or hasattr(value, "__dict__")):
        return None
    cached = {"_num_workers"}  # of a NodeTransform: threads do not affect its nodes
    for base in cls.__mro__:
        for name, attribute in vars(base).items():
            if isinstance(attribute, functools.cached_property):
                cached.add(name)
    attributes = {
        name: attribute
        for name, attribute in getattr(value, "__dict__", {}).items()
        if name not in cached
    }
    return {**{name: getattr(value, name) for name in slots if hasattr(value, name)}, **attributes}


def _slots(cls: type) -> list[str]:
    """Return the stored names of the slots of a class and its bases."""
    slots = []
    for base in cls.__mro__:
        names = vars(base).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            private = name.startswith("__") and not name.endswith("__")
            slots.append(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return [name for name in slots if name not in ("__dict__", "__weakref__")]


def _immutable(value: Any) -> str | None:
    """Describe an immutable plain value; None for others."""
    if isinstance(value, re.Pattern):
        return f"pattern:{value.pattern!r}/{value.flags}"
    if isinstance(value, PurePath):
        return f"path:{value.as_posix()}"
    cls = type(value)
    is_primitive = cls in _PRIMITIVES or f"{cls.__module__}.{cls.__qualname__}" in _NUMBERS
    return f"{cls.__name__}:{value!r}" if is_primitive else None


def _plain(value: Any) -> str | None:
    """Describe nested lists, tuples, sets and mappings of plain values; None for others."""
    if isinstance(value, (list, tuple, set, frozenset)):
        parts = [_plain(element) for element in value]
        if None in parts:
            return None
        if isinstance(value, (set, frozenset)):
            parts.sort(key=str)
        return f"{type(value).__name__}{parts}"
    if isinstance(value, dict):
        pairs = [(_plain(key), _plain(entry)) for key, entry in value.items()]
        return None if any(None in pair for pair in pairs) else f"dict{sorted(map(str, pairs))}"
    return _immutable(value)
