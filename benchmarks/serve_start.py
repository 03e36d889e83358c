"""How long `lazyrag serve` takes from its start to the first answer of a search, at 100,000 nodes.

    python benchmarks/serve_start.py [--nodes 100000] [--rounds 5]

Nodes are those of corpus.py, lines of 100 files, in an index that an earlier run of the service has
built. A client sends the same search until it is answered with hits; requests that come early wait
in the listening socket, or are answered with 503. Then the supervisor is killed with SIGKILL and
started again at once, which is the second figure. Results go to build/bench.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx
from corpus import make_corpus
from corpus import make_queries as make_words
from results import Row, save, table

from lazyrag.server.core.config import open_set, read_config
from tests.server.running import children_of, is_running, wait_for

FILES = 100
GROUP = "line"
SETUP = f"def define(docs):\n    docs.create_node_group({GROUP!r}, transform=str.splitlines)\n"
COLUMNS = ("start", "first_answer_ms", "least_ms", "most_ms")


def build(folder: Path, nodes: int, processes: int = 2) -> tuple[Path, list[str]]:
    """A configuration file whose set has so many nodes, and queries for it."""
    corpus = make_corpus("en", nodes)
    files = folder / "files"
    files.mkdir()
    lines = [" ".join(text.split()) for text in corpus.texts()]
    per_file = max(1, nodes // FILES)
    for start in range(0, nodes, per_file):
        own = "\n".join(lines[start : start + per_file])
        (files / f"{start // per_file:05}.txt").write_text(own, encoding="utf-8")
    (folder / "definitions.py").write_text(SETUP, encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = folder / "serve.toml"
    config.write_text(
        f"[server]\nport = {port}\nprocesses = {processes}\n"
        f"[sets.notes]\npath = 'files'\nsetup = 'definitions:define'\ngroups = ['{GROUP}']\nanalysers = ['en']\n",
        encoding="utf-8",
    )
    sys.path.insert(0, str(folder))
    read = read_config(config)
    with open_set("notes", read.sets["notes"], read.server.state, write=True) as docs:
        docs.activate_group(GROUP, analysers=["en"])
        found = docs.status().groups
        print(f"{sum(one.nodes for one in found if one.name == GROUP):,} nodes", flush=True)
    return config, make_words(corpus, 200)


def request(query: str) -> dict[str, Any]:
    """The body of a search."""
    return {"query": query, "group": GROUP, "retriever": "bm25", "topk": 6}


def first_answer(config: Path, query: str) -> tuple[subprocess.Popen[str], float]:
    """Start the service; the process, and the seconds until the first answer with hits."""
    port = read_config(config).server.port
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "lazyrag", "serve", str(config)], stdout=subprocess.DEVNULL
    )
    while True:
        try:
            answer = httpx.post(
                f"http://127.0.0.1:{port}/api/v1/sets/notes/search", json=request(query), timeout=60
            )
            if answer.status_code == 200 and "score" in answer.text:
                return process, time.perf_counter() - began
            if answer.status_code not in (500, 503):
                raise AssertionError(answer.text)
        except httpx.TransportError:
            pass
        time.sleep(0.005)


def main() -> None:
    """Print and save the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    taken: dict[str, list[float]] = {"after SIGTERM": [], "after kill -9": []}
    with tempfile.TemporaryDirectory() as scratch:
        config, queries = build(Path(scratch), given.nodes)
        for number in range(given.rounds):
            process, took = first_answer(config, queries[number])
            taken["after SIGTERM"].append(took)
            process.kill()
            process.wait()
            process, took = first_answer(config, queries[number])
            taken["after kill -9"].append(took)
            children = children_of(process.pid)
            process.terminate()
            process.wait(30)
            wait_for(
                lambda pids=children: not any(map(is_running, pids)), "the end of the processes"
            )
    rows: list[Row] = [
        {
            "start": name,
            "first_answer_ms": 1000 * statistics.median(times),
            "least_ms": 1000 * min(times),
            "most_ms": 1000 * max(times),
        }
        for name, times in taken.items()
    ]
    print(table(rows, COLUMNS))
    save("serve_start", rows, nodes=given.nodes)


if __name__ == "__main__":
    main()
