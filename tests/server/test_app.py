"""What holds for every route: problems, request ids, health."""

from __future__ import annotations

import socket

from lazyrag.server.supervisor import listen


def test_health(client):
    """The process runs, and every set can be read."""
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}


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
