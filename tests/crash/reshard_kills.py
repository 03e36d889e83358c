"""Kills of `reshard` at points all over its run: the next call has to go on, without embedding anything.

    python -m tests.crash.reshard_kills --kills 20

A point is a write to a database or a change of a file. A kill is survived if the next call ends with the dump that the
Document had before, no store is left over, and verify() finds nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lazyrag import Document
from lazyrag.document import reshard
from lazyrag.storage.database import Database

_EVENTS = {"os.rename", "os.remove", "os.unlink", "shutil.rmtree"}
BEFORE, AFTER = 3, 4


def conf(folder: Path) -> dict[str, Any]:
    """The stores in a folder."""
    return {"segment_store": {"type": "map", "kwargs": {"uri": str(folder / "store.db")}}}


def embed(text: str) -> list[float]:
    """An embedding; a call of it after the first build is an error, see `opened`."""
    return [float(len(text)), 1.0, float(text.count("a"))]


def opened(folder: Path, shards: int, calls: list[str]) -> Document:
    """The Document; texts that it embeds are noted."""

    def noted(text: str) -> list[float]:
        calls.append(text)
        return embed(text)

    docs = Document(embed=noted, store_conf=conf(folder), shards=shards, workers=1)
    docs.create_node_group("line", transform=str.splitlines)
    return docs


def built(folder: Path) -> list[str]:
    """Build the Document; return its dump."""
    with opened(folder, BEFORE, []) as docs:
        docs.add_texts({f"doc-{number}": f"green tea\nleaf {number}\nwater" for number in range(24)})
        docs.activate_group("line", embed_keys=["default"], analysers=["en"])
        docs.delete_files(["doc-3"])
        return list(docs.dump())


def run(folder: Path, at: int) -> int:
    """Reshard, and end the program at a point; the number of points if it is not reached."""
    count = 0

    def note() -> None:
        nonlocal count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    begin = Database.writing

    def writing(self: Database, **options: Any) -> Any:
        note()
        return begin(self, **options)

    Database.writing = writing  # type: ignore[method-assign]
    sys.addaudithook(lambda event, _: note() if event in _EVENTS else None)
    reshard(conf(folder), AFTER)
    return count


def start(folder: Path, at: int) -> tuple[int, int]:
    """Run in a program of its own: its exit status and the number of points."""
    command = [sys.executable, "-m", "tests.crash.reshard_kills", "--run", str(folder), "--at", str(at)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode, int(ended.stdout or 0)


def kill(kills: int, root: Path) -> list[str]:
    """Kill so many runs, at points all over, each followed by one that is killed a little later; what went wrong."""
    expected = built(root / "before")
    shutil.copytree(root / "before", root / "count")
    _, points = start(root / "count", 0)
    problems = []
    for number in range(kills):
        at = 1 + number * (points - 1) // max(1, kills - 1)
        folder = root / f"at-{at}"
        shutil.copytree(root / "before", folder)
        status, _ = start(folder, at)
        if status != -signal.SIGKILL:
            problems.append(f"{at} of {points}: it was not killed")
        reshard(conf(folder), AFTER)
        calls: list[str] = []
        with opened(folder, AFTER, calls) as docs:
            docs.activate_group("line", embed_keys=["default"], analysers=["en"])
            if list(docs.dump()) != expected or docs.verify():
                problems.append(f"{at} of {points}: another dump, or {docs.verify()}")
        left = {one.name for one in folder.iterdir() if f"-of-{AFTER}." not in one.name} - {"store.db.shards"}
        if calls or left:
            problems.append(f"{at} of {points}: embedded {len(calls)} texts, left {sorted(left)}")
    return problems


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Kill reshard at points all over its run.")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--at", type=int, default=0, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.run is not None:
        print(run(chosen.run, chosen.at))
        return
    with tempfile.TemporaryDirectory() as root:
        problems = kill(chosen.kills, Path(root))
    print(f"{chosen.kills} kills, {chosen.kills - len(problems)} survived", *problems, sep="\n")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
