"""The embedding cache: vectors stored and found again per second, and what they take on disk.

    python benchmarks/cache.py [--rows 10000] [--dimension 384] [--folder FOLDER]

Batches as they come from a model are stored in one transaction each. The file lies in a temporary
folder, or in the one that is named. Beside it: the same bytes written to a plain file, and its
texts hashed, which is the least that there is to do.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from lazyrag.models.embedding_cache import CachedEmbedder, EmbeddingCache, VectorSpace

ROUNDS = 3
WORDS = 60  # in a text


def seconds(function: Callable[[], object]) -> float:
    """How long it takes, once."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def measure(
    path: Path, texts: list[str], matrix: np.ndarray, rates: dict[str, list[float]]
) -> float:
    """One round with a new file: adds the seconds of each part, returns the bytes of the file per
    row.
    """
    space = VectorSpace("benchmark", dimension=matrix.shape[1])
    vectors = dict(zip(texts, matrix, strict=True))
    shuffled = random.Random(0).sample(texts, len(texts))

    def put(size: int, name: str) -> None:
        with EmbeddingCache(path.with_name(name)) as cache:
            for start in range(0, len(texts), size):
                cache.put_many(space, {text: vectors[text] for text in texts[start : start + size]})

    def plain() -> None:
        with path.with_name("plain").open("wb") as file:
            for text, vector in vectors.items():
                file.write(hashlib.sha256(text.encode()).digest())
                file.write(vector.tobytes())

    rates["a plain file, for comparison"].append(seconds(plain))
    rates["put, 64 at once"].append(seconds(lambda: put(64, "small.db")))
    rates["put, all at once"].append(seconds(lambda: put(len(texts), path.name)))
    with EmbeddingCache(path) as cache:
        rates["get, all at once"].append(seconds(lambda: cache.get_many(space, shuffled)))
        rates["get, one at a time"].append(
            seconds(lambda: [cache.get_many(space, [text]) for text in shuffled])
        )
        embedder = CachedEmbedder(lambda text: matrix[0], cache, identity="benchmark")
        embedder.embed(texts)
        rates["CachedEmbedder.embed, warm"].append(seconds(lambda: embedder.embed(shuffled)))
        rates["close: write which were used"].append(seconds(cache.close))
    return path.with_name("small.db").stat().st_size / len(texts)


def main() -> None:
    """Print the medians of three rounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--folder", help="where the files are made; a temporary folder by default")
    options = parser.parse_args()
    chance = random.Random(0)
    texts = [
        " ".join(f"word{chance.randrange(10_000)}" for _ in range(WORDS))
        for _ in range(options.rows)
    ]
    matrix = (
        np.random.default_rng(0)
        .standard_normal((options.rows, options.dimension))
        .astype(np.float32)
    )
    names = [
        "put, 64 at once",
        "put, all at once",
        "get, all at once",
        "get, one at a time",
        "CachedEmbedder.embed, warm",
        "close: write which were used",
        "a plain file, for comparison",
    ]
    rates: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            size = measure(Path(folder, "cache.db"), texts, matrix, rates)
    print(f"{options.rows:,} vectors of {options.dimension} numbers")
    for name, times in rates.items():
        median = statistics.median(times)
        print(
            f"{name:30} {options.rows / median:10,.0f} rows/s {1e6 * median / options.rows:8.1f} us/row"
        )
    print(
        f"{'the file':30} {size:10,.0f} bytes per row, {size - 4 * options.dimension:,.0f} of them beside the numbers"
    )


if __name__ == "__main__":
    main()
