"""The program that is ended while it copies a Document: to a folder, from a folder, to other stores.

A request stands for a fresh start of the program on a folder; see `tests.forked`.
"""

from __future__ import annotations

import hashlib
import signal
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from lazyrag import Document, Retriever, migrate
from tests.crash.faults import Switch
from tests.forked import serve

# What the product imports where it is needed, which would be anew in every process.
for _name in ("lazyrag.indexes.bm25", "lazyrag.retrieval.similarity", "tqdm"):
    import_module(_name)

PATIENCE_S = 60  # a process that takes longer hangs, and is ended by its alarm
TEXTS = {
    f"{number}.md": f"green tea {number}\nblack tea {number % 3}\n\n绿茶 {number}"
    for number in range(80)
}
"""Their lines are copied in two batches, and their words in four."""


class Letters:
    """A small dense model."""

    identity = "letters/1"
    probe = False

    def __call__(self, text: str) -> list[float]:
        """How often characters of 8 kinds occur."""
        vector = [0.1] * 8
        for character in text:
            vector[ord(character) % 8] += 1.0
        return vector


class Weights:
    """A small sparse model."""

    identity = "weights/1"
    probe = False

    def __call__(self, text: str) -> dict[int, float]:
        """A weight for each kind of character."""
        return {ord(character) % 50: 1.0 + ord(character) % 3 for character in text}


def conf(folder: Path, name: str) -> dict[str, Any]:
    """Nodes in one file and vectors in another one."""
    return {
        part: {"type": "map", "kwargs": {"uri": str(folder / f"{name}-{part}.db")}}
        for part in ("segment_store", "vector_store")
    }


def open_document(folder: Path, name: str) -> Document:
    """The Document in some stores."""
    docs = Document(
        embed={"dense": Letters(), "sparse": Weights()},
        store_conf=conf(folder, name),
        keep_versions=1,
    )
    docs.create_node_group("line", transform=str.splitlines)
    docs.create_node_group("word", transform=str.split, parent="line")
    return docs


def prepare(folder: Path) -> dict[str, Any]:
    """Make the Document that is copied, and an export of it."""
    with open_document(folder, "source") as docs:
        docs.add_texts(TEXTS)
        docs.activate_group("word")
        for key in ("dense", "sparse"):
            Retriever(docs, "line", embed_keys=[key])("tea")
        docs.add_texts({"3.md": "white tea"})
        docs.delete_files(["4.md"])
        docs.maintenance.export(folder / "export")
        return {"nodes": len(docs.get_nodes("line"))}


def copy_to_folder(folder: Path) -> dict[str, Any]:
    """Export; a folder that is there is a complete export."""
    target = folder / "exported"
    with open_document(folder, "source") as docs:
        if not target.exists():
            docs.maintenance.export(target)
    digests = {path.name: hashlib.sha256(path.read_bytes()) for path in target.iterdir()}
    left = [path.name for path in folder.iterdir() if "unfinished" in path.name]
    return {"files": {name: digests[name].hexdigest() for name in sorted(digests)}, "left": left}


def copy_from_folder(folder: Path) -> dict[str, Any]:
    """Import; a Document with documents has been imported."""
    with open_document(folder, "target") as docs:
        if not docs.status().documents:
            docs.maintenance.import_from(folder / "export")
        return describe(docs)


def copy_stores(folder: Path) -> dict[str, Any]:
    """Migrate."""
    migrate(conf(folder, "source"), conf(folder, "target"))
    with open_document(folder, "target") as docs:
        versions = [version.number for version in docs.versions.list("3.md")]
        return {**describe(docs), "versions": versions}


def describe(docs: Document) -> dict[str, Any]:
    """What is live, and what is wrong."""
    problems = [str(problem) for problem in docs.maintenance.verify()]
    return {"dump": list(docs.maintenance.dump()), "problems": problems}


PAIRS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "stores to folder": copy_to_folder,
    "folder to stores": copy_from_folder,
    "stores to stores": copy_stores,
}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run the program on a folder, and end it at a point."""
    signal.alarm(PATIENCE_S)
    folder = Path(request["folder"])
    try:
        if "pair" not in request:
            return prepare(folder)
        switch = Switch(folder, request["point"])
        switch.install(checkpoint_pages=1000)
        return {"copy": PAIRS[request["pair"]](folder), "points": switch.points}
    except BaseException:  # noqa: BLE001  reported to the test
        return {"error": traceback.format_exc()}


if __name__ == "__main__":
    serve(answer)
