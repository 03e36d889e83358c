"""Documents in memory and on a store file, with the calls that `compare_commits.py` measures.
Public names only.
"""

from __future__ import annotations

import itertools
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

GROUP = "line"
TOPK = 10
DIMENSION = 64
FILTER = {"tenth": [3]}
BUCKETS = 4096


class BagOfWords:
    """Vectors of texts without a model: the sum of a random direction for each word."""

    identity = "bag of words"
    dimension = DIMENSION
    max_tokens = None
    normalised = False

    def __init__(self) -> None:
        self._directions = (
            np.random.default_rng(0).standard_normal((BUCKETS, DIMENSION)).astype(np.float32)
        )

    def embed(self, texts: Sequence[str], input_type: str = "document") -> list[np.ndarray]:
        """(64,) float32 for each text."""
        rows = [[zlib.crc32(word.encode()) % BUCKETS for word in text.split()] for text in texts]
        return [self._directions[row].sum(axis=0) + np.float32(1e-3) for row in rows]


def tenth(path: Path) -> dict[str, int]:
    """The metadata that filters look at: a tenth of the files each."""
    return {"tenth": int(Path(path).stem) % 10}


class Reading:
    """One side of a comparison: the package that this process imports."""

    def versions(self) -> dict[str, str]:
        """Which package it is."""
        import lazyrag

        return {"lazyrag": lazyrag.__version__, "package": str(Path(lazyrag.__file__).parent)}

    def load(self, dataset: str, few_files: str) -> None:
        """Build a Document in memory and one on a store file over the same files."""
        self._numbers = itertools.count(1_000_000)
        self._temporary = tempfile.TemporaryDirectory()
        self._folder = Path(self._temporary.name)
        self._dataset, self._few_files = Path(dataset), Path(few_files)
        self._file = self.open(self._dataset, self._folder / "store.db")
        self._figures = {
            **self.queries(self.open(self._dataset, None), "memory"),
            **self.queries(self._file, "file"),
        }

    def open(self, dataset: Path, store: Path | None) -> Any:
        """A Document over files, on a store file or in memory."""
        from lazyrag import DataType, DocField, Document

        conf = (
            None
            if store is None
            else {"segment_store": {"type": "map", "kwargs": {"uri": str(store)}}}
        )
        docs = Document(
            dataset,
            embed=BagOfWords(),
            doc_fields={"tenth": DocField(DataType.INT32)},
            file_metadata=tenth,
            store_conf=conf,
        )
        docs.create_node_group(GROUP, transform=str.splitlines)
        return docs

    def queries(self, docs: Any, where: str) -> dict[str, Callable[[str], Any]]:
        """By name, what answers a query."""
        words, vectors, hybrid = self.retrievers(docs)
        restricted_words, _, restricted_hybrid = self.retrievers(docs.restricted(FILTER))
        return {
            f"BM25, {where}": words,
            f"vector, {where}": vectors,
            f"hybrid, {where}": hybrid,
            f"BM25, filter, {where}": lambda query: words(query, filters=FILTER),
            f"vector, filter, {where}": lambda query: vectors(query, filters=FILTER),
            f"hybrid, filter, {where}": lambda query: hybrid(query, filters=FILTER),
            f"BM25, restricted, {where}": restricted_words,
            f"hybrid, restricted, {where}": restricted_hybrid,
            f"hybrid, explain(), {where}": hybrid.explain,
            f"docs.search, {where}": lambda query: docs.search(query, TOPK, group=GROUP),
        }

    def retrievers(self, docs: Any) -> tuple[Any, Any, Any]:
        """Keyword, vector and hybrid search."""
        from lazyrag import HybridRetriever, Retriever

        words, vectors = (
            Retriever(docs, GROUP, similarity, topk=TOPK) for similarity in ("bm25", "cosine")
        )
        return words, vectors, HybridRetriever(vectors, words, topk=TOPK)

    def figures(self) -> list[str]:
        """The names of the queries that can be measured."""
        return list(self._figures)

    def answers(self, figure: str, queries: Sequence[str]) -> list[Any]:
        """What is found: path, number and score of each hit; to compare the two sides."""
        answer = self._figures[figure]
        return [
            [(node.path, node.number, node.score) for node in answer(query)] for query in queries
        ]

    def query(self, figure: str, queries: Sequence[str]) -> list[float]:
        """Seconds of each query, after one that does not count."""
        answer = self._figures[figure]
        answer(queries[0])
        seconds = []
        for query in queries:
            started = time.perf_counter()
            answer(query)
            seconds.append(time.perf_counter() - started)
        return seconds

    def first_query(self, query: str) -> list[float]:
        """Seconds to open the store file and answer once by keywords and vectors."""
        started = time.perf_counter()
        docs = self.open(self._dataset, self._folder / "store.db")
        self.retrievers(docs)[2](query)
        seconds = time.perf_counter() - started
        docs.close()
        return [seconds]

    def add_file(self, text: str) -> list[float]:
        """Seconds to ingest one more .txt into the store file and find it by keywords and
        vectors.
        """
        path = self._dataset / f"{next(self._numbers)}.txt"
        path.write_text(text, encoding="utf-8")
        hybrid = self.retrievers(self._file)[2]
        started = time.perf_counter()
        self._file.add_files([str(path)])
        hybrid(text)
        return [time.perf_counter() - started]

    def ingest(self, query: str) -> list[float]:
        """Seconds to ingest the few files into a new store file, and to answer once by keywords and
        vectors.
        """
        store = self._folder / f"{next(self._numbers)}.db"
        started = time.perf_counter()
        docs = self.open(self._few_files, store)
        self.retrievers(docs)[2](query)
        seconds = time.perf_counter() - started
        docs.close()
        return [seconds]
