"""Every part that needs an extra says which one. Run as a script in an environment without any of
them.

python tests/missing_extras.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import lazyrag
from lazyrag.errors import MissingDependencyError, install_command
from lazyrag.evaluation import Sample
from lazyrag.interop import langchain, llama_index
from lazyrag.loaders import loaders
from lazyrag.read import grep
from lazyrag.server import load
from lazyrag.sources import DatabaseSource
from lazyrag.stores.chroma import ChromaVectorStore
from lazyrag.stores.memory import MapVectorStore
from lazyrag.stores.milvus import MilvusVectorStore
from lazyrag.stores.opensearch import OpenSearchSegmentStore
from lazyrag.stores.protocol import VectorSchema

_URL = "http://localhost:9/v1"


def _document(folder: str, part: str, kind: str, **kwargs: object) -> None:
    """Make a Document on a store, its ledger in a folder."""
    lazyrag.Document(
        name="tea",
        store_conf={part: {"type": kind, "kwargs": kwargs}, "ledger": f"{folder}/ledger.db"},
    )


def _nothing(query: str, filters: object = None, topk: int | None = None) -> list[lazyrag.DocNode]:
    """A retriever that finds nothing."""
    return []


def _search(_: str) -> None:
    """Ask a vector store for an approximate search."""
    store = MapVectorStore()
    store.create("c", VectorSchema(2, "cosine", {}))
    store.search_approximately("c", np.ones((1, 2), np.float32), 1)


CASES = {
    "index='ann' of the map store": (_search, "ann"),
    "the chromadb store": (lambda folder: ChromaVectorStore(dir=folder).open(), "chroma"),
    "MilvusVectorStore": (
        lambda folder: MilvusVectorStore(f"{folder}/vectors.db").open(),
        "milvus",
    ),
    "a Document on chromadb": (
        lambda folder: _document(folder, "vector_store", "chromadb", dir=folder),
        "chroma",
    ),
    "a Document on milvus": (
        lambda folder: _document(folder, "vector_store", "milvus", uri="localhost:9"),
        "milvus",
    ),
    "a Document that serves": (lambda _: lazyrag.Document(manager=True), "server"),
    "lazyrag mcp": (lambda _: load("mcp", "lazyrag mcp"), "mcp"),
    "a Document on opensearch": (
        lambda folder: _document(
            folder, "segment_store", "opensearch", uris="localhost:9", client_kwargs={}
        ),
        "opensearch",
    ),
    "DatabaseSource with a URL": (
        lambda _: DatabaseSource("sqlite://", "SELECT 1 AS id", identity="id"),
        "sql",
    ),
    "A store in PostgreSQL": (
        lambda _: lazyrag.Document(
            store_conf={
                "segment_store": {
                    "type": "postgresql",
                    "kwargs": {"uri": "postgresql://x@127.0.0.1:1/x"},
                }
            }
        ),
        "postgres",
    ),
    "Document.sql": (lambda _: lazyrag.Document().tables.sql("SELECT 1"), "sql"),
    "grep(regex=True)": (lambda _: grep(lazyrag.Document(), "x", regex=True), "sql"),
    "CodeSplitter(language='python')": (
        lambda _: lazyrag.transforms.CodeSplitter(language="python"),
        "code",
    ),
    "loader '.msg'": (lambda _: loaders[".msg"], "office"),
    "The loader of .xls files": (
        lambda folder: loaders[".xls"]().load(Path(folder, "teas.xls")),
        "office",
    ),
    "OnnxEmbedder": (lazyrag.OnnxEmbedder, "onnx"),
    "OnnxCrossEncoder": (lazyrag.models.OnnxCrossEncoder, "onnx"),
    "HttpEmbedder": (lambda _: lazyrag.HttpEmbedder(_URL, "m"), "openai"),
    "Sample.to_ragas": (lambda _: Sample("How hot?").to_ragas(), "ragas"),
    "the store 'opensearch'": (
        lambda _: OpenSearchSegmentStore("localhost:9").open(),
        "opensearch",
    ),
    "HttpChatModel": (lambda _: lazyrag.HttpChatModel(_URL, "m"), "openai"),
    "HttpTranscriber": (lambda _: lazyrag.models.HttpTranscriber(_URL, "m"), "openai"),
    "HttpEntailmentModel": (lambda _: lazyrag.models.HttpEntailmentModel(_URL), "openai"),
    "HttpRerankModel": (lambda _: lazyrag.HttpRerankModel(_URL, "m"), "openai"),
    "lazyrag.interop.langchain": (lambda _: langchain.as_retriever(_nothing), "langchain"),
    "lazyrag.interop.llama_index": (lambda _: llama_index.as_retriever(_nothing), "llama-index"),
    "SentenceTransformerEmbedder": (
        lazyrag.models.SentenceTransformerEmbedder,
        "sentence-transformers",
    ),
    "SentenceTransformerCrossEncoder": (
        lazyrag.models.SentenceTransformerCrossEncoder,
        "sentence-transformers",
    ),
}
"""By name, what needs an extra, as a function of the path of a folder; and the extra."""


def message(name: str, folder: str) -> str:
    """What the error says; "" where there is none."""
    make, _ = CASES[name]
    try:
        make(folder)
    except MissingDependencyError as error:
        return str(error)
    return ""


def main() -> int:
    """Print what each says; 1 if one does not say what to install."""
    wrong = 0
    with tempfile.TemporaryDirectory() as empty:
        for name, (_, extra) in CASES.items():
            said = message(name, empty)
            print(f"{name}: {said}")
            wrong += not said.endswith(f"not installed. Install it with: {install_command(extra)}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
