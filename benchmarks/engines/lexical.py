"""Lexical engines, all given the same terms; each class imports its package when it is made."""

from __future__ import annotations

import ctypes
import gc
import importlib.metadata
import platform
import sqlite3
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

TOPK = 10
BUCKETS = 10  # a filter for one of them lets a tenth through
ROWS_PER_FILE = 100


def version_of(*packages: str) -> dict[str, str]:
    """Versions of packages, and of Python."""
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def resident_mb() -> float:
    """Memory that this process holds, after what is free went back."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def read_terms(path: str) -> list[list[str]]:
    """The terms of each node."""
    with np.load(path) as arrays:
        vocabulary = np.array(arrays["vocabulary"].tobytes().decode().split("\n"), object)
        flat = vocabulary[arrays["ids"]].tolist()
        starts = arrays["starts"].tolist()
    return [flat[start:end] for start, end in pairwise(starts)]


class Engine:
    """An index over nodes' terms. A node's key is its number."""

    packages: tuple[str, ...] = ()

    def versions(self) -> dict[str, str]:
        """Of what it runs."""
        return version_of(*self.packages)

    def load(self, path: str) -> dict[str, float]:
        """Build the index; seconds of that alone, and what it holds beyond an empty process."""
        before = resident_mb()
        terms = read_terms(path)
        started = time.perf_counter()
        self.build(terms)
        seconds = time.perf_counter() - started
        del terms
        return {"build_s": seconds, "memory_mb": resident_mb() - before}

    def build(self, terms: list[list[str]]) -> None:
        """The index over some nodes."""
        raise NotImplementedError

    def search(self, query: list[str]) -> Any:
        """The best nodes."""
        raise NotImplementedError

    def scores(self, query: list[str]) -> np.ndarray:
        """The scores of all nodes; only of those that judge others."""
        raise NotImplementedError

    def judge(
        self, queries: list[list[str]], rows: list[list[int]]
    ) -> list[tuple[list[float], list[float]]]:
        """For each query the best scores above 0, and the scores of some rows."""
        judged = []
        for query, own in zip(queries, rows, strict=True):
            scores = np.asarray(self.scores(query), np.float64)
            best = np.sort(scores[scores > 0])[::-1][:TOPK]
            judged.append((best.tolist(), scores[own].tolist()))
        return judged


class Lazyrag(Engine):
    """Ours, at the index level."""

    def __init__(self) -> None:
        import lazyrag.indexes.bm25 as models
        from lazyrag import __version__
        from lazyrag.data.filters import Condition
        from lazyrag.indexes.bm25 import LexicalIndex

        self.version = __version__
        self.index = LexicalIndex()
        self.models = {variant: models.BM25(variant=variant) for variant in ("lucene", "okapi")}
        self.filter = Condition("bucket", "eq", 3)

    def versions(self) -> dict[str, str]:
        """Of numpy as well, which does the work."""
        return {**version_of("numpy"), "lazyrag": self.version}

    def build(self, terms: list[list[str]]) -> None:
        """The rows of one file share their fields, as in a Document."""
        files = -(-len(terms) // ROWS_PER_FILE)
        of_file = [{"bucket": number % BUCKETS} for number in range(files)]
        keys = [f"{number:08d}" for number in range(len(terms))]
        self.index.add(
            keys, terms, [of_file[number // ROWS_PER_FILE] for number in range(len(terms))]
        )

    def search(self, query: list[str]) -> Any:
        """The best nodes."""
        return self.index.state.search(query, TOPK)

    def search_filtered(self, query: list[str]) -> Any:
        """The best of a tenth of the nodes."""
        return self.index.state.search(query, TOPK, filter=self.filter)

    def answers(self, queries: list[list[str]], variant: str) -> list[list[tuple[int, float]]]:
        """Row and score of the best nodes of each query."""
        model = self.models[variant]
        found = [self.index.state.search(query, TOPK, model=model) for query in queries]
        return [[(int(key), score) for key, score in ranking] for ranking in found]

    def change(self, path: str, turns: int) -> dict[str, list[float]]:
        """Seconds to add 100 nodes, of the first query after it, and to delete them, some times."""
        with np.load(path) as arrays:
            vocabulary = arrays["vocabulary"].tobytes().decode().split("\n")
            starts, ids = arrays["starts"], arrays["ids"]
            terms = [
                [vocabulary[at] for at in ids[starts[n] : starts[n + 1]]]
                for n in range(100 * turns)
            ]
        seconds: dict[str, list[float]] = {"add": [], "first": [], "delete": []}
        for turn in range(turns):
            keys = [f"new{turn}-{number}" for number in range(100)]
            steps = {
                "add": lambda keys=keys, turn=turn: self.index.add(
                    keys, terms[100 * turn : 100 * turn + 100]
                ),
                "first": lambda turn=turn: self.search(terms[100 * turn][:5]),
                "delete": lambda keys=keys: self.index.delete(keys),
            }
            for name, step in steps.items():
                started = time.perf_counter()
                step()
                seconds[name].append(time.perf_counter() - started)
        return seconds


class Asking:
    """Ours, through `Retriever`: asked in words, it hands out nodes."""

    def versions(self) -> dict[str, str]:
        """As those of the index."""
        return Lazyrag().versions()

    def load(self, folder: str, similarity: str, store: str = "") -> float:
        """Read a folder, a node for each line, into memory or a store file, and answer once;
        seconds.
        """
        from lazyrag import Document, Retriever

        started = time.perf_counter()
        docs = Document(
            folder,
            store_conf={"segment_store": {"type": "map", "kwargs": {"uri": store}}}
            if store
            else None,
        )
        docs.create_node_group("line", transform=lambda text: text.split("\n"))
        self.retriever = Retriever(docs, "line", similarity=similarity, topk=TOPK)
        self.retriever("wing 机翼")
        return time.perf_counter() - started

    def search(self, query: str) -> Any:
        """The best nodes."""
        return self.retriever(query)

    def answers(self, queries: list[str]) -> list[list[tuple[str, str, float]]]:
        """Uid, text and score of the best nodes of each query."""
        return [
            [(node.uid, node.text, node.score) for node in self.retriever(query)]
            for query in queries
        ]


class RankBm25(Engine):
    """rank_bm25's BM25Okapi."""

    packages = ("rank-bm25", "numpy")

    def __init__(self) -> None:
        from rank_bm25 import BM25Okapi

        self.make = BM25Okapi

    def build(self, terms: list[list[str]]) -> None:
        """A dict for each node."""
        self.index = self.make(terms)

    def search(self, query: list[str]) -> Any:
        """The scores alone: sorting them would come on top."""
        return self.index.get_scores(query)

    def scores(self, query: list[str]) -> np.ndarray:
        """Of all nodes."""
        return np.asarray(self.index.get_scores(query))


