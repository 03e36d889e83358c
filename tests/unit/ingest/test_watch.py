"""Documents that follow their files: real files, real events, and nothing that depends on how fast
they come.
"""

from __future__ import annotations

import itertools
import os
import queue
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest

from lazyrag import Document, IngestionWarning, IngestReport, Watcher
from lazyrag.errors import ConfigError, DatasetPathError, IngestionError
from lazyrag.ingest import dataset as changes
from lazyrag.ingest import watch as watching
from lazyrag.ingest.dataset import WatchedFiles, file_events, make_dataset, poll_files
from tests.shelf import Lines, Shelf

PATIENCE_S = 60.0
QUICK = {"debounce_s": 0.05, "max_wait_s": 5.0}
BY_SYSTEM, BY_LOOKING = {**QUICK}, {**QUICK, "poll_s": 0.05}


@pytest.fixture
def shelf(tmp_path):
    """Two files of a line each, and no store yet."""
    return Shelf(
        tmp_path, {"a.txt": "green tea", "b.txt": "hot coffee"}, in_memory=True, embed=None
    )


@pytest.fixture
def _quick_pauses(monkeypatch):
    """What fails is tried again soon."""
    monkeypatch.setattr(watching, "_FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(watching, "_MAX_PAUSE_S", 0.1)


def until(condition) -> None:
    """Wait for a condition; generously, as machines are slow at times."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)


def lines(docs) -> dict[str, str]:
    """What is live, by path: the text of each file's lines."""
    found: dict[str, str] = {}
    for node in docs.get_nodes("line"):
        found[node.path] = f"{found.get(node.path, '')} {node.text}".strip()
    return found


@contextmanager
def watched(shelf, **arguments):
    """A Document that follows its files, synced once."""
    with shelf.open() as docs, docs.watch(**{**QUICK, **arguments}) as watcher:
        watcher.wait_for_sync(PATIENCE_S)
        lines(docs)
        yield docs, watcher


def save(path: Path, text: str) -> None:
    """Save as editors do: a new file takes the old one's place."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


@pytest.mark.parametrize("how", [BY_SYSTEM, BY_LOOKING], ids=["events", "looking"])
def test_files_that_come_change_move_and_go(shelf, how):
    """Each kind of change is live after a while, without anybody asking for a sync."""
    with watched(shelf, **how) as (docs, _):
        shelf.write({"c.txt": "still water", "sub/d.txt": "red wine"})
        until(lambda: lines(docs).keys() == {"a.txt", "b.txt", "c.txt", "sub/d.txt"})
        shelf.write({"sub/d.txt": "white wine"})
        save(shelf.dataset / "a.txt", "black tea")
        until(
            lambda: (lines(docs)["sub/d.txt"], lines(docs)["a.txt"]) == ("white wine", "black tea")
        )
        (shelf.dataset / "c.txt").rename(shelf.dataset / "e.txt")
        until(lambda: "e.txt" in lines(docs) and "c.txt" not in lines(docs))
        shelf.remove("b.txt")
        until(lambda: "b.txt" not in lines(docs))


@pytest.mark.parametrize("how", [BY_SYSTEM, BY_LOOKING], ids=["events", "looking"])
def test_no_gap_between_the_first_sync_and_the_first_event(shelf, how):
    """What was written before watching began, and right after it did, is both live, by the events
    alone.
    """
    with shelf.open() as docs:
        docs.sync()
        shelf.write({"before.txt": "still water"})
        with docs.watch(**how):
            shelf.write({"after.txt": "red wine"})
            until(lambda: {"before.txt", "after.txt"} <= lines(docs).keys())


@pytest.mark.slow
def test_a_burst_of_writes_is_few_syncs(shelf):
    """Two hundred files that are written at once take some syncs, not two hundred."""
    with watched(shelf, debounce_s=0.3) as (docs, watcher):
        time.sleep(0.4)  # so that the first of them is alone
        before = watcher.syncs
        for number in range(200):
            shelf.write({f"{number}.txt": f"tea {number}"})
        until(lambda: len(lines(docs)) == 202)
        assert watcher.syncs - before < 20


@pytest.mark.slow
def test_steady_writing_does_not_put_it_off_for_ever(shelf):
    """A folder that is never quiet is synced after max_wait_s."""
    ended = threading.Event()

    def write() -> None:
        count = 0
        while not ended.wait(0.005):
            count += 1
            shelf.write({"log.txt": f"line {count}"})

    with shelf.open() as docs, docs.watch(debounce_s=0.2, max_wait_s=0.2):
        writer = threading.Thread(target=write)
        writer.start()
        try:
            until(lambda: "log.txt" in lines(docs))
        finally:
            ended.set()
            writer.join()


class Hand:
    """Events that a test gives by hand, and a sync whose outcome it says: nothing depends on the
    clock.
    """

    def __init__(self):
        """No events, and syncs that succeed."""
        self.given: queue.Queue[bool] = queue.Queue()
        self.asked_again: queue.Queue[None] = queue.Queue()
        self.error: Exception | None = None
        self.synced: queue.Queue[int] = queue.Queue()

    def events(self, stop):
        """What was given, step by step."""
        yield False
        while not stop.is_set():
            self.asked_again.put(None)
            try:
                yield self.given.get(timeout=0.01)
            except queue.Empty:
                yield False

    def sync(self):
        """An empty report, or the error that is to be raised."""
        self.synced.put(0)
        error = self.error
        if error is not None:
            raise error
        return IngestReport()

    def watcher(self, debounce_s, max_wait_s, **arguments):
        """Started, with the first sync done."""
        made = Watcher(
            "the test", self.sync, self.events, debounce_s, max_wait_s, **arguments
        ).start()
        self.synced.get(timeout=PATIENCE_S)
        return made

    def steps(self, count):
        """Wait until so many steps have been taken."""
        while not self.asked_again.empty():
            self.asked_again.get_nowait()
        for _ in range(count):
            self.asked_again.get(timeout=PATIENCE_S)


def test_a_change_waits_for_quiet():
    """Nothing is synced before the quiet period is over, and wait_for_sync does not wait for it."""
    hand = Hand()
    with hand.watcher(1000.0, 1000.0) as watcher:
        hand.given.put(True)
        hand.steps(5)
        assert watcher.syncs == 1
        assert watcher.wait_for_sync(PATIENCE_S) == IngestReport()
        assert watcher.syncs == 2


def test_a_lone_change_is_synced_at_once(monkeypatch):
    """After quiet a change waits until it has settled; further changes, and those during a sync,
    wait for quiet.
    """
    now = [0.0]
    monkeypatch.setattr(watching.time, "monotonic", lambda: now[0])
    hand = Hand()
    watcher = Watcher("the test", hand.sync, hand.events, 10.0, 100.0)
    watcher._step(False)

    def synced(at, changed):
        now[0], before = at, watcher.syncs
        watcher._step(changed)
        return watcher.syncs > before

    assert not synced(5.0, True)  # soon after the first sync
    assert not synced(14.9, False)
    assert synced(15.0, False)
    assert not synced(25.0, True)  # alone
    assert synced(25.2, False)
    assert not synced(25.3, True)  # seen during the sync
    assert not synced(35.2, False)
    assert synced(35.3, False)
    assert not synced(50.0, True)  # the first of many
    assert not synced(50.04, True)
    assert not synced(60.0, False)
    assert synced(60.04, False)


def test_the_longest_wait_ends_before_quiet_does():
    """Changes that never cease are synced after max_wait_s, however long the quiet period is."""
    hand = Hand()
    with hand.watcher(0.1, 0.1) as watcher:
        end = time.monotonic() + PATIENCE_S
        while watcher.syncs < 3:  # the clock of the quiet period begins anew with each
            hand.given.put(True)
            hand.steps(1)
            assert time.monotonic() < end


def test_without_changes_nothing_is_synced():
    """Steps that tell of no change lead to nothing."""
    hand = Hand()
    with hand.watcher(0.0, 0.0) as watcher:
        hand.steps(20)
        assert watcher.syncs == 1
        assert watcher.errors == ()
        assert watcher.last_error is None


def test_a_program_can_say_that_something_changed():
    """After notify() a sync follows, as after a file's own event."""
    hand = Hand()
    with hand.watcher(0.0, 0.0) as watcher:
        watcher.notify()
        until(lambda: watcher.syncs == 2)


@pytest.mark.usefixtures("_quick_pauses")
def test_a_sync_that_fails_is_tried_again():
    """Errors are kept and told, syncs go on by themselves, and end when one succeeds."""
    hand, told = Hand(), []
    with hand.watcher(0.0, 0.0, on_error=told.append) as watcher:
        hand.error = IngestionError("no server")
        watcher.notify()
        until(lambda: len(watcher.errors) >= 3)
        assert watcher.last_report == IngestReport()  # of the first
        hand.error = None
        count = watcher.syncs
        until(lambda: watcher.syncs > count)
        settled = watcher.wait_for_sync(PATIENCE_S)
        assert settled == IngestReport()
        count = watcher.syncs
        hand.steps(30)
        assert watcher.syncs == count
        assert tuple(told) == watcher.errors
        assert isinstance(watcher.last_error, IngestionError)


def test_the_pauses_grow(monkeypatch):
    """A sync that keeps failing is tried after longer and longer pauses, up to a bound."""
    now = [0.0]
    monkeypatch.setattr(watching.time, "monotonic", lambda: now[0])
    tried: list[float] = []

    def sync():
        tried.append(now[0])
        raise IngestionError("no server")

    watcher = Watcher("the test", sync, lambda _stop: iter(()), 0.0, 0.0, on_error=lambda _: None)
    while len(tried) < 10:
        watcher._step(False)
        now[0] += 0.5
    pauses = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_a_change_shortens_the_pause(monkeypatch):
    """After an error, what changes is synced after the first pause, not after the long one."""
    now = [0.0]
    monkeypatch.setattr(watching.time, "monotonic", lambda: now[0])
    hand = Hand()
    watcher = Watcher("the test", hand.sync, hand.events, 0.0, 0.0, on_error=lambda _: None)
    hand.error = IngestionError("no server")
    for now[0] in (0.0, 1.0, 3.0, 7.0):
        watcher._step(False)
    assert watcher.syncs == 4
    now[0] = 7.5
    watcher._step(True)
    assert watcher.syncs == 4
    now[0] = 8.0  # a second after the failure, and seven before it would be tried again
    watcher._step(False)
    assert watcher.syncs == 5


def test_a_system_that_refuses_to_watch(shelf, monkeypatch):
    """Where the system's limit is reached watch() says what to do, and leaves no thread."""

    def refuse(*_paths, **_arguments):
        raise OSError("OS file watch limit reached.")
        yield

    monkeypatch.setattr("watchfiles.watch", refuse)  # the limit is the machine's, not a test's
    with (
        shelf.open() as docs,
        pytest.raises(DatasetPathError, match=r"limit reached.*or pass poll_s="),
    ):
        docs.watch()
    assert not [one for one in threading.enumerate() if one.name.startswith("lazyrag-watcher")]


@pytest.mark.usefixtures("_quick_pauses")
def test_watching_that_fails_later_begins_again():
    """If watching itself breaks off, the error is kept, it begins anew, and what went unseen is
    synced.
    """
    hand, broken = Hand(), threading.Event()

    def events(stop):
        yield False
        if not broken.is_set():
            broken.set()
            raise DatasetPathError("no more watches")
        yield from hand.events(stop)

    watcher = Watcher("the test", hand.sync, events, 0.0, 0.0, on_error=lambda _: None).start()
    with watcher:
        until(lambda: watcher.syncs == 2)
        hand.given.put(True)
        until(lambda: watcher.syncs == 3)
    assert [str(one) for one in watcher.errors] == ["no more watches"]


def test_who_waits_is_heard_while_watching_is_broken():
    """In the minute before it begins anew, a sync that somebody waits for is done."""
    hand, broken = Hand(), threading.Event()

    def events(stop):
        yield False
        if not broken.is_set():
            broken.set()
            raise DatasetPathError("no more watches")
        yield from hand.events(stop)

    with Watcher(
        "the test", hand.sync, events, 0.0, 0.0, on_error=lambda _: None
    ).start() as watcher:
        until(lambda: len(watcher.errors) == 1)
        assert watcher.wait_for_sync(timeout_s=watching._MAX_PAUSE_S / 2) is not None


@pytest.mark.usefixtures("_quick_pauses")
def test_one_warning_for_a_row_of_errors():
    """Without on_error the first error of a row is warned of, and those after it are not."""
    hand = Hand()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with hand.watcher(0.0, 0.0) as watcher:
            hand.error = IngestionError("no server")
            watcher.notify()
            until(lambda: len(watcher.errors) >= 3)
    assert [one.category for one in caught] == [IngestionWarning]
    assert "The watcher of the test continues after an error. IngestionError: no server." in str(
        caught[0].message
    )


@pytest.mark.usefixtures("_quick_pauses")
def test_warnings_made_errors_stop_nothing():
    """In a program that makes warnings errors the warning is kept beside the error, and the watcher
    goes on.
    """
    hand = Hand()
    with hand.watcher(0.0, 0.0) as watcher:
        hand.error = IngestionError("no server")
        watcher.notify()
        until(lambda: len(watcher.errors) >= 3)
        hand.error = None
        assert watcher.wait_for_sync(PATIENCE_S) == IngestReport()
    assert [type(one) for one in watcher.errors[:3]] == [
        IngestionError,
        IngestionWarning,
        IngestionError,
    ]


def test_callbacks_that_raise_stop_nothing():
    """What on_report raises is kept and told; syncs go on."""
    hand = Hand()

    def publish(_report) -> None:
        raise OSError("the bus is gone")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with hand.watcher(0.0, 0.0, on_report=publish) as watcher:
            assert watcher.wait_for_sync(PATIENCE_S) == IngestReport()
    assert [str(one) for one in watcher.errors] == ["the bus is gone"] * 2
    assert "The callback publish" in str(caught[0].message)


def test_reports_go_to_any_callable(shelf):
    """on_report gets the report of every sync, in the watcher's thread."""
    reports, threads = [], set()

    def publish(report) -> None:
        reports.append(report)
        threads.add(threading.current_thread().name)

    with watched(shelf, on_report=publish) as (docs, watcher):
        shelf.write({"c.txt": "still water"})
        until(lambda: any("c.txt" in one.added for one in reports))
        assert docs.last_report == watcher.last_report
    assert len(reports) == watcher.syncs
    assert all(name.startswith("lazyrag-watcher") for name in threads)


def test_closing_waits_for_the_sync_that_runs(shelf):
    """close() comes back when a running sync has ended, with all of it live."""
    begun, may_end = threading.Event(), threading.Event()

    class Slow(Lines):
        def __call__(self, text):
            if "water" in text:
                begun.set()
                assert may_end.wait(PATIENCE_S)
            return super().__call__(text)

    with shelf.open(Slow()) as docs, docs.watch(**QUICK) as watcher:
        lines(docs)
        shelf.write({"c.txt": "still water"})
        assert begun.wait(PATIENCE_S)
        closing = threading.Thread(target=watcher.close)
        closing.start()
        assert closing.is_alive()
        may_end.set()
        closing.join(PATIENCE_S)
        assert not watcher.is_running
        assert "c.txt" in lines(docs)
        assert "c.txt" in watcher.last_report.added


def test_the_document_closes_its_watcher(shelf):
    """A Document that is closed is watched no more, whoever closes it: on_report may, too."""
    with shelf.open() as docs:
        watcher = docs.watch(**QUICK)
    assert not watcher.is_running
    watcher.close()

    other = shelf.open()
    other_watcher = other.watch(**QUICK, on_report=lambda _: other.close())
    until(lambda: not other_watcher.is_running)
    other.close()


def test_the_first_report_may_close_the_document(shelf, monkeypatch):
    """Also if it comes before watch() has returned."""
    closed = threading.Event()
    start = Watcher.start

    def start_and_wait(watcher):
        start(watcher)
        assert closed.wait(PATIENCE_S)
        return watcher

    def close_document(_):
        docs.close()
        closed.set()

    monkeypatch.setattr(Watcher, "start", start_and_wait)
    docs = shelf.open()
    watcher = docs.watch(**QUICK, on_report=close_document)
    until(lambda: not watcher.is_running)


@pytest.mark.usefixtures("_quick_pauses")
@pytest.mark.parametrize("how", [BY_SYSTEM, BY_LOOKING], ids=["events", "looking"])
def test_a_folder_that_goes_away_and_comes_back(shelf, how):
    """While the folder is gone its documents are served, and errors are kept; back again, it is
    followed as before.
    """
    with watched(shelf, **how, on_error=lambda _: None) as (docs, watcher):
        away = shelf.root / "away"
        shelf.dataset.rename(away)
        until(lambda: isinstance(watcher.last_error, DatasetPathError))
        assert lines(docs) == {"a.txt": "green tea", "b.txt": "hot coffee"}
        away.rename(shelf.dataset)
        count = watcher.syncs
        until(lambda: watcher.syncs > count and watcher.wait_for_sync(PATIENCE_S) is not None)
        shelf.write({"c.txt": "still water"})
        until(lambda: "c.txt" in lines(docs))


def test_all_files_gone_at_once_are_withheld(shelf):
    """A folder that is emptied keeps its documents, as for any sync; max_deleted=1 lets them go."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IngestionWarning)
        with watched(shelf) as (docs, watcher):
            shelf.remove("a.txt", "b.txt")
            until(lambda: watcher.last_report.withheld == ("a.txt", "b.txt"))
            assert lines(docs).keys() == {"a.txt", "b.txt"}
            watcher.close()
            with docs.watch(**QUICK, max_deleted=1.0):
                until(lambda: not lines(docs))


def test_a_half_written_file_is_mended_by_the_next_event(shelf):
    """A file that cannot be read yet stands in the report as failed; when it is whole it is
    live.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IngestionWarning)
        with watched(shelf) as (docs, watcher):
            shelf.write({"c.json": '{"tea": "gre'})
            until(lambda: [one.path for one in watcher.last_report.failed] == ["c.json"])
            assert watcher.errors == ()  # a file that fails is no failed sync
            shelf.write({"c.json": '{"tea": "green"}'})
            until(lambda: "c.json" in lines(docs))


