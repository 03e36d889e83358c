"""Latency of searches of 50 clients at 100,000 nodes while 500 files are uploaded.

    python benchmarks/serve_load.py [--nodes 100000] [--clients 50] [--files 500] [--pause 1.0]
    [--check]

Every client has a connection of its own and pauses between its searches, by chance up to twice
`--pause` seconds. Files are uploaded ten at a time, and each upload's job is waited for. First the
clients search alone, then beside the uploads. Prints requests, errors, p50, p95 and p99, and the
peak memory of each process. With --check, the exit status is 1 if a request failed or a file is
missing at the end; nothing is judged by the clock. Results go to build/bench.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import httpx2 as httpx
from results import Row, save, table
from serve_start import build, request

from lazyrag.server.core.config import read_config
from tests.server.running import Running, serving

BATCH = 10
ALONE_S = 10.0
COLUMNS = ("clients", "requests", "errors", "p50_ms", "p95_ms", "p99_ms", "max_ms")


async def search(
    address: tuple[str, int],
    queries: Sequence[str],
    pause_s: float,
    stop: threading.Event,
    seed: int,
) -> tuple[list[float], list[str]]:
    """One client: seconds of its searches, and errors."""
    chance = random.Random(seed)
    seconds: list[float] = []
    errors: list[str] = []
    reader, writer = await asyncio.open_connection(*address)
    await asyncio.sleep(chance.random() * pause_s)
    while not stop.is_set():
        body = json.dumps(request(chance.choice(queries))).encode()
        head = f"POST /api/v1/sets/notes/search HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        began = time.perf_counter()
        try:
            writer.write(head.encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            lines = answer.decode("latin-1").split("\r\n")
            [length] = [
                int(line.partition(":")[2])
                for line in lines
                if line.lower().startswith("content-length:")
            ]
            text = await reader.readexactly(length)
            if b" 200 " not in answer[:20]:
                errors.append(f"{lines[0]} {text[:300]!r}")
        except (OSError, asyncio.IncompleteReadError) as exc:
            # else the kept connection had run out
            if not seconds or time.perf_counter() - began > 0.1:
                errors.append(repr(exc))
            reader, writer = await asyncio.open_connection(*address)
            continue
        seconds.append(time.perf_counter() - began)
        await asyncio.sleep(2 * chance.random() * pause_s)
    writer.close()
    return seconds, errors


def measure(
    name: str,
    running: Running,
    queries: Sequence[str],
    clients: int,
    pause_s: float,
    stop: threading.Event,
) -> Row:
    """All clients until an event is set."""
    host, _, port = running.url.rpartition("/")[2].rpartition(":")

    async def search_all() -> list[tuple[list[float], list[str]]]:
        address = host, int(port)
        return await asyncio.gather(
            *(search(address, queries, pause_s, stop, one) for one in range(clients))
        )

    found = asyncio.run(search_all())
    seconds = sorted(1000 * one for times, _ in found for one in times)
    errors = [one for _, some in found for one in some]
    for error in errors[:5]:
        print(error, file=sys.stderr)
    return {
        "clients": name,
        "requests": len(seconds),
        "errors": len(errors),
        **{
            f"p{share}_ms": seconds[min(len(seconds) - 1, len(seconds) * share // 100)]
            for share in (50, 95, 99)
        },
        "max_ms": seconds[-1],
    }


def upload(running: Running, files: int, texts: Sequence[str]) -> tuple[float, list[str]]:
    """Upload files ten at a time; the seconds that it took, and errors."""
    began, errors = time.perf_counter(), []
    base = f"{running.url}/api/v1/sets/notes"
    with httpx.Client(timeout=120) as client:
        for start in range(0, files, BATCH):
            parts = [
                ("file", (f"upload-{one}.txt", texts[one % len(texts)].encode(), "text/plain"))
                for one in range(start, min(start + BATCH, files))
            ]
            answer = client.post(
                f"{base}/documents", files=parts, headers={"Idempotency-Key": f"batch {start}"}
            )
            if answer.status_code != 202:
                errors.append(answer.text)
                continue
            job = answer.json()["job"]
            while job["state"] in ("WAITING", "WORKING"):
                time.sleep(0.1)
                job = client.get(f"{base}/jobs/{job['id']}").json()
            errors += [] if job["state"] == "SUCCESS" else [str(job)]
    return time.perf_counter() - began, errors


def peak_mb(pid: int) -> float:
    """The peak of the resident memory of a process (Linux)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> int:
    """Print and save the figures; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--pause", type=float, default=1.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        config, queries = build(Path(scratch), given.nodes, given.processes)
        lines = (
            (read_config(config).sets["notes"].path / "00000.txt")
            .read_text(encoding="utf-8")
            .splitlines()
        )
        texts = [
            "\n".join(lines[start : start + 20]) for start in range(0, min(len(lines), 1000), 20)
        ]
        with serving(Path(scratch) / "files", config=config) as running:
            running.wait_until_ready()
            for query in queries[:40]:  # each process reads its indexes at the first search
                httpx.post(
                    f"{running.url}/api/v1/sets/notes/search", json=request(query), timeout=60
                )
            alone = threading.Event()
            threading.Timer(3.0 if given.check else ALONE_S, alone.set).start()
            rows = [measure("alone", running, queries, given.clients, given.pause, alone)]
            uploaded = threading.Event()
            ended: list[tuple[float, list[str]]] = []

            def work() -> None:
                try:
                    ended.append(upload(running, given.files, texts))
                finally:
                    uploaded.set()

            thread = threading.Thread(target=work)
            thread.start()
            rows.append(
                measure("beside uploads", running, queries, given.clients, given.pause, uploaded)
            )
            thread.join()
            [(took, errors)] = ended
            address = f"{running.url}/api/v1/sets/notes/documents?limit=1000"
            names = [one["id"] for one in httpx.get(address, timeout=60).json()["documents"]]
            missing = {f"upload-{one}.txt" for one in range(given.files)} - set(names)
            memory = {
                f"{role} MB": max(map(peak_mb, running.children(role)))
                for role in ("web", "writer")
            }
    print(table(rows, COLUMNS))
    print(f"{given.files} files uploaded in {took:.1f} s; peak memory: {memory}")
    for error in [*errors[:5], *sorted(missing)[:5]]:
        print(error, file=sys.stderr)
    save("serve_load", rows, nodes=given.nodes, files=given.files, upload_s=took, **memory)
    failed = bool(errors or missing or sum(row["errors"] for row in rows))
    return int(failed and given.check)


if __name__ == "__main__":
    sys.exit(main())
