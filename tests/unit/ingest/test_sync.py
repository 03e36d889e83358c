"""Keeping a store in step with its files: what a sync reports, what it withholds, and what it never
loses.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag import Document, IngestionWarning, IngestReport, Retriever
from lazyrag.document import Failure
from lazyrag.document import open as opening
from lazyrag.errors import (
    CacheWarning,
    ConfigError,
    DatasetPathError,
    EmbeddingError,
    IngestionError,
    LoadError,
    StoreError,
    TransformError,
)
from lazyrag.ingest import engine as bringing
from lazyrag.stores.sqlite_vectors import MapFileVectorStore
from tests.privileges import without_privileges
from tests.shelf import Letters, Lines, Shelf, asked

FILES = {
    "a.txt": "green tea\nblack tea",
    "b.txt": "hot coffee\ncold milk",
    "c.txt": "still water\nred wine",
}
PLAIN = {"embed": None, "workers": None}  # as a Document is by default


@pytest.fixture
def shelf(tmp_path):
    """Three files of two lines each, and no store yet."""
    return Shelf(tmp_path, FILES, **PLAIN)


@pytest.fixture
def common_shelf():
    """The same where everybody may look: pytest's own folders lie where only their owner can."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Shelf(Path(folder), FILES, **PLAIN)


def lines(docs, name=None):
    """The lines that are live, of one file or of all."""
    return [node.text for node in docs.get_nodes("line") if name in {None, node.path}]


def failures(report):
    """Path, stage and type of each failure."""
    return [(one.path, one.stage, type(one.error)) for one in report.failed]


def test_the_first_sync_adds_every_file(shelf):
    """What is found is added, in order of path, and what is passed over is named with the
    reason.
    """
    shelf.write({".hidden.txt": "no", "~$b.docx": "no"})
    with shelf.open() as docs:
        report = docs.sync()
        assert report == docs.last_report
        assert report.added == ("a.txt", "b.txt", "c.txt")
        assert report.skipped == (
            (".hidden.txt", "hidden"),
            ("~$b.docx", "lock file of an office program"),
        )
        assert str(report) == "3 added, 0 failed, 2 skipped"


def test_a_sync_without_changes(shelf):
    """Everything is unchanged, in this Document and in the next."""
    with shelf.open() as docs:
        asked(docs)
        assert docs.sync() == IngestReport(unchanged=("a.txt", "b.txt", "c.txt"))
    with shelf.open() as docs:
        report = docs.sync()
        assert report == IngestReport(unchanged=("a.txt", "b.txt", "c.txt"))
        assert str(report) == "0 added, 3 unchanged, 0 failed, 0 skipped"


def test_all_that_can_become_of_a_file_in_one_sync(shelf):
    """Added, updated, moved, deleted, unchanged and failed files each stand in their own place of
    the report.
    """
    shelf.write({"d.txt": "lemon", "e.txt": "rose", "f.txt": "mint"})
    with shelf.open() as docs:
        asked(docs)
        shelf.write({"new.txt": "thyme", "a.txt": "white tea", "broken.json": b"{"})
        shelf.remove("b.txt")
        (shelf.dataset / "c.txt").rename(shelf.dataset / "z.txt")
        with pytest.warns(IngestionWarning, match=r"1 of 7 files failed to load.*broken\.json"):
            report = docs.sync()
        assert report.added == ("new.txt",)
        assert report.updated == ("a.txt",)
        assert report.moved == (("c.txt", "z.txt"),)
        assert report.deleted == ("b.txt",)
        assert report.unchanged == ("d.txt", "e.txt", "f.txt")
        assert failures(report) == [("broken.json", "load", LoadError)]
        first, second = str(report).splitlines()
        assert first == "1 added, 1 updated, 1 moved, 1 deleted, 3 unchanged, 1 failed, 0 skipped"
        assert second.startswith("  failed: broken.json (load): The JSON breaks")
        assert lines(docs) == [
            "white tea",
            "lemon",
            "rose",
            "mint",
            "thyme",
            "still water",
            "red wine",
        ]


