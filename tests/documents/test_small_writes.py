"""A small change to a large Document is small; and what it leaves out to be small is not missed."""

from __future__ import annotations

import gc
import os
import sqlite3
import sys
import threading
import time
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from lazyrag import Document, IngestionWarning, Retriever
from lazyrag.stores.sqlite import StoreFile

# the eleventh sees whether others have changed or deleted the document meanwhile
MAX_TRANSACTIONS = 11


def open_document(root, **arguments):
    """A Document of lines over a store file, with a BM25 index."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(root / "store.db")}}}
    if "embed" in arguments:
        conf["vector_store"] = conf["segment_store"]
    docs = Document(root / "dataset", store_conf=conf, **arguments)
    docs.create_node_group("line", transform=str.splitlines)
    return docs


def write(root, name, text):
    """A file that is too old for any doubt whether it changed since."""
    path = root / "dataset" / name
    path.write_text(text)
    os.utime(path, (1.6e9, 1.6e9 + len(text)))


@pytest.fixture
def root(tmp_path):
    """A folder with a dataset of twenty files."""
    (tmp_path / "dataset").mkdir()
    for number in range(20):
        write(tmp_path, f"{number:02}.txt", f"tea {number}\nmilk {number}")
    return tmp_path


def found(docs, query):
    """The texts that a query finds, in order."""
    return [hit.text for hit in Retriever(docs, "line", similarity="bm25", topk=30)(query)]


@contextmanager
def counted(monkeypatch):
    """Count SQLite's transactions in all connections to a store that are opened meanwhile; `clear`
    begins anew.
    """
    counts = Counter()
    connect = sqlite3.connect

    def connecting(*given, **arguments):
        connection = connect(*given, **arguments)
        if "store.db?" in given[0]:
            connection.set_trace_callback(lambda statement: counts.update([statement]))
        return connection

    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", connecting)
        yield counts


@pytest.mark.sample(2)
@pytest.mark.parametrize("vectors", [False, True])
def test_a_small_change_takes_few_transactions(root, monkeypatch, vectors):
    """One document added, changed or deleted: at most eleven transactions, thirteen with vectors,
    and one of them waits for the disk.
    """
    given = {"embed": lambda text: [1.0, float(len(text))]} if vectors else {}
    with counted(monkeypatch) as counts, open_document(root, **given) as docs:
        found(docs, "tea")
        if vectors:
            Retriever(docs, "line", topk=1)("tea")
        docs.add_texts({"a": "cocoa"})
        for change in (
            lambda: docs.add_texts({"b": "one coffee"}),
            lambda: docs.add_texts({"b": "two coffees"}),
            lambda: docs.delete_files(["b"]),
        ):
            counts.clear()
            change()
            assert counts["BEGIN"] > 1
            # with vectors, two more read those of the version before, which may stay
            allowed = MAX_TRANSACTIONS + 2 * vectors
            assert counts["BEGIN"] + counts["BEGIN IMMEDIATE"] <= allowed
            assert counts["PRAGMA synchronous = 2"] == 1


def test_an_unchanged_sync_reads_no_rows(root, monkeypatch):
    """It takes few transactions, and neither counts nor reads nodes: a program looks for losses
    once.
    """
    with counted(monkeypatch) as counts, open_document(root) as docs:
        found(docs, "tea")
        docs.sync()
        counts.clear()
        docs.sync()
        assert 2 < counts["BEGIN"] + counts["BEGIN IMMEDIATE"] <= MAX_TRANSACTIONS
        assert [statement for statement in counts if "FROM segment" in statement] == []


@pytest.mark.slow
@pytest.mark.parametrize("change", ["add", "update", "delete", "metadata"])
def test_a_small_change_takes_no_more_calls_in_a_large_document(root, change):
    """With ten times the documents, a change calls as many functions of the package, a few
    aside.
    """

    def calls(docs):
        change_of = {
            "add": lambda: docs.add_texts({"b": "coffee"}),
            "update": lambda: docs.add_texts({"a": "other cocoa"}),
            "delete": lambda: docs.delete_files(["a"]),
            "metadata": lambda: docs.update_metadata({"a": {"owner": "me"}}),
        }[change]
        count = 0

        def profile(frame, event, _argument):
            nonlocal count
            count += event == "call" and frame.f_globals.get("__name__", "").startswith("lazyrag.")

        threading.setprofile(profile)
        sys.setprofile(profile)
        try:
            change_of()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        return count

    numbers = []
    for files in (20, 200):
        for number in range(20, files):
            write(root, f"{number:02}.txt", f"tea {number}\nmilk {number}")
        with open_document(root) as docs:
            docs.add_texts({"a": "cocoa"})
            found(docs, "tea")
            numbers.append(calls(docs))
    assert numbers[1] <= numbers[0] + 90  # definitions are compared once more


def test_what_a_sync_leaves_out_is_seen(root):
    """After a sync that found nothing, each kind of change is found by the next one, also beside
    other operations.
    """
    with open_document(root) as docs:
        found(docs, "tea")
        assert len(docs.sync().unchanged) == 20
        assert len(docs.sync().unchanged) == 20
        write(root, "00.txt", "cocoa")
        (root / "dataset/01.txt").rename(root / "dataset/moved.txt")
        (root / "dataset/02.txt").unlink()
        write(root, "new.txt", "coffee")
        docs.delete_files(["03.txt"])
        docs.add_texts({"04": "a text"})
        report = docs.sync()
        assert (report.added, report.updated, report.deleted) == (
            ("new.txt",),
            ("00.txt",),
            ("02.txt",),
        )
        assert report.moved == (("01.txt", "moved.txt"),)
        assert len(report.unchanged) == 16
        assert ("03.txt", "deleted by delete_files") in report.skipped
        (root / "dataset/new.txt").unlink()  # of which the last sync was the first
        write(root, "00.txt", "cocoa beans")
        report = docs.sync()
        assert (report.updated, report.deleted, len(report.unchanged)) == (
            ("00.txt",),
            ("new.txt",),
            17,
        )
        assert docs.add_files([root / "dataset/03.txt"]).added == ("03.txt",)
        assert len(docs.sync().unchanged) == 19
        assert docs.sync().skipped == ()


def test_another_program_changes_the_ledger_between_two_syncs(root):
    """What this one knows of the files is out of date."""
    with open_document(root) as docs:
        docs.sync()
        docs.sync()
        with open_document(root) as other:
            other.delete_files(["00.txt"])
        report = docs.sync()
        assert ("00.txt", "deleted by delete_files") in report.skipped
        assert "00.txt" not in report.unchanged


def test_a_reader_is_seen_by_a_sync_that_found_nothing_before(root):
    """It reads all files again, though none changed."""
    with open_document(root) as docs:
        docs.sync()
        docs.sync()
        docs.add_reader("*.txt", lambda path: f"read: {Path(path).read_text()}")
        assert len(docs.sync().updated) == 20


@pytest.mark.slow
def test_readers_elsewhere_see_many_small_changes(root):
    """A Document that was open before sees each of them: what it shares with its earlier state is
    right.
    """
    with open_document(root) as docs, open_document(root, read_only=True) as reader:
        found(docs, "tea")
        for number in range(5):
            docs.add_texts({f"note {number}": f"cocoa {number}"})
            docs.delete_files([f"{number:02}.txt"])
            docs.add_texts({"note 0": f"cocoa again {number}"})
            expected = sorted(found(docs, "cocoa tea"))
            assert sorted(found(reader, "cocoa tea")) == expected
            assert len(expected) == 20
        names = [node.global_metadata["file_name"] for node in reader.get_nodes("line")]
        assert names == sorted(names)


@pytest.mark.slow
def test_kept_hits_outlast_any_number_of_dropped_ones(root):
    """They show their location and file after the Document was closed; those that a program dropped
    are forgotten.
    """
    with open_document(root) as docs:
        retriever = Retriever(docs, "line", similarity="bm25", topk=3)
        kept = retriever("tea")
        for _ in range(400):
            retriever("milk")
        gc.collect()
        assert len(docs._indexer.hits) == len(kept) == 3
    assert {node.location for node in kept} == {"line 1"}
    assert all(node.global_metadata["file_name"].endswith(".txt") for node in kept)


@pytest.mark.slow
def test_rows_that_are_lost_are_noticed_by_counts(root):
    """Rows that somebody deleted from the store are rebuilt by a sync that counts, with a warning;
    else not noticed.
    """
    with open_document(root) as docs:
        docs.get_nodes("line")
    with closing(StoreFile(root / "store.db")) as file, file.writing() as connection:
        connection.execute("DELETE FROM segment WHERE id IN (SELECT id FROM segment LIMIT 3)")
    with open_document(root) as docs:
        docs.sync()
        assert docs.maintenance.verify()
        with pytest.warns(IngestionWarning, match="rows are left"):
            docs.sync(verify="counts")
        assert docs.maintenance.verify() == ()
        docs.sync(verify="counts")


@pytest.mark.slow
def test_superseded_rows_hide_no_lost_ones(root):
    """Rows lost soon after an update, while superseded ones are still stored, are noticed; and once
    only.
    """
    with open_document(root) as docs:
        docs.get_nodes("line")
        for number in range(4):
            write(root, f"{number:02}.txt", f"green tea {number}\noat milk {number}")
        docs.sync()
        with closing(StoreFile(root / "store.db")) as file, file.writing() as connection:
            assert (
                connection.execute(
                    "DELETE FROM segment WHERE content IN ('tea 18', 'milk 19')"
                ).rowcount
                == 2
            )
        with pytest.warns(IngestionWarning, match="rows are left"):
            docs.sync(verify="counts")
        assert docs.maintenance.verify() == ()
        docs.sync(verify="counts")


def test_a_purge_is_announced_before_rows_go(root, monkeypatch):
    """A read that began before and finds its rows gone is repeated, in this program and in
    others.
    """
    with open_document(root) as docs, open_document(root, read_only=True) as reader:
        found(docs, "tea")
        before = reader._indexer.ledger.removals
        seen = []
        delete = type(docs._indexer.nodes.segments).delete_builds

        def deleting(*given):
            seen.append(reader._indexer.ledger.removals)
            return delete(*given)

        monkeypatch.setattr(type(docs._indexer.nodes.segments), "delete_builds", deleting)
        docs.delete_files(["00.txt"])
        # the grace period has passed
        monkeypatch.setattr("lazyrag.ingest.indexer.time.time", lambda: 4e9)
        docs.delete_files(["01.txt"])
        assert seen
        assert set(seen) == {before + 1}


def size(root):
    """Bytes of a store, all its files."""
    return sum(path.stat().st_size for path in root.rglob("store.db*") if path.is_file()) + sum(
        path.stat().st_size for path in (root / "store.db.d").glob("*")
    )


@pytest.mark.slow
def test_space_comes_back(root, monkeypatch):
    """After the model and a transform changed, the store is about as large as one that was built
    anew.
    """

    def vectors(docs):
        Retriever(docs, "line", topk=1)("tea")
        docs.add_texts({str(number): f"cocoa {number} " * 40 for number in range(120)})
        docs.delete_files([str(number) for number in range(50)])

    for name in ("used", "fresh"):
        (root / name).mkdir()
        (root / name / "dataset").symlink_to(root / "dataset")
    with open_document(root / "fresh", embed=lambda text: [float(len(text)), *[2.0] * 400]) as docs:
        vectors(docs)
        answers = [hit.text for hit in Retriever(docs, "line", topk=9)("tea")]
    with open_document(root / "used", embed=lambda text: [float(len(text)), *[1.0] * 400]) as docs:
        vectors(docs)
    # the grace period has passed
    monkeypatch.setattr("lazyrag.ingest.indexer.time.time", lambda: 4e9)
    with open_document(root / "used", embed=lambda text: [float(len(text)), *[2.0] * 400]) as docs:
        docs.create_node_group("line", transform=lambda text: text.splitlines(), replace=True)
        assert [hit.text for hit in Retriever(docs, "line", topk=9)("tea")] == answers
        before = size(root / "used")
        docs.maintenance.compact()
        docs.maintenance.compact()
        assert docs.maintenance.verify() == ()
        assert [hit.text for hit in Retriever(docs, "line", topk=9)("tea")] == answers
    assert size(root / "used") < before
    assert size(root / "used") <= 1.3 * size(root / "fresh")


@pytest.mark.slow
def test_compact_drops_cached_vectors_that_nobody_needs(root):
    """Those of superseded texts; going back embeds them again. Those of live ones stay."""
    embedded = []

    def embed(text):
        embedded.append(text)
        return [1.0, float(len(text))]

    def count():
        return sum(text[-1] == "!" for text in embedded)  # without queries

    def build(suffix):
        docs = open_document(root, embed=embed)
        docs.create_node_group(
            "line", transform=lambda text: [one + suffix for one in text.splitlines()], replace=True
        )
        Retriever(docs, "line", topk=1)("tea")
        return docs

    build("!").close()
    with build("?") as docs:
        docs.maintenance.compact()
    embedded.clear()
    with build("!") as docs:
        assert count() == 40
        docs.maintenance.compact()
        docs.delete_files(["00.txt"])
        docs.add_files([root / "dataset/00.txt"])
        assert count() == 40
        assert docs.maintenance.verify() == ()


def test_unused_vectors_of_superseded_texts_are_cached_for_90_days(root, monkeypatch):
    """A sync after that deletes them. Live ones stay, however long nothing changes."""

    def cached():
        with closing(sqlite3.connect(root / "store.db.embeddings")) as connection:
            return connection.execute(
                "SELECT count(*) FROM vector JOIN space ON space.id = space"
            ).fetchone()[0]

    with open_document(root, embed=lambda text: [1.0, float(len(text))]) as docs:
        docs.activate_group("line", embed_keys=["default"])
        write(root, "00.txt", "green tea\noat milk")
        docs.sync()
        assert cached() == 42
        begin = time.time()
        for days, expected in ((80, 42), (100, 40), (200, 40)):
            monkeypatch.setattr("time.time", lambda now=begin + days * 86_400: now)
            docs.sync()
            assert cached() == expected


def test_other_dates_are_no_other_content(root):
    """The document gets the dates, nodes and filters included; nothing is loaded, and the report
    tells it apart.
    """
    loaded = []

    def read(path):
        loaded.append(path)
        return path.read_text()

    with open_document(root) as docs:
        docs.add_reader("*.txt", read)
        found(docs, "tea")
        docs.sync()
        loaded.clear()
        os.utime(root / "dataset/00.txt", (1.6e9, 1.5e9))  # another day
        os.utime(root / "dataset/01.txt", (1.6e9, 1.6e9 + 60))  # another minute
        report = docs.sync()
        assert (report.touched, report.updated, len(report.unchanged)) == (("00.txt",), (), 19)
        assert loaded == []
        ask = Retriever(docs, "line", similarity="bm25", topk=30)
        assert [hit.text for hit in ask("tea", filters={"last_modified_date": "2017-07-14"})] == [
            "tea 0"
        ]
        assert len(docs.sync().unchanged) == 20
