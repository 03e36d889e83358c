"""`dataclass` as in the standard library, at a fifth of its cost at import.

The standard library compiles up to six methods for each class, half a millisecond on Python 3.11, and more than a
hundred classes are made before the first query. Here `__init__` alone is compiled, when it is first used; the other
methods are closures over the names of the fields. In all else the classes are dataclasses: `fields`, `replace`,
`asdict`, copies and subclasses.
"""

from __future__ import annotations

import dataclasses
import reprlib
import sys
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_set = object.__setattr__


def _dataclass(
    cls: Any = None,
    /,
    *,
    repr: bool = True,  # noqa: A002  the standard library's name
    eq: bool = True,
    frozen: bool = False,
    slots: bool = False,
) -> Any:
    """Make a class a dataclass, as `dataclasses.dataclass` does."""
    if cls is None:
        return lambda cls: _dataclass(cls, repr=repr, eq=eq, frozen=frozen, slots=slots)
    if hasattr(cls, "__dataclass_fields__"):  # by inheritance, which has rules of its own
        return dataclasses.dataclass(repr=repr, eq=eq, frozen=frozen, slots=slots)(cls)
    has_hash = vars(cls).get("__hash__") is not None
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    parameters = cls.__dataclass_params__
    parameters.init, parameters.repr, parameters.eq, parameters.frozen = True, repr, eq, frozen
    fields = dataclasses.fields(cls)
    names = [one.name for one in fields]
    made = [_repr([one.name for one in fields if one.repr])] if repr else []
    if eq:
        made.append(_eq(_values_of([one.name for one in fields if one.compare])))
        if not has_hash:
            hashed = [one.name for one in fields if one.compare and one.hash is not False]
            cls.__hash__ = _hash(_values_of(hashed)) if frozen else None
    made += _frozen(cls, frozenset(names)) if frozen else ()
    made += _state(names) if frozen and slots else ()
    for method in made:
        if method.__name__ not in vars(cls):
            method.__qualname__, method.__module__ = f"{cls.__qualname__}.{method.__name__}", cls.__module__
            setattr(cls, method.__name__, method)
    if "__init__" not in vars(cls):
        cls.__init__ = _Init(cls, fields, frozen)
    return cls


if TYPE_CHECKING:  # the original, which type checkers know
    from dataclasses import dataclass
else:
    dataclass = _dataclass


class _Absent:
    """The default of a field with a factory, as signatures show it."""

    def __repr__(self) -> str:
        return "<factory>"


_ABSENT = _Absent()


class _Init:
    """The `__init__` of a class that nobody has used: the first access compiles it and puts it in this one's place."""

    def __init__(self, cls: Any, fields: Sequence[Any], frozen: bool) -> None:
        self._of = cls, fields, frozen

    def __get__(self, instance: Any, owner: Any) -> Any:
        init = _init(*self._of)
        self._of[0].__init__ = init
        return init.__get__(instance, owner)


def _init(cls: Any, fields: Sequence[Any], frozen: bool) -> Any:
    missing = dataclasses.MISSING
    known: dict[str, Any] = {"_set": _set, "_absent": _ABSENT}
    parameters, body = ["self"], []
    for one in fields:
        name, value = one.name, one.name
        if one.default_factory is not missing:
            known[f"_make_{name}"] = one.default_factory
            value = f"_make_{name}() if {name} is _absent else {name}" if one.init else f"_make_{name}()"
            parameters += [f"{name}=_absent"] if one.init else []
        elif one.default is not missing:
            known[f"_default_{name}"] = one.default
            parameters += [f"{name}=_default_{name}"] if one.init else []
            value = name if one.init else f"_default_{name}"
        elif one.init:
            parameters.append(name)
        else:
            continue  # `__post_init__` sets it
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    text = f"def make({', '.join(known)}):\n def __init__({', '.join(parameters)}):\n  "
    text += "\n  ".join(body or ["pass"]) + "\n return __init__"
    made: dict[str, Any] = {}
    exec(text, vars(sys.modules[cls.__module__]), made)  # noqa: S102  as the standard library does
    init = made["make"](**known)
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {**{one.name: one.type for one in fields if one.init}, "return": None}
    return init


def _values_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _repr(names: Sequence[str]) -> Any:
    @reprlib.recursive_repr("...")
    def __repr__(self: Any) -> str:  # noqa: N807
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _eq(values: Callable[[Any], tuple[Any, ...]]) -> Any:
    def __eq__(self: Any, other: Any) -> bool:  # noqa: N807
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Any:
    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


def _frozen(cls: Any, names: frozenset[str]) -> tuple[Any, Any]:
    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__


def _state(names: Sequence[str]) -> tuple[Any, Any]:
    def __getstate__(self: Any) -> list[Any]:  # noqa: N807
        return [getattr(self, name) for name in names]

    def __setstate__(self: Any, state: Sequence[Any]) -> None:  # noqa: N807
        for name, value in zip(names, state, strict=True):
            _set(self, name, value)

    return __getstate__, __setstate__