def test_a_dry_run(shelf):
    """It reports what the sync after it does, and changes nothing itself: no row, no call."""
    embed, transform = Letters(), Lines()
    with shelf.open(transform, embed=embed) as docs:
        asked(docs)
        shelf.write({"new.txt": "thyme", "a.txt": "white tea"})
        shelf.remove("b.txt")
        (shelf.dataset / "c.txt").rename(shelf.dataset / "z.txt")
        before = list(docs.maintenance.dump())
        embed.calls.clear()
        transform.calls.clear()
        report = docs.sync(dry_run=True)
        assert (report.added, report.updated, report.deleted) == (
            ("new.txt",),
            ("a.txt",),
            ("b.txt",),
        )
        assert report.moved == (("c.txt", "z.txt"),)
        assert (embed.calls, transform.calls) == ([], [])
        assert list(docs.maintenance.dump()) == before
        assert docs.sync() == report
        assert list(docs.maintenance.dump()) == shelf.fresh_dump(embed=Letters())


def test_a_report_shows_what_is_withheld():
    """Each part that is there is counted, and each failure has a line of its own."""
    report = IngestReport(
        added=("a",),
        withheld=("b", "c"),
        failed=(Failure("d", "load", LoadError("no text")),),
        skipped=((".e", "hidden"),),
    )
    assert str(report) == "1 added, 2 withheld, 1 failed, 1 skipped\n  failed: d (load): no text"


@pytest.mark.parametrize("again", [False, True], ids=["same Document", "new Document"])
def test_many_deletions_at_once_are_withheld(shelf, again):
    """Where all files are gone, as of a folder that was not mounted, nothing is deleted until
    someone confirms it.
    """
    with shelf.open() as docs:
        asked(docs)
        if not again:
            withheld_until_confirmed(shelf, docs)
    if again:
        with shelf.open() as docs:
            withheld_until_confirmed(shelf, docs)


def withheld_until_confirmed(shelf, docs):
    """All files go; the documents go with them only on demand."""
    before = list(docs.maintenance.dump())
    shelf.remove(*FILES)
    with pytest.warns(
        IngestionWarning,
        match=r"3 of 3 files are missing.*Their documents are kept; call sync\(max_deleted=1\)",
    ):
        report = docs.sync()
    assert report == IngestReport(withheld=("a.txt", "b.txt", "c.txt"))
    assert list(docs.maintenance.dump()) == before
    assert docs.sync(max_deleted=1).deleted == ("a.txt", "b.txt", "c.txt")
    assert lines(docs) == []


def test_the_share_that_may_be_deleted(tmp_path):
    """Of thirty files eleven may go by default; with max_deleted=0.2 they may not, and stay in
    every answer.
    """
    shelf = Shelf(tmp_path, {f"{number:02}.txt": f"word{number}" for number in range(30)}, **PLAIN)
    with shelf.open() as docs:
        asked(docs)
        shelf.remove(*(f"{number:02}.txt" for number in range(11)))
        shelf.write({"29.txt": "another word"})
        with pytest.warns(IngestionWarning, match="11 of 30 files are missing"):
            assert len(docs.sync(max_deleted=0.2).withheld) == 11
        assert [hit.text for hit in Retriever(docs, "line", similarity="bm25")("word3")] == [
            "word3"
        ]
        assert len(docs.sync().deleted) == 11
        assert Retriever(docs, "line", similarity="bm25")("word3") == []


def test_the_only_file_gets_a_version_that_fails(shelf):
    """It is counted once, though its earlier version is ingested."""
    shelf.remove("b.txt", "c.txt")
    with shelf.open() as docs:
        asked(docs)
        shelf.write({"a.txt": b"\0" * 99})
        message = "1 of 1 files failed to load; their earlier versions stay"
        with pytest.warns(IngestionWarning, match=message):
            docs.sync()


@pytest.mark.parametrize("max_deleted", [-0.1, 1.5, float("nan")])
def test_a_share_that_is_none(shelf, max_deleted):
    """It is refused with what is allowed, and nothing is changed."""
    with shelf.open() as docs:
        asked(docs)
        with pytest.raises(ConfigError, match=r"max_deleted must be .*from 0 to 1"):
            docs.sync(max_deleted=max_deleted)
        assert len(lines(docs)) == 6


