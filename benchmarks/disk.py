"""Bytes on disk per byte of text: the store file by table and index, array files and the embedding
cache.

    python benchmarks/disk.py

The texts are the English documentation and the English paragraphs of XQuAD, a file each, four times
with other letters. They are ingested with one group of chunks of 256 tokens, a keyword index and
vectors of 384 numbers, as float32. The vectors are random: sizes do not depend on what they say.
"""

from __future__ import annotations

import hashlib
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from results import save

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lazyrag import Document, Retriever
from tests.shared import SHARED, read_squad

DIMENSION = 384
LETTERS = "abcdefghijklmnopqrstuvwxyz"
COPIES = 4
GRACE_S = 11  # after which a sync deletes array files that were merged
FOLDERS = ("data/documentation/md-en/corpus", "data/documentation/rst-en/corpus")


class HashEmbedder:
    """A unit vector for each text, from a generator that its hash seeds."""

    identity = "benchmark:disk"
    dimension = DIMENSION
    max_tokens = None
    normalised = True

    def embed(self, texts: list[str], input_type: str = "document") -> np.ndarray:
        """See `lazyrag.models.protocols.Embedder`."""
        seeds = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts]
        rows = [
            np.random.default_rng(int.from_bytes(seed)).standard_normal(DIMENSION) for seed in seeds
        ]
        matrix = np.array(rows, np.float32)
        return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def write_corpus(folder: Path) -> int:
    """Write the texts as files; returns their bytes."""
    texts = {
        f"{number}/{source.relative_to(SHARED / root)}": source.read_text(encoding="utf-8")
        for number, root in enumerate(FOLDERS)
        for source in (SHARED / root).rglob("*")
        if source.suffix in {".md", ".rst"}
    }
    paragraphs, _ = read_squad(SHARED / "data/retrieval/xquad/xquad.en.json")
    texts |= {f"xquad-{number}.txt": paragraph for number, paragraph in enumerate(paragraphs)}
    total = 0
    for copy in range(COPIES):
        table = str.maketrans(LETTERS, LETTERS[copy:] + LETTERS[:copy])
        for name, text in texts.items():
            target = folder / f"{copy}" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            total += target.write_bytes(text.translate(table).encode())
    return total


def sizes_of(path: Path) -> Counter[str]:
    """Bytes of each table and index of a SQLite file."""
    connection = sqlite3.connect(path)
    owners = dict(
        connection.execute("SELECT name, tbl_name FROM sqlite_schema WHERE type = 'index'")
    )
    sizes: Counter[str] = Counter()
    for name, size in connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name"):
        sizes[f"{owners[name]}: {name}" if name in owners else name] += size
    [free] = connection.execute("PRAGMA freelist_count").fetchone()
    sizes["(free pages)"] += free * connection.execute("PRAGMA page_size").fetchone()[0]
    connection.close()
    return sizes


def main() -> int:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        folder, store = Path(name, "texts"), Path(name, "store.db")
        folder.mkdir()
        raw = write_corpus(folder)
        conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(store)}}}
        with Document(str(folder), store_conf=conf, embed=HashEmbedder()) as docs:
            for similarity in ("bm25", "cosine"):
                Retriever(docs, "MediumChunk", similarity=similarity, topk=3)("the scheduler")
            chunks = len(docs.get_nodes("MediumChunk"))
            time.sleep(GRACE_S)
            docs.sync()
        rows: Counter[str] = sizes_of(store)
        rows.update(
            {f"cache {key}": size for key, size in sizes_of(Path(f"{store}.embeddings")).items()}
        )
        for path in Path(f"{store}.d").rglob("*"):
            rows[f"array files {path.suffix}"] += path.stat().st_size
        on_disk = sum(
            path.stat().st_size for path in Path(name).rglob("store.db*") if path.is_file()
        )
        on_disk += sum(path.stat().st_size for path in Path(f"{store}.d").rglob("*"))
    print(
        f"{raw:,} bytes of text, {chunks} chunks; their vectors alone {chunks * DIMENSION * 4 / raw:.2f} of the text"
    )
    for key, size in rows.most_common():
        if size > raw / 200:
            print(f"{key:50} {size:12,} {size / raw:6.2f}")
    print(f"{'all files':50} {on_disk:12,} {on_disk / raw:6.2f}")
    parts = [
        {"part": key, "bytes": size, "per_byte": size / raw}
        for key, size in rows.most_common()
        if size > raw / 200
    ]
    vectors = chunks * DIMENSION * 4 / raw
    save(
        "disk",
        parts,
        raw=raw,
        chunks=chunks,
        vectors=vectors,
        goals={"per_byte": [on_disk / raw] * 3},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
