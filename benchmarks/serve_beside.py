"""How soon deletions, changes of labels and small uploads take effect while a large file is
ingested by the service.

    python benchmarks/serve_beside.py [--mb 100] [--documents 2000] [--pause 0.5]

The set has documents of one line, keyword indexes of both languages, and vectors of an embed
function that takes no time to speak of. One file of so many megabytes is uploaded. Until it can be
searched, documents are deleted, get another label, and are uploaded, in turn. A client that
searches again and again tells the seconds from the beginning of each request to the first search
that has the new state. Results go to build/bench.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2 as httpx
from corpus import paragraphs
from results import Row, save, table
from serve_load import peak_mb

from tests.server.running import Running, serving, wait_for

COLUMNS = ("change", "count", "p50_ms", "p95_ms", "max_ms")
LIMIT_S = 120.0
MODEL = '''
import zlib
import numpy as np

TABLE = np.random.default_rng(1).standard_normal((4096, 384), np.float32)

class Hashed:
    """Vectors that follow from the first words of a text."""

    identity, dimension, max_tokens, normalised = "hashed", 384, None, False

    def embed(self, texts, input_type="document"):
        words = ([zlib.crc32(word.encode()) % 4096 for word in text.split()[:8]] for text in texts)
        return np.stack([TABLE[some].sum(0) for some in words])

embedder = Hashed()
'''


class Client:
    """Sends requests to the set.

    Args:
        running: The service.
    """

    def __init__(self, running: Running) -> None:
        self._http = httpx.Client(base_url=f"{running.url}/api/v1/sets/notes", timeout=LIMIT_S)

    def post(self, path: str, **body: Any) -> Any:
        """POST JSON, and return the answer."""
        answer = self._http.post(path, json=body)
        if answer.status_code >= 300:
            raise AssertionError(f"{path}: {answer.status_code} {answer.text[:300]}")
        return answer.json()

    def upload(self, name: str, content: bytes, labels: list[str] | None = None) -> Any:
        """Upload a file; returns its job."""
        data = {"metadata": json.dumps({name: {"labels": labels}})} if labels else None
        file, headers = (
            {"file": (name, content, "text/plain")},
            {"Idempotency-Key": f"upload of {name}"},
        )
        answer = self._http.post("/documents", files=file, data=data, headers=headers)
        answer.raise_for_status()
        return answer.json()["job"]

    def job(self, number: str) -> Any:
        """A job as it is now."""
        return self._http.get(f"/jobs/{number}").json()

    def finds(self, word: str, **filters: Any) -> bool:
        """Whether a keyword search finds a word that one document has."""
        found = self.post("/search", query=word, retriever="bm25", topk=3, filters=filters or None)
        return bool(found["hits"])

    def seconds_until(self, change: Callable[[], Any], is_there: Callable[[], bool]) -> float:
        """Make a change; the seconds from its beginning until a search shows it."""
        began = time.perf_counter()
        change()
        while not is_there():
            if time.perf_counter() - began > LIMIT_S:
                raise AssertionError("a change is not seen")
            time.sleep(0.005)
        return time.perf_counter() - began


def word_of(number: int) -> str:
    """A word that only one document has."""
    return "".join(chr(ord("a") + int(digit)) for digit in f"{number:06}") + "zq"


def figures(name: str, seconds: list[float]) -> Row:
    """A line of the table."""
    ms = sorted(1000 * one for one in seconds)
    at = {share: ms[min(len(ms) - 1, len(ms) * share // 100)] for share in (50, 95)}
    return {"change": name, "count": len(ms), "p50_ms": at[50], "p95_ms": at[95], "max_ms": ms[-1]}


def large_text(size: int) -> bytes:
    """A file of so many bytes: the English paragraphs again and again, each time with another
    number.
    """
    texts, pieces, done, number = paragraphs("en"), list[str](), 0, 0
    while done < size:
        text = f"{texts[number % len(texts)]} number{number}\n\n"
        pieces.append(text)
        done += len(text)
        number += 1
    return ("".join(pieces) + "giganticword").encode()


def changes(
    client: Client, number: int, documents: int
) -> list[tuple[Callable[[], Any], Callable[[], bool]]]:
    """A deletion, a change of a label and an upload, each with whether a search shows it."""
    other, new = documents - 1 - number, word_of(documents + number)
    relabel = {f"{other}.txt": {"labels": ["closed"]}}
    text = f"A new text of {new}.".encode()
    return [
        (
            lambda: client.post("/delete", documents=[f"{number}.txt"]),
            lambda: not client.finds(word_of(number)),
        ),
        (
            lambda: client.post("/metadata", changes=relabel),
            lambda: not client.finds(word_of(other), labels=["open"]),
        ),
        (lambda: client.upload(f"new-{number}.txt", text), lambda: client.finds(new)),
    ]


def measure(client: Client, size: int, documents: int, pause_s: float) -> tuple[list[Row], float]:
    """Upload the large file; the figures of what is changed meanwhile, and its seconds."""
    seconds: dict[str, list[float]] = {
        "deletion hidden": [],
        "label hidden": [],
        "upload found": [],
    }
    job = client.upload("large.txt", large_text(size))
    began, number = time.perf_counter(), 0
    while client.job(job["id"])["state"] in ("WAITING", "WORKING") and number < documents // 2:
        for name, one in zip(seconds, changes(client, number, documents), strict=True):
            seconds[name].append(client.seconds_until(*one))
        number += 1
        time.sleep(pause_s)
    took = time.perf_counter() - began
    wait_for(lambda: client.finds("giganticword"), "the large file", LIMIT_S)
    return [figures(name, some) for name, some in seconds.items()], took


def main() -> int:
    """Print and save the figures; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mb", type=float, default=100)
    parser.add_argument("--documents", type=int, default=2_000)
    parser.add_argument("--pause", type=float, default=0.5)
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "model.py").write_text(MODEL, encoding="utf-8")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        (folder / "serve.toml").write_text(
            f"[server]\nport = {port}\nprocesses = {given.processes}\n"
            "[sets.notes]\nstore = 'store'\nembed = 'model:embedder'\n",
            encoding="utf-8",
        )
        with serving(folder / "files", config=folder / "serve.toml") as running:
            running.wait_until_ready()
            client = Client(running)
            texts = {
                f"{one}.txt": f"A short text of {word_of(one)}." for one in range(given.documents)
            }
            labels = {name: {"labels": ["open"]} for name in texts}
            for start in range(0, given.documents, 500):
                names = list(texts)[start : start + 500]
                job = client.post(
                    "/texts",
                    texts={one: texts[one] for one in names},
                    metadata={one: labels[one] for one in names},
                )["job"]
                wait_for(
                    lambda number=job["id"]: client.job(number)["state"] == "SUCCESS",
                    "the documents",
                )
            rows, took = measure(client, int(given.mb * 1e6), given.documents, given.pause)
            memory = {
                f"{role} MB": max(map(peak_mb, running.children(role)))
                for role in ("web", "writer")
            }
    print(table(rows, COLUMNS))
    print(f"{given.mb:g} MB ingested in {took:.1f} s; peak memory: {memory}")
    save("serve_beside", rows, mb=given.mb, documents=given.documents, ingested_s=took, **memory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
