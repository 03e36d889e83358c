"""Engines for dense vectors of length 1, by cosine; each class imports its package when it is made.

A job is the number of a query, a batch a list of them.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from lexical import TOPK, resident_mb, version_of


class Engine:
    """An index over the rows of a matrix. A row's key is its number."""

    packages: tuple[str, ...] = ()

    def versions(self) -> dict[str, str]:
        """Of what it runs."""
        return version_of("numpy", *self.packages)

    def load(self, vectors: str, queries: str) -> dict[str, float]:
        """Build the index; seconds of that alone, and what it holds beyond an empty process and the
        queries.
        """
        self.queries = np.load(queries)
        before = resident_mb()
        matrix = np.load(vectors)
        started = time.perf_counter()
        self.build(matrix)
        seconds = time.perf_counter() - started
        del matrix
        return {"build_s": seconds, "memory_mb": resident_mb() - before}

    def build(self, matrix: np.ndarray) -> None:
        """The index over some rows."""
        raise NotImplementedError

    def search(self, job: int) -> list[int]:
        """The best rows."""
        raise NotImplementedError

    def answers(self, jobs: list[int]) -> list[list[int]]:
        """The best rows of each query."""
        return [[int(row) for row in self.search(job)] for job in jobs]


class Lazyrag(Engine):
    """Ours, at the index level."""

    def __init__(self) -> None:
        from lazyrag import __version__
        from lazyrag.indexes.dense import DenseIndex

        self.make, self.version = DenseIndex, __version__

    def versions(self) -> dict[str, str]:
        """Of numpy as well, which does the work."""
        return {**super().versions(), "lazyrag": self.version}

    def build(self, matrix: np.ndarray) -> None:
        """One block."""
        self.index = self.make(matrix.shape[1], "cosine")
        self.index.add([f"{row:08d}" for row in range(len(matrix))], matrix)

    def search(self, job: int) -> list[int]:
        """The best rows."""
        return [int(key) for key, _ in self.index.state.search(self.queries[job], TOPK)]

    def search_batch(self, jobs: list[int]) -> list[list[int]]:
        """The best rows of many queries at once."""
        rankings = self.index.state.search_many(self.queries[jobs], TOPK)
        return [[int(key) for key, _ in ranking] for ranking in rankings]

    def share_read(self, jobs: list[int]) -> list[float]:
        """For each query, asked alone, how much was read, of vectors and codes, beside what the
        vectors take.
        """
        state = self.index.state
        whole = sum(block.matrix.nbytes for block in state.parts)
        return [
            read / whole
            for job in jobs
            for _, read in state._found(self.queries[[job]], TOPK, None)
        ]


class Numpy(Engine):
    """A product and a partition: what everybody writes."""

    def build(self, matrix: np.ndarray) -> None:
        """The matrix itself."""
        self.matrix = np.array(matrix)

    def search(self, job: int) -> list[int]:
        """The best rows, in order."""
        scores = self.matrix @ self.queries[job]
        best = np.argpartition(scores, -TOPK)[-TOPK:]
        return list(best[np.argsort(-scores[best])])

    def search_batch(self, jobs: list[int]) -> list[list[int]]:
        """One product for all."""
        scores = self.queries[jobs] @ self.matrix.T
        best = np.argpartition(scores, -TOPK, axis=1)[:, -TOPK:]
        return [list(own) for own in best]


class Reading(Engine):
    """No search: the matrix is read once, its maximum taken. No exact search that reads all of it
    takes less.
    """

    def build(self, matrix: np.ndarray) -> None:
        """The matrix, cut in two."""
        self.matrix = np.array(matrix).reshape(-1)
        self.halves = np.array_split(self.matrix, 2)
        self.pool = ThreadPoolExecutor(2)

    def one(self, job: int) -> None:
        """By one thread."""
        self.matrix.max()

    def two(self, job: int) -> None:
        """By two threads."""
        list(self.pool.map(np.max, self.halves))


