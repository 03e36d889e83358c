"""What a Document says that it holds."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from lazyrag import Document, IngestionWarning, IngestReport, Retriever
from lazyrag.document import DocumentStatus, GroupStatus
from tests.shelf import Letters, Lines, ShelfOfWords, conf_of

FILES = {
    "a.txt": "green tea\nblack tea",
    "b.txt": "hot coffee\ncold milk",
    "c.txt": "still water\nred wine\nrum",
}


@pytest.fixture(params=["in a file", "in memory"])
def shelf(request, tmp_path):
    """One that lies in a file, and one in memory."""
    return ShelfOfWords(tmp_path, FILES, in_memory=request.param == "in memory")


@pytest.fixture
def stored(tmp_path):
    """One that lies in a file."""
    return ShelfOfWords(tmp_path, FILES, in_memory=False)


def groups(docs):
    """The groups by name."""
    return {one.name: one for one in docs.status().groups}


def test_before_the_first_use(shelf):
    """Nothing is there, and asking loads and builds nothing."""
    with shelf.open(name="mine") as docs:
        assert docs.status() == DocumentStatus("mine", 0, (), (), 0, "")
        assert str(docs.status()) == "mine: 0 documents, 0 failed steps"
        assert docs.last_report is None


def test_what_is_built(shelf):
    """Groups appear as they are built, with the documents and nodes in them and what is indexed
    over them.
    """
    with shelf.open() as docs:
        docs.sync()
        assert groups(docs) == {"lazyllm_root": GroupStatus("lazyllm_root", True, True, 3, 3, ())}
        docs.activate_group("line")
        assert groups(docs)["line"] == GroupStatus("line", True, True, 3, 7, ())
        Retriever(docs, "line", similarity="bm25")("tea")
        Retriever(docs, "line", similarity="bm25_chinese")("tea")
        Retriever(docs, "line")("tea")
        assert len(groups(docs)["line"].indexes) == 3
        assert "default" in groups(docs)["line"].indexes
        assert "word" not in groups(docs)
        told = str(docs.status())
        assert told.startswith(
            "default: 3 documents, 0 failed steps\n  lazyllm_root: 3 nodes\n  line: 7 nodes ("
        )


def test_asking_changes_nothing(shelf):
    """Neither the dump nor the report, and no model is asked."""
    embed = Letters()
    with shelf.open(embed=embed) as docs:
        docs.sync()
        docs.activate_group("line")
        dump = list(docs.maintenance.dump())
        assert docs.status() == docs.status()
        assert list(docs.maintenance.dump()) == dump
        assert embed.calls == []
        assert docs.last_report == IngestReport(added=tuple(FILES))


def test_what_failed(shelf):
    """A file that failed stands there with its step, until it succeeds; the other documents
    count.
    """
    transform = Lines("coffee")
    with shelf.open(transform) as docs:
        with pytest.warns(IngestionWarning, match=r"b\.txt"):
            docs.activate_group("line")
        assert docs.status().failed == (("b.txt", "transform line"),)
        assert docs.status().documents == 3
        assert (groups(docs)["line"].documents, groups(docs)["line"].nodes) == (2, 5)
        (shelf.dataset / "bad.json").write_text("{")
        with pytest.warns(IngestionWarning, match=r"b\.txt|bad\.json"):
            docs.sync()
        assert docs.status().failed == (("b.txt", "transform line"), ("bad.json", "load"))
        transform.bad.clear()
        (shelf.dataset / "bad.json").unlink()
        docs.sync()
        assert docs.status().failed == ()
        assert groups(docs)["line"].documents == 3


def test_what_failed_is_known_to_the_next_program(stored):
    """Failures stand in the ledger: who opens it later knows them without trying."""
    with stored.open(Lines("coffee")) as docs, pytest.warns(IngestionWarning):
        docs.activate_group("line")
    with stored.open(Lines("coffee"), read_only=True) as docs:
        assert docs.status().failed == (("b.txt", "transform line"),)


def test_another_definition(shelf):
    """A group that is defined otherwise now is told so, until it is built again."""
    with shelf.open() as docs:
        docs.activate_group("line")
        docs.create_node_group("line", transform=lambda text: text.split("\n")[:1], replace=True)
        assert not groups(docs)["line"].is_current
        assert "line: 7 nodes (definition changed: code of function <lambda> (was Lines))" in str(
            docs.status()
        )
        docs.activate_group("line")
        assert groups(docs)["line"] == GroupStatus("line", True, True, 3, 3, ())


def test_a_group_of_another_program(stored):
    """Documents that a program without a group changes are missing in it: it is not whole, and not
    defined here.
    """
    with stored.open() as docs:
        docs.activate_group("word")
    (stored.dataset / "a.txt").write_text("white tea")
    with Document(stored.dataset, store_conf=conf_of(stored.store)) as docs:
        docs.sync()
        word = groups(docs)["word"]
        assert (word.is_current, word.is_complete, word.documents) == (False, False, 2)
        assert "not defined by this program, incomplete" in str(docs.status())
    with stored.open() as docs:
        docs.activate_group("word")
        assert groups(docs)["word"] == GroupStatus("word", True, True, 3, 11, ())


def test_a_document_without_nodes(shelf):
    """A group in which a file has no nodes counts the documents that have some."""
    with shelf.open() as docs:
        docs.create_node_group(
            "tea", transform=lambda text: [one for one in text.splitlines() if "tea" in one]
        )
        docs.activate_group("tea")
        assert groups(docs)["tea"] == GroupStatus("tea", True, True, 1, 2, ())


def test_what_waits_to_be_removed(shelf):
    """What an edit replaced waits while somebody may be reading it; in memory it goes at once."""
    with shelf.open() as docs:
        docs.activate_group("line")
        assert docs.status().waiting == 0
        (shelf.dataset / "a.txt").write_text("white tea")
        docs.sync()
        assert docs.status().waiting == (2 if shelf.store else 0)


def test_who_is_writing(shelf):
    """While a program writes it is named, with its process; also to those who only read."""
    with shelf.open() as docs:
        docs.sync()
        with docs.reader.indexer.ledger.lease.held():
            assert "(this process)" in docs.status().writer
            if shelf.store:
                with shelf.open(read_only=True) as reader:
                    assert reader.status().writer == docs.status().writer
        assert docs.status().writer == ""


def test_a_store_that_nobody_has_written(stored):
    """Opened for reading under a name that has no documents yet, it is empty."""
    with stored.open() as docs:
        docs.sync()
    with stored.open(read_only=True, name="other") as docs:
        assert docs.status() == DocumentStatus("other", 0, (), (), 0, "")


def test_a_lease_that_has_run_out(stored):
    """A program that ended in the middle is not named as writing for longer than its lease."""
    with stored.open() as docs:
        docs.sync()
        with docs.reader.indexer.ledger.lease.held():
            with closing(sqlite3.connect(stored.store)) as connection, connection:
                connection.execute("UPDATE ledger SET expires_at = 1")
            assert docs.status().writer == ""