def test_single_files_are_followed(tmp_path):
    """doc_files are watched through their folders, so that saving by rename is seen; other files do
    not count.
    """
    one, other = tmp_path / "x" / "one.txt", tmp_path / "y" / "two.txt"
    for path in (one, other):
        path.parent.mkdir()
        path.write_text("green tea", encoding="utf-8")
    with Document(doc_files=[one, other]) as docs:
        docs.create_node_group("line", transform=lambda text: text.splitlines())
        with docs.watch(**QUICK):
            lines(docs)
            save(one, "black tea")
            until(lambda: lines(docs)["one.txt"] == "black tea")
            other.write_text("hot coffee", encoding="utf-8")
            until(lambda: lines(docs)["two.txt"] == "hot coffee")


def test_one_file_as_the_dataset_is_followed(tmp_path):
    """A Document over one file follows it."""
    path = tmp_path / "tea.txt"
    path.write_text("green tea", encoding="utf-8")
    with Document(path) as docs:
        docs.create_node_group("line", transform=lambda text: text.splitlines())
        with docs.watch(**QUICK):
            save(path, "black tea")
            until(lambda: lines(docs) == {"tea.txt": "black tea"})


def changes_in(events, count=6) -> list[bool]:
    """What some steps tell."""
    return [next(events) for _ in range(count)]


