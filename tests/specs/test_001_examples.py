"""Spec 001, the examples of the reference system that use what the page describes: each docstring quotes its code."""

from __future__ import annotations

import base64
import json
import threading

import pytest

from lazyrag import Document, HttpChatModel, LLMParser, Retriever
from lazyrag.errors import ConfigError, LazyRAGError
from lazyrag.loaders import loaders, read_image, register_media_reader
from lazyrag.models import Message
from lazyrag.retrieval import ContextRetriever, PriorityRetriever, TempDocRetriever, WeightedRetriever
from tests.model_server import KEY, Model

WAY = "大学之道，在明明德，\n在亲民，在止于至善。\n知止而后有定，定而后能静，静而后能安。"
SAID = "子曰：学而时习之，不亦说乎？\n有朋自远方来，不亦乐乎？"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


@pytest.fixture
def doc():
    """Two classics, in lines and sentences."""
    made = Document()
    made.create_node_group("line", transform=str.splitlines)
    made.create_node_group("part", transform=lambda text: text.replace("\n", "").split("，"))
    made.add_texts({"大学": WAY, "论语": SAID})
    return made


def groups(nodes):
    """The groups of nodes."""
    return [node.group for node in nodes]


def test_with_weighted_retriever(doc):
    """「with WeightedRetriever(topk=3) as w: w.retriever1 = Retriever(doc, 'chunk1', similarity='bm25', weight=1)」"""
    with WeightedRetriever(topk=3) as w:
        w.retriever1 = Retriever(doc, "line", similarity="bm25", topk=3, weight=1)
        w.retriever2 = Retriever(doc, Document.CoarseChunk, similarity="bm25", topk=3, weight=1)
        w.retriever3 = Retriever(doc, "part", similarity="bm25", topk=3, weight=1)
    found = w("知止而后能静")
    assert sorted(groups(found)) == sorted(["line", "CoarseChunk", "part"])
    assert set(groups(w("知止而后能静", weights=[2, 0, 1]))) == {"line", "part"}
    assert w.retrievers == (w.retriever1, w.retriever2, w.retriever3)
    with WeightedRetriever(topk=3) as uneven:
        uneven.one = Retriever(doc, "line", similarity="bm25", weight=0)
        uneven.two = Retriever(doc, "part", similarity="bm25")
    assert set(groups(uneven("知止而后能静"))) == {"part"}


def test_with_priority_retriever(doc):
    """「with PriorityRetriever(topk=3) as w: w.retriever1 = Retriever(…, priority=Retriever.Priority.high)」"""
    with PriorityRetriever(topk=3) as w:
        w.retriever1 = Retriever(doc, Document.CoarseChunk, similarity="bm25", topk=3, priority="low")
        w.retriever2 = Retriever(doc, "part", similarity="bm25", topk=2, priority=Retriever.Priority.high)
        w.retriever3 = Retriever(doc, "line", similarity="bm25", topk=3)
    assert groups(w("知止而后能静")) == ["part"] * 3
    with PriorityRetriever() as w:
        w.low = Retriever(doc, Document.CoarseChunk, similarity="bm25", topk=3, priority="low")
        w.high = Retriever(doc, "part", similarity="bm25", topk=2, priority=Retriever.Priority.high)
        w.normal = Retriever(doc, "line", similarity="bm25", topk=3)
    found = groups(w("知止而后能静"))
    assert (found[:3], found[-1]) == (["part", "part", "line"], "CoarseChunk")


def test_a_composite_without_members(doc):
    """「with WeightedRetriever() as w:」: without members a query says what is missing; an error adds none."""
    for kind in (WeightedRetriever, PriorityRetriever):
        with pytest.raises(ConfigError, match=rf"needs a retriever.*with {kind.__name__}\(\) as w"):
            kind()("大学")
        with pytest.raises(ConfigError, match=rf"line would not be searched.*with {kind.__name__}\(\) as w"):
            kind().line = Retriever(doc, "line", "bm25")
        with pytest.raises(ConfigError, match="attribute 'run' of its own"), kind() as made:
            made.run = made
    for wrong in ({"weight": -1}, {"priority": "top"}):
        with pytest.raises(ConfigError, match=r"weight|priority"):
            Retriever(doc, "line", "bm25", **wrong)


def test_context_retriever():
    """「ret = ContextRetriever(output_format='dict')」「ret.add_subretriever('block', topk=3)」: texts and a query."""
    assert ContextRetriever()(WAY, "大学")[0].text.startswith("大学之道")
    assert ContextRetriever(output_format="content")([WAY, SAID], "大学")[0].startswith("大学之道")
    ret = ContextRetriever(output_format="dict")
    ret.create_node_group("block", transform=lambda text: text.split("\n"))
    ret.add_subretriever(Document.CoarseChunk, topk=1)
    ret.add_subretriever("block", topk=3)
    found = ret([WAY, SAID], "而后大学")
    assert [one["text"].count("\n") > 0 for one in found] == [True, *[False] * (len(found) - 1)]
    assert len(found) > 2
    for wrong in ("", [], [WAY, " "], None):
        with pytest.raises(ConfigError, match="context"):
            ret(wrong, "大学")


