"""Exact inner products of sparse vectors, on immutable parts of an inverted index."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from lazyrag.data.filters import Filter
from lazyrag.errors import ConfigError, StoreError
from lazyrag.indexes import bm25
from lazyrag.indexes.bm25 import Ranges
from lazyrag.indexes.postings import (
    Mask,
    Masks,
    Postings,
    RowBlock,
    RowPart,
    VectorRows,
    contenders,
    cut,
    pick,
    ranked,
    scratch_zeros,
    sorted_order,
)
from lazyrag.indexes.tiers import TieredIndex
from lazyrag.storage.arrays import Arrays
from lazyrag.types import (
    Fields,
    Float32Array,
    FloatArray,
    Int32Array,
    Int64Array,
    Ranking,
    SparseVector,
    UInt32Array,
    UInt64Array,
)
from lazyrag.validation import require, validate_integer


@dataclass(frozen=True, slots=True)
class SparsePart(RowPart):
    """The sparse vectors of some rows, by dimension; never changed. Rows have numbers of its own,
    from 0.

    Args:
        rows: Keys and fields.
        dimensions: (t,) uint64, ascending: those in which a row has a weight.
        postings: The rows of each of them, with weights.
        row_starts: (n + 1,) int64, the first of each row's ``positions``.
        positions: (p,) uint32, row by row the positions of its weights in the postings, by
            ascending dimension.
        lowest: (t,) float32, the smallest weight in each dimension.
        highest: (t,) float32, the largest.

    Example:
        >>> part = SparsePart.of_rows(["a", "b"], [{3: 0.5, 700: 2.0}, {3: 1.5}])
        >>> restored = SparsePart.from_arrays(part.arrays())
        >>> restored.vector(0), restored.vector(1)
        ({3: 0.5, 700: 2.0}, {3: 1.5})
    """

    dimensions: UInt64Array
    postings: Postings
    row_starts: Int64Array
    positions: UInt32Array
    lowest: Float32Array
    highest: Float32Array

    @classmethod
    def of_rows(
        cls,
        keys: Sequence[str],
        vectors: Sequence[Mapping[int, float]],
        fields: Sequence[Fields] | None = None,
    ) -> SparsePart:
        """A part of new rows.

        Args:
            keys: n distinct keys.
            vectors: n mappings from dimension to weight, see `SparseVector`; weights are rounded to
                float32, and those that are 0 are left out. One without a weight is kept, and never
                found.
            fields: What filters read of each; the rows of one file should share one object. JSON
                values and tuples.

        Raises:
            ConfigError: If keys repeat, the lengths differ, or a dimension or weight is out of its
                range.
        """
        lengths = np.fromiter(map(len, vectors), np.int64, len(vectors))
        total = int(lengths.sum())
        flat = dimension_array(chain.from_iterable(vectors), total)
        row_weights = (vector.values() for vector in vectors)
        weights = weight_array(chain.from_iterable(row_weights), total)
        if not weights.all():
            is_nonzero = weights != 0
            nonzero_before = np.cumsum(np.append(0, is_nonzero))
            row_starts = np.append(0, np.cumsum(lengths))
            lengths = np.diff(nonzero_before[row_starts])
            flat = flat[is_nonzero]
            weights = weights[is_nonzero]
        dimensions, numbers = np.unique(flat, return_inverse=True)
        postings = Postings.of_weights(numbers, lengths, weights)
        return cls._of_postings(RowBlock.of(keys, fields), dimensions, postings)

    @classmethod
    def joined(cls, parts: Sequence[SparsePart], masks: Masks) -> SparsePart:
        """Several parts as one, their rows in the same order.

        Args:
            parts: At least one.
            masks: For each of them a mask of the rows to keep; None for all.
        """
        blocks = []
        part_dimensions = []
        part_postings = []
        for part, mask in zip(parts, masks, strict=True):
            if mask is None or mask.all():
                blocks.append(part.rows)
                part_dimensions.append(part.dimensions)
                part_postings.append(part.postings)
            else:
                postings, left = part.postings.select(mask)
                blocks.append(part.rows.select(mask))
                part_dimensions.append(part.dimensions[left])
                part_postings.append(postings)
        dimensions = np.unique(np.concatenate(part_dimensions))
        firsts = np.cumsum([0, *map(len, blocks)]).tolist()[:-1]
        numbers = [dimensions.searchsorted(some) for some in part_dimensions]
        postings = Postings.joined(part_postings, firsts, numbers)
        return cls._of_postings(RowBlock.joined(blocks), dimensions, postings)

    def vector(self, row: int) -> SparseVector:
        """The vector of a row, by ascending dimension."""
        start, end = self.row_starts[row : row + 2]
        positions = self.positions[start:end]
        numbers = self.postings.starts.searchsorted(positions, side="right") - 1
        dimensions = self.dimensions[numbers].tolist()
        weights = self.postings.values[positions].tolist()
        return dict(zip(dimensions, weights, strict=True))

    def ranges(self, dimensions: UInt64Array) -> tuple[list[tuple[int, int]], FloatArray]:
        """For each of some dimensions where its postings begin and end (nowhere, if there are
        none), and the smallest and the largest of their weights: (k, 2), 0 where there are none.
        """
        if not len(self.dimensions):
            return [(0, 0)] * len(dimensions), np.zeros((len(dimensions), 2))
        numbers = self.dimensions.searchsorted(dimensions)
        numbers = np.minimum(numbers, len(self.dimensions) - 1)
        is_present = self.dimensions[numbers] == dimensions
        starts = np.where(is_present, self.postings.starts[numbers], 0)
        ends = np.where(is_present, self.postings.starts[numbers + 1], 0)
        ranges = list(zip(starts.tolist(), ends.tolist(), strict=True))
        extremes = np.stack([self.lowest[numbers], self.highest[numbers]], axis=1)
        return ranges, extremes.astype(np.float64) * is_present[:, None]

    def arrays(self) -> Arrays:
        """Arrays for `from_arrays`, to be written to a file."""
        return {
            **self.rows.arrays(),
            "dimensions": self.dimensions,
            "starts": self.postings.starts,
            "rows": self.postings.rows,
            "weights": self.postings.values,
            "row_starts": self.row_starts,
            "places": self.positions,
            "lowest": self.lowest,
            "highest": self.highest,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> SparsePart:
        """A part over arrays, which may be memory-mapped; they are read when a query needs them.

        Raises:
            StoreError: If arrays are missing, or of lengths that do not go together.
        """
        picked = pick(arrays, *_ARRAYS)
        dimensions, starts, rows, weights, row_starts, positions, lowest, highest = picked
        block = RowBlock.from_arrays(arrays)
        size = int(starts[-1]) if len(starts) else -1
        count = len(dimensions)
        has_all_dimensions = len(starts) - 1 == len(lowest) == len(highest) == count
        has_all_weights = len(rows) == len(weights) == len(positions) == size
        has_all_rows = len(row_starts) == len(block) + 1
        if not (has_all_dimensions and has_all_weights and has_all_rows):
            lengths = ", ".join(f"{name} {len(arrays[name])}" for name in _ARRAYS)
            raise StoreError(
                f"A part of an index has {len(block)} rows and {count} dimensions with {size}"
                f" weights, and arrays of other lengths: {lengths}. Its file is damaged."
            )
        postings = Postings(starts, rows, weights)
        return cls(block, dimensions, postings, row_starts, positions, lowest, highest)

    @classmethod
    def _of_postings(
        cls, rows: RowBlock, dimensions: UInt64Array, postings: Postings
    ) -> SparsePart:
        sizes = np.bincount(postings.rows, minlength=len(rows))
        row_starts = np.append(0, np.cumsum(sizes)).astype(np.int64)
        positions = sorted_order(postings.rows).astype(np.uint32)
        lowest = highest = np.zeros(0, np.float32)
        firsts = postings.starts[:-1]
        if len(firsts):  # every dimension has postings, so no reduced slice is empty
            lowest = np.minimum.reduceat(postings.values, firsts)
            highest = np.maximum.reduceat(postings.values, firsts)
        return cls(rows, dimensions, postings, row_starts, positions, lowest, highest)


_ARRAYS = (
    "dimensions",
    "starts",
    "rows",
    "weights",
    "row_starts",
    "places",
    "lowest",
    "highest",
)
"""Arrays of a `SparsePart`, beside those of its rows."""


def dimension_array(dimensions: Iterable[int], count: int) -> UInt64Array:
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
        raise ConfigError(
            "Sparse vector dimensions must be integers from 0 to 2**64 - 1; got another one"
            f" ({exc})."
        ) from exc


def weight_array(weights: Iterable[float], count: int) -> Float32Array:
    """Weights as (count,) float32.

    Raises:
        ConfigError: If one is none, or not finite.

    Example:
        >>> weight_array([0.5, 1.0], 2)
        array([0.5, 1. ], dtype=float32)
    """
    try:
        with np.errstate(over="ignore"):
            values = np.fromiter(weights, np.float64, count).astype(np.float32)
    except (OverflowError, TypeError, ValueError) as exc:
        raise ConfigError(f"A sparse vector has a weight that is no number ({exc}).") from exc
    is_finite = bool(np.isfinite(values).all())
    require(is_finite, "The weights of a sparse vector", values, "finite, as float32 too")
    return values


_MAX_PARTS = 16
# of float32's normal range
_SMALLEST = 2.0**-126
_LARGEST = 2.0**127


@dataclass(frozen=True, slots=True)
class _Query:
    """A query's dimensions that occur, and their postings.

    Args:
        weights: Of each of k dimensions, which ascend; float64.
        ranges: Where their postings are in each part.
        least: The least that each of them can give a row: at most 0.
        most: The most: at least 0.
    """

    weights: list[float]
    ranges: Ranges
    least: FloatArray
    most: FloatArray


class SparseState(VectorRows[SparsePart, "SparseVector"]):
    """Some parts, and which of their rows live. Immutable, and safe for any number of threads.

    The score is the inner product, and only rows are ranked that share a dimension with the query,
    also where the score is 0 or less. A float32 pass over the postings finds the rows that can be
    among the best within its rounding error, and a float64 pass over those gives their scores,
    summed by ascending dimension: equal vectors get equal scores wherever they lie, and scores do
    not depend on how the rows are dealt to parts.

    Args:
        parts: Their live rows have distinct keys.
        alive: For each part a mask that is false for dead rows; None if all are live. Not to be
            changed afterwards.

    Example:
        >>> part = SparsePart.of_rows(["a", "b", "c"], [{3: 0.5, 7: 2.0}, {3: 1.5}, {8: 9.0}])
        >>> SparseState([part], [None]).search({3: 2.0, 9: 1.0}, 10)
        [('b', 3.0), ('a', 1.0)]
    """

    def search(
        self,
        query: Mapping[int, float],
        topk: int,
        *,
        filter: Filter | None = None,  # noqa: A002
    ) -> Ranking:
        """The best live rows that share a dimension with the query.

        Args:
            query: Dimensions to weights, see `SparseVector`; weights are rounded to float32.
            topk: At least 1.
            filter: A bound filter over the rows' fields.

        Returns:
            At most topk pairs (key, inner product), best first, ties by key.

        Raises:
            ConfigError: If topk is below 1, or a dimension or weight is out of its range.
        """
        validate_integer("topk", topk, 1)
        parsed = self._query(query)
        if not parsed.weights:
            return []
        mask = self._rows.mask(filter)
        rows = self._candidates(parsed, topk, mask)
        rows.sort()
        scores = self._scores(rows, parsed)
        return ranked(self._rows.keys, rows, scores, topk)

    def _query(self, query: Mapping[int, float]) -> _Query:
        """The query in ascending order of dimensions, without unknown ones."""
        dimensions = dimension_array(query, len(query))
        weights = weight_array(query.values(), len(query))
        order = dimensions.argsort()
        dimensions = dimensions[order]
        weights = weights[order].astype(np.float64)
        by_part = [part.ranges(dimensions) for part in self.parts]
        low = np.min([extremes[:, 0] for _, extremes in by_part], axis=0, initial=0.0)
        high = np.max([extremes[:, 1] for _, extremes in by_part], axis=0, initial=0.0)
        gains = np.stack([weights * low, weights * high])
        shared = np.flatnonzero(gains.any(axis=0))  # a weight of 0 shares nothing
        numbers = shared.tolist()
        ranges = []
        for part_ranges, _ in by_part:
            ranges.append([part_ranges[number] for number in numbers])
        gains = gains[:, shared]
        return _Query(weights[shared].tolist(), ranges, gains.min(axis=0), gains.max(axis=0))

    def _candidates(self, parsed: _Query, topk: int, mask: Mask | None) -> Int32Array:
        """Rows among which the topk best are."""
        postings = [part.postings for part in self.parts]
        firsts = self._rows.firsts.tolist()

        def matching() -> Int32Array:
            rows = bm25.matching_rows(postings, parsed.ranges, firsts)
            return rows if mask is None else rows[mask[rows]]

        # The scale brings every sum of some of the products into [-1, 1].
        sizes = np.maximum(-parsed.least, parsed.most)
        scale = 1.0 / float(sizes.sum())
        weights = [weight * scale for weight in parsed.weights]
        if not all(_SMALLEST <= abs(weight) <= _LARGEST for weight in weights):
            return matching()  # too large or too small for float32
        scores = scratch_zeros(len(self._rows))

        def add_up(numbers: list[int]) -> None:
            for number, part in enumerate(postings):
                part_scores = scores[firsts[number] : firsts[number + 1]]
                part_ranges = parsed.ranges[number]
                bm25.add_up(part_scores, part, part.values, part_ranges, weights, numbers)
            if mask is not None:
                np.multiply(scores, mask, out=scores)

        # Each of n products is rounded when its weight becomes float32, when it is made, and when
        # it is added, all but the first: |error| <= (n + 1) u times the sum of their sizes, which
        # is at most 1, with u = 2^-24. The rest is for products below the normal range and for the
        # bounds, which are rounded, too. All of it counts twice: of two rows one may seem too good
        # and the other too bad.
        error = 2.0 * (len(weights) + 6) * 2.0**-24
        spans = parsed.most - parsed.least
        scaled_spans = (spans * scale).tolist()
        early, late, late_postings = bm25.split_terms(parsed.ranges, scaled_spans)
        add_up(early)
        if late:
            # Rows far enough behind do not need the late dimensions, which add between their least
            # and their most.
            missing = float(spans[late].sum()) * scale + error
            most = late_postings // (bm25.POSTINGS_PER_LOOKUP * len(weights))
            best = contenders(scores, topk, slack=0.0, missing=missing, max_candidates=most)
            if best is not None:
                return best
            add_up(late)
        best = contenders(scores, topk, slack=0.0, missing=error)
        if best is None:
            best = cut(matching(), scores, topk, slack=0.0, missing=error)
        return best

    def _scores(self, rows: Int32Array, parsed: _Query) -> FloatArray:
        """Scores of some rows, which are ascending."""
        scores = np.zeros(len(rows))
        for number, places, part_rows in self._rows.by_part(rows):
            postings = self.parts[number].postings  # there are some: such a row has a weight
            scores[places] = bm25.exact_products(
                postings, part_rows, parsed.ranges[number], parsed.weights
            )
        return scores


class SparseIndex(TieredIndex[SparsePart, SparseState]):
    """Sparse vectors ranked by inner product, exactly; incremental, safe for concurrent readers;
    see `SparseState`.

    Example:
        >>> index = SparseIndex()
        >>> index.add(["a", "b"], [{3: 0.5, 7: 2.0}, {3: 1.5}])
        >>> index.state.search({3: 2.0}, 1)
        [('b', 3.0)]
    """

    def __init__(self) -> None:
        super().__init__(
            lambda parts, alive, _: SparseState(parts, alive), SparsePart.joined, _MAX_PARTS
        )

    def add(
        self,
        keys: Sequence[str],
        vectors: Sequence[Mapping[int, float]],
        fields: Sequence[Fields] | None = None,
    ) -> None:
        """Add rows; a key that is present is replaced. See `SparsePart.of_rows`."""
        self._add_part(SparsePart.of_rows(keys, vectors, fields))
