"""A callback for programs tells how far ingestion is."""

from __future__ import annotations

import itertools
import os

import pytest

from lazyrag import Document, Retriever
from lazyrag.errors import ConfigError

FILES = {f"{name}.txt": "green tea\nblack tea" for name in "abcde"}


def test_progress_tells_every_step(folder):
    """Each piece of work goes from a first step to all of its documents, never backwards, and names what is done."""
    seen = []
    with Document(folder(FILES), embed=lambda text: [1.0, float(len(text))], on_progress=seen.append) as docs:
        docs.create_node_group("line", transform=str.splitlines)
        Retriever(docs, "line")("tea")
        Retriever(docs, "line", similarity="bm25")("tea")
    pieces = [(what, list(some)) for what, some in itertools.groupby(seen, key=lambda one: one.what)]
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
    with Document(root, on_progress=seen.append) as docs:
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

    with Document(folder(FILES), on_progress=stop) as docs:
        with pytest.raises(RuntimeError, match="stopped by the user"):
            docs.get_nodes()
        assert len(docs.get_nodes()) == 5


@pytest.mark.parametrize("wrong", [3, "bar", True])
def test_a_callback_can_be_called(wrong):
    """Anything else is refused."""
    with pytest.raises(ConfigError, match="function"):
        Document(on_progress=wrong)


def test_the_time_left_of_embedding_is_right_for_files_of_any_size(folder):
    """Where few files have most of the nodes, nodes are counted: with the calls of the model as the clock, the time
    left by the share that is done is right within a factor of two.
    """
    calls, seen = [], []

    def embed(text):
        calls.append(text)
        return [1.0, float(len(text))]

    files = {f"{number:02}.txt": f"tea {number}" for number in range(40)}
    files |= {f"9{number}.txt": "\n".join(f"line {number} {line}" for line in range(200)) for number in range(5)}
    with Document(
        folder(files), embed=embed, workers=1, on_progress=lambda one: seen.append((len(calls), one))
    ) as docs:
        docs.create_node_group("line", transform=str.splitlines)
        docs.activate_group("line")
        docs.activate_group("line", embed_keys=["default"])
    embedding = [(now, one.done, one.total) for now, one in seen if one.what.startswith("embed")]
    assert embedding[-1] == (1040, 1040, 1040)
    halves = [one for one in embedding if 0.2 < one[1] / one[2] < 0.8]
    assert halves
    assert all(0.5 < (now / done * (total - done)) / (1040 - now) < 2 for now, done, total in halves)
