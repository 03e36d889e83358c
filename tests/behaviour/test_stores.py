"""What v0.1 left on the disk opens, is analysed again but not loaded or embedded, and answers as
recorded.
"""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import lazyrag
from lazyrag import CachedEmbedder, EmbeddingCache, Retriever
from lazyrag.errors import ReadOnlyError, StoreError
from lazyrag.maintain.vector_files import read_vectors, vector_digest
from lazyrag.stores.tables import STORE_FORMAT
from tests.behaviour import answers, goldens
from tests.behaviour.library import Letters, Library, Pairs, open_document
from tests.behaviour.make_stores import (
    CACHED_TEXTS,
    KINDS,
    Wide,
    open_wide,
    stored_rows,
    unpack,
    wide_rows,
)
from tests.behaviour.store_kinds import STORES
from tests.interpreter import ROOT

CASES = (
    "bm25",
    "bm25_chinese",
    "bm25 target section",
    "cosine",
    "cosine all keys",
    "hybrid rrf",
    "HybridRetriever.over",
    "chain AutoMerge",
    "chain Windows",
    "chain of all",
)
QUICK = ("sqlite",)
EXPORTS = ("v0.1", "v0.2")
KIND = [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow, id=name)
    for name in KINDS
    if name in STORES
]


class Counting:
    """An embed callable that counts what it is asked for."""

    def __init__(self, embed):
        self.identity = embed.identity
        self.embed = embed
        self.texts = []

    def __call__(self, text):
        """One vector."""
        self.texts.append(text)
        return self.embed(text) if isinstance(self.embed, Letters) else self.embed([text])[0]


def _check_answers(docs, cases=CASES) -> None:
    lib = Library(docs, docs, None)
    for name in cases:
        for label in ("none", "values"):
            answers.check_hits(lib, name, label, (11,))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KIND)
def test_a_store(tmp_path, kind):
    """Read only, it answers by vectors; a writer analyses texts again, and nothing is loaded or
    embedded anew.
    """
    check_store(tmp_path, kind)


def check_store(tmp_path: Path, kind: str) -> None:
    """Open a store of v0.1 and compare what it holds and answers.

    Args:
        tmp_path: A folder for the copy.
        kind: The kind of store.
    """
    store = STORES[kind]
    unpack("v0.1", kind, tmp_path / kind)
    conf = store.conf_of(tmp_path / kind)
    with open_document(tmp_path, conf, read_only=True) as docs:
        _check_answers(docs, ("cosine", "cosine all keys"))
        with pytest.raises(ReadOnlyError, match="activate_group"):
            Retriever(docs, "line", "bm25")("tea")
    embed = {"letters": Counting(Letters()), "pairs": Counting(Pairs())}
    with open_document(tmp_path, conf, embed=embed) as docs:
        report = docs.sync()
        assert (len(report.unchanged), report.added, report.updated, report.deleted) == (
            12,
            (),
            (),
            (),
        )
        assert docs.maintenance.verify() == ()
        docs.activate_group("line", analysers=["en", "zh"])
        docs.activate_group("sentence", analysers=["en"])
        docs.activate_group("section")
        goldens.check("stores", stored_rows(docs))
        assert [one.texts for one in embed.values()] == [[], []]
        _check_answers(docs)


def test_reading_does_not_migrate(tmp_path):
    """The format changes with the first writer; a newer one is refused with the way out, and left
    as it is.
    """
    unpack("v0.1", "sqlite", tmp_path / "sqlite")
    conf = STORES["sqlite"].conf_of(tmp_path / "sqlite")
    formats = []
    with closing(sqlite3.connect(tmp_path / "sqlite" / "store.db")) as shell:
        for read_only in (True, False):
            with open_document(tmp_path, conf, read_only=read_only) as docs:
                assert docs.maintenance.verify() == ()
            formats += shell.execute("PRAGMA user_version").fetchone()
        assert formats == [2, STORE_FORMAT.version]
        shell.execute("PRAGMA user_version = 5")
        before = shell.execute("PRAGMA data_version").fetchone()
        for read_only in (True, False):
            with pytest.raises(
                StoreError,
                match=r"format 5, written by a newer release.* up to format 4\. Install the newer",
            ):
                open_document(tmp_path, conf, read_only=read_only)
        assert shell.execute("PRAGMA data_version").fetchone() == before


def test_the_page_has_the_format_of_this_release():
    """In its table of releases, whose last row is this one, or the next one."""
    page = (ROOT / "docs" / "storage-format.md").read_text(encoding="utf-8")
    *_, last = re.findall(r"^\| (\d+\.\d+\.\d+|next) \| (\d+) \|", page, re.MULTILINE)
    version, number = last
    assert version in (lazyrag.__version__, "next")
    assert int(number) == STORE_FORMAT.version


def test_array_files(tmp_path):
    """A part of an index that lies in a file of its own."""
    unpack("v0.1", "sqlite", tmp_path / "sqlite")
    assert list((tmp_path / "sqlite" / "store.db.d").glob("*.arr"))
    embed = Wide()
    with open_wide(tmp_path, STORES["sqlite"].conf_of(tmp_path / "sqlite"), embed=embed) as docs:
        goldens.check("stores", wide_rows(docs))
        assert embed.texts == sum(bool(query.strip()) for query in answers.EXPLAINED)


@pytest.mark.slow
@pytest.mark.parametrize("release", EXPORTS)
def test_an_export(tmp_path, release):
    """It is imported, and nothing is embedded."""
    unpack(release, "export", tmp_path / "export")
    embed = {"letters": Counting(Letters()), "pairs": Counting(Pairs())}
    with open_document(tmp_path, None, embed=embed) as docs:
        assert docs.maintenance.import_from(tmp_path / "export" / "docs") == 12
        assert [one.texts for one in embed.values()] == [[], []]
        _check_answers(docs)


def exported_rows(folder: Path) -> dict[str, object]:
    """The documents of an export, the nodes of each group, and its vectors."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    rows: dict[str, object] = {"documents": read_lines(folder / "documents.jsonl")}
    for group in manifest["groups"]:
        rows[group["name"]] = read_lines(folder / group["nodes"])
        for space in group["spaces"]:
            uids = json.loads((folder / space["uids"]).read_text(encoding="utf-8"))
            vectors = read_vectors(folder / space["vectors"], len(uids), space["dimension"])
            digests = map(vector_digest, vectors)
            rows[f"{group['name']} {space['name']}"] = dict(zip(uids, digests, strict=True))
    return rows


def read_lines(path: Path) -> list[object]:
    """The values of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("release", "name"), [("v0.1", "docs"), ("v0.2", "docs"), ("v0.2", "sparse")]
)
def test_an_export_is_imported_and_exported_again(tmp_path, release, name):
    """The same documents, nodes, and vectors of both kinds."""
    folder = unpack(release, "export", tmp_path / "export") / name
    with open_document(tmp_path, None) as docs:
        assert docs.maintenance.import_from(folder) == len(exported_rows(folder)["documents"])
        again = docs.maintenance.export(tmp_path / "again")
        assert exported_rows(again) == exported_rows(folder)
        assert docs.maintenance.verify() == ()


def test_an_embedding_cache(tmp_path):
    """Its vectors are there."""
    unpack("v0.1", "cache", tmp_path)
    asked = Counting(Letters())
    with EmbeddingCache(tmp_path / "texts.embeddings") as cache:
        found = CachedEmbedder(asked, cache=cache).embed(list(CACHED_TEXTS))
    assert asked.texts == []
    assert found.tolist() == [Letters()(text) for text in CACHED_TEXTS]
