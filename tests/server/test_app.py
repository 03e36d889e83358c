"""What holds for every route: problems, request ids, health."""

from __future__ import annotations

import re
import socket

import pytest

from lazyrag.server.jobs import Jobs
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
    """Connections do not hold a response back until the client acknowledges its headers, which
    takes 40 ms.
    """
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
        "base_url"
        in client.post("/chat/completions", json={}, headers={"Accept": "application/json"}).json()[
            "remedy"
        ]
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


def test_no_route_ignores_a_parameter_that_it_does_not_have(client, docs):
    """Every operation of the API refuses it before anything is done; OpenAI's as OpenAI does."""
    paths = client.app.openapi()["paths"]
    operations = [(method, path) for path, methods in paths.items() for method in methods]
    assert len(operations) > 80
    for method, path in [*operations, ("post", "/mcp"), ("post", "/mcp/write")]:
        url = re.sub(r"{\w+}", "1", path.replace("{set}", "notes")).replace("/_1", "/_scan")
        answer = client.request(
            method, url, params={"dry_rum": "1"}, json={}, headers={"Idempotency-Key": "1"}
        )
        if path.startswith("/v1/"):
            error = answer.json()["error"]
            shown = (answer.status_code, error["type"], error["code"], error["param"])
            assert shown == (400, "invalid_request_error", "unknown_parameter", "dry_rum"), path
        else:
            assert (answer.status_code, answer.json()["detail"]) == (
                422,
                "Unknown parameter: 'dry_rum'.",
            ), path


def test_a_parameter_of_another_route_changes_nothing(client, docs):
    """A deletion has no dry run, and the message names the parameter that a sync means."""
    answer = client.post("/api/v1/sets/notes/delete?dry_run=1", json={"documents": ["tea.md"]})
    assert (answer.status_code, Jobs(docs).list()) == (422, [])
    assert "no query parameters" in answer.json()["remedy"]
    assert (
        "Did you mean 'dry_run'?"
        in client.post("/api/v1/sets/notes/sync?dryrun=1").json()["remedy"]
    )
    assert client.post("/api/v1/sets/notes/sync?dry_run=1").status_code == 200


def test_links_to_pages_may_have_parameters_of_other_sites(client):
    """Forms may not."""
    assert (
        client.get(
            "/s/notes/search?q=tea&utm_source=mail", headers={"Accept": "text/html"}
        ).status_code
        == 200
    )
    token = re.search(
        r'name="csrf" content="(\w+)"', client.get("/more", headers={"Accept": "text/html"}).text
    )[1]
    path = f"/s/notes/files/delete?csrf={token}"
    assert client.post(f"{path}&dry_run=1", data={"id": "tea.md"}).status_code == 422
    assert client.post(path, data={"id": "tea.md"}, follow_redirects=False).status_code == 303
