"""A callback for programs tells how far ingestion is."""

from __future__ import annotations

import io
import itertools
import os
import re
import sys
import threading
import time

import pytest

from lazyrag import Document, Retriever
from lazyrag.errors import CanceledError, ConfigError
from lazyrag.progress import calls as progress_bar
from lazyrag.progress.calls import ProgressTask, during_call, raise_if_canceled

FILES = {f"{name}.txt": "green tea\nblack tea" for name in "abcde"}


def test_progress_tells_every_step(folder):
    """Each piece of work goes from a first step to all of its documents, never backwards, and names
    what is done.
    """
    seen = []
    with (
        Document(folder(FILES), embed=lambda text: [1.0, float(len(text))]) as docs,
        during_call(seen.append),
    ):
        docs.create_node_group("line", transform=str.splitlines)
        Retriever(docs, "line")("tea")
        Retriever(docs, "line", similarity="bm25")("tea")
    pieces = [
        (what, list(some)) for what, some in itertools.groupby(seen, key=lambda one: one.what)
    ]
    assert [what for what, _ in pieces] == [
        "sync",  # with the lines: the first sync of an empty store makes what was requested
        "embed line with default",
        "index line with en",
    ]
    for what, some in pieces:
        done = [one.done for one in some]
        assert done == sorted(done)
        total = 10 if what.startswith("embed") else 5  # nodes, while they are embedded
        assert (done[-1], some[-1].total) == (total, total)
        assert len(some) > (2 if total == 10 else 5)  # two distinct texts
        assert what == "sync" or what in {one.step for one in some}
    assert [one.step for one in pieces[0][1]][:5] == ["load"] * 5


def test_a_sync_counts_each_step_of_a_document(folder):
    """A file that has to be loaded, transformed and indexed is done by thirds."""
    root = folder(FILES)
    for path in root.iterdir():
        os.utime(path, (1e9, 1e9))  # else a sync looks at each of them once more, so young are they
    seen = []
    with Document(root) as docs, during_call(seen.append):
        docs.create_node_group("line", transform=str.splitlines)
        Retriever(docs, "line", similarity="bm25")("tea")
        seen.clear()
        (root / "a.txt").write_text("white tea", encoding="utf-8")
        docs.sync()
    assert [(one.step, round(one.done, 2), one.total) for one in seen] == [
        ("load", 0.33, 1),
        ("transform line", 0.67, 1),
        ("index line with en", 1.0, 1),
        ("sync", 1, 1),
    ]


def test_what_a_callback_raises_stops_the_work_and_loses_nothing(folder):
    """The error comes out; the next call goes on."""
    calls = []

    def stop(progress):
        calls.append(progress)
        if len(calls) == 3:
            msg = "stopped by the user"
            raise RuntimeError(msg)

    with Document(folder(FILES)) as docs, during_call(stop):
        with pytest.raises(RuntimeError, match="stopped by the user"):
            docs.get_nodes()
        assert len(docs.get_nodes()) == 5


@pytest.mark.parametrize("wrong", [3, "bar", True])
def test_a_callback_can_be_called(wrong):
    """Anything else is refused."""
    with pytest.raises(ConfigError, match="function"):
        Document().sync(on_progress=wrong)


def test_the_time_left_of_embedding_is_right_for_files_of_any_size(folder):
    """Where few files have most of the nodes, nodes are counted: with the calls of the model as the
    clock, the time left by the share that is done is right within a factor of two.
    """
    calls, seen = [], []

    def embed(text):
        calls.append(text)
        return [1.0, float(len(text))]

    files = {f"{number:02}.txt": f"tea {number}" for number in range(40)}
    files |= {
        f"9{number}.txt": "\n".join(f"line {number} {line}" for line in range(200))
        for number in range(5)
    }
    with Document(folder(files), embed=embed, workers=1) as docs:
        docs.create_node_group("line", transform=str.splitlines)
        docs.activate_group("line")
        docs.activate_group(
            "line",
            embed_keys=["default"],
            on_progress=lambda one: seen.append((len(calls), one)),
        )
    embedding = [(now, one.done, one.total) for now, one in seen if one.what.startswith("embed")]
    assert embedding[-1] == (1040, 1040, 1040)
    halves = [one for one in embedding if 0.2 < one[1] / one[2] < 0.8]
    assert halves
    assert all(
        0.5 < (now / done * (total - done)) / (1040 - now) < 2 for now, done, total in halves
    )


class Terminal(io.StringIO):
    """A standard error output that is a terminal."""

    def isatty(self):
        """It is."""
        return True


def open_terminal(monkeypatch):
    """The terminal of this test, on which the bar appears at once and draws each change."""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    for name in ("_DELAY_S", "_TICK_S"):
        monkeypatch.setattr(progress_bar, name, 0.0)
    return found


def drawn(terminal):
    """What the bar has shown, in order."""
    return [line.strip() for line in terminal.getvalue().split("\r") if line.strip()]


def until(condition):
    """Wait for another thread."""
    for _ in range(300):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("nothing was drawn")


def test_the_bar_counts_in_whole_numbers(folder, monkeypatch):
    """A file is done by thirds; the bar shows whole files, of their number, without a point."""
    terminal = open_terminal(monkeypatch)

    def lines(text):
        until(lambda: any("/5 files" in line and "compare" not in line for line in drawn(terminal)))
        return text.splitlines()

    with Document(folder(FILES), workers=1) as docs:
        docs.create_node_group("line", transform=lines)
        Retriever(docs, "line", similarity="bm25")("tea")
    shown = [line for line in drawn(terminal) if "compare" not in line]
    assert shown
    assert all(
        re.fullmatch(r"[\w ]+: +\d+%\|.*\| [0-5]/5 files \[\d\d:\d\d<(\?|\d\d:\d\d)\]", line)
        for line in shown
    )


def test_the_bar_appears_before_anything_is_done(folder, monkeypatch):
    """A first file that takes long is no reason to show nothing."""
    terminal = open_terminal(monkeypatch)
    docs = Document(folder({"slow.txt": "tea"}), workers=1)

    def read(path):
        until(lambda: "0/1 files" in terminal.getvalue())
        return path.read_text()

    docs.add_reader("*.txt", read)
    docs.sync()
    assert docs.last_report.added == ("slow.txt",)


def test_there_is_one_bar(monkeypatch):
    """Pages of a file stand behind the files, on the same line; Chinese names fit."""
    terminal = open_terminal(monkeypatch)
    with ProgressTask("嵌入 段落", 10, "file") as files, ProgressTask("OCR", 8, "page") as pages:
        until(lambda: "0/10 files" in terminal.getvalue())
        pages.reach(7)
        files.reach(5.4)
        assert drawn(terminal)[-1].split("| ")[-1].startswith("5/10 files")
        assert drawn(terminal)[-1].endswith(", OCR 7/8")
        assert drawn(terminal)[-1].startswith("嵌入 段落:  50%|")


def test_without_a_terminal_there_is_no_bar(folder, capfd):
    """Nothing is printed."""
    with Document(folder(FILES)) as docs:
        docs.sync()
    assert capfd.readouterr().err == ""


def test_the_event_of_an_outer_block_stops_inner_ones():
    """A call with an event of its own is stopped by either."""
    outer, inner = threading.Event(), threading.Event()
    with during_call(cancel=outer), during_call(cancel=inner):
        raise_if_canceled()
        outer.set()
        with pytest.raises(CanceledError):
            raise_if_canceled()
