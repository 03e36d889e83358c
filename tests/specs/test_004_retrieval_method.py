"""Spec 004, section 4 `RetrievalMethod`: every test quotes the sentence it checks and says what is
expected.
"""

from __future__ import annotations

from enum import Enum

import pytest

import lazyrag
from lazyrag import Document, Retriever
from lazyrag.errors import ConfigError
from lazyrag.retrieval import RetrievalMethod, retriever_for

VALUES = {
    "SEMANTIC_SEARCH": "semantic_search",
    "FULL_TEXT_SEARCH": "full_text_search",
    "HYBRID_SEARCH": "hybrid_search",
    "KEYWORD_SEARCH": "keyword_search",
}


@pytest.fixture
def docs():
    """Three texts with embeddings: how many words they have."""
    docs = Document(embed=lambda text: [float(len(text.split())), 1.0])
    docs.add_texts(
        {
            "a": "tea tea tea tea",
            "b": "tea from Wuyi with a good many words behind it",
            "c": "coffee",
        }
    )
    return docs


def told(nodes):
    """A result as a ranking."""
    return [(node.uid, node.score) for node in nodes]


def test_the_four_methods():
    """「class RetrievalMethod(Enum)」, 「SEMANTIC_SEARCH = "semantic_search"」 ...: four members with
    these values.
    """
    assert issubclass(RetrievalMethod, Enum)
    assert {one.name: one.value for one in RetrievalMethod} == VALUES
    assert RetrievalMethod("hybrid_search") is RetrievalMethod.HYBRID_SEARCH


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("semantic_search", True),
        ("hybrid_search", True),
        ("full_text_search", False),
        ("keyword_search", False),
    ],
)
def test_is_support_semantic_search(method, expected):
    """「是否支持语义检索」: semantic and hybrid search do; a member is as good as its value."""
    assert RetrievalMethod.is_support_semantic_search(method) is expected
    assert RetrievalMethod.is_support_semantic_search(RetrievalMethod(method)) is expected


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("full_text_search", True),
        ("hybrid_search", True),
        ("semantic_search", False),
        ("keyword_search", False),
    ],
)
def test_is_support_fulltext_search(method, expected):
    """「是否支持全文检索」: full-text and hybrid search do; what is no method supports nothing."""
    assert RetrievalMethod.is_support_fulltext_search(method) is expected
    assert RetrievalMethod.is_support_fulltext_search(RetrievalMethod(method)) is expected
    assert RetrievalMethod.is_support_fulltext_search("other") is False


def test_whether_a_query_has_to_be_embedded(docs):
    """「判断检索方法是否需要向量化」: the embed callable is asked for the query exactly by those methods."""
    for method in RetrievalMethod:
        asked = []
        counted = Document(embed=lambda text, asked=asked: asked.append(text) or [1.0, 1.0])
        counted.add_texts({"a": "tea"})
        assert retriever_for(method, counted, "FineChunk")("tea please")
        assert ("tea please" in asked) is RetrievalMethod.is_support_semantic_search(method)


def test_the_retriever_of_each_method(docs):
    """「语义检索（向量检索）」, 「全文检索」, 「混合检索」: by embeddings, by BM25, by both."""
    plain = {
        "semantic_search": Retriever(docs, "FineChunk"),
        "full_text_search": Retriever(docs, "FineChunk", "bm25_chinese"),
        "hybrid_search": lazyrag.HybridRetriever.over(docs, "FineChunk"),
    }
    for method, expected in plain.items():
        assert told(retriever_for(method, docs, "FineChunk")("tea from Wuyi")) == told(
            expected("tea from Wuyi")
        )


def test_keyword_search(docs):
    """「关键词检索」: a keyword that is there counts once, however often, and whatever the length of the
    text.
    """
    found = retriever_for(RetrievalMethod.KEYWORD_SEARCH, docs, "FineChunk")("tea")
    assert [node.path for node in sorted(found, key=lambda node: node.path)] == ["a", "b"]
    assert found[0].score == found[1].score
    more = retriever_for("keyword_search", docs, "FineChunk", similarity="bm25")("tea from Wuyi")
    assert [node.path for node in more] == ["b", "a"]


def test_what_is_no_method(docs):
    """An unknown method names the known ones and the nearest."""
    with pytest.raises(ConfigError, match="Did you mean 'hybrid_search'"):
        retriever_for("hybrid_serch", docs, "FineChunk")
    with pytest.raises(ConfigError, match="embed"):
        retriever_for("hybrid_search", Document(), "FineChunk")
    with pytest.raises(ConfigError, match="embed"):
        retriever_for("semantic_search", Document(), "FineChunk")


@pytest.mark.parametrize("method", ["full_text_search", "keyword_search", "hybrid_search"])
@pytest.mark.parametrize("similarity", ["cosine", "ip"])
def test_words_are_not_searched_by_embeddings(docs, method, similarity):
    """「全文检索」, 「关键词检索」: by words; a similarity of vectors is an error that says which to give."""
    with pytest.raises(
        ConfigError, match=f"'{method}' needs a similarity of texts.*{similarity}.*'bm25_chinese'"
    ):
        retriever_for(method, docs, "FineChunk", similarity=similarity)


def test_keyword_search_is_a_bm25(docs):
    """「KEYWORD_SEARCH」: another similarity of texts has no k1 to turn off; full-text search takes
    it.
    """

    @lazyrag.register_similarity(replace=True)
    def same_start(query, node):
        return float(query[:1] == node.text[:1])

    with pytest.raises(ConfigError, match=r"'same_start' takes no keyword 'k1'"):
        retriever_for("keyword_search", docs, "FineChunk", similarity="same_start")
    assert (
        retriever_for("full_text_search", docs, "FineChunk", similarity="same_start")("coffee")[
            0
        ].text
        == "coffee"
    )
    assert retriever_for("semantic_search", docs, "FineChunk", similarity="same_start")("coffee")
