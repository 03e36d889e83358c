"""How long the page of files takes, by the number of files: the first page, a later one, a search
by name.

    python benchmarks/page_files.py --files 100000
    python benchmarks/page_files.py --files 5000 --check

`--check` fails where a page is larger than its bound; the time is printed, and judged by no check.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from fastapi.testclient import TestClient

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lazyrag import Document
from lazyrag.server.app import create_app
from lazyrag.server.core.service import Service

PAGES = (
    "files",
    "files?after=3~folder-50/note-000050.txt",
    "files?q=note-00099",
    "files?q=nothing",
    "files?status=failed",
)
MOST_BYTES = 60_000  # of a page of fifty files


def main() -> int:
    """Fill a set, and load its pages; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        conf = {"segment_store": {"type": "map", "kwargs": {"uri": f"{scratch}/store.db"}}}
        with Document(None, store_conf=conf) as docs:
            for start in range(0, options.files, 10_000):
                numbers = range(start, min(start + 10_000, options.files))
                docs.add_texts(
                    {f"folder-{n % 97}/note-{n:06d}.txt": f"Note {n} about tea." for n in numbers}
                )
            docs.activate_group("MediumChunk")
            app = create_app(Service({"notes": docs}, Path(scratch) / "state"))
            with TestClient(
                app, base_url="http://127.0.0.1", client=("127.0.0.1", 50_000)
            ) as client:
                largest = max(load(client, path) for path in PAGES)
    return int(options.check and largest > MOST_BYTES)


def load(client: TestClient, path: str) -> int:
    """Load a page some times, print its median, and return its size."""
    times = []
    for _ in range(11):
        began = time.perf_counter()
        answer = client.get(f"/s/notes/{path}", headers={"Accept": "text/html"})
        times.append(1000 * (time.perf_counter() - began))
        assert answer.status_code == 200, answer.text
    print(f"{path:45} {statistics.median(times[1:]):6.1f} ms {len(answer.content):7,} bytes")
    return len(answer.content)


if __name__ == "__main__":
    sys.exit(main())