def test_what_is_withheld_comes_back(shelf):
    """A folder that is mounted again is unchanged."""
    with shelf.open() as docs:
        asked(docs)
        shutil.move(shelf.dataset, shelf.root / "aside")
        shelf.dataset.mkdir()
        with pytest.warns(IngestionWarning, match="are missing"):
            docs.sync()
        shelf.dataset.rmdir()
        shutil.move(shelf.root / "aside", shelf.dataset)
        assert docs.sync() == IngestReport(unchanged=("a.txt", "b.txt", "c.txt"))


def test_a_dataset_that_is_gone(shelf):
    """That is an error which names the folder; what is live is answered from."""
    with shelf.open() as docs:
        asked(docs)
        shutil.move(shelf.dataset, shelf.root / "aside")
        with pytest.raises(DatasetPathError, match="cannot be listed"):
            docs.sync()
        assert len(lines(docs)) == 6
        shutil.move(shelf.root / "aside", shelf.dataset)
        assert len(docs.sync().unchanged) == 3


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_a_folder_that_cannot_be_listed_deletes_nothing(common_shelf):
    """What was known beneath it stays; it is named as skipped; other deletions go on."""
    shelf = common_shelf
    shelf.write({"closed/d.txt": "lemon", "closed/deep/e.txt": "rose"})
    with shelf.open() as docs:
        asked(docs)
        shelf.remove("a.txt")
        (shelf.dataset / "closed").chmod(0o000)
        try:
            with without_privileges():
                report = docs.sync()
        finally:
            (shelf.dataset / "closed").chmod(0o755)
        assert report.deleted == ("a.txt",)
        assert report.skipped == (("closed", "cannot be listed: Permission denied"),)
        assert lines(docs, "closed/d.txt") == ["lemon"]
        assert lines(docs, "closed/deep/e.txt") == ["rose"]
        assert len(docs.sync().unchanged) == 4


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_a_file_that_may_not_be_read_stays_as_it_was(common_shelf):
    """Its last version is live, and the report says why there is no newer one, until it may be
    read.
    """
    shelf = common_shelf
    with shelf.open() as docs:
        asked(docs)
        shelf.write({"b.txt": "iced coffee"})
        (shelf.dataset / "b.txt").chmod(0o000)
        with (
            without_privileges(),
            pytest.warns(IngestionWarning, match=r"b\.txt.*Check its permissions"),
        ):
            report = docs.sync()
        assert failures(report) == [("b.txt", "load", LoadError)]
        assert lines(docs, "b.txt") == ["hot coffee", "cold milk"]
        (shelf.dataset / "b.txt").chmod(0o644)
        assert docs.sync().updated == ("b.txt",)
        assert lines(docs, "b.txt") == ["iced coffee"]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("stage", "error"),
    [
        ("load", LoadError),
        ("transform line", TransformError),
        ("embed line with default", EmbeddingError),
    ],
)
def test_a_new_version_that_fails(shelf, stage, error):
    """Pains 7 and 9: a failing re-read leaves the old version live, and is told of at every sync
    until it is mended.
    """
    transform, embed = Lines(), Letters()
    bad = {
        "load": b"\0" * 99,
        "transform line": "bad coffee",
        "embed line with default": "bad coffee",
    }[stage]
    with shelf.open(transform, embed=embed) as docs:
        asked(docs)
        before = list(docs.maintenance.dump())
        (transform.bad if stage == "transform line" else embed.bad).append("bad")
        shelf.write({"b.txt": bad})
        for _ in range(2):
            with pytest.warns(IngestionWarning, match="1 of 3 files failed"):
                report = docs.sync()
            assert failures(report) == [("b.txt", stage, error)]
            assert "b.txt" not in {*report.updated, *report.unchanged}
            assert list(docs.maintenance.dump()) == before
            assert [hit.text for hit in Retriever(docs, "line", similarity="bm25")("milk")] == [
                "cold milk"
            ]
    with shelf.open(transform, embed=embed) as docs:
        with pytest.warns(IngestionWarning, match=r"b\.txt"):
            assert failures(docs.sync()) == [("b.txt", stage, error)]
        assert list(docs.maintenance.dump()) == before
        shelf.write({"b.txt": "good coffee"})
        report = docs.sync()
        assert (report.updated, report.failed) == (("b.txt",), ())
        assert lines(docs, "b.txt") == ["good coffee"]
        assert list(docs.maintenance.dump()) == shelf.fresh_dump(embed=Letters())


