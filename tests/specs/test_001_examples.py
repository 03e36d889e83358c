"""Spec 001, the examples of the reference system that use what the page describes: each docstring
quotes its code.
"""

from __future__ import annotations

import base64
import json

import pytest

from lazyrag import Document, HttpChatModel, LLMParser
from lazyrag.errors import ConfigError, LazyRAGError
from lazyrag.loaders import loaders, read_image, register_media_reader
from lazyrag.models import Message
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


def test_questions_of_an_image(tmp_path, httpserver):
    """「LLMParser(vlm, language='zh', task_type='qa_img')」: the model gets the image, and its
    questions are nodes.
    """
    server = Model(httpserver)
    answer = json.dumps(
        {"questions": [{"question": "图中是什么颜色？", "answer": "一个像素。"}]},
        ensure_ascii=False,
    )
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": answer},
        "finish_reason": "stop",
    }

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
