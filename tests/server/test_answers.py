"""Answers with their events, feedback, golden questions and evaluations over HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from unittest.mock import Mock

import pytest
from fastapi.testclient import TestClient

from lazyrag.server.api import answers as routes_answers
from lazyrag.server.app import create_app
from lazyrag.server.core.notebook import MAX_WRITING, Notebook
from lazyrag.server.core.principal import Principal
from lazyrag.server.core.problems import ProblemError
from lazyrag.server.core.service import Service
from tests.server.openapi import check, conforms

SET = "/api/v1/sets/notes"
ASK = {"question": "How hot is the water for green tea?", "topk": 2}


class Chat:
    """A chat model that writes an answer in pieces, with a pause behind the first."""

    def __init__(self):
        self.pause_s = 0.0
        self.was_stopped = False

    async def __call__(self, prompt):
        """Write the answer."""
        pieces = ["It is brewed at eighty degrees ", "[1]. ", "It is old [7]."]
        try:
            for number, piece in enumerate(pieces):
                await asyncio.sleep(self.pause_s if number == 1 else 0)
                yield piece
        except (asyncio.CancelledError, GeneratorExit):
            self.was_stopped = True
            raise


@pytest.fixture
def chat(service):
    """The service's chat model."""
    service.chat = Chat()
    return service.chat


def events(answer):
    """The events of a stream: number, name, data."""
    found = []
    for block in answer.text.replace(": ping\n\n", "").split("\n\n")[:-1]:
        fields = dict(line.partition(": ")[::2] for line in block.split("\n"))
        found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return found


def test_an_answer_has_citations_and_problems(client, chat):
    """The answer names its sources, and the number that is no source is a problem."""
    answer = client.post(f"{SET}/answers", json=ASK)
    body = conforms(client, "post", "/api/v1/sets/{set}/answers", answer)
    assert (body["state"], body["text"]) == (
        "SUCCESS",
        "It is brewed at eighty degrees [1]. It is old [7].",
    )
    assert [citation["source"] for citation in body["citations"]] == ["tea.md"]
    assert "[7]" in body["problems"][0]["detail"]
    assert body["hits"][0]["source"] == "tea.md"
    assert client.get(answer.headers["location"]).json() == body