def test_the_first_failure_can_be_raised(shelf):
    """With on_error="raise" a sync stops with what failed; what came before it is kept, and so is
    what was live.
    """
    transform = Lines()
    with shelf.open(transform) as docs:
        asked(docs)
        transform.bad.append("bad")
        shelf.write({"a.txt": "white tea", "b.txt": "bad"})
        with pytest.raises(
            IngestionError, match=r"failed to transform line.*cannot be split"
        ) as caught:
            docs.sync(on_error="raise")
        assert isinstance(caught.value.__cause__, TransformError)
        assert lines(docs, "b.txt") == ["hot coffee", "cold milk"]
        transform.bad.clear()
        docs.sync()
        assert lines(docs) == ["white tea", "bad", "still water", "red wine"]


def test_an_unknown_on_error(shelf):
    """A misspelt value is refused: it would be taken for the other one."""
    with (
        shelf.open() as docs,
        pytest.raises(ConfigError, match=r"Unknown on_error 'rise'.*collect"),
    ):
        docs.sync(on_error="rise")


def test_every_file_fails(shelf):
    """Then there is nothing to answer from, and the sync raises; the next one finds them mended."""
    transform = Lines("e")
    with shelf.open(transform) as docs:
        docs.sync()
        with pytest.raises(IngestionError, match="All 3 files failed to transform line"):
            docs.activate_group("line")
        transform.bad.clear()
        docs.sync()
        assert len(lines(docs)) == 6


def test_what_failed_once_is_not_skipped_for_ever(shelf):
    """Pain 1: a hash that was kept before the work succeeded does not hide the file from the next
    run.
    """
    with shelf.open(Lines("coffee"), embed=Letters("wine")) as docs:
        with pytest.warns(IngestionWarning):
            asked(docs)
        assert lines(docs, "b.txt") == []
    with shelf.open(Lines(), embed=Letters()) as docs:
        report = asked(docs)
        assert report.failed == ()
        assert lines(docs, "b.txt") == ["hot coffee", "cold milk"]
        assert list(docs.maintenance.dump()) == shelf.fresh_dump(embed=Letters())


@pytest.mark.sample(2)
@pytest.mark.parametrize("gone", ["a.txt", "copy.txt"])
def test_two_files_of_one_content(shelf, gone):
    """Pains 2, 10 and 12: each has nodes, parents and paths of its own, and deleting one leaves the
    other whole.
    """
    shelf.write({"copy.txt": FILES["a.txt"]})
    with shelf.open(embed=Letters()) as docs:
        asked(docs)
        hits = Retriever(docs, "line", similarity="bm25", topk=9)("green")
        assert [
            (hit.path, hit.parent.path, hit.root.path)
            for hit in sorted(hits, key=lambda hit: hit.path)
        ] == [
            ("a.txt",) * 3,
            ("copy.txt",) * 3,
        ]
        assert len({hit.uid for hit in hits} | {hit.parent.uid for hit in hits}) == 4
        shelf.remove(gone)
        assert docs.sync().deleted == (gone,)
        [kept] = {"a.txt", "copy.txt"} - {gone}
        [hit] = Retriever(docs, "line", similarity="bm25", topk=9)("green")
        assert (hit.path, hit.parent.path) == (kept, kept)
        assert hit.parent.text == FILES["a.txt"]
        assert {node.path for node in Retriever(docs, "line", topk=9)("green tea")} >= {kept}
        assert list(docs.maintenance.dump()) == shelf.fresh_dump(embed=Letters())


