"""Calls that are cancelled at any check leave a clean store, and the next call does the rest.

All 200 points of each operation: ``python -m pytest tests/documents/test_cancel.py -m ""``.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from contextlib import closing, suppress

import pytest

from lazyrag import Document, migrate
from lazyrag.errors import CanceledError, ConfigError
from lazyrag.loaders import LoadLimits

TEXTS = {f"{name}.txt": f"{name} tea is green.\n{name} tea is roasted." for name in "abcdefgh"}
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 50))]
POINTS = 4  # of each seed


class Countdown(threading.Event):
    """An event that is set from its n-th check on, and counts the checks."""

    def __init__(self, checks=None):
        super().__init__()
        self.left, self.seen = checks, 0

    def is_set(self):
        """Whether the checks have run out."""
        self.seen += 1
        return self.left is not None and self.seen > self.left


def conf(tmp_path, name="store.db"):
    return {"segment_store": {"type": "map", "kwargs": {"uri": tmp_path / name}}}


def changed(place):
    """A Document with every kind of index, whose files have changed since."""
    root = place / "dataset"
    root.mkdir(parents=True)
    for name, text in TEXTS.items():
        (root / name).write_text(text, encoding="utf-8")
        os.utime(root / name, (1e9, 1e9))
    for name in "pq":
        (place / f"{name}.txt").write_text(f"{name} is outside\nof the folder", encoding="utf-8")
    docs = Document(root, embed=lambda text: [1.0, float(len(text))], store_conf=conf(place))
    docs.create_node_group("line", transform=str.splitlines)
    docs.activate_group("line", embed_keys=["default"], analysers=["en"])
    (root / "a.txt").write_text("white tea", encoding="utf-8")
    (root / "b.txt").unlink()
    (root / "c.txt").rename(root / "moved.txt")
    for name in "xyz":
        (root / f"{name}.txt").write_text(f"{name} is new\nand {name} is long", encoding="utf-8")
    return docs


def sync(docs, place, **kwargs):
    docs.sync(**kwargs)


def add_files(docs, place, **kwargs):
    docs.add_files({f"own-{name}": place / f"{name}.txt" for name in "pq"}, **kwargs)


def add_texts(docs, place, **kwargs):
    docs.add_texts(
        {f"note {number}": f"coffee number {number}\nis ground" for number in range(6)}, **kwargs
    )


def delete_files(docs, place, **kwargs):
    there = {one.path for one in docs.get_nodes()}
    docs.delete_files([name for name in ("d.txt", "e.txt") if name in there], **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("operation", [sync, add_files, add_texts, delete_files])
def test_a_cancel_at_any_check_loses_nothing(operation, seed, tmp_path):
    """`verify` finds no problem, and the same call with a sync leaves what an undisturbed one
    does.
    """
    rng = random.Random(f"{operation.__name__} {seed}")
    with changed(tmp_path / "whole") as docs:
        counted = Countdown()
        operation(docs, tmp_path / "whole", cancel=counted)
        docs.sync()
        whole = list(docs.maintenance.dump())
    assert counted.seen > 2
    for point in range(POINTS):
        place = tmp_path / str(point)
        with changed(place) as docs:
            # A deletion comes to its end once its documents are hidden.
            with (
                suppress(CanceledError)
                if operation is delete_files
                else pytest.raises(CanceledError, match="again")
            ):
                operation(docs, place, cancel=Countdown(rng.randrange(counted.seen)))
            assert docs.maintenance.verify() == ()
            operation(docs, place)
            docs.sync()
            assert docs.maintenance.verify() == ()
            assert list(docs.maintenance.dump()) == whole


def damage(place):
    """Lose some rows of a store, and add one that is unknown."""
    with closing(sqlite3.connect(place / "store.db")) as connection, connection:
        connection.execute("DELETE FROM segment WHERE content LIKE '%roasted%' AND number = 2")
        connection.execute("UPDATE segment SET content = 'x' WHERE content LIKE 'f tea is green.'")
        connection.execute("DELETE FROM vector_part")


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_cancelled_repair_is_finished_by_the_next_one(seed, tmp_path):
    """At whatever check it stops, the next one leaves what an undisturbed one does."""
    rng = random.Random(seed)
    with changed(tmp_path / "whole") as docs:
        docs.sync()
        whole = list(docs.maintenance.dump())
        damage(tmp_path / "whole")
        assert docs.maintenance.verify()
        counted = Countdown()
        assert docs.maintenance.repair(cancel=counted) == ()
        assert list(docs.maintenance.dump()) == whole
    for point in range(POINTS):
        place = tmp_path / str(point)
        with changed(place) as docs:
            docs.sync()
            damage(place)
            with pytest.raises(CanceledError):
                docs.maintenance.repair(cancel=Countdown(rng.randrange(counted.seen)))
            assert docs.maintenance.repair() == ()
            assert docs.maintenance.verify() == ()
            assert list(docs.maintenance.dump()) == whole


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_cancelled_migration_is_continued(seed, tmp_path, monkeypatch):
    """The target has no Document until a call comes to its end; then it has all of it."""
    monkeypatch.setattr("lazyrag.maintain.copying.BATCH_ROWS", 3)
    rng = random.Random(seed)
    with changed(tmp_path / "source") as docs:
        docs.sync()
        whole = list(docs.maintenance.dump())
    source, counted = conf(tmp_path / "source"), Countdown()
    migrate(source, conf(tmp_path), cancel=counted)
    assert counted.seen > 10
    for point in range(POINTS):
        target = conf(tmp_path, f"{point}.db")
        with pytest.raises(CanceledError):
            migrate(source, target, cancel=Countdown(rng.randrange(counted.seen)))
        migrate(source, target)
        with Document(store_conf=target) as docs:
            assert list(docs.maintenance.dump()) == whole


def test_a_call_has_a_callback_of_its_own(tmp_path):
    """It is called only during the call."""
    once = []
    docs = Document()
    docs.add_texts({"a": "green tea"}, on_progress=once.append)
    assert once
    docs.delete_files(["a"], on_progress=once.append)
    assert [(one.what, one.done) for one in once[-2:]] == [("delete", 0), ("delete", 1)]
    count = len(once)
    docs.add_texts({"b": "black tea"})
    assert len(once) == count


def test_a_callback_can_cancel(tmp_path):
    """An event that is set at the first file's step stops the call there; other calls are not
    concerned.
    """
    cancel, seen = threading.Event(), []

    def stop(progress):
        seen.append(progress)
        cancel.set()

    docs = Document()
    with pytest.raises(CanceledError):
        docs.add_texts(TEXTS, on_progress=stop, cancel=cancel)
    assert len(seen) == 1
    with pytest.raises(CanceledError):
        docs.sync(cancel=cancel)
    docs.add_texts(TEXTS)
    assert len(docs.get_nodes()) == len(TEXTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"workers": 4}, {"limits": LoadLimits(processes=2)}], ids=["threads", "processes"]
)
def test_a_call_with_workers_can_be_cancelled(options, folder, tmp_path):
    """Files that workers have begun are finished or dropped; no other ones are begun."""
    root, read, cancel = (
        folder({f"{number:03}.slow": f"tea {number}" for number in range(60)}),
        [],
        threading.Event(),
    )

    def load(path):
        read.append(path)
        time.sleep(0.06)
        return path.read_text(encoding="utf-8")

    def stop(progress):
        if progress.done > 10:
            cancel.set()

    with Document(root, store_conf=conf(tmp_path), **options) as docs:
        docs.add_reader("*.slow", load)
        with pytest.raises(CanceledError):
            docs.sync(on_progress=stop, cancel=cancel)
        assert 10 < len(read) < 40
        assert docs.maintenance.verify() == ()
        assert len(docs.sync().added) + len(docs.get_nodes()) >= 60
        assert len(docs.get_nodes()) == 60


def test_a_call_that_waits_for_another_program_can_be_cancelled(tmp_path):
    """It does not wait for the lease any longer."""
    cancel, begun, go_on = threading.Event(), threading.Event(), threading.Event()

    def hold(progress):
        begun.set()
        go_on.wait()

    with Document(store_conf=conf(tmp_path)) as docs, Document(store_conf=conf(tmp_path)) as other:
        thread = threading.Thread(
            target=other.add_texts, args=({"a": "green tea"},), kwargs={"on_progress": hold}
        )
        thread.start()
        begun.wait()
        threading.Timer(0.2, cancel.set).start()
        with pytest.raises(CanceledError):
            docs.add_texts({"b": "black tea"}, cancel=cancel)
        go_on.set()
        thread.join()
        assert [one.path for one in docs.get_nodes()] == ["a"]


@pytest.mark.parametrize("wrong", [3, True, "event"])
def test_arguments_are_checked(wrong):
    """Anything but an event, or a function, is refused before anything is done."""
    with pytest.raises(ConfigError, match="cancel"):
        Document().sync(cancel=wrong)
    with pytest.raises(ConfigError, match="on_progress"):
        Document().add_texts({"a": "tea"}, on_progress=wrong)
