"""What must not grow with what a store holds already; benchmarks/scale.py measures the rest."""

from __future__ import annotations

import gc

from lazyrag import Document, Retriever
from lazyrag.indexes.bm25 import TermPart


def _open_parts() -> int:
    gc.collect()
    return sum(isinstance(one, TermPart) for one in gc.get_objects())


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
