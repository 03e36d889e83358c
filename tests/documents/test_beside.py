"""Deletions, changes of metadata and small documents beside a large one that is being ingested."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from lazyrag import Document, Retriever
from lazyrag.errors import CanceledError
from lazyrag.ingest import engine as ingest
from lazyrag.server.jobs import Jobs, Worker
from tests.model_server import PATIENCE_S

LARGE = "slow\n" + "\n".join(f"grape number{number}" for number in range(300))


class Gate:
    """A transform into lines that waits at each text whose first line is "slow"."""

    def __init__(self):
        self.reached, self.opened, self.calls = threading.Event(), threading.Event(), 0

    def __call__(self, text):
        """The lines of a text."""
        lines = text.splitlines()
        if lines[0] == "slow":
            self.calls += 1
            self.reached.set()
            assert self.opened.wait(PATIENCE_S)
        return lines


class Notes:
    """A Document with a gate before large texts, and what a keyword search of it finds."""

    def __init__(self, folder):
        uri = str(folder / "notes.db")
        self.gate = Gate()
        self.docs = Document(
            store_conf={"segment_store": {"type": "map", "kwargs": {"uri": uri}}},
            embed=lambda text: [float(len(text)), 1.0],
        )
        self.docs.create_node_group("line", transform=self.gate, version="1")
        self.docs.add_texts({"apple": "apple one", "pear": "pear two"})
        self.docs.activate_group("line", analysers=["en"], embed_keys=["default"])
        self.search = Retriever(self.docs, "line", similarity="bm25", topk=1000)

    def count(self, query):
        """How many nodes a search finds."""
        return len(self.search(query))

    def metadata(self, document):
        """The metadata of a document."""
        [root] = [node for node in self.docs.get_nodes("lazyllm_root") if node.path == document]
        return root.metadata

    @contextmanager
    def ingesting(self, texts):
        """A thread adds texts, and is in the transform of a large one while the block runs; then it
        ends.
        """
        self.gate.reached.clear()
        self.gate.opened.clear()
        thread = threading.Thread(target=self.docs.add_texts, args=[texts])
        thread.start()
        try:
            assert self.gate.reached.wait(PATIENCE_S)
            yield
        finally:
            self.gate.opened.set()
            thread.join()

    @contextmanager
    def working(self):
        """A worker runs jobs while the block does."""
        stop = threading.Event()
        thread = threading.Thread(target=Worker(self.docs).run, args=[stop])
        thread.start()
        try:
            yield Jobs(self.docs)
        finally:
            self.gate.opened.set()
            stop.set()
            thread.join()


@pytest.fixture
def notes(tmp_path):
    made = Notes(tmp_path)
    yield made
    assert made.docs.maintenance.verify() == ()
    made.docs.close()


def ended(jobs, *submitted):
    """The states of jobs, once they have ended."""
    return [jobs.wait(job.id, PATIENCE_S).state for job in submitted]


class TestThreads:
    """Threads of one program."""

    def test_short_writes_take_effect_during_a_transform(self, notes):
        """A deletion, other metadata and a small text are seen by a search while the large one
        waits.
        """
        with notes.ingesting({"large": LARGE}):
            notes.docs.delete_files(["apple"])
            notes.docs.update_metadata({"pear": {"kind": "fruit"}})
            notes.docs.add_texts({"plum": "plum three"})
            assert [notes.count(word) for word in ("apple", "plum", "grape")] == [0, 1, 0]
            assert notes.metadata("pear")["kind"] == "fruit"
        assert [notes.count(word) for word in ("apple", "plum", "pear", "grape")] == [0, 1, 1, 300]

    def test_a_call_that_waits_for_others_can_be_cancelled(self, notes):
        """A repair waits until the large document is done; its event ends the wait."""
        stop = threading.Event()
        timer = threading.Timer(0.2, stop.set)
        with notes.ingesting({"large": LARGE}):
            timer.start()
            with pytest.raises(CanceledError, match="cancelled"):
                notes.docs.maintenance.repair(cancel=stop)
        assert notes.docs.maintenance.repair() == ()

    def test_a_large_document_becomes_visible_in_one_flip(self, notes, monkeypatch):
        """Its nodes and vectors are written in slices, between which other texts become visible; of
        it, none or all.
        """
        monkeypatch.setattr(ingest, "_SLICE", 7)
        upsert, seen, others, found = notes.docs._indexer.nodes.segments.upsert, [], [], []

        def add():
            notes.docs.add_texts({"plum": "plum three"})
            found.append((notes.count("plum"), notes.count("grape")))

        def observed(collection, rows):
            upsert(collection, rows)
            if rows[0].path == "large":
                seen.append(notes.count("grape"))
                if not others:
                    others.append(threading.Thread(target=add))
                    others[0].start()

        monkeypatch.setattr(notes.docs._indexer.nodes.segments, "upsert", observed)
        with notes.ingesting({"large": LARGE}):
            pass
        others[0].join()
        assert found == [(1, 0)]
        assert seen == [0] * len(seen)
        assert len(seen) > 40
        assert notes.count("grape") == 300

    def test_a_document_that_is_deleted_meanwhile_stays_deleted(self, notes):
        """Neither a new document nor a new version of one becomes visible, and nothing of them is
        left.
        """
        with notes.ingesting({"large": LARGE, "pear": LARGE.replace("grape", "melon")}):
            notes.docs.delete_files(["large", "pear"])
            assert notes.count("pear") == 0
        assert [notes.count(word) for word in ("grape", "melon", "pear", "apple")] == [0, 0, 0, 1]
        assert [one.id for one in notes.docs.documents()] == ["apple"]

    def test_metadata_that_change_meanwhile_are_those_of_the_new_version(self, notes):
        """The live version has them at once; the new one is made with them, without calling the
        transform again.
        """
        notes.docs.update_metadata({"pear": {"kind": "fruit", "old": 1}})
        with notes.ingesting({"pear": LARGE}):
            notes.docs.update_metadata({"pear": {"kind": "secret", "old": None, "new": 2}})
            assert notes.metadata("pear")["kind"] == "secret"
        found = notes.metadata("pear")
        assert {name: found.get(name) for name in ("kind", "old", "new")} == {
            "kind": "secret",
            "old": None,
            "new": 2,
        }
        assert (notes.count("pear"), notes.count("grape"), notes.gate.calls) == (0, 300, 1)

    def test_a_group_that_is_built_meanwhile_has_every_document(self, notes):
        """A text that is added during the build of another group is in that group when it becomes
        visible.
        """
        with notes.ingesting({"large": LARGE}):
            pass
        gate = Gate()
        notes.docs.create_node_group("other", transform=gate, version="1")
        builds = threading.Thread(
            target=notes.docs.activate_group, args=["other"], kwargs={"analysers": ["en"]}
        )
        builds.start()
        assert gate.reached.wait(PATIENCE_S)
        notes.docs.add_texts({"plum": "plum three"})
        notes.docs.delete_files(["apple"])
        gate.opened.set()
        builds.join()
        assert {node.path for node in notes.docs.get_nodes("other")} == {"large", "pear", "plum"}

    def test_a_group_that_is_built_meanwhile_has_every_new_version(self, notes):
        """Each of the documents that it is built for is replaced during its build."""
        with notes.ingesting({"large": LARGE}):
            pass
        gate = Gate()
        notes.docs.create_node_group("other", transform=gate, version="1")
        builds = threading.Thread(
            target=notes.docs.activate_group, args=["other"], kwargs={"analysers": ["en"]}
        )
        builds.start()
        assert gate.reached.wait(PATIENCE_S)
        with notes.ingesting({name: f"slow\nnew {name}" for name in ("apple", "large", "pear")}):
            gate.opened.set()
            builds.join(0.3)  # it waits for the new versions
        builds.join()
        assert {node.text for node in notes.docs.get_nodes("other")} == {
            "slow",
            "new apple",
            "new large",
            "new pear",
        }

    def test_another_long_operation_waits(self, notes):
        """A verification sees no half of what is written."""
        found = []
        with notes.ingesting({"large": LARGE}):
            other = threading.Thread(target=lambda: found.append(notes.docs.maintenance.repair()))
            other.start()
            other.join(0.1)
            assert not found
        other.join(PATIENCE_S)
        assert found == [()]
        assert notes.count("grape") == 300


class TestJobs:
    """Jobs that a worker runs."""

    def test_short_jobs_go_before_the_end_of_a_long_one(self, notes):
        """A deletion, other metadata and a small text that were submitted later end while the large
        one waits.
        """
        with notes.working() as jobs:
            long = jobs.submit("add_texts", {"texts": {"large": LARGE}})
            assert notes.gate.reached.wait(PATIENCE_S)
            short = [
                jobs.submit("delete_files", {"documents": ["apple"]}),
                jobs.submit("update_metadata", {"changes": {"pear": {"kind": "fruit"}}}),
                jobs.submit("add_texts", {"texts": {"plum": "plum three"}}),
            ]
            assert ended(jobs, *short) == ["DELETED", "SUCCESS", "SUCCESS"]
            assert jobs.get(long.id).state == "WORKING"
            assert [notes.count(word) for word in ("apple", "plum", "grape")] == [0, 1, 0]
            notes.gate.opened.set()
            assert ended(jobs, long) == ["SUCCESS"]
        assert notes.count("grape") == 300

    def test_jobs_of_one_document_keep_their_order(self, notes):
        """What is submitted later about a document of the job that runs comes after it; its
        deletion ends it.
        """
        with notes.working() as jobs:
            long = jobs.submit(
                "add_texts", {"texts": {"large": LARGE, "huge": LARGE.replace("grape", "melon")}}
            )
            assert notes.gate.reached.wait(PATIENCE_S)
            later = jobs.submit("add_texts", {"texts": {"large": "raisin"}})
            gone = jobs.submit("delete_files", {"documents": ["huge"]})
            assert ended(jobs, gone) == ["DELETED"]
            assert jobs.get(later.id).state == "WAITING"
            notes.gate.opened.set()
            assert ended(jobs, long, later) == ["SUCCESS", "SUCCESS"]
        assert [notes.count(word) for word in ("grape", "melon", "raisin")] == [0, 0, 1]

    def test_deletions_that_have_to_wait_hide_at_once(self, notes):
        """One behind an earlier job of the document, and a purge; they end in the order of
        submission.
        """
        with notes.working() as jobs:
            jobs.submit("add_texts", {"texts": {"large": LARGE}})
            assert notes.gate.reached.wait(PATIENCE_S)
            before = jobs.submit("add_texts", {"texts": {"pear": LARGE + "x" * (1 << 20)}})
            waiting = [
                jobs.submit("delete_files", {"documents": ["pear"]}),
                jobs.submit("purge", {"document": "apple"}),
            ]
            probe = jobs.submit("add_texts", {"texts": {"plum": "plum three"}})
            hidden = threading.Event()
            for _ in range(200):
                if notes.count("pear") + notes.count("apple") == 0:
                    hidden.set()
                    break
                hidden.wait(PATIENCE_S / 200)
            assert hidden.is_set()
            assert {jobs.get(job.id).state for job in waiting} == {"WAITING"}
            notes.gate.opened.set()
            assert ended(jobs, before, probe, *waiting) == [
                "SUCCESS",
                "SUCCESS",
                "DELETED",
                "DELETED",
            ]
            certificate = jobs.get(waiting[1].id).result
        assert certificate["pieces"] > 10
        assert not any(place["found"] for place in certificate["checked"])
        assert [notes.count(word) for word in ("pear", "apple", "plum")] == [0, 0, 1]


KILLED = """
import os, sys, threading
from pathlib import Path
from tests.documents.test_beside import LARGE, Notes

notes = Notes(Path(sys.argv[1]))
with notes.ingesting({"large": LARGE}):
    notes.docs.delete_files(["apple"])
    notes.docs.add_texts({"plum": "plum three"})
    os._exit(9)
"""


def test_a_kill_during_the_large_document_keeps_the_short_writes(tmp_path):
    """The deletion and the small text stay; the large document is not there, and can be added."""
    assert (
        subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False).returncode == 9
    )
    uri = str(tmp_path / "notes.db")
    with Document(store_conf={"segment_store": {"type": "map", "kwargs": {"uri": uri}}}) as docs:
        docs.create_node_group("line", transform=Gate(), version="1")
        search = Retriever(docs, "line", similarity="bm25", topk=1000)
        assert [len(search(word)) for word in ("apple", "pear", "plum", "grape")] == [0, 1, 1, 0]
        docs.add_texts({"large": LARGE.partition("\n")[2]})
        assert len(search("grape")) == 300
        assert docs.maintenance.verify() == ()
