"""Versions of a document: which are kept, going back to one, and how long that holds."""

from __future__ import annotations

import datetime as dt
import os
import sqlite3
from contextlib import closing

import pytest

from lazyrag import DataType, DocField, Document, IngestionWarning, Retriever
from lazyrag.document import open as opening
from lazyrag.errors import ConfigError, IngestionError, StoreError
from lazyrag.read.catalogue import find_document
from tests.shelf import Shelf

OTHER = {"b.txt": "hot coffee\ncold milk"}


@pytest.fixture(params=["in a file", "in memory"])
def shelf(request, tmp_path):
    """One that lies in a file, and one in memory."""
    return Shelf(tmp_path, OTHER, keep_versions=3, in_memory=request.param == "in memory")


@pytest.fixture
def in_memory(tmp_path):
    """One in memory, for what does not depend on where it lies."""
    return Shelf(tmp_path, OTHER, keep_versions=3, in_memory=True)


@pytest.fixture
def stored(tmp_path):
    """One that lies in a file."""
    return Shelf(tmp_path, OTHER, keep_versions=3, in_memory=False)


def written(docs, shelf, *texts):
    """Have a.txt in several versions."""
    for text in texts:
        shelf.write({"a.txt": text})
        docs.sync()
        asked(docs)


def asked(docs):
    """Have the group, its lexical index and its vectors."""
    Retriever(docs, "line", similarity="bm25")("tea")
    Retriever(docs, "line")("tea")


def lines(docs, name="a.txt"):
    """The lines of a file that are live."""
    return [node.text for node in docs.get_nodes("line") if node.path == name]


def found(docs, word):
    """The files in which the lexical index has a word."""
    return [hit.path for hit in Retriever(docs, "line", similarity="bm25", topk=9)(word)]


def numbers(docs, name="a.txt"):
    """The numbers of the versions that are kept, and of the one that is live."""
    versions = docs.versions.list(name)
    return [one.number for one in versions], [one.number for one in versions if one.is_live]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("keep", "kept"), [(0, [4]), (1, [3, 4]), (2, [2, 3, 4]), (9, [1, 2, 3, 4])]
)
def test_so_many_versions_are_kept(in_memory, keep, kept):
    """With keep_versions=n there are the live one and n before it, in order, each with its time."""
    before = dt.datetime.now(dt.UTC)
    with in_memory.open(keep_versions=keep) as docs:
        written(docs, in_memory, "one", "two", "three", "four")
        assert numbers(docs) == (kept, [4])
        times = [one.created_at for one in docs.versions.list("a.txt")]
        assert times == sorted(times)
        assert before - dt.timedelta(seconds=1) <= times[0]
        assert times[-1] <= dt.datetime.now(dt.UTC)
        assert {one.document for one in docs.versions.list("a.txt")} == {"a.txt"}
        assert numbers(docs, "b.txt") == ([1], [1])


def test_no_change_makes_no_version(shelf):
    """Syncs that find nothing new, or the same text in a file that was touched, add none."""
    with shelf.open() as docs:
        written(docs, shelf, "one")
        docs.sync()
        os.utime(shelf.dataset / "a.txt")
        docs.sync()
        asked(docs)
        assert numbers(docs) == ([1], [1])


@pytest.mark.sample(3)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_back_to_any_version_that_is_kept(shelf, number):
    """It is live again as the newest version, in nodes, terms and vectors; nothing is embedded, and
    others stay.
    """
    with shelf.open() as docs:
        texts = ["one tea", "two tea\nmilk", "three tea", "four tea"]
        written(docs, shelf, *texts)
        shelf.embed.calls.clear()
        made = docs.versions.rollback("a.txt", number)
        assert (made.document, made.number, made.is_live) == ("a.txt", 5, True)
        assert lines(docs) == texts[number - 1].splitlines()
        assert lines(docs, "b.txt") == OTHER["b.txt"].splitlines()
        assert shelf.embed.calls == []
        assert found(docs, texts[number - 1].split()[0]) == ["a.txt"]
        assert found(docs, "four") == []
        [best] = Retriever(docs, "line", topk=1)(texts[number - 1].splitlines()[0])
        assert best.text == texts[number - 1].splitlines()[0]
        assert numbers(docs) == ([2, 3, 4, 5], [5])
        assert docs.maintenance.verify() == ()


