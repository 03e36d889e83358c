"""Nested values as leaves with paths, within bounds; what the loaders of JSON and YAML share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from lazyrag.errors import LoadError
from lazyrag.loaders.encoding import clean
from lazyrag.loaders.selection import Pair

DEEPEST = 200
"""Levels of nesting that are read. Python's own readers of JSON end at about a thousand, wherever they are called."""
_LONGEST_PATH = 10_000


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping as the file has it: names in order, those that stand twice kept twice.

    Args:
        items: Pairs (name, value).
    """

    items: list[tuple[str, Value]]


Value: TypeAlias = "str | bool | list[Value] | Mapping | None"
"""A nested value. Numbers are texts, as the file spells them; None stands for no value."""


def too_deep() -> LoadError:
    """The error for a file whose values lie too deep."""
    msg = f"Its values are nested deeper than {DEEPEST} levels, which no writer of data does. Flatten it."
    return LoadError(msg)


def leaves(value: Value, path: str = "") -> Iterator[Pair]:
    """The values at the ends, in the file's order, each named by its path; a list of nothing but texts is one.

    Args:
        value: Any value.
        path: Its own path.

    Returns:
        Pairs (path, text), the text "" where nothing is there; control characters are spaces, as in `decode`.

    Raises:
        LoadError: If it is nested too deep, or names are of absurd length.

    Example:
        >>> list(leaves(Mapping([("tea", Mapping([("name", "Sencha"), ("seen", ["Uji", "Kyoto"])])), ("n", [["1"]])])))
        [('tea.name', 'Sencha'), ('tea.seen', 'Uji, Kyoto'), ('n[0]', '1')]
    """
    # A stack of its own: recursion would end where the caller's stack happens to be.
    pending: list[Iterator[tuple[str, Value]]] = [iter([(path, value)])]
    while pending:
        for at, one in pending[-1]:
            if len(at) > _LONGEST_PATH:
                msg = f"The path to a value has more than {_LONGEST_PATH:,} characters. Shorten its names."
                raise LoadError(msg)
            leaf = _leaf(one)
            if leaf is None:
                pending.append(_inside(at, one))
                break
            yield clean(at), clean(leaf)
        else:
            pending.pop()
        if len(pending) > DEEPEST:
            raise too_deep()


def _leaf(value: Value) -> str | None:
    """The text of a value, "" where it holds nothing; None if others lie beneath it."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return None if value.items else ""
    if isinstance(value, list):
        if not all(one is None or isinstance(one, (str, bool)) for one in value):
            return None
        return ", ".join(text for one in value if (text := _leaf(one)))
    return "" if value is None else str(value).lower()


def _inside(path: str, value: Value) -> Iterator[tuple[str, Value]]:
    if isinstance(value, Mapping):
        yield from ((f"{path}.{name}" if path and name else path or name, one) for name, one in value.items)
    elif isinstance(value, list):
        yield from ((f"{path}[{number}]", one) for number, one in enumerate(value))
