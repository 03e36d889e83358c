"""What a sync would do and cost, told before it does: without doing any of it, and true where it
can be.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag import IngestionWarning
from lazyrag.errors import ConfigError, StoreError
from lazyrag.text.tokens import token_counters
from tests.shelf import Letters, Lines, Shelf, asked

FILES = {
    name: f"green tea {name}\nblack tea {name}" for name in ("a.txt", "b.txt", "c.txt", "d.txt")
}


class Batches(Letters):
    """One that takes lists of texts, and remembers each as one call."""

    def __init__(self, batch_size):
        """Take so many at once; with 1, single texts."""
        super().__init__()
        self.batch_size = batch_size

    def __call__(self, text):
        """How often a text has some letters; a list of texts in a batch."""
        if isinstance(text, list):
            self.calls.append(text)
            return [self.vector(one) for one in text]
        return super().__call__(text)


class Client:
    """Something that no fingerprint sees."""

    def __init__(self):
        """Hold what stands for a connection."""
        self.connection = threading.Lock()

    def ask(self, text):
        """What it answers."""
        with self.connection:
            return text


@pytest.fixture
def shelf(tmp_path):
    """Four files of two lines each."""
    return Shelf(tmp_path, FILES)


def content(shelf):
    """All that lies in the store file, and the files beside it."""
    with closing(sqlite3.connect(shelf.store)) as connection:
        told = [line for line in connection.iterdump() if '"program"' not in line]
    return told, sorted(
        path.name for path in shelf.root.iterdir() if not path.name.endswith("-shm")
    )


def tokens(*texts):
    """As the default counter has them."""
    return sum(token_counters["utf8"].count(text) for text in texts)


def steps(plan):
    """The steps by name."""
    return {one.step: one for one in plan.steps}


def test_nothing_to_do(shelf):
    """Where nothing has changed, a plan has no step and no call."""
    with shelf.open() as docs:
        asked(docs)
        plan = docs.plan()
        assert (plan.steps, plan.calls) == ((), 0)
        assert plan.files == docs.sync()
        assert str(plan) == "0 added, 4 unchanged, 0 failed, 0 skipped"


def test_before_the_first_sync(shelf):
    """All files are to be loaded; groups that nobody has asked for yet are no part of a sync, and
    of no plan.
    """
    with shelf.open() as docs:
        plan = docs.plan()
        assert plan.files.added == tuple(FILES)
        [load] = plan.steps
        assert (load.step, load.documents, load.nodes, load.tokens, load.calls) == (
            "load",
            4,
            4,
            tokens(*FILES.values()),
            0,
        )
        assert docs.sync().added == plan.files.added


def test_a_plan_changes_nothing(shelf):
    """No row and no file is written, no transform and no model called, and the next sync finds all
    there is to do.
    """
    with shelf.open() as docs:
        asked(docs)
        shelf.write({"a.txt": "white tea\nred tea", "new.txt": "mint"})
        (shelf.dataset / "b.txt").unlink()
        (shelf.dataset / "c.txt").rename(shelf.dataset / "z.txt")
        dump, before = list(docs.maintenance.dump()), content(shelf)
        shelf.embed.calls.clear()
        shelf.transform.calls.clear()
        for _ in range(2):
            plan = docs.plan()
            docs.sync(dry_run=True)
        assert (list(docs.maintenance.dump()), content(shelf)) == (dump, before)
        assert (shelf.embed.calls, shelf.transform.calls) == ([], [])
        report = docs.sync()
        assert plan.files == report
        assert (report.added, report.updated, report.deleted, report.moved) == (
            ("new.txt",),
            ("a.txt",),
            ("b.txt",),
            (("c.txt", "z.txt"),),
        )


@pytest.mark.parametrize("in_memory", [False, True], ids=["in a file", "in memory"])
def test_a_dry_run_is_the_report_of_files(tmp_path, in_memory):
    """sync(dry_run=True) tells what a plan tells of files, and what the sync then reports."""
    shelf = Shelf(tmp_path, FILES, in_memory=in_memory)
    with shelf.open() as docs:
        assert docs.sync(dry_run=True).added == tuple(FILES)
        assert docs.last_report is None
        asked(docs)
        shelf.write({"a.txt": "white tea", ".hidden": "x"})
        told = docs.sync(dry_run=True)
        assert told == docs.plan().files
        assert told.updated == ("a.txt",)
        assert told == docs.sync()


@pytest.mark.parametrize("value", [1, "yes", None])
def test_a_dry_run_is_yes_or_no(shelf, value):
    """Anything else is refused: a sync that was not meant cannot be taken back."""
    with shelf.open() as docs:
        with pytest.raises(ConfigError, match="dry_run"):
            docs.sync(dry_run=value)
        assert docs.last_report is None


def test_the_numbers_of_an_edit(shelf):
    """One file of four: its tokens exactly; about its nodes; and at least as many calls as are made
    then.
    """
    with shelf.open() as docs:
        asked(docs)
        text = "white tea a.txt\ngreen rum a.txt"
        shelf.write({"a.txt": text})
        told = steps(docs.plan())
        assert list(told) == [
            "load",
            "transform line",
            "index line with en",
            "embed line with default",
        ]
        assert {(one.documents, one.tokens) for one in told.values()} == {(1, tokens(text))}
        assert [one.nodes for one in told.values()] == [1, 2, 2, 2]
        assert [one.calls for one in told.values()] == [0, 0, 0, 2]
        shelf.embed.calls.clear()
        planned = docs.plan().calls
        docs.sync()
        assert 0 < len(shelf.embed.calls) <= planned


@pytest.mark.parametrize(("batch_size", "calls"), [(1, 8), (3, 3), (100, 1)])
def test_calls_in_batches(tmp_path, batch_size, calls):
    """An embed callable that takes several texts is called as many times less."""
    shelf = Shelf(tmp_path, FILES, embed=Batches(batch_size))
    with shelf.open() as docs:
        asked(docs)
        shelf.write({name: text.replace("tea", "rum") for name, text in FILES.items()})
        assert docs.plan().calls == calls
        shelf.embed.calls.clear()
        docs.sync()
        assert len(shelf.embed.calls) == calls


def test_calls_of_a_chat_model(shelf):
    """A transform that says how many calls it makes for each node is counted, with the nodes above
    it.
    """

    class Asking(Lines):
        calls_per_node = 2

    with shelf.open() as docs:
        docs.create_node_group("said", transform=Asking(), parent="line")
        docs.activate_group("said")
        shelf.write({"a.txt": "white tea a.txt\ngreen rum a.txt"})
        assert steps(docs.plan())["transform said"].calls == 4
        assert docs.plan().calls == 4


def test_an_edited_transform(shelf):
    """A definition that has changed is planned for every document, though no file has: with its
    index and vectors.
    """
    with shelf.open() as docs:
        asked(docs)
        docs.create_node_group("line", transform=lambda text: text.split(), replace=True)
        plan = docs.plan()
        assert plan.files.updated == ()
        told = steps(plan)
        assert told["transform line"].documents == 4
        assert told["embed line with default"].calls == 8
        assert "load" not in told


def test_a_file_that_cannot_be_loaded(shelf):
    """A plan goes on without its tokens; the sync reports it."""
    with shelf.open() as docs:
        asked(docs)
        shelf.write({"bad.json": b"{", "new.txt": "mint"})
        plan = docs.plan()
        assert steps(plan)["load"].tokens == tokens("mint")
        with pytest.warns(IngestionWarning, match=r"bad\.json"):
            report = docs.sync()
        assert (report.added, [one.path for one in report.failed]) == (("new.txt",), ["bad.json"])
        assert plan.files == report
        assert [str(one) for one in plan.files.failed] == [str(one) for one in report.failed]


def test_what_is_withheld(shelf):
    """A plan shows deletions that a sync would hold back, and by max_deleted those that it would
    make.
    """
    with shelf.open() as docs:
        asked(docs)
        for name in FILES:
            (shelf.dataset / name).unlink()
        assert docs.plan().files.withheld == tuple(FILES)
        assert docs.plan(max_deleted=1).files.deleted == tuple(FILES)
        with pytest.raises(ConfigError, match="max_deleted"):
            docs.plan(max_deleted=2)


def test_more_calls_than_allowed(shelf):
    """With max_calls a sync that would cost more does nothing at all; with enough it goes on."""
    with shelf.open() as docs:
        asked(docs)
        shelf.write({"a.txt": "white tea\nred tea", "new.txt": "mint"})
        (shelf.dataset / "b.txt").unlink()
        needed = docs.plan().calls
        dump, before = list(docs.maintenance.dump()), content(shelf)
        shelf.embed.calls.clear()
        shelf.transform.calls.clear()
        with pytest.raises(
            ConfigError,
            match=rf"about {needed} calls of models, and max_calls is {needed - 1}.*plan\(\)",
        ):
            docs.sync(max_calls=needed - 1)
        assert (list(docs.maintenance.dump()), content(shelf)) == (dump, before)
        assert (shelf.embed.calls, shelf.transform.calls) == ([], [])
        assert docs.sync(max_calls=needed).updated == ("a.txt",)
        assert docs.sync(max_calls=0).unchanged == ("a.txt", "c.txt", "d.txt", "new.txt")


@pytest.mark.parametrize("value", [-1, 1.5, "many", True])
def test_a_number_of_calls_that_is_none(shelf, value):
    """It is refused before anything is looked at."""
    with shelf.open() as docs, pytest.raises(ConfigError, match="max_calls"):
        docs.sync(max_calls=value)


def test_what_no_fingerprint_sees(shelf):
    """A client in a closure and an embed callable without a name are listed, by group or key."""
    client, plain = Client(), 7
    with shelf.open(embed={"named": Letters(), "bare": Letters().vector}) as docs:
        docs.create_node_group("asked", transform=lambda text: [client.ask(text)])
        docs.create_node_group("seen", transform=lambda text: [text[:plain]])
        docs.create_node_group("versioned", transform=lambda text: [client.ask(text)], version="1")
        unseen = docs.plan().unseen
        assert {name for name, _ in unseen} == {"asked", "bare"}
        [what] = [what for name, what in unseen if name == "asked"]
        assert what.startswith("client.connection")
        assert f"not seen of asked: {what}" in str(docs.plan())


def test_a_plan_as_text(shelf):
    """A line for the files and one for each step, with calls where there are any."""
    with shelf.open() as docs:
        asked(docs)
        shelf.write({"a.txt": "white tea a.txt\ngreen rum a.txt"})
        lines = str(docs.plan()).splitlines()
        weight = tokens("white tea a.txt\ngreen rum a.txt")
        assert lines[0].startswith("0 added, 1 updated, 3 unchanged")
        assert f"load: 1 documents, about 1 nodes, {weight} tokens" in lines
        assert (
            f"embed line with default: 1 documents, about 2 nodes, {weight} tokens, 2 calls"
            in lines
        )


def test_a_reader_may_plan(shelf):
    """What a sync of the writing program would do can be asked with read_only=True; to do it is
    refused.
    """
    with shelf.open() as docs:
        asked(docs)
    shelf.write({"a.txt": "white tea"})
    with shelf.open(read_only=True) as docs:
        assert docs.plan().files.updated == ("a.txt",)
        assert docs.sync(dry_run=True).updated == ("a.txt",)
        with pytest.raises(StoreError, match="read_only"):
            docs.sync()


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["write", "remove", "rename", "touch"]),
        st.sampled_from([*FILES, "e.txt"]),
        st.text("ab \n", min_size=1, max_size=30).filter(str.strip),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=settings.default.max_examples // 2)
@given(CHANGES)
def test_a_plan_comes_true(tmp_path_factory, changes):
    """Whatever happened to the files: what is planned of them is what the sync reports, and calls
    stay below.
    """
    shelf = Shelf(tmp_path_factory.mktemp("plan"), FILES, in_memory=True)
    with shelf.open() as docs:
        asked(docs)
        for what, name, text in changes:
            path = shelf.dataset / name
            if what == "write":
                path.write_text(text)
            elif path.exists():
                if what == "remove":
                    path.unlink()
                elif what == "rename":
                    path.rename(shelf.dataset / f"{len(text)}.txt")
                else:
                    path.touch()
        plan = docs.plan(max_deleted=1)
        shelf.embed.calls.clear()
        report = docs.sync(max_deleted=1)
        assert plan.files == report
        loaded = {step.step: step.documents for step in plan.steps}.get("load", 0)
        assert loaded == len(report.added) + len(report.updated)
        if not (report.added or report.updated):
            assert shelf.embed.calls == []