def test_back_without_a_number(shelf):
    """The version before the live one is meant."""
    with shelf.open() as docs:
        written(docs, shelf, "one", "two", "three")
        docs.versions.rollback("a.txt")
        assert lines(docs) == ["two"]


def test_back_is_the_dump_of_then(shelf):
    """What is live after a rollback is what was live when that version was new: nodes, terms,
    vectors, dates.
    """
    with shelf.open() as docs:
        written(docs, shelf, "one tea\nmilk")
        then = list(docs.maintenance.dump())
        written(docs, shelf, "two")
        docs.versions.rollback("a.txt")
        assert list(docs.maintenance.dump()) == then


def test_it_stays_until_the_file_changes(shelf):
    """Syncs leave it, and so does touching the file; an edit brings the new content, with a number
    of its own.
    """
    with shelf.open() as docs:
        written(docs, shelf, "one", "two")
        docs.versions.rollback("a.txt")
        for _ in range(2):
            assert docs.sync().updated == ()
            assert lines(docs) == ["one"]
        os.utime(shelf.dataset / "a.txt", (1.6e9, 1.6e9))
        docs.sync()
        assert lines(docs) == ["one"]
        written(docs, shelf, "three")
        assert lines(docs) == ["three"]
        assert numbers(docs)[1][0] > 3


def test_it_stays_over_a_restart(stored):
    """The next program finds it live, and its syncs leave it as well."""
    with stored.open() as docs:
        written(docs, stored, "one", "two")
        docs.versions.rollback("a.txt")
    for _ in range(2):
        with stored.open() as docs:
            docs.sync()
            assert lines(docs) == ["one"]
            assert numbers(docs) == ([1, 2, 3], [3])


def test_the_old_content_written_again(shelf):
    """An edit to what the version before held is a change of the file, and ends where it leads."""
    with shelf.open() as docs:
        written(docs, shelf, "one", "two")
        docs.versions.rollback("a.txt")
        written(docs, shelf, "one")
        assert lines(docs) == ["one"]
        written(docs, shelf, "two")
        assert lines(docs) == ["two"]


def test_back_from_going_back(shelf):
    """The version that was live before a rollback is kept like any other: going back once more
    returns to it.
    """
    with shelf.open() as docs:
        written(docs, shelf, "one", "two", "three")
        docs.versions.rollback("a.txt", 1)
        docs.versions.rollback("a.txt")
        assert lines(docs) == ["three"]
        docs.versions.rollback("a.txt", 2)
        assert lines(docs) == ["two"]
        docs.versions.rollback("a.txt")
        assert lines(docs) == ["three"]
        assert docs.maintenance.verify() == ()


@pytest.mark.sample(2)
def test_after_a_transform_was_edited(shelf):
    """The old text goes through the present transform: versions are of documents, not of
    definitions.
    """
    with shelf.open() as docs:
        written(docs, shelf, "one tea", "two tea")
        docs.create_node_group(
            "line", transform=lambda text: text.upper().splitlines(), replace=True
        )
        asked(docs)
        docs.versions.rollback("a.txt")
        assert lines(docs) == ["ONE TEA"]
        assert lines(docs, "b.txt") == ["HOT COFFEE", "COLD MILK"]
        assert found(docs, "one") == ["a.txt"]
        assert docs.maintenance.verify() == ()


def test_with_a_group_that_came_later(shelf):
    """A group that was not there when the version was live has nodes of it as well."""
    with shelf.open() as docs:
        written(docs, shelf, "one tea", "two tea")
        docs.create_node_group("word", transform=lambda text: text.split(), parent="line")
        Retriever(docs, "word", similarity="bm25")("tea")
        docs.versions.rollback("a.txt")
        assert [node.text for node in docs.get_nodes("word") if node.path == "a.txt"] == [
            "one",
            "tea",
        ]
        [hit] = Retriever(docs, "word", similarity="bm25")("one")
        assert hit.parent.text == "one tea"


@pytest.mark.slow
def test_with_other_fields(stored):
    """Where other fields were declared since, all root nodes were made anew: versions before that
    are not kept.
    """
    with stored.open() as docs:
        written(docs, stored, "one", "two")
    with stored.open(doc_fields={"year": DocField(DataType.INT32)}) as docs:
        docs.sync()
        asked(docs)
        assert numbers(docs)[1] == [numbers(docs)[0][-1]]
        written(docs, stored, "three")
        docs.versions.rollback("a.txt")
        assert lines(docs) == ["two"]
        assert docs.maintenance.verify() == ()


