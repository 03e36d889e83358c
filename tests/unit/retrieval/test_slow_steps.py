"""Rerankers of a chain, which may take long, while its Documents change."""

from __future__ import annotations

import threading

import pytest

from lazyrag import (
    Document,
    HybridRetriever,
    Reranker,
    RetrievalChain,
    Retriever,
    explain,
    register_reranker,
    why_not,
)
from lazyrag.retrieval import Windows, rerankers

TEXTS = {f"d{number}": f"tea {number}\nwater" for number in range(12)}


@pytest.fixture
def docs():
    """Twelve documents of lines."""
    made = Document(embed=lambda text: [1.0 + text.count("leaf"), 1.0])
    made.create_node_group("line", transform=str.splitlines)
    made.add_texts(TEXTS)
    return made


@pytest.fixture
def slow(docs):
    """A reranker that removes a document as it works: another one each time, as long as there are
    some.
    """
    calls = []
    left = [f"d{number}" for number in range(4)]

    def busy(nodes, query):
        calls.append(nodes)
        if left:
            other = threading.Thread(target=docs.delete_files, args=([left.pop()],))
            other.start()
            other.join(60)
            assert not other.is_alive(), "a removal waited for the reranker"
        return nodes

    with rerankers.isolated():
        register_reranker(batch=True)(busy)
        yield Reranker("busy"), calls


def words(docs, topk=20):
    """Lines by their words."""
    return Retriever(docs, "line", similarity="bm25", topk=topk)


@pytest.mark.parametrize("ask", [lambda chain: chain("tea"), lambda chain: chain.explain("tea")])
def test_a_reranker_works_once_whatever_is_removed_meanwhile(docs, slow, ask):
    """Nothing behind it reads the Document: it is asked once, of the nodes that were found when the
    question began.
    """
    reranker, calls = slow
    found = ask(RetrievalChain(words(docs), reranker, topk=11))
    assert len(calls) == 1
    assert len(found) == 11


@pytest.mark.parametrize("ask", [lambda chain: chain("tea"), lambda chain: chain.explain("tea")])
def test_what_stands_behind_a_reranker_sees_what_is_there(docs, slow, ask):
    """Windows need live nodes: the nodes are others after each removal, and are reranked again
    until they stay.
    """
    reranker, calls = slow
    found = ask(RetrievalChain(words(docs), reranker, Windows(0, 1), topk=12))
    left = {node.path for node in docs.get_nodes("line")}
    assert {one.path for one in found} <= left | {node.path for node in calls[-1]}
    assert 2 <= len(calls) <= 5


def test_it_is_not_asked_again_for_the_same_nodes(docs, slow):
    """A removal of what was not found changes nothing for the reranker."""
    reranker, calls = slow
    docs.add_texts({"other": "green leaf\nblack leaf"})
    # scores by words would change with the number of lines
    meaning = Retriever(docs, "line", topk=2)
    for chain, times in (
        (RetrievalChain(meaning, reranker, Windows(0, 1), fetch=2), 1),
        (HybridRetriever(RetrievalChain(meaning, reranker, fetch=2), meaning), 2),
    ):
        assert chain("leaf")
        assert len(calls) == times
    assert why_not(RetrievalChain(meaning, reranker), "nothing", "leaf").cause == "unknown"
    assert len(calls) == 3


def test_why_not_waits_for_a_reranker_outside_of_the_read(docs, slow):
    """The reason is that of a state in which the reranker was asked; it is asked again only of
    other nodes.
    """
    reranker, calls = slow
    [last] = [node for node in docs.get_nodes("line") if node.text == "tea 11"]
    chain = RetrievalChain(words(docs), reranker, topk=1)
    reason = chain.why_not(last.uid, "tea")
    assert reason.cause in ("found", "dropped")
    assert 1 < len(calls) <= 5
    assert {node.path for node in calls[-1]} == {node.path for node in docs.get_nodes("line")}
    before = len(calls)
    assert chain.why_not(last.uid, "tea") == reason
    assert len(calls) == before + 1


def test_a_retriever_is_asked_once_where_nothing_changes(docs):
    """Going out of the read and in again costs no second retrieval."""
    asked = []

    class Counting(Retriever):
        def __call__(self, query, filters=None, topk=None):
            asked.append(query)
            return super().__call__(query, filters, topk)

        def trace(self, query, filters=None, topk=None):
            asked.append(query)
            return super().trace(query, filters, topk)

    counting = Counting(docs, "line", similarity="bm25")
    chain = RetrievalChain(
        counting,
        Reranker("BM25Reranker"),
        Windows(0, 1),
        Reranker("KeywordFilter", exclude_keys=["x"]),
        topk=3,
    )
    by_hand = Windows(0, 1)(Reranker("BM25Reranker")(words(docs)("tea 3", topk=20), "tea 3"))[:3]
    assert [node.uid for node in chain("tea 3")] == [node.uid for node in by_hand]
    assert asked == ["tea 3"]
    assert [hit.uid for hit in explain(chain, "tea 3")] == [node.uid for node in by_hand]
    assert asked == ["tea 3"] * 2


def test_a_reranker_that_reads_more_is_asked_within_a_read(docs):
    """What it reads may have gone meanwhile: then it is asked of one state, with all else."""
    calls = []

    def with_parents(nodes, query):
        calls.append(len(nodes))
        if len(calls) == 1:
            docs.delete_files([nodes[0].path])
        return [node for node in nodes if node.root.text]

    with rerankers.isolated():
        register_reranker(batch=True)(with_parents)
        found = RetrievalChain(words(docs), Reranker("with_parents"))("tea")
    assert calls == [12, 11]
    assert len(found) == 11
