"""Codes: a byte for each number of a rotated vector, which tell most rows apart from the nearest ones.

A rotation changes no inner product, and can be chosen so that the first third of the numbers, the head, holds most of
a vector's length. With the head's codes, every row's cosine to a query is known up to what rounding took and what the
tail can add; with the tail's codes up to what rounding took. What cannot be among the nearest by these bounds need not
be read. A search reads a tenth of what the vectors take, and is as exact as one that reads them all.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from lazyrag.errors import StoreError
from lazyrag.indexes.blocks import pick
from lazyrag.storage.array_format import Arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lazyrag.typing import Matrix

Room: TypeAlias = "Callable[[tuple[int, ...], Any], NDArray[Any]]"
"""Gives room for an array of a shape and a dtype: `numpy.empty`, or one that lies on a disk."""

_HEAD_SHARE = 1 / 3  # of a vector's numbers; more is more to read, with less too many rows stay (tried on MiniLM's)
_LARGEST = 127
_ROWS_SAMPLED = 16_384  # for the axes of the rotation
_NUMBERS_AT_ONCE = 1 << 20  # widened to float32 together, so that they stay in the cache

HEAD_SCALE, HEAD_ERROR, TAIL_SCALE, TAIL_ERROR, TAIL_LENGTH = range(5)
"""Rows of `Codes.facts`."""

_FACT_BYTES = 12  # three of them are read for each code

_scratch = threading.local()


@dataclass(frozen=True, slots=True)
class Codes:
    """The codes of some rows' directions; never changed.

    Args:
        rotation: (d, d) float64, orthonormal; its rows are the axes, the head's first.
        head: (n, h) int8, the first numbers of each rotated direction, divided by a scale and rounded.
        tail: (n, d - h) int8, the others.
        facts: (5, n) float32: the head's scale and the length of what its rounding took, the same for the tail, and
            the tail's length; what is a bound is rounded up.

    Example:
        >>> matrix = np.eye(96, dtype=np.float32)
        >>> codes = Codes.of_matrix(matrix, np.ones(96))
        >>> codes.head.shape, codes.tail.shape
        ((96, 32), (96, 64))
    """

    rotation: NDArray[np.float64]
    head: NDArray[np.int8]
    tail: NDArray[np.int8]
    facts: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.head)

    @classmethod
    def of_matrix(
        cls, matrix: Matrix, norms: NDArray[np.float64], room: Room = np.empty, known: Sequence[KnownCodes] = ()
    ) -> Codes:
        """The codes of vectors.

        Args:
            matrix: (n, d) float32, finite, d at least 2.
            norms: (n,) their lengths; a vector without length has no direction, and codes of 0.
            room: Where the codes are put.
            known: Codes that some of the rows have already, all under one rotation: it serves the others, too.
        """
        count, dimension = matrix.shape
        rotation = known[0].codes.rotation if known else _rotation(matrix, norms, _split(dimension))
        split = known[0].codes.head.shape[1] if known else _split(dimension)
        made = cls(
            rotation,
            room((count, split), np.int8),
            room((count, dimension - split), np.int8),
            room((5, count), np.float32),
        )
        missing = np.ones(count, np.bool_)
        for codes, rows, places in known:
            made.head[places], made.tail[places] = codes.head[rows], codes.tail[rows]
            made.facts[:, places] = codes.facts[:, rows]
            missing[places] = False
        numbers = np.flatnonzero(missing)
        step = max(1, _NUMBERS_AT_ONCE // dimension)
        for start in range(0, len(numbers), step):
            made._fill(numbers[start : start + step], matrix, norms)
        return made

    def _fill(self, rows: NDArray[np.intp], matrix: Matrix, norms: NDArray[np.float64]) -> None:
        rotated = unit_rows(matrix[rows], norms[rows]) @ self.rotation.T
        split = self.head.shape[1]
        self.head[rows], *head_facts = _rounded(rotated[:, :split])
        self.tail[rows], *tail_facts = _rounded(rotated[:, split:])
        self.facts[:, rows] = (*head_facts, *tail_facts, _up(np.linalg.norm(rotated[:, split:], axis=1)))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What `from_arrays` makes equal codes of."""
        return {"rotation": self.rotation, "head": self.head, "tail": self.tail, "facts": self.facts}

    @classmethod
    def from_arrays(cls, arrays: Arrays, rows: int, dimension: int) -> Codes:
        """Codes over arrays, which may be memory-mapped.

        Args:
            arrays: Those of `arrays`, among others.
            rows: How many rows they are of.
            dimension: How many numbers their vectors have.

        Raises:
            StoreError: If arrays are missing, or of shapes that do not go together.
        """
        rotation, head, tail, facts = pick(arrays, "rotation", "head", "tail", "facts")
        shapes = [rotation.shape, head.shape, tail.shape, facts.shape]
        split = shapes[1][-1]
        if shapes != [(dimension, dimension), (rows, split), (rows, dimension - split), (5, rows)]:
            msg = (
                f"A part of an index has {rows} vectors of {dimension} numbers, and codes of shapes {shapes}. "
                "Its file is damaged: build the index again."
            )
            raise StoreError(msg)
        return cls(rotation, head, tail, facts)


