"""Spec 003, task 3.1 `BM25Retriever`: every test quotes the sentence it checks and says what is
expected.
"""

# The calls stand here as the specification writes them.
from __future__ import annotations

import inspect
import sys

import pytest
from rank_bm25 import BM25Okapi

import lazyrag
from lazyrag.text.analyzers import english_terms

DOCUMENTS = [
    {"id": "doc1", "text": "Green tea is steamed in spring."},
    {"id": "doc2", "text": "Black tea is tea that was left to oxidise; such tea keeps."},
    {"id": "doc3", "text": "Coffee is roasted."},
]


@pytest.fixture
def indexed():
    """Three documents in a retriever."""
    retriever = lazyrag.BM25Retriever()
    retriever.index_documents(DOCUMENTS)
    return retriever


def test_init():
    """「def __init__(self)」: it is made without any argument, and finds nothing before something is
    indexed.
    """
    assert lazyrag.BM25Retriever().search("tea") == []


def test_index_documents():
    """「def index_documents(self, documents: List[Dict[str, Any]])」: a list of dicts is indexed."""
    retriever = lazyrag.BM25Retriever()
    assert retriever.index_documents(documents=DOCUMENTS) is None
    assert [doc_id for doc_id, _ in retriever.search("coffee")] == ["doc3"]


def test_search(indexed):
    """「def search(self, query: str, top_k: int = 10) -> List[Tuple[str, float]]」: pairs of id and
    score.
    """
    found = indexed.search("tea", top_k=10)
    assert isinstance(found, list)
    assert {doc_id for doc_id, _ in found} == {"doc1", "doc2"}
    assert all(
        type(pair) is tuple and type(pair[0]) is str and type(pair[1]) is float for pair in found
    )
    assert inspect.signature(lazyrag.BM25Retriever.search).parameters["top_k"].default == 10


def test_top_k(indexed):
    """「top_k: int = 10」: at most so many, the best of them."""
    assert indexed.search("tea", 1) == indexed.search("tea")[:1]
    many = lazyrag.BM25Retriever()
    many.index_documents([{"id": str(n), "text": "tea"} for n in range(30)])
    assert len(many.search("tea")) == 10


def test_its_attributes(indexed):
    """「self.corpus: List[str] = []」「self.bm25: Optional[BM25Okapi] = None」「self.doc_ids: List[str]
    = []」
    """
    empty = lazyrag.BM25Retriever()
    assert (empty.corpus, empty.bm25, empty.doc_ids) == ([], None, [])
    assert indexed.doc_ids == ["doc1", "doc2", "doc3"]
    assert indexed.corpus == [one["text"] for one in DOCUMENTS]
    assert isinstance(indexed.bm25, BM25Okapi)
    assert indexed.bm25 is indexed.bm25
    best = max(
        range(3), key=list(indexed.bm25.get_scores(english_terms("roasted coffee"))).__getitem__
    )
    assert indexed.doc_ids[best] == indexed.search("roasted coffee")[0][0]
    indexed.index_documents([{"id": "doc4", "text": "Matcha is a powder."}])
    assert (indexed.doc_ids[3], indexed.bm25.corpus_size) == ("doc4", 4)


def test_its_attributes_over_a_document():
    """「self.corpus: List[str]」「self.doc_ids: List[str]」: those of the nodes of the group."""
    docs = lazyrag.Document()
    docs.add_texts({one["id"]: one["text"] for one in DOCUMENTS})
    retriever = lazyrag.BM25Retriever(docs, "FineChunk")
    nodes = docs.get_nodes("FineChunk")
    assert (retriever.corpus, retriever.doc_ids) == (
        [node.text for node in nodes],
        [node.uid for node in nodes],
    )
    assert retriever.bm25.corpus_size == len(nodes) == 3


def test_bm25_says_how_to_install_it(indexed, monkeypatch):
    """「from rank_bm25 import BM25Okapi」: only for `bm25`; a search needs no such package."""
    monkeypatch.setitem(sys.modules, "rank_bm25", None)
    assert indexed.search("coffee")
    with pytest.raises(ImportError, match=r"needs the package .rank_bm25.*pip install"):
        _ = indexed.bm25


def test_the_keyword_scores(indexed):
    """「from rank_bm25 import BM25Okapi」, 「BM25检索」: variant="okapi" has its scores; the default
    ranks alike.
    """
    okapi = lazyrag.BM25Retriever(variant="okapi")
    okapi.index_documents(DOCUMENTS)
    scores = BM25Okapi([english_terms(one["text"]) for one in DOCUMENTS]).get_scores(
        english_terms("roasted coffee")
    )
    assert okapi.search("roasted coffee") == [("doc3", pytest.approx(scores[2], rel=1e-6))]
    assert [doc_id for doc_id, _ in indexed.search("roasted coffee")] == ["doc3"]