def test_the_stores_own_files_are_no_change(tmp_path):
    """With the store inside the dataset's folder a sync leads to no other one; a file beside it
    does.
    """
    shelf = Shelf(tmp_path, {"a.txt": "green tea"}, embed=None)
    store, stop = shelf.dataset / "store.db", threading.Event()
    events = file_events(
        WatchedFiles.of(make_dataset(shelf.dataset, None, None), store), stop, 0.05
    )
    assert next(events) is False
    with shelf.open(store=store) as docs:
        lines(docs)
        docs.sync()
        assert (shelf.dataset / "store.db").exists()
        assert not any(changes_in(events))
    shelf.write({"b.txt": "hot coffee"})
    until(lambda: next(events))
    stop.set()
    assert list(events) in ([], [False])


def test_a_store_inside_the_folder_is_followed_to_its_end(tmp_path):
    """A Document whose store lies in its own dataset comes to rest after each change."""
    shelf = Shelf(tmp_path, {"a.txt": "green tea"}, embed=None)
    with shelf.open(store=shelf.dataset / "store.db") as docs, docs.watch(**QUICK) as watcher:
        shelf.write({"b.txt": "hot coffee"})
        until(lambda: lines(docs).keys() == {"a.txt", "b.txt"})
        assert watcher.syncs < 10


