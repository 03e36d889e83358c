"""Immutable parts in tiers: rows come in parts of their own, and are moved to larger ones a few times each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lazyrag.indexes.postings import Mask


class Part(Protocol):
    """Rows that are found by key."""

    def __len__(self) -> int: ...

    def find(self, keys: NDArray[np.bytes_]) -> NDArray[np.intp]:
        """(k,) the row of each key, -1 where there is none."""


P = TypeVar("P", bound=Part)


def without(
    parts: Sequence[Part], alive: Sequence[Mask | None], keys: NDArray[np.bytes_]
) -> tuple[list[Mask | None], int]:
    """The masks once these keys' rows are dead, and how many have died. The masks given stay as they are."""
    masks, gone = list(alive), 0
    for number, part in enumerate(parts):
        rows = part.find(keys)
        rows = rows[rows >= 0]
        mask = masks[number]
        if mask is not None:
            rows = rows[mask[rows]]
        if len(rows):
            changed = np.ones(len(part), np.bool_) if mask is None else mask.copy()
            changed[rows] = False
            masks[number] = changed
            gone += len(rows)
    return masks, gone


def tail_to_join(sizes: Sequence[int], live: int, most: int, *, full: int | None = None) -> int:
    """How many of the last parts should become one.

    Each part is at least twice as large as the next one, so that a row is moved a logarithmic number of times, and at
    least half of all rows live.

    Args:
        sizes: How many rows each part has.
        live: How many of all of them live.
        most: More parts than that are never left, those that are full not counted.
        full: Parts with so many rows stay as they are, which bounds the memory that joining takes. None: no part is.

    Returns:
        0 for none; all of them where too many rows are dead.

    Example:
        >>> tail_to_join([800, 100, 60, 50], 1010, most=8)
        3
        >>> tail_to_join([800, 100, 60, 50], 1010, most=8, full=100)
        2
    """
    if 2 * live < sum(sizes):
        return len(sizes)
    if full is not None:
        sizes = sizes[next((at for at in range(len(sizes), 0, -1) if sizes[at - 1] >= full), 0) :]
    count, size = 1, sizes[-1] if sizes else 0
    while count < len(sizes) and (len(sizes) - count + 1 > most or sizes[-count - 1] < 2 * size):
        count += 1
        size += sizes[-count]
    return count if count > 1 else 0


def tidied(
    parts: Sequence[P],
    alive: Sequence[Mask | None],
    join: Callable[[Sequence[P], Sequence[Mask | None]], P],
    most: int,
) -> tuple[list[P], list[Mask | None]]:
    """The parts and masks once the last ones are joined, see `tail_to_join`."""
    live = [len(part) if mask is None else int(mask.sum()) for part, mask in zip(parts, alive, strict=True)]
    count = tail_to_join([len(part) for part in parts], sum(live), most)
    if not count:
        return list(parts), list(alive)
    stay = len(parts) - count
    if not sum(live[stay:]):
        return list(parts[:stay]), list(alive[:stay])
    return [*parts[:stay], join(parts[stay:], alive[stay:])], [*alive[:stay], None]