class Bm25s(Engine):
    """bm25s, its lucene method, on numpy."""

    packages = ("bm25s", "numpy")
    backend = "numpy"

    def __init__(self) -> None:
        import bm25s

        self.index = bm25s.BM25(method="lucene", k1=1.5, b=0.75, backend=self.backend)

    def build(self, terms: list[list[str]]) -> None:
        """Scores of all postings, in advance."""
        self.index.index(terms, show_progress=False)

    def search(self, query: list[str]) -> Any:
        """The best nodes."""
        return self.index.retrieve([query], k=TOPK, show_progress=False, n_threads=0)

    def scores(self, query: list[str]) -> np.ndarray:
        """Of all nodes."""
        return np.asarray(self.index.get_scores(query))


class Bm25sNumba(Bm25s):
    """bm25s, its lucene method, compiled by numba."""

    packages = ("bm25s", "numba", "numpy")
    backend = "numba"

    def __init__(self) -> None:
        import numba  # noqa: F401  bm25s would go on without it

        super().__init__()

    def build(self, terms: list[list[str]]) -> None:
        """As above, and compile."""
        super().build(terms)
        self.index.activate_numba_scorer()


class Tantivy(Engine):
    """tantivy in memory: k1 1.2, lengths in one byte."""

    packages = ("tantivy",)

    def __init__(self) -> None:
        import tantivy

        self.module = tantivy

    def build(self, terms: list[list[str]]) -> None:
        """One segment."""
        module = self.module
        builder = module.SchemaBuilder()
        builder.add_text_field("terms", tokenizer_name="whitespace", index_option="freq")
        builder.add_unsigned_field("row", stored=True)
        self.schema = builder.build()
        index = module.Index(self.schema)
        writer = index.writer(heap_size=512_000_000, num_threads=1)
        for row, own in enumerate(terms):
            writer.add_document(module.Document(terms=" ".join(own), row=row))
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        self.searcher = index.searcher()

    def search(self, query: list[str]) -> Any:
        """The best nodes."""
        module = self.module
        clauses = [
            (module.Occur.Should, module.Query.term_query(self.schema, "terms", term))
            for term in query
        ]
        return self.searcher.search(module.Query.boolean_query(clauses), TOPK, count=False).hits


class Fts5(Engine):
    """SQLite's FTS5 in memory: k1 1.2."""

    def versions(self) -> dict[str, str]:
        """Of SQLite."""
        return {**version_of(), "sqlite": sqlite3.sqlite_version}

    def build(self, terms: list[list[str]]) -> None:
        """A table without its texts."""
        self.connection = sqlite3.connect(":memory:")
        self.connection.execute(
            "CREATE VIRTUAL TABLE node USING fts5(terms, content='', tokenize='unicode61')"
        )
        rows = ((row, " ".join(own)) for row, own in enumerate(terms))
        self.connection.executemany("INSERT INTO node(rowid, terms) VALUES (?, ?)", rows)
        self.connection.execute("INSERT INTO node(node) VALUES ('optimize')")
        self.connection.commit()

    def search(self, query: list[str]) -> Any:
        """The best nodes."""
        any_of = " OR ".join('"' + term.replace('"', '""') + '"' for term in query)
        select = "SELECT rowid, rank FROM node WHERE node MATCH ? ORDER BY rank LIMIT ?"
        return self.connection.execute(select, (any_of, TOPK)).fetchall()
