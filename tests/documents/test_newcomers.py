"""Forty mistakes of newcomers: each message names the argument, what is expected, the value, and
the way out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lazyrag
from lazyrag import (
    DocNode,
    Document,
    HttpEmbedder,
    HybridRetriever,
    OnnxEmbedder,
    RAGPipeline,
    Reranker,
    Retriever,
    SentenceSplitter,
)
from lazyrag.errors import LazyRAGError


def tea(embed: Any = None) -> Document:
    """Two texts."""
    docs = Document(embed=embed)
    docs.add_texts({"tea": "green tea. black tea", "coffee": "no leaves"})
    return docs


def keyword_search(**settings: Any) -> Retriever[list[DocNode]]:
    """The simplest retriever."""
    return Retriever(tea(), "MediumChunk", similarity="bm25", **settings)


def closed() -> Document:
    """A Document after its end."""
    with tea() as docs:
        pass
    return docs


def searched(embed: Callable[[str], Any]) -> list[DocNode]:
    """What vector search with an embed function finds."""
    return Retriever(tea(embed), "MediumChunk")("tea")


# What is written, and parts of the message, in this order.
MISTAKES: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "a missing folder": (
        lambda: Document("/nowhere/folder"),
        ("dataset_path", "/nowhere/folder", "does not exist"),
    ),
    "a list of folders": (lambda: Document(["a"]), ("dataset_path", "must be a path", "doc_files")),
    "a store by its name": (
        lambda: Document(store_conf="map"),
        ("store_conf", "a mapping", "'map'", "'type'"),
    ),
    "an unknown store": (
        lambda: Document(store_conf={"segment_store": {"type": "fiass"}}),
        ("fiass", "Known", "map"),
    ),
    "an embed name": (
        lambda: Document(embed="bge-m3"),
        ("'bge-m3' is not on this machine", "lazyrag model fetch", "the model's folder"),
    ),
    "an embedder without a server": (
        lambda: HttpEmbedder("localhost:8000", "m"),
        ("base_url", "http://", "localhost"),
    ),
    "a model that is not there": (
        lambda: OnnxEmbedder("bge-m3"),
        ("bge-m3", "folder", "download=True"),
    ),
    "an embedder that returns None": (
        lambda: searched(lambda text: None),
        ("embed", "returned None", "vector"),
    ),
    "an embedder that returns text": (
        lambda: searched(lambda text: "tea"),
        ("embed", "'tea'", "list of numbers"),
    ),
    "an embedder that returns a batch": (
        lambda: searched(lambda text: [[1.0, 2.0]]),
        ("shape (1, 2)", "one-dim"),
    ),
    "a misspelt argument": (
        lambda: Document(datset_path="."),
        ("datset_path", "Did you mean 'dataset_path'?"),
    ),
    "fields as a list": (
        lambda: Document(doc_fields=["author"]),
        ("doc_fields", "mapping", "['author']"),
    ),
    "a field by a type's name": (
        lambda: Document(doc_fields={"a": "str"}),
        ("doc_fields['a']", "DocField", "'str'"),
    ),
    "texts as a list": (
        lambda: tea().add_texts(["tea"]),
        ("texts", "mapping of ids to texts", "['tea']"),
    ),
    "a file that is not there": (
        lambda: tea().add_files(["/no.txt"]),
        ("'/no.txt'", "does not exist"),
    ),
    "deleting what is not there": (
        lambda: tea().delete_files(["no"]),
        ("no document 'no'", "Known", "tea"),
    ),
    "a misspelt group": (
        lambda: Retriever(tea(), "MediumChunks"),
        ("MediumChunks", "Did you mean 'MediumChunk'?"),
    ),
    "no embed": (lambda: Retriever(tea(), "MediumChunk"), ("no embed", "similarity='bm25'")),
    "similarity='hybrid'": (
        lambda: Retriever(tea(), "MediumChunk", similarity="hybrid"),
        ("not a similarity", "HybridRetriever.over"),
    ),
    "a misspelt similarity": (
        lambda: Retriever(tea(), "MediumChunk", similarity="bm26"),
        ("'bm26'", "Known", "cosine", "Did you mean 'bm25'?"),
    ),
    "swapped arguments": (
        lambda: Retriever("MediumChunk", tea()),
        ("doc must be a Document", "'MediumChunk'"),
    ),
    "topk=0": (lambda: keyword_search(topk=0), ("topk must be an integer >= 1", "0")),
    "topk='3'": (lambda: keyword_search(topk="3"), ("topk must be an integer >= 1", "'3'")),
    "top_k=": (lambda: keyword_search(top_k=3), ("top_k", "Did you mean 'topk'?")),
    "a cut-off as text": (
        lambda: keyword_search(similarity_cut_off="0.3"),
        ("similarity_cut_off", "a number", "'0.3'"),
    ),
    "query=None": (lambda: keyword_search()(None), ("query must be a string", "None")),
    "a list of queries": (lambda: keyword_search()(["tea"]), ("query must be a string", "['tea']")),
    "a filter as text": (
        lambda: keyword_search()("tea", filters="a == 1"),
        ("filters", "mapping", "Condition"),
    ),
    "a filter on an unknown field": (
        lambda: keyword_search()("tea", filters={"author": "x"}),
        ("author", "Known", "file_name", "doc_fields"),
    ),
    "hybrid search without embed": (
        lambda: HybridRetriever.over(tea(), "MediumChunk"),
        ("no embed", "Document(embed=...)"),
    ),
    "a misspelt transform": (
        lambda: tea().create_node_group("x", transform="SentenceSpliter"),
        ("SentenceSpliter", "Did you mean 'SentenceSplitter'?"),
    ),
    "a misspelt parameter of a transform": (
        lambda: tea().create_node_group("x", transform=SentenceSplitter, chunksize=3),
        ("chunksize", "chunk_overlap", "Did you mean 'chunk_size'?"),
    ),
    "an overlap as large as the chunk": (
        lambda: tea().create_node_group(
            "x", transform=SentenceSplitter, chunk_size=10, chunk_overlap=30
        ),
        ("chunk_overlap", "chunk_size", "an integer from 0", "30"),
    ),
    "an unknown parent": (
        lambda: tea().create_node_group("x", transform=str.split, parent="y"),
        ("'y'", "Known", "MediumChunk", "create_node_group"),
    ),
    "a misspelt reranker": (
        lambda: Reranker("ModulReranker"),
        ("ModulReranker", "Did you mean 'ModuleReranker'?"),
    ),
    "a misspelt argument of get_nodes": (
        lambda: tea().get_nodes(node_group="x"),
        ("node_group", "mean 'group'?"),
    ),
    "filter of Document.search": (
        lambda: tea().search("tea", filter={}),
        ("filter", "Known", "mean 'filters'?"),
    ),
    "a misspelt argument of a hybrid's search": (
        lambda: asyncio.run(HybridRetriever(keyword_search()).search("tea", topk=3)),
        ("HybridRetriever.search", "topk", "mean 'top_k'?"),
    ),
    "words of an analyser": (
        lambda: Retriever(tea(), "MediumChunk", "bm25_chinese", words=["茶"]),
        ("words", "analyser=register_chinese_analyser(name, words=...)"),
    ),
    "a pipeline over a folder": (
        lambda: RAGPipeline.over(".", "FineChunk"),
        ("must be a Document", "'.'"),
    ),
    "a query after the end": (
        lambda: Retriever(closed(), "MediumChunk", similarity="bm25")("tea"),
        ("closed", "open"),
    ),
    "a misspelt import": (lambda: lazyrag.Retreiver, ("Retreiver", "Did you mean Retriever")),
    "a suffix without its dot": (
        lambda: lazyrag.register_loader("pdf"),
        ("register_loader", "'.log'", "pdf"),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.filterwarnings("ignore::lazyrag.errors.IngestionWarning")
def test_the_message_shows_the_way_out(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of ours, or the AttributeError of a misspelt name, with these parts in this
    order.
    """
    monkeypatch.chdir(tmp_path)
    call, parts = MISTAKES[mistake]
    with pytest.raises((LazyRAGError, AttributeError)) as caught:
        call()
    message, at = str(caught.value).casefold(), 0
    for part in parts:
        found = message.find(part.casefold(), at)
        assert found >= 0, f"{part!r} is missing in: {caught.value}"
        at = found + 1
    assert len(message) < 420
