"""What holds for every route: problems, request ids, health."""

from __future__ import annotations

import socket

import pytest

from lazyrag.server.supervisor import listen


def test_health(client):
    """The process runs, and every set can be read."""
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}


@pytest.mark.slow
def test_unknown_paths_are_problems(client):
    """An error is a problem of RFC 9457, with the id that its response carries."""
    answer = client.get("/nowhere")
    body = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, body["status"], body["instance"]) == (404, 404, "/nowhere")
    assert body["request_id"] == answer.headers["x-request-id"]


def test_small_responses_are_sent_at_once():
    """Connections do not hold a response back until the client acknowledges its headers, which takes 40 ms."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.slow
def test_unknown_routes_and_methods_say_what_there_is(client):
    """The detail names the request; for a method, the remedy names those that the route has."""
    unknown, method = client.get("/api/v1/xyz").json(), client.delete("/api/v1/sets").json()
    assert unknown["detail"] == "There is no route GET /api/v1/xyz."
    assert (
        "base_url" in client.post("/chat/completions", json={}, headers={"Accept": "application/json"}).json()["remedy"]
    )
    assert "base_url" not in client.get("/v1/files/x/y/z").text
    assert (method["status"], "GET" in method["remedy"]) == (405, True)


def test_invalid_fields_are_named_with_what_they_must_be(client):
    """In the form of the library's own errors: the argument, the expectation, the value."""
    route = "/api/v1/sets/notes/search"
    for body, said in (
        ({"query": "tea", "topk": 0}, "topk must be greater than or equal to 1; got 0."),
        ({"topk": 3}, "query is missing."),
        ({"query": "tea", "top_k": 3}, "top_k is no field of the body."),
        ({"query": ["tea"]}, "query must be a valid string."),
    ):
        answer = client.post(route, json=body)
        assert (answer.status_code, answer.json()["detail"]) == (422, said)