@pytest.mark.slow
def test_a_stream_can_be_read_again(client, chat):
    """Events come in order; after a reload they go on behind the one that was read last."""
    answer = client.post(f"{SET}/answers", json={**ASK, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-accel-buffering"] == "no"
    found = events(answer)
    assert [number for number, _, _ in found] == list(range(1, len(found) + 1))
    assert [name for _, name, _ in found if name != "delta"] == [
        *("citation", "statement", "statement", "problem", "done"),
    ]
    assert (
        "".join(data["text"] for _, name, data in found if name == "delta") == found[-1][2]["text"]
    )
    document = client.get("/openapi.json").json()
    check(found[-1][2], {"$ref": "#/components/schemas/Answer"}, document["components"]["schemas"])
    again = client.get(f"{answer.headers['location']}/events", headers={"Last-Event-ID": "2"})
    assert events(again) == found[2:]
    over = client.get(
        f"{answer.headers['location']}/events", headers={"Last-Event-ID": str(len(found))}
    )
    assert over.status_code == 204


@pytest.mark.slow
def test_another_process_goes_on_with_a_stream(client, docs, service, chat, monkeypatch):
    """Processes share the answers, and a silence becomes a comment, so that proxies keep the
    connection.
    """
    monkeypatch.setattr(routes_answers, "COMMENT_S", 0.2)
    chat.pause_s = 2.0
    asked = threading.Thread(target=client.post, args=(f"{SET}/answers",), kwargs={"json": ASK})
    asked.start()
    other = TestClient(
        create_app(Service({"notes": docs}, service.state)), base_url="http://127.0.0.1"
    )
    found, deadline = [], time.monotonic() + 20
    while not found and time.monotonic() < deadline:
        time.sleep(0.05)
        book = client.app.state.service.book
        found = book.rows("SELECT id FROM answer") if book else []
    answer = other.get(f"{SET}/answers/{found[0][0]}/events")
    asked.join()
    assert ": ping\n\n" in answer.text
    assert [name for _, name, _ in events(answer)][-2:] == ["problem", "done"]


@pytest.mark.slow
def test_without_a_chat_model_the_answer_is_quoted(client):
    """As by `lazyrag ask`: quotations with citations, and how to get written answers."""
    body = conforms(
        client, "post", "/api/v1/sets/{set}/answers", client.post(f"{SET}/answers", json=ASK)
    )
    assert body["text"].startswith("“")
    assert (body["citations"][0]["source"], body["weak"]) == ("tea.md", False)
    assert "chat model" in body["problems"][0]["detail"]


@pytest.mark.slow
def test_a_failing_model_is_a_problem(client, service):
    """An error of the model is a problem of the response, or an event of the stream."""

    def fail(messages):
        raise OSError("no connection")

    service.chat = fail
    assert client.post(f"{SET}/answers", json=ASK).status_code == 502
    found = events(client.post(f"{SET}/answers", json={**ASK, "stream": True}))
    assert [(name, data.get("status"), data.get("state")) for _, name, data in found] == [
        ("problem", 502, None),
        ("done", None, "FAILED"),
    ]


@pytest.mark.slow
def test_a_broken_stream_keeps_what_came(client, service):
    """The problem has the answer so far, which can be read again."""

    def breaks(messages):
        yield "At eighty degrees [1]."
        raise OSError("no connection")

    service.chat = breaks
    broken = client.post(f"{SET}/answers", json=ASK)
    assert broken.status_code == 502
    answer = broken.json()["answer"]
    assert (answer["text"], answer["state"]) == ("At eighty degrees [1].", "FAILED")
    assert client.get(broken.headers["location"]).json() == answer


@pytest.mark.slow
def test_only_who_asked_reads_an_answer(app, client, chat):
    """For another principal there is no such answer."""
    place = client.post(f"{SET}/answers", json=ASK).headers["location"]

    async def as_other(scope, receive, send):
        scope.setdefault("state", {})["principal"] = Principal("t2", "read")
        await app(scope, receive, send)

    other = TestClient(as_other, base_url="http://127.0.0.1")
    assert [other.get(path).status_code for path in (place, f"{place}/events")] == [404, 404]


@pytest.mark.slow
def test_an_abandoned_answer_stops_the_model(app, chat, monkeypatch):
    """A client that goes away and does not come back in time cancels the model's call."""
    monkeypatch.setattr(routes_answers, "GRACE_S", 0.4)
    chat.pause_s = 60.0

    async def leave():
        body = json.dumps({**ASK, "stream": True}).encode()
        sent = asyncio.Event()
        requests = [{"type": "http.request", "body": body}]

        async def receive():
            if requests:
                return requests.pop()
            await sent.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            if b"delta" in message.get("body", b""):
                sent.set()

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": f"{SET}/answers",
            "raw_path": b"",
        }
        headers = [(b"content-type", b"application/json"), (b"host", b"127.0.0.1")]
        more = {"query_string": b"", "root_path": "", "scheme": "http", "server": ("127.0.0.1", 80)}
        await app({**scope, **more, "headers": headers, "client": ("127.0.0.1", 1)}, receive, send)
        await asyncio.wait_for(asyncio.gather(*app.state.service.book.tasks), timeout=60)

    asyncio.run(leave())
    assert chat.was_stopped


@pytest.mark.slow
def test_feedback_becomes_a_golden_question_and_an_evaluation(client, docs, chat):
    """A good answer names what must be found; two ways to search are compared by it."""
    answer = client.post(f"{SET}/answers", json=ASK).json()
    judged = client.post(
        f"{SET}/feedback", json={"good": True, "answer": answer["id"], "note": "yes"}
    )
    feedback = conforms(client, "post", "/api/v1/sets/{set}/feedback", judged)
    assert (feedback["query"], feedback["uids"]) == (
        ASK["question"],
        [answer["citations"][0]["uid"]],
    )
    made = client.post(f"{SET}/golden", json={"feedback": feedback["id"]})
    golden = conforms(client, "post", "/api/v1/sets/{set}/golden", made)
    assert golden["spans"][0]["path"] == "tea.md"
    more = {"question": "红茶用什么水？", "texts": ["红茶用开水"], "references": ["开水"]}
    assert client.post(f"{SET}/golden", json=more).status_code == 201
    assert (
        len(conforms(client, "get", "/api/v1/sets/{set}/golden", client.get(f"{SET}/golden"))) == 2
    )
    docs.create_node_group("beginning", transform=lambda text: text[:2])
    ways = {"a": {"group": "beginning"}, "b": {"retriever": "bm25_chinese"}}
    answer = client.post(f"{SET}/evaluations", json=ways)
    found = conforms(client, "post", "/api/v1/sets/{set}/evaluations", answer)
    recall = next(one for one in found["measures"] if one["measure"] == "span_recall@10")
    assert (recall["questions"], recall["a"], recall["b"], recall["wins"]) == (2, 0.5, 1.0, 1)
    assert recall["p"] == 1.0  # one question proves nothing
    assert client.get(f"{SET}/evaluations/{found['id']}").json() == found
    assert client.delete(f"{SET}/golden/{golden['id']}").status_code == 204
    assert client.delete(f"{SET}/golden/{golden['id']}").status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"question": "?", "texts": ["nowhere to be found"]}, 400),
        ({"question": "?"}, 422),
        ({"texts": ["Keep tea dry"]}, 422),
        ({"feedback": "99"}, 404),
    ],
)
def test_golden_questions_need_a_label_that_is_there(client, body, status):
    """What cannot be found by anything is refused at once."""
    assert client.post(f"{SET}/golden", json=body).status_code == status


