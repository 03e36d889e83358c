"""The first query of an empty store loads, splits and indexes each file in one pass."""

from __future__ import annotations

import threading

import pytest

from lazyrag import Document, LLMParser, Retriever
from lazyrag.errors import IngestionError
from lazyrag.progress.calls import during_call

FILES = {f"{name}.txt": f"green tea {name}\nblack tea" for name in "abc"}


def test_the_first_query_reads_each_file_in_one_pass(folder):
    """No node is read back from the store while the first answer is made."""
    steps = []
    with (
        Document(folder(FILES)) as docs,
        during_call(lambda one: steps.append((one.what, one.step))),
    ):
        docs.create_node_group("line", transform=str.splitlines)
        assert len(Retriever(docs, "line", "bm25")("green")) == 3
        assert {what for what, _ in steps} == {"sync"}
        assert {step for _, step in steps} == {
            "load",
            "transform line",
            "index line with en",
            "sync",
        }
        assert docs.last_report.rebuilt == {
            "transform line": "missing",
            "index line with en": "missing",
        }
        before = len(steps)
        assert len(Retriever(docs, "line", "bm25")("black")) == 3
        assert len(steps) == before


def test_files_are_live_before_a_model_writes_what_their_index_reads(folder):
    """Hours of calls, or a model that is down, must not keep the files from other queries."""
    steps = []
    with (
        Document(folder(FILES)) as docs,
        during_call(lambda one: steps.append((one.what, one.step))),
    ):
        docs.create_node_group("line", transform=str.splitlines, index_text="note")
        docs.create_node_group(
            "note", transform=LLMParser(lambda _: "a cup", "en", "summary"), parent="line"
        )
        assert len(Retriever(docs, "line", "bm25")("cup"))
        assert {step for what, step in steps if what == "sync"} == {"load", "sync"}


def test_a_second_query_waits_for_the_first_pass(folder):
    """A query that comes while files are ingested answers from all of them."""
    begun, go_on, counts = threading.Event(), threading.Event(), []

    def lines(text: str) -> list[str]:
        begun.set()
        assert go_on.wait(60)
        return text.splitlines()

    with Document(folder(FILES), workers=1) as docs:
        docs.create_node_group("line", transform=lines, version="1")
        retriever = Retriever(docs, "line", "bm25")
        threads = [
            threading.Thread(target=lambda: counts.append(len(retriever("green"))))
            for _ in range(2)
        ]
        threads[0].start()
        assert begun.wait(60)
        threads[1].start()
        go_on.set()
        for thread in threads:
            thread.join(60)
    assert counts == [3, 3]


def test_files_stay_live_if_every_file_fails_in_a_group(folder):
    """A group that fails for all files costs the others nothing, and is tried again."""
    broken = True

    def lines(text: str) -> list[str]:
        if broken:
            raise ValueError("no lines today")
        return text.splitlines()

    with Document(folder(FILES)) as docs:
        docs.create_node_group("line", transform=lines, version="1")
        with pytest.raises(IngestionError, match="no lines today"):
            Retriever(docs, "line", "bm25")("green")
        assert len(docs.get_nodes("lazyllm_root")) == 3
        broken = False
        assert not docs.sync().failed
        assert len(Retriever(docs, "line", "bm25")("green")) == 3
