"""The live rows of keyword indexes when something goes wrong: a change is made as a whole, or not at
all, and no reader sees rows that are not live.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lazyrag import Document, Retriever
from lazyrag.errors import StoreError
from lazyrag.ingest import term_index
from lazyrag.storage.arrays import ArrayFiles
from tests.earlier_formats import to_format_3


def open_store(path, **arguments):
    """A Document with a group, in a store file."""
    docs = Document(store_conf=str(path), name="shelf", **arguments)
    docs.create_node_group("line", transform=str.splitlines)
    return docs


def found(docs, query="tea"):
    """Paths of the documents that a keyword search finds."""
    hits = Retriever(docs, "line", similarity="bm25", topk=1_000)(query)
    return {node.path for node in hits}


def texts(*names):
    """Documents with a common word."""
    return {name: f"tea {name}\nmilk" for name in names}


def execute(path, statement):
    """Run a statement as another program does."""
    with closing(sqlite3.connect(path)) as shell:
        shell.execute(statement)
        shell.commit()


@pytest.fixture
def path(tmp_path):
    """Where a store file will be."""
    return tmp_path / "store.db"


@pytest.fixture
def file(path, monkeypatch):
    """The array file of a keyword index over three documents."""
    monkeypatch.setattr(term_index, "_SMALL_BYTES", 0)
    with open_store(path) as docs:
        docs.add_texts(texts("a", "b", "c"))
        assert found(docs) == {"a", "b", "c"}
    [file] = Path(f"{path}.d").glob("*.arr")
    return file


def test_a_read_error_is_no_damage(path, file):
    """A deletion that cannot read a part changes nothing, and succeeds when it is repeated."""
    aside = file.rename(file.with_suffix(".aside"))
    file.mkdir()  # reading it fails, and tells nothing about what was written
    with open_store(path) as docs:
        with pytest.raises(StoreError, match="directory"):
            docs.delete_files(["a"])
        file.rmdir()
        aside.rename(file)
        assert found(docs) == {"a", "b", "c"}
        docs.delete_files(["a"])
        assert found(docs) == {"b", "c"}
        assert docs.maintenance.verify() == ()


@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_a_damaged_part(path, file, damage):
    """A deletion goes on. Until the index is repaired searches fail: they miss nothing, and show
    nothing that was deleted, even if the file comes back.
    """
    content = file.read_bytes()
    with open_store(path, read_only=True) as reader:
        assert found(reader) == {"a", "b", "c"}
        if damage == "cut":
            cut = file.with_suffix(".cut")
            cut.write_bytes(content[:-100])
            cut.rename(file)
        else:
            file.unlink()
        with open_store(path) as docs:
            docs.delete_files(["a"])
            with pytest.raises(StoreError, match="repair"):
                found(docs)
        file.write_bytes(content)
        with pytest.raises(StoreError, match="repair"):
            found(reader)
        with open_store(path) as docs:
            docs.add_texts(texts("d"))
            docs.maintenance.repair()
            assert found(docs) == {"b", "c", "d"}
            assert docs.maintenance.verify() == ()
        assert found(reader) == {"b", "c", "d"}


def test_numbers_of_parts_that_were_rolled_back(path):
    """They are given out again, by another program for other parts."""
    with open_store(path) as docs, open_store(path) as other:
        docs.add_texts(texts("a", "b"))
        assert found(docs) == {"a", "b"}
        execute(
            path,
            "CREATE TRIGGER fault AFTER INSERT ON term_state BEGIN"
            " SELECT RAISE(ABORT, 'disk is full'); END",
        )
        with pytest.raises(StoreError):
            docs.add_texts(texts("c"))
        execute(path, "DROP TRIGGER fault")
        other.add_texts({"d": "tea\ntea d\ntea e"})
        docs.delete_files(["d"])
        assert found(docs) == found(other) == {"a", "b"}
        assert docs.maintenance.verify() == ()


def test_a_migration_and_as_many_changes_as_before(path):
    """A reader of format 3 does not take the rows that were live then for those of format 4."""
    names = "abcdefgh"
    with open_store(path) as docs:
        docs.add_texts(texts(*names))
        found(docs)
    to_format_3(path)
    with open_store(path, read_only=True) as reader:
        assert found(reader) == {*names}
        changes = reader._indexer.ledger.tree.changes
        assert 1 < changes < len(names)
        with open_store(path) as docs:
            for name in names[1:changes]:
                docs.delete_files([name])
        assert found(reader) == {*names} - {*names[1:changes]}


def test_parts_that_are_merged_are_let_go(path):
    """A reader has the parts that the ledger lists, and a writer, however many there were."""
    with open_store(path) as docs, open_store(path, read_only=True) as reader:
        docs.add_texts(texts("a", "b"))
        assert found(docs) == found(reader) == {"a", "b"}
        for number in range(200):
            docs.add_texts(texts(f"{number % 20:03}"))
            assert f"{number % 20:03}" in found(reader)
        [group] = [
            group for group in reader._indexer.ledger.tree.groups.values() if group.name == "line"
        ]
        [index] = group.indexes.values()
        for indexer in (docs._indexer, reader._indexer):
            parts = indexer.ledger.parts
            assert len(parts._arrays) <= len(index.parts) + 1
            assert len(parts._builds) <= len(index.parts) + 1
            assert len(indexer.terms._parts) <= len(index.parts) + 1


def test_parts_are_opened_before_others_wait(path, file, monkeypatch):
    """A transaction that writes opens no array file of earlier ones, which may have to be
    downloaded.
    """
    opened = []
    open_arrays = ArrayFiles.open

    def note(self, name, content=None):
        if content is None:
            opened.append(docs._indexer.ledger.file.is_writing())
        return open_arrays(self, name, content)

    with open_store(path) as docs:
        monkeypatch.setattr(ArrayFiles, "open", note)
        docs.add_texts({**texts("b"), "d": "tea"})
        docs.delete_files(["a"])
        assert found(docs) == {"b", "c", "d"}
    assert opened
    assert not any(opened)
