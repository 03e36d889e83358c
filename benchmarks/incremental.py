"""Which texts are embedded again after a change: lazyrag beside what others offer for the same.

    python benchmarks/incremental.py [--files 200] [--repeats 3] [--only lazyrag langchain
    llama_index]

Each step runs in a process of its own: it opens what the step before stored, brings it in step with
the folder, stores it and ends. Counted are the texts that the embedding model got, and the
processor seconds, without those of imports and of the check afterwards: "stale" is a store whose
vectors are not those that the model gives for the chunks of the folder. Chunks are the paragraphs
of a file; the parameter is their greatest length, which a tenth of them exceed; the change of the
code changes another tenth. The kill comes after half of the texts of a first build. The systems
take turns at each step.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parent / "build"
PACKAGES = {
    "lazyrag": ["lazyrag"],
    "langchain": ["langchain-core", "langchain-classic", "langchain-chroma", "chromadb"],
    "llama_index": ["llama-index-core"],
    "cocoindex": ["cocoindex"],
    "pathway": ["pathway"],
}
MODULES = {
    "lazyrag": ["lazyrag"],
    "langchain": [
        "langchain_classic.indexes",
        "langchain_core.indexing",
        "langchain_chroma",
        "chromadb",
    ],
    "llama_index": ["llama_index.core.ingestion"],
    "cocoindex": [],  # they start threads, which do not survive a fork
    "pathway": [],
}
PARAGRAPHS, SHORT, LONG, BATCH, KILL, RESULT = 20, 400, 600, 100, 9, "result: "
BEFORE = """
def pieces(text, longest):
    return [one[at : at + longest] for one in text.split("\\n\\n") if one for at in range(0, len(one), longest)]
"""
AFTER = """
def pieces(text, longest):
    found = [one[at : at + longest] for one in text.split("\\n\\n") if one for at in range(0, len(one), longest)]
    return [one.removesuffix(".").capitalize() if one.startswith("a") else one for one in found]
