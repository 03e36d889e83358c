"""Clients that return ids and scores alone: their texts are another retriever's."""

from __future__ import annotations

import pytest

from lazyrag import BM25Retriever, DocNode, Document, HybridRetriever, RAGPipeline, Retriever
from lazyrag.errors import ConfigError, RetrievalError
from lazyrag.evaluation import RetrieverRAG


class Client:
    """Finds the given ids for every query."""

    def __init__(self, ids):
        self.ids = ids

    def search(self, query, top_k=10):
        """Pairs (id, score)."""
        return [(uid, 1.0 - rank / 10) for rank, uid in enumerate(self.ids[:top_k])]


@pytest.fixture
def bm25():
    """Keyword search over a Document."""
    docs = Document()
    docs.add_texts({"a": "green tea", "b": "black coffee"})
    return BM25Retriever(docs, "FineChunk")


def test_ids_are_uids_of_a_document_beside_the_client(bm25):
    """The nodes are the Document's, so that both retrievers find the same node once."""
    found = HybridRetriever(Client(bm25.doc_ids), bm25)("tea")
    assert sorted(node.path for node in found) == ["a", "b"]
    assert {node.uid for node in found} == set(bm25.doc_ids)


def test_any_retriever_over_a_document_has_the_texts(bm25):
    """A plain Retriever does; an id that is not in its group is an error."""
    docs = Document()
    docs.add_texts({"a": "green tea"})
    retriever = Retriever(docs, "FineChunk", "bm25")
    [node] = docs.get_nodes("FineChunk")
    [found] = HybridRetriever(Client([node.uid]), retriever)("tea")
    assert found.score == 2 / 61
    with pytest.raises(RetrievalError, match="another retriever"):
        HybridRetriever(Client([docs.get_nodes()[0].uid]), retriever)("tea")


def test_texts_are_those_of_the_documents_with_the_group(bm25):
    """A Document without the group contributes nothing to `corpus`, `doc_ids` and `bm25`."""
    docs, other = Document(), Document()
    docs.create_node_group("line", transform=lambda text: text.split("\n"))
    docs.add_texts({"a": "green tea\nblack tea"})
    other.add_texts({"b": "coffee"})
    with pytest.warns(UserWarning, match="contributes nothing"):
        retriever = BM25Retriever([docs, other], "line")
    assert retriever.corpus == ["green tea", "black tea"]
    assert len(retriever.doc_ids) == retriever.bm25.corpus_size == 2


async def coroutine(query, filters=None, topk=None):
    """A retriever as a coroutine function."""
    return [DocNode(text=f"green {query}", score=1.0)]


class Hits:
    """A client that can also be called, but not as a retriever."""

    def __call__(self, query):
        """Never called."""
        raise AssertionError(query)

    async def search(self, query, top_k=10):
        """One text."""
        return [{"id": "t", "text": f"green {query}", "score": 1.0}]


@pytest.mark.parametrize("given", [coroutine, Hits()])
def test_coroutines_and_clients_are_retrievers_everywhere(given):
    """In a combination, under evaluation and in a pipeline; ``search`` is called if the object
    itself cannot be.
    """
    assert [node.text for node in HybridRetriever(given)("tea")] == ["green tea"]
    assert RetrieverRAG(given).retrieve("tea") == ["green tea"]
    assert [hit.text for hit in RAGPipeline(retriever=given).sync.retrieve("tea")] == ["green tea"]


@pytest.mark.parametrize("make", [HybridRetriever, RetrieverRAG])
def test_a_function_without_filters_is_refused_when_it_is_given(make):
    """Not at the query, by a TypeError."""
    with pytest.raises(ConfigError, match="cannot be called with \\(query, filters"):
        make(lambda query: [])
