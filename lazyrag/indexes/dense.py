"""Exact nearest vectors on float32 matrices."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrag.data.filters import Filter
from lazyrag.errors import ConfigError, StoreError
from lazyrag.indexes.blocks import Mask, RowBlock, encoded_keys, pick
from lazyrag.indexes.rows import LiveRows, check_new_rows, ranked
from lazyrag.indexes.tiers import tidied, without
from lazyrag.storage.array_format import Arrays
from lazyrag.typing import Fields, Matrix, Metric, Ranking, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

METRICS: tuple[Metric, ...] = ("cosine", "ip", "l2")

_MOST_BLOCKS = 16
_GATHER_BELOW = 0.3  # share of rows below which copying the filtered rows beats scanning all of them


@dataclass(frozen=True, slots=True)
class DenseBlock:
    """The vectors of some rows, in the order of their keys; never changed.

    Args:
        rows: Keys, ascending, and fields.
        matrix: (n, dimension) float32, finite.
        norms: (n,) float64, their lengths.

    Example:
        >>> block = DenseBlock.of_rows(["b", "a"], np.array([[1, 0], [3, 4]], np.float32))
        >>> DenseBlock.from_arrays(block.arrays()).norms.tolist()
        [5.0, 1.0]
    """

    rows: RowBlock
    matrix: Matrix
    norms: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def keys(self) -> NDArray[np.bytes_]:
        """(n,) the keys of the rows, UTF-8 of fixed width, ascending."""
        return self.rows.keys

    @classmethod
    def of_rows(cls, keys: Sequence[str], vectors: Matrix, fields: Sequence[Fields] | None = None) -> DenseBlock:
        """A block of new rows.

        Args:
            keys: n distinct keys.
            vectors: (n, dimension) float32, finite; copied.
            fields: What filters read of each; the rows of one file should share one object. JSON values and tuples.

        Raises:
            ConfigError: If keys repeat, the lengths differ or a number is not finite.
        """
        check_new_rows(keys, vectors, fields)
        if not np.isfinite(vectors).all():
            msg = "add() got a vector with nan or infinity in it; every number must be finite."
            raise ConfigError(msg)
        rows = RowBlock.of(keys, fields)
        order = rows.keys.argsort()
        matrix = np.asarray(vectors, np.float32)[order]
        return cls(rows.kept(order), matrix, np.sqrt(_dots(matrix, matrix)))

    @classmethod
    def joined(cls, blocks: Sequence[DenseBlock], kept: Sequence[Mask | None]) -> DenseBlock:
        """At least one block as one, without the rows where the block's mask is false; None keeps all."""
        chosen = [
            np.arange(len(block)) if mask is None else np.flatnonzero(mask)
            for block, mask in zip(blocks, kept, strict=True)
        ]
        rows = RowBlock.joined([block.rows.kept(own) for block, own in zip(blocks, chosen, strict=True)])
        order = rows.keys.argsort(kind="stable")  # it finds that the blocks are sorted
        places = np.empty(len(order), np.intp)
        places[order] = np.arange(len(order))
        matrix = np.empty((len(order), blocks[0].matrix.shape[1]), np.float32)
        norms = np.empty(len(order))
        first = 0
        for block, own in zip(blocks, chosen, strict=True):
            to = places[first : first + len(own)]
            matrix[to], norms[to] = block.matrix[own], block.norms[own]
            first += len(own)
        return cls(rows.kept(order), matrix, norms)

    def find(self, keys: NDArray[np.bytes_]) -> NDArray[np.intp]:
        """(k,) the row of each key, see `encoded_keys`; -1 where there is none."""
        return self.rows.find(keys)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What `from_arrays` makes an equal block of: arrays without objects, to be written to a file."""
        return {**self.rows.arrays(), "matrix": self.matrix, "norms": self.norms}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> DenseBlock:
        """A block over arrays, which may be memory-mapped; they are read when a query needs them.

        Raises:
            StoreError: If arrays are missing, or of shapes that do not go together.
        """
        matrix, norms = pick(arrays, "matrix", "norms")
        rows = RowBlock.from_arrays(arrays)
        if matrix.ndim != 2 or not len(matrix) == len(norms) == len(rows):
            msg = f"A part of an index has {len(rows)} keys, a matrix of {matrix.shape} and {len(norms)} norms."
            raise StoreError(msg)
        return cls(rows, matrix, norms)


class DenseState:
    """What a query reads: some blocks, and which of their rows live. Never changed, safe for any number of threads.

    Scores: cosine in [-1, 1] (0 for a vector without length); inner product; L2 as 1 / (1 + distance). A float32 pass
    over the matrices finds the rows that can be among the best within its rounding error, and a float64 pass over
    those gives their scores: equal vectors get equal scores wherever they lie.

    Args:
        blocks: Their live rows have distinct keys.
        alive: For each block a mask that is false for dead rows; None where all live. Not to be changed afterwards.
        dimension: Length of the vectors, at least 1.
        metric: ``"cosine"``, ``"ip"`` or ``"l2"``.

    Raises:
        ConfigError: If a value is out of its range, or a mask does not fit its block.

    Example:
        >>> block = DenseBlock.of_rows(["a", "b"], np.array([[1, 0], [1, 1]], np.float32))
        >>> DenseState([block], [None], 2, "cosine").search(np.array([2, 0], np.float32), 1)
        [('a', 1.0)]
    """

    def __init__(
        self, blocks: Sequence[DenseBlock], alive: Sequence[Mask | None], dimension: int, metric: Metric
    ) -> None:
        if metric not in METRICS or dimension < 1:
            msg = f"A DenseIndex got dimension={dimension!r}, metric={metric!r}; allowed: >= 1, {', '.join(METRICS)}."
            raise ConfigError(msg)
        self.blocks = tuple(blocks)
        self.alive = tuple(alive)
        self.dimension = dimension
        self.metric: Metric = metric
        self._rows = LiveRows([block.rows for block in self.blocks], alive)

    def __len__(self) -> int:
        return self._rows.live

    def get(self, keys: Sequence[str]) -> list[tuple[str, Vector, Fields]]:
        """Key, vector as it was added and fields of those keys that live, in the order asked for."""
        rows = self._rows.find(encoded_keys(keys))
        return [self._row(key, row) for key, row in zip(keys, rows.tolist(), strict=True) if row >= 0]

    def page(self, after: str, limit: int) -> list[tuple[str, Vector, Fields]]:
        """Key, vector and fields of the next ``limit`` live rows whose key is greater than one, in key order."""
        return self.get(self._rows.page(after, limit))

    def matching(self, filter: Filter) -> list[str]:  # noqa: A002  the word of the domain
        """The keys of the live rows that a bound filter lets through."""
        mask = self._rows.mask(filter)
        return [] if mask is None else self._rows.keys(np.flatnonzero(mask))

    def search(self, query: Vector, topk: int, *, filter: Filter | None = None) -> Ranking:  # noqa: A002
        """The best live rows by the metric.

        Args:
            query: (dimension,) finite.
            topk: At least 1.
            filter: A bound filter over the rows' fields.

        Returns:
            At most topk pairs (key, score), best first, ties by key.

        Raises:
            ConfigError: If topk or the query's shape is wrong, or the query is not finite.
        """
        exact_query = np.asarray(query, np.float64)
        if topk < 1 or exact_query.shape != (self.dimension,) or not np.isfinite(exact_query).all():
            msg = (
                f"search() got topk={topk} and a query of shape {exact_query.shape}; "
                f"topk is at least 1 and a query is {self.dimension} finite numbers."
            )
            raise ConfigError(msg)
        mask = self._rows.mask(filter)
        candidates = np.arange(len(self._rows)) if mask is None else np.flatnonzero(mask)
        if not len(candidates):
            return []
        if len(candidates) > topk:
            candidates = self._contenders(candidates, exact_query, topk)
        scores = self._scores(candidates, exact_query)
        return ranked(self._rows.keys, candidates, scores, topk)

    def _contenders(self, rows: NDArray[np.intp], query: NDArray[np.float64], topk: int) -> NDArray[np.intp]:
        """The rows that can be among the topk best, by inner products in float32 and their largest error."""
        length = float(np.linalg.norm(query))
        if not length:
            return rows
        direction = (query / length).astype(np.float32)
        bounds = [self._bounds(block, own, direction, length) for block, own, _ in self._by_block(rows)]
        worth, error = (np.concatenate(some) for some in zip(*bounds, strict=True))
        floor = worth - error
        threshold = np.partition(floor, len(floor) - topk)[len(floor) - topk]
        contenders: NDArray[np.intp] = rows[worth + error >= threshold]
        return contenders

    def _bounds(
        self, block: DenseBlock, rows: NDArray[np.intp], direction: NDArray[np.float32], length: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What some rows of a block are worth beside others, and the largest error of that."""
        whole = len(rows) == len(block)
        norms = block.norms if whole else block.norms[rows]
        with np.errstate(over="ignore", invalid="ignore"):
            if len(rows) < _GATHER_BELOW * len(block):
                single = block.matrix[rows] @ direction
            else:
                single = block.matrix @ direction
                single = single if whole else single[rows]
        products = single.astype(np.float64)
        # With a query y of length 1, |fl(x.y) - x.y| <= d u / (1 - d u) |x| with u = 2^-24, once more u for rounding
        # the query, and half of 2^-149 for each product below the normal range (Higham, Accuracy and Stability of
        # Numerical Algorithms, 2.2 and 3.1); doubled for good measure.
        error = 2.0 * (self.dimension + 1) * 2.0**-24 * norms + self.dimension * 2.0**-149
        if self.metric == "cosine":
            scale = np.where(norms > 0, norms, 1.0)
            worth, error = products / scale, error / scale
        elif self.metric == "ip":
            worth = products
        else:  # smaller distance is better
            worth, error = 2.0 * length * products - norms**2, 2.0 * length * error + 2.0**-40 * norms**2
        beyond = ~np.isfinite(worth)  # a sum has left float32's range: only the exact pass can tell
        worth[beyond], error[beyond] = 0.0, np.inf
        return worth, error

    def _scores(self, rows: NDArray[np.intp], query: NDArray[np.float64]) -> NDArray[np.float64]:
        found = np.empty(len(rows))
        for block, own, place in self._by_block(rows):
            found[place] = _scored(block.matrix[own].astype(np.float64), query, self.metric)
        return found

    def _by_block(self, rows: NDArray[np.intp]) -> list[tuple[DenseBlock, NDArray[np.intp], slice]]:
        """For each block with some of the rows, which are ascending: its own numbers of them, and where they stand."""
        firsts = self._rows.firsts
        ends = rows.searchsorted(firsts).tolist()
        places = [slice(start, end) for start, end in pairwise(ends)]
        return [
            (block, rows[place] - first, place)
            for block, first, place in zip(self.blocks, firsts[:-1], places, strict=True)
            if place.start < place.stop
        ]

    def _row(self, key: str, row: int) -> tuple[str, Vector, Fields]:
        number = int(self._rows.firsts.searchsorted(row, side="right")) - 1
        block, own = self.blocks[number], row - int(self._rows.firsts[number])
        return key, np.array(block.matrix[own]), block.rows.fields.values()[block.rows.field_ids[own]]


