"""Validate arguments: numbers, lists of texts, keywords, functions."""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import os
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar, cast, get_args

from lazyrag.errors import ConfigError, LazyRAGError, UnknownKeywordError, known_names, nearest
from lazyrag.types import AnyCallable, FunctionT, Keywords

C = TypeVar("C", bound=type)
T = TypeVar("T")
K = TypeVar("K")


def without_none(values: Mapping[K, T | None]) -> dict[K, T]:
    """The entries with a value."""
    return {name: value for name, value in values.items() if value is not None}


def entry_of(value: Any, name: str) -> Any:
    """The entry of a JSON object; None for one without it, and for another value.

    Example:
        >>> entry_of({"usage": 3}, "usage"), entry_of([3], "usage")
        (3, None)
    """
    return value.get(name) if isinstance(value, dict) else None


def validate_integer(
    name: str, value: Any, least: int, most: int | None = None, expected: str = ""
) -> int:
    """Return an integer within bounds; numpy's integers are integers, booleans are not.

    Args:
        name: The argument.
        value: Its value.
        least: The smallest allowed value.
        most: The largest allowed value; None for no bound.
        expected: What it must be, in other words than the default.

    Raises:
        ConfigError: If it is something else, or out of range.

    Example:
        >>> validate_integer("topk", 3, 1)
        3
    """
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    expected = expected or (
        f"an integer >= {least}" if most is None else f"an integer from {least} to {most}"
    )
    require(
        is_integer and least <= value and (most is None or value <= most), name, value, expected
    )
    return int(value)


def validate_boolean(name: str, value: Any) -> bool:
    """Return True or False, also for numpy's.

    Raises:
        ConfigError: If it is something else.

    Example:
        >>> validate_boolean("normalise", True)
        True
    """
    require(
        str(value) in ("True", "False") and not isinstance(value, str), name, value, "True or False"
    )
    return bool(value)


def validate_texts(name: str, value: Any) -> tuple[str, ...]:
    """Return the strings of a list or tuple, none of them blank; other iterables could be read only
    once.

    Raises:
        ConfigError: If it is something else.

    Example:
        >>> validate_texts("embed_keys", ["dense"])
        ('dense',)
    """
    is_valid = is_list_of(value, str) and all(item.strip() for item in value)
    require(is_valid, name, value, "a list of strings, none of them blank")
    return tuple(value)


def function_name(registrar: str, function: Any, name: str | None) -> str:
    """The name to register a callable under: the one given, else its own.

    Args:
        registrar: What registers it, for messages: ``"register_similarity"``.
        function: What is to be registered.
        name: The name that was given, if any.

    Raises:
        ConfigError: If it is no callable, or has no name of its own and none was given.

    Example:
        >>> function_name("register_similarity", len, None)
        'len'
    """
    if not callable(function):
        raise ConfigError(f"{registrar} got {function!r}; give a function or a class.")
    named = name or getattr(function, "__name__", None)
    if not isinstance(named, str) or named == "<lambda>":
        raise ConfigError(
            f"{registrar} got {function!r}, which has no name of its own. Pass name='...'."
        )
    return named


def keyword_names(function: AnyCallable, *, skip: int) -> tuple[list[str], bool]:
    """Names that can be passed to a function by keyword, but for its first parameters, and whether
    it takes any.

    Example:
        >>> keyword_names(lambda query, node, *, boost=1, **kw: 0, skip=2)
        (['boost'], True)
    """
    parameters = _parameters(function)
    if parameters is None:
        return [], True
    named = [parameter.name for parameter in parameters[skip:] if parameter.kind in _BY_KEYWORD]
    return named, any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def required_names(function: AnyCallable, *, skip: int) -> list[str]:
    """Names of the parameters without default, but for a function's first ones.

    Example:
        >>> required_names(lambda nodes, model, query="": 0, skip=1)
        ['model']
    """
    parameters = (_parameters(function) or [])[skip:]
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind in _BY_KEYWORD and parameter.default is parameter.empty
    ]


def first_parameters(function: AnyCallable, count: int) -> list[tuple[str, str]]:
    """Names and annotations of a function's first parameters, as they are written; "" where there
    is none.

    Example:
        >>> def score(query: list[float], node) -> float: ...
        >>> first_parameters(score, 2)
        [('query', 'list[float]'), ('node', '')]
    """
    parameters = []
    for parameter in (_parameters(function) or [])[:count]:
        annotation = ""
        if parameter.annotation is not parameter.empty:
            annotation = inspect.formatannotation(parameter.annotation).strip("'")
        parameters.append((parameter.name, annotation))
    return parameters + [("", "")] * (count - len(parameters))


