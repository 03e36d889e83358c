"""What turns a folder of text files into chunks of two sizes and sentences: ours and peers, each in
its own way.

A `run` is timed whole and by its steps, without imports. Sizes are 3,072 and 384 characters for the
chunks, or as many words or tokens as come near it; a tenth of overlap.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.metadata
import itertools
import os
import platform
import re
import resource
import sqlite3
import sys
import time
from array import array
from pathlib import Path
from typing import Any

COARSE, FINE = (3072, 300), (384, 36)  # characters, of overlap
WORD, TOKEN = 6, 4  # characters in one, nearly
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")


def sentences(text: str) -> list[str]:
    """A plain splitter, for those who bring none."""
    return [piece for piece in SENTENCE_END.split(text) if piece]


class Steps:
    """Seconds of the steps of a run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def done(self, name: str) -> None:
        """A step has ended."""
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now


class Engine:
    """One way to ingest."""

    packages: tuple[str, ...] = ()
    keeps = ""
    durable = False

    def versions(self) -> dict[str, str]:
        """Of what it runs."""
        packages = {name: importlib.metadata.version(name) for name in self.packages}
        return {"python": platform.python_version(), **packages}

    def measure(self, folder: str, out: str) -> dict[str, Any]:
        """Ingest a folder, keep it in another; seconds, nodes and peak memory of this process."""
        before = peak_mb()
        cpu = time.process_time()
        steps = Steps()
        nodes = self.run(folder, out, steps)
        stored = sum(path.stat().st_size for path in Path(out).rglob("*") if path.is_file())
        return {
            "seconds": sum(steps.seconds.values()),
            "cpu_s": time.process_time() - cpu,
            "steps": steps.seconds,
            "nodes": sum(nodes.values()),
            "groups": nodes,
            "peak_mb": peak_mb(),
            "imports_mb": before,
            "stored_mb": stored / 1e6,
            "keeps": self.keeps,
            "durable": self.durable,
        }

    def run(self, folder: str, out: str, steps: Steps) -> dict[str, int]:
        """The number of nodes of each group."""
        raise NotImplementedError