class DenseIndex:
    """Dense vectors ranked exactly, incremental, safe for concurrent readers; see `DenseState`.

    Args:
        dimension: Length of the vectors, at least 1.
        metric: ``"cosine"``, ``"ip"`` or ``"l2"``.

    Raises:
        ConfigError: If a value is out of its range.

    Example:
        >>> index = DenseIndex(2, "cosine")
        >>> index.add(["a", "b"], np.array([[1, 0], [1, 1]], np.float32))
        >>> index.search(np.array([2, 0], np.float32), 1)
        [('a', 1.0)]
    """

    def __init__(self, dimension: int, metric: Metric = "cosine") -> None:
        self._state = DenseState([], [], dimension, metric)
        self.dimension = dimension
        self.metric: Metric = metric
        self._writing = threading.Lock()

    def __len__(self) -> int:
        return len(self._state)

    @property
    def state(self) -> DenseState:
        """The index as it is now, which no later change touches."""
        return self._state

    def add(self, keys: Sequence[str], vectors: Matrix, fields: Sequence[Fields] | None = None) -> None:
        """Add rows; a key that is present is replaced.

        Args:
            keys: n distinct keys.
            vectors: (n, dimension) float32, finite.
            fields: What filters read of each; the rows of one file should share one object.

        Raises:
            ConfigError: If the shape is another, a value is not finite, keys repeat or the lengths differ.
        """
        vectors = np.asarray(vectors, np.float32)
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension:
            msg = f"add() got vectors of shape {vectors.shape}; this index holds rows of {self.dimension} numbers."
            raise ConfigError(msg)
        block = DenseBlock.of_rows(keys, vectors, fields)
        if len(block):
            with self._writing:
                state = self._state
                alive, _ = without(state.blocks, state.alive, block.keys)
                self._put([*state.blocks, block], [*alive, None])

    def delete(self, keys: Iterable[str]) -> int:
        """Delete rows; unknown keys are passed over. Returns how many went."""
        wanted = encoded_keys(list(dict.fromkeys(keys)))
        with self._writing:
            state = self._state
            alive, gone = without(state.blocks, state.alive, wanted)
            if gone:
                self._put(state.blocks, alive)
            return gone

    def get(self, keys: Sequence[str]) -> list[tuple[str, Vector, Fields]]:
        """Key, vector as it was added and fields of those keys that are present, in the order asked for."""
        return self._state.get(keys)

    def search(self, query: Vector, topk: int, *, filter: Filter | None = None) -> Ranking:  # noqa: A002
        """The best rows by the index's metric; see `DenseState.search`."""
        return self._state.search(query, topk, filter=filter)

    def _put(self, blocks: Sequence[DenseBlock], alive: Sequence[Mask | None]) -> None:
        left, masks = tidied(blocks, alive, DenseBlock.joined, _MOST_BLOCKS)
        self._state = DenseState(left, masks, self.dimension, self.metric)


def _scored(vectors: NDArray[np.float64], query: NDArray[np.float64], metric: Metric) -> NDArray[np.float64]:
    if metric == "l2":
        differences = vectors - query
        return 1.0 / (1.0 + np.sqrt(_dots(differences, differences)))
    products = _dots(vectors, query)
    if metric == "ip":
        return products
    lengths = np.sqrt(_dots(vectors, vectors)) * np.sqrt(_dots(query[None], query[None])[0])
    cosines: NDArray[np.float64] = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return np.clip(cosines, -1.0, 1.0)


def _dots(vectors: NDArray[np.floating], others: NDArray[np.floating]) -> NDArray[np.float64]:
    """Inner products row by row in float64, each summed in the same order wherever its row lies."""
    product: NDArray[np.float64] = np.einsum("...i,...i->...", vectors, others, dtype=np.float64)
    return product
