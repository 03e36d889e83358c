"""LlamaIndex: its real classes over this package's retrievers and Documents. .ci/run has an
environment for it.
"""

from __future__ import annotations

import ast
import asyncio
import re

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import Document as LlamaDocument
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

from lazyrag import DataType, DocField, Document, Retriever
from lazyrag.errors import ConfigError
from lazyrag.interop.llama_index import add_nodes, as_retriever, to_node
from tests.interpreter import ROOT


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


def test_a_retriever_is_one_of_llama_indexs(docs):
    """It is a BaseRetriever, gives what ours gives in the same order, with uid, span, source and
    score.
    """
    retriever = as_retriever(words(docs))
    found = retriever.retrieve("green tea")
    nodes = words(docs)("green tea")
    assert isinstance(retriever, BaseRetriever)
    assert (
        [one.node.get_content() for one in found]
        == [node.text for node in nodes]
        == ["green tea", "black tea, tea"]
    )
    assert [(one.node.node_id, one.score) for one in found] == [
        (node.uid, node.score) for node in nodes
    ]
    assert (found[0].node.start_char_idx, found[0].node.end_char_idx) == nodes[0].span
    assert found[0].node.metadata["source"] == "a"
    assert "score" not in found[0].node.metadata


def test_models_are_shown_the_text_alone(docs):
    """Metadata do not go into what is embedded or answered from."""
    [found] = as_retriever(words(docs), topk=1).retrieve("coffee")
    assert (
        found.node.get_content(MetadataMode.LLM)
        == found.node.get_content(MetadataMode.EMBED)
        == "coffee"
    )


def test_filters_topk_and_event_loops(docs):
    """Both hold for every question; aretrieve gives the same, for a QueryBundle as well."""
    spring = as_retriever(words(docs), filters={"season": ["spring"]})
    assert [one.node.metadata["source"] for one in spring.retrieve(QueryBundle("tea"))] == ["a"]
    assert len(asyncio.run(as_retriever(words(docs), topk=1).aretrieve("tea"))) == 1
    with pytest.raises(ConfigError, match="retriever of nodes"):
        as_retriever(words(docs, output_format="dict"))


def test_nodes_come_in_and_go_out():
    """Text, id and metadata of nodes, of documents and of results are there again."""
    docs = Document()
    given = [
        TextNode(id_="a", text="green tea", metadata={"season": "spring", "file_name": "teas.md"}),
        LlamaDocument(id_="b", text="black tea", metadata={"season": "autumn"}),
        NodeWithScore(node=TextNode(id_="c", text="coffee"), score=0.5),
    ]
    assert add_nodes(docs, given).added == ("a", "b", "c")
    made = [to_node(node).node for node in docs.get_nodes()]
    assert [(one.text, one.metadata["source"]) for one in made] == [
        ("green tea", "a"),
        ("black tea", "b"),
        ("coffee", "c"),
    ]
    assert (made[0].metadata["season"], made[0].metadata["original_file_name"]) == (
        "spring",
        "teas.md",
    )
    assert to_node(docs.get_nodes()[0]).score is None
    with pytest.raises(ConfigError, match="LlamaIndex nodes"):
        add_nodes(docs, ["tea"])


@pytest.mark.parametrize("page", ["docs/interop.md", "docs/zh/interop.md"])
def test_the_code_on_the_page_runs(page, tmp_path, monkeypatch):
    """The blocks that need LlamaIndex run, and what they assert is true; both pages have the
    same.
    """
    monkeypatch.chdir(tmp_path)
    blocks = {
        name: re.findall(
            r"```python3\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL
        )
        for name in (page, "docs/interop.md")
    }
    assert blocks[page]
    assert [ast.dump(ast.parse(one)) for one in blocks[page]] == [
        ast.dump(ast.parse(one)) for one in blocks["docs/interop.md"]
    ]
    held = {"__name__": "a_page_of_the_documentation"}
    for block in blocks[page]:
        exec(compile(block, page, "exec", dont_inherit=True), held)  # noqa: S102  that is what the test is about
