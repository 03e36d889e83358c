"""Graphs over many vectors, which lead to near ones without a look at most of them: the only import of usearch."""

from __future__ import annotations

import hashlib
import mmap
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrag.errors import StoreError, missing_package
from lazyrag.indexes.codes import unit_rows
from lazyrag.storage.array_format import DamagedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lazyrag.typing import Matrix, Vector

# A byte for each number: float16 and float32 found no more of the ten nearest, and took 1.7 and 3.1 times the room.
# Twice the neighbours found no more of them either, and took half as long again.
_NUMBERS = "i8"
_NEIGHBOURS = 16
_BREADTH = 128  # rows that are looked at for the neighbours of a new one
_ROWS_AT_ONCE = 4_096  # added, between two looks at the bar
_DIGEST_BYTES = 32


class Graph:
    """A navigable graph (HNSW) over the rows of a matrix, by the angles between them. Never changed once it is made.

    What it finds is near, and may lack some of the nearest. Safe for concurrent use, one search after the other.

    Args:
        index: usearch's index; its keys are the numbers of rows.
        content: What that is a view of, and what must last as long; None where it has memory of its own.

    Source:
        Malkov, Yashunin: Efficient and robust approximate nearest neighbor search using Hierarchical Navigable Small
        World graphs, 2016, arXiv:1603.09320; built and searched by usearch.

    Example:
        >>> matrix = np.eye(64, dtype=np.float32)
        >>> Graph.of_matrix(matrix, np.ones(64)).nearest(matrix[5], 1).tolist()
        [5]
    """

    __slots__ = ("_content", "_index", "_searching")

    def __init__(self, index: Any, content: mmap.mmap | None = None) -> None:
        self._index = index
        self._content = content
        self._searching = threading.Lock()  # the searches of one index share their working memory

    def __len__(self) -> int:
        return len(self._index)

    @classmethod
    def of_matrix(cls, matrix: Matrix, norms: NDArray[np.float64]) -> Graph:
        """A graph over all rows, made by all processors; a bar shows how far it is where someone is watching.

        Args:
            matrix: (n, d) float32, finite.
            norms: (n,) their lengths; a vector without length is left out.

        Raises:
            MissingDependencyError: If usearch is not installed.
            StoreError: If there is no memory for it.
        """
        from tqdm import tqdm  # see `lazyrag.document.progress`

        index = index_type()(
            ndim=matrix.shape[1],
            metric="cos",
            dtype=_NUMBERS,
            connectivity=_NEIGHBOURS,
            expansion_add=_BREADTH,
            enable_key_lookups=False,
        )
        with tqdm(total=len(matrix), desc="graph of vectors", unit="row", delay=2, leave=False, disable=None) as bar:
            for start in range(0, len(matrix), _ROWS_AT_ONCE):
                some = slice(start, start + _ROWS_AT_ONCE)
                # Vectors without length are equally far from everything: ways that lead to them lead nowhere.
                there = np.flatnonzero(norms[some])
                directions = unit_rows(matrix[some][there], norms[some][there])
                _add(index, start + there, directions.astype(np.float32))
                bar.update(len(matrix[some]))
        return cls(index)

    def nearest(self, vector: Vector, count: int) -> NDArray[np.intp]:
        """Numbers of rows that are near to a vector by angle, the nearest first; about so many, at most so many.

        The more are asked for, the surer are the first of them to be the nearest.

        Args:
            vector: (d,) float32, finite, not 0.
            count: At least 1.
        """
        with self._searching:
            found = self._index.search(vector, count, threads=1)
        rows: NDArray[np.intp] = found.keys.astype(np.intp)
        return rows

    def write(self, path: Path, name: str) -> None:
        """Write the graph to a new file, and wait until the disk has it.

        Args:
            path: The file.
            name: Of the rows it is over: `read` refuses the file under another one.

        Raises:
            OSError: If it cannot be written. Some of it may be there.
        """
        try:
            self._index.save(os.fspath(path))
        except (RuntimeError, ValueError) as exc:  # usearch's own words for what the system said
            raise OSError(str(exc)) from exc
        with path.open("r+b") as file:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                digest = _digest(content, name)
            file.seek(0, os.SEEK_END)
            file.write(digest)
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def read(cls, path: Path, name: str, dimension: int) -> Graph:
        """The graph in a file, mapped into memory: its pages are shared by all processes that read it.

        The file is read once as a whole, as a damaged graph leads out of the memory that is the program's.

        Args:
            path: The file.
            name: As it was given to `write`.
            dimension: Of its vectors.

        Raises:
            OSError: If it cannot be read.
            DamagedError: If it is not what `write` wrote under that name, or of a version of usearch that this one
                cannot read.
            MissingDependencyError: If usearch is not installed.
        """
        index_class = index_type()
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size <= _DIGEST_BYTES:
                msg = "was cut"
                raise DamagedError(msg)
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        graph = memoryview(content)[:-_DIGEST_BYTES]
        if _digest(graph, name) != content[-_DIGEST_BYTES:]:
            msg = "is damaged, or over other rows"
            raise DamagedError(msg)
        try:
            index = index_class.restore(graph, view=True, enable_key_lookups=False)
        except (RuntimeError, ValueError) as exc:
            msg = f"cannot be read by this version of usearch ({exc})"
            raise DamagedError(msg) from exc
        if index is None or index.ndim != dimension:
            msg = f"is not over vectors of {dimension} numbers"
            raise DamagedError(msg)
        return cls(index, content)


def index_type() -> Any:
    """usearch's class of indexes.

    Raises:
        MissingDependencyError: If it is not installed.
    """
    try:
        from usearch import index  # an optional package
    except ModuleNotFoundError as exc:
        raise missing_package("index='ann' of the map store", exc, "ann") from exc
    return index.Index


def _add(index: Any, numbers: NDArray[np.intp], directions: Matrix) -> None:
    if not len(numbers):
        return
    try:
        index.add(numbers, directions)
    except (RuntimeError, ValueError) as exc:
        if "terminated" in str(exc):  # all that usearch passes on of a signal
            raise KeyboardInterrupt from exc
        msg = f"The graph of {len(index)} rows cannot take more ({exc}). Make room in memory, or use index='default'."
        raise StoreError(msg, store="map") from exc


def _digest(content: mmap.mmap | memoryview, name: str) -> bytes:
    digest = hashlib.blake2b(name.encode(), digest_size=_DIGEST_BYTES)
    digest.update(content)
    return digest.digest()