def test_hidden_files_are_no_change(tmp_path):
    """What a sync passes over wakes nobody: hidden files and folders, and lock files of office
    programs.
    """
    shelf, stop = Shelf(tmp_path, {"sub/a.txt": "green tea"}), threading.Event()
    events = file_events(WatchedFiles.of(make_dataset(shelf.dataset, None, None), None), stop, 0.05)
    assert next(events) is False
    shelf.write({".hidden": "x", "~$a.docx": "x", "sub/.a.txt.swp": "x", ".git/index": "x"})
    assert not any(changes_in(events))
    shelf.write({"sub/a.txt": "black tea"})
    until(lambda: next(events))
    events.close()


def test_looking_sees_an_edit_of_the_same_second_and_length(tmp_path, monkeypatch):
    """Looking compares nanoseconds, and looks at new files once more: a system's own polling counts
    seconds.
    """
    shelf, stop = Shelf(tmp_path, {"a.txt": "green tea"}), threading.Event()
    path = shelf.dataset / "a.txt"
    os.utime(path, ns=(1_700_000_000_000_000_000,) * 2)
    dataset = make_dataset(shelf.dataset, None, None)
    events = poll_files(dataset, WatchedFiles.of(dataset, None), stop, 0.01, 0.02)
    assert next(events) is False
    assert not any(changes_in(events))
    path.write_text("black te", encoding="utf-8")
    os.utime(path, ns=(1_700_000_000_500_000_000,) * 2)
    until(lambda: next(events))
    assert not any(changes_in(events))
    monkeypatch.setattr(changes, "_RACY_NS", 1 << 62)
    until(lambda: next(events))  # now it counts as written just before
    assert not any(changes_in(events))
    monkeypatch.undo()
    # and now as settled: what was written within the same tick of the clock is seen, too
    until(lambda: next(events))
    assert not any(changes_in(events))
    stop.set()
    assert list(events) == []


