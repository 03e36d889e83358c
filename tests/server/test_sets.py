"""Sets that are created and deleted while the service runs."""

from __future__ import annotations

import sys
import threading

import httpx2 as httpx
import pytest

from lazyrag.server.core.principal import Principal
from lazyrag.server.core.runtime_sets import RuntimeSets
from lazyrag.server.core.sets import SetFollower, records
from lazyrag.server.page.page import change_defaults, defaults_of
from tests.server.running import serving, wait_for

SETS = "/api/v1/sets"


def names(client):
    """The names of the sets."""
    return [one["name"] for one in client.get(SETS).json()["sets"]]


def test_a_set_is_created_filled_and_deleted(client, following):
    """A set that is created takes documents and is searched; after it is deleted its name is
    free.
    """
    for _ in range(2):
        wait_for(lambda: client.post(SETS, json={"name": "teas"}).status_code == 201, "the name")
        assert client.get(f"{SETS}/teas").status_code in (200, 503)
        assert client.post(SETS, json={"name": "teas"}).status_code == 409
        wait_for(lambda: names(client) == ["notes", "teas"], "the set")
        assert client.get(f"{SETS}/teas").json()["documents"] == 0
        job = client.post(
            f"{SETS}/teas/texts", json={"texts": {"tea": "Oolong is between green and black."}}
        )
        assert job.status_code == 202, job.text
        wait_for(lambda: client.get(f"{SETS}/teas").json()["documents"] == 1, "the text")
        [hit] = client.post(f"{SETS}/teas/search", json={"query": "oolong"}).json()["hits"]
        assert hit["path"] == "tea"
        assert client.delete(f"{SETS}/teas").status_code == 204
        assert (
            client.get(f"{SETS}/teas").status_code
            == client.delete(f"{SETS}/teas").status_code
            == 404
        )
        wait_for(lambda: not list(following.glob("sets/*")), "the removal of its files")


@pytest.mark.parametrize("name", ["茶", "茶" * 100, "Tea and  more"])
def test_names_in_any_language(client, following, service, name):
    """Uploads, answers and defaults need no ASCII, and no short name; nothing of them is there for
    the next set.
    """
    for _ in range(2):
        wait_for(lambda: client.post(SETS, json={"name": name}).status_code == 201, "the name")
        wait_for(lambda: name in names(client), "the set")
        assert defaults_of(service, name)["topk"] == 6
        change_defaults(
            service, service.sets[name], name, group="MediumChunk", retriever="default", topk=3
        )
        [store] = [
            one["id"]
            for one in client.get("/v1/vector_stores").json()["data"]
            if one["name"] == name
        ]
        answer = client.post(f"{SETS}/{name}/documents", files={"file": ("tea.txt", b"Oolong.")})
        assert answer.status_code == 202, answer.text
        assert client.get(answer.headers["location"]).json()["kind"] == "add_files"
        assert (
            client.post(f"{SETS}/{name}/answers", json={"question": "oolong?"}).status_code == 200
        )
        assert client.delete(f"{SETS}/{name}").status_code == 204
        assert not records(service).select("SELECT id FROM store WHERE id = ?", store)
        wait_for(lambda: not list(following.glob("sets/*")), "the removal of its files")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "-a", " a", "a ", "a\tb", "a" * 101, "\ud800", "notes"]
)
def test_names_that_no_set_can_have(client, name):
    """They are refused, as is the name of a set of the configuration, which cannot be deleted
    either.
    """
    assert client.post(SETS, content=f'{{"name": {name!a}}}'.replace("'", '"')).status_code in (
        409,
        422,
    )
    assert client.delete(f"{SETS}/notes").status_code == 409


@pytest.mark.parametrize("principal", [Principal("w", "write"), Principal("a", "admin", ("hr",))])
def test_who_may_not_create_sets(client, app, principal, monkeypatch):
    """Only administrators of all documents create and delete sets."""
    monkeypatch.setattr("lazyrag.server.app.Principal", lambda: principal)
    assert client.post(SETS, json={"name": "teas"}).status_code == 403
    assert client.delete(f"{SETS}/notes").status_code == 403


@pytest.mark.slow
@pytest.mark.share(3)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_every_process_has_a_created_set_and_a_restart_too(tmp_path):
    """No web process answers 404 about it, each one has it within a second, and a later start finds
    it.
    """
    folder = tmp_path / "files"
    folder.mkdir()
    for start in range(2):
        with serving(folder, "--port", "0", "--processes", "3") as running:
            running.wait_until_ready()
            if not start:
                assert (
                    httpx.post(
                        f"{running.url}{SETS}", json={"name": "teas"}, timeout=60
                    ).status_code
                    == 201
                )
                found = {running.get(f"{SETS}/teas").status_code for _ in range(20)}
                assert found <= {200, 503}
            wait_for(
                lambda: all(running.get(f"{SETS}/teas").status_code == 200 for _ in range(20)),
                "the set",
                10,
            )
            if start:
                assert httpx.delete(f"{running.url}{SETS}/teas", timeout=60).status_code == 204

                def gone():
                    return all(running.get(f"{SETS}/teas").status_code == 404 for _ in range(20))

                wait_for(gone, "the deletion", 3)


