"""Graphs over the vectors of a store file, for approximate search."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lazyrag.data.filters import Filter
from lazyrag.errors import CacheWarning, sentence, warn_user
from lazyrag.indexes.dense import DenseBlock, DenseState, Graph, check_installed
from lazyrag.indexes.hnsw import MIN_ROWS, approximate_rankings
from lazyrag.storage.arrays import DamagedError
from lazyrag.stores.sqlite import YOUNG_S, StoreFile
from lazyrag.stores.tables import VECTOR_PARTS
from lazyrag.types import Matrix, Ranking

_GRAPH_FILE = re.compile(r"([0-9a-f]{32})(\.faiss|\.[0-9a-f]{16}\.tmp)")


class Graphs:
    """The graphs over a vector store's large blocks: built when first needed, and kept as long as
    the blocks are.

    Those of a store file are kept in files for the next program: in ``<path>.graphs``, each under
    the name of the array file of its rows.

    Args:
        file: The store file; None for a store in memory.
    """

    def __init__(self, file: StoreFile | None = None) -> None:
        self._file = file
        self._folder = (
            Path(f"{file.path}.graphs") if file is not None and file.path is not None else None
        )
        self._making = threading.Lock()

    def search(
        self,
        state: DenseState,
        names: Sequence[str],
        vectors: Matrix,
        topk: int,
        filter: Filter | None,
    ) -> list[Ranking]:
        """See `Approximate.search_approximately`.

        Args:
            state: The collection's vectors.
            names: Of its blocks' bundles; ignored for a store in memory.
            vectors: (n, dimension) the queries.
            topk: At least 1.
            filter: Bound, over the rows' fields.
        """
        check_installed()  # an approximate search needs the package, however few the rows are
        graphs = [self._of(block, name) for block, name in zip(state.parts, names, strict=True)]
        return approximate_rankings(state, graphs, vectors, topk, filter)

    def _of(self, block: DenseBlock, name: str) -> Graph | None:
        """The graph over a block; None for one that is searched exactly."""
        if len(block) < MIN_ROWS:
            return None
        if not block.graphs:
            with self._making:
                if not block.graphs:  # another thread may have made it meanwhile
                    graph = None if self._folder is None else self._read(self._folder, block, name)
                    block.graphs.append(graph or self._build(block, name))
        return block.graphs[0]

    def _build(self, block: DenseBlock, name: str) -> Graph:
        graph = Graph.of_matrix(block.matrix, block.norms)
        if self._folder is None or self._file is None or self._file.read_only:
            return graph
        try:
            self._write(self._folder, self._file, graph, name)
        except OSError as exc:
            warn_user(
                "A graph of vectors is not stored, and will have to be built again:"
                f" {sentence(exc)}",
                CacheWarning,
            )
            return graph
        # mapped, it needs no memory of its own
        return self._read(self._folder, block, name) or graph

    def _read(self, folder: Path, block: DenseBlock, name: str) -> Graph | None:
        """Read a graph; None if there is none, or it cannot be used."""
        path = _graph_path(folder, name)
        try:
            return Graph.read(path, name, block.matrix.shape[1])
        except FileNotFoundError:
            return None
        except (DamagedError, OSError) as exc:
            warn_user(f"A graph is built anew: {os.fspath(path)!r} {sentence(exc)}", CacheWarning)
            return None

    def _write(self, folder: Path, file: StoreFile, graph: Graph, name: str) -> None:
        """Write a graph, all of it or nothing, and remove graphs of rows that are gone and what
        killed writers left.
        """
        path = _graph_path(folder, name)
        temporary = folder / f"{path.stem}.{os.urandom(8).hex()}.tmp"
        folder.mkdir(exist_ok=True)
        try:
            graph.write(temporary, name)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        graph_files = {
            entry: match
            for entry in folder.iterdir()
            if (match := _GRAPH_FILE.fullmatch(entry.name))
        }
        with file.reading() as connection:  # after the files: what is new is in use
            stems = {bundle.partition(".")[0] for (bundle,) in connection.execute(VECTOR_PARTS)}
        for entry, match in graph_files.items():
            with suppress(FileNotFoundError):  # another program does the same
                old = time.time() - entry.stat().st_mtime >= YOUNG_S
                if old if match[2].endswith(".tmp") else match[1] not in stems:
                    _remove(entry)


def _graph_path(folder: Path, name: str) -> Path:
    return folder / f"{name.partition('.')[0]}.faiss"


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except PermissionError:
        if os.name != "nt":  # there it means that a process has mapped it
            raise