"""
Pieces: TypeAlias = Callable[[str, int], list[str]]
Vectors: TypeAlias = Iterable[Iterable[float]]


class Model:
    """An embedding model that costs next to nothing, and counts; it may end the program like a
    kill.
    """

    def __init__(self, name: str, kill_after: int = 0) -> None:
        self.identity, self.kill_after, self.texts = name, kill_after, 0

    def embed(self, texts: list[str]) -> list[list[float]]:
        """A vector for each text."""
        self.texts += len(texts)
        if self.kill_after and self.texts > self.kill_after:
            os._exit(KILL)
        return [self.vector(one) for one in texts]

    def vector(self, text: str) -> list[float]:
        """It tells the text and the model."""
        return [
            byte / 255 + 0.01 for byte in hashlib.sha256((self.identity + text).encode()).digest()
        ]


def texts_of(folder: Path) -> dict[str, str]:
    """The files by name."""
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in sorted(folder.rglob("*.txt"))
    }


def run_lazyrag(
    folder: Path, store: Path, model: Model, pieces: Pieces, longest: int
) -> Iterator[Vectors]:
    """A Document on a store file."""
    from lazyrag import Document

    def paragraphs(text: str) -> list[str]:
        return pieces(text, longest)

    def embed(texts: list[str]) -> list[list[float]]:
        return model.embed(texts)

    embed.identity, embed.batch_size = model.identity, BATCH
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(store / "store.db")}}}
    with Document(folder, embed={"key": embed}, store_conf=conf) as docs:
        docs.create_node_group("paragraph", transform=paragraphs)
        docs.activate_group("paragraph", embed_keys=["key"])
        docs.sync()
    yield []
    with Document(folder, embed={"key": embed}, store_conf=conf, read_only=True) as docs:
        docs.create_node_group("paragraph", transform=paragraphs)
        yield [node.embedding for node in docs.get_nodes("paragraph")]


def run_langchain(
    folder: Path, store: Path, model: Model, pieces: Pieces, longest: int
) -> Iterator[Vectors]:
    """Its indexing API with cleanup "full", on Chroma and a SQL record manager."""
    from chromadb.config import Settings
    from langchain_chroma import Chroma
    from langchain_classic.indexes import SQLRecordManager
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.indexing import index

    class Embedding(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return model.embed(texts)

        def embed_query(self, text: str) -> list[float]:
            return model.embed([text])[0]

    # As its documentation advises: a namespace for each store and embedding model.
    name = model.identity.replace(" ", "-")
    path = str(store / "chroma")
    settings = Settings(anonymized_telemetry=False, is_persistent=True, persist_directory=path)
    vectors = Chroma(name, Embedding(), persist_directory=path, client_settings=settings)
    records = SQLRecordManager(f"chroma/{name}", db_url=f"sqlite:///{store}/records.db")
    records.create_schema()
    documents = [
        Document(page_content=piece, metadata={"source": file})
        for file, text in texts_of(folder).items()
        for piece in pieces(text, longest)
    ]
    index(
        documents,
        records,
        vectors,
        cleanup="full",
        source_id_key="source",
        key_encoder="sha256",
        batch_size=BATCH,
    )
    yield []
    yield vectors.get(include=["embeddings"])["embeddings"]


def run_llama_index(
    folder: Path, store: Path, model: Model, pieces: Pieces, longest: int
) -> Iterator[Vectors]:
    """Its ingestion pipeline with a cache and a docstore that upserts and deletes, saved at the
    end.
    """
    from llama_index.core import Document
    from llama_index.core.embeddings import BaseEmbedding
    from llama_index.core.ingestion import DocstoreStrategy, IngestionCache, IngestionPipeline
    from llama_index.core.node_parser import NodeParser
    from llama_index.core.node_parser.node_utils import build_nodes_from_splits
    from llama_index.core.storage.docstore import SimpleDocumentStore
    from llama_index.core.vector_stores import SimpleVectorStore

    class Paragraphs(NodeParser):
        longest: int

        def _parse_nodes(self, nodes, show_progress=False, **_):
            return [
                one
                for node in nodes
                for one in build_nodes_from_splits(pieces(node.text, self.longest), node)
            ]

    class Embedding(BaseEmbedding):
        def _get_text_embedding(self, text):
            return model.embed([text])[0]

        def _get_text_embeddings(self, texts):
            return model.embed(texts)

        _get_query_embedding = _get_text_embedding

        async def _aget_query_embedding(self, query):
            return model.embed([query])[0]

    kept, vectors, cache = (
        str(store / f"{name}.json") for name in ("docstore", "vectors", "cache")
    )
    saved = Path(kept).exists()
    pipeline = IngestionPipeline(
        transformations=[
            Paragraphs(longest=longest),
            Embedding(model_name=model.identity, embed_batch_size=BATCH),
        ],
        docstore=SimpleDocumentStore.from_persist_path(kept) if saved else SimpleDocumentStore(),
        vector_store=SimpleVectorStore.from_persist_path(vectors) if saved else SimpleVectorStore(),
        docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE,
        cache=IngestionCache.from_persist_path(cache) if saved else IngestionCache(),
    )
    pipeline.run(
        documents=[Document(text=text, id_=name) for name, text in texts_of(folder).items()]
    )
    pipeline.docstore.persist(kept)
    pipeline.vector_store.persist(vectors)
    pipeline.cache.persist(cache)
    yield []
    yield SimpleVectorStore.from_persist_path(vectors).data.embedding_dict.values()


def run_cocoindex(
    folder: Path, store: Path, model: Model, pieces: Pieces, longest: int
) -> Iterator[Vectors]:
    """An app of version 1: components of files that are memoized, a memoized embedding, rows of
    SQLite.
    """
    import asyncio
    import sqlite3
    from dataclasses import dataclass

    import cocoindex as coco
    from cocoindex.connectors import localfs, sqlite
    from cocoindex.resources.id import IdGenerator

    @dataclass
    class Chunk:
        id: int
        file: str
        text: str
        vector: bytes

    split = coco.fn(pieces)

    @coco.fn.as_async(batching=True, max_batch_size=BATCH, memo=True, deps=model.identity)
    def embed(texts: list[str]) -> list[list[float]]:
        return model.embed(texts)

    @coco.fn(memo=True)
    async def process(file: localfs.File, longest: int, table: sqlite.TableTarget) -> None:
        found, ids = split(await file.read_text(), longest), IdGenerator()
        vectors = await asyncio.gather(*map(embed, found))
        for text, vector in zip(found, vectors, strict=True):
            row = Chunk(
                await ids.next_id(text), str(file.file_path.path), text, json.dumps(vector).encode()
            )
            table.declare_row(row=row)

    @coco.fn
    async def whole(folder: Path, longest: int) -> None:
        schema = await sqlite.TableSchema.from_class(Chunk, primary_key=["id"])
        table = await sqlite.mount_table_target(database, "chunks", schema)
        files = localfs.walk_dir(folder, recursive=True)
        await coco.mount_each(process, files.items(), longest, table)

    database = coco.ContextKey(f"database {store}")
    provider = coco.ContextProvider()
    with sqlite.managed_connection(store / "chunks.db") as connection:
        provider.provide(database, connection)
        environment = coco.Environment(
            coco.Settings(db_path=store / "coco"), context_provider=provider
        )
        coco.App(coco.AppConfig("chunks", environment), whole, folder, longest).update_blocking()
    yield []
    with sqlite3.connect(store / "chunks.db") as rows:
        yield [json.loads(vector) for (vector,) in rows.execute("SELECT vector FROM chunks")]


def run_pathway(
    folder: Path, store: Path, model: Model, pieces: Pieces, longest: int
) -> Iterator[Vectors]:
    """A static pipeline that caches the calls of the embedding on disk and writes all vectors to a
    file.
    """
    import pathway as pw

    pw.internals.parse_graph.G.clear()

    @pw.udf
    def split(text: str) -> list[str]:
        return pieces(text, longest)

    @pw.udf(
        cache_strategy=pw.udfs.DiskCache(name=model.identity.replace(" ", "-")), deterministic=True
    )
    def embed(text: str) -> list[float]:
        return model.embed([text])[0]

    files = pw.io.fs.read(str(folder), format="plaintext_by_file", mode="static")
    chunks = files.select(text=split(pw.this.data)).flatten(pw.this.text)
    pw.io.jsonlines.write(
        chunks.select(pw.this.text, vector=embed(pw.this.text)), str(store / "vectors.jsonl")
    )
    backend = pw.persistence.Backend.filesystem(str(store / "state"))
    pw.run(
        monitoring_level=pw.MonitoringLevel.NONE,
        persistence_config=pw.persistence.Config(
            backend, persistence_mode=pw.PersistenceMode.UDF_CACHING
        ),
    )
    yield []
    yield [
        json.loads(line)["vector"]
        for line in (store / "vectors.jsonl").read_text("utf-8").splitlines()
    ]


RUNS: dict[str, Callable[[Path, Path, Model, Pieces, int], Iterator[Vectors]]] = {
    "lazyrag": run_lazyrag,
    "langchain": run_langchain,
    "llama_index": run_llama_index,
    "cocoindex": run_cocoindex,
    "pathway": run_pathway,
}


def one_step(system: str, root: str, model: str, longest: int, kill_after: int) -> dict[str, Any]:
    """Bring what is stored in step."""
    sys.path.insert(0, f"{root}/code")
    from user_code import pieces

    run, counted, folder = RUNS[system], Model(model, kill_after), Path(root, "files")
    with tempfile.TemporaryDirectory() as empty:  # what else is imported
        (Path(empty) / "files").mkdir()
        (Path(empty) / "files" / "a.txt").write_text("one", encoding="utf-8")
        list(run(Path(empty) / "files", Path(empty), Model("warm"), pieces, longest))
    began = time.process_time()
    work = run(folder, Path(root, "store"), counted, pieces, longest)
    next(work)
    seconds = time.process_time() - began
    stored = next(work)
    expected = [
        counted.vector(piece)
        for text in texts_of(folder).values()
        for piece in pieces(text, longest)
    ]
    return {
        "texts": counted.texts,
        "cpu_s": seconds,
        "right": in_bytes(stored) == in_bytes(expected),
    }


def in_bytes(vectors: Vectors) -> list[bytes]:
    """Vectors that other programs may have rounded, in order."""
    return sorted(
        bytes(min(255, max(0, round((float(one) - 0.01) * 255))) for one in vector)
        for vector in vectors
    )


def installed(system: str) -> dict[str, str]:
    """The versions of its packages.

    Raises:
        PackageNotFoundError: One is not there.
    """
    return {one: version(one) for one in PACKAGES[system]}


def paragraph(rng: random.Random) -> str:
    """Words without meaning, a tenth of the paragraphs long."""
    words = " ".join(
        "".join(rng.choices("abcdefghij", k=5)) for _ in range(90 if rng.random() < 0.1 else 40)
    )
    return f"{words}."


def fill(folder: Path, files: int) -> None:
    """The files, ten in a folder."""
    rng = random.Random(7)
    for number in range(files):
        path = folder / f"part{number // 10}" / f"file{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n\n".join(paragraph(rng) for _ in range(PARAGRAPHS)), encoding="utf-8")


def edit(folder: Path, files: int) -> None:
    """Change one paragraph in each of so many files."""
    for path in sorted(folder.rglob("*.txt"))[:files]:
        first, *others = path.read_text("utf-8").split("\n\n")
        path.write_text(
            "\n\n".join([others[0], first + " Changed.", *others[1:]]), encoding="utf-8"
        )


def moved(folder: Path) -> None:
    """Rename two folders of ten files."""
    for number in (0, 1):
        (folder / f"part{number}").rename(folder / f"moved{number}")


def nothing(_: Path) -> None:
    """Change nothing."""


STEPS: list[tuple[str, Callable[[Path], object], str, str, int]] = [
    ("first build", nothing, BEFORE, "model a", SHORT),
    ("no change", nothing, BEFORE, "model a", SHORT),
    ("one chunk", lambda files: edit(files, 1), BEFORE, "model a", SHORT),
    ("a chunk in each of 20 files", lambda files: edit(files, 20), BEFORE, "model a", SHORT),
    ("20 files moved", moved, BEFORE, "model a", SHORT),
    ("parameter of the transform", nothing, BEFORE, "model a", LONG),
    ("code of the transform", nothing, AFTER, "model a", LONG),
    ("embedding model", nothing, AFTER, "model b", LONG),
]
"""The name, what changes before, the user's code, the model, the longest chunk."""
KILLED = "after a kill at half"


