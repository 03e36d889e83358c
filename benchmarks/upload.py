"""Time and memory of the service while it receives one large file, in parts and as a form.

    python benchmarks/upload.py [--megabytes 5000] [--part-megabytes 8] [--json]

A service runs in a process of its own, on a free port. The file is made up while it is sent. After
half of the parts the service is killed, and another one continues. Printed are, for each way, the
seconds, MB per second, and by how many MB the memory of the service rose above that of the idle one
(``VmHWM`` of /proc, so on Linux only). The disk needs room for the file; nothing of it is ingested.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import http.client
import itertools
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

MB = 1_000_000
SET = "/api/v1/sets/files"
BLOCK = bytes(range(256)) * 4096


def serve(state: Path) -> None:
    """Serve an empty set; print the port."""
    import uvicorn

    from lazyrag import Document
    from lazyrag.server.app import create_app
    from lazyrag.server.core.service import Service

    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(state / "store.db")}}}
    with Document(store_conf=conf) as docs, socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        app = create_app(Service({"files": docs}, state))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        asyncio.run(server.serve(sockets=[listener]))


@contextmanager
def service(state: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A service as a process, and its port; killed at the end."""
    command = [sys.executable, __file__, "--serve", str(state)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = int(process.stdout.readline())
        request(port, "GET", "/healthz")
        request(port, "GET", SET)
        yield port, process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def memory_mb(process: subprocess.Popen[str], name: str) -> float:
    """A line of a process's status: VmRSS is its memory now, VmHWM the most that it had."""
    text = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    return int(re.search(rf"{name}:\s+(\d+)", text)[1]) * 1024 / MB


def request(port: int, method: str, path: str, body=None, **headers: str) -> dict:
    """Send a request, and return the JSON of its response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status >= 400:
        raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")
    return json.loads(text or "null")


def content(start: int, size: int) -> Iterator[bytes]:
    """A stretch of a file in which no two MiB are equal."""
    at, end = start, start + size
    while at < end:
        block, offset = divmod(at, len(BLOCK))
        made = (block.to_bytes(8, "big") + BLOCK[8:])[offset : offset + end - at]
        yield made
        at += len(made)


def send_parts(state: Path, size: int, part_size: int) -> dict[str, float]:
    """Send the file in parts, to two services one after the other."""
    began, peaks = time.perf_counter(), []
    body = json.dumps({"name": "large.bin", "size": size, "part_size": part_size})
    upload = None
    for share in (0.5, 1.0):
        with service(state) as (port, process):
            idle = memory_mb(process, "VmRSS")
            if upload is None:
                upload = request(
                    port, "POST", f"{SET}/uploads", body, **{"Content-Type": "application/json"}
                )
            url = f"{SET}/uploads/{upload['id']}"
            present = set(request(port, "GET", url)["received"])
            for number in range(1, round(share * upload["parts"]) + 1):
                if number not in present:
                    start = (number - 1) * part_size
                    part = b"".join(content(start, min(part_size, size - start)))
                    digest = hashlib.sha256(part).hexdigest()
                    request(
                        port, "PUT", f"{url}/parts/{number}", part, **{"X-Content-SHA256": digest}
                    )
            if share == 1:
                request(port, "POST", f"{url}/complete")
            peaks.append(memory_mb(process, "VmHWM") - idle)
    return figures(size, began, max(peaks))


def send_form(state: Path, size: int) -> dict[str, float]:
    """Send the file as a form."""
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="large.bin"\r\n\r\n'
    tail = b"\r\n--x--\r\n"
    headers = {
        "Content-Type": "multipart/form-data; boundary=x",
        "Content-Length": str(len(head) + size + len(tail)),
    }
    with service(state) as (port, process):
        idle, began = memory_mb(process, "VmRSS"), time.perf_counter()
        body = itertools.chain([head], content(0, size), [tail])
        request(port, "POST", f"{SET}/documents", body, **headers)
        return figures(size, began, memory_mb(process, "VmHWM") - idle)


def figures(size: int, began: float, memory: float) -> dict[str, float]:
    """What is printed of a way."""
    took = time.perf_counter() - began
    return {
        "seconds": round(took, 1),
        "mb_per_second": round(size / MB / took),
        "memory_mb": round(memory, 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=5000)
    parser.add_argument("--part-megabytes", type=int, default=8)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    size = options.megabytes * MB
    with tempfile.TemporaryDirectory() as folder:
        found = {"parts": send_parts(Path(folder), size, options.part_megabytes * MB)}
    with tempfile.TemporaryDirectory() as folder:
        found["form"] = send_form(Path(folder), size)
    if options.json:
        print(json.dumps(found))
        return
    for way, one in found.items():
        print(
            f"{way:6}"
            + "".join(f"{name.replace('_', ' ')} {value:<10}" for name, value in one.items())
        )


if __name__ == "__main__":
    main()
