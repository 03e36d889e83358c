"""Files that end their loader: each is a failure of its own, and is not read again until there is a
reason.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from lazyrag import Document, IngestionWarning
from lazyrag.errors import LoaderEndedError, LoadError
from lazyrag.loaders import LoadLimits, load_file
from lazyrag.loaders.process import ChildProcess, end_all, resident_bytes
from tests.hostile import MEBIBYTE, costly_form, endless_form, long_pdf, zipped
from tests.interpreter import python

READER = '''
import os
import signal


def read(path):
    """Ends its process where the file says so, and notes each call beside the folder."""
    with (path.parent.parent / "calls.txt").open("a") as calls:
        calls.write(path.name + "\\n")
    text = path.read_text(encoding="utf-8")
    if text == "crash":
        os.abort()
    return text
'''


@pytest.fixture
def crashing(tmp_path, monkeypatch):
    """A reader that other processes can import, and a function that counts its calls."""
    (tmp_path / "quarantine_readers.py").write_text(READER, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import quarantine_readers

    yield quarantine_readers.read
    sys.modules.pop("quarantine_readers")


def stored_in(folder):
    """The settings of a store on the disk."""
    return {"segment_store": {"type": "sqlite", "kwargs": {"uri": str(folder / "store.db")}}}


def synced(path, read, *, retry=False, **limits):
    """What a new Document of the store says after a sync: its texts, and its failures."""
    limits = LoadLimits(processes=1, **limits)
    with Document(path, store_conf=stored_in(path.parent), limits=limits) as docs:
        docs.add_reader("*.do", read)
        with pytest.warns(IngestionWarning):
            report = docs.sync(retry=retry)
        assert [one for one, _ in docs.status().failed] == [
            failure.path for failure in report.failed
        ]
        return sorted(node.text for node in docs.get_nodes()), report.failed


@pytest.mark.slow
def test_a_file_that_ends_its_loader_three_times_is_left_alone(folder, tmp_path, crashing):
    """It is named, other files are in, and no later program reads it, until it is asked to or
    something changes.
    """
    path = folder({"a.do": "tea", "b.do": "crash"})
    calls = path.parent / "calls.txt"

    def crashes() -> int:
        return calls.read_text(encoding="utf-8").split().count("b.do")

    texts, [failure] = synced(path, crashing)
    assert texts == ["tea"]
    assert (failure.path, type(failure.error)) == ("b.do", LoaderEndedError)
    assert str(failure.error).startswith("Quarantined: The process that loaded the file ended")
    assert crashes() == 3
    _, [again] = synced(path, crashing)
    assert str(again.error) == str(failure.error)
    assert crashes() == 3
    synced(path, crashing, retry=True)
    assert crashes() == 6
    synced(path, crashing, time_s=99)
    assert crashes() == 9
    (path / "b.do").write_text("water", encoding="utf-8")
    os.utime(path / "b.do", (1, 1))
    with Document(path, store_conf=stored_in(path.parent)) as docs:
        docs.add_reader("*.do", crashing)
        assert docs.sync().failed == ()
        assert sorted(node.text for node in docs.get_nodes()) == ["tea", "water"]


def test_a_form_that_draws_itself_fails_soon_and_small(folder):
    """A PDF of some hundred bytes would take all memory: its process ends, this one goes on, and
    others are read.
    """
    assert len(endless_form()) < 1000
    path = folder({"a.pdf": endless_form(), "b.txt": "tea"})
    before, started = resident_bytes(os.getpid()), time.process_time()
    with pytest.raises(LoaderEndedError, match=r"took more than 240.* MiB") as caught:
        load_file(path / "a.pdf")
    assert (caught.value.path, caught.value.loader) == (str(path / "a.pdf"), "PdfLoader")
    with Document(path) as docs:
        with pytest.warns(
            IngestionWarning, match=r"1 of 2 files failed to load.*a\.pdf.*Quarantined"
        ):
            assert [node.path for node in docs.get_nodes()] == ["b.txt"]
        assert [one.why.partition(":")[0] for one in docs.plan().formats if one.why] == [
            "Quarantined"
        ]
    assert resident_bytes(os.getpid()) - before < 100 * MEBIBYTE
    assert time.process_time() - started < 8


@pytest.mark.skipif(
    not resident_bytes(os.getpid()), reason="this system does not report what a process takes"
)
def test_time_of_the_processor_is_limited_within_a_page(tmp_path):
    """What takes no memory is ended by its share of the loader's time, 7 s of 600; it is not tried
    again.
    """
    from lazyrag.loaders.pdf import PdfLoader

    (tmp_path / "a.pdf").write_bytes(costly_form())
    with pytest.raises(
        LoadError, match=r"more than 0\.7 s of the processor, too much for its size.*max_seconds"
    ):
        PdfLoader(max_seconds=60).load(tmp_path / "a.pdf")


def test_inside_of_an_archive(folder):
    """The others of the archive are read."""
    path = folder({"a.zip": zipped({"a.pdf": endless_form(), "b.txt": b"tea"})}) / "a.zip"
    loaded = load_file(path)
    assert loaded.text == "tea"
    assert "took more than" in str(loaded.metadata)


def test_what_shows_a_page_is_protected_too(folder):
    """Pictures of pages, and a plan, run in the same processes; the next file is read by
    another.
    """
    path = folder({"a.pdf": endless_form(), "b.pdf": long_pdf(1)})
    from lazyrag.loaders.pdf import PdfLoader

    file = PdfLoader().open(path / "a.pdf")
    with pytest.raises(LoaderEndedError):
        file.image(0, 20)
    file.close()
    file = PdfLoader().open(path / "b.pdf")
    assert file.image(0, 20).shape[2] == 3
    file.close()


def test_processes_are_kept_warm_and_end_with_the_program(folder):
    """One process reads many files; an explicit end, as at exit, leaves none and no folder."""
    from lazyrag.loaders import process

    path = folder({"a.pdf": long_pdf(1)}) / "a.pdf"
    for _ in range(3):
        with pytest.raises(LoadError, match="no text layer"):
            load_file(path)
    [warm] = process._idle["lazyrag.loaders.pdf_pages:OpenPdf"]
    assert warm.count >= 9
    assert os.path.exists(warm._folder)  # noqa: PTH110
    end_all()
    assert not warm.is_alive
    assert not os.path.exists(warm._folder)  # noqa: PTH110


def test_no_process_without_a_pdf(folder):
    """A folder of other files starts none, and imports nothing for it."""
    path = folder({"a.txt": "tea", "b.md": "# Tea", "c.html": "<p>tea"})
    program = f"import sys\nfrom lazyrag import Document\nDocument({str(path)!r}).get_nodes()\n"
    done = python(
        "-c", program + "print([one for one in ('subprocess', 'pypdfium2') if one in sys.modules])"
    )
    assert "pypdfium2" not in done.stdout
    program += "from lazyrag.loaders import process\nprint(len(process._running))"
    assert python("-c", program).stdout == "0\n"


@pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="this system has no timers that interrupt"
)
def test_an_interrupted_call_leaves_no_answer_behind():
    """The next call does not get the answer of the interrupted one: the process has ended."""
    process = ChildProcess("threading:Event")
    assert process.call("is_set") is False
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            process.call("wait")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not process.is_alive
    assert not process.reserve()


def test_a_call_that_hangs_is_ended():
    """Within its time, with the limit in the error; without a limit it goes on."""
    process = ChildProcess("threading:Event")
    with pytest.raises(
        LoaderEndedError, match=r"took longer than 0\.2 s; the limit time_s=0\.2 is exceeded"
    ):
        process.call("wait", limits=LoadLimits(time_s=0.2))
    assert not process.is_alive


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_uses_processes_of_its_own(folder):
    """A program that forks with a warm process shares no pipe with its child."""
    path = folder({"a.pdf": long_pdf(1)}) / "a.pdf"
    program = (
        "import os, sys\nfrom lazyrag.errors import LoadError\nfrom lazyrag.loaders import load_file, process\n"
        "def count():\n    try:\n        load_file(sys.argv[1])\n    except LoadError as exc:\n"
        "        assert 'no text layer' in str(exc)\n    [[warm]] = process._idle.values()\n"
        "    return warm._process.pid\n"
        "first, child = count(), os.fork()\n"
        "if not child:\n    os._exit(count() == first)\n"
        "print(os.waitpid(child, 0)[1], count() == first)\n"
    )
    assert python("-c", program, str(path)).stdout == "0 True\n"