def test_both_of_two_equal_files_are_deleted(shelf):
    """Pain 2: deletes are found by identity, so that none is missed where content is shared."""
    shelf.write({"copy.txt": FILES["a.txt"]})
    with shelf.open() as docs:
        asked(docs)
        shelf.remove("a.txt", "copy.txt")
        assert docs.sync().deleted == ("a.txt", "copy.txt")
        assert Retriever(docs, "line", similarity="bm25")("green") == []


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"ledger": "ledger.db"}, "a store in memory"),
        ({"segment_store": {"type": "map"}, "ledger": "ledger.db"}, "a store in memory"),
        ({"segmentstore": {"type": "map"}}, "Did you mean 'segment_store'"),
    ],
)
def test_an_impossible_combination_is_refused_at_once(shelf, conf, words):
    """Pain 3: nothing is turned into another strategy in silence; it is an error before anything is
    read.
    """
    with pytest.raises(ConfigError, match=words):
        Document(shelf.dataset, store_conf=conf)


@pytest.mark.parametrize("embed", [None, Letters()], ids=["without embed", "with embed"])
def test_syncing_is_the_same_with_and_without_vectors(shelf, embed):
    """Pain 3: what is updated and deleted does not depend on whether there are vectors."""
    with shelf.open(embed=embed) as docs:
        asked(docs)
        shelf.write({"a.txt": "white tea"})
        shelf.remove("b.txt")
        report = asked(docs)
        assert (report.updated, report.deleted, report.unchanged) == (
            ("a.txt",),
            ("b.txt",),
            ("c.txt",),
        )
        assert lines(docs) == ["white tea", "still water", "red wine"]


def test_a_store_that_lost_what_the_ledger_lists(shelf):
    """Pain 4: rows that are gone from a store do not pass for success; they are named, and made
    again.
    """
    with shelf.open(embed=Letters()) as docs:
        asked(docs)
        dump = list(docs.maintenance.dump())
        assert docs.maintenance.verify() == ()
    with closing(sqlite3.connect(shelf.store)) as connection, connection:
        connection.execute("DELETE FROM segment WHERE content LIKE '%milk%' AND parent IS NOT NULL")
    with shelf.open(embed=Letters()) as docs:
        with pytest.raises(
            StoreError, match=r"1 of 2 nodes of group 'line'.*verify\(\).*repair\(\)"
        ):
            docs.get_nodes("line")
        assert docs.sync().unchanged == ("a.txt", "b.txt", "c.txt")
        assert any("b.txt" in str(problem) for problem in docs.maintenance.verify())
        docs.maintenance.repair()
        assert docs.maintenance.verify() == ()
        assert list(docs.maintenance.dump()) == dump


@pytest.mark.slow
def test_documents_over_several_batches(shelf, monkeypatch):
    """Pain 5: what spans batches is neither deleted nor embedded again, and all of it is there
    after each sync.
    """
    monkeypatch.setattr(bringing, "_BATCH", 2)
    shelf.write(
        {
            f"many/{number}.txt": "\n".join(f"n{number} l{line}" for line in range(40))
            for number in range(7)
        }
    )
    embed = Letters()
    with shelf.open(embed=embed) as docs:
        asked(docs)
        assert len(lines(docs)) == 6 + 280
        embed.calls.clear()
        asked(docs)
        assert [text for text in embed.calls if text != "tea"] == []
        shelf.write(
            {
                "many/3.txt": "\n".join(f"n3 l{line}" for line in range(41)),
                "a.txt": "green tea\nwhite tea",
            }
        )
        asked(docs)
        assert sorted(text for text in embed.calls if text != "tea") == ["n3 l40", "white tea"]
        assert len(lines(docs)) == 6 + 281
        assert list(docs.maintenance.dump()) == shelf.fresh_dump(embed=Letters())


def test_deleting_reaches_every_store(shelf, monkeypatch):
    """Pain 6: of a file that is gone no node, vector, posting or build is left anywhere."""
    monkeypatch.setattr(opening, "_GRACE_S", 0.0)
    with shelf.open(embed=Letters()) as docs:
        asked(docs)
        shelf.remove("b.txt", "c.txt")
        docs.sync()
        assert {
            path
            for (path,) in shelf.rows(
                "SELECT path FROM segment_origin JOIN segment ON origin = segment_origin.id"
            )
        } == {"a.txt"}
        assert shelf.rows("SELECT count(*) FROM build") == [(2,)]
        keys = {row.key for row in live_vectors(docs)}
        assert len(keys) == 2
        assert len([line for line in docs.maintenance.dump() if '"is": "terms"' in line]) == 2


