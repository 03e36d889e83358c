"""Graphs over many vectors, which lead to near ones without a look at most of them: the only import of faiss."""

from __future__ import annotations

import hashlib
import mmap
import os
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrag.errors import ConfigError, StoreError, missing_package
from lazyrag.indexes.codes import unit_rows
from lazyrag.storage.array_format import DamagedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lazyrag.typing import Matrix, Vector

_NEIGHBOURS = 16
_BREADTH = 128  # rows that are looked at for the neighbours of a new one
_ROWS_SAMPLED = 16_384  # for the range of each number
_ROWS_AT_ONCE = 4_096  # added, between two looks at the bar
_DIGEST_BYTES = 32


class Graph:
    """A navigable graph (HNSW) over the rows of a matrix, by the angles between them. Never changed once it is made.

    What it finds is near, and may lack some of the nearest. Safe for concurrent use, one search after the other.

    Args:
        index: faiss's index; its ids are the numbers of rows.

    Source:
        Malkov, Yashunin: Efficient and robust approximate nearest neighbor search using Hierarchical Navigable Small
        World graphs, 2016, arXiv:1603.09320; built and searched by faiss.
    """

    __slots__ = ("_index", "_searching")

    def __init__(self, index: Any) -> None:
        self._index = index
        self._searching = threading.Lock()  # how broadly to search is an attribute of the index

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @classmethod
    def of_matrix(cls, matrix: Matrix, norms: NDArray[np.float64]) -> Graph:
        """A graph over all rows, made by all processors; a bar shows how far it is where someone is watching.

        Args:
            matrix: (n, d) float32, finite.
            norms: (n,) their lengths; a vector without length is left out.

        Raises:
            MissingDependencyError: If faiss is not installed.
            StoreError: If there is no memory for it.
        """
        from tqdm import tqdm  # see `lazyrag.document.progress`

        faiss = _faiss()
        # Distances between directions order them as angles do. A byte for each number: float16 and float32 found no
        # more of the ten nearest, and took 1.7 and 3.1 times the room.
        graph = faiss.IndexHNSWSQ(matrix.shape[1], faiss.ScalarQuantizer.QT_8bit, _NEIGHBOURS, faiss.METRIC_L2)
        graph.hnsw.efConstruction = _BREADTH
        index = faiss.IndexIDMap(graph)
        step = max(1, -(-len(matrix) // _ROWS_SAMPLED))
        index.train(unit_rows(matrix[::step], norms[::step]).astype(np.float32))
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
            vector: (d,) float32, finite, of length 1.
            count: At least 1.
        """
        with self._searching:
            _faiss().downcast_index(self._index.index).hnsw.efSearch = count
            _, found = self._index.search(vector[None], count)
        rows: NDArray[np.intp] = found[0][found[0] >= 0].astype(np.intp)  # -1 where there are no more
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

        The file is checked as a whole first, as a damaged graph could lead out of the memory that is the program's.

        Args:
            path: The file.
            name: As it was given to `write`.
            dimension: Of its vectors.

        Raises:
            OSError: If it cannot be read.
            DamagedError: If it is not what `write` wrote under that name, or of a version of faiss that this one
                cannot read.
            MissingDependencyError: If faiss is not installed.
        """
        faiss = _faiss()
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size <= _DIGEST_BYTES:
                msg = "was cut"
                raise DamagedError(msg)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as whole:
                content, digest = whole[:-_DIGEST_BYTES], bytes(whole[-_DIGEST_BYTES:])
                with content:
                    if _digest(content, name) != digest:
                        msg = "is damaged, or over other rows"
                        raise DamagedError(msg)
                    copy = np.frombuffer(content, np.uint8).copy()
        try:
            index = faiss.deserialize_index(copy)
        except RuntimeError as exc:
            msg = f"cannot be read by this version of faiss ({exc})"
            raise DamagedError(msg) from exc
        if not isinstance(index, faiss.IndexIDMap) or index.d != dimension:
            msg = f"is not over vectors of {dimension} numbers"
            raise DamagedError(msg)
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
        msg = f"{path} is no index of faiss, or cannot be read: {str(exc).splitlines()[0]}"
        raise ConfigError(msg) from exc


def check_installed() -> None:
    """Nothing, if graphs can be made here.

    Raises:
        MissingDependencyError: If faiss is not installed.
    """
    _faiss()


def _faiss(what: str = "index='ann' of the map store") -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # what its bindings are made with is its own affair
            import faiss  # an optional package
    except ModuleNotFoundError as exc:
        raise missing_package(what, exc, "ann") from exc
    return faiss


def _add(index: Any, numbers: NDArray[np.intp], directions: Matrix) -> None:
    if not len(numbers):
        return
    try:
        index.add_with_ids(directions, numbers.astype(np.int64))
    except (RuntimeError, MemoryError) as exc:
        if "interrupted" in str(exc):  # all that faiss passes on of a signal
            raise KeyboardInterrupt from exc
        msg = f"The graph of {index.ntotal} rows cannot take more ({exc}). Make room in memory, or use index='default'."
        raise StoreError(msg, store="map") from exc


def _digest(content: memoryview, name: str) -> bytes:
    digest = hashlib.blake2b(name.encode(), digest_size=_DIGEST_BYTES)
    digest.update(content)
    return digest.digest()
