"""The rows of an index: which of them live, which of them a filter lets through, which of them are the best."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence, Sized
from typing import TYPE_CHECKING

import numpy as np

from lazyrag.data.filters import Filter
from lazyrag.errors import ConfigError
from lazyrag.indexes.blocks import Mask, RowBlock, decoded_keys, encoded_keys
from lazyrag.typing import Fields

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PILE = 64

_scratch = threading.local()


class LiveRows:
    """The rows of several parts, numbered on from one part to the next, and which of them live; never changed.

    Args:
        blocks: The parts' rows.
        alive: For each part a mask that is false for dead rows; None where all live.

    Raises:
        ConfigError: If a mask does not fit its part.

    Example:
        >>> rows = LiveRows([RowBlock.of(["a", "b"], None), RowBlock.of(["c"], None)], [np.array([True, False]), None])
        >>> rows.live, rows.keys(np.array([2, 0]))
        (2, ['c', 'a'])
    """

    __slots__ = ("alive", "blocks", "firsts", "live")

    def __init__(self, blocks: Sequence[RowBlock], alive: Sequence[Mask | None]) -> None:
        fitting = [mask is None or mask.shape == (len(block),) for block, mask in zip(blocks, alive, strict=False)]
        if len(blocks) != len(alive) or not all(fitting):
            shapes = [None if mask is None else mask.shape for mask in alive]
            msg = (
                f"Parts of {[len(block) for block in blocks]} rows got masks of {shapes}; "
                "give one for each part, a truth value for each of its rows, or None."
            )
            raise ConfigError(msg)
        self.blocks = tuple(blocks)
        self.firsts = np.cumsum([0, *map(len, blocks)])
        self.live = len(self)
        self.alive: Mask | None = None  # of all rows; None where all live
        if any(mask is not None for mask in alive):
            masks = [
                np.ones(len(block), np.bool_) if mask is None else mask
                for block, mask in zip(blocks, alive, strict=True)
            ]
            whole = np.concatenate(masks)
            self.live = int(np.count_nonzero(whole))
            self.alive = whole if self.live < len(whole) else None

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def mask(self, filter: Filter | None) -> Mask | None:  # noqa: A002  the word of the domain
        """(n,) bool, true for live rows that the bound filter lets through; None where that is every row."""
        if filter is None or not self.blocks:
            return self.alive
        masks = [block.mask(filter) for block in self.blocks]
        mask = masks[0] if len(masks) == 1 else np.concatenate(masks)
        return mask if self.alive is None else mask & self.alive

    def keys(self, rows: NDArray[np.integer]) -> list[str]:
        """The keys of some rows, in their order."""
        if len(self.blocks) == 1:
            return decoded_keys(self.blocks[0].keys[rows])
        block_of = self.firsts.searchsorted(rows, side="right") - 1
        own = (rows - self.firsts[block_of]).tolist()
        found = [self.blocks[block].keys[row] for block, row in zip(block_of.tolist(), own, strict=True)]
        return decoded_keys(np.array(found, np.bytes_))

    def find(self, keys: NDArray[np.bytes_]) -> NDArray[np.intp]:
        """(k,) the row of each key that lives, see `encoded_keys`; -1 for the others."""
        found = np.full(len(keys), -1)
        for block, first in zip(self.blocks, self.firsts[:-1], strict=True):
            rows = block.find(keys)
            rows = np.where(rows < 0, -1, rows + first)
            live = rows >= 0 if self.alive is None else (rows >= 0) & self.alive[rows]
            found[live] = rows[live]
        return found

    def page(self, after: str, limit: int) -> list[str]:
        """The next ``limit`` keys of live rows that are greater than one, in order."""
        start = encoded_keys([after])
        found = [np.zeros(0, np.bytes_)]
        for block, first in zip(self.blocks, self.firsts[:-1].tolist(), strict=True):
            alive = None if self.alive is None else self.alive[first : first + len(block)]
            found.append(block.keys[block.after(start, limit, alive)])
        return decoded_keys(np.sort(np.concatenate(found))[:limit])


def check_new_rows(keys: Sequence[str], contents: Sized, fields: Sequence[Fields] | None) -> None:
    """Refuse rows that do not go together, before anything is written.

    Args:
        keys: n distinct keys.
        contents: n lists of terms or vectors.
        fields: n mappings, or None.

    Raises:
        ConfigError: If keys repeat or the lengths differ.
    """
    distinct = len({*keys})
    if not distinct == len(keys) == len(contents) or (fields is not None and len(fields) != len(keys)):
        told = "" if fields is None else f" and {len(fields)} fields"
        msg = (
            f"add() got {len(keys)} keys ({distinct} distinct), {len(contents)} rows{told}; "
            "give distinct keys, one row for each, and fields for each or none."
        )
        raise ConfigError(msg)


def scratch_zeros(n: int) -> NDArray[np.float32]:
    """A row of zeros that this thread uses again for every query; fresh memory costs more than clearing it."""
    buffer: NDArray[np.float32] | None = getattr(_scratch, "buffer", None)
    if buffer is None or len(buffer) < n:
        buffer = _scratch.buffer = np.zeros(n + n // 4, np.float32)
    scores = buffer[:n]
    scores.fill(0.0)
    return scores


def best_rows(scores: NDArray[np.float32], topk: int, *, slack: float) -> NDArray[np.int32]:
    """Every row that can be among the topk best, given scores of which each may be off by a share of itself.

    Args:
        scores: (n,) float32, at least 0; rows with 0 are out.
        topk: At least 1.
        slack: Largest relative error of a score, times 2.

    Returns:
        Row numbers, in no particular order.
    """
    rows = contenders(scores, topk, slack=slack)
    return cut(np.flatnonzero(scores), scores, topk, slack=slack, missing=0.0) if rows is None else rows


def contenders(
    scores: NDArray[np.float32], topk: int, *, slack: float, missing: float = 0.0, at_most: int | None = None
) -> NDArray[np.int32] | None:
    """Every row that can be among the topk best when more is added to the scores.

    Rows are dealt to piles, and the piles' maxima bound the topk-th best score from below, so that only the rows of
    few piles are looked at. (A plain partition is slow on scores that are mostly 0.)

    Args:
        scores: (n,) float32. Rows that are out have 0; others may have less than that.
        topk: At least 1.
        slack: Largest relative error of a score, times 2.
        missing: By how much, beside that, a row can gain on another one at most.
        at_most: How many rows are of use; None means any number.

    Returns:
        Row numbers, in no particular order; None where they are more than is of use, or are not bounded by the piles:
        a row with 0 or less can be among the best, or there are few piles beside topk.
    """
    piles = len(scores) // _PILE
    if piles <= 4 * topk:
        return None
    dealt = scores[: piles * _PILE].reshape(_PILE, piles)  # a pile is a column: maxima are taken row by row
    maxima = dealt.max(axis=0)
    bound = float(np.partition(maxima, piles - topk)[piles - topk]) * (1.0 - slack) - missing
    if bound <= 0.0:
        return None
    tall = np.flatnonzero(maxima >= bound)
    if at_most is not None and len(tall) > at_most:  # each of them holds a row at least
        return None
    layer, column = np.nonzero(dealt[:, tall] >= bound)
    rest = np.flatnonzero(scores[piles * _PILE :] >= bound) + piles * _PILE
    found = np.concatenate([layer * piles + tall[column], rest])
    rows = cut(found, scores, topk, slack=slack, missing=missing)
    return None if at_most is not None and len(rows) > at_most else rows


def kth_largest(values: NDArray[np.floating], k: int) -> float:
    """The k-th largest of some values, by the piles of `contenders` where they are many.

    Args:
        values: (n,) not nan.
        k: In [1, n].
    """
    piles = len(values) // _PILE
    if piles > 4 * k:
        maxima = values[: piles * _PILE].reshape(_PILE, piles).max(axis=0)
        values = values[values >= np.partition(maxima, piles - k)[piles - k]]
    return float(np.partition(values, len(values) - k)[len(values) - k])


def cut(
    rows: NDArray[np.integer], scores: NDArray[np.float32], topk: int, *, slack: float, missing: float
) -> NDArray[np.int32]:
    """Those of some rows, the topk best among them, that can be among the topk best; see `contenders`."""
    if len(rows) > topk:
        kept = scores[rows]
        bound = float(np.partition(kept, len(kept) - topk)[len(kept) - topk]) * (1.0 - slack) - missing
        rows = rows[kept >= bound]
    return rows.astype(np.int32)


def ranked(
    keys: Callable[[NDArray[np.integer]], Sequence[str]],
    rows: NDArray[np.integer],
    scores: NDArray[np.float64],
    topk: int,
) -> list[tuple[str, float]]:
    """The topk best of some rows as a ranking: best first, ties by key.

    Args:
        keys: Gives rows' keys; asked for those only that can be in the ranking.
        rows: (m,) candidate rows.
        scores: (m,) their scores.
        topk: At least 1.
    """
    if len(rows) > topk:
        kept = scores >= np.partition(scores, len(scores) - topk)[len(scores) - topk]
        rows, scores = rows[kept], scores[kept]
    best = sorted(zip((-scores).tolist(), keys(rows), strict=True))
    return [(key, -negative) for negative, key in best[:topk]]
