"""Write the stores under ``stores/``: what a release leaves on the disk, for later releases to
open.

    python -m tests.behaviour.make_stores v0.1

They were made by v0.1. They are never made again for that release: a later one that changes the
format adds its own.
"""

from __future__ import annotations

import argparse
import io
import lzma
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lazyrag import CachedEmbedder, Document, EmbeddingCache, Retriever
from tests.behaviour import canonical
from tests.behaviour.answers import EXPLAINED
from tests.behaviour.dumps import build_all, dump_rows
from tests.behaviour.library import Letters, StoreConf, open_document
from tests.behaviour.retrievers import ROUNDED
from tests.behaviour.store_kinds import STORES

FOLDER = Path(__file__).parent / "stores"
KINDS = ("sqlite", "split", "chroma", "milvus-lite")
CACHED_TEXTS = ("Green tea", "红茶", "A text that no file has.")


class Wide:
    """Vectors so wide that their index is an array file of its own."""

    identity = "behaviour wide 1"

    def __init__(self) -> None:
        self.texts = 0

    def __call__(self, text: str) -> list[float]:
        """Few of 640 numbers are not 0."""
        self.texts += 1
        vector = [0.0] * 640
        vector[0] = 1.0
        for letter in text:
            vector[ord(letter) % 640] += 1.0
        return vector


def open_wide(folder: Path, conf: StoreConf, **options: object) -> Document:
    """Another Document in a store file."""
    return open_document(
        folder, conf, "wide", embed=options.pop("embed", None) or Wide(), **options
    )


def build(docs: Document) -> None:
    """Have what the compared retrievers read."""
    build_all(docs, ["line"], ["bm25", "bm25_chinese"])
    docs.activate_group("section")
    Retriever(docs, "sentence", similarity="bm25")("tea")


def stored_rows(docs: Document) -> Iterator[dict[str, Any]]:
    """What the stored Document holds."""
    yield from dump_rows(docs, "stored")


def wide_rows(docs: Document) -> Iterator[dict[str, Any]]:
    """Hits by the wide vectors."""
    retriever = Retriever(docs, "line", topk=3)
    for query in EXPLAINED:
        yield {"key": f"wide: {query}", "hits": canonical.brief(retriever(query), ROUNDED)}


def stores_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """What the store of v0.1 holds once its keyword indexes are those of this release; and hits by
    wide vectors.
    """
    with open_document(
        folder, STORES["sqlite"].conf_of(unpack("v0.1", "sqlite", folder / "sqlite"))
    ) as docs:
        build(docs)
        yield from stored_rows(docs)
    with open_wide(folder, None) as wide:
        yield from wide_rows(wide)


def pack(folder: Path, target: Path) -> None:
    """Pack a folder: the same bytes for the same files."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            entry = archive.gettarinfo(path, str(path.relative_to(folder)))
            entry.mtime = entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            with path.open("rb") if path.is_file() else io.BytesIO() as data:
                archive.addfile(entry, data if path.is_file() else None)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(lzma.compress(held.getvalue(), preset=9))


def unpack(release: str, name: str, folder: Path) -> Path:
    """A copy of a store, to be opened."""
    with tarfile.open(FOLDER / release / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def main() -> None:
    """Make all of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("release")
    target = FOLDER / parser.parse_args().release
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in KINDS:
            conf = STORES[kind].conf_of(folder / kind)
            with open_document(folder, conf) as docs:
                build(docs)
                if kind == "sqlite":
                    docs.maintenance.export(folder / "export" / "docs")
            if kind == "sqlite":
                with open_wide(folder, conf) as wide:
                    Retriever(wide, "line")("tea")
            pack(folder / kind, target / f"{kind}.tar.xz")
        pack(folder / "export", target / "export.tar.xz")
        (folder / "cache").mkdir()
        with EmbeddingCache(folder / "cache" / "texts.embeddings") as cache:
            CachedEmbedder(Letters(), cache=cache).embed(list(CACHED_TEXTS))
        pack(folder / "cache", target / "cache.tar.xz")
    for path in sorted(target.iterdir()):
        print(f"{path.stat().st_size:>8} {path}")


if __name__ == "__main__":
    main()
