"""Searches in an event loop."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable

import pytest

from lazyrag import Document, Hit, HttpEmbedder, Reranker, Retriever, register_reranker
from tests.model_server import PATIENCE_S, RawServer


def tea(embed: Callable[[str], list[float]] | None = None) -> Document:
    """A Document with two texts."""
    docs = Document(embed=embed)
    docs.add_texts({"tea": "Green tea is not fermented.", "coffee": "Coffee is roasted."})
    return docs


def test_a_slow_model_does_not_block_the_loop():
    """The loop goes on while a query is embedded; the answer is that of a call."""
    may_answer = threading.Event()
    may_answer.set()
    ticks = []

    def embed(text: str) -> list[float]:
        assert may_answer.wait(30)
        return [float("tea" in text), 1.0]

    docs = tea(embed=embed)
    expected = docs.search("black tea")
    may_answer.clear()

    async def tick() -> None:
        for number in range(5):
            await asyncio.sleep(0)
            ticks.append(number)
        may_answer.set()

    async def both() -> list[object]:
        nodes, _ = await asyncio.gather(docs.asearch("another tea"), tick())
        return list(nodes)

    assert len(asyncio.run(both())) == len(expected)
    assert ticks == [0, 1, 2, 3, 4]


def test_retrievers_and_rerankers_await():
    """The same nodes as from calls."""

    @register_reranker(name="AsyncReversed", batch=True, replace=True)
    def reverse(nodes, query=""):
        return nodes[::-1]

    docs = tea()
    retriever = Retriever(docs, "MediumChunk", similarity="bm25", topk=2)
    reranker = Reranker("AsyncReversed")

    async def ask() -> list[object]:
        return await reranker.arerank(await retriever.aretrieve("tea or coffee"), "tea or coffee")

    nodes = retriever("tea or coffee")
    assert len(nodes) == 2
    assert asyncio.run(ask()) == nodes[::-1]


def test_results_travel_as_json():
    """A result is a list, and JSON without loss of its text, place and score."""
    nodes = tea().search("fermented tea")
    assert isinstance(nodes, list)
    [hit] = json.loads(json.dumps(nodes.to_dicts()))
    assert hit["path"] == "tea"
    assert hit["score"] == nodes[0].score
    assert hit["text"] == nodes[0].text
    assert "Green tea" in nodes._repr_html_()
    assert nodes[:1].to_dicts() == nodes.to_dicts()
    assert tea().search("").to_dicts() == []


def test_printed_results_are_readable():
    """Number, place and first line of each; no file controls the terminal."""
    docs = Document()
    docs.add_texts({"a.md": "\n\x1b[31mGreen tea.\nIt is hot.", "b.md": f"Green {'tea ' * 40}"})
    lines = str(docs.search("green tea")).splitlines()
    assert lines[:3:2] == ["1. b.md, line 1", "2. a.md, lines 2-3"]
    assert lines[1::2] == [f"   Green {'tea ' * 40}"[:80], "   [31mGreen tea."]
    assert str(docs.search("")) == ""


@pytest.mark.parametrize("name", ["page_content", "nodes", "scores"])
def test_a_list_of_hits_suggests_what_a_hit_has(name: str):
    """Or says what it is."""
    hints = {"page_content": "hits[0].text", "scores": "hits[0].score", "nodes": "a list of hits"}
    with pytest.raises(AttributeError, match=f"NodeList has no attribute {name!r}") as caught:
        getattr(tea().search("tea"), name)
    assert hints[name] in str(caught.value)


def test_a_cancelled_search_leaves_no_request():
    """The thread that waits for a model ends with the task, long before the model answers."""
    ended = threading.Event()
    with RawServer(b"", hold=True) as server:
        model = HttpEmbedder(server.url, "m", retries=0)

        def embed(text: str) -> list[float]:
            if text == "tea":
                return [1.0]
            try:
                return list(model.embed([text])[0])
            finally:
                ended.set()

        docs = Document(embed=embed)
        docs.add_texts({"a": "tea"})
        docs.search("tea")

        async def search() -> None:
            task = asyncio.create_task(docs.asearch("which tea?"))
            await asyncio.to_thread(server.asked.wait, PATIENCE_S)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(search())
        assert ended.wait(PATIENCE_S)
        assert server.gone.wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("page_content", "text"),
        ("filename", "path"),
        ("id", "uid"),
        ("meta", "metadata"),
        ("similarity_score", "score"),
    ],
)
def test_names_of_other_libraries_get_the_name_here(name: str, meant: str):
    """An AttributeError names the attribute that is meant; the program's own names stay wrong."""
    [node, *_] = tea().search("fermented tea")
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'\. Use hit\.{meant}\."):
        getattr(node, name)
    assert not hasattr(node, "no_such_name_at_all")
    for as_dict in ("to_dict", "model_dump"):
        with pytest.raises(AttributeError, match=r"Use hits\.to_dicts\(\), of the list of hits"):
            getattr(node, as_dict)
    with pytest.raises(AttributeError, match=r"Use hit\.source"):
        _ = Hit("1", "tea", 0.5).path