def test_looking_leaves_the_store_alone(tmp_path):
    """The store's own files are no change for who looks, either."""
    shelf, stop = Shelf(tmp_path, {"a.txt": "green tea"}), threading.Event()
    os.utime(shelf.dataset / "a.txt", ns=(1_700_000_000_000_000_000,) * 2)
    dataset, store = make_dataset(shelf.dataset, None, None), shelf.dataset / "store.db"
    events = poll_files(dataset, WatchedFiles.of(dataset, store), stop, 0.01, 0.01)
    next(events)
    (shelf.dataset / "store.db-wal").write_text("x", encoding="utf-8")
    assert not any(changes_in(events))
    events.close()


def test_questions_see_one_version_while_it_syncs(shelf):
    """Whoever reads while files are renewed sees the old lines of a document, or the new ones,
    never some of both.
    """
    versions = [" ".join(f"v{number}-{line}" for line in range(20)) for number in range(6)]
    shelf.write({"a.txt": versions[0].replace(" ", "\n")})
    seen, ended = set(), threading.Event()
    with watched(shelf) as (docs, watcher):

        def read() -> None:
            while not ended.wait(0.002):
                seen.add(lines(docs)["a.txt"])

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for version in versions[1:]:
                save(shelf.dataset / "a.txt", version.replace(" ", "\n"))
                watcher.wait_for_sync(PATIENCE_S)
            until(lambda: versions[-1] in seen)
        finally:
            ended.set()
            reader.join()
    assert seen <= set(versions)
    assert len(seen) > 1


