"""After an interrupt the same object goes on: it works as if the call had not begun or had
finished, or is closed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lazyrag import Document, Retriever
from lazyrag.document import open as opening
from lazyrag.progress.blocks import contextmanager
from lazyrag.progress.calls import ProgressTask
from tests.crash import interrupts
from tests.crash.interrupts import CASES, AlarmError, DocumentCase, Interrupter, Tally, strike, walk

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="Windows has other signals"),
    # Python closes a file that was opened when the interrupt came, and says so.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]

SHARES = 4
"""Into so many cases the points are dealt."""


@pytest.fixture(autouse=True)
def purged_at_once(monkeypatch):
    """What is dead is purged at once, and the warnings of failed texts are no errors."""
    monkeypatch.setattr(opening, "_GRACE_S", 0.0)
    interrupts.prepare()


def assert_whole(tally: Tally, at_least: int) -> None:
    """Points were tried, and nothing is broken; else the failure lists every problem."""
    assert tally.tried >= at_least
    assert tally.broken == 0, "\n".join(["", *tally.problems])


@pytest.mark.parametrize("name", ["cache", "source", "retriever"])
def test_small_objects_go_on(tmp_path, name):
    """An embedding cache, a source and a BM25 index: at every return from SQLite, files and user
    functions.
    """
    tally = Tally()
    walk(CASES[name], tmp_path, tally)
    assert_whole(tally, 3)


def test_a_document_goes_on(tmp_path):
    """A share of the points of searching and of adding texts."""
    tally = Tally()
    walk(
        CASES["document"],
        tmp_path,
        tally,
        step=6,
        only="bm25,add_texts",
        errors=(KeyboardInterrupt,),
    )
    assert_whole(tally, 20)


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, AlarmError])
def test_every_method_of_a_document_goes_on(tmp_path, error):
    """A share of the points of each method, on disk and in memory."""
    tally = Tally()
    for name in ("document", "memory"):
        walk(CASES[name], tmp_path, tally, step=41, errors=(error,))
    assert_whole(tally, 100)


@pytest.mark.slow
def test_real_signals(tmp_path):
    """Signals of a timer and of another thread at random moments; a thousand:
    ``--signals 1000``.
    """
    tally = Tally()
    strike(CASES["document"], tmp_path, tally, 40)
    assert_whole(tally, 40)


@pytest.mark.exhaustive
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("name", CASES)
def test_every_point(tmp_path, name, share):
    """All of it: ``python -m tests.crash.interrupts``."""
    tally = Tally()
    operations = list(CASES[name](tmp_path / "names").operations)
    for only in operations[share::SHARES]:
        walk(CASES[name], tmp_path, tally, only=only)
    assert_whole(tally, 0)


def interrupted_search(docs: Document, at: int) -> BaseException | None:
    """What a search raises that is interrupted at a point, with its traceback."""
    interrupter = Interrupter(at, KeyboardInterrupt(), every=True, codes=set())
    return interrupter.run(lambda: Retriever(docs, "line", "bm25")("tea"))


def test_searches_after_an_interrupt_see_what_is_added(tmp_path):
    """At any place where Python looks for signals; the tracebacks stay, as a notebook keeps the
    last one.
    """
    case = DocumentCase(tmp_path)
    raised = [interrupted_search(case.docs, at) for at in range(1, 400, 23)]
    assert sum(isinstance(one, KeyboardInterrupt) for one in raised) > 10
    assert case.probe(0) == case.locked() == case.check() == ""
    case.close()


def test_a_block_is_left_once(tmp_path):
    """Wherever an interrupt comes, what was begun is ended, though the traceback stays; other
    threads have the lock.
    """
    lock, log = threading.RLock(), []

    @contextmanager
    def block() -> Iterator[int]:
        with lock:
            try:
                log.append("begin")
                yield 3
            finally:
                log.append("end")

    def use() -> None:
        with block():
            pass

    def is_free() -> bool:
        found: list[bool] = []
        thread = threading.Thread(target=lambda: found.append(lock.acquire(timeout=0.5)))
        thread.start()
        thread.join()
        return found == [True]

    raised = []
    for at in range(1, 60):
        raised.append(Interrupter(at, KeyboardInterrupt(), every=True, codes=set()).run(use))
        assert log.count("begin") <= log.count("end"), at
        assert not lock._is_owned(), at
    assert is_free()
    assert raised[0] is not None
    assert raised[-1] is None


def test_a_walk_sees_what_is_broken(tmp_path):
    """A cache whose transactions stay open: the walk says so, and where."""

    class Broken(interrupts.CacheCase):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            database = self.cache._database
            self.operations = {
                "broken": lambda _: database._connection.execute("BEGIN IMMEDIATE") and self._end()
            }

        def _end(self) -> None:
            self.cache._database._connection.execute("ROLLBACK")

    tally = Tally()
    walk(Broken, tmp_path, tally)
    assert tally.broken > 0
    assert "locked" in tally.problems[0]


def test_progress_goes_on_after_an_interrupt():
    """Wherever the display of progress is interrupted, the next work ends, in another thread as
    well.
    """

    def work():
        with ProgressTask("load", 1, "file") as shown:
            shown.reach(1)

    for at in range(1, 100):
        interrupter = Interrupter(at, KeyboardInterrupt(), every=True, codes=set())
        interrupter.run(work)
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(5)
        assert not thread.is_alive(), interrupter.point
        if not interrupter.point:
            return
    pytest.fail("it never ends")