def live_vectors(docs):
    """Every vector that the store gives out for the group's own keys, and for the first hundred
    builds of any.
    """
    nodes, tree = docs._indexer.nodes, docs._indexer.ledger.tree
    [space] = [one for one in tree.groups["line"].indexes.values() if one.kind == "vectors"]
    keys = [f"{node.uid}-{build}" for node in docs.get_nodes("line") for build in range(100)]
    return nodes.vectors.get(space.collection, keys)


@pytest.mark.slow
def test_a_store_that_fails_to_delete(shelf, monkeypatch):
    """Pain 6: a document is hidden at once whatever a store does, and the next sync deletes what
    was left there.
    """
    monkeypatch.setattr(opening, "_GRACE_S", 0.0)
    delete = MapFileVectorStore.delete
    with shelf.open(embed=Letters()) as docs:
        asked(docs)
        shelf.remove("b.txt")

        def failing(*_arguments, **_keywords):
            msg = "The vectors cannot be deleted now."
            raise StoreError(msg)

        monkeypatch.setattr(MapFileVectorStore, "delete", failing)
        with pytest.raises(StoreError, match="cannot be deleted now"):
            docs.sync()
        assert "b.txt" not in {hit.path for hit in Retriever(docs, "line", topk=9)("coffee")}
        assert lines(docs, "b.txt") == []
        assert shelf.rows("SELECT count(*) FROM build WHERE status = 'dead'") == [(2,)]
        monkeypatch.setattr(MapFileVectorStore, "delete", delete)
        docs.sync()
        assert shelf.rows("SELECT count(*) FROM build WHERE status = 'dead'") == [(0,)]
        assert list(docs.maintenance.dump()) == shelf.fresh_dump(embed=Letters())


@pytest.mark.slow
def test_a_rate_limit_loses_no_progress(shelf):
    """Pain 8: what was embedded before a model refused is paid for once, also where the program
    ended with it.
    """
    embed = Letters("water", "wine", "milk")
    with shelf.open(embed=embed) as docs:
        with pytest.warns(IngestionWarning, match="2 of 3 files failed to embed"):
            asked(docs)
        assert {one.path for one in docs.last_report.failed} == {"b.txt", "c.txt"}
    done = {text for text in embed.calls if not any(word in text for word in embed.bad)}
    assert done == {"green tea", "black tea", "hot coffee", "tea"}
    again = Letters()
    with shelf.open(embed=again) as docs:
        asked(docs)
        assert sorted(text for text in again.calls if text != "tea") == [
            "cold milk",
            "red wine",
            "still water",
        ]
        assert list(docs.maintenance.dump()) == shelf.fresh_dump(embed=Letters())


def test_one_bad_file_among_many(shelf):
    """Pain 9: it is named with stage and error, the others are in, and it comes in when it is
    mended.
    """
    shelf.write({"bad.pdf": b"no pdf at all", "odd.xyz": b"what is \0this?"})
    with shelf.open() as docs:
        with pytest.warns(IngestionWarning, match="1 of 5 files failed to load"):
            report = docs.sync()
        assert failures(report) == [("bad.pdf", "load", LoadError)]
        assert report.skipped == (("odd.xyz", "no loader reads .xyz"),)
        assert len(report.added) == 3
        shelf.remove("bad.pdf")
        (shelf.dataset / "odd.xyz").rename(shelf.dataset / "odd.txt")
        report = docs.sync()
        assert (report.added, report.failed) == (("odd.txt",), ())
        assert lines(docs, "odd.txt") == ["what is  this?"]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 4])
def test_workers_lose_nothing(shelf, workers):
    """Pain 11: however many threads work, every text is embedded once, every vector kept, and the
    dump is the same.
    """
    shelf.write({f"{number:02}.txt": f"common line\nline {number}" for number in range(40)})
    embed = Letters()
    with shelf.open(embed=embed, workers=workers) as docs:
        asked(docs)
        assert len([text for text in embed.calls if text != "tea"]) == 6 + 1 + 40
        assert list(docs.maintenance.dump()) == shelf.fresh_dump(embed=Letters(), workers=1)
    again = Letters()
    shelf.store.unlink()
    shutil.rmtree(f"{shelf.store}.d", ignore_errors=True)
    with shelf.open(embed=again, workers=workers) as docs:
        asked(docs)
        assert [text for text in again.calls if text != "tea"] == []