def test_metadata_go_back_too(shelf):
    """A version has the metadata that it had: those of update_metadata came with a version of their
    own.
    """
    with shelf.open(doc_fields={"year": DocField(DataType.INT32)}) as docs:
        written(docs, shelf, "one")
        docs.update_metadata({"a.txt": {"year": 2001}})
        docs.update_metadata({"a.txt": {"year": 2002}})
        assert numbers(docs) == ([1, 2, 3], [3])
        docs.versions.rollback("a.txt")
        assert [node.path for node in docs.get_nodes("line", filters={"year": 2001})] == ["a.txt"]
        docs.versions.rollback("a.txt", 1)
        assert docs.get_nodes("line", filters={"year": [2001, 2002]}) == []
        docs.update_metadata({"a.txt": {"kind": "x"}})
        [root] = [node for node in docs.get_nodes() if node.path == "a.txt"]
        assert root.metadata["kind"] == "x"
        assert "year" not in {name for name, value in root.metadata.items() if value is not None}


def test_of_a_text(shelf):
    """Texts that were added as such have versions like files."""
    with shelf.open() as docs:
        docs.add_texts({"note": "one"})
        docs.add_texts({"note": "two"})
        asked(docs)
        docs.versions.rollback("note")
        assert lines(docs, "note") == ["one"]
        docs.sync()
        assert lines(docs, "note") == ["one"]


def test_of_a_file_that_was_moved(shelf):
    """A moved file is another document, whose versions begin with the move; the old name has none
    any more.
    """
    with shelf.open() as docs:
        written(docs, shelf, "one", "two")
        (shelf.dataset / "a.txt").rename(shelf.dataset / "z.txt")
        assert docs.sync().moved == (("a.txt", "z.txt"),)
        assert numbers(docs, "z.txt") == ([1], [1])
        with pytest.raises(ConfigError, match=r"There is no document 'a\.txt'.*z\.txt"):
            docs.versions.list("a.txt")
        with pytest.raises(
            ConfigError,
            match=r"'z\.txt' cannot be rolled back to an earlier version.*before it: none",
        ):
            docs.versions.rollback("z.txt")
        shelf.write({"z.txt": "three"})
        docs.sync()
        docs.versions.rollback("z.txt")
        assert lines(docs, "z.txt") == ["two"]


def test_moved_while_it_is_pinned(shelf):
    """A file that is moved after a rollback keeps the text that is live: its content did not
    change.
    """
    with shelf.open() as docs:
        written(docs, shelf, "one", "two")
        docs.versions.rollback("a.txt")
        (shelf.dataset / "a.txt").rename(shelf.dataset / "z.txt")
        assert docs.sync().moved == (("a.txt", "z.txt"),)
        assert lines(docs, "z.txt") == ["one"]


def test_a_document_that_comes_back(shelf):
    """A deleted document has no versions; one that comes back has those from then on."""
    with shelf.open() as docs:
        written(docs, shelf, "one", "two")
        (shelf.dataset / "a.txt").unlink()
        docs.sync()
        with pytest.raises(ConfigError, match=r"There is no document 'a\.txt'"):
            docs.versions.rollback("a.txt")
        written(docs, shelf, "three")
        assert len(docs.versions.list("a.txt")) == 1
        assert lines(docs) == ["three"]


@pytest.mark.parametrize("number", [3, 4, 99])
def test_a_version_that_is_not_there(in_memory, number):
    """The live one, and one that never was, are refused with those that are kept; nothing is
    changed.
    """
    with in_memory.open() as docs:
        written(docs, in_memory, "one", "two", "three")
        with pytest.raises(
            ConfigError,
            match=rf"to version {number}: it is not stored. Live: 3; stored before it: 1, 2\.",
        ):
            docs.versions.rollback("a.txt", number)
        assert lines(docs) == ["three"]
        assert numbers(docs) == ([1, 2, 3], [3])


