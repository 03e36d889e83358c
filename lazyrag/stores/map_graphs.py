"""The graphs of the ``map`` vector stores, by which they search approximately; beside a store file they lie in files.

A graph says nothing that the vectors do not say: its file may be deleted at any time, which costs the time to build it.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from lazyrag.data.filters import Filter
from lazyrag.errors import CacheWarning, sentence, warn_user
from lazyrag.indexes.dense import DenseBlock, DenseState, Graph, check_installed
from lazyrag.indexes.hnsw import LEAST_ROWS, approximate_rankings
from lazyrag.storage.arrays import DamagedError
from lazyrag.stores.store_file import StoreFile
from lazyrag.stores.vector_tables import VECTOR_PARTS
from lazyrag.types import Matrix, Ranking

_YOUNG_S = 3600.0  # a temporary file of that age belongs to a program that has ended
_FILE = re.compile(r"([0-9a-f]{32})(\.faiss|\.[0-9a-f]{16}\.tmp)")


class GraphFiles:
    """Graphs in the files of a folder, each named as the array file of the rows that it is over.

    Args:
        folder: Where they lie; made when the first is written.
        read_only: Write and remove nothing.
        in_use: Gives the names of all array files and bundles that the store has rows in.
    """

    def __init__(self, folder: Path, *, read_only: bool, in_use: Callable[[], Collection[str]]) -> None:
        self._folder = folder
        self._read_only = read_only
        self._in_use = in_use

    def read(self, name: str, block: DenseBlock) -> Graph | None:
        """The graph over the rows of that name; None where there is none, or none that can be used."""
        try:
            return Graph.read(self._path(name), name, block.matrix.shape[1])
        except FileNotFoundError:
            return None
        except (DamagedError, OSError) as exc:
            warn_user(f"A graph is built anew: {os.fspath(self._path(name))!r} {sentence(exc)}", CacheWarning)
            return None

    def write(self, name: str, graph: Graph) -> bool:
        """Keep a graph over the rows of that name, whole or not at all, and remove those over rows that are gone.

        What cannot be kept is a CacheWarning: the graph is there and in use. Returns whether it was kept.
        """
        if self._read_only:
            return False
        temporary = self._folder / f"{self._path(name).stem}.{secrets.token_hex(8)}.tmp"
        try:
            self._folder.mkdir(exist_ok=True)
            try:
                graph.write(temporary, name)
                temporary.replace(self._path(name))
            finally:
                temporary.unlink(missing_ok=True)
            self._sweep()
        except OSError as exc:
            warn_user(f"A graph of vectors is not kept, and will have to be built again: {sentence(exc)}", CacheWarning)
            return False
        return True

    def _sweep(self) -> None:
        """Remove the graphs over rows that are gone, and what writers that were killed left half-written."""
        found = {path: match for path in self._folder.iterdir() if (match := _FILE.fullmatch(path.name))}
        stems = {name.partition(".")[0] for name in self._in_use()}  # after the files: what is new is in use
        for path, match in found.items():
            with suppress(FileNotFoundError):  # another program does the same
                old = time.time() - path.stat().st_mtime >= _YOUNG_S
                if old if match[2].endswith(".tmp") else match[1] not in stems:
                    self._remove(path)

    def _remove(self, path: Path) -> None:
        try:
            path.unlink()
        except PermissionError:
            if os.name != "nt":  # there it means that a process has mapped it
                raise

    def _path(self, name: str) -> Path:
        return self._folder / f"{name.partition('.')[0]}.faiss"


class Graphs:
    """The graphs of a store's large blocks: built when they are first wanted, and kept as long as the blocks are.

    Args:
        files: Where they are kept for the next program; None for nowhere.
    """

    def __init__(self, files: GraphFiles | None = None) -> None:
        self._files = files
        self._making = threading.Lock()

    def search(
        self,
        state: DenseState,
        names: Sequence[str],
        vectors: Matrix,
        topk: int,
        filter: Filter | None,  # noqa: A002  the word of the protocol
    ) -> list[Ranking]:
        """See `Approximate.search_approximately`.

        Args:
            state: The collection's vectors.
            names: Of its blocks; not looked at where graphs are kept nowhere.
            vectors: (n, dimension) the queries.
            topk: At least 1.
            filter: Bound, over the rows' fields.
        """
        check_installed()  # who names this search needs the package, however few the rows are
        graphs = [self._of(block, name) for block, name in zip(state.blocks, names, strict=True)]
        return approximate_rankings(state, graphs, vectors, topk, filter)

    def _of(self, block: DenseBlock, name: str) -> Graph | None:
        """The graph over a block; None for one that is searched exactly."""
        if len(block) < LEAST_ROWS:
            return None
        if not block.graphs:
            with self._making:
                if not block.graphs:  # another thread may have made it meanwhile
                    block.graphs.append(self._made(block, name))
        return block.graphs[0]

    def _made(self, block: DenseBlock, name: str) -> Graph:
        graph = self._files.read(name, block) if self._files is not None else None
        if graph is None:
            graph = Graph.of_matrix(block.matrix, block.norms)
            if self._files is not None and self._files.write(name, graph):
                graph = self._files.read(name, block) or graph  # mapped, it needs no memory of its own
        return graph


def graph_files(file: StoreFile) -> GraphFiles | None:
    """Where the graphs of a store file lie: in ``<path>.graphs``; None for one in memory."""
    if file.path is None:
        return None

    def in_use() -> list[str]:
        with file.reading() as connection:
            return [name for (name,) in connection.execute(VECTOR_PARTS)]

    return GraphFiles(Path(f"{file.path}.graphs"), read_only=file.read_only, in_use=in_use)
