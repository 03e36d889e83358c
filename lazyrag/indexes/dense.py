"""Exact nearest vectors on float32 matrices, with int8 codes that skip most rows, and HNSW graphs
(faiss).
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lazyrag.data.filters import Filter
from lazyrag.errors import ConfigError, StoreError, optional_package
from lazyrag.indexes.postings import (
    Allocate,
    Masks,
    RowBlock,
    RowPart,
    VectorRows,
    kth_largest,
    pick,
    ranked,
)
from lazyrag.indexes.tiers import TieredIndex
from lazyrag.progress.calls import ProgressTask
from lazyrag.storage.arrays import Arrays, DamagedError
from lazyrag.types import (
    AnyArray,
    AnyFloatArray,
    Fields,
    Float32Array,
    FloatArray,
    IndexArray,
    Int8Array,
    Matrix,
    Metric,
    Ranking,
    Vector,
)
from lazyrag.validation import require, validate_choice, validate_integer

# Codes: one byte for each number of a rotated vector, which separate most rows from the nearest
# ones.
#
# A rotation changes no inner product, and can be chosen so that the first third of the numbers, the
# head, has most of a vector's length. With the head's codes, every row's cosine to a query is known
# up to rounding errors and the tail; with the tail's codes up to rounding errors. Rows that cannot
# be among the nearest by these bounds are not read. A search reads a tenth of the bytes of the
# vectors, and is as exact as one that reads them all.


# of a vector's numbers; more is more to read, with less too many rows stay (tried on MiniLM's)
_HEAD_SHARE = 1 / 3
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
        head: (n, h) int8, the first numbers of each rotated direction, divided by a scale and
            rounded.
        tail: (n, d - h) int8, the others.
        facts: (5, n) float32: the head's scale and the length of what its rounding took, the same
            for the tail, and the tail's length; what is a bound is rounded up.

    Example:
        >>> matrix = np.eye(96, dtype=np.float32)
        >>> codes = Codes.of_matrix(matrix, np.ones(96))
        >>> codes.head.shape, codes.tail.shape
        ((96, 32), (96, 64))
    """

    rotation: FloatArray
    head: Int8Array
    tail: Int8Array
    facts: Float32Array

    def __len__(self) -> int:
        return len(self.head)

    @classmethod
    def of_matrix(
        cls,
        matrix: Matrix,
        norms: FloatArray,
        allocate: Allocate = np.empty,
        sources: Sequence[KnownCodes] = (),
    ) -> Codes:
        """The codes of vectors.

        Args:
            matrix: (n, d) float32, finite, d at least 2.
            norms: (n,) their lengths; a vector without length has no direction, and codes of 0.
            allocate: Returns the memory of the codes.
            sources: Codes that some of the rows have already, all under one rotation: it serves the
                others, too.
        """
        count, dimension = matrix.shape
        if sources:
            rotation = sources[0].codes.rotation
            split = sources[0].codes.head.shape[1]
        else:
            split = max(1, round(dimension * _HEAD_SHARE))
            rotation = _rotation(matrix, norms, split)
        head = allocate((count, split), np.int8)
        tail = allocate((count, dimension - split), np.int8)
        facts = allocate((5, count), np.float32)
        missing = np.ones(count, np.bool_)
        for codes, rows, positions in sources:
            head[positions] = codes.head[rows]
            tail[positions] = codes.tail[rows]
            facts[:, positions] = codes.facts[:, rows]
            missing[positions] = False
        new_codes = cls(rotation, head, tail, facts)
        new_rows = np.flatnonzero(missing)
        step = max(1, _NUMBERS_AT_ONCE // dimension)
        for start in range(0, len(new_rows), step):
            new_codes._fill(new_rows[start : start + step], matrix, norms)
        return new_codes

    def _fill(self, rows: IndexArray, matrix: Matrix, norms: FloatArray) -> None:
        directions = unit_rows(matrix[rows], norms[rows])
        rotated = directions @ self.rotation.T
        split = self.head.shape[1]
        tails = rotated[:, split:]
        tail_lengths = np.linalg.norm(tails, axis=1)
        self.head[rows], head_scales, head_errors = _rounded(rotated[:, :split])
        self.tail[rows], tail_scales, tail_errors = _rounded(tails)
        self.facts[HEAD_SCALE, rows] = head_scales
        self.facts[HEAD_ERROR, rows] = head_errors
        self.facts[TAIL_SCALE, rows] = tail_scales
        self.facts[TAIL_ERROR, rows] = tail_errors
        self.facts[TAIL_LENGTH, rows] = _up(tail_lengths)

    def arrays(self) -> Arrays:
        """Arrays for `from_arrays`."""
        return {
            "rotation": self.rotation,
            "head": self.head,
            "tail": self.tail,
            "facts": self.facts,
        }

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
        tail_shape = (rows, dimension - split)
        if shapes != [(dimension, dimension), (rows, split), tail_shape, (5, rows)]:
            raise StoreError(
                f"A part of an index has {rows} vectors of {dimension} numbers, and codes of shapes"
                f" {shapes}. Its file is damaged: build the index again."
            )
        return cls(rotation, head, tail, facts)


class KnownCodes(NamedTuple):
    """Codes that rows have in another block.

    Args:
        codes: The block's.
        rows: (m,) the rows' numbers there.
        positions: (m,) their numbers here.
    """

    codes: Codes
    rows: IndexArray
    positions: IndexArray


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

    def __init__(self, codes: Codes, directions: FloatArray) -> None:
        split = codes.head.shape[1]
        rotated = directions @ codes.rotation.T
        heads = rotated[:, :split]
        tails = rotated[:, split:]
        self._codes = codes
        self._heads = heads.astype(np.float32)
        self._tails = tails.astype(np.float32)
        self._head_lengths = [float(np.linalg.norm(head)) for head in heads]
        self._tail_lengths = [float(np.linalg.norm(tail)) for tail in tails]
        # Products of float32 numbers, whole numbers among them, are added up in any order: the
        # error is at most (d + 2) 2^-24 of the lengths' product (Higham, Accuracy and Stability of
        # Numerical Algorithms, 3.1). The few operations after that, and the rotation in float64,
        # are covered by doubling it, and doubling again.
        operations = rotated.shape[1] + 16
        self._slack = np.float32(4 * operations * 2.0**-24)
        self._products: Float32Array | None = None

    @property
    def head_bytes(self) -> int:
        """Bytes that `heads` reads of a row."""
        return int(self._codes.head.shape[1]) + _FACT_BYTES

    @property
    def tail_bytes(self) -> int:
        """Bytes that `tails` reads of a row."""
        return int(self._codes.tail.shape[1]) + _FACT_BYTES

    def heads(self, rows: IndexArray | None, query: int) -> tuple[Float32Array, Float32Array]:
        """Cosines by the head, and how far the tail and rounding can take them.

        Args:
            rows: (m,) ascending; None for all.
            query: Number of the direction. All of them are computed with the first one.
        """
        if self._products is None:
            self._products = _products(self._codes.head, rows, self._heads)
        facts = self._codes.facts if rows is None else self._codes.facts.take(rows, axis=1)
        cosines = self._products[query] * facts[HEAD_SCALE]
        errors = facts[HEAD_ERROR] * np.float32(self._head_lengths[query])
        errors += facts[TAIL_LENGTH] * np.float32(self._tail_lengths[query])
        errors += self._slack
        return cosines, errors

    def tails(
        self, rows: IndexArray, query: int, cosines: Float32Array
    ) -> tuple[Float32Array, Float32Array]:
        """The same with the tail.

        Args:
            rows: (m,) ascending.
            query: Number of the direction.
            cosines: (m,) what `heads` found for these rows.
        """
        facts = self._codes.facts.take(rows, axis=1)
        direction = self._tails[query : query + 1]
        [products] = _products(self._codes.tail, rows, direction)
        tail_cosines = products * facts[TAIL_SCALE]
        errors = facts[HEAD_ERROR] * np.float32(self._head_lengths[query])
        errors += facts[TAIL_ERROR] * np.float32(self._tail_lengths[query])
        errors += self._slack
        return cosines + tail_cosines, errors


def _products(codes: Int8Array, rows: IndexArray | None, directions: Float32Array) -> Float32Array:
    """(q, m) inner products of directions (q, width) and some rows of codes."""
    width = codes.shape[1]
    count = len(codes) if rows is None else len(rows)
    products = np.empty((len(directions), count), np.float32)
    step = max(1, _NUMBERS_AT_ONCE // max(1, width))
    room: Float32Array | None = getattr(_scratch, "room", None)
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

    For one direction without the threads of the matrix library: on a busy machine they wait for
    each other longer than they work (8 ms were seen instead of 0.1 ms).
    """
    if len(directions) > 1:
        return np.matmul(directions, vectors.T, out=out)
    products = np.empty((1, len(vectors)), np.float32) if out is None else out
    np.vecdot(vectors, directions[0], out=products[0])
    return products


def unit_rows(vectors: Matrix, norms: FloatArray) -> FloatArray:
    """Vectors divided by their lengths; 0 for a vector of length 0."""
    scales = np.zeros_like(norms)
    np.divide(1.0, norms, out=scales, where=norms > 0)
    return np.asarray(vectors * scales[:, None], np.float64)


def _sampled_rows(matrix: Matrix, norms: FloatArray) -> FloatArray:
    """Evenly spaced rows, divided by their lengths."""
    step = max(1, math.ceil(len(matrix) / _ROWS_SAMPLED))
    return unit_rows(matrix[::step], norms[::step])


def _rotation(matrix: Matrix, norms: FloatArray, split: int) -> FloatArray:
    """(d, d) orthonormal: the head's axes span the directions along which the vectors are longest.

    Within the head and within the tail the axes are mixed, so that no number of a rotated vector is
    much larger than the others: they share a scale.
    """
    sample = _sampled_rows(matrix, norms)
    _, eigenvectors = np.linalg.eigh(sample.T @ sample)  # by ascending eigenvalue
    axes = eigenvectors[:, ::-1].T
    generator = np.random.default_rng(0)
    for part in (axes[:split], axes[split:]):
        size = len(part)
        mixing, _ = np.linalg.qr(generator.standard_normal((size, size)))
        part[:] = mixing @ part
    orthonormal, _ = np.linalg.qr(axes.T)  # undoes rounding errors; only signs can change
    rotation: FloatArray = np.ascontiguousarray(orthonormal.T)
    return rotation


def _rounded(
    numbers: FloatArray,
) -> tuple[Int8Array, Float32Array, Float32Array]:
    """Codes of rows, the scale of each, and the length of its rounding error."""
    largest = np.abs(numbers).max(axis=1, initial=0.0)
    scales = _up(largest / _LARGEST)
    wide = scales.astype(np.float64)[:, None]
    codes = np.zeros_like(numbers)
    np.divide(numbers, wide, out=codes, where=wide > 0)
    np.rint(codes, out=codes)
    errors = np.linalg.norm(numbers - codes * wide, axis=1)
    return codes.astype(np.int8), scales, _up(errors)


def _up(numbers: FloatArray) -> Float32Array:
    """In float32, and not below."""
    rounded: Float32Array = np.nextafter(numbers.astype(np.float32), np.float32(np.inf))
    return rounded


# Graphs, for approximate search: the only import of faiss.

_NEIGHBOURS = 16
_BREADTH = 128  # rows that are looked at for the neighbours of a new one
_ROWS_AT_ONCE = 4_096  # added, between two looks at the bar
_DIGEST_BYTES = 32


class Graph:
    """A navigable graph (HNSW) over the rows of a matrix, by the angles between them. Never changed
    once it is made.

    It may miss some of the nearest rows. Safe for concurrent use; searches run one after the other.

    Args:
        index: faiss's index; its ids are the numbers of rows.

    Source:
        Malkov, Yashunin: Efficient and robust approximate nearest neighbor search using
            Hierarchical Navigable Small
        World graphs, 2016, arXiv:1603.09320; built and searched by faiss.
    """

    __slots__ = ("_index", "_searching")

    def __init__(self, index: Any) -> None:
        self._index = index
        self._searching = threading.Lock()  # how broadly to search is an attribute of the index

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @classmethod
    def of_matrix(cls, matrix: Matrix, norms: FloatArray) -> Graph:
        """A graph over all rows, built by all processors, with a progress bar in a terminal.

        Args:
            matrix: (n, d) float32, finite.
            norms: (n,) their lengths; a vector without length is left out.

        Raises:
            MissingDependencyError: If faiss is not installed.
            StoreError: If there is no memory for it.
        """
        faiss = _faiss()
        # Distances between directions order them as angles do. A byte for each number: float16 and
        # float32 found no more of the ten nearest, and took 1.7 and 3.1 times the room.
        graph = faiss.IndexHNSWSQ(
            matrix.shape[1], faiss.ScalarQuantizer.QT_8bit, _NEIGHBOURS, faiss.METRIC_L2
        )
        graph.hnsw.efConstruction = _BREADTH
        index = faiss.IndexIDMap(graph)
        index.train(_sampled_rows(matrix, norms).astype(np.float32))
        with ProgressTask("graph of vectors", len(matrix), "row") as work:
            for start in range(0, len(matrix), _ROWS_AT_ONCE):
                end = min(start + _ROWS_AT_ONCE, len(matrix))
                # Vectors without length are equally far from everything: ways that lead to them
                # lead nowhere.
                rows = start + np.flatnonzero(norms[start:end])
                directions = unit_rows(matrix[rows], norms[rows])
                _add(index, rows, directions.astype(np.float32))
                work.reach(end)
        return cls(index)

    def nearest(self, vector: Vector, count: int) -> IndexArray:
        """Numbers of rows that are near to a vector by angle, the nearest first; about so many, at
        most so many.

        With a larger count, the first of them are more likely to be the nearest.

        Args:
            vector: (d,) float32, finite, of length 1.
            count: At least 1.
        """
        with self._searching:
            _faiss().downcast_index(self._index.index).hnsw.efSearch = count
            _, labels = self._index.search(vector[None], count)
        [numbers] = labels
        is_row = numbers >= 0  # -1 where there are no more
        rows: IndexArray = numbers[is_row].astype(np.intp)
        return rows

    def write(self, path: Path, name: str) -> None:
        """Write the graph to a new file, and wait until the disk has it.

        Args:
            path: The file.
            name: Of the rows it is over: `read` refuses the file under another one.

        Raises:
            OSError: If it cannot be written. Some of it may be there.
        """
        content = _faiss().serialize_index(self._index).data
        with path.open("xb") as file:
            file.write(content)
            file.write(_digest(content, name))
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def read(cls, path: Path, name: str, dimension: int) -> Graph:
        """The graph in a file.

        The file is checked completely first: a damaged graph could access memory of others.

        Args:
            path: The file.
            name: As it was given to `write`.
            dimension: Of its vectors.

        Raises:
            OSError: If it cannot be read.
            DamagedError: If it is not what `write` wrote under that name, or of a version of faiss
                that this one cannot read.
            MissingDependencyError: If faiss is not installed.
        """
        faiss = _faiss()
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size <= _DIGEST_BYTES:
                raise DamagedError("was cut")
            with (
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
                memoryview(mapped) as view,
            ):
                content = view[:-_DIGEST_BYTES]
                digest = bytes(view[-_DIGEST_BYTES:])
                with content:
                    if _digest(content, name) != digest:
                        raise DamagedError("is damaged, or over other rows")
                    copy = np.frombuffer(content, np.uint8).copy()
        try:
            index = faiss.deserialize_index(copy)
        except RuntimeError as exc:
            raise DamagedError(f"cannot be read by this version of faiss ({exc})") from exc
        if not isinstance(index, faiss.IndexIDMap) or index.d != dimension:
            raise DamagedError(f"is not over vectors of {dimension} numbers")
        return cls(index)


def read_faiss_index(path: Path) -> Any:
    """An index that another program wrote with ``faiss.write_index``.

    Raises:
        ConfigError: If there is no such file, or faiss cannot read it.
        MissingDependencyError: If faiss is not installed.
    """
    faiss = _faiss("An index of faiss in a file")
    try:
        return faiss.read_index(str(path))
    except RuntimeError as exc:
        reason = str(exc).splitlines()[0]
        raise ConfigError(f"{path} is no index of faiss, or cannot be read: {reason}") from exc


def check_installed() -> None:
    """Raise unless graphs can be built.

    Raises:
        MissingDependencyError: If faiss is not installed.
    """
    _faiss()


def _faiss(feature: str = "index='ann' of the map store") -> Any:
    with optional_package(feature, "ann"), warnings.catch_warnings():
        # what its bindings are made with is its own affair
        warnings.simplefilter("ignore", DeprecationWarning)
        import faiss  # an optional package
    return faiss


def _add(index: Any, numbers: IndexArray, directions: Matrix) -> None:
    if not len(numbers):
        return
    try:
        index.add_with_ids(directions, numbers.astype(np.int64))
    except (RuntimeError, MemoryError) as exc:
        if "interrupted" in str(exc):  # all that faiss passes on of a signal
            raise KeyboardInterrupt from exc
        raise StoreError(
            f"The graph of {index.ntotal} rows cannot take more ({exc}). Make room in memory, or"
            " use index='exact'.",
            store="map",
        ) from exc


def _digest(content: memoryview, name: str) -> bytes:
    digest = hashlib.blake2b(name.encode(), digest_size=_DIGEST_BYTES)
    digest.update(content)
    return digest.digest()


_CODED_FROM = 16_384  # rows; fewer are read as fast as their codes are
_CODED_DIMENSION = 32  # at least; shorter vectors have no tail worth the name
# share of the rows that one was chosen for, from which it serves all; any is exact
_ROTATION_SERVES = 0.25
_ROWS_MOVED = 4_096  # at once
# between which products of float32 numbers neither vanish nor overflow
_PLAIN_LENGTHS = 2.0**-60, 2.0**60


@dataclass(frozen=True, slots=True)
class DenseBlock(RowPart):
    """The vectors of some rows, in the order of their keys; never changed.

    Args:
        rows: Keys, ascending, and fields.
        matrix: (n, dimension) float32, finite.
        norms: (n,) float64, their lengths.
        codes: Of large blocks; None for others.
        inverses: Filled when `inverse_norms` is first called.
        graphs: Over the matrix, by which to search it approximately: at most one, built when first
            needed.

    Example:
        >>> block = DenseBlock.of_rows(["b", "a"], np.array([[1, 0], [3, 4]], np.float32))
        >>> DenseBlock.from_arrays(block.arrays()).norms.tolist()
        [5.0, 1.0]
    """

    matrix: Matrix
    norms: FloatArray
    codes: Codes | None = None
    inverses: list[Float32Array | None] = field(default_factory=list, repr=False, compare=False)
    graphs: list[Graph] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def of_rows(
        cls, keys: Sequence[str], vectors: Matrix, fields: Sequence[Fields] | None = None
    ) -> DenseBlock:
        """A block of new rows.

        Args:
            keys: n distinct keys.
            vectors: (n, dimension) float32, finite; copied.
            fields: What filters read of each; the rows of one file should share one object. JSON
                values and tuples.

        Raises:
            ConfigError: If a number is not finite.
        """
        require(bool(np.isfinite(vectors).all()), "vectors", vectors, "finite numbers")
        rows = RowBlock.of(keys, fields)
        order = rows.keys.argsort()
        matrix = np.asarray(vectors, np.float32)[order]
        norms = np.sqrt(row_dots(matrix, matrix))
        return cls._coded(rows.select(order), matrix, norms)

    @classmethod
    def joined(
        cls,
        blocks: Sequence[DenseBlock],
        masks: Masks,
        allocate: Allocate = np.empty,
    ) -> DenseBlock:
        """At least one block as one.

        Args:
            blocks: The blocks.
            masks: For each a mask of the rows to keep; None for all.
            allocate: Returns the memory of the vectors and their codes.
        """
        chosen = [
            np.arange(len(block)) if mask is None else np.flatnonzero(mask)
            for block, mask in zip(blocks, masks, strict=True)
        ]
        pairs = list(zip(blocks, chosen, strict=True))
        rows = RowBlock.joined([block.rows.select(block_rows) for block, block_rows in pairs])
        order = rows.keys.argsort(kind="stable")  # it finds that the blocks are sorted
        count = len(order)
        positions = np.empty(count, np.intp)
        positions[order] = np.arange(count)
        matrix = allocate((count, blocks[0].matrix.shape[1]), np.float32)
        norms = np.empty(count)
        sources = []
        first = 0
        for block, block_rows in pairs:
            end = first + len(block_rows)
            block_positions = positions[first:end]
            norms[block_positions] = block.norms[block_rows]
            for start in range(0, len(block_rows), _ROWS_MOVED):
                some = slice(start, start + _ROWS_MOVED)
                matrix[block_positions[some]] = block.matrix[block_rows[some]]
            if block.codes is not None:
                sources.append(KnownCodes(block.codes, block_rows, block_positions))
            first = end
        return cls._coded(rows.select(order), matrix, norms, allocate, sources)

    @classmethod
    def _coded(
        cls,
        rows: RowBlock,
        matrix: Matrix,
        norms: FloatArray,
        allocate: Allocate = np.empty,
        sources: Sequence[KnownCodes] = (),
    ) -> DenseBlock:
        """A block, with codes if it is large; by the rotation of the largest block in it, if that
        is a good part.
        """
        count, dimension = matrix.shape
        if count < _CODED_FROM or dimension < _CODED_DIMENSION:
            return cls(rows, matrix, norms)
        largest = max(sources, key=lambda source: len(source.rows), default=None)
        usable = []
        if largest is not None and len(largest.rows) >= _ROTATION_SERVES * count:
            rotation = largest.codes.rotation
            usable = [
                source for source in sources if np.array_equal(source.codes.rotation, rotation)
            ]
        codes = Codes.of_matrix(matrix, norms, allocate, usable)
        return cls(rows, matrix, norms, codes)

    def vector(self, row: int) -> Vector:
        """The vector of a row; a copy."""
        return np.array(self.matrix[row])

    def arrays(self) -> Arrays:
        """Arrays for `from_arrays`, to be written to a file."""
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
            raise StoreError(
                f"A part of an index has {len(rows)} keys, a matrix of {matrix.shape} and"
                f" {len(norms)} norms."
            )
        codes = Codes.from_arrays(arrays, *matrix.shape) if "head" in arrays else None
        return cls(rows, matrix, norms, codes)

    def inverse_norms(self) -> Float32Array | None:
        """(n,) 1 / length, 0 for length 0; None if some are too short or too long for float32."""
        if not self.inverses:  # several threads may find it at once; each finds the same
            least, most = _PLAIN_LENGTHS
            is_plain = (self.norms >= least) & (self.norms <= most)
            has_length = self.norms > 0
            inverses = None
            if np.all(is_plain | ~has_length):
                exact = np.zeros(len(self))
                np.divide(1.0, self.norms, out=exact, where=has_length)
                inverses = exact.astype(np.float32)
            self.inverses.append(inverses)
        return self.inverses[0]


def row_dots(vectors: AnyFloatArray, others: AnyFloatArray) -> FloatArray:
    """Inner products row by row in float64, each summed in the same order at any position."""
    product: FloatArray = np.einsum("...i,...i->...", vectors, others, dtype=np.float64)
    return product


# Candidates of a block, by estimates of cosines and their largest errors.

_GATHER_BELOW = 0.3  # share of rows below which copying some rows beats scanning all of them
# for each requested row; with fewer rows than that, their vectors are read at once
_ROWS_A_CODE_SAVES = 64
_MANY_QUERIES = 8  # which one product of matrices answers faster than codes, query by query
# rows that are scored for each requested row, for a first bound on the worst of the best
_PROBES = 8
_MIN_PROBES = 64


class Contenders(NamedTuple):
    """Rows that can be among the nearest.

    Args:
        rows: (m,) numbers in their block, ascending.
        raw_score: (m,) float64, their order, up to the errors: higher is nearer.
        errors: (m,) float64, at least 0.
        bytes_read: Bytes of vectors and codes that were read.
    """

    rows: IndexArray
    raw_score: FloatArray
    errors: FloatArray
    bytes_read: int


class VectorQuery:
    """A vector whose nearest rows are wanted.

    Args:
        vector: (d,) float64, finite.
        metric: See `lazyrag.types.Metric`.
    """

    __slots__ = ("direction", "length", "metric", "vector")

    def __init__(self, vector: FloatArray, metric: Metric) -> None:
        self.vector = vector
        self.metric = metric
        self.length = float(np.linalg.norm(vector))
        self.direction = vector / self.length if self.length else vector

    def raw_score(
        self,
        cosines: AnyFloatArray,
        errors: AnyFloatArray,
        norms: FloatArray,
    ) -> tuple[AnyFloatArray, AnyFloatArray]:
        """Values that order rows (higher is nearer), and their largest errors.

        Args:
            cosines: (m,) to the rows.
            errors: (m,) their largest errors; or (), the same for all.
            norms: (m,) lengths of the rows.
        """
        if self.metric == "cosine":
            return cosines, errors
        if self.metric == "ip":
            return norms * cosines, norms * errors
        # |x - y|^2 = |x|^2 + |y|^2 - 2 |x| |y| cos
        scale = 2.0 * self.length * norms
        squares = norms**2
        return scale * cosines - squares, scale * errors + 2.0**-40 * squares

    def scores(self, vectors: FloatArray) -> FloatArray:
        """(m,) scores of vectors (m, d), in float64."""
        if self.metric == "l2":
            differences = vectors - self.vector
            return 1.0 / (1.0 + np.sqrt(row_dots(differences, differences)))
        products = row_dots(vectors, self.vector)
        if self.metric == "ip":
            return products
        row = self.vector[None]
        [length] = np.sqrt(row_dots(row, row))
        lengths = np.sqrt(row_dots(vectors, vectors)) * length
        cosines = np.zeros_like(products)
        np.divide(products, lengths, out=cosines, where=lengths > 0)
        return np.clip(cosines, -1.0, 1.0)


class BlockSearch:
    """Search for the nearest rows of several vectors in one block; common work is done once.

    Args:
        block: The block.
        rows: (m,) those in question, ascending, at least one.
        queries: The vectors, each with a length.
    """

    def __init__(self, block: DenseBlock, rows: IndexArray, queries: Sequence[VectorQuery]) -> None:
        self._block = block
        self._rows = rows
        self._some = None if len(rows) == len(block) else rows  # None: all
        self._norms = block.norms if self._some is None else block.norms[rows]
        self._queries = queries
        directions = np.stack([query.direction for query in queries])
        self._directions = directions.astype(np.float32)
        codes = block.codes if len(queries) < _MANY_QUERIES else None
        self._scan = None if codes is None else CodeScan(codes, directions)
        self._products: Float32Array | None = None  # of all queries

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
        vector = self._queries[query]
        block = self._block
        cosines, errors = scan.heads(self._some, query)
        raw_score, uncertain = vector.raw_score(cosines, errors, self._norms)
        # Some rows that are probably among the best bound how good a row must be.
        probe_count = max(_PROBES * topk, _MIN_PROBES)
        probes = np.flatnonzero(raw_score >= kth_largest(raw_score, probe_count))
        bound = self._bound_of(vector, self._rows[probes], query, topk)
        left = np.flatnonzero(raw_score + uncertain >= bound)
        rows = self._rows[left]
        cosines, errors = scan.tails(rows, query, cosines[left])
        raw_score, uncertain = vector.raw_score(cosines, errors, block.norms[rows])
        bytes_read = len(self._rows) * scan.head_bytes
        bytes_read += len(rows) * scan.tail_bytes
        bytes_read += len(probes) * self._vector_bytes
        return _best(rows, raw_score, uncertain, topk, bound, bytes_read)

    def _bound_of(self, vector: VectorQuery, rows: IndexArray, query: int, topk: int) -> float:
        """A lower bound of the topk-th best raw score of some rows."""
        direction = self._directions[query : query + 1]
        with np.errstate(over="ignore", invalid="ignore"):
            [products] = row_products(self._block.matrix[rows], direction)
        cosines, errors = _cosines(self._block, rows, products)
        raw_score, uncertain = vector.raw_score(cosines, errors, self._block.norms[rows])
        return kth_largest(raw_score - uncertain, topk)

    def _by_vectors(self, query: int, topk: int) -> Contenders:
        if self._products is None:
            self._products = self._all_products()
        cosines, errors = _cosines(self._block, self._some, self._products[query])
        raw_score, uncertain = self._queries[query].raw_score(cosines, errors, self._norms)
        bytes_read = len(self._rows) * self._vector_bytes
        return _best(self._rows, raw_score, uncertain, topk, -np.inf, bytes_read)

    def _all_products(self) -> Float32Array:
        matrix = self._block.matrix
        directions = self._directions
        with np.errstate(over="ignore", invalid="ignore"):
            if self._some is None:
                return row_products(matrix, directions)
            if len(self._rows) < _GATHER_BELOW * len(matrix):
                return row_products(matrix[self._rows], directions)
            return row_products(matrix, directions)[:, self._rows]

    @property
    def _vector_bytes(self) -> int:
        matrix = self._block.matrix
        return int(matrix.shape[1]) * matrix.itemsize


def _cosines(
    block: DenseBlock, rows: IndexArray | None, products: Float32Array
) -> tuple[AnyFloatArray, AnyFloatArray]:
    """Cosines between a direction and some rows of a block, from their products in float32; and the
    largest errors.
    """
    # With a query y of length 1, |fl(x.y) - x.y| <= d u / (1 - d u) |x| with u = 2^-24, once more u
    # for rounding the query, and half of 2^-149 for each product below the normal range (Higham,
    # Accuracy and Stability of Numerical
    # Algorithms, 2.2 and 3.1); doubled for good measure, and for the division.
    dimension = block.matrix.shape[1]
    relative = 2.0 * (dimension + 4) * 2.0**-24
    inverses = block.inverse_norms()
    if inverses is not None:
        row_inverses = inverses if rows is None else inverses[rows]
        # the same for all: (), which spares passes over all rows
        return products * row_inverses, np.array(relative)
    norms = block.norms if rows is None else block.norms[rows]
    has_length = norms > 0
    cosines = np.zeros(len(norms))
    underflow = np.zeros(len(norms))
    with np.errstate(over="ignore", invalid="ignore"):
        np.divide(products, norms, out=cosines, where=has_length)
        np.divide(dimension * 2.0**-149, norms, out=underflow, where=has_length)
    errors = np.where(has_length, relative + underflow, 0.0)
    # a sum has left float32's range: only the exact pass can rank it
    is_beyond = ~np.isfinite(cosines)
    cosines[is_beyond] = 0.0
    errors[is_beyond] = np.inf
    return cosines, errors


def _best(
    rows: IndexArray,
    raw_score: AnyFloatArray,
    errors: AnyFloatArray,
    topk: int,
    bound: float,
    bytes_read: int,
) -> Contenders:
    """Those rows that can be among the topk best of them, and are not certain to be below a
    bound.
    """
    if errors.ndim:
        if len(rows) > topk:
            bound = max(bound, kth_largest(raw_score - errors, topk))
        left = np.flatnonzero(raw_score + errors >= bound)
    else:
        error = float(errors)
        if len(rows) > topk:
            bound = max(bound, kth_largest(raw_score, topk) - error)
        # Compared in the type of the raw scores, of which the next number below the bound is not
        # above it.
        number_type = raw_score.dtype
        rounded = np.array(bound - error, number_type)
        lowest = np.nextafter(rounded, -np.inf, dtype=number_type)
        left = np.flatnonzero(raw_score >= lowest)
        errors = np.broadcast_to(errors, len(rows))
    best_score = raw_score[left].astype(np.float64)
    best_errors = errors[left].astype(np.float64)
    return Contenders(rows[left], best_score, best_errors, bytes_read)


METRICS: tuple[Metric, ...] = ("cosine", "ip", "l2")

_MAX_PARTS = 16
_PRODUCTS_AT_ONCE = 1 << 24  # between queries and rows, which are kept in memory together


class DenseState(VectorRows[DenseBlock, "Vector"]):
    """Some blocks, and which of their rows live. Immutable, and safe for any number of threads.

    Scores: cosine in [-1, 1] (0 for a vector without length); inner product; L2 as 1 / (1 +
    distance). A pass in float32, over codes or over vectors, finds the rows that can be among the
    best within its largest error, and one in float64 over the vectors of those gives their scores:
    equal vectors get equal scores wherever they lie.

    Args:
        parts: Their live rows have distinct keys.
        alive: For each block a mask that is false for dead rows; None if all are live. Not to be
            changed afterwards.
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
        self,
        parts: Sequence[DenseBlock],
        alive: Masks,
        dimension: int,
        metric: Metric,
    ) -> None:
        super().__init__(parts, alive)
        self.dimension = validate_integer("dimension", dimension, 1)
        self.metric: Metric = validate_choice("metric", metric, METRICS)

    def search(
        self,
        query: AnyFloatArray,
        topk: int,
        *,
        filter: Filter | None = None,  # noqa: A002
    ) -> Ranking:
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
        [(ranking, _)] = self._found(np.asarray(query)[None], topk, filter)
        return ranking

    def search_many(
        self,
        queries: Matrix,
        topk: int,
        *,
        filter: Filter | None = None,  # noqa: A002
    ) -> list[Ranking]:
        """The same for several queries, which is faster than one after the other.

        Args:
            queries: (q, dimension) finite.
            topk: At least 1.
            filter: A bound filter over the rows' fields.

        Returns:
            A ranking for each query: what `search` returns for it.

        Raises:
            ConfigError: If topk or the queries' shape is wrong, or one is not finite.
        """
        return [ranking for ranking, _ in self._found(np.asarray(queries), topk, filter)]

    def _found(
        self,
        queries: AnyArray,
        topk: int,
        filter: Filter | None,  # noqa: A002  the word of the domain
    ) -> Iterator[tuple[Ranking, int]]:
        """For each query its ranking, and how many bytes were read for it."""
        exact = checked_queries(queries, topk, self.dimension)
        mask = self._rows.mask(filter)
        row_count = len(self._rows)
        rows = np.arange(row_count) if mask is None else np.flatnonzero(mask)
        step = max(1, _PRODUCTS_AT_ONCE // max(1, row_count))
        for start in range(0, len(exact), step):
            some = exact[start : start + step]
            vector_queries = [VectorQuery(vector, self.metric) for vector in some]
            yield from self._answers(vector_queries, rows, topk)

    def _answers(
        self, queries: Sequence[VectorQuery], rows: IndexArray, topk: int
    ) -> Iterator[tuple[Ranking, int]]:
        searches = []
        if len(rows) > topk:  # else all of them are among the best
            searches = [
                (int(self._rows.firsts[at]), BlockSearch(self.parts[at], block_rows, queries))
                for at, _, block_rows in self._rows.by_part(rows)
            ]
        for number, query in enumerate(queries):
            left = rows
            bytes_read = 0
            if query.length and searches:
                candidates = [
                    (first, search.contenders(number, topk)) for first, search in searches
                ]
                left = _can_be_best(candidates, topk)
                bytes_read = sum(contenders.bytes_read for _, contenders in candidates)
            bytes_read += left.size * self.dimension * 4
            scores = self._scores(left, query)
            yield ranked(self._rows.keys, left, scores, topk), bytes_read

    def _scores(self, rows: IndexArray, query: VectorQuery) -> FloatArray:
        scores = np.empty(len(rows))
        for number, places, block_rows in self._rows.by_part(rows):
            vectors = self.parts[number].matrix[block_rows].astype(np.float64)
            scores[places] = query.scores(vectors)
        return scores


class DenseIndex(TieredIndex[DenseBlock, DenseState]):
    """Dense vectors ranked exactly, incremental, safe for concurrent readers; see `DenseState`.

    Args:
        dimension: Length of the vectors, at least 1.
        metric: ``"cosine"``, ``"ip"`` or ``"l2"``.

    Raises:
        ConfigError: If a value is out of its range.

    Example:
        >>> index = DenseIndex(2, "cosine")
        >>> index.add(["a", "b"], np.array([[1, 0], [1, 1]], np.float32))
        >>> index.state.search(np.array([2, 0], np.float32), 1)
        [('a', 1.0)]
    """

    def __init__(self, dimension: int, metric: Metric = "cosine") -> None:
        def make_state(
            parts: Sequence[DenseBlock], alive: Masks, _: DenseState | None
        ) -> DenseState:
            return DenseState(parts, alive, dimension, metric)

        super().__init__(make_state, DenseBlock.joined, _MAX_PARTS)

    def add(
        self, keys: Sequence[str], vectors: Matrix, fields: Sequence[Fields] | None = None
    ) -> None:
        """Add rows; a key that is present is replaced. See `DenseBlock.of_rows`."""
        matrix = np.asarray(vectors, np.float32)
        self._add_part(DenseBlock.of_rows(keys, matrix, fields))


def checked_queries(queries: AnyArray, topk: int, dimension: int) -> FloatArray:
    """The vectors of some queries, (q, dimension) float64.

    Raises:
        ConfigError: If topk or their shape is wrong, or one is not finite.
    """
    exact = np.asarray(queries).astype(np.float64)
    require(topk >= 1, "topk", topk, "an integer >= 1")
    is_valid = exact.shape[1:] == (dimension,) and bool(np.isfinite(exact).all())
    require(is_valid, "Each query", exact, f"{dimension} finite numbers")
    return exact


def _can_be_best(candidates: Sequence[tuple[int, Contenders]], topk: int) -> IndexArray:
    """The rows that can be among the topk best of all parts, given those of each with the number of
    its first row.
    """
    raw_score = np.concatenate([contenders.raw_score for _, contenders in candidates])
    errors = np.concatenate([contenders.errors for _, contenders in candidates])
    rows = np.concatenate([contenders.rows + first for first, contenders in candidates])
    bound = kth_largest(raw_score - errors, topk)
    best: IndexArray = rows[raw_score + errors >= bound]
    return best