@pytest.mark.sample(3)
@pytest.mark.parametrize("number", [0, -1, 1.5, "1", True])
def test_a_number_that_is_none(in_memory, number):
    """Versions are whole numbers from 1."""
    with in_memory.open() as docs:
        written(docs, in_memory, "one", "two")
        with pytest.raises(ConfigError, match="version"):
            docs.versions.rollback("a.txt", number)


def test_without_keeping_versions(in_memory):
    """By default there is none to go back to, and the message says what keeps them."""
    with in_memory.open(keep_versions=0) as docs:
        written(docs, in_memory, "one", "two")
        with pytest.raises(
            ConfigError, match=r"stored before it: none\. Document\(keep_versions=n\) stores n"
        ):
            docs.versions.rollback("a.txt")


@pytest.mark.parametrize("name", ["nobody.txt", "", "line"])
def test_a_document_that_is_not_there(in_memory, name):
    """The message names those that are."""
    with in_memory.open() as docs:
        written(docs, in_memory, "one")
        for work in (docs.versions.list, docs.versions.rollback):
            with pytest.raises(
                ConfigError, match=rf"There is no document '{name}'.*a\.txt, b\.txt"
            ):
                work(name)


def test_a_view_rolls_nothing_back(in_memory):
    """A restricted view lists the versions that it shows, of visible documents only; it changes
    none.
    """
    with in_memory.open() as docs:
        written(docs, in_memory, "one", "two")
        view = docs.restricted({"file_name": "b.txt"})
        with pytest.raises(ConfigError, match="no document"):
            view.versions.list("a.txt")
        assert [one.number for one in view.versions.list("b.txt")] == [1]
        with pytest.raises(ConfigError, match=r"rollback\(\) is not available on a restricted"):
            view.versions.rollback("a.txt")
        assert lines(docs) == ["two"]


@pytest.mark.parametrize("read", ["list", "diff"])
@pytest.mark.parametrize("name", ["a.txt", "note"])
def test_a_document_that_another_thread_deletes_meanwhile(folder, monkeypatch, name, read):
    """A view names no hidden document then, and fails as for a document that does not exist."""
    docs = Document(folder({"a.txt": "one", "hidden.txt": "secret"}))
    docs.sync()
    docs.add_texts({"note": "one", "hidden": "secret"})
    view = docs.restricted({"file_name": ["a.txt", "note"]})
    calls = {"list": lambda: view.versions.list(name), "diff": lambda: view.versions.diff(name, 1)}
    assert calls[read]()

    def find_and_delete(reader, identity):
        info = find_document(reader, identity)
        docs.delete_files([identity])
        return info

    monkeypatch.setattr("lazyrag.read.catalogue.find_document", find_and_delete)
    try:
        answer = str(calls[read]())
    except ConfigError as exc:
        answer = str(exc)
    assert "hidden" not in answer


def test_a_version_that_is_not_stored_names_the_list(in_memory):
    """`diff` names the method that lists versions."""
    with in_memory.open() as docs:
        written(docs, in_memory, "one", "two")
        with pytest.raises(ConfigError, match=r"not stored\. See versions\.list\('a\.txt'\)"):
            docs.versions.diff("a.txt", 7)


def test_a_transform_that_fails_on_the_old_text(shelf):
    """Then nothing is rolled back: the live version stays, and the error says which step failed."""

    def picky(text):
        if "one" in text:
            msg = "no ones"
            raise ValueError(msg)
        return text.splitlines()

    with shelf.open() as docs:
        written(docs, shelf, "one", "two")
        docs.create_node_group("line", transform=picky, replace=True)
        asked(docs)
        before = list(docs.maintenance.dump())
        with pytest.raises(
            IngestionError, match=r"Rolling back 'a\.txt' to version 1 failed.*no ones"
        ):
            docs.versions.rollback("a.txt")
        assert list(docs.maintenance.dump()) == before
        assert numbers(docs)[1] == [2]


def test_a_new_version_that_fails_is_none(shelf):
    """A file that cannot be read any more adds no version, and what is kept stays."""
    with shelf.open() as docs:
        written(docs, shelf, "one", "two")
        (shelf.dataset / "a.txt").write_bytes(b"\xff\xfe\x00\xd8")
        with pytest.warns(IngestionWarning, match=r"a\.txt"):
            docs.sync()
        assert numbers(docs) == ([1, 2], [2])
        docs.versions.rollback("a.txt")
        assert lines(docs) == ["one"]