def peak_mb() -> float:
    """Of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage begins with what the parent had
        return int(status.read_text(encoding="utf-8").partition("VmHWM:")[2].split()[0]) / 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


class Lazyrag(Engine):
    """`Document` on a store file."""

    keeps = "texts, tree, spans, metadata in SQLite; restarts"
    durable = True
    indexed = False

    def __init__(self) -> None:
        from lazyrag import Document, Retriever, __version__
        from lazyrag.text.sentences import sentence_spans

        self.document, self.retriever, self.version, self.spans = (
            Document,
            Retriever,
            __version__,
            sentence_spans,
        )

    def versions(self) -> dict[str, str]:
        """Of the checkout."""
        return {**super().versions(), "lazyrag": self.version}

    def run(self, folder: str, out: str, steps: Steps) -> dict[str, int]:
        """One transaction for each batch of documents."""
        conf = {"segment_store": {"type": "map", "kwargs": {"uri": f"{out}/store.db"}}}
        spans = self.spans
        groups = ("CoarseChunk", "FineChunk", "sentence")
        with self.document(folder, store_conf=conf) as docs:
            docs.create_node_group(
                "sentence", transform=lambda text: [text[start:end] for start, end in spans(text)]
            )
            docs.sync()
            steps.done("read")
            for group in groups:
                docs.activate_group(group)
                steps.done(group)
            if self.indexed:
                self.retriever(docs, "FineChunk", similarity="bm25")("wing")
                steps.done("BM25 index")
            counts = {group.name: group.nodes for group in docs.status().groups}
        steps.done("close")
        return {name: counts[name] for name in groups}


class LazyragIndexed(Lazyrag):
    """The same, and a BM25 index of FineChunk."""

    keeps = "the same and a BM25 index of FineChunk"
    indexed = True


class LazyragFirst(Lazyrag):
    """One group of 256 tokens and its BM25 index, as the first query of a new program makes
    them.
    """

    keeps = "one group and its BM25 index; restarts"

    def run(self, folder: str, out: str, steps: Steps) -> dict[str, int]:
        """One query."""
        conf = {"segment_store": {"type": "map", "kwargs": {"uri": f"{out}/store.db"}}}
        is_chinese = "。" in next(Path(folder).iterdir()).read_text(encoding="utf-8")
        similarity, query = ("bm25_chinese", "城市") if is_chinese else ("bm25", "wing")
        with self.document(folder, store_conf=conf) as docs:
            self.retriever(docs, "MediumChunk", similarity=similarity)(query)
            steps.done("first answer")
            counts = {group.name: group.nodes for group in docs.status().groups}
        steps.done("close")
        return {"MediumChunk": counts["MediumChunk"]}


class Floor(Engine):
    """The same work without a library: read, hash, split, rows in SQLite, postings, one BM25
    answer.
    """

    packages = ("PyStemmer", "rjieba", "numpy")
    keeps = "texts, chunks with spans and postings in SQLite, written by hand"
    durable = True
    part = re.compile(r"[^.!?。！？\n]*[.!?。！？\n]+\s*|[^.!?。！？\n]+\Z")
    run_of_one_kind = re.compile(r"[\u4e00-\u9fff]+|[a-z0-9]+")

    def __init__(self) -> None:
        import numpy as np
        import rjieba
        import Stemmer

        self.numpy, self.cut = np, rjieba.Jieba().cut
        self.stem = functools.cache(Stemmer.Stemmer("english", 0).stemWord)

    def terms(self, text: str) -> list[str]:
        """Stems; of Chinese characters, pairs and words."""
        found: list[str] = []
        for run in self.run_of_one_kind.findall(text.lower()):
            if run.isascii():
                found.append(self.stem(run))
            else:
                found += [*run, *map("".join, itertools.pairwise(run))]
                found += [word for word in self.cut(run) if len(word) > 2]
        return found

    def split(self, text: str, size: int) -> list[tuple[int, int]]:
        """As many sentences as fit, and those in the last tenth once more."""
        ends = [match.end() for match in self.part.finditer(text)]
        spans, start, at = [], 0, 0
        while at < len(ends):
            last = at
            while last + 1 < len(ends) and ends[last + 1] - start <= size:
                last += 1
            spans.append((start, ends[last]))
            at, back = last + 1, last
            while back > 0 and ends[last] - ends[back - 1] <= size // 10 and ends[back - 1] > start:
                back -= 1
            start = ends[back]
        return spans

    def run(self, folder: str, out: str, steps: Steps) -> dict[str, int]:
        """A transaction for every 256 files, as ours."""
        np, files = self.numpy, sorted(Path(folder).iterdir())
        is_chinese = "。" in files[0].read_text(encoding="utf-8")
        size = 300 if is_chinese else 1_150  # so that it makes as many chunks as ours
        db = sqlite3.connect(f"{out}/by_hand.db")
        db.executescript(
            "PRAGMA journal_mode = WAL; CREATE TABLE file (path PRIMARY KEY, hash, text);"
            "CREATE TABLE chunk (id PRIMARY KEY, path, start, stop, text); CREATE TABLE term (term PRIMARY KEY, rows);"
        )
        postings: dict[str, array[int]] = {}
        keys: list[str] = []
        lengths: list[int] = []
        for at in range(0, len(files), 256):
            rows, chunks = [], []
            for path in files[at : at + 256]:
                data = path.read_bytes()
                text = data.decode()
                rows.append((path.name, hashlib.blake2b(data, digest_size=16).hexdigest(), text))
                for start, end in self.split(text, size):
                    key = hashlib.blake2b(
                        f"{path.name}/{start}".encode(), digest_size=16
                    ).hexdigest()
                    chunks.append((key, path.name, start, end, text[start:end]))
                    found = self.terms(text[start:end])
                    for term in found:
                        postings.setdefault(term, array("i")).append(len(keys))
                    keys.append(key)
                    lengths.append(len(found))
            with db:
                db.executemany("INSERT INTO file VALUES (?, ?, ?)", rows)
                db.executemany("INSERT INTO chunk VALUES (?, ?, ?, ?, ?)", chunks)
        with db:
            db.executemany(
                "INSERT INTO term VALUES (?, ?)",
                ((term, rows.tobytes()) for term, rows in postings.items()),
            )
        scores, sizes = np.zeros(len(keys)), np.array(lengths)
        for term in self.terms("城市" if is_chinese else "wing"):
            rows, counts = np.unique(np.array(postings.get(term, []), np.int32), return_counts=True)
            weight = np.log(1 + (len(keys) - len(rows) + 0.5) / (len(rows) + 0.5))
            scores[rows] += (
                weight * counts * 2.5 / (counts + 1.5 * (0.25 + 0.75 * sizes[rows] / sizes.mean()))
            )
        for row in np.argsort(-scores)[:10].tolist():
            db.execute("SELECT text FROM chunk WHERE id = ?", (keys[row],)).fetchone()
        steps.done("first answer")
        db.close()
        steps.done("close")
        return {"MediumChunk": len(keys)}


class LlamaIndex(Engine):
    """SimpleDirectoryReader, SentenceSplitter, SimpleDocumentStore."""

    packages = ("llama-index-core",)
    keeps = "nodes with relations as one JSON file, at the end"
    durable = True

    def __init__(self) -> None:
        from llama_index.core import SimpleDirectoryReader
        from llama_index.core.node_parser import SentenceSplitter, SentenceWindowNodeParser
        from llama_index.core.storage.docstore import SimpleDocumentStore

        self.reader, self.store = SimpleDirectoryReader, SimpleDocumentStore
        sizes = {"CoarseChunk": COARSE, "FineChunk": FINE}
        self.parsers = {
            name: SentenceSplitter(chunk_size=size // TOKEN, chunk_overlap=overlap // TOKEN)
            for name, (size, overlap) in sizes.items()
        }
        self.parsers["sentence"] = SentenceWindowNodeParser(window_size=1)

    def run(self, folder: str, out: str, steps: Steps) -> dict[str, int]:
        """All in memory, then one file."""
        documents = self.reader(folder).load_data()
        steps.done("read")
        store = self.store()
        counts = {}
        for name, parser in self.parsers.items():
            nodes = parser.get_nodes_from_documents(documents)
            counts[name] = len(nodes)
            store.add_documents(nodes)
            steps.done(name)
        store.persist(f"{out}/docstore.json")
        steps.done("persist")
        return counts


class Haystack(Engine):
    """TextFileToDocument, DocumentSplitter by words and full stops, InMemoryDocumentStore."""

    packages = ("haystack-ai",)
    keeps = "pieces with their places as one JSON file, at the end"
    durable = True

    def __init__(self) -> None:
        from haystack.components.converters import TextFileToDocument
        from haystack.components.preprocessors import DocumentSplitter
        from haystack.document_stores.in_memory import InMemoryDocumentStore

        self.reader, self.splitter, self.store = (
            TextFileToDocument,
            DocumentSplitter,
            InMemoryDocumentStore,
        )

    def run(self, folder: str, out: str, steps: Steps) -> dict[str, int]:
        """All in memory, then one file."""
        documents = self.reader().run(sources=sorted(Path(folder).iterdir()))["documents"]
        steps.done("read")
        ways = {
            "CoarseChunk": {
                "split_by": "word",
                "split_length": COARSE[0] // WORD,
                "split_overlap": COARSE[1] // WORD,
            },
            "FineChunk": {
                "split_by": "word",
                "split_length": FINE[0] // WORD,
                "split_overlap": FINE[1] // WORD,
            },
            "sentence": {"split_by": "period", "split_length": 1},
        }
        counts = {}
        for name, way in ways.items():
            store = self.store()
            splitter = self.splitter(**way)
            nodes = splitter.run(documents=documents)["documents"]
            counts[name] = store.write_documents(nodes, policy=self.overwrite())
            steps.done(name)
            store.save_to_disk(f"{out}/{name}.json")
            steps.done(f"persist {name}")
        return counts

    @staticmethod
    def overwrite() -> Any:
        """Equal pieces have one id here."""
        from haystack.document_stores.types import DuplicatePolicy

        return DuplicatePolicy.OVERWRITE


class HaystackFirst(Haystack):
    """The same reader, one splitter, and its BM25 retriever over the store in memory."""

    keeps = "nothing: one group in memory"
    durable = False

    def run(self, folder: str, out: str, steps: Steps) -> dict[str, int]:
        """One query."""
        from haystack.components.retrievers.in_memory import InMemoryBM25Retriever

        documents = self.reader().run(sources=sorted(Path(folder).iterdir()))["documents"]
        store = self.store()
        words = 1_150 // WORD  # so that it makes as many chunks as ours
        splitter = self.splitter(split_by="word", split_length=words, split_overlap=words // 10)
        nodes = splitter.run(documents=documents)["documents"]
        count = store.write_documents(nodes, policy=self.overwrite())
        InMemoryBM25Retriever(store, top_k=10).run("wing")
        steps.done("first answer")
        return {"MediumChunk": count}


class Langchain(Engine):
    """RecursiveCharacterTextSplitter by characters: it keeps nothing."""

    packages = ("langchain-text-splitters",)
    keeps = "nothing: lists of texts in memory"

    def __init__(self) -> None:
        from langchain_text_splitters import RecursiveCharacterTextSplitter

        self.splitters = {
            name: RecursiveCharacterTextSplitter(chunk_size=size, chunk_overlap=overlap)
            for name, (size, overlap) in {"CoarseChunk": COARSE, "FineChunk": FINE}.items()
        }

    def run(self, folder: str, out: str, steps: Steps) -> dict[str, int]:
        """Texts to texts."""
        documents = {
            path.name: path.read_text(encoding="utf-8") for path in sorted(Path(folder).iterdir())
        }
        steps.done("read")
        counts = {}
        ways = {name: splitter.split_text for name, splitter in self.splitters.items()}
        for name, split in (*ways.items(), ("sentence", sentences)):
            pieces = [(path, piece) for path, text in documents.items() for piece in split(text)]
            counts[name] = len(pieces)
            steps.done(name)
            self.keep(name, pieces, out)
            steps.done(f"persist {name}")
        return counts

    def keep(self, name: str, pieces: list[tuple[str, str]], out: str) -> None:
        """Nowhere."""


class LangchainByHand(Langchain):
    """The same, and what one would write oneself to keep the pieces: rows in SQLite."""

    keeps = "texts and file names, rows in SQLite written by hand"
    durable = True

    def keep(self, name: str, pieces: list[tuple[str, str]], out: str) -> None:
        """A table for each group."""
        with sqlite3.connect(f"{out}/by_hand.db") as connection:
            connection.execute(f"CREATE TABLE {name} (path TEXT, text TEXT)")
            connection.executemany(f"INSERT INTO {name} VALUES (?, ?)", pieces)  # noqa: S608  our own names
        connection.close()


class Lazyllm(Engine):
    """lazyllm's Document with its map store, which lives in memory."""

    packages = ("lazyllm",)
    keeps = "nodes in memory (its durable stores run in processes of their own)"

    def __init__(self) -> None:
        os.environ.setdefault("LAZYLLM_LOG_LEVEL", "WARNING")
        import lazyllm
        import tiktoken

        @functools.cache
        def get_encoding(name: str) -> Any:
            """Its wheel carries gpt2's merges under another name, and asks the network for them all
            the same.
            """
            [path] = Path(lazyllm.__file__).parent.rglob("r50k_base.tiktoken")
            pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
            lines = [line.split() for line in path.read_bytes().splitlines()]
            ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
            special = {"<|endoftext|>": len(ranks)}
            return tiktoken.Encoding(
                name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special
            )

        tiktoken.get_encoding = get_encoding
        from lazyllm import Document

        self.document = Document

    def run(self, folder: str, out: str, steps: Steps) -> dict[str, int]:
        """Whatever it builds when it is first asked."""
        docs = self.document(folder)
        docs.create_node_group(name="sentence", transform=sentences)
        counts = {}
        for name in ("CoarseChunk", "FineChunk", "sentence"):
            docs.activate_groups([name])
            steps.done(f"activate {name}")
        impl = docs._impl
        impl._lazy_init()
        steps.done("build")
        for name in ("CoarseChunk", "FineChunk", "sentence"):
            counts[name] = len(impl.store.get_nodes(group=name))
        return counts