_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _parameters(function: AnyCallable) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:  # some functions written in C do not tell
        return None


def check_keywords(
    owner: str,
    function: AnyCallable,
    kwargs: Keywords,
    *,
    skip: int,
    also_known: Sequence[str] = (),
) -> None:
    """Refuse a keyword that a function does not take, or takes only as one of any and that looks
    misspelt.

    Args:
        owner: What takes them, for the message: ``"The similarity 'bm25'"``.
        function: What they are passed to.
        kwargs: What is to be passed.
        skip: How many of the function's first parameters are not the user's to give.
        also_known: Keywords of the caller that a misspelt one may have meant.

    Raises:
        UnknownKeywordError: Naming the nearest known keyword.
    """
    named, takes_any = keyword_names(function, skip=skip)
    for keyword in kwargs:
        if keyword not in named and not (
            takes_any and nearest(keyword, [*named, *also_known]) is None
        ):
            raise _unknown(owner, "keyword", keyword, {*named, *also_known})


def check_call(problem: str, called: Any, *args: Any, **kwargs: Any) -> None:
    """Raise a ConfigError, which begins with ``problem``, if a callable does not take these
    arguments.
    """
    try:
        inspect.signature(called).bind(*args, **kwargs)
    except TypeError as exc:
        raise ConfigError(f"{problem}: {exc}.") from exc
    except ValueError:  # some functions written in C have no signature
        pass


def named_filters(arguments: Keywords, *, has_filters: bool = False) -> dict[str, Any]:
    """Return arguments by name, with ``filters`` for its alias ``where``.

    Args:
        arguments: The arguments.
        has_filters: Whether ``filters`` was passed by position.

    Raises:
        ConfigError: If both are passed.

    Example:
        >>> named_filters({"where": {"year": 1999}})
        {'filters': {'year': 1999}}
    """
    if "where" in arguments and (has_filters or "filters" in arguments):
        raise ConfigError(
            "filters and where must not both be passed: they are one argument. Pass filters=."
        )
    return {"filters" if name == "where" else name: value for name, value in arguments.items()}


def known_keywords(function: FunctionT) -> FunctionT:
    """Decorator: an unknown keyword names the known ones and the nearest, instead of Python's bare
    TypeError.

    Where ``filters`` is known, ``where`` is an alias of it.

    Example:
        >>> @known_keywords
        ... def search(query): ...
        >>> search("tea", limit=3)
        Traceback (most recent call last):
        ...
        lazyrag.errors.UnknownKeywordError: search takes no argument 'limit'. Known: query.
    """
    # inspect.signature takes a tenth of a millisecond, for each of dozens of functions at import.
    code: CodeType = inspect.unwrap(function).__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    arguments = [name for name in parameters if name not in ("self", "self_or_class")]
    names = frozenset(arguments)
    label = function.__qualname__.removesuffix(".__init__").removesuffix(".__call__")
    name = function.__name__

    def refused(args: tuple[Any, ...], kwargs: Keywords) -> UnknownKeywordError:
        owner = label
        moved: Mapping[str, str] = {}
        # users know a method by the class they hold, not by a base of it
        if "self" in parameters and args:
            owner = type(args[0]).__name__ + ("" if name.startswith("__") else f".{name}")
            moved = getattr(args[0], "_moved_arguments", {})
        unknown = next(keyword for keyword in kwargs if keyword not in names)
        return _unknown(owner, "argument", unknown, arguments, moved)

    positional = parameters[: code.co_argcount]

    def renamed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The keywords with ``filters`` for its alias ``where``."""
        if "filters" in names:
            kwargs = named_filters(kwargs, has_filters="filters" in positional[: len(args)])
        if not names.issuperset(kwargs):
            raise refused(args, kwargs)
        return kwargs

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not names.issuperset(kwargs):
            kwargs = renamed(args, kwargs)
        return function(*args, **kwargs)

    @functools.wraps(function)
    # so that it is seen to be a coroutine function
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        if not names.issuperset(kwargs):
            kwargs = renamed(args, kwargs)
        return await function(*args, **kwargs)

    return cast("FunctionT", awaited if inspect.iscoroutinefunction(function) else checked)


def known_arguments(cls: C) -> C:
    """Class decorator: `known_keywords` for a class's constructor."""
    # of the class, not of an instance
    cls.__init__ = known_keywords(cls.__init__)  # type: ignore[misc]
    return cls


