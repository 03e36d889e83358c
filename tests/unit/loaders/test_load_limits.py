"""Limits of one file: what is made to harm, or harms by accident, is one failure within them; the
others are in.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lazyrag import Document, IngestionWarning
from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders import LoadLimits, load_file
from lazyrag.loaders.base import DEFAULT_LIMITS, check_pages
from lazyrag.loaders.pdf import PdfLoader
from lazyrag.loaders.process import resident_bytes
from tests.hostile import (
    HOSTILE,
    MEBIBYTE,
    PEAK_MEBIBYTES,
    long_pdf,
    many_mails,
    peak_of,
    strings,
    zipped,
)
from tests.interpreter import ROOT


@pytest.mark.sample(48)
@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_made_to_harm_is_one_failure(folder, name):
    """It ends soon and without memory, as one LoadError; the other file is in."""
    make, words = HOSTILE[name]
    docs = Document(folder({name: make(), "good.txt": "tea"}))
    started, before = time.monotonic(), resident_bytes(os.getpid())
    with pytest.warns(IngestionWarning, match=rf"1 of 2 files failed to load.*{words}"):
        assert [node.path for node in docs.get_nodes()] == ["good.txt"]
    [failure] = docs.last_report.failed
    assert (failure.path, isinstance(failure.error, LoadError)) == (name, True)
    assert time.monotonic() - started < 30
    assert resident_bytes(os.getpid()) - before < 200 * MEBIBYTE


@pytest.mark.sample(30)
@pytest.mark.parametrize("name", [name for name in HOSTILE if name.endswith(".pdf")])
@pytest.mark.skipif(
    sys.platform == "win32", reason="this system does not tell the peak of a process"
)
def test_pdf_bombs_stay_small(tmp_path, name):
    """In a process of its own, whose peak counts: strings, streams within streams."""
    make, words = HOSTILE[name]
    (tmp_path / name).write_bytes(make())
    peak, seconds, found = peak_of(tmp_path / name)
    assert found.startswith(("LoadError: ", "LoaderEndedError: "))
    assert words in found
    assert peak < PEAK_MEBIBYTES
    assert seconds < 30


def test_a_page_of_many_objects_is_refused(folder):
    """Pages may share contents, as letterheads do; a page that lists them twice has twice as
    many.
    """
    loader, shared = PdfLoader(max_objects=1000), long_pdf(12, [strings(900)])
    path = folder({"a.pdf": shared, "b.pdf": shared.replace(b"[15 0 R]", b"[15 0 R 15 0 R]", 1)})
    assert loader.load(path / "a.pdf").text.count("a") > 12 * 100  # as many as fit on the pages
    with pytest.raises(LoadError, match="more than 1,000 strings"):
        loader.load(path / "b.pdf")


@pytest.mark.slow
def test_members_share_a_limit(folder):
    """Files within files count together, however deep they are: archives, mails, and both in each
    other.
    """
    limits = LoadLimits(members=12)
    enough, many = (
        zipped({f"{at}.txt": b"tea" for at in range(3)}),
        zipped({f"{at}.txt": b"tea" for at in range(7)}),
    )
    good = folder({"a.zip": zipped({f"{at}.zip": enough for at in range(3)})}) / "a.zip"
    assert load_file(good, limits=limits).text.count("tea") == 9
    words = r"more than 12 files; the limit members=12 is exceeded.*LoadLimits\(members="
    for name, data in (
        ("b.zip", zipped({f"{at}.zip": many for at in range(2)})),
        ("c.eml", many_mails(3, 4)),
        ("d.zip", zipped({"a.eml": many_mails(3, 4)})),
        ("e.mbox", b"From a@b Thu Jan  1 00:00:00 1970\n" + many_mails(3, 4)),
    ):
        with pytest.raises(LoadError, match=words):
            load_file(folder({name: data}) / name, limits=limits)


def test_many_levels_of_archives(folder):
    """An archive in an archive is read, to a depth; one that goes on is reported, and nothing is
    unpacked for ever.
    """
    data = b"tea"
    name = "tea.txt"
    for _ in range(4):
        data, name = zipped({name: data}), "inner.zip"
    assert load_file(folder({"four.zip": data}) / "four.zip").text == "tea"
    for _ in range(3):
        data = zipped({"inner.zip": data})
    with pytest.raises(LoadError, match="nested deeper than 5 files"):
        load_file(folder({"seven.zip": data}) / "seven.zip")


@pytest.mark.slow
def test_archives_share_a_limit(folder):
    """What archives in an archive unpack to counts together: many that are small are as bad as one
    that is large.
    """
    content = os.urandom(MEBIBYTE // 2).hex().encode()
    inner = zipped({"a.txt": content, "b.txt": content})
    data = zipped({f"{number}.zip": inner for number in range(3)})
    path = folder({"a.zip": data}) / "a.zip"
    assert (
        len(load_file(path, limits=LoadLimits(unpacked_bytes=16 * MEBIBYTE)).text) >= 6 * MEBIBYTE
    )
    words = r"unpacks to more than 4 MiB; the limit unpacked_bytes=4,194,304 is exceeded.*LoadLimits\(unpacked_bytes="
    with pytest.raises(LoadError, match=words):
        load_file(path, limits=LoadLimits(unpacked_bytes=4 * MEBIBYTE))


@pytest.mark.parametrize(
    ("limits", "name", "data", "words"),
    [
        (
            LoadLimits(bytes=3),
            "a.txt",
            b"tea.",
            r"has 4 bytes; the limit bytes=3 is exceeded.*LoadLimits\(bytes=",
        ),
        (
            LoadLimits(pages=9),
            "a.pdf",
            long_pdf(10),
            r"has 10 pages; the limit pages=9 is exceeded",
        ),
        (
            LoadLimits(unpacked_bytes=3),
            "a.zip",
            zipped({"a.txt": b"tea."}),
            "the limit unpacked_bytes=3 is exceeded",
        ),
    ],
)
def test_a_limit_of_a_document(folder, limits, name, data, words):
    """What exceeds it is reported with the limit, its value and how to raise it; with 0 it is read,
    or fails later.
    """
    path = folder({name: data, "b.log": "x"})
    with pytest.warns(IngestionWarning, match=rf"1 of 2 files.*{words}.*0 is no limit"):
        Document(path, limits=limits).get_nodes()
    without = LoadLimits(bytes=0, pages=0, unpacked_bytes=None)
    if name != "a.pdf":  # its pages are empty
        assert "tea." in {node.text for node in Document(path, limits=without).get_nodes()}


def test_pages_of_members_count_for_each(folder):
    """An archive of many PDF may have more pages than one may: the limit is that of one
    document.
    """
    pdf = (ROOT / "cookbook/corpus/reports/member-meeting-minutes-2025.pdf").read_bytes()
    path = folder({"a.zip": zipped({f"{number}.pdf": pdf for number in range(3)})}) / "a.zip"
    assert (
        sum(
            location.kind == "page"
            for location in load_file(path, limits=LoadLimits(pages=2)).locations
        )
        == 6
    )
    with pytest.raises(LoadError, match=r"None of the 3 members.*has 2 pages; the limit pages=1"):
        load_file(path, limits=LoadLimits(pages=1))


def test_what_loaders_say_is_held_to_the_limit(folder):
    """A user's reader that yields more pages than allowed fails, too, though it has never heard of
    limits.
    """
    docs = Document(folder({"a.book": "x", "b.txt": "tea"}), limits=LoadLimits(pages=2))

    @docs.add_reader("*.book")
    def read(path):
        from lazyrag import DocNode

        return [DocNode(text=f"page {number}", metadata={"page": number}) for number in range(3)]

    with pytest.warns(IngestionWarning, match="3 pages; the limit pages=2"):
        docs.get_nodes()


def test_pages_are_checked_outside_of_loading_as_well():
    """A loader that is called by itself is held to the default limits."""
    check_pages(DEFAULT_LIMITS.pages)
    with pytest.raises(LoadError, match="slides"):
        check_pages(DEFAULT_LIMITS.pages + 1, "slides")


@pytest.mark.parametrize(
    "wrong",
    [
        {"bytes": -1},
        {"pages": 1.5},
        {"time_s": -1},
        {"time_s": "1"},
        {"time_s": float("inf")},
        {"memory_bytes": True},
    ],
)
def test_wrong_limits_are_refused(wrong):
    """A limit is a number that is not negative."""
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        LoadLimits(**wrong)


def test_limits_that_nothing_would_hold_are_refused():
    """Time and memory need a process; a limit that would be ignored is an error. Anything but
    LoadLimits is one.
    """
    for name in ("time_s", "memory_bytes"):
        with pytest.raises(ConfigError, match=f"{name}=.*processes=1"):
            Document(limits=LoadLimits(**{name: 7}))
        Document(limits=LoadLimits(**{name: 7}, processes=1))
        Document(limits=LoadLimits(**{name: 0}))
    with pytest.raises(ConfigError, match="must be a LoadLimits"):
        Document(limits={"pages": 3})
    with pytest.raises(ConfigError, match="Did you mean 'pages'"):
        LoadLimits(page=3)


def test_zero_is_none():
    """Both take a limit away."""
    assert LoadLimits(pages=0) == LoadLimits(pages=None)
    assert LoadLimits(pages=0).pages is None


LOADERS = '''
import os
import subprocess
import sys
import tempfile
import time


def read(path):
    """Does what its file says."""
    what = path.read_text(encoding="utf-8")
    if what == "hang":
        with open(tempfile.mkstemp()[1], "w") as file:
            file.write("left behind")
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        path.with_suffix(".child").write_text(str(child.pid), encoding="utf-8")
        time.sleep(60)
    if what == "grow":
        held = []
        while True:
            held.append(b"x" * (8 << 20))
            time.sleep(0.005)
    if what == "burst":
        held = bytearray(b"x" * (4 << 30))
    return f"{what} in {os.getpid()} at {tempfile.gettempdir()}"
'''


@pytest.fixture
def read(tmp_path, monkeypatch):
    """A reader that hangs or eats memory where a file says so, and that other processes can
    import.
    """
    location = tmp_path / "modules"
    location.mkdir()
    (location / "hostile_readers.py").write_text(LOADERS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(location))
    import hostile_readers

    yield hostile_readers.read
    sys.modules.pop("hostile_readers")


@pytest.mark.slow
def test_a_loader_that_hangs_is_killed(folder, read):
    """Within its time; what it began is killed with it, what it left behind is gone, and the other
    files are in.
    """
    path = folder({"a.do": "tea", "b.do": "hang", "c.do": "milk"})
    started = time.monotonic()
    with Document(path, limits=LoadLimits(time_s=2, processes=1)) as docs:
        docs.add_reader("*.do", read)
        words = r"1 of 3 files.*took longer than 2 s; the limit time_s=2 is exceeded\. Raise it with Document\(limits="
        with pytest.warns(IngestionWarning, match=words):
            found = {node.path: node.text for node in docs.get_nodes()}
        [failure] = docs.last_report.failed
    assert 2 <= time.monotonic() - started < 30
    assert sorted(found) == ["a.do", "c.do"]
    assert failure.error.loader == "read"
    folders = {text.rpartition(" at ")[2] for text in found.values()}
    assert folders
    assert not any(os.path.exists(one) for one in folders)  # noqa: PTH110
    child = int((path / "b.child").read_text(encoding="utf-8"))
    for _ in range(50):
        if not resident_bytes(child):
            break
        time.sleep(0.05)
    assert resident_bytes(child) == 0


@pytest.mark.slow
@pytest.mark.skipif(
    not resident_bytes(os.getpid()), reason="this system does not tell what a process has in memory"
)
@pytest.mark.parametrize("what", ["grow", "burst"])
def test_a_loader_that_eats_memory_is_stopped(folder, read, what):
    """Slowly or at once: it ends as one failure that names the limit; the other files are in."""
    path = folder({"a.do": "tea", "b.do": what, "c.do": "milk"})
    with Document(path, limits=LoadLimits(memory_bytes=300 * MEBIBYTE, processes=1)) as docs:
        docs.add_reader("*.do", read)
        words = (
            r"1 of 3 files.*took more than 300 MiB; the limit memory_bytes=314,572,800 is exceeded"
        )
        with pytest.warns(IngestionWarning, match=words):
            assert [node.path for node in docs.get_nodes()] == ["a.do", "c.do"]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system kills in another way")
def test_a_program_that_is_killed_leaves_no_process_behind(folder, tmp_path, read):
    """A process that loads for it, and would go on for ever, ends within seconds."""
    path = folder({"a.do": "hang", "b.do": "tea"})
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import sys
sys.path.insert(0, {str(tmp_path / "modules")!r})
from hostile_readers import read
from lazyrag import Document
from lazyrag.loaders import LoadLimits
if __name__ == "__main__":
    docs = Document({str(path)!r}, limits=LoadLimits(processes=1), workers=1)
    docs.add_reader("*.do", read)
    docs.get_nodes()
""",
        encoding="utf-8",
    )
    running = subprocess.Popen([sys.executable, str(program)])
    note = path / "a.child"
    deadline = time.monotonic() + 30
    while not (note.exists() and note.read_text(encoding="utf-8")) and time.monotonic() < deadline:
        time.sleep(0.05)
    child = int(note.read_text(encoding="utf-8"))
    loading = int(
        Path(f"/proc/{child}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1]
    )
    assert resident_bytes(loading) > 0
    running.kill()
    running.wait()
    deadline = time.monotonic() + 10
    while resident_bytes(loading) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert resident_bytes(loading) == 0
    os.kill(child, signal.SIGKILL)


@pytest.mark.slow
def test_processes_are_recycled(folder, read):
    """After so many files another process takes the place of one, and every file is in."""
    path = folder({f"{number}.do": "tea" for number in range(5)})
    with Document(path, limits=LoadLimits(files_per_process=2, processes=1)) as docs:
        docs.add_reader("*.do", read)
        found = [node.text.split()[2] for node in docs.get_nodes()]
    assert sorted(found.count(one) for one in set(found)) == [1, 2, 2]


@pytest.mark.slow
def test_a_single_file_goes_to_a_process(folder, read):
    """Where processes are asked for, a sync of one file is protected as well, and so is a plan."""
    with Document(folder({"a.do": "tea"}), limits=LoadLimits(processes=1)) as docs:
        docs.add_reader("*.do", read)
        assert docs.plan().steps
        [node] = docs.get_nodes()
        assert int(node.text.split()[2]) != os.getpid()
    with Document(folder({"a.do": "hang"}), limits=LoadLimits(time_s=2, processes=1)) as docs:
        docs.add_reader("*.do", read)
        started = time.monotonic()
        docs.plan()
        assert time.monotonic() - started < 30
