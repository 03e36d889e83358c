"""`Document.search`: what a newcomer types."""

from __future__ import annotations

import asyncio

import pytest

from lazyrag import DataType, DocField, Document, HybridRetriever, RAGPipeline, Retriever
from lazyrag.errors import ConfigError, NotRegisteredError, UnknownKeywordError

TEXTS = {
    "green": "Green tea is not fermented.",
    "black": "Black tea is fermented and dried.",
    "coffee": "Coffee is roasted.",
    "绿茶": "绿茶不发酵，要低温存放。",
    "红茶": "红茶要发酵，再烘干。",
}


def letters(text: str) -> list[float]:
    """A small model: how often letters of 16 kinds occur."""
    vector = [0.1] * 16
    for letter in text:
        vector[ord(letter) % 16] += 1.0
    return vector


def documents(**settings: object) -> Document:
    """Five texts in two languages."""
    docs = Document(doc_fields={"kind": DocField(DataType.VARCHAR)}, **settings)  # type: ignore[arg-type]
    docs.add_texts(
        TEXTS, {name: {"kind": "tea" if name != "coffee" else "other"} for name in TEXTS}
    )
    return docs


@pytest.mark.parametrize(
    ("query", "path"), [("How is coffee made?", "coffee"), ("绿茶怎么存放？", "绿茶")]
)
def test_chinese_and_english_need_no_option(query: str, path: str) -> None:
    """Without a model it is keyword search."""
    assert documents().search(query)[0].path == path


def test_it_is_hybrid_search_where_there_is_a_model() -> None:
    """The same nodes and scores as `HybridRetriever.over`, and as a pipeline without settings
    retrieves.
    """
    docs = documents(embed=letters)
    query = "fermented 发酵"
    found = [(node.uid, node.score) for node in docs.search(query, topk=3)]
    assert found == [
        (node.uid, node.score) for node in HybridRetriever.over(docs, "MediumChunk", 3)(query)
    ]
    hits = RAGPipeline.over(docs, "MediumChunk").sync.retrieve(query, 3)
    assert found == [(hit.id, hit.score) for hit in hits]


def test_where_topk_and_group() -> None:
    """A filter, a number of nodes and another group."""
    docs = documents()
    docs.create_node_group("word", transform=str.split)
    assert {
        node.path for node in docs.search("tea fermented 发酵", where={"kind": ["tea"]})
    } == set(TEXTS) - {"coffee"}
    assert len(docs.search("tea", topk=1)) == 1
    assert docs.search("roasted", group="word")[0].text == "roasted."
    expected = Retriever(docs, "word", similarity="bm25_chinese")("tea")
    assert docs.search("tea", group="word") == expected


@pytest.mark.parametrize(
    "output",
    [{}, {"output_format": "node"}, {"output_format": "content"}]
    + [{"output_format": "content", "join": join} for join in (True, "; ")]
    + [{"output_format": "dict"}],
)
def test_the_form_of_the_result_is_that_of_a_retriever(output) -> None:
    """`Retriever`, `search` and `asearch` take the same arguments for it."""
    docs = documents()
    retriever = Retriever(docs, "MediumChunk", similarity="bm25_chinese", topk=6, **output)
    expected = retriever("tea fermented")
    assert expected
    assert docs.search("tea fermented", **output) == expected
    assert asyncio.run(docs.asearch("tea fermented", **output)) == expected


def test_a_restricted_document_searches_what_it_may_see() -> None:
    """Hidden documents are not found."""
    visible = documents().restricted({"kind": ["other"]})
    assert [node.path for node in visible.search("tea roasted")] == ["coffee"]


def test_bad_arguments() -> None:
    """Each is named."""
    docs = documents()
    with pytest.raises(ConfigError, match="topk"):
        docs.search("tea", 0)
    with pytest.raises(ConfigError, match="join must be False"):
        docs.search("tea", join=True)
    with pytest.raises(UnknownKeywordError, match="Did you mean 'output_format'"):
        docs.search("tea", output="content")  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="query"):
        docs.search(None)  # type: ignore[arg-type]
    with pytest.raises(NotRegisteredError, match="MediumChunk"):
        docs.search("tea", group="MediumChunks")