def test_waiting_raises_what_the_sync_raised(shelf):
    """wait_for_sync raises the error of the sync that it waited for."""
    with watched(shelf, on_error=lambda _: None) as (_, watcher):
        shelf.dataset.rename(shelf.root / "away")
        with pytest.raises(DatasetPathError, match="cannot be listed"):
            watcher.wait_for_sync(PATIENCE_S)


def test_waiting_ends(shelf):
    """It ends with None when the time is over, and with an error on a closed watcher or in its own
    thread.
    """
    inside: list[Exception] = []

    def wait_inside(_report) -> None:
        try:
            watcher.wait_for_sync()
        except ConfigError as exc:
            inside.append(exc)

    release = threading.Event()
    hand = Hand()
    watcher = Watcher(
        "the test",
        lambda: (release.wait(PATIENCE_S), IngestReport())[1],
        hand.events,
        0.0,
        0.0,
        wait_inside,
    )
    watcher.start()
    assert watcher.wait_for_sync(0.01) is None
    release.set()
    assert watcher.wait_for_sync(PATIENCE_S) == IngestReport()
    watcher.close()
    with pytest.raises(ConfigError, match="the test is closed"):
        watcher.wait_for_sync()
    assert "another thread" in str(inside[0])


def test_a_second_watcher_is_refused(shelf):
    """One Document has one watcher at a time; after it is closed there may be another."""
    with watched(shelf) as (docs, watcher):
        with pytest.raises(ConfigError, match="already has an active Watcher"):
            docs.watch()
        watcher.close()
        with docs.watch(**QUICK) as another:
            assert another.wait_for_sync(PATIENCE_S) is not None


