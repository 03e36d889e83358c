"""Kills at random instants: a program is ended by SIGKILL again and again, and the next start has
to go on by itself.

    python -m tests.crash.kills --store chroma --kills 100

Stores: map; postgres, all of it in the database at LAZYRAG_POSTGRES; chroma, milvus (Milvus Lite),
the vectors of the last two beside a store file of the nodes and the ledger; they need the
environment of tests/live. A kill is survived if the next start, which syncs, gives the answers of a
program that was never killed (in PostgreSQL its nodes and vectors, too, byte by byte), and verify()
finds nothing, without a step by hand.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lazyrag import Document
from lazyrag.document import open as opening
from lazyrag.errors import IngestionWarning
from lazyrag.ingest import engine as ingest
from lazyrag.ingest import term_index
from lazyrag.stores import sqlite as store_file
from lazyrag.stores import sqlite_vectors
from tests.crash.scenario import (
    LINES,
    PATIENCE_S,
    QUESTIONS,
    Embedder,
    _set,
    ask,
    pieces,
    write_files,
)
from tests.forked import Starter, serve

_STATES = ("first", "edited")
_HNSW = {"sync_threshold": 20, "batch_size": 5}  # Chroma writes its graph often
_PACKAGES = {
    "map": "lazyrag",
    "postgres": "sqlalchemy",
    "chroma": "chromadb",
    "milvus": "milvus_lite",
}


def _nodes(request: dict[str, Any]) -> dict[str, Any]:
    """The store of nodes and ledger: a file in a folder, or a schema that is named after it."""
    if request["store"] != "postgres":
        return {"type": "map", "kwargs": {"uri": str(Path(request["folder"]) / "nodes.db")}}
    schema = request["schema"]
    return {
        "type": "postgresql",
        "kwargs": {"uri": f"{os.environ['LAZYRAG_POSTGRES']}?schema={schema}"},
    }


VECTOR_STORES: dict[str, Any] = {
    "map": lambda folder: {"type": "map", "kwargs": {"uri": str(folder / "nodes.db")}},
    "chroma": lambda folder: {
        "type": "chroma",
        "kwargs": {"dir": str(folder / "chroma"), "index_kwargs": {"hnsw": _HNSW}},
    },
    "milvus": lambda folder: {"type": "milvus", "kwargs": {"uri": str(folder / "milvus.db")}},
}
"""The vector store by name, in a folder."""


def opened(request: dict[str, Any]) -> Document:
    """The Document with its groups."""
    folder = Path(request["folder"])
    docs = Document(
        str(Path(request["files"]) / request["state"]),
        embed={"dense": Embedder()},
        store_conf={
            "search": "exact",  # PostgreSQL's own ranking estimates the number of rows
            "segment_store": _nodes(request),
            **(
                {"vector_store": VECTOR_STORES[request["store"]](folder)}
                if request["store"] in VECTOR_STORES
                else {}
            ),
        },
        workers=1,
    )
    docs.create_node_group("line", transform=LINES[1])
    docs.create_node_group("piece", transform=pieces, parent="line")
    return docs


def run(request: dict[str, Any]) -> dict[str, Any]:
    """The program: sync, ask, verify."""
    start = time.monotonic()
    with opened(request) as docs:
        repaired = docs.sync().repaired
        answers = [ask(docs, question) for question in QUESTIONS if question[1] != "sparse"]
        synced_s = time.monotonic() - start
        problems = (
            [str(problem) for problem in docs.maintenance.verify()] if request["verify"] else []
        )
        export = _exported(docs) if request["verify"] and request["store"] == "postgres" else {}
    return {
        "export": export,
        "answers": answers,
        "problems": problems,
        "repaired": repaired,
        "synced_s": synced_s,
    }


def _exported(docs: Document) -> dict[str, str]:
    """Digests of an export's files, whatever the order of their rows and the time of the last
    reading.
    """
    accessed = re.compile(rb'"last_accessed_date": "[^"]*"')
    with tempfile.TemporaryDirectory() as folder:
        files = docs.maintenance.export(Path(folder, "export")).iterdir()
        return {
            one.name: hashlib.sha256(
                accessed.sub(b"", b"".join(sorted(one.open("rb"))))
            ).hexdigest()
            for one in files
            if one.name != "manifest.json"
        }


def _kill_after(seconds: float) -> None:
    """Have another process end this one by SIGKILL, wherever it is then."""
    target = os.pidfd_open(os.getpid())
    if not os.fork():
        time.sleep(seconds)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(target, signal.SIGKILL)
        os._exit(0)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    signal.alarm(PATIENCE_S)
    warnings.simplefilter("ignore", IngestionWarning)
    _set(opening, "_GRACE_S", 0.0)
    _set(store_file, "YOUNG_S", 0.0)
    _set(sqlite_vectors, "_SMALL_BYTES", 2048)
    _set(term_index, "_SMALL_BYTES", 2048)
    _set(ingest, "_BATCH", 4)
    try:
        if request["kill_s"] is not None:
            _kill_after(request["kill_s"])
        return run(request)
    except BaseException:  # noqa: BLE001  reported to the test
        return {"error": traceback.format_exc()}


@dataclass(slots=True)
class Tally:
    """Kills, those that were survived, what had to be rebuilt, and what went wrong."""

    kills: int = 0
    survived: int = 0
    rebuilt: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rebuilt = (
            ", ".join(f"{name} {times} times" for name, times in self.rebuilt.items()) or "nothing"
        )
        return f"{self.kills} kills, {self.survived} survived without a manual step, rebuilt: {rebuilt}"


def _problems(ended_by: int, found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """What a start after a kill did not survive."""
    if ended_by:
        return [f"signal {ended_by} ended the next start"]
    if "error" in found:
        return [found["error"]]
    return [
        *found["problems"],
        *(f"another {part}" for part in ("answers", "export") if found[part] != expected[part]),
    ]


def kill(store: str, kills: int, root: Path, seed: int = 0) -> Tally:
    """End the program so many times, each time at another instant, over one folder."""
    chance, tally = random.Random(seed), Tally()
    files, folder = root / "files", root / "store"
    write_files(files)
    # failed files keep the version before them, if there was one
    for path in files.glob("*/*.crash"):
        path.unlink()
    with closing(Starter("tests.crash.kills", KILLS_STORE=store)) as starter:

        def start(
            state: str, kill_s: float | None, folder: Path = folder
        ) -> tuple[int, dict[str, Any]]:
            folder.mkdir(exist_ok=True)
            name = folder / "schema"
            if not name.exists():
                name.write_text(f"kills_{secrets.token_hex(6)}")
            request = {
                "schema": name.read_text(),
                "store": store,
                "folder": str(folder),
                "files": str(files),
                "state": state,
                "kill_s": kill_s,
            }
            return starter.start({**request, "verify": kill_s is None})

        expected = {state: start(state, None, root / f"reference-{state}")[1] for state in _STATES}
        longest = max(one["synced_s"] for one in expected.values())
        assert not any(one["problems"] for one in expected.values())
        while tally.kills < kills:
            state = _STATES[tally.kills % 2]
            if chance.random() < 0.2:
                shutil.rmtree(folder, ignore_errors=True)  # the first build is killed as well
            kill_s = chance.uniform(0.0, 1.1 * longest)
            ended_by, _ = start(state, kill_s)
            if not ended_by:
                continue
            tally.kills += 1
            ended_by, found = start(state, None)
            problems = _problems(ended_by, found, expected[state])
            tally.rebuilt.update(found.get("repaired", ()))
            tally.survived += not problems
            if problems:
                tally.problems += [
                    f"kill {tally.kills}, after {kill_s:.3f} s, {state}: {one}" for one in problems
                ]
                shutil.rmtree(folder)
    return tally


def main() -> int:
    """Kill, print a line, and what went wrong; 1 if anything did."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", choices=[*_PACKAGES], default="map")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kills-") as root:
        tally = kill(given.store, given.kills, Path(root), given.seed)
    print(f"{given.store}: {tally}", *tally.problems, sep="\n")
    return int(bool(tally.problems))


if __name__ == "__main__":
    if "KILLS_STORE" in os.environ:
        __import__(_PACKAGES[os.environ["KILLS_STORE"]])
        serve(_answer)
    else:
        sys.exit(main())
