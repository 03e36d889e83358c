"""Indexes of immutable parts in tiers: new rows come in new parts, which are merged into larger
ones a few times.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from lazyrag.indexes.postings import Mask, Masks, RowPart, encoded_keys
from lazyrag.types import KeyArray


class _State(Protocol):
    @property
    def parts(self) -> Sequence[Any]: ...
    @property
    def alive(self) -> Masks: ...
    def __len__(self) -> int: ...


P = TypeVar("P", bound=RowPart)
S = TypeVar("S", bound=_State)


class TieredIndex(Generic[P, S]):
    """An index whose rows are added and deleted by key; incremental, and safe for concurrent
    readers.

    Args:
        make_state: Makes a state of parts, masks of their live rows and the state before.
        join: Merges parts, of which only live rows are kept.
        most_parts: More are merged.
    """

    def __init__(
        self,
        make_state: Callable[[Sequence[P], Masks, S | None], S],
        join: Callable[[Sequence[P], Masks], P],
        most_parts: int,
    ) -> None:
        self._make_state = make_state
        self._join = join
        self._most_parts = most_parts
        self._state = make_state([], [], None)
        self._writing = threading.Lock()

    def __len__(self) -> int:
        return len(self._state)

    @property
    def state(self) -> S:
        """The index as it is now; no later change touches it."""
        return self._state

    def _add_part(self, part: P) -> None:
        """Add new rows; a key that is present is replaced."""
        if len(part):
            with self._writing:
                parts = self._state.parts
                alive, _ = without(parts, self._state.alive, part.keys)
                self._put([*parts, part], [*alive, None])

    def delete(self, keys: Iterable[str]) -> int:
        """Delete rows; unknown keys are ignored. Returns the number of deleted rows."""
        encoded = encoded_keys(list(dict.fromkeys(keys)))
        with self._writing:
            parts = self._state.parts
            alive, died = without(parts, self._state.alive, encoded)
            if died:
                self._put(parts, alive)
            return died

    def _put(self, parts: Sequence[P], alive: Masks) -> None:
        parts, alive = tidied(parts, alive, self._join, self._most_parts)
        self._state = self._make_state(parts, alive, self._state)


def without(
    parts: Sequence[RowPart], alive: Masks, keys: KeyArray
) -> tuple[list[Mask | None], int]:
    """Mark the rows of some keys as dead; returns new masks and the number of rows that died."""
    masks = list(alive)
    died = 0
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
            died += len(rows)
    return masks, died


def tail_to_join(sizes: Sequence[int], live: int, most: int, *, full: int | None = None) -> int:
    """How many of the last parts should be merged.

    Each part stays at least twice as large as the next one, so that a row is moved a logarithmic
    number of times, and at least half of all rows are live.

    Args:
        sizes: How many rows each part has.
        live: How many of all of them live.
        most: More parts than that are never left, those that are full not counted.
        full: Parts with so many rows stay as they are, which bounds the memory that joining takes.
            None: no part is.

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
        full_parts = [number for number, size in enumerate(sizes) if size >= full]
        first = full_parts[-1] + 1 if full_parts else 0
        sizes = sizes[first:]
    count = 1
    joined_size = sizes[-1] if sizes else 0
    while count < len(sizes):
        parts_left = len(sizes) - count + 1
        previous_size = sizes[-count - 1]
        if parts_left <= most and previous_size >= 2 * joined_size:
            break
        count += 1
        joined_size += previous_size
    return count if count > 1 else 0


def tidied(
    parts: Sequence[P],
    alive: Masks,
    join: Callable[[Sequence[P], Masks], P],
    most: int,
) -> tuple[list[P], list[Mask | None]]:
    """Merge the last parts, see `tail_to_join`; returns parts and masks."""
    sizes = [len(part) for part in parts]
    live = [
        size if mask is None else int(mask.sum()) for size, mask in zip(sizes, alive, strict=True)
    ]
    count = tail_to_join(sizes, sum(live), most)
    if not count:
        return list(parts), list(alive)
    stay = len(parts) - count
    tidied_parts = list(parts[:stay])
    tidied_alive = list(alive[:stay])
    if sum(live[stay:]):
        joined = join(parts[stay:], alive[stay:])
        tidied_parts.append(joined)
        tidied_alive.append(None)
    return tidied_parts, tidied_alive