def public_url(url: str) -> str:
    """An address without credentials, query and fragment, for messages.

    Example:
        >>> public_url("https://me:key@tea.org/a?token=1#b")
        'tea.org/a'
    """
    return url.partition("?")[0].partition("#")[0].rpartition("@")[2]


def sendable(cls: C) -> C:
    """Class decorator: other processes make an object anew, of the arguments that it was made
    with.
    """
    init = cls.__init__  # type: ignore[misc]  # of the class, not of an instance

    @functools.wraps(init)
    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        self.made_with = _Unshown((args, kwargs))
        init(self, *args, **kwargs)

    cls.__init__ = noted  # type: ignore[misc]
    cls.__reduce__ = _with_arguments  # type: ignore[assignment, method-assign]
    return cls


class _Unshown(tuple[Any, ...]):  # noqa: SLOT001  keys may be among them
    def __repr__(self) -> str:
        return "(...)"


def _with_arguments(self: Any) -> tuple[Any, ...]:
    args, kwargs = self.made_with
    owner: type = type(self)
    return functools.partial(owner, **kwargs), args


def _unknown(
    owner: str, kind: str, keyword: str, names: Collection[str], moved: Mapping[str, str] = {}
) -> UnknownKeywordError:
    if keyword in moved:
        return UnknownKeywordError(f"{owner} takes no {kind} {keyword!r}. Pass {moved[keyword]}.")
    hint = ""
    if keyword in ("words", "synonyms") and "analyser" in names:
        hint = f" Pass analyser=register_chinese_analyser(name, {keyword}=...).name."
    if keyword == "store_conf":
        hint = " Pass it to Document(folder, embed, store_conf=...)."
    return UnknownKeywordError(
        f"{owner} takes no {kind} {keyword!r}. {known_names(keyword, names)}{hint}"
    )


def require(
    condition: bool,
    name: str,
    value: object,
    expected: str,
    hint: str = "",
    error: type[LazyRAGError] = ConfigError,
) -> None:
    """Raise an error that names an argument, what it must be and its value, unless a condition
    holds.

    Args:
        condition: Whether the value is valid.
        name: The argument.
        value: Its value.
        expected: What it must be: ``"a string"``.
        hint: What to do, as a sentence.
        error: The class of the error.

    Example:
        >>> require(isinstance(5, str), "query", 5, "a string")
        Traceback (most recent call last):
        ...
        lazyrag.errors.ConfigError: query must be a string; got 5.
    """
    if not condition:
        raise error(f"{name} must be {expected}; got {value!r:.80}. {hint}".rstrip())


def is_list_of(value: Any, kinds: type | tuple[type, ...]) -> bool:
    """Whether a value is a list or tuple whose items are instances of a class.

    Example:
        >>> is_list_of(["tea"], str), is_list_of("tea", str)
        (True, False)
    """
    return isinstance(value, (list, tuple)) and all(isinstance(item, kinds) for item in value)


def folder_path(folder: Any, hint: str = "") -> Path:
    """Return the path of a folder, which need not exist.

    Args:
        folder: A text or a path that is not empty.
        hint: What to pass instead, as a sentence.

    Raises:
        ConfigError: If it is something else.
    """
    is_path = isinstance(folder, (str, os.PathLike)) and os.fspath(folder) != ""
    require(is_path, "folder", folder, "the path of a folder", hint)
    return Path(folder).expanduser()


def validate_string(name: str, value: Any) -> None:
    """Check that a value is a string.

    Raises:
        ConfigError: If it is something else.
    """
    require(isinstance(value, str), name, value, "a string")


def validate_text(name: str, value: Any) -> str:
    """Return a string that is not blank.

    Raises:
        ConfigError: If it is something else.
    """
    require(
        isinstance(value, str) and bool(value.strip()), name, value, "a string that is not blank"
    )
    return cast("str", value)


def normal_name(name: str) -> str:
    r"""Return a name or id in NFC: a Mac writes é as two characters, other systems as one.

    Example:
        >>> normal_name("cafe\u0301.txt") == "caf\u00e9.txt"
        True
    """
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def with_normal_names(name: str, values: Mapping[str, T]) -> dict[str, T]:
    """Return a mapping by names or ids with these in NFC.

    Raises:
        ConfigError: If two of them differ only by their normal form.
    """
    spelled: dict[str, str] = {}
    for key in values:
        other = spelled.setdefault(normal_name(key), key)
        if other is not key:
            raise ConfigError(
                f"{name} has {other!a} and {key!a}, which are one name. Pass one of them."
            )
    return {normal: values[key] for normal, key in spelled.items()}