class Faiss(Engine):
    """faiss IndexFlatIP."""

    packages = ("faiss-cpu",)

    def __init__(self) -> None:
        import faiss

        self.make = faiss.IndexFlatIP

    def build(self, matrix: np.ndarray) -> None:
        """A copy of the matrix."""
        self.index = self.make(matrix.shape[1])
        self.index.add(matrix)

    def search(self, job: int) -> list[int]:
        """The best rows."""
        return list(self.index.search(self.queries[job : job + 1], TOPK)[1][0])

    def search_batch(self, jobs: list[int]) -> list[list[int]]:
        """The best rows of many queries."""
        return [list(own) for own in self.index.search(self.queries[jobs], TOPK)[1]]


class Usearch(Engine):
    """usearch's exact search over a matrix."""

    packages = ("usearch",)

    def __init__(self) -> None:
        from usearch.index import MetricKind, search

        self.exact, self.metric = search, MetricKind.IP

    def build(self, matrix: np.ndarray) -> None:
        """The matrix itself."""
        self.matrix = np.array(matrix)

    def search(self, job: int) -> list[int]:
        """The best rows."""
        return list(self.exact(self.matrix, self.queries[job], TOPK, self.metric, exact=True).keys)

    def search_batch(self, jobs: list[int]) -> list[list[int]]:
        """The best rows of many queries."""
        return [
            list(own)
            for own in self.exact(
                self.matrix, self.queries[jobs], TOPK, self.metric, exact=True
            ).keys
        ]


class Chroma(Engine):
    """chromadb in memory: an HNSW graph as it comes, which is not exact."""

    packages = ("chromadb",)

    def __init__(self) -> None:
        import chromadb

        self.client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))

    def build(self, matrix: np.ndarray) -> None:
        """In batches as large as it takes."""
        self.collection = self.client.create_collection(
            "vectors", configuration={"hnsw": {"space": "cosine"}}
        )
        size = self.client.get_max_batch_size()
        for start in range(0, len(matrix), size):
            rows = matrix[start : start + size]
            self.collection.add(ids=[str(start + row) for row in range(len(rows))], embeddings=rows)

    def search(self, job: int) -> list[int]:
        """Rows that are nearly the best."""
        found = self.collection.query(
            query_embeddings=self.queries[job : job + 1], n_results=TOPK, include=[]
        )
        return [int(key) for key in found["ids"][0]]

    def search_batch(self, jobs: list[int]) -> list[list[int]]:
        """The same for many queries."""
        found = self.collection.query(
            query_embeddings=self.queries[jobs], n_results=TOPK, include=[]
        )
        return [[int(key) for key in own] for own in found["ids"]]


class SqliteVec(Engine):
    """sqlite-vec in memory, through apsw: Python's own sqlite3 may not load extensions."""

    packages = ("sqlite-vec", "apsw")

    def __init__(self) -> None:
        import apsw
        import sqlite_vec

        self.connection: Any = apsw.Connection(":memory:")
        self.connection.enable_load_extension(True)
        self.connection.load_extension(sqlite_vec.loadable_path())

    def build(self, matrix: np.ndarray) -> None:
        """A virtual table."""
        create = f"CREATE VIRTUAL TABLE node USING vec0(vector float[{matrix.shape[1]}] distance_metric=cosine)"
        self.connection.execute(create)
        with self.connection:
            rows = ((row, vector.tobytes()) for row, vector in enumerate(matrix))
            self.connection.executemany("INSERT INTO node(rowid, vector) VALUES (?, ?)", rows)

    def search(self, job: int) -> list[int]:
        """The best rows."""
        select = "SELECT rowid FROM node WHERE vector MATCH ? AND k = ?"
        return [
            row for (row,) in self.connection.execute(select, (self.queries[job].tobytes(), TOPK))
        ]
