"""Texts a second of an embedding endpoint, by the batch size and the concurrency of its client.

    python benchmarks/model_batches.py [--texts 1024]

The server is a stub with one device, as a GPU is: it takes 15 ms for each request and 1 ms for each
text in it, one request after the other. Its own limit is 1,000 texts a second; what is missing is
the cost of requests. A real server differs: measure it with the same loop. Results go to
build/bench.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from results import Row, save, table
from workers import StubModel, stub_model

from lazyrag.models import HttpEmbedder

COLUMNS = ("batch_size", "concurrency", "texts_per_s")
SIZES = (1, 8, 32, 128)
CONCURRENCIES = (1, 4)


class OneDevice(StubModel):
    """A server that computes one request at a time."""

    text_s = 0.001
    request_s = 0.015
    device = threading.Lock()


def main() -> int:
    """Measure all combinations."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=1024)
    options = parser.parse_args()
    texts = [f"green tea {number}" for number in range(options.texts)]
    rows: list[Row] = []
    with stub_model(OneDevice) as url:
        for size in SIZES:
            for concurrency in CONCURRENCIES:
                count = min(options.texts, 64 * size)
                embedder = HttpEmbedder(
                    url, "stub", batch_size=size, concurrency=concurrency, api_key=""
                )
                began = time.perf_counter()
                embedder.embed(texts[:count])
                speed = count / (time.perf_counter() - began)
                rows.append(dict(zip(COLUMNS, (size, concurrency, round(speed)), strict=True)))
    print(table(rows, COLUMNS))
    save("model_batches", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