def validate_choice(name: str, value: Any, choices: Any) -> Any:
    """Return a value that is one of some names.

    Args:
        name: The argument.
        value: Its value.
        choices: The names, or a `Literal` of them.

    Raises:
        ConfigError: If it is none of them; the message lists them and the nearest.

    Example:
        >>> validate_choice("order", "rank", ["rank", "document"])
        'rank'
    """
    names = get_args(choices) or choices
    if not isinstance(value, str) or value not in names:
        raise ConfigError(f"Unknown {name} {value!r:.60}. {known_names(str(value), names)}")
    return value


def validate_template(
    name: str, value: Any, required: Collection[str], optional: Collection[str] = ()
) -> frozenset[str]:
    """Return the fields of a prompt template, a string with ``{field}`` in it; ``{{`` and ``}}``
    are braces.

    Args:
        name: The argument.
        value: Its value.
        required: Fields that it must have.
        optional: Further fields that it may have.

    Raises:
        ConfigError: If it is no template, lacks a field, or has another one.

    Example:
        >>> sorted(validate_template("prompt", "{query} and {n} others", ["query"], ["n"]))
        ['n', 'query']
    """
    import string

    try:
        parts = list(string.Formatter().parse(value))
    except (TypeError, ValueError) as exc:
        raise ConfigError(
            f"{name} must be a template; got {value!r:.80} ({exc}). Write {{{{ and }}}} for braces."
        ) from exc
    fields = {
        field + (f":{form}" if form else "") + (conversion or "")
        for _, field, form, conversion in parts
        if field is not None
    }
    allowed = sorted({*required, *optional})
    for field in sorted(fields.difference(allowed)):
        raise ConfigError(
            f"{name} has the unknown field {field!r}. {known_names(field, allowed)} Write {{{{ and"
            " }} for braces."
        )
    missing = " and ".join(f"{{{field}}}" for field in required if field not in fields)
    if missing:
        raise ConfigError(f"{name} must have the field {missing}; got {value!r:.80}.")
    return frozenset(fields)


def validate_number(
    name: str, value: Any, expected: str, is_valid: Callable[[float], bool]
) -> float:
    """Return a real number that meets a condition; numpy's numbers are real numbers, booleans are
    not.

    Raises:
        ConfigError: If it is something else.

    Example:
        >>> validate_number("level", 0.95, "a number between 0 and 1", lambda level: 0 < level < 1)
        0.95
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    require(is_number and is_valid(value), name, value, expected)
    return float(value)


def validate_range(
    name: str, value: Any, least: float, most: float = math.inf, expected: str = ""
) -> float:
    """Return a finite number within bounds, both of them included.

    Args:
        name: The argument.
        value: Its value.
        least: The smallest allowed number.
        most: The largest one.
        expected: What it must be, for the message; by default the range.

    Raises:
        ConfigError: If it is something else.

    Example:
        >>> validate_range("share", 0.5, 0, 1)
        0.5
    """
    bounds = f">= {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
    return validate_number(
        name,
        value,
        expected or f"a number {bounds}",
        lambda number: least <= number <= most and number < math.inf,
    )


def validate_mapping(
    name: str, value: Any, keys: Collection[str] | None = None
) -> Mapping[str, Any]:
    """Check that a value is a mapping, and that all its keys are known.

    Args:
        name: The argument, for the message.
        value: Its value.
        keys: The allowed keys; None allows any.

    Raises:
        ConfigError: If it is not a mapping, or a key is unknown; the message names the nearest
            known key.

    Example:
        >>> validate_mapping("params", {"M": 16}, ["M", "ef"])
        {'M': 16}
    """
    if not isinstance(value, Mapping):
        expected = f" with any of the keys {', '.join(keys)}" if keys is not None else ""
        raise ConfigError(f"{name} must be a mapping{expected}; got {value!r:.200}.")
    for key in value:
        if keys is not None and key not in keys:
            raise ConfigError(f"{name} has the unknown key {key!r}. {known_names(str(key), keys)}")
    return value


def validate_seconds(name: str, value: Any) -> float:
    """Return a finite number of seconds above 0.

    Raises:
        ConfigError: If it is something else.

    Example:
        >>> validate_seconds("timeout_s", 20)
        20.0
    """
    return validate_number(
        name, value, "a number of seconds > 0", lambda seconds: 0 < seconds < math.inf
    )
