"""Which rows of a block can be among the nearest to a vector, by estimates of cosines and their largest errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lazyrag.indexes.codes import CodeScan, row_products
from lazyrag.indexes.dense_blocks import DenseBlock, row_dots
from lazyrag.indexes.rows import kth_largest
from lazyrag.typing import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_GATHER_BELOW = 0.3  # share of rows below which copying some rows beats scanning all of them
_ROWS_A_CODE_SAVES = 64  # for each row asked for; with fewer rows than that, their vectors are read at once
_MANY_QUERIES = 8  # which one product of matrices answers faster than codes, query by query
_PROBES = 8  # rows that are scored for each row asked for, for a first bound on the worst of the best
_LEAST_PROBES = 64


class Contenders(NamedTuple):
    """Rows that can be among the nearest.

    Args:
        rows: (m,) numbers in their block, ascending.
        worth: (m,) float64, what orders them, up to the errors: higher is nearer.
        errors: (m,) float64, at least 0.
        bytes_read: How much of vectors and codes was looked at.
    """

    rows: NDArray[np.intp]
    worth: NDArray[np.float64]
    errors: NDArray[np.float64]
    bytes_read: int


class VectorQuery:
    """A vector whose nearest rows are wanted.

    Args:
        vector: (d,) float64, finite.
        metric: See `lazyrag.typing.Metric`.
    """

    __slots__ = ("direction", "length", "metric", "vector")

    def __init__(self, vector: NDArray[np.float64], metric: Metric) -> None:
        self.vector = vector
        self.metric = metric
        self.length = float(np.linalg.norm(vector))
        self.direction = vector / self.length if self.length else vector

    def worth(
        self, cosines: NDArray[np.floating], errors: NDArray[np.floating], norms: NDArray[np.float64]
    ) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """What rows are worth beside others, higher being nearer, and the largest errors of that.

        Args:
            cosines: (m,) to the rows.
            errors: (m,) their largest errors; or (), the same for all.
            norms: (m,) lengths of the rows.
        """
        if self.metric == "cosine":
            return cosines, errors
        if self.metric == "ip":
            return norms * cosines, norms * errors
        scale = 2.0 * self.length * norms  # |x - y|^2 = |x|^2 + |y|^2 - 2 |x| |y| cos
        return scale * cosines - norms**2, scale * errors + 2.0**-40 * norms**2

    def scores(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """(m,) scores of vectors (m, d), in float64."""
        if self.metric == "l2":
            differences = vectors - self.vector
            return 1.0 / (1.0 + np.sqrt(row_dots(differences, differences)))
        products = row_dots(vectors, self.vector)
        if self.metric == "ip":
            return products
        lengths = np.sqrt(row_dots(vectors, vectors)) * np.sqrt(row_dots(self.vector[None], self.vector[None])[0])
        cosines: NDArray[np.float64] = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
        return np.clip(cosines, -1.0, 1.0)


class BlockSearch:
    """The search for several vectors' nearest rows in one block; what they have in common is done once.

    Args:
        block: The block.
        rows: (m,) those in question, ascending, at least one.
        queries: The vectors, each with a length.
    """

    def __init__(self, block: DenseBlock, rows: NDArray[np.intp], queries: Sequence[VectorQuery]) -> None:
        self._block = block
        self._rows = rows
        self._some = None if len(rows) == len(block) else rows  # None: all
        self._norms = block.norms if self._some is None else block.norms[rows]
        self._queries = queries
        directions = np.stack([query.direction for query in queries])
        self._directions = directions.astype(np.float32)
        codes = block.codes if len(queries) < _MANY_QUERIES else None
        self._scan = None if codes is None else CodeScan(codes, directions)
        self._products: NDArray[np.float32] | None = None  # of all queries

    def contenders(self, query: int, topk: int) -> Contenders:
        """The rows that can be among the topk nearest.

        Args:
            query: Number of the vector.
            topk: At least 1.
        """
        if self._scan is not None and len(self._rows) >= _ROWS_A_CODE_SAVES * topk:
            return self._by_codes(self._scan, query, topk)
        return self._by_vectors(query, topk)

    def _by_codes(self, scan: CodeScan, query: int, topk: int) -> Contenders:
        asked, block = self._queries[query], self._block
        cosines, errors = scan.heads(self._some, query)
        worth, uncertain = asked.worth(cosines, errors, self._norms)
        # Some rows that are probably among the best tell how good a row must be.
        probes = np.flatnonzero(worth >= kth_largest(worth, max(_PROBES * topk, _LEAST_PROBES)))
        bound = self._bound_of(asked, self._rows[probes], query, topk)
        left = np.flatnonzero(worth + uncertain >= bound)
        rows = self._rows[left]
        cosines, errors = scan.tails(rows, query, cosines[left])
        read = len(self._rows) * scan.head_bytes + len(rows) * scan.tail_bytes + len(probes) * self._vector_bytes
        return _best(rows, *asked.worth(cosines, errors, block.norms[rows]), topk, bound, read)

    def _bound_of(self, asked: VectorQuery, rows: NDArray[np.intp], query: int, topk: int) -> float:
        """What the topk-th best of some rows is worth at least."""
        with np.errstate(over="ignore", invalid="ignore"):
            products = row_products(self._block.matrix[rows], self._directions[query : query + 1])[0]
        cosines, errors = _cosines(self._block, rows, products)
        worth, uncertain = asked.worth(cosines, errors, self._block.norms[rows])
        return kth_largest(worth - uncertain, topk)

    def _by_vectors(self, query: int, topk: int) -> Contenders:
        if self._products is None:
            self._products = self._all_products()
        cosines, errors = _cosines(self._block, self._some, self._products[query])
        read = len(self._rows) * self._vector_bytes
        return _best(self._rows, *self._queries[query].worth(cosines, errors, self._norms), topk, -np.inf, read)

    def _all_products(self) -> NDArray[np.float32]:
        matrix, directions = self._block.matrix, self._directions
        with np.errstate(over="ignore", invalid="ignore"):
            if self._some is None:
                return row_products(matrix, directions)
            if len(self._rows) < _GATHER_BELOW * len(matrix):
                return row_products(matrix[self._rows], directions)
            return row_products(matrix, directions)[:, self._rows]

    @property
    def _vector_bytes(self) -> int:
        return int(self._block.matrix.shape[1]) * self._block.matrix.itemsize


def _cosines(
    block: DenseBlock, rows: NDArray[np.intp] | None, products: NDArray[np.float32]
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Cosines between a direction and some rows of a block, from their products in float32; and the largest errors."""
    # With a query y of length 1, |fl(x.y) - x.y| <= d u / (1 - d u) |x| with u = 2^-24, once more u for rounding the
    # query, and half of 2^-149 for each product below the normal range (Higham, Accuracy and Stability of Numerical
    # Algorithms, 2.2 and 3.1); doubled for good measure, and for the division.
    relative = 2.0 * (block.matrix.shape[1] + 4) * 2.0**-24
    inverses = block.inverse_norms()
    if inverses is not None:
        own = inverses if rows is None else inverses[rows]
        return products * own, np.array(relative)  # the same for all: (), which spares passes over all rows
    norms = block.norms if rows is None else block.norms[rows]
    there = norms > 0
    with np.errstate(over="ignore", invalid="ignore"):
        cosines = np.divide(products, norms, out=np.zeros(len(norms)), where=there)
        lost = np.divide(block.matrix.shape[1] * 2.0**-149, norms, out=np.zeros(len(norms)), where=there)
    errors = np.where(there, relative + lost, 0.0)
    beyond = ~np.isfinite(cosines)  # a sum has left float32's range: only the exact pass can tell
    cosines[beyond], errors[beyond] = 0.0, np.inf
    return cosines, errors


def _best(
    rows: NDArray[np.intp],
    worth: NDArray[np.floating],
    errors: NDArray[np.floating],
    topk: int,
    bound: float,
    bytes_read: int,
) -> Contenders:
    """Those rows that can be among the topk best of them, and are not certain to be below a bound."""
    if errors.ndim:
        if len(rows) > topk:
            bound = max(bound, kth_largest(worth - errors, topk))
        kept = np.flatnonzero(worth + errors >= bound)
    else:
        error = float(errors)
        if len(rows) > topk:
            bound = max(bound, kth_largest(worth, topk) - error)
        # Compared in the type of worth, of which the next number below the bound is not above it.
        kept = np.flatnonzero(worth >= np.nextafter(np.array(bound - error, worth.dtype), -np.inf, dtype=worth.dtype))
        errors = np.broadcast_to(errors, len(rows))
    return Contenders(rows[kept], worth[kept].astype(np.float64), errors[kept].astype(np.float64), bytes_read)
