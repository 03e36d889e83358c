"""How much faster 1 and 2 workers that write the store themselves ingest files into PostgreSQL.

    python benchmarks/workers.py [--files 512] [--kinds model text] [--workers 1 2]

Kind "model": files of one chunk, embedded by a stub of a model server that takes 60 ms for each
text, one request of a worker at a time. Kind "text": files of some 400 words, with a keyword index
and no vectors. The server is PostgreSQL of this machine, started over an empty folder, which does
not wait for the disk. Prints seconds without the start of workers, which a first ingestion has
begun, and the CPU seconds of the workers with their driver, and of the server. Results go to
build/bench.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from results import Row, save, table

from lazyrag import Document
from lazyrag.launchers.workers import Workers
from lazyrag.models import HttpEmbedder
from tests.live.serving import members, postgres_server

TEXT_S = 0.06
FIRST_FILES = 128  # an entry for each worker, so that both have begun
COLUMNS = ("kind", "workers", "files", "seconds", "times", "cpu_s", "server_cpu_s")
TICKS = os.sysconf("SC_CLK_TCK")


class StubModel(BaseHTTPRequestHandler):
    """An embedding endpoint that takes a fixed time for each text."""

    protocol_version = "HTTP/1.1"
    text_s = TEXT_S
    request_s = 0.0
    device: AbstractContextManager[object] = nullcontext()

    def do_POST(self) -> None:
        """Answer with vectors of 8 numbers."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = body["input"]
        with self.device:
            time.sleep(self.request_s + self.text_s * len(texts))
        rows = [
            {"index": at, "embedding": [1.0 + len(text) % 7] * 8} for at, text in enumerate(texts)
        ]
        answer = json.dumps({"data": rows, "model": body["model"]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def stub_model(handler: type[StubModel] = StubModel) -> Iterator[str]:
    """The URL of a stub of a model server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()


def open_document() -> Document:
    """The Document of the environment, as workers open it."""
    embed = None
    if os.environ["BENCH_KIND"] == "model":
        url = os.environ["BENCH_MODEL"]
        embed = HttpEmbedder(url, "stub", batch_size=8, concurrency=1, api_key="")
    launcher = Workers(open_document, int(os.environ["BENCH_WORKERS"]))
    store = os.environ["BENCH_STORE"]
    return Document(
        os.environ["BENCH_FOLDER"], embed, launcher=launcher, store_conf=store, workers=1
    )


def write_files(folder: Path, kind: str, first: int, count: int) -> None:
    """Write files that are all different."""
    chance = random.Random(first)
    words = [f"word{number}" for number in range(3_000)]
    size = 20 if kind == "model" else 400
    for number in range(first, first + count):
        text = " ".join(chance.choices(words, k=size))
        (folder / f"{number:06}.txt").write_text(f"File {number}. {text}.", encoding="utf-8")


def cpu_of(group: int) -> float:
    """CPU seconds of a process group, of its leader's children in other groups, as those of
    PostgreSQL are, and of their children that have ended.
    """
    ticks = 0
    for pid in {*members(group), *children(group)}:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS


def children(pid: int) -> list[int]:
    """The living children of a process."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for text in texts for child in text.split()]


def own_cpu() -> float:
    """CPU seconds of this process and its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(kind: str, files: int) -> float:
    """Seconds to ingest so many files, after a few first ones."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "files")
        folder.mkdir()
        os.environ |= {"BENCH_FOLDER": str(folder), "BENCH_KIND": kind, "XDG_CACHE_HOME": scratch}
        write_files(folder, kind, 0, FIRST_FILES)
        with open_document() as docs:
            docs.activate_group("MediumChunk", embed_keys=docs.reader.embed_keys, analysers=["en"])
            write_files(folder, kind, FIRST_FILES, files)
            began = time.perf_counter()
            report = docs.sync()
            seconds = time.perf_counter() - began
        assert len(report.added) == files, report
        return seconds


def main() -> int:
    """Measure one kind after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=512)
    parser.add_argument("--kinds", nargs="+", default=["model", "text"])
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    options = parser.parse_args()
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        stub_model() as model,
        postgres_server(Path(scratch)) as server,
    ):
        os.environ["BENCH_MODEL"] = model
        for kind in options.kinds:
            first = 0.0
            for count in options.workers:
                os.environ["BENCH_WORKERS"] = str(count)
                os.environ["BENCH_STORE"] = f"{server.address}?schema={kind}{count}"
                cpu_before = own_cpu()
                server_before = cpu_of(server.process.pid)
                seconds = measure(kind, options.files)
                first = first or seconds
                cpu = own_cpu() - cpu_before
                server_cpu = cpu_of(server.process.pid) - server_before
                figures = (kind, count, options.files, seconds, first / seconds, cpu, server_cpu)
                rows.append(dict(zip(COLUMNS, figures, strict=True)))
                print(f"{kind}, {count}: {seconds:.2f} s", flush=True)
    print(table(rows, COLUMNS))
    save("workers", rows)
    return 0


if __name__ == "__main__":
    import workers  # workers import its function by name

    sys.exit(workers.main())