def test_labels_hide_the_records_of_others(app, client, docs):
    """What others judge tells of documents that they see: with labels a principal reads its own
    records only.
    """
    client.post(f"{SET}/golden", json={"question": "How hot?", "texts": ["eighty degrees"]})
    app.state.service._views["notes", ("tea",)] = docs.restricted({"file_name": ["tea.md"]})

    async def as_other(scope, receive, send):
        scope.setdefault("state", {})["principal"] = Principal("t1", "write", ("tea",))
        await app(scope, receive, send)

    other = TestClient(as_other, base_url="http://127.0.0.1")
    assert other.get(f"{SET}/golden").json() == []
    assert (
        other.post(
            f"{SET}/golden", json={"question": "What is green?", "texts": ["Green tea"]}
        ).status_code
        == 201
    )
    assert [len(one.get(f"{SET}/golden").json()) for one in (other, client)] == [1, 2]
    assert (
        other.post(f"{SET}/golden", json={"question": "水？", "texts": ["红茶用开水"]}).status_code
        == 400
    )


@pytest.mark.slow
def test_a_reader_cannot_add_golden_questions(app):
    """They are a part of the set: that needs the scope write."""

    async def as_reader(scope, receive, send):
        scope.setdefault("state", {})["principal"] = Principal("t1", "read")
        await app(scope, receive, send)

    client = TestClient(as_reader, base_url="http://127.0.0.1")
    assert (
        client.post(f"{SET}/golden", json={"question": "?", "references": ["!"]}).status_code == 403
    )
    assert client.post(f"{SET}/evaluations", json={"a": {}, "b": {}}).status_code == 403


def test_one_token_leaves_room_for_the_answers_of_others(tmp_path):
    """A token that asks without end gets half of what a process can write at once, another one
    finds room.
    """
    book, busy, other = Notebook(tmp_path), Principal("busy"), Principal("other")
    for _ in range(MAX_WRITING // 2):
        book.require_room(busy)
        book.join(Mock(), busy)
    with pytest.raises(ProblemError, match="Too many") as raised:
        book.require_room(busy)
    assert raised.value.status == 429
    book.require_room(other)
