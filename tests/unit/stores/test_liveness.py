"""Format 4 of the store file: what a store of format 3 becomes, and how it is read before that."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress

import pytest

from lazyrag import Document, Retriever
from lazyrag.errors import StoreError
from tests.earlier_formats import to_format_3

QUERIES = ("green tea", "coffee", "water", "milk")


def open_store(path, **arguments):
    """A Document with a group, in a store file."""
    docs = Document(store_conf=str(path), name="shelf", keep_versions=2, **arguments)
    docs.create_node_group("line", transform=str.splitlines)
    return docs


def answers(docs):
    """Hits with scores by keywords, and all that is live."""
    retriever = Retriever(docs, "line", similarity="bm25")
    hits = [[(node.path, node.text, node.score) for node in retriever(text)] for text in QUERIES]
    return hits, list(docs.maintenance.dump())


@pytest.fixture
def path(tmp_path):
    """A store with versions, a deleted document and rows of builds that are not live."""
    path = tmp_path / "store.db"
    with open_store(path) as docs:
        docs.add_texts({str(number): f"tea {number}\ncoffee {number}" for number in range(30)})
        Retriever(docs, "line", similarity="bm25")("tea")
        docs.add_texts({"3": "green tea\n\nwater"})
        docs.delete_files(["4"])
        docs.add_texts({"5": "milk"})
        docs.versions.rollback("5")
    return path


def test_it_is_read_as_it_is(path):
    """By a program that only reads, which answers as before, and changes nothing in the file."""
    with open_store(path, read_only=True) as docs:
        before = answers(docs)
        status = docs.status()
    to_format_3(path)
    content = path.read_bytes()
    with open_store(path, read_only=True) as docs:
        assert answers(docs) == before
        assert docs.status() == status
        assert docs.maintenance.verify() == ()
    assert path.read_bytes() == content


def test_a_migration(path):
    """A program that writes brings it to format 4, with the same answers and nothing to repair."""
    with open_store(path, read_only=True) as docs:
        before = answers(docs)
        status = docs.status()
    to_format_3(path)
    with open_store(path) as docs:
        assert docs.maintenance.verify() == ()
        assert answers(docs) == before
        assert docs.status() == status
        docs.add_texts({"6": "water only"})
        docs.versions.rollback("3")
        assert docs.maintenance.verify() == ()
        assert [node.path for node in Retriever(docs, "line", similarity="bm25")("water")] == ["6"]


def test_a_migration_that_fails_changes_nothing(path, monkeypatch):
    """It is one transaction."""
    to_format_3(path)

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("lazyrag.stores.liveness.live_numbers", fail)
    with suppress(KeyboardInterrupt):
        open_store(path).close()
    with closing(sqlite3.connect(path)) as shell:
        assert shell.execute("PRAGMA user_version").fetchone() == (3,)
        with pytest.raises(sqlite3.OperationalError):
            shell.execute("SELECT * FROM term_state")


def test_a_reader_goes_on_after_a_migration(path):
    """Another program migrates the file, and changes it, while one has it open for reading."""
    to_format_3(path)
    with open_store(path, read_only=True) as reader:
        before = answers(reader)
        with open_store(path) as docs:
            with suppress(StoreError):  # in the middle of the migration
                assert answers(reader) == before
            docs.add_texts({"7": "milk"})
        hits = Retriever(reader, "line", similarity="bm25")("milk")
        assert [node.path for node in hits] == ["7"]