def test_temporary_searches_use_the_groups_that_are_defined():
    """「ret = ContextRetriever(output_format='dict')」: a defined group is searched, each text once."""
    ret = ContextRetriever(output_format="content").create_node_group("line", transform=str.splitlines)
    assert ret([WAY, SAID], "朋自远方") == ["有朋自远方来，不亦乐乎？"]
    ret.add_subretriever("line", topk=3).add_subretriever("FineChunk")
    assert len(ret([WAY, SAID], "而后不亦", topk=4)) == len({*ret([WAY, SAID], "而后不亦", 4)}) == 4
    assert len(ContextRetriever(topk=2).create_node_group("line", str.splitlines)([WAY, SAID], "而后不亦")) == 2
    assert len(ret("一则\n二则", "则")) == 3
    assert len(ret("一则", "则")) == 1
    for wrong in (("nowhere", {}), ("line", {"topk": 0}), ("line", {"output_format": "content"}), ("line", {"no": 1})):
        with pytest.raises(LazyRAGError, match=r"nowhere|topk|output_format|no"):
            ret.add_subretriever(wrong[0], **wrong[1])
    with pytest.raises(ConfigError, match="transform of 'wrong'"):
        ret.create_node_group("wrong", transform=3)
    with pytest.raises(ConfigError, match="topk must be"):
        ContextRetriever(topk=0)


def test_temporary_texts_are_cached():
    """「ContextRetriever」: the same texts are embedded once, whatever is asked; several threads may ask."""
    calls = []

    def embed(text):
        calls.append(text)
        return [float(text.count(character)) for character in "学大知有"] + [0.1]

    retriever = ContextRetriever(embed)
    first = retriever([WAY, SAID], "大学")
    embedded = len(calls)
    threads = [threading.Thread(target=retriever, args=([WAY, SAID], query)) for query in ("有朋", "知止")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == embedded + 2
    assert first == retriever([WAY, SAID], "大学")


def test_temp_doc_retriever(folder):
    """「TempDocRetriever(output_format='content')('….txt', '大学')」: files given with a question, again if changed."""
    path = folder({"大学.txt": WAY, "论语.txt": SAID})
    retriever = TempDocRetriever(output_format="content")
    assert "大学之道" in retriever(str(path / "大学.txt"), "大学")[0]
    both = [path / "大学.txt", path / "论语.txt"]
    assert "有朋" in retriever(both, "有朋自远方来")[0]
    assert retriever(both, "黄河") == []
    (path / "论语.txt").write_text("君不见黄河之水天上来", encoding="utf-8")
    assert "黄河" in retriever(both, "黄河之水")[0]
    for wrong in ([], 7, [path, 7]):
        with pytest.raises(ConfigError, match="files must be"):
            retriever(wrong, "大学")
    with pytest.raises(LazyRAGError, match=r"^files.*nowhere"):
        retriever(path / "nowhere.txt", "大学")


def test_questions_of_an_image(tmp_path, httpserver):
    """「LLMParser(vlm, language='zh', task_type='qa_img')」: the model gets the image, and its questions are nodes."""
    server = Model(httpserver)
    answer = json.dumps({"questions": [{"question": "图中是什么颜色？", "answer": "一个像素。"}]}, ensure_ascii=False)
    choice = {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}

    def see(request):
        return answered({"model": "vlm", "choices": [choice]})

    server.faults += [see, see]
    vlm = HttpChatModel(server.url, "vlm", api_key=KEY)
    (tmp_path / "像素.png").write_bytes(PIXEL)
    with loaders.isolated():
        register_media_reader("image", read_image)
        docs = Document(tmp_path)
        docs.create_node_group("qa", transform=LLMParser(vlm, language="zh", task_type="qa_img"))
        [node] = docs.get_nodes("qa")
    assert (node.text, node.metadata["answer"]) == ("图中是什么颜色？", "一个像素。")
    text, image = server.bodies[0]["messages"][0]["content"]
    assert "像素.png" in text["text"]
    assert image["image_url"]["url"] == "data:image/png;base64," + base64.b64encode(PIXEL).decode()
    with pytest.raises(ConfigError, match="sees images"):
        LLMParser(lambda prompt: prompt, task_type="qa_img")
    with pytest.raises(LazyRAGError, match="image_path"):
        LLMParser(vlm, task_type="qa_img")("a text")
    for wrong in (["text"], [{"text": "no type"}], 7):
        with pytest.raises(ConfigError, match="content must be a string, or a list of parts"):
            Message("user", wrong)


def answered(body):
    """A response of a model server."""
    from werkzeug import Response

    return Response(json.dumps(body), content_type="application/json")