def python_of(system: str) -> str:
    """Its interpreter: ours where its environment is not installed, which then says what it
    lacks.
    """
    python = (
        ENVIRONMENTS
        / ("peers-pathway" if system == "pathway" else "peers-incremental")
        / "bin"
        / "python"
    )
    return str(python) if system != "lazyrag" and python.exists() else sys.executable


class Steps:
    """Runs steps of a system, each in a process of its own; one process before imports the packages
    for all of them.
    """

    def __init__(self, system: str) -> None:
        self.system = system
        # CocoIndex and Chroma send usage data else.
        quiet = {"COCOINDEX_DISABLE_USAGE_TRACKING": "1", "ANONYMIZED_TELEMETRY": "False"}
        self.process = subprocess.Popen(
            [python_of(system), "-B", __file__, "--serve", system],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **quiet},
        )

    def __call__(
        self, root: Path, code: str, model: str, longest: int, kill_after: int = 0
    ) -> dict[str, Any]:
        """The figures of one step; {} if it was killed."""
        (root / "code").mkdir(exist_ok=True)
        (root / "code" / "user_code.py").write_text(code, encoding="utf-8")
        print(
            json.dumps([str(root), model, longest, kill_after]), file=self.process.stdin, flush=True
        )
        while line := self.process.stdout.readline():
            if line.startswith(RESULT):
                found = json.loads(line.removeprefix(RESULT))
                if found.get("status", 0) != KILL * bool(kill_after):
                    break
                return found
        sys.exit(f"{self.system} failed.")