def test_what_cannot_be_watched(shelf):
    """A Document without files, a read-only one and a view say what to do."""
    with pytest.raises(ConfigError, match="no folder and no doc_files to watch"):
        Document().watch()
    with shelf.open() as docs:
        lines(docs)
        with pytest.raises(ConfigError, match="restricted"):
            docs.restricted({"file_name": "a.txt"}).watch()
    store = shelf.root / "store.db"
    with shelf.open(store=store) as docs:
        docs.sync()
    with (
        shelf.open(store=store, read_only=True) as docs,
        pytest.raises(ConfigError, match="Watch in the program that writes"),
    ):
        docs.watch()


async def asynchronous(told):
    """Nobody awaits it."""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"debounce_s": -1}, "debounce_s must be .* -1"),
        ({"debounce_s": True}, "debounce_s must be .* True"),
        ({"max_wait_s": float("inf")}, "max_wait_s must be .* inf"),
        ({"debounce_s": 5, "max_wait_s": 1}, "max_wait_s must be at least debounce_s"),
        ({"poll_s": 0}, "poll_s must be .* got 0"),
        ({"poll_s": "1"}, "poll_s must be .* '1'"),
        ({"max_deleted": 2}, "max_deleted must be .* 2"),
        ({"on_report": 3}, "on_report must be .* 3"),
        ({"on_report": asynchronous}, "not asynchronous"),
        ({"debounce_s": 0, "max_wait_s": 1e12}, "max_wait_s must be .* 1000"),
        ({"on_error": "print"}, "on_error must be .* 'print'"),
        ({"debounce": 1}, "Did you mean 'debounce_s'"),
    ],
)
def test_wrong_arguments(shelf, arguments, told):
    """Each is refused, with what was given and what is allowed; no thread is left."""
    with shelf.open() as docs, pytest.raises(ConfigError, match=told):
        docs.watch(**arguments)
    assert not [one for one in threading.enumerate() if one.name.startswith("lazyrag-watcher")]


@pytest.mark.slow
def test_without_watchfiles():
    """Without the package watch() names the extra, and looking by itself still works."""
    code = """
        import sys, tempfile
        from pathlib import Path
        sys.modules["watchfiles"] = None
        from lazyrag import Document
        from lazyrag.errors import MissingDependencyError
        with tempfile.TemporaryDirectory() as folder, Document(folder) as docs:
            try:
                docs.watch()
            except MissingDependencyError as exc:
                print(exc)
            with docs.watch(poll_s=0.05, debounce_s=0.0) as watcher:
                Path(folder, "tea.txt").write_text("green tea", encoding="utf-8")
                print(type(watcher.wait_for_sync(60)).__name__, docs.status())
        """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert 'pip install -e ".[watch]"' in done.stdout
    assert "IngestReport default: 1 documents" in done.stdout


@pytest.mark.slow
def test_a_program_may_end_without_closing():
    """A watcher that is left open does not hold up the end of a program."""
    code = """
        import tempfile
        from lazyrag import Document
        folder = tempfile.mkdtemp()
        watcher = Document(folder).watch()
        print(watcher)
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert "running" in done.stdout
