"""Filters in a backend's own language, as far as that says exactly the same."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from lazyrag.data.filters import And, Condition, Filter, Not, both

T = TypeVar("T")


class Dialect(Protocol[T]):
    """A backend's language of filters. What is written in it means exactly what `matches` says, or is not written.

    Values reach the backend through `condition` alone: that is the place where they are escaped.
    """

    def condition(self, condition: Condition) -> T | None:
        """The same condition; None where the language cannot say it."""

    def all_of(self, parts: Sequence[T]) -> T:
        """What holds where each of at least two parts does."""

    def any_of(self, parts: Sequence[T]) -> T:
        """What holds where any of at least two parts does."""

    def negated(self, part: T) -> T | None:
        """What holds where a part does not; None where the language cannot say it."""

    def never(self) -> T | None:
        """What holds nowhere; None where the language cannot say it."""


@dataclass(frozen=True, slots=True)
class Pushed(Generic[T]):
    """A filter, divided between a backend and us; both parts must hold.

    Args:
        native: What the backend looks at; None where that is nothing.
        rest: What is looked at row by row, by `matches`; None where that is nothing.
    """

    native: T | None = None
    rest: Filter | None = None


def pushed_down(filter: Filter | None, dialect: Dialect[T]) -> Pushed[T]:  # noqa: A002  the word of the domain
    """Divide a bound filter: as much as possible for the backend, the rest for us.

    Args:
        filter: A bound filter; None lets everything through.
        dialect: The backend's language.

    Returns:
        Parts that together mean the same.
    """
    if filter is None:
        return Pushed()
    if isinstance(filter, Condition):
        return _native_or_rest(dialect.condition(filter), filter)
    if isinstance(filter, Not):
        return _native_or_rest(_negated(pushed_down(filter.filter, dialect), dialect), filter)
    parts = [pushed_down(part, dialect) for part in filter.filters]
    if isinstance(filter, And):
        rest = functools.reduce(both, (part.rest for part in parts), None)
        return Pushed(_joined([part.native for part in parts if part.native is not None], dialect.all_of), rest)
    return _any_of(filter, parts, dialect)


def _native_or_rest(native: T | None, filter: Filter) -> Pushed[T]:  # noqa: A002
    return Pushed(rest=filter) if native is None else Pushed(native)


def _negated(inner: Pushed[T], dialect: Dialect[T]) -> T | None:
    if inner == Pushed():  # it always holds
        return dialect.never()
    return None if inner.native is None or inner.rest is not None else dialect.negated(inner.native)


def _any_of(filter: Filter, parts: Sequence[Pushed[T]], dialect: Dialect[T]) -> Pushed[T]:  # noqa: A002
    if not parts:
        return _native_or_rest(dialect.never(), filter)
    if any(part == Pushed() for part in parts):
        return Pushed()  # one alternative always holds
    natives = [part.native for part in parts if part.native is not None]
    if len(natives) < len(parts):
        return Pushed(rest=filter)
    # Where an alternative has a rest, the backend lets through too much, and the whole is looked at again.
    is_whole = all(part.rest is None for part in parts)
    return Pushed(_joined(natives, dialect.any_of), None if is_whole else filter)


def _joined(parts: Sequence[T], join: Callable[[Sequence[T]], T]) -> T | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else join(parts)
