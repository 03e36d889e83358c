"""Validate arguments: numbers, lists of texts, keywords, functions."""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar, cast

from lazyrag.errors import ConfigError, UnknownKeywordError, known_names, nearest

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


def whole_number(what: str, value: Any, least: int, most: int | None = None) -> int:
    """A whole number, numpy's included; True and False are none.

    Args:
        what: What it is, for the message: ``"topk"``.
        value: What was given.
        least: The smallest that is allowed.
        most: The largest; None for no bound.

    Raises:
        ConfigError: If it is something else, or out of that range.

    Example:
        >>> whole_number("topk", 3, 1)
        3
    """
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        allowed = f"of at least {least}" if most is None else f"from {least} to {most}"
        msg = f"{what} is {value!r}; give a whole number {allowed}."
        raise ConfigError(msg)
    return int(value)


def yes_or_no(what: str, value: Any) -> bool:
    """True or False, numpy's included.

    Raises:
        ConfigError: If it is something else.

    Example:
        >>> yes_or_no("normalise", True)
        True
    """
    if str(value) not in ("True", "False") or isinstance(value, str):
        msg = f"{what} is {value!r:.80}; give True or False."
        raise ConfigError(msg)
    return bool(value)


def text_list(what: str, value: Any) -> tuple[str, ...]:
    """Texts in a list or tuple, none of them blank. Other iterables are refused: some can be read only once.

    Example:
        >>> text_list("embed_keys", ["dense"])
        ('dense',)
    """
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, str) and one.strip() for one in value):
        msg = f"{what} is {value!r}; give a list of texts, none of them blank."
        raise ConfigError(msg)
    return tuple(value)


def function_name(what: str, function: Any, name: str | None) -> str:
    """The name to register a callable under: the one given, else its own.

    Args:
        what: What registers it, for messages: ``"register_similarity"``.
        function: What is to be registered.
        name: The name that was given, if any.

    Raises:
        ConfigError: If it is no callable, or has no name of its own and none was given.

    Example:
        >>> function_name("register_similarity", len, None)
        'len'
    """
    if not callable(function):
        msg = f"{what} got {function!r}; give a function or a class."
        raise ConfigError(msg)
    named = name or getattr(function, "__name__", None)
    if not isinstance(named, str):
        msg = f"{what} got {function!r}, which has no name of its own. Pass name='...'."
        raise ConfigError(msg)
    return named


def keyword_names(function: Callable[..., Any], *, skip: int) -> tuple[list[str], bool]:
    """Names that can be passed to a function by keyword, but for its first parameters, and whether it takes any.

    Example:
        >>> keyword_names(lambda query, node, *, boost=1, **kw: 0, skip=2)
        (['boost'], True)
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # some functions written in C do not tell
        return [], True
    named = [one.name for one in parameters[skip:] if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    return named, any(one.kind is one.VAR_KEYWORD for one in parameters)


def required_names(function: Callable[..., Any], *, skip: int) -> list[str]:
    """Names of the parameters without default, but for a function's first ones.

    Example:
        >>> required_names(lambda nodes, model, query="": 0, skip=1)
        ['model']
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        return []
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [one.name for one in parameters[skip:] if one.kind in named and one.default is one.empty]


def check_keywords(
    what: str,
    function: Callable[..., Any],
    kwargs: Mapping[str, Any],
    *,
    skip: int,
    also_known: Sequence[str] = (),
) -> None:
    """Refuse a keyword that a function does not take, or takes only as one of any and that looks misspelt.

    Args:
        what: What takes them, for the message: ``"The similarity 'bm25'"``.
        function: What they are passed to.
        kwargs: What is to be passed.
        skip: How many of the function's first parameters are not the user's to give.
        also_known: Keywords of the caller that a misspelt one may have meant.

    Raises:
        UnknownKeywordError: Naming the nearest known keyword.
    """
    named, takes_any = keyword_names(function, skip=skip)
    for keyword in kwargs:
        if keyword not in named and not (takes_any and nearest(keyword, [*named, *also_known]) is None):
            raise _unknown(what, "keyword", keyword, {*named, *also_known})


def known_keywords(function: F) -> F:
    """Decorator: an unknown keyword names the known ones and the nearest, instead of Python's bare TypeError.

    Example:
        >>> @known_keywords
        ... def search(query, topk=6): ...
        >>> search("tea", top_k=3)
        Traceback (most recent call last):
        ...
        lazyrag.errors.UnknownKeywordError: search takes no argument 'top_k'. Known: query, topk. Did you mean 'topk'?
    """
    known = [name for name in inspect.signature(function).parameters if name not in ("self", "self_or_class")]
    names = frozenset(known)
    what, name = function.__qualname__.removesuffix(".__init__").removesuffix(".__call__"), function.__name__
    is_method = "self" in inspect.signature(function).parameters

    def refused(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> UnknownKeywordError:
        held = what
        if is_method and args:  # users know a method by the class they hold, not by a base that it comes from
            held = type(args[0]).__name__ + ("" if name.startswith("__") else f".{name}")
        return _unknown(held, "argument", next(one for one in kwargs if one not in names), known)

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not names.issuperset(kwargs):
            raise refused(args, kwargs)
        return function(*args, **kwargs)

    @functools.wraps(function)
    async def awaited(*args: Any, **kwargs: Any) -> Any:  # so that it is seen to be a coroutine function
        if not names.issuperset(kwargs):
            raise refused(args, kwargs)
        return await function(*args, **kwargs)

    return cast("F", awaited if inspect.iscoroutinefunction(function) else checked)


def known_arguments(cls: C) -> C:
    """Class decorator: `known_keywords` for a class's constructor."""
    cls.__init__ = known_keywords(cls.__init__)  # type: ignore[misc]  # of the class, not of an instance
    return cls


def _unknown(what: str, kind: str, keyword: str, known: Collection[str]) -> UnknownKeywordError:
    return UnknownKeywordError(f"{what} takes no {kind} {keyword!r}. {known_names(keyword, known)}")
