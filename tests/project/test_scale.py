"""What must not grow with what a store holds already; benchmarks/scale.py measures the rest."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from lazyrag import Document, Retriever
from lazyrag.indexes import postings
from lazyrag.indexes.bm25 import TermPart
from lazyrag.ingest import term_index


def _open_parts() -> int:
    gc.collect()
    return sum(isinstance(one, TermPart) for one in gc.get_objects())


@pytest.mark.slow
def test_a_writer_lets_go_of_the_parts_that_it_merges(tmp_path):
    """However often it adds, it holds no more parts of a keyword index than the index has."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    before = _open_parts()
    with Document(store_conf=conf) as docs:
        docs.create_node_group("line", transform=str.splitlines)
        docs.activate_group("line", analysers=["en"])
        for number in range(60):
            docs.add_texts({f"note-{number}": f"green tea number {number}\nblack tea"})
        assert _open_parts() - before <= 8
        assert len(Retriever(docs, "line", similarity="bm25", topk=100)("tea")) == 100


@pytest.mark.slow
def test_a_store_with_many_parts_is_not_merged_at_once(tmp_path, monkeypatch):
    """Parts that were full in an earlier release are merged a few at a time, until they are as
    large as others.
    """
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    joined = TermPart.joined
    moved = []

    def spy(parts, *options):
        moved.append(sum(map(len, parts)))
        return joined(parts, *options)

    monkeypatch.setattr(TermPart, "joined", spy)
    with Document(store_conf=conf) as docs:
        docs.create_node_group("line", transform=str.splitlines)
        docs.activate_group("line", analysers=["en"])
        for full, notes in ((8, range(40)), (40, range(40, 80))):
            monkeypatch.setattr(term_index, "_FULL_ROWS", full)
            for number in notes:
                docs.add_texts({f"note-{number}": "\n".join(["green tea"] * 4)})
        assert 40 <= max(moved) < 80
        assert len(Retriever(docs, "line", similarity="bm25", topk=500)("tea")) == 320


def test_parts_are_joined_a_stretch_of_postings_at_a_time(monkeypatch):
    """The result is that of joining them at once: each posting is at its place."""
    terms = [["tea", "cup", f"t{number % 7}"] for number in range(60)]
    parts = [
        TermPart.of_rows([f"{at:02}" for at in some], [terms[at] for at in some])
        for some in (range(25), range(25, 60))
    ]
    whole = TermPart.joined(parts, [None, None]).arrays()
    monkeypatch.setattr(postings, "_JOINED_AT_ONCE", 4)
    again = TermPart.joined(parts, [None, None]).arrays()
    assert all(np.array_equal(array, again[name]) for name, array in whole.items())