def serve(system: str) -> None:
    """Take steps from the standard input."""
    for module in MODULES[system]:
        importlib.import_module(module)
    for line in sys.stdin:
        if child := os.fork():
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if status:
                print(RESULT + json.dumps({"status": status}), flush=True)
            continue
        print(RESULT + json.dumps(one_step(system, *json.loads(line))), flush=True)
        return


def measure(systems: Iterable[Steps], files: int) -> dict[tuple[str, str], dict[str, Any]]:
    """All steps of all systems, from nothing."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        roots = {system: Path(name, system.system) for system in systems}
        for root in roots.values():
            fill(root / "files", files)
            (root / "store").mkdir()
        for title, change, code, model, longest in STEPS:
            for system, root in roots.items():
                change(root / "files")
                found[title, system.system] = system(root, code, model, longest)
        for system, root in roots.items():
            shutil.rmtree(root / "store")
            (root / "store").mkdir()
            system(root, BEFORE, "model a", SHORT, kill_after=files * PARAGRAPHS // 2)
            found[KILLED, system.system] = system(root, BEFORE, "model a", SHORT)
    return found


def main() -> None:
    """Print a table and save it for benchmarks/report.py."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--versions", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    if options.versions:
        print(json.dumps(installed(options.versions)))
        return
    import results  # not in the environment of the peers, which has no numpy

    versions, left_out = {}, {}
    for system in options.only:
        command = [python_of(system), __file__, "--versions", system]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            left_out[system] = done.stderr.strip().splitlines()[-1]
        else:
            versions[system] = json.loads(done.stdout)
    systems = [Steps(system) for system in versions]
    repeats: list[dict[tuple[str, str], dict[str, Any]]] = []
    for _ in range(options.repeats):
        repeats.append(measure(systems, options.files))
        rows = list(map(row_of, repeats[0], [[one[key] for one in repeats] for key in repeats[0]]))
        facts = {"files": options.files, "chunks": rows[0]["texts"], "repeats": len(repeats)}
        # a stopped run keeps them
        results.save("incremental", rows, versions=versions, left_out=left_out, **facts)
    print(results.table(rows, list(rows[0])))


def row_of(key: tuple[str, str], repeats: list[dict[str, Any]]) -> dict[str, Any]:
    """A step of a system over the repeats."""
    seconds = sorted(one["cpu_s"] for one in repeats)
    return {
        "step": key[0],
        "engine": key[1],
        "texts": max(one["texts"] for one in repeats),
        "cpu_s": statistics.median(seconds),
        "least_cpu_s": seconds[0],
        "most_cpu_s": seconds[-1],
        "right": all(one["right"] for one in repeats),
    }


if __name__ == "__main__":
    main()
