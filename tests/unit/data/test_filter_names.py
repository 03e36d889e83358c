"""A filter is called ``filters=`` everywhere, and ``where=`` is an alias of it."""

from __future__ import annotations

import asyncio

import pytest

from lazyrag import (
    Document,
    HybridRetriever,
    RAGPipeline,
    Reranker,
    RetrievalChain,
    Retriever,
    explain,
    why_not,
)
from lazyrag.errors import ConfigError, UnknownKeywordError
from lazyrag.read import grep

FILTER = {"file_type": ".txt"}


def vector(text):
    return [text.count("e") + 1.0, text.count("a") + 1.0]


@pytest.fixture
def docs(folder):
    """A text and a Markdown file about tea."""
    docs = Document(folder({"a.txt": "green tea", "b.md": "black tea"}), embed=vector)
    docs.sync()
    return docs


def paths(found):
    return [getattr(one, "path", None) or getattr(one, "source", "") for one in found]


def calls(docs):
    """Every public call that takes a filter, by name: a function of keywords."""
    plain = Retriever(docs, "FineChunk", similarity="bm25")
    hybrid = HybridRetriever(plain, Retriever(docs, "FineChunk"))
    chain = RetrievalChain(plain, Reranker("KeywordFilter", required_keys=["tea"]))
    pipeline = RAGPipeline(retriever=plain)

    def streamed(**given):
        async def run():
            answering = RAGPipeline(retriever=plain, generator=lambda text: "Tea [1].")
            return [one async for one in answering.astream("tea", **given)][
                -1
            ].answer.context.sources

        return asyncio.run(run())

    return {
        "search": lambda **given: docs.search("tea", **given),
        "documents": lambda **given: [one.id for one in docs.documents(**given)],
        "grep": lambda **given: grep(docs, "tea", **given),
        "get_nodes": lambda **given: docs.get_nodes("FineChunk", **given),
        "Retriever": lambda **given: plain("tea", **given),
        "trace": lambda **given: plain.trace("tea", **given).nodes,
        "explain": lambda **given: [one.node for one in explain(plain, "tea", **given)],
        "HybridRetriever": lambda **given: hybrid("tea", **given),
        "RetrievalChain": lambda **given: chain("tea", **given),
        "retrieve": lambda **given: asyncio.run(pipeline.retrieve("tea", **given)),
        "sync.retrieve": lambda **given: pipeline.sync.retrieve("tea", **given),
        "astream": streamed,
    }


NAMES = (
    "search documents grep get_nodes Retriever trace explain HybridRetriever RetrievalChain".split()
)
NAMES += ["retrieve", "sync.retrieve", "astream"]


@pytest.mark.parametrize("name", NAMES)
def test_both_names_filter(docs, name):
    """They find the same; both at once are an error that names the one to pass."""
    call = calls(docs)[name]
    everything, found = call(), call(filters=FILTER)
    assert len(everything) == 2
    assert len(found) == 1
    assert [str(one) for one in paths(call(where=FILTER))] == [str(one) for one in paths(found)]
    with pytest.raises(ConfigError, match=r"must not both be passed.*Pass filters="):
        call(filters=FILTER, where=FILTER)


def test_a_filter_by_position_and_an_alias_are_too_many(docs):
    """And a call without filters knows no alias."""
    with pytest.raises(ConfigError, match="must not both be passed"):
        docs.search("tea", 3, FILTER, where=FILTER)
    with pytest.raises(ConfigError, match="must not both be passed"):
        why_not(Retriever(docs, "FineChunk", similarity="bm25"), "1", "tea", FILTER, where=FILTER)
    with pytest.raises(UnknownKeywordError, match="where"):
        docs.read("a.txt", where=FILTER)
