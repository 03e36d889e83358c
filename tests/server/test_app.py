"""What holds for every route: problems, request ids, health."""

from __future__ import annotations


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