def letters(text):
    """A vector of a text: how often it has some letters."""
    return [1.0, *(float(text.lower().count(one)) for one in "aeiou")]


def test_created_sets_have_the_configured_embeddings(service, client):
    """They are searched by keywords and vectors; a later model of the configuration is for later
    sets.
    """
    service.runtime_sets = RuntimeSets(service.state, f"{__name__}:letters")
    stop = threading.Event()
    thread = threading.Thread(
        target=SetFollower(service.runtime_sets, service, write=True).run, args=[stop]
    )
    thread.start()
    try:
        assert client.post(SETS, json={"name": "teas"}).status_code == 201
        wait_for(lambda: names(client) == ["notes", "teas"], "the set")
        client.post(f"{SETS}/teas/texts", json={"texts": {"tea": "Oolong tea.", "mate": "Mate."}})
        wait_for(lambda: client.get(f"{SETS}/teas").json()["documents"] == 2, "the texts")
        body = {"query": "ooo", "retriever": "vector"}
        assert [
            one["path"] for one in client.post(f"{SETS}/teas/search", json=body).json()["hits"]
        ] == ["tea", "mate"]
        [store] = [
            one for one in client.get("/v1/vector_stores").json()["data"] if one["name"] == "teas"
        ]
        found = client.post(
            f"/v1/vector_stores/{store['id']}/search", json={"query": "oolong"}
        ).json()["data"]
        assert found[0]["filename"] == "tea"
        assert all(0 <= one["score"] <= 1 for one in found)
    finally:
        stop.set()
        thread.join()


def test_a_process_is_ready_when_it_has_opened_the_sets_of_before(client, service, tmp_path):
    """One that was created at run time, too; one that is created later does not take the process
    out of service.
    """
    state = service.state
    service.runtime_sets = RuntimeSets(state)
    before = service.runtime_sets.add("before")
    service.began = before.created + 1.0
    assert client.get("/readyz").status_code == 503
    follower = SetFollower(service.runtime_sets, service, write=True)
    follower.look()
    assert client.get("/readyz").status_code == 200
    assert client.post(f"{SETS}/before/search", json={"query": "tea"}).status_code == 200
    service.began -= 2.0
    service.runtime_sets.add("later")
    assert client.get("/readyz").status_code == 200
    service.runtime_sets.delete("before")
    follower.look()
    service.began += 2.0
    service.runtime_sets.delete("later")
    assert client.get("/readyz").status_code == 200
    stop = threading.Event()
    stop.set()
    follower.run(stop)


def test_names_may_hold_spaces(client, following, service):
    """In addresses of the API, the page, OpenAI's vector stores and models, and MCP."""
    from tests.server.test_mcp import ask

    name = "Teas of 2024"
    store = client.post("/v1/vector_stores", json={"name": name}).json()
    assert store["name"] == name
    wait_for(lambda: name in names(client), "the set")
    client.post(
        f"{SETS}/{name}/texts",
        json={"texts": {"tea of may.md": "Oolong is between green and black."}},
    )
    wait_for(lambda: client.get(f"{SETS}/{name}").json()["documents"] == 1, "the text")
    html = {"Accept": "text/html"}
    for page in ("ask", "search?q=oolong", "files", "files/tea of may.md", "groups", "activity"):
        shown = client.get(f"/s/{name}/{page}", headers=html)
        assert (shown.status_code, name in shown.text) == (200, True), page
        assert f"/s/{name}" not in shown.text  # addresses are quoted
        assert "/s/Teas%20of%202024/files" in shown.text
    assert (
        client.get("/", headers=html, follow_redirects=False).headers["location"]
        == "/s/Teas%20of%202024/ask"
    )
    found = client.post(f"/v1/vector_stores/{store['id']}/search", json={"query": "oolong"}).json()[
        "data"
    ]
    assert [one["filename"] for one in found] == ["tea of may.md"]
    assert name in [one["id"] for one in client.get("/v1/models").json()["data"]]
    assert client.get(f"/v1/models/{name}").json()["id"] == name
    [hit] = ask(client.app, "search", query="oolong", set=name)["results"]
    assert "/s/Teas%20of%202024/files/tea%20of%20may.md?" in hit["url"]
    assert "Oolong" in ask(client.app, "fetch", id=hit["id"])["text"]