@pytest.mark.slow
def test_purging_takes_nothing_that_is_needed(stored, monkeypatch):
    """However often what is dead is removed at once, each version that is kept can be gone back to,
    after restarts.
    """
    monkeypatch.setattr(opening, "_GRACE_S", 0.0)
    texts = [f"text {number}\ncommon line" for number in range(1, 8)]
    with stored.open(keep_versions=3) as docs:
        written(docs, stored, *texts)
        kept = numbers(docs)[0]
        assert kept == [4, 5, 6, 7]
    for number in kept[:-1]:
        with stored.open(keep_versions=9) as docs:
            docs.sync()
            docs.versions.rollback("a.txt", number)
            asked(docs)
            assert lines(docs) == texts[number - 1].splitlines()
            assert docs.maintenance.verify() == ()
            assert docs.versions.rollback("a.txt", 7).is_live
            assert lines(docs) == texts[6].splitlines()


@pytest.mark.slow
def test_fewer_versions_are_kept_from_now_on(stored, monkeypatch):
    """A Document that keeps fewer lets go of the others with the next change, also in the
    stores.
    """
    monkeypatch.setattr(opening, "_GRACE_S", 0.0)
    with stored.open(keep_versions=5) as docs:
        written(docs, stored, "one", "two", "three")
        assert len(stored.rows("SELECT key FROM segment WHERE content = 'one'")) == 2
    with stored.open(keep_versions=0) as docs:
        written(docs, stored, "four")
        docs.sync()
        assert numbers(docs) == ([4], [4])
    assert stored.rows("SELECT key FROM segment WHERE content IN ('one', 'two', 'three')") == []


def test_a_reader_sees_a_rollback(stored):
    """Another program that reads the store has the old version at its next question; it may not
    roll back itself.
    """
    with stored.open() as docs:
        written(docs, stored, "one", "two")
        with stored.open(read_only=True) as reader:
            assert lines(reader) == ["two"]
            docs.versions.rollback("a.txt")
            assert lines(reader) == ["one"]
            assert numbers(reader) == ([1, 2, 3], [3])
            with pytest.raises(StoreError, match="read_only"):
                reader.versions.rollback("a.txt")


@pytest.mark.slow
def test_a_kept_version_that_is_damaged(stored):
    """Where the old text is gone from the store, going back to it is refused, and what is live
    stays.
    """
    with stored.open() as docs:
        written(docs, stored, "one", "two")
    with closing(sqlite3.connect(stored.store)) as connection, connection:
        connection.execute("DELETE FROM segment WHERE content = 'one'")
    with stored.open() as docs:
        docs.sync()
        before = list(docs.maintenance.dump())
        with pytest.raises(StoreError, match=r"0 of 1 nodes"):
            docs.versions.rollback("a.txt")
        assert list(docs.maintenance.dump()) == before
        assert docs.maintenance.repair() == ()
        assert list(docs.maintenance.dump()) == before


@pytest.mark.slow
def test_fifty_edits_leave_no_more_than_three(stored, monkeypatch):
    """The number of rows in the store stays that of the versions that are kept, however often a
    file is edited.
    """
    monkeypatch.setattr(opening, "_GRACE_S", 0.0)
    tables = (
        "segment",
        "segment_origin",
        "build",
        "version",
        "covered",
        "vector_part",
        "term_part",
    )

    def sizes():
        return [stored.rows(f"SELECT count(*) FROM {table}")[0][0] for table in tables]  # noqa: S608  names of our own

    with stored.open(keep_versions=1) as docs:
        most = [0] * len(tables)
        for number in range(50):
            stored.write({"a.txt": f"edit {number}\ncommon"})
            docs.sync()
            asked(docs)
            if number == 9:
                early = sizes()
            most = [max(pair) for pair in zip(most, sizes(), strict=True)]
        counts = dict(zip(tables, most, strict=True))
        # Two versions of a.txt and one of b.txt; one more of a.txt until the next purge.
        assert counts["segment"] <= 3 * 4
        assert counts["build"] <= 2 * 4
        assert counts["version"] == 3
        assert all(now <= 2 * then + 8 for now, then in zip(most, early, strict=True))
        assert docs.maintenance.verify() == ()
