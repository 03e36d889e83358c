"""Sparse vectors by dimension, in immutable parts: written once, opened memory-mapped, joined when they are many."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrag.errors import ConfigError, StoreError
from lazyrag.indexes.blocks import Mask, RowBlock, pick
from lazyrag.indexes.postings import Postings, sorted_order
from lazyrag.indexes.rows import LiveRows, check_new_rows
from lazyrag.storage.array_format import Arrays
from lazyrag.typing import Fields, SparseVector

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SparsePart:
    """The sparse vectors of some rows, by dimension; never changed. Rows have numbers of its own, from 0.

    Args:
        rows: Keys and fields.
        dimensions: (t,) uint64, ascending: those in which a row has a weight.
        postings: The rows of each of them, with weights.
        row_starts: (n + 1,) int64, where in ``places`` each row begins.
        places: (p,) uint32, row by row where in the postings its weights are, by ascending dimension.
        lowest: (t,) float32, the smallest weight in each dimension.
        highest: (t,) float32, the largest.

    Example:
        >>> part = SparsePart.of_rows(["a", "b"], [{3: 0.5, 700: 2.0}, {3: 1.5}])
        >>> again = SparsePart.from_arrays(part.arrays())
        >>> again.vector(0), again.vector(1)
        ({3: 0.5, 700: 2.0}, {3: 1.5})
    """

    rows: RowBlock
    dimensions: NDArray[np.uint64]
    postings: Postings
    row_starts: NDArray[np.int64]
    places: NDArray[np.uint32]
    lowest: NDArray[np.float32]
    highest: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def keys(self) -> NDArray[np.bytes_]:
        """(n,) the keys of the rows, UTF-8 of fixed width."""
        return self.rows.keys

    @classmethod
    def of_rows(
        cls, keys: Sequence[str], vectors: Sequence[Mapping[int, float]], fields: Sequence[Fields] | None = None
    ) -> SparsePart:
        """A part of new rows.

        Args:
            keys: n distinct keys.
            vectors: n mappings from dimension to weight, see `SparseVector`; weights are rounded to float32, and those
                that are 0 are left out. One without a weight is kept, and never found.
            fields: What filters read of each; the rows of one file should share one object. JSON values and tuples.

        Raises:
            ConfigError: If keys repeat, the lengths differ, or a dimension or weight is out of its range.
        """
        check_new_rows(keys, vectors, fields)
        lengths = np.fromiter(map(len, vectors), np.int64, len(vectors))
        flat = dimension_array(chain.from_iterable(vectors), int(lengths.sum()))
        weights = weight_array(chain.from_iterable(vector.values() for vector in vectors), len(flat))
        if not weights.all():
            ends = np.cumsum(np.append(0, weights != 0))
            lengths = np.diff(ends[np.append(0, np.cumsum(lengths))])
            flat, weights = flat[weights != 0], weights[weights != 0]
        dimensions, numbers = np.unique(flat, return_inverse=True)
        return cls._made(RowBlock.of(keys, fields), dimensions, Postings.of_weights(numbers, lengths, weights))

    @classmethod
    def joined(cls, parts: Sequence[SparsePart], kept: Sequence[Mask | None]) -> SparsePart:
        """Several parts as one, their rows in the same order.

        Args:
            parts: At least one.
            kept: For each of them a mask of the rows to keep; None for all.

        Raises:
            ConfigError: If there is no part, or a mask does not fit its part.
        """
        if not parts:
            msg = "SparsePart.joined() got no parts; give at least one."
            raise ConfigError(msg)
        LiveRows([part.rows for part in parts], kept)  # refuses masks that do not fit
        left = [
            (part.rows, part.dimensions, part.postings) if mask is None or mask.all() else part._kept(mask)
            for part, mask in zip(parts, kept, strict=True)
        ]
        blocks, own_dimensions, postings = zip(*left, strict=True)
        dimensions = np.unique(np.concatenate(own_dimensions))
        firsts = np.cumsum([0, *map(len, blocks)]).tolist()[:-1]
        numbers = [dimensions.searchsorted(own) for own in own_dimensions]
        return cls._made(RowBlock.joined(blocks), dimensions, Postings.joined(postings, firsts, numbers))

    def find(self, keys: NDArray[np.bytes_]) -> NDArray[np.intp]:
        """(k,) the row of each key, see `encoded_keys`; -1 where there is none."""
        return self.rows.find(keys)

    def vector(self, row: int) -> SparseVector:
        """The vector of a row, by ascending dimension."""
        places = self.places[self.row_starts[row] : self.row_starts[row + 1]]
        own = self.dimensions[self.postings.starts.searchsorted(places, side="right") - 1]
        return dict(zip(own.tolist(), self.postings.values[places].tolist(), strict=True))

    def ranges(self, dimensions: NDArray[np.uint64]) -> tuple[list[tuple[int, int]], NDArray[np.float64]]:
        """For each of some dimensions where its postings begin and end (nowhere, if there are none), and the smallest
        and the largest of their weights: (k, 2), 0 where there are none.
        """
        if not len(self.dimensions):
            return [(0, 0)] * len(dimensions), np.zeros((len(dimensions), 2))
        at = np.minimum(self.dimensions.searchsorted(dimensions), len(self.dimensions) - 1)
        there = self.dimensions[at] == dimensions
        starts = np.where(there, self.postings.starts[at], 0).tolist()
        ends = np.where(there, self.postings.starts[at + 1], 0).tolist()
        weights = np.stack([self.lowest[at], self.highest[at]], axis=1).astype(np.float64) * there[:, None]
        return list(zip(starts, ends, strict=True)), weights

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What `from_arrays` makes an equal part of: arrays without objects, to be written to a file."""
        return {
            **self.rows.arrays(),
            "dimensions": self.dimensions,
            "starts": self.postings.starts,
            "rows": self.postings.rows,
            "weights": self.postings.values,
            "row_starts": self.row_starts,
            "places": self.places,
            "lowest": self.lowest,
            "highest": self.highest,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> SparsePart:
        """A part over arrays, which may be memory-mapped; they are read when a query needs them.

        Raises:
            StoreError: If arrays are missing, or of lengths that do not go together.
        """
        names = ("dimensions", "starts", "rows", "weights", "row_starts", "places", "lowest", "highest")
        dimensions, starts, rows, weights, row_starts, places, lowest, highest = pick(arrays, *names)
        block = RowBlock.from_arrays(arrays)
        size, known = int(starts[-1]) if len(starts) else -1, len(dimensions)
        fitting = (
            len(starts) - 1 == len(lowest) == len(highest) == known
            and len(rows) == len(weights) == len(places) == size
            and len(row_starts) == len(block) + 1
        )
        if not fitting:
            msg = (
                f"A part of an index has {len(block)} rows and {known} dimensions with {size} weights, and arrays of "
                f"other lengths: {', '.join(f'{name} {len(arrays[name])}' for name in names)}. Its file is damaged."
            )
            raise StoreError(msg)
        return cls(block, dimensions, Postings(starts, rows, weights), row_starts, places, lowest, highest)

    @classmethod
    def _made(cls, rows: RowBlock, dimensions: NDArray[np.uint64], postings: Postings) -> SparsePart:
        sizes = np.bincount(postings.rows, minlength=len(rows))
        row_starts = np.append(0, np.cumsum(sizes)).astype(np.int64)
        places = sorted_order(postings.rows).astype(np.uint32)
        # Every dimension has postings, so each slice that is reduced holds one at least.
        firsts, weights = postings.starts[:-1], postings.values
        lowest, highest = (
            reduced.reduceat(weights, firsts) if len(firsts) else np.zeros(0, np.float32)
            for reduced in (np.minimum, np.maximum)
        )
        return cls(rows, dimensions, postings, row_starts, places, lowest, highest)

    def _kept(self, mask: Mask) -> tuple[RowBlock, NDArray[np.uint64], Postings]:
        postings, left = self.postings.kept(mask)
        return self.rows.kept(mask), self.dimensions[left], postings


def dimension_array(dimensions: Iterable[int], count: int) -> NDArray[np.uint64]:
    """Dimensions as (count,) uint64.

    Raises:
        ConfigError: If one is none.

    Example:
        >>> dimension_array({7: 0.5, 3: 1.0}, 2)
        array([7, 3], dtype=uint64)
    """
    try:
        return np.fromiter(map(operator.index, dimensions), np.uint64, count)
    except (OverflowError, TypeError, ValueError) as exc:
        msg = f"A sparse vector has a dimension that is none ({exc}); dimensions are whole numbers from 0 to 2**64 - 1."
        raise ConfigError(msg) from exc


def weight_array(weights: Iterable[float], count: int) -> NDArray[np.float32]:
    """Weights as (count,) float32.

    Raises:
        ConfigError: If one is none, or not finite.

    Example:
        >>> weight_array([0.5, 1.0], 2)
        array([0.5, 1. ], dtype=float32)
    """
    try:
        with np.errstate(over="ignore"):
            found = np.fromiter(weights, np.float64, count).astype(np.float32)
    except (OverflowError, TypeError, ValueError) as exc:
        msg = f"A sparse vector has a weight that is no number ({exc})."
        raise ConfigError(msg) from exc
    if not np.isfinite(found).all():
        msg = "A sparse vector has nan or infinity in it; every weight must be finite, as float32 too."
        raise ConfigError(msg)
    return found
