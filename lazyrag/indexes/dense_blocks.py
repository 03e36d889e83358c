"""The vectors of some rows, and what makes searching them cheap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrag.errors import ConfigError, StoreError
from lazyrag.indexes.blocks import Mask, RowBlock, pick
from lazyrag.indexes.codes import Codes, KnownCodes, Room
from lazyrag.indexes.graphs import Graph
from lazyrag.indexes.rows import check_new_rows
from lazyrag.storage.array_format import Arrays
from lazyrag.typing import Fields, Matrix

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CODED_FROM = 16_384  # rows; fewer are read as fast as their codes are
_CODED_DIMENSION = 32  # at least; shorter vectors have no tail worth the name
_ROTATION_SERVES = 0.25  # share of the rows that one was chosen for, from which it serves all; any is exact
_ROWS_MOVED = 4_096  # at once
_PLAIN_LENGTHS = 2.0**-60, 2.0**60  # between which products of float32 numbers neither vanish nor overflow


@dataclass(frozen=True, slots=True)
class DenseBlock:
    """The vectors of some rows, in the order of their keys; never changed.

    Args:
        rows: Keys, ascending, and fields.
        matrix: (n, dimension) float32, finite.
        norms: (n,) float64, their lengths.
        codes: Of large blocks; None for others.
        inverses: Filled when `inverse_norms` is first called.
        graphs: Over the matrix, by which to search it approximately: at most one, put there when it is first wanted.

    Example:
        >>> block = DenseBlock.of_rows(["b", "a"], np.array([[1, 0], [3, 4]], np.float32))
        >>> DenseBlock.from_arrays(block.arrays()).norms.tolist()
        [5.0, 1.0]
    """

    rows: RowBlock
    matrix: Matrix
    norms: NDArray[np.float64]
    codes: Codes | None = None
    inverses: list[NDArray[np.float32] | None] = field(default_factory=list, repr=False, compare=False)
    graphs: list[Graph] = field(default_factory=list, repr=False, compare=False)

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
        return cls._coded(rows.kept(order), matrix, np.sqrt(row_dots(matrix, matrix)))

    @classmethod
    def joined(cls, blocks: Sequence[DenseBlock], kept: Sequence[Mask | None], room: Room = np.empty) -> DenseBlock:
        """At least one block as one.

        Args:
            blocks: The blocks.
            kept: For each a mask of the rows to keep; None for all.
            room: Where the vectors and their codes are put.
        """
        chosen = [
            np.arange(len(block)) if mask is None else np.flatnonzero(mask)
            for block, mask in zip(blocks, kept, strict=True)
        ]
        rows = RowBlock.joined([block.rows.kept(own) for block, own in zip(blocks, chosen, strict=True)])
        order = rows.keys.argsort(kind="stable")  # it finds that the blocks are sorted
        places = np.empty(len(order), np.intp)
        places[order] = np.arange(len(order))
        matrix = room((len(order), blocks[0].matrix.shape[1]), np.float32)
        norms = np.empty(len(order))
        known = []
        first = 0
        for block, own in zip(blocks, chosen, strict=True):
            to = places[first : first + len(own)]
            norms[to] = block.norms[own]
            for start in range(0, len(own), _ROWS_MOVED):
                some = slice(start, start + _ROWS_MOVED)
                matrix[to[some]] = block.matrix[own[some]]
            if block.codes is not None:
                known.append(KnownCodes(block.codes, own, to))
            first += len(own)
        return cls._coded(rows.kept(order), matrix, norms, room, known)

    @classmethod
    def _coded(
        cls,
        rows: RowBlock,
        matrix: Matrix,
        norms: NDArray[np.float64],
        room: Room = np.empty,
        known: Sequence[KnownCodes] = (),
    ) -> DenseBlock:
        """A block, with codes if it is large; by the rotation of the largest block in it, if that is a good part."""
        count, dimension = matrix.shape
        if count < _CODED_FROM or dimension < _CODED_DIMENSION:
            return cls(rows, matrix, norms)
        known = sorted(known, key=lambda one: -len(one.rows))
        if known and len(known[0].rows) < _ROTATION_SERVES * count:
            known = []
        known = [one for one in known if np.array_equal(one.codes.rotation, known[0].codes.rotation)]
        return cls(rows, matrix, norms, Codes.of_matrix(matrix, norms, room, known))

    def find(self, keys: NDArray[np.bytes_]) -> NDArray[np.intp]:
        """(k,) the row of each key, see `encoded_keys`; -1 where there is none."""
        return self.rows.find(keys)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What `from_arrays` makes an equal block of: arrays without objects, to be written to a file."""
        codes = {} if self.codes is None else self.codes.arrays()
        return {**self.rows.arrays(), "matrix": self.matrix, "norms": self.norms, **codes}

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
        codes = Codes.from_arrays(arrays, *matrix.shape) if "head" in arrays else None
        return cls(rows, matrix, norms, codes)

    def inverse_norms(self) -> NDArray[np.float32] | None:
        """(n,) 1 / length, 0 where there is no length; None where some are so short or long that float32 fails."""
        if not self.inverses:  # several threads may find it at once; each finds the same
            least, most = _PLAIN_LENGTHS
            there = self.norms > 0
            plain = bool(np.all((self.norms >= least) & (self.norms <= most) | ~there))
            inverses = np.divide(1.0, self.norms, out=np.zeros(len(self)), where=there) if plain else None
            self.inverses.append(None if inverses is None else inverses.astype(np.float32))
        return self.inverses[0]


def row_dots(vectors: NDArray[np.floating], others: NDArray[np.floating]) -> NDArray[np.float64]:
    """Inner products row by row in float64, each summed in the same order wherever its row lies."""
    product: NDArray[np.float64] = np.einsum("...i,...i->...", vectors, others, dtype=np.float64)
    return product