@pytest.mark.slow
def test_a_vector_that_is_none_shifts_no_other(shelf):
    """Pain 13: it fails its own file; every other text keeps its own vector, now and when it is
    mended.
    """

    class Sometimes(Letters):
        def vector(self, text):
            return (
                [float("nan")] * 8 if text == "green tea" and self.bad_now else super().vector(text)
            )

    embed = Sometimes()
    embed.bad_now = True
    with shelf.open(embed=embed) as docs:
        with pytest.warns(IngestionWarning, match=r"1 of 3 files failed to embed.*a\.txt"):
            asked(docs)
        for node in docs.get_nodes("line"):
            if node.path != "a.txt":
                assert np.allclose(node.embedding, Letters().vector(node.text))
    embed.bad_now = False
    with shelf.open(embed=embed) as docs:
        asked(docs)
        assert [node.path for node in docs.get_nodes("line")][:2] == ["a.txt", "a.txt"]
        for node in docs.get_nodes("line"):
            assert np.allclose(node.embedding, Letters().vector(node.text))
        assert list(docs.maintenance.dump()) == shelf.fresh_dump(embed=Letters())


@pytest.mark.slow
def test_vectors_of_two_lengths_are_never_mixed(shelf):
    """Pain 14: a model that says it is the same and gives other vectors fails the file; nothing of
    it is written.
    """
    with shelf.open(embed=Letters()) as docs:
        asked(docs)
        before = list(docs.maintenance.dump())
    shelf.write({"a.txt": "white tea"})
    with shelf.open(embed=Letters(dimension=5)) as docs:
        with (
            pytest.warns(CacheWarning, match="cannot be the same model's"),
            pytest.warns(IngestionWarning, match=r"a\.txt"),
        ):
            report = docs.sync()
        assert failures(report) == [("a.txt", "embed line with default", EmbeddingError)]
        assert list(docs.maintenance.dump()) == before
    with shelf.open(embed=Letters()) as docs:
        assert docs.sync().updated == ("a.txt",)
        assert list(docs.maintenance.dump()) == shelf.fresh_dump(embed=Letters())


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_model_of_another_dimension_under_one_identity(shelf, on_disk):
    """Adding and querying name both dimensions and the way out, which works: another identity."""
    shelf.store = shelf.store if on_disk else None
    embed = Letters()
    with shelf.open(embed=embed) as docs, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asked(docs)
        embed.dimension = 5
        shelf.write({"a.txt": "white tea"})
        [failure] = docs.sync().failed
        assert (
            "5 instead of 8 numbers. If the model was changed, give the embed another `identity`"
            in str(failure)
        )
        with pytest.raises(
            EmbeddingError, match=r"of 5 numbers and .* of 8 numbers.* another `identity`"
        ):
            Retriever(docs, "line", similarity="cosine")("a query of its own")
    embed.identity = "five letters"
    with shelf.open(embed=embed) as docs:
        asked(docs)
        assert docs.last_report.failed == ()
        assert {len(node.embedding) for node in docs.get_nodes("line")} == {5}


def test_retrying_what_failed(shelf):
    """sync() brings in what is mended, and nothing else is done again."""
    transform = Lines("coffee")
    with shelf.open(transform) as docs:
        with pytest.warns(IngestionWarning):
            asked(docs)
        assert failures(docs.last_report) == [("b.txt", "transform line", TransformError)]
        transform.bad.clear()
        transform.calls.clear()
        report = docs.sync()
        assert report.failed == ()
        assert report.unchanged == ("a.txt", "b.txt", "c.txt")
        assert transform.calls == [FILES["b.txt"]]
        assert lines(docs, "b.txt") == ["hot coffee", "cold milk"]


