"""Which texts are embedded again after a change: lazyrag beside the indexing of LangChain and LlamaIndex.

    python benchmarks/incremental.py [--files 200] [--repeats 3] [--only lazyrag langchain llama_index]

Each step runs in a process of its own: it opens what the step before stored, brings it in step with the folder, stores
it and ends. Counted are the texts that the embedding model got, and the processor seconds without imports; "right"
is whether exactly the chunks of the folder are stored afterwards. Chunks are the paragraphs of a file; the parameter is
their greatest length, which a tenth of them exceed. LangChain has `index` with a SQL record manager and cleanup
"full", LlamaIndex an ingestion pipeline with a docstore that upserts and deletes, and a cache; both have their vector
store in memory, saved as a file. The kill comes after half of the texts of a first build.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from engine import ENVIRONMENTS

SYSTEMS = ("lazyrag", "langchain", "llama_index")
PARAGRAPHS, SHORT, LONG = 20, 400, 600


class Model:
    """An embedding model that costs next to nothing, and counts; it may end the program like a kill."""

    def __init__(self, name: str, kill_after: int = 0) -> None:
        self.identity, self.kill_after, self.texts = name, kill_after, 0

    def embed(self, texts: list[str]) -> list[list[float]]:
        """A vector for each text."""
        self.texts += len(texts)
        if self.kill_after and self.texts > self.kill_after:
            os._exit(9)
        return [
            [byte / 255 + 0.01 for byte in hashlib.sha256((self.identity + one).encode()).digest()] for one in texts
        ]


def pieces(text: str, longest: int) -> list[str]:
    """The paragraphs of a text, those that are too long in parts."""
    return [one[at : at + longest] for one in text.split("\n\n") if one for at in range(0, len(one), longest)]


def texts_of(folder: Path) -> dict[str, str]:
    """The files by name."""
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in sorted(folder.rglob("*.txt"))}


def run_lazyrag(folder: Path, store: Path, model: Model, longest: int) -> list[str]:
    """A Document on a store file."""
    from lazyrag import Document

    def paragraphs(text: str) -> list[str]:
        return pieces(text, longest)

    def embed(texts: list[str]) -> list[list[float]]:
        return model.embed(texts)

    embed.identity, embed.batch_size = model.identity, 100
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(store / "store.db")}}}
    with Document(folder, embed={"key": embed}, store_conf=conf) as docs:
        docs.create_node_group("paragraph", transform=paragraphs)
        docs.activate_group("paragraph", embed_keys=["key"])
        docs.sync()
        return [node.text for node in docs.get_nodes("paragraph")]


def run_langchain(folder: Path, store: Path, model: Model, longest: int) -> list[str]:
    """Its indexing API."""
    from langchain_classic.indexes import SQLRecordManager
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.indexing import index
    from langchain_core.vectorstores import InMemoryVectorStore

    class Embedding(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return model.embed(texts)

        def embed_query(self, text: str) -> list[float]:
            return model.embed([text])[0]

    file = store / "vectors.json"
    vectors = InMemoryVectorStore.load(str(file), Embedding()) if file.exists() else InMemoryVectorStore(Embedding())
    # As its documentation advises: a namespace for each embedding model.
    records = SQLRecordManager(f"memory/{model.identity}", db_url=f"sqlite:///{store}/records.db")
    records.create_schema()
    if not records.list_keys():
        vectors = InMemoryVectorStore(Embedding())
    documents = [
        Document(page_content=piece, metadata={"source": name})
        for name, text in texts_of(folder).items()
        for piece in pieces(text, longest)
    ]
    index(documents, records, vectors, cleanup="full", source_id_key="source", key_encoder="sha256")
    vectors.dump(str(file))
    return [row["text"] for row in vectors.store.values()]


def run_llama_index(folder: Path, store: Path, model: Model, longest: int) -> list[str]:
    """Its ingestion pipeline."""
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
            return [one for node in nodes for one in build_nodes_from_splits(pieces(node.text, self.longest), node)]

    class Embedding(BaseEmbedding):
        def _get_text_embedding(self, text):
            return model.embed([text])[0]

        def _get_text_embeddings(self, texts):
            return model.embed(texts)

        _get_query_embedding = _get_text_embedding

        async def _aget_query_embedding(self, query):
            return model.embed([query])[0]

    saved = store / "docstore.json"
    pipeline = IngestionPipeline(
        transformations=[Paragraphs(longest=longest), Embedding(model_name=model.identity)],
        docstore=SimpleDocumentStore.from_persist_path(str(saved)) if saved.exists() else SimpleDocumentStore(),
        vector_store=SimpleVectorStore.from_persist_path(str(store / "vectors.json"))
        if saved.exists()
        else SimpleVectorStore(),
        docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE,
        cache=IngestionCache.from_persist_path(str(store / "cache.json")) if saved.exists() else IngestionCache(),
    )
    documents = [Document(text=text, id_=name) for name, text in texts_of(folder).items()]
    pipeline.run(documents=documents)
    pipeline.docstore.persist(str(saved))
    pipeline.vector_store.persist(str(store / "vectors.json"))
    pipeline.cache.persist(str(store / "cache.json"))
    owners = pipeline.vector_store.data.text_id_to_ref_doc_id
    # The store has no texts: what it has is known by its documents and the number of their chunks.
    texts = texts_of(folder)
    count = {name: sum(owner == name for owner in owners.values()) for name in {*owners.values()}}
    return [
        piece
        for name, number in count.items()
        for piece in (
            pieces(texts[name], longest)
            if name in texts and len(pieces(texts[name], longest)) == number
            else ["?"] * number
        )
    ]


RUNS: dict[str, Callable[[Path, Path, Model, int], list[str]]] = {
    "lazyrag": run_lazyrag,
    "langchain": run_langchain,
    "llama_index": run_llama_index,
}


def one_step(system: str, folder: str, store: str, model: str, longest: int, kill_after: int) -> None:
    """Bring what is stored in step; prints figures."""
    counted = Model(model, kill_after)
    run = RUNS[system]
    with tempfile.TemporaryDirectory() as empty:  # imports
        (Path(empty) / "files").mkdir()
        (Path(empty) / "files" / "a.txt").write_text("one", encoding="utf-8")
        run(Path(empty) / "files", Path(empty), Model("warm"), longest)
    began = time.process_time()
    stored = run(Path(folder), Path(store), counted, longest)
    seconds = time.process_time() - began
    expected = [piece for text in texts_of(Path(folder)).values() for piece in pieces(text, longest)]
    print(json.dumps({"texts": counted.texts, "cpu": seconds, "right": sorted(stored) == sorted(expected)}))


def paragraph(rng: random.Random) -> str:
    """Words without meaning, a tenth of the paragraphs long."""
    words = " ".join("".join(rng.choices("abcdefghij", k=5)) for _ in range(90 if rng.random() < 0.1 else 40))
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
        path.write_text("\n\n".join([others[0], first + " Changed.", *others[1:]]), encoding="utf-8")


def steps_of(folder: Path) -> list[tuple[str, Callable[[], object], str, int]]:
    """Each step: its name, what changes before, the model, the longest chunk."""
    return [
        ("first build", lambda: None, "model a", SHORT),
        ("no change", lambda: None, "model a", SHORT),
        ("one chunk", lambda: edit(folder, 1), "model a", SHORT),
        ("20 files", lambda: edit(folder, 20), "model a", SHORT),
        (
            "20 files moved",
            lambda: [(folder / f"part{n}").rename(folder / f"moved{n}") for n in (0, 1)],
            "model a",
            SHORT,
        ),
        ("parameter", lambda: None, "model a", LONG),
        ("model", lambda: None, "model b", LONG),
    ]


def measure(system: str, files: int) -> dict[str, dict[str, float]]:
    """All steps of a system, from nothing."""
    python = sys.executable if system == "lazyrag" else str(ENVIRONMENTS / "peers-incremental" / "bin" / "python")
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder, store = Path(name, "files"), Path(name, "store")

        def step(model: str, longest: int, kill_after: int = 0) -> dict[str, float]:
            given = (system, folder, store, model, longest, kill_after)
            done = subprocess.run(
                [python, __file__, "--step", *map(str, given)], check=False, capture_output=True, text=True
            )
            if kill_after and done.returncode == 9:
                return {}
            if done.returncode:
                sys.exit(f"{system}: {done.stderr[-3000:]}")
            return dict(json.loads(done.stdout.splitlines()[-1]))

        fill(folder, files)
        store.mkdir()
        for title, change, model, longest in steps_of(folder):
            change()
            found[title] = step(model, longest)
        shutil.rmtree(store)
        store.mkdir()
        step("model a", SHORT, kill_after=files * PARAGRAPHS // 2)
        found["after a kill at half"] = step("model a", SHORT)
    return found


def main() -> None:
    """Print a table, as docs/performance.md has it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--step", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        system, folder, store, model, longest, kill_after = options.step
        one_step(system, folder, store, model, int(longest), int(kill_after))
        return
    runs = {system: [measure(system, options.files) for _ in range(options.repeats)] for system in options.only}
    print("| step | " + " | ".join(options.only) + " |\n|---|" + "---:|" * len(options.only))
    for title in runs[options.only[0]][0]:
        cells = []
        for system in options.only:
            rows = [run[title] for run in runs[system]]
            cpu = statistics.median(row["cpu"] for row in rows)
            wrong = "" if all(row["right"] for row in rows) else ", **stale**"
            cells.append(f"{max(row['texts'] for row in rows):,} texts, {cpu:.2f} s{wrong}")
        print(f"| {title} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
