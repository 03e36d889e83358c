"""LangChain: its real classes over this package's retrievers and Documents."""

from __future__ import annotations

import asyncio

import pytest
from langchain_core.documents import Document as LangChainDocument
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda

from lazyrag import DataType, DocField, Document, HybridRetriever, Retriever
from lazyrag.errors import ConfigError, UnknownKeywordError
from lazyrag.interop.frameworks import embedder_of
from lazyrag.interop.langchain import add_documents, as_retriever, to_document


@pytest.fixture
def docs():
    """Three texts with a season."""
    collection = Document(doc_fields={"season": DocField(DataType.VARCHAR)})
    texts = {"a": "green tea", "b": "black tea, tea", "c": "coffee"}
    collection.add_texts(texts, {"a": {"season": "spring"}, "b": {"season": "autumn"}})
    return collection


def words(docs, **options):
    """A retriever by words."""
    return Retriever(docs, "FineChunk", similarity="bm25", **options)


def test_a_retriever_is_one_of_langchains(docs):
    """It is a BaseRetriever, gives what ours gives in the same order, with uid, source, place and
    score.
    """
    found = as_retriever(words(docs)).invoke("green tea")
    nodes = words(docs)("green tea")
    assert isinstance(as_retriever(words(docs)), BaseRetriever)
    assert (
        [one.page_content for one in found]
        == [node.text for node in nodes]
        == ["green tea", "black tea, tea"]
    )
    assert [one.id for one in found] == [node.uid for node in nodes]
    assert found[0].metadata["source"] == "a"
    assert found[0].metadata["location"] == "line 1"
    assert found[0].metadata["season"] == "spring"
    assert found[0].metadata["score"] == nodes[0].score


def test_filters_and_topk(docs):
    """Both hold for every question."""
    assert [one.id for one in as_retriever(words(docs), topk=1).invoke("tea")] == [
        words(docs)("tea")[0].uid
    ]
    [found] = as_retriever(words(docs), filters={"season": ["spring"]}).invoke("tea")
    assert found.metadata["source"] == "a"


def test_it_works_in_chains_and_event_loops(docs):
    """invoke, batch, ainvoke and a chain with | give the same."""
    retriever = as_retriever(words(docs), topk=1)
    chain = retriever | RunnableLambda(lambda found: [one.page_content for one in found])
    assert chain.invoke("coffee") == ["coffee"]
    assert chain.batch(["coffee", "green"]) == [["coffee"], ["green tea"]]
    assert asyncio.run(chain.ainvoke("green")) == ["green tea"]


def test_any_retriever_of_nodes_will_do(docs):
    """Hybrids and functions; one that gives texts or dicts, and what is none, are errors."""
    hybrid = HybridRetriever(
        words(docs), lambda query, filters=None, topk=None: docs.get_nodes("FineChunk")
    )
    assert len(as_retriever(hybrid).invoke("green")) == 3
    for wrong in (words(docs, output_format="dict"), docs, Retriever, None):
        with pytest.raises(ConfigError, match="retriever of nodes"):
            as_retriever(wrong)
    with pytest.raises(UnknownKeywordError, match="Did you mean 'topk'"):
        as_retriever(words(docs), top_k=1)


def test_errors_come_through(docs):
    """A question that fails raises this package's own error."""
    with pytest.raises(ConfigError, match="season"):
        as_retriever(words(docs), filters={"seson": ["spring"]}).invoke("tea")


def test_documents_come_in_and_go_out():
    """Text, id and metadata of a document are there again; filters read declared fields."""
    docs = Document(doc_fields={"season": DocField(DataType.VARCHAR)})
    given = [
        LangChainDocument(
            "green tea", id="a", metadata={"season": "spring", "source": "teas.md", "tags": ["x"]}
        ),
        LangChainDocument("black tea", id="b", metadata={"season": "autumn"}),
    ]
    assert add_documents(docs, given).added == ("a", "b")
    [found] = as_retriever(words(docs), filters={"season": ["spring"]}).invoke("tea")
    assert found.page_content == "green tea"
    assert {
        "season": "spring",
        "source": "teas.md",
        "tags": ["x"],
    }.items() <= found.metadata.items()
    assert docs.get_nodes()[0].path == "a"


def test_documents_come_in_again(docs):
    """What this package gave out can be taken in by another Document; names of its own become
    original ones.
    """
    other = Document()
    add_documents(other, as_retriever(words(docs)).invoke("tea"))
    metadata = to_document(other.get_nodes("FineChunk")[0]).metadata
    assert metadata["original_file_name"] in ("a", "b")
    assert metadata["source"] == metadata["original_file_name"]
    assert "score" not in metadata


def test_documents_without_an_id():
    """The same documents again change nothing; an equal text with other metadata is another
    document.
    """
    docs = Document()
    given = [
        LangChainDocument("green tea"),
        LangChainDocument("green tea", metadata={"n": 1}),
        LangChainDocument("green tea"),
    ]
    assert len(add_documents(docs, given).added) == 2
    assert len(add_documents(docs, given).unchanged) == 2
    assert len(docs.get_nodes()) == 2


def test_what_is_no_document(docs):
    """A text in a document's place, two with one id, and a blank text are errors; nothing is taken
    in.
    """
    twice = [LangChainDocument("x", id="a"), LangChainDocument("y", id="a")]
    for wrong, message in (
        (["tea"], "LangChain documents"),
        (7, "LangChain documents"),
        (twice, "have the id 'a'"),
    ):
        with pytest.raises(ConfigError, match=message):
            add_documents(docs, wrong)
    with pytest.raises(ConfigError):
        add_documents(docs, [LangChainDocument(" ", id="z")])
    assert len(docs.get_nodes()) == 3


def test_embeddings_of_langchain_embed_a_document():
    """Its Embeddings are an embedder here: texts in lists, questions one by one."""
    embeddings = DeterministicFakeEmbedding(size=8)
    docs = Document(embed=embedder_of(embeddings))
    docs.add_texts({"a": "green tea", "b": "coffee"})
    [best] = Retriever(docs, "FineChunk", topk=1)("green tea")
    assert best.text == "green tea"
    assert best.score == pytest.approx(1.0)