def test_warnings_as_errors_change_nothing(shelf):
    """Where warnings are errors a failing file raises one, after all others are in."""
    with shelf.open(Lines("coffee")) as docs, warnings.catch_warnings():
        warnings.simplefilter("error")
        docs.sync()
        with pytest.raises(IngestionWarning, match=r"b\.txt"):
            docs.activate_group("line")
        assert lines(docs) == ["green tea", "black tea", "still water", "red wine"]


NAMES = ["a.txt", "b.txt", "sub/c.txt", "sub/d.txt"]
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("write"),
            st.sampled_from(NAMES),
            st.sampled_from(["tea", "tea\nmilk", "wine\ntea\nwine", "rose"]),
        ),
        st.tuples(st.just("remove"), st.sampled_from(NAMES), st.none()),
        st.tuples(st.just("move"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
        st.tuples(st.just("restart"), st.none(), st.none()),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 2)
@given(STEPS)
def test_whatever_happens_to_the_files(steps):
    """After any edits, deletions, moves and restarts the store is what a fresh one of the same
    files would be.
    """
    with tempfile.TemporaryDirectory() as folder:
        shelf = Shelf(Path(folder), {"a.txt": "tea\nmilk", "keep.txt": "always"}, **PLAIN)
        docs = shelf.open(embed=Letters(), workers=1)
        try:
            asked(docs)
            for what, name, value in steps:
                path = shelf.dataset / str(name)
                if what == "write":
                    shelf.write({name: value})
                elif what == "restart":
                    docs.close()
                    docs = shelf.open(embed=Letters(), workers=1)
                elif path.exists():
                    if what == "remove":
                        path.unlink()
                    else:
                        (shelf.dataset / value).parent.mkdir(exist_ok=True)
                        path.replace(shelf.dataset / value)
                docs.sync(max_deleted=1)
            assert list(docs.maintenance.dump()) == shelf.fresh_dump(embed=Letters(), workers=1)
        finally:
            docs.close()


def test_a_file_that_changes_while_it_is_read(tmp_path):
    """What is known of the file and its text are of one version, so that the next sync finds
    nothing new.
    """
    path = tmp_path / "a.note"
    path.write_text("", encoding="utf-8")
    reads = []

    def late(path):
        reads.append(path)
        if len(reads) == 1:  # somebody writes behind the first look at the file
            path.write_text("green tea", encoding="utf-8")
        return path.read_text(encoding="utf-8")

    docs = Document(tmp_path)
    docs.add_reader("*.note", late)
    [root] = docs.get_nodes()
    assert (root.text, root.metadata["file_size"]) == ("green tea", 9)
    docs.sync()
    assert docs.get_nodes()[0].metadata["file_size"] == 9


def test_a_file_that_becomes_empty_loses_its_document(shelf):
    """What it said is found no more; it is skipped, without a word at later syncs, until it says
    something again.
    """
    with shelf.open() as docs:
        asked(docs)
        shelf.write({"b.txt": ""})
        assert docs.plan().files.skipped == (("b.txt", "empty"),)
        with pytest.warns(
            IngestionWarning, match=r"Skipped 1 of 3 files; the first is b\.txt: empty"
        ):
            report = docs.sync()
        assert (report.updated, report.failed, report.skipped) == ((), (), (("b.txt", "empty"),))
        assert lines(docs, "b.txt") == []
        assert docs.maintenance.verify() == ()
    with shelf.open() as docs:
        assert docs.sync() == docs.plan().files
        assert docs.last_report.skipped == (("b.txt", "empty"),)
        assert docs.status().documents == 2
        shelf.write({"b.txt": "mint"})
        assert docs.sync().added == ("b.txt",)
        assert lines(docs, "b.txt") == ["mint"]


def test_a_file_that_is_renamed_to_what_nothing_reads(shelf):
    """Its document goes with the old name."""
    with shelf.open() as docs:
        asked(docs)
        (shelf.dataset / "b.txt").rename(shelf.dataset / "b.png")
        planned = docs.plan().files
        with pytest.warns(IngestionWarning, match=r"b\.png"):
            assert docs.sync() == planned
        assert (planned.deleted, planned.moved, planned.skipped[0][0]) == (("b.txt",), (), "b.png")
        assert docs.status().documents == 2