class KnownCodes(NamedTuple):
    """Codes that rows have in another block.

    Args:
        codes: The block's.
        rows: (m,) the rows' numbers there.
        places: (m,) their numbers here.
    """

    codes: Codes
    rows: NDArray[np.intp]
    places: NDArray[np.intp]


class CodeScan:
    """Bounds on the cosines between some directions and the rows of codes.

    Args:
        codes: The codes.
        directions: (q, d) float64, each of length 1, or 0.

    Example:
        >>> codes = Codes.of_matrix(np.eye(96, dtype=np.float32), np.ones(96))
        >>> scan = CodeScan(codes, np.eye(96)[:2])
        >>> cosines, errors = scan.heads(None, 1)
        >>> bool(np.all(np.abs(cosines - np.eye(96)[1]) <= errors))
        True
    """

    def __init__(self, codes: Codes, directions: NDArray[np.float64]) -> None:
        split = codes.head.shape[1]
        rotated = directions @ codes.rotation.T
        self._codes = codes
        self._heads, self._tails = (part.astype(np.float32) for part in (rotated[:, :split], rotated[:, split:]))
        self._lengths = [(float(np.linalg.norm(one[:split])), float(np.linalg.norm(one[split:]))) for one in rotated]
        # Products of float32 numbers, whole numbers among them, are added up in any order: the error is at most
        # (d + 2) 2^-24 of the lengths' product (Higham, Accuracy and Stability of Numerical Algorithms, 3.1). The few
        # operations after that, and the rotation in float64, are covered by doubling it, and doubling again.
        self._slack = np.float32(4 * (rotated.shape[1] + 16) * 2.0**-24)
        self._products: NDArray[np.float32] | None = None

    @property
    def head_bytes(self) -> int:
        """What `heads` reads of a row."""
        return int(self._codes.head.shape[1]) + _FACT_BYTES

    @property
    def tail_bytes(self) -> int:
        """What `tails` reads of a row."""
        return int(self._codes.tail.shape[1]) + _FACT_BYTES

    def heads(self, rows: NDArray[np.intp] | None, query: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Cosines by the head, and how far the tail and rounding can take them.

        Args:
            rows: (m,) ascending; None for all.
            query: Number of the direction. All of them are worked out when the first is asked for.
        """
        if self._products is None:
            self._products = _products(self._codes.head, rows, self._heads)
        head, tail = self._lengths[query]
        facts = self._codes.facts if rows is None else self._codes.facts.take(rows, axis=1)
        cosines = self._products[query] * facts[HEAD_SCALE]
        errors = facts[HEAD_ERROR] * np.float32(head)
        errors += facts[TAIL_LENGTH] * np.float32(tail)
        errors += self._slack
        return cosines, errors

    def tails(
        self, rows: NDArray[np.intp], query: int, cosines: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The same with the tail.

        Args:
            rows: (m,) ascending.
            query: Number of the direction.
            cosines: (m,) what `heads` found for these rows.
        """
        head, tail = self._lengths[query]
        facts = self._codes.facts.take(rows, axis=1)
        cosines = cosines + _products(self._codes.tail, rows, self._tails[query : query + 1])[0] * facts[TAIL_SCALE]
        errors = facts[HEAD_ERROR] * np.float32(head) + facts[TAIL_ERROR] * np.float32(tail) + self._slack
        return cosines, errors


def _products(
    codes: NDArray[np.int8], rows: NDArray[np.intp] | None, directions: NDArray[np.float32]
) -> NDArray[np.float32]:
    """(q, m) inner products of directions (q, width) and some rows of codes."""
    width = codes.shape[1]
    count = len(codes) if rows is None else len(rows)
    products = np.empty((len(directions), count), np.float32)
    step = max(1, _NUMBERS_AT_ONCE // max(1, width))
    room: NDArray[np.float32] | None = getattr(_scratch, "room", None)
    if room is None or len(room) < step * width:
        room = _scratch.room = np.empty(step * width, np.float32)
    for start in range(0, count, step):
        stop = min(start + step, count)
        some = codes[start:stop] if rows is None else codes.take(rows[start:stop], axis=0)
        wide = room[: some.size].reshape(some.shape)
        np.copyto(wide, some)
        row_products(wide, directions, products[:, start:stop])
    return products


def row_products(vectors: Matrix, directions: Matrix, out: Matrix | None = None) -> Matrix:
    """(q, m) inner products of directions (q, d) and vectors (m, d) in float32.

    For one direction without the threads of the matrix library: on a busy machine they wait for each other longer than
    they work (8 ms were seen instead of 0.1 ms).
    """
    if len(directions) > 1:
        return np.matmul(directions, vectors.T, out=out)
    products = np.empty((1, len(vectors)), np.float32) if out is None else out
    np.vecdot(vectors, directions[0], out=products[0])
    return products


def _split(dimension: int) -> int:
    return max(1, round(dimension * _HEAD_SHARE))


def unit_rows(vectors: Matrix, norms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Vectors divided by their lengths; 0 where there is none."""
    scale = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    return np.asarray(vectors * scale[:, None], np.float64)


def _rotation(matrix: Matrix, norms: NDArray[np.float64], split: int) -> NDArray[np.float64]:
    """(d, d) orthonormal: the head's axes span the directions along which the vectors are longest.

    Within the head and within the tail the axes are mixed, so that no number of a rotated vector is much larger than
    the others: they share a scale.
    """
    chosen = slice(None, None, max(1, math.ceil(len(matrix) / _ROWS_SAMPLED)))
    sample = unit_rows(matrix[chosen], norms[chosen])
    _, axes = np.linalg.eigh(sample.T @ sample)  # by ascending eigenvalue
    axes = axes[:, ::-1].T
    chance = np.random.default_rng(0)
    for part in (slice(None, split), slice(split, None)):
        size = len(axes[part])
        mixing, _ = np.linalg.qr(chance.standard_normal((size, size)))
        axes[part] = mixing @ axes[part]
    orthonormal, _ = np.linalg.qr(axes.T)  # what rounding took is put right; only signs can change
    rotation: NDArray[np.float64] = np.ascontiguousarray(orthonormal.T)
    return rotation


def _rounded(
    numbers: NDArray[np.float64],
) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.float32]]:
    """Codes of rows, the scale of each, and the length of what rounding took from it."""
    scales = _up(np.abs(numbers).max(axis=1, initial=0.0) / _LARGEST)
    wide = scales.astype(np.float64)[:, None]
    codes = np.rint(np.divide(numbers, wide, out=np.zeros_like(numbers), where=wide > 0))
    return codes.astype(np.int8), scales, _up(np.linalg.norm(numbers - codes * wide, axis=1))


def _up(numbers: NDArray[np.float64]) -> NDArray[np.float32]:
    """In float32, and not below."""
    rounded: NDArray[np.float32] = np.nextafter(numbers.astype(np.float32), np.float32(np.inf))
    return rounded
